//! When a shard has something to do without being told: one table of deadlines.
//!
//! ```text
//!   want(duty) ──> its deadline is its earliest time ──> take(duty, now): true once, if it is due
//!                        ▲
//!   rest(duty, until) ───┘ not before: the pause after a step, whether there is more to do or not
//!
//!   wake(partition, at) ───────────────────────────────> take_partition(now)
//! ```
//! A duty concerns the shard as a whole. A partition's own deadlines are not told apart: a
//! partition that is woken looks at everything that may be due there.

use doyen_gossip::Time;
use doyen_placement::PartitionRef;
use std::collections::BTreeSet;

/// What a shard does by the clock, in no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// A look at the partitions with changes.
    Upkeep,
    /// A look at all partitions.
    Round,
    /// The rest of a look that has begun.
    Look,
    /// Outcomes of clients are forgotten.
    Retire,
    /// Calls that were executed and not released are given up.
    GiveUp,
    /// Overdue keys are expired.
    Expire,
    /// Keys are evicted.
    Evict,
    /// Maps are kept within their limits.
    Bound,
    /// Entries are moved, so that the memory between them can be given back.
    Compact,
    /// Snapshots begin in place of ended ones.
    Begin,
    /// Parts of snapshots are sent.
    Copy,
    /// Parts that have arrived are acknowledged.
    Ack,
    /// Keys of former partitions are migrated.
    Migrate,
    /// Questions about subscribers are given up.
    Count,
    /// Subscriptions ask primaries that did not answer.
    Subscribe,
    /// Callers that wait have waited for long enough, or may go on, or ask again.
    Wait,
    /// Reads in pages that nothing goes on with end.
    Walk,
    /// Snapshots for the disk go on.
    Disk,
    /// Dropped contents are freed.
    Free,
}

/// All of them are before this number.
const DUTIES: usize = Duty::Free as usize + 1;

/// The deadline of one duty.
#[derive(Debug, Clone, Copy)]
struct Due {
    wanted: bool,
    earliest: Time,
}

/// The deadlines of a shard.
#[derive(Debug)]
pub(crate) struct Timers {
    duties: [Due; DUTIES],
    partitions: BTreeSet<(Time, PartitionRef)>,
}

impl Default for Timers {
    /// Nothing is to be done.
    fn default() -> Self {
        let none = Due {
            wanted: false,
            earliest: Time::ZERO,
        };
        Self {
            duties: [none; DUTIES],
            partitions: BTreeSet::new(),
        }
    }
}

impl Timers {
    /// There is something to do, as early as it may be done.
    #[inline]
    pub(crate) fn want(&mut self, duty: Duty) {
        self.duties[duty as usize].wanted = true;
    }

    /// Says whether there is something to do. A step of the duty says so when it ends, because it
    /// may have found more to do, and done it.
    pub(crate) fn settle(&mut self, duty: Duty, more: bool) {
        self.duties[duty as usize].wanted = more;
    }

    /// There is something to do at this time, whatever was said before.
    pub(crate) fn set(&mut self, duty: Duty, at: Time) {
        self.duties[duty as usize] = Due {
            wanted: true,
            earliest: at,
        };
    }

    /// There is something to do at this time, if nothing was to be done before.
    pub(crate) fn want_at(&mut self, duty: Duty, at: Time) {
        if !self.duties[duty as usize].wanted {
            self.set(duty, at);
        }
    }

    /// The duty is not done before this time. An earlier time than before ends a pause.
    pub(crate) fn rest(&mut self, duty: Duty, until: Time) {
        self.duties[duty as usize].earliest = until;
    }

    /// There is nothing to do any more.
    pub(crate) fn cancel(&mut self, duty: Duty) {
        self.duties[duty as usize].wanted = false;
    }

    /// Takes a duty that is due: it has no deadline any more. False: it is not due.
    pub(crate) fn take(&mut self, duty: Duty, now: Time) -> bool {
        let due = &mut self.duties[duty as usize];
        let taken = due.wanted && due.earliest <= now;
        due.wanted &= !taken;
        taken
    }

    /// A partition has something to do at this time, besides what was said before.
    pub(crate) fn wake(&mut self, partition: PartitionRef, at: Time) {
        self.partitions.insert((at, partition));
    }

    /// Takes the partition with the earliest deadline, if that is over.
    pub(crate) fn take_partition(&mut self, now: Time) -> Option<PartitionRef> {
        let (at, partition) = *self.partitions.first()?;
        (at <= now).then(|| {
            self.partitions.pop_first();
            partition
        })
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        let duties = self.duties.iter().filter(|due| due.wanted);
        let partition = self.partitions.first().map(|(at, _)| *at);
        duties.map(|due| due.earliest).chain(partition).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_placement::{KeyspaceId, PartitionId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const ALL: [Duty; DUTIES] = [
        Duty::Upkeep,
        Duty::Round,
        Duty::Look,
        Duty::Retire,
        Duty::GiveUp,
        Duty::Expire,
        Duty::Evict,
        Duty::Bound,
        Duty::Compact,
        Duty::Begin,
        Duty::Copy,
        Duty::Ack,
        Duty::Migrate,
        Duty::Count,
        Duty::Subscribe,
        Duty::Wait,
        Duty::Walk,
        Duty::Disk,
        Duty::Free,
    ];

    fn partition(n: u32) -> PartitionRef {
        PartitionRef::new(KeyspaceId(0), PartitionId(n))
    }

    #[test]
    fn a_duty_that_is_not_wanted_has_no_deadline() {
        let mut timers = Timers::default();
        timers.rest(Duty::Copy, Time(5));
        assert_eq!(timers.next(), None);
        assert!(!timers.take(Duty::Copy, Time(9)));
        timers.want(Duty::Copy);
        assert_eq!(timers.next(), Some(Time(5)));
        timers.cancel(Duty::Copy);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_due_duty_is_taken_once_and_its_pause_lasts_for_the_next_want() {
        let mut timers = Timers::default();
        timers.want(Duty::Free);
        assert!(timers.take(Duty::Free, Time(1)));
        assert!(!timers.take(Duty::Free, Time(1)), "it was taken");
        timers.rest(Duty::Free, Time(3));
        timers.want(Duty::Free);
        assert!(!timers.take(Duty::Free, Time(2)), "it rests");
        assert!(timers.take(Duty::Free, Time(3)));
        timers.set(Duty::Free, Time(2));
        assert_eq!(timers.next(), Some(Time(2)), "a set time ends the pause");
    }

    #[test]
    fn partitions_wake_in_the_order_of_their_deadlines() {
        let mut timers = Timers::default();
        for (n, at) in [(1, 7), (2, 3), (1, 4), (3, 3)] {
            timers.wake(partition(n), Time(at));
        }
        timers.want(Duty::Ack);
        timers.rest(Duty::Ack, Time(6));
        assert_eq!(timers.next(), Some(Time(3)));
        let mut woken = Vec::new();
        while let Some(at) = timers.take_partition(Time(5)) {
            woken.push(at);
        }
        assert_eq!(woken, [partition(2), partition(3), partition(1)]);
        assert_eq!(timers.next(), Some(Time(6)));
        assert!(timers.take(Duty::Ack, Time(6)));
        assert_eq!(timers.take_partition(Time(7)), Some(partition(1)));
        assert_eq!(timers.next(), None);
    }

    /// What a shard may do with the table.
    #[derive(Debug, Clone)]
    enum Step {
        Want(usize),
        Settle(usize, bool),
        Set(usize, u64),
        Rest(usize, u64),
        Cancel(usize),
        Wake(u32, u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (duty, time) = (0..DUTIES, 0..40_u64);
        let step = prop_oneof![
            duty.clone().prop_map(Step::Want),
            (duty.clone(), any::<bool>()).prop_map(|(duty, more)| Step::Settle(duty, more)),
            (duty.clone(), time.clone()).prop_map(|(duty, at)| Step::Set(duty, at)),
            (duty.clone(), time.clone()).prop_map(|(duty, at)| Step::Rest(duty, at)),
            duty.prop_map(Step::Cancel),
            (0..4_u32, time.clone()).prop_map(|(n, at)| Step::Wake(n, at)),
            time.prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// The next deadline is the least of all, and whatever is due by then, and nothing else, is
        /// taken.
        #[test]
        fn nothing_is_taken_early_and_nothing_due_is_left(steps in steps()) {
            let mut timers = Timers::default();
            let mut earliest = [0_u64; DUTIES];
            let mut wanted = [false; DUTIES];
            let mut waiting: BTreeMap<(u64, u32), ()> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Want(n) => {
                        timers.want(ALL[n]);
                        wanted[n] = true;
                    }
                    Step::Settle(n, more) => {
                        timers.settle(ALL[n], more);
                        wanted[n] = more;
                    }
                    Step::Set(n, at) => {
                        timers.set(ALL[n], Time(at));
                        (wanted[n], earliest[n]) = (true, at);
                    }
                    Step::Rest(n, until) => {
                        timers.rest(ALL[n], Time(until));
                        earliest[n] = until;
                    }
                    Step::Cancel(n) => {
                        timers.cancel(ALL[n]);
                        wanted[n] = false;
                    }
                    Step::Wake(n, at) => {
                        timers.wake(partition(n), Time(at));
                        waiting.insert((at, n), ());
                    }
                    Step::Pass(now) => {
                        for n in 0..DUTIES {
                            let due = wanted[n] && earliest[n] <= now;
                            prop_assert_eq!(timers.take(ALL[n], Time(now)), due);
                            wanted[n] &= !due;
                        }
                        while let Some(at) = timers.take_partition(Time(now)) {
                            let first = waiting.pop_first().map(|((due, n), ())| (due <= now, n));
                            prop_assert_eq!(first, Some((true, at.partition.0)));
                        }
                    }
                }
                let duties = (0..DUTIES).filter(|n| wanted[*n]).map(|n| earliest[n]);
                let least = duties.chain(waiting.keys().map(|(at, _)| *at)).min();
                prop_assert_eq!(timers.next(), least.map(Time));
                if let Some(next) = timers.next() {
                    let due = timers.partitions.first().is_some_and(|(at, _)| *at == next);
                    let duty = timers.duties.iter().any(|d| d.wanted && d.earliest == next);
                    prop_assert!(due || duty);
                }
            }
        }
    }
}
