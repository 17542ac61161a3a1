//! A map of numbers that any program may add to at the same time.

use super::{KeyOf, Map, encode_key, expiry};
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Outcome};
use serde::Serialize;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::pin::Pin;
use std::time::Duration;

/// A map of 64-bit integers, from [`Node::counters`](crate::Node::counters). A key without a value
/// counts as 0. Cheap to clone.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let logins = node.counters::<String>("logins").await?;
/// // The first login of an hour begins the hour.
/// let count = logins.add("ada", 1).ttl_if_none(Duration::from_secs(3600)).await?;
/// println!("{count} logins within this hour");
///
/// let seats = node.counters::<String>("seats").await?;
/// match seats.add("row 7", 1).within(0..=20).await? {
///     Some(taken) => println!("{taken} seats are taken"),
///     None => println!("the row is full"),
/// }
/// # Ok(()) }
/// ```
///
/// One key takes as many additions as the primary of one partition does; a
/// [`ShardedCounter`](crate::ShardedCounter) takes more.
pub struct Counters<K> {
    map: Map<K, Number>,
}

/// A number is stored as its decimal text.
pub(super) enum Number {}

impl<K> Clone for Counters<K> {
    fn clone(&self) -> Self {
        Self {
            map: self.map.clone(),
        }
    }
}

impl<K> fmt::Debug for Counters<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters")
            .field("name", &self.map.name())
            .finish_non_exhaustive()
    }
}

/// An addition, from [`Counters::add`]. Give it options, then await it. It answers `A`: the sum.
///
/// ```no_run
/// # async fn example(tickets: doyen::Counters<u64>) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// // 500 tickets, and one day to sell them.
/// let day = Duration::from_secs(24 * 3600);
/// match tickets.add(&7, 2).ttl_if_none(day).within(..=500).await? {
///     Some(sold) => println!("{} are left", 500 - sold),
///     None => println!("sold out"), // nothing was added
/// }
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the write may happen or not, now or a little later, as after
/// [`Error::Unknown`]. Nothing happens before the first poll.
#[must_use = "nothing is added until it is awaited"]
pub struct Add<'a, K, A = i64> {
    counters: &'a Counters<K>,
    key: Result<Bytes, Error>,
    by: i64,
    bounds: (i64, i64),
    expiry: Expiry,
    only_new: bool,
    answer: PhantomData<fn() -> A>,
}

impl<K, A> fmt::Debug for Add<'_, K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Add")
            .field("counters", &self.counters)
            .field("by", &self.by)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl<K: Serialize> Counters<K> {
    pub(super) const fn new(map: Map<K, Number>) -> Self {
        Self { map }
    }

    /// The name of the map.
    #[must_use]
    pub fn name(&self) -> &str {
        self.map.name()
    }

    /// The number of a key; 0 if it has none.
    ///
    /// # Errors
    /// No node serves the key for 5 s. [`Error::NotANumber`]: the key holds something else.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<i64, Error> {
        let operation = self.map.operation(encode_key(key)?, Action::Get);
        match self.map.data.execute(operation).await {
            Outcome::Nil => Ok(0),
            Outcome::Bulk(text) => doyen_engine::integer(&text).ok_or(Error::NotANumber),
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Adds a number, which may be negative. Await it: it answers the sum. A counter that expires
    /// keeps its deadline, unless you give it another one; a new one has the time to live of the
    /// map, if it has one.
    ///
    /// # Errors
    /// When it is awaited: [`Error::Unknown`]: the number may have been added. With every other
    /// error it was not. [`Error::Overflow`]: the sum would not fit.
    pub fn add<Q: KeyOf<K> + ?Sized>(&self, key: &Q, by: i64) -> Add<'_, K> {
        let expiry = self.map.ttl.map_or(Expiry::Keep, expiry);
        Add {
            counters: self,
            key: encode_key(key),
            by,
            bounds: (i64::MIN, i64::MAX),
            only_new: expiry != Expiry::Keep,
            expiry,
            answer: PhantomData,
        }
    }

    /// Sets the number of a key, which has the time to live of the map, or none.
    ///
    /// # Errors
    /// As for [`Map::insert`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn set<Q: KeyOf<K> + ?Sized>(&self, key: &Q, number: i64) -> Result<(), Error> {
        let action = Action::Set {
            value: number.to_string().into(),
            condition: Condition::Always,
            expiry: self.map.expiry(),
            get: false,
        };
        super::done(self.execute(encode_key(key)?, action).await?)
    }

    /// Removes a key. Returns whether it had a number.
    ///
    /// # Errors
    /// As for [`Map::remove`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn remove<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool, Error> {
        super::number(self.execute(encode_key(key)?, Action::Delete).await?)
    }

    async fn execute(&self, key: Bytes, action: Action) -> Result<Outcome, Error> {
        match self.map.data.execute(self.map.operation(key, action)).await {
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            outcome => Ok(outcome),
        }
    }
}

impl<'a, K, A> Add<'a, K, A> {
    /// The counter expires after `ttl` from this addition on.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        (self.expiry, self.only_new) = (expiry(ttl), false);
        self
    }

    /// The counter expires after `ttl`, unless it expires already: a window that the first addition
    /// begins.
    pub fn ttl_if_none(mut self, ttl: Duration) -> Self {
        (self.expiry, self.only_new) = (expiry(ttl), true);
        self
    }

    /// Adds only if the sum is within these bounds. It answers `None` if nothing was added.
    pub fn within(self, bounds: impl RangeBounds<i64>) -> Add<'a, K, Option<i64>> {
        // Bounds that no number is within become such ones.
        let lower = match bounds.start_bound() {
            Bound::Included(from) => Some(*from),
            Bound::Excluded(below) => below.checked_add(1),
            Bound::Unbounded => Some(i64::MIN),
        };
        let upper = match bounds.end_bound() {
            Bound::Included(to) => Some(*to),
            Bound::Excluded(above) => above.checked_sub(1),
            Bound::Unbounded => Some(i64::MAX),
        };
        Add {
            counters: self.counters,
            key: self.key,
            by: self.by,
            bounds: lower.zip(upper).unwrap_or((i64::MAX, i64::MIN)),
            expiry: self.expiry,
            only_new: self.only_new,
            answer: PhantomData,
        }
    }
}

impl<K: Serialize, A> Add<'_, K, A> {
    /// The sum; `None`: it is out of bounds.
    async fn execute(self) -> Result<Option<i64>, Error> {
        let key = self.key?;
        if self.bounds.0 > self.bounds.1 {
            return Ok(None);
        }
        let action = Action::add_within(self.by, self.bounds, self.expiry, self.only_new);
        let outcome = self.counters.execute(key, action).await?;
        match &outcome {
            Outcome::Many(both) => match both[..] {
                [Outcome::Int(sum), Outcome::Int(added)] => {
                    let (lower, upper) = self.bounds;
                    Ok((added == self.by && (lower..=upper).contains(&sum)).then_some(sum))
                }
                _ => Err(Error::unexpected(outcome)),
            },
            _ => Err(Error::unexpected(outcome)),
        }
    }
}

impl<'a, K: Serialize + 'a> IntoFuture for Add<'a, K> {
    type Output = Result<i64, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.execute().await?.ok_or(Error::Overflow) })
    }
}

impl<'a, K: Serialize + 'a> IntoFuture for Add<'a, K, Option<i64>> {
    type Output = Result<Option<i64>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.execute())
    }
}
