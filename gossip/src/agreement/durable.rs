//! What a process that has a directory must not forget (rule 14).
//!
//! ```text
//!   a request for a vote, a proposal ──> what it would promise is written
//!                                            │ Output::Store(n)
//!                                            v
//!                                        the disk ──Input::Stored(n)──> the same message is
//!                                                                       handled again
//! ```
//! Nothing in memory changes before the write is synced, so pings name the table before, and what
//! an acknowledgement says of leases is true when it leaves. A process without a directory goes
//! on at once.

use super::context::NamedTable;
use crate::mutant::{self, broken};
use crate::wire::{Commit, Message};
use doyen_placement::{MemberId, Table, TableName, Term};
use minicbor::{Decode, Encode};
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages that wait for the disk at the same time. Peers send again what is dropped.
const WAITING_MAX: usize = 64;

/// What a process with a directory has promised and agreed to.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Durable {
    /// The member in whose name the process speaks.
    #[n(0)]
    pub me: MemberId,
    /// The term in which it voted last, or accepted a table.
    #[n(1)]
    pub term: Term,
    /// The candidate that it voted for in that term.
    #[n(2)]
    pub voted: Option<MemberId>,
    /// The last table that it knows to be committed.
    #[cbor(n(3), with = "doyen_placement::codec::bridge")]
    pub committed: Arc<Table>,
    /// What is known of that commit.
    #[n(4)]
    pub commit: Option<Commit>,
    /// The voters of the last configuration that it knows to be committed.
    #[n(5)]
    pub committed_voters: Vec<MemberId>,
    /// The last table that it accepted.
    #[cbor(n(6), with = "doyen_placement::codec::bridge")]
    pub accepted: Arc<Table>,
    /// The member that proposed it.
    #[n(7)]
    pub proposer: Option<MemberId>,
    /// Whether the tables are a first table that the process has promised, and that may never come
    /// to be.
    #[n(8)]
    pub promised: bool,
}

/// Whether a promise may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// It is on disk, or this process has no directory.
    Kept,
    /// It is being written.
    Awaited,
    /// Another promise excludes it.
    Excluded,
}

/// A proposal that is accepted once it is synced.
#[derive(Debug, Clone)]
pub(super) struct Accepting {
    pub(super) table: NamedTable,
    pub(super) proposer: MemberId,
    pub(super) committed_voters: Vec<MemberId>,
}

/// The writes of a process that has a directory.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The numbers of the last write and of the last one that is synced.
    written: u64,
    synced: u64,
    /// Whether there is something to write.
    changed: bool,
    /// The last vote, and the write that has it.
    vote: (Term, Option<MemberId>),
    vote_at: u64,
    /// The last proposal, and the write that has it.
    accepting: Option<Accepting>,
    accept_at: u64,
    /// The write before which nothing leaves this process.
    holds_until: u64,
    /// Messages that are handled again once these writes are synced.
    waiting: VecDeque<(u64, MemberId, Message)>,
}

impl Disk {
    /// The writes of a process that has read this.
    pub(super) fn after(durable: &Durable) -> Self {
        Self {
            vote: (durable.term, durable.voted),
            ..Self::default()
        }
    }

    /// The last vote: none of an earlier term is given.
    pub(super) const fn vote(&self) -> (Term, Option<MemberId>) {
        self.vote
    }

    /// The proposal that is being written.
    pub(super) const fn accepting(&self) -> Option<&Accepting> {
        self.accepting.as_ref()
    }

    /// Nothing leaves this process before what is written next is synced.
    pub(super) const fn hold(&mut self) {
        self.holds_until = self.next();
    }

    /// Whether only writes leave this process.
    pub(super) const fn holds(&self) -> bool {
        self.holds_until > self.synced
    }

    /// Something is to be written that nothing waits for.
    pub(super) const fn change(&mut self) {
        self.changed = true;
    }

    /// Whether there is something to write.
    pub(super) const fn has_changed(&self) -> bool {
        self.changed
    }

    /// What is to be written comes with this number.
    const fn next(&mut self) -> u64 {
        self.changed = true;
        self.written + 1
    }

    /// Returns the number of the write that is due.
    pub(super) fn begin(&mut self) -> Option<u64> {
        std::mem::take(&mut self.changed).then(|| {
            self.written += 1;
            self.written
        })
    }

    /// A vote for this candidate is promised once it is synced.
    pub(super) fn promise_vote(&mut self, term: Term, candidate: MemberId) -> Promise {
        if self.vote == (term, Some(candidate)) {
            return self.promised(self.vote_at, &mutant::VOTES_UNSYNCED);
        }
        if term <= self.vote.0 {
            return Promise::Excluded;
        }
        self.vote = (term, Some(candidate));
        self.vote_at = self.next();
        self.promised(self.vote_at, &mutant::VOTES_UNSYNCED)
    }

    /// This proposal is accepted once it is synced.
    pub(super) fn promise_table(&mut self, accepting: Accepting) -> Promise {
        match &self.accepting {
            Some(present) if present.table.name == accepting.table.name => {}
            // A later one is being written, so this one has come to nothing.
            Some(present) if present.table.name.order() > accepting.table.name.order() => {
                return Promise::Excluded;
            }
            Some(_) | None => {
                self.accepting = Some(accepting);
                self.accept_at = self.next();
            }
        }
        self.promised(self.accept_at, &mutant::ACCEPTS_UNSYNCED)
    }

    fn is_synced(&self, write: u64, mutant: &'static mutant::Mutant) -> bool {
        write <= self.synced || broken(mutant)
    }

    fn promised(&self, write: u64, mutant: &'static mutant::Mutant) -> Promise {
        if self.is_synced(write, mutant) {
            Promise::Kept
        } else {
            Promise::Awaited
        }
    }

    /// This table is accepted. A proposal of this process itself is in what is written next.
    pub(super) fn accepted(&mut self, name: TableName) {
        let older = |of: &mut Accepting| of.table.name.order() <= name.order();
        let promised = self.accepting.take_if(older);
        if promised.is_none_or(|of| of.table.name != name) {
            self.accept_at = self.next();
        }
    }

    /// Whether the table accepted last is synced.
    pub(super) fn has_accepted(&self) -> bool {
        self.is_synced(self.accept_at, &mutant::ACCEPTS_UNSYNCED)
    }

    /// This message is handled again once all that was asked for is synced.
    pub(super) fn wait(&mut self, from: MemberId, message: Message) {
        let until = self.vote_at.max(self.accept_at);
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((until, from, message));
        }
    }

    /// A write is synced. Returns the messages that waited for it.
    pub(super) fn stored(&mut self, write: u64) -> Vec<(MemberId, Message)> {
        self.synced = self.synced.max(write.min(self.written));
        let synced = self.synced;
        let (ready, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(until, ..)| *until <= synced);
        self.waiting = waiting;
        ready
            .into_iter()
            .map(|(_, from, message)| (from, message))
            .collect()
    }
}
