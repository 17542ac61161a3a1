//! When busy ranges are split, when small and idle ranges are merged, and how neighbours come to
//! the same members for that.
//!
//! The conditions of the schedulers of splits and merges must last for a while before anything
//! happens. The coordinator measures that time.

use super::drain::leaving;
use super::edit::may_receive;
use super::health::copies_wanted;
use super::{Plan, reshape};
use crate::id::{KeyspaceId, MemberId, PartitionId, PartitionRef};
use crate::loads::Loads;
use crate::table::{Member, MemberState, Partition, Reshape, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A range with more operations a second is split.
pub(super) const BUSY: u64 = 5_000;
/// Two neighbours with no more than this together are idle.
pub(super) const REST: u64 = BUSY / 10;
/// Two neighbours are small if together they have less than this part of the size at which a range
/// is split.
pub(super) const SMALL_PART: u64 = 4;

/// How these neighbours become one: they are merged, or first brought to the same members. Neither
/// is possible if one of them moves or lacks copies, if they belong to different data threads, or
/// if no member has room for the other range.
#[must_use]
pub fn together(
    table: &Table,
    keyspace: KeyspaceId,
    pair: [PartitionId; 2],
    loads: &Loads,
) -> Option<Result<Reshape, Plan>> {
    let keyspace = table.keyspace(keyspace)?;
    let rests = |id| {
        keyspace.partition(id).filter(|p| {
            p.goal.is_none() && p.learners().next().is_none() && !keyspace.is_reshaped(id)
        })
    };
    let (one, other) = rests(pair[0])
        .zip(rests(pair[1]))
        .filter(|_| reshape::same_threads(&reshape::threads(table), pair[0], pair[1]))?;
    if reshape::held_alike(one, other) {
        return Some(Ok(Reshape::Merge { partitions: pair }));
    }
    let at = |p: &Partition| PartitionRef::new(keyspace.id, p.id);
    // Repair comes first: the other partition would lose copies as well.
    let ways = [(one, other), (other, one)]
        .into_iter()
        .take_while(|(stays, _)| may_stay(table, at(stays)));
    let mut ways = ways.map(|(stays, comes)| (comes, stays.in_sync().collect::<Vec<MemberId>>()));
    ways.find(|(comes, members)| !members.iter().any(|m| loads.refuses(table, at(comes), *m)))
        .map(|(comes, members)| Err(vec![(at(comes), members)]))
}

/// Whether a partition has all its copies, on members that may hold them.
#[must_use]
pub fn may_stay(table: &Table, at: PartitionRef) -> bool {
    let Some((keyspace, partition)) = table
        .keyspace(at.keyspace)
        .and_then(|k| Some((k, k.partition(at.partition)?)))
    else {
        return false;
    };
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    stays(partition, copies_wanted(keyspace, receivers), |m| {
        table.member(m).is_some_and(|m| may_receive(m))
    })
}

/// Partitions that lack copies on members that stay for now. Their next step cannot wait. A member
/// that an operator empties is in no hurry, but a leaver is.
pub fn pressing(table: &Table) -> impl Iterator<Item = PartitionRef> {
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    let goes = leaving(table);
    let remains = |m: &&Arc<Member>| m.state != MemberState::Silent && !goes.contains(&m.id);
    let remain: BTreeSet<MemberId> = table.members.iter().filter(remains).map(|m| m.id).collect();
    let presses = move |wanted: usize, partition: &Partition| {
        !stays(partition, wanted, |m| remain.contains(&m))
    };
    let wanted: BTreeMap<KeyspaceId, usize> = table
        .keyspaces
        .iter()
        .map(|k| (k.id, copies_wanted(k, receivers)))
        .collect();
    table
        .partitions()
        .filter(move |(at, partition)| {
            presses(wanted.get(&at.keyspace).copied().unwrap_or(0), partition)
        })
        .map(|(at, _)| at)
}

fn stays(partition: &Partition, wanted: usize, may: impl Fn(MemberId) -> bool) -> bool {
    partition.in_sync().all(may) && partition.in_sync().count() >= wanted
}
