//! The clocks of a node. No other module reads a clock.
//!
//! The machines compare times of CLOCK_BOOTTIME, which also runs while the machine is suspended.
//! `Instant` stops then, so a lease would last longer than it should.
use doyen_gossip::Time;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The present time of CLOCK_BOOTTIME.
#[must_use]
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The processor time of this thread.
#[must_use]
pub fn thread_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(t.tv_sec).unwrap_or(0),
        u32::try_from(t.tv_nsec).unwrap_or(0),
    )
}

/// The same, without a system call at each reading. It may be ahead by the time that the thread
/// waited for the processor within the last millisecond.
#[must_use]
pub fn thread_time_about() -> Duration {
    thread_local! {
        /// When `thread_time` was last read, and what it was.
        static LAST: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    let last = LAST.get().map(|(at, time)| (now.duration_since(at), time));
    if let Some((passed, time)) = last
        && passed < THREAD_TIME_EVERY
    {
        return time + passed;
    }
    let time = thread_time();
    LAST.set(Some((now, time)));
    time
}

/// What counts as the work of this thread: its processor time, and at least two thirds of the time
/// that passed. A thread that gets little of a busy processor silences its node as well.
#[must_use]
pub fn work_time() -> Duration {
    thread_local! {
        /// When this was last read, the processor time then, and what was returned.
        static LAST: Cell<Option<(Instant, Duration, Duration)>> = const { Cell::new(None) };
    }
    let (now, own) = (Instant::now(), thread_time_about());
    let work = LAST.get().map_or(Duration::ZERO, |(at, before, work)| {
        let (passed, ran) = (now.duration_since(at), own.saturating_sub(before));
        work + ran.max(passed * 2 / 3)
    });
    LAST.set(Some((now, own, work)));
    work
}

/// Interval of readings of the thread's processor time.
const THREAD_TIME_EVERY: Duration = Duration::from_millis(1);

/// Wall time in Unix milliseconds. Only for deadlines that callers give in wall time; wall times of
/// two nodes are never compared.
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

/// How far this process's wall clock was moved since the start.
static WALL_SET_BY_MS: AtomicI64 = AtomicI64::new(0);

/// Moves this process's wall clock, as an operator or NTP moves the machine's. A test must not move
/// the machine's clock.
#[doc(hidden)]
pub fn set_wall_clock_by(ms: i64) {
    WALL_SET_BY_MS.fetch_add(ms, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_thread_is_about_right() {
        let (before, about) = (thread_time(), thread_time_about());
        let mut sum = 0_u64;
        while thread_time() < before + Duration::from_millis(5) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        let passed = thread_time_about().saturating_sub(about);
        assert!(passed >= Duration::from_millis(3), "{passed:?} {sum}");
    }

    #[test]
    fn a_thread_that_waits_for_the_processor_works_all_the_same() {
        let (before, began) = (work_time(), Instant::now());
        std::thread::sleep(Duration::from_millis(15));
        let (work, passed) = (work_time() - before, began.elapsed());
        assert!(
            work >= Duration::from_millis(10) && work <= passed,
            "{work:?}"
        );
    }

    #[test]
    fn time_never_goes_back() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
        assert!(last > Time::ZERO);
    }
}
