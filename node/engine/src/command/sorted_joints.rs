//! Commands on several sorted sets. Sets count as sorted sets whose members have the score 1.

use super::pops::{BlockingPop, PopKind, timeout};
use super::several::check_count;
use super::sorted_ranges::{
    Ordered, PartBy, RANGE_NUMBERS, RangeOptions, ScoredAnswer, members_of_range,
};
use super::sorted_sets::{POP_MAX, POP_MIN, named, positive};
use super::{
    Access, CommandCall, Description, ErrorText, KeyIndexes, ParseFn, Parsed, ParsedRequest,
    Rights, SYNTAX, Shape, command, counted_keys, is, stored_and_counted_keys,
};
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{Inputs, JOINT, Joint, READS, VALUES, WRITES, count};
use crate::command::rows::Rows;
use crate::store::FoundKey;
use crate::store::collection::{self, CollectionView, Edit, FieldDeadline, UnpackedItems};
use crate::value::integer::integer;
use crate::value::items::{Pairs, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::sorted_set::{parse_score, score_of, stored_score};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::SORTED;
use std::collections::BTreeMap;

/// All arguments but the last are keys.
const KEYS_BEFORE_LAST: KeyIndexes = (1, -2, 1);
/// The first two arguments are keys.
const TWO_KEYS: KeyIndexes = (1, 2, 1);

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command(
        "bzmpop",
        "7.0.0",
        -5,
        "sorted-set",
        "write blocking movablekeys",
    )
    .on(counted_keys(2, 1), Access::BOTH, "sortedset")
    .about("Remove and return members with scores in a sorted set, or wait for one")
    .parse(pop_some),
    command("bzpopmax", "5.0.0", -3, "sorted-set", "write fast blocking")
        .on(KEYS_BEFORE_LAST, Access::BOTH, "sortedset")
        .about("Remove and return the member with the highest score, or wait for one")
        .parse(|c| pop_one(c, true)),
    command("bzpopmin", "5.0.0", -3, "sorted-set", "write fast blocking")
        .on(KEYS_BEFORE_LAST, Access::BOTH, "sortedset")
        .about("Remove and return the member with the lowest score, or wait for one")
        .parse(|c| pop_one(c, false)),
    command("zdiff", "6.2.0", -3, "sorted-set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "sortedset")
        .about("Subtract multiple sorted sets")
        .parse(|c| combine(c, Combining::Difference)),
    command(
        "zdiffstore",
        "6.2.0",
        -4,
        "sorted-set",
        "write denyoom movablekeys",
    )
    .on(stored_and_counted_keys(2), STORES, "sortedset")
    .about("Subtract multiple sorted sets and store the resulting sorted set in a new key")
    .parse(|c| store(c, Combining::Difference, &STORE_DIFFERENCE)),
    command("zinter", "6.2.0", -3, "sorted-set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "sortedset")
        .about("Intersect multiple sorted sets")
        .parse(|c| combine(c, Combining::Intersection)),
    command(
        "zintercard",
        "7.0.0",
        -3,
        "sorted-set",
        "readonly movablekeys",
    )
    .on(counted_keys(1, 1), Access::READ, "sortedset")
    .about("Intersect multiple sorted sets and return the cardinality of the result")
    .parse(count_common),
    command(
        "zinterstore",
        "2.0.0",
        -4,
        "sorted-set",
        "write denyoom movablekeys",
    )
    .on(stored_and_counted_keys(2), STORES, "sortedset")
    .about("Intersect multiple sorted sets and store the resulting sorted set in a new key")
    .parse(|c| store(c, Combining::Intersection, &STORE_INTERSECTION)),
    command("zmpop", "7.0.0", -4, "sorted-set", "write movablekeys")
        .on(counted_keys(1, 1), Access::BOTH, "sortedset")
        .about("Remove and return members with scores in a sorted set")
        .parse(pop_now),
    command("zrangestore", "6.2.0", -5, "sorted-set", "write denyoom")
        .on(TWO_KEYS, STORES, "sortedset")
        .about("Store a range of members from sorted set into another key")
        .parse(store_range),
    command("zunion", "6.2.0", -3, "sorted-set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "sortedset")
        .about("Add multiple sorted sets")
        .parse(|c| combine(c, Combining::Union)),
    command(
        "zunionstore",
        "2.0.0",
        -4,
        "sorted-set",
        "write denyoom movablekeys",
    )
    .on(stored_and_counted_keys(2), STORES, "sortedset")
    .about("Add multiple sorted sets and store the resulting sorted set in a new key")
    .parse(|c| store(c, Combining::Union, &STORE_UNION)),
];

const STORES: Access = Access::Pair(Rights::WRITE, Rights::READ);

pub(crate) static JOINTS: &[&Joint] = &[
    &COMBINE,
    &COUNT_COMMON,
    &STORE_UNION,
    &STORE_INTERSECTION,
    &STORE_DIFFERENCE,
    &STORE_RANGE,
    &POP_FIRST_MIN,
    &POP_FIRST_MAX,
];

/// The first of these numbers.
const NUMBER: u16 = 160;

/// The members of sorted sets together. The numbers: how ([`Combining`]), what becomes of scores
/// ([`Aggregate`]), and with scores (1). The runs: the weights, eight bytes each, or none if all
/// are 1; and the further keys. → `Many`
static COMBINE: Joint = Joint {
    number: NUMBER,
    name: "zset combine",
    level: SORTED,
    numbers: 3,
    others: |runs| (runs > 0).then_some((1..runs, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        ..VALUES
    },
    run: |inputs, (map, key), rows| {
        let keys = std::iter::once(key).chain(inputs.bytes.iter().skip(1).map(|key| &**key));
        let members = match combined(inputs, map, keys, rows) {
            Ok(members) => members,
            Err(failure) => return Outcome::Failed(failure),
        };
        let mut answer = ScoredAnswer::new(inputs.numbers[2] == 1);
        let cx = *rows.cx();
        for (score, member) in &members {
            if !answer.take((member, score), &cx) {
                return Outcome::Failed(Failure::TooLarge);
            }
        }
        answer.outcome()
    },
    ..JOINT
};

/// How many members sorted sets have in common. The numbers: as those of `COMBINE`, the last one
/// the most that is counted; 0: all. → `Int`
static COUNT_COMMON: Joint = Joint {
    number: NUMBER + 1,
    name: "zset count common",
    footprint: |inputs| Footprint {
        given: inputs.given(),
        ..READS
    },
    run: |inputs, (map, key), rows| {
        let keys = std::iter::once(key).chain(inputs.bytes.iter().skip(1).map(|key| &**key));
        match combined(inputs, map, keys, rows) {
            Ok(members) => {
                let most = usize::try_from(inputs.numbers[2]).unwrap_or(0);
                let all = members.len();
                count(if most == 0 { all } else { all.min(most) })
            }
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..COMBINE
};

/// Gives the key the members of the other sorted sets together; deletes it if there are none. The
/// numbers and runs are those of `COMBINE`. → `Int`, how many members
static STORE_UNION: Joint = Joint {
    number: NUMBER + 2,
    name: "zset store union",
    event: "zunionstore",
    ..STORE
};

/// The same of those that they have in common.
static STORE_INTERSECTION: Joint = Joint {
    number: NUMBER + 3,
    name: "zset store intersection",
    event: "zinterstore",
    ..STORE
};

/// The same of those of the first that the others do not have.
static STORE_DIFFERENCE: Joint = Joint {
    number: NUMBER + 4,
    name: "zset store difference",
    event: "zdiffstore",
    ..STORE
};

const STORE: Joint = Joint {
    kind: Some(Kind::SortedSet),
    level: SORTED,
    numbers: 3,
    others: |runs| (runs > 1).then_some((1..runs, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        stores: inputs.given().bytes,
        ..WRITES
    },
    run: |inputs, key, rows| {
        let keys = inputs.bytes.iter().skip(1).map(|key| &**key);
        match combined(inputs, key.0, keys, rows) {
            Ok(members) => {
                let members = members
                    .iter()
                    .map(|(score, member)| (&member[..], &score[..]));
                put_set(key, members, rows)
            }
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..JOINT
};

/// Gives the key the members of a range of another sorted set; deletes it if there are none. The
/// runs: those of the range, and the other key. → `Int`, how many members
static STORE_RANGE: Joint = Joint {
    number: NUMBER + 5,
    name: "zset store range",
    event: "zrangestore",
    numbers: RANGE_NUMBERS,
    others: |runs| (runs == 3).then_some((2..3, 1)),
    run: |inputs, key, rows| {
        let (map, from) = (key.0, &inputs.bytes[2]);
        let found = rows.find(map, from);
        if found.is_some_and(|entry| entry.kind() != Kind::SortedSet) {
            return Outcome::Failed(Failure::WrongType);
        }
        let (cx, unpacked) = (*rows.cx(), UnpackedItems::new());
        let mut members = Vec::new();
        {
            let held = rows.held(map, from);
            let view = CollectionView::of(Kind::SortedSet, held, &unpacked, &cx);
            let ordered = view.map(Ordered::of);
            let range = ordered.as_ref().and_then(|it| members_of_range(inputs, it));
            let Some(range) = range else {
                return Outcome::Failed(Failure::NotAnInteger);
            };
            for (member, score) in range {
                put(&mut members, member);
                put(&mut members, score);
            }
        }
        put_set(key, Pairs::of(&members, true), rows)
    },
    ..STORE
};

/// Takes members with the lowest scores out of the first key that has any, as many as the number
/// says. The runs are the further keys. → `Many`, the key and its members with their scores, or
/// `Nil`
static POP_FIRST_MIN: Joint = Joint {
    number: NUMBER + 6,
    name: "zset pop first least",
    event: "zpopmin",
    kind: Some(Kind::SortedSet),
    level: SORTED,
    numbers: 1,
    others: |runs| Some((0..runs, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        answers_value: true,
        ..WRITES
    },
    run: |inputs, key, rows| pop_of(inputs, key, rows, false),
    ..JOINT
};

/// The same with the highest ones.
static POP_FIRST_MAX: Joint = Joint {
    number: NUMBER + 7,
    name: "zset pop first most",
    event: "zpopmax",
    run: |inputs, key, rows| pop_of(inputs, key, rows, true),
    ..POP_FIRST_MIN
};

fn pop_of(
    inputs: &Inputs,
    (map, first): (MapId, &[u8]),
    rows: &mut Rows<'_>,
    max: bool,
) -> Outcome {
    let keys = std::iter::once(first).chain(inputs.bytes.iter().map(|key| &**key));
    let pop = if max { &POP_MAX } else { &POP_MIN };
    for key in keys {
        let Some(entry) = rows.find(map, key) else {
            continue;
        };
        if entry.kind() != Kind::SortedSet {
            return Outcome::Failed(Failure::WrongType);
        }
        let members = rows.step(map, key, &Action::call(pop, &inputs.numbers, Vec::new()));
        return match members {
            Outcome::Failed(_) => members,
            members => named(key, members),
        };
    }
    Outcome::Nil
}

/// Gives a key these members with their stored scores, whatever it holds; deletes it if there are
/// none. → `Int`, how many members
fn put_set<'a>(
    (map, key): (MapId, &[u8]),
    members: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    rows: &mut Rows<'_>,
) -> Outcome {
    let cx = *rows.cx();
    let mut given = Vec::new();
    for (member, score) in members {
        put(&mut given, member);
        put(&mut given, score);
        if given.len() > cx.value_bytes_max {
            return Outcome::Failed(Failure::TooLarge);
        }
    }
    let exists = rows.find(map, key).is_some();
    if given.is_empty() {
        if exists {
            rows.step(map, key, &Action::Delete);
        }
        return Outcome::Int(0);
    }
    let unpacked = UnpackedItems::new();
    let empty = CollectionView::of(Kind::SortedSet, FoundKey::default(), &unpacked, &cx);
    let Some(empty) = empty else {
        return Outcome::Failed(Failure::WrongType);
    };
    let edit = Edit::Set(Pairs::of(&given, true), FieldDeadline::Never);
    match empty.edited(edit, &cx) {
        (stored, Ok(change)) => {
            rows.replace((map, key), change);
            count(stored)
        }
        (_, Err(failure)) => Outcome::Failed(failure),
    }
}

/// Which members several sorted sets have together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combining {
    /// Those that any of them has.
    Union,
    /// Those that each of them has.
    Intersection,
    /// Those of the first that no other one has.
    Difference,
}

impl Combining {
    const fn of_number(number: i64) -> Self {
        match number {
            0 => Self::Union,
            1 => Self::Intersection,
            _ => Self::Difference,
        }
    }
}

/// What becomes of the scores that a member has in several sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Least,
    Most,
}

impl Aggregate {
    const fn of_number(number: i64) -> Self {
        match number {
            0 => Self::Sum,
            1 => Self::Least,
            _ => Self::Most,
        }
    }

    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => number(one + other),
            Self::Least => one.min(other),
            Self::Most => one.max(other),
        }
    }
}

/// What is no number counts as 0, as in Redis.
const fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Stored scores with their members, in order.
type CombinedMembers = Vec<([u8; 8], Bytes)>;

/// The members of the sorted sets of these keys together.
///
/// # Errors
/// A key holds neither a sorted set nor a set.
fn combined<'k>(
    inputs: &Inputs,
    map: MapId,
    keys: impl Iterator<Item = &'k [u8]>,
    rows: &mut Rows<'_>,
) -> Result<CombinedMembers, Failure> {
    let how = Combining::of_number(inputs.numbers[0]);
    let aggregate = Aggregate::of_number(inputs.numbers[1]);
    let weights: Vec<f64> = inputs.bytes[0].chunks_exact(8).map(score_of).collect();
    let mut together: BTreeMap<Bytes, f64> = BTreeMap::new();
    for (at, key) in keys.enumerate() {
        let kind = rows
            .find(map, key)
            .map_or(Kind::SortedSet, |entry| entry.kind());
        if !matches!(kind, Kind::SortedSet | Kind::Set) {
            return Err(Failure::WrongType);
        }
        let (cx, unpacked) = (*rows.cx(), UnpackedItems::new());
        let held = rows
            .find(map, key)
            .map_or(FoundKey::default(), |_| rows.held(map, key));
        let view = CollectionView::of(kind, held, &unpacked, &cx).ok_or(Failure::WrongType)?;
        let weight = weights.get(at).copied().unwrap_or(1.0);
        let scored = |(member, score): (&[u8], &[u8])| {
            let score = if kind == Kind::Set {
                1.0
            } else {
                score_of(score)
            };
            (Bytes::copy_from_slice(member), number(score * weight))
        };
        match how {
            _ if at == 0 => together.extend(view.pairs().map(scored)),
            Combining::Union => {
                for (member, score) in view.pairs().map(scored) {
                    cx.budget.sort();
                    let held = together.entry(member);
                    held.and_modify(|held| *held = aggregate.of(*held, score))
                        .or_insert(score);
                }
            }
            Combining::Intersection | Combining::Difference => {
                let given: BTreeMap<Bytes, f64> = view.pairs().map(scored).collect();
                let keeps = how == Combining::Intersection;
                together.retain(|member, held| {
                    let found = given.get(member);
                    if let (Some(score), true) = (found, keeps) {
                        *held = aggregate.of(*held, *score);
                    }
                    found.is_some() == keeps
                });
            }
        }
        let most = collection::answer_max(&cx).max(cx.value_bytes_max);
        if together.len() > most {
            return Err(Failure::TooLarge);
        }
    }
    let scored = together
        .into_iter()
        .map(|(member, score)| (stored_score(score), member));
    let mut all: CombinedMembers = scored.collect();
    all.sort_unstable();
    Ok(all)
}

/// What the arguments of a command on several sorted sets say.
struct CombineArguments {
    keys: Vec<Bytes>,
    weights: Vec<u8>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: i64,
}

/// Which options such a command has.
#[derive(Debug, Clone, Copy, Default)]
struct CombineOptions {
    weighs: bool,
    with_scores: bool,
    limit: bool,
}

/// How many keys the argument at this place counts, which follow it.
fn counted(c: CommandCall<'_>, at: usize) -> Result<usize, ErrorText> {
    let given = integer(c.args.get(at)).ok_or(super::NOT_AN_INTEGER)?;
    if given <= 0 {
        let why = format!(
            "ERR at least 1 input key is needed for '{}' command",
            c.name
        );
        return Err(why.into());
    }
    let count = usize::try_from(given).unwrap_or(usize::MAX);
    if count > c.args.len() - at - 1 {
        return Err(SYNTAX.into());
    }
    check_count(count)?;
    Ok(count)
}

impl CombineArguments {
    /// Reads the keys that the argument at this place counts, and the options behind them.
    fn read(c: CommandCall<'_>, at: usize, has: CombineOptions) -> Result<Self, ErrorText> {
        let keys = counted(c, at)?;
        Self::read_options(c, (at + 1, keys), has)
    }

    fn read_options(
        c: CommandCall<'_>,
        (first, keys): (usize, usize),
        has: CombineOptions,
    ) -> Result<Self, ErrorText> {
        let mut read = Self {
            keys: (first..first + keys).map(|at| c.args.bytes(at)).collect(),
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        let mut at = first + keys;
        while at < c.args.len() {
            let (option, left) = (c.args.get(at), c.args.len() - at - 1);
            if has.weighs && is(option, "WEIGHTS") && left >= keys {
                for weight in 1..=keys {
                    let weight = parse_score(c.args.get(at + weight));
                    let weight = weight.ok_or("ERR weight value is not a float")?;
                    read.weights.extend(stored_score(weight));
                }
                at += keys;
            } else if has.weighs && is(option, "AGGREGATE") && left >= 1 {
                let given = c.args.get(at + 1);
                read.aggregate = match () {
                    () if is(given, "SUM") => Aggregate::Sum,
                    () if is(given, "MIN") => Aggregate::Least,
                    () if is(given, "MAX") => Aggregate::Most,
                    () => return Err(SYNTAX.into()),
                };
                at += 1;
            } else if has.with_scores && is(option, "WITHSCORES") {
                read.with_scores = true;
            } else if has.limit && is(option, "LIMIT") && left >= 1 {
                let most = integer(c.args.get(at + 1)).filter(|most| *most >= 0);
                read.limit = most.ok_or("ERR LIMIT can't be negative")?;
                at += 1;
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        Ok(read)
    }

    /// The runs of a joint: the weights, and the keys from this one on.
    fn runs(self, from: usize) -> Vec<Bytes> {
        let keys = self.keys.into_iter().skip(from);
        std::iter::once(Bytes::from(self.weights))
            .chain(keys)
            .collect()
    }
}

fn combine(c: CommandCall<'_>, how: Combining) -> Parsed {
    let has = CombineOptions {
        weighs: how != Combining::Difference,
        with_scores: true,
        limit: false,
    };
    let read = CombineArguments::read(c, 1, has)?;
    let shape = if read.with_scores {
        Shape::Scored
    } else {
        Shape::List
    };
    let numbers = [
        how as i64,
        read.aggregate as i64,
        i64::from(read.with_scores),
    ];
    c.of_key(2, Action::call(&COMBINE, &numbers, read.runs(1)), shape)
}

fn store(c: CommandCall<'_>, how: Combining, joint: &'static Joint) -> Parsed {
    let has = CombineOptions {
        weighs: how != Combining::Difference,
        ..CombineOptions::default()
    };
    let read = CombineArguments::read(c, 2, has)?;
    let numbers = [how as i64, read.aggregate as i64, 0];
    c.shaped(Action::call(joint, &numbers, read.runs(0)), Shape::Together)
}

fn count_common(c: CommandCall<'_>) -> Parsed {
    let has = CombineOptions {
        limit: true,
        ..CombineOptions::default()
    };
    let given = integer(c.args.get(1)).filter(|count| *count > 0);
    let given = given.ok_or("ERR numkeys should be greater than 0")?;
    if usize::try_from(given).is_ok_and(|count| count > c.args.len() - 2) {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let read = CombineArguments::read(c, 1, has)?;
    let numbers = [Combining::Intersection as i64, 0, read.limit];
    c.of_key(
        2,
        Action::call(&COUNT_COMMON, &numbers, read.runs(1)),
        Shape::Plain,
    )
}

fn store_range(c: CommandCall<'_>) -> Parsed {
    let options = RangeOptions::of(PartBy::Rank, false).read(c, 5, (true, true))?;
    let (numbers, runs) = options.inputs(c, 3)?;
    let runs = runs.into_iter().chain([c.args.bytes(2)]);
    let runs: Vec<Bytes> = runs.collect();
    c.shaped(Action::call(&STORE_RANGE, &numbers, runs), Shape::Together)
}

/// The joint that pops from the first of several keys.
pub(super) const fn pop_first(most: bool) -> &'static Joint {
    if most { &POP_FIRST_MAX } else { &POP_FIRST_MIN }
}

/// What a pop from several keys says, from the number of its keys on: the places of its keys, whether
/// it takes those with the highest scores, and how many.
fn popping(c: CommandCall<'_>, from: usize) -> Result<(Vec<Bytes>, bool, i64), ErrorText> {
    let given = integer(c.args.get(from)).filter(|count| *count > 0);
    let keys = given.ok_or("ERR numkeys should be greater than 0")?;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    let at = keys.saturating_add(from + 1);
    if at >= c.args.len() {
        return Err(SYNTAX.into());
    }
    check_count(keys)?;
    let most = match c.args.get(at) {
        end if is(end, "MIN") => false,
        end if is(end, "MAX") => true,
        _ => return Err(SYNTAX.into()),
    };
    let wanted = match c.args.len() - at {
        1 => 1,
        3 if is(c.args.get(at + 1), "COUNT") => {
            let wanted = positive(c.args.get(at + 2)).ok().filter(|count| *count > 0);
            wanted.ok_or("ERR count should be greater than 0")?
        }
        _ => return Err(SYNTAX.into()),
    };
    let keys = (from + 1..at).map(|at| c.args.bytes(at)).collect();
    Ok((keys, most, wanted))
}

fn pop_now(c: CommandCall<'_>) -> Parsed {
    let (mut keys, most, wanted) = popping(c, 1)?;
    let others = keys.split_off(1);
    let action = Action::call(pop_first(most), &[wanted], others);
    c.of_key(2, action, Shape::Popped)
}

/// Waits at keys before the last argument, which is the time.
fn pop_one(c: CommandCall<'_>, most: bool) -> Parsed {
    let last = c.args.len() - 1;
    let keys = (1..last).map(|at| c.args.bytes(at)).collect();
    let pop = BlockingPop::of_one(keys, timeout(c, last)?, most);
    Ok(ParsedRequest::Pop(Box::new(pop)))
}

fn pop_some(c: CommandCall<'_>) -> Parsed {
    let timeout = timeout(c, 1)?;
    let (keys, most, count) = popping(c, 2)?;
    Ok(ParsedRequest::Pop(Box::new(BlockingPop {
        keys,
        timeout,
        shape: Shape::Popped,
        takes: PopKind::Scored { most, count },
    })))
}
