//! What a member asks of the coordinator, again and again until it is done: to leave, reports,
//! and requests of people.

use super::api::{AdminReply, AdminRequest, Output, VotersGone};
use super::context::{Context, NamedTable, earlier};
use super::election::CoordinatorElection;
use super::event::Event;
use super::join::JoinRefusals;
use super::lease::Tenures;
use super::loads::Telling;
use super::member_core::MemberCore;
use super::pings::Pings;
use super::problem::Problem;
use super::tables::Tables;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{LeaveStep, Message};
use doyen_placement::planner::{self, HandOverUrgency, SeatHeir};
use doyen_placement::{Member, MemberId, MemberState, Role as MemberRole, Table, Term, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time between two attempts.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The time after which a person's request is given up.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);
/// The number of people's requests that wait here at the same time.
const TICKETS_MAX: usize = 256;
/// If every member leaves, they wait for this long after they heard a process that asks to be
/// admitted, or that forms a cluster.
const NEWCOMER_FRESH: Duration = Duration::from_secs(3);
/// The number of such processes that are remembered.
const NEWCOMERS_MAX: usize = 64;
/// If every member leaves, holds data and was not always alone, the members listen for such a
/// process for this long: a process that starts again takes a moment until it is heard.
pub(super) const LAST_LISTENS: Duration = Duration::from_secs(2);
/// If every member leaves and no coordinator has been known for this long, each leaver decides for
/// itself.
const LEADERLESS_LISTENS: Duration = Duration::from_secs(4);

/// The requests of this member that are not done.
#[derive(Debug, Default)]
pub(super) struct Requests {
    leave: Leave,
    ask_at: Option<Time>,
    /// When processes were last heard that are no members and could take over the data of a leaver.
    newcomers: BTreeMap<MemberId, Time>,
    /// Members that the tables in force have called leaving. If one of them becomes silent, it has
    /// gone.
    leavers: BTreeSet<MemberId>,
    /// The number of the last report of open partitions.
    report: u64,
    report_seen: u64,
    report_at: Option<Time>,
    tickets: BTreeMap<u64, RequestTicket>,
    /// The coordinator that was asked last, and its term.
    coordinator: Option<(Term, MemberId)>,
    pub(super) telling: Telling,
    /// When an heir asks again to take the place of its predecessor.
    inherits_at: Time,
    /// The answers, if it cannot.
    refusals: JoinRefusals,
}

#[derive(Debug)]
struct RequestTicket {
    request: AdminRequest,
    deadline: Time,
    again: Time,
}

/// How far this member has left (rule 10).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Leave {
    #[default]
    No,
    Asked(HandOverUrgency),
    HandedOver,
    Departing,
    /// It has ended, with the data that it held.
    Ended,
}

impl Requests {
    /// `led`: whether there is a coordinator to ask.
    pub(super) fn timeout(&self, led: bool) -> Option<Time> {
        let report = self.report_at.filter(|_| led);
        let tickets = self.tickets.values().map(|t| t.again.min(t.deadline)).min();
        earlier(earlier(self.ask_at, report), tickets)
    }

    pub(super) fn departing(&self) -> bool {
        self.leave == Leave::Departing
    }

    /// A process was heard that is part of no cluster yet and may hold data.
    pub(super) fn newcomer(&mut self, now: Time, id: MemberId) {
        if self.newcomers.len() >= NEWCOMERS_MAX {
            self.newcomers
                .retain(|_, at| now.since(*at) < NEWCOMER_FRESH);
        }
        if self.newcomers.len() < NEWCOMERS_MAX {
            self.newcomers.insert(id, now);
        }
    }

    /// Whether such a process was heard lately and is no member yet.
    pub(super) fn waits_outside(&self, cx: &Context, table: &Table) -> bool {
        self.newcomers
            .iter()
            .any(|(id, at)| table.member(*id).is_none() && cx.now.since(*at) < NEWCOMER_FRESH)
    }

    /// Whether a table in force has called this member leaving.
    pub(super) fn was_leaving(&self, member: MemberId) -> bool {
        self.leavers.contains(&member)
    }

    /// A new coordinator knows nothing of what its predecessor was told.
    fn hear_of(&mut self, coordinator: Option<(Term, MemberId)>) {
        if std::mem::replace(&mut self.coordinator, coordinator) == coordinator
            || coordinator.is_none()
        {
            return;
        }
        self.telling.new_coordinator();
        self.report += 1;
        self.report_at = Some(Time::ZERO);
        if self.leave != Leave::No {
            self.ask_at = Some(Time::ZERO);
        }
        self.tickets.values_mut().for_each(|t| t.again = Time::ZERO);
    }

    pub(super) fn installed(&mut self, table: &NamedTable) {
        self.leavers.retain(|m| table.member(*m).is_some());
        self.leavers.extend(planner::leaving(table));
        if matches!(self.leave, Leave::Asked(_) | Leave::Departing) {
            self.ask_at = Some(Time::ZERO);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.leave == Leave::Ended
    }

    // ---- what is asked

    /// What this member has to tell the coordinator now. It repeats every request that is not done.
    pub(super) fn due(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        tenures: &Tenures,
        election: &CoordinatorElection,
        pings: &Pings,
    ) -> Vec<Message> {
        self.hear_of(election.leader.map(|leader| (election.term, leader)));
        let cluster = tables.cluster();
        let (mut messages, member) = (Vec::new(), cx.process());
        if let Some(step) = self.leave_step(cx, tables, election, pings) {
            messages.push(Message::Leave {
                cluster,
                member,
                step,
            });
        }
        if self.report_at.is_some_and(|at| at <= cx.now) && election.leader.is_some() {
            self.report_at = Some(cx.now + ASK_AGAIN);
            let opened = tenures.opened.iter();
            messages.push(Message::Opened {
                cluster,
                sequence: self.report,
                partitions: opened.map(|(at, since)| (*at, *since)).collect(),
            });
        }
        for (ticket, waiting) in &mut self.tickets {
            if waiting.deadline <= cx.now {
                let why = cx.explain(&Problem::NotCoordinated);
                cx.reply(cluster, cx.me(), *ticket, AdminReply::Refused(why));
            } else if waiting.again <= cx.now {
                waiting.again = cx.now + ASK_AGAIN;
                messages.push(Message::Admin {
                    cluster,
                    origin: cx.me(),
                    ticket: *ticket,
                    request: waiting.request.clone(),
                });
            }
        }
        messages
    }

    /// An heir asks to take the place of its predecessor.
    fn inherits(
        &mut self,
        cx: &Context,
        tables: &Tables,
        election: &CoordinatorElection,
    ) -> Option<Message> {
        let waits = cx.is_heir() && tables.accepted.member(cx.process()).is_none();
        if !waits || election.leader.is_none() || self.inherits_at > cx.now {
            return None;
        }
        self.inherits_at = cx.now + ASK_AGAIN;
        let copies = Some(cx.config.copies.clone()).filter(|copies| !copies.is_empty());
        Some(Message::Join {
            copies,
            cluster: tables.cluster(),
            member: Box::new(cx.config.member()),
            seen: tables.committed.version,
        })
    }

    /// An heir is refused the place of its predecessor. If that lasts, the process ends: it would
    /// hold the vote of a member that serves nothing.
    pub(super) fn on_refused(&mut self, cx: &mut Context, why: String, for_now: bool) {
        if self.refusals.hear(cx, why.clone(), for_now) {
            cx.event(Event::note(why));
        }
    }

    /// Why an heir is refused that place.
    pub(super) fn refusal(&self, now: Time) -> Option<&str> {
        self.refusals.present(now)
    }

    fn leave_step(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        election: &CoordinatorElection,
        pings: &Pings,
    ) -> Option<LeaveStep> {
        if self.ask_at.is_none_or(|at| at > cx.now) || tables.out {
            return None;
        }
        let stops = self.stops(cx, tables, election, pings);
        let table = if broken(&mutant::LEAVES_BY_PROPOSAL) {
            &tables.accepted
        } else {
            &tables.committed
        };
        let me = cx.process();
        let state = table.member(me).map(|m| m.state);
        let free =
            stops || (state == Some(MemberState::Leaving) && !planner::holds_anything(table, me));
        self.ask_at = None;
        let step = match self.leave {
            Leave::Asked(_) if free => {
                self.leave = Leave::HandedOver;
                cx.outputs.push_back(Output::HandedOver);
                return None;
            }
            Leave::Departing if stops => {
                self.leave = Leave::Ended;
                cx.outputs.push_back(Output::Left);
                return None;
            }
            Leave::Asked(pace) => LeaveStep::HandOver(pace),
            Leave::Departing => LeaveStep::Gone,
            Leave::No | Leave::HandedOver | Leave::Ended => return None,
        };
        self.ask_at = Some(cx.now + ASK_AGAIN);
        Some(step)
    }

    /// Whether this leaver ends with the data that it holds. The coordinator decides that with a
    /// table that ends the cluster (`tasks::leavers`). A leaver ends only when all members that
    /// could miss that table have it, because each one that ends makes the table harder to find.
    fn stops(
        &self,
        cx: &Context,
        tables: &Tables,
        election: &CoordinatorElection,
        pings: &Pings,
    ) -> bool {
        if !planner::stops(&tables.committed) && !self.stops_unled(cx, tables, election) {
            return false;
        }
        let has_it = |v: MemberId| {
            v == cx.me() || pings.has_installed(v, tables.committed.name) || pings.silent(cx, v)
        };
        // The coordinator asks all members. The others ask the voters.
        let all = tables.committed.members.iter().filter(|_| election.leads());
        tables.committed.voters.iter().all(|v| has_it(*v)) && all.into_iter().all(|m| has_it(m.id))
    }

    /// Whether every member leaves and there is no coordinator. Then no newcomer can be admitted,
    /// and no leaver can hand over.
    fn stops_unled(&self, cx: &Context, tables: &Tables, election: &CoordinatorElection) -> bool {
        // Once the time to leave is over (`Pace::AtOnce`), or this member has decided to end, it
        // waits for no newcomer.
        let waits = self.leave == Leave::Asked(HandOverUrgency::Repair)
            && self.waits_outside(cx, &tables.committed);
        let unled =
            election.leader.is_none() && election.leaderless_for(cx.now) >= LEADERLESS_LISTENS;
        (unled || broken(&mutant::LEAVES_BY_ITS_OWN_WORD))
            && !waits
            && self.all_leave(&tables.committed, |m| m == cx.me())
    }

    /// Whether no member that holds data stays: all members that could take over data leave
    /// themselves.
    ///
    /// A silent member that the table keeps has not gone, unless it was leaving. If the leavers
    /// ended, their data would be missing when that member is back.
    pub(super) fn all_leave(&self, table: &Table, asked: impl Fn(MemberId) -> bool) -> bool {
        let leaves = |id: MemberId, state| match state {
            MemberState::Live => asked(id),
            MemberState::Silent => self.was_leaving(id) || broken(&mutant::LEAVES_THE_SILENT),
            // A member that an operator empties takes data that no other member can take
            // (`planner::refill`). If it cannot, it leaves itself.
            MemberState::Draining => {
                !table.settings.balancing.drains(id) || broken(&mutant::LEAVES_THE_DRAINED)
            }
            MemberState::Leaving => true,
        };
        let mut data = table
            .members
            .iter()
            .filter(|m| m.role == MemberRole::Data)
            .peekable();
        data.peek().is_some() && data.all(|m| leaves(m.id, m.state))
    }

    pub(super) fn leave(&mut self, now: Time, pace: HandOverUrgency) {
        let asked = match self.leave {
            Leave::No => pace,
            Leave::Asked(before) => pace.max(before),
            Leave::HandedOver | Leave::Departing | Leave::Ended => return,
        };
        self.leave = Leave::Asked(asked);
        self.ask_at = Some(now);
    }

    pub(super) fn depart(&mut self, now: Time) {
        self.leave = Leave::Departing;
        self.ask_at = Some(now);
    }

    /// This node's data threads opened partitions, which the coordinator does not know.
    pub(super) fn report_opened(&mut self, now: Time) {
        self.report += 1;
        self.report_at = Some(now);
    }

    pub(super) fn report_read(&mut self, sequence: u64) {
        // A report that was not sent yet cannot have been read.
        if sequence <= self.report {
            self.report_seen = self.report_seen.max(sequence);
        }
        if self.report_seen >= self.report {
            self.report_at = None;
        }
    }

    pub(super) fn admin(&mut self, cx: &mut Context, ticket: u64, request: AdminRequest) {
        if self.tickets.len() >= TICKETS_MAX {
            let reply = AdminReply::busy();
            return cx.outputs.push_back(Output::AdminReply { ticket, reply });
        }
        self.tickets.insert(
            ticket,
            RequestTicket {
                request,
                deadline: cx.now + ADMIN_PATIENCE,
                again: cx.now,
            },
        );
    }

    /// People get the answers to requests that this node passed on.
    pub(super) fn answer(&mut self, cx: &mut Context) {
        for (ticket, reply) in std::mem::take(&mut cx.replies) {
            if self.tickets.remove(&ticket).is_some() {
                cx.outputs.push_back(Output::AdminReply { ticket, reply });
            }
        }
    }
}

impl MemberCore {
    /// Hands a request to the coordinator, if one is known: to this node itself, or by a message.
    pub(super) fn tell_coordinator(&mut self, cx: &mut Context, message: Message) {
        match self.election.leader {
            Some(leader) if leader == cx.me() => {
                let me = cx.me();
                self.on_request(cx, me, message);
            }
            Some(leader) => cx.send(leader, message),
            None => {}
        }
    }

    /// A person asks for something. A coordinator of an older program would do it without what it
    /// does not know, so such a request is refused here.
    pub(super) fn administer(&mut self, cx: &mut Context, ticket: u64, request: AdminRequest) {
        let level = self.tables.accepted.level;
        if request.level() <= level {
            return self.requests.admin(cx, ticket, request);
        }
        let why = cx.explain(&Problem::OldMembers { level });
        let reply = AdminReply::Refused(why);
        cx.outputs.push_back(Output::AdminReply { ticket, reply });
    }

    /// Repeats every request that is not done.
    pub(super) fn ask(&mut self, cx: &mut Context) {
        self.requests.answer(cx);
        if let Some(message) = self.requests.inherits(cx, &self.tables, &self.election) {
            self.tell_coordinator(cx, message);
        }
        let due = self
            .requests
            .due(cx, &self.tables, &self.tenures, &self.election, &self.pings);
        for message in due {
            self.tell_coordinator(cx, message);
        }
        self.over |= self.requests.has_ended();
        self.tables.give_up_recovery(cx, &self.pings);
    }

    /// Requests of members to the coordinator. A member that does not coordinate passes them on.
    pub(super) fn on_request(&mut self, cx: &mut Context, from: MemberId, message: Message) {
        if let Message::Join { member, .. } = &message
            && self.tables.committed.member(member.id).is_some()
        {
            // It has been admitted and does not know that, because its table was lost on the way.
            let to = if cx.heir_of(from) == Some(member.id) {
                from
            } else {
                member.id
            };
            return self.tables.on_pull(cx, to, None);
        }
        if matches!(message, Message::Join { .. }) && self.halves.is_stopped() {
            // A process that joins shall find the half that serves.
            return cx.ignore();
        }
        // A newcomer that waits for an operator must not allow itself what it waits for.
        if matches!(message, Message::Admin { .. }) && self.tables.member(from).is_none() {
            return cx.ignore();
        }
        // Each member speaks for itself. Requests of newcomers and of people are passed on.
        let of = match &message {
            Message::InSync { origin, .. } | Message::Loads { origin, .. } => *origin,
            Message::Leave { member, .. } => *member,
            _ => from,
        };
        if of != from {
            return cx.ignore();
        }
        if let Message::Join { member, .. } = &message
            && member.role == MemberRole::Data
        {
            self.requests.newcomer(cx.now, member.id);
        }
        let Some(leader) = self.election.as_leader_mut() else {
            // A report of loads is repeated soon anyway. If it were passed on, it would seem to
            // come from another member.
            let passed_on = !matches!(message, Message::Loads { .. });
            let leader = self.election.leader.filter(|l| *l != from && *l != cx.me());
            if let Some(leader) = leader.filter(|_| passed_on) {
                cx.send(leader, message);
            }
            return;
        };
        let tables = &self.tables;
        match message {
            Message::Join {
                member,
                seen,
                copies,
                ..
            } => {
                if cx.heir_of(from) == Some(member.id) || (from == cx.me() && cx.is_heir()) {
                    let (member, copies) = (*member, copies.unwrap_or_default());
                    self.on_heir(cx, from, SeatHeir { member, copies });
                } else {
                    self.on_join(cx, from, *member, seen);
                }
            }
            Message::InSync {
                origin, requests, ..
            } => leader.tasks.on_in_sync(cx, tables, origin, requests),
            Message::Loads { origin, report, .. } => {
                leader
                    .tasks
                    .on_loads(cx, &tables.committed, origin, *report)
            }
            Message::Opened {
                sequence,
                partitions,
                ..
            } => {
                leader.tasks.on_opened(&tables.committed, from, &partitions);
                if from == cx.me() {
                    self.requests.report_read(sequence);
                } else {
                    let cluster = tables.cluster();
                    cx.send(from, Message::OpenedSeen { cluster, sequence });
                }
            }
            Message::Admin {
                origin,
                ticket,
                request,
                ..
            } => {
                if !leader.tasks.administer(origin, ticket, request) {
                    cx.reply(tables.cluster(), origin, ticket, AdminReply::busy());
                }
            }
            Message::Leave { member, step, .. } => leader.tasks.leave(member, step),
            _ => cx.ignore(),
        }
    }

    /// A newcomer asks to be admitted, perhaps through another member.
    pub(super) fn on_join(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        member: Member,
        seen: Version,
    ) {
        let Some(leader) = self.election.as_leader_mut() else {
            return;
        };
        let tasks = &mut leader.tasks;
        let suspect = tasks.on_join(cx, &self.tables, &mut self.pings, from, member, seen);
        if let Some(suspect) = suspect {
            let heartbeat = self.election.heartbeat(&self.tables);
            self.pings.ping(cx, suspect, heartbeat);
        }
    }

    /// A process that has the directory of a member asks for its place: another one, or this one.
    fn on_heir(&mut self, cx: &mut Context, from: MemberId, heir: SeatHeir) {
        let Some(leader) = self.election.as_leader_mut() else {
            return;
        };
        let (cluster, member) = (self.tables.cluster(), heir.member.id);
        let asked = (leader.tasks).on_heir(cx, &self.tables, &self.pings, from, heir);
        let Err(problem) = asked else {
            return;
        };
        let (why, for_now) = (cx.explain(&problem), false);
        if from == cx.me() {
            return self.requests.on_refused(cx, why, for_now);
        }
        let refused = Message::JoinRefused {
            cluster,
            member,
            why,
            for_now,
        };
        cx.send(from, refused);
    }

    /// A process that waits to be admitted somewhere answers this node.
    pub(super) fn heard_newcomer(&mut self, cx: &mut Context, from: MemberId) {
        let leader = self.election.as_leader_mut();
        let heard = leader.and_then(|leader| leader.tasks.heard_newcomer(from));
        if let Some((member, seen)) = heard {
            self.on_join(cx, from, member, seen);
        }
    }

    /// The members that an operator's word would declare dead, or why it would be refused.
    pub(super) fn would_be_dead(
        &self,
        cx: &Context,
        names: &[String],
        gone: VotersGone,
    ) -> Result<Vec<MemberId>, String> {
        if self.election.leader.is_some() {
            let why = "a coordinator works, so there is nothing to recover: it expels dead members \
                       itself";
            return Err(why.into());
        }
        self.tables.asserted_dead(cx, &self.pings, names, gone)
    }

    /// The operator's word in place of votes.
    pub(super) fn recover(
        &mut self,
        cx: &mut Context,
        names: &[String],
        gone: VotersGone,
        ticket: u64,
    ) {
        match self.would_be_dead(cx, names, gone) {
            Err(why) => {
                let reply = AdminReply::Refused(why);
                cx.outputs.push_back(Output::AdminReply { ticket, reply });
            }
            Ok(dead) => {
                let branch = self.halves.new_branch(cx, &self.tables, &dead);
                self.tables.recovery.begin(cx.now, ticket, dead, branch);
                cx.event(Event::note(format!(
                    "an operator asserts the death of {}: this node asks the other voters to go on \
                     without",
                    names.join(", ")
                )));
                self.stand(cx);
            }
        }
    }
}
