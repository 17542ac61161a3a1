//! Commands on parts of strings: runs of bytes, and bits.

use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, SYNTAX, Shape, command,
    is,
};
use crate::command::action::failed;
use crate::command::operation::{Action, Footprint, ValueSizes};
use crate::command::procedure::{Inputs, Procedure, READS, WRITES, count, procedure};
use crate::store::change::KeyChange;
use crate::store::run_context::{RunContext, kept};
use crate::value::entry::Entry;
use crate::value::integer::integer;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("bitcount", "2.6.0", -2, "bitmap", "readonly")
        .on(ONE_KEY, Access::READ, "bitmap")
        .about("Count set bits in a string")
        .parse(bit_count),
    command("bitpos", "2.8.7", -3, "bitmap", "readonly")
        .on(ONE_KEY, Access::READ, "bitmap")
        .about("Find first bit set or clear in a string")
        .parse(bit_position),
    command("getbit", "2.2.0", 3, "bitmap", "readonly fast")
        .on(ONE_KEY, Access::READ, "bitmap")
        .about("Returns the bit value at offset in the string value stored at key")
        .parse(|c| c.one(Action::call(&GET_BIT, &[bit_offset(c)?], Vec::new()))),
    command("getrange", "2.4.0", 4, "string", "readonly")
        .on(ONE_KEY, Access::READ, "string")
        .about("Get a substring of the string stored at a key")
        .parse(get_range),
    command("setbit", "2.2.0", 4, "bitmap", "write denyoom")
        .on(ONE_KEY, Access::BOTH, "bitmap")
        .about("Sets or clears the bit at offset in the string value stored at key")
        .parse(set_bit),
    command("setrange", "2.2.0", 4, "string", "write denyoom")
        .on(ONE_KEY, Access::WRITE, "string")
        .about("Overwrite part of a string at key starting at the specified offset")
        .parse(set_range),
    command("substr", "1.0.0", 4, "string", "readonly")
        .on(ONE_KEY, Access::READ, "string")
        .about("Get a substring of the string stored at a key")
        .parse(get_range),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[
    &GET_RANGE,
    &SET_RANGE,
    &GET_BIT,
    &SET_BIT,
    &BIT_COUNT,
    &BIT_POSITION,
];

/// The part of a string from one place up to and including another. → `Bulk`
pub(super) static GET_RANGE: Procedure = procedure(1, "get range", Kind::String, (2, 0))
    .costs(|_| Footprint {
        answers_value: true,
        ..READS
    })
    .on_entry(|inputs, entry, _| {
        let value = entry.map_or(&[][..], Entry::value);
        let within = within(value.len(), (inputs.numbers[0], inputs.numbers[1]));
        let part = within.map_or(&[][..], |(first, last)| &value[first..=last]);
        (Outcome::Bulk(Value::from(part)), KeyChange::None)
    });

/// Overwrites a string from a place on. → `Int`, the length
static SET_RANGE: Procedure = procedure(2, "set range", Kind::String, (1, 1))
    .costs(|inputs| Footprint {
        given: ValueSizes::one(&inputs.bytes[0]),
        ..writes(end_of(inputs))
    })
    .told_as("setrange")
    .on_entry(|inputs, entry, cx| {
        let part = &inputs.bytes[0];
        let end = end_of(inputs);
        if part.is_empty() {
            return (count(entry.map_or(0, |e| e.value().len())), KeyChange::None);
        }
        overwrite(entry, cx, end, |value| {
            value[end - part.len()..end].copy_from_slice(part);
            count(value.len())
        })
    });

/// The bit at a place. → `Int`
static GET_BIT: Procedure =
    procedure(3, "get bit", Kind::String, (1, 0)).on_entry(|inputs, entry, _| {
        let (byte, mask) = place_of_bit(inputs.numbers[0]);
        let found = entry.and_then(|e| e.value().get(byte));
        let set = found.is_some_and(|found| found & mask != 0);
        (Outcome::Int(i64::from(set)), KeyChange::None)
    });

/// Sets or clears the bit at a place. → `Int`, the bit before
static SET_BIT: Procedure = procedure(4, "set bit", Kind::String, (2, 0))
    .costs(|inputs| writes(place_of_bit(inputs.numbers[0]).0 + 1))
    .told_as("setbit")
    .on_entry(|inputs, entry, cx| {
        let (byte, mask) = place_of_bit(inputs.numbers[0]);
        overwrite(entry, cx, byte + 1, |value| {
            let before = value[byte] & mask != 0;
            if inputs.numbers[1] == 0 {
                value[byte] &= !mask;
            } else {
                value[byte] |= mask;
            }
            Outcome::Int(i64::from(before))
        })
    });

/// How many bits are set from one place up to and including another, in bytes or (1) in bits. →
/// `Int`
static BIT_COUNT: Procedure =
    procedure(5, "bit count", Kind::String, (3, 0)).on_entry(|inputs, entry, cx| {
        let value = entry.map_or(&[][..], Entry::value);
        let range = (inputs.numbers[0], inputs.numbers[1]);
        let Some((first, last)) = bits_within(value, range, inputs.numbers[2], within) else {
            return (Outcome::Int(0), KeyChange::None);
        };
        cx.budget.read(last / 8 - first / 8);
        let all = bits_of(&value[first / 8..=last / 8]);
        let before = (value[first / 8] & !(0xFF >> (first % 8))).count_ones();
        let after = (value[last / 8] & !(0xFFu8 << (7 - last % 8))).count_ones();
        (
            Outcome::Int(all - i64::from(before) - i64::from(after)),
            KeyChange::None,
        )
    });

/// The place of the first bit of this kind within a range in bytes or (1) in bits, whose end was
/// given or not (0). → `Int`, -1: there is none
static BIT_POSITION: Procedure =
    procedure(6, "bit position", Kind::String, (5, 0)).on_entry(|inputs, entry, cx| {
        let [wanted, first, last, unit, end_given] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let Some(entry) = entry else {
            return (
                Outcome::Int(if wanted == 1 { -1 } else { 0 }),
                KeyChange::None,
            );
        };
        let value = entry.value();
        let Some((first, last)) = bits_within(value, (first, last), unit, clamped) else {
            return (Outcome::Int(-1), KeyChange::None);
        };
        cx.budget.read(last / 8 - first / 8);
        // Bytes without such a bit are passed over whole.
        let dull = if wanted == 1 { 0 } else { 0xFF };
        let mut at = first;
        while at <= last {
            if at % 8 == 0 && value[at / 8] == dull {
                at += 8 * run_of(dull, &value[at / 8..]);
                continue;
            }
            let set = value[at / 8] & (0x80 >> (at % 8)) != 0;
            if set == (wanted == 1) {
                return (count(at), KeyChange::None);
            }
            at += 1;
        }
        // A string is followed by zeros, unless its end was named.
        let behind = wanted == 0 && end_given == 0;
        let none = Outcome::Int(-1);
        (
            if behind { count(value.len() * 8) } else { none },
            KeyChange::None,
        )
    });

/// How many bits are set. Words are counted, since values may have megabytes.
fn bits_of(bytes: &[u8]) -> i64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words
        .iter()
        .map(|word| u64::from_ne_bytes(*word).count_ones());
    let all = words.chain(rest.iter().map(|byte| byte.count_ones()));
    all.map(i64::from).sum()
}

/// How many bytes at the beginning are this one.
fn run_of(byte: u8, bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let whole = 8 * words.iter().take_while(|word| **word == [byte; 8]).count();
    whole + bytes[whole..].iter().take_while(|b| **b == byte).count()
}

/// What a procedure does that makes a string at least so long.
const fn writes(stores: usize) -> Footprint {
    Footprint { stores, ..WRITES }
}

/// Where the bytes of a `SET_RANGE` end.
fn end_of(inputs: &Inputs) -> usize {
    let from = usize::try_from(inputs.numbers[0]).unwrap_or(usize::MAX);
    from.saturating_add(inputs.bytes[0].len())
}

/// The byte of a bit, and the bit in it.
fn place_of_bit(offset: i64) -> (usize, u8) {
    let offset = usize::try_from(offset).unwrap_or(0);
    (offset / 8, 0x80 >> (offset % 8))
}

/// The places that a range names in a string of `length` places, the last one included. Negative
/// places count from the end. `None`: it names none.
fn within(length: usize, (first, last): (i64, i64)) -> Option<(usize, usize)> {
    if first < 0 && last < 0 && first > last {
        return None;
    }
    clamped(length, (first, last))
}

/// The same if a range whose ends are both before the string names its first place, as `BITPOS` has
/// it.
fn clamped(length: usize, (first, last): (i64, i64)) -> Option<(usize, usize)> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let counted = |at: i64| {
        if at < 0 { (length + at).max(0) } else { at }
    };
    let (first, last) = (counted(first), counted(last).min(length - 1));
    let range = (usize::try_from(first).ok()?, usize::try_from(last).ok()?);
    (range.0 <= range.1).then_some(range)
}

/// Which places a range names in a string of a length.
type StringRange = fn(usize, (i64, i64)) -> Option<(usize, usize)>;

/// The same for bits. `unit` says whether the range is in bytes (0) or in bits, and `of` which
/// places it names.
fn bits_within(
    value: &[u8],
    range: (i64, i64),
    unit: i64,
    of: StringRange,
) -> Option<(usize, usize)> {
    if unit == 0 {
        let (first, last) = of(value.len(), range)?;
        Some((first * 8, last * 8 + 7))
    } else {
        of(value.len() * 8, range)
    }
}

/// Writes into a string that is made at least so long with zeros.
fn overwrite(
    entry: Option<&Entry>,
    cx: &RunContext,
    least: usize,
    write: impl FnOnce(&mut [u8]) -> Outcome,
) -> (Outcome, KeyChange) {
    let before = entry.map_or(&[][..], Entry::value);
    if least.max(before.len()) > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    cx.budget.copy(least.max(before.len()));
    let mut value = Vec::with_capacity(least.max(before.len()));
    value.extend_from_slice(before);
    value.resize(least.max(before.len()), 0);
    let outcome = write(&mut value);
    (outcome, KeyChange::put(Bytes::from(value), kept(entry, cx)))
}

pub(super) const BIT_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const BIT: &str = "ERR bit is not an integer or out of range";
/// Redis's limit: the bits of 512 MB.
pub(super) const BITS_MAX: i64 = 512 << 23;

fn get_range(c: CommandCall<'_>) -> Parsed {
    let range = [c.number(2)?, c.number(3)?];
    c.one(Action::call(&GET_RANGE, &range, Vec::new()))
}

fn set_range(c: CommandCall<'_>) -> Parsed {
    let offset = c.number(2)?;
    if offset < 0 {
        return Err("ERR offset is out of range".into());
    }
    c.one(Action::call(&SET_RANGE, &[offset], [c.args.bytes(3)]))
}

fn bit_offset(c: CommandCall<'_>) -> Result<i64, ErrorText> {
    let offset = integer(c.args.get(2)).filter(|offset| (0..BITS_MAX).contains(offset));
    offset.ok_or_else(|| BIT_OFFSET.into())
}

fn set_bit(c: CommandCall<'_>) -> Parsed {
    let offset = bit_offset(c)?;
    let bit = integer(c.args.get(3)).filter(|bit| matches!(bit, 0 | 1));
    let bit = bit.ok_or(BIT)?;
    c.one(Action::call(&SET_BIT, &[offset, bit], Vec::new()))
}

/// Whether a range is in bytes (0) or in bits (1).
fn unit(c: CommandCall<'_>, at: usize) -> Result<i64, ErrorText> {
    match c.args.get(at) {
        _ if at >= c.args.len() => Ok(0),
        word if is(word, "BIT") => Ok(1),
        word if is(word, "BYTE") => Ok(0),
        _ => Err(SYNTAX.into()),
    }
}

fn bit_count(c: CommandCall<'_>) -> Parsed {
    let range = match c.args.len() {
        2 => [0, -1, 0],
        4 | 5 => [c.number(2)?, c.number(3)?, unit(c, 4)?],
        _ => return Err(SYNTAX.into()),
    };
    c.one(Action::call(&BIT_COUNT, &range, Vec::new()))
}

fn bit_position(c: CommandCall<'_>) -> Parsed {
    let bit = c.number(2)?;
    if !matches!(bit, 0 | 1) {
        return Err("ERR The bit argument must be 1 or 0.".into());
    }
    let inputs = match c.args.len() {
        3 => [bit, 0, -1, 0, 0],
        4 => [bit, c.number(3)?, -1, 0, 0],
        5 | 6 => {
            let (start, unit) = (c.number(3)?, unit(c, 5)?);
            [bit, start, c.number(4)?, unit, 1]
        }
        _ => return Err(SYNTAX.into()),
    };
    c.shaped(
        Action::call(&BIT_POSITION, &inputs, Vec::new()),
        Shape::Plain,
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::command::action::tests::context;

    fn ask(words: &[&str], value: Option<&[u8]>) -> Result<(Outcome, KeyChange), ErrorText> {
        let words: Vec<Bytes> = words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect();
        let args: &dyn crate::command::Arguments = &&words[..];
        let request = crate::command::COMMANDS.find(args)?.request(args, 50_000)?;
        let crate::command::ParsedRequest::One { action, .. } = request else {
            panic!("{request:?}")
        };
        let entry = value.map(|value| Entry::new(b"k", value, 0, 1));
        Ok(crate::command::action::apply(
            &action,
            entry.as_ref(),
            &context(),
        ))
    }

    /// What a command answers, and how it changes its key.
    pub(crate) fn answer_of(
        line: &str,
        value: Option<&[u8]>,
    ) -> Result<(Outcome, KeyChange), ErrorText> {
        ask(&line.split(' ').collect::<Vec<_>>(), value)
    }

    /// What a command answers, and the value that it leaves.
    pub(crate) fn of(words: &str, value: Option<&[u8]>) -> (Outcome, Option<Vec<u8>>) {
        let words: Vec<&str> = words.split(' ').collect();
        let (outcome, change) = ask(&words, value).unwrap();
        let after = match change {
            KeyChange::Put {
                value, deadline: 0, ..
            } => Some(value.to_vec()),
            KeyChange::None => None,
            other => panic!("{other:?}"),
        };
        (outcome, after)
    }

    /// Every answer was compared with redis-server 7.0.15.
    #[test]
    fn parts_of_strings_are_read_as_redis_reads_them() {
        let bulk = |text: &str| Outcome::Bulk(Value::from(text.as_bytes()));
        for (range, part) in [
            ("0 3", "This"),
            ("-3 -1", "ing"),
            ("0 -1", "This is a string"),
            ("10 100", "string"),
            ("-100 3", "This"),
            ("5 4", ""),
            ("-1 -5", ""),
            ("100 200", ""),
            ("0 -100", "T"),
        ] {
            let asked = format!("GETRANGE k {range}");
            assert_eq!(
                of(&asked, Some(b"This is a string")).0,
                bulk(part),
                "{range}"
            );
            assert_eq!(of(&asked, None).0, bulk(""), "{range}");
        }
    }

    #[test]
    fn strings_are_overwritten_and_filled_with_zeros() {
        let int = Outcome::Int;
        assert_eq!(
            of("SETRANGE k 6 Redis", Some(b"Hello World")),
            (int(11), Some(b"Hello Redis".to_vec()))
        );
        assert_eq!(
            of("SETRANGE k 2 x", None),
            (int(3), Some(b"\0\0x".to_vec()))
        );
        assert_eq!(of("SETRANGE k 50 ", Some(b"ab")), (int(2), None));
        assert_eq!(
            of("SETRANGE k 64 x", Some(b"ab")).0,
            Outcome::Failed(Failure::TooLarge)
        );
        assert_eq!(of("SETBIT k 7 1", None), (int(0), Some(vec![1])));
        assert_eq!(of("SETBIT k 7 0", Some(b"\x01")), (int(1), Some(vec![0])));
        assert_eq!(
            of("SETBIT k 16 1", Some(b"a")),
            (int(0), Some(vec![b'a', 0, 0x80]))
        );
        assert_eq!(
            of("SETBIT k 4294967295 1", None).0,
            Outcome::Failed(Failure::TooLarge)
        );
        assert_eq!(of("GETBIT k 1", Some(b"a")), (int(1), None));
        assert_eq!(of("GETBIT k 9999", Some(b"a")), (int(0), None));
    }

    /// Every answer was compared with redis-server 7.0.15.
    #[test]
    fn bits_are_counted_and_found_as_redis_does_it() {
        for (asked, value, answer) in [
            ("BITCOUNT k", &b"foobar"[..], 26),
            ("BITCOUNT k 0 0", b"foobar", 4),
            ("BITCOUNT k 1 1 BYTE", b"foobar", 6),
            ("BITCOUNT k 5 30 BIT", b"foobar", 17),
            ("BITCOUNT k -5 -30 BIT", b"foobar", 0),
            ("BITCOUNT k 4 2", b"foobar", 0),
            ("BITCOUNT k 0 -1", b"", 0),
            (
                "BITCOUNT k",
                b"\xff\x01\x02\x04\x08\x10\x20\x40\x80\xff\x00\x03",
                26,
            ),
            ("BITPOS k 1", b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10", 139),
            (
                "BITPOS k 1 0 9",
                b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10",
                -1,
            ),
            ("BITPOS k 0", b"\xff\xf0\x00", 12),
            ("BITPOS k 1 0", b"\x00\xff\xf0", 8),
            ("BITPOS k 1 2", b"\x00\xff\xf0", 16),
            ("BITPOS k 1 2 -1 BYTE", b"\x00\xff\xf0", 16),
            ("BITPOS k 1 7 15 BIT", b"\x00\xff\xf0", 8),
            ("BITPOS k 1", b"\x00\x00\x00", -1),
            ("BITPOS k 0", b"\xff\xff", 16),
            ("BITPOS k 0 0 -1", b"\xff\xff", -1),
            ("BITPOS k 1 -1 -2", b"v", 1),
            ("BITPOS k 0 5", b"\xff\xff", -1),
        ] {
            assert_eq!(of(asked, Some(value)).0, Outcome::Int(answer), "{asked}");
        }
        assert_eq!(of("BITPOS k 1", None).0, Outcome::Int(-1));
        assert_eq!(of("BITPOS k 0 5 9", None).0, Outcome::Int(0));
        assert_eq!(of("BITCOUNT k", None).0, Outcome::Int(0));
    }

    /// Every text was compared with redis-server 7.0.15, which looks whether the key exists before
    /// it reads the options of BITCOUNT and BITPOS.
    #[test]
    fn mistakes_get_the_texts_of_redis() {
        for (words, text) in [
            (
                "GETRANGE k a 1",
                "ERR value is not an integer or out of range",
            ),
            ("SETRANGE k -1 x", "ERR offset is out of range"),
            ("SETBIT k -1 1", BIT_OFFSET),
            ("SETBIT k 4294967296 1", BIT_OFFSET),
            ("SETBIT k 1 2", BIT),
            ("GETBIT k x", BIT_OFFSET),
            ("BITCOUNT k 1", SYNTAX),
            ("BITCOUNT k 1 2 x", SYNTAX),
            ("BITPOS k 2", "ERR The bit argument must be 1 or 0."),
            ("BITPOS k 1 0 1 BIT x", SYNTAX),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(
                ask(&words, None).map_err(|why| why.0),
                Err(text.into()),
                "{words:?}"
            );
        }
    }
}
