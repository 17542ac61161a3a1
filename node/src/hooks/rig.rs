//! The test's end of the hooks of one node.

use crate::address::canonical;
use crate::waking;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The clock of data of a whole cluster: how far it is ahead of the machine's.
#[derive(Debug, Default)]
pub(crate) struct DataClock(AtomicU64);

impl DataClock {
    /// Moves it further ahead. It stops at some 500 million years.
    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        // Threads read it alone, so no other write must be seen with it.
        let further = |ms: u64| Some(ms.saturating_add(by));
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, further);
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// What a test does to one node.
#[derive(Debug)]
pub(crate) struct Rig {
    clock: Arc<DataClock>,
    /// A copy of `gate`, so that a thread of a node that runs takes no lock.
    is_paused: AtomicBool,
    /// Whether threads are held. A lock, because the threads wait at it.
    gate: Mutex<bool>,
    opened: Condvar,
    /// How many threads are held.
    held: watch::Sender<usize>,
    /// No datagram leaves or arrives.
    is_isolated: AtomicBool,
    /// Whether `cut` has addresses: usually it has none, and no datagram waits for the lock.
    has_cuts: AtomicBool,
    /// Datagrams to these addresses are dropped. The lock is held for a look-up.
    cut: Mutex<BTreeSet<SocketAddr>>,
}

impl Rig {
    /// A rig of a cluster with this clock of data.
    pub(crate) fn new(clock: Arc<DataClock>) -> Self {
        Self {
            clock,
            is_paused: AtomicBool::new(false),
            gate: Mutex::new(false),
            opened: Condvar::new(),
            held: watch::Sender::new(0),
            is_isolated: AtomicBool::new(false),
            has_cuts: AtomicBool::new(false),
            cut: Mutex::default(),
        }
    }

    /// From now on, threads are held when they pass the gate.
    pub(crate) fn close_gate(&self) {
        *self.gate() = true;
        self.is_paused.store(true, Ordering::SeqCst);
    }

    /// Lets the threads go on.
    pub(crate) fn open_gate(&self) {
        *self.gate() = false;
        self.is_paused.store(false, Ordering::SeqCst);
        self.opened.notify_all();
    }

    /// Waits until `threads` are held.
    pub(crate) async fn are_held(&self, threads: usize) {
        // The sender lives as long as this does.
        let _ = (self.held.subscribe())
            .wait_for(|held| *held >= threads)
            .await;
    }

    pub(super) fn hold(&self) {
        if !self.is_paused.load(Ordering::Relaxed) {
            return;
        }
        let mut is_closed = self.gate();
        if !*is_closed {
            return;
        }
        waking::guarded(|| self.held.send_modify(|held| *held += 1));
        while *is_closed {
            is_closed = (self.opened.wait(is_closed)).unwrap_or_else(PoisonError::into_inner);
        }
        waking::guarded(|| self.held.send_modify(|held| *held -= 1));
    }

    /// Drops all datagrams from and to this node, or no longer.
    pub(crate) fn isolate(&self, is_isolated: bool) {
        self.is_isolated.store(is_isolated, Ordering::SeqCst);
    }

    /// Drops the datagrams to these addresses, too.
    pub(crate) fn cut(&self, to: impl IntoIterator<Item = SocketAddr>) {
        self.cuts().extend(to.into_iter().map(canonical));
        self.has_cuts.store(true, Ordering::SeqCst);
    }

    /// Drops no datagrams any more.
    pub(crate) fn heal(&self) {
        self.cuts().clear();
        self.has_cuts.store(false, Ordering::SeqCst);
        self.isolate(false);
    }

    pub(super) fn lets_out(&self, to: SocketAddr) -> bool {
        self.lets_in()
            && !(self.has_cuts.load(Ordering::Relaxed) && self.cuts().contains(&canonical(to)))
    }

    pub(super) fn lets_in(&self) -> bool {
        !self.is_isolated.load(Ordering::Relaxed)
    }

    pub(super) fn ahead(&self) -> Duration {
        self.clock.ahead()
    }

    fn gate(&self) -> MutexGuard<'_, bool> {
        // Each change of it is one step.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        // A set of addresses is whole after any change.
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rig() -> Arc<Rig> {
        Arc::new(Rig::new(Arc::default()))
    }

    #[test]
    fn only_what_is_cut_is_dropped_until_it_is_healed() {
        let rig = rig();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        rig.cut([at("127.0.0.1:5")]);
        assert!(!rig.lets_out(at("127.0.0.1:5")) && rig.lets_out(at("127.0.0.1:6")));
        // A socket for both families writes IPv4 addresses like this.
        assert!(!rig.lets_out(at("[::ffff:127.0.0.1]:5")) && rig.lets_in());
        rig.isolate(true);
        assert!(!rig.lets_out(at("127.0.0.1:6")) && !rig.lets_in());
        rig.heal();
        assert!(rig.lets_out(at("127.0.0.1:5")) && rig.lets_in());
    }

    #[tokio::test]
    async fn threads_are_held_while_the_gate_is_closed() {
        let rig = rig();
        rig.hold();
        rig.close_gate();
        let thread = std::thread::spawn({
            let rig = rig.clone();
            move || rig.hold()
        });
        rig.are_held(1).await;
        assert!(!thread.is_finished());
        rig.open_gate();
        thread.join().unwrap();
        assert_eq!(*rig.held.borrow(), 0);
    }

    #[test]
    fn the_clock_of_data_only_goes_ahead_and_never_overflows() {
        let clock = DataClock::default();
        clock.advance(Duration::from_secs(2));
        clock.advance(Duration::from_millis(1));
        assert_eq!(clock.ahead(), Duration::from_millis(2001));
        clock.advance(Duration::MAX);
        assert_eq!(clock.ahead(), Duration::from_millis(u64::MAX));
    }
}
