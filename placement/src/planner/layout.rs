//! The placement of copies: the members that may hold data, how far apart they are, and how much
//! each should hold.

mod bounds;
mod measured;
mod pairs;
mod schedulers;
mod search;
mod seats;
mod shares;
mod topology;

pub(crate) use bounds::Bounds;
pub(super) use measured::OtherKeyspaceLoads;
pub(crate) use schedulers::{Seen, shapes};
pub(super) use seats::{Seating, Seats};
pub(crate) use shares::copies_each;
pub(super) use shares::leads_each;
pub(crate) use topology::{LEVELS, Topology};

use super::health::copies_wanted;
use crate::id::{KeyspaceId, MemberId, PartitionRef};
use crate::table::{Member, Table};
use std::collections::BTreeMap;

/// Places for partitions that begin empty, without planning: each goes to the least loaded members
/// that are apart.
#[derive(Debug)]
pub(super) struct Spare {
    topology: Topology,
    /// The rules of each keyspace.
    rules: BTreeMap<KeyspaceId, Bounds>,
    /// For each keyspace, the copies of each member of the topology.
    loads: BTreeMap<KeyspaceId, Vec<u64>>,
    /// For each keyspace, the primaries of each member.
    leads: BTreeMap<KeyspaceId, Vec<u64>>,
}

impl Spare {
    /// Places on the members that `may` hold data, with their loads in this table.
    pub(super) fn new(table: &Table, may: impl Fn(&Member) -> bool) -> Self {
        let topology = Topology::new(table.members.iter().filter(|m| may(m)).cloned().collect());
        let rules = table
            .keyspaces
            .iter()
            .map(|k| (k.id, Bounds::new(&topology, &k.rules)))
            .collect();
        let mut spare = Self {
            topology,
            rules,
            loads: BTreeMap::new(),
            leads: BTreeMap::new(),
        };
        for keyspace in &table.keyspaces {
            let mut loads = vec![0; spare.topology.len()];
            let mut leads = vec![0; spare.topology.len()];
            for partition in &keyspace.partitions {
                partition
                    .replicas
                    .iter()
                    .filter_map(|r| spare.topology.place(r.member))
                    .for_each(|m| loads[m] += 1);
                spare
                    .topology
                    .place(partition.primary())
                    .into_iter()
                    .for_each(|m| leads[m] += 1);
            }
            spare.loads.insert(keyspace.id, loads);
            spare.leads.insert(keyspace.id, leads);
        }
        spare
    }

    /// Members for all copies of this partition, the primary first. None if no member may hold it.
    pub(super) fn take(&mut self, table: &Table, at: PartitionRef) -> Vec<MemberId> {
        let Some(keyspace) = table.keyspace(at.keyspace) else {
            return Vec::new();
        };
        let (Some(loads), Some(leads)) = (
            self.loads.get_mut(&at.keyspace),
            self.leads.get_mut(&at.keyspace),
        ) else {
            return Vec::new();
        };
        let Some(rules) = self.rules.get(&at.keyspace) else {
            return Vec::new();
        };
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..copies_wanted(keyspace, self.topology.len()) {
            let free = (0..self.topology.len()).filter(|m| !chosen.contains(m));
            let best = free.min_by_key(|&m| {
                let chosen = || chosen.iter().copied();
                let harm = rules.harm(chosen().chain([m]));
                (
                    harm,
                    self.topology.nearness(m, chosen()),
                    self.topology.relative(loads[m], m),
                    m,
                )
            });
            let Some(best) = best else { break };
            loads[best] += 1;
            chosen.push(best);
        }
        let ease = |m: usize| {
            (
                rules.harm_of_lead(m),
                self.topology.relative(leads[m], m),
                m,
            )
        };
        if let Some(lead) = (0..chosen.len()).min_by_key(|&i| ease(chosen[i])) {
            chosen.swap(0, lead);
            leads[chosen[0]] += 1;
        }
        chosen.into_iter().map(|m| self.topology.id(m)).collect()
    }
}
