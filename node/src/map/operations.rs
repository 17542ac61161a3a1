//! Operations that change a key by what it holds, and operations on many keys.

use super::{KeyOf, Map, encode_key, expiry, number};
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, ExpireCondition, Expiry, Outcome};
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// Operations of one call that are under way at the same time.
const UNDER_WAY: usize = 1_024;

/// What becomes of a key by what it holds.
enum MapEdit<V> {
    Keep,
    Write(V),
    Remove,
}

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
    /// As for [`Map::update`]. [`Error::Value`]: the value cannot be decoded, because another
    /// program wrote it; it is not removed. With [`Undecodable::Miss`](crate::Undecodable::Miss)
    /// the answer is `None`, and it is not removed, either.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll. If the key is removed, its value
    /// is lost.
    pub async fn take<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error> {
        let decide = |value: Option<&V>| match value {
            Some(_) => MapEdit::Remove,
            None => MapEdit::Keep,
        };
        Ok(self.edit(encode_key(key)?, decide).await?.0)
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
    pub async fn replace<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
        value: &V,
    ) -> Result<Option<V>, Error> {
        self.put(key, value).keep_ttl().if_present().await
    }

    /// Removes a key if its value passes a test, and returns the value that was removed. `test` is
    /// called again if another process wrote the key meanwhile, so it should do nothing else.
    /// Callers wait for each other as in [`Map::update`].
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
    pub async fn remove_if<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
        mut test: impl FnMut(&V) -> bool,
    ) -> Result<Option<V>, Error> {
        let (seen, edit) = self
            .edit(encode_key(key)?, |value| match value {
                Some(value) if test(value) => MapEdit::Remove,
                _ => MapEdit::Keep,
            })
            .await?;
        Ok(match edit {
            MapEdit::Remove => seen,
            MapEdit::Keep | MapEdit::Write(_) => None,
        })
    }

    /// Changes a key by what it holds, and returns what it held and what became of it. Callers of
    /// this process wait for each other in a queue; other processes may be faster.
    async fn edit(
        &self,
        key: Bytes,
        mut decide: impl FnMut(Option<&V>) -> MapEdit<V>,
    ) -> Result<(Option<V>, MapEdit<V>), Error> {
        let (keyspace, map) = (self.entry.keyspace, self.entry.id);
        let queue = self.data.queue(keyspace, map, key.clone());
        let mut turn = queue.enter().await;
        loop {
            let seen = self.versioned(key.clone()).await?;
            let edit = decide(seen.value());
            let mut transaction = self.transaction();
            match &edit {
                MapEdit::Write(value) => transaction.replace(&seen, value, Expiry::Keep),
                MapEdit::Remove if !seen.is_absent() => transaction.delete(&seen),
                MapEdit::Remove | MapEdit::Keep => return Ok((seen.into_value(), edit)),
            }
            if transaction.commit_unless_changed().await? {
                return Ok((seen.into_value(), edit));
            }
            if !turn.again().await {
                return Err(Error::Changed);
            }
        }
    }

    /// How long a key has to live. `None`: it does not expire, or has no value.
    ///
    /// # Errors
    /// As for [`Map::get`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn ttl<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<Duration>, Error> {
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
    pub async fn touch<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
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
    pub async fn expire<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
        ttl: Duration,
    ) -> Result<bool, Error> {
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
    pub async fn persist<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        number(self.write(key, Action::Persist).await?)
    }

    /// Changes a key by what it holds, and returns what it holds then. `change` gets the present
    /// value (`None`: there is none) and says what it is to be (`None`: removed, or none). It is
    /// called again if another process wrote the key meanwhile, so it should do nothing else. An
    /// entry that expires keeps its deadline.
    ///
    /// Callers of one process that change one key wait for each other, in the order in which they
    /// asked. Between processes, the first one wins, and the others try again after a short pause.
    /// That works with any number of callers. For a number to which many callers add, use
    /// [`Counters`](crate::Counters), whose additions cost one round trip.
    ///
    /// ```no_run
    /// # async fn example(visits: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
    /// let count = visits.update("/", |count| Some(count.unwrap_or(&0) + 1)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`Error::Changed`]: other processes were faster each time, for 30 s;
    /// nothing happened.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll. `change` is not called any more.
    pub async fn update<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
        mut change: impl FnMut(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>, Error> {
        let decide = |value: Option<&V>| match change(value) {
            Some(next) => MapEdit::Write(next),
            None => MapEdit::Remove,
        };
        Ok(match self.edit(encode_key(key)?, decide).await?.1 {
            MapEdit::Write(next) => Some(next),
            MapEdit::Remove | MapEdit::Keep => None,
        })
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
    pub async fn append<Q: KeyOf<K> + ?Sized>(&self, key: &Q, bytes: &[u8]) -> Result<u64, Error> {
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
    pub async fn get_many<'q, Q: KeyOf<K> + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Result<Vec<Option<V>>, Error> {
        self.get_each(keys).await.into_iter().collect()
    }

    /// The values of several keys, each by itself, as [`Map::get_many`]. Says of each, in their
    /// order, what came of it: one that cannot be read, or decoded, does not hide the others.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::Error> {
    /// let cart = ["tea", "milk"];
    /// for (name, price) in cart.iter().zip(prices.get_each(cart).await) {
    ///     match price {
    ///         Ok(price) => println!("{name}: {price:?}"),
    ///         Err(why) => println!("{name} has no price at the moment: {why}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    #[must_use = "some of them may have failed"]
    pub async fn get_each<'q, Q: KeyOf<K> + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<Result<Option<V>, Error>> {
        let actions = keys
            .into_iter()
            .map(|key| Ok((encode_key(key)?, Action::Get)));
        let actions: Vec<Result<_, Error>> = actions.collect();
        let outcomes = self.execute_all(actions.into_iter()).await;
        let found = outcomes.into_iter().map(|outcome| match outcome? {
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            outcome => {
                let found = self.decoded(outcome)?;
                self.counts.looked_up(found.is_some());
                Ok(found)
            }
        });
        found.collect()
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
        Q: KeyOf<K> + ?Sized + 'q,
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
        let written = self.execute_all(actions.into_iter()).await.into_iter();
        let written = written.map(|outcome| super::done(self.written(outcome?)?));
        written.collect()
    }

    /// Removes several keys, each by itself. Says of each, in their order, whether it had a value.
    ///
    /// # Cancel safety
    /// As for [`Map::insert_many`].
    #[must_use = "some of them may have failed"]
    pub async fn remove_many<'q, Q: KeyOf<K> + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<Result<bool, Error>> {
        let keys = keys.into_iter();
        let actions: Vec<Result<_, Error>> = keys
            .map(|key| Ok((encode_key(key)?, Action::Delete)))
            .collect();
        let removed = self.execute_all(actions.into_iter()).await.into_iter();
        let removed = removed.map(|outcome| number(self.written(outcome?)?));
        removed.collect()
    }

    /// Executes operations on encoded keys, some at the same time. Their outcomes come in their
    /// order.
    ///
    /// All of them have the waker of the caller, who is woken once for all answers that come
    /// together. A waker for each of them would cost more than the operations.
    pub(super) async fn execute_all(
        &self,
        mut operations: impl Iterator<Item = Result<(Bytes, Action), Error>>,
    ) -> Vec<Result<Outcome, Error>> {
        let (mut outcomes, mut under_way) = (Vec::new(), Vec::new());
        poll_fn(|cx| {
            loop {
                while under_way.len() < UNDER_WAY
                    && let Some(operation) = operations.next()
                {
                    let at = outcomes.len();
                    match operation {
                        Ok((key, action)) => {
                            let asked = self.data.execute(self.operation(key, action));
                            under_way.push((at, asked));
                            outcomes.push(Err(Error::Unknown));
                        }
                        Err(why) => outcomes.push(Err(why)),
                    }
                }
                let before = under_way.len();
                under_way.retain_mut(|(at, asked)| match asked.poll_unpin(cx) {
                    Poll::Ready(outcome) => {
                        outcomes[*at] = Ok(outcome);
                        false
                    }
                    Poll::Pending => true,
                });
                if under_way.is_empty() && before == 0 {
                    return Poll::Ready(());
                }
                if under_way.len() == before {
                    return Poll::Pending;
                }
            }
        })
        .await;
        outcomes
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
}
