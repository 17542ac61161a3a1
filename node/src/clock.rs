//! The clocks of a node: the only place that reads them.
//!
//! Machines compare times of one node's CLOCK_BOOTTIME, which goes on while the machine is
//! suspended (`Instant` stops there, and a lease would outlive its owner's sleep).

use doyen_gossip::Time;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// CLOCK_BOOTTIME.
#[must_use]
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Wall time in Unix milliseconds. Only for deadlines that callers give in wall time; never
/// compared between nodes.
#[must_use]
pub fn unix_ms() -> u64 {
    unix_us() / 1000
}

/// Wall time in Unix microseconds, for clients that ask for it.
#[must_use]
pub fn unix_us() -> u64 {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX));
    wall.saturating_add_signed(WALL_SET_BY_MS.load(Ordering::Relaxed).saturating_mul(1000))
}

/// By how much this process's wall clock was set forward or back since it started.
static WALL_SET_BY_MS: AtomicI64 = AtomicI64::new(0);

/// Sets this process's wall clock, as an operator or NTP might set the machine's, which a test must
/// leave alone.
#[doc(hidden)]
pub fn set_wall_clock_by(ms: i64) {
    WALL_SET_BY_MS.fetch_add(ms, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
        assert!(last > Time::ZERO);
    }
}
