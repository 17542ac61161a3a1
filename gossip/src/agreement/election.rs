//! Votes, pre-votes and terms (rules 1, 2 and 6).

use super::context::{Context, earlier};
use super::event::Event;
use super::member_core::MemberCore;
use super::publication::Leader;
use crate::mutant::{self, broken};
use crate::signing::Signature;
use crate::time::Time;
use crate::wire::{Ballot, BallotAnswer, Mandate, Message};
use doyen_placement::quorum::majority;
use doyen_placement::{MemberId, TableName, Term};
use std::collections::BTreeMap;
use std::time::Duration;

/// A candidate waits this long for each older voter that answers.
const RANK_DELAY: Duration = Duration::from_millis(60);
/// The most that a candidate waits beyond that, at random.
const STAND_JITTER: Duration = Duration::from_millis(10);
/// How long a candidate waits for votes.
const VOTE_PATIENCE: Duration = Duration::from_millis(200);
/// How long a member waits after a vote for another member, or after a failed candidacy.
const RETRY_DELAY: Duration = Duration::from_millis(60);
/// The random part of that wait.
const RETRY_JITTER: Duration = Duration::from_millis(120);

/// The role of a member in elections.
#[derive(Debug)]
pub(super) enum Role {
    /// Follows, or waits until it may become a candidate.
    Follower,
    /// Asks whether it would win the next term.
    PreCandidate(VoteCount),
    /// Asks for votes in its term.
    Candidate(VoteCount),
    /// Coordinates in its term.
    Leader(Box<Leader>),
}

/// The answers to a candidate.
#[derive(Debug)]
pub(super) struct VoteCount {
    term: Term,
    until: Time,
    /// The voters that said yes.
    granted: BTreeMap<MemberId, Granted>,
}

/// A voter said yes.
#[derive(Debug, Clone, Copy)]
struct Granted {
    /// The table that it had accepted.
    accepted: TableName,
    /// Its signature, which was checked. `None`: its key is not known, or this was a pre-vote.
    signature: Option<Signature>,
}

impl MemberCore {
    pub(super) fn role_timeout(&self, cx: &Context) -> Option<Time> {
        match &self.role {
            Role::Follower => None,
            Role::PreCandidate(count) | Role::Candidate(count) => Some(count.until),
            Role::Leader(leader) => earlier(leader.timeout(cx), None),
        }
    }

    /// Whether these members contain majorities of the committed and of the accepted configuration
    /// (rule 2). This member counts.
    pub(super) fn both_majorities(&self, with: impl Fn(MemberId) -> bool) -> bool {
        (self.quorum(&self.committed_voters, &with) || broken(&mutant::WINS_WITHOUT_COMMITTED))
            && (self.quorum(&self.accepted.voters, &with) || broken(&mutant::WINS_WITHOUT_ACCEPTED))
    }

    /// Whether these members contain a majority of these voters. After an operator declared voters
    /// dead, all others are required: any one of the remaining voters may be the only one that
    /// knows what a lost majority committed.
    pub(super) fn quorum(&self, voters: &[MemberId], with: &impl Fn(MemberId) -> bool) -> bool {
        if self.asserted_dead.is_empty() {
            return majority(voters, with);
        }
        let living: Vec<MemberId> = voters
            .iter()
            .copied()
            .filter(|v| !self.asserted_dead.contains(v))
            .collect();
        if broken(&mutant::RECOVERS_WITH_MOST) {
            return majority(&living, with);
        }
        !living.is_empty() && living.into_iter().all(with)
    }

    /// Joins another term. This node's role in the term before ends.
    pub(super) fn join_term(&mut self, cx: &mut Context, term: Term, leader: Option<MemberId>) {
        self.role = Role::Follower;
        self.term = term;
        self.mandates.join(term);
        self.term_seen = self.term_seen.max(term);
        // A member that follows a coordinator gives no other candidate its vote in that term.
        self.voted = leader;
        self.leader = None;
        self.stand_at = None;
        self.set_leader(cx, leader);
    }

    pub(super) fn set_leader(&mut self, cx: &mut Context, leader: Option<MemberId>) {
        if self.leader == leader {
            return;
        }
        self.leader = leader;
        if let Some(id) = leader {
            self.stand_at = None;
            if !matches!(self.role, Role::Leader(_)) {
                self.role = Role::Follower;
            }
            self.requests.new_coordinator();
            let name = self
                .accepted
                .member(id)
                .map_or_else(|| id.to_string(), |m| m.name.clone());
            cx.event(Event::Coordinator {
                name,
                term: self.term.0,
            });
        }
    }

    /// Steps down. This node publishes nothing more in this term: its next candidacy takes another
    /// term.
    pub(super) fn follow(&mut self, cx: &mut Context) {
        if matches!(self.role, Role::Leader(_)) {
            self.leader = None;
            self.mandates.settle();
            self.refuse_all(cx);
        }
        self.role = Role::Follower;
        self.stand_at = None;
    }

    /// Whether this node hears a coordinator: by round trips, and not if the coordinator's host
    /// denies it.
    fn heard(&self, cx: &Context) -> bool {
        match self.leader {
            None => false,
            Some(leader) if leader == cx.me() => matches!(self.role, Role::Leader(_)),
            Some(leader) => {
                !self.detector.suspected(leader)
                    && !self.silent(cx, leader)
                    && self.detector.answered_at(leader).is_some_and(|at| {
                        cx.now.since(at)
                            <= cx.config.timing.ping_interval
                                * (cx.config.timing.pings_missed_max + 1)
                                + self.indulgence()
                    })
            }
        }
    }

    /// Gives up a silent coordinator. If this node coordinates and no majority answers it, it steps
    /// down (rule 6).
    pub(super) fn watch_leader(&mut self, cx: &mut Context) {
        let me = cx.me();
        match self.leader {
            Some(leader) if leader == me => {
                let answers = |v: MemberId| v == me || !self.silent(cx, v);
                if !self.both_majorities(answers) && !broken(&mutant::LEADS_UNHEARD) {
                    self.follow(cx);
                }
            }
            Some(leader)
                if self.silent(cx, leader)
                    || (self.accepted.member(leader).is_none()
                        && self.committed.member(leader).is_none()) =>
            {
                self.leader = None;
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn elect(&mut self, cx: &mut Context) {
        let me = cx.me();
        let may_stand = !self.out
            && (self.accepted.voters.contains(&me) || self.committed_voters.contains(&me));
        if self.leader.is_some() || !may_stand || cx.hung() {
            self.stand_at = None;
            if !matches!(self.role, Role::Leader(_)) {
                self.role = Role::Follower;
            }
            return;
        }
        match &self.role {
            Role::PreCandidate(count) | Role::Candidate(count) if cx.now >= count.until => {
                self.role = Role::Follower;
                let delay =
                    self.rank_delay(cx) + RETRY_DELAY + cx.jitter(Duration::ZERO, RETRY_JITTER);
                self.stand_at = Some(cx.now + delay);
            }
            Role::Follower => match self.stand_at {
                None => {
                    self.stand_at =
                        Some(cx.now + self.rank_delay(cx) + cx.jitter(Duration::ZERO, STAND_JITTER))
                }
                Some(at) if at <= cx.now => self.ask_for_votes(cx),
                Some(_) => {}
            },
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }

    /// Age is a preference: a younger candidate gives each older voter that answers some time.
    fn rank_delay(&self, cx: &Context) -> Duration {
        let me = cx.me();
        let older = self
            .accepted
            .voters
            .iter()
            .take_while(|v| **v != me)
            .filter(|v| !self.silent(cx, **v))
            .count();
        RANK_DELAY * u32::try_from(older).unwrap_or(u32::MAX)
    }

    fn electors(&self, me: MemberId) -> Vec<MemberId> {
        let mut electors: Vec<MemberId> = self
            .committed_voters
            .iter()
            .chain(&self.accepted.voters)
            .copied()
            .filter(|v| *v != me)
            .collect();
        electors.sort_unstable();
        electors.dedup();
        electors
    }

    /// Asks whether it would win. It spends a term only if it would.
    fn ask_for_votes(&mut self, cx: &mut Context) {
        let term = self.term.max(self.term_seen).next();
        self.stand_at = None;
        let own = Granted {
            accepted: self.accepted.name,
            signature: None,
        };
        let granted = BTreeMap::from([(cx.me(), own)]);
        self.role = Role::PreCandidate(VoteCount {
            term,
            until: cx.now + VOTE_PATIENCE,
            granted,
        });
        for voter in self.electors(cx.me()) {
            cx.send(
                voter,
                Message::PreVote(Ballot {
                    term,
                    accepted: self.accepted.name,
                }),
            );
        }
        self.count(cx);
    }

    /// Becomes a candidate in a term above every term that it knows.
    pub(super) fn become_candidate(&mut self, cx: &mut Context) {
        let term = self.term.max(self.term_seen).next();
        if matches!(self.role, Role::Leader(_)) {
            self.loyal_until = cx.now + VOTE_PATIENCE;
        }
        self.refuse_all(cx);
        self.mandates.settle();
        self.mandates.join(term);
        self.term = term;
        self.term_seen = term;
        self.voted = Some(cx.me());
        self.leader = None;
        self.stand_at = None;
        let own = Granted {
            accepted: self.accepted.name,
            signature: Some(cx.signing.sign(&self.vote(term, cx.me()))),
        };
        let granted = BTreeMap::from([(cx.me(), own)]);
        self.role = Role::Candidate(VoteCount {
            term,
            until: cx.now + VOTE_PATIENCE,
            granted,
        });
        for voter in self.electors(cx.me()) {
            cx.send(
                voter,
                Message::Vote(Ballot {
                    term,
                    accepted: self.accepted.name,
                }),
            );
        }
        self.count(cx);
    }

    fn count(&mut self, cx: &mut Context) {
        match &self.role {
            Role::PreCandidate(count)
                if self.both_majorities(|v| count.granted.contains_key(&v)) =>
            {
                self.become_candidate(cx)
            }
            Role::Candidate(count) if self.both_majorities(|v| count.granted.contains_key(&v)) => {
                let granted = count.granted.clone();
                self.win(cx, granted);
            }
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }

    fn win(&mut self, cx: &mut Context, granted: BTreeMap<MemberId, Granted>) {
        // A table that both majorities have accepted is committed. It does not matter which member
        // proposed it (rule 2).
        let mine = self.accepted.name;
        let same = |name: &TableName| {
            *name == mine || (name.version == mine.version && broken(&mutant::WINS_BY_VERSION))
        };
        let committed =
            self.both_majorities(|v| granted.get(&v).is_some_and(|g| same(&g.accepted)));
        let votes = granted.iter().map(|(voter, g)| (*voter, g.signature));
        let mandate = Mandate {
            cluster: self.cluster(),
            term: self.term,
            candidate: cx.me(),
            votes: votes.collect(),
        };
        self.role = Role::Leader(Box::new(Leader::new(cx, granted.into_keys().collect())));
        if committed && mine.order() > self.committed.name.order() {
            let table = self.accepted.clone();
            self.committed_voters = table.voters.clone();
            self.install(cx, table, None);
        }
        self.set_leader(cx, Some(cx.me()));
        self.show_mandate(cx, mandate);
        self.ping_all(cx);
    }

    pub(super) fn on_pre_vote(&mut self, cx: &mut Context, from: MemberId, ballot: Ballot) {
        if self.leader == Some(from) && ballot.term > self.term {
            // A coordinator asks for no votes, so the sender coordinates nothing. It answers pings,
            // so nothing else would correct this node's mistake.
            self.leader = None;
        }
        let granted = !self.out
            && !cx.hung()
            && (!self.heard(cx) || broken(&mutant::PREEMPTS))
            && ballot.term > self.term
            && ballot.accepted.order() >= self.accepted.name.order();
        let answer = BallotAnswer {
            term: ballot.term,
            granted,
            mine: self.term,
            accepted: self.accepted.name,
        };
        cx.send(from, Message::PreVoteAnswer(answer));
    }

    pub(super) fn on_vote(&mut self, cx: &mut Context, from: MemberId, ballot: Ballot) {
        let up_to_date = ballot.accepted.order() >= self.accepted.name.order()
            || broken(&mutant::VOTES_FOR_STALE);
        let first = (self.voted.is_none_or(|v| v == from) && self.leader.is_none())
            || broken(&mutant::VOTES_TWICE);
        let free = ballot.term > self.term || (ballot.term == self.term && first);
        // A voter that hears a coordinator votes for no other member, and leaves a coordinator that
        // stands again the time for it. Otherwise any member could replace it, by asking.
        let led = (self.heard(cx) && self.leader != Some(from))
            || (cx.now < self.loyal_until && self.voted != Some(from) && self.leader != Some(from));
        // Who votes twice, or preempts, does not mind that either.
        let minds = [
            &mutant::VOTES_WHILE_LED,
            &mutant::VOTES_TWICE,
            &mutant::PREEMPTS,
        ];
        let led = led && !minds.into_iter().any(broken);
        let granted = !self.out && up_to_date && free && !led;
        self.term_seen = self.term_seen.max(ballot.term);
        if granted {
            if self.leader == Some(from) {
                self.loyal_until = cx.now + VOTE_PATIENCE;
            }
            if ballot.term > self.term {
                self.follow(cx);
                self.join_term(cx, ballot.term, None);
            }
            self.voted = Some(from);
            self.role = Role::Follower;
            self.stand_at = Some(cx.now + VOTE_PATIENCE + cx.jitter(Duration::ZERO, RETRY_JITTER));
        }
        let answer = BallotAnswer {
            term: ballot.term,
            granted,
            mine: self.term,
            accepted: self.accepted.name,
        };
        let message = if granted {
            let signature = cx.signing.sign(&self.vote(ballot.term, from));
            Message::SignedVote(answer, signature)
        } else {
            Message::VoteAnswer(answer)
        };
        cx.send(from, message);
    }

    pub(super) fn on_pre_vote_answer(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        answer: BallotAnswer,
    ) {
        self.term_seen = self.term_seen.max(answer.mine);
        if let Role::PreCandidate(count) = &mut self.role
            && count.term == answer.term
            && answer.granted
        {
            let granted = Granted {
                accepted: answer.accepted,
                signature: None,
            };
            count.granted.insert(from, granted);
            self.count(cx);
        }
    }

    pub(super) fn on_vote_answer(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        answer: BallotAnswer,
        signature: Option<Signature>,
    ) {
        self.term_seen = self.term_seen.max(answer.mine);
        let stands = matches!(&self.role, Role::Candidate(count) if count.term == answer.term);
        if stands && !answer.granted && answer.accepted.order() > self.accepted.name.order() {
            self.recovers_elsewhere(cx, from);
        }
        let signature = match self.vote_key(from).filter(|_| stands && answer.granted) {
            // Others could not check it either.
            None => None,
            Some(key) => {
                let vote = self.vote(answer.term, cx.me());
                let Some(signature) = signature.filter(|s| s.is_of(&key, &vote)) else {
                    // A mandate with this vote would convince no other member.
                    return cx.ignore();
                };
                Some(signature)
            }
        };
        match &mut self.role {
            Role::Candidate(count) if count.term == answer.term && answer.granted => {
                let accepted = answer.accepted;
                let granted = Granted {
                    accepted,
                    signature,
                };
                count.granted.insert(from, granted);
                self.count(cx);
            }
            Role::Leader(leader) if self.term == answer.term && answer.granted => {
                leader.joined(from)
            }
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }
}
