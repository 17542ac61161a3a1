//! What Doyen does on this machine, as figures for docs/performance.md. The programs `bench` and
//! `figures` print them.
//!
//! ```text
//!   beside    Doyen beside Redis Cluster, Hazelcast and Olric (bench)
//!   failover  how long writes stall when a node dies, hangs or leaves
//!   gaps      what applications notice of a fault, by client library
//!   costs     starts, joins, idle nodes, bytes of a key
//!   stall     the longest stalls while a cluster grows, expires, copies and drops
//!   moving    what clients notice while copies move
//!   scale     what a larger cluster costs
//! ```
//! All count with a `recorder`, or compare with `stats`. [`children`] starts programs on a
//! processor of their own; nodes that need none are those of [`crate::cluster`]. `fill` writes
//! keys.

pub mod beside;
pub mod children;
pub mod costs;
pub mod failover;
mod fill;
pub mod gaps;
pub mod moving;
mod recorder;
pub mod scale;
pub mod stall;
pub mod stats;

use crate::cluster::Cluster;
use std::time::{Duration, Instant};

/// How long an event may last.
const EVENT_MAX: Duration = Duration::from_secs(600);
/// The time between two looks at the cluster while something is measured: each look costs processor
/// time that nodes and clients need.
const SELDOM: Duration = Duration::from_secs(1);

/// What a report says of a goal.
fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "DOES NOT HOLD" }
}

/// Looks again and again until something is so.
fn until(apart: Duration, is_so: impl Fn() -> bool, why_not: impl Fn() -> String) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < EVENT_MAX, "{}", why_not());
        std::thread::sleep(apart);
    }
}

/// The part of all copies that a member holds.
fn holding(cluster: &Cluster, name: &str) -> Option<f64> {
    // One request, because each costs those who are measured something.
    let table = cluster.report(name, "/table");
    let partitions = table["keyspaces"][0]["partitions"].as_array()?;
    let (mut all, mut its) = (0, 0);
    for partition in partitions {
        let backups = partition["backups"].as_array()?;
        all += 1 + backups.len();
        its += usize::from(partition["primary"] == name)
            + backups.iter().filter(|b| *b == name).count();
    }
    (all > 0).then(|| its as f64 / all as f64)
}

/// Whether all is safe and a member holds its share of all copies: one of this many, rounded down.
fn has_share(cluster: &Cluster, name: &str, members: u32) -> bool {
    let share = 1.0 / f64::from(members) - 0.01;
    // Reads the whole table only if all is safe.
    cluster.status(name).is_some_and(|s| s["safe"] == true)
        && holding(cluster, name).is_some_and(|part| part > share)
}

fn await_share(cluster: &Cluster, name: &str, members: u32) {
    until(
        SELDOM,
        || has_share(cluster, name, members),
        || format!("{name} does not get its share"),
    );
}
