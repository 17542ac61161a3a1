//! No copy is where a rule forbids it, and none stands nearer to another than necessary.

use super::Scheduling;
use crate::planner::layout::Seats;

/// After this many partitions in a row for which moving two copies at once helps no more than one,
/// the rules cannot be met, and other partitions are not tried.
const TANGLED_MAX: u32 = 64;
/// The number of kinds of members that are tried for that.
const KINDS_MAX: usize = 64;

pub(super) struct PlaceByRules;

impl Scheduling for PlaceByRules {
    fn improve(&self, seats: &mut Seats<'_>) {
        seats.spread();
        seats.enthrone_the_allowed();
    }
}

impl Seats<'_> {
    /// Moves copies that stand nearer to others than necessary.
    fn spread(&mut self) {
        let mut tangled = 0;
        for p in 0..self.partitions.len() {
            if self.partitions[p].fixed {
                continue;
            }
            // Each move takes something off the nearness of the partition's copies, so this ends.
            loop {
                while let Some((seat, better)) = self.spreading_move(p) {
                    self.reseat(p, seat, better);
                }
                if tangled >= TANGLED_MAX || self.rules.harm(self.beside(p, None, None)) == 0 {
                    break;
                }
                if !self.untangle(p) {
                    tangled += 1;
                    break;
                }
                tangled = 0;
            }
        }
    }

    /// If no single move helps, moves two copies at once so that fewer rules are broken. Returns
    /// false if no two moves do.
    fn untangle(&mut self, p: usize) -> bool {
        let before = self.rules.harm(self.beside(p, None, None));
        for seat in 0..self.partitions[p].members.len() {
            let giver = self.partitions[p].members[seat];
            let kinds = self.rules.kinds().iter().take(KINDS_MAX);
            let open =
                |m: &usize| !self.partitions[p].members.contains(m) && !self.is_refused(p, *m);
            let free = |kind: &Vec<usize>| {
                kind.iter()
                    .copied()
                    .filter(open)
                    .min_by_key(|m| (self.reluctance(p, *m), self.over(*m)))
            };
            let takers: Vec<usize> = kinds.filter_map(free).collect();
            for taker in takers {
                self.reseat(p, seat, taker);
                if let Some((other, better)) =
                    self.spreading_move(p).filter(|(other, _)| *other != seat)
                {
                    let second = self.partitions[p].members[other];
                    self.reseat(p, other, better);
                    if self.rules.harm(self.beside(p, None, None)) < before {
                        return true;
                    }
                    self.reseat(p, other, second);
                }
                self.reseat(p, seat, giver);
            }
        }
        false
    }

    fn spreading_move(&self, p: usize) -> Option<(usize, usize)> {
        (0..self.partitions[p].members.len())
            .rev()
            .find_map(|seat| {
                let present = self.harm_in(p, seat);
                let may_improve =
                    present > 0 && self.candidates(p, seat, present - 1).next().is_some();
                let better = may_improve.then(|| self.best_beside(p, Some(seat)))??;
                (self.harm_beside(p, Some(seat), better) < present).then_some((seat, better))
            })
    }

    /// Puts a member first that may lead. Nothing is copied for that.
    fn enthrone_the_allowed(&mut self) {
        if self.rules.none() {
            return;
        }
        for p in 0..self.partitions.len() {
            let members = &self.partitions[p].members;
            let harm = |s: usize| self.rules.harm_of_lead(members[s]);
            let ease = |s: usize| {
                (
                    harm(s),
                    self.topology.relative(self.leads[members[s]], members[s]),
                    s,
                )
            };
            let Some(heir) = (1..members.len())
                .filter(|_| !self.partitions[p].fixed)
                .min_by_key(|&s| ease(s))
            else {
                continue;
            };
            if harm(heir) < harm(0) {
                self.enthrone(p, heir);
            }
        }
    }
}
