//! What a key may hold, and how Redis would store it. `types` has the rest of each type.

/// What a key holds.
///
/// ```
/// # mod doyen { pub use doyen_engine::op::Kind; }
/// assert_eq!(doyen::Kind::Hash.name(), "hash");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// A run of bytes.
    String,
    /// Fields, each with a value.
    Hash,
    /// Members, each of them once.
    Set,
    /// Members, each with a score, in order of their scores.
    SortedSet,
    /// Elements, each at a place.
    List,
    /// Entries with ids that only grow, and groups of consumers.
    Stream,
}

impl Kind {
    /// All of them, each at its number.
    pub const ALL: [Self; 6] = [
        Self::String,
        Self::Hash,
        Self::Set,
        Self::SortedSet,
        Self::List,
        Self::Stream,
    ];

    /// Its number in frames and in entries.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    #[inline]
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// How Redis would store a value, for `OBJECT ENCODING`. Each type has its own, and says their
/// numbers, which outcomes carry: `TYPE` is answered by them, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) number: i64,
    /// Redis's name for it.
    pub(crate) name: &'static str,
}

impl Encoding {
    pub(crate) const fn new(number: i64, name: &'static str) -> Self {
        Self { number, name }
    }
}
