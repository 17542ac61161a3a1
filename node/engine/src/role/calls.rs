//! Operations that are not answered yet: parked, sent to another primary, or waiting for their
//! commit.
//!
//! Calls of a partition keep their order. Parked calls are executed or sent from the front. If a
//! primary refuses one call of an attempt, it refuses all later ones of that attempt, so sending
//! again does not reorder them.
//!
//! An operation that was executed and changed nothing is in no log. If it is sent again, it would
//! be executed after later writes that are in the log. So a repeated call names the next write on
//! its key that may be there (`Tried::before`). If that write is there, the primary does not
//! execute the call: it is *overtaken*. If the outcome of the first execution is still known, it
//! holds, because the log continues from where it was read. Otherwise only the caller can decide
//! whether to execute the call again.

use crate::command::operation::{Action, Operation, PartitionAction, Work};
use crate::log::partition_log::begin_anew;
use crate::mutant::{self, broken};
use crate::value::entry::Entry;
use crate::value::outcome::Outcome;
use crate::wire::api::CallToken;
use crate::wire::frame::Forwarded;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, Lineage, MapId, MemberId};
use std::collections::{BTreeMap, VecDeque};

/// Where the outcome goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallSource {
    /// A caller of this node.
    Local(CallToken),
    /// Another node, in this attempt and for this lineage. Its operations on the partition below
    /// `finished` are finished.
    Peer {
        member: MemberId,
        lineage: Lineage,
        attempt: u32,
        finished: u64,
    },
    /// A caller of this thread or of another one that waits here. Its operation was executed after
    /// its thread had this stamp.
    Waiter { member: MemberId, stamp: u64 },
}

impl CallSource {
    /// The peer that forwarded an operation.
    pub(crate) const fn of_forwarded(member: MemberId, forwarded: &Forwarded) -> Self {
        let Forwarded {
            lineage,
            attempt,
            finished,
            ..
        } = *forwarded;
        Self::Peer {
            member,
            lineage,
            attempt,
            finished,
        }
    }

    /// The local caller, if it is one.
    pub(crate) const fn token(&self) -> Option<CallToken> {
        match self {
            Self::Local(token) => Some(*token),
            Self::Peer { .. } | Self::Waiter { .. } => None,
        }
    }

    /// The peer, if it is one.
    pub(crate) const fn peer(&self) -> Option<MemberId> {
        match self {
            Self::Local(_) => None,
            Self::Peer { member, .. } | Self::Waiter { member, .. } => Some(*member),
        }
    }
}

/// An operation that is not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingCall {
    /// Where it came from.
    pub(crate) source: CallSource,
    /// Its number at its origin.
    pub(crate) n: u64,
    /// What to do.
    pub(crate) work: Work,
    /// When its caller gets an error, if there is no answer before.
    pub(crate) until: Time,
    /// Whether its deadline differs from `Limits::park` after its submission.
    pub(crate) hurried: bool,
    /// Whether it may be applied somewhere already.
    pub(crate) maybe: bool,
    /// What is known of an earlier attempt.
    pub(crate) tried: Option<Box<Tried>>,
}

/// What is known of a call that is sent again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tried {
    /// A later write of its origin on its key that may be applied. If that write or one after it
    /// is, this call was executed before it.
    pub(crate) before: Option<u64>,
    /// Its outcome when it was last executed, if that was here. It holds if the call is overtaken.
    pub(crate) outcome: Option<Outcome>,
}

impl PendingCall {
    /// A call that was not tried before, with its deadline, and whether that is its own.
    pub(crate) const fn new(
        source: CallSource,
        n: u64,
        work: Work,
        (until, hurried): (Time, bool),
    ) -> Self {
        Self {
            source,
            n,
            work,
            until,
            hurried,
            maybe: false,
            tried: None,
        }
    }

    /// The write after which it must not be executed.
    pub(crate) fn before(&self) -> Option<u64> {
        self.tried.as_ref().and_then(|t| t.before)
    }

    /// Notes a write after which it must not be executed. The first one counts.
    fn precedes(&mut self, n: u64) {
        let tried = self.tried.get_or_insert_default();
        tried.before = Some(tried.before.map_or(n, |before| before.min(n)));
    }

    /// Takes its outcome when it was last executed, if that is known. It must be taken, too, if the
    /// call may have been executed elsewhere since.
    pub(crate) fn take_outcome(&mut self) -> Option<Outcome> {
        self.tried.as_mut()?.outcome.take()
    }

    /// Where to send the answer, and under which number.
    pub(crate) fn asker(&self) -> CallOrigin {
        CallOrigin {
            source: self.source,
            n: self.n,
            write: self.work.is_write(),
        }
    }
}

/// The source of an operation, its number there, and whether it is a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallOrigin {
    /// Where the operation came from.
    pub(crate) source: CallSource,
    /// Its number at its origin.
    pub(crate) n: u64,
    /// Whether it is a write.
    pub(crate) write: bool,
}

/// The outcome of an operation that was executed.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) outcome: Outcome,
    /// It may be answered once this sequence is committed.
    pub(crate) seq: u64,
    /// Whether it is in the log.
    pub(crate) logged: bool,
}

impl Execution {
    /// An outcome that is in the log, at this sequence.
    pub(crate) const fn logged(outcome: Outcome, seq: u64) -> Self {
        Self {
            outcome,
            seq,
            logged: true,
        }
    }

    /// An outcome that is not in the log.
    pub(crate) const fn unlogged(outcome: Outcome, seq: u64) -> Self {
        Self {
            outcome,
            seq,
            logged: false,
        }
    }
}

/// An operation that was executed here and is not answered yet.
#[derive(Debug)]
pub(crate) struct Executed {
    /// Where to send the answer.
    pub(crate) asker: CallOrigin,
    /// When its caller gets an error, if there is no answer before.
    pub(crate) until: Time,
    /// Whether its deadline differs from `Limits::park` after its submission.
    pub(crate) hurried: bool,
    /// The sequence that must be committed first.
    pub(crate) seq: u64,
    /// Its outcome.
    pub(crate) outcome: Outcome,
    /// Whether it is in the log.
    pub(crate) logged: bool,
    /// Whether it wrote much, once its answer has waited for a learner.
    pub(crate) paced: Option<bool>,
    /// Whether it may be applied elsewhere.
    pub(crate) maybe: bool,
    /// How to repeat the call.
    pub(crate) again: Again,
}

/// How to repeat an executed call if the tenure ends before it is answered.
#[derive(Debug)]
pub(crate) enum Again {
    /// Its origin repeats it.
    ByPeer,
    /// As this operation, which was not sent again before.
    Operation(Operation),
    /// As the original operation, with the write after which it must not be executed.
    Work(Box<(Work, Option<u64>)>),
    /// As a write of this entry without conditions. Such writes keep nothing but the entry.
    Set(MapId, Entry),
}

impl Executed {
    /// A call that was executed.
    pub(crate) fn of(call: PendingCall, done: Execution) -> Self {
        let (asker, maybe) = (call.asker(), call.maybe);
        let times = (call.until, call.hurried);
        let again = match (call.before(), call.work) {
            _ if asker.source.peer().is_some() => Again::ByPeer,
            (None, Work::Key(operation)) => Again::Operation(operation),
            (before, work) => Again::Work(Box::new((work, before))),
        };
        Self {
            maybe,
            ..Self::at_once(asker, times, done, again)
        }
    }

    /// An operation that was executed before it became a call.
    pub(crate) fn at_once(
        asker: CallOrigin,
        (until, hurried): (Time, bool),
        done: Execution,
        again: Again,
    ) -> Self {
        let Execution {
            outcome,
            seq,
            logged,
        } = done;
        Self {
            asker,
            until,
            hurried,
            seq,
            outcome,
            logged,
            paced: None,
            maybe: false,
            again,
        }
    }

    /// Whether its caller waited at this node.
    pub(crate) const fn is_of_ticket(&self) -> bool {
        matches!(self.asker.source, CallSource::Waiter { .. })
    }

    /// The original call. `None` for a peer's call, and for one that waited.
    pub(crate) fn into_call(self, keyspace: KeyspaceId) -> Option<PendingCall> {
        let mut before = None;
        let work = match self.again {
            Again::ByPeer => return None,
            Again::Operation(operation) => Work::Key(operation),
            Again::Work(again) => {
                before = again.1;
                again.0
            }
            Again::Set(map, entry) => {
                let value = Bytes::copy_from_slice(entry.value());
                Work::Key(Operation {
                    keyspace,
                    map,
                    key: Bytes::copy_from_slice(entry.key()),
                    action: Action::set(value),
                })
            }
        };
        // The outcome of a logged operation is found in the log.
        let outcome = (!self.logged).then_some(self.outcome);
        let tried =
            (before.is_some() || outcome.is_some()).then(|| Box::new(Tried { before, outcome }));
        let Self {
            asker: CallOrigin { source, n, .. },
            until,
            hurried,
            ..
        } = self;
        Some(PendingCall {
            source,
            n,
            work,
            until,
            hurried,
            maybe: self.maybe || self.logged,
            tried,
        })
    }
}

/// The calls of one partition.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Calls that cannot be executed or sent now.
    pub(crate) parked: VecDeque<PendingCall>,
    /// Reads of a whole partition that is not all here yet. Other calls do not wait for them.
    pub(crate) later: VecDeque<PendingCall>,
    /// Calls that were sent to `sent_to`: only local ones, ascending.
    pub(crate) sent: VecDeque<PendingCall>,
    /// The member that they were sent to.
    pub(crate) sent_to: Option<MemberId>,
    /// Calls that were executed here and are not committed.
    pub(crate) waiting: VecDeque<Executed>,
    /// Counts how often calls were sent again.
    pub(crate) attempt: u32,
    /// Refusals in a row, for the backoff.
    pub(crate) refusals: u32,
    unfinished: VecDeque<(u64, bool)>,
}

impl Calls {
    /// A local operation begins.
    pub(crate) fn begin(&mut self, n: u64) {
        self.unfinished.push_back((n, false));
    }

    /// A local operation that began elsewhere continues here.
    pub(crate) fn resume(&mut self, n: u64) {
        if let Err(place) = self.unfinished.binary_search_by_key(&n, |(n, _)| *n) {
            self.unfinished.insert(place, (n, false));
        }
    }

    /// A local operation is answered.
    pub(crate) fn finish(&mut self, n: u64) {
        // They mostly finish in order.
        let first = self
            .unfinished
            .front()
            .is_some_and(|(first, _)| *first == n);
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

    /// Every local operation below this number is finished. `n` is one that is not.
    pub(crate) fn finished(&self, n: u64) -> u64 {
        self.unfinished
            .front()
            .filter(|_| !broken(&mutant::FINISHES_EARLY))
            .map_or(n, |(first, _)| (*first).min(n))
    }

    /// Calls that were sent and not answered are parked again, in front. They may have been
    /// applied.
    pub(crate) fn unsend(&mut self) {
        self.attempt = self.attempt.wrapping_add(1);
        self.sent_to = None;
        while let Some(mut call) = self.sent.pop_back() {
            call.maybe = true;
            call.take_outcome();
            self.parked.push_front(call);
        }
        note_order(self.parked.make_contiguous());
    }

    /// The primary refused this attempt: nothing from `n` on was applied, earlier calls may have
    /// been.
    pub(crate) fn refused(&mut self, n: u64, attempt: u32) -> bool {
        if attempt != self.attempt {
            return false;
        }
        self.attempt = self.attempt.wrapping_add(1);
        self.sent_to = None;
        while let Some(mut call) = self.sent.pop_back() {
            if call.n < n {
                call.maybe |= !broken(&mutant::REFUSED_UNAPPLIED);
                call.take_outcome();
            }
            self.parked.push_front(call);
        }
        note_order(self.parked.make_contiguous());
        true
    }

    /// Takes out the local call of this number, which was answered in this attempt. If a write is
    /// under way in a later attempt, the answer does not count: a write that changed nothing is in
    /// no log and will be executed once more.
    pub(crate) fn take(&mut self, n: u64, attempt: u32) -> Option<PendingCall> {
        let late = attempt != self.attempt;
        if let Ok(at) = self.sent.binary_search_by_key(&n, |c| c.n) {
            if late && self.sent[at].work.is_write() {
                return None;
            }
            let taken = self.sent.remove(at)?;
            if at > 0 && taken.work.is_write() {
                // Answers come in order, except large ones, which let small ones pass. Earlier
                // unanswered calls were executed before.
                self.sent
                    .range_mut(..at)
                    .filter(|c| taken.work.concerns(&c.work))
                    .for_each(|c| c.precedes(n));
            }
            return Some(taken);
        }
        let at = self
            .parked
            .iter()
            .position(|c| c.n == n && c.source.peer().is_none() && !c.work.is_write())?;
        self.parked.remove(at)
    }

    /// Whether a read may overtake the parked calls: none of them concerns the same key.
    pub(crate) fn may_overtake(&self, work: &Work) -> bool {
        const LOOK_MAX: usize = 64;
        let Work::Key(read) = work else {
            return self.parked.is_empty();
        };
        self.parked.len() <= LOOK_MAX
            && self.parked.iter().all(|c| match &c.work {
                Work::Partition(_) => false,
                work => work.keys().all(|key| key != (read.map, &read.key)),
            })
    }

    /// Drops calls that were not executed. Returns how many.
    pub(crate) fn retain(&mut self, keep: impl Fn(&PendingCall) -> bool) -> usize {
        let before = self.parked.len() + self.later.len();
        self.parked.retain(&keep);
        self.later.retain(&keep);
        before - self.parked.len() - self.later.len()
    }

    /// The sources of all calls that are not committed, and their deadlines.
    pub(crate) fn all(&self) -> impl Iterator<Item = (CallSource, Time)> + '_ {
        let calls = self
            .parked
            .iter()
            .chain(&self.later)
            .chain(&self.sent)
            .map(|c| (c.source, c.until));
        calls.chain(self.waiting.iter().map(|e| (e.asker.source, e.until)))
    }

    /// All local calls that are not answered, in order, if no log has their outcomes any more.
    /// `ready` was taken out before.
    pub(crate) fn into_all(
        mut self,
        ready: Vec<Executed>,
        keyspace: KeyspaceId,
    ) -> Vec<PendingCall> {
        self.unsend();
        let executed = ready
            .into_iter()
            .chain(self.waiting)
            .filter_map(move |e| e.into_call(keyspace));
        let mut calls: Vec<PendingCall> = self
            .parked
            .into_iter()
            .chain(self.later)
            .filter(|c| c.source.peer().is_none())
            .chain(executed)
            .collect();
        calls.sort_by_key(|c| c.n);
        note_order(&mut calls);
        calls
    }

    /// Takes out all calls that have waited long enough: parked, sent and executed ones.
    pub(crate) fn take_late(
        &mut self,
        now: Time,
    ) -> (Vec<PendingCall>, Vec<PendingCall>, Vec<Executed>) {
        let late = |c: &PendingCall| c.until <= now;
        let (mut parked, left) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition::<Vec<PendingCall>, _>(late);
        self.parked = Vec::into(left);
        let (later, left) = std::mem::take(&mut self.later)
            .into_iter()
            .partition::<Vec<PendingCall>, _>(late);
        self.later = Vec::into(left);
        parked.extend(later);
        let (sent, left) = std::mem::take(&mut self.sent).into_iter().partition(late);
        self.sent = Vec::into(left);
        let (waiting, left) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|e| e.until <= now);
        self.waiting = Vec::into(left);
        (parked, sent, waiting)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
            && self.later.is_empty()
            && self.sent.is_empty()
            && self.waiting.is_empty()
    }
}

/// These calls, in order, will be sent again: each notes the next write on its key that may be
/// applied. (Calls on a whole partition do not matter here: their callers wait for them.)
pub(crate) fn note_order(calls: &mut [PendingCall]) {
    let mut later: BTreeMap<(MapId, Bytes), u64> = BTreeMap::new();
    let mut cleared: BTreeMap<MapId, u64> = BTreeMap::new();
    for call in calls.iter_mut().rev().filter(|c| c.source.peer().is_none()) {
        let (n, maybe) = (call.n, call.maybe && call.work.is_write());
        if let Work::Partition(op) = &call.work {
            if maybe && op.action == PartitionAction::Clear {
                cleared.insert(op.map, n);
            }
            continue;
        }
        let keys: Vec<_> = call
            .work
            .keys()
            .map(|(map, key)| (map, key.clone()))
            .collect();
        let writes = keys.iter().filter_map(|key| later.get(key));
        let clears = keys.iter().filter_map(|(map, _)| cleared.get(map));
        if let Some(next) = writes.chain(clears).min().copied() {
            call.precedes(next);
        }
        if maybe {
            later.extend(keys.into_iter().map(|key| (key, n)));
        }
    }
}
