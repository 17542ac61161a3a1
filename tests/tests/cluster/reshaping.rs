//! Splits and merges on real processes, while clients write, read and scan.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// Runs `doyen keyspace ...` against this node, which must succeed. Returns what it printed.
fn keyspace(cluster: &Cluster, node: &str, words: &[&str]) -> String {
    let (done, said) = cluster.keyspace(node, words);
    assert!(done, "{words:?}: {said}");
    said
}

/// What `doyen keyspace show` prints; nothing until the node knows the keyspace.
fn shown(cluster: &Cluster, node: &str, name: &str) -> Value {
    let (known, said) = cluster.keyspace(node, &["show", name, "--json"]);
    if known {
        serde_json::from_str(&said).expect("JSON")
    } else {
        Value::Null
    }
}

fn partitions(cluster: &Cluster, node: &str, name: &str) -> usize {
    shown(cluster, node, name)["partitions"]
        .as_array()
        .map_or(0, Vec::len)
}

/// Waits until nothing is split, merged or moved any more, and the number of partitions is right.
fn await_partitions(cluster: &Cluster, node: &str, name: &str, holds: impl Fn(usize) -> bool) {
    cluster.eventually(&format!("{name} has its partitions"), |c| {
        shown(c, node, name)["keyspace"]["reshaping"] == 0 && holds(partitions(c, node, name))
    });
}

fn client_in(cluster: &Cluster, node: &str, keyspace: &str) -> Client {
    let mut client = cluster.client(node);
    let chosen = client
        .command(&[b"CLIENT", b"KEYSPACE", keyspace.as_bytes()])
        .expect("a reply");
    assert_eq!(chosen, Reply::Simple("OK".into()));
    client
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    assert_eq!(
        client
            .command(&[b"SET", key.as_bytes(), value])
            .expect("a reply"),
        Reply::Simple("OK".into()),
        "{key}"
    );
}

/// All keys of a range, each as often as the scan returned it.
fn scan(client: &mut Client, from: &str, to: &str) -> Vec<String> {
    let reply = client
        .command(&[b"SCANRANGE", from.as_bytes(), to.as_bytes()])
        .expect("a reply");
    let Reply::Array(items) = reply else {
        panic!("{reply:?}")
    };
    let text = |item: Reply| {
        if let Reply::Bulk(text) = item {
            String::from_utf8_lossy(&text).into_owned()
        } else {
            panic!("{item:?}")
        }
    };
    items.into_iter().map(text).collect()
}

#[test]
fn a_range_that_grows_is_split_while_it_is_written_to_and_scanned() {
    let mut cluster = Cluster::new(BINARY);
    for node in ["n0", "n1", "n2"] {
        cluster.join_with(node, &["--range-max", "64kb"]);
    }
    cluster.await_safe(3);
    let said = keyspace(&cluster, "n0", &["create", "names", "--mode", "range"]);
    assert!(said.contains("1 partition,"), "{said}");
    let stable: Vec<String> = (0..300).map(|i| format!("stable-{i:03}")).collect();
    let mut writer = client_in(&cluster, "n0", "names");
    stable
        .iter()
        .for_each(|key| set(&mut writer, key, b"here all the time"));

    let over = AtomicBool::new(false);
    let written: Vec<String> = (0..3000)
        .map(|i| format!("key-{:04}", i * 7 % 3000))
        .collect();
    std::thread::scope(|scope| {
        let scanner = scope.spawn(|| {
            let mut client = client_in(&cluster, "n2", "names");
            let mut scans = 0;
            while !over.load(Ordering::Relaxed) || scans == 0 {
                let all = scan(&mut client, "", "");
                assert!(all.is_sorted_by(|a, b| a < b), "each key once, in order");
                assert_eq!(
                    all.iter().filter(|key| key.starts_with("stable")).count(),
                    stable.len()
                );
                scans += 1;
            }
            scans
        });
        written
            .iter()
            .for_each(|key| set(&mut writer, key, &[b'x'; 400]));
        await_partitions(&cluster, "n1", "names", |count| count >= 16);
        over.store(true, Ordering::Relaxed);
        assert!(scanner.join().expect("every scan was right") > 0);
    });

    // Any member may die: every key is still there, in every range.
    cluster.await_safe(3);
    cluster.kill("n1");
    cluster.await_safe(2);
    for node in ["n0", "n2"] {
        let mut client = client_in(&cluster, node, "names");
        let all: BTreeSet<String> = scan(&mut client, "", "").into_iter().collect();
        assert_eq!(all.len(), written.len() + stable.len());
        assert_eq!(
            client.command(&[b"DBSIZE"]).expect("a reply"),
            Reply::Int(all.len() as i64)
        );
        let lost = written
            .iter()
            .filter(|key| {
                client
                    .command(&[b"STRLEN", key.as_bytes()])
                    .expect("a reply")
                    != Reply::Int(400)
            })
            .count();
        assert_eq!(lost, 0, "of {} at {node}", written.len());
    }
}

#[test]
fn an_operator_splits_and_merges_ranges() {
    let cluster = Cluster::of(BINARY, 1);
    keyspace(&cluster, "n0", &["create", "names", "--mode", "range"]);
    let mut client = client_in(&cluster, "n0", "names");
    for key in ["a", "m", "z"] {
        set(&mut client, key, b"1");
    }
    assert!(keyspace(&cluster, "n0", &["split", "names", "--at", "m"]).contains("2 partitions"));
    assert!(
        keyspace(&cluster, "n0", &["split", "names", "--at", "m"])
            .contains("already has a range that begins there")
    );
    assert_eq!(scan(&mut client, "", ""), ["a", "m", "z"]);
    // A key keeps its deadline through a merge.
    assert_eq!(
        client
            .command(&[b"EXPIRE", b"z", b"1000"])
            .expect("a reply"),
        Reply::Int(1)
    );
    assert!(keyspace(&cluster, "n0", &["merge", "names", "--at", "m"]).contains("1 partition\n"));
    assert_eq!(scan(&mut client, "", ""), ["a", "m", "z"]);
    let left = client.command(&[b"TTL", b"z"]).expect("a reply");
    assert!(matches!(left, Reply::Int(900..=1000)), "{left:?}");

    let wrong = |words: &[&str], expected: &str| {
        let (done, said) = cluster.keyspace("n0", words);
        assert!(
            !done && said.contains(expected) && said.trim_end().lines().count() == 1,
            "{words:?}: {said}"
        );
    };
    wrong(&["merge", "names", "--at", "q"], "no range of keyspace");
    wrong(&["split", "default", "--at", "q"], "has no ranges");
    wrong(&["split", "names", "--at", ""], "not empty");
    wrong(&["split", "nowhere", "--at", "q"], "nowhere");
    wrong(&["alter", "names", "--partitions", "8"], "not fixed");
    wrong(
        &["alter", "default", "--partitions", "32"],
        "from 64 to 16384",
    );
    wrong(&["alter", "default", "--partitions", "100"], "power of two");
}

#[test]
fn a_fixed_keyspace_is_doubled_while_it_is_written_to() {
    let mut cluster = Cluster::of(BINARY, 3);
    let mut writer = cluster.client("n0");
    let keys: Vec<String> = (0..4000).map(|i| format!("key-{i}")).collect();
    keys[..1000]
        .iter()
        .for_each(|key| set(&mut writer, key, b"before"));
    keyspace(&cluster, "n1", &["alter", "default", "--partitions", "256"]);
    keys[1000..]
        .iter()
        .for_each(|key| set(&mut writer, key, b"meanwhile"));
    await_partitions(&cluster, "n2", "default", |count| count == 256);
    cluster.await_safe(3);
    let slots = cluster
        .client("n2")
        .command(&[b"CLUSTER", b"INFO"])
        .expect("a reply");
    assert!(
        matches!(
            &slots,
            Reply::Bulk(text)
                if String::from_utf8_lossy(text).contains("cluster_slots_assigned:16384")
        ),
        "{slots:?}"
    );
    cluster.kill("n1");
    cluster.await_safe(2);
    for node in ["n0", "n2"] {
        let mut client = cluster.client(node);
        assert_eq!(
            client.command(&[b"DBSIZE"]).expect("a reply"),
            Reply::Int(keys.len() as i64)
        );
        let missing = keys
            .iter()
            .filter(|key| {
                client
                    .command(&[b"EXISTS", key.as_bytes()])
                    .expect("a reply")
                    != Reply::Int(1)
            })
            .count();
        assert_eq!(missing, 0, "at {node}");
    }
}

#[test]
fn a_ring_gains_and_loses_tokens_with_its_members() {
    let mut cluster = Cluster::of(BINARY, 2);
    keyspace(
        &cluster,
        "n0",
        &["create", "ring", "--mode", "ring", "--tokens", "8"],
    );
    let mut writer = client_in(&cluster, "n0", "ring");
    let keys: Vec<String> = (0..1000).map(|i| format!("key-{i}")).collect();
    keys.iter().for_each(|key| set(&mut writer, key, b"1"));
    assert_eq!(partitions(&cluster, "n1", "ring"), 16);
    cluster.join("n2");
    await_partitions(&cluster, "n2", "ring", |count| count == 24);
    cluster.await_safe(3);
    cluster.kill("n1");
    await_partitions(&cluster, "n2", "ring", |count| count == 16);
    cluster.await_safe(2);
    let mut client = client_in(&cluster, "n2", "ring");
    let missing = keys
        .iter()
        .filter(|key| {
            client
                .command(&[b"EXISTS", key.as_bytes()])
                .expect("a reply")
                != Reply::Int(1)
        })
        .count();
    assert_eq!(missing, 0);
    assert_eq!(
        client.command(&[b"DBSIZE"]).expect("a reply"),
        Reply::Int(keys.len() as i64)
    );
}

/// Operations that nodes executed, and operations that they forwarded.
fn hops(cluster: &Cluster) -> [u64; 2] {
    let counted = |text: &str, name: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("nodes count it");
        line.trim().parse().expect("a number")
    };
    let all = cluster
        .nodes
        .values()
        .map(|node| node.http("/metrics").expect("metrics"));
    all.fold([0, 0], |[executed, forwarded], text| {
        [
            executed + counted(&text, "doyen_operations_executed_total "),
            forwarded + counted(&text, "doyen_operations_forwarded_total "),
        ]
    })
}

#[test]
fn operations_of_a_client_take_one_hop_also_after_a_split() {
    const KEYS: u64 = 300;
    let cluster = Cluster::of(BINARY, 3);
    keyspace(
        &cluster,
        "n0",
        &[
            "create",
            "names",
            "--mode",
            "range",
            "--split-at",
            "key-1",
            "--split-at",
            "key-2",
        ],
    );
    keyspace(&cluster, "n0", &["create", "ring", "--mode", "ring"]);
    cluster.await_safe(3);
    let seeds: Vec<String> = cluster
        .nodes
        .values()
        .map(|node| node.ready.data.to_string())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let client = doyen::Node::builder()
        .client()
        .seeds(seeds)
        .secret_file(cluster.secret_file());
    let client = runtime.block_on(client.start()).expect("a client connects");
    let use_all = || {
        runtime.block_on(async {
            for name in ["default", "names", "ring"] {
                let database = client.database_in(name).await.expect("a keyspace");
                for i in 0..KEYS {
                    let key = format!("key-{i}");
                    database.set(key.clone(), name).await.expect("written");
                    assert_eq!(
                        database.get(key).await.expect("read").as_deref(),
                        Some(name.as_bytes())
                    );
                }
            }
        });
    };
    use_all();
    let before = hops(&cluster);
    use_all();
    let after = hops(&cluster);
    assert_eq!(
        [after[0] - before[0], after[1] - before[1]],
        [6 * KEYS, 0],
        "executed and forwarded"
    );

    // The client has the table in which this is one range. The primary of that range tells it of
    // the next table.
    let version = |node: &str| -> Value {
        serde_json::from_str(&cluster.node(node).http("/table").expect("a table")).expect("JSON")
    };
    let old = version("n1");
    keyspace(&cluster, "n0", &["split", "names", "--at", "key-15"]);
    use_all();
    await_partitions(&cluster, "n1", "names", |count| count == 4);
    let before = hops(&cluster);
    use_all();
    let after = hops(&cluster);
    assert_eq!(
        [after[0] - before[0], after[1] - before[1]],
        [6 * KEYS, 0],
        "executed and forwarded"
    );

    // Over HTTP, too, a client can ask what is new since a table.
    let news = format!("/table?since={}.{}", old["term"], old["version"]);
    let news: Value =
        serde_json::from_str(&cluster.node("n1").http(&news).expect("news")).expect("JSON");
    assert_eq!(
        news["since"],
        serde_json::json!({ "term": old["term"], "version": old["version"] })
    );
    let changed: Vec<&Value> = news["keyspaces"]
        .as_array()
        .expect("keyspaces")
        .iter()
        .collect();
    assert_eq!(
        (changed.len(), &changed[0]["name"]),
        (1, &Value::from("names")),
        "{news}"
    );
    assert_eq!(
        (
            changed[0]["partitions"].as_array().map(Vec::len),
            changed[0]["gone"].as_array().map(Vec::len)
        ),
        (Some(2), Some(1))
    );
    for wrong in [
        "/table?since=x",
        "/table?since=1",
        "/table?sinse=1.1",
        "/table?since=1.1&since=1.2",
    ] {
        let refused = cluster.node("n1").http(wrong).expect_err(wrong).to_string();
        assert!(
            refused.contains("400") && refused.contains("/table"),
            "{wrong}: {refused}"
        );
    }
    runtime.block_on(client.shutdown());
}
