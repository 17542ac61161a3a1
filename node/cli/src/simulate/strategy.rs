//! Ways of placing keys, one in each file.

mod fixed;
mod jump;
mod modulo;
mod range;
mod rendezvous;
mod ring;

pub(super) use fixed::Fixed;

use super::keys::SimulatedKeys;
use doyen_placement::hash::Digest;
use doyen_placement::id::MemberId;
use doyen_placement::ring::{ArcSpread, TOKENS_MAX};
use doyen_placement::table::Member;
use doyen_placement::table::validate::REPLICAS_MAX;
use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;
use std::sync::Arc;

/// A way of placing keys on nodes that come and go.
pub(super) trait Strategy {
    /// Takes the new list of nodes, and moves what must move.
    fn follow(&mut self, nodes: &[Arc<Member>]);

    /// Appends the holders of this key, primary first: one for each copy, or one for each node if
    /// there are fewer nodes.
    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>);

    /// The size of the table that look-ups need: `StrategyOutcome::table_bytes`.
    fn table_bytes(&self) -> usize;
}

/// The kinds of strategies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StrategyKind {
    /// The hash modulo the number of nodes, as a bad example. It ignores weights.
    Modulo,
    /// A fixed number of partitions, placed by the planner of production.
    Fixed,
    /// A number of tokens for each node, on a ring.
    Ring {
        /// The number of tokens.
        tokens: usize,
        /// Drawn at random, rather than chosen so that shares are even.
        random: bool,
    },
    /// Ordered ranges of equal bytes, placed by the planner of production.
    Range,
    /// The nodes whose hash with the key is highest.
    Rendezvous,
    /// Jump consistent hash: nodes are numbered, and only the last number can disappear. It ignores
    /// weights.
    Jump,
}

/// The name is not a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a strategy: give mod, fixed, ring-16 (or another number of tokens), \
     ring-16-random, range, rendezvous or jump"
)]
pub(super) struct UnknownStrategy(String);

/// The options of all strategies.
#[derive(Debug, Clone, Copy)]
pub(super) struct StrategyOptions<'a> {
    /// Copies, the primary among them.
    pub(super) copies: usize,
    /// Partitions of fixed and of range: a power of two up to 16384.
    pub(super) partitions: u16,
    /// The seed of random choices.
    pub(super) seed: u64,
    /// The keys that range takes its splits from.
    pub(super) keys: &'a SimulatedKeys,
}

impl StrategyKind {
    /// The strategies that are compared by default.
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

    /// Creates the strategy, before it has seen any node.
    #[must_use]
    pub(super) fn strategy(self, options: &StrategyOptions<'_>) -> Box<dyn Strategy> {
        let StrategyOptions {
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
            Self::Range => Box::new(range::RangeStrategy::new(partitions, copies, keys)),
            Self::Rendezvous => Box::new(rendezvous::Rendezvous::new(copies)),
            Self::Jump => Box::new(jump::Jump::new(copies)),
        }
    }
}

impl fmt::Display for StrategyKind {
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

impl FromStr for StrategyKind {
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

/// A hash of a seed and a number.
pub(super) fn mixed(seed: u64, number: u64) -> u64 {
    let mut digest = Digest::new();
    digest.write_u64(seed);
    digest.write_u64(number);
    digest.finish()
}

/// The nodes of a strategy that has an order for each key: a key takes the first nodes of its order
/// that stand apart.
#[derive(Debug)]
struct Nodes(ArcSpread);

impl Nodes {
    fn new(nodes: &[Arc<Member>], copies: usize) -> Self {
        Self(ArcSpread::new(nodes, copies))
    }

    fn len(&self) -> usize {
        self.0.members().len()
    }

    /// Takes the first node that may be taken, again and again. `next` gives the order, and gets
    /// the nodes that were taken.
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
