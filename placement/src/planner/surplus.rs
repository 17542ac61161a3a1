//! How many partitions members have beyond their share, for monitoring.

use super::health::copies_wanted;
use super::layout::{Topology, copies_each, leads_each};
use super::may_receive;
use crate::id::{KeyspaceId, PartitionRef};
use crate::loads::Loads;
use crate::table::{Keyspace, Mode, Table};
use std::collections::BTreeMap;

/// How far the member that is furthest above its share is above it, in partitions. 0 if none is
/// above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Surplus {
    /// Copies that it holds.
    pub copies: u64,
    /// Partitions that it leads.
    pub leads: u64,
}

/// The surplus of each keyspace, over the shares that [`plan_for`](super::plan_for) aims at. It is
/// 0 if a plan has nothing to move for balance. It may be a few if keeping copies apart leaves no
/// way to a share.
///
/// Keyspaces with rules and rings are not listed, because their members have no such shares.
#[must_use]
pub fn surplus(table: &Table, loads: &Loads) -> BTreeMap<KeyspaceId, Surplus> {
    let topology = Topology::new(
        table
            .members
            .iter()
            .filter(|m| may_receive(m))
            .cloned()
            .collect(),
    )
    .told(loads);
    let has_shares = |k: &&Keyspace| k.rules.is_empty() && !matches!(k.mode, Mode::Ring { .. });
    table
        .keyspaces
        .iter()
        .filter(has_shares)
        .map(|k| (k.id, of(&topology, k, loads)))
        .collect()
}

fn of(topology: &Topology, keyspace: &Keyspace, loads: &Loads) -> Surplus {
    let [mut held, mut led, mut refused] = [0; 3].map(|none| vec![none; topology.len()]);
    for partition in &keyspace.partitions {
        partition
            .in_sync()
            .filter_map(|m| topology.place(m))
            .for_each(|m| held[m] += 1);
        topology
            .place(partition.primary())
            .into_iter()
            .for_each(|m| led[m] += 1);
        let at = PartitionRef::new(keyspace.id, partition.id);
        topology
            .refusing(loads, at)
            .filter(|m| !partition.holds(topology.id(*m)))
            .for_each(|m| refused[m] += 1);
    }
    let (partitions, turn) = (keyspace.partitions.len() as u64, usize::from(keyspace.id.0));
    // As in the planner: a nearly full member has no claim to all that it holds.
    let present: Vec<u64> = held
        .iter()
        .enumerate()
        .map(|(m, held)| topology.keeps(m, *held).min(*held))
        .collect();
    let copies = copies_wanted(keyspace, topology.len());
    let shares = copies_each(
        topology,
        (partitions, copies),
        held.iter().sum(),
        (&present, &refused),
        turn,
    );
    let leads = leads_each(topology, led.iter().sum(), &held, &led, turn);
    let most = |have: &[u64], share: &[u64]| {
        have.iter()
            .zip(share)
            .map(|(have, share)| have.saturating_sub(*share))
            .max()
            .unwrap_or(0)
    };
    Surplus {
        copies: most(&held, &shares),
        leads: most(&led, &leads),
    }
}
