//! Wakes the data thread, at no cost while it is awake.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Other threads call this after they left something in the data thread's inbox.
#[derive(Debug)]
pub(super) struct ThreadWaker {
    waker: mio::Waker,
    asleep: AtomicBool,
    stopped: AtomicBool,
}

impl ThreadWaker {
    pub(super) const fn new(waker: mio::Waker) -> Self {
        Self {
            waker,
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Wakes the thread, if it sleeps, to look at its inbox.
    pub(super) fn wake(&self) {
        // The fences order two pairs: the inbox is filled before `asleep` is read here, and
        // `asleep` is set before the inbox is looked at there. So at least one of the two threads
        // sees the other's write.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::Relaxed)
            && let Err(why) = self.waker.wake()
        {
            tracing::warn!("the data thread could not be woken: {why}");
        }
    }

    /// Tells the thread to end.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// From now on the thread must be woken. The caller looks at the inbox once more before it
    /// sleeps.
    pub(super) fn prepare_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake, and will look at its inbox.
    pub(super) fn woken(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
