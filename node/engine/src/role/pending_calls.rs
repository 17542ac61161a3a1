//! The callers of this node, and those of other nodes that ask it: what they wait for, and what
//! they get.

use super::committed_outcomes::CommittedOutcomes;
use crate::command::operation::Work;
use crate::value::outcome::Outcome;
use crate::wire::api::CallToken;
use crate::wire::trace::TraceContext;
use doyen_placement::{MemberId, PartitionRef};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many callers may be forgotten before those without an open call are removed.
const FORGOTTEN_MAX: usize = 4_096;

/// All calls that are not answered, and answers that the shell has not taken yet.
#[derive(Debug)]
pub(crate) struct Callers {
    /// Executed and committed calls. `release` decides whether they may be answered.
    pub(crate) ready: CommittedOutcomes,
    /// Number of calls that are not answered.
    pub(crate) outstanding: usize,
    /// Reads in this pass that were answered at once.
    pub(crate) read_at_once: u32,
    outcomes: VecDeque<(CallToken, Outcome)>,
    /// Local calls that were executed and changed nothing, and whose outcomes are lost.
    overtaken: VecDeque<(CallToken, Work)>,
    forgotten: BTreeSet<CallToken>,
    /// The contexts of callers' spans, if they are sampled.
    traced: BTreeMap<CallToken, TraceContext>,
    /// Partitions with calls that wait for a crowded peer, in the order in which they began to
    /// wait.
    crowded: BTreeMap<MemberId, VecDeque<PartitionRef>>,
    next: u64,
}

impl Default for Callers {
    fn default() -> Self {
        Self {
            ready: CommittedOutcomes::default(),
            outstanding: 0,
            read_at_once: 0,
            outcomes: VecDeque::new(),
            overtaken: VecDeque::new(),
            forgotten: BTreeSet::new(),
            traced: BTreeMap::new(),
            crowded: BTreeMap::new(),
            next: 1,
        }
    }
}

impl Callers {
    /// The number of the next operation of this node's callers.
    pub(crate) fn number(&mut self) -> u64 {
        let n = self.next;
        self.next += 1;
        n
    }

    /// The number that `number` returns next.
    pub(crate) const fn next_number(&self) -> u64 {
        self.next
    }

    /// A caller of this node has its outcome.
    pub(crate) fn answer(&mut self, token: CallToken, outcome: Outcome) {
        self.outcomes.push_back((token, outcome));
    }

    /// A call of this node was executed, and its outcome is lost: its caller decides what to do.
    pub(crate) fn leave(&mut self, token: CallToken, work: Work) {
        self.overtaken.push_back((token, work));
    }

    /// Whether no caller waits for anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0 && self.outcomes.is_empty()
    }

    /// The next outcome of a caller that still waits for it.
    pub(crate) fn poll_outcome(&mut self) -> Option<(CallToken, Outcome)> {
        loop {
            let (token, outcome) = self.outcomes.pop_front()?;
            if self.is_wanted(token) {
                return Some((token, outcome));
            }
        }
    }

    /// The next call of a caller that still waits for it, whose outcome is lost.
    pub(crate) fn poll_overtaken(&mut self) -> Option<(CallToken, Work)> {
        loop {
            let (token, work) = self.overtaken.pop_front()?;
            if self.is_wanted(token) {
                return Some((token, work));
            }
        }
    }

    /// Whether the caller of an operation that ends now still waits for it.
    fn is_wanted(&mut self, token: CallToken) -> bool {
        if !self.traced.is_empty() {
            self.traced.remove(&token);
        }
        self.forgotten.is_empty() || !self.forgotten.remove(&token)
    }

    /// The caller behind this token, which is about to submit, has a sampled context.
    pub(crate) fn trace(&mut self, token: CallToken, context: TraceContext) {
        self.traced.insert(token, context);
    }

    #[cfg(test)]
    pub(crate) fn is_tracing(&self) -> bool {
        !self.traced.is_empty()
    }

    /// The context of this caller's span, if it has one.
    pub(crate) fn traced(&self, token: CallToken) -> Option<TraceContext> {
        if self.traced.is_empty() {
            return None;
        }
        self.traced.get(&token).copied()
    }

    /// A caller is gone. True: enough are gone to remove those without an open call.
    pub(crate) fn forget(&mut self, token: CallToken) -> bool {
        self.forgotten.insert(token);
        self.forgotten.len() >= FORGOTTEN_MAX && self.forgotten.len().is_power_of_two()
    }

    /// Removes the forgotten callers but those with one of these calls, or with an outcome: most
    /// were answered before they were forgotten.
    pub(crate) fn forget_answered(&mut self, calls: impl Iterator<Item = CallToken>) {
        let live = calls.chain(self.outcomes.iter().map(|(token, _)| *token));
        self.forgotten = live.filter(|t| self.forgotten.contains(t)).collect();
    }

    /// No caller waits for anything, so none needs to be forgotten.
    pub(crate) fn forget_none(&mut self) {
        self.forgotten.clear();
    }

    /// The calls of a partition wait for a crowded peer.
    pub(crate) fn wait_for(&mut self, peer: MemberId, at: PartitionRef) {
        let waiting = self.crowded.entry(peer).or_default();
        if !waiting.contains(&at) {
            waiting.push_back(at);
        }
    }

    /// How many partitions wait for a peer.
    pub(crate) fn waiting_for(&self, peer: MemberId) -> usize {
        self.crowded.get(&peer).map_or(0, VecDeque::len)
    }

    /// Takes the first partition that waits for a peer.
    pub(crate) fn next_waiting_for(&mut self, peer: MemberId) -> Option<PartitionRef> {
        let waiting = self.crowded.get_mut(&peer)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.crowded.remove(&peer);
        }
        first
    }
}
