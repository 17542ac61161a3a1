//! Simulates events on the table and the loads of a running cluster.
//!
//! Each partition counts as a key, with its measured size and load. The planner of production
//! continues from the table.

use super::cluster::{EventError, SimulatedCluster, SimulatedEvent};
use super::comparison::run;
use super::figures::StrategyOutcome;
use super::keys::SimulatedKeys;
use super::strategy::{Fixed, Strategy};
use doyen_placement::id::{KeyspaceId, MemberId, PartitionId, PartitionRef};
use doyen_placement::loads::Loads;
use doyen_placement::table::{Member, Table};
use std::sync::Arc;

/// The figures of this cluster once all moves under way are done, and after each event.
///
/// # Errors
/// An event is impossible.
pub(super) fn what_if(
    table: Table,
    loads: &Loads,
    events: &[SimulatedEvent],
) -> Result<StrategyOutcome, EventError> {
    let stages = SimulatedCluster::of(&table)?.stages(events)?;
    let copies = table
        .keyspaces
        .iter()
        .map(|k| 1 + usize::from(k.backups))
        .max()
        .unwrap_or(1);
    let mut keys = SimulatedKeys::default();
    for (at, _) in table.partitions() {
        let load = loads.partition(at);
        // Every partition counts a little, so that no move is free.
        keys.push(
            &name(at),
            load.map_or(0, |l| l.bytes).max(1),
            load.map_or(0, |l| l.work()) as f64,
        );
    }
    let mut live = Live(Fixed::of(table, copies));
    Ok(run("this cluster", &mut live, &stages, &keys, copies, None))
}

#[derive(Debug)]
struct Live(Fixed);

impl Strategy for Live {
    fn follow(&mut self, nodes: &[Arc<Member>]) {
        self.0.follow(nodes);
    }

    fn holders(&self, key: &[u8], holders: &mut Vec<MemberId>) {
        let partition = self
            .0
            .table()
            .zip(named(key))
            .and_then(|(table, at)| table.partition(at));
        holders.extend(partition.into_iter().flat_map(|p| p.in_sync()));
    }

    fn table_bytes(&self) -> usize {
        self.0.table_bytes()
    }
}

fn name(at: PartitionRef) -> Vec<u8> {
    [
        &at.keyspace.0.to_be_bytes()[..],
        &at.partition.0.to_be_bytes(),
    ]
    .concat()
}

fn named(name: &[u8]) -> Option<PartitionRef> {
    let (keyspace, partition) = name.split_first_chunk()?;
    let keyspace = KeyspaceId(u16::from_be_bytes(*keyspace));
    Some(PartitionRef {
        keyspace,
        partition: PartitionId(u32::from_be_bytes(partition.try_into().ok()?)),
    })
}
