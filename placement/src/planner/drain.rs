//! Emptying a member that stays: what it leads goes to others at once, its copies as they are made
//! elsewhere.
//!
//! Who is to be emptied stands in the settings (`Balancing::drained`), so that it is known of a
//! member that is silent for a while, and of one that leaves, too.

use super::balance::stop;
use super::edit::set_state;
use super::{Pace, hand_over, may_receive};
use crate::id::MemberId;
use crate::table::{Member, MemberState, Partition, Role, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a member is not drained, or not filled again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDrained {
    /// It is no member.
    #[error("there is no member {0:?}: there are {1}")]
    NoMember(String, String),
    /// It holds no data.
    #[error("{0} is a witness and holds no data: stop it at any time")]
    Witness(String),
    /// It does not answer.
    #[error("{0} does not answer")]
    Silent(String),
    /// It is going.
    #[error("{0} is leaving already")]
    Leaves(String),
    /// Nobody could take anything.
    #[error("no other member may hold data, so the data of {0} can go nowhere")]
    Nobody(String),
    /// It is not being drained.
    #[error("{0} is not being drained")]
    Holds(String),
}

/// The table in which this member leads nothing that another can lead, and is given nothing more
/// ([`MemberState::Draining`]). Plans put copies of what it holds elsewhere; what is left to it
/// then is dropped.
///
/// # Errors
/// It is no member that can be emptied.
pub fn drain(table: &Table, name: &str) -> Result<Table, NotDrained> {
    let member = named(table, name)?;
    match member.state {
        _ if member.role == Role::Witness => return Err(NotDrained::Witness(name.into())),
        MemberState::Silent => return Err(NotDrained::Silent(name.into())),
        MemberState::Leaving => return Err(NotDrained::Leaves(name.into())),
        MemberState::Draining if table.settings.balancing.drains(member.id) => {
            return Ok(table.clone());
        }
        // It leaves, and has not handed over everything.
        MemberState::Draining => return Err(NotDrained::Leaves(name.into())),
        MemberState::Live => {}
    }
    if !table
        .members
        .iter()
        .any(|m| m.id != member.id && may_receive(m))
    {
        return Err(NotDrained::Nobody(name.into()));
    }
    let mut next = hand_over(table, member.id, Pace::Repair);
    // It stays until somebody stops it.
    set_state(&mut next, member.id, MemberState::Draining);
    next.settings.balancing.set_drained(member.id, true);
    Ok(next)
}

/// The table in which this member may hold data again. What it still holds it keeps: of such a
/// partition, what was planned without it is given up.
///
/// # Errors
/// It is not being drained.
pub fn fill(table: &Table, name: &str) -> Result<Table, NotDrained> {
    let member = named(table, name)?;
    match member.state {
        _ if table.settings.balancing.drains(member.id) => {}
        MemberState::Draining | MemberState::Leaving => {
            return Err(NotDrained::Leaves(name.into()));
        }
        MemberState::Silent => return Err(NotDrained::Silent(name.into())),
        MemberState::Live => return Err(NotDrained::Holds(name.into())),
    }
    let mut next = table.clone();
    filled(&mut next, member.id);
    let leaves = |p: &Partition| {
        p.goal
            .as_ref()
            .is_some_and(|goal| !goal.contains(&member.id))
            && p.in_sync().any(|m| m == member.id)
    };
    Ok(stop(&next, |_, partition| leaves(partition)))
}

/// The table in which those who are being emptied may hold data after all, where nobody else may:
/// whoever leaves last, or lost all others, has somebody to give it to. `None` where somebody else
/// may, or nobody is being emptied.
#[must_use]
pub fn refill(table: &Table) -> Option<Table> {
    let drained =
        |m: &Arc<Member>| m.state == MemberState::Draining && table.settings.balancing.drains(m.id);
    if table.members.iter().any(|m| may_receive(m)) {
        return None;
    }
    let again: Vec<MemberId> = table
        .members
        .iter()
        .filter(|m| drained(m))
        .map(|m| m.id)
        .collect();
    (!again.is_empty()).then(|| {
        let mut next = table.clone();
        again
            .into_iter()
            .for_each(|member| filled(&mut next, member));
        next
    })
}

/// Who is about to go, whether or not all of what it holds is elsewhere. Who is being emptied stays
/// until somebody stops it.
#[must_use]
pub fn leaving(table: &Table) -> BTreeSet<MemberId> {
    let goes = |m: &&Arc<Member>| match m.state {
        MemberState::Leaving => true,
        MemberState::Draining => !table.settings.balancing.drains(m.id),
        MemberState::Live | MemberState::Silent => false,
    };
    table.members.iter().filter(goes).map(|m| m.id).collect()
}

fn filled(table: &mut Table, member: MemberId) {
    table.settings.balancing.set_drained(member, false);
    // One that does not answer is live once it does.
    if table
        .member(member)
        .is_some_and(|m| m.state == MemberState::Draining)
    {
        set_state(table, member, MemberState::Live);
    }
}

/// Whoever is no member any more is not waited for.
pub(super) fn forget_drained(table: &mut Table) {
    let members: Vec<MemberId> = table.members.iter().map(|m| m.id).collect();
    table
        .settings
        .balancing
        .drained
        .retain(|m| members.contains(m));
}

/// The member of this name, or of this id.
///
/// # Errors
/// There is none: [`NotDrained::NoMember`], which tells who there is.
pub fn named<'a>(table: &'a Table, name: &str) -> Result<&'a Arc<Member>, NotDrained> {
    let members = || {
        table
            .members
            .iter()
            .map(|m| m.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = table
        .members
        .iter()
        .find(|m| m.name == name || m.id.to_string() == name);
    found.ok_or_else(|| NotDrained::NoMember(name.chars().take(64).collect(), members()))
}
