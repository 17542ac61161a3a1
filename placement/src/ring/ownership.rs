//! The shares of a ring that each member leads and holds, and those that it should.

use super::{GroupLimits, Ring, RingWalk};
use crate::id::MemberId;
use crate::planner::layout::{Topology, copies_each};
use crate::table::Member;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of parts in which a share is counted.
const PARTS: u64 = 1 << 32;

/// Shares of the ring: 1 is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ownership {
    /// The share that it leads.
    pub led: f64,
    /// The share that it holds copies of, primaries included.
    pub held: f64,
    /// The share that it would lead if everything were even by weight.
    pub led_fair: f64,
    /// The share that it would hold, as far as keeping copies apart allows.
    pub held_fair: f64,
}

/// The shares of the ring that each of these members leads and holds, with this many copies.
#[must_use]
pub fn ownership(
    ring: &Ring,
    members: &[Arc<Member>],
    copies: usize,
) -> BTreeMap<MemberId, Ownership> {
    let topology = Topology::new(members.to_vec());
    let fair = fair(&topology, GroupLimits::new(&topology, copies).copies());
    let mut all: BTreeMap<MemberId, Ownership> = (0..topology.len())
        .map(|m| {
            (
                topology.id(m),
                Ownership {
                    led_fair: fair[m].0,
                    held_fair: fair[m].1,
                    ..Ownership::default()
                },
            )
        })
        .collect();
    let walk = RingWalk::new(ring, members, copies);
    for arc in 0..ring.tokens().len() {
        let share = ring.arc(arc).map_or(0.0, |arc| arc.share());
        for (place, member) in walk.replicas(arc).into_iter().enumerate() {
            let owned = all.entry(member).or_default();
            owned.held += share;
            owned.led += if place == 0 { share } else { 0.0 };
        }
    }
    all
}

/// The shares that each member should lead and hold.
pub(crate) fn fair(topology: &Topology, copies: usize) -> Vec<(f64, f64)> {
    let weights: u64 = (0..topology.len()).map(|m| topology.weight(m)).sum();
    let none = vec![0; topology.len()];
    let held = copies_each(
        topology,
        (PARTS, copies),
        PARTS * copies as u64,
        (&none, &none),
        0,
    );
    let led = |m: usize| topology.weight(m) as f64 / weights.max(1) as f64;
    (0..topology.len())
        .map(|m| (led(m), held[m] as f64 / PARTS as f64))
        .collect()
}
