//! The figures of a simulation.

use super::cluster::SimulatedStage;
use super::comparison::NO_HOLDER;
use super::keys::SimulatedKey;
use doyen_placement::id::MemberId;
use doyen_placement::ring::ArcSpread;
use doyen_placement::table::Member;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The figures of one strategy.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StrategyOutcome {
    /// Its name.
    pub(super) strategy: String,
    /// The start, and the stage after each event.
    pub(super) stages: Vec<StageFigures>,
    /// The load of the last stage with the hottest key salted, if requested.
    pub(super) load_salted: Option<Imbalance>,
    /// The size of the table that look-ups need, in bytes: 8 for each member, token and position of
    /// a split, 4 for each copy of a partition, and the keys of the splits.
    pub(super) table_bytes: usize,
    /// The time to find all copies of a key, in nanoseconds. The caller fills it in, because this
    /// module has no clock.
    pub(super) lookup_ns: Option<f64>,
}

/// The cluster at one stage.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StageFigures {
    /// The latest event; empty at the start.
    pub(super) event: String,
    /// The number of keys that nodes hold, with all copies.
    pub(super) keys: Imbalance,
    /// The bytes that nodes hold, with all copies.
    pub(super) bytes: Imbalance,
    /// The load of the primaries.
    pub(super) load: Imbalance,
    /// What the event moved; `None` at the start.
    pub(super) moved: Option<Moved>,
    /// The figures of each node.
    pub(super) nodes: Vec<NodeFigures>,
}

/// How evenly something is spread, as a multiple of the fair share. The fair share follows the
/// weights, as far as keeping copies apart allows; 1 is fair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Imbalance {
    /// The multiple of the node with the highest one.
    pub(super) max: f64,
    /// The 99th percentile of all nodes.
    pub p99: f64,
}

/// The data that an event moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Moved {
    /// Bytes that were copied to nodes that did not hold them.
    pub(super) bytes: f64,
    /// Bytes that must be copied at least, to get from the former fair shares to the new ones.
    pub(super) bytes_least: f64,
    /// The share of keys with a copy at a node that did not hold the key before, from 0 to 1.
    pub(super) keys: f64,
    /// The share of keys with another primary, from 0 to 1.
    pub(super) led: f64,
}

impl Moved {
    /// What was moved, as a multiple of what must move; `None` if nothing must.
    #[must_use]
    pub(super) fn times(&self) -> Option<f64> {
        (self.bytes_least > 0.0).then(|| self.bytes / self.bytes_least)
    }
}

/// The figures of one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NodeFigures {
    /// Its name.
    pub(super) name: String,
    /// Its zone; empty if none is given.
    pub(super) zone: String,
    /// Its weight; 100 is the default.
    pub(super) weight: u32,
    /// Copies of keys that it holds.
    pub(super) keys: u64,
    /// Bytes of those copies.
    pub(super) bytes: f64,
    /// The load that it serves as a primary.
    pub(super) load: f64,
    /// Its bytes as a multiple of its fair share.
    pub(super) bytes_fair: f64,
}

/// Counts where keys are.
#[derive(Debug)]
pub(super) struct Tally {
    /// Keys, bytes and load of each node.
    nodes: BTreeMap<MemberId, (u64, f64, f64)>,
    copies: usize,
    keys: u64,
    bytes: f64,
    moved: (f64, u64, u64),
}

impl Tally {
    pub(super) fn new(nodes: &[Arc<Member>], copies: usize) -> Self {
        Self {
            nodes: nodes.iter().map(|n| (n.id, (0, 0.0, 0.0))).collect(),
            copies,
            keys: 0,
            bytes: 0.0,
            moved: (0.0, 0, 0),
        }
    }

    /// Counts a key with its holders, primary first, and its former holders.
    pub(super) fn add(
        &mut self,
        key: &SimulatedKey<'_>,
        holders: &[MemberId],
        before: Option<&[MemberId]>,
    ) {
        self.keys += 1;
        self.bytes += key.size as f64;
        for (place, holder) in holders.iter().enumerate() {
            let (keys, bytes, load) = self.nodes.entry(*holder).or_default();
            *keys += 1;
            *bytes += key.size as f64;
            *load += if place == 0 { key.load } else { 0.0 };
        }
        if let Some(before) = before {
            let arrived = holders.iter().filter(|m| !before.contains(m)).count();
            self.moved.0 += key.size as f64 * arrived as f64;
            self.moved.1 += u64::from(arrived > 0);
            self.moved.2 += u64::from(
                before
                    .first()
                    .is_some_and(|m| *m != NO_HOLDER && holders.first() != Some(m)),
            );
        }
    }

    pub(super) fn figures(
        self,
        stage: &SimulatedStage,
        from: Option<&[Arc<Member>]>,
    ) -> StageFigures {
        let shares = shares(&stage.nodes, self.copies);
        // In a running cluster, some keyspaces may have fewer copies than others.
        let wanted: f64 = shares.values().map(|(_, held)| held).sum();
        let held = self
            .nodes
            .values()
            .fold((0.0, 0.0), |all, (keys, bytes, _)| {
                (all.0 + *keys as f64, all.1 + bytes)
            });
        let (held_keys, held_bytes) = (ratio(held.0, wanted), ratio(held.1, wanted));
        let load: f64 = self.nodes.values().map(|(.., load)| load).sum();
        let of = |m: &Arc<Member>| self.nodes.get(&m.id).copied().unwrap_or_default();
        let even =
            |part: &dyn Fn(&Arc<Member>) -> f64| imbalance(stage.nodes.iter().map(part).collect());
        let bytes_fair = |m: &Arc<Member>| ratio(of(m).1, shares[&m.id].1 * held_bytes);
        let moved = from.map(|from| {
            let before = self::shares(from, self.copies);
            let short = |(m, (_, held)): (&MemberId, &(f64, f64))| {
                (held - before.get(m).map_or(0.0, |b| b.1)).max(0.0)
            };
            let least = shares.iter().map(short).sum::<f64>() * held_bytes;
            let share = |count: u64| ratio(count as f64, self.keys as f64);
            // A difference due to rounding does not count.
            let bytes_least = if least < self.bytes * 1e-6 {
                0.0
            } else {
                least
            };
            Moved {
                bytes: self.moved.0,
                bytes_least,
                keys: share(self.moved.1),
                led: share(self.moved.2),
            }
        });
        StageFigures {
            event: stage.event.clone(),
            keys: even(&|m| ratio(of(m).0 as f64, shares[&m.id].1 * held_keys)),
            bytes: even(&bytes_fair),
            load: even(&|m| ratio(of(m).2, shares[&m.id].0 * load)),
            moved,
            nodes: stage
                .nodes
                .iter()
                .map(|m| NodeFigures {
                    name: m.name.clone(),
                    zone: m.location.zone.clone(),
                    weight: m.weight,
                    keys: of(m).0,
                    bytes: of(m).1,
                    load: of(m).2,
                    bytes_fair: bytes_fair(m),
                })
                .collect(),
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The share of primaries and of copies that each node should have.
fn shares(nodes: &[Arc<Member>], copies: usize) -> BTreeMap<MemberId, (f64, f64)> {
    let shares = ArcSpread::new(nodes, copies).fair();
    nodes.iter().map(|n| n.id).zip(shares).collect()
}

fn imbalance(mut parts: Vec<f64>) -> Imbalance {
    parts.sort_by(f64::total_cmp);
    let at = |rank: usize| parts.get(rank.saturating_sub(1)).copied().unwrap_or(0.0);
    Imbalance {
        max: at(parts.len()),
        p99: at((parts.len() * 99).div_ceil(100)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::SimulatedCluster;
    use super::*;

    fn nodes(count: usize, weights: &[u32]) -> Vec<Arc<Member>> {
        SimulatedCluster::new(count, weights, &[])
            .expect("possible")
            .stages(&[])
            .expect("possible")
            .remove(0)
            .nodes
    }

    #[test]
    fn p99_is_by_rank() {
        let parts = (1..=200).map(f64::from).collect();
        assert_eq!(
            imbalance(parts),
            Imbalance {
                max: 200.0,
                p99: 198.0
            }
        );
        assert_eq!(imbalance(vec![2.0]), Imbalance { max: 2.0, p99: 2.0 });
    }

    #[test]
    fn the_fullest_node_has_at_least_its_fair_share_though_some_keys_have_fewer_copies() {
        let nodes = nodes(3, &[100]);
        let mut tally = Tally::new(&nodes, 3);
        let key = SimulatedKey {
            name: b"k",
            size: 100,
            load: 1.0,
        };
        nodes.iter().for_each(|n| tally.add(&key, &[n.id], None));
        tally.add(&key, &nodes.iter().map(|n| n.id).collect::<Vec<_>>(), None);
        let figures = tally.figures(
            &SimulatedStage {
                event: String::new(),
                nodes,
            },
            None,
        );
        assert!(
            (figures.keys.max - 1.0).abs() < 1e-6 && (figures.bytes.max - 1.0).abs() < 1e-6,
            "{figures:?}"
        );
    }

    #[test]
    fn a_tally_counts_copies_loads_and_moved_bytes() {
        let nodes = nodes(3, &[100, 100, 200]);
        let [a, b, c] = [nodes[0].id, nodes[1].id, nodes[2].id];
        let mut tally = Tally::new(&nodes, 2);
        let key = |size, load| SimulatedKey {
            name: b"k",
            size,
            load,
        };
        tally.add(&key(100, 1.0), &[c, a], Some(&[a, b]));
        tally.add(&key(300, 3.0), &[c, b], Some(&[b, c]));
        let figures = tally.figures(
            &SimulatedStage {
                event: "x".into(),
                nodes: nodes.clone(),
            },
            Some(&nodes),
        );
        let counted: Vec<(u64, f64, f64)> = figures
            .nodes
            .iter()
            .map(|n| (n.keys, n.bytes, n.load))
            .collect();
        assert_eq!(counted, [(1, 100.0, 0.0), (1, 300.0, 0.0), (2, 400.0, 4.0)]);
        // node3 holds a copy of every key, as it should. It leads all keys, and should lead half of
        // them.
        assert!(
            (figures.load.max - 2.0).abs() < 1e-6 && (figures.bytes.max - 1.5).abs() < 1e-6,
            "{figures:?}"
        );
        assert_eq!(
            figures.moved,
            Some(Moved {
                bytes: 100.0,
                bytes_least: 0.0,
                keys: 0.5,
                led: 1.0
            })
        );
    }
}
