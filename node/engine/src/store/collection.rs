//! A collection as procedures read and edit it: one value while it is small, and rows of a table
//! when it is large. What is peculiar to its type is in its descriptor (`value/types.rs`).

use super::budget::Budget;
use super::change::{FewFields, KeyChange, RowChange};
use super::cuts;
use super::ranked::Ranked;
use super::run_context::{RunContext, kept};
use super::{FoundKey, RowTable};
pub(crate) use crate::value::dated::FieldDeadline;
use crate::value::dated::{self, DatedField};
use crate::value::entry::Entry;
use crate::value::items::Pairs;
use crate::value::kind::{Encoding, Kind};
use crate::value::outcome::{Failure, Value};
use crate::value::types::{Collection, Layout, Packing};
use bytes::Bytes;
use doyen_placement::level::DATED_FIELDS;
use smallvec::smallvec;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An answer of this many bytes is allowed even if no value may be so large.
const ANSWER_LEAST: usize = 1 << 20;

/// The most bytes of an answer.
pub(crate) fn answer_max(cx: &RunContext) -> usize {
    cx.value_bytes_max.max(ANSWER_LEAST)
}

/// How Redis would store what a key with this entry holds.
pub(crate) fn encoding(entry: &Entry, found: FoundKey<'_>) -> Encoding {
    match (entry.kind().layout(), found.table) {
        (Layout::Value(encoding), _) => encoding(entry.value()),
        (Layout::Ordered(ordered), table) => {
            let bytes = table.map_or(entry.value().len(), RowTable::content_bytes);
            (ordered.encoding)(bytes)
        }
        (Layout::Hashed(Collection { encoding, .. }), Some(table)) => {
            let mut rows = table.rows().map(|row| (row.key(), row.value()));
            encoding(table.len(), &mut rows)
        }
        (
            Layout::Hashed(Collection {
                encoding, packing, ..
            }),
            None,
        ) => {
            let items = packing.items(entry.value());
            let count = packing.len(entry.value());
            encoding(count, &mut entry.kind().pairs(&items))
        }
    }
}

/// Bytes that last as long as a procedure sees a collection.
#[derive(Debug, Default)]
pub(crate) struct UnpackedItems {
    /// The fields of a small one, if they lie otherwise than procedures read them.
    unpacked: OnceCell<Vec<u8>>,
    /// Fields that the procedure has made, to set them.
    made: OnceCell<Vec<u8>>,
}

impl UnpackedItems {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

/// A collection as a procedure reads it.
#[derive(Clone, Copy)]
pub(crate) struct CollectionView<'a> {
    kind: Kind,
    packing: &'static dyn Packing,
    entry: Option<&'a Entry>,
    holds: Holds<'a>,
    bytes: &'a UnpackedItems,
    budget: &'a Budget,
}

#[derive(Clone, Copy)]
enum Holds<'a> {
    /// One value, if there is any.
    Packed(Option<&'a Entry>),
    /// Rows, at a moment of the partition's clock. Overdue rows do not count.
    Table(&'a RowTable, u64),
}

impl<'a> CollectionView<'a> {
    /// What a key of this kind holds. An absent collection is empty. `None`: the kind is none of
    /// collections.
    pub(crate) fn of(
        kind: Kind,
        found: FoundKey<'a>,
        unpacked: &'a UnpackedItems,
        cx: &RunContext<'a>,
    ) -> Option<Self> {
        let holds = match found.table {
            Some(table) => Holds::Table(table, cx.clock),
            None => Holds::Packed(found.entry),
        };
        Some(Self {
            kind,
            packing: kind.collection()?.packing,
            entry: found.entry,
            holds,
            bytes: unpacked,
            budget: cx.budget,
        })
    }

    /// What the operation has done that reads it.
    pub(crate) const fn budget(self) -> &'a Budget {
        self.budget
    }

    /// Its rows, if it has rows, and the moment that says which are overdue.
    pub(crate) const fn table(self) -> Option<(&'a RowTable, u64)> {
        match self.holds {
            Holds::Packed(_) => None,
            Holds::Table(table, clock) => Some((table, clock)),
        }
    }

    /// The value of a field as clients see it.
    pub(crate) fn shown(self, value: &[u8]) -> Cow<'_, [u8]> {
        let collection = self.kind.collection();
        collection.map_or(Cow::Borrowed(value), |it| (it.shown)(value))
    }

    /// Keeps fields that the procedure has made, to set them.
    pub(crate) fn made(self, fields: Vec<u8>) -> Pairs<'a> {
        self.kind.pairs(self.bytes.made.get_or_init(|| fields))
    }

    /// How many fields it has. Some may be overdue.
    pub(crate) fn len(self) -> usize {
        match self.holds {
            Holds::Packed(entry) => {
                self.budget.read(bytes_of(entry).len());
                self.packing.len(bytes_of(entry))
            }
            Holds::Table(table, _) => table.len(),
        }
    }

    /// The value of a field.
    pub(crate) fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        self.dated(field).map(|(value, _)| value)
    }

    /// The value of a field, and when it expires; 0: never. None is found once the operation has
    /// done too much.
    pub(crate) fn dated(self, field: &[u8]) -> Option<(&'a [u8], u64)> {
        let goes_on = match self.holds {
            Holds::Packed(entry) => self.budget.element_of(bytes_of(entry).len()),
            Holds::Table(..) => self.budget.element(),
        };
        match self.holds {
            _ if !goes_on => None,
            Holds::Packed(entry) => self.packing.dated(bytes_of(entry), field),
            Holds::Table(table, clock) => {
                let row = table.row(field).filter(|row| !row.overdue(clock))?;
                Some((row.value(), row.deadline()))
            }
        }
    }

    /// All fields with their values. They end early once the operation has done too much.
    pub(crate) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.fields().map(|(field, value, _)| (field, value))
    }

    /// The same with their deadlines.
    pub(crate) fn fields(self) -> impl Iterator<Item = DatedField<'a>> {
        let (packed, table) = match self.holds {
            Holds::Packed(entry) => {
                let pairs = self.kind.pairs(self.items(entry));
                (Some(pairs.zip(dated::deadlines(bytes_of(entry)))), None)
            }
            Holds::Table(table, clock) => {
                let rows = table.rows();
                let rows = rows.take_while(move |row| self.budget.element_of(row.len()));
                (None, Some(rows.filter(move |row| !row.overdue(clock))))
            }
        };
        let rows = table.into_iter().flatten();
        let rows = rows.map(|row| (row.key(), row.value(), row.deadline()));
        let packed = packed.into_iter().flatten();
        packed
            .map(|((field, value), at)| (field, value, at))
            .chain(rows)
    }

    /// The fields with their values, in a table those from an order on, and whether each counts: it
    /// is neither overdue nor hidden. They end early once the operation has done too much.
    pub(crate) fn looked_from(
        self,
        order: u64,
    ) -> impl Iterator<Item = ((&'a [u8], &'a [u8]), bool)> {
        let (packed, table) = match self.holds {
            Holds::Packed(entry) => (Some(self.kind.pairs(self.items(entry))), None),
            Holds::Table(table, clock) => {
                let rows = table.rows_from(order);
                let rows = rows.take_while(move |row| self.budget.element_of(row.len()));
                let counts = move |row: &Entry| !row.overdue(clock) && !table.hides(row);
                let rows = rows.map(move |row| ((row.key(), row.value()), counts(row)));
                (None, Some(rows))
            }
        };
        let packed = packed.into_iter().flatten().map(|pair| (pair, true));
        packed.chain(table.into_iter().flatten())
    }

    /// The fields of a small one.
    fn items(self, entry: Option<&'a Entry>) -> &'a [u8] {
        self.budget.read(bytes_of(entry).len());
        if let Some(items) = self.bytes.unpacked.get() {
            return items;
        }
        match self.packing.items(bytes_of(entry)) {
            Cow::Borrowed(items) => items,
            Cow::Owned(items) => self.bytes.unpacked.get_or_init(|| items),
        }
    }

    /// All fields with their values in one run of bytes. `None`: it is absent.
    ///
    /// # Errors
    /// They are too large for an answer.
    pub(crate) fn all(self, most: usize) -> Result<Option<Value>, Failure> {
        match self.holds {
            Holds::Packed(None) => Ok(None),
            Holds::Packed(Some(entry)) => {
                let items = self.items(Some(entry));
                // Shared with the store, if it lies there as it is answered.
                let whole = std::ptr::eq(items, entry.value());
                Ok(Some(if whole {
                    Value::of(entry)
                } else {
                    Value::from(items)
                }))
            }
            Holds::Table(table, _) if table.content_bytes() > most => Err(Failure::TooLarge),
            Holds::Table(table, _) => {
                let mut out = Vec::with_capacity(table.content_bytes());
                let form = self.kind.pairs(&[]);
                self.pairs()
                    .for_each(|(field, value)| form.put(&mut out, field, value));
                Ok(Some(Value::from(&out[..])))
            }
        }
    }

    /// How a change of fields changes the key, and how many fields come or go.
    pub(crate) fn edited(
        self,
        edit: Edit<'_>,
        cx: &RunContext,
    ) -> (usize, Result<KeyChange, Failure>) {
        if edit.bytes() > cx.value_bytes_max {
            return (0, Err(Failure::TooLarge));
        }
        let (changed, change) = match self.holds {
            Holds::Packed(entry) => self.edited_value(entry, edit, cx),
            Holds::Table(table, clock) => self.edited_table((table, clock), edit, cx),
        };
        (changed, Ok(change))
    }

    /// Changes one that is one value, or absent.
    fn edited_value(
        self,
        entry: Option<&Entry>,
        edit: Edit<'_>,
        cx: &RunContext,
    ) -> (usize, KeyChange) {
        let (kind, packing, packed) = (self.kind, self.packing, bytes_of(entry));
        let adds = matches!(edit, Edit::Add(_));
        let edit = edit.put_always();
        if let Edit::Set(given, timing) = edit
            && let Some(grown) = self.grown(entry, (given, timing), cx)
        {
            return grown;
        }
        if !matches!(edit, Edit::None) {
            self.budget.read(packed.len());
        }
        let removes = matches!(edit, Edit::Delete(_));
        let fields = changed_fields(packing, entry, (&edit, cx.level));
        let (after, changed) = match edit {
            Edit::None => return (0, KeyChange::None),
            Edit::Set(given, timing) => packing.with(packed, given, timing),
            Edit::SetOne(field, value) => {
                packing.with_one(packed, (field, &value), FieldDeadline::Keep)
            }
            Edit::Date(fields) => {
                let after = packing.with_deadlines(packed, &fields.into_iter().collect());
                if after == packed {
                    return (0, KeyChange::None);
                }
                (after, 0)
            }
            Edit::Delete(fields) => match packing.without(packed, &fields.into_iter().collect()) {
                (_, 0) => return (0, KeyChange::None),
                (after, removed) => (after, removed),
            },
            // These were made otherwise, and are a change of rows alone.
            Edit::Add(_) | Edit::DeleteRanks(_) => return (0, KeyChange::None),
        };
        if adds && after == packed {
            return (0, KeyChange::None);
        }
        let deadline = kept(entry, cx);
        let change = if after.is_empty() {
            KeyChange::Delete
        } else if after.len() <= packed_max(kind, (after.len(), || packing.len(&after)), cx)
            && (cx.level >= DATED_FIELDS || !dated::is_dated(&after))
        {
            KeyChange::Packed {
                kind,
                fields: fields.unwrap_or_default(),
                packed: after.into(),
                deadline,
                removes,
            }
        } else {
            let items = packing.items(&after);
            let fields = kind.pairs(&items).zip(dated::deadlines(&after));
            let rows = fields.map(|((field, value), at)| Entry::of_row(field, value, at));
            KeyChange::Table {
                kind,
                rows: rows.collect(),
                deadline,
            }
        };
        (changed, change)
    }

    /// Sets enough fields to make it a table, however it would be packed. `None`: they are few, or
    /// given again and again.
    fn grown(
        self,
        entry: Option<&Entry>,
        (given, timing): (Pairs<'_>, FieldDeadline),
        cx: &RunContext,
    ) -> Option<(usize, KeyChange)> {
        let packed_bytes_max = cx.packed_bytes_max.saturating_mul(PACKED_TIMES);
        let packed_bytes_max = packed_bytes_max.max(cx.packed_small_bytes_max);
        if given.bytes() <= packed_bytes_max {
            return None;
        }
        let mut all: BTreeMap<&[u8], (&[u8], u64)> = BTreeMap::new();
        all.extend(self.fields().map(|(field, value, at)| (field, (value, at))));
        let before = all.len();
        for (field, value) in given.take_while(|_| self.budget.sort()) {
            let deadline = timing.after(|| all.get(field).map_or(0, |(_, at)| *at));
            all.insert(field, (value, deadline));
        }
        let bytes = all
            .iter()
            .map(|(field, (value, _))| field.len() + value.len());
        if bytes.sum::<usize>() <= packed_bytes_max {
            return None;
        }
        let added = all.len() - before;
        let rows = all.into_iter();
        let rows = rows.map(|(field, (value, deadline))| Entry::of_row(field, value, deadline));
        let change = KeyChange::Table {
            kind: self.kind,
            rows: rows.collect(),
            deadline: kept(entry, cx),
        };
        Some((added, change))
    }

    /// A table without these fields as one value.
    fn packed_without(self, fields: &BTreeSet<&[u8]>, cx: &RunContext) -> KeyChange {
        let left = self.fields().filter(|(field, ..)| !fields.contains(field));
        self.packed_again(left, cx)
    }

    /// These fields of a table as one value.
    fn packed_again<'f>(
        self,
        left: impl Iterator<Item = DatedField<'f>>,
        cx: &RunContext,
    ) -> KeyChange {
        KeyChange::Packed {
            kind: self.kind,
            packed: packed_of(self.kind, self.packing, left).into(),
            deadline: kept(self.entry, cx),
            fields: FewFields::new(),
            removes: false,
        }
    }

    /// Changes one that is a table.
    fn edited_table(
        self,
        (table, clock): (&RowTable, u64),
        edit: Edit<'_>,
        cx: &RunContext,
    ) -> (usize, KeyChange) {
        if let (Edit::DeleteRanks(ranks), Some(ranked)) = (&edit, table.ranked()) {
            return match ranks.is_empty() {
                true => (0, KeyChange::None),
                false => self.without_ranks(ranked, ranks.clone(), cx),
            };
        }
        let held = |field: &[u8]| table.row(field).filter(|row| !row.overdue(clock));
        let adds = matches!(edit, Edit::Add(_));
        let (mut changed, mut rows) = (0, Vec::new());
        match edit.put_always() {
            Edit::None | Edit::Add(_) | Edit::DeleteRanks(_) => {}
            Edit::Set(given, timing) => {
                let mut set = |(field, value): (&[u8], &[u8])| {
                    let old = held(field);
                    if adds && old.is_some_and(|old| old.value() == value) {
                        return;
                    }
                    changed += usize::from(old.is_none());
                    let deadline = timing.after(|| old.map_or(0, Entry::deadline));
                    rows.push(RowChange::Put(Entry::of_row(field, value, deadline)));
                };
                if given.has_at_most(1) {
                    given.for_each(set);
                } else {
                    let values: BTreeMap<&[u8], &[u8]> = given.collect();
                    values.into_iter().for_each(&mut set);
                }
            }
            Edit::SetOne(field, value) => {
                let old = held(field);
                changed = usize::from(old.is_none());
                let deadline = old.map_or(0, Entry::deadline);
                rows.push(RowChange::Put(Entry::of_row(field, &value, deadline)));
            }
            Edit::Date(fields) => {
                for (field, deadline) in fields {
                    if let Some(old) = held(field).filter(|old| old.deadline() != deadline) {
                        let row = Entry::of_row(field, old.value(), deadline);
                        rows.push(RowChange::Put(row));
                    }
                }
            }
            Edit::Delete(fields) => {
                let fields: BTreeSet<&[u8]> = fields.into_iter().collect();
                let mut left = table.content_bytes();
                for field in &fields {
                    if let Some(row) = held(field) {
                        left = left.saturating_sub(row.len());
                        rows.push(RowChange::Delete(Bytes::copy_from_slice(field)));
                    }
                }
                changed = rows.len();
                if changed == table.len() {
                    return (changed, KeyChange::Delete);
                }
                let may_pack = cx.level >= DATED_FIELDS || !table.has_dates();
                let most = packed_max(self.kind, (left, || table.len() - changed), cx);
                if changed > 0 && left <= most / PACKED_AGAIN && may_pack {
                    return (changed, self.packed_without(&fields, cx));
                }
            }
        }
        let change = if rows.is_empty() {
            KeyChange::None
        } else {
            KeyChange::Rows {
                kind: self.kind,
                rows,
            }
        };
        (changed, change)
    }

    /// Deletes the rows of these ranks.
    fn without_ranks(
        self,
        ranked: &'a Ranked,
        ranks: Range<usize>,
        cx: &RunContext,
    ) -> (usize, KeyChange) {
        let count = ranks.len();
        if count == ranked.len() {
            return (count, KeyChange::Delete);
        }
        // Those that stay, if they are so few that they become one value.
        let (before, behind) = (
            ranked.rows_from(0, false),
            ranked.rows_from(ranks.end, false),
        );
        let mut bytes = 0;
        let left = before.take(ranks.start).chain(behind);
        let left = left.map(|row| {
            bytes += row.len();
            (row.key(), row.value(), row.deadline())
        });
        let left: Vec<_> = left.take(LEFT_MAX + 1).collect();
        if left.len() <= LEFT_MAX && bytes <= cx.packed_bytes_max / PACKED_AGAIN {
            return (count, self.packed_again(left.into_iter(), cx));
        }
        let kind = self.kind;
        if let Some((table, _)) = self.table()
            && let Some(first) = ranked.rows_from(ranks.start, false).next()
            && let Some(last) = ranked.rows_from(ranks.end - 1, false).next()
            && let Some(span) = cuts::removal(table, (first, last), count, cx)
        {
            let rows = vec![RowChange::Cut(span)];
            return (count, KeyChange::Rows { kind, rows });
        }
        let gone = ranked.rows_from(ranks.start, false).take(count);
        let gone = gone.take_while(|row| self.budget.element_of(row.len()));
        let rows = gone.map(|row| RowChange::Delete(Bytes::copy_from_slice(row.key())));
        let rows = rows.collect();
        (count, KeyChange::Rows { kind, rows })
    }
}

/// A table with more rows than this stays one.
const LEFT_MAX: usize = 256;

/// Fields that take no more than this on average are small. As rows, each takes 80 bytes more.
const SMALL_FIELD: usize = 64;

/// The most bytes of one value that has `count` fields.
fn packed_max(
    kind: Kind,
    (bytes, count): (usize, impl FnOnce() -> usize),
    cx: &RunContext,
) -> usize {
    let packs_small = kind.collection().is_some_and(|it| it.packs_small);
    if packs_small && bytes > cx.packed_bytes_max / PACKED_AGAIN && bytes <= count() * SMALL_FIELD {
        cx.packed_small_bytes_max.max(cx.packed_bytes_max)
    } else {
        cx.packed_bytes_max
    }
}

/// A table becomes one value again if it has no more than this part of what may be one.
const PACKED_AGAIN: usize = 4;

/// The bytes of a small collection.
fn bytes_of(entry: Option<&Entry>) -> &[u8] {
    entry.map_or(&[], Entry::value)
}

/// Nothing that has this many times the bytes is packed: integers take less than their digits.
const PACKED_TIMES: usize = 4;

/// A collection is logged whole if more than this part of it changes, or more than this many
/// fields.
const PART_OF_WHOLE: usize = 2;
const FIELDS_MAX: usize = 4;

/// The fields that a change sets or removes, if they are few and small beside the hash.
fn changed_fields(
    packing: &dyn Packing,
    entry: Option<&Entry>,
    (edit, level): (&Edit<'_>, u16),
) -> Option<FewFields> {
    let packed = entry?.value();
    let fits = edit.bytes() <= packed.len() / PART_OF_WHOLE;
    let row = |(field, value): (&[u8], &[u8]), timing: FieldDeadline| {
        let held = || match dated::is_dated(packed) {
            true => packing.dated(packed, field).map_or(0, |(_, at)| at),
            false => 0,
        };
        Entry::of_row(field, value, timing.after(held))
    };
    match edit {
        _ if !fits => None,
        Edit::Set(given, timing) if given.has_at_most(FIELDS_MAX) => {
            Some({ *given }.map(|pair| row(pair, *timing)).collect())
        }
        Edit::SetOne(field, value) => Some(smallvec![row((field, value), FieldDeadline::Keep)]),
        Edit::Date(dates) if dates.len() <= FIELDS_MAX => {
            let dated = |(field, at): &(&[u8], u64)| {
                let (value, _) = packing.dated(packed, field)?;
                Some(Entry::of_row(field, value, *at))
            };
            Some(dates.iter().filter_map(dated).collect())
        }
        Edit::Delete(fields) if level >= DATED_FIELDS => {
            let held = |field: &&[u8]| packing.get(packed, field).is_some();
            let held: BTreeSet<&[u8]> = fields.iter().copied().filter(held).collect();
            Some(few_removed(held.iter().copied()))
        }
        Edit::None
        | Edit::Set(..)
        | Edit::Add(_)
        | Edit::Date(_)
        | Edit::Delete(_)
        | Edit::DeleteRanks(_) => None,
    }
}

/// Fields that are removed, if they are few.
pub(super) fn few_removed<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone) -> FewFields {
    match fields.clone().nth(FIELDS_MAX) {
        Some(_) => FewFields::new(),
        None => fields.map(|field| Entry::of_row(field, &[], 0)).collect(),
    }
}

/// Fields as one value, with their deadlines.
fn packed_of<'a>(
    kind: Kind,
    packing: &dyn Packing,
    fields: impl Iterator<Item = DatedField<'a>>,
) -> Vec<u8> {
    let (mut items, form) = (Vec::new(), kind.pairs(&[]));
    let mut dates = BTreeMap::new();
    for (field, value, at) in fields {
        form.put(&mut items, field, value);
        if at != 0 {
            dates.insert(field, at);
        }
    }
    let (packed, _) = packing.with(&[], kind.pairs(&items), FieldDeadline::Never);
    if dates.is_empty() {
        packed
    } else {
        packing.with_deadlines(&packed, &dates)
    }
}

/// The collection of these rows, each of another field, however it lies.
pub(crate) fn collection_of(
    kind: Kind,
    rows: Vec<Entry>,
    deadline: u64,
    cx: &RunContext,
) -> KeyChange {
    let bytes: usize = rows.iter().map(Entry::len).sum();
    let may_pack = cx.level >= DATED_FIELDS || rows.iter().all(|row| row.deadline() == 0);
    let most = packed_max(kind, (bytes, || rows.len()), cx);
    if bytes <= most
        && may_pack
        && let Some(collection) = kind.collection()
    {
        let fields = rows
            .iter()
            .map(|row| (row.key(), row.value(), row.deadline()));
        let packed = packed_of(kind, collection.packing, fields);
        if !packed.is_empty() && packed.len() <= most {
            return KeyChange::of_value(kind, packed.into(), deadline);
        }
    }
    KeyChange::Table {
        kind,
        rows,
        deadline,
    }
}

/// How a procedure changes a collection.
pub(crate) enum Edit<'a> {
    /// Not at all.
    None,
    /// These fields get these values. If one is given twice, the later value counts.
    Set(Pairs<'a>, FieldDeadline),
    /// These fields get these values, and no deadlines. Nothing changes if they have them.
    Add(Pairs<'a>),
    /// This field gets this value, and keeps its deadline.
    SetOne(&'a [u8], Vec<u8>),
    /// These fields get these deadlines, if they exist; 0: never.
    Date(Vec<(&'a [u8], u64)>),
    /// These fields are deleted.
    Delete(Vec<&'a [u8]>),
    /// The rows of these ranks are deleted.
    DeleteRanks(Range<usize>),
}

impl Edit<'_> {
    /// The same, without looking whether it changes anything.
    fn put_always(self) -> Self {
        match self {
            Self::Add(given) => Self::Set(given, FieldDeadline::Never),
            other => other,
        }
    }

    /// Bytes that it writes.
    fn bytes(&self) -> usize {
        match self {
            Self::None | Self::Delete(_) | Self::DeleteRanks(_) | Self::Date(_) => 0,
            Self::Set(given, _) | Self::Add(given) => given.bytes(),
            Self::SetOne(field, value) => field.len() + value.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::items::{Items, packed};
    use proptest::prelude::*;

    type Given = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(most: usize) -> impl Strategy<Value = Given> {
        let field = prop::collection::vec(0_u8..4, 0..3);
        let value = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            prop::collection::vec(any::<u8>(), 126..130),
        ];
        // A single field is set in another way than several.
        prop_oneof![
            prop::collection::vec((field.clone(), value.clone()), 1),
            prop::collection::vec((field, value), 0..most),
        ]
    }

    fn bytes_of(pairs: &Given) -> Bytes {
        packed(pairs.iter().flat_map(|(f, v)| [&f[..], &v[..]]))
    }

    fn of_hash(bytes: &[u8]) -> Pairs<'_> {
        Kind::Hash.pairs(bytes)
    }

    fn map_of(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pairs: Vec<_> = of_hash(bytes)
            .map(|(f, v)| (f.to_vec(), v.to_vec()))
            .collect();
        let map: BTreeMap<_, _> = pairs.iter().cloned().collect();
        assert_eq!(map.len(), pairs.len(), "no field stands twice");
        map
    }

    proptest! {
        #[test]
        fn a_hash_is_changed_as_a_map_is(
            changes in prop::collection::vec((pairs(20), any::<bool>()), 0..8)
        ) {
            let (mut hash, mut map) = (Vec::new(), BTreeMap::new());
            for (pairs, deletes) in changes {
                let before = map.len();
                let given = bytes_of(&pairs);
                let view = of_hash(&hash);
                if deletes {
                    let fields = packed(pairs.iter().map(|(f, _)| &f[..]));
                    let (after, removed) = view.without(&Items(&fields).collect());
                    pairs.iter().for_each(|(f, _)| _ = map.remove(f));
                    prop_assert_eq!(removed, before - map.len());
                    hash = after;
                } else {
                    let (after, added) = view.with(of_hash(&given));
                    map.extend(pairs);
                    prop_assert_eq!(added, map.len() - before);
                    hash = after;
                }
                prop_assert_eq!(map_of(&hash), map.clone());
                let hash = of_hash(&hash);
                prop_assert_eq!(hash.count(), map.len());
                for (field, value) in &map {
                    prop_assert_eq!(hash.get(field), Some(&value[..]));
                }
                prop_assert_eq!(hash.get(b"never"), None);
            }
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Items(&bytes).count() <= bytes.len());
            let (after, _) = of_hash(&bytes).with(of_hash(&bytes));
            prop_assert!(Items(&after).count() <= 2 * bytes.len());
        }
    }

    #[test]
    fn a_large_hash_is_a_table_as_in_redis() {
        let of = |count: usize, bytes: usize| {
            let value = vec![b'x'; bytes];
            let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            let all = packed(names.iter().flat_map(|name| [name.as_bytes(), &value]));
            let entry = Entry::of_kind(Kind::Hash, b"key", &all);
            encoding(&entry, FoundKey::default()).name
        };
        assert_eq!(of(512, 64), "listpack");
        assert_eq!(of(513, 64), "hashtable");
        assert_eq!(of(1, 65), "hashtable");
    }
}
