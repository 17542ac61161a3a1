//! The options of a node, as they are given: by flag, by a variable `DOYEN_*`, or in a TOML file.

use super::ConfigError;
use super::environment::Variable;
use super::value::{
    AssignmentName, DurationOption, EvictionPolicy, KeyEvents, LogFormat, LossPolicy, Preset, Size,
    TlsMin, Toggle,
};
use doyen_placement::Durability;
use serde::Deserialize;
use std::path::PathBuf;

/// Declares every option once: its flag, its variable, its key in a file, and what people read of
/// it. So merging two sources cannot forget one. A `switch` is a flag with or without a value.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])*
        $(#[arg($($arg:tt)*)])?
        $(#[switch($env:tt)])?
        $(#[serde($($serde:tt)*)])?
        $name:ident: $kind:ty
    ),* $(,)?) => {
        /// Options as they were given; `None`: not given.
        ///
        /// Beside the options of your own program:
        ///
        /// ```no_run
        /// #[derive(clap::Parser)]
        /// struct Arguments {
        ///     /// Where the shop listens
        ///     #[arg(long)]
        ///     web: String,
        ///     #[command(flatten)]
        ///     node: doyen::config::Options,
        /// }
        ///
        /// # async fn example() -> Result<(), doyen::Error> {
        /// let arguments = <Arguments as clap::Parser>::parse();
        /// let node = doyen::Node::builder().options(arguments.node).start().await?;
        /// # Ok(()) }
        /// ```
        #[derive(Clone, Default, PartialEq, Eq, Deserialize)]
        #[cfg_attr(feature = "flags", derive(clap::Args))]
        #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
        pub struct Options {
            /// Address of another node, HOST:PORT; repeat the flag for each
            #[cfg_attr(
                feature = "flags",
                arg(long, env = "DOYEN_SEED", value_name = "ADDR", value_delimiter = ',')
            )]
            pub seed: Vec<String>,
            $(
                $(#[doc = $doc])*
                $(#[cfg_attr(feature = "flags", arg($($arg)*))])?
                $(#[cfg_attr(
                    feature = "flags",
                    arg(
                        long,
                        env = $env,
                        num_args = 0..=1,
                        require_equals = true,
                        default_missing_value = "true",
                        value_name = "BOOL"
                    )
                )])?
                $(#[serde($($serde)*)])?
                pub $name: Option<$kind>,
            )*
        }

        impl Options {
            /// The options that the environment gives: for each, the variable with its name, as
            /// `DOYEN_MEMORY_MAX`. An empty variable counts as absent.
            ///
            /// # Errors
            /// A variable has a value that its option does not take. The error names both.
            pub fn from_env() -> Result<Self, ConfigError> {
                let mut options = Self {
                    seed: variable("seed")?.unwrap_or_default(),
                    $($name: variable(stringify!($name))?,)*
                };
                if options.secret_file.is_some() {
                    options.secret = None;
                }
                Ok(options)
            }

            /// The names of the options that are given, as fields of this type.
            #[doc(hidden)]
            #[must_use]
            pub fn given(&self) -> Vec<&'static str> {
                let all = [
                    ("seed", !self.seed.is_empty()),
                    $((stringify!($name), self.$name.is_some()),)*
                ];
                all.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
            }

            /// These options, completed with those of `other`.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self {
                    seed: if self.seed.is_empty() { other.seed } else { self.seed },
                    $($name: self.$name.or(other.$name),)*
                }
            }
        }
    };
}

/// The variable of an option.
fn variable<T: Variable>(option: &str) -> Result<Option<T>, ConfigError> {
    let name = format!("DOYEN_{}", option.to_uppercase());
    match std::env::var_os(&name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => T::read(value)
            .map(Some)
            .map_err(|why| ConfigError(format!("the variable {name}: {why}"))),
    }
}

options! {
    /// What the binary logs, for example warn, info or doyen=debug. A program that embeds a node
    /// sets up its own log [default: info]
    #[arg(long, env = "DOYEN_LOG", value_name = "FILTER")]
    log: String,
    /// How the binary writes its log: text, json (an object a line), or journald (with priorities,
    /// without times) [default: journald if stderr is a stream of journald, otherwise text]
    #[arg(long, env = "DOYEN_LOG_FORMAT", value_name = "FORMAT")]
    log_format: LogFormat,
    /// How many initial members form the first cluster. Give it if all nodes have the same name or
    /// load balancer as their seed [default: the number of distinct seeds, including this node]
    #[arg(long, env = "DOYEN_EXPECT", value_name = "N")]
    expect: u16,
    /// QUIC port for control: agreement, gossip, joins [default: 127.0.0.1:7400, with a secret
    /// 0.0.0.0:7400]
    #[arg(long, env = "DOYEN_LISTEN", value_name = "ADDR")]
    listen: String,
    /// QUIC port for data [default: the next port after --listen]
    #[arg(long, env = "DOYEN_DATA", value_name = "ADDR")]
    data: String,
    /// Data threads, 1 to 16. Each has a part of the partitions, and its own port after --data and
    /// after --resp-cluster [default: 1]
    #[arg(long, env = "DOYEN_THREADS", value_name = "N")]
    threads: u32,
    /// RESP port for any client, or off [default: 127.0.0.1:7379]
    #[arg(long, env = "DOYEN_RESP", value_name = "ADDR")]
    resp: Toggle,
    /// RESP port for cluster-aware clients, or off [default: 127.0.0.1:7380]
    #[arg(long, env = "DOYEN_RESP_CLUSTER", value_name = "ADDR")]
    resp_cluster: Toggle,
    /// HTTP port for status, table, health and metrics, or off [default: 127.0.0.1:7480]
    #[arg(long, env = "DOYEN_HTTP", value_name = "ADDR")]
    http: Toggle,
    /// Let HTTP speak TLS, and nothing else [default: true beyond loopback]. The certificate is
    /// that of --http-tls-cert; without it, that of --tls-cert, or one of the cluster's authority
    #[switch("DOYEN_HTTP_TLS")]
    http_tls: bool,
    /// PEM file: the certificate that HTTP clients are shown, and those that signed it
    #[arg(long, env = "DOYEN_HTTP_TLS_CERT", value_name = "FILE")]
    http_tls_cert: PathBuf,
    /// PEM file: the key of --http-tls-cert
    #[arg(long, env = "DOYEN_HTTP_TLS_KEY", value_name = "FILE")]
    http_tls_key: PathBuf,
    /// Let HTTP be in the clear beyond loopback: who reads the network sees tokens
    #[switch("DOYEN_HTTP_INSECURE")]
    http_insecure: bool,
    /// Host name that HTTP answers to; repeat the flag for each. HTTP always answers to IP
    /// addresses, to localhost, and to the names of this node and this machine
    #[arg(long, env = "DOYEN_HTTP_HOST", value_name = "NAME", value_delimiter = ',')]
    http_host: Vec<String>,
    /// Where other nodes reach this one, for example behind NAT: IP or IP:PORT
    #[arg(long, env = "DOYEN_ADVERTISE", value_name = "ADDR")]
    advertise: String,
    /// Where clients reach this node, for example behind NAT: HOST, or HOST:PORT with the port of
    /// --resp. If HOST is a name, cluster-aware clients are sent to that name
    #[arg(long, env = "DOYEN_ADVERTISE_RESP", value_name = "ADDR")]
    advertise_resp: String,
    /// Where clients reach --resp-cluster, for example behind NAT: HOST or HOST:PORT. Further data
    /// threads have the ports that follow [default: HOST of --advertise-resp]
    #[arg(long, env = "DOYEN_ADVERTISE_RESP_CLUSTER", value_name = "ADDR")]
    advertise_resp_cluster: String,
    /// Name of this node, unique among live nodes [default: its advertised address]
    #[arg(long, env = "DOYEN_NAME")]
    name: String,
    /// Availability zone. Copies of a partition are placed in different zones
    #[arg(long, env = "DOYEN_ZONE")]
    zone: String,
    /// Rack. Copies of a partition are placed in different racks
    #[arg(long, env = "DOYEN_RACK")]
    rack: String,
    /// Host. Copies of a partition are placed on different hosts
    #[arg(long, env = "DOYEN_HOST")]
    host: String,
    /// Capacity relative to other nodes. Above 8 times the median of the members, the node waits
    /// until an operator runs `doyen weight allow` [default: 100]
    #[arg(long, env = "DOYEN_WEIGHT", value_name = "N")]
    weight: u32,
    /// Vote, but hold no data
    #[switch("DOYEN_WITNESS")]
    witness: bool,
    /// Directory of this node alone. The table of the cluster (members, keyspaces, maps, users,
    /// tokens, scripts) and the node's votes are synced there, so that a cluster whose nodes all
    /// ended is the same one again. Data stays in memory
    #[arg(long, env = "DOYEN_DIR", value_name = "DIR")]
    dir: PathBuf,
    /// File with the secret that all nodes share, made by `doyen secret new` (or DOYEN_SECRET). It
    /// is read again when it changes, and at SIGHUP
    #[arg(long, env = "DOYEN_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,
    /// The secret itself. There is no flag for it, because other users can see flags.
    #[arg(skip)]
    #[serde(skip)]
    secret: Vec<u8>,
    /// PEM file: the authority that signs the certificate of every node, instead of a secret
    #[arg(long, env = "DOYEN_TLS_CA", value_name = "FILE")]
    tls_ca: PathBuf,
    /// PEM file: this node's certificate
    #[arg(long, env = "DOYEN_TLS_CERT", value_name = "FILE")]
    tls_cert: PathBuf,
    /// PEM file: this node's key
    #[arg(long, env = "DOYEN_TLS_KEY", value_name = "FILE")]
    tls_key: PathBuf,
    /// PEM file: revocation lists of the authority
    #[arg(long, env = "DOYEN_TLS_CRL", value_name = "FILE")]
    tls_crl: PathBuf,
    /// What precedes member, client or operator in a certificate: in a URI of its subjectAltName,
    /// or in an organizational unit [default: doyen:]
    #[arg(long, env = "DOYEN_TLS_ROLE_PREFIX", value_name = "TEXT")]
    tls_role_prefix: String,
    /// File with tokens of operators for HTTP, one a line: this node takes each of them, besides
    /// the token of the secret and the named tokens of the cluster (`doyen token`)
    #[arg(long, env = "DOYEN_HTTP_TOKEN_FILE", value_name = "FILE")]
    http_token_file: PathBuf,
    /// File with the password of RESP clients
    #[arg(long, env = "DOYEN_RESP_PASSWORD_FILE", value_name = "FILE")]
    resp_password_file: PathBuf,
    /// File with the users of RESP clients, as Redis writes it (`aclfile`). Otherwise the table of
    /// the cluster has them (ACL SETUSER), and with this file, those are not used
    #[arg(long, env = "DOYEN_RESP_ACL_FILE", value_name = "FILE")]
    resp_acl_file: PathBuf,
    /// Let RESP clients speak TLS, and nothing else, on both ports. The certificate is that of
    /// --resp-tls-cert; without it, that of --tls-cert, or one of the cluster's authority
    #[switch("DOYEN_RESP_TLS")]
    resp_tls: bool,
    /// PEM file: the certificate that RESP clients are shown, and those that signed it
    #[arg(long, env = "DOYEN_RESP_TLS_CERT", value_name = "FILE")]
    resp_tls_cert: PathBuf,
    /// PEM file: the key of --resp-tls-cert
    #[arg(long, env = "DOYEN_RESP_TLS_KEY", value_name = "FILE")]
    resp_tls_key: PathBuf,
    /// PEM file: the authority of certificates that RESP clients may show
    #[arg(long, env = "DOYEN_RESP_TLS_CLIENT_CA", value_name = "FILE")]
    resp_tls_client_ca: PathBuf,
    /// The least version of TLS that RESP clients may speak, 1.3 or 1.2. Give 1.2 for clients that
    /// know no other [default: 1.3]
    #[arg(long, env = "DOYEN_RESP_TLS_MIN", value_name = "VERSION")]
    resp_tls_min: TlsMin,
    /// How long a RESP client may take to authenticate, for example 10s; 0s: no limit [default:
    /// 60s]
    #[arg(long, env = "DOYEN_RESP_AUTH_TIMEOUT", value_name = "DURATION")]
    resp_auth_timeout: DurationOption,
    /// How long a RESP client may be idle before it is disconnected, for example 5m; 0s: no limit
    /// [default: 0s]
    #[arg(long, env = "DOYEN_RESP_IDLE_TIMEOUT", value_name = "DURATION")]
    resp_idle_timeout: DurationOption,
    /// How long a RESP client may be silent before the system asks for a sign of life, for example
    /// 60s; 0s: it never asks. A client that gives none is gone after twice that time, and so is
    /// one that acknowledges no output [default: 300s]
    #[arg(long, env = "DOYEN_RESP_TCP_KEEPALIVE", value_name = "DURATION")]
    resp_tcp_keepalive: DurationOption,
    /// Messages about keys that RESP clients may subscribe to, as Redis writes them, for example
    /// KEA for all or Ex for expired keys. It holds until a client sets it for all nodes (CONFIG
    /// SET) [default: none]
    #[arg(long, env = "DOYEN_NOTIFY_KEYSPACE_EVENTS", value_name = "EVENTS")]
    notify_keyspace_events: KeyEvents,
    /// Refuse transactions of RESP clients (MULTI) whose keys are in several partitions. Otherwise
    /// each partition's part is executed by itself, whole or not at all
    #[switch("DOYEN_STRICT_TRANSACTIONS")]
    strict_transactions: bool,
    /// Limit on the memory of this process for data, buffers and what its allocator keeps; the
    /// program itself needs 32mb more [default: three quarters of what the machine or the control
    /// group allows, less 32mb]
    #[arg(long, env = "DOYEN_MEMORY_MAX", value_name = "SIZE")]
    memory_max: Size,
    /// Largest value, at most 64mb [default: 16mb, or an eighth of a data thread's memory]
    #[arg(long, env = "DOYEN_VALUE_MAX", value_name = "SIZE")]
    value_max: Size,
    /// Size at which a range of keys is split [default: 64mb]
    #[arg(long, env = "DOYEN_RANGE_MAX", value_name = "SIZE")]
    range_max: Size,
    /// Limit on RESP connections [default: 10000]
    #[arg(long, env = "DOYEN_CONNECTIONS_MAX", value_name = "N")]
    connections_max: u32,
    /// Limit on native clients [default: 1000]
    #[arg(long, env = "DOYEN_CLIENTS_MAX", value_name = "N")]
    clients_max: u32,
    /// Only for a new cluster: one-server makes three nodes one Redis server with failover, as
    /// --partitions 1 --backups 2 do. Options that are given besides count
    #[arg(long, env = "DOYEN_PRESET", value_name = "NAME")]
    preset: Preset,
    /// Only for a new cluster: number of partitions, a power of two up to 16384 [default: 1024]
    #[arg(long, env = "DOYEN_PARTITIONS", value_name = "N")]
    partitions: u16,
    /// Only for a new cluster: copies beside the primary [default: 1]
    #[arg(long, env = "DOYEN_BACKUPS", value_name = "N")]
    backups: u8,
    /// Only for a new cluster: the fewest copies, including the primary, with which writes are
    /// acknowledged [default: 1]
    #[arg(long, env = "DOYEN_MIN_IN_SYNC", value_name = "N")]
    min_in_sync: u8,
    /// Only for a new cluster: what happens when every copy of a partition is lost. reset:DURATION:
    /// the partition begins empty after that time, or at once if all holders are proved dead.
    /// reset: after 10 minutes. wait: it stays unavailable [default: reset:10m, and wait with
    /// --durability log]
    #[arg(long, env = "DOYEN_ON_LOSS", value_name = "POLICY")]
    on_loss: LossPolicy,
    /// Only for a new cluster: where a write is when it is acknowledged. none: in memory. log: also
    /// synced to the directory (--dir) of every node that holds it in sync [default: none]
    #[arg(long, env = "DOYEN_DURABILITY", value_name = "WHERE")]
    durability: Durability,
    /// Only for a new cluster: which keys are evicted when memory is full: none (writes are
    /// refused), lru, random, or ttl (of the keys that expire) [default: none]
    #[arg(long, env = "DOYEN_EVICTION", value_name = "POLICY")]
    eviction: EvictionPolicy,
    /// Only for a new cluster: wait for this many nodes with data before serving [default: 1]
    #[arg(long, env = "DOYEN_MEMBERS_MIN", value_name = "N")]
    members_min: u16,
    /// Only for a new cluster: limit on the number of voters [default: 7]
    #[arg(long, env = "DOYEN_VOTERS_MAX", value_name = "N")]
    voters_max: u8,
    /// How long a leaving node waits until other members hold its data, for example 30s or 5m; the
    /// node ends at most 4 s later [default: 25s]
    #[arg(long, env = "DOYEN_LEAVE_TIMEOUT", value_name = "DURATION")]
    leave_timeout: DurationOption,
    /// How long a member may be silent before the others continue without it, 300ms to 6s. A
    /// process that ended is noticed sooner [default: 1s]
    #[arg(long, env = "DOYEN_SILENCE_MAX", value_name = "DURATION")]
    silence_max: DurationOption,
    /// The highest level that this node speaks, to hold the cluster at the level of the release
    /// before it while an upgrade may be taken back [default: the highest of the program]
    #[arg(long, env = "DOYEN_LEVEL_MAX", value_name = "N")]
    level_max: u16,
    /// Only for a new cluster: how partitions are first assigned: round-robin or rendezvous
    /// [default: round-robin]
    #[arg(long, env = "DOYEN_ASSIGNMENT", value_name = "NAME")]
    assignment: AssignmentName,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The options may contain the secret, so only harmless ones are shown.
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("listen", &self.listen)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
