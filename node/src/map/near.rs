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
//! A change wakes no task: the next `get` looks into the queue, or the follower, which confirmations
//! wake. So a write in the same process costs little more than without a near cache.

use super::changes::filter;
use super::{Map, encode_key, key};
use crate::clock;
use crate::data::Stream;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Outcome, Step, Transaction};
use doyen_engine::{Told, What};
use doyen_gossip::Time;
use doyen_placement::PartitionId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Copies that are kept, by default.
const CAPACITY: u64 = 10_000;
/// Confirmations come this often within the time that they count.
const CONFIRMATIONS: u32 = 4;
/// The shortest bound.
const STALENESS_LEAST: Duration = Duration::from_millis(50);
/// Locks among which keys are divided.
const MARKS: usize = 256;

/// A near cache that is about to be opened, from [`Map::near`]. Await it.
///
/// Example: [`NearMap`].
///
/// # Cancel safety
/// If the future is dropped, nothing is kept, and nothing else has changed.
#[must_use = "it is opened when it is awaited"]
pub struct OpenNear<K, V> {
    map: Map<K, V>,
    max_staleness: Duration,
    capacity: u64,
}

impl<K, V> fmt::Debug for OpenNear<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenNear")
            .field("map", &self.map.name())
            .field("max_staleness", &self.max_staleness)
            .field("capacity", &self.capacity)
            .finish()
    }
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
/// most `max_staleness` before it was returned. That holds also if this process, a member or the
/// network stands still: a copy whose partition was not confirmed within the bound is not served,
/// and the key is read at its primary. A change normally arrives within a round trip, so copies are
/// much fresher than the bound. A read in this process after a write in this process sees it only
/// if the change was told before; read through [`map`](NearMap::map) where that matters.
///
/// A key that expires is gone here when its time to live is over by this process's clock, or when
/// its primary tells that it removed it.
pub struct NearMap<K, V> {
    map: Map<K, V>,
    near: Arc<Near<V>>,
    following: Arc<Following>,
}

impl<K, V> Clone for NearMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            map: self.map.clone(),
            near: self.near.clone(),
            following: self.following.clone(),
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

/// The task that follows the map. It ends with the last clone of the near cache.
#[derive(Debug)]
struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The copies.
struct Near<V> {
    stream: Stream,
    /// Held while something is taken from the stream and acted on, so that this happens in order.
    turn: Mutex<()>,
    copies: moka::sync::Cache<Bytes, Copied<V>>,
    max_staleness: Duration,
    /// When each partition was last confirmed. A lock that is held for moments, not for hits.
    confirmed: Mutex<HashMap<PartitionId, Arc<AtomicU64>>>,
    /// How often something was told about keys of each part. The lock is held while a copy is kept
    /// or dropped, so that no copy is kept of what was told to have changed.
    marks: Box<[Mutex<u64>]>,
    hits: AtomicU64,
    misses: AtomicU64,
    unconfirmed: AtomicU64,
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
    /// This map with copies of entries in this process, which are `max_staleness` old at most (50
    /// ms at least). Await it.
    ///
    /// # Errors
    /// When it is awaited: as for [`Map::subscribe`]. [`Error::NoRuntime`]: this was called outside
    /// of tokio.
    pub fn near(&self, max_staleness: Duration) -> OpenNear<K, V> {
        OpenNear {
            map: self.clone(),
            max_staleness: max_staleness.max(STALENESS_LEAST),
            capacity: CAPACITY,
        }
    }
}

impl<K, V> OpenNear<K, V> {
    /// How many copies are kept; 10,000 by default. Which ones is decided by how often and how
    /// recently they are read (W-TinyLFU).
    pub const fn capacity(mut self, entries: u64) -> Self {
        self.capacity = entries;
        self
    }
}

impl<K, V> IntoFuture for OpenNear<K, V>
where
    K: 'static,
    V: Clone + Send + Sync + 'static,
{
    type Output = Result<NearMap<K, V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            crate::node::within_runtime()?;
            let Self {
                map,
                max_staleness,
                capacity,
            } = self;
            let mut filter = filter(map.entry.keyspace, map.entry.id);
            (filter.values, filter.fields) = (false, false);
            let every = max_staleness / CONFIRMATIONS;
            let stream = map.data.subscribe(filter, None, Some(every)).await;
            let stream = stream.map_err(Error::of_read)?;
            let near = Arc::new(Near {
                stream,
                turn: Mutex::default(),
                copies: moka::sync::Cache::new(capacity),
                max_staleness,
                confirmed: Mutex::default(),
                marks: (0..MARKS).map(|_| Mutex::default()).collect(),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                unconfirmed: AtomicU64::new(0),
            });
            let task = tokio::spawn(follow(near.clone()));
            Ok(NearMap {
                map,
                near,
                following: Arc::new(Following(task)),
            })
        })
    }
}

thread_local! {
    /// Where keys are encoded, so that a hit allocates nothing.
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
    pub async fn get<Q>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        if let Some(found) = self.copy(key)? {
            return Ok(found);
        }
        self.read(encode_key(key)?).await
    }

    /// The map itself: its reads go to the primaries, and its writes are told to all near caches.
    #[must_use]
    pub const fn map(&self) -> &Map<K, V> {
        &self.map
    }

    /// What this near cache was asked by this process.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NearStats {
            hits: of(&self.near.hits),
            misses: of(&self.near.misses),
            unconfirmed: of(&self.near.unconfirmed),
        }
    }

    /// A copy that may be served.
    fn copy<Q: Serialize + ?Sized>(&self, key: &Q) -> Result<Option<Option<V>>, Error> {
        self.near.catch_up();
        let copied = KEY.with_borrow_mut(|bytes| -> Result<_, Error> {
            bytes.clear();
            key::encode_into(key, bytes).map_err(Error::Key)?;
            Ok(self.near.copies.get(&bytes[..]))
        })?;
        let counted = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let Some(copied) = copied else {
            counted(&self.near.misses);
            return Ok(None);
        };
        let now = clock::now();
        let confirmed = Time(copied.confirmed.load(Ordering::Acquire)).max(copied.read);
        if now.since(confirmed) > self.near.max_staleness
            || copied.expires.is_some_and(|expires| now >= expires)
        {
            counted(&self.near.unconfirmed);
            return Ok(None);
        }
        counted(&self.near.hits);
        Ok(Some(copied.value))
    }

    /// Reads at the primary, and keeps a copy.
    async fn read(&self, key: Bytes) -> Result<Option<V>, Error> {
        let mark = *self.near.mark(&key);
        let read = clock::now();
        let step = |action| Step::Key {
            map: self.map.entry.id,
            key: key.clone(),
            action,
        };
        let both = Transaction {
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
        let (keyspace, map) = (self.map.entry.keyspace, self.map.entry.id);
        let partition = self
            .map
            .data
            .table()
            .and_then(|table| table.keyspace(keyspace)?.partition_of(map, &key));
        let Some(partition) = partition else {
            return Ok(value);
        };
        let copied = Copied {
            value: value.clone(),
            read,
            confirmed: self.near.confirmed_of(partition),
            expires: u64::try_from(ttl)
                .ok()
                .map(|ms| read + Duration::from_millis(ms)),
        };
        let now = self.near.mark(&key);
        if *now == mark {
            self.near.copies.insert(key, copied);
        }
        Ok(value)
    }
}

impl<V: Clone + Send + Sync + 'static> Near<V> {
    /// The mark of a key's part, locked.
    fn mark(&self, key: &[u8]) -> MutexGuard<'_, u64> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        // A part of a hash is as good as all of it.
        let part = hasher.finish() as usize % MARKS;
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
        self.copies.invalidate(key);
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
        self.copies.invalidate_all();
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
