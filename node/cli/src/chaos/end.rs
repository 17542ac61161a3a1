//! When a run ends: at its time, or by hand before that; and waits that end with it.

use crate::{Failed, complain, interrupted};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Known to whoever waits.
#[derive(Debug, Clone)]
pub(super) struct End {
    until: Instant,
    by_hand: watch::Receiver<bool>,
}

/// The first Ctrl-C (or SIGTERM) ends the run early, with its figures. Returns at the second one,
/// which ends everything at once.
pub(super) async fn twice(by_hand: watch::Sender<bool>) -> Failed {
    interrupted("chaos").await;
    by_hand.send_replace(true);
    complain(format_args!(
        "ended by hand: what is under way heals, then the figures follow (once more ends at once)"
    ));
    interrupted("chaos").await
}

impl End {
    pub(super) fn new(until: Instant, by_hand: watch::Receiver<bool>) -> Self {
        Self { until, by_hand }
    }

    /// Whether somebody ended it.
    pub(super) fn is_by_hand(&self) -> bool {
        *self.by_hand.borrow()
    }

    /// Whether it is over, for whatever reason.
    pub(super) fn is_over(&self) -> bool {
        self.is_by_hand() || Instant::now() >= self.until
    }

    /// Until its time; nothing once somebody ended it.
    pub(super) fn left(&self) -> Duration {
        if self.is_by_hand() {
            Duration::ZERO
        } else {
            self.until.saturating_duration_since(Instant::now())
        }
    }

    /// Waits so long, or until somebody ends it.
    pub(super) async fn sleep(&self, span: Duration) {
        let _ = self.unless_ended(tokio::time::sleep(span)).await;
    }

    /// What this comes to. `None`: somebody ended it first.
    pub(super) async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut by_hand = self.by_hand.clone();
        tokio::select! {
            // Nobody can end it any more where the other side is gone.
            Ok(_) = by_hand.wait_for(|ended| *ended) => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_end_by_hand_and_not_before() {
        let (hand, by_hand) = watch::channel(false);
        let end = End::new(Instant::now() + Duration::from_secs(3600), by_hand);
        let (began, long) = (tokio::time::Instant::now(), Duration::from_secs(60));
        end.sleep(long).await;
        assert_eq!((began.elapsed(), end.is_over()), (long, false));
        hand.send_replace(true);
        end.sleep(long).await;
        assert_eq!(
            (began.elapsed(), end.is_over(), end.left()),
            (long, true, Duration::ZERO)
        );
        assert_eq!(end.unless_ended(std::future::pending::<()>()).await, None);
    }
}
