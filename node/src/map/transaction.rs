//! Several operations on keys of one partition: all of them at once, or none.

use super::value::Form;
use super::{Database, KeyOf, Map, encode_key, encode_value, expiry};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{self, Action, Condition, Expiry, OperationStep, Outcome, Value, Watched};
use doyen_placement::{KeyspaceId, MapId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A value as it was at one moment, from [`Map::get_versioned`] or [`Database::get_versioned`]. A
/// transaction can watch it.
///
/// Example: [`Map::transaction`].
#[derive(Debug, Clone)]
pub struct Versioned<T> {
    value: Option<T>,
    keyspace: KeyspaceId,
    seen: Watched,
}

impl<T> Versioned<T> {
    /// The value; `None` if the key had none.
    #[must_use]
    pub const fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// What was seen, if it is a key of this map.
    pub(super) fn watched(&self, keyspace: KeyspaceId, map: MapId) -> Option<&Watched> {
        (self.keyspace == keyspace && self.seen.map == map).then_some(&self.seen)
    }

    /// Whether the key had no value, not even one that cannot be decoded.
    pub(super) const fn is_absent(&self) -> bool {
        self.seen.version.is_none()
    }

    /// The value itself.
    #[must_use]
    pub fn into_value(self) -> Option<T> {
        self.value
    }
}

/// An answer that a transaction will give: [`Answers::of`] exchanges it.
///
/// Example: [`Database::transaction`].
pub struct Pending<T> {
    /// The place of its operation in the transaction.
    at: usize,
    read: ReadKeys<T>,
}

/// Reads an answer, of a map with this form.
type ReadKeys<T> = fn(&Outcome, Option<&Form>) -> Result<T, Error>;

impl<T> Clone for Pending<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pending<T> {}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.at).finish()
    }
}

/// The answers of a transaction that was executed.
///
/// Example: [`Database::transaction`].
#[derive(Debug, Clone)]
pub struct Answers {
    outcomes: Vec<Outcome>,
    form: Option<Arc<Form>>,
}

impl Answers {
    /// The answer of one operation.
    ///
    /// # Errors
    /// The stored bytes are not a value of this type, or the operation belongs to another
    /// transaction.
    pub fn of<T>(&self, pending: Pending<T>) -> Result<T, Error> {
        match self.outcomes.get(pending.at) {
            Some(outcome) => (pending.read)(outcome, self.form.as_deref()),
            None => Err(Error::Unexpected(
                "the answer belongs to another transaction".into(),
            )),
        }
    }
}

/// Operations on keys of a [`Map`], from [`Map::transaction`]. Nothing happens before
/// [`commit`](Self::commit).
///
/// Example: [`Map::transaction`].
#[must_use = "nothing happens before `commit`"]
pub struct Transaction<K, V> {
    draft: Draft,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for Transaction<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draft.fmt_as("Transaction", f)
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Transaction<K, V> {
    /// Executes nothing if the key was written since this was read, has expired or was removed.
    pub fn watch<T>(&mut self, seen: &Versioned<T>) {
        self.draft.watch(seen);
    }

    /// The value of a key.
    pub fn get<Q: KeyOf<K> + ?Sized>(&mut self, key: &Q) -> Pending<Option<V>> {
        self.draft
            .add(encode_key(key), Ok(Action::Get), decoded::<V>)
    }

    /// Whether the key has a value.
    pub fn contains<Q: KeyOf<K> + ?Sized>(&mut self, key: &Q) -> Pending<bool> {
        self.draft.add(encode_key(key), Ok(Action::Exists), flag)
    }

    /// Writes a value, which has the time to live of the map
    /// ([`OpenMap::ttl`](crate::OpenMap::ttl)), or none.
    pub fn insert<Q: KeyOf<K> + ?Sized>(&mut self, key: &Q, value: &V) {
        self.set(key, value, self.draft.ttl.map_or(Expiry::None, expiry));
    }

    /// Writes a value that expires after `ttl` (at once, if `ttl` is below a millisecond).
    pub fn insert_for<Q: KeyOf<K> + ?Sized>(&mut self, key: &Q, value: &V, ttl: Duration) {
        self.set(key, value, expiry(ttl));
    }

    /// Removes a key. The answer says whether it had a value.
    pub fn remove<Q: KeyOf<K> + ?Sized>(&mut self, key: &Q) -> Pending<bool> {
        self.draft.add(encode_key(key), Ok(Action::Delete), flag)
    }

    /// Executes all operations, in their order and with no other operation in between. When this
    /// returns, every copy in sync has what was written.
    ///
    /// # Errors
    /// [`Error::Changed`]: a watched key has changed. [`Error::CrossPartition`]: see
    /// [`Map::transaction`]. [`Error::OldMembers`]: the cluster is being upgraded.
    /// [`Error::TooLarge`]: all keys, values and answers together are above the limit of one
    /// value, or there are more than 10,000 operations. For the others see [`Map::insert`].
    /// [`Error::Unknown`]: all of it may have happened. With every other error nothing did.
    ///
    /// # Cancel safety
    /// If the future is dropped, all of it may happen or nothing, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn commit(self) -> Result<Answers, Error> {
        self.draft.commit().await
    }

    fn set<Q: Serialize + ?Sized>(&mut self, key: &Q, value: &V, expiry: Expiry) {
        self.draft.put(encode_key(key), value, expiry);
    }

    /// Executes all operations. Returns whether what is watched had not changed.
    pub(super) async fn commit_unless_changed(self) -> Result<bool, Error> {
        match self.commit().await {
            Ok(_) => Ok(true),
            Err(Error::Changed) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Removes what was seen, if that has not changed.
    pub(super) fn delete(&mut self, seen: &Versioned<V>) {
        self.draft.watch_own(seen);
        let key = Ok(seen.seen.key.clone());
        self.draft.add(key, Ok(Action::Delete), flag);
    }

    /// Writes a value over what was seen, if that has not changed.
    pub(super) fn replace(&mut self, seen: &Versioned<V>, value: &V, expiry: Expiry) {
        self.draft.watch_own(seen);
        self.draft.put(Ok(seen.seen.key.clone()), value, expiry);
    }
}

/// Operations on keys of a [`Database`], from [`Database::transaction`]. Nothing happens before
/// [`commit`](Self::commit).
///
/// Example: [`Database::transaction`].
#[must_use = "nothing happens before `commit`"]
pub struct DatabaseTransaction {
    draft: Draft,
}

impl fmt::Debug for DatabaseTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draft.fmt_as("DatabaseTransaction", f)
    }
}

impl DatabaseTransaction {
    /// As [`Transaction::watch`].
    pub fn watch<T>(&mut self, seen: &Versioned<T>) {
        self.draft.watch(seen);
    }

    /// The value of a key.
    pub fn get(&mut self, key: impl Into<Bytes>) -> Pending<Option<Value>> {
        self.draft.add(Ok(key.into()), Ok(Action::Get), raw)
    }

    /// Writes like a Redis client's SET.
    pub fn set(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        let action = Ok(Action::set(value.into()));
        self.draft.add(Ok(key.into()), action, |_, _| Ok(()));
    }

    /// Removes a key. The answer says whether it had a value.
    pub fn remove(&mut self, key: impl Into<Bytes>) -> Pending<bool> {
        self.draft.add(Ok(key.into()), Ok(Action::Delete), flag)
    }

    /// Executes all operations, in their order and with no other operation in between. When this
    /// returns, every copy in sync has what was written.
    ///
    /// # Errors
    /// As for [`Transaction::commit`].
    ///
    /// # Cancel safety
    /// As for [`Transaction::commit`].
    pub async fn commit(self) -> Result<Answers, Error> {
        self.draft.commit().await
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// The value of a key, for a transaction that must not overwrite what was written since.
    ///
    /// # Errors
    /// As for [`Map::get`]. [`Error::OldMembers`]: the cluster is being upgraded.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get_versioned<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Versioned<V>, Error> {
        self.versioned(encode_key(key)?).await
    }

    /// What a key holds, not decoded, with its version.
    pub(super) async fn seen(&self, key: Bytes) -> Result<(Watched, Option<Value>), Error> {
        let place = (self.entry.keyspace, self.entry.id, key);
        let seen = versioned(&self.data, place, None, raw).await?;
        Ok((seen.seen, seen.value))
    }

    /// Writes an encoded value over what was seen. Returns whether that had not changed.
    pub(super) async fn swap(
        &self,
        seen: Watched,
        value: Bytes,
        expiry: Expiry,
    ) -> Result<bool, Error> {
        let write = OperationStep::Key {
            map: seen.map,
            key: seen.key.clone(),
            action: Action::Set {
                value,
                condition: Condition::Always,
                expiry,
                get: false,
            },
        };
        let swap = op::OperationBatch {
            keyspace: self.entry.keyspace,
            watched: vec![seen],
            steps: vec![write],
        };
        self.counts.wrote();
        match self.data.execute_transaction(swap).await {
            Outcome::Many(_) => Ok(true),
            Outcome::Nil => Ok(false),
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            other => Err(Error::unexpected(other)),
        }
    }

    pub(super) async fn versioned(&self, key: Bytes) -> Result<Versioned<V>, Error> {
        let place = (self.entry.keyspace, self.entry.id, key);
        versioned(&self.data, place, Some(&self.form), decoded::<V>).await
    }

    /// Several operations on this map that are executed at once: all of them, or none.
    ///
    /// All keys, watched ones included, must be in one partition. The keys of a map are spread one
    /// by one, so they have this in common with no other key, unless the keyspace has one partition
    /// only. Use a transaction of a map to change one key by what it holds, and
    /// [`Database::transaction`] for several keys.
    ///
    /// ```no_run
    /// # use doyen::{Map, Error};
    /// # use std::time::Duration;
    /// /// Extends a session, unless it has ended.
    /// async fn extend(sessions: &Map<u64, String>, id: u64) -> anyhow::Result<bool> {
    ///     loop {
    ///         let seen = sessions.get_versioned(&id).await?;
    ///         let Some(session) = seen.value() else {
    ///             return Ok(false);
    ///         };
    ///         let mut transaction = sessions.transaction();
    ///         transaction.watch(&seen);
    ///         transaction.insert_for(&id, session, Duration::from_secs(600));
    ///         match transaction.commit().await {
    ///             Err(Error::Changed) => {} // another writer was faster: read again
    ///             done => return Ok(done.map(|_| true)?),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn transaction(&self) -> Transaction<K, V> {
        Transaction {
            draft: Draft {
                form: Some(self.form.clone()),
                ttl: self.ttl,
                ..Draft::new(self.data.clone(), self.entry.keyspace, self.entry.id)
            },
            kinds: PhantomData,
        }
    }
}

impl Database {
    /// The value of a key, for a transaction that must not overwrite what was written since.
    ///
    /// # Errors
    /// As for [`Database::get`]. [`Error::OldMembers`]: the cluster is being upgraded.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get_versioned(&self, key: impl Into<Bytes>) -> Result<Versioned<Value>, Error> {
        let place = (self.keyspace, MapId(0), key.into());
        versioned(&self.data, place, None, raw).await
    }

    /// Several operations on this database that are executed at once: all of them, or none. It is
    /// applied once at most, whatever fails meanwhile.
    ///
    /// All keys, watched ones included, must be in one partition
    /// ([`Error::CrossPartition`](crate::Error::CrossPartition)). Give them the same `{tag}`, as in
    /// `{ada}:balance` and `{ada}:log`: then they stay together for ever. In a keyspace of ranges
    /// tags do not count, and neighbours are in one partition only until a split parts them. All
    /// keys and values together have at most the size of one value.
    ///
    /// ```no_run
    /// # use doyen::Database;
    /// # async fn example(database: &Database) -> anyhow::Result<()> {
    /// let mut transaction = database.transaction();
    /// transaction.set("{ada}:state", "paid");
    /// let was_open = transaction.remove("{ada}:open");
    /// let answers = transaction.commit().await?;
    /// println!("it was open: {}", answers.of(was_open)?);
    /// # Ok(()) }
    /// ```
    ///
    /// [`watch`](DatabaseTransaction::watch) makes it depend on values that were read before:
    ///
    /// ```no_run
    /// use doyen::{Database, Error};
    ///
    /// /// Moves `amount` from Ada's purse to her savings. False if the purse has less.
    /// async fn save(database: &Database, amount: u64) -> anyhow::Result<bool> {
    ///     loop {
    ///         let purse = database.get_versioned("{ada}:purse").await?;
    ///         let savings = database.get_versioned("{ada}:savings").await?;
    ///         let number = |value: Option<&doyen::Value>| -> anyhow::Result<u64> {
    ///             Ok(value.map_or(Ok("0"), |value| std::str::from_utf8(value))?.parse()?)
    ///         };
    ///         let Some(left) = number(purse.value())?.checked_sub(amount) else {
    ///             return Ok(false);
    ///         };
    ///         let sum = number(savings.value())? + amount;
    ///         let mut transaction = database.transaction();
    ///         transaction.watch(&purse);
    ///         transaction.watch(&savings);
    ///         transaction.set("{ada}:purse", left.to_string());
    ///         transaction.set("{ada}:savings", sum.to_string());
    ///         match transaction.commit().await {
    ///             Err(Error::Changed) => {} // another writer was faster: read again
    ///             done => return Ok(done.map(|_| true)?),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn transaction(&self) -> DatabaseTransaction {
        DatabaseTransaction {
            draft: Draft::new(self.data.clone(), self.keyspace, MapId(0)),
        }
    }
}

/// A transaction that is being written.
struct Draft {
    data: DataHandle,
    /// How the map encodes values, if it is one.
    form: Option<Arc<Form>>,
    map: MapId,
    /// The time to live of entries that are given none.
    ttl: Option<Duration>,
    transaction: op::OperationBatch,
    /// Why it cannot be committed.
    failed: Option<Error>,
}

impl Draft {
    const fn new(data: DataHandle, keyspace: KeyspaceId, map: MapId) -> Self {
        Self {
            data,
            form: None,
            map,
            ttl: None,
            transaction: op::OperationBatch {
                keyspace,
                watched: Vec::new(),
                steps: Vec::new(),
            },
            failed: None,
        }
    }

    fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("watched", &self.transaction.watched.len())
            .field("operations", &self.transaction.steps.len())
            .finish_non_exhaustive()
    }

    fn watch<T>(&mut self, seen: &Versioned<T>) {
        if seen.keyspace != self.transaction.keyspace {
            self.failed.get_or_insert(Error::CrossPartition);
        }
        self.transaction.watched.push(seen.seen.clone());
    }

    /// The same of a key that it writes.
    fn watch_own<T>(&mut self, seen: &Versioned<T>) {
        self.watch(seen);
        if seen.seen.map != self.map {
            self.failed.get_or_insert(Error::CrossPartition);
        }
    }

    fn add<T>(
        &mut self,
        key: Result<Bytes, Error>,
        action: Result<Action, Error>,
        read: ReadKeys<T>,
    ) -> Pending<T> {
        let at = self.transaction.steps.len();
        match key.and_then(|key| Ok((key, action?))) {
            Ok((key, action)) => self.transaction.steps.push(OperationStep::Key {
                map: self.map,
                key,
                action,
            }),
            Err(why) => {
                self.failed.get_or_insert(why);
            }
        }
        Pending { at, read }
    }

    /// Writes a value of a map.
    fn put<V: Serialize + DeserializeOwned>(
        &mut self,
        key: Result<Bytes, Error>,
        value: &V,
        expiry: Expiry,
    ) {
        let Some(form) = self.form.clone() else {
            return;
        };
        let action = encode_value(&form, value).map(|value| Action::Set {
            value,
            condition: Condition::Always,
            expiry,
            get: false,
        });
        self.add(key, action, |_, _| Ok(()));
    }

    async fn commit(mut self) -> Result<Answers, Error> {
        let form = self.form;
        let answers = |outcomes| Answers { outcomes, form };
        if let Some(why) = self.failed {
            return Err(why);
        }
        if self.transaction.steps.is_empty() {
            // Without operations, only the watched keys are looked at.
            let Some(Watched { map, key, .. }) = self.transaction.watched.first().cloned() else {
                return Ok(answers(Vec::new()));
            };
            let action = Action::Exists;
            self.transaction
                .steps
                .push(OperationStep::Key { map, key, action });
        }
        match self.data.execute_transaction(self.transaction).await {
            // An operation that may fail by itself is not among them.
            Outcome::Many(outcomes) => Ok(answers(outcomes)),
            Outcome::Nil => Err(Error::Changed),
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            other => Err(Error::unexpected(other)),
        }
    }
}

/// Reads a value and its version at one moment.
async fn versioned<T>(
    data: &DataHandle,
    (keyspace, map, key): (KeyspaceId, MapId, Bytes),
    form: Option<&Form>,
    read: ReadKeys<Option<T>>,
) -> Result<Versioned<T>, Error> {
    let step = |action| OperationStep::Key {
        map,
        key: key.clone(),
        action,
    };
    let both = op::OperationBatch {
        keyspace,
        watched: Vec::new(),
        steps: vec![step(Action::Version), step(Action::Get)],
    };
    let outcomes = match data.execute_transaction(both).await {
        Outcome::Many(outcomes) => outcomes,
        Outcome::Failed(failure) => return Err(Error::of_read(failure)),
        other => return Err(Error::unexpected(other)),
    };
    let [version, value] = &outcomes[..] else {
        return Err(Error::unexpected(outcomes));
    };
    let version = match version {
        Outcome::Int(version) => Some(*version),
        Outcome::Nil => None,
        other => return Err(Error::unexpected(other)),
    };
    Ok(Versioned {
        value: read(value, form)?,
        keyspace,
        seen: Watched { map, key, version },
    })
}

fn decoded<V: DeserializeOwned>(
    outcome: &Outcome,
    form: Option<&Form>,
) -> Result<Option<V>, Error> {
    match (raw(outcome, form)?, form) {
        (Some(value), Some(form)) => form.decode(&value).map_err(Error::Value),
        _ => Ok(None),
    }
}

fn raw(outcome: &Outcome, _: Option<&Form>) -> Result<Option<Value>, Error> {
    match outcome {
        Outcome::Bulk(value) => Ok(Some(value.clone())),
        Outcome::Nil => Ok(None),
        other => Err(Error::unexpected(other)),
    }
}

fn flag(outcome: &Outcome, _: Option<&Form>) -> Result<bool, Error> {
    match outcome {
        Outcome::Int(n) => Ok(*n != 0),
        other => Err(Error::unexpected(other)),
    }
}
