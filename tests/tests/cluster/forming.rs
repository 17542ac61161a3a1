//! How clusters begin, which members they admit, and how few members may go on.

use doyen_tests::cluster::{Cluster, free_ports, last_lines, write_secret};
use doyen_tests::resp::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// A UDP balancer on loopback, which sends each source to one of some ports, by its address.
struct Balancer {
    at: SocketAddr,
    ends: Arc<AtomicBool>,
    front: JoinHandle<()>,
}

impl Balancer {
    fn start(backs: Vec<SocketAddr>) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a port");
        front
            .set_read_timeout(Some(Duration::from_millis(2)))
            .expect("a socket of ours");
        let (at, ends) = (
            front.local_addr().expect("known"),
            Arc::new(AtomicBool::new(false)),
        );
        let ended = ends.clone();
        let front = std::thread::spawn(move || {
            let (mut there, mut bytes) = (BTreeMap::<SocketAddr, UdpSocket>::new(), [0; 65536]);
            while !ended.load(Ordering::Relaxed) {
                if let Ok((count, source)) = front.recv_from(&mut bytes) {
                    let back = there.entry(source).or_insert_with(|| {
                        let back = UdpSocket::bind("127.0.0.1:0").expect("a port");
                        back.connect(backs[usize::from(source.port()) % backs.len()])
                            .expect("loopback");
                        back.set_nonblocking(true).expect("a socket of ours");
                        back
                    });
                    let _ = back.send(&bytes[..count]);
                }
                for (source, back) in &there {
                    while let Ok(count) = back.recv(&mut bytes) {
                        let _ = front.send_to(&bytes[..count], source);
                    }
                }
            }
        });
        Self { at, ends, front }
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.front.join().expect("it does not panic");
    }
}

/// The balancer led each node always to the same other one, or to itself. So there were two
/// clusters, all nodes were ready, and no log said so.
#[test]
fn four_behind_one_balancer_are_one_cluster() {
    let mut cluster = Cluster::new(BINARY);
    let ports = free_ports(4);
    let balancer = Balancer::start(ports.clone());
    for (name, port) in ["a", "b", "c", "d"].iter().zip(&ports) {
        cluster
            .try_start(name, &[balancer.at], &["--listen", &port.to_string()])
            .expect("its ports are open");
    }
    cluster.eventually("each says that it waits and what to type", |c| {
        c.nodes.values().all(|node| node.log().contains("--expect"))
    });
    cluster.await_safe(4);
    let ids: BTreeSet<String> = cluster
        .nodes
        .keys()
        .map(|n| cluster.status(n).expect("a status")["cluster_id"].to_string())
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    cluster.eventually("all are ready", |c| {
        c.nodes.values().all(|node| node.http("/readyz").is_ok())
    });
    assert!(
        cluster
            .nodes
            .keys()
            .all(|n| cluster.status(n).is_some_and(|s| s["others"].is_null())),
        "no node ever saw another used cluster"
    );
    balancer.stop();
}

fn one_cluster(names: &[&str]) {
    let mut cluster = Cluster::new(BINARY);
    cluster.start_together(names);
    cluster.await_safe(names.len());
    let ids: BTreeSet<String> = names
        .iter()
        .map(|n| cluster.status(n).expect("a status")["cluster_id"].to_string())
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    for (i, name) in names.iter().enumerate() {
        assert_eq!(
            cluster.command_at(name, &["SET", &format!("key-{i}"), name]),
            Reply::Simple("OK".into())
        );
    }
    for (i, name) in names.iter().enumerate() {
        let from = names[(i + 1) % names.len()];
        assert_eq!(
            cluster.command_at(from, &["GET", &format!("key-{i}")]),
            Reply::Bulk(name.as_bytes().to_vec())
        );
    }
}

#[test]
fn two_that_start_at_once_form_one_cluster() {
    one_cluster(&["a", "b"]);
}

#[test]
fn five_that_start_at_once_form_one_cluster() {
    one_cluster(&["a", "b", "c", "d", "e"]);
}

/// Members that listened on `[::]` and advertised IPv4 addresses were live, but no data connection
/// ever came up between them.
#[test]
fn nodes_on_one_family_and_on_both_copy_to_each_other_and_serve_native_clients() {
    let mut cluster = Cluster::new(BINARY);
    let both = [
        "--listen",
        "[::]:0",
        "--data",
        "[::]:0",
        "--advertise",
        "127.0.0.1",
    ];
    for (name, more) in [
        ("n0", &both[..]),
        ("n1", &["--advertise", "127.0.0.1"]),
        ("n2", &both),
    ] {
        cluster.join_with(name, more);
    }
    cluster.await_safe(3);
    for name in ["n0", "n1", "n2"] {
        assert_eq!(
            cluster.command_at(name, &["SET", name, "1"]),
            Reply::Simple("OK".into())
        );
    }
    let data: Vec<String> = ["n0", "n1"]
        .iter()
        .map(|n| cluster.node(n).ready.data.to_string())
        .collect();
    let secret = cluster.secret_file();
    tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(async {
            let client = doyen::Node::builder()
                .client()
                .seeds(data)
                .secret_file(secret)
                .start()
                .await
                .expect("members are reached");
            let map: doyen::Map<String, String> = client.map("both families").await.expect("a map");
            for name in ["n0", "n1", "n2"] {
                map.insert(name, &"2".to_owned())
                    .await
                    .expect("the primary takes it");
            }
            client.shutdown().await;
        });
}

#[test]
fn a_wrong_secret_is_refused_on_both_sides_in_one_clear_line() {
    let mut cluster = Cluster::of(BINARY, 1);
    let other = cluster.file("other-secret");
    write_secret(
        &other,
        "8f14e45fceea167a5a36dedd4bea2543b6d767d2f8ed5d21a44b0e5886680cb9\n",
    );
    let seed = cluster.node("n0").ready.listen;
    let started = cluster.try_start(
        "stranger",
        &[seed],
        &["--secret-file", &other.display().to_string()],
    );
    started.expect("its ports are open before it is refused");
    let mut stranger = cluster.nodes.remove("stranger").expect("just started");
    cluster.eventually("it ends", |_| stranger.ended());
    let says = |log: &str| {
        log.lines()
            .filter(|l| l.contains("secret"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (there, here) = (says(&stranger.log()), says(&cluster.node("n0").log()));
    for said in [&there, &here] {
        assert!(
            matches!(said.as_slice(), [line] if line.contains("--secret-file") && line.len() < 300),
            "{there:?} {here:?}"
        );
    }
    let status = cluster.status("n0").expect("a status");
    assert_eq!(
        status["members"].as_array().map(Vec::len),
        Some(1),
        "it was admitted: {status}"
    );
    assert_eq!(
        cluster.command_at("n0", &["SET", "a", "1"]),
        Reply::Simple("OK".into())
    );
}

/// The second node was ready, and waited for ever.
#[test]
fn a_second_node_of_one_name_ends_and_names_the_first() {
    let mut cluster = Cluster::of(BINARY, 2);
    let (seed, taken) = (
        cluster.node("n1").ready.listen,
        cluster.nodes.remove("n0").expect("it runs"),
    );
    cluster
        .try_start("n0", &[seed], &[])
        .expect("its ports are open before it is refused");
    let mut second = cluster
        .nodes
        .insert("n0".into(), taken)
        .expect("just started");
    cluster.eventually("it ends", |_| second.ended());
    let log = second.log();
    let last = log.lines().last().unwrap_or_default();
    let at = cluster.node("n0").ready.listen.to_string();
    assert!(
        last.starts_with("doyen: ")
            && last.contains("name n0 is taken")
            && last.contains(&at)
            && last.contains("--name"),
        "{log}"
    );
    cluster.await_safe(2);
}

/// Two fresh nodes of one name can form no cluster, and neither is older, so both waited for ever.
#[test]
fn one_of_two_fresh_nodes_with_one_name_ends() {
    let mut cluster = Cluster::new(BINARY);
    let ports: Vec<_> = (0..2)
        .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a port"))
        .collect();
    let seeds: Vec<_> = ports
        .iter()
        .map(|p| p.local_addr().expect("known"))
        .collect();
    drop(ports);
    let mut started = Vec::new();
    for seed in &seeds {
        cluster
            .try_start("twin", &seeds, &["--listen", &seed.to_string()])
            .expect("its ports are open");
        started.push(cluster.nodes.remove("twin").expect("just started"));
    }
    let mut ended = Vec::new();
    cluster.eventually("one of them ends", |_| {
        ended = started.iter_mut().map(|p| p.ended()).collect();
        ended.contains(&true)
    });
    let loser = ended.iter().position(|e| *e).expect("just seen");
    let log = started[loser].log();
    assert!(
        log.lines()
            .last()
            .is_some_and(|l| l.starts_with("doyen: ") && l.contains("name twin is taken")),
        "{log}"
    );
    assert!(!started[1 - loser].ended(), "both ended");
}

/// The status said `safe` a moment too early: the newcomer was in the table, but its plan was still
/// being made.
#[test]
fn a_newcomer_holds_its_share_when_the_cluster_is_safe() {
    let mut cluster = Cluster::of(BINARY, 2);
    cluster.join("n2");
    cluster.eventually("safe with three members", |c| {
        c.status("n0").is_some_and(|s| {
            s["safe"] == true && s["members"].as_array().is_some_and(|m| m.len() == 3)
        })
    });
    let table: serde_json::Value =
        serde_json::from_str(&cluster.node("n0").http("/table").expect("a table")).expect("json");
    let partitions = table["keyspaces"][0]["partitions"]
        .as_array()
        .expect("partitions");
    assert!(
        partitions.iter().filter(|p| p["primary"] == "n2").count() >= 16,
        "{table}"
    );
}

#[test]
fn events_are_logged_once() {
    let cluster = Cluster::of(BINARY, 2);
    for log in cluster
        .nodes
        .values()
        .map(doyen_tests::process::Process::log)
    {
        let joined = log.lines().filter(|l| l.contains("n1 joined")).count();
        let elected = log.lines().filter(|l| l.contains("coordinates")).count();
        assert!(joined <= 1 && elected == 1, "{log}");
    }
}

#[test]
fn a_pair_that_loses_its_younger_goes_on() {
    let mut cluster = Cluster::of(BINARY, 2);
    assert_eq!(
        cluster.command_at("n0", &["SET", "a", "1"]),
        Reply::Simple("OK".into())
    );
    let younger = cluster.by_age().pop().expect("two members");
    cluster.kill(&younger);
    cluster.await_safe(1);
    let left = cluster.nodes.keys().next().expect("one is left").clone();
    assert_eq!(
        cluster.command_at(&left, &["GET", "a"]),
        Reply::Bulk(b"1".to_vec())
    );
    assert_eq!(
        cluster.command_at(&left, &["SET", "a", "2"]),
        Reply::Simple("OK".into())
    );
}

#[test]
fn a_pair_that_loses_its_older_asks_for_recover_and_goes_on_after_it() {
    let mut cluster = Cluster::of(BINARY, 2);
    let ages = cluster.by_age();
    let (older, younger) = (ages[0].clone(), ages[1].clone());
    assert_eq!(
        cluster.command_at(&younger, &["SET", "a", "1"]),
        Reply::Simple("OK".into())
    );
    cluster.kill(&older);
    cluster.eventually("it says that recover is needed", |c| {
        c.status(&younger)
            .is_some_and(|s| s["waiting"].as_str().is_some_and(|w| w.contains("recover")))
    });
    let status = cluster.status(&younger).expect("a status");
    assert_eq!(
        (&status["safe"], &status["coordinator"]),
        (&false.into(), &serde_json::Value::Null),
        "{status}"
    );
    assert_eq!(
        (
            &status["members"][0]["state"],
            &status["keyspaces"][0]["unavailable"]
        ),
        (&"unanswered".into(), &64.into()),
        "{status}"
    );
    // It must refuse, because the other may live behind a cut.
    let refused = cluster.command_at(&younger, &["SET", "a", "2"]);
    assert!(
        matches!(
            &refused,
            Reply::Error(text) if text.starts_with("TRYAGAIN") || text.starts_with("UNKNOWN")
        ),
        "{refused:?}"
    );
    let http = cluster.node(&younger).ready.http.to_string();
    let secret = cluster.secret_file().display().to_string();
    // The command that it prints works, once the secret's file is filled in.
    assert!(
        status["waiting"]
            .as_str()
            .is_some_and(|w| w.contains(&format!(
                "--http {http} --assert-dead {older} --gone 1/2 --secret-file FILE"
            ))),
        "{status}"
    );
    let output = cluster.command(&[
        "recover",
        "--http",
        &http,
        "--secret-file",
        &secret,
        "--assert-dead",
        "absent",
        "--gone",
        "1/2",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("absent") && said.contains(&younger),
        "{said}"
    );
    // A person was asked first, and heard of the wrong count after the answer.
    let mut recover = vec!["recover", "--http", &http, "--secret-file", &secret];
    recover.extend(["--assert-dead", &older, "--gone"]);
    let output = cluster.command(&[&recover[..], &["2/2"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("but 1/2 of the voters") && !said.contains("yes"),
        "{said}"
    );
    let output = cluster.command(&[&recover[..], &["1/2"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2)
            && said.contains("--yes")
            && said.contains("no partition begins empty"),
        "{output:?}"
    );
    let output = cluster.command(&[
        "recover",
        "--http",
        &http,
        "--assert-dead",
        &older,
        "--gone",
        "1/2",
        "--yes",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("requires a token"),
        "{output:?}"
    );
    let output = cluster.command(&[
        "recover",
        "--http",
        &http,
        "--secret-file",
        &secret,
        "--assert-dead",
        &older,
        "--gone",
        "1/2",
        "--yes",
    ]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("no partition began empty"),
        "{output:?}"
    );
    cluster.await_safe(1);
    let found = cluster.command_at(&younger, &["GET", "a"]);
    assert!(
        found == Reply::Bulk(b"1".to_vec()) || found == Reply::Bulk(b"2".to_vec()),
        "{found:?}"
    );
    assert_eq!(
        cluster.command_at(&younger, &["SET", "a", "3"]),
        Reply::Simple("OK".into())
    );
    let output = cluster.command(&[
        "recover",
        "--http",
        &http,
        "--secret-file",
        &secret,
        "--assert-dead",
        "absent",
        "--gone",
        "1/2",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success()
            && said.contains("nothing to recover")
            && said.contains("no member is called absent"),
        "{said}"
    );
}

#[test]
fn a_seed_that_restarts_alone_joins_the_living() {
    let mut cluster = Cluster::new(BINARY);
    cluster.start_together(&["a", "b", "c"]);
    cluster.await_safe(3);
    let id = cluster.status("b").expect("a status")["cluster_id"].clone();
    assert_eq!(
        cluster.command_at("b", &["SET", "k", "kept"]),
        Reply::Simple("OK".into())
    );
    let address = cluster.node("a").ready.listen;
    cluster.kill("a");
    // It has no seed, so it can only wait to be found, or begin a cluster of its own and give it
    // up.
    if let Err(refused) = cluster.try_start("a", &[], &["--listen", &address.to_string()]) {
        panic!("it does not start: {refused:?}");
    }
    cluster.await_safe(3);
    assert_eq!(
        cluster.status("a").expect("a status")["cluster_id"],
        id,
        "{}",
        last_lines(&cluster.node("a").log(), 20)
    );
    assert_eq!(
        cluster.command_at("a", &["GET", "k"]),
        Reply::Bulk(b"kept".to_vec())
    );
}
