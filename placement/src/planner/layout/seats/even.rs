//! Balance where there are rules.
//!
//! What a rule lets a member hold is no share of anything: with `primary in zone=a` that zone may have to hold more than its
//! weight, and with others less. So nobody has a target here. A copy moves where that evens out the loads by weight, straight or
//! along a chain of members that stay as loaded as they are, until no move does (as in a cheapest semi-matching, where
//! the absence of such chains is the optimum). Each move takes something off the sum of load² / weight: this ends, and
//! what is even is planned no further.

use super::{CHAIN_WORK_MAX, Search, Seats};

/// Partition, seat, taker.
type Move = (usize, usize, usize);

impl Seats<'_> {
    /// Evens out copies: those that are only planned first, since that costs nothing.
    pub(super) fn even(&mut self) {
        let mut work = CHAIN_WORK_MAX;
        self.even_some(&mut work, |seats, p, seat| !seats.present[p].contains(&seats.partitions[p].members[seat]));
        self.even_some(&mut work, |_, _, _| true);
    }

    /// Puts first who may lead, and evens out who does. Nothing is copied for that.
    pub(super) fn even_leads(&mut self) {
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for p in 0..self.partitions.len() {
                let members = &self.partitions[p].members;
                let ease = |s: usize| (self.rules.harm_of_lead(members[s]), self.ground.relative(self.leads[members[s]], members[s]), s);
                let Some(heir) = (1..members.len()).filter(|_| !self.partitions[p].fixed).min_by_key(|&s| ease(s)) else { continue };
                let harm = |s: usize| self.rules.harm_of_lead(members[s]);
                if harm(heir) < harm(0) || harm(heir) == harm(0) && self.evens(&self.leads, members[0], members[heir]) {
                    self.enthrone(p, heir);
                    changed = true;
                }
            }
        }
        let mut work = CHAIN_WORK_MAX;
        while let Some(chain) = self.chain(
            &self.leads,
            &mut work,
            |seats, p| if seats.partitions[p].members.is_empty() { 0..0 } else { 0..1 },
            |seats, p, _, taker| {
                let members = &seats.partitions[p].members;
                members[1..].contains(&taker) && seats.rules.harm_of_lead(taker) <= seats.rules.harm_of_lead(members[0])
            },
        ) {
            for (p, _, heir) in chain {
                let seat = self.partitions[p].members.iter().position(|&m| m == heir);
                seat.into_iter().for_each(|seat| self.enthrone(p, seat));
            }
        }
    }

    fn even_some(&mut self, work: &mut usize, which: impl Fn(&Self, usize, usize) -> bool) {
        // Most of it needs no chains.
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for p in 0..self.partitions.len() {
                for seat in (0..self.partitions[p].members.len()).rev() {
                    let giver = self.partitions[p].members[seat];
                    if self.partitions[p].fixed || !which(self, p, seat) {
                        continue;
                    }
                    let takers = (0..self.ground.len()).filter(|&m| self.evens(&self.loads, giver, m) && self.may_reseat(p, seat, m));
                    if let Some(taker) = takers.min_by_key(|&m| (self.ground.relative(self.loads[m], m), self.scatter(p, m))) {
                        self.reseat(p, seat, taker);
                        moved = true;
                    }
                }
            }
        }
        while let Some(chain) = self.chain(
            &self.loads,
            work,
            |seats, p| 0..seats.partitions[p].members.len(),
            |seats, p, seat, taker| which(seats, p, seat) && seats.may_reseat(p, seat, taker),
        ) {
            for (p, seat, taker) in chain {
                self.reseat(p, seat, taker);
            }
        }
    }

    /// The shortest chain of moves, each of another partition, that evens out these loads, from whoever has most by weight.
    fn chain(
        &self,
        loads: &[u64],
        work: &mut usize,
        seats: impl Fn(&Self, usize) -> std::ops::Range<usize>,
        may: impl Fn(&Self, usize, usize, usize) -> bool,
    ) -> Option<Vec<Move>> {
        let mut held: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.ground.len()];
        for (p, seating) in self.partitions.iter().enumerate().filter(|(_, seating)| !seating.fixed) {
            seats(self, p).for_each(|seat| held[seating.members[seat]].push((p, seat)));
        }
        let mut givers: Vec<usize> = (0..self.ground.len()).collect();
        givers.sort_by_key(|&m| (std::cmp::Reverse(self.ground.relative(loads[m], m)), m));
        let mut searched = vec![false; self.ground.len()];
        for richest in givers {
            // Whoever a richer one has reached for nothing reaches nobody that the richer one did not.
            if searched[richest] || (0..self.ground.len()).all(|m| !self.evens(loads, richest, m)) {
                continue;
            }
            let mut search = Search::from(vec![richest], self.ground.len());
            while let Some(giver) = search.next() {
                searched[giver] = true;
                for &(p, seat) in &held[giver] {
                    let mut next = 0;
                    while let Some(&taker) = search.unseen.get(next) {
                        *work = work.checked_sub(1)?;
                        if !may(self, p, seat, taker) || search.on_the_way(giver, p) {
                            next += 1;
                            continue;
                        }
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
    fn evens(&self, loads: &[u64], giver: usize, taker: usize) -> bool {
        let (less, more) = ((2 * loads[giver]).saturating_sub(1), 2 * loads[taker] + 1);
        // At most 2^18 copies (`PARTITIONS_ALL_MAX`) and 2^17 of weight.
        more * self.ground.weight(giver) < less * self.ground.weight(taker)
    }
}
