//! What a cluster costs as it grows: when it forms, idles, and changes its table. Every node is a
//! process of its own on this machine.

mod journal;

use super::stats::{typical, worst};
use crate::cluster::Cluster;
use crate::procfs;
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How long forming may take before this gives up.
const FORM_MAX: Duration = Duration::from_secs(120);
/// The nodes that are the seeds of all others.
const SEEDS: usize = 3;
/// The time between two changes of a table.
const CHANGE_GAP: Duration = Duration::from_millis(150);
/// The number of voters in a cluster that has more members.
const VOTERS: usize = 7;

/// What to measure, and how.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Numbers of nodes, one after the other
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        default_value = "3,10,30,50,100"
    )]
    nodes: Vec<usize>,
    /// Seconds that each cluster idles
    #[arg(long, value_name = "S", default_value_t = 20)]
    seconds: u64,
    /// Number of table changes
    #[arg(long, value_name = "N", default_value_t = 25)]
    changes: usize,
    /// Number of partitions, instead of the default for that many nodes
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Print what each node logged
    #[arg(long)]
    verbose: bool,
}

/// The figures of one size. Times are in seconds unless their names say otherwise.
#[derive(Debug, Clone, Default)]
struct Row {
    nodes: usize,
    formed: f64,
    safe: f64,
    /// Percent of a core.
    idle_median: f64,
    idle_voters: f64,
    idle_coordinator: f64,
    idle_worst: f64,
    /// What each thread of the median node used.
    idle_threads: BTreeMap<String, f64>,
    packets: f64,
    bytes: f64,
    control_bytes: BTreeMap<String, f64>,
    memory_median: f64,
    memory_worst: f64,
    agreed_ms: f64,
    agreed_worst_ms: f64,
    committed_ms: f64,
    change_cpu_ms: f64,
    change_cpu_others_ms: f64,
    change_bytes: f64,
    expelled: usize,
    elections: usize,
}

/// Measures, and prints a table.
pub fn run(binary: &str, plan: &Plan) {
    let rows: Vec<Row> = plan
        .nodes
        .iter()
        .filter_map(|n| measure(binary, plan, *n))
        .collect();
    println!("\n{}", markdown(&rows));
}

fn measure(binary: &str, plan: &Plan, nodes: usize) -> Option<Row> {
    let mut row = Row {
        nodes,
        ..Row::default()
    };
    let mut cluster = Cluster::new(binary);
    cluster.options = ["--log", journal::LOG].map(str::to_owned).to_vec();
    if let Some(partitions) = plan.partitions {
        cluster
            .options
            .extend(["--partitions".to_owned(), partitions.to_string()]);
    }
    let names: Vec<String> = (0..nodes).map(|i| format!("n{i:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (began, began_at) = (journal::now(), Instant::now());
    cluster.start_with_seeds(&names, SEEDS);
    row.formed = formed(&cluster, nodes, began)?;
    println!("{nodes} nodes: formed after {:.2} s", row.formed);
    let coordinator = safe(&cluster, began_at)?;
    row.safe = began_at.elapsed().as_secs_f64();
    println!("{nodes} nodes: safe after {:.2} s", row.safe);
    std::thread::sleep(Duration::from_secs(5));
    idle(&cluster, plan, &coordinator, &mut row);
    println!(
        "{nodes} nodes: idle {:.2} % of a core at the median, voters {:.2} %, \
             coordinator {:.2} %, worst {:.2} %; {:?}; {:.0} packets and {:.0} bytes \
         per node and second ({:?}); {:.1} MB",
        row.idle_median,
        row.idle_voters,
        row.idle_coordinator,
        row.idle_worst,
        row.idle_threads,
        row.packets,
        row.bytes,
        row.control_bytes,
        row.memory_median
    );
    change(&cluster, plan, &coordinator, &mut row);
    println!(
        "{nodes} nodes: a table is installed everywhere after {:.1} ms at the median, {:.1} ms at \
         worst, committed after {:.1} ms; it costs the \
         coordinator {:.2} ms of a core and {:.0} bytes, each other node {:.2} ms",
        row.agreed_ms,
        row.agreed_worst_ms,
        row.committed_ms,
        row.change_cpu_ms,
        row.change_bytes,
        row.change_cpu_others_ms
    );
    let logs: Vec<String> = cluster
        .nodes
        .values()
        .map(crate::process::Process::log)
        .collect();
    let lines = |what: &str| {
        logs.iter()
            .map(|l| l.lines().filter(|l| l.contains(what)).count())
            .max()
            .unwrap_or(0)
    };
    (row.expelled, row.elections) = (lines("was expelled"), lines(" coordinates, term"));
    if row.expelled > 0 || row.elections > 1 {
        println!(
            "{nodes} nodes: {} were expelled, {} elections",
            row.expelled, row.elections
        );
        if plan.verbose {
            tell_unrest(&cluster);
        }
    }
    Some(row)
}

/// The lines that nodes logged about deaths and elections, in order of time.
fn tell_unrest(cluster: &Cluster) {
    let mut said = Vec::new();
    for (name, process) in &cluster.nodes {
        let log = process.log();
        let unrest = log.lines().filter(|l| {
            ["WARN", "ERROR", " coordinates, term"]
                .iter()
                .any(|what| l.contains(what))
        });
        said.extend(unrest.map(|line| format!("{line} [{name}]")));
    }
    said.sort();
    said.iter().for_each(|line| println!("{line}"));
}

/// Waits until every node has installed a table with all of them.
fn formed(cluster: &Cluster, nodes: usize, began: u64) -> Option<f64> {
    let mut at: BTreeMap<&str, u64> = BTreeMap::new();
    let deadline = Instant::now() + FORM_MAX;
    while at.len() < nodes {
        for (name, process) in cluster
            .nodes
            .iter()
            .filter(|(n, _)| !at.contains_key(n.as_str()))
            .collect::<Vec<_>>()
        {
            let whole = journal::tables(&process.log())
                .into_values()
                .filter(|t| t.members == nodes)
                .filter_map(|t| t.installed)
                .min();
            if let Some(whole) = whole {
                at.insert(name, whole);
            }
        }
        if Instant::now() > deadline {
            println!(
                "{nodes} nodes: after {FORM_MAX:?} only {} know of all",
                at.len()
            );
            return None;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    Some((at.values().max()? - began) as f64 / 1e6)
}

/// Waits until the coordinator says that all is safe. Returns the coordinator's name.
fn safe(cluster: &Cluster, began: Instant) -> Option<String> {
    let first = cluster.nodes.keys().next()?;
    loop {
        let status = cluster.status(first);
        if let Some(name) = status
            .filter(|s| s["safe"] == true)
            .and_then(|s| s["coordinator"].as_str().map(str::to_owned))
        {
            return Some(name);
        }
        if began.elapsed() > FORM_MAX * 2 {
            println!("never safe");
            return None;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn idle(cluster: &Cluster, plan: &Plan, coordinator: &str, row: &mut Row) {
    let voters: Vec<String> = cluster.by_age().into_iter().take(VOTERS).collect();
    let youngest = cluster.by_age().pop().unwrap_or_default();
    let threads = || {
        cluster
            .nodes
            .iter()
            .map(|(n, p)| (n.clone(), procfs::threads(p.pid())))
            .collect::<BTreeMap<_, _>>()
    };
    let counted = || metrics(cluster, coordinator);
    let (control, before, lo, began) = (counted(), threads(), procfs::loopback(), Instant::now());
    std::thread::sleep(Duration::from_secs(plan.seconds));
    let (after, lo_after, span) = (threads(), procfs::loopback(), began.elapsed().as_secs_f64());
    let control_after = counted();
    let share = |name: &str| {
        let of = |all: &BTreeMap<String, BTreeMap<String, procfs::Spent>>| {
            all[name].values().map(|s| s.ran.as_secs_f64()).sum::<f64>()
        };
        (of(&after) - of(&before)) / span * 100.0
    };
    let shares: BTreeMap<&str, f64> = cluster
        .nodes
        .keys()
        .map(|n| (n.as_str(), share(n)))
        .collect();
    let all: Vec<f64> = shares.values().copied().collect();
    let of_voters: Vec<f64> = voters
        .iter()
        .filter(|v| *v != coordinator)
        .filter_map(|v| shares.get(v.as_str()).copied())
        .collect();
    (row.idle_median, row.idle_voters, row.idle_worst) =
        (typical(&all), typical(&of_voters), worst(&all));
    row.idle_coordinator = shares.get(coordinator).copied().unwrap_or(f64::NAN);
    row.idle_threads = after[&youngest]
        .iter()
        .map(|(name, spent)| {
            let earlier = before[&youngest].get(name).copied().unwrap_or_default();
            (
                name.clone(),
                ((spent.ran - earlier.ran).as_secs_f64() / span * 10_000.0).round() / 100.0,
            )
        })
        .collect();
    row.bytes = (lo_after.0 - lo.0) as f64 / span / row.nodes as f64;
    row.packets = (lo_after.1 - lo.1) as f64 / span / row.nodes as f64;
    row.control_bytes = of_kinds(&control, &control_after, span);
    let memory: Vec<f64> = cluster
        .nodes
        .values()
        .map(|p| procfs::memory(p.pid()).0 as f64 / f64::from(1 << 20))
        .collect();
    (row.memory_median, row.memory_worst) = (typical(&memory), worst(&memory));
}

fn metrics(cluster: &Cluster, name: &str) -> BTreeMap<String, f64> {
    let text = cluster.node(name).http("/metrics").unwrap_or_default();
    let lines = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.rsplit_once(' '));
    lines
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// The bytes a second of each kind of message that this node sends.
fn of_kinds(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
    span: f64,
) -> BTreeMap<String, f64> {
    let prefix = "doyen_control_bytes_total{kind=\"";
    let kinds = after.iter().filter_map(|(n, v)| {
        Some((
            n.strip_prefix(prefix)?.trim_end_matches("\"}").to_owned(),
            v - before.get(n)?,
        ))
    });
    kinds
        .map(|(kind, bytes)| (kind, (bytes / span).round()))
        .collect()
}

/// Publishes tables that differ in one map's name. A member within this process asks for them.
fn change(cluster: &Cluster, plan: &Plan, coordinator: &str, row: &mut Row) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let seeds: Vec<String> = cluster
        .nodes
        .values()
        .take(SEEDS)
        .map(|p| p.ready.listen.to_string())
        .collect();
    let changing = async {
        let builder = doyen::Node::builder()
            .name("asker")
            .seeds(seeds)
            .secret_file(cluster.secret_file());
        let node = builder
            .listen("127.0.0.1:0")
            .witness()
            .start()
            .await
            .expect("a node starts");
        let _: doyen::Map<u64, u64> = node.map("first").await.expect("a map");
        // By then, the work that the newcomer caused is over.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let spent = |pid| procfs::processor(pid).as_secs_f64();
        let all = || cluster.nodes.values().map(|p| spent(p.pid())).sum::<f64>();
        let pid = cluster.node(coordinator).pid();
        let counted = metrics(cluster, coordinator);
        tokio::time::sleep(Duration::from_millis(500)).await;
        // The cost of the same time without changes.
        let span = CHANGE_GAP * u32::try_from(plan.changes).unwrap_or(u32::MAX);
        let quiet = (spent(pid), all());
        tokio::time::sleep(span).await;
        let quiet = (spent(pid) - quiet.0, all() - quiet.1);
        let (began, busy) = (journal::now(), (spent(pid), all()));
        let started = Instant::now();
        for i in 0..plan.changes {
            let _: doyen::Map<u64, u64> = node.map(&format!("map-{i}")).await.expect("a map");
            let next = CHANGE_GAP * u32::try_from(i + 1).unwrap_or(u32::MAX);
            tokio::time::sleep(next.saturating_sub(started.elapsed())).await;
        }
        let longer = started.elapsed().as_secs_f64() / span.as_secs_f64();
        let (ended, busy) = (journal::now(), (spent(pid) - busy.0, all() - busy.1));
        let bytes = of_kinds(&counted, &metrics(cluster, coordinator), 1.0)
            .get("table")
            .copied()
            .unwrap_or(0.0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.shutdown().await;
        (began, ended, quiet, busy, longer, bytes)
    };
    let (began, ended, quiet, busy, longer, bytes) = runtime.block_on(changing);
    let changes = plan.changes as f64;
    row.change_cpu_ms = (busy.0 - quiet.0 * longer) / changes * 1_000.0;
    let others = (busy.1 - busy.0) - (quiet.1 - quiet.0) * longer;
    row.change_cpu_others_ms = others / changes / (row.nodes as f64 - 1.0) * 1_000.0;
    row.change_bytes = bytes / changes;
    let logs: Vec<_> = cluster
        .nodes
        .values()
        .map(|p| journal::tables(&p.log()))
        .collect();
    let (mut agreed, mut committed) = (Vec::new(), Vec::new());
    for (version, _) in journal::tables(&cluster.node(coordinator).log()) {
        let entries: Vec<_> = logs.iter().filter_map(|l| l.get(&version)).collect();
        let proposed = entries
            .iter()
            .filter_map(|e| e.accepted)
            .min()
            .filter(|at| (began..ended).contains(at));
        let installed: Vec<u64> = entries.iter().filter_map(|e| e.installed).collect();
        let (Some(proposed), Some(first), Some(last)) =
            (proposed, installed.iter().min(), installed.iter().max())
        else {
            continue;
        };
        if installed.len() == logs.len() {
            agreed.push((last - proposed) as f64 / 1e3);
            committed.push((first - proposed) as f64 / 1e3);
        } else {
            println!(
                "{} nodes: table {version:?} is installed at {} nodes only",
                row.nodes,
                installed.len()
            );
        }
    }
    (row.agreed_ms, row.agreed_worst_ms, row.committed_ms) =
        (typical(&agreed), worst(&agreed), typical(&committed));
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| nodes | formed | safe | idle, % of a core: median | voters | coordinator | worst | \
         packets/s a node | bytes/s a node | MB resident, median | \
         worst | table everywhere, ms: median | worst | committed | CPU ms a table: coordinator | \
         another | bytes a table |\n|",
    );
    text.push_str(&"---|".repeat(17));
    for r in rows {
        let _ = write!(
            text,
            "\n| {} | {:.1} s | {:.1} s | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.1} | \
             {:.1} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {:.0} |",
            r.nodes,
            r.formed,
            r.safe,
            r.idle_median,
            r.idle_voters,
            r.idle_coordinator,
            r.idle_worst,
            r.packets,
            r.bytes,
            r.memory_median,
            r.memory_worst,
            r.agreed_ms,
            r.agreed_worst_ms,
            r.committed_ms,
            r.change_cpu_ms,
            r.change_cpu_others_ms,
            r.change_bytes
        );
    }
    text
}
