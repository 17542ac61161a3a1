//! The types of values. Each has a descriptor in a file of its own: how it lies while it is small
//! and when it is large, what an edit does to it, and what Redis calls it and its events.
//!
//! Everything that stores, logs, copies, moves or tells of values works on what a descriptor says:
//! on one value, or on rows. So a new type is a file here, one with its commands, and their
//! registrations ([`TYPES`], [`Kind`], `command/registry.rs`).

pub(crate) mod hash;
pub(crate) mod list;
mod set;
pub(crate) mod sorted_set;
pub(crate) mod stream;
mod string;

use crate::value::dated::FieldDeadline;
use crate::value::entry::Entry;
use crate::value::items::Pairs;
use crate::value::kind::{Encoding, Kind};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// All types, each at the number of its kind.
static TYPES: [&Type; Kind::ALL.len()] = [
    &string::STRING,
    &hash::HASH,
    &set::SET,
    &sorted_set::SORTED_SET,
    &list::LIST,
    &stream::STREAM,
];

/// A type of values.
pub(crate) struct Type {
    /// Redis's name for it.
    pub(crate) name: &'static str,
    /// From this level of the table on, there may be such values.
    pub(crate) level: u16,
    /// How Redis may store it.
    pub(crate) encodings: &'static [Encoding],
    /// How messages to subscribers of Redis call its changes.
    pub(crate) events: TypeEvents,
    /// How it lies in a store.
    pub(crate) layout: Layout,
}

/// How messages to subscribers of Redis call changes of a value.
#[derive(Debug, Clone, Copy)]
pub struct TypeEvents {
    /// The letter of its class in `notify-keyspace-events`.
    pub class: u8,
    /// The name if something was written, and no more is known of that.
    pub put: &'static str,
    /// The same if a field was removed.
    pub removed: &'static str,
}

/// How a value lies in a store.
pub(crate) enum Layout {
    /// As one value. The function says how Redis would store it.
    Value(fn(&[u8]) -> Encoding),
    /// As fields, which are packed into one value while they are small together, and rows by the
    /// hashes of the fields when they are not.
    Hashed(&'static Collection),
    /// As elements in an order of their own. They are rows, or one value while they are small
    /// together. The type says how both are edited (`store/runs.rs`, `store/stream_view.rs`).
    Ordered(&'static OrderedRows),
}

/// What is peculiar to a type that consists of elements in an order.
pub(crate) struct OrderedRows {
    /// The order of its rows.
    pub(crate) order: RowOrder,
    /// How Redis would store this many bytes of elements.
    pub(crate) encoding: fn(usize) -> Encoding,
}

/// What is peculiar to a type that consists of fields.
pub(crate) struct Collection {
    /// How it is packed.
    pub(crate) packing: &'static dyn Packing,
    /// Whether one value may be larger if its fields are small.
    pub(crate) packs_small: bool,
    /// How Redis would store fields with these values, from their number.
    pub(crate) encoding: fn(usize, &mut EachField<'_>) -> Encoding,
    /// The order of its rows, if they have one besides that of the hashes of their fields.
    pub(crate) order: Option<&'static RowOrder>,
    /// The value of a field as clients see it.
    pub(crate) shown: fn(&[u8]) -> Cow<'_, [u8]>,
}

/// An order of rows (`store/ranked.rs`).
#[derive(Debug)]
pub(crate) struct RowOrder {
    /// Which of two rows comes first. Rows of different fields are never equal.
    pub(crate) compare: fn(&Entry, &Entry) -> Ordering,
    /// The order of most rows as a number: it is not less than that of a row before.
    pub(crate) number: fn(&Entry) -> u64,
    /// How many elements a row has: 1 at least.
    pub(crate) weight: fn(&Entry) -> usize,
    /// Whether it compares values, too. They are short then.
    pub(crate) valued: bool,
    /// Whether most rows come at an end, where they are looked for first.
    pub(crate) grows_at_ends: bool,
}

/// Fields with their values.
pub(crate) type EachField<'a> = dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a;

/// How fields are packed into one value. No bytes are an empty collection. A copy may be told of
/// some fields alone, so what it makes of them one by one must be what `with` makes of all.
pub(crate) trait Packing: Sync {
    /// Whether a field has a value.
    fn is_valued(&self) -> bool;

    /// The fields, with their values if they have any, in order. Unless a type says otherwise, they
    /// are packed as they are.
    fn items<'a>(&self, packed: &'a [u8]) -> Cow<'a, [u8]> {
        packed.into()
    }

    /// How many fields there are.
    fn len(&self, packed: &[u8]) -> usize {
        Pairs::of(packed, self.is_valued()).count()
    }

    /// The value of a field.
    fn get<'a>(&self, packed: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
        Pairs::of(packed, self.is_valued()).get(field)
    }

    /// The value of a field, and when it expires; 0: never.
    fn dated<'a>(&self, packed: &'a [u8], field: &[u8]) -> Option<(&'a [u8], u64)> {
        Some((self.get(packed, field)?, 0))
    }

    /// The same with these fields, and how many of them are new. If a field is given twice, the
    /// later value counts. Only a type with `with_deadlines` keeps deadlines.
    fn with(&self, packed: &[u8], given: Pairs<'_>, timing: FieldDeadline) -> (Vec<u8>, usize);

    /// The same with one field.
    fn with_one(
        &self,
        packed: &[u8],
        field: (&[u8], &[u8]),
        timing: FieldDeadline,
    ) -> (Vec<u8>, usize);

    /// The same with these deadlines of fields that are there. No command gives fields of other
    /// types deadlines.
    fn with_deadlines(&self, packed: &[u8], _: &BTreeMap<&[u8], u64>) -> Vec<u8> {
        packed.to_vec()
    }

    /// The same without these fields, and how many there were. Nothing, if none is left.
    fn without(&self, packed: &[u8], fields: &BTreeSet<&[u8]>) -> (Vec<u8>, usize) {
        Pairs::of(packed, self.is_valued()).without(fields)
    }
}

impl Kind {
    const fn of_type(self) -> &'static Type {
        TYPES[self as usize]
    }

    /// Redis's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.of_type().name
    }

    /// How messages to subscribers of Redis call its changes.
    #[doc(hidden)]
    #[must_use]
    pub const fn events(self) -> TypeEvents {
        self.of_type().events
    }

    /// From this level of the table on, there may be such values.
    pub(crate) const fn level(self) -> u16 {
        self.of_type().level
    }

    /// How it lies in a store.
    pub(crate) const fn layout(self) -> &'static Layout {
        &self.of_type().layout
    }

    /// What is peculiar to it, if it consists of fields.
    pub(crate) const fn collection(self) -> Option<&'static Collection> {
        match self.layout() {
            Layout::Value(_) | Layout::Ordered(_) => None,
            Layout::Hashed(collection) => Some(collection),
        }
    }

    /// Whether it has elements, and may lie in rows. Without any, its key is absent.
    pub(crate) const fn has_rows(self) -> bool {
        !matches!(self.layout(), Layout::Value(_))
    }

    /// The order of its rows, if they have one.
    pub(crate) fn row_order(self) -> Option<&'static RowOrder> {
        match self.layout() {
            Layout::Value(_) => None,
            Layout::Hashed(collection) => collection.order,
            Layout::Ordered(ordered) => Some(&ordered.order),
        }
    }

    /// The fields of such a value, with their values if they have any.
    pub(crate) fn pairs(self, items: &[u8]) -> Pairs<'_> {
        let valued = self.collection().is_none_or(|it| it.packing.is_valued());
        Pairs::of(items, valued)
    }

    /// The encoding with this number, and the kind that it is one of.
    pub(crate) fn of_encoding(number: i64) -> Option<(Self, Encoding)> {
        Self::ALL.into_iter().find_map(|kind| {
            let mut all = kind.of_type().encodings.iter();
            let encoding = all.find(|encoding| encoding.number == number)?;
            Some((kind, *encoding))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encoding_has_a_number_of_its_own() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_number(kind.number()), Some(kind));
            for encoding in kind.of_type().encodings {
                let found = Kind::of_encoding(encoding.number);
                assert_eq!(found, Some((kind, *encoding)));
            }
        }
    }
}
