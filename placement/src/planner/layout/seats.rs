//! One keyspace's layout on the drawing board: who shall hold which partition, and the way to a better one.
//!
//! ```text
//!  fill      every partition has its copies                     repair
//!  spread    no copy is where a rule forbids it, and none stands nearer to another than it must
//!  level     every member holds its share of copies             the fewest moves
//!  lead      every member leads its share
//! ```
//!
//! Each step leaves alone what the steps before it have reached, so that the order of importance is also a measure that
//! only ever falls: planning comes to an end, and a planned layout is planned no further. Where the keyspace has rules, the last two
//! steps are those of `even`.

mod even;

use super::bounds::Bounds;
use super::ground::Ground;
use super::shares::{copies_each, leads_each};
use crate::hash::Digest;
use crate::id::MemberId;
use crate::table::Keyspace;
use std::collections::VecDeque;
use std::hash::Hasher;

/// Looks at single copies while chains of moves are searched, in one keyspace. Chains are needed only where no overloaded
/// member has anything that an underloaded one may take, so this is rarely felt; it keeps planning cheap when it is.
const CHAIN_WORK_MAX: usize = 4_000_000;
/// Rounds over the steps. Two are the rule: what one round has reached the next finds in order.
const ROUNDS_MAX: usize = 8;

/// Who shall hold each partition of one keyspace.
#[derive(Debug, Clone)]
pub(crate) struct Seats<'a> {
    ground: &'a Ground,
    rules: Bounds,
    /// Copies that each partition shall have.
    copies: usize,
    /// Where the remainders of shares begin, so that they do not fall to the same members in every keyspace.
    turn: usize,
    partitions: Vec<Seating>,
    /// Where copies are or are coming already: to plan another place for any other copy costs nothing.
    present: Vec<Vec<usize>>,
    /// Copies of each member.
    loads: Vec<u64>,
    /// Primaries of each member.
    leads: Vec<u64>,
}

/// Who shall hold one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seating {
    /// The primary first.
    pub(crate) members: Vec<usize>,
    /// It counts and stays as it is.
    pub(crate) fixed: bool,
}

impl<'a> Seats<'a> {
    /// These seatings as they are. What is not fixed will have `copies` copies.
    pub(crate) fn new(ground: &'a Ground, keyspace: &Keyspace, copies: usize, partitions: Vec<Seating>) -> Self {
        let mut loads = vec![0; ground.len()];
        let mut leads = vec![0; ground.len()];
        for seating in &partitions {
            seating.members.iter().for_each(|&m| loads[m] += 1);
            seating.members.first().into_iter().for_each(|&m| leads[m] += 1);
        }
        let present = partitions.iter().map(|seating| seating.members.clone()).collect();
        let rules = Bounds::new(ground, &keyspace.rules);
        Self { ground, rules, copies, turn: keyspace.id.0.into(), partitions, present, loads, leads }
    }

    /// Takes the steps until nothing is to be done.
    pub(crate) fn improve(mut self) -> Self {
        for _ in 0..ROUNDS_MAX {
            let before = self.partitions.clone();
            let targets = self.targets();
            self.trim(&targets);
            self.fill(&targets);
            self.spread(&targets);
            if self.rules.none() {
                // Repair and spreading may have shifted where the remainders of the shares are.
                let targets = self.targets();
                self.level(&targets);
                self.lead();
            } else {
                self.even();
                self.even_leads();
            }
            if self.partitions == before {
                break;
            }
        }
        self
    }

    /// Who shall hold this partition, the primary first.
    pub(crate) fn members(&self, partition: usize) -> Vec<MemberId> {
        self.partitions[partition].members.iter().map(|&m| self.ground.id(m)).collect()
    }

    fn targets(&self) -> Vec<u64> {
        // What is fixed and empty has no holder that answers: nothing of it can be moved.
        let counted = self.partitions.iter().filter(|p| !p.fixed || !p.members.is_empty());
        let count = counted.clone().count() as u64;
        let total = counted.map(|p| if p.fixed { p.members.len() } else { self.copies } as u64).sum();
        copies_each(self.ground, count, self.copies, total, &self.loads, self.turn)
    }

    /// Drops copies that are too many: never the primary's, and those that stand near others first.
    fn trim(&mut self, targets: &[u64]) {
        for p in 0..self.partitions.len() {
            while !self.partitions[p].fixed && self.partitions[p].members.len() > self.copies {
                let seats = 1..self.partitions[p].members.len();
                let over = |s: usize| self.over(self.partitions[p].members[s], targets);
                let rest = |s: usize| self.beside(p, Some(s), None);
                let ease = |s: usize| std::cmp::Reverse(self.rules.harm(rest(s)));
                let Some(worst) = seats.max_by_key(|&s| (ease(s), self.harm_in(p, s), over(s), s)) else { break };
                let gone = self.partitions[p].members.remove(worst);
                self.loads[gone] -= 1;
            }
        }
    }

    fn fill(&mut self, targets: &[u64]) {
        for p in 0..self.partitions.len() {
            while !self.partitions[p].fixed && self.partitions[p].members.len() < self.copies {
                let Some(best) = self.best_beside(p, None, targets) else { break };
                if self.partitions[p].members.is_empty() {
                    self.leads[best] += 1;
                }
                self.partitions[p].members.push(best);
                self.loads[best] += 1;
            }
        }
    }

    /// Moves copies that stand nearer to others than they must.
    fn spread(&mut self, targets: &[u64]) {
        for p in 0..self.partitions.len() {
            if self.partitions[p].fixed {
                continue;
            }
            // Each move takes something off the nearness of the partition's copies, so this ends.
            while let Some((seat, better)) = self.spreading_move(p, targets) {
                self.reseat(p, seat, better);
            }
        }
    }

    fn spreading_move(&self, p: usize, targets: &[u64]) -> Option<(usize, usize)> {
        (0..self.partitions[p].members.len()).rev().find_map(|seat| {
            let present = self.harm_in(p, seat);
            let better = (present > 0).then(|| self.best_beside(p, Some(seat), targets))??;
            (self.harm_beside(p, Some(seat), better) < present).then_some((seat, better))
        })
    }

    /// Moves copies from members that hold more than their share to members that hold less, first directly: and
    /// first those copies that are only planned.
    fn level(&mut self, targets: &[u64]) {
        let mut work = CHAIN_WORK_MAX;
        self.level_some(targets, &mut work, |seats, p, seat| !seats.present[p].contains(&seats.partitions[p].members[seat]));
        self.level_some(targets, &mut work, |_, _, _| true);
    }

    fn level_some(&mut self, targets: &[u64], work: &mut usize, which: impl Fn(&Self, usize, usize) -> bool) {
        self.level_directly(targets, &which);
        while let Some(chain) = self.chain_of_moves(targets, work, &which) {
            for (p, seat, taker) in chain {
                self.reseat(p, seat, taker);
            }
        }
    }

    fn level_directly(&mut self, targets: &[u64], which: &impl Fn(&Self, usize, usize) -> bool) {
        for p in 0..self.partitions.len() {
            for seat in (0..self.partitions[p].members.len()).rev() {
                let over = self.over(self.partitions[p].members[seat], targets);
                if self.partitions[p].fixed || over <= 0 || !which(self, p, seat) {
                    continue;
                }
                let poor = (0..self.ground.len()).filter(|&m| self.over(m, targets) < 0 && self.may_reseat(p, seat, m));
                if let Some(taker) = poor.min_by_key(|&m| (self.over(m, targets), self.scatter(p, m))) {
                    self.reseat(p, seat, taker);
                }
            }
        }
    }

    /// A chain of moves, each of another partition, from a member that holds too much over members that stay as loaded as
    /// they are to one that holds too little. The shortest, by breadth first search.
    fn chain_of_moves(
        &self,
        targets: &[u64],
        work: &mut usize,
        which: &impl Fn(&Self, usize, usize) -> bool,
    ) -> Option<Vec<(usize, usize, usize)>> {
        let rich: Vec<usize> = (0..self.ground.len()).filter(|&m| self.over(m, targets) > 0).collect();
        if rich.is_empty() || (0..self.ground.len()).all(|m| self.over(m, targets) >= 0) {
            return None;
        }
        let mut held: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.ground.len()];
        for (p, seating) in self.partitions.iter().enumerate().filter(|(_, seating)| !seating.fixed) {
            let seats = seating.members.iter().enumerate().filter(|(seat, _)| which(self, p, *seat));
            seats.for_each(|(seat, &m)| held[m].push((p, seat)));
        }
        let mut search = Search::from(rich, self.ground.len());
        while let Some(giver) = search.next() {
            for &(p, seat) in &held[giver] {
                let mut next = 0;
                while let Some(&taker) = search.unseen.get(next) {
                    *work = work.checked_sub(1)?;
                    if !self.may_reseat(p, seat, taker) || search.on_the_way(giver, p) {
                        next += 1;
                        continue;
                    }
                    // It is unseen no more: what followed it has moved up to its place.
                    search.reach(taker, giver, (p, seat));
                    if self.over(taker, targets) < 0 {
                        return Some(search.way_to(taker));
                    }
                }
            }
        }
        None
    }

    /// Chooses primaries among the copies so that each member leads its share. Nothing is copied for that.
    fn lead(&mut self) {
        let targets = leads_each(self.ground, self.leads.iter().sum(), &self.loads, &self.leads, self.turn);
        let over = |leads: &[u64], m: usize| leads[m] as i64 - targets[m] as i64;
        for p in 0..self.partitions.len() {
            let Some(&first) = self.partitions[p].members.first() else { continue };
            if self.partitions[p].fixed || over(&self.leads, first) <= 0 {
                continue;
            }
            let seats = 1..self.partitions[p].members.len();
            let poorest = seats.min_by_key(|&s| over(&self.leads, self.partitions[p].members[s]));
            if let Some(seat) = poorest.filter(|&s| over(&self.leads, self.partitions[p].members[s]) < 0) {
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

    /// As [`Self::chain_of_moves`], for the lead.
    fn chain_of_leads(&self, targets: &[u64], work: &mut usize) -> Option<Vec<(usize, usize, usize)>> {
        let over = |m: usize| self.leads[m] as i64 - targets[m] as i64;
        let rich: Vec<usize> = (0..self.ground.len()).filter(|&m| over(m) > 0).collect();
        if rich.is_empty() || (0..self.ground.len()).all(|m| over(m) >= 0) {
            return None;
        }
        let mut led: Vec<Vec<usize>> = vec![Vec::new(); self.ground.len()];
        for (p, seating) in self.partitions.iter().enumerate().filter(|(_, seating)| !seating.fixed) {
            seating.members.first().into_iter().for_each(|&m| led[m].push(p));
        }
        let mut search = Search::from(rich, self.ground.len());
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

    /// Who had best hold a copy of this partition beside the others (instead of the one in this seat): far from them, then
    /// furthest below its share, then by a scattering that lets the partitions of one member fall to many others.
    fn best_beside(&self, p: usize, seat: Option<usize>, targets: &[u64]) -> Option<usize> {
        let members = &self.partitions[p].members;
        let free = (0..self.ground.len()).filter(|m| !members.contains(m));
        free.min_by_key(|&m| (self.harm_beside(p, seat, m), self.over(m, targets), self.scatter(p, m)))
    }

    /// Whether a member may take this seat without standing nearer to the others than who has it.
    fn may_reseat(&self, p: usize, seat: usize, taker: usize) -> bool {
        !self.partitions[p].members.contains(&taker) && self.harm_beside(p, Some(seat), taker) <= self.harm_in(p, seat)
    }

    fn harm_in(&self, p: usize, seat: usize) -> u64 {
        self.harm_beside(p, Some(seat), self.partitions[p].members[seat])
    }

    /// How badly a copy on this member stands with the others (but the one in this seat): what it makes of the rules, then how near
    /// it is to them.
    fn harm_beside(&self, p: usize, seat: Option<usize>, member: usize) -> u64 {
        let near = self.ground.nearness(member, self.beside(p, seat, None));
        u64::from(self.rules.harm(self.beside(p, seat, Some(member)))) << 32 | u64::from(near)
    }

    /// Who holds a partition without the copy in this seat, and with one more.
    fn beside(&self, p: usize, seat: Option<usize>, and: Option<usize>) -> impl Iterator<Item = usize> + Clone + '_ {
        let others = self.partitions[p].members.iter().enumerate().filter(move |(s, _)| Some(*s) != seat).map(|(_, m)| *m);
        others.chain(and)
    }

    /// How much more than its share a member holds.
    fn over(&self, member: usize, targets: &[u64]) -> i64 {
        self.loads[member] as i64 - targets[member] as i64
    }

    fn reseat(&mut self, p: usize, seat: usize, taker: usize) {
        let giver = std::mem::replace(&mut self.partitions[p].members[seat], taker);
        self.loads[giver] -= 1;
        self.loads[taker] += 1;
        if seat == 0 {
            self.leads[giver] -= 1;
            self.leads[taker] += 1;
        }
    }

    fn enthrone(&mut self, p: usize, seat: usize) {
        let members = &mut self.partitions[p].members;
        self.leads[members[0]] -= 1;
        self.leads[members[seat]] += 1;
        members.swap(0, seat);
    }

    fn scatter(&self, p: usize, member: usize) -> u64 {
        let mut digest = Digest::new();
        digest.write_usize(p);
        digest.write_u64(self.ground.id(member).0);
        digest.finish()
    }
}

/// Breadth first search over members, from several at once.
struct Search {
    queue: VecDeque<usize>,
    unseen: Vec<usize>,
    /// How a member was reached: from whom, with which seat of which partition.
    from: Vec<Option<(usize, (usize, usize))>>,
}

impl Search {
    fn from(start: Vec<usize>, members: usize) -> Self {
        let unseen = (0..members).filter(|m| !start.contains(m)).collect();
        Self { queue: start.into(), unseen, from: vec![None; members] }
    }

    fn next(&mut self) -> Option<usize> {
        if self.unseen.is_empty() { None } else { self.queue.pop_front() }
    }

    fn seen(&self, member: usize) -> bool {
        !self.unseen.contains(&member)
    }

    fn reach(&mut self, member: usize, from: usize, by: (usize, usize)) {
        self.unseen.retain(|&m| m != member);
        self.from[member] = Some((from, by));
        self.queue.push_back(member);
    }

    /// Whether the way to this member moves this partition already: a second move of it would be judged by seats that the
    /// first has changed.
    fn on_the_way(&self, member: usize, partition: usize) -> bool {
        let mut at = member;
        while let Some((before, (p, _))) = self.from[at] {
            if p == partition {
                return true;
            }
            at = before;
        }
        false
    }

    /// The moves that lead to this member: partition, seat, taker.
    fn way_to(&self, member: usize) -> Vec<(usize, usize, usize)> {
        let mut way = Vec::new();
        let mut at = member;
        while let Some((before, (p, seat))) = self.from[at] {
            way.push((p, seat, at));
            at = before;
        }
        way
    }
}
