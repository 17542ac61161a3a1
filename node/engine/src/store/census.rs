//! How full the blocks of the allocator are, and which of them are being emptied.
//!
//! An allocator keeps values of similar size together, and can give a block back only if all of
//! them are gone. `role/compaction.rs` says when entries are moved.

use super::contents::SurveyPosition;
use super::shaking::Shaking;
use super::surveyor::{Decoy, IndexTable, Surveyor};
use crate::value::entry::{Entry, LargeValue};
use doyen_gossip::Time;
use doyen_placement::PartitionRef;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Memory that the process holds besides what a shard counts. With several data threads, this one's
/// part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outside {
    /// Buffers of clients.
    pub buffers: u64,
    /// The rest: dropped entries that are not freed yet, memory that the allocator keeps, and
    /// buffers that are not counted.
    pub loose: u64,
}

/// Allocators give memory back in blocks of this size, or several of them.
const BLOCK_BITS: u32 = 16;
const BLOCK_BYTES: u64 = 1 << BLOCK_BITS;
/// If the entries of a block take less than this, it is worth emptying.
const SPARSE_BYTES: u32 = (BLOCK_BYTES / 4 * 3) as u32;
/// The cost of looking at a pointer, looking at its entry, and copying a small entry. A large entry
/// costs as much again for each of these many bytes.
const POINTER_WORK: usize = 1;
const ENTRY_WORK: usize = 16;
const COPY_WORK: usize = 40;
const COPY_WORK_BYTES: usize = 256;
/// Blocks that are sorted, or chosen to be emptied, in one step.
pub(crate) const STEP_BLOCKS: usize = 8192;
/// Blocks are counted in this many tables. If one of the tables grows, that is a small part of all
/// blocks.
const CENSUS_TABLES: usize = 256;
/// Sparse blocks are distinguished by how many of this many parts are taken.
const FULLNESSES: usize = 48;
/// Places in blocks to be emptied that one copy passes over before other work has its turn.
const DECOYS_IN_A_ROW: usize = 1024;
/// An entry with its value inside takes no more than this, unless its key is long.
const INLINE_BYTES: u64 = 1 << 10;

/// The state of compacting: how much is loose, and the run under way.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    pub(crate) outside: Outside,
    /// Bytes that were being freed when this was last checked.
    pub(crate) dropped: u64,
    /// The smallest number of loose bytes since the last run ended.
    pub(crate) loose_after: u64,
    pub(crate) next_run: Time,
    pub(crate) run: Option<CompactionRun>,
    /// Until then, the gain of the last run may not be visible.
    pub(crate) settles_until: Time,
    /// Bytes that the present run moves entries for, or that the last one has gained.
    pub(crate) gain: u64,
    /// Loose bytes that the present run cannot give back, as far as its census tells.
    pub(crate) stuck: u64,
    /// The part of the gain that new values may take before the system reports it: the allocator
    /// has it.
    pub(crate) freed: u64,
}

impl Compacting {
    /// Whether a run is worth it, if at `least` this many bytes must be loose, and this many `more`
    /// are than after the last run.
    pub(crate) fn is_due(&self, more: u64, least: u64, now: Time) -> bool {
        self.outside.loose >= least && (more >= least / 2 || now >= self.next_run)
    }
}

/// A run under way.
#[derive(Debug)]
pub(crate) struct CompactionRun {
    /// Partitions that remain in this round, and the position in the first of them.
    pub(crate) rest: VecDeque<PartitionRef>,
    pub(crate) place: SurveyPosition,
    pub(crate) stage: CensusStage,
}

#[derive(Debug)]
pub(crate) enum CensusStage {
    Shake {
        shaking: Shaking,
        /// Whether entries are moved afterwards if much is still loose.
        first: bool,
    },
    Census(Census),
    /// The census is complete and is being sorted.
    Sort(Census, Sparse),
    Round(Round),
}

/// Hashes the number of a block.
#[derive(Debug, Default, Clone, Copy)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, n: u64) {
        // Neighbours must differ in the upper bits and in the lower ones.
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type ByBlock = BuildHasherDefault<BlockHasher>;

/// About how much an allocator uses for `bytes`: it has four sizes to a power of two.
const fn taken(bytes: usize) -> usize {
    let step = bytes.next_power_of_two() / 8;
    if step < 16 {
        bytes.next_multiple_of(16)
    } else {
        bytes.next_multiple_of(step)
    }
}

/// The blocks in which an allocation lies. A large allocation has blocks of its own, and leaves
/// nothing loose.
fn blocks((address, bytes): (u64, usize)) -> Option<std::ops::RangeInclusive<u64>> {
    let bytes = bytes as u64;
    (0 < bytes && bytes <= BLOCK_BYTES)
        .then(|| address >> BLOCK_BITS..=(address + bytes - 1) >> BLOCK_BITS)
}

/// How many bytes of each block are in use.
#[derive(Debug)]
pub(crate) struct Census {
    taken: Vec<HashMap<u64, u32, ByBlock>>,
    /// Whether there are values with an allocation of their own.
    pub(crate) values: bool,
    pub(crate) work: usize,
}

impl Default for Census {
    fn default() -> Self {
        Self {
            taken: (0..CENSUS_TABLES).map(|_| HashMap::default()).collect(),
            values: false,
            work: 0,
        }
    }
}

impl Census {
    fn count(&mut self, (address, bytes): (u64, usize)) {
        let allocation = (address, taken(bytes));
        let end = address + allocation.1 as u64;
        for block in blocks(allocation).into_iter().flatten() {
            let from = address.max(block << BLOCK_BITS);
            let to = end.min((block + 1) << BLOCK_BITS);
            // At most a whole block.
            *self.taken[block as usize % CENSUS_TABLES]
                .entry(block)
                .or_default() += (to - from) as u32;
        }
    }

    /// Sorts about this number of `blocks` into those worth emptying. False: all are sorted.
    pub(crate) fn sort(&mut self, sparse: &mut Sparse, blocks: usize) -> bool {
        let mut sorted = 0;
        while sorted < blocks
            && let Some(table) = self.taken.pop()
        {
            sorted += table.len();
            table
                .into_iter()
                .filter(|(_, taken)| *taken < SPARSE_BYTES)
                .for_each(|(block, taken)| sparse.add(block, taken));
        }
        !self.taken.is_empty()
    }
}

/// Blocks worth emptying, roughly in order of how full they are: the emptiest come first.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    by_fullness: Vec<Vec<(u32, u64)>>,
    /// How much memory it would free to empty all of them.
    pub(crate) gain: u64,
}

impl Sparse {
    fn add(&mut self, block: u64, taken: u32) {
        self.by_fullness.resize_with(FULLNESSES, Vec::new);
        let fullness = taken as usize * FULLNESSES / SPARSE_BYTES as usize;
        self.by_fullness[fullness.min(FULLNESSES - 1)].push((taken, block));
        self.gain += BLOCK_BYTES.saturating_sub(taken.into());
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        self.by_fullness.iter_mut().find_map(Vec::pop)
    }
}

impl Surveyor for Census {
    fn entry(&mut self, entry: &Entry, _: usize) -> Option<Entry> {
        self.work += ENTRY_WORK;
        self.count(entry.allocation());
        if let Some(value) = entry.value_allocation() {
            self.values = true;
            self.count(value);
        }
        None
    }

    fn table<T: IndexTable>(&mut self, address: u64, room: usize) -> Option<Vec<T>> {
        self.work += POINTER_WORK;
        self.count((address, room * size_of::<T>()));
        None
    }
}

/// The blocks that are being emptied.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Blocks whose turn comes later.
    later: Sparse,
    now: HashSet<u64, ByBlock>,
    /// While blocks are chosen: the bytes to be moved in those that are chosen already.
    chosen: Option<u64>,
    /// Whether there are values with an allocation of their own.
    values: bool,
    decoys: Vec<Decoy>,
    /// Some entry has not found a place yet.
    pub(crate) again: bool,
    pub(crate) work: usize,
}

impl Round {
    /// These blocks are to be emptied.
    pub(crate) fn of(later: Sparse, values: bool) -> Self {
        Self {
            later,
            values,
            ..Self::default()
        }
    }

    /// Whether no block is being emptied.
    pub(crate) fn is_over(&self) -> bool {
        self.now.is_empty()
    }

    /// Chooses the next blocks, with about `bytes` to be moved. True: all are chosen, or there are
    /// none.
    pub(crate) fn choose(&mut self, bytes: u64) -> bool {
        let mut moved = self.chosen.unwrap_or_else(|| {
            self.now.clear();
            self.decoys.clear();
            0
        });
        for _ in 0..STEP_BLOCKS {
            let next = if moved < bytes {
                self.later.pop()
            } else {
                None
            };
            let Some((taken, block)) = next else {
                self.chosen = None;
                return true;
            };
            self.now.insert(block);
            moved += u64::from(taken);
        }
        self.chosen = Some(moved);
        false
    }

    fn empties(&self, allocation: (u64, usize)) -> bool {
        blocks(allocation).is_some_and(|mut blocks| blocks.any(|block| self.now.contains(&block)))
    }

    /// Allocates a copy outside of these blocks.
    fn place<T>(
        &mut self,
        make: impl Fn() -> T,
        place: impl Fn(&T) -> (u64, usize),
        decoy: impl Fn(T) -> Decoy,
    ) -> Option<T> {
        for _ in 0..DECOYS_IN_A_ROW {
            let made = make();
            let at = place(&made);
            self.work += COPY_WORK + at.1 / COPY_WORK_BYTES;
            if !self.empties(at) {
                return Some(made);
            }
            self.decoys.push(decoy(made));
        }
        // The number of such places is limited.
        self.again = true;
        None
    }
}

impl Surveyor for Round {
    fn entry(&mut self, entry: &Entry, holds: usize) -> Option<Entry> {
        self.work += POINTER_WORK;
        // Loading an entry costs far more than looking at its address, and most entries are in
        // other blocks.
        let address = entry.address();
        let near = [address, address + INLINE_BYTES]
            .iter()
            .any(|at| self.now.contains(&(at >> BLOCK_BITS)));
        if !near && !self.values {
            return None;
        }
        self.work += ENTRY_WORK;
        let value = entry
            .value_allocation()
            .is_some_and(|value| self.empties(value));
        if !(value || self.empties(entry.allocation())) || entry.is_held_beside(holds) {
            return None;
        }
        let value = match entry.value_allocation() {
            Some(_) if value => Some(self.place(
                || entry.copy_value(),
                LargeValue::allocation,
                |room| Decoy::Value { _room: room },
            )?),
            _ => None,
        };
        self.place(
            || entry.moved(value.as_ref()),
            Entry::allocation,
            |room| Decoy::Entry { _room: room },
        )
    }

    fn table<T: IndexTable>(&mut self, address: u64, room: usize) -> Option<Vec<T>> {
        self.work += POINTER_WORK;
        let bytes = room * size_of::<T>();
        let here = self.empties((address, bytes));
        let place = |table: &Vec<T>| (table.as_ptr() as usize as u64, bytes);
        if here {
            self.place(|| Vec::with_capacity(room), place, T::decoy)
        } else {
            None
        }
    }
}

impl CensusStage {
    pub(crate) fn shake(loose: u64, first: bool) -> Self {
        Self::Shake {
            shaking: Shaking::new(loose),
            first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: with tens of gigabytes there are hundreds of thousands of blocks, and all were
    /// sorted at once while clients waited.
    #[test]
    fn many_blocks_are_sorted_and_chosen_in_steps_the_emptiest_first() {
        const BLOCKS: u64 = 200_000;
        let mut census = Census::default();
        let taken_of = |block: u64| 1024 * (1 + block * 7 % 63) as usize;
        (0..BLOCKS).for_each(|block| census.count((block << BLOCK_BITS, taken_of(block))));
        let mut sparse = Sparse::default();
        let mut steps = 1;
        while census.sort(&mut sparse, STEP_BLOCKS) {
            steps += 1;
        }
        assert!(
            steps >= BLOCKS as usize / (2 * STEP_BLOCKS),
            "{steps} steps"
        );
        let worth = |block: &u64| taken(taken_of(*block)) < SPARSE_BYTES as usize;
        let gain: u64 = (0..BLOCKS)
            .filter(worth)
            .map(|block| BLOCK_BYTES - taken(taken_of(block)) as u64)
            .sum();
        assert_eq!(sparse.gain, gain);

        let mut round = Round {
            later: sparse,
            ..Round::default()
        };
        let (mut emptied, mut fullest) = (0, 0);
        loop {
            let mut before = 0;
            while !round.choose(1 << 30) {
                assert!(round.now.len() - before <= STEP_BLOCKS);
                before = round.now.len();
            }
            if round.now.is_empty() {
                break;
            }
            let taken: Vec<usize> = round
                .now
                .iter()
                .map(|block| taken(taken_of(*block)))
                .collect();
            // As precise as the parts are.
            let part = SPARSE_BYTES as usize / FULLNESSES;
            assert!(
                taken.iter().min().expect("not empty") + part >= fullest,
                "fuller ones were emptied before"
            );
            fullest = *taken.iter().max().expect("not empty");
            emptied += round.now.len();
        }
        assert_eq!(emptied, (0..BLOCKS).filter(worth).count());
    }
}
