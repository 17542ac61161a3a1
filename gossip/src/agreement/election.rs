//! Votes, pre-votes and terms (rules 1, 2 and 6).
//!
//! ```text
//!   follower ──no coordinator──> pre-candidate ──majorities would──> candidate ──majorities did──┐
//!      ^                                                                                         │
//!      └──────── a higher term, or no answers of a majority ───────── leader <───────────────────┘
//! ```

use super::context::{Context, earlier};
use super::durable::{Durable, Promise};
use super::election_proof::ElectionProofs;
use super::event::Event;
use super::pings::Pings;
use super::problem::{MissingVoter, Problem};
use super::publication::Leader;
use super::tables::Tables;
use crate::mutant::{self, broken};
use crate::signing::Signature;
use crate::time::Time;
use crate::wire::{Ballot, BallotAnswer, Heartbeat, Message};
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

/// After this long without a coordinator, the reason is reported.
const LEADERLESS_PATIENCE: Duration = Duration::from_secs(2);
/// The time between two such reports.
const LEADERLESS_AGAIN: Duration = Duration::from_secs(10);
/// A term that is further ahead than this is invalid: terms rise by one with each election.
const TERM_AHEAD_MAX: u64 = 1 << 20;

/// The role of a member in elections.
#[derive(Debug)]
pub(super) enum ElectionRole {
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
    granted: Votes,
}

impl VoteCount {
    /// A candidate votes for itself.
    fn begin(cx: &Context, tables: &Tables, term: Term, signature: Option<Signature>) -> Self {
        let accepted = tables.accepted.name;
        let own = GrantedVotes {
            accepted,
            signature,
        };
        Self {
            term,
            until: cx.now + VOTE_PATIENCE,
            granted: BTreeMap::from([(cx.me(), own)]),
        }
    }
}

/// A voter said yes.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantedVotes {
    /// The table that it had accepted.
    pub(super) accepted: TableName,
    /// Its signature, which was checked. `None`: its key is not known, or this was a pre-vote.
    pub(super) signature: Option<Signature>,
}

/// The voters that voted for a candidate.
pub(super) type Votes = BTreeMap<MemberId, GrantedVotes>;

/// What a member knows of terms and coordinators.
#[derive(Debug)]
pub(super) struct CoordinatorElection {
    pub(super) term: Term,
    /// The highest term that any member named.
    pub(super) term_seen: Term,
    /// The candidate that this node voted for in `term`.
    pub(super) voted: Option<MemberId>,
    /// The coordinator of `term`.
    pub(super) leader: Option<MemberId>,
    /// Who is known to be elected.
    pub(super) proofs: ElectionProofs,
    /// Until then, this member votes only for the coordinator that it followed and that stands
    /// again.
    loyal_until: Time,
    pub(super) role: ElectionRole,
    stand_at: Option<Time>,
    /// The term in which this node stands once its vote for itself is synced.
    standing: Option<Term>,
    /// Since when no coordinator has been known, and when people were last told why.
    leaderless: Option<(Time, Option<Time>)>,
}

impl CoordinatorElection {
    pub(super) fn new(term: Term) -> Self {
        Self {
            term,
            term_seen: term,
            voted: None,
            leader: None,
            proofs: ElectionProofs::default(),
            loyal_until: Time::ZERO,
            role: ElectionRole::Follower,
            stand_at: None,
            standing: None,
            leaderless: None,
        }
    }

    /// What an heir begins with.
    pub(super) fn resumed(durable: &Durable) -> Self {
        Self {
            voted: durable.voted,
            ..Self::new(durable.term)
        }
    }

    /// Whether this member coordinates.
    pub(super) fn leads(&self) -> bool {
        self.as_leader().is_some()
    }

    /// What this member does as the coordinator. `None`: it is not the coordinator.
    pub(super) fn as_leader(&self) -> Option<&Leader> {
        match &self.role {
            ElectionRole::Leader(leader) => Some(leader),
            ElectionRole::Follower | ElectionRole::PreCandidate(_) | ElectionRole::Candidate(_) => {
                None
            }
        }
    }

    pub(super) fn as_leader_mut(&mut self) -> Option<&mut Leader> {
        match &mut self.role {
            ElectionRole::Leader(leader) => Some(leader),
            ElectionRole::Follower | ElectionRole::PreCandidate(_) | ElectionRole::Candidate(_) => {
                None
            }
        }
    }

    /// This member has won.
    pub(super) fn lead(&mut self, leader: Leader) {
        self.role = ElectionRole::Leader(Box::new(leader));
    }

    /// Whether a peer may name this term at all.
    pub(super) fn plausible(&self, term: Term) -> bool {
        term.0 <= self.term.0.saturating_add(TERM_AHEAD_MAX)
    }

    /// What a ping or a pong of this member says.
    pub(super) fn heartbeat(&self, tables: &Tables) -> Heartbeat {
        Heartbeat {
            cluster: tables.cluster(),
            sequence: 0,
            term: self.term,
            coordinator: self.leader,
            accepted: tables.accepted.name,
            committed: tables.committed.name,
        }
    }

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        let role = match &self.role {
            ElectionRole::Follower => None,
            ElectionRole::PreCandidate(count) | ElectionRole::Candidate(count) => Some(count.until),
            ElectionRole::Leader(leader) => leader.timeout(cx),
        };
        earlier(self.stand_at, role)
    }

    /// Joins another term. This node's role in the term before ends.
    pub(super) fn join_term(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        term: Term,
        leader: Option<MemberId>,
    ) {
        self.role = ElectionRole::Follower;
        self.term = term;
        self.proofs.join(term);
        self.term_seen = self.term_seen.max(term);
        // A member that follows a coordinator gives no other candidate its vote in that term.
        self.voted = leader;
        self.leader = None;
        self.stand_at = None;
        self.set_leader(cx, tables, leader);
    }

    pub(super) fn set_leader(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        leader: Option<MemberId>,
    ) {
        if self.leader == leader {
            return;
        }
        self.leader = leader;
        if let Some(id) = leader {
            self.stand_at = None;
            if !self.leads() {
                self.role = ElectionRole::Follower;
            }
            cx.event(Event::Coordinator {
                name: tables.name_of(id),
                term: self.term.0,
            });
        }
    }

    /// Steps down. This node publishes nothing more in this term: its next candidacy takes another
    /// term.
    pub(super) fn follow(&mut self, cx: &mut Context, tables: &Tables) {
        if self.leads() {
            self.leader = None;
            self.proofs.settle();
            self.abandon(cx, tables);
        }
        self.role = ElectionRole::Follower;
        self.stand_at = None;
    }

    /// The term ends. The members that asked for changes ask the next coordinator, or get the
    /// answer that the outcome is not known.
    fn abandon(&mut self, cx: &mut Context, tables: &Tables) {
        if let ElectionRole::Leader(leader) =
            std::mem::replace(&mut self.role, ElectionRole::Follower)
        {
            leader.abandon(cx, tables.cluster());
        }
    }

    /// Whether this node hears a coordinator: by round trips, and not if the coordinator's host
    /// denies it.
    fn heard(&self, cx: &Context, pings: &Pings) -> bool {
        match self.leader {
            None => false,
            Some(leader) if leader == cx.me() => self.leads(),
            Some(leader) => {
                !pings.detector.suspected(leader)
                    && !pings.silent(cx, leader)
                    && pings.detector.answered_at(leader).is_some_and(|at| {
                        cx.now.since(at)
                            <= cx.config.timing.ping_interval
                                * (cx.config.timing.pings_missed_max + 1)
                                + pings.indulgence()
                    })
            }
        }
    }

    /// Gives up a silent coordinator. If this node coordinates and no majority answers it, it steps
    /// down (rule 6).
    pub(super) fn watch_leader(&mut self, cx: &mut Context, tables: &Tables, pings: &Pings) {
        let me = cx.me();
        match self.leader {
            Some(leader) if leader == me => {
                let answers = |v: MemberId| v == me || !pings.silent(cx, v);
                if !tables.both_majorities(answers) && !broken(&mutant::LEADS_UNHEARD) {
                    self.follow(cx, tables);
                }
            }
            Some(leader) if pings.silent(cx, leader) || tables.member(leader).is_none() => {
                self.leader = None;
            }
            Some(_) | None => {}
        }
    }

    /// Stands for election if there is no coordinator. Returns the votes if that is enough to win.
    pub(super) fn elect(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
    ) -> Option<Votes> {
        let me = cx.me();
        let may_stand = !tables.out && tables.voters().any(|v| v == me);
        if self.leader.is_some() || !may_stand || cx.hung() {
            self.stand_at = None;
            if !self.leads() {
                self.role = ElectionRole::Follower;
                self.standing = None;
            }
            return None;
        }
        if self.standing.is_some() {
            return self.become_candidate(cx, tables);
        }
        match &self.role {
            ElectionRole::PreCandidate(count) | ElectionRole::Candidate(count)
                if cx.now >= count.until =>
            {
                self.role = ElectionRole::Follower;
                let delay = self.rank_delay(cx, tables, pings)
                    + RETRY_DELAY
                    + cx.jitter(Duration::ZERO, RETRY_JITTER);
                self.stand_at = Some(cx.now + delay);
            }
            ElectionRole::Follower => match self.stand_at {
                None => {
                    self.stand_at = Some(
                        cx.now
                            + self.rank_delay(cx, tables, pings)
                            + cx.jitter(Duration::ZERO, STAND_JITTER),
                    )
                }
                Some(at) if at <= cx.now => return self.ask_for_votes(cx, tables),
                Some(_) => {}
            },
            ElectionRole::PreCandidate(_)
            | ElectionRole::Candidate(_)
            | ElectionRole::Leader(_) => {}
        }
        None
    }

    /// Age is a preference: a younger candidate gives each older voter that answers some time.
    fn rank_delay(&self, cx: &Context, tables: &Tables, pings: &Pings) -> Duration {
        let me = cx.me();
        let older = tables
            .accepted
            .voters
            .iter()
            .take_while(|v| **v != me)
            .filter(|v| !pings.silent(cx, **v))
            .count();
        RANK_DELAY * u32::try_from(older).unwrap_or(u32::MAX)
    }

    /// Asks whether it would win. It spends a term only if it would.
    fn ask_for_votes(&mut self, cx: &mut Context, tables: &Tables) -> Option<Votes> {
        let term = self.next_term(cx);
        self.stand_at = None;
        let count = VoteCount::begin(cx, tables, term, None);
        self.role = ElectionRole::PreCandidate(count);
        ask_electors(cx, tables, term, Message::PreVote);
        self.count(cx, tables)
    }

    /// A term above every term that this node knows, or the one for which its vote is written.
    fn next_term(&self, cx: &Context) -> Term {
        let known = self.term.max(self.term_seen);
        let promised = cx.disk.as_ref().map_or(Term(0), |disk| disk.vote().0);
        match self.standing {
            Some(term) if term > self.term && term >= self.term_seen && term == promised => term,
            _ => known.max(promised).next(),
        }
    }

    /// Becomes a candidate in a term above every term that it knows. Returns the votes if its own
    /// is enough.
    pub(super) fn become_candidate(&mut self, cx: &mut Context, tables: &Tables) -> Option<Votes> {
        let term = self.next_term(cx);
        if cx.promise_vote(term, cx.me()) != Promise::Kept {
            // It stands once its vote for itself is synced.
            self.standing = Some(term);
            return None;
        }
        self.standing = None;
        if self.leads() {
            self.loyal_until = cx.now + VOTE_PATIENCE;
        }
        self.abandon(cx, tables);
        self.proofs.settle();
        self.proofs.join(term);
        self.term = term;
        self.term_seen = term;
        self.voted = Some(cx.me());
        self.leader = None;
        self.stand_at = None;
        let signature = cx.signing.sign(&tables.vote(term, cx.me()));
        let count = VoteCount::begin(cx, tables, term, Some(signature));
        self.role = ElectionRole::Candidate(count);
        ask_electors(cx, tables, term, Message::Vote);
        self.count(cx, tables)
    }

    /// The votes, if they are enough to win. Enough answers to a pre-candidate make it a candidate.
    fn count(&mut self, cx: &mut Context, tables: &Tables) -> Option<Votes> {
        let enough = |count: &VoteCount| tables.both_majorities(|v| count.granted.contains_key(&v));
        match &self.role {
            ElectionRole::PreCandidate(count) if enough(count) => self.become_candidate(cx, tables),
            ElectionRole::Candidate(count) if enough(count) => Some(count.granted.clone()),
            ElectionRole::Follower
            | ElectionRole::PreCandidate(_)
            | ElectionRole::Candidate(_)
            | ElectionRole::Leader(_) => None,
        }
    }

    fn answer(&self, tables: &Tables, ballot: Ballot, granted: bool) -> BallotAnswer {
        BallotAnswer {
            term: ballot.term,
            granted,
            mine: self.term,
            accepted: tables.accepted.name,
        }
    }

    pub(super) fn on_pre_vote(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
        from: MemberId,
        ballot: Ballot,
    ) {
        if self.leader == Some(from) && ballot.term > self.term {
            // A coordinator asks for no votes, so the sender coordinates nothing. It answers pings,
            // so nothing else would correct this node's mistake.
            self.leader = None;
        }
        let granted = !tables.out
            && !cx.hung()
            && (!self.heard(cx, pings) || broken(&mutant::PREEMPTS))
            && ballot.term > self.term
            && ballot.accepted.order() >= tables.accepted.name.order();
        let answer = self.answer(tables, ballot, granted);
        cx.send(from, Message::PreVoteAnswer(answer));
    }

    pub(super) fn on_vote(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
        from: MemberId,
        ballot: Ballot,
    ) {
        let up_to_date = ballot.accepted.order() >= tables.accepted.name.order()
            || broken(&mutant::VOTES_FOR_STALE);
        let first = (self.voted.is_none_or(|v| v == from) && self.leader.is_none())
            || broken(&mutant::VOTES_TWICE);
        let free = ballot.term > self.term || (ballot.term == self.term && first);
        // A voter that hears a coordinator votes for no other member, and leaves a coordinator that
        // stands again the time for it. Otherwise any member could replace it, by asking.
        let led = (self.heard(cx, pings) && self.leader != Some(from))
            || (cx.now < self.loyal_until && self.voted != Some(from) && self.leader != Some(from));
        // Who votes twice, or preempts, does not mind that either.
        let minds = [
            &mutant::VOTES_WHILE_LED,
            &mutant::VOTES_TWICE,
            &mutant::PREEMPTS,
        ];
        let led = led && !minds.into_iter().any(broken);
        let granted = !tables.out && up_to_date && free && !led;
        self.term_seen = self.term_seen.max(ballot.term);
        let granted = granted
            && match cx.promise_vote(ballot.term, from) {
                Promise::Kept => true,
                Promise::Awaited => return cx.wait(from, Message::Vote(ballot)),
                Promise::Excluded => false,
            };
        if granted {
            if self.leader == Some(from) {
                self.loyal_until = cx.now + VOTE_PATIENCE;
            }
            if ballot.term > self.term {
                self.follow(cx, tables);
                self.join_term(cx, tables, ballot.term, None);
            }
            self.voted = Some(from);
            self.role = ElectionRole::Follower;
            self.stand_at = Some(cx.now + VOTE_PATIENCE + cx.jitter(Duration::ZERO, RETRY_JITTER));
        }
        let answer = self.answer(tables, ballot, granted);
        let signature = granted.then(|| cx.signing.sign(&tables.vote(ballot.term, from)));
        cx.send(from, Message::VoteAnswer(answer, signature));
    }

    pub(super) fn on_pre_vote_answer(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        from: MemberId,
        answer: BallotAnswer,
    ) -> Option<Votes> {
        self.term_seen = self.term_seen.max(answer.mine);
        if let ElectionRole::PreCandidate(count) = &mut self.role
            && count.term == answer.term
            && answer.granted
        {
            let granted = GrantedVotes {
                accepted: answer.accepted,
                signature: None,
            };
            count.granted.insert(from, granted);
            return self.count(cx, tables);
        }
        None
    }

    pub(super) fn on_vote_answer(
        &mut self,
        cx: &mut Context,
        tables: &mut Tables,
        from: MemberId,
        answer: BallotAnswer,
        signature: Option<Signature>,
    ) -> Option<Votes> {
        self.term_seen = self.term_seen.max(answer.mine);
        let stands =
            matches!(&self.role, ElectionRole::Candidate(count) if count.term == answer.term);
        if stands && !answer.granted && answer.accepted.order() > tables.accepted.name.order() {
            tables.recover_elsewhere(cx, from);
        }
        let signature = match tables.vote_key(from).filter(|_| stands && answer.granted) {
            // Others could not check it either.
            None => None,
            Some(key) => {
                let vote = tables.vote(answer.term, cx.me());
                let Some(signature) = signature.filter(|s| s.is_of(&key, &vote)) else {
                    // An election proof with this vote would convince no other member.
                    cx.ignore();
                    return None;
                };
                Some(signature)
            }
        };
        match &mut self.role {
            ElectionRole::Candidate(count) if count.term == answer.term && answer.granted => {
                let accepted = answer.accepted;
                let granted = GrantedVotes {
                    accepted,
                    signature,
                };
                count.granted.insert(from, granted);
                return self.count(cx, tables);
            }
            ElectionRole::Leader(leader) if self.term == answer.term && answer.granted => {
                leader.joined(from)
            }
            ElectionRole::Follower
            | ElectionRole::PreCandidate(_)
            | ElectionRole::Candidate(_)
            | ElectionRole::Leader(_) => {}
        }
        None
    }

    // ---- without a coordinator

    /// Tells people, again and again, why there is no coordinator. A half that stopped says so by
    /// itself, and needs none.
    pub(super) fn report_leaderless(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        pings: &Pings,
        is_stopped: bool,
    ) {
        if self.leader.is_some() || tables.out {
            self.leaderless = None;
            return;
        }
        let (since, told) = *self.leaderless.get_or_insert((cx.now, None));
        if !is_stopped
            && cx.now.since(since) >= LEADERLESS_PATIENCE
            && told.is_none_or(|at| cx.now.since(at) >= LEADERLESS_AGAIN)
        {
            self.leaderless = Some((since, Some(cx.now)));
            let why = cx.explain(&leaderless_problem(cx, tables, pings));
            cx.event(Event::NoCoordinator { why });
        }
    }

    /// For how long no coordinator has been known.
    pub(super) fn leaderless_for(&self, now: Time) -> Duration {
        self.leaderless
            .map_or(Duration::ZERO, |(since, _)| now.since(since))
    }
}

/// A candidate asks all other voters.
fn ask_electors(cx: &mut Context, tables: &Tables, term: Term, ask: fn(Ballot) -> Message) {
    let accepted = tables.accepted.name;
    let me = cx.me();
    for voter in tables.distinct_voters().into_iter().filter(|v| *v != me) {
        cx.send(voter, ask(Ballot { term, accepted }));
    }
}

/// Why no coordinator is known. While a majority answers, the reason is the election: a voter that
/// is missing does not stand in its way.
pub(super) fn leaderless_problem(cx: &Context, tables: &Tables, pings: &Pings) -> Problem {
    let me = cx.me();
    if tables.both_majorities(|v| v == me || !pings.silent(cx, v)) {
        return Problem::Election;
    }
    let voters = tables.distinct_voters();
    let missing = |v: &MemberId| MissingVoter {
        name: tables.name_of(*v),
        http: tables.member(*v).and_then(|m| m.addresses.http),
    };
    let silent = voters.iter().filter(|v| **v != me && pings.silent(cx, **v));
    Problem::NoMajority {
        missing: silent.map(missing).collect(),
        voters: voters.len(),
        votes: voters.contains(&me),
        heir: cx.is_heir(),
    }
}
