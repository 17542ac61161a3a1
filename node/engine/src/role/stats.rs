//! What a shard counts.

use super::copy_stats::{CopyStats, add_figures};
use doyen_placement::KeyspaceId;

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
    /// Lookups of keys at this primary.
    pub lookups: Lookups,
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
            parked open closed divided malformed expired evicted refused ranges
            published published_dropped
        ] and [copies lookups memory_filled]);
        self.copies.add(&other.copies);
        self.lookups.add(&other.lookups);
        // The threads do not share this memory.
        self.memory_filled = self.memory_filled.max(other.memory_filled);
    }
}

/// Lookups of keys by keyspace, as Redis counts them: those that found their key, and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lookups(Vec<(KeyspaceId, [u64; 2])>);

impl Lookups {
    /// Counts a lookup of a key.
    #[inline]
    pub(crate) fn count(&mut self, keyspace: KeyspaceId, found: bool) {
        let [hits, misses] = self.counts(keyspace);
        *hits += u64::from(found);
        *misses += u64::from(!found);
    }

    /// Counts lookups of keys: those that were found, and those that were not.
    pub(crate) fn count_all(&mut self, keyspace: KeyspaceId, found: (u64, u64)) {
        let [hits, misses] = self.counts(keyspace);
        *hits += found.0;
        *misses += found.1;
    }

    /// There are few keyspaces, and one has most of the keys.
    #[inline]
    fn counts(&mut self, keyspace: KeyspaceId) -> &mut [u64; 2] {
        let at = self.0.iter().position(|(id, _)| *id == keyspace);
        let at = at.unwrap_or_else(|| {
            self.0.push((keyspace, [0; 2]));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn add(&mut self, other: &Self) {
        for (keyspace, [hits, misses]) in &other.0 {
            self.count_all(*keyspace, (*hits, *misses));
        }
    }

    /// Hits and misses of a keyspace.
    #[must_use]
    pub fn of(&self, keyspace: KeyspaceId) -> (u64, u64) {
        let of = self.0.iter().find(|(id, _)| *id == keyspace);
        of.map_or((0, 0), |(_, [hits, misses])| (*hits, *misses))
    }

    /// Hits and misses of all keyspaces.
    #[must_use]
    pub fn all(&self) -> (u64, u64) {
        let sum = |place: usize| self.0.iter().map(|(_, counts)| counts[place]).sum();
        (sum(0), sum(1))
    }
}
