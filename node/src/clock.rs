//! The clocks of a node: the only place that reads them.
//!
//! Machines compare times of one node's CLOCK_BOOTTIME, which goes on while the machine is suspended (`Instant` stops
//! there, and a lease would outlive its owner's sleep).

use doyen_gossip::Time;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// CLOCK_BOOTTIME.
#[must_use]
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Wall time in Unix milliseconds. Only for deadlines that callers give in wall time; never compared between nodes.
#[must_use]
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
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
