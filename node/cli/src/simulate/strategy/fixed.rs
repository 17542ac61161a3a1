//! A fixed number of partitions, placed by the planner of production. This module drives the
//! planner as a coordinator and the primaries do.

use super::Strategy;
use doyen_placement::id::{ClusterId, MapId, MemberId, PartitionRef};
use doyen_placement::loads::Loads;
use doyen_placement::planner::may_receive;
use doyen_placement::planner::{
    self, Absence, HandOverUrgency, InSyncChange, InSyncRequest, MoveLimits,
};
use doyen_placement::table::{Keyspace, Member, Partition, Settings, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All moves run at once: their duration does not matter here.
const LIMITS: MoveLimits = MoveLimits {
    learners_per_source: usize::MAX,
    learners_per_target: usize::MAX,
    learners: usize::MAX,
};
/// Steps of a plan, and plans in a row. Both end by themselves; these limits only guard against a
/// defect.
const STEPS_MAX: usize = 1000;
const PLANS_MAX: usize = 20;

#[derive(Debug)]
pub(in crate::simulate) struct Fixed {
    partitions: u16,
    copies: usize,
    table: Option<Table>,
    /// Copies that were made, as the planner ordered them.
    learned: usize,
}

impl Fixed {
    pub(super) fn new(partitions: u16, copies: usize) -> Self {
        Self {
            partitions,
            copies,
            table: None,
            learned: 0,
        }
    }

    /// Continues from this table, which may have any keyspaces.
    pub(in crate::simulate) const fn of(table: Table, copies: usize) -> Self {
        Self {
            partitions: 0,
            copies,
            table: Some(table),
            learned: 0,
        }
    }

    pub(in crate::simulate) const fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    fn first(&self, nodes: &[Arc<Member>]) -> Table {
        // There are at most 31 copies.
        let keyspace = Keyspace::fixed(self.partitions, (self.copies - 1) as u8);
        let settings = Settings::default();
        planner::first(
            ClusterId(1),
            settings,
            keyspace,
            nodes.iter().map(|n| Member::clone(n)).collect(),
        )
    }

    /// Plans and applies plans until nothing is left to do.
    fn settle(&mut self, mut table: Table) -> Table {
        for _ in 0..PLANS_MAX {
            let plan = planner::plan(&table, &Loads::default());
            if plan.is_empty() && planner::health(&table).moves == 0 {
                break;
            }
            table = planner::adopt(&table, &plan);
            for _ in 0..STEPS_MAX {
                let next = planner::advance(&table, &LIMITS, &planner::MoveFacts::default());
                let moved = next.is_some();
                let (next, learned) = all_learned(next.as_ref().unwrap_or(&table));
                self.learned += learned;
                let changed = moved || learned > 0;
                table = next;
                if !changed {
                    break;
                }
            }
        }
        table
    }

    /// The holders of a partition, primary first.
    pub(super) fn holders_of(&self, partition: usize) -> impl Iterator<Item = MemberId> + '_ {
        let partitions = self
            .table
            .as_ref()
            .map_or(&[][..], |table| &table.keyspaces[0].partitions);
        partitions
            .get(partition)
            .into_iter()
            .flat_map(|p| p.in_sync())
    }
}

impl Strategy for Fixed {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        let Some(mut table) = self.table.take() else {
            self.table = Some(self.first(nodes));
            return;
        };
        for member in &mut table.members {
            if let Some(node) = nodes
                .iter()
                .find(|n| n.id == member.id && n.weight != member.weight)
            {
                Arc::make_mut(member).weight = node.weight;
            }
        }
        let holders = table
            .members
            .iter()
            .filter(|m| may_receive(m))
            .map(|m| m.id);
        let gone: Vec<MemberId> = holders
            .filter(|id| nodes.iter().all(|n| n.id != *id))
            .collect();
        let known: BTreeSet<MemberId> = table.members.iter().map(|m| m.id).collect();
        table = planner::admit(
            &table,
            nodes
                .iter()
                .filter(|n| !known.contains(&n.id))
                .map(|n| Member::clone(n))
                .collect(),
        );
        for leaver in gone {
            // The node leaves in order: other nodes get its copies first.
            let leaving = planner::hand_over(&table, leaver, HandOverUrgency::Repair);
            let settled = self.settle(leaving);
            table = planner::remove(
                &planner::hand_over(&settled, leaver, HandOverUrgency::Repair),
                &BTreeMap::from([(leaver, Absence::Left)]),
            );
        }
        self.table = Some(self.settle(table));
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        let keyspace = self.table.as_ref().map(|table| &table.keyspaces[0]);
        if let Some(partition) = keyspace.and_then(|k| k.partition_of(MapId(0), key)) {
            holders.extend(self.holders_of(partition.0 as usize));
        }
    }

    fn table_bytes(&self) -> usize {
        let Some(table) = &self.table else { return 0 };
        let copies: usize = table
            .partitions()
            .map(|(_, p)| p)
            .map(|p| p.replicas.len())
            .sum();
        table.members.len() * size_of::<MemberId>() + copies * size_of::<u32>()
    }
}

/// Admits every learner, as if each had caught up. Returns the table, and the number of learners.
fn all_learned(table: &Table) -> (Table, usize) {
    let mut all = 0;
    let mut table = table.clone();
    loop {
        let admitted = |(at, p): (PartitionRef, &Arc<Partition>)| {
            Some(InSyncRequest {
                partition: at,
                epoch: p.epoch,
                change: InSyncChange::Admit(p.learners().next()?),
            })
        };
        let requests: Vec<InSyncRequest> = table.partitions().filter_map(admitted).collect();
        let (next, done) = planner::change_in_sync(&table, &requests);
        let learned = done.iter().filter(|done| **done).count();
        if learned == 0 {
            return (table, all);
        }
        all += learned;
        table = next;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cluster::{SimulatedCluster, SimulatedEvent};
    use super::*;
    use doyen_placement::hash::{self, SLOTS};

    /// The figures count moves by comparing holders. That must agree with what the planner copied.
    #[test]
    fn counted_moves_are_those_that_the_planner_copies() {
        let events: Vec<SimulatedEvent> = ["+1", "-node2", "x2", "node1=250"]
            .iter()
            .map(|e| e.parse().expect("an event"))
            .collect();
        for (copies, zones) in [(1, 1), (2, 1), (3, 3)] {
            let zones: Vec<String> = (0..zones).map(|z| format!("z{z}")).collect();
            let stages = SimulatedCluster::new(4, &[], if zones.len() > 1 { &zones } else { &[] })
                .expect("possible")
                .stages(&events)
                .expect("possible");
            let mut fixed = Fixed::new(64, copies);
            for stage in &stages {
                let holders = |fixed: &Fixed| {
                    (0..64)
                        .map(|p| fixed.holders_of(p).collect::<Vec<_>>())
                        .collect::<Vec<_>>()
                };
                let before = holders(&fixed);
                let learned = fixed.learned;
                fixed.follow(&stage.nodes);
                let after = holders(&fixed);
                assert!(after.iter().all(|held| held.len() == copies), "{after:?}");
                if !stage.event.is_empty() {
                    let arrived: usize = before
                        .iter()
                        .zip(&after)
                        .map(|(b, a)| a.iter().filter(|m| !b.contains(m)).count())
                        .sum();
                    assert_eq!(arrived, fixed.learned - learned, "{}", stage.event);
                }
            }
        }
    }

    #[test]
    fn keys_are_in_the_partition_of_their_slot() {
        let mut fixed = Fixed::new(256, 2);
        fixed.follow(
            &SimulatedCluster::new(5, &[], &[])
                .expect("possible")
                .stages(&[])
                .expect("possible")[0]
                .nodes,
        );
        let mut holders = Vec::new();
        fixed.holders(b"{tag}key", &mut holders);
        let partition = hash::slot(b"tag") / (SLOTS / 256);
        assert_eq!(
            holders,
            fixed.holders_of(partition.into()).collect::<Vec<_>>()
        );
    }
}
