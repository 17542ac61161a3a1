//! How long the commands of a connection wait.

use crate::resp::RespContext;
use doyen_engine::Patience;
use doyen_gossip::Time;
use std::time::Duration;

/// Deadline for commands queued behind one that timed out: a round trip between regions, and what a
/// busy member adds.
const HURRIED: Duration = Duration::from_millis(200);
/// How long after a timeout that deadline applies, unless everything that the client sent is taken
/// earlier.
pub(crate) const HURRIED_FOR: Duration = Duration::from_secs(5);

/// The deadlines of one connection.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// Until then, `HURRIED` is the deadline of commands, because they have already waited behind
    /// one that timed out.
    hurried_until: Time,
    /// The deadline of the last command that was taken, if it is not answered.
    last: Time,
}

impl Deadlines {
    /// A command timed out while others waited behind it.
    pub(crate) fn hurry(&mut self, now: Time) {
        self.hurried_until = now + HURRIED_FOR;
    }

    /// From now on, commands do not wait behind others.
    pub(crate) const fn end_hurry(&mut self) {
        self.hurried_until = Time::ZERO;
    }

    pub(crate) fn is_hurried(&self, now: Time) -> bool {
        now < self.hurried_until
    }

    /// The last command is executed again, and waits until then at most.
    pub(crate) const fn set_last(&mut self, until: Time) {
        self.last = until;
    }

    /// A command that is taken now waits as long as any may.
    pub(crate) fn wait_long(&mut self, context: &RespContext) {
        self.last = context.now() + context.limits().park;
    }

    /// How long a command that is taken now waits at most. Its deadline is not earlier than that of
    /// an earlier command, unless all of them are `answered`.
    pub(crate) fn patience(&mut self, context: &RespContext, answered: bool) -> Patience {
        if !self.is_hurried(context.now()) {
            self.wait_long(context);
            return Patience::Whole;
        }
        let least = if answered { Time::ZERO } else { self.last };
        self.last = least.max(context.now() + HURRIED.min(context.limits().park));
        Patience::Until(self.last)
    }
}
