//! What a program that embeds a node pays: near caches and local operations beside moka, in one
//! run.
//!
//! ```text
//! just embedded
//! ```
//! Each line is the median of rounds that take turns, so a slower moment of the machine slows both.

use doyen::{Map, NearMap, Node};
use std::future::Future;
use std::time::{Duration, Instant};

/// Keys of the caches.
const KEYS: u64 = 10_000;
/// Rounds of each measurement.
const ROUNDS: usize = 9;
/// Reads of one round.
const READS: u64 = 200_000;
/// Operations of one round with one in flight.
const CALLS: u64 = 5_000;
/// Operations in flight.
const FLIGHT: u64 = 512;
/// Operations of one round with many in flight.
const MANY: u64 = 200_000;

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// The key of a step: all of them, in an order without pattern.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS
}

/// Nanoseconds of a step.
async fn steps<F: Future>(count: u64, mut step: impl FnMut(u64) -> F) -> f64 {
    let began = Instant::now();
    for n in 0..count {
        step(key(n)).await;
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Operations a second with many in flight.
async fn flight<F: Future + Send + 'static>(step: impl Fn(u64) -> F + Clone + Send + 'static) -> f64
where
    F::Output: Send,
{
    let began = Instant::now();
    let tasks: Vec<_> = (0..FLIGHT)
        .map(|task| {
            let step = step.clone();
            tokio::spawn(async move {
                for n in 0..MANY / FLIGHT {
                    step(key(task * (MANY / FLIGHT) + n)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no operation panics");
    }
    MANY as f64 / began.elapsed().as_secs_f64()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test` runs benches, too, to see that they work.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let node = Node::builder()
        .listen("127.0.0.1:0")
        .memory_max(1 << 30)
        .start()
        .await
        .expect("it starts");
    let map: Map<u64, u64> = node.map("numbers").await.expect("a map");
    // Writes would drop the copies of the near cache.
    let written: Map<u64, u64> = node.map("written").await.expect("a map");
    let near: NearMap<u64, u64> = map
        .near(Duration::from_secs(60))
        .capacity(KEYS * 2)
        .await
        .expect("opened");
    let moka = moka::sync::Cache::new(KEYS * 2);
    for n in 0..KEYS {
        map.insert(&n, &n).await.expect("written");
        moka.insert(n, n);
        near.get(&n).await.expect("read");
    }
    let hits = near.stats().hits;
    let mut rounds: [Vec<f64>; 8] = Default::default();
    for _ in 0..ROUNDS {
        rounds[0].push(steps(READS, |n| std::future::ready(moka.get(&n))).await);
        rounds[1].push(
            steps(READS, |n| {
                let near = near.clone();
                async move { near.get(&n).await }
            })
            .await,
        );
        rounds[2].push(steps(CALLS, |n| std::future::ready(moka.get(&n))).await);
        rounds[3].push(
            steps(CALLS, |n| {
                let map = map.clone();
                async move { map.get(&n).await }
            })
            .await,
        );
        rounds[4].push(
            steps(CALLS, |n| {
                moka.insert(n, n);
                std::future::ready(())
            })
            .await,
        );
        rounds[5].push(
            steps(CALLS, |n| {
                let map = written.clone();
                async move { map.insert(&n, &n).await }
            })
            .await,
        );
        let (reads, writes) = (map.clone(), written.clone());
        rounds[6].push(
            flight(move |n| {
                let map = reads.clone();
                async move { map.get(&n).await.expect("read") }
            })
            .await,
        );
        rounds[7].push(
            flight(move |n| {
                let map = writes.clone();
                async move { map.insert(&n, &n).await.expect("written") }
            })
            .await,
        );
    }
    let served = near.stats().hits - hits;
    // A change that was told late dropped a copy, which the next read made again.
    let most = READS * ROUNDS as u64 / 100 * 99;
    assert!(served >= most, "{served} reads were hits");
    let [
        moka_get,
        near_get,
        moka_one,
        get,
        moka_insert,
        insert,
        gets,
        inserts,
    ] = rounds.map(median);
    println!(
        "near cache, hit            {near_get:8.0} ns   moka {moka_get:6.0} ns   {:.2}x",
        near_get / moka_get
    );
    println!("local get, one in flight   {get:8.0} ns   moka {moka_one:6.0} ns");
    println!("local insert, one in flight{insert:8.0} ns   moka {moka_insert:6.0} ns");
    println!("local get, {FLIGHT} in flight    {:8.0} k/s", gets / 1e3);
    println!("local insert, {FLIGHT} in flight {:8.0} k/s", inserts / 1e3);
    node.kill().await;
}
