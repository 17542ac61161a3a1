//! Streams: nodes of entries, and groups of consumers.
//!
//! ```text
//!   count of nodes, nodes             a node: the id of its master entry, and a listpack
//!   count of entries, last id
//!   first id, highest deleted id, count of entries ever added              from Redis 7.0 on
//!   count of groups, groups           a group: its name, the id that was delivered last,
//!                                     count of entries that were read      from Redis 7.0 on
//!     count of pending entries        id, when it was given, how often
//!     count of consumers              name, when it asked last,
//!                                     when it got an entry last            from Redis 7.2 on
//!       count of pending entries      ids
//!
//!   listpack: entries, deleted, count of fields, fields, 0                 the master entry
//!             flags, id minus the master's, [count, fields and] values, length     an entry
//! ```

use crate::error::RdbError;
use crate::input::RdbInput;
use crate::packs::{ListpackItems, put_listpack_bytes, put_listpack_integer, whole_listpack};
use crate::{read, types, write};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The limits of a node in the configuration of Redis (`stream-node-max-bytes` and `-entries`).
const NODE_BYTES: usize = 4_096;
const NODE_ENTRIES: usize = 100;

/// Flags of an entry: it was deleted; it has the fields of the master entry.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

const EXPECTED_NODE: &str = "a node of a stream";
const EXPECTED_GROUP: &str = "a number of a group";

/// A stream. Its entries lie in the order of their ids, and none is above the last id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdbStream<B = Vec<u8>> {
    /// Its entries.
    pub entries: Vec<RdbStreamEntry<B>>,
    /// The highest id that was ever given.
    pub last: RdbStreamId,
    /// How many entries were ever added.
    pub added: u64,
    /// The highest id of an entry that was deleted by its id. 0-0: none was.
    pub deleted: RdbStreamId,
    /// Its groups of consumers, each name once.
    pub groups: Vec<RdbStreamGroup<B>>,
}

/// The id of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RdbStreamId {
    /// Milliseconds, since 1970 as a rule.
    pub ms: u64,
    /// Its number among those of the same millisecond.
    pub seq: u64,
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdbStreamEntry<B = Vec<u8>> {
    /// Its id.
    pub id: RdbStreamId,
    /// Its fields with their values. A field may be there twice.
    pub fields: Vec<(B, B)>,
}

/// A group of consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdbStreamGroup<B = Vec<u8>> {
    /// Its name.
    pub name: B,
    /// The id that was delivered last.
    pub last: RdbStreamId,
    /// How many of the entries that were ever added it has read. `None`: that is not known.
    pub read: Option<u64>,
    /// Its consumers, each name once.
    pub consumers: Vec<RdbStreamConsumer<B>>,
    /// The entries that were given and not acknowledged, in the order of their ids.
    pub pending: Vec<RdbPendingEntry>,
}

/// A consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdbStreamConsumer<B = Vec<u8>> {
    /// Its name.
    pub name: B,
    /// When it asked last, in milliseconds since 1970.
    pub seen: u64,
    /// When it got an entry last. `None`: never. It is not written, as Redis 7.0 has no such time.
    pub active: Option<u64>,
}

/// An entry that was given to a consumer and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdbPendingEntry {
    /// Its id. The entry itself may be deleted.
    pub id: RdbStreamId,
    /// When it was given last, in milliseconds since 1970.
    pub given: u64,
    /// How often it was given.
    pub times: u64,
    /// Which consumer of the group has it, as an index.
    pub consumer: usize,
}

impl RdbStreamId {
    fn of_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self {
            ms: (number >> 64) as u64,
            seq: number as u64,
        }
    }

    fn bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
}

impl<B: AsRef<[u8]>> RdbStream<B> {
    /// What it counts against a limit, as [`RdbInput::charge`] counts it while it is read.
    pub(crate) fn weight(&self, of: impl Fn(&[u8]) -> usize) -> usize {
        let id = of(&[0; 16]);
        let entry = |entry: &RdbStreamEntry<B>| {
            let fields = entry.fields.iter();
            let pair = |(field, value): &(B, B)| of(field.as_ref()) + of(value.as_ref());
            id + fields.map(pair).sum::<usize>()
        };
        let group = |group: &RdbStreamGroup<B>| {
            let consumers = group.consumers.iter().map(|it| of(it.name.as_ref()));
            of(group.name.as_ref()) + id * group.pending.len() + consumers.sum::<usize>()
        };
        self.entries.iter().map(entry).sum::<usize>() + self.groups.iter().map(group).sum::<usize>()
    }
}

/// Reads a stream of this type.
pub(crate) fn stream<R: Read>(input: &mut RdbInput<R>, kind: u8) -> Result<RdbStream, RdbError> {
    let mut entries = Vec::new();
    for _ in 0..input.length("a count of a stream's nodes")? {
        node(input, &mut entries)?;
    }
    if input.length("a count of a stream's entries")? != entries.len() as u64 {
        return Err(input.malformed("the count of the entries in a stream's nodes"));
    }
    let last = numbered_id(input, "the last id of a stream")?;
    if entries.last().is_some_and(|top| top.id > last) {
        return Err(input.malformed("a last id that is not below the ids of entries"));
    }
    let (mut added, mut deleted) = (entries.len() as u64, RdbStreamId::default());
    if kind != types::STREAM_LISTPACKS {
        numbered_id(input, "the first id of a stream")?;
        deleted = numbered_id(input, "the highest deleted id of a stream")?;
        added = count(input, "how many entries a stream was given")?;
    }
    let mut stream = RdbStream {
        entries,
        last,
        added,
        deleted,
        groups: Vec::new(),
    };
    let mut names = BTreeSet::new();
    for _ in 0..input.length("a count of groups")? {
        let group = group(input, kind, &stream)?;
        if !names.insert(group.name.clone()) {
            return Err(input.malformed("groups with different names"));
        }
        stream.groups.push(group);
    }
    Ok(stream)
}

fn numbered_id<R: Read>(
    input: &mut RdbInput<R>,
    expected: &'static str,
) -> Result<RdbStreamId, RdbError> {
    let (ms, seq) = (input.length(expected)?, input.length(expected)?);
    Ok(RdbStreamId { ms, seq })
}

/// A count, which Redis shows as a signed number.
fn count<R: Read>(input: &mut RdbInput<R>, expected: &'static str) -> Result<u64, RdbError> {
    let count = input.length(expected)?;
    if i64::try_from(count).is_err() {
        return Err(input.malformed(expected));
    }
    Ok(count)
}

/// Reads a node, and appends its entries.
fn node<R: Read>(input: &mut RdbInput<R>, to: &mut Vec<RdbStreamEntry>) -> Result<(), RdbError> {
    let master = input.string("the id of a stream's node")?;
    let Ok(master) = <[u8; 16]>::try_from(&master[..]) else {
        return Err(input.malformed("the id of a stream's node, in 16 bytes"));
    };
    let begins = input.at();
    let bytes = input.string(EXPECTED_NODE)?;
    let wrong = |at: usize| RdbError::Malformed {
        at: begins,
        expected: format!("a whole node of a stream (its byte {at} is wrong)").into(),
    };
    let mut items = ListpackItems::of(&bytes).ok_or_else(|| wrong(0))?;
    let Some(mut node) = StreamNode::begin(RdbStreamId::of_bytes(master), &mut items) else {
        return Err(wrong(items.at()));
    };
    while !items.is_at_end() {
        let Some((id, is_deleted, fields)) = node.entry(&mut items) else {
            return Err(wrong(items.at()));
        };
        let mut pairs = Vec::new();
        if !is_deleted {
            // No entry has the id 0-0.
            if to
                .last()
                .map_or_else(RdbStreamId::default, |before| before.id)
                >= id
            {
                return Err(input.malformed("entries in the order of their ids"));
            }
            input.charge(master.len())?;
        }
        let mut shared = node.fields.clone();
        for _ in 0..fields.unwrap_or(node.width) {
            let field = match fields {
                Some(_) => items.item(),
                // The fields of deleted entries are not needed, so they are not looked up.
                None if is_deleted => None,
                None => shared.item(),
            };
            let Some(value) = items.item() else {
                return Err(wrong(items.at()));
            };
            let Some(field) = field.filter(|_| !is_deleted) else {
                continue;
            };
            let pair = (field.to_vec(), value.to_vec());
            input.charge(pair.0.len())?;
            input.charge(pair.1.len())?;
            pairs.push(pair);
        }
        // How many items the entry has, for readers that go backwards.
        if items.integer().is_none() {
            return Err(wrong(items.at()));
        }
        if !is_deleted {
            if pairs.is_empty() {
                return Err(input.malformed("entries with at least one field"));
            }
            to.push(RdbStreamEntry { id, fields: pairs });
        }
        node.counted(is_deleted);
    }
    if (node.entries, node.deleted) != (0, 0) {
        return Err(wrong(items.at()));
    }
    Ok(())
}

/// A node that is being read.
struct StreamNode<'a> {
    master: RdbStreamId,
    /// How many entries it still has, and how many of them that were deleted.
    entries: i64,
    deleted: i64,
    /// The fields of the master entry, and how many they are.
    fields: ListpackItems<'a>,
    width: u64,
}

impl<'a> StreamNode<'a> {
    fn begin(master: RdbStreamId, items: &mut ListpackItems<'a>) -> Option<Self> {
        let (entries, deleted) = (items.integer()?, items.integer()?);
        let width = u64::try_from(items.integer()?).ok()?;
        let fields = items.clone();
        for _ in 0..width {
            items.item()?;
        }
        (items.integer()? == 0).then_some(Self {
            master,
            entries,
            deleted,
            fields,
            width,
        })
    }

    /// The next entry: its id, whether it was deleted, and how many fields it has if they are not
    /// those of the master entry.
    fn entry(&self, items: &mut ListpackItems<'a>) -> Option<(RdbStreamId, bool, Option<u64>)> {
        let flags = items.integer()?;
        let (ms, seq) = (items.integer()?, items.integer()?);
        let id = RdbStreamId {
            ms: self.master.ms.wrapping_add_signed(ms),
            seq: self.master.seq.wrapping_add_signed(seq),
        };
        let fields = if flags & SAME_FIELDS == 0 {
            Some(u64::try_from(items.integer()?).ok()?)
        } else {
            None
        };
        Some((id, flags & DELETED != 0, fields))
    }

    const fn counted(&mut self, is_deleted: bool) {
        if is_deleted {
            self.deleted = self.deleted.saturating_sub(1);
        } else {
            self.entries = self.entries.saturating_sub(1);
        }
    }
}

fn group<R: Read>(
    input: &mut RdbInput<R>,
    kind: u8,
    stream: &RdbStream,
) -> Result<RdbStreamGroup, RdbError> {
    let name = input.element("the name of a group")?;
    let last = numbered_id(input, EXPECTED_GROUP)?;
    let read = if kind == types::STREAM_LISTPACKS {
        estimated(stream, last)
    } else {
        // Redis writes -1 if it does not know.
        let read = input.length(EXPECTED_GROUP)?;
        (i64::try_from(read).is_ok()).then_some(read)
    };
    let mut pending = BTreeMap::new();
    for _ in 0..input.length("a count of pending entries")? {
        let id = RdbStreamId::of_bytes(input.array("the id of a pending entry")?);
        let given = read::time(input)?;
        let times = count(input, "a count of deliveries")?;
        input.charge(16)?;
        if pending.insert(id, (given, times, None)).is_some() {
            return Err(input.malformed("pending entries with different ids"));
        }
    }
    let (mut consumers, mut names) = (Vec::new(), BTreeSet::new());
    for number in 0..input.length("a count of consumers")? {
        let consumer = consumer(input, kind)?;
        if !names.insert(consumer.name.clone()) {
            return Err(input.malformed("consumers with different names"));
        }
        consumers.push(consumer);
        for _ in 0..input.length("a count of pending entries")? {
            let id = RdbStreamId::of_bytes(input.array("the id of a pending entry")?);
            match pending.get_mut(&id) {
                Some((_, _, holder @ None)) => *holder = usize::try_from(number).ok(),
                _ => {
                    return Err(input.malformed(
                        "a pending entry of its group, and of no other \
                    consumer",
                    ));
                }
            }
        }
    }
    let pending = pending.into_iter().map(|(id, (given, times, consumer))| {
        Some(RdbPendingEntry {
            id,
            given,
            times,
            consumer: consumer?,
        })
    });
    let pending = pending.collect::<Option<_>>();
    let pending = pending.ok_or_else(|| input.malformed("a consumer for each pending entry"))?;
    Ok(RdbStreamGroup {
        name,
        last,
        read,
        consumers,
        pending,
    })
}

fn consumer<R: Read>(input: &mut RdbInput<R>, kind: u8) -> Result<RdbStreamConsumer, RdbError> {
    let name = input.element("the name of a consumer")?;
    let seen = read::time(input)?;
    let active = if kind == types::STREAM_LISTPACKS_3 {
        let active = i64::from_le_bytes(input.array("when a consumer was active")?);
        u64::try_from(active).ok()
    } else {
        // The same guess as that of Redis 7.2.
        Some(seen)
    };
    Ok(RdbStreamConsumer { name, seen, active })
}

/// How many entries were added up to this id, as Redis 7 guesses it of an older file, in which no
/// entry counts as deleted.
fn estimated(stream: &RdbStream, id: RdbStreamId) -> Option<u64> {
    let first = stream.entries.first().map(|entry| entry.id);
    match first {
        None => Some(0),
        Some(_) if id == stream.last => Some(stream.added),
        Some(first) if id < first => Some(0),
        Some(first) if id == first => Some(1),
        Some(_) => None,
    }
}

/// Appends a stream as Redis 7.0 reads it.
pub(crate) fn put_stream<B: AsRef<[u8]>>(out: &mut Vec<u8>, stream: &RdbStream<B>) {
    let nodes = nodes(&stream.entries);
    write::length(out, nodes.len() as u64);
    for node in nodes {
        write::string(out, &node[0].id.bytes());
        write::string(out, &node_listpack(node));
    }
    write::length(out, stream.entries.len() as u64);
    put_id(out, stream.last);
    put_id(
        out,
        stream
            .entries
            .first()
            .map_or_else(RdbStreamId::default, |it| it.id),
    );
    put_id(out, stream.deleted);
    write::length(out, stream.added);
    write::length(out, stream.groups.len() as u64);
    for group in &stream.groups {
        write::string(out, group.name.as_ref());
        put_id(out, group.last);
        write::length(out, group.read.unwrap_or(u64::MAX));
        write::length(out, group.pending.len() as u64);
        let mut held = vec![Vec::new(); group.consumers.len()];
        for it in &group.pending {
            out.extend_from_slice(&it.id.bytes());
            out.extend_from_slice(&it.given.to_le_bytes());
            write::length(out, it.times);
            if let Some(held) = held.get_mut(it.consumer) {
                held.push(it.id);
            }
        }
        write::length(out, group.consumers.len() as u64);
        for (consumer, held) in group.consumers.iter().zip(held) {
            write::string(out, consumer.name.as_ref());
            out.extend_from_slice(&consumer.seen.to_le_bytes());
            write::length(out, held.len() as u64);
            held.iter()
                .for_each(|id| out.extend_from_slice(&id.bytes()));
        }
    }
}

fn put_id(out: &mut Vec<u8>, id: RdbStreamId) {
    write::length(out, id.ms);
    write::length(out, id.seq);
}

/// Entries as they share nodes.
fn nodes<B: AsRef<[u8]>>(entries: &[RdbStreamEntry<B>]) -> Vec<&[RdbStreamEntry<B>]> {
    let (mut nodes, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, entry) in entries.iter().enumerate() {
        let pair = |(field, value): &(B, B)| field.as_ref().len() + value.as_ref().len();
        let size = entry.fields.iter().map(pair).sum::<usize>();
        if at > begin && (at - begin >= NODE_ENTRIES || bytes + size >= NODE_BYTES) {
            nodes.push(&entries[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += size;
    }
    if begin < entries.len() {
        nodes.push(&entries[begin..]);
    }
    nodes
}

/// The listpack of entries. The first is the master entry.
fn node_listpack<B: AsRef<[u8]>>(entries: &[RdbStreamEntry<B>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut count = 0_usize;
    let mut integer = |out: &mut Vec<u8>, number: i64| {
        count += 1;
        put_listpack_integer(out, number);
    };
    let length = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    let master = &entries[0];
    let width = master.fields.len();
    let mut strings = width;
    integer(&mut out, length(entries.len()));
    integer(&mut out, 0);
    integer(&mut out, length(width));
    for (field, _) in &master.fields {
        put_listpack_bytes(&mut out, field.as_ref());
    }
    integer(&mut out, 0);
    for entry in entries {
        let fields = entry.fields.iter().zip(&master.fields);
        let is_same = entry.fields.len() == width
            && fields
                .map(|(one, other)| (one.0.as_ref(), other.0.as_ref()))
                .all(|(one, other)| one == other);
        let flags = if is_same { SAME_FIELDS } else { 0 };
        integer(&mut out, flags);
        integer(
            &mut out,
            entry.id.ms.wrapping_sub(master.id.ms).cast_signed(),
        );
        integer(
            &mut out,
            entry.id.seq.wrapping_sub(master.id.seq).cast_signed(),
        );
        let mut items = 3 + entry.fields.len();
        if !is_same {
            integer(&mut out, length(entry.fields.len()));
            items += 1 + entry.fields.len();
        }
        for (field, value) in &entry.fields {
            if !is_same {
                put_listpack_bytes(&mut out, field.as_ref());
            }
            put_listpack_bytes(&mut out, value.as_ref());
        }
        strings += entry.fields.len() * if is_same { 1 } else { 2 };
        integer(&mut out, length(items));
    }
    whole_listpack(&out, count + strings)
}
