//! When keys that are absent were deleted last, about: an absent key has no entry that could say it.
//!
//! A client that watches a key which is absent must hear that it was there meanwhile. So the store
//! keeps the sequence of the latest deletion for each class of keys, from the moment at which
//! a client first watches one that is absent. A deletion of another key of the class counts as one
//! of that key: who watched it tries again.

/// How many classes there are, by the first bits of the order of a key.
const CLASSES: usize = 256;
const SHIFT: u32 = u64::BITS - CLASSES.trailing_zeros();

/// The sequences of the latest deletions.
#[derive(Debug)]
pub(super) struct Absences(Box<[u64; CLASSES]>);

impl Absences {
    /// Nothing is known of what was deleted up to this sequence.
    pub(super) fn since(seq: u64) -> Self {
        Self(Box::new([seq; CLASSES]))
    }

    fn class(order: u64) -> usize {
        (order >> SHIFT) as usize
    }

    /// A key of this order was deleted.
    pub(super) fn deleted(&mut self, order: u64, seq: u64) {
        self.0[Self::class(order)] = seq;
    }

    /// All keys of a map were deleted.
    pub(super) fn cleared(&mut self, seq: u64) {
        self.0.fill(seq);
    }

    /// When a key of this order was deleted, at the latest.
    pub(super) fn of(&self, order: u64) -> u64 {
        self.0[Self::class(order)]
    }
}
