//! Commands on integers of any width within a string.

use super::{
    Access, Arguments, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, Rights,
    SYNTAX, command, is,
};
use crate::command::action::failed;
use crate::command::operation::{Action, Footprint, ValueSizes};
use crate::command::procedure::{Inputs, Procedure, READS, WRITES, procedure};
use crate::command::ranges::{BIT_OFFSET, BITS_MAX};
use crate::store::change::KeyChange;
use crate::store::run_context::kept;
use crate::value::entry::Entry;
use crate::value::integer::integer;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::{Buf, BufMut, Bytes};

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("bitfield", "3.2.0", -2, "bitmap", "write denyoom")
        .on(ONE_KEY, Access::Depends(of_bitfield), "bitmap")
        .about("Perform arbitrary bitfield integer operations on strings")
        .parse(|c| bit_field(c, false)),
    command("bitfield_ro", "6.0.0", -2, "bitmap", "readonly fast")
        .on(ONE_KEY, Access::READ, "bitmap")
        .about(
            "Perform arbitrary bitfield integer operations on strings. Read-only variant of \
                  BITFIELD",
        )
        .parse(|c| bit_field(c, true)),
];

/// `BITFIELD` only reads if all it does is `GET`.
fn of_bitfield(args: &dyn Arguments) -> Rights {
    let mut at = 2;
    while at < args.len() {
        if !is(args.get(at), "GET") || args.len() - at <= 2 {
            return Rights::BOTH;
        }
        at += 3;
    }
    Rights::READ
}

pub(crate) static PROCEDURES: &[&Procedure] = &[&BIT_FIELD];

/// Reads and changes integers of a string, which the run of bytes lists. → `Many`, an outcome for
/// each
static BIT_FIELD: Procedure = procedure(43, "bit field", Kind::String, (0, 1))
    .costs(|inputs| match end_of(inputs) {
        0 => READS,
        end => Footprint {
            given: ValueSizes::one(&inputs.bytes[0]),
            stores: end,
            ..WRITES
        },
    })
    .told_as("setbit")
    .on_entry(|inputs, entry, cx| {
        let before = entry.map_or(&[][..], Entry::value);
        let end = end_of(inputs);
        if end == 0 {
            let read = parts(inputs).map(|part| part.outcome(part.read(before)));
            return (Outcome::Many(read.collect()), KeyChange::None);
        }
        if end.max(before.len()) > cx.value_bytes_max {
            return failed(Failure::TooLarge);
        }
        cx.budget.copy(end.max(before.len()));
        let mut value = before.to_vec();
        // As in Redis, the string grows even if nothing is written.
        value.resize(end.max(before.len()), 0);
        let outcomes = parts(inputs).map(|part| part.run(&mut value)).collect();
        let change = if value == before {
            KeyChange::None
        } else {
            KeyChange::put(Bytes::from(value), kept(entry, cx))
        };
        (Outcome::Many(outcomes), change)
    });

/// What is done to an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Get,
    Set,
    Add,
}

/// What happens if an integer does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// Its high bits are dropped.
    Wrap,
    /// The nearest one that fits is written.
    Saturate,
    /// Nothing is written.
    Fail,
}

/// One of the operations of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BitOperation {
    does: Does,
    overflow: Overflow,
    signed: bool,
    /// How wide the integer is, and where it begins.
    bits: usize,
    offset: usize,
    number: i64,
}

/// Most parts of one command: together they take about a millisecond, while others wait.
const PARTS_MAX: usize = 10_000;
/// The bytes of a part on its way.
const PART_BYTES: usize = 20;

impl BitOperation {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u8(match self.does {
            Does::Get => 0,
            Does::Set => 1,
            Does::Add => 2,
        });
        out.put_u8(match self.overflow {
            Overflow::Wrap => 0,
            Overflow::Saturate => 1,
            Overflow::Fail => 2,
        });
        out.put_u8(u8::from(self.signed));
        out.put_u8(u8::try_from(self.bits).unwrap_or(u8::MAX));
        out.put_u64_le(self.offset as u64);
        out.put_i64_le(self.number);
    }

    /// A part that was put. `None`: it is none.
    fn get(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() < PART_BYTES {
            return None;
        }
        let does = match bytes.get_u8() {
            0 => Does::Get,
            1 => Does::Set,
            2 => Does::Add,
            _ => return None,
        };
        let overflow = match bytes.get_u8() {
            0 => Overflow::Wrap,
            1 => Overflow::Saturate,
            2 => Overflow::Fail,
            _ => return None,
        };
        let (signed, bits) = (bytes.get_u8() != 0, usize::from(bytes.get_u8()));
        let offset = i64::try_from(bytes.get_u64_le()).ok()?;
        let fits = (1..=if signed { 64 } else { 63 }).contains(&bits);
        (fits && (0..BITS_MAX).contains(&offset)).then_some(Self {
            does,
            overflow,
            signed,
            bits,
            offset: usize::try_from(offset).ok()?,
            number: bytes.get_i64_le(),
        })
    }

    /// The bytes that a string must have so that the integer is in it.
    const fn end(self) -> usize {
        (self.offset + self.bits).div_ceil(8)
    }

    /// The integer. Behind its end, a string has zeros.
    fn read(self, value: &[u8]) -> i128 {
        let bit = |at: usize| {
            value
                .get(at / 8)
                .is_some_and(|b| b & (0x80 >> (at % 8)) != 0)
        };
        let places = self.offset..self.offset + self.bits;
        let bits = places.fold(0, |sum, at| sum << 1 | i128::from(bit(at)));
        self.wrapped(bits)
    }

    fn write(self, value: &mut [u8], number: i128) {
        for (shift, at) in (0..self.bits).rev().zip(self.offset..) {
            let Some(byte) = value.get_mut(at / 8) else {
                return;
            };
            let mask = 0x80 >> (at % 8);
            if number >> shift & 1 == 1 {
                *byte |= mask;
            } else {
                *byte &= !mask;
            }
        }
    }

    /// The least and the greatest integer of this width.
    const fn limits(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The integer that has the same low bits.
    const fn wrapped(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        if self.signed && low >> (self.bits - 1) == 1 {
            low - (1 << self.bits)
        } else {
            low
        }
    }

    fn outcome(self, number: i128) -> Outcome {
        i64::try_from(number).map_or(Outcome::Nil, Outcome::Int)
    }

    /// Does it to a string in which the integer is.
    fn run(self, value: &mut [u8]) -> Outcome {
        let before = self.read(value);
        let wanted = match self.does {
            Does::Get => return self.outcome(before),
            Does::Add => before + i128::from(self.number),
            Does::Set if self.signed => i128::from(self.number),
            // As in C, a negative number is a large one.
            Does::Set => i128::from(self.number.cast_unsigned()),
        };
        let (least, most) = self.limits();
        let fits = (least..=most).contains(&wanted);
        let after = match self.overflow {
            _ if fits => wanted,
            Overflow::Wrap => self.wrapped(wanted),
            Overflow::Saturate => wanted.clamp(least, most),
            Overflow::Fail => return Outcome::Nil,
        };
        self.write(value, after);
        self.outcome(if self.does == Does::Set {
            before
        } else {
            after
        })
    }
}

/// The parts of a call.
fn parts(inputs: &Inputs) -> impl Iterator<Item = BitOperation> + '_ {
    let parts = inputs.bytes[0].chunks(PART_BYTES).take(PARTS_MAX);
    parts.filter_map(BitOperation::get)
}

/// How long a call makes its string at least. 0: it only reads.
fn end_of(inputs: &Inputs) -> usize {
    let written = parts(inputs).filter(|part| part.does != Does::Get);
    written.map(BitOperation::end).max().unwrap_or(0)
}

const TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
    supported but i64 is.";

fn bit_field(c: CommandCall<'_>, read_only: bool) -> Parsed {
    let (mut overflow, mut list, mut writes) = (Overflow::Wrap, Vec::new(), false);
    let mut i = 2;
    while i < c.args.len() {
        let (word, left) = (c.args.get(i), c.args.len() - i - 1);
        let does = if is(word, "GET") && left >= 2 {
            Does::Get
        } else if is(word, "SET") && left >= 3 {
            Does::Set
        } else if is(word, "INCRBY") && left >= 3 {
            Does::Add
        } else if is(word, "OVERFLOW") && left >= 1 {
            overflow = match c.args.get(i + 1) {
                word if is(word, "WRAP") => Overflow::Wrap,
                word if is(word, "SAT") => Overflow::Saturate,
                word if is(word, "FAIL") => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            i += 2;
            continue;
        } else {
            return Err(SYNTAX.into());
        };
        let (signed, bits) = width(c.args.get(i + 1)).ok_or(TYPE)?;
        let offset = offset(c.args.get(i + 2), bits)?;
        let number = if does == Does::Get {
            0
        } else {
            c.number(i + 3)?
        };
        writes |= does != Does::Get;
        BitOperation {
            does,
            overflow,
            signed,
            bits,
            offset,
            number,
        }
        .put(&mut list);
        i += if does == Does::Get { 3 } else { 4 };
    }
    if list.len() > PARTS_MAX * PART_BYTES {
        return Err(format!("ERR too many operations in one command: at most {PARTS_MAX}").into());
    }
    if writes && read_only {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    c.one(Action::call(&BIT_FIELD, &[], [Bytes::from(list)]))
}

/// Whether an integer is signed, and how wide it is.
fn width(word: &[u8]) -> Option<(bool, usize)> {
    let (kind, bits) = word.split_first()?;
    let (signed, most) = match kind {
        b'i' => (true, 64),
        b'u' => (false, 63),
        _ => return None,
    };
    let bits = integer(bits).filter(|bits| (1..=most).contains(bits))?;
    Some((signed, usize::try_from(bits).ok()?))
}

/// Where an integer of this width begins: in bits, or with `#` in integers of its width.
fn offset(word: &[u8], bits: usize) -> Result<usize, ErrorText> {
    let at = match word.strip_prefix(b"#") {
        Some(at) => integer(at).and_then(|at| at.checked_mul(i64::try_from(bits).ok()?)),
        None => integer(word),
    };
    let at = at.filter(|at| (0..BITS_MAX).contains(at));
    let at = at.and_then(|at| usize::try_from(at).ok());
    at.ok_or_else(|| BIT_OFFSET.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ranges::tests::{answer_of, of};
    use proptest::prelude::*;

    fn many(outcomes: &[Option<i64>]) -> Outcome {
        let outcomes = outcomes.iter();
        Outcome::Many(
            outcomes
                .map(|number| number.map_or(Outcome::Nil, Outcome::Int))
                .collect(),
        )
    }

    /// Every answer was compared with redis-server 7.0.15.
    #[test]
    fn integers_of_any_width_are_read_and_written_as_in_redis() {
        for (asked, before, answer, after) in [
            (
                "GET u8 0 GET i8 #1 GET u4 100",
                Some(&[1, 0xFF][..]),
                &[Some(1), Some(-1), Some(0)][..],
                None,
            ),
            ("SET u8 #1 255", None, &[Some(0)], Some(&[0, 255][..])),
            (
                "INCRBY i5 100 1 GET u4 0",
                None,
                &[Some(1), Some(0)],
                Some(&[0; 14]),
            ),
            (
                "INCRBY u2 0 3 INCRBY u2 0 2",
                Some(&[0]),
                &[Some(3), Some(1)],
                Some(&[0x40]),
            ),
            (
                "OVERFLOW SAT INCRBY u2 0 5",
                Some(&[0]),
                &[Some(3)],
                Some(&[0xC0]),
            ),
            ("OVERFLOW FAIL INCRBY u2 0 5", Some(&[0x80]), &[None], None),
            (
                "OVERFLOW FAIL INCRBY u2 8 5",
                Some(&[0x80]),
                &[None],
                Some(&[0x80, 0]),
            ),
            (
                "OVERFLOW SAT SET i4 0 -100",
                Some(&[0]),
                &[Some(0)],
                Some(&[0x80]),
            ),
            (
                "OVERFLOW SAT SET u4 0 -100",
                Some(&[0]),
                &[Some(0)],
                Some(&[0xF0]),
            ),
            (
                "SET i64 0 -1 GET i64 0",
                None,
                &[Some(0), Some(-1)],
                Some(&[0xFF; 8]),
            ),
            ("", None, &[], None),
        ] {
            let line = format!("BITFIELD k {asked}");
            let (outcome, value) = of(line.trim_end(), before);
            assert_eq!(outcome, many(answer), "{asked}");
            if asked.contains("100 1") {
                assert_eq!(value.map(|v| v.len()), Some(14));
            } else {
                assert_eq!(value.as_deref(), after, "{asked}");
            }
        }
    }

    #[test]
    fn mistakes_get_the_texts_of_redis() {
        for (asked, text) in [
            ("BITFIELD k GET u64 0", TYPE),
            ("BITFIELD k GET i65 0", TYPE),
            ("BITFIELD k GET x8 0", TYPE),
            ("BITFIELD k GET u8 -1", BIT_OFFSET),
            ("BITFIELD k GET u8 #x", BIT_OFFSET),
            ("BITFIELD k GET u8 #9223372036854775807", BIT_OFFSET),
            ("BITFIELD k SET u8 0", SYNTAX),
            ("BITFIELD k NOSUCH", SYNTAX),
            (
                "BITFIELD k OVERFLOW x",
                "ERR Invalid OVERFLOW type specified",
            ),
            (
                "BITFIELD_RO k SET u8 0 1",
                "ERR BITFIELD_RO only supports the GET subcommand",
            ),
        ] {
            let answer = answer_of(asked, None).map_err(|why| why.0.into_owned());
            assert_eq!(answer.map(|_| ()), Err(text.to_owned()), "{asked}");
        }
    }

    proptest! {
        /// What was written is read again, and no other bit changes.
        #[test]
        fn what_is_written_is_read_again(
            value in prop::collection::vec(any::<u8>(), 20),
            (signed, bits) in (any::<bool>(), 1_usize..=63),
            offset in 0_usize..90,
            number: i64,
            add: bool,
        ) {
            let does = if add { Does::Add } else { Does::Set };
            for overflow in [Overflow::Wrap, Overflow::Saturate, Overflow::Fail] {
                let part = BitOperation { does, overflow, signed, bits, offset, number };
                let mut bytes = Vec::new();
                part.put(&mut bytes);
                prop_assert_eq!(BitOperation::get(&bytes), Some(part));
                let mut after = value.clone();
                let outcome = part.run(&mut after);
                let (least, most) = part.limits();
                let read = part.read(&after);
                prop_assert!((least..=most).contains(&read));
                let wanted = match (add, signed) {
                    (true, _) => part.read(&value) + i128::from(number),
                    (false, true) => i128::from(number),
                    (false, false) => i128::from(number.cast_unsigned()),
                };
                match (outcome, (least..=most).contains(&wanted)) {
                    (Outcome::Nil, fits) => {
                        prop_assert!(!fits && overflow == Overflow::Fail);
                        prop_assert_eq!(&after, &value);
                    }
                    (Outcome::Int(said), fits) => {
                        let expected = if add { read } else { part.read(&value) };
                        prop_assert_eq!(i128::from(said), expected);
                        if fits {
                            prop_assert_eq!(read, wanted);
                        }
                    }
                    (other, _) => prop_assert!(false, "{other:?}"),
                }
                let outside = |v: &[u8], at: usize| v[at / 8] >> (7 - at % 8) & 1;
                for at in (0..160).filter(|at| !(offset..offset + bits).contains(at)) {
                    prop_assert_eq!(outside(&after, at), outside(&value, at));
                }
            }
        }
    }
}
