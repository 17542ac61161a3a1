//! Real processes, some of which do not reach each other while everybody else reaches them.

use doyen::testkit::{Cluster, PATIENCE, Plane};
use doyen_tests::resp::{Client, Reply};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// What one forwarded to the other waited for the end of the cut, and was given up after 5 s.
#[test]
fn a_cut_between_two_data_ports_fails_nobody() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut cluster = runtime.block_on(Cluster::builder().binary(BINARY).option("partitions", 64).start(3)).expect("three nodes");
    let mut clients = [0, 1].map(|node| Client::connect(cluster.resp(node).expect("it runs"), PATIENCE).expect("it answers"));
    // Either of the two forwards to the other, and has copies of what the other leads.
    let table = runtime.block_on(cluster.table(2)).expect("a table");
    let partitions = table.keyspaces.iter().flat_map(|k| &k.partitions);
    let leads: BTreeSet<&str> = partitions.map(|p| p.primary.as_str()).collect();
    assert!([0, 1].iter().all(|node| leads.contains(cluster.name(*node))), "{leads:?}");
    for (from, to) in [(0, 1), (1, 0)] {
        cluster.cut_plane(from, to, Plane::Data);
    }
    for round in 0..3 {
        for key in 0..100 {
            let (key, value) = (format!("key {key}"), format!("round {round}"));
            let [one, other] = &mut clients;
            assert_eq!(one.command(&[b"SET", key.as_bytes(), value.as_bytes()]).expect("a reply"), Reply::Simple("OK".into()), "{key}");
            assert_eq!(other.command(&[b"GET", key.as_bytes()]).expect("a reply"), Reply::Bulk(value.into()), "{key}");
        }
        clients.reverse();
    }
    cluster.heal();
    runtime.block_on(cluster.await_safe(PATIENCE)).expect("all is safe");
}

/// It was expelled, came back by way of the others, and was expelled again, until the cut ended.
#[test]
fn whom_the_coordinator_does_not_reach_waits_outside_says_why_and_comes_back() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut cluster = runtime.block_on(Cluster::builder().binary(BINARY).option("partitions", 64).start(4)).expect("four nodes");
    let coordinator = runtime.block_on(cluster.coordinator()).expect("somebody coordinates");
    let apart = (coordinator + 1) % 4;
    for (from, to) in [(coordinator, apart), (apart, coordinator)] {
        cluster.cut_plane(from, to, Plane::Control);
    }
    let until = Instant::now() + PATIENCE;
    while !cluster.log(apart).contains("it stays outside until it does") {
        assert!(Instant::now() < until, "{}", cluster.log(apart));
        std::thread::sleep(Duration::from_millis(20));
    }
    let members = runtime.block_on(cluster.status(coordinator)).expect("a status").members;
    assert!(!members.iter().any(|m| m.name == cluster.name(apart)), "{members:?}");
    let mut client = Client::connect(cluster.resp(apart).expect("it runs"), PATIENCE).expect("it answers");
    let refused = client.command(&[b"SET", b"key", b"value"]).expect("a reply");
    assert!(matches!(&refused, Reply::Error(why) if why.starts_with("CLUSTERDOWN")), "{refused:?}");
    cluster.heal();
    runtime.block_on(cluster.await_safe(PATIENCE)).expect("all is safe");
    assert_eq!(client.command(&[b"SET", b"key", b"value"]).expect("a reply"), Reply::Simple("OK".into()));
}
