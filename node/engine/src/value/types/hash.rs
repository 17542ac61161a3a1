//! Hashes: fields, each with a value, and with a deadline if it expires (`value/dated.rs`).

use super::{Collection, EachField, Layout, Packing, Type, TypeEvents};
use crate::value::dated::{self, DatedFields, FieldDeadline};
use crate::value::items::{Pairs, is_same};
use crate::value::kind::Encoding;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) static HASH: Type = Type {
    name: "hash",
    level: 0,
    encodings: &[PACKED, TABLE],
    events: TypeEvents {
        class: b'h',
        put: "hset",
        removed: "hdel",
    },
    layout: Layout::Hashed(&Collection {
        packing: &ValuedFields,
        packs_small: true,
        encoding,
        order: None,
        shown: |value| Cow::Borrowed(value),
    }),
};

const PACKED: Encoding = Encoding::new(3, "listpack");
const TABLE: Encoding = Encoding::new(4, "hashtable");

/// Redis keeps a hash packed up to this many fields, and fields and values of this many bytes.
const PACKED_FIELDS: usize = 512;
const PACKED_BYTES: usize = 64;

/// How Redis would store a hash with these fields.
fn encoding(count: usize, fields: &mut EachField<'_>) -> Encoding {
    if count > PACKED_FIELDS {
        return TABLE;
    }
    let small = |item: &[u8]| item.len() <= PACKED_BYTES;
    for (field, value) in fields {
        if !small(field) || !small(value) {
            return TABLE;
        }
    }
    PACKED
}

/// One field after the other, each with its value.
struct ValuedFields;

const fn pairs(packed: &[u8]) -> Pairs<'_> {
    Pairs::of(packed, true)
}

/// Whether no field expires, before and after fields are set.
fn is_undated(packed: &[u8], timing: FieldDeadline) -> bool {
    let dates = matches!(timing, FieldDeadline::At(deadline) if deadline != 0);
    !dates && !dated::is_dated(packed)
}

impl Packing for ValuedFields {
    fn is_valued(&self) -> bool {
        true
    }

    fn items<'a>(&self, packed: &'a [u8]) -> Cow<'a, [u8]> {
        if dated::is_dated(packed) {
            dated::undated(packed).into()
        } else {
            packed.into()
        }
    }

    fn len(&self, packed: &[u8]) -> usize {
        DatedFields::of(packed).count()
    }

    fn get<'a>(&self, packed: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
        self.dated(packed, field).map(|(value, _)| value)
    }

    fn dated<'a>(&self, packed: &'a [u8], field: &[u8]) -> Option<(&'a [u8], u64)> {
        if dated::is_dated(packed) {
            let mut all = DatedFields::of(packed);
            all.find_map(|(name, value, at)| is_same(name, field).then_some((value, at)))
        } else {
            Some((pairs(packed).get(field)?, 0))
        }
    }

    fn with(&self, packed: &[u8], given: Pairs<'_>, timing: FieldDeadline) -> (Vec<u8>, usize) {
        if is_undated(packed, timing) {
            pairs(packed).with(given)
        } else {
            dated::with(packed, given, timing)
        }
    }

    fn with_one(
        &self,
        packed: &[u8],
        (field, value): (&[u8], &[u8]),
        timing: FieldDeadline,
    ) -> (Vec<u8>, usize) {
        if is_undated(packed, timing) {
            return pairs(packed).with_one(field, value);
        }
        let mut one = Vec::with_capacity(field.len() + value.len() + 8);
        pairs(&[]).put(&mut one, field, value);
        dated::with(packed, pairs(&one), timing)
    }

    fn with_deadlines(&self, packed: &[u8], dates: &BTreeMap<&[u8], u64>) -> Vec<u8> {
        dated::with_deadlines(packed, dates)
    }

    fn without(&self, packed: &[u8], fields: &BTreeSet<&[u8]>) -> (Vec<u8>, usize) {
        if dated::is_dated(packed) {
            dated::only(packed, |(field, ..)| !fields.contains(field))
        } else {
            pairs(packed).without(fields)
        }
    }
}
