//! Hashes: fields, each with a value.

use super::{Collection, EachField, Layout, Packing, Type, TypeEvents};
use crate::value::items::Pairs;
use crate::value::kind::Encoding;
use std::borrow::Cow;

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

impl Packing for ValuedFields {
    fn is_valued(&self) -> bool {
        true
    }

    fn with(&self, packed: &[u8], given: Pairs<'_>) -> (Vec<u8>, usize) {
        pairs(packed).with(given)
    }

    fn with_one(&self, packed: &[u8], field: &[u8], value: &[u8]) -> (Vec<u8>, usize) {
        pairs(packed).with_one(field, value)
    }
}
