//! Native clients while real processes are killed, frozen and restarted: everything that they saw
//! must have an explanation.

use doyen_tests::cluster::Cluster;
use doyen_tests::native::{Load, Tally};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const TASKS: u32 = 12;

fn start(cluster: &Cluster) -> Load {
    Load::start(
        cluster.nodes.values().map(|p| p.ready.data).collect(),
        cluster.secret_file(),
        TASKS,
    )
}

/// Waits until this many more operations were answered.
fn progress(cluster: &Cluster, load: &Load, operations: u64) {
    let from = load.answered();
    cluster.eventually("operations go on", |_| load.answered() >= from + operations);
}

fn check(tally: &Tally) {
    assert!(tally.answered > 0, "the load did nothing");
    let violations = tally.violations();
    assert!(
        violations.is_empty(),
        "{} keys: {:?}",
        violations.len(),
        &violations[..violations.len().min(3)]
    );
}

fn kill_one_of_three(pick: impl Fn(&Cluster) -> String) {
    let mut cluster = Cluster::of(BINARY, 3);
    let load = start(&cluster);
    progress(&cluster, &load, 1_000);
    let victim = pick(&cluster);
    cluster.kill(&victim);
    cluster.await_safe(2);
    progress(&cluster, &load, 1_000);
    check(&load.finish());
}

#[test]
fn killing_the_coordinator_loses_no_write_and_applies_none_twice() {
    kill_one_of_three(Cluster::coordinator);
}

#[test]
fn killing_another_primary_loses_no_write_and_applies_none_twice() {
    kill_one_of_three(|c| c.by_age().last().expect("members").clone());
}

#[test]
fn rolling_restarts_fail_no_operation() {
    let mut cluster = Cluster::of(BINARY, 3);
    let load = start(&cluster);
    for name in ["n0", "n1", "n2"] {
        progress(&cluster, &load, 500);
        let status = cluster.leave(name);
        assert!(status.success(), "{name} ended with {status}");
        cluster.join(name);
        cluster.await_safe(3);
    }
    progress(&cluster, &load, 500);
    let tally = load.finish();
    assert!(
        tally.refused.is_empty() && tally.unknown == 0,
        "{:?}, {} unknown",
        tally.refused,
        tally.unknown
    );
    check(&tally);
}

#[test]
fn a_primary_that_was_frozen_answers_nothing_stale() {
    let mut cluster = Cluster::of(BINARY, 3);
    let load = start(&cluster);
    progress(&cluster, &load, 1_000);
    let frozen = cluster.coordinator();
    cluster.nodes.get_mut(&frozen).expect("it runs").stop();
    let others: Vec<String> = cluster
        .nodes
        .keys()
        .filter(|n| **n != frozen)
        .cloned()
        .collect();
    cluster.eventually("a successor", |c| {
        others.iter().all(|n| {
            c.status(n)
                .is_some_and(|s| s["coordinator"].as_str().is_some_and(|name| name != frozen))
        })
    });
    progress(&cluster, &load, 1_000);
    cluster.nodes.get_mut(&frozen).expect("it runs").resume();
    cluster.await_safe(3);
    progress(&cluster, &load, 500);
    check(&load.finish());
}
