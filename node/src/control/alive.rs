//! Signs of life of the data threads. If one of them hangs, the whole node counts as hung (rule
//! 12): no other node serves the partitions that this thread leads.

use doyen_placement::THREADS_MAX;

/// The threads that made progress since all of them last had, one bit each.
#[derive(Debug, Default)]
pub(super) struct Alive(u32);

impl Alive {
    /// The thread made progress. Returns true if all threads have made progress now.
    pub(super) fn heard(&mut self, thread: u8, threads: u8) -> bool {
        self.0 |= 1 << (thread % THREADS_MAX);
        let all = (1 << threads.min(THREADS_MAX)) - 1;
        let complete = self.0 & all == all;
        if complete {
            self.0 = 0;
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_alive_while_all_its_threads_are() {
        let mut alive = Alive::default();
        assert!(!alive.heard(0, 3) && !alive.heard(2, 3) && !alive.heard(0, 3));
        assert!(alive.heard(1, 3));
        assert!(
            !alive.heard(1, 3) && !alive.heard(0, 3),
            "each of them again"
        );
        assert!(alive.heard(2, 3));
    }

    #[test]
    fn one_thread_speaks_for_its_node_and_sixteen_do_together() {
        let mut alive = Alive::default();
        assert!(alive.heard(0, 1) && alive.heard(0, 1));
        assert!((0..15).all(|thread| !alive.heard(thread, 16)) && alive.heard(15, 16));
    }
}
