//! Operations that are not answered yet: parked, sent to another primary, or waiting for their commit.
//!
//! A partition's calls keep the order in which they came: what is parked is executed or sent from the front, and a
//! primary that refuses one call of an attempt refuses all later ones of it, so that resending does not reorder them.

use super::Token;
use super::op::{Outcome, Work};
use doyen_gossip::Time;
use doyen_placement::{Lineage, MemberId};
use std::collections::VecDeque;

/// Who wants the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A caller of this node.
    Local(Token),
    /// Another node, in this attempt and for this lineage; its operations on the partition below `finished` are finished.
    Peer { member: MemberId, lineage: Lineage, attempt: u32, finished: u64 },
}

impl Source {
    /// The local caller, if it is one.
    pub(super) const fn token(&self) -> Option<Token> {
        match self {
            Self::Local(token) => Some(*token),
            Self::Peer { .. } => None,
        }
    }

    /// The peer, if it is one.
    pub(super) const fn peer(&self) -> Option<MemberId> {
        match self {
            Self::Local(_) => None,
            Self::Peer { member, .. } => Some(*member),
        }
    }
}

/// An operation under way.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Who asks.
    pub(super) source: Source,
    /// Its number at its origin.
    pub(super) n: u64,
    /// What is asked.
    pub(super) work: Work,
    /// When its caller is told that it did not work out.
    pub(super) until: Time,
    /// Whether it may be applied somewhere already.
    pub(super) maybe: bool,
}

/// An operation that was executed here and is not answered yet.
#[derive(Debug)]
pub(super) struct Executed {
    /// The operation.
    pub(super) call: Call,
    /// What must be committed first.
    pub(super) seq: u64,
    /// Its outcome.
    pub(super) outcome: Outcome,
    /// Whether it is in the log.
    pub(super) logged: bool,
}

/// The calls of one partition.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Cannot be executed or sent now.
    pub(super) parked: VecDeque<Call>,
    /// Sent to `sent_to`; only local ones, ascending.
    pub(super) sent: VecDeque<Call>,
    /// Where they went.
    pub(super) sent_to: Option<MemberId>,
    /// Executed here, not committed.
    pub(super) waiting: VecDeque<Executed>,
    /// Counts resendings.
    pub(super) attempt: u32,
    /// Refusals in a row, for the backoff.
    pub(super) refusals: u32,
    unfinished: VecDeque<(u64, bool)>,
}

impl Calls {
    /// A local operation begins.
    pub(super) fn begin(&mut self, n: u64) {
        self.unfinished.push_back((n, false));
    }

    /// A local operation is answered, for good.
    pub(super) fn finish(&mut self, n: u64) {
        // Mostly they finish in order.
        let first = self.unfinished.front().is_some_and(|(first, _)| *first == n);
        if first {
            self.unfinished.pop_front();
        } else if let Ok(at) = self.unfinished.binary_search_by_key(&n, |(n, _)| *n) {
            self.unfinished[at].1 = true;
        }
        while self.unfinished.front().is_some_and(|(_, done)| *done) {
            self.unfinished.pop_front();
        }
    }

    /// Every local operation below this number is finished; `n` is one that is not.
    pub(super) fn finished(&self, n: u64) -> u64 {
        self.unfinished.front().map_or(n, |(first, _)| (*first).min(n))
    }

    /// What was sent and not answered is parked again, in front, and may have been applied.
    pub(super) fn unsend(&mut self) {
        self.attempt = self.attempt.wrapping_add(1);
        self.sent_to = None;
        while let Some(mut call) = self.sent.pop_back() {
            call.maybe = true;
            self.parked.push_front(call);
        }
    }

    /// The primary refused this attempt: nothing from `n` on was applied, what came before may have been.
    pub(super) fn refused(&mut self, n: u64, attempt: u32) -> bool {
        if attempt != self.attempt {
            return false;
        }
        self.attempt = self.attempt.wrapping_add(1);
        self.sent_to = None;
        while let Some(mut call) = self.sent.pop_back() {
            call.maybe |= call.n < n;
            self.parked.push_front(call);
        }
        true
    }

    /// Takes the local call of this number out, wherever it is.
    pub(super) fn take(&mut self, n: u64) -> Option<Call> {
        if let Ok(at) = self.sent.binary_search_by_key(&n, |c| c.n) {
            return self.sent.remove(at);
        }
        let at = self.parked.iter().position(|c| c.n == n && c.source.peer().is_none())?;
        self.parked.remove(at)
    }

    /// Whether a read may overtake what is parked: nothing of that is about the same key.
    pub(super) fn may_overtake(&self, work: &Work) -> bool {
        const LOOK_MAX: usize = 64;
        let Work::Key(read) = work else { return self.parked.is_empty() };
        self.parked.len() <= LOOK_MAX
            && self.parked.iter().all(|c| match &c.work {
                Work::Key(op) => op.map != read.map || op.key != read.key,
                Work::Partition(_) => false,
            })
    }

    /// All calls that are not committed.
    pub(super) fn all(&self) -> impl Iterator<Item = &Call> {
        self.parked.iter().chain(&self.sent).chain(self.waiting.iter().map(|e| &e.call))
    }

    /// Everything that is not answered.
    pub(super) fn into_all(self) -> impl Iterator<Item = Call> {
        self.parked.into_iter().chain(self.sent).chain(self.waiting.into_iter().map(|e| e.call))
    }

    /// Takes out everything that has waited long enough: what was parked, sent, executed.
    pub(super) fn take_late(&mut self, now: Time) -> (Vec<Call>, Vec<Call>, Vec<Executed>) {
        let late = |c: &Call| c.until <= now;
        let (parked, left) = std::mem::take(&mut self.parked).into_iter().partition(late);
        self.parked = Vec::into(left);
        let (sent, left) = std::mem::take(&mut self.sent).into_iter().partition(late);
        self.sent = Vec::into(left);
        let (waiting, left) = std::mem::take(&mut self.waiting).into_iter().partition(|e| late(&e.call));
        self.waiting = Vec::into(left);
        (parked, sent, waiting)
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.sent.is_empty() && self.waiting.is_empty()
    }
}
