//! Busy ranges are split where their load halves, and arcs of rings at the tokens that members
//! lack. (Only primaries know which ranges have grown too large. They request those splits.)

use super::{ReshapeStep, Scheduling, Seen};
use crate::division::Cut;
use crate::id::PartitionRef;
use crate::loads::Skew;
use crate::planner::operators::Reason;
use crate::planner::ranges::BUSY;
use crate::planner::ring;
use crate::table::{Mode, Reshape};

pub(super) struct Splits;

impl Scheduling for Splits {
    fn shapes(&self, seen: &Seen<'_>) -> Vec<ReshapeStep> {
        let mut found = busy(seen);
        found.extend(
            ring::arrivals(seen.table)
                .into_iter()
                .map(|(keyspace, split)| (keyspace, split, Reason::Tokens)),
        );
        found
    }
}

/// Ranges whose load comes from a single key are not among them, because splitting would not help.
fn busy(seen: &Seen<'_>) -> Vec<ReshapeStep> {
    let ranges = seen
        .table
        .keyspaces
        .iter()
        .filter(|k| k.mode == Mode::Range)
        .flat_map(|k| k.partitions.iter().map(|p| (k.id, p.id)));
    let split = |(keyspace, partition)| {
        let load = seen
            .loads
            .partition(PartitionRef::new(keyspace, partition))?;
        let Skew::Halves(map, key) = &load.skew else {
            return None;
        };
        let cut = Cut::Key {
            map: *map,
            key: key.as_slice().into(),
        };
        (load.work() >= BUSY).then_some((keyspace, Reshape::Split { partition, cut }, Reason::Hot))
    };
    ranges.filter_map(split).collect()
}
