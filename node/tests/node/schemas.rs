//! Programs of several versions, with other types, codecs and schemas, on one map.

use crate::embedded::{node_with, safe};
use doyen::{Codec, Error, Map, MapChange, Node, Undecodable};
use serde::{Deserialize, Serialize};

async fn node(name: &str, seeds: &[&Node]) -> Node {
    node_with(name, seeds, |builder| builder).await
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LaterAccount {
    cents: i64,
    #[serde(default)]
    currency: Option<String>,
    owner: String,
}

#[tokio::test]
async fn programs_of_two_versions_share_a_map() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let old: Map<u32, Account> = one.map("accounts").await.expect("a map");
    let new: Map<u64, LaterAccount> = two.map("accounts").await.expect("a map");
    let ada = Account {
        owner: "Ada".into(),
        cents: 700,
    };
    old.insert(&7, &ada).await.expect("written");
    // The wider key is the same key, and the fields find their places.
    let found = new.get(&7).await.expect("read").expect("it is there");
    assert_eq!(
        (found.cents, found.currency, &*found.owner),
        (700, None, "Ada")
    );
    let rich = LaterAccount {
        cents: 1 << 40,
        currency: Some("EUR".into()),
        owner: "Bob".into(),
    };
    new.insert(&8, &rich).await.expect("written");
    let found = old.get(&8).await.expect("read").expect("it is there");
    assert_eq!(found.cents, 1 << 40);
    // A value that does not fit is an error, and not another value.
    let broke = LaterAccount { cents: -1, ..rich };
    new.insert(&9, &broke).await.expect("written");
    match old.get(&9).await {
        Err(Error::Value(why)) => {
            let why = why.to_string();
            assert!(why.contains("the map accounts"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_value_of_another_schema_is_an_error_or_counts_as_absent() {
    let one = node("one", &[]).await;
    safe(&one, 1).await;
    let open = |version, undecodable| {
        let map = one.map::<String, u64>("counts");
        map.schema("count", version).on_undecodable(undecodable)
    };
    let old = open(1, Undecodable::Error).await.expect("a map");
    let strict = open(2, Undecodable::Error).await.expect("a map");
    let lenient = open(2, Undecodable::Miss).await.expect("a map");
    for key in ["a", "b", "c"] {
        old.insert(key, &1).await.expect("written");
    }
    let why = strict
        .get("a")
        .await
        .expect_err("another schema")
        .to_string();
    assert!(
        why.contains("schema count version 1") && why.contains("version 2"),
        "{why}"
    );
    let strict_insert = strict.insert_if_absent("a", &2).await;
    assert!(
        matches!(strict_insert, Err(Error::Value(_))),
        "{strict_insert:?}"
    );
    assert!(strict.get_versioned("a").await.is_err());
    assert_eq!(lenient.get("a").await.expect("read"), None);
    assert_eq!(lenient.insert_if_absent("a", &2).await, Ok(None));
    assert_eq!(lenient.insert_if_absent("a", &3).await, Ok(Some(2)));
    assert_eq!(strict.get("a").await.expect("read"), Some(2));
    assert!(old.get("a").await.is_err());
    // It is overwritten only as long as it is the value that was seen.
    let seen = lenient.get_versioned("b").await.expect("read");
    assert_eq!(seen.value(), None);
    old.insert("b", &5).await.expect("written");
    assert!(!lenient.compare_and_swap(&seen, &6).await.expect("asked"));
    let seen = lenient.get_versioned("b").await.expect("read");
    assert!(lenient.compare_and_swap(&seen, &6).await.expect("written"));
    assert_eq!(strict.get("b").await.expect("read"), Some(6));
    let other: Map<String, u64> = one.map("others").await.expect("a map");
    let elsewhere = other.compare_and_swap(&seen, &7).await;
    assert!(
        matches!(elsewhere, Err(Error::CrossPartition)),
        "{elsewhere:?}"
    );
    // A subscriber gets it as its map reads it.
    let mut told = lenient.subscribe().await.expect("it begins");
    old.insert("c", &7).await.expect("written");
    let change = told.next().await.expect("it goes on").expect("a change");
    assert!(matches!(change, MapChange::Removed { key, .. } if key == "c"));
}

/// A deploy: two versions of a program have one cache, and each loads what it can read once.
#[tokio::test]
async fn two_schemas_of_one_cache_have_entries_of_their_own() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    fn open(node: &Node) -> doyen::OpenCache<'_, String, u64> {
        let hour = std::time::Duration::from_secs(3600);
        node.cache("users").fresh_for(hour)
    }
    let caches = [
        open(&one).await.expect("a cache"),
        open(&two).schema("user", 1).await.expect("a cache"),
        open(&one).schema("user", 2).await.expect("a cache"),
        open(&two)
            .codec(Codec::Json)
            .schema("user", 3)
            .await
            .expect("a cache"),
    ];
    let loads = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let read = async |key: &str| {
        for (n, cache) in caches.iter().enumerate() {
            let (n, loads) = (n as u64, loads.clone());
            let load = move || async move {
                loads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Ok::<_, Error>(doyen::Loaded::new(n).tag("user"))
            };
            assert_eq!(cache.get_or_load(key, load).await, Ok(n), "{key}");
        }
        loads.swap(0, std::sync::atomic::Ordering::SeqCst)
    };
    for key in ["ada", "adam", "bob"] {
        assert_eq!(read(key).await, 4);
        for _ in 0..5 {
            assert_eq!(read(key).await, 0, "each has its own");
        }
    }
    assert_eq!(caches[1].len().await, Ok(12));
    // What one of them says to have changed is gone for all.
    for (n, cache) in caches.iter().enumerate() {
        assert_eq!(cache.invalidate("ada").await, Ok(true));
        assert_eq!(cache.invalidate("ada").await, Ok(false));
        assert_eq!((read("ada").await, read("adam").await), (4, 0), "{n}");
        assert_eq!(cache.take("ada").await, Ok(Some(n as u64)));
        assert_eq!((read("ada").await, read("adam").await), (4, 0), "{n}");
        cache.invalidate_prefix("ada").await.expect("invalidated");
        assert_eq!(
            (read("ada").await, read("adam").await, read("bob").await),
            (4, 4, 0),
            "{n}"
        );
        cache.invalidate_tag("user").await.expect("invalidated");
        assert_eq!(
            (read("ada").await, read("adam").await, read("bob").await),
            (4, 4, 4),
            "{n}"
        );
        cache.insert("ada", &(n as u64)).await.expect("written");
        assert_eq!((read("ada").await, read("adam").await), (3, 0), "{n}");
        cache.invalidate_all().await.expect("emptied");
        assert_eq!((cache.len().await, read("ada").await), (Ok(0), 4), "{n}");
        assert_eq!((read("adam").await, read("bob").await), (4, 4), "{n}");
    }
    assert!(one.drop_map("default", "users").await.expect("dropped"));
    let gone = async {
        while caches[2].get("ada").await != Err(Error::Dropped) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone)
        .await
        .expect("gone");
}

/// A worker of the former version must not lose the jobs of the next one.
#[tokio::test]
async fn a_value_that_cannot_be_read_is_not_taken() {
    let one = node("one", &[]).await;
    safe(&one, 1).await;
    let open = |name, version, undecodable| {
        let map = one.map::<u64, u64>(name).schema("job", version);
        map.on_undecodable(undecodable)
    };
    let next = open("jobs", 2, Undecodable::Error).await.expect("a map");
    let former = open("jobs", 1, Undecodable::Error).await.expect("a map");
    let lenient = open("jobs", 1, Undecodable::Miss).await.expect("a map");
    next.insert(&1, &7).await.expect("written");
    let refused = former.take(&1).await.expect_err("another schema");
    assert!(matches!(refused, Error::Value(_)), "{refused:?}");
    assert_eq!(refused.happened(), doyen::Happened::No);
    assert_eq!(lenient.take(&1).await, Ok(None));
    let refused = former.remove_if(&1, |_| true).await;
    assert!(matches!(refused, Err(Error::Value(_))), "{refused:?}");
    assert_eq!(next.take(&1).await, Ok(Some(7)), "it is still there");
    assert_eq!(next.take(&1).await, Ok(None));
    // Types that do not fit, and the same of caches.
    let texts: Map<u64, String> = one.map("texts").await.expect("a map");
    let numbers: Map<u64, u64> = one.map("texts").await.expect("a map");
    texts.insert(&1, &"x".into()).await.expect("written");
    assert!(matches!(numbers.take(&1).await, Err(Error::Value(_))));
    let words: doyen::Cache<u64, String> = one.cache("words").await.expect("a cache");
    let strict = one
        .cache::<u64, u64>("words")
        .on_undecodable(Undecodable::Error);
    let strict = strict.await.expect("a cache");
    words.insert(&1, &"y".into()).await.expect("written");
    assert!(matches!(strict.take(&1).await, Err(Error::Value(_))));
    assert_eq!(words.take(&1).await, Ok(Some("y".into())));
    assert_eq!(words.take(&1).await, Ok(None));
    // Of many takers, one gets it.
    texts.insert(&2, &"z".into()).await.expect("written");
    let taking = (0..50).map(|_| {
        let texts = texts.clone();
        tokio::spawn(async move { texts.take(&2).await })
    });
    let mut got = 0;
    for one in taking.collect::<Vec<_>>() {
        got += usize::from(one.await.expect("it runs").expect("asked").is_some());
    }
    assert_eq!(got, 1);
}

#[tokio::test]
async fn a_type_without_a_shape_needs_a_schema_in_a_positional_codec() {
    let one = node("one", &[]).await;
    safe(&one, 1).await;
    let open = || {
        let map = one.map::<u8, serde_json::Value>("any");
        map.codec(Codec::Bincode)
    };
    let why = open().await.expect_err("no shape").to_string();
    assert!(
        why.contains("the map any") && why.contains("schema(NAME, VERSION)"),
        "{why}"
    );
    let map = open().schema("any", 1).await.expect("a map");
    let written = map.insert(&1, &serde_json::json!({"a": 1})).await;
    assert!(matches!(written, Err(Error::Value(_))), "{written:?}");
    assert_eq!(map.get(&1).await.expect("read"), None);
}
