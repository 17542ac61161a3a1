//! Emptying a member that stays. The partitions that it leads go to other members at once, and its
//! copies go as they are made elsewhere.
//!
//! The settings list members that are to be emptied (`Balancing::drained`), so that this is also
//! known of a member that is silent for a while, or that leaves.

use super::balance::stop;
use super::edit::set_state;
use super::{HandOverUrgency, hand_over, may_receive};
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
    /// It is leaving.
    #[error("{0} is leaving already")]
    Leaves(String),
    /// No other member could take its data.
    #[error("no other member may hold data, so the data of {0} can go nowhere")]
    NoReceiver(String),
    /// It is not being drained.
    #[error("{0} is not being drained")]
    Holds(String),
}

/// The table in which this member leads nothing that another member can lead, and receives no more
/// copies ([`MemberState::Draining`]). Plans put copies of its partitions elsewhere, and its own
/// are dropped then.
///
/// # Errors It is no member that can be emptied.
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
        return Err(NotDrained::NoReceiver(name.into()));
    }
    let mut next = hand_over(table, member.id, HandOverUrgency::Repair);
    // It stays until an operator stops it.
    set_state(&mut next, member.id, MemberState::Draining);
    next.settings.balancing.set_drained(member.id, true);
    Ok(next)
}

/// The table in which this member may hold data again. It keeps what it still holds: plans to move
/// such partitions away are given up.
///
/// # Errors It is not being drained.
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

/// The table in which members that are being emptied may hold data after all, because no other
/// member may: the last leaver, or a member that lost all others, needs a member to hand over to.
/// `None`: another member may hold data, or none is being emptied.
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

/// Members that are about to go, whether or not all their data is elsewhere. A member that is being
/// emptied stays until an operator stops it.
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
    // A silent member is live once it answers.
    if table
        .member(member)
        .is_some_and(|m| m.state == MemberState::Draining)
    {
        set_state(table, member, MemberState::Live);
    }
}

/// Forgets processes that are no members any more.
pub(super) fn forget_drained(table: &mut Table) {
    let members: Vec<MemberId> = table.members.iter().map(|m| m.id).collect();
    table
        .settings
        .balancing
        .drained
        .retain(|m| members.contains(m));
}

/// The member of this name or of this id.
///
/// # Errors [`NotDrained::NoMember`], with the names of all members.
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
