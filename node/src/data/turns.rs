//! Lets other threads have the processor between two passes.
//!
//! A pass costs nearly the same for one operation as for ten. If the loop shares its processor with
//! its clients (and on a small machine with other members), it finds more to do in a pass if they
//! run first: with three members on a core, an operation takes a tenth less processor time. So the
//! loop yields after each pass that handled several operations. If no other thread waits for the
//! processor, yielding is a system call of a third of a microsecond for nothing, so the loop yields
//! more rarely. If an unrelated thread keeps the processor for long, the loop does not yield for a
//! while: otherwise operations would wait for that thread's whole time slice.

use std::time::{Duration, Instant};

/// No other thread ran in a time below this.
const UNUSED: Duration = Duration::from_micros(1);
/// The most passes between two yields, if no other thread uses them.
const IDLE_INTERVAL: u32 = 16;
/// Threads that work with this loop give the processor back sooner. (A time slice is 0.7 ms or
/// more.)
const LONG: Duration = Duration::from_millis(1);
/// How long the loop does not yield after a thread kept the processor for long: at first, and at
/// most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

/// When the loop yields next.
#[derive(Debug)]
pub(super) struct Turns {
    /// Passes until then.
    skip: u32,
    /// How many passes were left out before the last yield.
    skipped: u32,
    not_before: Instant,
    pause: Duration,
}

impl Turns {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            skip: 0,
            skipped: 0,
            not_before: now,
            pause: Duration::ZERO,
        }
    }

    /// A pass that handled several operations is over.
    pub(super) fn offer(&mut self) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let now = Instant::now();
        if now < self.not_before {
            return;
        }
        std::thread::yield_now();
        self.taken(now, Instant::now());
    }

    /// A yield at `then` came back at `now`.
    fn taken(&mut self, then: Instant, now: Instant) {
        let took = now.duration_since(then);
        self.skipped = if took < UNUSED {
            (2 * self.skipped).clamp(1, IDLE_INTERVAL)
        } else {
            0
        };
        self.skip = self.skipped;
        self.pause = if took > LONG {
            (2 * self.pause).clamp(PAUSE.0, PAUSE.1)
        } else {
            self.pause / 2
        };
        if took > LONG {
            self.not_before = now + self.pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn the_loop_yields_rarely_if_unused_and_always_if_used() {
        let now = Instant::now();
        let mut turns = Turns::new(now);
        let skips: Vec<u32> = (0..6)
            .map(|_| (turns.taken(now, now), turns.skip).1)
            .collect();
        assert_eq!(skips, [1, 2, 4, 8, 16, 16]);
        turns.taken(now, now + us(100));
        assert_eq!(turns.skip, 0);
        assert!(turns.not_before <= now);
    }

    #[test]
    fn after_a_long_absence_the_loop_does_not_yield_for_a_while() {
        let now = Instant::now();
        let mut turns = Turns::new(now);
        let mut pauses = Vec::new();
        for _ in 0..13 {
            turns.taken(now, now + us(3_000));
            pauses.push((turns.not_before - now - us(3_000)).as_millis());
        }
        assert_eq!((pauses[0], pauses[1], pauses[12]), (10, 20, 10_000));
        (0..12).for_each(|_| turns.taken(now, now + us(50)));
        turns.taken(now, now + us(3_000));
        assert_eq!(
            turns.not_before,
            now + us(3_000) + PAUSE.0,
            "that is forgotten in time"
        );
    }
}
