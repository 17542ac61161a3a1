//! The clock of a partition, by which its keys expire.

use doyen_gossip::Time;

/// A partition's clock in milliseconds. Only a primary advances it by its own clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    ms: u64,
    heard: Time,
}

impl Clock {
    /// The clock begins at 1, because a deadline of 0 means none.
    pub(super) const fn new(now: Time) -> Self {
        Self { ms: 1, heard: now }
    }

    /// The present time: what was last heard, and what has passed since.
    pub(super) fn advance(&self, now: Time) -> u64 {
        self.ms
            .saturating_add(u64::try_from(now.since(self.heard).as_millis()).unwrap_or(0))
    }

    /// The primary's clock was heard. A new primary's clock may be behind. It counts all the same,
    /// because deadlines are given by it, and a copy ahead of it would expire keys too early.
    pub(super) fn hear(&mut self, ms: u64, now: Time) {
        *self = Self { ms, heard: now };
    }
}
