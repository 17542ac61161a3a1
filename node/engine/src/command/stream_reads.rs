//! `XREAD` and `XREADGROUP`: new entries of one stream or several.

use super::description::keys_and_ids_after_word;
use super::pops::{BlockingPop, PopKind};
use super::reply_tree::{ReplyTree, pairs_of};
use super::stream_groups::{DELIVER, SILENT};
use super::streams::{shown, strict_id};
use super::{
    Access, CommandCall, Description, ErrorText, ParseFn, Parsed, ParsedRequest, SYNTAX, Shape,
    command, is,
};
use crate::command::operation::{Action, Footprint};
use crate::command::procedure::{
    Inputs, JOINT, Joint, Procedure, ProcedureCall, WRITES, count, procedure, values,
};
use crate::command::rows::Rows;
use crate::store::change::KeyChange;
use crate::store::collection::answer_max;
use crate::store::stream_view::StreamView;
use crate::value::integer::integer;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::stream::StreamId;
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::SORTED;
use std::ops::Range;
use std::time::Duration;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command(
        "xread",
        "5.0.0",
        -4,
        "stream",
        "readonly blocking movablekeys",
    )
    .on(keys_and_ids_after_word(1), Access::READ, "stream")
    .about("Get entries of streams behind ids, or wait for one")
    .parse(|c| asked(c, false)),
    command(
        "xreadgroup",
        "5.0.0",
        -7,
        "stream",
        "write blocking movablekeys",
    )
    .on(keys_and_ids_after_word(4), Access::BOTH, "stream")
    .about("Get new or pending entries of streams for a consumer of a group, or wait for one")
    .parse(|c| asked(c, true)),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[&READ_WAIT, &GROUP_WAIT];

pub(crate) static JOINTS: &[&Joint] = &[&READ, &READ_GROUP];

/// The first of these numbers.
const NUMBER: u16 = 240;

/// Entries of streams behind ids. The numbers: how many of each at most, 0: all, and 1 if the
/// caller learns what it may wait for. The runs: the ids ([`ReadFrom`]), one after the other, and the
/// further keys. → a tree, or `Nil`: there are none. Instead of that, the caller learns the id of
/// each key behind which it waits: → `Many`, its two numbers
static READ: Joint = Joint {
    number: NUMBER,
    name: "stream read",
    kind: Some(Kind::Stream),
    level: SORTED,
    numbers: 2,
    others: |runs| (runs > 0).then_some((1..runs, 1)),
    footprint: values,
    run: |inputs, key, rows| {
        let [wanted, learns] = inputs.numbers[..] else {
            return Outcome::Failed(Failure::NotAnInteger);
        };
        let (most, mut ids) = (most(wanted), Vec::new());
        let found = each(inputs, (0, key), rows, |(map, key), from, rows| {
            let cx = *rows.cx();
            let stream = StreamView::of(rows.seen(map, key), &cx);
            let id = match from {
                ReadFrom::Behind(id) => id,
                ReadFrom::Last | ReadFrom::New => stream.meta().last,
            };
            ids.extend(id.numbers().map(Outcome::Int));
            if from != ReadFrom::Behind(id) {
                return Outcome::Nil;
            }
            let Some(first) = id.next() else {
                return Outcome::Nil;
            };
            let mut entries = stream.entries(first..=StreamId::MAX, false).take(most);
            let Some(first) = entries.next() else {
                return Outcome::Nil;
            };
            match shown(std::iter::once(first).chain(entries), &cx) {
                Ok(tree) => tree.outcome(),
                Err(failure) => Outcome::Failed(failure),
            }
        });
        match found {
            Outcome::Nil if learns == 1 => Outcome::Many(ids),
            found => found,
        }
    },
    ..JOINT
};

/// The same for a consumer of a group. The numbers: how many of each at most, 0: all, and 1 if they
/// need no acknowledgement. The runs: the group, the consumer, the ids, and the further keys.
static READ_GROUP: Joint = Joint {
    number: NUMBER + 1,
    name: "stream read group",
    event: SILENT,
    kind: Some(Kind::Stream),
    level: SORTED,
    numbers: 2,
    others: |runs| (runs > 2).then_some((3..runs, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        answers_value: true,
        ..WRITES
    },
    run: |inputs, key, rows| {
        let [wanted, keeps_none] = inputs.numbers[..] else {
            return Outcome::Failed(Failure::NotAnInteger);
        };
        let (group, consumer) = (&inputs.bytes[0], &inputs.bytes[1]);
        each(inputs, (2, key), rows, |(map, key), from, rows| {
            let (again, id) = match from {
                ReadFrom::Behind(id) => (1, id),
                ReadFrom::Last | ReadFrom::New => (0, StreamId::ZERO),
            };
            let [ms, seq] = id.numbers();
            let numbers = [wanted, keeps_none, again, ms, seq];
            let action = Action::call(&DELIVER, &numbers, vec![group.clone(), consumer.clone()]);
            rows.step(map, key, &action)
        })
    },
    ..JOINT
};

/// How many entries there are behind an id. Callers may wait with it. → `Int`
pub(super) static READ_WAIT: Procedure =
    procedure(NUMBER - 7, "stream read wait", Kind::Stream, (2, 0)).on_held(|inputs, found, cx| {
        let stream = StreamView::of(found, cx);
        let from = StreamId::of_numbers(inputs.numbers[0], inputs.numbers[1]).next();
        let entries = from.map_or(0, |from| stream.len_within(from..=StreamId::MAX));
        (count(entries), KeyChange::None)
    });

/// The line in which callers wait with it: one for each id.
pub(super) fn line_of(inputs: &Inputs) -> Bytes {
    let id = StreamId::of_numbers(inputs.numbers[0], inputs.numbers[1]);
    Bytes::copy_from_slice(&id.bytes())
}

/// How many entries a group has not delivered. The run: its name. Callers may wait with it. →
/// `Int`, or `Nil`: there is no such group
pub(super) static GROUP_WAIT: Procedure =
    procedure(NUMBER - 6, "stream group wait", Kind::Stream, (0, 1)).on_held(
        |inputs, found, cx| {
            let stream = StreamView::of(found, cx);
            let Some(group) = stream.group(&inputs.bytes[0]) else {
                return (Outcome::Nil, KeyChange::None);
            };
            let from = group.last.next();
            let entries = from.map_or(0, |from| stream.len_within(from..=StreamId::MAX));
            (count(entries), KeyChange::None)
        },
    );

/// How many, if 0 is all.
fn most(wanted: i64) -> usize {
    match usize::try_from(wanted) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(wanted) => wanted,
    }
}

/// What a command reads of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadFrom {
    /// Entries with higher ids; of a consumer, those that it has.
    Behind(StreamId),
    /// Entries that come later (`$`).
    Last,
    /// Entries that no consumer of the group has got (`>`).
    New,
}

impl ReadFrom {
    const BYTES: usize = 17;

    fn put(self, out: &mut Vec<u8>) {
        let (tag, id) = match self {
            Self::Behind(id) => (0, id),
            Self::Last => (1, StreamId::ZERO),
            Self::New => (2, StreamId::ZERO),
        };
        out.push(tag);
        out.extend_from_slice(&id.bytes());
    }

    fn of(bytes: &[u8]) -> Self {
        match bytes.split_first() {
            Some((0, id)) => Self::Behind(StreamId::of_bytes(id)),
            Some((1, _)) => Self::Last,
            Some(_) | None => Self::New,
        }
    }
}

/// Reads each of the keys, whose ids are in the run at this place, and makes one answer of what
/// they have. Nothing happens if one of them is no stream, or has no such group.
fn each(
    inputs: &Inputs,
    (at, (map, first)): (usize, (MapId, &[u8])),
    rows: &mut Rows<'_>,
    mut read: impl FnMut((MapId, &[u8]), ReadFrom, &mut Rows<'_>) -> Outcome,
) -> Outcome {
    let others = inputs.bytes[at + 1..].iter().map(|key| &**key);
    let keys: Vec<&[u8]> = std::iter::once(first).chain(others).collect();
    // The runs before the ids are those of a group.
    let group = (at > 0).then(|| &inputs.bytes[0]);
    let cx = *rows.cx();
    for key in &keys {
        let found = rows.seen(map, key);
        if found
            .entry
            .is_some_and(|entry| entry.kind() != Kind::Stream)
        {
            return Outcome::Failed(Failure::WrongType);
        }
        if let Some(group) = group
            && StreamView::of(found, &cx).group(group).is_none()
        {
            let why = super::stream_groups::no_group(key, group);
            return ReplyTree::error(&format!("{why} in XREADGROUP with GROUP option"));
        }
    }
    let (mut all, mut found) = (ReplyTree::new(), 0);
    for (key, from) in keys.iter().zip(inputs.bytes[at].chunks(ReadFrom::BYTES)) {
        match read((map, key), ReadFrom::of(from), rows) {
            Outcome::Nil => {}
            Outcome::Bulk(entries) => {
                all.bulk(key);
                all.append_bytes(&entries);
                found += 1;
            }
            // What was read before is answered: it may have changed a group.
            _ if found > 0 => break,
            failed => return failed,
        }
        if all.len() > answer_max(&cx) / 2 {
            break;
        }
    }
    if found == 0 {
        return Outcome::Nil;
    }
    let mut tree = ReplyTree::new();
    tree.keyed(found);
    tree.append(&all);
    tree.outcome()
}

/// What a command reads of streams, besides their keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct StreamReads {
    wanted: i64,
    keeps_none: bool,
    /// The group and the consumer.
    group: Option<[Bytes; 2]>,
    /// For each key, what is read of it.
    from: Vec<ReadFrom>,
}

impl StreamReads {
    /// The operation that reads the keys of this range. `others` are those behind the first.
    pub(super) fn action(&self, keys: Range<usize>, others: Vec<Bytes>, learns: bool) -> Action {
        let mut ids = Vec::new();
        let from = self.from.get(keys).unwrap_or_default();
        from.iter().for_each(|from| from.put(&mut ids));
        let ids = [Bytes::from(ids)].into_iter().chain(others);
        match &self.group {
            Some(group) => {
                let runs: Vec<Bytes> = group.iter().cloned().chain(ids).collect();
                let numbers = [self.wanted, i64::from(self.keeps_none)];
                Action::call(&READ_GROUP, &numbers, runs)
            }
            None => {
                let numbers = [self.wanted, i64::from(learns)];
                Action::call(&READ, &numbers, ids.collect::<Vec<_>>())
            }
        }
    }

    /// Keeps the ids behind which the keys from this place on are waited for.
    pub(super) fn learn(&mut self, at: usize, ids: &[Outcome]) {
        for (from, id) in self.from.iter_mut().skip(at).zip(ids.chunks_exact(2)) {
            if let [Outcome::Int(ms), Outcome::Int(seq)] = *id {
                *from = ReadFrom::Behind(StreamId::of_numbers(ms, seq));
            }
        }
    }

    /// The operation that waits at the key at this place.
    pub(super) fn wait_at(&self, at: usize) -> Action {
        match (&self.group, self.from.get(at)) {
            (Some([group, _]), _) => Action::call(&GROUP_WAIT, &[], [group.clone()]),
            (None, Some(ReadFrom::Behind(id))) => {
                Action::call(&READ_WAIT, &id.numbers(), Vec::new())
            }
            (None, _) => Action::call(&READ_WAIT, &StreamId::MAX.numbers(), Vec::new()),
        }
    }

    pub(super) const fn is_of_group(&self) -> bool {
        self.group.is_some()
    }

    /// Its names, as they stand in the command.
    pub(super) fn names(&mut self) -> impl Iterator<Item = &mut Bytes> {
        self.group.iter_mut().flatten()
    }
}

/// The read that a call of `READ` or `READ_GROUP` is, key by key. It does not wait.
pub(super) fn read_of(call: &ProcedureCall, first: &Bytes) -> Option<BlockingPop> {
    let number = call.called.number();
    let (numbers, runs) = (&call.inputs.numbers, &call.inputs.bytes[..]);
    let (group, takes, runs) = match runs {
        [group, consumer, rest @ ..] if number == READ_GROUP.number => {
            (Some([group.clone(), consumer.clone()]), &GROUP_READS, rest)
        }
        runs if number == READ.number => (None, &READS, runs),
        _ => return None,
    };
    let (ids, others) = runs.split_first()?;
    let keys = std::iter::once(first).chain(others);
    let reads = StreamReads {
        wanted: *numbers.first()?,
        keeps_none: group.is_some() && *numbers.get(1)? != 0,
        group,
        from: ids.chunks(ReadFrom::BYTES).map(ReadFrom::of).collect(),
    };
    Some(BlockingPop {
        shape: Shape::TreeTaken,
        count: 0,
        reads: Some(reads),
        ..BlockingPop::of_one(keys.cloned().collect(), None, takes)
    })
}

/// Whether this is an answer with entries.
pub(super) fn has_entries(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Bulk(tree) if pairs_of(tree).is_some())
}

/// The answer of two that were read of different keys. `None`: one of them has no entries.
pub(super) fn joined(one: &Outcome, other: &Outcome) -> Option<Outcome> {
    let (Outcome::Bulk(one), Outcome::Bulk(other)) = (one, other) else {
        return None;
    };
    let ((first, one), (second, other)) = (pairs_of(one)?, pairs_of(other)?);
    let mut tree = ReplyTree::new();
    tree.keyed(first + second);
    tree.append_bytes(one);
    tree.append_bytes(other);
    Some(tree.outcome())
}

/// Whether these words of `XREAD` or `XREADGROUP` say how long to wait.
#[cfg(feature = "scripts")]
pub(super) fn asks_to_wait(words: &dyn super::Arguments) -> bool {
    let mut at = 1;
    while at + 1 < words.len() {
        let option = words.get(at);
        if is(option, "BLOCK") {
            return true;
        }
        at += if is(option, "COUNT") {
            2
        } else if is(option, "GROUP") {
            3
        } else if is(option, "NOACK") {
            1
        } else {
            return false;
        };
    }
    false
}

/// The arguments of `XREAD` or `XREADGROUP`.
#[derive(Debug, Default)]
struct ReadOptions {
    reads: StreamReads,
    keys: Vec<Bytes>,
    /// How long it waits if there is nothing. Inner `None`: for ever.
    waits: Option<Option<Duration>>,
}

impl ReadOptions {
    fn parse(c: CommandCall<'_>, is_of_group: bool) -> Result<Self, ErrorText> {
        let mut it = Self::default();
        let (mut at, mut streams) = (1, None);
        while at < c.args.len() && streams.is_none() {
            let (option, more) = (c.args.get(at), c.args.len() - 1 - at);
            if is(option, "BLOCK") && more > 0 {
                at += 1;
                it.waits = Some(waits(c, at)?);
            } else if is(option, "COUNT") && more > 0 {
                at += 1;
                it.reads.wanted = c.number(at)?.max(0);
            } else if is(option, "STREAMS") && more > 0 {
                streams = Some(at + 1);
            } else if is(option, "GROUP") && more > 1 {
                if !is_of_group {
                    return Err(
                        "ERR The GROUP option is only supported by XREADGROUP. You called \
                                XREAD instead."
                            .into(),
                    );
                }
                it.reads.group = Some([c.args.bytes(at + 1), c.args.bytes(at + 2)]);
                at += 2;
            } else if is(option, "NOACK") {
                if !is_of_group {
                    return Err(
                        "ERR The NOACK option is only supported by XREADGROUP. You called \
                                XREAD instead."
                            .into(),
                    );
                }
                it.reads.keeps_none = true;
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        let Some(first) = streams else {
            return Err(SYNTAX.into());
        };
        let words = c.args.len() - first;
        if words % 2 == 1 {
            let sign = if is_of_group { '>' } else { '$' };
            return Err(format!(
                "ERR Unbalanced '{}' list of streams: for each stream key an ID or '{sign}' must \
                 be specified.",
                c.name
            )
            .into());
        }
        if is_of_group && it.reads.group.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        for at in first..first + words / 2 {
            it.keys.push(c.args.bytes(at));
            it.reads
                .from
                .push(from(c.args.get(at + words / 2), is_of_group)?);
        }
        Ok(it)
    }
}

/// What is read of a stream, as a command says it.
fn from(text: &[u8], is_of_group: bool) -> Result<ReadFrom, ErrorText> {
    match text {
        b"$" if is_of_group => Err(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you \
                                    want to read the history of this consumer by specifying a \
                                    proper ID, or use the > ID to get new messages. The $ ID would \
                                    just return an empty result set."
                .into(),
        ),
        b"$" => Ok(ReadFrom::Last),
        b">" if is_of_group => Ok(ReadFrom::New),
        b">" => Err(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option."
                .into(),
        ),
        text => Ok(ReadFrom::Behind(strict_id(text, 0)?)),
    }
}

/// How long a command waits, by the argument at this place: milliseconds.
fn waits(c: CommandCall<'_>, at: usize) -> Result<Option<Duration>, ErrorText> {
    let ms = integer(c.args.get(at)).ok_or("ERR timeout is not an integer or out of range")?;
    match u64::try_from(ms) {
        Err(_) => Err("ERR timeout is negative".into()),
        Ok(0 | FOR_EVER_MS..) => Ok(None),
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
    }
}

/// A longer time to wait is for ever: 100 years.
const FOR_EVER_MS: u64 = 100 * 365 * 86_400_000;

/// Reads that wait.
static READS: PopKind = PopKind {
    take: &READ,
    wait: &READ_WAIT,
    put_back: |_| None,
};
/// The same for a group. An entry that is lost on its way stays pending.
static GROUP_READS: PopKind = PopKind {
    take: &READ_GROUP,
    wait: &GROUP_WAIT,
    ..READS
};

fn asked(c: CommandCall<'_>, is_of_group: bool) -> Parsed {
    let it = ReadOptions::parse(c, is_of_group)?;
    let pop = BlockingPop {
        keys: it.keys,
        timeout: it.waits.flatten(),
        shape: Shape::TreeTaken,
        takes: if is_of_group { &GROUP_READS } else { &READS },
        count: 0,
        to: None,
        reads: Some(it.reads),
    };
    if it.waits.is_some() {
        return Ok(ParsedRequest::Pop(Box::new(pop)));
    }
    let (key, action) = pop.take_all();
    Ok(ParsedRequest::One {
        key,
        action,
        shape: pop.shape,
    })
}
