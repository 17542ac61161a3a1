//! Wakes the data thread, and costs nothing while it is awake.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Rung by other threads after they left something for the data thread.
#[derive(Debug)]
pub(super) struct Bell {
    waker: mio::Waker,
    asleep: AtomicBool,
    stopped: AtomicBool,
}

impl Bell {
    pub(super) const fn new(waker: mio::Waker) -> Self {
        Self {
            waker,
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Something was left.
    pub(super) fn ring(&self) {
        // What was left is visible before the look at `asleep`, as `sleep` is before the look at
        // what was left: one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::Relaxed)
            && let Err(why) = self.waker.wake()
        {
            tracing::warn!("the data thread could not be woken: {why}");
        }
    }

    /// The thread shall end.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// From now on it must be rung; look once more at what was left before sleeping.
    pub(super) fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake, and will look.
    pub(super) fn wake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
