//! Every member leads its share of partitions, by weight. Nothing is copied for that.

use super::{CHAIN_WORK_MAX, Scheduling};
use crate::planner::layout::{Seats, leads_each, search::Search};

pub(super) struct Primaries;

impl Scheduling for Primaries {
    fn improve(&self, seats: &mut Seats<'_>) {
        if seats.rules.none() {
            seats.lead();
        } else {
            seats.even_leads();
        }
    }
}

impl Seats<'_> {
    /// Chooses primaries among the copies so that each member leads its share. Nothing is copied
    /// for that.
    fn lead(&mut self) {
        let targets = leads_each(
            self.topology,
            self.leads.iter().sum(),
            &self.loads,
            &self.leads,
            self.turn,
        );
        let over = |leads: &[u64], m: usize| leads[m] as i64 - targets[m] as i64;
        for p in 0..self.partitions.len() {
            let Some(&first) = self.partitions[p].members.first() else {
                continue;
            };
            if self.partitions[p].fixed || over(&self.leads, first) <= 0 {
                continue;
            }
            let seats = 1..self.partitions[p].members.len();
            let poorest = seats.min_by_key(|&s| over(&self.leads, self.partitions[p].members[s]));
            if let Some(seat) =
                poorest.filter(|&s| over(&self.leads, self.partitions[p].members[s]) < 0)
            {
                self.enthrone(p, seat);
            }
        }
        let mut work = CHAIN_WORK_MAX;
        while let Some(chain) = self.chain_of_leads(&targets, &mut work) {
            for (p, _, heir) in chain {
                let seat = self.partitions[p].members.iter().position(|&m| m == heir);
                seat.into_iter().for_each(|seat| self.enthrone(p, seat));
            }
        }
    }

    /// As [`Self::chain_of_moves`], for leads.
    fn chain_of_leads(
        &self,
        targets: &[u64],
        work: &mut usize,
    ) -> Option<Vec<(usize, usize, usize)>> {
        let over = |m: usize| self.leads[m] as i64 - targets[m] as i64;
        let rich: Vec<usize> = (0..self.topology.len()).filter(|&m| over(m) > 0).collect();
        if rich.is_empty() || (0..self.topology.len()).all(|m| over(m) >= 0) {
            return None;
        }
        let mut led: Vec<Vec<usize>> = vec![Vec::new(); self.topology.len()];
        for (p, seating) in self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, seating)| !seating.fixed)
        {
            seating
                .members
                .first()
                .into_iter()
                .for_each(|&m| led[m].push(p));
        }
        let mut search = Search::from(rich, self.topology.len());
        while let Some(giver) = search.next() {
            for &p in &led[giver] {
                for &taker in &self.partitions[p].members[1..] {
                    *work = work.checked_sub(1)?;
                    if search.seen(taker) {
                        continue;
                    }
                    search.reach(taker, giver, (p, 0));
                    if over(taker) < 0 {
                        return Some(search.way_to(taker));
                    }
                }
            }
        }
        None
    }

    /// Evens out how many partitions members lead in a keyspace with rules, where members have no
    /// fixed target (`even.rs` says why; [`Self::lead`] is for keyspaces without rules). No lead
    /// moves to a member that would break more rules as primary than the present one does.
    fn even_leads(&mut self) {
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for p in 0..self.partitions.len() {
                let members = &self.partitions[p].members;
                let ease = |s: usize| {
                    (
                        self.rules.harm_of_lead(members[s]),
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
                let harm = |s: usize| self.rules.harm_of_lead(members[s]);
                if harm(heir) <= harm(0) && self.evens(&self.leads, members[0], members[heir]) {
                    self.enthrone(p, heir);
                    changed = true;
                }
            }
        }
        let mut work = CHAIN_WORK_MAX;
        while let Some(chain) = self.chain(
            &self.leads,
            |seats, p| 0..seats.partitions[p].members.len().min(1),
            |seats, p, _, search| {
                let members = &seats.partitions[p].members;
                work = work.checked_sub(members.len())?;
                let allowed =
                    |m: usize| seats.rules.harm_of_lead(m) <= seats.rules.harm_of_lead(members[0]);
                Some(
                    members[1..]
                        .iter()
                        .copied()
                        .filter(|m| !search.seen(*m) && allowed(*m))
                        .collect(),
                )
            },
        ) {
            for (p, _, heir) in chain {
                let seat = self.partitions[p].members.iter().position(|&m| m == heir);
                seat.into_iter().for_each(|seat| self.enthrone(p, seat));
            }
        }
    }
}
