//! Mandates: the votes that made a member the coordinator of a term, and what a member believes
//! without one (rule 1).
//!
//! ```text
//!   candidate ───Vote────────> voters
//!   candidate <──SignedVote─── voters            a majority: the mandate of this term
//!   coordinator ─Mandate─────> every member      once, when it is elected
//!   member ──────AskMandate──> coordinator       if it hears the coordinator without a mandate
//! ```
//!
//! A mandate is checked against the voters and their keys in the checking member's own tables. A
//! member whose tables are too old for that would never join again, so a member that has known no
//! coordinator for [`UNCHECKED_AFTER`] believes what it cannot check.

use super::context::{Context, NamedTable};
use super::election::Role;
use super::member_core::MemberCore;
use crate::mutant::{self, broken};
use crate::signing::Vote;
use crate::time::Time;
use crate::wire::{Mandate, Message, Proposal};
use doyen_placement::quorum::majority;
use doyen_placement::table::validate::VOTERS_MAX;
use doyen_placement::{Age, MemberId, TableName, Term, VoteKey};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of votes in a mandate: a candidate asks the voters of two tables at most.
const VOTES_MAX: usize = 2 * VOTERS_MAX;
/// The number of terms whose mandates are kept.
const KNOWN_MAX: usize = 8;
/// A member that has known no coordinator for this long believes a claim that it cannot check. An
/// election takes much less, so this concerns members that missed a change of the voters, and
/// clusters that lost a majority of the voters and were recovered by an operator.
const UNCHECKED_AFTER: Duration = Duration::from_secs(3);
/// If a member names a coordinator of a later term, the coordinator of this term waits this long
/// for the proof before it stands again, so as not to hinder the other one.
const PROOF_PATIENCE: Duration = Duration::from_millis(200);

/// The mandates that a member has checked, and what waits for one.
#[derive(Debug, Default)]
pub(super) struct Mandates {
    known: BTreeMap<Term, Mandate>,
    /// A proposal that arrived before the mandate of its sender.
    early: Option<(MemberId, Proposal)>,
    /// Since when this coordinator has been told of another one of a later term, without proof.
    doubted: Option<Time>,
    /// The table for which this coordinator has compared its mandate with the voters.
    compared: Option<TableName>,
}

impl Mandates {
    /// This member joins a term. Earlier mandates are of no use any more.
    pub(super) fn join(&mut self, term: Term) {
        self.known.retain(|of, _| *of >= term);
    }

    /// This member stands again, or does not coordinate any more.
    pub(super) fn settle(&mut self) {
        self.doubted = None;
    }

    /// Whether this coordinator waits for the proof that there is another one.
    pub(super) fn waits(&self, now: Time) -> bool {
        let waits = |since| now.since(since) < PROOF_PATIENCE;
        self.doubted.is_some_and(waits)
    }

    fn keep(&mut self, mandate: Mandate) {
        let term = mandate.term;
        self.known.insert(term, mandate);
        if self.known.len() > KNOWN_MAX {
            let oldest = self.known.keys().find(|of| **of != term).copied();
            oldest.map(|of| self.known.remove(&of));
        }
    }
}

impl MemberCore {
    /// Whether this member is known to have been elected in this term, or is believed without
    /// proof.
    pub(super) fn elected(&self, cx: &Context, term: Term, member: MemberId) -> bool {
        let mandate = self.mandates.known.get(&term);
        mandate.is_some_and(|m| m.candidate == member)
            || self.wrote_first(term, member)
            || self.unchecked(cx)
            || broken(&mutant::BELIEVES_UNSIGNED)
    }

    /// Whether this member believes what it cannot check.
    pub(super) fn unchecked(&self, cx: &Context) -> bool {
        self.leader.is_none() && self.leaderless_for(cx) >= UNCHECKED_AFTER
    }

    /// The first term has no election: the writer of the first table, who is the oldest member,
    /// coordinates (I12).
    fn wrote_first(&self, term: Term, member: MemberId) -> bool {
        let oldest = |age| age == Age(1);
        term == Term(1) && self.committed.member(member).is_some_and(|m| oldest(m.age))
    }

    /// The key of a member's votes, if a table says it.
    pub(super) fn vote_key(&self, member: MemberId) -> Option<VoteKey> {
        let tables = [&self.accepted, &self.committed];
        let key = |table: &NamedTable| table.member(member)?.vote_key;
        tables.into_iter().find_map(key)
    }

    /// What a voter signs.
    pub(super) fn vote(&self, term: Term, candidate: MemberId) -> Vote {
        Vote {
            cluster: self.cluster(),
            term,
            candidate,
        }
    }

    /// Whether voters have elected the candidate of a mandate, as far as this member's tables tell:
    /// a majority of the voters of the committed or of the accepted one. The vote of a voter whose
    /// key no table says yet counts unsigned. A wrong signature makes the whole mandate wrong:
    /// candidates check each vote before they count it.
    fn holds(&self, mandate: &Mandate) -> bool {
        let in_order = mandate.votes.is_sorted_by(|one, other| one.0 < other.0);
        if mandate.votes.len() > VOTES_MAX || !in_order {
            return false;
        }
        let listed: BTreeSet<MemberId> = mandate.votes.iter().map(|(voter, _)| *voter).collect();
        if !self.suffices(&listed) {
            // No signature is checked for nothing.
            return false;
        }
        let vote = mandate.vote();
        let mut voted = BTreeSet::new();
        for (voter, signature) in &mandate.votes {
            if !self.accepted.voters.contains(voter) && !self.committed.voters.contains(voter) {
                continue;
            }
            match (self.vote_key(*voter), signature) {
                (None, _) => _ = voted.insert(*voter),
                (Some(key), Some(signature)) if signature.is_of(&key, &vote) => {
                    _ = voted.insert(*voter);
                }
                (Some(_), Some(_)) => return false,
                (Some(_), None) => {}
            }
        }
        self.suffices(&voted)
    }

    fn suffices(&self, voted: &BTreeSet<MemberId>) -> bool {
        let voters = [&self.committed.voters, &self.accepted.voters];
        voters
            .into_iter()
            .any(|v| majority(v, |id| voted.contains(&id)))
    }

    /// A member says that it coordinates a later term than this member's, or this member's term, in
    /// which this member knows no coordinator.
    pub(super) fn hear_coordinator(&mut self, cx: &mut Context, from: MemberId, term: Term) {
        let later = term > self.term;
        // A peer that sends and does not answer is not heard.
        if !later && (self.silent(cx, from) || self.detector.suspected(from)) {
            return;
        }
        if !self.elected(cx, term, from) {
            if self.leader == Some(from) {
                // It left this term. If its mandate of the later one cannot be checked, this member
                // must notice that it knows no coordinator.
                self.leader = None;
            }
            self.ask_mandate(cx, from, term);
        } else if later {
            self.join_term(cx, term, Some(from));
        } else {
            self.set_leader(cx, Some(from));
        }
    }

    /// A member claims that it, or another one, coordinates a term, and there is no proof of it.
    pub(super) fn ask_mandate(&mut self, cx: &mut Context, from: MemberId, term: Term) {
        if matches!(self.role, Role::Leader(_)) {
            self.mandates.doubted.get_or_insert(cx.now);
        }
        let cluster = self.cluster();
        cx.send(from, Message::AskMandate { cluster, term });
    }

    /// Another member coordinates a later term, as `from` says. If that is true, this coordinator
    /// must not hinder it, although it has not heard it yet.
    pub(super) fn hear_of(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        (term, coordinator): (Term, MemberId),
    ) {
        if self.elected(cx, term, coordinator) {
            self.follow(cx);
        } else {
            self.ask_mandate(cx, from, term);
        }
    }

    /// A proposal of a member that is not known to be elected waits for its mandate.
    pub(super) fn wait_for_mandate(&mut self, cx: &mut Context, from: MemberId, early: Proposal) {
        self.ask_mandate(cx, from, early.name.term);
        self.mandates.early = Some((from, early));
    }

    pub(super) fn on_ask_mandate(&self, cx: &mut Context, from: MemberId, term: Term) {
        if let Some(mandate) = self.mandates.known.get(&term) {
            cx.send(from, Message::Mandate(Box::new(mandate.clone())));
        }
    }

    pub(super) fn on_mandate(&mut self, cx: &mut Context, from: MemberId, mandate: Mandate) {
        let (term, elected) = (mandate.term, mandate.candidate);
        let later = term > self.term;
        if elected == cx.me() || !(later || (term == self.term && self.leader.is_none())) {
            return;
        }
        let known = self.mandates.known.get(&term);
        if known.is_none_or(|known| known.candidate != elected) {
            let proved = self.holds(&mandate);
            // What is believed without proof must not stand in the way of what is proved.
            if !proved && (known.is_some() || !self.unchecked(cx)) {
                return cx.ignore();
            }
            self.mandates.keep(mandate);
        }
        if from == elected {
            self.hear_coordinator(cx, from, term);
        } else if later && matches!(self.role, Role::Leader(_)) {
            self.follow(cx);
        }
        if let Some((by, proposal)) = self.mandates.early.take_if(|(by, _)| *by == elected) {
            self.on_propose(cx, by, proposal);
        }
    }

    /// This member has won an election. Every member gets the proof before anything that needs it.
    pub(super) fn show_mandate(&mut self, cx: &mut Context, mandate: Mandate) {
        let members = self.committed.members.iter().chain(&self.accepted.members);
        let mut members: BTreeSet<MemberId> = members.map(|m| m.id).collect();
        members.remove(&cx.me());
        for member in members {
            cx.send(member, Message::Mandate(Box::new(mandate.clone())));
        }
        self.mandates.settle();
        self.mandates.keep(mandate);
    }

    /// Whether members could not check this coordinator's mandate by the table in force: voters
    /// have got their keys since the election, or others have become voters. Then it stands again.
    pub(super) fn outlived_mandate(&mut self, cx: &Context) -> bool {
        let (now, settled) = (self.committed.name, self.accepted.name);
        if self.mandates.compared == Some(now) || settled != now || !self.asserted_dead.is_empty() {
            return false;
        }
        self.mandates.compared = Some(now);
        if self.wrote_first(self.term, cx.me()) {
            return false;
        }
        let Some(mandate) = self.mandates.known.get(&self.term) else {
            return true;
        };
        // The signatures were checked when the votes were counted.
        let counts = |(voter, signature): &(MemberId, Option<_>)| {
            (signature.is_some() || self.vote_key(*voter).is_none()).then_some(*voter)
        };
        let voted: BTreeSet<MemberId> = mandate.votes.iter().filter_map(counts).collect();
        !majority(&self.committed.voters, |v| voted.contains(&v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::members;
    use crate::agreement::net::Net;
    use crate::signing::{Signature, SigningKey, SigningSeed};
    use crate::wire::BallotAnswer;
    use std::sync::Arc;

    fn id(number: u64) -> MemberId {
        MemberId(number << 4)
    }

    fn key(id: MemberId) -> SigningKey {
        SigningKey::new(&SigningSeed::of_test(id.0))
    }

    /// The first of some members, whose keys the table has.
    fn first_of(count: u64) -> (Context, MemberCore) {
        let mut table = members(count);
        table.term = Term(3);
        for member in &mut table.members {
            Arc::make_mut(member).vote_key = Some(key(member.id).vote_key());
        }
        let config = Net::new(1, vec![vec![0]]).config(0, id(1));
        let mut cx = Context::new(config, Time(1_000_000_000_000));
        let core = MemberCore::new(&mut cx, NamedTable::new(Arc::new(table)), None, true);
        (cx, core)
    }

    /// A vote that would convince no other member is not counted.
    #[test]
    fn a_candidate_counts_no_vote_with_a_wrong_signature() {
        let (mut cx, mut core) = first_of(3);
        core.become_candidate(&mut cx);
        let vote = core.vote(core.term, id(1));
        let of = |by: u64, vote: Vote| Some(key(id(by)).sign(&vote));
        let (term, candidate) = (core.term.next(), id(2));
        let wrong: [Option<Signature>; 5] = [
            None,
            of(3, vote),
            of(2, Vote { term, ..vote }),
            of(2, Vote { candidate, ..vote }),
            Some(Signature::new([[0; 32]; 2])),
        ];
        for (signature, wins) in wrong
            .map(|w| (w, false))
            .into_iter()
            .chain([(of(2, vote), true)])
        {
            let answer = BallotAnswer {
                term: core.term,
                granted: true,
                mine: core.term,
                accepted: core.accepted.name,
            };
            core.on_vote_answer(&mut cx, id(2), answer, signature);
            assert_eq!(matches!(core.role, Role::Leader(_)), wins, "{signature:?}");
        }
        let mandate = &core.mandates.known[&core.term];
        assert_eq!((mandate.votes.len(), core.holds(mandate)), (2, true));
        assert_eq!(cx.ignored, 5);
    }

    /// A coordinator whose voters have changed since it was elected has a mandate that newcomers
    /// cannot check. So it stands again, once for each table.
    #[test]
    fn a_coordinator_whose_voters_changed_stands_again() {
        let (mut cx, mut core) = first_of(5);
        core.become_candidate(&mut cx);
        for by in [2, 3] {
            let answer = BallotAnswer {
                term: core.term,
                granted: true,
                mine: core.term,
                accepted: core.accepted.name,
            };
            let signature = key(id(by)).sign(&core.vote(core.term, id(1)));
            core.on_vote_answer(&mut cx, id(by), answer, Some(signature));
        }
        assert!(matches!(core.role, Role::Leader(_)));
        assert!(!core.outlived_mandate(&cx));
        for (voters, outlived) in [([1, 2, 5], false), ([1, 4, 5], true), ([1, 4, 5], false)] {
            let mut table = (*core.committed.table).clone();
            table.version = table.version.next();
            table.voters = voters.map(id).to_vec();
            core.committed = NamedTable::new(Arc::new(table));
            core.accepted = core.committed.clone();
            // Asked twice of one table, it answers once.
            let asked = [core.outlived_mandate(&cx), core.outlived_mandate(&cx)];
            assert_eq!(asked, [outlived, false], "{voters:?}");
            if outlived {
                core.mandates.compared = None;
                core.mandates.known.clear();
                core.mandates.keep(Mandate {
                    cluster: core.cluster(),
                    term: core.term,
                    candidate: id(1),
                    votes: voters
                        .map(|v| (id(v), Some(key(id(v)).sign(&core.vote(core.term, id(1))))))
                        .to_vec(),
                });
            }
        }
    }
}
