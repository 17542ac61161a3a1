//! No copy is on a member that drains or leaves: each is made elsewhere first, and then dropped
//! there.

use super::Scheduling;
use crate::planner::layout::Seats;

pub(super) struct Drain;

impl Scheduling for Drain {
    fn improve(&self, seats: &mut Seats<'_>) {
        for p in 0..seats.partitions.len() {
            while seats.partitions[p].going > 0 {
                seats.partitions[p].going -= 1;
                if seats.partitions[p].members.len() < seats.copies {
                    seats.add(p);
                }
            }
        }
    }
}
