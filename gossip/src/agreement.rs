//! The agreement machine: membership, election, publication of tables, leases.
//!
//! ```text
//!   messages, hints, requests, plans ──> handle(now, input) ──> poll_output()
//!                       poll_timeout() ──> handle(now, Input::Tick)
//!
//!   forming ──living cluster found──> joining ──admitted──> member ──expelled or left──> over
//!      └──────────first table──────────────────────────────>┘
//! ```
//!
//! Every input is followed by a turn, which does everything that is due. So a late or a missing
//! tick delays, and breaks nothing.

mod api;
mod bootstrap;
mod context;
mod durable;
mod election;
mod election_proof;
mod event;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod hostile;
mod join;
mod lease;
mod loads;
mod member_core;
#[cfg(test)]
mod net;
mod other_clusters;
mod ping_schedule;
mod pings;
mod problem;
mod publication;
mod recover;
mod requests;
mod split;
mod tables;
mod tasks;
#[cfg(test)]
mod tests;
mod timing;

pub use api::{
    AdminReply, AdminRequest, AgreementConfig, Input, NoVotersGone, OtherCluster, Output,
    Oversight, Peer, Seeds, Status, View, VotersGone,
};
pub use doyen_placement::planner::{BalanceChange, InSyncChange, InSyncRequest};
pub use durable::Durable;
pub use event::{Event, Half, Severity, Stage, consequence, stages};
pub use problem::{Explain, MissingVoter, Problem, SearchFindings};
pub use split::Split;
pub use timing::Timing;

use crate::hints::Hint;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::{Commit, Message, ProcessState, ProcessStatus};
use bootstrap::{Formed, Forming};
use context::{Context, NamedTable, SpokenHello, earlier};
use doyen_placement::{ClusterId, Loads, MemberId, MemberState, Table, Version, VoteKey};
use durable::Disk;
use join::Joining;
use member_core::MemberCore;
use other_clusters::OtherClusters;
use publication::Leader;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tasks::CoordinatorTasks;

/// Addresses of former members that are still dialled.
const FORMER_MAX: usize = 64;
/// Why a process that has not joined takes no requests of operators.
const NO_MEMBER: &str = "this node is part of no cluster yet";
/// The longest time between two probes of a member behind a seed.
const SCOUT_MAX: Duration = Duration::from_secs(30);
/// The shortest and the longest time between two rounds in which members dial seeds and the
/// addresses of former members.
const DIAL: (Duration, Duration) = (Duration::from_millis(800), Duration::from_millis(1200));

/// The machine.
#[derive(Debug)]
pub struct Agreement {
    cx: Context,
    phase: Phase,
    /// Addresses at which a process may run that does not know of this cluster.
    former: BTreeSet<SocketAddr>,
    /// Members of the last table from which `former` was updated.
    members: BTreeMap<MemberId, SocketAddr>,
    dial_at: Time,
    scout_at: Time,
    /// Other clusters that hold data.
    others: OtherClusters,
    /// Until then, an heir says nothing.
    rests_until: Option<Time>,
}

#[derive(Debug)]
enum Phase {
    Forming(Box<Forming>),
    Joining(Box<Joining>),
    Member(Box<MemberCore>),
}

impl Phase {
    /// Whether a table in force has this member.
    fn has_member(&self, id: MemberId) -> bool {
        match self {
            Self::Member(core) => core.tables.member(id).is_some(),
            Self::Forming(_) | Self::Joining(_) => false,
        }
    }
}

impl Agreement {
    /// A new process that knows nothing but its configuration.
    #[must_use]
    pub fn new(config: AgreementConfig, now: Time) -> Self {
        let cx = Context::new(config, now);
        let phase = Phase::Forming(Box::new(Forming::new(&cx)));
        let (former, members, others) =
            (BTreeSet::new(), BTreeMap::new(), OtherClusters::default());
        Self {
            cx,
            phase,
            former,
            members,
            dial_at: now,
            scout_at: now,
            others,
            rests_until: None,
        }
    }

    /// A process that has a directory, and goes on with what it has written there (rule 14). It
    /// speaks for the member that wrote it, until a table has this process itself.
    #[must_use]
    pub fn resume(config: AgreementConfig, durable: Durable, now: Time) -> Self {
        let mut agreement = Self::new(config, now);
        let cx = &mut agreement.cx;
        cx.speak_for(durable.me);
        cx.disk = Some(Disk::after(&durable));
        if durable.promised {
            let table = NamedTable::new(durable.accepted);
            agreement.phase = Phase::Forming(Box::new(Forming::promised(cx, table)));
            return agreement;
        }
        let core = MemberCore::resumed(cx, durable);
        // What its predecessor answered counts for leases until then.
        agreement.rests_until = Some(now + agreement.cx.config.timing.takeover_wait());
        agreement.phase = Phase::Member(Box::new(core));
        agreement
    }

    /// What was written is synced: what waited for it goes on.
    fn stored(&mut self, write: u64) {
        let ready = self.cx.disk.as_mut().map(|disk| disk.stored(write));
        for (from, message) in ready.into_iter().flatten() {
            self.message(from, message);
        }
    }

    /// Whether an heir still rests. Until it is over, it hears nothing and says nothing.
    fn rests(&mut self, input: &Input) -> bool {
        if self.rests_until.is_some_and(|until| until <= self.cx.now) {
            self.rests_until = None;
        }
        self.rests_until.is_some()
            && !matches!(
                input,
                Input::Speaks { .. } | Input::Seeds(_) | Input::Stored(_)
            )
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Time, input: Input) {
        // Time never goes back, even if the caller's clock does.
        self.cx.now = now.max(self.cx.now);
        if self.rests(&input) {
            return;
        }
        if let Phase::Member(core) = &mut self.phase {
            if core.over {
                return;
            }
            if core.pings.late(&self.cx) {
                core.woke(&self.cx);
            }
        }
        self.take(input);
        if self.rests_until.is_none() {
            self.turn();
        }
        match &self.phase {
            Phase::Forming(forming) => forming.store(&mut self.cx),
            Phase::Joining(_) => {}
            Phase::Member(core) => core.store(&mut self.cx),
        }
    }

    /// The next thing to do, in order. `None`: there is nothing left.
    pub fn poll_output(&mut self) -> Option<Output> {
        let outputs = &mut self.cx.outputs;
        if self.cx.disk.as_ref().is_some_and(Disk::holds) {
            let place = outputs
                .iter()
                .position(|o| matches!(o, Output::Store(..)))?;
            return outputs.remove(place);
        }
        outputs.pop_front()
    }

    /// When `Input::Tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.rests_until.is_some() {
            return self.rests_until;
        }
        match &self.phase {
            Phase::Forming(forming) => forming.timeout(),
            Phase::Joining(joining) => earlier(joining.timeout(), Some(self.dial_at)),
            Phase::Member(core) if core.over => None,
            Phase::Member(core) => earlier(core.timeout(&self.cx), Some(self.dial_at)),
        }
    }

    /// The member in whose name this process speaks to others.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.cx.me()
    }

    /// This process, as tables name it once they have it.
    #[must_use]
    pub fn process(&self) -> MemberId {
        self.cx.process()
    }

    /// Whether this node coordinates.
    #[must_use]
    pub fn leading(&self) -> bool {
        self.coordinates().is_some()
    }

    /// The loads of partitions and members, as far as they were reported. `None`: this node does
    /// not coordinate.
    #[must_use]
    pub fn loads(&self) -> Option<&Loads> {
        self.coordinates().map(|tasks| &tasks.told.loads)
    }

    /// What this node sees of moves. `None`: it does not coordinate.
    #[must_use]
    pub fn oversight(&self) -> Option<Oversight> {
        self.coordinates().map(CoordinatorTasks::oversight)
    }

    /// What this node looks after as the coordinator.
    fn coordinates(&self) -> Option<&CoordinatorTasks> {
        match &self.phase {
            Phase::Member(core) => Some(&core.election.as_leader()?.tasks),
            Phase::Forming(_) | Phase::Joining(_) => None,
        }
    }

    /// Whether this node serves nothing, because its half of a split was recovered (rule 13).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(&self.phase, Phase::Member(core) if core.halves.is_stopped())
    }

    /// The number of messages of peers that were dropped, because they did not fit.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.cx.ignored
    }

    /// The key of this process's votes.
    #[must_use]
    pub fn vote_key(&self) -> VoteKey {
        self.cx.signing.vote_key()
    }

    /// The members that have answered no ping that was sent at this time or later
    /// ([`Input::Prove`]).
    #[must_use]
    pub fn unproven(&self, since: Time) -> Vec<MemberId> {
        match &self.phase {
            Phase::Forming(_) | Phase::Joining(_) => Vec::new(),
            Phase::Member(core) => core.pings.unproven(self.cx.me(), &core.tables, since),
        }
    }

    /// Whether [`Input::Recover`] with these members would be taken, or why it would be refused.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn may_recover(&self, dead: &[String], gone: VotersGone) -> Result<(), String> {
        match &self.phase {
            Phase::Forming(_) | Phase::Joining(_) => Err(NO_MEMBER.into()),
            Phase::Member(core) => core.would_be_dead(&self.cx, dead, gone).map(drop),
        }
    }

    /// What this node knows of the cluster: for `status` and tests.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let (me, process) = (self.cx.me(), self.cx.process());
        let nothing = |waiting, why| Status {
            me: process,
            coordinator: None,
            leading: false,
            installed: None,
            closed: Vec::new(),
            planning: false,
            unanswered: Vec::new(),
            filled: Vec::new(),
            waiting: Some(waiting),
            why: Some(why),
            voters: Vec::new(),
            heirs: Vec::new(),
            others: Vec::new(),
            split: None,
        };
        let text = |problem: &Problem| self.cx.explain(problem);
        match &self.phase {
            Phase::Forming(forming) => {
                let problem = forming.problem(&self.cx);
                nothing(text(&problem), problem.to_string())
            }
            Phase::Joining(joining) => match joining.refusal() {
                Some(why) => {
                    let brief = "the cluster does not admit this node, and its status says why";
                    nothing(why.to_owned(), brief.to_owned())
                }
                None => {
                    let problem = joining.problem(now);
                    nothing(text(&problem), problem.to_string())
                }
            },
            Phase::Member(core) => {
                let (tables, problem) = (&core.tables, core.leaderless_problem(&self.cx));
                let refusal = core.requests.refusal(now).filter(|_| self.cx.is_heir());
                let refused = || refusal.map(ToOwned::to_owned);
                let tasks = self.coordinates();
                let loads = tasks
                    .into_iter()
                    .flat_map(|tasks| tasks.told.loads.members());
                Status {
                    me: process,
                    coordinator: core.election.leader,
                    leading: tasks.is_some()
                        && core.election.leader == Some(me)
                        && !tables.out
                        && now >= self.cx.now,
                    installed: Some(tables.committed.name),
                    closed: tasks.map_or_else(Vec::new, |tasks| tasks.closed(&tables.committed)),
                    planning: tasks.is_some_and(|tasks| tasks.is_planning(tables)),
                    unanswered: core.pings.unanswered(&self.cx, tables),
                    filled: loads.map(|(member, load)| (member, load.told())).collect(),
                    waiting: problem.as_ref().map(text).or_else(refused),
                    why: problem.map(|problem| problem.to_string()).or_else(refused),
                    heirs: self.heirs(&tables.committed),
                    voters: tables.distinct_voters().into_iter().collect(),
                    others: self.others.met(now),
                    split: core.halves.split(tables),
                }
            }
        }
    }

    /// The members of a table whose directories other processes have.
    fn heirs(&self, table: &Table) -> Vec<MemberId> {
        let (cx, me) = (&self.cx, self.cx.me());
        let own = |id| id == me && cx.is_heir();
        let members = table.members.iter().map(|member| member.id);
        let of_heirs = members.filter(|id| own(*id) || cx.heir_of(*id).is_some());
        of_heirs.collect()
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
            (
                Input::Speaks {
                    id,
                    process,
                    level,
                    key,
                    start,
                },
                phase,
            ) => {
                let said = SpokenHello::new(process, level, key, start);
                cx.learn(id, said, |id| phase.has_member(id));
            }
            (Input::Stored(write), _) => self.stored(write),
            (Input::Scouted { id, .. }, _) if id == cx.me() => {}
            (
                Input::Scouted { address, .. } | Input::Hint(Hint::Address(address)),
                Phase::Forming(forming),
            ) => {
                forming.hinted(cx, address);
            }
            (Input::Scouted { .. }, Phase::Joining(_)) => {}
            (Input::Scouted { id, address }, Phase::Member(core)) => {
                let known = core
                    .tables
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
            (Input::Hint(hint), Phase::Member(core)) => core.on_hint(cx, &hint),
            (Input::Seeds(seeds), _) => cx.config.seeds = seeds,
            (Input::Minute(minute), _) => cx.minute = Some(minute),
            (Input::Prove, Phase::Member(core)) => {
                core.pings.prove(cx, &core.tables, &core.election)
            }
            (Input::Prove, Phase::Forming(_) | Phase::Joining(_)) => {}
            (Input::DataThreadAlive, _) => cx.alive_at = cx.now,
            (Input::Used, phase) => {
                cx.used_asked = true;
                if let Phase::Member(core) = phase {
                    core.tables.used = true;
                }
            }
            (Input::Opened(opened), Phase::Member(core)) => core.opened(cx, &opened),
            (Input::InSync(requests), Phase::Member(core)) => {
                let (cluster, origin) = (core.tables.cluster(), cx.process());
                let message = Message::InSync {
                    cluster,
                    origin,
                    requests,
                };
                core.tell_coordinator(cx, message);
            }
            (Input::Admin { ticket, request }, Phase::Member(core)) => {
                core.administer(cx, ticket, request)
            }
            (Input::Recover { dead, gone, ticket }, Phase::Member(core)) => {
                core.recover(cx, &dead, gone, ticket)
            }
            (Input::Loads { thread, report }, Phase::Member(core)) => {
                core.measured(cx, thread, report)
            }
            (Input::Planned { base, proposal }, Phase::Member(core)) => {
                if let Some(leader) = core.election.as_leader_mut() {
                    leader.tasks.planned(base, proposal);
                }
            }
            (Input::Leave(pace), Phase::Member(core)) => {
                core.requests.leave(cx.now, pace);
                // A process that starts again may be at one of the addresses that this member
                // knows.
                self.dial_at = cx.now;
            }
            (Input::Depart, Phase::Member(core)) => core.requests.depart(cx.now),
            (Input::Pull(name), Phase::Member(core)) => core.pull_any(cx, name),
            (
                Input::Admin { ticket, .. } | Input::Recover { ticket, .. },
                Phase::Forming(_) | Phase::Joining(_),
            ) => {
                let reply = AdminReply::Refused(NO_MEMBER.into());
                cx.outputs.push_back(Output::AdminReply { ticket, reply });
            }
            // This process is part of no cluster, so it has nothing to hand over.
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

    /// Does everything that is due.
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
        let (cx, Phase::Member(core)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        core.turn(cx);
        core.halves.turn(cx, &core.tables);
        self.others.turn(cx);
        if cx.used_asked && core.tables.used {
            cx.used_asked = false;
            cx.outputs.push_back(Output::UsedOk);
        }
    }

    // ---- which addresses to dial

    fn remember(&mut self, address: SocketAddr) {
        if address != self.cx.config.addresses.control && self.former.len() < FORMER_MAX {
            self.former.insert(address);
        }
    }

    /// Dials seeds and the addresses of former members, so that a process that starts there hears
    /// of the living cluster.
    fn dial(&mut self) {
        if self.dial_at > self.cx.now {
            return;
        }
        self.dial_at = self.cx.now + self.cx.jitter(DIAL.0, DIAL.1);
        let mut taken = BTreeSet::from([self.cx.config.addresses.control]);
        let mut silent: Vec<SocketAddr> = Vec::new();
        if let Phase::Member(core) = &self.phase {
            if core.over {
                return;
            }
            // Another process may run by now at the address of a member that does not answer. It
            // may know what became of the cluster, even if every member that this node knows is
            // gone.
            let (quiet, live): (Vec<_>, Vec<_>) =
                core.tables.committed.members.iter().partition(|m| {
                    m.state == MemberState::Silent || core.pings.silent(&self.cx, m.id)
                });
            taken.extend(live.iter().map(|m| m.addresses.control));
            silent.extend(quiet.iter().map(|m| m.addresses.control));
            // One of those that were asserted dead may live.
            silent.extend(core.tables.accepted.annex.named().map(|n| n.control));
            let members: BTreeMap<_, _> = core
                .tables
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
        // This includes addresses that a member of this cluster has by now: only that member's own
        // word ends what was noted of the process before it.
        let own = self.cx.config.addresses.control;
        addresses.extend(self.others.addresses().into_iter().filter(|a| *a != own));
        addresses.into_iter().for_each(|address| self.ask(address));
    }

    /// Asks the process at an address for its status.
    fn ask(&mut self, address: SocketAddr) {
        let state = self.process_state();
        let status = self.cx.process_status(state);
        self.cx.dial(address, Message::Probe(status));
    }

    /// If a seed is no member's own address, there may be other nodes behind it than the one that
    /// this node reaches. All members together ask about once a second, so two clusters behind one
    /// balancer hear of each other.
    fn scout(&mut self, taken: &BTreeSet<SocketAddr>) {
        let Phase::Member(core) = &self.phase else {
            return;
        };
        if self.scout_at > self.cx.now {
            return;
        }
        let members = u32::try_from(core.tables.committed.members.len()).unwrap_or(u32::MAX);
        let interval = DIAL.0.saturating_mul(members).min(SCOUT_MAX);
        self.scout_at = self.cx.now + self.cx.jitter(interval, interval * 3 / 2);
        let of_members: BTreeSet<SocketAddr> = core
            .tables
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

    fn process_state(&self) -> ProcessState {
        match &self.phase {
            Phase::Forming(forming) => forming.process_state(&self.cx),
            Phase::Joining(_) => ProcessState::Joining,
            Phase::Member(core) => core.tables.membership(),
        }
    }

    // ---- phases

    fn form(&mut self, formed: Option<Formed>) {
        let cx = &mut self.cx;
        match formed {
            None => {}
            Some(Formed::Founded(table)) => {
                let members: Vec<MemberId> = table.members.iter().map(|m| m.id).collect();
                let mut core = MemberCore::new(cx, table.clone(), None, members.len() > 1);
                if let Some(disk) = &mut cx.disk {
                    disk.hold();
                }
                core.election.voted = Some(cx.me());
                core.election
                    .lead(Leader::new(cx, members.iter().copied().collect()));
                core.election.set_leader(cx, &core.tables, Some(cx.me()));
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
                self.enter(core);
            }
            Some(Formed::Founder(table)) => {
                let writer = table.members.iter().map(|m| m.id).min();
                let mut core = MemberCore::new(cx, table, None, true);
                core.election.voted = writer;
                core.tables.proposer = writer;
                core.election.set_leader(cx, &core.tables, writer);
                self.enter(core);
            }
            Some(Formed::Found(cluster, contact, seen)) => {
                cx.rename(cx.process());
                self.phase = Phase::Joining(Box::new(Joining::new(cx, cluster, contact, seen)));
            }
        }
    }

    fn enter(&mut self, core: MemberCore) {
        self.dial_at = self.cx.now + DIAL.0;
        self.phase = Phase::Member(Box::new(core));
        self.member_turn();
    }

    /// A new cluster of one gives way. It joins in the same process, because it has done nothing
    /// yet.
    fn meet(
        &mut self,
        from: MemberId,
        (theirs, version): (ClusterId, Version),
        used: bool,
        who: (String, SocketAddr),
    ) {
        let (cx, Phase::Member(core)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        let ours = core.tables.cluster();
        if ours == theirs {
            let (name, address) = &who;
            self.others.joined(cx, name, *address);
            let is_led = core.election.leader.is_some();
            core.halves
                .show_descent(cx, &core.tables, is_led, from, &who);
            if core.halves.is_apart(from) {
                // Neither half takes the tables of the other one.
                return;
            }
            // The sender is of this cluster, and this member does not know it. So one of the two
            // was left behind: the cluster went on without it. A sender unknown to all members is
            // never told, so it must ask. If this member is the one that was left behind, the pull
            // asks a question that it does not know to ask.
            if core.tables.committed.member(from).is_none() {
                core.pull(cx, from);
                core.tables.on_pull(cx, from, None);
            }
            return;
        }
        if !used && core.tables.used {
            // The sender is a new cluster of one, which gives way.
            core.requests.newcomer(cx.now, from);
        }
        let fresh = (!core.tables.used || broken(&mutant::SURRENDERS_USED))
            && core.tables.committed.members.len() == 1;
        if fresh && (used || theirs < ours) {
            cx.event(Event::note(format!(
                "this cluster of one, {ours}, is unused: it gives way to {theirs} and joins it"
            )));
            self.phase = Phase::Joining(Box::new(Joining::new(cx, theirs, from, version)));
        } else if used && core.tables.used {
            self.others.meet(cx, ours, theirs, who);
        }
    }

    // ---- messages

    fn message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Probe(status) => {
                let outside = !matches!(status.state, ProcessState::Member { .. });
                if self.heard_status(from, *status) && !(outside && self.is_stopped()) {
                    let state = self.process_state();
                    let answer = self.cx.process_status(state);
                    self.cx.send(from, Message::ProbeAnswer(answer));
                }
            }
            Message::ProbeAnswer(status) => {
                let joins = status.state == ProcessState::Joining;
                if self.heard_status(from, *status)
                    && joins
                    && let Phase::Member(core) = &mut self.phase
                {
                    core.heard_newcomer(&mut self.cx, from);
                }
            }
            message => match &mut self.phase {
                Phase::Forming(_) => self.forming_message(from, message),
                Phase::Joining(_) => self.joining_message(from, message),
                Phase::Member(_) => self.member_message(from, message),
            },
        }
    }

    /// Returns false if the status is invalid.
    fn heard_status(&mut self, from: MemberId, status: ProcessStatus) -> bool {
        let listed = match &status.state {
            ProcessState::Forming { initial, known, .. } => initial.len().max(known.len()),
            ProcessState::Joining | ProcessState::Member { .. } => 0,
        };
        if status.member.id != from
            || status.member.validate().is_err()
            || listed > bootstrap::LISTED_MAX
        {
            self.cx.ignore();
            return false;
        }
        let state = status.state.clone();
        let cluster = if let ProcessState::Member { cluster, .. } = state {
            Some(cluster)
        } else {
            None
        };
        let who = (status.member.name.clone(), status.member.addresses.control);
        let introduced = who.clone();
        match (&mut self.phase, state) {
            (Phase::Forming(forming), _) => {
                let formed = forming.hear(&mut self.cx, from, status);
                self.form(formed);
            }
            (
                Phase::Joining(joining),
                ProcessState::Member {
                    cluster, version, ..
                },
            ) if cluster == joining.cluster() => {
                joining.heard(&self.cx, from, version);
            }
            (Phase::Joining(_), _) => {}
            (
                Phase::Member(_),
                ProcessState::Member {
                    cluster,
                    used,
                    version,
                },
            ) => self.meet(from, (cluster, version), used, who),
            (Phase::Member(core), ProcessState::Forming { .. } | ProcessState::Joining) => {
                if status.member.role == doyen_placement::Role::Data {
                    core.requests.newcomer(self.cx.now, from);
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
        if let Message::Found { table, status } = message {
            if (broken(&mutant::HEARS_OLD_WORDS) || self.heard_status(from, *status))
                && let (cx, Phase::Forming(forming)) = (&mut self.cx, &mut self.phase)
            {
                forming.on_found(cx, from, NamedTable::new(table));
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
                // Only members send the remaining messages, so that first table is committed.
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
                    let core = MemberCore::new(cx, table, committed.commit, true);
                    self.enter(core);
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
        let (cx, Phase::Member(core)) = (&mut self.cx, &mut self.phase) else {
            return;
        };
        if message
            .cluster()
            .is_some_and(|theirs| theirs != core.tables.cluster())
        {
            // Either two clusters have met, or the sender is behind. Its status will tell.
            cx.ignore();
            if self.others.may_ask(cx.now) {
                let status = cx.process_status(core.tables.membership());
                cx.send(from, Message::Probe(status));
            }
            return;
        }
        if let Message::Descent(said) = message {
            let is_led = core.election.leader.is_some();
            return core
                .halves
                .on_descent(cx, &core.tables, is_led, from, *said);
        }
        let is_plausible = |term| core.election.plausible(term);
        if !message.term().is_none_or(is_plausible) || core.halves.is_apart(from) {
            return cx.ignore();
        }
        let MemberCore {
            election,
            tables,
            pings,
            ..
        } = &mut **core;
        match message {
            Message::Ping(ping) => core.on_ping(cx, from, ping),
            Message::Pong(pong) => core.on_pong(cx, from, pong),
            Message::PreVote(ballot) => election.on_pre_vote(cx, tables, pings, from, ballot),
            Message::PreVoteAnswer(answer) => {
                let votes = election.on_pre_vote_answer(cx, tables, from, answer);
                core.win(cx, votes);
            }
            Message::Vote(ballot) => election.on_vote(cx, tables, pings, from, ballot),
            Message::VoteAnswer(answer, signature) => {
                let votes = election.on_vote_answer(cx, tables, from, answer, signature);
                core.win(cx, votes);
            }
            Message::ElectionProof(proof) => {
                let early = election.on_proof(cx, tables, pings, from, *proof);
                if let Some((by, proposal)) = early {
                    core.on_propose(cx, by, proposal);
                }
            }
            Message::AskElectionProof { term, .. } => election.on_ask_proof(cx, from, term),
            Message::Propose(proposal) => core.on_propose(cx, from, *proposal),
            Message::Ack(ack) => core.on_ack(cx, from, *ack),
            Message::Refuse {
                name,
                term,
                coordinator,
                whole,
            } => core.on_refuse(cx, from, name, term, coordinator, whole),
            Message::Commit(commit) => core.on_commit(cx, from, *commit),
            Message::Pull { have, .. } => tables.on_pull(cx, from, have),
            Message::Committed(committed) => core.on_committed(cx, from, *committed),
            Message::Join { .. }
            | Message::InSync { .. }
            | Message::Opened { .. }
            | Message::Loads { .. }
            | Message::Admin { .. }
            | Message::Leave { .. } => core.on_request(cx, from, message),
            Message::JoinRefused {
                member,
                why,
                for_now,
                ..
            } if cx.is_heir() && member == cx.process() => {
                if election.leader == Some(from) {
                    core.requests.on_refused(cx, why, for_now);
                }
            }
            Message::JoinRefused { member, .. }
                if member != cx.me() && election.leader == Some(from) =>
            {
                cx.send(member, message)
            }
            Message::OpenedSeen { sequence, .. } if election.leader == Some(from) => {
                core.requests.report_read(sequence)
            }
            Message::AdminReply { ticket, reply, .. } => {
                let me = cx.me();
                cx.reply(tables.cluster(), me, ticket, reply);
            }
            Message::Found { .. }
            | Message::Promise(_)
            | Message::JoinRefused { .. }
            | Message::OpenedSeen { .. }
            | Message::Descent(_)
            | Message::Probe(_)
            | Message::ProbeAnswer(_) => cx.ignore(),
        }
    }
}
