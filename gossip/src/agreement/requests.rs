//! What a member asks of the coordinator, again and again until it is done: to leave, reports,
//! requests of people, and `recover`.

use super::api::{AdminReply, AdminRequest, Output, VotersGone};
use super::context::{Context, NamedTable, earlier};
use super::election::Role;
use super::event::Event;
use super::loads::Telling;
use super::member_core::MemberCore;
use super::problem::Problem;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{LeaveStep, Message};
use doyen_placement::mutant::ANYONE_ASKS;
use doyen_placement::planner::{self, InSyncRequest, Pace};
use doyen_placement::table::annex::BRANCHES_MAX;
use doyen_placement::{
    Epoch, MemberId, MemberState, Partition, PartitionRef, Role as MemberRole, Table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time between two attempts.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The time after which a person's request is given up.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);
/// The number of people's requests that wait here at the same time.
const TICKETS_MAX: usize = 256;
/// The number of requests in one message of a primary.
const REQUESTS_MAX: usize = 16_384;

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
    tickets: BTreeMap<u64, Ticket>,
    recover: Option<(u64, Time)>,
    pub(super) telling: Telling,
}

#[derive(Debug)]
struct Ticket {
    request: AdminRequest,
    deadline: Time,
    again: Time,
}

/// How far this member has left (rule 10).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Leave {
    #[default]
    No,
    Asked(Pace),
    HandedOver,
    Departing,
}

impl Requests {
    /// `led`: whether there is a coordinator to ask.
    pub(super) fn timeout(&self, led: bool) -> Option<Time> {
        let report = self.report_at.filter(|_| led);
        let tickets = self.tickets.values().map(|t| t.again.min(t.deadline)).min();
        let recover = self.recover.map(|(_, at)| at);
        [self.ask_at, report, tickets, recover]
            .into_iter()
            .fold(None, earlier)
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
    pub(super) fn at_the_door(&self, cx: &Context, table: &Table) -> bool {
        self.newcomers
            .iter()
            .any(|(id, at)| table.member(*id).is_none() && cx.now.since(*at) < NEWCOMER_FRESH)
    }

    /// Whether a table in force has called this member leaving.
    pub(super) fn was_leaving(&self, member: MemberId) -> bool {
        self.leavers.contains(&member)
    }

    /// A new coordinator knows nothing of what its predecessor was told.
    pub(super) fn new_coordinator(&mut self) {
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
}

impl MemberCore {
    fn leading(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Hands a request to the coordinator, if one is known: to this node itself, or by a message.
    pub(super) fn tell_coordinator(&mut self, cx: &mut Context, message: Message) {
        match self.leader {
            Some(leader) if leader == cx.me() => {
                let me = cx.me();
                self.on_request(cx, me, message);
            }
            Some(leader) => cx.send(leader, message),
            None => {}
        }
    }

    /// Repeats every request that is not done.
    pub(super) fn ask(&mut self, cx: &mut Context) {
        self.ask_leave(cx);
        if self.requests.report_at.is_some_and(|at| at <= cx.now) && self.leader.is_some() {
            let partitions: Vec<_> = self
                .tenures
                .opened
                .iter()
                .map(|(at, since)| (*at, *since))
                .collect();
            self.requests.report_at = Some(cx.now + ASK_AGAIN);
            let (cluster, sequence) = (self.cluster(), self.requests.report);
            self.tell_coordinator(
                cx,
                Message::Opened {
                    cluster,
                    sequence,
                    partitions,
                },
            );
        }
        let due: Vec<u64> = self
            .requests
            .tickets
            .iter()
            .filter(|(_, t)| t.again.min(t.deadline) <= cx.now)
            .map(|(id, _)| *id)
            .collect();
        for ticket in due {
            let Some(waiting) = self.requests.tickets.get_mut(&ticket) else {
                continue;
            };
            if waiting.deadline <= cx.now {
                let (me, why) = (cx.me(), cx.explain(&Problem::NotCoordinated));
                self.reply(cx, me, ticket, AdminReply::Refused(why));
                continue;
            }
            waiting.again = cx.now + ASK_AGAIN;
            let (cluster, origin, request) =
                (self.committed.cluster, cx.me(), waiting.request.clone());
            self.tell_coordinator(
                cx,
                Message::Admin {
                    cluster,
                    origin,
                    ticket,
                    request,
                },
            );
        }
        if let Some((ticket, at)) = self.requests.recover
            && at <= cx.now
        {
            self.requests.recover = None;
            let unnamed = self.voter_names(|v| {
                v != cx.me() && !self.asserted_dead.contains(&v) && self.silent(cx, v)
            });
            self.asserted_dead.clear();
            self.branch = None;
            let silent = if unnamed.is_empty() {
                String::new()
            } else {
                format!(", and {} did not answer", unnamed.join(", "))
            };
            let why = format!(
                "the remaining voters did not agree in time{silent}: name every voter that is gone"
            );
            cx.outputs.push_back(Output::AdminReply {
                ticket,
                reply: AdminReply::Refused(why),
            });
        }
    }

    fn ask_leave(&mut self, cx: &mut Context) {
        if self.requests.ask_at.is_none_or(|at| at > cx.now) || self.out {
            return;
        }
        let stops = self.stops(cx);
        let table = if broken(&mutant::LEAVES_BY_PROPOSAL) {
            &self.accepted
        } else {
            &self.committed
        };
        let state = table.member(cx.me()).map(|m| m.state);
        let free = stops
            || (state == Some(MemberState::Leaving) && !planner::holds_anything(table, cx.me()));
        let step = match self.requests.leave {
            Leave::Asked(_) if free => {
                self.requests.leave = Leave::HandedOver;
                self.requests.ask_at = None;
                return cx.outputs.push_back(Output::HandedOver);
            }
            Leave::Departing if stops => {
                self.over = true;
                return cx.outputs.push_back(Output::Left);
            }
            Leave::Asked(pace) => LeaveStep::HandOver(pace),
            Leave::Departing => LeaveStep::Gone,
            Leave::No | Leave::HandedOver => {
                self.requests.ask_at = None;
                return;
            }
        };
        self.requests.ask_at = Some(cx.now + ASK_AGAIN);
        let (cluster, member) = (self.cluster(), cx.me());
        self.tell_coordinator(
            cx,
            Message::Leave {
                cluster,
                member,
                step,
            },
        );
    }

    /// Whether this leaver ends with the data that it holds. The coordinator decides that with a
    /// table that ends the cluster (`tasks::leavers`). A leaver ends only when all members that
    /// could miss that table have it, because each one that ends makes the table harder to find.
    fn stops(&self, cx: &Context) -> bool {
        if !planner::stops(&self.committed) && !self.stops_unled(cx) {
            return false;
        }
        let knows = |v: MemberId| {
            self.heard_committed
                .get(&v)
                .is_some_and(|name| name.order() >= self.committed.name.order())
        };
        let has_it = |v: MemberId| v == cx.me() || knows(v) || self.silent(cx, v);
        // The coordinator asks all members. The others ask the voters.
        let all = self.committed.members.iter().filter(|_| self.leading());
        self.committed.voters.iter().all(|v| has_it(*v)) && all.into_iter().all(|m| has_it(m.id))
    }

    /// Whether every member leaves and there is no coordinator. Then no newcomer can be admitted,
    /// and no leaver can hand over.
    fn stops_unled(&self, cx: &Context) -> bool {
        // Once the time to leave is over (`Pace::AtOnce`), or this member has decided to end, it
        // waits for no newcomer.
        let waits = self.requests.leave == Leave::Asked(Pace::Repair)
            && self.requests.at_the_door(cx, &self.committed);
        let unled = self.leader.is_none() && self.leaderless_for(cx) >= LEADERLESS_LISTENS;
        (unled || broken(&mutant::LEAVES_BY_ITS_OWN_WORD))
            && !waits
            && self.all_leave(&self.committed, |m| m == cx.me())
    }

    pub(super) fn leave(&mut self, cx: &mut Context, pace: Pace) {
        let asked = match self.requests.leave {
            Leave::No => pace,
            Leave::Asked(before) => pace.max(before),
            Leave::HandedOver | Leave::Departing => return,
        };
        self.requests.leave = Leave::Asked(asked);
        self.requests.ask_at = Some(cx.now);
    }

    pub(super) fn depart(&mut self, cx: &mut Context) {
        self.requests.leave = Leave::Departing;
        self.requests.ask_at = Some(cx.now);
    }

    /// This node's data threads opened partitions.
    pub(super) fn opened(&mut self, cx: &mut Context, opened: &[(PartitionRef, Epoch)]) {
        let mut news = false;
        for (at, since) in opened {
            news |= self.tenures.open(*at, *since);
        }
        if news {
            self.requests.report += 1;
            self.requests.report_at = Some(cx.now);
        }
    }

    pub(super) fn in_sync(&mut self, cx: &mut Context, requests: Vec<InSyncRequest>) {
        let (cluster, origin) = (self.cluster(), cx.me());
        self.tell_coordinator(
            cx,
            Message::InSync {
                cluster,
                origin,
                requests,
            },
        );
    }

    pub(super) fn admin(&mut self, cx: &mut Context, ticket: u64, request: AdminRequest) {
        if self.requests.tickets.len() >= TICKETS_MAX {
            let reply = AdminReply::busy();
            return cx.outputs.push_back(Output::AdminReply { ticket, reply });
        }
        self.requests.tickets.insert(
            ticket,
            Ticket {
                request,
                deadline: cx.now + ADMIN_PATIENCE,
                again: cx.now,
            },
        );
    }

    /// Answers a person's request, here or at another member.
    pub(super) fn reply(
        &mut self,
        cx: &mut Context,
        origin: MemberId,
        ticket: u64,
        reply: AdminReply,
    ) {
        if origin != cx.me() {
            let cluster = self.cluster();
            cx.send(
                origin,
                Message::AdminReply {
                    cluster,
                    ticket,
                    reply,
                },
            );
        } else if self.requests.tickets.remove(&ticket).is_some() {
            cx.outputs.push_back(Output::AdminReply { ticket, reply });
        }
    }

    /// Requests of members to the coordinator. A member that does not coordinate passes them on.
    pub(super) fn on_request(&mut self, cx: &mut Context, from: MemberId, message: Message) {
        if let Message::Join { member, .. } = &message
            && self.committed.member(member.id).is_some()
        {
            // It has been admitted and does not know that, because its table was lost on the way.
            return self.on_pull(cx, member.id, None);
        }
        if matches!(message, Message::Join { .. }) && self.is_stopped() {
            // A process that joins shall find the half that serves.
            return cx.ignore();
        }
        // A newcomer that waits for an operator must not allow itself what it waits for.
        let tables = [&self.committed, &self.accepted];
        if matches!(message, Message::Admin { .. })
            && !tables.iter().any(|table| table.member(from).is_some())
        {
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
        if !self.leading() {
            // A report of loads is repeated soon anyway. If it were passed on, it would seem to
            // come from another member.
            let passed_on = !matches!(message, Message::Loads { .. });
            if let Some(leader) = self
                .leader
                .filter(|l| *l != from && *l != cx.me() && passed_on)
            {
                cx.send(leader, message);
            }
            return;
        }
        match message {
            Message::Join { member, seen, .. } => self.on_join(cx, from, *member, seen),
            Message::InSync {
                origin, requests, ..
            } => self.on_in_sync(cx, origin, requests),
            Message::Loads { origin, report, .. } => self.on_loads(cx, origin, *report),
            Message::Opened {
                sequence,
                partitions,
                ..
            } => self.on_opened(cx, from, sequence, &partitions),
            Message::Admin {
                origin,
                ticket,
                request,
                ..
            } => {
                if let Role::Leader(leader) = &mut self.role
                    && !leader.tasks.administer(origin, ticket, request)
                {
                    self.reply(cx, origin, ticket, AdminReply::busy());
                }
            }
            Message::Leave { member, step, .. } => {
                if let Role::Leader(leader) = &mut self.role {
                    leader.tasks.leave(member, step);
                }
            }
            _ => cx.ignore(),
        }
    }

    fn on_in_sync(&mut self, cx: &mut Context, origin: MemberId, mut requests: Vec<InSyncRequest>) {
        // Only the primary may ask (rule 7).
        let table = &self.accepted.table;
        requests.truncate(REQUESTS_MAX);
        let may_ask = |r: &InSyncRequest| {
            table
                .partition(r.partition)
                .is_some_and(|p| p.primary() == origin && p.epoch == r.epoch)
        };
        requests.retain(|r| may_ask(r) || broken(&ANYONE_ASKS));
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        if requests.is_empty() {
            return cx.ignore();
        }
        leader.tasks.ask(requests);
    }

    fn on_opened(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        sequence: u64,
        opened: &[(PartitionRef, Epoch)],
    ) {
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        for (at, since) in opened {
            if self
                .committed
                .partition(*at)
                .is_some_and(|p| p.primary() == from && p.since == *since)
            {
                leader.tasks.open(*at, *since);
            }
        }
        if from == cx.me() {
            self.report_read(sequence);
        } else {
            cx.send(
                from,
                Message::OpenedSeen {
                    cluster: self.committed.cluster,
                    sequence,
                },
            );
        }
    }

    pub(super) fn report_read(&mut self, sequence: u64) {
        // A report that was not sent yet cannot have been read.
        if sequence <= self.requests.report {
            self.requests.report_seen = self.requests.report_seen.max(sequence);
        }
        if self.requests.report_seen >= self.requests.report {
            self.requests.report_at = None;
        }
    }

    /// Partitions that do not serve yet, as far as the coordinator knows.
    pub(super) fn closed(&self) -> Vec<PartitionRef> {
        let Role::Leader(leader) = &self.role else {
            return Vec::new();
        };
        let tasks = &leader.tasks;
        // A primary that other members cannot reach does not serve them.
        let serves = |at, p: &Partition| {
            tasks.is_open(at, p.since) && !tasks.told.loads.unreached().contains(&p.primary())
        };
        self.committed
            .partitions()
            .filter(|(at, p)| !serves(*at, p))
            .map(|(at, _)| at)
            .collect()
    }

    /// The operator's word in place of votes. The operator also counts the voters: a person who
    /// counts notices that most of them are said to be dead.
    pub(super) fn recover(
        &mut self,
        cx: &mut Context,
        names: &[String],
        gone: VotersGone,
        ticket: u64,
    ) {
        let refuse = |cx: &mut Context, why: String| {
            cx.outputs.push_back(Output::AdminReply {
                ticket,
                reply: AdminReply::Refused(why),
            })
        };
        if self.leader.is_some() {
            return refuse(
                cx,
                "a coordinator works, so there is nothing to recover: it expels dead members itself"
                    .into(),
            );
        }
        let mut dead = Vec::new();
        for name in names {
            // A member that the accepted table leaves out may still have a vote in the committed
            // one. It can be named for that.
            let members = self.accepted.members.iter().chain(&self.committed.members);
            let named: Vec<MemberId> = members
                .filter(|m| m.name == *name || m.id.to_string() == *name)
                .map(|m| m.id)
                .collect();
            if named.is_empty() {
                return refuse(cx, format!("there is no member {name}"));
            }
            if named.contains(&cx.me()) {
                return refuse(cx, format!("{name} is this node, and it is alive"));
            }
            if named.iter().any(|m| self.answers_now(cx, *m)) {
                return refuse(cx, format!("{name} answers: it is not dead"));
            }
            dead.extend(named);
        }
        let voters = self.distinct_voters();
        let counted = VotersGone {
            gone: voters.iter().filter(|v| dead.contains(v)).count(),
            voters: voters.len(),
        };
        if gone != counted {
            let names = self.voter_names(|v| dead.contains(&v));
            let named = if names.is_empty() {
                String::new()
            } else {
                format!(" ({})", names.join(", "))
            };
            return refuse(
                cx,
                format!(
                    "{gone} was said to be gone, but {counted} of the voters are named as \
                     dead{named}: count the voters that are off and stay off, and name each"
                ),
            );
        }
        let left = |v: MemberId| v == cx.me() || (!dead.contains(&v) && !self.silent(cx, v));
        if !self.voters().any(left) {
            return refuse(
                cx,
                "no voter is left here: run this on a voter that lives".into(),
            );
        }
        // A member without a vote cannot coordinate.
        let me = cx.me();
        if !self.voters().any(|v| v == me) {
            let names = self.voter_names(left);
            return refuse(
                cx,
                format!(
                    "this member has no vote: ask one that has, {}",
                    names.join(" or ")
                ),
            );
        }
        // The newest table may be about to remove this member. Elected by it, this member would
        // learn that it is removed, and would end, with the operator's word.
        let stays = |v: MemberId| self.accepted.voters.contains(&v) && left(v);
        if self.accepted.member(me).is_none() && self.voters().any(stays) {
            let names = self.voter_names(stays);
            return refuse(
                cx,
                format!(
                    "the newest table removes this member: ask one that stays, {}",
                    names.join(" or ")
                ),
            );
        }
        let branches = &self.accepted.annex.branches;
        if branches.len() >= BRANCHES_MAX {
            let why = "this cluster was recovered too often: start a new one, with its nodes";
            return refuse(cx, why.into());
        }
        self.branch = Some(self.new_branch(cx, &dead));
        self.asserted_dead = dead.into_iter().collect();
        self.requests.recover = Some((ticket, cx.now + ADMIN_PATIENCE));
        cx.event(Event::note(format!(
            "an operator asserts the death of {}: this node asks the other voters to go on without",
            names.join(", ")
        )));
        self.become_candidate(cx);
    }

    /// Voters of the accepted or the committed table. A voter of both comes twice.
    pub(super) fn voters(&self) -> impl Iterator<Item = MemberId> {
        self.accepted
            .voters
            .iter()
            .chain(&self.committed_voters)
            .copied()
    }

    /// Names of voters, each once.
    fn voter_names(&self, which: impl Fn(MemberId) -> bool) -> Vec<String> {
        let name = |m: MemberId| {
            self.accepted
                .member(m)
                .or_else(|| self.committed.member(m))
                .map(|m| m.name.clone())
        };
        let names: BTreeSet<String> = self
            .voters()
            .filter(|v| which(*v))
            .filter_map(name)
            .collect();
        names.into_iter().collect()
    }

    fn answers_now(&self, cx: &Context, member: MemberId) -> bool {
        let recent = cx.config.timing.ping_interval * 3;
        self.detector
            .answered_at(member)
            .is_some_and(|at| cx.now.since(at) <= recent)
            && !self.silent(cx, member)
    }

    pub(super) fn recovered(&mut self, cx: &mut Context) {
        if let Some((ticket, _)) = self.requests.recover.take() {
            cx.outputs.push_back(Output::AdminReply {
                ticket,
                reply: AdminReply::Done(None),
            });
        }
    }

    /// This voter has accepted a later table, so this member cannot win even if other members are
    /// dead.
    pub(super) fn recovers_elsewhere(&mut self, cx: &mut Context, voter: MemberId) {
        if let Some((ticket, _)) = self.requests.recover.take() {
            self.asserted_dead.clear();
            self.branch = None;
            let known = self
                .accepted
                .member(voter)
                .or_else(|| self.committed.member(voter));
            let name = known.map_or_else(|| voter.to_string(), |m| m.name.clone());
            let why = format!(
                "{name} has accepted a later table than this member, which cannot lead without it: \
                 recover at {name} instead"
            );
            cx.outputs.push_back(Output::AdminReply {
                ticket,
                reply: AdminReply::Refused(why),
            });
        }
    }

    pub(super) fn ping_suspect(&mut self, cx: &mut Context, peer: MemberId) {
        let sequence = self.detector.sent(peer, cx.now);
        let pulse = self.pulse(sequence);
        cx.send(peer, Message::Ping(pulse));
    }

    pub(super) fn planned(
        &mut self,
        base: doyen_placement::TableName,
        proposal: planner::PlannedChanges,
    ) {
        if let Role::Leader(leader) = &mut self.role {
            leader.tasks.planned(base, proposal);
        }
    }
}
