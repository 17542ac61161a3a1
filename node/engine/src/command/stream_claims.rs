//! Commands on the pending entries of consumer groups: which there are, and who claims them
//! (`stream_groups`).

use super::reply_tree::ReplyTree;
use super::stream_groups::{SILENT, asking, gives, no_group, put_pending, since};
use super::streams::{
    failed, first_of_range, fits, last_of_range, put_entry, put_id, read, refused, strict_id,
};
use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, SYNTAX, Shape, command,
    is,
};
use crate::command::operation::Action;
use crate::command::procedure::{Inputs, Procedure, procedure, values};
use crate::mutant::{self, broken};
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::store::stream_view::{ALL_IDS, StreamEdit, StreamView};
use crate::value::entry::Entry;
use crate::value::integer::integer;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::stream::{PendingEntry, StreamId};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("xautoclaim", "6.2.0", -6, "stream", "write fast")
        .on(ONE_KEY, Access::BOTH, "stream")
        .about("Claim the pending entries of a consumer group that are idle")
        .parse(claim_idle),
    command("xclaim", "5.0.0", -6, "stream", "write fast")
        .on(ONE_KEY, Access::BOTH, "stream")
        .about("Claim pending entries of a consumer group for a consumer")
        .parse(claim),
    command("xpending", "5.0.0", -3, "stream", "readonly")
        .on(ONE_KEY, Access::READ, "stream")
        .about("Get the pending entries of a consumer group")
        .parse(pending),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[&CLAIM, &CLAIM_IDLE, &PENDING, &PENDING_RANGE];

/// The first of these numbers.
const NUMBER: u16 = 226;

/// Gives pending entries to a consumer. The numbers: how long they must have been idle, how their
/// time of delivery is given (0: not at all, 1: how long ago, 2: the time) and that time, how often
/// they were delivered (-1: as counted), 1 if entries become pending that are not, 1 if their ids
/// alone are answered, and an id that counts as delivered. The runs: the key, the group, the
/// consumer, and their ids. → a tree
static CLAIM: Procedure = procedure(NUMBER, "stream claim", Kind::Stream, (8, 4))
    .costs(gives)
    .told_as(SILENT)
    .on_held(claimed);

/// Gives idle pending entries to a consumer. The numbers: how long they must have been idle, the
/// id from which on they are looked for, how many, and 1 if their ids alone are answered. The runs:
/// the key, the group, and the consumer. → a tree
static CLAIM_IDLE: Procedure = procedure(NUMBER + 1, "stream claim idle", Kind::Stream, (5, 3))
    .costs(gives)
    .told_as(SILENT)
    .on_held(claimed_idle);

/// How many entries are pending, which, and of whom. The runs: the key, and the group. → a tree
static PENDING: Procedure = procedure(NUMBER + 2, "stream pending", Kind::Stream, (0, 2))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let (stream, group) = (StreamView::of(found, cx), &inputs.bytes[1]);
        if stream.group(group).is_none() {
            return refused(&no_group(&inputs.bytes[0], group));
        }
        let (mut tree, mut ids) = (ReplyTree::new(), None);
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (id, pending) in stream.all_pending(group, ALL_IDS) {
            *counts.entry(pending.consumer).or_default() += 1;
            let (first, _) = ids.unwrap_or((id, id));
            ids = Some((first, id));
        }
        tree.array(4);
        tree.count(counts.values().sum());
        if let Some((first, last)) = ids {
            put_id(&mut tree, first);
            put_id(&mut tree, last);
            tree.array(counts.len());
            for (consumer, count) in &counts {
                tree.array(2);
                tree.bulk(consumer);
                tree.bulk(count.to_string().as_bytes());
            }
        } else {
            tree.nil();
            tree.nil();
            tree.nil_array();
        }
        read(fits(&tree, cx).map(|()| tree))
    });

/// Pending entries with ids in a range. The numbers: how long they must have been idle, both ids,
/// how many, and 1 if they are those of one consumer. The runs: the key, the group, and the
/// consumer. → a tree
static PENDING_RANGE: Procedure =
    procedure(NUMBER + 3, "stream pending range", Kind::Stream, (7, 3))
        .costs(values)
        .on_held(|inputs, found, cx| {
            let [idle, ms, seq, to_ms, to_seq, wanted, of_one] = inputs.numbers[..] else {
                return failed(Failure::NotAnInteger);
            };
            let (stream, group) = (StreamView::of(found, cx), &inputs.bytes[1]);
            if stream.group(group).is_none() {
                return refused(&no_group(&inputs.bytes[0], group));
            }
            let ids = StreamId::of_numbers(ms, seq)..=StreamId::of_numbers(to_ms, to_seq);
            let of_consumer =
                |pending: &PendingEntry| of_one == 0 || pending.consumer == inputs.bytes[2][..];
            let found = stream
                .all_pending(group, ids)
                .filter(|(_, pending)| of_consumer(pending) && is_idle(pending, idle, cx));
            let (mut all, mut shown) = (ReplyTree::new(), 0);
            for (id, pending) in found.take(usize::try_from(wanted).unwrap_or(0)) {
                all.array(4);
                put_pending(&mut all, id, Some(&pending.consumer));
                all.int(since(pending.given_ms, cx));
                all.int(pending.times.cast_signed());
                shown += 1;
                if let Err(failure) = fits(&all, cx) {
                    return failed(failure);
                }
            }
            let mut tree = ReplyTree::new();
            tree.array(shown);
            tree.append(&all);
            (tree.outcome(), KeyChange::None)
        });

/// The most that `XAUTOCLAIM` looks at for each entry that it may claim.
const LOOKED_AT: usize = 10;
/// Redis's limit of what it may claim.
const CLAIMED_MAX: i64 = i64::MAX / 16;

fn is_idle(pending: &PendingEntry, least_ms: i64, cx: &RunContext) -> bool {
    since(pending.given_ms, cx) >= least_ms || broken(&mutant::CLAIMS_FROM_THE_BUSY)
}

fn claimed(inputs: &Inputs, found: FoundKey<'_>, cx: &RunContext) -> (Outcome, KeyChange) {
    let [idle, form, time, times, force, ids_only, ms, seq] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let [key, name, consumer_name, ids] = &inputs.bytes[..] else {
        return failed(Failure::NotAnInteger);
    };
    let (stream, mut edit) = (StreamView::of(found, cx), StreamEdit::default());
    let Some(mut group) = stream.group(name) else {
        return refused(&no_group(key, name));
    };
    let last = StreamId::of_numbers(ms, seq);
    if last > group.last {
        group.last = last;
        edit.put_group(name, group);
    }
    let now = cx.unix_ms;
    let given_ms = match form {
        1 => now.checked_add_signed(time.saturating_neg()),
        2 => u64::try_from(time).ok(),
        _ => None,
    };
    let given_ms = given_ms.map_or(now, |ms| ms.min(now));
    let mut consumer = asking(stream, name, consumer_name, cx);
    // An id may be given twice.
    let mut changed: BTreeMap<StreamId, Option<PendingEntry>> = BTreeMap::new();
    let (mut all, mut shown) = (ReplyTree::new(), 0);
    for id in StreamId::all(ids) {
        let known = changed.get(&id).cloned();
        let known = known.unwrap_or_else(|| stream.pending(name, id));
        let Some(row) = stream.entry(id) else {
            if known.is_some() {
                edit.delete_pending(name, id);
                changed.insert(id, None);
            }
            continue;
        };
        let mut pending = match known {
            Some(pending) if is_idle(&pending, idle, cx) => pending,
            None if force == 1 => PendingEntry {
                given_ms,
                times: 1,
                consumer: Vec::new(),
            },
            Some(_) | None => continue,
        };
        pending.times = match u64::try_from(times) {
            Ok(times) => times,
            Err(_) if ids_only == 1 => pending.times,
            Err(_) => pending.times.saturating_add(1),
        };
        pending.given_ms = given_ms;
        pending.consumer = consumer_name.to_vec();
        edit.put_pending(name, id, &pending);
        changed.insert(id, Some(pending));
        put_claimed(&mut all, (id, row), ids_only == 1);
        if let Err(failure) = fits(&all, cx) {
            return failed(failure);
        }
        shown += 1;
        consumer.active_ms = Some(now);
    }
    edit.put_consumer(name, consumer_name, consumer);
    let mut tree = ReplyTree::new();
    tree.array(shown);
    tree.append(&all);
    (tree.outcome(), edit.into_change(stream, cx))
}

fn put_claimed(tree: &mut ReplyTree, (id, row): (StreamId, &Entry), ids_only: bool) {
    if ids_only {
        put_id(tree, id);
    } else {
        put_entry(tree, id, row);
    }
}

fn claimed_idle(inputs: &Inputs, found: FoundKey<'_>, cx: &RunContext) -> (Outcome, KeyChange) {
    let [idle, ms, seq, wanted, ids_only] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let [key, name, consumer_name] = &inputs.bytes[..] else {
        return failed(Failure::NotAnInteger);
    };
    let (stream, mut edit) = (StreamView::of(found, cx), StreamEdit::default());
    if stream.group(name).is_none() {
        return refused(&no_group(key, name));
    }
    let mut consumer = asking(stream, name, consumer_name, cx);
    let mut left = usize::try_from(wanted).unwrap_or(0);
    let mut looks = left.saturating_mul(LOOKED_AT);
    let (mut all, mut shown, mut gone) = (ReplyTree::new(), 0, Vec::new());
    let mut pending = stream.all_pending(name, StreamId::of_numbers(ms, seq)..=StreamId::MAX);
    while looks > 0
        && left > 0
        && let Some((id, mut one)) = pending.next()
    {
        looks -= 1;
        let Some(row) = stream.entry(id) else {
            edit.delete_pending(name, id);
            gone.push(id);
            left -= 1;
            continue;
        };
        if !is_idle(&one, idle, cx) {
            continue;
        }
        one.given_ms = cx.unix_ms;
        one.times = one.times.saturating_add(u64::from(ids_only == 0));
        one.consumer = consumer_name.to_vec();
        edit.put_pending(name, id, &one);
        put_claimed(&mut all, (id, row), ids_only == 1);
        if let Err(failure) = fits(&all, cx) {
            return failed(failure);
        }
        (shown, left) = (shown + 1, left - 1);
        consumer.active_ms = Some(cx.unix_ms);
    }
    edit.put_consumer(name, consumer_name, consumer);
    let next = pending.next().map_or(StreamId::ZERO, |(id, _)| id);
    let mut tree = ReplyTree::new();
    tree.array(3);
    put_id(&mut tree, next);
    tree.array(shown);
    tree.append(&all);
    tree.array(gone.len());
    gone.iter().for_each(|id| put_id(&mut tree, *id));
    (tree.outcome(), edit.into_change(stream, cx))
}

/// The number at this place, with a text of its own if it is none.
fn named_number(c: CommandCall<'_>, at: usize, error: &'static str) -> Result<i64, ErrorText> {
    integer(c.args.get(at)).ok_or_else(|| error.into())
}

fn claim(c: CommandCall<'_>) -> Parsed {
    let idle = "ERR Invalid min-idle-time argument for XCLAIM";
    let idle = named_number(c, 4, idle)?.max(0);
    let mut ids = Vec::new();
    let mut at = 5;
    while let Some(id) = StreamId::parse(c.args.get(at), 0) {
        ids.extend_from_slice(&id.bytes());
        at += 1;
    }
    let (mut time, mut times, mut force, mut ids_only) = ([0, 0], -1, 0, 0);
    let mut last = StreamId::ZERO;
    while at < c.args.len() {
        let (option, more) = (c.args.get(at), at + 1 < c.args.len());
        let given = at + 1;
        at += 1 + usize::from(!is(option, "FORCE") && !is(option, "JUSTID"));
        if is(option, "FORCE") {
            force = 1;
        } else if is(option, "JUSTID") {
            ids_only = 1;
        } else if is(option, "IDLE") && more {
            let error = "ERR Invalid IDLE option argument for XCLAIM";
            time = [1, named_number(c, given, error)?];
        } else if is(option, "TIME") && more {
            let error = "ERR Invalid TIME option argument for XCLAIM";
            time = [2, named_number(c, given, error)?];
        } else if is(option, "RETRYCOUNT") && more {
            let error = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
            times = named_number(c, given, error)?;
        } else if is(option, "LASTID") && more {
            last = strict_id(c.args.get(given), 0)?;
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
        }
    }
    let ([form, time], [ms, seq]) = (time, last.numbers());
    let numbers = [idle, form, time, times, force, ids_only, ms, seq];
    let mut runs: Vec<Bytes> = (1..4).map(|at| c.args.bytes(at)).collect();
    runs.push(ids.into());
    c.shaped(Action::call(&CLAIM, &numbers, runs), Shape::Tree)
}

fn claim_idle(c: CommandCall<'_>) -> Parsed {
    let idle = "ERR Invalid min-idle-time argument for XAUTOCLAIM";
    let idle = named_number(c, 4, idle)?.max(0);
    let from = first_of_range(c.args.get(5))?;
    let (mut wanted, mut ids_only, mut at) = (100, 0, 6);
    while at < c.args.len() {
        let option = c.args.get(at);
        if is(option, "COUNT") && at + 1 < c.args.len() {
            at += 1;
            let count = integer(c.args.get(at)).filter(|count| (1..=CLAIMED_MAX).contains(count));
            wanted = count.ok_or("ERR COUNT must be > 0")?;
        } else if is(option, "JUSTID") {
            ids_only = 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    let [ms, seq] = from.numbers();
    let runs: Vec<Bytes> = (1..4).map(|at| c.args.bytes(at)).collect();
    let numbers = [idle, ms, seq, wanted, ids_only];
    c.shaped(Action::call(&CLAIM_IDLE, &numbers, runs), Shape::Tree)
}

fn pending(c: CommandCall<'_>) -> Parsed {
    let (key, group) = (c.args.bytes(1), c.args.bytes(2));
    let words = c.args.len();
    if words == 3 {
        let action = Action::call(&PENDING, &[], vec![key, group]);
        return c.shaped(action, Shape::Tree);
    }
    if !(6..=9).contains(&words) {
        return Err(SYNTAX.into());
    }
    let (mut idle, mut at) = (0, 3);
    if is(c.args.get(3), "IDLE") {
        idle = c.number(4)?;
        if words < 8 {
            return Err(SYNTAX.into());
        }
        at = 5;
    }
    let wanted = c.number(at + 2)?.max(0);
    let from = first_of_range(c.args.get(at))?;
    let to = last_of_range(c.args.get(at + 1))?;
    let ([ms, seq], [to_ms, to_seq]) = (from.numbers(), to.numbers());
    let of_one = i64::from(at + 3 < words);
    let numbers = [idle, ms, seq, to_ms, to_seq, wanted, of_one];
    let runs = vec![key, group, c.args.bytes(at + 3)];
    c.shaped(Action::call(&PENDING_RANGE, &numbers, runs), Shape::Tree)
}
