//! What starts, joins, idle nodes and keys cost.

use super::fill::insert;
use super::stats::{typical, worst};
use super::{await_share, holding, verdict};
use crate::cluster::Cluster;
use crate::procfs;
use crate::resp::{Client, Reply};
use std::time::{Duration, Instant};

/// Idle connections to measure, and the megabytes that they, or an idle node, may take.
const IDLE_CONNECTIONS: usize = 1_000;
const IDLE_MB: f64 = 20.0;
/// How long an idle cluster is measured.
const IDLE: Duration = Duration::from_secs(20);
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// How long three fresh nodes take from the start to the first acknowledged write.
pub fn start(binary: &str, runs: u64) {
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
        typical(&times),
        worst(&times)
    );
}

/// How long a fourth node takes to join a cluster with 100 MB.
pub fn join(binary: &str, runs: u64) {
    let mut times = Vec::new();
    for run in 0..runs {
        let mut cluster = Cluster::of(binary, 3);
        insert(&cluster.resp_addresses(), 0..100_000, 1_000, None, None);
        cluster.await_safe(3);
        let began = Instant::now();
        cluster.join("n3");
        await_share(&cluster, "n3", 4);
        let took = began.elapsed().as_secs_f64();
        let part = holding(&cluster, "n3").unwrap_or_default() * 100.0;
        println!("run {run}: safe after {took:.2} s; it holds {part:.0} % of all copies");
        times.push(took);
    }
    println!(
        "a fourth node joins 100 MB until safe: median {:.2} s, worst {:.2} s",
        typical(&times),
        worst(&times)
    );
}

/// Resident megabytes of a node.
fn resident_mb(cluster: &Cluster, name: &str) -> f64 {
    procfs::memory(cluster.node(name).pid()).0 as f64 / f64::from(1 << 20)
}

/// Processor time and memory of an idle node, and of idle connections.
pub fn idle(binary: &str) {
    let mut cluster = Cluster::new(binary);
    // With the default number of partitions.
    cluster.options.clear();
    let names = ["n0", "n1", "n2"];
    names.iter().for_each(|name| cluster.join(name));
    cluster.await_safe(3);
    std::thread::sleep(Duration::from_secs(2));
    let spent = |name: &&str| procfs::processor(cluster.node(name).pid());
    let before: Vec<Duration> = names.iter().map(spent).collect();
    std::thread::sleep(IDLE);
    let mut most = 0.0_f64;
    for (name, before) in names.iter().zip(before) {
        let share = (spent(name) - before).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
        let resident = resident_mb(&cluster, name);
        println!("idle {name}: {share:.2} % of a core, {resident:.1} MB resident");
        most = most.max(resident);
    }
    println!(
        "an idle node below {IDLE_MB} MB: {} ({most:.1} MB)",
        verdict(most < IDLE_MB)
    );
    let before = resident_mb(&cluster, "n0");
    let resp = cluster.node("n0").ready.resp;
    let connect = |_| {
        let mut client = Client::connect(resp, ANSWER_MAX).expect("a node takes clients");
        client.command(&[b"PING"]).expect("a node answers");
        client
    };
    let clients: Vec<Client> = (0..IDLE_CONNECTIONS).map(connect).collect();
    std::thread::sleep(Duration::from_secs(1));
    let more = resident_mb(&cluster, "n0") - before;
    drop(clients);
    println!(
        "{IDLE_CONNECTIONS} idle connections below {IDLE_MB} MB more: {} ({more:.1} MB)",
        verdict(more < IDLE_MB)
    );
}

/// Memory used by each key.
pub fn bytes(binary: &str, keys: u64) {
    let mut cluster = Cluster::new(binary);
    cluster.options.clear();
    let names = ["n0", "n1"];
    names.iter().for_each(|name| cluster.join(name));
    cluster.await_safe(2);
    let resident = || {
        names
            .map(|name| resident_mb(&cluster, name))
            .iter()
            .sum::<f64>()
    };
    let before = resident();
    insert(&cluster.resp_addresses()[..1], 0..keys, 100, None, None);
    cluster.await_safe(2);
    let grown = (resident() - before) * f64::from(1 << 20);
    println!(
        "{keys} keys of 16 bytes with values of 100 bytes, one backup: \
         {:.0} bytes per key and copy (resident, tails included)",
        grown / (keys * 2) as f64
    );
}
