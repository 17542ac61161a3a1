//! Commands on sets.

use super::collections::{
    ITEM_OVERHEAD, TOO_LARGE, draw, drawing, failed, has, length, random, rest, scan, scanning,
    seed, store_fields, wanted, writes,
};
use super::combine::{Combination, CombineInput, count_of_sets, members_of_sets};
use super::description::TWO_KEYS;
use super::several::{check_count, key_count};
use super::{
    ALL_KEYS, Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, Part, Rights,
    SYNTAX, Shape, command, counted_keys, is,
};
use crate::command::operation::{Action, Footprint, ValueSizes};
use crate::command::procedure::{
    Inputs, JOINT, Joint, Procedure, READS, VALUES, WRITES, count, procedure, values,
};
use crate::command::rows::Rows;
use crate::store::FoundKey;
use crate::store::collection::{self, CollectionView, Edit, UnpackedItems};
use crate::value::integer::integer;
use crate::value::items::{Items, Pairs, packed};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::MapId;
use std::collections::BTreeSet;

/// A member, and several as a set.
const MEMBERS: Shape = Shape::Fields(Part::Members);

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("sadd", "1.0.0", -3, "set", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "set")
        .about("Add one or more members to a set")
        .parse(|c| c.one(Action::call(&ADD, &[], [rest(c, 2)]))),
    command("scard", "1.0.0", 2, "set", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "set")
        .about("Get the number of members in a set")
        .parse(|c| c.one(Action::call(&LENGTH, &[], Vec::new()))),
    command("sdiff", "1.0.0", -2, "set", "readonly")
        .on(ALL_KEYS, Access::READ, "set")
        .about("Subtract multiple sets")
        .parse(|c| combine(c, Combination::Difference)),
    command("sdiffstore", "1.0.0", -3, "set", "write denyoom")
        .on(ALL_KEYS, Access::Pair(Rights::WRITE, Rights::READ), "set")
        .about("Subtract multiple sets and store the resulting set in a key")
        .parse(|c| store(c, &STORE_DIFFERENCE)),
    command("sinter", "1.0.0", -2, "set", "readonly")
        .on(ALL_KEYS, Access::READ, "set")
        .about("Intersect multiple sets")
        .parse(|c| combine(c, Combination::Intersection)),
    command("sintercard", "7.0.0", -3, "set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "set")
        .about("Intersect multiple sets and return the cardinality of the result")
        .parse(count_common),
    command("sinterstore", "1.0.0", -3, "set", "write denyoom")
        .on(ALL_KEYS, Access::Pair(Rights::WRITE, Rights::READ), "set")
        .about("Intersect multiple sets and store the resulting set in a key")
        .parse(|c| store(c, &STORE_INTERSECTION)),
    command("sismember", "1.0.0", 3, "set", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "set")
        .about("Determine if a given value is a member of a set")
        .parse(|c| c.one(Action::call(&HAS, &[], [c.args.bytes(2)]))),
    command("smembers", "1.0.0", 2, "set", "readonly")
        .on(ONE_KEY, Access::READ, "set")
        .about("Get all the members in a set")
        .parse(|c| c.shaped(Action::call(&ALL, &[0], Vec::new()), MEMBERS)),
    command("smismember", "6.2.0", -3, "set", "readonly fast")
        .on(ONE_KEY, Access::READ, "set")
        .about("Returns the membership associated with the given elements for a set")
        .parse(|c| c.one(Action::call(&HAS_SOME, &[], [rest(c, 2)]))),
    command("smove", "1.0.0", 4, "set", "write fast")
        .on(TWO_KEYS, Access::Pair(Rights::BOTH, Rights::WRITE), "set")
        .about("Move a member from one set to another")
        .parse(|c| {
            let inputs = vec![c.args.bytes(2), c.args.bytes(3)];
            c.one(Action::call(&MOVE, &[], inputs))
        }),
    command("spop", "1.0.0", -2, "set", "write fast")
        .on(ONE_KEY, Access::BOTH, "set")
        .about("Remove and return one or multiple random members from a set")
        .parse(pop),
    command("srandmember", "1.0.0", -2, "set", "readonly")
        .on(ONE_KEY, Access::READ, "set")
        .about("Get one or multiple random members from a set")
        .parse(|c| match c.args.len() {
            2 => c.shaped(drawing(&RANDOM, 1, false), Shape::First),
            3 => c.shaped(drawing(&RANDOM, wanted(c)?, false), Shape::List),
            _ => Err(SYNTAX.into()),
        }),
    command("srem", "1.0.0", -3, "set", "write fast")
        .on(ONE_KEY, Access::WRITE, "set")
        .about("Remove one or more members from a set")
        .parse(|c| c.one(Action::call(&REMOVE, &[], [rest(c, 2)]))),
    command("sscan", "2.8.0", -3, "set", "readonly")
        .on(ONE_KEY, Access::READ, "set")
        .about("Incrementally iterate set elements")
        .parse(|c| scanning(c, &SCAN, (false, None))),
    command("sunion", "1.0.0", -2, "set", "readonly")
        .on(ALL_KEYS, Access::READ, "set")
        .about("Add multiple sets")
        .parse(|c| combine(c, Combination::Union)),
    command("sunionstore", "1.0.0", -3, "set", "write denyoom")
        .on(ALL_KEYS, Access::Pair(Rights::WRITE, Rights::READ), "set")
        .about("Add multiple sets and store the resulting set in a key")
        .parse(|c| store(c, &STORE_UNION)),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[
    &ADD, &REMOVE, &HAS, &HAS_SOME, &ALL, &LENGTH, &POP, &RANDOM, &SCAN,
];

pub(crate) static JOINTS: &[&Joint] = &[
    &MOVE,
    &COMBINE,
    &COUNT_COMMON,
    &STORE_UNION,
    &STORE_INTERSECTION,
    &STORE_DIFFERENCE,
];

/// The first of these numbers.
const NUMBER: u16 = 120;

/// Adds members. → `Int`, how many are new
pub(super) static ADD: Procedure = procedure(NUMBER, "set add", Kind::Set, (0, 1))
    .costs(writes)
    .told_as("sadd")
    .on_fields(|inputs, _, _| (None, Edit::Add(Pairs::of(&inputs.bytes[0], false))));

/// Removes members. → `Int`, how many there were
pub(super) static REMOVE: Procedure = procedure(NUMBER + 1, "set remove", Kind::Set, (0, 1))
    .costs(writes)
    .told_as("srem")
    .on_fields(|inputs, _, _| (None, Edit::Delete(Items(&inputs.bytes[0]).collect())));

/// Whether there is a member. → `Int`
pub(super) static HAS: Procedure =
    procedure(NUMBER + 2, "set has", Kind::Set, (0, 1)).on_fields(has);

/// Which of several members there are. → `Many` of `Int`
static HAS_SOME: Procedure =
    procedure(NUMBER + 3, "set has some", Kind::Set, (0, 1)).on_fields(|inputs, set, _| {
        let is_there = |member| Outcome::Int(i64::from(set.get(member).is_some()));
        let all = Items(&inputs.bytes[0]).map(is_there).collect();
        (Some(Outcome::Many(all)), Edit::None)
    });

/// All members.
static ALL: Procedure = procedure(NUMBER + 4, "set all", Kind::Set, (1, 0)).costs(values);

/// How many members there are. → `Int`
pub(super) static LENGTH: Procedure =
    procedure(NUMBER + 5, "set length", Kind::Set, (0, 0)).on_fields(length);

/// Takes random members out, drawn from a seed: one (-1) → `Bulk` or `Nil`; or a count of them →
/// `Bulk`, all in one run of bytes
pub(super) static POP: Procedure = procedure(NUMBER + 6, "set pop", Kind::Set, (2, 0))
    .costs(|_| Footprint {
        answers_value: true,
        looks_up: true,
        ..WRITES
    })
    .told_as("spop")
    .on_fields(|inputs, set, cx| {
        let [wanted, seed] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let (one, mut taken, mut bytes) = (wanted < 0, Vec::new(), 0);
        let fits = draw(set, if one { 1 } else { wanted }, seed, |(member, _)| {
            bytes += member.len() + ITEM_OVERHEAD;
            taken.push(member);
            bytes <= collection::answer_max(cx)
        });
        if !fits {
            return TOO_LARGE;
        }
        let outcome = match taken.first() {
            None if one => Outcome::Nil,
            Some(member) if one => Outcome::Bulk(Value::from(*member)),
            _ => Outcome::Bulk(Value::from(&*packed(taken.iter().copied()))),
        };
        (Some(outcome), Edit::Delete(taken))
    });

/// Random members: see [`random`].
static RANDOM: Procedure = procedure(NUMBER + 7, "set random", Kind::Set, (3, 0))
    .costs(values)
    .on_fields(random);

/// Members from a place on: see [`scan`].
static SCAN: Procedure = procedure(NUMBER + 8, "set scan", Kind::Set, (3, 1))
    .costs(values)
    .on_fields(scan);

/// Moves a member to another set. The runs are its key, and the member. → `Int` 1 or 0
pub(super) static MOVE: Joint = Joint {
    number: NUMBER + 9,
    name: "set move",
    event: "srem",
    event_of_others: Some("sadd"),
    kind: Some(Kind::Set),
    level: 0,
    others: |runs| (runs == 2).then_some((0..1, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        stores: inputs.bytes[1].len(),
        ..WRITES
    },
    run: |inputs, (map, key), rows| {
        let to = &inputs.bytes[0];
        let members = packed(std::iter::once(&*inputs.bytes[1]));
        let is_other = |kind: Kind| kind != Kind::Set;
        let Some(from) = rows.find(map, key).map(|entry| entry.kind()) else {
            return Outcome::Int(0);
        };
        let target = rows.find(map, to).map(|entry| entry.kind());
        if is_other(from) || target.is_some_and(is_other) {
            return Outcome::Failed(Failure::WrongType);
        }
        if key == to {
            return rows.step(
                map,
                key,
                &Action::call(&HAS, &[], vec![inputs.bytes[1].clone()]),
            );
        }
        let removed = rows.step(map, key, &Action::call(&REMOVE, &[], [members.clone()]));
        if removed == Outcome::Int(1) {
            rows.step(map, to, &Action::call(&ADD, &[], [members]));
        }
        removed
    },
    ..JOINT
};

/// The members of sets together, as the number says ([`Combination`]). The runs are the further
/// keys. → `Bulk`, all in one run of bytes
pub(super) static COMBINE: Joint = Joint {
    number: NUMBER + 10,
    name: "set combine",
    kind: Some(Kind::Set),
    level: 0,
    numbers: 1,
    others: |runs| Some((0..runs, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        ..VALUES
    },
    run: |inputs, (map, key), rows| {
        let how = Combination::of_number(inputs.numbers[0]);
        let most = collection::answer_max(rows.cx());
        let keys = std::iter::once(key).chain(inputs.bytes.iter().map(|key| &**key));
        match combined(rows, map, keys, how, most) {
            Ok(members) => Outcome::Bulk(Value::from(&members[..])),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..JOINT
};

/// How many members several sets have in common. The number is the most that is counted; 0: all. →
/// `Int`
pub(super) static COUNT_COMMON: Joint = Joint {
    number: NUMBER + 11,
    name: "set count common",
    footprint: |inputs| Footprint {
        given: given(inputs),
        ..READS
    },
    run: |inputs, (map, key), rows| {
        let keys = std::iter::once(key).chain(inputs.bytes.iter().map(|key| &**key));
        match with_sets(rows, map, keys, |sets| {
            count_of_sets(sets, inputs.numbers[0])
        }) {
            Ok(found) => count(found),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..COMBINE
};

/// Gives the key the members of the other sets together; deletes it if there are none. The runs are
/// the keys of those. → `Int`, how many members
pub(super) static STORE_UNION: Joint = Joint {
    number: NUMBER + 12,
    name: "set store union",
    event: "sunionstore",
    run: |inputs, key, rows| store_combined(inputs, key, rows, Combination::Union),
    ..STORE
};

/// The same of those that they have in common.
pub(super) static STORE_INTERSECTION: Joint = Joint {
    number: NUMBER + 13,
    name: "set store intersection",
    event: "sinterstore",
    run: |inputs, key, rows| store_combined(inputs, key, rows, Combination::Intersection),
    ..STORE
};

/// The same of those of the first that the others do not have.
pub(super) static STORE_DIFFERENCE: Joint = Joint {
    number: NUMBER + 14,
    name: "set store difference",
    event: "sdiffstore",
    run: |inputs, key, rows| store_combined(inputs, key, rows, Combination::Difference),
    ..STORE
};

const STORE: Joint = Joint {
    kind: Some(Kind::Set),
    level: 0,
    others: |runs| (runs > 0).then_some((0..runs, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        stores: given(inputs).bytes,
        ..WRITES
    },
    ..JOINT
};

/// What a call on several keys was given. It is not empty, so what it stores is not too large for a
/// record.
pub(super) fn given(inputs: &Inputs) -> ValueSizes {
    let given = inputs.given();
    ValueSizes {
        bytes: given.bytes.max(1),
        ..given
    }
}

fn store_combined(
    inputs: &Inputs,
    (map, key): (MapId, &[u8]),
    rows: &mut Rows<'_>,
    how: Combination,
) -> Outcome {
    let cx = *rows.cx();
    let keys = inputs.bytes.iter().map(|key| &**key);
    let members = match combined(rows, map, keys, how, cx.value_bytes_max) {
        Ok(members) => members,
        Err(failure) => return Outcome::Failed(failure),
    };
    store_fields((map, key), (Kind::Set, &members), rows)
}

/// The members of the sets of these keys together, in one run of bytes.
///
/// # Errors
/// A key holds no set, or the members are too large together.
fn combined<'k>(
    rows: &mut Rows<'_>,
    map: MapId,
    keys: impl Iterator<Item = &'k [u8]>,
    how: Combination,
    most: usize,
) -> Result<Vec<u8>, Failure> {
    with_sets(rows, map, keys, |sets| members_of_sets(how, sets, most))?
}

/// Does this with the sets of these keys. An absent one is empty.
///
/// # Errors
/// A key holds no set.
fn with_sets<'k, R>(
    rows: &mut Rows<'_>,
    map: MapId,
    keys: impl Iterator<Item = &'k [u8]>,
    with: impl FnOnce(&[CombineInput<'_>]) -> R,
) -> Result<R, Failure> {
    // A key that is given again adds nothing, except that the first set may be taken from itself.
    let mut given = BTreeSet::new();
    let keys = keys.enumerate();
    let keys = keys.filter(|(at, key)| *at == 0 || given.insert(*key));
    let keys: Vec<&[u8]> = keys.map(|(_, key)| key).collect();
    let mut there = Vec::new();
    for &key in &keys {
        let found = rows.find(map, key);
        if found
            .as_ref()
            .is_some_and(|entry| entry.kind() != Kind::Set)
        {
            return Err(Failure::WrongType);
        }
        there.push((found.is_some(), UnpackedItems::new()));
    }
    let cx = *rows.cx();
    let sets = keys.iter().zip(&there).map(|(key, (exists, unpacked))| {
        let found = if *exists {
            rows.held(map, key)
        } else {
            FoundKey::default()
        };
        let view = CollectionView::of(Kind::Set, found, unpacked, &cx)?;
        Some(CombineInput::held(Kind::Set, view))
    });
    let sets: Option<Vec<CombineInput<'_>>> = sets.collect();
    Ok(with(&sets.ok_or(Failure::WrongType)?))
}

fn pop(c: CommandCall<'_>) -> Parsed {
    let (wanted, shape) = match c.args.len() {
        2 => (-1, Shape::Plain),
        3 => {
            let wanted = integer(c.args.get(2)).filter(|wanted| *wanted >= 0);
            let wanted = wanted.ok_or("ERR value is out of range, must be positive")?;
            (wanted, MEMBERS)
        }
        _ => return Err(SYNTAX.into()),
    };
    c.shaped(Action::call(&POP, &[wanted, seed()], Vec::new()), shape)
}

/// The arguments from this place on, which are keys.
fn keys(c: CommandCall<'_>, from: usize) -> Vec<Bytes> {
    (from..c.args.len()).map(|at| c.args.bytes(at)).collect()
}

fn combine(c: CommandCall<'_>, how: Combination) -> Parsed {
    check_count(c.args.len() - 1)?;
    c.shaped(Action::call(&COMBINE, &[how as i64], keys(c, 2)), MEMBERS)
}

fn store(c: CommandCall<'_>, joint: &'static Joint) -> Parsed {
    check_count(c.args.len() - 1)?;
    c.shaped(Action::call(joint, &[], keys(c, 2)), Shape::Together)
}

fn count_common(c: CommandCall<'_>) -> Parsed {
    let (others, most) = common_of(c)?;
    let action = Action::call(&COUNT_COMMON, &[most], others);
    c.of_key(2, action, Shape::Plain)
}

/// What a command says that counts what several collections have in common: its further keys, and
/// the most that is counted; 0: all.
pub(super) fn common_of(c: CommandCall<'_>) -> Result<(Vec<Bytes>, i64), ErrorText> {
    let options = key_count(c, 1)?.saturating_add(2);
    if options > c.args.len() {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let mut most = 0;
    let mut at = options;
    while at < c.args.len() {
        if !is(c.args.get(at), "LIMIT") || at + 1 == c.args.len() {
            return Err(SYNTAX.into());
        }
        let given = integer(c.args.get(at + 1)).filter(|most| *most >= 0);
        most = given.ok_or("ERR LIMIT can't be negative")?;
        at += 2;
    }
    check_count(options - 2)?;
    Ok(((3..options).map(|at| c.args.bytes(at)).collect(), most))
}
