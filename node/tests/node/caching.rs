//! A cache that loads what is missing, on several nodes.

use crate::embedded::{node_with, safe};
use doyen::{Cache, Error, Loaded, Map, Node};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(100);

async fn three() -> [Node; 3] {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    let three = node_with("three", &[&one], |builder| builder).await;
    safe(&one, 3).await;
    [one, two, three]
}

/// Repeats until this holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("in vain: {what}");
    }
}

async fn value(of: u32) -> Result<u32, Infallible> {
    Ok(of)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_callers_on_all_nodes_one_loads() {
    let mut nodes = Vec::from(three().await);
    for name in ["four", "five"] {
        let node = node_with(name, &[&nodes[0]], |builder| builder).await;
        nodes.push(node);
    }
    safe(&nodes[0], 5).await;
    let seed = nodes[0].addresses().data.to_string();
    let client = Node::builder().client().seed(seed).start().await;
    let client = client.expect("it connects");
    let mut caches = Vec::new();
    for node in nodes.iter().chain([&client]) {
        let cache: Cache<String, u32> = node.cache("answers").await.expect("a cache");
        caches.push(cache);
    }
    let loads = Arc::new(AtomicUsize::new(0));
    let callers = (0..1_000).map(|n: usize| {
        let (cache, loads) = (caches[n % caches.len()].clone(), loads.clone());
        tokio::spawn(async move {
            let load = move || async move {
                loads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(SHORT).await;
                value(42).await
            };
            cache.get_or_load("life", load).await
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        assert_eq!(caller.await.expect("it runs"), Ok(42));
    }
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    assert_eq!(caches[1].get("life").await, Ok(Some(42)));
}

#[tokio::test]
async fn if_the_node_that_loads_dies_another_caller_loads() {
    let [one, two, three] = three().await;
    let open = async |node: &Node| -> Cache<u64, u32> {
        let cache = node.cache("answers").claim_lease(SHORT * 3);
        cache.await.expect("a cache")
    };
    let (there, here, also) = (open(&three).await, open(&one).await, open(&two).await);
    let begun = Arc::new(Notify::new());
    let told = begun.clone();
    let load = move || async move {
        told.notify_one();
        std::future::pending::<Result<u32, Infallible>>().await
    };
    let dying = tokio::spawn(async move { there.get_or_load(&7, load).await });
    begun.notified().await;
    let loads = Arc::new(AtomicUsize::new(0));
    let callers = [here.clone(), also, here.clone()].map(|cache| {
        let loads = loads.clone();
        tokio::spawn(async move {
            let load = move || async move {
                loads.fetch_add(1, Ordering::SeqCst);
                value(42).await
            };
            cache.get_or_load(&7, load).await
        })
    });
    three.kill().await;
    for caller in callers {
        let found = tokio::time::timeout(PATIENCE, caller).await;
        assert_eq!(found.expect("in time").expect("it runs"), Ok(42));
    }
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    dying.abort();
}

/// The runtime of a program ends while its loader runs. Its node lives on, and would keep the claim
/// for the rest of its lease.
#[tokio::test]
async fn a_load_whose_runtime_has_ended_gives_its_claim_back() {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    let open = async |node: &Node| -> Cache<u64, u32> {
        let cache = node.cache("answers").claim_lease(LONG);
        cache.await.expect("a cache")
    };
    let (there, here) = (open(&two).await, open(&one).await);
    let ends = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let begun = Arc::new(Notify::new());
            let told = begun.clone();
            let load = move || async move {
                told.notify_one();
                std::future::pending::<Result<u32, Infallible>>().await
            };
            tokio::select! {
                _ = there.get_or_load(&7, load) => panic!("it never loads"),
                () = begun.notified() => {}
            }
        });
    });
    ends.await.expect("it ends");
    let loaded = here.get_or_load(&7, || value(42)).await;
    assert_eq!(loaded, Ok(42));
}

/// The claim is renewed by a thread of the node, although the loader blocks its own thread for
/// several leases.
#[tokio::test]
async fn a_loader_that_blocks_its_thread_loads_once_and_is_cached() {
    let nodes = three().await;
    for workers in [0, 2] {
        let name = format!("blocking {workers}");
        let loads = Arc::new(AtomicUsize::new(0));
        let all = Arc::new(std::sync::Barrier::new(nodes.len()));
        // Each node belongs to a program of its own.
        let programs = nodes.each_ref().map(|node| {
            let (node, name, loads, all) = (node.clone(), name.clone(), loads.clone(), all.clone());
            std::thread::spawn(move || {
                let mut runtime = match workers {
                    0 => tokio::runtime::Builder::new_current_thread(),
                    _ => tokio::runtime::Builder::new_multi_thread(),
                };
                if workers > 0 {
                    runtime.worker_threads(workers);
                }
                let runtime = runtime.enable_all().build().expect("a runtime");
                runtime.block_on(async move {
                    let open = node.cache(&name).claim_lease(SHORT * 3).fresh_for(LONG);
                    let cache: Cache<u64, u32> = open.await.expect("a cache");
                    all.wait();
                    let load = move || async move {
                        loads.fetch_add(1, Ordering::SeqCst);
                        // What a driver of a database does that has no async.
                        std::thread::sleep(SHORT * 15);
                        value(42).await
                    };
                    assert_eq!(cache.get_or_load(&1, load).await, Ok(42));
                    assert_eq!(cache.get(&1).await, Ok(Some(42)), "it is cached");
                });
            })
        });
        let joining = tokio::task::spawn_blocking(|| programs.map(|one| one.join()));
        for one in joining.await.expect("it runs") {
            one.expect("it loads");
        }
        assert_eq!(loads.load(Ordering::SeqCst), 1, "{workers} workers");
    }
}

/// A loader that never returns loses its claim once its time is over.
#[tokio::test]
async fn a_loader_that_blocks_for_ever_loses_its_claim() {
    let [one, two, _three] = three().await;
    let open = async |node: &Node| -> Cache<u64, u32> {
        let open = node.cache("answers").claim_lease(SHORT * 3);
        open.hard_timeout(SHORT * 10).await.expect("a cache")
    };
    let (here, there) = (open(&one).await, open(&two).await);
    let (begun, begins) = tokio::sync::oneshot::channel();
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let load = move || async move {
                let _ = begun.send(());
                std::thread::sleep(SHORT * 40);
                value(1).await
            };
            here.get_or_load(&1, load).await
        })
    });
    begins.await.expect("it begins");
    let mut found = there.get_or_load(&1, || value(42)).await;
    while matches!(found, Err(Error::LoadTimeout(_))) {
        found = there.get_or_load(&1, || value(42)).await;
    }
    assert_eq!(found, Ok(42));
    assert!(!blocked.is_finished(), "it is still blocked");
    let _ = blocked.join().expect("it ends");
    assert_eq!(
        there.get(&1).await,
        Ok(Some(42)),
        "what came late is not stored"
    );
}

#[tokio::test]
async fn what_was_read_before_an_invalidation_is_not_cached() {
    let [one, two, _three] = three().await;
    let here: Cache<String, u32> = one.cache("prices").fresh_for(LONG).await.expect("a cache");
    let there: Cache<String, u32> = two.cache("prices").fresh_for(LONG).await.expect("a cache");
    let database = Arc::new(AtomicUsize::new(1));
    let void = async |how: &str| match how {
        "by key" => there.invalidate("fruit/tea").await.map(|_| ()),
        "by prefix" => there.invalidate_prefix("fruit/").await,
        "by tag" => there.invalidate_tag("any").await,
        "of all" => there.invalidate_all().await,
        _ => there.insert("fruit/tea", &0).await,
    };
    for how in ["by key", "by prefix", "by tag", "of all", "by a write"] {
        let (read, go_on) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let slow = {
            let (read, go_on, database) = (read.clone(), go_on.clone(), database.clone());
            move || async move {
                let found = database.load(Ordering::SeqCst);
                read.notify_one();
                let _ = go_on.acquire().await;
                value(found as u32).await
            }
        };
        let loading = tokio::spawn({
            let here = here.clone();
            async move { here.get_or_load("fruit/tea", slow).await }
        });
        read.notified().await;
        let old = database.fetch_add(1, Ordering::SeqCst) as u32;
        void(how).await.expect("invalidated");
        // A caller that begins now must not see the old price, though that load is under way.
        let later = tokio::spawn({
            let (here, database) = (here.clone(), database.clone());
            let load = move || async move { value(database.load(Ordering::SeqCst) as u32).await };
            async move { here.get_or_load("fruit/tea", load).await }
        });
        tokio::task::yield_now().await;
        go_on.add_permits(1);
        let first = loading.await.expect("it runs");
        assert_eq!(first, Ok(old), "{how}: it began before");
        let now = later.await.expect("it runs");
        let new = if how == "by a write" { 0 } else { old + 1 };
        assert_eq!(now, Ok(new), "{how}");
        assert_eq!(there.get("fruit/tea").await, Ok(Some(new)), "{how}");
        here.invalidate_all().await.expect("emptied");
    }
}

#[tokio::test]
async fn an_old_value_is_served_while_it_is_loaded_anew_or_cannot_be() {
    let [one, two, _three] = three().await;
    let stale = one.cache("stale").fresh_for(SHORT).stale_for(LONG).await;
    let stale: Cache<u64, u32> = stale.expect("a cache");
    stale.insert(&1, &10).await.expect("written");
    // Once it is stale, a read returns it at once and has it loaded in the background.
    let load = || async move { value(11).await };
    until("it is loaded again", async || {
        stale.get_or_load(&1, load).await.expect("served") == 11
    })
    .await;

    let failing = || async { Err::<u32, _>(std::io::Error::other("the database is down")) };
    let open = two.cache("kept").fresh_for(SHORT).stale_if_error(LONG);
    let kept: Cache<u64, u32> = open.retry_after(LONG).await.expect("a cache");
    kept.insert(&1, &10).await.expect("written");
    until("it is no longer fresh", async || {
        kept.get(&1).await == Ok(None)
    })
    .await;
    assert_eq!(kept.get_or_load(&1, failing).await, Ok(10), "the old value");
    // For a while no caller loads again.
    let never = || async { Err::<u32, _>(std::io::Error::other("tried again")) };
    assert_eq!(kept.get_or_load(&1, never).await, Ok(10));
    assert_eq!(kept.get(&1).await, Ok(Some(10)));
    // A load that takes longer than the soft timeout ends in the background.
    let slow = two.cache("slow").fresh_for(SHORT).stale_if_error(LONG);
    let slow: Cache<u64, u32> = slow.soft_timeout(SHORT).await.expect("a cache");
    slow.insert(&1, &10).await.expect("written");
    until("it is no longer fresh", async || {
        slow.get(&1).await == Ok(None)
    })
    .await;
    let go_on = Arc::new(Semaphore::new(0));
    let waits = go_on.clone();
    let load = move || async move {
        let _ = waits.acquire().await;
        Ok::<_, Infallible>(Loaded::new(11).fresh_for(LONG))
    };
    assert_eq!(slow.get_or_load(&1, load).await, Ok(10));
    go_on.add_permits(1);
    until("it is stored", async || slow.get(&1).await == Ok(Some(11))).await;
}

#[tokio::test]
async fn loaders_that_fail_panic_or_hang_are_errors_and_the_next_caller_loads() {
    let [one, _two, _three] = three().await;
    let cache: Cache<u64, u32> = one.cache("answers").await.expect("a cache");
    // Not for the loader that panics: a busy machine takes long to print where it did.
    let hasty = one.cache("answers").hard_timeout(SHORT * 5).await;
    let hasty: Cache<u64, u32> = hasty.expect("a cache");
    let down = || async { Err::<u32, _>(std::io::Error::other("down")) };
    let failed = cache.get_or_load(&1, down).await.expect_err("it fails");
    let Error::Load(why) = &failed else {
        panic!("{failed:?}");
    };
    assert!(why.is::<std::io::Error>(), "the loader's own error");
    let source = std::error::Error::source(&failed).expect("it has one");
    assert_eq!(source.to_string(), "down");
    let panics = || async { panic!("a defect of the program") };
    let panicked = cache
        .get_or_load::<u64, _, _, u32, Infallible>(&1, panics)
        .await;
    assert!(
        matches!(&panicked, Err(Error::Load(why)) if why.to_string().contains("panicked")),
        "{panicked:?}"
    );
    let hangs = || std::future::pending::<Result<u32, Infallible>>();
    let hung = hasty.get_or_load(&1, hangs).await;
    assert!(matches!(hung, Err(Error::LoadTimeout(_))), "{hung:?}");
    assert_eq!(hasty.get_or_load(&1, || value(42)).await, Ok(42));
    // The caller gives up, and its load goes on.
    let go_on = Arc::new(Semaphore::new(0));
    let waits = go_on.clone();
    let begun = Arc::new(Notify::new());
    let told = begun.clone();
    let caller = tokio::spawn({
        let cache = cache.clone();
        let load = move || async move {
            told.notify_one();
            let _ = waits.acquire().await;
            value(43).await
        };
        async move { cache.get_or_load(&2, load).await }
    });
    begun.notified().await;
    caller.abort();
    go_on.add_permits(1);
    until("it is stored", async || cache.get(&2).await == Ok(Some(43))).await;
}

#[tokio::test]
async fn tags_and_absence_are_remembered_and_other_schemas_are_loaded_anew() {
    let [one, two, _three] = three().await;
    let open = || one.cache("pages").absent_for(LONG);
    let cache: Cache<(String, u64), String> = open().await.expect("a cache");
    for n in 0..40 {
        let load = move || async move {
            let page = Loaded::new(format!("page {n}")).tag(format!("user {}", n % 4));
            Ok::<_, Infallible>(page.tag("pages"))
        };
        let key = (format!("site {}", n % 2), n);
        cache.get_or_load(&key, load).await.expect("loaded");
    }
    let there: Cache<(String, u64), String> = two.cache("pages").await.expect("a cache");
    there.invalidate_tag("user 3").await.expect("invalidated");
    there
        .invalidate_prefix(&("site 0",))
        .await
        .expect("invalidated");
    for n in 0..40 {
        let key = (format!("site {}", n % 2), n);
        let page = cache.get(&key).await.expect("read");
        assert_eq!(page.is_some(), n % 4 == 1, "{n}");
    }
    // What is not there is looked for once.
    let key = ("site 9".to_owned(), 9);
    let nothing = || async { Ok::<Option<String>, Infallible>(None) };
    assert_eq!(cache.find_or_load(&key, nothing).await, Ok(None));
    let found = || async { Ok::<_, Infallible>(Some("a page".to_owned())) };
    assert_eq!(there.find_or_load(&key, found).await, Ok(None), "known");
    let why = there.get_or_load(&key, || async { Ok::<_, Infallible>(String::new()) });
    assert!(matches!(why.await, Err(Error::Load(_))));
    there.invalidate(&key).await.expect("invalidated");
    assert_eq!(
        there.find_or_load(&key, found).await,
        Ok(Some("a page".into()))
    );
    // Another version of the program loads again what it cannot read.
    let next = one.cache::<(String, u64), u64>("pages").schema("page", 2);
    let next = next.await.expect("a cache");
    assert_eq!(next.get(&key).await, Ok(None));
    let load = || async { Ok::<_, Infallible>(7_u64) };
    assert_eq!(next.get_or_load(&key, load).await, Ok(7));
    assert_eq!(next.get(&key).await, Ok(Some(7)));
    // Tags that are too long are an error, and nothing is stored.
    let long = "x".repeat(300);
    let load = move || async move { Ok::<_, Infallible>(Loaded::new(1_u64).tag(long)) };
    let key = ("site 1".to_owned(), 77);
    let refused = next.get_or_load(&key, load).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(next.get(&key).await, Ok(None));
}

#[tokio::test]
async fn entries_are_read_page_by_page_in_order_where_there_is_one() {
    let [one, two, _three] = three().await;
    let ranges = doyen::KeyspaceOptions::new().ranges(Vec::<Vec<u8>>::new());
    let made = one.admin().create_keyspace("ordered", &ranges).await;
    made.expect("created");
    for keyspace in ["default", "ordered"] {
        let map = one.map("readings").keyspace(keyspace).await;
        let map: Map<(String, u64), u64> = map.expect("a map");
        let other = one.map("others").keyspace(keyspace).await;
        let other: Map<(String, u64), u64> = other.expect("a map");
        let entries: Vec<_> = (0..3_000_u64)
            .map(|n| (((if n % 3 == 0 { "a" } else { "b" }).to_owned(), n), n * n))
            .collect();
        let written = map.insert_many(entries.iter().map(|(key, value)| (key, value)));
        written
            .await
            .into_iter()
            .for_each(|one| one.expect("written"));
        other.insert(&("a".into(), 1), &1).await.expect("written");
        let there = two.map("readings").keyspace(keyspace).await;
        let there: Map<(String, u64), u64> = there.expect("a map");
        let read = async |mut entries: doyen::Entries<(String, u64), u64>| {
            let mut all = Vec::new();
            while let Some(entry) = entries.next().await.expect("read") {
                all.push(entry);
            }
            all
        };
        let sorted = |mut all: Vec<((String, u64), u64)>| {
            all.sort();
            all
        };
        let expected = sorted(entries.clone());
        let all = read(there.iter()).await;
        assert_eq!(sorted(all.clone()), expected, "{keyspace}");
        let mut some = expected.clone();
        some.retain(|((name, _), _)| name == "a");
        let found = read(there.prefix(&("a",))).await;
        assert_eq!(sorted(found), some, "{keyspace}");
        assert_eq!(read(there.prefix(&("c",))).await, [], "{keyspace}");
        let (from, to) = (("a".to_owned(), 30), ("b".to_owned(), 5));
        if keyspace == "default" {
            let refused = there.range(from..to).expect_err("no order").to_string();
            assert!(refused.contains("keyspace of ranges"), "{refused}");
            continue;
        }
        assert_eq!(all, expected, "in order");
        let within = |entry: &&((String, u64), u64)| entry.0 >= from && entry.0 < to;
        let some: Vec<_> = expected.iter().filter(within).cloned().collect();
        let range = there.range(from.clone()..to.clone()).expect("an order");
        assert_eq!(read(range).await, some);
    }
}
