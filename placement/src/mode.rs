//! How a key finds its partition: one file a placement mode, and here the choice between them.

mod fixed;

use crate::hash::{self, SLOTS};
use crate::id::{MapId, PartitionId};
use crate::table::{Keyspace, Mode};
use std::ops::RangeInclusive;

impl Mode {
    /// How many partitions a keyspace of this mode has once it is assigned.
    #[must_use]
    pub const fn partitions(self) -> u32 {
        match self {
            Self::Fixed { partitions } => partitions as u32,
        }
    }
}

impl Keyspace {
    /// Which partition holds this key of this map; `None` while the keyspace is not assigned yet.
    ///
    /// `{hash tags}` count only in map 0. In other maps the map's id is hashed with the key, so that equal keys of
    /// several maps spread.
    #[must_use]
    pub fn partition_of(&self, map: MapId, key: &[u8]) -> Option<PartitionId> {
        let slot = if map == MapId(0) { hash::slot(key) } else { hash::slot_of_prefixed(&map.0.to_be_bytes(), key) };
        self.partition_of_slot(slot)
    }

    /// Which partition holds this slot; `None` while the keyspace is not assigned yet, and for what is no slot.
    #[must_use]
    pub fn partition_of_slot(&self, slot: u16) -> Option<PartitionId> {
        let Mode::Fixed { partitions } = self.mode;
        let partition = (slot < SLOTS).then(|| fixed::partition_of_slot(partitions, slot))?;
        ((partition.0 as usize) < self.partitions.len()).then_some(partition)
    }

    /// The slots of a partition; an empty range for a number that no partition of this keyspace has.
    #[must_use]
    pub fn slots_of(&self, partition: PartitionId) -> RangeInclusive<u16> {
        let Mode::Fixed { partitions } = self.mode;
        fixed::slots_of(partitions, partition)
    }
}
