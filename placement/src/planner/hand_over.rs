//! Leaving in order (rule 10).

use super::edit::{change_partitions, set_state, states};
use super::health::holds_anything;
use crate::id::MemberId;
use crate::table::{MemberState, Partition, Table};
use std::collections::BTreeMap;

/// The table in which this member holds only what nobody else holds.
///
/// What it leads goes to another in-sync copy, its other copies are dropped. It is in state [`MemberState::Leaving`] if it
/// holds nothing afterwards; else in [`MemberState::Draining`], and the next plan leads what is left elsewhere. It keeps its
/// vote until it is removed.
#[must_use]
pub fn hand_over(table: &Table, leaver: MemberId) -> Table {
    if table.member(leaver).is_none() {
        return table.clone();
    }
    let states = states(table);
    let mut next = change_partitions(table, |_, partition| {
        let mut changed = if partition.holds(leaver) { handed_over(partition, leaver, &states) } else { partition.clone() };
        if changed.goal.iter().flatten().any(|m| *m == leaver) {
            changed.goal = None;
        }
        Some(changed)
    });
    let state = if holds_anything(&next, leaver) { MemberState::Draining } else { MemberState::Leaving };
    set_state(&mut next, leaver, state);
    next
}

fn handed_over(partition: &Partition, leaver: MemberId, states: &BTreeMap<MemberId, MemberState>) -> Partition {
    let learners: Vec<MemberId> = partition.learners().filter(|m| *m != leaver).collect();
    let state = |m: MemberId| states.get(&m).copied().unwrap_or(MemberState::Silent);
    let mut heirs: Vec<MemberId> = partition.in_sync().filter(|m| *m != leaver && state(*m) != MemberState::Silent).collect();
    if heirs.is_empty() {
        // The last holder that answers keeps the partition until a copy elsewhere is in sync.
        return partition.with_replicas(&partition.in_sync().collect::<Vec<_>>(), &learners);
    }
    if partition.primary() == leaver {
        // Who stays before who goes itself; a stable sort keeps the order otherwise.
        heirs.sort_by_key(|m| state(*m) != MemberState::Live);
    }
    partition.with_replicas(&heirs, &learners)
}
