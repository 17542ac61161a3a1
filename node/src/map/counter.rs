//! A number that many callers add to at once. The additions are spread over several keys, so that
//! they are spread over several partitions.

use crate::error::Error;
use crate::map::Database;
use bytes::Bytes;
use doyen_engine::op::{Action, Outcome};
use futures_util::future::join_all;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keys of one counter, at most, because every sum reads all of them.
pub const SHARDS_MAX: u16 = 1024;

/// A number in several keys of a database, from [`Database::sharded_counter`]. Cheap to clone.
///
/// One key takes as many additions as the primary of one partition does. `n` keys take about `n`
/// times as many, but a sum costs `n` reads. `doyen simulate --salt n` shows the effect on your
/// keys. The keys are `NAME#0`, `NAME#1` and so on, which Redis clients see as numbers. In a
/// keyspace of ranges these keys are neighbours, in one partition, so put counters into another
/// keyspace. Every user of one counter must give the same number of keys. To use more keys, first
/// change the programs that only read.
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

    /// Adds a number, which may be negative. Every sum that begins after this has returned includes
    /// it.
    ///
    /// # Errors
    /// As for [`Database::set`]. [`Error::NotANumber`]: the key holds something else.
    /// [`Error::Overflow`]: the sum of a shard would not fit into an `i64`.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn add(&self, by: i64) -> Result<(), Error> {
        // Shards take turns, so that a few callers also use all of them.
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
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            other => Err(Error::unexpected(other)),
        }
    }

    /// The sum of all shards. Each shard is read at its own moment, so the sum may include only
    /// some of the additions that run meanwhile.
    ///
    /// # Errors
    /// As for [`Database::get`]. [`Error::NotANumber`]: a shard holds something else.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn sum(&self) -> Result<i128, Error> {
        let asked = self
            .shards
            .iter()
            .map(|shard| self.database.execute(shard.clone(), Action::Get));
        let number = |outcome| match outcome {
            Outcome::Nil => Ok(0),
            Outcome::Bulk(text) => {
                let number = std::str::from_utf8(&text)
                    .ok()
                    .and_then(|text| text.parse::<i64>().ok());
                number.map(i128::from).ok_or(Error::NotANumber)
            }
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            other => Err(Error::unexpected(other)),
        };
        join_all(asked).await.into_iter().map(number).sum()
    }

    /// Removes all shards, one after the other. Additions that run meanwhile may be lost or stay.
    ///
    /// # Errors
    /// As for [`Database::remove`]. Shards that were removed before the error stay removed.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the shards may be removed and others not.
    pub async fn remove(&self) -> Result<(), Error> {
        for shard in &*self.shards {
            self.database.remove(shard.clone()).await?;
        }
        Ok(())
    }
}
