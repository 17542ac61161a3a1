//! Every partition has its copies. Missing copies, and copies on members that are gone, are made
//! elsewhere. Surplus copies are dropped.

use super::Scheduling;
use crate::planner::layout::{Seating, Seats};

pub(super) struct Repair;

impl Scheduling for Repair {
    fn improve(&self, seats: &mut Seats<'_>) {
        seats.trim();
        seats.fill();
    }
}

impl Seats<'_> {
    /// Drops surplus copies: never the primary's, and those that stand near others first.
    fn trim(&mut self) {
        for p in 0..self.partitions.len() {
            while !self.partitions[p].fixed && self.partitions[p].members.len() > self.copies {
                let seats = 1..self.partitions[p].members.len();
                let over = |s: usize| self.over(self.partitions[p].members[s]);
                let rest = |s: usize| self.beside(p, Some(s), None);
                let ease = |s: usize| std::cmp::Reverse(self.rules.harm(rest(s)));
                let Some(worst) = seats.max_by_key(|&s| (ease(s), self.harm_in(p, s), over(s), s))
                else {
                    break;
                };
                let gone = self.partitions[p].members.remove(worst);
                self.loads[gone] -= 1;
            }
        }
    }

    fn fill(&mut self) {
        for p in 0..self.partitions.len() {
            let Seating {
                members,
                going,
                fixed,
            } = &self.partitions[p];
            // A copy on a member that leaves counts, as long as nothing else has to be copied.
            if *fixed || members.len() + going >= self.copies {
                continue;
            }
            while self.partitions[p].members.len() < self.copies && self.add(p) {}
            self.partitions[p].going = 0;
        }
    }

    /// Adds a copy at the best place. Returns false if there is no place.
    pub(super) fn add(&mut self, p: usize) -> bool {
        let Some(best) = self.best_beside(p, None) else {
            return false;
        };
        if self.partitions[p].members.is_empty() {
            self.leads[best] += 1;
        }
        self.partitions[p].members.push(best);
        self.loads[best] += 1;
        true
    }
}
