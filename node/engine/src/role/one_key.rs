//! An operation on one key, at the primary of its partition. There is one way to execute it, in
//! three steps:
//!
//! ```text
//!   plan ──> has_room ──> commit        what it answers and changes; room for what it writes;
//!                                       the change goes into the store and the log
//! ```
//! Most writes find nothing in their way, and take all steps as they arrive
//! ([`Slot::write_at_once`]). Any other operation becomes a call, which takes the same steps when
//! it may, and between them waits or makes room (`Context::step`).

use crate::command::action;
use crate::command::idle;
use crate::command::operation::{Action, Footprint, Operation, stores};
use crate::log::dedup::{Known, OpId};
use crate::mutant::{self, broken};
use crate::role::calls::Execution;
use crate::role::host::Host;
use crate::role::partition::{Held, Slot};
use crate::role::replication::Primary;
use crate::role::room::Room;
use crate::store::budget::{Budget, Budgets};
use crate::store::change::KeyChange;
use crate::store::run_context::{self, RunContext};
use crate::store::{ENTRY_OVERHEAD, Key};
use crate::value::cause::By;
use crate::value::entry::Entry;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::ShardRequest;
use doyen_placement::{Eviction, MapId, MemberId};

/// The most rows of a table that one operation changes. Finding them may be quick, but applying and
/// sending this many takes half a second.
const ROWS_MAX: usize = 200_000;

/// An operation on one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneKey<'a> {
    pub(crate) map: MapId,
    pub(crate) key: &'a [u8],
    act: KeyAct<'a>,
    footprint: Footprint,
    /// Its name in logs. `None`: its caller waits at this node, and it is its turn.
    id: Option<OpId>,
    /// The peer that asks for it.
    peer: Option<MemberId>,
}

/// What is done to the key.
#[derive(Debug, Clone, Copy)]
enum KeyAct<'a> {
    Action(&'a Action),
    /// It gets this entry without conditions. The commonest write copies its key and value into the
    /// entry, and nowhere else.
    Put(&'a Entry),
}

impl<'a> OneKey<'a> {
    /// An operation under this name.
    pub(crate) fn of(operation: &'a Operation, id: Option<OpId>, peer: Option<MemberId>) -> Self {
        Self {
            map: operation.map,
            key: &operation.key,
            footprint: operation.action.footprint(),
            act: KeyAct::Action(&operation.action),
            id,
            peer,
        }
    }

    /// A write of an entry without conditions.
    pub(crate) fn put(map: MapId, entry: &'a Entry, id: OpId, peer: Option<MemberId>) -> Self {
        Self {
            map,
            key: entry.key(),
            act: KeyAct::Put(entry),
            footprint: stores(entry.value()),
            id: Some(id),
            peer,
        }
    }

    /// What messages to subscribers say of it.
    const fn by(&self) -> By {
        match self.act {
            KeyAct::Action(action) => action.by(),
            KeyAct::Put(_) => By::SET,
        }
    }
}

/// What an operation on one key will answer and change.
#[derive(Debug)]
pub(crate) struct KeyPlan {
    outcome: Outcome,
    change: KeyChange,
    /// The order of the key.
    order: u64,
    /// What must be committed before a part of the key is answered.
    read_at: u64,
    /// Whether the key was there.
    hit: bool,
    /// The key, if it is known apart from its entry.
    known: Option<Key>,
    /// What is written, unless it only deletes or changes a deadline.
    writes: Option<KeyWrites>,
}

#[derive(Debug, Clone, Copy)]
struct KeyWrites {
    /// Bytes of the key and of all that is written.
    bytes: usize,
    /// Whether the key then takes more than before.
    grows: bool,
    /// Whether the key is a new one.
    is_new: bool,
}

impl KeyWrites {
    /// What a change of a key that has this entry writes, unless it only deletes or changes a
    /// deadline.
    fn of(key: &[u8], entry: Option<&Entry>, change: &KeyChange) -> Option<Self> {
        let (bytes, count) = change.written()?;
        let bytes = key.len() + bytes + (count - 1) * ENTRY_OVERHEAD;
        // A table grows, whatever it had before.
        let had = entry.filter(|entry| !entry.is_table());
        Some(Self {
            bytes,
            grows: had.is_none_or(|entry| entry.len() < bytes),
            is_new: entry.is_none(),
        })
    }
}

/// Why an operation is not executed now.
#[derive(Debug)]
pub(crate) enum Barred {
    /// Something must happen first.
    Waits,
    /// This copy takes its bytes slower than they come.
    Crowded(MemberId),
    /// There is only this room for this many bytes.
    Short(Room, usize),
    /// It is refused.
    Refused(Failure),
    /// The collection is read in pages, as of this time of the partition's clock. Its first page
    /// may be answered once this sequence is committed.
    Paged(u64, u64),
}

/// What the state of a partition means for operations on its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyTerms {
    default_ttl_ms: Option<u64>,
    /// Uses of keys are marked.
    pub(crate) marks: bool,
    /// What is overdue may be deleted.
    pub(crate) purges: bool,
    /// Uses of keys may be logged.
    notes: bool,
}

impl Slot {
    /// Whether this node executes operations here: it is the primary by both tables (rule 5), and
    /// writes go on.
    pub(crate) fn takes(&self, writes: bool) -> bool {
        self.serving() && !(writes && self.is_frozen())
    }

    /// Whether it must not change, because it is being split or merged.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen && !broken(&mutant::WRITES_WHILE_RESHAPED)
    }

    /// What is in the way of an operation on these maps, besides its own key.
    pub(crate) fn obstacle(
        &self,
        host: &mut Host,
        writes: bool,
        maps: impl Iterator<Item = MapId>,
    ) -> Option<Barred> {
        let mut dropped = false;
        for map in maps {
            // The table that names this map comes in a moment, with its limits.
            if host.bounds.is_unknown(map) {
                return Some(Barred::Waits);
            }
            dropped |= host.bounds.any_dropped() && host.bounds.is_dropped(map);
        }
        if dropped {
            return Some(Barred::Refused(Failure::Dropped));
        }
        if writes && self.has_too_few_copies() {
            return Some(Barred::Refused(Failure::TooFewCopies));
        }
        if writes && !host.used {
            if !std::mem::replace(&mut host.asked_used, true) {
                host.outbox.push(ShardRequest::Used);
            }
            return Some(Barred::Waits);
        }
        None
    }

    /// What its state means for operations on its keys.
    pub(crate) fn key_terms(&self, host: &Host) -> KeyTerms {
        let open = self.is_open();
        KeyTerms {
            default_ttl_ms: self.default_ttl_ms,
            marks: self.evicts_by() == Eviction::Lru,
            purges: open && !self.is_frozen(),
            notes: open && host.used && !self.frozen && !self.has_too_few_copies(),
        }
    }

    /// Executes a write that is asked for the first time, if nothing is in its way. `None`: nothing
    /// was written, and it must become a call.
    pub(crate) fn write_at_once(
        &mut self,
        host: &mut Host,
        budgets: &mut Budgets,
        write: &OneKey<'_>,
    ) -> Option<Execution> {
        let maps = std::iter::once(write.map);
        if !self.calls.parked.is_empty()
            || budgets.are_busy(host.now)
            || !self.takes(true)
            || self.obstacle(host, true, maps).is_some()
        {
            return None;
        }
        let terms = self.key_terms(host);
        let held = self.held.as_deref_mut()?;
        let new = write
            .id
            .is_some_and(|id| held.dedup.known(id) == Known::New)
            || broken(&mutant::APPLIES_TWICE);
        if !new || !held.answers(true) {
            return None;
        }
        let budget = budgets.begin();
        let plan = held.plan(host, (terms, &budget), write);
        host.worked += budgets.book(host.now, &budget);
        let plan = match plan {
            Ok(plan) => plan,
            // As a call, it would do the same work once more.
            Err(Barred::Refused(failure @ Failure::TooMuchWork)) => {
                return Some(Execution::unlogged(Outcome::Failed(failure), 0));
            }
            Err(_) => return None,
        };
        held.has_room(host, write.map, &plan).ok()?;
        let done = held.commit(host, write, plan);
        let stores = write.footprint.stores;
        held.count_write((write.map, write.key), stores, &done.outcome);
        Some(done)
    }
}

impl Held {
    /// Whether operations are answered here yet. After a reset the partition is empty, while the
    /// old primary may still serve the former contents: nothing is answered before its lease is
    /// over. If the log has entries, this member was a copy, and the old primary acknowledges
    /// nothing without it. So reads may be answered.
    pub(crate) fn answers(&self, writes: bool) -> bool {
        self.lead()
            .is_some_and(|lead| lead.open || !writes && self.log.last() != 0)
    }

    /// Finds out what an operation answers and changes, within a budget. Only what is overdue of
    /// its key may be deleted by this.
    ///
    /// # Errors
    /// It is not executed now.
    pub(crate) fn plan(
        &mut self,
        host: &mut Host,
        (terms, budget): (KeyTerms, &Budget),
        op: &OneKey<'_>,
    ) -> Result<KeyPlan, Barred> {
        let OneKey {
            map,
            key,
            footprint,
            ..
        } = *op;
        let order = self.store.order(key);
        let clock = self.clock.advance(host.data_now());
        let action = match op.act {
            KeyAct::Action(action) => action,
            KeyAct::Put(entry) => return plan_put(host, terms, (map, entry), (order, clock)),
        };
        self.migrate(host, map, order, key);
        let mut found = self.store.shown(map, order, key);
        if found.is_overdue(clock) {
            // The next primary's clock may be a little behind: what was seen to be expired must be
            // deleted in the log. And a partition that is about to be split or merged must not
            // change.
            if !terms.purges {
                return Err(Barred::Waits);
            }
            self.purge(host, (map, order, key), clock);
            found = self.store.shown(map, order, key);
        }
        let rows = host.limits.page_rows;
        let in_pages =
            action.may_answer_in_pages() && found.table.is_some_and(|table| table.is_paged(rows));
        if let (Some(member), Some(_)) = (op.peer, found.entry)
            && footprint.answers_value
            && !in_pages
            && !host.peers.may_owe(member, found.bytes())
        {
            // The call was not executed, so it may be sent again.
            return Err(Barred::Refused(Failure::Overloaded));
        }
        if footprint.uses {
            let marks = host.bounds.used(map, order, footprint.writes) || terms.marks;
            found
                .entry
                .filter(|_| marks)
                .into_iter()
                .for_each(Entry::mark);
        }
        // A read must not answer what may still be undone, nor that a key is gone if its deletion
        // may be undone.
        let read_at = self.log.read_at(found.entry);
        if in_pages {
            return Err(Barred::Paged(clock, read_at));
        }
        let waiting = match op.id {
            Some(_) => host.waiting.waiting(self.at, map, key),
            None => 0,
        };
        let cx = self.run_context(host, (terms, budget), (clock, waiting));
        let (outcome, change) = match host.bounds.idle_ms(map) {
            None => action::apply(action, found, &cx),
            Some(idle_ms) => idle::apply(action, found, &cx, (idle_ms, terms.notes)),
        };
        if budget.is_spent() || change.rows() > ROWS_MAX {
            return Err(Barred::Refused(Failure::TooMuchWork));
        }
        let writes = KeyWrites::of(key, found.entry, &change);
        Ok(KeyPlan {
            outcome,
            change,
            order,
            read_at,
            hit: found.entry.is_some(),
            known: found.key.cloned(),
            writes,
        })
    }

    /// What an action may use besides its key, at this time of the partition's clock, while
    /// `waiting` callers wait for the key.
    pub(crate) fn run_context<'b>(
        &self,
        host: &Host,
        (terms, budget): (KeyTerms, &'b Budget),
        (clock, waiting): (u64, usize),
    ) -> RunContext<'b> {
        RunContext {
            clock,
            unix_ms: host.unix_ms(),
            default_ttl_ms: terms.default_ttl_ms,
            value_bytes_max: host.limits.value_bytes_max,
            packed_bytes_max: host.limits.packed_bytes_max,
            packed_small_bytes_max: host.limits.packed_small_bytes_max,
            level: host.tables.level(),
            versions_from: self.versions_from,
            next_write: self.next_write(),
            waiting,
            budget,
        }
    }

    /// Whether there is room for what is planned.
    ///
    /// # Errors
    /// There is not.
    pub(crate) fn has_room(&self, host: &Host, map: MapId, plan: &KeyPlan) -> Result<(), Barred> {
        let Some(KeyWrites {
            bytes,
            grows,
            is_new,
        }) = plan.writes
        else {
            return Ok(());
        };
        if let Some(peer) = self.crowded_copy(host, bytes) {
            return Err(Barred::Crowded(peer));
        }
        if is_new && host.bounds.refuses(map) {
            return Err(Barred::Refused(Failure::MapFull));
        }
        match self.room(host, bytes) {
            room if room < Room::Plenty && (grows || room == Room::None) => {
                Err(Barred::Short(room, bytes))
            }
            _ => Ok(()),
        }
    }

    /// Does what is planned.
    pub(crate) fn commit(&mut self, host: &mut Host, op: &OneKey<'_>, plan: KeyPlan) -> Execution {
        let KeyPlan {
            outcome,
            change,
            order,
            read_at,
            hit,
            known,
            writes,
        } = plan;
        let OneKey { map, key, .. } = *op;
        if op.footprint.looks_up {
            host.stats.lookups.count(self.at.keyspace, hit);
        }
        host.worked += writes.map_or(0, |writes| writes.bytes);
        let teaches = self.lead().is_some_and(Primary::teaches);
        let whole = change.whole_of_fields(map, key, teaches);
        let entry = if teaches {
            self.store.entry(map, order, key)
        } else {
            None
        };
        let at = self.log.last() + 1;
        let Some(effect) = change.into_effect(map, key, (entry, known, at, teaches)) else {
            return Execution::unlogged(outcome, read_at);
        };
        if !op.footprint.writes {
            // A read noted that its key is used, which need not be committed.
            self.log(host, order, effect, (None, By::UNKNOWN), Outcome::Ok);
            return Execution::unlogged(outcome, read_at);
        }
        let op_by = (op.id, op.by());
        let seq = match whole {
            Some(whole) => self.log_fields(host, order, (whole, effect), op_by, outcome.clone()),
            None => self.log(host, order, effect, op_by, outcome.clone()),
        };
        Execution::logged(outcome, seq)
    }
}

/// A write without conditions needs no look at its key, unless its map is a special one.
fn plan_put(
    host: &Host,
    terms: KeyTerms,
    (map, entry): (MapId, &Entry),
    (order, clock): (u64, u64),
) -> Result<KeyPlan, Barred> {
    if host.bounds.is_special(map) || entry.value().len() > host.limits.value_bytes_max {
        return Err(Barred::Waits);
    }
    let deadline = run_context::fresh(terms.default_ttl_ms, || (clock, host.unix_ms()));
    Ok(KeyPlan {
        outcome: Outcome::Ok,
        change: KeyChange::Entry {
            entry: entry.clone(),
            deadline,
        },
        order,
        read_at: 0,
        hit: false,
        known: None,
        writes: Some(KeyWrites {
            bytes: entry.len(),
            grows: true,
            is_new: false,
        }),
    })
}
