//! Commands on strings.

use super::call::Unit;
use super::conditional::Comparison;
use super::{
    ALL_KEYS, Access, Arguments, Call, Description, Many, NOT_A_FLOAT, ONE_KEY, Parse, Parsed,
    Request, Rights, SYNTAX, Shape, is,
};
use crate::command::operation::{Action, Condition, Expiry};
use crate::value::extended::Extended;

pub(super) const ROWS: &[Description<Parse>] = &[
    Description {
        name: "append",
        since: "2.0.0",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "string",
        categories: &["string"],
        summary: "Append a value to a key",
        parse: |c| {
            c.one(Action::Append {
                value: c.args.bytes(2),
            })
        },
    },
    Description {
        name: "decr",
        since: "1.0.0",
        arity: 2,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Decrement the integer value of a key by one",
        parse: |c| c.one(Action::IncrBy(-1)),
    },
    Description {
        name: "decrby",
        since: "1.0.0",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Decrement the integer value of a key by the given number",
        parse: decrby,
    },
    Description {
        name: "get",
        since: "1.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::READ,
        group: "string",
        categories: &["string"],
        summary: "Get the value of a key",
        parse: |c| c.one(Action::Get),
    },
    Description {
        name: "getdel",
        since: "6.2.0",
        arity: 2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Get the value of a key and delete the key",
        parse: |c| c.one(Action::GetDel),
    },
    Description {
        name: "getex",
        since: "6.2.0",
        arity: -2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Get the value of a key and optionally set its expiration",
        parse: getex,
    },
    Description {
        name: "getset",
        since: "1.0.0",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Set the string value of a key and return its old value",
        parse: |c| c.one(c.set(2, Condition::Always, Expiry::None, true)),
    },
    Description {
        name: "incr",
        since: "1.0.0",
        arity: 2,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Increment the integer value of a key by one",
        parse: |c| c.one(Action::IncrBy(1)),
    },
    Description {
        name: "incrby",
        since: "1.0.0",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Increment the integer value of a key by the given amount",
        parse: |c| c.one(Action::IncrBy(c.number(2)?)),
    },
    Description {
        name: "incrbyfloat",
        since: "2.6.0",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::BOTH,
        group: "string",
        categories: &["string"],
        summary: "Increment the float value of a key by the given amount",
        parse: incrbyfloat,
    },
    Description {
        name: "mget",
        since: "1.0.0",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        access: Access::READ,
        group: "string",
        categories: &["string"],
        summary: "Get the values of all the given keys, each atomically for itself",
        parse: |_| Ok(Request::Many(Many::Get)),
    },
    Description {
        name: "mset",
        since: "1.0.1",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: (1, -1, 2),
        access: Access::WRITE,
        group: "string",
        categories: &["string"],
        summary: "Set multiple keys to multiple values, each atomically for itself",
        parse: |c| c.is_paired().map(|()| Request::Many(Many::Set)),
    },
    Description {
        name: "psetex",
        since: "2.6.0",
        arity: 4,
        flags: &["write", "denyoom"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "string",
        categories: &["string"],
        summary: "Set the value and expiration in milliseconds of a key",
        parse: |c| set_for(c, Unit::Milliseconds),
    },
    Description {
        name: "set",
        since: "1.0.0",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: ONE_KEY,
        access: Access::Depends(of_set),
        group: "string",
        categories: &["string"],
        summary: "Set the string value of a key",
        parse: set,
    },
    Description {
        name: "setex",
        since: "2.0.0",
        arity: 4,
        flags: &["write", "denyoom"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "string",
        categories: &["string"],
        summary: "Set the value and expiration of a key",
        parse: |c| set_for(c, Unit::Seconds),
    },
    Description {
        name: "setnx",
        since: "1.0.0",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "string",
        categories: &["string"],
        summary: "Set the value of a key, only if the key does not exist",
        parse: |c| {
            c.shaped(
                c.set(2, Condition::IfAbsent, Expiry::None, false),
                Shape::Flag,
            )
        },
    },
    Description {
        name: "strlen",
        since: "2.2.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::TOUCH,
        group: "string",
        categories: &["string"],
        summary: "Get the length of the value stored in a key",
        parse: |c| c.one(Action::Strlen),
    },
];

fn set_for(c: Call<'_>, unit: Unit) -> Parsed {
    let expiry = c.positive_deadline(unit, 2)?;
    c.one(c.set(3, Condition::Always, expiry, false))
}

fn decrby(c: Call<'_>) -> Parsed {
    let by = c.number(2)?.checked_neg();
    c.one(Action::IncrBy(by.ok_or("ERR decrement would overflow")?))
}

fn incrbyfloat(c: Call<'_>) -> Parsed {
    let by = Extended::parse(c.args.get(2)).ok_or(NOT_A_FLOAT)?;
    c.shaped(Action::IncrByFloat(by), Shape::Float)
}

/// `SET` reads the key if it answers with the old value or compares it.
fn of_set(args: &dyn Arguments) -> Rights {
    let mut options = (3..args.len()).map(|at| args.get(at));
    let reads = options.any(|word| is(word, "GET") || Comparison::of_option(word).is_some());
    if reads { Rights::BOTH } else { Rights::WRITE }
}

fn set(c: Call<'_>) -> Parsed {
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

fn getex(c: Call<'_>) -> Parsed {
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
