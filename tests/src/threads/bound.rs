//! One node, bound by its own processor time. The load is pipelined `MGET`s of many small keys of
//! one slot each, at the cluster-aware port of the data thread that has them. The requests are made
//! once and the answers are only counted, so the generator hardly works.

use super::{Measured, Pairs, Plan, cluster_ports};
use crate::cluster::Cluster;
use crate::procfs;
use crate::resp::{Client, Reply};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of one command, commands sent at a time, connections, and tags that each of them goes
/// round.
const KEYS: usize = 64;
const PIPELINE: usize = 8;
const CONNECTIONS: usize = 4;
const TAGS: usize = 64;
const VALUE: &[u8] = b"12345678";

pub(super) fn run(plan: &Plan) {
    let mut pairs = Pairs::default();
    for round in 0..plan.rounds {
        let mut both = [None, None];
        for place in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            both[place] = Some(measure(plan, [1, plan.threads][place]));
        }
        pairs
            .0
            .extend(both[0].zip(both[1]).map(|(one, several)| [one, several]));
    }
    println!(
        "one node, bound by its processor time: keys read by MGET of {KEYS} ({} rounds of {} s)",
        plan.rounds, plan.seconds
    );
    pairs.print("keys read", plan.threads);
}

fn measure(plan: &Plan, threads: u8) -> Measured {
    let mut cluster = Cluster::new(&plan.binary);
    cluster
        .options
        .extend(["--threads".to_owned(), threads.to_string()]);
    cluster.join("n0");
    cluster.await_safe(1);
    let ports = cluster_ports(&cluster, "n0");
    let requests: Vec<(SocketAddr, Vec<Vec<u8>>)> = (0..CONNECTIONS)
        .map(|c| (ports[c % ports.len()], prepare(ports[c % ports.len()], c)))
        .collect();
    let (stop, keys) = (AtomicBool::new(false), AtomicU64::new(0));
    let pid = cluster.node("n0").pid();
    std::thread::scope(|scope| {
        for (at, requests) in &requests {
            scope.spawn(|| ask(*at, requests, &stop, &keys));
        }
        std::thread::sleep(Duration::from_millis(500));
        let look = || {
            (
                keys.load(Ordering::Relaxed),
                procfs::processor(pid),
                procfs::processor(std::process::id()),
                Instant::now(),
            )
        };
        let before = look();
        std::thread::sleep(Duration::from_secs(plan.seconds));
        let after = look();
        stop.store(true, Ordering::Relaxed);
        let count = (after.0 - before.0) as f64;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count;
        Measured {
            throughput: count / (after.3 - before.3).as_secs_f64(),
            members: each(after.1 - before.1),
            generator: each(after.2 - before.2),
        }
    })
}

/// Writes the keys of tags that a data thread has, and prepares the requests for them: this many
/// commands each.
fn prepare(at: SocketAddr, connection: usize) -> Vec<Vec<u8>> {
    let mut client = Client::connect(at, Duration::from_secs(10)).expect("the node takes clients");
    let mut commands = Vec::new();
    for n in 0.. {
        let tag = format!("{connection}.{n}");
        let key = |k: usize| format!("{{{tag}}}{k}").into_bytes();
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        let set: Vec<&[u8]> = std::iter::once(&b"MSET"[..])
            .chain(keys.iter().flat_map(|key| [&key[..], VALUE]))
            .collect();
        match client.command(&set).expect("a reply") {
            Reply::Simple(_) => {}
            // Another thread has this tag.
            Reply::Error(why) if why.starts_with("MOVED") => continue,
            other => panic!("{other:?}"),
        }
        let mut command = format!("*{}\r\n$4\r\nMGET\r\n", KEYS + 1).into_bytes();
        for key in &keys {
            command.extend(
                format!("${}\r\n", key.len())
                    .bytes()
                    .chain(key.iter().copied())
                    .chain(*b"\r\n"),
            );
        }
        commands.push(command);
        if commands.len() == TAGS {
            break;
        }
    }
    commands.chunks(PIPELINE).map(<[Vec<u8>]>::concat).collect()
}

/// Bytes of one answer: an array of values of one length.
fn answer_bytes() -> usize {
    let value = format!("${}\r\n", VALUE.len()).len() + VALUE.len() + 2;
    format!("*{KEYS}\r\n").len() + KEYS * value
}

fn ask(at: SocketAddr, requests: &[Vec<u8>], stop: &AtomicBool, keys: &AtomicU64) {
    let mut stream = TcpStream::connect(at).expect("the node takes clients");
    stream.set_nodelay(true).expect("a socket of ours");
    let mut answer = vec![0; answer_bytes() * PIPELINE];
    while !stop.load(Ordering::Relaxed) {
        for request in requests {
            stream.write_all(request).expect("the node reads");
            stream.read_exact(&mut answer).expect("the node answers");
            assert!(
                answer.starts_with(b"*") && answer.ends_with(b"\r\n"),
                "an answer does not have the length that it must have"
            );
            keys.fetch_add((KEYS * PIPELINE) as u64, Ordering::Relaxed);
        }
    }
}
