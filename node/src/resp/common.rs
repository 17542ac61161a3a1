//! What the RESP front ends of one node share: the number of clients, the settings that clients may
//! change, and the questions that one data thread asks the others for a client that asks about the
//! whole node.
//!
//! Operations on keys touch nothing here except the settings.

use super::RespContext;
use super::acl::log::AclLog;
use super::info::InfoNeeds;
use super::pubsub::Board;
use super::scripts::Evaluated;
use super::session::client::{Chosen, Unblocking};
use super::session::pause::Pause;
use super::settings::RespSettings;
use super::slowlog::Slow;
use super::spill::Spill;
use super::totals::ThreadCounts;
use super::usage::Usage;
use crate::key_events::KeyEvents;
use crate::login_throttle::LoginThrottle;
use bytes::Bytes;
use doyen_placement::access::AccessSettings;
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shared by the RESP front ends of all data threads of a node.
#[derive(Debug)]
pub(crate) struct Common {
    /// The present clients of each thread.
    seats: Vec<ClientSeats>,
    connection_last: AtomicU64,
    /// The thread of each connection. A lock that is held for moments, when a client comes or
    /// leaves, or is to get what another one redirects.
    homes: Mutex<BTreeMap<u64, u8>>,
    slow_last: AtomicU64,
    memory_bytes_max: usize,
    /// The settings that clients may change.
    pub(super) settings: RespSettings,
    /// How many clients of the plain port monitor, by thread.
    monitors: Vec<AtomicUsize>,
    /// Answers that clients do not read.
    spill: Arc<Spill>,
    /// What clients subscribe to.
    board: Board,
    /// The scripts that came with `EVAL`.
    evaluated: Arc<Evaluated>,
    /// The users of a file, if they are not those of the table.
    users: Option<FileUsers>,
    /// What was refused lately. A lock, because all threads refuse; it is held for moments.
    acl_log: Mutex<AclLog>,
    /// Wrong passwords. A lock, because an address may come to all threads; it is held for moments,
    /// by those who log in.
    throttle: Mutex<LoginThrottle>,
}

/// The users of a file.
#[derive(Debug)]
struct FileUsers {
    path: PathBuf,
    /// A lock, because a client of any thread may change them; it is held for moments.
    access: Mutex<Arc<AccessSettings>>,
}

/// The clients of one thread.
#[derive(Debug, Default)]
struct ClientSeats {
    all: AtomicUsize,
    /// The clients among them that the first thread accepted for it.
    handed: AtomicUsize,
}

/// One client's place among those that are allowed.
#[derive(Debug)]
pub(super) struct Seat {
    common: Arc<Common>,
    thread: u8,
    /// Whether the first thread chose the data thread.
    handed: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let seats = &self.common.seats[usize::from(self.thread)];
        seats.all.fetch_sub(1, Ordering::Relaxed);
        if self.handed {
            seats.handed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Seat {
    /// The thread at which the client is.
    pub(super) fn thread(&self) -> u8 {
        self.thread
    }
}

/// What the RESP front end of one thread sends to the front end of another one.
#[derive(Debug)]
pub(super) enum ThreadMessage {
    /// From the first thread: a client of the plain port.
    Accepted(TcpStream, Seat),
    /// A client of the plain port asks about the whole node.
    Question(Question, BackChannel),
    /// A part of the answer.
    Told(ToldThreads, BackChannel),
    /// The users of the file have changed.
    Users,
    /// These keys have changed (`None`: perhaps any), which another client tracks. It is at the
    /// thread and has the number that follow the one of the connection to which it redirects.
    Invalidated(u64, (u8, u64), Option<Vec<Bytes>>),
    /// This client redirects to a connection that is gone.
    LostTarget(u64),
    /// Commands of the sender's clients, for those that monitor.
    Monitored(Bytes),
}

/// A client's question if every thread knows a part of the answer.
#[derive(Debug, Clone)]
pub(super) enum Question {
    /// The counters of `INFO`, as far as they are needed.
    Counts(InfoNeeds),
    /// The lines of `CLIENT LIST` of these clients.
    Clients(Arc<Chosen>),
    /// End these clients, and count them.
    Kill(Arc<Chosen>),
    /// This client waits in line no more.
    Unblock(u64, Unblocking),
    /// This many of the newest slow commands.
    Slow(usize),
    /// The number of slow commands that are kept.
    SlowLength,
    /// Forget the slow commands.
    ResetSlow,
    /// Let `INFO` count from zero.
    ResetCounts,
    /// Pause the clients.
    Pause(Pause),
    /// End the pause.
    Unpause,
}

/// A thread's part of the answer.
#[derive(Debug)]
pub(super) enum ToldThreads {
    Counts(Box<ThreadCounts>),
    /// The lines, by number of the connection.
    Clients(Vec<(u64, String)>),
    Number(u64),
    Slow(Vec<Slow>),
    Done,
}

/// Where an answer goes: a reply of a connection of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackChannel {
    pub(super) thread: u8,
    pub(super) connection: u64,
    pub(super) slot: u64,
}

impl Common {
    /// For a node with these `threads` of data, this memory, and `clients_max` clients on all
    /// threads together.
    pub(super) fn new(
        threads: usize,
        memory_bytes_max: usize,
        clients_max: usize,
        (idle_timeout, keepalive): (Option<Duration>, Duration),
        events: KeyEvents,
        users: Option<(PathBuf, AccessSettings)>,
    ) -> Self {
        let users = users.map(|(path, access)| FileUsers {
            path,
            access: Mutex::new(Arc::new(access)),
        });
        // There is no data yet.
        Usage::resident_bytes_at_start();
        Self {
            seats: (0..threads).map(|_| ClientSeats::default()).collect(),
            connection_last: AtomicU64::new(0),
            homes: Mutex::default(),
            slow_last: AtomicU64::new(0),
            memory_bytes_max,
            settings: RespSettings::new(clients_max, idle_timeout, keepalive, events),
            monitors: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            spill: Arc::new(Spill::new(memory_bytes_max, threads)),
            board: Board::default(),
            evaluated: Arc::default(),
            users,
            acl_log: Mutex::default(),
            throttle: Mutex::new(LoginThrottle::new()),
        }
    }

    /// The users of the file, if there is one.
    pub(super) fn users(&self) -> Option<Arc<AccessSettings>> {
        self.users
            .as_ref()
            .map(|users| locked(&users.access).clone())
    }

    /// Replaces the users of the file.
    pub(super) fn set_users(&self, access: AccessSettings) {
        if let Some(users) = &self.users {
            *locked(&users.access) = Arc::new(access);
        }
    }

    /// The file with the users, if there is one.
    pub(super) fn users_file(&self) -> Option<&Path> {
        self.users.as_ref().map(|users| &*users.path)
    }

    /// What was refused lately.
    /// Wrong passwords, by address.
    pub(super) fn throttle(&self) -> MutexGuard<'_, LoginThrottle> {
        locked(&self.throttle)
    }

    pub(super) fn acl_log(&self) -> MutexGuard<'_, AclLog> {
        locked(&self.acl_log)
    }

    /// A client of this thread monitors, or does so no more.
    pub(super) fn count_monitor(&self, thread: u8, more: bool) {
        let count = &self.monitors[usize::from(thread)];
        if more {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many clients of the plain port monitor at this thread.
    pub(super) fn monitors_at(&self, thread: u8) -> usize {
        self.monitors[usize::from(thread)].load(Ordering::Relaxed)
    }

    /// Whether any client of the plain port monitors.
    pub(super) fn has_monitors(&self) -> bool {
        self.monitors
            .iter()
            .any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// The memory of all threads.
    pub(super) fn memory_bytes_max(&self) -> usize {
        self.memory_bytes_max
    }

    /// Answers that clients do not read, of all threads.
    pub(super) fn spill(&self) -> &Arc<Spill> {
        &self.spill
    }

    /// What clients of all threads subscribe to.
    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// The scripts that came with `EVAL` to any thread.
    pub(super) fn evaluated(&self) -> &Arc<Evaluated> {
        &self.evaluated
    }

    /// The number of the next client.
    pub(super) fn next_connection(&self) -> u64 {
        self.connection_last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A connection is at this thread; `None`: it is gone.
    pub(super) fn set_home(&self, connection: u64, thread: Option<u8>) {
        match thread {
            Some(thread) => locked(&self.homes).insert(connection, thread),
            None => locked(&self.homes).remove(&connection),
        };
    }

    /// The thread of a connection, if it is still there.
    pub(super) fn home_of(&self, connection: u64) -> Option<u8> {
        locked(&self.homes).get(&connection).copied()
    }

    /// The number of the next slow command.
    pub(super) fn next_slow(&self) -> u64 {
        self.slow_last.fetch_add(1, Ordering::Relaxed)
    }

    /// A place for a client at a thread (`None`: at the thread that was given fewest); `None` if
    /// the node has as many clients as it may.
    pub(super) fn seat(self: &Arc<Self>, thread: Option<u8>) -> Option<Seat> {
        // Several threads may count at the same time. Then the sum may exceed the limit by their
        // number.
        let seated = self.seats.iter().map(|s| s.all.load(Ordering::Relaxed));
        if seated.sum::<usize>() >= self.settings.clients_max() {
            return None;
        }
        let handed = |at: &u8| self.seats[usize::from(*at)].handed.load(Ordering::Relaxed);
        // A node has 16 threads at most.
        let fewest = || (0..self.seats.len() as u8).min_by_key(handed);
        let at = thread.or_else(fewest)?;
        let seats = &self.seats[usize::from(at)];
        seats.all.fetch_add(1, Ordering::Relaxed);
        if thread.is_none() {
            seats.handed.fetch_add(1, Ordering::Relaxed);
        }
        Some(Seat {
            common: self.clone(),
            thread: at,
            handed: thread.is_none(),
        })
    }
}

/// A panic while a lock was held left a whole state: each change is one step.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RespContext {
    /// Tells the other threads that the users of the file have changed.
    pub(super) fn tell_users(&self) {
        let others = (0..self.threads()).filter(|t| *t != self.me().thread_number());
        others.for_each(|t| self.tell(t, Box::new(ThreadMessage::Users)));
    }

    /// Passes a client to the thread where it has its place.
    pub(super) fn hand_over(&self, stream: TcpStream, seat: Seat) {
        self.tell(
            seat.thread(),
            Box::new(ThreadMessage::Accepted(stream, seat)),
        );
    }

    /// Asks all other threads. Returns how many there are.
    pub(super) fn ask(&self, question: &Question, back: BackChannel) -> usize {
        let others = (0..self.threads()).filter(|t| *t != back.thread);
        others
            .map(|t| self.tell(t, Box::new(ThreadMessage::Question(question.clone(), back))))
            .count()
    }
}
