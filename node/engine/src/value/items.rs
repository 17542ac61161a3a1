//! Fields, each with a value or without, in one run of bytes.
//!
//! ```text
//!   field value field value ...        each: its length, 7 bits a byte, and its bytes
//!   field field ...                    the same without values
//! ```
//!
//! A small collection is one value, so it is logged, copied, moved, expired and evicted as strings
//! are. A change copies it whole. That would be too much for a large one, so a collection that
//! grows beyond a limit becomes a table: a row for each field (`store/fields.rs`). Once it has
//! become much smaller, it is one value again. Lists of fields, and fields with the values to give
//! them, travel in the same form.

use crate::value::outcome::Value;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

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

/// Whether a field has this name. Fields of one collection mostly begin alike and are as long, so
/// the last byte tells most of them apart without a call.
#[inline]
pub(crate) fn is_same(name: &[u8], field: &[u8]) -> bool {
    name.len() == field.len() && name.last() == field.last() && name == field
}

/// What a run of bytes takes with its length.
pub(crate) const fn put_bytes(item: &[u8]) -> usize {
    let bits = usize::BITS - item.len().leading_zeros();
    let length = if bits == 0 { 1 } else { bits.div_ceil(7) };
    length as usize + item.len()
}

/// Runs of bytes in one, which takes exactly as many bytes: otherwise it would be allocated more
/// than once.
pub(crate) fn packed<'a>(items: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
    let mut out = Vec::with_capacity(items.clone().map(put_bytes).sum());
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

/// Fields with their values. Without values, they count as empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pairs<'a> {
    items: Items<'a>,
    valued: bool,
}

impl<'a> Pairs<'a> {
    /// What these bytes hold, with values or without.
    pub(crate) const fn of(bytes: &'a [u8], valued: bool) -> Self {
        let items = Items(bytes);
        Self { items, valued }
    }

    /// How many bytes it takes.
    pub(crate) const fn bytes(self) -> usize {
        self.items.0.len()
    }

    /// Appends a field in the same form.
    pub(crate) fn put(self, out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
        put(out, field);
        if self.valued {
            put(out, value);
        }
    }

    /// The value of a field.
    pub(crate) fn get(mut self, field: &[u8]) -> Option<&'a [u8]> {
        self.find_map(|(name, value)| is_same(name, field).then_some(value))
    }

    /// The same with these fields, and how many of them are new. If a field is given twice, the
    /// later value counts.
    pub(crate) fn with(self, given: Pairs<'_>) -> (Vec<u8>, usize) {
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
            let given = values.get_mut(field).map(|(value, is_put)| {
                *is_put = true;
                *value
            });
            self.put(&mut out, field, given.unwrap_or(value));
        }
        for (field, _) in given {
            if let Some((value, is_put)) = values.get_mut(field)
                && !std::mem::replace(is_put, true)
            {
                added += 1;
                self.put(&mut out, field, value);
            }
        }
        (out, added)
    }

    /// The same with this field, in exactly as many bytes. What stands before and behind its value
    /// is copied in one go.
    pub(crate) fn with_one(self, field: &[u8], value: &[u8]) -> (Vec<u8>, usize) {
        self.with_one_behind(&[], field, value)
    }

    /// The same behind other bytes.
    pub(crate) fn with_one_behind(
        self,
        begin_with: &[u8],
        field: &[u8],
        value: &[u8],
    ) -> (Vec<u8>, usize) {
        let all = self.items.0;
        let (mut items, mut whole) = (self.items, 0);
        let mut found = None;
        while let Some(name) = items.next() {
            let begin = all.len() - items.0.len();
            if self.valued && items.next().is_none() {
                break;
            }
            whole = all.len() - items.0.len();
            if is_same(name, field) {
                found = Some(begin);
                break;
            }
        }
        let value_bytes = if self.valued { put_bytes(value) } else { 0 };
        // Before the value, and behind it.
        let (before, behind) = match found {
            Some(begin) => (&all[..begin], &all[whole..]),
            None => (&all[..whole], &[][..]),
        };
        let field_bytes = found.map_or(put_bytes(field), |_| 0);
        let bytes = before.len() + field_bytes + value_bytes + behind.len();
        let mut out = Vec::with_capacity(begin_with.len() + bytes);
        out.extend_from_slice(begin_with);
        out.extend_from_slice(before);
        if found.is_none() {
            put(&mut out, field);
        }
        if self.valued {
            put(&mut out, value);
        }
        out.extend_from_slice(behind);
        (out, usize::from(found.is_none()))
    }

    /// The same without these fields, and how many there were.
    pub(crate) fn without(self, fields: &BTreeSet<&[u8]>) -> (Vec<u8>, usize) {
        let mut out = Vec::with_capacity(self.bytes());
        let mut removed = 0;
        for (field, value) in self {
            if fields.contains(field) {
                removed += 1;
            } else {
                self.put(&mut out, field, value);
            }
        }
        (out, removed)
    }

    pub(crate) fn has_at_most(self, most: usize) -> bool {
        self.take(most + 1).count() <= most
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let field = self.items.next()?;
        let value = if self.valued { self.items.next()? } else { &[] };
        Some((field, value))
    }
}

/// Which part of a collection is answered, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Fields and values, as a map.
    Whole,
    /// Fields of those that have values, as an array.
    Fields,
    /// Values, as an array.
    Values,
    /// Fields of those that have no values, as a set.
    Members,
    /// Elements, as an array.
    Elements,
}

impl Part {
    /// What is answered of a collection in one run of bytes, in order. Of a whole one, each field
    /// is followed by its value.
    pub fn items(self, bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
        let (skip, step) = match self {
            Self::Whole | Self::Members | Self::Elements => (0, 1),
            Self::Fields => (0, 2),
            Self::Values => (1, 2),
        };
        Items(bytes).skip(skip).step_by(step)
    }
}

/// A collection as a reply, shared with the store that it came from if it may be.
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

    /// A run that is a byte longer than counted would be allocated twice.
    #[test]
    fn runs_of_bytes_take_exactly_what_is_counted() {
        for length in [0, 1, 127, 128, 129, 16_383, 16_384, 16_385] {
            let item = vec![b'x'; length];
            let mut out = Vec::new();
            put(&mut out, &item);
            assert_eq!(out.len(), put_bytes(&item), "{length}");
            for valued in [true, false] {
                let none = Pairs::of(&[], valued);
                let (one, added) = none.with_one(b"field", &item);
                assert_eq!((one.capacity(), added), (one.len(), 1), "{length} {valued}");
                let (same, added) = Pairs::of(&one, valued).with_one(b"field", &item);
                assert_eq!(
                    (same.capacity(), added),
                    (one.len(), 0),
                    "{length} {valued}"
                );
                assert_eq!(same, one);
                let (two, added) = Pairs::of(&one, valued).with_one(b"other", b"value");
                assert_eq!((two.capacity(), added), (two.len(), 1), "{length} {valued}");
                assert_eq!(Pairs::of(&two, valued).count(), 2);
            }
        }
    }
}
