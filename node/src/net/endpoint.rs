//! One QUIC socket: how it is configured, whom it dials and lets in, and what its failures mean for
//! people.

use super::address::{Reach, canonical};
use super::identity::{Identity, ROLE, Tls};
use super::socket::ControlRuntime;
use quinn::{
    AckFrequencyConfig, Connection, ConnectionError, EndpointConfig, Incoming, MtuDiscoveryConfig,
    TransportConfig, VarInt,
};
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// Connections whose handshake or hello is under way; more are refused.
pub const HANDSHAKES_MAX: usize = 128;
/// From this many on, an address must prove itself (a retry packet) before it costs us a handshake.
pub(super) const HANDSHAKES_BEFORE_RETRY: usize = 32;
/// How long a dial may take, hello included.
pub const DIAL_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long a newcomer may take from its first packet to the end of its hello.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection over which nothing comes for this long is gone;
const IDLE_TIMEOUT_MS: u32 = 5_000;
/// one for data sooner: who has none left does not judge others' copies (`Shard::doubt`), and
/// writes wait for that.
const DATA_IDLE_TIMEOUT_MS: u32 = 3_000;
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Assumed until measured: a lost first packet is repeated after three of these, not after quinn's
/// second.
const INITIAL_RTT: Duration = Duration::from_millis(40);
/// With GSO, larger payloads than this do not pay (and stall cubic's first window).
const DATA_MTU_MAX: u16 = 6_500;
/// What the data socket asks for: what arrives while the data thread does something else waits
/// here.
pub const DATA_SOCKET_BYTES: usize = 4 << 20;
const CONTROL_SOCKET_BYTES: usize = 1 << 20;
/// Reasons of peers are quoted up to here.
const REASON_CHARS_MAX: usize = 300;

/// Why a connection was closed, on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// In order: shutting down, or not needed any more.
    Done = 0,
    /// The hello was not acceptable; the reason says why.
    Hello = 1,
    /// Not (yet) a peer of ours: try again.
    Stranger = 2,
    /// Bytes that make no sense.
    Malformed = 3,
    /// More is queued than the limit allows.
    Overflow = 4,
    /// A newer connection took its place.
    Replaced = 5,
}

impl Close {
    /// Closes with this reason; the text is for people on the other side.
    pub fn on(self, connection: &Connection, reason: &str) {
        connection.close(self.code(), text(reason));
    }

    /// How it is said on the wire.
    pub(super) fn code(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// As much of a reason as is sent.
pub(super) fn text(reason: &str) -> &[u8] {
    &reason.as_bytes()[..reason.len().min(REASON_CHARS_MAX)]
}

/// What a socket is for.
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

/// Why two nodes do not talk. The text names the cause, and what to do where something can be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// One of the two does not accept the other's certificate.
    #[error(
        "it and this node do not trust each other: start every node with the same --secret-file, or every node with valid --tls-* files of \
         one authority"
    )]
    OtherSecret,
    /// It speaks QUIC, but not our protocol.
    #[error("it does not speak doyen/1: is that a Doyen node's port?")]
    OtherProtocol,
    /// We do not accept its hello.
    #[error("{0}")]
    Hello(String),
    /// It does not accept ours.
    #[error("it refused: {0}")]
    Refused(String),
    /// It does not count us among its peers, for now.
    #[error("it does not know this node yet")]
    Stranger,
    /// The socket of this process does not serve such an address.
    #[error("{0}")]
    OutOfReach(String),
    /// It does not answer, or stopped answering.
    #[error("{0}")]
    Unreachable(String),
}

impl Failure {
    /// Whether trying again will not help until somebody changes something.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::OtherSecret
            | Self::OtherProtocol
            | Self::Hello(_)
            | Self::Refused(_)
            | Self::OutOfReach(_) => true,
            Self::Stranger | Self::Unreachable(_) => false,
        }
    }
}

impl From<ConnectionError> for Failure {
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

/// QUIC carries TLS alerts as 0x100 and the alert (RFC 9001, section 4.8).
fn from_code(code: u64) -> Option<Failure> {
    match code.checked_sub(0x100)? {
        // bad_certificate to unknown_ca without illegal_parameter, access_denied, decrypt_error,
        // certificate_required
        42..=46 | 48 | 49 | 51 | 116 => Some(Failure::OtherSecret),
        // protocol_version, no_application_protocol
        70 | 120 => Some(Failure::OtherProtocol),
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

/// The QUIC socket of the control port. Lives on one thread. (`driver` has that of the data port.)
#[derive(Debug)]
pub struct Endpoint {
    quinn: quinn::Endpoint,
    reach: Reach,
    identity: Arc<Identity>,
    transport: Arc<TransportConfig>,
    configs: RefCell<Configs>,
    handshakes: Rc<Cell<usize>>,
}

/// Both sides of TLS and of the transport, as the certificates are at present.
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
            .max_incoming(HANDSHAKES_MAX);
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

    /// Whether they were made of these certificates.
    pub(super) fn are_of(&self, tls: &Arc<Tls>) -> bool {
        Arc::ptr_eq(&self.tls, tls)
    }

    /// For whom we let in.
    pub(super) fn server(&self) -> Arc<quinn::ServerConfig> {
        self.server.clone()
    }

    /// For whom we dial.
    pub(super) fn client(&self) -> quinn::ClientConfig {
        self.client.clone()
    }
}

/// A handshake under way; counts until it is dropped.
#[derive(Debug)]
pub struct Admission {
    connecting: quinn::Connecting,
    counted: Rc<Cell<usize>>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.counted.set(self.counted.get() - 1);
    }
}

impl Admission {
    /// Waits for the handshake, and keeps counting.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn connection(&mut self) -> Result<Connection, Failure> {
        Ok((&mut self.connecting).await?)
    }
}

impl Endpoint {
    /// Over a bound socket; call it on the runtime that shall drive it.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn new(socket: UdpSocket, identity: Arc<Identity>) -> io::Result<Self> {
        let transport = Arc::new(transport(Purpose::Control));
        let configs = Configs::new(identity.tls(), &transport);
        prepare(&socket, Purpose::Control)?;
        let server = (*configs.server).clone();
        let reach = Reach::of(socket.local_addr()?);
        let quinn = quinn::Endpoint::new(
            EndpointConfig::default(),
            Some(server),
            socket,
            Arc::new(ControlRuntime),
        )?;
        Ok(Self {
            quinn,
            reach,
            identity,
            transport,
            configs: RefCell::new(configs),
            handshakes: Rc::default(),
        })
    }

    /// On a port of the system's choosing, towards this address: to dial, and let nobody in.
    ///
    /// # Errors
    /// There is no port.
    pub(super) fn outgoing(towards: SocketAddr, identity: Arc<Identity>) -> io::Result<Self> {
        let any = SocketAddr::new(
            if towards.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            },
            0,
        );
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        let transport = Arc::new(transport(Purpose::Control));
        let configs = Configs::new(identity.tls(), &transport);
        let reach = Reach::of(socket.local_addr()?);
        let quinn = quinn::Endpoint::new(
            EndpointConfig::default(),
            None,
            socket,
            Arc::new(ControlRuntime),
        )?;
        Ok(Self {
            quinn,
            reach,
            identity,
            transport,
            configs: RefCell::new(configs),
            handshakes: Rc::default(),
        })
    }

    /// The bound address.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.quinn.local_addr()
    }

    /// Which families of addresses its socket serves.
    #[must_use]
    pub const fn reach(&self) -> Reach {
        self.reach
    }

    /// Dials; the hello comes next.
    ///
    /// # Errors
    /// Nobody answers, or who answers is not of our cluster.
    pub async fn dial(&self, address: SocketAddr) -> Result<Connection, Failure> {
        if !self.reach.takes(address.ip()) {
            return Err(Failure::OutOfReach(self.reach.refusal(address)));
        }
        let client = self.configs().client;
        let connecting = self
            .quinn
            .connect_with(client, address, ROLE)
            .map_err(|e| Failure::Unreachable(e.to_string()))?;
        match tokio::time::timeout(DIAL_TIMEOUT, connecting).await {
            Ok(connection) => Ok(connection?),
            Err(_) => Err(Failure::Unreachable("nobody answers".into())),
        }
    }

    /// The next who dials us; `None` once the endpoint is closed. Cancel safe.
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
        let under_way = self.handshakes.get();
        if under_way >= HANDSHAKES_MAX {
            incoming.refuse();
            return None;
        }
        if under_way >= HANDSHAKES_BEFORE_RETRY
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            // Fails only if it may not be retried, which was asked just above.
            let _ = incoming.retry();
            return None;
        }
        match incoming.accept_with(self.configs().server) {
            Ok(connecting) => {
                self.handshakes.set(under_way + 1);
                Some(Admission {
                    connecting,
                    counted: self.handshakes.clone(),
                })
            }
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
            // quinn itself decrypts first packets with this one, and checks its retry tokens.
            self.quinn
                .set_server_config(Some((*configs.server).clone()));
        }
        configs.clone()
    }

    /// Closes every connection and waits a moment until the peers have been told.
    pub async fn close(&self) {
        self.quinn
            .close(VarInt::from_u32(Close::Done as u32), b"shutting down");
        let _ = tokio::time::timeout(Duration::from_millis(300), self.quinn.wait_idle()).await;
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
    // The system may allow less; that costs throughput, not correctness.
    let _ = socket2.set_recv_buffer_size(bytes);
    let _ = socket2.set_send_buffer_size(bytes);
    socket.set_nonblocking(true)
}

/// The endpoint of a data port.
pub(super) fn data_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    // 6,550 is above the least that quinn allows, so this cannot fail; if it did, small packets
    // serve too.
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
            // The hello; then one stream of frames a direction.
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
            // The hello, and one stream a lane.
            t.max_concurrent_bidi_streams(VarInt::from_u32(4));
            t.max_concurrent_uni_streams(VarInt::from_u32(0));
            t.stream_receive_window(VarInt::from_u32(16 << 20));
            t.receive_window(VarInt::from_u32(64 << 20));
            // Above what the peer grants one stream: else a full bulk lane would block the calls
            // lane here.
            t.send_window(48 << 20);
            t.datagram_receive_buffer_size(None);
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
        assert_eq!(from_code(0x100 + 48), Some(Failure::OtherSecret));
        assert_eq!(from_code(0x100 + 120), Some(Failure::OtherProtocol));
        assert_eq!(from_code(0x0a), None);
        assert_eq!(from_code(u64::MAX), None);
    }

    #[test]
    fn reasons_of_peers_are_printable_and_short() {
        assert_eq!(printable(b"a\x1b[31mb\xff\n"), "a[31mb\u{fffd}");
        assert_eq!(printable(&[b'x'; 5000]).len(), REASON_CHARS_MAX);
    }
}
