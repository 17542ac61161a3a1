//! The near caches of this process, which forget what this process writes before its callers are
//! answered. So a process sees its own acknowledged writes.

use bytes::Bytes;
use doyen_engine::op::Work;
use doyen_placement::{KeyspaceId, MapId};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A near cache.
pub(crate) trait Forgets: Send + Sync {
    /// The key was written by this process.
    fn forget(&self, key: &[u8]);
    /// Any key may have been.
    fn forget_all(&self);
}

type KnownNear = (KeyspaceId, MapId, Weak<dyn Forgets>);

/// All near caches of this node.
#[derive(Default)]
pub(super) struct Nears {
    /// How many there are, so that operations without one take no lock.
    count: AtomicUsize,
    /// A lock that is held for moments, because callers are on any thread.
    all: Mutex<Vec<KnownNear>>,
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
    fn all(&self) -> MutexGuard<'_, Vec<KnownNear>> {
        // Each change of it is one step.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A near cache of a map, for as long as it lives.
    pub(super) fn add(&self, keyspace: KeyspaceId, map: MapId, near: Weak<dyn Forgets>) {
        let mut all = self.all();
        all.retain(|(.., near)| near.strong_count() > 0);
        all.push((keyspace, map, near));
        self.count.store(all.len(), Ordering::Release);
    }

    /// What near caches have of what an operation may write.
    pub(super) fn written(&self, work: &Work) -> Option<NearWrites> {
        if self.count.load(Ordering::Acquire) == 0 || !work.is_write() {
            return None;
        }
        let mut written = Vec::new();
        let all = self.all();
        let mut write = |place: (KeyspaceId, MapId), key: Option<&Bytes>| {
            let of = all
                .iter()
                .filter(|(keyspace, map, _)| (*keyspace, *map) == place);
            let nears = of.filter_map(|(.., near)| near.upgrade());
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
