//! The operations to run: every key once, or operations drawn from a seed.

use super::keys::BenchKeys;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Reads the key.
    Get,
    /// Writes the key.
    Set,
    /// Deletes the key.
    Delete,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadOperation {
    /// The kind.
    pub(super) kind: OperationKind,
    /// The key.
    pub(super) key: u64,
}

/// The operations of one thread, in order. The same seed draws the same operations.
#[derive(Debug)]
pub(super) struct BenchPlan(LoadSource);

#[derive(Debug)]
enum LoadSource {
    Every(OperationKind, Range<u64>),
    Drawn {
        keys: BenchKeys,
        reads_percent: u8,
        rng: Box<StdRng>,
    },
}

impl BenchPlan {
    /// Writes or deletes every key once, then ends.
    pub(super) fn every(kind: OperationKind, keys: Range<u64>) -> Self {
        Self(LoadSource::Every(kind, keys))
    }

    /// Never ends. Of a hundred operations, `reads_percent` are reads.
    pub(super) fn drawn(keys: BenchKeys, reads_percent: u8, seed: u64) -> Self {
        Self(LoadSource::Drawn {
            keys,
            reads_percent,
            rng: Box::new(StdRng::seed_from_u64(seed)),
        })
    }

    /// Whether each operation appears only once. A connection that cannot run such an operation
    /// must pass it on.
    pub(super) fn is_finite(&self) -> bool {
        matches!(self.0, LoadSource::Every(..))
    }
}

impl Iterator for BenchPlan {
    type Item = LoadOperation;

    fn next(&mut self) -> Option<LoadOperation> {
        match &mut self.0 {
            LoadSource::Every(kind, keys) => {
                keys.next().map(|key| LoadOperation { kind: *kind, key })
            }
            LoadSource::Drawn {
                keys,
                reads_percent,
                rng,
            } => {
                let reads = match *reads_percent {
                    0 => false,
                    100.. => true,
                    percent => rng.random_range(0..100) < percent,
                };
                Some(LoadOperation {
                    kind: if reads {
                        OperationKind::Get
                    } else {
                        OperationKind::Set
                    },
                    key: keys.draw(rng),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(percent: u8) -> usize {
        BenchPlan::drawn(BenchKeys::uniform(100), percent, 1)
            .take(10_000)
            .filter(|o| o.kind == OperationKind::Get)
            .count()
    }

    #[test]
    fn the_share_of_reads_is_as_requested() {
        assert_eq!(reads(0), 0);
        assert_eq!(reads(100), 10_000);
        assert!((7_800..8_200).contains(&reads(80)), "{}", reads(80));
    }

    #[test]
    fn a_seed_draws_the_same_operations_again() {
        let drawn = |seed| {
            BenchPlan::drawn(BenchKeys::uniform(1_000_000), 50, seed)
                .take(100)
                .collect::<Vec<_>>()
        };
        assert_eq!(drawn(3), drawn(3));
        assert_ne!(drawn(3), drawn(4));
    }

    #[test]
    fn filling_writes_every_key_once() {
        let all = || BenchPlan::every(OperationKind::Set, 5..9);
        assert_eq!(all().map(|o| o.key).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(all().all(|o| o.kind == OperationKind::Set));
    }
}
