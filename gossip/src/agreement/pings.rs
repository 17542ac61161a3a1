//! Pings: which peers answer, how late this node is with them, and what their answers say.

use super::api::Output;
use super::context::{Context, earlier};
use super::election::CoordinatorElection;
use super::event::Event;
use super::lease::LeaseAnswers;
use super::tables::Tables;
use crate::detector::{Detector, Hinted, SilencePatience};
use crate::hints::Hint;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Heartbeat, Message};
use doyen_placement::{MemberId, TableName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long all members are asked for a proof that they are there.
const PROVES_FOR: Duration = Duration::from_secs(1);
/// If this node was woken late, its patience grows by this many times the delay: other processes
/// are rarely better off.
const PATIENCE_FACTOR: u32 = 4;
/// The greatest lateness that counts. More is a pause (`woke`), and silence is measured from the
/// end of a pause.
const LATENESS_MAX: Duration = Duration::from_millis(250);
/// The part of the lateness that is left after a ping interval: half of it after 1.3 s.
const LATENESS_DECAY: f64 = 0.95;
/// If hints speak against a member, its time to answer shrinks to one of this many parts.
const HINTED_SHARE: u32 = 3;

/// The pings of a member, and their answers.
#[derive(Debug)]
pub(super) struct Pings {
    pub(super) detector: Detector,
    /// Answers, as far as they may count for a lease.
    pub(super) answers: LeaseAnswers,
    pub(super) next: Time,
    /// Until then, all members are asked.
    proves_until: Option<Time>,
    /// How late this node has been with its pings lately.
    lateness: Duration,
    /// Numbers the ping intervals.
    pub(super) round: u64,
    /// When the coordinator last pinged this node.
    pub(super) led_at: Option<Time>,
    /// The committed tables that peers name.
    heard_committed: BTreeMap<MemberId, TableName>,
}

impl Pings {
    pub(super) fn new(now: Time) -> Self {
        Self {
            detector: Detector::default(),
            answers: LeaseAnswers::default(),
            next: now,
            proves_until: None,
            lateness: Duration::ZERO,
            round: 0,
            led_at: None,
            heard_committed: BTreeMap::new(),
        }
    }

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        earlier(
            Some(self.next),
            self.detector.due(cx.now, &self.patience(cx)),
        )
    }

    pub(super) fn late(&self, cx: &Context) -> bool {
        cx.now > self.next + cx.config.timing.ping_interval * 2
    }

    // ---- who is asked

    /// The members whose answers matter to this node.
    pub(super) fn asked(
        &self,
        me: MemberId,
        tables: &Tables,
        election: &CoordinatorElection,
    ) -> BTreeSet<MemberId> {
        let mut asked = tables.distinct_voters();
        asked.extend(&tables.committed.voters);
        asked.extend(election.leader);
        if election.leads() || self.proves_until.is_some() {
            asked.extend(tables.members());
        }
        asked.remove(&me);
        // Otherwise it would be silent as soon as its table is in force, if that took long.
        asked.retain(|id| !tables.is_heir_to_be(*id));
        asked
    }

    pub(super) fn ping(&mut self, cx: &mut Context, peer: MemberId, heartbeat: Heartbeat) {
        let sequence = self.detector.sent(peer, cx.now);
        cx.send(
            peer,
            Message::Ping(Heartbeat {
                sequence,
                ..heartbeat
            }),
        );
    }

    pub(super) fn ping_all(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        election: &CoordinatorElection,
    ) {
        for peer in self.asked(cx.me(), tables, election) {
            self.ping(cx, peer, election.heartbeat(tables));
        }
    }

    /// Asks all members, now and for a moment.
    pub(super) fn prove(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        election: &CoordinatorElection,
    ) {
        self.proves_until = Some(cx.now + PROVES_FOR);
        self.ping_all(cx, tables, election);
    }

    /// Sends the pings that are due.
    pub(super) fn turn(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        election: &CoordinatorElection,
    ) {
        let heartbeat = election.heartbeat(tables);
        if self.next <= cx.now {
            let late = cx.now.since(self.next).min(LATENESS_MAX);
            self.lateness = self.lateness.mul_f64(LATENESS_DECAY).max(late);
            self.next = cx.now + cx.config.timing.ping_interval;
            self.proves_until = self.proves_until.filter(|until| *until > cx.now);
            let asked = self.asked(cx.me(), tables, election);
            self.detector.retain(|m| asked.contains(&m));
            self.heard_committed.retain(|m, _| asked.contains(m));
            let voters = [&tables.committed.voters, &tables.accepted.voters];
            self.answers
                .retain(|m| voters.iter().any(|v| v.contains(&m)));
            self.round += 1;
            for peer in self.due(cx, tables, election) {
                self.ping(cx, peer, heartbeat);
            }
        }
        for peer in self.detector.quick_pings(cx.now) {
            self.ping(cx, peer, heartbeat);
        }
    }

    /// This node asks nothing for an interval.
    pub(super) fn pause(&mut self, cx: &Context) {
        self.next = self.next.max(cx.now + cx.config.timing.ping_interval);
    }

    pub(super) fn on_hint(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        election: &CoordinatorElection,
        hint: &Hint,
    ) {
        match hint {
            Hint::Refused(member) => match self.detector.refused(*member, cx.now) {
                Hinted::First => self.ping(cx, *member, election.heartbeat(tables)),
                Hinted::Enough if election.leads() => {
                    let name = tables.accepted.member(*member).map(|m| m.name.clone());
                    cx.outputs.extend(
                        name.map(|name| Output::Event(Event::Suspected { name, id: *member })),
                    );
                }
                Hinted::Enough | Hinted::Known => {}
            },
            Hint::Suspected(member) if self.asked(cx.me(), tables, election).contains(member) => {
                self.ping(cx, *member, election.heartbeat(tables));
            }
            Hint::Suspected(_) | Hint::Alive(_) | Hint::Address(_) => {}
        }
    }

    // ---- who answers

    /// A peer has answered. Returns false if that answers no ping.
    pub(super) fn answered(
        &mut self,
        cx: &Context,
        from: MemberId,
        pong: &Heartbeat,
        tables: &Tables,
    ) -> bool {
        let Some(sent) = self.detector.answered(from, pong.sequence, cx.now) else {
            return false;
        };
        let sent = if broken(&mutant::LEASE_FROM_ARRIVAL) {
            cx.now
        } else {
            sent
        };
        let (theirs, ours) = (pong.accepted.order(), tables.accepted.name.order());
        self.answers.take(from, sent, theirs, ours);
        self.heard_committed.insert(from, pong.committed);
        true
    }

    /// Whether a peer has said that it has the table in force, or a later one.
    pub(super) fn has_installed(&self, peer: MemberId, table: TableName) -> bool {
        let heard = self.heard_committed.get(&peer);
        heard.is_some_and(|name| name.order() >= table.order())
    }

    pub(super) fn silent(&self, cx: &Context, member: MemberId) -> bool {
        self.detector.silent(member, cx.now, &self.patience(cx))
    }

    pub(super) fn answers_now(&self, cx: &Context, member: MemberId) -> bool {
        let recent = cx.config.timing.ping_interval * 3;
        let at = self.detector.answered_at(member);
        at.is_some_and(|at| cx.now.since(at) <= recent) && !self.silent(cx, member)
    }

    /// Whether this process itself answers this node, in its own name or in that of a member whose
    /// directory it has. What an heir answers is no sign of life of the member for which it speaks.
    pub(super) fn lives(&self, cx: &Context, process: MemberId) -> bool {
        let answers =
            |voice: MemberId| self.detector.answered_at(voice).is_some() && !self.silent(cx, voice);
        process == cx.process() || cx.voices_of(process).any(answers)
    }

    /// The members that have answered no ping that was sent since this time.
    pub(super) fn unproven(&self, me: MemberId, tables: &Tables, since: Time) -> Vec<MemberId> {
        let members = tables.committed.members.iter().map(|m| m.id);
        let proven = |m: MemberId| self.detector.answered_at(m).is_some_and(|at| at >= since);
        members.filter(|m| *m != me && !proven(*m)).collect()
    }

    /// Members of the table in force that do not answer this node.
    pub(super) fn unanswered(&self, cx: &Context, tables: &Tables) -> Vec<MemberId> {
        let members = tables.committed.members.iter().map(|m| m.id);
        let silent = members.filter(|m| *m != cx.me() && self.silent(cx, *m));
        silent.collect()
    }

    /// How long a member may be silent. Hints can be forged, so they shorten that to a third at
    /// most.
    fn patience(&self, cx: &Context) -> SilencePatience {
        let timing = &cx.config.timing;
        let (missed_max, lateness) = (timing.pings_missed_max, self.indulgence());
        let hinted = timing.ping_interval * missed_max / HINTED_SHARE;
        SilencePatience {
            missed_max,
            each: timing.ping_interval + lateness,
            hinted,
            lateness,
        }
    }

    /// Patience beyond the configured one. If this node gets no core in time, other processes of
    /// its machine get none either, and are not dead for that (as in Lifeguard, arXiv 1707.00788).
    pub(super) fn indulgence(&self) -> Duration {
        self.lateness * PATIENCE_FACTOR
    }
}
