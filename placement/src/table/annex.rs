//! What a table keeps beside members, keyspaces and users: fields of level 16 and later.
//!
//! A delta carries the whole annex if any of its fields differs, so it must stay small.

use crate::id::MapId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fields that tables have from level 16 on. Below that level, each has its default value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Annex {
    /// Whose program changed the limits of a map last: the name of the member that asked for it.
    pub limited: BTreeMap<MapId, String>,
}
