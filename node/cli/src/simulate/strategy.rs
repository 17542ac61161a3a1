//! Ways of placing keys, one a file.

mod fixed;
mod jump;
mod modulo;
mod range;
mod rendezvous;
mod ring;

pub(super) use fixed::Fixed;

use super::keys::Keys;
use doyen_placement::hash::Digest;
use doyen_placement::id::MemberId;
use doyen_placement::ring::{Spread, TOKENS_MAX};
use doyen_placement::table::Member;
use doyen_placement::table::validate::REPLICAS_MAX;
use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;
use std::sync::Arc;

/// A way of placing keys on nodes that come and go.
pub(super) trait Strategy {
    /// Takes note of who is there now, and places anew what must be.
    fn follow(&mut self, nodes: &[Arc<Member>]);

    /// Adds who holds this key, the primary first: as many as there shall be copies, or as there
    /// are nodes.
    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>);

    /// What whoever looks keys up has to know, in bytes: see [`super::figures::Outcome::table_bytes`].
    fn table_bytes(&self) -> usize;
}

/// The ways there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The hash modulo the number of nodes: what the literature warns of. Knows no weights.
    Modulo,
    /// A fixed number of partitions, placed by the planner of production.
    Fixed,
    /// So many tokens a node on a ring.
    Ring {
        /// How many.
        tokens: usize,
        /// Drawn, instead of allocated so that they are even.
        random: bool,
    },
    /// Ordered ranges of equal bytes, placed by the planner of production.
    Range,
    /// The nodes whose hash with the key is highest.
    Rendezvous,
    /// Jump consistent hash: nodes are numbered, and only the last number ever goes. Knows no
    /// weights.
    Jump,
}

/// There is no such strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no strategy: say mod, fixed, ring-16 (or another number of tokens), ring-16-random, range, rendezvous or jump"
)]
pub(super) struct UnknownStrategy(String);

/// What all of them are told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options<'a> {
    /// Copies, the primary among them.
    pub(super) copies: usize,
    /// Partitions of fixed and of range: a power of two up to 16384.
    pub(super) partitions: u16,
    /// Draws what is random.
    pub(super) seed: u64,
    /// Range is split where these keys say.
    pub(super) keys: &'a Keys,
}

impl Kind {
    /// All that are compared where nothing else is asked.
    pub(super) const ALL: [Self; 11] = [
        Self::Modulo,
        Self::Fixed,
        Self::Ring {
            tokens: 1,
            random: true,
        },
        Self::Ring {
            tokens: 16,
            random: true,
        },
        Self::Ring {
            tokens: 256,
            random: true,
        },
        Self::Ring {
            tokens: 1,
            random: false,
        },
        Self::Ring {
            tokens: 16,
            random: false,
        },
        Self::Ring {
            tokens: 256,
            random: false,
        },
        Self::Range,
        Self::Rendezvous,
        Self::Jump,
    ];

    /// The strategy, before it has seen any node.
    #[must_use]
    pub(super) fn strategy(self, options: &Options<'_>) -> Box<dyn Strategy> {
        let Options {
            copies,
            partitions,
            seed,
            keys,
        } = *options;
        let copies = copies.clamp(1, REPLICAS_MAX);
        match self {
            Self::Modulo => Box::new(modulo::Modulo::new(copies)),
            Self::Fixed => Box::new(fixed::Fixed::new(partitions, copies)),
            Self::Ring { tokens, random } => {
                Box::new(ring::OnRing::new(tokens, random, copies, seed))
            }
            Self::Range => Box::new(range::Ranges::new(partitions, copies, keys)),
            Self::Rendezvous => Box::new(rendezvous::Rendezvous::new(copies)),
            Self::Jump => Box::new(jump::Jump::new(copies)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modulo => f.write_str("mod"),
            Self::Fixed => f.write_str("fixed"),
            Self::Ring {
                tokens,
                random: false,
            } => write!(f, "ring-{tokens}"),
            Self::Ring {
                tokens,
                random: true,
            } => write!(f, "ring-{tokens}-random"),
            Self::Range => f.write_str("range"),
            Self::Rendezvous => f.write_str("rendezvous"),
            Self::Jump => f.write_str("jump"),
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let unknown = || UnknownStrategy(text.to_owned());
        match text {
            "mod" => Ok(Self::Modulo),
            "fixed" => Ok(Self::Fixed),
            "range" => Ok(Self::Range),
            "rendezvous" => Ok(Self::Rendezvous),
            "jump" => Ok(Self::Jump),
            _ => {
                let tokens = text.strip_prefix("ring-").ok_or_else(unknown)?;
                let (tokens, random) = tokens
                    .strip_suffix("-random")
                    .map_or((tokens, false), |tokens| (tokens, true));
                let tokens = tokens
                    .parse()
                    .ok()
                    .filter(|n| (1..=TOKENS_MAX).contains(n))
                    .ok_or_else(unknown)?;
                Ok(Self::Ring { tokens, random })
            }
        }
    }
}

/// A number that a seed draws.
pub(super) fn mixed(seed: u64, number: u64) -> u64 {
    let mut digest = Digest::new();
    digest.write_u64(seed);
    digest.write_u64(number);
    digest.finish()
}

/// Nodes of which a strategy takes those that come first in an order of its own and stand apart.
#[derive(Debug)]
struct Nodes(Spread);

impl Nodes {
    fn new(nodes: &[Arc<Member>], copies: usize) -> Self {
        Self(Spread::new(nodes, copies))
    }

    fn len(&self) -> usize {
        self.0.members().len()
    }

    /// Takes the first that may be taken, again and again; `next` gives the order, and is asked
    /// with those that were taken.
    fn take(
        &self,
        holders: &mut Vec<MemberId>,
        mut next: impl FnMut(&dyn Fn(usize) -> bool) -> Option<usize>,
    ) {
        let mut taken = [0; REPLICAS_MAX];
        for count in 0..self.0.copies() {
            let may = |place: usize| self.0.admits(&taken[..count], place);
            let Some(place) = next(&may) else { break };
            taken[count] = place;
            holders.push(self.0.members()[place].id);
        }
    }
}
