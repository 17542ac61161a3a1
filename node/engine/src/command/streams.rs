//! Commands on streams. Those on groups of consumers are in `stream_groups`, and those that read
//! several streams in `stream_reads`.

use super::description::KEY_OF_SUBCOMMAND;
use super::reply_tree::ReplyTree;
use super::stream_groups;
use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, SYNTAX, Shape, command,
    container, is, wrong_arity,
};
use crate::command::operation::{Action, Footprint, stores};
use crate::command::procedure::{Inputs, Procedure, WRITES, count, procedure, values};
use crate::mutant::{self, broken};
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::collection::answer_max;
use crate::store::run_context::RunContext;
use crate::store::stream_view::{ALL_IDS, StreamEdit, StreamView};
use crate::value::entry::Entry;
use crate::value::items::{Items, packed};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::stream::StreamId;
use bytes::Bytes;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("xadd", "5.0.0", -5, "stream", "write denyoom fast")
        .on(ONE_KEY, Access::BOTH, "stream")
        .about("Append a new entry to a stream")
        .parse(add),
    command("xdel", "5.0.0", -3, "stream", "write fast")
        .on(ONE_KEY, Access::WRITE, "stream")
        .about("Remove entries from a stream by their ids")
        .parse(|c| {
            let ids = strict_ids(c, 2)?;
            c.shaped(Action::call(&DELETE, &[], [ids]), Shape::Tree)
        }),
    command("xinfo", "5.0.0", -2, "stream", "")
        .about("A container for stream introspection commands")
        .parse(container),
    command("xinfo|consumers", "5.0.0", 4, "stream", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::READ, "stream")
        .about("List the consumers in a consumer group")
        .parse(stream_groups::consumers),
    command("xinfo|groups", "5.0.0", 3, "stream", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::READ, "stream")
        .about("List the consumer groups of a stream")
        .parse(stream_groups::groups),
    command("xinfo|stream", "5.0.0", -3, "stream", "readonly")
        .on(KEY_OF_SUBCOMMAND, Access::READ, "stream")
        .about("Get information about a stream")
        .parse(info),
    command("xlen", "5.0.0", 2, "stream", "readonly fast")
        .on(ONE_KEY, Access::TOUCH, "stream")
        .about("Get the number of entries in a stream")
        .parse(|c| c.one(Action::call(&LENGTH, &[], Vec::new()))),
    command("xrange", "5.0.0", -4, "stream", "readonly")
        .on(ONE_KEY, Access::READ, "stream")
        .about("Get the entries of a stream with ids in a range")
        .parse(|c| range(c, false)),
    command("xrevrange", "5.0.0", -4, "stream", "readonly")
        .on(ONE_KEY, Access::READ, "stream")
        .about("Get the entries of a stream with ids in a range, in reverse order")
        .parse(|c| range(c, true)),
    command("xsetid", "5.0.0", -3, "stream", "write denyoom fast")
        .on(ONE_KEY, Access::WRITE, "stream")
        .about("Set the last id of a stream, and what it counts")
        .parse(set_id),
    command("xtrim", "5.0.0", -4, "stream", "write")
        .on(ONE_KEY, Access::WRITE, "stream")
        .about("Trim a stream to a length, or to ids from one on")
        .parse(|c| {
            let options = StreamOptions::parse(c, false)?;
            let action = Action::call(&TRIM, &options.trim.numbers(), Vec::new());
            c.shaped(action, Shape::Tree)
        }),
];

pub(crate) static PROCEDURES: &[&Procedure] =
    &[&ADD, &LENGTH, &RANGE, &DELETE, &TRIM, &SET_ID, &INFO, &SCAN];

/// The first of these numbers.
const NUMBER: u16 = 210;

/// Appends an entry with these fields and values, one after the other in a run of bytes. The
/// numbers: 1 if the key must exist, how its id is given ([`GivenId`]), the id, and what is trimmed
/// then ([`StreamTrim`]). → its id, or `Nil`: there is no key
static ADD: Procedure = procedure(NUMBER, "stream add", Kind::Stream, (4 + TRIM_NUMBERS, 1))
    .costs(|inputs| stores(&inputs.bytes[0]))
    .told_as("xadd")
    .on_held(added);

/// How many entries there are. → `Int`
static LENGTH: Procedure = procedure(NUMBER + 1, "stream length", Kind::Stream, (0, 0))
    .on_held(|_, found, cx| (count(StreamView::of(found, cx).len()), KeyChange::None));

/// Entries with ids in a range. The numbers: both ids, 1 if in reverse, and how many at most; -1:
/// all. → a tree, or `Nil`: none is wanted
static RANGE: Procedure = procedure(NUMBER + 2, "stream range", Kind::Stream, (6, 0))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let [ms, seq, to_ms, to_seq, reverse, wanted] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let stream = StreamView::of(found, cx);
        if wanted == 0 && stream.exists() {
            let mut none = ReplyTree::new();
            none.nil_array();
            return (none.outcome(), KeyChange::None);
        }
        let ids = StreamId::of_numbers(ms, seq)..=StreamId::of_numbers(to_ms, to_seq);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let entries = stream.entries(ids, reverse == 1).take(wanted);
        read(shown(entries, cx))
    });

/// Deletes entries with these ids, which lie one after the other. → `Int`, how many
static DELETE: Procedure = procedure(NUMBER + 3, "stream delete", Kind::Stream, (0, 1))
    .costs(|inputs| Footprint {
        given: inputs.given(),
        ..WRITES
    })
    .told_as("xdel")
    .on_held(|inputs, found, cx| {
        let (stream, mut edit, mut gone) = (StreamView::of(found, cx), StreamEdit::default(), 0);
        let mut meta = stream.meta();
        for id in StreamId::all(&inputs.bytes[0]) {
            if stream.entry(id).is_some() && !edit.deletes(id) {
                edit.delete_entry(id);
                meta.deleted = meta.deleted.max(id);
                gone += 1;
            }
        }
        if gone > 0 {
            edit.put_meta(meta);
        }
        (count(gone), edit.into_change(stream, cx))
    });

/// Deletes the first entries. The numbers are those of a [`StreamTrim`]. → `Int`, how many
static TRIM: Procedure = procedure(NUMBER + 4, "stream trim", Kind::Stream, (TRIM_NUMBERS, 0))
    .costs(|_| WRITES)
    .told_as("xtrim")
    .on_held(|inputs, found, cx| {
        let (stream, mut edit) = (StreamView::of(found, cx), StreamEdit::default());
        let gone = StreamTrim::of_numbers(&inputs.numbers).gone(stream, None);
        edit.delete_first(stream, gone, cx);
        (count(gone), edit.into_change(stream, cx))
    });

/// Sets the last id. The numbers: that id, how many entries were ever added (-1: as before), and
/// the highest deleted id (0-0: as before). → `Ok`
static SET_ID: Procedure = procedure(NUMBER + 5, "stream set id", Kind::Stream, (5, 0))
    .costs(|_| WRITES)
    .told_as("xsetid")
    .on_held(|inputs, found, cx| {
        let [ms, seq, added, deleted_ms, deleted_seq] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let (stream, id) = (StreamView::of(found, cx), StreamId::of_numbers(ms, seq));
        let deleted = StreamId::of_numbers(deleted_ms, deleted_seq);
        let (mut meta, length) = (stream.meta(), stream.len() as u64);
        if !stream.exists() {
            return refused(NO_KEY);
        }
        if id < meta.deleted {
            return refused(
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
            );
        }
        if id < stream.top_id() {
            return refused(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            );
        }
        if let Ok(added) = u64::try_from(added) {
            if added < length {
                return refused(
                    "ERR The entries_added specified in XSETID is smaller than the target stream \
                     length",
                );
            }
            meta.added = added;
        }
        meta.last = id;
        if deleted != StreamId::ZERO {
            meta.deleted = deleted;
        }
        let mut edit = StreamEdit::default();
        edit.put_meta(meta);
        (Outcome::Ok, edit.into_change(stream, cx))
    });

/// What is to be known of a stream. The numbers: 1 if all of it, and then how many entries of each
/// kind at most, 0: all. → a tree
static INFO: Procedure = procedure(NUMBER + 6, "stream info", Kind::Stream, (2, 0))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let stream = StreamView::of(found, cx);
        let wanted = match usize::try_from(inputs.numbers[1]) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(wanted) => wanted,
        };
        if stream.exists() {
            read(described(stream, (inputs.numbers[0] == 1, wanted), cx))
        } else {
            refused(NO_KEY)
        }
    });

/// Entries from a place on, for programs that show them: each as its id and its fields in one text.
/// The numbers: the place, how many, and 0. The run counts for nothing. → `Keys`
static SCAN: Procedure = procedure(NUMBER + 7, "stream scan", Kind::Stream, (3, 1))
    .costs(values)
    .on_held(|inputs, found, cx| {
        let stream = StreamView::of(found, cx);
        let at = |n: i64| usize::try_from(n).unwrap_or(0);
        let (from, wanted) = (at(inputs.numbers[0]), at(inputs.numbers[1]));
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for (id, row) in stream.entries_from(from).take(wanted) {
            let mut shown = id.text().into_bytes();
            for item in Items(row.value()) {
                shown.push(b' ');
                shown.extend_from_slice(item);
            }
            bytes += shown.len();
            keys.push(Bytes::from(shown));
            if bytes > SCAN_BYTES_MAX {
                break;
            }
        }
        let next = from.saturating_add(keys.len());
        let next = if next < stream.len() { next as u64 } else { 0 };
        (Outcome::Keys { next, keys }, KeyChange::None)
    });

/// A page of entries is not larger than that, unless one of them is.
const SCAN_BYTES_MAX: usize = 512 << 10;

/// Redis's text if a stream must exist.
pub(super) const NO_KEY: &str = "ERR no such key";

/// Redis keeps up to this many entries together, and trims them together if that need not be exact.
const TRIMMED_TOGETHER: usize = 100;
/// It trims no more than that at once then, unless the command gives a LIMIT.
const TRIMMED_MAX: i64 = 10_000;

/// What a command does that fails.
pub(super) fn failed(failure: Failure) -> (Outcome, KeyChange) {
    (Outcome::Failed(failure), KeyChange::None)
}

/// The same with a text of its own.
pub(super) fn refused(text: &str) -> (Outcome, KeyChange) {
    (ReplyTree::error(text), KeyChange::None)
}

/// What a command does that answers a tree and changes nothing.
pub(super) fn read(tree: Result<ReplyTree, Failure>) -> (Outcome, KeyChange) {
    match tree {
        Ok(tree) => (tree.outcome(), KeyChange::None),
        Err(failure) => failed(failure),
    }
}

/// Adds an id.
pub(super) fn put_id(tree: &mut ReplyTree, id: StreamId) {
    tree.bulk(id.text().as_bytes());
}

/// Adds an entry: its id, and its fields.
pub(super) fn put_entry(tree: &mut ReplyTree, id: StreamId, row: &Entry) {
    tree.array(2);
    put_id(tree, id);
    tree.fields(row.value());
}

/// Checks that a tree is not too large for an answer.
pub(super) fn fits(tree: &ReplyTree, cx: &RunContext) -> Result<(), Failure> {
    if tree.len() > answer_max(cx) {
        Err(Failure::TooLarge)
    } else {
        Ok(())
    }
}

/// Entries as an array.
pub(super) fn shown<'a>(
    entries: impl Iterator<Item = (StreamId, &'a Entry)>,
    cx: &RunContext,
) -> Result<ReplyTree, Failure> {
    let (mut all, mut found) = (ReplyTree::new(), 0);
    for (id, row) in entries {
        put_entry(&mut all, id, row);
        fits(&all, cx)?;
        found += 1;
    }
    let mut tree = ReplyTree::new();
    tree.array(found);
    tree.append(&all);
    Ok(tree)
}

fn described(
    stream: StreamView<'_>,
    (full, wanted): (bool, usize),
    cx: &RunContext,
) -> Result<ReplyTree, Failure> {
    let (mut tree, meta, length) = (ReplyTree::new(), stream.meta(), stream.len());
    tree.map(if full { 9 } else { 10 });
    tree.bulk(b"length");
    tree.count(length);
    // There is no such tree here. These are the numbers of Redis if no entry was ever deleted.
    let together = length.div_ceil(TRIMMED_TOGETHER);
    for (name, nodes) in [("keys", together), ("nodes", together + 1)] {
        tree.bulk(format!("radix-tree-{name}").as_bytes());
        tree.count(nodes);
    }
    tree.bulk(b"last-generated-id");
    put_id(&mut tree, meta.last);
    tree.bulk(b"max-deleted-entry-id");
    put_id(&mut tree, meta.deleted);
    tree.bulk(b"entries-added");
    tree.int(i64::try_from(meta.added).unwrap_or(i64::MAX));
    tree.bulk(b"recorded-first-entry-id");
    put_id(&mut tree, stream.first_id());
    if full {
        tree.bulk(b"entries");
        tree.append(&shown(stream.entries(ALL_IDS, false).take(wanted), cx)?);
        tree.bulk(b"groups");
        tree.append(&stream_groups::all_of_groups(stream, wanted, cx)?);
    } else {
        tree.bulk(b"groups");
        tree.count(stream.groups().count());
        for (name, reverse) in [(&b"first-entry"[..], false), (b"last-entry", true)] {
            tree.bulk(name);
            match stream.entries(ALL_IDS, reverse).next() {
                Some((id, row)) => put_entry(&mut tree, id, row),
                None => tree.nil(),
            }
        }
    }
    fits(&tree, cx)?;
    Ok(tree)
}

/// How the id of a new entry is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenId {
    /// Not at all: it is the time, or follows the last one.
    No,
    /// Its milliseconds.
    Ms,
    Whole,
}

fn added(inputs: &Inputs, found: FoundKey<'_>, cx: &RunContext) -> (Outcome, KeyChange) {
    let [must_exist, form, ms, seq, ..] = inputs.numbers[..] else {
        return failed(Failure::NotAnInteger);
    };
    let (stream, fields) = (StreamView::of(found, cx), &inputs.bytes[0]);
    if must_exist == 1 && !stream.exists() {
        return (Outcome::Nil, KeyChange::None);
    }
    if fields.len() > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    let (mut meta, given) = (stream.meta(), StreamId::of_numbers(ms, seq));
    if meta.last == StreamId::MAX {
        return refused(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        );
    }
    let id = match form {
        form if form == GivenId::Whole as i64 => Some(given),
        form if form == GivenId::Ms as i64 && given.ms == meta.last.ms => {
            let seq = meta.last.seq.checked_add(1);
            seq.map(|seq| StreamId { seq, ..given })
        }
        form if form == GivenId::Ms as i64 => Some(given),
        // The clock of a new primary may be behind.
        _ => meta.last.next().max(Some(StreamId {
            ms: cx.unix_ms,
            seq: 0,
        })),
    };
    let id = if broken(&mutant::IDS_BY_CLOCK) {
        Some(StreamId {
            ms: cx.unix_ms,
            seq: meta.added,
        })
    } else {
        id.filter(|id| *id > meta.last)
    };
    let Some(id) = id else {
        return refused(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        );
    };
    meta.last = id;
    meta.added = meta.added.saturating_add(1);
    let gone = StreamTrim::of_numbers(&inputs.numbers[4..]).gone(stream, Some(id));
    let appended = if gone == 0 {
        stream.with_entry(meta, fields)
    } else {
        None
    };
    let change = match appended {
        Some(change) => change,
        None => {
            let mut edit = StreamEdit::default();
            edit.put_meta(meta);
            edit.delete_first(stream, gone, cx);
            if gone <= stream.len() {
                edit.put_entry(id, fields);
            }
            edit.into_change(stream, cx)
        }
    };
    let mut tree = ReplyTree::new();
    put_id(&mut tree, id);
    (tree.outcome(), change)
}

/// What is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamTrim {
    keeps: Kept,
    /// Only entries that Redis would have together, and no more than that; 0: any number.
    about: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    All,
    /// This many.
    Last(i64),
    /// Those from this id on.
    From(StreamId),
}

/// How many numbers a [`StreamTrim`] takes.
const TRIM_NUMBERS: usize = 4;

impl StreamTrim {
    const NOTHING: Self = Self {
        keeps: Kept::All,
        about: None,
    };

    fn numbers(self) -> [i64; TRIM_NUMBERS] {
        let (kind, [first, second]) = match self.keeps {
            Kept::All => (0, [0, 0]),
            Kept::Last(most) => (1, [most, 0]),
            Kept::From(id) => (2, id.numbers()),
        };
        [kind, first, second, self.about.unwrap_or(-1)]
    }

    fn of_numbers(numbers: &[i64]) -> Self {
        let [kind, first, second, about] = *numbers else {
            return Self::NOTHING;
        };
        Self {
            keeps: match kind {
                1 => Kept::Last(first),
                2 => Kept::From(StreamId::of_numbers(first, second)),
                _ => Kept::All,
            },
            about: (about >= 0).then_some(about),
        }
    }

    /// How many of the first entries go, if a new one follows the others.
    fn gone(self, stream: StreamView<'_>, new: Option<StreamId>) -> usize {
        if self.keeps == Kept::All {
            return 0;
        }
        let total = stream.len() + usize::from(new.is_some());
        let gone = match self.keeps {
            Kept::All => 0,
            Kept::Last(most) => total.saturating_sub(usize::try_from(most).unwrap_or(0)),
            Kept::From(id) => {
                let held = id.previous();
                let held = held.map_or(0, |last| stream.len_within(StreamId::ZERO..=last));
                held + usize::from(new.is_some_and(|new| new < id))
            }
        };
        let Some(most) = self.about else {
            return gone;
        };
        let most = match usize::try_from(most) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(most) => most,
        };
        let gone = gone.min(most);
        if gone == total {
            gone
        } else {
            gone - gone % TRIMMED_TOGETHER
        }
    }
}

/// The options of `XADD` and `XTRIM`, which stand before the fields.
struct StreamOptions {
    trim: StreamTrim,
    must_exist: bool,
    id: (GivenId, StreamId),
    /// Where the id stands.
    at: usize,
}

impl StreamOptions {
    fn parse(c: CommandCall<'_>, adds: bool) -> Result<Self, ErrorText> {
        let mut it = Self {
            trim: StreamTrim::NOTHING,
            must_exist: false,
            id: (GivenId::No, StreamId::ZERO),
            at: 2,
        };
        let (mut about, mut limit) = (false, None);
        while it.at < c.args.len() {
            let (option, more) = (c.args.get(it.at), c.args.len() - 1 - it.at);
            let bounds = is(option, "MAXLEN") || is(option, "MINID");
            if adds && option == b"*" {
                break;
            } else if bounds && more > 0 {
                if it.trim.keeps != Kept::All {
                    return Err(
                        "ERR syntax error, MAXLEN and MINID options at the same time are \
                                not compatible"
                            .into(),
                    );
                }
                let next = c.args.get(it.at + 1);
                let sign = more > 1 && matches!(next, b"~" | b"=");
                about = sign && next == b"~";
                it.at += 1 + usize::from(sign);
                it.trim.keeps = kept(c, option, it.at)?;
            } else if is(option, "LIMIT") && more > 0 {
                it.at += 1;
                limit = Some(c.number(it.at)?);
                if limit < Some(0) {
                    return Err("ERR The LIMIT argument must be >= 0.".into());
                }
            } else if adds && is(option, "NOMKSTREAM") {
                it.must_exist = true;
            } else if adds {
                it.id = given_id(option)?;
                break;
            } else {
                return Err(SYNTAX.into());
            }
            it.at += 1;
        }
        if limit.is_some_and(|limit| limit > 0) && it.trim.keeps == Kept::All {
            return Err(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming \
                        strategy"
                    .into(),
            );
        }
        if !adds && it.trim.keeps == Kept::All {
            return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
        }
        if limit.is_some() && !about {
            return Err(
                "ERR syntax error, LIMIT cannot be used without the special ~ option".into(),
            );
        }
        it.trim.about = about.then_some(limit.unwrap_or(TRIMMED_MAX));
        Ok(it)
    }
}

/// What is kept, by the option and the argument at this place.
fn kept(c: CommandCall<'_>, option: &[u8], at: usize) -> Result<Kept, ErrorText> {
    if is(option, "MINID") {
        return Ok(Kept::From(strict_id(c.args.get(at), 0)?));
    }
    match c.number(at)? {
        ..0 => Err("ERR The MAXLEN argument must be >= 0.".into()),
        most => Ok(Kept::Last(most)),
    }
}

fn given_id(text: &[u8]) -> Result<(GivenId, StreamId), ErrorText> {
    match text.strip_suffix(b"-*") {
        Some(ms) if !ms.contains(&b'-') => Ok((GivenId::Ms, strict_id(ms, 0)?)),
        _ => Ok((GivenId::Whole, strict_id(text, 0)?)),
    }
}

/// Redis's text if an id is none.
pub(super) const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// The id that a text says. A missing second number is this one.
pub(super) fn strict_id(text: &[u8], missing_seq: u64) -> Result<StreamId, ErrorText> {
    StreamId::parse(text, missing_seq).ok_or_else(|| INVALID_ID.into())
}

/// The same. `-` is the least one, and `+` the highest.
pub(super) fn any_id(text: &[u8], missing_seq: u64) -> Result<StreamId, ErrorText> {
    match text {
        b"-" => Ok(StreamId::ZERO),
        b"+" => Ok(StreamId::MAX),
        text => strict_id(text, missing_seq),
    }
}

/// The ids at the arguments from this place on, one after the other.
pub(super) fn strict_ids(c: CommandCall<'_>, from: usize) -> Result<Bytes, ErrorText> {
    let mut all = Vec::new();
    for text in c.args_from(from) {
        all.extend_from_slice(&strict_id(text, 0)?.bytes());
    }
    Ok(all.into())
}

/// The first id of a range.
pub(super) fn first_of_range(text: &[u8]) -> Result<StreamId, ErrorText> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            let next = strict_id(rest, 0)?.next();
            next.ok_or_else(|| "ERR invalid start ID for the interval".into())
        }
        text => any_id(text, 0),
    }
}

/// The last id of a range.
pub(super) fn last_of_range(text: &[u8]) -> Result<StreamId, ErrorText> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            let before = strict_id(rest, u64::MAX)?.previous();
            before.ok_or_else(|| "ERR invalid end ID for the interval".into())
        }
        text => any_id(text, u64::MAX),
    }
}

fn add(c: CommandCall<'_>) -> Parsed {
    let options = StreamOptions::parse(c, true)?;
    let first = options.at + 1;
    let fields = c.args.len().saturating_sub(first);
    if fields < 2 || fields % 2 == 1 {
        return Err(wrong_arity(c.name));
    }
    let (form, id) = options.id;
    if (form, id) == (GivenId::Whole, StreamId::ZERO) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let [ms, seq] = id.numbers();
    let [kind, one, other, about] = options.trim.numbers();
    let must_exist = i64::from(options.must_exist);
    let numbers = [must_exist, form as i64, ms, seq, kind, one, other, about];
    let action = Action::call(&ADD, &numbers, [packed(c.args_from(first))]);
    c.shaped(action, Shape::Tree)
}

fn range(c: CommandCall<'_>, reverse: bool) -> Parsed {
    let (first, last) = if reverse { (3, 2) } else { (2, 3) };
    let [ms, seq] = first_of_range(c.args.get(first))?.numbers();
    let [to_ms, to_seq] = last_of_range(c.args.get(last))?.numbers();
    let (mut wanted, mut at) = (-1, 4);
    while at < c.args.len() {
        if !is(c.args.get(at), "COUNT") || at + 1 >= c.args.len() {
            return Err(SYNTAX.into());
        }
        wanted = c.number(at + 1)?.max(0);
        at += 2;
    }
    let numbers = [ms, seq, to_ms, to_seq, i64::from(reverse), wanted];
    c.shaped(Action::call(&RANGE, &numbers, Vec::new()), Shape::Tree)
}

fn set_id(c: CommandCall<'_>) -> Parsed {
    let id = strict_id(c.args.get(2), 0)?;
    let (mut added, mut deleted, mut at) = (-1, StreamId::ZERO, 3);
    while at < c.args.len() {
        let option = c.args.get(at);
        if at + 1 >= c.args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "ENTRIESADDED") {
            added = c.number(at + 1)?;
            if added < 0 {
                return Err("ERR entries_added must be positive".into());
            }
        } else if is(option, "MAXDELETEDID") {
            deleted = strict_id(c.args.get(at + 1), 0)?;
            if id < deleted {
                return Err(
                    "ERR The ID specified in XSETID is smaller than the provided \
                            max_deleted_entry_id"
                        .into(),
                );
            }
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let ([ms, seq], [deleted_ms, deleted_seq]) = (id.numbers(), deleted.numbers());
    let numbers = [ms, seq, added, deleted_ms, deleted_seq];
    c.shaped(Action::call(&SET_ID, &numbers, Vec::new()), Shape::Tree)
}

fn info(c: CommandCall<'_>) -> Parsed {
    let full = match c.args.len() {
        3 => None,
        4 if is(c.args.get(3), "FULL") => Some(10),
        6 if is(c.args.get(3), "FULL") && is(c.args.get(4), "COUNT") => {
            Some(match c.number(5)? {
                ..0 => 10,
                wanted => wanted,
            })
        }
        _ => return c.refused(),
    };
    let numbers = [i64::from(full.is_some()), full.unwrap_or(0)];
    c.of_key(2, Action::call(&INFO, &numbers, Vec::new()), Shape::Tree)
}
