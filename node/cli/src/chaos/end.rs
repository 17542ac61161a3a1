//! The end of a run, by time or by Ctrl-C, and waits that end with it.

use crate::{CommandFailed, complain, interrupted};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The end of a run, shared by everything that waits.
#[derive(Debug, Clone)]
pub(super) struct ChaosEnd {
    until: Instant,
    by_hand: watch::Receiver<bool>,
}

/// Waits for Ctrl-C or SIGTERM twice. The first one ends the run early, with its figures. The
/// second one ends everything at once: then this returns.
pub(super) async fn twice(by_hand: watch::Sender<bool>) -> CommandFailed {
    interrupted("chaos").await;
    by_hand.send_replace(true);
    complain(format_args!(
        "interrupted: the current fault heals, then the figures follow (a second Ctrl-C ends at \
         once)"
    ));
    interrupted("chaos").await
}

impl ChaosEnd {
    pub(super) fn new(until: Instant, by_hand: watch::Receiver<bool>) -> Self {
        Self { until, by_hand }
    }

    /// Whether Ctrl-C ended the run.
    pub(super) fn is_by_hand(&self) -> bool {
        *self.by_hand.borrow()
    }

    /// Whether the run is over, for any reason.
    pub(super) fn is_over(&self) -> bool {
        self.is_by_hand() || Instant::now() >= self.until
    }

    /// The time that is left; zero after Ctrl-C.
    pub(super) fn left(&self) -> Duration {
        if self.is_by_hand() {
            Duration::ZERO
        } else {
            self.until.saturating_duration_since(Instant::now())
        }
    }

    /// Sleeps for this long, or until Ctrl-C ends the run.
    pub(super) async fn sleep(&self, span: Duration) {
        let _ = self.unless_ended(tokio::time::sleep(span)).await;
    }

    /// The result of the work; `None` if Ctrl-C ended the run first.
    pub(super) async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut by_hand = self.by_hand.clone();
        tokio::select! {
            // The sender is gone, so Ctrl-C can no longer end this wait.
            Ok(_) = by_hand.wait_for(|ended| *ended) => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_end_at_an_interrupt_and_not_before() {
        let (hand, by_hand) = watch::channel(false);
        let end = ChaosEnd::new(Instant::now() + Duration::from_secs(3600), by_hand);
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
