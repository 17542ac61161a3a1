//! Ranges of which too much is asked are split where that is halved, so that neither half is asked
//! for as much; and arcs of rings, by the tokens that members lack. (Ranges that have grown too
//! large are known to their primaries alone, which ask for it.)

use super::{Schedule, Seen, Shape};
use crate::division::Cut;
use crate::id::PartitionRef;
use crate::loads::Skew;
use crate::planner::operators::Reason;
use crate::planner::ranges::BUSY;
use crate::planner::ring;
use crate::table::{Mode, Reshape};

pub(super) struct Splits;

impl Schedule for Splits {
    fn shapes(&self, seen: &Seen<'_>) -> Vec<Shape> {
        let mut found = busy(seen);
        found.extend(
            ring::arrivals(seen.table)
                .into_iter()
                .map(|(keyspace, split)| (keyspace, split, Reason::Tokens)),
        );
        found
    }
}

/// One whose load is a single key's is none of them: splitting it would not help.
fn busy(seen: &Seen<'_>) -> Vec<Shape> {
    let ranges = seen
        .table
        .keyspaces
        .iter()
        .filter(|k| k.mode == Mode::Range)
        .flat_map(|k| k.partitions.iter().map(|p| (k.id, p.id)));
    let split = |(keyspace, partition)| {
        let load = seen.loads.partition(PartitionRef {
            keyspace,
            partition,
        })?;
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
