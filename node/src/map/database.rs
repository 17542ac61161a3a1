//! Map 0 of a keyspace, which Redis clients use, as bytes.

use super::{RangeScan, ShardedCounter, SubscribeDatabase};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Operation, Outcome, Value};
use doyen_placement::{KeyspaceId, MapId};

/// Map 0 of a keyspace, as bytes: RESP's database 0, or the one that a Redis client selects with
/// `CLIENT KEYSPACE NAME`.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// let database = node.database();
/// database.set("greeting", "hello").await?; // redis-cli GET greeting
/// if let Some(value) = database.get("greeting").await? {
///     println!("{}", value.escape_ascii());
/// }
/// database.remove("greeting").await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Database {
    pub(super) keyspace: KeyspaceId,
    pub(super) data: DataHandle,
}

impl Database {
    pub(crate) const fn new(keyspace: KeyspaceId, data: DataHandle) -> Self {
        Self { keyspace, data }
    }

    /// The value that a Redis client would GET.
    ///
    /// # Errors
    /// No node serves the key for 5 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Value>, Error> {
        match self.execute(key.into(), Action::Get).await {
            Outcome::Bulk(value) => Ok(Some(value)),
            Outcome::Nil => Ok(None),
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Writes like a Redis client's SET.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert).
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn set(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), Error> {
        match self.execute(key.into(), Action::set(value.into())).await {
            Outcome::Ok => Ok(()),
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Removes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert).
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn remove(&self, key: impl Into<Bytes>) -> Result<bool, Error> {
        match self.execute(key.into(), Action::Delete).await {
            Outcome::Int(n) => Ok(n != 0),
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Follows the changes that anyone makes here, each as soon as it is committed. Changes of a
    /// key come in their order, and none is left out without being told
    /// ([`DatabaseChange::Lagged`](crate::DatabaseChange::Lagged)). Narrow it with
    /// [`SubscribeDatabase::prefix`] or [`SubscribeDatabase::key`].
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::{Cause, DatabaseChange, What};
    ///
    /// let mut changes = node.database().subscribe().prefix("session:").await?;
    /// while let Some(change) = changes.next().await {
    ///     match change {
    ///         DatabaseChange::Change(change) => {
    ///             let key = change.key.escape_ascii();
    ///             match change.what {
    ///                 What::Put(_, value) => println!("{key} is {value:?}"),
    ///                 What::Removed(Cause::Expired) => println!("{key} has expired"),
    ///                 other => println!("{key}: {other:?}"),
    ///             }
    ///         }
    ///         DatabaseChange::Lagged(count) => println!("{count:?} changes were missed"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: as for [`Map::subscribe`](crate::Map::subscribe).
    pub fn subscribe(&self) -> SubscribeDatabase {
        SubscribeDatabase::new(self.keyspace, self.data.clone())
    }

    /// A number that many callers add to at once, stored in `shards` keys. `shards` is from 1 to
    /// [`crate::SHARDS_MAX`]; other numbers become the nearest of those. All programs that share
    /// the counter must give the same number, and may raise it only once all others have. A name
    /// with a `{tag}` would keep all keys in one partition.
    #[must_use]
    pub fn sharded_counter(&self, name: impl AsRef<[u8]>, shards: u16) -> ShardedCounter {
        ShardedCounter::new(self.clone(), name.as_ref(), shards)
    }

    /// The keys from `from` up to `to`, in order, without `to` itself. An empty `to` is the end of
    /// the keyspace, or of the `{tag}`. `None` if the keyspace keeps no order: it was not made with
    /// [`KeyspaceOptions::ranges`](crate::KeyspaceOptions::ranges), or this node does not know it
    /// yet. Also `None` if it keeps an order only within a `{tag}`
    /// ([`KeyspaceOptions::ordered`](crate::KeyspaceOptions::ordered)), and the two ends do not
    /// begin with the same tag.
    #[must_use]
    pub fn range(&self, from: impl Into<Bytes>, to: impl Into<Bytes>) -> Option<RangeScan> {
        let place = (self.keyspace, MapId(0));
        RangeScan::of(&self.data, place, from.into(), to.into())
    }

    pub(crate) fn execute(
        &self,
        key: Bytes,
        action: Action,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        self.data.execute(Operation {
            keyspace: self.keyspace,
            map: MapId(0),
            key,
            action,
        })
    }
}
