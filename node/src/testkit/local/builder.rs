//! How the cluster of a test is built.

use super::{LOOK, Local, LocalInner, PATIENCE};
use crate::node::{Builder, Node};
use crate::testkit::TestkitError;
use futures_util::future::try_join_all;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Partitions of the cluster of a test. A handful of keys needs no more, and every table is small.
const PARTITIONS: u16 = 16;
/// Limit of the memory of each node. The default, a quarter of the machine's, is too much for many
/// nodes in one process.
const MEMORY_MAX: u64 = 256 << 20;

/// More options of each node.
type Configure = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;

/// Builds a [`Local`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use doyen::testkit::Local;
///
/// let cluster = Local::builder().nodes(5).backups(2).partitions(64).start().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct LocalBuilder {
    nodes: u8,
    backups: u8,
    partitions: u16,
    configure: Option<Configure>,
}

impl fmt::Debug for LocalBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBuilder")
            .field("nodes", &self.nodes)
            .field("backups", &self.backups)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl Default for LocalBuilder {
    /// Three nodes, one backup, 16 partitions.
    fn default() -> Self {
        Self {
            nodes: 3,
            backups: 1,
            partitions: PARTITIONS,
            configure: None,
        }
    }
}

impl LocalBuilder {
    /// How many nodes the cluster begins with, at least 1; 3 by default. A keyspace that the test
    /// creates later gets its partitions once as many nodes run, too.
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes.max(1);
        self
    }

    /// Copies beside the primary; 1 by default.
    pub fn backups(mut self, backups: u8) -> Self {
        self.backups = backups;
        self
    }

    /// Partitions of the keyspace `default`: a power of two; 16 by default.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets other options of every node. The name, the secret and the seeds are the cluster's.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = doyen::testkit::Local::builder()
    ///     .configure(|node| node.threads(2).value_max(1 << 20))
    ///     .start()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn configure(
        mut self,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Self {
        self.configure = Some(Arc::new(configure));
        self
    }

    /// Starts the nodes. When this returns, the cluster serves, with all of its copies.
    ///
    /// # Errors
    /// A node does not start, or the cluster is not complete within a minute.
    ///
    /// # Cancel safety
    /// If the future is dropped, all nodes end.
    pub async fn start(self) -> Result<Local, TestkitError> {
        let count = usize::from(self.nodes);
        let cluster = Local(Arc::new(LocalInner {
            plan: self,
            secret: format!("{:032x}", rand::random::<u128>()),
            clock: Arc::default(),
            slots: Mutex::default(),
            clients: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
        }));
        // The first node forms a cluster of itself at once, and the others join that one. Nodes
        // that form a cluster together first listen for a second whether there is one already.
        let first = cluster.0.start(0, &[]).await?;
        let seeds = [first.node.clone()];
        super::lock(&cluster.0.slots).push(first);
        wait_for_a_member(&seeds[0]).await?;
        let others = (1..count).map(|number| cluster.0.start(number, &seeds));
        let others = try_join_all(others).await?;
        super::lock(&cluster.0.slots).extend(others);
        cluster.await_safe(PATIENCE).await?;
        Ok(cluster)
    }

    /// A node as this cluster has them, without what each has of its own.
    pub(super) fn node(&self) -> Builder {
        let node = Node::builder()
            .listen("127.0.0.1:0")
            .partitions(self.partitions)
            .backups(self.backups)
            // All partitions are assigned when all nodes are members, so that no copies move.
            .members_min(u16::from(self.nodes))
            .memory_max(MEMORY_MAX);
        match &self.configure {
            Some(configure) => configure(node),
            None => node,
        }
    }
}

/// A node that is not a member yet would let the others ask in vain, and they ask again only after
/// a while.
async fn wait_for_a_member(node: &Node) -> Result<(), TestkitError> {
    let until = Instant::now() + PATIENCE;
    while !node.is_member() {
        if Instant::now() >= until {
            return Err(TestkitError::TimedOut {
                what: "the first node does not form a cluster".into(),
                within: PATIENCE,
            });
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
