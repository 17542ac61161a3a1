//! Copies of a cache's entries in this process.

use super::{Cache, CachePut, HeldLoad, Loaded};
use crate::error::Error;
use crate::map::KeyOf;
use crate::map::near::{Near, NearStats, NearTask, OpenNear};
use bytes::Bytes;
use doyen_engine::cached::Freshness;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A cache with copies of its fresh entries in this process, from [`Cache::near`]. Cheap to clone.
///
/// ```no_run
/// # async fn query(id: u64) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # async fn example(users: doyen::Cache<u64, String>) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let near = users.near(Duration::from_secs(1)).capacity(100_000).await?;
/// let user = near.get_or_load(&7, || query(7)).await?; // from memory, if this process has it
/// near.invalidate(&7).await?; // seen by this process at once, and by others within a second
/// # Ok(()) }
/// ```
///
/// A copy is served while its entry is fresh, and within the bound, as [`NearMap`](crate::NearMap)
/// says of it: it was the value of the key at some moment that is at most `max_staleness` before
/// the call, and a process sees its own acknowledged writes and invalidations. Everything else,
/// what is stale or missing, goes the way of [`Cache::get_or_load`].
pub struct NearCache<K, V> {
    cache: Cache<K, V>,
    near: Arc<NearTask<V>>,
}

impl<K, V> Clone for NearCache<K, V> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            near: self.near.clone(),
        }
    }
}

impl<K, V> fmt::Debug for NearCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearCache")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Cache<K, V> {
    /// This cache with copies of its fresh entries in this process, which are `max_staleness` old
    /// at most. Await it.
    ///
    /// # Errors
    /// When it is awaited: as for [`Map::near`](crate::Map::near).
    pub fn near(&self, max_staleness: Duration) -> OpenNear<Self> {
        OpenNear::new(self.clone(), max_staleness)
    }
}

impl<K, V> IntoFuture for OpenNear<Cache<K, V>>
where
    K: 'static,
    V: Clone + Send + Sync + 'static,
{
    type Output = Result<NearCache<K, V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let cache = self.of;
            let near = Near::open(&cache.map, self.max_staleness, self.capacity).await?;
            Ok(NearCache { cache, near })
        })
    }
}

impl<K, V> NearCache<K, V>
where
    K: Serialize,
    V: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// The value of a key, if it is fresh or stale. Nothing is loaded.
    ///
    /// # Errors
    /// As for [`Cache::get`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        if let Some(found) = self.near.copy(key, self.cache.slot.byte)? {
            return Ok(found);
        }
        let found = match self.read(self.cache.slot.key(key)?).await? {
            HeldLoad::Value(value, Freshness::Fresh(_) | Freshness::Stale) => Some(value),
            HeldLoad::Value(..)
            | HeldLoad::Absent(_)
            | HeldLoad::Nothing
            | HeldLoad::Undecodable => None,
        };
        self.cache.map.counts.looked_up(found.is_some());
        Ok(found)
    }

    /// The value of a key: a copy in this process, the stored one, or what a loader brings.
    ///
    /// # Errors
    /// As for [`Cache::get_or_load`].
    ///
    /// # Cancel safety
    /// As for [`Cache::get_or_load`].
    pub async fn get_or_load<Q, F, L, T, E>(&self, key: &Q, load: F) -> Result<V, Error>
    where
        Q: KeyOf<K> + ?Sized,
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Loaded<V>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.fresh(key).await? {
            Some(found) => found.ok_or_else(super::load::nothing),
            None => self.cache.get_or_load(key, load).await,
        }
    }

    /// As [`get_or_load`](NearCache::get_or_load), for a loader that may find nothing. That there
    /// is nothing is copied, too, for [`absent_for`](crate::OpenCache::absent_for).
    ///
    /// # Errors
    /// As for [`Cache::find_or_load`].
    ///
    /// # Cancel safety
    /// As for [`Cache::get_or_load`].
    pub async fn find_or_load<Q, F, L, T, E>(&self, key: &Q, load: F) -> Result<Option<V>, Error>
    where
        Q: KeyOf<K> + ?Sized,
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<Option<T>, E>> + Send + 'static,
        T: Into<Loaded<V>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.fresh(key).await? {
            Some(found) => Ok(found),
            None => self.cache.find_or_load(key, load).await,
        }
    }

    /// Writes a value that is known without a loader, as [`Cache::put`].
    ///
    /// # Errors
    /// As for [`Cache::put`].
    pub fn put<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> CachePut<'_, K, V> {
        self.cache.put(key, value)
    }

    /// Writes a value, as [`Cache::insert`].
    ///
    /// # Errors
    /// As for [`Cache::put`].
    ///
    /// # Cancel safety
    /// As for [`Cache::insert`].
    pub async fn insert<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error> {
        self.cache.insert(key, value).await
    }

    /// Removes a key, as [`Cache::invalidate`].
    ///
    /// # Errors
    /// As for [`Cache::invalidate`].
    ///
    /// # Cancel safety
    /// As for [`Cache::invalidate`].
    pub async fn invalidate<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        self.cache.invalidate(key).await
    }

    /// The cache itself: its reads go to the primaries. Its writes are seen by this near cache,
    /// too.
    #[must_use]
    pub const fn cache(&self) -> &Cache<K, V> {
        &self.cache
    }

    /// What this near cache was asked by this process.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        self.near.stats()
    }

    /// A value that is fresh for long enough, from a copy or from the primary.
    async fn fresh<Q: Serialize + ?Sized>(&self, key: &Q) -> Result<Option<Option<V>>, Error> {
        if let Some(found) = self.near.copy(key, self.cache.slot.byte)? {
            return Ok(Some(found));
        }
        let found = match self.read(self.cache.slot.key(key)?).await? {
            HeldLoad::Value(value, Freshness::Fresh(left)) if left >= self.cache.ahead() => {
                Some(value)
            }
            HeldLoad::Absent(Freshness::Fresh(left)) if left >= self.cache.ahead() => None,
            _ => return Ok(None),
        };
        self.cache.map.counts.looked_up(true);
        Ok(Some(found))
    }

    /// Reads at the primary, and keeps a copy until it is time to load ahead.
    async fn read(&self, key: Bytes) -> Result<HeldLoad<V>, Error> {
        let reading = self.near.read(&key);
        let held = self.cache.held(key.clone()).await?;
        let copied = match &held {
            HeldLoad::Value(value, Freshness::Fresh(left)) => Some((Some(value.clone()), left)),
            HeldLoad::Absent(Freshness::Fresh(left)) => Some((None, left)),
            _ => None,
        };
        if let Some((value, left)) = copied
            && let Some(lasts) = left.checked_sub(self.cache.ahead())
        {
            (self.near).keep(&self.cache.map, (key, reading), (value, Some(lasts)));
        }
        Ok(held)
    }
}
