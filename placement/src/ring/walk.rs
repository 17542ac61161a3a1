//! The members that hold the copies of an arc: its owner, and the next members clockwise. Members
//! of other zones, racks and hosts come first.

use super::{GroupLimits, Ring};
use crate::id::MemberId;
use crate::planner::layout::Topology;
use crate::table::Member;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds the copies of arcs.
#[derive(Debug)]
pub struct RingWalk {
    topology: Topology,
    limits: GroupLimits,
    /// For each token, the place of its member in the topology. `None`: the member is not in the
    /// topology.
    owners: Vec<Option<usize>>,
}

impl RingWalk {
    /// A walk on this ring, with this many copies, the primary included, on these members. Tokens
    /// of other members are skipped.
    #[must_use]
    pub fn new(ring: &Ring, members: &[Arc<Member>], copies: usize) -> Self {
        let topology = Topology::new(members.to_vec());
        let limits = GroupLimits::new(&topology, copies);
        // One look-up for each member, and not for each token.
        let mut places: BTreeMap<MemberId, Option<usize>> = BTreeMap::new();
        let owners = ring
            .tokens()
            .iter()
            .map(|(_, m)| *places.entry(*m).or_insert_with(|| topology.place(*m)))
            .collect();
        Self {
            topology,
            limits,
            owners,
        }
    }

    /// The copies of the arc of this number, the primary first. None if no arc has that number.
    ///
    /// Copies share a zone only if there are fewer zones than copies. Then they spread evenly over
    /// the zones. The same holds for racks and hosts. No member has two copies.
    #[must_use]
    pub fn replicas(&self, arc: usize) -> Vec<MemberId> {
        let mut chosen = Vec::with_capacity(self.limits.copies());
        if arc < self.owners.len() {
            let clockwise = self.owners[arc..].iter().chain(&self.owners[..arc]);
            for owner in clockwise.filter_map(|owner| *owner) {
                if self.limits.admit(&self.topology, &chosen, owner) {
                    chosen.push(owner);
                    if chosen.len() == self.limits.copies() {
                        break;
                    }
                }
            }
        }
        chosen
            .into_iter()
            .map(|place| self.topology.id(place))
            .collect()
    }
}
