//! Writes an entry of a cache.

use super::{Cache, CacheSettings};
use crate::error::Error;
use crate::map::{KeyOf, encode_value};
use bytes::Bytes;
use doyen_engine::cached::{self, CacheTimes};
use doyen_engine::op::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

/// A write of an entry of a cache, from [`Cache::put`]. Give it options, then await it.
///
/// ```no_run
/// # async fn example(pages: doyen::Cache<String, String>) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let page = "<h1>Ada</h1>".to_owned();
/// pages.put("/ada", &page).tag("user 7").fresh_for(Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the write may happen or not, now or a little later, as after
/// [`Error::Unknown`]. Nothing happens before the first poll.
#[must_use = "nothing is written until it is awaited"]
pub struct CachePut<'a, K, V> {
    cache: &'a Cache<K, V>,
    encoded: Result<(Bytes, Bytes), Error>,
    extra: Extra,
}

/// What an entry has besides its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) tags: Vec<String>,
    pub(super) fresh: Option<Duration>,
}

impl Extra {
    /// The tags as they are stored.
    pub(super) fn head(&self) -> Result<Bytes, Error> {
        cached::tags(&self.tags).map_err(|why| Error::Refused(why.to_string()))
    }

    /// The times of an entry.
    pub(super) fn times(&self, settings: &CacheSettings) -> CacheTimes {
        let CacheTimes { fresh, stale, kept } = settings.times;
        let fresh = self.fresh.unwrap_or(fresh);
        let less = fresh.mul_f64(settings.jitter * rand::random::<f64>());
        CacheTimes {
            fresh: fresh.saturating_sub(less),
            stale,
            kept,
        }
    }
}

impl<K, V> fmt::Debug for CachePut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachePut")
            .field("cache", &self.cache.name())
            .field("extra", &self.extra)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Cache<K, V> {
    /// Writes a value that is known without a loader. Loads of the key that are under way are void.
    ///
    /// # Errors
    /// When it is awaited: as for [`Map::insert`](crate::Map::insert). [`Error::Refused`]: the tags
    /// are too long.
    pub fn put<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> CachePut<'_, K, V> {
        CachePut {
            cache: self,
            encoded: (self.slot.key(key))
                .and_then(|key| Ok((key, encode_value(&self.map.form, value)?))),
            extra: Extra::default(),
        }
    }

    /// Writes a value, as [`Cache::put`] without options.
    ///
    /// # Errors
    /// As for [`Cache::put`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn insert<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error> {
        self.put(key, value).await
    }
}

impl<K, V> CachePut<'_, K, V> {
    /// A tag, by which [`Cache::invalidate_tag`] finds the entry. It may have several.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.extra.tags.push(tag.into());
        self
    }

    /// How long it is fresh, instead of the time of the cache.
    pub const fn fresh_for(mut self, time: Duration) -> Self {
        self.extra.fresh = Some(time);
        self
    }
}

impl<'a, K, V> IntoFuture for CachePut<'a, K, V>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
{
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            cache,
            encoded,
            extra,
        } = self;
        Box::pin(async move {
            let (key, body) = encoded?;
            let times = extra.times(&cache.settings);
            cache.remove_elsewhere(&key).await?;
            let action = cached::store_as(None, times, extra.head()?, Some(body));
            match cache.map.write_encoded(key, action).await? {
                Outcome::Int(1) => Ok(()),
                other => Err(Error::unexpected(other)),
            }
        })
    }
}
