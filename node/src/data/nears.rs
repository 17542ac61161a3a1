//! The near caches of this process, which forget what this process writes before its callers are
//! answered. So a process sees its own acknowledged writes.

#[cfg(feature = "metrics")]
use super::NearFigures;
#[cfg(feature = "metrics")]
use crate::clock;
use bytes::Bytes;
use doyen_engine::op::Work;
#[cfg(feature = "metrics")]
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A near cache.
pub(crate) trait Forgets: Send + Sync {
    /// The key was written by this process.
    fn forget(&self, key: &[u8]);
    /// Any key may have been.
    fn forget_all(&self);
    /// How many copies it has, and when the partition was confirmed that waits for that the
    /// longest.
    #[cfg(feature = "metrics")]
    fn holds(&self) -> (u64, Option<Time>);
}

/// What a near cache was asked.
#[derive(Debug, Default)]
pub(crate) struct NearCounts {
    /// Reads that a copy answered.
    pub(crate) hits: AtomicU64,
    /// Reads for which there was no copy.
    pub(crate) misses: AtomicU64,
    /// Reads whose copy was not confirmed within the bound.
    pub(crate) unconfirmed: AtomicU64,
}

impl NearCounts {
    /// Hits, misses, and reads of what was not confirmed.
    pub(crate) fn read(&self) -> [u64; 3] {
        let Self {
            hits,
            misses,
            unconfirmed,
        } = self;
        [hits, misses, unconfirmed].map(|counter| counter.load(Ordering::Relaxed))
    }
}

/// The keyspace and the map of a near cache.
type NearPlace = (KeyspaceId, MapId);

struct KnownNear {
    place: NearPlace,
    near: Weak<dyn Forgets>,
    /// They outlive it.
    counts: Arc<NearCounts>,
}

#[derive(Default)]
struct KnownNears {
    alive: Vec<KnownNear>,
    /// What those were asked that are gone.
    gone: BTreeMap<NearPlace, [u64; 3]>,
}

impl KnownNears {
    /// Forgets the near caches that are gone, and keeps what they counted.
    fn prune(&mut self) {
        let gone = &mut self.gone;
        self.alive.retain(|known| {
            let lives = known.near.strong_count() > 0;
            if !lives {
                add(gone.entry(known.place).or_default(), known.counts.read());
            }
            lives
        });
    }
}

fn add(sum: &mut [u64; 3], counts: [u64; 3]) {
    sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
}

/// All near caches of this node.
#[derive(Default)]
pub(super) struct Nears {
    /// How many there are, so that operations without one take no lock.
    count: AtomicUsize,
    /// A lock that is held for moments, because callers are on any thread.
    all: Mutex<KnownNears>,
}

impl fmt::Debug for Nears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nears").field(&self.count).finish()
    }
}

/// What near caches have of what an operation writes: each with the key, or any key.
pub(super) struct NearWrites(Vec<(Arc<dyn Forgets>, Option<Bytes>)>);

impl fmt::Debug for NearWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Written").field(&self.0.len()).finish()
    }
}

impl NearWrites {
    /// It was executed, or may have been.
    pub(super) fn forget(&self) {
        for (near, key) in &self.0 {
            match key {
                Some(key) => near.forget(key),
                None => near.forget_all(),
            }
        }
    }
}

impl Nears {
    fn all(&self) -> MutexGuard<'_, KnownNears> {
        // Each change of it is one step.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A near cache of a map, for as long as it lives.
    pub(super) fn add(&self, place: NearPlace, near: Weak<dyn Forgets>, counts: Arc<NearCounts>) {
        let mut all = self.all();
        all.prune();
        all.alive.push(KnownNear {
            place,
            near,
            counts,
        });
        self.count.store(all.alive.len(), Ordering::Release);
    }

    /// What near caches were asked, and what they have, by map.
    #[cfg(feature = "metrics")]
    pub(super) fn figures(&self) -> Vec<NearFigures> {
        let mut all = self.all();
        all.prune();
        let mut sums = all.gone.clone();
        let mut held: BTreeMap<NearPlace, (u64, Option<Time>)> = BTreeMap::new();
        for known in &all.alive {
            add(sums.entry(known.place).or_default(), known.counts.read());
            let Some(near) = known.near.upgrade() else {
                continue;
            };
            let (entries, confirmed) = near.holds();
            let (sum, oldest) = held.entry(known.place).or_default();
            *sum += entries;
            *oldest = (*oldest).into_iter().chain(confirmed).min();
        }
        let now = clock::now();
        let figures = sums.into_iter().map(|(map, [hits, misses, unconfirmed])| {
            let (entries, oldest) = held.get(&map).copied().unwrap_or_default();
            NearFigures {
                map,
                hits,
                misses,
                unconfirmed,
                entries,
                lag: oldest.map(|oldest| now.since(oldest)),
            }
        });
        figures.collect()
    }

    /// What near caches have of what an operation may write.
    pub(super) fn written(&self, work: &Work) -> Option<NearWrites> {
        if self.count.load(Ordering::Acquire) == 0 || !work.is_write() {
            return None;
        }
        let mut written = Vec::new();
        let all = self.all();
        let mut write = |place: (KeyspaceId, MapId), key: Option<&Bytes>| {
            let of = all.alive.iter().filter(|known| known.place == place);
            let nears = of.filter_map(|known| known.near.upgrade());
            written.extend(nears.map(|near| (near, key.cloned())));
        };
        match work {
            Work::Key(op) => write((op.keyspace, op.map), Some(&op.key)),
            Work::Partition(op) => write((op.keyspace, op.map), None),
            Work::Transaction(of) => {
                of.keys()
                    .for_each(|(map, key)| write((of.keyspace, map), Some(key)));
            }
            // Scripts write databases, and those have no near caches.
            Work::Script(_) => {}
        }
        (!written.is_empty()).then_some(NearWrites(written))
    }
}
