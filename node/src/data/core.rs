//! Drives the shard and everything around it but the sockets of clients.
//!
//! A pass of the data thread's loop calls `begin`, lets the network, other threads and clients
//! submit what they have, and then `pump`, which judges what was executed against a clock, a lease
//! and a generation that are read after it, hands out the outcomes, and carries away bytes and
//! requests.

use super::ThreadOptions;
use super::context::Context;
use super::desk::Desk;
use super::door::Door;
use super::siblings::Siblings;
use crate::clock;
use crate::control::Upcall;
use crate::control::shared::{Local, Shared};
use crate::data::waking;
use crate::net::links::Links;
use doyen_engine::{Outside, Request, Shard};
use doyen_gossip::Time;
use doyen_gossip::agreement::{AdminReply, View};
use doyen_placement::loads::MemberLoad;
use doyen_placement::{MapEntry, Member, MemberId, Role};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Rounds of one pass: an operation of several steps that goes on at once takes its next steps in
/// the same pass.
const ROUNDS_MAX: usize = 4;
/// Work of one pass on operations of several steps, in comparisons of characters: well below a
/// millisecond.
const STEPS_WORK: usize = 1 << 17;
/// How often it is looked at what the process holds.
const PROCESS_INTERVAL: Duration = Duration::from_millis(100);
/// It is looked at sooner where clients have given back this part of the memory, and no less than
/// so much.
const GIVEN_BACK_PART: usize = 64;
const GIVEN_BACK_BYTES_LEAST: usize = 4 << 20;
/// Buffers of clients leave this part of the memory to what is on its way.
const BUFFERS_LEAVE_PART: usize = 32;
/// While it arrives, the largest command takes so many times its value: its buffer grows by being
/// copied. Of a small memory, it is left no more than this part.
const LARGEST_TAKES: usize = 2;
const LARGEST_PART_MAX: usize = 8;
/// Requests to the control thread that may wait here.
const UPCALLS_WAITING_MAX: usize = 1024;
/// Maps that clients have asked for and that are not made yet, at most.
const MAKING_MAX: usize = 256;
/// Between two signs of life to the control thread.
const ALIVE_INTERVAL: Duration = Duration::from_millis(200);
/// How often a pass is tried while something waits, so that a lease that came back is noticed, or
/// an answer of the control thread.
const WAITING_INTERVAL: Duration = Duration::from_millis(5);

/// What a data thread drives.
pub(super) struct Core<D: Door> {
    pub(super) context: Context<D>,
    shared: Arc<Shared>,
    links: Links,
    /// The other data threads of this process.
    siblings: Siblings,
    desk: Arc<Desk>,
    wakers: Vec<Waker>,
    clients_max: usize,
    /// Maps that clients have asked for, and the coordinator's answers.
    making: Vec<MapWanted>,
    /// Clients that wait for the newest table, and the control thread's answer.
    catching_up: Option<Lookup>,
    /// Of a client: calls that wait for a map, by ticket.
    maps: BTreeMap<u64, oneshot::Sender<Result<MapEntry, String>>>,
    ticket_last: u64,
    /// Of a client: members of another cluster were met.
    met_others: bool,
    upcalls: mpsc::Sender<Upcall>,
    waiting_upcalls: VecDeque<Upcall>,
    /// As which member this thread asked the control thread to mark the cluster as used, and the
    /// answer.
    asked_used: Option<(MemberId, oneshot::Receiver<()>)>,
    /// What this thread has taken of its core, and until when.
    cpu: (Duration, Time),
    alive_at: Time,
    process_at: Time,
    /// What was loose at the last look at the process.
    loose: u64,
}

/// Of a core in thousandths, from when on a thread has no time to spare.
const BUSY: u16 = 900;

/// Numbers of those that wait for the newest table, the control thread's answer, and until when it
/// is waited for.
type Lookup = (Vec<u64>, oneshot::Receiver<()>, Time);

/// A client, its ticket, and the coordinator's answer.
type MapWanted = (MemberId, u64, oneshot::Receiver<AdminReply>);

/// A client waits this long for the newest table, at most: the control thread answers earlier,
/// unless it hangs.
const LOOKUP_MAX: Duration = Duration::from_secs(5);

impl<D: Door> Core<D> {
    pub(super) fn new(
        options: ThreadOptions,
        door: D,
        mut links: Links,
        shared: Arc<Shared>,
        upcalls: mpsc::Sender<Upcall>,
        desk: Arc<Desk>,
    ) -> Self {
        links.set_seeds(&options.seeds);
        Self {
            context: Context::new(options.me, options.limits, options.crew, door),
            shared,
            links,
            siblings: options.siblings,
            desk,
            wakers: Vec::new(),
            clients_max: options.clients_max,
            making: Vec::new(),
            catching_up: None,
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
        }
    }

    /// The data network.
    pub(super) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Reads the clocks and installs the present view: whatever is submitted next meets it.
    pub(super) fn begin(&mut self) {
        let context = &mut self.context;
        context.now = clock::now();
        context.unix_ms = clock::unix_ms();
        context.lease = self.shared.lease();
        // The generation first: the view is at least as new.
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
            context.restart(me);
        }
        context.view.clone_from(&local.view);
        context.door.view_changed(context.view.as_ref());
        let Some(view) = local.view.clone() else {
            return;
        };
        self.links.set_peers(&peers(&view, context.me));
        // Only now: a process that is no member yet has nothing to tell them.
        self.links.set_clients_max(Some(self.clients_max));
        context.shard.install(context.now, view);
        context.redo();
    }

    /// Calls `begin` once more if there is another view by now. A client that has seen that view
    /// asks for what it has. Everything that was taken out of the desk or a socket before this call
    /// was asked by clients that cannot know more. Not while there are provisional replies: they
    /// are judged by the view that they were read under.
    pub(super) fn catch_up(&mut self) {
        debug_assert!(
            !self.context.door.is_provisional(),
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

    /// What the data network has. True: there is more, for the next pass.
    ///
    /// # Errors
    /// The socket is broken.
    pub(super) fn receive(&mut self, now: Instant) -> io::Result<bool> {
        Ok(self.links.work(now, &mut self.context)? | self.siblings.work(&mut self.context))
    }

    /// Whether other data threads left nothing that was not looked at.
    pub(super) fn is_left_alone(&self) -> bool {
        self.siblings.is_quiet()
    }

    /// Sends what there is for peers. True: there is more, for the next pass.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        self.siblings.flush(|thread| self.context.crew.ring(thread));
        self.links.transmit(now)
    }

    /// Hands out what may be answered, and carries away the rest. True: what went on in the last
    /// round may have answers for the next pass, which need not wait for anything.
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
        self.desk
            .answer(&mut self.context.answers, &mut self.wakers);
        more
    }

    /// Bytes to peers, requests to the control thread.
    fn carry_away(&mut self) {
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
        while let Some(request) = self.context.shard.poll_request() {
            match request {
                Request::Opened(opened) => self.upcall(Upcall::Opened(opened)),
                Request::Loads(mut report) => {
                    report.member = self.with_cpu(report.member);
                    self.upcall(Upcall::Loads {
                        thread: self.context.me.thread_number(),
                        report,
                    });
                }
                Request::Differed(at, learner) => self.upcall(Upcall::Differed(at, learner)),
                Request::InSync(changes) => self.upcall(Upcall::InSync(changes)),
                Request::Newer(table) => self.upcall(Upcall::Newer(table)),
                Request::MakeMap {
                    client,
                    ticket,
                    keyspace,
                    name,
                } => self.make_map(client, ticket, keyspace, name),
                Request::MapMade { ticket, made } => {
                    if let Some(answer) = self.maps.remove(&ticket) {
                        waking::answer(answer, made);
                    }
                }
                Request::Table(table) => {
                    // All that a client acts on: it leads nothing, so it needs neither a lease nor
                    // what was accepted.
                    let view = View {
                        installed: table.clone(),
                        accepted: table,
                        opens_at: Arc::default(),
                    };
                    self.shared.publish(Local {
                        me: self.context.me.member(),
                        view: Some(view),
                    });
                }
                Request::OtherCluster(name) => {
                    if !std::mem::replace(&mut self.met_others, true) {
                        tracing::warn!(
                            "cluster {} answers where another one did: this client asks it \
                             nothing, connect a new one",
                            name.cluster
                        );
                    }
                }
                Request::Used => {
                    let (answer, marked) = oneshot::channel();
                    self.asked_used = Some((self.context.me, marked));
                    self.upcall(Upcall::Used(answer));
                }
            }
        }
    }

    /// With how much of a core this thread took since this was asked last.
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

    /// A client wants a map that is not there.
    fn make_map(&mut self, client: MemberId, ticket: u64, keyspace: String, name: String) {
        if self.making.len() >= MAKING_MAX {
            let refused = Err("too many maps are being made: try again".to_owned());
            return self
                .context
                .shard
                .map_made(self.context.now, client, ticket, refused);
        }
        let (answer, answered) = oneshot::channel();
        self.making.push((client, ticket, answered));
        self.upcall(Upcall::MakeMap {
            keyspace,
            name,
            answer,
        });
    }

    /// Maps that were made since, or refused.
    fn look_for_maps(&mut self) {
        let (now, shard) = (self.context.now, &mut self.context.shard);
        self.making.retain_mut(|(client, ticket, answered)| {
            let made = match answered.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return true,
                Ok(AdminReply::Done(Some(map))) => Ok(map),
                Ok(AdminReply::Done(None)) => {
                    Err("the cluster did not say which map it is".to_owned())
                }
                Ok(AdminReply::Refused(why)) => Err(why),
                Err(oneshot::error::TryRecvError::Closed) => {
                    Err("the node that was asked ends".to_owned())
                }
            };
            shard.map_made(now, *client, *ticket, made);
            false
        });
    }

    /// Of a client: a call waits for a map.
    pub(super) fn want_map(
        &mut self,
        keyspace: String,
        name: String,
        answer: oneshot::Sender<Result<MapEntry, String>>,
    ) {
        self.maps.retain(|_, waiting| !waiting.is_closed());
        self.ticket_last += 1;
        if self
            .context
            .shard
            .ask_map(self.context.now, self.ticket_last, keyspace, name)
        {
            self.maps.insert(self.ticket_last, answer);
        }
    }

    /// Asks for the newest table on behalf of clients that wait for it, and lets them go on once it
    /// is here.
    fn look_for_table(&mut self) {
        if let Some((_, answered, until)) = &mut self.catching_up {
            let waits = matches!(
                answered.try_recv(),
                Err(oneshot::error::TryRecvError::Empty)
            );
            if waits && self.context.now < *until {
                return;
            }
            // What was published before the answer is to be seen by those that go on.
            self.begin();
            if let Some((waiting, ..)) = self.catching_up.take() {
                self.context.door.looked(waiting);
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
            // No answer: the control thread surrendered this cluster or ended, and says so by
            // another `Local`.
            Err(oneshot::error::TryRecvError::Closed) => self.asked_used = None,
        }
    }

    /// Never waits for the control thread; what does not fit goes with a later pass.
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
            // The shard asks or says these again.
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

    /// What is due by the clock, and a sign of life.
    pub(super) fn tick(&mut self) {
        self.look_for_used();
        self.look_for_maps();
        self.look_for_table();
        self.look_at_process();
        let context = &mut self.context;
        let now = context.now;
        if context.shard.poll_timeout().is_some_and(|due| due <= now) {
            context.shard.tick(now);
        }
        context.give_up_redo();
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

    /// Tells the shard what is held beside what it counts, and clients how much room that leaves
    /// them.
    fn look_at_process(&mut self) {
        let context = &mut self.context;
        let held = context.door.held();
        // Large values among them may be shared with the store: counted twice is better than not.
        let buffers = (held.bounded + held.other) as u64;
        let much = (context.limits.memory_bytes_max / GIVEN_BACK_PART).max(GIVEN_BACK_BYTES_LEAST);
        if context.now >= self.process_at || context.door.has_given_back(much) {
            self.process_at = context.now + PROCESS_INTERVAL;
            let counted = context.shard.memory() as u64 + buffers;
            self.loose = context
                .crew
                .process()
                .look(context.me.thread_number(), counted);
        }
        context.shard.set_outside(Outside {
            buffers,
            loose: self.loose,
        });
        // Buffers have what is left; what is stored must not take it from them, nor they the last
        // of it: one command at a time goes beyond.
        let limits = &context.limits;
        let largest = limits
            .value_bytes_max
            .saturating_mul(LARGEST_TAKES)
            .min(limits.memory_bytes_max / LARGEST_PART_MAX);
        let leave = largest.max(limits.memory_bytes_max / BUFFERS_LEAVE_PART);
        let left = context.shard.memory_left();
        context.door.set_room(
            context.now,
            (left + held.bounded).saturating_sub(leave),
            left == 0,
        );
    }

    /// Whether a pause that is for the sake of others keeps something waiting.
    pub(super) fn pauses(&self) -> bool {
        self.context.shard.pauses()
    }

    /// Whether others want the processor on which this thread runs.
    pub(super) fn set_short_of_time(&mut self, short: bool) {
        self.context.shard.set_short_of_time(short);
    }

    /// There are no others: what pauses for their sake goes on.
    pub(super) fn go_on(&mut self) {
        self.context.shard.go_on();
    }

    /// How long nothing is due.
    pub(super) fn idle(&self) -> Duration {
        let context = &self.context;
        let mut due = self.alive_at;
        let asks_control = self.asked_used.is_some()
            || !self.making.is_empty()
            || self.catching_up.is_some()
            || !context.looking.is_empty();
        if !context.waiters.is_empty() || !self.waiting_upcalls.is_empty() || asks_control {
            due = due.min(context.now + WAITING_INTERVAL);
        }
        due = context.door.due().map_or(due, |at| due.min(at));
        context
            .shard
            .poll_timeout()
            .map_or(due, |timeout| due.min(timeout))
            .since(context.now)
    }
}

/// The data threads of every other member of the tables in force: a member that is being admitted
/// forwards already. A client needs those that hold data.
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
