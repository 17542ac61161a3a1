//! The next steps of all moves under way, in one table.
//!
//! ```text
//!  goal [C, B], replicas A B:  A B        add the learner C
//!                              A B (C)    C catches up; the primary asks to count it
//!                              A B C      C leads
//!                              C A B      A is dropped, the goal is gone
//!                              C B
//! ```

use super::edit::{change_partitions, may_receive, states};
use super::health::copies_wanted;
use crate::id::{MemberId, PartitionRef};
use crate::mutant::{self, broken};
use crate::table::validate::REPLICAS_MAX;
use crate::table::{MemberState, Partition, Replica, ReplicaState, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The limits on learners at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveLimits {
    /// The most learners that one primary feeds.
    pub learners_per_source: usize,
    /// The most learners on one member.
    pub learners_per_target: usize,
    /// The most learners in the whole cluster.
    pub learners: usize,
}

/// Facts about moves that are not in the table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MoveFacts {
    /// Learners that must not be added now.
    pub paused: BTreeSet<(PartitionRef, MemberId)>,
    /// Partitions that move because a member's measured work is too much (`PlannedChanges::hot`).
    pub hot: BTreeSet<PartitionRef>,
}

/// The table with the next step of every move that can take one. `None`: no step is possible now.
///
/// A partition takes at most one step in a table, except for learners: one table switches the
/// primary, and a later one drops the old copy. Partitions that lack copies get their learners
/// first, then those on members that leave, then hot ones.
#[must_use]
pub fn advance(table: &Table, limits: &MoveLimits, waits: &MoveFacts) -> Option<Table> {
    let receivers: BTreeSet<MemberId> = table
        .members
        .iter()
        .filter(|m| may_receive(m))
        .map(|m| m.id)
        .collect();
    let states = states(table);
    let silent = |m: MemberId| states.get(&m) == Some(&MemberState::Silent);

    let mut traffic = LearnerTraffic::default();
    let mut waiting: Vec<LearnerNeed> = Vec::new();
    let mut changed = false;
    let stepped = change_partitions(table, |at, partition| {
        let next = if silent(partition.primary()) {
            partition.clone()
        } else {
            step(partition, &receivers)
        };
        changed |= next != *partition;
        next.learners()
            .for_each(|learner| traffic.add(next.primary(), learner));
        if let Some(goal) = next.goal.as_ref().filter(|_| !silent(next.primary())) {
            let missing: Vec<MemberId> = goal
                .iter()
                .copied()
                .filter(|m| !next.holds(*m) && !waits.paused.contains(&(at, *m)))
                .collect();
            let wanted = table
                .keyspace(at.keyspace)
                .map_or(goal.len(), |k| copies_wanted(k, receivers.len()));
            let lacking = wanted.saturating_sub(next.in_sync().filter(|m| !silent(*m)).count());
            if !missing.is_empty() {
                let drains = next
                    .replicas
                    .iter()
                    .any(|r| !receivers.contains(&r.member) && !silent(r.member));
                waiting.push(LearnerNeed {
                    lacking,
                    drains,
                    hot: waits.hot.contains(&at),
                    at,
                    source: next.primary(),
                    missing,
                });
            }
        }
        Some(next)
    });

    // Repair comes first, and the partition that lacks most copies before all others. Then come
    // partitions on members that leave, then hot ones, then the others in order of name. The sort
    // is stable.
    waiting
        .sort_by_key(|waiting| std::cmp::Reverse((waiting.lacking, waiting.drains, waiting.hot)));
    let mut learners: BTreeMap<PartitionRef, Vec<MemberId>> = BTreeMap::new();
    for LearnerNeed {
        at,
        source,
        missing,
        ..
    } in waiting
    {
        for learner in missing {
            if traffic.admits(limits, source, learner) {
                traffic.add(source, learner);
                learners.entry(at).or_default().push(learner);
            }
        }
    }
    if learners.is_empty() {
        return changed.then_some(stepped);
    }
    Some(change_partitions(&stepped, |at, partition| {
        let mut next = partition.clone();
        let room = REPLICAS_MAX.saturating_sub(next.replicas.len());
        let added = learners.get(&at)?.iter().take(room).map(|&member| Replica {
            member,
            state: ReplicaState::Learner,
        });
        next.replicas.extend(added);
        Some(next)
    }))
}

/// A partition that needs learners.
struct LearnerNeed {
    /// The number of copies that it lacks.
    lacking: usize,
    /// Whether one of its members receives no copies any more.
    drains: bool,
    /// Whether it moves because of a measured load.
    hot: bool,
    at: PartitionRef,
    source: MemberId,
    missing: Vec<MemberId>,
}

/// The partition after its next step, without new learners.
fn step(partition: &Partition, receivers: &BTreeSet<MemberId>) -> Partition {
    let Some(goal) = &partition.goal else {
        return partition.clone();
    };
    let (Some(&lead), true) = (goal.first(), goal.iter().all(|m| receivers.contains(m))) else {
        // The goal's primary may receive no copies any more. The next plan handles what is left.
        return Partition {
            goal: None,
            ..partition.clone()
        };
    };
    let in_sync: Vec<MemberId> = partition.in_sync().collect();
    // Learners that are not in the goal are of no use, and would count against the limits.
    let learners: Vec<MemberId> = partition.learners().filter(|m| goal.contains(m)).collect();
    let mut order = in_sync.clone();
    if broken(&mutant::SWITCHES_EARLY) && learners.contains(&lead) {
        order.insert(0, lead);
        return partition.with_replicas(&order, &[]);
    }
    // With another primary, a learner that is under way would have to begin again.
    if learners.is_empty() && in_sync.contains(&lead) && partition.primary() != lead {
        order.sort_by_key(|m| *m != lead);
    } else if partition.primary() == lead
        && (goal.iter().all(|m| in_sync.contains(m)) || broken(&mutant::DROPS_UNREADY))
    {
        let next = partition.with_replicas(goal, &[]);
        return Partition { goal: None, ..next };
    }
    partition.with_replicas(&order, &learners)
}

/// Learners under way.
#[derive(Debug, Default)]
struct LearnerTraffic {
    by_source: BTreeMap<MemberId, usize>,
    by_target: BTreeMap<MemberId, usize>,
    all: usize,
}

impl LearnerTraffic {
    fn add(&mut self, source: MemberId, target: MemberId) {
        *self.by_source.entry(source).or_default() += 1;
        *self.by_target.entry(target).or_default() += 1;
        self.all += 1;
    }

    fn admits(&self, limits: &MoveLimits, source: MemberId, target: MemberId) -> bool {
        let of = |counts: &BTreeMap<MemberId, usize>, m| counts.get(&m).copied().unwrap_or(0);
        self.all < limits.learners
            && of(&self.by_source, source) < limits.learners_per_source
            && of(&self.by_target, target) < limits.learners_per_target
    }
}
