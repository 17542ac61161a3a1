//! Elections (rules 1, 2 and 6): pre-votes, votes, who stands when.

use super::context::Context;
use super::coordinator::Coordinator;
use super::seat::{Office, Seat};
use crate::time::Time;
use crate::wire::{Answer, Ballot, Message};
use doyen_placement::quorum::majority;
use doyen_placement::{MemberId, MemberState, TableName, Term};
use std::collections::BTreeMap;
use std::time::Duration;

/// How much longer each younger member waits before it stands.
const RANK_DELAY: Duration = Duration::from_millis(60);
/// Spread of candidacies.
const STAND_JITTER: Duration = Duration::from_millis(20);
/// How long a candidate waits for votes.
const BALLOT_TIME: Duration = Duration::from_millis(150);
/// Spread of what follows a vote without a winner.
const RETRY_JITTER: Duration = Duration::from_millis(150);
/// Without a coordinator for this long, people are told why.
const LAMENT_AFTER: Duration = Duration::from_secs(2);

/// Asks for votes.
#[derive(Debug)]
pub(super) struct Candidate {
    stage: Stage,
    term: Term,
    /// Who said yes, and what it has accepted.
    granted: BTreeMap<MemberId, TableName>,
    pub(super) until: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Asking whether anybody would vote: no term is spent.
    PreVote,
    /// Asking for votes.
    Vote,
}

impl Seat {
    /// Whether this node may coordinate.
    fn eligible(&self, cx: &Context) -> bool {
        let stays = self.tables.accepted.member(cx.me).is_some_and(|m| matches!(m.state, MemberState::Live | MemberState::Draining));
        stays && self.tables.accepted.voters.contains(&cx.me) && !cx.mute()
    }

    /// The coordinator is lost when it does not answer, or when its host says that nobody listens there (rule 6).
    pub(super) fn watch_coordinator(&mut self, cx: &mut Context) {
        let Some(coordinator) = self.coordinator.filter(|c| *c != cx.me) else { return };
        let timing = &cx.config.timing;
        let silent = cx.detector.silent(coordinator, cx.now, timing.pings_missed_max, timing.ping_interval);
        if silent || cx.detector.suspected(coordinator) || !self.tables.is_member(coordinator) {
            self.coordinator = None;
            self.lost_at = cx.now;
        }
    }

    /// Stands for office when its turn has come.
    pub(super) fn consider_standing(&mut self, cx: &mut Context) {
        match &self.office {
            Office::Coordinator(_) => {}
            Office::Candidate(candidate) if cx.now >= candidate.until => {
                let pause = self.turn(cx) + cx.jitter(RETRY_JITTER);
                self.office = Office::Follower { stand_at: Some(cx.now + pause) };
            }
            Office::Candidate(_) => {}
            Office::Follower { .. } if self.coordinator.is_some() || !self.eligible(cx) => {
                self.office = Office::Follower { stand_at: None }
            }
            Office::Follower { stand_at: None } => {
                let at = cx.now + self.turn(cx) + cx.jitter(STAND_JITTER);
                self.office = Office::Follower { stand_at: Some(at) };
            }
            Office::Follower { stand_at: Some(at) } if cx.now >= *at => self.stand(cx, Stage::PreVote, self.term.next()),
            Office::Follower { .. } => {}
        }
        if self.coordinator.is_none() && !matches!(self.office, Office::Coordinator(_)) && cx.now.since(self.lost_at) > LAMENT_AFTER {
            let why = self.why_nobody_coordinates(cx);
            cx.lament(why);
        }
    }

    /// For people: who is missing, and what can be done.
    pub(super) fn why_nobody_coordinates(&self, cx: &Context) -> String {
        let timing = &cx.config.timing;
        let silent = |m: MemberId| m != cx.me && cx.detector.silent(m, cx.now, timing.pings_missed_max, timing.ping_interval);
        let missing: Vec<String> = self.tables.voters().into_iter().filter(|v| silent(*v)).map(|v| self.tables.name_of(v)).collect();
        if missing.is_empty() {
            return "no coordinator: an election is under way".to_owned();
        }
        format!(
            "no coordinator: a majority of the voters is needed, and {} {} not answer; start nothing in their place: when they are gone for \
             good, run `doyen recover --assert-dead {}`",
            missing.join(", "),
            if missing.len() == 1 { "does" } else { "do" },
            missing.join(" ")
        )
    }

    /// How long this node gives older ones: each voter that is older and not known to be gone has its turn before.
    fn turn(&self, cx: &Context) -> Duration {
        let timing = &cx.config.timing;
        let gone = |m: MemberId| cx.detector.suspected(m) || cx.detector.silent(m, cx.now, timing.pings_missed_max, timing.ping_interval);
        let older = self.tables.accepted.voters.iter().take_while(|v| **v != cx.me).filter(|v| !gone(**v)).count();
        RANK_DELAY * u32::try_from(older).unwrap_or(u32::MAX)
    }

    /// Stands again at once, above a term that was heard of (rule 1), without pre-vote.
    pub(super) fn stand_above(&mut self, cx: &mut Context, term: Term) {
        if self.eligible(cx) {
            self.stand(cx, Stage::Vote, term.next());
        } else {
            self.step_down(cx);
        }
    }

    /// The operator's word replaces votes: stand now.
    pub(super) fn stand_now(&mut self, cx: &mut Context) {
        self.stand(cx, Stage::Vote, self.term.next());
    }

    fn stand(&mut self, cx: &mut Context, stage: Stage, term: Term) {
        if stage == Stage::Vote {
            // One's own vote: once per term, like anybody's.
            self.term = term;
            self.voted = Some(cx.me);
            self.coordinator = None;
        }
        let granted = BTreeMap::from([(cx.me, self.tables.accepted_name)]);
        let until = cx.now + BALLOT_TIME + cx.jitter(RETRY_JITTER);
        self.office = Office::Candidate(Candidate { stage, term, granted, until });
        let ballot = Ballot { term, accepted: self.tables.accepted_name };
        let me = cx.me;
        for voter in self.tables.voters().into_iter().filter(|v| *v != me) {
            cx.send(voter, if stage == Stage::Vote { Message::Vote(ballot) } else { Message::PreVote(ballot) });
        }
        self.count_votes(cx);
    }

    /// Would this node vote for it? Not while it hears a coordinator (rule 6).
    pub(super) fn handle_pre_vote(&mut self, cx: &mut Context, from: MemberId, ballot: Ballot) {
        let hears = self.coordinator.is_some();
        let granted = !hears && ballot.term > self.term && ballot.accepted.order() >= self.tables.order();
        cx.send(from, Message::PreVoteAnswer(self.answer(ballot.term, granted)));
    }

    /// Rule 1: once per term, and only for whoever has accepted at least what this node has.
    pub(super) fn handle_vote(&mut self, cx: &mut Context, from: MemberId, ballot: Ballot) {
        let fresh = ballot.term > self.term || (ballot.term == self.term && self.voted == Some(from));
        let granted = fresh && ballot.accepted.order() >= self.tables.order();
        if granted && ballot.term > self.term {
            self.term = ballot.term;
            self.voted = Some(from);
            self.coordinator = None;
            self.lost_at = cx.now;
            // Rule 6: whoever held office or stood in a lower term does so no longer. The candidate has its ballot's time.
            self.office = Office::Follower { stand_at: Some(cx.now + BALLOT_TIME + cx.jitter(RETRY_JITTER)) };
        }
        cx.send(from, Message::VoteAnswer(self.answer(ballot.term, granted)));
    }

    fn answer(&self, term: Term, granted: bool) -> Answer {
        Answer { term, granted, mine: self.term, accepted: self.tables.accepted_name }
    }

    pub(super) fn handle_answer(&mut self, cx: &mut Context, from: MemberId, answer: Answer, stage_is_vote: bool) {
        let Office::Candidate(candidate) = &mut self.office else { return };
        let stage = if stage_is_vote { Stage::Vote } else { Stage::PreVote };
        if candidate.stage != stage || candidate.term != answer.term {
            return;
        }
        if answer.granted {
            candidate.granted.insert(from, answer.accepted);
            self.count_votes(cx);
        } else if answer.mine > self.term && self.coordinator.is_none() {
            // The next ballot is for a term above it; nobody was voted for in that term here.
            self.term = answer.mine;
            self.voted = None;
            let pause = self.turn(cx) + cx.jitter(STAND_JITTER);
            self.office = Office::Follower { stand_at: Some(cx.now + pause) };
        }
    }

    /// Rule 2.
    fn count_votes(&mut self, cx: &mut Context) {
        let Office::Candidate(candidate) = &self.office else { return };
        let (installed, accepted) = (&self.tables.installed.voters, &self.tables.accepted.voters);
        // What an operator vouched for votes as it is needed (`recover`).
        let yes = |m: MemberId| candidate.granted.contains_key(&m) || self.asserted.contains(&m);
        if !majority(installed, yes) || !majority(accepted, yes) {
            return;
        }
        let (stage, term) = (candidate.stage, candidate.term);
        if stage == Stage::PreVote {
            return self.stand(cx, Stage::Vote, term);
        }
        let same = |m: MemberId| candidate.granted.get(&m) == Some(&self.tables.accepted_name);
        let committed = self.tables.accepted_name != self.tables.installed_name && majority(installed, same) && majority(accepted, same);
        let joined = candidate.granted.keys().copied().collect();
        self.office = Office::Coordinator(Box::new(Coordinator::new(cx, joined, true)));
        self.coordinator = Some(cx.me);
        if committed {
            let (table, name) = (self.tables.accepted.clone(), self.tables.accepted_name);
            self.install(cx, table, name, None);
        }
        self.announce(cx);
    }
}
