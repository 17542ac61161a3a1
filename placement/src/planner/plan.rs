//! Where partitions should be: the fewest moves to a table that is repaired, spread and balanced.

use super::edit::{may_receive, states};
use super::health::copies_wanted;
use super::layout::{Ground, Others, Seating, Seats};
use super::{Plan, ranges, ring};
use crate::id::{MemberId, PartitionId, PartitionRef};
use crate::loads::Loads;
use crate::scheduler::{Scheduler, Schedulers};
use crate::table::{Keyspace, MemberState, Partition, Reshape, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Goals for the partitions whose replicas should be others, for whatever reason is on
/// (`Settings::schedulers`). Empty: all is well, or under way.
///
/// Goals that are under way stay while they may be reached: whoever plans again meanwhile adds to
/// them. What has not begun is thought over: whoever was to receive it may have no room, and
/// somebody better may have come. A partition whose primary is silent is left alone, since nobody
/// can copy it. What was measured counts once it has been uneven for long (`Loads::uneven`).
/// Whoever says that it is busy is given no more than it holds, unless a copy has no better place;
/// who had no room for a copy that only balances (`Loads::full`) is given none as large for
/// balance. Whom others cannot copy to is planned with as if it were emptied.
#[must_use]
pub fn plan(table: &Table, loads: &Loads) -> Plan {
    plan_for(table, table.settings.active(), loads)
}

/// As [`plan`], for these reasons.
#[must_use]
pub fn plan_for(table: &Table, schedulers: Schedulers, loads: &Loads) -> Plan {
    let ground = |may: &dyn Fn(MemberId) -> bool| {
        Ground::new(
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
    let all = ground(&|_| true);
    let mut others = Others::new(&all, table, loads);
    if loads.unreached().is_empty() {
        let state = |m: MemberId| states.get(&m).copied();
        return plan_all((table, loads), schedulers, |keyspace| {
            plan_keyspace(&all, (table, keyspace), schedulers, state, &mut others)
        });
    }
    let unreached = |m: MemberId| loads.unreached().contains(&m);
    let reached = ground(&|m| !unreached(m));
    let mut others_reached = Others::new(&reached, table, loads);
    // Where others lead than was planned, it may be what is so already.
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
            // As if it were emptied: nobody copies anything to it, and nobody else can use what it
            // leads.
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
                let at = PartitionRef {
                    keyspace: keyspace.id,
                    partition: partition.id,
                };
                let Some(mut goal) = goals.get(&at).or(partition.goal.as_ref()).cloned() else {
                    continue;
                };
                // It gives nothing to somebody who is to lead and holds nothing yet: first leads
                // who has it.
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
            let at = PartitionRef {
                keyspace: keyspace.id,
                partition: partition.id,
            };
            // What is under way, or split or merged, stays as it is.
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

/// Puts first who is reached and has the partition already; false, if nobody in the goal is and
/// has.
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
    ground: &Ground,
    (table, keyspace): (&Table, &Keyspace),
    on: Schedulers,
    state: impl Fn(MemberId) -> Option<MemberState>,
    others: &mut Others<'_>,
) -> Plan {
    let copies = copies_wanted(keyspace, ground.len());
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
        // Another one takes its place soon, or somebody wants it to stay.
        let stays = reshaped.contains(&p.id) && state(p.primary()) != Some(MemberState::Silent)
            || held.contains(&p.id);
        let members = || p.in_sync().filter_map(|m| ground.place(m)).collect();
        if stays {
            return Seating {
                members: members(),
                going: 0,
                fixed: true,
            };
        }
        let at = PartitionRef {
            keyspace: keyspace.id,
            partition: p.id,
        };
        // A copy that is lacking is tried where one for balance alone was refused.
        let refuses = |m| p.in_sync().count() >= copies && others.refuses(table, at, m);
        seating(ground, p, copies, on, (&state, &refuses))
    });
    let present: Vec<Seating> = present.collect();
    let fixed: Vec<bool> = present.iter().map(|p| p.fixed).collect();
    let measured = others.measured(keyspace);
    let better = Seats::new(ground, keyspace, copies, present)
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
            let at = PartitionRef {
                keyspace: keyspace.id,
                partition: partition.id,
            };
            let known = partition.goal.as_ref() == Some(&goal);
            // Whoever may not repair drops nothing that is not too many.
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

/// Who holds the partition or is about to, as far as they may.
fn seating(
    ground: &Ground,
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
        let members: Vec<usize> = goal.iter().filter_map(|m| ground.place(*m)).collect();
        // What a person wants moved stays wanted while a reason to move is off: nobody who may act
        // would think of it again. But where a copy is lacking repair does, and who was to have it
        // may have no room.
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
        .filter_map(|m| ground.place(m))
        .collect();
    let learning = copies.saturating_sub(members.len());
    members.extend(
        partition
            .learners()
            .filter_map(|m| ground.place(m))
            .take(learning),
    );
    let going = partition.in_sync().filter(|m| goes(*m)).count();
    Seating {
        members,
        going,
        fixed: false,
    }
}

/// Whether a goal is under way: somebody learns for it, or it is only to be switched and dropped.
pub(super) fn has_begun(partition: &Partition, goal: &[MemberId]) -> bool {
    partition.learners().any(|m| goal.contains(&m)) || goal.iter().all(|m| partition.holds(*m))
}

/// Whether the partition is where the goal leads: these members, all in sync, and the first of them
/// leads.
pub(super) fn is_reached(partition: &Partition, goal: &[MemberId]) -> bool {
    let same_set = partition.replicas.len() == goal.len()
        && partition.in_sync().filter(|m| goal.contains(m)).count() == goal.len();
    same_set && goal.first() == Some(&partition.primary())
}
