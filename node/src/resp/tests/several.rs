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

#[tokio::test]
async fn keys_of_several_partitions_are_refused_with_a_hint_and_nothing_happens() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    ask(&mut client, "SET k0 v").await;
    // Two keys that are in different partitions.
    let mut other = String::new();
    for n in 1..100 {
        other = format!("k{n}");
        if let Reply::Error(_) = ask(&mut client, &format!("COPY k0 {other}")).await {
            break;
        }
    }
    let line = format!("RENAME k0 {other}");
    let refused = ask(&mut client, &line).await;
    assert!(error(&refused).starts_with("CROSSSLOT"), "{refused:?}");
    assert!(error(&refused).contains("{tag}"), "{refused:?}");
    assert_eq!(ask(&mut client, "MULTI").await, simple("OK"));
    assert_eq!(ask(&mut client, "SET k0 new").await, simple("QUEUED"));
    assert_eq!(ask(&mut client, &line).await, simple("QUEUED"));
    let refused = ask(&mut client, "EXEC").await;
    assert!(error(&refused).starts_with("CROSSSLOT"), "{refused:?}");
    assert_eq!(ask(&mut client, "GET k0").await, bulk("v"));
    assert_eq!(ask(&mut client, &format!("GET {other}")).await, Reply::Nil);
    // A cluster-aware client gets the text that it knows.
    let mut cluster = Client::connect(node.cluster).await.unwrap();
    for line in [
        "RENAME a b",
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
