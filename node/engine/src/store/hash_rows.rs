//! A hash as procedures read and edit it: one value while it is small, and rows of a table when it
//! is large.

use super::change::{Change, RowChange};
use super::run_context::{RunContext, kept};
use super::{Found, Table};
use crate::value::entry::Entry;
use crate::value::kind::Encoding;
use crate::value::outcome::{Failure, Value};
use crate::value::types::hash::{Hash, PACKED_FIELDS, encoding_of, put};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// An answer of so many bytes is allowed even if no value may be so large.
const ANSWER_LEAST: usize = 1 << 20;

/// How Redis would store a hash that is a table here.
pub(crate) fn encoding_of_rows(table: &Table) -> Encoding {
    let rows = table.rows_from(0).map(|row| (row.key(), row.value()));
    encoding_of(table.len() <= PACKED_FIELDS, rows)
}

/// The most bytes of an answer.
pub(crate) fn answer_max(cx: &RunContext) -> usize {
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
    pub(crate) fn of(found: Found<'a>, cx: &RunContext) -> Self {
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
    pub(crate) fn edited(
        self,
        edit: Edit<'_>,
        cx: &RunContext,
    ) -> (usize, Result<Change, Failure>) {
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
fn edited_value(entry: Option<&Entry>, edit: Edit<'_>, cx: &RunContext) -> (usize, Change) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::types::hash::{Items, encoding, packed};
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
