//! Failover: one table without the dead members.

use super::balance::release_held;
use super::choose_voters;
use super::drain::forget_drained;
use super::edit::{change_partitions, may_receive, set_state, states};
use super::health::holders;
use super::layout::Spare;
use crate::durability::Durability;
use crate::id::{KeyspaceId, MemberId};
use crate::mutant::{self, broken};
use crate::table::{Keyspace, MemberState, OnLoss, Partition, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Why a member is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence {
    /// It does not answer.
    Silent,
    /// A later process has its name and its address, or its directory. What it had in memory alone
    /// is gone. What is on disk may come back.
    Ended,
    /// An operator gave it up.
    Dead,
    /// It leaves in order.
    Left,
}

/// The table without these members, in one pass over the partitions.
///
/// If a primary is removed, the first in-sync copy that answers takes over. A member that alone
/// holds a partition, or only with others that are removed, stays. If it is silent, it stays in
/// state [`MemberState::Silent`], without a vote. If it is leaving, it stays as it was, because it
/// should not have been removed. If it is dead and the keyspace says `reset`, the partition begins
/// empty on live members. Otherwise the dead member stays, silent. A member whose process ended is
/// dead for what was in memory, and silent for what is on disk. Goals that name removed members
/// are dropped, and the next plan makes better ones. At least one voter remains: if none could vote
/// afterwards, the table is returned as it is.
#[must_use]
pub fn remove(table: &Table, gone: &BTreeMap<MemberId, Absence>) -> Table {
    without(table, gone, |keyspace| {
        matches!(keyspace.on_loss, OnLoss::Reset { .. })
    })
}

/// As [`remove`], with a choice of the keyspaces whose lost partitions begin empty.
pub(super) fn without(
    table: &Table,
    gone: &BTreeMap<MemberId, Absence>,
    resets: impl Fn(&Keyspace) -> bool,
) -> Table {
    let states = states(table);
    // A member that is silent already does not answer either. It counts only if no other member
    // holds the partition.
    let on_disk: BTreeSet<KeyspaceId> = table
        .keyspaces
        .iter()
        .filter(|k| k.durability != Durability::None)
        .map(|k| k.id)
        .collect();
    let departure = |keyspace: KeyspaceId, m: MemberId| match gone.get(&m) {
        Some(Absence::Ended) if on_disk.contains(&keyspace) => Some(Absence::Silent),
        Some(Absence::Ended) => Some(Absence::Dead),
        Some(departure) => Some(*departure),
        None => (states.get(&m) == Some(&MemberState::Silent)).then_some(Absence::Silent),
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
        let departure = |m| departure(at.keyspace, m);
        let mut changed = match survivors(partition, &departure, resets.contains(&at.keyspace)) {
            Survivors::Answering(in_sync) => {
                let learners: Vec<MemberId> = partition
                    .learners()
                    .filter(|m| departure(*m).is_none())
                    .collect();
                partition.with_replicas(&in_sync, &learners)
            }
            Survivors::Silent(in_sync) => waiting(partition, &in_sync),
            Survivors::None => {
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
        if *departure != Absence::Left {
            set_state(&mut next, member, MemberState::Silent);
        }
    }
    next.voters.retain(|v| {
        next.members
            .iter()
            .any(|m| m.id == *v && m.state != MemberState::Silent)
    });
    if next.voters.is_empty() {
        next.voters = choose_voters(&next);
    }
    if next.voters.is_empty() {
        table.clone()
    } else {
        next
    }
}

/// Removes silent members that hold nothing.
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

/// The copies that are in sync afterwards, the primary first.
enum Survivors {
    Answering(Vec<MemberId>),
    Silent(Vec<MemberId>),
    /// The partition begins empty.
    None,
}

fn survivors(
    partition: &Partition,
    departure: &impl Fn(MemberId) -> Option<Absence>,
    reset: bool,
) -> Survivors {
    let left = |keep: &dyn Fn(Option<Absence>) -> bool| -> Vec<MemberId> {
        partition
            .in_sync()
            .filter(|m| keep(departure(*m)))
            .collect()
    };
    let answering = left(&|d| d.is_none());
    if !answering.is_empty() {
        return Survivors::Answering(answering);
    }
    let returning = left(&|d| d != Some(Absence::Dead) && !broken(&mutant::EXPELS_LAST_COPY));
    match (returning.is_empty(), reset) {
        (false, _) => Survivors::Silent(returning),
        (true, false) => Survivors::Silent(left(&|_| true)),
        (true, true) => Survivors::None,
    }
}

/// The partition while none of its holders answers. No member can copy it, so its moves end here.
fn waiting(partition: &Partition, in_sync: &[MemberId]) -> Partition {
    Partition {
        goal: None,
        ..partition.with_replicas(in_sync, &[])
    }
}
