//! The memory of a shard: what is stored, what was dropped and is not freed yet, and how room is
//! made.

use super::garbage::Garbage;
#[cfg(any(test, feature = "fuzz"))]
use crate::store::Key;
use crate::store::census::Compacting;
use crate::wire::pressure::Pressure;
use doyen_gossip::Time;
#[cfg(any(test, feature = "fuzz"))]
use doyen_placement::MapId;
use doyen_placement::PartitionRef;
use std::collections::{BTreeMap, VecDeque};

/// The memory of a shard.
#[derive(Debug)]
pub(crate) struct ShardMemory {
    /// Bytes held: entries, logs, snapshots.
    pub(crate) bytes: usize,
    /// Number of held partitions, which share the tail.
    pub(crate) holding: usize,
    /// Memory is short, so no logs are kept for readers.
    pub(crate) squeezed: bool,
    pub(crate) garbage: Garbage,
    pub(crate) evicting: Evicting,
    pub(crate) compacting: Compacting,
}

impl ShardMemory {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            bytes: 0,
            holding: 0,
            squeezed: false,
            garbage: Garbage::default(),
            evicting: Evicting::new(now),
            compacting: Compacting::default(),
        }
    }

    /// The bytes of a partition changed from `before` to `now`.
    #[inline]
    pub(crate) const fn recount(&mut self, before: usize, now: usize) {
        self.bytes = (self.bytes + now).saturating_sub(before);
    }
}

/// Eviction under way.
#[derive(Debug)]
pub(crate) struct Evicting {
    pub(crate) own: Pressure,
    /// The partitions whose turn it is, and how many keys of each.
    pub(crate) queue: VecDeque<(PartitionRef, usize)>,
    pub(crate) next_look: Time,
    /// A write has made room since the last check.
    pub(crate) pressed: bool,
    /// When a write last looked for room, and might have evicted something.
    pub(crate) sought: Time,
    /// Writes that waited for room since the last check, and how many bytes each needs. A partition
    /// has one at most, because the others wait behind it.
    pub(crate) waiting: BTreeMap<PartitionRef, u64>,
    /// The same before the last check.
    pub(crate) waited: BTreeMap<PartitionRef, u64>,
    /// The last evicted keys, for inspection only.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) gone: VecDeque<(PartitionRef, MapId, Key)>,
}

impl Evicting {
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            own: Pressure::NONE,
            queue: VecDeque::new(),
            next_look: now,
            pressed: false,
            sought: Time::ZERO,
            waiting: BTreeMap::new(),
            waited: BTreeMap::new(),
            #[cfg(any(test, feature = "fuzz"))]
            gone: VecDeque::new(),
        }
    }

    /// Whether writes of this partition wait for room: they are tried again many times between two
    /// checks.
    pub(crate) fn is_waiting(&self, at: PartitionRef) -> bool {
        self.waiting.contains_key(&at) || self.waited.contains_key(&at)
    }
}
