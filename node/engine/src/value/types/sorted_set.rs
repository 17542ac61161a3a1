//! Sorted sets: members, each with a score, in order of their scores, and of their bytes where
//! these are equal.
//!
//! A score is stored in eight bytes that are ordered as numbers are. So rows and packed members are
//! compared as bytes.

use super::{Collection, EachField, Layout, Packing, RowOrder, Type, TypeEvents};
use crate::value::dated::FieldDeadline;
use crate::value::entry::Entry;
use crate::value::items::{Pairs, is_same, put_bytes};
use crate::value::kind::Encoding;
use doyen_placement::level::SORTED;
use std::borrow::Cow;
use std::collections::BTreeMap;

pub(crate) static SORTED_SET: Type = Type {
    name: "zset",
    level: SORTED,
    encodings: &[PACKED, TABLE],
    events: TypeEvents {
        class: b'z',
        put: "zadd",
        removed: "zrem",
    },
    layout: Layout::Hashed(&Collection {
        packing: &ScoredMembers,
        packs_small: false,
        encoding,
        order: Some(&RowOrder {
            // Mostly a comparison of two numbers.
            compare: |one, other| {
                let order = number_of(one.value()).cmp(&number_of(other.value()));
                order.then_with(|| place(one).cmp(&place(other)))
            },
            number: |row| number_of(row.value()),
            weight: |_| 1,
            grows_at_ends: false,
            valued: true,
        }),
        shown: |score| Cow::Owned(score_text(score_of(score))),
    }),
};

const PACKED: Encoding = Encoding::new(8, "listpack");
const TABLE: Encoding = Encoding::new(9, "skiplist");

/// Redis keeps this many members packed, if they have no more than this many bytes each.
const PACKED_MEMBERS: usize = 128;
const PACKED_BYTES: usize = 64;

/// How Redis would store a sorted set with these members.
fn encoding(count: usize, members: &mut EachField<'_>) -> Encoding {
    if count > PACKED_MEMBERS {
        return TABLE;
    }
    for (member, _) in members {
        if member.len() > PACKED_BYTES {
            return TABLE;
        }
    }
    PACKED
}

/// Where a row is in the order.
fn place(row: &Entry) -> (&[u8], &[u8]) {
    (row.value(), row.key())
}

/// The first bytes of a stored score as a number, in the order of the bytes.
fn number_of(stored: &[u8]) -> u64 {
    stored.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// How many bytes a stored score has.
pub(crate) const SCORE_BYTES: usize = size_of::<u64>();
const SIGN: u64 = 1 << 63;

/// A score as it is stored. It is a number; -0 counts as 0.
pub(crate) fn stored_score(score: f64) -> [u8; SCORE_BYTES] {
    let bits = (score + 0.0).to_bits();
    let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    ordered.to_be_bytes()
}

/// A score that was stored. What a peer sent wrong counts as some number.
pub(crate) fn score_of(stored: &[u8]) -> f64 {
    let mut whole = [0; SCORE_BYTES];
    let length = stored.len().min(SCORE_BYTES);
    whole[..length].copy_from_slice(&stored[..length]);
    let ordered = u64::from_be_bytes(whole);
    let bits = if ordered & SIGN == 0 {
        !ordered
    } else {
        ordered & !SIGN
    };
    f64::from_bits(bits)
}

/// The number that a text gives, as Redis reads it. `None`: it gives none.
pub(crate) fn parse_score(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.trim_start_matches(['+', '-']);
    let is_word = digits.eq_ignore_ascii_case("inf") || digits.eq_ignore_ascii_case("infinity");
    let score: f64 = text.parse().ok()?;
    // A number that is too large or too small is none.
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    let fits = (score.is_finite() || is_word) && (score != 0.0 || is_zero);
    (fits && !score.is_nan()).then_some(score)
}

/// Whole numbers below this size are written without an exponent.
const WHOLE_MAX: f64 = (1_u64 << 52) as f64;

/// A score as Redis writes it: with as few digits as tell it from all others.
pub(crate) fn score_text(score: f64) -> Vec<u8> {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.into();
    }
    if score.fract() == 0.0 && score.abs() < WHOLE_MAX {
        return itoa::Buffer::new().format(score as i64).into();
    }
    let scientific = format!("{score:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // How many zeros follow the digits; negative: how many digits are behind the point.
    let zeros = exponent + 1 - count;
    let text = if zeros >= 0 && exponent.abs() < count + 7 {
        digits + &"0".repeat(usize::try_from(zeros).unwrap_or(0))
    } else if zeros < 0 && (zeros > -7 || exponent.abs() < 4) {
        match usize::try_from(exponent + 1) {
            Ok(whole) if whole > 0 => format!("{}.{}", &digits[..whole], &digits[whole..]),
            _ => {
                let between = usize::try_from(-exponent - 1).unwrap_or(0);
                format!("0.{}{digits}", "0".repeat(between))
            }
        }
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let size = exponent.abs();
        let direction = if exponent < 0 { '-' } else { '+' };
        format!("{first}{point}{rest}e{direction}{size}")
    };
    [sign, &text].concat().into_bytes()
}

/// Members with their scores, in order.
struct ScoredMembers;

const fn pairs(packed: &[u8]) -> Pairs<'_> {
    Pairs::of(packed, true)
}

/// These members, each with its stored score, in order.
fn in_order<'a>(members: impl Iterator<Item = (&'a [u8], &'a [u8])>, bytes: usize) -> Vec<u8> {
    let mut all: Vec<_> = members.collect();
    all.sort_unstable_by_key(|(member, score)| (*score, *member));
    let (mut out, form) = (Vec::with_capacity(bytes), pairs(&[]));
    for (member, score) in all {
        form.put(&mut out, member, score);
    }
    out
}

impl Packing for ScoredMembers {
    fn is_valued(&self) -> bool {
        true
    }

    fn with(&self, packed: &[u8], given: Pairs<'_>, timing: FieldDeadline) -> (Vec<u8>, usize) {
        if given.has_at_most(1)
            && let Some(one) = { given }.next()
        {
            return self.with_one(packed, one, timing);
        }
        let mut all: BTreeMap<&[u8], &[u8]> = pairs(packed).collect();
        let before = all.len();
        all.extend(given);
        let added = all.len() - before;
        (
            in_order(all.into_iter(), packed.len() + given.bytes()),
            added,
        )
    }

    fn with_one(
        &self,
        packed: &[u8],
        (member, score): (&[u8], &[u8]),
        _: FieldDeadline,
    ) -> (Vec<u8>, usize) {
        let (mut rest, mut end) = (pairs(packed), 0);
        // Where it comes, and where it was.
        let (mut place, mut was) = (None, None);
        while let Some((held, of_held)) = rest.next() {
            let begin = std::mem::replace(&mut end, packed.len() - rest.bytes());
            if is_same(held, member) {
                was = Some(begin..end);
            } else if place.is_none() && (score, member) < (of_held, held) {
                place = Some(begin);
            }
        }
        let (place, added) = (place.unwrap_or(end), usize::from(was.is_none()));
        let was = was.unwrap_or(place..place);
        let comes = put_bytes(member) + put_bytes(score);
        let mut out = Vec::with_capacity(end - was.len() + comes);
        // All that comes before it, and behind it, but for what it was.
        out.extend_from_slice(&packed[..place.min(was.start)]);
        out.extend_from_slice(&packed[was.end.min(place)..place]);
        pairs(&[]).put(&mut out, member, score);
        out.extend_from_slice(&packed[place..was.start.max(place)]);
        out.extend_from_slice(&packed[was.end.max(place)..end]);
        (out, added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::items::packed;
    use proptest::prelude::*;

    fn score() -> impl Strategy<Value = f64> {
        let any = any::<f64>().prop_filter("a number", |score| !score.is_nan());
        prop_oneof![(-3_i8..4).prop_map(f64::from), any]
    }

    proptest! {
        #[test]
        fn scores_are_ordered_as_their_bytes(one in score(), other in score()) {
            prop_assert_eq!(score_of(&stored_score(one)), one);
            let order = stored_score(one).cmp(&stored_score(other));
            prop_assert_eq!(Some(order), one.partial_cmp(&other));
        }

        #[test]
        fn a_score_is_written_so_that_it_is_read_again(score in score()) {
            let text = score_text(score);
            prop_assert_eq!(parse_score(&text), Some(score));
        }

        #[test]
        fn a_packed_set_is_kept_in_order(
            changes in prop::collection::vec(
                (prop::collection::vec((0_u8..12, score()), 0..6), any::<bool>()),
                0..10,
            )
        ) {
            let (mut set, mut model) = (Vec::new(), BTreeMap::new());
            for (members, deletes) in changes {
                let before = model.len();
                let stored = members.iter().map(|(m, s)| ([*m], stored_score(*s)));
                let stored: Vec<_> = stored.collect();
                if deletes {
                    let gone = stored.iter().map(|(member, _)| &member[..]).collect();
                    let (after, removed) = ScoredMembers.without(&set, &gone);
                    stored.iter().for_each(|(member, _)| _ = model.remove(member));
                    prop_assert_eq!(removed, before - model.len());
                    set = after;
                } else {
                    let given = packed(stored.iter().flat_map(|(m, s)| [&m[..], &s[..]]));
                    let given = pairs(&given);
                    let (after, added) = ScoredMembers.with(&set, given, FieldDeadline::Never);
                    // A copy may be told of the members one by one.
                    let one_by_one = stored.iter().fold(set.clone(), |set, (member, score)| {
                        ScoredMembers.with_one(&set, (member, score), FieldDeadline::Never).0
                    });
                    prop_assert_eq!(&after, &one_by_one);
                    model.extend(stored);
                    prop_assert_eq!(added, model.len() - before);
                    set = after;
                }
                let mut all: Vec<_> = model.iter().map(|(m, s)| (&s[..], &m[..])).collect();
                all.sort_unstable();
                let held: Vec<_> = pairs(&set).map(|(member, score)| (score, member)).collect();
                prop_assert_eq!(held, all);
            }
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            _ = ScoredMembers.with(&bytes, pairs(&bytes), FieldDeadline::Never);
            _ = ScoredMembers.with_one(&bytes, (b"1", b"2"), FieldDeadline::Never);
            _ = score_text(score_of(&bytes));
            _ = parse_score(&bytes);
        }
    }

    #[test]
    fn scores_are_written_and_read_as_in_redis() {
        for (score, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (1e15, "1000000000000000"),
            (1e17, "1e+17"),
            (1.5e30, "1.5e+30"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (123_456_789.123, "123456789.123"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let stored = score_of(&stored_score(score));
            assert_eq!(String::from_utf8_lossy(&score_text(stored)), text);
        }
        for (text, score) in [
            ("+inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("0e5", Some(0.0)),
            ("1e400", None),
            ("1e-400", None),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1x", None),
        ] {
            assert_eq!(parse_score(text.as_bytes()), score, "{text}");
        }
    }
}
