//! Transactions of the library.

use super::*;
use crate::{Database, Error, Happened, Map};
use doyen_placement::MapEntry;

fn database(node: &Running) -> Database {
    Database::new(KeyspaceId(0), node.handle.clone())
}

fn map<K, V>(node: &Running) -> Map<K, V>
where
    K: serde::Serialize,
    V: serde::Serialize + serde::de::DeserializeOwned,
{
    let entry = MapEntry {
        id: MapId(1),
        keyspace: KeyspaceId(0),
        name: "users".into(),
        limits: doyen_placement::MapLimits::NONE,
    };
    Map::of_entry(entry, node.handle.clone())
}

#[tokio::test]
async fn each_operation_has_an_answer_of_its_type() {
    let node = doorless(4);
    let database = database(&node);
    database.set("{u}:b", "old").await.unwrap();
    let mut transaction = database.transaction();
    let before = transaction.get("{u}:a");
    transaction.set("{u}:a", "new");
    let removed = transaction.remove("{u}:b");
    let absent = transaction.remove("{u}:c");
    let after = transaction.get("{u}:a");
    let answers = transaction.commit().await.unwrap();
    assert_eq!(answers.of(before).unwrap(), None);
    assert_eq!(answers.of(after).unwrap().as_deref(), Some(&b"new"[..]));
    assert!(answers.of(removed).unwrap() && !answers.of(absent).unwrap());

    let mut other = database.transaction();
    let first = other.get("{u}:a");
    let other = other.commit().await.unwrap();
    assert!(matches!(other.of(after), Err(Error::Unexpected(_))));
    assert!(matches!(answers.of(removed), Ok(true)), "it is kept");
    assert_eq!(other.of(first).unwrap().as_deref(), Some(&b"new"[..]));
    node.stop().await;
}

#[tokio::test]
async fn a_typed_map_changes_one_key_by_what_it_holds() {
    let node = doorless(4);
    let users: Map<u64, String> = map(&node);
    let absent = users.get_versioned(&7).await.unwrap();
    assert_eq!(absent.value(), None);
    let mut transaction = users.transaction();
    transaction.watch(&absent);
    let was_there = transaction.contains(&7);
    transaction.insert(&7, &"Ada".to_owned());
    let answers = transaction.commit().await.unwrap();
    assert!(!answers.of(was_there).unwrap());

    let seen = users.get_versioned(&7).await.unwrap();
    assert_eq!(seen.value().map(String::as_str), Some("Ada"));
    for expected in [true, false] {
        let mut transaction = users.transaction();
        transaction.watch(&seen);
        let before = transaction.get(&7);
        transaction.insert_for(&7, &"Eve".to_owned(), Duration::from_secs(60));
        match transaction.commit().await {
            Ok(answers) if expected => {
                assert_eq!(answers.of(before).unwrap().as_deref(), Some("Ada"));
            }
            Err(Error::Changed) if !expected => {}
            other => panic!("{other:?}"),
        }
    }
    let mut transaction = users.transaction();
    transaction.watch(&absent);
    transaction.remove(&7);
    let refused = transaction.commit().await.unwrap_err();
    assert!(matches!(refused, Error::Changed), "{refused}");
    assert_eq!(refused.happened(), Happened::No);
    let mut transaction = users.transaction();
    let removed = transaction.remove(&7);
    let answers = transaction.commit().await.unwrap();
    assert!(answers.of(removed).unwrap());
    assert_eq!(users.get_versioned(&7).await.unwrap().into_value(), None);
    node.stop().await;
}

#[tokio::test]
async fn what_cannot_be_one_transaction_is_refused_and_nothing_happens() {
    let node = doorless(4);
    let (database, users) = (database(&node), map::<u64, String>(&node));
    let mut crossed = database.transaction();
    crossed.set("a", "1");
    crossed.set("b", "1");
    let refused = crossed.commit().await.unwrap_err();
    assert!(matches!(refused, Error::CrossPartition), "{refused}");
    let mut crossed = users.transaction();
    (0..20).for_each(|id| crossed.insert(&id, &String::new()));
    let refused = crossed.commit().await.unwrap_err();
    assert!(matches!(refused, Error::CrossPartition), "{refused}");
    assert!(!users.contains(&0).await.unwrap());

    let other = Database::new(KeyspaceId(9), node.handle.clone());
    let seen = database.get_versioned("a").await.unwrap();
    let mut crossed = other.transaction();
    crossed.watch(&seen);
    crossed.set("a", "1");
    let refused = crossed.commit().await.unwrap_err();
    assert!(matches!(refused, Error::CrossPartition), "{refused}");

    let mut large = database.transaction();
    for key in ["{u}:a", "{u}:b"] {
        large.set(key, vec![b'x'; limits().value_bytes_max / 2]);
    }
    let refused = large.commit().await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge), "{refused}");

    for key in ["a", "b", "{u}:a", "{u}:b"] {
        assert_eq!(database.get(key).await.unwrap(), None, "{key}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_key_that_cannot_be_encoded_fails_the_whole_transaction() {
    /// Serde has no way to write it.
    struct Key;

    impl serde::Serialize for Key {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }

    let node = doorless(1);
    let map = map::<Key, String>(&node);
    let mut transaction = map.transaction();
    let asked = transaction.get(&Key);
    transaction.insert(&Key, &String::new());
    let refused = transaction.commit().await.unwrap_err();
    assert!(matches!(refused, Error::Key(_)), "{refused}, {asked:?}");
    let refused = map.get_versioned(&Key).await.unwrap_err();
    assert!(matches!(refused, Error::Key(_)), "{refused}");
    node.stop().await;
}

#[tokio::test]
async fn a_transaction_without_operations_looks_at_what_it_watches() {
    let node = doorless(1);
    let database = database(&node);
    database.transaction().commit().await.unwrap();
    let seen = database.get_versioned("a").await.unwrap();
    for expected in [true, false] {
        let mut transaction = database.transaction();
        transaction.watch(&seen);
        let done = transaction.commit().await;
        assert_eq!(done.is_ok(), expected, "{done:?}");
        database.set("a", "1").await.unwrap();
    }
    node.stop().await;
}
