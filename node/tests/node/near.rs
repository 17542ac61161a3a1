//! Near caches: copies in the process that are as old as their bound at most.

use crate::embedded::{node_with, safe};
use doyen::{Error, Map, NearMap, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const BOUND: Duration = Duration::from_millis(400);

async fn three() -> [Node; 3] {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    let three = node_with("three", &[&one], |builder| builder).await;
    safe(&one, 3).await;
    [one, two, three]
}

#[tokio::test]
async fn copies_serve_reads_until_their_keys_change() {
    let [one, two, _three] = three().await;
    let here: Map<String, u64> = one.map("prices").await.expect("a map");
    let there: Map<String, u64> = two.map("prices").await.expect("a map");
    let near = here.near(Duration::from_secs(30)).await.expect("opened");
    there.insert("tea", &1).await.expect("written");
    for _ in 0..100 {
        assert_eq!(near.get("tea").await, Ok(Some(1)));
        assert_eq!(near.get("milk").await, Ok(None), "absence is known, too");
    }
    // If the insert of "tea" is heard of only after its first read, its copy is dropped, and read
    // again.
    let stats = near.stats();
    assert_eq!(stats.hits + stats.misses, 200, "{stats:?}");
    assert!((2..=4).contains(&stats.misses), "{stats:?}");
    // Far sooner than the bound.
    let becomes = async |key: &str, value: Option<u64>| {
        let waiting = async {
            while near.get(key).await != Ok(value) {
                tokio::task::yield_now().await;
            }
        };
        let came = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        came.unwrap_or_else(|_| panic!("{key} does not become {value:?}"));
    };
    there.insert("tea", &2).await.expect("written");
    becomes("tea", Some(2)).await;
    there.insert("milk", &3).await.expect("written");
    becomes("milk", Some(3)).await;
    there.remove("tea").await.expect("removed");
    becomes("tea", None).await;
    there.clear().await.expect("emptied");
    becomes("milk", None).await;
    let short = Duration::from_millis(100);
    there.put("tea", &4).ttl(short).await.expect("written");
    becomes("tea", Some(4)).await;
    becomes("tea", None).await;
    // It holds no more than it may.
    let small: NearMap<String, u64> = here.near(PATIENCE).capacity(10).await.expect("opened");
    for n in 0..100_u64 {
        there.insert(&n.to_string(), &n).await.expect("written");
        assert_eq!(small.get(&n.to_string()).await, Ok(Some(n)));
    }
}

/// However it writes: by the near cache, by a handle of the map, or in a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_sees_its_own_writes_that_were_acknowledged() {
    let [one, two, _three] = three().await;
    let map: Map<u64, u64> = one.map("prices").await.expect("a map");
    let again: Map<u64, u64> = one.map("prices").await.expect("a map");
    let near = map.near(Duration::from_secs(30)).await.expect("opened");
    for round in 0..300_u64 {
        let key = round % 8;
        // A copy of before, or none.
        near.get(&key).await.expect("read");
        let value = match round % 6 {
            0 => near.insert(&key, &round).await.map(|()| Some(round)),
            1 => near
                .put(&key, &round)
                .returning()
                .await
                .map(|_| Some(round)),
            2 => again.insert(&key, &round).await.map(|()| Some(round)),
            3 => map.update(&key, |_| Some(round)).await,
            4 => {
                let written = map.insert_many([(&key, &round), (&99, &round)]).await;
                written
                    .into_iter()
                    .collect::<Result<Vec<()>, _>>()
                    .map(|_| Some(round))
            }
            _ => near.remove(&key).await.map(|_| None),
        };
        let value = value.expect("written");
        assert_eq!(near.get(&key).await, Ok(value), "round {round}");
        assert_eq!(
            near.get_many([&key, &1_000, &key]).await,
            Ok(vec![value, None, value])
        );
    }
    map.clear().await.expect("emptied");
    for key in 0..8 {
        assert_eq!(near.get(&key).await, Ok(None));
    }
    // Many keys, with copies of some: what another process writes is seen soon.
    let there: Map<u64, u64> = two.map("prices").await.expect("a map");
    for key in 0..500 {
        there.insert(&key, &key).await.expect("written");
    }
    let keys: Vec<u64> = (0..600).collect();
    let expected: Vec<_> = keys
        .iter()
        .map(|key| (*key < 500).then_some(*key))
        .collect();
    let becomes = async {
        while near.get_many(&keys).await.expect("read") != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, becomes)
        .await
        .expect("it sees them");
    let hits = near.stats().hits;
    assert_eq!(near.get_many(&keys).await.expect("read"), expected);
    assert!(near.stats().hits > hits + 500, "from copies");
}

/// The first level of a cache that loads.
#[tokio::test]
async fn a_near_cache_of_a_cache_loads_once_and_sees_invalidations() {
    let [one, two, _three] = three().await;
    fn open(node: &Node) -> doyen::OpenCache<'_, u64, u64> {
        let hour = Duration::from_secs(3600);
        node.cache("users").fresh_for(hour).absent_for(hour)
    }
    let here = open(&one).await.expect("a cache");
    let there = open(&two).await.expect("a cache");
    let near = here.near(Duration::from_secs(30)).await.expect("opened");
    let load = |value| move || async move { Ok::<u64, Error>(value) };
    assert_eq!(near.get(&1).await, Ok(None));
    assert_eq!(near.get_or_load(&1, load(7)).await, Ok(7));
    for _ in 0..100 {
        assert_eq!(near.get_or_load(&1, load(8)).await, Ok(7));
    }
    let stats = near.stats();
    assert!(stats.hits >= 95, "{stats:?}");
    let nothing = || async { Ok::<Option<u64>, Error>(None) };
    for _ in 0..3 {
        assert_eq!(near.find_or_load(&2, nothing).await, Ok(None));
    }
    // Its own writes at once, those of others soon.
    near.invalidate(&1).await.expect("invalidated");
    assert_eq!(near.get(&1).await, Ok(None));
    near.insert(&1, &9).await.expect("written");
    assert_eq!(near.get_or_load(&1, load(8)).await, Ok(9));
    here.insert(&1, &10).await.expect("written");
    assert_eq!(near.get(&1).await, Ok(Some(10)));
    here.invalidate_all().await.expect("emptied");
    assert_eq!(near.get(&1).await, Ok(None));
    near.insert(&1, &11).await.expect("written");
    assert_eq!(near.get(&1).await, Ok(Some(11)));
    there.insert(&1, &12).await.expect("written");
    let becomes = async {
        while near.get(&1).await != Ok(Some(12)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), becomes)
        .await
        .expect("it is told");
    // Below the least bound it is an error.
    for refused in [
        here.near(Duration::ZERO).await.map(drop),
        one.map::<u64, u64>("m")
            .await
            .expect("a map")
            .near(Duration::from_millis(49))
            .await
            .map(drop),
        one.cache::<u64, u64>("c")
            .claim_lease(Duration::ZERO)
            .await
            .map(drop),
        one.cache::<u64, u64>("c").jitter(1.5).await.map(drop),
        one.cache::<u64, u64>("c")
            .refresh_ahead(f64::NAN)
            .await
            .map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
}

/// Regression: the logs that were kept for the near cache took all memory of a small node, which
/// then refused every insert.
#[tokio::test]
async fn a_near_cache_leaves_the_memory_of_a_small_node_to_data() {
    const KEYS: u64 = 5_120;
    let small = |builder: doyen::Builder| builder.partitions(1_024).memory_max(64 << 20);
    let node = node_with("one", &[], small).await;
    safe(&node, 1).await;
    let map: Map<u64, Vec<u8>> = node.map("prices").await.expect("a map");
    let near = map.near(Duration::from_secs(1)).await.expect("opened");
    let value = vec![7; 200];
    let insert = async |keys: std::ops::Range<u64>| {
        let keys: Vec<u64> = keys.collect();
        let inserts = keys.iter().map(|n| map.insert(n, &value));
        let inserted = futures_util::future::join_all(inserts).await;
        inserted.into_iter().collect::<Result<Vec<()>, Error>>()
    };
    for _ in 0..30 {
        insert(0..KEYS).await.expect("written");
    }
    for round in 1..=10 {
        let inserted = insert(KEYS * round..KEYS * (round + 1)).await;
        inserted.expect("there is room for it");
    }
    assert_eq!(near.get(&(10 * KEYS)).await, Ok(Some(value.clone())));
}

/// Values only grow. A read returns at least what was acknowledged before the bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_older_than_the_bound_while_nodes_die() {
    let [one, two, three] = three().await;
    let map: Map<u64, u64> = one.map("clock").await.expect("a map");
    let near = map.near(BOUND).await.expect("opened");
    let seed = one.addresses().data.to_string();
    let client = Node::builder().client().seed(seed).start().await;
    let client = client.expect("it connects");
    let outside: Map<u64, u64> = client.map("clock").await.expect("a map");
    let far = outside.near(BOUND).await.expect("opened");
    let running = Arc::new(AtomicBool::new(true));
    // When each value of a key was acknowledged.
    let acknowledged: Arc<Vec<std::sync::Mutex<Vec<Instant>>>> =
        Arc::new((0..8).map(|_| std::sync::Mutex::default()).collect());
    let mut tasks = Vec::new();
    for key in 0..8_u64 {
        let (map, running, acknowledged) = (map.clone(), running.clone(), acknowledged.clone());
        tasks.push(tokio::spawn(async move {
            let mut value = 0;
            while running.load(Ordering::SeqCst) {
                value += 1;
                loop {
                    match map.insert(&key, &value).await {
                        Ok(()) => break,
                        Err(why) if why.retryable() || why == Error::Unknown => {}
                        Err(why) => panic!("{why}"),
                    }
                }
                let now = Instant::now();
                acknowledged[key as usize].lock().expect("whole").push(now);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }));
    }
    let mut readers = Vec::new();
    for near in [near.clone(), far.clone()] {
        let (running, acknowledged) = (running.clone(), acknowledged.clone());
        readers.push(tokio::spawn(async move {
            let mut reads = 0_u64;
            while running.load(Ordering::SeqCst) {
                for key in 0..8_u64 {
                    let began = Instant::now();
                    let Ok(found) = near.get(&key).await else {
                        continue;
                    };
                    let known = acknowledged[key as usize].lock().expect("whole").clone();
                    let before = began.checked_sub(BOUND).expect("a moment");
                    let least = known.partition_point(|at| *at < before) as u64;
                    let found = found.unwrap_or(0);
                    assert!(
                        found >= least,
                        "key {key}: {found}, and {least} was acknowledged"
                    );
                    reads += 1;
                }
                tokio::task::yield_now().await;
            }
            reads
        }));
    }
    tokio::time::sleep(BOUND).await;
    three.kill().await;
    safe(&one, 2).await;
    tokio::time::sleep(BOUND).await;
    two.kill().await;
    tokio::time::sleep(BOUND * 3).await;
    running.store(false, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("it writes");
    }
    for reader in readers {
        assert!(reader.await.expect("no read is too old") > 100);
    }
    assert!(near.stats().hits > 0 && far.stats().hits > 0);
    // Cut off from all others, it serves no copy after the bound.
    assert!(far.get(&0).await.is_ok());
    one.kill().await;
    let began = Instant::now();
    let ends = async {
        while far.get(&0).await.is_ok() {
            assert!(
                began.elapsed() < BOUND * 2 + Duration::from_secs(1),
                "too old"
            );
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ends).await.expect("it ends");
}

#[tokio::test]
async fn near_caches_are_among_the_metrics_of_their_process() {
    let one = node_with("one", &[], |builder| builder).await;
    safe(&one, 1).await;
    let prices: Map<String, u64> = one.map("prices").await.expect("a map");
    let near = prices.near(PATIENCE).await.expect("opened");
    let shown = async |name: &str| {
        let text = one.metrics_text().await.expect("it runs");
        let series = format!("{name}{{keyspace=\"default\",map=\"prices\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.and_then(|value| value.parse::<u64>().ok())
    };
    for _ in 0..10 {
        near.get("tea").await.expect("read");
    }
    let stats = near.stats();
    assert_eq!(shown("doyen_near_hits_total").await, Some(stats.hits));
    assert_eq!(shown("doyen_near_misses_total").await, Some(stats.misses));
    assert_eq!(shown("doyen_near_entries").await, Some(1));
    prices.insert("tea", &1).await.expect("written");
    assert_eq!(shown("doyen_map_keys").await, Some(1));
    // What it counted outlives it. Its task ends a moment later, and with it what it holds.
    drop(near);
    while shown("doyen_near_entries").await != Some(0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(shown("doyen_near_hits_total").await, Some(stats.hits));
}
