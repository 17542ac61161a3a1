//! Weights far above the others'. A member that lies about its weight would draw nearly all data to
//! itself, so a newcomer with such a weight waits until an operator allows it.

use crate::access::AccessWeight;
use crate::table::{Member, MemberState, Role, Table};
use std::sync::Arc;

/// A newcomer may weigh at most this many times the median of the data members.
pub const WEIGHT_FACTOR: u32 = 8;

/// A weight that is too far above the others'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} has weight {weight}, more than {WEIGHT_FACTOR} times the median weight of the data \
     members, {median}{}",
    .allowed.map_or_else(String::new, |most| format!(", and only {most} is allowed for it"))
)]
pub struct TooHeavy {
    /// The name of the newcomer.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// The median weight of the data members.
    pub median: u32,
    /// The weight that is allowed for it, if one is: less than it has.
    pub allowed: Option<u32>,
}

/// Whether a newcomer must wait because of its weight: it is above [`WEIGHT_FACTOR`] times the
/// median of the live data members, and the table does not allow it.
///
/// Of an even number of weights, the median is the lower of the two in the middle: half of the
/// members cannot raise it. If no data member is live, the others count. Witnesses never do, and
/// a newcomer that is one never waits. Nothing is too heavy for a table without a data member.
#[must_use]
pub fn too_heavy(table: &Table, newcomer: &Member) -> Option<TooHeavy> {
    if newcomer.role != Role::Data {
        return None;
    }
    let median = median_weight(table)?;
    let allowed = table.access.weight(&newcomer.name);
    let may_have = allowed.is_some_and(|most| newcomer.weight <= most);
    (is_above(newcomer.weight, median) && !may_have).then(|| TooHeavy {
        name: newcomer.name.clone(),
        weight: newcomer.weight,
        median,
        allowed,
    })
}

/// Allows the weights that founders have. Otherwise they would wait for an operator after their
/// next restart.
pub fn allow_present(table: &mut Table) {
    let heavy = |m: &&Arc<Member>| too_heavy(table, m).is_some();
    let heavy: Vec<AccessWeight> = table
        .members
        .iter()
        .filter(heavy)
        .map(|m| AccessWeight {
            name: m.name.clone(),
            weight: m.weight,
        })
        .collect();
    if !heavy.is_empty() {
        let weights = &mut Arc::make_mut(&mut table.access).weights;
        weights.retain(|known| heavy.iter().all(|new| new.name != known.name));
        weights.extend(heavy);
        weights.sort();
    }
}

fn is_above(weight: u32, median: u32) -> bool {
    u64::from(weight) > u64::from(median) * u64::from(WEIGHT_FACTOR)
}

/// `None`: the table has no data member.
fn median_weight(table: &Table) -> Option<u32> {
    let data = || table.members.iter().filter(|m| m.role == Role::Data);
    let live = data().filter(|m| m.state == MemberState::Live);
    let mut weights: Vec<u32> = live.map(|m| m.weight).collect();
    if weights.is_empty() {
        weights = data().map(|m| m.weight).collect();
    }
    weights.sort_unstable();
    let middle = weights.len().checked_sub(1)? / 2;
    Some(weights[middle])
}
