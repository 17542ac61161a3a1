//! Silent members that answer again.

use super::balance::release_held;
use super::edit::{change_partitions, set_state, states};
use super::remove::forget_silent;
use crate::id::MemberId;
use crate::table::{MemberState, Table};
use std::collections::BTreeSet;

/// The table in which these silent members are live again, or being emptied as before.
///
/// What they hold in sync they lead, if its primary is still silent; the other silent copies of
/// that partition are dropped, because every acknowledged write is on each of them. A silent member
/// that then holds nothing is a member no longer.
#[must_use]
pub fn revive(table: &Table, back: &BTreeSet<MemberId>) -> Table {
    let states = states(table);
    let silent = |m: MemberId| states.get(&m) == Some(&MemberState::Silent);
    if !back.iter().any(|m| silent(*m)) {
        return table.clone();
    }
    let mut next = change_partitions(table, |_, partition| {
        if !partition
            .replicas
            .iter()
            .any(|r| back.contains(&r.member) && silent(r.member))
        {
            return None;
        }
        let answers = |m: &MemberId| !silent(*m) || back.contains(m);
        let in_sync: Vec<MemberId> = partition.in_sync().filter(answers).collect();
        let learners: Vec<MemberId> = partition.learners().filter(answers).collect();
        (!in_sync.is_empty()).then(|| partition.with_replicas(&in_sync, &learners))
    });
    for &member in back.iter().filter(|m| silent(**m)) {
        // What somebody wanted of it before is still wanted.
        let state = if table.settings.balancing.drains(member) {
            MemberState::Draining
        } else {
            MemberState::Live
        };
        set_state(&mut next, member, state);
    }
    release_held(&mut next);
    forget_silent(&mut next);
    next
}
