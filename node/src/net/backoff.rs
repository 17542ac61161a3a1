//! How long to wait before the next attempt.

use std::time::Duration;

/// A wait that doubles from `least` to `most`. It has jitter, so that nodes that start together do
/// not retry together.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// From `least` to `most`.
    #[must_use]
    pub(super) fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most,
            failures: 0,
        }
    }

    /// The attempt succeeded: begin again with the least wait.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The attempt failed: wait this long, between half and the whole of the present step.
    pub(super) fn next_wait(&mut self) -> Duration {
        let step = self
            .least
            .saturating_mul(1 << self.failures.min(16))
            .min(self.most);
        self.failures = self.failures.saturating_add(1);
        step.mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_most_and_begin_anew() {
        let (least, most) = (Duration::from_millis(20), Duration::from_millis(500));
        let mut backoff = Backoff::new(least, most);
        assert!(backoff.next_wait() <= least);
        for _ in 0..100 {
            backoff.next_wait();
        }
        let wait = backoff.next_wait();
        assert!(wait >= most / 2 && wait <= most);
        backoff.reset();
        assert!(backoff.next_wait() <= least);
    }
}
