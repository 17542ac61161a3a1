//! One keyspace's layout on the drawing board: who shall hold which partition. The schedulers lay
//! it out.

use super::bounds::Bounds;
use super::ground::Ground;
use super::measured::Measured;
use super::shares::copies_each;
use crate::hash::Digest;
use crate::id::MemberId;
use crate::table::Keyspace;
use std::hash::Hasher;

/// Who shall hold each partition of one keyspace.
#[derive(Debug, Clone)]
pub(crate) struct Seats<'a> {
    pub(super) ground: &'a Ground,
    pub(super) rules: Bounds,
    /// Copies that each partition shall have.
    pub(super) copies: usize,
    /// Where the remainders of shares begin, so that they do not fall to the same members in every
    /// keyspace.
    pub(super) turn: usize,
    pub(super) partitions: Vec<Seating>,
    /// Where copies are or are coming already: to plan another place for any other copy costs
    /// nothing.
    pub(super) present: Vec<Vec<usize>>,
    /// Copies of each member.
    pub(super) loads: Vec<u64>,
    /// How many copies each member had better keep of those that it had at first: all but where its
    /// memory is nearly full.
    keeps: Vec<u64>,
    /// Primaries of each member.
    pub(super) leads: Vec<u64>,
    /// Copies that each member should have, in this round.
    pub(super) targets: Vec<u64>,
    /// What partitions have to carry.
    pub(super) measured: Measured,
}

/// Who shall hold one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seating {
    /// The primary first.
    pub(crate) members: Vec<usize>,
    /// Copies beside these, on members that go.
    pub(crate) going: usize,
    /// It counts and stays as it is.
    pub(crate) fixed: bool,
}

impl<'a> Seats<'a> {
    /// These seatings as they are. What is not fixed will have `copies` copies.
    pub(crate) fn new(
        ground: &'a Ground,
        keyspace: &Keyspace,
        copies: usize,
        partitions: Vec<Seating>,
    ) -> Self {
        let mut loads = vec![0; ground.len()];
        let mut leads = vec![0; ground.len()];
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
        let rules = Bounds::new(ground, &keyspace.rules);
        let keeps = (0..ground.len())
            .map(|m| ground.keeps(m, loads[m]))
            .collect();
        Self {
            ground,
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

    /// The same, with what was measured.
    pub(crate) fn with(self, measured: Measured) -> Self {
        Self { measured, ..self }
    }

    /// Who shall hold this partition, the primary first.
    pub(crate) fn members(&self, partition: usize) -> Vec<MemberId> {
        self.partitions[partition]
            .members
            .iter()
            .map(|&m| self.ground.id(m))
            .collect()
    }

    /// How many copies each member should hold, as things stand.
    pub(super) fn shares(&self) -> Vec<u64> {
        // What is fixed and empty has no holder that answers: nothing of it can be moved.
        let counted = self
            .partitions
            .iter()
            .filter(|p| !p.fixed || !p.members.is_empty());
        let count = counted.clone().count() as u64;
        let total = counted.map(|p| if p.fixed { p.members.len() } else { self.copies } as u64).sum();
        // Who is busy takes no more than it has: of who is nearly full, no more than it had better
        // keep is said.
        let present: Vec<u64> = self
            .loads
            .iter()
            .zip(&self.keeps)
            .map(|(held, keeps)| *held.min(keeps))
            .collect();
        let mut refused = vec![0; self.ground.len()];
        for (p, members) in self.measured.refused.iter().enumerate() {
            members
                .iter()
                .filter(|m| !self.present[p].contains(m))
                .for_each(|m| refused[*m] += 1);
        }
        copies_each(
            self.ground,
            (count, self.copies),
            total,
            (&present, &refused),
            self.turn,
        )
    }

    /// Who had best hold a copy of this partition beside the others (instead of the one in this
    /// seat, if it has room for that): far from them, then not busy, then not one that had no room
    /// for as much where it was only for balance, then furthest below its share, then by a
    /// scattering that lets the partitions of one member fall to many others.
    pub(super) fn best_beside(&self, p: usize, seat: Option<usize>) -> Option<usize> {
        let members = &self.partitions[p].members;
        let free = (0..self.ground.len())
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

    /// How little a member should take a copy of this partition. Where one is lacking, who is too
    /// busy or too full for anything is worse than who had no room for balance alone, which leaves
    /// more of it.
    pub(super) fn reluctance(&self, p: usize, member: usize) -> (bool, bool) {
        (
            self.ground.is_busy(member) && !self.present[p].contains(&member),
            self.is_refused(p, member),
        )
    }

    /// Whether a member would refuse a copy of this partition, were it for balance alone.
    pub(super) fn is_refused(&self, p: usize, member: usize) -> bool {
        self.measured
            .refused
            .get(p)
            .is_some_and(|refusing| refusing.contains(&member))
            && !self.present[p].contains(&member)
    }

    /// Whether a member may take this seat without standing nearer to the others than who has it.
    pub(super) fn may_reseat(&self, p: usize, seat: usize, taker: usize) -> bool {
        self.reluctance(p, taker) == (false, false)
            && !self.partitions[p].members.contains(&taker)
            && self.harm_beside(p, Some(seat), taker) <= self.harm_in(p, seat)
    }

    /// Members that might stand in this seat at most this badly: all that do are among them, and
    /// none of a kind that cannot.
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

    /// What [`Self::harm_beside`] is at least for every member of this one's kind.
    fn least_harm(&self, p: usize, seat: usize, of_kind: usize) -> u64 {
        let zone = |m: usize| self.ground.groups(m)[0];
        let in_zone = self
            .beside(p, Some(seat), None)
            .filter(|m| zone(*m) == zone(of_kind))
            .count();
        u64::from(self.rules.harm(self.beside(p, Some(seat), Some(of_kind)))) << 32 | in_zone as u64
    }

    pub(super) fn harm_in(&self, p: usize, seat: usize) -> u64 {
        self.harm_beside(p, Some(seat), self.partitions[p].members[seat])
    }

    /// How badly a copy on this member stands with the others (but the one in this seat): what it
    /// makes of the rules, then how near it is to them.
    pub(super) fn harm_beside(&self, p: usize, seat: Option<usize>, member: usize) -> u64 {
        let near = self.ground.nearness(member, self.beside(p, seat, None));
        u64::from(self.rules.harm(self.beside(p, seat, Some(member)))) << 32 | u64::from(near)
    }

    /// Who holds a partition without the copy in this seat, and with one more.
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
        digest.write_u64(self.ground.id(member).0);
        digest.finish()
    }
}
