//! The keys of a partition as one operation reads and changes them.
//!
//! A change is applied to the store at once, so that the operation reads what it wrote. All changes
//! become one record of the log, with one effect for each key or field. Until then they can be
//! rolled back:
//! the operation is not executed at all if there is no room for what it wrote.

use super::action;
use super::idle;
use super::scan;
use crate::command::operation::{Action, Operation, OperationBatch, OperationStep, ScriptCall};
use crate::log::partition_log::Log;
use crate::mutant::{self, broken};
use crate::store::change::{KeyChange, RowChange};
use crate::store::map_limits::MapBounds;
use crate::store::run_context::{self, RunContext};
use crate::store::{Before, ENTRY_OVERHEAD, Effect, FoundKey, Key, Store, Undo};
use crate::value::cause::Cause;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;
use doyen_placement::MapId;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

/// What a row of a record costs besides its key, its field and its value.
pub(super) const ROW_OVERHEAD: usize = 64;

/// Which keys an operation may use besides those that it names.
#[derive(Clone, Copy)]
pub(crate) struct KeyScope<'a> {
    /// Whether a key is in its partition.
    pub(crate) belongs: &'a dyn Fn(MapId, &[u8]) -> bool,
    /// Whether all keys of the keyspace are in it.
    pub(crate) is_all: bool,
}

impl fmt::Debug for KeyScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyScope")
            .field("is_all", &self.is_all)
            .finish_non_exhaustive()
    }
}

/// The keys of a partition, with the changes of one operation.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    store: &'a mut Store,
    log: &'a Log,
    cx: RunContext<'a>,
    bounds: &'a mut MapBounds,
    /// Whether a copy may not have all keys yet, so that deadlines are logged with their entries.
    teaches: bool,
    /// The changes in order. `None`: a later one replaced it.
    changes: Vec<Option<(Effect, Undo)>>,
    /// Where the latest change of each key and of each field is.
    places: BTreeMap<Changed, usize>,
    /// Whether it changed the deadline of a table besides its rows.
    redated: bool,
    /// Bytes of the changes.
    bytes: usize,
    /// What was changed before the script that runs.
    mark: RowsMark,
    /// What the operation read is certain once this sequence is committed.
    read_at: u64,
    /// How many keys it found overdue. Their deletion is among the changes.
    expired: u64,
    /// How many keys it looked for and found, and did not find.
    lookups: (u64, u64),
    /// Whether keys that are used are kept from eviction.
    marks: bool,
    scope: KeyScope<'a>,
}

/// The changes up to a moment.
#[derive(Debug, Default)]
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "only scripts take back")
)]
struct RowsMark {
    /// How many changes there were. They are not replaced any more.
    changes: usize,
    bytes: usize,
    expired: u64,
    redated: bool,
    /// Where the latest changes of keys and fields were that have changed since.
    places: Vec<(Changed, usize)>,
}

/// What an effect changes: a key, or a field of it.
type Changed = (MapId, Key, Option<Key>);

/// What an operation did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The answer of its caller.
    pub(crate) outcome: Outcome,
    /// Bytes of the answer.
    pub(crate) answered: usize,
}

/// How much an operation wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowsWeight {
    /// The number of keys and fields.
    pub(crate) keys: usize,
    /// Bytes of them and of their values.
    pub(crate) bytes: usize,
    /// Whether they are larger than what they replaced and what was deleted.
    pub(crate) grows: bool,
    /// Whether any of them was absent, and is in a map that is full.
    pub(crate) full: bool,
}

impl<'a> Rows<'a> {
    pub(crate) fn of(
        (store, log): (&'a mut Store, &'a Log),
        (cx, bounds): (RunContext<'a>, &'a mut MapBounds),
        (teaches, marks): (bool, bool),
        scope: KeyScope<'a>,
    ) -> Self {
        Self {
            store,
            log,
            cx,
            bounds,
            teaches,
            changes: Vec::new(),
            places: BTreeMap::new(),
            redated: false,
            bytes: 0,
            mark: RowsMark::default(),
            read_at: 0,
            expired: 0,
            lookups: (0, 0),
            marks,
            scope,
        }
    }

    /// Runs a transaction. `script` runs a script of it.
    ///
    /// # Errors
    /// What it writes or answers is too large, or it does too much. Roll it back.
    pub(crate) fn run(
        &mut self,
        transaction: &OperationBatch,
        mut script: impl FnMut(&ScriptCall, &mut Self) -> Result<Ran, Failure>,
    ) -> Result<Ran, Failure> {
        let most = self.cx.value_bytes_max;
        // Where it was asked, more may be allowed. One step alone must not fail for its size.
        if transaction.bytes() > most {
            return Err(Failure::TooLarge);
        }
        for watched in &transaction.watched {
            let found = self.find(watched.map, &watched.key);
            let now = match (&found, watched.version) {
                (None, Some(_)) => Some(self.absence(&watched.key)),
                _ => run_context::version(found.as_ref(), &self.cx),
            };
            if now != watched.version && !broken(&mutant::IGNORES_WATCHED) {
                return Ok(Ran {
                    outcome: Outcome::Nil,
                    answered: 0,
                });
            }
        }
        let (mut outcomes, mut answered) = (Vec::with_capacity(transaction.steps.len()), 0);
        for step in &transaction.steps {
            let outcome = match step {
                OperationStep::Key { map, key, action } => self.step(*map, key, action),
                OperationStep::Script(call) => script(call, self)?.outcome,
            };
            answered += outcome.bytes();
            outcomes.push(outcome);
            self.is_within_budget()?;
            if answered > self.cx.value_bytes_max || self.is_too_large() {
                return Err(Failure::TooLarge);
            }
        }
        Ok(Ran {
            outcome: Outcome::Many(outcomes),
            answered,
        })
    }

    /// A number that a key has as long as it does not change, also while it is absent.
    pub(crate) fn watched_version(&mut self, map: MapId, key: &[u8]) -> i64 {
        let found = self.find(map, key);
        let version = run_context::version(found.as_ref(), &self.cx);
        version.unwrap_or_else(|| self.absence(key))
    }

    /// The same of an absent key. It is no version of an entry.
    fn absence(&mut self, key: &[u8]) -> i64 {
        const ABSENT: u64 = 1 << 63;
        let order = self.store.order(key);
        let since = self.store.absent_since(order, self.log.last());
        let version = self.cx.versions_from.wrapping_add(since);
        version.wrapping_add(ABSENT).cast_signed()
    }

    /// Runs one operation on several keys. One that fails has changed nothing.
    ///
    /// # Errors
    /// What it writes is too large, or it does too much. Roll it back.
    pub(crate) fn run_one(&mut self, operation: &Operation) -> Result<Ran, Failure> {
        let outcome = self.step(operation.map, &operation.key, &operation.action);
        self.is_within_budget()?;
        // What is moved was not too large where it was, and a frame has room for two keys more.
        let given = operation.action.footprint().given.bytes;
        if given > 0 && self.is_too_large() {
            return Err(Failure::TooLarge);
        }
        Ok(Ran {
            answered: outcome.bytes(),
            outcome,
        })
    }

    /// Whether it may go on. If not, what it read is not all that there is.
    ///
    /// # Errors
    /// It has done too much. Roll it back.
    pub(crate) const fn is_within_budget(&self) -> Result<(), Failure> {
        if self.cx.budget.is_spent() {
            Err(Failure::TooMuchWork)
        } else {
            Ok(())
        }
    }

    /// Executes one operation on a key, or on several.
    pub(crate) fn step(&mut self, map: MapId, key: &[u8], action: &Action) -> Outcome {
        let outcome = self.step_within(map, key, action);
        self.cx.budget.copy(outcome.bytes());
        let failed = self.is_within_budget().map_err(Outcome::Failed);
        failed.map_or_else(|failed| failed, |()| outcome)
    }

    fn step_within(&mut self, map: MapId, key: &[u8], action: &Action) -> Outcome {
        if !self.cx.budget.element() {
            return Outcome::Failed(Failure::TooMuchWork);
        }
        if let Action::Call(call) = action
            && let Some(outcome) = call.run_joint((map, key), self)
        {
            return outcome;
        }
        let found = self.find(map, key);
        let footprint = action.footprint();
        if footprint.looks_up {
            let (hits, misses) = &mut self.lookups;
            *(if found.is_some() { hits } else { misses }) += 1;
        }
        let order = self.store.order(key);
        if footprint.uses {
            let marks = self.bounds.used(map, order, footprint.writes) || self.marks;
            found
                .as_ref()
                .filter(|_| marks)
                .into_iter()
                .for_each(Entry::mark);
        }
        let held = self.store.shown(map, order, key);
        let held = found.as_ref().map_or(FoundKey::default(), |_| held);
        let (outcome, change) = match self.bounds.idle_ms(map) {
            None => action::apply(action, held, &self.cx),
            // A version that was read before must hold, so no use is noted here.
            Some(idle_ms) => idle::apply(action, held, &self.cx, (idle_ms, false)),
        };
        self.change((map, key), found.as_ref(), change);
        outcome
    }

    /// The largest value, and the most bytes of one record.
    pub(crate) const fn value_bytes_max(&self) -> usize {
        self.cx.value_bytes_max
    }

    /// Whether its changes are too large for one record.
    pub(crate) const fn is_too_large(&self) -> bool {
        self.bytes > self.cx.value_bytes_max
    }

    /// Takes all changes back. What was read stays read.
    pub(crate) fn take_back(&mut self) {
        for (effect, undo) in std::mem::take(&mut self.changes)
            .into_iter()
            .rev()
            .flatten()
        {
            self.store.undo(&effect, undo);
        }
        self.places.clear();
        (self.bytes, self.expired) = (0, 0);
        self.mark = RowsMark::default();
    }

    /// Changes from now on can be taken back without those before.
    #[cfg_attr(
        not(feature = "scripts"),
        allow(dead_code, reason = "only scripts take back")
    )]
    pub(crate) fn set_mark(&mut self) {
        self.mark = RowsMark {
            changes: self.changes.len(),
            bytes: self.bytes,
            expired: self.expired,
            redated: self.redated,
            places: Vec::new(),
        };
    }

    /// Takes the changes back that were made since the mark was set.
    #[cfg_attr(
        not(feature = "scripts"),
        allow(dead_code, reason = "only scripts take back")
    )]
    pub(crate) fn take_back_to_mark(&mut self) {
        let mark = std::mem::take(&mut self.mark);
        for (effect, undo) in self.changes.drain(mark.changes..).rev().flatten() {
            self.store.undo(&effect, undo);
        }
        self.places.retain(|_, at| *at < mark.changes);
        // The earliest of each counts.
        self.places.extend(mark.places.into_iter().rev());
        (self.bytes, self.expired) = (mark.bytes, mark.expired);
        self.redated = mark.redated;
    }

    /// Gives a key what another one holds, which has this entry, and its deadline.
    ///
    /// # Errors
    /// It is too large for one record. Nothing was changed.
    pub(crate) fn copy(
        &mut self,
        (from, key, entry): (MapId, &[u8], &Entry),
        to: (MapId, &[u8]),
    ) -> Result<(), Failure> {
        let deadline = entry.deadline();
        let found = self.store.found(from, self.store.order(key), key);
        let change = match found.table {
            Some(_) if !fits(found, key.len().max(to.1.len()), self.cx.value_bytes_max) => {
                return Err(Failure::TooLarge);
            }
            Some(table) => KeyChange::Table {
                kind: entry.kind(),
                rows: table
                    .rows()
                    .take_while(|row| self.cx.budget.element_of(row.len()))
                    .map(Entry::copy)
                    .collect(),
                deadline,
            },
            None => {
                self.cx.budget.copy(entry.len());
                let value = Bytes::copy_from_slice(entry.value());
                KeyChange::of_value(entry.kind(), value, deadline)
            }
        };
        self.replace(to, change);
        Ok(())
    }

    /// Gives a key this, whatever it holds.
    pub(crate) fn replace(&mut self, key: (MapId, &[u8]), change: KeyChange) {
        // A table takes the place of another one only once that is gone.
        self.change(key, None, KeyChange::Delete);
        self.change(key, None, change);
    }

    /// Gives a key an unfinished table with these rows. Returns its birth.
    pub(crate) fn begin_table(
        &mut self,
        (map, key): (MapId, &[u8]),
        (kind, deadline): (Kind, u64),
        rows: impl Iterator<Item = Entry>,
    ) -> u64 {
        self.change((map, key), None, KeyChange::Delete);
        let born = self.log.last() + 1;
        self.add_to_table((map, key), (kind, born), (false, deadline), rows);
        born
    }

    /// Adds rows to the table of this kind and birth, and says whether it is finished then.
    pub(crate) fn add_to_table(
        &mut self,
        (map, key): (MapId, &[u8]),
        (kind, born): (Kind, u64),
        (ends, deadline): (bool, u64),
        rows: impl Iterator<Item = Entry>,
    ) {
        let (seq, key) = (self.log.last() + 1, Key::from(key));
        let table = if ends {
            Entry::of_table(kind, &key, born)
        } else {
            Entry::of_unfinished(kind, &key, born)
        };
        // First: subscribers get a table before its rows.
        let table = Effect::Put {
            map,
            entry: table,
            deadline,
            before: Before::Value,
        };
        self.apply(seq, table);
        for row in rows {
            let key = key.clone();
            let row = Effect::Row {
                map,
                key,
                kind,
                row,
            };
            self.apply(seq, row);
        }
    }

    /// What a key holds, as commands see it: nothing if it is overdue or unfinished.
    pub(crate) fn seen(&mut self, map: MapId, key: &[u8]) -> FoundKey<'_> {
        match self.find(map, key) {
            Some(_) => self.held(map, key),
            None => FoundKey::default(),
        }
    }

    /// What a key holds, once [`Rows::find`] has looked for it. Its table may be unfinished.
    pub(crate) fn held(&self, map: MapId, key: &[u8]) -> FoundKey<'_> {
        self.store.found(map, self.store.order(key), key)
    }

    /// Which keys it may use besides those that the operation names.
    pub(crate) const fn scope(&self) -> KeyScope<'a> {
        self.scope
    }

    /// The moment, and the limits.
    pub(crate) const fn cx(&self) -> &RunContext<'a> {
        &self.cx
    }

    /// About `count` keys of a map from a cursor on, those of them that hold this kind, and where
    /// to continue ([`scan::scan`]).
    #[cfg_attr(
        not(feature = "scripts"),
        allow(dead_code, reason = "only scripts scan among other steps")
    )]
    pub(crate) fn scan(&mut self, map: MapId, page: (u64, u32, Option<Kind>)) -> (u64, Vec<Bytes>) {
        // Any key may have been written by the latest record.
        self.read_at = self.log.last();
        scan::scan(self.store, map, page, (self.cx.clock, self.cx.budget))
    }

    /// The entry of a key. An overdue one is deleted.
    pub(crate) fn find(&mut self, map: MapId, key: &[u8]) -> Option<Entry> {
        self.cx.budget.element();
        let order = self.store.order(key);
        if !self.store.is_whole() {
            self.store.migrate(map, order, key);
        }
        let held = self.store.shown(map, order, key);
        let found = held.entry;
        // Its own changes need no waiting, and may be taken back.
        let read_at = self.log.read_at(found).min(self.log.last());
        self.read_at = self.read_at.max(read_at);
        let found = found?.clone();
        let purged = self.store.purged(held, self.cx.clock);
        if found.overdue(self.cx.clock) {
            self.expired += 1;
            let gone = Effect::Delete {
                map,
                key: Key::from(key),
                cause: Cause::Expired,
            };
            self.apply(self.log.last() + 1, gone);
            return None;
        }
        if let Some((change, count)) = purged {
            self.expired += count;
            let gone = change == KeyChange::Delete;
            self.change((map, key), Some(&found), change);
            // One value is another one now.
            let left = || self.store.entry(map, order, key).cloned();
            return if gone { None } else { left() };
        }
        Some(found)
    }

    /// Changes a key, which has this entry.
    fn change(&mut self, (map, key): (MapId, &[u8]), found: Option<&Entry>, mut change: KeyChange) {
        let seq = self.log.last() + 1;
        match &mut change {
            // A later change of the operation may replace this one, and then needs all of it.
            KeyChange::Packed { fields, .. } => fields.clear(),
            KeyChange::Rows { rows, .. } => self.cut_own_rows((map, key), seq, rows),
            _ => {}
        }
        match change.into_effect(map, key, (found, None, seq, self.teaches)) {
            None => {}
            Some(Effect::Many(parts)) => parts.into_iter().for_each(|part| self.apply(seq, part)),
            Some(effect) => self.apply(seq, effect),
        }
    }

    /// A cut hides rows of earlier operations only: those that this operation has put into its range
    /// are deleted one by one.
    fn cut_own_rows(&self, (map, key): (MapId, &[u8]), seq: u64, rows: &mut Vec<RowChange>) {
        let mut own = Vec::new();
        for row in rows.iter() {
            let RowChange::Cut(span) = row else { continue };
            let Some(table) = self.held(map, key).table else {
                continue;
            };
            let of_key = self.places.range((map, Key::from(key), None)..);
            let of_key = of_key.take_while(|((of, at, _), _)| *of == map && **at == *key);
            let put = of_key.filter_map(|((_, _, field), _)| table.row(field.as_deref()?));
            let put = put.filter(|row| row.version() >= seq && table.spans(span, row));
            own.extend(put.map(|row| RowChange::Delete(Bytes::copy_from_slice(row.key()))));
        }
        rows.extend(own);
    }

    /// Applies an effect on a key or a field. It replaces former ones that it makes void. Once the
    /// operation has done too much, nothing is applied, because all of it will be taken back.
    fn apply(&mut self, seq: u64, mut effect: Effect) {
        if !self.cx.budget.change(effect.bytes()) {
            return;
        }
        let Some((map, key)) = effect.place().map(|(map, key)| (map, Key::from(key))) else {
            return;
        };
        let field = effect.field().map(Key::from);
        let own = (map, key.clone(), field.clone());
        let former = self.places.get(&own).copied();
        let is_of_table = |effect: &Effect| match effect {
            Effect::Put { entry, .. } => entry.is_table(),
            Effect::RowsCut { .. } => true,
            _ => false,
        };
        if let Effect::RowsCut { .. } = effect {
            self.redated = true;
            return self.push(seq, own, effect, None);
        }
        if field.is_none() {
            let redates = match &effect {
                Effect::Deadline { .. } => true,
                Effect::Put { entry, .. } => {
                    let now = self.store.entry(map, self.store.order(&key), &key);
                    entry.is_table()
                        && now.is_some_and(|now| now.is_table() && now.born() == entry.born())
                }
                _ => false,
            };
            let made = former.and_then(|at| self.changes[at].as_ref());
            let made = made.map(|(effect, _)| effect);
            match made {
                // The rows that follow a table stay, and it with them.
                _ if redates && (made.is_some_and(is_of_table) || self.has_rows(map, &key)) => {
                    self.redated = true;
                    return self.push(seq, own, effect, None);
                }
                Some(Effect::Put { entry, .. }) => {
                    if let Effect::Deadline { deadline, .. } = effect {
                        effect = Effect::Put {
                            map,
                            entry: entry.copy(),
                            deadline,
                            before: Before::Value,
                        };
                    }
                }
                _ => {}
            }
            if self.redated || self.has_rows(map, &key) {
                self.take_back_key(map, &key);
            }
        }
        let former = former.filter(|at| *at >= self.mark.changes);
        if let Some(at) = former {
            self.take_back_one(at);
        }
        self.push(seq, own, effect, former);
    }

    /// Applies an effect, in the place of one that was taken back.
    fn push(&mut self, seq: u64, place: Changed, effect: Effect, former: Option<usize>) {
        self.bytes += effect.bytes();
        let undo = self.store.apply(seq, &effect);
        let at = former.unwrap_or_else(|| {
            self.changes.push(None);
            self.changes.len() - 1
        });
        self.changes[at] = Some((effect, undo));
        if let Some(was) = self.places.insert(place.clone(), at) {
            self.note(place, was);
        }
    }

    /// The latest change of this was there. If that was before the mark, it may be again.
    fn note(&mut self, place: Changed, was: usize) {
        if was < self.mark.changes {
            self.mark.places.push((place, was));
        }
    }

    /// Whether it changed rows of this key.
    fn has_rows(&self, map: MapId, key: &Key) -> bool {
        let behind = (Bound::Excluded((map, key.clone(), None)), Bound::Unbounded);
        let next = self.places.range(behind).next();
        next.is_some_and(|((of, at, _), _)| (of, at) == (&map, key))
    }

    /// Takes all changes of a key and its rows back.
    fn take_back_key(&mut self, map: MapId, key: &Key) {
        let is_own = |(of, at, _): &Changed| (of, at) == (&map, key);
        let own = self.places.range((map, key.clone(), None)..);
        let own: Vec<_> = own
            .map(|(place, _)| place)
            .take_while(|place| is_own(place))
            .cloned()
            .collect();
        for place in own {
            if let Some(was) = self.places.remove(&place) {
                self.note(place, was);
            }
        }
        self.cx.budget.copy(self.changes.len());
        // A table may have been dated more than once. What was changed before the mark stays.
        for at in (self.mark.changes..self.changes.len()).rev() {
            let of_key = self.changes[at]
                .as_ref()
                .and_then(|(effect, _)| effect.place())
                .is_some_and(|(of, at)| of == map && at == &**key);
            if of_key {
                self.take_back_one(at);
            }
        }
    }

    /// Takes one change back.
    fn take_back_one(&mut self, at: usize) {
        if let Some((effect, undo)) = self.changes[at].take() {
            self.bytes -= effect.bytes();
            self.store.undo(&effect, undo);
        }
    }

    /// Bytes of the keys and values that it wrote.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How much it wrote.
    pub(crate) fn written(&self) -> RowsWeight {
        let mut written = RowsWeight::default();
        let (mut grown, mut freed) = (0, 0);
        for (effect, undo) in self.changes.iter().flatten() {
            freed += match undo {
                Undo::Was(old) | Undo::Row(Some(old), _) => old.len() + ENTRY_OVERHEAD,
                Undo::Table(old) => old.bytes() + ENTRY_OVERHEAD,
                _ => 0,
            };
            let bytes = match effect {
                Effect::Put { entry, .. } => entry.len(),
                Effect::Row { row, .. } => row.len(),
                _ => continue,
            };
            grown += bytes + ENTRY_OVERHEAD;
            written.keys += 1;
            written.bytes += bytes;
            if let (Undo::Absent, Some((map, _))) = (undo, effect.place()) {
                written.full |= self.bounds.refuses(map);
            }
        }
        written.grows = grown > freed;
        written
    }

    /// What it read is certain once this sequence is committed.
    pub(crate) const fn read_at(&self) -> u64 {
        self.read_at
    }

    /// How many keys it found overdue.
    pub(crate) const fn expired(&self) -> u64 {
        self.expired
    }

    /// How many keys it looked for and found, and did not find.
    pub(crate) const fn lookups(&self) -> (u64, u64) {
        self.lookups
    }

    /// The changes as one effect, and what they replaced. `None` if nothing changed.
    pub(crate) fn into_record(mut self) -> Option<(Effect, Undo)> {
        // A key that was set and deleted, and that there was none of before, is as it was.
        let changes = |change: &Option<(Effect, Undo)>| {
            let nothing = |(effect, undo): &(Effect, Undo)| {
                matches!((effect, undo), (Effect::Delete { .. }, Undo::Nothing))
            };
            change.as_ref().is_some_and(|change| !nothing(change))
        };
        self.changes.retain(changes);
        if self.changes.len() < 2 {
            return self.changes.pop().flatten();
        }
        let (effects, undos): (Vec<_>, Vec<_>) = self.changes.into_iter().flatten().unzip();
        Some((Effect::Many(effects.into()), Undo::Many(undos.into())))
    }
}

/// Whether a table may be stored by one record of `most` bytes whose key has `key_bytes`.
pub(super) fn fits(found: FoundKey<'_>, key_bytes: usize, most: usize) -> bool {
    found.table.is_none_or(|table| {
        let each = table.len().saturating_mul(key_bytes + ROW_OVERHEAD);
        table.content_bytes().saturating_add(each) <= most
    })
}
