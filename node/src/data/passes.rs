//! Measures how long the passes of the loop take. During a pass, no other client is served.
//!
//! Two clocks time a pass. The wall clock shows how long others wait. The thread's CPU clock leaves
//! out the time that the system gave to other threads, so it tells our own work from a busy
//! machine. Reading it is a system call, so it is read at most once in a millisecond: the time of a
//! pass may include that much of earlier passes.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Interval between two reads of the thread's CPU clock.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// A thread that waited this long for a processor in one pass shares it with others.
const DISTURBED: Duration = Duration::from_millis(1);
/// Such a thread counts as disturbed for this long.
const DISTURBED_FOR: Duration = Duration::from_millis(50);
/// A client may notice a pass above this.
const LONG: Duration = Duration::from_millis(20);

/// The durations of passes.
#[derive(Debug)]
pub(super) struct Passes {
    /// The thread's CPU clock, and when it was read.
    looked: (Duration, Instant),
    /// The longest passes since the last `take`.
    longest: Longest,
    long: u64,
    /// When a pass last waited for a processor.
    disturbed: Option<Instant>,
}

/// The longest passes of a span of time. They need not be the same one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Longest {
    /// By the wall clock.
    pub wall: Duration,
    /// By the thread's CPU clock, without waits for a processor. Up to a millisecond too much.
    pub own: Duration,
}

impl Longest {
    /// The longer of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            wall: self.wall.max(other.wall),
            own: self.own.max(other.own),
        }
    }
}

impl Passes {
    /// To be called on the thread that is measured.
    pub(super) fn new() -> Self {
        Self {
            looked: (own_time(), Instant::now()),
            longest: Longest::default(),
            long: 0,
            disturbed: None,
        }
    }

    /// A pass that began at `began` is over.
    pub(super) fn ended(&mut self, began: Instant) {
        let now = Instant::now();
        if now.duration_since(self.looked.1) >= LOOK_INTERVAL {
            self.ended_at(began, now, own_time());
        } else {
            // Shorter than the error of the CPU clock.
            self.note(now.duration_since(began), now.duration_since(began));
        }
    }

    fn ended_at(&mut self, began: Instant, now: Instant, own: Duration) {
        let (wall, ran) = (now.duration_since(began), own.saturating_sub(self.looked.0));
        if wall >= ran + DISTURBED {
            self.disturbed = Some(now);
        }
        self.note(wall, wall.min(ran));
        self.looked = (own, now);
    }

    /// Whether others needed this thread's processor lately. A thread that uses all of its time
    /// then waits for the processor when it matters.
    pub(super) fn is_disturbed(&self, now: Instant) -> bool {
        self.disturbed
            .is_some_and(|at| now.duration_since(at) < DISTURBED_FOR)
    }

    fn note(&mut self, wall: Duration, own: Duration) {
        self.longest.wall = self.longest.wall.max(wall);
        self.longest.own = self.longest.own.max(own);
        self.long += u64::from(own > LONG);
    }

    /// The longest since the last call.
    pub(super) fn take(&mut self) -> Longest {
        std::mem::take(&mut self.longest)
    }

    /// How many passes were long by the thread's own clock.
    pub(super) fn long(&self) -> u64 {
        self.long
    }
}

/// The CPU time of this thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waiting_for_a_processor_is_no_work_of_ours() {
        let mut passes = Passes::new();
        let (own, start) = passes.looked;
        passes.ended_at(start, start + ms(50), own + ms(3));
        assert_eq!(
            (passes.take(), passes.long()),
            (
                Longest {
                    wall: ms(50),
                    own: ms(3)
                },
                0
            )
        );
        passes.ended_at(start + ms(60), start + ms(85), own + ms(27));
        assert_eq!(
            (passes.take(), passes.long()),
            (
                Longest {
                    wall: ms(25),
                    own: ms(24)
                },
                1
            )
        );
        assert_eq!(passes.take(), Longest::default(), "each is reported once");
        assert!(
            passes.is_disturbed(start + ms(134)) && !passes.is_disturbed(start + ms(135)),
            "the second waited for one, too"
        );
    }

    #[test]
    fn a_pass_never_ran_longer_than_it_took() {
        let mut passes = Passes::new();
        let (own, start) = passes.looked;
        // Other passes came before it since the last read.
        passes.ended_at(start + ms(9), start + ms(11), own + ms(10));
        assert_eq!(
            passes.take(),
            Longest {
                wall: ms(2),
                own: ms(2)
            }
        );
    }
}
