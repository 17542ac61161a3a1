//! A number that many add to at once: the additions spread over several keys, so that no partition
//! has them all.

use crate::error::{ReadError, WriteError};
use crate::map::Database;
use bytes::Bytes;
use doyen_engine::op::{Action, Outcome};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

/// Keys of one counter, at most: every sum reads all of them.
pub const SHARDS_MAX: u16 = 1024;

/// A number in several keys of a database, from [`Database::sharded_counter`]. Cheap to clone.
///
/// One key takes as many additions as one partition's primary does; `n` keys take about `n` times
/// as many, and a sum costs `n` reads. What `n` buys on your keys is shown by
/// `doyen simulate --salt n`. The keys are `NAME#0`, `NAME#1` and so on, which Redis clients see as
/// numbers. In a keyspace of ranges they are neighbours, so that one partition has them all: count
/// elsewhere.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
/// let visits = node.database().sharded_counter("visits", 16);
/// visits.add(1).await?;
/// println!("{} visits", visits.sum().await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ShardedCounter {
    database: Database,
    shards: Arc<[Bytes]>,
    turn: Arc<AtomicU32>,
}

impl fmt::Debug for ShardedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedCounter")
            .field("first", &self.shards.first())
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

impl ShardedCounter {
    pub(crate) fn new(database: Database, name: &[u8], shards: u16) -> Self {
        let key = |shard: u16| Bytes::from([name, b"#", shard.to_string().as_bytes()].concat());
        Self {
            database,
            shards: (0..shards.clamp(1, SHARDS_MAX)).map(key).collect(),
            turn: Arc::default(),
        }
    }

    /// Adds a number, which may be negative. It is in every sum that begins after this has
    /// returned.
    ///
    /// # Errors
    /// As for [`Database::set`]; [`WriteError::Unexpected`] where the key holds no number, or the
    /// sum of a shard would not fit into an `i64`.
    pub async fn add(&self, by: i64) -> Result<(), WriteError> {
        // One after the other: however few callers there are, all shards get their part.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        match self
            .database
            .execute(
                self.shards[turn % self.shards.len()].clone(),
                Action::IncrBy(by),
            )
            .await
        {
            Outcome::Int(_) => Ok(()),
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(WriteError::Unexpected(format!("{other:?}"))),
        }
    }

    /// The sum of all shards. Each is read at its own moment, so that of additions under way
    /// meanwhile some may be in it and others not.
    ///
    /// # Errors
    /// As for [`Database::get`]; [`ReadError::Unexpected`] where a shard holds no number.
    pub async fn sum(&self) -> Result<i128, ReadError> {
        let asked = self
            .shards
            .iter()
            .map(|shard| self.database.execute(shard.clone(), Action::Get))
            .collect();
        let number = |outcome| match outcome {
            Outcome::Nil => Ok(0),
            Outcome::Bulk(text) => {
                let number = std::str::from_utf8(&text)
                    .ok()
                    .and_then(|text| text.parse::<i64>().ok());
                number.map(i128::from).ok_or_else(|| {
                    ReadError::Unexpected("a shard of the counter is no number".into())
                })
            }
            Outcome::Failed(failure) => Err(failure.into()),
            other => Err(ReadError::Unexpected(format!("{other:?}"))),
        };
        all(asked).await.into_iter().map(number).sum()
    }

    /// Removes all shards, one after the other: additions meanwhile may be lost with them, or stay.
    ///
    /// # Errors
    /// As for [`Database::remove`]. What was removed before stays removed.
    pub async fn remove(&self) -> Result<(), WriteError> {
        for shard in &*self.shards {
            self.database.remove(shard.clone()).await?;
        }
        Ok(())
    }
}

/// What comes of all of these, which run at the same time.
async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, done) in futures
            .iter_mut()
            .zip(&mut done)
            .filter(|(_, done)| done.is_none())
        {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
