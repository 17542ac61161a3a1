//! What a shell sees of a shard besides its methods: names, limits, counters, requests.

use super::visit::PARK;
use crate::command::operation::Work;
use doyen_gossip::Time;
use doyen_gossip::agreement::{InSyncRequest, Timing};
use doyen_placement::loads::Report;
use doyen_placement::{Epoch, MapEntry, MemberId, PartitionRef, Table, TableName, WantedMap};
use std::sync::Arc;
use std::time::Duration;

/// The shell's name for an operation that it submitted. The machine only carries it.
pub type CallToken = u64;

/// A lane to a peer. Each is one ordered byte stream for the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Operations, replication, acks.
    Calls,
    /// Snapshots, which must not delay calls.
    Bulk,
}

/// How long an operation waits for a primary at most. Operations of one caller on one key keep
/// their order only if none of them is given up before an earlier one. Operations by `Shard::read`
/// and `Shard::set` have the whole patience: a caller with less uses neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As long as `Limits::park`.
    Whole,
    /// Until this time, because the caller has waited for its earlier operations already.
    Until(Time),
    /// An operation that may be blocked waits at its primary until it is not, in the order in which
    /// callers asked. Any other has the whole patience.
    ///
    /// The outcome is `Many`: a time of this shard after which the operation was executed (`Int`,
    /// nanoseconds), and its outcome. It is `Nil` if `until` came before. A caller that does not
    /// want to wait any more leaves the line with `Shard::forget`.
    InLine {
        /// For how long the caller has waited, if it asks again.
        age: Duration,
        /// When it does not wait any more.
        until: Option<Time>,
    },
}

/// What the machine asks of the control thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardRequest {
    /// These partitions are open: (partition, the epoch in which this tenure began).
    Opened(Vec<(PartitionRef, Epoch)>),
    /// Changes of in-sync sets. The machine asks again, with backoff and jitter, until the epoch
    /// changes.
    InSync(Vec<InSyncRequest>),
    /// This cluster of one is about to apply its first write, which waits for `Shard::used`.
    Used,
    /// What this thread measured. It comes every two seconds, and more often while copies are sent.
    Loads(Report),
    /// A learner's copy was not equal to this node's, so the copy is made again.
    Differed(PartitionRef, MemberId),
    /// A peer knows a newer committed table, which is to be pulled.
    Newer(TableName),
    /// At a member: a client asks for a map that this node's table does not name, or for a change
    /// of one. `Shard::map_made`
    /// answers it.
    WantMap {
        /// The client.
        client: MemberId,
        /// The number of its request.
        ticket: u64,
        /// What it asks for.
        wanted: WantedMap,
    },
    /// At a client: the outcome of `Shard::ask_map`.
    MapMade {
        /// The number of the request.
        ticket: u64,
        /// The map, or why there is none.
        made: Result<MapEntry, String>,
    },
    /// At a client: a newer table has arrived, and is to be installed.
    Table(Arc<Table>),
    /// At a client: the member that answers belongs to another cluster than the one that the client
    /// first met. Map numbers differ between clusters, so the client asks nothing there.
    OtherCluster(TableName),
}

/// A caller of a machine that ended, with no answer.
#[derive(Debug)]
pub enum OpenCaller {
    /// Its call, and whether a later write on the same key may have overtaken it
    /// (`Shard::poll_overtaken`).
    Call(CallToken, Work, bool),
    /// It waits in line, from now on as a caller of the next machine.
    InLine(CallToken),
}

/// Buffers of one kind take this part of the memory at most, and no more than this of a large one.
const SHARE_PART: usize = 8;
const SHARE_BYTES_MAX: usize = 256 << 20;
/// At most this part of the memory is kept for subscribers of changes, and this much at a client.
const READERS_PART: usize = 16;
const READERS_BYTES_OF_CLIENT: usize = 64 << 20;
/// Tickets of callers that wait may always take the first, and never take more than the second.
const TICKETS_BYTES_LEAST: usize = 1 << 20;
const TICKETS_BYTES_MAX: usize = 256 << 20;
/// Frames that are not whole may always take the first, and need never take more than the second
/// because values are large.
const FRAMES_BYTES_LEAST: usize = 4 << 20;
const FRAMES_BYTES_ENOUGH: usize = 96 << 20;

/// Limits and durations of the data path. A shard gets those of one data thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest value: 16 MiB.
    pub value_bytes_max: usize,
    /// The largest hash that is one value: 2 KiB. A larger one has a row for each field.
    pub packed_bytes_max: usize,
    /// The same of a hash whose fields are small: 16 KiB. As rows, they would take several times
    /// as much.
    pub packed_small_bytes_max: usize,
    /// The most rows of a hash in one page of a read: 2,000. A hash of more than four pages is read
    /// in pages.
    pub page_rows: usize,
    /// The largest key: 64 KiB.
    pub key_bytes_max: usize,
    /// The most memory for entries, tails and snapshots together.
    pub memory_bytes_max: usize,
    /// The log that is kept for copies that lag: 64 MiB a node.
    pub tail_bytes_max: usize,
    /// The least bytes of a partition's log that are kept, for copies that were dropped by mistake.
    pub tail_bytes_least: usize,
    /// The size at which a range of keys is split: 64 MiB.
    pub range_bytes_max: usize,
    /// How long an operation is parked at most: 5 s.
    pub park: Duration,
    /// The most operations that wait at the same time.
    pub waiting_max: usize,
    /// The most operations of one thread's callers that wait in line: 262,144. A primary keeps as
    /// many for clients, and twice as many for members.
    pub tickets_max: usize,
    /// A copy that has not acknowledged for this long is to leave the in-sync set: 1.5 s.
    pub copy_silent_max: Duration,
    /// If this many bytes are on their way to one peer, a write waits before it is executed: 8 MiB,
    /// or what the link carries in a second, if that is less. Snapshots do not count, and arrived
    /// bytes count by the peer's own word. So an ack is never behind much more than this and one
    /// value: a slow link makes writes wait, and costs no copy.
    pub ahead_bytes_max: u64,
    /// The size of a snapshot chunk: 64 KiB.
    pub chunk_bytes: usize,
    /// The most snapshot chunks of a partition that are sent and not acknowledged.
    pub chunks_in_flight: usize,
    /// The most partitions that are copied from this node at the same time. If copies are missing,
    /// as many more may be copied.
    pub copies_max: usize,
    /// About how many entries of split or merged partitions the new ones draw in one slice: half a
    /// millisecond of work.
    pub drawn_max: usize,
    /// `1.0204 L + margin`: the wait for a tenure about which nothing is known, and how much the
    /// lease is worth.
    pub takeover_wait: Duration,
}

impl Default for Limits {
    /// The limits of a node with default options, but no memory: state how much it may use.
    fn default() -> Self {
        Self {
            value_bytes_max: 16 << 20,
            packed_bytes_max: 2 << 10,
            packed_small_bytes_max: 16 << 10,
            page_rows: 2_000,
            key_bytes_max: 64 << 10,
            memory_bytes_max: 0,
            tail_bytes_max: 64 << 20,
            tail_bytes_least: 0,
            range_bytes_max: 64 << 20,
            park: PARK,
            waiting_max: 1 << 16,
            tickets_max: 1 << 18,
            copy_silent_max: Duration::from_millis(1_500),
            ahead_bytes_max: 8 << 20,
            chunk_bytes: 64 << 10,
            chunks_in_flight: 4,
            copies_max: 32,
            drawn_max: 128,
            takeover_wait: Timing::default().takeover_wait(),
        }
    }
}

impl Limits {
    /// Small ones, so that tests meet each of them.
    #[doc(hidden)]
    #[must_use]
    pub fn of_test() -> Self {
        Self {
            value_bytes_max: 1 << 20,
            packed_small_bytes_max: 2 << 10,
            key_bytes_max: 1 << 10,
            memory_bytes_max: 64 << 20,
            tail_bytes_max: 8 << 20,
            tail_bytes_least: 4 << 10,
            waiting_max: 10_000,
            tickets_max: 10_000,
            chunk_bytes: 256,
            chunks_in_flight: 2,
            copies_max: 2,
            drawn_max: 4,
            ..Self::default()
        }
    }

    /// The limits of each of this many threads, which share those of a node.
    #[must_use]
    pub fn shared_by(mut self, threads: u8) -> Self {
        let threads = usize::from(threads.max(1));
        self.memory_bytes_max /= threads;
        self.tail_bytes_max /= threads;
        self.copies_max = self.copies_max.div_ceil(threads);
        self
    }

    /// The most bytes of incomplete commands of Redis clients for one of this many data threads.
    /// Their answers have the same limit.
    pub fn clients_bytes_max(&self, threads: u8) -> usize {
        self.share(threads)
            .max(self.value_bytes_max.saturating_mul(2))
    }

    /// The most bytes of incomplete frames of peers for one of this many data threads. Beyond it, a
    /// connection is closed. Several of the largest values may arrive at the same time, which is no
    /// fault of their sender.
    pub fn frames_bytes_max(&self, threads: u8) -> usize {
        self.share(threads).max(
            self.value_bytes_max
                .saturating_mul(4)
                .clamp(FRAMES_BYTES_LEAST, FRAMES_BYTES_ENOUGH),
        )
    }

    /// The most bytes of large answers that one peer has asked for and that have not been sent. All
    /// native clients together have as much. Most of these are shared with the store, so they may
    /// take more than other buffers: as much as the answers to the Redis clients of another thread.
    pub fn owed_bytes_max(&self) -> usize {
        let most = if self.memory_bytes_max == 0 {
            SHARE_BYTES_MAX
        } else {
            (self.memory_bytes_max / 2).min(SHARE_BYTES_MAX)
        };
        most.max(self.value_bytes_max.saturating_mul(2))
    }

    /// The most bytes that are kept for subscribers of changes: in the logs of all partitions, and
    /// of what was told here and not taken. A client of the cluster has no logs.
    #[must_use]
    pub const fn readers_bytes_max(&self) -> usize {
        if self.memory_bytes_max == 0 {
            READERS_BYTES_OF_CLIENT
        } else {
            self.memory_bytes_max / READERS_PART
        }
    }

    /// The most bytes of all tickets of callers that wait here.
    pub(crate) fn tickets_bytes_max(&self) -> usize {
        self.share(1).clamp(TICKETS_BYTES_LEAST, TICKETS_BYTES_MAX)
    }

    /// The share of buffers of one kind, besides what is stored. A client of the cluster stores
    /// nothing.
    fn share(&self, threads: u8) -> usize {
        let most = SHARE_BYTES_MAX / usize::from(threads.max(1));
        if self.memory_bytes_max == 0 {
            most
        } else {
            (self.memory_bytes_max / SHARE_PART).min(most)
        }
    }
}

/// Bytes of a peer that are not valid. Its connection must be closed. The malformed frame has
/// changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed data frame: {0}")]
pub struct Malformed(pub &'static str);
