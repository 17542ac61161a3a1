//! How a key finds its partition: one file a placement mode, and here the choice between them.

mod fixed;

use crate::division::{Division, slot_of};
use crate::hash::SLOTS;
use crate::id::{MapId, PartitionId};
use crate::table::{Keyspace, Mode};
use std::ops::RangeInclusive;

impl Keyspace {
    /// How many partitions it has, or will have once it is assigned. Of a ring that is not known before: one, at least.
    #[must_use]
    pub fn count(&self) -> usize {
        match (self.mode, &self.division) {
            (_, Division::Runs(runs)) => runs.starts().len(),
            (Mode::Fixed { partitions }, _) => partitions.into(),
            (_, Division::Ranges(ranges)) => ranges.starts().len(),
            _ => self.partitions.len().max(1),
        }
    }

    /// Which partition holds this key of this map; `None` while the keyspace is not assigned yet.
    ///
    /// `{hash tags}` count only in map 0, and not for ranges. In other maps the map's id is hashed with the key, so that equal keys of
    /// several maps spread.
    #[must_use]
    pub fn partition_of(&self, map: MapId, key: &[u8]) -> Option<PartitionId> {
        if !matches!(self.division, Division::Slots | Division::Runs(_)) {
            return if self.partitions.is_empty() { None } else { self.division.partition_of(map, key) };
        }
        self.partition_of_slot(slot_of(map, key))
    }

    /// Which partition holds this slot; `None` while the keyspace is not assigned yet, where it has no slots, and for what is no slot.
    #[must_use]
    pub fn partition_of_slot(&self, slot: u16) -> Option<PartitionId> {
        let Mode::Fixed { partitions } = self.mode else { return None };
        if let Division::Runs(runs) = &self.division {
            return runs.partition_of_slot(slot).filter(|_| !self.partitions.is_empty());
        }
        let partition = (slot < SLOTS).then(|| fixed::partition_of_slot(partitions, slot))?;
        ((partition.0 as usize) < self.partitions.len()).then_some(partition)
    }

    /// The slots of a partition; an empty range for a number that no partition of this keyspace has, and where it has no slots.
    #[must_use]
    pub fn slots_of(&self, partition: PartitionId) -> RangeInclusive<u16> {
        let Mode::Fixed { partitions } = self.mode else { return fixed::NO_SLOTS };
        if let Division::Runs(runs) = &self.division {
            return runs.slots_of(partition).unwrap_or(fixed::NO_SLOTS);
        }
        fixed::slots_of(partitions, partition)
    }
}
