//! What a table keeps beside members, keyspaces and users: fields of level 16 and later.
//!
//! A delta carries the whole annex if any of its fields differs, so it must stay small.

use crate::id::MemberId;
use serde::{Deserialize, Serialize};

/// Limit of members that are remembered after they went.
pub const GONE_MAX: usize = 64;

/// Fields that tables have from level 16 on. Below that level, each has its default value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Annex {
    /// The last members that went, in the order in which they went; no member has their names.
    pub gone: Vec<Gone>,
}

/// A member that went.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gone {
    /// Its identity.
    pub id: MemberId,
    /// Its name.
    pub name: String,
    /// Why it went.
    pub why: Departure,
}

/// Why a member went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Departure {
    /// It left in order.
    Left,
    /// It did not answer.
    Silent,
}

crate::tagged!(Departure {
    0 => Left {},
    1 => Silent {},
});
