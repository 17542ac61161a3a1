//! The course of the demo, from the first process to the line of figures.

use super::SharedScene;
use super::lane::DemoLane;
use super::nodes::{DemoNodes, DemoProcess, Nursery};
use super::observer;
use super::scene::{Actor, Mood, SAMPLE};
use crate::{CommandFailed, PARTITIONS, counted};
use doyen::report::status::ClusterReport;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Clients per node.
const LANES_A_NODE: usize = 4;
/// How long the cluster may take for each step, before the demo fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two checks of the scene.
const LOOK: Duration = Duration::from_millis(10);

/// The result of the demo.
#[derive(Debug, Clone)]
pub(super) struct DemoVerdict {
    writes: u64,
    reads: u64,
    lost: u64,
    stale: u64,
    gap_max: Duration,
    safe_after_kill: Duration,
    safe_after_join: Duration,
}

impl DemoVerdict {
    /// Whether every acknowledged write was found, and no read was stale.
    pub(super) const fn holds(&self) -> bool {
        self.lost == 0 && self.stale == 0
    }
}

impl fmt::Display for DemoVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [gap, kill, join] =
            [self.gap_max, self.safe_after_kill, self.safe_after_join].map(|d| d.as_secs_f64());
        write!(
            f,
            "acknowledged {}  lost {}  stale {} of {} reads  longest gap {gap:.2} s  safe after \
             {kill:.2} s (kill), {join:.2} s (join)",
            self.writes, self.lost, self.stale, self.reads
        )
    }
}

/// A task that ends with its owner.
struct Owned<T>(JoinHandle<T>);

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Plays the demo. Returns the nodes that live, too: they end when they are dropped.
pub(super) async fn play(
    nodes: u8,
    seconds: u16,
    scene: SharedScene,
) -> Result<(DemoVerdict, DemoNodes), CommandFailed> {
    let mut stage = DemoStage {
        scene: scene.clone(),
        nursery: Nursery::new(nodes)?,
        processes: Vec::new(),
    };
    let _observer = Owned(tokio::task::spawn_local(observer::run(scene.clone())));
    let seconds = f64::from(seconds);

    stage.found(nodes).await?;
    stage.act("under load");
    let lanes = usize::from(nodes) * LANES_A_NODE;
    stage.say(
        Mood::Deed,
        format!("{lanes} clients write and read through all nodes, with plain Redis commands"),
    );
    scene.borrow_mut().under_load = true;
    let lanes: Vec<_> = (0..lanes)
        .map(|n| {
            Owned(tokio::task::spawn_local(
                DemoLane::new(n, scene.clone()).run(),
            ))
        })
        .collect();
    let _sampler = Owned(tokio::task::spawn_local(sample(scene.clone())));
    stage.rest(seconds * 0.25).await?;

    let killed = Instant::now();
    stage.kill_coordinator()?;
    let safe_after_kill = stage.watch_takeover(killed).await?;
    stage
        .rest((seconds * 0.5 - killed.elapsed().as_secs_f64()).max(seconds * 0.15))
        .await?;

    let joining = Instant::now();
    let safe_after_join = stage.join(joining).await?;
    stage
        .rest((seconds * 0.3 - joining.elapsed().as_secs_f64()).max(seconds * 0.1))
        .await?;

    stage.act("reading all keys back");
    scene.borrow_mut().under_load = false;
    let (keys, lost) = read_back(lanes).await?;
    let mood = if lost == 0 { Mood::Good } else { Mood::Blow };
    stage.say(
        mood,
        format!(
            "{keys} keys read back: {} hold their last acknowledged write",
            keys - lost
        ),
    );
    stage.rest(1.0).await?;
    let scene = scene.borrow();
    let verdict = DemoVerdict {
        writes: scene.writes,
        reads: scene.reads,
        lost,
        stale: scene.stale,
        gap_max: scene.gap_max,
        safe_after_kill,
        safe_after_join,
    };
    Ok((verdict, DemoNodes::new(stage.nursery, stage.processes)))
}

/// Waits until every client has finished its operation, then lets each check its acknowledged
/// writes.
async fn read_back(lanes: Vec<Owned<DemoLane>>) -> Result<(u64, u64), CommandFailed> {
    let broken = |e: tokio::task::JoinError| {
        CommandFailed::new(format!("a client of the demo panicked: {e}"))
    };
    let mut checks = Vec::new();
    for mut lane in lanes {
        let lane = (&mut lane.0).await.map_err(broken)?;
        checks.push(Owned(tokio::task::spawn_local(lane.verify())));
    }
    let (mut keys, mut lost) = (0, 0);
    for mut check in checks {
        let (k, l) = (&mut check.0).await.map_err(broken)?;
        keys += k;
        lost += l;
    }
    Ok((keys, lost))
}

async fn sample(scene: SharedScene) {
    let mut interval = tokio::time::interval(SAMPLE);
    loop {
        interval.tick().await;
        scene.borrow_mut().take_sample();
    }
}

/// The coordinator's name and age.
fn coordinator(report: &ClusterReport) -> (&str, u64) {
    let name = report.coordinator.as_deref().unwrap_or("none");
    (
        name,
        report
            .members
            .iter()
            .find(|m| m.name == name)
            .map_or(0, |m| m.age),
    )
}

/// Whether no member is older. On a busy machine the oldest may be too late to stand for election,
/// and the next one wins.
fn is_oldest(report: &ClusterReport, age: u64) -> bool {
    report.members.iter().all(|m| m.age >= age)
}

/// The nodes, and the scene that shows them.
struct DemoStage {
    scene: SharedScene,
    nursery: Nursery,
    processes: Vec<DemoProcess>,
}

impl DemoStage {
    fn act(&self, act: &str) {
        self.scene.borrow_mut().act = act.into();
    }

    fn say(&self, mood: Mood, text: impl Into<String>) {
        self.scene.borrow_mut().say(mood, text);
    }

    /// Starts the first nodes, and waits until they are one cluster with all data safe.
    async fn found(&mut self, nodes: u8) -> Result<(), CommandFailed> {
        self.act("forming a cluster");
        let began = Instant::now();
        self.say(
            Mood::Deed,
            format!("starting {nodes} nodes: real processes, free ports, a fresh secret"),
        );
        for _ in 0..nodes {
            let seeds: Vec<SocketAddr> = self.processes.iter().map(|p| p.control).take(1).collect();
            self.enter(&seeds).await?;
        }
        let wanted = usize::from(nodes);
        let report = self
            .until("become one with all data safe", |r| {
                r.safe && r.members.len() == wanted
            })
            .await?;
        let (name, age) = coordinator(&report);
        let rank = if is_oldest(&report, age) {
            "is the oldest and coordinates"
        } else {
            "coordinates, because the oldest was too late for the election"
        };
        let partitions = report.keyspaces.first().map_or(0, |k| k.partitions);
        let (after, term) = (seconds(began.elapsed()), report.term);
        let text = format!(
            "one cluster after {after}: {name} {rank}, in term {term}; \
             {partitions} partitions, two copies of each"
        );
        self.say(Mood::Good, text);
        Ok(())
    }

    async fn enter(&mut self, seeds: &[SocketAddr]) -> Result<String, CommandFailed> {
        let process = self.nursery.start(seeds).await?;
        let name = process.name.clone();
        let mut scene = self.scene.borrow_mut();
        scene.nodes.push(Actor {
            name: name.clone(),
            pid: process.pid(),
            resp: process.resp,
            killed: false,
            age: None,
            leads: 0,
            copies: 0,
            learns: 0,
        });
        scene.endpoints.push(process.resp);
        scene.observed.push(process.http.clone());
        drop(scene);
        self.processes.push(process);
        Ok(name)
    }

    /// Sends SIGKILL. Clients are not told: they notice as any client does.
    fn kill_coordinator(&mut self) -> Result<(), CommandFailed> {
        let coordinator = self
            .scene
            .borrow()
            .report
            .as_ref()
            .and_then(|r| r.coordinator.clone());
        let found = self
            .processes
            .iter()
            .position(|p| Some(&p.name) == coordinator.as_ref());
        let mut process = found
            .map(|i| self.processes.remove(i))
            .ok_or_else(|| CommandFailed::new("the cluster has no coordinator to kill"))?;
        process.kill();
        let mut scene = self.scene.borrow_mut();
        scene.act = "the coordinator is dead".into();
        scene
            .observed
            .retain(|a| a.address() != process.http.address());
        let mut led = 0;
        for node in scene.nodes.iter_mut().filter(|n| n.name == process.name) {
            node.killed = true;
            led = node.leads;
        }
        let text = format!(
            "SIGKILL to {} (pid {}), the coordinator, which led {}",
            process.name,
            process.pid(),
            counted(led, PARTITIONS)
        );
        scene.say(Mood::Blow, text);
        Ok(())
    }

    /// Reports the new coordinator, the time when every partition is served, and the time when all
    /// data is safe. Returns the latter.
    async fn watch_takeover(&mut self, killed: Instant) -> Result<Duration, CommandFailed> {
        let dead = self
            .scene
            .borrow()
            .nodes
            .iter()
            .find(|n| n.killed)
            .map(|n| n.name.clone());
        let new = |r: &ClusterReport| {
            r.coordinator.is_some()
                && r.coordinator != dead
                && r.members.iter().all(|m| Some(&m.name) != dead.as_ref())
        };
        let report = self.until("find another coordinator", new).await?;
        let (name, age) = coordinator(&report);
        let rank = if is_oldest(&report, age) {
            "now the oldest"
        } else {
            "the oldest was too late for the election"
        };
        let after = seconds(killed.elapsed());
        self.say(
            Mood::Good,
            format!(
                "{name} (age {age}, {rank}) coordinates, in term {}, {after} after",
                report.term
            ),
        );
        self.until("serve every partition", |r| {
            new(r) && r.keyspaces.iter().all(|k| k.unavailable == 0)
        })
        .await?;
        self.say(
            Mood::Good,
            format!(
                "every partition is served again, {} after",
                seconds(killed.elapsed())
            ),
        );
        self.act("restoring copies");
        self.until("restore the copies", |r| new(r) && r.safe)
            .await?;
        let took = killed.elapsed();
        let copies = if self.processes.len() > 1 {
            "every partition has two copies again"
        } else {
            "safe, as far as one node can be"
        };
        self.say(Mood::Good, format!("{copies}, {} after", seconds(took)));
        self.act("under load");
        Ok(took)
    }

    /// Adds a new node, and waits until it has its share.
    async fn join(&mut self, began: Instant) -> Result<Duration, CommandFailed> {
        self.act("a new node joins");
        let seeds: Vec<SocketAddr> = self.processes.iter().map(|p| p.control).collect();
        let name = self.enter(&seeds).await?;
        self.say(Mood::Deed, format!("a new node, {name}, asks to join"));
        let report = self
            .until("admit the new node", |r| {
                r.members.iter().any(|m| m.name == name)
            })
            .await?;
        let age = report
            .members
            .iter()
            .find(|m| m.name == name)
            .map_or(0, |m| m.age);
        self.say(
            Mood::Good,
            format!(
                "{name} is a member, the youngest (age {age}), {} after its start",
                seconds(began.elapsed())
            ),
        );
        self.act("moving partitions to the new node");
        let scene = self.scene.clone();
        let settled = |r: &ClusterReport| {
            r.safe
                && scene
                    .borrow()
                    .nodes
                    .iter()
                    .any(|n| n.name == name && n.leads > 0)
        };
        self.until("give the new node its share", settled).await?;
        let took = began.elapsed();
        let leads = self
            .scene
            .borrow()
            .nodes
            .iter()
            .find(|n| n.name == name)
            .map_or(0, |n| n.leads);
        self.say(
            Mood::Good,
            format!(
                "{name} leads {}; all data is safe, {} after its start",
                counted(leads, PARTITIONS),
                seconds(took)
            ),
        );
        self.act("under load");
        Ok(took)
    }

    /// Lets time pass. If a node ends by itself, the demo fails.
    async fn rest(&mut self, seconds: f64) -> Result<(), CommandFailed> {
        let end = Instant::now() + Duration::from_secs_f64(seconds.max(0.0));
        while Instant::now() < end {
            self.check()?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the report satisfies `holds`.
    async fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&ClusterReport) -> bool,
    ) -> Result<ClusterReport, CommandFailed> {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.scene.borrow().report.clone();
            if let Some(report) = seen.filter(&holds) {
                return Ok(report);
            }
            if Instant::now() > end {
                let waiting = self
                    .scene
                    .borrow()
                    .report
                    .as_ref()
                    .and_then(|r| r.waiting.clone());
                let why = waiting.unwrap_or_else(|| "this is a defect".into());
                return Err(CommandFailed::new(format!(
                    "the cluster did not {what} within {}: {why}",
                    seconds(PATIENCE)
                )));
            }
            self.check()?;
            tokio::time::sleep(LOOK).await;
        }
    }

    fn check(&mut self) -> Result<(), CommandFailed> {
        self.processes.iter_mut().try_for_each(DemoProcess::check)
    }
}

fn seconds(d: Duration) -> String {
    format!("{:.2} s", d.as_secs_f64())
}
