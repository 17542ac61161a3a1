//! Silent members that answer again.

use super::balance::release_held;
use super::edit::{change_partitions, set_state, states};
use super::remove::forget_silent;
use crate::id::MemberId;
use crate::table::{MemberState, Table};
use std::collections::BTreeSet;

/// The table in which these silent members are live again, or being emptied as before.
///
/// If the primary of a partition is still silent, a member that is back and holds the partition in
/// sync leads it. The other silent copies are dropped, because each in-sync copy has every
/// acknowledged write. Silent members that then hold nothing are removed.
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
        // An operator's wish to empty it still holds.
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
