//! Typed sets, sorted sets, lists and queues of jobs.
//!
//! ```text
//!   node.set("admins") ── OpenSet ──> Set ── insert ──> Action on one key ──> primary
//!
//!   map "doyen.sets"          key "admins"     the set, as Redis's are stored
//!   map "doyen.sorted-sets"   key "scores"
//!   map "doyen.lists"         key "log"
//!   map "doyen.queues"        key "mails"      `doyen_engine::queue`
//! ```
//! A collection is one key of a map that all collections of its type share. So it is placed,
//! copied, moved and evicted as any key, each operation on it is atomic and linearizable, and one
//! primary executes all of them. A large collection is stored, logged and copied element by
//! element.

mod list;
mod queue;
mod set;
mod sorted_set;

pub use list::{List, ListEnd, OpenList};
pub use queue::{DeadJob, DeadJobs, Job, JobId, JobQueue, NoJobId, OpenJobQueue, QueueCounts};
pub use set::{Members, OpenSet, Set};
pub use sorted_set::{OpenSortedSet, SortedSet};

use super::{Form, encode_value, key};
use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::op::{Action, ExpireCondition, Operation, Outcome};
use doyen_placement::{KeyspaceId, MapId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// The one key of a collection.
#[derive(Debug, Clone)]
struct CollectionKey {
    data: DataHandle,
    keyspace: KeyspaceId,
    map: MapId,
    key: Bytes,
    name: Arc<str>,
}

impl CollectionKey {
    fn new((keyspace, map): (KeyspaceId, MapId), data: DataHandle, name: &str) -> Self {
        Self {
            data,
            keyspace,
            map,
            key: Bytes::copy_from_slice(name.as_bytes()),
            name: name.into(),
        }
    }

    fn operation(&self, action: Action) -> Operation {
        Operation {
            keyspace: self.keyspace,
            map: self.map,
            key: self.key.clone(),
            action,
        }
    }

    async fn read(&self, action: Action) -> Result<Outcome, Error> {
        match self.data.execute(self.operation(action)).await {
            Outcome::Failed(failure) => Err(Error::of_read(failure)),
            outcome => Ok(outcome),
        }
    }

    async fn write(&self, action: Action) -> Result<Outcome, Error> {
        match self.data.execute(self.operation(action)).await {
            Outcome::Failed(failure) => Err(Error::of_write(failure)),
            outcome => Ok(outcome),
        }
    }

    /// Removes the key.
    async fn clear(&self) -> Result<bool, Error> {
        is_some(self.write(Action::Delete).await?)
    }

    /// The key expires after this time.
    async fn expire(&self, ttl: Duration) -> Result<bool, Error> {
        let action = Action::Expire {
            expiry: super::expiry(ttl),
            condition: ExpireCondition::Always,
        };
        is_some(self.write(action).await?)
    }
}

/// A number that counts something.
fn count(outcome: Outcome) -> Result<u64, Error> {
    match outcome {
        Outcome::Int(n) => Ok(u64::try_from(n).unwrap_or(0)),
        other => Err(Error::unexpected(other)),
    }
}

/// Whether a number says that something was found.
fn is_some(outcome: Outcome) -> Result<bool, Error> {
    Ok(count(outcome)? != 0)
}

/// The most bytes of a member.
const MEMBER_BYTES_MAX: usize = 64 << 10;

/// A member as it is stored: as a key of a map, so that equal members are equal bytes.
fn encode_member<Q: Serialize + ?Sized>(member: &Q) -> Result<Bytes, Error> {
    let bytes = super::encode_key(member)?;
    if bytes.len() > MEMBER_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    Ok(bytes)
}

fn decode_member<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    key::decode(bytes).map_err(Error::Key)
}

/// Decodes an element that is stored as a value of a map is.
fn decode_element<T: DeserializeOwned>(form: &Form, bytes: &[u8]) -> Result<T, Error> {
    let decoded = form.decode(bytes).map_err(Error::Value)?;
    // No option counts what cannot be decoded as absent.
    decoded.ok_or_else(|| Error::Unexpected("an element counts as absent".into()))
}

fn encode_element<T: Serialize + DeserializeOwned>(form: &Form, one: &T) -> Result<Bytes, Error> {
    encode_value(form, one)
}

/// The indexes of a range, both included. `None`: it is empty. Negative ones count from the end.
fn indexes(range: &impl RangeBounds<i64>) -> Option<(i64, i64)> {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        // What follows the last one is nothing.
        Bound::Excluded(-1) => return None,
        Bound::Excluded(before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let last = match range.end_bound() {
        Bound::Included(last) => *last,
        // What comes before the first one is nothing.
        Bound::Excluded(0) => return None,
        Bound::Excluded(end) => end.checked_sub(1)?,
        Bound::Unbounded => -1,
    };
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_indexes_are_those_of_the_engine() {
        assert_eq!(indexes(&..), Some((0, -1)));
        assert_eq!(indexes(&(0..3)), Some((0, 2)));
        assert_eq!(indexes(&(2..=5)), Some((2, 5)));
        assert_eq!(indexes(&(-3..)), Some((-3, -1)));
        assert_eq!(
            indexes(&(Bound::Included(1), Bound::Excluded(-1))),
            Some((1, -2))
        );
        assert_eq!(indexes(&(..0)), None);
        let behind = (Bound::Excluded(-1), Bound::Unbounded);
        assert_eq!(indexes(&behind), None);
        let behind = (Bound::Excluded(4), Bound::Included(6));
        assert_eq!(indexes(&behind), Some((5, 6)));
        assert_eq!(indexes(&(..i64::MIN)), None);
    }

    #[test]
    fn members_are_equal_bytes_if_they_are_equal() {
        let text = encode_member("ada").expect("a key");
        assert_eq!(encode_member(&"ada".to_owned()), Ok(text.clone()));
        assert_eq!(decode_member::<String>(&text), Ok("ada".to_owned()));
        let long = "a".repeat(MEMBER_BYTES_MAX + 1);
        assert_eq!(encode_member(&long), Err(Error::TooLarge));
    }
}
