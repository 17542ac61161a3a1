//! Commands on several keys of one partition, and those that find a key by themselves.

use super::*;
use std::collections::BTreeSet;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

fn error(reply: &Reply) -> &str {
    let Reply::Error(text) = reply else {
        panic!("no error: {reply:?}")
    };
    text
}

#[tokio::test]
async fn keys_with_one_tag_are_renamed_copied_and_set_together_on_both_ports() {
    let node = Node::start(None, 10);
    for at in [node.resp, node.cluster] {
        let mut client = Client::connect(at).await.unwrap();
        for (line, reply) in [
            ("DEL {t}a {t}b {t}c", None),
            ("MSETNX {t}a 1 {t}b 2", Some(Reply::Int(1))),
            ("MSETNX {t}c 1 {t}b 2", Some(Reply::Int(0))),
            ("RENAME {t}a {t}c", Some(simple("OK"))),
            (
                "RENAME {t}a {t}c",
                Some(Reply::Error("ERR no such key".to_owned())),
            ),
            ("RENAMENX {t}b {t}c", Some(Reply::Int(0))),
            ("COPY {t}c {t}b REPLACE", Some(Reply::Int(1))),
            ("GET {t}b", Some(bulk("1"))),
            ("MSETEX 2 {t}b x {t}c y XX EX 100", Some(Reply::Int(1))),
            ("TTL {t}c", Some(Reply::Int(100))),
            (
                "COMMAND GETKEYS MSETEX 2 a 1 b 2 NX",
                Some(Reply::Array(vec![bulk("a"), bulk("b")])),
            ),
            (
                "EVAL redis.call('RENAME',KEYS[1],KEYS[2])return(redis.call('GET',KEYS[2])) 2 {t}b {t}a",
                Some(bulk("x")),
            ),
        ] {
            let answered = ask(&mut client, line).await;
            assert!(reply.is_none_or(|r| r == answered), "{line}: {answered:?}");
        }
    }
    node.stop().await;
}

/// Names of keys in different partitions, for any two of them.
pub(super) async fn apart(client: &mut Client) -> [String; 3] {
    let mut names = vec!["k0".to_owned()];
    for n in 1..1_000 {
        let name = format!("k{n}");
        let mut apart = true;
        for other in &names {
            let refused = ask(client, &format!("MSETNX {other} 1 {name} 1")).await;
            let is_apart = matches!(&refused, Reply::Error(text) if text.starts_with("CROSSSLOT"));
            apart &= is_apart;
            ask(client, &format!("DEL {other} {name}")).await;
        }
        if apart {
            names.push(name);
        }
        if let Ok(names) = <[String; 3]>::try_from(names.clone()) {
            return names;
        }
    }
    panic!("all keys are in one partition");
}

#[tokio::test]
async fn keys_of_several_partitions_are_set_together_only_with_a_tag() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let [a, b, _] = apart(&mut client).await;
    ask(&mut client, &format!("SET {a} v")).await;
    let line = format!("RENAME {a} {b}");
    assert_eq!(ask(&mut client, "MULTI").await, simple("OK"));
    assert_eq!(
        ask(&mut client, &format!("SET {a} new")).await,
        simple("QUEUED")
    );
    assert_eq!(ask(&mut client, &line).await, simple("QUEUED"));
    let refused = ask(&mut client, "EXEC").await;
    assert!(error(&refused).starts_with("CROSSSLOT"), "{refused:?}");
    assert!(error(&refused).contains("{tag}"), "{refused:?}");
    assert_eq!(ask(&mut client, &format!("GET {a}")).await, bulk("v"));
    assert_eq!(ask(&mut client, &format!("GET {b}")).await, Reply::Nil);
    // A cluster-aware client gets the text that it knows.
    let mut cluster = Client::connect(node.cluster).await.unwrap();
    for line in [
        "RENAME a b",
        "RENAMENX a b",
        "MSETNX a 1 b 2",
        "MSETEX 2 a 1 b 2",
        "COPY a b",
    ] {
        let text = "CROSSSLOT Keys in request don't hash to the same slot";
        assert_eq!(ask(&mut cluster, line).await, Reply::Error(text.to_owned()));
    }
    node.stop().await;
}

#[tokio::test]
async fn any_two_keys_are_renamed_and_copied_as_in_redis() {
    for threads in [1, 2] {
        let node = Node::of_threads(threads, None, 10, limits());
        let mut client = node.client().await;
        let [a, b, c] = apart(&mut client).await;
        let long = "x".repeat(100);
        let missing = Reply::Error("ERR no such key".to_owned());
        for (line, reply) in [
            (format!("RENAME {a} {b}"), missing.clone()),
            (format!("RENAMENX {a} {b}"), missing.clone()),
            (format!("COPY {a} {b}"), Reply::Int(0)),
            (format!("SET {b} taken"), simple("OK")),
            (format!("RENAMENX {a} {b}"), missing.clone()),
            (format!("SET {a} v PXAT 4000000000123"), simple("OK")),
            (format!("RENAME {a} {a}"), simple("OK")),
            (format!("RENAMENX {a} {a}"), Reply::Int(0)),
            (format!("RENAMENX {a} {b}"), Reply::Int(0)),
            (format!("COPY {a} {b}"), Reply::Int(0)),
            (format!("GET {b}"), bulk("taken")),
            (format!("COPY {a} {b} REPLACE"), Reply::Int(1)),
            (format!("PEXPIRETIME {b}"), Reply::Int(4_000_000_000_123)),
            (format!("GET {b}"), bulk("v")),
            (format!("RENAMENX {a} {c}"), Reply::Int(1)),
            (format!("EXISTS {a}"), Reply::Int(0)),
            (format!("PEXPIRETIME {c}"), Reply::Int(4_000_000_000_123)),
            (format!("RENAME {c} {b}"), simple("OK")),
            (format!("EXISTS {c}"), Reply::Int(0)),
            // Hashes: a small one, and one with rows and deadlines.
            (format!("HSET {a} f 1 g 2"), Reply::Int(2)),
            (format!("RENAME {a} {b}"), simple("OK")),
            (format!("PEXPIRETIME {b}"), Reply::Int(-1)),
            (
                format!("HPEXPIREAT {b} 4000000000321 FIELDS 1 f"),
                Reply::Array(vec![Reply::Int(1)]),
            ),
            (format!("HSET {b} {long} {long}"), Reply::Int(1)),
            (format!("COPY {b} {c} DB 3"), Reply::Int(1)),
            (format!("RENAME {b} {a}"), simple("OK")),
            (
                format!("HPEXPIRETIME {a} FIELDS 2 f g"),
                Reply::Array(vec![Reply::Int(4_000_000_000_321), Reply::Int(-1)]),
            ),
            (
                format!("HMGET {a} f g {long}"),
                Reply::Array(vec![bulk("1"), bulk("2"), bulk(&long)]),
            ),
            (format!("HLEN {a}"), Reply::Int(3)),
            (format!("EXISTS {b} {c}"), Reply::Int(0)),
            ("SELECT 3".to_owned(), simple("OK")),
            (
                format!("HPEXPIRETIME {c} FIELDS 1 f"),
                Reply::Array(vec![Reply::Int(4_000_000_000_321)]),
            ),
            ("SELECT 0".to_owned(), simple("OK")),
            (format!("SET {b} gone PX 1"), simple("OK")),
        ] {
            assert_eq!(ask(&mut client, &line).await, reply, "{line}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(ask(&mut client, &format!("RENAME {b} {c}")).await, missing);
        assert_eq!(
            ask(&mut client, &format!("RENAMENX {a} {b}")).await,
            Reply::Int(1)
        );
        // In one pipeline, each command sees what the one before did.
        let lines = [
            format!("SET {a} 1"),
            format!("RENAME {a} {b}"),
            format!("GET {b}"),
            format!("INCR {b}"),
            format!("RENAME {b} {c}"),
            format!("MGET {a} {b} {c}"),
        ];
        let all: Vec<_> = lines.iter().map(|line| words(line)).collect();
        let replies = client.pipeline(&all).await.unwrap();
        let found = Reply::Array(vec![Reply::Nil, Reply::Nil, bulk("2")]);
        assert_eq!(replies[5], found, "{replies:?}");
        node.stop().await;
    }
}

/// A hash of `fields` fields of 1,000 bytes. Each expires at its own time.
async fn fill(client: &mut Client, key: &str, fields: u64) {
    let value = "v".repeat(1_000);
    for n in 0..fields {
        let at = 4_000_000_000_000 + n;
        let line = format!("HSETEX {key} PXAT {at} FIELDS 1 f{n} {value}");
        let mut pipeline = vec![words(&line)];
        if n + 1 == fields {
            pipeline.push(words(&format!("PEXPIREAT {key} 5000000000007")));
        }
        client.pipeline(&pipeline).await.unwrap();
    }
}

/// Regression: values of more than one record were refused as too large a string.
#[tokio::test]
async fn a_value_of_any_size_is_renamed_and_copied_and_is_never_seen_in_part() {
    let limits = Limits {
        value_bytes_max: 128 << 10,
        ..limits()
    };
    let node = Node::of_threads(2, None, 10, limits);
    let mut client = node.client().await;
    let [a, b, _] = apart(&mut client).await;
    fill(&mut client, &a, 1_000).await;
    let same = format!("{{{a}}}2");
    // Another client looks all the time.
    let (looks, mut watcher) = (format!("HLEN {b}"), node.client().await);
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = over.clone();
    let watching = tokio::spawn(async move {
        let mut seen = BTreeSet::new();
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            let Reply::Int(length) = ask(&mut watcher, &looks).await else {
                panic!("no length")
            };
            seen.insert(length);
        }
        seen
    });
    for (line, reply) in [
        (format!("COPY {a} {b}"), Reply::Int(1)),
        (format!("COPY {a} {b}"), Reply::Int(0)),
        (format!("COPY {a} {same}"), Reply::Int(1)),
        (format!("RENAMENX {same} {b}"), Reply::Int(0)),
        (format!("RENAME {same} {b}"), simple("OK")),
        (format!("RENAME {b} {same}"), simple("OK")),
        (format!("RENAME {same} {b}"), simple("OK")),
        (format!("HLEN {b}"), Reply::Int(1_000)),
        (format!("PEXPIRETIME {b}"), Reply::Int(5_000_000_000_007)),
        (format!("EXISTS {same}"), Reply::Int(0)),
        (format!("HLEN {a}"), Reply::Int(1_000)),
        ("DBSIZE".to_owned(), Reply::Int(2)),
    ] {
        assert_eq!(ask(&mut client, &line).await, reply, "{line}");
    }
    for n in [0, 1, 500, 999] {
        let line = format!("HPEXPIRETIME {b} FIELDS 1 f{n}");
        let at = Reply::Array(vec![Reply::Int(4_000_000_000_000 + n)]);
        assert_eq!(ask(&mut client, &line).await, at);
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    let seen = watching.await.unwrap();
    assert!(seen.is_subset(&BTreeSet::from([0, 1_000])), "{seen:?}");
    // Where steps cannot be taken, the answer says why.
    for line in ["MULTI", &format!("COPY {a} {same}")] {
        ask(&mut client, line).await;
    }
    let Reply::Array(replies) = ask(&mut client, "EXEC").await else {
        panic!("no transaction")
    };
    assert!(
        error(&replies[0]).contains("inside of MULTI"),
        "{replies:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn of_many_that_rename_one_key_one_gets_it_and_no_write_is_lost() {
    let node = Node::of_threads(2, None, 50, limits());
    let mut client = node.client().await;
    let [a, b, c] = apart(&mut client).await;
    for round in 0..30 {
        ask(&mut client, &format!("SET {a} {round}")).await;
        let mut tasks = Vec::new();
        for to in [&b, &c] {
            let (mut client, line) = (node.client().await, format!("RENAME {a} {to}"));
            tasks.push(tokio::spawn(async move { ask(&mut client, &line).await }));
        }
        let mut done = 0;
        for task in tasks {
            match task.await.unwrap() {
                Reply::Simple(_) => done += 1,
                reply => assert_eq!(error(&reply), "ERR no such key"),
            }
        }
        assert_eq!(done, 1, "round {round}");
        let found = ask(&mut client, &format!("EXISTS {a} {b} {c}")).await;
        assert_eq!(found, Reply::Int(1), "round {round}");
        ask(&mut client, &format!("DEL {b} {c}")).await;
    }
    // Others count at both names meanwhile.
    let counts = 400;
    let mut tasks = Vec::new();
    for key in [&a, &a, &b] {
        let (mut client, line) = (node.client().await, format!("INCR {key}"));
        tasks.push(tokio::spawn(async move {
            for _ in 0..counts {
                ask(&mut client, &line).await;
            }
        }));
    }
    let (mut sum, mut moved) = (0, 0);
    let line = format!("RENAMENX {a} {c}");
    while tasks.iter().any(|task| !task.is_finished()) || moved == 0 {
        match ask(&mut client, &line).await {
            Reply::Int(1) => {
                moved += 1;
                let Reply::Bulk(count) = ask(&mut client, &format!("GETDEL {c}")).await else {
                    panic!("no count")
                };
                sum += String::from_utf8(count).unwrap().parse::<i64>().unwrap();
            }
            reply => assert!(matches!(reply, Reply::Error(_)), "{reply:?}"),
        }
    }
    if let Reply::Bulk(count) = ask(&mut client, &format!("GET {a}")).await {
        sum += String::from_utf8(count).unwrap().parse::<i64>().unwrap();
    }
    assert_eq!(sum, 2 * counts, "after {moved} renamings");
    let other = bulk(&counts.to_string());
    assert_eq!(ask(&mut client, &format!("GET {b}")).await, other);
    node.stop().await;
}

#[tokio::test]
async fn a_key_is_copied_to_another_database_of_the_plain_port_only() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    ask(&mut client, "SET {t}a v").await;
    assert_eq!(ask(&mut client, "COPY {t}a {t}a DB 3").await, Reply::Int(1));
    assert_eq!(ask(&mut client, "COPY {t}a {t}b DB 3").await, Reply::Int(1));
    assert_eq!(ask(&mut client, "GET {t}b").await, Reply::Nil);
    ask(&mut client, "SELECT 3").await;
    let both = Reply::Array(vec![bulk("v"), bulk("v")]);
    assert_eq!(ask(&mut client, "MGET {t}a {t}b").await, both);
    let mut cluster = Client::connect(node.cluster).await.unwrap();
    let text = "ERR Copying to another database is not allowed in cluster mode";
    let refused = Reply::Error(text.to_owned());
    assert_eq!(ask(&mut cluster, "COPY {t}a {t}b DB 3").await, refused);
    assert_eq!(
        ask(&mut cluster, "COPY {t}a {t}c DB 0").await,
        Reply::Int(1)
    );
    ask(&mut cluster, "MULTI").await;
    ask(&mut cluster, "COPY {t}a {t}b DB 3").await;
    assert_eq!(ask(&mut cluster, "EXEC").await, Reply::Array(vec![refused]));
    node.stop().await;
}

#[tokio::test]
async fn some_key_is_found_wherever_it_is() {
    for threads in [1, 2] {
        let node = Node::of_threads(threads, None, 10, limits());
        let mut client = node.client().await;
        assert_eq!(ask(&mut client, "RANDOMKEY").await, Reply::Nil);
        ask(&mut client, "SET only v").await;
        ask(&mut client, "SET gone v PX 1").await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        for _ in 0..50 {
            assert_eq!(ask(&mut client, "RANDOMKEY").await, bulk("only"));
        }
        let mut keys = BTreeSet::from(["only".to_owned()]);
        for n in 0..100 {
            ask(&mut client, &format!("SET k{n} v")).await;
            keys.insert(format!("k{n}"));
        }
        let mut found = BTreeSet::new();
        for _ in 0..200 {
            let Reply::Bulk(key) = ask(&mut client, "RANDOMKEY").await else {
                panic!("no key")
            };
            found.insert(String::from_utf8(key).unwrap());
        }
        assert!(found.is_subset(&keys), "{found:?}");
        assert!(found.len() > 10, "{found:?}");
        node.stop().await;
    }
}
