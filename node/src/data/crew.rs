//! What the data threads of one process have together: where each is told something, and what the
//! process holds.
//!
//! Nothing here is touched by an operation.

use super::Message;
use super::desk::Desk;
use super::door;
use super::process::Process;
use std::sync::Arc;

/// The data threads of one process.
#[derive(Debug)]
pub(super) struct Crew {
    desks: Vec<Arc<Desk>>,
    process: Process,
}

impl Crew {
    /// Of these threads, at least one. The process is the whole of it (`whole_process`), or embeds
    /// it.
    pub(super) fn new(desks: Vec<Arc<Desk>>, whole_process: bool) -> Self {
        let process = Process::new(desks.len(), whole_process);
        Self { desks, process }
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> u8 {
        // `start` lets in 16 at most.
        self.desks.len() as u8
    }

    pub(super) fn desk(&self, thread: u8) -> &Arc<Desk> {
        &self.desks[usize::from(thread)]
    }

    /// What the process holds.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Something was left for a thread.
    pub(super) fn ring(&self, thread: u8) {
        self.desk(thread).bell().ring();
    }

    /// Sends a message to the door of a thread.
    pub(super) fn tell(&self, thread: u8, message: door::Message) {
        self.desk(thread).tell(Message::Door(message));
    }
}
