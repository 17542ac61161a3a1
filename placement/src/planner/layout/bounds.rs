//! A keyspace's rules, compiled for the members that may hold data: how badly copies on some of
//! them break the rules.

use super::topology::Topology;
use crate::rule::Rule;
use std::collections::BTreeMap;

/// The rules for each member of a topology, and for several members together.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// For each member, the number of rules that a copy on it breaks, wherever the others are.
    copy: Vec<u32>,
    /// For each member, the number of rules that it breaks as a primary.
    lead: Vec<u32>,
    /// Rules that limit the copies in a group.
    groups: Vec<Grouped>,
    /// Members in one zone that every rule treats alike.
    kinds: Vec<Vec<usize>>,
    none: bool,
}

#[derive(Debug, Clone)]
struct Grouped {
    most: usize,
    /// For each member, the number of its group. `None`: it has no such label.
    of: Vec<Option<usize>>,
}

/// Each rule that the primary breaks outweighs all rules that copies break. The primary is chosen
/// among the copies, and no rule for copies is easier to meet without it.
const PRIMARY: u32 = 1 << 16;

impl Bounds {
    pub(crate) fn new(topology: &Topology, rules: &[Rule]) -> Self {
        let members = || (0..topology.len()).map(|m| topology.member(m));
        let count = |broken: &dyn Fn(&Rule, usize) -> bool| -> Vec<u32> {
            (0..topology.len())
                .map(|m| rules.iter().filter(|rule| broken(rule, m)).count() as u32)
                .collect()
        };
        let copy = count(
            &|rule, m| matches!(rule, Rule::Copies(place) if !place.allows(topology.member(m))),
        );
        let lead = count(
            &|rule, m| matches!(rule, Rule::Primary(place) if !place.allows(topology.member(m))),
        );
        let grouped = |rule: &Rule| {
            let Rule::Per { most, label } = rule else {
                return None;
            };
            let mut known = BTreeMap::new();
            let of = members().map(|member| {
                let place = label.place_of(member)?;
                let next = known.len();
                Some(*known.entry(place).or_insert(next))
            });
            Some(Grouped {
                most: usize::from(*most),
                of: of.collect(),
            })
        };
        let groups: Vec<Grouped> = rules.iter().filter_map(grouped).collect();
        let mut kinds: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for m in 0..topology.len() {
            let within: Vec<Option<usize>> = groups.iter().map(|grouped| grouped.of[m]).collect();
            kinds
                .entry((topology.groups(m)[0], copy[m], lead[m], within))
                .or_default()
                .push(m);
        }
        Self {
            copy,
            lead,
            groups,
            kinds: kinds.into_values().collect(),
            none: rules.is_empty(),
        }
    }

    /// Members by kind. Members of one kind break the same rules everywhere, and stand in one zone.
    /// There are few kinds, so it is quick to find that no member of a kind will do.
    pub(crate) fn kinds(&self) -> &[Vec<usize>] {
        &self.kinds
    }

    /// Whether there are no rules.
    pub(crate) const fn none(&self) -> bool {
        self.none
    }

    /// How badly copies on these members break the rules. 0: not at all. The best of them counts as
    /// the primary.
    ///
    /// Groups nest, so the sets of members that break nothing are the independent sets of a laminar
    /// matroid. Therefore adding or exchanging one copy at a time for the better ends without
    /// broken rules, if that is possible.
    pub(crate) fn harm(&self, members: impl Iterator<Item = usize> + Clone) -> u32 {
        if self.none {
            return 0;
        }
        let copies: u32 = members.clone().map(|m| self.copy[m]).sum();
        let primary = members.clone().map(|m| self.lead[m]).min().unwrap_or(0);
        let beyond = |grouped: &Grouped| {
            // There are few copies, so counting is quicker than a map.
            let before = |at: usize, group| {
                members
                    .clone()
                    .take(at)
                    .filter(|m| grouped.of[*m] == Some(group))
                    .count()
            };
            let over = |(at, m): (usize, usize)| {
                grouped.of[m].is_some_and(|group| before(at, group) >= grouped.most)
            };
            members
                .clone()
                .enumerate()
                .filter(|copy| over(*copy))
                .count() as u32
        };
        primary * PRIMARY + copies + self.groups.iter().map(beyond).sum::<u32>()
    }

    /// The number of rules that a member breaks as the primary.
    pub(crate) fn harm_of_lead(&self, member: usize) -> u32 {
        self.lead[member]
    }
}
