//! How the states of this module are stored: a head of four bytes, which no text begins with, and
//! numbers in little-endian order.
//!
//! ```text
//!   0xD0 0x01 │ kind │ version │ numbers of that kind and version
//! ```
//! Deadlines in a state are moments of the partition's clock. They are stored as how long they are
//! before the deadline of the entry.

use crate::store::run_context::RunContext;
use crate::value::deadline;
use crate::value::entry::Entry;

/// What a state is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateKind {
    Permits = 1,
    Bucket = 2,
    Window = 3,
    /// Permits with the number that all callers have to give.
    Numbered = 4,
}

/// The version of all layouts. A layout that changes gets the next one.
const VERSION: u8 = 1;

impl StateKind {
    /// The beginning of its states.
    pub(super) const fn head(self) -> [u8; 4] {
        // In UTF-8, no letter is encoded so.
        [0xD0, 0x01, self as u8, VERSION]
    }
}

/// Reads a state. Each part is `None` if it is not there.
#[derive(Debug)]
pub(super) struct LayoutReader<'a>(&'a [u8]);

impl<'a> LayoutReader<'a> {
    /// Reads a value that has the head of this kind.
    pub(super) fn of(value: &'a [u8], kind: StateKind) -> Option<Self> {
        value.strip_prefix(&kind.head()).map(Self)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    /// How many bytes are left.
    pub(super) const fn left(&self) -> usize {
        self.0.len()
    }

    /// Nothing is left.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// The moment from which the deadlines of a state count back. `None`: the entry has no deadline, so
/// its value is no such state.
pub(super) fn base(entry: &Entry) -> Option<u64> {
    (entry.deadline() != 0).then(|| deadline::clock(entry.deadline()))
}

/// The deadline of an entry that expires at this moment, which is not over: the present one, if it
/// is the same moment.
pub(super) fn deadline(at: u64, entry: Option<&Entry>, cx: &RunContext) -> u64 {
    match entry {
        Some(entry) if base(entry) == Some(at) => entry.deadline(),
        _ => cx.after(at.saturating_sub(cx.clock).max(1)),
    }
}
