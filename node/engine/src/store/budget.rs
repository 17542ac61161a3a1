//! How much one operation may do at its primary while all others wait.
//!
//! The bytes of an operation do not say how long it takes: some words may name sets of a million
//! members, or count the bits of a large value a thousand times. A thread that is busy for a second
//! silences its node (rule 12), and the callers would then ask the next primary for the same. So
//! what reads and writes keys counts what it touches, and stops once that is too much. The
//! operation is refused whole.
//!
//! The work is counted in bytes, as that of a pass is: a million is about a millisecond. How long
//! it takes depends on the machine and on the build. So after the first milliseconds a clock is
//! read now and then, if the shard has one. The simulation has none.

use doyen_gossip::Time;
use std::cell::Cell;
use std::time::Duration;

/// What touching an element of a collection counts, besides its bytes.
const ELEMENT: usize = 64;
/// An element that finds its place in an order counts as this many.
const SORTED: usize = 2;
/// What applying a change of a key or a row counts, besides its bytes.
const CHANGE: usize = 512;
/// Bytes are read this many times as fast as they are copied.
const READ_PART: usize = 8;

/// Work that is never too much, and at which the clock starts: as much as a transaction of many
/// writes of small values does.
const FREE: usize = 16 << 20;
/// How often the clock is read.
const LOOK_EVERY: usize = 1 << 20;
/// The most time from there on. Applying and sending what was written takes about as long again.
const TIME_MAX: Duration = Duration::from_millis(200);
/// The most work without a clock.
const WORK_MAX: usize = 1 << 30;

/// What the operations of a pass do before the others wait for the next one, besides the bytes that
/// they handle. The last one may have done more.
const PASS_WORK_MAX: usize = 8 << 20;

/// The budgets of a thread's operations.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    clock: Option<fn() -> Duration>,
    /// What was done at a moment, which is one for a pass of the thread.
    busy: (Time, usize),
    /// Other operations use up every pass.
    #[cfg(test)]
    pub(crate) exhausted: bool,
}

impl Budgets {
    /// Bounds the time of operations by this clock, which returns the time since any moment.
    pub(crate) const fn set_clock(&mut self, clock: fn() -> Duration) {
        self.clock = Some(clock);
    }

    /// That of an operation that begins.
    pub(crate) const fn begin(&self) -> Budget {
        Budget::new(self.clock)
    }

    /// What an operation did since this was called last, at this moment.
    #[inline]
    pub(crate) fn book(&mut self, now: Time, budget: &Budget) -> usize {
        let done = budget.book();
        let before = if self.is_now(now) { self.busy.1 } else { 0 };
        self.busy = (now, before.saturating_add(done));
        done
    }

    /// Whether the operations of this moment have done enough, so that the others wait for the next
    /// pass.
    #[inline]
    pub(crate) fn are_busy(&self, now: Time) -> bool {
        #[cfg(test)]
        if self.exhausted {
            return true;
        }
        self.is_now(now) && self.busy.1 >= PASS_WORK_MAX
    }

    fn is_now(&self, now: Time) -> bool {
        self.busy.0 == now
    }
}

/// What an operation has done, and whether it may go on.
#[derive(Debug)]
pub(crate) struct Budget {
    clock: Option<fn() -> Duration>,
    done: Cell<usize>,
    /// What was taken of it.
    booked: Cell<usize>,
    /// The work at which the clock is read next.
    look_at: Cell<usize>,
    /// When the clock started.
    began: Cell<Duration>,
}

impl Budget {
    const fn new(clock: Option<fn() -> Duration>) -> Self {
        Self {
            clock,
            done: Cell::new(0),
            booked: Cell::new(0),
            look_at: Cell::new(if clock.is_some() { FREE } else { WORK_MAX }),
            began: Cell::new(Duration::ZERO),
        }
    }

    /// One that nothing exceeds.
    #[cfg(test)]
    pub(crate) fn endless() -> &'static Self {
        let endless = Self::new(None);
        endless.look_at.set(usize::MAX);
        Box::leak(Box::new(endless))
    }

    /// An element of a collection is touched. False: that is too much.
    #[inline]
    pub(crate) fn element(&self) -> bool {
        self.add(ELEMENT)
    }

    /// The same for an element whose bytes are read.
    #[inline]
    pub(crate) fn element_of(&self, bytes: usize) -> bool {
        self.add(ELEMENT + bytes / READ_PART)
    }

    /// An element finds its place in an order of its own. False: that is too much.
    pub(crate) fn sort(&self) -> bool {
        self.add(SORTED * ELEMENT)
    }

    /// `bytes` are read, one after the other. False: that is too much.
    pub(crate) fn read(&self, bytes: usize) -> bool {
        self.add(bytes / READ_PART)
    }

    /// `bytes` are copied. False: that is too much.
    pub(crate) fn copy(&self, bytes: usize) -> bool {
        self.add(bytes)
    }

    /// A key or a row is changed, and has `bytes` then. False: that is too much.
    pub(crate) fn change(&self, bytes: usize) -> bool {
        self.add(CHANGE.saturating_add(bytes))
    }

    /// What was done since the last call.
    const fn book(&self) -> usize {
        self.done.get() - self.booked.replace(self.done.get())
    }

    /// Whether it was too much. It stays so.
    #[inline]
    pub(crate) const fn is_spent(&self) -> bool {
        self.look_at.get() == 0
    }

    #[inline]
    fn add(&self, work: usize) -> bool {
        let done = self.done.get().saturating_add(work);
        self.done.set(done);
        done < self.look_at.get() || self.look(done)
    }

    /// Looks at the clock.
    #[cold]
    fn look(&self, done: usize) -> bool {
        let look_at = match self.clock {
            Some(clock) if !self.is_spent() => {
                let now = clock();
                if self.look_at.get() == FREE {
                    self.began.set(now);
                }
                let goes_on = now.saturating_sub(self.began.get()) < TIME_MAX;
                if goes_on {
                    done.saturating_add(LOOK_EVERY)
                } else {
                    0
                }
            }
            _ => 0,
        };
        self.look_at.set(look_at);
        look_at > 0
    }
}
