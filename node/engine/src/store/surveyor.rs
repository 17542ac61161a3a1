//! Who looks at where entries are stored.

use crate::value::entry::{Entry, LargeValue};

/// Looks at where entries are stored, and may move them.
pub(crate) trait Surveyor {
    /// Looks at an entry that the store `holds` this many times. Returns a copy that replaces it,
    /// if it is to be moved.
    fn entry(&mut self, entry: &Entry, holds: usize) -> Option<Entry>;
    /// Looks at a table of the index that begins at `address` and has `room`. Returns an empty
    /// one that replaces it, if it is to be moved.
    fn table<T: IndexTable>(&mut self, address: u64, room: usize) -> Option<Vec<T>>;
}

/// The elements of the index's tables.
pub(crate) trait IndexTable: Sized {
    fn decoy(table: Vec<Self>) -> Decoy;
}

impl IndexTable for u32 {
    fn decoy(table: Vec<Self>) -> Decoy {
        Decoy::Tags { _room: table }
    }
}

impl IndexTable for Entry {
    fn decoy(table: Vec<Self>) -> Decoy {
        Decoy::Entries { _room: table }
    }
}

/// Keeps a place in a block that is to be emptied, so that nothing else is stored there.
#[derive(Debug)]
pub(crate) enum Decoy {
    Entry { _room: Entry },
    Value { _room: LargeValue },
    Tags { _room: Vec<u32> },
    Entries { _room: Vec<Entry> },
}
