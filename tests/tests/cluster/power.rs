//! The power of all nodes is cut, so that they lose what they had not synced; on real processes.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::Reply;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::mpsc;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const NAMES: [&str; 3] = ["n0", "n1", "n2"];
/// Power cuts of one cluster.
const CUTS: usize = 4;

fn started(directories: impl Fn(&Cluster)) -> (Cluster, Value) {
    let mut cluster = Cluster::new(BINARY);
    cluster.directories = true;
    cluster.note_syncs(&NAMES);
    directories(&cluster);
    cluster.start_together(&NAMES);
    cluster.await_safe(3);
    let id = cluster.report("n0", "/status")["cluster_id"].clone();
    assert!(id.is_string(), "{id}");
    (cluster, id)
}

/// Makes users through a node until its power is cut, and returns those that were acknowledged.
fn users_until_cut(cluster: &mut Cluster, round: usize, acknowledged: usize) -> Vec<String> {
    let (said, heard) = mpsc::channel();
    let clients = NAMES.map(|name| (name, cluster.client(name)));
    let writers = clients.map(|(name, mut client)| {
        let said = said.clone();
        std::thread::spawn(move || {
            for n in 0.. {
                let user = format!("{name}-{round}-{n}");
                let words = ["ACL", "SETUSER", &user, "on", "nopass", "~*", "+get"];
                let words = words.map(str::as_bytes);
                match client.command(&words) {
                    Ok(Reply::Simple(_)) => _ = said.send(user),
                    // Another one may have changed the table in between.
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        })
    });
    drop(said);
    let mut users: Vec<String> = heard.iter().take(acknowledged).collect();
    cluster.cut_power();
    for writer in writers {
        writer.join().expect("a writer only ends");
    }
    users.extend(heard.iter());
    users
}

#[test]
fn what_was_acknowledged_outlives_power_cuts_of_all_nodes() {
    let (mut cluster, id) = started(|_| {});
    let mut users = Vec::new();
    for round in 0..CUTS {
        users.extend(users_until_cut(&mut cluster, round, 7 + 3 * round));
        // Each node comes back with another address, and in another order.
        let mut names = NAMES;
        names.rotate_left(round);
        cluster.start_together(&names);
        cluster.await_safe(3);
        assert_eq!(cluster.report("n1", "/status")["cluster_id"], id);
        for user in &users {
            let found = cluster.command_at("n2", &["ACL", "GETUSER", user]);
            assert!(matches!(found, Reply::Array(_)), "{user}: {found:?}");
        }
    }
}

/// The power cuts of these tests notice a node that syncs nothing.
#[test]
fn nodes_that_sync_nothing_lose_their_cluster_in_a_power_cut() {
    let (mut cluster, id) = started(|cluster| {
        for name in NAMES {
            cluster.lie_about_syncs(name);
        }
    });
    cluster.cut_power();
    cluster.start_together(&NAMES);
    cluster.await_safe(3);
    assert_ne!(cluster.report("n1", "/status")["cluster_id"], id);
}

/// Each client writes its own keys until the power of all nodes is cut. Returns what each key holds,
/// or `None` where nobody knows.
fn keys_until_cut(
    cluster: &mut Cluster,
    round: usize,
    acknowledged: usize,
) -> BTreeMap<String, Option<String>> {
    let (said, heard) = mpsc::channel();
    let clients = NAMES.map(|name| (name, cluster.client(name)));
    let writers = clients.map(|(name, mut client)| {
        let said = said.clone();
        std::thread::spawn(move || {
            for n in 0.. {
                let (key, value) = (format!("{name}:{}", n % 700), format!("{round}-{n}"));
                match client.command(&[b"SET", key.as_bytes(), value.as_bytes()]) {
                    Ok(Reply::Simple(_)) => _ = said.send((key, Some(value))),
                    // It may have been written.
                    other => {
                        _ = said.send((key, None));
                        if other.is_err() {
                            return;
                        }
                    }
                }
            }
        })
    });
    drop(said);
    let mut written: Vec<_> = heard.iter().take(acknowledged).collect();
    cluster.cut_power();
    for writer in writers {
        writer.join().expect("a writer only ends");
    }
    written.extend(heard.iter());
    written.into_iter().collect()
}

fn durable(lies: bool) -> Cluster {
    let mut cluster = Cluster::new(BINARY);
    cluster.directories = true;
    cluster.options = ["--durability", "log", "--partitions", "16"]
        .map(String::from)
        .into();
    cluster.note_syncs(&NAMES);
    if lies {
        NAMES.iter().for_each(|name| cluster.lie_about_syncs(name));
    }
    cluster.start_together(&NAMES);
    cluster.await_safe(3);
    cluster
}

fn value(cluster: &Cluster, key: &str) -> Reply {
    cluster.command_at("n1", &["GET", key])
}

#[test]
fn data_that_was_acknowledged_outlives_power_cuts_of_all_nodes() {
    let mut cluster = durable(false);
    let mut written = BTreeMap::new();
    for round in 0..CUTS {
        written.extend(keys_until_cut(&mut cluster, round, 500 + 300 * round));
        let mut names = NAMES;
        names.rotate_left(round);
        cluster.start_together(&names);
        cluster.await_safe(3);
        for (key, expected) in &written {
            let Some(expected) = expected else { continue };
            let found = value(&cluster, key);
            assert_eq!(
                found,
                Reply::Bulk(expected.clone().into_bytes()),
                "{key} in round {round}"
            );
        }
    }
}
