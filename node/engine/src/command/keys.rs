//! Commands on keys of any type.

use super::call::Unit;
use super::description::KEY_OF_SUBCOMMAND;
use super::{
    ALL_KEYS, Access, CommandCall, Description, ErrorText, Many, ONE_KEY, ParseFn, Parsed, SYNTAX,
    Shape, command, container, is,
};
use crate::command::operation::{Action, ExpireCondition};

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("del", "1.0.0", -2, "generic", "write")
        .on(ALL_KEYS, Access::WRITE, "keyspace")
        .about("Delete a key")
        .parse(|c| c.each(Many::Delete)),
    command("exists", "1.0.0", -2, "generic", "readonly fast")
        .on(ALL_KEYS, Access::TOUCH, "keyspace")
        .about("Determine if a key exists")
        .parse(|c| c.each(Many::Exists)),
    command("expire", "1.0.0", -3, "generic", "write fast")
        .on(ONE_KEY, Access::WRITE, "keyspace")
        .about("Set a key's time to live in seconds")
        .parse(|c| expire(c, Unit::Seconds)),
    command("expireat", "1.2.0", -3, "generic", "write fast")
        .on(ONE_KEY, Access::WRITE, "keyspace")
        .about("Set the expiration for a key as a UNIX timestamp")
        .parse(|c| expire(c, Unit::UnixSeconds)),
    command("expiretime", "7.0.0", 2, "generic", "readonly fast")
        .on(ONE_KEY, Access::READ, "keyspace")
        .about("Get the expiration Unix timestamp for a key")
        .parse(|c| c.shaped(Action::PExpireTime, Shape::Seconds)),
    command("memory", "4.0.0", -2, "server", "")
        .about("A container for memory diagnostics commands")
        .parse(container),
    command("memory|usage", "4.0.0", -3, "server", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::TOUCH, "")
        .about("Estimate the memory usage of a key")
        .parse(memory_usage),
    command("object", "2.2.3", -2, "generic", "")
        .about("A container for object introspection commands")
        .parse(container),
    command("object|encoding", "2.2.3", 3, "generic", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::TOUCH, "keyspace")
        .about("Inspect the internal encoding of a Redis object")
        .parse(|c| object(c, Action::Encoding, Shape::Encoding)),
    command("object|freq", "4.0.0", 3, "generic", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::TOUCH, "keyspace")
        .about("Get the logarithmic access frequency counter of a Redis object")
        .parse(|c| object(c, Action::Exists, Shape::Frequency)),
    command("object|idletime", "2.2.3", 3, "generic", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::TOUCH, "keyspace")
        .about("Get the time since a Redis object was last accessed")
        .parse(|c| object(c, Action::Exists, Shape::IdleTime)),
    command("object|refcount", "2.2.3", 3, "generic", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::TOUCH, "keyspace")
        .about("Get the number of references to the value of the key")
        .parse(|c| object(c, Action::Exists, Shape::References)),
    command("persist", "2.2.0", 2, "generic", "write fast")
        .on(ONE_KEY, Access::WRITE, "keyspace")
        .about("Remove the expiration from a key")
        .parse(|c| c.one(Action::Persist)),
    command("pexpire", "2.6.0", -3, "generic", "write fast")
        .on(ONE_KEY, Access::WRITE, "keyspace")
        .about("Set a key's time to live in milliseconds")
        .parse(|c| expire(c, Unit::Milliseconds)),
    command("pexpireat", "2.6.0", -3, "generic", "write fast")
        .on(ONE_KEY, Access::WRITE, "keyspace")
        .about("Set the expiration for a key as a UNIX timestamp specified in milliseconds")
        .parse(|c| expire(c, Unit::UnixMilliseconds)),
    command("pexpiretime", "7.0.0", 2, "generic", "readonly fast")
        .on(ONE_KEY, Access::READ, "keyspace")
        .about("Get the expiration Unix timestamp for a key in milliseconds")
        .parse(|c| c.one(Action::PExpireTime)),
    command("pttl", "2.6.0", 2, "generic", "readonly fast")
        .on(ONE_KEY, Access::READ, "keyspace")
        .about("Get the time to live for a key in milliseconds")
        .parse(|c| c.one(Action::PTtl)),
    command("touch", "3.2.1", -2, "generic", "readonly fast")
        .on(ALL_KEYS, Access::TOUCH, "keyspace")
        .about(
            "Alters the last access time of a key(s). Returns the number of existing keys \
             specified.",
        )
        .parse(|c| c.each(Many::Touch)),
    command("ttl", "1.0.0", 2, "generic", "readonly fast")
        .on(ONE_KEY, Access::READ, "keyspace")
        .about("Get the time to live for a key in seconds")
        .parse(|c| c.shaped(Action::PTtl, Shape::Seconds)),
    command("type", "1.0.0", 2, "generic", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "keyspace")
        .about("Determine the type stored at key")
        .parse(|c| c.shaped(Action::Encoding, Shape::Type)),
    command("unlink", "4.0.0", -2, "generic", "write fast")
        .on(ALL_KEYS, Access::WRITE, "keyspace")
        .about("Delete a key")
        .parse(|c| c.each(Many::Delete)),
];

fn object(c: CommandCall<'_>, action: Action, shape: Shape) -> Parsed {
    c.of_key(2, action, shape)
}

fn expire(c: CommandCall<'_>, unit: Unit) -> Parsed {
    let condition = expire_condition(c)?;
    let expiry = c.deadline(unit, 2)?;
    c.one(Action::Expire { expiry, condition })
}

fn expire_condition(c: CommandCall<'_>) -> Result<ExpireCondition, ErrorText> {
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

fn memory_usage(c: CommandCall<'_>) -> Parsed {
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
