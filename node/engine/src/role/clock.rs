//! The clock of a partition, by which its keys expire.
//!
//! ```text
//!   primary ── with each log entry, in the lane of calls ──────> copy: the latest value counts
//!           ── each second, in a datagram that waits for nothing ─^
//!   copy    ── what its clock shows, before its first ack ──> new primary: the greatest counts
//! ```
//! Only a primary advances it by its own clock. An entry may wait behind seconds of other data, and
//! then its clock is that much too late when it arrives.

use doyen_gossip::Time;
use doyen_placement::Epoch;
use std::time::Duration;

/// Two clocks that are wrong by 1 % at most differ by this part at most.
const DRIFT_PART: u64 = 50;
/// What was heard earlier is brought up to date no more often than this, in microseconds.
const SETTLED_US: u64 = 10_000;

/// For so long after it heard its primary, a copy's clock is as good as that of the primary: a
/// death is noticed meanwhile.
const RECENT_US: u64 = 4_000_000;

/// A partition's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionClock {
    us: u64,
    heard: Time,
    /// The epoch in which the tenure began whose primary was heard.
    since: Epoch,
}

impl PartitionClock {
    /// The clock begins at 1 ms, because a deadline of 0 means none.
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            us: 1_000,
            heard: now,
            since: Epoch(0),
        }
    }

    /// The present time in milliseconds: what was last heard, and what has passed since.
    pub(crate) fn advance(&self, now: Time) -> u64 {
        self.us.saturating_add(micros(now.since(self.heard))) / 1_000
    }

    /// What a copy tells a new primary. If no key expires, a copy hears nothing for hours, and its
    /// clock may have run far ahead: that must not count.
    pub(crate) fn report(&self, now: Time) -> u64 {
        let passed = micros(now.since(self.heard));
        let early = passed.saturating_sub(RECENT_US) / DRIFT_PART;
        self.us.saturating_add(passed - early) / 1_000
    }

    /// The clock of the primary of this tenure was heard. A new primary's clock may be behind. It
    /// counts all the same, because deadlines are given by it, and a copy ahead of it would expire
    /// keys too early.
    ///
    /// Of one tenure, the latest value counts, because others were on their way for longer. This
    /// node's clock may have run faster than the primary's since, so the least counts that must
    /// have passed: the result is never ahead of the primary.
    pub(crate) fn hear(&mut self, ms: u64, since: Epoch, now: Time) {
        let us = ms.saturating_mul(1_000);
        if since == self.since {
            let passed = micros(now.since(self.heard));
            let least = self.us.saturating_add(passed - passed / DRIFT_PART);
            if us <= least {
                if passed >= SETTLED_US {
                    (self.us, self.heard) = (least, now);
                }
                return;
            }
        }
        *self = Self {
            us,
            heard: now,
            since,
        };
    }

    /// The clock of a partition that goes on after this one: its epochs are its own.
    pub(crate) const fn inherited(self) -> Self {
        Self {
            since: Epoch(0),
            ..self
        }
    }

    /// Another copy has heard a later value of the former primary. The new primary gives no
    /// deadline before it has asked all copies.
    pub(crate) fn raise(&mut self, ms: u64, now: Time) {
        if ms > self.advance(now) {
            (self.us, self.heard) = (ms.saturating_mul(1_000), now);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn of_one_tenure_the_latest_value_counts_and_is_never_ahead_of_the_primary() {
        // The copy's clock is 2 % faster than the primary's. One message comes at once, and all
        // others are two seconds late.
        let now = |ms: u64| Time(ms * 1_020_000);
        let mut copy = PartitionClock::new(at(0));
        copy.hear(5_000, Epoch(3), now(0));
        for ms in 1..60_000 {
            let late = 5_000 + ms - ms.min(2_000);
            copy.hear(late, Epoch(3), now(ms));
            let shown = copy.advance(now(ms));
            assert!(shown <= 5_000 + ms, "{shown} is ahead at {ms}");
            assert!(shown >= late, "{shown} is behind at {ms}");
            let least = 5_000 + ms - ms / 40 - 1;
            assert!(shown >= least.min(late + 1_000), "{shown} at {ms}");
        }
        // Another message comes at once.
        copy.hear(65_000, Epoch(3), now(60_000));
        assert_eq!(copy.advance(now(60_000)), 65_000);
    }

    #[test]
    fn a_new_tenure_counts_even_if_its_clock_is_behind() {
        let mut copy = PartitionClock::new(at(0));
        copy.hear(9_000, Epoch(3), at(100));
        copy.hear(2_000, Epoch(4), at(200));
        assert_eq!(copy.advance(at(300)), 2_100);
    }

    #[test]
    fn a_copy_that_heard_nothing_for_an_hour_tells_no_more_than_has_passed() {
        let mut copy = PartitionClock::new(at(0));
        copy.hear(5_000, Epoch(3), at(0));
        assert_eq!(copy.report(at(3_000)), 8_000);
        // An hour of the primary's clock, by one that is 2 % faster.
        let hour = 3_600_000;
        assert!(copy.report(at(hour + hour / 50)) <= 5_000 + hour + 4_000 / 50);
    }

    #[test]
    fn a_new_primary_is_raised_and_never_set_back() {
        let mut clock = PartitionClock::new(at(0));
        clock.raise(4_000, at(500));
        clock.raise(3_000, at(600));
        assert_eq!(clock.advance(at(1_000)), 4_500);
    }
}
