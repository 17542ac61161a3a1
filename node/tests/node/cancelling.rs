//! What happens if the future of an operation is dropped midway: see `# Cancel safety` of each.

use crate::embedded::{node_with, safe};
use doyen::{Map, MapChange, Node};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u64 = 16;

async fn two() -> [Node; 2] {
    let one = node_with("one", &[], |builder| builder).await;
    let two = node_with("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    [one, two]
}

/// Polls a future so often, each time when it is woken, and drops it then. What it brought, if it
/// was ready before.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(brought) => Poll::Ready(Some(brought)),
            // It was handed over. The last poll needs no wake-up.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn a_dropped_acquire_leaves_neither_a_place_in_line_nor_a_grant() {
    let [one, two] = two().await;
    // Each name is a key of some partition, and both nodes lead some.
    for number in 0..KEYS {
        let lock = one.lock(&number.to_string());
        assert_eq!(
            lock.state().await.expect("known").holders,
            0,
            "the map of locks exists"
        );
        // The first poll hands the question over: the grant is under way when it is dropped.
        assert!(polled(1, lock.try_acquire()).await.is_none());
        let state = lock.state().await.expect("known");
        assert_eq!((state.holders, state.waiters), (0, 0), "lock {number}");
        assert!(polled(1, lock.acquire(PATIENCE)).await.is_none());
        let state = lock.state().await.expect("known");
        assert_eq!((state.holders, state.waiters), (0, 0), "lock {number}");
    }
    let (here, there) = (one.lock("held"), two.lock("held"));
    let grant = there.acquire(PATIENCE).await.expect("it is free");
    // The first poll asks, and the second one waits in line: nothing wakes it while the lock is
    // held.
    for polls in [1, 2, 1, 2] {
        assert!(polled(polls, here.acquire(PATIENCE)).await.is_none());
        let state = here.state().await.expect("known");
        assert_eq!(
            (state.holders, state.waiters),
            (1, 0),
            "after {polls} polls"
        );
    }
    assert!(grant.is_held());
    assert!(grant.release().await.expect("an answer"));
    one.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn a_dropped_release_gives_the_lock_back() {
    let [one, two] = two().await;
    for number in 0..KEYS {
        let lock = one.lock(&number.to_string());
        for polls in 0..2 {
            let grant = lock.try_acquire().await.expect("an answer").expect("free");
            assert!(polled(polls, grant.release()).await.is_none());
            assert_eq!(
                lock.state().await.expect("known").holders,
                0,
                "{polls} polls"
            );
        }
    }
    one.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn a_dropped_write_happens_once_or_not_at_all() {
    let [one, two] = two().await;
    let map: Map<u64, u64> = one.map("numbers").await.expect("a map");
    let (mut happened, mut unpolled) = (0, 0);
    for key in 0..KEYS {
        map.insert(&key, &0).await.expect("stored");
        let mut before = 0;
        for polls in 0..8 {
            let done = polled(polls, map.update(&key, |number| Some(number? + 1))).await;
            // A later operation of the same caller on the key is executed later.
            let after = map.get(&key).await.expect("read").expect("there");
            assert!(
                (before..=before + 1).contains(&after),
                "{before} became {after}"
            );
            if let Some(done) = done {
                assert_eq!(done, Ok(Some(after)));
                assert_eq!(after, before + 1);
            }
            happened += after - before;
            unpolled += u64::from(polls == 0) * (after - before);
            before = after;
        }
        assert_eq!(map.get(&key).await, Ok(Some(before)), "nothing comes later");
    }
    assert_eq!(unpolled, 0, "nothing happens before the first poll");
    assert!(happened > 0);
    one.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn a_dropped_commit_writes_all_or_nothing() {
    let [one, two] = two().await;
    let database = one.database();
    let mut happened = 0;
    for number in 0..KEYS {
        for polls in 0..3 {
            let (left, right) = (format!("{{{number}}}:left"), format!("{{{number}}}:right"));
            let value = polls.to_string();
            let mut transaction = database.transaction();
            transaction.set(left.clone(), value.clone());
            transaction.set(right.clone(), value.clone());
            let done = polled(polls, transaction.commit()).await;
            let (left, right) = (
                database.get(left).await.expect("read"),
                database.get(right).await.expect("read"),
            );
            assert_eq!(left, right);
            let written = left.is_some_and(|left| *left == *value.as_bytes());
            assert!(written || !matches!(done, Some(Ok(_))));
            assert!(
                !written || polls > 0,
                "nothing happens before the first poll"
            );
            happened += usize::from(written);
        }
    }
    assert!(happened > 0);
    one.kill().await;
    two.kill().await;
}

#[tokio::test]
async fn a_subscriber_misses_nothing_that_it_did_not_wait_for() {
    let [one, two] = two().await;
    let (here, there): (Map<u64, u64>, Map<u64, u64>) = (
        one.map("prices").await.expect("a map"),
        two.map("prices").await.expect("a map"),
    );
    let mut changes = there.subscribe().await.expect("it begins");
    let mut last = [None; KEYS as usize];
    let mut told = 0;
    let mut judge = |next| {
        let (key, value) = match next {
            Some(Ok(MapChange::Inserted { key, value })) if value < KEYS => (key, value),
            Some(Ok(MapChange::Updated { key, value, .. })) if value >= KEYS => (key, value),
            other => panic!("{other:?}"),
        };
        let last = &mut last[usize::try_from(key).expect("small")];
        let expected = last.map_or(key, |last| last + KEYS);
        assert_eq!(value, expected, "each, in its order");
        *last = Some(value);
        told += 1;
        told
    };
    for value in 0..100 {
        // It gives up if there is nothing yet.
        if let Some(next) = polled(1, changes.next()).await {
            judge(next);
        }
        here.insert(&(value % KEYS), &value).await.expect("stored");
    }
    let the_rest = async {
        loop {
            match polled(1, changes.next()).await {
                Some(next) => {
                    if judge(next) == 100 {
                        return;
                    }
                }
                None => tokio::task::yield_now().await,
            }
        }
    };
    let all = tokio::time::timeout(PATIENCE, the_rest).await;
    all.expect("it is told all");
    one.kill().await;
    two.kill().await;
}
