//! Messages of publishers that wait for a peer with subscribers.

use crate::command::publication::Publication;
use std::collections::VecDeque;

/// Bytes of messages that wait for one peer. Later ones are dropped.
const HELD_BYTES_MAX: usize = 8 << 20;

/// Messages of publishers that wait for a peer.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// It has subscribers.
    pub(super) wants: bool,
    /// Messages that are sent once there is room, and their bytes.
    queue: VecDeque<Publication>,
    bytes: usize,
}

impl Messages {
    /// The peer has subscribers, or has none any more.
    pub(super) fn want(&mut self, wants: bool) {
        self.wants = wants;
        if !wants {
            self.queue.clear();
            self.bytes = 0;
        }
    }

    /// Whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Keeps a message until there is room. False: too much waits.
    pub(super) fn keep(&mut self, publication: &Publication) -> bool {
        let bytes = publication.bytes();
        if self.bytes + bytes > HELD_BYTES_MAX && !self.queue.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.queue.push_back(publication.clone());
        true
    }

    /// The next message that waits.
    pub(super) fn next(&mut self) -> Option<Publication> {
        let next = self.queue.pop_front()?;
        self.bytes -= next.bytes();
        Some(next)
    }
}
