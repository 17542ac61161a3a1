//! Commands on several keys of one partition, which are read and changed together.

use super::call::Unit;
use super::description::TWO_KEYS;
use super::reply::SAME_OBJECT;
use super::transfer::Transfer;
use super::{
    Access, CommandCall, Description, ErrorText, ParseFn, Parsed, Rights, SYNTAX, Shape, command,
    counted_keys, is,
};
use crate::command::operation::{Action, Condition, Expiry, Footprint};
use crate::command::procedure::{JOINT, Joint, ProcedureCall, WRITES};
use crate::value::integer::integer;
use crate::value::outcome::{Failure, Outcome};
use doyen_placement::MapId;
use doyen_placement::level::ABSENCES;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("copy", "6.2.0", -3, "generic", "write denyoom")
        .on(
            TWO_KEYS,
            Access::Pair(Rights::READ, Rights::WRITE),
            "keyspace",
        )
        .about("Copy a key")
        .parse(copy),
    command("msetex", "8.4.0", -4, "string", "write denyoom movablekeys")
        .on(counted_keys(1, 2), Access::WRITE, "string")
        .about(
            "Set multiple keys of one partition to multiple values, with one condition and \
                  one expiration",
        )
        .parse(set_all_with),
    command("msetnx", "1.0.1", -3, "string", "write denyoom")
        .on((1, -1, 2), Access::WRITE, "string")
        .about("Set multiple keys to multiple values, only if none of the keys exist")
        .parse(set_all_absent),
    command("rename", "1.0.0", 3, "generic", "write")
        .on(
            TWO_KEYS,
            Access::Pair(Rights::BOTH, Rights::WRITE),
            "keyspace",
        )
        .about("Rename a key")
        .parse(|c| rename(c, false)),
    command("renamenx", "1.0.0", 3, "generic", "write fast")
        .on(
            TWO_KEYS,
            Access::Pair(Rights::BOTH, Rights::WRITE),
            "keyspace",
        )
        .about("Rename a key, only if the new key does not exist")
        .parse(|c| rename(c, true)),
];

pub(crate) static JOINTS: &[&Joint] = &[&RENAME, &COPY, &SET_ALL, &WATCH];

/// Gives a key another name, or (1) only if no key has it. → `Ok`; with the condition, `Int` 1 or
/// 0; `Nil`: the key is absent
static RENAME: Joint = Joint {
    number: 40,
    name: "rename",
    event: "rename",
    numbers: 1,
    others: one_other,
    footprint: |_| WRITES,
    run: |inputs, (map, key), rows| {
        let (to, only_new) = (&inputs.bytes[0], inputs.numbers[0] != 0);
        let Some(entry) = rows.find(map, key) else {
            return Outcome::Nil;
        };
        let taken = rows.find(map, to).is_some();
        if only_new && taken {
            return Outcome::Int(0);
        }
        if key != to {
            if let Err(failure) = rows.copy((map, key, &entry), (map, to)) {
                return Outcome::Failed(failure);
            }
            rows.step(map, key, &Action::Delete);
        }
        if only_new {
            Outcome::Int(1)
        } else {
            Outcome::Ok
        }
    },
    ..JOINT
};

/// Gives another key, in the map of this number (-1: in the same), what a key holds; one that
/// exists only if it may be replaced (1). → `Int` 1 or 0; `Nil`: they are the same key
static COPY: Joint = Joint {
    number: 41,
    name: "copy",
    event: "copy",
    numbers: 2,
    others: one_other,
    map: |inputs, map| u32::try_from(inputs.numbers[0]).map_or(map, MapId),
    footprint: |_| WRITES,
    run: |inputs, (map, key), rows| {
        let to = ((COPY.map)(inputs, map), &*inputs.bytes[0]);
        if to == (map, key) {
            return Outcome::Nil;
        }
        let Some(entry) = rows.find(map, key) else {
            return Outcome::Int(0);
        };
        let taken = rows.find(to.0, to.1).is_some();
        if taken && inputs.numbers[1] == 0 {
            return Outcome::Int(0);
        }
        if let Err(failure) = rows.copy((map, key, &entry), to) {
            return Outcome::Failed(failure);
        }
        Outcome::Int(1)
    },
    ..JOINT
};

/// Sets keys to values, all with the same deadline, always (0), or if all are absent (1) or there
/// (2). The runs are the first key's value, and the other keys, each with its value. → `Int` 1 or 0
static SET_ALL: Joint = Joint {
    number: 42,
    name: "set all",
    event: "set",
    numbers: 3,
    others: |runs| (runs % 2 == 1).then_some((1..runs, 2)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        stores: inputs.given().bytes,
        ..WRITES
    },
    run: |inputs, (map, first), rows| {
        let [condition, unit, ms] = inputs.numbers[..] else {
            return Outcome::Int(0);
        };
        if inputs.given().bytes > rows.value_bytes_max() {
            return Outcome::Failed(Failure::TooLarge);
        }
        let others = inputs.bytes[1..].iter().step_by(2).map(|key| &**key);
        let keys = std::iter::once(first).chain(others);
        let met = condition == 0
            || keys
                .clone()
                .all(|key| rows.find(map, key).is_some() == (condition == 2));
        if !met {
            return Outcome::Int(0);
        }
        for (key, value) in keys.zip(inputs.bytes.iter().step_by(2)) {
            rows.step(
                map,
                key,
                &Action::Set {
                    value: value.clone(),
                    condition: Condition::Always,
                    expiry: Expiry::of_numbers([unit, ms]),
                    get: false,
                },
            );
        }
        Outcome::Int(1)
    },
    ..JOINT
};

/// A number that the key has as long as it does not change, also while it is absent: an absent key
/// that was written and deleted has another one. → `Int`
static WATCH: Joint = Joint {
    number: 56,
    name: "watch",
    level: ABSENCES,
    run: |_, (map, key), rows| Outcome::Int(rows.watched_version(map, key)),
    ..JOINT
};

impl Action {
    /// What a transaction watches of a key, in a cluster of this level. → `Int`, or `Nil`: it is
    /// absent, and what happens to it until it is absent again is not seen
    #[must_use]
    pub fn watch(level: u16) -> Self {
        if level < ABSENCES {
            return Self::Version;
        }
        Self::call(&WATCH, &[], Vec::new())
    }

    /// What it gives to another key, if it is a renaming or a copy of a key in this map.
    #[must_use]
    pub fn transfer(&self, map: MapId) -> Option<Transfer> {
        match self {
            Self::Call(call) => transfer_of(call, map),
            _ => None,
        }
    }
}

/// What a renaming or a copy is to do, if the action is one.
fn transfer_of(call: &ProcedureCall, map: MapId) -> Option<Transfer> {
    let number = call.called.number();
    let numbers = &call.inputs.numbers;
    let (renames, only_new) = match number {
        _ if number == RENAME.number => (true, *numbers.first()? != 0),
        _ if number == COPY.number => (false, *numbers.get(1)? == 0),
        _ => return None,
    };
    let (map, key) = call.others(map).next()?;
    Some(Transfer {
        to: (map, key.clone()),
        renames,
        only_new,
    })
}

fn one_other(runs: usize) -> Option<(std::ops::Range<usize>, usize)> {
    (runs == 1).then_some((0..1, 1))
}

fn rename(c: CommandCall<'_>, only_new: bool) -> Parsed {
    let inputs = [i64::from(only_new)];
    let action = Action::call(&RENAME, &inputs, [c.args.bytes(2)]);
    c.shaped(action, Shape::Renamed)
}

fn copy(c: CommandCall<'_>) -> Parsed {
    let (mut replace, mut to) = (false, None);
    let mut i = 3;
    while i < c.args.len() {
        if is(c.args.get(i), "REPLACE") {
            replace = true;
        } else if is(c.args.get(i), "DB") && i + 1 < c.args.len() {
            let index = c.number(i + 1)?;
            let map = u32::try_from(index).ok().and_then(MapId::database);
            to = Some(map.ok_or("ERR DB index is out of range")?);
            i += 1;
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    if to.is_none() && c.args.get(1) == c.args.get(2) {
        return Err(SAME_OBJECT.into());
    }
    let map = to.map_or(-1, |map| i64::from(map.0));
    let inputs = [map, i64::from(replace)];
    let action = Action::call(&COPY, &inputs, [c.args.bytes(2)]);
    c.shaped(action, Shape::Copied)
}

fn set_all_absent(c: CommandCall<'_>) -> Parsed {
    c.is_paired()?;
    set_all(c, 1, (c.args.len() - 1) / 2, (1, Expiry::None))
}

fn set_all_with(c: CommandCall<'_>) -> Parsed {
    let count = integer(c.args.get(1)).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or("ERR invalid numkeys value")?;
    let options = count.saturating_mul(2).saturating_add(2);
    if options > c.args.len() {
        return Err("ERR wrong number of key-value pairs".into());
    }
    let (mut condition, mut given, mut keep) = (0, None, false);
    let mut i = options;
    while i < c.args.len() {
        let arg = c.args.get(i);
        if is(arg, "NX") && condition != 2 {
            condition = 1;
        } else if is(arg, "XX") && condition != 1 {
            condition = 2;
        } else if is(arg, "KEEPTTL") && given.is_none() {
            keep = true;
        } else if let Some(unit) = Unit::of_option(arg)
            .filter(|unit| unit.is_alike(given) && !keep && i + 1 < c.args.len())
        {
            i += 1;
            given = Some((unit, i));
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    let expiry = c.expiry(given, keep)?;
    set_all(c, 2, count, (condition, expiry))
}

/// Most keys of one command, as of one transaction.
const KEYS_MAX: usize = crate::command::operation::TRANSACTION_STEPS_MAX;

/// How many keys the argument at this place says, at least one.
///
/// # Errors
/// It says none.
pub(super) fn key_count(c: CommandCall<'_>, at: usize) -> Result<usize, ErrorText> {
    let count = integer(c.args.get(at)).filter(|count| *count > 0);
    let count = count.ok_or("ERR numkeys should be greater than 0")?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Whether one command may name `count` keys.
///
/// # Errors
/// They are too many.
pub(super) fn check_count(count: usize) -> Result<(), ErrorText> {
    if count > KEYS_MAX {
        return Err(format!("ERR too many keys in one command: at most {KEYS_MAX}").into());
    }
    Ok(())
}

/// Sets `count` keys. The argument at `first` is the first.
fn set_all(c: CommandCall<'_>, first: usize, count: usize, how: (i64, Expiry)) -> Parsed {
    check_count(count)?;
    let (condition, expiry) = how;
    let [unit, ms] = expiry.numbers();
    let runs = (first + 1..first + 2 * count).map(|at| c.args.bytes(at));
    let action = Action::call(&SET_ALL, &[condition, unit, ms], runs.collect::<Vec<_>>());
    c.of_key(first, action, Shape::Together)
}
