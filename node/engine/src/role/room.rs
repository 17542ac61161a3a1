//! How much room there is for a write.

use crate::log::partition_log::RECORD_OVERHEAD;
use crate::role::host::Host;
use crate::role::partition::Held;
use crate::store::ENTRY_OVERHEAD;
use crate::wire::frame::Headroom;
use doyen_placement::MemberId;

/// A divisor: a write smaller than `ahead_bytes_max` (what may be on its way to a peer) divided by
/// this does not wait for a crowded copy. With the default limit of 8 MiB that is 1 KiB. Writes
/// that small cannot keep a copy crowded for long.
pub(crate) const SMALL_WRITE_PART: u64 = 8 << 10;

/// This part of the kept memory is lent to writes that make no room of their own.
const LENT_PART: u64 = 4;

/// About how much memory a write takes whose key and value have `bytes`.
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
    /// The room of a member, if less is `left` than is `kept`.
    pub(crate) const fn short(left: u64, kept: u64) -> Self {
        if left >= kept - kept / LENT_PART {
            Self::Lent
        } else {
            Self::Kept
        }
    }
}

impl Held {
    /// The copy, if any, that a write of `bytes` must wait for before it is executed: its peer
    /// takes its bytes slower than they come. Every executed write must reach all copies, so it is
    /// better not to execute what would be under way for long. Learners are not waited for.
    pub(crate) fn crowded_copy(&self, host: &Host, bytes: usize) -> Option<MemberId> {
        if (bytes as u64) < host.limits.ahead_bytes_max / SMALL_WRITE_PART {
            return None;
        }
        let links = &self.lead()?.links;
        links
            .iter()
            .find(|(id, link)| link.required && host.peers.crowded(**id))
            .map(|(id, _)| *id)
    }

    /// How much room this node and every in-sync copy have for a write whose key and value have
    /// `bytes`. A part of the kept memory is reserved for data under way.
    pub(crate) fn room(&self, host: &Host, bytes: usize) -> Room {
        self.room_by(host, bytes, |room| room)
    }

    /// The same once all of them have given back their loose memory.
    pub(crate) fn settled_room(&self, host: &Host, bytes: usize) -> Room {
        self.room_by(host, bytes, Headroom::settled)
    }

    #[inline]
    pub(crate) fn room_by(
        &self,
        host: &Host,
        bytes: usize,
        says: impl Fn(Headroom) -> Headroom,
    ) -> Room {
        let needed = needed(bytes) as u64;
        let of = |(room, under_way): (Headroom, u64)| match says(room)
            .left
            .saturating_sub(under_way.saturating_add(needed))
        {
            left if left >= room.kept => Room::Plenty,
            // Until it is committed, a value counts twice: as an entry and in the log.
            left if left.saturating_sub(under_way.saturating_add(bytes as u64))
                >= room.reserve() =>
            {
                Room::short(left, room.kept)
            }
            _ => Room::None,
        };
        let copies = self.copies().map(|id| of(host.peers.said(id)));
        copies.fold(of((host.headroom(), 0)), Room::min)
    }
}
