//! Votes, pre-votes and terms (rules 1, 2 and 6).

use super::context::{Context, earlier};
use super::council::Council;
use super::event::Event;
use super::publication::Leader;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Answer, Ballot, Message};
use doyen_placement::quorum::majority;
use doyen_placement::{MemberId, TableName, Term};
use std::collections::BTreeMap;
use std::time::Duration;

/// Candidacy waits this long for each older voter that answers.
const RANK_DELAY: Duration = Duration::from_millis(60);
/// And at most this much more.
const STAND_JITTER: Duration = Duration::from_millis(10);
/// How long votes are waited for.
const VOTE_PATIENCE: Duration = Duration::from_millis(200);
/// After a vote for somebody else, or a failed candidacy.
const RETRY_DELAY: Duration = Duration::from_millis(60);
/// Random part of that.
const RETRY_JITTER: Duration = Duration::from_millis(120);

/// What a member does about coordination.
#[derive(Debug)]
pub(super) enum Role {
    /// Follows, or waits until it may stand.
    Follower,
    /// Asks whether it would be voted for. The term is the one to be.
    PreCandidate(Canvass),
    /// Asks for votes in `term`.
    Candidate(Canvass),
    /// Coordinates in `term`.
    Leader(Box<Leader>),
}

/// Answers to a candidate.
#[derive(Debug)]
pub(super) struct Canvass {
    term: Term,
    until: Time,
    /// Who said yes, and what it had accepted.
    granted: BTreeMap<MemberId, TableName>,
}

impl Council {
    pub(super) fn role_timeout(&self, cx: &Context) -> Option<Time> {
        match &self.role {
            Role::Follower => None,
            Role::PreCandidate(canvass) | Role::Candidate(canvass) => Some(canvass.until),
            Role::Leader(leader) => earlier(leader.timeout(cx), None),
        }
    }

    /// Whether majorities of the committed and the accepted configuration are among these (rule 2).
    /// Oneself counts.
    pub(super) fn both_majorities(&self, with: impl Fn(MemberId) -> bool) -> bool {
        (self.quorum(&self.committed_voters, &with) || broken(&mutant::WINS_WITHOUT_COMMITTED))
            && (self.quorum(&self.accepted.voters, &with) || broken(&mutant::WINS_WITHOUT_ACCEPTED))
    }

    /// A majority of these voters. After an operator declared some dead: everybody else, because
    /// what a lost majority committed may be known to any one of those who are left.
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

    /// Another term. What this node was in the one before is over.
    pub(super) fn join_term(&mut self, cx: &mut Context, term: Term, leader: Option<MemberId>) {
        self.role = Role::Follower;
        self.term = term;
        self.term_seen = self.term_seen.max(term);
        // Whoever follows a coordinator gives nobody else a vote in its term.
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

    /// Steps down. Nothing is published in this term any more: the next candidacy takes another.
    pub(super) fn follow(&mut self, cx: &mut Context) {
        if matches!(self.role, Role::Leader(_)) {
            self.leader = None;
            self.refuse_all(cx);
        }
        self.role = Role::Follower;
        self.stand_at = None;
    }

    /// Whether a coordinator is heard: by round trips, and not by whom its host denies.
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

    /// Gives a silent coordinator up, and steps down without the answers of a majority (rule 6).
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
            Role::PreCandidate(canvass) | Role::Candidate(canvass) if cx.now >= canvass.until => {
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
                Some(at) if at <= cx.now => self.canvass(cx),
                Some(_) => {}
            },
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }

    /// Age is a preference: whoever is younger gives each older voter that answers some time.
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

    /// Asks whether it would win. A term is spent only if it would.
    fn canvass(&mut self, cx: &mut Context) {
        let term = self.term.max(self.term_seen).next();
        self.stand_at = None;
        let granted = BTreeMap::from([(cx.me(), self.accepted.name)]);
        self.role = Role::PreCandidate(Canvass {
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

    /// Stands above every term that it knows.
    pub(super) fn stand(&mut self, cx: &mut Context) {
        let term = self.term.max(self.term_seen).next();
        self.refuse_all(cx);
        self.term = term;
        self.term_seen = term;
        self.voted = Some(cx.me());
        self.leader = None;
        self.stand_at = None;
        let granted = BTreeMap::from([(cx.me(), self.accepted.name)]);
        self.role = Role::Candidate(Canvass {
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
            Role::PreCandidate(canvass)
                if self.both_majorities(|v| canvass.granted.contains_key(&v)) =>
            {
                self.stand(cx)
            }
            Role::Candidate(canvass)
                if self.both_majorities(|v| canvass.granted.contains_key(&v)) =>
            {
                let granted = canvass.granted.clone();
                self.win(cx, granted);
            }
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }

    fn win(&mut self, cx: &mut Context, granted: BTreeMap<MemberId, TableName>) {
        // A table that both majorities have accepted is committed, whichever member proposed it
        // (rule 2).
        let mine = self.accepted.name;
        let same = |name: &TableName| {
            *name == mine || (name.version == mine.version && broken(&mutant::WINS_BY_VERSION))
        };
        let committed = self.both_majorities(|v| granted.get(&v).is_some_and(same));
        self.role = Role::Leader(Box::new(Leader::new(cx, granted.into_keys().collect())));
        if committed && mine.order() > self.committed.name.order() {
            let table = self.accepted.clone();
            self.committed_voters = table.voters.clone();
            self.install(cx, table, None);
        }
        self.set_leader(cx, Some(cx.me()));
        self.ping_all(cx);
    }

    pub(super) fn on_pre_vote(&mut self, cx: &mut Context, from: MemberId, ballot: Ballot) {
        if self.leader == Some(from) && ballot.term > self.term {
            // Whoever coordinates asks nobody whether it might: that was somebody's mistake. It
            // answers pings, so that nothing else would ever say that it coordinates nothing.
            self.leader = None;
        }
        let granted = !self.out
            && !cx.hung()
            && (!self.heard(cx) || broken(&mutant::PREEMPTS))
            && ballot.term > self.term
            && ballot.accepted.order() >= self.accepted.name.order();
        let answer = Answer {
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
        let granted = !self.out && up_to_date && free;
        self.term_seen = self.term_seen.max(ballot.term);
        if granted {
            if ballot.term > self.term {
                self.follow(cx);
                self.join_term(cx, ballot.term, None);
            }
            self.voted = Some(from);
            self.role = Role::Follower;
            self.stand_at = Some(cx.now + VOTE_PATIENCE + cx.jitter(Duration::ZERO, RETRY_JITTER));
        }
        let answer = Answer {
            term: ballot.term,
            granted,
            mine: self.term,
            accepted: self.accepted.name,
        };
        cx.send(from, Message::VoteAnswer(answer));
    }

    pub(super) fn on_pre_vote_answer(&mut self, cx: &mut Context, from: MemberId, answer: Answer) {
        self.term_seen = self.term_seen.max(answer.mine);
        if let Role::PreCandidate(canvass) = &mut self.role
            && canvass.term == answer.term
            && answer.granted
        {
            canvass.granted.insert(from, answer.accepted);
            self.count(cx);
        }
    }

    pub(super) fn on_vote_answer(&mut self, cx: &mut Context, from: MemberId, answer: Answer) {
        self.term_seen = self.term_seen.max(answer.mine);
        let stands = matches!(&self.role, Role::Candidate(canvass) if canvass.term == answer.term);
        if stands && !answer.granted && answer.accepted.order() > self.accepted.name.order() {
            self.recovers_elsewhere(cx, from);
        }
        match &mut self.role {
            Role::Candidate(canvass) if canvass.term == answer.term && answer.granted => {
                canvass.granted.insert(from, answer.accepted);
                self.count(cx);
            }
            Role::Leader(leader) if self.term == answer.term && answer.granted => {
                leader.joined(from)
            }
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {}
        }
    }
}
