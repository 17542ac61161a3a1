//! A share of the node's memory, common to all its data threads, for answers to clients that keep
//! writing without reading.
//!
//! A client may write its whole pipeline before it reads the first answer. It reads only once all
//! of the pipeline is taken, so its answers must wait here meanwhile (`server.rs` decides when).
//! The share is bounded. Once it is used up, clients that want more of it wait, and the client that
//! holds most and has taken nothing for a while is disconnected.

use doyen_gossip::Time;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// All such answers together if `--memory-max` is large. If it is not, a quarter of it.
const SPILL_BYTES_MAX: usize = 512 << 20;

/// The share, and each data thread's report of its clients.
#[derive(Debug)]
pub(crate) struct Spill {
    bytes_max: usize,
    held: AtomicUsize,
    /// When a client was last disconnected.
    ended_at: AtomicU64,
    threads: Vec<Thread>,
}

/// The last report of a thread. Nothing else depends on these values, so they need no memory order
/// among each other.
#[derive(Debug, Default)]
struct Thread {
    /// When one of its clients last wanted more than there was.
    wanted_at: AtomicU64,
    /// How much the largest of its clients that take nothing holds.
    largest: AtomicUsize,
}

impl Spill {
    /// The share of a node with this memory and `threads` data threads.
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

    /// Takes `bytes` of the share, if they are free.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let more = |held: usize| {
            held.checked_add(bytes)
                .filter(|held| *held <= self.bytes_max)
        };
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Returns bytes to the share.
    pub(super) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A thread's report: when one of its clients last wanted more than there was, if one waits for
    /// that, and how much its largest client that takes nothing holds. True: that client must be
    /// disconnected now, because it has taken nothing for `long`, room is wanted, and no other
    /// client holds as much.
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
        // Room that was wanted before another client ended may be free now.
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
        // If two threads get here at the same moment, one of them wins.
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
