//! What a node is told when it starts. Flags, a TOML file and the environment say the same things in the same words:
//! one struct, [`Options`], is all three; flags win, then the environment, then the file.
//!
//! ```text
//!   flags ─┐
//!   env   ─┼─> Options (what was said) ──resolve──> Config (what holds: defaults filled in, rules of security checked)
//!   file  ─┘
//! ```

mod memory;
mod options;
pub mod value;

pub use memory::Memory;
pub use options::Options;

use crate::keyspace::KeyspaceOptions;
use crate::net::identity::SECRET_BYTES_MIN;
use doyen_placement::planner::DEFAULT_KEYSPACE;
use doyen_placement::rule::VALUE_BYTES_MAX;
use doyen_placement::table::validate::WEIGHT_MAX;
use doyen_placement::{Assignment, Keyspace, KeyspaceId, Location, Role, Schedulers, Settings, THREADS_MAX};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};
use value::{Size, Toggle};

/// Below, a busy machine passes for a dead one; above, nobody would wait for a verdict.
const SILENCE: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_secs(6);
/// At 600 ms members were expelled that only waited for a core; a process that ended is noticed by its port, whatever this says.
const SILENCE_DEFAULT: Duration = Duration::from_secs(1);

/// The control port where none is said.
pub const CONTROL_PORT: u16 = 7400;
/// The data port where none is said: the one after the control port.
pub const DATA_PORT: u16 = CONTROL_PORT + 1;
/// The RESP port where none is said.
pub const RESP_PORT: u16 = 7379;
/// The cluster-aware RESP port where none is said.
pub const RESP_CLUSTER_PORT: u16 = 7380;
/// The HTTP port where none is said.
pub const HTTP_PORT: u16 = 7480;
/// A file that is read as configuration, secret, password or token is at most this long.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The least that `--range-max` may be.
const RANGE_BYTES_LEAST: usize = 64 << 10;
/// The least that `--value-max` may be.
const VALUE_BYTES_LEAST: usize = 1024;
/// The most that it may be: a value travels in one piece, and a data thread closes connections from which more than 96 MiB wait for their end
/// (`net::links`).
const VALUE_BYTES_MOST: usize = 64 << 20;
/// Where nobody says, the largest value is this part of a data thread's memory.
const VALUE_PART: usize = 8;
/// The least that a data thread may have of `--memory-max`.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// Seeds at most.
const SEEDS_MAX: usize = 64;
/// Names and locations at most this long: they travel in tables and in gossip.
const NAME_BYTES_MAX: usize = 128;

/// Something in the configuration cannot hold; the message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Who fills in what was not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    /// The binary: RESP and HTTP on loopback.
    Binary,
    /// A program that embeds a node: RESP and HTTP only where it asks for them.
    Embedded,
}

/// How nodes know that they belong together.
#[derive(Clone, PartialEq, Eq)]
pub enum Trust {
    /// No secret: this machine only.
    Loopback,
    /// A secret that all nodes share.
    Secret(Vec<u8>),
    /// Certificates of one's own.
    Pem {
        /// The authority that signs every node.
        ca: PathBuf,
        /// This node's certificate.
        cert: PathBuf,
        /// This node's key.
        key: PathBuf,
    },
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the secret: configurations end up in logs.
        match self {
            Self::Loopback => f.write_str("Loopback"),
            Self::Secret(_) => f.write_str("Secret(..)"),
            Self::Pem { ca, cert, key } => f.debug_struct("Pem").field("ca", ca).field("cert", cert).field("key", key).finish(),
        }
    }
}

/// A configuration that holds together.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of other nodes, as `host:port`.
    pub seeds: Vec<String>,
    /// How many initial members form the first cluster.
    pub expect: Option<u16>,
    /// QUIC: agreement, gossip, joins.
    pub listen: SocketAddr,
    /// QUIC: data. `None`: the port that follows the one of `listen`. Of the first data thread, as is `resp_cluster`; the others have the
    /// ports that follow.
    pub data: Option<SocketAddr>,
    /// Data threads.
    pub threads: u8,
    /// RESP for the whole cluster.
    pub resp: Option<SocketAddr>,
    /// RESP as a Redis Cluster node answers.
    pub resp_cluster: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Where other nodes reach this one, if that is not where it listens; port 0 means the port that it listens on.
    pub advertise: Option<SocketAddr>,
    /// Where clients reach this one, if that is not where it listens.
    pub advertise_resp: Option<IpAddr>,
    /// Its name; `None`: the advertised address.
    pub name: Option<String>,
    /// Where it stands.
    pub location: Location,
    /// Its capacity; 100 is the default.
    pub weight: u32,
    /// Data or witness.
    pub role: Role,
    /// How nodes know that they belong together.
    pub trust: Trust,
    /// The token that HTTP asks for before it changes anything; `None`: the one that the secret yields.
    pub http_token: Option<String>,
    /// What RESP clients must AUTH with.
    pub resp_password: Option<String>,
    /// What the node may hold: entries, tails, snapshots, buffers, what the allocator keeps.
    pub memory_bytes_max: usize,
    /// Where that comes from.
    pub memory: Memory,
    /// Whether the process is this node's alone.
    pub whole_process: bool,
    /// The largest value.
    pub value_bytes_max: usize,
    /// Bytes from which on a range of keys is split.
    pub range_bytes_max: usize,
    /// RESP connections at most.
    pub connections_max: usize,
    /// Native clients at most.
    pub clients_max: usize,
    /// How long a leaving node waits where it is the last in-sync holder.
    pub leave_timeout: Duration,
    /// How long a member may keep silent before it is expelled.
    pub silence_max: Duration,
    /// What the first table says if this node writes it.
    pub settings: Settings,
    /// The keyspace `default` if this node writes the first table.
    pub keyspace: Keyspace,
}

/// What a client is told.
#[derive(Debug)]
pub(crate) struct ClientConfig {
    pub(crate) trust: Trust,
    /// Data ports, as `host:port`.
    pub(crate) seeds: Vec<String>,
    pub(crate) name: String,
}

impl Options {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or has a key that is not an option.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::from_text(&read(path, "--config")?, &path.display().to_string())
    }

    /// Reads TOML; errors call it by this name.
    pub(crate) fn from_text(text: &str, name: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |s| text.get(..s.start).map_or(1, |before| before.matches('\n').count() + 1));
            let message = e.message().lines().next().unwrap_or_default();
            let message = unknown_key(message).unwrap_or_else(|| message.to_owned());
            ConfigError(format!("{name} line {line}: {message}"))
        })
    }

    /// Fills in defaults, reads the files that are named, checks the rules of security.
    ///
    /// # Errors
    /// In one line that says what to do.
    pub fn resolve(self, defaults: Defaults) -> Result<Config, ConfigError> {
        let trust = self.trust()?;
        let default_ip = if trust == Trust::Loopback { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let listen = address("--listen", self.listen.as_deref(), SocketAddr::from((default_ip, CONTROL_PORT)))?;
        let data = self.data.as_deref().map(|a| address("--data", Some(a), SocketAddr::from((listen.ip(), 0)))).transpose()?;
        if trust == Trust::Loopback {
            for (flag, address) in [("--listen", Some(listen)), ("--data", data)] {
                if let Some(a) = address.filter(|a| !a.ip().is_loopback()) {
                    return fail(format!(
                        "{flag} {a} is not a loopback address, and without a secret a node binds to loopback only: give --secret-file FILE (or DOYEN_SECRET), or --tls-ca, --tls-cert and --tls-key"
                    ));
                }
            }
        }
        let client_port = |flag, said: &Option<Toggle>, port| match (said, defaults) {
            (Some(Toggle::Off), _) | (None, Defaults::Embedded) => Ok(None),
            (None, Defaults::Binary) => Ok(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))),
            (Some(Toggle::On(text)), _) => address(flag, Some(text), SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map(Some),
        };
        let resp = client_port("--resp", &self.resp, RESP_PORT)?;
        let resp_cluster = client_port("--resp-cluster", &self.resp_cluster, RESP_CLUSTER_PORT)?;
        let http = client_port("--http", &self.http, HTTP_PORT)?;
        let resp_password = self.resp_password_file.as_deref().map(|p| read_line(p, "--resp-password-file")).transpose()?;
        if resp_password.is_none() {
            for (flag, address) in [("--resp", resp), ("--resp-cluster", resp_cluster)] {
                if let Some(a) = address.filter(|a| !a.ip().is_loopback()) {
                    return fail(format!(
                        "{flag} {a} is not a loopback address, and RESP beyond this machine needs a password: give --resp-password-file FILE"
                    ));
                }
            }
        }
        let advertise =
            self.advertise.as_deref().map(|a| address("--advertise", Some(a), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).transpose()?;
        if let Some(a) = advertise.filter(|a| a.ip().is_unspecified()) {
            return fail(format!("--advertise {a} names no machine: give the address at which other nodes reach this one"));
        }
        let advertise_resp = self
            .advertise_resp
            .as_deref()
            .map(|a| address("--advertise-resp", Some(a), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map(|a| a.ip()))
            .transpose()?;
        let keyspace = self.keyspace()?;
        let seeds = self.seeds("--seed", CONTROL_PORT)?;
        let elsewhere = |s: &&String| s.parse::<SocketAddr>().is_ok_and(|a| !a.ip().is_loopback());
        if let Some(seed) = seeds.iter().find(elsewhere).filter(|_| trust == Trust::Loopback) {
            return fail(format!(
                "--seed {seed} is on another machine, and without a secret a node talks on this machine only: give --secret-file FILE (or DOYEN_SECRET), or --tls-ca, --tls-cert and --tls-key"
            ));
        }
        let memory = Memory::resolve(self.memory_max.map(|size| size.0), memory::bound());
        let memory_bytes_max = bytes(Size(memory.bytes));
        let threads = self.threads()?;
        if memory_bytes_max / usize::from(threads) < MEMORY_BYTES_LEAST {
            let least = MEMORY_BYTES_LEAST >> 20;
            return fail(format!(
                "--memory-max {memory_bytes_max} is too small for any use: at least {least}mb for each of --threads {threads}"
            ));
        }
        // Where nobody says, a value may be as large as fits well.
        let value_bytes_max = self.value_max.map_or((16 << 20).min(memory_bytes_max / usize::from(threads) / VALUE_PART), bytes);
        if value_bytes_max < VALUE_BYTES_LEAST {
            return fail(format!("--value-max {value_bytes_max} is too small for any use: at least {VALUE_BYTES_LEAST} bytes"));
        }
        if value_bytes_max > VALUE_BYTES_MOST {
            return fail(format!(
                "--value-max {value_bytes_max} is too large: at most {}mb, for a value travels in one piece",
                VALUE_BYTES_MOST >> 20
            ));
        }
        if self.value_max.is_some() && value_bytes_max > memory_bytes_max {
            return fail(format!("--value-max {value_bytes_max} is more than --memory-max {memory_bytes_max}: no such value would fit"));
        }
        if self.value_max.is_some() && value_bytes_max > memory_bytes_max / usize::from(threads) {
            return fail(format!(
                "--value-max {value_bytes_max} is more than what each of --threads {threads} has of --memory-max {memory_bytes_max}: no such value would fit"
            ));
        }
        let range_bytes_max = self.range_max.map_or(64 << 20, bytes);
        if range_bytes_max < RANGE_BYTES_LEAST {
            return fail(format!("--range-max {range_bytes_max} would split ranges without end: at least 64kb"));
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
            advertise,
            advertise_resp,
            name: self.name.as_deref().filter(|n| !n.is_empty()).map(|n| label("--name", n)).transpose()?,
            location: Location {
                zone: label("--zone", self.zone.as_deref().unwrap_or_default())?,
                rack: label("--rack", self.rack.as_deref().unwrap_or_default())?,
                host: label("--host", self.host.as_deref().unwrap_or_default())?,
            },
            weight: weight(self.weight)?,
            role: if self.witness.unwrap_or(false) { Role::Witness } else { Role::Data },
            trust,
            http_token: self.http_token_file.as_deref().map(|p| read_line(p, "--http-token-file")).transpose()?,
            resp_password,
            memory_bytes_max,
            memory,
            whole_process: defaults == Defaults::Binary,
            value_bytes_max,
            range_bytes_max,
            connections_max: at_least("--connections-max", self.connections_max, 1)?.unwrap_or(10_000) as usize,
            clients_max: self.clients_max.unwrap_or(1_000) as usize,
            leave_timeout: self.leave_timeout.map_or(Duration::from_secs(30), |s| s.0),
            silence_max: self.silence_max()?,
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

    /// What a client needs of all this: trust, seeds (data ports), and its name.
    ///
    /// # Errors
    /// In one line that says what to do.
    pub(crate) fn client(&self) -> Result<ClientConfig, ConfigError> {
        let trust = self.trust()?;
        let seeds = self.seeds("the seed", DATA_PORT)?;
        if seeds.is_empty() {
            return fail(format!("a client needs a seed: the data address (--data, by default port {DATA_PORT}) of a node"));
        }
        let elsewhere = |s: &&String| s.parse::<SocketAddr>().is_ok_and(|a| !a.ip().is_loopback());
        if let Some(seed) = seeds.iter().find(elsewhere).filter(|_| trust == Trust::Loopback) {
            return fail(format!(
                "the seed {seed} is on another machine, and without a secret a client talks on this machine only: give the secret of the nodes, or certificates"
            ));
        }
        let name = self.name.as_deref().filter(|n| !n.is_empty()).map_or_else(|| Ok("client".to_owned()), |n| label("the name", n))?;
        Ok(ClientConfig { trust, seeds, name })
    }

    fn threads(&self) -> Result<u8, ConfigError> {
        let said = self.threads.unwrap_or(1);
        match u8::try_from(said).ok().filter(|n| (1..=THREADS_MAX).contains(n)) {
            Some(threads) => Ok(threads),
            None => fail(format!("--threads {said}: a node has 1 to {THREADS_MAX} data threads")),
        }
    }

    fn silence_max(&self) -> Result<Duration, ConfigError> {
        match self.silence_max.map_or(SILENCE_DEFAULT, |s| s.0) {
            fits if SILENCE.contains(&fits) => Ok(fits),
            other => fail(format!("--silence-max {other:?}: choose from {:?} to {:?}", SILENCE.start(), SILENCE.end())),
        }
    }

    fn trust(&self) -> Result<Trust, ConfigError> {
        let from_file = self.secret_file.as_deref().map(|p| read_line(p, "--secret-file")).transpose()?;
        // A line's end is no part of a secret, wherever it comes from: files and programs would disagree otherwise.
        let secret = from_file.map(String::into_bytes).or_else(|| self.secret.as_ref().map(|s| s.trim_ascii().to_vec()));
        match (secret, &self.tls_ca, &self.tls_cert, &self.tls_key) {
            (None, None, None, None) => Ok(Trust::Loopback),
            (Some(secret), None, None, None) if secret.len() < SECRET_BYTES_MIN => fail(format!(
                "the secret has {} bytes, at least {SECRET_BYTES_MIN} are needed: make one with `openssl rand -hex 32`",
                secret.len()
            )),
            (Some(secret), None, None, None) => Ok(Trust::Secret(secret)),
            (None, Some(ca), Some(cert), Some(key)) => {
                for (flag, path) in [("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)] {
                    read(path, flag)?;
                }
                Ok(Trust::Pem { ca: ca.clone(), cert: cert.clone(), key: key.clone() })
            }
            (None, ..) => fail("--tls-ca, --tls-cert and --tls-key belong together: give all three".into()),
            (Some(_), ..) => fail("a secret and --tls-* files exclude each other: give one of them".into()),
        }
    }

    fn seeds(&self, flag: &str, port: u16) -> Result<Vec<String>, ConfigError> {
        if self.seed.len() > SEEDS_MAX {
            return fail(format!("{} seeds are given, at most {SEEDS_MAX} are useful", self.seed.len()));
        }
        self.seed.iter().map(|s| with_port(flag, s, port)).collect()
    }

    fn keyspace(&self) -> Result<Keyspace, ConfigError> {
        let (partitions, backups) = (self.partitions, self.backups);
        let (min_in_sync, on_loss, eviction) = (self.min_in_sync, self.on_loss, self.eviction);
        let wanted = KeyspaceOptions { partitions, backups, min_in_sync, on_loss, eviction, ..KeyspaceOptions::new() };
        Ok(wanted.create(DEFAULT_KEYSPACE)?.numbered(KeyspaceId(0)))
    }
}

impl Config {
    /// The address at which others reach a socket that listens on `bound`.
    ///
    /// # Errors
    /// When it listens on every interface and none of them can be told to be the right one.
    pub fn advertised(&self, bound: SocketAddr) -> Result<SocketAddr, ConfigError> {
        let ip = match self.advertise {
            Some(a) => a.ip(),
            None if !bound.ip().is_unspecified() => bound.ip(),
            None => self.outgoing_ip(bound).ok_or_else(|| {
                ConfigError(format!("--listen {bound} does not say at which address others reach this node: give --advertise ADDRESS"))
            })?,
        };
        Ok(SocketAddr::new(ip, bound.port()))
    }

    /// The address that the machine would use towards the first seed: connecting a UDP socket sends nothing.
    fn outgoing_ip(&self, bound: SocketAddr) -> Option<IpAddr> {
        let towards = self.seeds.iter().filter_map(|s| s.to_socket_addrs().ok()).flatten().find(|a| a.is_ipv4() == bound.is_ipv4());
        // Without seeds, towards anywhere (an address that is reserved for documentation).
        let towards = towards.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)));
        let socket = UdpSocket::bind(SocketAddr::new(bound.ip(), 0)).ok()?;
        socket.connect(towards).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    }
}

fn fail<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError(message))
}

/// What serde says of an unknown key, with the nearest name in place of all there are.
fn unknown_key(message: &str) -> Option<String> {
    let mut words = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let wrong = words.next()?;
    let hint = match nearest(wrong, words) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "the keys are the flags of `doyen run --help`, without the --".into(),
    };
    Some(format!("there is no key `{wrong}`: {hint}"))
}

/// The name that was probably meant, if one is near enough.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // `loglevel` is meant for `log`, and `password` for `resp-password-file`, however many letters lie between.
    let akin = |name: &str| wrong.len() > 2 && (name.contains(wrong) || wrong.starts_with(name));
    let nearest = names.map(|name| (if akin(name) { 1 } else { distance(wrong, name) }, name)).min();
    nearest.filter(|(distance, name)| distance * 2 <= name.len()).map(|(_, name)| name)
}

/// How many letters to add, drop or change to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().take(NAME_BYTES_MAX).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            // A key that is written with _ for - is nearly right.
            let same = a == *b || (a, *b) == ('_', '-');
            let best = (row[j] + 1).min(row[j + 1] + 1).min(diagonal + usize::from(!same));
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[to.len()]
}

/// `HOST:PORT`, `HOST` or `:PORT`; what is missing comes from `default`.
pub(crate) fn address(flag: &str, said: Option<&str>, default: SocketAddr) -> Result<SocketAddr, ConfigError> {
    let Some(text) = said else { return Ok(default) };
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default.port()));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|p| p.parse().ok()) {
        return Ok(SocketAddr::new(default.ip(), port));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        // A resolver takes a bare number for an address: 7440 is 0.0.29.16.
        return fail(format!("{flag} {text} is not an address: write :{text} for the port, or HOST:PORT"));
    }
    let text = with_port(flag, text, default.port())?;
    text.to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .ok_or_else(|| ConfigError(format!("{flag} {text} is not an address: write HOST:PORT, as in 127.0.0.1:{CONTROL_PORT}")))
}

/// `HOST:PORT`, with the port filled in where it is missing. Names are not resolved.
fn with_port(flag: &str, text: &str, port: u16) -> Result<String, ConfigError> {
    let wrong = || ConfigError(format!("{flag} `{text}` is not an address: write HOST:PORT, as in 10.0.0.1:{CONTROL_PORT}"));
    if text.is_empty() || text.len() > 255 || text.contains(char::is_whitespace) {
        return Err(wrong());
    }
    if let Ok(a) = text.parse::<SocketAddr>() {
        return Ok(a.to_string());
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port).to_string());
    }
    match text.rsplit_once(':') {
        None => Ok(format!("{text}:{port}")),
        Some((host, p)) if !host.is_empty() && !host.contains(':') && p.parse::<u16>().is_ok() => Ok(text.to_owned()),
        Some(_) => Err(wrong()),
    }
}

fn label(flag: &str, text: &str) -> Result<String, ConfigError> {
    // Rules of placement can name no other one.
    if text.len() > VALUE_BYTES_MAX || !text.bytes().all(|c| c.is_ascii_graphic()) {
        let shown = text.chars().take(VALUE_BYTES_MAX).collect::<String>();
        return fail(format!(
            "{flag} `{}` must be at most {VALUE_BYTES_MAX} visible ASCII characters without spaces",
            shown.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

fn weight(said: Option<u32>) -> Result<u32, ConfigError> {
    match at_least("--weight", said, 1)? {
        Some(weight) if weight > WEIGHT_MAX => {
            fail(format!("--weight {weight} is too high: it must be at most {WEIGHT_MAX}, and 100 is usual"))
        }
        said => Ok(said.unwrap_or(100)),
    }
}

fn at_least<T: PartialOrd + fmt::Display>(flag: &str, value: Option<T>, least: T) -> Result<Option<T>, ConfigError> {
    match value {
        Some(v) if v < least => fail(format!("{flag} {v} is too low: it must be at least {least}")),
        other => Ok(other),
    }
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// A short text file.
fn read(path: &Path, flag: &str) -> Result<String, ConfigError> {
    let cannot = |why: String| ConfigError(format!("cannot read {} ({flag}): {why}", path.display()));
    let mut text = String::new();
    // What a file says of its length may be wrong: a device has none.
    let file = fs::File::open(path).map_err(|e| cannot(reason(&e)))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| cannot(reason(&e)))?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(cannot(format!("it has more than the {FILE_BYTES_MAX} bytes expected of such a file")));
    }
    Ok(text)
}

/// What a file holds, without the line's end.
pub(crate) fn read_line(path: &Path, flag: &str) -> Result<String, ConfigError> {
    let text = read(path, flag)?;
    let text = text.trim();
    if text.is_empty() {
        return fail(format!("{} ({flag}) is empty", path.display()));
    }
    Ok(text.to_owned())
}

fn reason(e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::IsADirectory => "it is a directory, a file is expected".into(),
        std::io::ErrorKind::InvalidData => "it is not text".into(),
        _ => e.to_string(),
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
    fn a_node_that_is_told_nothing_stays_on_loopback() {
        let config = resolve(|_| {}).expect("defaults hold");
        assert_eq!(config.listen.to_string(), "127.0.0.1:7400");
        assert_eq!(config.resp.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:7379"));
        assert_eq!(config.http.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:7480"));
        assert_eq!(config.trust, Trust::Loopback);
    }

    #[test]
    fn an_embedded_node_opens_no_client_ports_by_itself() {
        let config = Options::default().resolve(Defaults::Embedded).expect("defaults hold");
        assert_eq!((config.resp, config.resp_cluster, config.http), (None, None, None));
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

    #[test]
    fn addresses_may_leave_out_what_the_default_says() {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 7400));
        let parsed = |text| address("--listen", Some(text), default).map(|a| a.to_string());
        assert_eq!(parsed("127.0.0.2"), Ok("127.0.0.2:7400".into()));
        assert_eq!(parsed(":0"), Ok("127.0.0.1:0".into()));
        assert_eq!(parsed("[::1]:9"), Ok("[::1]:9".into()));
        assert!(parsed("no such name at all:1").is_err());
        assert!(parsed("127.0.0.1:99999").is_err());
        assert!(parsed("7440").is_err_and(|e| e.0.contains("write :7440")));
    }

    #[test]
    fn seeds_stay_names_and_get_the_default_port() {
        let config = resolve(|o| o.seed = vec!["db.internal".into(), "127.0.0.2:1".into()]).expect("holds");
        assert_eq!(config.seeds, ["db.internal:7400", "127.0.0.2:1"]);
        assert!(resolve(|o| o.seed = vec!["10.0.0.1".into()]).is_err_and(|e| e.0.contains("--secret-file")));
        assert!(resolve(|o| o.seed = vec!["a:b:c".into()]).is_err());
    }

    #[test]
    fn a_node_has_as_many_data_threads_as_it_is_told_and_one_otherwise() {
        assert_eq!(resolve(|_| {}).expect("holds").threads, 1);
        assert_eq!(resolve(|o| o.threads = Some(16)).expect("holds").threads, 16);
        for wrong in [0, 17, 300] {
            assert!(resolve(|o| o.threads = Some(wrong)).is_err_and(|e| e.0.contains(&format!("--threads {wrong}: a node has 1 to 16"))));
        }
        let mut options = Options { value_max: Some(Size(3 << 20)), memory_max: Some(Size(4 << 20)), ..Options::default() };
        assert!(options.clone().resolve(Defaults::Binary).is_ok());
        options.threads = Some(2);
        assert!(options.resolve(Defaults::Binary).is_err_and(|e| e.0.contains("--threads 2")));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        assert!(resolve(|o| o.partitions = Some(1000)).is_err());
        assert!(resolve(|o| o.partitions = Some(0)).is_err());
        assert!(resolve(|o| o.value_max = Some(Size(0))).is_err());
        let at = |bytes| resolve(|o| (o.value_max, o.memory_max) = (Some(Size(bytes)), Some(Size(1 << 30))));
        assert!(at(64 << 20).is_ok() && at((64 << 20) + 1).is_err_and(|e| e.0.contains("at most 64mb")));
        assert!(resolve(|o| (o.value_max, o.memory_max) = (Some(Size(1 << 30)), Some(Size(1 << 20)))).is_err());
        assert!(resolve(|o| o.backups = Some(200)).is_err());
        assert!(resolve(|o| o.min_in_sync = Some(3)).is_err());
        assert!(resolve(|o| o.weight = Some(0)).is_err());
        assert!(resolve(|o| o.weight = Some(1_000_000_000)).is_err_and(|why| why.to_string().contains("at most 100000")));
        assert!(resolve(|o| o.zone = Some("\u{e9}".into())).is_err() && resolve(|o| o.rack = Some("r".repeat(65))).is_err());
    }

    #[test]
    fn a_file_says_what_flags_say_and_unknown_keys_are_errors() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("doyen.toml");
        fs::write(&path, "seed = [\"a:1\"]\nvalue-max = \"1mb\"\nhttp = false\nbackups = 2\nthreads = 3\non-loss = \"wait\"\n")
            .expect("written");
        let options = Options::from_file(&path).expect("read");
        assert_eq!(options.value_max, Some(Size(1 << 20)));
        assert_eq!(options.http, Some(Toggle::Off));
        let config = options.resolve(Defaults::Binary).expect("holds");
        assert_eq!((config.keyspace.on_loss, config.threads), (OnLoss::Wait, 3));
        fs::write(&path, "backups = 1\nbakups = 2\n").expect("written");
        let error = Options::from_file(&path).expect_err("refused");
        assert!(error.0.contains("line 2") && error.0.contains("there is no key `bakups`: did you mean `backups`?"), "{error}");
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
    fn what_was_said_first_wins() {
        let flags = Options { backups: Some(2), ..Options::default() };
        let file = Options { backups: Some(0), weight: Some(7), ..Options::default() };
        let both = flags.or(file);
        assert_eq!((both.backups, both.weight), (Some(2), Some(7)));
    }

    #[test]
    fn secrets_do_not_reach_logs() {
        let config = resolve(|o| o.secret = Some(b"0123456789abcdef".to_vec())).expect("holds");
        assert!(!format!("{config:?}").contains("0123456789abcdef") && !format!("{config:?}").contains("48, 49"));
    }
}
