//! Arcs of a ring, each a partition.

use crate::id::{MemberId, PartitionId};
use crate::lookup::RingLookup;
use crate::ring::{Duplicate, Ring};
use crate::token::Token;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// A token, the member that brought it, and the partition of the arc that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Brought {
    /// The token.
    pub token: Token,
    /// The member that brought it. It may be gone: the arc stays until it is merged.
    pub by: MemberId,
    /// The partition.
    pub partition: PartitionId,
}

/// Arcs of a ring.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<Brought>", into = "Vec<Brought>")]
pub struct Arcs {
    ring: Ring,
    /// The arc of each token.
    partitions: Vec<PartitionId>,
    lookup: RingLookup,
}

/// Tokens that make no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArcsError {
    /// Two tokens stand at one place.
    #[error(transparent)]
    Token(#[from] Duplicate),
    /// Two arcs have the same partition.
    #[error("partition {0} is two arcs")]
    Partition(PartitionId),
}

impl Arcs {
    /// Arcs of these tokens, in any order.
    ///
    /// # Errors A token or a partition that is there twice.
    pub fn new(mut brought: Vec<Brought>) -> Result<Self, ArcsError> {
        brought.sort_unstable_by_key(|b| b.token);
        let ring = Ring::new(brought.iter().map(|b| (b.token, b.by)))?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = brought.iter().find(|b| !seen.insert(b.partition)) {
            return Err(ArcsError::Partition(twice.partition));
        }
        let tokens: Vec<Token> = brought.iter().map(|b| b.token).collect();
        Ok(Self {
            ring,
            partitions: brought.iter().map(|b| b.partition).collect(),
            lookup: RingLookup::new(&tokens),
        })
    }

    /// The tokens with their members. Arc `i` ends with token `i`.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The partition of each arc, in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.iter().copied()
    }

    /// The arc of this token. `None`: there are no tokens.
    #[must_use]
    pub fn partition_of(&self, token: Token) -> Option<PartitionId> {
        self.lookup.arc_of(token).map(|arc| self.partitions[arc])
    }

    /// The tokens with their members and arcs, in order.
    pub fn brought(&self) -> impl Iterator<Item = Brought> + '_ {
        let tokens = self.ring.tokens().iter().zip(&self.partitions);
        tokens.map(|(&(token, by), &partition)| Brought {
            token,
            by,
            partition,
        })
    }
}

impl Default for Arcs {
    fn default() -> Self {
        Self {
            ring: Ring::default(),
            partitions: Vec::new(),
            lookup: RingLookup::new(&[]),
        }
    }
}

impl TryFrom<Vec<Brought>> for Arcs {
    type Error = ArcsError;

    fn try_from(brought: Vec<Brought>) -> Result<Self, ArcsError> {
        Self::new(brought)
    }
}

impl From<Arcs> for Vec<Brought> {
    fn from(arcs: Arcs) -> Self {
        arcs.brought().collect()
    }
}

/// The look-up follows from the other fields.
impl PartialEq for Arcs {
    fn eq(&self, other: &Self) -> bool {
        self.ring == other.ring && self.partitions == other.partitions
    }
}

impl Eq for Arcs {}

impl Hash for Arcs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.ring, &self.partitions).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(token: i64, by: u64, partition: u32) -> Brought {
        Brought {
            token: Token(token),
            by: MemberId(by),
            partition: PartitionId(partition),
        }
    }

    #[test]
    fn a_key_is_in_the_arc_that_ends_behind_it() {
        let arcs = Arcs::new(vec![brought(100, 16, 1), brought(-100, 32, 0)]).expect("a ring");
        assert_eq!(
            arcs.partitions().collect::<Vec<_>>(),
            [PartitionId(0), PartitionId(1)]
        );
        let of = |key: &str| arcs.partition_of(Token::of(key.as_bytes()));
        for key in ["a", "b", "123", "user:17"] {
            // The arc behind the last token begins the ring again.
            let inside = (-99..=100).contains(&Token::of(key.as_bytes()).0);
            assert_eq!(of(key), Some(PartitionId(u32::from(inside))), "{key}");
        }
        assert_eq!(Arcs::default().partition_of(Token(0)), None);
    }

    #[test]
    fn a_token_that_is_there_twice_makes_no_ring() {
        assert_eq!(
            Arcs::new(vec![brought(1, 16, 0), brought(1, 32, 1)]),
            Err(ArcsError::Token(Duplicate(Token(1))))
        );
        assert_eq!(
            Arcs::new(vec![brought(1, 16, 0), brought(2, 32, 0)]),
            Err(ArcsError::Partition(PartitionId(0)))
        );
    }
}
