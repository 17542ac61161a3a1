//! Functions of the crate `cached` that the whole cluster remembers.

use cached::ConcurrentCachedAsync;
use doyen::{Error, Map};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A store for `#[concurrent_cached]` of the crate `cached` (2.0): a function that one node has
/// called is remembered by all nodes.
///
/// ```no_run
/// use cached::macros::concurrent_cached;
/// use doyen::{Error, Node};
/// use doyen_web::CachedMap;
/// use std::sync::OnceLock;
/// use std::time::Duration;
///
/// static NODE: OnceLock<Node> = OnceLock::new();
///
/// async fn open() -> CachedMap<u64, String> {
///     let node = NODE.get().expect("main sets it first");
///     let map = node.map("names").await.expect("the cluster is ready");
///     CachedMap::new(map).with_ttl(Duration::from_secs(60))
/// }
///
/// #[concurrent_cached(
///     ty = "CachedMap<u64, String>",
///     create = "{ open().await }",
///     map_error = "|why: Error| why"
/// )]
/// async fn name_of(id: u64) -> Result<String, Error> {
///     Ok(format!("user {id}")) // a slow query
/// }
/// ```
///
/// `cached` does not know that several callers miss a key at the same time, so each of them calls
/// the function. [`doyen::Cache::get_or_load`] calls it once for the cluster.
///
/// Clones share their settings.
pub struct CachedMap<K, V> {
    map: Map<K, V>,
    settings: Arc<CachedSettings>,
}

/// What a program may change while it uses the store.
#[derive(Debug, Default)]
struct CachedSettings {
    refresh_on_hit: AtomicBool,
    /// A lock that is held for moments. `None`: the time to live of the map, if it has one.
    ttl: Mutex<Option<Duration>>,
}

impl<K, V> Clone for CachedMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            map: self.map.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<K, V> fmt::Debug for CachedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedMap")
            .field("name", &self.map.name())
            .field("settings", &self.settings)
            .finish()
    }
}

impl<K, V> CachedMap<K, V> {
    /// Keeps results in this map.
    #[must_use]
    pub fn new(map: Map<K, V>) -> Self {
        Self {
            map,
            settings: Arc::default(),
        }
    }

    /// How long results are remembered. Without this it is the time to live of the map, if it has
    /// one.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        *self.ttl() = Some(ttl);
        self
    }

    fn ttl(&self) -> MutexGuard<'_, Option<Duration>> {
        // Each change of it is one step.
        let ttl = &self.settings.ttl;
        ttl.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> ConcurrentCachedAsync<K, V> for CachedMap<K, V>
where
    K: Serialize + Clone + Send + Sync,
    V: Serialize + DeserializeOwned + Send + Sync,
{
    type Error = Error;

    async fn cache_get(&self, key: &K) -> Result<Option<V>, Error> {
        let found = self.map.get(key).await?;
        if found.is_some() && self.settings.refresh_on_hit.load(Ordering::Relaxed) {
            let ttl = *self.ttl();
            match ttl {
                Some(ttl) => self.map.expire(key, ttl).await?,
                None => self.map.touch(key).await?,
            };
        }
        Ok(found)
    }

    async fn cache_set(&self, key: K, value: V) -> Result<Option<V>, Error> {
        let put = self.map.put(&key, &value);
        let ttl = *self.ttl();
        let put = match ttl {
            Some(ttl) => put.ttl(ttl),
            None => put,
        };
        put.returning().await
    }

    async fn cache_remove(&self, key: &K) -> Result<Option<V>, Error> {
        match self.map.take(key).await {
            Ok(Some(value)) => Ok(Some(value)),
            // What cannot be read is not taken. Of results that are remembered, it is only removed.
            Ok(None) | Err(Error::Value(_)) => self.map.remove(key).await.map(|_| None),
            Err(why) => Err(why),
        }
    }

    async fn cache_remove_entry(&self, key: &K) -> Result<Option<(K, V)>, Error> {
        let removed = self.cache_remove(key).await?;
        Ok(removed.map(|value| (key.clone(), value)))
    }

    async fn cache_delete(&self, key: &K) -> Result<bool, Error> {
        self.map.remove(key).await
    }

    fn set_refresh_on_hit(&self, refresh: bool) -> bool {
        let setting = &self.settings.refresh_on_hit;
        setting.swap(refresh, Ordering::Relaxed)
    }

    fn ttl(&self) -> Option<Duration> {
        *Self::ttl(self)
    }

    fn set_ttl(&self, ttl: Duration) -> Option<Duration> {
        Self::ttl(self).replace(ttl)
    }

    fn unset_ttl(&self) -> Option<Duration> {
        Self::ttl(self).take()
    }
}
