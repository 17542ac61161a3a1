//! The control network: agreement, joins, gossip.
//!
//! A node that has something to send dials. So two nodes may have two connections: messages go over
//! the newest one, and both are read. Pings, pongs and gossip go as datagrams (on the stream if
//! they are too large). All other messages go as frames on one unidirectional stream for each
//! direction:
//!
//! ```text
//!   frame = length u32 (little endian), envelope        datagram = envelope
//! ```
//!
//! In frames, the kinds and fields of an envelope have numbers. In datagrams they have none.
//!
//! Nothing here waits. A message that cannot be sent now is dropped and counted, and the machines
//! send it again.

use super::backoff::Backoff;
use super::endpoint::{
    ADMISSION_TIMEOUT, Admission, Close, DialFailure, Endpoint, Purpose, UNTRUSTED,
};
use super::envelope::{Envelope, FRAME_BYTES_MAX};
use super::hello::{self, Hello, Stay};
use super::identity::{Evidence, Identity};
use super::path::PathReading;
use super::starts::{DirectoryStart, DirectoryStarts};
use super::traffic::Traffic;
use crate::address::AddressFamilies;
use crate::hooks::Hooks;
use bytes::BytesMut;
use doyen_gossip::agreement::Peer;
use doyen_placement::codec::CodecError;
use doyen_placement::level::LEVELS;
use doyen_placement::{MemberId, VoteKey};
use quinn::{Connection, RecvStream};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

/// Limit of connections. Further ones are refused.
pub const CONNECTIONS_MAX: usize = 1024;
/// Limit of bytes that wait for one connection. Further ones are dropped.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Gossip is dropped if this much waits already.
const QUEUED_BYTES_BEFORE_GOSSIP: usize = 64 << 10;
/// Limit of frames of all peers, being read or waiting to be handled, together.
const RECEIVED_BYTES_MAX: usize = 64 << 20;
/// Deadline of a frame, which holds part of that budget. A late frame ends its connection.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);
const EVENTS_MAX: usize = 256;
/// Limit of lookups behind seeds that are under way.
const SCOUTS_MAX: usize = 16;
/// How long a connection lives on which the dialler only asks which node answers.
const PASSING_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of addresses that are being dialled, or were lately.
const DIALS_MAX: usize = 512;
/// Limit of messages that wait for one dial.
const PENDING_MAX: usize = 32;
const BACKOFF_LEAST: Duration = Duration::from_millis(50);
const BACKOFF_MOST: Duration = Duration::from_secs(1);
/// How often the dates of the files with secrets or certificates are looked at.
const IDENTITY_LOOK: Duration = Duration::from_secs(2);
/// A failure counts for this long: an address that matters is dialled again within [`BACKOFF_MOST`]
/// and the duration of a dial.
const FAILED_LATELY: Duration = Duration::from_secs(10);
/// A process that seems to be gone is disconnected if it was silent for this long.
const SILENT: Duration = Duration::from_millis(300);

/// An event of the control network.
#[derive(Debug)]
pub enum PeerEvent {
    /// A message of a process that has said its hello.
    Received {
        /// The sender.
        from: MemberId,
        /// The message.
        envelope: Envelope,
        /// Its share of the budget, given back when this is dropped.
        budget: Option<OwnedSemaphorePermit>,
    },
    /// A process said hello. This comes before its other events.
    Met {
        /// The member in whose name it speaks.
        id: MemberId,
        /// The process.
        process: MemberId,
        /// The highest level that it speaks.
        level: u16,
        /// The key of its votes, if it showed that it has the private part.
        key: Option<VoteKey>,
        /// How often processes began with its directory.
        start: Option<u64>,
    },
    /// A dialled address answered.
    Identified {
        /// The address.
        address: SocketAddr,
        /// The process at the address.
        id: MemberId,
    },
    /// This process was found behind a seed.
    Scouted {
        /// The process.
        id: MemberId,
        /// The address at which others reach it, according to its hello.
        address: SocketAddr,
    },
    /// A dialled address does not answer, or not as a member of this cluster.
    Unreached {
        /// The address.
        address: SocketAddr,
        /// Why.
        failure: DialFailure,
    },
    /// A process that is not one of us dialled us.
    TurnedAway {
        /// Its address.
        address: SocketAddr,
        /// Why.
        failure: DialFailure,
    },
}

/// The control network of a node.
#[derive(Debug)]
pub struct ControlPeers {
    endpoint: Endpoint,
    identity: Arc<Identity>,
    me: Cell<OwnName>,
    starts: RefCell<DirectoryStarts>,
    /// The highest level that this process speaks.
    level_max: u16,
    /// Where others reach this process.
    advertised: SocketAddr,
    /// Lookups behind seeds that are under way.
    scouts: Cell<usize>,
    /// Addresses and names of members, by the table in force.
    members: RefCell<BTreeMap<MemberId, (SocketAddr, String)>>,
    /// At most two for each peer, the newest last.
    links: RefCell<BTreeMap<MemberId, Vec<Rc<PeerLink>>>>,
    /// The connection that dialling an address has led to, while it lasts.
    found: RefCell<BTreeMap<SocketAddr, Rc<PeerLink>>>,
    /// Addresses that turned out to be our own.
    own: RefCell<BTreeSet<SocketAddr>>,
    dials: RefCell<BTreeMap<SocketAddr, PeerDial>>,
    /// Datagrams have their own queue: a table on its way must not delay a ping.
    datagrams: mpsc::Sender<PeerEvent>,
    events: mpsc::Sender<PeerEvent>,
    budget: Arc<Semaphore>,
    traffic: Arc<Traffic>,
    tasks: RefCell<JoinSet<()>>,
}

/// Where the events of a [`ControlPeers`] come out.
#[derive(Debug)]
pub struct PeerEvents {
    datagrams: mpsc::Receiver<PeerEvent>,
    events: mpsc::Receiver<PeerEvent>,
}

impl PeerEvents {
    /// The next event, datagrams first. Cancel safe.
    pub async fn next(&mut self) -> Option<PeerEvent> {
        tokio::select! {
            biased;
            Some(event) = self.datagrams.recv() => Some(event),
            event = self.events.recv() => event,
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<PeerEvent> {
        self.datagrams
            .try_recv()
            .or_else(|_| self.events.try_recv())
            .ok()
    }
}

/// Who this process is for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnName {
    /// The member in whose name it speaks.
    pub id: MemberId,
    /// The process, if it has a directory.
    pub start: Option<DirectoryStart>,
}

/// A process without a directory.
impl From<MemberId> for OwnName {
    fn from(id: MemberId) -> Self {
        Self { id, start: None }
    }
}

impl OwnName {
    fn process(self) -> MemberId {
        self.start.map_or(self.id, |start| start.process)
    }
}

#[derive(Debug)]
struct PeerLink {
    id: MemberId,
    process: MemberId,
    /// Why it is trusted.
    evidence: Evidence,
    /// Its program is newer than this one.
    newer: bool,
    /// It was logged that it sends messages that this program does not know.
    told_unknown: Cell<bool>,
    dialled: bool,
    connection: Connection,
    outgoing: RefCell<BytesMut>,
    in_flight: Cell<usize>,
    wake: Notify,
    heard: Cell<Instant>,
}

#[derive(Debug)]
struct PeerDial {
    under_way: bool,
    not_before: Instant,
    backoff: Backoff,
    /// When and why the last attempt failed.
    failed: Option<(Instant, DialFailure)>,
    /// The message, and the process that it is meant for, if that matters.
    pending: Vec<(Option<MemberId>, Envelope)>,
}

impl ControlPeers {
    /// Starts over a bound socket, which others reach at the address `advertised`. This process
    /// speaks levels up to this one. Call it within the control thread's `LocalSet`.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn start(
        socket: UdpSocket,
        advertised: SocketAddr,
        identity: Arc<Identity>,
        (me, level_max): (OwnName, u16),
        traffic: Arc<Traffic>,
        hooks: Hooks,
    ) -> io::Result<(Rc<Self>, PeerEvents)> {
        let (datagrams, datagrams_out) = mpsc::channel(EVENTS_MAX);
        let (events, events_out) = mpsc::channel(EVENTS_MAX);
        let peers = Rc::new(Self {
            endpoint: Endpoint::new(socket, identity.clone(), hooks)?,
            identity,
            me: Cell::new(me),
            starts: RefCell::default(),
            level_max,
            advertised,
            scouts: Cell::new(0),
            members: RefCell::default(),
            links: RefCell::default(),
            found: RefCell::default(),
            own: RefCell::default(),
            dials: RefCell::default(),
            datagrams,
            events,
            budget: Arc::new(Semaphore::new(RECEIVED_BYTES_MAX)),
            traffic,
            tasks: RefCell::default(),
        });
        peers.spawn(peers.clone().accept());
        peers.spawn(peers.clone().keep_identity());
        Ok((
            peers,
            PeerEvents {
                datagrams: datagrams_out,
                events: events_out,
            },
        ))
    }

    /// The bound address.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// The families of addresses that its socket serves.
    #[must_use]
    pub(crate) fn reach(&self) -> AddressFamilies {
        self.endpoint.reach()
    }

    /// Sets the addresses and names of members. A former member that is silent is disconnected.
    pub fn set_members(&self, members: BTreeMap<MemberId, (SocketAddr, String)>) {
        let former = std::mem::replace(&mut *self.members.borrow_mut(), members);
        let members = self.members.borrow();
        for id in former.keys().filter(|id| !members.contains_key(id)) {
            self.disconnect_silent(*id);
        }
    }

    /// Ends the connections of a process that probably died. Then its successor at the address is
    /// dialled at once, not after the idle timeout. A process that has just sent something stays
    /// connected: refusals can be forged.
    pub fn disconnect_silent(&self, id: MemberId) {
        for link in self.links.borrow().get(&id).into_iter().flatten() {
            if link.heard.get().elapsed() >= SILENT {
                Close::Done.on(&link.connection, "it is silent and seems to be gone");
            }
        }
    }

    /// The address of this member, by the table in force.
    #[must_use]
    pub fn address_of(&self, id: MemberId) -> Option<SocketAddr> {
        self.members.borrow().get(&id).map(|(address, _)| *address)
    }

    /// This process has another name, or became another member: every connection begins again.
    pub fn reset(&self, me: OwnName) {
        self.me.set(me);
        for link in self.links.borrow().values().flatten() {
            Close::Done.on(&link.connection, "this process is another member now");
        }
        self.found.borrow_mut().clear();
        self.own.borrow_mut().clear();
        self.members.borrow_mut().clear();
        // A dial under way notices by itself that its hello was of another process.
        self.dials.borrow_mut().retain(|_, dial| dial.under_way);
    }

    /// Sends a message, and dials first if needed. Never waits.
    pub fn send(self: &Rc<Self>, to: Peer, envelope: Envelope) {
        if let Some(link) = self.link_to(to) {
            return self.push(&link, &envelope);
        }
        let (address, meant_for) = match to {
            Peer::Member(id) => (self.address_of(id), Some(id)),
            Peer::Address(address) => (Some(address), None),
        };
        // A ping that waits for a dial would be late.
        let pending = (!envelope.is_datagram()).then_some((meant_for, envelope));
        match address {
            Some(address) => self.dial(address, pending),
            None => self.count_dropped(),
        }
    }

    /// Whether a message to this member needs no dial.
    #[must_use]
    pub fn is_linked(&self, id: MemberId) -> bool {
        self.link_to(Peer::Member(id)).is_some()
    }

    /// What the open connections have measured, by peer.
    pub(crate) fn paths(&self) -> BTreeMap<MemberId, PathReading> {
        let links = self.links.borrow();
        let measured = |of_peer: &Vec<Rc<PeerLink>>| {
            let open = of_peer.iter().map(|link| &link.connection);
            let open = open.filter(|connection| connection.close_reason().is_none());
            let paths = open.map(|connection| PathReading::of(&connection.stats()));
            paths.fold(PathReading::default(), PathReading::with)
        };
        let all = links.iter().map(|(id, of_peer)| (*id, measured(of_peer)));
        all.filter(|(_, path)| path.links > 0).collect()
    }

    /// The addresses that could not be dialled within the last seconds, and why.
    pub(crate) fn failures(&self) -> BTreeMap<SocketAddr, String> {
        let dials = self.dials.borrow();
        let lately = |dial: &PeerDial| {
            let (at, failure) = dial.failed.as_ref()?;
            (at.elapsed() < FAILED_LATELY).then(|| failure.to_string())
        };
        let failed = dials.iter();
        failed
            .filter_map(|(address, dial)| Some((*address, lately(dial)?)))
            .collect()
    }

    fn link_to(&self, to: Peer) -> Option<Rc<PeerLink>> {
        let usable = |link: &Rc<PeerLink>| link.connection.close_reason().is_none();
        match to {
            Peer::Member(id) => self
                .links
                .borrow()
                .get(&id)?
                .iter()
                .rev()
                .find(|link| usable(link))
                .cloned(),
            Peer::Address(address) => self
                .found
                .borrow()
                .get(&address)
                .filter(|link| usable(link))
                .cloned(),
        }
    }

    fn push(&self, link: &PeerLink, envelope: &Envelope) {
        if let Some(bytes) = envelope.encode_datagram()
            && let Some(most) = link.connection.max_datagram_size()
            && bytes.len() <= most
        {
            self.traffic.sent(envelope, bytes.len());
            // Fails only if the connection is closing. Then the datagram is lost, as datagrams may
            // be.
            let _ = link.connection.send_datagram(bytes.into());
            return;
        }
        let bytes = match envelope.encode() {
            Ok(bytes) => bytes,
            Err(e) => return tracing::error!("a message cannot be sent: {e}"),
        };
        self.traffic.sent(envelope, bytes.len());
        let mut outgoing = link.outgoing.borrow_mut();
        let queued = outgoing.len() + link.in_flight.get();
        let limit = match envelope {
            Envelope::Gossip(_) => QUEUED_BYTES_BEFORE_GOSSIP,
            _ => QUEUED_BYTES_MAX,
        };
        if queued + bytes.len() > limit {
            return self.count_dropped();
        }
        // FRAME_BYTES_MAX fits.
        outgoing.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        outgoing.extend_from_slice(&bytes);
        link.wake.notify_one();
    }

    fn count_dropped(&self) {
        self.traffic.dropped();
    }

    fn dial(self: &Rc<Self>, address: SocketAddr, pending: Option<(Option<MemberId>, Envelope)>) {
        if self.own.borrow().contains(&address) {
            return;
        }
        let now = Instant::now();
        let mut dials = self.dials.borrow_mut();
        if dials.len() >= DIALS_MAX && !dials.contains_key(&address) {
            dials.retain(|_, dial| dial.under_way || dial.not_before > now);
            if dials.len() >= DIALS_MAX {
                return self.count_dropped();
            }
        }
        let dial = dials.entry(address).or_insert_with(|| PeerDial {
            under_way: false,
            not_before: now,
            backoff: Backoff::new(BACKOFF_LEAST, BACKOFF_MOST),
            failed: None,
            pending: Vec::new(),
        });
        if !dial.under_way && now < dial.not_before {
            return self.count_dropped();
        }
        match pending {
            Some(message) if dial.pending.len() < PENDING_MAX => dial.pending.push(message),
            Some(_) => self.count_dropped(),
            None => {}
        }
        if !dial.under_way {
            dial.under_way = true;
            self.spawn(self.clone().carry_out(address));
        }
    }

    async fn carry_out(self: Rc<Self>, address: SocketAddr) {
        let me = self.me.get();
        let dialled = async {
            let connection = self.endpoint.dial(address).await?;
            let (theirs, evidence) =
                hello::greet(&connection, &self.identity, &self.hello(me)).await?;
            if me != self.me.get() {
                Close::Done.on(&connection, "this process is another member now");
                return Err(DialFailure::Unreachable(
                    "this process became another member".into(),
                ));
            }
            if let Err(failure) = self.fits(&theirs, me) {
                Close::Hello.on(&connection, &failure.to_string());
                return Err(failure);
            }
            Ok((connection, theirs, evidence))
        };
        let dialled = dialled.await;
        let pending = match self.dials.borrow_mut().get_mut(&address) {
            Some(dial) => {
                dial.under_way = false;
                match &dialled {
                    Ok(_) => {
                        dial.backoff.reset();
                        dial.failed = None;
                    }
                    Err(failure) => dial.failed = Some((Instant::now(), failure.clone())),
                }
                // Also after a success: a connection that ends at once must not be dialled in a
                // loop.
                dial.not_before = Instant::now() + dial.backoff.next_wait();
                std::mem::take(&mut dial.pending)
            }
            None => Vec::new(),
        };
        match dialled {
            Ok((connection, theirs, _)) if theirs.process() == me.process() => {
                let id = me.id;
                self.own.borrow_mut().insert(address);
                Close::Done.on(&connection, "this is myself");
                self.report(PeerEvent::Identified { address, id }).await;
            }
            Ok((connection, theirs, evidence)) => {
                let id = theirs.id;
                let link = self.attach(&theirs, evidence, connection, true);
                self.found.borrow_mut().insert(address, link.clone());
                for (meant_for, envelope) in pending {
                    // A message for a process is not for its successor at the address.
                    if meant_for.is_none_or(|meant_for| meant_for == id) {
                        self.push(&link, &envelope);
                    }
                }
                self.met(&theirs).await;
                self.report(PeerEvent::Identified { address, id }).await;
                self.run(link.clone()).await;
                self.found
                    .borrow_mut()
                    .retain(|_, other| !Rc::ptr_eq(other, &link));
            }
            Err(failure) => self.report(PeerEvent::Unreached { address, failure }).await,
        }
    }

    /// Asks once which process is at an address. It uses a new port: a balancer leads each port to
    /// another node. The result is an event, and the connection is not kept.
    pub fn scout(self: &Rc<Self>, address: SocketAddr) {
        let under_way = self.scouts.get();
        if under_way >= SCOUTS_MAX {
            return self.count_dropped();
        }
        self.scouts.set(under_way + 1);
        let this = self.clone();
        self.spawn(async move {
            match this.look_behind(address).await {
                Ok(Some((id, address))) => this.report(PeerEvent::Scouted { id, address }).await,
                Ok(None) => {}
                // The address is dialled from the control port as well, which reports failures.
                Err(failure) => tracing::debug!("cannot look behind {address}: {failure}"),
            }
            this.scouts.set(this.scouts.get() - 1);
        });
    }

    /// The process at an address, unless it is this one.
    async fn look_behind(
        &self,
        address: SocketAddr,
    ) -> Result<Option<(MemberId, SocketAddr)>, DialFailure> {
        let me = self.me.get();
        let theirs = greet_once(address, &self.identity, &self.hello(me).passing()).await?;
        Ok(theirs
            .control
            .filter(|_| theirs.process() != me.process() && me == self.me.get())
            .map(|control| (theirs.id, control)))
    }

    /// Reads files with secrets or certificates again when they change, and renews certificates.
    /// Peers that nothing vouches for any more are disconnected. The data threads do the same with
    /// theirs.
    async fn keep_identity(self: Rc<Self>) {
        let mut generation = self.identity.generation();
        let mut looks = tokio::time::interval(IDENTITY_LOOK);
        loop {
            looks.tick().await;
            self.identity.clone().keep().await;
            if self.identity.generation() != generation {
                generation = self.identity.generation();
                self.close_untrusted();
            }
        }
    }

    fn close_untrusted(&self) {
        let links = self.links.borrow();
        let untrusted = |link: &&Rc<PeerLink>| !self.identity.trusts(&link.evidence);
        for link in links.values().flatten().filter(untrusted) {
            tracing::info!(
                peer = %link.id,
                "its secret or certificate is no longer trusted: disconnected"
            );
            Close::Stranger.on(&link.connection, UNTRUSTED);
        }
    }

    async fn accept(self: Rc<Self>) {
        while let Some((address, admission)) = self.endpoint.accept().await {
            if self.links.borrow().values().map(Vec::len).sum::<usize>() >= CONNECTIONS_MAX {
                // Dropping a handshake refuses it.
                drop(admission);
                self.count_dropped();
                continue;
            }
            self.spawn(self.clone().admit(address, admission));
        }
    }

    async fn admit(self: Rc<Self>, address: SocketAddr, mut admission: Admission) {
        let me = self.me.get();
        let handshake = async {
            let connection = admission.connection().await?;
            let ours = self.hello(me);
            let (theirs, evidence) = hello::answer(&connection, &self.identity, &ours, |theirs| {
                self.fits(theirs, me)
            })
            .await?;
            Ok((connection, theirs, evidence))
        };
        let result = tokio::time::timeout(ADMISSION_TIMEOUT, handshake).await;
        drop(admission);
        match result {
            Ok(Ok((connection, theirs, _))) if theirs.stay == Stay::Passing => {
                // The dialler closes it once it has read the hello.
                let _ = tokio::time::timeout(PASSING_TIMEOUT, connection.closed()).await;
                Close::Done.on(&connection, "the dialler only asked which node answers");
            }
            Ok(Ok((connection, theirs, _))) if theirs.process() == me.process() => {
                // The other end of our own dial, which closes it.
                connection.closed().await;
            }
            Ok(Ok((connection, theirs, evidence))) if me == self.me.get() => {
                let link = self.attach(&theirs, evidence, connection, false);
                self.met(&theirs).await;
                self.run(link).await;
            }
            Ok(Ok((connection, ..))) => {
                Close::Done.on(&connection, "this process is another member now")
            }
            Ok(Err(failure)) => {
                self.report(PeerEvent::TurnedAway { address, failure })
                    .await
            }
            Err(_) => {
                tracing::debug!(%address, "a control connection did not finish its handshake")
            }
        }
    }

    async fn met(&self, theirs: &Hello) {
        // The signature was checked with the hello.
        let met = PeerEvent::Met {
            id: theirs.id,
            process: theirs.process(),
            level: theirs.versions.1,
            key: theirs.proof.map(|proof| proof.key),
            start: theirs.start.map(|start| start.count),
        };
        self.report(met).await;
    }

    /// The name of a member must be the one in the table, and a directory has one process.
    fn fits(&self, theirs: &Hello, me: OwnName) -> Result<(), DialFailure> {
        let is_member = theirs.process() == theirs.id;
        match self.members.borrow().get(&theirs.id) {
            // A process that takes the place of a member may have another name.
            Some((_, name)) if *name != theirs.name && is_member => {
                return Err(DialFailure::Hello(format!(
                    "it says that it is member {}, which is called {name:?}, not {:?}",
                    theirs.id, theirs.name
                )));
            }
            _ => {}
        }
        if theirs.process() == me.process() {
            return Ok(());
        }
        if theirs.id == me.id {
            return Err(doubled(&theirs.name));
        }
        self.is_latest(theirs)
    }

    /// A process that began with a directory is refused once another one began with it later, or
    /// with a copy of it.
    fn is_latest(&self, theirs: &Hello) -> Result<(), DialFailure> {
        let (Some(start), Some(proof)) = (theirs.start, &theirs.proof) else {
            return Ok(());
        };
        if self.starts.borrow_mut().meet(proof.key, start) {
            return Ok(());
        }
        Err(doubled(&theirs.name))
    }

    fn hello(&self, me: OwnName) -> Hello {
        Hello {
            start: me.start,
            ..Hello::new(Purpose::Control, me.id, self.identity.name())
                .up_to(self.level_max)
                .at(self.advertised)
        }
    }

    /// A newer connection replaces an older one of the same direction.
    fn attach(
        &self,
        theirs: &Hello,
        evidence: Evidence,
        connection: Connection,
        dialled: bool,
    ) -> Rc<PeerLink> {
        let id = theirs.id;
        // The authorities may have changed since the hello. Its tasks end with the connection.
        if !self.identity.trusts(&evidence) {
            Close::Stranger.on(&connection, UNTRUSTED);
        }
        let process = theirs.process();
        let link = Rc::new(PeerLink {
            id,
            process,
            evidence,
            newer: theirs.versions.1 > LEVELS.1,
            told_unknown: Cell::new(false),
            dialled,
            connection,
            outgoing: RefCell::default(),
            in_flight: Cell::new(0),
            wake: Notify::new(),
            heard: Cell::new(Instant::now()),
        });
        let mut links = self.links.borrow_mut();
        let of_peer = links.entry(id).or_default();
        of_peer.retain(|other| {
            // A former process of its directory is gone, or must not go on.
            let keep = other.dialled != dialled && other.process == process;
            if !keep {
                Close::Replaced.on(&other.connection, "a newer connection took its place");
            }
            keep
        });
        of_peer.push(link.clone());
        link
    }

    /// Runs a connection until it ends.
    async fn run(self: &Rc<Self>, link: Rc<PeerLink>) {
        let mut tasks = JoinSet::new();
        tasks.spawn_local(self.clone().read_frames(link.clone()));
        tasks.spawn_local(self.clone().read_datagrams(link.clone()));
        tasks.spawn_local(write_frames(link.clone()));
        tasks.join_next().await;
        Close::Done.on(&link.connection, "its stream ended");
        tasks.shutdown().await;
        let mut links = self.links.borrow_mut();
        if let Some(of_peer) = links.get_mut(&link.id) {
            of_peer.retain(|other| !Rc::ptr_eq(other, &link));
            if of_peer.is_empty() {
                links.remove(&link.id);
            }
        }
    }

    async fn read_frames(self: Rc<Self>, link: Rc<PeerLink>) {
        let Ok(mut stream) = link.connection.accept_uni().await else {
            return;
        };
        loop {
            match self.read_frame(&link, &mut stream).await {
                Ok(Some((envelope, budget))) => {
                    link.heard.set(Instant::now());
                    self.report(PeerEvent::Received {
                        from: link.id,
                        envelope,
                        budget: Some(budget),
                    })
                    .await;
                }
                Ok(None) => return,
                Err(why) => {
                    tracing::warn!(
                        peer = %link.id,
                        "malformed control frame: {why}: its \
                         connection is closed"
                    );
                    return Close::Malformed.on(&link.connection, &why);
                }
            }
        }
    }

    async fn read_frame(
        &self,
        link: &PeerLink,
        stream: &mut RecvStream,
    ) -> Result<Option<(Envelope, OwnedSemaphorePermit)>, String> {
        loop {
            let mut head = [0; 4];
            if stream.read_exact(&mut head).await.is_err() {
                return Ok(None);
            }
            let length = u32::from_le_bytes(head);
            if length as usize > FRAME_BYTES_MAX {
                return Err(format!(
                    "a frame of {length} bytes; {FRAME_BYTES_MAX} are allowed"
                ));
            }
            // The semaphore is never closed.
            let Ok(budget) = self.budget.clone().acquire_many_owned(length).await else {
                return Ok(None);
            };
            let body =
                tokio::time::timeout(FRAME_TIMEOUT, read_body(stream, length as usize)).await;
            let body = match body {
                Ok(Some(body)) => body,
                Ok(None) => return Ok(None),
                Err(_) => return Err("a frame that does not end".into()),
            };
            match Envelope::decode(&body) {
                Ok(envelope) => return Ok(Some((envelope, budget))),
                // A newer program sends nothing above the level of the cluster. If it does so by
                // mistake, its other messages still count.
                Err(e @ CodecError::UnknownKind(_)) if link.newer => {
                    self.count_dropped();
                    if !link.told_unknown.replace(true) {
                        tracing::warn!(
                            peer = %link.id,
                            "a message was dropped: {e}; update this \
                             program"
                        );
                    }
                }
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    async fn read_datagrams(self: Rc<Self>, link: Rc<PeerLink>) {
        while let Ok(bytes) = link.connection.read_datagram().await {
            match Envelope::decode_datagram(&bytes) {
                Ok(envelope) => {
                    link.heard.set(Instant::now());
                    let event = PeerEvent::Received {
                        from: link.id,
                        envelope,
                        budget: None,
                    };
                    if self.datagrams.try_send(event).is_err() {
                        self.count_dropped();
                    }
                }
                Err(CodecError::UnknownKind(_)) if link.newer => self.count_dropped(),
                Err(_) => {
                    tracing::warn!(
                        peer = %link.id,
                        "malformed control datagram: its connection \
                         is closed"
                    );
                    return Close::Malformed.on(&link.connection, "malformed datagram");
                }
            }
        }
    }

    async fn report(&self, event: PeerEvent) {
        // Fails only when the control thread is ending.
        let _ = self.events.send(event).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    /// Closes every connection and ends every task.
    pub async fn close(&self) {
        self.endpoint.close().await;
        let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.shutdown().await;
    }
}

/// Two processes have the same directory, or copies of it.
fn doubled(name: &str) -> DialFailure {
    DialFailure::Hello(format!(
        "the directory of {name:?} (--dir) is a copy, or a former state, of a directory that another \
         process has: end one of the two, and start it with an empty directory"
    ))
}

/// The hello of the process at an address, from a new port. The connection is not kept.
///
/// # Errors
/// The process does not answer, or does not belong to this cluster.
pub(crate) async fn greet_once(
    address: SocketAddr,
    identity: &Arc<Identity>,
    ours: &Hello,
) -> Result<Hello, DialFailure> {
    let endpoint = Endpoint::outgoing(address, identity.clone())
        .map_err(|e| DialFailure::Unreachable(e.to_string()))?;
    let greeted = async {
        let connection = endpoint.dial(address).await?;
        hello::greet(&connection, identity, ours).await
    };
    let greeted = greeted.await;
    endpoint.close().await;
    greeted.map(|(theirs, _)| theirs)
}

/// Grows with the bytes that arrive, not with the announced length.
async fn read_body(stream: &mut RecvStream, length: usize) -> Option<BytesMut> {
    let mut body = BytesMut::new();
    while body.len() < length {
        let chunk = stream.read_chunk(length - body.len(), true).await.ok()??;
        body.extend_from_slice(&chunk.bytes);
    }
    Some(body)
}

async fn write_frames(link: Rc<PeerLink>) {
    // Opened with the first message: a stream without bytes does not reach the other side.
    let mut stream = None;
    loop {
        let bytes = std::mem::take(&mut *link.outgoing.borrow_mut()).freeze();
        if bytes.is_empty() {
            tokio::select! {
                () = link.wake.notified() => continue,
                _ = link.connection.closed() => return,
            }
        }
        if stream.is_none() {
            stream = link.connection.open_uni().await.ok();
        }
        let Some(stream) = stream.as_mut() else {
            return;
        };
        link.in_flight.set(bytes.len());
        if stream.write_chunk(bytes).await.is_err() {
            return;
        }
        link.in_flight.set(0);
    }
}

#[cfg(test)]
mod tests;
