//! The goals of partitions: the fewest moves to a table that is repaired, spread and balanced.

use super::edit::{may_receive, states};
use super::health::copies_wanted;
use super::layout::{OtherKeyspaceLoads, Seating, Seats, Topology};
use super::{Plan, ranges, ring};
use crate::id::{MemberId, PartitionId, PartitionRef};
use crate::loads::Loads;
use crate::scheduler::{Scheduler, Schedulers};
use crate::table::{Keyspace, Member, MemberState, Partition, Reshape, Settings, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Goals for the partitions that should have other replicas, for the reasons that are on
/// (`Settings::schedulers`). Empty: the table needs no moves, or they are under way.
///
/// - Goals that are under way stay while they can be reached, so another plan adds to them.
/// - Goals that have not begun are planned again: their target may have no room, or a better member
///   may have come.
/// - A partition whose primary is silent stays as it is, because it cannot be copied.
/// - Measured loads count once they have been uneven for long (`Loads::uneven`).
/// - A busy member gets no new copies unless no other member is suitable.
/// - A member that had no room for a copy that only balances (`Loads::full`) gets none as large for
///   balance.
/// - A member that others cannot copy to is treated as one that is being emptied.
#[must_use]
pub fn plan(table: &Table, loads: &Loads) -> Plan {
    plan_for(table, table.settings.active(), loads)
}

/// Whether a plan for one of these tables suits the other one too: they differ at most in what
/// planning does not read.
#[must_use]
pub fn plans_alike(one: &Table, other: &Table) -> bool {
    read_by_planning(one) == read_by_planning(other)
}

/// What planning reads of a table. Each field is named, so that a new one is decided on.
fn read_by_planning(table: &Table) -> (&Settings, &[Arc<Member>], &[Keyspace]) {
    let Table {
        settings,
        members,
        keyspaces,
        level: _,
        cluster: _,
        term: _,
        version: _,
        order_key: _,
        voters: _,
        next_age: _,
        next_keyspace: _,
        maps: _,
        next_map: _,
        access: _,
        annex: _,
    } = table;
    (settings, members, keyspaces)
}

/// As [`plan`], for these reasons.
#[must_use]
pub fn plan_for(table: &Table, schedulers: Schedulers, loads: &Loads) -> Plan {
    let topology = |may: &dyn Fn(MemberId) -> bool| {
        Topology::new(
            table
                .members
                .iter()
                .filter(|m| may_receive(m) && may(m.id))
                .cloned()
                .collect(),
        )
        .told(loads)
    };
    let states = states(table);
    let all = topology(&|_| true);
    let mut others = OtherKeyspaceLoads::new(&all, table, loads);
    if loads.unreached().is_empty() {
        let state = |m: MemberId| states.get(&m).copied();
        return plan_all((table, loads), schedulers, |keyspace| {
            plan_keyspace(&all, (table, keyspace), schedulers, state, &mut others)
        });
    }
    let unreached = |m: MemberId| loads.unreached().contains(&m);
    let reached = topology(&|m| !unreached(m));
    let mut others_reached = OtherKeyspaceLoads::new(&reached, table, loads);
    // If the primary is not the planned one, the present state may be what the plan now wants.
    let changes = |p: &Partition, goal: &Vec<MemberId>| {
        p.goal.as_ref() != Some(goal) && (p.goal.is_some() || !is_reached(p, goal))
    };
    let only_changes = |goals: BTreeMap<PartitionRef, Vec<MemberId>>| -> Plan {
        goals
            .into_iter()
            .filter(|(at, goal)| table.partition(*at).is_some_and(|p| changes(p, goal)))
            .collect()
    };
    plan_all((table, loads), schedulers, |keyspace| {
        if copies_wanted(keyspace, all.len()) <= reached.len() {
            // As if it were being emptied: no member can copy to it, and no other member can use
            // the partitions that it leads.
            let state = |m: MemberId| match states.get(&m).copied() {
                Some(MemberState::Live) if unreached(m) => Some(MemberState::Draining),
                state => state,
            };
            let mut goals: BTreeMap<PartitionRef, Vec<MemberId>> = plan_keyspace(
                &reached,
                (table, keyspace),
                schedulers,
                state,
                &mut others_reached,
            )
            .into_iter()
            .collect();
            for partition in keyspace
                .partitions
                .iter()
                .filter(|p| unreached(p.primary()) && !keyspace.is_reshaped(p.id))
            {
                let at = PartitionRef::new(keyspace.id, partition.id);
                let Some(mut goal) = goals.get(&at).or(partition.goal.as_ref()).cloned() else {
                    continue;
                };
                // An unreached primary cannot feed a new primary that holds nothing yet. So a
                // member that has the partition leads first.
                if lead_by_heir(partition, &mut goal, unreached) {
                    goals.insert(at, goal);
                }
            }
            return only_changes(goals);
        }
        // Its copies have no other place, but it need not lead.
        let state = |m: MemberId| states.get(&m).copied();
        let mut goals: BTreeMap<PartitionRef, Vec<MemberId>> =
            plan_keyspace(&all, (table, keyspace), schedulers, state, &mut others)
                .into_iter()
                .collect();
        for partition in &keyspace.partitions {
            let at = PartitionRef::new(keyspace.id, partition.id);
            // A partition that moves, or is split or merged, stays as it is.
            let free = partition.goal.is_none()
                && !keyspace.is_reshaped(partition.id)
                && state(partition.primary()) == Some(MemberState::Live);
            let stays = || {
                if free {
                    partition.in_sync().collect()
                } else {
                    Vec::new()
                }
            };
            let mut goal = goals.get(&at).cloned().unwrap_or_else(stays);
            if goal.first().is_some_and(|m| unreached(*m))
                && lead_by_heir(partition, &mut goal, unreached)
            {
                goals.insert(at, goal);
            }
        }
        only_changes(goals)
    })
}

/// Puts a member first that is reached and has the partition already. Returns false if the goal has
/// no such member.
fn lead_by_heir(
    partition: &Partition,
    goal: &mut [MemberId],
    unreached: impl Fn(MemberId) -> bool,
) -> bool {
    let heir = goal
        .iter()
        .position(|m| !unreached(*m) && partition.in_sync().any(|held| held == *m));
    heir.map(|heir| goal.swap(0, heir)).is_some()
}

fn plan_all(
    (table, loads): (&Table, &Loads),
    on: Schedulers,
    mut plan: impl FnMut(&Keyspace) -> Plan,
) -> Plan {
    let plan = |keyspace: &Keyspace| match ring::walked(keyspace, on) {
        Some(arcs) => ring::plan((table, keyspace), arcs, loads),
        None => plan(keyspace),
    };
    table.keyspaces.iter().flat_map(plan).collect()
}

fn plan_keyspace(
    topology: &Topology,
    (table, keyspace): (&Table, &Keyspace),
    on: Schedulers,
    state: impl Fn(MemberId) -> Option<MemberState>,
    others: &mut OtherKeyspaceLoads<'_>,
) -> Plan {
    let copies = copies_wanted(keyspace, topology.len());
    if copies == 0 {
        return Plan::new();
    }
    let reshaped: BTreeSet<PartitionId> = keyspace
        .reshaping
        .under_way
        .iter()
        .flat_map(Reshape::partitions)
        .collect();
    let held = held(table, keyspace);
    let present = keyspace.partitions.iter().map(|p| {
        // Another partition takes its place soon, or an operator wants it to stay.
        let stays = reshaped.contains(&p.id) && state(p.primary()) != Some(MemberState::Silent)
            || held.contains(&p.id);
        let members = || p.in_sync().filter_map(|m| topology.place(m)).collect();
        if stays {
            return Seating {
                members: members(),
                going: 0,
                fixed: true,
            };
        }
        let at = PartitionRef::new(keyspace.id, p.id);
        // A missing copy is tried on a member that refused one for balance.
        let refuses = |m| p.in_sync().count() >= copies && others.refuses(table, at, m);
        seating(topology, p, copies, on, (&state, &refuses))
    });
    let present: Vec<Seating> = present.collect();
    let fixed: Vec<bool> = present.iter().map(|p| p.fixed).collect();
    let measured = others.measured(keyspace);
    let better = Seats::new(topology, keyspace, copies, present)
        .with(measured)
        .improve(on);
    others.laid_out(&better);
    let changes = keyspace
        .partitions
        .iter()
        .enumerate()
        .filter(|(number, _)| !fixed[*number])
        .filter_map(|(number, partition)| {
            let goal = better.members(number);
            let at = PartitionRef::new(keyspace.id, partition.id);
            let known = partition.goal.as_ref() == Some(&goal);
            // Without the scheduler of repair, only surplus copies are dropped.
            let whole = goal.len() >= copies.min(partition.in_sync().count());
            (!goal.is_empty()
                && whole
                && !known
                && (partition.goal.is_some() || !is_reached(partition, &goal)))
            .then_some((at, goal))
        });
    changes.collect()
}

/// Partitions of a keyspace whose move was cancelled, and that lack nothing.
pub(super) fn held(table: &Table, keyspace: &Keyspace) -> BTreeSet<PartitionId> {
    let held = table
        .settings
        .balancing
        .held
        .iter()
        .filter(|at| at.keyspace == keyspace.id);
    held.filter(|at| ranges::may_stay(table, **at))
        .map(|at| at.partition)
        .collect()
}

/// The members that hold the partition, or are about to, as far as they may.
fn seating(
    topology: &Topology,
    partition: &Partition,
    copies: usize,
    on: Schedulers,
    (state, refuses): (
        impl Fn(MemberId) -> Option<MemberState>,
        impl Fn(MemberId) -> bool,
    ),
) -> Seating {
    let goes = |m| matches!(state(m), Some(MemberState::Draining | MemberState::Leaving));
    if state(partition.primary()) == Some(MemberState::Silent) {
        return Seating {
            members: Vec::new(),
            going: 0,
            fixed: true,
        };
    }
    if let Some(goal) = &partition.goal {
        let members: Vec<usize> = goal.iter().filter_map(|m| topology.place(*m)).collect();
        // A move that an operator wants stays wanted while its scheduler is off, because no other
        // scheduler would plan it again. But if a copy is missing, repair plans it again, because
        // the target may have no room.
        let lacks = partition.in_sync().count() < copies;
        let given = on.has(Scheduler::Copies) || on.has(Scheduler::Place);
        let thought_over = on.move_everything()
            || on.has(Scheduler::Repair) && lacks
            || given && goal.iter().any(|m| refuses(*m));
        let stays = has_begun(partition, goal) || !thought_over;
        if stays && members.len() == goal.len() && members.len() == copies {
            return Seating {
                members,
                going: 0,
                fixed: true,
            };
        }
    }
    let mut members: Vec<usize> = partition
        .in_sync()
        .filter_map(|m| topology.place(m))
        .collect();
    let learning = copies.saturating_sub(members.len());
    members.extend(
        partition
            .learners()
            .filter_map(|m| topology.place(m))
            .take(learning),
    );
    let going = partition.in_sync().filter(|m| goes(*m)).count();
    Seating {
        members,
        going,
        fixed: false,
    }
}

/// Whether a goal is under way: it has a learner, or only the switch and the drop are left.
pub(super) fn has_begun(partition: &Partition, goal: &[MemberId]) -> bool {
    partition.learners().any(|m| goal.contains(&m)) || goal.iter().all(|m| partition.holds(*m))
}

/// Whether the goal is reached: exactly these members, all in sync, and the first of them leads.
pub(super) fn is_reached(partition: &Partition, goal: &[MemberId]) -> bool {
    let same_set = partition.replicas.len() == goal.len()
        && partition.in_sync().filter(|m| goal.contains(m)).count() == goal.len();
    same_set && goal.first() == Some(&partition.primary())
}
