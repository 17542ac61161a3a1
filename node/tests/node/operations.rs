//! What a map does with keys by what they hold, and with many keys, on two nodes.

use crate::embedded::{node_with, safe};
use doyen::{Error, KeyspaceOptions, Map, Node};
use std::time::Duration;

async fn two() -> (Node, Node) {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    (one, two)
}

#[tokio::test]
async fn a_key_is_changed_by_what_it_holds() {
    let (one, two) = two().await;
    let here: Map<String, u64> = one.map("counts").await.expect("a map");
    let there: Map<String, u64> = two.map("counts").await.expect("a map");
    assert_eq!(here.replace("a", &1).await.expect("asked"), None);
    assert_eq!(
        here.get("a").await.expect("read"),
        None,
        "nothing was written"
    );
    here.insert("a", &1).await.expect("written");
    assert_eq!(there.replace("a", &2).await.expect("written"), Some(1));
    assert_eq!(there.take("a").await.expect("removed"), Some(2));
    assert_eq!(here.take("a").await.expect("asked"), None);
    // What expires, and what does not any more.
    assert!(
        !here
            .expire("a", Duration::from_secs(60))
            .await
            .expect("asked")
    );
    here.insert("a", &3).await.expect("written");
    assert!(!here.persist("a").await.expect("asked"));
    assert!(
        there
            .expire("a", Duration::from_secs(60))
            .await
            .expect("written")
    );
    assert_eq!(here.replace("a", &4).await.expect("written"), Some(3));
    assert!(
        here.persist("a").await.expect("written"),
        "it kept its deadline"
    );
    assert!(here.expire("a", Duration::ZERO).await.expect("written"));
    assert_eq!(there.get("a").await.expect("read"), None);
}

#[tokio::test]
async fn updates_of_many_programs_lose_nothing() {
    let (one, two) = two().await;
    let maps = [&one, &two].map(|node| async move {
        let map: Map<String, u64> = node.map("counts").await.expect("a map");
        map
    });
    let [here, there] = maps;
    let (here, there) = (here.await, there.await);
    let count = |map: Map<String, u64>| async move {
        for _ in 0..50 {
            let counted = map.update("n", |n| Some(n.unwrap_or(&0) + 1)).await;
            counted.expect("counted");
        }
    };
    let counting = [&here, &there, &here, &there].map(|map| tokio::spawn(count(map.clone())));
    for one in counting {
        one.await.expect("it counts");
    }
    assert_eq!(there.get("n").await.expect("read"), Some(200));
    // Of the same kind: of many callers that remove by what they see, one gets the value.
    let removing = (0..100).map(|n| {
        let map = if n % 2 == 0 { &here } else { &there }.clone();
        tokio::spawn(async move { map.remove_if("gone", |n| *n == 7).await })
    });
    here.insert("gone", &7).await.expect("written");
    let mut removed = 0;
    for one in removing.collect::<Vec<_>>() {
        removed += usize::from(one.await.expect("it runs").expect("asked").is_some());
    }
    assert!(removed <= 1 && here.get("gone").await.expect("read").is_none() == (removed == 1));
    // An update may remove, and may leave a key absent.
    let gone = here.update("n", |n| n.filter(|n| **n < 200).copied()).await;
    assert_eq!(gone.expect("removed"), None);
    assert_eq!(
        there.update("n", |n| n.copied()).await.expect("asked"),
        None
    );
    assert!(!there.contains("n").await.expect("read"));
}

/// A queue for each key: what was a livelock of 100,000 callers is done in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_callers_update_few_keys() {
    let (one, two) = two().await;
    let here: Map<u64, u64> = one.map("counts").await.expect("a map");
    let there: Map<u64, u64> = two.map("counts").await.expect("a map");
    let add = |map: &Map<u64, u64>, key| {
        let map = map.clone();
        tokio::spawn(async move { map.update(&key, |n| Some(n.unwrap_or(&0) + 1)).await })
    };
    for callers in [10_u64, 100, 300] {
        let adding = (0..callers).map(|n| add(if n % 2 == 0 { &here } else { &there }, callers));
        for one in adding.collect::<Vec<_>>() {
            one.await.expect("it runs").expect("updated");
        }
        assert_eq!(here.get(&callers).await, Ok(Some(callers)));
    }
    let adding = (0..100_000).map(|n| add(if n % 2 == 0 { &here } else { &there }, 1_000 + n % 10));
    for one in adding.collect::<Vec<_>>() {
        one.await.expect("it runs").expect("updated");
    }
    for key in 1_000..1_010 {
        assert_eq!(there.get(&key).await, Ok(Some(10_000)), "{key}");
    }
}

/// A process beside the primary whose queue is never empty leaves gaps for the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_far_from_the_primary_is_not_left_out() {
    let (one, two) = two().await;
    let here: Map<u64, u64> = one.map("counts").await.expect("a map");
    let there: Map<u64, u64> = two.map("counts").await.expect("a map");
    // Some of these keys are led by the one node, and some by the other.
    let busy: Vec<_> = (0..8_u64)
        .map(|n| {
            let map = here.clone();
            tokio::spawn(async move {
                loop {
                    let added = map.update(&(n % 4), |n| Some(n.unwrap_or(&0) + 1)).await;
                    added.expect("updated");
                }
            })
        })
        .collect();
    let far = async {
        for key in 0..4 {
            for _ in 0..5 {
                let added = there.update(&key, |n| Some(n.unwrap_or(&0) + 1)).await;
                added.expect("updated");
            }
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), far).await;
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    done.expect("it is not left out");
}

/// Maps need no runtime, and a pause between two attempts does not, either.
#[test]
fn an_update_needs_no_runtime() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (one, two) = runtime.block_on(two());
    let map: Map<u64, u64> = runtime
        .block_on(one.map("counts").into_future())
        .expect("a map");
    let other: Map<u64, u64> = runtime
        .block_on(two.map("counts").into_future())
        .expect("a map");
    let adding = [map.clone(), map.clone(), other].map(|map| {
        std::thread::spawn(move || {
            for _ in 0..200 {
                let added = map.update(&1, |n| Some(n.unwrap_or(&0) + 1));
                block_on(added).expect("updated");
            }
        })
    });
    adding
        .into_iter()
        .for_each(|one| one.join().expect("it runs"));
    assert_eq!(block_on(map.get(&1)), Ok(Some(600)));
    runtime.block_on(async { tokio::join!(one.kill(), two.kill()) });
}

/// Runs a future without any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
        {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[tokio::test]
async fn many_keys_are_read_and_written_at_once() {
    let (one, two) = two().await;
    let here: Map<u64, String> = one.map("words").await.expect("a map");
    let there: Map<u64, String> = two.map("words").await.expect("a map");
    let entries: Vec<(u64, String)> = (0..5_000).map(|n| (n, n.to_string())).collect();
    let written = here
        .insert_many(entries.iter().map(|(n, word)| (n, word)))
        .await;
    assert_eq!(written.len(), 5_000);
    written.into_iter().for_each(|one| one.expect("written"));
    let keys: Vec<u64> = (0..5_010).rev().collect();
    let found = there.get_many(&keys).await.expect("read");
    for (key, word) in keys.iter().zip(&found) {
        let expected = (*key < 5_000).then(|| key.to_string());
        assert_eq!(*word, expected, "{key}");
    }
    let removed = there.remove_many(&[4_998, 4_999, 5_000]).await;
    let removed: Vec<bool> = removed.into_iter().map(|one| one.expect("asked")).collect();
    assert_eq!(removed, [true, true, false]);
    assert_eq!(here.len().await.expect("counted"), 4_998);
    let other: Map<u64, String> = one.map("others").await.expect("a map");
    other
        .insert(&1, &"stays".to_owned())
        .await
        .expect("written");
    // One that cannot be decoded does not hide the others, if the caller wants so.
    let numbers: Map<u64, u64> = one.map("words").await.expect("a map");
    numbers.insert(&1, &7).await.expect("written");
    let each = numbers.get_each(&[1, 2, 9_999]).await;
    assert!(
        matches!(each[..], [Ok(Some(7)), Err(Error::Value(_)), Ok(None)]),
        "{each:?}"
    );
    assert!(numbers.get_many(&[1, 2]).await.is_err());
    here.insert(&1, &"1".to_owned()).await.expect("written");
    // One that is too large does not hold up the others.
    let large = "x".repeat(20 << 20);
    let word = "fits".to_owned();
    let written = here.insert_many([(&1, &large), (&2, &word)]).await;
    assert!(
        matches!(written[..], [Err(Error::TooLarge), Ok(())]),
        "{written:?}"
    );
    assert_eq!(
        there.get_many(&[1, 2]).await.expect("read"),
        [Some("1".into()), Some(word)]
    );
    assert_eq!(
        here.get_many::<u64>([]).await.expect("read"),
        Vec::<Option<String>>::new()
    );
}

#[tokio::test]
async fn a_write_has_the_options_that_it_is_given() {
    let (one, two) = two().await;
    let minute = Duration::from_secs(60);
    let opened = one.map::<String, u64>("counts").ttl(minute);
    let dated: Map<String, u64> = opened.await.expect("a map");
    let plain: Map<String, u64> = two.map("counts").await.expect("a map");
    let ttl = async |key: &str| plain.ttl(key).await.expect("read");

    assert_eq!(dated.put("a", &1).if_absent().await, Ok(None));
    assert!(
        ttl("a").await.is_some_and(|left| left <= minute),
        "the map's"
    );
    assert_eq!(dated.put("a", &2).no_ttl().if_absent().await, Ok(Some(1)));
    assert!(ttl("a").await.is_some(), "nothing was written");
    assert_eq!(dated.put("a", &2).no_ttl().returning().await, Ok(Some(1)));
    assert_eq!(ttl("a").await, None);
    assert_eq!(plain.put("a", &3).ttl(minute * 10).await, Ok(()));
    assert_eq!(
        plain.put("a", &4).keep_ttl().if_present().await,
        Ok(Some(3))
    );
    assert!(ttl("a").await.is_some_and(|left| left > minute));
    assert_eq!(dated.touch("a").await, Ok(true));
    assert!(ttl("a").await.is_some_and(|left| left <= minute));
    assert_eq!(plain.put("b", &1).if_present().await, Ok(None));
    assert_eq!(plain.get("b").await, Ok(None));
    assert_eq!(plain.touch("b").await, Ok(false));
    let written = dated.insert_many([("many", &1)]).await;
    assert_eq!(written, [Ok(())]);
    assert!(ttl("many").await.is_some());

    let seen = plain.get_versioned("a").await.expect("read");
    let swap = plain.put("a", &5).if_unchanged(&seen);
    assert_eq!(swap.await, Ok(true));
    assert_eq!(ttl("a").await, None, "a put has the deadline of its map");
    assert_eq!(plain.put("a", &6).if_unchanged(&seen).await, Ok(false));
    let elsewhere = plain.put("b", &6).if_unchanged(&seen).await;
    assert_eq!(elsewhere, Err(Error::CrossPartition), "another key");

    assert_eq!(plain.remove_if("a", |n| *n > 5).await, Ok(None));
    assert_eq!(plain.remove_if("a", |n| *n == 5).await, Ok(Some(5)));
    assert_eq!(plain.contains("a").await, Ok(false));
    assert_eq!(plain.get("a").await, Ok(None));
    let stats = plain.stats();
    assert_eq!((stats.hits, stats.misses), (0, 2));
    assert!(stats.writes >= 5, "{stats:?}");
}

#[tokio::test]
async fn counters_add_within_bounds_and_begin_windows() {
    let (one, two) = two().await;
    let here = one.counters::<String>("hits").await.expect("counters");
    let there = two.counters::<String>("hits").await.expect("counters");
    assert_eq!(there.get("a").await, Ok(0));
    let adding = (0..20).map(|n| {
        let counters = if n % 2 == 0 { &here } else { &there }.clone();
        tokio::spawn(async move { counters.add("a", 5).await })
    });
    for one in adding.collect::<Vec<_>>() {
        one.await.expect("it runs").expect("added");
    }
    assert_eq!(here.get("a").await, Ok(100));
    assert_eq!(here.add("a", 1).within(..=100).await, Ok(None));
    assert_eq!(here.add("a", 0).within(..100).await, Ok(None));
    assert_eq!(here.add("a", -1).within(0..100).await, Ok(Some(99)));
    assert_eq!(here.add("a", i64::MAX).await, Err(Error::Overflow));
    assert_eq!(there.get("a").await, Ok(99));
    // The first addition of a window begins it.
    let short = Duration::from_millis(200);
    assert_eq!(here.add("w", 1).ttl_if_none(short).await, Ok(1));
    assert_eq!(here.add("w", 1).ttl_if_none(short * 1000).await, Ok(2));
    let over = async { while there.get("w").await.expect("read") != 0 {} };
    tokio::time::timeout(Duration::from_secs(10), over)
        .await
        .expect("the window ends");
    there.set("a", 7).await.expect("set");
    assert_eq!(here.get("a").await, Ok(7));
    assert_eq!(here.remove("a").await, Ok(true));
    assert_eq!(here.remove("a").await, Ok(false));
    // A map of texts is no map of counters.
    let texts = one.map::<String, String>("hits").codec(doyen::Codec::Bytes);
    let texts = texts.await.expect("a map");
    texts.insert("t", &"seven".into()).await.expect("written");
    assert_eq!(here.add("t", 1).await, Err(Error::NotANumber));
    assert_eq!(here.get("t").await, Err(Error::NotANumber));
}

/// 39 of 40 lookups failed at the other nodes, while their tables were a moment older.
#[tokio::test]
async fn a_map_or_a_keyspace_is_usable_everywhere_at_once() {
    let (one, two) = two().await;
    let seed = two.addresses().data.to_string();
    let client = Node::builder().client().seed(seed).start().await;
    let client = client.expect("it connects");
    for n in 0..10 {
        let name = format!("space{n}");
        let options = doyen::KeyspaceOptions::new().partitions(4);
        let made = one.admin().create_keyspace(&name, &options).await;
        made.expect("created");
        let open = |node: &Node| {
            let node = node.clone();
            let name = name.clone();
            async move { node.map::<u64, u64>("m").keyspace(name).await }
        };
        let there = open(&two).await.expect("found at the other node");
        there.insert(&1, &n).await.expect("written");
        let outside = open(&client).await.expect("found by a client");
        assert_eq!(outside.get(&1).await, Ok(Some(n)));
        let raw = two.database_in(&name).await.expect("found");
        raw.set("k", "v").await.expect("written");
        let raw = client.database_in(&name).await.expect("found");
        assert!(raw.get("k").await.expect("read").is_some());
        // The name of a map is one within its keyspace.
        let here: Map<u64, u64> = one.map("m").await.expect("another map");
        assert_eq!(here.get(&1).await, Ok(None));
    }
    client.shutdown().await;
}

/// The rest of some entries, from a node.
async fn rest(node: &Node, name: &str, place: &str) -> Result<Vec<u64>, Error> {
    let map: Map<u64, u64> = node.map(name).keyspace("both").await?;
    let mut entries = map.iter().after(place)?;
    let mut keys = Vec::new();
    while let Some((key, _)) = entries.next().await? {
        keys.push(key);
    }
    Ok(keys)
}

#[tokio::test]
async fn entries_are_read_on_in_another_process() {
    const COUNT: u64 = 3_000;
    let (one, two) = two().await;
    for ordered in [false, true] {
        let options = if ordered {
            KeyspaceOptions::new().ranges(["m"])
        } else {
            KeyspaceOptions::new().partitions(16)
        };
        let admin = one.admin();
        let created = admin.create_keyspace("both", &options).await;
        created.expect("a keyspace");
        let map: Map<u64, u64> = one.map("all").keyspace("both").await.expect("a map");
        let keys: Vec<u64> = (0..COUNT).collect();
        let written = map.insert_many(keys.iter().map(|key| (key, key))).await;
        written.into_iter().for_each(|one| one.expect("written"));
        let mut entries = map.iter();
        assert_eq!(entries.place(), None);
        let mut first = Vec::new();
        for _ in 0..COUNT / 2 {
            let entry = entries.next().await.expect("read");
            first.push(entry.expect("there are more").0);
        }
        let place = entries.place().expect("some were read");
        let rest = rest(&two, "all", &place).await.expect("read");
        let twice = first.len() + rest.len() - COUNT as usize;
        let mut all = [first, rest].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, keys);
        assert!(twice <= if ordered { 0 } else { 1_000 }, "{twice}");
        for wrong in ["", "k1", if ordered { "p0.7" } else { "k00" }] {
            let why = map.iter().after(wrong).expect_err("no place");
            assert!(matches!(why, Error::Refused(_)), "{why}");
        }
        admin.drop_keyspace("both").await.expect("dropped");
    }
}
