//! What the control thread shows to the data threads: views and the lease.
//!
//! The control thread writes, and data threads read. A view is published before the ack of its
//! table leaves this node (rule 8). A data thread compares `generation` and `lease` *after* it has
//! read a value and before the answer leaves.

use arc_swap::ArcSwap;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{KeyspaceId, MapId, MemberId, PartitionId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the control thread shows to the data threads.
#[derive(Debug)]
pub struct Shared {
    local: ArcSwap<LocalView>,
    generation: AtomicU64,
    lease: AtomicU64,
    stopped: AtomicBool,
    listener: OnceLock<LeaseListener>,
}

/// Called after each published view.
struct LeaseListener(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for LeaseListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

/// This process, and the tables that it acts on.
#[derive(Debug, Clone)]
pub struct LocalView {
    /// The id of this process. After an expulsion it is another one, and everything held is void.
    pub me: MemberId,
    /// The tables in force; `None` until this process is a member.
    pub view: Option<View>,
}

impl Shared {
    /// The state of a process that is not a member yet.
    #[must_use]
    pub fn new(me: MemberId) -> Self {
        Self {
            local: ArcSwap::from_pointee(LocalView { me, view: None }),
            generation: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            listener: OnceLock::new(),
        }
    }

    /// Publishes another view. When this returns, every data thread that compares generations sees
    /// it.
    pub fn publish(&self, local: LocalView) {
        self.local.store(Arc::new(local));
        self.generation.fetch_add(1, Ordering::SeqCst);
        if let Some(listener) = self.listener.get() {
            listener.0();
        }
    }

    /// Whether this node's half of a split serves nothing (rule 13): clients get an error at once.
    pub(crate) fn stop(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Moves the lease. It moves back only when a process is expelled, or its half of a split stops
    /// (to `Time::ZERO`).
    pub fn extend_lease(&self, until: Time) {
        self.lease.store(until.0, Ordering::SeqCst);
    }

    /// A number that rises with each published view.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The time until which this node may serve.
    #[must_use]
    pub fn lease(&self) -> Time {
        Time(self.lease.load(Ordering::SeqCst))
    }

    /// The present view. Load `generation` first: then the view is at least as new as that
    /// generation.
    #[must_use]
    pub fn local(&self) -> Arc<LocalView> {
        self.local.load_full()
    }

    /// The partition that holds this key of this map, by the present view.
    pub(crate) fn partition_of(
        &self,
        keyspace: KeyspaceId,
        map: MapId,
        key: &[u8],
    ) -> Option<PartitionId> {
        self.local
            .load()
            .view
            .as_ref()?
            .installed
            .keyspace(keyspace)?
            .partition_of(map, key)
    }

    /// Calls `changed` after each published view, to wake sleeping data threads. There is only one
    /// listener: further calls have no effect.
    pub fn listen(&self, changed: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(LeaseListener(Box::new(changed)));
    }
}
