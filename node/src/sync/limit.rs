//! A limit on how often something is done in the whole cluster.

use super::{LockPlace, refused};
use crate::error::Error;
use crate::map::KeyOf;
use crate::node::Node;
use crate::node::limiters::LimiterRule;
use doyen_engine::op::Action;
use doyen_engine::sync::{self, SlidingWindow, TokenBucket};
use serde::Serialize;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The map of all limiters.
const LIMITS: &str = "doyen.limits";

/// A rate limiter that is about to be opened, from [`Node::rate_limiter`]. Say how it limits, then
/// await it.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// // Bursts of 20 mails, and one more every second.
/// let mails = node
///     .rate_limiter::<u64>("mails")
///     .keyspace("limits")
///     .token_bucket(20, 1, Duration::from_secs(1))
///     .await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, nothing has changed.
#[derive(Clone)]
#[must_use = "it is opened when it is awaited"]
pub struct OpenRateLimiter<K> {
    node: Node,
    keyspace: String,
    name: String,
    rule: Result<LimiterRule, Error>,
    kind: PhantomData<fn(K)>,
}

impl<K> fmt::Debug for OpenRateLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRateLimiter")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

/// A rate limiter of the cluster: it decides for each key, in one round trip, by the clock of the
/// node that has the key. Cheap to clone.
///
/// What was counted belongs to the name, the rule and its numbers. So while a service is deployed
/// with another limit, its two versions count for themselves. Within a process, one name cannot be
/// open with two limits of one kind ([`Error::Refused`]).
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let limiter = node
///     .rate_limiter::<String>("api")
///     .sliding_window(100, Duration::from_secs(60))
///     .await?;
/// let decision = limiter.check("ada").await?;
/// if !decision.allowed {
///     println!("try again in {:?}", decision.retry_after);
/// }
/// # Ok(()) }
/// ```
pub struct RateLimiter<K> {
    place: LockPlace,
    name: String,
    rule: Arc<LimiterRule>,
    kind: PhantomData<fn(K)>,
}

impl<K> Clone for RateLimiter<K> {
    fn clone(&self) -> Self {
        Self {
            place: self.place.clone(),
            name: self.name.clone(),
            rule: self.rule.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for RateLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

/// What a rate limiter decided.
///
/// ```no_run
/// /// The answer to a request of this user, and its header `Retry-After`.
/// async fn admit(
///     limiter: &doyen::RateLimiter<u64>,
///     user: u64,
/// ) -> Result<(u16, Option<u64>), doyen::Error> {
///     let decision = limiter.check(&user).await?;
///     if decision.allowed {
///         return Ok((200, None));
///     }
///     Ok((429, decision.retry_after.map(|wait| wait.as_secs() + 1)))
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether it may be done. Only then its cost was taken.
    pub allowed: bool,
    /// How much may still be done at this moment.
    pub remaining: u64,
    /// How long until the same is allowed, if nothing else is taken before; zero if it was allowed.
    /// `None`: never, because its cost is above the limit.
    pub retry_after: Option<Duration>,
    /// How long until the limiter is as if it had never been used, if nothing else is taken.
    pub reset_after: Duration,
}

impl<K> OpenRateLimiter<K> {
    pub(crate) fn new(node: Node, name: &str) -> Self {
        let missing = "say how the limiter limits: sliding_window or token_bucket";
        Self {
            node,
            keyspace: doyen_placement::planner::DEFAULT_KEYSPACE.to_owned(),
            name: name.to_owned(),
            rule: Err(Error::Refused(missing.into())),
            kind: PhantomData,
        }
    }

    /// The keyspace; `default` without this. If it evicts keys, a limiter may begin again.
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.keyspace = keyspace.into();
        self
    }

    /// Allows `limit` in any `window`, nearly: it counts by two windows, and takes what was done in
    /// the one before as spread evenly. Any span of a window has less than twice the limit.
    pub fn sliding_window(mut self, limit: u64, window: Duration) -> Self {
        let numbers = [limit, ms(window)];
        let rule = SlidingWindow::new(limit, ms(window));
        let rule = rule.map(|rule| LimiterRule::Window(rule, numbers));
        self.rule = rule.ok_or_else(|| invalid("a sliding window"));
        self
    }

    /// Allows `capacity` at once, and `refill` more in each `period`.
    pub fn token_bucket(mut self, capacity: u64, refill: u64, period: Duration) -> Self {
        let numbers = [capacity, refill, ms(period)];
        let rule = TokenBucket::new(capacity, refill, ms(period));
        let rule = rule.map(|rule| LimiterRule::Bucket(rule, numbers));
        self.rule = rule.ok_or_else(|| invalid("a token bucket"));
        self
    }
}

fn invalid(what: &str) -> Error {
    Error::Refused(format!(
        "{what} has numbers from 1 to {}, and a time from 1 ms to 24 days: give such ones",
        sync::AMOUNT_MAX
    ))
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<K: 'static> IntoFuture for OpenRateLimiter<K> {
    type Output = Result<RateLimiter<K>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let place = (self.keyspace.clone(), self.name.clone());
            let rule = self.node.limiters().open(place, self.rule?)?;
            let (entry, data, _) = self.node.place_of(&self.keyspace, LIMITS).await?;
            Ok(RateLimiter {
                place: LockPlace {
                    data,
                    keyspace: entry.keyspace,
                    map: entry.id,
                    key: bytes::Bytes::new(),
                },
                name: self.name,
                rule,
                kind: PhantomData,
            })
        })
    }
}

impl<K: Serialize> RateLimiter<K> {
    /// Decides whether this may be done once for the key.
    ///
    /// # Errors
    /// [`Error::Unknown`]: it may have been taken. With every other error it was not.
    ///
    /// # Cancel safety
    /// If the future is dropped, the limit may have been used or not, as after [`Error::Unknown`].
    /// Nothing happens before the first poll.
    pub async fn check<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Decision, Error> {
        self.check_cost(key, 1).await
    }

    /// Decides whether this may be done for the key, at this cost. A cost of 0 takes nothing.
    ///
    /// ```no_run
    /// # async fn example(limiter: doyen::RateLimiter<String>) -> Result<(), doyen::Error> {
    /// let report = limiter.check_cost("ada", 10).await?; // as much as ten requests
    /// println!("{} requests are left", report.remaining);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`RateLimiter::check`].
    ///
    /// # Cancel safety
    /// As for [`RateLimiter::check`].
    pub async fn check_cost<Q: KeyOf<K> + ?Sized>(
        &self,
        key: &Q,
        cost: u64,
    ) -> Result<Decision, Error> {
        let place = LockPlace {
            key: self.rule.key(&self.name, key)?,
            ..self.place.clone()
        };
        let action: Action = match *self.rule {
            LimiterRule::Bucket(bucket, _) => bucket.take(cost),
            LimiterRule::Window(window, _) => window.count(cost),
        };
        let decision = sync::read_decision(&place.execute(action).await).map_err(refused)?;
        Ok(Decision {
            allowed: decision.allowed,
            remaining: decision.remaining,
            retry_after: decision.retry_ms.map(Duration::from_millis),
            reset_after: Duration::from_millis(decision.reset_ms),
        })
    }
}
