//! The lease (rule 8): answered pings, counted by when they were sent.

use crate::time::Time;
use doyen_placement::quorum::majority;
use doyen_placement::{MemberId, Term, Version};
use std::collections::{BTreeMap, VecDeque};

/// Answers of one voter that are kept until this node has accepted what it had accepted.
const NEWER_MAX: usize = 16;

/// How (term, version) of accepted tables are compared.
pub(super) type Order = (Term, Version);

#[derive(Debug, Default)]
pub(super) struct Lease {
    /// When the last counted ping to a voter was sent.
    counted: BTreeMap<MemberId, Time>,
    /// Answers of voters that were ahead: what they had accepted, and when the ping was sent.
    newer: BTreeMap<MemberId, VecDeque<(Order, Time)>>,
    /// How far the lease was said to reach.
    pub(super) until: Time,
}

impl Lease {
    /// A voter that has accepted `theirs` answered the ping sent at `sent`; this node has accepted `mine`.
    pub(super) fn answer(&mut self, voter: MemberId, theirs: Order, sent: Time, mine: Order) {
        if theirs <= mine {
            let at = self.counted.entry(voter).or_default();
            *at = (*at).max(sent);
        } else {
            let newer = self.newer.entry(voter).or_default();
            if newer.len() >= NEWER_MAX {
                // The oldest is worth least.
                newer.pop_front();
            }
            newer.push_back((theirs, sent));
        }
    }

    /// This node has accepted another table: answers of voters that had it already count, from when they were sent.
    pub(super) fn accepted(&mut self, mine: Order) {
        for (voter, newer) in &mut self.newer {
            for (_, sent) in newer.iter().filter(|(theirs, _)| *theirs <= mine) {
                let at = self.counted.entry(*voter).or_default();
                *at = (*at).max(*sent);
            }
            newer.retain(|(theirs, _)| *theirs > mine);
        }
        self.newer.retain(|_, newer| !newer.is_empty());
    }

    /// The latest time such that a majority of these voters answered pings sent then or later. `own`: this node, which
    /// answers itself at once, and the present.
    pub(super) fn reach(&self, voters: &[MemberId], own: Option<(MemberId, Time)>) -> Option<Time> {
        let at = |v: MemberId| match own {
            Some((me, now)) if me == v => Some(now),
            _ => self.counted.get(&v).copied(),
        };
        let mut times: Vec<Time> = voters.iter().filter_map(|v| at(*v)).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.into_iter().find(|t| majority(voters, |v| at(v).is_some_and(|a| a >= *t)))
    }

    /// Forgets whoever does not vote.
    pub(super) fn retain(&mut self, votes: impl Fn(MemberId) -> bool) {
        self.counted.retain(|v, _| votes(*v));
        self.newer.retain(|v, _| votes(*v));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);
    const C: MemberId = MemberId(3);

    fn order(version: u64) -> Order {
        (Term(1), Version(version))
    }

    #[test]
    fn the_lease_reaches_from_the_answer_that_completes_a_majority() {
        let mut lease = Lease::default();
        assert_eq!(lease.reach(&[A, B, C], Some((A, Time(100)))), None);
        lease.answer(B, order(1), Time(70), order(1));
        assert_eq!(lease.reach(&[A, B, C], Some((A, Time(100)))), Some(Time(70)));
        lease.answer(C, order(1), Time(90), order(1));
        assert_eq!(lease.reach(&[A, B, C], Some((A, Time(100)))), Some(Time(90)));
    }

    #[test]
    fn of_two_voters_the_older_holds_a_lease_alone_and_the_younger_does_not() {
        let lease = Lease::default();
        assert_eq!(lease.reach(&[A, B], Some((A, Time(5)))), Some(Time(5)));
        assert_eq!(lease.reach(&[A, B], Some((B, Time(5)))), None);
    }

    #[test]
    fn answers_from_newer_voters_count_only_after_acceptance_and_with_their_original_time() {
        let mut lease = Lease::default();
        lease.answer(B, order(2), Time(70), order(1));
        assert_eq!(lease.reach(&[A, B, C], Some((A, Time(100)))), None);
        lease.accepted(order(2));
        assert_eq!(lease.reach(&[A, B, C], Some((A, Time(200)))), Some(Time(70)));
    }

    #[test]
    fn a_late_answer_never_moves_the_lease_back() {
        let mut lease = Lease::default();
        lease.answer(B, order(1), Time(70), order(1));
        lease.answer(B, order(1), Time(30), order(1));
        assert_eq!(lease.reach(&[A, B, C], Some((A, Time(100)))), Some(Time(70)));
    }
}
