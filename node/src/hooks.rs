//! What a test in the same process may do to a node: hold its threads, drop its datagrams, and move
//! the clock of its data.
//!
//! ```text
//!   testkit::Local ─> Rig <─ Hooks ─┬─ control thread: its loop, its socket
//!                                   └─ data threads: their loops, their sockets, their clocks
//! ```
//! Only [`testkit::Local`](crate::testkit::Local) attaches a rig. A node without one finds that out
//! by one comparison. Without the feature `testkit-local`, hooks have no size and no code.

#[cfg(feature = "testkit-local")]
pub(crate) mod rig;

use std::net::SocketAddr;
#[cfg(feature = "testkit-local")]
use std::sync::Arc;
use std::time::Duration;

/// A node's end of the hooks. All threads of a node have the same.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    #[cfg(feature = "testkit-local")]
    rig: Option<Arc<rig::Rig>>,
}

impl Hooks {
    /// Hooks that this rig holds.
    #[cfg(feature = "testkit-local")]
    pub(crate) fn of(rig: Arc<rig::Rig>) -> Self {
        Self { rig: Some(rig) }
    }

    /// Blocks this thread for as long as its node is paused.
    #[inline]
    pub(crate) fn hold(&self) {
        #[cfg(feature = "testkit-local")]
        if let Some(rig) = &self.rig {
            rig.hold();
        }
    }

    /// Whether datagrams to this address may leave.
    #[inline]
    pub(crate) fn lets_out(&self, to: SocketAddr) -> bool {
        #[cfg(feature = "testkit-local")]
        if let Some(rig) = &self.rig {
            return rig.lets_out(to);
        }
        let _ = to;
        true
    }

    /// Whether datagrams that arrived may be read.
    #[inline]
    pub(crate) fn lets_in(&self) -> bool {
        #[cfg(feature = "testkit-local")]
        if let Some(rig) = &self.rig {
            return rig.lets_in();
        }
        true
    }

    /// How far the clock of data is ahead of the machine's.
    #[inline]
    pub(crate) fn ahead(&self) -> Duration {
        #[cfg(feature = "testkit-local")]
        if let Some(rig) = &self.rig {
            return rig.ahead();
        }
        Duration::ZERO
    }
}
