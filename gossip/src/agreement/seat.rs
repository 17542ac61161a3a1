//! A member: it votes, answers pings, stores proposals, and acts on committed tables.

use super::api::{AdminReply, AdminRequest, Event, Input, Output, Status};
use super::context::Context;
use super::coordinator::Coordinator;
use super::election::Candidate;
use super::lease::Lease;
use super::tables::{Tables, Unpack, partitions};
use super::{Next, Outside};
use crate::hints::Hint;
use crate::time::Time;
use crate::wire::{Ack, Commit, Committed, Message, Proposal, Pulse, Stand, Standing};
use doyen_placement::planner::{InSyncRequest, holds_anything};
use doyen_placement::quorum::majority;
use doyen_placement::{ClusterId, Epoch, MemberId, MemberState, PartitionRef, Table, TableName, Term};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Between pulls of tables from one place.
const PULL_INTERVAL: Duration = Duration::from_millis(50);
/// Between repeated requests to the coordinator.
const REQUEST_INTERVAL: Duration = Duration::from_millis(300);
/// How long a person's request is tried.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Requests of people under way at most.
const REQUESTS_MAX: usize = 1024;
/// Between looks at seeds and at addresses of former members.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Addresses of former members that are looked at.
const FORMER_MAX: usize = 32;
/// How long a leaver waits for a majority to install the table without it.
const DEPARTURE_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) tables: Tables,
    /// The highest term that this node took part in.
    pub(super) term: Term,
    /// For whom it voted in that term.
    pub(super) voted: Option<MemberId>,
    /// Who coordinates in that term, while it is heard.
    pub(super) coordinator: Option<MemberId>,
    pub(super) lost_at: Time,
    pub(super) office: Office,
    pub(super) lease: Lease,
    /// Members that an operator declared dead.
    pub(super) asserted: BTreeSet<MemberId>,
    recovery: Option<u64>,
    announced: Option<(Term, MemberId)>,
    /// Partitions that this node's data threads have opened, and in which tenure.
    pub(super) opened: BTreeMap<PartitionRef, Epoch>,
    /// The number of the last change of `opened`, and which number which coordinator has read.
    opened_sequence: u64,
    opened_seen: Option<(MemberId, u64)>,
    requests: BTreeMap<u64, Request>,
    round_at: Time,
    round_next: Time,
    pulled_at: BTreeMap<MemberId, Time>,
    look_next: Time,
    former: VecDeque<SocketAddr>,
    leave_next: Time,
    handed_over: bool,
    /// This node is in no committed table any more, as it wished: when that began, and who has installed that.
    departed: Option<(Time, BTreeSet<MemberId>)>,
    /// Another cluster that this one gives way to.
    surrender: Option<(ClusterId, MemberId)>,
}

/// What a member is, in its term.
#[derive(Debug)]
pub(super) enum Office {
    Follower { stand_at: Option<Time> },
    Candidate(Candidate),
    Coordinator(Box<Coordinator>),
}

/// A person's request on its way to the coordinator.
#[derive(Debug)]
struct Request {
    request: AdminRequest,
    until: Time,
    send_next: Time,
}

impl Seat {
    /// A member whose first committed table is this one.
    pub(super) fn new(cx: &mut Context, table: Arc<Table>, commit: Option<Commit>, term: Term) -> Self {
        let mut tables = Tables::new(cx, table);
        tables.commit = commit;
        let term = term.max(tables.installed.term);
        Self {
            tables,
            term,
            voted: None,
            coordinator: None,
            lost_at: cx.now,
            office: Office::Follower { stand_at: None },
            lease: Lease::default(),
            asserted: BTreeSet::new(),
            recovery: None,
            announced: None,
            opened: BTreeMap::new(),
            opened_sequence: 0,
            opened_seen: None,
            requests: BTreeMap::new(),
            round_at: cx.now,
            round_next: cx.now,
            pulled_at: BTreeMap::new(),
            look_next: cx.now + LOOK_INTERVAL,
            former: VecDeque::new(),
            leave_next: cx.now,
            handed_over: false,
            departed: None,
            surrender: None,
        }
    }

    /// A founder of the first table, in term 1: every founder's promise was its vote for the oldest.
    pub(super) fn founder(cx: &mut Context, table: Arc<Table>) -> Self {
        let mut seat = Self::new(cx, table, None, Term(1));
        let oldest = seat.tables.installed.members.first().map(|m| m.id);
        seat.voted = oldest;
        seat.coordinator = oldest;
        if oldest == Some(cx.me) {
            let joined = seat.tables.installed.members.iter().map(|m| m.id).collect();
            seat.office = Office::Coordinator(Box::new(Coordinator::new(cx, joined, false)));
        }
        seat.announce(cx);
        seat
    }

    fn cluster(&self) -> ClusterId {
        self.tables.installed.cluster
    }

    // ---- inputs

    pub(super) fn handle(&mut self, cx: &mut Context, input: Input) -> Next {
        match input {
            Input::Message { from, message } => return self.handle_message(cx, from, message),
            Input::Hint(Hint::Refused(member)) => self.suspect(cx, member),
            Input::Hint(Hint::Suspected(_) | Hint::Alive(_)) | Input::Tick => {}
            Input::Hint(Hint::Address(address)) => {
                if address != cx.config.addresses.control && !self.former.contains(&address) && self.tables.installed.members.len() == 1 {
                    self.remember(address);
                }
            }
            Input::Opened(partitions) => {
                self.opened.extend(partitions);
                let installed = &self.tables.installed;
                self.opened.retain(|at, since| installed.partition(*at).is_some_and(|p| p.since == *since && p.primary() == cx.me));
                self.opened_sequence += 1;
                self.report_opened(cx);
            }
            Input::InSync(requests) => self.ask_in_sync(cx, cx.me, requests),
            Input::Admin { ticket, request } => {
                if self.requests.len() >= REQUESTS_MAX {
                    let reply = AdminReply::Refused("too many requests are under way: try again later".to_owned());
                    cx.out.push_back(Output::AdminReply { ticket, reply });
                } else {
                    self.requests.insert(ticket, Request { request, until: cx.now + REQUEST_TIME, send_next: cx.now });
                }
            }
            Input::Planned { base, goals } => {
                if let Office::Coordinator(office) = &mut self.office {
                    office.goals = Some((base, goals));
                }
            }
            Input::Pull(name) => {
                if name.cluster == self.cluster() && name.version > self.tables.installed_name.version {
                    let voters = self.tables.voters();
                    let from = self.coordinator.filter(|c| *c != cx.me).or_else(|| voters.into_iter().find(|v| *v != cx.me));
                    if let Some(from) = from {
                        self.pull(cx, from);
                    }
                }
            }
            Input::Recover { dead, ticket } => self.recover(cx, &dead, ticket),
            // The machine takes these itself.
            Input::Identified { .. } | Input::Seeds(_) | Input::DataThreadAlive | Input::Used | Input::Leave | Input::Depart => {}
        }
        Next::Stay
    }

    fn handle_message(&mut self, cx: &mut Context, from: MemberId, message: Message) -> Next {
        if from == cx.me {
            return Next::Stay;
        }
        if message.cluster().is_some_and(|c| c != self.cluster()) {
            cx.remark(format!("process {from} belongs to another cluster than this one ({}): they stay apart", self.cluster()));
            return Next::Stay;
        }
        match message {
            Message::Ping(pulse) => {
                if !cx.mute() {
                    self.tables.answered.insert(from, cx.now);
                    if !self.tables.is_member(from) {
                        self.tables.answered.remove(&from);
                    }
                    let pong = self.pulse(cx, pulse.sequence);
                    cx.send(from, Message::Pong(pong));
                }
                self.hear(cx, from, &pulse);
            }
            Message::Pong(pulse) => {
                if let Some(sent) = cx.detector.answered(from, pulse.sequence) {
                    self.lease.answer(from, pulse.accepted.order(), sent, self.tables.order());
                }
                self.hear(cx, from, &pulse);
            }
            Message::Probe(standing) => {
                let answer = self.standing(cx);
                cx.send(from, Message::ProbeAnswer(Box::new(answer)));
                self.meet(cx, from, &standing);
            }
            Message::ProbeAnswer(standing) => self.meet(cx, from, &standing),
            Message::Found(_) | Message::Promise(_) | Message::JoinRefused { .. } => cx.ignore(),
            Message::Join { member, .. } => self.ask_join(cx, from, *member),
            Message::PreVote(ballot) => self.handle_pre_vote(cx, from, ballot),
            Message::Vote(ballot) => self.handle_vote(cx, from, ballot),
            Message::PreVoteAnswer(answer) => {
                self.handle_answer(cx, from, answer, false);
            }
            Message::VoteAnswer(answer) => {
                self.handle_answer(cx, from, answer, true);
            }
            Message::Propose(proposal) => self.handle_proposal(cx, from, *proposal),
            Message::Ack(ack) => self.handle_ack(cx, from, *ack),
            Message::Refuse { name, term, whole } => self.handle_refusal(cx, from, name, term, whole),
            Message::Commit(commit) => {
                if commit.name == self.tables.accepted_name && commit.name.version > self.tables.installed_name.version {
                    let (table, name) = (self.tables.accepted.clone(), commit.name);
                    self.install(cx, table, name, Some(*commit));
                } else if commit.name.version > self.tables.installed_name.version {
                    self.pull(cx, from);
                }
            }
            Message::Pull { have, .. } => {
                let committed = Committed {
                    name: self.tables.installed_name,
                    payload: self.tables.payload_for(have),
                    commit: self.tables.commit.clone(),
                };
                cx.send(from, Message::Committed(Box::new(committed)));
            }
            Message::Committed(committed) => self.handle_committed(cx, from, *committed),
            Message::InSync { origin, requests, .. } => self.ask_in_sync(cx, origin, requests),
            Message::Opened { sequence, partitions, .. } => {
                if let Office::Coordinator(office) = &mut self.office {
                    office.opened.extend(partitions.into_iter().take(super::duties::OPENED_MAX));
                    cx.send(from, Message::OpenedSeen { cluster: self.cluster(), sequence });
                }
            }
            Message::OpenedSeen { sequence, .. } => {
                if self.opened_seen.is_none_or(|(who, seen)| who != from || seen < sequence) {
                    self.opened_seen = Some((from, sequence));
                }
            }
            Message::Admin { origin, ticket, request, .. } => self.ask_admin(cx, from, origin, ticket, request),
            Message::AdminReply { ticket, reply, .. } => {
                if self.requests.remove(&ticket).is_some() {
                    cx.out.push_back(Output::AdminReply { ticket, reply });
                }
            }
            Message::Leave { member, gone, .. } => self.ask_leave(cx, from, member, gone),
        }
        self.after(cx)
    }

    /// What the last install means for this process.
    fn after(&mut self, cx: &mut Context) -> Next {
        if self.departed.is_some() || self.tables.installed.member(cx.me).is_some() {
            return Next::Stay;
        }
        self.coordinator = None;
        self.office = Office::Follower { stand_at: None };
        if cx.departing {
            self.departed = Some((cx.now, BTreeSet::new()));
            return Next::Stay;
        }
        cx.out.push_back(Output::Expelled);
        Next::Over
    }

    // ---- what a member does by itself

    pub(super) fn drive(&mut self, cx: &mut Context) -> Next {
        if self.departed.is_some() {
            return self.finish_departure(cx);
        }
        if let Some((cluster, through)) = self.surrender.take() {
            cx.remark(format!("this cluster of one gives way to cluster {cluster}"));
            return Next::Outside(Outside::joining(cx, cluster, through));
        }
        if cx.used_asked {
            cx.used_asked = false;
            cx.used = true;
            cx.out.push_back(Output::UsedOk);
        }
        self.ping(cx);
        self.watch_coordinator(cx);
        self.consider_standing(cx);
        self.watch_majority(cx);
        self.send_requests(cx);
        self.look_around(cx);
        self.leave(cx);
        self.serve_office(cx);
        self.extend_lease(cx);
        self.settle_recovery(cx);
        self.after(cx)
    }

    pub(super) fn due(&self, cx: &Context) -> Time {
        let mut due = self.round_next.min(self.look_next);
        due = due.min(cx.detector.due(cx.now).unwrap_or(due));
        due = match &self.office {
            Office::Follower { stand_at } => due.min(stand_at.unwrap_or(due)),
            Office::Candidate(candidate) => due.min(candidate.until),
            Office::Coordinator(office) => due.min(office.due(cx.now).unwrap_or(due)),
        };
        if cx.leaving && !self.handed_over || cx.departing {
            due = due.min(self.leave_next);
        }
        let due = self.requests.values().map(|r| r.send_next.min(r.until)).fold(due, Time::min);
        // Never at once: what is due now was just looked at.
        due.max(cx.now + Duration::from_millis(1))
    }

    pub(super) fn pulse(&self, _cx: &Context, sequence: u64) -> Pulse {
        Pulse {
            cluster: self.cluster(),
            sequence,
            term: self.term,
            coordinator: self.coordinator,
            accepted: self.tables.accepted_name,
            committed: self.tables.installed_name,
        }
    }

    /// Everybody asks the voters; the coordinator asks everybody.
    fn asked(&self, cx: &Context) -> BTreeSet<MemberId> {
        let mut asked: BTreeSet<MemberId> = self.tables.voters().into_iter().collect();
        if matches!(self.office, Office::Coordinator(_)) {
            asked.extend(self.tables.installed.members.iter().chain(&self.tables.accepted.members).map(|m| m.id));
        }
        asked.remove(&cx.me);
        asked
    }

    fn ping(&mut self, cx: &mut Context) {
        if cx.mute() {
            // Rule 12. When the data threads come back, what was sent before proves nothing.
            cx.detector.woke();
            self.round_next = cx.now + cx.config.timing.ping_interval;
            self.round_at = cx.now;
            return;
        }
        let interval = cx.config.timing.ping_interval;
        let mut to: BTreeSet<MemberId> = cx.detector.quick_pings(cx.now).into_iter().collect();
        if cx.now >= self.round_next {
            if cx.now.since(self.round_at) > interval * 2 {
                // This process slept: the silence was its own.
                cx.detector.woke();
            }
            let asked = self.asked(cx);
            cx.detector.retain(|m| asked.contains(&m));
            to.extend(asked);
            self.round_at = cx.now;
            self.round_next = cx.now + interval;
            self.report_opened(cx);
        }
        for member in to {
            self.ping_one(cx, member);
        }
    }

    fn ping_one(&self, cx: &mut Context, member: MemberId) {
        let sequence = cx.detector.sent(member, cx.now);
        let ping = self.pulse(cx, sequence);
        cx.send(member, Message::Ping(ping));
    }

    /// A member's host says that nobody listens there: ask at once, and soon again.
    fn suspect(&mut self, cx: &mut Context, member: MemberId) {
        if cx.detector.suspect(member, cx.now) {
            self.ping_one(cx, member);
        }
    }

    fn extend_lease(&mut self, cx: &mut Context) {
        let own = (!cx.mute()).then_some((cx.me, cx.now));
        let reach = |voters: &[MemberId]| self.lease.reach(voters, own);
        let (Some(installed), Some(accepted)) = (reach(&self.tables.installed.voters), reach(&self.tables.accepted.voters)) else { return };
        let until = installed.min(accepted) + cx.config.timing.lease;
        // A node that answers itself would extend its lease with every input: a quarter of a ping's interval is fine enough.
        if until > self.lease.until + cx.config.timing.ping_interval / 4 {
            self.lease.until = until;
            cx.out.push_back(Output::Lease(until));
        }
    }

    /// What a ping or pong says about term, coordinator and tables.
    fn hear(&mut self, cx: &mut Context, from: MemberId, pulse: &Pulse) {
        if pulse.committed.version > self.tables.installed_name.version {
            self.pull(cx, from);
        }
        if let Some((_, installed)) = &mut self.departed {
            if pulse.committed.version >= self.tables.installed_name.version {
                installed.insert(from);
            }
            return;
        }
        if pulse.term > self.term {
            match (&self.office, pulse.coordinator) {
                // Somebody coordinates in a later term: join it.
                (_, Some(coordinator)) => self.follow(cx, coordinator, pulse.term),
                // Nobody won that term: a coordinator stands again above it.
                (Office::Coordinator(_), None) => self.stand_above(cx, pulse.term),
                _ => {}
            }
        } else if pulse.term == self.term {
            if self.coordinator == Some(from) && from != cx.me && pulse.coordinator != Some(from) {
                // It stepped down.
                self.coordinator = None;
                self.lost_at = cx.now;
            } else if self.coordinator.is_none() && pulse.coordinator == Some(from) && !cx.detector.suspected(from) {
                // Only from itself: others may not have noticed yet that it is gone.
                self.follow(cx, from, pulse.term);
            }
            if let Office::Coordinator(office) = &mut self.office
                && pulse.coordinator == Some(cx.me)
            {
                office.joined.insert(from);
            }
        }
    }

    pub(super) fn follow(&mut self, cx: &mut Context, coordinator: MemberId, term: Term) {
        if term > self.term {
            self.term = term;
            self.voted = None;
        }
        if coordinator == cx.me && !matches!(self.office, Office::Coordinator(_)) {
            return;
        }
        self.coordinator = Some(coordinator);
        if coordinator != cx.me {
            self.office = Office::Follower { stand_at: None };
            self.announce(cx);
            // The successor must hear what is open here.
            self.report_opened(cx);
        }
    }

    pub(super) fn announce(&mut self, cx: &mut Context) {
        let Some(coordinator) = self.coordinator else { return };
        if self.announced != Some((self.term, coordinator)) {
            self.announced = Some((self.term, coordinator));
            let name = self.tables.name_of(coordinator);
            cx.tell(Event::Coordinator { name, term: self.term.0 });
        }
    }

    pub(super) fn pull(&mut self, cx: &mut Context, from: MemberId) {
        if self.pulled_at.get(&from).is_some_and(|at| cx.now.since(*at) < PULL_INTERVAL) {
            return;
        }
        if self.pulled_at.len() > FORMER_MAX {
            self.pulled_at.retain(|_, at| cx.now.since(*at) < PULL_INTERVAL);
        }
        self.pulled_at.insert(from, cx.now);
        cx.send(from, Message::Pull { cluster: self.cluster(), have: Some(self.tables.installed_name) });
    }

    // ---- tables

    /// Rule 3: every member stores a proposal and answers it.
    fn handle_proposal(&mut self, cx: &mut Context, from: MemberId, proposal: Proposal) {
        let name = proposal.name;
        if name.term < self.term {
            return cx.send(from, Message::Refuse { name, term: self.term, whole: false });
        }
        if name.term == self.term && self.coordinator.is_some_and(|c| c != from) {
            // I2: one publisher a term. Somebody is broken, and it is not believed.
            cx.remark(format!("process {from} proposes tables in a term that is not its own"));
            return cx.ignore();
        }
        if name != self.tables.accepted_name && name.order() <= self.tables.order() {
            return cx.send(from, Message::Refuse { name, term: self.term, whole: false });
        }
        self.follow(cx, from, name.term);
        // What the coordinator says is committed is: if that is what is accepted here, it is installed first (rule 9 asks for
        // the predecessor).
        if proposal.committed == self.tables.accepted_name && proposal.committed.version > self.tables.installed_name.version {
            let (table, name) = (self.tables.accepted.clone(), self.tables.accepted_name);
            self.install(cx, table, name, None);
        }
        if name != self.tables.accepted_name {
            let table = match self.tables.unpack(name, proposal.payload) {
                Ok(table) => table,
                Err(Unpack::NoBase) => return cx.send(from, Message::Refuse { name, term: self.term, whole: true }),
                Err(Unpack::Invalid) => return cx.ignore(),
            };
            let (ages, seal) = self.testimony(cx, &table, proposal.committed);
            self.accept(cx, table, name);
            cx.send(from, Message::Ack(Box::new(Ack { name, ages, seal })));
        } else {
            // Said again: the first ack may be lost. What is accepted was shown to the data threads then.
            let table = self.tables.accepted.clone();
            let (ages, seal) = self.testimony(cx, &table, proposal.committed);
            cx.send(from, Message::Ack(Box::new(Ack { name, ages, seal })));
        }
    }

    /// What rule 9 wants to know of an ack.
    pub(super) fn testimony(
        &self,
        cx: &Context,
        next: &Table,
        predecessor: TableName,
    ) -> (Option<Vec<(MemberId, u64)>>, Option<Vec<PartitionRef>>) {
        if predecessor != self.tables.installed_name {
            return (None, None);
        }
        (Some(self.tables.ages(cx, next)), self.tables.seal(cx, next, &self.opened))
    }

    pub(super) fn accept(&mut self, cx: &mut Context, table: Arc<Table>, name: TableName) {
        self.tables.accept(cx, table, name);
        self.lease.accepted(self.tables.order());
    }

    fn handle_committed(&mut self, cx: &mut Context, from: MemberId, committed: Committed) {
        if committed.name.version <= self.tables.installed_name.version {
            return;
        }
        match self.tables.unpack(committed.name, committed.payload) {
            Ok(table) => {
                self.pulled_at.remove(&from);
                self.install(cx, table, committed.name, committed.commit.filter(|c| c.name == committed.name));
            }
            Err(Unpack::NoBase) => cx.send(from, Message::Pull { cluster: self.cluster(), have: None }),
            Err(Unpack::Invalid) => cx.ignore(),
        }
    }

    pub(super) fn install(&mut self, cx: &mut Context, table: Arc<Table>, name: TableName, commit: Option<Commit>) {
        for member in self.tables.installed.members.clone() {
            if table.member(member.id).is_none() && member.id != cx.me {
                self.remember(member.addresses.control);
            }
        }
        if name.term > self.term {
            self.term = name.term;
            self.voted = None;
        }
        if table.members.len() > 1 {
            cx.used = true;
        }
        self.tables.install(cx, table, name, commit);
        self.lease.accepted(self.tables.order());
        let voters = self.tables.voters();
        self.lease.retain(|v| voters.binary_search(&v).is_ok());
        let installed = &self.tables.installed;
        self.opened.retain(|at, since| installed.partition(*at).is_some_and(|p| p.since == *since && p.primary() == cx.me));
        if self.coordinator.is_some_and(|c| !self.tables.is_member(c)) {
            self.coordinator = None;
            self.lost_at = cx.now;
        }
    }

    fn remember(&mut self, address: SocketAddr) {
        if !self.former.contains(&address) {
            if self.former.len() >= FORMER_MAX {
                self.former.pop_front();
            }
            self.former.push_back(address);
        }
    }

    // ---- what is asked of the coordinator

    /// Passes something on to the coordinator, or hands it back if this node is it.
    fn relay(&self, cx: &mut Context, from: MemberId, message: Message) {
        // One hop: what was passed on to somebody who does not coordinate either is asked again by whoever asked first.
        if let Some(coordinator) = self.coordinator.filter(|c| *c != cx.me && *c != from) {
            cx.send(coordinator, message);
        }
    }

    fn ask_in_sync(&mut self, cx: &mut Context, origin: MemberId, requests: Vec<InSyncRequest>) {
        if let Office::Coordinator(office) = &mut self.office {
            office.ask_in_sync(origin, requests);
        } else {
            let cluster = self.cluster();
            let (me, voters) = (cx.me, self.tables.voters());
            let message = Message::InSync { cluster, origin, requests };
            match self.coordinator {
                Some(_) => self.relay(cx, origin, message),
                // Rule 7: through any voter.
                None if origin == me => {
                    if let Some(voter) = voters.into_iter().find(|v| *v != me) {
                        cx.send(voter, message);
                    }
                }
                None => {}
            }
        }
    }

    /// Whoever is in the table in force and does not know it is told.
    fn inform(&self, cx: &mut Context, id: MemberId) {
        if id != cx.me && self.tables.installed.member(id).is_some() {
            let (name, commit) = (self.tables.installed_name, self.tables.commit.clone());
            let payload = crate::wire::Payload::Whole(self.tables.installed.clone());
            cx.send(id, Message::Committed(Box::new(Committed { name, payload, commit })));
        }
    }

    fn ask_join(&mut self, cx: &mut Context, from: MemberId, member: doyen_placement::Member) {
        self.inform(cx, member.id);
        if let Office::Coordinator(office) = &mut self.office {
            office.ask_join(member);
        } else {
            let cluster = self.cluster();
            self.relay(cx, from, Message::Join { cluster, member: Box::new(member) });
        }
    }

    fn ask_leave(&mut self, cx: &mut Context, from: MemberId, member: MemberId, gone: bool) {
        if let Office::Coordinator(office) = &mut self.office {
            office.leaving.insert(member);
            if gone {
                office.gone.insert(member);
            }
        } else {
            let cluster = self.cluster();
            self.relay(cx, from, Message::Leave { cluster, member, gone });
        }
    }

    fn ask_admin(&mut self, cx: &mut Context, from: MemberId, origin: MemberId, ticket: u64, request: AdminRequest) {
        if let Office::Coordinator(office) = &mut self.office {
            office.ask_admin(origin, ticket, request);
        } else {
            let cluster = self.cluster();
            self.relay(cx, from, Message::Admin { cluster, origin, ticket, request });
        }
    }

    fn send_requests(&mut self, cx: &mut Context) {
        let late: Vec<u64> = self.requests.iter().filter(|(_, r)| cx.now >= r.until).map(|(t, _)| *t).collect();
        for ticket in late {
            self.requests.remove(&ticket);
            let reply = AdminReply::Refused(format!("no answer in time: {}", self.why_nobody_coordinates(cx)));
            cx.out.push_back(Output::AdminReply { ticket, reply });
        }
        let cluster = self.cluster();
        let Some(coordinator) = self.coordinator else { return };
        for (&ticket, waiting) in &mut self.requests {
            if cx.now < waiting.send_next {
                continue;
            }
            waiting.send_next = cx.now + REQUEST_INTERVAL;
            let request = waiting.request.clone();
            match &mut self.office {
                Office::Coordinator(office) => office.ask_admin(cx.me, ticket, request),
                _ if coordinator != cx.me => cx.send(coordinator, Message::Admin { cluster, origin: cx.me, ticket, request }),
                _ => {}
            }
        }
    }

    /// The coordinator's answer to a request of this node.
    pub(super) fn answered(&mut self, cx: &mut Context, origin: MemberId, ticket: u64, reply: AdminReply) {
        if origin != cx.me {
            let cluster = self.cluster();
            return cx.send(origin, Message::AdminReply { cluster, ticket, reply });
        }
        if self.requests.remove(&ticket).is_some() {
            cx.out.push_back(Output::AdminReply { ticket, reply });
        }
    }

    fn report_opened(&mut self, cx: &mut Context) {
        let Some(coordinator) = self.coordinator else { return };
        if self.opened_sequence == 0 || self.opened_seen.is_some_and(|(who, seen)| who == coordinator && seen >= self.opened_sequence) {
            return;
        }
        let partitions: Vec<(PartitionRef, Epoch)> = self.opened.iter().map(|(at, since)| (*at, *since)).collect();
        if coordinator == cx.me {
            if let Office::Coordinator(office) = &mut self.office {
                office.opened.extend(partitions);
                self.opened_seen = Some((cx.me, self.opened_sequence));
            }
        } else {
            cx.send(coordinator, Message::Opened { cluster: self.cluster(), sequence: self.opened_sequence, partitions });
        }
    }

    // ---- leaving (rule 10)

    fn leave(&mut self, cx: &mut Context) {
        if !cx.leaving {
            return;
        }
        let alone = self.tables.installed.members.iter().all(|m| m.id == cx.me || m.state == MemberState::Silent);
        let mine = self.tables.installed.member(cx.me).map(|m| m.state);
        let empty = mine == Some(MemberState::Leaving) && !holds_anything(&self.tables.installed, cx.me);
        if !self.handed_over && (alone || empty) {
            self.handed_over = true;
            cx.out.push_back(Output::HandedOver);
        }
        if cx.departing && alone {
            // Nobody is left who could install a table without it.
            self.departed = Some((cx.now, BTreeSet::new()));
            return;
        }
        if cx.now < self.leave_next || (self.handed_over && !cx.departing) {
            return;
        }
        self.leave_next = cx.now + cx.config.timing.ping_interval;
        let gone = cx.departing && self.handed_over;
        let (cluster, me) = (self.cluster(), cx.me);
        if let Office::Coordinator(office) = &mut self.office {
            office.leaving.insert(me);
            if gone {
                office.gone.insert(me);
            }
        } else if let Some(coordinator) = self.coordinator {
            cx.send(coordinator, Message::Leave { cluster, member: me, gone });
        }
    }

    fn finish_departure(&mut self, cx: &mut Context) -> Next {
        let Some((since, installed)) = &self.departed else { return Next::Stay };
        let voters: Vec<MemberId> = self.tables.installed.voters.iter().copied().filter(|v| *v != cx.me).collect();
        let known = voters.is_empty() || majority(&voters, |v| installed.contains(&v));
        if known || cx.now.since(*since) > DEPARTURE_TIME {
            cx.out.push_back(Output::Left);
            return Next::Over;
        }
        if cx.now >= self.round_next {
            self.round_next = cx.now + cx.config.timing.ping_interval / 4;
            for voter in voters {
                self.ping_one(cx, voter);
            }
        }
        Next::Stay
    }

    // ---- other clusters

    fn standing(&self, cx: &Context) -> Standing {
        let used = cx.used || self.tables.installed.members.len() > 1;
        Standing { member: cx.self_description(), state: Stand::Member { cluster: self.cluster(), used } }
    }

    /// Another process says how it stands.
    fn meet(&mut self, cx: &mut Context, from: MemberId, standing: &Standing) {
        let Stand::Member { cluster, used } = standing.state else {
            // A process that is no member yet, at the address of one that is: that one is gone.
            let control = standing.member.addresses.control;
            self.inform(cx, from);
            let former = self.tables.installed.members.iter().find(|m| m.addresses.control == control && m.id != from && m.id != cx.me);
            if let Some(former) = former.map(|m| m.id) {
                self.suspect(cx, former);
            }
            return;
        };
        if cluster == self.cluster() {
            return;
        }
        let alone = self.tables.installed.members.len() == 1 && !cx.used;
        if alone && (used || cluster < self.cluster()) {
            self.surrender = Some((cluster, from));
        } else if !alone {
            let name = &standing.member.name;
            cx.remark(format!(
                "{name} at {} belongs to another cluster ({cluster}; this one is {}): clusters that are in use never merge. Stop one of them, and \
                 start its nodes again with the other's addresses as seeds",
                standing.member.addresses.control,
                self.cluster()
            ));
        }
    }

    /// Members keep looking at seeds and at addresses of former members, so that a restarted seed hears of the living cluster.
    fn look_around(&mut self, cx: &mut Context) {
        if cx.now < self.look_next {
            return;
        }
        self.look_next = cx.now + LOOK_INTERVAL + cx.jitter(LOOK_INTERVAL / 4);
        let members: BTreeSet<SocketAddr> = self.tables.installed.members.iter().map(|m| m.addresses.control).collect();
        let mut addresses: BTreeSet<SocketAddr> = cx.config.seeds.iter().copied().collect();
        addresses.extend(&self.former);
        let me = cx.me;
        for address in addresses {
            let known = cx.addresses.get(&address).is_some_and(|id| *id == me || self.tables.installed.member(*id).is_some());
            if !known && !members.contains(&address) {
                let standing = self.standing(cx);
                cx.send_to(address, Message::Probe(Box::new(standing)));
            }
        }
    }

    // ---- recovery by an operator

    fn recover(&mut self, cx: &mut Context, dead: &[String], ticket: u64) {
        let refuse = |cx: &mut Context, why: String| cx.out.push_back(Output::AdminReply { ticket, reply: AdminReply::Refused(why) });
        let mut asserted = BTreeSet::new();
        for name in dead {
            let Some(member) = self.tables.accepted.members.iter().find(|m| m.name == *name) else {
                return refuse(cx, format!("no member is named {name}: `doyen status` lists them"));
            };
            let timing = &cx.config.timing;
            let silent =
                cx.detector.silent(member.id, cx.now, timing.pings_missed_max, timing.ping_interval) || cx.detector.suspected(member.id);
            if member.id == cx.me {
                return refuse(cx, format!("{name} is the node that was asked"));
            }
            if !silent && self.asked(cx).contains(&member.id) {
                return refuse(cx, format!("{name} answers: only members that are gone for good can be asserted dead"));
            }
            asserted.insert(member.id);
        }
        if asserted.is_empty() {
            return refuse(cx, "name the members that are dead: `doyen recover --assert-dead NAME...`".to_owned());
        }
        if let Some(former) = self.recovery.replace(ticket) {
            let reply = AdminReply::Refused("another recovery took its place".to_owned());
            cx.out.push_back(Output::AdminReply { ticket: former, reply });
        }
        cx.tell(Event::Note(format!("an operator asserts that {} is dead: this node goes on without it", dead.join(", "))));
        self.asserted = asserted;
        match &mut self.office {
            Office::Coordinator(_) => {}
            _ => self.stand_now(cx),
        }
    }

    fn settle_recovery(&mut self, cx: &mut Context) {
        if self.asserted.is_empty()
            || self.asserted.iter().any(|m| self.tables.installed.member(*m).is_some_and(|m| m.state != MemberState::Silent))
        {
            return;
        }
        self.asserted.clear();
        if let Some(ticket) = self.recovery.take() {
            cx.out.push_back(Output::AdminReply { ticket, reply: AdminReply::Done(None) });
        }
    }

    // ---- reporting

    pub(super) fn status(&self, cx: &Context) -> Status {
        let (leading, closed) = match &self.office {
            Office::Coordinator(office) => {
                let open = |at: &PartitionRef, since: Epoch| office.opened.get(at) == Some(&since);
                (true, partitions(&self.tables.installed).filter(|(at, p)| !open(at, p.since)).map(|(at, _)| at).collect())
            }
            _ => (false, Vec::new()),
        };
        let waiting = match self.coordinator {
            None => Some(self.why_nobody_coordinates(cx)),
            Some(_) if self.tables.installed.keyspaces.iter().any(|k| k.partitions.is_empty()) => {
                let (have, want) = (self.tables.installed.members.len(), self.tables.installed.settings.members_min);
                Some(format!("partitions are assigned once {want} members that hold data are there; there are {have} members"))
            }
            Some(_) => None,
        };
        Status { me: cx.me, coordinator: self.coordinator, leading, installed: Some(self.tables.installed_name), closed, waiting }
    }
}
