//! The largest number of copies of one arc (or key) that a zone, rack or host takes. A walk that
//! takes the first allowed members ends with copies that are as far apart as possible.

use crate::planner::layout::{LEVELS, Topology};
use crate::table::validate::REPLICAS_MAX;
use std::collections::BTreeMap;

/// The number of copies that each group takes beside the present ones.
///
/// Groups nest, and so do the rules: the sets that they allow are the independent sets of a
/// matroid. The ring relies on three consequences: taking allowed members in any order ends with
/// all copies; a walk that begins further on ends further on; and one more member on the way
/// replaces at most one other.
#[derive(Debug, Clone)]
pub(crate) struct GroupLimits {
    /// By level, then by number of the group.
    rules: [BTreeMap<usize, CopiesRule>; LEVELS],
    /// The number of copies in all.
    copies: usize,
}

/// The rule for the groups within one wider group: each takes `even` copies, as far as it has room,
/// and `more` of them take one further copy.
#[derive(Debug, Clone, Copy)]
struct CopiesRule {
    even: usize,
    more: usize,
    /// The room of this group.
    room: usize,
    /// The wider group.
    within: usize,
}

impl GroupLimits {
    /// For this many copies, or one on each member if there are fewer members.
    pub(crate) fn new(topology: &Topology, copies: usize) -> Self {
        let all: Vec<usize> = (0..topology.len()).collect();
        let copies = copies.min(topology.len()).min(REPLICAS_MAX);
        // As in the layout of partitions: copies need not share a group of the widest level that
        // has enough groups.
        let apart = (0..LEVELS)
            .find(|&level| groups(topology, &all, level).len() >= copies)
            .unwrap_or(LEVELS);
        let mut limits = Self {
            rules: Default::default(),
            copies,
        };
        limits.fill(topology, &all, 0, apart, copies);
        limits
    }

    /// The number of copies in all.
    pub(crate) const fn copies(&self) -> usize {
        self.copies
    }

    /// Whether this member may have a copy beside those on the others.
    pub(crate) fn admit(&self, topology: &Topology, others: &[usize], member: usize) -> bool {
        others.len() < self.copies
            && !others.contains(&member)
            && (0..LEVELS).all(|level| self.admit_at(topology, others, member, level))
    }

    fn admit_at(&self, topology: &Topology, others: &[usize], member: usize, level: usize) -> bool {
        let group = topology.groups(member)[level];
        let Some(rule) = self.rules[level].get(&group) else {
            return false;
        };
        let taken_by = |group: usize| {
            others
                .iter()
                .filter(|&&other| topology.groups(other)[level] == group)
                .count()
        };
        let taken = taken_by(group);
        if taken < rule.even {
            return taken < rule.room;
        }
        // Similar groups that have taken one further copy, each counted at its first copy.
        let further = others.iter().enumerate().filter(|&(place, &other)| {
            let group = topology.groups(other)[level];
            let first = others[..place]
                .iter()
                .all(|&before| topology.groups(before)[level] != group);
            let alike = level == 0 || topology.groups(other)[level - 1] == rule.within;
            first && alike && taken_by(group) > rule.even
        });
        taken == rule.even && taken < rule.room && further.count() < rule.more
    }

    fn fill(
        &mut self,
        topology: &Topology,
        members: &[usize],
        level: usize,
        apart: usize,
        copies: usize,
    ) {
        if level >= LEVELS {
            return;
        }
        let groups = groups(topology, members, level);
        let room = |group: &[usize]| match level {
            _ if level >= apart => 1,
            _ if apart == LEVELS => group.len(),
            _ => self::groups(topology, group, apart).len(),
        };
        let rooms: Vec<usize> = groups.values().map(|group| room(group)).collect();
        let filled = |even: usize| rooms.iter().map(|room| (*room).min(even)).sum::<usize>();
        // The highest level to which all groups can be filled.
        let even = (0..copies)
            .rev()
            .find(|&even| filled(even) <= copies)
            .unwrap_or(0);
        let more = copies.saturating_sub(filled(even));
        for ((number, group), room) in groups.into_iter().zip(rooms) {
            let within = if level == 0 {
                0
            } else {
                topology.groups(group[0])[level - 1]
            };
            self.rules[level].insert(
                number,
                CopiesRule {
                    even,
                    more,
                    room,
                    within,
                },
            );
            self.fill(
                topology,
                &group,
                level + 1,
                apart,
                room.min(even + usize::from(more > 0)),
            );
        }
    }
}

/// These members by their groups of this level.
fn groups(topology: &Topology, members: &[usize], level: usize) -> BTreeMap<usize, Vec<usize>> {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    members
        .iter()
        .for_each(|&m| groups.entry(topology.groups(m)[level]).or_default().push(m));
    groups
}
