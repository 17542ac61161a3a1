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

use crate::value::entry::Entry;
use crate::value::kind::Encoding;
use crate::value::outcome::Value;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Redis keeps a hash packed up to so many fields, and fields and values of so many bytes.
pub(crate) const PACKED_FIELDS: usize = 512;
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
pub(crate) struct Hash<'a>(pub(crate) Items<'a>);

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

    pub(crate) fn has_at_most(self, most: usize) -> bool {
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

/// How Redis would store a hash with these fields. `few`: their number allows packing.
pub(crate) fn encoding_of<'a>(
    few: bool,
    mut fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Encoding {
    let small = |item: &[u8]| item.len() <= PACKED_BYTES;
    if few && fields.all(|(field, value)| small(field) && small(value)) {
        Encoding::Packed
    } else {
        Encoding::Table
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
