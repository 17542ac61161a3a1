//! What a second data thread gives a node: it must cost nothing if one is enough, and it shall help
//! if one is not.
//!
//! ```text
//!   shared   three members and a generator share the cores there are:
//!            several threads must not cost what one does not
//!   bound    one node, asked as much as it can answer by a generator that hardly works:
//!            what its threads are worth
//! ```
//! Both run with one data thread and with several in turn. The two runs of a pair are seconds
//! apart, because other programs use the machine too. The ratio within a pair is what counts.

mod bound;

use crate::cluster::Cluster;
use crate::procfs;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// What to measure, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program to measure.
    pub binary: String,
    /// The number of data threads to compare with one.
    pub threads: u8,
    /// Pairs of runs.
    pub rounds: usize,
    /// Seconds of each load.
    pub seconds: u64,
    /// The name of the only part to measure.
    pub only: Option<String>,
}

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Operations a second.
    throughput: f64,
    /// Processor time of all members and of the generator, in microseconds an operation.
    members: f64,
    generator: f64,
}

/// The same load with one thread and with several, in pairs.
#[derive(Debug, Default)]
struct Pairs(Vec<[Measured; 2]>);

impl Pairs {
    fn median(&self, of: impl Fn(&[Measured; 2]) -> f64) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn print(&self, load: &str, threads: u8) {
        let ratios: Vec<f64> = self
            .0
            .iter()
            .map(|[one, several]| several.throughput / one.throughput)
            .collect();
        let (least, most) = ratios
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(l, m), r| (l.min(*r), m.max(*r)));
        println!(
            "{load:<28} 1 thread {:>9.0}/s, members {:>6.2} us, generator {:>6.2} us | \
             {threads} threads {:>9.0}/s, {:>6.2} us, {:>6.2} us | \
             ratio {:.2} ({least:.2} to {most:.2})",
            self.median(|p| p[0].throughput),
            self.median(|p| p[0].members),
            self.median(|p| p[0].generator),
            self.median(|p| p[1].throughput),
            self.median(|p| p[1].members),
            self.median(|p| p[1].generator),
            self.median(|p| p[1].throughput / p[0].throughput),
        );
    }
}

/// Measures, and prints a line a load.
pub fn run(plan: &Plan) {
    let wanted = |name: &str| plan.only.as_deref().is_none_or(|only| only == name);
    if wanted("shared") {
        shared(plan);
    }
    if wanted("bound") {
        bound::run(plan);
    }
}

/// Loads of `doyen bench`: what they are called, and their flags.
const LOADS: &[(&str, &[&str])] = &[
    (
        "RESP get, 50 connections",
        &["--cluster", "--operation", "get", "--connections", "50"],
    ),
    (
        "RESP set, 50 connections",
        &["--cluster", "--operation", "set", "--connections", "50"],
    ),
    (
        "RESP get, 50 by 16",
        &[
            "--cluster",
            "--operation",
            "get",
            "--connections",
            "50",
            "--in-flight",
            "16",
            "--batch",
        ],
    ),
    (
        "RESP set, 50 by 16",
        &[
            "--cluster",
            "--operation",
            "set",
            "--connections",
            "50",
            "--in-flight",
            "16",
            "--batch",
        ],
    ),
    (
        "RESP mixed, the plain port",
        &["--operation", "mixed", "--connections", "50"],
    ),
    (
        "native get, 512",
        &["--native", "--operation", "get", "--connections", "512"],
    ),
    (
        "native set, 512",
        &["--native", "--operation", "set", "--connections", "512"],
    ),
];

fn shared(plan: &Plan) {
    let mut pairs: Vec<Pairs> = LOADS.iter().map(|_| Pairs::default()).collect();
    for round in 0..plan.rounds {
        let mut both = [Vec::new(), Vec::new()];
        // The first run finds the machine as the last round left it, so the two take turns.
        for place in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let threads = [1, plan.threads][place].to_string();
            let mut cluster = Cluster::new(&plan.binary);
            cluster.options.extend([
                "--threads".to_owned(),
                threads,
                "--members-min".to_owned(),
                "3".to_owned(),
            ]);
            (0..3).for_each(|n| cluster.join(&format!("n{n}")));
            cluster.await_safe(3);
            bench(&cluster, LOADS[0].1, 1, true);
            both[place] = LOADS
                .iter()
                .map(|(_, flags)| bench(&cluster, flags, plan.seconds, false))
                .collect();
        }
        let [one, several] = both;
        for ((pair, one), several) in pairs.iter_mut().zip(one).zip(several) {
            pair.0.push([one, several]);
        }
    }
    println!(
        "three members and the generator share the machine ({} rounds of {} s)",
        plan.rounds, plan.seconds
    );
    for ((name, _), pairs) in LOADS.iter().zip(&pairs) {
        pairs.print(name, plan.threads);
    }
}

/// One run of `doyen bench`.
fn bench(cluster: &Cluster, flags: &[&str], seconds: u64, fill: bool) -> Measured {
    let first = cluster.nodes.values().next().expect("a node runs");
    let secret = cluster.secret_file().display().to_string();
    let (data, cluster_port, plain) = (
        first.ready.data.to_string(),
        first.ready.resp_cluster.to_string(),
        first.ready.resp.to_string(),
    );
    let seconds_text = seconds.to_string();
    let mut words = vec![
        "bench",
        "--json",
        "--seconds",
        &seconds_text,
        "--warmup",
        "0.5",
    ];
    words.extend(flags);
    if flags.contains(&"--native") {
        words.extend(["--data", &data, "--secret-file", &secret]);
    } else {
        words.extend([
            "--resp",
            if flags.contains(&"--cluster") {
                &cluster_port
            } else {
                &plain
            },
        ]);
    }
    if fill {
        words.push("--fill");
    }
    let pids: Vec<u32> = cluster
        .nodes
        .values()
        .map(crate::process::Process::pid)
        .collect();
    let spent = || {
        pids.iter()
            .map(|pid| procfs::processor(*pid))
            .sum::<Duration>()
    };
    let (before, children) = (spent(), children());
    let output = cluster.command(&words);
    let (members, generator) = (spent() - before, self::children().saturating_sub(children));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let (throughput, measured) = (
        report["throughput"].as_f64().unwrap_or(0.0),
        report["operations"].as_f64().unwrap_or(0.0),
    );
    assert!(
        throughput > 0.0,
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // The processor time includes the warm-up, so operations are counted as if it had the same
    // pace.
    let operations = measured * (seconds as f64 + 0.5) / seconds as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / operations;
    Measured {
        throughput,
        members: each(members),
        generator: each(generator),
    }
}

/// Processor time of the children that have ended.
fn children() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // cutime and cstime, in ticks of 10 ms. They stand after the name, which may hold anything and
    // ends at the last parenthesis.
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Duration::from_millis((ticks(13) + ticks(14)) * 10)
}

/// The cluster-aware ports of a node's data threads.
fn cluster_ports(cluster: &Cluster, name: &str) -> Vec<SocketAddr> {
    let status = cluster.status(name).expect("the node answers");
    let member = status["members"]
        .as_array()
        .and_then(|all| all.iter().find(|m| m["name"] == name))
        .expect("it is a member");
    let threads = member["threads"].as_array().expect("threads are told");
    threads
        .iter()
        .map(|t| {
            t["resp_cluster"]
                .as_str()
                .and_then(|a| a.parse().ok())
                .expect("an address")
        })
        .collect()
}
