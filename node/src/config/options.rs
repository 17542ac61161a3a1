//! Everything that can be said to a node, as it is said: by flag, by `DOYEN_*`, or in a TOML file.

use super::value::{AssignmentName, EvictionPolicy, LossPolicy, Size, Span, Toggle};
use serde::Deserialize;
use std::path::PathBuf;

/// Declares the options once; the merge of two sources cannot forget one.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])*
        $(#[arg($($arg:tt)*)])?
        $(#[serde($($serde:tt)*)])?
        $name:ident: $kind:ty
    ),* $(,)?) => {
        /// What was said. `None` means that nothing was.
        #[derive(Clone, Default, PartialEq, Eq, Deserialize)]
        #[cfg_attr(feature = "flags", derive(clap::Args))]
        #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
        pub struct Options {
            /// Address of another node, HOST:PORT; give it once for each
            #[cfg_attr(
                feature = "flags",
                arg(long, env = "DOYEN_SEED", value_name = "ADDR", value_delimiter = ',')
            )]
            pub seed: Vec<String>,
            $(
                $(#[doc = $doc])*
                $(#[cfg_attr(feature = "flags", arg($($arg)*))])?
                $(#[serde($($serde)*)])?
                pub $name: Option<$kind>,
            )*
        }

        impl Options {
            /// What is said here, and where nothing is, what `other` says.
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

options! {
    /// What the binary logs, as in warn, info or doyen=debug; a program that embeds a node logs as
    /// it likes [default: info]
    #[arg(long, env = "DOYEN_LOG", value_name = "FILTER")]
    log: String,
    /// How many initial members form the first cluster: say it if one name or balancer is
    /// everybody's seed [default: the distinct seeds, this node among them]
    #[arg(long, env = "DOYEN_EXPECT", value_name = "N")]
    expect: u16,
    /// QUIC, control: agreement, gossip, joins [default: 127.0.0.1:7400, with a secret
    /// 0.0.0.0:7400]
    #[arg(long, env = "DOYEN_LISTEN", value_name = "ADDR")]
    listen: String,
    /// QUIC, data [default: the next port]
    #[arg(long, env = "DOYEN_DATA", value_name = "ADDR")]
    data: String,
    /// Data threads, 1 to 16, each with its part of the partitions and with ports of its own: those
    /// after --data and --resp-cluster [default: 1]
    #[arg(long, env = "DOYEN_THREADS", value_name = "N")]
    threads: u32,
    /// RESP for the whole cluster, or off [default: 127.0.0.1:7379]
    #[arg(long, env = "DOYEN_RESP", value_name = "ADDR")]
    resp: Toggle,
    /// RESP for cluster-aware clients, or off [default: 127.0.0.1:7380]
    #[arg(long, env = "DOYEN_RESP_CLUSTER", value_name = "ADDR")]
    resp_cluster: Toggle,
    /// HTTP: status, table, health, metrics; or off [default: 127.0.0.1:7480]
    #[arg(long, env = "DOYEN_HTTP", value_name = "ADDR")]
    http: Toggle,
    /// A name by which HTTP is asked for, beside IP addresses, localhost and this node's and this
    /// machine's names; give it once for each
    #[arg(long, env = "DOYEN_HTTP_HOST", value_name = "NAME", value_delimiter = ',')]
    http_host: Vec<String>,
    /// Where other nodes reach this one, behind NAT: IP or IP:PORT
    #[arg(long, env = "DOYEN_ADVERTISE", value_name = "ADDR")]
    advertise: String,
    /// Where clients reach this one, behind NAT: HOST, or HOST:PORT with the port of --resp. To a
    /// name cluster-aware clients are sent by that name
    #[arg(long, env = "DOYEN_ADVERTISE_RESP", value_name = "ADDR")]
    advertise_resp: String,
    /// Where clients reach --resp-cluster, behind NAT: HOST or HOST:PORT; further threads have the
    /// ports that follow [default: HOST of --advertise-resp]
    #[arg(long, env = "DOYEN_ADVERTISE_RESP_CLUSTER", value_name = "ADDR")]
    advertise_resp_cluster: String,
    /// This node's name, unique among the living [default: its advertised address]
    #[arg(long, env = "DOYEN_NAME")]
    name: String,
    /// Availability zone; copies are kept apart
    #[arg(long, env = "DOYEN_ZONE")]
    zone: String,
    /// Rack; copies are kept apart
    #[arg(long, env = "DOYEN_RACK")]
    rack: String,
    /// Host; copies are kept apart
    #[arg(long, env = "DOYEN_HOST")]
    host: String,
    /// Capacity relative to other nodes [default: 100]
    #[arg(long, env = "DOYEN_WEIGHT", value_name = "N")]
    weight: u32,
    /// Vote, and hold no data
    #[arg(long, env = "DOYEN_WITNESS", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    witness: bool,
    /// File with the secret that all nodes share, at least 16 bytes (or DOYEN_SECRET)
    #[arg(long, env = "DOYEN_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,
    /// The secret itself: never a flag, because other users see flags.
    #[arg(skip)]
    #[serde(skip)]
    secret: Vec<u8>,
    /// PEM: the authority that signs every node, instead of a secret
    #[arg(long, env = "DOYEN_TLS_CA", value_name = "FILE")]
    tls_ca: PathBuf,
    /// PEM: this node's certificate
    #[arg(long, env = "DOYEN_TLS_CERT", value_name = "FILE")]
    tls_cert: PathBuf,
    /// PEM: this node's key
    #[arg(long, env = "DOYEN_TLS_KEY", value_name = "FILE")]
    tls_key: PathBuf,
    /// File with the token that HTTP asks for before it changes anything, or shows keys that RESP
    /// protects [default: derived from the secret]
    #[arg(long, env = "DOYEN_HTTP_TOKEN_FILE", value_name = "FILE")]
    http_token_file: PathBuf,
    /// File with the password that RESP clients give
    #[arg(long, env = "DOYEN_RESP_PASSWORD_FILE", value_name = "FILE")]
    resp_password_file: PathBuf,
    /// How long a RESP client may take to give it, as in 10s; 0s: as long as it likes [default:
    /// 60s]
    #[arg(long, env = "DOYEN_RESP_AUTH_TIMEOUT", value_name = "DURATION")]
    resp_auth_timeout: Span,
    /// How long a RESP client may send nothing before it is disconnected, as in 5m; 0s: as long as
    /// it likes [default: 0s]
    #[arg(long, env = "DOYEN_RESP_IDLE_TIMEOUT", value_name = "DURATION")]
    resp_idle_timeout: Span,
    /// Memory that the process may hold: data, buffers, and what its allocator keeps; 32mb more are
    /// for the program itself [default: three quarters of what the machine or the control group
    /// allows, less that]
    #[arg(long, env = "DOYEN_MEMORY_MAX", value_name = "SIZE")]
    memory_max: Size,
    /// Largest value, 64mb at most [default: 16mb, or an eighth of what a data thread may hold]
    #[arg(long, env = "DOYEN_VALUE_MAX", value_name = "SIZE")]
    value_max: Size,
    /// Bytes from which on a range of keys is split, each with its copies [default: 64mb]
    #[arg(long, env = "DOYEN_RANGE_MAX", value_name = "SIZE")]
    range_max: Size,
    /// RESP connections at most [default: 10000]
    #[arg(long, env = "DOYEN_CONNECTIONS_MAX", value_name = "N")]
    connections_max: u32,
    /// Native clients at most [default: 1000]
    #[arg(long, env = "DOYEN_CLIENTS_MAX", value_name = "N")]
    clients_max: u32,
    /// Partitions of a new cluster, a power of two up to 16384 [default: 1024]
    #[arg(long, env = "DOYEN_PARTITIONS", value_name = "N")]
    partitions: u16,
    /// Copies beside the primary, in a new cluster [default: 1]
    #[arg(long, env = "DOYEN_BACKUPS", value_name = "N")]
    backups: u8,
    /// With how many copies writes are still acknowledged, in a new cluster [default: 1]
    #[arg(long, env = "DOYEN_MIN_IN_SYNC", value_name = "N")]
    min_in_sync: u8,
    /// When every copy of a partition is gone: reset:DURATION begins empty after that time, at once
    /// where all holders are proved dead; wait keeps it unavailable [default: reset:10m]
    #[arg(long, env = "DOYEN_ON_LOSS", value_name = "POLICY")]
    on_loss: LossPolicy,
    /// Which keys go where memory is full, in a new cluster: none (writes are refused), lru,
    /// random, or ttl (of those that expire) [default: none]
    #[arg(long, env = "DOYEN_EVICTION", value_name = "POLICY")]
    eviction: EvictionPolicy,
    /// Nodes with data that a new cluster waits for before it serves [default: 1]
    #[arg(long, env = "DOYEN_MEMBERS_MIN", value_name = "N")]
    members_min: u16,
    /// Members that vote at most, in a new cluster [default: 7]
    #[arg(long, env = "DOYEN_VOTERS_MAX", value_name = "N")]
    voters_max: u8,
    /// How long a leaving node waits until other members hold what it held, as in 30s or 5m; it
    /// ends 4 s later at most [default: 25s]
    #[arg(long, env = "DOYEN_LEAVE_TIMEOUT", value_name = "DURATION")]
    leave_timeout: Span,
    /// How long a member may keep silent before the others go on without it, 300ms to 6s; a process
    /// that ended is noticed sooner [default: 1s]
    #[arg(long, env = "DOYEN_SILENCE_MAX", value_name = "DURATION")]
    silence_max: Span,
    /// The highest level that this node speaks, to hold the cluster at the level of the release
    /// before while an upgrade may be taken back [default: the highest of the program]
    #[arg(long, env = "DOYEN_LEVEL_MAX", value_name = "N")]
    level_max: u16,
    /// How a new cluster first assigns partitions: round-robin or rendezvous [default: round-robin]
    #[arg(long, env = "DOYEN_ASSIGNMENT", value_name = "NAME")]
    assignment: AssignmentName,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret may be among them: only what is harmless is shown.
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("listen", &self.listen)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
