//! What a program that uses the native client relies on, with real nodes on real sockets in one
//! process.

use crate::embedded::safe;
use doyen::{Builder, Error, Map, Node};
use std::time::{Duration, Instant};

const SECRET: &str = "the secret of the tests";

async fn node(name: &str, seeds: &[&Node]) -> Node {
    node_with(name, seeds, |builder| builder).await
}

async fn node_with(name: &str, seeds: &[&Node], more: impl FnOnce(Builder) -> Builder) -> Node {
    crate::embedded::node_with(name, seeds, |builder| more(builder.secret(SECRET))).await
}

async fn client(seeds: &[&Node]) -> Node {
    let seeds = seeds.iter().map(|n| n.addresses().data.to_string());
    Node::builder()
        .client()
        .seeds(seeds)
        .secret(SECRET)
        .start()
        .await
        .expect("it connects")
}

#[tokio::test]
async fn a_client_has_the_maps_of_the_cluster() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    // Any node will do.
    let client = client(&[&two]).await;
    let outside: Map<u64, String> = client.map("users").await.expect("a map");
    let inside: Map<u64, String> = three.map("users").await.expect("a map");
    for id in 0..200 {
        outside
            .insert(&id, &format!("user {id}"))
            .await
            .expect("written");
        assert_eq!(
            inside.get(&id).await.expect("read"),
            Some(format!("user {id}"))
        );
    }
    assert!(inside.remove(&7).await.expect("removed"));
    assert!(!outside.contains(&7).await.expect("asked"));
    assert!(
        outside
            .insert_if_absent(&7, &"eve".into())
            .await
            .expect("written")
            .is_none()
    );
    let seen = outside.get_versioned(&7).await.expect("read");
    assert_eq!(seen.value().map(String::as_str), Some("eve"));
    let swapped = outside.compare_and_swap(&seen, &"ada".into()).await;
    assert!(swapped.expect("written"));
    let swapped = outside.compare_and_swap(&seen, &"bob".into()).await;
    assert!(!swapped.expect("asked"), "it was written since");
    assert_eq!(inside.get(&7).await.expect("read").as_deref(), Some("ada"));
    outside
        .put(&8, &"soon".into())
        .ttl(Duration::from_millis(50))
        .await
        .expect("written");
    let gone = async { while outside.contains(&8).await.expect("asked") {} };
    tokio::time::timeout(Duration::from_secs(5), gone)
        .await
        .expect("it vanishes");
    client.database().set("k", "v").await.expect("written");
    assert_eq!(
        one.database().get("k").await.expect("read").as_deref(),
        Some(&b"v"[..])
    );

    client.shutdown().await;
    assert!(matches!(
        outside.insert(&1, &String::new()).await,
        Err(Error::Closed)
    ));
    for node in [three, two, one] {
        node.kill().await;
    }
}

#[tokio::test]
async fn an_impossible_map_is_refused_with_the_reason() {
    let one = node("one", &[]).await;
    one.wait_ready(Duration::from_secs(60))
        .await
        .expect("a cluster of one");
    let client = client(&[&one]).await;
    let refused = client.map::<u64, u64>("").await.expect_err("no name");
    assert!(
        matches!(&refused, Error::Refused(why) if why.contains("name")),
        "{refused}"
    );
    client.shutdown().await;
    one.kill().await;
}

#[tokio::test]
async fn members_come_and_go_without_an_error_for_a_client() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let client = client(&[&one]).await;
    let map: Map<u64, u64> = client.map("numbers").await.expect("a map");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writers: Vec<_> = (0..8_u64)
        .map(|writer| {
            let (map, stopped) = (map.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut n = 0;
                while !*stopped.borrow() {
                    n += 1;
                    map.insert(&writer, &n).await.expect("no write fails");
                    assert_eq!(map.get(&writer).await.expect("no read fails"), Some(n));
                }
                n
            })
        })
        .collect();
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    // This node is the seed of the client, and the coordinator.
    one.shutdown().await;
    safe(&two, 2).await;
    stop.send_replace(true);
    for (writer, task) in (0_u64..).zip(writers) {
        let n = task.await.expect("nothing failed");
        assert!(n > 10, "{n}");
        assert_eq!(map.get(&writer).await.expect("read"), Some(n));
    }
    client.shutdown().await;
    three.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn values_above_the_limit_of_the_nodes_are_refused_and_the_client_goes_on() {
    let one = node_with("one", &[], |b| b.value_max(10_000)).await;
    one.wait_ready(Duration::from_secs(60))
        .await
        .expect("a cluster of one");
    let client = client(&[&one]).await;
    let database = client.database();
    for size in [10_001, 3_000_000] {
        assert!(
            matches!(
                database.set("k", vec![b'x'; size]).await,
                Err(Error::TooLarge)
            ),
            "{size}"
        );
    }
    assert!(matches!(
        database.set(vec![b'k'; 70_000], "v").await,
        Err(Error::TooLarge)
    ));
    database
        .set("k", vec![b'x'; 10_000])
        .await
        .expect("it fits");
    assert_eq!(
        database.get("k").await.expect("read").map(|v| v.len()),
        Some(10_000)
    );
    client.shutdown().await;
    one.kill().await;
}

/// The connection fails in time, with all of these words in its error.
async fn refused(builder: doyen::Builder, words: &[&str]) {
    let began = Instant::now();
    let error = builder
        .ready_timeout(Duration::from_secs(4))
        .start()
        .await
        .expect_err("it cannot connect");
    assert!(began.elapsed() < Duration::from_secs(6), "{error}");
    for word in words {
        assert!(
            error.to_string().contains(word),
            "`{word}` is missing in: {error}"
        );
    }
}

#[tokio::test]
async fn a_client_that_is_refused_is_told_why() {
    let one = node_with("one", &[], |b| b.clients_max(1)).await;
    one.wait_ready(Duration::from_secs(60))
        .await
        .expect("a cluster of one");
    let (data, control) = (
        one.addresses().data.to_string(),
        one.addresses().control.to_string(),
    );
    let builder = || Node::builder().client().secret(SECRET);
    refused(
        builder().seed(&data).secret("another secret altogether"),
        &[&data, "client's file"],
    )
    .await;
    refused(
        builder().seed(&control),
        &[&control, "this is a control port"],
    )
    .await;
    refused(
        builder().seed("127.0.0.1:1"),
        &["127.0.0.1:1", "no node answers", "--data"],
    )
    .await;
    refused(
        builder().seed("no-such-host.invalid:1"),
        &["no-such-host.invalid:1", "HOST:PORT"],
    )
    .await;
    refused(builder(), &["needs a seed", "7401"]).await;
    refused(
        Node::builder().client().seed("10.0.0.1:7401"),
        &["10.0.0.1:7401", "secret"],
    )
    .await;
    refused(builder().seed(&data).secret("short"), &["16"]).await;
    let lasting = Node::builder()
        .client()
        .seed(&data)
        .secret("another secret altogether")
        .start()
        .await;
    assert!(matches!(lasting, Err(Error::Refused(_))), "{lasting:?}");

    let first = client(&[&one]).await;
    refused(builder().seed(&data), &["its limit (--clients-max)"]).await;
    // A client that closes makes room.
    first.shutdown().await;
    let second = client(&[&one]).await;
    second.database().set("k", "v").await.expect("it serves");
    second.shutdown().await;
    one.kill().await;
}

#[tokio::test]
async fn a_client_without_a_secret_reaches_nodes_without_one() {
    let one = Node::builder()
        .name("one")
        .listen("127.0.0.1:0")
        .partitions(64)
        .start()
        .await
        .expect("starts");
    one.wait_ready(Duration::from_secs(60))
        .await
        .expect("a cluster of one");
    let client = Node::builder()
        .client()
        .seed(one.addresses().data.to_string())
        .start()
        .await
        .expect("it connects");
    client.database().set("k", "v").await.expect("written");
    drop(client);
    one.kill().await;
}

#[tokio::test]
async fn a_node_that_dies_takes_no_entry_with_it() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    let client = client(&[&one, &two]).await;
    let map: Map<u64, u64> = client.map("numbers").await.expect("a map");
    for n in 0..100 {
        map.insert(&n, &n).await.expect("written");
    }
    // The coordinator ends without notice.
    one.kill().await;
    for n in 0..100 {
        assert_eq!(map.get(&n).await.expect("read"), Some(n));
        map.insert(&n, &(n + 1)).await.expect("written");
    }
    client.shutdown().await;
    three.kill().await;
    two.kill().await;
}
