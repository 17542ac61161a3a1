//! The data path as one machine without I/O: storage, forwarding, replication and copying of partitions.
//!
//! One `Shard` owns the partitions of one data thread. A shell feeds it operations, bytes from peers, views and time,
//! and carries away bytes for peers, outcomes and requests to the control thread. The simulation is another such shell.
//!
//! ```text
//!  submit(now, token, op) ─┐                       ┌─> poll_outcome() -> (token, Outcome)
//!  receive(now, peer, ..) ─┼──> partitions, log ───┼─> poll_transmit() -> (peer, Lane, bytes)
//!  view / lease / tick ────┘                       └─> poll_request() -> Request
//! ```

pub mod op;

use bytes::BytesMut;
use doyen_gossip::Time;
use doyen_gossip::agreement::{InSyncRequest, View};
use doyen_placement::{Epoch, MemberId, PartitionRef, TableName};
use op::{Operation, Outcome, PartitionOperation};
use std::time::Duration;

/// Names a submitted operation to the shell; the machine only carries it.
pub type Token = u64;

/// How bytes travel to a peer. Each lane is one ordered byte stream for the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Operations, replication, acks.
    Calls,
    /// Snapshots; must not delay calls.
    Bulk,
}

/// What the machine asks of the control thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// These partitions are open: (partition, the epoch in which this tenure began).
    Opened(Vec<(PartitionRef, Epoch)>),
    /// Changes of in-sync sets. Asked again, with backoff and jitter, until the epoch changes.
    InSync(Vec<InSyncRequest>),
    /// The first write of this cluster of one is about to be applied; it waits for `Shard::used`.
    Used,
    /// A peer knows a newer committed table: pull it.
    Newer(TableName),
}

/// Limits and durations of the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest value: 16 MiB.
    pub value_bytes_max: usize,
    /// Largest key: 64 KiB.
    pub key_bytes_max: usize,
    /// Entries, tails and snapshots together.
    pub memory_bytes_max: usize,
    /// Log kept for copies that lag: 64 MiB a node.
    pub tail_bytes_max: usize,
    /// How long an operation is parked at most: 5 s.
    pub park: Duration,
    /// Operations that wait at the same time at most.
    pub waiting_max: usize,
    /// A copy that has not acknowledged for this long is asked out of the in-sync set: 1.5 s.
    pub copy_silent_max: Duration,
    /// Snapshot chunk: 64 KiB.
    pub chunk_bytes: usize,
    /// Snapshot chunks sent and not acknowledged, a partition.
    pub chunks_in_flight: usize,
    /// Partitions that are copied from this node at the same time.
    pub copies_max: usize,
    /// `1.0204 L + margin` for a tenure of which nothing is known; also how much the lease is worth.
    pub takeover_wait: Duration,
}

/// Counters and gauges, for metrics, `status` and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys held, as primary and as copy.
    pub keys: u64,
    /// Bytes held: entries, tails, snapshots.
    pub memory_bytes: u64,
    /// Operations executed here as primary.
    pub executed: u64,
    /// Operations forwarded to another primary.
    pub forwarded: u64,
    /// Log entries sent to copies.
    pub replicated: u64,
    /// Operations parked at present.
    pub parked: u64,
    /// Partitions led and open.
    pub open: u64,
    /// Partitions led and not open yet.
    pub closed: u64,
    /// Bytes of snapshots sent.
    pub snapshot_bytes: u64,
    /// Learners whose checksum differed.
    pub checksum_mismatches: u64,
    /// Frames of peers that were refused as malformed.
    pub malformed: u64,
    /// Keys expired.
    pub expired: u64,
}

/// A peer's bytes made no sense; its connection must be closed. Nothing was changed by the malformed frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed data frame: {0}")]
pub struct Malformed(pub &'static str);

/// The machine.
#[derive(Debug)]
pub struct Shard {}

#[allow(clippy::unused_self, unused_variables, clippy::missing_const_for_fn)]
impl Shard {
    /// For a process that is no member yet. `rng_seed` is for jitter only.
    #[must_use]
    pub fn new(me: MemberId, limits: Limits, rng_seed: u64, now: Time) -> Self {
        todo!()
    }

    /// Other tables are in force.
    pub fn install(&mut self, now: Time, view: View) {
        todo!()
    }

    /// The cluster of one is marked used (answer to `Request::Used`).
    pub fn used(&mut self, now: Time) {
        todo!()
    }

    /// An operation of a local caller. `unix_ms` is wall time, read by the shell at most once a batch.
    pub fn submit(&mut self, now: Time, unix_ms: u64, token: Token, operation: Operation) {
        todo!()
    }

    /// A partition-wide operation of a local caller.
    pub fn submit_partition(&mut self, now: Time, token: Token, operation: PartitionOperation) {
        todo!()
    }

    /// The caller is gone: its outcome is not wanted any more. (What was sent may still happen.)
    pub fn forget(&mut self, token: Token) {
        todo!()
    }

    /// A connection to this peer is up; both lanes begin anew.
    pub fn connected(&mut self, now: Time, peer: MemberId) {
        todo!()
    }

    /// The connection is gone, with all that was in flight on it.
    pub fn disconnected(&mut self, now: Time, peer: MemberId) {
        todo!()
    }

    /// Bytes of one lane. Whole frames are consumed from the front; a partial frame stays for the next call.
    ///
    /// # Errors
    /// `Malformed`: close the connection.
    pub fn receive(&mut self, now: Time, unix_ms: u64, peer: MemberId, lane: Lane, bytes: &mut BytesMut) -> Result<(), Malformed> {
        todo!()
    }

    /// Time passed (`poll_timeout`).
    pub fn tick(&mut self, now: Time) {
        todo!()
    }

    /// When `tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        todo!()
    }

    /// Releases what may be answered. Call it after a batch of inputs, with a clock and a lease that were read *after*
    /// them; `current` says whether the view last installed is still the one that the control thread shows. With an
    /// expired lease or an old view nothing is released, and what was executed is judged again later (rule 8).
    pub fn release(&mut self, now: Time, lease: Time, current: bool) {
        todo!()
    }

    /// The next released outcome.
    pub fn poll_outcome(&mut self) -> Option<(Token, Outcome)> {
        todo!()
    }

    /// The next bytes for a peer: everything that is ready for one lane of one peer, in one buffer.
    pub fn poll_transmit(&mut self) -> Option<(MemberId, Lane, BytesMut)> {
        todo!()
    }

    /// The next request to the control thread.
    pub fn poll_request(&mut self) -> Option<Request> {
        todo!()
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }
}
