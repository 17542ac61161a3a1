//! How long the passes of the loop take: while one goes on, nobody else is served.
//!
//! A pass is timed by two clocks. The wall's is what others wait; the thread's own leaves out what
//! the system gave to others meanwhile, so it tells our own work from a busy machine. Reading that
//! one is a system call, so it is read once a millisecond at most: what it says of a pass may
//! include that much of passes before it.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Between two looks at the thread's own clock.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Who waited for a processor so long in one pass shares it with others,
const DISTURBED: Duration = Duration::from_millis(1);
/// and is taken to do so for this long.
const DISTURBED_FOR: Duration = Duration::from_millis(50);
/// A pass above this is one that somebody may notice.
const LONG: Duration = Duration::from_millis(20);

/// What passes took.
#[derive(Debug)]
pub(super) struct Passes {
    /// The thread's clock, and when that was read.
    looked: (Duration, Instant),
    /// Since the last `take`.
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
    /// By the clock of the data thread: without what it waited for a processor. Up to a millisecond
    /// too much.
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
    /// To be made by the thread that it is about.
    pub(super) fn new() -> Self {
        Self {
            looked: (own_time(), Instant::now()),
            longest: Longest::default(),
            long: 0,
            disturbed: None,
        }
    }

    /// A pass that began then is over.
    pub(super) fn ended(&mut self, began: Instant) {
        let now = Instant::now();
        if now.duration_since(self.looked.1) >= LOOK_INTERVAL {
            self.ended_at(began, now, own_time());
        } else {
            // Shorter than what the other clock may be wrong by.
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

    /// Whether others wanted this thread's processor of late. Who takes all that there is then
    /// waits for it when it counts.
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

/// What this thread has run.
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
        assert_eq!(passes.take(), Longest::default(), "each is told once");
        assert!(
            passes.is_disturbed(start + ms(134)) && !passes.is_disturbed(start + ms(135)),
            "the second waited for one, too"
        );
    }

    #[test]
    fn a_pass_never_ran_longer_than_it_took() {
        let mut passes = Passes::new();
        let (own, start) = passes.looked;
        // Others came before it since the last look.
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
