//! Sets: fields without values, which are called members.
//!
//! ```text
//!   2, 4 or 8 ─> integers of this many bytes, in their order   as Redis's intsets
//!   0 ─────────> member member ...                             as soon as one is no integer
//! ```

use super::{Collection, EachField, Layout, Packing, Type, TypeEvents};
use crate::value::dated::FieldDeadline;
use crate::value::integer::integer;
use crate::value::items::{Pairs, put};
use crate::value::kind::Encoding;
use std::borrow::Cow;
use std::collections::BTreeSet;

pub(crate) static SET: Type = Type {
    name: "set",
    level: 0,
    encodings: &[INTEGERS, PACKED, TABLE],
    events: TypeEvents {
        class: b's',
        put: "sadd",
        removed: "srem",
    },
    layout: Layout::Hashed(&Collection {
        packing: &SetMembers,
        packs_small: false,
        encoding,
        order: None,
        shown: |value| Cow::Borrowed(value),
    }),
};

const INTEGERS: Encoding = Encoding::new(5, "intset");
const PACKED: Encoding = Encoding::new(6, "listpack");
const TABLE: Encoding = Encoding::new(7, "hashtable");

/// Redis keeps this many integers packed, and this many members of this many bytes.
const INTEGERS_MAX: usize = 512;
const PACKED_MEMBERS: usize = 128;
const PACKED_BYTES: usize = 64;

/// How Redis would store a set with these members.
fn encoding(count: usize, members: &mut EachField<'_>) -> Encoding {
    if count > INTEGERS_MAX {
        return TABLE;
    }
    let (mut numbers, mut small) = (true, count <= PACKED_MEMBERS);
    for (member, _) in members {
        numbers &= integer(member).is_some();
        small &= member.len() <= PACKED_BYTES;
    }
    match (numbers, small) {
        (true, _) => INTEGERS,
        (false, true) => PACKED,
        (false, false) => TABLE,
    }
}

/// The first byte if members follow as they are.
const AS_THEY_ARE: u8 = 0;

struct SetMembers;

/// What a packed set holds.
enum PackedMembers<'a> {
    /// Integers of this many bytes each.
    Integers(usize, &'a [u8]),
    Items(&'a [u8]),
}

fn lies(packed: &[u8]) -> PackedMembers<'_> {
    match packed.split_first() {
        None => PackedMembers::Integers(2, &[]),
        Some((&AS_THEY_ARE, items)) => PackedMembers::Items(items),
        // A peer that sends another width is wrong, and its bytes are read somehow.
        Some((width, bytes)) => PackedMembers::Integers(usize::from(*width).clamp(1, 8), bytes),
    }
}

/// The integers of this width.
fn numbers(width: usize, bytes: &[u8]) -> impl DoubleEndedIterator<Item = i64> + '_ {
    bytes.chunks_exact(width).map(number)
}

/// One of them. Its last byte has its sign.
fn number(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut whole = [if negative { 0xFF } else { 0 }; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(whole)
}

/// Where an integer is among those of this width, or belongs.
fn place(width: usize, bytes: &[u8], wanted: i64) -> Result<usize, usize> {
    let (mut low, mut high) = (0, bytes.len() / width);
    while low < high {
        let middle = low.midpoint(high);
        let found = number(&bytes[middle * width..][..width]);
        match found.cmp(&wanted) {
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

/// How many bytes an integer takes.
const fn width_of(number: i64) -> usize {
    match number {
        -0x8000..0x8000 => 2,
        -0x8000_0000..0x8000_0000 => 4,
        _ => 8,
    }
}

/// A set of these integers, which are in order.
fn of_numbers(numbers: &[i64]) -> Vec<u8> {
    let (Some(least), Some(most)) = (numbers.first(), numbers.last()) else {
        return Vec::new();
    };
    let width = width_of(*least).max(width_of(*most));
    let mut out = Vec::with_capacity(1 + numbers.len() * width);
    out.push(width as u8);
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes()[..width]);
    }
    out
}

/// A set of these members.
fn of_items(items: &[u8]) -> Vec<u8> {
    if items.is_empty() {
        return Vec::new();
    }
    [&[AS_THEY_ARE], items].concat()
}

/// Integers as members.
fn texts(numbers: impl Iterator<Item = i64>) -> Vec<u8> {
    let (mut out, mut text) = (Vec::new(), itoa::Buffer::new());
    numbers.for_each(|number| put(&mut out, text.format(number).as_bytes()));
    out
}

impl Packing for SetMembers {
    fn is_valued(&self) -> bool {
        false
    }

    fn items<'a>(&self, packed: &'a [u8]) -> Cow<'a, [u8]> {
        match lies(packed) {
            PackedMembers::Integers(width, bytes) => texts(numbers(width, bytes)).into(),
            PackedMembers::Items(items) => items.into(),
        }
    }

    fn len(&self, packed: &[u8]) -> usize {
        match lies(packed) {
            PackedMembers::Integers(width, bytes) => bytes.len() / width,
            PackedMembers::Items(items) => Pairs::of(items, false).count(),
        }
    }

    fn get<'a>(&self, packed: &'a [u8], member: &[u8]) -> Option<&'a [u8]> {
        match lies(packed) {
            PackedMembers::Integers(width, bytes) => {
                place(width, bytes, integer(member)?).ok().map(|_| &[][..])
            }
            PackedMembers::Items(items) => Pairs::of(items, false).get(member),
        }
    }

    fn with(&self, packed: &[u8], given: Pairs<'_>, timing: FieldDeadline) -> (Vec<u8>, usize) {
        if given.has_at_most(1)
            && let Some(one) = { given }.next()
        {
            return self.with_one(packed, one, timing);
        }
        let (mut rest, mut added) = (given, 0);
        let items = match lies(packed) {
            PackedMembers::Items(items) => items.into(),
            PackedMembers::Integers(width, bytes) => {
                let mut all: BTreeSet<i64> = numbers(width, bytes).collect();
                let before = all.len();
                let mut left = rest;
                while let Some((member, _)) = left.next()
                    && let Some(number) = integer(member)
                {
                    all.insert(number);
                    rest = left;
                }
                added = all.len() - before;
                if { rest }.next().is_none() {
                    let all: Vec<i64> = all.into_iter().collect();
                    return (of_numbers(&all), added);
                }
                // From the first on that is no integer, members lie as they are.
                Cow::Owned(texts(all.into_iter()))
            }
        };
        let (items, more) = Pairs::of(&items, false).with(rest);
        (of_items(&items), added + more)
    }

    fn with_one(
        &self,
        packed: &[u8],
        (member, _): (&[u8], &[u8]),
        _: FieldDeadline,
    ) -> (Vec<u8>, usize) {
        let items = match (lies(packed), integer(member)) {
            (PackedMembers::Integers(width, bytes), Some(number)) => {
                let Err(at) = place(width, bytes, number) else {
                    return (packed.to_vec(), 0);
                };
                if matches!(width, 2 | 4 | 8) && width_of(number) <= width {
                    let (before, behind) = bytes.split_at(at * width);
                    let own = number.to_le_bytes();
                    let parts = [&[width as u8][..], before, &own[..width], behind];
                    return (parts.concat(), 1);
                }
                let mut all: Vec<i64> = numbers(width, bytes).collect();
                all.insert(at, number);
                return (of_numbers(&all), 1);
            }
            (PackedMembers::Integers(width, bytes), None) => {
                Cow::Owned(texts(numbers(width, bytes)))
            }
            (PackedMembers::Items(items), _) => items.into(),
        };
        Pairs::of(&items, false).with_one_behind(&[AS_THEY_ARE], member, &[])
    }

    fn without(&self, packed: &[u8], members: &BTreeSet<&[u8]>) -> (Vec<u8>, usize) {
        match lies(packed) {
            PackedMembers::Items(items) => {
                let (items, removed) = Pairs::of(items, false).without(members);
                (of_items(&items), removed)
            }
            PackedMembers::Integers(width, bytes) => {
                let gone: BTreeSet<i64> = members.iter().filter_map(|it| integer(it)).collect();
                let left = numbers(width, bytes).filter(|number| !gone.contains(number));
                let left: Vec<i64> = left.collect();
                let removed = bytes.len() / width - left.len();
                (of_numbers(&left), removed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::items::{Items, packed};
    use proptest::prelude::*;

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (-3_i64..4).prop_map(|n| n.to_string().into_bytes()),
            2 => any::<i16>().prop_map(|n| n.to_string().into_bytes()),
            2 => any::<i32>().prop_map(|n| n.to_string().into_bytes()),
            2 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
            1 => Just(b"007".to_vec()),
        ]
    }

    fn members_of(set: &[u8]) -> BTreeSet<Vec<u8>> {
        let items = SetMembers.items(set);
        let all: Vec<_> = Items(&items).map(<[u8]>::to_vec).collect();
        let set: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(set.len(), all.len(), "no member is there twice");
        set
    }

    proptest! {
        #[test]
        fn a_packed_set_is_changed_as_a_set_is(
            changes in prop::collection::vec(
                (prop::collection::vec(member(), 0..6), any::<bool>()),
                0..10,
            )
        ) {
            let (mut set, mut model) = (Vec::new(), BTreeSet::new());
            for (members, deletes) in changes {
                let before = model.len();
                if deletes {
                    let gone = members.iter().map(|member| &member[..]).collect();
                    let (after, removed) = SetMembers.without(&set, &gone);
                    members.iter().for_each(|member| _ = model.remove(member));
                    prop_assert_eq!(removed, before - model.len());
                    set = after;
                } else {
                    let given = packed(members.iter().map(|member| &member[..]));
                    let given = Pairs::of(&given, false);
                    let (after, added) = SetMembers.with(&set, given, FieldDeadline::Never);
                    // A copy may be told of the members one by one.
                    let one_by_one = members.iter().fold(set.clone(), |set, member| {
                        SetMembers.with_one(&set, (member, &[]), FieldDeadline::Never).0
                    });
                    prop_assert_eq!(&after, &one_by_one);
                    model.extend(members);
                    prop_assert_eq!(added, model.len() - before);
                    set = after;
                }
                prop_assert_eq!(set.is_empty(), model.is_empty());
                prop_assert_eq!(members_of(&set), model.clone());
                prop_assert_eq!(SetMembers.len(&set), model.len());
                for member in &model {
                    prop_assert_eq!(SetMembers.get(&set, member), Some(&[][..]));
                }
                prop_assert_eq!(SetMembers.get(&set, b"never"), None);
            }
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let items = SetMembers.items(&bytes).into_owned();
            _ = SetMembers.with(&bytes, Pairs::of(&items, false), FieldDeadline::Never);
            _ = SetMembers.with_one(&bytes, (b"1", &[]), FieldDeadline::Never);
            _ = SetMembers.without(&bytes, &BTreeSet::from([&b"1"[..]]));
            prop_assert!(SetMembers.len(&bytes) <= bytes.len());
        }
    }

    #[test]
    fn integers_take_as_many_bytes_as_the_largest_needs() {
        for (members, bytes) in [
            (&["1", "-2"][..], 1 + 2 * 2),
            (&["1", "32768"], 1 + 2 * 4),
            (&["1", "-2147483649"], 1 + 2 * 8),
            (&["1", "a"], 1 + 2 * 2),
        ] {
            let given = packed(members.iter().map(|member| member.as_bytes()));
            let (set, _) = SetMembers.with(&[], Pairs::of(&given, false), FieldDeadline::Never);
            assert_eq!(set.len(), bytes, "{members:?}");
        }
    }

    #[test]
    fn a_set_is_stored_as_redis_would_store_it() {
        let name = |members: &[String]| {
            let mut all = members.iter().map(|member| (member.as_bytes(), &b""[..]));
            encoding(members.len(), &mut all).name
        };
        let numbers = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let words = |count: usize| (0..count).map(|n| format!("m{n}")).collect::<Vec<_>>();
        assert_eq!(name(&numbers(512)), "intset");
        assert_eq!(name(&numbers(513)), "hashtable");
        assert_eq!(name(&words(128)), "listpack");
        assert_eq!(name(&words(129)), "hashtable");
        assert_eq!(name(&["x".repeat(64)]), "listpack");
        assert_eq!(name(&["x".repeat(65)]), "hashtable");
    }
}
