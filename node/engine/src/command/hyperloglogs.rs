//! Commands on counts of distinct elements (`value/hyperloglog`), which are strings.

use super::call::CommandCall;
use super::collections::rest;
use super::reply_tree::ReplyTree;
use super::rows::Rows;
use super::sets::given;
use super::several::check_count;
use super::together::{Strings, StringsTogether, stores_result};
use super::{ALL_KEYS, Access, Description, ONE_KEY, ParseFn, Parsed, Rights, Shape, command};
use crate::command::operation::{Action, Condition, Expiry, Footprint, stores};
use crate::command::procedure::{JOINT, Joint, READS};
use crate::store::run_context::RunContext;
use crate::value::hyperloglog::{HyperLogLog, HyperLogLogError, REGISTERS, known_count};
use crate::value::items::Items;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::STRINGS_TOGETHER;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("pfadd", "2.8.9", -2, "hyperloglog", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "hyperloglog")
        .about("Adds elements to a HyperLogLog key. Creates the key if it doesn't exist")
        .parse(|c| c.shaped(Action::call(&ADD, &[], [rest(c, 2)]), Shape::Tree)),
    command("pfcount", "2.8.9", -2, "hyperloglog", "readonly")
        .on(ALL_KEYS, Access::READ, "hyperloglog")
        .about(
            "Returns the approximated cardinality of the set(s) observed by the HyperLogLog key(s)",
        )
        .parse(|c| of_keys(c, &COUNT_ALL)),
    command("pfmerge", "2.8.9", -2, "hyperloglog", "write denyoom")
        .on(
            ALL_KEYS,
            Access::Pair(Rights::BOTH, Rights::READ),
            "hyperloglog",
        )
        .about("Merges one or more HyperLogLog values into a single key")
        .parse(|c| of_keys(c, &MERGE_ALL)),
];

pub(crate) static JOINTS: &[&Joint] = &[&ADD, &COUNT_ALL, &MERGE_ALL, &MERGE_INTO];

/// The first of these numbers.
const NUMBER: u16 = 302;

/// Adds elements, which are the run. → `Int` 1: that changed something, or 0; or a tree: an error
static ADD: Joint = Joint {
    number: NUMBER,
    name: "hyperloglog add",
    event: "pfadd",
    level: STRINGS_TOGETHER,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: |inputs| stores(&inputs.bytes[0]),
    run: |inputs, key, rows| {
        change(key, rows, |counted, rows| {
            let elements = Items(&inputs.bytes[0]);
            let elements = elements.take_while(|it| rows.cx().budget.element_of(it.len()));
            elements.fold(false, |grows, it| counted.add(it) | grows)
        })
        .map_or_else(
            |refused| refused,
            |changed| Outcome::Int(i64::from(changed)),
        )
    },
    ..JOINT
};

/// How many distinct elements were added to any of several keys. The runs are the further keys. →
/// `Int`, or a tree: an error
static COUNT_ALL: Joint = Joint {
    number: NUMBER + 1,
    name: "hyperloglog count",
    level: STRINGS_TOGETHER,
    others: |runs| Some((0..runs, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        ..READS
    },
    run: |inputs, key, rows| COUNT.run(inputs, key, rows),
    ..JOINT
};

/// Adds all that was added to others. The runs are their keys. → `Ok`, or a tree: an error
static MERGE_ALL: Joint = Joint {
    number: NUMBER + 2,
    name: "hyperloglog merge",
    event: "pfadd",
    level: STRINGS_TOGETHER,
    others: |runs| Some((0..runs, 1)),
    footprint: stores_result,
    run: |inputs, key, rows| MERGE.run(inputs, key, rows),
    ..JOINT
};

/// The same with those of several partitions, which were merged: the run.
static MERGE_INTO: Joint = Joint {
    number: NUMBER + 3,
    name: "hyperloglog merge gathered",
    event: "pfadd",
    level: STRINGS_TOGETHER,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: |inputs| stores(&inputs.bytes[0]),
    run: |inputs, key, rows| {
        let other = match HyperLogLog::of(&inputs.bytes[0]) {
            Ok(other) => other,
            Err(why) => return refused(why),
        };
        let changed = change(key, rows, |counted, _| {
            counted.merge(&other);
            true
        });
        changed.map_or_else(|refused| refused, |_| Outcome::Ok)
    },
    ..JOINT
};

pub(super) static COUNT: StringsTogether = StringsTogether {
    joint: &COUNT_ALL,
    store: None,
    wrong_type: None,
    combine: |_, strings, cx| {
        if let [Some(one)] = strings
            && let Some(count) = known_count(one).map_err(refused)?
        {
            return Ok(Outcome::Int(count.cast_signed()));
        }
        let all = merged(strings, cx)?;
        Ok(Outcome::Int(all.count().cast_signed()))
    },
};

pub(super) static MERGE: StringsTogether = StringsTogether {
    joint: &MERGE_ALL,
    store: Some(&MERGE_INTO),
    wrong_type: None,
    combine: |_, strings, cx| {
        let all = merged(strings, cx)?.encode();
        Ok(Outcome::Bulk(Value::from(&all[..])))
    },
};

/// What is answered for bytes that are no count.
fn refused(why: HyperLogLogError) -> Outcome {
    ReplyTree::error(match why {
        HyperLogLogError::OtherString => "WRONGTYPE Key is not a valid HyperLogLog string value.",
        HyperLogLogError::Corrupted => "INVALIDOBJ Corrupted HLL object detected",
    })
}

/// All elements of strings together.
///
/// # Errors
/// What is answered, because one of them is no count.
fn merged(strings: Strings<'_>, cx: &RunContext<'_>) -> Result<HyperLogLog, Outcome> {
    let mut all = HyperLogLog::default();
    for string in strings.iter().copied().flatten() {
        if !cx.budget.copy(REGISTERS) {
            return Err(Outcome::Failed(Failure::TooMuchWork));
        }
        all.merge(&HyperLogLog::of(string).map_err(refused)?);
    }
    Ok(all)
}

/// Changes the count that a key holds. An absent one is made. Returns whether it has changed.
///
/// # Errors
/// What is answered, because the key holds something else, or the new value has no room.
fn change(
    (map, key): (MapId, &[u8]),
    rows: &mut Rows<'_>,
    change: impl FnOnce(&mut HyperLogLog, &Rows<'_>) -> bool,
) -> Result<bool, Outcome> {
    let entry = rows.find(map, key);
    rows.cx().budget.copy(REGISTERS);
    let mut counted = match &entry {
        None => HyperLogLog::default(),
        Some(entry) if entry.kind() != Kind::String => {
            return Err(Outcome::Failed(Failure::WrongType));
        }
        Some(entry) => HyperLogLog::of(entry.value()).map_err(refused)?,
    };
    let changed = change(&mut counted, rows) || entry.is_none();
    if changed {
        let set = Action::Set {
            value: Bytes::from(counted.encode()),
            condition: Condition::Always,
            expiry: Expiry::Keep,
            get: false,
        };
        if let Outcome::Failed(failure) = rows.step(map, key, &set) {
            return Err(Outcome::Failed(failure));
        }
    }
    Ok(changed)
}

fn of_keys(c: CommandCall<'_>, joint: &'static Joint) -> Parsed {
    check_count(c.args.len() - 1)?;
    let others: Vec<Bytes> = (2..c.args.len()).map(|at| c.args.bytes(at)).collect();
    c.shaped(Action::call(joint, &[], others), Shape::Tree)
}
