//! Kill tests: clusters on one machine, whose nodes and network a test can hurt.
//!
//! [`Local`] is a cluster in the process of the test, ready within a fraction of a second
//! (feature `testkit-local`). All else here is about clusters of real processes, whose links lose,
//! delay and corrupt datagrams (feature `testkit`, which has both).
//!
//! ```text
//!   test ──> Cluster ── starts, kills, pauses ──> node processes
//!               │                                    │ ▲  every datagram between two nodes
//!               └── cuts, delays, corrupts ──> Relay ┴─┘
//!   clients ──> History ──> linear: can what was answered be explained?
//! ```
//!
//! [`Cluster`] owns the processes and their [`Relay`]. [`Faults`] describes what a link does to its
//! datagrams. A [`History`] records the requests and answers of clients, and judges for each key
//! whether any order of the operations explains it ([`linear`]). The testkit knows nothing of a
//! node's inside: it runs the production program, with its protocol and its ports.
//!
//! ```no_run
//! use doyen::testkit::{Cluster, Faults};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! const PATIENCE: Duration = Duration::from_secs(60);
//!
//! let mut cluster = Cluster::builder().binary("target/release/doyen").start(3).await?;
//! cluster.degrade(Faults { loss: 0.05, ..Faults::NONE });
//! cluster.kill(0);
//! let took = cluster.await_safe(PATIENCE).await?;
//! println!("all is safe without {}, {took:?} after", cluster.name(0));
//! cluster.restart(0).await?;
//! cluster.cut(1, 2);
//! cluster.heal();
//! cluster.await_safe(PATIENCE).await?;
//! # Ok(()) }
//! ```
//!
//! # A program of your own
//! Your program takes [`config::Options`](crate::config::Options) among its clap arguments, so that
//! the test can set its name, ports and seeds by variables, and prints one line ([`Ready`]) once
//! its node runs: [`ClusterBuilder::arguments`] shows both. Every process is behind a relay, has a
//! new secret and ports that the system chooses, and ends with the test.
//! `examples/src/bin/notes.rs` is such a program, and `examples/tests/notes.rs` kills it and judges
//! what its clients saw.
//!
//! # How traffic gets through relays
//!
//! Every node has two loopback addresses, `127.x.y.n` to listen on and another one to advertise.
//! Its relay listens on the advertised one. A node that dials an advertised address reaches the
//! relay, which knows the sender by the source address. This needs a system where all of
//! 127.0.0.0/8 is the machine itself: Linux.
//!
//! # Limits
//!
//! Nodes have one data thread each. Clients of RESP and HTTP connect to the node directly, so the
//! relay does not disturb them.

#[cfg(feature = "testkit")]
mod cluster;
#[cfg(feature = "testkit")]
mod history;
#[cfg(feature = "testkit")]
mod household;
#[cfg(feature = "testkit")]
pub mod linear;
#[cfg(feature = "testkit")]
mod link;
mod local;
#[cfg(feature = "testkit")]
mod process;
#[cfg(feature = "testkit")]
mod relay;
mod safety;

#[cfg(feature = "testkit")]
pub use cluster::{Cluster, ClusterBuilder, NODES_MAX, PATIENCE};
#[cfg(feature = "testkit")]
pub use history::{History, PendingCall, Violation, Wrong};
#[cfg(feature = "testkit")]
pub use household::{Household, node_name};
#[cfg(feature = "testkit")]
pub use link::{DatagramCounts, Faults};
pub use local::{Local, LocalBuilder, run};
#[cfg(feature = "testkit")]
pub use process::{NotStarted, Process, Ready, Unready};
#[cfg(feature = "testkit")]
pub use relay::{Plane, Relay};

use std::io;
use std::time::Duration;

/// A test cannot continue.
///
/// ```no_run
/// use doyen::testkit::{Cluster, TestkitError};
/// use std::time::Duration;
///
/// # async fn example(mut cluster: Cluster) -> Result<(), TestkitError> {
/// match cluster.await_safe(Duration::from_secs(60)).await {
///     Err(TestkitError::TimedOut { what, .. }) => panic!("{what}\n{}", cluster.log(0)),
///     other => println!("safe after {:?}", other?),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum TestkitError {
    /// The process of a node did not start.
    #[cfg(feature = "testkit")]
    #[error(transparent)]
    Start(#[from] NotStarted),
    /// A node in this process does not start.
    #[error("{name} does not start: {why}")]
    Node {
        /// The name of the node.
        name: String,
        /// The reason.
        why: crate::error::Error,
    },
    /// The system refused something.
    #[error("{what}: {why}")]
    System {
        /// The attempted action.
        what: String,
        /// The reason for the failure.
        why: io::Error,
    },
    /// There is no such node, or its state does not allow the request. Nothing happened.
    #[error("{0}")]
    Misuse(String),
    /// A node does not answer.
    #[error("{name} does not answer: {why}")]
    Unanswered {
        /// The name of the node.
        name: String,
        /// The reason.
        why: String,
    },
    /// An awaited condition did not come true.
    #[error("gave up after {within:?}: {what}")]
    TimedOut {
        /// What was awaited, and what was seen last.
        what: String,
        /// The patience.
        within: Duration,
    },
}

#[cfg(feature = "testkit")]
impl TestkitError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |why| Self::System { what, why }
    }
}
