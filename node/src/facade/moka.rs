//! A cache with the names of [moka](https://docs.rs/moka)'s `future::Cache`. It is a thin cover of
//! [`doyen::Cache`](crate::Cache), so all nodes and clients share its entries.
//!
//! ```no_run
//! use doyen::facade::moka::Cache;
//! use std::time::Duration;
//!
//! # async fn query(id: u64) -> Result<String, std::io::Error> { Ok("Ada".into()) }
//! # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
//! let users: Cache<u64, String> =
//!     Cache::builder("users").time_to_live(Duration::from_secs(60)).build(node).await?;
//! let ada = users.try_get_with(7, query(7)).await?;
//! users.invalidate(&7).await?; // for all nodes
//! # Ok(()) }
//! ```
//!
//! # What differs from moka
//! - The cache has a name, by which other nodes find it. It is built on a node, and awaited.
//! - Every operation may ask another process. So it is `async`, and returns a `Result`.
//! - Keys and values are serde types. A value is decoded each time that it is read.
//! - Of all callers *in the cluster* that miss a key, one runs its `init`. It runs in a task of its
//!   own, so it must be `Send + 'static`, and it goes on if the caller's future is dropped. Its
//!   error is in [`Error::Load`].
//! - The time to live is the same for all programs that use the cache, if they give the same.
//! - There are no eviction listeners and weighers: see `docs/from-moka.md` for what to use instead.

use crate::error::Error;
use crate::map::{Cache as Inner, KeyOf};
use crate::node::Node;
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an entry lives that has no time to live: a hundred years.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What `init` may fail with.
type MokaError = Box<dyn std::error::Error + Send + Sync>;

/// A cache that all nodes share, with the names of moka: see the [module](self). Cheap to clone.
///
/// ```no_run
/// use doyen::facade::moka::Cache;
///
/// # fn render(path: &str) -> String { path.to_owned() }
/// # async fn example(pages: Cache<String, String>) -> Result<(), doyen::Error> {
/// pages.insert("/".to_owned(), "welcome".to_owned()).await?;
/// let page = pages.get_with("/ada".to_owned(), async { render("/ada") }).await?;
/// assert!(pages.contains_key("/").await?);
/// pages.remove("/").await?;
/// pages.invalidate_all().await?;
/// println!("{} has {} entries", pages.name(), pages.entry_count().await?);
/// println!("{} hits in this process", pages.inner().stats().hits); // what moka has not
/// # Ok(()) }
/// ```
pub struct Cache<K, V> {
    cache: Inner<K, V>,
}

/// How a cache is to be, from [`Cache::builder`].
///
/// ```no_run
/// use doyen::facade::moka::Cache;
/// use std::time::Duration;
///
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// let pages: Cache<String, String> = Cache::builder("pages")
///     .max_capacity(100_000)
///     .time_to_live(Duration::from_secs(3600))
///     .time_to_idle(Duration::from_secs(600))
///     .build(node)
///     .await?;
/// # Ok(()) }
/// ```
pub struct CacheBuilder<K, V> {
    name: String,
    time_to_live: Duration,
    time_to_idle: Option<Duration>,
    max_capacity: Option<u64>,
    kinds: PhantomData<fn(K) -> V>,
}

/// A key that is about to be looked up, from [`Cache::entry`].
///
/// Example: [`Cache::entry`].
pub struct EntrySelector<'a, K, V> {
    cache: &'a Cache<K, V>,
    key: K,
}

/// An entry that was found or made, from [`Cache::entry`].
///
/// Example: [`Cache::entry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MokaEntry<K, V> {
    key: K,
    value: V,
    is_fresh: bool,
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        let cache = self.cache.clone();
        Self { cache }
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cache.fmt(f)
    }
}

impl<K, V> fmt::Debug for CacheBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("name", &self.name)
            .field("time_to_live", &self.time_to_live)
            .field("time_to_idle", &self.time_to_idle)
            .field("max_capacity", &self.max_capacity)
            .finish()
    }
}

impl<K, V> fmt::Debug for EntrySelector<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntrySelector")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// A cache with options that moka does not have, such as a keyspace or stale values.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::facade::moka::Cache;
///
/// let users = Cache::from(node.cache::<u64, String>("users").keyspace("accounts").await?);
/// # let _ = users.get(&7).await?;
/// # Ok(()) }
/// ```
impl<K, V> From<Inner<K, V>> for Cache<K, V> {
    fn from(cache: Inner<K, V>) -> Self {
        Self { cache }
    }
}

impl<K, V> Cache<K, V> {
    /// Begins to build the cache of this name.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> CacheBuilder<K, V> {
        CacheBuilder {
            name: name.into(),
            time_to_live: FOREVER,
            time_to_idle: None,
            max_capacity: None,
            kinds: PhantomData,
        }
    }

    /// The name of the cache.
    #[must_use]
    pub fn name(&self) -> &str {
        self.cache.name()
    }

    /// The cache under Doyen's own names: with tags, statistics and more.
    #[must_use]
    pub const fn inner(&self) -> &Inner<K, V> {
        &self.cache
    }
}

impl<K, V> CacheBuilder<K, V> {
    /// How long an entry lives after it was written. Without this it lives until it is removed, or
    /// until its keyspace evicts it.
    #[must_use]
    pub const fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = time;
        self
    }

    /// How long an entry may be unused, as for [`OpenCache::max_idle`](crate::OpenCache::max_idle):
    /// it is decided when the cache is made.
    #[must_use]
    pub const fn time_to_idle(mut self, time: Duration) -> Self {
        self.time_to_idle = Some(time);
        self
    }

    /// The most entries of all nodes together. Beyond that, those that are used least often are
    /// evicted.
    #[must_use]
    pub const fn max_capacity(mut self, entries: u64) -> Self {
        self.max_capacity = Some(entries);
        self
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> CacheBuilder<K, V> {
    /// Opens the cache on this node. It is made if it does not exist.
    ///
    /// # Errors
    /// As for [`Node::cache`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the cache may exist or not. It is empty then.
    pub async fn build(self, node: &Node) -> Result<Cache<K, V>, Error> {
        let mut opened = node.cache(&self.name).fresh_for(self.time_to_live);
        if let Some(time) = self.time_to_idle {
            opened = opened.max_idle(time);
        }
        if let Some(entries) = self.max_capacity {
            opened = opened.max_entries(entries);
        }
        Ok(Cache::from(opened.await?))
    }
}

impl<K, V> Cache<K, V>
where
    K: Serialize,
    V: Serialize + DeserializeOwned + Send + 'static,
{
    /// The value of a key, if it is there and its time to live is not over.
    ///
    /// # Errors
    /// As for [`Map::get`](crate::Map::get).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        self.cache.get(key).await
    }

    /// Whether [`get`](Self::get) would find a value.
    ///
    /// # Errors
    /// As for [`Map::get`](crate::Map::get).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn contains_key<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        Ok(self.cache.get(key).await?.is_some())
    }

    /// Writes a value. Values that are being made for the key by an `init` are not stored.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert).
    ///
    /// # Cancel safety
    /// If the future is dropped, the value may be written or not, now or a little later.
    pub async fn insert(&self, key: K, value: V) -> Result<(), Error> {
        self.cache.insert(&key, &value).await
    }

    /// The value of a key. If there is none, one caller of the cluster runs its `init`, and all
    /// who wait get what it makes.
    ///
    /// # Errors
    /// [`Error::Load`]: `init` panicked. Otherwise as for [`Cache::try_get_with`].
    ///
    /// # Cancel safety
    /// If the future is dropped, an `init` that runs goes on, and its value is stored.
    pub async fn get_with(
        &self,
        key: K,
        init: impl Future<Output = V> + Send + 'static,
    ) -> Result<V, Error> {
        self.try_get_with(key, init.map(Ok::<V, Infallible>)).await
    }

    /// As [`Cache::get_with`], with an `init` that may fail. Nothing is stored then, and all who
    /// wait get its error.
    ///
    /// # Errors
    /// [`Error::Load`]: `init` failed, and this is its error; or it panicked.
    /// [`Error::LoadTimeout`]: it took more than 30 s. Otherwise as for
    /// [`Map::get`](crate::Map::get).
    ///
    /// # Cancel safety
    /// As for [`Cache::get_with`].
    pub async fn try_get_with<F, E>(&self, key: K, init: F) -> Result<V, Error>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<MokaError>,
    {
        self.cache.get_or_load(&key, move || init).await
    }

    /// As [`Cache::get_with`], with an `init` that may make nothing. Nothing is stored then.
    ///
    /// # Errors
    /// As for [`Cache::get_with`].
    ///
    /// # Cancel safety
    /// As for [`Cache::get_with`].
    pub async fn optionally_get_with(
        &self,
        key: K,
        init: impl Future<Output = Option<V>> + Send + 'static,
    ) -> Result<Option<V>, Error> {
        let init = init.map(Ok::<Option<V>, Infallible>);
        self.cache.find_or_load(&key, move || init).await
    }

    /// Looks up an entry, to make it if it is not there.
    ///
    /// ```no_run
    /// # async fn example(users: doyen::facade::moka::Cache<u64, String>) -> Result<(), doyen::Error> {
    /// let entry = users.entry(7).or_insert_with(async { "Ada".to_owned() }).await?;
    /// println!("{} is {}: {}", entry.key(), entry.value(), entry.is_fresh());
    /// # Ok(()) }
    /// ```
    pub const fn entry(&self, key: K) -> EntrySelector<'_, K, V> {
        EntrySelector { cache: self, key }
    }

    /// Removes a key. A value that is being made for it by an `init` is not stored.
    ///
    /// # Errors
    /// As for [`Map::remove`](crate::Map::remove).
    ///
    /// # Cancel safety
    /// If the future is dropped, the key may be removed or not, now or a little later.
    pub async fn invalidate<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<(), Error> {
        self.cache.invalidate(key).await.map(drop)
    }

    /// Removes a key, and returns the value that [`get`](Self::get) would have found: of several
    /// callers, one gets it.
    ///
    /// # Errors
    /// As for [`doyen::Cache::take`](crate::Cache::take).
    ///
    /// # Cancel safety
    /// As for [`Cache::invalidate`]. The value is lost if it is removed.
    pub async fn remove<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        self.cache.take(key).await
    }

    /// Removes all keys. Values that are being made are not stored.
    ///
    /// # Errors
    /// As for [`Map::clear`](crate::Map::clear).
    ///
    /// # Cancel safety
    /// If the future is dropped, some keys may be removed and others not. It may be called again.
    pub async fn invalidate_all(&self) -> Result<(), Error> {
        self.cache.invalidate_all().await
    }

    /// How many entries there are, about: those that are being made count.
    ///
    /// # Errors
    /// As for [`Map::len`](crate::Map::len).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn entry_count(&self) -> Result<u64, Error> {
        self.cache.len().await
    }
}

impl<K, V> EntrySelector<'_, K, V>
where
    K: Serialize,
    V: Serialize + DeserializeOwned + Send + 'static,
{
    /// The entry. If there is none, it is made with this value.
    ///
    /// # Errors
    /// As for [`Cache::get_with`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the value may be written or not.
    pub async fn or_insert(self, value: V) -> Result<MokaEntry<K, V>, Error> {
        self.or_insert_with(std::future::ready(value)).await
    }

    /// The entry. If there is none, it is made as by [`Cache::get_with`].
    ///
    /// # Errors
    /// As for [`Cache::get_with`].
    ///
    /// # Cancel safety
    /// As for [`Cache::get_with`].
    pub async fn or_insert_with(
        self,
        init: impl Future<Output = V> + Send + 'static,
    ) -> Result<MokaEntry<K, V>, Error> {
        self.or_try_insert_with(init.map(Ok::<V, Infallible>)).await
    }

    /// The entry. If there is none, it is made as by [`Cache::try_get_with`].
    ///
    /// # Errors
    /// As for [`Cache::try_get_with`].
    ///
    /// # Cancel safety
    /// As for [`Cache::get_with`].
    pub async fn or_try_insert_with<F, E>(self, init: F) -> Result<MokaEntry<K, V>, Error>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<MokaError>,
    {
        let began = Arc::new(AtomicBool::new(false));
        let begins = began.clone();
        let init = async move {
            begins.store(true, Ordering::Relaxed);
            init.await
        };
        let Self { cache, key } = self;
        let value = cache.cache.get_or_load(&key, move || init).await?;
        Ok(MokaEntry {
            key,
            value,
            is_fresh: began.load(Ordering::Relaxed),
        })
    }
}

impl<K, V> MokaEntry<K, V> {
    /// Its key.
    #[must_use]
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// Its value.
    #[must_use]
    pub const fn value(&self) -> &V {
        &self.value
    }

    /// Its value, without the rest.
    #[must_use]
    pub fn into_value(self) -> V {
        self.value
    }

    /// Whether this caller's `init` ran. False: the value was there, or another caller made it.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        self.is_fresh
    }
}
