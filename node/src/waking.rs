//! Wakes callers. Their wakers are foreign code.
//!
//! A waker may panic, and so may the destructor of what it wakes. The thread that wakes it serves
//! all other callers, and must continue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use tokio::sync::oneshot;

/// Wakes a caller.
pub(crate) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

/// Answers a caller, which may be gone.
pub(crate) fn answer<T>(to: oneshot::Sender<T>, answer: T) {
    guarded(|| drop(to.send(answer)));
}

/// Drops what callers wait for, which wakes them.
pub(crate) fn give_up<T>(waited_for: T) {
    guarded(|| drop(waited_for));
}

/// Runs code that wakes callers.
pub(crate) fn guarded(wakes: impl FnOnce()) {
    // Only the caller's own state may be left half done.
    if catch_unwind(AssertUnwindSafe(wakes)).is_err() {
        tracing::error!(
            "the waker of a caller panicked: its task may never be woken again. Mend the executor \
             or the waker"
        );
    }
}
