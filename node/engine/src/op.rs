//! Operations on one key or one partition, and their outcomes: what RESP, the library and
//! forwarding all speak.

use super::Extended;
use super::entry::Entry;
use bytes::Bytes;
use doyen_placement::{KeyspaceId, MapId, PartitionId};
use std::fmt;
use std::ops::Deref;

/// A stored value: bytes, shared with the store that they came from.
#[derive(Clone)]
pub struct Value(Entry);

impl Value {
    pub(super) fn of(entry: &Entry) -> Self {
        Self(entry.clone())
    }

    /// Whether the store, the log or anybody else holds it too: it costs nothing of its own.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Entry::new(&[], bytes, 0, 0))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.value()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// An operation, on a key or on a partition.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// On one key.
    Key(Operation),
    /// On a partition.
    Partition(PartitionOperation),
}

impl Work {
    /// Whether it may change something.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        match self {
            Self::Key(op) => op.action.is_write(),
            Self::Partition(op) => matches!(op.action, PartitionAction::Clear),
        }
    }

    /// Whether, on the same partition, this may change what `other` sees or does.
    pub fn concerns(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(op), Self::Key(other)) => op.map == other.map && op.key == other.key,
            (Self::Partition(op), Self::Key(other)) => op.map == other.map,
            // Whoever asks for something of a whole partition waits for it.
            (_, Self::Partition(_)) => false,
        }
    }
}

/// An operation on one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Where the key lives.
    pub keyspace: KeyspaceId,
    /// The map.
    pub map: MapId,
    /// The key, as the caller gave it. A slice of the connection's read buffer: no allocation.
    pub key: Bytes,
    /// What to do.
    pub action: Action,
}

/// What an operation does to its key. Each is atomic.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The value. → `Bulk` or `Nil`
    Get,
    /// Length of the value. → `Int`
    Strlen,
    /// Whether it is there. → `Int` 0 or 1
    Exists,
    /// Milliseconds to live: -2 absent, -1 without expiry. → `Int`
    PTtl,
    /// Unix milliseconds of the deadline: -2 absent, -1 without expiry. → `Int`
    PExpireTime,
    /// Write. → `Ok`, or `Nil` where the condition fails; with `get`, the old value
    Set {
        /// The value.
        value: Bytes,
        /// When to write at all.
        condition: Condition,
        /// The deadline to give.
        expiry: Expiry,
        /// Answer with the old value.
        get: bool,
    },
    /// Write if the present value is `expected` (`None`: if absent). → `Int` 1 or 0
    CompareAndSwap {
        /// The value that must be there.
        expected: Option<Bytes>,
        /// The value to write.
        value: Bytes,
    },
    /// Read, and change the deadline. → `Bulk` or `Nil`
    GetEx {
        /// The deadline to give; `Keep` leaves it.
        expiry: Expiry,
    },
    /// Read and delete. → `Bulk` or `Nil`
    GetDel,
    /// Append. → `Int`, the new length
    Append {
        /// What to append.
        value: Bytes,
    },
    /// Add to a 64-bit integer. → `Int`
    IncrBy(i64),
    /// Add to a decimal number. → `Bulk`
    IncrByFloat(Extended),
    /// Delete. → `Int` 0 or 1
    Delete,
    /// Change the deadline. → `Int` 0 or 1
    Expire {
        /// The deadline to give (`Keep` is not allowed).
        expiry: Expiry,
        /// When to change it at all.
        condition: ExpireCondition,
    },
    /// Remove the deadline. → `Int` 0 or 1
    Persist,
    /// Use the key without reading it. → `Int` 0 or 1
    Touch,
    /// As `Get`, but no use of the key. → `Bulk` or `Nil`
    Peek,
    /// As `Strlen`, but no use of the key. → `Int`
    PeekLength,
    /// How Redis would store the value (see [`Encoding`]). → `Int` or `Nil`
    Encoding,
    /// Bytes of memory that the entry takes at its primary. → `Int` or `Nil`
    Footprint,
}

impl Action {
    /// A write without conditions, and without a deadline of its own.
    #[must_use]
    pub const fn set(value: Bytes) -> Self {
        Self::Set {
            value,
            condition: Condition::Always,
            expiry: Expiry::None,
            get: false,
        }
    }

    /// What a write without conditions writes, if it is one (see [`Self::set`]).
    #[must_use]
    pub const fn as_set(&self) -> Option<&Bytes> {
        match self {
            Self::Set {
                value,
                condition: Condition::Always,
                expiry: Expiry::None,
                get: false,
            } => Some(value),
            _ => None,
        }
    }

    /// The same for a client whose reads are no uses (`CLIENT NO-TOUCH`).
    #[must_use]
    pub fn untouching(self) -> Self {
        match self {
            Self::Get => Self::Peek,
            Self::Strlen => Self::PeekLength,
            other => other,
        }
    }

    /// Whether it may change its key.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Get
                | Self::Strlen
                | Self::Exists
                | Self::PTtl
                | Self::PExpireTime
                | Self::Touch
                | Self::Peek
                | Self::PeekLength
                | Self::Encoding
                | Self::Footprint
        )
    }
}

/// How Redis would store a value: clients ask `OBJECT ENCODING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A 64-bit integer.
    Int,
    /// Up to 44 bytes, beside the object's head.
    Embedded,
    /// More.
    Raw,
}

impl Encoding {
    /// As an outcome carries it.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Int => 0,
            Self::Embedded => 1,
            Self::Raw => 2,
        }
    }

    /// What Redis calls the encoding of this number.
    #[must_use]
    pub const fn name(number: i64) -> &'static str {
        match number {
            0 => "int",
            1 => "embstr",
            _ => "raw",
        }
    }
}

/// When a `Set` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// If the key is absent (NX).
    IfAbsent,
    /// If the key is there (XX).
    IfPresent,
}

/// When an `Expire` changes the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Always.
    Always,
    /// If there is none (NX).
    IfNone,
    /// If there is one (XX).
    IfSome,
    /// If the new one is later (GT); no deadline counts as never.
    IfLater,
    /// If the new one is earlier (LT).
    IfEarlier,
    /// If there is one, and the new one is earlier (XX and LT).
    IfSomeEarlier,
}

/// A deadline as a caller gives it. Wall time is converted once, at the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Leave the deadline as it is.
    Keep,
    /// No deadline (for `Set`: the keyspace's default, if it has one).
    None,
    /// Milliseconds from now. Not positive: already past.
    In(i64),
    /// Unix milliseconds. In the past: already past.
    At(i64),
}

/// An operation on a whole partition.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionOperation {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The partition.
    pub partition: PartitionId,
    /// The map.
    pub map: MapId,
    /// What to do.
    pub action: PartitionAction,
}

/// What is done to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionAction {
    /// How many keys the map has here. → `Int`
    Count,
    /// Some keys from `cursor` (0 to begin), about `count` of them. → `Keys`
    Scan {
        /// Where to go on.
        cursor: u64,
        /// About how many.
        count: u32,
    },
    /// Delete every key of the map. → `Ok`
    Clear,
    /// Keys in the order of their bytes, in a keyspace that keeps them so, and in no other one any.
    /// → `Keys`, in which `next` is 1 where more may follow, and each key is followed by its value,
    /// if values are wanted.
    Range(RangeQuery),
}

/// What is wanted of a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    /// The first key that may be there.
    pub from: Bytes,
    /// The first key behind them; empty: there is no end.
    pub to: Bytes,
    /// How many, at most.
    pub count: u32,
    /// From the end.
    pub reverse: bool,
    /// Whether values are wanted, too.
    pub values: bool,
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done.
    Ok,
    /// Nothing there, or the condition failed.
    Nil,
    /// A number.
    Int(i64),
    /// A value.
    Bulk(Value),
    /// Keys of a scan.
    Keys {
        /// Where to go on; 0 when the partition is done.
        next: u64,
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// Not done, or not known to be done.
    Failed(Failure),
}

impl Outcome {
    /// About how many bytes of values and keys it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// What a key costs beside its bytes.
        const KEY_OVERHEAD: usize = 32;
        match self {
            Self::Bulk(value) => value.len(),
            Self::Keys { keys, .. } => keys.iter().map(|k| k.len() + KEY_OVERHEAD).sum(),
            Self::Ok | Self::Nil | Self::Int(_) | Self::Failed(_) => 0,
        }
    }
}

/// Why an operation gave no result. RESP's texts are `resp`'s business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The value is not an integer or out of range.
    #[error("the value is not an integer or out of range")]
    NotAnInteger,
    /// The value is not a valid float.
    #[error("the value is not a valid float")]
    NotAFloat,
    /// The result would overflow, or not be a finite number.
    #[error("the result would overflow")]
    Overflow,
    /// The value would be above the limit.
    #[error("the value would be above the limit")]
    TooLarge,
    /// A copy has no memory left. Nothing happened.
    #[error("memory is full: nothing was written")]
    OutOfMemory,
    /// Fewer copies in sync than `min_in_sync`. Nothing happened.
    #[error("too few copies are in sync: nothing was written")]
    TooFewCopies,
    /// No such keyspace, or it has no partitions yet. Nothing happened.
    #[error("no such keyspace, or no partition is assigned yet")]
    NoPartition,
    /// The partition was split or merged. Nothing happened: ask those that came of it.
    #[error("the partition was split or merged: nothing happened, ask again")]
    Stale,
    /// Nobody serves the partition, and parking ended. Nothing happened.
    #[error("the partition is not served at the moment: nothing happened")]
    Unavailable,
    /// It may or may not have happened, or may still happen.
    #[error("it is not known whether the operation happened")]
    Unknown,
    /// The process that was asked has stopped, or one of its data threads has. Nothing happened.
    #[error("this node or client has stopped: nothing happened")]
    Stopped,
    /// Too many operations wait already. Nothing happened.
    #[error("too many operations are waiting: nothing happened")]
    Overloaded,
    /// It was executed and changed nothing, what it came to is lost, and a later write of its
    /// origin on the same key is applied.
    #[error(
        "what it came to was lost, and a later operation on the key was applied: nothing happened"
    )]
    Overtaken,
}
