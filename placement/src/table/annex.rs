//! What a table keeps beside members, keyspaces and users: fields of level 16 and later.
//!
//! A delta carries the whole annex if any of its fields differs, so it must stay small.

use serde::{Deserialize, Serialize};

/// Fields that tables have from level 16 on. Below that level, each has its default value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Annex {}
