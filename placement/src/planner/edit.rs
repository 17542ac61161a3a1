//! Small edits that all planner functions share. Epochs change here and nowhere else.

use crate::id::{MemberId, PartitionRef};
use crate::mutant::{self, broken};
use crate::table::{Member, MemberState, Partition, Replica, ReplicaState, Role, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a member may receive copies.
#[must_use]
pub fn may_receive(member: &Member) -> bool {
    member.role == Role::Data && member.state == MemberState::Live
}

/// The state of every member.
pub(super) fn states(table: &Table) -> BTreeMap<MemberId, MemberState> {
    table.members.iter().map(|m| (m.id, m.state)).collect()
}

/// The table with the partitions that `change` replaces. The other partitions stay shared.
pub(super) fn change_partitions(
    table: &Table,
    mut change: impl FnMut(PartitionRef, &Partition) -> Option<Partition>,
) -> Table {
    let mut next = table.clone();
    for keyspace in &mut next.keyspaces {
        for partition in &mut keyspace.partitions {
            let at = PartitionRef::new(keyspace.id, partition.id);
            match change(at, partition) {
                Some(changed) if changed != **partition => *partition = Arc::new(changed),
                _ => {}
            }
        }
    }
    next
}

/// Puts a member into another state, if it is not in that state.
pub(super) fn set_state(table: &mut Table, member: MemberId, state: MemberState) {
    for present in table
        .members
        .iter_mut()
        .filter(|m| m.id == member && m.state != state)
    {
        Arc::make_mut(present).state = state;
    }
}

impl Partition {
    /// The partition with these replicas, the primary first, and the epochs that follow. Another
    /// primary begins a tenure. Another in-sync set begins an epoch. So does a learner that is
    /// dropped: it gives up its data, and if it learns again, earlier requests of its primary are
    /// about a copy that is gone.
    pub(super) fn with_replicas(&self, in_sync: &[MemberId], learners: &[MemberId]) -> Self {
        let mut next = self.clone();
        let as_replicas = |members: &[MemberId], state| {
            members
                .iter()
                .map(move |&member| Replica { member, state })
                .collect::<Vec<_>>()
        };
        next.replicas = as_replicas(in_sync, ReplicaState::InSync);
        next.replicas
            .extend(as_replicas(learners, ReplicaState::Learner));
        let before: Vec<MemberId> = self.in_sync().collect();
        let same_primary = in_sync.first() == before.first();
        let same_set = before.len() == in_sync.len() && before.iter().all(|m| in_sync.contains(m));
        let quiet = broken(&mutant::WITHDRAWS_QUIETLY) || broken(&mutant::DROPS_QUIETLY);
        let dropped = self.learners().any(|m| !next.holds(m)) && !quiet;
        if !same_primary || !same_set || dropped {
            next.epoch = self.epoch.next();
        }
        if !same_primary {
            next.since = next.epoch;
        }
        next
    }

    /// The partition, begun empty on these members. All of them are in sync, because there is
    /// nothing to copy.
    pub(super) fn begun_anew(&self, members: &[MemberId]) -> Self {
        let epoch = self.epoch.next();
        let replicas = members
            .iter()
            .map(|&member| Replica {
                member,
                state: ReplicaState::InSync,
            })
            .collect();
        Self {
            id: self.id,
            replicas,
            epoch,
            since: epoch,
            lineage: self.lineage.next(),
            goal: None,
            from: self.from.clone(),
        }
    }

    /// Whether this member holds a copy, in sync or not.
    #[must_use]
    pub fn holds(&self, member: MemberId) -> bool {
        self.replicas.iter().any(|r| r.member == member)
    }
}
