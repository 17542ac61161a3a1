//! Members among which copies are spread. The order in which they are chosen does not matter.

use super::{GroupLimits, fair};
use crate::id::MemberId;
use crate::planner::layout::Topology;
use crate::table::Member;
use std::sync::Arc;

/// Says which members may hold copies together, so that the copies stand as far apart as they can.
///
/// Members are named by their place in the list that they were given in.
#[derive(Debug)]
pub struct ArcSpread {
    topology: Topology,
    limits: GroupLimits,
}

impl ArcSpread {
    /// Spreads this many copies over these members, or one copy on each member if there are fewer.
    #[must_use]
    pub fn new(members: &[Arc<Member>], copies: usize) -> Self {
        let topology = Topology::new(members.to_vec());
        let limits = GroupLimits::new(&topology, copies);
        Self { topology, limits }
    }

    /// The members, in the order that they were given in.
    #[must_use]
    pub fn members(&self) -> &[Arc<Member>] {
        self.topology.members()
    }

    /// The place of a member in [`Self::members`].
    #[must_use]
    pub fn place(&self, member: MemberId) -> Option<usize> {
        self.topology.place(member)
    }

    /// The number of copies in all, the primary among them.
    #[must_use]
    pub const fn copies(&self) -> usize {
        self.limits.copies()
    }

    /// Whether this member may hold a copy beside the `others`.
    ///
    /// Members that are admitted one after the other, in any order, end with all copies.
    #[must_use]
    pub fn admits(&self, others: &[usize], member: usize) -> bool {
        self.limits.admit(&self.topology, others, member)
    }

    /// The shares of all keys that each member should lead and hold, by weight and as far as
    /// keeping copies apart allows. All leads add up to 1, and all copies to [`Self::copies`].
    #[must_use]
    pub fn fair(&self) -> Vec<(f64, f64)> {
        fair(&self.topology, self.limits.copies())
    }
}
