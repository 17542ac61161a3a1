//! A cache of the cluster that loads what is missing.
//!
//! ```text
//!   get_or_load ── read ──> fresh: that value
//!       │                   stale: that value, and a flight in the background
//!       └─ flight (one a key in this process): claim ── load ── store, or release
//!                                                └─ another node loads: wait, read again
//! ```
//! The claim is part of the entry (`doyen_engine::cached`): one caller of the whole cluster has it
//! at a time, and it is gone with the entry when the entry is invalidated.

mod flight;
mod load;
#[cfg(feature = "near")]
mod near;
mod open;
mod schemas;
mod store;
mod waits;

pub use load::Loaded;
#[cfg(feature = "near")]
pub use near::NearCache;
pub use open::OpenCache;
pub(crate) use schemas::map_of as schemas_of;
pub use store::CachePut;

use super::value::Form;
use super::{KeyOf, Map, Pages};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::cached::{self, CacheTimes, Freshness};
use doyen_engine::op::{Action, OperationBatch, OperationStep, Outcome, Watched};
use doyen_placement::MapEntry;
use flight::Flights;
use schemas::SchemaSlot;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A cache that all nodes share, from [`Node::cache`](crate::Node::cache): a map whose entries are
/// loaded when they are missing, once for the whole cluster. Cheap to clone.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct User;
/// # #[derive(Clone)] struct Db;
/// # impl Db { async fn user(&self, _: u64) -> Result<User, std::io::Error> { Ok(User) } }
/// # async fn example(node: &doyen::Node, db: Db) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let users = node
///     .cache::<u64, User>("users")
///     .fresh_for(Duration::from_secs(60))
///     .stale_for(Duration::from_secs(600))
///     .stale_if_error(Duration::from_secs(3600))
///     .await?;
/// let user = users.get_or_load(&7, move || async move { db.user(7).await }).await?;
/// users.invalidate(&7).await?; // after the user was changed
/// # Ok(()) }
/// ```
///
/// # What an entry goes through
/// | for | a read |
/// |---|---|
/// | [`fresh_for`](OpenCache::fresh_for) | returns it |
/// | then [`stale_for`](OpenCache::stale_for) | returns it at once, and one caller of the cluster loads it again in the background |
/// | then [`stale_if_error`](OpenCache::stale_if_error) | loads it; returns the old value if that fails, or takes longer than [`soft_timeout`](OpenCache::soft_timeout) |
/// | afterwards | loads it |
///
/// # Loading
/// Of all callers in the cluster that miss an entry at a time, one runs its loader; the others wait
/// for what it brings. If its node ends, another caller loads when the claim ends
/// ([`claim_lease`](OpenCache::claim_lease)). The loader runs in a task of its own, so it goes on
/// if the caller's future is dropped. It may block its thread: the node renews the claim on a
/// thread of its own, until [`hard_timeout`](OpenCache::hard_timeout).
///
/// A loader may ask for other keys. If it asks for its own one, also by way of other keys, caches
/// and processes, it would wait for itself: the call fails at once with
/// [`Error::LoadCycle`](crate::Error::LoadCycle), which names the keys. Calls in tasks that the
/// loader spawns are not seen to belong to it, and end with `hard_timeout`.
///
/// If a loader fails or panics, its callers get [`Error::Load`](crate::Error::Load), whose
/// `why.downcast_ref::<MyError>()` is the loader's error, and the next caller loads. A loaded value
/// that cannot be stored (it is too large, or memory is full) is returned all the same, and the
/// next caller loads again. So is a value loaded again that this program cannot decode, because
/// another version wrote it. While it is remembered that there is nothing to load
/// ([`absent_for`](OpenCache::absent_for)), `get_or_load` fails with `Error::Load`.
///
/// [`invalidate`](Cache::invalidate) and its siblings, and every write, void the loads that are
/// under way: what these bring is not stored, and no read that begins afterwards returns it.
pub struct Cache<K, V> {
    map: Map<K, V>,
    slot: SchemaSlot,
    settings: Arc<CacheSettings>,
    flights: Arc<Flights>,
}

/// How a cache behaves.
#[derive(Debug, Clone, PartialEq)]
struct CacheSettings {
    times: CacheTimes,
    /// How long it is known that there is nothing to load.
    absent: Option<Duration>,
    /// The part of its freshness, at its end, in which an entry is loaded ahead.
    ahead: f64,
    /// The part of its freshness by which an entry may be fresh for less.
    jitter: f64,
    lease: Duration,
    soft_timeout: Option<Duration>,
    hard_timeout: Duration,
    /// How long an old value is served after a load has failed, before the next one.
    retry: Duration,
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self {
            map: self.map.clone(),
            slot: self.slot.clone(),
            settings: self.settings.clone(),
            flights: self.flights.clone(),
        }
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.slot.cache)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What a cache holds of a key.
enum HeldLoad<V> {
    /// There is no value.
    Nothing,
    /// There is a value that this program cannot decode, and that counts as absent.
    Undecodable,
    /// It is known that there is nothing to load.
    Absent(Freshness),
    Value(V, Freshness),
}

impl<K, V> Cache<K, V> {
    fn new(
        (entry, data, form): (MapEntry, DataHandle, Form),
        slot: SchemaSlot,
        settings: CacheSettings,
    ) -> Self {
        Self {
            map: Map::new(entry, data, form, None),
            slot,
            settings: Arc::new(settings),
            flights: Arc::default(),
        }
    }

    /// The name of the cache.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.slot.cache
    }

    /// What this cache was asked by this process: hits and misses of its reads.
    #[must_use]
    pub fn stats(&self) -> super::MapStats {
        self.map.stats()
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Cache<K, V> {
    /// The value of a key, if it is fresh or stale. Nothing is loaded.
    ///
    /// # Errors
    /// As for [`Map::get`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        let found = match self.held(self.slot.key(key)?).await? {
            HeldLoad::Value(value, Freshness::Fresh(_) | Freshness::Stale) => Some(value),
            HeldLoad::Value(..)
            | HeldLoad::Absent(_)
            | HeldLoad::Nothing
            | HeldLoad::Undecodable => None,
        };
        self.map.counts.looked_up(found.is_some());
        Ok(found)
    }

    /// Removes a key, and returns the value that [`get`](Cache::get) would have found: of several
    /// callers, one gets it. A load that is under way is void.
    ///
    /// # Errors
    /// As for [`Map::take`]: what cannot be decoded is not removed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the key may be removed or not, now or a little later. If it is,
    /// its value is lost.
    pub async fn take<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        let key = self.slot.key(key)?;
        let (keyspace, map) = (self.map.entry.keyspace, self.map.entry.id);
        let queue = self.map.data.queue(keyspace, map, key.clone());
        let mut turn = queue.enter().await;
        let of = |watched, steps: Vec<Action>| OperationBatch {
            keyspace,
            watched,
            steps: (steps.into_iter())
                .map(|action| OperationStep::Key {
                    map,
                    key: key.clone(),
                    action,
                })
                .collect(),
        };
        loop {
            let look = of(Vec::new(), vec![Action::Version, cached::read()]);
            let looked = match self.map.data.execute_transaction(look).await {
                Outcome::Many(answers) => <[Outcome; 2]>::try_from(answers),
                Outcome::Failed(failure) => return Err(Error::of_read(failure)),
                other => return Err(Error::unexpected(other)),
            };
            let Ok([Outcome::Int(version), found]) = looked else {
                self.remove_elsewhere(&key).await?;
                return Ok(None);
            };
            let found = cached::CacheLookup::of(found);
            let found = found.ok_or_else(|| Error::Unexpected("no entry of a cache".into()))?;
            let found = match self.decoded(&found)? {
                HeldLoad::Value(value, Freshness::Fresh(_) | Freshness::Stale) => Some(value),
                HeldLoad::Undecodable => return Ok(None),
                HeldLoad::Value(..) | HeldLoad::Absent(_) | HeldLoad::Nothing => None,
            };
            let seen = Watched {
                map,
                key: key.clone(),
                version: Some(version),
            };
            let removal = of(vec![seen], vec![Action::Delete]);
            match self
                .map
                .written(self.map.data.execute_transaction(removal).await)?
            {
                Outcome::Many(_) => {
                    self.remove_elsewhere(&key).await?;
                    return Ok(found);
                }
                Outcome::Nil if turn.again().await => {}
                Outcome::Nil => return Err(Error::Changed),
                other => return Err(Error::unexpected(other)),
            }
        }
    }

    /// How many entries there are, as [`Map::len`] counts keys. Entries that are kept for the case
    /// of an error, and those that are being loaded, count, and so do those of other schemas.
    ///
    /// # Errors
    /// As for [`Map::len`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        let mut sum = 0;
        for map in self.maps() {
            sum += map.len().await?;
        }
        Ok(sum)
    }

    /// Whether there is no entry, as for [`Cache::len`].
    ///
    /// # Errors
    /// As for [`Map::len`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Removes a key, so that the next read loads it. A load that is under way is void. Returns
    /// whether there was an entry.
    ///
    /// # Errors
    /// As for [`Map::remove`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn invalidate<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        let key = self.slot.key(key)?;
        let elsewhere = self.remove_elsewhere(&key).await?;
        let removed = super::number(self.map.write_encoded(key, Action::Delete).await?)?;
        Ok(removed || elsewhere)
    }

    /// Removes all keys that begin with this, as [`Map::prefix`] finds them. Loads of such keys
    /// that are under way are void. Costs a look at every key of the cache, unless its keyspace
    /// keeps keys in order.
    ///
    /// ```no_run
    /// # async fn example(shelves: doyen::Cache<(String, u64), u64>) -> Result<(), doyen::Error> {
    /// shelves.invalidate(&("berlin".to_owned(), 7)).await?;
    /// shelves.invalidate_prefix(&("berlin",)).await?; // all shelves of Berlin
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::clear`]: it may be done in part, and may be called again.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the keys may be removed and others not. It may be called
    /// again.
    pub async fn invalidate_prefix<Q>(&self, prefix: &Q) -> Result<(), Error>
    where
        Q: Serialize + ?Sized,
    {
        for (map, pages) in self.pages(&self.slot.key(prefix)?) {
            map.remove_pages(pages).await?;
        }
        Ok(())
    }

    /// Removes all entries with this tag ([`Loaded::tag`]). Loads that are under way are void,
    /// because their tags are not known yet. Costs a look at every key of the cache.
    ///
    /// # Errors
    /// As for [`Map::clear`]: it may be done in part, and may be called again.
    ///
    /// # Cancel safety
    /// As for [`Cache::invalidate_prefix`].
    pub async fn invalidate_tag(&self, tag: &str) -> Result<(), Error> {
        let tag = Bytes::copy_from_slice(tag.as_bytes());
        for map in self.maps() {
            let place = (map.entry.keyspace, map.entry.id);
            let pages = Pages::new(place, map.data.clone(), Bytes::new());
            map.remove_pages(pages.holding(tag.clone())).await?;
        }
        Ok(())
    }

    /// Removes all entries. Loads that are under way are void.
    ///
    /// # Errors
    /// As for [`Map::clear`].
    ///
    /// # Cancel safety
    /// As for [`Cache::invalidate_prefix`].
    pub async fn invalidate_all(&self) -> Result<(), Error> {
        for map in self.maps() {
            map.clear().await?;
        }
        Ok(())
    }

    /// What is stored of a key.
    async fn held(&self, key: Bytes) -> Result<HeldLoad<V>, Error> {
        let operation = self.map.operation(key, cached::read());
        match self.map.data.execute(operation).await {
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            outcome => match cached::CacheLookup::of(outcome) {
                Some(found) => self.decoded(&found),
                None => Err(Error::Unexpected("no entry of a cache".into())),
            },
        }
    }

    fn decoded(&self, found: &cached::CacheLookup) -> Result<HeldLoad<V>, Error> {
        Ok(match found.body() {
            None => HeldLoad::Nothing,
            Some(None) => HeldLoad::Absent(found.freshness),
            Some(Some(body)) => match self.map.form.decode(body).map_err(Error::Value)? {
                Some(value) => HeldLoad::Value(value, found.freshness),
                None => HeldLoad::Undecodable,
            },
        })
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// Removes all keys of these pages.
    async fn remove_pages(&self, mut pages: Pages) -> Result<(), Error> {
        while let Some(page) = pages.next().await? {
            let removals = page.into_iter().map(|(key, _)| Ok((key, Action::Delete)));
            for removed in self.execute_all(removals).await {
                self.written(removed?)?;
            }
        }
        Ok(())
    }
}
