//! Locks, semaphores, leaders, work that is done once, and rate limits, on several nodes.

use crate::embedded::{node_with, safe};
use doyen::{Error, Eviction, KeyspaceOptions, Map, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn two() -> (Node, Node) {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    (one, two)
}

#[tokio::test]
async fn one_holder_at_a_time_and_tokens_grow() {
    let (one, two) = two().await;
    let inside = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    let callers = (0..40).map(|n| {
        let lock = if n % 2 == 0 { &one } else { &two }.lock("job");
        let (inside, tokens) = (inside.clone(), tokens.clone());
        tokio::spawn(async move {
            let grant = lock.acquire(PATIENCE).await.expect("its turn comes");
            assert!(grant.is_held());
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
            tokens.lock().expect("whole").push(grant.token());
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            if n % 3 == 0 {
                drop(grant);
            } else {
                assert_eq!(grant.release().await, Ok(true));
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("it runs");
    }
    let tokens = tokens.lock().expect("whole").clone();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test]
async fn a_lock_that_is_taken_is_refused_waited_for_and_lost_with_its_key() {
    let (one, two) = two().await;
    let lock = one.lock("job");
    let grant = lock.try_acquire().await.expect("asked").expect("free");
    assert!(
        two.lock("job")
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    assert!(
        two.lock("other")
            .try_acquire()
            .await
            .expect("asked")
            .is_some()
    );
    let busy = two.lock("job").acquire(Duration::from_millis(50)).await;
    assert_eq!(busy.err(), Some(Error::Busy));
    // It leaves the line.
    let state = loop {
        let state = lock.state().await.expect("read");
        if state.waiters == 0 {
            break state;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(state.holders, 1);
    assert_eq!(state.token, Some(grant.token()));
    // The next in line has it as soon as it is released.
    let waiting = tokio::spawn(async move { two.lock("job").acquire(PATIENCE).await });
    while lock.state().await.expect("read").waiters == 0 {
        tokio::task::yield_now().await;
    }
    let first = grant.token();
    assert_eq!(grant.release().await, Ok(true));
    let next = waiting.await.expect("it runs").expect("granted");
    assert!(next.token() > first);

    // Writes of the former holder are refused.
    let totals: Map<String, u64> = one.map("totals").await.expect("a map");
    let put = |token, value| {
        let totals = totals.clone();
        async move { totals.put("n", &value).fenced(token).await }
    };
    assert_eq!(put(next.token(), 2).await, Ok(()));
    assert_eq!(put(first, 1).await, Err(Error::Fenced));
    assert_eq!(totals.get("n").await, Ok(Some(2)));
    let texts = one
        .map::<String, String>("texts")
        .codec(doyen::Codec::Bytes);
    let texts = texts.await.expect("a map");
    let refused = texts.put("n", &"x".into()).fenced(1).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn a_holder_whose_node_dies_is_replaced_after_its_time_to_live() {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    let three = node_with("three", &[&one], |builder| builder).await;
    safe(&one, 3).await;
    let held = three.lock("job").ttl(Duration::from_secs(5));
    let held = held.try_acquire().await.expect("asked").expect("free");
    let (token, lost) = (held.token(), held.lost());
    let next = tokio::spawn(async move { two.lock("job").acquire(PATIENCE).await });
    three.kill().await;
    tokio::time::timeout(PATIENCE, lost)
        .await
        .expect("it learns");
    assert!(!held.is_held());
    let next = next.await.expect("it runs").expect("granted");
    assert!(next.token() > token);
}

/// Leases are renewed by a thread of the node, for as long as the holder is said to be able to
/// block its runtime.
#[tokio::test]
async fn a_holder_that_blocks_its_runtime_keeps_its_lock_up_to_a_limit() {
    let (one, two) = two().await;
    let blocked = Duration::from_secs(9);
    let hold = |lock: doyen::Lock| {
        let (held, holds) = tokio::sync::oneshot::channel();
        let holder = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async move {
                let grant = lock.acquire(PATIENCE).await.expect("granted");
                held.send(()).expect("the test waits");
                std::thread::sleep(blocked);
                (grant.is_held(), grant.release().await)
            })
        });
        (holder, holds)
    };
    let ttl = Duration::from_secs(5);
    let (kept, holds) = hold(one.lock("kept").ttl(ttl));
    holds.await.expect("held");
    let (lost, holds) = hold(
        one.lock("lost")
            .ttl(ttl)
            .blocked_max(Duration::from_secs(1)),
    );
    holds.await.expect("held");
    let next = two
        .lock("lost")
        .ttl(ttl)
        .acquire(PATIENCE)
        .await
        .expect("granted");
    assert!(!lost.is_finished(), "its holder has not come back");
    assert_eq!(lost.join().expect("it ends"), (false, Ok(false)));
    next.release().await.expect("released");
    assert_eq!(kept.join().expect("it ends"), (true, Ok(true)));
    // What is out of bounds is refused, and not another time.
    for lock in [
        one.lock("job").ttl(Duration::from_secs(1)),
        one.lock("job").ttl(Duration::MAX),
        one.lock("job").blocked_max(Duration::ZERO),
    ] {
        let refused = lock.try_acquire().await.map(drop);
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_semaphore_has_so_many_holders_and_keyspaces_that_evict_are_refused() {
    let (one, two) = two().await;
    let (here, there) = (one.semaphore("uploads", 2), two.semaphore("uploads", 2));
    let first = here.try_acquire().await.expect("asked").expect("free");
    let second = there.try_acquire().await.expect("asked").expect("free");
    assert!(here.try_acquire().await.expect("asked").is_none());
    drop(first);
    let third = tokio::time::timeout(PATIENCE, there.acquire(PATIENCE)).await;
    let third = third.expect("in time").expect("granted");
    assert!(third.token() > second.token());
    // Another number is an error that names both, as long as the semaphore is in use.
    for asked in [
        one.semaphore("uploads", 5).try_acquire().await,
        two.semaphore("uploads", 1)
            .acquire(PATIENCE)
            .await
            .map(Some),
    ] {
        let why = asked.expect_err("another number").to_string();
        assert!(
            why.contains("2 permits") && (why.contains('5') || why.contains('1')),
            "{why}"
        );
    }
    assert_eq!(here.state().await.expect("read").holders, 2);
    second.release().await.expect("released");
    third.release().await.expect("released");
    let five = one.semaphore("uploads", 5).try_acquire().await;
    assert!(five.expect("asked").is_some(), "it is free");
    let none = one.semaphore("uploads", 0).try_acquire().await;
    assert!(matches!(none, Err(Error::Refused(_))), "{none:?}");
    let options = KeyspaceOptions::new().eviction(Eviction::Lru);
    let made = one.admin().create_keyspace("cache", &options).await;
    made.expect("created");
    let refused = one.lock("job").keyspace("cache").try_acquire().await;
    let why = refused.expect_err("it evicts").to_string();
    assert!(why.contains("evicts keys"), "{why}");
}

#[tokio::test]
async fn one_leads_and_work_is_done_once() {
    let (one, two) = two().await;
    let (here, there) = (one.election("scheduler"), two.election("scheduler"));
    assert_eq!(there.leader().await, Ok(None));
    let leads = here.lead().await.expect("elected");
    assert_eq!(there.leader().await, Ok(Some("one".into())));
    let next = tokio::spawn({
        let there = there.clone();
        async move { there.lead().await }
    });
    assert_eq!(leads.resign().await, Ok(true));
    let next = next.await.expect("it runs").expect("elected");
    assert!(next.is_held());
    assert_eq!(here.leader().await, Ok(Some("two".into())));

    let (here, there) = (one.once("import"), two.once("import"));
    let turn = here.begin(PATIENCE).await.expect("asked").expect("first");
    let busy = there.begin(Duration::from_millis(50)).await.err();
    assert_eq!(busy, Some(Error::Busy));
    // It is given up, so another begins.
    drop(turn);
    let turn = there
        .begin(PATIENCE)
        .await
        .expect("asked")
        .expect("its turn");
    assert_eq!(here.is_done().await, Ok(false));
    turn.done().await.expect("done");
    assert!(here.begin(PATIENCE).await.expect("asked").is_none());
    assert_eq!(here.forget().await, Ok(true));
    assert!(here.begin(PATIENCE).await.expect("asked").is_some());
}

#[tokio::test]
async fn rates_are_limited_for_all_nodes_together() {
    let (one, two) = two().await;
    let hour = Duration::from_secs(3600);
    let open = |node: &Node| node.rate_limiter::<String>("api").sliding_window(10, hour);
    let (here, there) = (open(&one).await, open(&two).await);
    let (here, there) = (here.expect("opened"), there.expect("opened"));
    for n in 0..10 {
        let limiter = if n % 2 == 0 { &here } else { &there };
        let decision = limiter.check("ada").await.expect("decided");
        assert!(decision.allowed, "{decision:?}");
        assert_eq!(decision.remaining, 9 - n);
    }
    let decision = there.check("ada").await.expect("decided");
    assert!(
        !decision.allowed && decision.retry_after.is_some(),
        "{decision:?}"
    );
    assert!(
        there.check("eve").await.expect("decided").allowed,
        "another key"
    );
    let other = one.rate_limiter::<String>("mail").token_bucket(2, 1, hour);
    let other = other.await.expect("opened");
    assert!(other.check_cost("ada", 2).await.expect("decided").allowed);
    let decision = other.check("ada").await.expect("decided");
    assert_eq!((decision.allowed, decision.remaining), (false, 0));
    assert_eq!(
        other
            .check_cost("ada", 3)
            .await
            .expect("decided")
            .retry_after,
        None
    );
    // Two kinds count for themselves, and two limits of one kind are a mistake.
    let bucket = one.rate_limiter::<String>("api").token_bucket(1, 1, hour);
    let bucket = bucket.await.expect("opened");
    assert!(bucket.check("ada").await.expect("decided").allowed);
    let twenty = one.rate_limiter::<String>("api").sliding_window(20, hour);
    let why = twenty
        .await
        .map(drop)
        .expect_err("another limit")
        .to_string();
    assert!(
        why.contains("sliding_window(10, ") && why.contains("sliding_window(20, "),
        "{why}"
    );
    drop(here);
    let twenty = one.rate_limiter::<String>("api").sliding_window(20, hour);
    let twenty = twenty.await.expect("the other is closed");
    assert_eq!(twenty.check("ada").await.expect("decided").remaining, 19);
    for open in [
        one.rate_limiter::<String>("api"),
        one.rate_limiter("api").sliding_window(0, hour),
        one.rate_limiter("api").token_bucket(1, 0, hour),
    ] {
        let refused = open.await.map(|_| ());
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
}
