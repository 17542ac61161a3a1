//! Giving a member up.

use super::remove::{Departure, without};
use crate::id::MemberId;
use crate::table::Table;
use std::collections::BTreeMap;

/// The table without this member, whatever its keyspaces say: what it alone held begins empty elsewhere, as another lineage.
///
/// Where no live member could take a partition, the member stays, silent.
#[must_use]
pub fn reset(table: &Table, member: MemberId) -> Table {
    without(table, &BTreeMap::from([(member, Departure::Dead)]), |_| true)
}
