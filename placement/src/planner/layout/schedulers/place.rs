//! No copy is where a rule forbids it, and none stands nearer to another than it must.

use super::Schedule;
use crate::planner::layout::Seats;

pub(super) struct Place;

impl Schedule for Place {
    fn improve(&self, seats: &mut Seats<'_>) {
        seats.spread();
        seats.enthrone_the_allowed();
    }
}

impl Seats<'_> {
    /// Moves copies that stand nearer to others than they must.
    fn spread(&mut self) {
        for p in 0..self.partitions.len() {
            if self.partitions[p].fixed {
                continue;
            }
            // Each move takes something off the nearness of the partition's copies, so this ends.
            while let Some((seat, better)) = self.spreading_move(p) {
                self.reseat(p, seat, better);
            }
        }
    }

    fn spreading_move(&self, p: usize) -> Option<(usize, usize)> {
        (0..self.partitions[p].members.len()).rev().find_map(|seat| {
            let present = self.harm_in(p, seat);
            let may_improve = present > 0 && self.candidates(p, seat, present - 1).next().is_some();
            let better = may_improve.then(|| self.best_beside(p, Some(seat)))??;
            (self.harm_beside(p, Some(seat), better) < present).then_some((seat, better))
        })
    }

    /// Puts first who may lead. Nothing is copied for that.
    fn enthrone_the_allowed(&mut self) {
        if self.rules.none() {
            return;
        }
        for p in 0..self.partitions.len() {
            let members = &self.partitions[p].members;
            let harm = |s: usize| self.rules.harm_of_lead(members[s]);
            let ease = |s: usize| (harm(s), self.ground.relative(self.leads[members[s]], members[s]), s);
            let Some(heir) = (1..members.len()).filter(|_| !self.partitions[p].fixed).min_by_key(|&s| ease(s)) else { continue };
            if harm(heir) < harm(0) {
                self.enthrone(p, heir);
            }
        }
    }
}
