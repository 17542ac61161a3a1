//! A node in the life of a service: runtimes that end, many callers, bad input, and its end.

use crate::embedded::{node_with, safe};
use doyen::{Builder, Cache, Departure, Error, Happened, Map, Node};
use futures_util::FutureExt;
use std::process::Command;
use std::time::Duration;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn single() -> Node {
    let node = node_with("one", &[], |builder| builder).await;
    node.wait_ready(PATIENCE).await.expect("a cluster of one");
    node
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The death of a member is noticed some tenths of a second later.
#[tokio::test]
async fn a_status_is_not_safe_while_a_member_does_not_answer() {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    let three = node_with("three", &[&one], |builder| builder).await;
    safe(&one, 3).await;
    let (looks, killed) = (one.status(), three.kill());
    let (_, ()) = tokio::join!(looks, killed);
    for node in [&one, &two] {
        let status = node.status().await.expect("it answers");
        assert!(!status.safe, "{status:?}");
        let why = status.unsafe_for.unwrap_or_default();
        let silent = why.strip_prefix("no answer within a second from ");
        assert!(silent.is_none_or(|name| name == "three"), "{why}");
    }
    safe(&one, 2).await;
}

#[test]
fn a_node_outlives_the_runtime_that_started_it_and_needs_one_only_to_open_things() {
    let refused = Node::builder().listen("127.0.0.1:0").start().now_or_never();
    let why = refused.expect("at once").expect_err("no runtime");
    assert_eq!(
        (why.clone(), why.happened()),
        (Error::NoRuntime, Happened::No)
    );
    let refused = Node::builder().client().seed("127.0.0.1:1").start();
    assert_eq!(
        refused.now_or_never().expect("at once").err(),
        Some(Error::NoRuntime)
    );

    let first = runtime();
    let (node, map, cache) = first.block_on(async {
        let node = single().await;
        let map: Map<u64, u64> = node.map("numbers").await.expect("a map");
        let cache: Cache<u64, u64> = node.cache("loaded").await.expect("a cache");
        (node, map, cache)
    });
    // A load that is under way ends with its runtime, and its claim with its lease.
    first.spawn({
        let cache = cache.clone();
        let load = || std::future::pending::<Result<u64, std::io::Error>>();
        async move { cache.get_or_load(&1, load).await }
    });
    drop(first);
    assert_eq!(
        node.map::<u64, u64>("other").into_future_now(),
        Some(Error::NoRuntime)
    );
    let load = || async { Ok::<_, std::io::Error>(7) };
    let outside = cache.get_or_load(&2, load).now_or_never();
    assert_eq!(outside, Some(Err(Error::NoRuntime)));
    let second = runtime();
    second.block_on(async {
        map.insert(&1, &1).await.expect("written");
        assert_eq!(map.get(&1).await, Ok(Some(1)));
        let found = tokio::time::timeout(PATIENCE, cache.get_or_load(&1, load)).await;
        assert_eq!(found.expect("in time"), Ok(7));
    });
    drop(second);
    // Leaving needs none.
    let (done, ended) = std::sync::mpsc::channel();
    let waiting = node.clone();
    std::thread::spawn(move || {
        let third = tokio::runtime::Builder::new_current_thread().build();
        let departure = third.expect("a runtime").block_on(waiting.shutdown());
        done.send(departure)
    });
    let departure = ended.recv_timeout(PATIENCE).expect("in time");
    assert!(
        matches!(departure, Departure::Alone | Departure::Last { .. }),
        "{departure:?}"
    );
}

/// Polls a future once.
trait Now {
    fn into_future_now(self) -> Option<Error>;
}

impl<F: IntoFuture<Output = Result<Map<u64, u64>, Error>>> Now for F {
    fn into_future_now(self) -> Option<Error> {
        Box::pin(self.into_future()).now_or_never()?.err()
    }
}

#[tokio::test]
async fn all_clones_end_together_and_are_told_how() {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    let map: Map<u64, u64> = two.map("numbers").await.expect("a map");
    let closed =
        [two.clone(), two.clone()].map(|node| tokio::spawn(async move { node.closed().await }));
    // A caller that gives up does not stop it.
    assert!(two.shutdown().now_or_never().is_none());
    let other = two.clone();
    let (departure, again) = tokio::join!(two.shutdown(), other.shutdown());
    assert_eq!(
        (departure, again),
        (Departure::Complete, Departure::Complete)
    );
    for closed in closed {
        let end = tokio::time::timeout(PATIENCE, closed)
            .await
            .expect("in time");
        assert_eq!(end.expect("it runs"), Ok(Departure::Complete));
    }
    assert_eq!(map.insert(&1, &1).await, Err(Error::Closed));
    assert_eq!(map.get(&1).await, Err(Error::Closed));
    assert!(matches!(
        two.map::<u64, u64>("other").await,
        Err(Error::Closed)
    ));
    assert!(!two.is_ready());
    one.kill().await;
    assert_eq!(one.closed().await, Err(Error::Closed));
    // The last clone is gone: the port is free again.
    let address = one.addresses().control;
    let taken = Node::builder().listen(address).partitions(16).start().await;
    let taken = taken.expect("the port is free");
    let second = Node::builder().listen(address).start().await;
    assert!(matches!(second, Err(Error::Bind { .. })), "{second:?}");
    taken.kill().await;
}

#[tokio::test]
async fn a_node_that_finds_no_cluster_says_so_in_time() {
    let node = Node::builder()
        .listen("127.0.0.1:0")
        .seeds(["127.0.0.1:1"])
        .expect(2)
        .ready_timeout(Duration::from_millis(100))
        .start();
    let node = node.await.expect("it starts");
    let why = node.wait_ready(Duration::from_millis(100)).await;
    assert!(matches!(&why, Err(Error::NotReady(_))), "{why:?}");
    assert!(why.is_err_and(|why| why.retryable()));
    let map = node.map::<u64, u64>("numbers").await;
    assert!(matches!(map, Err(Error::NotReady(_))), "{map:?}");
    assert_eq!(node.shutdown().await, Departure::Outside);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_tasks_are_served_or_refused() {
    let node = single().await;
    let map: Map<u64, u64> = node.map("numbers").await.expect("a map");
    let tasks: Vec<_> = (0..100_000)
        .map(|n| {
            let map = map.clone();
            tokio::spawn(async move { map.insert(&n, &n).await })
        })
        .collect();
    let mut written = 0;
    for (n, task) in (0..).zip(tasks) {
        match task.await.expect("it runs") {
            Ok(()) => {
                assert_eq!(map.get(&n).await, Ok(Some(n)));
                written += 1;
            }
            Err(why) => assert_eq!(why, Error::Overloaded),
        }
    }
    assert!(written > 10_000, "{written}");
    assert_eq!(map.len().await, Ok(written));
    node.kill().await;
}

#[tokio::test]
async fn names_keys_and_values_that_are_too_large_are_typed_errors() {
    let node = single().await;
    let long = "x".repeat(10 << 10);
    let refused = node.map::<u64, u64>(&long).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let map: Map<String, String> = node.map("texts").await.expect("a map");
    let key = "k".repeat(70_000);
    let value = "v".repeat(17 << 20);
    assert_eq!(map.get(&key).await, Err(Error::TooLarge));
    assert_eq!(map.contains(&key).await, Err(Error::TooLarge));
    assert_eq!(map.insert(&key, &String::new()).await, Err(Error::TooLarge));
    assert_eq!(map.insert("k", &value).await, Err(Error::TooLarge));
    assert_eq!(map.put("k", &value).if_absent().await, Err(Error::TooLarge));
    let cache: Cache<String, String> = node.cache("cached").await.expect("a cache");
    let load = move || async move { Ok::<_, std::io::Error>(value) };
    // What is too large for the cache is returned, and not kept.
    let loaded = cache.get_or_load("k", load).await;
    assert_eq!(loaded.map(|value| value.len()), Ok(17 << 20));
    assert_eq!(cache.get("k").await, Ok(None));
    let none = || async { Ok::<_, std::io::Error>(String::new()) };
    assert_eq!(cache.get_or_load(&key, none).await, Err(Error::TooLarge));
    assert_eq!(
        node.counters::<String>("n")
            .await
            .expect("some")
            .get(&key)
            .await,
        Err(Error::TooLarge)
    );
    assert_eq!(map.get("k").await, Ok(None), "nothing else is disturbed");
    node.kill().await;
}

/// What a child process makes of its environment.
#[test]
#[ignore = "the test below runs it in a process of its own"]
fn child_reads_its_environment() {
    match Builder::default().from_env() {
        Ok(builder) => println!("{builder:?}"),
        Err(why) => println!("error: {why}"),
    }
}

#[test]
fn options_come_from_the_environment() {
    let child = |variables: &[(&str, &str)]| {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args([
            "--exact",
            "life::child_reads_its_environment",
            "--ignored",
            "--nocapture",
        ]);
        let known = std::env::vars_os()
            .filter(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("DOYEN_")));
        known.for_each(|(name, _)| _ = child.env_remove(name));
        let output = child
            .envs(variables.iter().copied())
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = child(&[
        ("DOYEN_SEED", "10.0.0.1:7400,10.0.0.2:7400"),
        ("DOYEN_NAME", "orders-1"),
    ]);
    assert!(
        told.contains("10.0.0.2:7400") && told.contains("orders-1"),
        "{told}"
    );
    for (name, value, words) in [
        (
            "DOYEN_MEMORY_MAX",
            "lots",
            "DOYEN_MEMORY_MAX: `lots` is not a size",
        ),
        (
            "DOYEN_WITNESS",
            "yes",
            "DOYEN_WITNESS: `yes` is neither true nor false",
        ),
        (
            "DOYEN_BACKUPS",
            "300",
            "DOYEN_BACKUPS: `300` is not a number from 0 to 255",
        ),
    ] {
        let told = child(&[(name, value)]);
        assert!(told.contains(words), "{told}");
    }
}
