//! Answers of clients that write on and do not read: a share of the node's memory that all its data threads have together.
//!
//! A client may write its whole pipeline before it reads the first answer. It can read only once all of the pipeline is taken, so what it is
//! answered must wait here meanwhile (`server.rs` decides when). The share is bounded. Once it is used up, clients that want more of it wait,
//! and the client that holds most and has taken nothing for a while is disconnected.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// All such answers together, where `--memory-max` is large; a quarter of that where it is not.
const SPILL_BYTES_MAX: usize = 512 << 20;

/// The share, and what each data thread says of its clients.
#[derive(Debug)]
pub(crate) struct Spill {
    bytes_max: usize,
    held: AtomicUsize,
    threads: Vec<Thread>,
}

/// What a thread last said. Nothing else depends on these values, so they need no order among each other.
#[derive(Debug, Default)]
struct Thread {
    /// Whether a client of it wants more than there is.
    waits: AtomicBool,
    /// What the largest of its clients holds that have taken nothing for long.
    largest: AtomicUsize,
}

impl Spill {
    /// Of a node with so much memory, and so many data threads.
    pub(crate) fn new(memory_bytes_max: usize, threads: usize) -> Self {
        Self {
            bytes_max: (memory_bytes_max / 4).min(SPILL_BYTES_MAX),
            held: AtomicUsize::new(0),
            threads: (0..threads).map(|_| Thread::default()).collect(),
        }
    }

    /// The size of the share.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Takes so many bytes of the share, if there are as many.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.bytes_max);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A thread says whether a client of it waits for room, and what the largest client of it holds that has taken nothing for long. True: that
    /// client is to be disconnected, because room is wanted and no other holds as much.
    pub(super) fn largest_ends(&self, thread: u8, waits: bool, largest: usize) -> bool {
        let Some(own) = self.threads.get(usize::from(thread)) else { return false };
        own.waits.store(waits, Ordering::Relaxed);
        own.largest.store(largest, Ordering::Relaxed);
        let wanted = || self.threads.iter().any(|t| t.waits.load(Ordering::Relaxed));
        let most = || self.threads.iter().map(|t| t.largest.load(Ordering::Relaxed)).max();
        largest > 0 && wanted() && most() == Some(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let spill = Spill::new(64 << 20, 1);
        assert!(spill.take(10 << 20) && !spill.take((6 << 20) + 1) && spill.take(6 << 20));
        assert!(!spill.take(1) && !spill.take(usize::MAX));
        spill.give_back(1);
        assert!(spill.take(1));
        assert_eq!(Spill::new(usize::MAX, 1).bytes_max(), SPILL_BYTES_MAX);
    }

    #[test]
    fn the_largest_of_all_threads_ends_and_only_while_room_is_wanted() {
        let spill = Spill::new(64 << 20, 2);
        assert!(!spill.largest_ends(0, false, 5), "there is room for all");
        assert!(spill.largest_ends(1, true, 7));
        assert!(!spill.largest_ends(0, false, 5), "a client of the other thread holds more");
        assert!(!spill.largest_ends(1, true, 0), "that one is gone");
        assert!(spill.largest_ends(0, false, 5), "the other thread's clients wait");
        assert!(!spill.largest_ends(1, false, 0) && !spill.largest_ends(0, false, 5));
    }
}
