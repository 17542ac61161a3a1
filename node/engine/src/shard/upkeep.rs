//! The work of a shard besides serving. It is driven by the clock and done a little at a time,
//! because clients wait meanwhile.
//!
//! ```text
//!   tick ─> timers that are due ─> answers that no release let out ─> upkeep ─> drawing
//!        ─> expiry ─> eviction ─> compaction ─> snapshots ─> dropped contents are freed
//! ```
//! Each step is bounded for one tick, and `poll_timeout` says when the next one is due.

use super::context::Context;
use crate::mutant::{self, broken};
use crate::role::holding::Role;
use crate::role::partition::{Held, Slot};
use crate::role::replication::{Primary, trim};
use crate::role::timers::Duty;
use crate::shard::machine::Shard;
use crate::wire::visit;
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
/// Keys expired in one step of all partitions, and the pause after it: 40,000 keys a second.
const EXPIRE_STEP: usize = 200;
const EXPIRE_PAUSE: Duration = Duration::from_millis(5);
/// Work on snapshots in one step, in handled bytes, which is some tenths of a millisecond; and the
/// pause after it, if clients wait.
const COPY_WORK_MAX: usize = 256 << 10;
const COPY_PAUSE: Duration = Duration::from_millis(1);

impl Shard {
    /// Time passed (`poll_timeout`).
    pub fn tick(&mut self, now: Time) {
        self.cx.host.now = now;
        let due = self.cx.host.timers.next();
        self.cx
            .host
            .peers
            .look_at_lateness(self.cx.host.me, due, now);
        self.wake_due(now);
        // Answers that were not released for lack of a lease.
        if self.cx.host.timers.take(Duty::GiveUp, now) {
            while let Some((at, executed)) = self.cx.host.callers.ready.pop_late(now) {
                if let Some(slot) = self.slots.get_mut(at) {
                    self.cx.fail_executed(slot, executed);
                }
            }
            self.cx.host.callers.ready.settle(&mut self.cx.host.timers);
        }
        self.upkeep(now);
        self.retire_due(now);
        if let Some(at) = self.slots.draw_due(&mut self.cx.host, now)
            && let Some(slot) = self.slots.get_mut(at)
        {
            self.cx.wake(slot);
            self.cx.host.notice(slot);
        }
        self.slots.follow_up_due(&mut self.cx.host, now);
        self.count_due(now);
        self.end_walks(now);
        self.expire_due(now);
        self.slots.evict_due(&mut self.cx.host, now);
        self.slots.bound_due(&mut self.cx.host, now);
        self.slots.compact_due(&mut self.cx.host, now);
        self.slots.begin_copies(&mut self.cx.host, now);
        self.copy_due(now);
        // The pace may have risen since the next ack got its time.
        self.cx.host.ack_chunks(now);
        self.cx.host.free(now);
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
        if self.cx.host.rounds.looking_at.is_empty() {
            let round = self.cx.host.timers.take(Duty::Round, now);
            if !self.cx.host.timers.take(Duty::Upkeep, now) && !round {
                return;
            }
            self.begin_upkeep(now, round);
        }
        self.look();
        if self.cx.host.rounds.looking_at.is_empty() {
            self.cx.host.timers.cancel(Duty::Look);
        } else {
            self.cx.host.timers.set(Duty::Look, now);
        }
    }

    /// Looks at some partitions.
    fn look(&mut self) {
        for _ in 0..UPKEEP_SLICE {
            let Some(at) = self.cx.host.rounds.looking_at.pop_front() else {
                return;
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
    }

    /// The next look gives up the calls that are due by now (`Context::give_up`). Before that, answers
    /// that were not released for lack of a lease are given up. They are in the order of their
    /// commits, so `tick` may not have got to some that are due. If a read among them outlived a
    /// later write on its key, it would be sent again as if that write did not exist.
    fn begin_giving_up(&mut self, now: Time) {
        self.cx.host.rounds.gives_up_to = now;
        let late = self
            .cx
            .host
            .callers
            .ready
            .take_late(now, &mut self.cx.host.timers);
        for (at, executed) in late {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.fail_executed(slot, executed);
            }
        }
    }

    fn begin_upkeep(&mut self, now: Time, round: bool) {
        self.begin_giving_up(now);
        self.cx.host.copying.pace.judge(now);
        self.cx.host.tell_headroom();
        self.slots.look_at_memory(&mut self.cx.host, now);
        let mut noticed = std::mem::take(&mut self.cx.host.rounds.noticed);
        // A round looks at all that is noticed, too.
        self.cx.host.timers.cancel(Duty::Upkeep);
        if round {
            self.cx.host.timers.set(Duty::Round, now + ROUND);
            self.cx.host.memory.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
            let arrives = |at| {
                self.slots
                    .get(at)
                    .and_then(|s| s.held.as_ref())
                    .and_then(|h| h.sink())
                    .is_some_and(|s| !s.complete())
            };
            self.cx.host.expect_only(arrives);
            self.slots.look_at_marks(&self.cx.host, now);
            self.look_for_repairs();
            self.slots.look_for_remains(&mut self.cx.host);
            noticed = self.slots.iter().map(|slot| slot.at).collect();
            self.cx.host.greet_clients();
            self.cx.host.traces.sweep(now);
            self.slots.measure(&mut self.cx.host, now);
        } else {
            noticed.sort_unstable();
        }
        self.cx.host.timers.cancel(Duty::Begin);
        // A partition that is being copied is not quiet, so it is among these.
        self.cx.host.copying.count(
            noticed.iter().filter_map(|at| self.slots.get(*at)),
            &self.cx.host.tables.leaving,
        );
        self.cx.host.rounds.looking_at = VecDeque::from(noticed);
    }

    /// Forgets outcomes of clients.
    fn retire_due(&mut self, now: Time) {
        if !self.cx.host.timers.take(Duty::Retire, now) {
            return;
        }
        let next = if broken(&mutant::RETIRES_EARLY) {
            visit::FRESH
        } else {
            visit::RETENTION
        };
        self.cx.host.timers.set(Duty::Retire, now + next);
        self.slots
            .iter_mut()
            .filter_map(|s| s.held.as_mut())
            .for_each(|h| h.dedup.retire_clients());
    }

    /// Checks whether a missing copy is on its way. It goes before copies that only balance load.
    pub(crate) fn look_for_repairs(&mut self) {
        let repairing = self
            .slots
            .iter()
            .any(|slot| slot.is_repaired(&self.cx.host.tables.leaving));
        self.cx.host.copying.pace.set_repairing(repairing);
        self.cx.host.peers.set_repairing(repairing);
    }

    /// Whether missing copies are made from here or here. Meanwhile, snapshots get half of the
    /// bytes to a peer, however many calls there are (`Links::share`).
    #[must_use]
    pub fn is_repairing(&self) -> bool {
        self.cx.host.copying.pace.repairing()
    }

    /// Expires some keys of the partitions with overdue keys.
    fn expire_due(&mut self, now: Time) {
        if !self.cx.host.timers.take(Duty::Expire, now) {
            return;
        }
        self.cx.host.timers.rest(Duty::Expire, now + EXPIRE_PAUSE);
        let mut left = EXPIRE_STEP;
        while left > 0
            && let Some(at) = self.cx.host.rounds.expiring.pop_front()
        {
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            slot.expiring = slot.expire_some(&mut self.cx.host, &mut left);
            if slot.expiring {
                self.cx.host.rounds.expiring.push_back(at);
            }
            self.cx.host.notice(slot);
        }
        let more = !self.cx.host.rounds.expiring.is_empty();
        self.cx.host.timers.settle(Duty::Expire, more);
    }

    /// Whether the processor on which this thread runs is short of time. Then copies slow down if
    /// others want it.
    pub fn set_short_of_time(&mut self, short: bool) {
        self.cx.host.copying.pace.set_short_of_time(short);
    }

    /// Whether work waits only because of a pause for clients.
    #[must_use]
    pub fn pauses(&self) -> bool {
        (!self.cx.host.copying.to_copy.is_empty()
            && !self.cx.host.copying.stuck
            && !self.cx.host.copying.paced)
            || !self.cx.host.rounds.drawing.is_empty()
    }

    /// There are no clients at the moment: work that pauses for them is due.
    pub fn go_on(&mut self) {
        if self.pauses() {
            self.cx.host.timers.rest(Duty::Draw, Time::ZERO);
            if !self.cx.host.copying.paced {
                self.cx.host.timers.rest(Duty::Copy, Time::ZERO);
            }
        }
    }

    /// Sends some parts of the snapshots whose learners have room.
    fn copy_due(&mut self, now: Time) {
        if !self.cx.host.timers.take(Duty::Copy, now) {
            return;
        }
        self.cx.host.timers.rest(Duty::Copy, now + COPY_PAUSE);
        self.cx.host.copying.paced = false;
        let before = self.cx.host.worked;
        let mut waiting = 0;
        while self.cx.host.worked - before < COPY_WORK_MAX
            && waiting < self.cx.host.copying.to_copy.len()
        {
            if let Err(next) = self.cx.host.copying.pace.may_send(now) {
                let next = next.max(now + COPY_PAUSE);
                self.cx.host.timers.rest(Duty::Copy, next);
                self.cx.host.copying.paced = true;
                break;
            }
            let Some((at, id)) = self.cx.host.copying.to_copy.pop_front() else {
                break;
            };
            if self.cx.host.peers.copies_wait(id) {
                self.cx.host.copying.to_copy.push_back((at, id));
                waiting += 1;
            } else if let Some(slot) = self.slots.get_mut(at) {
                if let Some(mut leading) = slot.leading() {
                    leading.send_chunk(&mut self.cx.host, id);
                }
                self.cx.host.notice(slot);
            }
        }
        self.cx.host.copying.stuck = waiting > 0 && waiting >= self.cx.host.copying.to_copy.len();
        let more = !self.cx.host.copying.to_copy.is_empty();
        self.cx.host.timers.settle(Duty::Copy, more);
        self.cx.host.worked = before;
    }
}

impl Context {
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
        slot.note_drawing(&mut self.host);
        slot.note_overdue(&mut self.host);
        let Some(held) = &mut slot.held else { return };
        let share = self.host.tail_bytes(held.at, held.store.bytes());
        let repaired = held.lead().is_some_and(Primary::teaches)
            && slot
                .installed
                .as_ref()
                .is_some_and(|a| a.is_repaired(&self.host.tables.leaving));
        let spared = if repaired {
            self.host.spared_bytes()
        } else {
            0
        };
        let Held {
            role, log, store, ..
        } = &mut **held;
        let lead = match role {
            Role::Primary(lead) => Some(&*lead),
            Role::Follower(_) => None,
        };
        let most = (share, spared);
        trim(lead, log, store, most, &mut self.host.memory.bytes);
        if let Some(mut leading) = slot.leading() {
            leading.halve(&mut self.host);
            leading.upkeep(&mut self.host);
        }
    }
}
