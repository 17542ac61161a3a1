//! The memory of a shard: what is stored, what was dropped and is not freed yet, and how room is
//! made.

use super::eviction::Evicting;
use super::garbage::Garbage;
use crate::role::compaction::Compacting;
use doyen_gossip::Time;

/// The memory of a shard.
#[derive(Debug)]
pub(crate) struct Memory {
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

impl Memory {
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

    /// A partition took so many bytes before, and takes so many now.
    #[inline]
    pub(crate) const fn recount(&mut self, before: usize, now: usize) {
        self.bytes = (self.bytes + now).saturating_sub(before);
    }
}
