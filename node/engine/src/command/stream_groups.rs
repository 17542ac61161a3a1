//! Commands on the consumer groups of streams.
//!
//! ```text
//!   entries of the stream ──────────────────────────────────────────>
//!       read and acknowledged │ pending: given to a consumer │ not read yet
//!                                                  last delivered id
//! ```
//! A group has the id that was delivered last, and its pending entries, each with the consumer that
//! has it. So each entry goes to one consumer, until another one claims it.

use super::description::KEY_OF_SUBCOMMAND;
use super::reply_tree::ReplyTree;
use super::streams::{
    any_id, failed, fits, put_entry, put_id, read, refused, strict_id, strict_ids,
};
use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, Shape, command,
    container, is,
};
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{Inputs, Procedure, WRITES, count, procedure, values};
use crate::mutant::{self, broken};
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::store::stream_view::{ALL_IDS, StreamEdit, StreamView};
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::stream::{
    PendingEntry, StreamConsumer, StreamGroup, StreamId, StreamMeta,
};
use std::collections::BTreeMap;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("xack", "5.0.0", -4, "stream", "write fast")
        .on(ONE_KEY, Access::WRITE, "stream")
        .about("Acknowledge pending entries of a consumer group")
        .parse(|c| {
            let runs = vec![c.args.bytes(2), strict_ids(c, 3)?];
            c.shaped(Action::call(&ACK, &[], runs), Shape::Tree)
        }),
    command("xgroup", "5.0.0", -2, "stream", "")
        .about("A container for consumer groups commands")
        .parse(container),
    command("xgroup|create", "5.0.0", -5, "stream", "write denyoom")
        .on(KEY_OF_SUBCOMMAND, Access::WRITE, "stream")
        .about("Create a consumer group")
        .parse(create),
    command(
        "xgroup|createconsumer",
        "6.2.0",
        5,
        "stream",
        "write denyoom",
    )
    .on(KEY_OF_SUBCOMMAND, Access::WRITE, "stream")
    .about("Create a consumer in a consumer group")
    .parse(|c| of_consumer(c, &CREATE_CONSUMER)),
    command("xgroup|delconsumer", "5.0.0", 5, "stream", "write")
        .on(KEY_OF_SUBCOMMAND, Access::WRITE, "stream")
        .about("Delete a consumer from a consumer group")
        .parse(|c| of_consumer(c, &DELETE_CONSUMER)),
    command("xgroup|destroy", "5.0.0", 4, "stream", "write")
        .on(KEY_OF_SUBCOMMAND, Access::WRITE, "stream")
        .about("Destroy a consumer group")
        .parse(|c| {
            let action = Action::call(&DESTROY, &[], [c.args.bytes(3)]);
            c.of_key(2, action, Shape::Tree)
        }),
    command("xgroup|setid", "5.0.0", -5, "stream", "write")
        .on(KEY_OF_SUBCOMMAND, Access::WRITE, "stream")
        .about("Set the last delivered id of a consumer group")
        .parse(set_id),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[
    &CREATE,
    &SET_GROUP_ID,
    &DESTROY,
    &CREATE_CONSUMER,
    &DELETE_CONSUMER,
    &ACK,
    &GROUPS,
    &CONSUMERS,
    &DELIVER,
];

/// The first of these numbers.
const NUMBER: u16 = 220;

const REQUIRES_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for \
    CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";

/// Makes a group. The numbers: the id that counts as delivered, 1 if that is the last one of the
/// stream, 1 if an absent stream is made, and how many entries are read; -1: it is not known. The
/// run: its name. → `Ok`
static CREATE: Procedure = procedure(NUMBER, "stream group create", Kind::Stream, (5, 1))
    .costs(stored)
    .told_as("xgroup-create")
    .on_held(|inputs, found, cx| {
        let [ms, seq, is_last, makes, entries_read] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let (stream, name) = (StreamView::of(found, cx), &inputs.bytes[0]);
        if !stream.exists() && makes == 0 {
            return refused(REQUIRES_KEY);
        }
        if stream.group(name).is_some() {
            return refused("BUSYGROUP Consumer Group name already exists");
        }
        let mut edit = StreamEdit::default();
        if !stream.exists() {
            edit.put_meta(StreamMeta::default());
        }
        edit.put_group(name, group_at((ms, seq, is_last), entries_read, stream));
        (Outcome::Ok, edit.into_change(stream, cx))
    });

/// Sets the last delivered id of a group. The numbers: as in `CREATE`, but nothing is made. The
/// run: its name. → `Ok`
static SET_GROUP_ID: Procedure = procedure(NUMBER + 1, "stream group set id", Kind::Stream, (4, 1))
    .costs(stored)
    .told_as("xgroup-setid")
    .on_held(|inputs, found, cx| {
        let [ms, seq, is_last, entries_read] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        in_group(found, (&inputs.bytes[0], cx), |stream, name, _, edit| {
            edit.put_group(name, group_at((ms, seq, is_last), entries_read, stream));
            Outcome::Ok
        })
    });

/// Deletes a group of this name. → `Int`, how many
static DESTROY: Procedure = procedure(NUMBER + 2, "stream group destroy", Kind::Stream, (0, 1))
    .costs(given)
    .told_as("xgroup-destroy")
    .on_held(|inputs, found, cx| {
        let (stream, name) = (StreamView::of(found, cx), &inputs.bytes[0]);
        let mut edit = StreamEdit::default();
        if !stream.exists() {
            return refused(REQUIRES_KEY);
        }
        let exists = stream.group(name).is_some();
        if exists {
            edit.delete_group(stream, name, cx);
        }
        (Outcome::Int(exists.into()), edit.into_change(stream, cx))
    });

/// Makes a consumer. The runs: the group, and its name. → `Int`, how many
static CREATE_CONSUMER: Procedure =
    procedure(NUMBER + 3, "stream consumer create", Kind::Stream, (0, 2))
        .costs(stored)
        .told_as("xgroup-createconsumer")
        .on_held(|inputs, found, cx| {
            let consumer = &inputs.bytes[1];
            in_group(found, (&inputs.bytes[0], cx), |stream, name, _, edit| {
                let is_new = stream.consumer(name, consumer).is_none();
                if is_new {
                    edit.put_consumer(name, consumer, new_consumer(cx));
                }
                Outcome::Int(is_new.into())
            })
        });

/// Deletes a consumer with the entries that it has. The runs: the group, and its name. → `Int`, how
/// many entries it had
static DELETE_CONSUMER: Procedure =
    procedure(NUMBER + 4, "stream consumer delete", Kind::Stream, (0, 2))
        .costs(given)
        .told_as("xgroup-delconsumer")
        .on_held(|inputs, found, cx| {
            let consumer = &inputs.bytes[1];
            in_group(found, (&inputs.bytes[0], cx), |stream, name, _, edit| {
                if stream.consumer(name, consumer).is_none() {
                    return Outcome::Int(0);
                }
                let mut gone = 0;
                for (id, pending) in stream.all_pending(name, ALL_IDS) {
                    if pending.consumer == consumer[..] {
                        edit.delete_pending(name, id);
                        gone += 1;
                    }
                }
                edit.delete_consumer(name, consumer);
                count(gone)
            })
        });

/// Acknowledges pending entries. The runs: the group, and their ids. → `Int`, how many
static ACK: Procedure = procedure(NUMBER + 5, "stream acknowledge", Kind::Stream, (0, 2))
    .costs(given)
    .told_as(SILENT)
    .on_held(|inputs, found, cx| {
        let (stream, group) = (StreamView::of(found, cx), &inputs.bytes[0]);
        let mut edit = StreamEdit::default();
        let mut ids: Vec<StreamId> = StreamId::all(&inputs.bytes[1]).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| stream.pending(group, *id).is_some());
        let kept = if broken(&mutant::ACKNOWLEDGES_NOTHING) {
            ids.len()
        } else {
            0
        };
        let gone = ids.iter().skip(kept);
        gone.for_each(|id| edit.delete_pending(group, *id));
        (count(ids.len()), edit.into_change(stream, cx))
    });

/// All groups. → a tree
static GROUPS: Procedure = procedure(NUMBER + 10, "stream groups", Kind::Stream, (0, 0))
    .costs(values)
    .on_held(|_, found, cx| {
        let stream = StreamView::of(found, cx);
        if !stream.exists() {
            return refused(super::streams::NO_KEY);
        }
        let (mut all, mut groups) = (ReplyTree::new(), 0);
        let progress = StreamProgress::of(stream);
        for (name, group) in stream.groups() {
            all.map(6);
            all.bulk(b"name");
            all.bulk(name);
            all.bulk(b"consumers");
            all.count(stream.consumers(name).count());
            all.bulk(b"pending");
            all.count(stream.pending_len(name));
            progress.put(&mut all, group);
            groups += 1;
        }
        let mut tree = ReplyTree::new();
        tree.array(groups);
        tree.append(&all);
        read(fits(&tree, cx).map(|()| tree))
    });

/// All consumers of a group. The run: its name. → a tree
static CONSUMERS: Procedure = procedure(NUMBER + 11, "stream consumers", Kind::Stream, (0, 1))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let (stream, group) = (StreamView::of(found, cx), &inputs.bytes[0]);
        let key = found.entry.map(Entry::key);
        let Some(key) = key else {
            return refused(super::streams::NO_KEY);
        };
        if stream.group(group).is_none() {
            return refused(&no_group_of(key, group));
        }
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (_, pending) in stream.all_pending(group, ALL_IDS) {
            *counts.entry(pending.consumer).or_default() += 1;
        }
        let (mut all, mut consumers) = (ReplyTree::new(), 0);
        for (name, consumer) in stream.consumers(group) {
            all.map(4);
            all.bulk(b"name");
            all.bulk(name);
            all.bulk(b"pending");
            all.count(counts.get(name).copied().unwrap_or(0));
            all.bulk(b"idle");
            all.int(since(consumer.seen_ms, cx));
            all.bulk(b"inactive");
            all.int(consumer.active_ms.map_or(-1, |ms| since(ms, cx)));
            consumers += 1;
        }
        let mut tree = ReplyTree::new();
        tree.array(consumers);
        tree.append(&all);
        read(fits(&tree, cx).map(|()| tree))
    });

/// Gives entries to a consumer. The numbers: how many at most (0: all), 1 if they need no
/// acknowledgement, 1 if it asks again for those that it has, and then the id behind which. The
/// runs: the group, and the consumer. → a tree, or `Nil`: there are no new ones, or no such group
pub(super) static DELIVER: Procedure =
    procedure(NUMBER + 12, "stream deliver", Kind::Stream, (5, 2))
        .costs(gives)
        .told_as(SILENT)
        .on_held(delivered);

/// Subscribers of Redis hear nothing of what has this name.
pub(super) const SILENT: &str = "";

/// When a consumer asked last is kept this exactly, as long as it gets nothing.
const SEEN_EVERY_MS: u64 = 1_000;

fn given(inputs: &Inputs) -> Footprint {
    Footprint {
        given: inputs.given(),
        ..WRITES
    }
}

/// The same of what answers with entries.
pub(super) fn gives(inputs: &Inputs) -> Footprint {
    Footprint {
        answers_value: true,
        ..given(inputs)
    }
}

/// The same of what stores all that it is given.
fn stored(inputs: &Inputs) -> Footprint {
    Footprint {
        stores: inputs.given().bytes,
        ..given(inputs)
    }
}

/// Redis's text if there is no such group.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> String {
    let [key, group] = [key, group].map(String::from_utf8_lossy);
    format!("NOGROUP No such key '{key}' or consumer group '{group}'")
}

/// The same of commands that need the key, too.
fn no_group_of(key: &[u8], group: &[u8]) -> String {
    let [key, group] = [key, group].map(String::from_utf8_lossy);
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'")
}

/// How many milliseconds ago that was.
pub(super) fn since(unix_ms: u64, cx: &RunContext) -> i64 {
    let ms = cx.unix_ms.saturating_sub(unix_ms);
    i64::try_from(ms).unwrap_or(i64::MAX)
}

const fn new_consumer(cx: &RunContext) -> StreamConsumer {
    StreamConsumer {
        seen_ms: cx.unix_ms,
        active_ms: None,
    }
}

/// A group at this id, or at the last one of its stream.
fn group_at(
    (ms, seq, is_last): (i64, i64, i64),
    entries_read: i64,
    stream: StreamView<'_>,
) -> StreamGroup {
    StreamGroup {
        last: if is_last == 1 {
            stream.meta().last
        } else {
            StreamId::of_numbers(ms, seq)
        },
        read: u64::try_from(entries_read).ok(),
    }
}

/// Edits a stream that must have this group.
fn in_group(
    found: FoundKey<'_>,
    (name, cx): (&[u8], &RunContext<'_>),
    edited: impl FnOnce(StreamView<'_>, &[u8], StreamGroup, &mut StreamEdit) -> Outcome,
) -> (Outcome, KeyChange) {
    let (stream, mut edit) = (StreamView::of(found, cx), StreamEdit::default());
    let Some(key) = found.entry.map(Entry::key) else {
        return refused(REQUIRES_KEY);
    };
    let Some(group) = stream.group(name) else {
        return refused(&no_group_of(key, name));
    };
    let outcome = edited(stream, name, group, &mut edit);
    (outcome, edit.into_change(stream, cx))
}

/// How far the groups of a stream are.
struct StreamProgress {
    meta: StreamMeta,
    length: u64,
    first: StreamId,
}

impl StreamProgress {
    fn of(stream: StreamView<'_>) -> Self {
        Self {
            meta: stream.meta(),
            length: stream.len() as u64,
            first: stream.first_id(),
        }
    }

    /// Whether an entry that is not below this id was deleted by its id, as far as that is known.
    fn has_gap_from(&self, id: StreamId) -> bool {
        let deleted = self.meta.deleted;
        self.length > 0 && deleted != StreamId::ZERO && self.first <= deleted && id <= deleted
    }

    /// How many entries were added up to this id, as Redis finds it out. `None`: it is not known.
    fn added_until(&self, id: StreamId) -> Option<u64> {
        let StreamMeta {
            last,
            added,
            deleted,
        } = self.meta;
        if added == 0 {
            return Some(0);
        }
        if (self.length == 0 && id <= last) || id == last {
            return Some(added);
        }
        let is_whole = deleted == StreamId::ZERO || deleted < self.first;
        let before = added.saturating_sub(self.length);
        match id.cmp(&self.first) {
            _ if id > last || !is_whole => None,
            std::cmp::Ordering::Less => Some(before),
            std::cmp::Ordering::Equal => Some(before + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// How many entries a group has not read yet. `None`: it is not known.
    fn lag(&self, group: StreamGroup) -> Option<i64> {
        let read = group.read.filter(|_| !self.has_gap_from(group.last));
        let read = match self.meta.added {
            0 => Some(0),
            _ => read.or_else(|| self.added_until(group.last)),
        };
        Some(self.meta.added.wrapping_sub(read?).cast_signed())
    }

    /// Adds the progress of a group.
    fn put(&self, tree: &mut ReplyTree, group: StreamGroup) {
        tree.bulk(b"last-delivered-id");
        put_id(tree, group.last);
        tree.bulk(b"entries-read");
        put_known(tree, group.read.map(u64::cast_signed));
        tree.bulk(b"lag");
        put_known(tree, self.lag(group));
    }
}

fn put_known(tree: &mut ReplyTree, number: Option<i64>) {
    match number {
        Some(number) => tree.int(number),
        None => tree.nil(),
    }
}

/// Adds what identifies a pending entry.
pub(super) fn put_pending(tree: &mut ReplyTree, id: StreamId, consumer: Option<&[u8]>) {
    put_id(tree, id);
    if let Some(consumer) = consumer {
        tree.bulk(consumer);
    }
}

/// All groups with their consumers and pending entries, up to a number of each.
pub(super) fn all_of_groups(
    stream: StreamView<'_>,
    wanted: usize,
    cx: &RunContext,
) -> Result<ReplyTree, Failure> {
    let (mut all, mut groups) = (ReplyTree::new(), 0);
    let progress = StreamProgress::of(stream);
    for (name, group) in stream.groups() {
        all.map(7);
        all.bulk(b"name");
        all.bulk(name);
        progress.put(&mut all, group);
        let mut of_consumers: BTreeMap<Vec<u8>, Vec<(StreamId, PendingEntry)>> = BTreeMap::new();
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let (mut pending_tree, mut pending_count) = (ReplyTree::new(), 0);
        for (id, pending) in stream.all_pending(name, ALL_IDS) {
            if pending_count < wanted {
                pending_tree.array(4);
                put_pending(&mut pending_tree, id, Some(&pending.consumer));
                pending_tree.int(pending.given_ms.cast_signed());
                pending_tree.int(pending.times.cast_signed());
                pending_count += 1;
            }
            *counts.entry(pending.consumer.clone()).or_default() += 1;
            let own = of_consumers.entry(pending.consumer.clone()).or_default();
            if own.len() < wanted {
                own.push((id, pending));
            }
            fits(&pending_tree, cx)?;
        }
        all.bulk(b"pel-count");
        all.count(counts.values().sum());
        all.bulk(b"pending");
        all.array(pending_count);
        all.append(&pending_tree);
        let consumers: Vec<(&[u8], StreamConsumer)> = stream.consumers(name).collect();
        all.bulk(b"consumers");
        all.array(consumers.len());
        for (name, consumer) in consumers {
            all.map(5);
            all.bulk(b"name");
            all.bulk(name);
            all.bulk(b"seen-time");
            all.int(consumer.seen_ms.cast_signed());
            all.bulk(b"active-time");
            all.int(consumer.active_ms.map_or(-1, u64::cast_signed));
            all.bulk(b"pel-count");
            all.count(counts.get(name).copied().unwrap_or(0));
            all.bulk(b"pending");
            let own = of_consumers.get(name).map_or(&[][..], Vec::as_slice);
            all.array(own.len());
            for (id, pending) in own {
                all.array(3);
                put_pending(&mut all, *id, None);
                all.int(pending.given_ms.cast_signed());
                all.int(pending.times.cast_signed());
            }
            fits(&all, cx)?;
        }
        groups += 1;
    }
    let mut tree = ReplyTree::new();
    tree.array(groups);
    tree.append(&all);
    Ok(tree)
}

/// A consumer that asks now, for this change.
pub(super) fn asking(
    stream: StreamView<'_>,
    group: &[u8],
    name: &[u8],
    cx: &RunContext,
) -> StreamConsumer {
    let known = stream.consumer(group, name);
    StreamConsumer {
        seen_ms: cx.unix_ms,
        ..known.unwrap_or_else(|| new_consumer(cx))
    }
}

fn delivered(inputs: &Inputs, found: FoundKey<'_>, cx: &RunContext) -> (Outcome, KeyChange) {
    let [wanted, keeps_none, again, ms, seq] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let [name, consumer_name] = &inputs.bytes[..] else {
        return failed(Failure::NotAnInteger);
    };
    let wanted = match usize::try_from(wanted) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(wanted) => wanted,
    };
    let (stream, mut edit) = (StreamView::of(found, cx), StreamEdit::default());
    let Some(mut group) = stream.group(name) else {
        return (Outcome::Nil, KeyChange::None);
    };
    let known = stream.consumer(name, consumer_name);
    let mut consumer = asking(stream, name, consumer_name, cx);
    let (mut all, mut shown) = (ReplyTree::new(), 0);
    if again == 1 {
        let from = StreamId::of_numbers(ms, seq).next();
        let own = from.map(|from| stream.all_pending(name, from..=StreamId::MAX));
        let own = own.into_iter().flatten();
        let own = own.filter(|(_, pending)| pending.consumer == consumer_name[..]);
        for (id, mut pending) in own.take(wanted) {
            if let Some(row) = stream.entry(id) {
                put_entry(&mut all, id, row);
                pending.given_ms = cx.unix_ms;
                pending.times = pending.times.saturating_add(1);
                edit.put_pending(name, id, &pending);
            } else {
                all.array(2);
                put_id(&mut all, id);
                all.nil_array();
            }
            shown += 1;
            if let Err(failure) = fits(&all, cx) {
                return failed(failure);
            }
        }
    } else {
        let progress = StreamProgress::of(stream);
        let new = group.last.next();
        let new = new.map(|from| stream.entries(from..=StreamId::MAX, false));
        for (id, row) in new.into_iter().flatten().take(wanted) {
            group.read = match group.read {
                Some(read) if !progress.has_gap_from(id) => Some(read.saturating_add(1)),
                _ => progress.added_until(id),
            };
            group.last = id;
            if keeps_none == 0 {
                let pending = PendingEntry {
                    given_ms: cx.unix_ms,
                    times: 1,
                    consumer: consumer_name.to_vec(),
                };
                edit.put_pending(name, id, &pending);
            }
            put_entry(&mut all, id, row);
            shown += 1;
            if let Err(failure) = fits(&all, cx) {
                return failed(failure);
            }
        }
        if shown > 0 {
            consumer.active_ms = Some(cx.unix_ms);
            if !broken(&mutant::GIVES_AGAIN) {
                edit.put_group(name, group);
            }
        }
    }
    let seen = known.is_some_and(|known| known.seen_ms.saturating_add(SEEN_EVERY_MS) > cx.unix_ms);
    if shown > 0 || !seen {
        edit.put_consumer(name, consumer_name, consumer);
    }
    let change = edit.into_change(stream, cx);
    if shown == 0 && again == 0 {
        return (Outcome::Nil, change);
    }
    let mut tree = ReplyTree::new();
    tree.array(shown);
    tree.append(&all);
    (tree.outcome(), change)
}

/// The arguments of `XGROUP CREATE` and `XGROUP SETID` behind the group: the id, whether it is
/// that of the last entry, whether a stream is made, and how many entries are read.
fn group_options(c: CommandCall<'_>, makes: bool) -> Result<([i64; 3], bool, i64), ErrorText> {
    let (mut make, mut entries_read, mut at) = (false, -1, 5);
    while at < c.args.len() {
        let option = c.args.get(at);
        if makes && is(option, "MKSTREAM") {
            make = true;
        } else if is(option, "ENTRIESREAD") && at + 1 < c.args.len() {
            at += 1;
            entries_read = c.number(at)?;
            if entries_read < -1 {
                return Err("ERR value for ENTRIESREAD must be positive or -1".into());
            }
        } else {
            return c.refused();
        }
        at += 1;
    }
    let id = match c.args.get(4) {
        b"$" => None,
        text if makes => Some(strict_id(text, 0)?),
        text => Some(any_id(text, 0)?),
    };
    let [ms, seq] = id.unwrap_or_default().numbers();
    Ok(([ms, seq, i64::from(id.is_none())], make, entries_read))
}

fn create(c: CommandCall<'_>) -> Parsed {
    let ([ms, seq, is_last], make, entries_read) = group_options(c, true)?;
    let numbers = [ms, seq, is_last, i64::from(make), entries_read];
    let action = Action::call(&CREATE, &numbers, [c.args.bytes(3)]);
    c.of_key(2, action, Shape::Tree)
}

fn set_id(c: CommandCall<'_>) -> Parsed {
    let ([ms, seq, is_last], _, entries_read) = group_options(c, false)?;
    let numbers = [ms, seq, is_last, entries_read];
    let action = Action::call(&SET_GROUP_ID, &numbers, [c.args.bytes(3)]);
    c.of_key(2, action, Shape::Tree)
}

fn of_consumer(c: CommandCall<'_>, procedure: &'static Procedure) -> Parsed {
    let runs = vec![c.args.bytes(3), c.args.bytes(4)];
    c.of_key(2, Action::call(procedure, &[], runs), Shape::Tree)
}

pub(super) fn groups(c: CommandCall<'_>) -> Parsed {
    c.of_key(2, Action::call(&GROUPS, &[], Vec::new()), Shape::Tree)
}

pub(super) fn consumers(c: CommandCall<'_>) -> Parsed {
    let action = Action::call(&CONSUMERS, &[], [c.args.bytes(3)]);
    c.of_key(2, action, Shape::Tree)
}
