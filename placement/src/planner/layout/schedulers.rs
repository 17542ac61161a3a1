//! The reasons for moves, splits and merges: one scheduler a file.
//!
//! ```text
//!  repair      every partition has its copies
//!  drain       no copy is on a member that leaves
//!  place       no copy is where a rule forbids it, or nearer to another than necessary
//!  copies      every member holds its share of copies, with the fewest moves
//!  primaries   every member leads its share
//!  hot         no member has much more measured work than its share
//!  splits      busy partitions; tokens of members that came
//!  merges      partitions that are not needed; tokens of members that went
//! ```
//!
//! No scheduler undoes what an earlier one has reached, so the order of importance is also a
//! measure that only falls: planning ends, and a planned layout is not planned again. Any scheduler
//! can be off without an effect on the others. All of them change one layout, so the result is one
//! plan, in which no move takes another one back. Exchanges (`exchange`) even out measured loads,
//! and leave each member its number of copies and primaries. Splits and merges change no layout:
//! they are listed ([`shapes`]), and begin beside the moves.

mod copies;
mod drain;
mod even;
mod exchange;
mod hot;
mod merges;
mod place;
mod primaries;
mod repair;
mod splits;

use super::Seats;
use crate::id::{KeyspaceId, PartitionId};
use crate::loads::Loads;
use crate::planner::operators::Reason;
use crate::scheduler::{Scheduler, Schedulers};
use crate::table::{Reshape, Table};
use std::collections::BTreeSet;

/// The number of copies that are examined while chains of moves are searched, in one keyspace.
/// Chains are needed only if no overloaded member has a copy that an underloaded one may take. That
/// is rare, and this limit keeps planning cheap when it happens.
const CHAIN_WORK_MAX: usize = 4_000_000;
/// The number of rounds over the schedulers. Two are usual: the second finds the result of the
/// first in order.
const ROUNDS_MAX: usize = 8;

/// One reason to move copies, or to split and merge partitions.
trait Scheduling {
    /// Lowers its part of the measure as far as it can, without raising the parts of the schedulers
    /// before it.
    fn improve(&self, _seats: &mut Seats<'_>) {}

    /// The splits and merges that it wants.
    fn shapes(&self, _seen: &Seen<'_>) -> Vec<ReshapeStep> {
        Vec::new()
    }
}

/// What decides about splits and merges.
pub(crate) struct Seen<'a> {
    pub(crate) table: &'a Table,
    pub(crate) loads: &'a Loads,
    /// The size in bytes from which a range is split. `None`: no range counts as small.
    pub(crate) range_bytes_max: Option<u64>,
}

/// A split or a merge, and its reason.
pub(crate) type ReshapeStep = (KeyspaceId, Reshape, Reason);

const fn schedule(scheduler: Scheduler) -> &'static dyn Scheduling {
    match scheduler {
        Scheduler::Repair => &repair::Repair,
        Scheduler::Drain => &drain::Drain,
        Scheduler::Place => &place::PlaceByRules,
        Scheduler::Copies => &copies::Copies,
        Scheduler::Primaries => &primaries::Primaries,
        Scheduler::Hot => &hot::Hot,
        Scheduler::Splits => &splits::Splits,
        Scheduler::Merges => &merges::Merges,
    }
}

/// The splits and merges that the active schedulers want, each partition once. Merges come first:
/// the tokens of members that are gone come before the tokens of new ones.
pub(crate) fn shapes(seen: &Seen<'_>) -> Vec<ReshapeStep> {
    let mut known: BTreeSet<(KeyspaceId, PartitionId)> = BTreeSet::new();
    let mut found = Vec::new();
    for scheduler in Scheduler::ALL
        .into_iter()
        .rev()
        .filter(|scheduler| seen.table.settings.active().has(*scheduler))
    {
        for shape in schedule(scheduler).shapes(seen) {
            let parts: Vec<_> = shape.1.partitions().map(|p| (shape.0, p)).collect();
            if parts.iter().all(|part| !known.contains(part)) {
                known.extend(parts);
                found.push(shape);
            }
        }
    }
    found
}

impl Seats<'_> {
    /// Lets the active schedulers work in turn until none changes anything.
    pub(crate) fn improve(mut self, on: Schedulers) -> Self {
        for _ in 0..ROUNDS_MAX {
            let before = self.partitions.clone();
            self.targets = self.shares();
            for scheduler in on.iter() {
                // No later scheduler evens out the leads.
                let kept = (scheduler == Scheduler::Copies && !on.has(Scheduler::Primaries))
                    .then(|| self.leaders());
                schedule(scheduler).improve(&mut self);
                kept.into_iter()
                    .for_each(|leaders| self.keep_leaders(&leaders));
            }
            if self.partitions == before {
                break;
            }
        }
        self
    }

    fn leaders(&self) -> Vec<Option<usize>> {
        self.partitions
            .iter()
            .map(|p| p.members.first().copied())
            .collect()
    }

    /// A former primary that still holds the partition leads it. It may have given away its seat,
    /// and taken another seat of the same partition later.
    fn keep_leaders(&mut self, leaders: &[Option<usize>]) {
        for (p, leader) in leaders.iter().enumerate() {
            let members = &self.partitions[p].members;
            let seat = leader
                .and_then(|leader| members.iter().position(|&m| m == leader))
                .filter(|seat| *seat > 0);
            seat.into_iter().for_each(|seat| self.enthrone(p, seat));
        }
    }
}
