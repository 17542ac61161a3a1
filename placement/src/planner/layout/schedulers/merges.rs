//! Neighbouring ranges are merged if they came from splits, and are small together and idle: the
//! result is far from being split again. The ranges that people created stay. Arcs of rings are
//! merged if their tokens are of members that are gone.

use super::{ReshapeStep, Scheduling, Seen};
use crate::division::Division;
use crate::id::{PartitionId, PartitionRef};
use crate::loads::PartitionLoad;
use crate::planner::operators::Reason;
use crate::planner::ranges::{REST, SMALL_PART};
use crate::planner::ring;
use crate::table::{Keyspace, Reshape};
use std::collections::BTreeSet;

pub(super) struct Merges;

impl Scheduling for Merges {
    fn shapes(&self, seen: &Seen<'_>) -> Vec<ReshapeStep> {
        let cold = seen
            .table
            .keyspaces
            .iter()
            .flat_map(|keyspace| cold(seen, keyspace));
        let departures = ring::departures(seen.table)
            .into_iter()
            .map(|(keyspace, merge)| (keyspace, merge, Reason::Tokens));
        cold.chain(departures).collect()
    }
}

/// Each range once.
fn cold(seen: &Seen<'_>, keyspace: &Keyspace) -> Vec<ReshapeStep> {
    let (Division::Ranges(ranges), Some(range_bytes_max)) =
        (&keyspace.division, seen.range_bytes_max)
    else {
        return Vec::new();
    };
    // A primary that reports loads, and none of this range, says that the range is empty.
    let nothing = PartitionLoad::default();
    let load = |id: PartitionId| {
        let partition = keyspace.partition(id).filter(|p| !p.from.is_empty())?;
        seen.loads.member(partition.primary())?;
        Some(
            seen.loads
                .partition(PartitionRef::new(keyspace.id, id))
                .unwrap_or(&nothing),
        )
    };
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    for two in ranges.starts().windows(2) {
        let pair = [two[0].partition, two[1].partition];
        let Some((one, other)) = load(pair[0]).zip(load(pair[1])) else {
            continue;
        };
        let small = one.bytes.saturating_add(other.bytes) <= range_bytes_max / SMALL_PART;
        let rests = one.work().saturating_add(other.work()) <= REST;
        if small && rests && !used.contains(&pair[0]) {
            used.extend(pair);
            found.push((
                keyspace.id,
                Reshape::Merge { partitions: pair },
                Reason::Small,
            ));
        }
    }
    found
}
