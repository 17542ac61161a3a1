//! Streams: entries with ids that only grow, and groups of consumers that share them.
//!
//! ```text
//!   m                                 ─> last id, entries ever added, highest deleted id
//!   e id                              ─> fields and values of an entry, one after the other
//!   g group                           ─> id that was delivered last, entries that were read
//!   c length of group, group, consumer ─> when the consumer asked last, and got an entry last
//!   p length of group, group, id      ─> who has an entry, since when, and how often it was given
//! ```
//! A stream is a table of such rows, however small it is, in the order of their bytes. Ids and the
//! length of a group's name are big-endian. An empty stream has a row `m`, so its key exists.

use super::{Layout, OrderedRows, RowOrder, Type, TypeEvents};
use crate::value::kind::Encoding;
use doyen_placement::level::SORTED;

pub(super) static STREAM: Type = Type {
    name: "stream",
    level: SORTED,
    encodings: &[ROWS],
    events: TypeEvents {
        class: b't',
        put: "xadd",
        removed: "xdel",
    },
    layout: Layout::Ordered(&OrderedRows {
        order: RowOrder {
            compare: |one, other| one.key().cmp(other.key()),
            number: |row| {
                let (key, mut first) = (row.key(), [0; 8]);
                let length = key.len().min(first.len());
                first[..length].copy_from_slice(&key[..length]);
                u64::from_be_bytes(first)
            },
            weight: |_| 1,
            valued: false,
            grows_at_ends: true,
        },
        encoding: |_| ROWS,
    }),
};

const ROWS: Encoding = Encoding::new(12, "stream");

const ID_BYTES: usize = 16;

/// The id of an entry: milliseconds, and a number among those of the same millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl StreamId {
    /// No entry has this id, and all ids are above it.
    pub(crate) const ZERO: Self = Self { ms: 0, seq: 0 };
    /// No id is above it.
    pub(crate) const MAX: Self = Self {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    const fn number(self) -> u128 {
        (self.ms as u128) << 64 | self.seq as u128
    }

    const fn of_number(number: u128) -> Self {
        Self {
            ms: (number >> 64) as u64,
            seq: number as u64,
        }
    }

    /// The next one. `None`: there is none.
    pub(crate) fn next(self) -> Option<Self> {
        self.number().checked_add(1).map(Self::of_number)
    }

    /// The one before. `None`: there is none.
    pub(crate) fn previous(self) -> Option<Self> {
        self.number().checked_sub(1).map(Self::of_number)
    }

    /// As it lies in rows.
    pub(crate) const fn bytes(self) -> [u8; ID_BYTES] {
        self.number().to_be_bytes()
    }

    /// The id that these bytes begin with. If they are too few, 0-0.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let number = bytes.first_chunk().copied().map_or(0, u128::from_be_bytes);
        Self::of_number(number)
    }

    /// Ids that lie one after the other.
    pub(crate) fn all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.chunks_exact(ID_BYTES).map(Self::of_bytes)
    }

    /// As two numbers of a procedure.
    pub(crate) const fn numbers(self) -> [i64; 2] {
        [self.ms.cast_signed(), self.seq.cast_signed()]
    }

    /// What two numbers of a procedure say.
    pub(crate) const fn of_numbers(ms: i64, seq: i64) -> Self {
        Self {
            ms: ms.cast_unsigned(),
            seq: seq.cast_unsigned(),
        }
    }

    /// As clients see it.
    pub(crate) fn text(self) -> String {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        [ms.format(self.ms), "-", seq.format(self.seq)].concat()
    }

    /// What a text says, `ms` or `ms-seq`. `None`: it is no id.
    pub(crate) fn parse(text: &[u8], missing_seq: u64) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (ms, seq) = match text.split_once('-') {
            Some((ms, seq)) => (ms, seq.parse().ok()?),
            None => (text, missing_seq),
        };
        Some(Self {
            ms: ms.parse().ok()?,
            seq,
        })
    }
}

/// The key of the row with [`StreamMeta`].
pub(crate) const META: &[u8] = b"m";
/// How the keys of rows with groups begin.
pub(crate) const GROUPS: &[u8] = b"g";
const ENTRY: u8 = b'e';
const CONSUMER: u8 = b'c';
const PENDING: u8 = b'p';

/// The key of an entry's row.
pub(crate) fn entry_key(id: StreamId) -> [u8; 1 + ID_BYTES] {
    let mut key = [ENTRY; 1 + ID_BYTES];
    key[1..].copy_from_slice(&id.bytes());
    key
}

/// The id in the key of an entry's row, or of the row of a pending entry.
pub(crate) fn id_of_key(key: &[u8]) -> StreamId {
    let begin = key.len().saturating_sub(ID_BYTES);
    StreamId::of_bytes(&key[begin..])
}

/// The key of a group's row.
pub(crate) fn group_key(group: &[u8]) -> Vec<u8> {
    [GROUPS, group].concat()
}

fn in_group(tag: u8, group: &[u8], rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(group.len()).unwrap_or(u32::MAX);
    [&[tag], &length.to_be_bytes()[..], group, rest].concat()
}

/// The key of a consumer's row. Without a name: how the keys of all of a group begin.
pub(crate) fn consumer_key(group: &[u8], consumer: &[u8]) -> Vec<u8> {
    in_group(CONSUMER, group, consumer)
}

/// The key of a pending entry's row.
pub(crate) fn pending_key(group: &[u8], id: StreamId) -> Vec<u8> {
    in_group(PENDING, group, &id.bytes())
}

/// How the keys of the rows of a group's pending entries begin.
pub(crate) fn pending_keys(group: &[u8]) -> Vec<u8> {
    in_group(PENDING, group, &[])
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    let number = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
    number.map_or(0, u64::from_be_bytes)
}

/// A number that may be missing, as it lies in a row: one more, or 0.
fn put_optional(out: &mut Vec<u8>, number: Option<u64>) {
    let number = number.map_or(0, |number| number.saturating_add(1));
    out.extend_from_slice(&number.to_be_bytes());
}

/// What is to be known of a stream besides its entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StreamMeta {
    /// The highest id that was ever given.
    pub(crate) last: StreamId,
    /// How many entries were ever added.
    pub(crate) added: u64,
    /// The highest id of an entry that a command has deleted by its id.
    pub(crate) deleted: StreamId,
}

impl StreamMeta {
    pub(crate) fn value(self) -> [u8; 2 * ID_BYTES + 8] {
        let mut value = [0; 2 * ID_BYTES + 8];
        let (last, rest) = value.split_at_mut(ID_BYTES);
        let (added, deleted) = rest.split_at_mut(8);
        last.copy_from_slice(&self.last.bytes());
        added.copy_from_slice(&self.added.to_be_bytes());
        deleted.copy_from_slice(&self.deleted.bytes());
        value
    }

    pub(crate) fn of_value(value: &[u8]) -> Self {
        let deleted = value.get(ID_BYTES + 8..).unwrap_or_default();
        Self {
            last: StreamId::of_bytes(value),
            added: number_at(value, ID_BYTES),
            deleted: StreamId::of_bytes(deleted),
        }
    }
}

/// A group of consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamGroup {
    /// The id that was delivered last.
    pub(crate) last: StreamId,
    /// How many of the entries that were ever added it has read. `None`: that is not known.
    pub(crate) read: Option<u64>,
}

impl StreamGroup {
    pub(crate) fn value(self) -> Vec<u8> {
        let mut value = self.last.bytes().to_vec();
        put_optional(&mut value, self.read);
        value
    }

    pub(crate) fn of_value(value: &[u8]) -> Self {
        Self {
            last: StreamId::of_bytes(value),
            read: number_at(value, ID_BYTES).checked_sub(1),
        }
    }
}

/// A consumer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamConsumer {
    /// When it asked last, in milliseconds of wall time.
    pub(crate) seen_ms: u64,
    /// When it got an entry last. `None`: never.
    pub(crate) active_ms: Option<u64>,
}

impl StreamConsumer {
    pub(crate) fn value(self) -> Vec<u8> {
        let mut value = self.seen_ms.to_be_bytes().to_vec();
        put_optional(&mut value, self.active_ms);
        value
    }

    pub(crate) fn of_value(value: &[u8]) -> Self {
        Self {
            seen_ms: number_at(value, 0),
            active_ms: number_at(value, 8).checked_sub(1),
        }
    }
}

/// An entry that a consumer was given and has not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingEntry {
    /// When it was given last, in milliseconds of wall time.
    pub(crate) given_ms: u64,
    /// How often.
    pub(crate) times: u64,
    pub(crate) consumer: Vec<u8>,
}

impl PendingEntry {
    pub(crate) fn value(&self) -> Vec<u8> {
        let numbers = [self.given_ms.to_be_bytes(), self.times.to_be_bytes()];
        [&numbers.concat()[..], &self.consumer].concat()
    }

    pub(crate) fn of_value(value: &[u8]) -> Self {
        Self {
            given_ms: number_at(value, 0),
            times: number_at(value, 8),
            consumer: value.get(16..).unwrap_or_default().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_in_the_order_of_ids() {
        let id = |ms, seq| StreamId { ms, seq };
        let all = [
            StreamId::ZERO,
            id(0, 1),
            id(0, u64::MAX),
            id(1, 0),
            id(256, 7),
            StreamId::MAX,
        ];
        assert!(all.is_sorted());
        assert!(all.is_sorted_by_key(|id| entry_key(*id)));
        for id in all {
            assert_eq!(id_of_key(&entry_key(id)), id);
            assert_eq!(id_of_key(&pending_key(b"g", id)), id);
            assert_eq!(StreamId::parse(id.text().as_bytes(), 9), Some(id));
            let [ms, seq] = id.numbers();
            assert_eq!(StreamId::of_numbers(ms, seq), id);
        }
        assert_eq!(id(0, u64::MAX).next(), Some(id(1, 0)));
        assert_eq!(id(1, 0).previous(), Some(id(0, u64::MAX)));
        assert_eq!(
            (StreamId::ZERO.previous(), StreamId::MAX.next()),
            (None, None)
        );
    }

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let parsed = |text: &str| StreamId::parse(text.as_bytes(), 7).map(StreamId::text);
        assert_eq!(parsed("5").as_deref(), Some("5-7"));
        assert_eq!(parsed("005-03").as_deref(), Some("5-3"));
        for text in [
            "",
            "-",
            "5-",
            "-5",
            "5-3-1",
            "a",
            "18446744073709551616",
            "5-*",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn what_lies_in_rows_comes_back_and_wrong_bytes_are_no_harm() {
        let id = StreamId { ms: 3, seq: 9 };
        let meta = StreamMeta {
            last: id,
            added: 5,
            deleted: StreamId::MAX,
        };
        assert_eq!(StreamMeta::of_value(&meta.value()), meta);
        assert_eq!(StreamMeta::of_value(b"short"), StreamMeta::default());
        for number in [None, Some(0), Some(77)] {
            let group = StreamGroup {
                last: id,
                read: number,
            };
            assert_eq!(StreamGroup::of_value(&group.value()), group);
            let consumer = StreamConsumer {
                seen_ms: 4,
                active_ms: number,
            };
            assert_eq!(StreamConsumer::of_value(&consumer.value()), consumer);
        }
        let pending = PendingEntry {
            given_ms: 8,
            times: 2,
            consumer: b"c".to_vec(),
        };
        assert_eq!(PendingEntry::of_value(&pending.value()), pending);
        assert!(PendingEntry::of_value(b"").consumer.is_empty());
    }

    #[test]
    fn no_group_has_rows_of_another_one() {
        let keys = consumer_key(b"a", b"");
        assert!(consumer_key(b"a", b"bc").starts_with(&keys));
        assert!(!consumer_key(b"ab", b"c").starts_with(&keys));
    }
}
