//! How much a thread must evict for a member.

use super::frame::Headroom;
use doyen_gossip::Time;
use std::time::Duration;

/// At most this many times the kept memory (four tenths of the memory) is evicted for writes that
/// wait. A single write that needs more is refused.
const LACKING_KEPT_MAX: u64 = 4;
/// If this thread leads nothing that may be evicted at a member, other primaries may. Writes wait
/// for them only for this time. Then it is likely that there is nothing at all.
const RELIEF_WAIT: Duration = Duration::from_secs(1);

/// Whether a member is full, and how much this thread must evict for it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pressure {
    full: bool,
    /// Bytes that this thread must still evict for that member before the next check.
    excess: u64,
    /// Bytes that writes of this thread wait for there.
    lacking: u64,
    /// Since when this thread leads no keys there that could be evicted, as far as it has looked.
    barren: Option<Time>,
    /// It has found some in the present look.
    bears: bool,
}

impl Pressure {
    /// Before the first check.
    pub(crate) const NONE: Self = Self {
        full: false,
        excess: 0,
        lacking: 0,
        barren: None,
        bears: false,
    };

    /// Judges by the room of the member. `shares` threads share the work of keeping it from being
    /// full. The room for a waiting write is made by its thread alone, because no other knows of
    /// it. `pressed`: writes had to make room.
    pub(crate) fn look(&mut self, room: Headroom, shares: u64, pressed: bool) {
        // Memory that is given back anyway need not be evicted.
        let room = room.settled();
        let enough = room.enough();
        self.full = room.left < room.kept || ((self.full || pressed) && room.left < enough);
        let common = if self.full {
            enough.saturating_sub(room.left).div_ceil(shares.max(1))
        } else {
            0
        };
        let lacking = std::mem::take(&mut self.lacking).min(lacking_max(room));
        let short = enough.saturating_add(lacking).saturating_sub(room.left);
        self.excess = common.saturating_add(short.min(lacking));
    }

    /// A write of this thread waits for `bytes` at that member, until the next check.
    pub(crate) fn lack(&mut self, bytes: u64) {
        self.lacking = self.lacking.saturating_add(bytes);
    }

    /// Whether a write waits for room at that member.
    pub(crate) const fn is_lacking(&self) -> bool {
        self.lacking > 0
    }

    /// This thread leads keys there that could be evicted.
    pub(crate) fn bears(&mut self) {
        self.bears = true;
    }

    /// This thread has looked at all keys that it leads.
    pub(crate) fn end_survey(&mut self, now: Time) {
        let bears = std::mem::take(&mut self.bears);
        self.barren = (!bears).then(|| self.barren.unwrap_or(now));
    }

    /// It is not known any more whether this thread leads such keys.
    pub(crate) fn forget_survey(&mut self) {
        self.barren = None;
    }

    /// Bytes that are still to be evicted.
    pub(crate) const fn excess(&self) -> u64 {
        self.excess
    }

    /// `bytes` were evicted.
    pub(crate) fn relieve(&mut self, bytes: usize) {
        self.excess = self.excess.saturating_sub(bytes as u64);
    }

    /// Whether it is likely that no primary has anything to evict there.
    pub(crate) fn is_hopeless(&self, now: Time) -> bool {
        self.barren
            .is_some_and(|since| now.since(since) >= RELIEF_WAIT)
    }
}

/// The most that is evicted for writes that wait.
pub(crate) fn lacking_max(room: Headroom) -> u64 {
    room.kept.saturating_mul(LACKING_KEPT_MAX)
}

/// The memory of a peer as it reports it, and the copies that it takes.
#[derive(Debug, Default)]
pub(super) struct Supply {
    /// The last report of its memory.
    pub(super) headroom: Option<Headroom>,
    /// Whether that report has not been checked for eviction yet.
    says_anew: bool,
    /// How full it is, and how much must be evicted for it.
    pub(super) pressure: Pressure,
    /// When a part of a snapshot last arrived there.
    pub(super) copied: Time,
    /// When it accepts copies again, if it has put them off.
    pub(super) copies_at: Time,
}

impl Supply {
    /// It reports its memory.
    pub(super) fn says(&mut self, headroom: Headroom) {
        (self.headroom, self.says_anew) = (Some(headroom), true);
    }

    /// Checks whether it is full, by its report since the last check.
    pub(super) fn look(&mut self, shares: u64, pressed: bool) {
        if std::mem::take(&mut self.says_anew) || self.pressure.is_lacking() {
            let room = self.headroom.unwrap_or(Headroom::PLENTY);
            self.pressure.look(room, shares, pressed);
        }
    }
}
