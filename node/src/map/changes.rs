//! Changes of keys, told as they are committed.
//!
//! A subscriber gets every change of a key, in the order in which they were committed: over
//! failovers, moves, splits and merges. If it cannot get all, a message says so: then it reads
//! again what matters to it. Changes of different keys come in no particular order.

use super::key::{self, KeyOf};
use super::value::Form;
use crate::data::{DataHandle, NextChange, Stream};
use crate::error::{Error, KeyError};
use bytes::Bytes;
use doyen_engine::{Bookmark, Cause, Change, Filter, Former, KeyFilter, Maps, Told, What};
use doyen_placement::{KeyspaceId, MapEntry, MapId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A subscription that is about to begin: from [`Map::subscribe`](crate::Map::subscribe). Await it.
///
/// ```no_run
/// # async fn example(stock: doyen::Map<(String, u64), u64>) -> Result<(), doyen::Error> {
/// use doyen::MapChange;
///
/// // All shelves of one shop, with the number before.
/// let mut changes = stock.subscribe().prefix(&("berlin",)).old_values().await?;
/// while let Some(change) = changes.next().await {
///     if let MapChange::Updated { key: (_, shelf), value, old } = change? {
///         println!("shelf {shelf}: {old:?} -> {value}");
///     }
/// }
/// # Ok(()) }
/// ```
///
/// # What comes
/// Each change comes as soon as it is committed, on every node and client, and the changes of a key
/// come in their order. When `subscribe` returns, nothing that happens afterwards is left out
/// without being told: [`MapChange::Lagged`] says so. After a transaction or a script there is a
/// message of what became of each key, and none of a key that it made and removed again. If a key
/// had expired and was written before a read found that, the messages are `Removed` and `Inserted`.
/// A subscriber that takes nothing costs no other one anything: what waits for it is bounded.
///
/// # A program that keeps copies of values
/// - It drops all of them at [`MapChange::Lagged`], at [`MapChange::Cleared`], at the end and at an
///   error, and the copy of the key at every other change.
/// - It does not keep what a `get` returns if something was told about that key, or about all,
///   since the `get` began.
/// - It gets no messages while its node has no connection to the others. If that matters, it must
///   give its copies a time to live. A near cache (feature `near`) does all of this.
///
/// # Cancel safety
/// If the future is dropped, the subscription ends. Nothing else has changed.
#[must_use = "it begins when it is awaited"]
pub struct Subscribe<K, V> {
    filter: Filter,
    after: Option<Bookmark>,
    data: DataHandle,
    form: Arc<Form>,
    wrong: Option<KeyError>,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for Subscribe<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe")
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}

impl<K, V> Subscribe<K, V> {
    pub(super) const fn new(entry: &MapEntry, data: DataHandle, form: Arc<Form>) -> Self {
        Self {
            filter: filter(entry.keyspace, entry.id),
            after: None,
            data,
            form,
            wrong: None,
            kinds: PhantomData,
        }
    }

    /// Only changes of this key.
    pub fn key<Q: KeyOf<K> + ?Sized>(mut self, key: &Q) -> Self {
        match key::encode(key) {
            Ok(key) => self.filter.keys = KeyFilter::One(key.into()),
            Err(wrong) => self.wrong = Some(wrong),
        }
        self
    }
}

impl<K, V> Subscribe<K, V> {
    /// Only changes of keys that begin with this, as [`Map::prefix`](crate::Map::prefix) finds
    /// them.
    pub fn prefix<Q: Serialize + ?Sized>(mut self, prefix: &Q) -> Self {
        match key::encode(prefix) {
            Ok(prefix) => self.filter.keys = KeyFilter::Prefix(prefix.into()),
            Err(wrong) => self.wrong = Some(wrong),
        }
        self
    }

    /// Each change tells the value before it, too: `old` of [`MapChange::Updated`] and
    /// [`MapChange::Removed`].
    ///
    /// The members then keep replaced values of the keyspace in their logs, within the same 64 KiB
    /// for each partition. Without such a subscription, old values cost nothing.
    pub const fn old_values(mut self) -> Self {
        self.filter.old = true;
        self
    }

    /// Goes on after a bookmark ([`Changes::bookmark`]) of this map, also in another process.
    ///
    /// Every change behind the bookmark comes, or [`MapChange::Lagged`] does. That holds over
    /// failovers, moves, and a split or a merge. It comes after two of these in the same place, or
    /// if what happened before one was not yet handled. After `doyen recover`, a bookmark may be
    /// ahead of the logs: read again what matters. A bookmark may be given to a subscription to the
    /// same keys or to fewer.
    ///
    /// Members keep logs for 40 s to 60 s after their last subscriber is gone: up to 64 KiB for
    /// each partition, a sixteenth of their memory for all together, and nothing while memory is
    /// short. If they do not reach back so far, `Lagged` comes first. The same happens if the
    /// bookmark is of another keyspace or cluster.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::Map<String, u64>) -> anyhow::Result<()> {
    /// # fn save(_: &str) {}
    /// # fn saved() -> Option<String> { None }
    /// let mut subscribe = prices.subscribe();
    /// if let Some(text) = saved() {
    ///     subscribe = subscribe.after(text.parse()?);
    /// }
    /// let mut changes = subscribe.await?;
    /// while let Some(change) = changes.next().await {
    ///     println!("{:?}", change?);
    ///     save(&changes.bookmark().await?.to_string());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn after(mut self, bookmark: Bookmark) -> Self {
        self.after = Some(bookmark);
        self
    }
}

impl<K: 'static, V: 'static> IntoFuture for Subscribe<K, V> {
    type Output = Result<Changes<K, V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            filter,
            after,
            data,
            form,
            wrong,
            ..
        } = self;
        Box::pin(async move {
            if let Some(wrong) = wrong {
                return Err(Error::Key(wrong));
            }
            let stream = data.subscribe(filter, after, None);
            let stream = stream.await.map_err(Error::of_read)?;
            Ok(Changes {
                stream,
                form,
                kinds: PhantomData,
            })
        })
    }
}

/// The changes of a map, or of one key of it. Dropping it ends the subscription.
///
/// It is a `futures` stream, too.
///
/// Example: [`Map::subscribe`](crate::Map::subscribe).
pub struct Changes<K, V> {
    stream: Stream,
    form: Arc<Form>,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for Changes<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

/// What happened to a key of a map.
///
/// Example: [`Map::subscribe`](crate::Map::subscribe).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapChange<K, V> {
    /// It has this value, and had none before.
    Inserted {
        /// The key.
        key: K,
        /// The value.
        value: V,
    },
    /// It has this value, and had another one before, or the same.
    Updated {
        /// The key.
        key: K,
        /// The value.
        value: V,
        /// The value before, if [`old_values`](Subscribe::old_values) are asked for. `None` also if
        /// the primary does not know it, or it is not of this type. A primary does not know it if
        /// it began to hold the partition later, or if the first subscriber with old values came
        /// later. Of a transaction, old values come up to the largest size of one value.
        old: Option<V>,
    },
    /// It expires at another time, or does not expire any more. While the partition is copied to
    /// another member, and in a map with `max_idle`, this comes as `Updated`.
    Deadline {
        /// The key.
        key: K,
    },
    /// It is gone: it was removed, it expired, or it was evicted.
    Removed {
        /// The key.
        key: K,
        /// Why.
        cause: Cause,
        /// The value that it had, as for [`MapChange::Updated`].
        old: Option<V>,
    },
    /// All keys of one partition are gone. No message names them. It comes once for each partition.
    /// Keys of others may have been written since the map was cleared, so read again what matters,
    /// as for [`MapChange::Lagged`].
    Cleared,
    /// Changes are missing: of any keys, and at most this many. `None`: it is not known how many.
    /// Read again what matters. It comes if this subscriber was too slow, a partition lost its
    /// data, or the logs do not reach back to its bookmark.
    Lagged(Option<u64>),
}

fn change<K, V>(told: Told, form: &Form) -> Option<Result<MapChange<K, V>, Error>>
where
    K: DeserializeOwned,
    V: DeserializeOwned,
{
    match told {
        Told::Change(change) => Some(typed(change, form)),
        Told::Lagged(gap) => Some(Ok(MapChange::Lagged(gap.entries))),
        // Only a near cache asks for confirmations.
        Told::Ready | Told::Confirmed { .. } | Told::Ended => None,
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned> futures_util::Stream for Changes<K, V> {
    type Item = Result<MapChange<K, V>, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = self.stream.poll_next(cx);
        told.map(|told| told.and_then(|told| change(told, &self.form)))
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned> Changes<K, V> {
    /// The next change. `None`: the keyspace was dropped, this node or client was shut down, or the
    /// cluster of a client was replaced by another one. Then connect a new client.
    ///
    /// # Errors
    /// The key or the value is not of this type, or the key holds a value of another kind. The next
    /// call goes on after that change.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change, so this may stand in a `select!`.
    pub async fn next(&mut self) -> Option<Result<MapChange<K, V>, Error>> {
        let told = NextChange(&self.stream).await?;
        change(told, &self.form)
    }

    /// Where this subscriber is, for [`Subscribe::after`]: it has handled every change that `next`
    /// has returned.
    ///
    /// A subscription that goes on there gets every later change. Changes that were made by one
    /// transaction or script come again together if not all of them were handled.
    ///
    /// It asks a thread of this process, and costs a few microseconds for each thousand partitions.
    /// It has some 20 bytes for each partition of the keyspace, as text or with serde: save it
    /// after each batch rather than after each change.
    ///
    /// # Errors
    /// [`Error::Closed`]: the keyspace was dropped, or this node or client was shut down.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn bookmark(&mut self) -> Result<Bookmark, Error> {
        self.stream.bookmark().await.map_err(Error::of_read)
    }
}

fn typed<K, V>(change: Change, form: &Form) -> Result<MapChange<K, V>, Error>
where
    K: DeserializeOwned,
    V: DeserializeOwned,
{
    if change.what == What::Cleared {
        return Ok(MapChange::Cleared);
    }
    let key = key::decode(&change.key).map_err(Error::Key)?;
    let new = change.before == Former::Nothing;
    let old = match change.before {
        Former::Value(Some(old)) => form.decode(form.content(&old)).ok().flatten(),
        Former::Value(None) | Former::Nothing => None,
    };
    Ok(match change.what {
        What::Put(_, Some(value)) => {
            match form.decode(form.content(&value)).map_err(Error::Value)? {
                Some(value) if new => MapChange::Inserted { key, value },
                Some(value) => MapChange::Updated { key, value, old },
                // It counts as absent.
                None => MapChange::Removed {
                    key,
                    cause: Cause::Command,
                    old,
                },
            }
        }
        What::Deadline => MapChange::Deadline { key },
        What::Removed(cause) => MapChange::Removed { key, cause, old },
        What::Cleared => MapChange::Cleared,
        What::Put(_, None) | What::Field(..) | What::FieldRemoved(..) => {
            return Err(Error::WrongType);
        }
    })
}

/// A subscription that is about to begin: from
/// [`Database::subscribe`](crate::Database::subscribe). Await it.
///
/// ```no_run
/// # async fn example(database: doyen::Database) -> Result<(), doyen::Error> {
/// // Which sessions of Redis clients change, without their values.
/// let mut changes = database.subscribe().prefix("session:").without_values().await?;
/// while let Some(change) = changes.next().await {
///     println!("{change:?}");
/// }
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the subscription ends. Nothing else has changed.
#[derive(Debug)]
#[must_use = "it begins when it is awaited"]
pub struct SubscribeDatabase {
    filter: Filter,
    after: Option<Bookmark>,
    data: DataHandle,
}

impl SubscribeDatabase {
    pub(crate) const fn new(keyspace: KeyspaceId, data: DataHandle) -> Self {
        Self {
            filter: filter(keyspace, MapId(0)),
            after: None,
            data,
        }
    }

    /// Only changes of this key.
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.filter.keys = KeyFilter::One(key.into());
        self
    }

    /// Only changes of keys that begin with this.
    pub fn prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        self.filter.keys = KeyFilter::Prefix(prefix.into());
        self
    }

    /// Without the new values, which then do not travel.
    pub const fn without_values(mut self) -> Self {
        self.filter.values = false;
        self
    }

    /// With the strings that were replaced or removed: [`Change::before`]. Old values of hashes and
    /// their fields are not told. What it costs: [`Subscribe::old_values`].
    pub const fn old_values(mut self) -> Self {
        self.filter.old = true;
        self
    }

    /// Goes on after a bookmark ([`DatabaseChanges::bookmark`]), as [`Subscribe::after`].
    pub fn after(mut self, bookmark: Bookmark) -> Self {
        self.after = Some(bookmark);
        self
    }
}

impl IntoFuture for SubscribeDatabase {
    type Output = Result<DatabaseChanges, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let stream = self.data.subscribe(self.filter, self.after, None);
            let stream = stream.await.map_err(Error::of_read)?;
            Ok(DatabaseChanges { stream })
        })
    }
}

/// The changes of a database. Dropping it ends the subscription.
///
/// It is a `futures` stream, too.
///
/// Example: [`Database::subscribe`](crate::Database::subscribe).
#[derive(Debug)]
pub struct DatabaseChanges {
    stream: Stream,
}

/// What a subscriber of a database gets.
///
/// Example: [`Database::subscribe`](crate::Database::subscribe).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseChange {
    /// A change.
    Change(Change),
    /// Changes are missing, as for [`MapChange::Lagged`].
    Lagged(Option<u64>),
}

impl DatabaseChanges {
    /// The next change. `None`: the keyspace was dropped, or this node or client was shut down.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change, so this may stand in a `select!`.
    pub async fn next(&mut self) -> Option<DatabaseChange> {
        NextChange(&self.stream).await.and_then(database_change)
    }

    /// Where this subscriber is, as [`Changes::bookmark`].
    ///
    /// # Errors
    /// [`Error::Closed`]: the keyspace was dropped, or this node or client was shut down.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn bookmark(&mut self) -> Result<Bookmark, Error> {
        self.stream.bookmark().await.map_err(Error::of_read)
    }
}

fn database_change(told: Told) -> Option<DatabaseChange> {
    match told {
        Told::Change(change) => Some(DatabaseChange::Change(change)),
        Told::Lagged(gap) => Some(DatabaseChange::Lagged(gap.entries)),
        Told::Ready | Told::Confirmed { .. } | Told::Ended => None,
    }
}

impl futures_util::Stream for DatabaseChanges {
    type Item = DatabaseChange;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = self.stream.poll_next(cx);
        told.map(|told| told.and_then(database_change))
    }
}

pub(super) const fn filter(keyspace: KeyspaceId, map: MapId) -> Filter {
    Filter {
        keyspace,
        maps: Maps::One(map),
        keys: KeyFilter::All,
        values: true,
        fields: true,
        old: false,
    }
}
