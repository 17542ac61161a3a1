//! The largest number of copies of one arc (or key) that a zone, rack or host takes. A walk that
//! takes the first members that are allowed ends with copies that are as far apart as possible.

use crate::planner::layout::{Ground, LEVELS};
use crate::table::validate::REPLICAS_MAX;
use std::collections::BTreeMap;

/// The number of copies that each group takes beside those that are there.
///
/// Groups nest, and so do the rules: the sets that they allow are the independent sets of a
/// matroid. The ring relies on three consequences: taking what is allowed in any order ends with
/// all copies, a walk that begins further on ends further on, and one more member on the way
/// replaces at most one other.
#[derive(Debug, Clone)]
pub(crate) struct Caps {
    /// By level, then by number of the group.
    rules: [BTreeMap<usize, Rule>; LEVELS],
    /// How many copies there are in all.
    copies: usize,
}

/// What holds for the groups within one wider group: each takes `even` copies, as far as it has
/// room, and so many (`more`) of them one further.
#[derive(Debug, Clone, Copy)]
struct Rule {
    even: usize,
    more: usize,
    /// What this one has room for.
    room: usize,
    /// The wider group.
    within: usize,
}

impl Caps {
    /// For so many copies, or one on each member where there are fewer.
    pub(crate) fn new(ground: &Ground, copies: usize) -> Self {
        let everybody: Vec<usize> = (0..ground.len()).collect();
        let copies = copies.min(ground.len()).min(REPLICAS_MAX);
        // As in the layout of partitions: copies need not share a group of the widest level that
        // has enough groups.
        let apart = (0..LEVELS)
            .find(|&level| groups(ground, &everybody, level).len() >= copies)
            .unwrap_or(LEVELS);
        let mut caps = Self {
            rules: Default::default(),
            copies,
        };
        caps.fill(ground, &everybody, 0, apart, copies);
        caps
    }

    /// How many copies there are in all.
    pub(crate) const fn copies(&self) -> usize {
        self.copies
    }

    /// Whether a copy may stand on this member beside those on the others.
    pub(crate) fn admit(&self, ground: &Ground, others: &[usize], member: usize) -> bool {
        others.len() < self.copies
            && !others.contains(&member)
            && (0..LEVELS).all(|level| self.admit_at(ground, others, member, level))
    }

    fn admit_at(&self, ground: &Ground, others: &[usize], member: usize, level: usize) -> bool {
        let group = ground.groups(member)[level];
        let Some(rule) = self.rules[level].get(&group) else {
            return false;
        };
        let taken_by = |group: usize| {
            others
                .iter()
                .filter(|&&other| ground.groups(other)[level] == group)
                .count()
        };
        let taken = taken_by(group);
        if taken < rule.even {
            return taken < rule.room;
        }
        // Groups like it that have taken one further, each counted where its first copy stands.
        let further = others.iter().enumerate().filter(|&(place, &other)| {
            let group = ground.groups(other)[level];
            let first = others[..place]
                .iter()
                .all(|&before| ground.groups(before)[level] != group);
            let alike = level == 0 || ground.groups(other)[level - 1] == rule.within;
            first && alike && taken_by(group) > rule.even
        });
        taken == rule.even && taken < rule.room && further.count() < rule.more
    }

    fn fill(
        &mut self,
        ground: &Ground,
        members: &[usize],
        level: usize,
        apart: usize,
        copies: usize,
    ) {
        if level >= LEVELS {
            return;
        }
        let groups = groups(ground, members, level);
        let room = |group: &[usize]| match level {
            _ if level >= apart => 1,
            _ if apart == LEVELS => group.len(),
            _ => self::groups(ground, group, apart).len(),
        };
        let rooms: Vec<usize> = groups.values().map(|group| room(group)).collect();
        let filled = |even: usize| rooms.iter().map(|room| (*room).min(even)).sum::<usize>();
        // The highest level to which all can be filled.
        let even = (0..copies)
            .rev()
            .find(|&even| filled(even) <= copies)
            .unwrap_or(0);
        let more = copies.saturating_sub(filled(even));
        for ((number, group), room) in groups.into_iter().zip(rooms) {
            let within = if level == 0 {
                0
            } else {
                ground.groups(group[0])[level - 1]
            };
            self.rules[level].insert(
                number,
                Rule {
                    even,
                    more,
                    room,
                    within,
                },
            );
            self.fill(
                ground,
                &group,
                level + 1,
                apart,
                room.min(even + usize::from(more > 0)),
            );
        }
    }
}

/// These members by their groups of this level.
fn groups(ground: &Ground, members: &[usize], level: usize) -> BTreeMap<usize, Vec<usize>> {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    members
        .iter()
        .for_each(|&m| groups.entry(ground.groups(m)[level]).or_default().push(m));
    groups
}
