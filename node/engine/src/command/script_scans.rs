//! `KEYS` and `SCAN` of scripts. A script has the keys of its partition, so it may list them if
//! these are all keys of the keyspace.

use super::rows::Rows;
use super::{Arguments, NOT_AN_INTEGER, SYNTAX, is};
use crate::command::pattern::Pattern;
use crate::value::integer::integer;
use crate::value::kind::Kind;
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_scripts::ScriptReply;

/// The most bytes of keys that `KEYS` answers, each with what it costs besides: a script has not
/// much more memory.
const ANSWER_BYTES_MAX: usize = 8 << 20;
const KEY_OVERHEAD: usize = 64;
/// The same limit as outside scripts.
const PATTERN_BYTES_MAX: usize = 1 << 10;
/// Keys that are looked at in one step.
const STEP: u32 = 1_000;
/// A cursor of a client has the number of the partition above these bits.
const CURSOR_BITS: u64 = 0xFFFF_FFFF;

pub(super) const ELSEWHERE: &str = "ERR This Redis command is not allowed from script: the keys \
    are in several partitions; with --preset one-server, all are in one, and scripts may list them";
const TOO_MANY: &str = "ERR too many keys for one answer in a script: they and their overhead take \
    more than 8388608 bytes; call SCAN, or KEYS with a narrower pattern";

/// What `KEYS` or `SCAN` answers.
///
/// # Errors
/// An argument is wrong, or there are too many keys.
pub(super) fn answer(
    words: &dyn Arguments,
    map: MapId,
    rows: &mut Rows<'_>,
) -> Result<ScriptReply, &'static str> {
    if is(words.get(0), "KEYS") {
        return keys(&pattern_of(words.get(1))?, map, rows);
    }
    let cursor = std::str::from_utf8(words.get(1)).ok();
    let cursor = cursor.and_then(|cursor| cursor.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")? & CURSOR_BITS;
    let (mut count, mut pattern, mut kind) = (10, None, None);
    let mut at = 2;
    while at < words.len() {
        let option = words.get(at);
        if at + 1 >= words.len() {
            return Err(SYNTAX);
        }
        let given = words.get(at + 1);
        if is(option, "COUNT") {
            let asked = integer(given).ok_or(NOT_AN_INTEGER)?;
            if asked < 1 {
                return Err(SYNTAX);
            }
            count = u32::try_from(asked).unwrap_or(u32::MAX);
        } else if is(option, "MATCH") {
            pattern = Some(pattern_of(given)?);
        } else if is(option, "TYPE") {
            kind = Some(Kind::ALL.into_iter().find(|kind| is(given, kind.name())));
        } else {
            return Err(SYNTAX);
        }
        at += 2;
    }
    let (next, found) = rows.scan(map, (cursor, count, kind.flatten()));
    // No key holds a type that is not known.
    let none = kind == Some(None);
    let found = found
        .into_iter()
        .filter(|key| !none && pattern.as_ref().is_none_or(|pattern| pattern.matches(key)));
    Ok(ScriptReply::Array(vec![
        ScriptReply::bulk(next.to_string()),
        ScriptReply::Array(found.map(ScriptReply::Bulk).collect()),
    ]))
}

fn pattern_of(text: &[u8]) -> Result<Pattern, &'static str> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err("ERR the pattern is too long: at most 1024 bytes");
    }
    Ok(Pattern::new(text))
}

fn keys(pattern: &Pattern, map: MapId, rows: &mut Rows<'_>) -> Result<ScriptReply, &'static str> {
    let (mut all, mut bytes, mut cursor) = (Vec::new(), 0, 0);
    loop {
        let (next, found): (u64, Vec<Bytes>) = rows.scan(map, (cursor, STEP, None));
        for key in found.into_iter().filter(|key| pattern.matches(key)) {
            bytes += key.len() + KEY_OVERHEAD;
            all.push(ScriptReply::Bulk(key));
        }
        if bytes > ANSWER_BYTES_MAX {
            return Err(TOO_MANY);
        }
        // If the script has done too much, all of it is refused when it has run.
        if next == 0 || rows.is_within_budget().is_err() {
            return Ok(ScriptReply::Array(all));
        }
        cursor = next;
    }
}
