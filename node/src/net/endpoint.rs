//! One QUIC socket: its configuration, dialling and accepting, and the meaning of its failures for
//! operators.

use super::accept_limit::{AcceptLimit, AcceptVerdict, SourcePlace};
use super::identity::{Identity, SERVER_NAME, Tls};
use super::socket::ControlRuntime;
use crate::address::{AddressFamilies, canonical};
use crate::hooks::Hooks;
use quinn::{
    AckFrequencyConfig, Connection, ConnectionError, EndpointConfig, Incoming, MtuDiscoveryConfig,
    TransportConfig, VarInt,
};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Connections that wait to be judged, at most. The rest is passed over.
const INCOMING_MAX: usize = 1024;
/// How long a dial may take, hello included.
pub const DIAL_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long a new connection may take from its first packet to the end of its hello.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(3);
/// A control connection is lost if nothing comes for this long.
const IDLE_TIMEOUT_MS: u32 = 5_000;
/// A data connection is lost sooner. A member without connections does not judge others' copies
/// (`Shard::doubt`), and writes wait for that.
const DATA_IDLE_TIMEOUT_MS: u32 = 3_000;
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// The round trip that is assumed until it is measured. A lost first packet is sent again after
/// three of these, not after quinn's one second.
const INITIAL_RTT: Duration = Duration::from_millis(40);
/// With GSO, larger payloads bring no gain (and stall cubic's first window).
const DATA_MTU_MAX: u16 = 6_500;
/// The requested buffer of the data socket. Datagrams wait here while the data thread does other
/// work.
pub const DATA_SOCKET_BYTES: usize = 4 << 20;
const CONTROL_SOCKET_BYTES: usize = 1 << 20;
/// Bytes of datagrams of a data connection that wait on either side: the last ones count.
const DATAGRAM_BYTES: usize = 64 << 10;
/// The reason that a peer gets if its secret or certificate is no longer trusted.
pub(super) const UNTRUSTED: &str = "this node no longer trusts the peer's secret or certificate";
/// Characters of a peer's reason that are quoted, at most.
const REASON_CHARS_MAX: usize = 300;

/// Why a connection was closed, as its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// Shutting down, or no longer needed.
    Done = 0,
    /// The hello was refused; the text gives the reason.
    Hello = 1,
    /// The other end is not a peer yet, or no longer: it may try again.
    Stranger = 2,
    /// The bytes were malformed.
    Malformed = 3,
    /// More was queued than the limit allows.
    Overflow = 4,
    /// A newer connection replaced this one.
    Replaced = 5,
}

impl Close {
    /// Closes the connection; the reason is for operators on the other side.
    pub fn on(self, connection: &Connection, reason: &str) {
        connection.close(self.code(), text(reason));
    }

    /// The code on the wire.
    pub(super) fn code(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// The part of a reason that is sent.
pub(super) fn text(reason: &str) -> &[u8] {
    &reason.as_bytes()[..reason.len().min(REASON_CHARS_MAX)]
}

/// The purpose of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `--listen`
    Control = 1,
    /// `--data`
    Data = 2,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "control port (--listen)",
            Self::Data => "data port (--data)",
        })
    }
}

/// Why two nodes do not talk. The text names the cause, and what to do if something can be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialFailure {
    /// One of the two does not accept the other's certificate.
    #[error(
        "the two nodes do not trust each other: start every node with the same --secret-file, \
         or every node with valid --tls-* files of one authority"
    )]
    OtherSecret,
    /// By the clock of one of the two, the other's certificate has expired or is not valid yet.
    #[error(
        "the certificate of one of the two nodes is not valid at this time: set the clocks of both \
         machines, which may differ by a day at most; certificates in --tls-* files may have \
         expired"
    )]
    OtherTime,
    /// The operator has revoked the certificate of one of the two.
    #[error(
        "the certificate of one of the two nodes is revoked (--tls-crl): give that node another \
         certificate"
    )]
    Revoked,
    /// The peer speaks QUIC, but not Doyen's protocol.
    #[error("the peer does not speak doyen/1: check that it is the port of a Doyen node")]
    OtherProtocol,
    /// This node does not accept the peer's hello.
    #[error("{0}")]
    Hello(String),
    /// The peer does not accept this node's hello.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// The peer does not count this node among its peers, for now.
    #[error("the peer does not know this node yet")]
    Stranger,
    /// The socket of this process does not reach such an address.
    #[error("{0}")]
    OutOfReach(String),
    /// The peer does not answer, or stopped answering.
    #[error("{0}")]
    Unreachable(String),
}

impl DialFailure {
    /// Whether another attempt is useless until an operator changes something.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::OtherSecret
            | Self::OtherTime
            | Self::Revoked
            | Self::OtherProtocol
            | Self::Hello(_)
            | Self::Refused(_)
            | Self::OutOfReach(_) => true,
            Self::Stranger | Self::Unreachable(_) => false,
        }
    }
}

impl From<ConnectionError> for DialFailure {
    fn from(e: ConnectionError) -> Self {
        match &e {
            ConnectionError::TransportError(t) => from_code(t.code.into()),
            ConnectionError::ConnectionClosed(c) => from_code(c.error_code.into()),
            ConnectionError::ApplicationClosed(c)
                if c.error_code == VarInt::from_u32(Close::Stranger as u32) =>
            {
                Some(Self::Stranger)
            }
            ConnectionError::ApplicationClosed(c)
                if c.error_code == VarInt::from_u32(Close::Hello as u32) =>
            {
                Some(Self::Refused(printable(&c.reason)))
            }
            _ => None,
        }
        .unwrap_or_else(|| Self::Unreachable(e.to_string()))
    }
}

/// QUIC carries a TLS alert as 0x100 plus the alert (RFC 9001, section 4.8).
fn from_code(code: u64) -> Option<DialFailure> {
    match code.checked_sub(0x100)? {
        44 => Some(DialFailure::Revoked),
        45 => Some(DialFailure::OtherTime),
        // bad_certificate to unknown_ca without illegal_parameter, access_denied, decrypt_error,
        // certificate_required
        42 | 43 | 46 | 48 | 49 | 51 | 116 => Some(DialFailure::OtherSecret),
        // protocol_version, no_application_protocol
        70 | 120 => Some(DialFailure::OtherProtocol),
        _ => None,
    }
}

fn printable(reason: &[u8]) -> String {
    String::from_utf8_lossy(reason)
        .chars()
        .filter(|c| !c.is_control())
        .take(REASON_CHARS_MAX)
        .collect()
}

/// The QUIC socket of the control port. It lives on one thread. (`driver` has the one of the data
/// port.)
#[derive(Debug)]
pub struct Endpoint {
    quinn: quinn::Endpoint,
    reach: AddressFamilies,
    identity: Arc<Identity>,
    transport: Arc<TransportConfig>,
    configs: RefCell<Configs>,
    places: RefCell<AcceptLimit>,
    hooks: Hooks,
}

/// Both sides of TLS and of the transport, with the present certificates.
#[derive(Debug, Clone)]
pub(super) struct Configs {
    tls: Arc<Tls>,
    server: Arc<quinn::ServerConfig>,
    client: quinn::ClientConfig,
}

impl Configs {
    pub(super) fn new(tls: Arc<Tls>, transport: &Arc<TransportConfig>) -> Self {
        let mut server = quinn::ServerConfig::with_crypto(tls.server.clone());
        server
            .transport_config(transport.clone())
            .migration(false)
            .max_incoming(INCOMING_MAX);
        server
            .incoming_buffer_size(64 << 10)
            .incoming_buffer_size_total(4 << 20);
        let mut client = quinn::ClientConfig::new(tls.client.clone());
        client.transport_config(transport.clone());
        Self {
            tls,
            server: Arc::new(server),
            client,
        }
    }

    /// Whether they were made from these certificates.
    pub(super) fn are_of(&self, tls: &Arc<Tls>) -> bool {
        Arc::ptr_eq(&self.tls, tls)
    }

    /// The configuration for accepting.
    pub(super) fn server(&self) -> Arc<quinn::ServerConfig> {
        self.server.clone()
    }

    /// The configuration for dialling.
    pub(super) fn client(&self) -> quinn::ClientConfig {
        self.client.clone()
    }
}

/// A handshake under way; it has a place until it is dropped.
#[derive(Debug)]
pub struct Admission {
    connecting: quinn::Connecting,
    _place: SourcePlace,
}

impl Admission {
    /// Waits for the handshake; it continues to count.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn connection(&mut self) -> Result<Connection, DialFailure> {
        Ok((&mut self.connecting).await?)
    }
}

impl Endpoint {
    /// An endpoint over a bound socket; must be called on the runtime that drives it.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn new(socket: UdpSocket, identity: Arc<Identity>, hooks: Hooks) -> io::Result<Self> {
        prepare(&socket, Purpose::Control)?;
        Self::over(socket, identity, hooks, true)
    }

    /// An endpoint that only dials, on any free port, towards this address.
    ///
    /// # Errors
    /// There is no free port.
    pub(super) fn outgoing(towards: SocketAddr, identity: Arc<Identity>) -> io::Result<Self> {
        let any: IpAddr = if towards.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.set_nonblocking(true)?;
        Self::over(socket, identity, Hooks::default(), false)
    }

    fn over(
        socket: UdpSocket,
        identity: Arc<Identity>,
        hooks: Hooks,
        answers: bool,
    ) -> io::Result<Self> {
        let transport = Arc::new(transport(Purpose::Control));
        let configs = Configs::new(identity.tls(), &transport);
        let reach = AddressFamilies::of(socket.local_addr()?);
        let quinn = quinn::Endpoint::new(
            EndpointConfig::default(),
            answers.then(|| (*configs.server).clone()),
            socket,
            Arc::new(ControlRuntime {
                hooks: hooks.clone(),
                errors: identity.send_errors().clone(),
            }),
        )?;
        Ok(Self {
            quinn,
            reach,
            identity,
            transport,
            configs: RefCell::new(configs),
            places: RefCell::new(AcceptLimit::new(Purpose::Control)),
            hooks,
        })
    }

    /// The bound address.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.quinn.local_addr()
    }

    /// The families of addresses that its socket reaches.
    #[must_use]
    pub(crate) const fn reach(&self) -> AddressFamilies {
        self.reach
    }

    /// Dials; the hello comes next.
    ///
    /// # Errors
    /// The peer does not answer, or does not belong to this cluster.
    pub async fn dial(&self, address: SocketAddr) -> Result<Connection, DialFailure> {
        if !self.reach.takes(address.ip()) {
            return Err(DialFailure::OutOfReach(self.reach.refusal(address)));
        }
        let client = self.configs().client;
        let connecting = self
            .quinn
            .connect_with(client, address, SERVER_NAME)
            .map_err(|e| DialFailure::Unreachable(e.to_string()))?;
        match tokio::time::timeout(DIAL_TIMEOUT, connecting).await {
            Ok(connection) => Ok(connection?),
            Err(_) => Err(DialFailure::Unreachable("no answer".into())),
        }
    }

    /// The next incoming connection; `None` once the endpoint is closed. Cancel safe.
    pub async fn accept(&self) -> Option<(SocketAddr, Admission)> {
        loop {
            let incoming = self.quinn.accept().await?;
            let address = canonical(incoming.remote_address());
            if let Some(admission) = self.admit(incoming) {
                return Some((address, admission));
            }
        }
    }

    fn admit(&self, incoming: Incoming) -> Option<Admission> {
        let (address, proven) = (
            incoming.remote_address(),
            incoming.remote_address_validated() || !incoming.may_retry(),
        );
        let counts = self.identity.handshakes();
        let mut places = self.places.borrow_mut();
        let place = match places.judge(Instant::now(), address, proven, counts) {
            AcceptVerdict::Accept(place) => place,
            AcceptVerdict::Prove => {
                // Fails only if no retry is allowed, which was checked just above.
                let _ = incoming.retry();
                return None;
            }
            AcceptVerdict::PassOver => {
                incoming.ignore();
                return None;
            }
        };
        drop(places);
        match incoming.accept_with(self.configs().server) {
            Ok(connecting) => Some(Admission {
                connecting,
                _place: place,
            }),
            Err(e) => {
                tracing::debug!("an incoming connection failed at once: {e}");
                None
            }
        }
    }

    fn configs(&self) -> Configs {
        let tls = self.identity.tls();
        let mut configs = self.configs.borrow_mut();
        if !configs.are_of(&tls) {
            *configs = Configs::new(tls, &self.transport);
            // quinn decrypts first packets and checks retry tokens with this configuration.
            self.quinn
                .set_server_config(Some((*configs.server).clone()));
        }
        configs.clone()
    }

    /// Closes every connection, and waits a moment until the peers have been told.
    pub async fn close(&self) {
        self.quinn
            .close(VarInt::from_u32(Close::Done as u32), b"shutting down");
        // If a test has isolated this node, no peer hears it.
        if self.hooks.lets_in() {
            let _ = tokio::time::timeout(Duration::from_millis(300), self.quinn.wait_idle()).await;
        }
    }
}

/// Sets up a bound socket.
pub(super) fn prepare(socket: &UdpSocket, purpose: Purpose) -> io::Result<()> {
    let bytes = match purpose {
        Purpose::Control => {
            super::probe::ignore(socket);
            CONTROL_SOCKET_BYTES
        }
        Purpose::Data => DATA_SOCKET_BYTES,
    };
    let socket2 = socket2::SockRef::from(socket);
    // The system may allow less, which costs throughput, but not correctness.
    let _ = socket2.set_recv_buffer_size(bytes);
    let _ = socket2.set_send_buffer_size(bytes);
    socket.set_nonblocking(true)
}

/// The endpoint of a data port.
pub(super) fn data_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    // 6,550 is above quinn's minimum, so this cannot fail. If it did, small packets would do as
    // well.
    let _ = config.max_udp_payload_size(DATA_MTU_MAX + 50);
    config
}

pub(super) fn transport(purpose: Purpose) -> TransportConfig {
    let mut t = TransportConfig::default();
    t.max_idle_timeout(Some(VarInt::from_u32(IDLE_TIMEOUT_MS).into()));
    t.keep_alive_interval(Some(KEEP_ALIVE));
    t.initial_rtt(INITIAL_RTT);
    t.congestion_controller_factory(Arc::new(quinn::congestion::CubicConfig::default()));
    t.enable_segmentation_offload(true);
    t.allow_spin(false);
    match purpose {
        Purpose::Control => {
            // One stream for the hello, then one stream of frames in each direction.
            t.max_concurrent_bidi_streams(VarInt::from_u32(1));
            t.max_concurrent_uni_streams(VarInt::from_u32(1));
            t.stream_receive_window(VarInt::from_u32(1 << 20));
            t.receive_window(VarInt::from_u32(4 << 20));
            t.send_window(4 << 20);
            t.datagram_receive_buffer_size(Some(256 << 10));
            t.datagram_send_buffer_size(64 << 10);
        }
        Purpose::Data => {
            t.max_idle_timeout(Some(VarInt::from_u32(DATA_IDLE_TIMEOUT_MS).into()));
            // One stream for the hello, and one for each lane.
            t.max_concurrent_bidi_streams(VarInt::from_u32(4));
            t.max_concurrent_uni_streams(VarInt::from_u32(0));
            t.stream_receive_window(VarInt::from_u32(16 << 20));
            t.receive_window(VarInt::from_u32(64 << 20));
            // More than the peer grants one stream: otherwise a full bulk lane would block the lane
            // of calls.
            t.send_window(48 << 20);
            // Datagrams leave before what waits in the lanes.
            t.datagram_receive_buffer_size(Some(DATAGRAM_BYTES));
            t.datagram_send_buffer_size(DATAGRAM_BYTES);
            let mut mtu = MtuDiscoveryConfig::default();
            mtu.upper_bound(DATA_MTU_MAX);
            t.mtu_discovery_config(Some(mtu));
            t.ack_frequency_config(None::<AckFrequencyConfig>);
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_alerts_about_certificates_mean_another_secret() {
        assert_eq!(from_code(0x100 + 48), Some(DialFailure::OtherSecret));
        assert_eq!(from_code(0x100 + 120), Some(DialFailure::OtherProtocol));
        assert_eq!(from_code(0x0a), None);
        assert_eq!(from_code(u64::MAX), None);
    }

    #[test]
    fn reasons_of_peers_are_printable_and_short() {
        assert_eq!(printable(b"a\x1b[31mb\xff\n"), "a[31mb\u{fffd}");
        assert_eq!(printable(&[b'x'; 5000]).len(), REASON_CHARS_MAX);
    }
}
