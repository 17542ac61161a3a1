//! The ring: members bring tokens, and what lies between two tokens is an arc.
//!
//! ```text
//!              t1 (A)                     a key's token falls into the arc that ends at the next token clockwise;
//!         .-----*-----.                   who brought that one leads the arc, and whoever comes further on,
//!   (C) t4*           * t2 (B)            apart from those before, holds its copies
//!         '-----*-----'
//!              t3 (A)
//! ```
//!
//! A join splits arcs and a leave merges them; all other arcs stay where they are. One concern a
//! file: [`Walk`] finds the copies, [`Spread`] says which may stand together,
//! [`allocate`] and [`random`] choose a newcomer's tokens,
//! [`depart`] divides what a leaver had, [`moves`] says what a change of the ring moves.

mod allocate;
mod caps;
mod depart;
mod moves;
mod ownership;
mod spread;
mod walk;

pub use allocate::{TOKENS_MAX, allocate, random, tokens_of_weight};
use caps::Caps;
pub use depart::depart;
pub use moves::{Move, moves};
use ownership::fair;
pub use ownership::{Ownership, ownership};
pub use spread::Spread;
pub use walk::Walk;

use crate::id::MemberId;
use crate::token::Token;
use serde::{Deserialize, Serialize};

/// Two tokens stand at one place: an arc would have two owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token {0} is there twice")]
pub struct Duplicate(pub Token);

/// Tokens and who brought them, in order.
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

/// What lies between two neighbouring tokens: `after < token <= upto`, around the end of the ring
/// where `after >= upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arc {
    /// The token before it, which is not in it.
    pub after: Token,
    /// The token that it ends with, and that is in it.
    pub upto: Token,
}

impl Arc {
    /// Whether this token falls into it.
    #[must_use]
    pub fn contains(&self, token: Token) -> bool {
        if self.after < self.upto {
            self.after < token && token <= self.upto
        } else {
            self.after < token || token <= self.upto
        }
    }

    /// How much of the ring it is: above 0, at most 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self.upto.place().wrapping_sub(self.after.place()) {
            0 => 1.0,
            steps => steps as f64 / WHOLE,
        }
    }
}

/// Steps around the ring.
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

    /// The tokens in order, with who brought them. Arc `i` is the one that ends with token `i`.
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

    /// The arc of this number; `None` for a number that no arc has.
    #[must_use]
    pub fn arc(&self, number: usize) -> Option<Arc> {
        let upto = self.tokens.get(number)?.0;
        let before = number.checked_sub(1).unwrap_or(self.tokens.len() - 1);
        Some(Arc {
            after: self.tokens[before].0,
            upto,
        })
    }

    /// The number of the arc into which this token falls; `None` where there is no token at all.
    #[must_use]
    pub fn arc_of(&self, token: Token) -> Option<usize> {
        let next = self.tokens.partition_point(|(t, _)| *t < token);
        (!self.tokens.is_empty()).then_some(if next == self.tokens.len() { 0 } else { next })
    }

    /// Who brought the token that this one's arc ends with.
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

    /// The ring without a member: each of its arcs becomes part of the next one that is not its
    /// own. [`depart`] divides them more evenly.
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

    /// The ring with as many of a member's tokens, at most, those before the shortest arcs given up
    /// first: its weight has fallen.
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
