//! The rate limiters that a process has open: within it, one name has one limit of each kind.

use crate::error::Error;
use crate::map::encode_key;
use bytes::Bytes;
use doyen_engine::sync::{SlidingWindow, TokenBucket};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How a limiter limits, with the numbers that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimiterRule {
    Bucket(TokenBucket, [u64; 3]),
    Window(SlidingWindow, [u64; 2]),
}

impl LimiterRule {
    /// The key that a limiter of this rule counts under.
    pub(crate) fn key<Q: Serialize + ?Sized>(&self, name: &str, key: &Q) -> Result<Bytes, Error> {
        match self {
            Self::Bucket(_, numbers) => encode_key(&(name, ("bucket", numbers), key)),
            Self::Window(_, numbers) => encode_key(&(name, ("window", numbers), key)),
        }
    }

    /// Whether it is another rule of the same kind, and so probably a mistake.
    const fn contradicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bucket(_, [a, b, c]), Self::Bucket(_, [d, e, f])) => {
                *a != *d || *b != *e || *c != *f
            }
            (Self::Window(_, [a, b]), Self::Window(_, [c, d])) => *a != *c || *b != *d,
            (Self::Bucket(..), Self::Window(..)) | (Self::Window(..), Self::Bucket(..)) => false,
        }
    }
}

impl fmt::Display for LimiterRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ms: &u64| Duration::from_millis(*ms);
        match self {
            Self::Bucket(_, [capacity, refill, ms]) => {
                write!(f, "token_bucket({capacity}, {refill}, {:?})", time(ms))
            }
            Self::Window(_, [limit, ms]) => write!(f, "sliding_window({limit}, {:?})", time(ms)),
        }
    }
}

/// The limiters that this process has open, by keyspace and name. A lock that is held for moments.
#[derive(Debug, Default)]
pub(crate) struct Limiters(Mutex<BTreeMap<(String, String), Weak<LimiterRule>>>);

impl Limiters {
    /// # Errors
    /// A limiter of this name is open with other numbers.
    pub(crate) fn open(
        &self,
        place: (String, String),
        rule: LimiterRule,
    ) -> Result<Arc<LimiterRule>, Error> {
        // Each change of it is one step.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, open| open.strong_count() > 0);
        match all.get(&place).and_then(Weak::upgrade) {
            Some(open) if *open == rule => return Ok(open),
            Some(open) if open.contradicts(&rule) => {
                return Err(Error::Refused(format!(
                    "the rate limiter {} is open in this process with {open}, and would be opened \
                     with {rule}: give both the same numbers, or another name",
                    place.1
                )));
            }
            // Of two kinds, each counts for itself.
            Some(_) => return Ok(Arc::new(rule)),
            None => {}
        }
        let rule = Arc::new(rule);
        all.insert(place, Arc::downgrade(&rule));
        Ok(rule)
    }
}
