//! The shard of one data thread, as its shell sees it: operations go in, outcomes come out.

use super::context::ShardContext;
use crate::command::grants::GrantRefusal;
use crate::command::operation::{Operation, Work};
use crate::command::{GatherResult, Gathering};
use crate::mutant::{self, broken};
use crate::role::calls::{CallSource, Executed, Execution, PendingCall};
use crate::role::recovery::SinceRecovery;
use crate::role::slots::Slots;
use crate::role::spans::Serve;
use crate::role::stats::Stats;
use crate::store::census::Outside;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::{CallToken, Limits, Patience, ShardRequest};
use crate::wire::trace::TraceContext;
use doyen_gossip::Time;
use doyen_placement::{Eviction, KeyspaceId, MapId, MemberId};
use std::time::Duration;

/// The machine.
#[derive(Debug)]
pub struct Shard {
    pub(crate) cx: ShardContext,
    pub(crate) slots: Slots,
}

impl Shard {
    /// Sets the memory that the process holds besides what this shard counts.
    pub fn set_outside(&mut self, outside: Outside) {
        self.cx.host.memory.compacting.outside = outside;
    }

    /// Bytes of memory that this shard counts.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.cx.host.memory.bytes
    }

    /// Bytes that are left, after the memory outside is subtracted.
    #[must_use]
    pub fn memory_left(&self) -> usize {
        let host = &self.cx.host;
        let most = host.limits.memory_bytes_max;
        most.saturating_sub(host.memory_held())
    }

    /// What was committed here since the last recovery, by partition. Empty if there was none.
    pub fn since_recovery(&mut self, now: Time) -> Vec<SinceRecovery> {
        self.slots.since_recovery(&self.cx.host, now)
    }

    /// The next command of a script that the script's caller was not allowed to run.
    pub fn poll_refusal(&mut self) -> Option<GrantRefusal> {
        self.cx.refusals.pop()
    }

    /// A shard of a process that is no member yet. `rng_seed` is for jitter, and for the choice of
    /// keys to evict.
    #[must_use]
    pub fn new(me: MemberId, limits: Limits, rng_seed: u64, now: Time) -> Self {
        let cx = ShardContext::new(me, limits, rng_seed, now);
        Self {
            cx,
            slots: Slots::default(),
        }
    }

    /// Bounds the time of operations by one clock, and that of scripts by another. Each returns the
    /// time since any moment. Without clocks, only what they touch and their instructions are
    /// bounded.
    pub fn set_work_clocks(&mut self, operations: fn() -> Duration, scripts: fn() -> Duration) {
        self.cx.budgets.set_clock(operations);
        self.cx.scripts.set_clock(scripts);
    }

    /// Spans for operations that other processes ask for, if they have the context of a caller's
    /// span.
    pub fn set_serve(&mut self, serve: Serve) {
        self.cx.host.traces.set_serve(serve);
    }

    /// Before `submit`: the caller behind this token has this context, which is sampled. If another
    /// member executes the operation, its span is a child of that one.
    pub fn trace(&mut self, token: CallToken, context: TraceContext) {
        self.cx.host.callers.trace(token, context);
    }

    /// Moves the clocks of data ahead of this machine's, by `ahead` altogether: keys expire sooner,
    /// and wall time is later. Leases of members, timeouts and everything else that follows `now`
    /// stay as they are. Only a test moves them, and those of all members by the same time.
    pub fn set_ahead(&mut self, now: Time, ahead: Duration) {
        let host = &mut self.cx.host;
        host.now = now;
        let further = ahead.saturating_sub(host.ahead).as_millis();
        let further = u64::try_from(further).unwrap_or(u64::MAX);
        host.wall.0 = host.wall.0.saturating_add(further);
        host.ahead = ahead;
        for slot in self.slots.iter_mut() {
            slot.note_overdue(host);
        }
    }

    /// Submits an operation of a local caller. `unix_ms` is wall time, which the shell reads once a
    /// batch at most. Returns whether the outcome comes from another node, or from another thread
    /// of this one.
    pub fn submit(
        &mut self,
        now: Time,
        unix_ms: u64,
        token: CallToken,
        work: impl Into<Work>,
        patience: Patience,
    ) -> bool {
        let host = &mut self.cx.host;
        (host.now, host.wall) = (now, (unix_ms, now));
        let work = match (work.into(), patience) {
            (Work::Key(operation), Patience::InLine { age, until })
                if operation.action.may_wait() =>
            {
                let times = (age, until);
                self.slots.wait_for(host, token, operation, times);
                return true;
            }
            (work, _) => work,
        };
        let at = match host.tables.place_work(&host.limits, &work) {
            Ok(at) => at,
            Err(failure) => {
                host.callers.answer(token, Outcome::Failed(failure));
                return false;
            }
        };
        let found = self.slots.get_mut(at).filter(|s| s.installed.is_some());
        let Some(slot) = found else {
            let failure = host.tables.missing(at);
            host.callers.answer(token, Outcome::Failed(failure));
            return false;
        };
        if !work.finds_place(host.callers.outstanding, host.limits.waiting_max) {
            let overloaded = Outcome::Failed(Failure::Overloaded);
            host.callers.answer(token, overloaded);
            return false;
        }
        let times = match patience {
            Patience::Whole | Patience::InLine { .. } => (host.now + host.limits.park, false),
            Patience::Until(until) => (until, true),
        };
        self.cx.take_local(slot, token, work, times);
        self.cx.host.notice(slot);
        slot.primary() != Some(self.cx.host.me)
    }

    /// Writes a key without conditions, as `submit` does, if nothing is in its way: this thread
    /// leads, and nothing waits there. So the commonest write needs no operation of its own: key
    /// and value are copied once, into the entry. If it returns false, nothing happened, and the
    /// write must be submitted. `token` is called if the write happens.
    pub fn set(
        &mut self,
        now: Time,
        keyspace: KeyspaceId,
        map: MapId,
        pair: (&[u8], &[u8]),
        token: impl FnOnce() -> CallToken,
    ) -> bool {
        let cx = &mut self.cx;
        cx.host.now = now;
        let (key, value) = pair;
        if key.len() > cx.host.limits.key_bytes_max
            || value.len() > cx.host.limits.value_bytes_max
            || cx.host.callers.outstanding >= cx.host.limits.waiting_max
        {
            return false;
        }
        let Some(at) = cx.host.tables.place(keyspace, map, key) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        let done = cx.set(slot, map, pair, token);
        if done {
            cx.host.notice(slot);
        }
        done
    }

    /// Reads a key, if this node can do so at once: it leads the partition, nothing waits there,
    /// and the entry is a string that is committed. Otherwise returns `None`, and the read must be
    /// submitted. The value may be answered only if `may_answer` agrees, with a clock, a lease and
    /// a generation that were read *after* this. If it does not, keep the read (`keep`) under the
    /// number that comes with it.
    pub fn read(
        &mut self,
        now: Time,
        keyspace: KeyspaceId,
        map: MapId,
        key: &[u8],
    ) -> Option<(u64, Option<&[u8]>)> {
        let host = &mut self.cx.host;
        host.now = host.now.max(now);
        let slot = self.slots.get_mut(host.tables.place(keyspace, map, key)?)?;
        if !slot.serving() || !slot.calls.parked.is_empty() {
            return None;
        }
        let held = slot.held.as_deref_mut()?;
        if !held.lead().is_some_and(|l| l.open) {
            return None;
        }
        let order = held.store.order(key);
        held.migrate(host, map, order, key);
        if host.bounds.is_special(map) {
            return None;
        }
        let found = held.store.entry(map, order, key);
        let seq = held.log.read_at(found);
        let overdue = found.is_some_and(|e| e.overdue(held.clock.advance(host.data_now())))
            && !broken(&mutant::READS_OVERDUE);
        let string = found.is_none_or(|e| e.kind() == Kind::String);
        if seq > held.log.committed() || overdue || !string {
            return None;
        }
        host.stats.executed += 1;
        host.stats.lookups.count(keyspace, found.is_some());
        host.callers.read_at_once += 1;
        let marks = host.bounds.used(map, order, false) || slot.eviction == Eviction::Lru;
        if marks && let Some(entry) = found {
            entry.mark();
        }
        let value = found.map(Entry::value);
        let bytes = value.map_or(0, <[u8]>::len);
        host.worked += bytes;
        if held.meter.read(bytes) {
            held.meter.sample(map, key);
        }
        Some((host.callers.number(), value))
    }

    /// Keeps the result of `read`, because it may not be answered now. Like any executed read, it
    /// is checked again. If the tenure ends, it is executed again, in its place among the
    /// operations of this node.
    pub fn keep(&mut self, token: CallToken, n: u64, operation: Operation, outcome: Outcome) {
        let host = &mut self.cx.host;
        let Operation {
            keyspace, map, key, ..
        } = &operation;
        let Some(at) = host.tables.place(*keyspace, *map, key) else {
            let nowhere = Outcome::Failed(Failure::NoPartition);
            return host.callers.answer(token, nowhere);
        };
        let until = host.now + host.limits.park;
        let (source, work) = (CallSource::Local(token), Work::Key(operation));
        let call = PendingCall::new(source, n, work, (until, false));
        host.callers.outstanding += 1;
        let executed = Executed::of(call, Execution::unlogged(outcome, 0));
        host.callers.ready.push(at, executed, &mut host.timers);
    }

    /// Whether a read or committed outcome may be answered (rule 8), by a clock and a lease that
    /// were read after it. `current` says whether the control thread still shows the view that was
    /// installed last.
    #[must_use]
    pub fn may_answer(now: Time, lease: Time, current: bool) -> bool {
        (current || broken(&mutant::ANSWERS_BY_OLD_VIEW))
            && (now <= lease || broken(&mutant::ANSWERS_WITHOUT_LEASE))
    }

    /// How many more operations may be submitted before the answer is `Overloaded`.
    #[must_use]
    pub fn room(&self) -> usize {
        let host = &self.cx.host;
        let most = host.limits.waiting_max;
        most.saturating_sub(host.callers.outstanding)
    }

    /// The number of the next operation of this thread's callers. Those that were submitted between
    /// two looks have the numbers between these.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.cx.host.callers.next_number()
    }

    /// Bytes of values and frames handled since the last call. With this, a shell divides work into
    /// slices.
    pub fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.cx.host.worked)
    }

    /// The caller is gone, or was answered, and no outcome is wanted any more. (What was sent may
    /// still happen.) If it waited in line and has a grant, it gives that back.
    pub fn forget(&mut self, token: CallToken) {
        let host = &mut self.cx.host;
        if host.end_waiting(token) || host.callers.is_idle() {
            return;
        }
        if host.callers.forget(token) {
            let calls = self.slots.iter().flat_map(|s| s.calls.all());
            let sources = calls.map(|(source, _)| source);
            let ready: Vec<CallSource> = host.callers.ready.sources().collect();
            let open = sources.chain(ready).filter_map(|source| source.token());
            host.callers.forget_answered(open);
        }
    }

    /// Releases outcomes that may be answered. Call it after a batch of inputs, with a clock and a
    /// lease that were read *after* them. `current` says whether the control thread still shows the
    /// view that was installed last. With an expired lease or an old view, nothing is released, and
    /// what was executed is checked again later (rule 8).
    pub fn release(&mut self, now: Time, lease: Time, current: bool) {
        let passed = now.since(self.cx.host.now);
        self.cx.host.now = self.cx.host.now.max(now);
        if self.cx.host.waiting.has_woken() {
            self.cx.try_woken(&mut self.slots);
        }
        if !Self::may_answer(now, lease, current) {
            if broken(&mutant::CONFIRMS_WITHOUT_LEASE) {
                self.slots.release_confirmed(&mut self.cx.host);
            }
            // Subscribers ask again.
            self.cx.host.read.confirming.clear();
            // The tenure decides. While it lasts, no other member can have led, so what was read
            // stays true. If it ends, `install` sends these back to be executed again.
            return;
        }
        let host = &mut self.cx.host;
        let read = std::mem::take(&mut host.callers.read_at_once);
        host.copying.rate.answered(passed, read);
        while let Some((at, executed)) = self.cx.host.callers.ready.pop() {
            let host = &mut self.cx.host;
            let asker = executed.asker;
            if !executed.hurried && executed.paced.is_none() {
                let left = executed.until.since(now);
                let waited = host.limits.park.saturating_sub(left);
                host.copying.rate.answered(waited, 1);
            }
            if let CallSource::Local(token) = asker.source
                && !asker.write
            {
                host.callers.outstanding -= 1;
                host.callers.answer(token, executed.outcome);
                continue;
            }
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            self.cx.answer(slot, asker, executed.outcome);
        }
        let host = &mut self.cx.host;
        host.callers.ready.settle(&mut host.timers);
        if !host.read.confirming.is_empty() {
            self.slots.release_confirmed(host);
        }
    }

    /// The next released outcome.
    pub fn poll_outcome(&mut self) -> Option<(CallToken, Outcome)> {
        self.cx.host.callers.poll_outcome()
    }

    /// The next operation that was executed and changed nothing in a tenure that ended, whose
    /// outcome was lost, and that a later write of this shard's callers on the same key overtook.
    /// Executed again, it would see that write. The machine does not answer it any more. A caller
    /// whose operations on one key keep an order answers that nothing happened. A caller with one
    /// operation at a time submits it again.
    pub fn poll_overtaken(&mut self) -> Option<(CallToken, Work)> {
        self.cx.host.callers.poll_overtaken()
    }

    /// The next request to the control thread.
    pub fn poll_request(&mut self) -> Option<ShardRequest> {
        self.cx.host.outbox.poll()
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let host = &self.cx.host;
        let mut stats = host.stats.clone();
        let memory_max = host.limits.memory_bytes_max as u64;
        let (memory, held) = (host.memory.bytes as u64, host.memory_held() as u64);
        (stats.memory_bytes, stats.memory_bytes_max) = (memory, memory_max);
        stats.memory_outside_bytes = held - memory;
        stats.memory_filled = held.saturating_mul(1000) / memory_max.max(1);
        stats.divided = host.upkeep.migrating.len() as u64;
        for slot in self.slots.iter() {
            stats.parked += slot.calls.parked.len() as u64;
            let Some(held) = &slot.held else { continue };
            stats.keys += held.store.keys() as u64;
            if let Some(lead) = held.lead() {
                if lead.open && lead.serving {
                    stats.open += 1
                } else {
                    stats.closed += 1
                }
            }
        }
        stats
    }

    pub(crate) fn pump_all(&mut self) {
        for slot in self.slots.iter_mut().filter(|s| !s.calls.parked.is_empty()) {
            self.cx.pump(slot);
        }
    }
}

impl Gathering {
    /// Combines what was read of the keys, within what a shard lets an operation do.
    ///
    /// # Errors
    /// The result is too large, or it is too much work.
    pub fn combined_at(&self, now: Time, shard: &mut Shard) -> Result<GatherResult, Failure> {
        let cx = &mut shard.cx;
        cx.host.now = cx.host.now.max(now);
        let budget = cx.budgets.begin();
        let combined = self.combine(&RunContext {
            clock: 0,
            unix_ms: cx.host.unix_ms(),
            default_ttl_ms: None,
            value_bytes_max: cx.host.limits.value_bytes_max,
            packed_bytes_max: cx.host.limits.packed_bytes_max,
            packed_small_bytes_max: cx.host.limits.packed_small_bytes_max,
            level: cx.host.tables.level(),
            versions_from: 0,
            next_write: 0,
            waiting: 0,
            budget: &budget,
        });
        cx.host.worked += cx.budgets.book(cx.host.now, &budget);
        combined
    }
}
