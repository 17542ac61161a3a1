//! Members among which copies are spread, whatever the order in which they are chosen.

use super::{Caps, fair};
use crate::id::MemberId;
use crate::planner::layout::Ground;
use crate::table::Member;
use std::sync::Arc;

/// Says which members may hold copies together, so that the copies stand as far apart as they can.
///
/// Members are named by their place in the list that they were given in.
#[derive(Debug)]
pub struct Spread {
    ground: Ground,
    caps: Caps,
}

impl Spread {
    /// Spreads this many copies over these members, or one copy on each member if there are fewer.
    #[must_use]
    pub fn new(members: &[Arc<Member>], copies: usize) -> Self {
        let ground = Ground::new(members.to_vec());
        let caps = Caps::new(&ground, copies);
        Self { ground, caps }
    }

    /// The members, in the order that they were given in.
    #[must_use]
    pub fn members(&self) -> &[Arc<Member>] {
        self.ground.members()
    }

    /// The place of a member in [`Self::members`].
    #[must_use]
    pub fn place(&self, member: MemberId) -> Option<usize> {
        self.ground.place(member)
    }

    /// The number of copies in all, the primary among them.
    #[must_use]
    pub const fn copies(&self) -> usize {
        self.caps.copies()
    }

    /// Whether this member may hold a copy beside the `others`.
    ///
    /// Members that are admitted one after the other, in any order, end with all copies.
    #[must_use]
    pub fn admits(&self, others: &[usize], member: usize) -> bool {
        self.caps.admit(&self.ground, others, member)
    }

    /// The shares of all keys that each member should lead and hold, by weight and as far as
    /// keeping copies apart allows. All leads add up to 1, and all copies to [`Self::copies`].
    #[must_use]
    pub fn fair(&self) -> Vec<(f64, f64)> {
        fair(&self.ground, self.caps.copies())
    }
}
