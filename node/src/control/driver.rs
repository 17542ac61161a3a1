//! The loop of the control thread.

use super::alive::Alive;
use super::catching_up::CatchingUp;
use super::counted::{ClientsAsked, Counted};
use super::disk::DirectoryDisk;
use super::leaving::Leaving;
use super::past::Past;
use super::planning::Planning;
use super::refused::RefusedBy;
use super::seeds::{self, Company, Resolved, SeedNames};
use super::tickets::RequestTickets;
use super::{ClusterStatus, Command, ControlOptions, ControlPaths, Coordinated, Errand, Upcall};
use crate::client_list::ClientList;
use crate::clock;
use crate::control::shared::{LocalView, Shared};
use crate::directory::work::DiskEvent;
use crate::events::{EventLog, minute_of_day};
use crate::history::Samples;
use crate::hooks::Hooks;
use crate::net::endpoint::DialFailure;
use crate::net::envelope::Envelope;
use crate::net::hints::{Hints, Scope};
use crate::net::identity::Identity;
use crate::net::notice::Notices;
use crate::net::peers::{ControlPeers, OwnName, PeerEvent, PeerEvents};
use crate::net::probe::{self, Probes};
use crate::remedy;
use crate::waking;
#[cfg(feature = "fault-points")]
use doyen_engine::fault;
use doyen_gossip::agreement::{AdminReply, AdminRequest, Event, Peer, Severity, Status, View};
use doyen_gossip::hints::Hint;
use doyen_gossip::wire::Message;
use doyen_gossip::{Agreement, AgreementConfig, Input, Output, SigningSeed, Time};
use doyen_placement::planner::PlannedChanges;
use doyen_placement::words::{MEMBERS, counted};
use doyen_placement::{
    ClusterId, DiskCopies, Loads, MemberId, OrderKey, Table, TableName, Term, Version,
};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// How long a peer is probed after the last ping to it.
const PROBED_FOR: Duration = Duration::from_secs(1);
/// Inputs that are handled before the machine's outputs are carried out. The limit keeps a flood of
/// inputs from delaying the outputs.
const BATCH_MAX: usize = 64;

/// The control thread's ends of channels and shared state.
pub(super) struct ControlEnds {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) upcalls: mpsc::Receiver<Upcall>,
    pub(super) log: Arc<EventLog>,
    pub(super) fatal: watch::Sender<Option<String>>,
    pub(super) stop: Arc<Notify>,
    pub(super) counted: Arc<Counted>,
}

/// Runs until the node is asked to stop.
pub(super) async fn run(
    options: ControlOptions,
    shared: Arc<Shared>,
    ends: ControlEnds,
    started: SyncSender<io::Result<()>>,
) {
    let ControlOptions {
        agreement: mut config,
        identity,
        socket,
        seeds,
        mut directory,
        hooks,
    } = options;
    let advertised = config.addresses.control;
    identity.set_key(&config.signing_seed);
    let durable = directory.as_mut().and_then(|dir| dir.durable.take());
    let (disk_in, disk_events) = mpsc::unbounded_channel();
    let begun = DirectoryDisk::start(directory, disk_in).and_then(|disk| {
        let id = durable.as_ref().map_or(config.id, |durable| durable.me);
        let peers = ControlPeers::start(
            socket,
            advertised,
            identity.clone(),
            (disk.name(id, config.id), config.level_max),
            ends.counted.traffic.clone(),
            hooks.clone(),
        );
        Ok((disk, peers?))
    });
    let (disk, (peers, peer_events)) = match begun {
        Ok(begun) => begun,
        Err(e) => return drop(started.send(Err(e))),
    };
    config.directory = disk.count(config.id);
    // Sending fails only if `start` panicked.
    let _ = started.send(Ok(()));

    let choice = seeds::Choice {
        reach: peers.reach(),
        own: Some(config.addresses.control.ip()),
    };
    let resolved = tokio::select! {
        resolved = seeds::resolve(&seeds, choice) => resolved,
        () = ends.stop.notified() => return peers.close().await,
    };
    let names = seeds::names(&seeds);
    config.seeds = resolved.clone().into_seeds(&names);

    let mut tasks = JoinSet::new();
    let (company, has_company) = watch::channel(Company::None);
    let (seeds_in, seeds_changed) = mpsc::channel(1);
    tasks.spawn_local(seeds::watch_names(
        seeds,
        choice,
        resolved.clone(),
        has_company,
        seeds_in,
    ));
    let (hints, supervisor) = Hints::new();
    tasks.spawn_local(supervisor);
    let (plans_in, plans) = mpsc::channel(1);

    let mut driver = ControlDriver {
        agreement: match durable {
            Some(durable) => Agreement::resume(config.clone(), *durable, clock::now()),
            None => Agreement::new(config.clone(), clock::now()),
        },
        disk,
        config,
        identity,
        shared,
        peers: peers.clone(),
        counted: ends.counted,
        log: ends.log,
        fatal: ends.fatal,
        hints,
        seeds: SeedNames::new(names, company),
        notices: Notices::default(),
        view: None,
        past: Past::default(),
        alive: Alive::default(),
        unheard: BTreeMap::new(),
        proposed: None,
        leaving: Leaving::default(),
        tickets: RequestTickets::default(),
        catching_up: CatchingUp::default(),
        planning: Planning::new(plans_in),
        pinged: BTreeMap::new(),
        minute: None,
        refused_by: RefusedBy::new(),
        hooks,
    };
    driver.note_unresolved(&resolved);
    let inputs = DriverInputs {
        peers: peer_events,
        commands: ends.commands,
        upcalls: ends.upcalls,
        seeds: seeds_changed,
        plans,
        disk: disk_events,
    };
    driver.drive(inputs, &ends.stop).await;
    driver.shared.extend_lease(Time::ZERO);
    drop(driver);
    peers.close().await;
    tasks.shutdown().await;
}

struct DriverInputs {
    peers: PeerEvents,
    commands: mpsc::Receiver<Command>,
    upcalls: mpsc::Receiver<Upcall>,
    seeds: mpsc::Receiver<Resolved>,
    plans: mpsc::Receiver<(TableName, PlannedChanges)>,
    disk: mpsc::UnboundedReceiver<DiskEvent>,
}

pub(super) struct ControlDriver {
    agreement: Agreement,
    disk: DirectoryDisk,
    /// For the next machine, if this process is expelled.
    config: AgreementConfig,
    identity: Arc<Identity>,
    shared: Arc<Shared>,
    peers: Rc<ControlPeers>,
    counted: Arc<Counted>,
    log: Arc<EventLog>,
    fatal: watch::Sender<Option<String>>,
    hints: Hints,
    seeds: SeedNames,
    notices: Notices,
    view: Option<View>,
    past: Past,
    alive: Alive,
    /// For each data thread, the members that it is not connected with.
    unheard: BTreeMap<u8, Vec<MemberId>>,
    /// The latest proposal of this node, and its time.
    proposed: Option<((Term, Version), Time)>,
    leaving: Leaving,
    tickets: RequestTickets,
    pub(super) catching_up: CatchingUp,
    planning: Planning,
    /// The members that this node pings, and the time of the last ping to each.
    pinged: BTreeMap<MemberId, Time>,
    /// The time of day that the machine was told last.
    minute: Option<u16>,
    refused_by: RefusedBy,
    hooks: Hooks,
}

impl ControlDriver {
    async fn drive(&mut self, mut inputs: DriverInputs, stop: &Notify) {
        let mut probes = Probes::default();
        let mut probes_due = probes.due(Instant::now());
        let mut upcalls_open = true;
        self.carry_out();
        loop {
            let wait = self.wait();
            let probing = tokio::time::sleep_until(probes_due.into());
            tokio::select! {
                () = stop.notified() => return,
                Some(event) = inputs.peers.next() => {
                    self.on_peer(event);
                    for _ in 0..BATCH_MAX {
                        let Some(event) = inputs.peers.try_next() else { break };
                        self.on_peer(event);
                    }
                }
                upcall = inputs.upcalls.recv(), if upcalls_open => match upcall {
                    Some(upcall) => self.on_upcall(upcall),
                    // The data threads have ended: this node stops answering pings, and is deposed
                    // (rule 12).
                    None => upcalls_open = false,
                },
                command = inputs.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    // Every handle is dropped: this is the only way left to stop the thread.
                    None => return,
                },
                Some((base, proposal)) = inputs.plans.recv() => {
                    self.handle(Input::Planned { base, proposal });
                    self.planning.done();
                }
                Some(event) = inputs.disk.recv() => self.on_disk(event),
                Some(hint) = self.hints.hints.recv() => self.handle(Input::Hint(hint)),
                Some((to, bytes)) = self.hints.outgoing.recv() => self.gossip(to, bytes),
                Some(resolved) = inputs.seeds.recv() => {
                    self.note_unresolved(&resolved);
                    self.config.seeds = self.seeds.seeds(resolved);
                    self.handle(Input::Seeds(self.config.seeds.clone()));
                }
                () = probing => {
                    self.probe(&mut probes);
                    probes_due = probes.due(Instant::now());
                    self.look_at_clock();
                }
                () = tokio::time::sleep(wait) => {}
            }
            self.hooks.hold();
            // After a suspend, or if the timer was due while another input came first.
            let now = clock::now();
            if self.agreement.poll_timeout().is_some_and(|due| due <= now) {
                self.handle(Input::Tick);
            }
            self.carry_out();
            self.expire_status(now);
            self.tickets.settle_proofs(now, &self.agreement);
            self.go_on_catching_up(now);
        }
    }

    /// Tells the machine the time of day, which matters if balancing has a window.
    fn look_at_clock(&mut self) {
        let minute = minute_of_day();
        if self.minute.replace(minute) != Some(minute) {
            self.handle(Input::Minute(minute));
        }
    }

    /// The time until the machine's timer, and at most a ping interval. Tokio's clock stops during
    /// a suspend, but the machine's clock does not.
    fn wait(&self) -> Duration {
        let now = clock::now();
        let due = self.agreement.poll_timeout().map(|due| due.since(now));
        let deadlines = self.tickets.deadlines();
        let asked = deadlines.map(|deadline| deadline.since(now)).min();
        due.into_iter()
            .chain(asked)
            .fold(self.config.timing.ping_interval, Duration::min)
    }

    pub(super) fn handle(&mut self, input: Input) {
        if !self.leaving.gone {
            self.agreement.handle(clock::now(), input);
        }
    }

    fn on_peer(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Received {
                from,
                envelope,
                budget: _,
            } => match envelope {
                Envelope::Agreement(message) => self.handle(Input::Message { from, message }),
                Envelope::StatusRequest { ticket } => {
                    let status = Box::new(self.agreement.status(clock::now()));
                    self.peers
                        .send(Peer::Member(from), Envelope::StatusReply { ticket, status });
                }
                Envelope::StatusReply { ticket, status } => {
                    if let Some(answer) = self.tickets.status.take(ticket, from) {
                        let from_coordinator = status.leading;
                        waking::answer(answer, self.cluster(*status, from_coordinator));
                    }
                }
                Envelope::LoadsRequest { ticket } => {
                    let loads = self.agreement.loads().cloned().unwrap_or_default();
                    self.peers
                        .send(Peer::Member(from), Envelope::LoadsReply { ticket, loads });
                }
                Envelope::LoadsReply { ticket, loads } => {
                    if let Some(answer) = self.tickets.loads.take(ticket, from) {
                        waking::answer(
                            answer,
                            self.installed()
                                .map(|table| loads.checked(&table))
                                .unwrap_or_default(),
                        );
                    }
                }
                Envelope::HistoryRequest { ticket, since } => {
                    let samples = self.counted.history.since(since);
                    let reply = Envelope::HistoryReply { ticket, samples };
                    self.peers.send(Peer::Member(from), reply);
                }
                Envelope::HistoryReply { ticket, samples } => {
                    if let Some(answer) = self.tickets.histories.take(ticket, from) {
                        waking::answer(answer, samples.checked());
                    }
                }
                Envelope::ClientsRequest { ticket } => {
                    let asked = ClientsAsked { from, ticket };
                    // If nobody answers here, or too much is asked, the member hears nothing.
                    if let Some(console) = self.counted.clients_asked.get() {
                        let _ = console.try_send(asked);
                    }
                }
                Envelope::ClientsReply { ticket, clients } => {
                    if let Some(answer) = self.tickets.clients.take(ticket, from) {
                        waking::answer(answer, Some(clients.bounded()));
                    }
                }
                Envelope::Gossip(bytes) => {
                    if let Some(address) = self.peers.address_of(from) {
                        self.hints.receive(address, bytes);
                    }
                }
            },
            PeerEvent::Met {
                id,
                process,
                level,
                key,
                start,
            } => self.handle(Input::Speaks {
                id,
                process,
                level,
                key,
                start,
            }),
            PeerEvent::Identified { address, id } => {
                self.refused_by.forget(address);
                self.handle(Input::Identified { address, id });
            }
            PeerEvent::Scouted { id, address } => self.handle(Input::Scouted { id, address }),
            PeerEvent::Unreached { address, failure } => self.on_unreached(address, failure),
            PeerEvent::TurnedAway { address, failure } => {
                // A node dials from the port on which it listens. The port of a stranger says
                // nothing.
                if failure.is_lasting() {
                    self.note_failure(address, &failure);
                } else {
                    tracing::debug!("turned away {address}: {failure}");
                }
            }
        }
    }

    fn on_disk(&mut self, event: DiskEvent) {
        match event {
            DiskEvent::Synced { machine, write } => {
                if self.disk.synced(machine, write) {
                    self.handle(Input::Stored(write));
                }
            }
            DiskEvent::Failed(why) => {
                self.disk.failed(why.clone());
                self.note(format!(
                    "{why}. Until it works, this node agrees to no change of the cluster, and \
                     tries again each second"
                ));
            }
            DiskEvent::Lost(why) => self.end(why),
        }
    }

    /// Who this process is for others.
    fn own_name(&self) -> OwnName {
        self.disk.name(self.agreement.id(), self.config.id)
    }

    /// Whether this process speaks in the name of this member.
    fn speaks_for(&self, member: MemberId) -> bool {
        member == self.agreement.id()
    }

    fn on_unreached(&mut self, address: SocketAddr, failure: DialFailure) {
        let (seeds, own) = (&self.config.seeds, self.config.addresses.control);
        if (self.refused_by).refuse(address, &failure, &seeds.addresses, own) {
            // This line ends the log, so it must be the only one about the refusals.
            return self.end(format!("no seed accepts this node; {address}: {failure}"));
        }
        if !failure.is_lasting() {
            return tracing::debug!("cannot reach {address}: {failure}");
        }
        self.note_failure(address, &failure);
    }

    /// Logs one line for each pair of nodes, in either direction.
    fn note_failure(&mut self, address: SocketAddr, failure: &DialFailure) {
        if self.refused_by.is_quiet() {
            return tracing::debug!("cannot talk with {address}: {failure}");
        }
        let key = format!("{address} {:?}", std::mem::discriminant(failure));
        if self.fatal.borrow().is_none() && self.notices.due(&key) {
            self.tell(Event::note(format!(
                "cannot talk with {address}: {failure}"
            )));
        }
    }

    fn on_upcall(&mut self, upcall: Upcall) {
        match upcall {
            Upcall::Opened(partitions) => self.handle(Input::Opened(partitions)),
            Upcall::InSync(requests) => self.handle(Input::InSync(requests)),
            Upcall::Alive(thread) => {
                if self.alive.heard(thread, self.config.addresses.threads()) {
                    self.handle(Input::DataThreadAlive);
                }
            }
            Upcall::Loads { thread, report } => {
                self.unheard.insert(thread, report.unheard.clone());
                self.handle(Input::Loads { thread, report });
            }
            Upcall::Differed(at, learner) => {
                let table = self.installed();
                let partition = table
                    .as_deref()
                    .map_or_else(|| at.to_string(), |table| table.name_of(at));
                let learner = table
                    .and_then(|t| t.member(learner).map(|m| m.name.clone()))
                    .unwrap_or_else(|| learner.to_string());
                self.tell(Event::Differed { partition, learner });
            }
            Upcall::Ended(why) => self.end(format!("a data thread has ended: {why}")),
            Upcall::Newer(name) => self.handle(Input::Pull(name)),
            Upcall::CatchUp(answer) => self.catching_up.wait(answer),
            Upcall::WantMap { wanted, answer } => {
                let request = AdminRequest::of_map(wanted);
                self.on_command(Command::Admin(request, answer));
            }
            Upcall::Audit(audit) => self.log.audit(&audit),
            Upcall::Errand {
                errand: Errand::Admin(request),
                answer,
            } => self.on_command(Command::Admin(request, answer)),
            // The runtime waits for such work when it ends.
            Upcall::Errand {
                errand: Errand::Blocking(work),
                answer,
            } => drop(tokio::task::spawn_blocking(move || {
                waking::answer(answer, work());
            })),
            Upcall::Used(answer) => {
                if self.tickets.wait_for_use(answer) {
                    self.handle(Input::Used);
                }
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Admin(request, answer) => {
                if let Some(ticket) = self.admin_ticket(answer) {
                    self.handle(Input::Admin { ticket, request });
                }
            }
            Command::Recover(dead, gone, answer) => {
                if let Some(ticket) = self.admin_ticket(answer) {
                    self.handle(Input::Recover { dead, gone, ticket });
                }
            }
            Command::MayRecover(dead, gone, answer) => {
                let may = self.agreement.may_recover(&dead, gone);
                let reply = may.map_or_else(AdminReply::Refused, |()| AdminReply::Done(None));
                let _ = answer.send(reply);
            }
            Command::CatchUp(answer) => self.catching_up.wait(answer),
            Command::Status(answer) => self.on_status(answer),
            Command::Prove(answer) => {
                if self.tickets.prove(clock::now(), answer) {
                    self.handle(Input::Prove);
                }
            }
            Command::Loads(answer) => self.on_loads(answer),
            Command::History(member, since, answer) => self.on_history(member, since, answer),
            Command::Clients(member, answer) => self.on_clients(member, answer),
            Command::TellClients(ClientsAsked { from, ticket }, clients) => {
                let reply = Envelope::ClientsReply { ticket, clients };
                self.peers.send(Peer::Member(from), reply);
            }
            Command::Coordinated(answer) => {
                let known = (
                    self.installed(),
                    self.agreement.loads().cloned(),
                    self.agreement.oversight(),
                );
                let coordinated = match known {
                    (Some(table), Some(loads), Some(oversight)) => Some(Box::new(Coordinated {
                        table,
                        loads,
                        oversight,
                    })),
                    _ => None,
                };
                waking::answer(answer, coordinated);
            }
            Command::Paths(answer) => waking::answer(answer, self.paths()),
            Command::HandOver(pace, answer) => {
                if self.leaving.hand_over(pace, answer) {
                    self.handle(Input::Leave(pace));
                }
                self.leaving.settle();
            }
            Command::Depart(answer) => {
                if self.leaving.depart(answer) {
                    self.handle(Input::Depart);
                }
                self.leaving.settle();
            }
        }
    }

    fn paths(&self) -> ControlPaths {
        let seeds = &self.config.seeds;
        ControlPaths {
            paths: self.peers.paths(),
            failures: self.peers.failures(),
            seeds: seeds.addresses.clone(),
            unresolved: seeds.unresolved.clone(),
        }
    }

    fn admin_ticket(&mut self, answer: oneshot::Sender<AdminReply>) -> Option<u64> {
        if self.leaving.gone {
            waking::answer(
                answer,
                AdminReply::Refused("this node has left its cluster".into()),
            );
            return None;
        }
        self.tickets.admin(answer)
    }

    pub(super) fn on_status(&mut self, answer: oneshot::Sender<ClusterStatus>) {
        let now = clock::now();
        let status = self.agreement.status(now);
        match status.coordinator {
            Some(coordinator)
                if !status.leading
                    && !self.speaks_for(coordinator)
                    && self.tickets.status.has_room() =>
            {
                let ticket = self.tickets.status.ask(now, coordinator, answer);
                self.peers.send(
                    Peer::Member(coordinator),
                    Envelope::StatusRequest { ticket },
                );
            }
            _ => {
                let from_coordinator = status.leading;
                waking::answer(answer, self.cluster(status, from_coordinator));
            }
        }
    }

    fn on_loads(&mut self, answer: oneshot::Sender<Loads>) {
        let now = clock::now();
        let status = self.agreement.status(now);
        match status.coordinator {
            Some(coordinator) if !self.speaks_for(coordinator) && self.tickets.loads.has_room() => {
                let ticket = self.tickets.loads.ask(now, coordinator, answer);
                self.peers
                    .send(Peer::Member(coordinator), Envelope::LoadsRequest { ticket });
            }
            _ => {
                waking::answer(answer, self.agreement.loads().cloned().unwrap_or_default());
            }
        }
    }

    fn on_history(&mut self, member: MemberId, since: u64, answer: oneshot::Sender<Samples>) {
        if member == self.config.id {
            return waking::answer(answer, self.counted.history.since(since));
        }
        // A member that is asked too much counts as one that keeps nothing.
        if !self.tickets.histories.has_room() {
            return waking::answer(answer, Samples::default());
        }
        let ticket = self.tickets.histories.ask(clock::now(), member, answer);
        let question = Envelope::HistoryRequest { ticket, since };
        self.peers.send(Peer::Member(member), question);
    }

    fn on_clients(&mut self, member: MemberId, answer: oneshot::Sender<Option<ClientList>>) {
        if !self.tickets.clients.has_room() {
            return waking::answer(answer, None);
        }
        let ticket = self.tickets.clients.ask(clock::now(), member, answer);
        let question = Envelope::ClientsRequest { ticket };
        self.peers.send(Peer::Member(member), question);
    }

    /// Answers requests that the coordinator did not answer in time with what this node knows. If
    /// another member coordinates by now, that one is asked.
    fn expire_status(&mut self, now: Time) {
        for (_, answer) in self.tickets.histories.overdue(now) {
            waking::answer(answer, Samples::default());
        }
        for (_, answer) in self.tickets.clients.overdue(now) {
            waking::answer(answer, None);
        }
        let coordinator = |agreement: &Agreement| agreement.status(now).coordinator;
        for (asked, answer) in self.tickets.loads.overdue(now) {
            match coordinator(&self.agreement) {
                Some(other) if other != asked => self.on_loads(answer),
                _ => waking::answer(answer, Loads::default()),
            }
        }
        for (asked, answer) in self.tickets.status.overdue(now) {
            let status = self.agreement.status(now);
            match status.coordinator {
                Some(other) if other != asked => self.on_status(answer),
                _ => waking::answer(answer, self.cluster(status, false)),
            }
        }
    }

    fn cluster(&self, status: Status, from_coordinator: bool) -> ClusterStatus {
        let mut threads = self.unheard.values();
        let first = threads.next().cloned().unwrap_or_default();
        let unheard = threads.fold(first, |all, thread| {
            all.into_iter().filter(|id| thread.contains(id)).collect()
        });
        // The coordinator's status names the coordinator as `me`.
        let mut status = Status {
            me: self.config.id,
            ..status
        };
        if !from_coordinator && status.waiting.is_some() {
            let members = self.view.iter().flat_map(|view| &view.installed.members);
            let members = members.map(|member| member.addresses.control);
            let own = self.config.addresses.control;
            if let Some(why) = self.refused_by.by_most(members, own) {
                let brief = "most other members refuse this node, and its status says why";
                (status.waiting, status.why) = (Some(why), Some(brief.to_owned()));
            }
        }
        // Conflicts that this node itself has seen count, whether the coordinator has seen them or
        // not.
        let known: Vec<ClusterId> = status.others.iter().map(|other| other.cluster).collect();
        let own = self.agreement.status(clock::now());
        let met = own.others;
        status.split = own.split;
        status.others.extend(
            met.into_iter()
                .filter(|other| !known.contains(&other.cluster)),
        );
        ClusterStatus {
            status,
            from_coordinator,
            installed: self.installed(),
            former: self.past.tables(),
            unheard,
            level_max: self.config.level_max,
            gone: self.past.gone(clock::now()),
            directory: self.disk.state(),
        }
    }

    pub(super) fn installed(&self) -> Option<Arc<Table>> {
        self.view.as_ref().map(|view| view.installed.clone())
    }

    /// Carries out the machine's outputs in order: data threads see a view before the ack leaves.
    pub(super) fn carry_out(&mut self) {
        self.shared.stop(self.agreement.is_stopped());
        while let Some(output) = self.agreement.poll_output() {
            if self.leaving.gone {
                continue;
            }
            match output {
                Output::Send { to, message } => {
                    // Members that this node only answers are watched by other members.
                    if let (Peer::Member(id), Message::Ping(_)) = (to, &message) {
                        self.pinged.insert(id, clock::now());
                    }
                    self.peers.send(to, Envelope::Agreement(message));
                }
                Output::Scout(address) => self.peers.scout(address),
                Output::View(view) => self.show(view),
                Output::Lease(until) => {
                    self.counted.renewed(self.shared.lease(), clock::now());
                    self.shared.extend_lease(until);
                }
                Output::Plan(table, loads) => self.planning.plan(table, loads),
                Output::AdminReply { ticket, reply } => {
                    self.tickets.answer_admin(ticket, reply);
                }
                Output::Event(event) => self.tell(event),
                Output::UsedOk => self.tickets.is_used(),
                // They come to processes with a directory alone (rule 14).
                Output::Store(write, durable) => self.disk.store(write, durable),
                Output::Renamed => self.renamed(),
                Output::HandedOver => self.leaving.handed_over(),
                Output::Left => self.leave(),
                Output::Expelled => self.start_anew(),
                Output::Fatal(why) => self.end(why),
            }
        }
    }

    fn show(&mut self, view: View) {
        self.follow_tables(&view);
        let tables = [&view.installed, &view.accepted];
        let keys = tables.iter().flat_map(|table| &table.members);
        let keys = keys.filter_map(|m| Some((m.id, m.vote_key?)));
        self.identity.set_keys(keys.collect());
        self.shared.publish(LocalView {
            me: self.config.id,
            view: Some(view.clone()),
        });
        let members = members_of(&view);
        let addresses = members
            .iter()
            .map(|(id, (address, _))| (*id, *address))
            .collect();
        self.peers.set_members(members);
        self.hints.set_scope(Some(Scope {
            cluster: view.installed.cluster,
            me: self.config.id,
            address: self.config.addresses.control,
            members: addresses,
        }));
        let company = if view.installed.members.len() > 1 {
            Company::Others
        } else {
            Company::Alone
        };
        self.seeds.keeps(company);
        if self.view.is_none() {
            tracing::info!(
                "member of cluster {} with {}",
                view.installed.cluster,
                counted(view.installed.members.len(), MEMBERS)
            );
        }
        self.refused_by.is_member();
        // Nothing is known of what went before this node was a member.
        let first = self.view.is_none();
        (self.past).follow_gone(clock::now(), first, &view.installed);
        let before = self.view.replace(view).map(|view| view.installed);
        if let Some(before) = before.filter(|before| {
            self.installed()
                .is_some_and(|now| !Arc::ptr_eq(before, &now))
        }) {
            self.past.replaced(before);
        }
    }

    /// Measures how long tables take. The coordinator proposes a table just after it stores it.
    fn follow_tables(&mut self, view: &View) {
        // Compare without the name, which is a hash of the whole table.
        let order = |table: &Table| (table.term, table.version);
        let (installed, accepted) = (order(&view.installed), order(&view.accepted));
        let before = self
            .view
            .as_ref()
            .map(|v| (order(&v.installed), order(&v.accepted)));
        #[cfg(feature = "fault-points")]
        if let Some(before) = &self.view {
            fault::pass_tables(&before.installed, &view.installed, false);
            fault::pass_tables(&view.installed, &view.accepted, true);
        }
        if before.is_none_or(|(was, _)| was != installed) {
            let (term, version, members) =
                (installed.0.0, installed.1.0, view.installed.members.len());
            let now = clock::now();
            // Tenures of this node that wait for the predecessor's lease. No node serves those
            // partitions meanwhile.
            let waits = || {
                view.opens_at
                    .iter()
                    .map(|(_, _, opens_at)| opens_at.since(now))
                    .filter(|wait| !wait.is_zero())
            };
            let (waiting, longest) = (waits().count(), waits().max().unwrap_or_default());
            tracing::debug!(
                target: "doyen::table",
                term, version, members, waiting, ?longest, "installed"
            );
            if let Some((_, at)) = self
                .proposed
                .take_if(|(proposed, _)| *proposed == installed)
            {
                self.counted.committed(clock::now().since(at));
            }
        }
        if accepted != installed && before.is_none_or(|(_, was)| was != accepted) {
            let (term, version, members) =
                (accepted.0.0, accepted.1.0, view.accepted.members.len());
            tracing::debug!(target: "doyen::table", term, version, members, "accepted");
            self.proposed = self.agreement.leading().then(|| (accepted, clock::now()));
        }
    }

    /// A table has this process in the place of the member for which it spoke (rule 14).
    fn renamed(&mut self) {
        self.shared.extend_lease(Time::ZERO);
        self.peers.reset(self.own_name());
        if let Some(view) = &self.view {
            self.peers.set_members(members_of(view));
        }
        self.pinged.clear();
    }

    /// The cluster continued without this process: it takes a new id and a new machine, and holds
    /// nothing.
    fn start_anew(&mut self) {
        self.shared.extend_lease(Time::ZERO);
        if self.leaving.begun {
            return self.leave();
        }
        let former = self.view.take();
        self.config.drained = former
            .as_ref()
            .is_some_and(|view| view.installed.settings.balancing.drains(self.config.id));
        self.config.id = MemberId::of_member(rand::random());
        self.config.order_key = OrderKey(rand::random());
        let seed = rand::random();
        self.config.signing_seed = SigningSeed::new(seed);
        self.disk.begin_again(seed);
        self.config.directory = self.disk.count(self.config.id);
        self.config.copies = DiskCopies::default();
        // Before any hello names the new id.
        self.identity.set_key(&self.config.signing_seed);
        self.identity.set_keys(BTreeMap::new());
        self.config.rng_seed = rand::random();
        tracing::warn!(
            me = %self.config.id,
            "the cluster continued without this process: it joins again as a new member"
        );
        self.shared.publish(LocalView {
            me: self.config.id,
            view: None,
        });
        self.hints.set_scope(None);
        self.seeds.keeps(Company::None);
        self.pinged.clear();
        self.planning.forget();
        self.tickets.expelled();
        // The seeds may be gone, so ask the former members as well. They must be seeds before the
        // machine begins: a node without seeds forms a cluster of its own, and waiting clients
        // would use it at once.
        let members = former
            .iter()
            .flat_map(|view| &view.installed.members)
            .map(|m| m.addresses.control);
        let own = self.config.addresses.control;
        self.seeds.former = members.filter(|address| *address != own).collect();
        self.seeds.add_former(&mut self.config.seeds);
        self.agreement = Agreement::new(self.config.clone(), clock::now());
        self.peers.reset(self.own_name());
    }

    fn leave(&mut self) {
        self.shared.extend_lease(Time::ZERO);
        self.hints.set_scope(None);
        self.pinged.clear();
        self.leaving.is_gone();
    }

    fn gossip(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        // Send gossip only to members at their addresses, so that gossip cannot make this node dial
        // any address. And only if agreement already has a connection: every member has one with
        // most voters, who pass on what they hear. A connection between any two members would cost
        // a large cluster more than everything else.
        let members = self.view.iter().flat_map(|view| &view.installed.members);
        if let Some(member) = members
            .into_iter()
            .find(|m| m.addresses.control == to && self.peers.is_linked(m.id))
        {
            self.peers
                .send(Peer::Member(member.id), Envelope::Gossip(bytes));
        }
    }

    fn probe(&mut self, probes: &mut Probes) {
        let now = clock::now();
        self.pinged.retain(|_, at| now.since(*at) < PROBED_FOR);
        let targets = self
            .pinged
            .keys()
            .filter_map(|id| Some((*id, self.peers.address_of(*id)?)))
            .filter(|(_, address)| self.hooks.lets_out(*address))
            .collect();
        for (id, in_a_row) in probes.probe(&targets, Instant::now()) {
            self.handle(Input::Hint(Hint::Refused(id)));
            if in_a_row >= probe::CLEAR {
                self.peers.disconnect_silent(id);
            }
        }
    }

    fn note_unresolved(&mut self, resolved: &Resolved) {
        for seed in &resolved.unresolved {
            self.note(format!(
                "the seed {seed:?} does not resolve, and is tried again: check the name"
            ));
        }
    }

    /// Tells operators something once in a while, in the log and as an event.
    fn note(&mut self, text: String) {
        if self.notices.due(&text) {
            self.tell(Event::note(text));
        }
    }

    fn tell(&mut self, event: Event) {
        let text = remedy::event_text(&event);
        match (event.severity(), &event) {
            (_, Event::NoCoordinator { why }) if self.view.is_none() => {
                if self.notices.due(why) {
                    tracing::warn!("no cluster yet: {why}");
                }
            }
            // Moves cause thousands of events. The list of events has them.
            (Severity::Info, Event::Moved { .. }) => tracing::debug!("{text}"),
            (Severity::Info, _) => tracing::info!("{text}"),
            (Severity::Warning, _) => tracing::warn!("{text}"),
            (Severity::Error, _) => tracing::error!("{text}"),
        }
        self.counted.event(&event);
        // It wakes foreign code.
        waking::guarded(|| self.log.push(event));
    }

    fn end(&mut self, why: String) {
        self.fatal.send_if_modified(|fatal| {
            let first = fatal.is_none();
            if first {
                *fatal = Some(why);
            }
            first
        });
    }
}

/// Addresses and names of the members. A member of either table is reached at the address in that
/// table.
fn members_of(view: &View) -> BTreeMap<MemberId, (SocketAddr, String)> {
    let tables = [&view.installed, &view.accepted].into_iter();
    let members = tables.flat_map(|table| &table.members);
    let members = members.map(|m| (m.id, (m.addresses.control, m.name.clone())));
    members.collect()
}
