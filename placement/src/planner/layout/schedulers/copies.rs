//! Every member holds its share of copies, by weight, with the fewest moves. If the sizes of
//! partitions are known, also its share of bytes.

use super::{CHAIN_WORK_MAX, Scheduling};
use crate::planner::layout::{Seats, pairs::MemberPairs, search::Search};

/// The number of steps in which it is evened out how often two members share partitions.
const STEPS: u32 = 4;

pub(super) struct Copies;

impl Scheduling for Copies {
    fn improve(&self, seats: &mut Seats<'_>) {
        if seats.rules.none() {
            // Repair and spreading may have changed where the remainders of the shares are.
            seats.targets = seats.shares();
            seats.level();
        } else {
            seats.even();
        }
        seats.even_bytes();
    }
}

impl Seats<'_> {
    /// Moves copies from members that hold more than their share to members that hold less. Copies
    /// that are only planned move first.
    fn level(&mut self) {
        let mut work = CHAIN_WORK_MAX;
        self.level_some(&mut work, |seats, p, seat| {
            !seats.present[p].contains(&seats.partitions[p].members[seat])
        });
        self.level_some(&mut work, |_, _, _| true);
    }

    fn level_some(&mut self, work: &mut usize, which: impl Fn(&Self, usize, usize) -> bool) {
        self.level_directly(&which);
        while let Some(chain) = self.chain_of_moves(work, &which) {
            for (p, seat, taker) in chain {
                self.reseat(p, seat, taker);
            }
        }
    }

    fn level_directly(&mut self, which: &impl Fn(&Self, usize, usize) -> bool) {
        if (0..self.topology.len()).all(|m| self.over(m) <= 0)
            || (0..self.topology.len()).all(|m| self.over(m) >= 0)
        {
            return;
        }
        let mut pairs = MemberPairs::held(self);
        // Copies move first whose holders share more partitions than most pairs do, to members that
        // share fewer. Then every member that dies leaves something to many others.
        let (often, most) = (pairs.mean(), pairs.most());
        // In steps, because otherwise the first members would give everything.
        let steps = (0..STEPS).rev().map(|step| {
            (
                Some(often + most.saturating_sub(often) / STEPS * step),
                true,
            )
        });
        for (gives, takes) in steps.chain([(Some(often), false), (None, false)]) {
            for p in 0..self.partitions.len() {
                for seat in (0..self.partitions[p].members.len()).rev() {
                    let giver = self.partitions[p].members[seat];
                    if self.partitions[p].fixed || self.over(giver) <= 0 || !which(self, p, seat) {
                        continue;
                    }
                    let others = || self.beside(p, Some(seat), None);
                    if gives
                        .is_some_and(|often| !others().any(|other| pairs.of(giver, other) > often))
                    {
                        continue;
                    }
                    let met =
                        |m: usize| others().map(|other| pairs.of(m, other)).max().unwrap_or(0);
                    let poor = (0..self.topology.len())
                        .filter(|&m| self.over(m) < 0 && self.may_reseat(p, seat, m));
                    let poor = poor.filter(|&m| !takes || met(m) < often);
                    if let Some(taker) =
                        poor.min_by_key(|&m| (self.over(m), met(m), self.scatter(p, m)))
                    {
                        pairs.reseat(others(), giver, taker);
                        self.reseat(p, seat, taker);
                    }
                }
            }
        }
    }

    /// A chain of moves, each of another partition, from a member that holds too much, over members
    /// whose loads do not change, to one that holds too little. The shortest chain, by
    /// breadth-first search.
    fn chain_of_moves(
        &self,
        work: &mut usize,
        which: &impl Fn(&Self, usize, usize) -> bool,
    ) -> Option<Vec<(usize, usize, usize)>> {
        let rich: Vec<usize> = (0..self.topology.len())
            .filter(|&m| self.over(m) > 0)
            .collect();
        if rich.is_empty() || (0..self.topology.len()).all(|m| self.over(m) >= 0) {
            return None;
        }
        let mut held: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.topology.len()];
        for (p, seating) in self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, seating)| !seating.fixed)
        {
            let seats = seating
                .members
                .iter()
                .enumerate()
                .filter(|(seat, _)| which(self, p, *seat));
            seats.for_each(|(seat, &m)| held[m].push((p, seat)));
        }
        let mut search = Search::from(rich, self.topology.len());
        while let Some(giver) = search.next() {
            for &(p, seat) in &held[giver] {
                let mut next = 0;
                while let Some(&taker) = search.unseen.get(next) {
                    *work = work.checked_sub(1)?;
                    if !self.may_reseat(p, seat, taker) || search.on_the_way(giver, p) {
                        next += 1;
                        continue;
                    }
                    // It is not in the list of unseen members any more: the next one has taken its
                    // place.
                    search.reach(taker, giver, (p, seat));
                    if self.over(taker) < 0 {
                        return Some(search.way_to(taker));
                    }
                }
            }
        }
        None
    }

    /// Evens out how many copies members hold in a keyspace with rules, where members have no
    /// fixed target (`even.rs` says why; [`Self::level`] is for keyspaces without rules). Copies
    /// that are only planned move first, because that costs nothing.
    fn even(&mut self) {
        let mut work = CHAIN_WORK_MAX;
        self.even_some(&mut work, |seats, p, seat| {
            !seats.present[p].contains(&seats.partitions[p].members[seat])
        });
        self.even_some(&mut work, |_, _, _| true);
    }

    fn even_some(&mut self, work: &mut usize, which: impl Fn(&Self, usize, usize) -> bool) {
        // Most moves need no chains.
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for p in 0..self.partitions.len() {
                for seat in (0..self.partitions[p].members.len()).rev() {
                    let giver = self.partitions[p].members[seat];
                    if self.partitions[p].fixed || !which(self, p, seat) {
                        continue;
                    }
                    let takers = self.candidates(p, seat, self.harm_in(p, seat));
                    let takers = takers.filter(|&m| {
                        self.evens(&self.loads, giver, m) && self.may_reseat(p, seat, m)
                    });
                    if let Some(taker) = takers.min_by_key(|&m| {
                        (self.topology.relative(self.loads[m], m), self.scatter(p, m))
                    }) {
                        self.reseat(p, seat, taker);
                        moved = true;
                    }
                }
            }
        }
        while let Some(chain) = self.chain(
            &self.loads,
            |seats, p| 0..seats.partitions[p].members.len(),
            |seats, p, seat, search| {
                if !which(seats, p, seat) {
                    return Some(Vec::new());
                }
                let unseen: Vec<usize> = seats
                    .candidates(p, seat, seats.harm_in(p, seat))
                    .filter(|m| !search.seen(*m))
                    .collect();
                *work = work.checked_sub(1 + unseen.len())?;
                Some(
                    unseen
                        .into_iter()
                        .filter(|m| seats.may_reseat(p, seat, *m))
                        .collect(),
                )
            },
        ) {
            for (p, seat, taker) in chain {
                self.reseat(p, seat, taker);
            }
        }
    }
}
