//! The state that the data threads of one process share: their inboxes, and the measured memory of
//! the process.
//!
//! No operation touches it.

use super::DataMessage;
use super::front_end;
use super::inbox::Inbox;
use super::process::ProcessMemory;
use std::sync::Arc;

/// The data threads of one process.
#[derive(Debug)]
pub(super) struct ThreadGroup {
    inboxes: Vec<Arc<Inbox>>,
    process: ProcessMemory,
}

impl ThreadGroup {
    /// A group of these threads, at least one. `whole_process`: the process belongs to the node
    /// alone.
    pub(super) fn new(inboxes: Vec<Arc<Inbox>>, whole_process: bool) -> Self {
        let process = ProcessMemory::new(inboxes.len(), whole_process);
        Self { inboxes, process }
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> u8 {
        // `start` allows 16 at most.
        self.inboxes.len() as u8
    }

    pub(super) fn inbox(&self, thread: u8) -> &Arc<Inbox> {
        &self.inboxes[usize::from(thread)]
    }

    /// The memory of the process.
    pub(super) fn process(&self) -> &ProcessMemory {
        &self.process
    }

    /// Wakes a thread, after something was left for it.
    pub(super) fn wake(&self, thread: u8) {
        self.inbox(thread).thread_waker().wake();
    }

    /// Sends a message to the front end of a thread.
    pub(super) fn tell(&self, thread: u8, message: front_end::FrontEndMessage) {
        self.inbox(thread).tell(DataMessage::FrontEnd(message));
    }
}
