//! A full stop: every member that holds data leaves, and no member is left that could take over.

use super::edit::set_state;
use crate::id::MemberId;
use crate::table::{MemberState, Role, Table};

/// The table that tells every member that holds data to end with the data it holds. Each is in
/// state [`MemberState::Leaving`], except members that do not answer.
#[must_use]
pub fn stop(table: &Table) -> Table {
    let mut next = table.clone();
    let ends = table
        .members
        .iter()
        .filter(|m| m.role == Role::Data && m.state != MemberState::Silent);
    let ends: Vec<MemberId> = ends.map(|m| m.id).collect();
    ends.into_iter()
        .for_each(|member| set_state(&mut next, member, MemberState::Leaving));
    next
}

/// Whether this table ends the cluster. While any member stays, a member in state
/// [`MemberState::Leaving`] holds nothing. So holders are in this state only after [`stop`].
#[must_use]
pub fn stops(table: &Table) -> bool {
    let mut data = table
        .members
        .iter()
        .filter(|m| m.role == Role::Data)
        .map(|m| m.state)
        .peekable();
    let mut ends = false;
    data.all(|state| {
        ends |= state == MemberState::Leaving;
        matches!(state, MemberState::Leaving | MemberState::Silent)
    }) && ends
}
