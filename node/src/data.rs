//! The data thread: one `current_thread` runtime that drives the shard, the data network and the Redis clients.
//!
//! Everything that an operation needs on this node happens on this one thread; other threads hand over in batches and
//! wait for answers.

pub(crate) mod core;
pub(crate) mod waiters;

use self::core::{Core, Handler};
use crate::control::Upcall;
use crate::net::identity::Identity;
use crate::net::links::Links;
use crate::resp::server;
use crate::shard::op::{Action, Failure, Operation, Outcome, PartitionAction, PartitionOperation};
use crate::shard::{self, Limits};
use crate::shared::Shared;
use doyen_placement::MemberId;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot, watch};
use waiters::Waiter;

/// Operations that other threads may have handed over and that were not taken yet.
const HANDED_OVER_MAX: usize = 4096;
/// Taken in one pass.
const BATCH_MAX: usize = 256;

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
}

/// What the tasks count.
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
    stop: Arc<watch::Sender<bool>>,
}

#[derive(Debug)]
enum Message {
    Key(Operation, oneshot::Sender<Outcome>),
    Partition(PartitionOperation, oneshot::Sender<Outcome>),
    Stats(oneshot::Sender<DataStats>),
    Drain(oneshot::Sender<()>),
}

impl DataHandle {
    /// Runs an operation, wherever its key lives. Dropping the future does not undo it.
    pub async fn execute(&self, op: Operation) -> Outcome {
        let read = matches!(op.action, Action::Get | Action::Strlen | Action::Exists | Action::PTtl | Action::PExpireTime);
        self.ask(read, |answer| Message::Key(op, answer)).await
    }

    /// Runs an operation on a whole partition.
    pub async fn execute_partition(&self, op: PartitionOperation) -> Outcome {
        let read = op.action != PartitionAction::Clear;
        self.ask(read, |answer| Message::Partition(op, answer)).await
    }

    async fn ask(&self, read: bool, message: impl FnOnce(oneshot::Sender<Outcome>) -> Message) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        if self.messages.send(message(answer)).await.is_err() {
            return Outcome::Failed(Failure::Unavailable);
        }
        // The thread ended with the operation in hand.
        let lost = if read { Failure::Unavailable } else { Failure::Unknown };
        outcome.await.unwrap_or(Outcome::Failed(lost))
    }

    /// Counters and gauges; all zero once the thread has ended.
    pub async fn stats(&self) -> DataStats {
        let (answer, stats) = oneshot::channel();
        if self.messages.send(Message::Stats(answer)).await.is_err() {
            return DataStats::default();
        }
        stats.await.unwrap_or_default()
    }

    /// Accepts no more Redis clients, answers every request received, closes each connection in order, and returns
    /// when that is done.
    pub async fn drain(&self) {
        let (answer, done) = oneshot::channel();
        if self.messages.send(Message::Drain(answer)).await.is_ok() {
            // An error means that the thread has ended, and its connections with it.
            let _ = done.await;
        }
    }

    /// Ends the thread at once.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Starts the data thread.
///
/// # Errors
/// A socket cannot be used, or the system gives no thread.
pub fn start(options: DataOptions, shared: Arc<Shared>, upcalls: mpsc::Sender<Upcall>) -> Result<(Data, DataHandle), StartError> {
    let (messages, incoming) = mpsc::channel(HANDED_OVER_MAX);
    let (stop, stopped) = watch::channel(false);
    let (started, ready) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("doyen-data".to_owned()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(why) => return drop(started.send(Err(why))),
        };
        tokio::task::LocalSet::new().block_on(&runtime, run(options, shared, upcalls, incoming, stopped, started));
    })?;
    // A thread that ended without a word has panicked.
    ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
    Ok((Data { thread }, DataHandle { messages, stop: Arc::new(stop) }))
}

async fn run(
    mut options: DataOptions,
    shared: Arc<Shared>,
    upcalls: mpsc::Sender<Upcall>,
    incoming: mpsc::Receiver<Message>,
    mut stopped: watch::Receiver<bool>,
    started: std::sync::mpsc::Sender<io::Result<()>>,
) {
    let listeners = [(options.resp.take(), false), (options.resp_cluster.take(), true)];
    let core = Core::new(&options, shared, upcalls);
    let links = match Links::start(options.socket, options.identity, options.me, Rc::new(Handler(core.clone()))) {
        Ok(links) => links,
        Err(why) => return drop(started.send(Err(why))),
    };
    core.set_links(links.clone());
    for (listener, cluster_port) in listeners {
        let Some(listener) = listener else { continue };
        match listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener)) {
            Ok(listener) => drop(tokio::task::spawn_local(server::listen(core.clone(), listener, cluster_port))),
            Err(why) => return drop(started.send(Err(why))),
        }
    }
    // Whoever started us waits for this.
    let _ = started.send(Ok(()));
    tokio::select! {
        () = tick(&core) => {}
        () = serve(&core, incoming) => {}
        // An error: every handle is gone, and nobody could stop us any more.
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    drop(core.take_links());
    links.close().await;
}

/// Keeps time: what the shard waits for, views, and signs of life.
async fn tick(core: &Core) {
    loop {
        core.tick();
        let sleep = core.arm();
        tokio::select! {
            () = core.shared.changed() => {}
            () = core.rearm.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// What other threads hand over: all that is there in one pass.
async fn serve(core: &Rc<Core>, mut incoming: mpsc::Receiver<Message>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while incoming.recv_many(&mut batch, BATCH_MAX).await > 0 {
        core.begin();
        for message in batch.drain(..) {
            take(core, message);
        }
        core.pump();
        tokio::task::yield_now().await;
    }
    // Every handle is gone, and with it whoever could stop this thread: it ends.
}

fn take(core: &Rc<Core>, message: Message) {
    match message {
        Message::Key(operation, answer) => {
            core.inner.borrow_mut().submit(operation, |redo| Waiter::Call { answer, redo });
        }
        Message::Partition(operation, answer) => {
            core.inner.borrow_mut().submit_partition(operation, |redo| Waiter::Call { answer, redo });
        }
        // The asker may be gone.
        Message::Stats(answer) => drop(answer.send(stats(core))),
        Message::Drain(answer) => {
            core.draining.set(true);
            core.connections_changed.notify_waiters();
            for connection in core.inner.borrow().connections.values() {
                connection.wake();
            }
            let core = core.clone();
            tokio::task::spawn_local(async move {
                loop {
                    let changed = core.connections_changed.notified();
                    if core.inner.borrow().connections.is_empty() {
                        break;
                    }
                    changed.await;
                }
                let _ = answer.send(());
            });
        }
    }
}

fn stats(core: &Core) -> DataStats {
    let inner = core.inner.borrow();
    DataStats {
        shard: inner.shard.stats(),
        connections: inner.connections.len() as u64,
        connections_accepted: inner.counters.connections,
        connections_rejected: inner.counters.connections_rejected,
        commands: inner.counters.commands,
        command_errors: inner.counters.errors,
        protocol_errors: inner.counters.protocol_errors,
        malformed_links: inner.counters.malformed,
        input_bytes: inner.budget.counted().0 as u64,
        answer_bytes: inner.budget.counted().1 as u64,
        connections_expelled: inner.counters.connections_expelled,
    }
}

#[cfg(test)]
mod tests;
