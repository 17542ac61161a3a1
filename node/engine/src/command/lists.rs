//! Commands on lists.

use super::description::{KEYS_BEFORE_LAST, TWO_KEYS};
use super::popping::{pop_now, pop_one, pop_some, timeout};
use super::pops::{BlockingPop, PopKind, pop_first};
use super::sorted_sets::positive;
use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, ParsedRequest, Part,
    Rights, SYNTAX, Shape, command, counted_keys, is, wrong_arity,
};
use crate::command::operation::{Action, Footprint, stores};
use crate::command::procedure::{
    Inputs, JOINT, Joint, Procedure, ProcedureCall, WRITES, count, procedure, values,
};
use crate::command::rows::Rows;
use crate::mutant::{self, broken};
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::collection::answer_max;
use crate::store::run_context::RunContext;
use crate::store::runs::{ListCut, ListView};
use crate::value::items::{Items, packed, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::SORTED;
use std::ops::Range;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("blmove", "6.2.0", 6, "list", "write denyoom blocking")
        .on(TWO_KEYS, MOVES, "list")
        .about("Pop an element from a list, push it to another list and return it, or wait for one")
        .parse(|c| move_or_wait(c, (side(c, 3)?, side(c, 4)?), 5)),
    command("blmpop", "7.0.0", -5, "list", "write blocking movablekeys")
        .on(counted_keys(2, 1), Access::BOTH, "list")
        .about("Pop elements from a list, or wait for one")
        .parse(|c| pop_some(c, waiting_at, Shape::Taken)),
    command("blpop", "2.0.0", -3, "list", "write blocking")
        .on(KEYS_BEFORE_LAST, Access::BOTH, "list")
        .about("Remove and get the first element in a list, or wait for one")
        .parse(|c| pop_one(c, &WAIT_LEFT)),
    command("brpop", "2.0.0", -3, "list", "write blocking")
        .on(KEYS_BEFORE_LAST, Access::BOTH, "list")
        .about("Remove and get the last element in a list, or wait for one")
        .parse(|c| pop_one(c, &WAIT_RIGHT)),
    command("brpoplpush", "2.2.0", 4, "list", "write denyoom blocking")
        .on(TWO_KEYS, MOVES, "list")
        .about("Pop an element from a list, push it to another list and return it, or wait for one")
        .parse(|c| move_or_wait(c, (ListSide::Right, ListSide::Left), 3)),
    command("lindex", "1.0.0", 3, "list", "readonly")
        .on(ONE_KEY, Access::READ, "list")
        .about("Get an element from a list by its index")
        .parse(|c| c.one(Action::call(&INDEX, &[c.number(2)?], Vec::new()))),
    command("linsert", "2.2.0", 5, "list", "write denyoom")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Insert an element before or after another element in a list")
        .parse(insert),
    command("llen", "1.0.0", 2, "list", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "list")
        .about("Get the length of a list")
        .parse(|c| c.one(Action::call(&LENGTH, &[], Vec::new()))),
    command("lmove", "6.2.0", 5, "list", "write denyoom")
        .on(TWO_KEYS, MOVES, "list")
        .about("Pop an element from a list, push it to another list and return it")
        .parse(|c| move_now(c, (side(c, 3)?, side(c, 4)?))),
    command("lmpop", "7.0.0", -4, "list", "write movablekeys")
        .on(counted_keys(1, 1), Access::BOTH, "list")
        .about("Pop elements from a list")
        .parse(|c| pop_now(c, waiting_at, Shape::Taken)),
    command("lpop", "1.0.0", -2, "list", "write fast")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Remove and get the first elements in a list")
        .parse(|c| pop(c, &POP_LEFT)),
    command("lpos", "6.0.6", -3, "list", "readonly")
        .on(ONE_KEY, Access::READ, "list")
        .about("Return the index of matching elements on a list")
        .parse(find),
    command("lpush", "1.0.0", -3, "list", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Prepend one or multiple elements to a list")
        .parse(|c| push(c, ListSide::Left, false)),
    command("lpushx", "2.2.0", -3, "list", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Prepend an element to a list, only if the list exists")
        .parse(|c| push(c, ListSide::Left, true)),
    command("lrange", "1.0.0", 4, "list", "readonly")
        .on(ONE_KEY, Access::READ, "list")
        .about("Get a range of elements from a list")
        .parse(|c| {
            let range = [c.number(2)?, c.number(3)?];
            let action = Action::call(&RANGE, &range, Vec::new());
            c.shaped(action, Shape::Fields(Part::Elements))
        }),
    command("lrem", "1.0.0", 4, "list", "write")
        .on(ONE_KEY, Access::WRITE, "list")
        .about("Remove elements from a list")
        .parse(|c| {
            let element = c.args.bytes(3);
            c.one(Action::call(&REMOVE, &[c.number(2)?], [element]))
        }),
    command("lset", "1.0.0", 4, "list", "write denyoom")
        .on(ONE_KEY, Access::WRITE, "list")
        .about("Set the value of an element in a list by its index")
        .parse(|c| {
            let element = c.args.bytes(3);
            c.shaped(
                Action::call(&SET, &[c.number(2)?], [element]),
                Shape::Indexed,
            )
        }),
    command("ltrim", "1.0.0", 4, "list", "write")
        .on(ONE_KEY, Access::WRITE, "list")
        .about("Trim a list to the specified range")
        .parse(|c| {
            let range = [c.number(2)?, c.number(3)?];
            c.one(Action::call(&TRIM, &range, Vec::new()))
        }),
    command("rpop", "1.0.0", -2, "list", "write fast")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Remove and get the last elements in a list")
        .parse(|c| pop(c, &POP_RIGHT)),
    command("rpoplpush", "1.2.0", 3, "list", "write denyoom")
        .on(TWO_KEYS, MOVES, "list")
        .about("Remove the last element in a list, prepend it to another list and return it")
        .parse(|c| move_now(c, (ListSide::Right, ListSide::Left))),
    command("rpush", "1.0.0", -3, "list", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Append one or multiple elements to a list")
        .parse(|c| push(c, ListSide::Right, false)),
    command("rpushx", "2.2.0", -3, "list", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "list")
        .about("Append an element to a list, only if the list exists")
        .parse(|c| push(c, ListSide::Right, true)),
];

const MOVES: Access = Access::Pair(Rights::BOTH, Rights::WRITE);

pub(crate) static PROCEDURES: &[&Procedure] = &[
    &PUSH_LEFT,
    &PUSH_RIGHT,
    &POP_LEFT,
    &POP_RIGHT,
    &LENGTH,
    &INDEX,
    &RANGE,
    &SET,
    &INSERT,
    &REMOVE,
    &TRIM,
    &FIND,
    &SCAN,
];

pub(crate) static JOINTS: &[&Joint] = &[
    &POP_FIRST_LEFT,
    &POP_FIRST_RIGHT,
    &MOVE_LEFT_LEFT,
    &MOVE_LEFT_RIGHT,
    &MOVE_RIGHT_LEFT,
    &MOVE_RIGHT_RIGHT,
];

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListSide {
    Left,
    Right,
}

/// The first of these numbers.
const NUMBER: u16 = 180;

/// Puts elements, one after the other in a run of bytes, before the first one; only if the key
/// exists, if the number is 1. → `Int`, how many there are
pub(super) static PUSH_LEFT: Procedure = pushing(NUMBER, "list push left")
    .told_as("lpush")
    .on_held(|inputs, found, cx| pushed(inputs, found, cx, ListSide::Left));

/// The same behind the last one.
pub(super) static PUSH_RIGHT: Procedure = pushing(NUMBER + 1, "list push right")
    .told_as("rpush")
    .on_held(|inputs, found, cx| pushed(inputs, found, cx, ListSide::Right));

/// Takes the first elements out, as many as the number says. → `Many`, or `Nil`: the key is
/// absent. If the number is negative, it takes one. → `Bulk` or `Nil`
pub(super) static POP_LEFT: Procedure = procedure(NUMBER + 2, "list pop left", Kind::List, (1, 0))
    .costs(takes)
    .told_as("lpop")
    .on_held(|inputs, found, cx| popped(inputs, found, cx, ListSide::Left));

/// The same of the last ones, the last one first.
pub(super) static POP_RIGHT: Procedure =
    procedure(NUMBER + 3, "list pop right", Kind::List, (1, 0))
        .costs(takes)
        .told_as("rpop")
        .on_held(|inputs, found, cx| popped(inputs, found, cx, ListSide::Right));

/// How many elements there are. → `Int`
pub(super) static LENGTH: Procedure = procedure(NUMBER + 4, "list length", Kind::List, (0, 0))
    .on_held(|_, found, cx| (count(ListView::of(found, cx).len()), KeyChange::None));

/// The element at an index, from the end if it is negative. → `Bulk` or `Nil`
pub(super) static INDEX: Procedure = procedure(NUMBER + 5, "list index", Kind::List, (1, 0))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let list = ListView::of(found, cx);
        let element = index(inputs.numbers[0], list.len()).and_then(|at| list.from(at).next());
        (element.map_or(Outcome::Nil, bulk), KeyChange::None)
    });

/// The elements from an index to another one, as `INDEX` counts. → `Bulk`, one after the other, or
/// `Nil`: there are none
pub(super) static RANGE: Procedure = procedure(NUMBER + 6, "list range", Kind::List, (2, 0))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let list = ListView::of(found, cx);
        let range = span(inputs, list.len());
        if range.is_empty() {
            return (Outcome::Nil, KeyChange::None);
        }
        let (mut all, most) = (Vec::new(), answer_max(cx));
        for element in list.from(range.start).take(range.len()) {
            put(&mut all, element);
            if all.len() > most {
                return (Outcome::Failed(Failure::TooLarge), KeyChange::None);
            }
        }
        (Outcome::Bulk(Value::from(&all[..])), KeyChange::None)
    });

/// Gives the element at an index another value. → `Ok`, `Nil`: the key is absent, or `Int` 0: there
/// is no such element
pub(super) static SET: Procedure = procedure(NUMBER + 7, "list set", Kind::List, (1, 1))
    .costs(stored)
    .told_as("lset")
    .on_held(|inputs, found, cx| {
        let list = ListView::of(found, cx);
        match index(inputs.numbers[0], list.len()) {
            _ if found.entry.is_none() => (Outcome::Nil, KeyChange::None),
            None => (Outcome::Int(0), KeyChange::None),
            Some(at) => {
                let item = item(&inputs.bytes[0]);
                edited(list, cx, Outcome::Ok, &[comes(at..at + 1, &item)])
            }
        }
    });

/// Puts an element before (0) or behind (1) the first one with this value. The runs: that value,
/// and the element. → `Int`, how many there are, 0: the key is absent, -1: there is no such value
static INSERT: Procedure = procedure(NUMBER + 8, "list insert", Kind::List, (1, 2))
    .costs(|inputs| Footprint {
        given: inputs.given(),
        ..stores(&inputs.bytes[1])
    })
    .told_as("linsert")
    .on_held(|inputs, found, cx| {
        if found.entry.is_none() {
            return (Outcome::Int(0), KeyChange::None);
        }
        let (list, pivot) = (ListView::of(found, cx), &inputs.bytes[0]);
        let Some(at) = list.from(0).position(|element| element == &pivot[..]) else {
            return (Outcome::Int(-1), KeyChange::None);
        };
        let at = at + usize::from(inputs.numbers[0] == 1);
        let outcome = count(list.len() + 1);
        let item = item(&inputs.bytes[1]);
        edited(list, cx, outcome, &[comes(at..at, &item)])
    });

/// Removes elements with a value, the first ones up to a number; the last ones, if it is negative;
/// all, if it is 0. → `Int`, how many
pub(super) static REMOVE: Procedure = procedure(NUMBER + 9, "list remove", Kind::List, (1, 1))
    .costs(stored)
    .told_as("lrem")
    .on_held(|inputs, found, cx| {
        let (list, value) = (ListView::of(found, cx), &inputs.bytes[0]);
        let wanted = match inputs.numbers[0] {
            0 => usize::MAX,
            wanted => usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX),
        };
        let same = |(_, element): &(usize, &[u8])| *element == &value[..];
        let mut gone: Vec<usize> = if inputs.numbers[0] < 0 {
            let last = list.len().saturating_sub(1);
            let all = list.back_from(last).enumerate().filter(same).take(wanted);
            all.map(|(n, _)| last.saturating_sub(n)).collect()
        } else {
            let all = list.from(0).enumerate().filter(same).take(wanted);
            all.map(|(n, _)| n).collect()
        };
        gone.sort_unstable();
        let cuts: Vec<_> = gone
            .iter()
            .map(|at| ListCut::removal(*at..at + 1))
            .collect();
        edited(list, cx, count(gone.len()), &cuts)
    });

/// Keeps the elements from an index to another one, as `INDEX` counts. → `Ok`
pub(super) static TRIM: Procedure = procedure(NUMBER + 10, "list trim", Kind::List, (2, 0))
    .costs(|_| WRITES)
    .told_as("ltrim")
    .on_held(|inputs, found, cx| {
        let list = ListView::of(found, cx);
        let (kept, length) = (span(inputs, list.len()), list.len());
        if kept.is_empty() {
            let change = found.entry.map_or(KeyChange::None, |_| KeyChange::Delete);
            return (Outcome::Ok, change);
        }
        let gone = [0..kept.start, kept.end..length];
        let gone = gone.into_iter().filter(|range| !range.is_empty());
        let cuts: Vec<_> = gone.map(ListCut::removal).collect();
        edited(list, cx, Outcome::Ok, &cuts)
    });

/// Where an element is. The numbers: which of those with this value it begins with (from the end if
/// negative), how many it answers (0: all; -1: one, alone), and how many elements it looks at (0:
/// all). → `Many` of `Int`; `Int` or `Nil`
static FIND: Procedure =
    procedure(NUMBER + 11, "list find", Kind::List, (3, 1)).on_held(|inputs, found, cx| {
        let [rank, wanted, looked] = inputs.numbers[..] else {
            return (Outcome::Failed(Failure::NotAnInteger), KeyChange::None);
        };
        let (list, value) = (ListView::of(found, cx), &inputs.bytes[0]);
        let most = |number: i64| match usize::try_from(number) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(number) => number,
        };
        let skipped = usize::try_from(rank.unsigned_abs().saturating_sub(1)).unwrap_or(usize::MAX);
        let wanted_count = if wanted < 0 { 1 } else { most(wanted) };
        let same = |(_, element): &(usize, &[u8])| *element == &value[..];
        let last = list.len().saturating_sub(1);
        let places: Vec<Outcome> = if rank < 0 {
            let all = list.back_from(last).take(most(looked)).enumerate();
            let all = all.filter(same).skip(skipped).take(wanted_count);
            all.map(|(n, _)| count(last.saturating_sub(n))).collect()
        } else {
            let all = list.from(0).take(most(looked)).enumerate();
            let all = all.filter(same).skip(skipped).take(wanted_count);
            all.map(|(n, _)| count(n)).collect()
        };
        let outcome = if wanted < 0 {
            places.into_iter().next().unwrap_or(Outcome::Nil)
        } else {
            Outcome::Many(places)
        };
        (outcome, KeyChange::None)
    });

/// Elements from a place on, for programs that show them. The numbers: the place, how many, and 0.
/// The run counts for nothing. → `Keys`
static SCAN: Procedure = procedure(NUMBER + 12, "list scan", Kind::List, (3, 1))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let list = ListView::of(found, cx);
        let at = |n: i64| usize::try_from(n).unwrap_or(0);
        let (from, wanted) = (at(inputs.numbers[0]), at(inputs.numbers[1]));
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for element in list.from(from).take(wanted) {
            bytes += element.len();
            keys.push(Bytes::copy_from_slice(element));
            if bytes > SCAN_BYTES_MAX {
                break;
            }
        }
        let next = from.saturating_add(keys.len());
        let next = if next < list.len() { next as u64 } else { 0 };
        (Outcome::Keys { next, keys }, KeyChange::None)
    });

/// A page of elements is not larger than that, unless one of them is.
const SCAN_BYTES_MAX: usize = 512 << 10;

const fn pushing(number: u16, name: &'static str) -> Procedure {
    procedure(number, name, Kind::List, (1, 1)).costs(stored)
}

fn stored(inputs: &Inputs) -> Footprint {
    stores(&inputs.bytes[0])
}

fn takes(_: &Inputs) -> Footprint {
    Footprint {
        answers_value: true,
        looks_up: true,
        ..WRITES
    }
}

fn bulk(element: &[u8]) -> Outcome {
    Outcome::Bulk(Value::from(element))
}

/// The place of an index, from the end if it is negative. `None`: there is no such element.
fn index(number: i64, length: usize) -> Option<usize> {
    let at = if number < 0 {
        length.checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?
    } else {
        usize::try_from(number).ok()?
    };
    (at < length).then_some(at)
}

/// The places between two indexes.
fn span(inputs: &Inputs, length: usize) -> Range<usize> {
    let place = |number: i64| {
        let size = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        if number < 0 {
            length.checked_sub(size)
        } else {
            Some(size)
        }
    };
    let first = place(inputs.numbers[0]).unwrap_or(0).min(length);
    let end = place(inputs.numbers[1]).map_or(0, |last| last.saturating_add(1).min(length));
    first..end.max(first)
}

/// An element, as it lies in a run, comes in the place of others.
fn comes(gone: Range<usize>, item: &[u8]) -> ListCut<'_> {
    ListCut {
        gone,
        count: 1,
        items: item,
    }
}

fn edited(
    list: ListView<'_>,
    cx: &RunContext,
    outcome: Outcome,
    cuts: &[ListCut<'_>],
) -> (Outcome, KeyChange) {
    match list.edited(cuts, cx) {
        Ok(change) => (outcome, change),
        Err(failure) => (Outcome::Failed(failure), KeyChange::None),
    }
}

fn pushed(
    inputs: &Inputs,
    found: FoundKey<'_>,
    cx: &RunContext,
    side: ListSide,
) -> (Outcome, KeyChange) {
    let (list, items) = (ListView::of(found, cx), &inputs.bytes[0]);
    if inputs.numbers[0] == 1 && found.entry.is_none() {
        return (Outcome::Int(0), KeyChange::None);
    }
    let at = match side {
        ListSide::Left => 0,
        ListSide::Right => list.len(),
    };
    let comes = Items(items).count();
    let cut = ListCut {
        gone: at..at,
        count: comes,
        items,
    };
    edited(list, cx, count(list.len() + comes), &[cut])
}

fn popped(
    inputs: &Inputs,
    found: FoundKey<'_>,
    cx: &RunContext,
    side: ListSide,
) -> (Outcome, KeyChange) {
    if found.entry.is_none() {
        return (Outcome::Nil, KeyChange::None);
    }
    let list = ListView::of(found, cx);
    let length = list.len();
    let Ok(wanted) = usize::try_from(inputs.numbers[0]) else {
        return popped_one(list, length, cx, side);
    };
    let wanted = wanted.min(length);
    let (mut taken, mut bytes) = (Vec::new(), 0);
    let mut take = |element: &[u8]| {
        bytes += element.len();
        taken.push(bulk(element));
        bytes <= answer_max(cx)
    };
    let (fits, gone) = match side {
        ListSide::Left => (list.from(0).take(wanted).all(&mut take), 0..wanted),
        ListSide::Right => {
            let last = length.saturating_sub(1);
            let fits = list.back_from(last).take(wanted).all(&mut take);
            (fits, length - wanted..length)
        }
    };
    if !fits {
        return (Outcome::Failed(Failure::TooLarge), KeyChange::None);
    }
    let outcome = Outcome::Many(taken);
    if gone.is_empty() {
        return (outcome, KeyChange::None);
    }
    edited(list, cx, outcome, &[ListCut::removal(gone)])
}

fn popped_one(
    list: ListView<'_>,
    length: usize,
    cx: &RunContext,
    side: ListSide,
) -> (Outcome, KeyChange) {
    let element = match side {
        ListSide::Left => list.from(0).next(),
        ListSide::Right => list.last(),
    };
    let at = match side {
        ListSide::Left => 0,
        ListSide::Right => length.saturating_sub(1),
    };
    match element {
        None => (Outcome::Nil, KeyChange::None),
        Some(element) if element.len() > answer_max(cx) => {
            (Outcome::Failed(Failure::TooLarge), KeyChange::None)
        }
        Some(element) => {
            let cut = ListCut::removal(at..at + 1);
            edited(list, cx, bulk(element), &[cut])
        }
    }
}

/// Takes elements out of the first key that has any, as many as the number says. The runs are the
/// further keys. → `Many`, the key and its elements, or `Nil`
static POP_FIRST_LEFT: Joint = Joint {
    number: NUMBER + 16,
    name: "list pop first left",
    event: "lpop",
    // The last element leaves as one that is taken, and then the key is deleted.
    event_of_others: Some("lpop"),
    kind: Some(Kind::List),
    level: SORTED,
    numbers: 1,
    others: |runs| Some((0..runs, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        answers_value: true,
        ..WRITES
    },
    run: |inputs, key, rows| pop_first(inputs, key, rows, &POP_LEFT),
    ..JOINT
};

/// The same of the last ones.
static POP_FIRST_RIGHT: Joint = Joint {
    number: NUMBER + 17,
    name: "list pop first right",
    event: "rpop",
    event_of_others: Some("rpop"),
    run: |inputs, key, rows| pop_first(inputs, key, rows, &POP_RIGHT),
    ..POP_FIRST_LEFT
};

/// Takes the first element out, and puts it before the first one of another list. The run is the
/// other key. → `Bulk` or `Nil`
pub(super) static MOVE_LEFT_LEFT: Joint = Joint {
    number: NUMBER + 18,
    name: "list move left left",
    event: "lpop",
    event_of_others: Some("lpush"),
    kind: Some(Kind::List),
    level: SORTED,
    others: |runs| (runs == 1).then_some((0..1, 1)),
    footprint: |_| Footprint {
        answers_value: true,
        ..WRITES
    },
    run: |inputs, key, rows| moved(key, (&inputs.bytes[0], rows), &POP_LEFT, &PUSH_LEFT),
    ..JOINT
};

/// The same, behind the last one.
pub(super) static MOVE_LEFT_RIGHT: Joint = Joint {
    number: NUMBER + 19,
    name: "list move left right",
    event_of_others: Some("rpush"),
    run: |inputs, key, rows| moved(key, (&inputs.bytes[0], rows), &POP_LEFT, &PUSH_RIGHT),
    ..MOVE_LEFT_LEFT
};

/// The last element, before the first one.
pub(super) static MOVE_RIGHT_LEFT: Joint = Joint {
    number: NUMBER + 20,
    name: "list move right left",
    event: "rpop",
    run: |inputs, key, rows| moved(key, (&inputs.bytes[0], rows), &POP_RIGHT, &PUSH_LEFT),
    ..MOVE_LEFT_LEFT
};

/// The last element, behind the last one.
pub(super) static MOVE_RIGHT_RIGHT: Joint = Joint {
    number: NUMBER + 21,
    name: "list move right right",
    event: "rpop",
    event_of_others: Some("rpush"),
    run: |inputs, key, rows| moved(key, (&inputs.bytes[0], rows), &POP_RIGHT, &PUSH_RIGHT),
    ..MOVE_LEFT_LEFT
};

fn moved(
    (map, key): (MapId, &[u8]),
    (to, rows): (&[u8], &mut Rows<'_>),
    pop: &'static Procedure,
    push: &'static Procedure,
) -> Outcome {
    let Some(entry) = rows.find(map, key) else {
        return Outcome::Nil;
    };
    let is_other = |kind: Kind| kind != Kind::List;
    let of_other = rows
        .find(map, to)
        .is_some_and(|entry| is_other(entry.kind()));
    if is_other(entry.kind()) || of_other {
        return Outcome::Failed(Failure::WrongType);
    }
    let cx = *rows.cx();
    if key == to {
        let list = ListView::of(rows.held(map, key), &cx);
        if list.len() == 1 {
            // It would go for a moment, and its deadline with it.
            return list.from(0).next().map_or(Outcome::Nil, bulk);
        }
    }
    let takes = if broken(&mutant::MOVES_AND_KEEPS) {
        &INDEX
    } else {
        pop
    };
    let element = rows.step(map, key, &Action::call(takes, &[-1], Vec::new()));
    let Outcome::Bulk(bytes) = &element else {
        return element;
    };
    match rows.step(map, to, &Action::call(push, &[0], [item(bytes)])) {
        Outcome::Failed(failure) => Outcome::Failed(failure),
        _ => element,
    }
}

fn side_of(word: &[u8]) -> Option<ListSide> {
    match word {
        left if is(left, "LEFT") => Some(ListSide::Left),
        right if is(right, "RIGHT") => Some(ListSide::Right),
        _ => None,
    }
}

fn side(c: CommandCall<'_>, at: usize) -> Result<ListSide, ErrorText> {
    side_of(c.args.get(at)).ok_or_else(|| SYNTAX.into())
}

/// An element as it lies in a run.
pub(super) fn item(element: &[u8]) -> Bytes {
    packed(std::iter::once(element))
}

fn push(c: CommandCall<'_>, side: ListSide, exists: bool) -> Parsed {
    let (procedure, items) = match side {
        ListSide::Left => {
            let last_first = (2..c.args.len()).rev().map(|at| c.args.get(at));
            (&PUSH_LEFT, packed(last_first))
        }
        ListSide::Right => (&PUSH_RIGHT, packed(c.args_from(2))),
    };
    c.one(Action::call(procedure, &[i64::from(exists)], [items]))
}

fn pop(c: CommandCall<'_>, procedure: &'static Procedure) -> Parsed {
    let (wanted, shape) = match c.args.len() {
        2 => (-1, Shape::Plain),
        3 => (positive(c.args.get(2))?, Shape::Taken),
        _ => return Err(wrong_arity(c.name)),
    };
    c.shaped(Action::call(procedure, &[wanted], Vec::new()), shape)
}

fn insert(c: CommandCall<'_>) -> Parsed {
    let behind = match c.args.get(2) {
        before if is(before, "BEFORE") => 0,
        after if is(after, "AFTER") => 1,
        _ => return Err(SYNTAX.into()),
    };
    let runs = vec![c.args.bytes(3), c.args.bytes(4)];
    c.one(Action::call(&INSERT, &[behind], runs))
}

fn find(c: CommandCall<'_>) -> Parsed {
    let (mut rank, mut wanted, mut looked) = (1, -1, 0);
    let mut at = 3;
    while at < c.args.len() {
        let option = c.args.get(at);
        if at + 1 >= c.args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "RANK") {
            rank = c.number(at + 1)?;
            if rank == i64::MIN {
                return Err(
                    "ERR value is out of range, value must between -9223372036854775807 and \
                     9223372036854775807"
                        .into(),
                );
            }
            if rank == 0 {
                return Err(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                            the second ... or use negative to start from the end of the list"
                        .into(),
                );
            }
        } else if is(option, "COUNT") {
            wanted = positive(c.args.get(at + 1)).map_err(|_| "ERR COUNT can't be negative")?;
        } else if is(option, "MAXLEN") {
            looked = positive(c.args.get(at + 1)).map_err(|_| "ERR MAXLEN can't be negative")?;
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let element = c.args.bytes(2);
    c.one(Action::call(&FIND, &[rank, wanted, looked], [element]))
}

/// Pops that wait, as the joints do.
static WAIT_LEFT: PopKind = PopKind {
    take: &POP_FIRST_LEFT,
    wait: &LENGTH,
    put_back: |taken| put_back(taken, ListSide::Left),
};
static WAIT_RIGHT: PopKind = PopKind {
    take: &POP_FIRST_RIGHT,
    put_back: |taken| put_back(taken, ListSide::Right),
    ..WAIT_LEFT
};

/// Moves that wait. What was taken is in the other list, so it is not put back.
static MOVES_THAT_WAIT: [PopKind; 4] = [
    moving(&MOVE_LEFT_LEFT),
    moving(&MOVE_LEFT_RIGHT),
    moving(&MOVE_RIGHT_LEFT),
    moving(&MOVE_RIGHT_RIGHT),
];

const fn moving(take: &'static Joint) -> PopKind {
    PopKind {
        take,
        wait: &LENGTH,
        put_back: |_| None,
    }
}

fn waiting_at(word: &[u8]) -> Option<&'static PopKind> {
    Some(match side_of(word)? {
        ListSide::Left => &WAIT_LEFT,
        ListSide::Right => &WAIT_RIGHT,
    })
}

const fn waiting_move((from, to): (ListSide, ListSide)) -> &'static PopKind {
    &MOVES_THAT_WAIT[2 * from as usize + to as usize]
}

/// Gives elements that were popped back to the end of their list.
fn put_back(taken: &Outcome, side: ListSide) -> Option<(Bytes, Action)> {
    let Outcome::Many(parts) = taken else {
        return None;
    };
    let [Outcome::Bulk(key), Outcome::Many(elements)] = &parts[..] else {
        return None;
    };
    let mut all: Vec<&[u8]> = elements.iter().filter_map(bytes_of).collect();
    let push = match side {
        ListSide::Left => &PUSH_LEFT,
        ListSide::Right => {
            all.reverse();
            &PUSH_RIGHT
        }
    };
    let action = Action::call(push, &[0], [packed(all.into_iter())]);
    Some((Bytes::copy_from_slice(key), action))
}

fn bytes_of(outcome: &Outcome) -> Option<&[u8]> {
    match outcome {
        Outcome::Bulk(value) => Some(value),
        _ => None,
    }
}

/// The pop that a call of `POP_FIRST_LEFT` or `POP_FIRST_RIGHT` is, key by key, or the move.
pub(super) fn pop_of(call: &ProcedureCall, first: &Bytes) -> Option<BlockingPop> {
    BlockingPop::of_call(call, first, (&[&WAIT_LEFT, &WAIT_RIGHT], Shape::Taken))
        .or_else(|| move_of(call, first))
}

/// The move that a call of `MOVE_LEFT_LEFT` and its like is. It does not wait.
fn move_of(call: &ProcedureCall, from: &Bytes) -> Option<BlockingPop> {
    let is_it = |kind: &&PopKind| kind.take.number == call.called.number();
    let takes = MOVES_THAT_WAIT.iter().find(is_it)?;
    Some(BlockingPop {
        shape: Shape::Plain,
        to: Some(call.inputs.bytes.first()?.clone()),
        ..BlockingPop::of_one(vec![from.clone()], None, takes)
    })
}

/// The ends of two lists between which this kind of pops moves an element.
pub(super) fn sides_of(takes: &PopKind) -> Option<(ListSide, ListSide)> {
    use ListSide::{Left, Right};
    let all = [(Left, Left), (Left, Right), (Right, Left), (Right, Right)];
    all.into_iter().find(|sides| waiting_move(*sides) == takes)
}

fn move_now(c: CommandCall<'_>, sides: (ListSide, ListSide)) -> Parsed {
    let take = waiting_move(sides).take;
    c.one(Action::call(take, &[], [c.args.bytes(2)]))
}

/// Moves an element, or waits for one as long as the argument at this place says.
fn move_or_wait(c: CommandCall<'_>, sides: (ListSide, ListSide), at: usize) -> Parsed {
    Ok(ParsedRequest::Pop(Box::new(BlockingPop {
        shape: Shape::Plain,
        to: Some(c.args.bytes(2)),
        ..BlockingPop::of_one(vec![c.args.bytes(1)], timeout(c, at)?, waiting_move(sides))
    })))
}
