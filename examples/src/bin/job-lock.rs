//! A nightly job that several processes are ready to run, and one runs. That one dies half way.
//!
//! ```text
//!   worker "north" ── node ─┐
//!   worker "south" ── node ─┼── one lock, "nightly report"
//!   worker "west"  ── node ─┘
//! ```
//!
//! Start it: `cargo run -p doyen-examples --bin job-lock`. It takes some seconds: the lock of
//! a dead process is free when its time is over.

use doyen::{Error, Map, Node};
use doyen_examples::{node, safe};
use std::time::Duration;

const LOCK: &str = "nightly report";
/// How long the lock outlives a process that has died.
const TTL: Duration = Duration::from_secs(5);
/// How long a worker waits for its turn.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let north = node("north", &[]).await?;
    let south = node("south", &[&north]).await?;
    let west = node("west", &[&north]).await?;
    safe(&north, 3).await?;

    // The first one that asks gets it.
    let lock = north.lock(LOCK).ttl(TTL);
    let grant = lock.acquire(PATIENCE).await?;
    println!("north has the lock and begins the report");
    match south.lock(LOCK).ttl(TTL).try_acquire().await? {
        Some(_) => anyhow::bail!("two workers have the lock"),
        None => println!("south may not begin: the lock is taken"),
    }
    let waiting = tokio::spawn({
        let south = south.clone();
        async move { south.lock(LOCK).ttl(TTL).acquire(PATIENCE).await }
    });

    // North dies without a word. Its token is what a zombie of it would still know.
    let token = grant.token();
    north.kill().await;
    println!("north has died");
    grant.lost().await;

    let next = waiting.await??;
    println!("south has the lock and begins the report again");
    let ours = reports(&south).await?;
    ours.put("today", &"by south".to_owned())
        .fenced(next.token())
        .await?;

    // A process that was paused may not know yet that it lost the lock. Its late write is refused,
    // because its token is lower. North is dead here, so west speaks for it.
    let late = reports(&west).await?;
    match late
        .put("today", &"by north".to_owned())
        .fenced(token)
        .await
    {
        Err(Error::Fenced) => println!("a late write of north is refused"),
        other => anyhow::bail!("north wrote without the lock: {other:?}"),
    }
    let report = ours.get("today").await?.unwrap_or_default();
    println!("the report of today was made {report}");
    next.release().await?;

    west.shutdown().await;
    south.shutdown().await;
    Ok(())
}

/// What the job writes.
async fn reports(node: &Node) -> Result<Map<String, String>, Error> {
    node.map("reports").await
}
