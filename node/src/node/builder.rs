//! Puts a node together: reads the configuration, opens every socket, then starts the threads.

#[cfg(feature = "http")]
use crate::admin::Admin;
#[cfg(any(feature = "http", feature = "resp"))]
use crate::config::PortTls;
#[cfg(any(feature = "http", feature = "resp"))]
use crate::config::value::Toggle;
use crate::config::value::{AssignmentName, DurationOption, EvictionPolicy, LossPolicy, Size};
use crate::config::{Config, ConfigError, Defaults, Memory, MemoryConfig, Options, Trust};
use crate::control::shared::Shared;
use crate::control::{self, ControlOptions};
use crate::data::{self, DataOptions};
use crate::directory::Directory;
use crate::error::Error;
use crate::hooks::Hooks;
#[cfg(feature = "http")]
use crate::http::{self, Credentials, ServerOptions, TokenFile};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::net::identity::Identity;
#[cfg(any(feature = "http", feature = "resp"))]
use crate::net::identity::ports::{PortCertificate, PortSource, Ports};
use crate::net::identity::secret::SecretRole as TrustRole;
use crate::node::sockets::NodeSockets;
use crate::node::{Node, NodeDriver, NodeParts, Threads};
use crate::remedy::{self, HttpAccess, RemedyScope};
use doyen_engine::Limits;
use doyen_gossip::agreement::{Seeds, Timing};
use doyen_gossip::{AgreementConfig, SigningSeed};
use doyen_placement::{
    Addresses, Assignment, DiskCopies, Durability, Eviction, MemberId, OnLoss, OrderKey,
};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
#[cfg(any(feature = "http", feature = "resp"))]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limit of upcalls of the data threads that wait for the control thread.
const UPCALLS_MAX: usize = 4096;
/// How long `map` waits for a cluster, by default.
const READY_MAX: Duration = Duration::from_secs(30);

/// Builds a [`Node`]. Everything has a default; see each method.
///
/// Errors name options as flags of `doyen run`: `--value-max` is [`value_max`](Builder::value_max),
/// `--listen` is [`listen`](Builder::listen). Options without a method of their own are set by
/// [`options`](Builder::options).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let node = doyen::Node::builder()
///     .name("orders-1")
///     .listen("10.0.0.1:7400")                    // data: the next port
///     .seeds(["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"])
///     .secret_file("/etc/orders/doyen-secret")
///     .location("zone-a", "rack-7", "host-12")    // copies are placed apart
///     .threads(2)
///     .memory_max(4 << 30)
///     .backups(2)                                 // in a new cluster
///     .min_in_sync(2)
///     .leave_timeout(Duration::from_secs(60))
///     .start()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    options: Options,
    client: bool,
    ready_timeout: Option<Duration>,
    hooks: Hooks,
}

impl Builder {
    /// A builder with the options that the environment gives: the variables `DOYEN_*` of
    /// `doyen run --help`. What the program sets afterwards wins.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doyen::Error> {
    /// let node = doyen::Node::builder().from_env()?.name("orders-1").start().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A variable has a value that its option does not take. The error names both.
    pub fn from_env(mut self) -> Result<Self, Error> {
        self.options = self.options.or(Options::from_env()?);
        Ok(self)
    }

    /// Makes this a client: a program that uses the cluster without being a member of it. It needs
    /// seeds, which are data addresses (`--data`, by default port 7401) of nodes; one of them must
    /// be alive. [`start`](Self::start) connects, within 10 s
    /// ([`ready_timeout`](Self::ready_timeout)).
    ///
    /// A client is a [`Node`], too, with the same maps, caches, locks and limits. Only a member has
    /// events, and administers. Any number of tasks may use one client; operations that are under
    /// way together are sent together. While nodes come and go, operations wait (5 s at most) and
    /// go to the new primary of their key, and none is applied twice. A node serves 1,000 clients
    /// at a time ([`clients_max`](Self::clients_max)).
    pub fn client(mut self) -> Self {
        self.client = true;
        self
    }

    /// How long [`Node::map`] waits for the cluster, and [`start`](Self::start) of a client for a
    /// node that accepts it. 30 s by default, of a client 10 s.
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.ready_timeout = Some(timeout);
        self
    }

    /// Adds the address of another node, as `host:port`.
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.options.seed.push(seed.into());
        self
    }

    /// Addresses of other nodes, as `host:port`. Without any, a node forms a cluster of itself.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.options.seed = seeds.into_iter().map(Into::into).collect();
        self
    }

    /// How many initial members form the first cluster. By default, the number of distinct seeds,
    /// with this node among them.
    pub fn expect(mut self, members: u16) -> Self {
        self.options.expect = Some(members);
        self
    }

    /// The secret that all nodes share: the content of a file of `doyen secret new`, 32 bytes as
    /// hex or base64, or a phrase of at least 16 bytes. Without one, a node stays on loopback.
    ///
    /// A node needs the member's secret. A client takes the client's, which opens data and nothing
    /// else, or the member's. From a phrase, the start derives a key with argon2id: that takes 64
    /// MiB and some tenths of a second, once per process, and the feature `phrases`.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.options.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// The file that holds the secret, or several: the first one signs, and all are trusted. It is
    /// read when the node starts, and again when it changes.
    pub fn secret_file(mut self, path: impl AsRef<Path>) -> Self {
        self.options.secret_file = Some(path.as_ref().into());
        self
    }

    /// PEM files instead of a secret: the authority, this node's certificate and its key. The
    /// certificate names its roles, as the URI `doyen:member` or `doyen:client` in its
    /// subjectAltName.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doyen::Error> {
    /// let node = doyen::Node::builder()
    ///     .certificates("/etc/orders/ca.pem", "/etc/orders/cert.pem", "/etc/orders/key.pem")
    ///     .seeds(["10.0.0.1:7400", "10.0.0.2:7400"])
    ///     .start()
    ///     .await?;
    /// // When the files were renewed:
    /// let was_read = node.reload();
    /// # Ok(()) }
    /// ```
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

    /// A PEM file with the revocation lists of the authority of the certificates.
    pub fn revoked(mut self, crl: impl AsRef<Path>) -> Self {
        self.options.tls_crl = Some(crl.as_ref().into());
        self
    }

    /// The name, unique among living members; by default the advertised address.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// QUIC, control; by default port 7400. With port 0, the system chooses.
    pub fn listen(mut self, address: impl ToString) -> Self {
        self.options.listen = Some(address.to_string());
        self
    }

    /// Data threads, 1 to 16; by default 1. Each has its part of the partitions, and its own ports,
    /// which follow those of `data` and `resp_cluster`.
    pub fn threads(mut self, threads: u8) -> Self {
        self.options.threads = Some(threads.into());
        self
    }

    /// QUIC, data; by default the port after the control port. If the system chose that one, it
    /// chooses this one too.
    pub fn data(mut self, address: impl ToString) -> Self {
        self.options.data = Some(address.to_string());
        self
    }

    /// RESP for the whole cluster; by default off in an embedded node. Needs the feature `resp`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doyen::Error> {
    /// // For programs in other languages, and for monitoring.
    /// let node = doyen::Node::builder()
    ///     .secret_file("/etc/orders/doyen-secret")
    ///     .resp("0.0.0.0:7379")
    ///     .resp_cluster("0.0.0.0:7380")
    ///     .resp_password_file("/etc/orders/redis-password")
    ///     .http("127.0.0.1:7480")
    ///     .start()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "resp")]
    pub fn resp(mut self, address: impl ToString) -> Self {
        self.options.resp = Some(Toggle::On(address.to_string()));
        self
    }

    /// RESP for cluster-aware clients; by default off in an embedded node. Needs the feature
    /// `resp`.
    #[cfg(feature = "resp")]
    pub fn resp_cluster(mut self, address: impl ToString) -> Self {
        self.options.resp_cluster = Some(Toggle::On(address.to_string()));
        self
    }

    /// The file with the password of RESP clients; needed beyond loopback.
    #[cfg(feature = "resp")]
    pub fn resp_password_file(mut self, path: impl AsRef<Path>) -> Self {
        self.options.resp_password_file = Some(path.as_ref().into());
        self
    }

    /// The file with the users of RESP clients, as Redis writes it. With it, the users of the
    /// cluster's table are not used by this node.
    #[cfg(feature = "resp")]
    pub fn resp_acl_file(mut self, path: impl AsRef<Path>) -> Self {
        self.options.resp_acl_file = Some(path.as_ref().into());
        self
    }

    /// HTTP: status, table, health and metrics; by default off in an embedded node. Needs the
    /// feature `http`.
    #[cfg(feature = "http")]
    pub fn http(mut self, address: impl ToString) -> Self {
        self.options.http = Some(Toggle::On(address.to_string()));
        self
    }

    /// Where other nodes reach this one, behind NAT.
    pub fn advertise(mut self, address: impl ToString) -> Self {
        self.options.advertise = Some(address.to_string());
        self
    }

    /// Where clients reach this node, behind NAT: `HOST`, or `HOST:PORT` with the port of the plain
    /// RESP port. If it is a name, cluster-aware clients are sent to that name. The host is that of
    /// `http`, too.
    pub fn advertise_resp(mut self, address: impl ToString) -> Self {
        self.options.advertise_resp = Some(address.to_string());
        self
    }

    /// Where clients reach [`resp_cluster`](Self::resp_cluster), behind NAT: `HOST` or `HOST:PORT`.
    /// Further data threads have the ports that follow. By default at the host of
    /// [`advertise_resp`](Self::advertise_resp).
    #[cfg(feature = "resp")]
    pub fn advertise_resp_cluster(mut self, address: impl ToString) -> Self {
        self.options.advertise_resp_cluster = Some(address.to_string());
        self
    }

    /// Location of the node, widest first. Copies are placed apart. An empty text is not a
    /// location.
    pub fn location(
        mut self,
        zone: impl Into<String>,
        rack: impl Into<String>,
        host: impl Into<String>,
    ) -> Self {
        self.options.zone = Some(zone.into());
        self.options.rack = Some(rack.into());
        self.options.host = Some(host.into());
        self
    }

    /// Capacity relative to other nodes; 100 by default, 1 to 100,000.
    ///
    /// A node that joins with a weight above 8 times the median of the live data members waits
    /// until an operator allows it ([`Admin::allow_weight`](crate::Admin::allow_weight)).
    pub fn weight(mut self, weight: u32) -> Self {
        self.options.weight = Some(weight);
        self
    }

    /// Vote, and hold no data.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doyen::Error> {
    /// // Two nodes hold data. With a third vote, each of them goes on without the other.
    /// let witness = doyen::Node::builder()
    ///     .name("witness")
    ///     .witness()
    ///     .seeds(["10.0.0.1:7400", "10.0.0.2:7400"])
    ///     .secret_file("/etc/orders/doyen-secret")
    ///     .start()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn witness(mut self) -> Self {
        self.options.witness = Some(true);
        self
    }

    /// A directory of this node alone. The table of the cluster and the node's votes are synced
    /// there before they count, so a cluster whose nodes all ended is the same one again: its id,
    /// keyspaces, maps, users, tokens and scripts. Data stays in memory. By default, nothing is
    /// written.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doyen::Error> {
    /// let node = doyen::Node::builder()
    ///     .name("orders-1")
    ///     .dir("/var/lib/orders/doyen")
    ///     .seeds(["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"])
    ///     .secret_file("/etc/orders/doyen-secret")
    ///     .start()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.options.dir = Some(dir.as_ref().into());
        self
    }

    /// Size at which a range of keys is split; 64 MiB by default, 64 KiB at least.
    pub fn range_max(mut self, bytes: u64) -> Self {
        self.options.range_max = Some(Size(bytes));
        self
    }

    /// Limit of the node's memory: data and buffers. By default a quarter of what the machine or
    /// the control group allows. The rest of the process belongs to the program and is not
    /// counted. (The binary bounds its whole process.)
    pub fn memory_max(mut self, bytes: u64) -> Self {
        self.options.memory_max = Some(Size(bytes));
        self
    }

    /// Bytes of the largest value; 16 MiB by default, 64 MiB at most.
    pub fn value_max(mut self, bytes: u64) -> Self {
        self.options.value_max = Some(Size(bytes));
        self
    }

    /// Limit of connected native clients; 1000 by default. 0: none.
    pub fn clients_max(mut self, clients: u32) -> Self {
        self.options.clients_max = Some(clients);
        self
    }

    /// Partitions of a new cluster: a power of two up to 16384; 1024 by default.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.options.partitions = Some(partitions);
        self
    }

    /// Copies beside the primary, in a new cluster; 1 by default.
    pub fn backups(mut self, backups: u8) -> Self {
        self.options.backups = Some(backups);
        self
    }

    /// The fewest copies, including the primary, with which writes are acknowledged, in a new
    /// cluster; 1 by default.
    pub fn min_in_sync(mut self, copies: u8) -> Self {
        self.options.min_in_sync = Some(copies);
        self
    }

    /// What happens when every copy of a partition is lost, in a new cluster. By default the
    /// partition begins empty: at once if all holders are proved dead, otherwise after 10 minutes.
    pub fn on_loss(mut self, policy: OnLoss) -> Self {
        self.options.on_loss = Some(LossPolicy(policy));
        self
    }

    /// Where a write of the keyspace `default` is when it is acknowledged, in a new cluster: in
    /// memory by default. With [`Durability::Log`], every node that holds data needs a
    /// [directory](Self::dir).
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = Some(durability);
        self
    }

    /// Which keys of the keyspace `default` are evicted when memory is full, in a new cluster. By
    /// default none are, and writes are refused.
    pub fn eviction(mut self, policy: Eviction) -> Self {
        self.options.eviction = Some(EvictionPolicy(policy));
        self
    }

    /// Nodes with data that a new cluster waits for before it serves; 1 by default.
    pub fn members_min(mut self, members: u16) -> Self {
        self.options.members_min = Some(members);
        self
    }

    /// How a new cluster first assigns partitions.
    pub fn assignment(mut self, assignment: Assignment) -> Self {
        self.options.assignment = Some(AssignmentName(assignment));
        self
    }

    /// How long `shutdown` waits until other members hold what this node held; 25 s by default.
    pub fn leave_timeout(mut self, timeout: Duration) -> Self {
        self.options.leave_timeout = Some(DurationOption(timeout));
        self
    }

    /// All other options, and those above, as a flag, a file or the environment gives them.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use doyen::config::Options;
    ///
    /// let options = Options::from_file("/etc/orders/doyen.toml".as_ref())?;
    /// let node = doyen::Node::builder().options(options).name("orders-1").start().await?;
    /// # Ok(()) }
    /// ```
    pub fn options(mut self, options: Options) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// What a test does to this node.
    #[cfg(feature = "testkit-local")]
    pub(crate) fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Opens every port, then starts. A member is running when this returns, and looks for its
    /// cluster; [`Node::wait_ready`] waits until it serves. A client is connected.
    ///
    /// # Errors
    /// The node cannot start. The error is one line that says what to do. Nothing runs then.
    /// [`Error::NoRuntime`]: this was called outside of tokio.
    ///
    /// # Cancel safety
    /// If the future is dropped, a node that was started stops like a crash.
    pub async fn start(self) -> Result<Node, Error> {
        if self.client {
            let timeout = self.ready_timeout.unwrap_or(super::client::CONNECT_MAX);
            return super::client::start(self.options, timeout, self.hooks).await;
        }
        super::with_timers()?;
        // Names are resolved and files are read: do not block a runtime's thread.
        let config = tokio::task::spawn_blocking(move || self.options.resolve(Defaults::Embedded))
            .await
            .map_err(|e| Error::System(e.to_string()))??;
        run(config, self.ready_timeout.unwrap_or(READY_MAX), self.hooks).await
    }
}

/// Starts a node from a checked configuration.
///
/// ```no_run
/// use doyen::config::{Defaults, Options};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Options::from_env()?.resolve(Defaults::Embedded)?;
/// println!("this node may hold {} bytes", config.memory.bytes_max());
/// let node = doyen::start(config).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// The node cannot start. The error is one line that says what to do. Nothing runs then.
///
/// # Cancel safety
/// As for [`Builder::start`].
pub async fn start(config: Config) -> Result<Node, Error> {
    super::with_timers()?;
    run(config, READY_MAX, Hooks::default()).await
}

async fn run(config: Config, ready_timeout: Duration, hooks: Hooks) -> Result<Node, Error> {
    tokio::task::spawn_blocking(move || assemble(config, ready_timeout, hooks))
        .await
        .map_err(|e| Error::System(e.to_string()))?
}

fn assemble(config: Config, ready_timeout: Duration, hooks: Hooks) -> Result<Node, Error> {
    config.ports.are_built()?;
    #[cfg(feature = "http")]
    let http_tokens = (config.http.token_file.clone())
        .map(TokenFile::open)
        .transpose()?;
    let sockets = NodeSockets::open(&config.ports)?;
    // An error is one line, so only a node whose ports are open says more.
    log_start(&config.exposed, &config.memory.of_node);
    let addresses = sockets.addresses(&config.ports, &config.seeds)?;
    let name = (config.name.clone()).unwrap_or_else(|| addresses.control.to_string());
    let identity = identity_of(&config.trust, TrustRole::Member, &name)?;

    let directory = directory(&config)?;
    let me = MemberId::of_member(rand::random());
    let timing = timing(&config);
    let shared = Arc::new(Shared::new(me));
    let (upcall, upcalls) = tokio::sync::mpsc::channel(UPCALLS_MAX);
    let threads = sockets.threads.into_iter();
    let (data_sockets, cluster_listeners) = threads.map(|t| (t.data, t.resp_cluster)).unzip();
    // Before anything is started: its files may be wrong.
    #[cfg(feature = "http")]
    let http_tls = http_tls(&config, &identity, &addresses)?;
    let fronts = fronts(
        &config,
        &identity,
        &addresses,
        sockets.resp,
        cluster_listeners,
    )?;
    let own = (&identity, directory.as_ref());
    let data_options = data_options(&config, me, own, data_sockets, &timing, &hooks);
    let system = |e: &dyn std::fmt::Display| Error::System(e.to_string());
    let (data_thread, data, restored) =
        data::start(data_options, fronts, shared.clone(), upcall).map_err(|e| system(&e))?;
    let own = (me, directory.as_ref().map(|dir| dir.signing_seed));
    let copies = restored
        .iter()
        .map(|p| (p.at, (p.lineage, p.since)))
        .collect();
    let control_options = ControlOptions {
        agreement: agreement(&config, (own, copies), &name, &addresses, timing),
        directory,
        identity: identity.clone(),
        socket: sockets.control,
        seeds: config.seeds.clone(),
        hooks,
    };
    let (control_thread, control) = match control::start(control_options, shared.clone(), upcalls) {
        Ok(started) => started,
        Err(e) => {
            data.stop();
            data_thread.join();
            return Err(system(&e));
        }
    };
    #[cfg(feature = "metrics")]
    let metrics = Arc::new(Metrics::new(
        name.clone(),
        control.clone(),
        data.clone(),
        identity.clone(),
    ));
    #[cfg(feature = "http")]
    let http = sockets.http.map(|listener| {
        http::start(ServerOptions {
            listener,
            tls: http_tls,
            admin: Admin::new(control.clone(), shared.clone(), data.clone()),
            control: control.clone(),
            data: data.clone(),
            metrics: metrics.clone(),
            identity: identity.clone(),
            credentials: Credentials::new(
                identity.clone(),
                shared.clone(),
                http_tokens,
                is_open(&config),
            ),
            guarded: config.resp.password.is_some() || config.resp.acl_file.is_some(),
            hosts: hosts(&config).collect(),
        })
    });
    #[cfg(feature = "http")]
    let http = match http.transpose() {
        Ok(http) => http,
        Err(e) => {
            control.stop();
            data.stop();
            control_thread.join();
            data_thread.join();
            return Err(system(&e));
        }
    };
    Ok(Node::new(NodeParts {
        name,
        addresses,
        leave_timeout: config.leave_timeout,
        ready_timeout,
        insecure: config.trust == Trust::Loopback,
        shared,
        identity,
        control,
        data,
        threads: Threads {
            driver: NodeDriver::Member(control_thread),
            data: data_thread,
            #[cfg(feature = "http")]
            http,
        },
        #[cfg(feature = "metrics")]
        metrics,
    }))
}

/// What the node must not forget, if it has a directory. This start is counted there, so only a node
/// whose ports are open takes it.
fn directory(config: &Config) -> Result<Option<Directory>, ConfigError> {
    let opened = (config.dir.as_deref()).map(|path| Directory::open(path, config.level_max));
    opened.transpose().map_err(|e| ConfigError(e.to_string()))
}

/// Logs which secrets others can read, and how much memory the node may use.
fn log_start(exposed: &[String], memory: &Memory) {
    for warning in exposed {
        tracing::warn!("{warning}");
    }
    if memory.exceeds_bound() {
        tracing::warn!(
            "{memory}: the system will kill this process before it refuses writes; give a smaller \
             --memory-max"
        );
    } else {
        tracing::info!("{memory}");
    }
}

/// The identity of a process of this role.
pub(super) fn identity_of(
    trust: &Trust,
    role: TrustRole,
    name: &str,
) -> Result<Arc<Identity>, Error> {
    let identity = match trust {
        Trust::Loopback if role == TrustRole::Client => Identity::insecure_client(name),
        Trust::Loopback => Identity::insecure_loopback(name),
        Trust::Secret { secrets, file } => {
            Identity::of_secrets(secrets.clone(), file.clone(), role, name)
        }
        Trust::Pem(files) => Identity::from_pem(files.clone(), role, name),
    };
    let identity = identity.map_err(|e| Error::Identity(e.to_string()))?;
    Ok(Arc::new(identity))
}

/// What the data threads of this node know.
fn data_options(
    config: &Config,
    me: MemberId,
    (identity, directory): (&Arc<Identity>, Option<&Directory>),
    sockets: Vec<UdpSocket>,
    timing: &Timing,
    hooks: &Hooks,
) -> DataOptions {
    DataOptions {
        me,
        limits: limits(&config.memory, timing),
        sockets,
        identity: identity.clone(),
        clients_max: config.clients_max,
        level_max: config.level_max,
        whole_process: config.memory.whole_process,
        seeds: Vec::new(),
        directory: directory.map(Directory::data),
        hooks: hooks.clone(),
    }
}

/// What agreement knows of this node. `seed`: that of the key of its votes, if it has a directory.
/// `copies`: what that directory has.
fn agreement(
    config: &Config,
    ((id, seed), copies): ((MemberId, Option<SigningSeed>), DiskCopies),
    name: &str,
    addresses: &Addresses,
    timing: Timing,
) -> AgreementConfig {
    AgreementConfig {
        range_bytes_max: config.memory.range_bytes_max as u64,
        id,
        name: name.to_owned(),
        role: config.role,
        addresses: addresses.clone(),
        location: config.location.clone(),
        weight: config.weight,
        // The control thread resolves names, again before each attempt.
        seeds: Seeds::default(),
        expect: config.expect,
        settings: config.first.settings.clone(),
        default_keyspace: config.first.keyspace.clone(),
        timing,
        drained: false,
        explain: remedy::explain(RemedyScope {
            http: addresses.http,
            access: access(config),
        }),
        order_key: OrderKey(rand::random()),
        level_max: config.level_max,
        signing_seed: seed.unwrap_or_else(|| SigningSeed::new(rand::random())),
        rng_seed: rand::random(),
        // The control thread counts the starts of the directory.
        directory: None,
        copies,
    }
}

/// TLS of HTTP.
#[cfg(feature = "http")]
fn http_tls(
    config: &Config,
    identity: &Identity,
    addresses: &Addresses,
) -> Result<Option<Arc<Ports>>, Error> {
    let files = ["--http-tls-cert", "--http-tls-key", ""];
    let wanted = config.http.tls.as_ref();
    port_tls("http", wanted, files, config, identity, addresses)
}

/// TLS of this kind of ports for clients that are no nodes, if they must speak it. `files` are the
/// flags of the certificate, of its key and of the authority of clients.
#[cfg(any(feature = "http", feature = "resp"))]
fn port_tls(
    port: &'static str,
    wanted: Option<&PortTls>,
    files: [&'static str; 3],
    config: &Config,
    identity: &Identity,
    addresses: &Addresses,
) -> Result<Option<Arc<Ports>>, Error> {
    let Some(PortTls {
        pair,
        client_ca,
        min,
    }) = wanted
    else {
        return Ok(None);
    };
    let named = |flag: &'static str, path: &PathBuf| (flag, path.clone());
    let source = match (pair, &config.trust) {
        (Some((cert, key)), _) => PortSource::Files {
            cert: named(files[0], cert),
            key: named(files[1], key),
        },
        (None, Trust::Pem(own)) => PortSource::Files {
            cert: named("--tls-cert", &own.cert),
            key: named("--tls-key", &own.key),
        },
        (None, Trust::Secret { .. } | Trust::Loopback) => {
            PortSource::Authority(names_of_ports(config, addresses))
        }
    };
    let client_ca = client_ca.as_ref().map(|path| named(files[2], path));
    let wanted = PortCertificate {
        port,
        source,
        client_ca,
        min: *min,
    };
    let ports = Ports::new(identity, wanted);
    let ports = Arc::new(ports.map_err(|e| Error::Identity(e.to_string()))?);
    identity.keep_ports(&ports);
    Ok(Some(ports))
}

/// The names and addresses at which clients may know this node.
#[cfg(any(feature = "http", feature = "resp"))]
fn names_of_ports(config: &Config, addresses: &Addresses) -> Vec<String> {
    let told = [
        &config.ports.advertise_resp,
        &config.ports.advertise_resp_cluster,
    ];
    let told = told.into_iter().flatten().filter_map(|at| at.name.clone());
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let reached = [
        Some(addresses.control),
        addresses.resp,
        addresses.resp_cluster,
        addresses.http,
    ];
    let reached = reached.into_iter().flatten().map(|at| at.ip().to_string());
    let names = told.chain(hosts(config));
    // Certificates have names of DNS alone.
    let is_name = |name: &String| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    let mut all: Vec<String> = names.filter(is_name).chain(reached).chain(own).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|name| seen.insert(name.clone()));
    all
}

/// The names of this node for programs that are no nodes.
#[cfg(any(feature = "http", feature = "resp"))]
fn hosts(config: &Config) -> impl Iterator<Item = String> {
    let given = config.http.hosts.clone().into_iter();
    given.chain(config.name.clone()).chain(machine_name())
}

/// The front end of the data threads: RESP, at these ports.
#[cfg(feature = "resp")]
fn fronts(
    config: &Config,
    identity: &Identity,
    addresses: &Addresses,
    plain: Option<TcpListener>,
    cluster: Vec<Option<TcpListener>>,
) -> Result<Vec<crate::resp::front_end::RespOpener>, Error> {
    let users = config.resp.acl_file.as_deref().map(|path| {
        let users = crate::resp::acl::file::load(path).map_err(crate::config::ConfigError)?;
        Ok::<_, Error>((path.to_owned(), users))
    });
    Ok(crate::resp::front_end::fronts(
        crate::resp::front_end::RespOptions {
            plain,
            cluster,
            tls: port_tls(
                "resp",
                config.resp.tls.as_ref(),
                ["--resp-tls-cert", "--resp-tls-key", "--resp-tls-client-ca"],
                config,
                identity,
                addresses,
            )?,
            password: config.resp.password.clone(),
            users: users.transpose()?,
            auth_timeout: config.resp.auth_timeout,
            idle_timeout: config.resp.idle_timeout,
            tcp_keepalive: config.resp.tcp_keepalive,
            key_events: config.resp.key_events,
            strict_transactions: config.resp.strict_transactions,
            connections_max: config.resp.connections_max,
            memory_bytes_max: config.memory.bytes_max(),
        },
    ))
}

/// This build has no front end: only the library and other members use the data threads.
#[cfg(not(feature = "resp"))]
fn fronts(
    _: &Config,
    _: &Identity,
    _: &Addresses,
    _: Option<TcpListener>,
    cluster: Vec<Option<TcpListener>>,
) -> Result<Vec<crate::data::front_end::NoFrontEnd>, Error> {
    Ok(vec![crate::data::front_end::NoFrontEnd; cluster.len()])
}

/// The lease must be the same at every node, so it cannot be chosen. The time until silence counts
/// may differ.
fn timing(config: &Config) -> Timing {
    let default = Timing::default();
    let missed = config
        .silence_max
        .as_millis()
        .div_ceil(default.ping_interval.as_millis());
    Timing {
        pings_missed_max: u32::try_from(missed).unwrap_or(u32::MAX),
        ..default
    }
}

/// The limits of the data path.
fn limits(memory: &MemoryConfig, timing: &Timing) -> Limits {
    Limits {
        value_bytes_max: memory.value_bytes_max,
        memory_bytes_max: memory.bytes_max(),
        range_bytes_max: memory.range_bytes_max,
        takeover_wait: timing.takeover_wait(),
        ..Limits::default()
    }
}

/// Whether HTTP takes requests from every user of this machine, as long as there are no tokens.
fn is_open(config: &Config) -> bool {
    config.trust == Trust::Loopback
        && config.http.token_file.is_none()
        && config
            .ports
            .http
            .is_some_and(|http| http.ip().is_loopback())
}

/// What this node requires of a command before it changes something.
fn access(config: &Config) -> HttpAccess {
    match config.trust {
        _ if config.http.token_file.is_some() => HttpAccess::Token,
        Trust::Secret { .. } => HttpAccess::Secret,
        _ if is_open(config) => HttpAccess::Open,
        Trust::Loopback | Trust::Pem(_) => HttpAccess::Nothing,
    }
}

/// The machine's own name.
#[cfg(any(feature = "http", feature = "resp"))]
fn machine_name() -> Option<String> {
    let name = rustix::system::uname();
    Some(name.nodename().to_str().ok()?.to_owned()).filter(|name| !name.is_empty())
}
