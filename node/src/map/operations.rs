//! Operations that change a key by what it holds, and operations on many keys.

use super::{Map, encode_key, expiry, key};
use crate::error::{ReadError, WriteError};
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
    /// # async fn example(tickets: doyen::Map<u64, String>) -> Result<(), doyen::WriteError> {
    /// if let Some(ticket) = tickets.take(&7).await? {
    ///     println!("{ticket} is used up");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`WriteError::Value`]: the value was removed, and cannot be decoded.
    pub async fn take<Q>(&self, key: &Q) -> Result<Option<V>, WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        Ok(self.decoded(self.write(key, Action::GetDel).await?)?)
    }

    /// Writes a value if the key has one, and returns the former one. `None`: the key has none, and
    /// nothing was written. An entry that expires keeps its deadline.
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`WriteError::Value`]: the new value cannot be stored; or it was
    /// written, and the former one cannot be decoded.
    pub async fn replace<Q>(&self, key: &Q, value: &V) -> Result<Option<V>, WriteError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let action = Action::Set {
            value: super::encode_value(&self.form, value)?,
            condition: Condition::IfPresent,
            expiry: Expiry::Keep,
            get: true,
        };
        Ok(self.decoded(self.write(key, action).await?)?)
    }

    /// Lets a key expire after `ttl` from now on (at once, if `ttl` is below a millisecond). Returns
    /// whether it has a value.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    pub async fn expire<Q>(&self, key: &Q, ttl: Duration) -> Result<bool, WriteError>
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
    pub async fn persist<Q>(&self, key: &Q) -> Result<bool, WriteError>
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
    /// # async fn example(visits: doyen::Map<String, u64>) -> Result<(), doyen::WriteError> {
    /// let count = visits.update("/", |count| Some(count.unwrap_or(&0) + 1)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Map::insert`]. [`WriteError::Changed`]: other programs wrote the key each time, 64
    /// times; nothing happened.
    pub async fn update<Q>(
        &self,
        key: &Q,
        mut change: impl FnMut(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>, WriteError>
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
        Err(WriteError::Changed)
    }

    /// The values of several keys, in their order. Each is read by itself; together they take hardly
    /// longer than one.
    ///
    /// # Errors
    /// As for [`Map::get`], if any of them fails.
    pub async fn get_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Result<Vec<Option<V>>, ReadError>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'q,
    {
        let keys: Result<Vec<_>, _> = keys.into_iter().map(key::encode).collect();
        let keys = keys.map_err(ReadError::Key)?.into_iter();
        let mut values = Vec::with_capacity(keys.len());
        let mut outcomes = self.all(keys.map(|key| Ok::<_, ReadError>((key.into(), Action::Get))));
        while let Some(outcome) = outcomes.next().await {
            values.push(self.decoded(outcome?)?);
        }
        Ok(values)
    }

    /// Writes several values, each by itself. Says of each, in their order, what came of it:
    /// `collect::<Result<(), _>>()` makes one result of all.
    ///
    /// ```no_run
    /// # async fn example(prices: doyen::Map<String, u64>) -> Result<(), doyen::WriteError> {
    /// let written = prices.insert_many([("tea", &3), ("milk", &2)]).await;
    /// written.into_iter().collect::<Result<(), _>>()?;
    /// # Ok(()) }
    /// ```
    pub async fn insert_many<'q, Q>(
        &self,
        entries: impl IntoIterator<Item = (&'q Q, &'q V)>,
    ) -> Vec<Result<(), WriteError>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'q,
        V: 'q,
    {
        let actions = entries.into_iter().map(|(key, value)| {
            let value = super::encode_value(&self.form, value)?;
            Ok((encode_key(key)?, Action::set(value)))
        });
        let actions: Vec<Result<_, WriteError>> = actions.collect();
        let written = self.all(actions.into_iter()).map(|outcome| match outcome? {
            Outcome::Ok => Ok(()),
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(WriteError::Unexpected(format!("{other:?}"))),
        });
        written.collect().await
    }

    /// Removes several keys, each by itself. Says of each, in their order, whether it had a value.
    pub async fn remove_many<'q, Q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Vec<Result<bool, WriteError>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized + 'q,
    {
        let keys = keys.into_iter();
        let actions: Vec<Result<_, WriteError>> = keys
            .map(|key| Ok((encode_key(key)?, Action::Delete)))
            .collect();
        let removed = self.all(actions.into_iter());
        removed.map(|outcome| number(outcome?)).collect().await
    }

    /// Executes operations, some at the same time. Their outcomes come in their order.
    fn all<E>(
        &self,
        operations: impl Iterator<Item = Result<(bytes::Bytes, Action), E>>,
    ) -> impl Stream<Item = Result<Outcome, E>> {
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

/// Whether a write found the key.
pub(super) fn number(outcome: Outcome) -> Result<bool, WriteError> {
    match outcome {
        Outcome::Int(n) => Ok(n != 0),
        Outcome::Failed(failure) => Err(failure.into()),
        other => Err(WriteError::Unexpected(format!("{other:?}"))),
    }
}
