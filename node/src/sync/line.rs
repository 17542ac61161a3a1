//! Asks for a permit, and waits in line for it at the primary of its key.

use super::permit::{Grant, Lasts};
use super::{LockPlace, refused};
use crate::error::Error;
use doyen_engine::op::{Action, Outcome};
use doyen_engine::sync::{self, Acquired, Owner, Permits};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The first and the longest pause after an error that may pass.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(sync::MS_MAX)
}

/// What asks for a permit. Dropping it gives up its place in line, and a permit that it was given
/// without hearing of it.
pub(super) struct LockLine {
    place: LockPlace,
    owner: Owner,
    permits: Permits,
    /// All callers have to give this number of permits.
    same: bool,
    /// It may have a place or a permit.
    has_asked: bool,
}

impl Drop for LockLine {
    fn drop(&mut self) {
        if self.has_asked {
            self.place.send(sync::cancel(self.owner));
        }
    }
}

impl LockLine {
    pub(super) const fn new(
        place: LockPlace,
        owner: Owner,
        (permits, same): (Permits, bool),
    ) -> Self {
        Self {
            place,
            owner,
            permits,
            same,
            has_asked: false,
        }
    }

    /// Asks for a permit, and for no place in the entry.
    fn ask(&self, ttl: Duration) -> Action {
        let ask = if self.same {
            sync::acquire_same
        } else {
            sync::acquire
        };
        ask(self.owner, self.permits, ms(ttl), 0)
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
        let ask = self.ask(lasts.ttl);
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
        let since = Instant::now();
        let mut pause = RETRY.0;
        // The first try is an operation like any other: mostly there is a permit.
        let mut in_line = false;
        loop {
            self.has_asked = true;
            let ask = self.ask(lasts.ttl);
            let (asked, answer) = if in_line {
                match self.place.wait(ask, since, until).await {
                    Ok(answer) => answer,
                    Err(Outcome::Nil) => return Err(Error::Busy),
                    Err(failed) => (Instant::now(), failed),
                }
            } else {
                (Instant::now(), self.place.execute(ask).await)
            };
            match sync::read_acquired(&answer).map_err(refused) {
                Ok(Acquired::Granted { token, .. }) => {
                    self.has_asked = false;
                    let place = self.place.clone();
                    return Ok(Grant::new(place, self.owner, token, asked, lasts));
                }
                Ok(Acquired::QueueFull { .. }) => return Err(Error::Overloaded),
                // The room of the primary is full.
                Err(Error::Overloaded) if in_line => return Err(Error::Overloaded),
                Ok(Acquired::Otherwise { permits }) => return Err(self.otherwise(permits)),
                Ok(Acquired::Queued { .. } | Acquired::Busy { .. }) => in_line = true,
                // To ask again is harmless: an owner has one permit at most.
                Err(why) if (why.retryable() || why == Error::Unknown) && !is_over() => {
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                    continue;
                }
                Err(why) => return Err(why),
            }
            if is_over() {
                return Err(Error::Busy);
            }
        }
    }
}
