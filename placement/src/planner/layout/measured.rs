//! The measured loads of the partitions of one keyspace, for its layout.

use super::{Seats, Topology};
use crate::id::{MemberId, PartitionRef};
use crate::loads::{Loads, PartitionLoad, Uneven};
use crate::table::{Keyspace, Partition, Table};
use std::sync::Arc;

/// The loads of one keyspace, and the other loads of its members.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// What is to be evened out. Nothing, if no loads are known.
    pub(super) uneven: Uneven,
    /// The load of each partition.
    pub(super) weights: Vec<Weight>,
    /// The other loads of each member of the topology.
    pub(super) elsewhere: Vec<Burden>,
    /// For each partition, the members that would refuse a copy of it for balance. Empty if no
    /// member would refuse any.
    pub(super) refused: Vec<Vec<usize>>,
}

/// The load that one partition adds to its members.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    /// For its primary alone.
    pub(super) lead: u64,
    /// For every copy.
    pub(super) copy: u64,
    pub(super) bytes: u64,
}

/// The load of a member.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Burden {
    pub(super) work: u64,
    pub(super) bytes: u64,
}

impl Burden {
    fn add(&mut self, weight: Weight, leads: bool) {
        self.work += weight.copy + if leads { weight.lead } else { 0 };
        self.bytes += weight.bytes;
    }

    fn take(&mut self, weight: Weight, leads: bool) {
        self.work -= weight.copy + if leads { weight.lead } else { 0 };
        self.bytes -= weight.bytes;
    }
}

impl From<&PartitionLoad> for Weight {
    fn from(load: &PartitionLoad) -> Self {
        Self {
            lead: load.work_of_reads(),
            copy: load.work_of_writes(),
            bytes: load.bytes,
        }
    }
}

/// The loads of members over all keyspaces, while one keyspace after the other is laid out.
#[derive(Debug)]
pub(crate) struct OtherKeyspaceLoads<'a> {
    topology: &'a Topology,
    loads: &'a Loads,
    burdens: Vec<Burden>,
}

impl<'a> OtherKeyspaceLoads<'a> {
    pub(crate) fn new(topology: &'a Topology, table: &Table, loads: &'a Loads) -> Self {
        let mut others = Self {
            topology,
            loads,
            burdens: vec![Burden::default(); topology.len()],
        };
        if others.counts() {
            table
                .keyspaces
                .iter()
                .for_each(|keyspace| others.each(keyspace, Burden::add));
        }
        others
    }

    /// As [`Loads::refuses`].
    pub(crate) fn refuses(&self, table: &Table, at: PartitionRef, member: MemberId) -> bool {
        self.loads.refuses(table, at, member)
    }

    fn counts(&self) -> bool {
        let uneven = self.loads.uneven();
        uneven.work || uneven.bytes
    }

    fn each(&mut self, keyspace: &Keyspace, change: fn(&mut Burden, Weight, bool)) {
        for partition in &keyspace.partitions {
            let Some(load) = self
                .loads
                .partition(PartitionRef::new(keyspace.id, partition.id))
            else {
                continue;
            };
            for replica in &partition.replicas {
                let Some(place) = self.topology.place(replica.member) else {
                    continue;
                };
                change(
                    &mut self.burdens[place],
                    load.into(),
                    replica.member == partition.primary(),
                );
            }
        }
    }

    /// The loads for the layout of this keyspace, which no longer counts among the others.
    pub(crate) fn measured(&mut self, keyspace: &Keyspace) -> Measured {
        let at = |p: &Arc<Partition>| PartitionRef::new(keyspace.id, p.id);
        let refused = if self.loads.full().is_empty() {
            Vec::new()
        } else {
            keyspace
                .partitions
                .iter()
                .map(|p| self.topology.refusing(self.loads, at(p)).collect())
                .collect()
        };
        if !self.counts() {
            return Measured {
                refused,
                ..Measured::default()
            };
        }
        self.each(keyspace, Burden::take);
        let weight = |p| {
            self.loads
                .partition(at(p))
                .map(Weight::from)
                .unwrap_or_default()
        };
        let weights = keyspace.partitions.iter().map(weight).collect();
        Measured {
            uneven: self.loads.uneven(),
            weights,
            elsewhere: self.burdens.clone(),
            refused,
        }
    }

    /// The keyspace is laid out, and counts again with its new layout.
    pub(crate) fn laid_out(&mut self, seats: &Seats<'_>) {
        if self.counts() {
            self.burdens = seats.burdens();
        }
    }
}

impl Seats<'_> {
    /// The load of each member in the present layout, with its load of other keyspaces. Copies of
    /// partitions that cannot be copied now do not count, because they stay where they are.
    pub(super) fn burdens(&self) -> Vec<Burden> {
        let mut burdens = self.measured.elsewhere.clone();
        for (seating, weight) in self.partitions.iter().zip(&self.measured.weights) {
            for (seat, &member) in seating.members.iter().enumerate() {
                burdens[member].add(*weight, seat == 0);
            }
        }
        burdens
    }
}
