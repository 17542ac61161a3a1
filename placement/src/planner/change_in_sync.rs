//! The requests of primaries (rule 7).

use super::reshape;
use crate::division::Cut;
use crate::id::{Epoch, MemberId, PartitionRef};
use crate::mutant::{self, broken};
use crate::scheduler::Scheduler;
use crate::table::{MemberState, Partition, Reshape, Table};
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// A change to a partition that its primary requests, by compare-and-swap on the epoch (rule 7).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct InSyncRequest {
    /// The partition.
    #[n(0)]
    pub partition: PartitionRef,
    /// The primary's epoch. If the table has another one, the request is void.
    #[n(1)]
    pub epoch: Epoch,
    /// The change.
    #[n(2)]
    pub change: InSyncChange,
}

/// The changes that a primary may request.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum InSyncChange {
    /// This copy does not acknowledge: drop it from the partition.
    #[n(0)]
    Remove(#[n(0)] MemberId),
    /// This learner has caught up and its checksum agrees: count it.
    #[n(1)]
    Admit(#[n(0)] MemberId),
    /// This learner failed: drop it, in a new epoch.
    #[n(2)]
    Abandon(#[n(0)] MemberId),
    /// This learner has no room: drop it, in a new epoch. That is no failure.
    #[n(3)]
    NoRoom(#[n(0)] MemberId),
    /// The admission of this learner is withdrawn: a new epoch without it.
    #[n(4)]
    Withdraw(#[n(0)] MemberId),
    /// The partition has grown too large or too busy for one: split it there.
    #[n(5)]
    Split(#[n(0)] Cut),
    /// The partition takes no more writes, because it is to be split or merged, and all its copies
    /// are equal ([`WritesStopped`](super::WritesStopped)).
    #[n(6)]
    WritesStopped {
        /// How far its clock is ahead of its primary's own.
        #[n(0)]
        ahead_ms: i64,
    },
}

/// The table with these changes, and for each whether it was made.
///
/// A request is void if the partition's epoch is another (also after an earlier request of the same
/// batch), if it would drop the primary, or if it does not fit the member's state. The caller
/// checks who sent it.
#[must_use]
pub fn change_in_sync(table: &Table, requests: &[InSyncRequest]) -> (Table, Vec<bool>) {
    let mut next = table.clone();
    let done = requests
        .iter()
        .map(|request| change_one(&mut next, request).is_some())
        .collect();
    (next, done)
}

fn change_one(table: &mut Table, request: &InSyncRequest) -> Option<()> {
    let partition = table.partition(request.partition)?;
    if partition.epoch != request.epoch && !broken(&mutant::ANYONE_ASKS) {
        return None;
    }
    if let InSyncChange::Split(cut) = &request.change {
        let PartitionRef {
            keyspace,
            partition,
        } = request.partition;
        if !table.settings.active().has(Scheduler::Splits) {
            return None;
        }
        *table = reshape::begin(
            table,
            keyspace,
            Reshape::Split {
                partition,
                cut: cut.clone(),
            },
        )
        .ok()?;
        return Some(());
    }
    let out = |state| {
        matches!(state, MemberState::Silent | MemberState::Leaving)
            && !broken(&mutant::ADMITS_THE_SILENT)
    };
    let may_count = |m: MemberId| table.member(m).is_some_and(|m| !out(m.state));
    let changed = changed(partition, &request.change, may_count)?;
    let PartitionRef {
        keyspace,
        partition: number,
    } = request.partition;
    let keyspace = table.keyspaces.iter_mut().find(|k| k.id == keyspace)?;
    let place = keyspace.place(number)?;
    keyspace.partitions[place] = Arc::new(changed);
    Some(())
}

fn changed(
    partition: &Partition,
    change: &InSyncChange,
    may_count: impl Fn(MemberId) -> bool,
) -> Option<Partition> {
    let member = match *change {
        InSyncChange::Remove(m)
        | InSyncChange::Admit(m)
        | InSyncChange::Abandon(m)
        | InSyncChange::NoRoom(m)
        | InSyncChange::Withdraw(m) => m,
        InSyncChange::Split(_) | InSyncChange::WritesStopped { .. } => return None,
    };
    if member == partition.primary() {
        return None;
    }
    let counts = partition.in_sync().any(|m| m == member);
    let learns = partition.learners().any(|m| m == member);
    let mut in_sync: Vec<MemberId> = partition.in_sync().filter(|m| *m != member).collect();
    let learners: Vec<MemberId> = partition.learners().filter(|m| *m != member).collect();
    match change {
        InSyncChange::Remove(_) if counts || learns => {}
        InSyncChange::Admit(_) if learns && may_count(member) => in_sync.push(member),
        InSyncChange::Abandon(_) | InSyncChange::NoRoom(_) if learns => {}
        // The primary requires this learner's acks until it installs another epoch, whether or not
        // the learner is still listed.
        InSyncChange::Withdraw(_) => {
            let mut next = partition.with_replicas(&in_sync, &learners);
            if !broken(&mutant::WITHDRAWS_QUIETLY) {
                next.epoch = partition.epoch.next();
            }
            return Some(next);
        }
        _ => return None,
    }
    Some(partition.with_replicas(&in_sync, &learners))
}
