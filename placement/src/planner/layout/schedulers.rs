//! What makes copies move: one scheduler a file.
//!
//! ```text
//!  repair      every partition has its copies
//!  place       no copy is where a rule forbids it, and none stands nearer to another than it must
//!  copies      every member holds its share of copies             the fewest moves
//!  primaries   every member leads its share
//!  hot         nobody has much more to do than its share, as measured
//! ```
//!
//! Each leaves alone what those before it have reached, so that the order of importance is also a measure that only ever
//! falls: planning comes to an end, and a planned layout is planned no further. It also means that any of them can be off: the
//! others do what they would do. All of them lay out one drawing board, so that what comes of them together is one plan with no move
//! that another takes back. What was measured is evened out by exchanges (`exchange`), which leave to everybody the number of copies and
//! primaries that it has. Draining is no scheduler of its own: a copy on a member that drains counts as one that is lacking.

mod copies;
mod even;
mod exchange;
mod hot;
mod place;
mod primaries;
mod repair;

use super::Seats;
use crate::scheduler::{Scheduler, Schedulers};

/// Looks at single copies while chains of moves are searched, in one keyspace. Chains are needed only where no overloaded
/// member has anything that an underloaded one may take, so this is rarely felt; it keeps planning cheap when it is.
const CHAIN_WORK_MAX: usize = 4_000_000;
/// Rounds over the schedulers. Two are the rule: what one round has reached the next finds in order.
const ROUNDS_MAX: usize = 8;

/// One reason to move copies.
trait Schedule {
    /// Takes what it can take off its part of the measure, without adding to those before it.
    fn improve(&self, seats: &mut Seats<'_>);
}

/// `None`: it moves nothing (`planner::reshape`).
const fn schedule(scheduler: Scheduler) -> Option<&'static dyn Schedule> {
    Some(match scheduler {
        Scheduler::Repair => &repair::Repair,
        Scheduler::Place => &place::Place,
        Scheduler::Copies => &copies::Copies,
        Scheduler::Primaries => &primaries::Primaries,
        Scheduler::Hot => &hot::Hot,
        Scheduler::Splits | Scheduler::Merges => return None,
    })
}

impl Seats<'_> {
    /// Lets the schedulers that are on work, in turn, until nothing is to be done.
    pub(crate) fn improve(mut self, on: Schedulers) -> Self {
        for _ in 0..ROUNDS_MAX {
            let before = self.partitions.clone();
            self.targets = self.shares();
            for scheduler in on.iter().filter_map(schedule) {
                scheduler.improve(&mut self);
            }
            if self.partitions == before {
                break;
            }
        }
        self
    }
}
