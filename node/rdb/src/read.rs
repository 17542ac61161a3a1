//! Values of every encoding.

use crate::error::RdbError;
use crate::input::{RdbInput, RdbLength};
use crate::packs::PackedForm;
use crate::value::{HashField, RdbValue, ScoredMember, UnreadType};
use crate::{stream, types};
use std::io::Read;

/// Which server's numbers of types a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Redis,
    /// Valkey from version 9 on.
    Valkey,
}

/// The value of this type, which may take `limit` bytes.
pub(crate) fn value<R: Read>(
    input: &mut RdbInput<R>,
    (kind, dialect): (u8, Dialect),
    limit: usize,
) -> Result<RdbValue, RdbError> {
    input.begin_value(limit);
    let value = match kind {
        types::STRING => RdbValue::String(input.element("a string")?),
        types::LIST => RdbValue::List(elements(input, "an element of a list")?),
        types::SET => RdbValue::Set(elements(input, "a member of a set")?),
        types::ZSET | types::ZSET_2 => RdbValue::SortedSet(scored(input, kind)?),
        types::HASH => RdbValue::Hash(fields(input, FieldForm::Plain)?),
        types::HASH_METADATA_EARLY if dialect == Dialect::Valkey => {
            RdbValue::Hash(fields(input, FieldForm::DeadlineBehind)?)
        }
        types::HASH_METADATA_EARLY => RdbValue::Hash(fields(input, FieldForm::Deadline(None))?),
        types::HASH_METADATA => {
            let least = time(input)?;
            RdbValue::Hash(fields(input, FieldForm::Deadline(Some(least)))?)
        }
        types::LIST_QUICKLIST | types::LIST_QUICKLIST_2 => RdbValue::List(quicklist(input, kind)?),
        types::LIST_ZIPLIST => RdbValue::List(packed(input, PackedForm::Ziplist)?),
        types::SET_INTSET => RdbValue::Set(packed(input, PackedForm::Intset)?),
        types::SET_LISTPACK => RdbValue::Set(packed(input, PackedForm::Listpack)?),
        types::ZSET_ZIPLIST => RdbValue::SortedSet(scores(input, PackedForm::Ziplist)?),
        types::ZSET_LISTPACK => RdbValue::SortedSet(scores(input, PackedForm::Listpack)?),
        types::HASH_ZIPMAP => RdbValue::Hash(pairs(input, PackedForm::Zipmap)?),
        types::HASH_ZIPLIST => RdbValue::Hash(pairs(input, PackedForm::Ziplist)?),
        types::HASH_LISTPACK => RdbValue::Hash(pairs(input, PackedForm::Listpack)?),
        types::HASH_LISTPACK_EX_EARLY => RdbValue::Hash(triples(input)?),
        types::HASH_LISTPACK_EX => {
            time(input)?;
            RdbValue::Hash(triples(input)?)
        }
        types::STREAM_LISTPACKS | types::STREAM_LISTPACKS_2 | types::STREAM_LISTPACKS_3 => {
            RdbValue::Stream(stream::stream(input, kind)?)
        }
        types::MODULE_2 => {
            let name = module_name(input.length("the number of a module's type")?);
            module_values(input)?;
            RdbValue::Unread(UnreadType::Module(name))
        }
        _ => return Err(input.unknown(format!("the type {kind} of values"))),
    };
    if value.is_empty() {
        return Err(input.malformed("a collection with at least one element"));
    }
    Ok(value)
}

/// A time in milliseconds.
pub(crate) fn time<R: Read>(input: &mut RdbInput<R>) -> Result<u64, RdbError> {
    let time = i64::from_le_bytes(input.array("a time in milliseconds")?);
    // Redis takes a time before 1970 as one that has passed.
    Ok(u64::try_from(time).unwrap_or(0))
}

fn elements<R: Read>(
    input: &mut RdbInput<R>,
    expected: &'static str,
) -> Result<Vec<Vec<u8>>, RdbError> {
    let count = input.length("a count of elements")?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(input.element(expected)?);
    }
    Ok(all)
}

fn scored<R: Read>(input: &mut RdbInput<R>, kind: u8) -> Result<Vec<ScoredMember>, RdbError> {
    let count = input.length("a count of members")?;
    let mut all = Vec::new();
    for _ in 0..count {
        let member = input.element("a member of a sorted set")?;
        let score = if kind == types::ZSET_2 {
            f64::from_le_bytes(input.array("a score")?)
        } else {
            match input.byte("the length of a score")? {
                253 => f64::NAN,
                254 => f64::INFINITY,
                255 => f64::NEG_INFINITY,
                length => {
                    let mut text = Vec::new();
                    for _ in 0..length {
                        text.push(input.byte("a score")?);
                    }
                    score(&text)
                }
            }
        };
        all.push(checked(input, member, score)?);
    }
    Ok(all)
}

/// The score that a text has; NaN if it is none.
fn score(text: &[u8]) -> f64 {
    let text = str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

fn checked<R: Read>(
    input: &RdbInput<R>,
    member: Vec<u8>,
    score: f64,
) -> Result<ScoredMember, RdbError> {
    if score.is_nan() {
        return Err(input.malformed("a score that is a number"));
    }
    Ok(ScoredMember { member, score })
}

/// What stands beside a field.
#[derive(Clone, Copy)]
enum FieldForm {
    Plain,
    /// Its deadline before it: 0 for none, else one more than its distance from the least one, or
    /// the time itself.
    Deadline(Option<u64>),
    /// Its deadline behind its value, or -1.
    DeadlineBehind,
}

fn fields<R: Read>(input: &mut RdbInput<R>, form: FieldForm) -> Result<Vec<HashField>, RdbError> {
    let count = input.length("a count of fields")?;
    let mut all = Vec::new();
    for _ in 0..count {
        let mut deadline = None;
        if let FieldForm::Deadline(least) = form {
            let given = input.length("the deadline of a field")?;
            let offset = least.map_or(0, |least| least.saturating_sub(1));
            deadline = (given != 0).then(|| given.saturating_add(offset));
        }
        let field = input.element("a field of a hash")?;
        let value = input.element("the value of a field")?;
        if let FieldForm::DeadlineBehind = form {
            let given = i64::from_le_bytes(input.array("the deadline of a field")?);
            deadline = u64::try_from(given).ok();
        }
        all.push(HashField {
            field,
            value,
            deadline,
        });
    }
    Ok(all)
}

/// The items of a packed collection. Each is counted.
fn packed<R: Read>(input: &mut RdbInput<R>, form: PackedForm) -> Result<Vec<Vec<u8>>, RdbError> {
    let mut all = Vec::new();
    packed_into(input, form, &mut all)?;
    Ok(all)
}

fn packed_into<R: Read>(
    input: &mut RdbInput<R>,
    form: PackedForm,
    all: &mut Vec<Vec<u8>>,
) -> Result<(), RdbError> {
    let begins = input.at();
    let bytes = input.string("a packed collection")?;
    let whole = form.each(&bytes, |item| {
        let item = item.to_vec();
        input.charge(item.len())?;
        all.push(item);
        Ok::<(), RdbError>(())
    })?;
    whole.map_err(|at| RdbError::Malformed {
        at: begins,
        expected: format!("a whole {} (its byte {at} is wrong)", form.name()).into(),
    })
}

fn quicklist<R: Read>(input: &mut RdbInput<R>, kind: u8) -> Result<Vec<Vec<u8>>, RdbError> {
    let nodes = input.length("a count of nodes")?;
    let mut all = Vec::new();
    for _ in 0..nodes {
        if kind == types::LIST_QUICKLIST {
            packed_into(input, PackedForm::Ziplist, &mut all)?;
            continue;
        }
        match input.length("the container of a node")? {
            1 => all.push(input.element("an element of a list")?),
            2 => packed_into(input, PackedForm::Listpack, &mut all)?,
            _ => return Err(input.malformed("a node that is plain (1) or packed (2)")),
        }
    }
    Ok(all)
}

/// Items that belong together.
fn groups<R: Read, const N: usize>(
    input: &mut RdbInput<R>,
    form: PackedForm,
) -> Result<Vec<[Vec<u8>; N]>, RdbError> {
    let items = packed(input, form)?;
    if items.len() % N != 0 {
        return Err(input.malformed("a collection of whole pairs or triples"));
    }
    let (mut all, mut items) = (Vec::with_capacity(items.len() / N), items.into_iter());
    while items.len() > 0 {
        all.push(std::array::from_fn(|_| items.next().unwrap_or_default()));
    }
    Ok(all)
}

fn scores<R: Read>(
    input: &mut RdbInput<R>,
    form: PackedForm,
) -> Result<Vec<ScoredMember>, RdbError> {
    let all = groups(input, form)?.into_iter();
    all.map(|[member, text]| checked(input, member, score(&text)))
        .collect()
}

fn pairs<R: Read>(input: &mut RdbInput<R>, form: PackedForm) -> Result<Vec<HashField>, RdbError> {
    let plain = |[field, value]: [Vec<u8>; 2]| HashField {
        field,
        value,
        deadline: None,
    };
    Ok(groups(input, form)?.into_iter().map(plain).collect())
}

fn triples<R: Read>(input: &mut RdbInput<R>) -> Result<Vec<HashField>, RdbError> {
    let all = groups(input, PackedForm::Listpack)?.into_iter();
    all.map(|[field, value, time]| {
        let time: Option<u64> = str::from_utf8(&time)
            .ok()
            .and_then(|time| time.parse().ok());
        let time = time.ok_or_else(|| input.malformed("a deadline in milliseconds"))?;
        let deadline = (time != 0).then_some(time);
        Ok(HashField {
            field,
            value,
            deadline,
        })
    })
    .collect()
}

/// Passes over what a module wrote, until its end.
pub(crate) fn module_values<R: Read>(input: &mut RdbInput<R>) -> Result<(), RdbError> {
    loop {
        match input.length_or_encoding("a value of a module")? {
            RdbLength::Plain(0) => return Ok(()),
            RdbLength::Plain(1 | 2) => _ = input.length("an integer of a module")?,
            RdbLength::Plain(3) => _ = input.array::<4>("a number of a module")?,
            RdbLength::Plain(4) => _ = input.array::<8>("a number of a module")?,
            RdbLength::Plain(5) => _ = input.string("a string of a module")?,
            _ => return Err(input.malformed("a value of a module")),
        }
    }
}

/// The name that the number of a module's type spells.
pub(crate) fn module_name(number: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |at: u32| char::from(LETTERS[(number >> (10 + 6 * at)) as usize & 63]);
    (0..9).rev().map(letter).collect()
}
