//! Balance where there are rules.
//!
//! What a rule lets a member hold is no share of anything: with `primary in zone=a` that zone may
//! have to hold more than its weight, and with others less. So nobody has a target here. A copy
//! moves where that evens out the loads by weight, straight or along a chain of members that stay
//! as loaded as they are, until no move does (as in a cheapest semi-matching, where the absence of
//! such chains is the optimum). Each move takes something off the sum of load² / weight: this ends,
//! and what is even is planned no further.

use crate::planner::layout::{Seats, search::Search};

/// Partition, seat, taker.
type Move = (usize, usize, usize);

impl Seats<'_> {
    /// The shortest chain of moves, each of another partition, that evens out these loads, from
    /// whoever has most by weight.
    ///
    /// `seats` says which seats of a partition count, `takers` who of those that are not reached
    /// yet may take one; `None` ends the search.
    pub(super) fn chain(
        &self,
        loads: &[u64],
        seats: impl Fn(&Self, usize) -> std::ops::Range<usize>,
        mut takers: impl FnMut(&Self, usize, usize, &Search) -> Option<Vec<usize>>,
    ) -> Option<Vec<Move>> {
        let mut held: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.ground.len()];
        for (p, seating) in self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, seating)| !seating.fixed)
        {
            seats(self, p).for_each(|seat| held[seating.members[seat]].push((p, seat)));
        }
        let mut givers: Vec<usize> = (0..self.ground.len()).collect();
        givers.sort_by_key(|&m| (std::cmp::Reverse(self.ground.relative(loads[m], m)), m));
        let mut searched = vec![false; self.ground.len()];
        for richest in givers {
            // Whoever a richer one has reached for nothing reaches nobody that the richer one did
            // not.
            if searched[richest] || (0..self.ground.len()).all(|m| !self.evens(loads, richest, m)) {
                continue;
            }
            let mut search = Search::from(vec![richest], self.ground.len());
            while let Some(giver) = search.next() {
                searched[giver] = true;
                for &(p, seat) in &held[giver] {
                    let takers = takers(self, p, seat, &search)?;
                    if search.on_the_way(giver, p) {
                        continue;
                    }
                    for taker in takers {
                        search.reach(taker, giver, (p, seat));
                        if self.evens(loads, richest, taker) {
                            return Some(search.way_to(taker));
                        }
                    }
                }
            }
        }
        None
    }

    /// Whether one copy less here and one more there takes something off the sum of load² / weight.
    pub(super) fn evens(&self, loads: &[u64], giver: usize, taker: usize) -> bool {
        let (less, more) = ((2 * loads[giver]).saturating_sub(1), 2 * loads[taker] + 1);
        // At most 2^18 copies (`PARTITIONS_ALL_MAX`) and 2^17 of weight.
        more * self.ground.weight(giver) < less * self.ground.weight(taker)
    }
}
