//! Commands on hashes.

use super::{
    Call, Description, ErrorText, ONE_KEY, Parse, Parsed, Part, SYNTAX, Shape, is, wrong_arity,
};
use crate::action::{Change, Context, failed, kept};
use crate::entry::Entry;
use crate::glob;
use crate::hash::{self, Hash, Items};
use crate::op::{Action, Failure, Footprint, Given, Kind, Outcome, Value};
use crate::procedure::{Inputs, Procedure, READS, WRITES, count};
use crate::{Extended, integer};
use bytes::Bytes;
use std::hash::{BuildHasher, RandomState};

pub(super) const ROWS: &[Description<Parse>] = &[
    Description {
        name: "hdel",
        since: "2.0.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Delete one or more hash fields",
        parse: |c| c.one(Action::call(&DELETE, &[], vec![rest(c, 2)])),
    },
    Description {
        name: "hexists",
        since: "2.0.0",
        arity: 3,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Determine if a hash field exists",
        parse: |c| c.one(Action::call(&HAS, &[], vec![c.args.bytes(2)])),
    },
    Description {
        name: "hget",
        since: "2.0.0",
        arity: 3,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get the value of a hash field",
        parse: |c| c.one(Action::call(&GET, &[], vec![c.args.bytes(2)])),
    },
    Description {
        name: "hgetall",
        since: "2.0.0",
        arity: 2,
        flags: &["readonly"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get all the fields and values in a hash",
        parse: |c| c.shaped(all(), Shape::Fields(Part::Whole)),
    },
    Description {
        name: "hgetdel",
        since: "8.0.0",
        arity: -5,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Returns the value of a field and deletes it from the hash.",
        parse: get_and_delete,
    },
    Description {
        name: "hincrby",
        since: "2.0.0",
        arity: 4,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Increment the integer value of a hash field by the given number",
        parse: |c| {
            let by = c.number(3)?;
            let action = Action::call(&ADD, &[by], vec![c.args.bytes(2)]);
            c.shaped(action, Shape::Hash)
        },
    },
    Description {
        name: "hincrbyfloat",
        since: "2.6.0",
        arity: 4,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Increment the float value of a hash field by the given amount",
        parse: add_float,
    },
    Description {
        name: "hkeys",
        since: "2.0.0",
        arity: 2,
        flags: &["readonly"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get all the fields in a hash",
        parse: |c| c.shaped(all(), Shape::Fields(Part::Fields)),
    },
    Description {
        name: "hlen",
        since: "2.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get the number of fields in a hash",
        parse: |c| c.one(Action::call(&LENGTH, &[], Vec::new())),
    },
    Description {
        name: "hmget",
        since: "2.0.0",
        arity: -3,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get the values of all the given hash fields",
        parse: |c| c.one(Action::call(&GET_SOME, &[], vec![rest(c, 2)])),
    },
    Description {
        name: "hmset",
        since: "2.0.0",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Set multiple hash fields to multiple values",
        parse: |c| c.shaped(set(c, false)?, Shape::Done),
    },
    Description {
        name: "hrandfield",
        since: "6.2.0",
        arity: -2,
        flags: &["readonly"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get one or multiple random fields from a hash",
        parse: random,
    },
    Description {
        name: "hscan",
        since: "2.8.0",
        arity: -3,
        flags: &["readonly"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Incrementally iterate hash fields and associated values",
        parse: scan,
    },
    Description {
        name: "hset",
        since: "2.0.0",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Set the string value of a hash field",
        parse: |c| c.shaped(set(c, false)?, Shape::Hash),
    },
    Description {
        name: "hsetnx",
        since: "2.0.0",
        arity: 4,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Set the value of a hash field, only if the field does not exist",
        parse: |c| c.shaped(set(c, true)?, Shape::Hash),
    },
    Description {
        name: "hstrlen",
        since: "3.2.0",
        arity: 3,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get the length of the value of a hash field",
        parse: |c| c.one(Action::call(&VALUE_LENGTH, &[], vec![c.args.bytes(2)])),
    },
    Description {
        name: "hvals",
        since: "2.0.0",
        arity: 2,
        flags: &["readonly"],
        keys: ONE_KEY,
        group: "hash",
        summary: "Get all the values in a hash",
        parse: |c| c.shaped(all(), Shape::Fields(Part::Values)),
    },
];

pub(crate) static PROCEDURES: &[&Procedure] = &[
    &GET,
    &GET_SOME,
    &ALL,
    &LENGTH,
    &VALUE_LENGTH,
    &HAS,
    &SET,
    &DELETE,
    &ADD,
    &ADD_FLOAT,
    &RANDOM,
    &SCAN,
    &GET_AND_DELETE,
];

/// The value of a field. → `Bulk` or `Nil`
static GET: Procedure = Procedure {
    number: 7,
    name: "hash get",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| VALUES,
    run: |inputs, entry, _| {
        let found = Hash::of(entry).get(&inputs.bytes[0]);
        (value(found), Change::None)
    },
};

/// The values of several fields. → `Many`
static GET_SOME: Procedure = Procedure {
    number: 8,
    name: "hash get some",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| VALUES,
    run: |inputs, entry, cx| match values_of(Hash::of(entry), &inputs.bytes[0], cx) {
        Some(values) => (Outcome::Many(values), Change::None),
        None => failed(Failure::TooLarge),
    },
};

/// All fields and values. → `Bulk`, as the hash is stored, or `Nil`
static ALL: Procedure = Procedure {
    number: 9,
    name: "hash all",
    kind: Kind::Hash,
    takes: (0, 0),
    footprint: |_| VALUES,
    run: |_, entry, _| {
        let all = entry.map(|entry| Outcome::Bulk(Value::of(entry)));
        (all.unwrap_or(Outcome::Nil), Change::None)
    },
};

/// How many fields there are. → `Int`
static LENGTH: Procedure = Procedure {
    number: 10,
    name: "hash length",
    kind: Kind::Hash,
    takes: (0, 0),
    footprint: |_| READS,
    run: |_, entry, _| (count(Hash::of(entry).len()), Change::None),
};

/// How long the value of a field is. → `Int`
static VALUE_LENGTH: Procedure = Procedure {
    number: 11,
    name: "hash value length",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| READS,
    run: |inputs, entry, _| {
        let found = Hash::of(entry).get(&inputs.bytes[0]);
        (count(found.map_or(0, <[u8]>::len)), Change::None)
    },
};

/// Whether there is a field. → `Int`
static HAS: Procedure = Procedure {
    number: 12,
    name: "hash has",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| READS,
    run: |inputs, entry, _| {
        let found = Hash::of(entry).get(&inputs.bytes[0]);
        (Outcome::Int(i64::from(found.is_some())), Change::None)
    },
};

/// Sets fields; or (1) only if the first of them is absent. → `Int`, how many are new
static SET: Procedure = Procedure {
    number: 13,
    name: "hash set",
    kind: Kind::Hash,
    takes: (1, 1),
    footprint: writes,
    run: |inputs, entry, cx| {
        let (hash, given) = (Hash::of(entry), Hash::in_bytes(&inputs.bytes[0]));
        let Some((first, _)) = { given }.next() else {
            return (Outcome::Int(0), Change::None);
        };
        if inputs.numbers[0] == 1 && hash.get(first).is_some() {
            return (Outcome::Int(0), Change::None);
        }
        let (after, added) = hash.with(given);
        stored(entry, after, count(added), cx)
    },
};

/// Deletes fields. → `Int`, how many there were
static DELETE: Procedure = Procedure {
    number: 14,
    name: "hash delete",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: writes,
    run: |inputs, entry, cx| {
        let (after, removed) = Hash::of(entry).without(Items(&inputs.bytes[0]));
        if removed == 0 {
            return (Outcome::Int(0), Change::None);
        }
        stored(entry, after, count(removed), cx)
    },
};

/// Adds to the integer of a field. → `Int`
static ADD: Procedure = Procedure {
    number: 15,
    name: "hash add",
    kind: Kind::Hash,
    takes: (1, 1),
    footprint: writes,
    run: |inputs, entry, cx| {
        let (hash, field) = (Hash::of(entry), &inputs.bytes[0]);
        let Some(old) = hash.get(field).map_or(Some(0), integer) else {
            return failed(Failure::NotAnInteger);
        };
        let Some(new) = old.checked_add(inputs.numbers[0]) else {
            return failed(Failure::Overflow);
        };
        let text = new.to_string();
        let (after, _) = hash.with_one(field, text.as_bytes());
        stored(entry, after, Outcome::Int(new), cx)
    },
};

/// Adds to the decimal number of a field, whose addend is a text. → `Bulk`
static ADD_FLOAT: Procedure = Procedure {
    number: 16,
    name: "hash add float",
    kind: Kind::Hash,
    takes: (0, 2),
    footprint: writes,
    run: |inputs, entry, cx| {
        let (hash, field) = (Hash::of(entry), &inputs.bytes[0]);
        let old = hash
            .get(field)
            .map_or(Some(Extended::ZERO), Extended::parse);
        let Some((old, by)) = old.zip(Extended::parse(&inputs.bytes[1])) else {
            return failed(Failure::NotAFloat);
        };
        let sum = old.plus(by);
        if !sum.is_finite() {
            return failed(Failure::Overflow);
        }
        let text = sum.text();
        let (after, _) = hash.with_one(field, text.as_bytes());
        let outcome = Outcome::Bulk(Value::from(text.as_bytes()));
        stored(entry, after, outcome, cx)
    },
};

/// So many random fields, with (1) or without their values, drawn from this seed. A negative number
/// draws a field again and again; a number that is not negative, each field at most once. → `Many`,
/// or `Nil`: the key is absent
static RANDOM: Procedure = Procedure {
    number: 17,
    name: "hash random",
    kind: Kind::Hash,
    takes: (3, 0),
    footprint: |_| VALUES,
    run: |inputs, entry, cx| {
        let [wanted, with_values, seed] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let all: Vec<(&[u8], &[u8])> = Hash::of(entry).collect();
        if all.is_empty() {
            return (Outcome::Nil, Change::None);
        }
        let mut drawn = Vec::new();
        let (mut bytes, mut random) = (0, Random(seed.cast_unsigned()));
        let mut take = |(field, value): (&[u8], &[u8])| {
            bytes += field.len() + value.len() + ITEM_OVERHEAD;
            drawn.push(Outcome::Bulk(Value::from(field)));
            if with_values == 1 {
                drawn.push(Outcome::Bulk(Value::from(value)));
            }
            bytes <= cx.value_bytes_max.max(hash::BYTES_MAX)
        };
        let times = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
        let fits = if wanted < 0 {
            (0..times).all(|_| take(all[random.below(all.len())]))
        } else if times >= all.len() {
            all.iter().all(|pair| take(*pair))
        } else {
            let mut left = all;
            (0..times).all(|_| {
                let at = random.below(left.len());
                take(left.swap_remove(at))
            })
        };
        if fits {
            (Outcome::Many(drawn), Change::None)
        } else {
            failed(Failure::TooLarge)
        }
    },
};

/// Fields with (1) or without their values from a place on, about so many, which match a pattern. →
/// `Keys`
static SCAN: Procedure = Procedure {
    number: 18,
    name: "hash scan",
    kind: Kind::Hash,
    takes: (3, 1),
    footprint: |_| VALUES,
    run: |inputs, entry, _| {
        // A hash is answered in one page, as Redis does for a small one.
        let with_values = inputs.numbers[2] == 1;
        let pattern = &inputs.bytes[0];
        let mut work = MATCHING_WORK;
        let mut keys = Vec::new();
        for (field, value) in Hash::of(entry) {
            match glob::Matching::default().run(pattern, field, &mut work) {
                Some(true) => {
                    keys.push(Bytes::copy_from_slice(field));
                    keys.extend(with_values.then(|| Bytes::copy_from_slice(value)));
                }
                Some(false) => {}
                None => return failed(Failure::Overloaded),
            }
        }
        (Outcome::Keys { next: 0, keys }, Change::None)
    },
};

/// The values of several fields, which are deleted. → `Many`
static GET_AND_DELETE: Procedure = Procedure {
    number: 19,
    name: "hash get and delete",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |inputs| Footprint {
        answers_value: true,
        looks_up: true,
        ..writes(inputs)
    },
    run: |inputs, entry, cx| {
        let hash = Hash::of(entry);
        let Some(mut values) = values_of(hash, &inputs.bytes[0], cx) else {
            return failed(Failure::TooLarge);
        };
        // A field that is named again is gone by then.
        let fields: Vec<&[u8]> = Items(&inputs.bytes[0]).collect();
        for (at, value) in values.iter_mut().enumerate() {
            if fields[..at].contains(&fields[at]) {
                *value = Outcome::Nil;
            }
        }
        let (after, removed) = hash.without(Items(&inputs.bytes[0]));
        if removed == 0 {
            return (Outcome::Many(values), Change::None);
        }
        stored(entry, after, Outcome::Many(values), cx)
    },
};

/// What an item of an answer takes besides its bytes.
const ITEM_OVERHEAD: usize = 32;

/// What comparisons with a pattern may do in one operation: some milliseconds.
const MATCHING_WORK: usize = 8 << 20;

/// The same if it answers with values.
const VALUES: Footprint = Footprint {
    answers_value: true,
    ..READS
};

/// What a procedure does that changes fields.
fn writes(inputs: &Inputs) -> Footprint {
    let given = inputs.bytes.first().map_or(&[][..], |bytes| &bytes[..]);
    Footprint {
        given: Given::one(given),
        stores: given.len(),
        ..WRITES
    }
}

fn value(found: Option<&[u8]>) -> Outcome {
    found.map_or(Outcome::Nil, |found| Outcome::Bulk(Value::from(found)))
}

/// The values of these fields. `None`: together they are too large.
fn values_of(hash: Hash<'_>, fields: &[u8], cx: &Context) -> Option<Vec<Outcome>> {
    let mut bytes = 0;
    let most = cx.value_bytes_max.max(hash::BYTES_MAX);
    Items(fields)
        .map(|field| {
            let found = hash.get(field);
            bytes += ITEM_OVERHEAD + found.map_or(0, <[u8]>::len);
            (bytes <= most).then(|| value(found))
        })
        .collect()
}

/// What becomes of a hash that has changed: one without fields does not exist.
fn stored(
    entry: Option<&Entry>,
    after: Vec<u8>,
    outcome: Outcome,
    cx: &Context,
) -> (Outcome, Change) {
    if after.is_empty() {
        return (outcome, Change::Delete);
    }
    let grows = entry.is_none_or(|entry| entry.value().len() < after.len());
    if grows && after.len() > hash::BYTES_MAX.min(cx.value_bytes_max) {
        return failed(Failure::TooLarge);
    }
    let change = Change::Put {
        kind: Kind::Hash,
        value: after.into(),
        deadline: kept(entry, cx),
    };
    (outcome, change)
}

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * end as u128) >> 64) as usize
    }
}

fn all() -> Action {
    Action::call(&ALL, &[], Vec::new())
}

/// The arguments from this place on, in one run of bytes.
fn rest(c: Call<'_>, from: usize) -> Bytes {
    hash::packed(c.args_from(from))
}

fn set(c: Call<'_>, only_absent: bool) -> Result<Action, ErrorText> {
    if !c.args.len().is_multiple_of(2) {
        return Err(wrong_arity(c.name));
    }
    let flag = i64::from(only_absent);
    Ok(Action::call(&SET, &[flag], vec![rest(c, 2)]))
}

fn add_float(c: Call<'_>) -> Parsed {
    let text = c.args.get(3);
    let by = Extended::parse(text).ok_or(super::NOT_A_FLOAT)?;
    if !by.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let inputs = vec![c.args.bytes(2), c.args.bytes(3)];
    c.shaped(Action::call(&ADD_FLOAT, &[], inputs), Shape::HashFloat)
}

fn random(c: Call<'_>) -> Parsed {
    let seed = RandomState::new().hash_one(0).cast_signed();
    let draw = |wanted, values: bool| {
        Action::call(&RANDOM, &[wanted, i64::from(values), seed], Vec::new())
    };
    if c.args.len() == 2 {
        return c.shaped(draw(1, false), Shape::First);
    }
    let wanted = c.number(2)?;
    let values = match c.args.len() {
        3 => false,
        4 if is(c.args.get(3), "WITHVALUES") => true,
        _ => return Err(SYNTAX.into()),
    };
    if wanted == i64::MIN {
        return Err(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807"
                .into(),
        );
    }
    if values && wanted.abs() > i64::MAX / 2 {
        return Err("ERR value is out of range".into());
    }
    let shape = if values { Shape::Pairs } else { Shape::List };
    c.shaped(draw(wanted, values), shape)
}

fn scan(c: Call<'_>) -> Parsed {
    let cursor = std::str::from_utf8(c.args.get(2)).ok();
    let cursor: u64 = cursor
        .and_then(|text| text.parse().ok())
        .ok_or("ERR invalid cursor")?;
    let (mut wanted, mut pattern, mut values) = (10, Bytes::from_static(b"*"), true);
    let mut at = 3;
    while at < c.args.len() {
        let option = c.args.get(at);
        if is(option, "NOVALUES") {
            values = false;
            at += 1;
            continue;
        }
        if at + 1 >= c.args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "COUNT") {
            wanted = c.number(at + 1)?;
            if wanted < 1 {
                return Err(SYNTAX.into());
            }
        } else if is(option, "MATCH") {
            pattern = c.args.bytes(at + 1);
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let inputs = [cursor.cast_signed(), wanted, i64::from(values)];
    c.shaped(Action::call(&SCAN, &inputs, vec![pattern]), Shape::Page)
}

fn get_and_delete(c: Call<'_>) -> Parsed {
    if !is(c.args.get(2), "FIELDS") {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let wanted = integer(c.args.get(3)).filter(|wanted| *wanted > 0);
    let wanted = wanted.ok_or("ERR Number of fields must be a positive integer")?;
    if usize::try_from(wanted).is_ok_and(|wanted| wanted == c.args.len() - 4) {
        c.one(Action::call(&GET_AND_DELETE, &[], vec![rest(c, 4)]))
    } else {
        Err("ERR The `numfields` parameter must match the number of arguments".into())
    }
}
