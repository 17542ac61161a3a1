//! The configuration of a node. Flags, a TOML file and the environment have the same options with
//! the same names: one struct, [`Options`], is all three. Flags win over the environment, and the
//! environment over the file.
//!
//! ```text
//!   flags ─┐
//!   env   ─┼─> Options (as given) ──resolve──> Config (with defaults; rules of security checked)
//!   file  ─┘
//! ```
//! The groups of a [`Config`] resolve themselves, each in a file: ports, trust, RESP, HTTP, memory
//! and the first table.

mod environment;
#[cfg(feature = "flags")]
mod file;
mod files;
mod first;
mod http;
pub mod keyspace;
mod memory;
mod options;
mod ports;
mod resp;
#[cfg(test)]
mod tests;
mod trust;
pub mod value;

#[cfg(feature = "flags")]
pub(crate) use file::nearest;
#[cfg(feature = "flags")]
pub use file::unread_variables;
pub use files::{read_line, secrets_of};
pub use first::FirstTable;
#[cfg(feature = "fuzz")]
pub(crate) use http::tokens_of;
pub use http::{HttpConfig, http_tokens};
pub use memory::{Memory, MemoryConfig};
pub use options::Options;
pub use ports::{
    CONTROL_PORT, ClientAddress, DATA_PORT, HTTP_PORT, PortsConfig, RESP_CLUSTER_PORT, RESP_PORT,
    address,
};
pub use resp::RespConfig;
pub use trust::{PortTls, Trust};

pub use crate::net::identity::PemFiles;
use crate::net::identity::secret::SecretRole as TrustRole;
pub use crate::net::identity::secret::{Line, Secrets};
use doyen_placement::level::LEVELS;
use doyen_placement::rule::VALUE_BYTES_MAX;
use doyen_placement::table::validate::WEIGHT_MAX;
use doyen_placement::{Location, Role};
use files::{directory_exposure, exposure};
use ports::{of_flag, parsed};
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
pub use value::{KeyEvents, TlsMin};

/// Below this range, a busy machine looks dead. Above it, failover takes too long.
const SILENCE: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_secs(6);
/// With 600 ms, members were expelled that only waited for a core. A process that ended is noticed
/// by its closed port, so this value does not matter then.
const SILENCE_DEFAULT: Duration = Duration::from_secs(1);
/// Kubernetes kills a process 30 s after SIGTERM. A leaving node ends before that, at most
/// `node::OVERTIME_MAX` after this timeout.
const LEAVE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(25);
/// Seeds, at most.
const SEEDS_MAX: usize = 64;

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

/// A configuration that was checked.
///
/// ```
/// use doyen::config::{Defaults, Options, RESP_PORT, Trust};
///
/// let options = Options { name: Some("orders-1".to_owned()), ..Options::default() };
/// let binary = options.clone().resolve(Defaults::Binary)?;
/// assert_eq!(binary.ports.resp.map(|address| address.port()), Some(RESP_PORT));
/// let config = options.resolve(Defaults::Embedded)?;
/// assert_eq!(config.ports.resp, None, "an embedded node has no RESP port by itself");
/// assert_eq!(config.trust, Trust::Loopback, "no secret: only nodes on this machine");
/// # Ok::<_, doyen::config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of other nodes, as `host:port`.
    pub seeds: Vec<String>,
    /// How many initial members form the first cluster.
    pub expect: Option<u16>,
    /// The node's name; `None`: the advertised address.
    pub name: Option<String>,
    /// Zone, rack and host.
    pub location: Location,
    /// Its capacity; 100 is the default.
    pub weight: u32,
    /// Data or witness.
    pub role: Role,
    /// What the node must not forget when its process ends; `None`: nothing.
    pub dir: Option<PathBuf>,
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
    /// How nodes know that they belong together.
    pub trust: Trust,
    /// Where it listens, and where others reach it.
    pub ports: PortsConfig,
    /// What RESP clients may do.
    pub resp: RespConfig,
    /// What HTTP takes.
    pub http: HttpConfig,
    /// What its memory is for.
    pub memory: MemoryConfig,
    /// The first table, if this node writes it.
    pub first: FirstTable,
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
        let trust = Trust::resolve(&self, &[TrustRole::Member])?;
        let ports = PortsConfig::resolve(&self, defaults, &trust)?;
        let seeds = self.seeds("--seed", CONTROL_PORT)?;
        if let Some(seed) = elsewhere(&seeds, &trust) {
            return fail(format!(
                "--seed {seed} is on another machine, but without a secret a node talks only to \
                 nodes on this machine: give --secret-file FILE (or DOYEN_SECRET), or --tls-ca, \
                 --tls-cert and --tls-key"
            ));
        }
        Ok(Config {
            resp: RespConfig::resolve(&self, &ports, &trust)?,
            http: HttpConfig::resolve(&self, &ports, &trust)?,
            memory: MemoryConfig::resolve(&self, defaults, ports.threads)?,
            first: FirstTable::resolve(&self)?,
            expect: at_least("--expect", self.expect, 1)?,
            name: (self.name.as_deref().filter(|n| !n.is_empty()))
                .map(member_name)
                .transpose()?,
            location: Location {
                zone: label("--zone", self.zone.as_deref().unwrap_or_default())?,
                rack: label("--rack", self.rack.as_deref().unwrap_or_default())?,
                host: label("--host", self.host.as_deref().unwrap_or_default())?,
            },
            weight: weight(self.weight)?,
            role: match self.witness {
                Some(true) => Role::Witness,
                _ => Role::Data,
            },
            dir: self.dir.clone().filter(|dir| !dir.as_os_str().is_empty()),
            clients_max: self.clients_max.unwrap_or(1_000) as usize,
            leave_timeout: self.leave_timeout.map_or(LEAVE_TIMEOUT_DEFAULT, |s| s.0),
            level_max: self.level_max()?,
            silence_max: self.silence_max()?,
            exposed: self.exposed(),
            seeds,
            trust,
            ports,
        })
    }

    /// The options of a client: trust, seeds (data ports), and its name.
    ///
    /// # Errors
    /// The options contradict each other or cannot be used; the message has one line.
    pub(crate) fn client(&self) -> Result<ClientConfig, ConfigError> {
        let trust = Trust::resolve(self, &[TrustRole::Client, TrustRole::Member])?;
        let seeds = self.seeds("the seed", DATA_PORT)?;
        if seeds.is_empty() {
            return fail(format!(
                "a client needs a seed: give the data address (--data, by default port \
                 {DATA_PORT}) of a node"
            ));
        }
        if let Some(seed) = elsewhere(&seeds, &trust) {
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

    /// Warnings about files with secrets, and a directory, that other users of this machine can
    /// read.
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
            .chain(self.dir.as_deref().and_then(directory_exposure))
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
}

impl Config {
    /// Whether this node must refuse every request by HTTP until there are named tokens: HTTP is
    /// on, but there is neither a secret nor a file of tokens.
    pub fn takes_no_commands(&self) -> bool {
        self.ports.http.is_some()
            && self.http.token_file.is_none()
            && matches!(self.trust, Trust::Pem(_))
    }
}

/// A seed on another machine, which a node without trust does not talk to.
fn elsewhere<'a>(seeds: &'a [String], trust: &Trust) -> Option<&'a String> {
    let is_elsewhere = |s: &&String| s.parse::<SocketAddr>().is_ok_and(|a| !a.ip().is_loopback());
    (seeds.iter().filter(|_| *trust == Trust::Loopback)).find(is_elsewhere)
}

fn fail<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError(message))
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
