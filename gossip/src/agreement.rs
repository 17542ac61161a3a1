//! The agreement machine: membership, election, publication of tables, leases.
//!
//! ```text
//!   messages, hints, requests, plans ──> handle(now, input) ──> poll_output()
//!                       poll_timeout() ──> handle(now, Input::Tick)
//!
//!   forming ──living cluster found──> joining ──admitted──> member ──the cluster went on without it──> over
//!      └──────────first table──────────────────────────────>┘
//! ```
//!
//! Every input is followed by a turn: whatever is due then is done, so a late or a missing tick
//! delays, and breaks nothing.

mod api;
mod bootstrap;
mod cadence;
mod context;
mod council;
mod duties;
mod election;
mod event;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod hostile;
mod join;
mod lease;
mod loads;
#[cfg(test)]
mod net;
mod others;
mod publication;
mod requests;
#[cfg(test)]
mod tests;

pub use api::{
    Access, AdminReply, AdminRequest, Config, Input, OtherCluster, Output, Oversight, Peer, Seeds,
    Status, Timing, View,
};
pub use doyen_placement::planner::{BalanceChange, InSyncChange, InSyncRequest};
pub use event::{Event, Severity, Stage, consequence, stages};

use crate::hints::Hint;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Commit, Message, Stand, Standing};
use bootstrap::{Formed, Forming};
use context::{Context, Named, earlier};
use council::Council;
use doyen_placement::{ClusterId, Loads, MemberId, MemberState, Version};
use election::Role;
use join::Joining;
use others::Others;
use publication::Leader;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Addresses of former members that are still dialled.
const FORMER_MAX: usize = 64;
/// Between two looks of a member behind a seed, at most.
const SCOUT_MAX: Duration = Duration::from_secs(30);
/// Members dial seeds and former members' addresses this often, at least and at most.
const DIAL: (Duration, Duration) = (Duration::from_millis(800), Duration::from_millis(1200));

/// The machine.
#[derive(Debug)]
pub struct Agreement {
    cx: Context,
    phase: Phase,
    /// Addresses where somebody may be who does not know of this cluster.
    former: BTreeSet<SocketAddr>,
    /// Members of the last table that was looked at for the above.
    members: BTreeMap<MemberId, SocketAddr>,
    dial_at: Time,
    scout_at: Time,
    /// Other clusters that hold data.
    others: Others,
}

#[derive(Debug)]
enum Phase {
    Forming(Box<Forming>),
    Joining(Box<Joining>),
    Member(Box<Council>),
}

impl Agreement {
    /// A fresh process that knows nothing but its configuration.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let cx = Context::new(config, now);
        let phase = Phase::Forming(Box::new(Forming::new(&cx)));
        let (former, members, others) = (BTreeSet::new(), BTreeMap::new(), Others::default());
        Self {
            cx,
            phase,
            former,
            members,
            dial_at: now,
            scout_at: now,
            others,
        }
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Time, input: Input) {
        // Time never goes back, whoever says so.
        self.cx.now = now.max(self.cx.now);
        if let Phase::Member(council) = &mut self.phase {
            if council.over {
                return;
            }
            if council.late(&self.cx) {
                council.woke(&self.cx);
            }
        }
        self.take(input);
        self.turn();
    }

    /// The next thing to do, in order, until there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.cx.outputs.pop_front()
    }

    /// When `Input::Tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Forming(forming) => forming.timeout(),
            Phase::Joining(joining) => earlier(joining.timeout(), Some(self.dial_at)),
            Phase::Member(council) if council.over => None,
            Phase::Member(council) => earlier(council.timeout(&self.cx), Some(self.dial_at)),
        }
    }

    /// This process.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.cx.me()
    }

    /// Whether this node coordinates.
    #[must_use]
    pub fn leading(&self) -> bool {
        matches!(&self.phase, Phase::Member(council) if matches!(council.role, Role::Leader(_)))
    }

    /// What partitions and members have to carry, as far as it was reported; `None`: this node does
    /// not coordinate.
    #[must_use]
    pub fn loads(&self) -> Option<&Loads> {
        match &self.phase {
            Phase::Member(council) => council.loads(),
            Phase::Forming(_) | Phase::Joining(_) => None,
        }
    }

    /// What this node sees of moves; `None`: it does not coordinate.
    #[must_use]
    pub fn oversight(&self) -> Option<Oversight> {
        match &self.phase {
            Phase::Member(council) => council.oversight(),
            Phase::Forming(_) | Phase::Joining(_) => None,
        }
    }

    /// Messages of peers that made no sense and were dropped.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.cx.ignored
    }

    /// What this node knows of the cluster: for `status` and tests.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let me = self.cx.me();
        let nothing = |waiting| Status {
            me,
            coordinator: None,
            leading: false,
            installed: None,
            closed: Vec::new(),
            planning: false,
            unanswered: Vec::new(),
            filled: Vec::new(),
            waiting,
            others: Vec::new(),
        };
        match &self.phase {
            Phase::Forming(forming) => nothing(Some(forming.waiting(&self.cx))),
            Phase::Joining(joining) => nothing(Some(joining.waiting(now))),
            Phase::Member(council) => Status {
                me,
                coordinator: council.leader,
                leading: matches!(council.role, Role::Leader(_))
                    && council.leader == Some(me)
                    && !council.out
                    && now >= self.cx.now,
                installed: Some(council.committed.name),
                closed: council.closed(),
                planning: council.is_planning(),
                unanswered: council.unanswered(&self.cx),
                filled: council
                    .loads()
                    .into_iter()
                    .flat_map(Loads::members)
                    .map(|(member, load)| (member, load.told()))
                    .collect(),
                waiting: council
                    .leader
                    .is_none()
                    .then(|| council.why_leaderless(&self.cx)),
                others: self.others.met(now),
            },
        }
    }

    fn take(&mut self, input: Input) {
        let cx = &mut self.cx;
        match (input, &mut self.phase) {
            (Input::Tick, _) => {}
            (Input::Message { from, message }, _) if from != cx.me() => self.message(from, message),
            (Input::Message { .. }, _) => cx.ignore(),
            (Input::Identified { address, id }, Phase::Forming(forming)) => {
                forming.identified(address, id)
            }
            (Input::Identified { .. }, Phase::Joining(_) | Phase::Member(_)) => {}
            (Input::Speaks { id, level }, Phase::Member(council)) => {
                cx.learn(id, level, |id| council.names(id))
            }
            (Input::Speaks { id, level }, Phase::Forming(_) | Phase::Joining(_)) => {
                cx.learn(id, level, |_| false)
            }
            (Input::Scouted { id, .. }, _) if id == cx.me() => {}
            (
                Input::Scouted { address, .. } | Input::Hint(Hint::Address(address)),
                Phase::Forming(forming),
            ) => {
                forming.hinted(cx, address);
            }
            (Input::Scouted { .. }, Phase::Joining(_)) => {}
            (Input::Scouted { id, address }, Phase::Member(council)) => {
                let known = council
                    .committed
                    .members
                    .iter()
                    .any(|m| m.id == id || m.addresses.control == address);
                if !known {
                    self.ask(address);
                }
            }
            (Input::Hint(Hint::Address(address)), Phase::Joining(_) | Phase::Member(_)) => {
                self.remember(address)
            }
            (Input::Hint(hint), Phase::Member(council)) => council.on_hint(cx, &hint),
            (Input::Seeds(seeds), _) => cx.config.seeds = seeds,
            (Input::Minute(minute), _) => cx.minute = Some(minute),
            (Input::DataThreadAlive, _) => cx.alive_at = cx.now,
            (Input::Used, phase) => {
                cx.used_asked = true;
                if let Phase::Member(council) = phase {
                    council.used = true;
                }
            }
            (Input::Opened(opened), Phase::Member(council)) => council.opened(cx, &opened),
            (Input::InSync(requests), Phase::Member(council)) => council.in_sync(cx, requests),
            (Input::Admin { ticket, request }, Phase::Member(council)) => {
                council.admin(cx, ticket, request)
            }
            (Input::Recover { dead, ticket }, Phase::Member(council)) => {
                council.recover(cx, &dead, ticket)
            }
            (Input::Loads { thread, report }, Phase::Member(council)) => {
                council.measured(cx, thread, report)
            }
            (Input::Planned { base, proposal }, Phase::Member(council)) => {
                council.planned(base, proposal)
            }
            (Input::Leave(pace), Phase::Member(council)) => {
                council.leave(cx, pace);
                // A process that starts again may be at one of the addresses that this member
                // knows.
                self.dial_at = cx.now;
            }
            (Input::Depart, Phase::Member(council)) => council.depart(cx),
            (Input::Pull(name), Phase::Member(council)) => council.pull_any(cx, name),
            (
                Input::Admin { ticket, .. } | Input::Recover { ticket, .. },
                Phase::Forming(_) | Phase::Joining(_),
            ) => {
                let reply = AdminReply::Refused("this node is part of no cluster yet".into());
                cx.outputs.push_back(Output::AdminReply { ticket, reply });
            }
            // Part of nothing: there is nothing to hand over.
            (Input::Leave(_), Phase::Forming(_) | Phase::Joining(_)) => {
                cx.outputs.push_back(Output::HandedOver)
            }
            (Input::Depart, Phase::Forming(_) | Phase::Joining(_)) => {
                cx.outputs.push_back(Output::Left)
            }
            (
                Input::Hint(_)
                | Input::Opened(_)
                | Input::InSync(_)
                | Input::Loads { .. }
                | Input::Planned { .. }
                | Input::Pull(_),
                Phase::Forming(_) | Phase::Joining(_),
            ) => {}
        }
    }

    /// Whatever is due.
    fn turn(&mut self) {
        let cx = &mut self.cx;
        match &mut self.phase {
            Phase::Forming(forming) => {
                let formed = forming.turn(cx);
                self.form(formed);
            }
            Phase::Joining(joining) => {
                if !joining.turn(cx) {
                    let mut forming = Forming::new(cx);
                    self.former.iter().for_each(|a| forming.hinted(cx, *a));
                    self.phase = Phase::Forming(Box::new(forming));
                }
                self.dial();
            }
            Phase::Member(_) => {
                self.member_turn();
                self.dial();
            }
        }
    }

    fn member_turn(&mut self) {
        let (cx, Phase::Member(council)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        council.turn(cx);
        self.others.turn(cx);
        if cx.used_asked && council.used {
            cx.used_asked = false;
            cx.outputs.push_back(Output::UsedOk);
        }
    }

    // ---- whom to dial

    fn remember(&mut self, address: SocketAddr) {
        if address != self.cx.config.addresses.control && self.former.len() < FORMER_MAX {
            self.former.insert(address);
        }
    }

    /// Seeds and former members' addresses, so that whoever starts there hears of the living
    /// cluster.
    fn dial(&mut self) {
        if self.dial_at > self.cx.now {
            return;
        }
        self.dial_at = self.cx.now + self.cx.jitter(DIAL.0, DIAL.1);
        let mut taken = BTreeSet::from([self.cx.config.addresses.control]);
        let mut silent: Vec<SocketAddr> = Vec::new();
        if let Phase::Member(council) = &self.phase {
            if council.over {
                return;
            }
            // At the address of a member that does not answer there may be another process by now,
            // that knows what became of the cluster, where everybody that this one knows is gone.
            let (quiet, live): (Vec<_>, Vec<_>) =
                council.committed.members.iter().partition(|m| {
                    m.state == MemberState::Silent || council.silent(&self.cx, m.id)
                });
            taken.extend(live.iter().map(|m| m.addresses.control));
            silent.extend(quiet.iter().map(|m| m.addresses.control));
            let members: BTreeMap<_, _> = council
                .committed
                .members
                .iter()
                .map(|m| (m.id, m.addresses.control))
                .collect();
            let gone: Vec<SocketAddr> = self
                .members
                .iter()
                .filter(|(id, _)| !members.contains_key(id))
                .map(|(_, a)| *a)
                .collect();
            self.members = members;
            gone.into_iter().for_each(|a| self.remember(a));
            self.former.retain(|a| !taken.contains(a));
        }
        self.scout(&taken);
        let addresses = self
            .cx
            .config
            .seeds
            .addresses
            .iter()
            .chain(&self.former)
            .chain(&silent)
            .copied();
        let mut addresses: BTreeSet<SocketAddr> =
            addresses.filter(|a| !taken.contains(a)).collect();
        // Also where a member of this cluster is by now: only its own word ends what was noted of
        // the process before it.
        let own = self.cx.config.addresses.control;
        addresses.extend(self.others.addresses().into_iter().filter(|a| *a != own));
        addresses.into_iter().for_each(|address| self.ask(address));
    }

    /// Asks the process at an address how it stands.
    fn ask(&mut self, address: SocketAddr) {
        let stand = self.stand();
        let standing = self.cx.standing(stand);
        self.cx.dial(address, Message::Probe(standing));
    }

    /// Behind a seed that is no member's address there may be other nodes than the one to which it
    /// leads this one. All members together ask about once a second, so that two clusters behind
    /// one balancer hear of each other.
    fn scout(&mut self, taken: &BTreeSet<SocketAddr>) {
        let Phase::Member(council) = &self.phase else {
            return;
        };
        if self.scout_at > self.cx.now {
            return;
        }
        let members = u32::try_from(council.committed.members.len()).unwrap_or(u32::MAX);
        let interval = DIAL.0.saturating_mul(members).min(SCOUT_MAX);
        self.scout_at = self.cx.now + self.cx.jitter(interval, interval * 3 / 2);
        let of_members: BTreeSet<SocketAddr> = council
            .committed
            .members
            .iter()
            .map(|m| m.addresses.control)
            .collect();
        let seeds = self
            .cx
            .config
            .seeds
            .addresses
            .iter()
            .filter(|a| !taken.contains(a) && !of_members.contains(a))
            .copied();
        self.cx.outputs.extend(seeds.map(Output::Scout));
    }

    fn stand(&self) -> Stand {
        match &self.phase {
            Phase::Forming(forming) => forming.stand(&self.cx),
            Phase::Joining(_) => Stand::Joining,
            Phase::Member(council) => council.membership(),
        }
    }

    // ---- phases

    fn form(&mut self, formed: Option<Formed>) {
        let cx = &mut self.cx;
        match formed {
            None => {}
            Some(Formed::Founded(table)) => {
                let members: Vec<MemberId> = table.members.iter().map(|m| m.id).collect();
                let mut council = Council::new(cx, table.clone(), None, members.len() > 1);
                council.voted = Some(cx.me());
                council.role =
                    Role::Leader(Box::new(Leader::new(cx, members.iter().copied().collect())));
                council.set_leader(cx, Some(cx.me()));
                let me = cx.me();
                for member in members.into_iter().filter(|m| *m != me) {
                    let (name, predecessor) = (table.name, table.name);
                    let commit = Commit {
                        name,
                        predecessor,
                        ages: Vec::new(),
                        seals: Vec::new(),
                    };
                    cx.send(member, Message::Commit(Box::new(commit)));
                }
                self.enter(council);
            }
            Some(Formed::Founder(table)) => {
                let writer = table.members.iter().map(|m| m.id).min();
                let mut council = Council::new(cx, table, None, true);
                council.voted = writer;
                council.proposer = writer;
                council.set_leader(cx, writer);
                self.enter(council);
            }
            Some(Formed::Found(cluster, contact, seen)) => {
                self.phase = Phase::Joining(Box::new(Joining::new(cx, cluster, contact, seen)));
            }
        }
    }

    fn enter(&mut self, council: Council) {
        self.dial_at = self.cx.now + DIAL.0;
        self.phase = Phase::Member(Box::new(council));
        self.member_turn();
    }

    /// A fresh cluster of one gives way; it joins in the same process, having done nothing yet.
    fn meet(
        &mut self,
        from: MemberId,
        (theirs, version): (ClusterId, Version),
        used: bool,
        who: (String, SocketAddr),
    ) {
        let (cx, Phase::Member(council)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        let ours = council.cluster();
        if ours == theirs {
            let (name, address) = &who;
            self.others.joined(cx, name, *address);
            // Of our cluster, and not known to us: it went on, perhaps without this process and
            // everybody it knows. Who is known to nobody is never told, so it asks. And where it is
            // the one that was left behind, this answers a question that it does not know to ask.
            if council.committed.member(from).is_none() {
                council.pull(cx, from);
                council.on_pull(cx, from, None);
            }
            return;
        }
        if !used && council.used {
            // A fresh cluster of one, which gives way.
            council.requests.newcomer(cx.now, from);
        }
        let fresh = (!council.used || broken(&mutant::SURRENDERS_USED))
            && council.committed.members.len() == 1;
        if fresh && (used || theirs < ours) {
            cx.event(Event::note(format!(
                "this cluster of one, {ours}, is unused: it gives way to {theirs} and joins it"
            )));
            self.phase = Phase::Joining(Box::new(Joining::new(cx, theirs, from, version)));
        } else if used && council.used {
            self.others.meet(cx, ours, theirs, who);
        }
    }

    // ---- messages

    fn message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Probe(standing) => {
                if self.standing(from, *standing) {
                    let stand = self.stand();
                    let answer = self.cx.standing(stand);
                    self.cx.send(from, Message::ProbeAnswer(answer));
                }
            }
            Message::ProbeAnswer(standing) => {
                let joins = standing.state == Stand::Joining;
                if self.standing(from, *standing)
                    && joins
                    && let Phase::Member(council) = &mut self.phase
                {
                    council.heard_newcomer(&mut self.cx, from);
                }
            }
            message => match &mut self.phase {
                Phase::Forming(_) => self.forming_message(from, message),
                Phase::Joining(_) => self.joining_message(from, message),
                Phase::Member(_) => self.member_message(from, message),
            },
        }
    }

    /// False: it made no sense.
    fn standing(&mut self, from: MemberId, standing: Standing) -> bool {
        let listed = match &standing.state {
            Stand::Forming { initial, known, .. } => initial.len().max(known.len()),
            Stand::Joining | Stand::Member { .. } => 0,
        };
        if standing.member.id != from
            || standing.member.validate().is_err()
            || listed > bootstrap::LISTED_MAX
        {
            self.cx.ignore();
            return false;
        }
        let state = standing.state.clone();
        let cluster = if let Stand::Member { cluster, .. } = state {
            Some(cluster)
        } else {
            None
        };
        let who = (
            standing.member.name.clone(),
            standing.member.addresses.control,
        );
        let introduced = who.clone();
        match (&mut self.phase, state) {
            (Phase::Forming(forming), _) => {
                let formed = forming.hear(&mut self.cx, from, standing);
                self.form(formed);
            }
            (
                Phase::Joining(joining),
                Stand::Member {
                    cluster, version, ..
                },
            ) if cluster == joining.cluster() => {
                joining.heard(&self.cx, from, version);
            }
            (Phase::Joining(_), _) => {}
            (
                Phase::Member(_),
                Stand::Member {
                    cluster,
                    used,
                    version,
                },
            ) => self.meet(from, (cluster, version), used, who),
            (Phase::Member(council), Stand::Forming { .. } | Stand::Joining) => {
                if standing.member.role == doyen_placement::Role::Data {
                    council.requests.newcomer(self.cx.now, from);
                }
            }
        }
        if let Phase::Joining(joining) = &mut self.phase
            && cluster == Some(joining.cluster())
        {
            joining.introduced(introduced);
        }
        true
    }

    fn forming_message(&mut self, from: MemberId, message: Message) {
        if let Message::Found { table, standing } = message {
            if (broken(&mutant::HEARS_OLD_WORDS) || self.standing(from, *standing))
                && let (cx, Phase::Forming(forming)) = (&mut self.cx, &mut self.phase)
            {
                forming.on_found(cx, from, Named::new(table));
            }
            return;
        }
        let Phase::Forming(forming) = &mut self.phase else {
            return;
        };
        match message {
            Message::Promise(name) => {
                let formed = forming.on_promise(from, name);
                self.form(formed);
            }
            message => {
                // Only members send the rest, so that first table is committed.
                if let Some(table) = message.cluster().and_then(|c| forming.confirmed(c)) {
                    self.form(Some(Formed::Founder(table)));
                    self.member_message(from, message);
                }
            }
        }
    }

    fn joining_message(&mut self, from: MemberId, message: Message) {
        let (cx, Phase::Joining(joining)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        if message.cluster() != Some(joining.cluster()) {
            return cx.ignore();
        }
        joining.heard(cx, from, Version(0));
        match message {
            Message::Committed(committed) => {
                if let Some(table) = joining.admitted(cx, &committed) {
                    let council = Council::new(cx, table, committed.commit, true);
                    self.enter(council);
                }
            }
            Message::JoinRefused {
                member,
                why,
                for_now,
                ..
            } if member == cx.me() => joining.on_refused(cx, why, for_now),
            Message::Commit(commit) => {
                let (cluster, have) = (commit.name.cluster, None);
                cx.send(from, Message::Pull { cluster, have });
            }
            _ => {}
        }
    }

    fn member_message(&mut self, from: MemberId, message: Message) {
        let (cx, Phase::Member(council)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        if message
            .cluster()
            .is_some_and(|theirs| theirs != council.cluster())
        {
            // Whether two clusters have met, or it only is behind, what it says of itself will
            // tell.
            cx.ignore();
            if self.others.may_ask(cx.now) {
                let standing = cx.standing(council.membership());
                cx.send(from, Message::Probe(standing));
            }
            return;
        }
        if message.term().is_some_and(|term| !council.plausible(term)) {
            return cx.ignore();
        }
        match message {
            Message::Ping(ping) => council.on_ping(cx, from, ping),
            Message::Pong(pong) => council.on_pong(cx, from, pong),
            Message::PreVote(ballot) => council.on_pre_vote(cx, from, ballot),
            Message::PreVoteAnswer(answer) => council.on_pre_vote_answer(cx, from, answer),
            Message::Vote(ballot) => council.on_vote(cx, from, ballot),
            Message::VoteAnswer(answer) => council.on_vote_answer(cx, from, answer),
            Message::Propose(proposal) => council.on_propose(cx, from, *proposal),
            Message::Ack(ack) => council.on_ack(cx, from, *ack),
            Message::Refuse {
                name,
                term,
                coordinator,
                whole,
            } => council.on_refuse(cx, from, name, term, coordinator, whole),
            Message::Commit(commit) => council.on_commit(cx, from, *commit),
            Message::Pull { have, .. } => council.on_pull(cx, from, have),
            Message::Committed(committed) => council.on_committed(cx, from, *committed),
            Message::Join { .. }
            | Message::InSync { .. }
            | Message::Opened { .. }
            | Message::Loads { .. }
            | Message::Admin { .. }
            | Message::Leave { .. } => council.on_request(cx, from, message),
            Message::JoinRefused { member, .. }
                if member != cx.me() && council.leader == Some(from) =>
            {
                cx.send(member, message)
            }
            Message::OpenedSeen { sequence, .. } if council.leader == Some(from) => {
                council.report_read(sequence)
            }
            Message::AdminReply { ticket, reply, .. } => {
                let me = cx.me();
                council.reply(cx, me, ticket, reply);
            }
            Message::Found { .. }
            | Message::Promise(_)
            | Message::JoinRefused { .. }
            | Message::OpenedSeen { .. }
            | Message::Probe(_)
            | Message::ProbeAnswer(_) => cx.ignore(),
        }
    }
}
