//! Gives back the memory that is free between entries.
//!
//! ```text
//!   census: how much of each block of 64 KiB do entries take?
//!   blocks that are mostly empty, the emptiest first, some in each round:
//!     every entry in one of them is copied elsewhere ─> nothing is left in the block
//!   shake (`shaking`): the allocator gives back what is free
//! ```
//! An allocator keeps values of similar size together, and can give a block back only if all of
//! them are gone. When the size of values changes, or when evicted keys lie anywhere, most blocks
//! keep a few values. Then the process holds far more than its entries: `Outside::loose` says how
//! much more. From some point on, the shard makes room by moving entries.
//!
//! A copy may land in another block that is to be emptied. Such a place is kept (`Decoy`) until the
//! round ends, so the next copy finds another one. Entries that are shared with the log or with
//! readers stay where they are.

use super::timers::Duty;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::store::SurveyPosition;
use crate::store::census::{Census, CensusStage, CompactionRun, Round, STEP_BLOCKS, Sparse};
use crate::value::entry::Entry;
use doyen_gossip::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Work of one step, half a millisecond, and the pause after it if memory is not short.
const STEP_WORK: usize = 100_000;
const PAUSE: Duration = Duration::from_millis(1);
/// This part of the memory is copied in one round. Until a round ends, both copies take room.
const ROUND_PART: u64 = 32;
const ROUND_BYTES_LEAST: u64 = 1 << 20;
/// The least loose bytes for which a run is worth it, and the same as parts of the memory: if
/// memory is short, and if it is not.
const LOOSE_BYTES_LEAST: u64 = 8 << 20;
const LOOSE_PART_SHORT: u64 = 16;
const LOOSE_PART: u64 = 8;
/// After a run, the next one begins when half as much more is loose, or after this time.
const REST_SHORT: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(60);
/// If this many more bytes are loose than after the last run, the allocator is asked to give back
/// what is free.
const SHAKEN_BYTES_LEAST: u64 = 8 << 20;
/// How long after a run the shell looks again at the memory of the process.
const SETTLES: Duration = Duration::from_millis(250);
/// Keys and log entries freed in one step, and the pause after it.
const FREE_SLICE: usize = 500;
const FREE_PAUSE: Duration = Duration::from_millis(2);
/// The same if memory is short.
const FREE_SLICE_SHORT: usize = 2_000;
const FREE_PAUSE_SHORT: Duration = Duration::from_micros(500);

impl Slots {
    /// Starts a run if enough is loose.
    pub(crate) fn look_at_loose(&mut self, host: &mut Host, now: Time) {
        let (garbage, dropped) = (!host.memory.garbage.is_empty(), host.memory.garbage.bytes());
        let (short, least) = host.loose_least();
        let compacting = &mut host.memory.compacting;
        let loose = compacting.outside.loose;
        compacting.dropped = compacting.dropped.max(dropped);
        if compacting.run.is_some() || garbage || now < compacting.settles_until {
            return;
        }
        // By now, dropped entries are freed: the allocator has their memory, and new values may
        // take it.
        let dropped = std::mem::take(&mut compacting.dropped);
        let cleared = dropped >= SHAKEN_BYTES_LEAST;
        compacting.loose_after = compacting.loose_after.min(loose);
        let more = if cleared {
            loose
        } else {
            loose - compacting.loose_after
        };
        let moves = compacting.is_due(more, least, now);
        if !moves && more < SHAKEN_BYTES_LEAST {
            return;
        }
        // If values wait for memory that is free already, it need not be given back.
        let stage = if moves && short && !cleared {
            CensusStage::Census(Census::default())
        } else {
            CensusStage::shake(loose, true)
        };
        (compacting.stuck, compacting.freed) = (0, loose.min(dropped) / 2);
        compacting.run = Some(CompactionRun {
            rest: VecDeque::new(),
            place: SurveyPosition::default(),
            stage,
        });
        host.timers.set(Duty::Compact, now);
        self.enlist(host);
    }

    /// Begins a round through all partitions.
    fn enlist(&mut self, host: &mut Host) {
        if let Some(run) = &mut host.memory.compacting.run {
            run.rest = self
                .iter()
                .filter(|slot| slot.held.is_some())
                .map(|slot| slot.at)
                .collect();
            run.place = SurveyPosition::default();
        }
    }

    /// Takes the next step of the run.
    pub(crate) fn compact_due(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Compact, now) {
            return;
        }
        let (short, _) = host.loose_least();
        let next = if short { now } else { now + PAUSE };
        host.timers.rest(Duty::Compact, next);
        self.compact_some(host, now);
        let more = host.memory.compacting.run.is_some();
        host.timers.settle(Duty::Compact, more);
    }

    fn compact_some(&mut self, host: &mut Host, now: Time) {
        let mut work = 0;
        while work < STEP_WORK {
            let Some(run) = &mut host.memory.compacting.run else {
                return;
            };
            if let CensusStage::Shake { shaking, .. } = &mut run.stage {
                match shaking.step(now) {
                    Some(next) => host.timers.rest(Duty::Compact, next),
                    None => self.end_stage(host, now),
                }
                return;
            }
            let Some(at) = run.rest.front().copied() else {
                self.end_stage(host, now);
                // The step sorted, chose or freed blocks.
                return;
            };
            let held = self.get_mut(at).and_then(|slot| slot.held.as_deref_mut());
            let place = run.place.clone();
            let (more, worked) = match (&mut run.stage, held) {
                (CensusStage::Census(census), Some(held)) => (
                    held.store.survey(&mut run.place, census),
                    std::mem::take(&mut census.work),
                ),
                (CensusStage::Round(round), Some(held)) => (
                    held.store.survey(&mut run.place, round),
                    std::mem::take(&mut round.work),
                ),
                (CensusStage::Shake { .. } | CensusStage::Sort(..), _) | (_, None) => (false, 0),
            };
            work += worked + 1;
            if let CensusStage::Round(round) = &mut run.stage
                && std::mem::take(&mut round.again)
            {
                run.place = place;
            } else if !more {
                run.rest.pop_front();
                run.place = SurveyPosition::default();
            }
        }
    }

    fn end_stage(&mut self, host: &mut Host, now: Time) {
        let bytes = (host.limits.memory_bytes_max as u64 / ROUND_PART).max(ROUND_BYTES_LEAST);
        let (short, least) = host.loose_least();
        let compacting = &mut host.memory.compacting;
        let loose = compacting.outside.loose;
        let Some(run) = &mut compacting.run else {
            return;
        };
        // Entries that were given up for reuse would keep their blocks.
        Entry::forget_spare();
        match &mut run.stage {
            CensusStage::Shake { first: true, .. } if loose >= least => {
                compacting.freed = 0;
                run.stage = CensusStage::Census(Census::default());
            }
            CensusStage::Shake { .. } => {
                compacting.run = None;
                (compacting.loose_after, compacting.freed) = (u64::MAX, 0);
                compacting.settles_until = now + SETTLES;
                return;
            }
            // The next steps continue here: no partition is on the list.
            CensusStage::Census(census) => {
                run.stage = CensusStage::Sort(std::mem::take(census), Sparse::default());
                return;
            }
            CensusStage::Sort(census, sparse) => {
                if !census.sort(sparse, STEP_BLOCKS) {
                    let (later, values) = (std::mem::take(sparse), census.values);
                    compacting.gain = later.gain;
                    compacting.stuck = loose.saturating_sub(later.gain);
                    compacting.next_run = now + if short { REST_SHORT } else { REST };
                    run.stage = CensusStage::Round(Round::of(later, values));
                }
                return;
            }
            CensusStage::Round(round) => {
                if !round.choose(bytes) {
                    return;
                }
                if round.is_over() {
                    host.stats.compactions += 1;
                    // Only half counts, because some entries could not be moved.
                    compacting.freed = compacting.gain / 2;
                    compacting.stuck = 0;
                    run.stage = CensusStage::shake(loose, false);
                }
            }
        }
        self.enlist(host);
    }
}

impl Host {
    /// Frees a slice of what was dropped.
    pub(crate) fn free(&mut self, now: Time) {
        if !self.timers.take(Duty::Free, now) {
            return;
        }
        // If memory is short, writes wait for this. And if much is dropped, as much may soon be
        // written in its place: large hashes that are written again are written as fast as they are
        // freed.
        let room = self.headroom();
        let much = self.memory.garbage.bytes() > room.kept;
        let (slice, pause) = if room.left < room.kept || much {
            (FREE_SLICE_SHORT, FREE_PAUSE_SHORT)
        } else {
            (FREE_SLICE, FREE_PAUSE)
        };
        self.timers.rest(Duty::Free, now + pause);
        self.memory.garbage.free(slice);
        let more = !self.memory.garbage.is_empty();
        self.timers.settle(Duty::Free, more);
    }

    /// Whether memory is short, and from how many loose bytes on it is worth it to move entries.
    fn loose_least(&self) -> (bool, u64) {
        let ((left, kept), max) = (self.left_and_kept(), self.limits.memory_bytes_max as u64);
        let short = left < kept.saturating_mul(2);
        (
            short,
            (max / if short { LOOSE_PART_SHORT } else { LOOSE_PART }).max(LOOSE_BYTES_LEAST),
        )
    }

    /// How many of the loose bytes are about to be given back.
    pub(crate) fn loosening(&self) -> u64 {
        let compacting = &self.memory.compacting;
        let loose = compacting.outside.loose;
        if compacting.dropped > 0 || !self.memory.garbage.is_empty() {
            self.loose()
        } else if compacting.run.is_some() || self.now < compacting.settles_until {
            // What is freed while a run goes on is loose as well, and the next run gives it back.
            self.loose().saturating_sub(compacting.stuck)
        } else if loose >= LOOSE_BYTES_LEAST
            && compacting.is_due(
                loose.saturating_sub(compacting.loose_after),
                self.loose_least().1,
                self.now,
            )
        {
            // The next check starts a run.
            self.loose()
        } else {
            0
        }
    }

    /// The loose bytes, without those that new values may take at once.
    fn loose(&self) -> u64 {
        self.memory
            .compacting
            .outside
            .loose
            .saturating_sub(self.memory.compacting.freed)
    }

    /// Bytes of memory that this thread holds, including its part of the memory outside.
    pub(crate) fn memory_held(&self) -> usize {
        let outside = self
            .memory
            .compacting
            .outside
            .buffers
            .saturating_add(self.loose());
        usize::try_from(outside)
            .unwrap_or(usize::MAX)
            .saturating_add(self.memory.bytes)
            .saturating_add(self.subscriptions.bytes())
            .saturating_add(self.bounds.bytes())
    }
}
