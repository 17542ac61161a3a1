//! The keys of one partition: an index for each map (`index.rs`), and the deadlines in an ordered
//! set.
//!
//! The key after another one, in the index's order, is the same at every holder of the partition,
//! however it was written. So scans, snapshots and checksums can stop at a key. Entries are shared
//! with the log and its undo records, so a write copies its bytes once.

mod absences;
pub(crate) mod budget;
pub(crate) mod census;
pub(crate) mod change;
pub(crate) mod collection;
mod contents;
pub(crate) mod cuts;
mod effect;
mod fields;
pub(crate) mod index;
mod key_tables;
pub(crate) mod lazy_migration;
pub(crate) mod map;
pub(crate) mod map_limits;
mod maps;
pub(crate) mod prefetch;
pub(crate) mod ranked;
pub(crate) mod run_context;
pub(crate) mod runs;
pub(crate) mod shaking;
pub(crate) mod stream_view;
mod sums;
pub(crate) mod surveyor;
mod table_pages;
pub(crate) mod victims;

pub(crate) use crate::value::entry::Key;
pub(crate) use contents::{Store, SurveyPosition};
pub(crate) use effect::{Before, Effect, Undo};
pub(crate) use fields::FoundKey;
pub(crate) use lazy_migration::Portion;
pub(crate) use map::{ENTRY_OVERHEAD, RowTable, StoredMap};
pub(crate) use maps::OverduePart;
pub(crate) use sums::{Piece, SumCursor, digest_bytes};
pub(crate) use victims::{EvictionQuota, Victim};

#[cfg(test)]
mod tests;
