//! What a shell sees of a shard beside its methods: names, limits, counters, requests.

use doyen_gossip::Time;
use doyen_gossip::agreement::InSyncRequest;
use doyen_placement::loads::Report;
use doyen_placement::{Epoch, MapEntry, MemberId, PartitionRef, Table, TableName};
use std::sync::Arc;
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

/// How long an operation waits at most for whoever serves it. What one caller asks for on one key
/// keeps its order only if nothing of it is given up before what it asked for earlier is. What
/// `Shard::read` and `Shard::set` did has the whole patience: a caller with less uses neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// `Limits::park`.
    Whole,
    /// Until then: its caller was kept waiting already, by what it asked for before.
    Until(Time),
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
    /// What this thread measured, each two seconds, and more often while it sends copies.
    Loads(Report),
    /// A learner's copy was not equal to this node's: it is made anew.
    Differed(PartitionRef, MemberId),
    /// A peer knows a newer committed table: pull it.
    Newer(TableName),
    /// Of a member: a client asks for a map that this node's table does not name. `Shard::map_made`
    /// answers it.
    MakeMap {
        /// Who asks.
        client: MemberId,
        /// The number of its request.
        ticket: u64,
        /// The name of the keyspace that it shall be in.
        keyspace: String,
        /// The map's name.
        name: String,
    },
    /// Of a client: what became of `Shard::ask_map`.
    MapMade {
        /// The number of the request.
        ticket: u64,
        /// The map, or why there is none.
        made: Result<MapEntry, String>,
    },
    /// Of a client: a newer table came, to be installed.
    Table(Arc<Table>),
    /// Of a client: what answers belongs to another cluster than the one that was first met. What
    /// maps are called there is not what they are called here, so nothing is asked there.
    OtherCluster(TableName),
}

/// Buffers of one kind take this part of the memory at most, and no more than this of a large one.
const SHARE_PART: usize = 8;
const SHARE_BYTES_MAX: usize = 256 << 20;
/// Frames that are not whole may always take the first, and need never take more than the second
/// because values are large.
const FRAMES_BYTES_LEAST: usize = 4 << 20;
const FRAMES_BYTES_ENOUGH: usize = 96 << 20;

/// Limits and durations of the data path: a shard is given those of one data thread.
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
    /// Bytes of a partition's log that are kept, however little is stored, for copies that were
    /// dropped by mistake.
    pub tail_bytes_least: usize,
    /// Bytes from which on a range of keys is split: 64 MiB.
    pub range_bytes_max: usize,
    /// How long an operation is parked at most: 5 s.
    pub park: Duration,
    /// Operations that wait at the same time at most.
    pub waiting_max: usize,
    /// A copy that has not acknowledged for this long is asked out of the in-sync set: 1.5 s.
    pub copy_silent_max: Duration,
    /// Bytes on their way to one peer, beside snapshots and by its own word of what has arrived,
    /// from which on a write waits before it is executed: 8 MiB, or what the way carries in a
    /// second, if that is less. Nothing that a write waits for is behind much more than this and
    /// one value, so that a slow way makes writes wait and costs no copy.
    pub ahead_bytes_max: u64,
    /// Snapshot chunk: 64 KiB.
    pub chunk_bytes: usize,
    /// Snapshot chunks sent and not acknowledged, a partition.
    pub chunks_in_flight: usize,
    /// Partitions that are copied from this node at the same time; as many more may be on their way
    /// where copies are lacking.
    pub copies_max: usize,
    /// Entries of partitions that were split or merged that are given to their heirs in one go,
    /// about: half a millisecond.
    pub drawn_max: usize,
    /// `1.0204 L + margin` for a tenure of which nothing is known; also how much the lease is
    /// worth.
    pub takeover_wait: Duration,
}

/// Counters and gauges, for metrics, `status` and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys held, as primary and as copy.
    pub keys: u64,
    /// Bytes held: entries, tails, snapshots.
    pub memory_bytes: u64,
    /// Bytes of buffers, and of what was dropped or is kept by the allocator, that count as well.
    pub memory_outside_bytes: u64,
    /// Runs that moved entries so that memory between them was given back.
    pub compactions: u64,
    /// Of all these bytes, as many as there may be.
    pub memory_bytes_max: u64,
    /// How much of that is taken, in thousandths: of several threads, by the fullest.
    pub memory_filled: u64,
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
    /// Partitions held whose keys are still divided, after a split or a merge.
    pub divided: u64,
    /// Bytes of snapshots sent.
    pub snapshot_bytes: u64,
    /// Snapshots that went on after their connection was lost, or another epoch began.
    pub continued: u64,
    /// Learners that caught up from the log, without a snapshot.
    pub caught_up: u64,
    /// Learners whose checksum differed.
    pub checksum_mismatches: u64,
    /// Frames of peers that were refused as malformed.
    pub malformed: u64,
    /// Keys expired.
    pub expired: u64,
    /// Keys evicted.
    pub evicted: u64,
    /// Writes refused because there was no room for them.
    pub refused: u64,
    /// Times that a partition was asked for a range of keys.
    pub ranges: u64,
    /// Lookups that found their key, here as primary: as Redis counts them.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
}

impl Limits {
    /// Of each of so many threads that share what is a node's.
    #[must_use]
    pub fn shared_by(mut self, threads: u8) -> Self {
        let threads = usize::from(threads.max(1));
        self.memory_bytes_max /= threads;
        self.tail_bytes_max /= threads;
        self.copies_max = self.copies_max.div_ceil(threads);
        self
    }

    /// Commands of Redis clients that are not whole, and likewise their answers, of one of so many
    /// data threads.
    pub fn clients_bytes_max(&self, threads: u8) -> usize {
        self.share(threads)
            .max(self.value_bytes_max.saturating_mul(2))
    }

    /// Frames of peers that are not whole, of one of so many data threads. Beyond it a connection
    /// is closed, and some of the largest values on their way at the same time are no fault of
    /// whoever sends them.
    pub fn frames_bytes_max(&self, threads: u8) -> usize {
        self.share(threads).max(
            self.value_bytes_max
                .saturating_mul(4)
                .clamp(FRAMES_BYTES_LEAST, FRAMES_BYTES_ENOUGH),
        )
    }

    /// Large answers that one peer has asked for and that are not on their way; all native clients
    /// together have as much. Most are shared with the store, so they may be more than other
    /// buffers: as much as what the Redis clients of another thread wait for.
    pub fn owed_bytes_max(&self) -> usize {
        let most = if self.memory_bytes_max == 0 {
            SHARE_BYTES_MAX
        } else {
            (self.memory_bytes_max / 2).min(SHARE_BYTES_MAX)
        };
        most.max(self.value_bytes_max.saturating_mul(2))
    }

    /// What buffers of one kind may take beside what is stored. A client of the cluster stores
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

impl Stats {
    /// Adds those of another thread of the node.
    pub fn add(&mut self, other: &Self) {
        self.keys += other.keys;
        self.memory_bytes += other.memory_bytes;
        self.memory_outside_bytes += other.memory_outside_bytes;
        self.compactions += other.compactions;
        self.memory_bytes_max += other.memory_bytes_max;
        // They share nothing of it.
        self.memory_filled = self.memory_filled.max(other.memory_filled);
        self.executed += other.executed;
        self.forwarded += other.forwarded;
        self.replicated += other.replicated;
        self.parked += other.parked;
        self.open += other.open;
        self.closed += other.closed;
        self.divided += other.divided;
        self.snapshot_bytes += other.snapshot_bytes;
        self.caught_up += other.caught_up;
        self.continued += other.continued;
        self.checksum_mismatches += other.checksum_mismatches;
        self.malformed += other.malformed;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.refused += other.refused;
        self.ranges += other.ranges;
        self.hits += other.hits;
        self.misses += other.misses;
    }

    /// A key was looked for.
    #[inline]
    pub(super) fn count_lookup(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
    }
}

/// A peer's bytes made no sense; its connection must be closed. Nothing was changed by the
/// malformed frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed data frame: {0}")]
pub struct Malformed(pub &'static str);
