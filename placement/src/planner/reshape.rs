//! Splits and merges: in one table partitions stop taking writes, and in a later one others take
//! their place.
//!
//! ```text
//!  begin    P              under_way: Split P at k   P takes no more writes, its copies become
//!                                                    equal, and its primary reports that
//!                                                    (`WritesStopped`, with the epoch)
//!  finish   C, D from P    nothing under way         the in-sync copies of P divide its data
//! ```
//!
//! The keys of a partition never change in its life. The result of a split or a merge has new
//! numbers, so messages about one partition are never taken for messages about another. All data
//! that `finish` divides is committed and on every in-sync copy, so logs need not be divided.

use crate::division::{Cut, Division, NotDivided, Runs};
use crate::id::{Epoch, KeyspaceId, MemberId, PartitionId, PartitionRef};
use crate::table::validate::{PARTITION_ID_MAX, PARTITIONS_ALL_MAX, PARTITIONS_MAX, RESHAPED_MAX};
use crate::table::{Keyspace, Mode, Origin, Partition, Replica, ReplicaState, Reshape, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why nothing is split or merged. The table stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReshaped {
    /// Keys cannot be divided like that.
    #[error(transparent)]
    Division(#[from] NotDivided),
    /// There is no such keyspace, or it has no partitions yet.
    #[error("there is no keyspace {0} that has partitions")]
    NoKeyspace(KeyspaceId),
    /// The partition moves, or is split or merged already.
    #[error("partition {0} moves, lacks copies or is being split or merged: try again later")]
    Busy(PartitionId),
    /// Their copies are on other members, or in another order.
    #[error(
        "partitions {0} and {1} are not held alike: they are merged once the same members hold \
         them, with the same primary"
    )]
    Elsewhere(PartitionId, PartitionId),
    /// Partitions do not move between the data threads of a member.
    #[error(
        "partitions {0} and {1} belong to different data threads of their members, between which \
         nothing moves: they stay two"
    )]
    Threads(PartitionId, PartitionId),
    /// There are too many.
    #[error("{0}")]
    TooMany(&'static str),
}

/// A primary's report that a partition takes no more writes, and that all its copies are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritesStopped {
    /// The epoch of the report.
    pub epoch: Epoch,
    /// How far the partition's clock is ahead of its primary's own, in milliseconds. It makes the
    /// clocks of two partitions of one primary comparable.
    pub ahead_ms: i64,
}

/// The table in which this split or merge is under way.
///
/// # Errors It is not possible, or not possible now.
pub fn begin(table: &Table, keyspace: KeyspaceId, reshape: Reshape) -> Result<Table, NotReshaped> {
    let mut next = table.clone();
    let all: usize = table
        .keyspaces
        .iter()
        .map(|k| k.partitions.len() + k.reshaping.under_way.len())
        .sum();
    let found = next
        .keyspaces
        .iter_mut()
        .find(|k| k.id == keyspace && !k.partitions.is_empty());
    let keyspace = found.ok_or(NotReshaped::NoKeyspace(keyspace))?;
    // Checks whether keys can be divided like that. The numbers of the parts do not matter here.
    divided(
        keyspace,
        &reshape,
        [PartitionId(u32::MAX), PartitionId(u32::MAX - 1)],
    )?;
    if keyspace.reshaping.under_way.len() >= RESHAPED_MAX {
        return Err(NotReshaped::TooMany(
            "64 splits and merges are under way in the keyspace: try again later",
        ));
    }
    let splits = keyspace.reshaping.under_way.len();
    let more = matches!(reshape, Reshape::Split { .. });
    if more && (keyspace.partitions.len() + splits >= PARTITIONS_MAX || all >= PARTITIONS_ALL_MAX) {
        return Err(NotReshaped::TooMany(
            "there are as many partitions as there may be",
        ));
    }
    for id in reshape.partitions() {
        let busy = |p: &Partition| p.goal.is_some() || p.learners().next().is_some();
        if keyspace.is_reshaped(id) || keyspace.partition(id).is_none_or(|p| busy(p)) {
            return Err(NotReshaped::Busy(id));
        }
    }
    if let Reshape::Merge {
        partitions: [one, other],
    } = reshape
    {
        if !same_threads(&threads(table), one, other) {
            return Err(NotReshaped::Threads(one, other));
        }
        if !keyspace
            .partition(one)
            .zip(keyspace.partition(other))
            .is_some_and(|(one, other)| held_alike(one, other))
        {
            return Err(NotReshaped::Elsewhere(one, other));
        }
    }
    for id in reshape.partitions() {
        let place = keyspace.place(id).ok_or(NotReshaped::Busy(id))?;
        let partition = Arc::make_mut(&mut keyspace.partitions[place]);
        partition.epoch = partition.epoch.next();
    }
    keyspace.reshaping.under_way.push(reshape);
    keyspace.reshaping.under_way.sort_unstable();
    Ok(next)
}

/// The table in which the splits and merges that are under way are done, if their partitions still
/// have the epochs of the reports.
#[must_use]
pub fn finish(
    table: &Table,
    stopped: impl Fn(PartitionRef) -> Option<WritesStopped>,
) -> Option<Table> {
    let mut next = table.clone();
    let threads = threads(table);
    let mut done = false;
    for keyspace in &mut next.keyspaces {
        for reshape in std::mem::take(&mut keyspace.reshaping.under_way) {
            if finish_one(keyspace, &reshape, &threads, &stopped).is_some() {
                done = true;
            } else {
                keyspace.reshaping.under_way.push(reshape);
            }
        }
    }
    done.then_some(next)
}

fn finish_one(
    keyspace: &mut Keyspace,
    reshape: &Reshape,
    threads: &BTreeSet<u8>,
    stopped: impl Fn(PartitionRef) -> Option<WritesStopped>,
) -> Option<()> {
    let mut parents: Vec<(Arc<Partition>, i64)> = Vec::new();
    for id in reshape.partitions() {
        let partition = keyspace.partition(id)?;
        let known = stopped(PartitionRef::new(keyspace.id, id))
            .filter(|stopped| stopped.epoch == partition.epoch)?;
        parents.push((partition.clone(), known.ahead_ms));
    }
    let (first, _) = parents.first()?;
    let members: Vec<MemberId> = first.in_sync().collect();
    // With a learner or another primary, the two are no longer held alike.
    let alike = |p: &Partition| {
        p.primary() == first.primary()
            && p.replicas.len() == members.len()
            && members.iter().all(|m| p.holds(*m))
    };
    // A member that came since may have another number of data threads.
    if !parents.iter().all(|(p, _)| {
        alike(p) && same_threads(threads, p.id, first.id) && p.learners().next().is_none()
    }) {
        return None;
    }
    let last = parents.iter().map(|(p, _)| p.epoch).max()?;
    let (epoch, lineage) = (last.next(), parents.iter().map(|(p, _)| p.lineage).max()?);
    let ahead = parents.iter().map(|(_, ahead)| *ahead).max()?;
    let origin = |(p, own): &(Arc<Partition>, i64)| {
        Some(Origin {
            partition: p.id,
            behind_ms: u64::try_from(ahead.checked_sub(*own)?).ok()?,
        })
    };
    let from: Vec<Origin> = parents.iter().map(origin).collect::<Option<_>>()?;
    let one = next_of_thread(keyspace.next_partition(), first.id, threads)?;
    let two = next_of_thread(PartitionId(one.0 + 1), first.id, threads)?;
    let (division, ids) = match reshape {
        Reshape::Split { .. } => (divided(keyspace, reshape, [one, two]).ok()?, vec![one, two]),
        Reshape::Merge { .. } => (divided(keyspace, reshape, [one, one]).ok()?, vec![one]),
    };
    keyspace.division = division;
    keyspace
        .partitions
        .retain(|p| parents.iter().all(|(gone, _)| gone.id != p.id));
    keyspace.reshaping.next = PartitionId(ids.last()?.0 + 1);
    let replicas: Vec<Replica> = members
        .iter()
        .map(|&member| Replica {
            member,
            state: ReplicaState::InSync,
        })
        .collect();
    for id in ids {
        let (replicas, from) = (replicas.clone(), from.clone());
        keyspace.partitions.push(Arc::new(Partition {
            id,
            replicas,
            epoch,
            since: epoch,
            lineage,
            goal: None,
            from,
        }));
    }
    Some(())
}

/// The table in which the named splits and merges are given up. Their partitions take writes again.
#[must_use]
pub fn cancel(table: &Table, given_up: impl Fn(KeyspaceId, &Reshape) -> bool) -> Table {
    let mut next = table.clone();
    for keyspace in &mut next.keyspaces {
        for reshape in std::mem::take(&mut keyspace.reshaping.under_way) {
            if !given_up(keyspace.id, &reshape) {
                keyspace.reshaping.under_way.push(reshape);
                continue;
            }
            for id in reshape.partitions() {
                if let Some(place) = keyspace.place(id) {
                    let partition = Arc::make_mut(&mut keyspace.partitions[place]);
                    partition.epoch = partition.epoch.next();
                }
            }
        }
    }
    next
}

/// The splits that bring a fixed keyspace to its number of partitions, as many as may begin beside
/// those under way.
#[must_use]
pub fn doublings(keyspace: &Keyspace, most: usize) -> Vec<Reshape> {
    let Mode::Fixed { partitions } = keyspace.mode else {
        return Vec::new();
    };
    if keyspace.partitions.is_empty() || keyspace.partitions.len() >= usize::from(partitions) {
        return Vec::new();
    }
    let least = crate::hash::SLOTS / partitions.max(1);
    let room = most.saturating_sub(keyspace.reshaping.under_way.len());
    let free = |p: &&Arc<Partition>| {
        p.goal.is_none() && p.learners().next().is_none() && !keyspace.is_reshaped(p.id)
    };
    let long = |p: &&Arc<Partition>| {
        let slots = keyspace.slots_of(p.id);
        slots.end().saturating_sub(*slots.start()) >= least
    };
    let splits = keyspace
        .partitions
        .iter()
        .filter(long)
        .filter(free)
        .map(|p| Reshape::Split {
            partition: p.id,
            cut: Cut::Half,
        });
    splits.take(room).collect()
}

fn divided(
    keyspace: &Keyspace,
    reshape: &Reshape,
    ids: [PartitionId; 2],
) -> Result<Division, NotDivided> {
    let runs = match (&keyspace.division, keyspace.mode) {
        (Division::Slots, Mode::Fixed { partitions }) => {
            Some(Division::Runs(Arc::new(Runs::even(partitions)?)))
        }
        _ => None,
    };
    let division = runs.as_ref().unwrap_or(&keyspace.division);
    match reshape {
        Reshape::Split { partition, cut } => division.split(*partition, cut, ids),
        Reshape::Merge { partitions } => division.merge(*partitions, ids[0]),
    }
}

/// Whether two partitions belong to the same data thread at every member, for these numbers of
/// threads.
pub(super) fn same_threads(threads: &BTreeSet<u8>, one: PartitionId, other: PartitionId) -> bool {
    threads
        .iter()
        .all(|threads| one.thread(*threads) == other.thread(*threads))
}

/// Whether the same members hold two partitions in sync, with the same primary.
pub(super) fn held_alike(one: &Partition, other: &Partition) -> bool {
    let set = |p: &Partition| p.in_sync().collect::<BTreeSet<_>>();
    one.primary() == other.primary() && set(one) == set(other)
}

/// The numbers of data threads of members that have several.
pub(super) fn threads(table: &Table) -> BTreeSet<u8> {
    table
        .members
        .iter()
        .map(|m| m.addresses.threads())
        .filter(|threads| *threads > 1)
        .collect()
}

/// The next free number, from this one on, of a partition that belongs to the same data thread as
/// another one everywhere: its contents are there.
fn next_of_thread(
    from: PartitionId,
    like: PartitionId,
    threads: &BTreeSet<u8>,
) -> Option<PartitionId> {
    let same = |id: &PartitionId| {
        threads
            .iter()
            .all(|threads| id.thread(*threads) == like.thread(*threads))
    };
    (from.0..PARTITION_ID_MAX).map(PartitionId).find(same)
}
