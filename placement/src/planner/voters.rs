//! The members that should vote.

use crate::id::MemberId;
use crate::table::{Member, MemberState, Table};
use std::collections::BTreeMap;

/// The voters as they should be, in order of age: the oldest members that answer and stay, up to
/// `voters_max`, spread over zones if there are zones. The oldest of all is always among them.
///
/// If no member answers and stays, the present voters.
#[must_use]
pub fn choose_voters(table: &Table) -> Vec<MemberId> {
    let stays = |m: &Member| !matches!(m.state, MemberState::Silent | MemberState::Leaving);
    let mut candidates: Vec<&Member> = table
        .members
        .iter()
        .map(AsRef::as_ref)
        .filter(|m| stays(m))
        .collect();
    if candidates.is_empty() {
        return table.voters.clone();
    }
    let seats = usize::from(table.settings.voters_max).min(candidates.len());
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let mut chosen: Vec<&Member> = Vec::with_capacity(seats);
    for _ in 0..seats {
        // The zone with the fewest elders so far, and the oldest member in it. A member without a
        // zone is a zone by itself.
        let in_zone = |m: &Member| {
            if m.location.zone.is_empty() {
                0
            } else {
                taken.get(m.location.zone.as_str()).copied().unwrap_or(0)
            }
        };
        let Some(place) =
            (0..candidates.len()).min_by_key(|&i| (in_zone(candidates[i]), candidates[i].age))
        else {
            break;
        };
        let elder = candidates.remove(place);
        *taken.entry(&elder.location.zone).or_default() += 1;
        chosen.push(elder);
    }
    chosen.sort_by_key(|m| m.age);
    chosen.into_iter().map(|m| m.id).collect()
}
