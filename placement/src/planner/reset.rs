//! Giving up lost data: of a member, or of partitions whose last holders have been silent for too
//! long.
//!
//! ```text
//!   a silent member that alone holds a partition
//!     answers again ─────────────────────────> live: it leads its partitions     revive
//!     is proved dead (a process of its name    removed; with `reset`, the        remove
//!       asks to join from its address, or        partition begins empty at once
//!       an operator says so) ────────────────>
//!     is silent for the time of `reset:TIME`─> the partition begins empty        begin_anew
//!     is called lost by an operator ─────────> removed: its data begins empty    reset
//! ```
//!
//! A name alone proves nothing, and neither does a refused port. The coordinator counts the time
//! from when it first saw the member silent. A new coordinator counts again, which only delays.

use super::edit::{change_partitions, may_receive};
use super::layout::Spare;
use super::remove::{Absence, forget_silent, without};
use crate::id::{MemberId, PartitionRef};
use crate::table::{Keyspace, MemberState, Partition, Table};
use std::collections::BTreeMap;

/// The table without this member. The policies of its keyspaces do not matter. The partitions that
/// it alone held begin empty elsewhere, as another lineage.
///
/// If no live member can take a partition, the member stays, silent.
#[must_use]
pub fn reset(table: &Table, member: MemberId) -> Table {
    without(table, &BTreeMap::from([(member, Absence::Dead)]), |_| true)
}

/// The table in which these partitions begin empty on live members, as another lineage, if every
/// in-sync copy of them is on a silent member. Silent members that then hold nothing are removed.
///
/// If no live member can take a partition, it stays as it is.
#[must_use]
pub fn begin_anew(table: &Table, given_up: impl Fn(&Keyspace, &Partition) -> bool) -> Table {
    let mut spare: Option<Spare> = None;
    let due: Vec<PartitionRef> = lost(table)
        .filter(|(k, p)| given_up(k, p))
        .map(|(k, p)| PartitionRef::new(k.id, p.id))
        .collect();
    let mut next = change_partitions(table, |at, partition| {
        // Both lists have the order of the table.
        due.binary_search(&at).ok()?;
        let spare = spare.get_or_insert_with(|| Spare::new(table, may_receive));
        let members = spare.take(table, at);
        (!members.is_empty()).then(|| partition.begun_anew(&members))
    });
    if next.keyspaces != table.keyspaces {
        forget_silent(&mut next);
    }
    next
}

/// Partitions whose in-sync copies are all on silent members, so that they are not served.
pub fn lost(table: &Table) -> impl Iterator<Item = (&Keyspace, &Partition)> {
    let silent: Vec<MemberId> = table
        .members
        .iter()
        .filter(|m| m.state == MemberState::Silent)
        .map(|m| m.id)
        .collect();
    let none = silent.is_empty();
    let partitions = table
        .keyspaces
        .iter()
        .filter(move |_| !none)
        .flat_map(|k| k.partitions.iter().map(move |p| (k, &**p)));
    partitions.filter(move |(_, p)| p.in_sync().all(|m| silent.contains(&m)))
}
