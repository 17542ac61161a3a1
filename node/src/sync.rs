//! Locks, semaphores, leaders, work that is done once, and rate limits, for the whole cluster.
//!
//! ```text
//!   node.lock("x") ── acquire ──> Grant (`permit`) ── token, lost, release
//!                       │            └─ renews itself while it is held
//!                       └─ no permit: wait in line at the primary (`line`)
//! ```
//! The engine decides (`doyen_engine::sync`), by the clock of the partition that has the key. A
//! grant gives itself up before its lease can be over there, by the clock of this process.

mod election;
mod limit;
mod line;
mod lock;
mod once;
mod permit;

pub use election::{Election, Leadership};
pub use limit::{Decision, OpenRateLimiter, RateLimiter};
pub use lock::{Lock, LockState};
pub use once::{Once, Turn};
pub use permit::Grant;

use crate::data::DataHandle;
use crate::error::Error;
use crate::node::Node;
use bytes::Bytes;
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_engine::sync::UnansweredReason;
use doyen_placement::{KeyspaceId, MapId};
use tokio::time::Instant;

impl Node {
    /// The lock of this name, which one caller in the cluster holds at a time. Nothing happens yet.
    #[must_use]
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(self.clone(), format!("lock/{name}"), 1)
    }

    /// The semaphore of this name. At most `permits` callers in the cluster hold it at a time, 1 to
    /// 1,024. All must give the same number: as long as one holds or waits, a caller with another
    /// number gets [`Error::Refused`], which names both. Nothing happens yet.
    #[must_use]
    pub fn semaphore(&self, name: &str, permits: u16) -> Lock {
        Lock::new(self.clone(), format!("semaphore/{name}"), permits).semaphore()
    }

    /// The election of this name, which has one leader at a time. Nothing happens yet.
    #[must_use]
    pub fn election(&self, name: &str) -> Election {
        Election::new(self.clone(), name)
    }

    /// The work of this name, which the cluster does once. Nothing happens yet.
    #[must_use]
    pub fn once(&self, name: &str) -> Once {
        Once::new(self.clone(), name)
    }

    /// Opens the rate limiter of this name. Say how it limits, then await it.
    pub fn rate_limiter<K>(&self, name: &str) -> OpenRateLimiter<K> {
        OpenRateLimiter::new(self.clone(), name)
    }
}

/// One key of the cluster that locks something.
#[derive(Debug, Clone)]
struct LockPlace {
    data: DataHandle,
    keyspace: KeyspaceId,
    map: MapId,
    key: Bytes,
}

impl LockPlace {
    fn operation(&self, action: Action) -> Operation {
        Operation {
            keyspace: self.keyspace,
            map: self.map,
            key: self.key.clone(),
            action,
        }
    }

    fn execute(&self, action: Action) -> impl Future<Output = Outcome> + Send + use<> {
        self.data.execute(self.operation(action))
    }

    /// Executes once it is not blocked ([`DataHandle::wait`]).
    fn wait(
        &self,
        action: Action,
        since: Instant,
        until: Option<Instant>,
    ) -> impl Future<Output = Result<(Instant, Outcome), Outcome>> + Send + use<> {
        self.data.wait(self.operation(action), since, until)
    }

    /// Executes without waiting for the outcome.
    fn send(&self, action: Action) {
        self.data.send(self.operation(action));
    }
}

/// The error of an answer.
fn refused(why: UnansweredReason) -> Error {
    match why {
        UnansweredReason::Failed(failure) => Error::of_write(failure),
        UnansweredReason::Foreign => Error::Unexpected(why.to_string()),
    }
}
