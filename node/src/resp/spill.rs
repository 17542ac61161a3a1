//! Answers of clients that write on and do not read: a share of the node's memory that all its data
//! threads have together.
//!
//! A client may write its whole pipeline before it reads the first answer. It can read only once
//! all of the pipeline is taken, so what it is answered must wait here meanwhile (`server.rs`
//! decides when). The share is bounded. Once it is used up, clients that want more of it wait, and
//! the client that holds most and has taken nothing for a while is disconnected.

use doyen_gossip::Time;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// All such answers together, where `--memory-max` is large; a quarter of that where it is not.
const SPILL_BYTES_MAX: usize = 512 << 20;

/// The share, and what each data thread says of its clients.
#[derive(Debug)]
pub(crate) struct Spill {
    bytes_max: usize,
    held: AtomicUsize,
    /// When a client was last disconnected.
    ended_at: AtomicU64,
    threads: Vec<Thread>,
}

/// What a thread last said. Nothing else depends on these values, so they need no order among each
/// other.
#[derive(Debug, Default)]
struct Thread {
    /// When a client of it last wanted more than there was.
    wanted_at: AtomicU64,
    /// What the largest of its clients holds that take nothing.
    largest: AtomicUsize,
}

impl Spill {
    /// Of a node with so much memory, and so many data threads.
    pub(crate) fn new(memory_bytes_max: usize, threads: usize) -> Self {
        Self {
            bytes_max: (memory_bytes_max / 4).min(SPILL_BYTES_MAX),
            held: AtomicUsize::new(0),
            ended_at: AtomicU64::new(0),
            threads: (0..threads).map(|_| Thread::default()).collect(),
        }
    }

    /// The size of the share.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Takes so many bytes of the share, if there are as many.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let more = |held: usize| {
            held.checked_add(bytes)
                .filter(|held| *held <= self.bytes_max)
        };
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A thread says when a client of it last wanted more than there was, if one waits for that,
    /// and what the largest client of it holds that takes nothing. True: that client is to be
    /// disconnected now, because it has taken nothing for `long`, room is wanted and no other holds
    /// as much.
    pub(super) fn largest_ends(
        &self,
        now: Time,
        thread: u8,
        wanted_at: Option<Time>,
        (largest, long): (usize, bool),
    ) -> bool {
        let Some(own) = self.threads.get(usize::from(thread)) else {
            return false;
        };
        own.wanted_at
            .store(wanted_at.map_or(0, |at| at.0), Ordering::Relaxed);
        own.largest.store(largest, Ordering::Relaxed);
        // What was wanted before another client ended may be there now.
        let ended_at = self.ended_at.load(Ordering::Relaxed);
        let wanted = self
            .threads
            .iter()
            .any(|t| t.wanted_at.load(Ordering::Relaxed) > ended_at);
        let most = self
            .threads
            .iter()
            .map(|t| t.largest.load(Ordering::Relaxed))
            .max();
        // Of two threads that come to this at the same moment one goes on.
        let ends = long && largest > 0 && wanted && most == Some(largest);
        ends && self
            .ended_at
            .compare_exchange(ended_at, now.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
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
        let ends = |now, thread, wanted_at: Option<u64>, largest| {
            spill.largest_ends(Time(now), thread, wanted_at.map(Time), (largest, true))
        };
        assert!(!ends(1, 0, None, 5), "there is room for all");
        assert!(ends(3, 1, Some(2), 7));
        assert!(
            !ends(4, 0, Some(2), 5) && !ends(4, 1, None, 0),
            "there may be room now"
        );
        assert!(
            !ends(5, 1, Some(4), 3),
            "a client of the other thread holds more"
        );
        assert!(ends(6, 0, None, 5), "clients of the other thread wait");
        assert!(!ends(7, 0, None, 5));
        assert!(
            !spill.largest_ends(Time(9), 1, Some(Time(8)), (9, false)),
            "not for long"
        );
        assert!(!ends(10, 0, None, 5), "nor a smaller one in its place");
    }
}
