//! A lock or a semaphore of the cluster.

use super::line::LockLine;
use super::permit::{Grant, Lasts};
use super::{LockPlace, refused};
use crate::error::Error;
use crate::node::Node;
use doyen_engine::sync::{self, Owner, Permits};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The map of locks.
const LOCKS: &str = "doyen.locks";
/// The time to live of a grant, by default.
const TTL: Duration = Duration::from_secs(15);
/// The shortest time to live. A grant gives itself up 1.3 s and 2 % before its end, because clocks
/// differ, and is renewed after a third.
const TTL_LEAST: Duration = Duration::from_secs(5);
/// How long a holder's runtime may be blocked, by default, and at least.
const BLOCKED: Duration = Duration::from_secs(300);
const BLOCKED_LEAST: Duration = Duration::from_secs(1);

/// A lock of the cluster ([`Node::lock`]), or a semaphore with several permits
/// ([`Node::semaphore`]). Who asks first is served first.
///
/// ```no_run
/// # async fn report() {}
/// # type Totals = doyen::Map<String, u64>;
/// # async fn example(node: doyen::Node, totals: Totals) -> Result<(), doyen::Error> {
/// let lock = node.lock("nightly report");
/// if let Some(grant) = lock.try_acquire().await? {
///     tokio::select! {
///         () = report() => {
///             // A write with the token is refused if another process got the lock meanwhile.
///             totals.put("reports", &1).fenced(grant.token()).await?;
///         }
///         () = grant.lost() => eprintln!("another process may have the lock now"),
///     }
///     grant.release().await?;
/// }
/// # Ok(()) }
/// ```
///
/// A grant renews itself while its process runs and reaches the cluster, also while the holder
/// blocks its thread or its whole runtime ([`blocked_max`](Lock::blocked_max)). If it does not, the
/// grant ends after its time to live, and the next in line is served. A process that was paused may
/// find only afterwards that it lost the lock; [`Put::fenced`](crate::Put::fenced) keeps what it
/// then writes out.
///
/// # The line
/// Callers wait in line at the primary of the lock. A lock that is given back is the next caller's
/// after one round trip, and any number of callers waits without cost. A line survives a failover,
/// a move, and a node that is expelled and joins again, in its order. Callers that wait take no
/// places from other operations.
///
/// A data thread of a member has room for 131,072 waiters, in an eighth of its memory at most (1 KB
/// each). Each process may fill as much of it as is left: one alone has half, and two have a third
/// each. Clients leave one half to members. A caller that finds no room gets [`Error::Overloaded`].
#[derive(Clone)]
pub struct Lock {
    node: Node,
    keyspace: String,
    key: String,
    permits: u16,
    /// All callers have to give the same number of permits.
    is_semaphore: bool,
    lasts: Lasts,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", &self.key)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

/// Who holds a lock or a semaphore, and who waits.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
/// let state = node.semaphore("uploads", 5).state().await?;
/// println!("{} uploads, {} wait", state.holders, state.waiters);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// Permits that are taken.
    pub holders: usize,
    /// Callers that wait in line.
    pub waiters: usize,
    /// The token of the last grant, if there is a holder or a waiter.
    pub token: Option<u64>,
}

impl Lock {
    pub(crate) fn new(node: Node, key: String, permits: u16) -> Self {
        Self {
            node,
            keyspace: doyen_placement::planner::DEFAULT_KEYSPACE.to_owned(),
            key,
            permits,
            is_semaphore: false,
            lasts: Lasts {
                ttl: TTL,
                blocked_max: BLOCKED,
            },
        }
    }

    /// The lock as a semaphore.
    pub(crate) const fn semaphore(mut self) -> Self {
        self.is_semaphore = true;
        self
    }

    /// The keyspace of the lock; `default` without this. It must not evict keys, because a lock
    /// that is evicted is lost.
    #[must_use]
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.keyspace = keyspace.into();
        self
    }

    /// How long a grant outlives a holder that has died or is cut off; 15 s by default, 5 s at
    /// least, 24 days at most. Another time is refused when the lock is asked for
    /// ([`Error::Refused`]).
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.lasts.ttl = ttl;
        self
    }

    /// How long a grant is renewed although the tokio runtime in which it was acquired gives no
    /// sign of life, because the holder blocks it; 5 minutes by default, a second at least. After
    /// that the grant ends within its time to live. A runtime with several threads gives signs of
    /// life as long as one of them is free.
    ///
    /// ```no_run
    /// # fn import() {}
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = node.lock("import").blocked_max(Duration::from_secs(3600));
    /// let grant = lock.acquire(Duration::from_secs(60)).await?;
    /// import(); // blocks this thread for half an hour
    /// assert!(grant.release().await?, "it was held all the time");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn blocked_max(mut self, limit: Duration) -> Self {
        self.lasts.blocked_max = limit;
        self
    }

    /// Acquires the lock if it is free and no caller waits for it. `None`: it is not.
    ///
    /// # Errors
    /// [`Error::Refused`]: the keyspace evicts keys, there are too many permits, a time is out of
    /// bounds, or the semaphore is in use with another number of permits; the text names both.
    /// [`Error::Unavailable`] and its like: the cluster does not answer. A grant that this caller
    /// was given without knowing it is given back, or ends after its time to live if the cluster
    /// is not reached.
    ///
    /// # Cancel safety
    /// If the future is dropped, a grant that was given meanwhile is given back.
    pub async fn try_acquire(&self) -> Result<Option<Grant>, Error> {
        let (place, permits) = self.place().await?;
        let line = LockLine::new(place, Owner(rand::random()), permits);
        line.try_once(self.lasts).await
    }

    /// Acquires the lock, and waits in line for so long at most.
    ///
    /// ```no_run
    /// # async fn upload() {}
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::Error;
    /// use std::time::Duration;
    ///
    /// let uploads = node.semaphore("uploads", 5); // five at a time in the whole cluster
    /// match uploads.acquire(Duration::from_secs(10)).await {
    ///     Ok(_permit) => upload().await, // dropped at the end: the next in line goes on
    ///     Err(Error::Busy) => println!("too many uploads: try again later"),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`]: it is not this caller's turn in time. [`Error::Overloaded`]: too many
    /// callers wait at the member that has the lock. Otherwise as for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// If the future is dropped, this caller leaves the line, and a grant that was given meanwhile
    /// is given back. If the cluster cannot be reached at that moment, the place ends with the
    /// connection, and the grant after its time to live.
    pub async fn acquire(&self, limit: Duration) -> Result<Grant, Error> {
        let until = Instant::now().checked_add(limit);
        self.acquire_until(until).await
    }

    /// Acquires the lock, until this moment or without end.
    pub(super) async fn acquire_until(&self, until: Option<Instant>) -> Result<Grant, Error> {
        let (place, permits) = self.place().await?;
        let line = LockLine::new(place, Owner(rand::random()), permits);
        line.wait(self.lasts, until).await
    }

    /// Who holds it, and who waits.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn state(&self) -> Result<LockState, Error> {
        let (place, _) = self.place().await?;
        let looked = sync::read_looked(&place.execute(sync::look()).await).map_err(refused)?;
        Ok(LockState {
            holders: looked.holders,
            waiters: looked.waiters,
            token: looked.token,
        })
    }

    pub(super) fn in_keyspace(&self) -> &str {
        &self.keyspace
    }

    async fn place(&self) -> Result<(LockPlace, (Permits, bool)), Error> {
        let permits = Permits::new(self.permits).ok_or_else(|| {
            Error::Refused(format!(
                "a semaphore has 1 to {} permits, not {}: give such a number",
                sync::PERMITS_MAX,
                self.permits
            ))
        })?;
        let most = Duration::from_millis(sync::MS_MAX);
        for (what, time, least) in [
            ("ttl", self.lasts.ttl, TTL_LEAST),
            ("blocked_max", self.lasts.blocked_max, BLOCKED_LEAST),
        ] {
            if !(least..=most).contains(&time) {
                return Err(Error::Refused(format!(
                    "{what} of the lock {} is {time:?}: give from {least:?} to 24 days",
                    self.key
                )));
            }
        }
        let (entry, data, evicts) = self.node.place_of(&self.keyspace, LOCKS).await?;
        if evicts {
            return Err(Error::Refused(format!(
                "the keyspace {} evicts keys, and with them locks: make another one, and give it \
                 to the lock (.keyspace(NAME))",
                self.keyspace
            )));
        }
        let place = LockPlace {
            data,
            keyspace: entry.keyspace,
            map: entry.id,
            key: self.key.clone().into(),
        };
        Ok((place, (permits, self.is_semaphore)))
    }
}
