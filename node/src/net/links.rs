//! The data network: one connection to each peer, two ordered lanes of bytes on it.
//!
//! ```text
//!   send(peer, lane, bytes) ─> buffer of the lane ─> flush task, woken once a pass: one write of all that is there
//!   handler.received(peer, lane, all that was read) <─ read task of the lane
//! ```
//!
//! The member with the lower id dials, and dials again with backoff; the other accepts only whom `set_peers` named. The
//! lanes are long-lived bidirectional streams, each opened with one byte that names it; bulk has the lower priority.
//! Everything runs on one thread: its `LocalSet` owns the tasks, and the handler is only ever called from those, never
//! from within a method of [`Links`].

use super::backoff::Backoff;
use super::endpoint::{ADMISSION_TIMEOUT, Admission, Close, Endpoint, Failure, Purpose};
use super::hello::{self, Hello};
use super::identity::Identity;
use super::notice::Notices;
use crate::shard::{Lane, Malformed};
use bytes::BytesMut;
use doyen_placement::MemberId;
use quinn::{Connection, RecvStream, SendStream};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};

/// Bytes of calls that wait for one peer from which on it is congested: the handler shall give it only what cannot
/// wait, until `drained`.
pub const CONGESTED_BYTES: usize = 8 << 20;
/// Bytes that may wait for one peer, both lanes together; above that the connection is closed. Nobody who heeds
/// `CONGESTED_BYTES` comes near: it is for a peer that asks and never reads.
pub const QUEUED_BYTES_MAX: usize = 256 << 20;
/// Partial frames of all peers together; whose frame goes beyond that is disconnected.
pub const PARTIAL_BYTES_MAX: usize = 256 << 20;
/// Read at once at most, before others have a turn.
const READ_BYTES: usize = 64 << 10;
/// How long the dialler may take to open its lanes.
const LANES_TIMEOUT: Duration = Duration::from_secs(2);
const BACKOFF_LEAST: Duration = Duration::from_millis(20);
const BACKOFF_MOST: Duration = Duration::from_millis(500);
/// A link that lived this long counts as a success.
const LIVED: Duration = Duration::from_secs(5);

/// Whom the data network tells what happens on it.
pub trait LinkHandler {
    /// A connection to this peer is up; both lanes begin anew. For each peer, this and `disconnected` alternate.
    fn connected(&self, peer: MemberId);
    /// It is gone, with all that was in flight.
    fn disconnected(&self, peer: MemberId);
    /// All that a read gave, after what an earlier call left over. Whole frames are consumed from the front. True: call
    /// it again with what is left, once others had their turn.
    ///
    /// # Errors
    /// The bytes make no sense: the connection is closed.
    fn received(&self, peer: MemberId, lane: Lane, bytes: &mut BytesMut) -> Result<bool, Malformed>;
    /// A peer that was congested (`Links::send`) is so no more.
    fn drained(&self, peer: MemberId);
}

/// The data network of one data thread.
pub struct Links {
    endpoint: Endpoint,
    identity: Arc<Identity>,
    handler: Rc<dyn LinkHandler>,
    me: Cell<MemberId>,
    /// Whom we shall be connected with.
    peers: RefCell<BTreeMap<MemberId, Peer>>,
    /// Links of which the handler knows.
    up: RefCell<BTreeMap<MemberId, Rc<Link>>>,
    /// Bytes of partial frames.
    partial: Cell<usize>,
    tasks: RefCell<JoinSet<()>>,
    notices: Notices,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("me", &self.me).field("peers", &self.peers).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Peer {
    address: SocketAddr,
    /// What the table calls it, and its certificate must.
    name: Arc<str>,
    /// Told when this entry is void: the dialler ends.
    void: Rc<Notify>,
}

#[derive(Debug)]
struct Link {
    connection: Connection,
    calls: Outgoing,
    bulk: Outgoing,
    /// More wait on the lane of calls than it takes.
    congested: Cell<bool>,
    /// False once the handler shall hear nothing more of it.
    open: Cell<bool>,
}

#[derive(Debug, Default)]
struct Outgoing {
    buffer: RefCell<BytesMut>,
    /// Bytes in the buffer and in the hands of the flush task.
    queued: Cell<usize>,
    wake: Notify,
}

/// The lanes of a new connection.
struct Lanes {
    calls: (SendStream, RecvStream),
    bulk: (SendStream, RecvStream),
}

impl Link {
    fn lane(&self, lane: Lane) -> &Outgoing {
        match lane {
            Lane::Calls => &self.calls,
            Lane::Bulk => &self.bulk,
        }
    }
}

impl Links {
    /// Over a bound socket; call it within the data thread's `LocalSet`.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn start(socket: UdpSocket, identity: Arc<Identity>, me: MemberId, handler: Rc<dyn LinkHandler>) -> io::Result<Rc<Self>> {
        let links = Rc::new(Self {
            endpoint: Endpoint::new(socket, Purpose::Data, identity.clone())?,
            identity,
            handler,
            me: Cell::new(me),
            peers: RefCell::default(),
            up: RefCell::default(),
            partial: Cell::new(0),
            tasks: RefCell::default(),
            notices: Notices::default(),
        });
        links.spawn(links.clone().accept());
        Ok(links)
    }

    /// The bound address.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// This process is another member now: every connection is closed and nobody is a peer. The handler is not told:
    /// whoever calls this starts anew as well.
    pub fn reset(&self, me: MemberId) {
        for (_, link) in std::mem::take(&mut *self.up.borrow_mut()) {
            link.open.set(false);
            Close::Done.on(&link.connection, "this process is another member now");
        }
        for (_, peer) in std::mem::take(&mut *self.peers.borrow_mut()) {
            peer.void.notify_one();
        }
        self.me.set(me);
    }

    /// Keeps exactly these connected.
    pub fn set_peers(self: &Rc<Self>, peers: &[(MemberId, Arc<str>, SocketAddr)]) {
        let me = self.me.get();
        let wanted: BTreeMap<_, _> = peers.iter().filter(|(id, ..)| *id != me).map(|(id, name, address)| (*id, (name, *address))).collect();
        let mut present = self.peers.borrow_mut();
        present.retain(|id, peer| {
            let keep = wanted.get(id) == Some(&(&peer.name, peer.address));
            if !keep {
                peer.void.notify_one();
                if let Some(link) = self.up.borrow().get(id) {
                    Close::Done.on(&link.connection, "not a peer any more");
                }
            }
            keep
        });
        for (id, (name, address)) in wanted {
            present.entry(id).or_insert_with(|| {
                let peer = Peer { address, name: name.clone(), void: Rc::default() };
                if me < id {
                    self.spawn(self.clone().keep_connected(id, peer.clone()));
                }
                peer
            });
        }
    }

    /// Appends to the peer's lane; dropped where there is no connection. True: the peer is congested, and
    /// [`LinkHandler::drained`] says when it is so no more.
    pub fn send(&self, peer: MemberId, lane: Lane, bytes: BytesMut) -> bool {
        let up = self.up.borrow();
        let Some(link) = up.get(&peer).filter(|link| link.open.get()) else { return false };
        if link.calls.queued.get() + link.bulk.queued.get() + bytes.len() > QUEUED_BYTES_MAX {
            if link.connection.close_reason().is_none() {
                tracing::warn!(%peer, "more than {QUEUED_BYTES_MAX} bytes wait for a peer: its connection is closed");
            }
            Close::Overflow.on(&link.connection, "it takes too little of what it is sent");
            return false;
        }
        let lane = link.lane(lane);
        lane.queued.set(lane.queued.get() + bytes.len());
        if link.calls.queued.get() >= CONGESTED_BYTES {
            link.congested.set(true);
        }
        let mut buffer = lane.buffer.borrow_mut();
        if buffer.is_empty() {
            *buffer = bytes;
        } else {
            buffer.extend_from_slice(&bytes);
        }
        lane.wake.notify_one();
        link.congested.get()
    }

    /// Whether this peer is connected.
    #[must_use]
    pub fn is_connected(&self, peer: MemberId) -> bool {
        self.up.borrow().get(&peer).is_some_and(|link| link.open.get())
    }

    /// Closes every connection and ends every task. The handler hears nothing more.
    pub async fn close(&self) {
        self.reset(self.me.get());
        self.endpoint.close().await;
        let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.shutdown().await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    fn hello(&self, me: MemberId) -> Hello {
        Hello::new(Purpose::Data, me, self.identity.name())
    }

    async fn accept(self: Rc<Self>) {
        while let Some((address, admission)) = self.endpoint.accept().await {
            self.spawn(self.clone().admit(address, admission));
        }
    }

    async fn admit(self: Rc<Self>, address: SocketAddr, mut admission: Admission) {
        let me = self.me.get();
        let handshake = async {
            let connection = admission.connection().await?;
            let peer = hello::answer(&connection, &self.identity, &self.hello(me), |theirs| {
                let peers = self.peers.borrow();
                let known = peers.get(&theirs.id).filter(|_| theirs.id < me).ok_or(Failure::Stranger)?;
                name_fits(&known.name, theirs)
            })
            .await?;
            let lanes = tokio::time::timeout(LANES_TIMEOUT, accept_lanes(&connection))
                .await
                .unwrap_or_else(|_| Err(Failure::Hello("it opens no lanes".into())))?;
            Ok((connection, peer.id, lanes))
        };
        let result = tokio::time::timeout(ADMISSION_TIMEOUT, handshake).await;
        drop(admission);
        match result {
            Ok(Ok((connection, peer, lanes))) => self.run(me, peer, connection, lanes).await,
            Ok(Err(failure)) => self.failed("refused a data connection from", address, &failure),
            Err(_) => tracing::debug!(%address, "a data connection did not finish its handshake"),
        }
    }

    /// Dials this peer, and again whenever the connection ends, until its entry is void.
    async fn keep_connected(self: Rc<Self>, id: MemberId, peer: Peer) {
        let mut backoff = Backoff::new(BACKOFF_LEAST, BACKOFF_MOST);
        let me = self.me.get();
        loop {
            let dialled = tokio::select! {
                dialled = self.dial(me, id, &peer) => dialled,
                () = peer.void.notified() => return,
            };
            match dialled {
                Ok((connection, lanes)) => {
                    let began = Instant::now();
                    // Ends at once when the entry becomes void, for that closes the connection.
                    self.run(me, id, connection, lanes).await;
                    if began.elapsed() > LIVED {
                        backoff.reset();
                    }
                }
                Err(failure) => self.failed("cannot connect to the data port of", peer.address, &failure),
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = peer.void.notified() => return,
            }
        }
    }

    async fn dial(&self, me: MemberId, id: MemberId, peer: &Peer) -> Result<(Connection, Lanes), Failure> {
        let connection = self.endpoint.dial(peer.address).await?;
        let theirs = hello::greet(&connection, &self.identity, &self.hello(me)).await?;
        if theirs.id != id {
            Close::Stranger.on(&connection, "another process was expected here");
            return Err(Failure::Unreachable(format!("another process answers there ({}, {})", theirs.name, theirs.id)));
        }
        if let Err(failure) = name_fits(&peer.name, &theirs) {
            Close::Hello.on(&connection, &failure.to_string());
            return Err(failure);
        }
        let lanes = open_lanes(&connection).await?;
        Ok((connection, lanes))
    }

    /// Carries a link from its first byte to its last.
    async fn run(self: &Rc<Self>, me: MemberId, peer: MemberId, connection: Connection, lanes: Lanes) {
        // The peers, and who we are, may have changed since the hello.
        if me != self.me.get() || !self.peers.borrow().contains_key(&peer) {
            return Close::Stranger.on(&connection, "not a peer of this node any more");
        }
        let link = Rc::new(Link {
            connection,
            calls: Outgoing::default(),
            bulk: Outgoing::default(),
            congested: Cell::new(false),
            open: Cell::new(true),
        });
        let former = self.up.borrow_mut().insert(peer, link.clone());
        if let Some(former) = former {
            former.open.set(false);
            Close::Replaced.on(&former.connection, "a newer connection took its place");
            self.handler.disconnected(peer);
        }
        tracing::debug!(%peer, "data connection up");
        self.handler.connected(peer);

        let mut tasks = JoinSet::new();
        let (calls, bulk) = (lanes.calls, lanes.bulk);
        tasks.spawn_local(self.clone().read(link.clone(), peer, Lane::Calls, calls.1));
        tasks.spawn_local(self.clone().read(link.clone(), peer, Lane::Bulk, bulk.1));
        tasks.spawn_local(self.clone().flush(link.clone(), peer, Lane::Calls, calls.0));
        tasks.spawn_local(self.clone().flush(link.clone(), peer, Lane::Bulk, bulk.0));
        tasks.join_next().await;
        // Whatever ended one lane ends the connection: both begin anew together.
        Close::Done.on(&link.connection, "a lane ended");
        tasks.shutdown().await;

        if link.open.replace(false) {
            self.up.borrow_mut().remove(&peer);
            tracing::debug!(%peer, "data connection gone");
            self.handler.disconnected(peer);
        }
    }

    async fn read(self: Rc<Self>, link: Rc<Link>, peer: MemberId, lane: Lane, mut stream: RecvStream) {
        let mut partial = Partial { total: &self.partial, counted: 0 };
        let mut bytes = BytesMut::new();
        loop {
            bytes.reserve(READ_BYTES);
            let read = match stream.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(read) => read,
            };
            if !link.open.get() {
                return;
            }
            loop {
                match self.handler.received(peer, lane, &mut bytes) {
                    Ok(false) => break,
                    Ok(true) => yield_now().await,
                    Err(malformed) => {
                        tracing::warn!(%peer, "{malformed}: its connection is closed");
                        return Close::Malformed.on(&link.connection, malformed.0);
                    }
                }
                if !link.open.get() {
                    return;
                }
            }
            if partial.count(bytes.len()) > PARTIAL_BYTES_MAX {
                tracing::warn!(%peer, "more than {PARTIAL_BYTES_MAX} bytes of unfinished frames: its connection is closed");
                return Close::Overflow.on(&link.connection, "too many bytes of unfinished frames");
            }
            if read >= READ_BYTES {
                // There may be megabytes more; others first.
                yield_now().await;
            }
        }
    }

    /// Sends all that is there whenever something is.
    async fn flush(self: Rc<Self>, link: Rc<Link>, peer: MemberId, lane: Lane, mut stream: SendStream) {
        let outgoing = link.lane(lane);
        loop {
            let bytes = std::mem::take(&mut *outgoing.buffer.borrow_mut()).freeze();
            if bytes.is_empty() {
                outgoing.wake.notified().await;
                continue;
            }
            let length = bytes.len();
            if stream.write_chunk(bytes).await.is_err() {
                return;
            }
            outgoing.queued.set(outgoing.queued.get() - length);
            if link.congested.get() && link.calls.queued.get() < CONGESTED_BYTES {
                link.congested.set(false);
                if link.open.get() {
                    self.handler.drained(peer);
                }
            }
        }
    }

    fn failed(&self, what: &str, address: SocketAddr, failure: &Failure) {
        match failure {
            Failure::Stranger | Failure::Unreachable(_) => tracing::debug!(%address, "{what} {address}: {failure}"),
            Failure::OtherSecret | Failure::OtherProtocol | Failure::Hello(_) | Failure::Refused(_) => {
                let text = format!("{what} {}: {failure}", address.ip());
                if self.notices.due(&text) {
                    tracing::warn!("{text}");
                }
            }
        }
    }
}

/// One reader's share of the bytes of partial frames; given back when the reader ends.
struct Partial<'a> {
    total: &'a Cell<usize>,
    counted: usize,
}

impl Partial<'_> {
    fn count(&mut self, now: usize) -> usize {
        let total = self.total.get() - self.counted + now;
        self.total.set(total);
        self.counted = now;
        total
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        self.count(0);
    }
}

const TAG_CALLS: u8 = 1;
const TAG_BULK: u8 = 2;
const PRIORITY_BULK: i32 = -1;

/// Certificates from files are a node's own: one node must not pass for the member that another is.
fn name_fits(name: &str, theirs: &Hello) -> Result<(), Failure> {
    if *name == *theirs.name {
        return Ok(());
    }
    Err(Failure::Hello(format!("it says that it is member {}, which is called {name:?}, not {:?}", theirs.id, theirs.name)))
}

async fn open_lanes(connection: &Connection) -> Result<Lanes, Failure> {
    let mut calls = connection.open_bi().await?;
    let mut bulk = connection.open_bi().await?;
    let broken = |_| Failure::Unreachable("the connection broke off".into());
    calls.0.write_all(&[TAG_CALLS]).await.map_err(broken)?;
    bulk.0.write_all(&[TAG_BULK]).await.map_err(broken)?;
    let _ = bulk.0.set_priority(PRIORITY_BULK);
    Ok(Lanes { calls, bulk })
}

async fn accept_lanes(connection: &Connection) -> Result<Lanes, Failure> {
    let mut calls = connection.accept_bi().await?;
    let mut bulk = connection.accept_bi().await?;
    let mut tags = [0; 2];
    let broken = |_| Failure::Unreachable("the connection broke off".into());
    calls.1.read_exact(&mut tags[..1]).await.map_err(broken)?;
    bulk.1.read_exact(&mut tags[1..]).await.map_err(broken)?;
    if tags != [TAG_CALLS, TAG_BULK] {
        Close::Malformed.on(connection, "unknown lanes");
        return Err(Failure::Hello(format!("it opened unknown lanes {tags:?}")));
    }
    let _ = bulk.0.set_priority(PRIORITY_BULK);
    Ok(Lanes { calls, bulk })
}

#[cfg(test)]
mod tests;
