//! A typed map of the cluster, for programs that embed a node or connect as clients.

mod changes;
mod counter;
mod key;
mod open;
mod operations;
mod range;
mod transaction;
mod value;
mod whole;

pub use changes::{
    Changes, DatabaseChange, DatabaseChanges, MapChange, Subscribe, SubscribeDatabase,
};
pub use counter::{SHARDS_MAX, ShardedCounter};
pub use key::KeyError;
pub use open::OpenMap;
pub use range::RangeScan;
pub use transaction::{Answers, DatabaseTransaction, Pending, Transaction, Versioned};
pub use value::{Codec, Undecodable, ValueError};

use crate::data::DataHandle;
use crate::error::{ReadError, WriteError};
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Operation, Outcome, Value};
use doyen_placement::{KeyspaceId, MapEntry, MapId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use value::{Encode, Form};

/// A named map that the whole cluster shares.
///
/// Keys are stored in an encoding that keeps their order, and that is the same for every type with
/// the same content: a `String` and a `&str`, a `u32` and a `u64`, a `Vec<u8>` and a `[u8; 4]`.
/// Values are stored by a [`Codec`], MessagePack unless you choose another, and nothing is stored
/// that could not be read back. Each operation is atomic for its key, and linearizable: on any
/// node, a read sees every write that was acknowledged before it began. Cheap to clone.
pub struct Map<K, V> {
    form: Arc<Form>,
    entry: MapEntry,
    data: DataHandle,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self {
            form: self.form.clone(),
            entry: self.entry.clone(),
            data: self.data.clone(),
            kinds: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("name", &self.entry.name)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    fn new(entry: MapEntry, data: DataHandle, form: Form) -> Self {
        Self {
            form: Arc::new(form),
            entry,
            data,
            kinds: PhantomData,
        }
    }

    /// A map with the default codec.
    #[cfg(test)]
    pub(crate) fn of_entry(entry: MapEntry, data: DataHandle) -> Self {
        let (codec, undecodable) = (Codec::default(), Undecodable::default());
        let form = Form::new(entry.name.clone(), codec, value::Schema::None, undecodable);
        Self::new(entry, data, form)
    }

    /// The name of the map.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The value of a key.
    ///
    /// # Errors
    /// No node serves the key for 5 s. [`ReadError::Value`]: another program wrote the value, with
    /// another codec, schema or type; with [`Undecodable::Miss`] that is `None` instead.
    pub async fn get<Q>(&self, key: &Q) -> Result<Option<V>, ReadError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.decoded(self.read(key, Action::Get).await?)
    }

    /// Whether the key has a value, which is not looked at.
    ///
    /// # Errors
    /// As for [`Map::get`].
    pub async fn contains<Q>(&self, key: &Q) -> Result<bool, ReadError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        match self.read(key, Action::Exists).await? {
            Outcome::Int(n) => Ok(n != 0),
            other => Err(ReadError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Writes a value. When this returns, every copy in sync has it.
    ///
    /// # Errors
    /// [`WriteError::Unknown`]: the write may have happened. With every other error it did not.
    /// [`WriteError::Value`]: the codec could not encode the value, or not read it back.
    pub async fn insert<Q>(&self, key: &Q, value: &V) -> Result<(), WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.set(key, value, Condition::Always, Expiry::None)
            .await
            .map(|_| ())
    }

    /// Writes a value that expires after `ttl` (at once, if `ttl` is below a millisecond).
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn insert_with<Q>(&self, key: &Q, value: &V, ttl: Duration) -> Result<(), WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.set(key, value, Condition::Always, expiry(ttl))
            .await
            .map(|_| ())
    }

    /// Writes a value if the key has none. Returns whether it was written.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn insert_if_absent<Q>(&self, key: &Q, value: &V) -> Result<bool, WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.set_absent(key, value, Expiry::None).await
    }

    /// Writes a value that expires after `ttl`, if the key has none. Returns whether it was
    /// written.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn insert_if_absent_with<Q>(
        &self,
        key: &Q,
        value: &V,
        ttl: Duration,
    ) -> Result<bool, WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.set_absent(key, value, expiry(ttl)).await
    }

    /// Writes `value` if the key was not written, removed or expired since `seen` was read
    /// ([`Map::get_versioned`]). Returns whether it was written. An entry that expires keeps its
    /// deadline.
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`WriteError::CrossPartition`]: `seen` was read from another map.
    pub async fn compare_and_swap(
        &self,
        seen: &Versioned<V>,
        value: &V,
    ) -> Result<bool, WriteError> {
        self.swap(seen, value, Expiry::Keep).await
    }

    /// Removes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn remove<Q>(&self, key: &Q) -> Result<bool, WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        operations::number(self.write(key, Action::Delete).await?)
    }

    /// Follows the changes of this map from now on, each as soon as it is committed. Changes of a
    /// key come in their order, and none is left out without being told
    /// ([`MapChange::Missed`]). Narrow it to one key with [`Subscribe::key`].
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// use doyen::MapChange;
    ///
    /// let prices = node.map::<String, u64>("prices").await?;
    /// let mut changes = prices.subscribe().await?;
    /// while let Some(change) = changes.next().await {
    ///     match change? {
    ///         MapChange::Put { key, value } => println!("{key} costs {value}"),
    ///         MapChange::Removed { key, cause } => println!("{key} is gone: {cause:?}"),
    ///         MapChange::Missed { .. } => println!("read the prices anew"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: no node serves some of the keys for 5 s, the key cannot be encoded, or
    /// some member runs an older version.
    pub fn subscribe(&self) -> Subscribe<K, V> {
        Subscribe::new(&self.entry, self.data.clone(), self.form.clone())
    }

    /// Writes a value if the key has none that this map can decode.
    async fn set_absent<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        value: &V,
        expiry: Expiry,
    ) -> Result<bool, WriteError> {
        loop {
            let written = self.set(key, value, Condition::IfAbsent, expiry).await?;
            if written || self.form.undecodable == Undecodable::Error {
                return Ok(written);
            }
            let seen = match self.versioned(encode_key(key)?).await {
                Ok(seen) => seen,
                // Nothing happened, and the key has a value of some kind.
                Err(ReadError::WrongType) => return Ok(false),
                Err(why) => return Err(why.into()),
            };
            if seen.value().is_some() {
                return Ok(false);
            }
            // Otherwise another program wrote it meanwhile.
            if self.swap(&seen, value, expiry).await? {
                return Ok(true);
            }
        }
    }

    /// Writes a value over what was seen. Returns whether that had not changed.
    async fn swap(
        &self,
        seen: &Versioned<V>,
        value: &V,
        expiry: Expiry,
    ) -> Result<bool, WriteError> {
        let mut swap = self.transaction();
        swap.replace(seen, value, expiry);
        swap.commit_unless_changed().await
    }

    /// The value that an operation answers.
    fn decoded(&self, outcome: Outcome) -> Result<Option<V>, ReadError> {
        match outcome {
            Outcome::Bulk(value) => self.form.decode(&value).map_err(ReadError::Value),
            Outcome::Nil => Ok(None),
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(ReadError::Unexpected(format!("{other:?}"))),
        }
    }

    async fn set<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        value: &V,
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, WriteError> {
        let value = encode_value(&self.form, value)?;
        match self
            .write(
                key,
                Action::Set {
                    value,
                    condition,
                    expiry,
                    get: false,
                },
            )
            .await?
        {
            Outcome::Ok => Ok(true),
            Outcome::Nil => Ok(false),
            other => Err(WriteError::Unexpected(format!("{other:?}"))),
        }
    }

    async fn read<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        action: Action,
    ) -> Result<Outcome, ReadError> {
        let key = key::encode(key).map_err(ReadError::Key)?;
        match self.data.execute(self.operation(key.into(), action)).await {
            Outcome::Failed(failure) => Err(failure.into()),
            outcome => Ok(outcome),
        }
    }

    async fn write<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        action: Action,
    ) -> Result<Outcome, WriteError> {
        match self
            .data
            .execute(self.operation(encode_key(key)?, action))
            .await
        {
            Outcome::Failed(failure) => Err(failure.into()),
            outcome => Ok(outcome),
        }
    }

    fn operation(&self, key: Bytes, action: Action) -> Operation {
        Operation {
            keyspace: self.entry.keyspace,
            map: self.entry.id,
            key,
            action,
        }
    }
}

fn encode_key<Q: Serialize + ?Sized>(key: &Q) -> Result<Bytes, WriteError> {
    key::encode(key).map(Bytes::from).map_err(WriteError::Key)
}

/// Every node refuses a value above its own limit. A value above any node's limit is not even sent.
fn encode_value<V: Serialize + DeserializeOwned>(
    form: &Form,
    value: &V,
) -> Result<Bytes, WriteError> {
    form.encode(value)
        .map(Bytes::from)
        .map_err(|why| match why {
            Encode::TooLarge => WriteError::TooLarge,
            Encode::Invalid(why) => WriteError::Value(why),
        })
}

fn expiry(ttl: Duration) -> Expiry {
    Expiry::In(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

/// Map 0 of a keyspace, as bytes: RESP's database 0, or the one that a Redis client selects with
/// `CLIENT KEYSPACE NAME`.
#[derive(Debug, Clone)]
pub struct Database {
    keyspace: KeyspaceId,
    data: DataHandle,
}

impl Database {
    pub(crate) const fn new(keyspace: KeyspaceId, data: DataHandle) -> Self {
        Self { keyspace, data }
    }

    /// The value that a Redis client would GET.
    ///
    /// # Errors
    /// No node serves the key for 5 s.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Value>, ReadError> {
        match self.execute(key.into(), Action::Get).await {
            Outcome::Bulk(value) => Ok(Some(value)),
            Outcome::Nil => Ok(None),
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(ReadError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Writes like a Redis client's SET.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn set(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<(), WriteError> {
        match self.execute(key.into(), Action::set(value.into())).await {
            Outcome::Ok => Ok(()),
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(WriteError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Removes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn remove(&self, key: impl Into<Bytes>) -> Result<bool, WriteError> {
        match self.execute(key.into(), Action::Delete).await {
            Outcome::Int(n) => Ok(n != 0),
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(WriteError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Follows the changes that anyone makes here, each as soon as it is committed. Changes of a
    /// key come in their order, and none is left out without being told
    /// ([`DatabaseChange::Missed`]). Narrow it with [`SubscribeDatabase::prefix`] or
    /// [`SubscribeDatabase::key`].
    ///
    /// # Errors
    /// When it is awaited: as for [`Map::subscribe`].
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
        let (from, mut to) = (from.into(), to.into());
        let table = self.data.table()?;
        let keyspace = table.keyspace(self.keyspace)?;
        if to.is_empty() {
            to = keyspace.end_from(&from).into();
        }
        keyspace.partitions_within(MapId(0), &from, &to).ok()?;
        Some(RangeScan::new(self.keyspace, self.data.clone(), from, to))
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
