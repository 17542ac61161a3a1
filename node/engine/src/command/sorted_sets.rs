//! Commands on sorted sets.

use super::collections::{
    CollectionDone, TOO_LARGE, drawing, failed, length, random, rest, scan, scanning, wanted,
    writes,
};
use super::sorted_ranges::{
    Ordered, PART_NUMBERS, PartBy, PartInputs, RANGE_NUMBERS, RangeOptions, ScoredAnswer, part_of,
    range, ranging, shown,
};
use super::{
    Access, CommandCall, Description, ErrorText, NOT_A_FLOAT, ONE_KEY, ParseFn, Parsed, SYNTAX,
    Shape, command, is, wrong_arity,
};
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{Inputs, Procedure, WRITES, count, procedure, values};
use crate::store::collection::{CollectionView, Edit, FieldDeadline};
use crate::store::run_context::RunContext;
use crate::value::integer::integer;
use crate::value::items::{Items, Pairs, put, put_bytes};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::sorted_set::{SCORE_BYTES, parse_score, score_of, stored_score};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("zadd", "1.2.0", -4, "sorted-set", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "sortedset")
        .about("Add one or more members to a sorted set, or update its score if it already exists")
        .parse(add),
    command("zcard", "1.2.0", 2, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "sortedset")
        .about("Get the number of members in a sorted set")
        .parse(|c| c.one(Action::call(&LENGTH, &[], Vec::new()))),
    command("zcount", "2.0.0", 4, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Count the members in a sorted set with scores within the given values")
        .parse(|c| of_part(c, PartBy::Score, &COUNT)),
    command("zincrby", "1.2.0", 4, "sorted-set", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "sortedset")
        .about("Increment the score of a member in a sorted set")
        .parse(|c| add_scored(c, ADD_BY, 2)),
    command("zlexcount", "2.8.9", 4, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Count the number of members in a sorted set between a given lexicographical range")
        .parse(|c| of_part(c, PartBy::Member, &COUNT)),
    command("zmscore", "6.2.0", -3, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Get the score associated with the given members in a sorted set")
        .parse(|c| c.shaped(Action::call(&SCORES, &[], [rest(c, 2)]), Shape::Score)),
    command("zpopmax", "5.0.0", -2, "sorted-set", "write fast")
        .on(ONE_KEY, Access::BOTH, "sortedset")
        .about("Remove and return members with the highest scores in a sorted set")
        .parse(|c| pop(c, &POP_MAX)),
    command("zpopmin", "5.0.0", -2, "sorted-set", "write fast")
        .on(ONE_KEY, Access::BOTH, "sortedset")
        .about("Remove and return members with the lowest scores in a sorted set")
        .parse(|c| pop(c, &POP_MIN)),
    command("zrandmember", "6.2.0", -2, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Get one or multiple random elements from a sorted set")
        .parse(draw_random),
    command("zrange", "1.2.0", -4, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Return a range of members in a sorted set")
        .parse(|c| ranging(c, &RANGE, RangeOptions::of(PartBy::Rank, false), true)),
    command("zrangebylex", "2.8.9", -4, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Return a range of members in a sorted set, by lexicographical range")
        .parse(|c| ranging(c, &RANGE, RangeOptions::of(PartBy::Member, false), false)),
    command("zrangebyscore", "1.0.5", -4, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Return a range of members in a sorted set, by score")
        .parse(|c| ranging(c, &RANGE, RangeOptions::of(PartBy::Score, false), false)),
    command("zrank", "2.0.0", -3, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Determine the index of a member in a sorted set")
        .parse(|c| rank(c, false)),
    command("zrem", "1.2.0", -3, "sorted-set", "write fast")
        .on(ONE_KEY, Access::WRITE, "sortedset")
        .about("Remove one or more members from a sorted set")
        .parse(|c| c.one(Action::call(&REMOVE, &[], [rest(c, 2)]))),
    command("zremrangebylex", "2.8.9", 4, "sorted-set", "write")
        .on(ONE_KEY, Access::WRITE, "sortedset")
        .about("Remove all members in a sorted set between the given lexicographical range")
        .parse(|c| of_part(c, PartBy::Member, &REMOVE_MEMBERS)),
    command("zremrangebyrank", "2.0.0", 4, "sorted-set", "write")
        .on(ONE_KEY, Access::WRITE, "sortedset")
        .about("Remove all members in a sorted set within the given indexes")
        .parse(|c| of_part(c, PartBy::Rank, &REMOVE_RANKS)),
    command("zremrangebyscore", "1.2.0", 4, "sorted-set", "write")
        .on(ONE_KEY, Access::WRITE, "sortedset")
        .about("Remove all members in a sorted set within the given scores")
        .parse(|c| of_part(c, PartBy::Score, &REMOVE_SCORES)),
    command("zrevrange", "1.2.0", -4, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Return a range of members in a sorted set, by index, with scores high to low")
        .parse(|c| ranging(c, &RANGE, RangeOptions::of(PartBy::Rank, true), false)),
    command("zrevrangebylex", "2.8.9", -4, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about(
            "Return a range of members in a sorted set, by lexicographical range, from higher to \
             lower",
        )
        .parse(|c| ranging(c, &RANGE, RangeOptions::of(PartBy::Member, true), false)),
    command("zrevrangebyscore", "2.2.0", -4, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Return a range of members in a sorted set, by score, with scores high to low")
        .parse(|c| ranging(c, &RANGE, RangeOptions::of(PartBy::Score, true), false)),
    command("zrevrank", "2.0.0", -3, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Determine the index of a member in a sorted set, with scores from high to low")
        .parse(|c| rank(c, true)),
    command("zscan", "2.8.0", -3, "sorted-set", "readonly")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Incrementally iterate sorted sets elements and associated scores")
        .parse(|c| scanning(c, &SCAN, (true, None))),
    command("zscore", "1.2.0", 3, "sorted-set", "readonly fast")
        .on(ONE_KEY, Access::READ, "sortedset")
        .about("Get the score associated with the given member in a sorted set")
        .parse(|c| c.shaped(Action::call(&SCORE, &[], [c.args.bytes(2)]), Shape::Score)),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[
    &ADD,
    &INCREASE,
    &REMOVE,
    &SCORE,
    &SCORES,
    &LENGTH,
    &COUNT,
    &RANK,
    &RANGE,
    &POP_MIN,
    &POP_MAX,
    &REMOVE_RANKS,
    &REMOVE_SCORES,
    &REMOVE_MEMBERS,
    &RANDOM,
    &SCAN,
];

/// The first of these numbers.
pub(super) const NUMBER: u16 = 140;

/// What `ADD` and `INCREASE` do: bits of their number.
pub(super) const ONLY_NEW: i64 = 1;
pub(super) const ONLY_OLD: i64 = 2;
pub(super) const ONLY_GREATER: i64 = 4;
const ONLY_LESS: i64 = 8;
/// It answers how many members have another score, besides the new ones.
pub(super) const COUNTS_CHANGED: i64 = 16;
/// The score is added to that of the member.
const ADD_BY: i64 = 32;

/// Gives members scores, as the number says. → `Int`, how many are new
pub(super) static ADD: Procedure = procedure(NUMBER, "zset add", Kind::SortedSet, (1, 1))
    .costs(writes)
    .told_as("zadd")
    .on_fields(|inputs, view, _| {
        let (flags, given) = (inputs.numbers[0], Pairs::of(&inputs.bytes[0], true));
        if flags == 0 {
            return (None, Edit::Add(given));
        }
        let Some(ScoreChanges {
            made, new, changed, ..
        }) = ScoreChanges::of(view, given, flags)
        else {
            return failed(Failure::Overflow);
        };
        let counted = if flags & COUNTS_CHANGED == 0 {
            new
        } else {
            new + changed
        };
        (Some(count(counted)), set_made(view, made))
    });

/// Adds to the score of a member, as the number says. → `Bulk`, its new score, or `Nil`: a
/// condition did not hold
pub(super) static INCREASE: Procedure =
    procedure(NUMBER + 1, "zset increase", Kind::SortedSet, (1, 1))
        .costs(writes)
        .told_as("zincr")
        .on_fields(|inputs, view, _| {
            let given = Pairs::of(&inputs.bytes[0], true);
            let changes = ScoreChanges::of(view, given, inputs.numbers[0] | ADD_BY);
            let Some(ScoreChanges { made, last, .. }) = changes else {
                return failed(Failure::Overflow);
            };
            let outcome = last.map_or(Outcome::Nil, |score| shown(&score));
            (Some(outcome), set_made(view, made))
        });

/// Removes members. → `Int`, how many there were
pub(super) static REMOVE: Procedure = procedure(NUMBER + 2, "zset remove", Kind::SortedSet, (0, 1))
    .costs(writes)
    .told_as("zrem")
    .on_fields(|inputs, _, _| (None, Edit::Delete(Items(&inputs.bytes[0]).collect())));

/// The score of a member. → `Bulk` or `Nil`
pub(super) static SCORE: Procedure = procedure(NUMBER + 3, "zset score", Kind::SortedSet, (0, 1))
    .on_fields(|inputs, view, _| {
        let score = view.get(&inputs.bytes[0]);
        (Some(score.map_or(Outcome::Nil, shown)), Edit::None)
    });

/// The scores of several members. → `Many` of `Bulk` or `Nil`
static SCORES: Procedure =
    procedure(NUMBER + 4, "zset scores", Kind::SortedSet, (0, 1)).on_fields(|inputs, view, _| {
        let score = |member| view.get(member).map_or(Outcome::Nil, shown);
        let all = Items(&inputs.bytes[0]).map(score).collect();
        (Some(Outcome::Many(all)), Edit::None)
    });

/// How many members there are. → `Int`
pub(super) static LENGTH: Procedure =
    procedure(NUMBER + 5, "zset length", Kind::SortedSet, (0, 0)).on_fields(length);

/// How many members a part has. → `Int`
pub(super) static COUNT: Procedure =
    procedure(NUMBER + 6, "zset count", Kind::SortedSet, (PART_NUMBERS, 2)).on_fields(
        |inputs, view, _| match part_of(inputs, 0) {
            Some(part) => {
                let (from, to) = Ordered::of(view).span(&part);
                (Some(count(to - from)), Edit::None)
            }
            None => failed(Failure::NotAnInteger),
        },
    );

/// How many members come before one. The numbers: from the end (1), and with its score (1). →
/// `Int`, `Many`, or `Nil`: it is absent
pub(super) static RANK: Procedure = procedure(NUMBER + 7, "zset rank", Kind::SortedSet, (2, 1))
    .on_fields(|inputs, view, _| {
        let member = &inputs.bytes[0];
        let Some(score) = view.get(member) else {
            return (Some(Outcome::Nil), Edit::None);
        };
        let ordered = Ordered::of(view);
        let rank = ordered.rank((member, score));
        let rank = count(if inputs.numbers[0] == 1 {
            ordered.len().saturating_sub(rank + 1)
        } else {
            rank
        });
        let outcome = if inputs.numbers[1] == 1 {
            Outcome::Many(vec![rank, shown(score)])
        } else {
            rank
        };
        (Some(outcome), Edit::None)
    });

/// The members of a range: see [`range`].
pub(super) static RANGE: Procedure = procedure(
    NUMBER + 8,
    "zset range",
    Kind::SortedSet,
    (RANGE_NUMBERS + 1, 2),
)
.costs(values)
.on_fields(range);

/// Takes members with the lowest scores out, as many as the number says. → `Many`, each with its
/// score
pub(super) static POP_MIN: Procedure =
    procedure(NUMBER + 9, "zset pop least", Kind::SortedSet, (1, 0))
        .costs(takes)
        .told_as("zpopmin")
        .on_fields(|inputs, view, cx| take(inputs, view, cx, false));

/// The same of those with the highest ones.
pub(super) static POP_MAX: Procedure =
    procedure(NUMBER + 10, "zset pop most", Kind::SortedSet, (1, 0))
        .costs(takes)
        .told_as("zpopmax")
        .on_fields(|inputs, view, cx| take(inputs, view, cx, true));

/// Removes the members between two ranks. → `Int`, how many
pub(super) static REMOVE_RANKS: Procedure =
    removing(NUMBER + 11, "zset remove ranks").told_as("zremrangebyrank");

/// The same between two scores.
pub(super) static REMOVE_SCORES: Procedure =
    removing(NUMBER + 12, "zset remove scores").told_as("zremrangebyscore");

/// The same between two members of one score.
static REMOVE_MEMBERS: Procedure =
    removing(NUMBER + 13, "zset remove members").told_as("zremrangebylex");

/// Random members: see [`random`].
static RANDOM: Procedure = procedure(NUMBER + 14, "zset random", Kind::SortedSet, (3, 0))
    .costs(values)
    .on_fields(random);

/// Members from a place on: see [`scan`].
static SCAN: Procedure = procedure(NUMBER + 15, "zset scan", Kind::SortedSet, (3, 1))
    .costs(values)
    .on_fields(scan);

const fn removing(number: u16, name: &'static str) -> Procedure {
    procedure(number, name, Kind::SortedSet, (PART_NUMBERS, 2))
        .costs(|_| WRITES)
        .on_fields(|inputs, view, _| {
            let Some(part) = part_of(inputs, 0) else {
                return failed(Failure::NotAnInteger);
            };
            let ordered = Ordered::of(view);
            let (from, to) = ordered.span(&part);
            (None, ordered.without(from..to))
        })
}

fn takes(_: &Inputs) -> Footprint {
    Footprint {
        answers_value: true,
        looks_up: true,
        ..WRITES
    }
}

/// Takes members out, from the first on or from the last.
fn take<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    cx: &RunContext,
    reverse: bool,
) -> CollectionDone<'a> {
    let wanted = usize::try_from(inputs.numbers[0]).unwrap_or(0);
    let ordered = Ordered::of(view);
    let begin = if reverse {
        ordered.len().saturating_sub(1)
    } else {
        0
    };
    let (mut answer, mut gone) = (ScoredAnswer::new(true), Vec::new());
    for scored in ordered.from(begin, reverse).take(wanted) {
        if !answer.take(scored, cx) {
            return TOO_LARGE;
        }
        gone.push(scored.0);
    }
    (Some(answer.outcome()), Edit::Delete(gone))
}

fn set_made<'a>(view: CollectionView<'a>, made: Vec<u8>) -> Edit<'a> {
    if made.is_empty() {
        Edit::None
    } else {
        Edit::Set(view.made(made), FieldDeadline::Never)
    }
}

/// What scores that are given change.
struct ScoreChanges {
    /// The members with their new scores.
    made: Vec<u8>,
    /// How many are new, and how many have another score.
    new: usize,
    changed: usize,
    /// The score of the last one. `None`: a condition did not hold.
    last: Option<[u8; SCORE_BYTES]>,
}

impl ScoreChanges {
    /// `None`: a score would be no number.
    fn of(view: CollectionView<'_>, given: Pairs<'_>, flags: i64) -> Option<Self> {
        let (mut scores, mut new, mut changed, mut last) = (BTreeMap::new(), 0, 0, None);
        for (member, wanted) in given.take_while(|_| view.budget().sort()) {
            let held = scores.get(member).copied();
            let held = held.or_else(|| view.get(member).map(score_of));
            let mut score = score_of(wanted);
            last = None;
            if (flags & ONLY_NEW != 0 && held.is_some())
                || (flags & ONLY_OLD != 0 && held.is_none())
            {
                continue;
            }
            if flags & ADD_BY != 0 {
                score += held.unwrap_or(0.0);
                if score.is_nan() {
                    return None;
                }
            }
            if let Some(held) = held
                && ((flags & ONLY_GREATER != 0 && score <= held)
                    || (flags & ONLY_LESS != 0 && score >= held))
            {
                continue;
            }
            last = Some(stored_score(score));
            match held {
                None => new += 1,
                Some(held) if stored_score(held) != stored_score(score) => changed += 1,
                Some(_) => continue,
            }
            scores.insert(member, score);
        }
        let mut made = Vec::new();
        for (member, score) in scores {
            put(&mut made, member);
            put(&mut made, &stored_score(score));
        }
        Some(Self {
            made,
            new,
            changed,
            last,
        })
    }
}

/// What the options of these names before the members ask for, and where the members begin.
pub(super) fn adding(c: CommandCall<'_>, options: &[(&str, i64)]) -> (i64, usize) {
    let (mut flags, mut at) = (0, 2);
    while at < c.args.len() {
        let word = c.args.get(at);
        let Some((_, flag)) = options.iter().find(|(name, _)| is(word, name)) else {
            break;
        };
        flags |= flag;
        at += 1;
    }
    (flags, at)
}

fn add(c: CommandCall<'_>) -> Parsed {
    let options = [
        ("NX", ONLY_NEW),
        ("XX", ONLY_OLD),
        ("GT", ONLY_GREATER),
        ("LT", ONLY_LESS),
        ("CH", COUNTS_CHANGED),
        ("INCR", ADD_BY),
    ];
    let (flags, at) = adding(c, &options);
    let has = |flag: i64| flags & flag != 0;
    if at >= c.args.len() || !(c.args.len() - at).is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if has(ONLY_NEW) && has(ONLY_OLD) {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    let directions = usize::from(has(ONLY_GREATER)) + usize::from(has(ONLY_LESS));
    if directions + usize::from(has(ONLY_NEW)) > 1 {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if has(ADD_BY) && c.args.len() - at > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    add_scored(c, flags, at)
}

/// Scores, each followed by its member, from this place on.
fn add_scored(c: CommandCall<'_>, flags: i64, from: usize) -> Parsed {
    let members = (from + 1..c.args.len()).step_by(2);
    let bytes = members.map(|at| put_bytes(c.args.get(at)) + 1 + SCORE_BYTES);
    let mut given = Vec::with_capacity(bytes.sum());
    for at in (from..c.args.len()).step_by(2) {
        let score = parse_score(c.args.get(at)).ok_or(NOT_A_FLOAT)?;
        put(&mut given, c.args.get(at + 1));
        put(&mut given, &stored_score(score));
    }
    let given = [Bytes::from(given)];
    if flags & ADD_BY == 0 {
        c.one(Action::call(&ADD, &[flags], given))
    } else {
        c.shaped(Action::call(&INCREASE, &[flags], given), Shape::Score)
    }
}

/// A call about the part between the second and the third argument.
fn of_part(c: CommandCall<'_>, by: PartBy, procedure: &'static Procedure) -> Parsed {
    let PartInputs { numbers, runs } = by.part(c.args.get(2), c.args.get(3))?;
    c.one(Action::call(procedure, &numbers, runs.to_vec()))
}

fn rank(c: CommandCall<'_>, reverse: bool) -> Parsed {
    let with_score = match c.args.len() {
        3 => false,
        4 if is(c.args.get(3), "WITHSCORE") => true,
        4 => return Err(SYNTAX.into()),
        _ => return Err(wrong_arity(c.name)),
    };
    let numbers = [i64::from(reverse), i64::from(with_score)];
    let shape = if with_score {
        Shape::LastScore
    } else {
        Shape::Plain
    };
    c.shaped(Action::call(&RANK, &numbers, [c.args.bytes(2)]), shape)
}

/// How many elements an argument says. It is not negative.
pub(super) fn positive(text: &[u8]) -> Result<i64, ErrorText> {
    let count = integer(text).filter(|count| *count >= 0);
    count.ok_or_else(|| "ERR value is out of range, must be positive".into())
}

fn pop(c: CommandCall<'_>, procedure: &'static Procedure) -> Parsed {
    let (wanted, shape) = match c.args.len() {
        2 => (1, Shape::LastScore),
        3 => (positive(c.args.get(2))?, Shape::Scored),
        _ => return Err(SYNTAX.into()),
    };
    c.shaped(Action::call(procedure, &[wanted], Vec::new()), shape)
}

fn draw_random(c: CommandCall<'_>) -> Parsed {
    if c.args.len() == 2 {
        return c.shaped(drawing(&RANDOM, 1, false), Shape::First);
    }
    let wanted = wanted(c)?;
    let with_scores = match c.args.len() {
        3 => false,
        4 if is(c.args.get(3), "WITHSCORES") => true,
        _ => return Err(SYNTAX.into()),
    };
    if with_scores && wanted.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err("ERR value is out of range".into());
    }
    let shape = if with_scores {
        Shape::Scored
    } else {
        Shape::List
    };
    c.shaped(drawing(&RANDOM, wanted, with_scores), shape)
}

/// Gives members that were taken, each followed by its score, back to their key. One that has come
/// again meanwhile keeps its score.
pub(super) fn add_again(taken: &[Outcome]) -> Action {
    let mut given = Vec::new();
    for pair in taken.chunks(2) {
        if let [Outcome::Bulk(member), Outcome::Bulk(score)] = pair
            && let Some(score) = parse_score(score)
        {
            put(&mut given, member);
            put(&mut given, &stored_score(score));
        }
    }
    Action::call(&ADD, &[ONLY_NEW], [Bytes::from(given)])
}
