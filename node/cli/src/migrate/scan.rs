//! Reads all keys of a running server with `SCAN` and `DUMP`.

use super::Found;
use super::link::{Server, SourceLink, Words, words};
use super::streams;
use super::writers::now_ms;
use crate::CommandFailed;
use doyen::resp::client::Reply;
use doyen_rdb::{HashField, RdbValue, ScoredMember, VALUE_BYTES_MAX, shown_key};
use std::collections::BTreeMap;

/// Keys that are asked for at once.
const PAGE: &[u8] = b"500";
/// Elements of a large collection that are asked for at once.
const PART: &[u8] = b"1000";

/// Hands each key out, with its number. A key that is written meanwhile may come as it was before
/// or after that.
pub(super) fn each(
    server: &Server,
    mut take: impl FnMut(Found, u64) -> Result<(), CommandFailed>,
) -> Result<(), CommandFailed> {
    let mut link = SourceLink::connect(server)?;
    let mut number = 0;
    for database in link.databases()? {
        link.select(database)?;
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = page(server, &mut link, [b"SCAN", &cursor, b"COUNT", PAGE])?;
            for found in dumped(server, &mut link, database, keys)? {
                number += 1;
                take(found, number)?;
            }
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
    }
    Ok(())
}

/// A page of a scan, and where the next one begins.
fn page<const N: usize>(
    server: &Server,
    link: &mut SourceLink,
    command: [&[u8]; N],
) -> Result<(Vec<u8>, Vec<Vec<u8>>), CommandFailed> {
    let reply = link.ask(words(command))?;
    if let Reply::Error(why) = reply {
        return Err(server.failed(why));
    }
    let page = match reply {
        Reply::Array(parts) => <[Reply; 2]>::try_from(parts).ok(),
        _ => None,
    };
    match page {
        Some([Reply::Bulk(next), Reply::Array(all)]) => Ok((next, all_bulks(all))),
        _ => Err(server.failed("it does not answer a scan as Redis does")),
    }
}

fn all_bulks(all: Vec<Reply>) -> Vec<Vec<u8>> {
    let bulk = |reply| match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    };
    all.into_iter().filter_map(bulk).collect()
}

/// The keys with what they hold. Those that are gone are left out.
fn dumped(
    server: &Server,
    link: &mut SourceLink,
    database: u64,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<Found>, CommandFailed> {
    let asked = |key: &Vec<u8>| [words([b"DUMP", key]), words([b"PEXPIRETIME", key])];
    let asked: Vec<Words> = keys.iter().flat_map(asked).collect();
    let mut replies = link.pipeline(&asked)?.into_iter();
    let mut all = Vec::new();
    for key in keys {
        let (Some(payload), Some(deadline)) = (replies.next(), replies.next()) else {
            break;
        };
        let value = match payload {
            Reply::Bulk(payload) => doyen_rdb::restore(&payload, VALUE_BYTES_MAX)
                .map_err(|e| server.failed(e.of_key(&key)))?,
            Reply::Nil => continue,
            Reply::Error(why) => match in_parts(server, link, &key)? {
                Some(value) => value,
                None => {
                    return Err(server.failed(format!("DUMP \"{}\": {why}", shown_key(&key))));
                }
            },
            _ => return Err(server.failed("it does not answer DUMP as Redis does")),
        };
        let deadline = match deadline {
            Reply::Int(at) => u64::try_from(at).ok(),
            // Redis before 7.0.
            _ => match link.ask(words([b"PTTL", &key]))? {
                Reply::Int(ms) => u64::try_from(ms).ok().map(|ms| now_ms().saturating_add(ms)),
                _ => None,
            },
        };
        all.push(Found {
            database,
            key,
            deadline,
            value,
        });
    }
    Ok(all)
}

/// What a key holds that is too large for `DUMP`. `None`: it is no collection.
fn in_parts(
    server: &Server,
    link: &mut SourceLink,
    key: &[u8],
) -> Result<Option<RdbValue>, CommandFailed> {
    let kind = match link.ask(words([b"TYPE", key]))? {
        Reply::Simple(kind) => kind,
        _ => String::new(),
    };
    let scan: &[u8] = match &*kind {
        "hash" => b"HSCAN",
        "set" => b"SSCAN",
        "zset" => b"ZSCAN",
        "list" => {
            let all = link.ask(words([b"LRANGE", key, b"0", b"-1"]))?;
            return Ok(match all {
                Reply::Array(all) => Some(RdbValue::List(all_bulks(all))),
                _ => None,
            });
        }
        "stream" => return streams::in_parts(server, link, key).map(Some),
        _ => return Ok(None),
    };
    // A scan may answer an element twice.
    let (mut all, mut cursor) = (BTreeMap::new(), b"0".to_vec());
    loop {
        let (next, items) = page(server, link, [scan, key, &cursor, b"COUNT", PART])?;
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            let value = if kind == "set" {
                Vec::new()
            } else {
                items.next().unwrap_or_default()
            };
            all.insert(item, value);
        }
        cursor = next;
        if cursor == b"0" {
            break;
        }
    }
    Ok(Some(match &*kind {
        "set" => RdbValue::Set(all.into_keys().collect()),
        "zset" => {
            let score = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok();
            let scored = |(member, text): (Vec<u8>, Vec<u8>)| {
                let score = score(&text).unwrap_or_default();
                ScoredMember { member, score }
            };
            RdbValue::SortedSet(all.into_iter().map(scored).collect())
        }
        _ => RdbValue::Hash(fields(link, key, all)?),
    }))
}

/// Fields with their deadlines.
fn fields(
    link: &mut SourceLink,
    key: &[u8],
    all: BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<Vec<HashField>, CommandFailed> {
    let plain = |(field, value)| HashField {
        field,
        value,
        deadline: None,
    };
    let mut all: Vec<HashField> = all.into_iter().map(plain).collect();
    for part in all.chunks_mut(1_000) {
        let count = part.len().to_string();
        let mut ask = words([b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()]);
        ask.extend(part.iter().map(|it| it.field.clone()));
        // A server without such deadlines answers an error.
        if let Reply::Array(deadlines) = link.ask(ask)? {
            for (it, deadline) in part.iter_mut().zip(deadlines) {
                if let Reply::Int(at) = deadline {
                    it.deadline = u64::try_from(at).ok();
                }
            }
        }
    }
    Ok(all)
}
