//! Functions that the whole cluster remembers.

use cached::ConcurrentCachedAsync;
use cached::macros::concurrent_cached;
use doyen::testkit::Local;
use doyen::{Error, Node};
use doyen_web::CachedMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static NODE: OnceLock<Node> = OnceLock::new();
static CALLS: AtomicU32 = AtomicU32::new(0);

async fn squares() -> CachedMap<u64, u64> {
    let node = NODE.get().expect("the test sets it first");
    CachedMap::new(node.map("squares").await.expect("a map"))
}

#[concurrent_cached(
    ty = "CachedMap<u64, u64>",
    create = "{ squares().await }",
    map_error = "|why: Error| why"
)]
async fn square(n: u64) -> Result<u64, Error> {
    CALLS.fetch_add(1, Ordering::Relaxed);
    n.checked_mul(n).ok_or(Error::Overflow)
}

#[doyen::test(nodes = 2)]
async fn a_function_is_called_once_and_its_result_is_on_every_node(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    NODE.set(one).expect("no other test uses it");
    assert_eq!(square(7).await, Ok(49));
    assert_eq!(square(7).await, Ok(49));
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    let there = two.map::<u64, u64>("squares").await.expect("a map");
    assert_eq!(there.get(&7).await, Ok(Some(49)));
    there.insert(&8, &64).await.expect("written");
    assert_eq!(square(8).await, Ok(64), "as the other node has it");
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);

    // An error is not remembered.
    assert_eq!(square(u64::MAX).await, Err(Error::Overflow));
    assert_eq!(square(u64::MAX).await, Err(Error::Overflow));
    assert_eq!(CALLS.load(Ordering::Relaxed), 3);
    cluster.kill(0).await;
    assert!(square(7).await.is_err(), "the store says what is wrong");
    assert_eq!(CALLS.load(Ordering::Relaxed), 3);
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_store_keeps_its_contract(cluster: Local) {
    let node = cluster.node(0);
    let map = node.map::<String, u32>("numbers").await.expect("a map");
    let store = CachedMap::new(map.clone());
    let key = "k".to_owned();
    assert_eq!(store.cache_get(&key).await, Ok(None));
    assert_eq!(store.cache_set(key.clone(), 1).await, Ok(None));
    assert_eq!(store.cache_set(key.clone(), 2).await, Ok(Some(1)));
    assert_eq!(map.ttl(&key).await, Ok(None));

    let minute = Duration::from_secs(60);
    assert_eq!(store.set_ttl(minute), None);
    assert_eq!(ConcurrentCachedAsync::ttl(&store.clone()), Some(minute));
    assert_eq!(store.cache_set(key.clone(), 3).await, Ok(Some(2)));
    let left = map.ttl(&key).await.expect("read").expect("it expires");
    assert!(left <= minute);

    assert_eq!(store.set_ttl(minute * 60), Some(minute));
    assert_eq!(store.cache_get(&key).await, Ok(Some(3)));
    assert!(map.ttl(&key).await.expect("read") <= Some(minute));
    assert!(!store.set_refresh_on_hit(true));
    assert_eq!(store.cache_get(&key).await, Ok(Some(3)));
    assert!(map.ttl(&key).await.expect("read") > Some(minute), "a hit");
    assert!(store.set_refresh_on_hit(false));
    assert_eq!(store.unset_ttl(), Some(minute * 60));

    assert_eq!(
        store.cache_remove_entry(&key).await,
        Ok(Some((key.clone(), 3)))
    );
    assert_eq!(store.cache_remove_entry(&key).await, Ok(None));
    assert_eq!(store.cache_set(key.clone(), 4).await, Ok(None));
    assert_eq!(store.cache_remove(&key).await, Ok(Some(4)));
    assert_eq!(store.cache_delete(&key).await, Ok(false));
    assert_eq!(store.cache_size(), Ok(None));
}
