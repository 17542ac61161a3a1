//! Executes operations at the primary: answers reads at once, logs writes, and waits until they are
//! committed.

use super::context::ShardContext;
use crate::command::operation::{PartitionAction, PartitionOperation, ScriptCall, Work};
use crate::command::rows::{KeyScope, Rows, RowsWeight};
use crate::command::scan;
use crate::command::scripts::Spent;
use crate::command::sizes::{self, MapSize};
use crate::log::dedup::{Known, OpId};
use crate::log::waiting::WaitedKey;
use crate::mutant::{self, broken};
use crate::role::calls::{Again, CallOrigin, CallSource, Executed, Execution, PendingCall};
use crate::role::eviction::Made;
use crate::role::one_key::{Barred, OneKey};
use crate::role::partition::{Held, Slot};
use crate::role::replication::Primary;
use crate::role::room::Room;
use crate::role::slots::Slots;
use crate::store::budget::Budget;
use crate::store::{ENTRY_OVERHEAD, Effect, Undo};
use crate::value::cause::By;
use crate::value::entry::Entry;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::CallToken;
use crate::wire::frame::Forwarded;
use doyen_gossip::Time;
use doyen_placement::{MapId, MemberId};
use std::time::Duration;

/// The result of executing a call.
enum CallStep {
    /// It was executed.
    Done(Execution),
    /// Park the call.
    Park,
    /// Not before all of the partition is here. Others do not wait for it.
    Later,
    /// The call was executed before an entry in the log, at this sequence.
    Overtaken(u64),
    /// The call was not executed. Answer at once.
    Refused(Failure),
    /// A duplicate of a finished operation: it is not answered.
    Drop,
}

/// What an operation on several keys has done.
struct Together {
    outcome: Outcome,
    /// What must be committed before it is answered, if it changed nothing.
    read_at: u64,
    /// How many keys and fields it deleted because they were overdue.
    expired: u64,
    lookups: (u64, u64),
    written: RowsWeight,
    bytes: usize,
    /// What it changed in the store. `None`: nothing.
    record: Option<(Effect, Undo)>,
    spent: Spent,
}

/// How many tickets are executed before others have their turn.
const WOKEN_SLICE: usize = 64;
/// If there is no room for what a caller waits with, it is tried again after this time.
const STALLED: Duration = Duration::from_millis(50);
/// A line in which no ticket waits is looked at after this time, unless a grant lapses before.
const GRANTS_LAST_MAX: Duration = Duration::from_secs(60);

/// How often an operation on several keys is run at most before it waits for room.
const ROOM_ATTEMPTS: usize = 3;

impl ShardContext {
    /// Executes a call at its serving primary, or gives it back to be parked.
    pub(crate) fn execute(
        &mut self,
        slot: &mut Slot,
        mut call: PendingCall,
    ) -> Option<PendingCall> {
        if self.budgets.are_busy(self.host.now) {
            let next_pass = self.host.now + Duration::from_nanos(1);
            self.host.timers.wake(slot.at, next_pass);
            return Some(call);
        }
        let id = self.op_id(slot, &call);
        let step = self.step(slot, &call, Some(id));
        match step {
            CallStep::Park => return Some(call),
            CallStep::Later => slot.calls.later.push_back(call),
            CallStep::Refused(failure) => self.answer(slot, call.asker(), Outcome::Failed(failure)),
            CallStep::Drop => self.host.callers.outstanding -= 1,
            CallStep::Overtaken(seq) => self.overtaken(slot, call, seq),
            CallStep::Done(done) => {
                if let Some(held) = slot.held.as_deref_mut() {
                    held.count(&call.work, &done.outcome);
                }
                // What was known of it belongs to an earlier lineage.
                call.tried = None;
                self.executed(slot, Executed::of(call, done));
            }
        }
        None
    }

    /// Executes what callers wait for whose keys have changed, as far as it is not blocked.
    pub(crate) fn try_woken(&mut self, slots: &mut Slots) {
        for _ in 0..WOKEN_SLICE {
            let Some(key) = self.host.waiting.next_woken() else {
                break;
            };
            if let Some(slot) = slots.get_mut(key.0) {
                self.try_first(slot, &key);
                self.host.notice(slot);
            }
        }
        self.host.set_wait_timer();
    }

    /// Executes the first ticket of a line. If it is still blocked, it stays where it is.
    fn try_first(&mut self, slot: &mut Slot, key: &WaitedKey) {
        let now = self.host.now;
        let grants = self.host.waiting.grants(key, now);
        let Some((name, operation)) = self.host.waiting.first(key) else {
            // Its grants end by themselves.
            return self.host.waiting.rest(key, now, GRANTS_LAST_MAX);
        };
        if !slot.executes_tickets() {
            return self.host.waiting.stall(key);
        }
        let operation = operation.clone();
        let (member, n) = name;
        // What is executed now is executed after this.
        let stamp = match self.host.peers.get(member) {
            _ if member == self.host.me => self.host.now.0,
            peer => peer.map_or(0, |peer| peer.stamp),
        };
        let source = CallSource::Waiter { member, stamp };
        let until = self.host.now + self.host.limits.park;
        let work = Work::Key(operation);
        let call = PendingCall::new(source, n, work, (until, true));
        let done = match self.step(slot, &call, None) {
            CallStep::Done(done) => done,
            CallStep::Refused(failure) => Execution::unlogged(Outcome::Failed(failure), 0),
            CallStep::Park | CallStep::Later | CallStep::Overtaken(_) | CallStep::Drop => {
                return self.host.waiting.rest(key, now, STALLED);
            }
        };
        let (blocked, takes_grant) = match &call.work {
            Work::Key(op) => (
                op.action.blocked(&done.outcome, grants),
                op.action.takes_grant() && !matches!(done.outcome, Outcome::Failed(_)),
            ),
            Work::Partition(_) | Work::Transaction(_) | Work::Script(_) => (None, false),
        };
        if let Some(within) = blocked {
            return self.host.waiting.rest(key, now, within);
        }
        if takes_grant {
            let lapses = now + self.host.limits.takeover_wait;
            self.host.waiting.grant(name, lapses);
        } else {
            self.host.waiting.leave(name);
        }
        self.host.callers.outstanding += 1;
        if let Some(held) = slot.held.as_deref_mut() {
            held.count(&call.work, &done.outcome);
        }
        self.executed(slot, Executed::of(call, done));
    }

    /// A call that was sent again is overtaken: only its first outcome may hold. It holds once the
    /// later write is committed. Only the member that executed it, and no later primary, knows that
    /// outcome.
    fn overtaken(&mut self, slot: &mut Slot, mut call: PendingCall, seq: u64) {
        let outcome = match call.source {
            CallSource::Local(_) => match call.take_outcome() {
                Some(outcome) => outcome,
                None => return self.leave_to_caller(slot, call),
            },
            CallSource::Peer { .. } | CallSource::Waiter { .. } => {
                Outcome::Failed(Failure::Overtaken)
            }
        };
        self.wait(slot, Executed::of(call, Execution::unlogged(outcome, seq)));
    }

    /// An operation of a local caller arrives. It is executed at once if it is a write that nothing
    /// is in the way of, and else it becomes a call.
    pub(crate) fn take_local(
        &mut self,
        slot: &mut Slot,
        token: CallToken,
        work: Work,
        (until, hurried): (Time, bool),
    ) {
        let n = self.host.callers.number();
        let writes = work.is_write();
        if writes {
            slot.calls.begin(n);
        }
        let source = CallSource::Local(token);
        let work = match work {
            Work::Key(operation) if writes && !operation.action.is_joint() => {
                let id = self.local_id(slot, n);
                let one = OneKey::of(&operation, Some(id), None);
                if let Some(done) = slot.write_at_once(&mut self.host, &mut self.budgets, &one) {
                    let asker = CallOrigin {
                        source,
                        n,
                        write: true,
                    };
                    let again = Again::Operation(operation);
                    return self.executed_at_once(slot, asker, (until, hurried), done, again);
                }
                Work::Key(operation)
            }
            work => work,
        };
        let call = PendingCall::new(source, n, work, (until, hurried));
        self.take_call(slot, call);
    }

    /// A local caller's write of a key without conditions is executed, if nothing is in its way.
    /// False: nothing happened, and it must arrive as any other operation.
    pub(crate) fn set(
        &mut self,
        slot: &mut Slot,
        map: MapId,
        (key, value): (&[u8], &[u8]),
        token: impl FnOnce() -> CallToken,
    ) -> bool {
        if !slot.takes(true) {
            return false;
        }
        // The next number counts only if the write happens.
        let n = self.host.callers.next_number();
        let id = self.local_id(slot, n);
        let entry = Entry::new(key, value, 0, 0);
        let one = OneKey::put(map, &entry, id, None);
        let Some(done) = slot.write_at_once(&mut self.host, &mut self.budgets, &one) else {
            return false;
        };
        slot.calls.begin(self.host.callers.number());
        let asker = CallOrigin {
            source: CallSource::Local(token()),
            n,
            write: true,
        };
        let times = (self.host.now + self.host.limits.park, false);
        self.executed_at_once(slot, asker, times, done, Again::Set(map, entry));
        true
    }

    /// The same for a peer's write, which was admitted.
    pub(crate) fn write_for_peer<'a>(
        &mut self,
        slot: &mut Slot,
        peer: MemberId,
        forwarded: &Forwarded,
        one: impl FnOnce(OpId) -> OneKey<'a>,
    ) -> bool {
        let Forwarded {
            lineage,
            n,
            finished,
            ..
        } = *forwarded;
        let id = OpId {
            origin: peer,
            n,
            finished,
        };
        if slot.installed.as_ref().is_none_or(|a| a.lineage != lineage) {
            return false;
        }
        let Some(done) = slot.write_at_once(&mut self.host, &mut self.budgets, &one(id)) else {
            return false;
        };
        let asker = CallOrigin {
            source: CallSource::of_forwarded(peer, forwarded),
            n,
            write: true,
        };
        let times = (self.host.now + self.host.limits.park, false);
        self.executed_at_once(slot, asker, times, done, Again::ByPeer);
        true
    }

    /// A write was executed before it became a call.
    fn executed_at_once(
        &mut self,
        slot: &mut Slot,
        asker: CallOrigin,
        times: (Time, bool),
        done: Execution,
        again: Again,
    ) {
        self.host.callers.outstanding += 1;
        self.executed(slot, Executed::at_once(asker, times, done, again));
    }

    /// An operation was executed: its outcome is counted, and waits until it is committed.
    fn executed(&mut self, slot: &mut Slot, executed: Executed) {
        self.host.stats.executed += 1;
        self.host.worked += executed.outcome.bytes();
        if let Some(member) = executed.asker.source.peer() {
            self.host.peers.owe(member, &executed.outcome);
        }
        self.wait(slot, executed);
    }

    /// The executed call waits until it is committed.
    fn wait(&mut self, slot: &mut Slot, executed: Executed) {
        let Some(held) = slot.held.as_deref() else {
            return;
        };
        let links = held.lead().map(|lead| &lead.links);
        // Without copies a write is committed as soon as it is logged. Learners may hold back its
        // answer, which then is one of those that wait.
        let alone = links.is_none_or(|links| links.values().all(|link| !link.required));
        let learns = links.is_some_and(|links| !links.is_empty());
        let is_ready = |held: &Held| executed.seq <= held.log.committed();
        let mut ready = is_ready(held);
        if !ready && alone && !learns {
            slot.advance(&mut self.host);
            ready = slot.held.as_deref().is_some_and(is_ready);
        }
        if ready {
            let host = &mut self.host;
            let ready = &mut host.callers.ready;
            return ready.push(slot.at, executed, &mut host.timers);
        }
        slot.calls.waiting.push_back(executed);
        if alone && learns {
            slot.advance(&mut self.host);
        }
    }

    /// Executes a call under this name. `None`: its caller waits at this node, and it is its turn.
    fn step(&mut self, slot: &mut Slot, call: &PendingCall, id: Option<OpId>) -> CallStep {
        let writes = call.work.is_write();
        let Some(held) = slot.held.as_deref().filter(|held| held.answers(writes)) else {
            return CallStep::Park;
        };
        if let Some(id) = id.filter(|_| writes) {
            match held.dedup.known(id) {
                _ if broken(&mutant::APPLIES_TWICE) => {}
                Known::New => {}
                Known::Applied(seq, outcome) => {
                    return CallStep::Done(Execution::logged(outcome, seq));
                }
                Known::Finished => return CallStep::Drop,
            }
        }
        let reached = |n| held.dedup.reached(id?.origin, n);
        if let Some(seq) = call.before().and_then(reached)
            && !broken(&mutant::EXECUTES_OVERTAKEN)
        {
            return CallStep::Overtaken(seq);
        }
        if let Some(barred) = slot.obstacle(&mut self.host, writes, call.work.maps()) {
            return self.barred(slot, barred);
        }
        match &call.work {
            Work::Key(op) if !op.action.is_joint() => {
                self.step_key(slot, call, &OneKey::of(op, id, call.source.peer()))
            }
            Work::Key(_) | Work::Transaction(_) | Work::Script(_) => {
                self.run_together(slot, call, id)
            }
            Work::Partition(op) => self.step_partition(slot, call, op, id),
        }
    }

    /// Executes an operation on one key.
    fn step_key(&mut self, slot: &mut Slot, call: &PendingCall, op: &OneKey<'_>) -> CallStep {
        let (terms, policy) = (slot.key_terms(&self.host), slot.evicts_by());
        let Some(held) = slot.held.as_deref_mut() else {
            return CallStep::Park;
        };
        let budget = self.budgets.begin();
        let plan = held.plan(&mut self.host, (terms, &budget), op);
        self.host.worked += self.budgets.book(self.host.now, &budget);
        let plan = match plan {
            Ok(plan) => plan,
            Err(Barred::Paged(clock, read_at)) => {
                return match self.begin_cursor(held, (op.map, op.key), clock) {
                    Some(page) => {
                        self.host.stats.lookups.count(slot.at.keyspace, true);
                        CallStep::Done(Execution::unlogged(page, read_at))
                    }
                    None => CallStep::Refused(Failure::Overloaded),
                };
            }
            Err(barred) => return self.barred(slot, barred),
        };
        match held.has_room(&self.host, op.map, &plan) {
            Ok(()) => {}
            Err(Barred::Short(room, bytes)) => {
                match held.make_room(&mut self.host, policy, (op.map, op.key), bytes, room) {
                    Made::Room => {}
                    Made::Soon => return self.wait_or_refuse(call),
                    Made::No(failure) => return CallStep::Refused(failure),
                }
            }
            Err(barred) => return self.barred(slot, barred),
        }
        CallStep::Done(held.commit(&mut self.host, op, plan))
    }

    /// What becomes of a call that is not executed now.
    fn barred(&mut self, slot: &mut Slot, barred: Barred) -> CallStep {
        match barred {
            Barred::Refused(failure) => CallStep::Refused(failure),
            Barred::Crowded(peer) => {
                slot.wait_for_room(&mut self.host, peer);
                CallStep::Park
            }
            Barred::Waits | Barred::Short(..) | Barred::Paged(..) => CallStep::Park,
        }
    }

    /// Executes an operation on a whole partition.
    fn step_partition(
        &mut self,
        slot: &mut Slot,
        call: &PendingCall,
        op: &PartitionOperation,
        id: Option<OpId>,
    ) -> CallStep {
        let Some(held) = slot.held.as_deref_mut() else {
            return CallStep::Park;
        };
        let last = held.log.last();
        let (before, budget) = (held.bytes(), self.budgets.begin());
        let at = (held.clock.advance(self.host.data_now()), &budget);
        let (next, keys) = match &op.action {
            PartitionAction::Count if !held.store.is_whole() => return CallStep::Later,
            PartitionAction::Count => {
                let count = i64::try_from(held.store.count(op.map)).unwrap_or(i64::MAX);
                return CallStep::Done(Execution::unlogged(Outcome::Int(count), last));
            }
            PartitionAction::Fields { walk, page } => {
                let page = self.go_on(held, *walk, *page);
                let (page, read_at) = page.unwrap_or((Outcome::Nil, 0));
                return CallStep::Done(Execution::unlogged(page, read_at));
            }
            PartitionAction::Clear if !held.store.has(op.map) => {
                return CallStep::Done(Execution::unlogged(Outcome::Ok, last));
            }
            PartitionAction::Clear => {
                let (clear, op_by) = (Effect::Clear { map: op.map }, (id, By::UNKNOWN));
                let seq = held.log(&mut self.host, 0, clear, op_by, Outcome::Ok);
                return CallStep::Done(Execution::logged(Outcome::Ok, seq));
            }
            PartitionAction::Scan {
                cursor,
                count,
                kind,
            } => scan::scan(&mut held.store, op.map, (*cursor, *count, *kind), at),
            PartitionAction::Find(query) => scan::find(&mut held.store, op.map, query, at),
            PartitionAction::Sizes => (0, sizes::of(&held.store).map(MapSize::encode).collect()),
            PartitionAction::Range(query) => {
                self.host.stats.ranges += 1;
                let (more, keys) = scan::range(&mut held.store, op.map, query, at);
                (u64::from(more), keys)
            }
        };
        self.host.worked += self.budgets.book(self.host.now, &budget);
        self.host.memory.recount(before, held.bytes());
        let (none, found) = (keys.is_empty(), Outcome::Keys { next, keys });
        match (&op.action, call.source) {
            // It is not executed if its sender has too much to send already. Nothing was changed,
            // so it may be sent again.
            (
                PartitionAction::Find(_) | PartitionAction::Sizes,
                CallSource::Peer { member, .. },
            ) if !self.host.peers.may_owe(member, found.bytes()) => {
                CallStep::Refused(Failure::Overloaded)
            }
            // Keys that have expired are in the way, and will be deleted soon.
            (PartitionAction::Range(_), _) if none && budget.is_spent() => {
                CallStep::Refused(Failure::Overloaded)
            }
            _ => CallStep::Done(Execution::unlogged(found, last)),
        }
    }

    /// Runs an operation on several keys, or says why it is not executed.
    fn run_together(&mut self, slot: &mut Slot, call: &PendingCall, id: Option<OpId>) -> CallStep {
        let (policy, budget) = (slot.evicts_by(), self.budgets.begin());
        // Room was made for this many bytes. Since other keys were evicted for it, the operation is
        // run again, and then it may write something else.
        let mut made_for = None;
        for _ in 0..ROOM_ATTEMPTS {
            let ran = match self.run_once(slot, call, &budget) {
                Ok(ran) => ran,
                Err(step) => return step,
            };
            let Some(held) = slot.held.as_deref_mut() else {
                return CallStep::Park;
            };
            let written = &ran.written;
            let wanted = written.bytes + written.keys.saturating_sub(1) * ENTRY_OVERHEAD;
            let room = if written.keys > 0 {
                held.room(&self.host, wanted)
            } else {
                Room::Plenty
            };
            let crowded = held.crowded_copy(&self.host, ran.bytes);
            let short = room < Room::Plenty
                && (written.grows || room == Room::None)
                && made_for.is_none_or(|bytes| bytes < wanted);
            let changes = ran.record.is_some();
            if !changes || !written.full && crowded.is_none() && !short {
                return CallStep::Done(self.log_together(held, call, id, ran));
            }
            let full = written.full;
            if let Some((effect, undo)) = ran.record {
                let before = held.bytes();
                held.store.undo(&effect, undo);
                self.host.memory.recount(before, held.bytes());
            }
            if full {
                return CallStep::Refused(Failure::MapFull);
            }
            if let Some(peer) = crowded {
                return self.barred(slot, Barred::Crowded(peer));
            }
            let Some((map, key)) = call.work.keys().next() else {
                return CallStep::Refused(Failure::TooLarge);
            };
            match held.make_room(&mut self.host, policy, (map, key), wanted, room) {
                Made::Room => made_for = Some(wanted),
                Made::Soon => return self.wait_or_refuse(call),
                Made::No(failure) => return CallStep::Refused(failure),
            }
        }
        self.host.soon(slot.at);
        self.wait_or_refuse(call)
    }

    /// Runs it once. What it changes is in the store then, and not yet in the log.
    fn run_once(
        &mut self,
        slot: &mut Slot,
        call: &PendingCall,
        budget: &Budget,
    ) -> Result<Together, CallStep> {
        let (at, terms) = (slot.at, slot.key_terms(&self.host));
        let Some(held) = slot.held.as_deref_mut() else {
            return Err(CallStep::Park);
        };
        let teaches = held.lead().is_some_and(Primary::teaches);
        let clock = held.clock.advance(self.host.data_now());
        let cx = held.run_context(&self.host, (terms, budget), (clock, 0));
        let hearers = match &call.work {
            Work::Transaction(_) | Work::Script(_) => self.publishing.hearers(&self.host.peers),
            Work::Key(_) | Work::Partition(_) => 0,
        };
        let before = held.bytes();
        let stores = (&mut held.store, &held.log);
        let limits = (cx, &mut self.host.bounds);
        let tables = &self.host.tables;
        let scope = KeyScope {
            belongs: &|map, key: &[u8]| tables.belongs(at, map, key) == Some(true),
            is_all: tables.has_all_keys(at),
        };
        let mut rows = Rows::of(stores, limits, (teaches, terms.marks), scope);
        let (scripts, mut spent) = (&mut self.scripts, Spent::new(hearers));
        let mut run = |script: &ScriptCall, rows: &mut Rows<'_>| {
            scripts.run(script, (rows, &mut spent), &cx, scope)
        };
        let ran = match &call.work {
            Work::Transaction(transaction) => rows.run(transaction, run),
            Work::Script(script) => run(script, &mut rows),
            Work::Key(op) => rows.run_one(op),
            Work::Partition(_) => return Err(CallStep::Park),
        };
        let done = self.budgets.book(self.host.now, budget);
        self.host.worked = self.host.worked.saturating_add(spent.work().max(done));
        let ran = match ran {
            Ok(ran) => ran,
            Err(failure) => {
                rows.take_back();
                self.refusals.add(spent.take_refused());
                return Err(CallStep::Refused(failure));
            }
        };
        if rows.expired() > 0 && !terms.purges {
            rows.take_back();
            return Err(CallStep::Park);
        }
        if let CallSource::Peer { member, .. } = call.source
            && ran.answered > 0
            && !self.host.peers.may_owe(member, ran.answered)
        {
            // It was not executed, so it may be sent again.
            rows.take_back();
            return Err(CallStep::Refused(Failure::Overloaded));
        }
        let together = Together {
            outcome: ran.outcome,
            read_at: rows.read_at(),
            expired: rows.expired(),
            lookups: rows.lookups(),
            written: rows.written(),
            bytes: rows.bytes(),
            record: rows.into_record(),
            spent,
        };
        self.host.memory.recount(before, held.bytes());
        Ok(together)
    }

    /// Logs what an operation on several keys has changed, if anything.
    fn log_together(
        &mut self,
        held: &mut Held,
        call: &PendingCall,
        id: Option<OpId>,
        mut ran: Together,
    ) -> Execution {
        let keyspace = held.at.keyspace;
        self.host.stats.lookups.count_all(keyspace, ran.lookups);
        let Some(record) = ran.record else {
            self.say(&mut ran.spent);
            return Execution::unlogged(ran.outcome, ran.read_at);
        };
        self.host.stats.expired += ran.expired;
        self.host.worked += ran.bytes;
        // An operation that only reads has no number that a retry is known by.
        let logged = call.work.is_write();
        let (op, outcome) = if logged {
            (id, ran.outcome.clone())
        } else {
            (None, Outcome::Ok)
        };
        let by = match &call.work {
            Work::Key(op) => op.action.by(),
            _ => By::UNKNOWN,
        };
        let seq = held.record(&mut self.host, record, (op, by), outcome);
        self.say(&mut ran.spent);
        Execution {
            outcome: ran.outcome,
            seq,
            logged,
        }
    }

    /// Sends the messages of scripts that have run, and tells what was refused to their caller. A
    /// read of what a message tells waits until that is committed, so the message need not.
    fn say(&mut self, spent: &mut Spent) {
        self.refusals.add(spent.take_refused());
        for publication in spent.take_said() {
            self.channels().send(publication);
        }
    }

    /// A write waits for room, unless it has waited for too long.
    fn wait_or_refuse(&mut self, call: &PendingCall) -> CallStep {
        if self.host.is_late(call) {
            CallStep::Refused(Failure::OutOfMemory)
        } else {
            CallStep::Park
        }
    }
}
