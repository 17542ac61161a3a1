//! Values as they leave the store, and the outcomes of operations.

use crate::value::entry::Entry;
use bytes::Bytes;
use std::fmt;
use std::ops::Deref;

/// A stored value: bytes, shared with the store that they came from.
///
/// ```
/// # mod doyen { pub use doyen_engine::op::Value; }
/// use doyen::Value;
///
/// let value = Value::from(b"hello".as_slice());
/// assert!(value.starts_with(b"he") && value.len() == 5); // it is used as its bytes
/// let again = value.clone(); // the same bytes in memory
/// assert_eq!(value, again);
/// ```
#[derive(Clone)]
pub struct Value(Entry);

impl Value {
    pub(crate) fn of(entry: &Entry) -> Self {
        Self(entry.clone())
    }

    /// Whether the store, the log or a reader holds it too, so that it takes no memory of its own.
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

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done.
    Ok,
    /// The key is absent, or the condition failed.
    Nil,
    /// A number.
    Int(i64),
    /// A value.
    Bulk(Value),
    /// Keys of a scan.
    Keys {
        /// The place to go on from; 0 at the end of the partition.
        next: u64,
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// The outcome of each operation of a transaction.
    Many(Vec<Outcome>),
    /// It was not done, or it is not known whether it was.
    Failed(Failure),
}

impl Outcome {
    /// About how many bytes of values and keys it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// The memory of a key besides its bytes.
        const KEY_OVERHEAD: usize = 32;
        match self {
            Self::Bulk(value) => value.len(),
            Self::Keys { keys, .. } => keys.iter().map(|k| k.len() + KEY_OVERHEAD).sum(),
            Self::Many(outcomes) => outcomes.iter().map(Self::bytes).sum(),
            Self::Ok | Self::Nil | Self::Int(_) | Self::Failed(_) => 0,
        }
    }
}

/// Why an operation gave no result. `resp` has texts of its own for Redis clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The value is not an integer or out of range.
    #[error("the value is not an integer, or is out of range")]
    NotAnInteger,
    /// The value is not a valid float.
    #[error("the value is not a valid float")]
    NotAFloat,
    /// The result would overflow, or not be a finite number.
    #[error("the result would overflow: nothing was written")]
    Overflow,
    /// The value would be above the limit.
    #[error("the value would exceed the limit (--value-max): nothing was written; store less")]
    TooLarge,
    /// A copy has no memory left. Nothing happened.
    #[error("memory is full: nothing was written; delete keys, or raise --memory-max")]
    OutOfMemory,
    /// Fewer copies in sync than `min_in_sync`. Nothing happened.
    #[error("too few copies are in sync: nothing was written; try again later")]
    TooFewCopies,
    /// No such keyspace, or it has no partitions yet. Nothing happened.
    #[error(
        "there is no such keyspace, or its partitions are not assigned yet: nothing happened; \
         create it, or try again later"
    )]
    NoPartition,
    /// The partition was split or merged. Nothing happened. Ask the new partitions.
    #[error("the partition was split or merged: nothing happened; try again")]
    Stale,
    /// No member serves the partition, and parking ended. Nothing happened.
    #[error("the partition is not served at the moment: nothing happened; try again later")]
    Unavailable,
    /// It may or may not have happened, or may still happen.
    #[error("it is not known whether the operation happened; read the key before you try again")]
    Unknown,
    /// The node or client has stopped, or one of its data threads has. Nothing happened.
    #[error("this node or client has stopped: nothing happened; use another one")]
    Stopped,
    /// Too many operations wait already. Nothing happened.
    #[error("too many operations are waiting: nothing happened; try again later")]
    Overloaded,
    /// It was executed and changed nothing, its outcome was lost, and a later write of its origin
    /// on the same key was applied.
    #[error(
        "the outcome was lost, and a later operation on the key was applied: nothing happened; \
         try again"
    )]
    Overtaken,
    /// The keys of a transaction are not all in one partition. Nothing happened.
    #[error(
        "the keys are in several partitions: nothing happened; give them the same {{tag}}, as in \
         {{user1}}:name and {{user1}}:mail"
    )]
    CrossPartition,
    /// The node that has the keys was built without scripts. Nothing happened.
    #[error("this program was built without scripts: nothing happened; build it with RESP")]
    NoScripts,
    /// Some member speaks only an older level, which does not have the operation. Nothing happened.
    #[error(
        "some member speaks only an older level, because its program is older or it was started \
         with --level-max: nothing happened; update it, or start it without --level-max (`doyen \
         status` shows the level)"
    )]
    OldMembers,
    /// The map holds as much as it may, and evicts nothing. Nothing happened.
    #[error(
        "the map holds as much as it may: nothing was written; remove entries, raise its limit, or \
         let it evict"
    )]
    MapFull,
    /// The operation would keep all others waiting for too long. Nothing happened.
    #[error(
        "it is too much work for one operation: nothing happened; split it into several smaller \
         ones"
    )]
    TooMuchWork,
    /// The map was dropped. Nothing happened.
    #[error("the map was dropped: nothing happened; open it again")]
    Dropped,
    /// The key holds a value of another kind. Nothing happened.
    #[error("the key holds a value of another kind: nothing happened; use another key")]
    WrongType,
}
