//! One leader of a name in the whole cluster.

use super::lock::Lock;
use super::permit::Grant;
use crate::error::Error;
use crate::map::Map;
use crate::node::Node;
use std::fmt;
use std::time::Duration;

/// The map of who leads.
const LEADERS: &str = "doyen.leaders";

/// An election of one leader, from [`Node::election`]: any number of processes stand for it, and
/// one leads at a time.
///
/// ```no_run
/// # async fn schedule() {}
/// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
/// let election = node.election("scheduler");
/// loop {
///     let leadership = election.lead().await?; // waits until this process leads
///     tokio::select! {
///         () = schedule() => {}
///         () = leadership.lost() => eprintln!("another process may lead now"),
///     }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    lock: Lock,
    node: Node,
    name: String,
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// This process leads. Dropping it resigns.
///
/// Example: [`Election`].
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership(Grant);

impl Election {
    pub(crate) fn new(node: Node, name: &str) -> Self {
        Self {
            lock: Lock::new(node.clone(), format!("election/{name}"), 1),
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

    /// How long a leader that has died or is cut off still counts, as for [`Lock::ttl`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// How long a leader may block its runtime, as for [`Lock::blocked_max`].
    #[must_use]
    pub fn blocked_max(mut self, limit: Duration) -> Self {
        self.lock = self.lock.blocked_max(limit);
        self
    }

    /// Stands for the election, and waits until this process leads, without end. If the future is
    /// dropped, it does not stand any more.
    ///
    /// # Errors
    /// As for [`Lock::acquire`], but never `Busy`.
    ///
    /// # Cancel safety
    /// If the future is dropped, this process does not stand any more, as for [`Lock::acquire`]. A
    /// leadership that it was given meanwhile is given up.
    pub async fn lead(&self) -> Result<Leadership, Error> {
        let grant = self.lock.acquire_until(None).await?;
        let names = self.names().await?;
        let leader = (self.node.name().to_owned(), grant.token());
        match names.put(&self.name, &leader).fenced(grant.token()).await {
            // The next leader has written already: this one will learn that it is lost.
            Ok(()) | Err(Error::Fenced) => Ok(Leadership(grant)),
            Err(why) => Err(why),
        }
    }

    /// The name of the node that leads ([`Builder::name`](crate::Builder::name)). `None`: none
    /// does.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
    /// match node.election("scheduler").leader().await? {
    ///     Some(name) => println!("{name} is the scheduler"),
    ///     None => println!("nothing is scheduled at the moment"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Lock::state`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn leader(&self) -> Result<Option<String>, Error> {
        let state = self.lock.state().await?;
        if state.holders == 0 {
            return Ok(None);
        }
        let leader = self.names().await?.get(&self.name).await?;
        // Otherwise a leader was just elected, and its name is not known yet.
        Ok(leader
            .filter(|(_, token)| Some(*token) == state.token)
            .map(|(name, _)| name))
    }

    async fn names(&self) -> Result<Map<String, (String, u64)>, Error> {
        let names = self.node.map(LEADERS).keyspace(self.lock.in_keyspace());
        names.await
    }
}

impl Leadership {
    /// The fencing token, as [`Grant::token`].
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.0.token()
    }

    /// Whether this process certainly leads at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Waits until it is no longer certain that this process leads, as [`Grant::lost`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed. It may stand in a `select!`.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.lost()
    }

    /// Resigns. Returns whether this process still led.
    ///
    /// # Errors
    /// As for [`Grant::release`].
    ///
    /// # Cancel safety
    /// If the future is dropped, this process resigns all the same.
    pub async fn resign(self) -> Result<bool, Error> {
        self.0.release().await
    }
}
