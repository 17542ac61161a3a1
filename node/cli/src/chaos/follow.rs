//! A subscriber beside the clients: it must be told every acknowledged value, each once.

use super::SharedBook;
use crate::CommandFailed;
use doyen::{DatabaseChange, What};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long the last changes may take to arrive, once the cluster is whole and no client writes.
const LATE_MAX: Duration = Duration::from_secs(15);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What the subscriber was told, and what clients were.
#[derive(Debug, Default)]
pub(super) struct FollowRecord {
    /// By key and value, which no key has twice: how often it was told, and whether its write was
    /// acknowledged.
    values: BTreeMap<(Vec<u8>, Vec<u8>), (u32, bool)>,
    /// Changes that it was told.
    told: u64,
    /// Changes that it was told are missing.
    missed: u64,
    /// Acknowledged values that it was not told yet.
    awaited: u64,
    /// Values that it was told more than once.
    twice: u64,
}

/// The verdict on what a subscriber was told.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(super) struct FollowVerdict {
    /// Changes that it was told.
    pub(super) changes: u64,
    /// Changes that it was told are missing.
    pub(super) missed: u64,
    /// Acknowledged values that it was not told, beyond those.
    pub(super) untold: u64,
    /// Values that it was told more than once.
    pub(super) twice: u64,
}

impl FollowVerdict {
    pub(super) const fn holds(&self) -> bool {
        self.untold == 0 && self.twice == 0
    }
}

impl FollowRecord {
    /// A client has the answer to a write of this value.
    pub(super) fn acknowledged(&mut self, key: &[u8], value: &[u8]) {
        let of = (key.to_vec(), value.to_vec());
        let (told, acknowledged) = self.values.entry(of).or_default();
        self.awaited += u64::from(*told == 0 && !*acknowledged);
        *acknowledged = true;
    }

    fn told(&mut self, key: &[u8], value: &[u8]) {
        let of = (key.to_vec(), value.to_vec());
        let (told, acknowledged) = self.values.entry(of).or_default();
        *told += 1;
        self.twice += u64::from(*told == 2);
        self.awaited -= u64::from(*told == 1 && *acknowledged);
    }

    fn verdict(&self) -> FollowVerdict {
        FollowVerdict {
            changes: self.told,
            missed: self.missed,
            untold: self.awaited.saturating_sub(self.missed),
            twice: self.twice,
        }
    }
}

/// The running subscriber.
pub(super) struct SubscriberTask {
    followed: Rc<RefCell<FollowRecord>>,
    task: JoinHandle<()>,
}

impl SubscriberTask {
    /// Subscribes to all keys that clients use.
    pub(super) async fn start(
        client: &doyen::Node,
        book: &SharedBook,
    ) -> Result<Self, CommandFailed> {
        let subscribe = client.database().subscribe().prefix("chaos:");
        let mut changes = subscribe
            .await
            .map_err(|e| CommandFailed::new(format!("the subscriber: {e}")))?;
        let followed = Rc::<RefCell<FollowRecord>>::default();
        let (own, book) = (followed.clone(), book.clone());
        let task = tokio::task::spawn_local(async move {
            while let Some(change) = changes.next().await {
                let mut followed = own.borrow_mut();
                match change {
                    DatabaseChange::Change(change) => {
                        followed.told += 1;
                        if let What::Put(_, Some(value)) = change.what {
                            followed.told(&change.key, &value);
                        }
                    }
                    DatabaseChange::Lagged(changes) => {
                        // A number that is not known may be any.
                        let count = changes.unwrap_or(u64::from(u32::MAX));
                        followed.missed += count;
                        book.borrow().say(format_args!(
                            "  the subscriber hears that changes are missing: {changes:?}"
                        ));
                    }
                    _ => {}
                }
            }
        });
        Ok(Self { followed, task })
    }

    pub(super) const fn followed(&self) -> &Rc<RefCell<FollowRecord>> {
        &self.followed
    }

    /// The verdict, once the last changes had time to arrive.
    pub(super) async fn finish(self) -> FollowVerdict {
        let until = Instant::now() + LATE_MAX;
        while self.followed.borrow().awaited > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        self.task.abort();
        self.followed.borrow().verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_told_or_told_twice_are_found() {
        let mut followed = FollowRecord::default();
        followed.acknowledged(b"k", b"a");
        followed.told(b"k", b"a");
        followed.told(b"k", b"b");
        followed.acknowledged(b"k", b"b");
        assert!(followed.verdict().holds());
        followed.acknowledged(b"k", b"c");
        assert_eq!(followed.verdict().untold, 1);
        followed.missed += 1;
        assert!(
            followed.verdict().holds(),
            "it was told that one is missing"
        );
        followed.told(b"k", b"a");
        assert_eq!(followed.verdict().twice, 1);
    }
}
