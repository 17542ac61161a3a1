//! The control thread: drives the agreement machine.
//!
//! ```text
//!   ControlHandle ─ commands ─┐                        ┌─> Shared: views, lease
//!   data threads ── upcalls ──┤                        ├─> peers: messages
//!   peers: messages ──────────┼─> Agreement::handle ───┼─> planning, on another thread
//!   hints, probes, seeds ─────┤                        ├─> answers, events, fatal
//!   timer ────────────────────┘                        └─> Expelled: another id, another machine
//! ```
//!
//! It has a thread and a socket of its own, so that a node that is busy with data does not look
//! dead. Nothing on this thread waits for anything but the next input.

mod alive;
mod catching_up;
pub mod counted;
mod disk;
mod driver;
mod leaving;
mod past;
mod planning;
mod refused;
pub(crate) mod seeds;
pub mod shared;
#[cfg(test)]
mod tests;
mod tickets;

use crate::audit::Audit;
use crate::client_list::ClientList;
use crate::control::shared::Shared;
use crate::directory::Directory;
use crate::events::{EventLog, Events, LoggedEvent};
use crate::history::Samples;
use crate::hooks::Hooks;
use crate::net::identity::Identity;
use crate::net::path::PathReading;
use counted::{ClientsAsked, Counted};
use doyen_gossip::AgreementConfig;
use doyen_gossip::agreement::{
    AdminReply, AdminRequest, InSyncRequest, Oversight, Status, VotersGone,
};
use doyen_placement::loads::Report;
use doyen_placement::planner::{HandOverUrgency, may_receive};
use doyen_placement::{Epoch, Loads, MemberId, PartitionRef, Table, TableName, WantedMap};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Reads any bytes as files of a directory (`--dir`).
#[cfg(feature = "fuzz")]
pub fn fuzz(bytes: &[u8]) {
    crate::directory::fuzz::read(bytes);
}

/// Files of a directory.
#[cfg(feature = "fuzz")]
#[must_use]
pub fn fuzz_samples() -> Vec<Vec<u8>> {
    crate::directory::fuzz::samples()
}

/// Commands that may wait, at most.
const COMMANDS_MAX: usize = 256;

/// The options of the control thread.
#[derive(Debug)]
pub struct ControlOptions {
    /// The configuration of the machine. Its seeds are replaced by what `seeds` resolves to.
    pub agreement: AgreementConfig,
    /// Identifies this node, and the nodes that may talk to it.
    pub identity: Arc<Identity>,
    /// The socket, bound to `--listen`.
    pub socket: UdpSocket,
    /// The seeds, as `host:port`. A name is resolved again before each attempt.
    pub seeds: Vec<String>,
    /// What this node must not forget. `None`: it has no directory.
    pub(crate) directory: Option<Directory>,
    /// What a test does to this node.
    pub hooks: Hooks,
}

/// Messages from data threads to the control thread.
#[derive(Debug)]
#[allow(
    private_interfaces,
    reason = "only data threads send messages, and they are in this crate"
)]
pub enum Upcall {
    /// These partitions are open, in tenures that began at these epochs.
    Opened(Vec<(PartitionRef, Epoch)>),
    /// Changes of in-sync sets.
    InSync(Vec<InSyncRequest>),
    /// The first write of a cluster of one is about to be applied. It is answered when the write
    /// may be applied. It is dropped unanswered if this process became another member, so the write
    /// must not be applied.
    Used(oneshot::Sender<()>),
    /// The data thread of this number makes progress.
    Alive(u8),
    /// The load of a data thread, and of the partitions that it leads.
    Loads {
        /// The number of the thread.
        thread: u8,
        /// The measured loads.
        report: Report,
    },
    /// A learner's copy of a partition differed from this node's.
    Differed(PartitionRef, MemberId),
    /// A peer knows a newer committed table.
    Newer(TableName),
    /// A name is looked up that the installed table does not have. It is answered once every table
    /// is installed that was committed before, or when that cannot be found out.
    CatchUp(oneshot::Sender<()>),
    /// A data thread ended without being told to, for this reason. The node cannot continue.
    Ended(String),
    /// A client wants a map.
    WantMap {
        /// What it wants.
        wanted: WantedMap,
        /// Receives the answer.
        answer: oneshot::Sender<AdminReply>,
    },
    /// A client of a front end changed something, or tried to.
    #[cfg_attr(
        not(feature = "resp"),
        allow(dead_code, reason = "this build has no front end that asks")
    )]
    Audit(Audit),
    /// A client of a front end wants something that takes time.
    Errand {
        /// What it wants.
        errand: Errand,
        /// Receives the answer.
        answer: oneshot::Sender<AdminReply>,
    },
}

/// What a front end does not do itself, because it takes time.
#[cfg_attr(
    not(feature = "resp"),
    allow(dead_code, reason = "this build has no front end that asks")
)]
pub enum Errand {
    /// A change of the cluster.
    Admin(AdminRequest),
    /// Work that may wait for a disk.
    Blocking(Box<dyn FnOnce() -> AdminReply + Send>),
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin(request) => f.debug_tuple("Admin").field(request).finish(),
            Self::Blocking(_) => f.write_str("Blocking"),
        }
    }
}

/// The control thread could not start.
#[derive(Debug, thiserror::Error)]
pub enum ControlStartError {
    /// The system refused.
    #[error("cannot start the control thread: {0}")]
    Io(#[from] io::Error),
}

/// The control thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node is shutting down")]
pub struct ControlClosed;

/// The status of the cluster.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    /// The coordinator's status if it answers in time; otherwise what this node knows.
    pub status: Status,
    /// Whether the status is the coordinator's.
    pub from_coordinator: bool,
    /// The committed table that this node acts on.
    pub installed: Option<Arc<Table>>,
    /// The latest tables that this node acted on before.
    pub former: Vec<Arc<Table>>,
    /// Live members that no data thread of this node is connected with, at most two seconds old.
    pub unheard: Vec<MemberId>,
    /// The highest level that this node speaks.
    pub level_max: u16,
    /// Since when this node has known each member that went.
    pub gone: BTreeMap<MemberId, GoneFor>,
    /// How writes to its directory go, if it has one.
    pub directory: Option<DirectoryState>,
}

/// How writes to the directory of a node go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryState {
    /// The directory.
    pub path: PathBuf,
    /// Why the last write failed. It is tried again each second.
    pub failure: Option<String>,
    /// How long the last write took, or the present one has taken so far, if that is longer.
    pub write: Duration,
}

/// For how long a member has been gone, as one node has counted it: no clocks are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoneFor {
    /// How long this node has known it.
    pub known: Duration,
    /// Whether it went before this node had a table, so that it is gone for longer.
    pub longer: bool,
}

impl ClusterStatus {
    /// Whether this node reaches no other data port, and there are at least two. With only one,
    /// that member is more likely to be dead.
    pub fn is_cut_off(&self) -> bool {
        let members = self.installed.iter().flat_map(|table| &table.members);
        let others = || {
            members
                .clone()
                .filter(|m| m.id != self.status.me && may_receive(m))
        };
        others().count() > 1 && others().all(|m| self.unheard.contains(&m.id))
    }

    /// Why there is no coordinator; `None` if there is one.
    pub(crate) fn halted(&self) -> Option<String> {
        let why = || {
            self.obstacle()
                .unwrap_or("there is no coordinator at the moment")
                .to_owned()
        };
        self.status.coordinator.is_none().then(why)
    }

    /// Why nothing goes on, for errors. A member says no command: what helps is decided by what the
    /// other members see, and the status says how to ask them.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        let status = &self.status;
        let brief = self.installed.as_ref().and(status.why.as_deref());
        brief.or(status.waiting.as_deref())
    }
}

/// What only the coordinator knows of its cluster.
#[derive(Debug, Clone)]
pub struct Coordinated {
    /// The committed table that it acts on.
    pub table: Arc<Table>,
    /// The loads that members have reported.
    pub loads: Loads,
    /// The progress of moves.
    pub oversight: Oversight,
}

/// What the control thread knows of the ways to other nodes.
#[derive(Debug, Clone, Default)]
pub struct ControlPaths {
    /// What the open connections have measured, by member. A member of a large cluster has no
    /// connection to most of the others.
    pub paths: BTreeMap<MemberId, PathReading>,
    /// The addresses that could not be dialled within the last seconds, and why.
    pub failures: BTreeMap<SocketAddr, String>,
    /// The addresses of the seeds.
    pub seeds: Vec<SocketAddr>,
    /// Names of seeds that do not resolve.
    pub unresolved: Vec<String>,
}

#[derive(Debug)]
enum Command {
    Admin(AdminRequest, oneshot::Sender<AdminReply>),
    Recover(Vec<String>, VotersGone, oneshot::Sender<AdminReply>),
    MayRecover(Vec<String>, VotersGone, oneshot::Sender<AdminReply>),
    CatchUp(oneshot::Sender<()>),
    Status(oneshot::Sender<ClusterStatus>),
    Prove(oneshot::Sender<Vec<MemberId>>),
    Loads(oneshot::Sender<Loads>),
    History(MemberId, u64, oneshot::Sender<Samples>),
    Clients(MemberId, oneshot::Sender<Option<ClientList>>),
    TellClients(ClientsAsked, ClientList),
    Coordinated(oneshot::Sender<Option<Box<Coordinated>>>),
    Paths(oneshot::Sender<ControlPaths>),
    HandOver(HandOverUrgency, oneshot::Sender<()>),
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
            // The panic hook has logged the reason.
            tracing::error!("the control thread panicked");
        }
    }
}

/// Sends commands to the control thread.
#[derive(Debug, Clone)]
pub struct ControlHandle {
    commands: mpsc::Sender<Command>,
    log: Arc<EventLog>,
    fatal: watch::Receiver<Option<String>>,
    stop: Arc<Notify>,
    counted: Arc<Counted>,
}

impl ControlHandle {
    /// The handle of a client, which has no control thread: it answers nothing, except why the
    /// client has failed.
    pub(crate) fn of_client(fatal: watch::Receiver<Option<String>>) -> Self {
        let (commands, _) = mpsc::channel(1);
        let log = EventLog::new();
        log.end();
        Self {
            commands,
            log: Arc::new(log),
            fatal,
            stop: Arc::new(Notify::new()),
            counted: Arc::new(Counted::default()),
        }
    }

    /// The counters of the control thread.
    #[must_use]
    pub fn counted(&self) -> &Counted {
        &self.counted
    }

    /// Asks the coordinator for a change.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn admin(&self, request: AdminRequest) -> Result<AdminReply, ControlClosed> {
        self.ask(|answer| Command::Admin(request, answer)).await
    }

    /// Continues without these members: the operator asserts that they are dead, and that `gone` of
    /// the voters are among them.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn recover(
        &self,
        dead: Vec<String>,
        gone: VotersGone,
    ) -> Result<AdminReply, ControlClosed> {
        self.ask(|answer| Command::Recover(dead, gone, answer))
            .await
    }

    /// Whether [`ControlHandle::recover`] would be refused, and why. Nothing changes.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn may_recover(
        &self,
        dead: Vec<String>,
        gone: VotersGone,
    ) -> Result<AdminReply, ControlClosed> {
        self.ask(|answer| Command::MayRecover(dead, gone, answer))
            .await
    }

    /// Waits until this node has installed every table that was committed before the call, for some
    /// seconds at most. Used to look up names that its table does not have. If there is no
    /// coordinator, the node relies on what it knows.
    pub async fn catch_up(&self) {
        let _ = self.ask(Command::CatchUp).await;
    }

    /// The status of the cluster. Takes at most about 300 ms.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn status(&self) -> Result<ClusterStatus, ControlClosed> {
        self.ask(Command::Status).await
    }

    /// Pings every member, and returns those that have not answered within a second.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn unproven(&self) -> Result<Vec<MemberId>, ControlClosed> {
        self.ask(Command::Prove).await
    }

    /// The loads of members and partitions that the coordinator knows; empty if it does not answer
    /// within about 300 ms.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn loads(&self) -> Result<Loads, ControlClosed> {
        self.ask(Command::Loads).await
    }

    /// The samples that a member has kept of its last hour, from this number on. They are empty if
    /// the member does not answer within about 300 ms.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn history(&self, of: MemberId, since: u64) -> Result<Samples, ControlClosed> {
        self.ask(|answer| Command::History(of, since, answer)).await
    }

    /// The Redis clients of another member. `None`: it does not answer within about 300 ms, or
    /// serves no console.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn clients(&self, of: MemberId) -> Result<Option<ClientList>, ControlClosed> {
        self.ask(|answer| Command::Clients(of, answer)).await
    }

    /// Answers a member that asked for the clients of this node
    /// ([`clients_asked`](Counted::clients_asked)).
    pub async fn tell_clients(&self, asked: ClientsAsked, clients: ClientList) {
        // If the control thread has ended, no member waits for this node.
        let _ = self
            .commands
            .send(Command::TellClients(asked, clients))
            .await;
    }

    /// What this node knows as the coordinator; `None` if it is not the coordinator. No other node
    /// is asked.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn coordinated(&self) -> Result<Option<Box<Coordinated>>, ControlClosed> {
        self.ask(Command::Coordinated).await
    }

    /// What this node knows of the ways to other nodes.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn paths(&self) -> Result<ControlPaths, ControlClosed> {
        self.ask(Command::Paths).await
    }

    /// Events from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(self.log.clone())
    }

    /// Events with a higher number than this one, as far as they are kept (about a thousand).
    #[must_use]
    pub fn logged_events(&self, since: u64) -> Vec<LoggedEvent> {
        self.log.since(since)
    }

    /// The number of the latest event; changes with every event.
    #[must_use]
    pub fn watch_events(&self) -> watch::Receiver<u64> {
        self.log.watch()
    }

    /// Adds a change by a person or a program to the events, or a refused attempt.
    #[cfg_attr(
        not(feature = "http"),
        allow(dead_code, reason = "this build has no interface that asks")
    )]
    pub(crate) fn audit(&self, audit: &Audit) {
        self.log.audit(audit);
    }

    /// Begins to leave. Returns when this node holds nothing any more, or no other member could
    /// take its data. The node is still a member, so that the last requests of its clients can be
    /// forwarded. `Pace::AtOnce` speeds up a leave that has begun.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn hand_over(&self, pace: HandOverUrgency) -> Result<(), ControlClosed> {
        self.ask(|answer| Command::HandOver(pace, answer)).await
    }

    /// After `hand_over`: leaves for good. Returns when a majority has installed a table without
    /// this node.
    ///
    /// # Errors
    /// The control thread has ended.
    pub async fn depart(&self) -> Result<(), ControlClosed> {
        self.ask(Command::Depart).await
    }

    /// Ends the control thread. Connections are closed, and nothing is handed over.
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
) -> Result<(Control, ControlHandle), ControlStartError> {
    let (commands, commands_out) = mpsc::channel(COMMANDS_MAX);
    let log = Arc::new(EventLog::new());
    let (fatal, fatal_out) = watch::channel(None);
    let stop = Arc::new(Notify::new());
    let counted = Arc::new(Counted::default());
    let ends = driver::ControlEnds {
        commands: commands_out,
        upcalls,
        log: log.clone(),
        fatal,
        stop: stop.clone(),
        counted: counted.clone(),
    };
    let ended = log.clone();
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
            ended.end();
            drop(local);
            // A plan that is still being made is useless now.
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
    // The channel closes without an answer only if the thread panicked.
    has_started
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("it panicked")))?;
    Ok((
        Control { thread },
        ControlHandle {
            commands,
            log,
            fatal: fatal_out,
            stop,
            counted,
        },
    ))
}
