//! What a key may hold, and how Redis would call it.

/// What a key holds.
///
/// ```
/// # mod doyen { pub use doyen_engine::op::Kind; }
/// assert_eq!(doyen::Kind::Hash.name(), "hash");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A run of bytes.
    String,
    /// Fields, each with a value.
    Hash,
}

impl Kind {
    /// Redis's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
        }
    }
}

/// How Redis would store a value, for `OBJECT ENCODING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A 64-bit integer.
    Int,
    /// Up to 44 bytes, next to the object's head.
    Embedded,
    /// More than 44 bytes.
    Raw,
    /// A small collection.
    Packed,
    /// A large hash.
    Table,
}

impl Encoding {
    /// The number that an outcome carries.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Int => 0,
            Self::Embedded => 1,
            Self::Raw => 2,
            Self::Packed => 3,
            Self::Table => 4,
        }
    }

    /// What a key holds whose encoding has this number.
    #[must_use]
    pub const fn kind(number: i64) -> Kind {
        match number {
            3 | 4 => Kind::Hash,
            _ => Kind::String,
        }
    }

    /// Redis's name for the encoding with this number.
    #[must_use]
    pub const fn name(number: i64) -> &'static str {
        match number {
            0 => "int",
            1 => "embstr",
            3 => "listpack",
            4 => "hashtable",
            _ => "raw",
        }
    }
}
