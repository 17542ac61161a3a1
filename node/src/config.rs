//! The configuration of a node. Flags, a TOML file and the environment have the same options with
//! the same names: one struct, [`Options`], is all three. Flags win over the environment, and the
//! environment over the file.
//!
//! ```text
//!   flags ─┐
//!   env   ─┼─> Options (as given) ──resolve──> Config (with defaults; rules of security checked)
//!   file  ─┘
//! ```

mod environment;
pub mod keyspace;
mod memory;
mod options;
pub mod value;

use keyspace::KeyspaceOptions;
pub use memory::Memory;
pub use options::Options;

use crate::address::{Reach, canonical};
use crate::files::read_bytes;
pub use crate::net::identity::PemFiles;
use crate::net::identity::secret::Role as TrustRole;
pub use crate::net::identity::secret::{Line, Secrets};
use crate::net::identity::{ROLE_PREFIX, other_role};
use doyen_placement::level::LEVELS;
use doyen_placement::planner::DEFAULT_KEYSPACE;
use doyen_placement::rule::VALUE_BYTES_MAX;
use doyen_placement::table::validate::WEIGHT_MAX;
use doyen_placement::{
    Assignment, Keyspace, KeyspaceId, Location, Role, Schedulers, Settings, THREADS_MAX,
};
#[cfg(feature = "flags")]
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};
use value::{Address, Size, Toggle};
pub use value::{KeyEvents, TlsMin};

/// Below this range, a busy machine looks dead. Above it, failover takes too long.
const SILENCE: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_secs(6);
/// With 600 ms, members were expelled that only waited for a core. A process that ended is noticed
/// by its closed port, so this value does not matter then.
const SILENCE_DEFAULT: Duration = Duration::from_secs(1);
/// Kubernetes kills a process 30 s after SIGTERM. A leaving node ends before that, at most
/// `node::OVERTIME_MAX` after this timeout.
const LEAVE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(25);

/// The default control port.
pub const CONTROL_PORT: u16 = 7400;
/// The default data port: the one after the control port.
pub const DATA_PORT: u16 = CONTROL_PORT + 1;
/// The default RESP port.
pub const RESP_PORT: u16 = 7379;
/// The default port for cluster-aware RESP clients.
pub const RESP_CLUSTER_PORT: u16 = 7380;
/// The default HTTP port.
pub const HTTP_PORT: u16 = 7480;
/// How long a RESP client may take to authenticate, by default. A person at a prompt needs some
/// seconds.
const AUTH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// How long a RESP client may be silent before the system asks for a sign of life.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(crate::net::keepalive::KEEPALIVE_S as u64);
/// The lowest `--range-max`.
const RANGE_BYTES_LEAST: usize = 64 << 10;
/// The lowest `--value-max`.
const VALUE_BYTES_LEAST: usize = 1024;
/// The highest `--value-max`. A value travels in one piece, and a data thread closes a connection
/// with more than 96 MiB of incomplete frames (`net::links`).
const VALUE_BYTES_MOST: usize = 64 << 20;
/// By default, the largest value is this part of a data thread's memory.
const VALUE_PART: usize = 8;
/// The least memory of a data thread, as its part of `--memory-max`.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// Tokens shorter than this are refused.
const TOKEN_BYTES_MIN: usize = 16;
/// Tokens in the file for operators: two while one is replaced, and some more.
const TOKENS_MAX: usize = 16;
/// The permission bit of a file that lets all other users read it.
const OTHERS_READ: u32 = 0o004;
/// Seeds, at most.
const SEEDS_MAX: usize = 64;
/// Bytes of a name or a location, at most: they travel in tables and in gossip.
#[cfg(feature = "flags")]
const NAME_BYTES_MAX: usize = 128;

/// The configuration is invalid. The message says what to do.
///
/// ```
/// use doyen::config::{Defaults, Options};
///
/// let options = Options { secret: Some(b"short".to_vec()), ..Options::default() };
/// let why = options.resolve(Defaults::Embedded).unwrap_err();
/// eprintln!("{why}"); // one line that says what to do
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Which defaults apply.
///
/// Example: [`Config`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    /// The binary: RESP and HTTP listen on loopback.
    Binary,
    /// A program that embeds a node: RESP and HTTP listen only if the program asks for them.
    Embedded,
}

/// How nodes recognize the members of their cluster. Secrets are never shown, because configurations
/// end up in logs.
///
/// Example: [`Config`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// No secret: only nodes on this machine.
    Loopback,
    /// Secrets that all nodes share.
    Secret {
        /// The secrets, the one that signs first.
        secrets: Secrets,
        /// The file that they come from, which is read again when it changes.
        file: Option<PathBuf>,
    },
    /// PEM files of the operator.
    Pem(PemFiles),
}

/// TLS on ports for clients that are no nodes. Example: [`Config`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortTls {
    /// The files of the certificate and of its key; `None`: as nodes trust each other.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// The file of the authority of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// The least version of TLS that clients may speak.
    pub min: TlsMin,
}

/// A configuration that was checked.
///
/// ```
/// use doyen::config::{Defaults, Options, RESP_PORT, Trust};
///
/// let options = Options { name: Some("orders-1".to_owned()), ..Options::default() };
/// let binary = options.clone().resolve(Defaults::Binary)?;
/// assert_eq!(binary.resp.map(|address| address.port()), Some(RESP_PORT));
/// let config = options.resolve(Defaults::Embedded)?;
/// assert_eq!(config.resp, None, "an embedded node has no RESP port by itself");
/// assert_eq!(config.trust, Trust::Loopback, "no secret: only nodes on this machine");
/// # Ok::<_, doyen::config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of other nodes, as `host:port`.
    pub seeds: Vec<String>,
    /// How many initial members form the first cluster.
    pub expect: Option<u16>,
    /// QUIC: agreement, gossip, joins.
    pub listen: SocketAddr,
    /// QUIC: data; `None`: the port after `listen`'s. Like `resp_cluster`, it belongs to the first
    /// data thread. The other data threads have the ports that follow.
    pub data: Option<SocketAddr>,
    /// Data threads.
    pub threads: u8,
    /// RESP for the whole cluster.
    pub resp: Option<SocketAddr>,
    /// RESP for cluster-aware clients, as a Redis Cluster node answers.
    pub resp_cluster: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Host names that HTTP answers to, beside IP addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// Where other nodes reach this one, if that is not `listen`. Port 0 means the port of
    /// `listen`.
    pub advertise: Option<SocketAddr>,
    /// Where clients reach `resp`, `resp_cluster` and `http`, if that is not where they listen. Its
    /// port is that of `resp`.
    pub advertise_resp: Option<ClientAddress>,
    /// Where clients reach `resp_cluster`, if `advertise_resp` does not say it.
    pub advertise_resp_cluster: Option<ClientAddress>,
    /// The node's name; `None`: the advertised address.
    pub name: Option<String>,
    /// Zone, rack and host.
    pub location: Location,
    /// Its capacity; 100 is the default.
    pub weight: u32,
    /// Data or witness.
    pub role: Role,
    /// How nodes know that they belong together.
    pub trust: Trust,
    /// The file with tokens of operators that HTTP takes, besides those of the secret and of the
    /// table.
    pub http_token_file: Option<PathBuf>,
    /// TLS of RESP clients; `None`: they speak in the clear.
    pub resp_tls: Option<PortTls>,
    /// TLS of HTTP; `None`: it is in the clear.
    pub http_tls: Option<PortTls>,
    /// The password of RESP clients.
    pub resp_password: Option<String>,
    /// The file with the users of RESP clients; `None`: the table has them.
    pub resp_acl_file: Option<PathBuf>,
    /// How long RESP clients may take to authenticate; `None`: for ever.
    pub resp_auth_timeout: Option<Duration>,
    /// How long RESP clients may be idle; `None`: for ever.
    pub resp_idle_timeout: Option<Duration>,
    /// How long RESP clients may be silent before the system asks for a sign of life; 0: for ever.
    pub resp_tcp_keepalive: Duration,
    /// Which messages about keys RESP clients may subscribe to.
    pub key_events: KeyEvents,
    /// Whether transactions of RESP clients with keys in several partitions are refused.
    pub strict_transactions: bool,
    /// The memory that the node may hold: entries, log tails, snapshots, buffers, and what the
    /// allocator keeps.
    pub memory_bytes_max: usize,
    /// Where `memory_bytes_max` comes from.
    pub memory: Memory,
    /// Whether the process belongs to this node alone.
    pub whole_process: bool,
    /// The largest value.
    pub value_bytes_max: usize,
    /// A range of keys is split when it has more bytes than this.
    pub range_bytes_max: usize,
    /// RESP connections at most.
    pub connections_max: usize,
    /// Native clients at most.
    pub clients_max: usize,
    /// How long a leaving node waits until other members hold its data.
    pub leave_timeout: Duration,
    /// The highest level that the node speaks.
    pub level_max: u16,
    /// How long a member may be silent before it is expelled.
    pub silence_max: Duration,
    /// Warnings about files with secrets that other users of this machine can read.
    pub exposed: Vec<String>,
    /// The settings of the first table, if this node writes it.
    pub settings: Settings,
    /// The keyspace `default`, if this node writes the first table.
    pub keyspace: Keyspace,
}

/// The address at which clients reach a port of a node, as the operator gives it.
///
/// ```
/// use doyen::config::{Defaults, Options};
///
/// let options = Options { advertise_resp: Some("192.0.2.7:9379".parse()?), ..Options::default() };
/// let config = options.resolve(Defaults::Binary)?;
/// let address = config.advertise_resp.expect("it was given");
/// assert_eq!((address.ip.to_string(), address.port), ("192.0.2.7".to_owned(), Some(9379)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAddress {
    /// The IP address; of a name, the first address that it resolves to on this machine.
    pub ip: IpAddr,
    /// The name, if one was given. Cluster-aware clients are sent to that name.
    pub name: Option<String>,
    /// The port, if it is not the one that the node listens on.
    pub port: Option<u16>,
}

impl ClientAddress {
    fn of(flag: &str, text: &str) -> Result<Self, ConfigError> {
        let address = parsed(flag, text)?;
        let found = candidates(flag, text)?;
        let ip = found
            .iter()
            .find(|a| a.is_ipv4())
            .or(found.first())
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), SocketAddr::ip);
        match address.port() {
            Some(0) => fail(format!(
                "{flag}: `{text}` has port 0, which no client can reach: give the port, or leave \
                 it out"
            )),
            port => Ok(Self {
                ip,
                name: address.name().map(str::to_owned),
                port,
            }),
        }
    }
}

/// The configuration of a client.
#[derive(Debug)]
pub(crate) struct ClientConfig {
    pub(crate) trust: Trust,
    /// Data ports, as `host:port`.
    pub(crate) seeds: Vec<String>,
    pub(crate) name: String,
    /// Warnings about files with secrets that other users of this machine can read.
    pub(crate) exposed: Vec<String>,
}

impl Options {
    /// Reads a TOML file. Needs the feature `flags`.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has a key that is not an option.
    #[cfg(feature = "flags")]
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::from_text(&read(path, "--config")?, &path.display().to_string())
    }

    /// Parses TOML. Errors call the text by this name.
    #[cfg(feature = "flags")]
    pub(crate) fn from_text(text: &str, name: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let before = e
                .span()
                .and_then(|s| text.get(..s.start))
                .unwrap_or_default();
            let at = before.matches('\n').count();
            let message = e.message().lines().next().unwrap_or_default();
            let message = unknown_key(message).unwrap_or_else(|| {
                // The value may be a secret, so only the key is shown.
                let line = text.lines().nth(at).unwrap_or_default();
                let key = line.split_once('=').map_or("", |(key, _)| key.trim());
                match key {
                    "" => plain_toml(message),
                    key => format!("`{key}`: {}", plain_toml(message)),
                }
            });
            ConfigError(format!("{name} line {}: {message}", at + 1))
        })
    }

    /// Fills in defaults, reads the files that are named, and checks the rules of security.
    ///
    /// # Errors
    /// The options contradict each other or cannot be used; the message has one line.
    pub fn resolve(self, defaults: Defaults) -> Result<Config, ConfigError> {
        if let Some(preset) = self.preset {
            let own = Self {
                preset: None,
                ..self
            };
            return own.or(preset.options()).resolve(defaults);
        }
        let trust = self.trust(&[TrustRole::Member])?;
        let advertise = self
            .advertise
            .as_deref()
            .map(|a| candidates("--advertise", a))
            .transpose()?;
        // If the advertised address is IPv6, listen at an IPv6 address.
        let v6 = advertise
            .as_ref()
            .is_some_and(|found| found.iter().all(SocketAddr::is_ipv6));
        let default_ip: IpAddr = match (trust == Trust::Loopback, v6) {
            (true, false) => Ipv4Addr::LOCALHOST.into(),
            (true, true) => Ipv6Addr::LOCALHOST.into(),
            (false, false) => Ipv4Addr::UNSPECIFIED.into(),
            (false, true) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listen = address(
            "--listen",
            self.listen.as_deref(),
            SocketAddr::from((default_ip, CONTROL_PORT)),
        )?;
        let data = self
            .data
            .as_deref()
            .map(|a| address("--data", Some(a), SocketAddr::from((listen.ip(), 0))))
            .transpose()?;
        if trust == Trust::Loopback {
            for (flag, address) in [("--listen", Some(listen)), ("--data", data)] {
                if let Some(a) = address.filter(|a| !a.ip().is_loopback()) {
                    return fail(format!(
                        "{flag} {a} is not a loopback address, and without a secret a node binds \
                         only to loopback addresses: give --secret-file FILE (or DOYEN_SECRET), \
                         or --tls-ca, --tls-cert and --tls-key"
                    ));
                }
            }
        }
        let client_port = |flag, said: &Option<Toggle>, port, built: bool| match (said, defaults) {
            (Some(Toggle::Off), _) | (None, Defaults::Embedded) => Ok(None),
            // A build without this protocol has no such default.
            (None, Defaults::Binary) => {
                Ok(built.then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
            }
            (Some(Toggle::On(text)), _) => address(
                flag,
                Some(text),
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            )
            .map(Some),
        };
        let built = cfg!(feature = "resp");
        let resp = client_port("--resp", &self.resp, RESP_PORT, built)?;
        let cluster = &self.resp_cluster;
        let resp_cluster = client_port("--resp-cluster", cluster, RESP_CLUSTER_PORT, built)?;
        resp_is_built(resp, resp_cluster)?;
        let http = client_port("--http", &self.http, HTTP_PORT, cfg!(feature = "http"))?;
        http_is_built(http)?;
        let resp_password = self
            .resp_password_file
            .as_deref()
            .map(|p| read_line(p, "--resp-password-file"))
            .transpose()?;
        if let (Some(_), Some(file)) = (&resp_password, &self.resp_acl_file) {
            return fail(format!(
                "--resp-password-file and --resp-acl-file exclude each other: put the password \
                 into {}, as `user default on >PASSWORD ~* &* +@all`",
                file.display()
            ));
        }
        let open = match &self.resp_acl_file {
            Some(file) => users_are_open(file)?,
            None => resp_password.is_none(),
        };
        if open {
            for (flag, address) in [("--resp", resp), ("--resp-cluster", resp_cluster)] {
                if let Some(a) = address.filter(|a| !a.ip().is_loopback()) {
                    return fail(format!(
                        "{flag} {a} is not a loopback address, and RESP beyond this machine needs \
                         a password: give --resp-password-file FILE, or --resp-acl-file FILE \
                         with a user `default` that is off or has a password"
                    ));
                }
            }
        }
        let resp_tls = self.resp_tls(&trust)?;
        if let Some(a) = http.filter(|a| {
            !a.ip().is_loopback()
                && self.http_token_file.is_none()
                && !matches!(trust, Trust::Secret { .. })
        }) {
            return fail(format!(
                "--http {a} is not a loopback address, and HTTP beyond this machine needs a \
                 token: give --http-token-file FILE, or --secret-file FILE, which yields a token"
            ));
        }
        let http_tls = self.http_tls(http, &trust)?;
        let advertise = advertise
            .map(|found| reachable(&found, listen, data))
            .transpose()?;
        let advertise_resp = self
            .advertise_resp
            .as_deref()
            .map(|a| ClientAddress::of("--advertise-resp", a))
            .transpose()?;
        let advertise_resp_cluster = self
            .advertise_resp_cluster
            .as_deref()
            .map(|a| ClientAddress::of("--advertise-resp-cluster", a))
            .transpose()?;
        if resp.is_none() && advertise_resp.as_ref().is_some_and(|a| a.port.is_some()) {
            return fail(
                "--advertise-resp gives a port for --resp, which is off: leave the port out, or \
                 give --advertise-resp-cluster"
                    .into(),
            );
        }
        if resp_cluster.is_none() && advertise_resp_cluster.is_some() {
            return fail(
                "--advertise-resp-cluster needs --resp-cluster, which is off: turn it on".into(),
            );
        }
        let keyspace = self.keyspace()?;
        let seeds = self.seeds("--seed", CONTROL_PORT)?;
        let elsewhere = |s: &&String| s.parse::<SocketAddr>().is_ok_and(|a| !a.ip().is_loopback());
        if let Some(seed) = seeds
            .iter()
            .find(elsewhere)
            .filter(|_| trust == Trust::Loopback)
        {
            return fail(format!(
                "--seed {seed} is on another machine, but without a secret a node talks only to \
                 nodes on this machine: give --secret-file FILE (or DOYEN_SECRET), or --tls-ca, \
                 --tls-cert and --tls-key"
            ));
        }
        let memory = {
            // The program that embeds a node needs the larger part of the memory for itself.
            let quarters = match defaults {
                Defaults::Binary => 3,
                Defaults::Embedded => 1,
            };
            Memory::resolve(
                self.memory_max.map(|size| size.0),
                memory::bound(),
                quarters,
            )
        };
        let memory_bytes_max = bytes(Size(memory.bytes));
        let threads = self.threads()?;
        if let Some(port) = advertise_resp_cluster.as_ref().and_then(|a| a.port)
            && port.checked_add(u16::from(threads) - 1).is_none()
        {
            return fail(format!(
                "--advertise-resp-cluster begins at port {port}, and each of --threads {threads} \
                 needs a port from there on: give a lower port"
            ));
        }
        if memory_bytes_max / usize::from(threads) < MEMORY_BYTES_LEAST {
            let least = MEMORY_BYTES_LEAST >> 20;
            return fail(format!(
                "--memory-max {memory_bytes_max} is too small: give at least {least}mb for each \
                 of --threads {threads}"
            ));
        }
        // By default, a value may have a fixed part of a data thread's memory.
        let value_bytes_max = self.value_max.map_or(
            (16 << 20).min(memory_bytes_max / usize::from(threads) / VALUE_PART),
            bytes,
        );
        if value_bytes_max < VALUE_BYTES_LEAST {
            return fail(format!(
                "--value-max {value_bytes_max} is too small: give at least {VALUE_BYTES_LEAST} \
                 bytes"
            ));
        }
        if value_bytes_max > VALUE_BYTES_MOST {
            return fail(format!(
                "--value-max {value_bytes_max} is too large: give at most {}mb, because a value \
                 travels in one piece",
                VALUE_BYTES_MOST >> 20
            ));
        }
        if self.value_max.is_some() && value_bytes_max > memory_bytes_max {
            return fail(format!(
                "--value-max {value_bytes_max} is more than --memory-max {memory_bytes_max}: give \
                 a lower value, or more memory"
            ));
        }
        if self.value_max.is_some() && value_bytes_max > memory_bytes_max / usize::from(threads) {
            return fail(format!(
                "--value-max {value_bytes_max} is more than the part of --memory-max \
                 {memory_bytes_max} that each of --threads {threads} has: give a lower value, \
                 more memory, or fewer threads"
            ));
        }
        let range_bytes_max = self.range_max.map_or(64 << 20, bytes);
        if range_bytes_max < RANGE_BYTES_LEAST {
            return fail(format!(
                "--range-max {range_bytes_max} would split ranges without end: give at least 64kb"
            ));
        }
        Ok(Config {
            seeds,
            expect: at_least("--expect", self.expect, 1)?,
            listen,
            data,
            threads,
            resp,
            resp_cluster,
            http,
            http_hosts: self.http_hosts()?,
            advertise,
            advertise_resp,
            advertise_resp_cluster,
            name: self
                .name
                .as_deref()
                .filter(|n| !n.is_empty())
                .map(member_name)
                .transpose()?,
            location: Location {
                zone: label("--zone", self.zone.as_deref().unwrap_or_default())?,
                rack: label("--rack", self.rack.as_deref().unwrap_or_default())?,
                host: label("--host", self.host.as_deref().unwrap_or_default())?,
            },
            weight: weight(self.weight)?,
            role: if self.witness.unwrap_or(false) {
                Role::Witness
            } else {
                Role::Data
            },
            trust,
            http_token_file: self.http_tokens_checked()?,
            resp_tls,
            http_tls,
            resp_password,
            resp_acl_file: self.resp_acl_file.clone(),
            resp_auth_timeout: Some(self.resp_auth_timeout.map_or(AUTH_TIMEOUT_DEFAULT, |s| s.0))
                .filter(|t| !t.is_zero()),
            resp_idle_timeout: self.resp_idle_timeout.map(|s| s.0).filter(|t| !t.is_zero()),
            resp_tcp_keepalive: self.resp_tcp_keepalive.map_or(KEEPALIVE_DEFAULT, |s| s.0),
            key_events: self.notify_keyspace_events.unwrap_or_default(),
            strict_transactions: self.strict_transactions.unwrap_or(false),
            memory_bytes_max,
            memory,
            whole_process: defaults == Defaults::Binary,
            value_bytes_max,
            range_bytes_max,
            connections_max: at_least("--connections-max", self.connections_max, 1)?
                .unwrap_or(10_000) as usize,
            clients_max: self.clients_max.unwrap_or(1_000) as usize,
            leave_timeout: self.leave_timeout.map_or(LEAVE_TIMEOUT_DEFAULT, |s| s.0),
            level_max: self.level_max()?,
            silence_max: self.silence_max()?,
            exposed: self.exposed(),
            settings: Settings {
                voters_max: at_least("--voters-max", self.voters_max, 1)?.unwrap_or(7),
                members_min: at_least("--members-min", self.members_min, 1)?.unwrap_or(1),
                assignment: self.assignment.map_or(Assignment::RoundRobin, |a| a.0),
                schedulers: Schedulers::ALL,
                balancing: doyen_placement::Balancing::default(),
            },
            keyspace,
        })
    }

    /// The options of a client: trust, seeds (data ports), and its name.
    ///
    /// # Errors
    /// The options contradict each other or cannot be used; the message has one line.
    pub(crate) fn client(&self) -> Result<ClientConfig, ConfigError> {
        let trust = self.trust(&[TrustRole::Client, TrustRole::Member])?;
        let seeds = self.seeds("the seed", DATA_PORT)?;
        if seeds.is_empty() {
            return fail(format!(
                "a client needs a seed: give the data address (--data, by default port \
                 {DATA_PORT}) of a node"
            ));
        }
        let elsewhere = |s: &&String| s.parse::<SocketAddr>().is_ok_and(|a| !a.ip().is_loopback());
        if let Some(seed) = seeds
            .iter()
            .find(elsewhere)
            .filter(|_| trust == Trust::Loopback)
        {
            return fail(format!(
                "the seed {seed} is on another machine, but without a secret a client talks only \
                 to nodes on this machine: give the secret of the nodes, or certificates"
            ));
        }
        let name = self
            .name
            .as_deref()
            .filter(|n| !n.is_empty())
            .map_or_else(|| Ok("client".to_owned()), |n| label("the name", n))?;
        Ok(ClientConfig {
            trust,
            seeds,
            name,
            exposed: self.exposed(),
        })
    }

    /// The file of HTTP tokens, if it has some.
    fn http_tokens_checked(&self) -> Result<Option<PathBuf>, ConfigError> {
        if let Some(path) = &self.http_token_file {
            http_tokens(path, "--http-token-file")?;
        }
        Ok(self.http_token_file.clone())
    }

    /// The host names that HTTP answers to.
    fn http_hosts(&self) -> Result<Vec<String>, ConfigError> {
        let said = self.http_host.clone().unwrap_or_default();
        if let Some(wrong) = said.iter().find(|name| {
            name.is_empty()
                || name.contains([':', '/', '*'])
                || !name.bytes().all(|b| b.is_ascii_graphic())
        }) {
            return fail(format!(
                "--http-host `{}` is not a host name: give a name without a port, as in \
                 node-1.example.com",
                wrong.escape_debug()
            ));
        }
        let http = match &self.http {
            Some(Toggle::On(text)) => Some(text),
            Some(Toggle::Off) | None => None,
        };
        let addresses = [
            http,
            self.listen.as_ref(),
            self.advertise.as_ref(),
            self.advertise_resp.as_ref(),
            self.advertise_resp_cluster.as_ref(),
        ];
        // HTTP always answers to IP addresses.
        let name = |text: &String| Some(text.parse::<Address>().ok()?.name()?.to_owned());
        Ok(said
            .into_iter()
            .chain(addresses.into_iter().flatten().filter_map(name))
            .collect())
    }

    fn threads(&self) -> Result<u8, ConfigError> {
        let said = self.threads.unwrap_or(1);
        match u8::try_from(said)
            .ok()
            .filter(|n| (1..=THREADS_MAX).contains(n))
        {
            Some(threads) => Ok(threads),
            None => fail(format!(
                "--threads {said}: a node has 1 to {THREADS_MAX} data threads"
            )),
        }
    }

    fn level_max(&self) -> Result<u16, ConfigError> {
        let (least, most) = LEVELS;
        match self.level_max.unwrap_or(most) {
            fits if (least..=most).contains(&fits) => Ok(fits),
            other => fail(format!(
                "--level-max {other}: this program speaks the levels {least} to {most}; choose \
                 one of them"
            )),
        }
    }

    fn silence_max(&self) -> Result<Duration, ConfigError> {
        match self.silence_max.map_or(SILENCE_DEFAULT, |s| s.0) {
            fits if SILENCE.contains(&fits) => Ok(fits),
            other => fail(format!(
                "--silence-max {other:?} is out of range: give {:?} to {:?}",
                SILENCE.start(),
                SILENCE.end()
            )),
        }
    }

    /// `roles`: whose secrets fit, the one to recommend first.
    fn trust(&self, roles: &[TrustRole]) -> Result<Trust, ConfigError> {
        let secrets = match (&self.secret_file, &self.secret) {
            (Some(path), _) => Some((secrets_of(path, "--secret-file")?, self.secret_file.clone())),
            (None, Some(said)) => {
                let unusable = |e| ConfigError(format!("the secret: {e}"));
                Some((Secrets::of_bytes(said).map_err(unusable)?, None))
            }
            (None, None) => None,
        };
        match (secrets, &self.tls_ca, &self.tls_cert, &self.tls_key) {
            (None, None, None, None) if self.tls_crl.is_some() => {
                fail("--tls-crl needs --tls-ca, --tls-cert and --tls-key: give all of them".into())
            }
            (None, None, None, None) => Ok(Trust::Loopback),
            (Some((secrets, file)), None, None, None) => {
                let role = secrets.role();
                if roles.contains(&role) {
                    return Ok(Trust::Secret { secrets, file });
                }
                let wanted = roles.first().copied().unwrap_or(TrustRole::Member);
                let place = file.map_or_else(
                    || "the secret".to_owned(),
                    |path| format!("{} (--secret-file)", path.display()),
                );
                fail(format!("{place}: {}", other_role(role, wanted)))
            }
            (None, Some(ca), Some(cert), Some(key)) => {
                let mut files = PemFiles::new(ca, cert, key);
                files.crl.clone_from(&self.tls_crl);
                files.role_prefix = self
                    .tls_role_prefix
                    .clone()
                    .unwrap_or_else(|| ROLE_PREFIX.to_owned());
                let named = [("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)];
                let crl = self.tls_crl.iter().map(|crl| ("--tls-crl", crl));
                for (flag, path) in named.into_iter().chain(crl) {
                    read(path, flag)?;
                }
                Ok(Trust::Pem(files))
            }
            (None, ..) => {
                fail("--tls-ca, --tls-cert and --tls-key belong together: give all three".into())
            }
            (Some(_), ..) => {
                fail("a secret and --tls-* files exclude each other: give only one of them".into())
            }
        }
    }

    fn resp_tls(&self, trust: &Trust) -> Result<Option<PortTls>, ConfigError> {
        let files = [
            ("--resp-tls-cert", &self.resp_tls_cert),
            ("--resp-tls-key", &self.resp_tls_key),
            ("--resp-tls-client-ca", &self.resp_tls_client_ca),
        ];
        if !self.resp_tls.unwrap_or(false) {
            if self.resp_tls_min.is_some() {
                return fail("--resp-tls-min needs --resp-tls: give that as well".into());
            }
            return match files.into_iter().find(|(_, path)| path.is_some()) {
                Some((flag, _)) => fail(format!("{flag} needs --resp-tls: give that as well")),
                None => Ok(None),
            };
        }
        if let Some(path) = &self.resp_tls_client_ca {
            read(path, "--resp-tls-client-ca")?;
        }
        Ok(Some(PortTls {
            pair: pair_of([files[0], files[1]], trust, "--resp-tls")?,
            client_ca: self.resp_tls_client_ca.clone(),
            min: self.resp_tls_min.unwrap_or_default(),
        }))
    }

    /// TLS of HTTP at this address. Beyond loopback it is the default, because requests carry
    /// tokens.
    fn http_tls(
        &self,
        http: Option<SocketAddr>,
        trust: &Trust,
    ) -> Result<Option<PortTls>, ConfigError> {
        let files = [
            ("--http-tls-cert", &self.http_tls_cert),
            ("--http-tls-key", &self.http_tls_key),
        ];
        let insecure = self.http_insecure.unwrap_or(false);
        let beyond = http.filter(|address| !address.ip().is_loopback());
        let given = files.iter().any(|(_, path)| path.is_some());
        let wanted = self
            .http_tls
            .unwrap_or(!insecure && (given || beyond.is_some()));
        if wanted && insecure {
            return fail(
                "--http-tls and --http-insecure exclude each other: give only one of them".into(),
            );
        }
        if wanted && http.is_some() {
            return Ok(Some(PortTls {
                pair: pair_of(files, trust, "HTTP with TLS")?,
                client_ca: None,
                min: TlsMin::V13,
            }));
        }
        if let Some((flag, _)) = files.into_iter().find(|(_, path)| path.is_some()) {
            return fail(format!(
                "{flag} is for HTTP with TLS, which is off: leave it out"
            ));
        }
        if let Some(address) = beyond.filter(|_| !insecure) {
            return fail(format!(
                "--http {address} is not a loopback address, and without TLS, who reads the \
                 network sees tokens: leave --http-tls=false out, or give --http-insecure"
            ));
        }
        Ok(None)
    }

    /// Warnings about files with secrets that other users of this machine can read.
    fn exposed(&self) -> Vec<String> {
        let files = [
            ("--secret-file", &self.secret_file),
            ("--resp-password-file", &self.resp_password_file),
            ("--resp-acl-file", &self.resp_acl_file),
            ("--http-token-file", &self.http_token_file),
            ("--tls-key", &self.tls_key),
            ("--resp-tls-key", &self.resp_tls_key),
            ("--http-tls-key", &self.http_tls_key),
        ];
        files
            .into_iter()
            .filter_map(|(flag, path)| exposure(flag, path.as_deref()?))
            .collect()
    }

    fn seeds(&self, flag: &str, port: u16) -> Result<Vec<String>, ConfigError> {
        if self.seed.len() > SEEDS_MAX {
            return fail(format!(
                "{} seeds are given, but at most {SEEDS_MAX} are allowed: give fewer",
                self.seed.len()
            ));
        }
        self.seed
            .iter()
            .map(|s| {
                parsed(flag, s)?
                    .with_port(port)
                    .map_err(|why| of_flag(flag, &why))
            })
            .collect()
    }

    fn keyspace(&self) -> Result<Keyspace, ConfigError> {
        let (partitions, backups) = (self.partitions, self.backups);
        let (min_in_sync, on_loss, eviction) = (self.min_in_sync, self.on_loss, self.eviction);
        let wanted = KeyspaceOptions {
            partitions,
            backups,
            min_in_sync,
            on_loss,
            eviction,
            ..KeyspaceOptions::new()
        };
        Ok(wanted.create(DEFAULT_KEYSPACE)?.numbered(KeyspaceId(0)))
    }
}

/// The prefix of Doyen's variables.
#[cfg(feature = "flags")]
const VARIABLES: &str = "DOYEN_";
/// Variables that are not options of a node.
#[cfg(feature = "flags")]
const FURTHER_VARIABLES: [&str; 5] = [
    "DOYEN_CONFIG",
    "DOYEN_SECRET",
    "DOYEN_BENCH_PASSWORD",
    "DOYEN_NODE",
    "DOYEN_ADDRESS",
];

impl Config {
    /// Whether this node must refuse every request by HTTP until there are named tokens: HTTP is
    /// on, but there is neither a secret nor a file of tokens.
    pub fn takes_no_commands(&self) -> bool {
        self.http.is_some() && self.http_token_file.is_none() && matches!(self.trust, Trust::Pem(_))
    }

    /// The address at which others reach a socket that listens on `bound`.
    ///
    /// # Errors
    /// The socket listens on every interface, and no interface is clearly the right one.
    pub fn advertised(&self, bound: SocketAddr) -> Result<SocketAddr, ConfigError> {
        let ip = match self.advertise {
            Some(a) => a.ip(),
            None if !bound.ip().is_unspecified() => bound.ip(),
            None => self.outgoing_ip(bound).ok_or_else(|| {
                ConfigError(format!(
                    "--listen {bound} does not say where other nodes reach this \
                                     one: give --advertise ADDRESS"
                ))
            })?,
        };
        Ok(SocketAddr::new(ip, bound.port()))
    }

    /// The address that this machine would use towards the first seed. Connecting a UDP socket
    /// sends nothing.
    fn outgoing_ip(&self, bound: SocketAddr) -> Option<IpAddr> {
        let reach = Reach::of(bound);
        let seeds = self
            .seeds
            .iter()
            .filter_map(|s| s.to_socket_addrs().ok())
            .flatten()
            .map(canonical);
        // Without seeds, use an address that is reserved for documentation.
        let anywhere: [IpAddr; 2] = [
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ];
        let towards = seeds
            .chain(anywhere.map(|ip| SocketAddr::new(ip, 9)))
            .filter(|a| reach.takes(a.ip()));
        let from = |towards: SocketAddr| {
            // Use a socket of the destination's family: a socket on [::] does not connect to an
            // IPv4 address.
            let any: IpAddr = if towards.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
            socket.connect(towards).ok()?;
            Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
        };
        towards.into_iter().find_map(from)
    }
}

/// Whether these RESP ports are part of this build, if there are any.
///
/// # Errors
/// They are not, and how to change that.
pub(crate) fn resp_is_built(
    resp: Option<SocketAddr>,
    resp_cluster: Option<SocketAddr>,
) -> Result<(), ConfigError> {
    let doors = [("--resp", resp), ("--resp-cluster", resp_cluster)];
    is_built("RESP", "resp", cfg!(feature = "resp"), &doors)
}

/// As [`resp_is_built`], for HTTP.
pub(crate) fn http_is_built(http: Option<SocketAddr>) -> Result<(), ConfigError> {
    is_built("HTTP", "http", cfg!(feature = "http"), &[("--http", http)])
}

/// Whether RESP clients need no password, with the users of this file.
#[cfg(feature = "resp")]
fn users_are_open(file: &Path) -> Result<bool, ConfigError> {
    let users = crate::resp::acl::file::load(file).map_err(ConfigError)?;
    Ok(crate::resp::acl::users::Users::new(users.into(), None).is_open())
}

/// This build has no RESP, so that the file has no use.
#[cfg(not(feature = "resp"))]
fn users_are_open(_: &Path) -> Result<bool, ConfigError> {
    fail("this program is built without RESP, which --resp-acl-file is for: leave it out".into())
}

/// Refuses the addresses of a door that this program is built without.
fn is_built(
    door: &str,
    feature: &str,
    built: bool,
    addresses: &[(&str, Option<SocketAddr>)],
) -> Result<(), ConfigError> {
    for (flag, address) in addresses {
        if let (Some(address), false) = (address, built) {
            return fail(format!(
                "this program is built without {door}, which {flag} {address} asks for: switch on \
                 the feature `{feature}` of the crate `doyen`, or leave {flag} out"
            ));
        }
    }
    Ok(())
}

fn fail<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError(message))
}

/// A message about a wrong value, without Rust's names of types.
#[cfg(feature = "flags")]
fn plain_toml(message: &str) -> String {
    let quotes = ["invalid basic string", "string values must be quoted"];
    if quotes.iter().any(|begin| message.starts_with(begin)) {
        return "a text stands in quotes: write \"...\"".to_owned();
    }
    if message == "duplicate key" {
        return "this key stands in the file twice: remove one of them".to_owned();
    }
    let Some((found, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number",
        "a sequence" => "a list such as [\"a\", \"b\"]",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        other => other,
    };
    format!("{found}, but {expected} is expected")
}

/// Serde's message about an unknown key, with the nearest key instead of all keys.
#[cfg(feature = "flags")]
fn unknown_key(message: &str) -> Option<String> {
    let mut words = message
        .strip_prefix("unknown field ")?
        .split('`')
        .skip(1)
        .step_by(2);
    let wrong = words.next()?;
    let hint = match nearest(wrong, words) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "the keys are the flags of `doyen run --help`, without the --".into(),
    };
    Some(format!("there is no key `{wrong}`: {hint}"))
}

/// Warnings about variables `DOYEN_*` that no command reads, given the names of all variables.
///
/// ```
/// let names = ["DOYEN_SEED", "DOYEN_MEMORY", "PATH"].map(str::to_owned);
/// let warnings = doyen::config::unread_variables(names.into_iter());
/// assert_eq!(warnings.len(), 1, "DOYEN_MEMORY_MAX was probably meant: {warnings:?}");
/// ```
#[cfg(feature = "flags")]
pub fn unread_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let run = <Options as clap::Args>::augment_args(clap::Command::new("run"));
    let of_flags = run
        .get_arguments()
        .filter_map(|arg| arg.get_env()?.to_str());
    let known: BTreeSet<&str> = of_flags
        .chain(FURTHER_VARIABLES)
        .filter_map(|name| name.strip_prefix(VARIABLES))
        .collect();
    // For a service named `doyen`, Kubernetes and Docker set such variables in every other
    // container.
    let link = |name: &str| {
        let parts = ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"];
        let name = format!("_{name}");
        name.ends_with("_PORT") || parts.iter().any(|part| name.contains(part))
    };
    let mut unread: Vec<String> = names
        .filter_map(|name| name.strip_prefix(VARIABLES).map(str::to_owned))
        .collect();
    unread.retain(|name| !known.contains(name.as_str()) && !link(name));
    unread.sort();
    let said = unread
        .iter()
        .map(|wrong| match nearest(wrong, known.iter().copied()) {
            Some(name) => format!(
                "the variable {VARIABLES}{wrong} has no effect: did you mean \
                               {VARIABLES}{name}?"
            ),
            None => format!(
                "the variable {VARIABLES}{wrong} has no effect: `doyen run --help` lists \
                         the variable of each flag"
            ),
        });
    said.collect()
}

/// The name that was probably meant, if one is near enough.
#[cfg(feature = "flags")]
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // `loglevel` is near `log`, and `password` near `resp-password-file`, however many letters
    // differ.
    let akin = |name: &str| wrong.len() > 2 && (name.contains(wrong) || wrong.starts_with(name));
    let nearest = names
        .map(|name| (if akin(name) { 1 } else { distance(wrong, name) }, name))
        .min();
    nearest
        .filter(|(distance, name)| distance * 2 <= name.len())
        .map(|(_, name)| name)
}

/// How many letters must be added, dropped or changed to turn one text into the other.
#[cfg(feature = "flags")]
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().take(NAME_BYTES_MAX).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            // A key with _ instead of - is nearly right.
            let same = a == *b || (a, *b) == ('_', '-');
            let best = (row[j] + 1)
                .min(row[j + 1] + 1)
                .min(diagonal + usize::from(!same));
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[to.len()]
}

/// The address that a flag gives. Missing parts come from `default`.
///
/// ```
/// use doyen::config::address;
///
/// let default = "127.0.0.1:7400".parse()?;
/// assert_eq!(address("--listen", Some(":9000"), default)?.to_string(), "127.0.0.1:9000");
/// assert_eq!(address("--listen", None, default)?, default);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn address(
    flag: &str,
    said: Option<&str>,
    default: SocketAddr,
) -> Result<SocketAddr, ConfigError> {
    let Some(text) = said else { return Ok(default) };
    let found = parsed(flag, text)?
        .resolve(default)
        .map_err(|why| of_flag(flag, &why))?;
    Ok(found.first().copied().unwrap_or(default))
}

/// All addresses that a flag may mean. A missing port is 0.
fn candidates(flag: &str, text: &str) -> Result<Vec<SocketAddr>, ConfigError> {
    let found = parsed(flag, text)?
        .resolve(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        .map_err(|why| of_flag(flag, &why))?;
    let names_none = |ip: IpAddr| {
        ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
    };
    match found.iter().any(|a| names_none(a.ip())) {
        true => fail(format!(
            "{flag}: `{text}` is not the address of a machine: give the address at which other \
             nodes reach this one"
        )),
        false => Ok(found),
    }
}

/// The first address of `--advertise` at which this node would receive datagrams.
fn reachable(
    advertise: &[SocketAddr],
    listen: SocketAddr,
    data: Option<SocketAddr>,
) -> Result<SocketAddr, ConfigError> {
    let ports = [Some(("--listen", listen)), data.map(|d| ("--data", d))];
    let deaf = |a: &SocketAddr| {
        ports
            .into_iter()
            .flatten()
            .find(|(_, port)| !Reach::of(*port).takes(a.ip()))
    };
    if let Some(found) = advertise.iter().find(|a| deaf(a).is_none()) {
        return Ok(*found);
    }
    let Some((first, (flag, at))) = advertise.first().and_then(|a| Some((a, deaf(a)?))) else {
        return fail(
            "--advertise gives no address: give the one at which other nodes reach this one".into(),
        );
    };
    let (has, takes) = if first.is_ipv4() {
        ("IPv4", "IPv6")
    } else {
        ("IPv6", "IPv4")
    };
    let (ip, port) = (first.ip(), at.port());
    fail(format!(
        "--advertise {ip} is an {has} address, but {flag} {at} takes only {takes}: give {flag} \
         [::]:{port}, which takes both"
    ))
}

fn parsed(flag: &str, text: &str) -> Result<Address, ConfigError> {
    text.parse().map_err(|why: String| of_flag(flag, &why))
}

fn of_flag(flag: &str, why: &str) -> ConfigError {
    ConfigError(format!("{flag}: {why}"))
}

fn label(flag: &str, text: &str) -> Result<String, ConfigError> {
    // Rules of placement cannot name any other text.
    if text.len() > VALUE_BYTES_MAX || !text.bytes().all(|c| c.is_ascii_graphic()) {
        let shown = text.chars().take(VALUE_BYTES_MAX).collect::<String>();
        return fail(format!(
            "{flag} `{}` is too long or has other characters: give at most {VALUE_BYTES_MAX} \
             visible ASCII characters without spaces",
            shown.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

fn member_name(text: &str) -> Result<String, ConfigError> {
    if text.contains('~') {
        return fail(format!(
            "--name `{}` contains `~`, which marks a process whose name another one has taken: \
             give a name without it",
            text.escape_debug()
        ));
    }
    label("--name", text)
}

/// The files of a certificate and its key, which must be given both; `None`: neither is given, and
/// what nodes trust each other by has one.
fn pair_of(
    [cert, key]: [(&str, &Option<PathBuf>); 2],
    trust: &Trust,
    what: &str,
) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
    match (cert.1, key.1) {
        (Some(certificate), Some(of)) => {
            read(certificate, cert.0)?;
            read(of, key.0)?;
            Ok(Some((certificate.clone(), of.clone())))
        }
        (None, None) if *trust == Trust::Loopback => fail(format!(
            "{what} needs a certificate: give {} and {}, or --secret-file FILE, which yields one",
            cert.0, key.0
        )),
        (None, None) => Ok(None),
        _ => fail(format!(
            "{} and {} belong together: give both",
            cert.0, key.0
        )),
    }
}

fn weight(said: Option<u32>) -> Result<u32, ConfigError> {
    match at_least("--weight", said, 1)? {
        Some(weight) if weight > WEIGHT_MAX => fail(format!(
            "--weight {weight} is too high: give at most {WEIGHT_MAX}; the default is 100"
        )),
        said => Ok(said.unwrap_or(100)),
    }
}

fn at_least<T: PartialOrd + fmt::Display>(
    flag: &str,
    value: Option<T>,
    least: T,
) -> Result<Option<T>, ConfigError> {
    match value {
        Some(v) if v < least => fail(format!("{flag} {v} is too low: give at least {least}")),
        other => Ok(other),
    }
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// A warning if all users of this machine can read a file with a secret. The file's group may read
/// it: groups of users and volumes of containers share secrets that way.
fn exposure(flag: &str, path: &Path) -> Option<String> {
    let mode = fs::metadata(path)
        .ok()
        .filter(fs::Metadata::is_file)?
        .permissions()
        .mode();
    let path = path.display();
    (mode & OTHERS_READ != 0).then(|| {
        format!("every user of this machine can read {path} ({flag}): run `chmod 600 {path}`")
    })
}

/// Reads a short text file.
fn read(path: &Path, flag: &str) -> Result<String, ConfigError> {
    let cannot = |why: &str| ConfigError(format!("cannot read {} ({flag}): {why}", path.display()));
    let bytes = read_bytes(path).map_err(|why| cannot(&why))?;
    String::from_utf8(bytes).map_err(|_| cannot("it is not text"))
}

/// The secrets in a file.
///
/// ```no_run
/// use doyen::config::secrets_of;
///
/// let secrets = secrets_of("/etc/doyen/member".as_ref(), "--secret-file")?;
/// let (all, signs) = (secrets.lines().len(), secrets.first().fingerprint());
/// println!("{all} secrets, and this one signs: {signs}");
/// # Ok::<(), doyen::config::ConfigError>(())
/// ```
///
/// # Errors
/// It cannot be read, or has no usable secret. The message names the file and the flag.
pub fn secrets_of(path: &Path, flag: &str) -> Result<Secrets, ConfigError> {
    Secrets::of_file(path, flag).map_err(ConfigError)
}

/// Reads a file without its line end.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(&file, "a token\n")?;
/// assert_eq!(doyen::config::read_line(file.path(), "--http-token-file")?, "a token");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn read_line(path: &Path, flag: &str) -> Result<String, ConfigError> {
    let text = read(path, flag)?;
    let text = text.trim();
    if text.is_empty() {
        return fail(format!(
            "{} ({flag}) is empty: it must have one line",
            path.display()
        ));
    }
    if let Some(wrong) = text.chars().find(|c| c.is_control() && *c != '\t') {
        return fail(format!(
            "{} ({flag}) has the control character {wrong:?}: it must have one line of text; \
             `openssl rand -hex 32` makes one",
            path.display()
        ));
    }
    Ok(text.to_owned())
}

/// The tokens in a file, one a line: nodes take all of them, and the commands of `doyen` send the
/// first. Empty lines, and lines that begin with `#`, mean nothing.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(&file, "# until May\n0123456789abcdef\n\nfedcba9876543210\n")?;
/// let tokens = doyen::config::http_tokens(file.path(), "--http-token-file")?;
/// assert_eq!(*tokens[0], "0123456789abcdef");
/// assert_eq!(tokens.len(), 2);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The file cannot be read, has no token, more than 16, or one of less than 16 bytes or with
/// control characters. The message names the file and the flag.
pub fn http_tokens(
    path: &Path,
    flag: &str,
) -> Result<Vec<zeroize::Zeroizing<String>>, ConfigError> {
    let text = zeroize::Zeroizing::new(read(path, flag)?);
    tokens_of(&text, &format!("{} ({flag})", path.display()))
}

/// The tokens in the text of such a file; `place` names it.
pub(crate) fn tokens_of(
    text: &str,
    place: &str,
) -> Result<Vec<zeroize::Zeroizing<String>>, ConfigError> {
    let lines = text.lines().map(str::trim).zip(1..);
    let mut tokens = Vec::new();
    for (token, line) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
        if let Some(wrong) = token.chars().find(|c| c.is_control()) {
            return fail(format!(
                "line {line} of {place} has the control character {wrong:?}: each line \
                 must have one token; `openssl rand -hex 32` makes one"
            ));
        }
        if token.len() < TOKEN_BYTES_MIN {
            return fail(format!(
                "the token in line {line} of {place} has {} bytes, but at least \
                 {TOKEN_BYTES_MIN} are needed: make one with `openssl rand -hex 32`",
                token.len()
            ));
        }
        tokens.push(zeroize::Zeroizing::new(token.to_owned()));
    }
    match tokens.len() {
        0 => fail(format!(
            "{place} is empty: it must have a token; `openssl rand -hex 32` makes one"
        )),
        1..=TOKENS_MAX => Ok(tokens),
        many => fail(format!(
            "{place} has {many} tokens, but at most {TOKENS_MAX} are allowed: give \
             programs tokens of their own with `doyen token new NAME`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_placement::OnLoss;

    fn resolve(change: impl FnOnce(&mut Options)) -> Result<Config, ConfigError> {
        let mut options = Options::default();
        change(&mut options);
        options.resolve(Defaults::Binary)
    }

    #[test]
    fn a_door_that_is_not_built_is_refused_with_the_feature_to_switch_on() {
        let address = [(
            "--http",
            Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 7480))),
        )];
        let error = is_built("HTTP", "http", false, &address).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "this program is built without HTTP, which --http 127.0.0.1:7480 asks for: switch on \
             the feature `http` of the crate `doyen`, or leave --http out"
        );
        assert!(is_built("HTTP", "http", true, &address).is_ok());
        assert!(is_built("HTTP", "http", false, &[("--http", None)]).is_ok());
    }

    #[test]
    fn by_default_a_node_stays_on_loopback() {
        let config = resolve(|_| {}).expect("defaults hold");
        assert_eq!(config.listen.to_string(), "127.0.0.1:7400");
        assert_eq!(
            config.resp.map(|a| a.to_string()).as_deref(),
            cfg!(feature = "resp").then_some("127.0.0.1:7379")
        );
        assert_eq!(
            config.http.map(|a| a.to_string()).as_deref(),
            Some("127.0.0.1:7480")
        );
        assert_eq!(config.trust, Trust::Loopback);
    }

    #[test]
    fn by_default_an_embedded_node_opens_no_client_ports() {
        let config = Options::default()
            .resolve(Defaults::Embedded)
            .expect("defaults hold");
        assert_eq!(
            (config.resp, config.resp_cluster, config.http),
            (None, None, None)
        );
    }

    #[test]
    fn without_a_secret_only_loopback_is_bound() {
        let error = resolve(|o| o.listen = Some("0.0.0.0:7400".into())).expect_err("refused");
        assert!(error.0.contains("--secret-file"), "{error}");
        let config = resolve(|o| {
            o.listen = Some("0.0.0.0:7400".into());
            o.secret = Some(b"0123456789abcdef".to_vec());
        });
        assert!(config.is_ok());
    }

    #[test]
    fn a_short_secret_is_refused() {
        let error = resolve(|o| o.secret = Some(b"short".to_vec())).expect_err("refused");
        assert!(error.0.contains("at least 16"), "{error}");
    }

    #[cfg(not(feature = "resp"))]
    #[test]
    fn a_build_without_resp_refuses_its_ports_and_names_the_feature() {
        for change in [
            |o: &mut Options| o.resp = Some(Toggle::On("127.0.0.1:0".into())),
            |o: &mut Options| o.resp_cluster = Some(Toggle::On("127.0.0.1:0".into())),
        ] {
            let error = resolve(change).expect_err("refused");
            assert!(error.0.contains("feature `resp`"), "{error}");
        }
        let config = resolve(|o| o.resp = Some(Toggle::Off)).expect("it asks for none");
        assert_eq!((config.resp, config.resp_cluster), (None, None));
    }

    #[cfg(feature = "resp")]
    #[test]
    fn resp_beyond_loopback_needs_a_password() {
        for change in [
            |o: &mut Options| o.resp = Some(Toggle::On("0.0.0.0:0".into())),
            |o: &mut Options| o.resp_cluster = Some(Toggle::On("0.0.0.0:0".into())),
        ] {
            let error = resolve(change).expect_err("refused");
            assert!(error.0.contains("--resp-password-file"), "{error}");
        }
    }

    /// `HOST:PORT` that does not resolve used to be called "not an address".
    #[test]
    fn all_flags_with_an_address_report_the_same_errors() {
        let secret = || Some(b"0123456789abcdef".to_vec());
        let on = |text: &str| Some(Toggle::On(text.into()));
        type Say = fn(&mut Options, &str);
        let flags: [(&str, Say); 8] = [
            ("--listen", |o, a| o.listen = Some(a.into())),
            ("--data", |o, a| o.data = Some(a.into())),
            ("--advertise", |o, a| o.advertise = Some(a.into())),
            ("--advertise-resp", |o, a| o.advertise_resp = Some(a.into())),
            ("--advertise-resp-cluster", |o, a| {
                o.advertise_resp_cluster = Some(a.into())
            }),
            ("--resp", |o, a| o.resp = Some(Toggle::On(a.into()))),
            ("--resp-cluster", |o, a| {
                o.resp_cluster = Some(Toggle::On(a.into()))
            }),
            ("--http", |o, a| o.http = Some(Toggle::On(a.into()))),
        ];
        for (flag, say) in flags {
            for (text, why) in [
                (
                    "no-such-host.invalid:7",
                    "cannot resolve `no-such-host.invalid`",
                ),
                ("7440", "write :7440"),
                ("a b", "`a b` is not an address"),
            ] {
                let error = resolve(|o| (say(o, text), o.secret = secret()).1)
                    .expect_err("refused")
                    .0;
                assert!(
                    error.starts_with(&format!("{flag}: ")) && error.contains(why),
                    "{error}"
                );
            }
        }
        let config = resolve(|o| {
            (
                o.http = on("[::ffff:127.0.0.1]:9"),
                o.listen = Some("::ffff:127.0.0.1".into()),
            )
                .1
        })
        .expect("holds");
        assert_eq!(
            (
                config.listen.to_string(),
                config.http.map(|a| a.to_string())
            ),
            ("127.0.0.1:7400".into(), Some("127.0.0.1:9".into()))
        );
    }

    #[test]
    fn a_node_does_not_advertise_an_address_where_it_receives_nothing() {
        let tell = |listen: Option<&str>, data: Option<&str>, advertise: &str| {
            resolve(|o| {
                (o.listen, o.data) = (listen.map(Into::into), data.map(Into::into));
                (o.advertise, o.secret) =
                    (Some(advertise.into()), Some(b"0123456789abcdef".to_vec()));
            })
        };
        for (listen, data, advertise) in [
            (Some("0.0.0.0:1"), None, "2001:db8::1"),
            (Some("[2001:db8::1]:1"), None, "10.0.0.1"),
            (Some("[::]:1"), Some("0.0.0.0:2"), "[2001:db8::1]:9"),
        ] {
            let error = tell(listen, data, advertise).expect_err("refused").0;
            let flag = if data.is_some() {
                "--data [::]:2"
            } else {
                "--listen [::]:1"
            };
            assert!(
                error.contains(flag) && error.contains("takes both"),
                "{error}"
            );
        }
        for (listen, advertise) in [
            ("[::]:1", "10.0.0.1"),
            ("[::]:1", "2001:db8::1"),
            ("0.0.0.0:1", "::ffff:10.0.0.1"),
        ] {
            assert!(
                tell(Some(listen), None, advertise).is_ok(),
                "{listen} {advertise}"
            );
        }
        assert_eq!(
            tell(None, None, "2001:db8::1")
                .expect("holds")
                .listen
                .to_string(),
            "[::]:7400"
        );
        for none in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1"] {
            assert!(
                tell(None, None, none).is_err_and(|e| e.0.contains("not the address of a machine")),
                "{none}"
            );
        }
    }

    #[test]
    fn on_every_interface_the_address_towards_the_first_seed_is_advertised() {
        let config = resolve(|o| {
            (o.listen, o.secret) = (Some("[::]:0".into()), Some(b"0123456789abcdef".to_vec()));
            o.seed = vec!["127.0.0.1:7400".into()];
        });
        let bound = "[::]:7".parse().expect("an address");
        assert_eq!(
            config
                .expect("holds")
                .advertised(bound)
                .map(|a| a.to_string()),
            Ok("127.0.0.1:7".into())
        );
    }

    /// The port used to be dropped silently, and a name used to become an address.
    #[cfg(feature = "resp")]
    #[test]
    fn advertised_client_addresses_may_have_a_name_and_ports() {
        let tell = |resp: &str, cluster: &str| {
            resolve(|o| {
                (o.advertise_resp, o.advertise_resp_cluster) =
                    (Some(resp.into()), Some(cluster.into()))
            })
        };
        let config = tell("10.0.0.1:6379", "localhost:9000").expect("holds");
        let address = |ip: [u8; 4], name: Option<&str>, port| ClientAddress {
            ip: ip.into(),
            name: name.map(Into::into),
            port: Some(port),
        };
        assert_eq!(
            config.advertise_resp,
            Some(address([10, 0, 0, 1], None, 6379))
        );
        assert_eq!(
            config.advertise_resp_cluster,
            Some(address([127, 0, 0, 1], Some("localhost"), 9000))
        );
        assert!(tell("10.0.0.1:0", "10.0.0.1").is_err_and(|e| e.0.contains("port 0")));
        let off = resolve(|o| {
            (o.resp, o.advertise_resp) = (Some(Toggle::Off), Some("10.0.0.1:6379".into()))
        });
        assert!(off.is_err_and(|e| e.0.contains("--advertise-resp-cluster")));
        let off = resolve(|o| {
            (o.resp_cluster, o.advertise_resp_cluster) =
                (Some(Toggle::Off), Some("10.0.0.1".into()))
        });
        assert!(off.is_err_and(|e| e.0.contains("--resp-cluster")));
        let high = resolve(|o| {
            (o.threads, o.advertise_resp_cluster) = (Some(2), Some("10.0.0.1:65535".into()))
        });
        assert!(high.is_err_and(|e| e.0.contains("--threads 2")));
    }

    #[test]
    fn http_beyond_loopback_needs_a_token() {
        let http = |o: &mut Options| o.http = Some(Toggle::On("0.0.0.0:0".into()));
        let error = resolve(http).expect_err("refused");
        assert!(
            error.0.contains("--http-token-file") && error.0.lines().count() == 1,
            "{error}"
        );
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pem");
        fs::write(&file, "x".repeat(TOKEN_BYTES_MIN)).expect("written");
        let pem = |o: &mut Options| {
            [&mut o.tls_ca, &mut o.tls_cert, &mut o.tls_key]
                .into_iter()
                .for_each(|f| *f = Some(file.clone()))
        };
        let both = |o: &mut Options| {
            http(o);
            pem(o);
        };
        assert!(
            resolve(both).is_err_and(|e| e.0.contains("--http-token-file")),
            "certificates do not yield a token"
        );
        let with_token = |o: &mut Options| {
            both(o);
            o.http_token_file = Some(file.clone());
        };
        let takes_no_commands =
            |o: Result<Config, ConfigError>| o.expect("it holds").takes_no_commands();
        assert!(!takes_no_commands(resolve(with_token)), "it has a token");
        assert!(
            takes_no_commands(resolve(pem)),
            "neither a secret nor a token, which is logged at the start"
        );
        assert!(
            !takes_no_commands(resolve(|_| {})),
            "programs on this machine need no token"
        );
        let secret = |o: &mut Options| {
            http(o);
            o.secret = Some(b"0123456789abcdef".to_vec());
        };
        assert!(resolve(secret).is_ok(), "a secret yields a token");
    }

    #[test]
    fn http_beyond_loopback_speaks_tls_unless_it_is_said_to_be_insecure() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pem");
        fs::write(&file, "x".repeat(TOKEN_BYTES_MIN)).expect("written");
        let http_tls = |address: &str, change: &dyn Fn(&mut Options)| {
            resolve(|o| {
                o.secret = Some(b"0123456789abcdef".to_vec());
                o.http = Some(Toggle::On(address.into()));
                change(o);
            })
            .map(|config| config.http_tls)
        };
        let of_the_secret = Ok(Some(PortTls::default()));
        assert_eq!(http_tls("0.0.0.0:0", &|_| {}), of_the_secret);
        assert_eq!(http_tls("127.0.0.1:0", &|_| {}), Ok(None));
        assert_eq!(
            http_tls("127.0.0.1:0", &|o| o.http_tls = Some(true)),
            of_the_secret
        );
        assert_eq!(
            http_tls("0.0.0.0:0", &|o| o.http_insecure = Some(true)),
            Ok(None)
        );
        let both = |o: &mut Options| {
            (o.http_tls_cert, o.http_tls_key) = (Some(file.clone()), Some(file.clone()));
        };
        let pair = Some((file.clone(), file.clone()));
        for address in ["0.0.0.0:0", "127.0.0.1:0"] {
            let found = http_tls(address, &both).expect("it holds");
            assert_eq!(found.expect("files say that it is wanted").pair, pair);
        }
        let refused = |change: &dyn Fn(&mut Options)| {
            let why = http_tls("0.0.0.0:0", change).expect_err("refused").0;
            assert_eq!(why.lines().count(), 1, "{why}");
            why
        };
        assert!(refused(&|o| o.http_tls = Some(false)).contains("--http-insecure"));
        assert!(
            refused(&|o| (o.http_tls, o.http_insecure) = (Some(true), Some(true)))
                .contains("exclude each other")
        );
        assert!(refused(&|o| o.http_tls_cert = Some(file.clone())).contains("belong together"));
        assert!(
            refused(&|o| {
                both(o);
                o.http_insecure = Some(true);
            })
            .contains("--http-tls-cert")
        );
        let only_a_token = |o: &mut Options| {
            o.secret = None;
            o.http_token_file = Some(file.clone());
        };
        assert!(refused(&only_a_token).contains("--http-tls-cert and --http-tls-key"));
    }

    #[test]
    fn http_answers_to_the_configured_names() {
        let hosts = |change: fn(&mut Options)| resolve(change).map(|config| config.http_hosts);
        assert_eq!(hosts(|_| {}), Ok(Vec::new()));
        let told = hosts(|o| {
            (o.http_host, o.http) = (
                Some(vec!["ada.example".into()]),
                Some(Toggle::On("localhost:0".into())),
            )
        });
        assert_eq!(told, Ok(vec!["ada.example".into(), "localhost".into()]));
        for wrong in ["", "ada:80", "http://ada", "*", "a b"] {
            let refused = resolve(|o| o.http_host = Some(vec![wrong.into()]));
            assert!(
                refused.is_err_and(|e| e.0.contains("--http-host")),
                "{wrong}"
            );
        }
    }

    #[cfg(feature = "resp")]
    #[test]
    fn http_answers_to_the_names_that_clients_are_told() {
        let config = resolve(|o| {
            (o.resp_cluster, o.advertise_resp_cluster) = (
                Some(Toggle::On("127.0.0.1:0".into())),
                Some("localhost:7000".into()),
            );
            o.advertise_resp = Some("10.0.0.1".into());
        });
        assert_eq!(
            config.expect("holds").http_hosts,
            ["localhost"],
            "an IP address is no name"
        );
    }

    #[test]
    fn seeds_stay_names_and_get_the_default_port() {
        let config =
            resolve(|o| o.seed = vec!["db.internal".into(), "127.0.0.2:1".into()]).expect("holds");
        assert_eq!(config.seeds, ["db.internal:7400", "127.0.0.2:1"]);
        assert!(
            resolve(|o| o.seed = vec!["10.0.0.1".into()])
                .is_err_and(|e| e.0.contains("--secret-file"))
        );
        assert!(resolve(|o| o.seed = vec!["a:b:c".into()]).is_err());
    }

    #[test]
    fn a_node_has_the_configured_number_of_data_threads_or_one() {
        assert_eq!(resolve(|_| {}).expect("holds").threads, 1);
        assert_eq!(
            resolve(|o| o.threads = Some(16)).expect("holds").threads,
            16
        );
        for wrong in [0, 17, 300] {
            assert!(resolve(|o| o.threads = Some(wrong)).is_err_and(|e| {
                e.0.contains(&format!("--threads {wrong}: a node has 1 to 16"))
            }));
        }
        let mut options = Options {
            value_max: Some(Size(3 << 20)),
            memory_max: Some(Size(4 << 20)),
            ..Options::default()
        };
        assert!(options.clone().resolve(Defaults::Binary).is_ok());
        options.threads = Some(2);
        assert!(
            options
                .resolve(Defaults::Binary)
                .is_err_and(|e| e.0.contains("--threads 2"))
        );
    }

    #[test]
    fn impossible_numbers_are_refused() {
        assert!(resolve(|o| o.partitions = Some(1000)).is_err());
        assert!(resolve(|o| o.partitions = Some(0)).is_err());
        assert!(resolve(|o| o.value_max = Some(Size(0))).is_err());
        let at = |bytes| {
            resolve(|o| (o.value_max, o.memory_max) = (Some(Size(bytes)), Some(Size(1 << 30))))
        };
        assert!(
            at(64 << 20).is_ok() && at((64 << 20) + 1).is_err_and(|e| e.0.contains("at most 64mb"))
        );
        assert!(
            resolve(|o| (o.value_max, o.memory_max) = (Some(Size(1 << 30)), Some(Size(1 << 20))))
                .is_err()
        );
        assert!(resolve(|o| o.backups = Some(200)).is_err());
        assert!(resolve(|o| o.min_in_sync = Some(3)).is_err());
        assert!(resolve(|o| o.weight = Some(0)).is_err());
        assert!(
            resolve(|o| o.weight = Some(1_000_000_000))
                .is_err_and(|why| why.to_string().contains("at most 100000"))
        );
        assert!(
            resolve(|o| o.zone = Some("\u{e9}".into())).is_err()
                && resolve(|o| o.rack = Some("r".repeat(65))).is_err()
        );
    }

    #[test]
    fn variables_without_effect_are_reported() {
        let told = |names: &[&str]| unread_variables(names.iter().map(ToString::to_string));
        let links = [
            "DOYEN_SERVICE_HOST",
            "DOYEN_SERVICE_PORT_RESP",
            "DOYEN_PORT",
            "DOYEN_PORT_7400_UDP_ADDR",
            "DOYEN_RESP_SERVICE_HOST",
        ];
        assert_eq!(told(&links), Vec::<String>::new());
        assert_eq!(
            told(&[
                "DOYEN_BACKUPS",
                "DOYEN_SECRET",
                "DOYEN_HTTP",
                "DOYEN_CONFIG",
                "PATH",
                "DOYEN_SECRET_FILE"
            ]),
            Vec::<String>::new()
        );
        assert_eq!(
            told(&["DOYEN_BAKUPS"]),
            ["the variable DOYEN_BAKUPS has no effect: did you mean DOYEN_BACKUPS?"]
        );
        let told = told(&["DOYEN_SEEDS", "DOYEN_QQQQQQQQQ"]);
        assert!(
            told[0].contains("DOYEN_QQQQQQQQQ has no effect: `doyen run --help`"),
            "{told:?}"
        );
        assert!(told[1].contains("did you mean DOYEN_SEED?"), "{told:?}");
    }

    #[test]
    fn a_file_has_the_options_of_flags_and_unknown_keys_are_errors() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("doyen.toml");
        let text = "seed = [\"a:1\"]\nvalue-max = \"1mb\"\nhttp = false\nbackups = 2\n\
                    threads = 3\non-loss = \"wait\"\n";
        fs::write(&path, text).expect("written");
        let options = Options::from_file(&path).expect("read");
        assert_eq!(options.value_max, Some(Size(1 << 20)));
        assert_eq!(options.http, Some(Toggle::Off));
        let config = options.resolve(Defaults::Binary).expect("holds");
        assert_eq!((config.keyspace.on_loss, config.threads), (OnLoss::Wait, 3));
        fs::write(&path, "backups = 1\nbakups = 2\n").expect("written");
        let error = Options::from_file(&path).expect_err("refused");
        assert!(
            error.0.contains("line 2")
                && error
                    .0
                    .contains("there is no key `bakups`: did you mean `backups`?"),
            "{error}"
        );
        for (wrong, said) in [
            (
                "threads = \"x\"",
                "`threads`: invalid type: string \"x\", but a whole number is expected",
            ),
            (
                "backups = 300",
                "`backups`: invalid value: integer `300`, but a whole number from 0 to 255 is \
                 expected",
            ),
            (
                "seed = \"a\"",
                "`seed`: invalid type: string \"a\", but a list such as [\"a\", \"b\"] is expected",
            ),
            ("name = a", "`name`: a text stands in quotes: write \"...\""),
            (
                "backups = 1\nbackups = 2",
                "`backups`: this key stands in the file twice: remove one of them",
            ),
        ] {
            let error = Options::from_text(wrong, "doyen.toml").expect_err("refused");
            assert!(error.0.ends_with(said), "{error}");
        }
        for (wrong, meant) in [
            ("value_max", "`value-max`"),
            ("seeds", "`seed`"),
            ("loglevel", "`log`"),
            ("password", "`resp-password-file`"),
            ("nonsense", "--help"),
        ] {
            fs::write(&path, format!("{wrong} = \"x\"\n")).expect("written");
            let error = Options::from_file(&path).expect_err("refused");
            assert!(error.0.contains(meant) && error.0.len() < 200, "{error}");
        }
    }

    #[test]
    fn secrets_and_tokens_that_are_guessed_easily_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        let with = |content: &[u8], set: &dyn Fn(&mut Options, PathBuf)| {
            fs::write(&file, content).expect("written");
            resolve(|o| set(o, file.clone()))
                .map(|_| ())
                .map_err(|e| e.0)
        };
        let secret = |o: &mut Options, file| o.secret_file = Some(file);
        let token = |o: &mut Options, file| o.http_token_file = Some(file);
        let long = b"0123456789abcdef";
        assert_eq!(with(long, &secret), Ok(()));
        assert_eq!(with(b"0123456789abcdef\n", &token), Ok(()));
        let (by_secret, by_token) = ("doyen secret new --dir DIR", "openssl rand -hex 32");
        for (content, set, wrong, advice) in [
            (
                &[0; 32][..],
                &secret as &dyn Fn(&mut Options, PathBuf),
                "line 1 is damaged (it has a control character)",
                "copy the file again",
            ),
            (
                b"0123456789\nabcdef0",
                &secret,
                "line 1 has 10 bytes",
                by_secret,
            ),
            (b"# nothing\n", &secret, "has no secret", by_secret),
            (&[0; 32], &token, "control character '\\0'", by_token),
            (
                b"short",
                &token,
                "has 5 bytes, but at least 16 are needed",
                by_token,
            ),
            (b"0123456789abcde\n", &token, "has 15 bytes", by_token),
        ] {
            let why = with(content, set).expect_err("refused");
            assert!(why.contains(wrong) && why.contains(advice), "{why}");
            assert_eq!(why.lines().count(), 1, "{why}");
        }
        let zeros = resolve(|o| o.secret = Some(vec![0; 32])).expect_err("refused");
        assert!(zeros.0.contains("repeats few bytes"), "{zeros}");
    }

    #[test]
    fn a_file_of_another_role_is_refused_with_the_one_that_fits() {
        let dir = tempfile::tempdir().expect("a directory");
        let member = Line::new_member().expect("randomness");
        let file = |role| {
            let path = dir.path().join(format!("{role}"));
            let line = member.for_role(role).expect("a line");
            fs::write(&path, line.expose().as_bytes()).expect("written");
            path
        };
        let (of_member, of_client, of_operator) = (
            file(TrustRole::Member),
            file(TrustRole::Client),
            file(TrustRole::Operator),
        );
        let as_node = |path: &PathBuf| {
            resolve(|o| o.secret_file = Some(path.clone())).map(|config| config.trust)
        };
        let as_client = |path: &PathBuf| {
            let options = Options {
                secret_file: Some(path.clone()),
                seed: vec!["127.0.0.1".to_owned()],
                ..Options::default()
            };
            options.client().map(|config| config.trust)
        };
        assert!(as_node(&of_member).is_ok() && as_client(&of_member).is_ok());
        assert!(as_client(&of_client).is_ok());
        for (refused, path, wanted) in [
            (as_node(&of_client), &of_client, "the member's file"),
            (as_node(&of_operator), &of_operator, "the member's file"),
            (as_client(&of_operator), &of_operator, "the client's file"),
        ] {
            let why = refused.expect_err("refused").0;
            assert!(why.starts_with(&path.display().to_string()), "{why}");
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn the_first_source_wins() {
        let flags = Options {
            backups: Some(2),
            ..Options::default()
        };
        let file = Options {
            backups: Some(0),
            weight: Some(7),
            ..Options::default()
        };
        let both = flags.or(file);
        assert_eq!((both.backups, both.weight), (Some(2), Some(7)));
    }

    #[test]
    fn a_secret_that_every_user_can_read_causes_a_warning() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("secret");
        fs::write(&path, "a secret of the tests").expect("written");
        for (mode, warnings) in [(0o644, 5), (0o640, 0), (0o600, 0), (0o604, 5)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let file = || Some(path.clone());
            let options = Options {
                secret_file: file(),
                resp_password_file: file(),
                resp_acl_file: file(),
                http_token_file: file(),
                tls_key: file(),
                ..Options::default()
            };
            let said = options.exposed();
            assert!(
                said.len() == warnings
                    && said
                        .iter()
                        .all(|w| w.contains("chmod 600") && w.contains("secret")),
                "{mode:o}: {said:?}"
            );
        }
    }

    #[test]
    fn secrets_do_not_reach_logs() {
        let config = resolve(|o| o.secret = Some(b"0123456789abcdef".to_vec())).expect("holds");
        assert!(
            !format!("{config:?}").contains("0123456789abcdef")
                && !format!("{config:?}").contains("48, 49")
        );
    }
}
