//! What planning costs in a large cluster: `just placement-bench`.
//!
//! A thousand members in three zones, 16,384 partitions of three copies. The benchmark measures the
//! thread's own CPU time, so other programs do not disturb it. The table has the median and the
//! least of some runs.
#![allow(missing_docs, reason = "as every bench")]

#[path = "../tests/placement/common.rs"]
mod common;

use common::{PLAIN, Sketch, cluster_of, id, keyspace, member};
use doyen_placement::planner::{self, Absence, KeyspaceChange};
use doyen_placement::{Assignment, Loads, OnLoss, Replica, ReplicaState, Table};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

const MEMBERS: u64 = 1000;
const PARTITIONS: u16 = 16_384;
const RUNS: usize = 5;

fn measure<T>(name: &str, goal_ms: Option<f64>, mut work: impl FnMut() -> T) -> T {
    let cpu_ms = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
    };
    let mut run = || {
        let start = cpu_ms();
        let result = black_box(work());
        (cpu_ms() - start, result)
    };
    let (first, result) = run();
    let mut times: Vec<f64> = (1..RUNS).map(|_| run().0).chain([first]).collect();
    times.sort_by(f64::total_cmp);
    let goal = goal_ms.map_or_else(|| "-".to_owned(), |goal| format!("{goal:.0}"));
    println!(
        "{name:<52}{:>10.1}{:>10.1}{goal:>8}",
        times[RUNS / 2],
        times[0]
    );
    result
}

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let members: Vec<Sketch> = (0..MEMBERS)
        .map(|m| Sketch {
            zone: (m % 3) as u8 + 1,
            ..PLAIN
        })
        .collect();
    let found =
        |assignment| cluster_of(keyspace(PARTITIONS, 2, OnLoss::Wait), assignment, &members);
    println!(
        "{:<52}{:>10}{:>10}{:>8}",
        "1,000 members, 3 zones, 16,384 partitions, 3 copies", "ms", "least", "goal"
    );
    let table = measure("first assignment, in turn", Some(1000.0), || {
        found(Assignment::RoundRobin)
    });
    measure("first assignment, by rendezvous", Some(1000.0), || {
        found(Assignment::Rendezvous)
    });
    measure("nothing to do", None, || {
        planner::plan(&table, &Loads::default())
    });
    let dead = |table: &Table| planner::remove(table, &BTreeMap::from([(id(500), Absence::Dead)]));
    let left = measure("a death: the table without it", None, || dead(&table));
    let goals = measure("a death: the plan", Some(200.0), || {
        planner::plan(&left, &Loads::default())
    });
    measure("a death: the plan becomes goals", None, || {
        planner::adopt(&left, &goals)
    });
    // A table has a thousand members at most.
    let joined = planner::admit(&left, vec![member(5000, &members[1])]);
    measure("a join: the plan", Some(200.0), || {
        planner::plan(&joined, &Loads::default())
    });
    let rules = ["primary not in zone=z2", "copies 1 per zone"]
        .map(|text| text.parse().expect("it is a rule"));
    let change = KeyspaceChange {
        rules: Some(rules.into()),
        ..KeyspaceChange::default()
    };
    let ruled = planner::alter_keyspace(&table, "default", change)
        .expect("they may be")
        .expect("they are new");
    measure("two new rules: the plan", None, || {
        planner::plan(&ruled, &Loads::default())
    });
    // Planning must not examine every member each time for rules that leave loads uneven or cannot
    // be met.
    for (name, rule) in [
        ("one member leads everything", "primary in name=n7"),
        ("a rule that cannot be met", "primary in zone=z9"),
    ] {
        let rules = vec![rule.parse().expect("it is a rule")];
        let change = KeyspaceChange {
            rules: Some(rules),
            ..KeyspaceChange::default()
        };
        let ruled = planner::alter_keyspace(&table, "default", change)
            .expect("they may be")
            .expect("they are new");
        let goals = measure(&format!("{name}: the plan"), None, || {
            planner::plan(&ruled, &Loads::default())
        });
        let mut settled = planner::adopt(&ruled, &goals);
        for keyspace in &mut settled.keyspaces {
            for partition in &mut keyspace.partitions {
                if let Some(goal) = Arc::make_mut(partition).goal.take() {
                    let replicas = goal.into_iter().map(|member| Replica {
                        member,
                        state: ReplicaState::InSync,
                    });
                    Arc::make_mut(partition).replicas = replicas.collect();
                }
            }
        }
        measure(&format!("{name}: nothing to do"), None, || {
            planner::plan(&settled, &Loads::default())
        });
    }
}
