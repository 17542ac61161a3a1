//! Work that the whole cluster does once.

use super::lock::Lock;
use super::permit::Grant;
use crate::error::Error;
use crate::map::Map;
use crate::node::Node;
use std::fmt;
use std::time::Duration;

/// The map of what was done.
const DONE: &str = "doyen.done";

/// Work that is done once in the whole cluster, from [`Node::once`].
///
/// ```no_run
/// # async fn import() {}
/// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let once = node.once("import 2026-11");
/// if let Some(turn) = once.begin(Duration::from_secs(60)).await? {
///     import().await;
///     turn.done().await?; // without this, the next caller begins
/// }
/// # Ok(()) }
/// ```
///
/// If the process that works dies, another one begins. So the work may be begun more than once, and
/// is finished once.
#[derive(Clone)]
pub struct Once {
    lock: Lock,
    node: Node,
    name: String,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// It is this process's turn to do the work. Dropping it lets another process begin.
///
/// Example: [`Once`].
#[derive(Debug)]
#[must_use = "dropping it lets another process begin"]
pub struct Turn {
    grant: Grant,
    done: Map<String, u64>,
    name: String,
}

impl Once {
    pub(crate) fn new(node: Node, name: &str) -> Self {
        Self {
            lock: Lock::new(node.clone(), format!("once/{name}"), 1),
            node,
            name: name.to_owned(),
        }
    }

    /// The keyspace, as for [`Lock::keyspace`].
    #[must_use]
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.lock = self.lock.keyspace(keyspace);
        self
    }

    /// How long a turn may block its runtime, as for [`Lock::blocked_max`].
    #[must_use]
    pub fn blocked_max(mut self, limit: Duration) -> Self {
        self.lock = self.lock.blocked_max(limit);
        self
    }

    /// Begins the work if it is not done. If another process works, waits for it, for so long at
    /// most. `None`: it is done.
    ///
    /// # Errors
    /// [`Error::Busy`]: another process still works. Otherwise as for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// If the future is dropped, this caller leaves the line, as for [`Lock::acquire`], and its
    /// turn is given up.
    pub async fn begin(&self, limit: Duration) -> Result<Option<Turn>, Error> {
        let done = self.all_done().await?;
        if done.contains(&self.name).await? {
            return Ok(None);
        }
        let grant = self.lock.acquire(limit).await?;
        // It may have been done meanwhile.
        if done.contains(&self.name).await? {
            return Ok(None);
        }
        Ok(Some(Turn {
            grant,
            done,
            name: self.name.clone(),
        }))
    }

    /// Whether it is done.
    ///
    /// # Errors
    /// As for [`Map::contains`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn is_done(&self) -> Result<bool, Error> {
        self.all_done().await?.contains(&self.name).await
    }

    /// Forgets that it was done, so that the next caller does it again.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
    /// let import = node.once("import 2026-11");
    /// if import.is_done().await? {
    ///     import.forget().await?; // the file was corrected: import it again
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::remove`].
    ///
    /// # Cancel safety
    /// If the future is dropped, it may be forgotten or not, now or a little later.
    pub async fn forget(&self) -> Result<bool, Error> {
        self.all_done().await?.remove(&self.name).await
    }

    /// What was done, with the token of the turn that did it.
    async fn all_done(&self) -> Result<Map<String, u64>, Error> {
        let done = self.node.map(DONE).keyspace(self.lock.in_keyspace());
        done.await
    }
}

impl Turn {
    /// The fencing token, as [`Grant::token`].
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.grant.token()
    }

    /// Waits until it is no longer certain that it is this process's turn, as [`Grant::lost`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed. It may stand in a `select!`.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.grant.lost()
    }

    /// The work is done: no process begins it again.
    ///
    /// # Errors
    /// [`Error::Fenced`]: another process has begun it meanwhile, and done it. Otherwise as for
    /// [`Map::insert`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the work may count as done or not, now or a little later. If not,
    /// the turn is given up, and the next caller begins the work again.
    pub async fn done(self) -> Result<(), Error> {
        let token = self.grant.token();
        self.done.put(&self.name, &token).fenced(token).await?;
        // If this gets no answer, the lock ends after its time to live.
        let _ = self.grant.release().await;
        Ok(())
    }
}
