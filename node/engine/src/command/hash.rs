//! Commands on hashes.

use super::{
    Call, Description, ErrorText, ONE_KEY, Parse, Parsed, Part, SYNTAX, Shape, is, wrong_arity,
};
use crate::action::Context;
use crate::entry::Entry;
use crate::glob;
use crate::hash::{self, Edit, Hash, Items, View};
use crate::op::{Action, Failure, Footprint, Given, Kind, Outcome, Value};
use crate::procedure::{Inputs, Procedure, READS, Run, WRITES, count};
use crate::store::Table;
use crate::{Extended, integer};
use bytes::Bytes;
use std::collections::BTreeSet;
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
    run: Run::Hash(|inputs, hash, _| (Some(value(hash.get(&inputs.bytes[0]))), Edit::None)),
};

/// The values of several fields. → `Many`
static GET_SOME: Procedure = Procedure {
    number: 8,
    name: "hash get some",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| VALUES,
    run: Run::Hash(
        |inputs, hash, cx| match values_of(hash, &inputs.bytes[0], cx) {
            Some(values) => (Some(Outcome::Many(values)), Edit::None),
            None => TOO_LARGE,
        },
    ),
};

/// All fields and values. → `Bulk`, as a small hash is stored, or `Nil`
static ALL: Procedure = Procedure {
    number: 9,
    name: "hash all",
    kind: Kind::Hash,
    takes: (0, 0),
    footprint: |_| VALUES,
    run: Run::Hash(|_, hash, cx| match hash.all(hash::answer_max(cx)) {
        Ok(all) => (Some(all.map_or(Outcome::Nil, Outcome::Bulk)), Edit::None),
        Err(failure) => (Some(Outcome::Failed(failure)), Edit::None),
    }),
};

/// How many fields there are. → `Int`
static LENGTH: Procedure = Procedure {
    number: 10,
    name: "hash length",
    kind: Kind::Hash,
    takes: (0, 0),
    footprint: |_| READS,
    run: Run::Hash(|_, hash, _| (Some(count(hash.len())), Edit::None)),
};

/// How long the value of a field is. → `Int`
static VALUE_LENGTH: Procedure = Procedure {
    number: 11,
    name: "hash value length",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| READS,
    run: Run::Hash(|inputs, hash, _| {
        let found = hash.get(&inputs.bytes[0]);
        (Some(count(found.map_or(0, <[u8]>::len))), Edit::None)
    }),
};

/// Whether there is a field. → `Int`
static HAS: Procedure = Procedure {
    number: 12,
    name: "hash has",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: |_| READS,
    run: Run::Hash(|inputs, hash, _| {
        let found = hash.get(&inputs.bytes[0]);
        (Some(Outcome::Int(i64::from(found.is_some()))), Edit::None)
    }),
};

/// Sets fields; or (1) only if the first of them is absent. → `Int`, how many are new
static SET: Procedure = Procedure {
    number: 13,
    name: "hash set",
    kind: Kind::Hash,
    takes: (1, 1),
    footprint: writes,
    run: Run::Hash(|inputs, hash, _| {
        let given = Hash::in_bytes(&inputs.bytes[0]);
        let Some((first, _)) = { given }.next() else {
            return (None, Edit::None);
        };
        if inputs.numbers[0] == 1 && hash.get(first).is_some() {
            return (None, Edit::None);
        }
        (None, Edit::Set(given))
    }),
};

/// Deletes fields. → `Int`, how many there were
static DELETE: Procedure = Procedure {
    number: 14,
    name: "hash delete",
    kind: Kind::Hash,
    takes: (0, 1),
    footprint: writes,
    run: Run::Hash(|inputs, _, _| (None, Edit::Delete(Items(&inputs.bytes[0])))),
};

/// Adds to the integer of a field. → `Int`
static ADD: Procedure = Procedure {
    number: 15,
    name: "hash add",
    kind: Kind::Hash,
    takes: (1, 1),
    footprint: writes,
    run: Run::Hash(|inputs, hash, _| {
        let field = &inputs.bytes[0];
        let Some(old) = hash.get(field).map_or(Some(0), integer) else {
            return failed(Failure::NotAnInteger);
        };
        let Some(new) = old.checked_add(inputs.numbers[0]) else {
            return failed(Failure::Overflow);
        };
        let text = new.to_string().into_bytes();
        (Some(Outcome::Int(new)), Edit::SetOne(field, text))
    }),
};

/// Adds to the decimal number of a field, whose addend is a text. → `Bulk`
static ADD_FLOAT: Procedure = Procedure {
    number: 16,
    name: "hash add float",
    kind: Kind::Hash,
    takes: (0, 2),
    footprint: writes,
    run: Run::Hash(|inputs, hash, _| {
        let field = &inputs.bytes[0];
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
        let outcome = Outcome::Bulk(Value::from(text.as_bytes()));
        (Some(outcome), Edit::SetOne(field, text.into_bytes()))
    }),
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
    run: Run::Hash(|inputs, hash, cx| {
        let [wanted, with_values, seed] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let length = hash.len();
        if length == 0 {
            return (Some(Outcome::Nil), Edit::None);
        }
        let mut drawn = Vec::new();
        let (mut bytes, mut random) = (0, Random(seed.cast_unsigned()));
        let mut take = |(field, value): (&[u8], &[u8])| {
            bytes += field.len() + value.len() + ITEM_OVERHEAD;
            drawn.push(Outcome::Bulk(Value::from(field)));
            if with_values == 1 {
                drawn.push(Outcome::Bulk(Value::from(value)));
            }
            bytes <= hash::answer_max(cx)
        };
        let times = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
        let few = times.saturating_mul(DRAWN_PART) < length;
        let fits = match hash {
            // Others would have to be looked at for each that is drawn.
            View::Table(table) if wanted < 0 || few => {
                let mut seen = BTreeSet::new();
                let mut left = times;
                let mut fits = true;
                while left > 0 && fits {
                    let Some(row) = random.row(table) else { break };
                    if wanted < 0 || seen.insert(row.key()) {
                        fits = take((row.key(), row.value()));
                        left -= 1;
                    }
                }
                fits
            }
            View::Packed(_) | View::Table(_) if times >= length && wanted >= 0 => {
                hash.pairs().all(take)
            }
            View::Packed(_) | View::Table(_) => {
                let mut all: Vec<(&[u8], &[u8])> = hash.pairs().collect();
                (0..times).all(|_| {
                    let at = random.below(all.len());
                    take(if wanted < 0 {
                        all[at]
                    } else {
                        all.swap_remove(at)
                    })
                })
            }
        };
        if fits {
            (Some(Outcome::Many(drawn)), Edit::None)
        } else {
            TOO_LARGE
        }
    }),
};

/// Fields with (1) or without their values from a place on, about so many, which match a pattern. →
/// `Keys`
static SCAN: Procedure = Procedure {
    number: 18,
    name: "hash scan",
    kind: Kind::Hash,
    takes: (3, 1),
    footprint: |_| VALUES,
    run: Run::Hash(|inputs, hash, _| {
        let [cursor, wanted, with_values] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let pattern = &inputs.bytes[0];
        let mut work = MATCHING_WORK;
        let mut page = Page::new(cursor, wanted);
        let mut keys = Vec::new();
        for (field, value) in hash.pairs_from(page.from()) {
            if let View::Table(table) = hash
                && !page.takes(table.order_of(field))
            {
                let next = page.next;
                return (Some(Outcome::Keys { next, keys }), Edit::None);
            }
            match glob::Matching::default().run(pattern, field, &mut work) {
                Some(true) => {
                    page.bytes += field.len() + ITEM_OVERHEAD;
                    keys.push(Bytes::copy_from_slice(field));
                    if with_values == 1 {
                        page.bytes += value.len();
                        keys.push(Bytes::copy_from_slice(value));
                    }
                }
                Some(false) => {}
                None => return failed(Failure::Overloaded),
            }
        }
        (Some(Outcome::Keys { next: 0, keys }), Edit::None)
    }),
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
    run: Run::Hash(|inputs, hash, cx| {
        let Some(mut values) = values_of(hash, &inputs.bytes[0], cx) else {
            return TOO_LARGE;
        };
        // A field that is named again is gone by then.
        let mut seen = BTreeSet::new();
        for (value, field) in values.iter_mut().zip(Items(&inputs.bytes[0])) {
            if !seen.insert(field) {
                *value = Outcome::Nil;
            }
        }
        let fields = Items(&inputs.bytes[0]);
        (Some(Outcome::Many(values)), Edit::Delete(fields))
    }),
};

/// What an item of an answer takes besides its bytes.
const ITEM_OVERHEAD: usize = 32;

/// What comparisons with a pattern may do in one operation: some milliseconds.
const MATCHING_WORK: usize = 8 << 20;

/// If no more than this part of a table is drawn, fields are drawn one by one.
const DRAWN_PART: usize = 4;

/// A random field is one of so many behind a random place: gaps between places are uneven.
const NEIGHBOURS: usize = 16;

/// The same if it answers with values.
const VALUES: Footprint = Footprint {
    answers_value: true,
    ..READS
};

const TOO_LARGE: (Option<Outcome>, Edit<'static>) =
    (Some(Outcome::Failed(Failure::TooLarge)), Edit::None);

const fn failed(failure: Failure) -> (Option<Outcome>, Edit<'static>) {
    (Some(Outcome::Failed(failure)), Edit::None)
}

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
fn values_of(hash: View<'_>, fields: &[u8], cx: &Context) -> Option<Vec<Outcome>> {
    let mut bytes = 0;
    let most = hash::answer_max(cx);
    Items(fields)
        .map(|field| {
            let found = hash.get(field);
            bytes += ITEM_OVERHEAD + found.map_or(0, <[u8]>::len);
            (bytes <= most).then(|| value(found))
        })
        .collect()
}

/// A page of a scan of a table. Its cursor is the first 32 bits of an order, as that of SCAN.
struct Page {
    cursor: u64,
    wanted: usize,
    looked: usize,
    bytes: usize,
    /// Where to continue.
    next: u64,
}

impl Page {
    const SHIFT: u32 = 32;
    const FIELDS_MAX: i64 = 10_000;
    const BYTES_MAX: usize = 512 << 10;

    fn new(cursor: i64, wanted: i64) -> Self {
        Self {
            cursor: cursor.cast_unsigned(),
            wanted: wanted.clamp(1, Self::FIELDS_MAX) as usize,
            looked: 0,
            bytes: 0,
            next: 0,
        }
    }

    /// The order from which it reads.
    const fn from(&self) -> u64 {
        self.cursor << Self::SHIFT
    }

    /// Whether a field of this order belongs to it. Fields that share a cursor are in one page.
    const fn takes(&mut self, order: u64) -> bool {
        let place = order >> Self::SHIFT;
        if place >= self.next && (self.looked >= self.wanted || self.bytes >= Self::BYTES_MAX) {
            return false;
        }
        self.looked += 1;
        self.next = place + 1;
        true
    }
}

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// A random row. `None`: the table is empty.
    fn row<'a>(&mut self, table: &'a Table) -> Option<&'a Entry> {
        let skipped = self.below(NEIGHBOURS.min(table.len()));
        let behind = table.rows_from(self.next());
        behind.chain(table.rows_from(0)).nth(skipped)
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
