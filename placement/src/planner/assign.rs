//! The first assignment.

use super::edit::may_receive;
use super::layout::Spare;
use crate::id::{Epoch, Lineage, PartitionId, PartitionRef};
use crate::table::{Keyspace, Partition, Replica, ReplicaState, Table};
use std::sync::Arc;

/// The table in which every keyspace without partitions has them, once `members_min` members may hold data: each partition
/// in its first lineage, epoch and tenure, and all its copies in sync, since there is nothing to copy.
#[must_use]
pub fn assign(table: &Table) -> Table {
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    let mut next = table.clone();
    if receivers < usize::from(table.settings.members_min).max(1) {
        return next;
    }
    let mut spare = Spare::new(table, may_receive);
    for keyspace in next.keyspaces.iter_mut().filter(|k| k.partitions.is_empty()) {
        keyspace.partitions = partitions(table, keyspace, &mut spare);
    }
    next
}

fn partitions(table: &Table, keyspace: &Keyspace, spare: &mut Spare) -> Vec<Arc<Partition>> {
    (0..keyspace.mode.partitions())
        .map(|number| {
            let id = PartitionId(number);
            let members = spare.take(table, PartitionRef { keyspace: keyspace.id, partition: id });
            let replicas = members.into_iter().map(|member| Replica { member, state: ReplicaState::InSync }).collect();
            Arc::new(Partition { id, replicas, epoch: Epoch(1), since: Epoch(1), lineage: Lineage(1), goal: None })
        })
        .collect()
}
