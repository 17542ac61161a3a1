//! `SORT`: the elements of a list, a set or a sorted set in order, or what other keys hold for
//! them.
//!
//! A pattern (`BY`, `GET`) names a key for each element. The keys that it may name must be in the
//! partition of the key that is sorted: there is one partition, or the pattern has the same
//! `{tag}`. Redis Cluster refuses others, too.

use super::call::CommandCall;
use super::collections::ITEM_OVERHEAD;
use super::description::key_and_stored;
use super::reply_tree::ReplyTree;
use super::rows::{KeyScope, Rows};
use super::sorted_ranges::Ordered;
use super::together::{stores_gathered, stores_result};
use super::{Access, Description, ONE_KEY, ParseFn, Parsed, SYNTAX, Shape, command, is};
use crate::command::operation::Action;
use crate::command::procedure::{Inputs, JOINT, Joint, count, values};
use crate::store::FoundKey;
use crate::store::collection::{self, CollectionView, UnpackedItems};
use crate::store::run_context::RunContext;
use crate::store::runs::{ListView, list_of};
use crate::value::entry::Entry;
use crate::value::items::{Items, packed, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::value::types::sorted_set::parse_score;
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::STRINGS_TOGETHER;
use std::cmp::Ordering;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("sort", "1.0.0", -2, "generic", "write denyoom movablekeys")
        .on(key_and_stored(2), Access::Sorting, CATEGORIES)
        .about("Sort the elements in a list, set or sorted set")
        .parse(|c| sort(c, true)),
    command("sort_ro", "7.0.0", -2, "generic", "readonly movablekeys")
        .on(ONE_KEY, Access::Sorting, CATEGORIES)
        .about("Sort the elements in a list, set or sorted set. Read-only variant of SORT.")
        .parse(|c| sort(c, false)),
];

const CATEGORIES: &str = "set sortedset list dangerous";

pub(crate) static JOINTS: &[&Joint] = &[&SORT, &STORE_SORTED, &STORE];

/// The first of these numbers.
const NUMBER: u16 = 307;

/// The elements of a key in order. The numbers: flags, how many are left out, how many there are at
/// most (negative: all), and whether they are to be stored (1). The runs: the pattern by which they
/// are sorted, and those of what is answered, one after the other. → `Many`, or a tree: an error
pub(super) static SORT: Joint = Joint {
    number: NUMBER,
    name: "sort",
    level: STRINGS_TOGETHER,
    numbers: 4,
    others: |runs| (runs == 2).then_some((0..0, 1)),
    footprint: values,
    run: |inputs, key, rows| match sorted(inputs, key, rows) {
        Ok(items) => {
            let item = |item: Option<Bytes>| match item {
                Some(item) => Outcome::Bulk(Value::from(&item[..])),
                None if inputs.numbers[3] == 1 => Outcome::Bulk(Value::from(&b""[..])),
                None => Outcome::Nil,
            };
            Outcome::Many(items.into_iter().map(item).collect())
        }
        Err(refused) => refused,
    },
    ..JOINT
};

/// Gives the key a list of the elements of another one in order; deletes it if there are none. The
/// numbers and runs are those of `SORT` without the last number, and the other key. → `Int`, how
/// many, or a tree: an error
pub(super) static STORE_SORTED: Joint = Joint {
    number: NUMBER + 1,
    name: "store sorted",
    event: "sortstore",
    level: STRINGS_TOGETHER,
    numbers: 3,
    others: |runs| (runs == 3).then_some((2..3, 1)),
    footprint: stores_result,
    run: |inputs, key, rows| match sorted(inputs, (key.0, &inputs.bytes[2]), rows) {
        Ok(items) => {
            let items = items.iter().map(|item| item.as_deref().unwrap_or_default());
            store(key, &packed(items), rows)
        }
        Err(refused) => refused,
    },
    ..JOINT
};

/// The same with elements of another partition, which were sorted there: the run.
pub(super) static STORE: Joint = Joint {
    number: NUMBER + 2,
    name: "store gathered list",
    event: "sortstore",
    kind: Some(Kind::List),
    level: STRINGS_TOGETHER,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    footprint: stores_gathered,
    run: |inputs, key, rows| store(key, &inputs.bytes[0], rows),
    ..JOINT
};

fn store((map, key): (MapId, &[u8]), elements: &[u8], rows: &mut Rows<'_>) -> Outcome {
    if elements.is_empty() {
        rows.step(map, key, &Action::Delete);
        return Outcome::Int(0);
    }
    if elements.len() > rows.value_bytes_max() {
        return Outcome::Failed(Failure::TooLarge);
    }
    match list_of(elements, rows.cx()) {
        Ok(change) => {
            // An overdue one is gone first.
            rows.find(map, key);
            rows.replace((map, key), change);
            count(Items(elements).count())
        }
        Err(failure) => Outcome::Failed(failure),
    }
}

/// What is asked for: bits of the first number.
const FROM_END: i64 = 1;
/// By bytes, and not by numbers.
const BY_BYTES: i64 = 2;
/// By what a pattern names.
const BY_PATTERN: i64 = 4;
/// As they lie.
const UNSORTED: i64 = 8;

const NOT_NUMBERS: &str = "ERR One or more scores can't be converted into double";

/// How elements are sorted, and which of them are wanted.
#[derive(Debug, Clone, Copy)]
struct SortOrder {
    flags: i64,
    skipped: i64,
    most: i64,
}

impl SortOrder {
    const fn has(self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// Which of `length` elements are wanted, as Redis counts them.
    fn wanted(self, length: usize) -> std::ops::Range<usize> {
        let skipped = usize::try_from(self.skipped.max(0)).unwrap_or(usize::MAX);
        let begin = skipped.min(length);
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        begin..begin.saturating_add(most).min(length)
    }

    fn compare(self, one: &SortItem, other: &SortItem) -> Ordering {
        let order = if !self.has(BY_BYTES) {
            let order = one.score.total_cmp(&other.score);
            order.then_with(|| one.element.cmp(&other.element))
        } else {
            one.by.cmp(&other.by)
        };
        if self.has(FROM_END) {
            order.reverse()
        } else {
            order
        }
    }
}

/// An element, and what it is sorted by.
#[derive(Debug)]
struct SortItem {
    element: Bytes,
    score: f64,
    by: Option<Bytes>,
}

/// What is answered for the wanted elements, in order.
///
/// # Errors
/// What is answered in its place.
fn sorted(
    inputs: &Inputs,
    (map, key): (MapId, &[u8]),
    rows: &mut Rows<'_>,
) -> Result<Vec<Option<Bytes>>, Outcome> {
    let [flags, skipped, most, ..] = inputs.numbers[..] else {
        return Err(Outcome::Failed(Failure::NotAnInteger));
    };
    let mut order = SortOrder {
        flags,
        skipped,
        most,
    };
    let (cx, scope) = (*rows.cx(), rows.scope());
    let by = KeyPattern::of(&inputs.bytes[0]);
    let by = by.filter(|_| order.has(BY_PATTERN) && !order.has(UNSORTED));
    if by.as_ref().is_some_and(|by| !by.stays(map, scope)) {
        return Err(refused("BY"));
    }
    let mut gets = Vec::new();
    for pattern in Items(&inputs.bytes[1]) {
        let get = SortAnswer::of(pattern);
        if let SortAnswer::Key(pattern) = &get
            && !pattern.stays(map, scope)
        {
            return Err(refused("GET"));
        }
        gets.push(get);
    }
    let held = rows.seen(map, key);
    // A set has no order to keep, so it is sorted.
    if held.kind() == Kind::Set && order.has(UNSORTED) {
        order.flags = order.flags & !UNSORTED | BY_BYTES;
    }
    let mut items = elements_of(held, order, &cx)?;
    if !order.has(UNSORTED) {
        for item in &mut items {
            let value = match &by {
                Some(by) => by
                    .find(&item.element, map, rows)
                    .map_err(|()| refused("BY"))?,
                None => Some(item.element.clone()),
            };
            if order.has(BY_BYTES) {
                item.by = value;
            } else if let Some(value) = value {
                let score = number(&value).ok_or_else(|| ReplyTree::error(NOT_NUMBERS))?;
                item.score = score;
            }
            if !cx.budget.sort() {
                return Err(Outcome::Failed(Failure::TooMuchWork));
            }
        }
        items.sort_by(|one, other| order.compare(one, other));
        let wanted = order.wanted(items.len());
        items.truncate(wanted.end);
        items.drain(..wanted.start);
    }
    let (mut answer, mut bytes) = (Vec::new(), 0);
    let mut put = |item: Option<Bytes>| {
        bytes += item.as_ref().map_or(0, Bytes::len) + ITEM_OVERHEAD;
        answer.push(item);
        bytes <= collection::answer_max(&cx)
    };
    for SortItem { element, .. } in items {
        let mut fits = true;
        for get in &gets {
            let found = match get {
                SortAnswer::Element => Some(element.clone()),
                SortAnswer::Nothing => None,
                SortAnswer::Key(pattern) => pattern
                    .find(&element, map, rows)
                    .map_err(|()| refused("GET"))?,
            };
            fits = put(found);
        }
        if gets.is_empty() {
            fits = put(Some(element));
        }
        if !fits {
            return Err(Outcome::Failed(Failure::TooLarge));
        }
    }
    Ok(answer)
}

/// All elements of what a key holds, or those that are wanted if they are not sorted.
///
/// # Errors
/// It holds something else, or they are too many.
fn elements_of(
    held: FoundKey<'_>,
    order: SortOrder,
    cx: &RunContext<'_>,
) -> Result<Vec<SortItem>, Outcome> {
    let mut items = Vec::new();
    let mut take = |element: &[u8]| {
        items.push(SortItem {
            element: Bytes::copy_from_slice(element),
            score: 0.0,
            by: None,
        });
        cx.budget.copy(element.len() + size_of::<SortItem>())
    };
    let wanted = |length: usize| {
        if order.has(UNSORTED) {
            order.wanted(length)
        } else {
            0..length
        }
    };
    // Only what lies in an order is answered from its end.
    let reverse = order.has(UNSORTED) && order.has(FROM_END);
    let place = |at: usize, length: usize| {
        if reverse {
            length.saturating_sub(at + 1)
        } else {
            at
        }
    };
    let fits = match held.entry.map(Entry::kind) {
        None => true,
        Some(Kind::List) => {
            let list = ListView::of(held, cx);
            let (length, wanted) = (list.len(), wanted(list.len()));
            let begin = place(wanted.start, length);
            if reverse {
                list.back_from(begin).take(wanted.len()).all(&mut take)
            } else {
                list.from(begin).take(wanted.len()).all(&mut take)
            }
        }
        Some(kind @ (Kind::Set | Kind::SortedSet)) => {
            let unpacked = UnpackedItems::new();
            let view = CollectionView::of(kind, held, &unpacked, cx);
            let view = view.ok_or(Outcome::Failed(Failure::WrongType))?;
            if kind == Kind::Set {
                view.pairs().all(|(member, _)| take(member))
            } else {
                let ordered = Ordered::of(view);
                let (length, wanted) = (ordered.len(), wanted(ordered.len()));
                let members = ordered.from(place(wanted.start, length), reverse);
                members.take(wanted.len()).all(|(member, _)| take(member))
            }
        }
        Some(_) => return Err(Outcome::Failed(Failure::WrongType)),
    };
    if fits {
        Ok(items)
    } else {
        Err(Outcome::Failed(Failure::TooMuchWork))
    }
}

/// The number that a text gives, as C reads it.
fn number(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    parse_score(text.trim_ascii_start()).map(|score| score + 0.0)
}

/// Redis's text if a pattern may name keys of other partitions.
fn refused(option: &str) -> Outcome {
    ReplyTree::error(&format!(
        "ERR {option} option of SORT denied in cluster mode when keys formed by the pattern may be \
         in different slots."
    ))
}

/// What is answered for an element.
#[derive(Debug)]
enum SortAnswer<'a> {
    Element,
    /// The pattern names no key.
    Nothing,
    Key(KeyPattern<'a>),
}

impl<'a> SortAnswer<'a> {
    fn of(pattern: &'a [u8]) -> Self {
        if pattern == b"#" {
            return Self::Element;
        }
        KeyPattern::of(pattern).map_or(Self::Nothing, Self::Key)
    }
}

/// A pattern that names a key, or a field of it, for each element.
#[derive(Debug)]
struct KeyPattern<'a> {
    before: &'a [u8],
    after: &'a [u8],
    field: Option<&'a [u8]>,
}

impl<'a> KeyPattern<'a> {
    /// `None`: an element has no place in it.
    fn of(pattern: &'a [u8]) -> Option<Self> {
        let star = pattern.iter().position(|byte| *byte == b'*')?;
        let (before, after) = (&pattern[..star], &pattern[star + 1..]);
        let arrow = after.windows(2).position(|two| two == b"->");
        let field = arrow
            .map(|at| &after[at + 2..])
            .filter(|field| !field.is_empty());
        let after = match (field, arrow) {
            (Some(_), Some(at)) => &after[..at],
            _ => after,
        };
        Some(Self {
            before,
            after,
            field,
        })
    }

    /// Whether all keys that it may name are in the partition.
    fn stays(&self, map: MapId, scope: KeyScope<'_>) -> bool {
        let tag = || {
            let open = self.before.iter().position(|byte| *byte == b'{')?;
            let length = self.before[open..].iter().position(|byte| *byte == b'}')?;
            // An empty one is none.
            (length > 1).then(|| &self.before[open..=open + length])
        };
        scope.is_all || tag().is_some_and(|tag| (scope.belongs)(map, tag))
    }

    /// What it names for an element.
    ///
    /// # Errors
    /// The key is in another partition.
    fn find(&self, element: &[u8], map: MapId, rows: &mut Rows<'_>) -> Result<Option<Bytes>, ()> {
        let key = [self.before, element, self.after].concat();
        if !(rows.scope().belongs)(map, &key) {
            return Err(());
        }
        let cx = *rows.cx();
        let held = rows.seen(map, &key);
        let own = |value: &[u8]| {
            cx.budget.copy(value.len());
            Bytes::copy_from_slice(value)
        };
        Ok(match (self.field, held.entry) {
            (None, Some(entry)) if entry.kind() == Kind::String => Some(own(entry.value())),
            (Some(field), Some(entry)) if entry.kind() == Kind::Hash => {
                let unpacked = UnpackedItems::new();
                let view = CollectionView::of(Kind::Hash, held, &unpacked, &cx);
                view.and_then(|view| view.get(field).map(|value| own(&view.shown(value))))
            }
            _ => None,
        })
    }
}

fn sort(c: CommandCall<'_>, stores: bool) -> Parsed {
    let (mut flags, mut limit, mut to) = (0, (0, -1), None);
    let (mut by, mut gets, mut at) = (Bytes::new(), Vec::new(), 2);
    while at < c.args.len() {
        let (option, left) = (c.args.get(at), c.args.len() - at - 1);
        match () {
            () if is(option, "ASC") => flags &= !FROM_END,
            () if is(option, "DESC") => flags |= FROM_END,
            () if is(option, "ALPHA") => flags |= BY_BYTES,
            () if is(option, "LIMIT") && left >= 2 => {
                limit = (c.number(at + 1)?, c.number(at + 2)?);
                at += 2;
            }
            () if stores && is(option, "STORE") && left >= 1 => {
                to = Some(at + 1);
                at += 1;
            }
            () if is(option, "BY") && left >= 1 => {
                by = c.args.bytes(at + 1);
                // What is the same for all elements sorts nothing.
                flags |= if by.contains(&b'*') {
                    BY_PATTERN
                } else {
                    UNSORTED
                };
                at += 1;
            }
            () if is(option, "GET") && left >= 1 => {
                put(&mut gets, c.args.get(at + 1));
                at += 1;
            }
            () => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let (numbers, gets) = ([flags, limit.0, limit.1, 0], Bytes::from(gets));
    match to {
        Some(to) => {
            let runs = vec![by, gets, c.args.bytes(1)];
            c.of_key(
                to,
                Action::call(&STORE_SORTED, &numbers[..3], runs),
                Shape::Tree,
            )
        }
        None => c.shaped(Action::call(&SORT, &numbers, vec![by, gets]), Shape::Tree),
    }
}
