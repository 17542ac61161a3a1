//! The work of a shard besides serving. It is driven by the clock and done a little at a time,
//! because clients wait meanwhile.
//!
//! ```text
//!   tick ─> timers that are due ─> answers that no release let out ─> upkeep ─> drawing
//!        ─> expiry ─> eviction ─> compaction ─> snapshots ─> dropped contents are freed
//! ```
//! Each step is bounded for one tick, and `poll_timeout` says when the next one is due.

use super::forwarding::Executed;
use super::log::Log;
use super::store::Map;
use super::{Core, Shard, clients};
use crate::mutant::{self, broken};
use doyen_gossip::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two looks at the partitions with changes: for commit notices, expiry and silent
/// copies.
pub(super) const UPKEEP: Duration = Duration::from_millis(50);
/// Time between two looks at all partitions. Nothing should depend on it: it bounds the effect of a
/// missing notice.
const ROUND: Duration = Duration::from_secs(1);
/// Partitions of one tick: each is several cache lines that are in no cache.
const UPKEEP_SLICE: usize = 256;
/// Work of one tick on timers, in handled bytes: a tenth of a millisecond or two.
const TIMER_WORK_MAX: usize = 128 << 10;
/// Keys expired in one step, of one partition and of all, and the pause after it: 40,000 keys a
/// second.
pub(super) const EXPIRE_SLICE: usize = 64;
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
        self.core.now = now;
        self.wake_due(now);
        // Answers that were not released for lack of a lease.
        while self.core.ready.front().is_some_and(|(_, e)| e.until <= now) {
            if let Some((at, executed)) = self.core.ready.pop_front()
                && let Some(slot) = self.slots.get_mut(at)
            {
                self.core.fail_executed(slot, executed);
            }
        }
        if self.core.upkeep_at() <= now {
            self.upkeep(now);
        }
        self.draw_due(now);
        self.expire_due(now);
        self.evict_due(now);
        self.compact_due(now);
        self.begin_copies();
        self.copy_due(now);
        self.core.ack_chunks(now);
        self.core.free(now);
    }

    /// When `tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let core = &self.core;
        let upkeep = core.view.is_some().then(|| core.upkeep_at());
        let timer = core.timers.first().map(|(t, _)| *t);
        let ready = core.ready.front().map(|(_, e)| e.until);
        let expiry = (!core.expiring.is_empty()).then_some(core.expire_at);
        let eviction = core.evicting.due();
        let compaction = core.compacting.due();
        let copy = (!core.to_copy.is_empty()).then_some(core.copy_at);
        let begins = core.copying.is_due().then_some(core.now);
        let acks = (!core.late_acks.is_empty()).then_some(core.ack_at);
        let draw = (!core.drawing.is_empty()).then_some(core.draw_at);
        let garbage = core.has_garbage().then_some(core.free_at);
        [
            upkeep, timer, ready, expiry, eviction, compaction, begins, copy, acks, draw, garbage,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Wakes partitions whose timers are due. Most of their work is checksums.
    fn wake_due(&mut self, now: Time) {
        let before = self.core.worked;
        while let Some((_, at)) = self.core.timers.first().copied().filter(|(t, _)| *t <= now) {
            self.core.timers.pop_first();
            if let Some(slot) = self.slots.get_mut(at) {
                self.core.wake(slot);
                self.core.notice(slot);
            }
            if self.core.worked - before >= TIMER_WORK_MAX {
                break;
            }
        }
        self.core.worked = before;
    }

    fn upkeep(&mut self, now: Time) {
        if self.core.looking_at.is_empty() {
            self.begin_upkeep(now);
        }
        for _ in 0..UPKEEP_SLICE {
            let Some(at) = self.core.looking_at.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            slot.noticed = false;
            self.core.upkeep(slot);
            if !slot.quiet() {
                self.core.notice(slot);
            }
        }
    }

    /// The next look gives up the calls that are due by now (`Core::give_up`). Before that, answers
    /// that were not released for lack of a lease are given up. They are in the order of their
    /// commits, so `tick` may not have got to some that are due. If a read among them outlived a
    /// later write on its key, it would be sent again as if that write did not exist.
    fn begin_giving_up(&mut self, now: Time) {
        self.core.gives_up_to = now;
        let due = |(_, executed): &(_, Executed)| executed.until <= now;
        if !self.core.ready.iter().any(due) {
            return;
        }
        let (late, left) = std::mem::take(&mut self.core.ready)
            .into_iter()
            .partition::<VecDeque<_>, _>(due);
        self.core.ready = left;
        for (at, executed) in late {
            if let Some(slot) = self.slots.get_mut(at) {
                self.core.fail_executed(slot, executed);
            }
        }
    }

    fn begin_upkeep(&mut self, now: Time) {
        self.begin_giving_up(now);
        self.core.pace.judge(now);
        self.core.tell_headroom();
        self.look_at_memory(now);
        let mut noticed = std::mem::take(&mut self.core.noticed);
        if self.core.next_round <= now {
            self.core.next_round = now + ROUND;
            self.core.holding = self.slots.iter().filter(|s| s.held.is_some()).count();
            let arrives = |at| {
                self.slots
                    .get(at)
                    .and_then(|s| s.held.as_ref())
                    .and_then(|h| h.sink.as_ref())
                    .is_some_and(|s| !s.complete())
            };
            self.core.expect_only(arrives);
            self.look_for_repairs();
            noticed = self.slots.iter().map(|slot| slot.at).collect();
            self.core.greet_clients();
            self.measure(now);
            if self.core.next_retire <= now {
                self.core.next_retire = now
                    + if broken(&mutant::RETIRES_EARLY) {
                        clients::FRESH
                    } else {
                        clients::RETENTION
                    };
                self.slots
                    .iter_mut()
                    .filter_map(|s| s.held.as_mut())
                    .for_each(|h| h.dedup.retire_clients());
            }
        } else {
            noticed.sort_unstable();
        }
        // A partition that is being copied is not quiet, so it is among these.
        self.core.copying.count(
            noticed.iter().filter_map(|at| self.slots.get(*at)),
            &self.core.leaving,
        );
        self.core.looking_at = VecDeque::from(noticed);
    }

    /// Checks whether a missing copy is on its way. It goes before copies that only balance load.
    pub(super) fn look_for_repairs(&mut self) {
        let repairing = self
            .slots
            .iter()
            .any(|slot| slot.is_repaired(&self.core.leaving));
        self.core.pace.set_repairing(repairing);
    }

    /// Expires some keys of the partitions with overdue keys.
    fn expire_due(&mut self, now: Time) {
        if self.core.expiring.is_empty() || now < self.core.expire_at {
            return;
        }
        self.core.expire_at = now + EXPIRE_PAUSE;
        let mut left = EXPIRE_STEP;
        while left > 0
            && let Some(at) = self.core.expiring.pop_front()
        {
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            slot.expiring = self.core.expire_some(slot, &mut left);
            if slot.expiring {
                self.core.expiring.push_back(at);
            }
            self.core.notice(slot);
        }
    }

    /// Whether the processor on which this thread runs is short of time. Then copies slow down if
    /// others want it.
    pub fn set_short_of_time(&mut self, short: bool) {
        self.core.pace.set_short_of_time(short);
    }

    /// Whether work waits only because of a pause for clients.
    #[must_use]
    pub fn pauses(&self) -> bool {
        (!self.core.to_copy.is_empty() && !self.core.copies_wait && !self.core.paced)
            || !self.core.drawing.is_empty()
    }

    /// There are no clients at the moment: work that pauses for them is due.
    pub fn go_on(&mut self) {
        if self.pauses() {
            self.core.draw_at = Time::ZERO;
            if !self.core.paced {
                self.core.copy_at = Time::ZERO;
            }
        }
    }

    /// Sends some parts of the snapshots whose learners have room.
    fn copy_due(&mut self, now: Time) {
        if self.core.to_copy.is_empty() || now < self.core.copy_at {
            return;
        }
        self.core.copy_at = now + COPY_PAUSE;
        self.core.paced = false;
        let before = self.core.worked;
        let mut waiting = 0;
        while self.core.worked - before < COPY_WORK_MAX && waiting < self.core.to_copy.len() {
            if let Err(next) = self.core.pace.may_send(now) {
                self.core.copy_at = next.max(now + COPY_PAUSE);
                self.core.paced = true;
                break;
            }
            let Some((at, id)) = self.core.to_copy.pop_front() else {
                break;
            };
            if self.core.peers.copies_wait(id) {
                self.core.to_copy.push_back((at, id));
                waiting += 1;
            } else if let Some(slot) = self.slots.get_mut(at) {
                self.core.send_chunk(slot, id);
                self.core.notice(slot);
            }
        }
        self.core.copies_wait = waiting > 0 && waiting >= self.core.to_copy.len();
        self.core.worked = before;
    }
}

impl Core {
    /// When upkeep is due.
    fn upkeep_at(&self) -> Time {
        if !self.looking_at.is_empty() {
            return self.now;
        }
        if self.noticed.is_empty() {
            self.next_round
        } else {
            self.next_upkeep.min(self.next_round)
        }
    }

    pub(super) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty() || !self.old_logs.is_empty()
    }

    /// Bytes that were dropped and are not freed yet. Each map and log counts as a whole until all
    /// of it is freed.
    pub(super) fn dropped_bytes(&self) -> u64 {
        let maps = self.garbage.iter().map(Map::bytes).sum::<usize>();
        (maps + self.old_logs.iter().map(Log::bytes).sum::<usize>()) as u64
    }

    /// Frees a slice of what was dropped.
    fn free(&mut self, now: Time) {
        if now < self.free_at || !self.has_garbage() {
            return;
        }
        // If memory is short, writes wait for this.
        let room = self.headroom();
        let (slice, pause) = if room.left < room.kept {
            (FREE_SLICE_SHORT, FREE_PAUSE_SHORT)
        } else {
            (FREE_SLICE, FREE_PAUSE)
        };
        self.free_at = now + pause;
        if let Some(map) = self.garbage.last_mut() {
            if !map.shed(slice) {
                let shed = self.garbage.pop();
                self.garbage
                    .extend(shed.into_iter().flat_map(Map::into_former));
            }
        } else if let Some(log) = self.old_logs.last_mut()
            && !log.shed(slice, &mut self.garbage)
        {
            self.old_logs.pop();
        }
    }
}
