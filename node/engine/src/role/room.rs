//! How much room there is for a write.

use crate::log::partition_log::RECORD_OVERHEAD;
use crate::store::ENTRY_OVERHEAD;

/// A divisor: a write smaller than `ahead_bytes_max` (what may be on its way to a peer) divided by
/// this does not wait for a crowded copy. With the default limit of 8 MiB that is 1 KiB. Writes
/// that small cannot keep a copy crowded for long.
pub(crate) const SMALL_WRITE_PART: u64 = 8 << 10;

/// This part of the kept memory is lent to writes that make no room of their own.
const LENT_PART: u64 = 4;

/// About how much memory a write of so many bytes of key and value takes.
pub(crate) const fn needed(bytes: usize) -> usize {
    bytes + ENTRY_OVERHEAD + RECORD_OVERHEAD
}

/// How much room there is for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// None: a member would run out of memory.
    None,
    /// Only in the memory that is kept for tails and data under way.
    Kept,
    /// In the part of the kept memory that is lent while others make room.
    Lent,
    /// Enough room.
    Plenty,
}

impl Room {
    /// The room of a member with so much left, if less is left than is kept.
    pub(crate) const fn short(left: u64, kept: u64) -> Self {
        if left >= kept - kept / LENT_PART {
            Self::Lent
        } else {
            Self::Kept
        }
    }
}
