//! Splits and merges that are under way or due, each with its reason: for people who want to see
//! what will happen.

use super::layout::{Seen, shapes};
use super::operators::Reason;
use super::reshape;
use crate::id::KeyspaceId;
use crate::loads::Loads;
use crate::table::{Keyspace, Mode, Reshape, Table};
use std::collections::BTreeSet;

/// The splits and merges of this table that are under way, and those that would begin now if the
/// measured loads lasted. Ranges that have grown too large are missing, because only their
/// primaries know of them. So are neighbours that only have to be idle for longer.
#[must_use]
pub(super) fn due(table: &Table, loads: &Loads) -> Vec<(KeyspaceId, Reshape, Reason)> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut add = |keyspace: KeyspaceId, reshape: Reshape, reason| {
        // If two concern one partition, only the first is kept: after it, the partition is another
        // one.
        let parts = reshape
            .partitions()
            .map(|p| (keyspace, p))
            .collect::<Vec<_>>();
        if parts.iter().all(|part| !known.contains(part)) {
            known.extend(parts);
            found.push((keyspace, reshape, reason));
        }
    };
    for keyspace in &table.keyspaces {
        for reshape in &keyspace.reshaping.under_way {
            add(keyspace.id, reshape.clone(), why(keyspace, reshape));
        }
    }
    for keyspace in &table.keyspaces {
        for reshape in reshape::doublings(keyspace, usize::MAX) {
            add(keyspace.id, reshape, Reason::Number);
        }
    }
    let seen = Seen {
        table,
        loads,
        range_bytes_max: None,
    };
    shapes(&seen)
        .into_iter()
        .for_each(|(keyspace, reshape, reason)| add(keyspace, reshape, reason));
    found
}

/// A split or merge that is under way does not say why it began.
fn why(keyspace: &Keyspace, reshape: &Reshape) -> Reason {
    match (keyspace.mode, reshape) {
        (Mode::Fixed { .. }, _) => Reason::Number,
        (Mode::Ring { .. }, _) => Reason::Tokens,
        (Mode::Range, Reshape::Split { .. }) => Reason::Large,
        (Mode::Range, Reshape::Merge { .. }) => Reason::Small,
    }
}
