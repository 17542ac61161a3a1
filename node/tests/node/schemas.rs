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
    // A subscriber is told of it as its map reads it.
    let mut told = lenient.subscribe().await.expect("it begins");
    old.insert("c", &7).await.expect("written");
    let change = told.next().await.expect("it goes on").expect("a change");
    assert!(matches!(change, MapChange::Removed { key, .. } if key == "c"));
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
