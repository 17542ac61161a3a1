//! A near cache: copies of entries in this process, each as old as you allow at most.
//!
//! ```text
//!   get ── copy, confirmed recently enough ──> that copy
//!    │
//!    └── otherwise: read at the primary ──> kept as a copy, if nothing was told meanwhile
//!
//!   changes of the map ──> a queue ── get, or the follower (a task) ──> drops copies
//!   confirmations      ──────┘ "all that was committed at that moment was told"
//! ```
//! A copy is served only if its partition was confirmed, or it was read, within `max_staleness`.
//! If this process is cut off or paused, confirmations end, and with them the copies.
//!
//! A change wakes no task: the next `get` looks into the queue, or the follower, which
//! confirmations wake. So a write in the same process costs little more than without a near cache.

use super::changes::filter;
use super::{KeyOf, Map, Put, encode_key, key, scratch};
use crate::clock;
use crate::data::Stream;
use crate::data::nears::{Forgets, NearCounts};
use crate::error::{Error, within_runtime};
use bytes::Bytes;
use doyen_engine::op::{Action, OperationBatch, OperationStep, Outcome};
use doyen_engine::{Told, What};
use doyen_gossip::Time;
use doyen_placement::PartitionId;
use foldhash::quality::RandomState;
use futures_util::{StreamExt, stream};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::hash::BuildHasher;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Copies that are kept, by default.
const CAPACITY: u64 = 10_000;
/// Reads at primaries of one call that are under way at the same time.
const UNDER_WAY: usize = 256;
/// Confirmations come this often within the time that they count.
const CONFIRMATIONS: u32 = 4;
/// The shortest bound.
const STALENESS_LEAST: Duration = Duration::from_millis(50);
/// What lasts for longer does not expire while this process runs.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// Locks among which keys are divided.
const MARKS: usize = 256;

/// A near cache of a [`Map`] or a [`Cache`](crate::Cache) that is about to be opened, from
/// [`Map::near`] and [`Cache::near`](crate::Cache::near). Await it.
///
/// Example: [`NearMap`].
///
/// # Cancel safety
/// If the future is dropped, nothing is kept, and nothing else has changed.
#[derive(Debug)]
#[must_use = "it is opened when it is awaited"]
pub struct OpenNear<M> {
    pub(super) of: M,
    pub(super) max_staleness: Duration,
    pub(super) capacity: u64,
}

/// A map with copies of its entries in this process, from [`Map::near`]. Cheap to clone.
///
/// ```no_run
/// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let near = prices.near(Duration::from_secs(1)).capacity(100_000).await?;
/// let price = near.get("tea").await?; // from memory, if it was read before and did not change
/// # Ok(()) }
/// ```
///
/// # The bound
/// A value that [`get`](NearMap::get) returns was the value of the key at some moment that is at
/// most `max_staleness` before it was called. That holds also if this process, a member or the
/// network stands still: primaries confirm several times within the bound that everything was
/// told, a copy whose partition was not confirmed is not served, and the key is read at its
/// primary. A change normally arrives within a round trip, so copies are much fresher than the
/// bound. A change that was told wakes no task: the next read looks for it. So inserts beside a
/// near cache cost about as much as without one.
///
/// A read in this process sees every write of this process that was acknowledged before it began:
/// by this near cache, by any handle of the map, and by transactions.
///
/// A key that expires is gone here when its time to live is over by this process's clock, or when
/// its primary tells that it removed it.
pub struct NearMap<K, V> {
    map: Map<K, V>,
    near: Arc<NearTask<V>>,
}

impl<K, V> Clone for NearMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            map: self.map.clone(),
            near: self.near.clone(),
        }
    }
}

impl<K, V> fmt::Debug for NearMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearMap")
            .field("map", &self.map.name())
            .field("max_staleness", &self.near.max_staleness)
            .finish_non_exhaustive()
    }
}

/// What a near cache was asked by this process.
///
/// ```no_run
/// # fn example(near: &doyen::NearMap<String, u64>) {
/// let stats = near.stats();
/// let reads = stats.hits + stats.misses + stats.unconfirmed;
/// println!("{} of {reads} reads were answered from memory", stats.hits);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearStats {
    /// Reads that a copy answered.
    pub hits: u64,
    /// Reads that went to the primary, because there was no copy.
    pub misses: u64,
    /// Reads that went to the primary, because the copy was not confirmed within the bound.
    pub unconfirmed: u64,
}

/// The copies, and the task that follows the map for them. It ends with the last clone of the near
/// cache.
pub(super) struct NearTask<V> {
    near: Arc<Near<V>>,
    task: JoinHandle<()>,
}

impl<V> Drop for NearTask<V> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<V> Deref for NearTask<V> {
    type Target = Near<V>;

    fn deref(&self) -> &Near<V> {
        &self.near
    }
}

/// The copies.
pub(super) struct Near<V> {
    stream: Stream,
    /// Held while something is taken from the stream and acted on, so that this happens in order.
    turn: Mutex<()>,
    copies: Cache<Bytes, Copied<V>, UnitWeighter, RandomState>,
    max_staleness: Duration,
    /// When each partition was last confirmed. A lock that is held for moments, not for hits.
    confirmed: Mutex<HashMap<PartitionId, Arc<AtomicU64>>>,
    /// How often something was told about keys of each part. The lock is held while a copy is kept
    /// or dropped, so that no copy is kept of what was told to have changed.
    marks: Box<[Mutex<u64>]>,
    hasher: RandomState,
    counts: Arc<NearCounts>,
}

/// A copy of an entry.
#[derive(Clone)]
struct Copied<V> {
    /// `None`: the key has no value.
    value: Option<V>,
    /// When its read began.
    read: Time,
    /// When its partition was last confirmed.
    confirmed: Arc<AtomicU64>,
    /// When it expires.
    expires: Option<Time>,
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// This map with copies of entries in this process, which are `max_staleness` old at most.
    /// Await it.
    ///
    /// # Errors
    /// When it is awaited: as for [`Map::subscribe`]. [`Error::NoRuntime`]: this was called outside
    /// of tokio. [`Error::Refused`]: `max_staleness` is below 50 ms.
    pub fn near(&self, max_staleness: Duration) -> OpenNear<Self> {
        OpenNear::new(self.clone(), max_staleness)
    }
}

impl<M> OpenNear<M> {
    pub(super) const fn new(of: M, max_staleness: Duration) -> Self {
        Self {
            of,
            max_staleness,
            capacity: CAPACITY,
        }
    }

    /// How many copies are kept, about; 10,000 by default. Which ones is decided by how often and
    /// how recently they are read (S3-FIFO).
    pub const fn capacity(mut self, entries: u64) -> Self {
        self.capacity = entries;
        self
    }
}

impl<K, V> IntoFuture for OpenNear<Map<K, V>>
where
    K: 'static,
    V: Clone + Send + Sync + 'static,
{
    type Output = Result<NearMap<K, V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let near = Near::open(&self.of, self.max_staleness, self.capacity).await?;
            Ok(NearMap { map: self.of, near })
        })
    }
}

impl<K, V> NearMap<K, V>
where
    K: Serialize,
    V: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// The value of a key, as of `max_staleness` ago or later.
    ///
    /// # Errors
    /// As for [`Map::get`], if the key has to be read at its primary.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        if let Some(found) = self.near.copy(key, None)? {
            return Ok(found);
        }
        self.read(encode_key(key)?).await
    }

    /// The values of several keys, in their order, each as [`get`](NearMap::get) returns it.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::NearMap<String, u64>) -> Result<(), doyen::Error> {
    /// let cart = ["tea", "milk"];
    /// for (name, price) in cart.iter().zip(prices.get_many(cart).await?) {
    ///     println!("{name}: {price:?}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`NearMap::get`], if any of them fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get_many<'q, Q: KeyOf<K> + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Result<Vec<Option<V>>, Error> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for (at, key) in keys.into_iter().enumerate() {
            let copy = self.near.copy(key, None)?;
            if copy.is_none() {
                missing.push((at, encode_key(key)?));
            }
            found.push(copy.flatten());
        }
        let reading = missing
            .into_iter()
            .map(async |(at, key)| (at, self.read(key).await));
        let mut reading = pin!(stream::iter(reading).buffer_unordered(UNDER_WAY));
        while let Some((at, value)) = reading.next().await {
            found[at] = value?;
        }
        Ok(found)
    }

    /// Writes a value, as [`Map::insert`]. Reads of this near cache see it from then on.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    ///
    /// # Cancel safety
    /// As for [`Map::insert`].
    pub async fn insert<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error> {
        self.map.insert(key, value).await
    }

    /// Writes a value with options, as [`Map::put`]. Reads of this near cache see it from then on.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::NearMap<String, u64>) -> Result<(), doyen::Error> {
    /// use std::time::Duration;
    ///
    /// prices.put("tea", &3).ttl(Duration::from_secs(60)).await?;
    /// assert_eq!(prices.get("tea").await?, Some(3));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: see [`Put`].
    pub fn put<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Put<'_, K, V> {
        self.map.put(key, value)
    }

    /// Removes a key, as [`Map::remove`]. Reads of this near cache see that from then on.
    ///
    /// # Errors
    /// As for [`Map::remove`].
    ///
    /// # Cancel safety
    /// As for [`Map::remove`].
    pub async fn remove<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        self.map.remove(key).await
    }

    /// The map itself: its reads go to the primaries. Its writes are seen by this near cache, too.
    #[must_use]
    pub const fn map(&self) -> &Map<K, V> {
        &self.map
    }

    /// What this near cache was asked by this process.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        self.near.stats()
    }

    /// Reads at the primary, and keeps a copy.
    async fn read(&self, key: Bytes) -> Result<Option<V>, Error> {
        let reading = self.near.read(&key);
        let step = |action| OperationStep::Key {
            map: self.map.entry.id,
            key: key.clone(),
            action,
        };
        let both = OperationBatch {
            keyspace: self.map.entry.keyspace,
            watched: Vec::new(),
            steps: vec![step(Action::Get), step(Action::PTtl)],
        };
        let outcomes = match self.map.data.execute_transaction(both).await {
            Outcome::Many(outcomes) => outcomes,
            Outcome::Failed(failure) => return Err(Error::of_read(failure)),
            other => return Err(Error::unexpected(other)),
        };
        let Ok([value, Outcome::Int(ttl)]) = <[Outcome; 2]>::try_from(outcomes) else {
            return Err(Error::Unexpected("no value and no time to live".into()));
        };
        let value = self.map.decoded(value)?;
        self.map.counts.looked_up(value.is_some());
        let lasts = u64::try_from(ttl).ok().map(Duration::from_millis);
        self.near
            .keep(&self.map, (key, reading), (value.clone(), lasts));
        Ok(value)
    }
}

/// A read at the primary has begun.
pub(super) struct Reading {
    began: Time,
    mark: u64,
}

impl<V: Clone + Send + Sync + 'static> Near<V> {
    /// Begins to follow a map, with at most `capacity` copies.
    pub(super) async fn open<K>(
        map: &Map<K, V>,
        max_staleness: Duration,
        capacity: u64,
    ) -> Result<Arc<NearTask<V>>, Error> {
        within_runtime()?;
        if max_staleness < STALENESS_LEAST {
            return Err(Error::Refused(format!(
                "a near cache of {} cannot have copies of {max_staleness:?} at most: give \
                 {STALENESS_LEAST:?} or more, or read the map itself",
                map.name()
            )));
        }
        let (keyspace, id) = (map.entry.keyspace, map.entry.id);
        let mut filter = filter(keyspace, id);
        (filter.values, filter.fields) = (false, false);
        let every = max_staleness / CONFIRMATIONS;
        let stream = map.data.subscribe(filter, None, Some(every)).await;
        let stream = stream.map_err(Error::of_read)?;
        let hasher = RandomState::default();
        let near = Arc::new(Self {
            stream,
            turn: Mutex::default(),
            copies: Cache::with(
                usize::try_from(capacity).unwrap_or(usize::MAX),
                capacity,
                UnitWeighter,
                hasher.clone(),
                DefaultLifecycle::default(),
            ),
            hasher,
            max_staleness,
            confirmed: Mutex::default(),
            marks: (0..MARKS).map(|_| Mutex::default()).collect(),
            counts: Arc::default(),
        });
        let forgets: Weak<dyn Forgets> = Arc::downgrade(&(near.clone() as Arc<dyn Forgets>));
        let counts = near.counts.clone();
        map.data.add_near(keyspace, id, forgets, counts);
        let task = tokio::spawn(follow(near.clone()));
        Ok(Arc::new(NearTask { near, task }))
    }

    pub(super) fn stats(&self) -> NearStats {
        let [hits, misses, unconfirmed] = self.counts.read();
        NearStats {
            hits,
            misses,
            unconfirmed,
        }
    }

    /// A copy that may be served.
    pub(super) fn copy<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        slot: Option<u8>,
    ) -> Result<Option<Option<V>>, Error> {
        self.catch_up();
        let copied = scratch::with(|bytes| -> Result<_, Error> {
            bytes.extend(slot);
            key::encode_into(key, bytes).map_err(Error::Key)?;
            Ok(self.copies.get(&bytes[..]))
        })?;
        let counted = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let Some(copied) = copied else {
            counted(&self.counts.misses);
            return Ok(None);
        };
        let now = clock::now();
        let confirmed = Time(copied.confirmed.load(Ordering::Acquire)).max(copied.read);
        if now.since(confirmed) > self.max_staleness
            || copied.expires.is_some_and(|expires| now >= expires)
        {
            counted(&self.counts.unconfirmed);
            return Ok(None);
        }
        counted(&self.counts.hits);
        Ok(Some(copied.value))
    }

    /// A read at the primary begins.
    pub(super) fn read(&self, key: &[u8]) -> Reading {
        Reading {
            mark: *self.mark(key),
            began: clock::now(),
        }
    }

    /// Keeps what was read, for so long at most, unless the key was told to have changed since.
    pub(super) fn keep<K>(
        &self,
        map: &Map<K, V>,
        (key, reading): (Bytes, Reading),
        (value, lasts): (Option<V>, Option<Duration>),
    ) {
        let (keyspace, id) = (map.entry.keyspace, map.entry.id);
        let table = map.data.table();
        let Some(partition) =
            table.and_then(|table| table.keyspace(keyspace)?.partition_of(id, &key))
        else {
            return;
        };
        let copied = Copied {
            value,
            read: reading.began,
            confirmed: self.confirmed_of(partition),
            expires: lasts
                .filter(|lasts| *lasts < FOREVER)
                .map(|lasts| reading.began + lasts),
        };
        let now = self.mark(&key);
        if *now == reading.mark {
            self.copies.insert(key, copied);
        }
    }

    /// The mark of a key's part, locked.
    fn mark(&self, key: &[u8]) -> MutexGuard<'_, u64> {
        // A part of a hash is as good as all of it.
        let part = self.hasher.hash_one(key) as usize % MARKS;
        Self::locked(&self.marks[part])
    }

    fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
        // Each change is one step.
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn confirmed_of(&self, partition: PartitionId) -> Arc<AtomicU64> {
        Self::locked(&self.confirmed)
            .entry(partition)
            .or_default()
            .clone()
    }

    /// A key has changed.
    fn drop_copy(&self, key: &[u8]) {
        let mut mark = self.mark(key);
        *mark += 1;
        self.copies.remove(key);
    }

    /// Acts on what was told until now.
    fn catch_up(&self) {
        if self.stream.has_news() {
            let _turn = Self::locked(&self.turn);
            while let Some(told) = self.stream.try_next() {
                self.hear(told);
            }
        }
    }

    /// Acts on what was told, in its turn.
    fn hear(&self, told: Told) {
        match told {
            Told::Change(change) if change.what == What::Cleared => self.drop_all(),
            Told::Change(change) => self.drop_copy(&change.key),
            Told::Lagged(_) => self.drop_all(),
            Told::Confirmed { at, partitions } => {
                let mut confirmed = Self::locked(&self.confirmed);
                for partition in partitions {
                    let of_partition = confirmed.entry(partition).or_default();
                    of_partition.fetch_max(at.0, Ordering::AcqRel);
                }
            }
            Told::Ready | Told::Ended => {}
        }
    }

    /// Any key may have changed.
    fn drop_all(&self) {
        let mut marks: Vec<_> = self.marks.iter().map(Self::locked).collect();
        marks.iter_mut().for_each(|mark| **mark += 1);
        Self::locked(&self.confirmed).clear();
        self.copies.clear();
    }
}

impl<V: Clone + Send + Sync + 'static> Forgets for Near<V> {
    fn forget(&self, key: &[u8]) {
        self.drop_copy(key);
    }

    fn forget_all(&self) {
        self.drop_all();
    }

    #[cfg(feature = "metrics")]
    fn holds(&self) -> (u64, Option<Time>) {
        let entries = self.copies.len() as u64;
        let confirmed = Self::locked(&self.confirmed);
        let times = confirmed.values().map(|at| at.load(Ordering::Acquire));
        // One that was not confirmed yet has copies that were read a moment ago.
        let oldest = times.filter(|at| *at > 0).min().map(Time);
        (entries, oldest.filter(|_| entries > 0))
    }
}

/// Follows the map until its keyspace is gone or the node ends.
async fn follow<V: Clone + Send + Sync + 'static>(near: Arc<Near<V>>) {
    poll_fn(|cx| {
        let _turn = Near::<V>::locked(&near.turn);
        loop {
            match near.stream.poll_next(cx) {
                Poll::Ready(Some(told)) => near.hear(told),
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    near.drop_all();
}
