//! From a token to its arc.
//!
//! ```text
//!  token ── high bits ──> bucket: its first token in order ── short scan ──> first token not below
//! ```
//!
//! Tokens are hashes or divide arcs of hashes, so a bucket usually has two. If a bucket has
//! thousands, it is searched by halves.

use crate::ring::Ring;
use crate::token::Token;

/// The number of tokens in one bucket that are compared one after the other.
const SCANNED_MAX: usize = 16;

/// A ring, compiled.
///
/// ```
/// use doyen_placement::lookup::RingLookup;
/// use doyen_placement::Token;
/// let lookup = RingLookup::new(&[Token(-100), Token(100)]);
/// let arcs = [Token(-100), Token(0), Token(101)].map(|t| lookup.arc_of(t));
/// assert_eq!(arcs, [Some(0), Some(1), Some(0)]);
/// ```
#[derive(Debug, Clone)]
pub struct RingLookup {
    /// The places of the tokens, counted from the beginning of the ring, in order.
    places: Vec<u64>,
    /// Where the tokens of each bucket begin. One more at the end.
    buckets: Vec<u32>,
    /// What a token is shifted by to get its bucket.
    shift: u32,
}

impl RingLookup {
    /// For these tokens, in any order, at most `u32::MAX` of them.
    #[must_use]
    pub fn new(tokens: &[Token]) -> Self {
        let mut places: Vec<u64> = tokens.iter().map(|token| token.place()).collect();
        places.sort_unstable();
        places.dedup();
        // There are one to two buckets for each token, and at least two in all, because a shift by
        // 64 is undefined.
        let bits = (places.len().max(2).next_power_of_two()).ilog2();
        let shift = u64::BITS - bits;
        let first_of = |bucket: u64| places.partition_point(|place| place >> shift < bucket) as u32;
        let buckets = (0..=1_u64 << bits).map(first_of).collect();
        Self {
            places,
            buckets,
            shift,
        }
    }

    /// The number of the arc of this token, as [`Ring::arc_of`] gives it. `None`: there are no
    /// tokens.
    #[must_use]
    pub fn arc_of(&self, token: Token) -> Option<usize> {
        let place = token.place();
        let bucket = (place >> self.shift) as usize;
        let (from, upto) = (
            self.buckets[bucket] as usize,
            self.buckets[bucket + 1] as usize,
        );
        let within = &self.places[from..upto];
        let below = if within.len() <= SCANNED_MAX {
            within.iter().take_while(|p| **p < place).count()
        } else {
            within.partition_point(|p| *p < place)
        };
        let next = from + below;
        // Behind the last token, the ring begins again.
        if next < self.places.len() {
            Some(next)
        } else {
            (!self.places.is_empty()).then_some(0)
        }
    }

    /// The number of the arc of this key.
    #[must_use]
    pub fn arc_of_key(&self, key: &[u8]) -> Option<usize> {
        self.arc_of(Token::of(key))
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.buckets)
    }
}

impl From<&Ring> for RingLookup {
    fn from(ring: &Ring) -> Self {
        Self::new(
            &ring
                .tokens()
                .iter()
                .map(|(token, _)| *token)
                .collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MemberId;
    use proptest::prelude::*;

    /// Tokens that are spread over the ring, crowded in a corner of it, or at its ends.
    fn token() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            -300_i64..300,
            Just(i64::MIN),
            Just(i64::MAX),
            i64::MAX - 300..i64::MAX
        ]
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_ring(
            tokens in prop::collection::btree_set(token(), 0..300),
            asked in prop::collection::vec(token(), 50),
        ) {
            let ring = Ring::new(tokens.iter().map(|t| (Token(*t), MemberId(0)))).expect("a set");
            let lookup = RingLookup::from(&ring);
            for token in asked.into_iter().chain(tokens).map(Token) {
                prop_assert_eq!(lookup.arc_of(token), ring.arc_of(token), "{}", token);
            }
        }
    }
}
