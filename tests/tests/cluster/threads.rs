//! Nodes with several data threads beside one with a single thread: if they are killed under load,
//! no write is lost, and none applied twice.

use doyen_tests::cluster::Cluster;
use doyen_tests::load::Load;
use doyen_tests::resp::{Client, Reply};
use doyen_tests::{native, process};
use std::net::SocketAddr;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// Three members, with two threads, one and three.
fn mixed() -> Cluster {
    let mut cluster = Cluster::new(BINARY);
    cluster.join_with("n0", &["--threads", "2"]);
    cluster.join_with("n1", &[]);
    cluster.join_with("n2", &["--threads", "3"]);
    cluster.await_safe(3);
    cluster
}

fn native_load(cluster: &Cluster) -> native::Load {
    native::Load::start(
        cluster.nodes.values().map(|p| p.ready.data).collect(),
        cluster.secret_file(),
        8,
    )
}

/// Waits until this many more operations of both loads were answered.
fn progress(cluster: &Cluster, load: &Load, native: &native::Load, operations: u64) {
    let (writes, answered) = (
        load.acknowledged() + operations,
        native.answered() + operations,
    );
    cluster.eventually("both loads go on", |_| {
        load.acknowledged() >= writes && native.answered() >= answered
    });
}

fn check(cluster: &Cluster, load: Load, native: native::Load) {
    let (tally, native) = (load.finish(), native.finish());
    assert!(
        tally.acknowledged > 0 && tally.stale.is_empty(),
        "stale: {:?}",
        tally.stale
    );
    for name in cluster.nodes.keys() {
        let lost = tally.lost(&mut cluster.client(name));
        assert!(
            lost.is_empty(),
            "read through {name}: {} keys are wrong: {:?}",
            lost.len(),
            &lost[..lost.len().min(5)]
        );
    }
    let violations = native.violations();
    assert!(
        native.answered > 0 && violations.is_empty(),
        "{} keys: {:?}",
        violations.len(),
        &violations[..violations.len().min(3)]
    );
}

/// Kills a node under load, adds another one, and kills a second one.
fn kill(first: &str, second: &str) {
    let mut cluster = mixed();
    let (load, native) = (
        Load::start(cluster.resp_addresses(), 6),
        native_load(&cluster),
    );
    progress(&cluster, &load, &native, 300);
    cluster.kill(first);
    load.redirect(cluster.resp_addresses());
    cluster.await_safe(2);
    progress(&cluster, &load, &native, 300);
    cluster.join_with("n3", &["--threads", "2"]);
    cluster.await_safe(3);
    progress(&cluster, &load, &native, 300);
    cluster.kill(second);
    load.redirect(cluster.resp_addresses());
    cluster.await_safe(2);
    progress(&cluster, &load, &native, 300);
    check(&cluster, load, native);
}

#[test]
fn killing_nodes_with_several_threads_loses_nothing() {
    kill("n2", "n0");
}

#[test]
fn killing_the_node_with_one_thread_loses_nothing() {
    kill("n1", "n2");
}

#[test]
fn a_node_with_several_threads_leaves_and_comes_back_without_a_failed_operation() {
    let mut cluster = mixed();
    let native = native_load(&cluster);
    let from = native.answered();
    cluster.eventually("the load begins", |_| native.answered() >= from + 300);
    for (name, threads) in [("n0", "3"), ("n2", "1")] {
        let status = cluster.leave(name);
        assert!(status.success(), "{name} ended with {status}");
        cluster.join_with(name, &["--threads", threads]);
        cluster.await_safe(3);
    }
    let tally = native.finish();
    assert!(
        tally.refused.is_empty() && tally.unknown == 0,
        "{:?}, {} unknown",
        tally.refused,
        tally.unknown
    );
    assert!(tally.violations().is_empty(), "{:?}", tally.violations());
}

/// To cluster-aware clients, each thread is a node. The `status` command lists all of them.
#[test]
fn cluster_aware_clients_find_every_thread_and_every_key_once() {
    let cluster = mixed();
    let mut client = cluster.client("n1");
    for i in 0..300 {
        let reply = client
            .command(&[b"SET", format!("key:{i}").as_bytes(), b"x"])
            .expect("a reply");
        assert_eq!(reply, Reply::Simple("OK".into()));
    }
    let status = cluster.status("n0").expect("it answers");
    let members = status["members"].as_array().expect("members");
    let ports: Vec<SocketAddr> = members
        .iter()
        .flat_map(|m| m["threads"].as_array().expect("threads"))
        .map(|t| {
            t["resp_cluster"]
                .as_str()
                .expect("an address")
                .parse()
                .expect("an address")
        })
        .collect();
    assert_eq!(ports.len(), 6);
    let mut held = 0;
    for at in &ports {
        let mut client = Client::connect(*at, process::PATIENCE).expect("a thread takes clients");
        let Reply::Int(keys) = client.command(&[b"DBSIZE"]).expect("a reply") else {
            panic!("no number")
        };
        held += keys;
        assert!(matches!(
            client.command(&[b"GET", b"key:1"]),
            Ok(Reply::Bulk(_) | Reply::Error(_))
        ));
    }
    assert_eq!(held, 300);
    // The plain port is one server, also to clients that look for a cluster.
    assert!(matches!(
        cluster.command_at("n2", &["CLUSTER", "NODES"]),
        Reply::Error(why) if why.starts_with("ERR This instance has cluster support disabled")
    ));
    let mut client = Client::connect(ports[0], process::PATIENCE).expect("a thread takes clients");
    let Ok(Reply::Bulk(nodes)) = client.command(&[b"CLUSTER", b"NODES"]) else {
        panic!("no text")
    };
    let nodes = String::from_utf8_lossy(&nodes).into_owned();
    assert_eq!(nodes.lines().count(), 6, "{nodes}");
    assert!(
        ports.iter().all(|at| nodes.contains(&format!(" {at}@"))),
        "{nodes}"
    );
    let metrics = cluster.node("n2").http("/metrics").expect("an answer");
    assert!(metrics.contains("doyen_partitions_open"), "{metrics}");
}

fn command(client: &mut Client, words: &[&str]) -> Reply {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.command(&words).expect("a reply")
}

fn is_unknown(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOSCRIPT"))
}

/// Regression: only the data thread that had evaluated a script knew it. Every other thread and
/// node answered NOSCRIPT.
#[test]
fn a_script_that_was_evaluated_once_is_known_at_every_thread_and_node_until_it_is_forgotten() {
    let cluster = mixed();
    let mut first = cluster.client("n0");
    // The second client of n0 is at its other thread.
    let mut others = ["n0", "n1", "n2"].map(|name| cluster.client(name));
    let mut text_last = 0;
    // Evaluates another text. Returns its digest and what it answers.
    let mut evaluate = || {
        text_last += 1;
        let text = format!("return {text_last}");
        let reply = Reply::Int(text_last);
        assert_eq!(command(&mut first, &["EVAL", &text, "0"]), reply);
        let digest = ["EVAL", "return redis.sha1hex(ARGV[1])", "0", &text];
        let Reply::Bulk(digest) = command(&mut first, &digest) else {
            panic!("no digest of {text}")
        };
        (String::from_utf8(digest).expect("a digest"), reply)
    };
    let unknown = "0123456789abcdef0123456789abcdef01234567";
    let mut digests = Vec::new();
    for other in &mut others {
        for name in ["EVALSHA", "EVALSHA_RO"] {
            let (digest, reply) = evaluate();
            assert_eq!(command(other, &[name, &digest, "0"]), reply);
            digests.push(digest);
        }
        let (digest, _) = evaluate();
        let exists = command(other, &["SCRIPT", "EXISTS", &digest, unknown]);
        assert_eq!(exists, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
        // Regression: if there were more digests than are looked up at once, no other member was
        // asked.
        let mut asked = vec!["SCRIPT", "EXISTS"];
        asked.extend(["no digest"; 1_100]);
        let (digest, _) = evaluate();
        asked.push(&digest);
        let mut known = vec![Reply::Int(0); 1_100];
        known.push(Reply::Int(1));
        assert_eq!(command(other, &asked), Reply::Array(known));
        let (digest, reply) = evaluate();
        command(other, &["MULTI"]);
        command(other, &["EVALSHA", &digest, "0"]);
        command(other, &["EVALSHA", unknown, "0"]);
        let Reply::Array(replies) = command(other, &["EXEC"]) else {
            panic!("EXEC was refused")
        };
        assert!(
            replies[0] == reply && is_unknown(&replies[1]),
            "{replies:?}"
        );
        assert!(is_unknown(&command(other, &["EVALSHA", unknown, "0"])));
        digests.push(digest);
    }
    let flushed = command(&mut others[1], &["SCRIPT", "FLUSH"]);
    assert_eq!(flushed, Reply::Simple("OK".to_owned()));
    for other in &mut others {
        for digest in &digests {
            let reply = command(other, &["EVALSHA", digest, "0"]);
            assert!(is_unknown(&reply), "{digest}: {reply:?}");
        }
    }
    // That no member knows a digest is remembered for a moment only.
    command(&mut others[0], &["EVAL", "return 1", "0"]);
    cluster.eventually("the text is found again", |_| {
        command(&mut others[2], &["EVALSHA", &digests[0], "0"]) == Reply::Int(1)
    });
}
