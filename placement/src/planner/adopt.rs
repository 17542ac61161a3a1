//! A plan becomes goals.

use super::Plan;
use super::edit::{change_partitions, may_receive, states};
use crate::id::{MemberId, PartitionRef};
use crate::table::{MemberState, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The table with these goals. An old plan must do no harm, so goals that are out of date are left
/// out: the partition is gone, its primary is silent, or a member may not receive copies.
#[must_use]
pub fn adopt(table: &Table, plan: &Plan) -> Table {
    let receivers: BTreeSet<MemberId> = table
        .members
        .iter()
        .filter(|m| may_receive(m))
        .map(|m| m.id)
        .collect();
    let possible = |goal: &[MemberId]| {
        let distinct: BTreeSet<&MemberId> = goal.iter().collect();
        !goal.is_empty()
            && distinct.len() == goal.len()
            && distinct.iter().all(|m| receivers.contains(m))
    };
    let goals: BTreeMap<PartitionRef, &Vec<MemberId>> = plan
        .iter()
        .filter(|(_, goal)| possible(goal))
        .map(|(at, goal)| (*at, goal))
        .collect();
    let states = states(table);
    change_partitions(table, |at, partition| {
        // Another partition takes its place soon.
        if table
            .keyspace(at.keyspace)
            .is_some_and(|k| k.is_reshaped(at.partition))
        {
            return None;
        }
        if states.get(&partition.primary()) == Some(&MemberState::Silent) {
            return None;
        }
        let mut changed = partition.clone();
        changed.goal = Some((*goals.get(&at)?).clone());
        Some(changed)
    })
}
