//! Streams as the commands that write, compare and read them in parts.

use super::link::{Server, SourceLink, Words, words};
use super::restoring::text;
use super::verify::{IsAnswered, PART, integer, is};
use super::writers::now_ms;
use crate::CommandFailed;
use doyen::resp::client::Reply;
use doyen_rdb::{
    RdbPendingEntry, RdbStream, RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup, RdbStreamId,
    RdbValue,
};
use std::collections::BTreeSet;

/// Entries and pending entries that are asked for at once.
const PAGE: &[u8] = b"1000";

/// The commands that write a large stream, which is absent. There is no command for the times at
/// which consumers asked last and got an entry last. A pending entry is claimed while its entry is
/// there, so deleted ones come for a moment.
pub(super) fn parts(key: &[u8], stream: &RdbStream) -> Vec<Words> {
    let mut parts = Vec::new();
    let pending = stream.groups.iter().flat_map(|group| &group.pending);
    let mut gone: BTreeSet<RdbStreamId> = pending.map(|it| it.id).collect();
    stream
        .entries
        .iter()
        .for_each(|entry| _ = gone.remove(&entry.id));
    let mut before = gone.iter().peekable();
    let mut add_until = |parts: &mut Vec<Words>, end: RdbStreamId| {
        while let Some(id) = before.next_if(|id| **id < end) {
            parts.push(words([b"XADD", key, &id_text(*id), b"", b""]));
        }
    };
    for entry in &stream.entries {
        add_until(&mut parts, entry.id);
        let mut add = words([b"XADD", key, &id_text(entry.id)]);
        for (field, value) in &entry.fields {
            add.extend([field.clone(), value.clone()]);
        }
        parts.push(add);
    }
    add_until(&mut parts, behind(stream.last));
    for group in &stream.groups {
        let (name, last) = (&group.name, id_text(group.last));
        let read = group.read.map_or_else(|| b"-1".to_vec(), text);
        let create = [b"XGROUP", b"CREATE", key, name, &last];
        parts.push(words(create));
        if let Some(part) = parts.last_mut() {
            part.extend(words([b"MKSTREAM", b"ENTRIESREAD", &read]));
        }
        for consumer in &group.consumers {
            parts.push(words([
                b"XGROUP",
                b"CREATECONSUMER",
                key,
                name,
                &consumer.name,
            ]));
        }
        let is_alike = |one: &RdbPendingEntry, other: &RdbPendingEntry| {
            (one.consumer, one.given, one.times) == (other.consumer, other.given, other.times)
        };
        for alike in group
            .pending
            .chunk_by(is_alike)
            .flat_map(|all| all.chunks(PART))
        {
            let consumer = group.consumers.get(alike[0].consumer);
            let consumer = consumer.map_or(&[][..], |it| &it.name);
            let mut claim = words([b"XCLAIM", key, name, consumer, b"0"]);
            claim.extend(alike.iter().map(|it| id_text(it.id)));
            let (time, times) = (text(alike[0].given), text(alike[0].times));
            let options = [
                b"TIME",
                &time[..],
                b"RETRYCOUNT",
                &times,
                b"FORCE",
                b"JUSTID",
            ];
            claim.extend(words(options));
            parts.push(claim);
        }
    }
    // What lay before all entries was trimmed, which no number of the stream tells of.
    let first = stream
        .entries
        .first()
        .map_or(behind(stream.last), |entry| entry.id);
    if gone.first().is_some_and(|id| *id < first) {
        parts.push(words([b"XTRIM", key, b"MINID", &id_text(first)]));
    }
    let within: Vec<_> = gone.range(first..).map(|id| id_text(*id)).collect();
    for ids in within.chunks(PART) {
        let mut delete = words([b"XDEL", key]);
        delete.extend_from_slice(ids);
        parts.push(delete);
    }
    let (last, added, deleted) = (
        id_text(stream.last),
        text(stream.added),
        id_text(stream.deleted),
    );
    let ids = [
        b"XSETID",
        key,
        &last,
        b"ENTRIESADDED",
        &added,
        b"MAXDELETEDID",
        &deleted,
    ];
    parts.push(words(ids));
    parts
}

/// The commands that read a stream, with what they must answer.
pub(super) fn reads(key: &[u8], stream: &RdbStream) -> Vec<(Words, IsAnswered)> {
    let mut reads = vec![(words([b"XLEN", key]), is(integer(stream.entries.len())))];
    let count = text(PART as u64);
    for part in stream.entries.chunks(PART) {
        let (first, last) = (id_text(part[0].id), id_text(part[part.len() - 1].id));
        let range = words([b"XRANGE", key, &first, &last, b"COUNT", &count]);
        let entries = part.iter().map(|entry| {
            let pairs = entry.fields.iter();
            let fields = pairs.flat_map(|(field, value)| [bulk(field), bulk(value)]);
            Reply::Array(vec![
                bulk(&id_text(entry.id)),
                Reply::Array(fields.collect()),
            ])
        });
        reads.push((range, is(Reply::Array(entries.collect()))));
    }
    let numbers = vec![
        ("last-generated-id", bulk(&id_text(stream.last))),
        ("max-deleted-entry-id", bulk(&id_text(stream.deleted))),
        ("entries-added", integer(stream.added)),
        ("groups", integer(stream.groups.len())),
    ];
    let has_numbers = move |reply: &Reply| has_all(reply, &numbers);
    reads.push((words([b"XINFO", b"STREAM", key]), Box::new(has_numbers)));
    if stream.groups.is_empty() {
        return reads;
    }
    let groups = stream.groups.iter().map(|group| {
        vec![
            ("name", bulk(&group.name)),
            ("consumers", integer(group.consumers.len())),
            ("pending", integer(group.pending.len())),
            ("last-delivered-id", bulk(&id_text(group.last))),
        ]
    });
    let groups: Vec<_> = groups.collect();
    let has_groups = move |reply: &Reply| match reply {
        Reply::Array(all) if all.len() == groups.len() => groups
            .iter()
            .all(|group| all.iter().any(|it| has_all(it, group))),
        _ => false,
    };
    reads.push((words([b"XINFO", b"GROUPS", key]), Box::new(has_groups)));
    for group in &stream.groups {
        for part in group.pending.chunks(PART) {
            let (first, last) = (id_text(part[0].id), id_text(part[part.len() - 1].id));
            let ask = words([b"XPENDING", key, &group.name, &first, &last, &count]);
            let pending = part.iter().map(|it| {
                let consumer = group.consumers.get(it.consumer);
                let consumer = consumer.map(|it| it.name.clone());
                (id_text(it.id), consumer.unwrap_or_default(), it.times)
            });
            let pending: Vec<_> = pending.collect();
            let is_pending = move |reply: &Reply| {
                let found = rows(reply).map(|row| pending_row(row).map(|it| (it.0, it.1, it.3)));
                found.eq(pending.iter().map(|it| Some(it.clone())))
            };
            reads.push((ask, Box::new(is_pending)));
        }
    }
    reads
}

/// A stream that is too large for `DUMP`.
pub(super) fn in_parts(
    server: &Server,
    link: &mut SourceLink,
    key: &[u8],
) -> Result<RdbValue, CommandFailed> {
    let info = ask(server, link, words([b"XINFO", b"STREAM", key]))?;
    let named_id = |reply: &Reply, name| named(reply, name).and_then(parsed).unwrap_or_default();
    let mut stream = RdbStream {
        entries: Vec::new(),
        last: named_id(&info, "last-generated-id"),
        added: 0,
        deleted: named_id(&info, "max-deleted-entry-id"),
        groups: Vec::new(),
    };
    let mut next = RdbStreamId::default();
    loop {
        let range = words([b"XRANGE", key, &id_text(next), b"+", b"COUNT", PAGE]);
        let reply = ask(server, link, range)?;
        let before = stream.entries.len();
        stream.entries.extend(rows(&reply).filter_map(entry));
        match stream.entries.last() {
            Some(last) if stream.entries.len() > before => next = behind(last.id),
            _ => break,
        }
    }
    // It may have grown meanwhile.
    let top = stream.entries.last().map(|entry| entry.id);
    stream.last = stream.last.max(top.unwrap_or_default());
    let added = named(&info, "entries-added").map_or(0, number);
    stream.added = added.max(stream.entries.len() as u64);
    let groups = ask(server, link, words([b"XINFO", b"GROUPS", key]))?;
    let Reply::Array(groups) = groups else {
        return Ok(RdbValue::Stream(stream));
    };
    for found in groups {
        let mut group = RdbStreamGroup {
            name: named(&found, "name").map(bytes).unwrap_or_default(),
            last: named_id(&found, "last-delivered-id"),
            read: match named(&found, "entries-read") {
                Some(Reply::Int(read)) => u64::try_from(*read).ok(),
                _ => None,
            },
            consumers: Vec::new(),
            pending: Vec::new(),
        };
        members(server, link, key, &mut group)?;
        stream.groups.push(group);
    }
    Ok(RdbValue::Stream(stream))
}

/// Reads the consumers and pending entries of a group.
fn members(
    server: &Server,
    link: &mut SourceLink,
    key: &[u8],
    group: &mut RdbStreamGroup,
) -> Result<(), CommandFailed> {
    let consumers = words([b"XINFO", b"CONSUMERS", key, &group.name]);
    let consumers = ask(server, link, consumers)?;
    if let Reply::Array(consumers) = consumers {
        let since = |reply: &Reply| match reply {
            Reply::Int(ms) => u64::try_from(*ms)
                .ok()
                .map(|ms| now_ms().saturating_sub(ms)),
            _ => None,
        };
        for it in consumers {
            let seen = named(&it, "idle").and_then(since).unwrap_or_default();
            group.consumers.push(RdbStreamConsumer {
                name: named(&it, "name").map(bytes).unwrap_or_default(),
                seen,
                active: named(&it, "inactive").map_or(Some(seen), since),
            });
        }
    }
    let mut next = RdbStreamId::default();
    loop {
        let from = id_text(next);
        let pending = words([b"XPENDING", key, &group.name, &from, b"+", PAGE]);
        let reply = ask(server, link, pending)?;
        let before = group.pending.len();
        for (id, consumer, idle, times) in rows(&reply).filter_map(pending_row) {
            let Some(id) = parsed(&Reply::Bulk(id)) else {
                continue;
            };
            next = behind(id);
            // A consumer that is gone meanwhile has no pending entries.
            let place = group.consumers.iter().position(|it| it.name == consumer);
            if let Some(consumer) = place {
                group.pending.push(RdbPendingEntry {
                    id,
                    given: now_ms().saturating_sub(idle),
                    times,
                    consumer,
                });
            }
        }
        if group.pending.len() == before {
            return Ok(());
        }
    }
}

fn ask(server: &Server, link: &mut SourceLink, command: Words) -> Result<Reply, CommandFailed> {
    match link.ask(command)? {
        Reply::Error(why) => Err(server.failed(why)),
        reply => Ok(reply),
    }
}

fn id_text(id: RdbStreamId) -> Vec<u8> {
    format!("{}-{}", id.ms, id.seq).into_bytes()
}

fn parsed(reply: &Reply) -> Option<RdbStreamId> {
    let Reply::Bulk(text) = reply else {
        return None;
    };
    let (ms, seq) = str::from_utf8(text).ok()?.split_once('-')?;
    Some(RdbStreamId {
        ms: ms.parse().ok()?,
        seq: seq.parse().ok()?,
    })
}

/// The id behind another one.
fn behind(id: RdbStreamId) -> RdbStreamId {
    match id.seq.checked_add(1) {
        Some(seq) => RdbStreamId { seq, ..id },
        None => RdbStreamId {
            ms: id.ms.saturating_add(1),
            seq: 0,
        },
    }
}

fn bulk(bytes: &[u8]) -> Reply {
    Reply::Bulk(bytes.to_vec())
}

fn bytes(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes.clone(),
        _ => Vec::new(),
    }
}

fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Int(number) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

/// The rows of a reply.
fn rows(reply: &Reply) -> impl Iterator<Item = &[Reply]> {
    let all = match reply {
        Reply::Array(all) => &all[..],
        _ => &[],
    };
    all.iter().map(|row| match row {
        Reply::Array(row) => &row[..],
        _ => &[],
    })
}

fn entry(row: &[Reply]) -> Option<RdbStreamEntry> {
    let [id, Reply::Array(fields)] = row else {
        return None;
    };
    let pairs = fields.chunks_exact(2);
    Some(RdbStreamEntry {
        id: parsed(id)?,
        fields: pairs
            .map(|pair| (bytes(&pair[0]), bytes(&pair[1])))
            .collect(),
    })
}

/// The id, the consumer, for how long it has it, and how often it was given.
fn pending_row(row: &[Reply]) -> Option<(Vec<u8>, Vec<u8>, u64, u64)> {
    let [id, consumer, idle, times] = row else {
        return None;
    };
    Some((bytes(id), bytes(consumer), number(idle), number(times)))
}

/// What an answer with names and values has under a name.
fn named<'a>(reply: &'a Reply, name: &str) -> Option<&'a Reply> {
    let Reply::Array(all) = reply else {
        return None;
    };
    let mut pairs = all.chunks_exact(2);
    let pair = pairs.find(|pair| pair[0] == bulk(name.as_bytes()))?;
    Some(&pair[1])
}

fn has_all(reply: &Reply, expected: &[(&str, Reply)]) -> bool {
    let has = |(name, value): &(&str, Reply)| named(reply, name) == Some(value);
    expected.iter().all(has)
}
