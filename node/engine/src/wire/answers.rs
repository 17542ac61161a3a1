//! Answers to the operations of a peer: what it is owed, and what waits for room.

use super::frame::ReplyTo;
use crate::value::outcome::Outcome;
use doyen_placement::PartitionRef;
use std::collections::VecDeque;

/// Answers up to this size never wait: there are at most `waiting_max` of them.
pub(crate) const SMALL_ANSWER_BYTES: usize = 1 << 10;

/// What an answer to a peer weighs: 0 if it never waits.
pub(crate) fn answer_weight(outcome: &Outcome) -> usize {
    let bytes = outcome.bytes();
    if bytes > SMALL_ANSWER_BYTES { bytes } else { 0 }
}

/// Answers to the operations of a peer.
#[derive(Debug, Default)]
pub(super) struct HeldAnswers {
    /// Bytes of large answers to its executed operations, whether committed or not.
    pub(super) owed: usize,
    /// Answers that may be sent once there is room.
    held: VecDeque<(PartitionRef, ReplyTo, Outcome)>,
}

impl HeldAnswers {
    /// Whether no answer waits for room.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps an answer until there is room.
    pub(super) fn keep(&mut self, at: PartitionRef, to: ReplyTo, outcome: Outcome) {
        self.held.push_back((at, to, outcome));
    }

    /// The next answer that waits for room.
    pub(super) fn next(&mut self) -> Option<(PartitionRef, ReplyTo, Outcome)> {
        self.held.pop_front()
    }
}
