//! A cluster of processes behind relays: starts them, hurts them, waits for them.
//!
//! Each node has a number, from 0 in the order of their starts. It keeps the number as long as the
//! cluster lives, dead or alive.

use super::household::{Household, deafen, node_name};
use super::link::{DatagramCounts, Faults};
use super::process::{Process, Ready};
use super::relay::{Plane, Relay};
use super::{NotStarted, TestkitError, safety};
use crate::config::{Options, nearest};
use crate::http::client::Client;
use crate::http::{HttpReport, api};
use crate::report::status::ClusterReport;
use crate::report::table::TableReport;
use clap::Args as _;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Nodes that a cluster may have in its life, including dead ones.
pub const NODES_MAX: usize = 200;
/// How long anything may take before a test gives up. It guards against hangs, and measures
/// nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process may take to open its ports.
const OPEN_MAX: Duration = Duration::from_secs(20);
/// How long a node may take to answer a request. A status waits a second for members that are
/// silent.
const ANSWER_MAX: Duration = Duration::from_millis(1_700);
/// Time between two requests.
const LOOK: Duration = Duration::from_millis(50);

/// Builds a [`Cluster`].
///
/// ```no_run
/// # async fn example() -> Result<(), doyen::testkit::TestkitError> {
/// let cluster = doyen::testkit::Cluster::builder()
///     .binary("target/release/doyen")
///     .option("backups", 2)
///     .seed(7)
///     .start(5)
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct ClusterBuilder {
    binary: Option<PathBuf>,
    arguments: Vec<String>,
    options: BTreeMap<String, String>,
    seed: u64,
    directory: Option<PathBuf>,
    apart: bool,
}

impl ClusterBuilder {
    /// The program of every node. By default `doyen`, from the directory of the running program or
    /// the one above it: Cargo puts both there. See [`ClusterBuilder::arguments`].
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// The arguments of the program; by default `run --exit-with-stdin`, for `doyen` itself.
    ///
    /// A program that embeds a node gets the options of `doyen run` as variables: `DOYEN_NAME`,
    /// `DOYEN_LISTEN`, `DOYEN_DATA`, `DOYEN_ADVERTISE`, `DOYEN_SEED`, `DOYEN_SECRET_FILE`,
    /// `DOYEN_RESP`, `DOYEN_RESP_CLUSTER`, `DOYEN_HTTP`, and those of [`ClusterBuilder::option`]. A
    /// program that has [`config::Options`](crate::config::Options) among its clap arguments
    /// understands all of them. When its node runs, it must print [`Ready::of`] the node on a line
    /// of its own.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doyen::testkit::TestkitError> {
    /// use doyen::testkit::Cluster;
    ///
    /// let shops = Cluster::builder()
    ///     .binary("target/debug/shop")
    ///     .arguments(["--web", "127.0.0.1:0"])
    ///     .start(3)
    ///     .await?;
    /// let web = shops.ready(0).and_then(|ready| ready.address("web")); // see `Ready::and`
    /// # Ok(()) }
    /// ```
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// An option for every node, named as the flag of `doyen run` without its dashes:
    /// `option("partitions", 64)`. Options of your own program go into
    /// [`ClusterBuilder::arguments`].
    pub fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.insert(
            format!("DOYEN_{}", name.replace('-', "_").to_uppercase()),
            value.to_string(),
        );
        self
    }

    /// Sets the seed of the relays' random numbers; 0 by default.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Where logs and the secret are written, and stay. By default a temporary directory that is
    /// removed with the cluster.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Keeps a terminal's Ctrl-C from the nodes. Only for nodes that end with this process
    /// (`--exit-with-stdin`).
    pub const fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// Starts the nodes, and waits until they are one cluster with all data safe, for [`PATIENCE`]
    /// at most.
    ///
    /// # Errors
    /// There are no nodes, no such program or no such option, or a node does not start, or they do
    /// not become a cluster. Then nothing runs.
    ///
    /// # Cancel safety
    /// If the future is dropped, all processes end.
    pub async fn start(self, nodes: usize) -> Result<Cluster, TestkitError> {
        if nodes == 0 {
            return Err(TestkitError::Misuse(
                "a cluster has at least one node; to survive a death it needs three: use \
                 `start(3)`"
                    .into(),
            ));
        }
        let binary = program(self.binary)?;
        self.options
            .keys()
            .try_for_each(|variable| known(variable))?;
        let household = match &self.directory {
            Some(path) => Household::at(path)?,
            None => Household::new()?,
        };
        let relay =
            Relay::start(self.seed).map_err(TestkitError::system("cannot start the relays"))?;
        let mut options = self.options;
        // Assign no partition before all nodes are there: then nothing moves later, and every node
        // begins with its share.
        options
            .entry("DOYEN_MEMBERS_MIN".into())
            .or_insert_with(|| nodes.to_string());
        let net = [rand::random_range(1..=254), rand::random_range(0..=127) * 2];
        let mut cluster = Cluster {
            slots: Vec::new(),
            relay,
            household,
            binary,
            arguments: self.arguments,
            apart: self.apart,
            options,
            net,
        };
        for _ in 0..nodes {
            cluster.join().await?;
        }
        cluster.await_safe(PATIENCE).await?;
        Ok(cluster)
    }
}

/// The given program, or else `doyen`; it must exist.
fn program(said: Option<PathBuf>) -> Result<PathBuf, TestkitError> {
    if let Some(path) = said {
        // The system searches for a bare name.
        if path.components().count() > 1 && !path.is_file() {
            let here = std::env::current_dir().unwrap_or_default();
            return Err(TestkitError::Misuse(format!(
                "there is no program {} (seen from {}): build it first (`cargo build --release` \
                 makes target/release/doyen), or give another one with `binary`; a test of your \
                 own package finds its program as env!(\"CARGO_BIN_EXE_name\")",
                path.display(),
                here.display()
            )));
        }
        return Ok(path);
    }
    let running = std::env::current_exe()
        .map_err(TestkitError::system("cannot tell which program this is"))?;
    let mut near = running
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("doyen"));
    near.find(|path| path.is_file()).ok_or_else(|| {
        TestkitError::Misuse(format!(
            "there is no `doyen` near {}: give the program of every node with `binary(path)`: \
             Doyen's target/release/doyen (`cargo build --release` makes it), or your own \
             program, env!(\"CARGO_BIN_EXE_name\")",
            running.display()
        ))
    })
}

/// Checks that a node reads this variable; otherwise it would be ignored silently.
fn known(variable: &str) -> Result<(), TestkitError> {
    let flag = |variable: &str| {
        variable
            .trim_start_matches("DOYEN_")
            .replace('_', "-")
            .to_lowercase()
    };
    let command = Options::augment_args(clap::Command::new("run"));
    // Only `doyen run` reads a file.
    let flags: Vec<&str> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .chain(["config"])
        .collect();
    let wrong = flag(variable);
    if flags.contains(&wrong.as_str()) {
        return Ok(());
    }
    let hint = match nearest(&wrong, flags.into_iter()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "options are the flags of `doyen run --help`, without the --".into(),
    };
    Err(TestkitError::Misuse(format!(
        "there is no option `{wrong}`: {hint}"
    )))
}

/// A cluster of processes. All of them are killed when this is dropped.
///
/// A method that takes the number of a node returns [`TestkitError::Misuse`] if there is no such
/// node. A method that returns nothing then does nothing.
///
/// ```no_run
/// use doyen::testkit::Cluster;
/// use std::time::Duration;
///
/// # async fn example(mut cluster: Cluster) -> Result<(), doyen::testkit::TestkitError> {
/// const PATIENCE: Duration = Duration::from_secs(60);
///
/// // The network takes the coordinator from the others. Then another node joins.
/// let coordinator = cluster.coordinator().await.expect("there is one");
/// cluster.isolate(&[coordinator].into());
/// let new = cluster.join().await?;
/// println!("{} listens for Redis clients at {:?}", cluster.name(new), cluster.resp(new));
/// cluster.heal();
/// cluster.await_safe(PATIENCE).await?;
///
/// // A process stands still for a while.
/// cluster.pause(new);
/// cluster.resume(new);
/// cluster.await_safe(PATIENCE).await?;
///
/// // A node leaves in order, and comes back.
/// assert!(cluster.stop(new).await?.success(), "{}", cluster.log(new));
/// cluster.start(new).await?;
/// cluster.await_safe(PATIENCE).await?;
/// cluster.check()?; // no process has ended by itself
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Cluster {
    /// Before `relay`: processes must end before their network.
    slots: Vec<ProcessSlot>,
    relay: Relay,
    household: Household,
    binary: PathBuf,
    arguments: Vec<String>,
    apart: bool,
    options: BTreeMap<String, String>,
    /// The middle of the addresses: `127.x.y.n` inside, `127.x.(y + 1).n` outside.
    net: [u8; 2],
}

/// A node, dead or alive.
#[derive(Debug)]
struct ProcessSlot {
    name: String,
    process: Option<Process>,
    paused: bool,
    starts: u32,
    /// The log of its last start.
    log: PathBuf,
    /// The control and the data port, after the first start.
    ports: Option<[u16; 2]>,
}

impl Cluster {
    /// Begins to build a cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            binary: None,
            arguments: ["run", "--exit-with-stdin"].map(str::to_owned).to_vec(),
            options: BTreeMap::new(),
            seed: 0,
            directory: None,
            apart: false,
        }
    }

    /// Starts another node, which joins through all running ones. Returns its number. The node
    /// becomes a member some moments later ([`Cluster::await_safe`]).
    ///
    /// # Errors
    /// It does not start, or there are [`NODES_MAX`] already.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process ends. The node counts, as one that does not run.
    pub async fn join(&mut self) -> Result<usize, TestkitError> {
        let node = self.slots.len();
        if node >= NODES_MAX {
            return Err(TestkitError::Misuse(format!(
                "a cluster of the testkit has {NODES_MAX} nodes in its life"
            )));
        }
        self.slots.push(ProcessSlot {
            name: node_name(node),
            process: None,
            paused: false,
            starts: 0,
            log: PathBuf::new(),
            ports: None,
        });
        let started = self.start(node).await;
        if started.is_err() {
            self.slots.pop();
        }
        started.map(|()| node)
    }

    /// Starts a node that does not run, with its old name, at its old ports if they are free.
    ///
    /// # Errors
    /// The node runs already, or does not start.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process ends.
    pub async fn start(&mut self, node: usize) -> Result<(), TestkitError> {
        let slot = self.slot(node)?;
        if slot.process.is_some() {
            return Err(TestkitError::Misuse(format!("{} runs already", slot.name)));
        }
        let ports = slot.ports;
        let process = match self.spawn(node, ports.unwrap_or_default()).await {
            // Another process took a port meanwhile.
            Err(refused) if ports.is_some() && refused.log.contains("in use") => {
                self.spawn(node, [0; 2]).await?
            }
            other => other?,
        };
        let mut ports = [0; 2];
        for ((plane, field), port) in Plane::ALL
            .into_iter()
            .zip(["listen", "data"])
            .zip(&mut ports)
        {
            let front = process.ready().address(field);
            let front = front.ok_or_else(|| {
                TestkitError::Misuse(format!(
                    "{} did not print the address of its `{field}` port",
                    self.name(node)
                ))
            })?;
            let behind = SocketAddr::new(self.inside(node), front.port());
            let cannot =
                TestkitError::system(format!("cannot relay for {} at {front}", self.name(node)));
            self.relay
                .open(node, plane, front, behind)
                .map_err(cannot)?;
            *port = front.port();
        }
        let slot = self.slot_mut(node)?;
        (slot.process, slot.ports, slot.paused) = (Some(process), Some(ports), false);
        Ok(())
    }

    async fn spawn(
        &mut self,
        node: usize,
        [control, data]: [u16; 2],
    ) -> Result<Process, NotStarted> {
        let (inside, outside) = (self.inside(node), self.outside(node));
        let seeds: Vec<String> = self
            .running()
            .filter_map(|n| self.control(n))
            .map(|a| a.to_string())
            .collect();
        let slot = &mut self.slots[node];
        slot.starts += 1;
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments);
        if self.apart {
            command.process_group(0);
        }
        deafen(&mut command);
        command
            .env("DOYEN_NAME", &slot.name)
            .env("DOYEN_SECRET_FILE", self.household.secret_file());
        command.env("DOYEN_LISTEN", SocketAddr::new(inside, control).to_string());
        command.env("DOYEN_DATA", SocketAddr::new(inside, data).to_string());
        command.env("DOYEN_ADVERTISE", outside.to_string());
        // A program that is built without Redis's protocol refuses its ports.
        let resp: &[&str] = if cfg!(feature = "resp") {
            &["DOYEN_RESP", "DOYEN_RESP_CLUSTER"]
        } else {
            &[]
        };
        for port in resp.iter().chain(&["DOYEN_HTTP"]) {
            command.env(port, "127.0.0.1:0");
        }
        if !seeds.is_empty() {
            command.env("DOYEN_SEED", seeds.join(","));
        }
        command.envs(&self.options);
        slot.log = self
            .household
            .file(&format!("{}-{}.log", slot.name, slot.starts));
        Process::start(&slot.name, command, &slot.log, OPEN_MAX).await
    }

    /// The address that a node listens on; only the relay talks to it there.
    fn inside(&self, node: usize) -> IpAddr {
        let [x, y] = self.net;
        // There are fewer than 255 nodes.
        IpAddr::V4(Ipv4Addr::new(
            127,
            x,
            y,
            u8::try_from(node + 1).unwrap_or(u8::MAX),
        ))
    }

    /// The address that a node advertises: that of its relay.
    fn outside(&self, node: usize) -> IpAddr {
        let [x, y] = self.net;
        IpAddr::V4(Ipv4Addr::new(
            127,
            x,
            y + 1,
            u8::try_from(node + 1).unwrap_or(u8::MAX),
        ))
    }

    fn slot(&self, node: usize) -> Result<&ProcessSlot, TestkitError> {
        self.slots
            .get(node)
            .ok_or_else(|| TestkitError::Misuse(format!("there is no node {node}")))
    }

    fn slot_mut(&mut self, node: usize) -> Result<&mut ProcessSlot, TestkitError> {
        self.slots
            .get_mut(node)
            .ok_or_else(|| TestkitError::Misuse(format!("there is no node {node}")))
    }

    fn process(&self, node: usize) -> Option<&Process> {
        self.slots.get(node)?.process.as_ref()
    }

    /// The number of all nodes so far, dead or alive: node numbers are below this.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there was never a node.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The numbers of running nodes, paused or not.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.process.is_some())
            .map(|(node, _)| node)
    }

    /// A node's name.
    #[must_use]
    pub fn name(&self, node: usize) -> &str {
        self.slots.get(node).map_or("no node", |slot| &slot.name)
    }

    /// The number of the node of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.name == name)
    }

    /// A node's process id, while it runs.
    #[must_use]
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.process(node).map(Process::pid)
    }

    /// The `ready` line of a running node.
    #[must_use]
    pub fn ready(&self, node: usize) -> Option<&Ready> {
        self.process(node).map(Process::ready)
    }

    /// The address of a running node for Redis clients.
    #[must_use]
    pub fn resp(&self, node: usize) -> Option<SocketAddr> {
        self.ready(node)?.address("resp")
    }

    /// The HTTP address of a running node.
    #[must_use]
    pub fn http(&self, node: usize) -> Option<SocketAddr> {
        self.ready(node)?.address("http")
    }

    /// The address of a running node for native clients: its relay, which does nothing to them.
    #[must_use]
    pub fn data(&self, node: usize) -> Option<SocketAddr> {
        self.ready(node)?.address("data")
    }

    fn control(&self, node: usize) -> Option<SocketAddr> {
        self.ready(node)?.address("listen")
    }

    /// The token of operators, which HTTP of the nodes demands (`Authorization: Bearer TOKEN`).
    ///
    /// # Errors
    /// The file with the secret was changed, and has no secret of members any more.
    pub fn operator_token(&self) -> Result<String, TestkitError> {
        self.household.operator_token()
    }

    /// The file with the secret that all nodes share.
    #[must_use]
    pub fn secret_file(&self) -> &Path {
        self.household.secret_file()
    }

    /// The stderr of a node since its last start. The node need not run.
    #[must_use]
    pub fn log(&self, node: usize) -> String {
        let read = |slot: &ProcessSlot| {
            std::fs::read(&slot.log)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .ok()
        };
        self.slots.get(node).and_then(read).unwrap_or_default()
    }

    /// Keeps the directory with the logs (and the secret) when this is dropped. Returns its path.
    pub fn keep_logs(&mut self) -> &Path {
        self.household.keep()
    }

    /// SIGKILL. When this returns, the process is gone, and its ports refuse.
    pub fn kill(&mut self, node: usize) {
        if let Ok(slot) = self.slot_mut(node) {
            // Dropping the process kills it.
            (slot.process, slot.paused) = (None, false);
            self.relay.close(node);
        }
    }

    /// SIGSTOP. When this returns, every thread of the process is stopped.
    pub fn pause(&mut self, node: usize) {
        if let Ok(ProcessSlot {
            process: Some(process),
            paused,
            ..
        }) = self.slot_mut(node)
        {
            process.pause();
            *paused = true;
        }
    }

    /// SIGCONT.
    pub fn resume(&mut self, node: usize) {
        if let Ok(ProcessSlot {
            process: Some(process),
            paused,
            ..
        }) = self.slot_mut(node)
        {
            process.resume();
            *paused = false;
        }
    }

    /// SIGTERM, and waits until the node has left in order. After [`PATIENCE`] it is killed.
    ///
    /// # Errors
    /// The node does not run, or took too long.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process is killed.
    pub async fn stop(&mut self, node: usize) -> Result<ExitStatus, TestkitError> {
        let slot = self.slot_mut(node)?;
        let mut process = slot
            .process
            .take()
            .ok_or_else(|| TestkitError::Misuse(format!("{} does not run", slot.name)))?;
        process.terminate();
        let ended = tokio::time::timeout(PATIENCE, process.ended()).await;
        let what = format!(
            "{} did not leave in order; its last line: {}",
            slot.name,
            process.last_words()
        );
        drop(process);
        self.relay.close(node);
        let ended = ended.map_err(|_| TestkitError::TimedOut {
            what,
            within: PATIENCE,
        })?;
        ended.map_err(TestkitError::system(format!(
            "cannot tell how {} ended",
            self.name(node)
        )))
    }

    /// Restarts a node. A running node leaves in order first.
    ///
    /// # Errors
    /// The node does not leave, ends with another status than 0, or does not start.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process is killed, and not started again.
    pub async fn restart(&mut self, node: usize) -> Result<(), TestkitError> {
        if self.slot(node)?.process.is_some() {
            let status = self.stop(node).await?;
            if !status.success() {
                return Err(TestkitError::Unanswered {
                    name: self.name(node).to_owned(),
                    why: format!("it left with {status}"),
                });
            }
        }
        self.start(node).await
    }

    /// Nothing passes between two nodes.
    pub fn cut(&self, a: usize, b: usize) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Nothing passes from one node to the other; the other direction stays as it is.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        self.relay.cut(from, to, &Plane::ALL);
    }

    /// Nothing of one plane passes from one node to the other.
    ///
    /// ```no_run
    /// # fn example(cluster: &doyen::testkit::Cluster) {
    /// use doyen::testkit::{Faults, Plane};
    ///
    /// cluster.cut_one_way(0, 1); // node 1 hears nothing of node 0
    /// cluster.cut_plane(1, 2, Plane::Data); // they agree with each other, and copy nothing
    /// cluster.degrade_link(2, 0, Faults { loss: 0.3, ..Faults::NONE });
    /// # }
    /// ```
    pub fn cut_plane(&self, from: usize, to: usize, plane: Plane) {
        self.relay.cut(from, to, &[plane]);
    }

    /// Nothing passes between these nodes and all others, in either direction.
    pub fn isolate(&self, nodes: &BTreeSet<usize>) {
        for inner in nodes {
            (0..self.len())
                .filter(|outer| !nodes.contains(outer))
                .for_each(|outer| self.cut(*inner, outer));
        }
    }

    /// Every link between two nodes is like this from now on.
    pub fn degrade(&self, faults: Faults) {
        self.relay.degrade(faults);
    }

    /// One direction between two nodes is like this from now on.
    pub fn degrade_link(&self, from: usize, to: usize, faults: Faults) {
        self.relay.degrade_link(from, to, &Plane::ALL, faults);
    }

    /// The network is whole again: no cuts, no faults. Processes stay as they are.
    pub fn heal(&self) {
        self.relay.heal();
    }

    /// What happened to datagrams between nodes so far.
    #[must_use]
    pub fn datagrams(&self) -> DatagramCounts {
        self.relay.counts()
    }

    /// The status of the cluster, as a node reports it.
    ///
    /// # Errors
    /// The node does not run, or does not answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn status(&self, node: usize) -> Result<ClusterReport, TestkitError> {
        self.ask(node, &api::STATUS).await
    }

    /// The table of partitions, as a node reports it.
    ///
    /// # Errors
    /// The node does not run, or does not answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn table(&self, node: usize) -> Result<TableReport, TestkitError> {
        self.ask(node, &api::TABLE).await
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        node: usize,
        report: &HttpReport<T>,
    ) -> Result<T, TestkitError> {
        let unanswered = |why: String| TestkitError::Unanswered {
            name: self.name(node).to_owned(),
            why,
        };
        let address = self
            .http(node)
            .ok_or_else(|| unanswered("it does not run".into()))?
            .to_string();
        let token = self.household.operator_token()?;
        match tokio::time::timeout(ANSWER_MAX, Client::new(address, token).ask(report)).await {
            Ok(answer) => answer.map_err(|e| unanswered(e.to_string())),
            Err(_) => Err(unanswered(format!("nothing within {ANSWER_MAX:?}"))),
        }
    }

    /// The number of the coordinator, as the other running nodes report it.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn coordinator(&self) -> Option<usize> {
        for node in self.awake() {
            if let Ok(report) = self.status(node).await
                && let Some(name) = report.coordinator
            {
                return self.number(&name);
            }
        }
        None
    }

    fn awake(&self) -> impl Iterator<Item = usize> {
        self.running().filter(|node| !self.slots[*node].paused)
    }

    /// Checks that every process still runs that was not killed or told to leave.
    ///
    /// # Errors
    /// A process has ended by itself.
    pub fn check(&mut self) -> Result<(), TestkitError> {
        for slot in &mut self.slots {
            if let Some(process) = &mut slot.process
                && let Some(status) = process.status()
            {
                let why = format!(
                    "it ended by itself, with {status}: {}",
                    process.last_words()
                );
                return Err(TestkitError::Unanswered {
                    name: slot.name.clone(),
                    why,
                });
            }
        }
        Ok(())
    }

    /// Waits until every node that runs and is not paused reports the same members, all of them
    /// live, and all data safe: every partition serves with its full number of copies, and nothing
    /// moves. Returns how long it took.
    ///
    /// # Errors
    /// It took too long; the error says what the last node reported instead. Or a process ended by
    /// itself.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn await_safe(&mut self, timeout: Duration) -> Result<Duration, TestkitError> {
        let began = Instant::now();
        loop {
            self.check()?;
            let Some(missing) = self.unsafe_because().await else {
                return Ok(began.elapsed());
            };
            if began.elapsed() >= timeout {
                return Err(TestkitError::TimedOut {
                    what: format!("not all data is safe: {missing}"),
                    within: timeout,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// `None`: all data is safe.
    async fn unsafe_because(&self) -> Option<String> {
        let awaited: BTreeSet<&str> = self.awake().map(|node| self.name(node)).collect();
        for node in self.awake() {
            let report = match self.status(node).await {
                Ok(report) => report,
                Err(e) => return Some(e.to_string()),
            };
            if let Some(lack) = safety::lack(&awaited, &report) {
                let name = self.name(node);
                let which = if report.safe {
                    None
                } else {
                    self.table(node)
                        .await
                        .ok()
                        .and_then(|t| safety::partitions(&report, &t))
                };
                return Some(format!(
                    "{name} reports: {lack}{}",
                    which.map(|w| format!("; {w}")).unwrap_or_default()
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(builder: ClusterBuilder, nodes: usize) -> String {
        builder
            .start(nodes)
            .await
            .expect_err("it cannot be started")
            .to_string()
    }

    #[tokio::test]
    async fn a_cluster_that_cannot_start_says_what_to_do() {
        // Any existing program.
        let there = || Cluster::builder().binary("/bin/sh");
        assert!(refused(there(), 0).await.contains("start(3)"));
        let told = refused(there().option("partitons", 64), 1).await;
        assert!(
            told.contains("`partitons`") && told.contains("`partitions`"),
            "{told}"
        );
        let told = refused(there().option("xyzzy", 64), 1).await;
        assert!(
            told.contains("`xyzzy`") && told.contains("doyen run --help"),
            "{told}"
        );
        let told = refused(Cluster::builder().binary("nowhere/doyen"), 1).await;
        assert!(
            told.contains("nowhere/doyen") && told.contains("cargo build"),
            "{told}"
        );
    }

    #[test]
    fn options_are_the_flags_of_a_node() {
        for good in [
            "DOYEN_PARTITIONS",
            "DOYEN_MIN_IN_SYNC",
            "DOYEN_MEMBERS_MIN",
            "DOYEN_SEED",
            "DOYEN_CONFIG",
        ] {
            assert!(known(good).is_ok(), "{good}");
        }
    }
}
