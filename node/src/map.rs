//! A typed map of the cluster, for programs that embed a node or connect as clients.
//!
//! ```text
//!   node.map("users") ── OpenMap: keyspace, codec, schema, deadlines ──> Map
//!   map.put(&key, &value) ── Put: deadline, condition ──> Action ──> data thread ──> primary
//! ```
//! `key` and `value` turn keys and values into bytes. What a map does with one key is in this file,
//! `put` and `operations`; what it does with many is in `whole`.

mod cache;
mod changes;
mod collections;
mod counter;
mod counters;
mod database;
mod key;
#[cfg(feature = "near")]
mod near;
mod open;
mod operations;
mod pages;
mod put;
mod range;
mod scratch;
mod stats;
mod transaction;
mod value;
mod whole;

#[cfg(feature = "near")]
pub use cache::NearCache;
pub(crate) use cache::schemas_of;
pub use cache::{Cache, CachePut, Loaded, OpenCache};
pub use changes::{
    Changes, DatabaseChange, DatabaseChanges, MapChange, Subscribe, SubscribeDatabase,
};
pub use collections::{
    DeadJob, DeadJobs, Job, JobId, JobQueue, List, ListEnd, Members, NoJobId, OpenJobQueue,
    OpenList, OpenSet, OpenSortedSet, QueueCounts, Set, SortedSet,
};
pub use counter::{SHARDS_MAX, ShardedCounter};
pub use counters::{Add, Counters};
pub use database::Database;
pub use key::KeyOf;
#[cfg(feature = "near")]
pub use near::{NearMap, NearStats, OpenNear};
pub use open::{OpenCounters, OpenMap};
pub use pages::Entries;
pub use put::Put;
pub use range::RangeScan;
pub use stats::MapStats;
pub use transaction::{Answers, DatabaseTransaction, Pending, Transaction, Versioned};
pub use value::{Codec, Undecodable};
pub(crate) use whole::begin_idle_times;

use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Operation, Outcome};
use doyen_placement::MapEntry;
use pages::Pages;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stats::Counts;
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
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::Map;
/// use std::time::Duration;
///
/// let carts: Map<u64, Vec<String>> = node.map("carts").await?;
/// carts.insert(&7, &vec!["tea".to_owned()]).await?;
/// carts.put(&8, &Vec::new()).ttl(Duration::from_secs(3600)).await?;
/// if let Some(cart) = carts.get(&7).await? {
///     println!("{} things in cart 7, {} carts", cart.len(), carts.len().await?);
/// }
/// let existed = carts.remove(&7).await?;
/// # Ok(()) }
/// ```
///
/// # Deadlines
/// [`insert`](Map::insert) and [`put`](Map::put) give an entry the time to live of the map
/// ([`OpenMap::ttl`]), or none; [`Put::ttl`] gives another one. Operations that change an entry by
/// what it holds ([`update`](Map::update), [`replace`](Map::replace),
/// [`compare_and_swap`](Map::compare_and_swap)) keep its deadline.
///
/// # Keys
/// A key is a text, a number, a tuple, a list, a struct or an enum, of 64 KiB at most. Maps cannot
/// be keys.
///
/// Keys do not evolve as values do. The names of fields and their order, and the names of variants,
/// are part of a key: if you rename or reorder the fields of a key's type, or add one, the program
/// finds none of the keys that were stored before, and [`iter`](Map::iter) fails at them. Use a
/// tuple or a text as the key, or move the entries to another map.
///
/// # Values
/// A value has at most `--value-max` bytes ([`Builder::value_max`](crate::Builder::value_max), 16
/// MiB by default). Each is read back before it is stored. A value that the codec could not read
/// later (a field that is left out and has no default, an untagged enum in bincode) is refused when
/// it is written: [`Error::Value`]. So is what MessagePack or JSON would give back as `None`:
/// `Some(None)`, `Some(())`. A value that another program stored with another codec, schema or type
/// is [`Error::Value`], too, which names the map, both sides and what to do.
///
/// The replicas of a service are not replaced at the same moment, so programs of two versions read
/// one map: [`Codec`] says which changes of a type they understand.
///
/// # Time limits and cancel safety
/// An operation ends after 5 s at the latest if no node serves its key. Nothing happens before its
/// future is polled for the first time. If the future is dropped later, a read is forgotten, and a
/// write may happen or not, as after [`Error::Unknown`].
pub struct Map<K, V> {
    form: Arc<Form>,
    entry: Arc<MapEntry>,
    /// The time to live of entries that are given none.
    ttl: Option<Duration>,
    data: DataHandle,
    counts: Arc<Counts>,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self {
            form: self.form.clone(),
            entry: self.entry.clone(),
            ttl: self.ttl,
            data: self.data.clone(),
            counts: self.counts.clone(),
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

impl<K, V> Map<K, V> {
    fn new(entry: MapEntry, data: DataHandle, form: Form, ttl: Option<Duration>) -> Self {
        Self {
            form: Arc::new(form),
            entry: Arc::new(entry),
            ttl,
            data,
            counts: Arc::default(),
            kinds: PhantomData,
        }
    }

    /// A map with the default codec.
    #[cfg(test)]
    pub(crate) fn of_entry(entry: MapEntry, data: DataHandle) -> Self {
        let (codec, undecodable) = (Codec::default(), Undecodable::default());
        let form = Form::new(entry.name.clone(), codec, value::Schema::None, undecodable);
        Self::new(entry, data, form, None)
    }

    /// The name of the map.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    fn operation(&self, key: Bytes, action: Action) -> Operation {
        Operation {
            keyspace: self.entry.keyspace,
            map: self.entry.id,
            key,
            action,
        }
    }

    /// The deadline of entries that are given none.
    fn expiry(&self) -> Expiry {
        self.ttl.map_or(Expiry::None, expiry)
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// The value of a key.
    ///
    /// # Errors
    /// No node serves the key for 5 s. [`Error::Value`]: another program wrote the value, with
    /// another codec, schema or type; with [`Undecodable::Miss`] that is `None` instead.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        let found = self.decoded(self.read(key, Action::Get).await?)?;
        self.counts.looked_up(found.is_some());
        Ok(found)
    }

    /// Whether the key has a value, which is not looked at.
    ///
    /// # Errors
    /// As for [`Map::get`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn contains<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        number(self.read(key, Action::Exists).await?)
    }

    /// Writes a value. When this returns, every copy in sync has it. [`Map::put`] is the same with
    /// options.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the write may have happened. With every other error it did not.
    /// [`Error::Value`]: the codec could not encode the value, or not read it back.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn insert<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error> {
        let action = Action::Set {
            value: encode_value(&self.form, value)?,
            condition: Condition::Always,
            expiry: self.expiry(),
            get: false,
        };
        done(self.write(key, action).await?)
    }

    /// Writes a value if the key has none. Returns the value that is there: `None` says that this
    /// one was written. [`Put::if_absent`] is the same with a time to live.
    ///
    /// ```no_run
    /// # async fn example(owners: doyen::Map<String, String>) -> Result<(), doyen::Error> {
    /// match owners.insert_if_absent("domain.org", &"ada".to_owned()).await? {
    ///     None => println!("it is ours"),
    ///     Some(owner) => println!("{owner} has it"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::Value`]: the value that is there cannot be decoded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn insert_if_absent<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
        value: &V,
    ) -> Result<Option<V>, Error> {
        self.put(key, value).if_absent().await
    }

    /// Writes `value` if the key was not written, removed or expired since `seen` was read
    /// ([`Map::get_versioned`]). Returns whether it was written. An entry that expires keeps its
    /// deadline. [`Put::if_unchanged`] is the same with a time to live.
    ///
    /// ```no_run
    /// # async fn example(profiles: doyen::Map<u64, String>) -> Result<(), doyen::Error> {
    /// let seen = profiles.get_versioned(&7).await?;
    /// let edited = format!("{} (edited)", seen.value().map_or("", String::as_str));
    /// if !profiles.compare_and_swap(&seen, &edited).await? {
    ///     println!("another program has changed it meanwhile: show both");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::CrossPartition`]: `seen` was read from another map.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn compare_and_swap(&self, seen: &Versioned<V>, value: &V) -> Result<bool, Error> {
        let mut swap = self.transaction();
        swap.replace(seen, value, Expiry::Keep);
        swap.commit_unless_changed().await
    }

    /// Removes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn remove<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        number(self.write(key, Action::Delete).await?)
    }

    /// Follows the changes of this map from now on, each as soon as it is committed. Changes of a
    /// key come in their order, and none is left out without being told
    /// ([`MapChange::Lagged`]). Narrow it to one key with [`Subscribe::key`].
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::MapChange;
    ///
    /// let prices = node.map::<String, u64>("prices").await?;
    /// let mut changes = prices.subscribe().await?;
    /// while let Some(change) = changes.next().await {
    ///     match change? {
    ///         MapChange::Inserted { key, value } => println!("{key} costs {value}"),
    ///         MapChange::Updated { key, value, .. } => println!("{key} now costs {value}"),
    ///         MapChange::Removed { key, cause, .. } => println!("{key} is gone: {cause:?}"),
    ///         MapChange::Lagged(_) => println!("read the prices again"),
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

    /// A key and a value as they are stored.
    fn encoded<Q: Serialize + ?Sized>(&self, key: &Q, value: &V) -> Result<(Bytes, Bytes), Error> {
        Ok((encode_key(key)?, encode_value(&self.form, value)?))
    }

    /// The value that an operation answers.
    fn decoded(&self, outcome: Outcome) -> Result<Option<V>, Error> {
        match outcome {
            Outcome::Bulk(value) => self.form.decode(&value).map_err(Error::Value),
            Outcome::Nil => Ok(None),
            other => Err(Error::unexpected(other)),
        }
    }

    /// The value that a write took away or wrote over.
    fn former(&self, outcome: Outcome) -> Result<Option<V>, Error> {
        self.decoded(outcome).map_err(|why| match why {
            Error::Value(why) => Error::Former(why),
            other => other,
        })
    }

    async fn read<Q: Serialize + ?Sized>(&self, key: &Q, action: Action) -> Result<Outcome, Error> {
        let operation = self.operation(encode_key(key)?, action);
        match self.data.execute(operation).await {
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            outcome => Ok(outcome),
        }
    }

    async fn write<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        action: Action,
    ) -> Result<Outcome, Error> {
        self.write_encoded(encode_key(key)?, action).await
    }

    async fn write_encoded(&self, key: Bytes, action: Action) -> Result<Outcome, Error> {
        match self.data.execute(self.operation(key, action)).await {
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            outcome => {
                self.counts.wrote();
                Ok(outcome)
            }
        }
    }
}

pub(crate) fn encode_key<Q: Serialize + ?Sized>(key: &Q) -> Result<Bytes, Error> {
    scratch::encoded(|out| key::encode_into(key, out)).map_err(Error::Key)
}

/// Every node refuses a value above its own limit. A value above any node's limit is not even sent.
fn encode_value<V: Serialize + DeserializeOwned>(form: &Form, value: &V) -> Result<Bytes, Error> {
    let encoded = scratch::encoded(|out| form.write(value, out));
    let encoded = encoded.map(|value| form.headed(value));
    encoded.map_err(|why| match why {
        Encode::TooLarge => Error::TooLarge,
        Encode::Invalid(why) => Error::Value(why),
    })
}

fn expiry(ttl: Duration) -> Expiry {
    Expiry::In(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

/// A write was done.
fn done(outcome: Outcome) -> Result<(), Error> {
    match outcome {
        Outcome::Ok => Ok(()),
        other => Err(Error::unexpected(other)),
    }
}

/// Whether an operation found the key.
fn number(outcome: Outcome) -> Result<bool, Error> {
    match outcome {
        Outcome::Int(n) => Ok(n != 0),
        other => Err(Error::unexpected(other)),
    }
}
