//! Letting others have the processor between two passes.
//!
//! A pass costs nearly the same for one operation as for ten. Where the loop shares its processor
//! with those that it works with (clients, and on a small machine other members), it finds more to
//! do in a pass if they run before it: a tenth less processor time for an operation where three
//! members share a core. So it offers its turn after each pass to which several came. Where nobody
//! waits for the processor, that is a system call of a third of a microsecond for nothing: then it
//! is offered more seldom. Where somebody keeps it for long, who is none of those, it is not
//! offered for a while: what waits here would wait for a stranger's whole time slice.

use std::time::{Duration, Instant};

/// Nobody else ran in a time below this.
const NOBODY: Duration = Duration::from_micros(1);
/// Passes between two offers, where nobody takes them, at most.
const SELDOM: u32 = 16;
/// Who has something to do with this loop gives the processor back sooner. (A time slice is 0.7 ms
/// or more.)
const LONG: Duration = Duration::from_millis(1);
/// For how long nothing is offered once somebody took long: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

/// When the next turn is offered.
#[derive(Debug)]
pub(super) struct Turns {
    /// Passes until then.
    skip: u32,
    /// How many were left out before the last one.
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

    /// A pass to which several came is over.
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

    /// The turn that was offered `then` came back `now`.
    fn taken(&mut self, then: Instant, now: Instant) {
        let took = now.duration_since(then);
        self.skipped = if took < NOBODY {
            (2 * self.skipped).clamp(1, SELDOM)
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
    fn a_turn_that_nobody_takes_is_offered_seldom_and_one_that_is_taken_always() {
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
    fn who_keeps_the_processor_for_long_is_not_offered_it_for_a_while() {
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
            "that is forgotten by and by"
        );
    }
}
