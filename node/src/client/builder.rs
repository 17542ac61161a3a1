//! Builds a client: reads the files, opens the socket, and waits until a member has accepted the
//! client.

use super::Client;
use crate::config::{Options, Trust};
use crate::control::seeds::{self, Choice, Resolved};
use crate::control::shared::Shared;
use crate::data::door::NoDoor;
use crate::data::{self, DataHandle, DataOptions};
use crate::error::ConnectError;
use crate::net::address::Reach;
use crate::net::endpoint::Failure;
use crate::net::identity::Identity;
use doyen_engine::Limits;
use doyen_engine::PARK;
use doyen_gossip::Time;
use doyen_placement::MemberId;
use doyen_placement::level::LEVELS;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long `connect` takes at most, by default.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often `connect` checks whether a member has accepted this client.
const LOOK: Duration = Duration::from_millis(5);
/// How often names of seeds are resolved again.
const NAMES_INTERVAL: Duration = Duration::from_secs(30);
/// The largest value that a client accepts; nodes allow less. Memory is allocated only as bytes
/// arrive.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Builds a [`Client`]. It needs seeds, and the secret of the nodes if they have one.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = doyen::Client::builder()
///     .seeds(["10.0.0.1:7401", "10.0.0.2:7401"])
///     .secret("a secret of at least 16 bytes")
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    options: Options,
    timeout: Option<Duration>,
}

impl ClientBuilder {
    /// Adds the data address (`--data`) of a node, as `host:port`; without a port, 7401. One live
    /// member is enough: it tells of the others.
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.options.seed.push(seed.into());
        self
    }

    /// Adds data addresses of nodes. One of them must be alive.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.options.seed.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Sets the secret that all nodes share. Without one, a client can talk only to nodes on this
    /// machine that have no secret either.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.options.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Sets the file with the secret; `connect` reads it.
    pub fn secret_file(mut self, path: impl AsRef<Path>) -> Self {
        self.options.secret_file = Some(path.as_ref().into());
        self
    }

    /// Sets PEM files instead of a secret: the authority of the nodes, a certificate that it signed
    /// (for TLS clients; its name does not matter), and its key.
    pub fn certificates(
        mut self,
        ca: impl AsRef<Path>,
        cert: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Self {
        self.options.tls_ca = Some(ca.as_ref().into());
        self.options.tls_cert = Some(cert.as_ref().into());
        self.options.tls_key = Some(key.as_ref().into());
        self
    }

    /// Sets the name of this client in the logs of nodes; by default `client`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Sets how long `connect` takes at most; by default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Connects. When this returns, the client knows which node leads which key.
    ///
    /// # Errors
    /// The configuration is invalid, no seed answers, or the seeds refuse this client (another
    /// secret, another version, too many clients). The message has one line and says what to do. It
    /// comes after `connect_timeout` at the latest.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let timeout = self.timeout.unwrap_or(CONNECT_MAX);
        let until = Instant::now() + timeout;
        let options = self.options;
        // Reading files blocks.
        let told = tokio::task::spawn_blocking(move || options.client())
            .await
            .map_err(|e| ConnectError::System(e.to_string()))??;
        told.exposed
            .iter()
            .for_each(|warning| tracing::warn!("{warning}"));
        let socket = open().map_err(|e| ConnectError::System(e.to_string()))?;
        let reach = Reach::of(
            socket
                .local_addr()
                .map_err(|e| ConnectError::System(e.to_string()))?,
        );
        let choice = Choice { reach, own: None };
        let resolving = tokio::time::timeout_at(until, seeds::resolve(&told.seeds, choice)).await;
        let resolved = resolving.map_err(|_| {
            ConnectError::Unreachable(format!(
                "the names of the seeds do not resolve within {timeout:?}: check them"
            ))
        })?;
        if resolved.addresses.is_empty() {
            let names = resolved.unresolved.join(", ");
            return Err(ConnectError::Unreachable(format!(
                "no seed is an address, and none resolves ({names}): give HOST:PORT of a data port"
            )));
        }
        let (trust, name, addresses) = (told.trust, told.name, resolved.addresses.clone());
        let shared = Arc::new(Shared::new(MemberId::of_client(rand::random())));
        let thread_shared = shared.clone();
        // Making keys, and waiting for a thread, block.
        let started = tokio::task::spawn_blocking(move || {
            start(&trust, &name, socket, addresses, thread_shared)
        });
        let (thread, data) = started
            .await
            .map_err(|e| ConnectError::System(e.to_string()))??;
        let is_name = |seed: &String| seed.parse::<SocketAddr>().is_err();
        let names = told.seeds.iter().any(is_name).then(|| {
            tokio::spawn(resolve_again(
                told.seeds,
                choice,
                resolved.clone(),
                data.clone(),
            ))
        });
        let client = Client::new(shared, data, thread, names);
        match wait(&client, &resolved, until, timeout).await {
            Ok(()) => Ok(client),
            Err(e) => {
                client.close().await;
                Err(e)
            }
        }
    }
}

/// A socket for both families of addresses, or for IPv4 if this machine has no IPv6. No node dials
/// it.
fn open() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
}

fn start(
    trust: &Trust,
    name: &str,
    socket: UdpSocket,
    seeds: Vec<SocketAddr>,
    shared: Arc<Shared>,
) -> Result<(data::Data, DataHandle), ConnectError> {
    let identity = match trust {
        Trust::Loopback => Identity::insecure_client(name),
        Trust::Secret(secret) => Identity::of_client(secret, name),
        Trust::Pem { ca, cert, key } => Identity::from_pem(ca, cert, key, name),
    };
    let identity = identity.map_err(|e| ConnectError::Identity(e.to_string()))?;
    let system = |e: &dyn std::fmt::Display| ConnectError::System(e.to_string());
    let options = DataOptions {
        me: shared.local().me,
        limits: limits(),
        sockets: vec![socket],
        identity: Arc::new(identity),
        clients_max: 0,
        level_max: LEVELS.1,
        whole_process: false,
        seeds,
    };
    // The client answers by the members' words, and the members have leases.
    shared.extend_lease(Time(u64::MAX));
    // There is no control thread: messages to it are dropped.
    let (upcalls, _) = tokio::sync::mpsc::channel(1);
    data::start(options, vec![NoDoor], shared, upcalls).map_err(|e| system(&e))
}

/// A client holds no data: only the limits of calls and frames matter.
fn limits() -> Limits {
    Limits {
        value_bytes_max: VALUE_BYTES_MAX,
        hash_bytes_max: 2 << 10,
        page_rows: 2_000,
        key_bytes_max: crate::node::builder::KEY_BYTES_MAX,
        memory_bytes_max: 0,
        tail_bytes_max: 0,
        tail_bytes_least: 0,
        range_bytes_max: 64 << 20,
        park: PARK,
        waiting_max: crate::node::builder::WAITING_MAX,
        copy_silent_max: Duration::ZERO,
        chunk_bytes: 0,
        chunks_in_flight: 0,
        copies_max: 0,
        drawn_max: 128,
        ahead_bytes_max: 8 << 20,
        takeover_wait: Duration::ZERO,
    }
}

/// Waits for a table in which keys have owners.
async fn wait(
    client: &Client,
    resolved: &Resolved,
    until: Instant,
    timeout: Duration,
) -> Result<(), ConnectError> {
    loop {
        let view = client.shared.local().view.clone();
        if view.as_ref().is_some_and(|v| {
            v.installed
                .keyspaces
                .iter()
                .all(|k| !k.partitions.is_empty())
        }) {
            return Ok(());
        }
        let refusals = if view.is_none() {
            client.data.refusals().await
        } else {
            Vec::new()
        };
        let lasting = resolved.addresses.iter().all(|seed| {
            refusals
                .iter()
                .any(|(at, failure)| at == seed && failure.is_lasting())
        });
        if view.is_none() && lasting {
            return Err(ConnectError::Refused(reasons(&refusals, resolved)));
        }
        if Instant::now() >= until {
            return Err(ConnectError::Unreachable(match view {
                Some(_) => {
                    format!(
                        "the cluster has not assigned its keys to members within {timeout:?}: it \
                         may wait for more members (--members-min)"
                    )
                }
                None => format!(
                    "no node accepted this client within {timeout:?}: {}",
                    reasons(&refusals, resolved)
                ),
            }));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why each seed does not help.
fn reasons(refusals: &[(SocketAddr, Failure)], resolved: &Resolved) -> String {
    let tried = resolved.addresses.iter().map(|seed| {
        let why = refusals
            .iter()
            .find(|(at, _)| at == seed)
            .map(|(_, failure)| failure);
        format!(
            "{seed}: {}",
            why.map_or_else(|| "no answer yet".to_owned(), reason)
        )
    });
    let unresolved = resolved
        .unresolved
        .iter()
        .map(|name| format!("{name}: does not resolve"));
    tried.chain(unresolved).collect::<Vec<_>>().join("; ")
}

fn reason(failure: &Failure) -> String {
    match failure {
        Failure::OtherSecret => {
            "the node and this client do not trust each other: give the client the secret of the \
             nodes, or a valid certificate of their authority"
                .into()
        }
        Failure::Stranger => "the node is not a member of a cluster yet".into(),
        Failure::Unreachable(why) => {
            format!("{why}: give the data address (--data, by default port 7401) of a running node")
        }
        Failure::OtherProtocol
        | Failure::Hello(_)
        | Failure::Refused(_)
        | Failure::OutOfReach(_) => failure.to_string(),
    }
}

/// Resolves names again, because they may change. Ends with the client, which aborts it.
async fn resolve_again(names: Vec<String>, choice: Choice, mut last: Resolved, data: DataHandle) {
    loop {
        tokio::time::sleep(NAMES_INTERVAL).await;
        let now = seeds::resolve(&names, choice).await;
        if now != last && !now.addresses.is_empty() {
            data.set_seeds(now.addresses.clone());
            last = now;
        }
    }
}
