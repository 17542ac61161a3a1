//! The work of a shard besides serving. It is driven by the clock and done a little at a time,
//! because clients wait meanwhile.
//!
//! ```text
//!   tick ─> timers that are due ─> answers that no release let out ─> upkeep ─> migrating
//!        ─> expiry ─> eviction ─> compaction ─> snapshots ─> dropped contents are freed
//! ```
//! Each step is bounded for one tick, and `poll_timeout` says when the next one is due.

use super::context::ShardContext;
use crate::role::host::Host;
use crate::role::partition::Slot;
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use doyen_gossip::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two looks at all partitions. Nothing should depend on it: it bounds the effect of a
/// missing notice.
const ROUND: Duration = Duration::from_secs(1);
/// Partitions of one tick: each is several cache lines that are in no cache.
const UPKEEP_SLICE: usize = 256;
/// Work of one tick on timers, in handled bytes: a tenth of a millisecond or two.
const TIMER_WORK_MAX: usize = 128 << 10;

impl Shard {
    /// Time passed (`poll_timeout`).
    pub fn tick(&mut self, now: Time) {
        let host = &mut self.cx.host;
        host.now = now;
        let due = host.timers.next();
        host.peers.look_at_lateness(host.me, due, now);
        self.wake_due(now);
        // Answers that were not released for lack of a lease.
        if self.cx.host.timers.take(Duty::GiveUp, now) {
            while let Some((at, executed)) = self.cx.host.callers.ready.pop_late(now) {
                if let Some(slot) = self.slots.get_mut(at) {
                    self.cx.fail_executed(slot, executed);
                }
            }
            let host = &mut self.cx.host;
            host.callers.ready.settle(&mut host.timers);
        }
        self.upkeep(now);
        let host = &mut self.cx.host;
        self.slots.retire_due(host, now);
        if let Some(at) = self.slots.migrate_due(host, now)
            && let Some(slot) = self.slots.get_mut(at)
        {
            self.cx.wake(slot);
            self.cx.host.notice(slot);
        }
        self.subscriber().follow_up_due(now);
        self.cx.channels().count_due(now);
        self.slots.wait_due(&mut self.cx.host, now);
        self.end_cursors(now);
        let host = &mut self.cx.host;
        self.slots.expire_due(host, now);
        self.slots.evict_due(host, now);
        self.slots.bound_due(host, now);
        self.slots.compact_due(host, now);
        self.slots.begin_copies(host, now);
        self.slots.copy_due(host, now);
        // The shell asks for the next batch after this.
        host.timers.take(Duty::Disk, now);
        // The pace may have risen since the next ack got its time.
        host.ack_chunks(now);
        host.free(now);
        self.cx.try_woken(&mut self.slots);
    }

    /// When `tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.cx.host.timers.next()
    }

    /// Wakes partitions whose timers are due. Most of their work is checksums.
    fn wake_due(&mut self, now: Time) {
        let before = self.cx.host.worked;
        while let Some(at) = self.cx.host.timers.take_partition(now) {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.wake(slot);
                self.cx.host.notice(slot);
            }
            if self.cx.host.worked - before >= TIMER_WORK_MAX {
                break;
            }
        }
        self.cx.host.worked = before;
    }

    fn upkeep(&mut self, now: Time) {
        let host = &mut self.cx.host;
        if host.upkeep.looking_at.is_empty() {
            let round = host.timers.take(Duty::Round, now);
            if !host.timers.take(Duty::Upkeep, now) && !round {
                return;
            }
            self.begin_upkeep(now, round);
        }
        // Some partitions are looked at.
        for _ in 0..UPKEEP_SLICE {
            let Some(at) = self.cx.host.upkeep.looking_at.pop_front() else {
                break;
            };
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            slot.noticed = false;
            self.cx.upkeep(slot);
            if !slot.quiet() {
                self.cx.host.notice(slot);
            }
        }
        let host = &mut self.cx.host;
        if host.upkeep.looking_at.is_empty() {
            host.timers.cancel(Duty::Look);
        } else {
            host.timers.set(Duty::Look, now);
        }
    }

    /// The next look gives up the calls that are due by now (`ShardContext::give_up`). Before that,
    /// answers that were not released for lack of a lease are given up. They are in the order of
    /// their commits, so `tick` may not have got to some that are due. If a read among them
    /// outlived a later write on its key, it would be sent again as if that write did not exist.
    fn begin_giving_up(&mut self, now: Time) {
        let host = &mut self.cx.host;
        host.upkeep.gives_up_to = now;
        let late = host.callers.ready.take_late(now, &mut host.timers);
        for (at, executed) in late {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.fail_executed(slot, executed);
            }
        }
    }

    fn begin_upkeep(&mut self, now: Time, round: bool) {
        self.begin_giving_up(now);
        let host = &mut self.cx.host;
        host.copying.rate.judge(now);
        host.tell_headroom();
        self.slots.look_at_memory(host, now);
        let mut noticed = std::mem::take(&mut host.upkeep.noticed);
        // A round looks at all that is noticed, too.
        host.timers.cancel(Duty::Upkeep);
        if round {
            host.timers.set(Duty::Round, now + ROUND);
            host.memory.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
            let arrives = |at| {
                self.slots
                    .get(at)
                    .and_then(|s| s.held.as_ref())
                    .and_then(|h| h.sink())
                    .is_some_and(|s| !s.complete())
            };
            host.expect_only(arrives);
            self.slots.look_at_marks(host, now);
            self.slots.look_for_repairs(host);
            self.slots.look_for_remains(host);
            noticed = self.slots.iter().map(|slot| slot.at).collect();
            host.greet_clients();
            host.stamp_rooms();
            host.traces.sweep(now);
            self.slots.measure(host, now);
        } else {
            noticed.sort_unstable();
        }
        host.timers.cancel(Duty::Begin);
        // A partition that is being copied is not quiet, so it is among these.
        let copied = noticed.iter().filter_map(|at| self.slots.get(*at));
        host.copying.count(copied, &host.tables.leaving);
        host.upkeep.looking_at = VecDeque::from(noticed);
    }

    /// Whether missing copies are made from here or here. Meanwhile, snapshots get half of the
    /// bytes to a peer, however many calls there are (`Links::share`).
    #[must_use]
    pub fn is_repairing(&self) -> bool {
        self.cx.host.copying.rate.repairing()
    }

    /// Whether the processor on which this thread runs is short of time. Then copies slow down if
    /// others want it.
    pub fn set_short_of_time(&mut self, short: bool) {
        self.cx.host.copying.rate.set_short_of_time(short);
    }

    /// Whether work waits only because of a pause for clients.
    #[must_use]
    pub fn pauses(&self) -> bool {
        let Host {
            copying,
            upkeep: rounds,
            ..
        } = &self.cx.host;
        (!copying.to_copy.is_empty() && !copying.stuck && !copying.rate_limited)
            || !rounds.migrating.is_empty()
    }

    /// There are no clients at the moment: work that pauses for them is due.
    pub fn go_on(&mut self) {
        if self.pauses() {
            let host = &mut self.cx.host;
            host.timers.rest(Duty::Migrate, Time::ZERO);
            if !host.copying.rate_limited {
                host.timers.rest(Duty::Copy, Time::ZERO);
            }
        }
    }
}

impl ShardContext {
    /// A timer of the partition is due.
    pub(crate) fn wake(&mut self, slot: &mut Slot) {
        slot.advance(&mut self.host);
        self.pump(slot);
        slot.sift(&mut self.host);
        if let Some(mut following) = slot.following() {
            following.prepare_sink(&mut self.host);
            following.continue_sums(&mut self.host);
        }
        if let Some(mut leading) = slot.leading()
            && leading.lead.teaches()
        {
            leading.teach_all(&mut self.host);
        }
    }

    /// Regular work: commit notices, expiry, silent copies, learners, and data to drop.
    pub(crate) fn upkeep(&mut self, slot: &mut Slot) {
        if slot.may_discard(&self.host) {
            slot.discard(&mut self.host);
        }
        self.give_up(slot);
        self.pump(slot);
        slot.note_migration(&mut self.host);
        slot.note_overdue(&mut self.host);
        if let Some(mut leading) = slot.leading() {
            leading.trim(&mut self.host);
            leading.search_split_point(&mut self.host);
            leading.upkeep(&mut self.host);
        } else if let Some(mut following) = slot.following() {
            following.trim(&mut self.host);
        }
    }
}
