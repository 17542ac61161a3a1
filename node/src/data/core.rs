//! Drives the shard and everything around it, without the sockets of clients.
//!
//! A pass of the data thread's loop calls `begin`. Then the network, other threads and clients
//! submit operations. Finally `pump` judges the results against a clock, a lease and a generation
//! that are read after execution, delivers the outcomes, and carries away bytes and requests.

use super::ThreadOptions;
use super::context::DataContext;
use super::disk::{DataDisk, DiskFigures};
use super::front_end::FrontEnd;
use super::inbox::Inbox;
use super::runtimes::Woken;
use super::siblings::Siblings;
use super::streams::{self, Streams};
use crate::audit::AuditOutcome;
use crate::clock;
use crate::control::Upcall;
use crate::control::shared::{LocalView, Shared};
use crate::directory::log_files::DataDirectory;
use crate::hooks::Hooks;
use crate::net::links::Links;
use crate::waking;
use doyen_engine::{Outside, RestoredPartition, Shard, ShardRequest};
use doyen_gossip::Time;
use doyen_gossip::agreement::{AdminReply, View};
use doyen_placement::loads::MemberLoad;
use doyen_placement::{MapEntry, Member, MemberId, Role, WantedMap};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Rounds of one pass. An operation of several steps that continues at once takes its next steps in
/// the same pass.
const ROUNDS_MAX: usize = 4;
/// Limit of the work of one pass on operations of several steps, in comparisons of characters: well
/// below a millisecond.
const STEPS_WORK: usize = 1 << 17;
/// Interval at which the memory of the process is measured.
const PROCESS_INTERVAL: Duration = Duration::from_millis(100);
/// The memory is measured sooner if clients have given back this part of it, and at least this many
/// bytes.
const GIVEN_BACK_PART: usize = 64;
const GIVEN_BACK_BYTES_LEAST: usize = 4 << 20;
/// Buffers of clients leave this part of the memory free for bytes in flight.
const BUFFERS_LEAVE_PART: usize = 32;
/// The largest command takes this many times its value while it arrives, because its buffer grows
/// by copying. In a small memory, it gets at most the part above.
const LARGEST_TAKES: usize = 2;
const LARGEST_PART_MAX: usize = 8;
/// Limit of requests to the control thread that wait here.
const UPCALLS_WAITING_MAX: usize = 1024;
/// Limit of maps that clients asked for and that are not made yet.
const MAKING_MAX: usize = 256;
/// Interval of signs of life to the control thread.
const ALIVE_INTERVAL: Duration = Duration::from_millis(200);
/// While something waits, a pass runs this often, to notice a renewed lease or an answer of the
/// control thread.
const WAITING_INTERVAL: Duration = Duration::from_millis(5);

/// Everything that a data thread drives.
pub(super) struct Core<D: FrontEnd> {
    pub(super) context: DataContext<D>,
    shared: Arc<Shared>,
    links: Links,
    /// The other data threads of this process.
    siblings: Siblings,
    inbox: Arc<Inbox>,
    disk: Option<DataDisk>,
    /// Subscriptions of callers on other threads.
    streams: Streams,
    woken: Woken,
    clients_max: usize,
    /// Maps that clients asked for, and the coordinator's answers.
    making: Vec<MapWanted>,
    /// Clients that wait for the newest table, and the control thread's answer.
    catching_up: Option<Lookup>,
    /// Clients whose errands are under way, and the control thread's answers.
    errands: Vec<(u64, oneshot::Receiver<AdminReply>)>,
    /// For a client: calls that wait for a map, by ticket.
    maps: BTreeMap<u64, oneshot::Sender<Result<MapEntry, String>>>,
    ticket_last: u64,
    /// For a client: members of another cluster were met.
    met_others: bool,
    upcalls: mpsc::Sender<Upcall>,
    waiting_upcalls: VecDeque<Upcall>,
    /// The id under which this thread asked the control thread to mark the cluster as used, and the
    /// answer.
    asked_used: Option<(MemberId, oneshot::Receiver<()>)>,
    /// CPU time of this thread at the last measurement, and the time of that.
    cpu: (Duration, Time),
    alive_at: Time,
    process_at: Time,
    /// Reclaimable bytes when the process was last measured.
    loose: u64,
    hooks: Hooks,
}

/// A thread above this many thousandths of a core has no time to spare.
const BUSY: u16 = 900;

/// Clients that wait for the newest table, the control thread's answer, and the deadline.
type Lookup = (Vec<u64>, oneshot::Receiver<()>, Time);

/// A client, its ticket, and the coordinator's answer.
type MapWanted = (MemberId, u64, oneshot::Receiver<AdminReply>);

/// Errands of clients of this thread that are under way at the same time.
const ERRANDS_MAX: usize = 64;

/// How long a client waits for the newest table. The control thread answers earlier, unless it
/// hangs.
const LOOKUP_MAX: Duration = Duration::from_secs(5);

impl<D: FrontEnd> Core<D> {
    pub(super) fn new(
        options: ThreadOptions,
        front: D,
        mut links: Links,
        shared: Arc<Shared>,
        upcalls: mpsc::Sender<Upcall>,
        inbox: Arc<Inbox>,
    ) -> Self {
        links.set_seeds(&options.seeds);
        Self {
            context: DataContext::new(options.me, options.limits, options.group, front),
            shared,
            links,
            siblings: options.siblings,
            inbox,
            disk: None,
            streams: Streams::default(),
            woken: Woken::default(),
            clients_max: options.clients_max,
            making: Vec::new(),
            catching_up: None,
            errands: Vec::new(),
            maps: BTreeMap::new(),
            ticket_last: 0,
            met_others: false,
            upcalls,
            waiting_upcalls: VecDeque::new(),
            asked_used: None,
            cpu: (Duration::ZERO, Time::ZERO),
            alive_at: Time::ZERO,
            process_at: Time::ZERO,
            loose: 0,
            hooks: options.hooks,
        }
    }

    /// Reads what the disk has, and writes there from now on. Returns the partitions that were read.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn open_disk(
        &mut self,
        directory: Option<&DataDirectory>,
    ) -> io::Result<Vec<RestoredPartition>> {
        let Some(directory) = directory else {
            return Ok(Vec::new());
        };
        let context = &mut self.context;
        let thread = context.me.thread_number();
        let group = context.group.clone();
        let threads = (thread, group.threads());
        let wake = move || group.wake(thread);
        let shard = &mut context.shard;
        let (disk, restored) = DataDisk::open(directory, threads, &context.limits, shard, wake)?;
        self.disk = Some(disk);
        Ok(restored)
    }

    /// Takes what the disk has done.
    ///
    /// # Errors
    /// It has failed.
    pub(super) fn hear_disk(&mut self) -> io::Result<()> {
        let context = &mut self.context;
        match &self.disk {
            Some(disk) => disk.hear(context.now, &mut context.shard),
            None => Ok(()),
        }
    }

    /// Whether the disk has left nothing new.
    pub(super) fn is_disk_quiet(&self) -> bool {
        self.disk.as_ref().is_none_or(DataDisk::is_quiet)
    }

    /// Gives the disk what it is to write.
    pub(super) fn give_disk(&mut self) {
        let context = &mut self.context;
        if let Some(disk) = &self.disk {
            disk.give((context.now, context.unix_ms), &mut context.shard);
        }
    }

    pub(super) fn disk_figures(&self) -> DiskFigures {
        self.disk
            .as_ref()
            .map(DataDisk::figures)
            .unwrap_or_default()
    }

    /// The data network.
    pub(super) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Reads the clocks and installs the present view, for everything that is submitted afterwards.
    pub(super) fn begin(&mut self) {
        let context = &mut self.context;
        context.now = clock::now();
        context.look_at_wall(self.hooks.ahead());
        context.lease = self.shared.lease();
        context.stopped = self.shared.is_stopped();
        // Load the generation first: then the view is at least as new.
        let generation = self.shared.generation();
        if context.generation == Some(generation) {
            return;
        }
        let local = self.shared.local();
        context.generation = Some(generation);
        let me = local.me.thread(context.me.thread_number());
        if me != context.me {
            self.links.reset(me);
            self.siblings.restart(local.me);
            self.streams.restart(&mut context.shard);
            context.restart(me);
            if let Some(disk) = &mut self.disk {
                disk.restart(&mut context.shard);
            }
        }
        context.view.clone_from(&local.view);
        context.front.view_changed(context.view.as_ref());
        let Some(view) = local.view.clone() else {
            return;
        };
        self.links.set_peers(&peers(&view, context.me));
        // Not earlier: a process that is no member yet has no table for clients.
        self.links.set_clients_max(Some(self.clients_max));
        context.shard.install(context.now, view);
        self.streams.resume(&mut context.shard, context.now);
        context.redo();
    }

    /// Calls `begin` again if there is another view by now: a client that has seen that view may
    /// ask for what it contains. Everything that was taken out of the inbox or a socket before this
    /// call is from clients that cannot know more. There must be no provisional replies, because
    /// they are judged by the view under which they were read.
    pub(super) fn catch_up(&mut self) {
        debug_assert!(
            !self.context.front.is_provisional(),
            "replies would be judged by a view that they were not read under"
        );
        if !self.is_current(&self.shared) {
            self.begin();
        }
    }

    /// Whether the present view is installed.
    pub(super) fn is_current(&self, shared: &Shared) -> bool {
        self.context.generation == Some(shared.generation())
    }

    /// Handles what arrived on the data network. True: there is more, for the next pass.
    ///
    /// # Errors
    /// The socket is broken.
    pub(super) fn receive(&mut self, now: Instant) -> io::Result<bool> {
        Ok(self.links.work(now, &mut self.context)? | self.siblings.work(&mut self.context))
    }

    /// Whether the other data threads left nothing new.
    pub(super) fn is_left_alone(&self) -> bool {
        self.siblings.is_quiet()
    }

    /// Sends to peers. True: there is more, for the next pass.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        self.siblings
            .flush(|thread| self.context.group.wake(thread));
        self.links.transmit(now)
    }

    /// Delivers the outcomes that may be answered, and carries away the rest. True: the last round
    /// may have made answers for the next pass, which should start at once.
    pub(super) fn pump(&mut self) -> bool {
        let (mut work, mut more) = (STEPS_WORK, false);
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                self.begin();
            }
            let context = &mut self.context;
            let lease = self.shared.lease();
            let now = clock::now();
            let current = context.generation == Some(self.shared.generation());
            let well = Shard::may_answer(now, lease, current);
            context.judged = context.generation.filter(|_| well);
            D::settle(context, well);
            context.shard.release(now, lease, current);
            while let Some((token, outcome)) = context.shard.poll_outcome() {
                context.deliver(token, outcome);
            }
            let asks_again = context.ask_overtaken();
            let steps = D::step(context, &mut work);
            self.carry_away();
            more = well && (steps > 0 || asks_again);
            if steps == 0 && !asks_again || work == 0 {
                break;
            }
        }
        let context = &mut self.context;
        self.streams.pump(&mut context.shard, context.now);
        self.inbox
            .answer(&mut context.answers, &mut self.woken, context.now);
        context.native.count();
        more
    }

    /// Sends bytes to peers, and requests to the control thread.
    fn carry_away(&mut self) {
        self.links.share(self.context.shard.is_repairing());
        while let Some((peer, lane, bytes)) = self.context.shard.poll_transmit() {
            let here = self.siblings.has(peer);
            let congested = if here {
                self.siblings.send(peer, lane, bytes)
            } else {
                self.links.send(peer, lane, bytes)
            };
            if congested {
                self.context.shard.congested(self.context.now, peer, true);
            }
        }
        while let Some((peer, bytes)) = self.context.shard.poll_datagram() {
            self.links.send_datagram(peer, bytes);
        }
        while let Some(request) = self.context.shard.poll_request() {
            match request {
                ShardRequest::Opened(opened) => self.upcall(Upcall::Opened(opened)),
                ShardRequest::Loads(mut report) => {
                    report.member = self.with_cpu(report.member);
                    self.upcall(Upcall::Loads {
                        thread: self.context.me.thread_number(),
                        report,
                    });
                }
                ShardRequest::Differed(at, learner) => self.upcall(Upcall::Differed(at, learner)),
                ShardRequest::InSync(changes) => self.upcall(Upcall::InSync(changes)),
                ShardRequest::Newer(table) => self.upcall(Upcall::Newer(table)),
                ShardRequest::WantMap {
                    client,
                    ticket,
                    wanted,
                } => self.pass_wish(client, ticket, wanted),
                ShardRequest::MapMade { ticket, made } => {
                    if let Some(answer) = self.maps.remove(&ticket) {
                        waking::answer(answer, made);
                    }
                }
                ShardRequest::Table(table) => {
                    // A client needs no more: it leads nothing, so neither a lease nor an accepted
                    // table matters.
                    let view = View {
                        installed: table.clone(),
                        accepted: table,
                        opens_at: Arc::default(),
                    };
                    self.shared.publish(LocalView {
                        me: self.context.me.member(),
                        view: Some(view),
                    });
                }
                ShardRequest::OtherCluster(name) => {
                    // Nothing follows: the cluster that was followed is gone.
                    self.streams.end();
                    if !std::mem::replace(&mut self.met_others, true) {
                        tracing::warn!(
                            "cluster {} answers where another one did: this client sends it \
                             nothing; connect a new client",
                            name.cluster
                        );
                    }
                }
                ShardRequest::Used => {
                    let (answer, marked) = oneshot::channel();
                    self.asked_used = Some((self.context.me, marked));
                    self.upcall(Upcall::Used(answer));
                }
            }
        }
    }

    /// Adds the CPU time that this thread took since the last call.
    fn with_cpu(&mut self, load: MemberLoad) -> MemberLoad {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let spent = Duration::new(
            spent.tv_sec.unsigned_abs(),
            u32::try_from(spent.tv_nsec).unwrap_or(0),
        );
        let (before, at) = std::mem::replace(&mut self.cpu, (spent, self.context.now));
        let passed = self.context.now.since(at).as_micros().max(1);
        let thousandths = spent.saturating_sub(before).as_micros() * 1000 / passed;
        let cpu = u16::try_from(thousandths.min(1000)).unwrap_or(1000);
        MemberLoad {
            cpu,
            busy: load.busy || cpu >= BUSY,
            ..load
        }
    }

    /// A client wants a map that does not exist yet, or a change of one.
    fn pass_wish(&mut self, client: MemberId, ticket: u64, wanted: WantedMap) {
        if self.making.len() >= MAKING_MAX {
            let refused = Err("too many maps are being made or changed: try again".to_owned());
            return self
                .context
                .shard
                .map_made(self.context.now, client, ticket, refused);
        }
        let (answer, answered) = oneshot::channel();
        self.making.push((client, ticket, answered));
        self.upcall(Upcall::WantMap { wanted, answer });
    }

    /// Answers clients whose maps were made or refused.
    fn look_for_maps(&mut self) {
        let (now, shard) = (self.context.now, &mut self.context.shard);
        self.making.retain_mut(|(client, ticket, answered)| {
            let made = match answered.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return true,
                Ok(AdminReply::Done(Some(map))) => Ok(map),
                Ok(AdminReply::Done(None)) => {
                    Err("the cluster did not say which map it is".to_owned())
                }
                Ok(AdminReply::Refused(why) | AdminReply::Outdated(why)) => Err(why),
                Err(oneshot::error::TryRecvError::Closed) => {
                    Err("the node that was asked ends".to_owned())
                }
            };
            shard.map_made(now, *client, *ticket, made);
            false
        });
    }

    /// A caller subscribes to changes.
    pub(super) fn subscribe(&mut self, asked: streams::AskedStream) {
        let context = &mut self.context;
        self.streams.begin(&mut context.shard, context.now, asked);
    }

    /// A subscriber asks where it is.
    pub(super) fn mark(&mut self, marking: streams::Marking) {
        self.streams.mark(&mut self.context.shard, marking);
    }

    /// Subscribers have room again, or are gone.
    pub(super) fn look_at_streams(&mut self) {
        let context = &mut self.context;
        self.streams.sweep(&mut context.shard, context.now);
    }

    /// For a client: a call waits for a map.
    pub(super) fn want_map(
        &mut self,
        wanted: WantedMap,
        answer: oneshot::Sender<Result<MapEntry, String>>,
    ) {
        self.maps.retain(|_, waiting| !waiting.is_closed());
        self.ticket_last += 1;
        if self
            .context
            .shard
            .ask_map(self.context.now, self.ticket_last, wanted)
        {
            self.maps.insert(self.ticket_last, answer);
        }
    }

    /// Asks for the newest table for waiting clients, and lets them continue when it is here.
    fn look_for_table(&mut self) {
        if let Some((_, answered, until)) = &mut self.catching_up {
            let waits = matches!(
                answered.try_recv(),
                Err(oneshot::error::TryRecvError::Empty)
            );
            if waits && self.context.now < *until {
                return;
            }
            // The clients that continue must see what was published before the answer.
            self.begin();
            if let Some((waiting, ..)) = self.catching_up.take() {
                self.context.front.looked(waiting);
            }
        }
        if !self.context.looking.is_empty() {
            let (answer, answered) = oneshot::channel();
            self.catching_up = Some((
                std::mem::take(&mut self.context.looking),
                answered,
                self.context.now + LOOKUP_MAX,
            ));
            self.upcall(Upcall::CatchUp(answer));
        }
    }

    /// Passes errands of clients on, and lets those continue whose errands are done.
    fn look_at_errands(&mut self) {
        let front = &mut self.context.front;
        self.errands.retain_mut(|(asked, answered)| {
            let reply = match answered.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return true,
                Ok(reply) => reply,
                Err(oneshot::error::TryRecvError::Closed) => {
                    AdminReply::unknown("the node that was asked ends")
                }
            };
            front.ran(*asked, reply);
            false
        });
        for audit in std::mem::take(&mut self.context.audits) {
            // Clients may try as often as they like what they may not do.
            let is_full = self.waiting_upcalls.len() >= UPCALLS_WAITING_MAX;
            if !is_full || !matches!(audit.outcome, AuditOutcome::Refused(_)) {
                self.upcall(Upcall::Audit(audit));
            }
        }
        for (asked, errand) in std::mem::take(&mut self.context.errands) {
            if self.errands.len() >= ERRANDS_MAX {
                self.context.front.ran(asked, AdminReply::busy());
                continue;
            }
            let (answer, answered) = oneshot::channel();
            self.errands.push((asked, answered));
            self.upcall(Upcall::Errand { errand, answer });
        }
    }

    /// Whether the control thread has marked the cluster as used.
    fn look_for_used(&mut self) {
        let Some((me, marked)) = &mut self.asked_used else {
            return;
        };
        match marked.try_recv() {
            Ok(()) => {
                if *me == self.context.me {
                    self.context.shard.used(self.context.now);
                }
                self.asked_used = None;
            }
            Err(oneshot::error::TryRecvError::Empty) => {}
            // Without an answer, the control thread gave up this cluster or ended. It publishes
            // another `LocalView` then.
            Err(oneshot::error::TryRecvError::Closed) => self.asked_used = None,
        }
    }

    /// Never waits for the control thread. Requests that do not fit are sent in a later pass.
    fn upcall(&mut self, upcall: Upcall) {
        let waiting = &mut self.waiting_upcalls;
        if waiting.len() >= UPCALLS_WAITING_MAX
            && let Some(at) = waiting.iter().position(|u| {
                matches!(
                    u,
                    Upcall::InSync(_) | Upcall::Newer(_) | Upcall::Loads { .. }
                )
            })
        {
            // The shard repeats these.
            waiting.remove(at);
        }
        waiting.push_back(upcall);
        while let Some(first) = waiting.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(first)) = self.upcalls.try_send(first) {
                waiting.push_front(first);
                break;
            }
        }
    }

    /// Handles due timers, and gives a sign of life.
    pub(super) fn tick(&mut self) {
        self.look_for_used();
        self.look_for_maps();
        self.look_at_errands();
        self.look_for_table();
        self.look_at_process();
        let context = &mut self.context;
        let now = context.now;
        if context.shard.poll_timeout().is_some_and(|due| due <= now) {
            context.shard.tick(now);
        }
        context.give_up_redo();
        if self.streams.due().is_some_and(|due| due <= now) {
            self.streams.sweep(&mut context.shard, now);
        }
        D::tick(context);
        if now >= self.alive_at {
            self.alive_at = now + ALIVE_INTERVAL;
            let alive = Upcall::Alive(context.me.thread_number());
            if self.waiting_upcalls.is_empty() {
                // If the channel is full, the control thread empties it and sees the next one.
                let _ = self.upcalls.try_send(alive);
            } else {
                self.upcall(alive);
            }
        }
    }

    /// Tells the shard about memory that it does not count, and clients how much room is left for
    /// them.
    fn look_at_process(&mut self) {
        let context = &mut self.context;
        let held = context.front.held();
        // The store may share large values among them. Counting them twice is safe.
        let buffers = (held.bounded + held.other) as u64;
        let much = (context.limits.memory_bytes_max / GIVEN_BACK_PART).max(GIVEN_BACK_BYTES_LEAST);
        if context.now >= self.process_at || context.front.has_given_back(much) {
            self.process_at = context.now + PROCESS_INTERVAL;
            let counted = context.shard.memory() as u64 + buffers;
            self.loose = context
                .group
                .process()
                .look(context.me.thread_number(), counted);
        }
        context.shard.set_outside(Outside {
            buffers,
            loose: self.loose,
        });
        // Buffers get what is left. Stored data must not take it all from them, nor may they take
        // the last of it: one command at a time may exceed it.
        let limits = &context.limits;
        let largest = limits
            .value_bytes_max
            .saturating_mul(LARGEST_TAKES)
            .min(limits.memory_bytes_max / LARGEST_PART_MAX);
        let leave = largest.max(limits.memory_bytes_max / BUFFERS_LEAVE_PART);
        let left = context.shard.memory_left();
        context.front.set_room(
            context.now,
            (left + held.bounded).saturating_sub(leave),
            left == 0,
        );
    }

    /// Whether background work of this thread pauses for the sake of others.
    pub(super) fn pauses(&self) -> bool {
        self.context.shard.pauses()
    }

    /// Whether others need the processor of this thread.
    pub(super) fn set_short_of_time(&mut self, short: bool) {
        self.context.shard.set_short_of_time(short);
    }

    /// No others need the processor: continue background work.
    pub(super) fn go_on(&mut self) {
        self.context.shard.go_on();
    }

    /// The time until the next timer.
    pub(super) fn idle(&self) -> Duration {
        let context = &self.context;
        let mut due = self.alive_at;
        let asks_control = self.asked_used.is_some()
            || !self.making.is_empty()
            || self.catching_up.is_some()
            || !context.looking.is_empty()
            || !self.errands.is_empty()
            || !context.errands.is_empty();
        if !context.waiters.is_empty() || !self.waiting_upcalls.is_empty() || asks_control {
            due = due.min(context.now + WAITING_INTERVAL);
        }
        due = context.front.due().map_or(due, |at| due.min(at));
        due = self.streams.due().map_or(due, |at| due.min(at));
        due = self.woken.due().map_or(due, |at| due.min(at));
        context
            .shard
            .poll_timeout()
            .map_or(due, |timeout| due.min(timeout))
            .since(context.now)
    }
}

/// The data threads of every other member in the tables in force: a member that is being admitted
/// forwards already. A client needs those of members with data.
fn peers(view: &View, me: MemberId) -> Vec<(MemberId, Arc<str>, SocketAddr)> {
    let members = view.installed.members.iter().chain(&view.accepted.members);
    let members =
        members.filter(|m| m.id != me.member() && (!me.is_client() || m.role == Role::Data));
    let members: BTreeMap<_, _> = members.map(|m| (m.id, m)).collect();
    let threads = |m: &Arc<Member>| {
        let (name, m) = (Arc::<str>::from(m.name.as_str()), m.clone());
        let threads = 0..m.addresses.threads();
        threads.filter_map(move |t| Some((m.id.thread(t), name.clone(), m.addresses.data_of(t)?)))
    };
    members.into_values().flat_map(threads).collect()
}
