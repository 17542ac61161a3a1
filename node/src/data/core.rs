//! The shard and everything around it but the sockets of clients.
//!
//! A pass of the data thread's loop calls `begin`, lets the network, other threads and clients
//! submit what they have, and then `pump`, which judges what was executed against a clock, a lease
//! and a generation that are read after it, hands out the outcomes, and carries away bytes and
//! requests.

use super::crew::Crew;
use super::desk::{Desk, Slot};
use super::siblings::Siblings;
use super::waiters::{Waiter, Waiters};
use super::{Counters, ThreadOptions};
use crate::clock;
use crate::control::Upcall;
use crate::control::shared::{Local, Shared};
use crate::data::waking;
use crate::net::links::{LinkHandler, Links};
use crate::resp::budget::Budget;
use crate::resp::cluster;
use crate::resp::counts::{Counts, Rates, Stopwatch};
use crate::resp::guard::Guard;
use crate::resp::info::Totals;
use crate::resp::ready::Ready;
use crate::resp::session::Connection;
use crate::resp::session::pause::Paused;
use crate::resp::slowlog::SlowLog;
use crate::seldom::{A_MINUTE, Seldom};
use bytes::BytesMut;
use doyen_engine::op::{Failure, Operation, Outcome, PartitionAction, PartitionOperation, Work};
use doyen_engine::{Lane, Limits, Malformed, Outside, Patience, Request, Shard};
use doyen_gossip::Time;
use doyen_gossip::agreement::{AdminReply, View};
use doyen_placement::loads::MemberLoad;
use doyen_placement::{KeyspaceId, MapEntry, MapId, Member, MemberId, Role};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Rounds of one pass: a sweep over partitions that goes on at once takes its next steps in the
/// same pass.
const ROUNDS_MAX: usize = 4;
/// Comparisons of keys with patterns in one pass, in characters: well below a millisecond.
const COMPARE_WORK: usize = 1 << 17;
/// How often connections that stand still are looked for while others want room.
const STALLED_INTERVAL: Duration = Duration::from_secs(1);
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
pub(crate) struct Core {
    pub(crate) inner: Inner,
    shared: Arc<Shared>,
    links: Links,
    /// The other data threads of this process.
    siblings: Siblings,
    desk: Arc<Desk>,
    wakers: Vec<Waker>,
    clients_max: usize,
    /// Maps that clients have asked for, and the coordinator's answers.
    making: Vec<MapWanted>,
    /// RESP connections that look up a keyspace, and the control thread's answer.
    catching_up: Option<Lookup>,
    /// Of a client: who waits for a map, by ticket.
    maps: BTreeMap<u64, oneshot::Sender<Result<MapEntry, String>>>,
    ticket_last: u64,
    /// Of a client: members of another cluster were met.
    met_others: bool,
    upcalls: mpsc::Sender<Upcall>,
    waiting_upcalls: VecDeque<Upcall>,
    /// Who asked the control thread to mark the cluster as used, and its answer.
    asked_used: Option<(MemberId, oneshot::Receiver<()>)>,
    /// What this thread has taken of its core, and until when.
    cpu: (Duration, Time),
    alive_at: Time,
    stalled_at: Time,
    expelled: Seldom,
    process_at: Time,
    /// What was loose at the last look at the process.
    loose: u64,
}

/// Of a core in thousandths, from when on a thread has no time to spare.
const BUSY: u16 = 900;

/// Connections that look up a keyspace, the control thread's answer, and until when it is waited
/// for.
type Lookup = (Vec<u64>, oneshot::Receiver<()>, Time);

/// A client, its ticket, and the coordinator's answer.
type MapWanted = (MemberId, u64, oneshot::Receiver<AdminReply>);

/// How long reads of a process that was expelled wait until it is in again. That takes a fifth of a
/// second, unless something keeps it outside: then others can answer its clients.
const REDO_MAX: Duration = Duration::from_secs(1);
/// A connection waits this long for the lookup of a keyspace, at most: the control thread answers
/// earlier, unless it hangs.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// How long a lease may be over before this node says that the cluster is down.
const LED_MAX: Duration = Duration::from_secs(2);

/// What is borrowed for a batch.
pub(crate) struct Inner {
    pub(crate) shard: Shard,
    /// The data thread that this is.
    pub(crate) me: MemberId,
    pub(crate) crew: Arc<Crew>,
    pub(crate) view: Option<View>,
    /// The least number of in-sync backups that any partition has in it.
    pub(crate) backups_least: i64,
    /// What cluster-aware clients are told of it.
    pub(crate) topology: cluster::Answers,
    /// Connections that look up a keyspace which this node does not know (yet).
    pub(crate) looking: Vec<u64>,
    generation: Option<u64>,
    /// The generation under which what was looked at before may be answered, as of the last look at
    /// lease and generation.
    pub(crate) judged: Option<u64>,
    waiters: Waiters,
    /// For callers of other threads, at the end of the pass.
    answers: Vec<(Slot, Outcome)>,
    /// Read at the beginning of a batch.
    pub(crate) now: Time,
    /// How far this node's lease reached at the last look.
    lease: Time,
    pub(crate) unix_ms: u64,
    pub(crate) started: Time,
    /// Connections with replies that must not leave unless the pass is judged well.
    pub(crate) provisional: Vec<Rc<Connection>>,
    /// Connections whose sweep over partitions can go on.
    sweeping: VecDeque<(Rc<Connection>, u64)>,
    pub(crate) connections: BTreeMap<u64, Rc<Connection>>,
    /// What they may hold together.
    pub(crate) budget: Rc<Budget>,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
    pub(crate) password: Option<String>,
    /// What clients did, for `INFO`; since when it counts; and rates of late.
    pub(crate) counts: Counts,
    pub(crate) totals_from: Totals,
    pub(crate) rates: Rates,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) slow: SlowLog,
    pub(crate) paused: Paused,
    /// Who gave a wrong one. In a cell, because sessions borrow everything else meanwhile.
    pub(crate) guard: RefCell<Guard>,
    /// How long a Redis client may take to say the password; `None`: for ever.
    pub(crate) auth_timeout: Option<Duration>,
    /// No more clients, and those that there are leave once they are answered.
    pub(crate) draining: bool,
    incarnations: u64,
    /// Reads of an earlier incarnation, which wait for a view so long at most.
    redo: Vec<(u64, Work)>,
    redo_until: Time,
}

impl Inner {
    /// Hands an operation to the shard: its token, and whether its outcome comes from elsewhere.
    /// `waiter`: who waits, given whether it is a read.
    pub(crate) fn submit(
        &mut self,
        operation: Operation,
        patience: Patience,
        waiter: impl FnOnce(bool) -> Waiter,
    ) -> (u64, bool) {
        let token = self.waiters.insert(waiter(!operation.action.is_write()));
        let elsewhere = self
            .shard
            .submit(self.now, self.unix_ms, token, operation, patience);
        (token, elsewhere)
    }

    /// Whether this thread leads a key.
    pub(crate) fn leads(&self, keyspace: KeyspaceId, map: MapId, key: &[u8]) -> bool {
        self.shard.leads(keyspace, map, key)
    }

    /// The generation under which this thread may look at what it leads: the last pass was judged
    /// well under it.
    pub(crate) fn looks_under(&self) -> Option<u64> {
        self.judged
            .filter(|judged| self.generation == Some(*judged))
    }

    /// Hands a write without conditions to the shard, if this thread leads its key and nothing
    /// stands in its way; its token.
    pub(crate) fn set(
        &mut self,
        keyspace: KeyspaceId,
        map: MapId,
        pair: (&[u8], &[u8]),
        waiter: impl FnOnce() -> Waiter,
    ) -> Option<u64> {
        let mut token = None;
        let waiters = &mut self.waiters;
        self.shard.set(self.now, keyspace, map, pair, || {
            *token.insert(waiters.insert(waiter()))
        });
        token
    }

    /// Keeps what was read at once and may not be answered now; its token.
    pub(crate) fn keep(
        &mut self,
        n: u64,
        operation: Operation,
        outcome: Outcome,
        waiter: Waiter,
    ) -> u64 {
        let token = self.waiters.insert(waiter);
        self.shard.keep(token, n, operation, outcome);
        token
    }

    /// Hands an operation on a partition to the shard.
    pub(crate) fn submit_partition(
        &mut self,
        operation: PartitionOperation,
        patience: Patience,
        waiter: impl FnOnce(bool) -> Waiter,
    ) -> u64 {
        let token = self
            .waiters
            .insert(waiter(operation.action != PartitionAction::Clear));
        self.shard
            .submit_partition(self.now, token, operation, patience);
        token
    }

    /// Whether a majority of the voters answered this node not long ago. Without that for so long,
    /// clients should not be sent to whomever an old table names.
    pub(crate) fn is_led(&self) -> bool {
        self.now <= self.lease + LED_MAX
    }

    /// What was read at once in this pass may leave, or is taken back.
    fn settle(&mut self, well: bool) {
        let mut connections = std::mem::take(&mut self.provisional);
        connections.drain(..).for_each(|c| c.settle(self, well));
        self.provisional = connections;
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&mut self, token: u64) {
        if self.waiters.remove(token).is_some() {
            self.shard.forget(token);
        }
    }

    fn deliver(&mut self, token: u64, outcome: Outcome) {
        match self.waiters.remove(token) {
            Some(Waiter::Reply {
                connection,
                slot,
                part,
                read,
            }) => {
                let goes_on =
                    connection.deliver((self.now, self.judged), (slot, part), token, outcome, read);
                self.sweeping.extend(goes_on.then_some((connection, slot)));
            }
            Some(Waiter::Call(slot)) => self.answers.push((slot, outcome)),
            None => {}
        }
    }

    /// This process is another member now: nothing that was held counts. Reads are asked again; of
    /// writes it is not known whether they happened.
    fn restart(&mut self, me: MemberId) {
        self.incarnations += 1;
        self.me = me;
        self.view = None;
        let shard = Shard::new(
            me,
            self.limits.clone(),
            seed(me, self.incarnations),
            self.now,
        );
        let former = std::mem::replace(&mut self.shard, shard);
        self.redo_until = self.now + self.limits.park.min(REDO_MAX);
        let calls: Vec<_> = former
            .into_calls(&mut self.shard)
            .filter(|(_, call, _)| !call.is_write())
            .collect();
        for (token, call, overtaken) in calls {
            if !overtaken || self.may_ask_again(token) {
                self.redo.push((token, call));
            }
        }
        let again: BTreeSet<u64> = self.redo.iter().map(|(token, _)| *token).collect();
        for token in self
            .waiters
            .tokens()
            .into_iter()
            .filter(|token| !again.contains(token))
        {
            let read = matches!(
                self.waiters.get(token),
                Some(Waiter::Reply { read: true, .. })
            );
            self.deliver(
                token,
                Outcome::Failed(if read {
                    Failure::Unavailable
                } else {
                    Failure::Unknown
                }),
            );
        }
    }

    /// Asks again what an earlier incarnation did not answer, now that there is a view.
    fn redo(&mut self) {
        for (token, call) in std::mem::take(&mut self.redo) {
            if !self.waiters.contains(token) {
                continue;
            }
            self.submit_again(token, call);
        }
    }

    /// Hands the work of somebody who waits already to the shard.
    fn submit_again(&mut self, token: u64, work: Work) {
        if let Some(Waiter::Reply { connection, .. }) = self.waiters.get(token) {
            connection.waits_until(self.now + self.limits.park);
        }
        match work {
            Work::Key(operation) => {
                let _ =
                    self.shard
                        .submit(self.now, self.unix_ms, token, operation, Patience::Whole);
            }
            Work::Partition(operation) => {
                self.shard
                    .submit_partition(self.now, token, operation, Patience::Whole)
            }
        }
    }

    /// Whether nobody could tell if an operation that changed nothing was executed later than it
    /// was: what a connection asked after it is to come after it, and callers of the library ask
    /// for nothing before they have their answer.
    fn may_ask_again(&self, token: u64) -> bool {
        match self.waiters.get(token) {
            Some(Waiter::Reply {
                connection, slot, ..
            }) => connection.awaits_last(*slot),
            Some(Waiter::Call(_)) => true,
            None => false,
        }
    }

    /// Operations that changed nothing, and whose outcomes are lost, are asked again where nobody
    /// can tell the difference; true, if there are any.
    fn ask_overtaken(&mut self) -> bool {
        let mut some = false;
        while let Some((token, work)) = self.shard.poll_overtaken() {
            if !self.waiters.contains(token) {
                continue;
            }
            if self.may_ask_again(token) {
                self.submit_again(token, work);
                some = true;
            } else {
                self.deliver(token, Outcome::Failed(Failure::Unavailable));
            }
        }
        some
    }

    /// Looks at what changes, for rates and peaks.
    fn sample(&mut self) {
        let counters = &self.counters;
        self.rates.sample(
            self.now,
            [
                counters.commands,
                counters.input_bytes,
                counters.output_bytes,
            ],
        );
        self.memory_peak_bytes = self.memory_peak_bytes.max(self.shard.memory_bytes());
    }

    /// No view came for too long.
    fn give_up_redo(&mut self) {
        if self.now >= self.redo_until {
            for (token, _) in std::mem::take(&mut self.redo) {
                self.deliver(token, Outcome::Failed(Failure::Unavailable));
            }
        }
    }
}

/// Jitter needs numbers that differ between members, nothing more.
const fn seed(me: MemberId, incarnation: u64) -> u64 {
    me.0.rotate_left(17) ^ incarnation
}

impl Core {
    pub(super) fn new(
        options: ThreadOptions,
        mut links: Links,
        ready: &Rc<Ready>,
        shared: Arc<Shared>,
        upcalls: mpsc::Sender<Upcall>,
        desk: Arc<Desk>,
    ) -> Self {
        links.set_seeds(&options.seeds);
        let now = clock::now();
        let me = options.me;
        let inner = Inner {
            shard: Shard::new(me, options.limits.clone(), seed(me, 0), now),
            me,
            crew: options.crew.clone(),
            view: None,
            backups_least: 0,
            topology: cluster::Answers::default(),
            looking: Vec::new(),
            generation: None,
            judged: None,
            waiters: Waiters::default(),
            answers: Vec::new(),
            now,
            unix_ms: clock::unix_ms(),
            lease: Time::ZERO,
            started: now,
            provisional: Vec::new(),
            sweeping: VecDeque::new(),
            connections: BTreeMap::new(),
            budget: Rc::new(Budget::new(
                &options.limits,
                options.crew.threads(),
                ready.clone(),
                options.crew.spill().clone(),
            )),
            counters: Counters::default(),
            limits: options.limits,
            password: options.password,
            counts: Counts::new(),
            totals_from: Totals::default(),
            rates: Rates::default(),
            memory_peak_bytes: 0,
            stopwatch: Stopwatch::new(),
            slow: SlowLog::default(),
            paused: Paused::default(),
            guard: RefCell::new(Guard::new()),
            auth_timeout: options.auth_timeout,
            draining: false,
            incarnations: 0,
            redo: Vec::new(),
            redo_until: now,
        };
        Self {
            inner,
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
            stalled_at: Time::ZERO,
            expelled: Seldom::new(A_MINUTE),
            process_at: Time::ZERO,
            loose: 0,
        }
    }

    /// The data network.
    pub(crate) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Reads the clocks and installs the present view: whatever is submitted next meets it.
    pub(crate) fn begin(&mut self) {
        let inner = &mut self.inner;
        inner.now = clock::now();
        inner.unix_ms = clock::unix_ms();
        inner.lease = self.shared.lease();
        // The generation first: the view is at least as new.
        let generation = self.shared.generation();
        if inner.generation == Some(generation) {
            return;
        }
        let local = self.shared.local();
        inner.generation = Some(generation);
        let me = local.me.thread(inner.me.thread_number());
        if me != inner.me {
            self.links.reset(me);
            self.siblings.restart(local.me);
            inner.restart(me);
        }
        inner.view.clone_from(&local.view);
        inner.backups_least = cluster::backups_least(inner.view.as_ref(), cluster::KEYSPACE);
        let Some(view) = local.view.clone() else {
            return;
        };
        self.links.set_peers(&peers(&view, inner.me));
        // Only now: whoever is no member yet has nothing to tell them.
        self.links.set_clients_max(Some(self.clients_max));
        inner.shard.install(inner.now, view);
        inner.redo();
    }

    /// `begin` once more, if there is another view by now: who has seen it asks for what it has.
    /// What was taken out of the desk or a socket before this was asked by somebody who cannot know
    /// more. Not while there are provisional replies: they were read under the view that they are
    /// judged by.
    pub(crate) fn catch_up(&mut self) {
        debug_assert!(
            self.inner.provisional.is_empty(),
            "replies would be judged by a view that they were not read under"
        );
        if !self.is_current(&self.shared) {
            self.begin();
        }
    }

    /// Whether the present view is installed.
    pub(crate) fn is_current(&self, shared: &Shared) -> bool {
        self.inner.generation == Some(shared.generation())
    }

    /// What the data network has. True: there is more, for the next pass.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn receive(&mut self, now: Instant) -> io::Result<bool> {
        Ok(self.links.work(now, &mut self.inner)? | self.siblings.work(&mut self.inner))
    }

    /// Whether other data threads left nothing that was not looked at.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.siblings.is_quiet()
    }

    /// Sends what there is for peers. True: there is more, for the next pass.
    pub(crate) fn transmit(&mut self, now: Instant) -> bool {
        self.siblings.flush(|thread| self.inner.crew.ring(thread));
        self.links.transmit(now)
    }

    /// Hands out what may be answered, and carries away the rest. True: what went on in the last
    /// round may have answers for the next pass, which need not wait for anything.
    pub(crate) fn pump(&mut self) -> bool {
        let (mut work, mut more) = (COMPARE_WORK, false);
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                self.begin();
            }
            let inner = &mut self.inner;
            let lease = self.shared.lease();
            let now = clock::now();
            let current = inner.generation == Some(self.shared.generation());
            let well = Shard::may_answer(now, lease, current);
            inner.judged = inner.generation.filter(|_| well);
            inner.settle(well);
            inner.shard.release(now, lease, current);
            while let Some((token, outcome)) = inner.shard.poll_outcome() {
                inner.deliver(token, outcome);
            }
            let asks_again = inner.ask_overtaken();
            let steps = inner.sweeping.len();
            for _ in 0..steps {
                if work > 0
                    && let Some((connection, slot)) = inner.sweeping.pop_front()
                    && connection.sweep_on(inner, slot, &mut work)
                {
                    inner.sweeping.push_back((connection, slot));
                }
            }
            self.carry_away();
            more = well && (steps > 0 || asks_again);
            if steps == 0 && !asks_again || work == 0 {
                break;
            }
        }
        self.desk.answer(&mut self.inner.answers, &mut self.wakers);
        more
    }

    /// Bytes to peers, requests to the control thread.
    fn carry_away(&mut self) {
        while let Some((peer, lane, bytes)) = self.inner.shard.poll_transmit() {
            let here = self.siblings.has(peer);
            let congested = if here {
                self.siblings.send(peer, lane, bytes)
            } else {
                self.links.send(peer, lane, bytes)
            };
            if congested {
                self.inner.shard.congested(self.inner.now, peer, true);
            }
        }
        while let Some(request) = self.inner.shard.poll_request() {
            match request {
                Request::Opened(opened) => self.upcall(Upcall::Opened(opened)),
                Request::Loads(mut report) => {
                    report.member = self.with_cpu(report.member);
                    self.upcall(Upcall::Loads {
                        thread: self.inner.me.thread_number(),
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
                        me: self.inner.me.member(),
                        view: Some(view),
                    });
                }
                Request::OtherCluster(name) => {
                    if !std::mem::replace(&mut self.met_others, true) {
                        tracing::warn!(
                            "cluster {} answers where another one did: this client asks it nothing, connect a new one",
                            name.cluster
                        );
                    }
                }
                Request::Used => {
                    let (answer, marked) = oneshot::channel();
                    self.asked_used = Some((self.inner.me, marked));
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
        let (before, at) = std::mem::replace(&mut self.cpu, (spent, self.inner.now));
        let passed = self.inner.now.since(at).as_micros().max(1);
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
                .inner
                .shard
                .map_made(self.inner.now, client, ticket, refused);
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
        let (now, shard) = (self.inner.now, &mut self.inner.shard);
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

    /// Of a client: somebody waits for a map.
    pub(crate) fn want_map(
        &mut self,
        keyspace: String,
        name: String,
        answer: oneshot::Sender<Result<MapEntry, String>>,
    ) {
        self.maps.retain(|_, waiting| !waiting.is_closed());
        self.ticket_last += 1;
        if self
            .inner
            .shard
            .ask_map(self.inner.now, self.ticket_last, keyspace, name)
        {
            self.maps.insert(self.ticket_last, answer);
        }
    }

    /// Asks for the newest table on behalf of connections that look up a keyspace, and lets them go
    /// on once it is here.
    fn look_for_keyspaces(&mut self) {
        if let Some((_, answered, until)) = &mut self.catching_up {
            let waits = matches!(
                answered.try_recv(),
                Err(oneshot::error::TryRecvError::Empty)
            );
            if waits && self.inner.now < *until {
                return;
            }
            // What was published before the answer is to be seen by those that go on.
            self.begin();
            for id in self
                .catching_up
                .take()
                .map(|(waiting, ..)| waiting)
                .into_iter()
                .flatten()
            {
                if let Some(connection) = self.inner.connections.get(&id) {
                    connection.looked();
                }
            }
        }
        if !self.inner.looking.is_empty() {
            let (answer, answered) = oneshot::channel();
            self.catching_up = Some((
                std::mem::take(&mut self.inner.looking),
                answered,
                self.inner.now + LOOKUP_MAX,
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
                if *me == self.inner.me {
                    self.inner.shard.used(self.inner.now);
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
    pub(crate) fn tick(&mut self) {
        self.look_for_used();
        self.look_for_maps();
        self.look_for_keyspaces();
        self.look_at_process();
        let inner = &mut self.inner;
        let now = inner.now;
        if inner.shard.poll_timeout().is_some_and(|due| due <= now) {
            inner.shard.tick(now);
        }
        inner.give_up_redo();
        inner.end_pause();
        if now >= self.stalled_at && inner.budget.is_wanted() {
            self.stalled_at = now + STALLED_INTERVAL;
            let expelled = inner
                .connections
                .values()
                .filter(|c| c.expel_if_stalled(now))
                .count();
            inner.counters.connections_expelled += expelled as u64;
            if expelled > 0
                && let Some(others) = self.expelled.happened(Instant::now())
            {
                tracing::warn!(
                    "{expelled} RESP clients are disconnected: each holds more than 128 KiB of commands or answers and has not moved for 10 s, and \
                     other clients wait for room ({others} more times since the last such line)"
                );
            }
        }
        if now >= self.alive_at {
            self.alive_at = now + ALIVE_INTERVAL;
            inner.sample();
            let alive = Upcall::Alive(inner.me.thread_number());
            if self.waiting_upcalls.is_empty() {
                // A full channel is emptied by somebody who will see the next one.
                let _ = self.upcalls.try_send(alive);
            } else {
                self.upcall(alive);
            }
        }
    }

    /// Tells the shard what is held beside what it counts, and clients how much room that leaves
    /// them.
    fn look_at_process(&mut self) {
        let inner = &mut self.inner;
        let (input, answers) = inner.budget.counted();
        // Of what is put aside for clients that read nothing, large values may be shared with the
        // store: counted twice is better than not.
        let buffers = (input + answers + inner.budget.spilled()) as u64;
        let much = (inner.limits.memory_bytes_max / GIVEN_BACK_PART).max(GIVEN_BACK_BYTES_LEAST);
        if inner.now >= self.process_at || inner.budget.has_given_back(much) {
            self.process_at = inner.now + PROCESS_INTERVAL;
            let counted = inner.shard.memory() as u64 + buffers;
            self.loose = inner.crew.process().look(inner.me.thread_number(), counted);
        }
        inner.shard.set_outside(Outside {
            buffers,
            loose: self.loose,
        });
        // Buffers have what is left; what is stored must not take it from them, nor they the last
        // of it: one command at a time goes beyond.
        let limits = &inner.limits;
        let largest = limits
            .value_bytes_max
            .saturating_mul(LARGEST_TAKES)
            .min(limits.memory_bytes_max / LARGEST_PART_MAX);
        let leave = largest.max(limits.memory_bytes_max / BUFFERS_LEAVE_PART);
        let left = inner.shard.memory_left();
        inner.budget.set_room(
            inner.now,
            (left + input + answers).saturating_sub(leave),
            left == 0,
        );
    }

    /// Whether a pause that is for the sake of others keeps something waiting.
    pub(crate) fn pauses(&self) -> bool {
        self.inner.shard.pauses()
    }

    /// Whether others want the processor on which this thread runs.
    pub(crate) fn set_short_of_time(&mut self, short: bool) {
        self.inner.shard.set_short_of_time(short);
    }

    /// There are no others: what pauses for their sake goes on.
    pub(crate) fn go_on(&mut self) {
        self.inner.shard.go_on();
    }

    /// How long nothing is due.
    pub(crate) fn idle(&self) -> Duration {
        let inner = &self.inner;
        let mut due = self.alive_at;
        let asks_control = self.asked_used.is_some()
            || !self.making.is_empty()
            || self.catching_up.is_some()
            || !inner.looking.is_empty();
        if !inner.waiters.is_empty() || !self.waiting_upcalls.is_empty() || asks_control {
            due = due.min(inner.now + WAITING_INTERVAL);
        }
        if !inner.sweeping.is_empty() {
            return Duration::ZERO;
        }
        due = inner.paused.due().map_or(due, |end| due.min(end));
        inner
            .shard
            .poll_timeout()
            .map_or(due, |timeout| due.min(timeout))
            .since(inner.now)
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

/// The network's news are the shard's.
impl LinkHandler for Inner {
    fn connected(&mut self, peer: MemberId, version: u16) {
        self.shard.connected(self.now, peer, version);
    }

    fn disconnected(&mut self, peer: MemberId) {
        self.shard.disconnected(self.now, peer);
    }

    fn drained(&mut self, peer: MemberId) {
        self.shard.congested(self.now, peer, false);
    }

    fn received(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        let result = self
            .shard
            .receive(self.now, self.unix_ms, peer, lane, bytes);
        self.counters.malformed += u64::from(result.is_err());
        result
    }
}
