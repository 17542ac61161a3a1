//! The health of a table. The table does not know whether primaries have opened.

use super::edit::may_receive;
use crate::id::{KeyspaceId, MemberId};
use crate::mutant::{self, broken};
use crate::table::{Keyspace, MemberState, Partition, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The health of a table. Keyspaces without faults are not listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// Partitions with fewer in-sync copies on members that answer than min(1 + backups, members
    /// that may hold data).
    pub under_replicated: BTreeMap<KeyspaceId, usize>,
    /// Partitions that are not assigned, or whose primary is silent.
    pub unavailable: BTreeMap<KeyspaceId, usize>,
    /// Partitions that move, are split or are merged.
    pub moves: usize,
}

/// The health of this table.
#[must_use]
pub fn health(table: &Table) -> Health {
    // Usually none is silent, and every member examines every table.
    let silent: Vec<MemberId> = table
        .members
        .iter()
        .filter(|m| m.state == MemberState::Silent)
        .map(|m| m.id)
        .collect();
    let silent = |m: MemberId| silent.contains(&m);
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    let mut health = Health::default();
    for keyspace in &table.keyspaces {
        let wanted = copies_wanted(keyspace, receivers);
        let short = |p: &Partition| p.in_sync().filter(|m| !silent(*m)).count() < wanted;
        let partitions = || keyspace.partitions.iter();
        let unassigned = if keyspace.partitions.is_empty() {
            keyspace.count()
        } else {
            0
        };
        note(
            &mut health.under_replicated,
            keyspace.id,
            unassigned + partitions().filter(|p| short(p)).count(),
        );
        note(
            &mut health.unavailable,
            keyspace.id,
            unassigned + partitions().filter(|p| silent(p.primary())).count(),
        );
        health.moves +=
            partitions().filter(|p| p.goal.is_some()).count() + keyspace.reshaping.under_way.len();
    }
    health
}

/// Whether this member holds a copy of any partition, in sync or not.
#[must_use]
pub fn holds_anything(table: &Table, member: MemberId) -> bool {
    let leads = |p: &Partition| p.primary() == member || !broken(&mutant::CALLS_IT_EMPTY);
    table
        .keyspaces
        .iter()
        .flat_map(|k| &k.partitions)
        .any(|p| p.holds(member) && leads(p))
}

/// All members that hold a copy of any partition.
pub(super) fn holders(table: &Table) -> BTreeSet<MemberId> {
    table
        .keyspaces
        .iter()
        .flat_map(|k| &k.partitions)
        .flat_map(|p| &p.replicas)
        .map(|r| r.member)
        .collect()
}

/// The number of copies of a partition, if this many members may hold data.
pub(super) fn copies_wanted(keyspace: &Keyspace, receivers: usize) -> usize {
    receivers.min(1 + usize::from(keyspace.backups))
}

fn note(counts: &mut BTreeMap<KeyspaceId, usize>, keyspace: KeyspaceId, count: usize) {
    if count > 0 {
        counts.insert(keyspace, count);
    }
}
