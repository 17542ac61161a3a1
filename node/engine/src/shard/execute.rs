//! Executes operations at the primary: answers reads at once, logs writes, and waits until they are
//! committed.

use super::context::Context;
use crate::command::action;
use crate::command::idle;
use crate::command::operation::{PartitionAction, ScriptCall, Work};
use crate::command::rows::Rows;
use crate::command::scan;
use crate::command::scripts::Spent;
use crate::command::sizes;
use crate::log::dedup::{Known, OpId};
use crate::log::waiting::WaitedKey;
use crate::mutant::{self, broken};
use crate::role::calls::{Again, Asker, Call, Executed, Source};
use crate::role::eviction::Made;
use crate::role::partition::{Held, Slot};
use crate::role::room::Room;
use crate::role::slots::Slots;
use crate::store::change::Change;
use crate::store::run_context::{self, RunContext};
use crate::store::{Before, ENTRY_OVERHEAD, Effect};
use crate::value::cause::By;
use crate::value::entry::Entry;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::{Request, Token};
use crate::wire::frame::Forwarded;
use doyen_placement::{Eviction, MapId, MemberId};
use std::time::Duration;

/// The result of executing a call.
enum Step {
    /// This outcome, once this sequence is committed, and whether it is in the log.
    Done(Outcome, u64, bool),
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

/// How many tickets are executed before others have their turn.
const WOKEN_SLICE: usize = 64;
/// If there is no room for what a caller waits with, it is tried again after this time.
const STALLED: Duration = Duration::from_millis(50);

/// How often an operation on several keys is run at most before it waits for room.
const ROOM_ATTEMPTS: usize = 3;

impl Context {
    /// Executes a call at its serving primary, or gives it back to be parked.
    pub(crate) fn execute(&mut self, slot: &mut Slot, mut call: Call) -> Option<Call> {
        if self.budgets.are_busy(self.host.now) {
            let next_pass = self.host.now + Duration::from_nanos(1);
            self.host.timers.wake(slot.at, next_pass);
            return Some(call);
        }
        let id = self.op_id(slot, &call);
        let step = self.step(slot, &call, Some(id));
        match step {
            Step::Park => return Some(call),
            Step::Later => slot.calls.later.push_back(call),
            Step::Refused(failure) => self.answer(slot, call.asker(), Outcome::Failed(failure)),
            Step::Drop => self.host.callers.outstanding -= 1,
            Step::Overtaken(seq) => self.overtaken(slot, call, seq),
            Step::Done(outcome, seq, logged) => {
                self.host.stats.executed += 1;
                self.host.worked += outcome.bytes();
                if let Some(held) = slot.held.as_deref_mut() {
                    held.count(&call.work, &outcome);
                }
                if let Source::Peer { member, .. } = call.source {
                    self.host.peers.owe(member, &outcome);
                }
                // What was known of it belongs to an earlier lineage.
                call.tried = None;
                self.wait(slot, Executed::of(call, seq, outcome, logged));
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
        let Some((name, operation)) = self.host.waiting.first(key) else {
            return;
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
        let source = Source::Waiter { member, stamp };
        let until = self.host.now + self.host.limits.park;
        let work = Work::Key(operation);
        let call = Call {
            source,
            n,
            work,
            until,
            hurried: true,
            maybe: false,
            tried: None,
        };
        let now = self.host.now;
        let (outcome, seq, logged) = match self.step(slot, &call, None) {
            Step::Done(outcome, seq, logged) => (outcome, seq, logged),
            Step::Refused(failure) => (Outcome::Failed(failure), 0, false),
            Step::Park | Step::Later | Step::Overtaken(_) | Step::Drop => {
                return self.host.waiting.rest(key, now, STALLED);
            }
        };
        let blocked = match &call.work {
            Work::Key(op) => op.action.blocked(&outcome),
            Work::Partition(_) | Work::Transaction(_) | Work::Script(_) => None,
        };
        if let Some(within) = blocked {
            return self.host.waiting.rest(key, now, within);
        }
        self.host.waiting.leave(name);
        self.host.callers.outstanding += 1;
        self.host.stats.executed += 1;
        self.host.worked += outcome.bytes();
        if let Some(held) = slot.held.as_deref_mut() {
            held.count(&call.work, &outcome);
        }
        self.host.peers.owe(member, &outcome);
        self.wait(slot, Executed::of(call, seq, outcome, logged));
    }

    /// A call that was sent again is overtaken: only its first outcome may hold. It holds once the
    /// later write is committed. Only the member that executed it, and no later primary, knows that
    /// outcome.
    fn overtaken(&mut self, slot: &mut Slot, mut call: Call, seq: u64) {
        let outcome = match call.source {
            Source::Local(_) => match call.take_outcome() {
                Some(outcome) => outcome,
                None => return self.leave_to_caller(slot, call),
            },
            Source::Peer { .. } | Source::Waiter { .. } => Outcome::Failed(Failure::Overtaken),
        };
        self.wait(slot, Executed::of(call, seq, outcome, false));
    }

    /// The executed call waits until it is committed.
    fn wait(&mut self, slot: &mut Slot, executed: Executed) {
        let at = slot.at;
        let Some(held) = &slot.held else { return };
        if executed.seq <= held.log.committed() {
            return self
                .host
                .callers
                .ready
                .push(at, executed, &mut self.host.timers);
        }
        let alone = held
            .lead()
            .is_none_or(|l| l.links.values().all(|l| !l.required));
        slot.calls.waiting.push_back(executed);
        if alone {
            // Without copies a write is committed as soon as it is logged.
            slot.advance(&mut self.host);
        }
    }

    /// Writes a key without conditions for a local caller at its serving primary, if there is no
    /// obstacle. False: the write must be executed as any other. The commonest write copies its key
    /// and value only into the entry.
    pub(crate) fn set(
        &mut self,
        slot: &mut Slot,
        map: MapId,
        (key, value): (&[u8], &[u8]),
        token: impl FnOnce() -> Token,
    ) -> bool {
        if self.host.bounds.is_special(map) || !self.is_clear(slot, key, value) {
            return false;
        }
        let n = self.host.callers.number();
        slot.calls.begin(n);
        let id = OpId {
            origin: self.host.me,
            n,
            finished: slot.calls.finished(n),
        };
        let asker = Asker {
            source: Source::Local(token()),
            n,
            write: true,
        };
        let entry = Entry::new(key, value, 0, 0);
        let again = Again::Set(map, entry.clone());
        self.put(slot, (map, entry), id, asker, again);
        true
    }

    /// The same for a peer that asks for the first time. Otherwise the entry is given back.
    pub(crate) fn set_for_peer(
        &mut self,
        slot: &mut Slot,
        peer: MemberId,
        forwarded: &Forwarded,
        map: MapId,
        entry: Entry,
    ) -> Result<(), Entry> {
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
        let led = slot
            .installed
            .as_ref()
            .is_some_and(|a| a.lineage == lineage)
            && !self.host.bounds.is_special(map)
            && self.is_clear(slot, entry.key(), entry.value());
        let new = |h: &Held| h.dedup.known(id) == Known::New || broken(&mutant::APPLIES_TWICE);
        if !led || !slot.held.as_deref().is_some_and(new) {
            return Err(entry);
        }
        let asker = Asker {
            source: Source::of_forwarded(peer, forwarded),
            n,
            write: true,
        };
        self.put(slot, (map, entry), id, asker, Again::ByPeer);
        Ok(())
    }

    /// Whether there is no obstacle to a write without conditions: this node leads and
    /// acknowledges, no call waits, and there is room.
    fn is_clear(&self, slot: &Slot, key: &[u8], value: &[u8]) -> bool {
        let still = slot.still && !broken(&mutant::WRITES_WHILE_RESHAPED);
        let clear = self.host.used
            && slot.serving()
            && !still
            && slot.calls.parked.is_empty()
            && !slot.has_too_few_copies();
        let held = slot
            .held
            .as_deref()
            .filter(|h| clear && h.lead().is_some_and(|l| l.open));
        let bytes = key.len() + value.len();
        let fits = |held: &Held| {
            held.room(&self.host, bytes) == Room::Plenty
                && held.crowded_copy(&self.host, bytes).is_none()
        };
        value.len() <= self.host.limits.value_bytes_max && held.is_some_and(fits)
    }

    /// Writes an entry without further checks.
    fn put(
        &mut self,
        slot: &mut Slot,
        (map, entry): (MapId, Entry),
        id: OpId,
        asker: Asker,
        again: Again,
    ) {
        let default_ttl_ms = slot.default_ttl_ms;
        let Some(held) = slot.held.as_deref_mut() else {
            return;
        };
        self.host.callers.outstanding += 1;
        self.host.stats.executed += 1;
        self.host.worked += entry.value().len();
        if held.meter.write(entry.key().len() + entry.value().len()) {
            held.meter.sample(map, entry.key());
        }
        let clock = held.clock.advance(self.host.data_now());
        let order = held.store.order(entry.key());
        let effect = Effect::Put {
            map,
            entry,
            deadline: run_context::fresh(default_ttl_ms, || (clock, self.host.unix_ms())),
            before: Before::Value,
        };
        let seq = held.log(
            &mut self.host,
            order,
            effect,
            (Some(id), By::SET),
            Outcome::Ok,
        );
        let until = self.host.now + self.host.limits.park;
        self.wait(
            slot,
            Executed {
                asker,
                until,
                hurried: false,
                seq,
                outcome: Outcome::Ok,
                logged: true,
                paced: None,
                maybe: false,
                again,
            },
        );
    }

    /// Executes a call under this name. `None`: its caller waits at this node, and it is its turn.
    fn step(&mut self, slot: &mut Slot, call: &Call, id: Option<OpId>) -> Step {
        let few = slot.has_too_few_copies();
        let (default_ttl_ms, eviction, still) = (slot.default_ttl_ms, slot.evicts_by(), slot.still);
        let Some(held) = slot.held.as_mut() else {
            return Step::Park;
        };
        let Some(open) = held.lead().map(|l| l.open) else {
            return Step::Park;
        };
        // After a reset the partition is empty, while the old primary may still serve the former
        // contents: answer nothing before its lease is over. If the log has entries, this member
        // was a copy, and the old primary acknowledges nothing without it. So reads may be
        // answered.
        if !open && (call.work.is_write() || held.log.last() == 0) {
            return Step::Park;
        }
        if let Some(id) = id.filter(|_| call.work.is_write()) {
            match held.dedup.known(id) {
                _ if broken(&mutant::APPLIES_TWICE) => {}
                Known::New => {}
                Known::Applied(seq, outcome) => return Step::Done(outcome, seq, true),
                Known::Finished => return Step::Drop,
            }
        }
        let reached = |n| held.dedup.reached(id?.origin, n);
        if let Some(seq) = call.before().and_then(reached)
            && !broken(&mutant::EXECUTES_OVERTAKEN)
        {
            return Step::Overtaken(seq);
        }
        // The table that names this map comes in a moment, with its limits.
        if call.work.maps().any(|map| self.host.bounds.is_unknown(map)) {
            return Step::Park;
        }
        if self.host.bounds.any_dropped()
            && call.work.maps().any(|map| self.host.bounds.is_dropped(map))
        {
            return Step::Refused(Failure::Dropped);
        }
        if call.work.is_write() {
            if few {
                return Step::Refused(Failure::TooFewCopies);
            }
            if !self.host.used {
                if !std::mem::replace(&mut self.host.asked_used, true) {
                    self.host.outbox.push(Request::Used);
                }
                return Step::Park;
            }
        }
        match &call.work {
            Work::Key(op) if !op.action.is_joint() => {
                let clock = held.clock.advance(self.host.data_now());
                let order = held.store.order(&op.key);
                held.draw(&mut self.host, op.map, order, &op.key);
                let mut found = held.store.shown(op.map, order, &op.key);
                if found.is_overdue(clock) {
                    // The next primary's clock may be a little behind: what was seen to be expired
                    // must be deleted in the log. And a partition that is about to be split or
                    // merged must not change.
                    if !open || (still && !broken(&mutant::WRITES_WHILE_RESHAPED)) {
                        return Step::Park;
                    }
                    held.purge(&mut self.host, (op.map, order, &op.key), clock);
                    found = held.store.shown(op.map, order, &op.key);
                }
                let footprint = op.action.footprint();
                let rows = self.host.limits.page_rows;
                let in_pages = op.action.may_answer_in_pages()
                    && found.table.is_some_and(|table| table.is_paged(rows));
                if let (Some(member), Some(_)) = (call.source.peer(), found.entry)
                    && footprint.answers_value
                    && !in_pages
                    && !self.host.peers.may_owe(member, found.bytes())
                {
                    // The call was not executed, so it may be sent again.
                    return Step::Refused(Failure::Overloaded);
                }
                if footprint.uses {
                    let marks = self.host.bounds.used(op.map, order, footprint.writes)
                        || eviction == Eviction::Lru;
                    found
                        .entry
                        .filter(|_| marks)
                        .into_iter()
                        .for_each(Entry::mark);
                }
                if in_pages {
                    let read_at = held.log.read_at(found.entry);
                    return match self.begin_walk(held, (op.map, &op.key), clock) {
                        Some(page) => {
                            self.host.stats.count_lookup(true);
                            Step::Done(page, read_at, false)
                        }
                        None => Step::Refused(Failure::Overloaded),
                    };
                }
                let budget = self.budgets.begin();
                let cx = RunContext {
                    clock,
                    unix_ms: self.host.unix_ms(),
                    default_ttl_ms,
                    value_bytes_max: self.host.limits.value_bytes_max,
                    packed_bytes_max: self.host.limits.packed_bytes_max,
                    level: self.host.tables.level(),
                    versions_from: held.versions_from,
                    next_write: held.next_write(),
                    waiting: match id {
                        Some(_) => self.host.waiting.waiting(held.at, op.map, &op.key),
                        None => 0,
                    },
                    budget: &budget,
                };
                let (outcome, change) = match self.host.bounds.idle_ms(op.map) {
                    None => action::apply(&op.action, found, &cx),
                    Some(idle_ms) => {
                        let notes = open && self.host.used && !still && !few;
                        idle::apply(&op.action, found, &cx, (idle_ms, notes))
                    }
                };
                self.host.worked += self.budgets.book(self.host.now, &budget);
                if budget.is_spent() {
                    return Step::Refused(Failure::TooMuchWork);
                }
                // A read must not answer what may still be undone, nor that a key is gone if its
                // deletion may be undone.
                let read_at = held.log.read_at(found.entry);
                let (written, known) = (change.written(), found.key.cloned());
                if let Some((bytes, _)) = written {
                    if let Some(peer) = held.crowded_copy(&self.host, op.key.len() + bytes) {
                        slot.wait_for_room(&mut self.host, peer);
                        return Step::Park;
                    }
                    self.host.worked += bytes;
                }
                if footprint.looks_up {
                    self.host.stats.count_lookup(found.entry.is_some());
                }
                if let Some((bytes, count)) = written {
                    // A table grows, whatever it had before.
                    let had = found.entry.filter(|entry| !entry.is_table());
                    let bytes = op.key.len() + bytes + (count - 1) * ENTRY_OVERHEAD;
                    let grows = had.is_none_or(|e| e.len() < bytes);
                    if found.entry.is_none() && self.host.bounds.refuses(op.map) {
                        return Step::Refused(Failure::MapFull);
                    }
                    let room = held.room(&self.host, bytes);
                    if room < Room::Plenty && (grows || room == Room::None) {
                        match held.make_room(
                            &mut self.host,
                            eviction,
                            (op.map, &op.key),
                            bytes,
                            room,
                        ) {
                            Made::Room => {}
                            Made::Soon => return self.wait_or_refuse(call),
                            Made::No(failure) => return Step::Refused(failure),
                        }
                    }
                }
                if change == Change::None {
                    return Step::Done(outcome, read_at, false);
                }
                let teaches = held
                    .lead()
                    .is_some_and(crate::role::replication::Primary::teaches);
                let at = held.log.last() + 1;
                let entry = held.store.entry(op.map, order, &op.key);
                let whole = change.whole_of_fields(op.map, &op.key, teaches);
                let effect = change.into_effect(op.map, &op.key, (entry, known, at, teaches));
                let Some(effect) = effect else {
                    return Step::Done(outcome, read_at, false);
                };
                if !call.work.is_write() {
                    // A read noted that its key is used, which need not be committed.
                    held.log(
                        &mut self.host,
                        order,
                        effect,
                        (None, By::UNKNOWN),
                        Outcome::Ok,
                    );
                    return Step::Done(outcome, read_at, false);
                }
                let op_by = (id, op.action.by());
                let seq = match whole {
                    Some(whole) => held.log_fields(
                        &mut self.host,
                        order,
                        (whole, effect),
                        op_by,
                        outcome.clone(),
                    ),
                    None => held.log(&mut self.host, order, effect, op_by, outcome.clone()),
                };
                Step::Done(outcome, seq, true)
            }
            Work::Key(_) | Work::Transaction(_) | Work::Script(_) => {
                self.run_together(slot, call, id)
            }
            Work::Partition(op) => match &op.action {
                PartitionAction::Count if !held.store.is_whole() => Step::Later,
                PartitionAction::Count => {
                    let count = i64::try_from(held.store.count(op.map)).unwrap_or(i64::MAX);
                    Step::Done(Outcome::Int(count), held.log.last(), false)
                }
                PartitionAction::Scan {
                    cursor,
                    count,
                    kind,
                } => {
                    let clock = held.clock.advance(self.host.data_now());
                    let (before, budget) = (held.bytes(), self.budgets.begin());
                    let page = (*cursor, *count, *kind);
                    let at = (clock, &budget);
                    let (next, keys) = scan::scan(&mut held.store, op.map, page, at);
                    self.host.worked += self.budgets.book(self.host.now, &budget);
                    self.host.memory.recount(before, held.bytes());
                    Step::Done(Outcome::Keys { next, keys }, held.log.last(), false)
                }
                PartitionAction::Find(query) => {
                    let clock = held.clock.advance(self.host.data_now());
                    let (before, budget) = (held.bytes(), self.budgets.begin());
                    let at = (clock, &budget);
                    let (next, keys) = scan::find(&mut held.store, op.map, query, at);
                    self.host.worked += self.budgets.book(self.host.now, &budget);
                    self.host.memory.recount(before, held.bytes());
                    self.swept(call, Outcome::Keys { next, keys }, held.log.last())
                }
                PartitionAction::Sizes => {
                    let keys = sizes::of(&held.store);
                    self.swept(call, Outcome::Keys { next: 0, keys }, held.log.last())
                }
                PartitionAction::Range(query) => {
                    self.host.stats.ranges += 1;
                    let clock = held.clock.advance(self.host.data_now());
                    let (before, budget) = (held.bytes(), self.budgets.begin());
                    let at = (clock, &budget);
                    let (more, keys) = scan::range(&mut held.store, op.map, query, at);
                    self.host.worked += self.budgets.book(self.host.now, &budget);
                    self.host.memory.recount(before, held.bytes());
                    if keys.is_empty() && budget.is_spent() {
                        // Keys that have expired are in the way, and will be deleted soon.
                        return Step::Refused(Failure::Overloaded);
                    }
                    Step::Done(
                        Outcome::Keys {
                            next: u64::from(more),
                            keys,
                        },
                        held.log.last(),
                        false,
                    )
                }
                PartitionAction::Fields { walk, page } => match self.go_on(held, *walk, *page) {
                    Some((page, read_at)) => Step::Done(page, read_at, false),
                    None => Step::Done(Outcome::Nil, 0, false),
                },
                PartitionAction::Clear => {
                    if !held.store.has(op.map) {
                        return Step::Done(Outcome::Ok, held.log.last(), false);
                    }
                    let seq = held.log(
                        &mut self.host,
                        0,
                        Effect::Clear { map: op.map },
                        (id, By::UNKNOWN),
                        Outcome::Ok,
                    );
                    Step::Done(Outcome::Ok, seq, true)
                }
            },
        }
    }

    /// Answers with keys that were found, unless their sender has too much to send already.
    fn swept(&self, call: &Call, found: Outcome, read_at: u64) -> Step {
        match call.source {
            // Nothing was changed, so it may be sent again.
            Source::Peer { member, .. } if !self.host.peers.may_owe(member, found.bytes()) => {
                Step::Refused(Failure::Overloaded)
            }
            _ => Step::Done(found, read_at, false),
        }
    }

    /// Runs an operation on several keys, or says why it is not executed.
    fn run_together(&mut self, slot: &mut Slot, call: &Call, id: Option<OpId>) -> Step {
        let at = slot.at;
        let (default_ttl_ms, policy, still) = (slot.default_ttl_ms, slot.evicts_by(), slot.still);
        let Some(held) = slot.held.as_deref_mut() else {
            return Step::Park;
        };
        let Some(lead) = held.lead() else {
            return Step::Park;
        };
        let (open, teaches) = (lead.open, lead.teaches());
        let budget = self.budgets.begin();
        let cx = RunContext {
            clock: held.clock.advance(self.host.data_now()),
            unix_ms: self.host.unix_ms(),
            default_ttl_ms,
            value_bytes_max: self.host.limits.value_bytes_max,
            packed_bytes_max: self.host.limits.packed_bytes_max,
            level: self.host.tables.level(),
            versions_from: held.versions_from,
            next_write: held.next_write(),
            waiting: 0,
            budget: &budget,
        };
        let hearers = match &call.work {
            Work::Transaction(_) | Work::Script(_) => self.publishing.hearers(&self.host.peers),
            Work::Key(_) | Work::Partition(_) => 0,
        };
        // For so many bytes room was made. Since other keys were evicted for it, the transaction is
        // run again, and then it may write something else.
        let mut made_for = None;
        for _ in 0..ROOM_ATTEMPTS {
            let before = held.bytes();
            let stores = (&mut held.store, &held.log);
            let marks = policy == Eviction::Lru;
            let mut rows = Rows::of(stores, (cx, &mut self.host.bounds), (teaches, marks));
            let tables = &self.host.tables;
            let belongs = |map, key: &[u8]| tables.belongs(at, map, key) == Some(true);
            let (scripts, mut spent) = (&mut self.scripts, Spent::new(hearers));
            let mut run = |script: &ScriptCall, rows: &mut Rows<'_>| {
                scripts.run(script, (rows, &mut spent), &cx, &belongs)
            };
            let ran = match &call.work {
                Work::Transaction(transaction) => rows.run(transaction, run),
                Work::Script(script) => run(script, &mut rows),
                Work::Key(op) => rows.run_one(op),
                Work::Partition(_) => return Step::Park,
            };
            let done = self.budgets.book(self.host.now, &budget);
            self.host.worked = self.host.worked.saturating_add(spent.work().max(done));
            let ran = match ran {
                Ok(ran) => ran,
                Err(failure) => {
                    rows.take_back();
                    self.refusals.add(spent.take_refused());
                    return Step::Refused(failure);
                }
            };
            let may_expire = open && (!still || broken(&mutant::WRITES_WHILE_RESHAPED));
            if rows.expired() > 0 && !may_expire {
                rows.take_back();
                return Step::Park;
            }
            if let Source::Peer { member, .. } = call.source
                && ran.answered > 0
                && !self.host.peers.may_owe(member, ran.answered)
            {
                // It was not executed, so it may be sent again.
                rows.take_back();
                return Step::Refused(Failure::Overloaded);
            }
            let (read_at, expired, lookups) = (rows.read_at(), rows.expired(), rows.lookups());
            let (written, bytes) = (rows.written(), rows.bytes());
            let Some((effect, undo)) = rows.into_record() else {
                self.host.memory.recount(before, held.bytes());
                self.host.stats.count_lookups(lookups);
                self.say(&mut spent);
                return Step::Done(ran.outcome, read_at, false);
            };
            if written.full {
                held.store.undo(&effect, undo);
                self.host.memory.recount(before, held.bytes());
                return Step::Refused(Failure::MapFull);
            }
            let crowded = held.crowded_copy(&self.host, bytes);
            let wanted = written.bytes + written.keys.saturating_sub(1) * ENTRY_OVERHEAD;
            let room = if written.keys > 0 {
                held.room(&self.host, wanted)
            } else {
                Room::Plenty
            };
            let short = room < Room::Plenty
                && (written.grows || room == Room::None)
                && made_for.is_none_or(|bytes| bytes < wanted);
            if crowded.is_some() || short {
                held.store.undo(&effect, undo);
            } else {
                self.host.memory.recount(before, held.bytes());
                self.host.stats.count_lookups(lookups);
                self.host.stats.expired += expired;
                self.host.worked += bytes;
                // An operation that only reads has no number that a retry is known by.
                let write = call.work.is_write();
                let (op, outcome) = if write {
                    (id, ran.outcome.clone())
                } else {
                    (None, Outcome::Ok)
                };
                let by = match &call.work {
                    Work::Key(op) => op.action.by(),
                    _ => By::UNKNOWN,
                };
                let seq = held.record(&mut self.host, (effect, undo), (op, by), outcome);
                self.say(&mut spent);
                return Step::Done(ran.outcome, seq, write);
            }
            self.host.memory.recount(before, held.bytes());
            if let Some(peer) = crowded {
                slot.wait_for_room(&mut self.host, peer);
                return Step::Park;
            }
            let Some((map, key)) = call.work.keys().next() else {
                return Step::Refused(Failure::TooLarge);
            };
            match held.make_room(&mut self.host, policy, (map, key), wanted, room) {
                Made::Room => made_for = Some(wanted),
                Made::Soon => return self.wait_or_refuse(call),
                Made::No(failure) => return Step::Refused(failure),
            }
        }
        self.host.soon(slot.at);
        self.wait_or_refuse(call)
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
    fn wait_or_refuse(&mut self, call: &Call) -> Step {
        if self.host.is_late(call) {
            Step::Refused(Failure::OutOfMemory)
        } else {
            Step::Park
        }
    }
}
