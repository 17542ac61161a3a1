//! Balance with rules.
//!
//! A rule may make a zone hold more or less than its weight, so members have no fixed target here.
//! A copy moves if that evens out the loads by weight, directly or along a chain of members whose
//! loads do not change, until no move does. (As in a cheapest semi-matching, which is optimal when
//! no such chain exists.) Each move lowers the sum of load² / weight, so this ends, and an even
//! layout is not planned again.

use crate::planner::layout::{Seats, search::Search};

/// Partition, seat, taker.
type SeatMove = (usize, usize, usize);

impl Seats<'_> {
    /// The shortest chain of moves, each of another partition, that evens out these loads, from the
    /// member with the largest load by weight.
    ///
    /// `seats` says which seats of a partition count. `takers` says which of the members that are
    /// not reached yet may take one. `None` ends the search.
    pub(super) fn chain(
        &self,
        loads: &[u64],
        seats: impl Fn(&Self, usize) -> std::ops::Range<usize>,
        mut takers: impl FnMut(&Self, usize, usize, &Search) -> Option<Vec<usize>>,
    ) -> Option<Vec<SeatMove>> {
        let mut held: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.topology.len()];
        for (p, seating) in self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, seating)| !seating.fixed)
        {
            seats(self, p).for_each(|seat| held[seating.members[seat]].push((p, seat)));
        }
        let mut givers: Vec<usize> = (0..self.topology.len()).collect();
        givers.sort_by_key(|&m| (std::cmp::Reverse(self.topology.relative(loads[m], m)), m));
        let mut searched = vec![false; self.topology.len()];
        for richest in givers {
            // A member that a richer one has reached without success reaches no member that the
            // richer one did not.
            if searched[richest] || (0..self.topology.len()).all(|m| !self.evens(loads, richest, m))
            {
                continue;
            }
            let mut search = Search::from(vec![richest], self.topology.len());
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

    /// Whether the sum of load² / weight falls if this member has a copy less and that one a copy
    /// more.
    pub(super) fn evens(&self, loads: &[u64], giver: usize, taker: usize) -> bool {
        let (less, more) = ((2 * loads[giver]).saturating_sub(1), 2 * loads[taker] + 1);
        // There are at most 2^18 copies (`PARTITIONS_ALL_MAX`), and weights are at most 2^17.
        more * self.topology.weight(giver) < less * self.topology.weight(taker)
    }
}
