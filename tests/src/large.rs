//! How long the passes of a data thread become when values are as large as they may be: when they
//! are written and read at their primary and through another node, copied to a newcomer, and
//! dropped.

use crate::calls;
use crate::cluster::Cluster;
use crate::resp::Reply;
use crate::stall::{Looks, await_share};
use std::time::Instant;

/// How often each is done.
const TIMES: usize = 10;

/// Measures, and prints a table.
pub fn run(binary: &str, bytes: usize, keys: usize) {
    let mut cluster = Cluster::of(binary, 2);
    let value = vec![b'v'; bytes];
    let led = calls::keys(&cluster, "n0", true).expect("n0 leads half of them");
    let led = &led[..TIMES];
    println!("values of {bytes} bytes: milliseconds, and the longest pass of any node");
    println!(
        "{:<44} {:>8} {:>8} {:>9} {:>9}",
        "", "median", "longest", "pass ran", "pass took"
    );
    for round in ["", ", over the old one"] {
        for (node, how) in [
            ("n0", "where its key is led"),
            ("n1", "through the other node"),
        ] {
            each(&cluster, &format!("SET {how}{round}"), node, led, |key| {
                vec![b"SET", key, &value]
            });
        }
    }
    for (node, how) in [
        ("n0", "where its key is led"),
        ("n1", "through the other node"),
    ] {
        each(&cluster, &format!("GET {how}"), node, led, |key| {
            vec![b"GET", key]
        });
    }
    each(&cluster, "DEL", "n0", led, |key| vec![b"DEL", key]);
    let mut client = cluster.client("n0");
    for n in 0..keys {
        let reply = client
            .command(&[b"SET", format!("more:{n}").as_bytes(), &value])
            .expect("an answer");
        assert_eq!(reply, Reply::Simple("OK".into()));
    }
    let (mut looks, began) = (Looks::begin(&cluster), Instant::now());
    cluster.join("n2");
    await_share(&cluster, "n2");
    looks.look(&cluster);
    line(
        &format!("a node joins, {keys} values"),
        &mut [began.elapsed().as_secs_f64() * 1e3],
        &looks,
    );
    each(&cluster, "FLUSHALL", "n0", &[String::new()], |_| {
        vec![b"FLUSHALL"]
    });
}

/// One command for each key, each answered before the next.
fn each<'a>(
    cluster: &Cluster,
    what: &str,
    node: &str,
    keys: &'a [String],
    words: impl Fn(&'a [u8]) -> Vec<&'a [u8]>,
) {
    let mut client = cluster.client(node);
    let mut looks = Looks::begin(cluster);
    let mut times = Vec::new();
    for key in keys {
        let began = Instant::now();
        let reply = client.command(&words(key.as_bytes())).expect("an answer");
        assert!(
            !matches!(reply, Reply::Error(_) | Reply::Nil),
            "{what}: {reply:?}"
        );
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    looks.look(cluster);
    line(what, &mut times, &looks);
}

fn line(what: &str, times: &mut [f64], looks: &Looks) {
    times.sort_by(f64::total_cmp);
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let passes = looks.longest;
    println!(
        "{what:<44} {median:>8.1} {longest:>8.1} {:>9.1} {:>9.1}",
        passes.own * 1e3,
        passes.wall * 1e3
    );
}
