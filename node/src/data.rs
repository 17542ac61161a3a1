//! The data thread: one loop that drives the shard, the data network and the Redis clients.
//!
//! Everything that an operation needs on this node happens on this one thread; other threads hand over in batches and
//! wait for answers.

mod bell;
pub(crate) mod core;
mod desk;
mod passes;
mod reactor;
pub(crate) mod waiters;

use self::bell::Bell;
use self::desk::{Asked, Attended, Desk};
use self::reactor::Reactor;
use crate::control::Upcall;
use crate::net::endpoint;
use crate::net::identity::Identity;
use crate::shard::op::{Operation, Outcome, PartitionOperation, Work};
use crate::shard::{self, Limits};
use crate::shared::Shared;
use doyen_placement::{MapEntry, MemberId};
pub use passes::Longest;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// What the data thread is started with.
#[derive(Debug)]
pub struct DataOptions {
    /// This process: a node, or a client, which serves nobody.
    pub me: MemberId,
    /// Limits of the data path.
    pub limits: Limits,
    /// The socket of `--data`.
    pub socket: UdpSocket,
    /// Who this node is to its peers.
    pub identity: Arc<Identity>,
    /// RESP for the whole cluster.
    pub resp: Option<TcpListener>,
    /// RESP as a Redis Cluster node answers.
    pub resp_cluster: Option<TcpListener>,
    /// What Redis clients must say first.
    pub password: Option<String>,
    /// Redis clients at the same time, both ports together.
    pub connections_max: usize,
    /// Of a node: native clients at the same time.
    pub clients_max: usize,
    /// Of a client: data ports of nodes, where it begins.
    pub seeds: Vec<SocketAddr>,
}

/// The data thread could not start.
#[derive(Debug, thiserror::Error)]
#[error("the data thread could not start: {0}")]
pub struct StartError(#[from] io::Error);

/// Counters and gauges of the data thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataStats {
    /// Those of the shard.
    pub shard: shard::Stats,
    /// Redis clients at present.
    pub connections: u64,
    /// Redis clients accepted since the start.
    pub connections_accepted: u64,
    /// Redis clients refused because there were too many.
    pub connections_rejected: u64,
    /// Commands of Redis clients.
    pub commands: u64,
    /// Commands that were refused before they reached the shard, and protocol errors.
    pub command_errors: u64,
    /// Redis clients that did not speak the protocol.
    pub protocol_errors: u64,
    /// Links that were closed because the peer's bytes made no sense.
    pub malformed_links: u64,
    /// Bytes of commands of Redis clients that are not whole or not run.
    pub input_bytes: u64,
    /// Bytes of commands that are not answered and of answers that are not written, but for what the store holds as well.
    pub answer_bytes: u64,
    /// Redis clients that were disconnected because they held much and stood still while others wanted room.
    pub connections_expelled: u64,
    /// Passes of the loop with more work than 20 ms.
    pub long_passes: u64,
    /// Native clients at present.
    pub clients: u64,
}

/// What the loop counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    pub(crate) connections: u64,
    pub(crate) connections_rejected: u64,
    pub(crate) connections_expelled: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) malformed: u64,
}

/// The running thread.
#[derive(Debug)]
pub struct Data {
    thread: JoinHandle<()>,
}

impl Data {
    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the thread has ended; tell it to with [`DataHandle::stop`].
    ///
    /// # Panics
    /// The data thread panicked: an invariant was broken.
    pub fn join(self) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Reaches the data thread from other threads. Once all handles are dropped, the thread ends.
#[derive(Debug, Clone)]
pub struct DataHandle(Arc<Door>);

/// What all handles share.
#[derive(Debug)]
struct Door(Arc<Desk>);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Debug)]
enum Message {
    Stats(oneshot::Sender<DataStats>),
    LongestPass(oneshot::Sender<Longest>),
    Drain(oneshot::Sender<()>),
    /// To a client's: which map is this?
    Map(String, oneshot::Sender<Result<MapEntry, String>>),
    /// To a client's: why did the seeds not take it?
    Refusals(oneshot::Sender<Vec<(SocketAddr, endpoint::Failure)>>),
    /// To a client's: where to begin from now on.
    Seeds(Vec<SocketAddr>),
}

impl DataHandle {
    /// Runs an operation, wherever its key lives. Dropping the future does not undo it.
    pub fn execute(&self, op: Operation) -> impl Future<Output = Outcome> + Send + use<> {
        Asked::new(self.0.0.clone(), Work::Key(op))
    }

    /// Runs an operation on a whole partition.
    pub fn execute_partition(&self, op: PartitionOperation) -> impl Future<Output = Outcome> + Send + use<> {
        Asked::new(self.0.0.clone(), Work::Partition(op))
    }

    /// `None`: the thread has ended.
    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.0.tell(message(answer));
        answered.await.ok()
    }

    /// Counters and gauges; all zero once the thread has ended.
    pub async fn stats(&self) -> DataStats {
        self.ask(Message::Stats).await.unwrap_or_default()
    }

    /// The longest passes of the thread's loop since this was last asked; zero once the thread has ended.
    pub async fn longest_pass(&self) -> Longest {
        self.ask(Message::LongestPass).await.unwrap_or_default()
    }

    /// Accepts no more Redis clients, answers every request received, closes each connection in order, and returns
    /// when that is done.
    pub async fn drain(&self) {
        // No answer means that the thread has ended, and its connections with it.
        let _ = self.ask(Message::Drain).await;
    }

    /// Of a client: asks a member which map this is, and to make it if it is not there. `None`: no member is there to be asked.
    pub(crate) async fn map(&self, name: &str) -> Option<Result<MapEntry, String>> {
        self.ask(|answer| Message::Map(name.to_owned(), answer)).await
    }

    /// Of a client: those seeds that did not take it, and why.
    pub(crate) async fn refusals(&self) -> Vec<(SocketAddr, endpoint::Failure)> {
        self.ask(Message::Refusals).await.unwrap_or_default()
    }

    /// Of a client: where to begin, from now on.
    pub(crate) fn set_seeds(&self, addresses: Vec<SocketAddr>) {
        self.0.0.tell(Message::Seeds(addresses));
    }

    /// Ends the thread at once.
    pub fn stop(&self) {
        self.0.0.bell().stop();
    }
}

/// Starts the data thread.
///
/// # Errors
/// A socket cannot be used, or the system gives no thread.
pub fn start(options: DataOptions, shared: Arc<Shared>, upcalls: mpsc::Sender<Upcall>) -> Result<(Data, DataHandle), StartError> {
    let poll = mio::Poll::new()?;
    let bell = Bell::new(mio::Waker::new(poll.registry(), reactor::BELL)?);
    let desk = Arc::new(Desk::new(bell, options.limits.waiting_max));
    let handle = DataHandle(Arc::new(Door(desk.clone())));
    let listener = desk.clone();
    shared.listen(move || listener.bell().ring());
    let (started, ready) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("doyen-data".to_owned()).spawn(move || {
        let attended = Attended(desk.clone());
        match Reactor::new(poll, desk, options, shared, upcalls) {
            Ok(mut reactor) => {
                // Whoever started us waits for this.
                let _ = started.send(Ok(()));
                reactor.run();
            }
            Err(why) => drop(started.send(Err(why))),
        }
        drop(attended);
    })?;
    // A thread that ended without a word has panicked.
    ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
    Ok((Data { thread }, handle))
}

#[cfg(test)]
mod tests;
