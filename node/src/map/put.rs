//! A write of one value, with its options.

use super::{KeyOf, Map, Versioned, expiry};
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Outcome, Watched};
use doyen_engine::{fenced, idle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

/// A write of one value, from [`Map::put`]. Give it options, then await it. It answers `A`.
///
/// | condition | writes | answers |
/// |---|---|---|
/// | none | always | `()` |
/// | [`returning`](Put::returning) | always | the former value |
/// | [`if_absent`](Put::if_absent) | if the key has no value | the value that is there; `None`: it was written |
/// | [`if_present`](Put::if_present) | if the key has a value | the former value; `None`: nothing was written |
/// | [`fenced`](Put::fenced) | unless a later holder of a lock has written the key | `()`, or [`Error::Fenced`] |
/// | [`if_unchanged`](Put::if_unchanged) | if the key was not written since it was read | whether it was written |
///
/// ```no_run
/// # async fn example(sessions: doyen::Map<u64, String>) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let hour = Duration::from_secs(3600);
/// sessions.put(&7, &"ada".to_owned()).ttl(hour).await?;
/// if let Some(there) = sessions.put(&7, &"eve".to_owned()).ttl(hour).if_absent().await? {
///     println!("{there} has session 7");
/// }
/// let former = sessions.put(&7, &"ada (admin)".to_owned()).keep_ttl().if_present().await?;
///
/// let seen = sessions.get_versioned(&8).await?;
/// let next = seen.value().map_or_else(|| "new".to_owned(), |value| format!("{value}!"));
/// if !sessions.put(&8, &next).no_ttl().if_unchanged(&seen).await? {
///     println!("another program was faster");
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Unknown`]: the write may have happened. [`Error::Former`]: it happened, and the former
/// value cannot be decoded. With every other error it did not happen.
///
/// # Cancel safety
/// If the future is dropped, the write may happen or not, now or a little later, as after
/// [`Error::Unknown`]. Nothing happens before the first poll.
#[must_use = "nothing is written until it is awaited"]
pub struct Put<'a, K, V, A = ()> {
    map: &'a Map<K, V>,
    /// The key and the value, or why they cannot be stored.
    encoded: Result<(Bytes, Bytes), Error>,
    /// `None`: as the map has it, or as the condition has it.
    expiry: Option<Expiry>,
    /// How long the entry may be unused; `None`: as long as the map says.
    idle: Option<Duration>,
    when: When,
    answer: PhantomData<fn() -> A>,
}

/// When a value is written.
#[derive(Debug, Clone)]
enum When {
    Set {
        condition: Condition,
        get: bool,
    },
    Unchanged(Watched),
    /// Unless the key was written with a higher token than this.
    Fenced(u64),
    /// What was seen belongs to another map.
    Elsewhere,
}

impl<K, V, A> fmt::Debug for Put<'_, K, V, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put")
            .field("map", &self.map.name())
            .field("expiry", &self.expiry)
            .field("when", &self.when)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// Writes a value with options: a time to live, a condition. Await it.
    ///
    /// # Errors
    /// When it is awaited: see [`Put`].
    pub fn put<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Put<'_, K, V> {
        Put {
            map: self,
            encoded: self.encoded(key, value),
            expiry: None,
            idle: None,
            when: When::Set {
                condition: Condition::Always,
                get: false,
            },
            answer: PhantomData,
        }
    }
}

impl<'a, K, V, A> Put<'a, K, V, A> {
    /// The entry expires after `ttl` (at once, if `ttl` is below a millisecond). Without this it
    /// has the time to live of the map ([`OpenMap::ttl`](crate::OpenMap::ttl)), or none.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.expiry = Some(expiry(ttl));
        self
    }

    /// The entry does not expire, whatever the time to live of the map is.
    pub const fn no_ttl(mut self) -> Self {
        self.expiry = Some(Expiry::None);
        self
    }

    /// The entry keeps its deadline, if it has one.
    pub const fn keep_ttl(mut self) -> Self {
        self.expiry = Some(Expiry::Keep);
        self
    }

    /// The entry expires if no caller uses it for so long, whatever the time of the map is. The map
    /// must have one ([`OpenMap::max_idle`](crate::OpenMap::max_idle)); otherwise the answer is
    /// [`Error::Refused`]. It cannot be combined with [`fenced`](Put::fenced).
    pub const fn max_idle(mut self, idle: Duration) -> Self {
        self.idle = Some(idle);
        self
    }

    fn when<B>(self, when: When) -> Put<'a, K, V, B> {
        Put {
            map: self.map,
            encoded: self.encoded,
            expiry: self.expiry,
            idle: self.idle,
            when,
            answer: PhantomData,
        }
    }

    fn deadline(&self) -> Expiry {
        self.expiry.unwrap_or_else(|| self.map.expiry())
    }

    /// The key and the value as they are written.
    fn written(self) -> Result<(Bytes, Bytes), Error> {
        let (key, value) = self.encoded?;
        match self.idle {
            None => Ok((key, value)),
            Some(_) if !self.map.form.expires_unused() => Err(Error::Refused(format!(
                "entries of the map {} expire unused only if it was opened with max_idle",
                self.map.name()
            ))),
            idle => Ok((key, idle::headed(idle, self.map.form.content(&value)))),
        }
    }
}

impl<'a, K, V> Put<'a, K, V> {
    /// Answers the former value.
    pub fn returning(self) -> Put<'a, K, V, Option<V>> {
        self.when(When::Set {
            condition: Condition::Always,
            get: true,
        })
    }

    /// Writes only if the key has no value. Answers the value that is there; `None`: it was
    /// written.
    pub fn if_absent(self) -> Put<'a, K, V, Option<V>> {
        self.when(When::Set {
            condition: Condition::IfAbsent,
            get: true,
        })
    }

    /// Writes only if the key has a value. Answers the former value; `None`: nothing was written.
    pub fn if_present(self) -> Put<'a, K, V, Option<V>> {
        self.when(When::Set {
            condition: Condition::IfPresent,
            get: true,
        })
    }

    /// Writes only if the key was not written with a higher fencing token than this
    /// ([`Grant::token`](crate::Grant::token)), and remembers the token with the value. So a
    /// process that has lost its lock cannot write over what the next holder wrote. Give all writes
    /// of such a key a token; a write without one, a removal, and the expiry of the key forget it,
    /// and then an earlier holder could write again.
    ///
    /// The codec [`Codec::Bytes`](crate::Codec::Bytes) has no place for it ([`Error::Refused`]).
    pub fn fenced(self, token: u64) -> Self {
        self.when(When::Fenced(token))
    }

    /// Writes only if the key was not written, removed or expired since `seen` was read
    /// ([`Map::get_versioned`]). Answers whether it was written.
    pub fn if_unchanged(self, seen: &Versioned<V>) -> Put<'a, K, V, bool> {
        let key = self.encoded.as_ref().ok().map(|(key, _)| key);
        let when = match seen.watched(self.map.entry.keyspace, self.map.entry.id) {
            Some(watched) if Some(&watched.key) == key => When::Unchanged(watched.clone()),
            _ => When::Elsewhere,
        };
        self.when(when)
    }
}

impl<K, V, A> Put<'_, K, V, A>
where
    K: Serialize,
    V: Serialize + DeserializeOwned,
{
    async fn set(self) -> Result<Outcome, Error> {
        let expiry = self.deadline();
        let map = self.map;
        let When::Set { condition, get } = self.when else {
            return Err(Error::CrossPartition);
        };
        let (key, value) = self.written()?;
        let action = Action::Set {
            value,
            condition,
            expiry,
            get,
        };
        map.write_encoded(key, action).await
    }

    async fn set_fenced(self, token: u64) -> Result<(), Error> {
        if !self.map.form.has_label() {
            return Err(Error::Refused(format!(
                "the map {} has the codec Bytes, which has no place for a fencing token: give it \
                 another codec",
                self.map.name()
            )));
        }
        if self.idle.is_some() {
            return Err(Error::Refused(
                "a write with a fencing token cannot have a max_idle of its own: leave it out, and \
                 it has that of the map"
                    .into(),
            ));
        }
        let expiry = self.deadline();
        let (key, value) = self.encoded?;
        // The token stands before the value, and the engine puts the head before both.
        let value = value.slice_ref(self.map.form.content(&value));
        let action = fenced::set_fenced(token, expiry, value);
        match self.map.write_encoded(key, action).await? {
            Outcome::Int(1) => Ok(()),
            Outcome::Int(0) => Err(Error::Fenced),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Writes if the key has no value that this map can decode.
    async fn set_absent(self) -> Result<Option<V>, Error> {
        let expiry = self.deadline();
        let map = self.map;
        let (key, value) = self.written()?;
        let action = Action::Set {
            value: value.clone(),
            condition: Condition::IfAbsent,
            expiry,
            get: true,
        };
        let there = map.write_encoded(key.clone(), action).await?;
        if there == Outcome::Nil {
            return Ok(None);
        }
        if let Some(there) = map.decoded(there)? {
            return Ok(Some(there));
        }
        // It cannot be decoded and counts as absent: write over it, unless another program writes
        // meanwhile.
        let queue = (map.data).queue(map.entry.keyspace, map.entry.id, key.clone());
        let mut turn = queue.enter().await;
        loop {
            let (watched, there) = map.seen(key.clone()).await?;
            let there = there.map_or(Outcome::Nil, Outcome::Bulk);
            if let Some(there) = map.decoded(there)? {
                return Ok(Some(there));
            }
            if map.swap(watched, value.clone(), expiry).await? {
                return Ok(None);
            }
            if !turn.again().await {
                return Err(Error::Changed);
            }
        }
    }
}

impl<'a, K, V> IntoFuture for Put<'a, K, V>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
{
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.when {
                When::Fenced(token) => self.set_fenced(token).await,
                _ => super::done(self.set().await?),
            }
        })
    }
}

impl<'a, K, V> IntoFuture for Put<'a, K, V, Option<V>>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
{
    type Output = Result<Option<V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let map = self.map;
        match self.when {
            When::Set {
                condition: Condition::IfAbsent,
                ..
            } => Box::pin(self.set_absent()),
            _ => Box::pin(async move { map.former(self.set().await?) }),
        }
    }
}

impl<'a, K, V> IntoFuture for Put<'a, K, V, bool>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
{
    type Output = Result<bool, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let expiry = self.deadline();
            let map = self.map;
            let When::Unchanged(watched) = self.when.clone() else {
                return Err(Error::CrossPartition);
            };
            let (_, value) = self.written()?;
            map.swap(watched, value, expiry).await
        })
    }
}
