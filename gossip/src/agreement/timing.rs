//! The durations of the protocol.

use crate::mutant::{self, broken};
use std::time::Duration;

/// The durations of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How long an answered ping lets a primary serve: 500 ms.
    pub lease: Duration,
    /// The time between pings: 100 ms.
    pub ping_interval: Duration,
    /// Added to every wait for a lease to end: 5 ms.
    pub margin: Duration,
    /// The number of unanswered pings after which a member is expelled: 6.
    pub pings_missed_max: u32,
    /// The least time between two tables that only change in-sync sets or move data: 20 ms.
    pub batch: Duration,
    /// How long a new node listens before it forms a cluster: 1 s.
    pub listen: Duration,
    /// For how long a range must be busy before it is split: 15 s.
    pub busy_for: Duration,
    /// For how long neighbouring ranges must be small and idle before they are merged: 5 minutes.
    pub cold_for: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(500),
            ping_interval: Duration::from_millis(100),
            margin: Duration::from_millis(5),
            pings_missed_max: 6,
            batch: Duration::from_millis(20),
            listen: Duration::from_secs(1),
            busy_for: Duration::from_secs(15),
            cold_for: Duration::from_secs(300),
        }
    }
}

impl Timing {
    /// Two clocks that may each be wrong by 1 %: (1 + 0.01) / (1 - 0.01), rounded up.
    const DRIFT: f64 = 1.0204;

    /// How long a new primary waits for the lease of a predecessor that it has never heard from
    /// (rule 9).
    #[must_use]
    pub fn takeover_wait(&self) -> Duration {
        let drift = if broken(&mutant::WAITS_WITHOUT_DRIFT) {
            1.0
        } else {
            Self::DRIFT
        };
        self.lease.mul_f64(drift) + self.margin
    }
}
