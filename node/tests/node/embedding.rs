//! What a program that embeds nodes relies on, with real nodes on real sockets in one process.

use crate::embedded::safe;
use doyen::{Departure, Error, KeyspaceOptions, Map, Node, OnLoss, RangeScan};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct User {
    name: String,
    logins: u32,
}

fn user(name: &str, logins: u32) -> User {
    User {
        name: name.into(),
        logins,
    }
}

async fn node(name: &str, seeds: &[&Node]) -> Node {
    crate::embedded::node_with(name, seeds, |builder| builder).await
}

#[tokio::test]
async fn a_map_is_the_same_on_every_node() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let here: Map<u64, User> = one.map("users").await.expect("a map");
    let there: Map<u64, User> = two.map("users").await.expect("a map");
    for id in 0..50 {
        here.insert(&id, &user("ada", 1)).await.expect("written");
        assert_eq!(there.get(&id).await.expect("read"), Some(user("ada", 1)));
    }
    assert!(there.remove(&7).await.expect("removed"));
    assert!(!here.contains(&7).await.expect("asked"));
    assert!(!here.remove(&7).await.expect("asked"));

    assert!(
        here.insert_if_absent(&7, &user("eve", 0))
            .await
            .expect("written")
            .is_none()
    );
    assert!(
        there
            .insert_if_absent(&7, &user("bob", 0))
            .await
            .expect("asked")
            .is_some_and(|there| there.name == "eve")
    );
    let absent = there.get_versioned(&1_000).await.expect("read");
    let seen = there.get_versioned(&7).await.expect("read");
    assert_eq!(seen.value(), Some(&user("eve", 0)));
    let swapped = there.compare_and_swap(&seen, &user("eve", 1)).await;
    assert!(swapped.expect("written"));
    let swapped = here.compare_and_swap(&seen, &user("eve", 2)).await;
    assert!(!swapped.expect("asked"), "it was written since");
    let made = here.compare_and_swap(&absent, &user("new", 1)).await;
    assert!(made.expect("written"));
    let made = here.compare_and_swap(&absent, &user("new", 2)).await;
    assert!(!made.expect("asked"));
    assert_eq!(here.get(&7).await.expect("read"), Some(user("eve", 1)));

    // Another map, and the database of Redis clients, have other keys.
    let other: Map<u64, User> = one.map("others").await.expect("a map");
    assert_eq!(other.get(&7).await.expect("read"), None);
    one.database().set("k", "v").await.expect("written");
    assert_eq!(
        two.database().get("k").await.expect("read").as_deref(),
        Some(&b"v"[..])
    );

    assert_eq!(two.shutdown().await, Departure::Complete);
    assert_eq!(
        here.get(&7).await.expect("read"),
        Some(user("eve", 1)),
        "what the other one held was handed over"
    );
    one.kill().await;
}

#[tokio::test]
async fn a_sharded_counter_counts_every_addition() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let counters = [
        one.database().sharded_counter("visits", 8),
        two.database().sharded_counter("visits", 8),
    ];
    assert_eq!(counters[0].sum().await.expect("read"), 0);
    let adders: Vec<_> = (0..20)
        .map(|i| {
            let counter = counters[i % 2].clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    counter.add(i as i64 - 5).await.expect("added");
                }
            })
        })
        .collect();
    for adder in adders {
        adder.await.expect("it ends");
    }
    for counter in &counters {
        assert_eq!(
            counter.sum().await.expect("read"),
            (0..20).map(|i| 10 * (i - 5)).sum::<i128>()
        );
    }
    let parts = [&b"visits#0"[..], b"visits#7", b"visits#8"];
    for (part, there) in parts.into_iter().zip([true, true, false]) {
        assert_eq!(
            one.database().get(part).await.expect("read").is_some(),
            there
        );
    }
    one.database()
        .set("visits#3", "many")
        .await
        .expect("written");
    assert!(counters[0].sum().await.is_err(), "no number");
    counters[1].remove().await.expect("removed");
    assert_eq!(counters[0].sum().await.expect("read"), 0);
    two.kill().await;
    one.kill().await;
}

#[tokio::test]
async fn a_range_scan_goes_page_by_page_and_continues_on_any_node() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let ranges = KeyspaceOptions::new().ranges(["key-30", "key-60"]);
    let admin = one.admin();
    admin.create_keyspace("names", &ranges).await.expect("made");
    let names = one.database_in("names").await.expect("it is known here");
    let keys: Vec<String> = (0..90).map(|i| format!("key-{i:02}")).collect();
    for key in &keys {
        names
            .set(key.clone(), format!("of {key}"))
            .await
            .expect("written");
    }
    let read = async |mut scan: RangeScan| {
        let mut found = Vec::new();
        while let Some(page) = scan.next().await.expect("read") {
            assert!((1..=7).contains(&page.len()));
            found.extend(page.into_iter().map(|(key, value)| {
                assert_eq!(*value, [b"of ", &*key].concat());
                String::from_utf8(key.to_vec()).expect("text")
            }));
        }
        assert_eq!(scan.rest(), None);
        found
    };
    let scan = |from: &'static str, to: &'static str| {
        names.range(from, to).expect("they have an order").page(7)
    };
    assert_eq!(read(scan("", "")).await, keys);
    assert_eq!(read(scan("key-25", "key-65")).await, keys[25..65]);
    assert_eq!(
        read(scan("key-25", "key-65").reverse()).await,
        keys[25..65].iter().rev().cloned().collect::<Vec<_>>()
    );
    assert_eq!(read(scan("key-65", "key-25")).await, [""; 0]);
    assert_eq!(read(scan("x", "")).await, [""; 0]);
    assert!(
        one.database().range("a", "b").is_none(),
        "runs of slots have no order"
    );

    // The rest of the scan goes on at another node.
    let mut begun = scan("", "key-80");
    for _ in 0..4 {
        begun.next().await.expect("read").expect("there are more");
    }
    let (from, to) = begun.rest().expect("there is more");
    let (elsewhere, rest) = (
        two.database_in("names").await.expect("it is known there"),
        keys[28..80].to_vec(),
    );
    assert_eq!(
        read(
            elsewhere
                .range(from, to)
                .expect("they have an order")
                .page(7)
        )
        .await,
        rest
    );
    two.kill().await;
    one.kill().await;
}

/// Of forty lookups of a keyspace that another node had just made, 39 failed.
#[cfg(feature = "resp")]
#[tokio::test]
async fn a_keyspace_made_on_one_node_is_found_at_once_on_every_other() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    let one = node("one", &[]).await;
    let two = crate::embedded::node_with("two", &[&one], |builder| {
        builder.resp("127.0.0.1:0").http("127.0.0.1:0")
    })
    .await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    let (resp, http) = (
        two.addresses().resp.expect("it has one"),
        two.addresses().http.expect("it has one"),
    );
    let mut redis = TcpStream::connect(resp).await.expect("it listens");
    for i in 0..20 {
        let name = format!("made-{i}");
        one.admin()
            .create_keyspace(&name, &KeyspaceOptions::new().partitions(2))
            .await
            .expect("made");
        // The commands after `CLIENT KEYSPACE` in a pipeline use the keyspace that it chose.
        let pipeline =
            format!("CLIENT KEYSPACE {name}\r\nSET a {i}\r\nGET a\r\nCLIENT KEYSPACE\r\n");
        let expected = format!(
            "+OK\r\n+OK\r\n${}\r\n{i}\r\n${}\r\n{name}\r\n",
            i.to_string().len(),
            name.len()
        );
        let ask_redis = async {
            redis.write_all(pipeline.as_bytes()).await.expect("written");
            let mut answer = vec![0; expected.len()];
            redis.read_exact(&mut answer).await.expect("answered");
            assert_eq!(String::from_utf8_lossy(&answer), expected);
        };
        let ask_http = async {
            let mut web = TcpStream::connect(http).await.expect("it listens");
            let request = format!(
                "GET /keyspaces/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            );
            web.write_all(request.as_bytes()).await.expect("written");
            let mut answer = String::new();
            web.read_to_string(&mut answer).await.expect("answered");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        };
        let ask_library = async {
            three
                .database_in(&name)
                .await
                .expect("found")
                .set("b", "1")
                .await
                .expect("written");
            let map: Map<u64, u64> = three
                .map(&format!("map-{i}"))
                .keyspace(&name)
                .await
                .expect("found");
            map.insert(&1, &1).await.expect("written");
        };
        tokio::join!(ask_redis, ask_http, ask_library);
    }
    let why = three
        .database_in("nothing")
        .await
        .expect_err("there is none")
        .to_string();
    assert!(why.contains("nothing"), "{why}");
    for node in [three, two, one] {
        node.kill().await;
    }
}

#[tokio::test]
async fn entries_vanish_when_their_time_is_over() {
    let one = node("one", &[]).await;
    let users: Map<String, User> = one.map("users").await.expect("a map");
    users
        .put("soon", &user("ada", 1))
        .ttl(Duration::from_millis(80))
        .await
        .expect("written");
    users
        .put("later", &user("ada", 1))
        .ttl(Duration::from_secs(600))
        .await
        .expect("written");
    assert!(users.contains("soon").await.expect("asked"));
    let gone = async {
        while users.contains("soon").await.expect("asked") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone)
        .await
        .expect("it vanishes");
    assert!(users.contains("later").await.expect("asked"));
    one.kill().await;
}

#[tokio::test]
async fn a_node_that_dies_takes_no_entry_with_it() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    let users: Map<u64, User> = two.map("users").await.expect("a map");
    for id in 0..100 {
        users.insert(&id, &user("ada", 1)).await.expect("written");
    }
    one.kill().await;
    for id in 0..100 {
        assert_eq!(
            users.get(&id).await.expect("read"),
            Some(user("ada", 1)),
            "key {id}"
        );
    }
    safe(&two, 2).await;
    three.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn a_port_in_use_leaves_nothing_running() {
    let one = node("one", &[]).await;
    let error = Node::builder()
        .listen(one.addresses().control)
        .start()
        .await
        .expect_err("the port is taken");
    assert!(
        matches!(
            error,
            Error::Bind {
                flag: "--listen",
                ..
            }
        ),
        "{error}"
    );
    one.kill().await;
}

#[tokio::test]
async fn a_node_with_another_secret_is_refused() {
    let one = Node::builder()
        .name("one")
        .listen("127.0.0.1:0")
        .secret("the secret of the cluster")
        .start()
        .await
        .expect("starts");
    let seed = one.addresses().control.to_string();
    one.wait_ready(Duration::from_secs(60))
        .await
        .expect("a cluster of one");
    let two = Node::builder()
        .name("two")
        .listen("127.0.0.1:0")
        .secret("another secret altogether")
        .seeds([seed])
        .start()
        .await
        .expect("starts");
    let refused = tokio::time::timeout(
        Duration::from_secs(10),
        two.wait_ready(Duration::from_secs(60)),
    )
    .await
    .expect("it is told");
    assert!(
        matches!(&refused, Err(Error::Fatal(why)) if why.contains("secret")),
        "{refused:?}"
    );
    assert_eq!(one.status().await.expect("it goes on").members.len(), 1);
    two.kill().await;
    one.kill().await;
}

#[tokio::test]
async fn a_node_that_was_always_alone_leaves_at_once_and_reports_its_keys() {
    for (holds, expected) in [(false, Departure::Complete), (true, Departure::Alone)] {
        let one = Node::builder()
            .name("one")
            .listen("127.0.0.1:0")
            .on_loss(OnLoss::Wait)
            .start()
            .await
            .expect("starts");
        one.wait_ready(Duration::from_secs(60))
            .await
            .expect("a cluster of one");
        if holds {
            let map = one.map::<u32, String>("held").await.expect("a map");
            map.insert(&1, &"value".to_owned()).await.expect("a write");
        }
        let left = tokio::time::timeout(Duration::from_secs(10), one.shutdown())
            .await
            .expect("it does not wait for a successor");
        assert_eq!(left, expected);
        assert!(!left.loses());
    }
}

#[tokio::test]
async fn the_last_member_reports_how_many_keys_are_lost() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let map = one.map::<u32, String>("held").await.expect("a map");
    for key in 0..10 {
        map.insert(&key, &"value".to_owned())
            .await
            .expect("a write");
    }
    assert_eq!(two.shutdown().await, Departure::Complete);
    let left = tokio::time::timeout(Duration::from_secs(60), one.shutdown())
        .await
        .expect("it does not wait for a newcomer");
    assert_eq!(left, Departure::Last { keys: 10 });
    assert!(left.loses());
}
