//! The data threads: each one loop that drives a shard, a data network and a front door.
//!
//! Everything that an operation needs on this node happens on the one thread that has its
//! partition; other threads hand over in batches and wait for answers. Of several data threads each
//! is a peer of the others (`siblings`), and a few things are theirs together (`crew`).

mod bell;
pub(crate) mod context;
mod core;
mod crew;
mod desk;
pub(crate) mod door;
mod passes;
mod process;
mod reactor;
#[doc(hidden)]
pub mod siblings;
mod turns;
mod waiters;
pub(crate) mod waking;

use self::bell::Bell;
use self::crew::Crew;
use self::desk::{Asked, Attended, Desk};
use self::door::Opener;
use self::reactor::Reactor;
use self::siblings::Siblings;
use crate::control::Upcall;
use crate::control::shared::Shared;
use crate::net::endpoint;
use crate::net::identity::Identity;
use doyen_engine::Limits;
use doyen_engine::op::{Operation, Outcome, PartitionOperation, Work};
use doyen_placement::{MapEntry, MemberId, PartitionId, THREADS_MAX, Table};
pub use passes::Longest;
pub(crate) use process::ITSELF_BYTES;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// What the data threads are started with.
#[derive(Debug)]
pub(crate) struct DataOptions {
    /// This process: a node, or a client, which serves no others.
    pub(crate) me: MemberId,
    /// Limits of the data path, of all threads together.
    pub(crate) limits: Limits,
    /// Of each thread, 1 to 16 of them, the socket of `--data` or of a port after it. A client has
    /// one.
    pub(crate) sockets: Vec<UdpSocket>,
    /// What this node is to its peers.
    pub(crate) identity: Arc<Identity>,
    /// Of a node: native clients at the same time.
    pub(crate) clients_max: usize,
    /// The highest level that the process speaks.
    pub(crate) level_max: u16,
    /// Whether the process is this node's alone, so that all of its memory counts.
    pub(crate) whole_process: bool,
    /// Of a client: data ports of nodes, where it begins.
    pub(crate) seeds: Vec<SocketAddr>,
}

/// What one data thread is started with.
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
    crew: Arc<Crew>,
}

/// A data thread could not start.
#[derive(Debug, thiserror::Error)]
#[error("a data thread could not start: {0}")]
pub struct DataStartError(#[from] io::Error);

/// Counters and gauges of the data threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataStats {
    /// Those of the shard.
    pub shard: doyen_engine::Stats,
    /// Clients of the front door at present.
    pub connections: u64,
    /// Clients of the front door accepted since the start.
    pub connections_accepted: u64,
    /// Clients of the front door refused because there were too many.
    pub connections_rejected: u64,
    /// Their commands.
    pub commands: u64,
    /// Commands that were refused before they reached the shard, and protocol errors.
    pub command_errors: u64,
    /// Clients that did not speak the protocol of the front door.
    pub protocol_errors: u64,
    /// Links that were closed because the peer's bytes made no sense.
    pub malformed_links: u64,
    /// Bytes of commands that are not whole or not run.
    pub input_bytes: u64,
    /// Bytes of commands that are not answered and of answers that are not written, but for what
    /// the store holds as well.
    pub answer_bytes: u64,
    /// Bytes of answers to clients that send commands and read nothing.
    pub spilled_bytes: u64,
    /// Clients that were disconnected because they held much and stood still while room was wanted.
    pub connections_expelled: u64,
    /// Wrong passwords.
    pub auth_failures: u64,
    /// Clients that did not say the password in time.
    pub auth_timeouts: u64,
    /// Clients that were disconnected because they sent nothing for long.
    pub idle_timeouts: u64,
    /// Passes of the loop with more work than 20 ms.
    pub long_passes: u64,
    /// Native clients at present.
    pub clients: u64,
}

impl DataStats {
    /// Adds those of another thread of the node.
    fn add(&mut self, other: &Self) {
        self.shard.add(&other.shard);
        self.connections += other.connections;
        self.connections_accepted += other.connections_accepted;
        self.connections_rejected += other.connections_rejected;
        self.commands += other.commands;
        self.command_errors += other.command_errors;
        self.protocol_errors += other.protocol_errors;
        self.malformed_links += other.malformed_links;
        self.input_bytes += other.input_bytes;
        self.answer_bytes += other.answer_bytes;
        self.spilled_bytes += other.spilled_bytes;
        self.connections_expelled += other.connections_expelled;
        self.auth_failures += other.auth_failures;
        self.auth_timeouts += other.auth_timeouts;
        self.idle_timeouts += other.idle_timeouts;
        self.long_passes += other.long_passes;
        // Each is connected with every thread.
        self.clients = self.clients.max(other.clients);
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

    /// Waits until the threads have ended; tell them to with [`DataHandle::stop`].
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

/// Reaches the data threads from other threads. Once all handles are dropped, they end.
#[derive(Debug, Clone)]
pub struct DataHandle(Arc<Desks>);

/// What all handles share.
#[derive(Debug)]
struct Desks {
    /// One a thread, at least one.
    desks: Vec<Arc<Desk>>,
    shared: Arc<Shared>,
}

impl Drop for Desks {
    fn drop(&mut self) {
        self.desks.iter().for_each(|desk| desk.close());
    }
}

#[derive(Debug)]
enum Message {
    Stats(oneshot::Sender<DataStats>),
    LongestPass(oneshot::Sender<Longest>),
    Drain(oneshot::Sender<()>),
    /// To a client's: which map is this?
    Map {
        /// The name of the keyspace that it shall be in.
        keyspace: String,
        /// Its name.
        name: String,
        /// Where the answer goes.
        answer: oneshot::Sender<Result<MapEntry, String>>,
    },
    /// To a client's: why did the seeds not take it?
    Refusals(oneshot::Sender<Vec<(SocketAddr, endpoint::Failure)>>),
    /// To a client's: where to begin from now on.
    Seeds(Vec<SocketAddr>),
    /// From the door of another thread.
    Door(door::Message),
    /// From a test: panic, as a broken invariant does.
    #[cfg(test)]
    Panic,
}

impl DataHandle {
    /// Runs an operation, wherever its key lives. Dropping the future does not undo it.
    pub fn execute(&self, op: Operation) -> impl Future<Output = Outcome> + Send + use<> {
        let desk = self.desk_of(|| self.0.shared.partition_of(op.keyspace, op.map, &op.key));
        Asked::new(desk, Work::Key(op))
    }

    /// Runs an operation on a whole partition.
    pub fn execute_partition(
        &self,
        op: PartitionOperation,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        let desk = self.desk_of(|| Some(op.partition));
        Asked::new(desk, Work::Partition(op))
    }

    /// The table that this node acts on; `None` before there is one.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        Some(self.0.shared.local().view.as_ref()?.installed.clone())
    }

    /// The desk of the thread that has a partition, if this node has it.
    fn desk_of(&self, partition: impl FnOnce() -> Option<PartitionId>) -> Arc<Desk> {
        let desks = &self.0.desks;
        // At most 16.
        let thread = if desks.len() > 1 {
            partition().map_or(0, |p| doyen_engine::thread_of(p, desks.len() as u8))
        } else {
            0
        };
        desks[usize::from(thread)].clone()
    }

    /// Asks the first thread. `None`: it has ended.
    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.desks[0].tell(message(answer));
        answered.await.ok()
    }

    /// Asks all threads.
    async fn ask_all<T>(&self, message: impl Fn(oneshot::Sender<T>) -> Message) -> Vec<T> {
        let asked = self.0.desks.iter().map(|desk| {
            let (answer, answered) = oneshot::channel();
            desk.tell(message(answer));
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
        self.ask_all(Message::Stats)
            .await
            .iter()
            .for_each(|stats| total.add(stats));
        total
    }

    /// The longest passes of any thread's loop since this was last asked; zero once the threads
    /// have ended.
    pub async fn longest_pass(&self) -> Longest {
        self.ask_all(Message::LongestPass)
            .await
            .into_iter()
            .fold(Longest::default(), Longest::max)
    }

    /// Accepts no more clients, answers every request received, closes each connection in
    /// order, and returns when that is done.
    pub async fn drain(&self) {
        // No answer means that the thread has ended, and its connections with it.
        self.ask_all(Message::Drain).await;
    }

    /// Of a client: asks a member which map this is, and to make it if it is not there. `None`: no
    /// member is there to be asked.
    pub(crate) async fn map(&self, keyspace: &str, name: &str) -> Option<Result<MapEntry, String>> {
        self.ask(|answer| Message::Map {
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            answer,
        })
        .await
    }

    /// Of a client: those seeds that did not take it, and why.
    pub(crate) async fn refusals(&self) -> Vec<(SocketAddr, endpoint::Failure)> {
        self.ask(Message::Refusals).await.unwrap_or_default()
    }

    /// Of a client: where to begin, from now on.
    pub(crate) fn set_seeds(&self, addresses: Vec<SocketAddr>) {
        self.0.desks[0].tell(Message::Seeds(addresses));
    }

    /// Whether one of the threads has ended: what it had is gone, and nothing is served any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.desks.iter().any(|desk| desk.has_ended())
    }

    /// One of the threads panics.
    #[cfg(test)]
    pub(crate) fn panic(&self, thread: usize) {
        self.0.desks[thread].tell(Message::Panic);
    }

    /// Ends the threads at once.
    pub fn stop(&self) {
        self.0.desks.iter().for_each(|desk| desk.bell().stop());
    }
}

/// Starts the data threads, each with one of these doors.
///
/// # Errors
/// A socket cannot be used, or the system gives no thread; then none runs.
pub(crate) fn start<O: Opener>(
    options: DataOptions,
    doors: Vec<O>,
    shared: Arc<Shared>,
    upcalls: mpsc::Sender<Upcall>,
) -> Result<(Data, DataHandle), DataStartError> {
    let DataOptions {
        me,
        limits,
        sockets,
        identity,
        clients_max,
        level_max,
        whole_process,
        seeds,
    } = options;
    let count = u8::try_from(sockets.len())
        .ok()
        .filter(|n| (1..=THREADS_MAX).contains(n));
    let count = count.ok_or_else(|| io::Error::other("there are 1 to 16 data threads"))?;
    debug_assert_eq!(doors.len(), sockets.len(), "each thread has a door");
    let (mut polls, mut desks) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let poll = mio::Poll::new()?;
        let bell = Bell::new(mio::Waker::new(poll.registry(), reactor::BELL)?);
        desks.push(Arc::new(Desk::new(bell, limits.waiting_max)));
        polls.push(poll);
    }
    let listeners = desks.clone();
    shared.listen(move || listeners.iter().for_each(|desk| desk.bell().ring()));
    let handle = DataHandle(Arc::new(Desks {
        desks: desks.clone(),
        shared: shared.clone(),
    }));
    let crew = Arc::new(Crew::new(desks, whole_process));
    let mut data = Data {
        threads: Vec::new(),
    };
    let limits = limits.shared_by(count);
    let siblings = Siblings::of(me, count);
    let each = polls.into_iter().zip(sockets).zip(doors).zip(siblings);
    for (number, (((poll, data_socket), door), siblings)) in (0..).zip(each) {
        let options = ThreadOptions {
            me: me.thread(number),
            limits: limits.clone(),
            data: data_socket,
            identity: identity.clone(),
            clients_max,
            level_max,
            seeds: seeds.clone(),
            siblings,
            crew: crew.clone(),
        };
        match start_one(poll, options, door, shared.clone(), upcalls.clone()) {
            Ok(thread) => data.threads.push(thread),
            Err(why) => {
                handle.stop();
                data.join();
                return Err(why.into());
            }
        }
    }
    Ok((data, handle))
}

fn start_one(
    poll: mio::Poll,
    options: ThreadOptions,
    door: impl Opener,
    shared: Arc<Shared>,
    upcalls: mpsc::Sender<Upcall>,
) -> io::Result<JoinHandle<()>> {
    let (started, ready) = std::sync::mpsc::channel();
    let number = options.me.thread_number();
    let name = if number == 0 {
        "doyen-data".to_owned()
    } else {
        format!("doyen-data-{number}")
    };
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let desk = options.crew.desk(number).clone();
        let others = (0..options.crew.threads())
            .filter(|other| *other != number)
            .map(|other| options.crew.desk(other).clone());
        let attended = Attended::new(desk.clone(), others.collect(), upcalls.clone());
        match Reactor::new(poll, desk, options, door, shared, upcalls) {
            Ok(mut reactor) => {
                // The thread that started this one waits for this.
                let _ = started.send(Ok(()));
                let ended = reactor.run();
                attended.ends(ended.err().map(|why| why.to_string()));
            }
            Err(why) => {
                attended.ends(None);
                let _ = started.send(Err(why));
            }
        }
    })?;
    // A thread that ended without a word has panicked.
    ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
    Ok(thread)
}

#[cfg(test)]
pub(crate) mod tests;
