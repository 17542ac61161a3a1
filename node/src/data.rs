//! The data threads. Each is one loop that drives a shard, a data network and a front end.
//!
//! Everything that an operation needs on this node happens on the one thread that has its
//! partition. Other threads hand over in batches and wait for answers. If there are several data
//! threads, each is a peer of the others (`siblings`). The few things that they share are in
//! `group`.

pub(crate) mod context;
mod core;
pub(crate) mod disk;
pub(crate) mod front_end;
mod group;
mod inbox;
mod keeper;
pub mod latency;
#[cfg(feature = "near")]
pub(crate) mod nears;
mod passes;
mod process;
mod queues;
mod reactor;
mod runtimes;
#[doc(hidden)]
pub mod siblings;
mod streams;
mod thread_waker;
mod turns;
mod waiters;
mod watching;

use self::disk::DiskFigures;
use self::front_end::Opener;
use self::group::ThreadGroup;
use self::inbox::{Ask, Asked, Attended, Inbox};
use self::keeper::Keeper;
use self::latency::FamilyLatencies;
use self::queues::Queues;
use self::reactor::Reactor;
use self::siblings::Siblings;
use self::thread_waker::ThreadWaker;
#[cfg(feature = "console")]
use crate::client_list::ClientList;
use crate::clock;
use crate::control::Upcall;
use crate::control::shared::Shared;
use crate::directory::log_files::DataDirectory;
use crate::hooks::Hooks;
use crate::net::endpoint;
use crate::net::identity::Identity;
#[cfg(feature = "http")]
use crate::net::links::paths::ThreadPaths;
use doyen_engine::op::{Failure, Operation, OperationBatch, Outcome, PartitionOperation, Work};
use doyen_engine::{Bookmark, Filter, KeyFilter, Limits, Maps, RestoredPartition};
#[cfg(feature = "http")]
use doyen_engine::{KeysPage, KeysWanted, SinceRecovery};
#[cfg(feature = "metrics")]
use doyen_engine::{SizesPage, sizes::MapSize};
use doyen_gossip::Time;
#[cfg(feature = "metrics")]
use doyen_placement::{KeyspaceId, MapId, PartitionRef};
use doyen_placement::{MapEntry, MemberId, PartitionId, THREADS_MAX, Table, WantedMap};
pub use passes::Longest;
pub(crate) use process::ITSELF_BYTES;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
pub(crate) use streams::{NextChange, Stream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// The stack of a data thread. The deepest calls of a script take up to 2 MB. Memory that is never
/// reached costs nothing.
const STACK_BYTES: usize = 8 << 20;

/// The options of the data threads.
#[derive(Debug)]
pub(crate) struct DataOptions {
    /// The id of this process: a node, or a client, which serves no requests.
    pub(crate) me: MemberId,
    /// Limits of the data path, for all threads together.
    pub(crate) limits: Limits,
    /// One socket for each thread, 1 to 16 of them: that of `--data`, or of a port after it. A
    /// client has one.
    pub(crate) sockets: Vec<UdpSocket>,
    /// The identity of this node for its peers.
    pub(crate) identity: Arc<Identity>,
    /// For a node: limit of connected native clients.
    pub(crate) clients_max: usize,
    /// The highest level that the process speaks.
    pub(crate) level_max: u16,
    /// Whether the process belongs to this node alone, so that all of its memory counts.
    pub(crate) whole_process: bool,
    /// For a client: data ports of nodes at which it begins.
    pub(crate) seeds: Vec<SocketAddr>,
    /// Where the threads keep what must outlive them. `None`: nowhere.
    pub(crate) directory: Option<DataDirectory>,
    /// What a test does to this node.
    pub(crate) hooks: Hooks,
}

/// The options of one data thread.
#[derive(Debug)]
struct ThreadOptions {
    me: MemberId,
    limits: Limits,
    data: UdpSocket,
    identity: Arc<Identity>,
    clients_max: usize,
    level_max: u16,
    seeds: Vec<SocketAddr>,
    siblings: Siblings,
    group: Arc<ThreadGroup>,
    directory: Option<DataDirectory>,
    hooks: Hooks,
}

/// A data thread could not start.
#[derive(Debug, thiserror::Error)]
#[error("a data thread could not start: {0}")]
pub struct DataStartError(#[from] io::Error);

/// Counters and gauges of the data threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataStats {
    /// Counters of the shard.
    pub shard: doyen_engine::Stats,
    /// What the front end counted since the start.
    pub front: FrontEndCounters,
    /// Clients that are connected to the front end.
    pub connections: u64,
    /// The limit on RESP connections of the node.
    pub connections_max: u64,
    /// Links that were closed because the peer's bytes were malformed.
    pub malformed_links: u64,
    /// Bytes of commands that are incomplete or were not run yet.
    pub input_bytes: u64,
    /// Bytes of unanswered commands and of unwritten answers, without those that the store holds as
    /// well.
    pub answer_bytes: u64,
    /// Bytes of answers to clients that send commands and do not read.
    pub spilled_bytes: u64,
    /// Clients with subscriptions.
    pub subscribers: u64,
    /// Clients with subscriptions that were disconnected because they took messages too slowly.
    pub subscribers_expelled: u64,
    /// Changes of keys that were not sent to subscribers, about.
    pub key_messages_lost: u64,
    /// Passes of the loop that worked for more than 20 ms.
    pub long_passes: u64,
    /// Connected native clients.
    pub clients: u64,
    /// How long commands of the front end took: from the pass in which one was read to the moment
    /// when its reply left.
    pub command_latency: FamilyLatencies,
    /// How long operations of the library took: from the pass in which one was taken to the moment
    /// when its outcome was handed out.
    pub native_latency: FamilyLatencies,
    /// What the disk has done, if there is one.
    pub disk: DiskFigures,
}

/// What the front end of a thread counts of its clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrontEndCounters {
    /// Clients that it accepted.
    pub connections: u64,
    /// Clients that it refused because too many were connected.
    pub connections_rejected: u64,
    /// Clients that were disconnected because they held much memory and made no progress while
    /// others needed room.
    pub connections_expelled: u64,
    /// Commands.
    pub commands: u64,
    /// Commands that were answered with an error.
    pub errors: u64,
    /// Clients that did not speak the protocol of the front end.
    pub protocol_errors: u64,
    /// Bytes received from clients.
    pub input_bytes: u64,
    /// Bytes sent to clients.
    pub output_bytes: u64,
    /// Clients that did not authenticate in time.
    pub auth_timeouts: u64,
    /// Clients that were disconnected because they were idle for too long.
    pub idle_timeouts: u64,
    /// Clients that had not authenticated and were disconnected to make room for others.
    pub strangers_ended: u64,
    /// Wrong passwords.
    pub auth_failures: u64,
    /// Clients without subscriptions that were closed because too much output waited for them.
    pub output_limited: u64,
    /// What was taken for clients that were gone by then, and put back.
    pub pops_returned: u64,
    /// Elements that were perhaps taken, or perhaps not put back.
    pub pops_unknown: u64,
    /// Commands that were refused because of the command, a key, and a channel.
    pub denied: [u64; 3],
}

/// What the near caches of a map were asked by this process since its start, and what they have.
#[cfg(feature = "metrics")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NearFigures {
    pub(crate) map: (KeyspaceId, MapId),
    /// Reads that a copy answered.
    pub(crate) hits: u64,
    /// Reads for which there was no copy.
    pub(crate) misses: u64,
    /// Reads whose copy was not confirmed within the bound.
    pub(crate) unconfirmed: u64,
    /// Copies.
    pub(crate) entries: u64,
    /// How long ago the partition was confirmed that waits for that the longest. `None`: there are
    /// no copies.
    pub(crate) lag: Option<Duration>,
}

impl FrontEndCounters {
    /// Each counter, made of this one and of another.
    #[must_use]
    pub fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            connections: of(self.connections, other.connections),
            connections_rejected: of(self.connections_rejected, other.connections_rejected),
            connections_expelled: of(self.connections_expelled, other.connections_expelled),
            pops_returned: of(self.pops_returned, other.pops_returned),
            pops_unknown: of(self.pops_unknown, other.pops_unknown),
            commands: of(self.commands, other.commands),
            errors: of(self.errors, other.errors),
            protocol_errors: of(self.protocol_errors, other.protocol_errors),
            input_bytes: of(self.input_bytes, other.input_bytes),
            output_bytes: of(self.output_bytes, other.output_bytes),
            auth_timeouts: of(self.auth_timeouts, other.auth_timeouts),
            idle_timeouts: of(self.idle_timeouts, other.idle_timeouts),
            strangers_ended: of(self.strangers_ended, other.strangers_ended),
            auth_failures: of(self.auth_failures, other.auth_failures),
            output_limited: of(self.output_limited, other.output_limited),
            denied: [0, 1, 2].map(|at| of(self.denied[at], other.denied[at])),
        }
    }
}

impl DataStats {
    /// Adds the counters of another thread of the node.
    fn add(&mut self, other: &Self) {
        self.shard.add(&other.shard);
        self.front = self.front.with(&other.front, u64::saturating_add);
        self.connections += other.connections;
        self.connections_max = self.connections_max.max(other.connections_max);
        self.malformed_links += other.malformed_links;
        self.input_bytes += other.input_bytes;
        self.answer_bytes += other.answer_bytes;
        self.spilled_bytes += other.spilled_bytes;
        self.subscribers += other.subscribers;
        self.subscribers_expelled += other.subscribers_expelled;
        self.key_messages_lost += other.key_messages_lost;
        self.long_passes += other.long_passes;
        // Each client is connected with every thread.
        self.clients = self.clients.max(other.clients);
        self.command_latency.add(&other.command_latency);
        self.native_latency.add(&other.native_latency);
        self.disk.add(&other.disk);
    }
}

/// The running threads.
#[derive(Debug)]
pub struct Data {
    threads: Vec<JoinHandle<()>>,
}

impl Data {
    /// Whether one of the threads has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits until the threads have ended. Call [`DataHandle::stop`] first.
    ///
    /// # Panics
    /// A data thread panicked: an invariant was broken.
    pub fn join(self) {
        let ends: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Reaches the data threads from other threads. When all handles are dropped, they end.
#[derive(Debug, Clone)]
pub struct DataHandle(Arc<Desks>);

/// The shared part of all handles.
#[derive(Debug)]
struct Desks {
    /// One for each thread, at least one.
    inboxes: Vec<Arc<Inbox>>,
    shared: Arc<Shared>,
    keeper: Keeper,
    queues: Queues,
    #[cfg(feature = "near")]
    nears: nears::Nears,
}

impl Drop for Desks {
    fn drop(&mut self) {
        self.inboxes.iter().for_each(|inbox| inbox.close());
    }
}

#[derive(Debug)]
enum DataMessage {
    Stats(oneshot::Sender<DataStats>),
    LongestPass(oneshot::Sender<Longest>),
    Drain(oneshot::Sender<()>),
    /// For a client: asks for a map.
    Map {
        /// What it wants.
        wanted: WantedMap,
        /// Receives the answer.
        answer: oneshot::Sender<Result<MapEntry, String>>,
    },
    /// Asks what is known of the ways to other members.
    #[cfg(feature = "http")]
    Paths(oneshot::Sender<ThreadPaths>),
    /// For a client: asks for the reasons why its seeds refused it.
    Refusals(oneshot::Sender<Vec<(SocketAddr, endpoint::DialFailure)>>),
    /// For a client: the seeds from now on.
    Seeds(Vec<SocketAddr>),
    /// A caller subscribes to changes.
    Subscribe(Box<streams::AskedStream>),
    /// A subscriber asks where it is.
    Bookmark(streams::Marking),
    /// A subscriber has room again, or is gone.
    Room,
    /// Asks for a page of how much each map has here.
    #[cfg(feature = "metrics")]
    Sizes {
        /// The partition after which the page begins.
        after: Option<PartitionRef>,
        /// Receives the page.
        answer: oneshot::Sender<SizesPage>,
    },
    /// Asks what was committed since the last recovery.
    #[cfg(feature = "http")]
    SinceRecovery(oneshot::Sender<Vec<SinceRecovery>>),
    /// Asks for keys that were written since.
    #[cfg(feature = "http")]
    KeysSince(KeysWanted, oneshot::Sender<Option<KeysPage>>),
    /// Asks for the clients of the front end.
    #[cfg(feature = "console")]
    Clients(oneshot::Sender<ClientList>),
    /// From the front end of another thread.
    FrontEnd(front_end::FrontEndMessage),
    /// From a test: panic, as a broken invariant does.
    #[cfg(test)]
    Panic,
}

impl DataHandle {
    /// Runs an operation, wherever its key is stored. Dropping the future does not undo it.
    pub fn execute(&self, op: Operation) -> impl Future<Output = Outcome> + Send + use<> {
        let inbox = self.inbox_of(|| self.0.shared.partition_of(op.keyspace, op.map, &op.key));
        self.asked(inbox, Work::Key(op))
    }

    /// Runs an operation whose outcome its caller does not wait for.
    pub(crate) fn send(&self, op: Operation) {
        use futures_util::FutureExt;
        // The first poll hands it over, and dropping it undoes nothing.
        let _ = self.execute(op).now_or_never();
    }

    /// Runs an operation on a whole partition.
    pub fn execute_partition(
        &self,
        op: PartitionOperation,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        let inbox = self.inbox_of(|| Some(op.partition));
        self.asked(inbox, Work::Partition(op))
    }

    /// Runs operations on keys of one partition together.
    pub fn execute_transaction(
        &self,
        transaction: OperationBatch,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        let first = transaction.keys().next();
        let inbox = self.inbox_of(|| {
            let (map, key) = first?;
            self.0.shared.partition_of(transaction.keyspace, map, key)
        });
        self.asked(inbox, Work::Transaction(transaction))
    }

    /// Runs an operation once it is not blocked, and returns its outcome with a time after which it
    /// was executed. `Err(Nil)`: the time was over before. Callers of a key come in the order in
    /// which they asked; this one has waited since then. Dropping the future leaves the line.
    pub(crate) fn wait(
        &self,
        operation: Operation,
        since: Instant,
        until: Option<Instant>,
    ) -> impl Future<Output = Result<(Instant, Outcome), Outcome>> + Send + use<> {
        let (keyspace, map) = (operation.keyspace, operation.map);
        let inbox = self.inbox_of(|| self.0.shared.partition_of(keyspace, map, &operation.key));
        let (instant, now) = (Instant::now(), clock::now());
        let waited = u64::try_from(instant.saturating_duration_since(since).as_nanos());
        let wait = inbox::Wait {
            operation,
            since: Time(now.0.saturating_sub(waited.unwrap_or(u64::MAX))),
            until: until.map(|until| now + until.saturating_duration_since(instant)),
        };
        let asked = self.asked(inbox, Ask::Wait(Box::new(wait)));
        async move {
            match asked.await {
                Outcome::Many(parts) => match <[Outcome; 2]>::try_from(parts) {
                    Ok([Outcome::Int(stamp), outcome]) => {
                        let ago = clock::now().since(Time(stamp.max(0).cast_unsigned()));
                        let now = Instant::now();
                        Ok((now.checked_sub(ago).unwrap_or(instant), outcome))
                    }
                    Ok(other) => Err(Outcome::Many(other.into())),
                    Err(other) => Err(Outcome::Many(other)),
                },
                other => Err(other),
            }
        }
    }

    #[cfg_attr(
        not(feature = "near"),
        expect(clippy::unused_self, reason = "without near caches")
    )]
    fn asked(&self, inbox: Arc<Inbox>, ask: impl Into<Ask>) -> Asked {
        let asked = Asked::new(inbox, ask);
        #[cfg(feature = "near")]
        let asked = asked.forgotten_by(&self.0.nears);
        asked
    }

    /// A near cache of a map forgets what this process writes, for as long as it lives.
    #[cfg(feature = "near")]
    pub(crate) fn add_near(
        &self,
        keyspace: doyen_placement::KeyspaceId,
        map: doyen_placement::MapId,
        near: std::sync::Weak<dyn nears::Forgets>,
        counts: Arc<nears::NearCounts>,
    ) {
        self.0.nears.add((keyspace, map), near, counts);
    }

    /// Subscribes to changes: from now on, or after a bookmark. Returns once all changes come. With
    /// `confirms`, the stream says about this often that it has sent all.
    pub(crate) fn subscribe(
        &self,
        filter: Filter,
        after: Option<Bookmark>,
        confirms: Option<Duration>,
    ) -> impl Future<Output = Result<Stream, Failure>> + Send + use<> {
        let inbox = self.inbox_of(|| match (filter.maps, &filter.keys) {
            (Maps::One(map), KeyFilter::One(key)) => {
                self.0.shared.partition_of(filter.keyspace, map, key)
            }
            _ => None,
        });
        streams::subscribe(inbox, (filter, after), confirms)
    }

    /// The table that this node acts on; `None` before there is one.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        Some(self.0.shared.local().view.as_ref()?.installed.clone())
    }

    /// The inbox of the thread that has a partition, if this node has it.
    fn inbox_of(&self, partition: impl FnOnce() -> Option<PartitionId>) -> Arc<Inbox> {
        let inboxes = &self.0.inboxes;
        // There are at most 16.
        let thread = if inboxes.len() > 1 {
            partition().map_or(0, |p| doyen_engine::thread_of(p, inboxes.len() as u8))
        } else {
            0
        };
        inboxes[usize::from(thread)].clone()
    }

    /// Asks the first thread. `None`: it has ended.
    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> DataMessage) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.inboxes[0].tell(message(answer));
        answered.await.ok()
    }

    /// Asks all threads.
    async fn ask_all<T>(&self, message: impl Fn(oneshot::Sender<T>) -> DataMessage) -> Vec<T> {
        let asked = self.0.inboxes.iter().map(|inbox| {
            let (answer, answered) = oneshot::channel();
            inbox.tell(message(answer));
            answered
        });
        let mut answers = Vec::new();
        for answered in asked.collect::<Vec<_>>() {
            answers.extend(answered.await.ok());
        }
        answers
    }

    /// Counters and gauges of all threads; all zero once they have ended.
    pub async fn stats(&self) -> DataStats {
        let mut total = DataStats::default();
        self.ask_all(DataMessage::Stats)
            .await
            .iter()
            .for_each(|stats| total.add(stats));
        total
    }

    /// The longest passes of any thread's loop since this was last asked; zero once the threads
    /// have ended.
    pub async fn longest_pass(&self) -> Longest {
        self.ask_all(DataMessage::LongestPass)
            .await
            .into_iter()
            .fold(Longest::default(), Longest::max)
    }

    /// Accepts no more clients, answers every request that was received, and closes each connection
    /// in order. Returns when that is done.
    pub async fn drain(&self) {
        // A missing answer means that the thread has ended, and its connections with it.
        self.ask_all(DataMessage::Drain).await;
    }

    /// For a client: asks a member for a map that is as it is wanted. `None`: no member is
    /// connected.
    pub(crate) async fn map(&self, wanted: WantedMap) -> Option<Result<MapEntry, String>> {
        self.ask(|answer| DataMessage::Map { wanted, answer }).await
    }

    /// How much each map has that this node leads. Data threads are asked page by page, so that
    /// their clients wait for no more than one.
    #[cfg(feature = "metrics")]
    pub(crate) async fn sizes(&self) -> Vec<(KeyspaceId, MapSize)> {
        let mut all = Vec::new();
        for inbox in &self.0.inboxes {
            let mut after = None;
            loop {
                let (answer, answered) = oneshot::channel();
                inbox.tell(DataMessage::Sizes { after, answer });
                let Ok(page) = answered.await else { break };
                all.extend(page.sizes);
                let Some(next) = page.next else { break };
                after = Some(next);
            }
        }
        all
    }

    /// What the near caches of this process were asked, and what they have.
    #[cfg(all(feature = "metrics", feature = "near"))]
    pub(crate) fn near_figures(&self) -> Vec<NearFigures> {
        self.0.nears.figures()
    }

    /// This build has no near caches.
    #[cfg(all(feature = "metrics", not(feature = "near")))]
    pub(crate) const fn near_figures(&self) -> Vec<NearFigures> {
        Vec::new()
    }

    /// What was committed since the last recovery, by partition.
    #[cfg(feature = "http")]
    pub(crate) async fn since_recovery(&self) -> Vec<SinceRecovery> {
        let of_threads = self.ask_all(DataMessage::SinceRecovery).await;
        of_threads.into_iter().flatten().collect()
    }

    /// A page of the keys that were written since. `None`: this node does not hold all of the
    /// partition.
    #[cfg(feature = "http")]
    pub(crate) async fn keys_since(&self, wanted: KeysWanted) -> Option<KeysPage> {
        let (answer, answered) = oneshot::channel();
        let inbox = self.inbox_of(|| Some(wanted.at.partition));
        inbox.tell(DataMessage::KeysSince(wanted, answer));
        answered.await.ok().flatten()
    }

    /// What each data thread knows of the ways to other members.
    #[cfg(feature = "http")]
    pub(crate) async fn paths(&self) -> Vec<ThreadPaths> {
        self.ask_all(DataMessage::Paths).await
    }

    /// The clients of the front ends of all threads.
    #[cfg(feature = "console")]
    pub(crate) async fn clients(&self) -> ClientList {
        let mut all = ClientList::default();
        let of_threads = self.ask_all(DataMessage::Clients).await;
        of_threads.into_iter().for_each(|thread| all.add(thread));
        all
    }

    /// For a client: the seeds that refused it, and why.
    pub(crate) async fn refusals(&self) -> Vec<(SocketAddr, endpoint::DialFailure)> {
        self.ask(DataMessage::Refusals).await.unwrap_or_default()
    }

    /// For a client: sets the seeds.
    pub(crate) fn set_seeds(&self, addresses: Vec<SocketAddr>) {
        self.0.inboxes[0].tell(DataMessage::Seeds(addresses));
    }

    /// Whether one of the threads has ended. Its data is gone, and this node serves nothing any
    /// more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.inboxes.iter().any(|inbox| inbox.has_ended())
    }

    /// One of the threads panics.
    #[cfg(test)]
    pub(crate) fn panic(&self, thread: usize) {
        self.0.inboxes[thread].tell(DataMessage::Panic);
    }

    /// Runs a task on a thread of the node, which goes on while the program blocks its runtime. It
    /// ends with the node.
    pub(crate) fn keep<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.0.keeper.spawn(task)
    }

    /// Ends the threads at once.
    pub fn stop(&self) {
        self.0.keeper.stop();
        self.0
            .inboxes
            .iter()
            .for_each(|inbox| inbox.thread_waker().stop());
    }
}

/// Starts the data threads, each with one of these front ends.
///
/// # Errors
/// A socket cannot be used, or the system refuses a thread. No thread runs then.
pub(crate) fn start<O: Opener>(
    options: DataOptions,
    fronts: Vec<O>,
    shared: Arc<Shared>,
    upcalls: mpsc::Sender<Upcall>,
) -> Result<(Data, DataHandle, Vec<RestoredPartition>), DataStartError> {
    let DataOptions {
        me,
        limits,
        sockets,
        identity,
        clients_max,
        level_max,
        whole_process,
        seeds,
        directory,
        hooks,
    } = options;
    let count = u8::try_from(sockets.len())
        .ok()
        .filter(|n| (1..=THREADS_MAX).contains(n));
    let count = count.ok_or_else(|| io::Error::other("there are 1 to 16 data threads"))?;
    debug_assert_eq!(fronts.len(), sockets.len(), "each thread has a front end");
    let (mut polls, mut inboxes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let poll = mio::Poll::new()?;
        let thread_waker = ThreadWaker::new(mio::Waker::new(poll.registry(), reactor::WAKE)?);
        inboxes.push(Arc::new(Inbox::new(thread_waker, limits.waiting_max)));
        polls.push(poll);
    }
    let listeners = inboxes.clone();
    shared.listen(move || {
        listeners
            .iter()
            .for_each(|inbox| inbox.thread_waker().wake())
    });
    let handle = DataHandle(Arc::new(Desks {
        inboxes: inboxes.clone(),
        shared: shared.clone(),
        keeper: Keeper::default(),
        queues: Queues::default(),
        #[cfg(feature = "near")]
        nears: nears::Nears::default(),
    }));
    let group = Arc::new(ThreadGroup::new(inboxes, whole_process));
    let mut data = Data {
        threads: Vec::new(),
    };
    let limits = limits.shared_by(count);
    let mut restored = Vec::new();
    let siblings = Siblings::of(me, count);
    let each = polls.into_iter().zip(sockets).zip(fronts).zip(siblings);
    for (number, (((poll, data_socket), front), siblings)) in (0..).zip(each) {
        let options = ThreadOptions {
            me: me.thread(number),
            limits: limits.clone(),
            data: data_socket,
            identity: identity.clone(),
            clients_max,
            level_max,
            seeds: seeds.clone(),
            siblings,
            group: group.clone(),
            directory: directory.clone(),
            hooks: hooks.clone(),
        };
        match start_one(poll, options, front, shared.clone(), upcalls.clone()) {
            Ok((thread, found)) => {
                data.threads.push(thread);
                restored.extend(found);
            }
            Err(why) => {
                handle.stop();
                data.join();
                return Err(why.into());
            }
        }
    }
    Ok((data, handle, restored))
}

fn start_one(
    poll: mio::Poll,
    options: ThreadOptions,
    front: impl Opener,
    shared: Arc<Shared>,
    upcalls: mpsc::Sender<Upcall>,
) -> io::Result<(JoinHandle<()>, Vec<RestoredPartition>)> {
    let (started, ready) = std::sync::mpsc::channel();
    let number = options.me.thread_number();
    let name = if number == 0 {
        "doyen-data".to_owned()
    } else {
        format!("doyen-data-{number}")
    };
    let thread = std::thread::Builder::new()
        .name(name)
        .stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        let inbox = options.group.inbox(number).clone();
        let others = (0..options.group.threads())
            .filter(|other| *other != number)
            .map(|other| options.group.inbox(other).clone());
        let attended = Attended::new(inbox.clone(), others.collect(), upcalls.clone());
        match Reactor::new(poll, inbox, options, front, shared, upcalls) {
            Ok((mut reactor, restored)) => {
                // The thread that started this one waits for this.
                let _ = started.send(Ok(restored));
                let ended = reactor.run();
                attended.ends(ended.err().map(|why| why.to_string()));
            }
            Err(why) => {
                attended.ends(None);
                let _ = started.send(Err(why));
            }
        }
    })?;
    // A thread that ended without an answer has panicked.
    let restored = ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
    Ok((thread, restored))
}

#[cfg(test)]
pub(crate) mod tests;
