//! What readers and writers notice of moves: a node joins, dies, is drained, and all nodes are
//! restarted one after the other.
//!
//! ```text
//!   three nodes, 1 GB ─ capacity ─ half of it: before ─ a fourth is there, empty
//!         ─ it gets its share ─ after
//!   no load ─ a node joins ─ one is killed
//!   five nodes ─ half the capacity: before ─ one is drained, and filled again
//!         ─ every node is restarted, this many times
//! ```
//! Each connection has keys of its own, and knows what they hold. A read that gives less than was
//! acknowledged is a lost write.

mod confined;
mod rivals;
mod speech;
mod steady;

use super::beside::systems::Kind;
use super::{EVENT_MAX, SELDOM, await_share, has_share, until};
use crate::cluster::Cluster;
use crate::procfs::processor;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use confined::Confined;
use serde_json::Value;
use speech::Speech;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};
use steady::{Counted, EntryPoints, Load, Steady, fill, stored_bytes};

/// How long the quiet load is measured before and after an event.
const QUIET: Duration = Duration::from_secs(20);
/// The time between two looks at the cluster. A look costs processor time that nodes and clients
/// need.
const LOOK: Duration = Duration::from_millis(200);
/// Fewer operations a second than this count as no load.
const ASKED_LITTLE: u64 = 50;

/// What to measure, and how.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// The program to measure.
    #[arg(skip)]
    binary: String,
    /// Bytes of values, of 100 bytes to 10 KB each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000_000,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    bytes: u64,
    /// Number of connections
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,
    /// The load, as a percentage of what the cluster can do
    #[arg(
        long,
        value_name = "P",
        default_value_t = 50,
        value_parser = clap::value_parser!(u64).range(1..=100)
    )]
    load: u64,
    /// What the percentage is of: `operations` that the cluster does if each connection always
    /// waits for its answer, or, with --share, the `processor` time of the nodes (single
    /// operations cost more of it than batches)
    #[arg(
        long,
        value_name = "WHAT",
        value_parser = ["operations", "processor"],
        default_value = "operations"
    )]
    of: String,
    /// How often all nodes are restarted
    #[arg(long, value_name = "N", default_value_t = 20)]
    restarts: usize,
    /// Only some of join, drain, repair and restart, or none of them
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        value_parser = ["join", "drain", "repair", "restart", "none"]
    )]
    only: Vec<String>,
    /// Other systems that a member joins in the same run: redis, hazelcast
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',', value_parser = rival)]
    beside: Vec<Kind>,
    /// Bytes that each member sends and takes each second, as for `doyen rebalance`
    #[arg(long, value_name = "RATE", default_value = "adaptive")]
    move_rate: String,
    /// Clients find the node of a key and follow redirections, as clients of Redis Cluster do;
    /// otherwise any node takes any command
    #[arg(long)]
    cluster_clients: bool,
    /// Thousandths of a processor for each node, as if each had a machine of its own (as root);
    /// otherwise nodes share what there is
    #[arg(long, value_name = "N")]
    share: Option<u64>,
    /// The newcomer gets its share for this many seconds, then nothing moves for as many, in
    /// turns, so that a machine that changes its speed changes it for both
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..=60))]
    turns: Option<u64>,
    /// Bytes of memory to use and give back before a node joins or is killed, while there is no
    /// load: in a virtual machine, the host may take longer to hand out memory than a copy
    /// takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    warm: usize,
    /// Flags for every node
    #[arg(
        long,
        value_name = "FLAGS",
        value_delimiter = ' ',
        allow_hyphen_values = true
    )]
    options: Vec<String>,
}

fn rival(text: &str) -> Result<Kind, String> {
    [Kind::Redis, Kind::Hazelcast]
        .into_iter()
        .find(|kind| kind.id() == text)
        .ok_or_else(|| "choose from redis and hazelcast".into())
}

impl Plan {
    fn connections(&self) -> usize {
        self.connections as usize
    }

    fn wants(&self, what: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == what)
    }

    /// The tuple is dropped in reverse: a group can be removed once its processes are gone.
    fn cluster(&self, nodes: usize) -> Result<(Option<Confined>, Cluster)> {
        let mut confined = self
            .share
            .map(Confined::new)
            .transpose()
            .context("nodes cannot be given a share of a processor each")?;
        let mut cluster = Cluster::new(&self.binary);
        cluster.options.clone_from(&self.options);
        // All nodes start at once, as those that a file or a set of machines describes do. So none
        // has copies that were meant for a smaller cluster.
        let names: Vec<String> = (0..nodes).map(|n| format!("n{n}")).collect();
        cluster.start_together(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names {
            confine(&cluster, &mut confined, name)?;
        }
        cluster.await_safe(nodes);
        cluster.change("n0", &["rebalance", "--move-rate", &self.move_rate]);
        Ok((confined, cluster))
    }

    /// Begins the load, and measures it while nothing else happens.
    fn steady(&self, cluster: &Cluster, what: &str) -> Result<Steady> {
        let share = self
            .share
            .map(|thousandths| thousandths as f64 / 1e3 * cluster.nodes.len() as f64);
        let used = || {
            cluster
                .nodes
                .values()
                .map(|node| processor(node.pid()))
                .sum::<Duration>()
                .as_secs_f64()
                / share.unwrap_or(1.0)
        };
        let load = match (self.of == "processor", share) {
            (false, _) => Load::Operations(self.load),
            (true, Some(_)) => Load::Processor(self.load, &used),
            (true, None) => {
                bail!("--of processor needs nodes with a share of a processor each; add --share")
            }
        };
        let steady = Steady::start(&self.fronts(cluster), self.bytes, self.connections(), &load);
        let (before, began) = (used(), Instant::now());
        std::thread::sleep(QUIET);
        let part = 100.0 * (used() - before) / began.elapsed().as_secs_f64();
        let of_share = share
            .map(|_| format!(", with {part:.0} % of the processor time that nodes have"))
            .unwrap_or_default();
        println!(
            "{what}: {} operations a second of {}, {} connections{of_share}",
            steady.rate(),
            steady.capacity(),
            self.connections
        );
        println!("{}\n{}", steady::head(), steady.phase("before").row());
        Ok(steady)
    }

    /// In a virtual machine, the host hands out memory page by page if it was never used or was
    /// given back. Some hosts do so more slowly than a copy is made. Memory that was used a moment
    /// ago is there.
    fn warm_memory(&self) {
        if self.warm == 0 {
            return;
        }
        let began = Instant::now();
        let mut memory = vec![0_u8; self.warm];
        memory.chunks_mut(4096).for_each(|page| page[0] = 1);
        drop(std::hint::black_box(memory));
        let (bytes, seconds) = (self.warm as f64 / 1e9, began.elapsed().as_secs_f64());
        println!(
            "{bytes:.2} GB of memory were used and given back, at {:.2} GB/s",
            bytes / seconds
        );
    }

    fn fronts(&self, cluster: &Cluster) -> EntryPoints {
        let (speech, addresses) = if self.cluster_clients {
            (Speech::Redirected, cluster.resp_cluster_addresses())
        } else {
            (Speech::Resp, cluster.resp_addresses())
        };
        EntryPoints { speech, addresses }
    }
}

/// A node joins, with its share of a processor.
fn join(cluster: &mut Cluster, confined: &mut Option<Confined>, name: &str) -> Result<()> {
    cluster.join(name);
    confine(cluster, confined, name)
}

fn confine(cluster: &Cluster, confined: &mut Option<Confined>, name: &str) -> Result<()> {
    match (confined, cluster.nodes.get(name)) {
        (Some(confined), Some(node)) => confined
            .confine(node.pid())
            .with_context(|| format!("{name} cannot be given its share of a processor")),
        _ => Ok(()),
    }
}

/// Measures, and prints.
///
/// # Errors
/// A rival is not installed or does not do what it should, or nodes cannot be given a share of a
/// processor.
pub fn run(binary: &str, plan: Plan) -> Result<()> {
    let plan = &Plan {
        binary: binary.to_owned(),
        ..plan
    };
    if plan.wants("join") {
        joins(plan)?;
    }
    for rival in &plan.beside {
        rivals::run(*rival, plan)?;
    }
    if plan.wants("repair") {
        unloaded(plan)?;
    }
    if plan.wants("drain") || plan.wants("restart") {
        five(plan)?;
    }
    Ok(())
}

/// The least that must be copied for a newcomer: its share of all copies.
fn least(plan: &Plan, nodes: u64) -> f64 {
    stored_bytes(plan.bytes) as f64 * 2.0 / nodes as f64
}

fn joins(plan: &Plan) -> Result<()> {
    let (mut confined, mut cluster) = plan.cluster(3)?;
    fill(&plan.fronts(&cluster), plan.bytes, plan.connections());
    let steady = plan.steady(&cluster, "three nodes")?;
    let (before, version) = (copied(&cluster), tables(&cluster));
    // The cost of one more process on this machine is not the cost of a move.
    cluster.change("n0", &["rebalance", "pause"]);
    join(&mut cluster, &mut confined, "n3")?;
    cluster.await_safe(4);
    println!("{}", steady.phase("a fourth node comes").row());
    std::thread::sleep(QUIET);
    println!("{}", steady.phase("a fourth node is there, empty").row());
    let began = Instant::now();
    cluster.change("n0", &["rebalance", "resume"]);
    if let Some(seconds) = plan.turns {
        by_turns(&cluster, &steady, Duration::from_secs(seconds));
    } else {
        await_share(&cluster, "n3", 4);
        println!("{}", steady.phase("it gets its share").row());
    }
    let took = began.elapsed().as_secs_f64();
    let (moved, tables) = (copied(&cluster) - before, tables(&cluster) - version);
    std::thread::sleep(QUIET);
    println!("{}", steady.phase("after").row());
    println!(
        "the fourth node has its share after {took:.1} s: {:.3} GB were copied, \
             {:.3} times the least possible; {tables} tables",
        moved / 1e9,
        moved / least(plan, 4)
    );
    let lost = steady.finish();
    println!("{lost} acknowledged writes lost\n");
    Ok(())
}

/// The fourth node gets its share for a while and nothing for as long, again and again. If the
/// machine changes its speed meanwhile, both kinds of turns see it.
fn by_turns(cluster: &Cluster, steady: &Steady, turn: Duration) {
    let (mut moves, mut rests) = (Counted::new(), Counted::new());
    let has_all = || has_share(cluster, "n3", 4);
    // The cost of looking is so the same in both kinds of turns.
    let passes = || {
        let began = Instant::now();
        until(
            SELDOM,
            || began.elapsed() > turn || has_all(),
            || "a turn does not end".into(),
        );
    };
    let under_way = || {
        let moves = cluster.report("n0", "/moves")["moves"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        moves
            .iter()
            .any(|m| m["stage"] != "waiting" && m["stage"] != "no room")
    };
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < 2 * EVENT_MAX, "n3 does not get its share");
        passes();
        moves.add(steady.phase("it gets its share, by turns"));
        if has_all() {
            break;
        }
        cluster.change("n0", &["rebalance", "pause"]);
        until(
            SELDOM,
            || !under_way(),
            || "what had begun does not end".into(),
        );
        drop(steady.phase("what had begun ends"));
        if has_all() {
            break;
        }
        passes();
        rests.add(steady.phase("nothing moves, by turns"));
        cluster.change("n0", &["rebalance", "resume"]);
    }
    println!("{}\n{}", moves.row(), rests.row());
    let rest = rests.p99_of_a_second();
    if rest > 0.0 {
        println!(
            "p99 of the median second: {:.2} times as long while something moves",
            moves.p99_of_a_second() / rest
        );
    } else {
        println!("the node had its share before anything rested; choose shorter --turns");
    }
}

fn unloaded(plan: &Plan) -> Result<()> {
    let (mut confined, mut cluster) = plan.cluster(3)?;
    fill(&plan.fronts(&cluster), plan.bytes, plan.connections());
    await_quiet(&cluster);
    plan.warm_memory();
    let (before, began) = (copied(&cluster), SystemTime::now());
    join(&mut cluster, &mut confined, "n3")?;
    await_share(&cluster, "n3", 4);
    let first = told(&cluster, began, |e| e["stage"] == "copying")
        .into_iter()
        .min();
    let last = told(&cluster, began, |e| e["stage"] == "in_sync")
        .into_iter()
        .max();
    let rate = Rate::new(copied(&cluster) - before, first, last)?;
    println!("without load: a fourth node gets {rate}");
    drop(cluster);
    drop(confined);
    let (_confined, mut cluster) = plan.cluster(4)?;
    fill(&plan.fronts(&cluster), plan.bytes, plan.connections());
    await_quiet(&cluster);
    plan.warm_memory();
    let victim = cluster.by_age()[1].clone();
    let began = SystemTime::now();
    cluster.kill(&victim);
    let before = copied(&cluster);
    let asked = cluster.by_age()[0].clone();
    cluster.eventually("safe again", |c| {
        std::thread::sleep(LOOK);
        let status = c.status(&asked).unwrap_or_default();
        status["members"].as_array().is_some_and(|m| m.len() == 3) && status["safe"] == true
    });
    let first = told(&cluster, began, |e| e["stage"] == "copying")
        .into_iter()
        .min();
    let last = told(&cluster, began, |e| e["kind"] == "repaired")
        .into_iter()
        .max();
    let rate = Rate::new(copied(&cluster) - before, first, last)?;
    let took = last
        .and_then(|last| last.duration_since(began).ok())
        .unwrap_or_default()
        .as_secs_f64();
    println!(
        "without load: one of four is killed, and all is safe again after {took:.1} s; {rate}\n"
    );
    Ok(())
}

/// Bytes copied in a time, from the coordinator's events: to look often would cost the processor
/// time of the copying.
struct Rate {
    bytes: f64,
    seconds: f64,
}

impl Rate {
    fn new(bytes: f64, first: Option<SystemTime>, last: Option<SystemTime>) -> Result<Self> {
        let (first, last) = first
            .zip(last)
            .context("no event tells of what was copied")?;
        Ok(Self {
            bytes,
            seconds: last.duration_since(first)?.as_secs_f64(),
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, seconds } = self;
        write!(
            f,
            "{:.2} GB in {seconds:.2} s from the first copy that began \
             to the last that counts: {:.2} GB/s",
            bytes / 1e9,
            bytes / 1e9 / seconds
        )
    }
}

/// The times at which the coordinator told of events of this kind since then.
fn told(cluster: &Cluster, since: SystemTime, which: impl Fn(&Value) -> bool) -> Vec<SystemTime> {
    let coordinator = cluster.by_age()[0].clone();
    let report = cluster.report(&coordinator, "/events");
    let events = report["events"].as_array().cloned().unwrap_or_default();
    let times = events
        .iter()
        .filter(|e| which(e))
        .filter_map(|e| humantime::parse_rfc3339(e["at"].as_str()?).ok());
    // Events carry milliseconds, rounded down.
    times
        .filter(|at| *at + Duration::from_millis(1) > since)
        .collect()
}

fn five(plan: &Plan) -> Result<()> {
    let (mut confined, mut cluster) = plan.cluster(5)?;
    fill(&plan.fronts(&cluster), plan.bytes, plan.connections());
    let steady = plan.steady(&cluster, "five nodes")?;
    if plan.wants("drain") {
        let began = Instant::now();
        cluster.change("n0", &["drain", "n2"]);
        println!("{}", steady.phase("one of five is drained").row());
        println!("it was empty after {:.1} s", began.elapsed().as_secs_f64());
        cluster.change("n0", &["drain", "n2", "--cancel"]);
        await_share(&cluster, "n2", 5);
        println!("{}", steady.phase("it is filled again").row());
    }
    if plan.wants("restart") {
        restarts(plan, &mut cluster, &mut confined, &steady)?;
    }
    let lost = steady.finish();
    println!("{lost} acknowledged writes lost\n");
    Ok(())
}

/// Restarts each node once all is safe without the previous one: the youngest first and the
/// coordinator last, as `doyen restart-plan` says.
fn restarts(
    plan: &Plan,
    cluster: &mut Cluster,
    confined: &mut Option<Confined>,
    steady: &Steady,
) -> Result<()> {
    for round in 1..=plan.restarts {
        let began = Instant::now();
        let (mut leaving, mut repairing) = (Duration::ZERO, Duration::ZERO);
        for name in cluster.by_age().into_iter().rev() {
            let began = Instant::now();
            let ended = cluster.leave(&name);
            assert!(ended.success(), "{name} ends with {ended}");
            leaving = leaving.max(began.elapsed());
            steady.redirect(&plan.fronts(cluster).addresses);
            join(cluster, confined, &name)?;
            let began = Instant::now();
            let whole = |s: &Value| {
                s["safe"] == true && s["members"].as_array().is_some_and(|m| m.len() == 5)
            };
            let all_whole = || {
                cluster
                    .nodes
                    .keys()
                    .all(|name| cluster.status(name).as_ref().is_some_and(whole))
            };
            until(LOOK, all_whole, || {
                format!("it is not safe again without {name}")
            });
            repairing = repairing.max(began.elapsed());
            steady.redirect(&plan.fronts(cluster).addresses);
        }
        println!(
            "{}  {:.0} s; one left in {:.1} s at most, and all was safe {:.1} s after it was back",
            steady.phase(&format!("all are restarted, {round}")).row(),
            began.elapsed().as_secs_f64(),
            leaving.as_secs_f64(),
            repairing.as_secs_f64(),
        );
    }
    Ok(())
}

/// Bytes of snapshots that the living nodes have sent.
fn copied(cluster: &Cluster) -> f64 {
    let of = |text: String| {
        text.lines().find_map(|l| {
            l.strip_prefix("doyen_snapshot_bytes_total")?
                .trim()
                .parse::<f64>()
                .ok()
        })
    };
    cluster
        .nodes
        .values()
        .filter_map(|p| of(p.http("/metrics").ok()?))
        .sum()
}

/// The number of tables so far.
fn tables(cluster: &Cluster) -> u64 {
    cluster.report("n0", "/table")["version"]
        .as_u64()
        .unwrap_or_default()
}

/// Waits until the cluster sees no load: it remembers the load of partitions for a while, and makes
/// tables seldom meanwhile.
fn await_quiet(cluster: &Cluster) {
    let asked = || {
        let loads = cluster.report("n0", "/loads");
        let partitions = loads["partitions"].as_array().into_iter().flatten();
        partitions
            .map(|p| {
                p["reads"].as_u64().unwrap_or_default() + p["writes"].as_u64().unwrap_or_default()
            })
            .sum::<u64>()
    };
    until(
        SELDOM,
        || asked() < ASKED_LITTLE,
        || format!("the cluster still sees {} operations a second", asked()),
    );
}
