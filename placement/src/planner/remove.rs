//! Failover: one table without the dead.

use super::balance::release_held;
use super::drain::forget_drained;
use super::edit::{change_partitions, may_receive, set_state, states};
use super::elders;
use super::health::holders;
use super::layout::Spare;
use crate::id::{KeyspaceId, MemberId};
use crate::mutant::{self, broken};
use crate::table::{Keyspace, MemberState, OnLoss, Partition, Table};
use std::collections::{BTreeMap, BTreeSet};

/// How a member went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Departure {
    /// It does not answer.
    Silent,
    /// It is proved dead, or was given up.
    Dead,
    /// It leaves in order.
    Left,
}

/// The table without these members, in one pass over the partitions.
///
/// Where a primary goes, the first in-sync copy that answers takes over. Whoever alone holds a
/// partition, with others that go, stays: a silent member in state [`MemberState::Silent`], without
/// a vote; a leaving one as it was (nobody should have asked). A dead one's partitions begin empty
/// on live members if the keyspace says `reset`, and otherwise it stays, silent. Goals that name
/// whoever goes are dropped: the next plan makes better ones. At least one voter remains; where
/// nobody could vote afterwards, the table is returned as it is.
#[must_use]
pub fn remove(table: &Table, gone: &BTreeMap<MemberId, Departure>) -> Table {
    without(table, gone, |keyspace| {
        matches!(keyspace.on_loss, OnLoss::Reset { .. })
    })
}

/// As [`remove`], with the choice which keyspaces' lost partitions begin anew.
pub(super) fn without(
    table: &Table,
    gone: &BTreeMap<MemberId, Departure>,
    resets: impl Fn(&Keyspace) -> bool,
) -> Table {
    let states = states(table);
    // Whoever is silent already does not answer either: it counts only where nobody else holds the
    // partition.
    let departure = |m: MemberId| {
        gone.get(&m)
            .copied()
            .or_else(|| (states.get(&m) == Some(&MemberState::Silent)).then_some(Departure::Silent))
    };
    let resets: BTreeSet<KeyspaceId> = table
        .keyspaces
        .iter()
        .filter(|k| resets(k))
        .map(|k| k.id)
        .collect();
    let mut spare: Option<Spare> = None;

    let mut next = change_partitions(table, |at, partition| {
        let affected = partition
            .replicas
            .iter()
            .map(|r| r.member)
            .chain(partition.goal.iter().flatten().copied())
            .any(|m| gone.contains_key(&m));
        if !affected {
            return None;
        }
        let mut changed = match survivors(partition, &departure, resets.contains(&at.keyspace)) {
            Survivors::Answering(in_sync) => {
                let learners: Vec<MemberId> = partition
                    .learners()
                    .filter(|m| departure(*m).is_none())
                    .collect();
                partition.with_replicas(&in_sync, &learners)
            }
            Survivors::Silent(in_sync) => waiting(partition, &in_sync),
            Survivors::Nobody => {
                let spare = spare.get_or_insert_with(|| {
                    Spare::new(table, |m| may_receive(m) && !gone.contains_key(&m.id))
                });
                match spare.take(table, at) {
                    members if members.is_empty() => {
                        waiting(partition, &partition.in_sync().collect::<Vec<_>>())
                    }
                    members => partition.begun_anew(&members),
                }
            }
        };
        if changed.goal.iter().flatten().any(|m| gone.contains_key(m)) {
            changed.goal = None;
        }
        Some(changed)
    });

    let holders = holders(&next);
    release_held(&mut next);
    next.members
        .retain(|m| !gone.contains_key(&m.id) || holders.contains(&m.id));
    forget_drained(&mut next);
    for (&member, departure) in gone {
        if *departure != Departure::Left {
            set_state(&mut next, member, MemberState::Silent);
        }
    }
    next.voters.retain(|v| {
        next.members
            .iter()
            .any(|m| m.id == *v && m.state != MemberState::Silent)
    });
    if next.voters.is_empty() {
        next.voters = elders(&next);
    }
    if next.voters.is_empty() {
        table.clone()
    } else {
        next
    }
}

/// A silent member that holds nothing is a member no longer.
pub(super) fn forget_silent(table: &mut Table) {
    let (holders, members) = (holders(table), table.members.len());
    table
        .members
        .retain(|m| m.state != MemberState::Silent || holders.contains(&m.id));
    if table.members.len() < members {
        release_held(table);
        forget_drained(table);
    }
}

/// Who is in sync afterwards, the primary first.
enum Survivors {
    Answering(Vec<MemberId>),
    Silent(Vec<MemberId>),
    /// The partition begins anew.
    Nobody,
}

fn survivors(
    partition: &Partition,
    departure: &impl Fn(MemberId) -> Option<Departure>,
    reset: bool,
) -> Survivors {
    let left = |keep: &dyn Fn(Option<Departure>) -> bool| -> Vec<MemberId> {
        partition
            .in_sync()
            .filter(|m| keep(departure(*m)))
            .collect()
    };
    let answering = left(&|d| d.is_none());
    if !answering.is_empty() {
        return Survivors::Answering(answering);
    }
    let returning = left(&|d| d != Some(Departure::Dead) && !broken(&mutant::EXPELS_LAST_COPY));
    match (returning.is_empty(), reset) {
        (false, _) => Survivors::Silent(returning),
        (true, false) => Survivors::Silent(left(&|_| true)),
        (true, true) => Survivors::Nobody,
    }
}

/// The partition while nobody who holds it answers: nobody can learn it, so that moves end here.
fn waiting(partition: &Partition, in_sync: &[MemberId]) -> Partition {
    Partition {
        goal: None,
        ..partition.with_replicas(in_sync, &[])
    }
}
