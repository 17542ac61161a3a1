//! Each participant of a move dies at every stage of it in turn, under a load whose history is
//! judged. Clusters also grow and shrink while an operator interferes, or over narrow links.

use doyen::testkit::{self, Faults, PATIENCE};
use doyen_tests::cluster::Cluster;
use doyen_tests::process::{http, operator_token};
use doyen_tests::resp::{Client, Reply};
use doyen_tests::witness::Witness;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
/// One of each mode.
const KEYSPACES: [&str; 3] = ["default", "ring", "names"];

/// Three members with a keyspace of each mode and some keys in each. The `armed` member ends at a
/// point.
fn three(armed: Option<(&str, &str)>) -> Cluster {
    let mut cluster = Cluster::new(BINARY);
    // Nothing moves before all three members are there, so the stages that follow belong to the
    // move under test.
    cluster.options = ["--partitions", "16", "--members-min", "3"]
        .map(str::to_owned)
        .to_vec();
    for name in ["n0", "n1", "n2"] {
        cluster.dies_at = armed
            .filter(|(who, _)| *who == name)
            .map(|(_, point)| point.to_owned());
        cluster.join(name);
    }
    cluster.dies_at = None;
    cluster.await_safe(3);
    for words in [
        ["create", "ring", "--mode", "ring"],
        ["create", "names", "--mode", "range"],
    ] {
        let (done, said) = cluster.keyspace("n0", &words);
        assert!(done, "{words:?}: {said}");
    }
    cluster.await_safe(3);
    for name in KEYSPACES {
        let mut client = cluster.client("n0");
        cluster.eventually("the keyspace can be written to", |_| {
            client
                .command(&[b"CLIENT", b"KEYSPACE", name.as_bytes()])
                .expect("a reply")
                == Reply::Simple("OK".into())
        });
        for key in 0..100 {
            let reply = client
                .command(&[b"SET", format!("key-{key}").as_bytes(), &[b'x'; 1000]])
                .expect("a reply");
            assert_eq!(reply, Reply::Simple("OK".into()));
        }
    }
    cluster
}

fn progress(cluster: &Cluster, witness: &Witness, answers: u64) {
    let from = witness.answered();
    cluster.eventually("operations go on", |_| witness.answered() >= from + answers);
}

fn await_death(cluster: &mut Cluster, name: &str, point: &str) {
    let mut process = cluster.nodes.remove(name).expect("it was started");
    cluster.eventually(&format!("{name} ends at {point}"), |_| process.ended());
    ended_there(&process.log(), point);
}

fn ended_there(log: &str, point: &str) {
    assert!(
        log.contains(&format!("fault point {point}")),
        "it did not end at {point}:\n{log}"
    );
}

/// A node joins and ends at a point. It may reach that point before it says that it is ready.
fn join_and_die(cluster: &mut Cluster, name: &str, point: &str) {
    cluster.dies_at = Some(point.to_owned());
    match cluster.try_join(name, &[]) {
        Ok(()) => await_death(cluster, name, point),
        Err(refused) => ended_there(&refused.stderr, point),
    }
    cluster.dies_at = None;
}

/// Checks that every keyspace has its first keys.
fn check(cluster: &Cluster) {
    for name in KEYSPACES {
        let mut client = cluster.client("n0");
        assert_eq!(
            client
                .command(&[b"CLIENT", b"KEYSPACE", name.as_bytes()])
                .expect("a reply"),
            Reply::Simple("OK".into())
        );
        for key in 0..100 {
            let reply = client
                .command(&[b"STRLEN", format!("key-{key}").as_bytes()])
                .expect("a reply");
            assert_eq!(reply, Reply::Int(1000), "key-{key} of {name}");
        }
    }
}

/// A fourth member joins, and a participant of its moves dies at this point. Then the dead member
/// comes back, and the cluster recovers.
fn dies(who: &str, point: &str) {
    eprintln!("{who} dies at {point}");
    let mut cluster = three(Some((who, point)));
    let witness = Witness::start(cluster.resp_addresses(), &KEYSPACES);
    progress(&cluster, &witness, 100);
    if who == "n3" {
        join_and_die(&mut cluster, who, point);
    } else {
        cluster.join("n3");
        await_death(&mut cluster, who, point);
    }
    witness.redirect(cluster.resp_addresses());
    cluster.await_safe(3);
    progress(&cluster, &witness, 100);
    cluster.join(who);
    cluster.await_safe(4);
    progress(&cluster, &witness, 100);
    assert!(witness.judge() >= 300);
    check(&cluster);
}

#[test]
fn a_source_dies_as_it_begins_sends_finishes_compares_and_admits() {
    for point in [
        "source-begins",
        "source-sends",
        "source-finishes",
        "source-compares",
        "source-admits",
    ] {
        dies("n1", point);
    }
}

#[test]
fn a_target_dies_as_it_begins_receives_finishes_and_compares() {
    for point in [
        "target-begins",
        "target-receives",
        "target-finishes",
        "target-compares",
    ] {
        dies("n3", point);
    }
}

#[test]
fn a_coordinator_dies_with_the_table_of_each_stage() {
    for stage in ["copying", "in-sync", "switched", "dropped"] {
        dies("n0", &format!("{stage}-accepted"));
        dies("n0", &format!("{stage}-installed"));
    }
}

#[test]
fn a_source_and_a_target_die_with_the_table_of_a_stage() {
    for (who, point) in [
        ("n1", "switched-accepted"),
        ("n1", "dropped-installed"),
        ("n3", "in-sync-installed"),
        ("n3", "switched-installed"),
    ] {
        dies(who, point);
    }
}

#[test]
fn three_become_five_and_three_again_while_an_operator_pauses_and_cancels() {
    let mut cluster = three(None);
    let witness = Witness::start(cluster.resp_addresses(), &KEYSPACES);
    progress(&cluster, &witness, 100);
    // At that rate, this is on its way for a while.
    let mut client = cluster.client("n0");
    for n in 0..300 {
        let reply = client.command(&[b"SET", format!("large:{n}").as_bytes(), &[b'v'; 10_000]]);
        assert_eq!(reply.expect("a node answers"), Reply::Simple("OK".into()));
    }
    cluster.change("n0", &["rebalance", "--move-rate", "64kb"]);
    cluster.join("n3");
    cluster.join("n4");
    let balances = |m: &serde_json::Value| {
        ["copying", "waiting"]
            .iter()
            .any(|stage| m["stage"] == *stage)
            && m["reason"]
                .as_str()
                .is_some_and(|r| r.starts_with("balance"))
    };
    let balancing = |c: &Cluster| {
        c.report("n0", "/moves")["moves"]
            .as_array()
            .is_some_and(|all| all.iter().any(balances))
    };
    cluster.eventually("moves for balance are under way", balancing);
    cluster.change("n0", &["rebalance", "pause"]);
    cluster.change("n0", &["rebalance", "cancel", "--all"]);
    cluster.eventually("nothing moves for balance", |c| !balancing(c));
    progress(&cluster, &witness, 100);
    cluster.change("n0", &["rebalance", "resume", "--move-rate", "adaptive"]);
    cluster.eventually("both hold something", |c| {
        c.held("n0", "n3") > 8 && c.held("n0", "n4") > 8
    });
    cluster.await_safe(5);
    progress(&cluster, &witness, 100);
    for name in ["n4", "n3"] {
        cluster.change("n0", &["drain", name]);
        assert_eq!(cluster.held("n0", name), 0);
        assert!(cluster.leave(name).success());
        witness.redirect(cluster.resp_addresses());
    }
    cluster.await_safe(3);
    progress(&cluster, &witness, 100);
    assert!(witness.judge() >= 500);
    check(&cluster);
}

/// Every link between two nodes carries 1 MB a second. Copies use it, and neither pings nor
/// operations wait behind them.
#[test]
fn a_newcomer_is_filled_over_links_of_a_megabyte_a_second() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = testkit::Cluster::builder()
        .binary(BINARY)
        .option("partitions", 16)
        .start(3);
    let mut cluster = runtime.block_on(cluster).expect("three nodes");
    let mut client =
        Client::connect(cluster.resp(0).expect("it runs"), PATIENCE).expect("it answers");
    for key in 0..1200 {
        let reply = client
            .command(&[b"SET", format!("key-{key}").as_bytes(), &[b'x'; 4000]])
            .expect("a reply");
        assert_eq!(reply, Reply::Simple("OK".into()), "{key}");
    }
    cluster.degrade(Faults {
        bytes_per_second: Some(1_000_000),
        ..Faults::NONE
    });
    let witness = Witness::start(
        (0..3).filter_map(|node| cluster.resp(node)).collect(),
        &["default"],
    );
    // The newcomer gets 2.4 MB, over one link from each of three members.
    let newcomer = runtime.block_on(cluster.join()).expect("a fourth");
    runtime
        .block_on(cluster.await_safe(PATIENCE))
        .expect("all is safe");
    let answered = witness.judge();
    let table = runtime.block_on(cluster.table(0)).expect("a table");
    let name = cluster.name(newcomer);
    let partitions = table.keyspaces.iter().flat_map(|k| &k.partitions);
    let held = partitions
        .filter(|p| p.primary == name || p.backups.iter().any(|b| b == name))
        .count();
    assert!(held >= 7, "it holds {held} copies of its share of 8");
    let token = operator_token(cluster.secret_file());
    let address = cluster.http(0).expect("it runs");
    let events = http(address, "/events", token.as_deref()).expect("an answer");
    for kind in ["expelled", "suspected", "no_coordinator"] {
        assert!(
            !events.contains(&format!("\"kind\":\"{kind}\"")),
            "a member was taken for silent: {events}"
        );
    }
    assert!(answered > 100, "only {answered} operations were answered");
    for key in 0..1200 {
        let reply = client
            .command(&[b"STRLEN", format!("key-{key}").as_bytes()])
            .expect("a reply");
        assert_eq!(reply, Reply::Int(4000), "key-{key}");
    }
}
