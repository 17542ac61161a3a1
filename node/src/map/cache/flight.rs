//! Loads that are under way in this process, one a key.

use super::CacheSettings;
use super::load::{Loader, LoaderOutput, after};
use super::waits::{Abroad, Link, UnderWay};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::cached::{self, CacheLookup, CacheTimes, ClaimId, ClaimVerdict};
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_placement::{KeyspaceId, MapId};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The first and the longest pause before an entry that another node loads is looked at again,
/// after an error.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// What came of a load.
#[derive(Debug)]
pub(super) struct Landed {
    /// The value; `None`: there is nothing to load.
    pub(super) body: Option<Bytes>,
    /// The entry was invalidated or written meanwhile, so this was not stored.
    pub(super) is_void: bool,
}

/// Why a load failed.
#[derive(Debug, Clone)]
pub(super) struct FailedFlight {
    pub(super) why: Error,
    /// It waited for itself, by way of its own loader.
    in_cycle: bool,
}

impl FailedFlight {
    pub(super) const fn of(why: Error) -> Self {
        Self {
            why,
            in_cycle: false,
        }
    }

    /// Whether that says nothing about a load of another caller, which has another loader and
    /// begins later.
    pub(super) const fn is_of_others(&self) -> bool {
        self.in_cycle || matches!(self.why, Error::LoadTimeout(_))
    }
}

/// A load that any number of callers wait for.
type Flight = Shared<BoxFuture<'static, Result<Arc<Landed>, FailedFlight>>>;

/// A load that a caller has joined.
pub(super) struct Joined {
    pub(super) id: ClaimId,
    pub(super) flight: Flight,
    /// This caller's loader runs.
    pub(super) leads: bool,
}

/// All loads of a cache that are under way in this process. A lock that is held for moments,
/// because callers are on any thread.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Bytes, (ClaimId, Flight)>>);

impl Flights {
    fn all(&self) -> MutexGuard<'_, HashMap<Bytes, (ClaimId, Flight)>> {
        // Each change of it is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the load of a key, or begins it with this loader. `None`: there is none, and the
    /// loader was used before.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &Bytes,
        begin: impl FnOnce(ClaimId) -> Load,
        loader: &mut Option<Loader>,
    ) -> Option<Joined> {
        let mut all = self.all();
        if let Some((id, flight)) = all.get(key) {
            return Some(Joined {
                id: *id,
                flight: flight.clone(),
                leads: false,
            });
        }
        let loader = loader.take()?;
        let load = begin(rand::random());
        let id = load.link.id();
        let under_way = UnderWay::new(load.link.clone(), load.data.clone());
        let place = FlightPlace {
            flights: self.clone(),
            key: key.clone(),
        };
        let task = tokio::spawn(async move {
            let landed = load.run(&place.key, loader).await;
            let landed = landed.map(Arc::new).map_err(|why| FailedFlight {
                why,
                in_cycle: under_way.in_cycle(),
            });
            // Its place ends with the task, also if the task is cancelled.
            drop((place, under_way));
            landed
        });
        let ended = || Err(FailedFlight::of(Error::load("its runtime has ended")));
        let flight = task
            .map(move |landed| landed.unwrap_or_else(|_| ended()))
            .boxed()
            .shared();
        all.insert(key.clone(), (id, flight.clone()));
        Some(Joined {
            id,
            flight,
            leads: true,
        })
    }
}

/// The place of a load among those that are under way.
struct FlightPlace {
    flights: Arc<Flights>,
    key: Bytes,
}

impl Drop for FlightPlace {
    fn drop(&mut self) {
        self.flights.all().remove(&self.key);
    }
}

/// One load of an entry.
pub(super) struct Load {
    pub(super) link: Link,
    pub(super) data: DataHandle,
    pub(super) place: (KeyspaceId, MapId),
    pub(super) settings: Arc<CacheSettings>,
    /// The entry is loaded unless it is fresh for longer.
    pub(super) ahead: Duration,
}

impl Load {
    async fn run(&self, key: &Bytes, loader: Loader) -> Result<Landed, Error> {
        let id = self.link.id();
        let (since, until) = (Instant::now(), after(self.settings.hard_timeout));
        let mut pause = LOOK;
        let mut abroad = Abroad::new(self.link.clone(), self.data.clone());
        let mut own = OwnClaim::new(self, key);
        // The claim that is in the way.
        let mut holder = None;
        loop {
            let claim = cached::claim_for(id, self.settings.lease, self.ahead);
            let waits = holder.is_some();
            own.may_be_there = true;
            let claimed = match holder.take() {
                None => self.execute(key, claim).await,
                Some(holder) => {
                    let claim = self
                        .data
                        .wait(self.operation(key, claim), since, Some(until));
                    tokio::select! {
                        waited = claim => match waited {
                            Ok((_, outcome)) => done(outcome),
                            Err(Outcome::Nil) => {
                                return Err(Error::LoadTimeout(self.settings.hard_timeout));
                            }
                            Err(failed) => done(failed),
                        },
                        watched = abroad.watch(holder) => {
                            watched?;
                            continue;
                        }
                    }
                }
            };
            let claimed = match claimed {
                // There is no room for a claim, so no other caller knows of this load.
                Err(Error::MapFull) => {
                    own.may_be_there = false;
                    let brought = self.bring(key, id, loader).await?;
                    tracing::debug!("a loaded value is not stored: {}", Error::MapFull);
                    return Ok(Landed {
                        body: brought.body,
                        is_void: false,
                    });
                }
                // To claim again with the same id is harmless.
                Err(why)
                    if Instant::now() < until
                        && (why == Error::Unknown || (waits && why.retryable())) =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LOOK_MAX);
                    continue;
                }
                claimed => claimed?,
            };
            let (verdict, found) = CacheLookup::of_claim(claimed)
                .ok_or_else(|| Error::Unexpected("no answer to a claim".into()))?;
            own.may_be_there = verdict == ClaimVerdict::Claimed;
            match verdict {
                ClaimVerdict::Claimed => {
                    drop(abroad);
                    return self.load(own, loader).await;
                }
                ClaimVerdict::Fresh => {
                    return Ok(Landed {
                        body: found.body().flatten().map(Bytes::copy_from_slice),
                        is_void: false,
                    });
                }
                ClaimVerdict::Taken(left) => {
                    if Instant::now() >= until {
                        return Err(Error::LoadTimeout(self.settings.hard_timeout));
                    }
                    holder = found.claim();
                    if holder.is_none() {
                        tokio::time::sleep(pause.min(left.max(LOOK))).await;
                        pause = (pause * 2).min(LOOK_MAX);
                    }
                }
            }
        }
    }

    /// Loads what this caller has claimed.
    async fn load(&self, mut own: OwnClaim<'_>, loader: Loader) -> Result<Landed, Error> {
        let (key, id) = (own.key, self.link.id());
        let brought = match self.bring(key, id, loader).await {
            Ok(brought) => brought,
            Err(why) => return self.give_up(own, why).await,
        };
        let head = match brought.extra.head() {
            Ok(head) => head,
            Err(why) => return self.give_up(own, why).await,
        };
        let times = match (&brought.body, self.settings.absent) {
            (Some(_), _) => brought.extra.times(&self.settings),
            // That there is nothing is not worth an old value.
            (None, absent) => CacheTimes {
                fresh: absent.unwrap_or_default(),
                stale: Duration::ZERO,
                kept: Duration::ZERO,
            },
        };
        let store = cached::store_as(Some(id), times, head, brought.body.clone());
        let is_void = match self.execute(key, store).await {
            Ok(Outcome::Int(stored)) => {
                own.may_be_there = false;
                stored == 0
            }
            Ok(other) => return Err(Error::unexpected(other)),
            // The value is right, although it is not stored.
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

    /// Runs the loader. A thread of the node renews the claim meanwhile, because the loader may
    /// block its own one.
    async fn bring(&self, key: &Bytes, id: ClaimId, loader: Loader) -> Result<LoaderOutput, Error> {
        let limit = self.settings.hard_timeout;
        let renewing = {
            let (data, lease) = (self.data.clone(), self.settings.lease);
            let renewal = self.operation(key, cached::renew(id, lease));
            async move {
                let until = after(limit);
                while Instant::now() < until {
                    tokio::time::sleep(lease / 3).await;
                    let renewed = data.execute(renewal.clone()).await;
                    if let Some((ClaimVerdict::Taken(_), _)) = CacheLookup::of_claim(renewed) {
                        // It is lost: what is brought is not stored.
                        return;
                    }
                }
            }
        };
        let _renewing = Keeping(self.data.keep(renewing));
        let loading = self.link.clone().run(async move { loader().await });
        let loading = AssertUnwindSafe(loading).catch_unwind();
        match tokio::time::timeout(limit, loading).await {
            Ok(Ok(brought)) => brought,
            Ok(Err(_)) => Err(Error::load("the loader panicked")),
            Err(_) => Err(Error::LoadTimeout(limit)),
        }
    }

    /// Lets another caller load, and fails for this reason.
    async fn give_up(&self, mut own: OwnClaim<'_>, why: Error) -> Result<Landed, Error> {
        let release = cached::release(self.link.id(), self.settings.retry);
        match self.execute(own.key, release).await {
            Ok(_) => own.may_be_there = false,
            Err(why) => tracing::debug!("a claim is not given back at once: {why}"),
        }
        Err(why)
    }

    async fn execute(&self, key: &Bytes, action: Action) -> Result<Outcome, Error> {
        done(self.data.execute(self.operation(key, action)).await)
    }

    fn operation(&self, key: &Bytes, action: Action) -> Operation {
        Operation {
            keyspace: self.place.0,
            map: self.place.1,
            key: key.clone(),
            action,
        }
    }
}

/// The claim of a load. If it may still be there when this is dropped, it is given back: it may
/// have been granted just when its load gave up, or the runtime of its load has ended.
struct OwnClaim<'a> {
    load: &'a Load,
    key: &'a Bytes,
    may_be_there: bool,
}

impl<'a> OwnClaim<'a> {
    const fn new(load: &'a Load, key: &'a Bytes) -> Self {
        Self {
            load,
            key,
            may_be_there: false,
        }
    }
}

impl Drop for OwnClaim<'_> {
    fn drop(&mut self) {
        if self.may_be_there {
            let Load { link, data, .. } = self.load;
            let release = cached::release(link.id(), Duration::ZERO);
            data.send(self.load.operation(self.key, release));
        }
    }
}

/// The outcome of an operation that was done.
fn done(outcome: Outcome) -> Result<Outcome, Error> {
    match outcome {
        Outcome::Failed(failure) => Err(Error::of_write(failure)),
        outcome => Ok(outcome),
    }
}

/// A claim is renewed, until this is dropped.
struct Keeping(JoinHandle<()>);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::{doorless, operation};
    use crate::map::cache::waits::WaitEntry;
    use doyen_gossip::Time;

    const LONG: Duration = Duration::from_secs(3600);

    fn claim(id: u8) -> Operation {
        operation(cached::claim_for([id; 16], LONG, Duration::ZERO))
    }

    /// The claim is granted, and its answer is under way when the time of the load is over. With
    /// it, no caller would load the entry for the rest of its lease.
    #[tokio::test]
    async fn a_claim_that_is_granted_as_its_load_gives_up_is_given_back() {
        let node = doorless(1);
        let verdict = |outcome| CacheLookup::of_claim(outcome).map(|(verdict, _)| verdict);
        let first = node.handle.execute(claim(1)).await;
        assert_eq!(verdict(first), Some(ClaimVerdict::Claimed));
        let Operation {
            keyspace, map, key, ..
        } = claim(2);
        let entry = WaitEntry {
            cluster: None,
            place: (keyspace, map),
            key: key.clone(),
        };
        let load = Load {
            link: Link::new([2; 16], entry, "a".into(), None),
            data: node.handle.clone(),
            place: (keyspace, map),
            settings: Arc::new(CacheSettings {
                times: CacheTimes {
                    fresh: LONG,
                    stale: Duration::ZERO,
                    kept: Duration::ZERO,
                },
                absent: None,
                ahead: 0.0,
                jitter: 0.0,
                lease: LONG,
                soft_timeout: None,
                hard_timeout: Duration::from_millis(500),
                retry: Duration::ZERO,
            }),
            ahead: Duration::ZERO,
        };
        let executed = async || node.handle.stats().await.shard.executed;
        let loading = tokio::spawn(async move {
            let loader = || async { panic!("it has no answer") }.boxed();
            load.run(&key, Box::new(loader)).await.map(drop)
        });
        while executed().await < 2 {
            tokio::task::yield_now().await;
        }
        // Without a lease, what is executed is not answered.
        node.shared.extend_lease(Time::ZERO);
        node.handle
            .send(operation(cached::release([1; 16], Duration::ZERO)));
        let landed = loading.await.expect("it runs");
        // The load and its operation have the same deadline.
        let ended = matches!(landed, Err(Error::LoadTimeout(_) | Error::Unavailable));
        assert!(ended, "{landed:?}");
        node.shared.extend_lease(Time(u64::MAX));
        let next = node.handle.execute(claim(3)).await;
        assert_eq!(verdict(next), Some(ClaimVerdict::Claimed));
        node.stop().await;
    }
}
