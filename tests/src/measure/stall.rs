//! How long a cluster stalls because of what it does besides serving: growing, expiring, copying,
//! dropping.
//!
//! A probe reads and writes small keys at a low rate through every node. It measures from when each
//! operation was due, so all operations that were due during a stall show it. Each node also tells
//! the longest pass of its data thread, by the wall clock and by the thread's processor time: if
//! only the first is long, the system gave the core to other threads. Each event is measured beside
//! the same load without it.
//!
//! ```text
//!   quiet ─ new keys, the same keys again ─ keys expire ─ .. more keys ..
//!         ─ quiet ─ a node joins ─ quiet ─ twice the partitions ─ FLUSHALL
//! ```

mod probe;

use super::fill::insert;
use super::{EVENT_MAX, await_share, verdict};
use crate::cluster::Cluster;
use crate::procfs;
use crate::resp::Reply;
use clap::Args;
use probe::{Counted, Probe};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// No node may stall for longer.
const STALL_MAX: Duration = Duration::from_millis(20);
/// The bytes of every value but the probe's.
const VALUE_BYTES: usize = 100;
/// How long the probe runs alone.
const QUIET: Duration = Duration::from_secs(10);
/// How long the probe goes on after an event seems over, because some of its work is done later.
const AFTER: Duration = Duration::from_secs(8);
/// Keys that expire are written at least this long before they do.
const EXPIRE_AHEAD: Duration = Duration::from_secs(5);

/// What to measure, and how.
#[derive(Debug, Clone, Args)]
pub struct Plan {
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
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..))]
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
        value_delimiter = ' ',
        allow_hyphen_values = true
    )]
    options: Vec<String>,
}

/// What was measured during an event.
struct Seen {
    what: String,
    probe: Counted,
    passes: Passes,
}

/// The longest pass of any node, in seconds: by the wall clock, and by the thread's processor time.
#[derive(Debug, Clone, Copy, Default)]
struct Passes {
    wall: f64,
    own: f64,
}

/// What the nodes report about themselves. To read the longest passes resets them, so every reading
/// goes through here.
#[derive(Debug, Default)]
struct Looks {
    longest: Passes,
    /// Keys that expired at all nodes, at the last reading.
    expired: f64,
    snapshot_bytes: f64,
    divided: f64,
}

impl Looks {
    fn look(&mut self, cluster: &Cluster) {
        (self.expired, self.snapshot_bytes, self.divided) = (0.0, 0.0, 0.0);
        for process in cluster.nodes.values() {
            let text = process.http("/metrics").unwrap_or_default();
            let metric = |name: &str| {
                text.lines()
                    .find_map(|l| l.strip_prefix(name)?.trim().parse().ok())
                    .unwrap_or(0.0)
            };
            let pass = |clock: &str| {
                metric(&format!(
                    "doyen_data_pass_longest_seconds{{clock=\"{clock}\"}}"
                ))
            };
            self.longest = Passes {
                wall: self.longest.wall.max(pass("wall")),
                own: self.longest.own.max(pass("thread")),
            };
            self.expired += metric("doyen_keys_expired_total");
            self.snapshot_bytes += metric("doyen_snapshot_bytes_total");
            self.divided += metric("doyen_partitions_divided");
        }
    }

    /// Begins to measure here.
    fn begin(cluster: &Cluster) -> Self {
        let mut looks = Self::default();
        looks.look(cluster);
        looks.longest = Passes::default();
        looks
    }
}

/// Measures, and prints a table.
pub fn run(binary: &str, plan: &Plan) {
    let mut cluster = Cluster::new(binary);
    cluster.options.clone_from(&plan.options);
    for name in ["n0", "n1"] {
        cluster.join(name);
    }
    cluster.await_safe(2);
    let mut all = Vec::new();
    let mut see = |seen: Seen| {
        println!("{}", row(&seen));
        all.push(seen);
    };
    println!("{}", head());
    let (grow, rate) = (plan.grow, plan.rate);
    let quiet = |cluster: &mut Cluster, what: String| {
        watch(cluster, plan, |_, _| std::thread::sleep(QUIET), |_| what)
    };
    see(quiet(&mut cluster, "nothing else".into()));
    let write =
        |c: &mut Cluster, keys| insert(&c.resp_addresses(), keys, VALUE_BYTES, Some(rate), None);
    see(watch(
        &mut cluster,
        plan,
        |c, _| write(c, 0..grow),
        |()| format!("{grow} new keys, {rate} a second"),
    ));
    see(watch(
        &mut cluster,
        plan,
        |c, _| write(c, 0..grow),
        |()| "the same keys again, as many a second".into(),
    ));
    see(expire(&mut cluster, plan));
    insert(
        &cluster.resp_addresses(),
        grow..plan.keys,
        VALUE_BYTES,
        None,
        None,
    );
    let resident = cluster
        .nodes
        .values()
        .map(|p| procfs::memory(p.pid()).0)
        .max()
        .unwrap_or(0) as f64
        / 1e9;
    see(quiet(
        &mut cluster,
        format!("nothing else; {} keys, {resident:.1} GB a node", plan.keys),
    ));
    see(watch(&mut cluster, plan, join, |text| text));
    see(quiet(&mut cluster, "nothing else; three nodes".into()));
    see(watch(&mut cluster, plan, double, |text| text));
    see(watch(
        &mut cluster,
        plan,
        |c, _| flush(c),
        |()| format!("FLUSHALL of {} keys", plan.keys),
    ));
    let longest = |of: fn(&Seen) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let (own, probed) = (
        longest(|s| s.passes.own),
        longest(|s| s.probe.recorder.longest() / 1e3),
    );
    let most = STALL_MAX.as_secs_f64();
    println!(
        "every pass of a data thread is shorter than {STALL_MAX:?}: {} ({:.1} ms)",
        verdict(own < most),
        own * 1e3
    );
    println!(
        "every operation of the probe is shorter than {STALL_MAX:?}: {} ({:.1} ms)",
        verdict(probed < most),
        probed * 1e3
    );
}

fn head() -> String {
    format!(
        "{:<54} {:>7} {:>7} {:>7} {:>8} {:>10} {:>9} {:>9}",
        "milliseconds, while there is",
        "probes",
        "p50",
        "p99.9",
        "longest",
        "probe late",
        "pass ran",
        "pass took"
    )
}

fn row(seen: &Seen) -> String {
    let Counted { recorder, late } = &seen.probe;
    let failed = match recorder.failures() {
        (0, _) => String::new(),
        (failures, _) => format!("  {failures} failed"),
    };
    format!(
        "{:<54} {:>7} {:>7.2} {:>7.2} {:>8.2} {:>10.2} {:>9.2} {:>9.2}{failed}",
        seen.what,
        recorder.count(),
        recorder.quantile(0.5),
        recorder.quantile(0.999),
        recorder.longest(),
        late.as_secs_f64() * 1e3,
        seen.passes.own * 1e3,
        seen.passes.wall * 1e3,
    )
}

/// Measures during an event, through the nodes that were there before it.
fn watch<T>(
    cluster: &mut Cluster,
    plan: &Plan,
    event: impl FnOnce(&mut Cluster, &mut Looks) -> T,
    what: impl FnOnce(T) -> String,
) -> Seen {
    let probe = Probe::start(&cluster.resp_addresses(), plan.probes);
    let mut looks = Looks::begin(cluster);
    let result = event(cluster, &mut looks);
    looks.look(cluster);
    Seen {
        what: what(result),
        probe: probe.finish(),
        passes: looks.longest,
    }
}

fn unix() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970")
}

/// Writes many keys with one deadline, and waits until they are gone.
fn expire(cluster: &mut Cluster, plan: &Plan) -> Seen {
    let deadline = unix() + Duration::from_secs(plan.expire / plan.rate.max(1)) * 2 + EXPIRE_AHEAD;
    let keys = plan.keys..plan.keys + plan.expire;
    insert(
        &cluster.resp_addresses(),
        keys,
        VALUE_BYTES,
        None,
        Some(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)),
    );
    let left = deadline.saturating_sub(unix());
    assert!(
        left > Duration::from_secs(1),
        "keys expire before all are written; give them more time with a lower --rate"
    );
    std::thread::sleep(left - Duration::from_secs(1));
    let passes = |c: &mut Cluster, looks: &mut Looks| {
        let before = looks.expired;
        std::thread::sleep(Duration::from_secs(1));
        let began = Instant::now();
        while looks.expired - before < plan.expire as f64 {
            assert!(
                began.elapsed() < EVENT_MAX,
                "the keys have not expired in time"
            );
            std::thread::sleep(Duration::from_millis(100));
            looks.look(c);
        }
        began.elapsed()
    };
    watch(cluster, plan, passes, |took| {
        format!(
            "{} keys expire at once, gone after {:.1} s",
            plan.expire,
            took.as_secs_f64()
        )
    })
}

/// Starts a third node and waits until it has its share of everything.
fn join(cluster: &mut Cluster, looks: &mut Looks) -> String {
    let before = looks.snapshot_bytes;
    let began = Instant::now();
    cluster.join("n2");
    await_share(cluster, "n2", 3);
    let took = began.elapsed().as_secs_f64();
    // The old copies are dropped some seconds later.
    std::thread::sleep(AFTER);
    looks.look(cluster);
    format!(
        "a node joins and gets {:.1} GB in {took:.0} s",
        (looks.snapshot_bytes - before) / 1e9
    )
}

/// Splits every partition in two.
fn double(cluster: &mut Cluster, looks: &mut Looks) -> String {
    let keyspace = |cluster: &Cluster| {
        let status = cluster.status("n0").unwrap_or_default();
        let default = status["keyspaces"]
            .as_array()
            .and_then(|all| all.iter().find(|k| k["name"] == "default"))
            .cloned()
            .unwrap_or_default();
        (
            default["partitions"].as_u64().unwrap_or(0),
            default["reshaping"].as_u64().unwrap_or(0),
        )
    };
    let before = keyspace(cluster).0;
    let began = Instant::now();
    let (done, said) = cluster.keyspace(
        "n0",
        &[
            "alter",
            "default",
            "--partitions",
            &(2 * before).to_string(),
        ],
    );
    assert!(done, "{said}");
    while keyspace(cluster) != (2 * before, 0) {
        assert!(
            began.elapsed() < EVENT_MAX,
            "{:?} of {} partitions",
            keyspace(cluster),
            2 * before
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    looks.look(cluster);
    while looks.divided > 0.0 {
        assert!(
            began.elapsed() < EVENT_MAX,
            "{} are still divided",
            looks.divided
        );
        std::thread::sleep(Duration::from_millis(100));
        looks.look(cluster);
    }
    let took = began.elapsed().as_secs_f64();
    // The memory of the old partitions is freed after that.
    std::thread::sleep(AFTER);
    format!("{before} partitions become {}, in {took:.1} s", 2 * before)
}

fn flush(cluster: &Cluster) {
    let reply = cluster.command_at("n0", &["FLUSHALL"]);
    assert_eq!(reply, Reply::Simple("OK".into()), "FLUSHALL");
    // The memory of the dropped keys is freed in slices.
    std::thread::sleep(AFTER);
}
