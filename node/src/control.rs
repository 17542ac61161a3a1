//! The control thread: drives the agreement machine.
//!
//! ```text
//!   ControlHandle ─ commands ─┐                        ┌─> Shared: views, lease
//!   data threads ── upcalls ──┤                        ├─> peers: messages
//!   peers: messages ──────────┼─> Agreement::handle ───┼─> planning, on another thread
//!   hints, probes, seeds ─────┤                        ├─> answers, events, fatal
//!   timer ────────────────────┘                        └─> Expelled: another identity, another machine
//! ```
//!
//! A thread and a socket of its own: a node that is busy with data must not look dead. Nothing on
//! this thread waits for anything but the next input.

mod alive;
mod catching_up;
pub mod counted;
mod driver;
pub(crate) mod seeds;
pub mod shared;
#[cfg(test)]
mod tests;

use crate::control::shared::Shared;
use crate::net::identity::Identity;
use crate::report::events::{EventLog, LoggedEvent};
use counted::Counted;
use doyen_gossip::AgreementConfig;
use doyen_gossip::agreement::{AdminReply, AdminRequest, Event, InSyncRequest, Oversight, Status};
use doyen_placement::loads::Report;
use doyen_placement::planner::{Pace, may_receive};
use doyen_placement::{Epoch, Loads, MemberId, PartitionRef, Table, TableName};
use std::net::UdpSocket;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};

/// Commands that wait at most.
const COMMANDS_MAX: usize = 256;
/// Events that a slow listener may be behind.
const EVENTS_MAX: usize = 256;

/// What the control thread needs to start.
#[derive(Debug)]
pub struct ControlOptions {
    /// The machine's configuration; its seeds are replaced by what `seeds` resolves to.
    pub agreement: AgreementConfig,
    /// Who may talk.
    pub identity: Arc<Identity>,
    /// Bound to `--listen`.
    pub socket: UdpSocket,
    /// `host:port`; names are resolved again whenever they are tried.
    pub seeds: Vec<String>,
}

/// What the data threads ask of the control thread.
#[derive(Debug)]
pub enum Upcall {
    /// These partitions are open, in tenures that began at these epochs.
    Opened(Vec<(PartitionRef, Epoch)>),
    /// Changes of in-sync sets.
    InSync(Vec<InSyncRequest>),
    /// The first write of a cluster of one is about to be applied; answered when it may be. Dropped
    /// unanswered if it may not, because this process became another member.
    Used(oneshot::Sender<()>),
    /// The data thread of this number makes progress.
    Alive(u8),
    /// What a data thread and the partitions that it leads have to carry.
    Loads {
        /// The thread's number.
        thread: u8,
        /// What it measured.
        report: Report,
    },
    /// A learner's copy of a partition was not equal to this node's.
    Differed(PartitionRef, MemberId),
    /// A peer knows a newer committed table.
    Newer(TableName),
    /// A name is looked up that the installed table does not have: answered once everything is
    /// installed that was committed before, or when that cannot be found out.
    CatchUp(oneshot::Sender<()>),
    /// A data thread has ended though nothing told it to, and for this reason: the node cannot go
    /// on.
    Ended(String),
    /// A client asks for this map.
    MakeMap {
        /// The name of its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
        /// Where the answer goes.
        answer: oneshot::Sender<AdminReply>,
    },
}

/// The control thread could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refuses.
    #[error("cannot start the control thread: {0}")]
    Io(#[from] io::Error),
}

/// The control thread is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node is shutting down")]
pub struct ControlClosed;

/// How the cluster stands.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    /// The coordinator's own word where it answers in time, else what this node knows.
    pub status: Status,
    /// Whether it is the coordinator's word.
    pub from_coordinator: bool,
    /// The committed table that this node acts on.
    pub installed: Option<Arc<Table>>,
    /// Those that it acted on before, the last ones.
    pub former: Vec<Arc<Table>>,
    /// Live members with which no data thread of this node is connected, as of two seconds ago at
    /// most.
    pub unheard: Vec<MemberId>,
    /// The highest level that this node speaks.
    pub level_max: u16,
}

impl ClusterStatus {
    /// Whether no other data port is reached from here, of several: of one, it is likelier that the
    /// other one is dead.
    pub fn is_cut_off(&self) -> bool {
        let members = self.installed.iter().flat_map(|table| &table.members);
        let others = || {
            members
                .clone()
                .filter(|m| m.id != self.status.me && may_receive(m))
        };
        others().count() > 1 && others().all(|m| self.unheard.contains(&m.id))
    }

    /// Why nobody coordinates; `None`: somebody does.
    pub(crate) fn halted(&self) -> Option<String> {
        let why = || {
            self.status
                .waiting
                .clone()
                .unwrap_or_else(|| "nobody coordinates at the moment".into())
        };
        self.status.coordinator.is_none().then(why)
    }
}

/// What a coordinator, and nobody else, knows of its cluster.
#[derive(Debug, Clone)]
pub struct Coordinated {
    /// The committed table that it acts on.
    pub table: Arc<Table>,
    /// What it was told of loads.
    pub loads: Loads,
    /// What it sees of moves.
    pub oversight: Oversight,
}

#[derive(Debug)]
enum Command {
    Admin(AdminRequest, oneshot::Sender<AdminReply>),
    Recover(Vec<String>, oneshot::Sender<AdminReply>),
    CatchUp(oneshot::Sender<()>),
    Status(oneshot::Sender<ClusterStatus>),
    Loads(oneshot::Sender<Loads>),
    Coordinated(oneshot::Sender<Option<Box<Coordinated>>>),
    HandOver(Pace, oneshot::Sender<()>),
    Depart(oneshot::Sender<()>),
}

/// Owns the control thread.
pub struct Control {
    thread: JoinHandle<()>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

impl Control {
    /// Waits until the thread has ended (after [`ControlHandle::stop`]). Blocks.
    pub fn join(self) {
        if self.thread.join().is_err() {
            // The panic hook has said why.
            tracing::error!("the control thread panicked");
        }
    }
}

/// Talks to the control thread.
#[derive(Debug, Clone)]
pub struct ControlHandle {
    commands: mpsc::Sender<Command>,
    events: broadcast::Sender<Event>,
    log: Arc<EventLog>,
    fatal: watch::Receiver<Option<String>>,
    stop: Arc<Notify>,
    counted: Arc<Counted>,
}

impl ControlHandle {
    /// What the control thread counts.
    #[must_use]
    pub fn counted(&self) -> &Counted {
        &self.counted
    }

    /// Asks the coordinator for a change.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn admin(&self, request: AdminRequest) -> Result<AdminReply, ControlClosed> {
        self.ask(|answer| Command::Admin(request, answer)).await
    }

    /// The operator's word: these members are dead, go on without them.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn recover(&self, dead: Vec<String>) -> Result<AdminReply, ControlClosed> {
        self.ask(|answer| Command::Recover(dead, answer)).await
    }

    /// Waits until this node has installed whatever was committed before the call, some seconds at
    /// most: for lookups of names that its table does not have. Where nobody coordinates, it knows
    /// what it knows.
    pub async fn catch_up(&self) {
        let _ = self.ask(Command::CatchUp).await;
    }

    /// How the cluster stands. Takes at most some 300 ms.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn status(&self) -> Result<ClusterStatus, ControlClosed> {
        self.ask(Command::Status).await
    }

    /// What the members and partitions of the cluster have to carry, as its coordinator was told;
    /// nothing, where it does not answer within some 300 ms.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn loads(&self) -> Result<Loads, ControlClosed> {
        self.ask(Command::Loads).await
    }

    /// What this node knows because it coordinates; `None`: another one does, or nobody. Nobody
    /// else is asked.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn coordinated(&self) -> Result<Option<Box<Coordinated>>, ControlClosed> {
        self.ask(Command::Coordinated).await
    }

    /// Events from now on.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Events after the one of this number, as far as they are kept: the last thousand.
    #[must_use]
    pub fn logged_events(&self, since: u64) -> Vec<LoggedEvent> {
        self.log.since(since)
    }

    /// Changes with every event: the number of the last one.
    #[must_use]
    pub fn watch_events(&self) -> watch::Receiver<u64> {
        self.log.watch()
    }

    /// Begins to leave; returns when this node holds nothing any more, or when nobody is left who
    /// could take it. It is still a member, so that what its clients asked last can be forwarded.
    /// `Pace::AtOnce` hurries a leave that has begun.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn hand_over(&self, pace: Pace) -> Result<(), ControlClosed> {
        self.ask(|answer| Command::HandOver(pace, answer)).await
    }

    /// After `hand_over`: leaves for good; returns when a majority has installed a table without
    /// this node.
    ///
    /// # Errors
    /// The control thread is gone.
    pub async fn depart(&self) -> Result<(), ControlClosed> {
        self.ask(Command::Depart).await
    }

    /// Ends the control thread: connections are closed, nothing is handed over.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Why this process cannot be a member, once that is certain.
    #[must_use]
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.fatal.clone()
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ControlClosed> {
        let (answer, answered) = oneshot::channel();
        self.commands
            .send(command(answer))
            .await
            .map_err(|_| ControlClosed)?;
        answered.await.map_err(|_| ControlClosed)
    }
}

/// Starts the control thread.
///
/// # Errors
/// The socket cannot be used, or no thread can be started.
pub fn start(
    options: ControlOptions,
    shared: Arc<Shared>,
    upcalls: mpsc::Receiver<Upcall>,
) -> Result<(Control, ControlHandle), StartError> {
    let (commands, commands_out) = mpsc::channel(COMMANDS_MAX);
    let (events, _) = broadcast::channel(EVENTS_MAX);
    let log = Arc::new(EventLog::new());
    let (fatal, fatal_out) = watch::channel(None);
    let stop = Arc::new(Notify::new());
    let counted = Arc::new(Counted::default());
    let ends = driver::Ends {
        commands: commands_out,
        upcalls,
        events: events.clone(),
        log: log.clone(),
        fatal,
        stop: stop.clone(),
        counted: counted.clone(),
    };
    let (started, has_started) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("doyen-control".into())
        .spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
            {
                Ok(runtime) => runtime,
                Err(e) => return drop(started.send(Err(e))),
            };
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, driver::run(options, shared, ends, started));
            drop(local);
            // A plan that is still being made is of no use to anybody.
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
    // Closed without a word only if the thread panicked.
    has_started
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("it panicked")))?;
    Ok((
        Control { thread },
        ControlHandle {
            commands,
            events,
            log,
            fatal: fatal_out,
            stop,
            counted,
        },
    ))
}
