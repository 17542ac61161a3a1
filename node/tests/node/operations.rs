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
            loop {
                match map.update("n", |n| Some(n.unwrap_or(&0) + 1)).await {
                    Ok(_) => break,
                    // Others were faster 64 times.
                    Err(Error::Changed) => {}
                    Err(why) => panic!("{why}"),
                }
            }
        }
    };
    let counting = [&here, &there, &here, &there].map(|map| tokio::spawn(count(map.clone())));
    for one in counting {
        one.await.expect("it counts");
    }
    assert_eq!(there.get("n").await.expect("read"), Some(200));
    // An update may remove, and may leave a key absent.
    let gone = here.update("n", |n| n.filter(|n| **n < 200).copied()).await;
    assert_eq!(gone.expect("removed"), None);
    assert_eq!(
        there.update("n", |n| n.copied()).await.expect("asked"),
        None
    );
    assert!(!there.contains("n").await.expect("read"));
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
