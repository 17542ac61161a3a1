//! Commands on hashes.

use super::call::Unit;
use super::collections::{
    ITEM_OVERHEAD, TOO_LARGE, drawing, failed, has, length, random, rest, scan, scanning, wanted,
    writes,
};
use super::reply::{NOT_FINITE, Words};
use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, Part, SYNTAX, Shape,
    command, is, wrong_arity,
};
use crate::command::action::field_deadline;
use crate::command::operation::{Action, Expiry, Footprint};
use crate::command::procedure::{Inputs, Procedure, WRITES, count, procedure, values};
use crate::store::collection::{self, CollectionView, Edit, FieldDeadline};
use crate::store::run_context::RunContext;
use crate::value::deadline;
use crate::value::extended::Extended;
use crate::value::integer::integer;
use crate::value::items::{Items, Pairs};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("hdel", "2.0.0", -3, "hash", "write fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Delete one or more hash fields")
        .parse(|c| c.one(Action::call(&DELETE, &[], [rest(c, 2)]))),
    command("hexists", "2.0.0", 3, "hash", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "hash")
        .about("Determine if a hash field exists")
        .parse(|c| c.one(Action::call(&HAS, &[], [c.args.bytes(2)]))),
    command("hexpire", "7.4.0", -6, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set expiry for hash field using relative time to expire (seconds)")
        .parse(|c| expire(c, Unit::Seconds)),
    command("hexpireat", "7.4.0", -6, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set expiry for hash field using an absolute Unix timestamp (seconds)")
        .parse(|c| expire(c, Unit::UnixSeconds)),
    command("hexpiretime", "7.4.0", -5, "hash", "readonly fast")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Returns the expiration time of a hash field as a Unix timestamp, in seconds.")
        .parse(|c| time(c, true, 1000)),
    command("hget", "2.0.0", 3, "hash", "readonly fast")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Get the value of a hash field")
        .parse(|c| c.one(Action::call(&GET, &[], [c.args.bytes(2)]))),
    command("hgetall", "2.0.0", 2, "hash", "readonly")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Get all the fields and values in a hash")
        .parse(|c| c.shaped(all(), Shape::Fields(Part::Whole))),
    command("hgetdel", "8.0.0", -5, "hash", "write fast")
        .on(ONE_KEY, Access::BOTH, "hash")
        .about("Returns the value of a field and deletes it from the hash.")
        .parse(get_and_delete),
    command("hgetex", "8.0.0", -5, "hash", "write fast")
        .on(ONE_KEY, Access::BOTH, "hash")
        .about(
            "Get the value of one or more fields of a given hash key, and optionally set their \
             expiration.",
        )
        .parse(get_and_date),
    command("hincrby", "2.0.0", 4, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "hash")
        .about("Increment the integer value of a hash field by the given number")
        .parse(|c| {
            let by = c.number(3)?;
            let action = Action::call(&ADD, &[by], [c.args.bytes(2)]);
            c.shaped(action, WORDED)
        }),
    command("hincrbyfloat", "2.6.0", 4, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "hash")
        .about("Increment the float value of a hash field by the given amount")
        .parse(add_float),
    command("hkeys", "2.0.0", 2, "hash", "readonly")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Get all the fields in a hash")
        .parse(|c| c.shaped(all(), Shape::Fields(Part::Fields))),
    command("hlen", "2.0.0", 2, "hash", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "hash")
        .about("Get the number of fields in a hash")
        .parse(|c| c.one(Action::call(&LENGTH, &[], Vec::new()))),
    command("hmget", "2.0.0", -3, "hash", "readonly fast")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Get the values of all the given hash fields")
        .parse(|c| c.one(Action::call(&GET_SOME, &[], [rest(c, 2)]))),
    command("hmset", "2.0.0", -4, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set multiple hash fields to multiple values")
        .parse(|c| c.shaped(set(c, false)?, Shape::Done(&WORDS))),
    command("hpersist", "7.4.0", -5, "hash", "write fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Removes the expiration time for each specified field")
        .parse(|c| {
            c.one(Action::call(
                &PERSIST,
                &[],
                vec![fields(c, 2, COUNT_ERROR)?],
            ))
        }),
    command("hpexpire", "7.4.0", -6, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set expiry for hash field using relative time to expire (milliseconds)")
        .parse(|c| expire(c, Unit::Milliseconds)),
    command("hpexpireat", "7.4.0", -6, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set expiry for hash field using an absolute Unix timestamp (milliseconds)")
        .parse(|c| expire(c, Unit::UnixMilliseconds)),
    command("hpexpiretime", "7.4.0", -5, "hash", "readonly fast")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Returns the expiration time of a hash field as a Unix timestamp, in msec.")
        .parse(|c| time(c, true, 1)),
    command("hpttl", "7.4.0", -5, "hash", "readonly fast")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Returns the TTL in milliseconds of a hash field.")
        .parse(|c| time(c, false, 1)),
    command("hrandfield", "6.2.0", -2, "hash", "readonly")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Get one or multiple random fields from a hash")
        .parse(draw),
    command("hscan", "2.8.0", -3, "hash", "readonly")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Incrementally iterate hash fields and associated values")
        .parse(|c| scanning(c, &SCAN, (true, Some("NOVALUES")))),
    command("hset", "2.0.0", -4, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set the string value of a hash field")
        .parse(|c| c.shaped(set(c, false)?, WORDED)),
    command("hsetex", "8.0.0", -6, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about(
            "Set the value of one or more fields of a given hash key, and optionally set their \
             expiration.",
        )
        .parse(set_and_date),
    command("hsetnx", "2.0.0", 4, "hash", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hash")
        .about("Set the value of a hash field, only if the field does not exist")
        .parse(|c| c.shaped(set(c, true)?, WORDED)),
    command("hstrlen", "3.2.0", 3, "hash", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "hash")
        .about("Get the length of the value of a hash field")
        .parse(|c| c.one(Action::call(&VALUE_LENGTH, &[], [c.args.bytes(2)]))),
    command("httl", "7.4.0", -5, "hash", "readonly fast")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Returns the TTL in seconds of a hash field.")
        .parse(|c| time(c, false, 1000)),
    command("hvals", "2.0.0", 2, "hash", "readonly")
        .on(ONE_KEY, Access::READ, "hash")
        .about("Get all the values in a hash")
        .parse(|c| c.shaped(all(), Shape::Fields(Part::Values))),
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
    &EXPIRE,
    &TIME,
    &PERSIST,
    &GET_AND_DATE,
    &SET_AND_DATE,
];

/// Redis's texts if a command on fields fails.
static WORDS: Words = Words {
    not_an_integer: "ERR hash value is not an integer",
    not_a_float: "ERR hash value is not a float",
    too_large: "ERR the fields and values are too large for one command (--value-max): nothing \
                was changed; set them with several commands",
    ..Words::PLAIN
};
const WORDED: Shape = Shape::Worded(&WORDS);
/// The same for a number that may be infinite.
const WORDED_FLOAT: Shape = Shape::Worded(&Words {
    overflow: NOT_FINITE,
    ..WORDS
});

/// The value of a field. → `Bulk` or `Nil`
static GET: Procedure = procedure(7, "hash get", Kind::Hash, (0, 1))
    .costs(values)
    .on_fields(|inputs, hash, _| (Some(value(hash.get(&inputs.bytes[0]))), Edit::None));

/// The values of several fields. → `Many`
static GET_SOME: Procedure = procedure(8, "hash get some", Kind::Hash, (0, 1))
    .costs(values)
    .on_fields(
        |inputs, hash, cx| match values_of(hash, &inputs.bytes[0], cx) {
            Some(values) => (Some(Outcome::Many(values)), Edit::None),
            None => TOO_LARGE,
        },
    );

/// All fields and values. → `Bulk`, as a small hash is stored, or `Nil`; the first page of a large
/// one if the caller reads it in pages
pub(crate) static ALL: Procedure = procedure(9, "hash all", Kind::Hash, (1, 0)).costs(values);

/// How many fields there are. → `Int`
static LENGTH: Procedure = procedure(10, "hash length", Kind::Hash, (0, 0)).on_fields(length);

/// How long the value of a field is. → `Int`
static VALUE_LENGTH: Procedure =
    procedure(11, "hash value length", Kind::Hash, (0, 1)).on_fields(|inputs, hash, _| {
        let found = hash.get(&inputs.bytes[0]);
        (Some(count(found.map_or(0, <[u8]>::len))), Edit::None)
    });

/// Whether there is a field. → `Int`
static HAS: Procedure = procedure(12, "hash has", Kind::Hash, (0, 1)).on_fields(has);

/// Sets fields; or (1) only if the first of them is absent. → `Int`, how many are new
static SET: Procedure = procedure(13, "hash set", Kind::Hash, (1, 1))
    .costs(writes)
    .told_as("hset")
    .on_fields(|inputs, hash, _| {
        let given = pairs(inputs);
        let Some((first, _)) = { given }.next() else {
            return (None, Edit::None);
        };
        if inputs.numbers[0] == 1 && hash.get(first).is_some() {
            return (None, Edit::None);
        }
        (None, Edit::Set(given, FieldDeadline::Never))
    });

/// Deletes fields. → `Int`, how many there were
static DELETE: Procedure = procedure(14, "hash delete", Kind::Hash, (0, 1))
    .costs(writes)
    .told_as("hdel")
    .on_fields(|inputs, _, _| (None, Edit::Delete(Items(&inputs.bytes[0]).collect())));

/// Adds to the integer of a field. → `Int`
static ADD: Procedure = procedure(15, "hash add", Kind::Hash, (1, 1))
    .costs(writes)
    .told_as("hincrby")
    .on_fields(|inputs, hash, _| {
        let field = &inputs.bytes[0];
        let Some(old) = hash.get(field).map_or(Some(0), integer) else {
            return failed(Failure::NotAnInteger);
        };
        let Some(new) = old.checked_add(inputs.numbers[0]) else {
            return failed(Failure::Overflow);
        };
        let text = new.to_string().into_bytes();
        (Some(Outcome::Int(new)), Edit::SetOne(field, text))
    });

/// Adds to the decimal number of a field, whose addend is a text. → `Bulk`
static ADD_FLOAT: Procedure = procedure(16, "hash add float", Kind::Hash, (0, 2))
    .costs(writes)
    .told_as("hincrbyfloat")
    .on_fields(|inputs, hash, _| {
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
    });

/// This many random fields, with (1) or without their values, drawn from this seed. A negative
/// number draws a field again and again; a number that is not negative, each field at most once. →
/// `Many`, or `Nil`: the key is absent
static RANDOM: Procedure = procedure(17, "hash random", Kind::Hash, (3, 0))
    .costs(values)
    .on_fields(random);

/// Fields with (1) or without their values from a place on, about this many, which match a pattern.
/// → `Keys`
static SCAN: Procedure = procedure(18, "hash scan", Kind::Hash, (3, 1))
    .costs(values)
    .on_fields(scan);

/// The values of several fields, which are deleted. → `Many`
static GET_AND_DELETE: Procedure = procedure(19, "hash get and delete", Kind::Hash, (0, 1))
    .costs(|inputs| Footprint {
        answers_value: true,
        looks_up: true,
        ..writes(inputs)
    })
    .told_as("hdel")
    .on_fields(|inputs, hash, cx| {
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
        let fields = Items(&inputs.bytes[0]).collect();
        (Some(Outcome::Many(values)), Edit::Delete(fields))
    });

/// Gives fields a deadline, as `expiry_of` two numbers says, under a condition of the third. →
/// `Many`: 1 done, 0 the condition is not met, 2 deleted because the time is past, -2 no such field
static EXPIRE: Procedure = procedure(20, "hash expire", Kind::Hash, (3, 1))
    .costs(dates)
    .told_as("hexpire")
    .on_fields(|inputs, hash, cx| {
        let deadline = field_deadline(expiry_of(inputs), cx);
        let condition = inputs.numbers[2];
        let (mut outcomes, mut met) = (Vec::new(), BTreeMap::new());
        for field in Items(&inputs.bytes[0]) {
            let held = met.get(field).copied();
            let old = held.or_else(|| hash.dated(field).map(|(_, old)| Some(old)));
            outcomes.push(Outcome::Int(match old {
                None | Some(None) => -2,
                Some(Some(old)) if !is_met(condition, old, deadline, cx) => 0,
                Some(Some(_)) => {
                    met.insert(field, deadline);
                    if deadline.is_some() { 1 } else { 2 }
                }
            }));
        }
        let edit = match deadline {
            _ if met.is_empty() => Edit::None,
            Some(at) => Edit::Date(met.into_keys().map(|field| (field, at)).collect()),
            None => Edit::Delete(met.into_keys().collect()),
        };
        (Some(Outcome::Many(outcomes)), edit)
    });

/// When fields expire: how long from now (0), or the wall time (1), in units of this many
/// milliseconds. → `Many`: -1 never, -2 no such field
static TIME: Procedure =
    procedure(21, "hash time", Kind::Hash, (2, 1)).on_fields(|inputs, hash, cx| {
        let (wall, unit) = (inputs.numbers[0] == 1, inputs.numbers[1].max(1));
        let time = |field| match hash.dated(field) {
            None => -2,
            Some((_, 0)) => -1,
            Some((_, deadline)) => {
                let ms = if wall {
                    cx.unix_ms_of(deadline)
                } else {
                    deadline::clock(deadline).saturating_sub(cx.clock)
                };
                let ms = i64::try_from(ms).unwrap_or(i64::MAX);
                ms / unit + i64::from(ms % unit > 0)
            }
        };
        let times = Items(&inputs.bytes[0]).map(|field| Outcome::Int(time(field)));
        (Some(Outcome::Many(times.collect())), Edit::None)
    });

/// Takes the deadlines of fields away. → `Many`: 1 done, -1 it had none, -2 no such field
static PERSIST: Procedure = procedure(22, "hash persist", Kind::Hash, (0, 1))
    .costs(dates)
    .told_as("hpersist")
    .on_fields(|inputs, hash, _| {
        let (mut outcomes, mut fields) = (Vec::new(), BTreeSet::new());
        for field in Items(&inputs.bytes[0]) {
            outcomes.push(Outcome::Int(match hash.dated(field) {
                None => -2,
                Some((_, 0)) => -1,
                Some(_) if !fields.insert(field) => -1,
                Some(_) => 1,
            }));
        }
        let fields = fields.into_iter().map(|field| (field, 0));
        (Some(Outcome::Many(outcomes)), Edit::Date(fields.collect()))
    });

/// The values of several fields, which get a deadline as two numbers say (see `expiry_of`). →
/// `Many`
static GET_AND_DATE: Procedure = procedure(23, "hash get and date", Kind::Hash, (2, 1))
    .costs(|inputs| Footprint {
        answers_value: true,
        looks_up: true,
        ..dates(inputs)
    })
    .told_as("hexpire")
    .on_fields(|inputs, hash, cx| {
        let Some(values) = values_of(hash, &inputs.bytes[0], cx) else {
            return TOO_LARGE;
        };
        let fields = || Items(&inputs.bytes[0]);
        let expiry = expiry_of(inputs);
        let edit = match field_deadline(expiry, cx) {
            _ if expiry == Expiry::Keep => Edit::None,
            Some(at) => Edit::Date(fields().map(|field| (field, at)).collect()),
            None => Edit::Delete(fields().collect()),
        };
        (Some(Outcome::Many(values)), edit)
    });

/// Sets fields if (1) none of them exists, or (2) all of them do, with a deadline as the other two
/// numbers say (see `expiry_of`). → `Int`, whether it did
static SET_AND_DATE: Procedure = procedure(24, "hash set and date", Kind::Hash, (3, 1))
    .costs(writes)
    .told_as("hset")
    .on_fields(|inputs, hash, cx| {
        let given = pairs(inputs);
        let met = { given }.all(|(field, _)| match inputs.numbers[2] {
            1 => hash.get(field).is_none(),
            2 => hash.get(field).is_some(),
            _ => true,
        });
        if !met {
            return (Some(Outcome::Int(0)), Edit::None);
        }
        let expiry = expiry_of(inputs);
        let edit = match field_deadline(expiry, cx) {
            _ if expiry == Expiry::Keep => Edit::Set(given, FieldDeadline::Keep),
            Some(0) => Edit::Set(given, FieldDeadline::Never),
            Some(at) => Edit::Set(given, FieldDeadline::At(at)),
            // They were written and expired at once.
            None => Edit::Delete(given.map(|(field, _)| field).collect()),
        };
        (Some(Outcome::Int(1)), edit)
    });

/// The time that the first two numbers of a procedure give.
fn expiry_of(inputs: &Inputs) -> Expiry {
    Expiry::of_numbers([inputs.numbers[0], inputs.numbers[1]])
}

/// Whether a field with this deadline gets another one. Without one, it counts as the latest.
fn is_met(condition: i64, old: u64, new: Option<u64>, cx: &RunContext) -> bool {
    // Wall times are compared, because clients give and read wall times.
    let new = new.map_or(0, |at| cx.unix_ms_of(at));
    match condition {
        NX => old == 0,
        XX => old != 0,
        GT => old != 0 && new > cx.unix_ms_of(old),
        LT => old == 0 || new < cx.unix_ms_of(old),
        _ => true,
    }
}

const NX: i64 = 1;
const XX: i64 = 2;
const GT: i64 = 3;
const LT: i64 = 4;

/// What a procedure does that changes deadlines. It may write the fields once more.
fn dates(inputs: &Inputs) -> Footprint {
    Footprint {
        stores: inputs.bytes.first().map_or(0, Bytes::len),
        ..WRITES
    }
}

fn value(found: Option<&[u8]>) -> Outcome {
    found.map_or(Outcome::Nil, |found| Outcome::Bulk(Value::from(found)))
}

/// The values of these fields. `None`: together they are too large.
fn values_of(hash: CollectionView<'_>, fields: &[u8], cx: &RunContext) -> Option<Vec<Outcome>> {
    let mut bytes = 0;
    let most = collection::answer_max(cx);
    Items(fields)
        .map(|field| {
            let found = hash.get(field);
            bytes += ITEM_OVERHEAD + found.map_or(0, <[u8]>::len);
            (bytes <= most).then(|| value(found))
        })
        .collect()
}

fn all() -> Action {
    Action::call(&ALL, &[0], Vec::new())
}

/// The fields that a procedure is given, with their values.
fn pairs(inputs: &Inputs) -> Pairs<'_> {
    Pairs::of(&inputs.bytes[0], true)
}

fn set(c: CommandCall<'_>, only_absent: bool) -> Result<Action, ErrorText> {
    if !c.args.len().is_multiple_of(2) {
        return Err(wrong_arity(c.name));
    }
    let flag = i64::from(only_absent);
    Ok(Action::call(&SET, &[flag], [rest(c, 2)]))
}

fn add_float(c: CommandCall<'_>) -> Parsed {
    let text = c.args.get(3);
    let by = Extended::parse(text).ok_or(super::NOT_A_FLOAT)?;
    if !by.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let inputs = vec![c.args.bytes(2), c.args.bytes(3)];
    c.shaped(Action::call(&ADD_FLOAT, &[], inputs), WORDED_FLOAT)
}

fn draw(c: CommandCall<'_>) -> Parsed {
    if c.args.len() == 2 {
        return c.shaped(drawing(&RANDOM, 1, false), Shape::First);
    }
    let wanted = wanted(c)?;
    let values = match c.args.len() {
        3 => false,
        4 if is(c.args.get(3), "WITHVALUES") => true,
        _ => return Err(SYNTAX.into()),
    };
    if values && wanted.abs() > i64::MAX / 2 {
        return Err("ERR value is out of range".into());
    }
    let shape = if values { Shape::Pairs } else { Shape::List };
    c.shaped(drawing(&RANDOM, wanted, values), shape)
}

fn get_and_delete(c: CommandCall<'_>) -> Parsed {
    let fields = fields(c, 2, COUNT_ERROR)?;
    c.one(Action::call(&GET_AND_DELETE, &[], [fields]))
}

const COUNT_ERROR: &str = "ERR Number of fields must be a positive integer";

/// The fields behind FIELDS and their number, which are the last arguments.
fn fields(c: CommandCall<'_>, at: usize, no_count: &'static str) -> Result<Bytes, ErrorText> {
    if !is(c.args.get(at), "FIELDS") {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let count = integer(c.args.get(at + 1)).filter(|count| *count > 0);
    let count = count.ok_or(no_count)?;
    if usize::try_from(count).is_ok_and(|count| at + 2 + count == c.args.len()) {
        Ok(rest(c, at + 2))
    } else {
        Err("ERR The `numfields` parameter must match the number of arguments".into())
    }
}

/// The latest wall time at which a field may expire, in milliseconds, as in Redis.
const LATEST_MS: i64 = (1 << 46) - 1;

/// A time in this unit.
fn time_of(c: CommandCall<'_>, unit: Unit, at: usize) -> Result<Expiry, ErrorText> {
    let number = c.number(at)?;
    if number < 0 {
        return Err("ERR invalid expire time, must be >= 0".into());
    }
    c.deadline_before(unit, number, LATEST_MS)
}

fn expire(c: CommandCall<'_>, unit: Unit) -> Parsed {
    let [kind, ms] = time_of(c, unit, 2)?.numbers();
    let conditions = [("NX", NX), ("XX", XX), ("GT", GT), ("LT", LT)];
    let mut conditions = conditions.into_iter();
    let condition = conditions.find(|(word, _)| is(c.args.get(3), word));
    let at = if condition.is_some() { 4 } else { 3 };
    let condition = condition.map_or(0, |(_, condition)| condition);
    let no_count = "ERR Parameter `numFields` should be greater than 0";
    let fields = fields(c, at, no_count)?;
    c.one(Action::call(&EXPIRE, &[kind, ms, condition], [fields]))
}

fn time(c: CommandCall<'_>, wall: bool, unit: i64) -> Parsed {
    let fields = fields(c, 2, COUNT_ERROR)?;
    c.one(Action::call(&TIME, &[i64::from(wall), unit], [fields]))
}

fn get_and_date(c: CommandCall<'_>) -> Parsed {
    let option = c.args.get(2);
    let (expiry, at) = match Unit::of_option(option) {
        Some(unit) => (time_of(c, unit, 3)?, 4),
        None if is(option, "PERSIST") => (Expiry::None, 3),
        None => (Expiry::Keep, 2),
    };
    let fields = fields(c, at, COUNT_ERROR)?;
    c.one(Action::call(&GET_AND_DATE, &expiry.numbers(), [fields]))
}

fn set_and_date(c: CommandCall<'_>) -> Parsed {
    let (mut condition, mut expiry, mut at) = (0, None, 2);
    while at < c.args.len() {
        let option = c.args.get(at);
        if is(option, "FIELDS") {
            let count = integer(c.args.get(at + 1)).filter(|count| *count > 0);
            let count = count.ok_or("ERR invalid number of fields")?;
            let given = c.args.len().saturating_sub(at + 2);
            if !given.is_multiple_of(2) || usize::try_from(count) != Ok(given / 2) {
                return Err(wrong_arity(c.name));
            }
            let [kind, ms] = expiry.unwrap_or(Expiry::None).numbers();
            let numbers = [kind, ms, condition];
            return c.one(Action::call(&SET_AND_DATE, &numbers, [rest(c, at + 2)]));
        }
        let wanted = [("FNX", 1), ("FXX", 2)];
        if let Some((_, wanted)) = wanted.iter().find(|(word, _)| is(option, word)) {
            if condition != 0 {
                return Err("ERR Only one of FXX or FNX arguments can be specified".into());
            }
            condition = *wanted;
            at += 1;
            continue;
        }
        let unit = Unit::of_option(option);
        if unit.is_none() && !is(option, "KEEPTTL") {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR unknown argument: {option}").into());
        }
        if expiry.is_some() {
            return Err(
                "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified".into(),
            );
        }
        expiry = Some(match unit {
            Some(unit) => time_of(c, unit, at + 1)?,
            None => Expiry::Keep,
        });
        at += if unit.is_some() { 2 } else { 1 };
    }
    Err("ERR missing FIELDS argument".into())
}
