//! What a map was asked, counted in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a map in this process, from [`Map::stats`](crate::Map::stats). All clones of a
/// [`Map`](crate::Map) count together; another [`Node::map`](crate::Node::map) counts from 0.
///
/// ```no_run
/// # fn example(users: &doyen::Map<u64, String>) {
/// let stats = users.stats();
/// let reads = stats.hits + stats.misses;
/// println!("{reads} reads, {:.0} % hits, {} writes", stats.hit_ratio() * 100.0, stats.writes);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapStats {
    /// Reads that found a value.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Writes that were acknowledged, also those that changed nothing.
    pub writes: u64,
}

impl MapStats {
    /// The part of reads that found a value, 0 to 1; 0 if there were none.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    writes: AtomicU64,
}

impl Counts {
    pub(super) fn looked_up(&self, found: bool) {
        let counter = if found { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> MapStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MapStats {
            hits: of(&self.hits),
            misses: of(&self.misses),
            writes: of(&self.writes),
        }
    }
}

impl<K, V> super::Map<K, V> {
    /// What this map was asked by this process, since it was opened.
    #[must_use]
    pub fn stats(&self) -> MapStats {
        self.counts.read()
    }
}
