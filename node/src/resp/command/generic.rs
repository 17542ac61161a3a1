//! Commands on keys of any type, and on all keys.

use super::table::{ALL_KEYS, Description, NO_KEYS, ONE_KEY};
use super::{
    All, Call, ErrorText, Many, NOT_AN_INTEGER, Parsed, Request, SYNTAX, Shape, Unit, container,
    deadline, help, is, pattern_at,
};
use crate::resp::frame::Args;
use bytes::Bytes;
use doyen_engine::integer;
use doyen_engine::op::{Action, ExpireCondition, RangeQuery};

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "del",
        since: "1.0.0",
        arity: -2,
        flags: &["write"],
        keys: ALL_KEYS,
        summary: "Delete a key",
        parse: |c| c.each(Action::Delete, Many::Delete),
    },
    Description {
        name: "exists",
        since: "1.0.0",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        summary: "Determine if a key exists",
        parse: |c| c.each(Action::Exists, Many::Exists),
    },
    Description {
        name: "expire",
        since: "1.0.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        summary: "Set a key's time to live in seconds",
        parse: |c| expire(c, Unit::Seconds),
    },
    Description {
        name: "expireat",
        since: "1.2.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        summary: "Set the expiration for a key as a UNIX timestamp",
        parse: |c| expire(c, Unit::UnixSeconds),
    },
    Description {
        name: "expiretime",
        since: "7.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        summary: "Get the expiration Unix timestamp for a key",
        parse: |c| c.shaped(Action::PExpireTime, Shape::Seconds),
    },
    Description {
        name: "keys",
        since: "1.0.0",
        arity: 2,
        flags: &["readonly"],
        keys: NO_KEYS,
        summary: "Find all keys matching the given pattern",
        parse: |c| {
            Ok(Request::All(All::Keys {
                pattern: pattern_at(c.args, 1)?,
            }))
        },
    },
    Description {
        name: "object",
        since: "2.2.3",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        summary: "A container for object introspection commands",
        parse: container,
    },
    Description {
        name: "object|encoding",
        since: "2.2.3",
        arity: 3,
        flags: &["readonly"],
        keys: (2, 2, 1),
        summary: "Inspect the internal encoding of a Redis object",
        parse: |c| object(c, Action::Encoding, Shape::Encoding),
    },
    Description {
        name: "object|freq",
        since: "4.0.0",
        arity: 3,
        flags: &["readonly"],
        keys: (2, 2, 1),
        summary: "Get the logarithmic access frequency counter of a Redis object",
        parse: |c| object(c, Action::Exists, Shape::Frequency),
    },
    Description {
        name: "object|help",
        since: "6.2.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "object|idletime",
        since: "2.2.3",
        arity: 3,
        flags: &["readonly"],
        keys: (2, 2, 1),
        summary: "Get the time since a Redis object was last accessed",
        parse: |c| object(c, Action::Exists, Shape::IdleTime),
    },
    Description {
        name: "object|refcount",
        since: "2.2.3",
        arity: 3,
        flags: &["readonly"],
        keys: (2, 2, 1),
        summary: "Get the number of references to the value of the key",
        parse: |c| object(c, Action::Exists, Shape::References),
    },
    Description {
        name: "persist",
        since: "2.2.0",
        arity: 2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        summary: "Remove the expiration from a key",
        parse: |c| c.one(Action::Persist),
    },
    Description {
        name: "pexpire",
        since: "2.6.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        summary: "Set a key's time to live in milliseconds",
        parse: |c| expire(c, Unit::Milliseconds),
    },
    Description {
        name: "pexpireat",
        since: "2.6.0",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        summary: "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
        parse: |c| expire(c, Unit::UnixMilliseconds),
    },
    Description {
        name: "pexpiretime",
        since: "7.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        summary: "Get the expiration Unix timestamp for a key in milliseconds",
        parse: |c| c.one(Action::PExpireTime),
    },
    Description {
        name: "pttl",
        since: "2.6.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        summary: "Get the time to live for a key in milliseconds",
        parse: |c| c.one(Action::PTtl),
    },
    Description {
        name: "scan",
        since: "2.8.0",
        arity: -2,
        flags: &["readonly"],
        keys: NO_KEYS,
        summary: "Incrementally iterate the keys space",
        parse: scan,
    },
    Description {
        name: "scanrange",
        since: "0.1.0",
        arity: -3,
        flags: &["readonly"],
        keys: NO_KEYS,
        summary: "Keys of an ordered keyspace, from one on, up to another",
        parse: scan_range,
    },
    Description {
        name: "touch",
        since: "3.2.1",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        summary: "Alters the last access time of a key(s). Returns the number of existing keys specified.",
        parse: |c| c.each(Action::Touch, Many::Touch),
    },
    Description {
        name: "ttl",
        since: "1.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        summary: "Get the time to live for a key in seconds",
        parse: |c| c.shaped(Action::PTtl, Shape::Seconds),
    },
    Description {
        name: "type",
        since: "1.0.0",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        summary: "Determine the type stored at key",
        parse: |c| c.shaped(Action::Exists, Shape::Type),
    },
    Description {
        name: "unlink",
        since: "4.0.0",
        arity: -2,
        flags: &["write", "fast"],
        keys: ALL_KEYS,
        summary: "Delete a key",
        parse: |c| c.each(Action::Delete, Many::Delete),
    },
    Description {
        name: "wait",
        since: "3.0.0",
        arity: 3,
        flags: &["noscript"],
        keys: NO_KEYS,
        summary: "How many other nodes hold every acknowledged write of this connection",
        parse: wait,
    },
];

fn object(c: Call<'_>, action: Action, shape: Shape) -> Parsed {
    Ok(Request::One {
        key: c.args.bytes(2),
        action,
        shape,
    })
}

fn expire(c: Call<'_>, unit: Unit) -> Parsed {
    let condition = expire_condition(c.args)?;
    let expiry = deadline(c, unit, 2)?;
    c.one(Action::Expire { expiry, condition })
}

fn expire_condition(args: Args<'_>) -> Result<ExpireCondition, ErrorText> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for arg in args.iter_from(3) {
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

fn scan(c: Call<'_>) -> Parsed {
    let args = c.args;
    let cursor = cursor(args.get(1)).ok_or("ERR invalid cursor")?;
    let (mut count, mut pattern, mut strings) = (10, None, true);
    let mut i = 2;
    while i < args.len() {
        let option = args.get(i);
        if i + 1 >= args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "COUNT") {
            let asked = integer(args.get(i + 1)).ok_or(NOT_AN_INTEGER)?;
            if asked < 1 {
                return Err(SYNTAX.into());
            }
            count = u32::try_from(asked).unwrap_or(u32::MAX);
        } else if is(option, "MATCH") {
            pattern = Some(pattern_at(args, i + 1)?);
        } else if is(option, "TYPE") {
            strings = is(args.get(i + 1), "string");
        } else {
            return Err(SYNTAX.into());
        }
        i += 2;
    }
    Ok(Request::All(All::Scan {
        cursor,
        count,
        pattern,
        strings,
    }))
}

/// Longest bound of SCANRANGE: the default limit of keys.
const BOUND_BYTES_MAX: usize = 64 << 10;

fn scan_range(c: Call<'_>) -> Parsed {
    let args = c.args;
    // Copies: every partition is asked with the bounds, and a slice would hold the read buffer
    // meanwhile.
    let bound = |at| match args.get(at) {
        long if long.len() > BOUND_BYTES_MAX => Err(ErrorText::from(format!(
            "ERR a bound is too long: at most {BOUND_BYTES_MAX} bytes"
        ))),
        bound => Ok(Bytes::copy_from_slice(bound)),
    };
    let mut query = RangeQuery {
        from: bound(1)?,
        to: bound(2)?,
        count: u32::MAX,
        reverse: false,
        values: false,
    };
    let mut i = 3;
    while i < args.len() {
        let option = args.get(i);
        if is(option, "LIMIT") && i + 1 < args.len() {
            let asked = integer(args.get(i + 1)).ok_or(NOT_AN_INTEGER)?;
            if asked < 1 {
                return Err("ERR LIMIT must be at least 1".into());
            }
            query.count = u32::try_from(asked).unwrap_or(u32::MAX);
            i += 1;
        } else if is(option, "REV") {
            query.reverse = true;
        } else if is(option, "WITHVALUES") {
            query.values = true;
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    Ok(Request::All(All::Range(query)))
}

/// A cursor as C, and so Redis, reads it: no text is 0, and a negative number counts from the end.
fn cursor(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix('-') {
        _ if text.is_empty() => Some(0),
        Some(rest) if !rest.starts_with('+') => rest.parse().ok().map(u64::wrapping_neg),
        _ => text.parse().ok(),
    }
}

fn wait(c: Call<'_>) -> Parsed {
    c.number(1)?;
    match integer(c.args.get(2)) {
        None => Err("ERR timeout is not an integer or out of range".into()),
        Some(timeout) if timeout < 0 => Err("ERR timeout is negative".into()),
        Some(_) => Ok(Request::Wait),
    }
}
