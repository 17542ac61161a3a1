//! Asks for a permit, and waits in line for it.

use super::permit::{Grant, Lasts};
use super::{Place, refused};
use crate::data::{Next, Stream};
use crate::error::Error;
use doyen_engine::op::Action;
use doyen_engine::sync::{self, Acquired, Owner, Permits};
use doyen_engine::{Filter, Keys, Maps};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// For so long a waiter keeps its place after it has asked.
const PLACE_KEPT: Duration = Duration::from_secs(10);
/// The pause after an error that may pass.
const AGAIN: Duration = Duration::from_millis(50);
/// How often a waiter looks if it is not told of changes.
const LOOK: Duration = Duration::from_millis(50);

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(sync::MS_MAX)
}

/// What asks for a permit. Dropping it gives up its place in line, and a permit that it was given
/// without hearing of it.
pub(super) struct Line {
    place: Place,
    owner: Owner,
    permits: Permits,
    /// All callers have to give this number of permits.
    same: bool,
    /// It may have a place or a permit.
    has_asked: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.has_asked {
            self.place.send(sync::cancel(self.owner));
        }
    }
}

impl Line {
    pub(super) const fn new(place: Place, owner: Owner, (permits, same): (Permits, bool)) -> Self {
        Self {
            place,
            owner,
            permits,
            same,
            has_asked: false,
        }
    }

    /// Asks for a permit, and for a place in line for so long.
    fn ask(&self, ttl: Duration, wait: Duration) -> Action {
        let ask = if self.same {
            sync::acquire_same
        } else {
            sync::acquire
        };
        ask(self.owner, self.permits, ms(ttl), ms(wait))
    }

    /// The error of a caller whose number of permits is not that of the others.
    fn otherwise(&self, permits: u16) -> Error {
        Error::Refused(format!(
            "{} is in use with {permits} permits, and this call gives {}: give the same number in \
             all programs, or wait until none of the others holds it or waits for it",
            self.place.key.escape_ascii(),
            self.permits.count()
        ))
    }

    /// Asks once, and takes no place in line.
    pub(super) async fn try_once(mut self, lasts: Lasts) -> Result<Option<Grant>, Error> {
        let ask = self.ask(lasts.ttl, Duration::ZERO);
        let asked = Instant::now();
        self.has_asked = true;
        let answer = sync::read_acquired(&self.place.execute(ask).await).map_err(refused)?;
        self.has_asked = false;
        match answer {
            Acquired::Granted { token, .. } => {
                let place = self.place.clone();
                Ok(Some(Grant::new(place, self.owner, token, asked, lasts)))
            }
            Acquired::Queued { .. } | Acquired::Busy { .. } | Acquired::QueueFull { .. } => {
                Ok(None)
            }
            Acquired::Otherwise { permits } => Err(self.otherwise(permits)),
        }
    }

    pub(super) async fn wait(
        mut self,
        lasts: Lasts,
        until: Option<Instant>,
    ) -> Result<Grant, Error> {
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        let mut changes = None;
        loop {
            let ask = self.ask(lasts.ttl, PLACE_KEPT);
            let asked = Instant::now();
            self.has_asked = true;
            let answer = sync::read_acquired(&self.place.execute(ask).await).map_err(refused);
            let within = match answer {
                Ok(Acquired::Granted { token, .. }) => {
                    self.has_asked = false;
                    let place = self.place.clone();
                    return Ok(Grant::new(place, self.owner, token, asked, lasts));
                }
                Ok(Acquired::QueueFull { .. }) => return Err(Error::Overloaded),
                Ok(Acquired::Otherwise { permits }) => return Err(self.otherwise(permits)),
                Ok(
                    Acquired::Queued { ask_within_ms, .. } | Acquired::Busy { ask_within_ms, .. },
                ) => Duration::from_millis(ask_within_ms),
                // To ask again is harmless: an owner has one permit at most.
                Err(why) if (why.retryable() || why == Error::Unknown) && !is_over() => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(why) => return Err(why),
            };
            if is_over() {
                return Err(Error::Busy);
            }
            let mut again = asked + within;
            if let Some(until) = until {
                again = again.min(until);
            }
            self.sleep(&mut changes, again).await;
        }
    }

    /// Sleeps until it is this owner's turn, but no longer than until then.
    async fn sleep(&self, changes: &mut Option<Stream>, until: Instant) {
        loop {
            if Instant::now() >= until {
                return;
            }
            if changes.is_none() {
                let following = self.place.data.subscribe(self.filter(), None, None);
                if let Ok(Ok(stream)) = timeout_at(until, following).await {
                    *changes = Some(stream);
                    // Whatever happened before that was not told.
                    if self.is_turn().await {
                        return;
                    }
                }
            }
            match changes {
                Some(stream) => {
                    let Ok(told) = timeout_at(until, Next(stream)).await else {
                        return;
                    };
                    if told.is_none() {
                        *changes = None;
                    }
                }
                None => sleep_until(until.min(Instant::now() + LOOK)).await,
            }
            if self.is_turn().await {
                return;
            }
        }
    }

    async fn is_turn(&self) -> bool {
        let outcome = self
            .place
            .execute(sync::is_turn(self.owner, self.permits))
            .await;
        // If it cannot be known, the owner asks.
        sync::read_done(&outcome).unwrap_or(true)
    }

    /// Changes of the key.
    fn filter(&self) -> Filter {
        Filter {
            keyspace: self.place.keyspace,
            maps: Maps::One(self.place.map),
            keys: Keys::One(self.place.key.clone()),
            values: false,
            fields: false,
            old: false,
        }
    }
}
