//! The state that the demo shows. It holds facts only; the view draws them.

use crate::screen::Cell;
use doyen::http::client::Client;
use doyen::report::status::ClusterReport;
use doyen::report::table::{PartitionState, TableReport};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time between two samples of the throughput.
pub(super) const SAMPLE: Duration = Duration::from_millis(100);
/// Samples that are kept.
const SAMPLES_MAX: usize = 600;

/// The state that the demo shows.
#[derive(Debug)]
pub(super) struct Scene {
    began: Instant,
    /// The current act, in a few words.
    pub(super) act: String,
    /// Every node that was started, in order.
    pub(super) nodes: Vec<Actor>,
    /// The RESP addresses that clients know.
    pub(super) endpoints: Vec<SocketAddr>,
    /// What asks the HTTP of nodes that are not known to be dead.
    pub(super) observed: Vec<Client>,
    /// Whether clients are running.
    pub(super) under_load: bool,
    /// The latest report.
    pub(super) report: Option<ClusterReport>,
    /// The partitions of the latest table, in order.
    pub(super) cells: Vec<Cell>,
    /// What has happened so far, and when.
    pub(super) story: Vec<SceneLine>,
    /// Writes acknowledged in each of the latest intervals.
    pub(super) samples: VecDeque<u64>,
    sample: u64,
    /// Acknowledged writes.
    pub(super) writes: u64,
    /// Answered reads.
    pub(super) reads: u64,
    /// Reads that missed an acknowledged write.
    pub(super) stale: u64,
    /// The longest time between two acknowledgements that a client got.
    pub(super) gap_max: Duration,
}

/// A node in the demo.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) resp: SocketAddr,
    pub(super) killed: bool,
    /// Its age as a member, once it was one.
    pub(super) age: Option<u64>,
    /// Partitions that it leads, that it backs up, and that are being copied to it.
    pub(super) leads: usize,
    pub(super) copies: usize,
    pub(super) learns: usize,
}

/// A line of the story.
#[derive(Debug, Clone)]
pub(super) struct SceneLine {
    pub(super) at: Duration,
    pub(super) mood: Mood,
    pub(super) text: String,
}

/// The kind of a line of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// An action of the demo.
    Deed,
    /// Bad news.
    Blow,
    /// Something that the cluster does by itself.
    Good,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            act: "starting".into(),
            nodes: Vec::new(),
            endpoints: Vec::new(),
            observed: Vec::new(),
            under_load: false,
            report: None,
            cells: Vec::new(),
            story: Vec::new(),
            samples: VecDeque::new(),
            sample: 0,
            writes: 0,
            reads: 0,
            stale: 0,
            gap_max: Duration::ZERO,
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn say(&mut self, mood: Mood, text: impl Into<String>) {
        let at = self.elapsed();
        self.story.push(SceneLine {
            at,
            mood,
            text: text.into(),
        });
    }

    pub(super) fn acked(&mut self, gap: Duration) {
        self.writes += 1;
        self.sample += 1;
        self.gap_max = self.gap_max.max(gap);
    }

    pub(super) fn read(&mut self, stale: bool) {
        self.reads += 1;
        self.stale += u64::from(stale);
    }

    /// Ends an interval.
    pub(super) fn take_sample(&mut self) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(std::mem::take(&mut self.sample));
    }

    /// Acknowledged writes in the last second.
    pub(super) fn rate(&self) -> u64 {
        self.samples.iter().rev().take(10).sum()
    }

    pub(super) fn see(&mut self, report: ClusterReport) {
        // Nodes are asked in turn: an older report must not replace a newer one.
        for node in &mut self.nodes {
            node.age = report
                .members
                .iter()
                .find(|m| m.name == node.name)
                .map(|m| m.age)
                .or(node.age);
        }
        let newer = |old: &ClusterReport| (report.term, report.version) >= (old.term, old.version);
        if self.report.as_ref().is_none_or(newer) {
            self.report = Some(report);
        }
    }

    pub(super) fn see_table(&mut self, table: &TableReport) {
        let names: BTreeMap<String, usize> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(i, n)| (n.name.clone(), i))
            .collect();
        for node in &mut self.nodes {
            (node.leads, node.copies, node.learns) = (0, 0, 0);
        }
        let Some(keyspace) = table.keyspaces.first() else {
            return;
        };
        self.cells.clear();
        for p in &keyspace.partitions {
            let primary = names.get(&p.primary).copied();
            self.cells.push(Cell {
                primary,
                open: p.state != PartitionState::Assigned,
                whole: !p.backups.is_empty(),
            });
            let mut count = |name: &String, of: fn(&mut Actor) -> &mut usize| {
                if let Some(node) = names.get(name).and_then(|&i| self.nodes.get_mut(i)) {
                    *of(node) += 1;
                }
            };
            count(&p.primary, |n| &mut n.leads);
            p.backups.iter().for_each(|m| count(m, |n| &mut n.copies));
            p.learners.iter().for_each(|m| count(m, |n| &mut n.learns));
        }
        // Partitions in the same state stand together.
        self.cells.sort_unstable();
    }

    /// Whether this node is the coordinator of the latest report.
    pub(super) fn coordinates(&self, name: &str) -> bool {
        self.report.as_ref().and_then(|r| r.coordinator.as_deref()) == Some(name)
    }
}
