//! Operations that change a key by what it holds, and operations on many keys.

use super::{Map, encode_key, expiry, number};
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, ExpireCondition, Expiry, Outcome};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::time::Duration;

/// How often [`Map::update`] tries again because another program wrote the key meanwhile.
const UPDATES_MAX: u32 = 64;
/// Operations of one call that are under way at the same time.
const UNDER_WAY: usize = 1_024;

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// Removes a key and returns its value: of several callers, one gets it.
    ///
    /// ```no_run
    /// # async fn example(tickets: doyen::Map<u64, String>) -> Result<(), doyen::Error> {
    /// if let Some(ticket) = tickets.take(&7).await? {
    ///     println!("{ticket} is used up");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::Former`]: the value was removed, and cannot be decoded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll. If the key is removed, its value
    /// is lost.
    pub async fn take<Q>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.former(self.write(key, Action::GetDel).await?)
    }

    /// Writes a value if the key has one, and returns the former one. `None`: the key has none, and
    /// nothing was written. An entry that expires keeps its deadline.
    ///
    /// ```no_run
    /// # async fn example(addresses: doyen::Map<String, String>) -> Result<(), doyen::Error> {
    /// match addresses.replace("ada", &"ada@new.org".to_owned()).await? {
    ///     Some(former) => println!("tell {former} of the change"),
    ///     None => println!("there is no such account"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::Former`]: the value was written, and the former one cannot
    /// be decoded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn replace<Q>(&self, key: &Q, value: &V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.put(key, value).keep_ttl().if_present().await
    }

    /// Removes a key if its value passes a test, and returns the value that was removed. `test` is
    /// called again if another program wrote the key meanwhile, so it should do nothing else.
    ///
    /// ```no_run
    /// # async fn example(jobs: doyen::Map<u64, String>) -> Result<(), doyen::Error> {
    /// if jobs.remove_if(&7, |state| state == "done").await?.is_none() {
    ///     println!("job 7 is not done");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::update`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll. `test` is not called any more.
    pub async fn remove_if<Q>(
        &self,
        key: &Q,
        mut test: impl FnMut(&V) -> bool,
    ) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = encode_key(key)?;
        for _ in 0..UPDATES_MAX {
            let seen = self.versioned(key.clone()).await?;
            if !seen.value().is_some_and(&mut test) {
                return Ok(None);
            }
            let mut removal = self.transaction();
            removal.delete(&seen);
            if removal.commit_unless_changed().await? {
                return Ok(seen.into_value());
            }
        }
        Err(Error::Changed)
    }

    /// How long a key has to live. `None`: it does not expire, or has no value.
    ///
    /// # Errors
    /// As for [`Map::get`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn ttl<Q>(&self, key: &Q) -> Result<Option<Duration>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        match self.read(key, Action::PTtl).await? {
            Outcome::Int(ms) => Ok(u64::try_from(ms).ok().map(Duration::from_millis)),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Lets a key live for the time to live of the map ([`OpenMap::ttl`](crate::OpenMap::ttl)) from
    /// now on. Returns whether it has a value. Without such a time only the order of eviction
    /// changes.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn touch<Q>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        match self.ttl {
            Some(ttl) => self.expire(key, ttl).await,
            None => number(self.read(key, Action::Touch).await?),
        }
    }

    /// Lets a key expire after `ttl` from now on (at once, if `ttl` is below a millisecond).
    /// Returns whether it has a value.
    ///
    /// ```no_run
    /// # async fn example(sessions: doyen::Map<u64, String>) -> Result<(), doyen::Error> {
    /// use std::time::Duration;
    ///
    /// sessions.expire(&7, Duration::from_secs(600)).await?; // ten minutes from now
    /// if let Some(left) = sessions.ttl(&7).await? {
    ///     println!("session 7 ends in {left:?}");
    /// }
    /// sessions.touch(&7).await?; // as long as `OpenMap::ttl` says, from now
    /// sessions.persist(&7).await?; // it does not expire any more
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn expire<Q>(&self, key: &Q, ttl: Duration) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let action = Action::Expire {
            expiry: expiry(ttl),
            condition: ExpireCondition::Always,
        };
        number(self.write(key, action).await?)
    }

    /// Lets a key not expire any more. Returns whether it would have expired.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn persist<Q>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        number(self.write(key, Action::Persist).await?)
    }

    /// Changes a key by what it holds, and returns what it holds then. `change` gets the present
    /// value (`None`: there is none) and says what it is to be (`None`: removed, or none). It is
    /// called again if another program wrote the key meanwhile, so it should do nothing else. An
    /// entry that expires keeps its deadline.
    ///
    /// ```no_run
    /// # async fn example(visits: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
    /// let count = visits.update("/", |count| Some(count.unwrap_or(&0) + 1)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::Changed`]: other programs wrote the key each time, 64
    /// times; nothing happened.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll. `change` is not called any more.
    pub async fn update<Q>(
        &self,
        key: &Q,
        mut change: impl FnMut(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let key = encode_key(key)?;
        for _ in 0..UPDATES_MAX {
            let seen = self.versioned(key.clone()).await?;
            let next = change(seen.value());
            let mut update = self.transaction();
            match &next {
                Some(value) => update.replace(&seen, value, Expiry::Keep),
                None if seen.is_absent() => return Ok(None),
                None => update.delete(&seen),
            }
            if update.commit_unless_changed().await? {
                return Ok(next);
            }
        }
        Err(Error::Changed)
    }

    /// Appends bytes to a value, which is written if there was none, and returns how many bytes it
    /// has then. The entry keeps its deadline.
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::{Codec, Map};
    ///
    /// let logs: Map<String, Vec<u8>> = node.map("logs").codec(Codec::Bytes).await?;
    /// let length = logs.append("build 7", b"linked\n").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::Refused`]: the codec is not [`Codec::Bytes`], so a value
    /// with something at its end would not be a value.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    ///
    /// [`Codec::Bytes`]: crate::Codec::Bytes
    pub async fn append<Q>(&self, key: &Q, bytes: &[u8]) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        if self.form.has_label() {
            return Err(Error::Refused(format!(
                "bytes cannot be appended to values of the map {}: open it with Codec::Bytes",
                self.name()
            )));
        }
        let action = Action::Append {
            value: Bytes::copy_from_slice(bytes),
        };
        match self.write(key, action).await? {
            Outcome::Int(length) => Ok(length.unsigned_abs()),
            other => Err(Error::unexpected(other)),
        }
    }

    /// The values of several keys, in their order. Each is read by itself; together they take
    /// hardly longer than one.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
    /// let cart = ["tea", "milk"];
    /// for (name, price) in cart.iter().zip(prices.get_many(cart).await?) {
    ///     println!("{name}: {price:?}");
    /// }
    /// for (name, gone) in cart.iter().zip(prices.remove_many(cart).await) {
    ///     println!("{name} was there: {}", gone?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::get`], if any of them fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Result<Vec<Option<V>>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'q,
    {
        let keys: Result<Vec<_>, _> = keys.into_iter().map(encode_key).collect();
        let keys = keys?.into_iter();
        let mut values = Vec::with_capacity(keys.len());
        let mut outcomes = self.all(keys.map(|key| Ok((key, Action::Get))));
        while let Some(outcome) = outcomes.next().await {
            let found = match outcome? {
                Outcome::Failed(failure) => return Err(Error::of_read(failure)),
                outcome => self.decoded(outcome)?,
            };
            self.counts.looked_up(found.is_some());
            values.push(found);
        }
        Ok(values)
    }

    /// Writes several values, each by itself. Says of each, in their order, what came of it:
    /// `collect::<Result<(), _>>()` makes one result of all.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
    /// let written = prices.insert_many([("tea", &3), ("milk", &2)]).await;
    /// written.into_iter().collect::<Result<(), _>>()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, each of the writes may happen or not, now or a little later.
    /// Nothing happens before the first poll.
    #[must_use = "some of them may have failed"]
    pub async fn insert_many<'q, Q>(
        &self,
        entries: impl IntoIterator<Item = (&'q Q, &'q V)>,
    ) -> Vec<Result<(), Error>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'q,
        V: 'q,
    {
        let actions = entries.into_iter().map(|(key, value)| {
            let (key, value) = self.encoded(key, value)?;
            let action = Action::Set {
                value,
                condition: Condition::Always,
                expiry: self.expiry(),
                get: false,
            };
            Ok((key, action))
        });
        let actions: Vec<Result<_, Error>> = actions.collect();
        let written = self.all(actions.into_iter());
        let written = written.map(|outcome| super::done(self.written(outcome?)?));
        written.collect().await
    }

    /// Removes several keys, each by itself. Says of each, in their order, whether it had a value.
    ///
    /// # Cancel safety
    /// As for [`Map::insert_many`].
    #[must_use = "some of them may have failed"]
    pub async fn remove_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<Result<bool, Error>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'q,
    {
        let keys = keys.into_iter();
        let actions: Vec<Result<_, Error>> = keys
            .map(|key| Ok((encode_key(key)?, Action::Delete)))
            .collect();
        let removed = self.all(actions.into_iter());
        let removed = removed.map(|outcome| number(self.written(outcome?)?));
        removed.collect().await
    }

    /// Executes operations on encoded keys, some at the same time.
    pub(super) async fn execute_all(
        &self,
        operations: impl Iterator<Item = Result<(Bytes, Action), Error>>,
    ) -> Vec<Result<Outcome, Error>> {
        self.all(operations).collect().await
    }

    /// The outcome of a write, if it was done.
    pub(super) fn written(&self, outcome: Outcome) -> Result<Outcome, Error> {
        match outcome {
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            outcome => {
                self.counts.wrote();
                Ok(outcome)
            }
        }
    }

    /// Executes operations, some at the same time. Their outcomes come in their order.
    fn all(
        &self,
        operations: impl Iterator<Item = Result<(Bytes, Action), Error>>,
    ) -> impl Stream<Item = Result<Outcome, Error>> {
        let asked = operations.map(|operation| {
            let asked =
                operation.map(|(key, action)| self.data.execute(self.operation(key, action)));
            async move {
                match asked {
                    Ok(outcome) => Ok(outcome.await),
                    Err(why) => Err(why),
                }
            }
        });
        Box::pin(stream::iter(asked).buffered(UNDER_WAY))
    }
}
