//! One division from another: a partition is cut in two, or two become one.

use super::{
    Arcs, ArcsError, Brought, Division, RangeStart, Ranges, RangesError, RunStart, Runs, RunsError,
};
use crate::id::{MapId, MemberId, PartitionId};
use crate::token::Token;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The place at which a partition is cut.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cut {
    /// The middle of a run of slots.
    Half,
    /// A token in an arc. The first part ends with it.
    Token {
        /// The token.
        token: Token,
        /// The member that brings it.
        by: MemberId,
    },
    /// A key in a range. The second part begins with it.
    Key {
        /// The map of the key.
        map: MapId,
        /// The key.
        key: Box<[u8]>,
    },
}

/// Why a division is not made. The present one stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDivided {
    /// It has no such partition.
    #[error("there is no partition {0}")]
    NoPartition(PartitionId),
    /// The place is not within the partition.
    #[error("the place to split at does not lie within partition {0}")]
    Outside(PartitionId),
    /// A partition of one slot cannot be cut.
    #[error("partition {0} is one slot, which cannot be split")]
    Slot(PartitionId),
    /// They are no neighbours.
    #[error("partitions {0} and {1} are no neighbours")]
    Apart(PartitionId, PartitionId),
    /// The keyspace is divided in another way.
    #[error("the keyspace is divided otherwise: slots by halves, rings by tokens, ranges by keys")]
    Kind,
    /// The result would not be valid.
    #[error(transparent)]
    Ranges(#[from] RangesError),
    /// The result would not be valid.
    #[error(transparent)]
    Arcs(#[from] ArcsError),
    /// The result would not be valid.
    #[error(transparent)]
    Runs(#[from] RunsError),
}

impl Division {
    /// The division with this partition cut in two.
    ///
    /// # Errors There is no such partition, or it cannot be cut there.
    pub fn split(
        &self,
        partition: PartitionId,
        cut: &Cut,
        parts: [PartitionId; 2],
    ) -> Result<Self, NotDivided> {
        let [first, second] = parts;
        match (self, cut) {
            (Self::Runs(runs), Cut::Half) => {
                let slots = runs
                    .slots_of(partition)
                    .ok_or(NotDivided::NoPartition(partition))?;
                let length = slots.end() - slots.start() + 1;
                if length < 2 {
                    return Err(NotDivided::Slot(partition));
                }
                let mut starts: Vec<RunStart> = runs
                    .starts()
                    .iter()
                    .filter(|s| s.partition != partition)
                    .copied()
                    .collect();
                starts.push(RunStart {
                    slot: *slots.start(),
                    partition: first,
                });
                starts.push(RunStart {
                    slot: slots.start() + length / 2,
                    partition: second,
                });
                starts.sort_unstable();
                Ok(Self::Runs(Arc::new(Runs::new(starts)?)))
            }
            (Self::Arcs(arcs), Cut::Token { token, by }) => {
                let mut brought: Vec<Brought> = arcs.brought().collect();
                let at = brought
                    .iter()
                    .position(|b| b.partition == partition)
                    .ok_or(NotDivided::NoPartition(partition))?;
                let within = arcs.ring().arc_of(*token) == Some(at) && brought[at].token != *token;
                if !within {
                    return Err(NotDivided::Outside(partition));
                }
                brought[at].partition = second;
                brought.push(Brought {
                    token: *token,
                    by: *by,
                    partition: first,
                });
                Ok(Self::Arcs(Arc::new(Arcs::new(brought)?)))
            }
            (Self::Ranges(ranges), Cut::Key { map, key }) => {
                let mut starts = ranges.starts().to_vec();
                let at = starts
                    .iter()
                    .position(|s| s.partition == partition)
                    .ok_or(NotDivided::NoPartition(partition))?;
                let behind = |s: &RangeStart| (s.map, &s.key) > (*map, key);
                if (starts[at].map, &starts[at].key) >= (*map, key)
                    || !starts.get(at + 1).is_none_or(behind)
                {
                    return Err(NotDivided::Outside(partition));
                }
                starts[at].partition = first;
                starts.insert(
                    at + 1,
                    RangeStart {
                        map: *map,
                        key: key.clone(),
                        partition: second,
                    },
                );
                Ok(Self::Ranges(Arc::new(Ranges::new(starts)?)))
            }
            _ => Err(NotDivided::Kind),
        }
    }

    /// The division with these two neighbours as one.
    ///
    /// # Errors They do not exist, or the second does not follow the first, or they are runs of
    /// slots, which are not merged.
    pub fn merge(
        &self,
        [first, second]: [PartitionId; 2],
        into: PartitionId,
    ) -> Result<Self, NotDivided> {
        if !self.follows(first, second)? {
            return Err(NotDivided::Apart(first, second));
        }
        match self {
            Self::Arcs(arcs) => {
                let brought = arcs.brought().filter(|b| b.partition != first);
                let renamed = brought.map(|b| {
                    if b.partition == second {
                        Brought {
                            partition: into,
                            ..b
                        }
                    } else {
                        b
                    }
                });
                Ok(Self::Arcs(Arc::new(Arcs::new(renamed.collect())?)))
            }
            Self::Ranges(ranges) => {
                let starts = ranges
                    .starts()
                    .iter()
                    .filter(|s| s.partition != second)
                    .cloned();
                let renamed = starts.map(|s| {
                    if s.partition == first {
                        RangeStart {
                            partition: into,
                            ..s
                        }
                    } else {
                        s
                    }
                });
                Ok(Self::Ranges(Arc::new(Ranges::new(renamed.collect())?)))
            }
            Self::Slots | Self::Runs(_) => Err(NotDivided::Kind),
        }
    }

    /// Whether the second begins where the first ends.
    fn follows(&self, first: PartitionId, second: PartitionId) -> Result<bool, NotDivided> {
        let all = self.partitions();
        let place = |id: PartitionId| {
            all.iter()
                .position(|p| *p == id)
                .ok_or(NotDivided::NoPartition(id))
        };
        let (at, next) = (place(first)?, place(second)?);
        let closed = matches!(self, Self::Arcs(_)) && all.len() > 1;
        Ok(at + 1 == next || (closed && at + 1 == all.len() && next == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(0);
    const PARTS: [PartitionId; 2] = [PartitionId(7), PartitionId(8)];

    fn key(map: u32, key: &str) -> Cut {
        Cut::Key {
            map: MapId(map),
            key: key.as_bytes().into(),
        }
    }

    #[test]
    fn a_range_is_cut_at_a_key_and_put_together_again() {
        let whole = Division::split_at(["m"]).expect("a split");
        let cut = whole.split(P, &key(0, "f"), PARTS).expect("within");
        let ranges = |division: &Division| match division {
            Division::Ranges(ranges) => ranges.clone(),
            other => unreachable!("{other:?}"),
        };
        let of = |division: &Division, key: &str| {
            ranges(division).partition_of(MapId(0), key.as_bytes()).0
        };
        assert_eq!(["a", "f", "l", "m"].map(|k| of(&cut, k)), [7, 8, 8, 1]);
        assert_eq!(
            ["m", "", "z"].map(|k| whole.split(P, &key(0, k), PARTS)),
            [(); 3].map(|()| Err(NotDivided::Outside(P)))
        );
        assert_eq!(
            whole.split(PartitionId(5), &key(0, "f"), PARTS),
            Err(NotDivided::NoPartition(PartitionId(5)))
        );
        assert_eq!(whole.split(P, &Cut::Half, PARTS), Err(NotDivided::Kind));
        let merged = cut.merge(PARTS, PartitionId(9)).expect("neighbours");
        assert_eq!(["a", "f", "m"].map(|k| of(&merged, k)), [9, 9, 1]);
        assert_eq!(
            cut.merge([PartitionId(8), PartitionId(7)], P),
            Err(NotDivided::Apart(PartitionId(8), PartitionId(7)))
        );
        // Maps divide, too: the keys of map 3 follow the last key of map 0.
        let maps = whole
            .split(PartitionId(1), &key(3, ""), PARTS)
            .expect("within");
        assert_eq!(ranges(&maps).partition_of(MapId(3), b"a"), PartitionId(8));
    }

    #[test]
    fn an_arc_is_cut_at_a_token_around_the_end_of_the_ring_too() {
        let brought = |token, by, partition| Brought {
            token: Token(token),
            by: MemberId(by),
            partition: PartitionId(partition),
        };
        let ring = Division::Arcs(Arc::new(
            Arcs::new(vec![brought(-100, 16, 0), brought(100, 32, 1)]).expect("a ring"),
        ));
        let at = |token| Cut::Token {
            token: Token(token),
            by: MemberId(48),
        };
        for token in [200, i64::MAX, i64::MIN + 1, -200] {
            let cut = ring
                .split(P, &at(token), PARTS)
                .expect("within the arc around the end");
            let Division::Arcs(arcs) = &cut else {
                unreachable!()
            };
            let of = |token| {
                arcs.partitions()
                    .nth(arcs.ring().arc_of(Token(token)).expect("tokens"))
            };
            assert_eq!(
                (of(token), of(-100), of(0)),
                (Some(PARTS[0]), Some(PARTS[1]), Some(PartitionId(1)))
            );
            let merged = cut.merge(PARTS, P).expect("neighbours");
            assert_eq!(merged, ring);
        }
        assert_eq!(ring.split(P, &at(0), PARTS), Err(NotDivided::Outside(P)));
        assert_eq!(ring.split(P, &at(-100), PARTS), Err(NotDivided::Outside(P)));
    }

    #[test]
    fn runs_of_slots_are_halved_until_they_are_slots() {
        let mut division = Division::Runs(Arc::new(Runs::even(1).expect("one")));
        let (mut last, mut next) = (P, 1);
        for _ in 0..14 {
            let parts = [PartitionId(next), PartitionId(next + 1)];
            division = division
                .split(last, &Cut::Half, parts)
                .expect("two slots at least");
            (last, next) = (parts[1], next + 2);
        }
        assert_eq!(
            division.split(last, &Cut::Half, PARTS),
            Err(NotDivided::Slot(last))
        );
        assert_eq!(
            division.merge([PartitionId(1), PartitionId(2)], P),
            Err(NotDivided::NoPartition(PartitionId(2)))
        );
    }
}
