//! What a key holds.

use crate::ELEMENT_OVERHEAD;
use crate::stream::RdbStream;

/// What a key holds. The bytes are owned when they were read, and may be borrowed to be written.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RdbValue<B = Vec<u8>> {
    /// One run of bytes.
    String(B),
    /// Elements in their order.
    List(Vec<B>),
    /// Members. A damaged input may have one twice.
    Set(Vec<B>),
    /// Members with their scores, in any order. A score is never NaN.
    SortedSet(Vec<ScoredMember<B>>),
    /// Fields with their values. A damaged input may have one twice.
    Hash(Vec<HashField<B>>),
    /// Entries with ids that only grow, and groups of consumers. It may be empty.
    Stream(RdbStream<B>),
    /// Something that was passed over.
    Unread(UnreadType),
}

/// A member of a sorted set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoredMember<B = Vec<u8>> {
    /// The member.
    pub member: B,
    /// Its score.
    pub score: f64,
}

/// A field of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashField<B = Vec<u8>> {
    /// Its name.
    pub field: B,
    /// Its value.
    pub value: B,
    /// When it expires, in milliseconds since 1970.
    pub deadline: Option<u64>,
}

/// A type of value that is passed over, because it is not read here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreadType {
    /// A value of the module type of this name.
    Module(String),
}

impl<B: AsRef<[u8]>> RdbValue<B> {
    /// What Redis's command TYPE answers.
    ///
    /// ```
    /// assert_eq!(doyen_rdb::RdbValue::String(b"1").type_name(), "string");
    /// ```
    pub fn type_name(&self) -> &str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
            Self::Hash(_) => "hash",
            Self::Stream(_) => "stream",
            Self::Unread(UnreadType::Module(name)) => name,
        }
    }

    /// How many elements it has; 1 for a string.
    pub fn len(&self) -> usize {
        match self {
            Self::String(_) | Self::Unread(_) => 1,
            Self::List(all) | Self::Set(all) => all.len(),
            Self::SortedSet(all) => all.len(),
            Self::Hash(all) => all.len(),
            Self::Stream(it) => it.entries.len(),
        }
    }

    /// Whether it is a collection without elements, which no key of Redis holds. A stream is not.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !matches!(self, Self::Stream(_))
    }

    /// What it counts against a limit: its bytes, and 32 for each element.
    pub fn weight(&self) -> usize {
        let of_bytes = |bytes: &[u8]| bytes.len() + ELEMENT_OVERHEAD;
        let of = |bytes: &B| of_bytes(bytes.as_ref());
        match self {
            Self::String(bytes) => of(bytes),
            Self::List(all) | Self::Set(all) => all.iter().map(of).sum(),
            Self::SortedSet(all) => all.iter().map(|it| of(&it.member)).sum(),
            Self::Hash(all) => all.iter().map(|it| of(&it.field) + of(&it.value)).sum(),
            Self::Stream(it) => it.weight(of_bytes),
            Self::Unread(_) => 0,
        }
    }

    /// The oldest version of RDB that can hold it.
    pub fn version(&self) -> u16 {
        match self {
            Self::Hash(all) if all.iter().any(|it| it.deadline.is_some()) => 12,
            Self::Stream(_) => 10,
            Self::SortedSet(_) => 8,
            _ => 6,
        }
    }
}
