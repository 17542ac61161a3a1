//! Which partitions a shard looks at by the clock, and for what.

use super::partition::Slot;
use super::timers::{Duty, Timers};
use doyen_gossip::Time;
use doyen_placement::PartitionRef;
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two looks at the partitions with changes: for commit notices, expiry and silent
/// copies.
pub(crate) const UPKEEP: Duration = Duration::from_millis(50);

/// The partitions that have their turn.
#[derive(Debug)]
pub(crate) struct UpkeepQueue {
    /// Partitions that the next upkeep looks at. All others have nothing to do. An idle node looks
    /// at none: looking at a thousand partitions twenty times a second was a third of its cost.
    pub(crate) noticed: Vec<PartitionRef>,
    /// Partitions that the present upkeep must still look at.
    pub(crate) looking_at: VecDeque<PartitionRef>,
    /// The present upkeep gives up the calls that were due at this time.
    pub(crate) gives_up_to: Time,
    /// Partitions with overdue keys.
    pub(crate) expiring: VecDeque<PartitionRef>,
    /// Partitions that still migrate from former ones.
    pub(crate) migrating: VecDeque<PartitionRef>,
    /// When loads were last measured, and how often they were.
    pub(crate) measured: (Time, u32),
}

impl UpkeepQueue {
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            noticed: Vec::new(),
            looking_at: VecDeque::new(),
            gives_up_to: Time::ZERO,
            expiring: VecDeque::new(),
            migrating: VecDeque::new(),
            measured: (now, 0),
        }
    }

    /// A partition may have work: upkeep looks at it until it is quiet.
    #[inline]
    pub(crate) fn notice(&mut self, slot: &mut Slot, now: Time, timers: &mut Timers) {
        if std::mem::replace(&mut slot.noticed, true) {
            return;
        }
        if self.noticed.is_empty() {
            timers.want_at(Duty::Upkeep, now + UPKEEP);
        }
        self.noticed.push(slot.at);
    }

    /// A partition has overdue keys.
    pub(crate) fn expires(&mut self, slot: &mut Slot, timers: &mut Timers) {
        if !std::mem::replace(&mut slot.expiring, true) {
            self.expiring.push_back(slot.at);
            timers.want(Duty::Expire);
        }
    }

    /// A partition migrates from former ones.
    pub(crate) fn migrates(&mut self, slot: &mut Slot, timers: &mut Timers) {
        if !std::mem::replace(&mut slot.migrating, true) {
            self.migrating.push_back(slot.at);
            timers.want(Duty::Migrate);
        }
    }
}
