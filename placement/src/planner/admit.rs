//! Newcomers.

use super::balance::release_held;
use crate::table::validate::MEMBERS_MAX;
use crate::table::{Member, MemberState, Table};
use std::sync::Arc;

/// The table with these newcomers as its youngest members, in the given order.
///
/// They vote in a later table at the earliest (rule 4), and hold nothing until a plan gives them
/// something. A newcomer that would make the table invalid is left out: it has the id or the name
/// of a member, or bad facts, or there are too many members.
#[must_use]
pub fn admit(table: &Table, newcomers: Vec<Member>) -> Table {
    let mut next = table.clone();
    for newcomer in newcomers {
        let known = next
            .members
            .iter()
            .any(|m| m.id == newcomer.id || m.name == newcomer.name);
        if known || newcomer.validate().is_err() || next.members.len() >= MEMBERS_MAX {
            continue;
        }
        // An operator wanted it emptied before the cluster went on without it.
        let drained = newcomer.state == MemberState::Draining;
        next.settings.balancing.set_drained(newcomer.id, drained);
        let state = if drained {
            MemberState::Draining
        } else {
            MemberState::Live
        };
        next.members.push(Arc::new(Member {
            age: next.next_age,
            state,
            ..newcomer
        }));
        next.next_age = next.next_age.next();
        release_held(&mut next);
    }
    next
}
