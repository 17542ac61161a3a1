//! Makes the allocator give free memory back to the system.
//!
//! mimalloc keeps freed memory for a moment. It checks whether that moment is over only when other
//! memory of the same segment (32 MiB) is freed. If none is, the segment stays as it is for good.
//! So this takes one piece of each segment that has room, keeps it for longer than that moment, and
//! frees it. Free segments are kept in the same way by their arena, which checks when another
//! segment is freed. With other allocators, this has no effect and costs as little.
//!
//! ```text
//!   take pieces, until all free memory is taken ─> free all but one of each segment
//!        ─> wait ─> free those ─> wait ─> free a segment
//! ```

use doyen_gossip::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// The size of a piece: the smallest that has pages of its own.
const PIECE_BYTES: usize = 128 << 10;
/// A size that needs a segment of its own.
const WHOLE_BYTES: usize = 20 << 20;
const SEGMENT_BITS: u32 = 25;
/// Most pieces that are taken: those of 8 GiB.
const PIECES_MAX: u64 = 64 << 10;
/// Pieces taken or freed in one step, and the pause after it.
const STEP: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);
/// Freed memory is kept for 10 ms, and for a millisecond more with each page that is freed in
/// between.
const KEPT: Duration = Duration::from_millis(600);
/// Segments are kept for 100 ms.
const KEPT_WHOLE: Duration = Duration::from_millis(250);

/// One shake under way.
#[derive(Debug, Default)]
pub(crate) struct Shaking {
    /// Number of pieces still to be taken, and the pieces that were.
    missing: usize,
    taken: Vec<Vec<u8>>,
    /// The pieces that are kept: one a segment.
    kept: Vec<Vec<u8>>,
    kept_until: Option<Time>,
    wholes: Vec<Vec<u8>>,
    wholes_until: Option<Time>,
}

impl Shaking {
    /// A shake for about `bytes` of free memory.
    pub(crate) fn new(bytes: u64) -> Self {
        let missing = (bytes / PIECE_BYTES as u64).min(PIECES_MAX) as usize;
        // They are never written to, so they take addresses but no memory.
        Self {
            missing,
            wholes: (0..3).map(|_| Vec::with_capacity(WHOLE_BYTES)).collect(),
            ..Self::default()
        }
    }

    /// Takes the next step. Returns when another one is due; `None` if it was the last.
    pub(crate) fn step(&mut self, now: Time) -> Option<Time> {
        if self.missing > 0 {
            let some = self.missing.min(STEP);
            self.missing -= some;
            self.taken
                .extend((0..some).map(|_| Vec::with_capacity(PIECE_BYTES)));
            if self.missing == 0 {
                self.keep_some();
            }
            return Some(now + PAUSE);
        }
        if !self.taken.is_empty() {
            self.taken.truncate(self.taken.len().saturating_sub(STEP));
            return Some(now + PAUSE);
        }
        let until = *self.kept_until.get_or_insert_with(|| {
            self.wholes.pop();
            now + KEPT
        });
        if now < until {
            return Some(until);
        }
        if self.kept.pop().is_some() {
            // This frees up to a segment.
            return Some(now + PAUSE);
        }
        let until = *self.wholes_until.get_or_insert_with(|| {
            self.wholes.pop();
            now + KEPT_WHOLE
        });
        if now < until {
            return Some(until);
        }
        self.wholes.clear();
        None
    }

    fn keep_some(&mut self) {
        let mut segments = BTreeSet::new();
        let (kept, taken) = std::mem::take(&mut self.taken)
            .into_iter()
            .partition(|piece| segments.insert(piece.as_ptr() as usize >> SEGMENT_BITS));
        (self.kept, self.taken) = (kept, taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shake_ends_and_leaves_nothing_taken() {
        let mut shaking = Shaking::new(64 << 20);
        let (mut now, mut steps, mut most, mut kept) = (Time::ZERO, 0, 0, 0);
        while let Some(next) = shaking.step(now) {
            assert!(next > now, "others have their turn");
            (now, steps) = (next, steps + 1);
            most = most.max(shaking.taken.len());
            kept = kept.max(shaking.kept.len());
        }
        assert!(
            most + kept >= 512 && (1..=16).contains(&kept),
            "{most} taken, {kept} kept"
        );
        assert!(
            now.since(Time::ZERO) >= KEPT + KEPT_WHOLE && steps < 100,
            "{steps} steps"
        );
        assert!(shaking.taken.is_empty() && shaking.kept.is_empty() && shaking.wholes.is_empty());
    }
}
