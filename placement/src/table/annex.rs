//! What a table keeps beside members, keyspaces and users.
//!
//! A delta carries the whole annex if any of its fields differs, so it must stay small.

use super::{Invalid, TableName};
use crate::id::{MapId, MemberId};
use crate::vote_key::VoteKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

/// The number of times that a cluster can be recovered by an operator's word.
pub const BRANCHES_MAX: usize = 64;
/// The number of members that those words may name, together.
pub const NAMED_MAX: usize = 4096;

/// Limit of members that are remembered after they went.
pub const GONE_MAX: usize = 64;

/// What a table keeps beside members, keyspaces and users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Annex {
    /// Whose program changed the limits of a map last: the name of the member that asked for it.
    pub limited: BTreeMap<MapId, String>,
    /// Where an operator's word replaced a majority (`recover`), the first time first. None is ever
    /// removed, so they tell the tables of the two halves of a split apart.
    pub branches: Vec<Branch>,
    /// The last members that went, in the order in which they went; no member has their names.
    pub gone: Vec<Gone>,
    /// Which messages about keys Redis clients get, as the front end numbers the letters of
    /// `notify-keyspace-events`. `None`: what each node was started with.
    pub key_events: Option<u32>,
}

/// An operator asserted that members are dead, and the others went on without a majority.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Branch {
    /// Drawn at random, so no other half has it.
    pub id: BranchId,
    /// The table from which the others went on. If a named member lives and went on as well, this
    /// is the last table that both halves have.
    pub base: TableName,
    /// The members that are said to be dead. They are dialled, in case one of them lives.
    pub named: Vec<NamedDead>,
    /// How often an operator kept this half of a split. Of two halves that were recovered, the one
    /// that was kept more often serves.
    pub kept: u32,
}

/// Names a branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BranchId(pub u128);

/// A member that an operator asserted to be dead.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedDead {
    /// The member.
    pub id: MemberId,
    /// The key of its votes, which lives in its memory alone: a process that signs with it is that
    /// member. `None`: no table had the key.
    pub key: Option<VoteKey>,
    /// Its name.
    pub name: String,
    /// Its control port.
    pub control: SocketAddr,
}

impl fmt::Debug for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BranchId({:08x}..)", self.0 >> 96)
    }
}

impl Annex {
    /// The branch with this id.
    #[must_use]
    pub fn branch(&self, id: BranchId) -> Option<&Branch> {
        self.branches.iter().find(|branch| branch.id == id)
    }

    /// All members that are said to be dead.
    pub fn named(&self) -> impl Iterator<Item = &NamedDead> {
        self.branches.iter().flat_map(|branch| &branch.named)
    }

    /// Whether a table with this annex may come after one with the annex `before`: it has all of
    /// its branches.
    #[must_use]
    pub fn descends_from(&self, before: &Self) -> bool {
        let kept = |branch: &Branch| self.branch(branch.id).is_some();
        before.branches.iter().all(kept)
    }

    /// Whether a recovery that `before` does not have asserted the death of this member, and went
    /// on from an earlier table than `name`: the member did not die, and went on as well.
    #[must_use]
    pub fn gave_up(&self, member: MemberId, name: TableName, before: &Self) -> bool {
        let further = |branch: &&Branch| before.branch(branch.id).is_none();
        let mut further = self.branches.iter().filter(further);
        further.any(|branch| {
            branch.base.order() < name.order() && branch.named.iter().any(|n| n.id == member)
        })
    }

    /// The same once an operator keeps the half with this branch. `None`: there is no such branch.
    #[must_use]
    pub fn keeping(&self, id: BranchId) -> Option<Self> {
        let mut annex = self.clone();
        let branch = annex.branches.iter_mut().find(|branch| branch.id == id)?;
        branch.kept = branch.kept.saturating_add(1);
        Some(annex)
    }

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let ids: BTreeSet<BranchId> = self.branches.iter().map(|branch| branch.id).collect();
        let few = self.branches.len() <= BRANCHES_MAX && self.named().count() <= NAMED_MAX;
        if ids.len() == self.branches.len() && few {
            Ok(())
        } else {
            Err(Invalid::Branches)
        }
    }
}

/// A member that went.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gone {
    /// Its identity.
    pub id: MemberId,
    /// Its name.
    pub name: String,
    /// Why it went.
    pub why: GoneMember,
}

/// Why a member went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GoneMember {
    /// It left in order.
    Left,
    /// It did not answer.
    Silent,
}

crate::tagged!(GoneMember {
    0 => Left {},
    1 => Silent {},
});
