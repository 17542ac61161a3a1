//! Nodes with directories (`--dir`): all of them are killed, some come back, and it is the same
//! cluster; on real processes.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::Reply;
use serde_json::Value;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const NAMES: [&str; 3] = ["n0", "n1", "n2"];

/// Three nodes with directories, and what their table has: a keyspace, a user and a token.
fn used() -> (Cluster, Value) {
    let mut cluster = Cluster::new(BINARY);
    cluster.directories = true;
    cluster.start_together(&NAMES);
    cluster.await_safe(3);
    let (done, said) = cluster.keyspace("n0", &["create", "orders", "--partitions", "16"]);
    assert!(done, "{said}");
    let user = [
        "ACL",
        "SETUSER",
        "ada",
        "on",
        ">a long password",
        "~*",
        "+@all",
    ];
    assert_eq!(cluster.command_at("n1", &user), Reply::Simple("OK".into()));
    let out = cluster.file("watcher").display().to_string();
    cluster.change("n2", &["token", "new", "watcher", "--out", &out]);
    let set = cluster.command_at("n0", &["SET", "key", "value"]);
    assert_eq!(set, Reply::Simple("OK".into()));
    let id = cluster.report("n0", "/status")["cluster_id"].clone();
    assert!(id.is_string(), "{id}");
    (cluster, id)
}

fn kill_all(cluster: &mut Cluster) {
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    names.iter().for_each(|name| cluster.kill(name));
}

/// It is the same cluster, and it serves.
fn is_the_same(cluster: &Cluster, id: &Value) {
    for name in cluster.nodes.keys() {
        assert_eq!(&cluster.report(name, "/status")["cluster_id"], id);
        let keyspaces = cluster.report(name, "/table")["keyspaces"].to_string();
        assert!(keyspaces.contains("\"orders\""), "{keyspaces}");
        let user = cluster.command_at(name, &["ACL", "GETUSER", "ada"]);
        assert!(matches!(user, Reply::Array(_)), "{user:?}");
    }
    let (done, tokens) = cluster.asks("n0", &["token", "list"]);
    assert!(done && tokens.contains("watcher"), "{tokens}");
    let name = cluster.nodes.keys().next_back().expect("a node");
    let set = cluster.command_at(name, &["SET", "key", "again"]);
    assert_eq!(set, Reply::Simple("OK".into()));
    assert_eq!(
        cluster.command_at("n0", &["GET", "key"]),
        Reply::Bulk(b"again".to_vec())
    );
}

fn start_all(cluster: &mut Cluster, id: &Value) {
    cluster.start_together(&NAMES);
    cluster.await_safe(3);
    is_the_same(cluster, id);
}

fn start_again(cluster: &mut Cluster, name: &str, id: &Value) {
    cluster.join(name);
    cluster.await_safe(3);
    is_the_same(cluster, id);
}

#[test]
fn nodes_that_were_all_killed_are_the_same_cluster_at_other_addresses() {
    let (mut cluster, id) = used();
    for _ in 0..2 {
        kill_all(&mut cluster);
        start_all(&mut cluster, &id);
    }
}

#[test]
fn most_directories_are_enough_and_the_others_come_late_or_empty() {
    let (mut cluster, id) = used();
    kill_all(&mut cluster);
    cluster.join("n2");
    let why = |c: &Cluster| c.report("n2", "/status")["coordinator"].clone();
    cluster.eventually("one directory alone elects no coordinator", |c| {
        c.report("n2", "/status").is_object() && why(c).is_null()
    });
    cluster.join("n0");
    cluster.eventually("two of three are the cluster", |c| {
        c.report("n0", "/status")["cluster_id"] == id && !why(c).is_null()
    });
    // What n1 held may still be there, so that is waited for.
    cluster.join("n1");
    // A new machine.
    let empty = cluster.directory("empty").display().to_string();
    cluster.join_with("n3", &["--dir", &empty]);
    cluster.await_safe(4);
    is_the_same(&cluster, &id);
}

#[test]
fn a_node_that_starts_again_while_the_others_live_takes_its_place() {
    let (mut cluster, id) = used();
    for _ in 0..2 {
        let victim = cluster.coordinator();
        cluster.kill(&victim);
        start_again(&mut cluster, &victim, &id);
        let members = cluster.report("n1", "/status")["members"].clone();
        assert_eq!(members.as_array().map(Vec::len), Some(3), "{members}");
    }
}

#[test]
fn a_node_that_left_or_was_given_up_begins_as_a_new_member() {
    let (mut cluster, id) = used();
    assert!(cluster.leave("n1").success());
    cluster.await_safe(2);
    start_again(&mut cluster, "n1", &id);
    // The others go on without it while it is stopped.
    cluster.nodes.get_mut("n2").expect("it runs").stop();
    cluster.eventually("the others go on without it", |c| {
        let members = c.report("n0", "/status")["members"].clone();
        members.as_array().is_some_and(|members| members.len() == 2)
    });
    cluster.nodes.get_mut("n2").expect("it runs").resume();
    cluster.await_safe(3);
    kill_all(&mut cluster);
    start_all(&mut cluster, &id);
}

#[test]
fn a_directory_in_use_and_a_copy_of_one_are_refused() {
    let (mut cluster, id) = used();
    let own = cluster.directory("n1").display().to_string();
    let refused = cluster.try_join("n4", &["--dir", &own]).unwrap_err();
    assert!(
        refused.stderr.contains("in use by another process"),
        "{refused:?}"
    );
    // A copy that begins as often as the original is refused by those that have met that one.
    let copy = cluster.directory("copy").display().to_string();
    let copied = Command::new("cp").args(["-r", &own, &copy]).status();
    assert!(copied.expect("cp runs").success());
    cluster.kill("n1");
    cluster.join("n1");
    cluster.await_safe(3);
    let ended = match cluster.try_join("n4", &["--dir", &copy]) {
        Err(refused) => refused.stderr,
        Ok(()) => {
            cluster.eventually("it ends", |c| {
                c.node("n4").log().contains("a copy, or a former state")
            });
            cluster.node("n4").log()
        }
    };
    assert!(ended.contains("a copy, or a former state"), "{ended}");
    cluster.nodes.remove("n4");
    cluster.await_safe(3);
    is_the_same(&cluster, &id);
}

/// Regression: such nodes lived on as members without a place, and partitions were not served.
#[test]
fn directories_that_were_exchanged_or_are_above_the_level_are_refused() {
    let (mut cluster, id) = used();
    kill_all(&mut cluster);
    let refused = cluster.try_join("n1", &["--level-max", "16"]).unwrap_err();
    let said = refused.stderr;
    assert!(said.contains("start it without --level-max"), "{said}");
    let exchange = |cluster: &Cluster| {
        let [one, two, spare] = ["n1", "n2", "spare"].map(|name| cluster.directory(name));
        for (from, to) in [(&one, &spare), (&two, &one), (&spare, &two)] {
            std::fs::rename(from, to).expect("no process has it");
        }
    };
    exchange(&cluster);
    cluster.start_together(&NAMES);
    cluster.eventually("one of the two ends and says why", |c| {
        let said = ["n1", "n2"].map(|name| c.node(name).log());
        said.iter().any(|log| {
            let last = log
                .lines()
                .find(|line| line.starts_with("doyen: the name n"));
            last.is_some_and(|line| line.contains("start it with --name"))
        })
    });
    kill_all(&mut cluster);
    exchange(&cluster);
    start_all(&mut cluster, &id);
}

/// Regression: each of the last two took the other one for the one that stays, and their directories
/// forgot the cluster.
#[test]
fn nodes_that_all_left_are_the_same_cluster_again() {
    let (mut cluster, id) = used();
    for name in NAMES {
        // The last one finds no successor, which it says.
        _ = cluster.leave(name);
    }
    start_all(&mut cluster, &id);
    for node in cluster.nodes.values_mut() {
        node.terminate();
    }
    for (_, node) in std::mem::take(&mut cluster.nodes) {
        _ = node.wait();
    }
    start_all(&mut cluster, &id);
}
