//! Hashes: fields with their values, in one run of bytes.
//!
//! ```text
//!   field value field value ...        each: its length, 7 bits a byte, and its bytes
//! ```
//!
//! A small hash is one value, so it is logged, copied, moved, expired and evicted as strings are. A
//! change copies it whole. That would be too much for a large one, so a hash that grows beyond
//! a limit becomes a table: a row for each field (`store/fields.rs`). It stays one for as long as it
//! exists. Lists of fields, and fields with the values to give them, travel in the same form
//! as small hashes.

use crate::command::action::{Change, Context, RowChange, kept};
use crate::command::operation::{Encoding, Failure, Value};
use crate::store::{Found, Table};
use crate::value::entry::Entry;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// An answer of so many bytes is allowed even if no value may be so large.
const ANSWER_LEAST: usize = 1 << 20;

/// Redis keeps a hash packed up to so many fields, and fields and values of so many bytes.
const PACKED_FIELDS: usize = 512;
const PACKED_BYTES: usize = 64;

/// What the lengths of a field and its value take at most.
const LENGTHS: usize = 10;

/// Appends a run of bytes.
pub(crate) fn put(out: &mut Vec<u8>, item: &[u8]) {
    let mut left = item.len();
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    out.extend_from_slice(item);
}

/// Runs of bytes in one.
pub(crate) fn packed<'a>(items: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut out = Vec::new();
    items.for_each(|item| put(&mut out, item));
    out.into()
}

/// Runs of bytes that were put one after the other. What a peer sent wrong ends them early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Items<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            length |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                self.0 = &[];
                return None;
            }
        }
        let (item, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(item)
    }
}

/// Fields with their values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hash<'a>(Items<'a>);

impl<'a> Hash<'a> {
    /// What an entry holds. An absent one is empty.
    pub(crate) fn of(entry: Option<&'a Entry>) -> Self {
        Self::in_bytes(entry.map_or(&[], Entry::value))
    }

    /// What these bytes hold.
    pub(crate) const fn in_bytes(bytes: &'a [u8]) -> Self {
        Self(Items(bytes))
    }

    /// How many bytes it takes.
    pub(crate) const fn bytes(self) -> usize {
        self.0.0.len()
    }

    /// How many fields it has.
    pub(crate) fn len(self) -> usize {
        self.count()
    }

    /// The value of a field.
    pub(crate) fn get(mut self, field: &[u8]) -> Option<&'a [u8]> {
        self.find_map(|(name, value)| (name == field).then_some(value))
    }

    /// The same with these fields, and how many of them are new. If a field is given twice, the
    /// later value counts.
    pub(crate) fn with(self, given: Hash<'_>) -> (Vec<u8>, usize) {
        if given.has_at_most(1)
            && let Some((field, value)) = { given }.next()
        {
            return self.with_one(field, value);
        }
        let mut out = Vec::with_capacity(self.bytes() + given.bytes());
        let mut added = 0;
        // Each value, and whether it was put.
        let mut values: BTreeMap<&[u8], (&[u8], bool)> = given
            .map(|(field, value)| (field, (value, false)))
            .collect();
        for (field, value) in self {
            put(&mut out, field);
            let given = values.get_mut(field).map(|(value, is_put)| {
                *is_put = true;
                *value
            });
            put(&mut out, given.unwrap_or(value));
        }
        for (field, _) in given {
            if let Some((value, is_put)) = values.get_mut(field)
                && !std::mem::replace(is_put, true)
            {
                added += 1;
                put(&mut out, field);
                put(&mut out, value);
            }
        }
        (out, added)
    }

    /// The same with this field. What stands before and behind its value is copied in one go.
    pub(crate) fn with_one(self, field: &[u8], value: &[u8]) -> (Vec<u8>, usize) {
        let all = self.0.0;
        let mut out = Vec::with_capacity(all.len() + field.len() + value.len() + LENGTHS);
        let (mut items, mut whole) = (self.0, 0);
        while let Some(name) = items.next() {
            let begin = all.len() - items.0.len();
            if items.next().is_none() {
                break;
            }
            whole = all.len() - items.0.len();
            if name == field {
                out.extend_from_slice(&all[..begin]);
                put(&mut out, value);
                out.extend_from_slice(&all[whole..]);
                return (out, 0);
            }
        }
        out.extend_from_slice(&all[..whole]);
        put(&mut out, field);
        put(&mut out, value);
        (out, 1)
    }

    /// The same without these fields, and how many there were.
    pub(crate) fn without<'f>(self, fields: impl Iterator<Item = &'f [u8]>) -> (Vec<u8>, usize) {
        let fields: BTreeSet<&[u8]> = fields.collect();
        let mut out = Vec::with_capacity(self.bytes());
        let mut removed = 0;
        for (field, value) in self {
            if fields.contains(field) {
                removed += 1;
            } else {
                put(&mut out, field);
                put(&mut out, value);
            }
        }
        (out, removed)
    }

    fn has_at_most(self, most: usize) -> bool {
        self.take(most + 1).count() <= most
    }
}

impl<'a> Iterator for Hash<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        Some((self.0.next()?, self.0.next()?))
    }
}

/// How Redis would store a hash.
pub(crate) fn encoding(value: &[u8]) -> Encoding {
    let hash = Hash::in_bytes(value);
    encoding_of(hash.has_at_most(PACKED_FIELDS), hash)
}

/// The same of one that is a table here.
pub(crate) fn encoding_of_rows(table: &Table) -> Encoding {
    let rows = table.rows_from(0).map(|row| (row.key(), row.value()));
    encoding_of(table.len() <= PACKED_FIELDS, rows)
}

fn encoding_of<'a>(few: bool, mut fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Encoding {
    let small = |item: &[u8]| item.len() <= PACKED_BYTES;
    if few && fields.all(|(field, value)| small(field) && small(value)) {
        Encoding::Packed
    } else {
        Encoding::Table
    }
}

/// The most bytes of an answer.
pub(crate) fn answer_max(cx: &Context) -> usize {
    cx.value_bytes_max.max(ANSWER_LEAST)
}

/// A hash as a procedure reads it.
#[derive(Clone, Copy)]
pub(crate) enum View<'a> {
    /// In one value, if there is any.
    Packed(Option<&'a Entry>),
    /// In rows, at a moment of the partition's clock. Overdue rows do not count.
    Table(&'a Table, u64),
}

impl<'a> View<'a> {
    /// What a key holds. An absent hash is empty.
    pub(crate) fn of(found: Found<'a>, cx: &Context) -> Self {
        match found.table {
            Some(table) => Self::Table(table, cx.clock),
            None => Self::Packed(found.entry),
        }
    }

    /// How many fields it has. Some may be overdue.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Packed(entry) => Hash::of(entry).len(),
            Self::Table(table, _) => table.len(),
        }
    }

    /// The value of a field.
    pub(crate) fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        self.dated(field).map(|(value, _)| value)
    }

    /// The value of a field, and when it expires; 0: never.
    pub(crate) fn dated(self, field: &[u8]) -> Option<(&'a [u8], u64)> {
        match self {
            Self::Packed(entry) => Some((Hash::of(entry).get(field)?, 0)),
            Self::Table(table, clock) => {
                let row = table.row(field).filter(|row| !row.overdue(clock))?;
                Some((row.value(), row.deadline()))
            }
        }
    }

    /// All fields with their values.
    pub(crate) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.pairs_from(0)
    }

    /// The same, in a table those from an order on.
    pub(crate) fn pairs_from(self, order: u64) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (packed, table) = match self {
            Self::Packed(entry) => (Some(Hash::of(entry)), None),
            Self::Table(table, clock) => {
                let rows = table.rows_from(order);
                (None, Some(rows.filter(move |row| !row.overdue(clock))))
            }
        };
        let rows = table.into_iter().flatten();
        let rows = rows.map(|row| (row.key(), row.value()));
        packed.into_iter().flatten().chain(rows)
    }

    /// All fields with their values in one run of bytes. `None`: it is absent.
    ///
    /// # Errors
    /// They are too large for an answer.
    pub(crate) fn all(self, most: usize) -> Result<Option<Value>, Failure> {
        match self {
            Self::Packed(entry) => Ok(entry.map(Value::of)),
            Self::Table(table, _) if table.content_bytes() > most => Err(Failure::TooLarge),
            Self::Table(table, _) => {
                let mut out = Vec::with_capacity(table.content_bytes());
                for (field, value) in self.pairs() {
                    put(&mut out, field);
                    put(&mut out, value);
                }
                Ok(Some(Value::from(&out[..])))
            }
        }
    }

    /// How a change of fields changes the key, and how many fields come or go.
    pub(crate) fn edited(self, edit: Edit<'_>, cx: &Context) -> (usize, Result<Change, Failure>) {
        if edit.bytes() > cx.value_bytes_max {
            return (0, Err(Failure::TooLarge));
        }
        let (changed, change) = match self {
            Self::Packed(entry) => edited_value(entry, edit, cx),
            Self::Table(table, clock) => edited_table(table, clock, edit),
        };
        (changed, Ok(change))
    }
}

/// A hash is logged whole if more than this part of it changes, or more than so many fields.
const PART_OF_WHOLE: usize = 2;
const FIELDS_MAX: usize = 4;

/// Changes a hash that is one value, or absent.
fn edited_value(entry: Option<&Entry>, edit: Edit<'_>, cx: &Context) -> (usize, Change) {
    let hash = Hash::of(entry);
    let fields = changed_fields(entry, &edit);
    // Fields that expire are rows.
    let mut dates = BTreeMap::new();
    let (after, changed) = match edit {
        Edit::None => return (0, Change::None),
        Edit::Set(given, timing) => {
            if let Timing::At(deadline) = timing {
                dates.extend({ given }.map(|(field, _)| (field, deadline)));
            }
            hash.with(given)
        }
        Edit::SetOne(field, value) => hash.with_one(field, &value),
        Edit::Date(fields) => {
            dates.extend(fields.into_iter().filter(|(_, deadline)| *deadline != 0));
            if dates.is_empty() {
                return (0, Change::None);
            }
            (hash.0.0.to_vec(), 0)
        }
        Edit::Delete(fields) => match hash.without(fields.into_iter()) {
            (_, 0) => return (0, Change::None),
            (after, removed) => (after, removed),
        },
    };
    let deadline = kept(entry, cx);
    let change = if after.is_empty() {
        Change::Delete
    } else if after.len() <= cx.hash_bytes_max && dates.is_empty() {
        Change::Hash {
            fields: fields.unwrap_or_default(),
            packed: after.into(),
            deadline,
        }
    } else {
        let row = |(field, value): (&[u8], &[u8])| {
            let deadline = dates.get(field).copied().unwrap_or_default();
            Entry::of_row(field, value, deadline)
        };
        Change::Table {
            rows: Hash::in_bytes(&after).map(row).collect(),
            deadline,
        }
    };
    (changed, change)
}

/// The fields that a change gives values to, if they are few and small beside the hash.
fn changed_fields(entry: Option<&Entry>, edit: &Edit<'_>) -> Option<Vec<Entry>> {
    let whole = entry?.value().len();
    let fits = edit.bytes() <= whole / PART_OF_WHOLE;
    let row = |(field, value): (&[u8], &[u8])| Entry::of_row(field, value, 0);
    match edit {
        _ if !fits => None,
        Edit::Set(given, Timing::Never | Timing::Keep) if given.has_at_most(FIELDS_MAX) => {
            Some({ *given }.map(row).collect())
        }
        Edit::SetOne(field, value) => Some(vec![row((field, value))]),
        Edit::None | Edit::Set(..) | Edit::Date(_) | Edit::Delete(_) => None,
    }
}

/// Changes a hash that is a table.
fn edited_table(table: &Table, clock: u64, edit: Edit<'_>) -> (usize, Change) {
    let held = |field: &[u8]| table.row(field).filter(|row| !row.overdue(clock));
    let (mut changed, mut rows) = (0, Vec::new());
    match edit {
        Edit::None => {}
        Edit::Set(given, timing) => {
            let mut set = |(field, value): (&[u8], &[u8])| {
                let old = held(field);
                changed += usize::from(old.is_none());
                let deadline = match timing {
                    Timing::Never => 0,
                    Timing::Keep => old.map_or(0, Entry::deadline),
                    Timing::At(deadline) => deadline,
                };
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
            let found = fields.into_iter().filter(|field| held(field).is_some());
            rows.extend(found.map(|field| RowChange::Delete(Bytes::copy_from_slice(field))));
            changed = rows.len();
            if changed == table.len() {
                return (changed, Change::Delete);
            }
        }
    }
    let change = if rows.is_empty() {
        Change::None
    } else {
        Change::Rows(rows)
    };
    (changed, change)
}

/// How a procedure changes a hash.
pub(crate) enum Edit<'a> {
    /// Not at all.
    None,
    /// These fields get these values. If one is given twice, the later value counts.
    Set(Hash<'a>, Timing),
    /// This field gets this value, and keeps its deadline.
    SetOne(&'a [u8], Vec<u8>),
    /// These fields get these deadlines, if they exist; 0: never.
    Date(Vec<(&'a [u8], u64)>),
    /// These fields are deleted.
    Delete(Vec<&'a [u8]>),
}

/// When fields that are set expire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    Never,
    /// As before.
    Keep,
    At(u64),
}

impl Edit<'_> {
    /// Bytes that it writes.
    fn bytes(&self) -> usize {
        match self {
            Self::None | Self::Delete(_) | Self::Date(_) => 0,
            Self::Set(given, _) => given.bytes(),
            Self::SetOne(field, value) => field.len() + value.len(),
        }
    }
}

/// Which part of a hash is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Fields and values.
    Whole,
    /// Fields.
    Fields,
    /// Values.
    Values,
}

impl Part {
    /// What is answered of a hash in one run of bytes, in order. Of a whole one, each field is
    /// followed by its value.
    pub fn items(self, bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
        let (skip, step) = match self {
            Self::Whole => (0, 1),
            Self::Fields => (0, 2),
            Self::Values => (1, 2),
        };
        Items(bytes).skip(skip).step_by(step)
    }
}

/// A hash as a reply, shared with the store that it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Fields {
    /// `None`: the key is absent.
    value: Option<Value>,
    part: Part,
}

impl Fields {
    pub(crate) const fn new(value: Option<Value>, part: Part) -> Self {
        Self { value, part }
    }

    /// What is answered.
    #[must_use]
    pub const fn part(&self) -> Part {
        self.part
    }

    /// The items of that part, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.part.items(self.value.as_deref().unwrap_or_default())
    }

    /// About how many bytes it takes by itself.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.value.as_deref().map_or(0, <[u8]>::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(most: usize) -> impl Strategy<Value = Pairs> {
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

    fn bytes_of(pairs: &Pairs) -> Bytes {
        packed(pairs.iter().flat_map(|(f, v)| [&f[..], &v[..]]))
    }

    fn map_of(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pairs: Vec<_> = Hash::in_bytes(bytes)
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
                let view = Hash::in_bytes(&hash);
                if deletes {
                    let fields = packed(pairs.iter().map(|(f, _)| &f[..]));
                    let (after, removed) = view.without(Items(&fields));
                    pairs.iter().for_each(|(f, _)| _ = map.remove(f));
                    prop_assert_eq!(removed, before - map.len());
                    hash = after;
                } else {
                    let (after, added) = view.with(Hash::in_bytes(&given));
                    map.extend(pairs);
                    prop_assert_eq!(added, map.len() - before);
                    hash = after;
                }
                prop_assert_eq!(map_of(&hash), map.clone());
                let hash = Hash::in_bytes(&hash);
                prop_assert_eq!(hash.len(), map.len());
                for (field, value) in &map {
                    prop_assert_eq!(hash.get(field), Some(&value[..]));
                }
                prop_assert_eq!(hash.get(b"never"), None);
            }
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Items(&bytes).count() <= bytes.len());
            let (after, _) = Hash::in_bytes(&bytes).with(Hash::in_bytes(&bytes));
            prop_assert!(Items(&after).count() <= 2 * bytes.len());
        }
    }

    #[test]
    fn a_large_hash_is_a_table_as_in_redis() {
        let of = |count: usize, bytes: usize| {
            let value = vec![b'x'; bytes];
            let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            encoding(&packed(
                names.iter().flat_map(|name| [name.as_bytes(), &value]),
            ))
        };
        assert_eq!(of(512, 64), Encoding::Packed);
        assert_eq!(of(513, 64), Encoding::Table);
        assert_eq!(of(1, 65), Encoding::Table);
    }
}
