//! Subscribers of maps get every change in order, over a failover and at clients, too.

use crate::embedded::{node_with, safe};
use doyen::{
    Bookmark, Cause, Change, Changes, DatabaseChange, Error, Former, KeyspaceOptions, Map,
    MapChange, Node, Subscribe, What,
};
use std::collections::BTreeMap;
use std::time::Duration;

const SECRET: &str = "the secret of the tests";

async fn node(name: &str, seeds: &[&Node]) -> Node {
    node_with(name, seeds, |builder| builder.secret(SECRET)).await
}

async fn client(seeds: &[&Node]) -> Node {
    let seeds = seeds.iter().map(|n| n.addresses().data.to_string());
    let builder = Node::builder().client().seeds(seeds).secret(SECRET);
    builder.start().await.expect("it connects")
}

async fn begin(subscribe: Subscribe<u64, String>) -> Changes<u64, String> {
    subscribe.await.expect("it begins")
}

/// The next change, which comes soon.
async fn next(changes: &mut Changes<u64, String>) -> MapChange<u64, String> {
    let next = tokio::time::timeout(Duration::from_secs(20), changes.next());
    let next = next.await.expect("a change in time");
    next.expect("it goes on").expect("a change")
}

fn inserted(key: u64, value: &str) -> MapChange<u64, String> {
    let value = value.to_owned();
    MapChange::Inserted { key, value }
}

fn updated(key: u64, value: &str, old: Option<&str>) -> MapChange<u64, String> {
    let (value, old) = (value.to_owned(), old.map(str::to_owned));
    MapChange::Updated { key, value, old }
}

fn removed(key: u64, cause: Cause, old: Option<&str>) -> MapChange<u64, String> {
    let old = old.map(str::to_owned);
    MapChange::Removed { key, cause, old }
}

#[tokio::test]
async fn nodes_and_clients_are_told_what_anyone_does_to_a_map() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    let client = client(&[&two]).await;
    let map: Map<u64, String> = one.map("words").await.expect("a map");
    let other: Map<u64, String> = one.map("others").await.expect("a map");
    let there: Map<u64, String> = two.map("words").await.expect("a map");
    let outside: Map<u64, String> = client.map("words").await.expect("a map");
    let mut followers = vec![
        begin(map.subscribe()).await,
        begin(there.subscribe()).await,
        begin(outside.subscribe()).await,
        begin(outside.subscribe().key(&7)).await,
    ];
    let mut old = begin(outside.subscribe().old_values()).await;
    other
        .insert(&7, &"elsewhere".into())
        .await
        .expect("written");
    outside.insert(&7, &"a".into()).await.expect("written");
    there.insert(&7, &"b".into()).await.expect("written");
    map.remove(&7).await.expect("removed");
    let short = Duration::from_millis(20);
    map.put(&7, &"c".into()).ttl(short).await.expect("written");
    for changes in &mut followers {
        assert_eq!(next(changes).await, inserted(7, "a"));
        assert_eq!(next(changes).await, updated(7, "b", None));
        assert_eq!(next(changes).await, removed(7, Cause::Command, None));
        assert_eq!(next(changes).await, inserted(7, "c"));
        assert_eq!(next(changes).await, removed(7, Cause::Expired, None));
    }
    assert_eq!(next(&mut old).await, inserted(7, "a"));
    assert_eq!(next(&mut old).await, updated(7, "b", Some("a")));
    assert_eq!(next(&mut old).await, removed(7, Cause::Command, Some("b")));
    assert_eq!(next(&mut old).await, inserted(7, "c"));
    assert_eq!(next(&mut old).await, removed(7, Cause::Expired, Some("c")));
    // Who follows one key hears nothing of others.
    map.insert(&8, &"x".into()).await.expect("written");
    map.insert(&7, &"y".into()).await.expect("written");
    assert_eq!(next(&mut followers[3]).await, inserted(7, "y"));
    drop(followers);
    client.shutdown().await;
    two.kill().await;
    one.kill().await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_look_loses_the_oldest_and_is_told_so() {
    let one = node("one", &[]).await;
    let map: Map<u64, String> = one.map("words").await.expect("a map");
    let mut changes = begin(map.subscribe()).await;
    let long = "x".repeat(10_000);
    let mut writes = Vec::new();
    for n in 0..2_000_u64 {
        let (map, value) = (map.clone(), format!("{n} {long}"));
        writes.push(tokio::spawn(async move { map.insert(&1, &value).await }));
    }
    for write in writes {
        write.await.expect("it ends").expect("written");
    }
    map.insert(&1, &"last".into()).await.expect("written");
    let (mut told, mut missed) = (0, 0);
    loop {
        match next(&mut changes).await {
            MapChange::Updated { value, .. } if value == "last" => break,
            MapChange::Inserted { .. } | MapChange::Updated { .. } => told += 1,
            MapChange::Lagged(Some(n)) => missed += n,
            other => panic!("{other:?}"),
        }
    }
    // It holds half a megabyte, and the primary keeps a little more.
    assert!(told < 200 && missed > 0, "{told} changes of 10 kB waited");
    assert_eq!(told + missed, 2_000);
    one.kill().await;
}

#[tokio::test]
async fn a_failover_loses_no_change_and_a_stop_ends_the_subscription() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    let map: Map<u64, String> = three.map("words").await.expect("a map");
    let mut changes = begin(map.subscribe()).await;
    let writer = {
        let map = map.clone();
        tokio::spawn(async move {
            for round in 0..40 {
                for key in 0..25 {
                    let value = round.to_string();
                    map.insert(&key, &value).await.expect("written");
                }
            }
        })
    };
    // The coordinator ends without notice, amid writes.
    tokio::time::sleep(Duration::from_millis(20)).await;
    one.kill().await;
    writer.await.expect("it ends");
    let mut seen: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    while seen.values().map(Vec::len).sum::<usize>() < 40 * 25 {
        match next(&mut changes).await {
            MapChange::Inserted { key, value } => {
                assert!(
                    seen.insert(key, vec![value]).is_none(),
                    "{key} is new twice"
                );
            }
            MapChange::Updated { key, value, .. } => {
                seen.get_mut(&key).expect("it is known").push(value);
            }
            other => panic!("{other:?}"),
        }
    }
    let expected: Vec<String> = (0..40).map(|round| round.to_string()).collect();
    for key in 0..25 {
        assert_eq!(seen[&key], expected);
    }
    three.kill().await;
    assert!(changes.next().await.is_none());
    two.kill().await;
}

/// What a program saves before it ends is enough for the next one, on whatever node it runs.
#[tokio::test]
async fn a_bookmark_goes_on_in_another_process_though_primaries_died_meanwhile() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    let map: Map<u64, String> = three.map("words").await.expect("a map");
    let first = client(&[&two, &three]).await;
    let words: Map<u64, String> = first.map("words").await.expect("a map");
    let mut changes = begin(words.subscribe().old_values()).await;
    let mut seen: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut note = |change| match change {
        MapChange::Inserted { key, value } => {
            assert!(
                seen.insert(key, vec![value]).is_none(),
                "{key} is new twice"
            );
            seen.values().map(Vec::len).sum::<usize>()
        }
        MapChange::Updated { key, value, old } => {
            let known = seen.get_mut(&key).expect("it is known");
            // A member that learned of the subscriber later may not know it.
            assert!(old.is_none_or(|old| known.last() == Some(&old)), "{key}");
            known.push(value);
            seen.values().map(Vec::len).sum::<usize>()
        }
        other => panic!("{other:?}"),
    };
    for round in 0..10 {
        for key in 0..25 {
            map.insert(&key, &round.to_string()).await.expect("written");
        }
    }
    while note(next(&mut changes).await) < 113 {}
    let text = changes.bookmark().await.expect("a place").to_string();
    first.shutdown().await;
    let writer = {
        let map = map.clone();
        tokio::spawn(async move {
            for round in 10..20 {
                for key in 0..25 {
                    map.insert(&key, &round.to_string()).await.expect("written");
                }
            }
        })
    };
    // The coordinator and a third of the primaries end without notice, amid writes.
    one.kill().await;
    let second = client(&[&two, &three]).await;
    let words: Map<u64, String> = second.map("words").await.expect("a map");
    let bookmark: Bookmark = text.parse().expect("a bookmark");
    let mut changes = begin(words.subscribe().old_values().after(bookmark.clone())).await;
    while note(next(&mut changes).await) < 20 * 25 {}
    writer.await.expect("it ends");
    let expected: Vec<String> = (0..20).map(|round| round.to_string()).collect();
    assert!(seen.len() == 25 && seen.values().all(|values| *values == expected));
    // As JSON, too. Nothing happened since.
    let here = changes.bookmark().await.expect("a place");
    let json = serde_json::to_string(&here).expect("it can be written");
    let here: Bookmark = serde_json::from_str(&json).expect("it can be read");
    let mut later = begin(map.subscribe().after(here)).await;
    map.insert(&99, &"new".into()).await.expect("written");
    assert_eq!(next(&mut later).await, inserted(99, "new"));
    // The logs of another keyspace are other logs.
    let options = KeyspaceOptions::new();
    let made = three.admin().create_keyspace("other", &options).await;
    made.expect("a keyspace");
    let other = three.map("words").keyspace("other");
    let other: Map<u64, String> = other.await.expect("a map");
    let mut elsewhere = begin(other.subscribe().after(bookmark)).await;
    assert_eq!(next(&mut elsewhere).await, MapChange::Lagged(None));
    other.insert(&1, &"x".into()).await.expect("written");
    assert_eq!(next(&mut elsewhere).await, inserted(1, "x"));
    second.shutdown().await;
    three.kill().await;
    let ended = changes.bookmark().await;
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    two.kill().await;
}

#[tokio::test]
async fn a_database_tells_what_redis_clients_do() {
    let one = node("one", &[]).await;
    let database = one.database();
    let changes = database.subscribe().prefix("user:").old_values();
    let mut changes = changes.await.expect("begun");
    let mut quiet = database.subscribe().key("user:1").without_values();
    quiet = quiet.prefix("user:");
    let mut quiet = quiet.await.expect("begun");
    database.set("session:1", "x").await.expect("written");
    database.set("user:1", "ada").await.expect("written");
    database.remove("user:1").await.expect("removed");
    for (changes, value, old) in [
        (&mut changes, Some("ada".into()), Some("ada".into())),
        (&mut quiet, None, None),
    ] {
        let mut whats = Vec::new();
        for _ in 0..2 {
            match changes.next().await {
                Some(DatabaseChange::Change(change)) => {
                    assert_eq!(change.key, "user:1");
                    let Change { what, before, .. } = change;
                    whats.push((what, before));
                }
                other => panic!("{other:?}"),
            }
        }
        let expected = [
            (What::Put(doyen::Kind::String, value), Former::Nothing),
            (What::Removed(Cause::Command), Former::Value(old)),
        ];
        assert_eq!(whats, expected);
    }
    // Bytes that are no value of the map's type are an error, and the next change comes.
    let words: Map<String, u64> = one.map("words").await.expect("a map");
    let numbers: Map<String, String> = one.map("words").await.expect("a map");
    let mut changes = words.subscribe().await.expect("begun");
    numbers
        .insert("a", &"\u{1f600}\u{1f600}".into())
        .await
        .expect("written");
    words.insert("a", &1).await.expect("written");
    let first = changes.next().await.expect("it goes on");
    assert!(matches!(first, Err(Error::Value(_))), "{first:?}");
    let second = changes.next().await.expect("it goes on").expect("a change");
    let (key, value, old) = ("a".to_owned(), 1, None);
    assert_eq!(second, MapChange::Updated { key, value, old });
    one.kill().await;
}
