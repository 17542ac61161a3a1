//! A key as the commands that write it.

use super::Found;
use super::link::{Words, words};
use super::streams;
use doyen::resp::frame::ARGS_MAX;
use doyen_rdb::RdbValue;
use std::collections::BTreeMap;

/// A collection that takes more is written in parts.
const WHOLE_BYTES_MAX: usize = 256 << 10;
/// About how large a part is.
const PART_BYTES: usize = 64 << 10;
/// What a node may count for an argument besides its bytes, at most.
const ARGUMENT_BYTES: usize = 16;

/// A key that is to be written.
#[derive(Debug)]
pub(super) struct Restoring {
    pub(super) of: Found,
    /// What it counts.
    pub(super) bytes: usize,
}

impl Restoring {
    pub(super) fn new(of: Found) -> Self {
        let bytes = of.key.len() + of.value.weight();
        Self { of, bytes }
    }

    /// Whether nothing is left of it at this time.
    pub(super) fn has_expired(&self, now: u64) -> bool {
        let is_over = |at: Option<u64>| at.is_some_and(|at| at <= now);
        let is_empty = match &self.of.value {
            RdbValue::Hash(all) => all.iter().all(|it| is_over(it.deadline)),
            _ => false,
        };
        is_over(self.of.deadline) || is_empty
    }

    /// The commands that write it, in their order, for nodes whose largest value has `value_max`
    /// bytes. Done again, they leave the same. `Err`: it cannot be written, because of its type or
    /// its size.
    pub(super) fn commands(&self, value_max: usize) -> Result<Vec<Words>, String> {
        let (key, value) = (&self.of.key, &self.of.value);
        let deadline = self.of.deadline.map(text);
        if let RdbValue::String(bytes) = value {
            if bytes.len() > value_max {
                return Err(too_large("the value", value_max));
            }
            let mut set = words([b"SET", key, bytes]);
            set.extend(
                deadline
                    .map(|at| [b"PXAT".to_vec(), at])
                    .into_iter()
                    .flatten(),
            );
            return Ok(vec![set]);
        }
        if self.bytes <= WHOLE_BYTES_MAX {
            let payload = doyen_rdb::dump(value).map_err(|_| unknown(value))?;
            let at = deadline.unwrap_or_else(|| b"0".to_vec());
            return Ok(vec![words([
                b"RESTORE", key, &at, &payload, b"ABSTTL", b"REPLACE",
            ])]);
        }
        let parts = self.parts()?;
        // The first command deletes what is there, so no later one may be refused.
        for arguments in parts.iter().map(|part| &part[2..]) {
            if arguments.len() > ARGS_MAX - 2 {
                let why = "it has an entry with more fields than a command may have";
                return Err(why.to_owned());
            }
            let bytes = arguments.iter().map(|it| it.len() + ARGUMENT_BYTES);
            if bytes.sum::<usize>() > value_max {
                return Err(too_large("an element or an entry", value_max));
            }
        }
        let mut all = vec![words([b"DEL", key])];
        all.extend(parts);
        if let Some(at) = deadline {
            all.push(words([b"PEXPIREAT", key, &at]));
        }
        Ok(all)
    }

    /// The commands that write a large collection.
    fn parts(&self) -> Result<Vec<Words>, String> {
        let key = &self.of.key;
        Ok(match &self.of.value {
            RdbValue::List(all) => in_parts("RPUSH", key, all.iter().map(|it| vec![it.clone()])),
            RdbValue::Set(all) => in_parts("SADD", key, all.iter().map(|it| vec![it.clone()])),
            RdbValue::SortedSet(all) => {
                let pairs = all
                    .iter()
                    .map(|it| vec![score(it.score), it.member.clone()]);
                in_parts("ZADD", key, pairs)
            }
            RdbValue::Hash(all) => {
                let pairs = all
                    .iter()
                    .map(|it| vec![it.field.clone(), it.value.clone()]);
                let mut parts = in_parts("HSET", key, pairs);
                let mut dated: BTreeMap<u64, Vec<&Vec<u8>>> = BTreeMap::new();
                for it in all {
                    if let Some(at) = it.deadline {
                        dated.entry(at).or_default().push(&it.field);
                    }
                }
                for (at, fields) in dated {
                    let fields = fields.into_iter().map(|field| vec![field.clone()]);
                    for mut part in in_parts("HPEXPIREAT", key, fields) {
                        let (at, count) = (text(at), text(part.len() as u64 - 2));
                        part.splice(2..2, words([&at, b"FIELDS", &count]));
                        parts.push(part);
                    }
                }
                parts
            }
            RdbValue::Stream(stream) => streams::parts(key, stream),
            other => return Err(unknown(other)),
        })
    }
}

fn too_large(what: &str, value_max: usize) -> String {
    format!(
        "{what} is too large, and the key stays as it was: nodes take about {value_max} bytes; \
         start them with a larger --value-max"
    )
}

fn unknown(value: &RdbValue) -> String {
    format!("there are no values of the type {} here", value.type_name())
}

/// Commands that have some of the items each. A large item comes alone: nodes limit all that a
/// command brings.
fn in_parts(name: &str, key: &[u8], items: impl Iterator<Item = Words>) -> Vec<Words> {
    let mut parts: Vec<Words> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let more = item.iter().map(|word| word.len() + 32).sum::<usize>();
        if parts.is_empty() || bytes + more > PART_BYTES {
            parts.push(words([name.as_bytes(), key]));
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.extend(item);
        }
    }
    parts
}

pub(super) fn text(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A score in as many digits as it needs.
pub(super) fn score(score: f64) -> Vec<u8> {
    match score {
        f64::INFINITY => b"inf".to_vec(),
        f64::NEG_INFINITY => b"-inf".to_vec(),
        score => score.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_rdb::{
        HashField, RdbPendingEntry, RdbStream, RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup,
        RdbStreamId,
    };

    fn commands(value: RdbValue, deadline: Option<u64>) -> Vec<Words> {
        let (database, key) = (0, b"k".to_vec());
        let found = Found {
            database,
            key,
            deadline,
            value,
        };
        let restoring = Restoring::new(found);
        restoring.commands(16 << 20).expect("it is written")
    }

    fn is_refused(value: RdbValue, value_max: usize) -> bool {
        let (database, key, deadline) = (0, b"k".to_vec(), None);
        let found = Found {
            database,
            key,
            deadline,
            value,
        };
        Restoring::new(found).commands(value_max).is_err()
    }

    /// The key was deleted, and written without the element.
    #[test]
    fn what_has_a_part_that_is_too_large_is_not_begun() {
        let max = 1 << 20;
        let near = vec![b'x'; max - 100];
        let above = vec![b'x'; max + 1];
        let field = |value: &Vec<u8>| HashField {
            field: vec![b'f'; 100],
            value: value.clone(),
            deadline: None,
        };
        assert!(is_refused(RdbValue::String(above.clone()), max));
        assert!(!is_refused(RdbValue::String(near.clone()), max));
        let list = |last: &Vec<u8>| RdbValue::List(vec![vec![b'x'; 50_000], last.clone()]);
        assert!(is_refused(list(&above), max));
        assert!(!is_refused(list(&near), max), "it comes alone");
        assert!(is_refused(RdbValue::Set(vec![above.clone()]), max));
        assert!(is_refused(RdbValue::Hash(vec![field(&near)]), max));
        let entry = |fields| {
            RdbValue::Stream(RdbStream {
                entries: vec![RdbStreamEntry {
                    id: RdbStreamId { ms: 1, seq: 0 },
                    fields,
                }],
                last: RdbStreamId { ms: 1, seq: 0 },
                added: 1,
                deleted: RdbStreamId::default(),
                groups: Vec::new(),
            })
        };
        let short = || (vec![b'f'; 10], vec![b'v'; 10]);
        assert!(is_refused(entry(vec![short(), (near, above)]), max));
        assert!(!is_refused(entry(vec![short(); 20_000]), max));
        assert!(is_refused(entry(vec![short(); 70_000]), 16 << 20));
    }

    #[test]
    fn a_string_is_set_and_a_small_collection_restored() {
        let set = commands(RdbValue::String(b"v".to_vec()), Some(9));
        assert_eq!(set, [words([b"SET", b"k", b"v", b"PXAT", b"9"])]);
        let restored = commands(RdbValue::Set(vec![b"m".to_vec()]), None);
        assert_eq!(restored[0][..3], words([b"RESTORE", b"k", b"0"]));
        assert_eq!(restored[0][4..], words([b"ABSTTL", b"REPLACE"]));
    }

    #[test]
    fn a_large_stream_is_written_in_parts_that_have_all_of_it() {
        let id = |ms| RdbStreamId { ms, seq: 0 };
        let entry = |ms| RdbStreamEntry {
            id: id(ms),
            fields: vec![(b"f".to_vec(), vec![b'x'; 1_000])],
        };
        let pending = |ms, times| RdbPendingEntry {
            id: id(ms),
            given: 9,
            times,
            consumer: 0,
        };
        let stream = RdbStream {
            entries: (3..=502).filter(|ms| *ms != 4).map(entry).collect(),
            last: id(900),
            added: 777,
            deleted: id(3),
            groups: vec![RdbStreamGroup {
                name: b"g".to_vec(),
                last: id(400),
                read: None,
                consumers: vec![RdbStreamConsumer {
                    name: b"c".to_vec(),
                    seen: 1,
                    active: None,
                }],
                pending: vec![pending(1, 1), pending(2, 1), pending(4, 2)],
            }],
        };
        let parts = commands(RdbValue::Stream(stream), None);
        let shown = |part: &Words| String::from_utf8(part.join(&b' ')).expect("text");
        assert_eq!(parts[0], words([b"DEL", b"k"]));
        // Two entries that were trimmed, and one that was deleted, are pending.
        assert_eq!(parts[2], words([b"XADD", b"k", b"2-0", b"", b""]));
        assert_eq!(parts[4], words([b"XADD", b"k", b"4-0", b"", b""]));
        assert_eq!(parts[502][..3], words([b"XADD", b"k", b"502-0"]));
        assert_eq!(
            parts[503..].iter().map(shown).collect::<Vec<_>>(),
            [
                "XGROUP CREATE k g 400-0 MKSTREAM ENTRIESREAD -1",
                "XGROUP CREATECONSUMER k g c",
                "XCLAIM k g c 0 1-0 2-0 TIME 9 RETRYCOUNT 1 FORCE JUSTID",
                "XCLAIM k g c 0 4-0 TIME 9 RETRYCOUNT 2 FORCE JUSTID",
                "XTRIM k MINID 3-0",
                "XDEL k 4-0",
                "XSETID k 900-0 ENTRIESADDED 777 MAXDELETEDID 3-0",
            ]
        );
    }

    #[test]
    fn a_large_collection_is_written_in_parts_that_have_all_of_it() {
        let field = |n: u64| HashField {
            field: text(n),
            value: vec![b'x'; 1_000],
            deadline: (n < 5).then_some(77),
        };
        let parts = commands(RdbValue::Hash((0..1_000).map(field).collect()), Some(9));
        assert_eq!(parts[0], words([b"DEL", b"k"]));
        assert_eq!(parts[parts.len() - 1], words([b"PEXPIREAT", b"k", b"9"]));
        let dates = &parts[parts.len() - 2];
        assert_eq!(
            dates[..5],
            words([b"HPEXPIREAT", b"k", b"77", b"FIELDS", b"5"])
        );
        let sets = &parts[1..parts.len() - 2];
        assert!(sets.len() > 10 && sets.iter().all(|part| part[0] == b"HSET"));
        assert_eq!(
            sets.iter().map(|part| part.len() / 2 - 1).sum::<usize>(),
            1_000
        );
    }
}
