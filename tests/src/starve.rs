//! Which members are taken for dead although none died, in a cluster under a light load while other
//! processes want every core.

use crate::cluster::Cluster;
use crate::procfs;
use crate::resp::{Client, Reply};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients, and how many writes a second each of them makes.
const CLIENTS: u32 = 4;
const WRITES_A_SECOND: u32 = 25;
/// How long a client waits before it connects again.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// What to measure, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program to measure.
    pub binary: String,
    /// The number of nodes.
    pub nodes: usize,
    /// How long to measure.
    pub span: Duration,
    /// Flags for every node.
    pub options: Vec<String>,
    /// The number of processes that only burn processor time, at the priority of this one.
    pub burners: usize,
}

/// Burns processor time until stdin ends: `figures spin`.
pub fn spin() {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        seen.store(true, Ordering::Relaxed);
    });
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// A process that ends with its stdin, also if this process is killed.
struct Burner(Child);

impl Burner {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program)
            .arg("spin")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("this program can be started again"))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug, Default)]
struct Heard {
    acknowledged: u64,
    errors: BTreeMap<String, u64>,
    /// Milliseconds of each operation.
    took: Vec<f64>,
}

fn client(id: u32, addresses: &[SocketAddr], stop: &AtomicBool) -> Heard {
    let (mut heard, mut open, mut turn) = (Heard::default(), None, id as usize);
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1) / WRITES_A_SECOND);
        if open.is_none() {
            turn += 1;
            open = Client::connect(addresses[turn % addresses.len()], ANSWER_MAX).ok();
        }
        let Some(connection) = &mut open else {
            continue;
        };
        number += 1;
        let began = Instant::now();
        let reply = connection.command(&[
            b"SET",
            format!("{id}-{}", number % 500).as_bytes(),
            number.to_string().as_bytes(),
        ]);
        heard.took.push(began.elapsed().as_secs_f64() * 1e3);
        match reply {
            Ok(Reply::Simple(_)) => heard.acknowledged += 1,
            Ok(other) => *heard.errors.entry(format!("{other:?}")).or_default() += 1,
            Err(e) => {
                *heard.errors.entry(e.kind().to_string()).or_default() += 1;
                open = None;
            }
        }
    }
    heard
}

/// The counters that matter, of one node.
fn counters(cluster: &Cluster, name: &str) -> BTreeMap<String, u64> {
    let text = cluster.node(name).http("/metrics").unwrap_or_default();
    let lines = text
        .lines()
        .filter(|l| l.starts_with("doyen_events_total") || l.starts_with("doyen_lease"));
    lines
        .filter_map(|l| l.rsplit_once(' '))
        .filter_map(|(n, v)| Some((n.to_owned(), v.parse::<f64>().ok()? as u64)))
        .collect()
}

/// Measures, and prints what was counted.
pub fn run(plan: &Plan) {
    let mut cluster = Cluster::new(&plan.binary);
    cluster.options.extend(plan.options.iter().cloned());
    for i in 0..plan.nodes {
        cluster.join(&format!("n{i}"));
    }
    cluster.await_safe(plan.nodes);
    let cluster = cluster;
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    let all = || {
        names
            .iter()
            .map(|n| (n.clone(), counters(&cluster, n)))
            .collect::<BTreeMap<_, _>>()
    };
    let waits = || {
        names
            .iter()
            .map(|n| procfs::threads(cluster.node(n).pid())["doyen-control"])
            .collect::<Vec<_>>()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let addresses = cluster.resp_addresses();
    let (before, waits_before, machine) = (all(), waits(), procfs::machine());
    let burners: Vec<Burner> = (0..plan.burners).map(|_| Burner::start()).collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let (addresses, stop) = (addresses.clone(), stop.clone());
            std::thread::spawn(move || client(id, &addresses, &stop))
        })
        .collect();
    std::thread::sleep(plan.span);
    stop.store(true, Ordering::Relaxed);
    let heard: Vec<Heard> = clients.into_iter().filter_map(|c| c.join().ok()).collect();
    let (waits_after, machine_after) = (waits(), procfs::machine());
    drop(burners);
    let after = all();

    let grown = |name: &str, counter: &str| {
        let of = |all: &BTreeMap<String, BTreeMap<String, u64>>| {
            all[name].get(counter).copied().unwrap_or(0)
        };
        of(&after).saturating_sub(of(&before))
    };
    // Every node hears of the same events, so the highest count is the true one.
    let event = |kind: &str| {
        names
            .iter()
            .map(|n| grown(n, &format!("doyen_events_total{{kind=\"{kind}\"}}")))
            .max()
            .unwrap_or(0)
    };
    let sum = |counter: &str| names.iter().map(|n| grown(n, counter)).sum::<u64>();
    let mut took: Vec<f64> = heard.iter().flat_map(|h| h.took.iter().copied()).collect();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| {
        took.get(((took.len() as f64 * share) as usize).min(took.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    let errors = heard.iter().flat_map(|h| &h.errors).fold(
        BTreeMap::<&str, u64>::new(),
        |mut sum, (text, n)| {
            *sum.entry(text).or_default() += n;
            sum
        },
    );
    let waited = |i: usize| {
        (waits_after[i].waited - waits_before[i].waited).as_secs_f64() / plan.span.as_secs_f64()
            * 100.0
    };
    let waited: Vec<String> = (0..names.len())
        .map(|i| format!("{:.1} %", waited(i)))
        .collect();
    let busy =
        (machine_after.0 - machine.0) as f64 / (machine_after.1 - machine.1).max(1) as f64 * 100.0;
    println!(
        "{} nodes {:?}, {} burners, {:.1} min, cores {busy:.0} % busy: \
         {} expelled, {} elections, {} times without a coordinator; leases ran out {} times, \
         {} ms in all; {} writes acknowledged, errors {errors:?}, a write took {:.1} ms at the \
         median, \
         {:.0} ms at p99, {:.0} ms at p99.9, {:.0} ms at \
         worst; control threads waited for a core {}",
        plan.nodes,
        plan.options,
        plan.burners,
        plan.span.as_secs_f64() / 60.0,
        event("expelled"),
        event("coordinator"),
        event("no_coordinator"),
        sum("doyen_lease_lapses_total"),
        sum("doyen_lease_lapsed_milliseconds_total"),
        heard.iter().map(|h| h.acknowledged).sum::<u64>(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        waited.join(" ")
    );
    println!(
        "{}",
        if event("expelled") == 0 {
            "holds: no living member was expelled"
        } else {
            "DOES NOT HOLD: a living member was expelled"
        }
    );
}
