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
use crate::role::partition::Held;
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
/// Keys and log entries freed in one step, and the pause after it.
const FREE_SLICE: usize = 500;
const FREE_PAUSE: Duration = Duration::from_millis(2);
/// The same if memory is short.
const FREE_SLICE_SHORT: usize = 2_000;
const FREE_PAUSE_SHORT: Duration = Duration::from_micros(500);
/// Work on snapshots in one step, in handled bytes, which is some tenths of a millisecond; and the
/// pause after it, if clients wait.
const COPY_WORK_MAX: usize = 256 << 10;
const COPY_PAUSE: Duration = Duration::from_millis(1);

impl Shard {
    /// Time passed (`poll_timeout`).
    pub fn tick(&mut self, now: Time) {
        self.cx.now = now;
        let due = self.cx.timers.next();
        self.cx.peers.look_at_lateness(self.cx.me, due, now);
        self.wake_due(now);
        // Answers that were not released for lack of a lease.
        if self.cx.timers.take(Duty::GiveUp, now) {
            while let Some((at, executed)) = self.cx.callers.ready.pop_late(now) {
                if let Some(slot) = self.slots.get_mut(at) {
                    self.cx.fail_executed(slot, executed);
                }
            }
            self.cx.callers.ready.settle(&mut self.cx.timers);
        }
        self.upkeep(now);
        self.retire_due(now);
        self.draw_due(now);
        self.follow_up_due(now);
        self.count_due(now);
        self.end_walks(now);
        self.expire_due(now);
        self.evict_due(now);
        self.bound_due(now);
        self.compact_due(now);
        self.begin_copies(now);
        self.copy_due(now);
        // The pace may have risen since the next ack got its time.
        self.cx.ack_chunks(now);
        self.cx.free(now);
    }

    /// When `tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.cx.timers.next()
    }

    /// Wakes partitions whose timers are due. Most of their work is checksums.
    fn wake_due(&mut self, now: Time) {
        let before = self.cx.worked;
        while let Some(at) = self.cx.timers.take_partition(now) {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.wake(slot);
                self.cx.notice(slot);
            }
            if self.cx.worked - before >= TIMER_WORK_MAX {
                break;
            }
        }
        self.cx.worked = before;
    }

    fn upkeep(&mut self, now: Time) {
        if self.cx.rounds.looking_at.is_empty() {
            let round = self.cx.timers.take(Duty::Round, now);
            if !self.cx.timers.take(Duty::Upkeep, now) && !round {
                return;
            }
            self.begin_upkeep(now, round);
        }
        self.look();
        if self.cx.rounds.looking_at.is_empty() {
            self.cx.timers.cancel(Duty::Look);
        } else {
            self.cx.timers.set(Duty::Look, now);
        }
    }

    /// Looks at some partitions.
    fn look(&mut self) {
        for _ in 0..UPKEEP_SLICE {
            let Some(at) = self.cx.rounds.looking_at.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            slot.noticed = false;
            self.cx.upkeep(slot);
            if !slot.quiet() {
                self.cx.notice(slot);
            }
        }
    }

    /// The next look gives up the calls that are due by now (`Context::give_up`). Before that, answers
    /// that were not released for lack of a lease are given up. They are in the order of their
    /// commits, so `tick` may not have got to some that are due. If a read among them outlived a
    /// later write on its key, it would be sent again as if that write did not exist.
    fn begin_giving_up(&mut self, now: Time) {
        self.cx.rounds.gives_up_to = now;
        let late = self.cx.callers.ready.take_late(now, &mut self.cx.timers);
        for (at, executed) in late {
            if let Some(slot) = self.slots.get_mut(at) {
                self.cx.fail_executed(slot, executed);
            }
        }
    }

    fn begin_upkeep(&mut self, now: Time, round: bool) {
        self.begin_giving_up(now);
        self.cx.copying.pace.judge(now);
        self.cx.tell_headroom();
        self.look_at_memory(now);
        let mut noticed = std::mem::take(&mut self.cx.rounds.noticed);
        // A round looks at all that is noticed, too.
        self.cx.timers.cancel(Duty::Upkeep);
        if round {
            self.cx.timers.set(Duty::Round, now + ROUND);
            self.cx.memory.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
            let arrives = |at| {
                self.slots
                    .get(at)
                    .and_then(|s| s.held.as_ref())
                    .and_then(|h| h.sink())
                    .is_some_and(|s| !s.complete())
            };
            self.cx.expect_only(arrives);
            self.look_at_marks(now);
            self.look_for_repairs();
            self.look_for_remains();
            noticed = self.slots.iter().map(|slot| slot.at).collect();
            self.cx.greet_clients();
            self.cx.traces.sweep(now);
            self.measure(now);
        } else {
            noticed.sort_unstable();
        }
        self.cx.timers.cancel(Duty::Begin);
        // A partition that is being copied is not quiet, so it is among these.
        self.cx.copying.count(
            noticed.iter().filter_map(|at| self.slots.get(*at)),
            &self.cx.tables.leaving,
        );
        self.cx.rounds.looking_at = VecDeque::from(noticed);
    }

    /// Forgets outcomes of clients.
    fn retire_due(&mut self, now: Time) {
        if !self.cx.timers.take(Duty::Retire, now) {
            return;
        }
        let next = if broken(&mutant::RETIRES_EARLY) {
            visit::FRESH
        } else {
            visit::RETENTION
        };
        self.cx.timers.set(Duty::Retire, now + next);
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
            .any(|slot| slot.is_repaired(&self.cx.tables.leaving));
        self.cx.copying.pace.set_repairing(repairing);
        self.cx.peers.set_repairing(repairing);
    }

    /// Whether missing copies are made from here or here. Meanwhile, snapshots get half of the
    /// bytes to a peer, however many calls there are (`Links::share`).
    #[must_use]
    pub fn is_repairing(&self) -> bool {
        self.cx.copying.pace.repairing()
    }

    /// Expires some keys of the partitions with overdue keys.
    fn expire_due(&mut self, now: Time) {
        if !self.cx.timers.take(Duty::Expire, now) {
            return;
        }
        self.cx.timers.rest(Duty::Expire, now + EXPIRE_PAUSE);
        let mut left = EXPIRE_STEP;
        while left > 0
            && let Some(at) = self.cx.rounds.expiring.pop_front()
        {
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            slot.expiring = self.cx.expire_some(slot, &mut left);
            if slot.expiring {
                self.cx.rounds.expiring.push_back(at);
            }
            self.cx.notice(slot);
        }
        let more = !self.cx.rounds.expiring.is_empty();
        self.cx.timers.settle(Duty::Expire, more);
    }

    /// Whether the processor on which this thread runs is short of time. Then copies slow down if
    /// others want it.
    pub fn set_short_of_time(&mut self, short: bool) {
        self.cx.copying.pace.set_short_of_time(short);
    }

    /// Whether work waits only because of a pause for clients.
    #[must_use]
    pub fn pauses(&self) -> bool {
        (!self.cx.copying.to_copy.is_empty() && !self.cx.copying.stuck && !self.cx.copying.paced)
            || !self.cx.rounds.drawing.is_empty()
    }

    /// There are no clients at the moment: work that pauses for them is due.
    pub fn go_on(&mut self) {
        if self.pauses() {
            self.cx.timers.rest(Duty::Draw, Time::ZERO);
            if !self.cx.copying.paced {
                self.cx.timers.rest(Duty::Copy, Time::ZERO);
            }
        }
    }

    /// Sends some parts of the snapshots whose learners have room.
    fn copy_due(&mut self, now: Time) {
        if !self.cx.timers.take(Duty::Copy, now) {
            return;
        }
        self.cx.timers.rest(Duty::Copy, now + COPY_PAUSE);
        self.cx.copying.paced = false;
        let before = self.cx.worked;
        let mut waiting = 0;
        while self.cx.worked - before < COPY_WORK_MAX && waiting < self.cx.copying.to_copy.len() {
            if let Err(next) = self.cx.copying.pace.may_send(now) {
                let next = next.max(now + COPY_PAUSE);
                self.cx.timers.rest(Duty::Copy, next);
                self.cx.copying.paced = true;
                break;
            }
            let Some((at, id)) = self.cx.copying.to_copy.pop_front() else {
                break;
            };
            if self.cx.peers.copies_wait(id) {
                self.cx.copying.to_copy.push_back((at, id));
                waiting += 1;
            } else if let Some(slot) = self.slots.get_mut(at) {
                if let Some(mut leading) = slot.leading() {
                    leading.send_chunk(&mut self.cx, id);
                }
                self.cx.notice(slot);
            }
        }
        self.cx.copying.stuck = waiting > 0 && waiting >= self.cx.copying.to_copy.len();
        let more = !self.cx.copying.to_copy.is_empty();
        self.cx.timers.settle(Duty::Copy, more);
        self.cx.worked = before;
    }
}

impl Context {
    /// Drops all contents. They are freed in slices.
    pub(crate) fn drop_contents(&mut self, held: &mut Held) {
        self.memory
            .garbage
            .collect(&mut self.timers, |maps| maps.append(&mut held.store.take()));
        self.memory
            .garbage
            .add(std::mem::take(&mut held.log), &mut self.timers);
    }

    /// Frees a slice of what was dropped.
    fn free(&mut self, now: Time) {
        if !self.timers.take(Duty::Free, now) {
            return;
        }
        // If memory is short, writes wait for this. And if much is dropped, as much may soon be
        // written in its place: large hashes that are made anew are made as fast as they are freed.
        let room = self.headroom();
        let much = self.memory.garbage.bytes() > room.kept;
        let (slice, pause) = if room.left < room.kept || much {
            (FREE_SLICE_SHORT, FREE_PAUSE_SHORT)
        } else {
            (FREE_SLICE, FREE_PAUSE)
        };
        self.timers.rest(Duty::Free, now + pause);
        self.memory.garbage.free(slice);
        let more = !self.memory.garbage.is_empty();
        self.timers.settle(Duty::Free, more);
    }
}
