//! Measures the figures of docs/performance.md on this machine. `figures --help` lists them, and
//! the `Justfile` has the commands.
//!
//! Failover is judged for each partition by its longest gap between two acknowledged writes. One
//! connection writes to a handful of partitions in turn, so that a partition that waits delays few
//! others.

use clap::{Args, Parser, Subcommand, ValueEnum};
use doyen_placement::hash::slot;
use doyen_tests::bench::systems::Kind;
use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Partitions of the measured clusters.
const PARTITIONS: usize = 64;
/// Idle connections to measure, and the megabytes that they, or an idle node, may take.
const IDLE_CONNECTIONS: usize = 1_000;
const IDLE_MB: f64 = 20.0;
/// How long a writer waits for an answer before it connects again.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// Measures what Doyen does on this machine, and prints the figures
#[derive(Debug, Parser)]
#[command(name = "figures")]
struct Options {
    #[command(subcommand)]
    what: What,
    /// The program to measure: cargo build --release -p doyen-cli
    #[arg(
        long,
        value_name = "PATH",
        default_value = "target/release/doyen",
        global = true
    )]
    binary: String,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How long writes stall when a node is killed (SIGKILL)
    Kill(Failover),
    /// How long writes stall when a node is stopped (SIGSTOP), as if its machine hung
    Stop(Failover),
    /// How long writes stall when a node leaves (SIGTERM)
    Term(Failover),
    /// How long three fresh nodes take from the start to the first acknowledged write
    Start {
        /// Number of runs
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
        runs: u64,
    },
    /// How long a fourth node takes to join a cluster with 100 MB
    Join {
        /// Number of runs
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
        runs: u64,
    },
    /// Processor time and memory of an idle node, and of idle connections
    Idle,
    /// Memory used by each key
    Bytes {
        /// Number of keys
        #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = at_least_one())]
        keys: u64,
    },
    /// What a larger cluster costs
    Scale {
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
    },
    /// The longest stalls while a cluster grows, expires, copies and drops (some minutes, 6 GB)
    Stall {
        /// Number of keys when a node joins, and when all are dropped
        #[arg(long, value_name = "N", default_value_t = 10_000_000)]
        keys: u64,
        /// Number of keys that are written during the measurement
        #[arg(long, value_name = "N", default_value_t = 3_000_000)]
        grow: u64,
        /// Number of keys that expire at the same time
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        expire: u64,
        /// Keys written each second
        #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = at_least_one())]
        rate: u64,
        /// Operations of the probe each second
        #[arg(
            long,
            value_name = "N",
            default_value_t = 1_000,
            value_parser = clap::value_parser!(u32).range(1..)
        )]
        probes: u32,
        /// Flags for every node
        #[arg(
            long,
            value_name = "FLAGS",
            default_value = "",
            allow_hyphen_values = true
        )]
        options: String,
    },
    /// What readers and writers notice while a node joins, is drained, dies, or all are restarted
    /// one after the other (some minutes, 4 GB)
    Move {
        /// Bytes of values, of 100 bytes to 10 KB each
        #[arg(
            long,
            value_name = "N",
            default_value_t = 1_000_000_000,
            value_parser = at_least_one()
        )]
        bytes: u64,
        /// Number of connections
        #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one())]
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
            default_value = "",
            allow_hyphen_values = true
        )]
        options: String,
    },
}

#[derive(Debug, Args)]
struct Failover {
    /// Number of runs: 20 (stop, term: 5)
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    runs: Option<u64>,
    /// Which node is hurt
    #[arg(long, value_name = "WHO", value_enum, default_value = "coordinator")]
    victim: Victim,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Victim {
    /// The oldest member
    Coordinator,
    /// The member between the oldest and the youngest
    Middle,
    /// The member that joined last
    Youngest,
}

fn rival(text: &str) -> Result<Kind, String> {
    [Kind::Redis, Kind::Hazelcast]
        .into_iter()
        .find(|kind| kind.id() == text)
        .ok_or_else(|| "choose from redis and hazelcast".into())
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// Splits a text at its blanks.
fn words(options: &str) -> Vec<String> {
    options.split_whitespace().map(str::to_owned).collect()
}

fn main() -> ExitCode {
    let Options { what, binary } = doyen_cli::parse();
    if !std::path::Path::new(&binary).is_file() {
        eprintln!(
            "figures: {binary} does not exist; build it with \
             cargo build --release -p doyen-cli, or name another with --binary"
        );
        return ExitCode::from(2);
    }
    match what {
        What::Kill(plan) => failover(&binary, Harm::Kill, &plan),
        What::Stop(plan) => failover(&binary, Harm::Stop, &plan),
        What::Term(plan) => failover(&binary, Harm::Term, &plan),
        What::Start { runs } => start(&binary, runs),
        What::Join { runs } => join(&binary, runs),
        What::Idle => idle(&binary),
        What::Bytes { keys } => bytes(&binary, keys as usize),
        What::Scale {
            nodes,
            seconds,
            changes,
            partitions,
            verbose,
        } => doyen_tests::scale::run(&doyen_tests::scale::Plan {
            binary,
            sizes: nodes,
            idle: Duration::from_secs(seconds),
            changes,
            verbose,
            partitions: partitions.map(|p| p.to_string()),
        }),
        What::Stall {
            keys,
            grow,
            expire,
            rate,
            probes,
            options,
        } => doyen_tests::stall::run(&doyen_tests::stall::Plan {
            binary,
            grow,
            expire,
            drop: keys,
            rate,
            probes,
            options: words(&options),
        }),
        What::Move {
            bytes,
            connections,
            load,
            of,
            restarts,
            only,
            beside,
            move_rate,
            cluster_clients,
            share,
            turns,
            warm,
            options,
        } => {
            let connections = connections as usize;
            let options = words(&options);
            let plan = doyen_tests::moving::Plan {
                binary,
                bytes,
                connections,
                load,
                of_processor: of == "processor",
                restarts,
                only,
                beside,
                move_rate,
                cluster_clients,
                share,
                turns: turns.map(Duration::from_secs),
                warm,
                options,
            };
            if let Err(why) = doyen_tests::moving::run(&plan) {
                eprintln!("{why:#}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

// ---- failover

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Kill,
    Stop,
    Term,
}

/// The longest gap between acknowledged writes, by partition.
#[derive(Debug)]
struct Gaps {
    began: Instant,
    /// Microseconds since `began` of the last acknowledged write, and the longest gap.
    partitions: Vec<(AtomicU64, AtomicU64)>,
    stop: AtomicBool,
    unexpected: AtomicU64,
    /// The last acknowledged number of each key, and whether a later one is in doubt.
    acknowledged: Mutex<BTreeMap<String, (u64, bool)>>,
}

impl Gaps {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            partitions: (0..PARTITIONS)
                .map(|_| (AtomicU64::new(0), AtomicU64::new(0)))
                .collect(),
            stop: AtomicBool::new(false),
            unexpected: AtomicU64::new(0),
            acknowledged: Mutex::new(BTreeMap::new()),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn written(&self, partition: usize) {
        let now = self.now();
        let (last, longest) = &self.partitions[partition];
        let gap = now.saturating_sub(last.swap(now, Ordering::Relaxed));
        longest.fetch_max(gap, Ordering::Relaxed);
    }

    /// From here on gaps count.
    fn begin(&self) {
        for (_, longest) in &self.partitions {
            longest.store(0, Ordering::Relaxed);
        }
    }

    /// The gaps in milliseconds. A gap that has not ended counts with its length so far.
    fn milliseconds(&self) -> Vec<f64> {
        let now = self.now();
        let gap = |(last, longest): &(AtomicU64, AtomicU64)| {
            longest
                .load(Ordering::Relaxed)
                .max(now.saturating_sub(last.load(Ordering::Relaxed))) as f64
                / 1_000.0
        };
        self.partitions.iter().map(gap).collect()
    }
}

/// A key of each partition.
fn keys() -> Vec<String> {
    let mut keys = vec![String::new(); PARTITIONS];
    let mut missing = PARTITIONS;
    for i in 0u32.. {
        let key = format!("key-{i}");
        let partition = usize::from(slot(key.as_bytes())) * PARTITIONS / 16_384;
        if keys[partition].is_empty() {
            keys[partition] = key;
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    keys
}

/// Writes to these partitions in turn, through one of `addresses` that answers.
fn write(gaps: &Gaps, mine: &[(usize, String)], addresses: &[SocketAddr], first: usize) {
    let mut turn = first;
    let mut number = 0u64;
    let mut client = None;
    while !gaps.stop.load(Ordering::Relaxed) {
        for (partition, key) in mine {
            number += 1;
            let mut doubt = false;
            loop {
                if gaps.stop.load(Ordering::Relaxed) {
                    break;
                }
                if client.is_none() {
                    turn += 1;
                    client = Client::connect(addresses[turn % addresses.len()], ANSWER_MAX).ok();
                }
                let Some(open) = &mut client else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                match open.command(&[b"SET", key.as_bytes(), number.to_string().as_bytes()]) {
                    Ok(Reply::Simple(_)) => {
                        gaps.written(*partition);
                        let mut all = gaps
                            .acknowledged
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner);
                        all.insert(key.clone(), (number, false));
                        break;
                    }
                    Ok(_) => {
                        gaps.unexpected.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Err(_) => client = None,
                }
                // After an error, this number may have been written in spite of it.
                if !doubt {
                    doubt = true;
                    let mut all = gaps
                        .acknowledged
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    all.entry(key.clone()).or_default().1 = true;
                }
            }
        }
    }
}

fn failover(binary: &str, harm: Harm, plan: &Failover) {
    let runs = plan.runs.unwrap_or(if harm == Harm::Kill { 20 } else { 5 });
    let (mut worsts, mut lost) = (Vec::new(), 0);
    for run in 0..runs {
        let mut cluster = Cluster::of(binary, 3);
        let ages = cluster.by_age();
        let victim = match plan.victim {
            Victim::Coordinator => cluster.coordinator(),
            Victim::Middle => ages[1].clone(),
            Victim::Youngest => ages[2].clone(),
        };
        let others: Vec<SocketAddr> = cluster
            .nodes
            .iter()
            .filter(|(n, _)| **n != victim)
            .map(|(_, p)| p.ready.resp)
            .collect();
        let gaps = Arc::new(Gaps::new());
        let all: Vec<(usize, String)> = keys().into_iter().enumerate().collect();
        let writers: Vec<_> = all
            .chunks(2)
            .enumerate()
            .map(|(i, mine)| {
                let (gaps, mine, others) = (gaps.clone(), mine.to_vec(), others.clone());
                std::thread::spawn(move || write(&gaps, &mine, &others, i))
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        gaps.begin();
        match harm {
            Harm::Kill => cluster.kill(&victim),
            Harm::Stop => cluster.nodes.get_mut(&victim).expect("it runs").stop(),
            Harm::Term => {
                cluster.leave(&victim);
            }
        }
        let most = if harm == Harm::Stop { 8 } else { 4 };
        std::thread::sleep(Duration::from_secs(most));
        gaps.stop.store(true, Ordering::Relaxed);
        let mut measured = gaps.milliseconds();
        for writer in writers {
            let _ = writer.join();
        }
        let reader = cluster
            .nodes
            .keys()
            .find(|n| **n != victim)
            .expect("others run")
            .clone();
        let mut client = cluster.client(&reader);
        let all = gaps
            .acknowledged
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (key, (acknowledged, doubt)) in all.iter() {
            let found = match client.command(&[b"GET", key.as_bytes()]) {
                Ok(Reply::Bulk(value)) => {
                    String::from_utf8_lossy(&value).parse::<u64>().unwrap_or(0)
                }
                _ => 0,
            };
            if found != *acknowledged && !(*doubt && found > *acknowledged) {
                lost += 1;
            }
        }
        let longest = worst(&measured);
        println!(
            "run {run}: {victim} {harm:?}; longest gap of a partition {longest:.0} ms, \
             median partition {:.0} ms, {} refused",
            median(&mut measured),
            gaps.unexpected.load(Ordering::Relaxed)
        );
        worsts.push(longest);
    }
    let (typical, most, victim) = (median(&mut worsts), worst(&worsts), plan.victim);
    println!(
        "{harm:?} {victim:?}, {runs} runs: worst partition {typical:.0} ms at the median, \
         {most:.0} ms at worst; {lost} acknowledged writes lost"
    );
    let at = |share: f64| {
        worsts
            .get(((worsts.len() as f64 * share) as usize).min(worsts.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    println!(
        "longest gap: min {:.0}, p50 {:.0}, p90 {:.0}, p99 {:.0}, worst {most:.0} ms",
        at(0.0),
        at(0.5),
        at(0.9),
        at(0.99)
    );
    if harm == Harm::Kill {
        let holds = |is: bool| if is { "holds" } else { "DOES NOT HOLD" };
        println!(
            "p50 below 800 ms: {}; worst below 2 s: {}; nothing lost: {}",
            holds(typical < 800.0),
            holds(most < 2_000.0),
            holds(lost == 0)
        );
    }
}

// ---- start and join

fn start(binary: &str, runs: u64) {
    let mut times = Vec::new();
    for run in 0..runs {
        let mut cluster = Cluster::new(binary);
        let began = Instant::now();
        cluster.start_together(&["a", "b", "c"]);
        let first = loop {
            let reply = Client::connect(cluster.node("a").ready.resp, ANSWER_MAX)
                .and_then(|mut c| c.command(&[b"SET", b"a", b"1"]));
            if matches!(reply, Ok(Reply::Simple(_))) {
                break began.elapsed().as_secs_f64();
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "no write was acknowledged: {reply:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        println!("run {run}: first acknowledged write after {first:.2} s");
        times.push(first);
    }
    println!(
        "start of three fresh nodes to the first acknowledged write: median {:.2} s, worst {:.2} s",
        median(&mut times),
        worst(&times)
    );
}

/// Writes this many keys, pipelined.
fn fill(cluster: &Cluster, keys: usize, value: &[u8]) {
    let name = cluster.nodes.keys().next().expect("a node").clone();
    let mut client = cluster.client(&name);
    let batch = 256;
    for from in (0..keys).step_by(batch) {
        let to = (from + batch).min(keys);
        for i in from..to {
            client
                .send(&[b"SET", format!("key:{i:010}").as_bytes(), value])
                .expect("the node takes writes");
        }
        for _ in from..to {
            let reply = client.reply().expect("a reply");
            assert!(matches!(reply, Reply::Simple(_)), "{reply:?}");
        }
    }
}

fn join(binary: &str, runs: u64) {
    let mut times = Vec::new();
    for run in 0..runs {
        let mut cluster = Cluster::of(binary, 3);
        fill(&cluster, 100_000, &[b'v'; 1_000]);
        cluster.await_safe(3);
        let began = Instant::now();
        cluster.join("n3");
        // At first, `safe` says what was so without the newcomer. It counts only once the newcomer
        // holds its share.
        let (mut led, mut held, mut all) = (0, 0, 0);
        cluster.eventually("the newcomer's share", |c| {
            let Some(status) = c.status("n3") else {
                return false;
            };
            let table: serde_json::Value = c
                .node("n3")
                .http("/table")
                .ok()
                .and_then(|t| serde_json::from_str(&t).ok())
                .unwrap_or_default();
            let partitions = table["keyspaces"][0]["partitions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            led = partitions.iter().filter(|p| p["primary"] == "n3").count();
            held = partitions
                .iter()
                .filter(|p| {
                    p["backups"]
                        .as_array()
                        .is_some_and(|b| b.iter().any(|m| m == "n3"))
                })
                .count();
            all = partitions.len();
            status["safe"] == true && all > 0 && led >= all / 4 - 1 && led + held >= all / 2 - 1
        });
        let took = began.elapsed().as_secs_f64();
        println!("run {run}: safe after {took:.2} s; it leads {led} and backs up {held} of {all}");
        times.push(took);
    }
    println!(
        "a fourth node joins 100 MB until safe: median {:.2} s, worst {:.2} s",
        median(&mut times),
        worst(&times)
    );
}

// ---- idle and memory

/// Processor time in clock ticks, and resident kilobytes.
fn usage(pid: u32) -> (u64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may contain anything, utime and stime are the 12th and 13th fields.
    let after: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let field = |i: usize| {
        after
            .get(i)
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.split_whitespace().next()?.parse().ok());
    (field(11) + field(12), resident.unwrap_or(0))
}

fn idle(binary: &str) {
    let mut cluster = Cluster::new(binary);
    // With the default number of partitions.
    cluster.options.clear();
    for name in ["n0", "n1", "n2"] {
        cluster.join(name);
    }
    cluster.await_safe(3);
    std::thread::sleep(Duration::from_secs(2));
    let before: BTreeMap<String, u64> = cluster
        .nodes
        .iter()
        .map(|(n, p)| (n.clone(), usage(p.pid()).0))
        .collect();
    let span = Duration::from_secs(20);
    std::thread::sleep(span);
    for (name, process) in &cluster.nodes {
        let (ticks, resident) = usage(process.pid());
        // Linux counts processor time in hundredths of a second on every machine.
        let share = (ticks - before[name]) as f64 / 100.0 / span.as_secs_f64() * 100.0;
        println!(
            "idle {name}: {share:.2} % of a core, {:.1} MB resident",
            resident as f64 / 1024.0
        );
    }
    let holds = |is: bool| if is { "holds" } else { "DOES NOT HOLD" };
    let most = cluster
        .nodes
        .values()
        .map(|p| usage(p.pid()).1)
        .max()
        .unwrap_or(0) as f64
        / 1024.0;
    println!(
        "an idle node below {IDLE_MB} MB: {} ({most:.1} MB)",
        holds(most < IDLE_MB)
    );
    let (node, resident) = (cluster.node("n0"), || {
        usage(cluster.node("n0").pid()).1 as f64 / 1024.0
    });
    let before = resident();
    let mut clients = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        let mut client =
            Client::connect(node.ready.resp, ANSWER_MAX).expect("a node takes clients");
        client.command(&[b"PING"]).expect("a node answers");
        clients.push(client);
    }
    std::thread::sleep(Duration::from_secs(1));
    let more = resident() - before;
    println!(
        "{IDLE_CONNECTIONS} idle connections below {IDLE_MB} MB more: {} ({more:.1} MB)",
        holds(more < IDLE_MB)
    );
}

fn bytes(binary: &str, keys: usize) {
    let mut cluster = Cluster::new(binary);
    cluster.options.clear();
    for name in ["n0", "n1"] {
        cluster.join(name);
    }
    cluster.await_safe(2);
    let resident = |c: &Cluster| c.nodes.values().map(|p| usage(p.pid()).1).sum::<u64>() * 1024;
    let before = resident(&cluster);
    fill(&cluster, keys, &[b'v'; 100]);
    cluster.await_safe(2);
    let grown = resident(&cluster) - before;
    let copies = keys as u64 * 2;
    println!(
        "{keys} keys of 14 bytes with values of 100 bytes, one backup: \
         {:.0} bytes per key and copy (resident, tails included)",
        grown as f64 / copies as f64
    );
}
