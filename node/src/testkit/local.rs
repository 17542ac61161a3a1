//! A cluster in the process of a test: real nodes, on real sockets, ready within a fraction of a
//! second.
//!
//! ```text
//!   test ──> Local ─┬─ starts, kills ────────────────────> Node, Node, Node
//!                   └─ pauses, cuts, moves the clock ─> Rig, Rig, Rig: one in each node
//! ```
//! The nodes listen on loopback, at ports that the system chooses, and share a secret that no other
//! cluster has. So any number of tests may run at the same time. The code of a node is that of
//! production, with its timeouts. Only what the test itself disturbs is disturbed.

mod builder;

pub use builder::LocalBuilder;

use super::{TestkitError, safety};
use crate::hooks::Hooks;
use crate::hooks::rig::{DataClock, Rig};
use crate::node::{Departure, Node};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long nodes may take to form or join a cluster, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two looks at whether all is safe. Tests wait for it often.
const LOOK: Duration = Duration::from_millis(2);

/// A cluster of nodes in this process. When it is dropped, all of its nodes and clients end like a
/// crash.
///
/// Nodes have numbers from 0 on, which are not used again. Methods take `&self`, so that several
/// tasks of a test may share it.
///
/// ```no_run
/// use doyen::testkit::Local;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Local::builder().nodes(3).backups(1).start().await?;
/// let sessions = cluster.node(0).map::<u64, String>("sessions").await?;
/// sessions.put(&7, &"ada".into()).ttl(Duration::from_secs(60)).await?;
/// cluster.kill(0).await;
/// let there = cluster.node(1).map::<u64, String>("sessions").await?;
/// assert_eq!(there.get(&7).await?.as_deref(), Some("ada"));
/// cluster.advance(Duration::from_secs(61)).await;
/// assert_eq!(there.get(&7).await?, None);
/// # Ok(()) }
/// ```
///
/// `#[doyen::test]` writes the first line, and ends the cluster.
///
/// The nodes are real ones, with the sockets, threads and timeouts of production, and each cluster
/// has its own secret, so tests run at the same time. What follows from that:
///
/// - Use three nodes: of two, only the older one (`node(0)`) goes on alone.
/// - What the others notice takes as long as in production: 0.25 to 0.45 s for a node that was
///   killed, and more for one that is silent.
/// - After a cut, two nodes still exchange data through a third one, and the coordinator goes on
///   without a member that it does not hear.
/// - [`pause`](Local::pause) does not hold the tasks of the test.
/// - [`advance`](Local::advance) does not move the clocks of the program, of tokio, or of
///   agreement.
///
/// # Panics
/// All methods that take the number of a node panic if there is no such node.
#[derive(Debug)]
pub struct Local(Arc<LocalInner>);

#[derive(Debug)]
struct LocalInner {
    plan: LocalBuilder,
    secret: String,
    clock: Arc<DataClock>,
    /// Locks, because methods take `&self`. They are held for moments.
    slots: Mutex<Vec<LocalSlot>>,
    clients: Mutex<Vec<Node>>,
    /// One node starts at a time, so that its number is its place in `slots`. Held until it runs.
    starting: tokio::sync::Mutex<()>,
}

/// A node, dead or alive.
#[derive(Debug, Clone)]
struct LocalSlot {
    node: Node,
    rig: Arc<Rig>,
    state: LocalState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocalState {
    Runs,
    Paused,
    /// It was killed or shut down.
    Ended,
}

impl Local {
    /// Begins to build a cluster.
    pub fn builder() -> LocalBuilder {
        LocalBuilder::default()
    }

    /// The node of this number. If it was killed, its maps answer `Closed`.
    #[track_caller]
    #[must_use]
    pub fn node(&self, number: usize) -> Node {
        self.slot(number).node
    }

    /// Connects a client, which dials any of the nodes that run. It ends with the cluster.
    ///
    /// # Errors
    /// It cannot connect: no node runs, or none answers.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client ends.
    pub async fn client(&self) -> Result<Node, TestkitError> {
        let nodes = self.0.running();
        let seeds = nodes.iter().map(|n| n.node.addresses().data.to_string());
        let client = Node::builder()
            .client()
            .name("client")
            .seeds(seeds)
            .secret(&self.0.secret)
            .hooks(Hooks::of(Arc::new(Rig::new(self.0.clock.clone()))))
            .start();
        let client = client.await.map_err(|why| TestkitError::Node {
            name: "the client".into(),
            why,
        })?;
        lock(&self.0.clients).push(client.clone());
        Ok(client)
    }

    /// Starts another node, which joins through those that run. Returns its number once it serves.
    /// Copies of data move to it afterwards ([`Local::await_safe`]).
    ///
    /// # Errors
    /// It does not start, or does not serve within a minute.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node may have been started. It belongs to the cluster then,
    /// and has the next number.
    pub async fn start_another(&self) -> Result<usize, TestkitError> {
        let starting = self.0.starting.lock().await;
        let seeds: Vec<_> = self.0.running().into_iter().map(|slot| slot.node).collect();
        let number = lock(&self.0.slots).len();
        let slot = self.0.start(number, &seeds).await?;
        let node = slot.node.clone();
        lock(&self.0.slots).push(slot);
        drop(starting);
        match node.wait_ready(PATIENCE).await {
            Ok(()) => Ok(number),
            Err(why) => {
                self.0.end(number);
                let name = node.name().to_owned();
                Err(TestkitError::Node { name, why })
            }
        }
    }

    /// Ends a node like a crash, and returns when its threads have ended. Nothing is handed over.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node ends all the same.
    pub async fn kill(&self, number: usize) {
        let node = self.slot(number).node;
        self.0.end(number);
        node.kill().await;
    }

    /// Lets a node leave in order, and returns when it has ended. A paused node is resumed first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node leaves all the same.
    pub async fn shutdown(&self, number: usize) -> Departure {
        self.resume(number);
        let node = self.slot(number).node;
        self.0.set(number, LocalState::Ended);
        node.shutdown().await
    }

    /// Holds all threads of a node, as SIGSTOP does, and returns when they are held. Operations on
    /// its maps wait meanwhile, and have no timeout, because nothing in the node measures time. If
    /// it is held for longer than the failure detection takes, the others go on without it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node is paused all the same, and perhaps not held yet.
    pub async fn pause(&self, number: usize) {
        let LocalSlot { node, rig, state } = self.slot(number);
        if state != LocalState::Runs {
            return;
        }
        self.0.set(number, LocalState::Paused);
        rig.close_gate();
        let threads = usize::from(node.addresses().threads()) + 1;
        // Idle threads pass the gate once something is asked of them.
        let nudged = async {
            node.nudge().await;
            pending::<()>().await;
        };
        tokio::select! {
            () = rig.are_held(threads) => {}
            () = nudged => {}
            _ = node.closed() => {}
        }
    }

    /// Lets a paused node go on, as SIGCONT does.
    #[track_caller]
    pub fn resume(&self, number: usize) {
        let slot = self.slot(number);
        if slot.state == LocalState::Paused {
            self.0.set(number, LocalState::Runs);
            slot.rig.open_gate();
        }
    }

    /// Drops all datagrams between two nodes. Other nodes may still carry data for the two, as they
    /// do in production: [`Local::isolate`] takes a node from all others.
    #[track_caller]
    pub fn cut(&self, one: usize, other: usize) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Drops all datagrams from one node to another, and none in the other direction.
    #[track_caller]
    pub fn cut_one_way(&self, from: usize, to: usize) {
        let (from, to) = (self.slot(from), self.slot(to));
        let addresses = to.node.addresses();
        let data = (0..addresses.threads()).filter_map(|thread| addresses.data_of(thread));
        from.rig.cut(data.chain([addresses.control]));
    }

    /// Drops all datagrams between a node and everything else: other nodes and clients.
    ///
    /// ```no_run
    /// # use doyen::testkit::Local;
    /// # async fn example(cluster: Local) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let new = cluster.start_another().await?;
    /// cluster.isolate(new);
    /// // The others go on without it.
    /// let notes = cluster.node(0).map::<u64, String>("notes").await?;
    /// notes.insert(&1, &"buy milk".into()).await?;
    /// cluster.heal();
    /// cluster.await_safe(Duration::from_secs(60)).await?;
    /// let notes = cluster.node(new).map::<u64, String>("notes").await?;
    /// assert_eq!(notes.get(&1).await?.as_deref(), Some("buy milk"));
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn isolate(&self, number: usize) {
        self.slot(number).rig.isolate(true);
    }

    /// Ends all cuts and isolations.
    pub fn heal(&self) {
        let running = self.0.running();
        running.iter().for_each(|slot| slot.rig.heal());
    }

    /// Moves the clock of data ahead, on all nodes and clients at once: deadlines of keys, the wall
    /// time by which they are given, and what is built on these. Clocks of members do not move, so
    /// no member looks silent and no lease of a member ends.
    ///
    /// When this returns, no node answers with a key whose deadline has passed. Listeners hear of
    /// those keys soon after. A paused node follows when it is resumed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the clock has moved, and a node may not know it yet.
    pub async fn advance(&self, by: Duration) {
        self.0.clock.advance(by);
        let running = self.0.running().into_iter();
        let nodes = running.filter_map(|s| (s.state == LocalState::Runs).then_some(s.node));
        let clients = lock(&self.0.clients).clone();
        // A thread that answers now may have read the clock before. Its next pass has not.
        join_all(nodes.chain(clients).map(|node| async move {
            node.nudge().await;
            node.nudge().await;
        }))
        .await;
    }

    /// Waits until all nodes that were not killed or shut down are members, and every node sees
    /// that all data is safe: every partition serves, and has all of its copies. Returns how long
    /// that took.
    ///
    /// # Errors
    /// It is not so within this time. The error says what is missing.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn await_safe(&self, limit: Duration) -> Result<Duration, TestkitError> {
        let began = Instant::now();
        loop {
            let left = limit.saturating_sub(began.elapsed());
            let Ok(lack) = tokio::time::timeout(left, self.lack()).await else {
                return Err(TestkitError::TimedOut {
                    what: "a node does not answer".into(),
                    within: limit,
                });
            };
            match lack {
                None => return Ok(began.elapsed()),
                Some(what) if began.elapsed() >= limit => {
                    return Err(TestkitError::TimedOut {
                        what,
                        within: limit,
                    });
                }
                Some(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// What is missing until all is safe.
    async fn lack(&self) -> Option<String> {
        let running = self.0.running();
        let names: BTreeSet<&str> = running.iter().map(|slot| slot.node.name()).collect();
        if running.is_empty() {
            return Some("no node runs".into());
        }
        for LocalSlot { node, state, .. } in &running {
            if *state == LocalState::Paused {
                return Some(format!("{} is paused: resume it", node.name()));
            }
            // This asks nobody.
            if !node.is_ready() {
                return Some(format!("{} does not serve yet", node.name()));
            }
        }
        for LocalSlot { node, .. } in &running {
            let lack = match node.status().await {
                Ok(report) => safety::lack(&names, &report),
                Err(why) => Some(why.to_string()),
            };
            if let Some(lack) = lack {
                return Some(format!("{}: {lack}", node.name()));
            }
        }
        None
    }

    #[track_caller]
    fn slot(&self, number: usize) -> LocalSlot {
        let slots = lock(&self.0.slots);
        match slots.get(number) {
            Some(slot) => slot.clone(),
            None => {
                let count = slots.len();
                drop(slots);
                panic!("there is no node {number}: {count} were started, and the first one is 0")
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.0.begin_to_end();
    }
}

impl LocalInner {
    /// Starts a node of this number, which looks for these. It may not be a member yet.
    async fn start(&self, number: usize, seeds: &[Node]) -> Result<LocalSlot, TestkitError> {
        let name = format!("node-{number}");
        let rig = Arc::new(Rig::new(self.clock.clone()));
        let seeds = seeds
            .iter()
            .map(|node| node.addresses().control.to_string());
        let builder = self
            .plan
            .node()
            .name(&name)
            .secret(&self.secret)
            .seeds(seeds);
        match builder.hooks(Hooks::of(rig.clone())).start().await {
            Ok(node) => Ok(LocalSlot {
                node,
                rig,
                state: LocalState::Runs,
            }),
            Err(why) => Err(TestkitError::Node { name, why }),
        }
    }

    /// The nodes that were neither killed nor shut down.
    fn running(&self) -> Vec<LocalSlot> {
        let slots = lock(&self.slots);
        let running = slots.iter().filter(|slot| slot.state != LocalState::Ended);
        running.cloned().collect()
    }

    fn set(&self, number: usize, state: LocalState) {
        if let Some(slot) = lock(&self.slots).get_mut(number) {
            slot.state = state;
        }
    }

    /// Begins to end a node like a crash.
    fn end(&self, number: usize) {
        let mut slots = lock(&self.slots);
        let Some(slot) = slots.get_mut(number) else {
            return;
        };
        slot.state = LocalState::Ended;
        // A process that is killed says nothing more. These threads still run to their ends.
        slot.rig.isolate(true);
        slot.node.begin_to_stop();
        slot.rig.open_gate();
    }

    fn begin_to_end(&self) {
        let count = lock(&self.slots).len();
        (0..count).for_each(|number| self.end(number));
        lock(&self.clients).iter().for_each(Node::begin_to_stop);
    }

    /// Ends all nodes and clients, and waits for their threads.
    async fn end_all(&self) {
        self.begin_to_end();
        let nodes: Vec<_> = lock(&self.slots).iter().map(|s| s.node.clone()).collect();
        let clients = lock(&self.clients).clone();
        let all = nodes.iter().chain(&clients);
        join_all(all.map(Node::kill)).await;
    }
}

/// Runs a test with such a cluster, as `#[doyen::test]` does: on a tokio runtime of this thread
/// alone. The cluster ends afterwards, also if the test panics.
///
/// # Panics
/// The test panicked, or the cluster does not start.
#[doc(hidden)]
pub fn run<F, Fut>(cluster: LocalBuilder, test: F) -> Fut::Output
where
    F: FnOnce(Local) -> Fut,
    Fut: Future,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // A test that cannot run has failed, and a panic is how tests fail.
    let runtime = runtime.unwrap_or_else(|why| panic!("there is no runtime for this test: {why}"));
    let local = (runtime.block_on(cluster.start()))
        .unwrap_or_else(|why| panic!("the cluster of this test does not start: {why}"));
    let inner = local.0.clone();
    let end = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test(local))));
    runtime.block_on(inner.end_all());
    end.unwrap_or_else(|panic| resume_unwind(panic))
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of what the locks guard is one step.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
