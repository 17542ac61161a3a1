//! Commands on several sorted sets. Sets count as sorted sets whose members have the score 1.

use super::collections::store_fields;
use super::combine::{Aggregate, Combination, CombineInput, CombinedMembers, ScoreCombiner};
use super::description::{KEYS_BEFORE_LAST, TWO_KEYS};
use super::popping::{pop_now, pop_one, pop_some};
use super::pops::{BlockingPop, PopKind, pop_first};
use super::sets::{common_of, given};
use super::several::check_count;
use super::sorted_ranges::{Ordered, PartBy, RANGE_NUMBERS, RangeOptions, members_of_range};
use super::sorted_sets::{LENGTH, POP_MAX, POP_MIN, add_again};
use super::{
    Access, CommandCall, Description, ErrorText, ParseFn, Parsed, Rights, SYNTAX, Shape, command,
    counted_keys, is, stored_and_counted_keys,
};
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{
    Inputs, JOINT, Joint, ProcedureCall, READS, VALUES, WRITES, count,
};
use crate::command::rows::Rows;
use crate::store::FoundKey;
use crate::store::collection::{CollectionView, UnpackedItems};
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::integer::integer;
use crate::value::items::put;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::sorted_set::{parse_score, stored_score};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::SORTED;
use std::time::Duration;

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
    .parse(|c| pop_some(c, popped_at, Shape::Popped)),
    command("bzpopmax", "5.0.0", -3, "sorted-set", "write fast blocking")
        .on(KEYS_BEFORE_LAST, Access::BOTH, "sortedset")
        .about("Remove and return the member with the highest score, or wait for one")
        .parse(|c| pop_one(c, &WAIT_MAX)),
    command("bzpopmin", "5.0.0", -3, "sorted-set", "write fast blocking")
        .on(KEYS_BEFORE_LAST, Access::BOTH, "sortedset")
        .about("Remove and return the member with the lowest score, or wait for one")
        .parse(|c| pop_one(c, &WAIT_MIN)),
    command("zdiff", "6.2.0", -3, "sorted-set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "sortedset")
        .about("Subtract multiple sorted sets")
        .parse(|c| combine(c, Combination::Difference)),
    command(
        "zdiffstore",
        "6.2.0",
        -4,
        "sorted-set",
        "write denyoom movablekeys",
    )
    .on(stored_and_counted_keys(2), STORES, "sortedset")
    .about("Subtract multiple sorted sets and store the resulting sorted set in a new key")
    .parse(|c| store(c, Combination::Difference, &STORE_DIFFERENCE)),
    command("zinter", "6.2.0", -3, "sorted-set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "sortedset")
        .about("Intersect multiple sorted sets")
        .parse(|c| combine(c, Combination::Intersection)),
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
    .parse(|c| store(c, Combination::Intersection, &STORE_INTERSECTION)),
    command("zmpop", "7.0.0", -4, "sorted-set", "write movablekeys")
        .on(counted_keys(1, 1), Access::BOTH, "sortedset")
        .about("Remove and return members with scores in a sorted set")
        .parse(|c| pop_now(c, popped_at, Shape::Popped)),
    command("zrangestore", "6.2.0", -5, "sorted-set", "write denyoom")
        .on(TWO_KEYS, STORES, "sortedset")
        .about("Store a range of members from sorted set into another key")
        .parse(store_range),
    command("zunion", "6.2.0", -3, "sorted-set", "readonly movablekeys")
        .on(counted_keys(1, 1), Access::READ, "sortedset")
        .about("Add multiple sorted sets")
        .parse(|c| combine(c, Combination::Union)),
    command(
        "zunionstore",
        "2.0.0",
        -4,
        "sorted-set",
        "write denyoom movablekeys",
    )
    .on(stored_and_counted_keys(2), STORES, "sortedset")
    .about("Add multiple sorted sets and store the resulting sorted set in a new key")
    .parse(|c| store(c, Combination::Union, &STORE_UNION)),
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

/// The members of sorted sets together. The numbers: how ([`Combination`]), what becomes of scores
/// ([`Aggregate`]), and with scores (1). The runs: the weights, eight bytes each, or none if all
/// are 1; and the further keys. → `Many`
pub(super) static COMBINE: Joint = Joint {
    number: NUMBER,
    name: "zset combine",
    level: SORTED,
    numbers: 3,
    others: |runs| (runs > 0).then_some((1..runs, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        ..VALUES
    },
    run: |inputs, (map, key), rows| {
        let keys = std::iter::once(key).chain(inputs.bytes.iter().skip(1).map(|key| &**key));
        match combined(inputs, map, keys, rows) {
            Ok(members) => members.answer(inputs.numbers[2] == 1, rows.cx()),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..JOINT
};

/// How many members sorted sets have in common. The numbers: as those of `COMBINE`, the last one
/// the most that is counted; 0: all. → `Int`
pub(super) static COUNT_COMMON: Joint = Joint {
    number: NUMBER + 1,
    name: "zset count common",
    footprint: |inputs| Footprint {
        given: given(inputs),
        ..READS
    },
    run: |inputs, (map, key), rows| {
        let keys = std::iter::once(key).chain(inputs.bytes.iter().skip(1).map(|key| &**key));
        match combined(inputs, map, keys, rows) {
            Ok(members) => count(members.count(inputs.numbers[2])),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..COMBINE
};

/// Gives the key the members of the other sorted sets together; deletes it if there are none. The
/// numbers and runs are those of `COMBINE`. → `Int`, how many members
pub(super) static STORE_UNION: Joint = Joint {
    number: NUMBER + 2,
    name: "zset store union",
    event: "zunionstore",
    ..STORE
};

/// The same of those that they have in common.
pub(super) static STORE_INTERSECTION: Joint = Joint {
    number: NUMBER + 3,
    name: "zset store intersection",
    event: "zinterstore",
    ..STORE
};

/// The same of those of the first that the others do not have.
pub(super) static STORE_DIFFERENCE: Joint = Joint {
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
        given: given(inputs),
        stores: given(inputs).bytes,
        ..WRITES
    },
    run: |inputs, key, rows| {
        let keys = inputs.bytes.iter().skip(1).map(|key| &**key);
        match combined(inputs, key.0, keys, rows) {
            Ok(members) => store_fields(key, (Kind::SortedSet, &members.stored()), rows),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..JOINT
};

/// Gives the key the members of a range of another sorted set; deletes it if there are none. The
/// runs: those of the range, and the other key. → `Int`, how many members
pub(super) static STORE_RANGE: Joint = Joint {
    number: NUMBER + 5,
    name: "zset store range",
    event: "zrangestore",
    numbers: RANGE_NUMBERS,
    others: |runs| (runs == 3).then_some((2..3, 1)),
    run: |inputs, key, rows| {
        let cx = *rows.cx();
        match range_of(inputs, rows.seen(key.0, &inputs.bytes[2]), &cx) {
            Ok(members) => store_fields(key, (Kind::SortedSet, &members), rows),
            Err(failure) => Outcome::Failed(failure),
        }
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
    // The last member leaves as one that is taken, and then the key is deleted.
    event_of_others: Some("zpopmin"),
    kind: Some(Kind::SortedSet),
    level: SORTED,
    numbers: 1,
    others: |runs| Some((0..runs, 1)),
    footprint: |inputs| Footprint {
        given: given(inputs),
        answers_value: true,
        ..WRITES
    },
    run: |inputs, key, rows| pop_first(inputs, key, rows, &POP_MIN),
    ..JOINT
};

/// The same with the highest ones.
static POP_FIRST_MAX: Joint = Joint {
    number: NUMBER + 7,
    name: "zset pop first most",
    event: "zpopmax",
    event_of_others: Some("zpopmax"),
    run: |inputs, key, rows| pop_first(inputs, key, rows, &POP_MAX),
    ..POP_FIRST_MIN
};

/// The members of a range of what a key holds, with their stored scores, in one run of bytes.
///
/// # Errors
/// The key holds no sorted set.
fn range_of(inputs: &Inputs, held: FoundKey<'_>, cx: &RunContext<'_>) -> Result<Vec<u8>, Failure> {
    if held.entry.is_some() && held.kind() != Kind::SortedSet {
        return Err(Failure::WrongType);
    }
    let unpacked = UnpackedItems::new();
    let view = CollectionView::of(Kind::SortedSet, held, &unpacked, cx);
    let ordered = Ordered::of(view.ok_or(Failure::WrongType)?);
    let range = members_of_range(inputs, &ordered).ok_or(Failure::NotAnInteger)?;
    let mut members = Vec::new();
    for (member, score) in range {
        put(&mut members, member);
        put(&mut members, score);
    }
    Ok(members)
}

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
    let mut combiner = ScoreCombiner::of(inputs);
    for key in keys {
        let (cx, unpacked) = (*rows.cx(), UnpackedItems::new());
        let held = rows.seen(map, key);
        let kind = held.entry.map_or(Kind::SortedSet, Entry::kind);
        let view = CollectionView::of(kind, held, &unpacked, &cx).ok_or(Failure::WrongType)?;
        combiner.add(CombineInput::held(kind, view), &cx)?;
    }
    Ok(combiner.finish())
}

/// What the arguments of a command on several sorted sets say.
struct CombineArguments {
    keys: Vec<Bytes>,
    weights: Vec<u8>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// How many keys the argument at this place counts, which follow it.
fn counted(c: CommandCall<'_>, at: usize) -> Result<usize, ErrorText> {
    let keys = integer(c.args.get(at)).ok_or(super::NOT_AN_INTEGER)?;
    if keys <= 0 {
        let why = format!(
            "ERR at least 1 input key is needed for '{}' command",
            c.name
        );
        return Err(why.into());
    }
    let count = usize::try_from(keys).unwrap_or(usize::MAX);
    if count > c.args.len() - at - 1 {
        return Err(SYNTAX.into());
    }
    check_count(count)?;
    Ok(count)
}

impl CombineArguments {
    /// Reads the keys that the argument at this place counts, and the options behind them: whether
    /// there are weights, and scores in the answer.
    fn read(
        c: CommandCall<'_>,
        at: usize,
        (weighs, scores): (bool, bool),
    ) -> Result<Self, ErrorText> {
        let (first, keys) = (at + 1, counted(c, at)?);
        let mut read = Self {
            keys: (first..first + keys).map(|at| c.args.bytes(at)).collect(),
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            with_scores: false,
        };
        let mut at = first + keys;
        while at < c.args.len() {
            let (option, left) = (c.args.get(at), c.args.len() - at - 1);
            if weighs && is(option, "WEIGHTS") && left >= keys {
                for weight in 1..=keys {
                    let weight = parse_score(c.args.get(at + weight));
                    let weight = weight.ok_or("ERR weight value is not a float")?;
                    read.weights.extend(stored_score(weight));
                }
                at += keys;
            } else if weighs && is(option, "AGGREGATE") && left >= 1 {
                let given = c.args.get(at + 1);
                read.aggregate = match () {
                    () if is(given, "SUM") => Aggregate::Sum,
                    () if is(given, "MIN") => Aggregate::Least,
                    () if is(given, "MAX") => Aggregate::Most,
                    () => return Err(SYNTAX.into()),
                };
                at += 1;
            } else if scores && is(option, "WITHSCORES") {
                read.with_scores = true;
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

fn combine(c: CommandCall<'_>, how: Combination) -> Parsed {
    let read = CombineArguments::read(c, 1, (how != Combination::Difference, true))?;
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

fn store(c: CommandCall<'_>, how: Combination, joint: &'static Joint) -> Parsed {
    let read = CombineArguments::read(c, 2, (how != Combination::Difference, false))?;
    let numbers = [how as i64, read.aggregate as i64, 0];
    c.shaped(Action::call(joint, &numbers, read.runs(0)), Shape::Together)
}

fn count_common(c: CommandCall<'_>) -> Parsed {
    counted(c, 1)?;
    let (others, most) = common_of(c)?;
    let numbers = [
        Combination::Intersection as i64,
        Aggregate::Sum as i64,
        most,
    ];
    // There are no weights.
    let runs: Vec<Bytes> = std::iter::once(Bytes::new()).chain(others).collect();
    c.of_key(2, Action::call(&COUNT_COMMON, &numbers, runs), Shape::Plain)
}

fn store_range(c: CommandCall<'_>) -> Parsed {
    let options = RangeOptions::of(PartBy::Rank, false).read(c, 5, (true, true))?;
    let (numbers, runs) = options.inputs(c, 3)?;
    let runs = runs.into_iter().chain([c.args.bytes(2)]);
    let runs: Vec<Bytes> = runs.collect();
    c.shaped(Action::call(&STORE_RANGE, &numbers, runs), Shape::Together)
}

/// Pops from the first of several keys that wait, as `POP_FIRST_MIN` and `POP_FIRST_MAX` do.
static WAIT_MIN: PopKind = PopKind {
    take: &POP_FIRST_MIN,
    wait: &LENGTH,
    put_back,
};
static WAIT_MAX: PopKind = PopKind {
    take: &POP_FIRST_MAX,
    ..WAIT_MIN
};

fn popped_at(word: &[u8]) -> Option<&'static PopKind> {
    match word {
        least if is(least, "MIN") => Some(&WAIT_MIN),
        most if is(most, "MAX") => Some(&WAIT_MAX),
        _ => None,
    }
}

/// Gives members that were popped back to their key.
fn put_back(taken: &Outcome) -> Option<(Bytes, Action)> {
    let Outcome::Many(parts) = taken else {
        return None;
    };
    let [Outcome::Bulk(key), Outcome::Many(members)] = &parts[..] else {
        return None;
    };
    Some((Bytes::copy_from_slice(key), add_again(members)))
}

impl BlockingPop {
    /// A pop of the member with the lowest score of the first of these sorted sets that has any.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_least(keys: Vec<Bytes>, timeout: Option<Duration>) -> Self {
        Self::of_one(keys, timeout, &WAIT_MIN)
    }
}

/// The pop that a call of `POP_FIRST_MIN` or `POP_FIRST_MAX` is, key by key.
pub(super) fn pop_of(call: &ProcedureCall, first: &Bytes) -> Option<BlockingPop> {
    BlockingPop::of_call(call, first, (&[&WAIT_MIN, &WAIT_MAX], Shape::Popped))
}
