//! Real processes: some do not reach each other, and all others reach them.

use doyen::report::status::ClusterReport;
use doyen::report::table::{KeysReport, PartitionReport, TableReport};
use doyen::testkit::{Cluster, PATIENCE, Plane, TestkitError};
use doyen_tests::process::http;
use doyen_tests::resp::{Client, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// Calls that one forwarded to the other waited for the end of the cut, and failed after 5 s.
#[test]
fn a_cut_between_two_data_ports_fails_no_operation() {
    let runtime = Runtime::new().expect("a runtime");
    let mut cluster = runtime
        .block_on(
            Cluster::builder()
                .binary(BINARY)
                .option("partitions", 64)
                .start(3),
        )
        .expect("three nodes");
    let mut clients = [0, 1].map(|node| {
        Client::connect(cluster.resp(node).expect("it runs"), PATIENCE).expect("it answers")
    });
    // Each of the two forwards to the other, and has copies of partitions that the other leads.
    let table = runtime.block_on(cluster.table(2)).expect("a table");
    let partitions = table.keyspaces.iter().flat_map(|k| &k.partitions);
    let leads: BTreeSet<&str> = partitions.map(|p| p.primary.as_str()).collect();
    assert!(
        [0, 1]
            .iter()
            .all(|node| leads.contains(cluster.name(*node))),
        "{leads:?}"
    );
    for (from, to) in [(0, 1), (1, 0)] {
        cluster.cut_plane(from, to, Plane::Data);
    }
    for round in 0..3 {
        for key in 0..100 {
            let (key, value) = (format!("key {key}"), format!("round {round}"));
            let [one, other] = &mut clients;
            assert_eq!(
                one.command(&[b"SET", key.as_bytes(), value.as_bytes()])
                    .expect("a reply"),
                Reply::Simple("OK".into()),
                "{key}"
            );
            assert_eq!(
                other.command(&[b"GET", key.as_bytes()]).expect("a reply"),
                Reply::Bulk(value.into()),
                "{key}"
            );
        }
        clients.reverse();
    }
    cluster.heal();
    runtime
        .block_on(cluster.await_safe(PATIENCE))
        .expect("all is safe");
}

/// The member was expelled, came back through others, and was expelled again, until the cut ended.
#[test]
fn a_member_that_the_coordinator_cannot_reach_waits_and_comes_back() {
    let runtime = Runtime::new().expect("a runtime");
    let mut cluster = runtime
        .block_on(
            Cluster::builder()
                .binary(BINARY)
                .option("partitions", 64)
                .start(4),
        )
        .expect("four nodes");
    let coordinator = runtime
        .block_on(cluster.coordinator())
        .expect("there is a coordinator");
    let apart = (coordinator + 1) % 4;
    for (from, to) in [(coordinator, apart), (apart, coordinator)] {
        cluster.cut_plane(from, to, Plane::Control);
    }
    let until = Instant::now() + PATIENCE;
    while !cluster
        .log(apart)
        .contains("it stays outside until it does")
    {
        assert!(Instant::now() < until, "{}", cluster.log(apart));
        std::thread::sleep(Duration::from_millis(20));
    }
    let members = runtime
        .block_on(cluster.status(coordinator))
        .expect("a status")
        .members;
    assert!(
        !members.iter().any(|m| m.name == cluster.name(apart)),
        "{members:?}"
    );
    let mut client =
        Client::connect(cluster.resp(apart).expect("it runs"), PATIENCE).expect("it answers");
    let refused = client
        .command(&[b"SET", b"key", b"value"])
        .expect("a reply");
    assert!(
        matches!(&refused, Reply::Error(why) if why.starts_with("CLUSTERDOWN")),
        "{refused:?}"
    );
    cluster.heal();
    runtime
        .block_on(cluster.await_safe(PATIENCE))
        .expect("all is safe");
    assert_eq!(
        client
            .command(&[b"SET", b"key", b"value"])
            .expect("a reply"),
        Reply::Simple("OK".into())
    );
}

/// The plan used the member as if others could copy to it. So nothing was repaired while it was
/// there, and a second death lost data.
#[test]
fn a_member_with_a_shut_data_port_delays_no_repair() {
    let runtime = Runtime::new().expect("a runtime");
    let mut cluster = runtime
        .block_on(
            Cluster::builder()
                .binary(BINARY)
                .option("partitions", 64)
                .start(5),
        )
        .expect("five nodes");
    let coordinator = runtime
        .block_on(cluster.coordinator())
        .expect("there is a coordinator");
    let [shut, first, second] = [1, 2, 3].map(|n| (coordinator + n) % 5);
    let mut client =
        Client::connect(cluster.resp(coordinator).expect("it runs"), PATIENCE).expect("it answers");
    let keys: Vec<String> = (0..500).map(|key| format!("key {key}")).collect();
    for key in &keys {
        assert_eq!(
            client
                .command(&[b"SET", key.as_bytes(), key.as_bytes()])
                .expect("a reply"),
            Reply::Simple("OK".into()),
            "{key}"
        );
    }
    for other in (0..5).filter(|n| *n != shut) {
        cluster.cut_plane(shut, other, Plane::Data);
        cluster.cut_plane(other, shut, Plane::Data);
    }
    let name = cluster.name(shut).to_owned();
    // A copy there that blocks writes is dropped before there is another one. Until then, its
    // primary alone has that data.
    await_that(
        &runtime,
        &cluster,
        coordinator,
        "no partition needs its copies, and others have all of them",
        |table, status| {
            let holds = table
                .keyspaces
                .iter()
                .flat_map(|k| &k.partitions)
                .any(|p| p.primary == name || p.backups.contains(&name));
            !holds && status.keyspaces.iter().all(|k| k.under_replicated == 0)
        },
    );
    let ready = http(cluster.http(shut).expect("it runs"), "/readyz", None)
        .expect_err("it is not ready")
        .to_string();
    assert!(
        ready.contains("503") && ready.contains("reaches no other member's data port"),
        "{ready}"
    );
    assert!(
        cluster
            .log(coordinator)
            .contains("answers, but others cannot copy to it"),
        "{}",
        cluster.log(coordinator)
    );
    // One after the other, each once the copies of the one before are made again. The member behind
    // the shut port can give none.
    for victim in [first, second] {
        cluster.kill(victim);
        let name = cluster.name(victim).to_owned();
        await_that(
            &runtime,
            &cluster,
            coordinator,
            "its copies are made again",
            |_, status| {
                status.members.iter().all(|m| m.name != name)
                    && status
                        .keyspaces
                        .iter()
                        .all(|k| k.under_replicated == 0 && k.unavailable == 0)
            },
        );
    }
    for key in &keys {
        assert_eq!(
            client.command(&[b"GET", key.as_bytes()]).expect("a reply"),
            Reply::Bulk(key.clone().into()),
            "{key}"
        );
    }
    cluster.heal();
    runtime
        .block_on(cluster.await_safe(PATIENCE))
        .expect("all is safe");
}

/// A key's value as it should be read; `None`: there is no such key.
type Expected = BTreeMap<String, Option<&'static str>>;

/// Two of five members are cut off for longer than it takes to expel them. They alone have copies
/// of some partitions. The keyspace `default` waits ten minutes for such holders (`reset:10m`), and
/// `hasty` waits three seconds.
#[test]
fn partitions_behind_a_cut_come_back_in_time_or_begin_empty() {
    const KEYSPACES: [&str; 2] = ["default", "hasty"];
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Cluster::builder()
        .binary(BINARY)
        .directory(directory.path())
        .option("partitions", 64);
    let mut cluster = runtime.block_on(builder.start(5)).expect("five nodes");
    let coordinator = runtime
        .block_on(cluster.coordinator())
        .expect("there is a coordinator");
    let http = cluster.http(coordinator).expect("it runs").to_string();
    let mut create = Command::new(BINARY);
    create.args([
        "keyspace",
        "create",
        "hasty",
        "--partitions",
        "64",
        "--on-loss",
        "reset:3s",
        "--http",
        &http,
        "--secret-file",
    ]);
    let created = create
        .arg(directory.path().join("secret"))
        .output()
        .expect("the program runs");
    assert!(created.status.success(), "{created:?}");
    runtime
        .block_on(cluster.await_safe(PATIENCE))
        .expect("all is safe");

    let small = BTreeSet::from([(coordinator + 1) % 5, (coordinator + 2) % 5]);
    let holders: BTreeSet<&str> = small.iter().map(|node| cluster.name(*node)).collect();
    let before = runtime
        .block_on(cluster.table(coordinator))
        .expect("a table");
    let [kept, lost] = KEYSPACES.map(|keyspace| {
        partitions(&before, keyspace)
            .filter(|p| holds_all(&holders, p))
            .collect::<Vec<_>>()
    });
    assert!(!kept.is_empty() && !lost.is_empty(), "{before:?}");
    let apart = |partitions: &[&PartitionReport], key: &str| {
        let slot = doyen_placement::hash::slot(key.as_bytes());
        partitions.iter().any(|p| {
            matches!(
                p.keys,
                KeysReport::Slots([first, last]) if (first..=last).contains(&slot)
            )
        })
    };
    let mut expected = KEYSPACES.map(|_| {
        (0..300)
            .map(|key| (format!("key-{key}"), Some("before")))
            .collect::<Expected>()
    });
    let mut clients = KEYSPACES.map(|keyspace| client_in(&cluster, coordinator, keyspace));
    for (client, expected) in clients.iter_mut().zip(&expected) {
        expected.keys().for_each(|key| write(client, key, "before"));
    }

    let began = Instant::now();
    cluster.isolate(&small);
    let waits = |table: &TableReport| {
        assert_eq!(
            lineages(table, "default"),
            lineages(&before, "default"),
            "a partition that is only cut off began empty"
        );
    };
    await_that(
        &runtime,
        &cluster,
        coordinator,
        "`hasty` is whole again, and `default` waits",
        |table, status| {
            waits(table);
            let lacks = |name: &str| {
                status
                    .keyspaces
                    .iter()
                    .find(|k| k.name == name)
                    .map(|k| (k.unavailable, k.under_replicated))
            };
            let begun = |p: &&PartitionReport| {
                partitions(table, "hasty").any(|now| now.id == p.id && now.lineage != p.lineage)
            };
            lacks("hasty") == Some((0, 0))
                && lacks("default").is_some_and(|l| l.0 == kept.len())
                && lost.iter().all(begun)
        },
    );
    // All other partitions are served: every third key is written.
    expected[1]
        .iter_mut()
        .filter(|(key, _)| apart(&lost, key))
        .for_each(|(_, value)| *value = None);
    for ((client, expected), unserved) in
        clients.iter_mut().zip(&mut expected).zip([&kept[..], &[]])
    {
        for (number, (key, value)) in expected
            .iter_mut()
            .filter(|(key, _)| !apart(unserved, key))
            .enumerate()
        {
            assert_eq!(read(client, key), value.map(str::to_owned), "{key}");
            if number % 3 == 0 {
                write(client, key, "during");
                *value = Some("during");
            }
        }
    }
    // The small side still has partitions that began empty on the other side. It serves none of
    // them, and takes no write.
    let stale = (0..)
        .map(|n| format!("stale-{n}"))
        .find(|key| apart(&lost, key))
        .expect("there is always another");
    for node in &small {
        let mut client = client_in(&cluster, *node, "hasty");
        for words in [
            &[b"GET", stale.as_bytes()][..],
            &[b"SET", stale.as_bytes(), b"written on the small side"],
        ] {
            let reply = client.command(words).expect("a reply");
            assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
        }
    }
    // From here on, only time has to pass.
    while began.elapsed() < Duration::from_secs(10) {
        waits(
            &runtime
                .block_on(cluster.table(coordinator))
                .expect("a table"),
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    cluster.heal();
    runtime
        .block_on(cluster.await_safe(PATIENCE))
        .expect("all is safe");
    waits(
        &runtime
            .block_on(cluster.table(coordinator))
            .expect("a table"),
    );
    for node in 0..5 {
        for (keyspace, expected) in KEYSPACES.into_iter().zip(&expected) {
            let mut client = client_in(&cluster, node, keyspace);
            for (key, value) in expected {
                assert_eq!(
                    read(&mut client, key),
                    value.map(str::to_owned),
                    "{key} of {keyspace} through {node}"
                );
            }
        }
    }
    let logs: Vec<String> = (0..5).map(|node| cluster.log(node)).collect();
    let emptied: Vec<&str> = logs
        .iter()
        .flat_map(|log| log.lines())
        .filter(|line| line.contains("began empty"))
        .collect();
    assert!(
        !emptied.is_empty() && emptied.iter().all(|line| line.contains("hasty")),
        "{emptied:?}"
    );
}

fn partitions<'a>(
    table: &'a TableReport,
    keyspace: &str,
) -> impl Iterator<Item = &'a PartitionReport> {
    table
        .keyspaces
        .iter()
        .filter(move |k| k.name == keyspace)
        .flat_map(|k| &k.partitions)
}

/// Whether these members have every copy of a partition.
fn holds_all(members: &BTreeSet<&str>, partition: &PartitionReport) -> bool {
    partition
        .backups
        .iter()
        .chain([&partition.primary])
        .all(|name| members.contains(name.as_str()))
}

/// The lineages of all partitions. A new lineage means that the partition began empty.
fn lineages(table: &TableReport, keyspace: &str) -> BTreeMap<u32, u64> {
    partitions(table, keyspace)
        .map(|p| (p.id, p.lineage))
        .collect()
}

fn client_in(cluster: &Cluster, node: usize, keyspace: &str) -> Client {
    let mut client =
        Client::connect(cluster.resp(node).expect("it runs"), PATIENCE).expect("it answers");
    let chosen = client
        .command(&[b"CLIENT", b"KEYSPACE", keyspace.as_bytes()])
        .expect("a reply");
    assert_eq!(chosen, Reply::Simple("OK".into()));
    client
}

fn write(client: &mut Client, key: &str, value: &str) {
    let reply = client
        .command(&[b"SET", key.as_bytes(), value.as_bytes()])
        .expect("a reply");
    assert_eq!(reply, Reply::Simple("OK".into()), "{key}");
}

fn read(client: &mut Client, key: &str) -> Option<String> {
    match client.command(&[b"GET", key.as_bytes()]).expect("a reply") {
        Reply::Bulk(value) => Some(String::from_utf8_lossy(&value).into_owned()),
        Reply::Nil => None,
        other => panic!("{key}: {other:?}"),
    }
}

/// Waits until the table and the status of a node are like this. If they never are, it prints them,
/// and the node's log in short lines that are readable in the output of a CI.
fn await_that(
    runtime: &Runtime,
    cluster: &Cluster,
    node: usize,
    what: &str,
    holds: impl Fn(&TableReport, &ClusterReport) -> bool,
) {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = runtime.block_on(async {
            Ok::<_, TestkitError>((cluster.table(node).await?, cluster.status(node).await?))
        });
        let (table, status) = seen.expect("it answers");
        if holds(&table, &status) {
            return;
        }
        if Instant::now() >= until {
            let members: Vec<String> = status.members.iter().map(|m| format!("{m:?}")).collect();
            let keyspaces: Vec<String> =
                status.keyspaces.iter().map(|k| format!("{k:?}")).collect();
            let partitions: Vec<String> = table
                .keyspaces
                .iter()
                .flat_map(|k| &k.partitions)
                .map(|p| format!("{p:?}"))
                .collect();
            let log = cluster.log(node);
            panic!(
                "never happened: {what}\n{}\n{}\n{}\n{log}",
                members.join("\n"),
                keyspaces.join("\n"),
                partitions.join("\n")
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
