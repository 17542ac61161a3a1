//! Who holds the copies of an arc: its owner, and those who come next clockwise on other zones,
//! racks and hosts first.

use super::{Caps, Ring};
use crate::id::MemberId;
use crate::planner::layout::Ground;
use crate::table::Member;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds the copies of arcs.
#[derive(Debug)]
pub struct Walk {
    ground: Ground,
    caps: Caps,
    /// For each token the member that brought it, by its place in the ground. Tokens of others are
    /// left out.
    owners: Vec<Option<usize>>,
}

impl Walk {
    /// Of this ring, with so many copies, primaries among them, on these members. Tokens of whoever
    /// is not among them are passed by.
    #[must_use]
    pub fn new(ring: &Ring, members: &[Arc<Member>], copies: usize) -> Self {
        let ground = Ground::new(members.to_vec());
        let caps = Caps::new(&ground, copies);
        // Looked up once a member, not once a token.
        let mut places: BTreeMap<MemberId, Option<usize>> = BTreeMap::new();
        let owners = ring
            .tokens()
            .iter()
            .map(|(_, m)| *places.entry(*m).or_insert_with(|| ground.place(*m)))
            .collect();
        Self {
            ground,
            caps,
            owners,
        }
    }

    /// The copies of the arc of this number, the primary first; none for a number that no arc has.
    ///
    /// Copies share a zone only where there are fewer zones than copies, then they spread evenly
    /// over the zones; likewise racks and hosts. Nobody has two.
    #[must_use]
    pub fn replicas(&self, arc: usize) -> Vec<MemberId> {
        let mut chosen = Vec::with_capacity(self.caps.copies());
        if arc < self.owners.len() {
            let clockwise = self.owners[arc..].iter().chain(&self.owners[..arc]);
            for owner in clockwise.filter_map(|owner| *owner) {
                if self.caps.admit(&self.ground, &chosen, owner) {
                    chosen.push(owner);
                    if chosen.len() == self.caps.copies() {
                        break;
                    }
                }
            }
        }
        chosen
            .into_iter()
            .map(|place| self.ground.id(place))
            .collect()
    }
}
