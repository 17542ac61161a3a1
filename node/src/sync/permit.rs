//! A permit that this process holds.

use super::LockPlace;
use crate::clock;
use crate::error::Error;
use doyen_engine::sync::{self, Owner};
use doyen_gossip::Time;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// The pause after a renewal that failed: this part of the time to live.
const AGAIN_PART: u32 = 50;
/// How far the clock of a partition may be ahead after a failover, besides the drift of clocks
/// (`doyen_engine::sync`).
const CLOCK_AHEAD: Duration = Duration::from_millis(1_300);

/// The holder's runtime gives a sign of life this often, or more often for a short limit.
const BEAT: Duration = Duration::from_secs(15);

/// A lock that this process holds, or a permit of a semaphore. It renews itself. Dropping it gives
/// it back; [`release`](Grant::release) does the same and says whether it was still held.
///
/// The node renews it on a thread of its own. So it is held although the holder blocks its thread,
/// or the whole tokio runtime in which it was acquired, for as long as
/// [`blocked_max`](crate::Lock::blocked_max): 5 minutes without another setting. If that runtime
/// gives no sign of life for longer, or has ended, the grant is not renewed any more, and ends
/// after its time to live. So a holder that never returns loses it.
///
/// Example: [`Lock`](crate::Lock).
#[must_use = "dropping it gives it back"]
pub struct Grant {
    place: LockPlace,
    owner: Owner,
    token: u64,
    /// Until when it is certainly held; `None`: it is lost.
    held: watch::Receiver<Option<Instant>>,
    /// On a thread of the node.
    renewing: JoinHandle<()>,
    /// In the runtime of the holder.
    beating: JoinHandle<()>,
    is_released: bool,
}

/// How long a grant lasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasts {
    /// The time to live, from each renewal on.
    pub(super) ttl: Duration,
    /// How long the runtime of the holder may give no sign of life.
    pub(super) blocked_max: Duration,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("token", &self.token)
            .field("held", &*self.held.borrow())
            .finish_non_exhaustive()
    }
}

/// How long a grant is certainly held from when it was asked for.
fn certain(ttl: Duration) -> Duration {
    (ttl - ttl / 50).saturating_sub(CLOCK_AHEAD)
}

impl Grant {
    /// A permit that was granted. It was `asked` for at that moment.
    pub(super) fn new(
        place: LockPlace,
        owner: Owner,
        token: u64,
        asked: Instant,
        lasts: Lasts,
    ) -> Self {
        let (holds, held) = watch::channel(Some(asked + certain(lasts.ttl)));
        let (beats, beat) = watch::channel(clock::now());
        let beating = tokio::spawn(async move {
            loop {
                beats.send_replace(clock::now());
                sleep((lasts.blocked_max / 4).min(BEAT)).await;
            }
        });
        let renewing = renew(place.clone(), (owner, token), (asked, lasts), beat, holds);
        let renewing = place.data.keep(renewing);
        Self {
            place,
            owner,
            token,
            held,
            renewing,
            beating,
            is_released: false,
        }
    }

    /// The fencing token: a number above those of all earlier grants of this name. A resource that
    /// refuses lower tokens than it has seen is safe from holders that lost the lock without
    /// knowing it ([`Put::fenced`](crate::Put::fenced)). Tokens begin at the first one again with a
    /// new cluster. After `doyen recover`, which forgets what only dead members knew, a token may
    /// come a second time.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Whether it is certainly held at this moment. That ends 1.3 s and 2 % before its time to
    /// live, because clocks differ.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
            .borrow()
            .is_some_and(|until| Instant::now() < until)
    }

    /// Waits until it is no longer certain that it is held: its process was paused or cut off for
    /// too long, its runtime was blocked for too long, or its key was deleted. The future does not
    /// borrow the grant.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed. It may stand in a `select!`.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut held = self.held.clone();
        async move {
            loop {
                let Some(until) = *held.borrow_and_update() else {
                    return;
                };
                if Instant::now() >= until {
                    return;
                }
                tokio::select! {
                    () = sleep_until(until) => {}
                    changed = held.changed() => if changed.is_err() {
                        // It is not renewed any more.
                        sleep_until(until).await;
                        return;
                    },
                }
            }
        }
    }

    /// Gives it back. Returns whether it was still held.
    ///
    /// # Errors
    /// No node answers; then it ends after its time to live.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is given back all the same.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.is_released = true;
        self.end();
        let outcome = self
            .place
            .execute(sync::release(self.owner, self.token))
            .await;
        sync::read_done(&outcome).map_err(super::refused)
    }

    /// It is not renewed any more.
    fn end(&self) {
        self.renewing.abort();
        self.beating.abort();
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.end();
        if !self.is_released {
            self.place.send(sync::release(self.owner, self.token));
        }
    }
}

/// Renews a permit until it is lost, as long as its holder is alive.
async fn renew(
    place: LockPlace,
    (owner, token): (Owner, u64),
    (mut asked, lasts): (Instant, Lasts),
    mut beat: watch::Receiver<Time>,
    holds: watch::Sender<Option<Instant>>,
) {
    let ttl = lasts.ttl;
    let ms = u64::try_from(ttl.as_millis()).unwrap_or(sync::MS_MAX);
    sleep_until(asked + ttl / 3).await;
    loop {
        let until = asked + certain(ttl);
        let is_alive = |beat: &Time| clock::now().since(*beat) <= lasts.blocked_max;
        let is_alive = async { beat.wait_for(is_alive).await.is_ok() };
        if !timeout_at(until, is_alive).await.unwrap_or(false) {
            // The runtime gave no sign of life in time, or has ended.
            sleep_until(until).await;
            holds.send_replace(None);
            return;
        }
        let now = Instant::now();
        let renewal = place.execute(sync::renew(owner, token, ms));
        let renewed = match timeout_at(until, renewal).await {
            Ok(outcome) => sync::read_renewed(&outcome).map_err(super::refused),
            Err(_) => Err(Error::Unavailable),
        };
        match renewed {
            Ok(Some(_)) => {
                asked = now;
                holds.send_replace(Some(asked + certain(ttl)));
                sleep_until(asked + ttl / 3).await;
            }
            // It may still be renewed until it is over.
            Err(why) if Instant::now() < until && why != Error::Closed => {
                sleep(ttl / AGAIN_PART).await;
            }
            Ok(None) | Err(_) => {
                holds.send_replace(None);
                return;
            }
        }
    }
}
