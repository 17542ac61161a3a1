//! Relays for UDP in user space. Every datagram between two nodes passes a relay, which may lose,
//! delay or change it.
//!
//! ```text
//!   node A ── from its own socket ──> front of B ── one upstream per sender ──> node B
//!   node A <── from the front of B ── relay <── to the upstream ─────────────── node B
//! ```
//!
//! B sees one stable address for each sender, and A sees the address that it dialled, as with NAT.
//! The source address tells the sender of a datagram, because a node's QUIC uses the same socket
//! for listening and sending. B's answers travel on the link from B to A. It does not matter which
//! of them dialled. Datagrams of other programs (native clients) pass without faults.
//!
//! A relay has a thread of its own, so that a test that computes or blocks does not delay
//! datagrams.

mod front;
mod post;

use super::link::{DatagramCounts, Faults, RelayLink, SentDatagram};
use post::PostOffice;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long a front may take to close.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Which of a node's two ports.
///
/// Example: [`Relay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    /// Agreement, gossip, joins.
    Control,
    /// Operations and copies.
    Data,
}

impl Plane {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Control, Self::Data];
}

/// One direction between two nodes, on one plane: from, to.
pub(super) type RelayWay = (usize, usize, Plane);

/// The relays of all nodes. They end when this is dropped.
///
/// Nodes are numbers that the caller gives. Every change affects later datagrams. Datagrams on
/// their way still arrive.
///
/// ```no_run
/// use doyen::testkit::{Faults, Plane, Relay};
///
/// # fn example() -> std::io::Result<()> {
/// let relay = Relay::start(7)?;
/// // Node 0 listens on 127.0.0.2:7400 and advertises 127.0.0.3:7400.
/// let front = "127.0.0.3:7400".parse().unwrap();
/// let behind = "127.0.0.2:7400".parse().unwrap();
/// relay.open(0, Plane::Control, front, behind)?;
/// relay.degrade(Faults { loss: 0.1, ..Faults::NONE });
/// relay.cut(0, 1, &Plane::ALL);
/// relay.heal();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Relay {
    switch: Arc<Switch>,
    runtime: Handle,
    fronts: Mutex<BTreeMap<(usize, Plane), OpenRelay>>,
    /// The thread ends when this is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A front that listens.
#[derive(Debug)]
struct OpenRelay {
    stop: oneshot::Sender<()>,
    /// Closes when the sockets are closed.
    ended: mpsc::Receiver<()>,
}

/// The shared state of all fronts: the nodes by address, and the faults by path.
#[derive(Debug)]
pub(super) struct Switch {
    post: PostOffice,
    /// Held for one datagram or one change.
    state: Mutex<RelayState>,
}

#[derive(Debug)]
struct RelayState {
    seed: u64,
    /// By the address that a node sends from.
    senders: BTreeMap<SocketAddr, usize>,
    links: BTreeMap<RelayWay, RelayLink>,
    /// The faults of links that have none of their own.
    everywhere: Faults,
    own: BTreeMap<RelayWay, Faults>,
    cuts: BTreeSet<RelayWay>,
}

impl Relay {
    /// Starts the thread, without any front. All random numbers come from this seed.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(seed: u64) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let post = {
            let _inside = handle.enter();
            PostOffice::open()
        };
        let thread = std::thread::Builder::new()
            .name("doyen-relay".into())
            .spawn(move || {
                // Ends with the sender, too.
                let _ = runtime.block_on(stopped);
            })?;
        let state = RelayState {
            seed,
            senders: BTreeMap::new(),
            links: BTreeMap::new(),
            everywhere: Faults::NONE,
            own: BTreeMap::new(),
            cuts: BTreeSet::new(),
        };
        let switch = Arc::new(Switch {
            post,
            state: Mutex::new(state),
        });
        Ok(Self {
            switch,
            runtime: handle,
            fronts: Mutex::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Listens at `front`, which the node advertises, and forwards to `behind`, at which the node
    /// listens and from which it sends. Returns the address of the front, for a port 0. A former
    /// front of this node and plane is closed.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn open(
        &self,
        node: usize,
        plane: Plane,
        front: SocketAddr,
        behind: SocketAddr,
    ) -> io::Result<SocketAddr> {
        self.close_one(node, plane);
        let (socket, address) = front::bind(front)?;
        self.switch.state().senders.insert(behind, node);
        let (stop, stopped) = oneshot::channel();
        let (alive, ended) = mpsc::channel();
        let mut front = {
            let _inside = self.runtime.enter();
            front::Front::new(
                self.switch.clone(),
                (node, plane),
                socket,
                address.ip(),
                behind,
            )?
        };
        self.runtime.spawn(async move {
            tokio::select! {
                _ = stopped => {}
                () = front.serve() => {}
            }
            front.close().await;
            drop(alive);
        });
        self.fronts()
            .insert((node, plane), OpenRelay { stop, ended });
        Ok(address)
    }

    /// Stops listening for this node: its ports refuse datagrams, as after the death of a process.
    /// Waits until that is done.
    pub fn close(&self, node: usize) {
        Plane::ALL
            .into_iter()
            .for_each(|plane| self.close_one(node, plane));
        self.switch.state().senders.retain(|_, of| *of != node);
    }

    fn close_one(&self, node: usize, plane: Plane) {
        let open = self.fronts().remove(&(node, plane));
        if let Some(OpenRelay { stop, ended }) = open {
            drop(stop);
            // The other end is only ever dropped.
            let _ = ended.recv_timeout(CLOSE_MAX);
        }
    }

    /// Sets the faults of every direction between two nodes that has no faults of its own.
    pub fn degrade(&self, faults: Faults) {
        self.switch.state().everywhere = faults;
    }

    /// Sets the faults of one direction between two nodes, on these planes.
    pub fn degrade_link(&self, from: usize, to: usize, planes: &[Plane], faults: Faults) {
        self.switch
            .state()
            .own
            .extend(planes.iter().map(|plane| ((from, to, *plane), faults)));
    }

    /// Nothing passes from one node to the other, on these planes; the other direction stays as it
    /// is.
    pub fn cut(&self, from: usize, to: usize, planes: &[Plane]) {
        self.switch
            .state()
            .cuts
            .extend(planes.iter().map(|plane| (from, to, *plane)));
    }

    /// Removes every cut and every fault.
    pub fn heal(&self) {
        let mut state = self.switch.state();
        state.everywhere = Faults::NONE;
        state.own.clear();
        state.cuts.clear();
    }

    /// What happened to datagrams between nodes so far.
    #[must_use]
    pub fn counts(&self) -> DatagramCounts {
        let mut all = DatagramCounts::default();
        self.switch
            .state()
            .links
            .values()
            .for_each(|link| all.add(&link.counts));
        all
    }

    /// What happened to datagrams from one node to another so far.
    #[must_use]
    pub fn counts_of(&self, from: usize, to: usize, plane: Plane) -> DatagramCounts {
        self.switch
            .state()
            .links
            .get(&(from, to, plane))
            .map(|link| link.counts)
            .unwrap_or_default()
    }

    fn fronts(&self) -> MutexGuard<'_, BTreeMap<(usize, Plane), OpenRelay>> {
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread only waits for the sender that was just dropped.
            let _ = thread.join();
        }
    }
}

impl Switch {
    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that sends from this address.
    fn sender(&self, address: SocketAddr) -> Option<usize> {
        self.state().senders.get(&address).copied()
    }

    /// The fate of a datagram on this path.
    fn pass(&self, way: RelayWay, datagram: &mut [u8]) -> SentDatagram {
        let (from, to, plane) = way;
        // Datagrams of a node to itself do not leave its machine.
        if from == to {
            return SentDatagram::Once(None);
        }
        let mut state = self.state();
        let RelayState {
            seed,
            links,
            everywhere,
            own,
            cuts,
            ..
        } = &mut *state;
        let stream = ((from as u64) << 32) | ((to as u64) << 1) | u64::from(plane == Plane::Data);
        let link = links
            .entry(way)
            .or_insert_with(|| RelayLink::new(*seed, stream));
        let faults = own.get(&way).unwrap_or(everywhere);
        link.pass(Instant::now(), faults, cuts.contains(&way), datagram)
    }
}

#[cfg(test)]
mod tests;
