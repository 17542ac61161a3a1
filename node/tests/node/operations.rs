//! What a map does with keys by what they hold, and with many keys, on two nodes.

use crate::embedded::{node_with, safe};
use doyen::{Map, Node, WriteError};
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
                    Err(WriteError::Changed) => {}
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
        matches!(written[..], [Err(WriteError::TooLarge), Ok(())]),
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
