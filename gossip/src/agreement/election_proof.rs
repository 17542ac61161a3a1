//! Election proofs: the votes that made a member the coordinator of a term, and what a member
//! believes without one (rule 1).
//!
//! ```text
//!   candidate ───Vote────────> voters
//!   candidate <──VoteAnswer─── voters            a majority: the election proof of this term
//!   coordinator ─ElectionProof──────> members    once, when it is elected
//!   member ──────AskElectionProof──> coordinator if it hears the coordinator without a proof
//! ```
//!
//! An election proof is checked against the voters and their keys in the checking member's own
//! tables. A member whose tables are too old for that would never join again, so a member that has
//! known no coordinator for [`UNCHECKED_AFTER`] believes what it cannot check.

use super::context::Context;
use super::election::CoordinatorElection;
use super::pings::Pings;
use super::tables::Tables;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{ElectionProof, Heartbeat, Message, Proposal};
use doyen_placement::quorum::majority;
use doyen_placement::table::validate::VOTERS_MAX;
use doyen_placement::{MemberId, TableName, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of votes in an election proof: a candidate asks the voters of two tables at most.
const VOTES_MAX: usize = 2 * VOTERS_MAX;
/// The number of terms whose election proofs are kept.
const KNOWN_MAX: usize = 8;
/// A member that has known no coordinator for this long believes a claim that it cannot check. An
/// election takes much less, so this concerns members that missed a change of the voters, and
/// clusters that lost a majority of the voters and were recovered by an operator.
const UNCHECKED_AFTER: Duration = Duration::from_secs(3);
/// If a member names a coordinator of a later term, the coordinator of this term waits this long
/// for the proof before it stands again, so as not to hinder the other one.
const PROOF_PATIENCE: Duration = Duration::from_millis(200);

/// The election proofs that a member has checked, and what waits for one.
#[derive(Debug, Default)]
pub(super) struct ElectionProofs {
    known: BTreeMap<Term, ElectionProof>,
    /// A proposal that arrived before the election proof of its sender.
    early: Option<(MemberId, Proposal)>,
    /// Since when this coordinator has been told of another one of a later term, without proof.
    doubted: Option<Time>,
    /// The table for which this coordinator has compared its election proof with the voters.
    compared: Option<TableName>,
}

impl ElectionProofs {
    /// This member joins a term. Earlier election proofs are of no use any more.
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

    fn keep(&mut self, proof: ElectionProof) {
        let term = proof.term;
        self.known.insert(term, proof);
        if self.known.len() > KNOWN_MAX {
            let oldest = self.known.keys().find(|of| **of != term).copied();
            oldest.map(|of| self.known.remove(&of));
        }
    }
}

impl CoordinatorElection {
    /// Whether this member is known to have been elected in this term, or is believed without
    /// proof.
    pub(super) fn elected(
        &self,
        cx: &Context,
        tables: &Tables,
        term: Term,
        member: MemberId,
    ) -> bool {
        let proof = self.proofs.known.get(&term);
        proof.is_some_and(|m| m.candidate == member)
            || tables.wrote_first(term, member)
            || self.unchecked(cx)
            || broken(&mutant::BELIEVES_UNSIGNED)
    }

    /// Whether this member believes what it cannot check.
    pub(super) fn unchecked(&self, cx: &Context) -> bool {
        self.leader.is_none() && self.leaderless_for(cx.now) >= UNCHECKED_AFTER
    }

    /// Takes what a ping or a pong says of terms and coordinators.
    pub(super) fn hear(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
        from: MemberId,
        heartbeat: &Heartbeat,
    ) {
        self.term_seen = self.term_seen.max(heartbeat.term);
        let unknown = heartbeat.term == self.term && self.leader.is_none();
        if heartbeat.coordinator == Some(from) && (heartbeat.term > self.term || unknown) {
            self.hear_coordinator(cx, tables, pings, from, heartbeat.term);
        } else if heartbeat.term > self.term
            && let Some(coordinator) = heartbeat.coordinator
            && self.leads()
        {
            self.hear_of(cx, tables, from, (heartbeat.term, coordinator));
        }
    }

    /// A member says that it coordinates a later term than this member's, or this member's term, in
    /// which this member knows no coordinator.
    fn hear_coordinator(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
        from: MemberId,
        term: Term,
    ) {
        let later = term > self.term;
        // A peer that sends and does not answer is not heard.
        if !later && (pings.silent(cx, from) || pings.detector.suspected(from)) {
            return;
        }
        if !self.elected(cx, tables, term, from) {
            if self.leader == Some(from) {
                // It left this term. If its election proof of the later one cannot be checked, this
                // member must notice that it knows no coordinator.
                self.leader = None;
            }
            self.ask_proof(cx, tables, from, term);
        } else if later {
            self.join_term(cx, tables, term, Some(from));
        } else {
            self.set_leader(cx, tables, Some(from));
        }
    }

    /// A member claims that it, or another one, coordinates a term, and there is no proof of it.
    fn ask_proof(&mut self, cx: &mut Context, tables: &Tables, from: MemberId, term: Term) {
        if self.leads() {
            self.proofs.doubted.get_or_insert(cx.now);
        }
        let cluster = tables.cluster();
        cx.send(from, Message::AskElectionProof { cluster, term });
    }

    /// Another member coordinates a later term, as `from` says. If that is true, this coordinator
    /// must not hinder it, although it has not heard it yet.
    pub(super) fn hear_of(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        from: MemberId,
        (term, coordinator): (Term, MemberId),
    ) {
        if self.elected(cx, tables, term, coordinator) {
            self.follow(cx, tables);
        } else {
            self.ask_proof(cx, tables, from, term);
        }
    }

    /// A proposal of a member that is not known to be elected waits for its election proof.
    pub(super) fn wait_for_proof(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        from: MemberId,
        early: Proposal,
    ) {
        self.ask_proof(cx, tables, from, early.name.term);
        self.proofs.early = Some((from, early));
    }

    pub(super) fn on_ask_proof(&self, cx: &mut Context, from: MemberId, term: Term) {
        if let Some(proof) = self.proofs.known.get(&term) {
            cx.send(from, Message::ElectionProof(Box::new(proof.clone())));
        }
    }

    /// Returns the proposal that waited for this election proof, and its sender.
    pub(super) fn on_proof(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
        from: MemberId,
        proof: ElectionProof,
    ) -> Option<(MemberId, Proposal)> {
        let (term, elected) = (proof.term, proof.candidate);
        let later = term > self.term;
        if elected == cx.me() || !(later || (term == self.term && self.leader.is_none())) {
            return None;
        }
        let known = self.proofs.known.get(&term);
        if known.is_none_or(|known| known.candidate != elected) {
            let proved = holds(tables, &proof);
            // What is believed without proof must not stand in the way of what is proved.
            if !proved && (known.is_some() || !self.unchecked(cx)) {
                cx.ignore();
                return None;
            }
            self.proofs.keep(proof);
        }
        if from == elected {
            self.hear_coordinator(cx, tables, pings, from, term);
        } else if later && self.leads() {
            self.follow(cx, tables);
        }
        self.proofs.early.take_if(|(by, _)| *by == elected)
    }

    /// This member has won an election. Every member gets the proof before anything that needs it.
    pub(super) fn show_proof(&mut self, cx: &mut Context, tables: &Tables, proof: ElectionProof) {
        let mut members: BTreeSet<MemberId> = tables.members().collect();
        members.remove(&cx.me());
        for member in members {
            cx.send(member, Message::ElectionProof(Box::new(proof.clone())));
        }
        self.proofs.settle();
        self.proofs.keep(proof);
    }

    /// Whether members could not check this coordinator's election proof by the table in force:
    /// voters have got their keys since the election, or others have become voters. Then it stands
    /// again.
    pub(super) fn outlived_proof(&mut self, cx: &Context, tables: &Tables) -> bool {
        let (now, settled) = (tables.committed.name, tables.accepted.name);
        if self.proofs.compared == Some(now) || settled != now || !tables.recovery.dead.is_empty() {
            return false;
        }
        self.proofs.compared = Some(now);
        if tables.wrote_first(self.term, cx.me()) {
            return false;
        }
        let Some(proof) = self.proofs.known.get(&self.term) else {
            return true;
        };
        // The signatures were checked when the votes were counted.
        let counts = |(voter, signature): &(MemberId, Option<_>)| {
            (signature.is_some() || tables.vote_key(*voter).is_none()).then_some(*voter)
        };
        let voted: BTreeSet<MemberId> = proof.votes.iter().filter_map(counts).collect();
        !majority(&tables.committed.voters, |v| voted.contains(&v))
    }
}

/// Whether voters have elected the candidate of an election proof, as far as this member's tables
/// tell: a majority of the voters of the committed or of the accepted one. The vote of a voter
/// whose key no table says yet counts unsigned. A wrong signature makes the whole election proof
/// wrong: candidates check each vote before they count it.
fn holds(tables: &Tables, proof: &ElectionProof) -> bool {
    let in_order = proof.votes.is_sorted_by(|one, other| one.0 < other.0);
    if proof.votes.len() > VOTES_MAX || !in_order {
        return false;
    }
    let listed: BTreeSet<MemberId> = proof.votes.iter().map(|(voter, _)| *voter).collect();
    if !suffices(tables, &listed) {
        // No signature is checked for nothing.
        return false;
    }
    let vote = proof.vote();
    let mut voted = BTreeSet::new();
    for (voter, signature) in &proof.votes {
        if !tables.accepted.voters.contains(voter) && !tables.committed.voters.contains(voter) {
            continue;
        }
        match (tables.vote_key(*voter), signature) {
            (None, _) => _ = voted.insert(*voter),
            (Some(key), Some(signature)) if signature.is_of(&key, &vote) => {
                _ = voted.insert(*voter);
            }
            (Some(_), Some(_)) => return false,
            (Some(_), None) => {}
        }
    }
    suffices(tables, &voted)
}

fn suffices(tables: &Tables, voted: &BTreeSet<MemberId>) -> bool {
    let voters = [&tables.committed.voters, &tables.accepted.voters];
    voters
        .into_iter()
        .any(|v| majority(v, |id| voted.contains(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::context::NamedTable;
    use crate::agreement::fixtures::members;
    use crate::agreement::member_core::MemberCore;
    use crate::agreement::net::Net;
    use crate::signing::{Signature, SigningKey, SigningSeed, Vote};
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

    fn answered(
        core: &mut MemberCore,
        cx: &mut Context,
        from: MemberId,
        answer: BallotAnswer,
        signature: Option<Signature>,
    ) {
        let tables = &mut core.tables;
        let votes = core
            .election
            .on_vote_answer(cx, tables, from, answer, signature);
        core.win(cx, votes);
    }

    /// A vote that would convince no other member is not counted.
    #[test]
    fn a_candidate_counts_no_vote_with_a_wrong_signature() {
        let (mut cx, mut core) = first_of(3);
        core.stand(&mut cx);
        let vote = core.tables.vote(core.election.term, id(1));
        let of = |by: u64, vote: Vote| Some(key(id(by)).sign(&vote));
        let (term, candidate) = (core.election.term.next(), id(2));
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
                term: core.election.term,
                granted: true,
                mine: core.election.term,
                accepted: core.tables.accepted.name,
            };
            answered(&mut core, &mut cx, id(2), answer, signature);
            assert_eq!(core.election.leads(), wins, "{signature:?}");
        }
        let proof = &core.election.proofs.known[&core.election.term];
        assert_eq!((proof.votes.len(), holds(&core.tables, proof)), (2, true));
        assert_eq!(cx.ignored, 5);
    }

    /// A coordinator whose voters have changed since it was elected has an election proof that
    /// newcomers cannot check. So it stands again, once for each table.
    #[test]
    fn a_coordinator_whose_voters_changed_stands_again() {
        let (mut cx, mut core) = first_of(5);
        core.stand(&mut cx);
        for by in [2, 3] {
            let answer = BallotAnswer {
                term: core.election.term,
                granted: true,
                mine: core.election.term,
                accepted: core.tables.accepted.name,
            };
            let signature = key(id(by)).sign(&core.tables.vote(core.election.term, id(1)));
            answered(&mut core, &mut cx, id(by), answer, Some(signature));
        }
        assert!(core.election.leads());
        assert!(!core.election.outlived_proof(&cx, &core.tables));
        for (voters, outlived) in [([1, 2, 5], false), ([1, 4, 5], true), ([1, 4, 5], false)] {
            let mut table = (*core.tables.committed.table).clone();
            table.version = table.version.next();
            table.voters = voters.map(id).to_vec();
            core.tables.committed = NamedTable::new(Arc::new(table));
            core.tables.accepted = core.tables.committed.clone();
            // Asked twice of one table, it answers once.
            let asked = [(); 2].map(|()| core.election.outlived_proof(&cx, &core.tables));
            assert_eq!(asked, [outlived, false], "{voters:?}");
            if outlived {
                core.election.proofs.compared = None;
                core.election.proofs.known.clear();
                core.election.proofs.keep(ElectionProof {
                    cluster: core.tables.cluster(),
                    term: core.election.term,
                    candidate: id(1),
                    votes: voters
                        .map(|v| {
                            (
                                id(v),
                                Some(key(id(v)).sign(&core.tables.vote(core.election.term, id(1)))),
                            )
                        })
                        .to_vec(),
                });
            }
        }
    }
}
