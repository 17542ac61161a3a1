//! What the data threads of one process have together: who they are, how many Redis clients there
//! are, and what one asks the others for a client that asks about the whole node.
//!
//! Nothing here is touched by an operation.

use super::Message;
use super::desk::Desk;
use super::process::Process;
use crate::resp::info::{Counted, Needs};
use crate::resp::session::client::Chosen;
use crate::resp::session::pause::Pause;
use crate::resp::settings::Settings;
use crate::resp::slowlog::Slow;
use crate::resp::spill::Spill;
use mio::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The data threads of one process.
#[derive(Debug)]
pub(crate) struct Crew {
    desks: Vec<Arc<Desk>>,
    /// Redis clients of each thread at present: in all, and those that the first thread accepted
    /// for it.
    seats: Vec<(AtomicUsize, AtomicUsize)>,
    connection_last: AtomicU64,
    slow_last: AtomicU64,
    memory_bytes_max: usize,
    /// What clients may set.
    pub(crate) settings: Settings,
    /// What Redis clients are answered and do not read.
    spill: Arc<Spill>,
    process: Process,
}

/// The place of one Redis client among those that there may be.
#[derive(Debug)]
pub(crate) struct Seat {
    crew: Arc<Crew>,
    thread: u8,
    /// Whether the first thread chose where it sits.
    handed: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (all, handed) = &self.crew.seats[usize::from(self.thread)];
        all.fetch_sub(1, Ordering::Relaxed);
        if self.handed {
            handed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a client asks of which every thread knows a part.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    /// What `INFO` counts, as far as it is needed.
    Counts(Needs),
    /// Their lines of `CLIENT LIST`.
    Clients(Arc<Chosen>),
    /// That these end, and how many they are.
    Kill(Arc<Chosen>),
    /// So many of the newest slow commands.
    Slow(usize),
    /// How many slow commands are kept.
    SlowLength,
    /// That they are forgotten.
    ResetSlow,
    /// That `INFO` counts from zero.
    ResetCounts,
    /// That clients wait.
    Pause(Pause),
    /// That they go on.
    Unpause,
}

/// A thread's part of the answer.
#[derive(Debug)]
pub(crate) enum Told {
    Counts(Box<Counted>),
    /// By number of the connection.
    Clients(Vec<(u64, String)>),
    Number(u64),
    Slow(Vec<Slow>),
    Done,
}

/// Who wants to know: a reply of a connection of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Back {
    pub(crate) thread: u8,
    pub(crate) connection: u64,
    pub(crate) slot: u64,
}

impl Crew {
    /// Of these threads, at least one, with so much memory and so many Redis clients together. The
    /// process is the whole of it (`whole_process`), or embeds it.
    pub(super) fn new(
        desks: Vec<Arc<Desk>>,
        memory_bytes_max: usize,
        clients_max: usize,
        idle_timeout: Option<Duration>,
        whole_process: bool,
    ) -> Self {
        let seats = desks.iter().map(|_| Default::default()).collect();
        let (connection_last, slow_last) = Default::default();
        let process = Process::new(desks.len(), whole_process);
        let spill = Arc::new(Spill::new(memory_bytes_max, desks.len()));
        Self {
            desks,
            seats,
            connection_last,
            slow_last,
            memory_bytes_max,
            settings: Settings::new(clients_max, idle_timeout),
            spill,
            process,
        }
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> u8 {
        // `start` lets in 16 at most.
        self.desks.len() as u8
    }

    pub(super) fn desk(&self, thread: u8) -> &Arc<Desk> {
        &self.desks[usize::from(thread)]
    }

    /// Memory of all threads.
    pub(crate) fn memory_bytes_max(&self) -> usize {
        self.memory_bytes_max
    }

    /// What Redis clients are answered and do not read, of all threads.
    pub(crate) fn spill(&self) -> &Arc<Spill> {
        &self.spill
    }

    /// What the process holds.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// The number of the next Redis client.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connection_last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of the next slow command.
    pub(crate) fn next_slow(&self) -> u64 {
        self.slow_last.fetch_add(1, Ordering::Relaxed)
    }

    /// A place for a Redis client at a thread (`None`: at the one that was given fewest), unless
    /// there are as many as there may be.
    pub(crate) fn seat(self: &Arc<Self>, thread: Option<u8>) -> Option<Seat> {
        let most = self.settings.clients_max();
        // Several threads may count at the same time, and be above by as many as they are.
        if self
            .seats
            .iter()
            .map(|(all, _)| all.load(Ordering::Relaxed))
            .sum::<usize>()
            >= most
        {
            return None;
        }
        let fewest = || {
            (0..self.threads())
                .min_by_key(|t| self.seats[usize::from(*t)].1.load(Ordering::Relaxed))
        };
        let at = thread.or_else(fewest)?;
        let (all, handed) = &self.seats[usize::from(at)];
        all.fetch_add(1, Ordering::Relaxed);
        if thread.is_none() {
            handed.fetch_add(1, Ordering::Relaxed);
        }
        Some(Seat {
            crew: self.clone(),
            thread: at,
            handed: thread.is_none(),
        })
    }

    /// Gives a client to the thread at which it has its place.
    pub(crate) fn hand_over(&self, stream: TcpStream, seat: Seat) {
        self.desk(seat.thread).tell(Message::Accepted(stream, seat));
    }

    /// Asks all other threads; how many that are.
    pub(crate) fn ask(&self, question: &Question, back: Back) -> usize {
        let others = (0..self.threads()).filter(|t| *t != back.thread);
        others
            .map(|t| self.desk(t).tell(Message::Question(question.clone(), back)))
            .count()
    }

    /// Something was left for a thread.
    pub(super) fn ring(&self, thread: u8) {
        self.desk(thread).bell().ring();
    }

    /// Answers the thread that asked.
    pub(super) fn tell(&self, told: Told, back: Back) {
        self.desk(back.thread).tell(Message::Told(told, back));
    }
}

impl Seat {
    /// At which thread.
    pub(crate) fn thread(&self) -> u8 {
        self.thread
    }
}
