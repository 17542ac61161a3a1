//! The data network of a data thread. A peer is a data thread of another process. Each peer has one
//! connection with three ordered lanes of bytes: for calls, for bulk, and for datagrams that this
//! thread carries for others (`relay`).
//!
//! ```text
//!   send(peer, lane, bytes) ─> stream of the lane ─> transmit: once a pass, all that is there
//!   handler.received(peer, lane, all that came) <─ work: datagrams, timers, lanes
//! ```
//!
//! Of two members, the one with the lower id dials, and dials again with backoff. The other one
//! accepts only peers that `set_peers` named, and as many clients as `set_clients_max` allows. A
//! client dials all threads of all members, and is never dialled. If it knows no members, it dials
//! its seeds and accepts any member. (Ids of clients are above those of all members, so one
//! comparison of ids decides all of this.) The lanes are long-lived bidirectional streams, each
//! opened with one byte that names it. Bulk has the lower priority, unless missing copies are made:
//! then calls and bulk share each connection (`share`). Datagrams leave before anything that waits
//! in a lane, and may be lost. Nothing here waits: the loop of the data thread calls `work`, and
//! `transmit` at the end of its pass. The handler is only ever called from `work`.

mod lane;
mod opening;
#[cfg(feature = "http")]
pub(crate) mod paths;
mod seeds;

use super::backoff::Backoff;
use super::driver::QuicDriver;
use super::endpoint::{
    ADMISSION_TIMEOUT, Close, DIAL_TIMEOUT, DialFailure, Purpose, UNTRUSTED, text,
};
use super::hello::{self, Hello};
use super::identity::{Evidence, Identity};
use super::notice::Notices;
use super::relay::{CARRIED_BYTES_MAX, Carried};
use crate::hooks::Hooks;
use bytes::{Bytes, BytesMut};
use doyen_engine::{Lane, Malformed};
use doyen_placement::MemberId;
use doyen_placement::level::LEVELS;
use doyen_placement::words::counted;
use lane::LaneIo;
use opening::{OpenedLane, Opening, PRIORITY_BULK};
use quinn_proto::{ConnectionHandle, Event, StreamEvent, StreamId};
use seeds::SeedDialer;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A peer with this many waiting bytes of calls is congested. Until `drained`, the handler shall
/// send it only what cannot wait.
pub const CONGESTED_BYTES: usize = 8 << 20;
/// Bytes that may wait for one peer, both lanes together; above that the connection is closed. A
/// handler that heeds `CONGESTED_BYTES` stays far below. The limit is for a peer that sends
/// requests and never reads.
pub const QUEUED_BYTES_MAX: usize = 256 << 20;
/// Partial frames of all peers together, unless `set_partial_max` sets another limit. The peer
/// whose frame exceeds it is disconnected.
pub const PARTIAL_BYTES_MAX: usize = 256 << 20;
const BACKOFF_LEAST: Duration = Duration::from_millis(20);
const BACKOFF_MOST: Duration = Duration::from_millis(500);
/// A link that lived this long counts as a success.
const LIVED: Duration = Duration::from_secs(5);

/// Receives the events of the data network.
pub trait LinkHandler {
    /// A connection of this version to this peer is up; both lanes begin again. For each peer, this
    /// and `disconnected` alternate.
    fn connected(&mut self, peer: MemberId, version: u16);
    /// The connection is gone, with all that was in flight.
    fn disconnected(&mut self, peer: MemberId);
    /// The bytes of one read, after what an earlier call left over. Whole frames are consumed from
    /// the front. True: call it again with the rest, after the other peers.
    ///
    /// # Errors
    /// The bytes are malformed: the connection is closed.
    fn received(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed>;
    /// A congested peer (`Links::send`) is not congested any more.
    fn drained(&mut self, peer: MemberId);
    /// A datagram of a peer (`Links::send_datagram`).
    ///
    /// # Errors
    /// It is malformed: the connection is closed.
    fn datagram(&mut self, _peer: MemberId, _bytes: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// The data network of one data thread.
pub struct Links {
    driver: QuicDriver,
    identity: Arc<Identity>,
    /// Of the authorities that every connection was checked against.
    generation: u64,
    me: MemberId,
    /// The highest version that this process speaks.
    level_max: u16,
    /// The peers to be connected with.
    peers: BTreeMap<MemberId, LinkedPeer>,
    /// The seeds of a client.
    seeds: SeedDialer,
    /// Clients that may be connected; `None`: not yet.
    clients_max: Option<usize>,
    /// By the number of the connection.
    stages: Vec<Option<LinkStage>>,
    /// Links that the handler knows, or will know by `news`.
    up: BTreeMap<MemberId, DataLink>,
    news: VecDeque<News>,
    /// The earliest deadline of a dial or a handshake is not before this.
    due: Option<Instant>,
    /// Bytes of partial frames, and their limit.
    partial: usize,
    partial_max: usize,
    notices: Notices,
    /// Whether calls and bulk share each connection.
    shared: bool,
    /// Datagrams passed on for others.
    carried: u64,
    #[cfg(test)]
    failures: Vec<DialFailure>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links")
            .field("me", &self.me)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

/// An event for the handler.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Connected(MemberId, u16),
    Disconnected(MemberId),
    Drained(MemberId),
    Datagram(MemberId, Bytes),
}

#[derive(Debug)]
struct LinkedPeer {
    address: SocketAddr,
    /// Its name in the table, which its certificate must have.
    name: Arc<str>,
    dial: LinkDial,
    backoff: Backoff,
    /// Why the last attempt to dial it failed.
    failure: Option<DialFailure>,
}

#[derive(Debug, Clone, Copy)]
enum LinkDial {
    /// It dials us.
    Never,
    At(Instant),
    /// It is dialled, or up.
    Done(ConnectionHandle),
}

/// The state of a connection.
#[derive(Debug)]
enum LinkStage {
    /// Opening, until this deadline.
    Opening(Box<Opening>, Instant),
    Up(MemberId),
}

#[derive(Debug)]
struct DataLink {
    handle: ConnectionHandle,
    /// Why the peer is trusted.
    evidence: Evidence,
    since: Instant,
    calls: LaneIo,
    bulk: LaneIo,
    /// Datagrams of other members.
    carried: LaneIo,
    /// More bytes of calls wait than the peer takes.
    congested: bool,
}

/// The priority of calls. To raise bulk instead would have no effect while calls go first.
const fn calls_priority(shared: bool) -> i32 {
    if shared { PRIORITY_BULK } else { 0 }
}

impl DataLink {
    fn lane(&mut self, lane: Lane) -> &mut LaneIo {
        match lane {
            Lane::Calls => &mut self.calls,
            Lane::Bulk => &mut self.bulk,
        }
    }

    fn lane_of(&mut self, stream: StreamId) -> Option<&mut LaneIo> {
        [&mut self.calls, &mut self.bulk, &mut self.carried]
            .into_iter()
            .find(|l| l.stream == stream)
    }

    /// Bytes that are counted as partial frames.
    const fn counted(&self) -> usize {
        self.calls.counted + self.bulk.counted + self.carried.counted
    }
}

impl Links {
    /// The data network over a bound socket.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn new(socket: UdpSocket, identity: Arc<Identity>, me: MemberId) -> io::Result<Self> {
        Ok(Self {
            driver: QuicDriver::new(socket, identity.clone(), !me.is_client())?,
            generation: identity.generation(),
            identity,
            me,
            level_max: LEVELS.1,
            peers: BTreeMap::new(),
            seeds: SeedDialer::default(),
            clients_max: None,
            stages: Vec::new(),
            up: BTreeMap::new(),
            news: VecDeque::new(),
            due: None,
            partial: 0,
            partial_max: PARTIAL_BYTES_MAX,
            notices: Notices::default(),
            shared: false,
            carried: 0,
            #[cfg(test)]
            failures: Vec::new(),
        })
    }

    /// Limits this process to versions up to this one (`--level-max`).
    pub fn set_level_max(&mut self, level: u16) {
        self.level_max = level;
    }

    /// What a test does to this node.
    pub(crate) fn set_hooks(&mut self, hooks: Hooks) {
        self.driver.set_hooks(hooks);
    }

    /// Sets the limit on bytes of partial frames of all peers together.
    pub fn set_partial_max(&mut self, bytes: usize) {
        self.partial_max = bytes;
    }

    /// The socket, to wait until it can be read or written.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        self.driver.socket()
    }

    /// The socket can be read or written.
    pub fn ready(&mut self) {
        self.driver.ready();
    }

    /// Whether a transmission waits until the socket takes more. Call `transmit` then.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.driver.is_blocked()
    }

    /// When `work` is due if nothing arrives.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        self.driver.timeout().into_iter().chain(self.due).min()
    }

    /// This process became another member, or ends. Every connection is closed, and there are no
    /// peers. The handler is not told: the caller must reset it as well.
    pub fn reset(&mut self, me: MemberId) {
        let now = Instant::now();
        self.up.clear();
        self.peers.clear();
        self.seeds = SeedDialer::default();
        self.clients_max = None;
        self.partial = 0;
        self.news.clear();
        for at in 0..self.stages.len() {
            if self.stages[at].take().is_some() {
                self.driver.close(
                    now,
                    ConnectionHandle(at),
                    Close::Done.code(),
                    Bytes::from_static(b"this process is another member now, or ends"),
                );
            }
        }
        self.me = me;
    }

    /// Whether every connection has ended and the peers were told.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.driver.is_idle()
    }

    /// Sets the peers. Other connections are closed.
    pub fn set_peers(&mut self, peers: &[(MemberId, Arc<str>, SocketAddr)]) {
        let (now, me) = (Instant::now(), self.me);
        let wanted: BTreeMap<_, _> = peers
            .iter()
            .filter(|(id, ..)| *id != me)
            .map(|(id, name, address)| (*id, (name, *address)))
            .collect();
        let void: Vec<_> = self
            .peers
            .iter()
            .filter(|(id, p)| wanted.get(id) != Some(&(&p.name, p.address)))
            .map(|(id, _)| *id)
            .collect();
        for id in void {
            let peer = self.peers.remove(&id);
            let dialled = peer.and_then(|p| {
                if let LinkDial::Done(handle) = p.dial {
                    Some(handle)
                } else {
                    None
                }
            });
            let up = self.up.get(&id).map(|l| l.handle);
            for handle in dialled.into_iter().chain(up) {
                self.close(now, handle, Close::Done, "no longer a peer of this node");
            }
        }
        for (id, (name, address)) in wanted {
            self.peers.entry(id).or_insert_with(|| {
                let dial = if me < id || me.is_client() {
                    LinkDial::At(now)
                } else {
                    LinkDial::Never
                };
                LinkedPeer {
                    address,
                    name: name.clone(),
                    dial,
                    backoff: Backoff::new(BACKOFF_LEAST, BACKOFF_MOST),
                    failure: None,
                }
            });
        }
        self.arm(now);
    }

    /// Limits the number of connected clients; `None`: none, for now.
    pub fn set_clients_max(&mut self, most: Option<usize>) {
        self.clients_max = most;
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        // Clients have the highest ids.
        self.up.range(MemberId::of_client(0)..).count()
    }

    /// For a client: where to look for a member while none is connected.
    pub fn set_seeds(&mut self, addresses: &[SocketAddr]) {
        let now = Instant::now();
        for handle in self.seeds.set(addresses, now) {
            self.close(now, handle, Close::Done, "no longer a seed of this client");
        }
        self.arm(now);
    }

    /// For a client: the seeds that refused it, and why.
    #[must_use]
    pub fn refusals(&self) -> Vec<(SocketAddr, DialFailure)> {
        self.seeds.failures()
    }

    /// Appends to the peer's lane. Without a connection the bytes are dropped. True: the peer is
    /// congested, and [`LinkHandler::drained`] reports when that is over.
    pub fn send(&mut self, peer: MemberId, lane: Lane, bytes: Bytes) -> bool {
        let Some(link) = self.up.get_mut(&peer) else {
            return false;
        };
        let handle = link.handle;
        if link.calls.queued + link.bulk.queued + bytes.len() > QUEUED_BYTES_MAX {
            tracing::warn!(
                %peer,
                "more than {QUEUED_BYTES_MAX} bytes wait for a peer: its \
                 connection is closed"
            );
            self.close(
                Instant::now(),
                handle,
                Close::Overflow,
                "it takes too little of what it is sent",
            );
            return false;
        }
        let Some(connection) = self.driver.get(handle) else {
            return false;
        };
        link.lane(lane).push(connection, bytes);
        link.congested |= link.calls.queued >= CONGESTED_BYTES;
        let congested = link.congested;
        self.driver.touch(handle);
        congested
    }

    /// Whether calls and bulk share each connection, or calls go first. While they share, each gets
    /// half of it as long as both have bytes.
    pub fn share(&mut self, shared: bool) {
        if std::mem::replace(&mut self.shared, shared) != shared {
            for link in self.up.values() {
                if let Some(connection) = self.driver.get(link.handle) {
                    link.calls.prioritize(connection, calls_priority(shared));
                }
            }
        }
    }

    /// Sends bytes that may be lost, and that wait for nothing that is on the lanes. A peer of
    /// another version may not take them.
    pub fn send_datagram(&mut self, peer: MemberId, bytes: Bytes) {
        if let Some(handle) = self.up.get(&peer).map(|link| link.handle)
            && let Some(connection) = self.driver.get(handle)
        {
            // What is not sent is like what is lost.
            let _ = connection.datagrams().send(bytes, true);
            self.driver.touch(handle);
        }
    }

    /// Whether this peer is connected.
    #[must_use]
    pub fn is_connected(&self, peer: MemberId) -> bool {
        self.up.contains_key(&peer)
    }

    /// Handles arrived datagrams and due timers. True: there is more, for the next pass.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn work(&mut self, now: Instant, handler: &mut impl LinkHandler) -> io::Result<bool> {
        self.driver.expire(now);
        let generation = self.identity.generation();
        if generation != self.generation {
            self.generation = generation;
            self.close_untrusted(now);
        }
        if self.due.is_some_and(|due| due <= now) {
            self.dues(now);
        }
        let mut accepted = Vec::new();
        let mut more = self.driver.receive(now, &mut accepted)?;
        for (handle, address, place) in accepted {
            let opening = Opening::accepted(address, place);
            self.begin(handle, opening, now + ADMISSION_TIMEOUT);
        }
        self.events(now);
        self.tell(now, handler);
        if self.up.values().any(|link| link.carried.readable) {
            more |= self.read_carried(now);
            self.events(now);
            self.tell(now, handler);
        }
        more |= self.read(now, handler);
        self.tell(now, handler);
        Ok(more)
    }

    /// The authorities changed: a peer that none of them vouches for any more is disconnected.
    fn close_untrusted(&mut self, now: Instant) {
        let untrusted: Vec<_> = self
            .up
            .iter()
            .filter(|(_, link)| !self.identity.trusts(&link.evidence))
            .map(|(peer, link)| (*peer, link.handle))
            .collect();
        for (peer, handle) in untrusted {
            tracing::info!(%peer, "its secret or certificate is no longer trusted: disconnected");
            self.close(now, handle, Close::Stranger, UNTRUSTED);
        }
    }

    /// Sends what waits. True: there is more, for the next pass.
    pub fn transmit(&mut self, now: Instant) -> bool {
        let mut more = self.driver.transmit(now);
        if self.driver.has_strays() {
            self.go_around(now);
            more |= self.driver.transmit(now) | self.driver.has_strays();
        }
        more | !self.news.is_empty()
    }

    fn events(&mut self, now: Instant) {
        for at in 0.. {
            let Some(handle) = self.driver.touched(at) else {
                break;
            };
            while let Some(event) = self.driver.poll(handle) {
                self.event(now, handle, event);
            }
        }
    }

    /// Gives datagrams that do not arrive directly to a member that is reached directly.
    fn go_around(&mut self, now: Instant) {
        let mut relay = None;
        for (handle, datagram) in self.driver.take_strays() {
            // Datagrams of one connection follow each other.
            if relay.is_none_or(|(of, _)| of != handle) {
                relay = Some((handle, self.relay(now, handle)));
            }
            if let Some((_, Some((peer, by, deaf)))) = relay {
                self.carry(
                    by,
                    &Carried {
                        comes: false,
                        deaf,
                        end: peer,
                        datagram,
                    },
                );
            }
        }
    }

    /// The peer of a connection, the member that shall carry for it, and whether nothing comes
    /// directly.
    fn relay(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
    ) -> Option<(MemberId, MemberId, bool)> {
        let (deaf, _) = self.driver.strays(handle, now);
        let peer = self.driver.way(handle)?.peer?;
        // Threads of one member are equally far away.
        let members = self
            .up
            .iter()
            .filter(|(id, _)| !id.is_client() && id.member() != peer.member());
        let straight: Vec<MemberId> = members
            .filter(|(_, l)| !self.driver.strays(l.handle, now).1)
            .map(|(id, _)| *id)
            .collect();
        let by = self.driver.way(handle)?.carrier(now, &straight)?;
        if self.driver.way(handle)?.is_noticeable(now)
            && let Some(to) = self.peers.get(&peer)
        {
            let text = format!(
                "nothing comes directly from the data port of {}: other members carry its \
                 datagrams",
                to.name
            );
            if self.notices.due(&text) {
                tracing::info!("{text}");
            }
        }
        Some((peer, by, deaf))
    }

    /// Puts a datagram on the lane of the member that takes it further, or loses it.
    fn carry(&mut self, by: MemberId, carried: &Carried) {
        let (Some(link), Some(bytes)) = (self.up.get_mut(&by), carried.encode()) else {
            return;
        };
        let handle = link.handle;
        let Some(connection) = self.driver.get(handle) else {
            return;
        };
        if link.carried.queued + bytes.len() <= CARRIED_BYTES_MAX {
            link.carried.push(connection, bytes);
            self.driver.touch(handle);
        }
    }

    /// Passes on datagrams of others, and takes those that came by a relay. True: there is more.
    fn read_carried(&mut self, now: Instant) -> bool {
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        for (peer, link) in self.up.iter_mut().filter(|(_, link)| link.carried.readable) {
            let (handle, io) = (link.handle, &mut link.carried);
            let Some(connection) = self.driver.get(handle) else {
                continue;
            };
            if io.read(connection).is_err() {
                ended.push((handle, Close::Done, "a lane ended"));
                continue;
            }
            self.driver.touch(handle);
            loop {
                match Carried::take(&mut io.input) {
                    Ok(Some(carried)) => taken.push((*peer, carried)),
                    Ok(None) => break,
                    Err(_) => {
                        tracing::warn!(
                            %peer,
                            "what it wants to be carried is nothing: its \
                             connection is closed"
                        );
                        ended.push((handle, Close::Malformed, "malformed datagrams to carry"));
                        break;
                    }
                }
            }
            self.partial = self.partial - io.counted + io.input.len();
            io.counted = io.input.len();
        }
        for (handle, close, reason) in ended {
            self.close(now, handle, close, reason);
        }
        let mut accepted = Vec::new();
        for (peer, carried) in taken {
            if carried.comes {
                let Some(address) = self.peers.get(&carried.end).map(|p| p.address) else {
                    continue;
                };
                let from = (carried.end, peer, carried.deaf);
                let answer =
                    self.driver
                        .came_around(now, from, (address, &carried.datagram), &mut accepted);
                if let Some(answer) = answer {
                    self.carry(
                        peer,
                        &Carried {
                            comes: false,
                            deaf: false,
                            end: carried.end,
                            datagram: answer.into(),
                        },
                    );
                }
            } else if !peer.is_client()
                && !carried.end.is_client()
                && self
                    .up
                    .get(&carried.end)
                    .is_some_and(|link| !self.driver.strays(link.handle, now).1)
            {
                self.carried += 1;
                self.carry(
                    carried.end,
                    &Carried {
                        comes: true,
                        end: peer,
                        ..carried
                    },
                );
            }
        }
        for (handle, address, place) in accepted {
            let opening = Opening::accepted(address, place);
            self.begin(handle, opening, now + ADMISSION_TIMEOUT);
        }
        self.up.values().any(|link| link.carried.readable)
    }

    /// Datagrams that this node passed on for others.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.carried
    }

    fn tell(&mut self, now: Instant, handler: &mut impl LinkHandler) {
        while let Some(news) = self.news.pop_front() {
            match news {
                News::Connected(peer, version) => handler.connected(peer, version),
                News::Disconnected(peer) => handler.disconnected(peer),
                News::Drained(peer) => handler.drained(peer),
                News::Datagram(peer, bytes) => {
                    if let Err(malformed) = handler.datagram(peer, &bytes)
                        && let Some(handle) = self.up.get(&peer).map(|link| link.handle)
                    {
                        tracing::warn!(%peer, "{malformed}: its connection is closed");
                        self.close(now, handle, Close::Malformed, malformed.0);
                    }
                }
            }
        }
    }

    /// Gives the handler the bytes of the lanes.
    fn read(&mut self, now: Instant, handler: &mut impl LinkHandler) -> bool {
        let (mut more, mut ended) = (false, Vec::new());
        for (peer, link) in &mut self.up {
            let handle = link.handle;
            for lane in [Lane::Calls, Lane::Bulk] {
                let io = link.lane(lane);
                if !io.readable && !io.again {
                    continue;
                }
                let Some(connection) = self.driver.get(handle) else {
                    continue;
                };
                if !io.again && io.read(connection).is_err() {
                    ended.push((handle, Close::Done, "a lane ended"));
                    break;
                }
                self.driver.touch(handle);
                match handler.received(*peer, lane, &mut io.input) {
                    Ok(again) => io.again = again,
                    Err(malformed) => {
                        tracing::warn!(%peer, "{malformed}: its connection is closed");
                        ended.push((handle, Close::Malformed, malformed.0));
                        break;
                    }
                }
                self.partial = self.partial - io.counted + io.input.len();
                io.counted = io.input.len();
                if self.partial > self.partial_max {
                    tracing::warn!(
                        %peer,
                        "more than {} bytes of unfinished frames: its \
                         connection is closed",
                        self.partial_max
                    );
                    ended.push((
                        handle,
                        Close::Overflow,
                        "too many bytes of unfinished frames",
                    ));
                    break;
                }
                more |= io.readable || io.again;
            }
        }
        for (handle, close, reason) in ended {
            self.close(now, handle, close, reason);
        }
        more
    }

    /// Handles the deadlines of dials and handshakes.
    fn dues(&mut self, now: Instant) {
        self.due = None;
        let due: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, p)| matches!(p.dial, LinkDial::At(at) if at <= now))
            .map(|(id, p)| (*id, p.address))
            .collect();
        for (id, address) in due {
            let dialled = self.driver.dial(now, address);
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            match dialled {
                Ok(handle) => {
                    peer.dial = LinkDial::Done(handle);
                    self.lead(handle, id);
                    self.begin(
                        handle,
                        Opening::dialled(Some(id), address),
                        now + DIAL_TIMEOUT + hello::TIMEOUT,
                    );
                }
                Err(failure) => {
                    peer.dial = LinkDial::At(now + peer.backoff.next_wait());
                    peer.failure = Some(failure.clone());
                    self.failed("cannot connect to the data port of", address, &failure);
                }
            }
        }
        let seeds = if self.up.is_empty() {
            self.seeds.due(now)
        } else {
            Vec::new()
        };
        for address in seeds {
            match self.driver.dial(now, address) {
                Ok(handle) => {
                    self.seeds.dialled(address, handle);
                    self.begin(
                        handle,
                        Opening::dialled(None, address),
                        now + DIAL_TIMEOUT + hello::TIMEOUT,
                    );
                }
                Err(failure) => {
                    self.failed("cannot connect to the data port of", address, &failure);
                    self.seeds.failed(address, failure, now);
                }
            }
        }
        for at in 0..self.stages.len() {
            if matches!(&self.stages[at], Some(LinkStage::Opening(_, until)) if *until <= now) {
                self.fail(
                    now,
                    ConnectionHandle(at),
                    DialFailure::Unreachable("no node answers".into()),
                    Close::Hello,
                );
            }
        }
        let dials = self.peers.values().filter_map(|p| {
            if let LinkDial::At(at) = p.dial {
                Some(at)
            } else {
                None
            }
        });
        let ends = self.stages.iter().flatten().filter_map(|s| {
            if let LinkStage::Opening(_, until) = s {
                Some(*until)
            } else {
                None
            }
        });
        let seeds = if self.up.is_empty() {
            self.seeds.next()
        } else {
            None
        };
        self.due = dials.chain(ends).chain(seeds).min();
    }

    /// Notes the peer of a connection. Between members, it may take a relay.
    fn lead(&mut self, handle: ConnectionHandle, peer: MemberId) {
        if let Some(way) = self
            .driver
            .way(handle)
            .filter(|_| !self.me.is_client() && !peer.is_client())
        {
            way.peer = Some(peer);
        }
    }

    fn arm(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn begin(&mut self, handle: ConnectionHandle, opening: Opening, until: Instant) {
        if self.stages.len() <= handle.0 {
            self.stages.resize_with(handle.0 + 1, || None);
        }
        self.stages[handle.0] = Some(LinkStage::Opening(Box::new(opening), until));
        self.arm(until);
    }

    fn event(&mut self, now: Instant, handle: ConnectionHandle, event: Event) {
        let Some(stage) = self.stages.get_mut(handle.0).and_then(Option::as_mut) else {
            return;
        };
        let peer = match stage {
            LinkStage::Up(peer) => Some(*peer),
            LinkStage::Opening(..) => None,
        };
        let link = peer
            .and_then(|peer| self.up.get_mut(&peer))
            .filter(|l| l.handle == handle);
        match (event, link) {
            (Event::ConnectionLost { reason }, link) => {
                let lost = link.is_some();
                if lost {
                    self.gone(now, handle)
                } else {
                    self.fail(now, handle, reason.into(), Close::Done)
                }
            }
            (Event::Stream(StreamEvent::Readable { id }), Some(link)) => {
                if let Some(lane) = link.lane_of(id) {
                    lane.readable = true;
                }
            }
            (Event::Stream(StreamEvent::Writable { id }), Some(link)) => {
                let Some(connection) = self.driver.get(handle) else {
                    return;
                };
                if let Some(lane) = link.lane_of(id) {
                    lane.flush(connection);
                    self.driver.touch(handle);
                }
                if link.congested && link.calls.queued < CONGESTED_BYTES {
                    link.congested = false;
                    self.news.extend(peer.map(News::Drained));
                }
            }
            (Event::DatagramReceived, Some(_)) => {
                let (Some(peer), Some(connection)) = (peer, self.driver.get(handle)) else {
                    return;
                };
                let came = std::iter::from_fn(|| connection.datagrams().recv());
                self.news
                    .extend(came.map(|bytes| News::Datagram(peer, bytes)));
            }
            (Event::Stream(StreamEvent::Stopped { .. }), Some(_)) => {
                self.close(now, handle, Close::Done, "a lane ended")
            }
            (Event::Connected | Event::Stream(_), None) => self.advance(now, handle),
            _ => {}
        }
    }

    /// Continues an opening connection as far as it goes.
    fn advance(&mut self, now: Instant, handle: ConnectionHandle) {
        let (Some(slot), Some(connection)) =
            (self.stages.get_mut(handle.0), self.driver.get(handle))
        else {
            return;
        };
        let Some(LinkStage::Opening(mut opening, until)) =
            slot.take_if(|s| matches!(s, LinkStage::Opening(..)))
        else {
            return;
        };
        let ours = Hello::new(Purpose::Data, self.me, self.identity.name()).up_to(self.level_max);
        let (me, peers) = (self.me, &self.peers);
        let (clients, clients_max) = (self.up.range(MemberId::of_client(0)..), self.clients_max);
        let mut met = None;
        let result = opening.advance(
            connection,
            &self.identity,
            &ours,
            |theirs| {
                if theirs.id.is_client() {
                    let most = clients_max.ok_or(DialFailure::Stranger)?;
                    // A former connection of the same client makes room.
                    let others = clients.filter(|(id, _)| **id != theirs.id).count();
                    let full = || {
                        let others = counted(others, ("client", "clients"));
                        format!(
                            "this node has {others}, its limit (--clients-max): raise it, or use \
                             another node"
                        )
                    };
                    return if others < most {
                        Ok(())
                    } else {
                        Err(DialFailure::Hello(full()))
                    };
                }
                let known = peers
                    .get(&theirs.id)
                    .filter(|_| theirs.id < me)
                    .ok_or(DialFailure::Stranger)?;
                name_fits(&known.name, theirs)
            },
            |id, theirs| {
                met = Some(theirs.name.as_str().into());
                let Some(id) = id else { return Ok(()) };
                let known = peers.get(&id).ok_or(DialFailure::Stranger)?;
                name_fits(&known.name, theirs)
            },
        );
        if let (Ok(Some(OpenedLane { peer, .. })), Some(name)) = (&result, met)
            && opening.peer().is_none()
        {
            // A seed turned out to be this member.
            self.seeds.met(opening.address(), now);
            let dial = LinkDial::Done(handle);
            let backoff = Backoff::new(BACKOFF_LEAST, BACKOFF_MOST);
            self.peers.entry(*peer).or_insert(LinkedPeer {
                address: opening.address(),
                name,
                dial,
                backoff,
                failure: None,
            });
        }
        self.driver.touch(handle);
        match result {
            Ok(None) => self.stages[handle.0] = Some(LinkStage::Opening(opening, until)),
            Ok(Some(opened)) => self.enter(now, handle, opened),
            Err((failure, close)) => {
                self.stages[handle.0] = Some(LinkStage::Opening(opening, until));
                self.fail(now, handle, failure, close);
            }
        }
    }

    fn enter(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        OpenedLane {
            peer,
            evidence,
            version,
            lanes,
        }: OpenedLane,
    ) {
        self.stages[handle.0] = Some(LinkStage::Up(peer));
        // The authorities may have changed since the hello.
        if !self.identity.trusts(&evidence) {
            return self.close(now, handle, Close::Stranger, UNTRUSTED);
        }
        if !peer.is_client() && !self.peers.contains_key(&peer) {
            // The peers may have changed since the hello.
            return self.close(
                now,
                handle,
                Close::Stranger,
                "no longer a peer of this node",
            );
        }
        if let Some(former) = self.up.get(&peer).map(|l| l.handle) {
            self.close(
                now,
                former,
                Close::Replaced,
                "a newer connection took its place",
            );
        }
        tracing::debug!(%peer, "data connection up");
        if let Some(known) = self.peers.get_mut(&peer) {
            known.failure = None;
        }
        self.lead(handle, peer);
        let [calls, bulk, carried] = lanes.map(LaneIo::new);
        if self.shared
            && let Some(connection) = self.driver.get(handle)
        {
            calls.prioritize(connection, calls_priority(true));
        }
        let link = DataLink {
            handle,
            evidence,
            since: now,
            calls,
            bulk,
            carried,
            congested: false,
        };
        self.up.insert(peer, link);
        self.news.push_back(News::Connected(peer, version));
    }

    /// Closes a connection, and forgets it.
    fn close(&mut self, now: Instant, handle: ConnectionHandle, close: Close, reason: &str) {
        self.driver.close(
            now,
            handle,
            close.code(),
            Bytes::copy_from_slice(text(reason)),
        );
        self.gone(now, handle);
    }

    /// A connection did not open.
    fn fail(&mut self, now: Instant, handle: ConnectionHandle, failure: DialFailure, close: Close) {
        if let Some(Some(LinkStage::Opening(opening, _))) = self.stages.get(handle.0) {
            let what = if opening.is_dialled() {
                "cannot connect to the data port of"
            } else {
                "refused a data connection from"
            };
            let (address, seed) = (
                opening.address(),
                opening.is_dialled() && opening.peer().is_none(),
            );
            if let Some(peer) = opening.peer().and_then(|id| self.peers.get_mut(&id)) {
                peer.failure = Some(failure.clone());
            }
            self.failed(what, address, &failure);
            if seed {
                self.seeds.failed(address, failure.clone(), now);
                self.seeds.next().into_iter().for_each(|at| self.arm(at));
            }
        }
        self.close(now, handle, close, &failure.to_string());
    }

    /// A connection is gone. The end that dialled it dials again.
    fn gone(&mut self, now: Instant, handle: ConnectionHandle) {
        let Some(stage) = self.stages.get_mut(handle.0).and_then(Option::take) else {
            return;
        };
        let (peer, lived) = match stage {
            LinkStage::Opening(opening, _) => (opening.peer(), false),
            LinkStage::Up(peer) => {
                let Some(link) = self.up.remove(&peer) else {
                    return;
                };
                self.partial -= link.counted();
                tracing::debug!(%peer, "data connection gone");
                // Events that were not told yet cancel out.
                let told = |n: &News| matches!(n, News::Connected(of, _) if *of == peer);
                if let Some(at) = self.news.iter().position(told) {
                    self.news.remove(at);
                } else {
                    self.news.retain(|n| *n != News::Drained(peer));
                    self.news.push_back(News::Disconnected(peer));
                }
                (Some(peer), now.duration_since(link.since) > LIVED)
            }
        };
        if self.up.is_empty() {
            self.seeds.next().into_iter().for_each(|at| self.arm(at));
        }
        let Some(peer) = peer.and_then(|id| self.peers.get_mut(&id)) else {
            return;
        };
        if matches!(peer.dial, LinkDial::Done(dialled) if dialled == handle) {
            if lived {
                peer.backoff.reset();
            }
            let at = now + peer.backoff.next_wait();
            peer.dial = LinkDial::At(at);
            self.arm(at);
        }
    }

    fn failed(&mut self, what: &str, address: SocketAddr, failure: &DialFailure) {
        #[cfg(test)]
        self.failures.push(failure.clone());
        match failure {
            DialFailure::Stranger | DialFailure::Unreachable(_) => {
                tracing::debug!(%address, "{what} {address}: {failure}")
            }
            DialFailure::OtherSecret
            | DialFailure::OtherTime
            | DialFailure::Revoked
            | DialFailure::OtherProtocol
            | DialFailure::Hello(_)
            | DialFailure::Refused(_)
            | DialFailure::OutOfReach(_) => {
                let text = format!("{what} {}: {failure}", address.ip());
                if self.notices.due(&text) {
                    tracing::warn!("{text}");
                }
            }
        }
    }
}

/// Certificates from files belong to nodes. A node must not pass for the member that another node
/// is.
fn name_fits(name: &str, theirs: &Hello) -> Result<(), DialFailure> {
    if *name == *theirs.name {
        return Ok(());
    }
    Err(DialFailure::Hello(format!(
        "it says that it is member {}, which is called {name:?}, not {:?}",
        theirs.id, theirs.name
    )))
}

#[cfg(test)]
mod tests;
