//! How late data threads are: this one by its own timers, and those of peers as they report it.
//!
//! A machine with more work than cores gives a thread some milliseconds, and then none for some
//! hundreds. A copy there acknowledges late, and so does a primary notice acks. Neither says that
//! the copy is silent, so its silence is counted without that time (`Peers::silence`).
//!
//! Only durations travel, in datagrams, so that no two clocks are compared and large values do not
//! hold them up. A thread that gets no core for two leases at once is another matter: its node is
//! deposed (rule 12).

use doyen_gossip::Time;
use std::time::Duration;

/// A shorter delay is normal, and is not counted.
const LATE_LEAST: Duration = Duration::from_millis(20);

/// How late this thread is.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    total: Duration,
    /// When timers were last looked at.
    looked: Time,
}

impl Lateness {
    /// How late it has been in total.
    pub(crate) const fn total(&self) -> Duration {
        self.total
    }

    /// Timers are looked at. `due`: when the first of them was due. True if that is late.
    pub(crate) fn looked(&mut self, due: Option<Time>, now: Time) -> bool {
        let since = due.map_or(now, |due| due.max(self.looked));
        self.looked = now;
        let late = now.since(since);
        let counts = late >= LATE_LEAST;
        if counts {
            self.total += late;
        }
        counts
    }
}

/// How late the thread of a peer is.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// When they connected, and how late this thread had been in total by then.
    since: (Time, Duration),
    total: Duration,
}

impl Reported {
    /// They connect now.
    pub(crate) const fn new(now: Time, own: &Lateness) -> Self {
        Self {
            since: (now, own.total),
            total: Duration::ZERO,
        }
    }

    /// How late it has been since then, in total.
    pub(crate) const fn total(&self) -> Duration {
        self.total
    }

    /// How late this thread has been since then, in milliseconds.
    pub(crate) fn to_tell(&self, own: &Lateness) -> u32 {
        let late = own.total.saturating_sub(self.since.1);
        u32::try_from(late.as_millis()).unwrap_or(u32::MAX)
    }

    /// The peer reports its total. Reports may overtake each other. No thread can be late for
    /// longer than it was connected.
    pub(crate) fn says(&mut self, total: Duration, now: Time) {
        self.total = total.min(now.since(self.since.0)).max(self.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn a_thread_is_late_from_its_first_due_timer_or_its_last_look() {
        let mut late = Lateness::default();
        assert!(!late.looked(Some(at(100)), at(110)));
        assert!(late.looked(Some(at(150)), at(450)));
        assert_eq!(late.total(), Duration::from_millis(300));
        // The rest of a long step is due since before the last look.
        assert!(!late.looked(Some(at(150)), at(460)));
        assert!(late.looked(Some(at(150)), at(500)));
        assert_eq!(late.total(), Duration::from_millis(340));
        assert!(!late.looked(None, at(9_000)));
    }

    #[test]
    fn a_peer_cannot_have_been_late_for_longer_than_it_was_connected() {
        let (own, ms) = (Lateness::default(), Duration::from_millis);
        let mut peer = Reported::new(at(1_000), &own);
        peer.says(ms(300), at(2_000));
        assert_eq!(peer.total(), ms(300));
        peer.says(ms(200), at(2_000));
        assert_eq!(peer.total(), ms(300));
        peer.says(Duration::MAX, at(2_000));
        assert_eq!(peer.total(), ms(1_000));
    }
}
