//! System calls and wake-ups by operation, as the kernel counts them: its tracepoints, read through
//! tracefs.
//!
//! Nothing of ours stands between: no library is told what it does, and no debugger slows it down
//! until batches look different. It takes root, and a kernel with tracepoints. If it cannot count,
//! it says so and fails.

mod trace;

use crate::cluster::Cluster;
use crate::resp::{Client, Reply};
use doyen_placement::hash::slot;
use std::fmt::Write as _;
use std::time::Duration;
use trace::{Counts, Tracer};

/// Operations of one case.
const OPERATIONS: usize = 4_096;
/// Operations before the count begins.
const WARM_UP: usize = 512;
/// Keys, few enough that a batch finds most of them in a cache.
const KEYS: usize = 64;
/// Partitions. Of two nodes, one leads the first half, or each leads every second one.
const PARTITIONS: usize = 64;
/// How far system calls may exceed what the datagrams need: some calls find nothing to do.
const SPARE: f64 = 1.25;
/// The clock may wake another thread, an operation never: at most one wake-up in this many
/// operations.
const BY_THE_CLOCK: usize = 100;
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// Which operations are measured, and how they are sent.
struct Case {
    what: String,
    write: bool,
    /// Operations that are sent at once.
    batch: usize,
    /// Whether the asked node leads the keys.
    led_here: bool,
}

/// Counts, and prints a table.
///
/// # Errors
/// The kernel does not let us count, or a count contradicts what the table shall show.
pub fn run(binary: &str) -> Result<(), String> {
    // Try the kernel before anything is started: it may refuse.
    drop(Tracer::start(&[std::process::id()])?);
    let mut alone = Cluster::new(binary);
    alone.options.extend(["--backups", "0"].map(str::to_owned));
    alone.join("n0");
    alone.await_safe(1);
    println!("one node without copies; system calls of its data thread by operation");
    let mut woken = 0;
    for (write, batch) in [(false, 1), (false, 16), (true, 1), (true, 16)] {
        let what = format!("{}, {batch} at once", if write { "SET" } else { "GET" });
        woken += measure(
            &alone,
            &Case {
                what,
                write,
                batch,
                led_here: true,
            },
        )?
        .woken_others;
    }
    drop(alone);
    // The control thread hears five times a second that the data thread is alive.
    if woken * BY_THE_CLOCK > OPERATIONS {
        return Err(format!(
            "the data thread woke other threads of its node {woken} times in {} operations",
            4 * OPERATIONS
        ));
    }
    let mut cluster = Cluster::new(binary);
    for name in ["n0", "n1"] {
        cluster.join(name);
    }
    cluster.await_safe(2);
    println!(
        "\ntwo nodes, one backup; system calls of both data threads by batch of so many operations"
    );
    let mut calls = Vec::new();
    for (what, write, led_here) in [
        ("SET led here", true, true),
        ("GET led by the other", false, false),
        ("SET led by the other", true, false),
    ] {
        for batch in [1, 16, 64, 256] {
            let case = Case {
                what: format!("{what}, {batch} at once"),
                write,
                batch,
                led_here,
            };
            calls.push((what, batch, measure(&cluster, &case)?.network_by_batch));
        }
    }
    // Each datagram that is needed costs one call to send and one to receive: question and answer,
    // entry and acknowledgement. The cost of a batch must not grow with its size: in a byte stream,
    // a batch takes a few more datagrams at most.
    for (what, datagrams) in [
        ("SET led here", 2.0),
        ("GET led by the other", 2.0),
        ("SET led by the other", 4.0),
    ] {
        let of = |size: usize| {
            calls
                .iter()
                .find(|(w, b, _)| *w == what && *b == size)
                .map_or(f64::NAN, |(_, _, calls)| *calls)
        };
        let (one, many) = (of(1), of(64));
        println!(
            "{what}: {one:.1} system calls between the nodes for 1 operation, {many:.1} for 64"
        );
        if one > 2.0 * datagrams * SPARE {
            return Err(format!(
                "{what}: one operation takes {one:.1} system calls between nodes, \
                 and {datagrams} datagrams"
            ));
        }
        if many > 4.0 * one {
            return Err(format!(
                "{what}: a batch of 64 takes {many:.1} system calls between nodes, \
                 one operation {one:.1}"
            ));
        }
    }
    Ok(())
}

/// The figures of a case.
struct Measured {
    /// How often the data thread woke other threads of its node.
    woken_others: usize,
    /// System calls on the data sockets, of all nodes.
    network_by_batch: f64,
}

fn measure(cluster: &Cluster, case: &Case) -> Result<Measured, String> {
    let first = cluster.nodes.keys().next().ok_or("no node")?.clone();
    let mut client =
        Client::connect(cluster.node(&first).ready.resp, ANSWER_MAX).map_err(|e| e.to_string())?;
    let keys = keys(cluster, &first, case.led_here)?;
    for key in &keys {
        client
            .command(&[b"SET", key.as_bytes(), &[b'v'; 100]])
            .map_err(|e| e.to_string())?;
    }
    ask(&mut client, case, &keys, WARM_UP)?;
    let pids: Vec<u32> = cluster
        .nodes
        .values()
        .map(crate::process::Process::pid)
        .collect();
    let tracer = Tracer::start(&pids)?;
    ask(&mut client, case, &keys, OPERATIONS)?;
    let counts = tracer.finish()?;
    let batches = (OPERATIONS / case.batch) as f64;
    let by = if cluster.nodes.len() == 1 {
        OPERATIONS as f64
    } else {
        batches
    };
    println!("  {}", line(&case.what, &counts, by));
    let network = ["sendmsg", "sendmmsg", "recvmmsg", "recvmsg"];
    let network = counts
        .calls
        .iter()
        .filter(|((thread, call), _)| thread == DATA && network.contains(&call.as_str()))
        .map(|(_, n)| n)
        .sum::<usize>();
    Ok(Measured {
        woken_others: counts.woken_others,
        network_by_batch: network as f64 / batches,
    })
}

/// The thread that carries operations.
const DATA: &str = "doyen-data";

fn line(what: &str, counts: &Counts, by: f64) -> String {
    let mut text = format!("{what:<34}");
    for ((_, call), count) in counts
        .calls
        .iter()
        .filter(|((thread, _), _)| thread == DATA)
    {
        // Writing to a string cannot fail.
        let _ = write!(text, " {call} {:.3}", *count as f64 / by);
    }
    let _ = write!(text, "; other threads woken by it {}", counts.woken_others);
    text
}

/// Keys of partitions that this node leads, or that it does not.
pub(crate) fn keys(cluster: &Cluster, node: &str, led: bool) -> Result<Vec<String>, String> {
    let text = cluster
        .node(node)
        .http("/table")
        .map_err(|e| e.to_string())?;
    let table: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let partitions = table["keyspaces"][0]["partitions"]
        .as_array()
        .ok_or("no partitions")?;
    let right: Vec<bool> = partitions
        .iter()
        .map(|p| (p["primary"] == node) == led)
        .collect();
    let mut found = Vec::new();
    // At least every second key is right, so this ends long before.
    for n in 0..100_000 {
        let key = format!("key:{n:012}");
        if right.get(usize::from(slot(key.as_bytes())) * PARTITIONS / 16_384) == Some(&true) {
            found.push(key);
        }
        if found.len() == KEYS {
            return Ok(found);
        }
    }
    Err(format!(
        "{node} leads {} partitions of {}",
        right.iter().filter(|r| **r).count(),
        right.len()
    ))
}

/// Sends this many operations, a batch at a time, and waits for the answers before the next batch.
fn ask(client: &mut Client, case: &Case, keys: &[String], operations: usize) -> Result<(), String> {
    for from in (0..operations).step_by(case.batch) {
        let mut out = Vec::new();
        for n in from..from + case.batch {
            let key = &keys[n % keys.len()];
            if case.write {
                out.extend_from_slice(
                    format!(
                        "*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n$100\r\n{}\r\n",
                        "v".repeat(100)
                    )
                    .as_bytes(),
                );
            } else {
                out.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n").as_bytes());
            }
        }
        client.raw(&out).map_err(|e| e.to_string())?;
        for _ in 0..case.batch {
            match client.reply().map_err(|e| e.to_string())? {
                Reply::Simple(_) | Reply::Bulk(_) => {}
                other => return Err(format!("{}: {other:?}", case.what)),
            }
        }
    }
    Ok(())
}
