//! The rules that are not met: where, and why.

use super::edit::may_receive;
use super::health::copies_wanted;
use super::layout::{Seating, Seats, Topology};
use crate::id::{KeyspaceId, MemberId};
use crate::rule::{Place, Rule};
use crate::scheduler::Schedulers;
use crate::table::{Keyspace, Member, Table};
use std::collections::BTreeMap;
use std::fmt;

/// A rule that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The rule.
    pub rule: Rule,
    /// The number of partitions that break it now.
    pub partitions: usize,
    /// The reason.
    pub why: Why,
}

/// Why a rule is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Too few of the members that may hold data stand where the rule says.
    Members {
        /// The place.
        place: Place,
        /// The number of members there.
        there: usize,
        /// The number that is needed.
        needed: usize,
    },
    /// There is room for too few copies.
    Room {
        /// The number of copies that have room.
        room: usize,
        /// The number of copies that there shall be.
        copies: usize,
    },
    /// Without the other rules, it could be met.
    OtherRules,
    /// It can be met, and will be after moves.
    NotYet,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members {
                place, there: 0, ..
            } => write!(f, "no member that may hold data is {place}"),
            Self::Members {
                place,
                there,
                needed,
            } => {
                write!(
                    f,
                    "of the members that may hold data, {there} are {place}, and {needed} copies \
                     are wanted"
                )
            }
            Self::Room { room, copies } => write!(f, "there is room for {room} of {copies} copies"),
            Self::OtherRules => f.write_str("the other rules leave no room for it"),
            Self::NotYet => {
                f.write_str("it can be met: copies are still to move, or wait for their primary")
            }
        }
    }
}

/// The rules that partitions break, or would break in the best possible layout, in order of
/// keyspace and rule.
#[must_use]
pub fn rules_unmet(table: &Table) -> Vec<Unmet> {
    if table.keyspaces.iter().all(|k| k.rules.is_empty()) {
        return Vec::new();
    }
    let topology = Topology::new(
        table
            .members
            .iter()
            .filter(|m| may_receive(m))
            .cloned()
            .collect(),
    );
    let members: BTreeMap<MemberId, &Member> = table.members.iter().map(|m| (m.id, &**m)).collect();
    table
        .keyspaces
        .iter()
        .flat_map(|keyspace| unmet_of(keyspace, &topology, &members))
        .collect()
}

fn unmet_of(
    keyspace: &Keyspace,
    topology: &Topology,
    members: &BTreeMap<MemberId, &Member>,
) -> Vec<Unmet> {
    let copies = copies_wanted(keyspace, topology.len());
    if copies == 0 || keyspace.rules.is_empty() {
        return Vec::new();
    }
    let breaks = |ids: &[MemberId], rule: &Rule| {
        let holders: Vec<&Member> = ids
            .iter()
            .filter_map(|id| members.get(id).copied())
            .collect();
        rule.is_broken_by(&holders)
    };
    let under = |rules: Vec<Rule>| {
        let keyspace = Keyspace {
            rules,
            partitions: Vec::new(),
            ..keyspace.clone()
        };
        Seats::new(
            topology,
            &keyspace,
            copies,
            vec![Seating {
                members: Vec::new(),
                going: 0,
                fixed: false,
            }],
        )
        .improve(Schedulers::ALL)
        .members(0)
    };
    let at_best = under(keyspace.rules.clone());
    // Only other rules that could be met alone can stand in the way.
    let possible: Vec<Rule> = keyspace
        .rules
        .iter()
        .filter(|rule| !breaks(&under(vec![(*rule).clone()]), rule))
        .cloned()
        .collect();
    let at_odds = possible.iter().any(|rule| breaks(&at_best, rule));
    let held: Vec<Vec<MemberId>> = keyspace
        .partitions
        .iter()
        .map(|p| p.in_sync().collect())
        .collect();
    let unmet = keyspace.rules.iter().filter_map(|rule| {
        let partitions = held.iter().filter(|holders| breaks(holders, rule)).count();
        let why = match (
            partitions > 0 || breaks(&at_best, rule),
            possible.contains(rule),
        ) {
            (false, _) => return None,
            (true, false) => reason(rule, topology, copies),
            (true, true) if at_odds => Why::OtherRules,
            (true, true) => Why::NotYet,
        };
        Some(Unmet {
            keyspace: keyspace.id,
            rule: rule.clone(),
            partitions,
            why,
        })
    });
    unmet.collect()
}

/// Why a rule cannot be met even alone.
fn reason(rule: &Rule, topology: &Topology, copies: usize) -> Why {
    let members = || (0..topology.len()).map(|m| topology.member(m));
    let too_few = |place: &Place, needed| Why::Members {
        place: place.clone(),
        there: members().filter(|m| place.allows(m)).count(),
        needed,
    };
    match rule {
        Rule::Primary(place) => too_few(place, 1),
        Rule::Copies(place) => too_few(place, copies),
        Rule::Per { most, label } => {
            let mut counts: BTreeMap<_, usize> = BTreeMap::new();
            members().for_each(|m| *counts.entry(label.place_of(m)).or_default() += 1);
            let room = |(place, count): (&Option<_>, &usize)| {
                if place.is_some() {
                    usize::from(*most).min(*count)
                } else {
                    *count
                }
            };
            Why::Room {
                room: counts.iter().map(room).sum(),
                copies,
            }
        }
    }
}
