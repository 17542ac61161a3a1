//! Calls that were executed and committed, and that `Shard::release` may answer.

use super::timers::{Duty, Timers};
use crate::role::calls::{CallSource, Executed};
use doyen_gossip::Time;
use doyen_placement::{MemberId, PartitionRef};
use std::collections::VecDeque;

/// They are in the order of their commits. The deadline of the first one is in the shard's timers.
#[derive(Debug, Default)]
pub(crate) struct CommittedOutcomes {
    calls: VecDeque<(PartitionRef, Executed)>,
}

impl CommittedOutcomes {
    #[inline]
    pub(crate) fn push(&mut self, at: PartitionRef, executed: Executed, timers: &mut Timers) {
        if self.calls.is_empty() {
            timers.set(Duty::GiveUp, executed.until);
        }
        self.calls.push_back((at, executed));
    }

    /// Takes out all, in order.
    pub(crate) fn take(&mut self, timers: &mut Timers) -> VecDeque<(PartitionRef, Executed)> {
        timers.cancel(Duty::GiveUp);
        std::mem::take(&mut self.calls)
    }

    /// Takes out the first one. `settle` must follow.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(PartitionRef, Executed)> {
        self.calls.pop_front()
    }

    /// Takes out the first one, if it has waited long enough. `settle` must follow.
    pub(crate) fn pop_late(&mut self, now: Time) -> Option<(PartitionRef, Executed)> {
        let late = self.calls.front().is_some_and(|(_, e)| e.until <= now);
        if late { self.pop() } else { None }
    }

    /// Takes out all that have waited long enough, wherever they are.
    pub(crate) fn take_late(
        &mut self,
        now: Time,
        timers: &mut Timers,
    ) -> VecDeque<(PartitionRef, Executed)> {
        let due = |(_, executed): &(_, Executed)| executed.until <= now;
        if !self.calls.iter().any(due) {
            return VecDeque::new();
        }
        let (late, left) = std::mem::take(&mut self.calls)
            .into_iter()
            .partition::<VecDeque<_>, _>(due);
        self.calls = left;
        self.settle(timers);
        late
    }

    /// Drops the calls of a peer that is gone. Returns how many.
    pub(crate) fn drop_of(&mut self, peer: MemberId, timers: &mut Timers) -> usize {
        let before = self.calls.len();
        self.calls
            .retain(|(_, executed)| executed.asker.source.peer() != Some(peer));
        self.settle(timers);
        before - self.calls.len()
    }

    /// The sources of all calls.
    pub(crate) fn sources(&self) -> impl Iterator<Item = CallSource> + '_ {
        self.calls.iter().map(|(_, executed)| executed.asker.source)
    }

    /// Some were taken out: another one may be the first.
    pub(crate) fn settle(&self, timers: &mut Timers) {
        match self.calls.front() {
            Some((_, executed)) => timers.set(Duty::GiveUp, executed.until),
            None => timers.cancel(Duty::GiveUp),
        }
    }
}
