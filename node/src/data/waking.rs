//! Waking callers, whose wakers are their own code.
//!
//! A waker may panic, and so may the destructor of what it wakes. The thread that wakes it serves
//! everybody else, and must go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use tokio::sync::oneshot;

/// Wakes a caller.
pub(crate) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

/// Answers a caller, who may be gone.
pub(crate) fn answer<T>(to: oneshot::Sender<T>, answer: T) {
    guarded(|| drop(to.send(answer)));
}

/// Drops what callers wait for: it wakes them.
pub(crate) fn give_up<T>(waited_for: T) {
    guarded(|| drop(waited_for));
}

/// Does what wakes callers.
pub(crate) fn guarded(wakes: impl FnOnce()) {
    // What may be left half done is the caller's own.
    if catch_unwind(AssertUnwindSafe(wakes)).is_err() {
        tracing::error!(
            "the waker of a caller panicked: its task may never be woken again. Mend the executor \
             or the waker"
        );
    }
}
