//! The cache with moka's names, on several nodes.

use crate::embedded::{node_with, safe};
use doyen::facade::moka::Cache;
use doyen::testkit::Local;
use doyen::{Error, Node};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

async fn two() -> [Node; 2] {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    [one, two]
}

async fn open(node: &Node) -> Cache<u64, String> {
    let built = Cache::builder("users").build(node).await;
    built.expect("a cache")
}

fn ada() -> String {
    "Ada".to_owned()
}

#[tokio::test]
async fn all_nodes_have_what_one_inserts_until_one_invalidates_it() {
    let [one, two] = two().await;
    let (here, there) = (open(&one).await, open(&two).await);
    assert_eq!(here.name(), "users");
    assert_eq!(there.get(&7).await, Ok(None));
    here.insert(7, ada()).await.expect("stored");
    assert_eq!(there.get(&7).await, Ok(Some(ada())));
    assert_eq!(there.contains_key(&7).await, Ok(true));
    assert_eq!(there.entry_count().await, Ok(1));

    there.invalidate(&7).await.expect("removed");
    assert_eq!(here.contains_key(&7).await, Ok(false));
    assert_eq!(here.remove(&7).await, Ok(None));
    for key in 0..10 {
        here.insert(key, key.to_string()).await.expect("stored");
    }
    assert_eq!(there.remove(&3).await, Ok(Some("3".to_owned())));
    assert_eq!(here.get(&3).await, Ok(None));
    assert_eq!(here.entry_count().await, Ok(9));
    there.invalidate_all().await.expect("removed");
    assert_eq!(here.entry_count().await, Ok(0));
    one.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn one_caller_makes_what_is_missing() {
    let [one, two] = two().await;
    let (here, there) = (open(&one).await, open(&two).await);
    let made = Arc::new(AtomicUsize::new(0));
    let make = || {
        let made = made.clone();
        async move {
            made.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            ada()
        }
    };
    let all = tokio::join!(
        here.get_with(7, make()),
        here.get_with(7, make()),
        there.get_with(7, make()),
        there.get_with(7, make()),
    );
    assert_eq!(all, (Ok(ada()), Ok(ada()), Ok(ada()), Ok(ada())));
    assert_eq!(made.load(Ordering::SeqCst), 1);

    let found = there.entry(7).or_insert_with(make()).await.expect("there");
    assert!(!found.is_fresh() && *found.key() == 7 && found.into_value() == ada());
    let new = there.entry(8).or_insert("Grace".to_owned()).await;
    let new = new.expect("made");
    assert!(new.is_fresh() && new.value() == "Grace");
    assert_eq!(here.get(&8).await, Ok(Some("Grace".to_owned())));
    one.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn what_cannot_be_made_is_not_stored() {
    let [one, two] = two().await;
    let cache = open(&one).await;
    let fails = || async { Err::<String, _>(io::Error::other("no database")) };
    let error = cache.try_get_with(7, fails()).await.expect_err("it failed");
    let Error::Load(why) = &error else {
        panic!("{error}");
    };
    let why = why.downcast_ref::<io::Error>().map(ToString::to_string);
    assert_eq!(why.as_deref(), Some("no database"));
    let error = cache.entry(7).or_try_insert_with(fails()).await;
    assert!(matches!(error, Err(Error::Load(_))), "{error:?}");

    assert_eq!(cache.optionally_get_with(7, async { None }).await, Ok(None));
    assert_eq!(cache.get(&7).await, Ok(None));
    let made = cache.optionally_get_with(7, async { Some(ada()) }).await;
    assert_eq!(made, Ok(Some(ada())), "that there was nothing is not kept");
    one.kill().await;
    two.kill().await;
}

#[doyen::test(nodes = 1)]
async fn entries_live_for_their_time(cluster: doyen::testkit::Local) -> Result<(), Error> {
    let minute = Duration::from_secs(60);
    let short: Cache<u64, String> = Cache::builder("short")
        .time_to_live(minute)
        .build(&cluster.node(0))
        .await?;
    let long: Cache<u64, String> = Cache::builder("long").build(&cluster.node(0)).await?;
    for cache in [&short, &long] {
        cache.insert(7, ada()).await?;
        cache.insert(8, ada()).await?;
    }
    cluster.advance(minute / 2).await;
    assert_eq!(short.get(&7).await?, Some(ada()));
    cluster.advance(minute / 2 + Duration::from_secs(1)).await;
    assert_eq!(
        short.get(&7).await?,
        None,
        "reading it did not make it younger"
    );
    assert_eq!(short.remove(&8).await?, None);
    cluster.advance(1_000 * minute).await;
    assert_eq!(long.get(&7).await?, Some(ada()));
    assert_eq!(long.remove(&8).await?, Some(ada()));
    Ok(())
}

#[doyen::test(nodes = 2)]
async fn entries_go_when_they_are_many(cluster: Local) -> Result<(), Error> {
    let (one, two) = (cluster.node(0), cluster.node(1));
    let built = Cache::builder("few").max_capacity(50);
    let here: Cache<u64, String> = built.build(&one).await?;
    let there: Cache<u64, String> = Cache::builder("few").build(&two).await?;
    for key in 0..200 {
        here.get_with(key, async { ada() }).await?;
    }
    let bounded = async {
        while there.entry_count().await? > 50 {
            tokio::task::yield_now().await;
        }
        Ok::<(), Error>(())
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, bounded).await.expect("few")
}

#[doyen::test(nodes = 2)]
async fn entries_go_when_they_are_unused(cluster: Local) -> Result<(), Error> {
    let idle = Duration::from_secs(80);
    let (one, two) = (cluster.node(0), cluster.node(1));
    let built = Cache::builder("used").max_capacity(50).time_to_idle(idle);
    let here: Cache<u64, String> = built.build(&one).await?;
    let there: Cache<u64, String> = Cache::builder("used").build(&two).await?;
    // A tag is found, whatever else is stored with the value. A map that is full might evict the
    // entry, so it is alone.
    here.inner().put(&7, &ada()).tag("letters").await?;
    assert_eq!(there.get(&7).await?, Some(ada()));
    for _ in 0..4 {
        cluster.advance(idle / 2).await;
        assert_eq!(there.get(&7).await?, Some(ada()), "it is used");
    }
    here.inner().invalidate_tag("letters").await?;
    assert_eq!(there.get(&7).await?, None);
    here.inner().put(&7, &ada()).await?;
    cluster.advance(idle + idle / 8).await;
    assert_eq!(there.get(&7).await?, None, "it was not used");
    assert_eq!(there.entry_count().await?, 0);
    Ok(())
}
