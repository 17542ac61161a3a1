//! The memory of a shard: what is stored, what was dropped and is not freed yet, and how room is
//! made.

use super::compacting::Compacting;
use super::eviction::Evicting;
use super::garbage::Garbage;
use doyen_gossip::Time;

/// The memory of a shard.
#[derive(Debug)]
pub(super) struct Memory {
    /// Bytes held: entries, logs, snapshots.
    pub(super) bytes: usize,
    /// Number of held partitions, which share the tail.
    pub(super) holding: usize,
    /// Memory is short, so no logs are kept for readers.
    pub(super) squeezed: bool,
    pub(super) garbage: Garbage,
    pub(super) evicting: Evicting,
    pub(super) compacting: Compacting,
}

impl Memory {
    pub(super) fn new(now: Time) -> Self {
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
    pub(super) const fn recount(&mut self, before: usize, now: usize) {
        self.bytes = (self.bytes + now).saturating_sub(before);
    }
}
