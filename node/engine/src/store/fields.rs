//! Collections whose fields are rows of their own, so that a change of one field costs its own
//! bytes.
//!
//! ```text
//!   index ─> entry of the key: a table, born at a sequence; version of its latest change
//!   tables ─> key ─> rows: the fields with their values, in an index of their own
//! ```
//! A table goes where its entry goes: it is dropped, brought back, drawn and evicted with it, in
//! one step, and its rows are freed in slices.
//!
//! At a learner, rows may come before their entry, and after it:
//! ```text
//!   row of the log, no entry yet ───> a table that was born at 0, until the entry comes
//!   entry of the log ───────────────> if it begins another table, those rows go
//!   entry of the snapshot ──────────> rows that are older than its birth are sorted out
//!   entry newer than a logged row ──> the row is put or deleted all the same: what the snapshot
//!                                     does not bring, because it is gone, the log takes away
//!   entry born after a logged row ──> the row is skipped: it was in an earlier table
//!   row of the snapshot, no entry ──> skipped: the log brings the entry and the row
//! ```

use super::change::{KeyChange, RowChange};
use super::collection::few_removed;
use super::contents::{Cleared, Store};
use super::cuts;
use super::effect::Undo;
use super::map::{ENTRY_OVERHEAD, EXPIRY_OVERHEAD, Replaced, StoredMap, TABLE_OVERHEAD, cost};
use super::maps::AllMaps;
use super::ranked::Ranked;
use super::sums::{EntryPosition, Piece, Spot, digest, digest_row};
use crate::mutant::{self, broken};
use crate::value::dated::{self, DatedFields, FieldDeadline};
use crate::value::deadline;
use crate::value::entry::{Entry, Key};
use crate::value::kind::Kind;
use crate::value::types::Packing;
use bytes::Bytes;
use doyen_placement::MapId;
use std::collections::BTreeSet;

/// Fields that are deleted at once because they are overdue. If there are more, the others do not
/// count until their turn comes.
const PURGED_MAX: usize = 2_000;

/// What a key holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FoundKey<'a> {
    pub(crate) entry: Option<&'a Entry>,
    /// The fields, if it is a collection whose fields are rows.
    pub(crate) table: Option<&'a StoredMap>,
    /// Its key, if that is known apart from the entry.
    pub(crate) key: Option<&'a Key>,
}

impl<'a> From<Option<&'a Entry>> for FoundKey<'a> {
    fn from(entry: Option<&'a Entry>) -> Self {
        Self {
            entry,
            ..Self::default()
        }
    }
}

impl FoundKey<'_> {
    /// The kind of the value; an absent one counts as a string.
    pub(crate) fn kind(&self) -> Kind {
        self.entry.map_or(Kind::String, Entry::kind)
    }

    /// Bytes of the value, and of the fields.
    pub(crate) fn bytes(&self) -> usize {
        self.entry.map_or(0, |entry| entry.value().len()) + self.table.map_or(0, StoredMap::bytes)
    }

    /// Whether the key or a field of it is overdue.
    #[inline]
    pub(crate) fn is_overdue(&self, clock: u64) -> bool {
        let due = |table: &StoredMap| table.overdue_rows(clock).next().is_some();
        let of_entry = |entry: &Entry| entry.overdue(clock) || entry.has_overdue_fields(clock);
        self.entry.is_some_and(of_entry) || self.table.is_some_and(due)
    }

    /// Its cost in bytes, without the order of keys.
    pub(crate) fn cost(&self) -> usize {
        self.entry.map_or(0, cost) + self.table.map_or(0, StoredMap::table_cost)
    }
}

/// A table that was replaced, with its entry.
#[derive(Debug)]
pub(crate) struct Dropped {
    entry: Entry,
    table: Box<StoredMap>,
    /// What checksums had counted of it, with their sessions.
    sums: Vec<(u32, u64)>,
}

impl Dropped {
    /// The table, to be freed in slices.
    pub(crate) fn into_table(self) -> StoredMap {
        *self.table
    }

    /// Whether the key, or each of its fields, had expired.
    pub(super) fn is_overdue(&self, clock: u64) -> bool {
        let table = &self.table;
        let overdue = || table.overdue_rows(clock).count();
        self.entry.overdue(clock) || (table.len() > 0 && overdue() == table.len())
    }

    /// Bytes of its entry and its rows.
    pub(crate) const fn bytes(&self) -> usize {
        self.table.bytes
    }

    /// Its table, if this walk is in it.
    pub(super) fn walked(&mut self, number: u64) -> Option<&mut StoredMap> {
        self.table.walked(number)
    }
}

/// As a table.
impl StoredMap {
    /// The row of a field.
    pub(crate) fn row(&self, field: &[u8]) -> Option<&Entry> {
        let row = self.index.get(self.index.order(field), field);
        row.filter(|row| !self.hides(row))
    }

    /// The rows that are not hidden, in any order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Entry> {
        let (ranked, hashed) = match self.ranked().filter(|_| self.has_cuts()) {
            Some(ranked) => (Some(ranked.rows_from(0, false)), None),
            None => (None, Some(self.index.iter_from(0))),
        };
        let ranked = ranked.into_iter().flatten();
        ranked.chain(hashed.into_iter().flatten())
    }

    /// The rows from an order on, and those that are hidden.
    pub(crate) fn rows_from(&self, order: u64) -> impl Iterator<Item = &Entry> {
        self.index.iter_from(order)
    }

    /// The rows that follow the row of a field, or all of them, and those that are hidden.
    pub(crate) fn rows_after(&self, field: Option<&[u8]>) -> impl Iterator<Item = &Entry> {
        self.index.iter_after(field)
    }

    /// The order of a field.
    pub(crate) fn order_of(&self, field: &[u8]) -> u64 {
        self.index.order(field)
    }

    /// The rows that are overdue, earliest deadline first.
    pub(crate) fn overdue_rows(&self, clock: u64) -> impl Iterator<Item = &Entry> {
        self.expiring
            .iter()
            .take_while(move |(deadline, _)| deadline::is_over(*deadline, clock))
            .map(|(_, row)| &row.0)
    }

    /// Whether any of its rows expires.
    pub(crate) fn has_dates(&self) -> bool {
        !self.expiring.is_empty()
    }

    /// The first deadline of a row.
    fn first_due(&self) -> Option<u64> {
        self.expiring.first().map(|(deadline, _)| *deadline)
    }

    /// The clock of its rows' deadlines was so far behind.
    pub(super) fn move_deadlines(&mut self, behind_ms: u64) {
        for (at, row) in std::mem::take(&mut self.expiring) {
            let moved = deadline::moved(at, behind_ms);
            row.0.date(moved, row.0.version());
            self.expiring.insert((moved, row));
        }
    }

    /// Bytes of its fields and values.
    pub(crate) fn content_bytes(&self) -> usize {
        let expiring = self.expiring.len() * EXPIRY_OVERHEAD;
        let overhead = self.index.len() * (ENTRY_OVERHEAD + self.orders_cost());
        let (_, hidden) = self.hidden();
        self.bytes.saturating_sub(overhead + expiring + hidden)
    }

    /// Its rows in the order of its type, if that has one.
    pub(crate) fn ranked(&self) -> Option<&Ranked> {
        self.ranked.as_deref()
    }

    /// What it costs besides its entry.
    pub(crate) fn table_cost(&self) -> usize {
        self.bytes + TABLE_OVERHEAD + self.cursors_cost()
    }
}

/// With tables.
impl StoredMap {
    /// What a key holds.
    pub(super) fn found(&self, order: u64, key: &[u8]) -> FoundKey<'_> {
        let entry = self.index.get(order, key);
        let table = entry
            .filter(|entry| entry.is_table())
            .and_then(|_| self.tables.get(order, key));
        FoundKey {
            entry,
            table: table.map(|(_, table)| table),
            key: table.map(|(key, _)| key),
        }
    }

    /// The table of a key that has one after a change of its entry. Returns the one that it had.
    #[inline]
    pub(super) fn exchange(
        &mut self,
        order: u64,
        old: Option<&Entry>,
        new: Option<&Entry>,
    ) -> Option<Box<Self>> {
        let had = old.filter(|entry| entry.is_table());
        if had.is_none() && new.is_none() {
            return None;
        }
        let old = self.exchange_tables(order, had, new);
        if let Some(new) = new
            && let Some(table) = self.tables.get_mut(order, new.key())
        {
            table.align_cuts(new);
            if table.has_cuts() {
                self.cut.insert(new.key().into());
            } else {
                self.cut.remove(new.key());
            }
        }
        old
    }

    fn exchange_tables(
        &mut self,
        order: u64,
        had: Option<&Entry>,
        new: Option<&Entry>,
    ) -> Option<Box<Self>> {
        if let (Some(had), Some(new)) = (had, new) {
            // What was born now has nothing of what came before its entry.
            let comes_late = had.born() == 0 && new.born() != new.version();
            if had.born() == new.born() || comes_late {
                return None;
            }
        }
        let old = had.and_then(|entry| self.take_table(order, entry.key()).map(Box::new));
        if let Some(new) = new {
            let table = Self::table(self.index.seed(), new.kind().row_order());
            self.put_table(order, new.key().into(), table);
        }
        old
    }

    pub(super) fn take_table(&mut self, order: u64, key: &[u8]) -> Option<Self> {
        let (key, table) = self.tables.take(order, key)?;
        self.bytes -= table.table_cost();
        if let Some(due) = table.first_due() {
            self.due.remove(&(due, key.clone()));
        }
        self.cut.remove(&key);
        Some(table)
    }

    pub(super) fn put_table(&mut self, order: u64, key: Key, table: Self) {
        self.take_table(order, &key);
        self.bytes += table.table_cost();
        self.due
            .extend(table.first_due().map(|due| (due, key.clone())));
        self.cut.extend(table.has_cuts().then(|| key.clone()));
        self.tables.put(order, key, table);
    }

    /// Changes a table. `None`: the key has none.
    fn in_table<R>(
        &mut self,
        (order, key): (u64, &[u8]),
        change: impl FnOnce(&mut Self) -> R,
    ) -> Option<R> {
        let table = self.tables.get_mut(order, key)?;
        let (before, was_due) = (table.table_cost(), table.first_due());
        let result = change(table);
        self.bytes = self.bytes + table.table_cost() - before;
        let due = table.first_due();
        if due != was_due {
            if let Some(was_due) = was_due {
                self.due.remove(&(was_due, key.into()));
            }
            self.due.extend(due.map(|due| (due, key.into())));
        }
        Some(result)
    }

    /// Its entries and rows after a position, in order.
    pub(super) fn pieces<'a>(
        &'a self,
        map: MapId,
        after: Option<&EntryPosition>,
    ) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        // The entries of a map without tables are not looked at before their turn.
        let plain = self.tables.is_empty();
        let rest = after
            .and_then(|after| {
                let order = self.index.order(&after.key);
                self.tables.get(order, &after.key).zip(Some(after))
            })
            .map(|((key, table), after)| {
                let field = after.field.as_ref().map(|(_, field)| &**field);
                rows_of(map, key, table.index.iter_after(field))
            });
        let entries = self.index.iter_after(after.map(|after| &*after.key));
        let entry = move |entry| Piece {
            map,
            of: None,
            entry,
        };
        let (alone, mixed) = if plain {
            (Some(entries.map(entry)), None)
        } else {
            let with_rows = move |one: &'a Entry| {
                let table = Some(one).filter(|one| one.is_table());
                let order = |one: &Entry| self.index.order(one.key());
                let table = table
                    .and_then(|one| self.tables.get(order(one), one.key()))
                    .map(|(_, table)| rows_of(map, one.key(), table.index.iter_from(0)));
                std::iter::once(entry(one)).chain(table.into_iter().flatten())
            };
            (None, Some(entries.flat_map(with_rows)))
        };
        rest.into_iter()
            .flatten()
            .chain(alone.into_iter().flatten())
            .chain(mixed.into_iter().flatten())
    }
}

/// The rows of a key's table as pieces.
fn rows_of<'a>(
    map: MapId,
    key: &'a [u8],
    rows: impl Iterator<Item = &'a Entry>,
) -> impl Iterator<Item = Piece<'a>> {
    rows.map(move |entry| Piece {
        map,
        of: Some(key),
        entry,
    })
}

/// A key: its map, its order, and its bytes.
pub(super) type KeyPlace<'a> = (MapId, u64, &'a [u8]);

/// Changes rows at a learner: its entry may still come, or be newer than a change.
pub(super) struct LearnedRows<'a>(pub(super) &'a mut Store);

impl LearnedRows<'_> {
    /// A field gets this row.
    pub(super) fn put(&mut self, seq: u64, place: KeyPlace<'_>, (kind, row): (Kind, &Entry)) {
        let (map, _, key) = place;
        if !self.stamp(seq, place, kind) {
            return;
        }
        let found = self.0.row(map, place.1, key, row.key());
        if found.is_none_or(|old| old.version() <= seq) {
            row.date(row.deadline(), seq);
            self.0.insert_row(place, row.clone());
        }
    }

    /// A field loses its row.
    pub(super) fn delete(&mut self, seq: u64, place: KeyPlace<'_>, (kind, field): (Kind, &[u8])) {
        let (map, order, key) = place;
        if let Some(t) = &mut self.0.tombstones
            && !broken(&mutant::RAISES_FIELDS)
        {
            let rows = t.rows.entry((map, key.into())).or_default();
            rows.insert(field.into(), seq);
        }
        let small = self.0.entry(map, order, key).filter(|old| !old.is_table());
        if small.is_some_and(|old| old.version() < seq) {
            // While a snapshot is under way, its primary logs whole values.
            self.0.delete_row(seq, place, (kind, field));
            return;
        }
        let row = |store: &Store| store.row(map, order, key, field).map(Entry::version);
        if self.stamp(seq, place, kind) && row(self.0).is_some_and(|old| old <= seq) {
            self.0.remove_row(place, field);
        }
    }

    /// A table has changed at this sequence. False: the key holds something else, or a later table.
    fn stamp(&mut self, seq: u64, place: KeyPlace<'_>, kind: Kind) -> bool {
        let (map, order, key) = place;
        match self.0.entry(map, order, key) {
            Some(entry) if !entry.is_table() || entry.born() > seq => false,
            Some(entry) if entry.version() >= seq => true,
            Some(_) => self.0.stamp_table(place, seq).is_some(),
            None => {
                let entry = Entry::of_table(kind, key, 0);
                entry.date(0, seq);
                self.0.insert(map, order, entry);
                true
            }
        }
    }
}

/// A collection that is one value becomes another one. It changes nothing if the key holds none
/// of this kind.
fn change_value(
    store: &mut Store,
    seq: u64,
    (map, order, key): KeyPlace<'_>,
    kind: Kind,
    change: impl FnOnce(&dyn Packing, &[u8]) -> Vec<u8>,
) -> Undo {
    let is_value = |entry: &&Entry| entry.kind() == kind && !entry.is_table();
    let old = store.entry(map, order, key).filter(is_value);
    let Some((old, collection)) = old.zip(kind.collection()) else {
        return Undo::Nothing;
    };
    let packed = change(collection.packing, old.value());
    let entry = Entry::of_kind(kind, key, &packed);
    entry.date(old.deadline(), seq);
    let replaced = store.insert(map, order, entry);
    store.undo_of(map, replaced, Undo::Absent)
}

impl Store {
    /// What undoes a change that replaced this.
    pub(super) fn undo_of(&mut self, map: MapId, replaced: Replaced, absent: Undo) -> Undo {
        match (replaced.entry, replaced.table) {
            (None, _) => absent,
            (Some(entry), None) => Undo::Was(entry),
            (Some(entry), Some(table)) => Undo::Table(Box::new(Dropped {
                sums: self.sums.drop_table(map, entry.key()),
                entry,
                table,
            })),
        }
    }

    /// Undoes what dropped a table.
    pub(super) fn bring_back(&mut self, map: MapId, order: u64, dropped: Dropped) {
        let Dropped { entry, table, sums } = dropped;
        let key: Key = entry.key().into();
        let replaced = self.insert(map, order, entry);
        self.forget(map, replaced);
        if let Some(entries) = self.maps.all.get_mut(&map) {
            let before = entries.bytes;
            entries.put_table(order, key.clone(), *table);
            self.maps.bytes = self.maps.bytes + entries.bytes - before;
        }
        for sum in &mut self.sums.0 {
            if let Some((_, counted)) = sums.iter().find(|(session, _)| *session == sum.session) {
                sum.tables.insert((map, key.clone()), *counted);
            }
        }
    }

    /// Nothing needs what was replaced.
    pub(super) fn forget(&mut self, map: MapId, replaced: Replaced) {
        if let (Some(entry), Some(_)) = (&replaced.entry, &replaced.table) {
            self.sums.drop_table(map, entry.key());
        }
    }

    /// The same at a learner: a table is freed in slices, and rows from this sequence on stay.
    pub(super) fn set_aside(&mut self, map: MapId, replaced: Replaced, from: u64) {
        let (Some(entry), Some(was)) = (replaced.entry, replaced.table) else {
            return;
        };
        self.sums.drop_table(map, entry.key());
        if let Some(t) = &mut self.tombstones {
            t.cleared.push(Cleared {
                map,
                table: Some(entry.key().into()),
                seq: from,
                was: *was,
            });
        }
    }

    /// A field of a collection that is one value gets the value of this row. It changes nothing if
    /// the key holds none of this kind.
    pub(super) fn put_field(
        &mut self,
        seq: u64,
        place: KeyPlace<'_>,
        (kind, row): (Kind, &Entry),
    ) -> Undo {
        change_value(self, seq, place, kind, |packing, packed| {
            let timing = FieldDeadline::At(row.deadline());
            packing.with_one(packed, (row.key(), row.value()), timing).0
        })
    }

    /// A field gets this row. It changes nothing if the key is no table.
    pub(super) fn put_row(&mut self, seq: u64, place: KeyPlace<'_>, row: &Entry) -> Undo {
        let Some(former) = self.stamp_table(place, seq) else {
            return Undo::Nothing;
        };
        row.date(row.deadline(), seq);
        Undo::Row(self.insert_row(place, row.clone()), former)
    }

    /// A field loses its row, or its place in one value.
    pub(super) fn delete_row(
        &mut self,
        seq: u64,
        place: KeyPlace<'_>,
        (kind, field): (Kind, &[u8]),
    ) -> Undo {
        let Some(former) = self.stamp_table(place, seq) else {
            return change_value(self, seq, place, kind, |packing, packed| {
                packing.without(packed, &BTreeSet::from([field])).0
            });
        };
        Undo::Row(self.remove_row(place, field), former)
    }

    /// Undoes a change of a field.
    pub(super) fn undo_row(
        &mut self,
        place: KeyPlace<'_>,
        field: &[u8],
        row: Option<Entry>,
        version: u64,
    ) {
        if self.stamp_table(place, version).is_none() {
            return;
        }
        match row {
            Some(row) => self.insert_row(place, row),
            None => self.remove_row(place, field),
        };
    }

    /// Takes the entry of a table from a snapshot.
    pub(super) fn adopt_table(&mut self, map: MapId, order: u64, entry: Entry) -> bool {
        let key = Key::from(entry.key());
        let entry = cuts::with_known_cuts(self, (map, order, &key), entry);
        let local = self.entry(map, order, entry.key());
        let local = local.map(|e| (e.is_table(), e.born(), e.version()));
        match local {
            Some((true, 0, version)) => {
                // Rows of the log came before it. Those of an earlier table are sorted out.
                let version = version.max(entry.version());
                let born = entry.born();
                entry.date(entry.deadline(), version);
                let old = self.remove(map, order, entry.key());
                self.set_aside(map, old, born);
            }
            Some((true, born, version)) if born == entry.born() => {
                if version >= entry.version() {
                    return false;
                }
            }
            Some((true, born, _)) => {
                if born > entry.born() {
                    return false;
                }
                let born = entry.born();
                let old = self.remove(map, order, entry.key());
                self.set_aside(map, old, born);
            }
            Some((false, _, version)) if version >= entry.version() => return false,
            Some((false, ..)) | None => {}
        }
        let replaced = self.insert(map, order, entry);
        self.set_aside(map, replaced, u64::MAX);
        true
    }

    /// Takes a row from a snapshot, unless its field has a newer one. Returns whether it did.
    pub(crate) fn adopt_row(&mut self, map: MapId, key: &[u8], row: Entry) -> bool {
        let order = self.order(key);
        let (born, kind) = match self.entry(map, order, key) {
            Some(entry) if entry.is_table() => (entry.born(), entry.kind()),
            // The log brings it.
            Some(_) | None => return false,
        };
        let version = row.version();
        if version < born
            || self
                .tombstones
                .as_ref()
                .is_some_and(|t| t.is_dead(map, key, (kind, &row)))
        {
            return false;
        }
        let newer = self
            .row(map, order, key, row.key())
            .is_none_or(|old| old.version() < version);
        if newer {
            self.insert_row((map, order, key), row);
        }
        newer
    }

    /// A table changes as of this sequence. Returns the version that it had; `None` if the key is
    /// no table.
    fn stamp_table(&mut self, (map, order, key): KeyPlace<'_>, version: u64) -> Option<u64> {
        let entry = self.entry(map, order, key)?;
        if !entry.is_table() {
            return None;
        }
        let entry = entry.clone();
        let former = entry.version();
        let spot = Spot::of((map, order, key));
        if self.sums.covers(spot) {
            let before = digest(map, &entry);
            entry.date(entry.deadline(), version);
            self.sums.changed(spot, digest(map, &entry), before);
        } else {
            entry.date(entry.deadline(), version);
        }
        Some(former)
    }

    /// Changes the table of a key. `None`: it has none.
    pub(super) fn in_table<R>(
        &mut self,
        (map, order, key): KeyPlace<'_>,
        change: impl FnOnce(&mut StoredMap) -> R,
    ) -> Option<R> {
        let entries = self.maps.all.get_mut(&map)?;
        let before = entries.bytes;
        let result = entries.in_table((order, key), change);
        self.maps.bytes = self.maps.bytes + entries.bytes - before;
        result
    }

    pub(super) fn insert_row(&mut self, place: KeyPlace<'_>, row: Entry) -> Option<Entry> {
        let (map, _, key) = place;
        let of_row = self.order(row.key());
        let covered = self.sums.covers(Spot::of(place).row(of_row, row.key()));
        let summed = covered.then(|| row.clone());
        let old = self.in_table(place, |table| {
            let walked = table.has_cursors().then(|| row.clone());
            let old = table.insert(of_row, row).entry;
            if let Some(row) = walked {
                table.note_former(row.key(), old.as_ref());
            }
            old
        })?;
        if let Some(row) = summed {
            let spot = Spot::of(place).row(of_row, row.key());
            let former = old.as_ref().map_or(0, |old| digest_row(map, key, old));
            self.sums.changed(spot, digest_row(map, key, &row), former);
        }
        old
    }

    pub(super) fn remove_row(&mut self, place: KeyPlace<'_>, field: &[u8]) -> Option<Entry> {
        let (map, _, key) = place;
        let of_row = self.order(field);
        let old = self.in_table(place, |table| {
            let old = table.remove(of_row, field).entry;
            table.note_former(field, old.as_ref());
            old
        })??;
        let spot = Spot::of(place).row(of_row, field);
        if self.sums.covers(spot) {
            self.sums.changed(spot, 0, digest_row(map, key, &old));
        }
        Some(old)
    }
}

/// The same of a collection that is one value.
fn purged_value(entry: &Entry, clock: u64) -> Option<(KeyChange, u64)> {
    if !entry.has_overdue_fields(clock) {
        return None;
    }
    let (left, count) = dated::without_overdue(entry.value(), clock);
    let fields = DatedFields::of(entry.value());
    let gone = fields.filter(|(.., at)| deadline::is_over(*at, clock));
    let change = if left.is_empty() {
        KeyChange::Delete
    } else {
        KeyChange::Packed {
            kind: entry.kind(),
            packed: left.into(),
            deadline: entry.deadline(),
            fields: few_removed(gone.map(|(field, ..)| field)),
            removes: true,
        }
    };
    Some((change, count as u64))
}

impl AllMaps {
    /// How a key changes if fields of it are overdue, and how many are: of a table, some thousand
    /// at most. `None`: none is.
    pub(crate) fn purged(&self, found: FoundKey<'_>, clock: u64) -> Option<(KeyChange, u64)> {
        let Some(table) = found.table else {
            return purged_value(found.entry?, clock);
        };
        let overdue = table.overdue_rows(clock).take(PURGED_MAX);
        let rows: Vec<_> = overdue
            .map(|row| RowChange::Delete(Bytes::copy_from_slice(row.key())))
            .collect();
        let count = rows.len() as u64;
        match rows.len() {
            0 => None,
            all if all == table.len() => Some((KeyChange::Delete, count)),
            _ => {
                let kind = found.entry?.kind();
                Some((KeyChange::Rows { kind, rows }, count))
            }
        }
    }

    /// The same for commands, which do not see an unfinished table.
    #[inline]
    pub(crate) fn shown(&self, map: MapId, order: u64, key: &[u8]) -> FoundKey<'_> {
        let found = self.found(map, order, key);
        match found.table {
            Some(_) if found.entry.is_some_and(Entry::is_unfinished) => FoundKey::default(),
            _ => found,
        }
    }

    /// What a key holds, overdue or not.
    pub(crate) fn found(&self, map: MapId, order: u64, key: &[u8]) -> FoundKey<'_> {
        let map = self.all.get(&map);
        map.map_or(FoundKey::default(), |map| map.found(order, key))
    }

    /// The row of a field, hidden or not.
    fn row(&self, map: MapId, order: u64, key: &[u8], field: &[u8]) -> Option<&Entry> {
        let rows = &self.found(map, order, key).table?.index;
        rows.get(rows.order(field), field)
    }
}
