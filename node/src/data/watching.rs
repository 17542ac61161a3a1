//! When a data thread watches its inbox for a moment before it sleeps.
//!
//! To wake a sleeping thread on an idle core takes tens of microseconds, and to wake its caller
//! again takes as long. If a program asks one thing after the other, that is nearly all of the time
//! that it waits. So a data thread that was asked several times within moments watches its inbox
//! for some microseconds, and meanwhile a caller that waits alone watches for its answer. Neither
//! happens if there is only one core, nor if it does not pay.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a data thread watches. The rest of its pass and the next question of its caller take a
/// part of that.
const WATCH: Duration = Duration::from_micros(20);
/// How long a caller watches. A local operation takes the rest of a pass and a pass, together some
/// microseconds; with 6 us many were missed.
const CALLER_WATCH: Duration = Duration::from_micros(15);
/// Operations that come within this time are asked one after the other.
const CLOSE: Duration = Duration::from_micros(150);
/// After this many close operations, the thread watches.
const CLOSE_MIN: u32 = 8;
/// This many close operations are forgotten if nothing came while it watched.
const VAIN: u32 = 4;
/// Looks between two looks at the clock.
const LOOKS: u32 = 16;
/// Passes in a row without a look at the sockets.
const BLIND_MAX: u32 = 4;
/// After this many watches in vain, a caller watches only seldom.
const VAIN_MAX: u32 = 4;
const LOOK_INTERVAL: u32 = 64;

/// Looks until this is so, for a time at most. Returns whether it is.
fn watch(time: Duration, is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_so() {
                return true;
            }
            hint::spin_loop();
        }
        if began.elapsed() >= time {
            return false;
        }
    }
}

/// What the data thread knows of it.
#[derive(Debug)]
pub(super) struct Watching {
    /// There is a second core, on which callers run meanwhile.
    possible: bool,
    close: u32,
    last: Option<Instant>,
    blind: u32,
}

impl Watching {
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            possible: cores > 1,
            close: 0,
            last: None,
            blind: 0,
        }
    }

    /// Callers have left operations.
    pub(super) fn asked(&mut self, now: Instant) {
        let last = self.last.replace(now);
        let close = last.is_some_and(|last| now.saturating_duration_since(last) < CLOSE);
        // No more than one watch in vain takes back twice.
        self.close = if close {
            (self.close + 1).min(CLOSE_MIN + 2 * VAIN)
        } else {
            0
        };
    }

    /// Whether the thread watches when it has nothing to do.
    pub(super) const fn is_due(&self) -> bool {
        self.possible && self.close >= CLOSE_MIN
    }

    /// Watches the inbox. Returns whether something was left, and the sockets need not be looked
    /// at before that.
    pub(super) fn watch(&mut self, signals: &Signals) -> bool {
        if watch(WATCH, || signals.left.load(Ordering::Acquire)) {
            self.blind += 1;
            if self.blind < BLIND_MAX {
                return true;
            }
        } else {
            self.close = self.close.saturating_sub(VAIN);
        }
        self.blind = 0;
        false
    }
}

/// What the data thread and its callers tell each other.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Something was left and not taken.
    left: AtomicBool,
    /// The data thread watches, or will when it has nothing to do.
    watches: AtomicBool,
    /// Rises with each answer.
    answers: AtomicU32,
    /// Watches of callers in vain, in a row.
    vain: AtomicU32,
}

impl Signals {
    /// Something was left.
    pub(super) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// All that was left is taken.
    pub(super) fn take(&self) {
        self.left.store(false, Ordering::Release);
    }

    /// Whether the data thread watches.
    pub(super) fn set_watches(&self, watches: bool) {
        if self.watches.load(Ordering::Relaxed) != watches {
            self.watches.store(watches, Ordering::Relaxed);
        }
    }

    /// Some callers were answered.
    pub(super) fn answer(&self) {
        self.answers.fetch_add(1, Ordering::Release);
    }

    /// Whether a caller that waits alone should watch for its answer, and how many answers there
    /// were before.
    pub(super) fn caller_watches(&self) -> Option<u32> {
        if !self.watches.load(Ordering::Relaxed) {
            return None;
        }
        let vain = self.vain.load(Ordering::Relaxed);
        if vain >= VAIN_MAX && !vain.is_multiple_of(LOOK_INTERVAL) {
            // Each operation counts, so that it tries again.
            self.vain.store(vain.wrapping_add(1), Ordering::Relaxed);
            return None;
        }
        Some(self.answers.load(Ordering::Acquire))
    }

    /// A caller watches for an answer. Returns whether there was one.
    pub(super) fn await_answer(&self, before: u32) -> bool {
        let came = watch(CALLER_WATCH, || {
            self.answers.load(Ordering::Acquire) != before
        });
        let vain = if came {
            0
        } else {
            self.vain.load(Ordering::Relaxed).wrapping_add(1)
        };
        self.vain.store(vain, Ordering::Relaxed);
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_one_after_the_other_is_watched_for() {
        let mut watching = Watching {
            possible: true,
            ..Watching::new()
        };
        let signals = Signals::default();
        let mut now = Instant::now();
        for _ in 0..=CLOSE_MIN {
            assert!(!watching.is_due());
            now += CLOSE / 2;
            watching.asked(now);
        }
        assert!(watching.is_due());
        signals.leave();
        assert!(watching.watch(&signals), "it is there");
        signals.take();
        assert!(!watching.watch(&signals) && !watching.is_due(), "in vain");
        now += CLOSE / 2;
        (0..VAIN).for_each(|_| watching.asked(now));
        assert!(watching.is_due());
        now += CLOSE;
        watching.asked(now);
        assert!(!watching.is_due(), "a pause");
    }

    #[test]
    fn sockets_are_looked_at_now_and_then() {
        let mut watching = Watching::new();
        let signals = Signals::default();
        signals.leave();
        let blind = (0..2 * BLIND_MAX).filter(|_| watching.watch(&signals));
        assert_eq!(blind.count() as u32, 2 * (BLIND_MAX - 1));
    }

    #[test]
    fn a_caller_that_watches_in_vain_does_so_seldom() {
        let signals = Signals::default();
        assert_eq!(
            signals.caller_watches(),
            None,
            "no thread would answer at once"
        );
        signals.set_watches(true);
        let mut watches = 0;
        for _ in 0..4 * LOOK_INTERVAL {
            if let Some(before) = signals.caller_watches() {
                assert!(!signals.await_answer(before));
                watches += 1;
            }
        }
        assert!((VAIN_MAX..=VAIN_MAX + 4).contains(&watches), "{watches}");
        let before = (0..=LOOK_INTERVAL).find_map(|_| signals.caller_watches());
        signals.answer();
        assert!(signals.await_answer(before.expect("it tries")));
        assert!(signals.caller_watches().is_some(), "it pays again");
    }
}
