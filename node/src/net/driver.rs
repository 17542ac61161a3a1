//! QUIC without tasks: one socket, quinn's protocol machine and its connections, driven by the loop
//! of a data thread.
//!
//! ```text
//!   receive: a batch of datagrams ─> machines ─┐
//!   receive: a batch of datagrams ─> machines ─┐
//!   timers ─────────────────────────> machines ├─> touched ─> poll: events ─> transmit: datagrams
//!   streams that were written ─────────────────┘
//! ```
//!
//! A pass of the loop touches a connection once, however much happened on it. So a batch of calls
//! leaves in one packet train, together with the acks for what came in. Tasks and channels between
//! socket and streams would cost as much as the protocol itself.

use super::accept_limit::{AcceptLimit, AcceptVerdict, SourcePlace};
use super::endpoint::{Configs, DialFailure, Purpose, data_config, prepare, transport};
use super::identity::{Identity, SERVER_NAME};
use super::relay::DirectPath;
use crate::address::{AddressFamilies, canonical};
use crate::hooks::Hooks;
use bytes::{Bytes, BytesMut};
use doyen_placement::MemberId;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, Event, Incoming, Transmit, TransportConfig, VarInt,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

/// Space for one datagram, or for several that the system received as one.
const DATAGRAMS_BYTES: usize = 64 << 10;
/// Datagrams of one receiving system call, at most.
const BATCH: usize = if BATCH_SIZE < 16 { BATCH_SIZE } else { 16 };
/// Receiving system calls in one pass, at most; the rest waits for the next pass.
const RECEIVES_MAX: usize = 8;
/// Datagrams of one sending system call, if the system supports several.
const SEGMENTS_MAX: usize = 10;
/// Sending system calls for one connection in one pass, at most.
const SENDS_MAX: usize = 32;

pub(super) struct QuicDriver {
    socket: UdpSocket,
    reach: AddressFamilies,
    state: UdpSocketState,
    endpoint: quinn_proto::Endpoint,
    identity: Arc<Identity>,
    /// Whether others may dial this socket.
    accepts: bool,
    transport: Arc<TransportConfig>,
    configs: Configs,
    places: AcceptLimit,
    /// By handle.
    machines: Vec<Option<PeerMachine>>,
    touched: Vec<ConnectionHandle>,
    /// The buffer for received datagrams.
    input: Vec<u8>,
    /// The buffer for one transmission.
    output: Vec<u8>,
    /// A transmission that the socket did not accept yet.
    blocked: Option<Transmit>,
    /// Whether there may be datagrams to receive.
    readable: bool,
    /// Datagrams that must take a relay as well, with their connections.
    strays: Vec<(ConnectionHandle, Bytes)>,
    /// Connections that were begun by a relay.
    begun_around: usize,
    hooks: Hooks,
}

/// A connection that was accepted, the address that dialled, and its place until the peer is known.
pub(super) type Accepted = (ConnectionHandle, SocketAddr, SourcePlace);

struct PeerMachine {
    connection: quinn_proto::Connection,
    touched: bool,
    timeout: Option<Instant>,
    way: DirectPath,
}

impl QuicDriver {
    /// `accepts`: whether others may dial this socket.
    pub(super) fn new(
        socket: UdpSocket,
        identity: Arc<Identity>,
        accepts: bool,
    ) -> io::Result<Self> {
        let transport = Arc::new(transport(Purpose::Data));
        let configs = Configs::new(identity.tls(), &transport);
        prepare(&socket, Purpose::Data)?;
        let state = UdpSocketState::new((&socket).into())?;
        let reach = AddressFamilies::of(socket.local_addr()?);
        let endpoint = quinn_proto::Endpoint::new(
            Arc::new(data_config()),
            accepts.then(|| configs.server()),
            !state.may_fragment(),
            None,
        );
        Ok(Self {
            socket,
            reach,
            state,
            endpoint,
            identity,
            accepts,
            transport,
            configs,
            places: AcceptLimit::new(Purpose::Data),
            machines: Vec::new(),
            touched: Vec::new(),
            input: vec![0; BATCH * DATAGRAMS_BYTES],
            output: Vec::new(),
            blocked: None,
            readable: true,
            strays: Vec::new(),
            begun_around: 0,
            hooks: Hooks::default(),
        })
    }

    /// What a test does to this node.
    pub(super) fn set_hooks(&mut self, hooks: Hooks) {
        self.hooks = hooks;
    }

    /// The socket, for epoll.
    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The system reported that the socket can be read or written.
    pub(super) fn ready(&mut self) {
        self.readable = true;
    }

    /// Whether a transmission waits until the socket accepts more.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Dials; `Event::Connected` reports success.
    pub(super) fn dial(
        &mut self,
        now: Instant,
        address: SocketAddr,
    ) -> Result<ConnectionHandle, DialFailure> {
        let address = canonical(address);
        if !self.reach.takes(address.ip()) {
            return Err(DialFailure::OutOfReach(self.reach.refusal(address)));
        }
        if self.identity.is_loopback_only() && !address.ip().is_loopback() {
            return Err(DialFailure::OutOfReach(format!(
                "{address} is on another machine, but without a secret this process talks only to \
                 this machine: give all nodes and clients the same secret"
            )));
        }
        self.renew();
        let client = self.configs.client();
        let (handle, connection) = self
            .endpoint
            .connect(now, client, address, SERVER_NAME)
            .map_err(|e| DialFailure::Unreachable(e.to_string()))?;
        self.add(handle, connection);
        Ok(handle)
    }

    /// The machine of a connection; `None` once it has drained. The caller touches it after
    /// writing.
    pub(super) fn get(&mut self, handle: ConnectionHandle) -> Option<&mut quinn_proto::Connection> {
        self.machines
            .get_mut(handle.0)?
            .as_mut()
            .map(|m| &mut m.connection)
    }

    /// Notes that this connection has something to send.
    pub(super) fn touch(&mut self, handle: ConnectionHandle) {
        if let Some(Some(machine)) = self.machines.get_mut(handle.0)
            && !std::mem::replace(&mut machine.touched, true)
        {
            self.touched.push(handle);
        }
    }

    /// The direct path of a connection; `None` once it has drained.
    pub(super) fn way(&mut self, handle: ConnectionHandle) -> Option<&mut DirectPath> {
        self.machines
            .get_mut(handle.0)?
            .as_mut()
            .map(|m| &mut m.way)
    }

    /// Whether nothing comes directly on a connection, and whether its datagrams take a relay.
    pub(super) fn strays(&self, handle: ConnectionHandle, now: Instant) -> (bool, bool) {
        let Some(Some(machine)) = self.machines.get(handle.0) else {
            return (false, false);
        };
        let round_trip = || machine.connection.rtt();
        (
            machine.way.is_deaf(now, round_trip),
            machine.way.strays(now, round_trip),
        )
    }

    /// Whether the system sends several datagrams at a time.
    #[cfg(feature = "http")]
    pub(super) fn sends_segments(&self) -> bool {
        self.state.max_gso_segments() > 1
    }

    /// Takes the datagrams that must take a relay.
    pub(super) fn take_strays(&mut self) -> Vec<(ConnectionHandle, Bytes)> {
        std::mem::take(&mut self.strays)
    }

    /// Whether there are such datagrams.
    pub(super) fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Closes a connection; it drains by itself.
    pub(super) fn close(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        code: VarInt,
        reason: Bytes,
    ) {
        if let Some(connection) = self.get(handle) {
            connection.close(now, code, reason);
            self.touch(handle);
        }
    }

    /// Whether no connection is left, not even one that drains.
    pub(super) fn is_idle(&self) -> bool {
        self.machines.iter().all(Option::is_none)
    }

    /// Receives datagrams, up to a bound. New connections are added to `accepted`. Returns true if
    /// there may be more datagrams.
    ///
    /// # Errors
    /// The socket is broken.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        accepted: &mut Vec<Accepted>,
    ) -> io::Result<bool> {
        let mut input = std::mem::take(&mut self.input);
        let mut result = Ok(false);
        for round in 0.. {
            if !self.readable {
                break;
            }
            if round == RECEIVES_MAX {
                result = Ok(true);
                break;
            }
            let mut metas = [RecvMeta::default(); BATCH];
            let mut chunks = input.chunks_mut(DATAGRAMS_BYTES);
            let mut slices: [IoSliceMut<'_>; BATCH] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            let received = match self
                .state
                .recv((&self.socket).into(), &mut slices, &mut metas)
            {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                // An ICMP error of some peer: QUIC finds out by itself.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            };
            // Fewer than fit, so there were no more. The next datagram causes another event.
            self.readable = received == BATCH;
            if !self.hooks.lets_in() {
                continue;
            }
            for (meta, slice) in metas.iter_mut().zip(&slices).take(received) {
                meta.addr = canonical(meta.addr);
                let mut rest = BytesMut::from(&slice[..meta.len.min(DATAGRAMS_BYTES)]);
                while !rest.is_empty() {
                    let datagram = rest.split_to(meta.stride.clamp(1, rest.len()));
                    self.datagram(now, meta, datagram, accepted);
                }
            }
        }
        self.input = input;
        result
    }

    fn datagram(
        &mut self,
        now: Instant,
        meta: &RecvMeta,
        datagram: BytesMut,
        accepted: &mut Vec<Accepted>,
    ) {
        let ecn = meta
            .ecn
            .and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        let mut response = Vec::new();
        let copy = (self.begun_around > 0).then(|| datagram.clone());
        match self
            .endpoint
            .handle(now, meta.addr, meta.dst_ip, ecn, datagram, &mut response)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(Some(machine)) = self.machines.get_mut(handle.0) else {
                    return;
                };
                let known = machine.connection.remote_address();
                if known == meta.addr {
                    machine.way.heard();
                    machine.connection.handle_event(event);
                } else if let Some(copy) = copy.filter(|_| machine.way.begun_around) {
                    machine.way.straight = Some(meta.addr);
                    machine.way.heard();
                    // QUIC knows the other end by the address with which the connection began.
                    let again =
                        self.endpoint
                            .handle(now, known, meta.dst_ip, ecn, copy, &mut response);
                    if let Some(DatagramEvent::ConnectionEvent(_, event)) = again {
                        machine.connection.handle_event(event);
                    }
                }
                self.touch(handle);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                accepted.extend(self.accept(now, incoming));
            }
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, &response),
            None => {}
        }
    }

    /// Handles a datagram of this peer that `by` carried. `deaf`: the peer receives nothing
    /// directly. If its connection knows no other address, the datagram counts as from `address`.
    /// An answer that belongs to no connection goes back the same way.
    pub(super) fn came_around(
        &mut self,
        now: Instant,
        (peer, by, deaf): (MemberId, MemberId, bool),
        (mut address, datagram): (SocketAddr, &[u8]),
        accepted: &mut Vec<Accepted>,
    ) -> Option<Vec<u8>> {
        let mut response = Vec::new();
        for _ in 0..2 {
            match self.endpoint.handle(
                now,
                address,
                None,
                None,
                BytesMut::from(datagram),
                &mut response,
            )? {
                DatagramEvent::ConnectionEvent(handle, event) => {
                    let Some(Some(machine)) = self.machines.get_mut(handle.0) else {
                        return None;
                    };
                    if *machine.way.peer.get_or_insert(peer) != peer {
                        return None;
                    }
                    let known = machine.connection.remote_address();
                    if known != address {
                        address = known;
                        continue;
                    }
                    machine.way.came_around(now, by, deaf);
                    machine.connection.handle_event(event);
                    self.touch(handle);
                    return None;
                }
                DatagramEvent::NewConnection(incoming) => {
                    let taken = self.accept(now, incoming)?;
                    let handle = taken.0;
                    accepted.push(taken);
                    let way = self.way(handle)?;
                    way.peer = Some(peer);
                    way.begun_around = true;
                    way.came_around(now, by, deaf);
                    self.begun_around += 1;
                    return None;
                }
                DatagramEvent::Response(transmit) => {
                    response.truncate(transmit.size);
                    return Some(response);
                }
            }
        }
        None
    }

    /// Accepts a connection, if there is a place.
    fn accept(&mut self, now: Instant, incoming: Incoming) -> Option<Accepted> {
        let mut response = Vec::new();
        let (address, proven) = (
            incoming.remote_address(),
            incoming.remote_address_validated() || !incoming.may_retry(),
        );
        let counts = self.identity.handshakes();
        let place = match self.places.judge(now, address, proven, counts) {
            AcceptVerdict::Accept(place) => place,
            AcceptVerdict::Prove => {
                // Fails only if no retry is allowed, which was checked just above.
                if let Ok(transmit) = self.endpoint.retry(incoming, &mut response) {
                    self.respond(&transmit, &response);
                }
                return None;
            }
            AcceptVerdict::PassOver => {
                self.endpoint.ignore(incoming);
                return None;
            }
        };
        self.renew();
        match self
            .endpoint
            .accept(incoming, now, &mut response, Some(self.configs.server()))
        {
            Ok((handle, connection)) => {
                self.add(handle, connection);
                Some((handle, address, place))
            }
            Err(e) => {
                tracing::debug!("an incoming connection failed at once: {}", e.cause);
                if let Some(transmit) = e.response {
                    self.respond(&transmit, &response);
                }
                None
            }
        }
    }

    fn add(&mut self, handle: ConnectionHandle, connection: quinn_proto::Connection) {
        if self.machines.len() <= handle.0 {
            self.machines.resize_with(handle.0 + 1, || None);
        }
        self.machines[handle.0] = Some(PeerMachine {
            connection,
            touched: false,
            timeout: None,
            way: DirectPath::default(),
        });
        self.touch(handle);
    }

    /// Takes renewed certificates into use.
    fn renew(&mut self) {
        let tls = self.identity.tls();
        if !self.configs.are_of(&tls) {
            self.configs = Configs::new(tls, &self.transport);
            // The machine decrypts first packets and checks retry tokens with this configuration.
            self.endpoint
                .set_server_config(self.accepts.then(|| self.configs.server()));
        }
    }

    /// Sends an answer of the endpoint itself, once: a peer that needs it asks again.
    fn respond(&self, transmit: &Transmit, contents: &[u8]) {
        if !self.hooks.lets_out(transmit.destination) {
            return;
        }
        let _ = self.state.send(
            (&self.socket).into(),
            &datagrams(self.reach, transmit, contents),
        );
    }

    /// The connections that were touched since the last `transmit`.
    pub(super) fn touched(&self, index: usize) -> Option<ConnectionHandle> {
        self.touched.get(index).copied()
    }

    /// The next event of a connection.
    pub(super) fn poll(&mut self, handle: ConnectionHandle) -> Option<Event> {
        self.get(handle)?.poll()
    }

    /// When `expire` is due.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.machines
            .iter()
            .flatten()
            .filter_map(|m| m.timeout)
            .min()
    }

    /// Handles timers that are due.
    pub(super) fn expire(&mut self, now: Instant) {
        for at in 0..self.machines.len() {
            if let Some(machine) = &mut self.machines[at]
                && machine.timeout.is_some_and(|t| t <= now)
            {
                machine.timeout = None;
                machine.connection.handle_timeout(now);
                self.touch(ConnectionHandle(at));
            }
        }
    }

    /// Sends what the touched connections have to send. Returns true if there is more than one pass
    /// should send.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        if let Some(transmit) = self.blocked.take() {
            self.send(transmit);
        }
        let segments = self.state.max_gso_segments().min(SEGMENTS_MAX);
        // A connection with more than one pass sends, or than the socket accepts, continues later.
        let mut again = Vec::new();
        while self.blocked.is_none()
            && let Some(handle) = self.touched.pop()
        {
            if let Some(Some(machine)) = self.machines.get_mut(handle.0) {
                machine.touched = false;
            }
            let mut sends = 0;
            while let Some(Some(machine)) = self.machines.get_mut(handle.0) {
                if sends == SENDS_MAX || self.blocked.is_some() {
                    again.push(handle);
                    break;
                }
                self.output.clear();
                match machine
                    .connection
                    .poll_transmit(now, segments, &mut self.output)
                {
                    Some(mut transmit) => {
                        sends += 1;
                        machine.way.sent(now);
                        if machine.way.peer.is_some()
                            && machine.way.strays(now, || machine.connection.rtt())
                        {
                            let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
                            let datagrams = self.output[..transmit.size].chunks(size);
                            self.strays.extend(
                                datagrams
                                    .map(|datagram| (handle, Bytes::copy_from_slice(datagram))),
                            );
                        }
                        transmit.destination = machine.way.straight.unwrap_or(transmit.destination);
                        self.send(transmit);
                    }
                    None => break,
                }
            }
            self.settle(handle);
        }
        let more = self.blocked.is_none() && !again.is_empty();
        again.into_iter().for_each(|handle| self.touch(handle));
        more
    }

    /// Passes a connection's messages to the endpoint. The connection is removed once it has
    /// drained.
    fn settle(&mut self, handle: ConnectionHandle) {
        let Some(Some(machine)) = self.machines.get_mut(handle.0) else {
            return;
        };
        let mut drained = false;
        while let Some(event) = machine.connection.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                machine.connection.handle_event(event);
            }
        }
        machine.timeout = machine.connection.poll_timeout();
        if drained {
            self.begun_around -= usize::from(machine.way.begun_around);
            self.machines[handle.0] = None;
        }
    }

    /// Sends a transmission. If the socket accepts no more, it is kept in `blocked`.
    fn send(&mut self, transmit: Transmit) {
        if !self.hooks.lets_out(transmit.destination) {
            return;
        }
        let train = datagrams(self.reach, &transmit, &self.output[..transmit.size]);
        let attempt = || self.state.try_send((&self.socket).into(), &train);
        let errors = self.identity.send_errors();
        // The only error is that the socket is full.
        if errors
            .send(Purpose::Data, transmit.destination, transmit.size, attempt)
            .is_err()
        {
            self.blocked = Some(transmit);
        }
    }
}

fn datagrams<'a>(
    reach: AddressFamilies,
    transmit: &Transmit,
    contents: &'a [u8],
) -> quinn_udp::Transmit<'a> {
    quinn_udp::Transmit {
        destination: reach.wire(transmit.destination),
        ecn: transmit
            .ecn
            .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
        contents,
        segment_size: transmit.segment_size,
        src_ip: transmit.src_ip,
    }
}
