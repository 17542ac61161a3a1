//! Doyen: a peer-to-peer in-memory data grid.
//!
//! Nodes find each other by gossip over QUIC. The oldest live member is the first candidate for
//! coordinator. Versioned partition tables say which member holds which key. A write is
//! acknowledged when every copy in sync has it. A read sees every write that was acknowledged
//! before it began.
//!
//! # Embedding
//!
//! ```no_run
//! use std::time::Duration;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct User {
//!     name: String,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let node = doyen::Node::builder()
//!     .name("orders-1")
//!     .seeds(["10.0.0.1:7400", "10.0.0.2:7400"])
//!     .secret_file("/etc/doyen/secret")
//!     .start()
//!     .await?;
//! let users = node.map::<u64, User>("users").await?;
//! users.put(&7, &User { name: "Ada".into() }).ttl(Duration::from_secs(60)).await?;
//! let ada = users.get(&7).await?;
//! node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Any node of the cluster can be asked for any key: `users.get` asks the node that leads the key.
//! An [`Error`] says whether anything happened ([`Error::happened`]) and whether trying again may
//! help ([`Error::retryable`]).
//!
//! # What a node gives
//! | | |
//! |---|---|
//! | [`Node::map`] | a typed map: [`Map`], with options by [`Map::put`], changes by [`Map::subscribe`] |
//! | [`Node::cache`] | a map that loads what is missing, once for the cluster: [`Cache::get_or_load`] |
//! | `Map::near` | copies in the process, never older than a bound (feature `near`) |
//! | [`Node::counters`] | numbers with bounds and windows: [`Counters`] |
//! | [`Node::set`], [`Node::sorted_set`], [`Node::list`] | typed collections: [`Set`], [`SortedSet`], [`List`] |
//! | [`Node::queue`] | jobs with leases, retries and dead letters: [`JobQueue`], [`Job`] |
//! | [`Node::lock`], [`Node::semaphore`] | locks with fencing tokens: [`Lock`], [`Grant`] |
//! | [`Node::election`], [`Node::once`] | one leader; work that is done once |
//! | [`Node::rate_limiter`] | token buckets and sliding windows: [`RateLimiter`] |
//! | [`Node::database`] | the bytes that Redis clients see: [`Database`] |
//! | [`Node::admin`] | keyspaces, members, moves, reports: [`Admin`] |
//!
//! Two nodes in one program, as a test or a first try has them. The first one has no seeds, so it
//! begins a cluster; the second one finds it by its address:
//!
//! ```
//! use doyen::{Map, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let north = Node::builder().name("north").listen("127.0.0.1:0").start().await?;
//! let seed = north.addresses().control.to_string();
//! let south = Node::builder().name("south").listen("127.0.0.1:0").seed(seed).start().await?;
//!
//! let written: Map<u64, String> = north.map("users").await?;
//! written.insert(&7, &"Ada".to_owned()).await?;
//! let read: Map<u64, String> = south.map("users").await?;
//! assert_eq!(read.get(&7).await?.as_deref(), Some("Ada")); // from the node that holds it
//!
//! north.shutdown().await; // hands over to south
//! assert_eq!(read.get(&7).await?.as_deref(), Some("Ada"));
//! south.shutdown().await;
//! # Ok(()) }) }
//! ```
//!
//! # Features
//! Without features, the crate holds nodes, maps, clients and administration, and builds nothing
//! else.
//!
//! | feature | adds |
//! |---|---|
//! | `resp` | the ports for Redis clients: `Builder::resp`, `Builder::resp_cluster` |
//! | `http` | the port for health, status, metrics and administration: `Builder::http` |
//! | `metrics` | metrics for the recorder of the program, and as text: `Node::report_metrics` |
//! | `console` | a page of the HTTP port that shows the cluster in a browser; includes `http` |
//! | `near` | near caches: `Map::near`, `Cache::near` (quick_cache) |
//! | `otel` | spans that go on at the members that execute an operation, see below |
//! | `phrases` | secrets that are phrases (argon2). Secrets of `doyen secret new` need nothing of this |
//! | `flags` | [`config::Options`] as flags of the program's own command line (clap), and from a TOML file |
//! | `testkit-local` | clusters in the process of a test: `doyen::test`, `testkit::Local` |
//! | `testkit` | the same, and clusters of real processes: `testkit::Cluster` |
//!
//! # Runtimes
//! A node has threads of its own. Its maps work on any async runtime and in any number of tasks.
//! What waits needs a tokio runtime with timers: starting a node, opening maps, caches and near
//! caches, loads of a cache, locks, administration. Without one it returns [`Error::NoRuntime`].
//!
//! # Spans
//! With the feature `otel`, an operation within a span of `tracing` belongs to that span's trace at
//! the member that executes it, too. For this, a program has the layer of `tracing-opentelemetry`
//! in its global subscriber, in the version that Doyen uses (0.34, with `opentelemetry` 0.33).
//!
//! - The member that executes the call of another process or node has a span `doyen.serve`, from
//!   the arrival of the call to its answer. It is a child of the caller's span. `doyen.operation`
//!   is `read`, `write`, `partition`, `transaction` or `script`.
//! - Only sampled traces travel. An operation that is not part of one costs nothing on the wire,
//!   and no span. An operation whose key the caller's own node leads has no span of its own.
//! - The loader of a cache runs in a task of its own. Give it the span (`in_current_span`), if its
//!   work belongs to the trace.
//! - These spans begin and end on the node's data threads. So export them in batches, not one by
//!   one.
//!
//! # From another process
//!
//! A client is a node that is no member of the cluster. It dials the data port of any member,
//! learns which member leads which key, and asks that one. It has the same maps, caches, locks and
//! limits.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = doyen::Node::builder()
//!     .client()
//!     .seed("10.0.0.1:7401")
//!     .secret_file("/etc/doyen/secret")
//!     .start()
//!     .await?;
//! let visits = client.map::<String, u64>("visits").await?;
//! visits.insert("/", &1).await?;
//! client.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! # The parts of this crate
//!
//! `node` builds a [`Node`] from [`config`]. `control` drives agreement, and `data` drives the
//! engine (the crate `doyen-engine`), each on a thread of its own. `net` has the networks of both.
//! `resp` (feature `resp`) serves programs in other languages, and `http` (feature `http`) serves
//! people. ARCHITECTURE.md is the map of all parts. These modules are private: the program `doyen`
//! and our own tests reach them with the feature `internals`, and they may change at any time.

mod address;
pub mod admin;
mod audit;
#[cfg(feature = "internals")]
#[doc(hidden)]
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "only the console lists clients")
)]
pub mod client_list;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, unreachable_pub, reason = "only the console lists clients")]
mod client_list;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod clock;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod clock;
pub mod config;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod control;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod control;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod data;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod data;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod directory;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod directory;
#[cfg(all(feature = "http", feature = "internals"))]
#[doc(hidden)]
pub mod doctor;
#[cfg(all(feature = "http", not(feature = "internals")))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the program doyen and our tests use the rest"
)]
mod doctor;
mod error;
mod events;
pub mod facade;
mod files;
mod hex;
#[cfg(feature = "internals")]
#[doc(hidden)]
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "only the console takes samples")
)]
pub mod history;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, unreachable_pub, reason = "only the console takes samples")]
mod history;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod hooks;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod hooks;
#[cfg(all(feature = "http", feature = "internals"))]
#[doc(hidden)]
pub mod http;
#[cfg(all(feature = "http", not(feature = "internals")))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the program doyen and our tests use the rest"
)]
mod http;
mod key_events;
mod log_limit;
#[cfg(any(feature = "http", feature = "resp"))]
mod login_throttle;
#[cfg_attr(
    not(feature = "http"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "only examinations read all of it"
    )
)]
mod machine;
mod map;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod mutant;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, unreachable_pub, reason = "our tests use the rest")]
mod mutant;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod net;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod net;
mod node;
mod remedy;
pub mod report;
#[cfg(all(feature = "resp", feature = "internals"))]
#[doc(hidden)]
pub mod resp;
#[cfg(all(feature = "resp", not(feature = "internals")))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the program doyen and our tests use the rest"
)]
mod resp;
mod sync;
#[cfg(feature = "testkit-local")]
pub mod testkit;
mod traces;
mod waking;

/// The alert rules for Prometheus: `doyen alerts` prints them.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub const ALERT_RULES: &str = include_str!("../alerts.yml");

/// The features of this library, and whether each is built in: `doyen version` prints them.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub const FEATURES: &[(&str, bool)] = &[
    ("flags", cfg!(feature = "flags")),
    ("http", cfg!(feature = "http")),
    ("metrics", cfg!(feature = "metrics")),
    ("near", cfg!(feature = "near")),
    ("otel", cfg!(feature = "otel")),
    ("phrases", cfg!(feature = "phrases")),
    ("resp", cfg!(feature = "resp")),
    ("testkit", cfg!(feature = "testkit")),
    ("mutants", cfg!(feature = "mutants")),
    ("fault-points", cfg!(feature = "fault-points")),
];

pub use admin::{Admin, AdminError, Refusal, ReportError};
pub use config::keyspace::{InvalidField, KeyspaceMode, KeyspaceOptions};
#[doc(inline)]
pub use doyen_engine::op::{Kind, Value};
#[doc(inline)]
pub use doyen_engine::{Bookmark, By, Cause, Change, Former, NoBookmark, Position, What};
#[doc(inline)]
pub use doyen_gossip::agreement::{Event, Half, NoVotersGone, Severity, Stage, VotersGone};
/// A test with a cluster in its own process.
///
/// ```test_harness
/// use doyen::testkit::Local;
///
/// #[doyen::test(nodes = 3)]
/// async fn a_note_survives_its_node(cluster: Local) -> Result<(), doyen::Error> {
///     let notes = cluster.node(0).map::<u64, String>("notes").await?;
///     notes.insert(&1, &"buy milk".into()).await?;
///     cluster.kill(0).await;
///     let notes = cluster.node(1).map::<u64, String>("notes").await?;
///     assert_eq!(notes.get(&1).await?.as_deref(), Some("buy milk"));
///     Ok(())
/// }
/// ```
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `nodes` | how many nodes the cluster has, 1 to 16 | 3 |
/// | `backups` | copies beside the primary, 0 to 6 | 1 |
///
/// The cluster serves, with all of its copies, when the function begins. The function takes the
/// cluster and returns whatever a `#[test]` may return. It runs on a tokio runtime of one thread,
/// as `#[tokio::test]` does; the nodes have threads of their own. All nodes end after the test, and
/// also if it panics. Other attributes, such as `#[ignore]`, stay.
#[cfg(feature = "testkit-local")]
#[doc(inline)]
pub use doyen_macros::test;
#[doc(inline)]
pub use doyen_placement::access::TokenRole;
#[doc(inline)]
pub use doyen_placement::{
    Addresses, Assignment, Durability, Eviction, MemberId, MoveRate, OnLoss, Rule, Scheduler,
    Schedulers, Window,
};
pub use error::{Error, Happened, KeyError, ValueError};
pub use events::{ClusterEvent, Events, LoggedEvent};
pub use map::{
    Add, Answers, Cache, CachePut, Changes, Codec, Counters, Database, DatabaseChange,
    DatabaseChanges, DatabaseTransaction, DeadJob, DeadJobs, Entries, Job, JobId, JobQueue, KeyOf,
    List, ListEnd, Loaded, Map, MapChange, MapStats, Members, NoJobId, OpenCache, OpenCounters,
    OpenJobQueue, OpenList, OpenMap, OpenSet, OpenSortedSet, Pending, Put, QueueCounts, RangeScan,
    SHARDS_MAX, Set, ShardedCounter, SortedSet, Subscribe, SubscribeDatabase, Transaction,
    Undecodable, Versioned,
};
#[cfg(feature = "near")]
pub use map::{NearCache, NearMap, NearStats, OpenNear};
#[cfg(all(feature = "http", feature = "internals"))]
#[doc(hidden)]
pub use node::preflight;
pub use node::{Builder, Departure, Node, start};
pub use report::moves::{BalanceReport, DrainReport, MoveReport, MovesReport};
pub use report::rebalance::{Goal, RebalancePlan, Step};
pub use sync::{
    Decision, Election, Grant, Leadership, Lock, LockState, Once, OpenRateLimiter, RateLimiter,
    Turn,
};
