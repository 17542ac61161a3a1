//! Operations that are not answered yet: parked, sent to another primary, or waiting for their commit.
//!
//! A partition's calls keep the order in which they came: what is parked is executed or sent from the front, and a
//! primary that refuses one call of an attempt refuses all later ones of it, so that resending does not reorder them.

use super::Token;
use super::entry::Entry;
use super::frame::Forwarded;
use super::log::begin_anew;
use super::op::{Action, Operation, Outcome, Work};
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, Lineage, MapId, MemberId};
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
    /// The peer that forwarded an operation.
    pub(super) const fn of_forwarded(member: MemberId, forwarded: &Forwarded) -> Self {
        let Forwarded { lineage, attempt, finished, .. } = *forwarded;
        Self::Peer { member, lineage, attempt, finished }
    }

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

impl Call {
    /// Who is answered, and as what.
    pub(super) fn asker(&self) -> Asker {
        Asker { source: self.source, n: self.n, write: self.work.is_write() }
    }
}

/// Who asked for an operation, its number there, and whether it may change something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    /// Who asks.
    pub(super) source: Source,
    /// Its number at its origin.
    pub(super) n: u64,
    /// Whether it may change something.
    pub(super) write: bool,
}

/// An operation that was executed here and is not answered yet.
#[derive(Debug)]
pub(super) struct Executed {
    /// Who is answered.
    pub(super) asker: Asker,
    /// When its caller is told that it did not work out.
    pub(super) until: Time,
    /// What must be committed first.
    pub(super) seq: u64,
    /// Its outcome.
    pub(super) outcome: Outcome,
    /// Whether it is in the log.
    pub(super) logged: bool,
    /// Whether it may be applied somewhere else.
    pub(super) maybe: bool,
    /// How it is asked again.
    pub(super) again: Again,
}

/// How an operation that was executed is asked again if the tenure ends before it is answered.
#[derive(Debug)]
pub(super) enum Again {
    /// By its origin.
    ByPeer,
    /// As it was.
    Work(Box<Work>),
    /// As a write of this entry without conditions: what nearly all writes are, so that they keep nothing beside it.
    Set(MapId, Entry),
}

impl Executed {
    /// A call that was executed.
    pub(super) fn of(call: Call, seq: u64, outcome: Outcome, logged: bool) -> Self {
        let (asker, until, maybe) = (call.asker(), call.until, call.maybe);
        let again = if call.source.peer().is_some() { Again::ByPeer } else { Again::Work(Box::new(call.work)) };
        Self { asker, until, seq, outcome, logged, maybe, again }
    }

    /// The call as it was; none of a peer's.
    pub(super) fn into_call(self, keyspace: KeyspaceId) -> Option<Call> {
        let work = match self.again {
            Again::ByPeer => return None,
            Again::Work(work) => *work,
            Again::Set(map, entry) => {
                let value = Bytes::copy_from_slice(entry.value());
                Work::Key(Operation { keyspace, map, key: Bytes::copy_from_slice(entry.key()), action: Action::set(value) })
            }
        };
        Some(Call { source: self.asker.source, n: self.asker.n, work, until: self.until, maybe: self.maybe || self.logged })
    }
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
        begin_anew(&mut self.unfinished);
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

    /// Who asked for what is not committed, and until when they wait.
    pub(super) fn all(&self) -> impl Iterator<Item = (Source, Time)> + '_ {
        let calls = self.parked.iter().chain(&self.sent).map(|c| (c.source, c.until));
        calls.chain(self.waiting.iter().map(|e| (e.asker.source, e.until)))
    }

    /// Everything of local callers that is not answered.
    pub(super) fn into_all(self, keyspace: KeyspaceId) -> impl Iterator<Item = Call> {
        let executed = self.waiting.into_iter().filter_map(move |e| e.into_call(keyspace));
        self.parked.into_iter().chain(self.sent).chain(executed)
    }

    /// Takes out everything that has waited long enough: what was parked, sent, executed.
    pub(super) fn take_late(&mut self, now: Time) -> (Vec<Call>, Vec<Call>, Vec<Executed>) {
        let late = |c: &Call| c.until <= now;
        let (parked, left) = std::mem::take(&mut self.parked).into_iter().partition(late);
        self.parked = Vec::into(left);
        let (sent, left) = std::mem::take(&mut self.sent).into_iter().partition(late);
        self.sent = Vec::into(left);
        let (waiting, left) = std::mem::take(&mut self.waiting).into_iter().partition(|e| e.until <= now);
        self.waiting = Vec::into(left);
        (parked, sent, waiting)
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.sent.is_empty() && self.waiting.is_empty()
    }
}
