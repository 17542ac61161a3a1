//! The data thread: one loop that drives the shard, the data network and the Redis clients.
//!
//! Everything that an operation needs on this node happens on this one thread; other threads hand over in batches and
//! wait for answers.

mod bell;
pub(crate) mod core;
mod passes;
mod reactor;
pub(crate) mod waiters;

use self::bell::Bell;
use self::reactor::Reactor;
use crate::control::Upcall;
use crate::net::identity::Identity;
use crate::shard::op::{Failure, Operation, Outcome, PartitionAction, PartitionOperation};
use crate::shard::{self, Limits};
use crate::shared::Shared;
use doyen_placement::MemberId;
pub use passes::Longest;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Operations that other threads may have handed over and that were not taken yet.
const HANDED_OVER_MAX: usize = 4096;

/// What the data thread is started with.
#[derive(Debug)]
pub struct DataOptions {
    /// This process.
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

/// Reaches the data thread from other threads.
#[derive(Debug, Clone)]
pub struct DataHandle {
    messages: mpsc::Sender<Message>,
    bell: Arc<Bell>,
}

#[derive(Debug)]
enum Message {
    Key(Operation, oneshot::Sender<Outcome>),
    Partition(PartitionOperation, oneshot::Sender<Outcome>),
    Stats(oneshot::Sender<DataStats>),
    LongestPass(oneshot::Sender<Longest>),
    Drain(oneshot::Sender<()>),
}

impl DataHandle {
    /// Runs an operation, wherever its key lives. Dropping the future does not undo it.
    pub async fn execute(&self, op: Operation) -> Outcome {
        self.ask(!op.action.is_write(), |answer| Message::Key(op, answer)).await
    }

    /// Runs an operation on a whole partition.
    pub async fn execute_partition(&self, op: PartitionOperation) -> Outcome {
        let read = op.action != PartitionAction::Clear;
        self.ask(read, |answer| Message::Partition(op, answer)).await
    }

    async fn ask(&self, read: bool, message: impl FnOnce(oneshot::Sender<Outcome>) -> Message) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        if !self.hand_over(message(answer)).await {
            return Outcome::Failed(Failure::Unavailable);
        }
        // The thread ended with the operation in hand.
        let lost = if read { Failure::Unavailable } else { Failure::Unknown };
        outcome.await.unwrap_or(Outcome::Failed(lost))
    }

    /// False: the thread has ended.
    async fn hand_over(&self, message: Message) -> bool {
        let handed = self.messages.send(message).await.is_ok();
        if handed {
            self.bell.ring();
        }
        handed
    }

    /// Counters and gauges; all zero once the thread has ended.
    pub async fn stats(&self) -> DataStats {
        let (answer, stats) = oneshot::channel();
        if !self.hand_over(Message::Stats(answer)).await {
            return DataStats::default();
        }
        stats.await.unwrap_or_default()
    }

    /// The longest passes of the thread's loop since this was last asked; zero once the thread has ended.
    pub async fn longest_pass(&self) -> Longest {
        let (answer, longest) = oneshot::channel();
        if !self.hand_over(Message::LongestPass(answer)).await {
            return Longest::default();
        }
        longest.await.unwrap_or_default()
    }

    /// Accepts no more Redis clients, answers every request received, closes each connection in order, and returns
    /// when that is done.
    pub async fn drain(&self) {
        let (answer, done) = oneshot::channel();
        if self.hand_over(Message::Drain(answer)).await {
            // An error means that the thread has ended, and its connections with it.
            let _ = done.await;
        }
    }

    /// Ends the thread at once.
    pub fn stop(&self) {
        self.bell.stop();
    }
}

/// Starts the data thread.
///
/// # Errors
/// A socket cannot be used, or the system gives no thread.
pub fn start(options: DataOptions, shared: Arc<Shared>, upcalls: mpsc::Sender<Upcall>) -> Result<(Data, DataHandle), StartError> {
    let (messages, incoming) = mpsc::channel(HANDED_OVER_MAX);
    let poll = mio::Poll::new()?;
    let bell = Arc::new(Bell::new(mio::Waker::new(poll.registry(), reactor::BELL)?));
    let (ringer, listener) = (bell.clone(), bell.clone());
    shared.listen(move || listener.ring());
    let (started, ready) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("doyen-data".to_owned()).spawn(move || {
        match Reactor::new(poll, ringer, options, shared, upcalls, incoming) {
            Ok(mut reactor) => {
                // Whoever started us waits for this.
                let _ = started.send(Ok(()));
                reactor.run();
            }
            Err(why) => drop(started.send(Err(why))),
        }
    })?;
    // A thread that ended without a word has panicked.
    ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
    Ok((Data { thread }, DataHandle { messages, bell }))
}

#[cfg(test)]
mod tests;
