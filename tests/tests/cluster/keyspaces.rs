//! Keyspaces on real processes: created, used, altered with data in them, and dropped, through the
//! command line and Redis clients.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const KEYS: usize = 1000;

fn ok(client: &mut Client, words: &[&[u8]]) {
    assert_eq!(
        client.command(words).expect("a reply"),
        Reply::Simple("OK".into()),
        "{words:?}"
    );
}

fn get(client: &mut Client, key: &str) -> Reply {
    client.command(&[b"GET", key.as_bytes()]).expect("a reply")
}

fn client_in(cluster: &Cluster, node: &str, keyspace: &str) -> Client {
    let mut client = cluster.client(node);
    ok(&mut client, &[b"CLIENT", b"KEYSPACE", keyspace.as_bytes()]);
    client
}

#[test]
fn a_keyspace_is_created_used_altered_and_dropped() {
    let mut cluster = Cluster::of(BINARY, 3);
    let (made, said) = cluster.keyspace(
        "n1",
        &["create", "orders", "--partitions", "32", "--backups", "0"],
    );
    assert!(made && said.contains("32 partitions, 1 copy"), "{said}");

    // The same key in two keyspaces is two keys, at every node.
    let mut plain = cluster.client("n0");
    let mut orders = client_in(&cluster, "n2", "orders");
    for i in 0..KEYS {
        let key = format!("key-{i}");
        ok(&mut plain, &[b"SET", key.as_bytes(), b"plain"]);
        ok(&mut orders, &[b"SET", key.as_bytes(), b"order"]);
    }
    assert_eq!(
        orders.command(&[b"DBSIZE"]).expect("a reply"),
        Reply::Int(KEYS as i64)
    );
    // In one pipeline, each command uses the keyspace that was chosen before it.
    for words in [
        &[&b"GET"[..], b"key-1"][..],
        &[b"CLIENT", b"KEYSPACE", b"orders"],
        &[b"GET", b"key-1"],
        &[b"CLIENT", b"KEYSPACE"],
        &[b"RESET"],
        &[b"GET", b"key-1"],
    ] {
        plain.send(words).expect("the socket takes it");
    }
    let replies: Vec<Reply> = (0..6).map(|_| plain.reply().expect("a reply")).collect();
    let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    let simple = |text: &str| Reply::Simple(text.into());
    assert_eq!(
        replies,
        [
            bulk("plain"),
            simple("OK"),
            bulk("order"),
            bulk("orders"),
            simple("RESET"),
            bulk("plain")
        ]
    );

    // With two more copies, any one process may die.
    let (altered, said) = cluster.keyspace("n0", &["alter", "orders", "--backups", "2"]);
    assert!(altered && !said.contains("beware"), "{said}");
    cluster.await_safe(3);
    let (_, shown) = cluster.keyspace("n0", &["show", "orders", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let whole = |p: &Value| {
        p["backups"]
            .as_array()
            .is_some_and(|backups| backups.len() == 2)
    };
    assert!(
        shown["partitions"]
            .as_array()
            .is_some_and(|all| all.len() == 32 && all.iter().all(whole)),
        "{shown}"
    );
    cluster.kill("n1");
    cluster.await_safe(2);
    for node in ["n0", "n2"] {
        let mut orders = client_in(&cluster, node, "orders");
        let lost = (0..KEYS)
            .filter(|i| get(&mut orders, &format!("key-{i}")) != bulk("order"))
            .count();
        assert_eq!(lost, 0, "of {KEYS} keys at {node}");
    }

    // `drop` asks for confirmation. Without a terminal it needs --yes.
    let (dropped, said) = cluster.keyspace("n0", &["drop", "orders"]);
    assert!(!dropped && said.contains("--yes"), "{said}");
    let mut orders = client_in(&cluster, "n0", "orders");
    let (dropped, said) = cluster.keyspace("n0", &["drop", "orders", "--yes"]);
    assert!(dropped, "{said}");
    assert!(
        matches!(get(&mut orders, "key-1"), Reply::Error(e) if e.starts_with("CLUSTERDOWN")),
        "the chosen keyspace is gone"
    );
    assert_eq!(
        orders.command(&[b"CLIENT", b"KEYSPACE"]).expect("a reply"),
        Reply::Nil
    );

    // A new keyspace of that name begins empty, and the other keyspace has kept its data.
    let (made, said) = cluster.keyspace("n2", &["create", "orders", "--partitions", "32"]);
    assert!(made, "{said}");
    cluster.eventually("every node has the new keyspace", |c| {
        c.client("n0")
            .command(&[b"CLIENT", b"KEYSPACE", b"orders"])
            .is_ok_and(|reply| reply == simple("OK"))
    });
    assert_eq!(
        get(&mut client_in(&cluster, "n0", "orders"), "key-1"),
        Reply::Nil
    );
    let mut plain = cluster.client("n0");
    assert!((0..KEYS).all(|i| get(&mut plain, &format!("key-{i}")) == bulk("plain")));
}

/// The partitions of a keyspace, from `doyen keyspace show`. Nothing until the node knows the
/// keyspace.
fn partitions(cluster: &Cluster, node: &str, name: &str) -> Vec<Value> {
    let (known, shown) = cluster.keyspace(node, &["show", name, "--json"]);
    if !known {
        return Vec::new();
    }
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    shown["partitions"].as_array().cloned().unwrap_or_default()
}

/// The most and the fewest partitions that a member leads in a keyspace.
fn leads(partitions: &[Value], names: &[&str]) -> (usize, usize) {
    let of = |name: &str| partitions.iter().filter(|p| p["primary"] == *name).count();
    let all: Vec<usize> = names.iter().map(|name| of(name)).collect();
    (
        all.iter().copied().max().unwrap_or(0),
        all.iter().copied().min().unwrap_or(0),
    )
}

#[test]
fn a_ring_and_ranges_hold_their_keys_while_members_come_and_die() {
    let mut cluster = Cluster::of(BINARY, 3);
    let sample = cluster.file("sample");
    std::fs::write(
        &sample,
        (0..KEYS)
            .map(|i| format!("key-{i:04}\n"))
            .collect::<String>(),
    )
    .expect("a file");
    for (words, expected) in [
        (
            &["create", "ring", "--mode", "ring", "--tokens", "8"][..],
            "24 partitions, 2 copies",
        ),
        (
            &[
                "create",
                "names",
                "--mode",
                "range",
                "--split-at",
                "key-0500",
                "--split-at",
                r"key-0500\x00",
            ],
            "3 partitions, 2 copies",
        ),
        (
            &[
                "create",
                "sampled",
                "--mode",
                "range",
                "--sample",
                &sample.display().to_string(),
                "--ranges",
                "10",
            ],
            "10 partitions",
        ),
    ] {
        let (made, said) = cluster.keyspace("n1", words);
        assert!(made && said.contains(expected), "{said}");
    }
    let spaces = ["ring", "names", "sampled"];
    for space in spaces {
        let mut client = client_in(&cluster, "n0", space);
        for i in 0..KEYS {
            ok(
                &mut client,
                &[b"SET", format!("key-{i:04}").as_bytes(), space.as_bytes()],
            );
        }
        assert_eq!(
            client.command(&[b"DBSIZE"]).expect("a reply"),
            Reply::Int(KEYS as i64),
            "{space}"
        );
    }
    let (_, shown) = cluster.keyspace("n2", &["show", "names"]);
    assert!(
        shown.contains(r#""key-0500" "key-0500\x00""#) && shown.contains("the end"),
        "{shown}"
    );
    assert_eq!(
        leads(&partitions(&cluster, "n2", "ring"), &["n0", "n1", "n2"]),
        (8, 8)
    );

    // The newcomer gets its share, and then any member may die.
    cluster.join("n3");
    let all = ["n0", "n1", "n2", "n3"];
    cluster.eventually("every member leads its share", |c| {
        leads(&partitions(c, "n3", "ring"), &all) == (8, 8)
            && leads(&partitions(c, "n3", "sampled"), &all) == (3, 2)
    });
    cluster.await_safe(4);
    cluster.kill("n1");
    cluster.await_safe(3);
    for (space, node) in spaces.iter().zip(["n0", "n2", "n3"]) {
        let mut client = client_in(&cluster, node, space);
        let held = Reply::Bulk(space.as_bytes().to_vec());
        let lost = (0..KEYS)
            .filter(|i| get(&mut client, &format!("key-{i:04}")) != held)
            .count();
        assert_eq!(lost, 0, "of {KEYS} keys of {space} at {node}");
    }
}

/// `SCANRANGE` with these words.
fn scan(client: &mut Client, words: &[&str]) -> Vec<String> {
    let words: Vec<&[u8]> = std::iter::once(&b"SCANRANGE"[..])
        .chain(words.iter().map(|word| word.as_bytes()))
        .collect();
    let reply = client.command(&words).expect("a reply");
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

/// What a metric of a node counts, as the sum of all its series.
fn metric(cluster: &Cluster, node: &str, name: &str) -> u64 {
    let text = cluster.node(node).http("/metrics").expect("an answer");
    let values = text
        .lines()
        .filter(|line| line.starts_with(name))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

#[test]
fn ranges_are_scanned_in_order_by_their_partitions_alone() {
    let cluster = Cluster::of(BINARY, 3);
    let splits: Vec<String> = (1..10).map(|i| format!("key-{}", i * 100)).collect();
    let mut words = vec!["create", "names", "--mode", "range"];
    words.extend(splits.iter().flat_map(|split| ["--split-at", split]));
    let (made, said) = cluster.keyspace("n1", &words);
    assert!(made, "{said}");
    let keys: Vec<String> = (0..KEYS).map(|i| format!("key-{i:03}")).collect();
    let mut writer = client_in(&cluster, "n0", "names");
    for key in &keys {
        ok(
            &mut writer,
            &[b"SET", key.as_bytes(), format!("of {key}").as_bytes()],
        );
    }
    let mut client = client_in(&cluster, "n2", "names");
    assert_eq!(scan(&mut client, &["", ""]), keys);
    assert_eq!(
        scan(&mut client, &["", "", "REV"]),
        keys.iter().rev().cloned().collect::<Vec<_>>()
    );
    assert_eq!(scan(&mut client, &["key-095", "key-105"]), keys[95..105]);
    assert_eq!(
        scan(&mut client, &["key-095", "key-105", "LIMIT", "7"]),
        keys[95..102]
    );
    assert_eq!(
        scan(&mut client, &["key-095", "key-105", "LIMIT", "7", "REV"]),
        keys[98..105].iter().rev().cloned().collect::<Vec<_>>()
    );
    let pairs = scan(&mut client, &["key-199", "key-201", "withvalues"]);
    assert_eq!(pairs, ["key-199", "of key-199", "key-200", "of key-200"]);
    for nothing in [
        ["key-5", "key-5"],
        ["key-9", "key-1"],
        ["z", ""],
        ["a", "b"],
    ] {
        assert_eq!(scan(&mut client, &nothing), [""; 0]);
    }

    // The scan of two partitions asks only those two of ten.
    let asked = || {
        ["n0", "n1", "n2"]
            .map(|node| metric(&cluster, node, "doyen_range_scans_total"))
            .iter()
            .sum::<u64>()
    };
    let before = asked();
    assert_eq!(scan(&mut client, &["key-350", "key-450"]).len(), 100);
    assert_eq!(asked() - before, 2);

    // Mistakes are reported, and a keyspace without order has no ranges.
    let mut error = |words: &[&[u8]]| match client.command(words).expect("a reply") {
        Reply::Error(why) => why,
        reply => panic!("{reply:?}"),
    };
    assert!(error(&[b"SCANRANGE", b"a"]).contains("wrong number of arguments"));
    assert!(error(&[b"SCANRANGE", b"a", b"b", b"LIMIT"]).contains("syntax"));
    assert!(error(&[b"SCANRANGE", b"a", b"b", b"LIMIT", b"0"]).contains("at least 1"));
    assert!(error(&[b"SCANRANGE", b"a", b"b", b"LIMIT", b"x"]).contains("not an integer"));
    let reply = cluster
        .client("n0")
        .command(&[b"SCANRANGE", b"a", b"b"])
        .expect("a reply");
    assert!(
        matches!(&reply, Reply::Error(why) if why.contains("--mode range")),
        "{reply:?}"
    );
}

#[test]
fn keys_with_a_tag_are_scanned_by_their_partition_alone() {
    let cluster = Cluster::of(BINARY, 2);
    for (name, words) in [
        ("slots", &["--partitions", "64"][..]),
        ("ring", &["--mode", "ring", "--tokens", "8"]),
    ] {
        let (made, said) =
            cluster.keyspace("n0", &[&["create", name, "--ordered"], words].concat());
        assert!(made, "{said}");
        let mut client = client_in(&cluster, "n1", name);
        for (user, post) in (0..20).flat_map(|user| (0..20).map(move |post| (user, post))) {
            ok(
                &mut client,
                &[b"SET", format!("{{user{user}}}:{post:02}").as_bytes(), b"1"],
            );
        }
        let asked = || {
            ["n0", "n1"]
                .map(|node| metric(&cluster, node, "doyen_range_scans_total"))
                .iter()
                .sum::<u64>()
        };
        let before = asked();
        let posts: Vec<String> = (5..15).map(|post| format!("{{user7}}:{post:02}")).collect();
        assert_eq!(scan(&mut client, &["{user7}:05", "{user7}:15"]), posts);
        assert_eq!(
            scan(
                &mut client,
                &["{user7}:05", "{user7}:15", "REV", "LIMIT", "2"]
            ),
            [posts[9].as_str(), &posts[8]]
        );
        assert_eq!(asked() - before, 2, "one partition has them");
        assert_eq!(
            scan(&mut client, &["{user7}:10", ""]),
            (10..20)
                .map(|post| format!("{{user7}}:{post:02}"))
                .collect::<Vec<_>>()
        );
        assert_eq!(
            scan(&mut client, &["{user7}", "", "REV", "LIMIT", "1"]),
            ["{user7}:19"]
        );
        let wrong = client
            .command(&[b"SCANRANGE", b"{user7}:05", b"{user8}:15"])
            .expect("a reply");
        assert!(
            matches!(&wrong, Reply::Error(why) if why.contains("same {tag}")),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_mistake_gets_an_error_of_one_line_and_changes_nothing() {
    let cluster = Cluster::of(BINARY, 1);
    let wrong = |words: &[&str], expected: &str| {
        let (done, said) = cluster.keyspace("n0", words);
        assert!(
            !done && said.contains(expected) && said.trim_end().lines().count() == 1,
            "{words:?}: {said}"
        );
    };
    wrong(&["create", "a b"], "no name for a keyspace");
    wrong(&["create", "orders", "--partitions", "12"], "power of two");
    wrong(&["create", "orders", "--backups", "7"], "more than 6");
    wrong(
        &["create", "orders", "--mode", "hash"],
        "invalid value 'hash'",
    );
    wrong(
        &["create", "orders", "--mode", "ring", "--tokens", "0"],
        "not 1 to 256",
    );
    wrong(
        &["create", "orders", "--mode", "ring", "--partitions", "64"],
        "--partitions is for --mode fixed",
    );
    wrong(
        &["create", "orders", "--split-at", "m"],
        "--split-at is for --mode range",
    );
    wrong(
        &[
            "create",
            "orders",
            "--mode",
            "range",
            "--split-at",
            "m",
            "--split-at",
            "a",
        ],
        "stands behind a greater one",
    );
    wrong(
        &[
            "create",
            "orders",
            "--mode",
            "range",
            "--split-at",
            "m",
            "--split-at",
            "m",
        ],
        "is there twice",
    );
    wrong(
        &["create", "orders", "--mode", "range", "--split-at", r"\q"],
        "behind a backslash",
    );
    wrong(
        &[
            "create", "orders", "--mode", "range", "--sample", "/nowhere", "--ranges", "4",
        ],
        "/nowhere",
    );
    wrong(
        &[
            "create",
            "orders",
            "--mode",
            "range",
            "--sample",
            "/dev/null",
            "--ranges",
            "4",
        ],
        "not enough for 4 ranges",
    );
    wrong(
        &["create", "orders", "--min-in-sync", "3"],
        "at most 2 copies",
    );
    wrong(
        &["create", "orders", "--default-ttl", "soon"],
        "not a duration",
    );
    wrong(&["create", "default"], "with other settings");
    wrong(
        &["show", "orders"],
        "there is no keyspace \"orders\", only default: name one of them, or create it first",
    );
    wrong(
        &["alter", "orders", "--backups", "1"],
        "there is no keyspace",
    );
    wrong(&["alter", "default"], "say what to alter");
    wrong(&["alter", "default", "--mode", "ring"], "cannot be altered");
    wrong(
        &["alter", "default", "--min-in-sync", "3"],
        "min in sync must be 1 to 2 with 1 backups",
    );
    wrong(&["drop", "orders", "--yes"], "there is no keyspace");
    wrong(&["drop", "default", "--yes"], "cannot be dropped");
    let mut client = cluster.client("n0");
    for name in [&b"orders"[..], b"", b"\xff", b"a b"] {
        let reply = client
            .command(&[b"CLIENT", b"KEYSPACE", name])
            .expect("a reply");
        assert!(
            matches!(&reply, Reply::Error(e) if e.starts_with("ERR there is no keyspace")),
            "{reply:?}"
        );
    }
    let status = cluster.status("n0").expect("it answers");
    assert_eq!(
        status["keyspaces"].as_array().map(Vec::len),
        Some(1),
        "{status}"
    );
}
