//! Ranges that are split because much is asked of them, and merged because they are small and at rest.
//!
//! What is seen here must be so for a while before anything is done: the coordinator keeps count of that. A split halves what is asked, so that
//! neither half is asked for as much; what is merged is far from being split again.

use super::edit::may_receive;
use super::health::copies_wanted;
use super::{Plan, reshape};
use crate::division::{Cut, Division};
use crate::id::{KeyspaceId, MemberId, PartitionId, PartitionRef};
use crate::loads::{Loads, PartitionLoad, Skew};
use crate::scheduler::Scheduler;
use crate::table::{Keyspace, Mode, Partition, Reshape, Table};
use std::collections::BTreeSet;

/// A range of which more is asked is split, in operations a second.
const BUSY: u64 = 5_000;
/// Two neighbours of which together less than this part of it is asked are at rest.
const REST_PART: u64 = 10;
/// Two neighbours are small that together have less than this part of what one is split for.
const SMALL_PART: u64 = 4;

/// Ranges of which too much is asked, each to be split where that is halved. One whose load is a single key's is none of them: splitting it
/// would not help.
#[must_use]
pub fn busy(table: &Table, loads: &Loads) -> Vec<(KeyspaceId, Reshape)> {
    if !table.settings.schedulers.has(Scheduler::Splits) {
        return Vec::new();
    }
    let of = |keyspace: &Keyspace| {
        let split = |p: &Partition| {
            let load = loads.partition(PartitionRef { keyspace: keyspace.id, partition: p.id })?;
            let Skew::Halves(map, key) = &load.skew else { return None };
            let cut = Cut::Key { map: *map, key: key.as_slice().into() };
            (load.work() >= BUSY).then_some((keyspace.id, Reshape::Split { partition: p.id, cut }))
        };
        keyspace.partitions.iter().filter_map(|p| split(p)).collect::<Vec<_>>()
    };
    table.keyspaces.iter().filter(|k| k.mode == Mode::Range).flat_map(of).collect()
}

/// Neighbours that came of splits, are small together and at rest; each range once. Those that people began with stay.
#[must_use]
pub fn cold(table: &Table, loads: &Loads, range_bytes_max: u64) -> Vec<(KeyspaceId, [PartitionId; 2])> {
    if !table.settings.schedulers.has(Scheduler::Merges) {
        return Vec::new();
    }
    let of = |keyspace: &Keyspace| {
        let Division::Ranges(ranges) = &keyspace.division else { return Vec::new() };
        // Who leads it and says nothing of it says that nothing is in it, as long as it says anything.
        let nothing = PartitionLoad::default();
        let load = |id| {
            let partition = keyspace.partition(id).filter(|p| !p.from.is_empty())?;
            loads.member(partition.primary())?;
            Some(loads.partition(PartitionRef { keyspace: keyspace.id, partition: id }).unwrap_or(&nothing))
        };
        let mut used = BTreeSet::new();
        let mut found = Vec::new();
        for two in ranges.starts().windows(2) {
            let pair = [two[0].partition, two[1].partition];
            let Some((one, other)) = load(pair[0]).zip(load(pair[1])) else { continue };
            let small = one.bytes.saturating_add(other.bytes) <= range_bytes_max / SMALL_PART;
            let rests = one.work().saturating_add(other.work()) <= BUSY / REST_PART;
            if small && rests && !used.contains(&pair[0]) {
                used.extend(pair);
                found.push((keyspace.id, pair));
            }
        }
        found
    };
    table.keyspaces.iter().flat_map(of).collect()
}

/// How these neighbours become one: they are merged, or first brought to the same members. Neither, where they move or lack copies, or belong to different data
/// threads.
#[must_use]
pub fn together(table: &Table, keyspace: KeyspaceId, pair: [PartitionId; 2]) -> Option<Result<Reshape, Plan>> {
    let keyspace = table.keyspace(keyspace)?;
    let rests = |id| keyspace.partition(id).filter(|p| p.goal.is_none() && p.learners().next().is_none() && !keyspace.is_reshaped(id));
    let (one, other) = rests(pair[0]).zip(rests(pair[1])).filter(|_| reshape::same_threads(&reshape::threads(table), pair[0], pair[1]))?;
    if reshape::held_alike(one, other) {
        return Some(Ok(Reshape::Merge { partitions: pair }));
    }
    let members: Vec<MemberId> = one.in_sync().collect();
    let receivers = table.members.iter().filter(|m| may_receive(m)).count();
    let may = members.iter().all(|m| table.member(*m).is_some_and(|m| may_receive(m)));
    // Repair comes first: the other one would lose copies as well.
    let whole = members.len() >= copies_wanted(keyspace, receivers);
    (may && whole).then(|| Err(vec![(PartitionRef { keyspace: keyspace.id, partition: other.id }, members)]))
}
