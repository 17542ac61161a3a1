//! Loaders that ask for other keys, and in the end for their own.

use crate::embedded::{node_with, safe};
use doyen::{Cache, Error, Node};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Far below the time after which a load fails that waits for itself (30 s).
const AT_ONCE: Duration = Duration::from_secs(10);
/// The seed of the other process.
const SEED: &str = "DOYEN_TEST_SEED";

async fn three() -> [Node; 3] {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    let three = node_with("three", &[&one], |builder| builder).await;
    safe(&one, 3).await;
    [one, two, three]
}

async fn open(node: &Node) -> Cache<u64, u64> {
    node.cache("numbers").await.expect("a cache")
}

/// What a key costs, if its loader asks for the next keys in these caches.
fn ask(
    caches: Vec<(Cache<u64, u64>, u64)>,
) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, BoxError>> + Send>> {
    Box::pin(async move {
        let mut rest = caches.into_iter();
        let Some((cache, key)) = rest.next() else {
            return Ok(7);
        };
        let rest = rest.collect();
        Ok(cache.get_or_load(&key, move || ask(rest)).await?)
    })
}

/// The keys that an error names. Every load on the way has it.
fn cycle(why: &(dyn std::error::Error + 'static)) -> String {
    match why.downcast_ref::<Error>() {
        Some(Error::LoadCycle(keys)) => keys.clone(),
        _ => panic!("{why:?}"),
    }
}

#[tokio::test]
async fn a_loader_that_asks_for_its_own_key_fails_at_once() {
    let [one, two, three] = three().await;
    let (a, b, c) = (open(&one).await, open(&two).await, open(&three).await);
    let began = Instant::now();
    let of = |cache: &Cache<u64, u64>, key| (cache.clone(), key);
    for (asked, named) in [
        (vec![of(&a, 1), of(&a, 1)], "numbers 1 -> numbers 1"),
        (
            vec![of(&a, 1), of(&a, 2), of(&a, 1)],
            "numbers 1 -> numbers 2 -> numbers 1",
        ),
        // By way of other nodes.
        (
            vec![of(&a, 1), of(&b, 2), of(&c, 1)],
            "numbers 1 -> numbers 2 -> numbers 1",
        ),
        (vec![of(&a, 1), of(&b, 1)], "numbers 1 -> numbers 1"),
        // The first one is no part of it.
        (
            vec![of(&a, 9), of(&b, 1), of(&c, 2), of(&a, 3), of(&b, 2)],
            "numbers 2 -> numbers 3 -> numbers 2",
        ),
    ] {
        let why = ask(asked).await.expect_err("it cannot be loaded");
        assert_eq!(cycle(&*why), named);
        // A good loader is not taken along.
        for (n, cache) in [&a, &b, &c].into_iter().enumerate() {
            let n = n as u64 + 1;
            let loaded = cache.get_or_load(&n, move || async move { Ok::<_, Error>(n) });
            assert_eq!(loaded.await, Ok(n));
        }
        a.invalidate_all().await.expect("emptied");
    }
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    // What is no cycle is loaded: 1 and 2 both ask for 3.
    let both = tokio::join!(
        ask(vec![of(&a, 1), of(&b, 3)]),
        ask(vec![of(&b, 2), of(&c, 3)]),
    );
    assert_eq!((both.0.ok(), both.1.ok()), (Some(7), Some(7)));
    // A loader that finds an old value of its own key gets that.
    let short = Duration::from_millis(1);
    let kept: Cache<u64, u64> = (one.cache("kept").fresh_for(short))
        .stale_if_error(Duration::from_secs(3600))
        .await
        .expect("a cache");
    kept.insert(&1, &70).await.expect("written");
    while kept.get(&1).await.expect("read").is_some() {
        tokio::task::yield_now().await;
    }
    let inner = kept.clone();
    let load = move || async move {
        let old = inner
            .get_or_load(&1, || async { Ok::<_, Error>(0) })
            .await?;
        Ok::<_, Error>(old + 1)
    };
    assert_eq!(kept.get_or_load(&1, load).await, Ok(71));
}

/// 1 is loaded by one task and 2 by another, and then each asks for the other's key.
#[tokio::test]
async fn loads_of_two_callers_that_wait_for_each_other_fail_at_once() {
    let [one, two, _three] = three().await;
    let (here, there) = (open(&one).await, open(&two).await);
    for (first, second) in [(here.clone(), here.clone()), (here, there)] {
        let began = Instant::now();
        let both = std::sync::Arc::new(Barrier::new(2));
        let crossing =
            [(first.clone(), 1, 2), (second.clone(), 2, 1)].map(|(cache, own, other)| {
                let both = both.clone();
                tokio::spawn(async move {
                    let inner = cache.clone();
                    let load = move || async move {
                        both.wait().await;
                        let asked = inner.get_or_load(&other, || async { Ok::<_, BoxError>(0) });
                        asked.await
                    };
                    cache.get_or_load(&own, load).await
                })
            });
        // At least one hears of the cycle. The other one may be loaded then, by its own loader.
        let mut told = 0;
        for one in crossing {
            if let Err(why) = one.await.expect("it runs") {
                assert!(cycle(&why).starts_with("numbers "), "{why}");
                told += 1;
            }
        }
        assert!(told > 0);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        first.invalidate_all().await.expect("emptied");
    }
}

#[tokio::test]
async fn loads_of_two_processes_that_wait_for_each_other_fail_at_once() {
    let [one, _two, _three] = three().await;
    let cache = open(&one).await;
    let began = Instant::now();
    let myself = std::env::current_exe().expect("this program");
    let other = tokio::task::spawn_blocking({
        let seed = one.addresses().data.to_string();
        move || {
            Command::new(myself)
                .args(["--ignored", "--exact", "cycles::the_other_process"])
                .env(SEED, seed)
                .output()
        }
    });
    let why = cross(&one, &cache, (1, 2)).await;
    let other = other.await.expect("it runs").expect("it starts");
    assert!(
        other.status.success(),
        "{}",
        String::from_utf8_lossy(&other.stdout)
    );
    // Each asks for the other's key by a loader that asks back, so both hear of the cycle.
    let why = why.expect_err("it cannot be loaded");
    let keys = cycle(&why);
    assert!(
        [
            "numbers 1 -> numbers 2 -> numbers 1",
            "numbers 2 -> numbers 1 -> numbers 2"
        ]
        .contains(&&*keys),
        "{keys}"
    );
    assert!(began.elapsed() < AT_ONCE * 2, "{:?}", began.elapsed());
    assert_eq!(
        cache.get_or_load(&1, || async { Ok::<_, Error>(5) }).await,
        Ok(5)
    );
}

/// Asks for a key whose loader asks for the other one, once the other process does the same.
async fn cross(
    node: &Node,
    cache: &Cache<u64, u64>,
    (own, other): (u64, u64),
) -> Result<u64, Error> {
    let begun = node.counters::<u8>("begun").await?;
    let inner = cache.clone();
    let load = move || async move {
        begun.add(&0, 1).await?;
        while begun.get(&0).await? < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let back = inner.clone();
        let asks =
            move || async move { back.get_or_load(&own, || async { Ok::<_, Error>(0) }).await };
        inner.get_or_load(&other, asks).await
    };
    cache.get_or_load(&own, load).await
}

#[tokio::test]
#[ignore = "a process of the test above"]
async fn the_other_process() {
    let Ok(seed) = std::env::var(SEED) else {
        return;
    };
    let client = Node::builder().client().seed(seed).start().await;
    let client = client.expect("it connects");
    let cache = open(&client).await;
    let why = cross(&client, &cache, (2, 1)).await;
    let why = why.expect_err("it cannot be loaded");
    assert!(cycle(&why).contains(" -> "), "{why}");
    client.shutdown().await;
}
