//! Runs of slots, each a partition: the division of a fixed keyspace after some of its partitions
//! were split.

use crate::hash::SLOTS;
use crate::id::PartitionId;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;

/// The start of a run, with its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunStart {
    /// Its first slot.
    pub slot: u16,
    /// The partition.
    pub partition: PartitionId,
}

/// Runs of slots: each goes from its start to the next one. A run has a power of two of slots and
/// begins at a multiple of that, as halving makes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<RunStart>", into = "Vec<RunStart>")]
pub struct Runs {
    starts: Vec<RunStart>,
    /// The partition of each piece. A piece is as long as the shortest run.
    pieces: Vec<PartitionId>,
    /// The shift that turns a slot into its piece.
    shift: u32,
    /// The start of each partition, in order of the partitions.
    places: Vec<(PartitionId, usize)>,
}

/// Starts that make no runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// Some slots have no run, or runs stand out of order.
    #[error("runs of slots must begin with slot 0 and stand in order")]
    Disorder,
    /// A run that halving cannot make.
    #[error("the run of slots that begins with {0} is not a half of a half of all")]
    Uneven(u16),
    /// Two runs have the same partition.
    #[error("partition {0} is two runs of slots")]
    Partition(PartitionId),
}

impl Runs {
    /// Runs with these starts.
    ///
    /// # Errors The first thing found wrong.
    pub fn new(starts: Vec<RunStart>) -> Result<Self, RunsError> {
        let ordered = starts.windows(2).all(|two| two[0].slot < two[1].slot);
        if !ordered
            || starts.first().is_none_or(|first| first.slot != 0)
            || starts.last().is_none_or(|last| last.slot >= SLOTS)
        {
            return Err(RunsError::Disorder);
        }
        let end = |at: usize| starts.get(at + 1).map_or(SLOTS, |next| next.slot);
        let uneven = |at: &usize| {
            let (slot, length) = (starts[*at].slot, end(*at) - starts[*at].slot);
            !length.is_power_of_two() || slot % length != 0
        };
        if let Some(at) = (0..starts.len()).find(uneven) {
            return Err(RunsError::Uneven(starts[at].slot));
        }
        let mut places: Vec<(PartitionId, usize)> = starts
            .iter()
            .map(|start| start.partition)
            .zip(0..)
            .collect();
        places.sort_unstable();
        if let Some(two) = places.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(RunsError::Partition(two[0].0));
        }
        let shortest = (0..starts.len())
            .map(|at| end(at) - starts[at].slot)
            .min()
            .unwrap_or(SLOTS);
        let piece = |at: usize| {
            std::iter::repeat_n(
                starts[at].partition,
                usize::from((end(at) - starts[at].slot) / shortest),
            )
        };
        let pieces = (0..starts.len()).flat_map(piece).collect();
        Ok(Self {
            pieces,
            shift: shortest.trailing_zeros(),
            places,
            starts,
        })
    }

    /// This many runs of equal length, numbered in order. The number is a power of two.
    ///
    /// # Errors Another number.
    pub fn even(count: u16) -> Result<Self, RunsError> {
        let length = SLOTS
            .checked_div(count)
            .filter(|length| *length > 0)
            .ok_or(RunsError::Disorder)?;
        Self::new(
            (0..count)
                .map(|number| RunStart {
                    slot: number * length,
                    partition: PartitionId(number.into()),
                })
                .collect(),
        )
    }

    /// The starts, in order.
    #[must_use]
    pub fn starts(&self) -> &[RunStart] {
        &self.starts
    }

    /// The partition of each run, in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.starts.iter().map(|start| start.partition)
    }

    /// The partition of a slot. `None`: there is no such slot.
    #[must_use]
    pub fn partition_of_slot(&self, slot: u16) -> Option<PartitionId> {
        self.pieces.get(usize::from(slot >> self.shift)).copied()
    }

    /// The slots of a partition, if it has any.
    #[must_use]
    pub fn slots_of(&self, partition: PartitionId) -> Option<RangeInclusive<u16>> {
        let at = self
            .places
            .binary_search_by_key(&partition, |(id, _)| *id)
            .ok()?;
        let at = self.places[at].1;
        Some(self.starts[at].slot..=self.starts.get(at + 1).map_or(SLOTS, |next| next.slot) - 1)
    }
}

impl TryFrom<Vec<RunStart>> for Runs {
    type Error = RunsError;

    fn try_from(starts: Vec<RunStart>) -> Result<Self, RunsError> {
        Self::new(starts)
    }
}

impl From<Runs> for Vec<RunStart> {
    fn from(runs: Runs) -> Self {
        runs.starts
    }
}

/// The look-ups follow from the starts.
impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        self.starts == other.starts
    }
}

impl Eq for Runs {}

impl Hash for Runs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.starts.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_the_run_that_begins_last_before_it() {
        let start = |slot, partition| RunStart {
            slot,
            partition: PartitionId(partition),
        };
        let runs = Runs::new(vec![
            start(0, 7),
            start(8192, 3),
            start(12288, 9),
            start(14336, 2),
        ])
        .expect("halves of halves");
        for slot in 0..SLOTS {
            let naive = runs
                .starts()
                .iter()
                .rev()
                .find(|start| start.slot <= slot)
                .expect("the first is slot 0")
                .partition;
            assert_eq!(runs.partition_of_slot(slot), Some(naive));
            assert!(runs.slots_of(naive).expect("it has some").contains(&slot));
        }
        assert_eq!(runs.partition_of_slot(SLOTS), None);
        assert_eq!(runs.slots_of(PartitionId(0)), None);
    }

    #[test]
    fn starts_that_make_no_runs_are_refused() {
        let new = |starts: &[(u16, u32)]| {
            let start = |(slot, partition): &(u16, u32)| RunStart {
                slot: *slot,
                partition: PartitionId(*partition),
            };
            Runs::new(starts.iter().map(start).collect()).map(|_| ())
        };
        assert_eq!(new(&[]), Err(RunsError::Disorder));
        assert_eq!(new(&[(1, 0)]), Err(RunsError::Disorder));
        assert_eq!(new(&[(0, 0), (SLOTS, 1)]), Err(RunsError::Disorder));
        assert_eq!(new(&[(0, 0), (100, 1)]), Err(RunsError::Uneven(0)));
        assert_eq!(
            new(&[(0, 0), (8192, 0)]),
            Err(RunsError::Partition(PartitionId(0)))
        );
        assert_eq!(Runs::even(0).map(|_| ()), Err(RunsError::Disorder));
        assert_eq!(
            Runs::even(16)
                .expect("a power of two")
                .slots_of(PartitionId(3)),
            Some(3072..=4095)
        );
    }
}
