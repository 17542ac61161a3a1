//! What a data thread counts of its clients, and what `INFO` shows of all threads together.

use super::counts::CommandCounts;
use super::databases;
use crate::data::FrontEndCounters;

/// The counters of one data thread.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)] // Each is named after its line.
pub struct ThreadCounts {
    pub connected_clients: u64,
    pub client_bytes: u64,
    pub client_output_bytes: u64,
    pub memory_bytes: u64,
    pub memory_peak_bytes: u64,
    pub parked: u64,
    pub tracking: TrackingCounts,
    /// For the partitions of `default` that are led here: the keys of each database, and how many
    /// of them expire.
    pub databases: Box<[(u64, u64); databases::COUNT]>,
    /// The scripts that are stored in these partitions or kept by the thread, and their bytes.
    pub scripts: u64,
    pub script_bytes: u64,
    /// Keys of all keyspaces, including those of backups.
    pub keys_held: u64,
    pub totals: Totals,
    /// Commands, bytes received and bytes sent, per second.
    pub rates: [u64; 3],
    pub counts: CommandCounts,
}

/// What clients of a thread track (`CLIENT TRACKING`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its line.
pub struct TrackingCounts {
    pub clients: u64,
    pub keys: u64,
    /// Keys, each as often as there are clients that may have it.
    pub items: u64,
    pub prefixes: u64,
}

impl TrackingCounts {
    fn add(&mut self, other: Self) {
        self.clients += other.clients;
        self.keys += other.keys;
        self.items += other.items;
        self.prefixes += other.prefixes;
    }
}

/// Counters that `CONFIG RESETSTAT` sets to zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its line.
pub struct Totals {
    pub front: FrontEndCounters,
    /// Because of the output that waited for them.
    pub connections_expelled: u64,
    pub expired: u64,
    pub evicted: u64,
    pub hits: u64,
    pub misses: u64,
}

impl Totals {
    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            front: self.front.with(&other.front, &of),
            connections_expelled: of(self.connections_expelled, other.connections_expelled),
            expired: of(self.expired, other.expired),
            evicted: of(self.evicted, other.evicted),
            hits: of(self.hits, other.hits),
            misses: of(self.misses, other.misses),
        }
    }

    /// What was counted since `earlier`. (Counters of a former member of this process are gone with
    /// it.)
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }
}

impl ThreadCounts {
    /// Adds what another thread counts.
    pub fn add(&mut self, other: &Self) {
        self.connected_clients += other.connected_clients;
        self.client_bytes += other.client_bytes;
        self.client_output_bytes += other.client_output_bytes;
        self.memory_bytes += other.memory_bytes;
        self.memory_peak_bytes += other.memory_peak_bytes;
        self.parked += other.parked;
        self.tracking.add(other.tracking);
        for ((keys, expires), (more, expire)) in self.databases.iter_mut().zip(*other.databases) {
            *keys += more;
            *expires += expire;
        }
        self.scripts += other.scripts;
        self.script_bytes += other.script_bytes;
        self.keys_held += other.keys_held;
        self.totals = self.totals.with(&other.totals, u64::saturating_add);
        self.rates
            .iter_mut()
            .zip(other.rates)
            .for_each(|(mine, other)| *mine += other);
        self.counts.add(&other.counts);
    }
}
