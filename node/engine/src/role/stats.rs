//! What a shard counts.

use super::copy_stats::{CopyStats, add_figures};

/// Counters and gauges, for metrics, `status` and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys held, as primary and as copy.
    pub keys: u64,
    /// Bytes held: entries, tails, snapshots.
    pub memory_bytes: u64,
    /// Bytes that also count: buffers, dropped entries that are not freed yet, and gaps that the
    /// allocator keeps.
    pub memory_outside_bytes: u64,
    /// How often entries were moved to give back the memory between them.
    pub compactions: u64,
    /// The limit of all these bytes.
    pub memory_bytes_max: u64,
    /// How much of that is taken, in thousandths. Of several threads, the fullest counts.
    pub memory_filled: u64,
    /// Operations executed here as primary.
    pub executed: u64,
    /// Operations forwarded to another primary.
    pub forwarded: u64,
    /// What was sent to copies.
    pub copies: CopyStats,
    /// Operations that are parked now.
    pub parked: u64,
    /// Partitions that this node leads and that are open.
    pub open: u64,
    /// Partitions that this node leads and that are not open yet.
    pub closed: u64,
    /// Partitions whose keys are still being divided after a split or a merge.
    pub divided: u64,
    /// Frames of peers that were malformed.
    pub malformed: u64,
    /// Keys expired.
    pub expired: u64,
    /// Keys evicted.
    pub evicted: u64,
    /// Writes that were refused because there was no room.
    pub refused: u64,
    /// How often a partition was asked for a range of keys.
    pub ranges: u64,
    /// Lookups at this primary that found their key, as Redis counts them.
    pub hits: u64,
    /// Lookups at this primary that found no key.
    pub misses: u64,
    /// Messages of publishers that came to this thread, which has subscribers.
    pub published: u64,
    /// Messages of publishers that were dropped: this thread was too slow to hand them out, or a
    /// peer too slow to take them.
    pub published_dropped: u64,
}

impl Stats {
    /// Adds the figures of another thread of the node.
    pub fn add(&mut self, other: &Self) {
        add_figures!(self, other, [
            keys memory_bytes memory_outside_bytes compactions memory_bytes_max executed forwarded
            parked open closed divided malformed expired evicted refused ranges hits misses
            published published_dropped
        ] and [copies memory_filled]);
        self.copies.add(&other.copies);
        // The threads do not share this memory.
        self.memory_filled = self.memory_filled.max(other.memory_filled);
    }

    /// Counts a lookup of a key.
    #[inline]
    pub(crate) fn count_lookup(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
    }

    /// Counts lookups of keys: those that were found, and those that were not.
    pub(crate) fn count_lookups(&mut self, (hits, misses): (u64, u64)) {
        self.hits += hits;
        self.misses += misses;
    }
}
