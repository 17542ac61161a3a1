//! Which logs are read: the readers of a partition, and the keyspaces whose logs are kept.

use crate::log::changes::{Filter, Position};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MemberId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of changes that a reader is sent and has not taken.
pub(crate) const WINDOW: u64 = 64 << 10;
/// For how long members keep logs after a message that the logs are read. They get such a message
/// twice in this time or more often. So a subscriber that begins again within 40 s goes on where it
/// was, unless more was written.
pub(crate) const KEPT: Duration = Duration::from_secs(60);
/// Keyspaces whose logs are kept.
const READ_MAX: usize = 1_024;

/// A subscriber of changes of one partition.
#[derive(Debug)]
pub(crate) struct LogReader {
    pub(crate) peer: MemberId,
    /// Its number at the subscriber.
    pub(crate) ticket: u64,
    pub(crate) filter: Filter,
    /// Where it wants to go on, until the primary is open.
    pub(crate) had: Option<Vec<Position>>,
    /// It was sent all changes up to here.
    pub(crate) sent: u64,
    /// It knows that.
    pub(crate) told: u64,
    /// Bytes of changes that it was sent and has not taken.
    pub(crate) untaken: u64,
}

impl LogReader {
    /// Whether upkeep has nothing to tell it.
    pub(crate) const fn quiet(&self) -> bool {
        self.had.is_none() && self.told == self.sent
    }
}

/// Confirmations that wait for a look at the lease: to which subscriber, its round and its tickets.
pub(crate) type Confirming = Vec<(MemberId, u64, Vec<u64>)>;

/// Until when the logs of each keyspace are kept for readers.
#[derive(Debug, Default)]
pub(crate) struct ReadLogs {
    until: BTreeMap<KeyspaceId, ReadUntil>,
    /// Confirmations that wait for a look at the lease.
    pub(crate) confirming: Confirming,
}

#[derive(Debug, Clone, Copy, Default)]
struct ReadUntil {
    logs: Time,
    /// The values that log entries replaced.
    replaced: Time,
}

impl ReadLogs {
    /// Whether no log is kept for readers.
    pub(crate) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// The number of keyspaces whose logs are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.until.len()
    }

    /// Whether the logs of a keyspace are kept for readers.
    pub(crate) fn reads(&self, now: Time, keyspace: KeyspaceId) -> bool {
        let read = |read: &ReadUntil| read.logs >= now;
        !self.until.is_empty() && self.until.get(&keyspace).is_some_and(read)
    }

    /// Whether the values that its log entries replace are kept, too.
    #[inline]
    pub(crate) fn keeps_replaced(&self, now: Time, keyspace: KeyspaceId) -> bool {
        let read = |read: &ReadUntil| read.replaced >= now;
        !self.until.is_empty() && self.until.get(&keyspace).is_some_and(read)
    }

    /// The logs of these keyspaces are read: with the values that were replaced, if that is said.
    pub(crate) fn note(&mut self, now: Time, keyspaces: &[(KeyspaceId, bool)]) {
        self.until.retain(|_, until| until.logs >= now);
        // A newcomer hears of it before it has a table that names them.
        for (keyspace, replaced) in keyspaces {
            if self.until.len() < READ_MAX || self.until.contains_key(keyspace) {
                let until = self.until.entry(*keyspace).or_default();
                until.logs = now + KEPT;
                if *replaced {
                    until.replaced = until.logs;
                }
            }
        }
    }
}
