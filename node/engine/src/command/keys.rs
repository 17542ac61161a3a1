//! Commands on keys of any type.

use super::call::Unit;
use super::description::KEY_OF_SUBCOMMAND;
use super::{
    ALL_KEYS, Access, Call, Description, ErrorText, Many, NO_KEYS, ONE_KEY, Parse, Parsed, SYNTAX,
    Shape, container, is,
};
use crate::command::operation::{Action, ExpireCondition};

pub(super) const ROWS: &[Description<Parse>] = &[
    Description {
        name: "del",
        since: "1.0.0",
        arity: -2,
        flags: &["write"],
        keys: ALL_KEYS,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Delete a key",
        parse: |c| c.each(Many::Delete),
    },
    Description {
        name: "exists",
        since: "1.0.0",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Determine if a key exists",
        parse: |c| c.each(Many::Exists),
    },
    Description {
        name: "expire",
        since: "1.0.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Set a key's time to live in seconds",
        parse: |c| expire(c, Unit::Seconds),
    },
    Description {
        name: "expireat",
        since: "1.2.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Set the expiration for a key as a UNIX timestamp",
        parse: |c| expire(c, Unit::UnixSeconds),
    },
    Description {
        name: "expiretime",
        since: "7.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::READ,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the expiration Unix timestamp for a key",
        parse: |c| c.shaped(Action::PExpireTime, Shape::Seconds),
    },
    Description {
        name: "memory",
        since: "4.0.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "server",
        categories: &[],
        summary: "A container for memory diagnostics commands",
        parse: container,
    },
    Description {
        name: "memory|usage",
        since: "4.0.0",
        arity: -3,
        flags: &["readonly"],
        keys: KEY_OF_SUBCOMMAND,
        access: Access::TOUCH,
        group: "server",
        categories: &[],
        summary: "Estimate the memory usage of a key",
        parse: memory_usage,
    },
    Description {
        name: "object",
        since: "2.2.3",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "generic",
        categories: &[],
        summary: "A container for object introspection commands",
        parse: container,
    },
    Description {
        name: "object|encoding",
        since: "2.2.3",
        arity: 3,
        flags: &["readonly"],
        keys: KEY_OF_SUBCOMMAND,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Inspect the internal encoding of a Redis object",
        parse: |c| object(c, Action::Encoding, Shape::Encoding),
    },
    Description {
        name: "object|freq",
        since: "4.0.0",
        arity: 3,
        flags: &["readonly"],
        keys: KEY_OF_SUBCOMMAND,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the logarithmic access frequency counter of a Redis object",
        parse: |c| object(c, Action::Exists, Shape::Frequency),
    },
    Description {
        name: "object|idletime",
        since: "2.2.3",
        arity: 3,
        flags: &["readonly"],
        keys: KEY_OF_SUBCOMMAND,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the time since a Redis object was last accessed",
        parse: |c| object(c, Action::Exists, Shape::IdleTime),
    },
    Description {
        name: "object|refcount",
        since: "2.2.3",
        arity: 3,
        flags: &["readonly"],
        keys: KEY_OF_SUBCOMMAND,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the number of references to the value of the key",
        parse: |c| object(c, Action::Exists, Shape::References),
    },
    Description {
        name: "persist",
        since: "2.2.0",
        arity: 2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Remove the expiration from a key",
        parse: |c| c.one(Action::Persist),
    },
    Description {
        name: "pexpire",
        since: "2.6.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Set a key's time to live in milliseconds",
        parse: |c| expire(c, Unit::Milliseconds),
    },
    Description {
        name: "pexpireat",
        since: "2.6.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
        parse: |c| expire(c, Unit::UnixMilliseconds),
    },
    Description {
        name: "pexpiretime",
        since: "7.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::READ,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the expiration Unix timestamp for a key in milliseconds",
        parse: |c| c.one(Action::PExpireTime),
    },
    Description {
        name: "pttl",
        since: "2.6.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::READ,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the time to live for a key in milliseconds",
        parse: |c| c.one(Action::PTtl),
    },
    Description {
        name: "touch",
        since: "3.2.1",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Alters the last access time of a key(s). Returns the number of existing keys specified.",
        parse: |c| c.each(Many::Touch),
    },
    Description {
        name: "ttl",
        since: "1.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::READ,
        group: "generic",
        categories: &["keyspace"],
        summary: "Get the time to live for a key in seconds",
        parse: |c| c.shaped(Action::PTtl, Shape::Seconds),
    },
    Description {
        name: "type",
        since: "1.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        access: Access::TOUCH,
        group: "generic",
        categories: &["keyspace"],
        summary: "Determine the type stored at key",
        parse: |c| c.shaped(Action::Encoding, Shape::Type),
    },
    Description {
        name: "unlink",
        since: "4.0.0",
        arity: -2,
        flags: &["write", "fast"],
        keys: ALL_KEYS,
        access: Access::WRITE,
        group: "generic",
        categories: &["keyspace"],
        summary: "Delete a key",
        parse: |c| c.each(Many::Delete),
    },
];

fn object(c: Call<'_>, action: Action, shape: Shape) -> Parsed {
    c.of_key(2, action, shape)
}

fn expire(c: Call<'_>, unit: Unit) -> Parsed {
    let condition = expire_condition(c)?;
    let expiry = c.deadline(unit, 2)?;
    c.one(Action::Expire { expiry, condition })
}

fn expire_condition(c: Call<'_>) -> Result<ExpireCondition, ErrorText> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for arg in c.args_from(3) {
        match arg.to_ascii_uppercase().as_slice() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => {
                return Err(
                    format!("ERR Unsupported option {}", String::from_utf8_lossy(arg)).into(),
                );
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(match (nx, xx, gt, lt) {
        (true, ..) => ExpireCondition::IfNone,
        // A key without a deadline is never later than anything, so GT says already what XX adds.
        (_, _, true, _) => ExpireCondition::IfLater,
        (_, true, _, true) => ExpireCondition::IfSomeEarlier,
        (_, _, _, true) => ExpireCondition::IfEarlier,
        (_, true, ..) => ExpireCondition::IfSome,
        _ => ExpireCondition::Always,
    })
}

fn memory_usage(c: Call<'_>) -> Parsed {
    let args = c.args;
    // Strings have no elements to sample.
    match args.len() {
        3 => {}
        5 if is(args.get(3), "samples") => {
            c.number(4)?;
            if args.get(4).starts_with(b"-") {
                return Err(SYNTAX.into());
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    c.of_key(2, Action::Footprint, Shape::Plain)
}
