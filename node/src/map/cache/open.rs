//! Opens a cache with its times.

use super::schemas::{SchemaSlot, map_of};
use super::{Cache, CacheSettings};
use crate::error::Error;
use crate::map::Map;
use crate::map::open::OpenMap;
use crate::map::value::{Codec, Undecodable};
use doyen_engine::cached::CacheTimes;
use doyen_placement::{Eviction, MapEntry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

const FRESH: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(3);
const HARD_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(1);
/// Members send newer tables to clients each second.
const TABLES: Duration = Duration::from_millis(1_500);
/// The shortest lease: a claim is renewed after a third of it.
const LEASE_LEAST: Duration = Duration::from_millis(100);

/// A cache that is about to be opened, from [`Node::cache`](crate::Node::cache). Await it.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::Cache;
/// use std::time::Duration;
///
/// let seconds = Duration::from_secs;
/// let pages: Cache<String, String> = node
///     .cache("pages")
///     .fresh_for(seconds(60))
///     .stale_for(seconds(600))        // then the old page, while one caller loads it again
///     .stale_if_error(seconds(3600))  // then the old page if the database fails,
///     .soft_timeout(seconds(1))       // or takes longer than this
///     .absent_for(seconds(10))        // remember pages that do not exist
///     .refresh_ahead(0.2)             // load pages that are read before they are stale
///     .jitter(0.1)                    // not all at the same moment
///     .max_entries(100_000)
///     .await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the map may exist or not. It is empty then.
#[must_use = "it is opened when it is awaited"]
pub struct OpenCache<'a, K, V> {
    map: OpenMap<'a, K, V>,
    /// The map of entries with a schema.
    schemas: OpenMap<'a, K, V>,
    settings: CacheSettings,
}

impl<K, V> fmt::Debug for OpenCache<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCache")
            .field("map", &self.map)
            .field("settings", &self.settings)
            .finish()
    }
}

impl<'a, K, V> OpenCache<'a, K, V> {
    pub(crate) fn new([map, schemas]: [OpenMap<'a, K, V>; 2]) -> Self {
        Self {
            schemas,
            // What another version of the program cached is loaded again.
            map: map.on_undecodable(Undecodable::Miss),
            settings: CacheSettings {
                times: CacheTimes {
                    fresh: FRESH,
                    stale: Duration::ZERO,
                    kept: Duration::ZERO,
                },
                absent: None,
                ahead: 0.0,
                jitter: 0.0,
                lease: LEASE,
                soft_timeout: None,
                hard_timeout: HARD_TIMEOUT,
                retry: RETRY,
            },
        }
    }

    /// The keyspace, as for [`OpenMap::keyspace`].
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.map = self.map.keyspace(keyspace);
        self
    }

    /// How values are encoded, as for [`OpenMap::codec`].
    pub fn codec(mut self, codec: Codec) -> Self {
        self.map = self.map.codec(codec);
        self
    }

    /// What the values are, as for [`OpenMap::schema`]. Entries of another schema are other
    /// entries: while a program is deployed with the next version, both versions have theirs, and
    /// what one of them writes or invalidates is gone for both. They lie in a map beside that of
    /// the cache (`NAME/schemas`), which has the same limits.
    pub fn schema(mut self, name: impl Into<Cow<'static, str>>, version: u16) -> Self {
        self.map = self.map.schema(name, version);
        self
    }

    /// The most entries, as for [`OpenMap::max_entries`].
    pub fn max_entries(mut self, entries: u64) -> Self {
        self.map = self.map.max_entries(entries);
        self
    }

    /// The most bytes, as for [`OpenMap::max_bytes`].
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.map = self.map.max_bytes(bytes);
        self
    }

    /// Sets exactly these limits, also if they are lower, as for [`OpenMap::replace_limits`].
    pub fn replace_limits(mut self) -> Self {
        self.map = self.map.replace_limits();
        self
    }

    /// Which entries are evicted beyond that, as for [`OpenMap::eviction`].
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.map = self.map.eviction(eviction);
        self
    }

    /// How long an entry may be unused, as for [`OpenMap::max_idle`]. Then it is gone, however long
    /// it would have been fresh or kept.
    pub fn max_idle(mut self, idle: Duration) -> Self {
        self.map = self.map.max_idle(idle);
        self
    }

    /// What happens if a value cannot be decoded. Without this it is loaded again.
    pub fn on_undecodable(mut self, undecodable: Undecodable) -> Self {
        self.map = self.map.on_undecodable(undecodable);
        self
    }

    /// How long an entry is fresh; 60 s by default.
    pub const fn fresh_for(mut self, time: Duration) -> Self {
        self.settings.times.fresh = time;
        self
    }

    /// How long an entry is served after that, while one caller of the cluster loads it again in
    /// the background; not at all by default.
    pub const fn stale_for(mut self, time: Duration) -> Self {
        self.settings.times.stale = time;
        self
    }

    /// How long an entry is kept after that, in case that it cannot be loaded; not at all by
    /// default.
    pub const fn stale_if_error(mut self, time: Duration) -> Self {
        self.settings.times.kept = time;
        self
    }

    /// How long the cache remembers that there is nothing to load ([`Cache::find_or_load`]); not at
    /// all by default.
    pub const fn absent_for(mut self, time: Duration) -> Self {
        self.settings.absent = Some(time);
        self
    }

    /// Loads an entry again in the background if a read finds it within this part of its freshness
    /// from its end, 0 to 1: with `0.2` and 60 s, in its last 12 s. 0 by default.
    pub const fn refresh_ahead(mut self, part: f64) -> Self {
        self.settings.ahead = part;
        self
    }

    /// Lets each entry be fresh for up to this part less, 0 to 1, so that entries of one moment do
    /// not expire in one moment. 0 by default.
    pub const fn jitter(mut self, part: f64) -> Self {
        self.settings.jitter = part;
        self
    }

    /// How long the node that loads an entry may be silent before another one loads; 3 s by
    /// default, 100 ms at least. A thread of the node renews the claim while the loader runs, also
    /// if the loader blocks its own thread, until [`hard_timeout`](Self::hard_timeout): a loader
    /// that never returns loses its claim then.
    pub const fn claim_lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a read waits for a load before it returns the old value that is kept for the case
    /// of an error ([`stale_if_error`](Self::stale_if_error)). Without this it waits for the load.
    pub const fn soft_timeout(mut self, limit: Duration) -> Self {
        self.settings.soft_timeout = Some(limit);
        self
    }

    /// How long a load may take, and a read that waits for one; 30 s by default.
    pub const fn hard_timeout(mut self, limit: Duration) -> Self {
        self.settings.hard_timeout = limit;
        self
    }

    /// How long the old value is served after a load has failed, before the next read loads again;
    /// 1 s by default.
    pub const fn retry_after(mut self, time: Duration) -> Self {
        self.settings.retry = time;
        self
    }
}

impl CacheSettings {
    /// # Errors
    /// Something is out of its bounds.
    fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Refused(what));
        if self.lease < LEASE_LEAST {
            let lease = self.lease;
            return refuse(format!(
                "claim_lease of a cache is {lease:?}: give {LEASE_LEAST:?} or more"
            ));
        }
        for (what, part) in [("refresh_ahead", self.ahead), ("jitter", self.jitter)] {
            if !(0.0..=1.0).contains(&part) {
                return refuse(format!(
                    "{what} of a cache is {part}: give a part from 0 to 1"
                ));
            }
        }
        Ok(())
    }
}

impl<'a, K, V> IntoFuture for OpenCache<'a, K, V>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
{
    type Output = Result<Cache<K, V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            map,
            schemas,
            settings,
        } = self;
        Box::pin(async move {
            settings.check()?;
            let schemas = schemas.like(&map);
            let ((plain, data), form) = map.found().await?;
            let slot = |byte| SchemaSlot {
                cache: plain.name.as_str().into(),
                byte,
            };
            let table = data.table();
            let Some(byte) = SchemaSlot::of(&form) else {
                let slot = slot(None);
                return Ok(Cache::new((plain, data, form), slot, settings));
            };
            let slot = slot(Some(byte));
            let name = map_of(&plain.name);
            let known = table.is_some_and(|table| {
                let is_it = |map: &MapEntry| map.keyspace == plain.keyspace && map.name == name;
                table.maps.iter().any(is_it)
            });
            let is_used = !Map::<K, V>::new(plain, data, form, None).is_empty().await?;
            let ((entry, data), form) = schemas.found().await?;
            if is_used && !known {
                // Until all clients know that map, they do not invalidate what it has.
                tokio::time::sleep(TABLES).await;
            }
            Ok(Cache::new((entry, data, form), slot, settings))
        })
    }
}
