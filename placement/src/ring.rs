//! The ring: members bring tokens, and the part between two tokens is an arc.
//!
//! ```text
//!              t1 (A)            a key's token falls into the arc that ends at the next token
//!         .-----*-----.          clockwise; the member of that token leads the arc, and the next
//!   (C) t4*           * t2 (B)   members clockwise hold its copies, each apart from those before
//!         '-----*-----'
//!              t3 (A)
//! ```
//!
//! A join splits arcs and a leave merges them. All other arcs stay where they are. One concern a
//! file: [`RingWalk`] finds the copies, [`ArcSpread`] says which members may hold copies together,
//! [`allocate`] and [`random`] choose a newcomer's tokens, [`depart`] divides the arcs of a leaver,
//! and [`moves`] says what a change of the ring moves.

mod allocate;
mod depart;
mod limits;
mod moves;
mod ownership;
mod spread;
mod walk;

pub use allocate::{TOKENS_MAX, allocate, random, tokens_of_weight};
pub use depart::depart;
use limits::GroupLimits;
pub use moves::{Move, moves};
use ownership::fair;
pub use ownership::{Ownership, ownership};
pub use spread::ArcSpread;
pub use walk::RingWalk;

use crate::id::MemberId;
use crate::token::Token;
use serde::{Deserialize, Serialize};

/// Two tokens stand at one place: an arc would have two owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token {0} is there twice")]
pub struct Duplicate(pub Token);

/// Tokens with the members that brought them, in order.
///
/// ```
/// use doyen_placement::ring::Ring;
/// use doyen_placement::{MemberId, Token};
/// let ring = Ring::new([(Token(100), MemberId(16)), (Token(-100), MemberId(32))])?;
/// assert_eq!(ring.owner_of(Token(0)), Some(MemberId(16)));
/// assert_eq!(ring.owner_of(Token(101)), Some(MemberId(32)), "the ring is closed");
/// # Ok::<(), doyen_placement::ring::Duplicate>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Ring {
    tokens: Vec<(Token, MemberId)>,
}

/// The tokens between two neighbouring ones: `after < token <= upto`. If `after >= upto`, the arc
/// goes around the end of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arc {
    /// The token before the arc, which is not in it.
    pub after: Token,
    /// The last token of the arc.
    pub upto: Token,
}

impl Arc {
    /// Whether the arc contains this token.
    #[must_use]
    pub fn contains(&self, token: Token) -> bool {
        if self.after < self.upto {
            self.after < token && token <= self.upto
        } else {
            self.after < token || token <= self.upto
        }
    }

    /// The share of the ring: above 0, and at most 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self.upto.place().wrapping_sub(self.after.place()) {
            0 => 1.0,
            steps => steps as f64 / WHOLE,
        }
    }
}

/// The number of steps around the ring.
const WHOLE: f64 = 18_446_744_073_709_551_616.0;

impl Ring {
    /// These tokens, in any order.
    ///
    /// # Errors
    /// A token that is there twice.
    pub fn new(tokens: impl IntoIterator<Item = (Token, MemberId)>) -> Result<Self, Duplicate> {
        let mut tokens: Vec<(Token, MemberId)> = tokens.into_iter().collect();
        tokens.sort_unstable();
        match tokens.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(twice) => Err(Duplicate(twice[0].0)),
            None => Ok(Self { tokens }),
        }
    }

    /// The tokens in order, with the members that brought them. Arc `i` ends with token `i`.
    #[must_use]
    pub fn tokens(&self) -> &[(Token, MemberId)] {
        &self.tokens
    }

    /// The tokens of one member, in order.
    pub fn tokens_of(&self, member: MemberId) -> impl Iterator<Item = Token> + '_ {
        self.tokens
            .iter()
            .filter(move |(_, m)| *m == member)
            .map(|(token, _)| *token)
    }

    /// The arc of this number. `None`: no arc has that number.
    #[must_use]
    pub fn arc(&self, number: usize) -> Option<Arc> {
        let upto = self.tokens.get(number)?.0;
        let before = number.checked_sub(1).unwrap_or(self.tokens.len() - 1);
        Some(Arc {
            after: self.tokens[before].0,
            upto,
        })
    }

    /// The number of the arc that contains this token. `None`: the ring has no tokens.
    #[must_use]
    pub fn arc_of(&self, token: Token) -> Option<usize> {
        let next = self.tokens.partition_point(|(t, _)| *t < token);
        (!self.tokens.is_empty()).then_some(if next == self.tokens.len() { 0 } else { next })
    }

    /// The member whose token ends the arc of this token.
    #[must_use]
    pub fn owner_of(&self, token: Token) -> Option<MemberId> {
        self.arc_of(token).map(|number| self.tokens[number].1)
    }

    /// The ring with more tokens of a member: arcs are split.
    ///
    /// # Errors
    /// A token that is there already.
    pub fn join(
        &self,
        member: MemberId,
        tokens: impl IntoIterator<Item = Token>,
    ) -> Result<Self, Duplicate> {
        Self::new(
            self.tokens
                .iter()
                .copied()
                .chain(tokens.into_iter().map(|token| (token, member))),
        )
    }

    /// The ring without a member: each of its arcs becomes part of the next arc of another member.
    /// [`depart`] divides them more evenly.
    #[must_use]
    pub fn leave(&self, member: MemberId) -> Self {
        Self {
            tokens: self
                .tokens
                .iter()
                .filter(|(_, m)| *m != member)
                .copied()
                .collect(),
        }
    }

    /// The ring with at most this many tokens of a member, because its weight has fallen. Tokens
    /// that end the shortest arcs go first.
    #[must_use]
    pub fn shrink(&self, member: MemberId, tokens: usize) -> Self {
        let mut own: Vec<(u64, Token)> = (0..self.tokens.len())
            .filter(|&i| self.tokens[i].1 == member)
            .filter_map(|i| self.arc(i))
            .map(|arc| (arc.upto.place().wrapping_sub(arc.after.place()), arc.upto))
            .collect();
        own.sort_unstable();
        let gone: Vec<Token> = own
            .iter()
            .take(own.len().saturating_sub(tokens))
            .map(|(_, token)| *token)
            .collect();
        Self {
            tokens: self
                .tokens
                .iter()
                .filter(|(token, _)| !gone.contains(token))
                .copied()
                .collect(),
        }
    }
}
