//! Commands on all keys, and `WAIT`. Commands on one key or several are the engine's.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{
    All, CommandCall, ErrorText, NOT_AN_INTEGER, ParsedCommand, RespRequest, SYNTAX, help_of, is,
    pattern_at,
};
use bytes::Bytes;
use doyen_engine::integer;
use doyen_engine::op::{Kind, RangeQuery};

pub(super) const ROWS: &[RespDescription] = &[
    command("keys", "1.0.0", 2, "generic", "readonly")
        .on(NO_KEYS, Access::Nothing, "dangerous keyspace")
        .about("Find all keys matching the given pattern")
        .parse(|c| {
            Ok(RespRequest::All(All::Keys {
                pattern: pattern_at(c.args, 1)?,
            }))
        }),
    help_of("object|help", "6.2.0", "generic").on(NO_KEYS, Access::Nothing, "keyspace"),
    command("randomkey", "1.0.0", 1, "generic", "readonly")
        .on(NO_KEYS, Access::Nothing, "keyspace")
        .about("Return a random key from the keyspace")
        .parse(|_| Ok(RespRequest::All(All::Random))),
    command("scan", "2.8.0", -2, "generic", "readonly")
        .on(NO_KEYS, Access::Nothing, "keyspace")
        .about("Incrementally iterate the keys space")
        .parse(scan),
    command("scanrange", "0.1.0", -3, "generic", "readonly")
        .on(NO_KEYS, Access::Nothing, "keyspace")
        .about("Keys of an ordered keyspace, from one on, up to another")
        .parse(scan_range),
    command("wait", "3.0.0", 3, "generic", "noscript blocking")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("How many other nodes hold every acknowledged write of this connection")
        .parse(wait),
    help_of("xgroup|help", "5.0.0", "stream").on(NO_KEYS, Access::Nothing, "stream"),
    help_of("xinfo|help", "5.0.0", "stream").on(NO_KEYS, Access::Nothing, "stream"),
];

fn scan(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    let cursor = c.cursor(1)?;
    let (mut count, mut pattern, mut kind) = (10, None, None);
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
            let named = |kind: &Kind| is(args.get(i + 1), kind.name());
            kind = Some(Kind::ALL.into_iter().find(named));
        } else {
            return Err(SYNTAX.into());
        }
        i += 2;
    }
    Ok(RespRequest::All(All::Scan {
        cursor,
        count,
        pattern,
        kind,
    }))
}

/// Longest bound of SCANRANGE: the default limit of keys.
const BOUND_BYTES_MAX: usize = 64 << 10;

fn scan_range(c: CommandCall<'_>) -> ParsedCommand {
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
    Ok(RespRequest::All(All::Range(query)))
}

fn wait(c: CommandCall<'_>) -> ParsedCommand {
    c.number(1)?;
    match integer(c.args.get(2)) {
        None => Err("ERR timeout is not an integer or out of range".into()),
        Some(timeout) if timeout < 0 => Err("ERR timeout is negative".into()),
        Some(_) => Ok(RespRequest::Wait),
    }
}
