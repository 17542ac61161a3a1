//! Operations on a whole map, partition by partition.

use super::range::RENEWED_MAX;
use super::{Map, Pages};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, Failure, Operation, Outcome, PartitionAction, PartitionOperation};
use doyen_placement::MapEntry;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// By then all members know the new limits of a map.
const KNOWN: Duration = Duration::from_secs(1);
/// Partitions that are asked at the same time.
const UNDER_WAY: usize = 64;

impl<K: Serialize, V: Serialize + DeserializeOwned> Map<K, V> {
    /// How many keys the map has. Partitions are counted one after the other, so keys that are
    /// written or removed meanwhile may count or not.
    ///
    /// # Errors
    /// No node serves some of the partitions for 5 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        for _ in 0..RENEWED_MAX {
            let mut sum = 0;
            let outcomes = self.in_all(PartitionAction::Count).await?;
            if outcomes.contains(&Outcome::Failed(Failure::Stale)) {
                continue;
            }
            for outcome in outcomes {
                match outcome {
                    Outcome::Int(count) => sum += u64::try_from(count).unwrap_or(0),
                    Outcome::Failed(failure) => return Err(Error::of_read(failure)),
                    other => return Err(Error::unexpected(other)),
                }
            }
            return Ok(sum);
        }
        Err(Error::Unavailable)
    }

    /// Whether the map has no key, as for [`Map::len`].
    ///
    /// # Errors
    /// As for [`Map::len`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Removes all keys. Each partition is cleared at once, one after the other, so what is written
    /// meanwhile may stay.
    ///
    /// # Errors
    /// [`Error::Unknown`]: some keys may be removed, and others not. With every other error
    /// nothing happened.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the keys may be removed and others not, as after
    /// [`Error::Unknown`]. It may be called again.
    pub async fn clear(&self) -> Result<(), Error> {
        let mut began = false;
        for _ in 0..RENEWED_MAX {
            let outcomes = self.in_all(PartitionAction::Clear).await?;
            began |= outcomes.contains(&Outcome::Ok);
            let failed = outcomes.into_iter().filter_map(|outcome| match outcome {
                Outcome::Ok => None,
                Outcome::Failed(failure) => Some(failure),
                _ => Some(Failure::Unknown),
            });
            let failed: Vec<Failure> = failed.collect();
            match failed.iter().find(|why| **why != Failure::Stale) {
                None if failed.is_empty() => return Ok(()),
                None => {}
                Some(_) if began => return Err(Error::Unknown),
                Some(why) => return Err(Error::of_write(*why)),
            }
        }
        Err(Error::Unknown)
    }

    /// Does this in all partitions.
    async fn in_all(&self, action: PartitionAction) -> Result<Vec<Outcome>, Error> {
        let table = self.data.table().ok_or(Error::Unavailable)?;
        let keyspace = table
            .keyspace(self.entry.keyspace)
            .ok_or(Error::Unavailable)?;
        let asked = keyspace.partitions.iter().map(|partition| {
            self.data.execute_partition(PartitionOperation {
                keyspace: self.entry.keyspace,
                partition: partition.id,
                map: self.entry.id,
                action: action.clone(),
            })
        });
        let asked: Vec<_> = asked.collect();
        Ok(stream::iter(asked).buffered(UNDER_WAY).collect().await)
    }
}

/// Uses all entries of a map once, because it got a time after which unused entries expire: those
/// that are there have no deadline yet.
pub(crate) fn begin_idle_times(entry: &MapEntry, data: &DataHandle) {
    let (place, data) = ((entry.keyspace, entry.id), data.clone());
    let mut pages = Pages::new(place, data.clone(), Bytes::new());
    // It goes on if its handle is dropped.
    drop(data.clone().keep(async move {
        tokio::time::sleep(KNOWN).await;
        while let Ok(Some(page)) = pages.next().await {
            let touches = page.into_iter().map(|(key, _)| {
                data.execute(Operation {
                    keyspace: place.0,
                    map: place.1,
                    key,
                    action: Action::Touch,
                })
            });
            join_all(touches).await;
        }
    }));
}
