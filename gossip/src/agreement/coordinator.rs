//! The coordinator: it publishes tables, one at a time (rule 3), and commits them.

use super::api::{AdminReply, AdminRequest};
use super::context::Context;
use super::seat::{Office, Seat};
use crate::time::Time;
use crate::wire::{Ack, Commit, Committed, Message, Payload, Proposal};
use doyen_placement::planner::{InSyncRequest, Plan};
use doyen_placement::quorum::majority;
use doyen_placement::table::TableDelta;
use doyen_placement::{Epoch, Member, MemberId, MemberState, PartitionRef, Table, TableName, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A proposal is said again to whoever has not acknowledged it for this long.
const RESEND: Duration = Duration::from_millis(100);
/// How long a commit waits for the ack of a leaver, which saves its heirs the wait (rule 10).
const LEAVER_PATIENCE: Duration = Duration::from_millis(20);
/// Requests that wait at most, of each kind.
const WAITING_MAX: usize = 65_536;

/// What a coordinator knows beside what every member knows.
#[derive(Debug)]
pub(super) struct Coordinator {
    /// Nothing was published in this term yet.
    pub(super) fresh: bool,
    /// Who is known to be in this term (rule 4).
    pub(super) joined: BTreeSet<MemberId>,
    pub(super) in_flight: Option<InFlight>,
    pub(super) joins: BTreeMap<MemberId, Member>,
    pub(super) in_sync: Vec<(MemberId, InSyncRequest)>,
    pub(super) admin: BTreeMap<(MemberId, u64), AdminRequest>,
    pub(super) leaving: BTreeSet<MemberId>,
    pub(super) gone: BTreeSet<MemberId>,
    /// Which partitions their primaries have opened, and in which tenure.
    pub(super) opened: BTreeMap<PartitionRef, Epoch>,
    pub(super) goals: Option<(TableName, Plan)>,
    pub(super) planned_for: Option<TableName>,
    /// Learners that failed: how often, and until when they are not tried again.
    pub(super) failed: BTreeMap<(PartitionRef, MemberId), (u32, Time)>,
    pub(super) silent_since: BTreeMap<MemberId, Time>,
    /// Silent members of which a later process of their name, on their address, says that they are dead.
    pub(super) vouched: BTreeSet<MemberId>,
    /// When changes that can wait may be published again.
    pub(super) batch_at: Time,
    /// Changes that can wait do.
    pub(super) batch_waits: bool,
}

/// A proposal on its way.
#[derive(Debug)]
pub(super) struct InFlight {
    table: Arc<Table>,
    name: TableName,
    predecessor: TableName,
    delta: TableDelta,
    voters: Vec<MemberId>,
    /// Members of the committed table; others get the whole one.
    known: BTreeSet<MemberId>,
    acks: BTreeMap<MemberId, Ack>,
    resend_at: Time,
    /// Whose ack is waited for, and until when.
    hold: Option<(BTreeSet<MemberId>, Time)>,
    replies: Vec<(MemberId, u64, AdminReply)>,
}

impl Coordinator {
    pub(super) fn new(cx: &Context, joined: BTreeSet<MemberId>, fresh: bool) -> Self {
        Self {
            fresh,
            joined,
            in_flight: None,
            joins: BTreeMap::new(),
            in_sync: Vec::new(),
            admin: BTreeMap::new(),
            leaving: BTreeSet::new(),
            gone: BTreeSet::new(),
            opened: BTreeMap::new(),
            goals: None,
            planned_for: None,
            failed: BTreeMap::new(),
            silent_since: BTreeMap::new(),
            vouched: BTreeSet::new(),
            batch_at: cx.now,
            batch_waits: false,
        }
    }

    pub(super) fn due(&self, now: Time) -> Option<Time> {
        let in_flight = self.in_flight.as_ref().map(|f| f.hold.as_ref().map_or(f.resend_at, |(_, until)| f.resend_at.min(*until)));
        let batch = (self.in_flight.is_none() && self.batch_waits && self.batch_at > now).then_some(self.batch_at);
        in_flight.into_iter().chain(batch).min()
    }

    pub(super) fn ask_in_sync(&mut self, origin: MemberId, requests: Vec<InSyncRequest>) {
        for request in requests {
            if self.in_sync.len() < WAITING_MAX && !self.in_sync.iter().any(|(o, r)| *o == origin && *r == request) {
                self.in_sync.push((origin, request));
            }
        }
    }

    pub(super) fn ask_join(&mut self, member: Member) {
        if self.joins.len() < WAITING_MAX {
            self.joins.insert(member.id, member);
        }
    }

    pub(super) fn ask_admin(&mut self, origin: MemberId, ticket: u64, request: AdminRequest) {
        if self.admin.len() < WAITING_MAX {
            self.admin.insert((origin, ticket), request);
        }
    }
}

impl Seat {
    /// Rule 6: without answers of a majority a coordinator steps down, and never publishes in that term again.
    pub(super) fn watch_majority(&mut self, cx: &mut Context) {
        if !matches!(self.office, Office::Coordinator(_)) {
            return;
        }
        let timing = &cx.config.timing;
        let silent = |m: MemberId| cx.detector.silent(m, cx.now, timing.pings_missed_max, timing.ping_interval);
        let answers = |m: MemberId| m == cx.me || self.asserted.contains(&m) || !silent(m);
        if cx.mute() || !majority(&self.tables.installed.voters, answers) || !majority(&self.tables.accepted.voters, answers) {
            self.step_down(cx);
        }
    }

    pub(super) fn step_down(&mut self, cx: &mut Context) {
        self.coordinator = None;
        self.lost_at = cx.now;
        self.office = Office::Follower { stand_at: None };
        let why = self.why_nobody_coordinates(cx);
        cx.lament(format!("this node coordinates no longer: {why}"));
    }

    /// Does what an office holder does: publishes what is due.
    pub(super) fn serve_office(&mut self, cx: &mut Context) {
        // Each commit may allow the next proposal at once (a cluster of one commits by itself); bounded, all the same.
        for _ in 0..8 {
            if !matches!(self.office, Office::Coordinator(_)) || self.departed() {
                return;
            }
            self.resend(cx);
            if self.try_commit(cx) {
                continue;
            }
            let Some((next, replies)) = self.next_table(cx) else { return };
            self.propose(cx, next, replies);
        }
    }

    /// Publishes a table: accepted here before it is sent (rule 3).
    fn propose(&mut self, cx: &mut Context, mut next: Table, replies: Vec<(MemberId, u64, AdminReply)>) {
        next.term = self.term;
        next.version = self.tables.accepted_name.version.next();
        if let Err(why) = next.validate() {
            // Our own planner made it: a defect, said loudly; the table in force stays.
            cx.remark(format!("a table that this node made is not valid and was not published: {why}"));
            for (origin, ticket, _) in replies {
                self.answered(cx, origin, ticket, AdminReply::Refused(format!("it would make the table invalid: {why}")));
            }
            return;
        }
        let name = next.name();
        let table = Arc::new(next);
        let installed = self.tables.installed.clone();
        let predecessor = self.tables.installed_name;
        let (ages, seal) = self.testimony(cx, &table, predecessor);
        self.accept(cx, table.clone(), name);
        let leavers: BTreeSet<MemberId> = table
            .members
            .iter()
            .filter(|m| matches!(m.state, MemberState::Leaving | MemberState::Draining) && m.id != cx.me)
            .map(|m| m.id)
            .filter(|m| installed.keyspaces.iter().flat_map(|k| &k.partitions).any(|p| p.primary() == *m))
            .collect();
        let in_flight = InFlight {
            delta: TableDelta::between(&installed, &table),
            voters: installed.voters.clone(),
            known: installed.members.iter().map(|m| m.id).collect(),
            acks: BTreeMap::from([(cx.me, Ack { name, ages, seal })]),
            resend_at: cx.now + RESEND,
            hold: (!leavers.is_empty()).then_some((leavers, cx.now + LEAVER_PATIENCE)),
            table,
            name,
            predecessor,
            replies,
        };
        for member in in_flight.members(cx.me) {
            cx.send(member, in_flight.proposal(member, false));
        }
        if let Office::Coordinator(office) = &mut self.office {
            office.fresh = false;
            office.in_flight = Some(in_flight);
        }
    }

    fn resend(&mut self, cx: &mut Context) {
        let Office::Coordinator(office) = &mut self.office else { return };
        let Some(in_flight) = office.in_flight.as_mut().filter(|f| cx.now >= f.resend_at) else { return };
        in_flight.resend_at = cx.now + RESEND;
        for member in in_flight.members(cx.me).into_iter().filter(|m| !in_flight.acks.contains_key(m)) {
            cx.send(member, in_flight.proposal(member, false));
        }
    }

    pub(super) fn handle_ack(&mut self, cx: &mut Context, from: MemberId, ack: Ack) {
        let Office::Coordinator(office) = &mut self.office else { return cx.ignore() };
        office.joined.insert(from);
        if let Some(in_flight) = office.in_flight.as_mut().filter(|f| f.name == ack.name) {
            // The first answer counts for rule 9: a repeated one knows less.
            in_flight.acks.entry(from).or_insert(ack);
        }
    }

    pub(super) fn handle_refusal(&mut self, cx: &mut Context, from: MemberId, name: TableName, term: Term, whole: bool) {
        if !matches!(self.office, Office::Coordinator(_)) || name.term != self.term {
            return;
        }
        if term > self.term {
            return self.stand_above(cx, term);
        }
        if let Office::Coordinator(office) = &mut self.office
            && let Some(in_flight) = office.in_flight.as_ref().filter(|f| f.name == name && whole)
        {
            cx.send(from, in_flight.proposal(from, true));
        }
    }

    /// Commits what is in flight, if it may be. True: it was.
    fn try_commit(&mut self, cx: &mut Context) -> bool {
        let Office::Coordinator(office) = &mut self.office else { return false };
        let Some(in_flight) = &office.in_flight else { return false };
        let acked = |m: MemberId| in_flight.acks.contains_key(&m) || self.asserted.contains(&m);
        let (old, new) = (&in_flight.voters, &in_flight.table.voters);
        if !majority(old, acked) || !majority(new, acked) {
            return false;
        }
        if let Some((leavers, until)) = &in_flight.hold
            && cx.now < *until
            && !leavers.iter().all(|m| in_flight.acks.contains_key(m))
        {
            return false;
        }
        let Some(in_flight) = office.in_flight.take() else { return false };
        let commit = in_flight.commit();
        let members = in_flight.members(cx.me);
        let InFlight { table, name, known, replies, .. } = in_flight;
        self.install(cx, table.clone(), name, Some(commit.clone()));
        for member in members {
            let message = if known.contains(&member) {
                Message::Commit(Box::new(commit.clone()))
            } else {
                Message::Committed(Box::new(Committed { name, payload: Payload::Whole(table.clone()), commit: Some(commit.clone()) }))
            };
            cx.send(member, message);
        }
        for (origin, ticket, reply) in replies {
            self.answered(cx, origin, ticket, reply);
        }
        true
    }
}

impl InFlight {
    /// Everybody of the committed and of the new table, but this node.
    fn members(&self, me: MemberId) -> Vec<MemberId> {
        let mut members = self.known.clone();
        members.extend(self.table.members.iter().map(|m| m.id));
        members.remove(&me);
        members.into_iter().collect()
    }

    fn proposal(&self, to: MemberId, whole: bool) -> Message {
        let payload =
            if whole || !self.known.contains(&to) { Payload::Whole(self.table.clone()) } else { Payload::Delta(self.delta.clone()) };
        Message::Propose(Box::new(Proposal { name: self.name, committed: self.predecessor, voters: self.voters.clone(), payload }))
    }

    /// Rule 9: the least ages that a committing quorum reported, and the seals.
    fn commit(&self) -> Commit {
        let testified = |m: MemberId| self.acks.get(&m).is_some_and(|a| a.ages.is_some());
        let quorum = majority(&self.voters, testified) && majority(&self.table.voters, testified);
        let mut least: BTreeMap<MemberId, u64> = BTreeMap::new();
        if quorum {
            let votes = |m: &MemberId| self.voters.contains(m) || self.table.voters.contains(m);
            let ages: Vec<&Vec<(MemberId, u64)>> =
                self.acks.iter().filter(|(m, _)| votes(m)).filter_map(|(_, a)| a.ages.as_ref()).collect();
            for (primary, age) in ages.iter().copied().flatten() {
                let entry = least.entry(*primary).or_insert(*age);
                *entry = (*entry).min(*age);
            }
            // Whoever did not name a deposed primary knows nothing of it.
            least.retain(|primary, _| ages.iter().all(|a| a.iter().any(|(m, _)| m == primary)));
        }
        let seals = self.acks.iter().filter_map(|(m, a)| a.seal.clone().map(|s| (*m, s))).collect();
        Commit { name: self.name, predecessor: self.predecessor, ages: least.into_iter().collect(), seals }
    }
}
