//! Real processes, some of which do not reach each other while everybody else reaches them.

use doyen::status::{ClusterReport, TableReport};
use doyen::testkit::{Cluster, PATIENCE, Plane, TestkitError};
use doyen_tests::process::http;
use doyen_tests::resp::{Client, Reply};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// What one forwarded to the other waited for the end of the cut, and was given up after 5 s.
#[test]
fn a_cut_between_two_data_ports_fails_nobody() {
    let runtime = Runtime::new().expect("a runtime");
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
    let runtime = Runtime::new().expect("a runtime");
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

/// It was planned with as if others could copy to it: nothing was repaired while it was there, and a second death lost data.
#[test]
fn a_member_whose_data_port_is_shut_holds_up_no_repair() {
    let runtime = Runtime::new().expect("a runtime");
    let mut cluster = runtime.block_on(Cluster::builder().binary(BINARY).option("partitions", 64).start(5)).expect("five nodes");
    let coordinator = runtime.block_on(cluster.coordinator()).expect("somebody coordinates");
    let [shut, first, second] = [1, 2, 3].map(|n| (coordinator + n) % 5);
    let mut client = Client::connect(cluster.resp(coordinator).expect("it runs"), PATIENCE).expect("it answers");
    let keys: Vec<String> = (0..500).map(|key| format!("key {key}")).collect();
    for key in &keys {
        assert_eq!(client.command(&[b"SET", key.as_bytes(), key.as_bytes()]).expect("a reply"), Reply::Simple("OK".into()), "{key}");
    }
    for other in (0..5).filter(|n| *n != shut) {
        cluster.cut_plane(shut, other, Plane::Data);
        cluster.cut_plane(other, shut, Plane::Data);
    }
    let name = cluster.name(shut).to_owned();
    // A copy there that blocks writes is dropped before there is another one: until there is, its primary alone has what nobody else has.
    await_that(&runtime, &cluster, coordinator, "it holds nothing that anybody needs, and others have all of it", |table, status| {
        let holds = table.keyspaces.iter().flat_map(|k| &k.partitions).any(|p| p.primary == name || p.backups.contains(&name));
        !holds && status.keyspaces.iter().all(|k| k.under_replicated == 0)
    });
    let ready = http(cluster.http(shut).expect("it runs"), "/readyz").expect_err("it is not ready").to_string();
    assert!(ready.contains("503") && ready.contains("reaches no other member's data port"), "{ready}");
    assert!(cluster.log(coordinator).contains("answers, but others cannot copy to it"), "{}", cluster.log(coordinator));
    // One after the other, each once what the one before had is copied again: with nothing to be had from the one that is shut.
    for victim in [first, second] {
        cluster.kill(victim);
        let name = cluster.name(victim).to_owned();
        await_that(&runtime, &cluster, coordinator, "what it had is copied again", |_, status| {
            status.members.iter().all(|m| m.name != name) && status.keyspaces.iter().all(|k| k.under_replicated == 0 && k.unavailable == 0)
        });
    }
    for key in &keys {
        assert_eq!(client.command(&[b"GET", key.as_bytes()]).expect("a reply"), Reply::Bulk(key.clone().into()), "{key}");
    }
    cluster.heal();
    runtime.block_on(cluster.await_safe(PATIENCE)).expect("all is safe");
}

/// Looks at the table and the status of a node until they are like this. If not, tells what they are, and what the node logged, in lines that are short
/// enough to be read where somebody else ran this.
fn await_that(runtime: &Runtime, cluster: &Cluster, node: usize, what: &str, holds: impl Fn(&TableReport, &ClusterReport) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = runtime.block_on(async { Ok::<_, TestkitError>((cluster.table(node).await?, cluster.status(node).await?)) });
        let (table, status) = seen.expect("it answers");
        if holds(&table, &status) {
            return;
        }
        if Instant::now() >= until {
            let members: Vec<String> = status.members.iter().map(|m| format!("{m:?}")).collect();
            let keyspaces: Vec<String> = status.keyspaces.iter().map(|k| format!("{k:?}")).collect();
            let partitions: Vec<String> = table.keyspaces.iter().flat_map(|k| &k.partitions).map(|p| format!("{p:?}")).collect();
            let log = cluster.log(node);
            panic!("not: {what}\n{}\n{}\n{}\n{log}", members.join("\n"), keyspaces.join("\n"), partitions.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
