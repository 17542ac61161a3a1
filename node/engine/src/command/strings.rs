//! Commands on strings.

use super::call::Unit;
use super::conditional::Comparison;
use super::{
    ALL_KEYS, Access, Arguments, CommandCall, Description, Many, NOT_A_FLOAT, ONE_KEY, ParseFn,
    Parsed, ParsedRequest, Rights, SYNTAX, Shape, command, is,
};
use crate::command::operation::{Action, Condition, Expiry};
use crate::value::extended::Extended;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("append", "2.0.0", 3, "string", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "string")
        .about("Append a value to a key")
        .parse(|c| {
            c.one(Action::Append {
                value: c.args.bytes(2),
            })
        }),
    command("decr", "1.0.0", 2, "string", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Decrement the integer value of a key by one")
        .parse(|c| c.one(Action::IncrBy(-1))),
    command("decrby", "1.0.0", 3, "string", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Decrement the integer value of a key by the given number")
        .parse(decrby),
    command("get", "1.0.0", 2, "string", "readonly fast")
        .on(ONE_KEY, Access::READ, "string")
        .about("Get the value of a key")
        .parse(|c| c.one(Action::Get)),
    command("getdel", "6.2.0", 2, "string", "write fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Get the value of a key and delete the key")
        .parse(|c| c.one(Action::GetDel)),
    command("getex", "6.2.0", -2, "string", "write fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Get the value of a key and optionally set its expiration")
        .parse(getex),
    command("getset", "1.0.0", 3, "string", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Set the string value of a key and return its old value")
        .parse(|c| c.one(c.set(2, Condition::Always, Expiry::None, true))),
    command("incr", "1.0.0", 2, "string", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Increment the integer value of a key by one")
        .parse(|c| c.one(Action::IncrBy(1))),
    command("incrby", "1.0.0", 3, "string", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Increment the integer value of a key by the given amount")
        .parse(|c| c.one(Action::IncrBy(c.number(2)?))),
    command("incrbyfloat", "2.6.0", 3, "string", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Increment the float value of a key by the given amount")
        .parse(incrbyfloat),
    command("mget", "1.0.0", -2, "string", "readonly fast")
        .on(ALL_KEYS, Access::READ, "string")
        .about("Get the values of all the given keys, each atomically for itself")
        .parse(|_| Ok(ParsedRequest::Many(Many::Get))),
    command("mset", "1.0.1", -3, "string", "write denyoom")
        .on((1, -1, 2), Access::WRITE, "string")
        .about("Set multiple keys to multiple values, each atomically for itself")
        .parse(|c| c.is_paired().map(|()| ParsedRequest::Many(Many::Set))),
    command("psetex", "2.6.0", 4, "string", "write denyoom")
        .on(ONE_KEY, Access::WRITE, "string")
        .about("Set the value and expiration in milliseconds of a key")
        .parse(|c| set_for(c, Unit::Milliseconds)),
    command("set", "1.0.0", -3, "string", "write denyoom")
        .on(ONE_KEY, Access::Depends(of_set), "string")
        .about("Set the string value of a key")
        .parse(set),
    command("setex", "2.0.0", 4, "string", "write denyoom")
        .on(ONE_KEY, Access::WRITE, "string")
        .about("Set the value and expiration of a key")
        .parse(|c| set_for(c, Unit::Seconds)),
    command("setnx", "1.0.0", 3, "string", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "string")
        .about("Set the value of a key, only if the key does not exist")
        .parse(|c| {
            c.shaped(
                c.set(2, Condition::IfAbsent, Expiry::None, false),
                Shape::Flag,
            )
        }),
    command("strlen", "2.2.0", 2, "string", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "string")
        .about("Get the length of the value stored in a key")
        .parse(|c| c.one(Action::Strlen)),
];

fn set_for(c: CommandCall<'_>, unit: Unit) -> Parsed {
    let expiry = c.positive_deadline(unit, 2)?;
    c.one(c.set(3, Condition::Always, expiry, false))
}

fn decrby(c: CommandCall<'_>) -> Parsed {
    let by = c.number(2)?.checked_neg();
    c.one(Action::IncrBy(by.ok_or("ERR decrement would overflow")?))
}

fn incrbyfloat(c: CommandCall<'_>) -> Parsed {
    let by = Extended::parse(c.args.get(2)).ok_or(NOT_A_FLOAT)?;
    c.shaped(Action::IncrByFloat(by), Shape::Float)
}

/// `SET` reads the key if it answers with the old value or compares it.
fn of_set(args: &dyn Arguments) -> Rights {
    let mut options = (3..args.len()).map(|at| args.get(at));
    let reads = options.any(|word| is(word, "GET") || Comparison::of_option(word).is_some());
    if reads { Rights::BOTH } else { Rights::WRITE }
}

fn set(c: CommandCall<'_>) -> Parsed {
    let args = c.args;
    let (mut condition, mut given, mut keep, mut get) = (Condition::Always, None, false, false);
    let mut compared = None;
    let mut i = 3;
    while i < args.len() {
        let arg = args.get(i);
        if is(arg, "NX") && condition != Condition::IfPresent && compared.is_none() {
            condition = Condition::IfAbsent;
        } else if is(arg, "XX") && condition != Condition::IfAbsent && compared.is_none() {
            condition = Condition::IfPresent;
        } else if is(arg, "GET") {
            get = true;
        } else if is(arg, "KEEPTTL") && given.is_none() {
            keep = true;
        } else if let Some(comparison) = Comparison::of_option(arg)
            && condition == Condition::Always
            && compared.is_none()
            && i + 1 < args.len()
        {
            i += 1;
            compared = Some((comparison, i));
        } else if let Some(unit) =
            Unit::of_option(arg).filter(|unit| unit.is_alike(given) && !keep && i + 1 < args.len())
        {
            i += 1;
            given = Some((unit, i));
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    let expiry = c.expiry(given, keep)?;
    match compared {
        Some((comparison, other)) => c.one(comparison.set(c, other, expiry, get)?),
        None => c.one(c.set(2, condition, expiry, get)),
    }
}

fn getex(c: CommandCall<'_>) -> Parsed {
    let args = c.args;
    let (mut given, mut persist) = (None, false);
    let mut i = 2;
    while i < args.len() {
        let arg = args.get(i);
        if is(arg, "PERSIST") && given.is_none() {
            persist = true;
        } else if let Some(unit) = Unit::of_option(arg)
            .filter(|unit| unit.is_alike(given) && !persist && i + 1 < args.len())
        {
            i += 1;
            given = Some((unit, i));
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    let action = match given {
        Some((unit, at)) => Action::GetEx {
            expiry: c.positive_deadline(unit, at)?,
        },
        None if persist => Action::GetEx {
            expiry: Expiry::None,
        },
        None => Action::Get,
    };
    c.one(action)
}
