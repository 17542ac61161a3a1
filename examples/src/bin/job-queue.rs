//! Jobs that several workers share. One worker dies with a job, and one job fails each time.
//!
//! ```text
//!   worker "north" ── node ─┐
//!   worker "south" ── node ─┼── one queue, "thumbnails"
//!   worker "west"  ── node ─┘
//! ```
//!
//! Start it: `cargo run -p doyen-examples --bin job-queue`. It takes some seconds: the job of a
//! dead worker is due again when its lease is over.

use doyen::{Error, JobQueue, Node};
use doyen_examples::{node, safe};
use std::time::Duration;

/// A worker that needs longer than this must extend its lease.
const LEASE: Duration = Duration::from_secs(2);
/// How long a worker waits for a job.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let north = node("north", &[]).await?;
    let south = node("south", &[&north]).await?;
    let west = node("west", &[&north]).await?;
    safe(&north, 3).await?;

    // North dies with its job.
    let at_north = thumbnails(&north).await?;
    at_north.push(&"portrait".to_owned()).await?;
    let lost = at_north.take_waiting(LEASE, PATIENCE).await?;
    let lost = lost.ok_or_else(|| anyhow::anyhow!("no job came"))?;
    println!("north has {}, attempt {}", *lost, lost.attempt());
    north.kill().await;
    println!("north has died");

    let at_south = thumbnails(&south).await?;
    let again = at_south.take_waiting(LEASE, PATIENCE).await?;
    let again = again.ok_or_else(|| anyhow::anyhow!("the job is lost"))?;
    println!("south has {}, attempt {}", *again, again.attempt());
    // Give it to what the job writes to: a paused worker may not know that it lost its job.
    println!("its token is higher: {}", again.token() > lost.token());
    println!("it is done: {}", again.done().await?);

    // A job that fails each time ends among the dead ones.
    at_south.push(&"broken file".to_owned()).await?;
    while at_south.counts().await?.dead == 0 {
        if let Some(job) = at_south.take_waiting(LEASE, PATIENCE).await? {
            println!("{} fails, attempt {}", *job, job.attempt());
            job.retry(Duration::ZERO).await?;
        }
    }
    let at_west = thumbnails(&west).await?;
    let mut dead = at_west.dead();
    while let Some(job) = dead.next().await? {
        println!("{} is dead after {} attempts", job.value?, job.attempts);
        println!("it waits again: {}", at_west.revive(job.id).await?);
    }

    west.shutdown().await;
    south.shutdown().await;
    Ok(())
}

async fn thumbnails(node: &Node) -> Result<JobQueue<String>, Error> {
    node.queue("thumbnails").max_attempts(3).await
}
