//! The loads of partitions, as every node reports them, also after the coordinator has died; on
//! real processes.

use doyen_tests::cluster::Cluster;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// The loads of a cluster, as this node reports them.
fn loads(cluster: &Cluster, node: &str) -> Value {
    cluster
        .node(node)
        .http("/loads")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

/// The bytes and keys of all partitions, and the names of the members that are known.
fn sums(loads: &Value) -> (u64, u64, Vec<String>) {
    let all = |field: &str| {
        loads["partitions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|p| p[field].as_u64())
            .sum()
    };
    let members = loads["members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|m| Some(m["name"].as_str()?.to_owned()));
    (all("bytes"), all("keys"), members.collect())
}

#[test]
fn every_node_reports_the_loads_and_a_new_coordinator_learns_them() {
    let mut cluster = Cluster::of(BINARY, 3);
    let value = vec![7; 100_000];
    let mut client = cluster.client("n0");
    for key in [&b"one"[..], b"two", b"three"] {
        client.command(&[b"SET", key, &value]).expect("it is set");
    }
    for node in ["n0", "n1", "n2"] {
        cluster.eventually("the loads are known", |c| {
            let (bytes, keys, members) = sums(&loads(c, node));
            bytes >= 300_000 && keys == 3 && members == ["n0", "n1", "n2"]
        });
    }
    // With named tokens or users in the table, the input of `simulate` could not be read.
    let token = cluster.file("token").display().to_string();
    let named = ["token", "new", "look", "--role", "read", "--out", &token];
    cluster.change("n1", &named);
    cluster.change("n1", &["acl", "set", "app", "on >a-long-password ~* +@all"]);
    let http = cluster.node("n1").ready.http.to_string();
    let secret = cluster.secret_file().display().to_string();
    let simulate = |events: &[&str]| {
        let of = [
            "simulate",
            "--from-cluster",
            &http,
            "--secret-file",
            &secret,
        ];
        cluster.command(&[&of[..], &["--events"], events].concat())
    };
    let told = simulate(&["+1,-n2", "--json"]);
    assert!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let stages = told[0]["stages"].as_array().expect("stages");
    let moved: Vec<_> = stages
        .iter()
        .map(|stage| stage["moved"]["bytes"].as_f64().map(|bytes| bytes > 0.0))
        .collect();
    assert_eq!(moved, [None, Some(true), Some(true)], "{told}");
    let held = |stage: &Value| {
        stage["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|n| n["bytes"].as_f64())
            .sum::<f64>()
    };
    assert!(
        stages.iter().all(|stage| held(stage) >= 600_000.0),
        "the bytes of two copies: {told}"
    );
    let unknown = simulate(&["-absent"]);
    assert!(
        !unknown.status.success()
            && String::from_utf8_lossy(&unknown.stderr).contains("there is no node absent")
    );

    let coordinator = cluster.coordinator();
    cluster.kill(&coordinator);
    cluster.await_safe(2);
    let left = ["n0", "n1", "n2"]
        .into_iter()
        .find(|name| *name != coordinator)
        .expect("two are left");
    cluster.eventually("the new coordinator has heard them", |c| {
        let (bytes, keys, members) = sums(&loads(c, left));
        bytes >= 300_000 && keys == 3 && members.len() == 2
    });
}
