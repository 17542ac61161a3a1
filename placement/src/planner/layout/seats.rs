//! The layout of one keyspace while it is planned: the members that shall hold each partition. The
//! schedulers change it.

use super::bounds::Bounds;
use super::measured::Measured;
use super::shares::copies_each;
use super::topology::Topology;
use crate::hash::Digest;
use crate::id::MemberId;
use crate::table::Keyspace;
use std::hash::Hasher;

/// The members that shall hold each partition of one keyspace.
#[derive(Debug, Clone)]
pub(crate) struct Seats<'a> {
    pub(super) topology: &'a Topology,
    pub(super) rules: Bounds,
    /// The number of copies of each partition.
    pub(super) copies: usize,
    /// Where the remainders of shares begin, so that they do not fall to the same members in every
    /// keyspace.
    pub(super) turn: usize,
    pub(super) partitions: Vec<Seating>,
    /// For each partition, the members that have a copy or are receiving one. A copy elsewhere is
    /// only planned, and moving it costs nothing.
    pub(super) present: Vec<Vec<usize>>,
    /// The number of copies of each member.
    pub(super) loads: Vec<u64>,
    /// How many of its first copies each member should keep. A nearly full member should keep fewer
    /// than all.
    keeps: Vec<u64>,
    /// The number of primaries of each member.
    pub(super) leads: Vec<u64>,
    /// The number of copies that each member should have, in this round.
    pub(super) targets: Vec<u64>,
    /// The measured loads.
    pub(super) measured: Measured,
}

/// The members that shall hold one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seating {
    /// The primary first.
    pub(crate) members: Vec<usize>,
    /// The number of further copies, on members that leave.
    pub(crate) going: usize,
    /// Whether it counts and stays as it is.
    pub(crate) fixed: bool,
}

impl<'a> Seats<'a> {
    /// A layout with these seatings. Partitions that are not fixed will have `copies` copies.
    pub(crate) fn new(
        topology: &'a Topology,
        keyspace: &Keyspace,
        copies: usize,
        partitions: Vec<Seating>,
    ) -> Self {
        let mut loads = vec![0; topology.len()];
        let mut leads = vec![0; topology.len()];
        for seating in &partitions {
            seating.members.iter().for_each(|&m| loads[m] += 1);
            seating
                .members
                .first()
                .into_iter()
                .for_each(|&m| leads[m] += 1);
        }
        let present = partitions
            .iter()
            .map(|seating| seating.members.clone())
            .collect();
        let rules = Bounds::new(topology, &keyspace.rules);
        let keeps = (0..topology.len())
            .map(|m| topology.keeps(m, loads[m]))
            .collect();
        Self {
            topology,
            rules,
            copies,
            turn: keyspace.id.0.into(),
            partitions,
            present,
            keeps,
            loads,
            leads,
            targets: Vec::new(),
            measured: Measured::default(),
        }
    }

    /// The same layout, with measured loads.
    pub(crate) fn with(self, measured: Measured) -> Self {
        Self { measured, ..self }
    }

    /// The members that shall hold this partition, the primary first.
    pub(crate) fn members(&self, partition: usize) -> Vec<MemberId> {
        self.partitions[partition]
            .members
            .iter()
            .map(|&m| self.topology.id(m))
            .collect()
    }

    /// The number of copies that each member should hold now.
    pub(super) fn shares(&self) -> Vec<u64> {
        // A fixed partition without members has no holder that answers, so none of its copies can
        // move.
        let counted = self
            .partitions
            .iter()
            .filter(|p| !p.fixed || !p.members.is_empty());
        let count = counted.clone().count() as u64;
        let total = counted
            .map(|p| {
                if p.fixed {
                    p.members.len() as u64
                } else {
                    self.copies as u64
                }
            })
            .sum();
        // A busy member takes no more than it has. A nearly full member counts with the copies that
        // it should keep.
        let present: Vec<u64> = self
            .loads
            .iter()
            .zip(&self.keeps)
            .map(|(held, keeps)| *held.min(keeps))
            .collect();
        let mut refused = vec![0; self.topology.len()];
        for (p, members) in self.measured.refused.iter().enumerate() {
            members
                .iter()
                .filter(|m| !self.present[p].contains(m))
                .for_each(|m| refused[*m] += 1);
        }
        copies_each(
            self.topology,
            (count, self.copies),
            total,
            (&present, &refused),
            self.turn,
        )
    }

    /// The best member for a copy of this partition beside the others, or in place of the copy in
    /// this seat. It is far from them; then not busy; then had room for a copy of that size for
    /// balance; then is furthest below its share; then comes first in a scattered order, which lets
    /// the partitions of one member fall to many others.
    pub(super) fn best_beside(&self, p: usize, seat: Option<usize>) -> Option<usize> {
        let members = &self.partitions[p].members;
        let free = (0..self.topology.len())
            .filter(|m| !members.contains(m) && (seat.is_none() || !self.is_refused(p, *m)));
        free.min_by_key(|&m| {
            (
                self.harm_beside(p, seat, m),
                self.reluctance(p, m),
                self.over(m),
                self.scatter(p, m),
            )
        })
    }

    /// How reluctant a member is to take a copy of this partition. If the copy is missing, a member
    /// that is too busy or too full for anything is worse than one that only had no room for a copy
    /// for balance, which leaves more room.
    pub(super) fn reluctance(&self, p: usize, member: usize) -> (bool, bool) {
        (
            self.topology.is_busy(member) && !self.present[p].contains(&member),
            self.is_refused(p, member),
        )
    }

    /// Whether a member would refuse a copy of this partition for balance.
    pub(super) fn is_refused(&self, p: usize, member: usize) -> bool {
        self.measured
            .refused
            .get(p)
            .is_some_and(|refusing| refusing.contains(&member))
            && !self.present[p].contains(&member)
    }

    /// Whether a member may take this seat without standing nearer to the others than its present
    /// holder.
    pub(super) fn may_reseat(&self, p: usize, seat: usize, taker: usize) -> bool {
        self.reluctance(p, taker) == (false, false)
            && !self.partitions[p].members.contains(&taker)
            && self.harm_beside(p, Some(seat), taker) <= self.harm_in(p, seat)
    }

    /// Members that might take this seat with at most this harm. All members that do are among
    /// them, and no kind that cannot.
    pub(super) fn candidates(
        &self,
        p: usize,
        seat: usize,
        most: u64,
    ) -> impl Iterator<Item = usize> + '_ {
        self.rules
            .kinds()
            .iter()
            .filter(move |kind| self.least_harm(p, seat, kind[0]) <= most)
            .flatten()
            .copied()
    }

    /// The least [`Self::harm_beside`] of all members of this one's kind.
    fn least_harm(&self, p: usize, seat: usize, of_kind: usize) -> u64 {
        let zone = |m: usize| self.topology.groups(m)[0];
        let in_zone = self
            .beside(p, Some(seat), None)
            .filter(|m| zone(*m) == zone(of_kind))
            .count();
        u64::from(self.rules.harm(self.beside(p, Some(seat), Some(of_kind)))) << 32 | in_zone as u64
    }

    pub(super) fn harm_in(&self, p: usize, seat: usize) -> u64 {
        self.harm_beside(p, Some(seat), self.partitions[p].members[seat])
    }

    /// The harm of a copy on this member beside the others, except the one in this seat: first by
    /// the rules, then by its nearness.
    pub(super) fn harm_beside(&self, p: usize, seat: Option<usize>, member: usize) -> u64 {
        let near = self.topology.nearness(member, self.beside(p, seat, None));
        u64::from(self.rules.harm(self.beside(p, seat, Some(member)))) << 32 | u64::from(near)
    }

    /// The members of a partition without the copy in this seat, and with one more.
    pub(super) fn beside(
        &self,
        p: usize,
        seat: Option<usize>,
        and: Option<usize>,
    ) -> impl Iterator<Item = usize> + Clone + '_ {
        let others = self.partitions[p]
            .members
            .iter()
            .enumerate()
            .filter(move |(s, _)| Some(*s) != seat)
            .map(|(_, m)| *m);
        others.chain(and)
    }

    /// How much more than its share a member holds.
    pub(super) fn over(&self, member: usize) -> i64 {
        self.loads[member] as i64 - self.targets[member] as i64
    }

    pub(super) fn reseat(&mut self, p: usize, seat: usize, taker: usize) {
        let giver = std::mem::replace(&mut self.partitions[p].members[seat], taker);
        self.loads[giver] -= 1;
        self.loads[taker] += 1;
        if seat == 0 {
            self.leads[giver] -= 1;
            self.leads[taker] += 1;
        }
    }

    pub(super) fn enthrone(&mut self, p: usize, seat: usize) {
        let members = &mut self.partitions[p].members;
        self.leads[members[0]] -= 1;
        self.leads[members[seat]] += 1;
        members.swap(0, seat);
    }

    pub(super) fn scatter(&self, p: usize, member: usize) -> u64 {
        let mut digest = Digest::new();
        digest.write_usize(p);
        digest.write_u64(self.topology.id(member).0);
        digest.finish()
    }
}
