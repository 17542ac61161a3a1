//! Loads that are under way in this process, one a key.

use super::Settings;
use super::load::{Brought, Loader};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::cached::{self, ClaimId, Found, Times, Verdict};
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_placement::{KeyspaceId, MapId};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before an entry that another node loads is looked at again.
const LOOK: Duration = Duration::from_millis(2);
/// The longest one.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// What came of a load.
#[derive(Debug)]
pub(super) struct Landed {
    /// The value; `None`: there is nothing to load.
    pub(super) body: Option<Bytes>,
    /// The entry was invalidated or written meanwhile, so this was not stored.
    pub(super) is_void: bool,
}

/// A load that any number of callers wait for.
pub(super) type Flight = Shared<BoxFuture<'static, Result<Arc<Landed>, Error>>>;

/// All loads of a cache that are under way in this process. A lock that is held for moments,
/// because callers are on any thread.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Bytes, Flight>>);

impl Flights {
    fn all(&self) -> MutexGuard<'_, HashMap<Bytes, Flight>> {
        // Each change of it is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the load of a key, or begins it with this loader. Says whether it began. `None`: there
    /// is none, and the loader was used before.
    pub(super) fn join(
        self: &Arc<Self>,
        key: Bytes,
        load: Load,
        loader: &mut Option<Loader>,
    ) -> Option<(Flight, bool)> {
        let mut all = self.all();
        if let Some(flight) = all.get(&key) {
            return Some((flight.clone(), false));
        }
        let loader = loader.take()?;
        let place = Place {
            flights: self.clone(),
            key: key.clone(),
        };
        let task = tokio::spawn(async move {
            let landed = load.run(&place.key, loader).await.map(Arc::new);
            // Its place ends with the task, also if the task is cancelled.
            drop(place);
            landed
        });
        let flight = task
            .map(|ended| ended.unwrap_or_else(|_| Err(Error::load("its runtime has ended"))))
            .boxed()
            .shared();
        all.insert(key, flight.clone());
        Some((flight, true))
    }
}

/// The place of a load among those that are under way.
struct Place {
    flights: Arc<Flights>,
    key: Bytes,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.flights.all().remove(&self.key);
    }
}

/// One load of an entry.
pub(super) struct Load {
    pub(super) data: DataHandle,
    pub(super) place: (KeyspaceId, MapId),
    pub(super) settings: Arc<Settings>,
    /// The entry is loaded unless it is fresh for longer.
    pub(super) ahead: Duration,
}

impl Load {
    async fn run(&self, key: &Bytes, loader: Loader) -> Result<Landed, Error> {
        let id: ClaimId = rand::random();
        let until = Instant::now() + self.settings.hard_timeout;
        let mut pause = LOOK;
        loop {
            let claim = cached::claim_for(id, self.settings.lease, self.ahead);
            let claimed = match self.execute(key, claim).await {
                // There is no room for a claim, so no other caller knows of this load.
                Err(Error::MapFull) => {
                    let brought = self.bring(key, id, loader).await?;
                    tracing::debug!("a loaded value is not stored: {}", Error::MapFull);
                    return Ok(Landed {
                        body: brought.body,
                        is_void: false,
                    });
                }
                claimed => claimed?,
            };
            let (verdict, found) = Found::of_claim(claimed)
                .ok_or_else(|| Error::Unexpected("no answer to a claim".into()))?;
            match verdict {
                Verdict::Claimed => return self.load(key, id, loader).await,
                Verdict::Fresh => {
                    return Ok(Landed {
                        body: found.body().flatten().map(Bytes::copy_from_slice),
                        is_void: false,
                    });
                }
                Verdict::Taken(left) => {
                    if Instant::now() >= until {
                        return Err(Error::LoadTimeout(self.settings.hard_timeout));
                    }
                    tokio::time::sleep(pause.min(left.max(LOOK))).await;
                    pause = (pause * 2).min(LOOK_MAX);
                }
            }
        }
    }

    /// Loads what this caller has claimed.
    async fn load(&self, key: &Bytes, id: ClaimId, loader: Loader) -> Result<Landed, Error> {
        let brought = match self.bring(key, id, loader).await {
            Ok(brought) => brought,
            Err(why) => return self.give_up(key, id, why).await,
        };
        let head = match brought.extra.head() {
            Ok(head) => head,
            Err(why) => return self.give_up(key, id, why).await,
        };
        let times = match (&brought.body, self.settings.absent) {
            (Some(_), _) => brought.extra.times(&self.settings),
            // That there is nothing is not worth an old value.
            (None, absent) => Times {
                fresh: absent.unwrap_or_default(),
                stale: Duration::ZERO,
                kept: Duration::ZERO,
            },
        };
        let store = cached::store_as(Some(id), times, head, brought.body.clone());
        let is_void = match self.execute(key, store).await {
            Ok(Outcome::Int(stored)) => stored == 0,
            Ok(other) => return Err(Error::unexpected(other)),
            // The value is right, although it is not stored. The claim ends by itself.
            Err(why) => {
                tracing::debug!("a loaded value is not stored: {why}");
                false
            }
        };
        Ok(Landed {
            body: brought.body,
            is_void,
        })
    }

    /// Runs the loader, and renews the claim meanwhile.
    async fn bring(&self, key: &Bytes, id: ClaimId, loader: Loader) -> Result<Brought, Error> {
        let limit = self.settings.hard_timeout;
        let loading = AssertUnwindSafe(async move { loader().await }).catch_unwind();
        let loading = tokio::time::timeout(limit, loading);
        tokio::pin!(loading);
        let renewing = async {
            loop {
                tokio::time::sleep(self.settings.lease / 3).await;
                // If the claim is lost, what is brought is not stored.
                let _ = self
                    .execute(key, cached::renew(id, self.settings.lease))
                    .await;
            }
        };
        let loaded = tokio::select! {
            loaded = &mut loading => loaded,
            () = renewing => Ok(Ok(Err(Error::LoadTimeout(limit)))),
        };
        match loaded {
            Ok(Ok(brought)) => brought,
            Ok(Err(_)) => Err(Error::load("the loader panicked")),
            Err(_) => Err(Error::LoadTimeout(limit)),
        }
    }

    /// Lets another caller load, and fails for this reason.
    async fn give_up(&self, key: &Bytes, id: ClaimId, why: Error) -> Result<Landed, Error> {
        let release = cached::release(id, self.settings.retry);
        if let Err(why) = self.execute(key, release).await {
            tracing::debug!("a claim ends by itself: {why}");
        }
        Err(why)
    }

    async fn execute(&self, key: &Bytes, action: Action) -> Result<Outcome, Error> {
        let operation = Operation {
            keyspace: self.place.0,
            map: self.place.1,
            key: key.clone(),
            action,
        };
        match self.data.execute(operation).await {
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            outcome => Ok(outcome),
        }
    }
}
