//! What the control thread shows to the data threads: views and the lease.
//!
//! The control thread writes, data threads read. A view is published before the ack of the table
//! that it shows leaves this node (rule 8), and a data thread compares `generation` and `lease`
//! *after* it read a value and before the answer leaves.

use arc_swap::ArcSwap;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{KeyspaceId, MapId, MemberId, PartitionId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the control thread shows to the data threads.
#[derive(Debug)]
pub struct Shared {
    local: ArcSwap<Local>,
    generation: AtomicU64,
    lease: AtomicU64,
    listener: OnceLock<Listener>,
}

/// Is told that another view was published.
struct Listener(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

/// This process and what it acts on.
#[derive(Debug, Clone)]
pub struct Local {
    /// This process; another one after an expulsion, and then everything held is void.
    pub me: MemberId,
    /// The tables in force; `None` until this process is a member.
    pub view: Option<View>,
}

impl Shared {
    /// For a process that is no member yet.
    #[must_use]
    pub fn new(me: MemberId) -> Self {
        Self {
            local: ArcSwap::from_pointee(Local { me, view: None }),
            generation: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            listener: OnceLock::new(),
        }
    }

    /// Shows another view. When this returns, every data thread that compares generations sees it.
    pub fn publish(&self, local: Local) {
        self.local.store(Arc::new(local));
        self.generation.fetch_add(1, Ordering::SeqCst);
        if let Some(listener) = self.listener.get() {
            listener.0();
        }
    }

    /// Moves the lease. It may also move back (to `Time::ZERO`, when a process is expelled).
    pub fn extend_lease(&self, until: Time) {
        self.lease.store(until.0, Ordering::SeqCst);
    }

    /// Rises with every published view.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Until when this node may serve.
    #[must_use]
    pub fn lease(&self) -> Time {
        Time(self.lease.load(Ordering::SeqCst))
    }

    /// The present view. Load `generation` first: a view is at least as new as the generation read
    /// before it.
    #[must_use]
    pub fn local(&self) -> Arc<Local> {
        self.local.load_full()
    }

    /// Which partition holds this key of this map, by the present view.
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

    /// Calls this after every published view, for whoever sleeps meanwhile. There is one listener,
    /// which wakes the data threads; a second one is not heard.
    pub fn listen(&self, changed: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Listener(Box::new(changed)));
    }
}
