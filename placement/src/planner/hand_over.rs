//! Leaving in order (rule 10).

use super::edit::{change_partitions, may_receive, set_state, states};
use super::health::{copies_wanted, holds_anything};
use crate::id::{MemberId, PartitionRef};
use crate::table::{MemberState, Partition, Table};
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How quickly a leaver hands over.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode,
)]
#[cbor(flat)]
pub enum HandOverUrgency {
    /// It keeps its copies of partitions that would otherwise have too few copies, until others
    /// have been made.
    #[n(0)]
    Repair,
    /// It drops every copy that another member has too. The next failure may lose partitions that
    /// are not repaired by then.
    #[n(1)]
    AtOnce,
}

/// The table in which this member leads nothing that another can lead, and holds nothing that it
/// need not hold.
///
/// Its partitions get another in-sync copy that stays as their primary. Its copies are dropped as
/// far as `pace` allows. In any case it keeps data that no other member holds. If it holds nothing
/// afterwards, it is in state [`MemberState::Leaving`]. Otherwise it is in state
/// [`MemberState::Draining`], and the next plan puts copies of its partitions elsewhere. It keeps
/// its vote until it is removed.
#[must_use]
pub fn hand_over(table: &Table, leaver: MemberId, pace: HandOverUrgency) -> Table {
    if table.member(leaver).is_none() {
        return table.clone();
    }
    let states = states(table);
    let receivers = table
        .members
        .iter()
        .filter(|m| may_receive(m) && m.id != leaver)
        .count();
    let wanted: BTreeMap<_, _> = table
        .keyspaces
        .iter()
        .map(|k| (k.id, copies_wanted(k, receivers)))
        .collect();
    let mut next = change_partitions(table, |at: PartitionRef, partition| {
        let wanted = match pace {
            // If no member stays, the leavers keep all that they have.
            HandOverUrgency::Repair => wanted.get(&at.keyspace).copied().unwrap_or(0).max(1),
            HandOverUrgency::AtOnce => 0,
        };
        let mut changed = if partition.holds(leaver) {
            handed_over(partition, leaver, &states, wanted)
        } else {
            partition.clone()
        };
        if changed.goal.iter().flatten().any(|m| *m == leaver) {
            changed.goal = None;
        }
        Some(changed)
    });
    let state = if holds_anything(&next, leaver) {
        MemberState::Draining
    } else {
        MemberState::Leaving
    };
    set_state(&mut next, leaver, state);
    // It will not hold data again.
    next.settings.balancing.set_drained(leaver, false);
    next
}

fn handed_over(
    partition: &Partition,
    leaver: MemberId,
    states: &BTreeMap<MemberId, MemberState>,
    wanted: usize,
) -> Partition {
    let learners: Vec<MemberId> = partition.learners().filter(|m| *m != leaver).collect();
    let state = |m: MemberId| states.get(&m).copied().unwrap_or(MemberState::Silent);
    let mut heirs: Vec<MemberId> = partition
        .in_sync()
        .filter(|m| *m != leaver && state(*m) != MemberState::Silent)
        .collect();
    let staying = heirs
        .iter()
        .filter(|m| state(**m) == MemberState::Live)
        .count();
    let counted = partition.in_sync().any(|m| m == leaver);
    if heirs.is_empty() || (counted && staying == 0 && partition.primary() == leaver && wanted > 0)
    {
        // No member that stays holds it. Its present primary feeds the copy that is made elsewhere.
        return partition.with_replicas(&partition.in_sync().collect::<Vec<_>>(), &learners);
    }
    if partition.primary() == leaver {
        // Members that stay come before leavers. The sort is stable and keeps the order otherwise.
        heirs.sort_by_key(|m| state(*m) != MemberState::Live);
    }
    if counted && staying < wanted {
        heirs.push(leaver);
    }
    partition.with_replicas(&heirs, &learners)
}
