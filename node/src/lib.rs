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
//! users.insert_with(&7, &User { name: "Ada".into() }, Duration::from_secs(60)).await?;
//! let ada = users.get(&7).await?;
//! node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Any node of the cluster can be asked for any key: `users.get` asks the node that leads the key.
//! An error says whether anything happened; only [`Error::Unknown`] leaves that open.
//!
//! # From another process
//!
//! A [`Client`] gives the same maps to a program that is not a member. It dials the data port of
//! any node, learns which node leads which key, and asks that one.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = doyen::Client::builder()
//!     .seed("10.0.0.1:7401")
//!     .secret_file("/etc/doyen/secret")
//!     .connect()
//!     .await?;
//! let visits = client.map::<String, u64>("visits").await?;
//! visits.insert("/", &1).await?;
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! # The parts of this crate
//!
//! `node` builds a [`Node`] from [`config`]. `control` drives agreement, and `data` drives the
//! engine (the crate `doyen-engine`), each on a thread of its own. `net` has the networks of both.
//! `resp` (feature `resp`) serves programs in
//! other languages, and `http` (feature `http`) serves people. ARCHITECTURE.md is the map of
//! all parts.

pub mod admin;
mod advice;
pub mod clock;
pub mod config;
pub mod control;
pub mod data;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "http")]
pub mod http;
/// The client alone: what the testkit asks nodes with.
#[cfg(all(feature = "testkit", not(feature = "http")))]
#[allow(dead_code, unreachable_pub, reason = "the command line uses the rest")]
mod http {
    pub(crate) mod client;
}
mod map;
pub mod net;
mod node;
pub mod report;
#[cfg(feature = "resp")]
pub mod resp;
#[cfg(any(feature = "http", feature = "resp"))]
mod seldom;
mod sync;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use admin::keyspace::{KeyspaceMode, KeyspaceOptions};
pub use admin::{Admin, AdminError, InvalidField, Refusal, ReportError};
pub use doyen_engine::op::{Kind, Value};
pub use doyen_engine::{By, Cause, Change, Position, What};
pub use doyen_gossip::agreement::{Event, Severity, Stage};
pub use doyen_placement::{
    Addresses, Assignment, Eviction, MemberId, MoveRate, OnLoss, Rule, Scheduler, Schedulers,
    Window,
};
pub use error::{Error, Happened};
pub use map::{
    Add, Answers, Cache, CachePut, Changes, Codec, Counters, Database, DatabaseChange,
    DatabaseChanges, DatabaseTransaction, Entries, KeyError, Loaded, Map, MapChange, MapStats,
    OpenCache, OpenCounters, OpenMap, Pending, Put, RangeScan, SHARDS_MAX, ShardedCounter,
    Subscribe, SubscribeDatabase, Transaction, Undecodable, ValueError, Versioned,
};
pub use node::{Builder, Departure, Node, start};
pub use report::events::LoggedEvent;
pub use report::moves::{BalanceReport, DrainReport, MoveReport, MovesReport};
pub use report::rebalance::{Goal, RebalancePlan, Step};
pub use sync::{
    Decision, Election, Grant, Leadership, Lock, LockState, Once, OpenRateLimiter, RateLimiter,
    Turn,
};
