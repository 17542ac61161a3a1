//! Reads an entry, and loads it if it is missing.

use super::flight::{FailedFlight, Joined, Load};
use super::store::Extra;
use super::waits::{Link, WaitEntry, WaitingLoad};
use super::{Cache, HeldLoad};
use crate::error::{Error, within_runtime};
use crate::map::{KeyOf, encode_value};
use bytes::Bytes;
use doyen_engine::cached::Freshness;
use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A loaded value with what its entry is to have besides. A loader may return a plain value, too.
///
/// ```no_run
/// # async fn example(pages: doyen::Cache<String, String>) -> Result<(), doyen::Error> {
/// use doyen::Loaded;
///
/// let page = pages.get_or_load("/ada", || async {
///     let page = "Ada's page".to_owned();
///     Ok::<_, std::io::Error>(Loaded::new(page).tag("user 7"))
/// });
/// println!("{}", page.await?);
/// pages.invalidate_tag("user 7").await?; // all pages about user 7
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Loaded<V> {
    value: V,
    extra: Extra,
}

impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self::new(value)
    }
}

impl<V> Loaded<V> {
    /// A value without anything besides.
    #[must_use]
    pub fn new(value: V) -> Self {
        Self {
            value,
            extra: Extra::default(),
        }
    }

    /// A tag, by which [`Cache::invalidate_tag`] finds the entry. It may have several.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.extra.tags.push(tag.into());
        self
    }

    /// How long it is fresh, instead of the time of the cache.
    #[must_use]
    pub const fn fresh_for(mut self, time: Duration) -> Self {
        self.extra.fresh = Some(time);
        self
    }
}

/// What a loader may fail with.
type LoadError = Box<dyn std::error::Error + Send + Sync>;

/// What a loader brought, encoded.
#[derive(Debug)]
pub(super) struct LoaderOutput {
    /// `None`: there is nothing to load.
    pub(super) body: Option<Bytes>,
    pub(super) extra: Extra,
}

/// A loader that is not started.
pub(super) type Loader =
    Box<dyn FnOnce() -> BoxFuture<'static, Result<LoaderOutput, Error>> + Send>;

/// What a caller does with what is stored.
enum Next<V> {
    Return(Option<V>),
    /// Return it, and load again in the background.
    ReturnAndLoad(Option<V>),
    /// Load. If that fails, the old value may be returned, if there is one.
    Load {
        old: Option<Option<V>>,
        /// Load although the entry is fresh.
        although_fresh: bool,
    },
}

impl<V> Next<V> {
    fn of(held: HeldLoad<V>, ahead: Duration) -> Self {
        let (value, freshness) = match held {
            HeldLoad::Value(value, freshness) => (Some(value), freshness),
            HeldLoad::Absent(freshness) => (None, freshness),
            HeldLoad::Nothing | HeldLoad::Undecodable => {
                return Self::Load {
                    old: None,
                    although_fresh: matches!(held, HeldLoad::Undecodable),
                };
            }
        };
        match freshness {
            Freshness::Fresh(left) if left >= ahead => Self::Return(value),
            Freshness::Fresh(_) | Freshness::Stale => Self::ReturnAndLoad(value),
            Freshness::Kept | Freshness::Absent => Self::Load {
                old: Some(value),
                although_fresh: false,
            },
        }
    }
}

impl<K, V> Cache<K, V>
where
    K: Serialize,
    V: Serialize + DeserializeOwned + Send + 'static,
{
    /// The value of a key: the stored one, or what a loader brings. See [`Cache`] for who loads,
    /// and when.
    ///
    /// # Errors
    /// [`Error::Load`]: the loader failed or panicked, and no old value may be served; its `source`
    /// is the loader's error. [`Error::LoadTimeout`]: no value came within
    /// [`hard_timeout`](crate::OpenCache::hard_timeout). [`Error::LoadCycle`]: this is called by a
    /// loader for which the key waits. Otherwise as for [`Map::get`](crate::Map::get).
    ///
    /// # Cancel safety
    /// If the future is dropped, a load that has begun goes on, and what it brings is stored. A
    /// load that has not begun does not begin.
    pub async fn get_or_load<Q, F, L, T, E>(&self, key: &Q, load: F) -> Result<V, Error>
    where
        Q: KeyOf<K> + ?Sized,
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Loaded<V>>,
        E: Into<LoadError>,
    {
        let loader = self.loader(move || load().map(|loaded| loaded.map(Some)));
        // Another caller may have stored that there is nothing.
        let found = self
            .obtain(self.slot.key(key)?, &|| shown(key), loader)
            .await?;
        found.ok_or_else(nothing)
    }

    /// As [`Cache::get_or_load`], for a loader that may find nothing. The cache remembers that for
    /// [`absent_for`](crate::OpenCache::absent_for).
    ///
    /// ```no_run
    /// # async fn query(id: u64) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// # async fn example(users: doyen::Cache<u64, String>) -> Result<(), doyen::Error> {
    /// match users.find_or_load(&7, || query(7)).await? {
    ///     Some(name) => println!("user 7 is {name}"),
    ///     None => println!("there is no user 7"), // remembered for `absent_for`
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Cache::get_or_load`].
    ///
    /// # Cancel safety
    /// As for [`Cache::get_or_load`].
    pub async fn find_or_load<Q, F, L, T, E>(&self, key: &Q, load: F) -> Result<Option<V>, Error>
    where
        Q: KeyOf<K> + ?Sized,
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<Option<T>, E>> + Send + 'static,
        T: Into<Loaded<V>>,
        E: Into<LoadError>,
    {
        let loader = self.loader(load);
        self.obtain(self.slot.key(key)?, &|| shown(key), loader)
            .await
    }

    /// A loader that encodes what it brings.
    fn loader<F, L, T, E>(&self, load: F) -> Loader
    where
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<Option<T>, E>> + Send + 'static,
        T: Into<Loaded<V>>,
        E: Into<LoadError>,
    {
        let form = self.map.form.clone();
        Box::new(move || {
            let loading = load().map(move |loaded| match loaded {
                Ok(Some(loaded)) => {
                    let Loaded { value, extra } = loaded.into();
                    let body = Some(encode_value(&form, &value)?);
                    Ok(LoaderOutput { body, extra })
                }
                Ok(None) => Ok(LoaderOutput {
                    body: None,
                    extra: Extra::default(),
                }),
                Err(why) => Err(match why.into().downcast::<Error>() {
                    // It says all there is to say.
                    Ok(why) if matches!(*why, Error::LoadCycle(_)) => *why,
                    Ok(why) => Error::Load(Arc::from(why as LoadError)),
                    Err(why) => Error::Load(Arc::from(why)),
                }),
            });
            loading.boxed()
        })
    }

    async fn obtain(
        &self,
        key: Bytes,
        shown: &impl Fn() -> String,
        loader: Loader,
    ) -> Result<Option<V>, Error> {
        within_runtime()?;
        let mut loader = Some(loader);
        let until = after(self.settings.hard_timeout);
        loop {
            let next = Next::of(self.held(key.clone()).await?, self.ahead());
            self.map
                .counts
                .looked_up(!matches!(next, Next::Load { .. }));
            let (old, although_fresh) = match next {
                Next::Return(value) => return Ok(value),
                Next::ReturnAndLoad(value) => {
                    // It runs by itself, and no loader waits for it.
                    drop(self.join((key, shown), None, self.ahead(), &mut loader));
                    return Ok(value);
                }
                Next::Load {
                    old,
                    although_fresh,
                } => (old, although_fresh),
            };
            let ahead = if although_fresh {
                Duration::MAX
            } else {
                Duration::ZERO
            };
            let above = Link::current();
            let may_ask = match &above {
                Some(above) => above.may_ask(&self.entry(&key), &self.shown(shown)),
                None => Ok(()),
            };
            let joined = may_ask
                .map(|()| self.join((key.clone(), shown), above.clone(), ahead, &mut loader));
            let (joined, waiting) = match joined {
                Ok(Some(joined)) => {
                    let waiting = above.map(|above| WaitingLoad::new(above.id(), joined.id));
                    (Some(joined), waiting.transpose())
                }
                Ok(None) => {
                    return Err(Error::load(
                        "the load was void, because the entry was changed",
                    ));
                }
                Err(why) => (None, Err(why)),
            };
            let leads = joined.as_ref().is_none_or(|joined| joined.leads);
            let soft = self.settings.soft_timeout.filter(|_| old.is_some());
            let limit = soft.unwrap_or(self.settings.hard_timeout);
            let until_now = soft.map_or(until, |soft| until.min(after(soft)));
            let landed = match (joined, waiting) {
                (Some(joined), Ok(_waiting)) => {
                    let landed = tokio::time::timeout_at(until_now, joined.flight).await;
                    landed.unwrap_or(Err(FailedFlight::of(Error::LoadTimeout(limit))))
                }
                (_, Err(why)) => return old.ok_or(why),
                (None, Ok(_)) => Err(FailedFlight::of(Error::LoadTimeout(limit))),
            };
            let is_over = Instant::now() >= until_now;
            match (landed, old) {
                // It was under way before this caller began, which still has time to load itself.
                (Err(failed), None) if !leads && !is_over && failed.is_of_others() => {}
                // What was loaded may be older than an invalidation that this caller knows of.
                (Ok(landed), _) if landed.is_void && !leads => {}
                (Ok(landed), _) => {
                    return match &landed.body {
                        Some(body) => self.map.form.decode(body).map_err(Error::Value),
                        None => Ok(None),
                    };
                }
                (Err(failed), Some(old)) => {
                    tracing::debug!("an old value of {} is served: {}", self.name(), failed.why);
                    return Ok(old);
                }
                (Err(failed), None) => return Err(failed.why),
            }
        }
    }

    /// How long before its end an entry is loaded ahead.
    pub(super) fn ahead(&self) -> Duration {
        self.settings.times.fresh.mul_f64(self.settings.ahead)
    }

    /// What a key is of all keys of all clusters.
    fn entry(&self, key: &Bytes) -> WaitEntry {
        WaitEntry {
            cluster: self.map.data.table().map(|table| table.cluster),
            place: (self.map.entry.keyspace, self.map.entry.id),
            key: key.clone(),
        }
    }

    /// A key for people, with the name of the cache.
    fn shown(&self, key: &impl Fn() -> String) -> String {
        format!("{} {}", self.name(), key())
    }

    /// Joins the load of a key, or begins it for the loader of another one.
    fn join(
        &self,
        (key, shown): (Bytes, &impl Fn() -> String),
        above: Option<Link>,
        ahead: Duration,
        loader: &mut Option<Loader>,
    ) -> Option<Joined> {
        let begin = |id| {
            let entry = self.entry(&key);
            Load {
                link: Link::new(id, entry, self.shown(shown), above),
                data: self.map.data.clone(),
                place: (self.map.entry.keyspace, self.map.entry.id),
                settings: self.settings.clone(),
                ahead,
            }
        };
        self.flights.join(&key, begin, loader)
    }
}

/// Another caller has found that there is nothing.
pub(super) fn nothing() -> Error {
    Error::load("there is nothing to load")
}

/// The longest key that errors show.
const SHOWN_MAX: usize = 60;

/// A key for people.
fn shown<Q: Serialize + ?Sized>(key: &Q) -> String {
    let mut shown = serde_json::to_string(key).unwrap_or_else(|_| "(a key)".to_owned());
    if let Some((cut, _)) = shown.char_indices().nth(SHOWN_MAX) {
        shown.truncate(cut);
        shown.push_str("..");
    }
    shown
}

/// The moment after so long a time, or one that does not come.
pub(super) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time)
        .unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}
