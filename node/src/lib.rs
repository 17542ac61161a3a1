//! Doyen: a peer-to-peer in-memory data grid.
//!
//! Nodes find each other by gossip over QUIC, the oldest live member is the first to stand for
//! coordinator, and versioned partition tables say who owns which key. A write is acknowledged when
//! every copy in sync has it; a read sees every write that was acknowledged before it began.
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
//! Every node of the cluster answers for all of it: `users.get` goes to whichever node holds the
//! key. Errors say whether anything happened; only [`WriteError::Unknown`] leaves it open.
//!
//! # From another process
//!
//! A [`Client`] gives the same maps to a program that is no member: it dials the data port of any
//! node, learns who holds which key, and asks there.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = doyen::Client::builder().seed("10.0.0.1:7401").secret_file("/etc/doyen/secret").connect().await?;
//! let visits = client.map::<String, u64>("visits").await?;
//! visits.insert("/", &1).await?;
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! # The rooms of this crate
//!
//! `builder` puts a [`Node`] together from [`config`]; `control` drives agreement and `data` drives
//! the `shard`, each on a thread of its own; `net` is both of their networks; `resp`, `http` and
//! `cli` are how people and programs of other languages come in. ARCHITECTURE.md is the map of it
//! all.

mod advice;
mod builder;
pub mod cli;
mod client;
pub mod clock;
pub mod codec;
pub mod config;
pub mod control;
mod counter;
pub mod data;
mod error;
mod events;
pub mod fault;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod grow;
pub mod http;
mod keyspace;
mod loads;
mod map;
mod metrics;
mod moves;
pub mod net;
mod node;
mod range;
mod rebalance;
pub mod resp;
mod seldom;
pub mod shard;
pub mod shared;
pub mod status;
#[cfg(feature = "testkit")]
pub mod testkit;
// The binary's `chaos` and `demo` are made of it, whoever else may see it; and they do not use all
// of it.
#[cfg(not(feature = "testkit"))]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod testkit;
mod waking;

pub use builder::{Builder, start};
pub use client::{Client, ClientBuilder};
pub use counter::{SHARDS_MAX, ShardedCounter};
pub use doyen_gossip::agreement::{Event, Severity, Stage};
pub use doyen_placement::{
    Addresses, Assignment, Eviction, MemberId, MoveRate, OnLoss, Rule, Scheduler, Schedulers,
    Window,
};
pub use error::{ClientError, ConnectError, NodeError, ReadError, StartError, WriteError};
pub use events::LoggedEvent;
pub use keyspace::{KeyspaceMode, KeyspaceOptions};
pub use map::{Database, Map};
pub use moves::{BalanceReport, DrainReport, MoveReport, MovesReport};
pub use node::{Departure, Node};
pub use range::RangeScan;
pub use rebalance::{Goal, RebalancePlan, Step};
