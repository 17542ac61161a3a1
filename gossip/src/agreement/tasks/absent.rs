//! Members that do not answer: since when, and which of them are proved dead (rule 7).

use super::super::context::Context;
use crate::mutant::{self, broken};
use crate::time::Time;
use doyen_placement::planner;
use doyen_placement::{Keyspace, MemberId, MemberState, OnLoss, Partition, Table};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a coordinator knows of members that do not answer.
#[derive(Debug, Default)]
pub(super) struct AbsentMembers {
    /// Members whose name a newcomer has, and since when the coordinator has been checking whether
    /// they answer.
    doubted: BTreeMap<MemberId, Time>,
    /// Silent members that are proved dead: a later process of their name is at their address.
    dead: BTreeSet<MemberId>,
    /// Silent members whose name a newcomer at another address takes. That proves nothing about
    /// them.
    succeeded: BTreeSet<MemberId>,
    /// Members of `dead` that are still in the table, because no other member could take what they
    /// alone held. Every table tries again.
    proven: BTreeSet<MemberId>,
    /// Since when this coordinator has known a silent member as silent.
    silent_since: BTreeMap<MemberId, Time>,
    /// When the next lost partition begins empty.
    reset_at: Option<Time>,
}

impl AbsentMembers {
    /// This node slept. The times for which members are silent begin again.
    pub(super) fn woke(&mut self, now: Time) {
        self.silent_since
            .values_mut()
            .for_each(|since| *since = now);
    }

    /// When the next lost partition begins empty.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        self.reset_at.filter(|at| *at > now)
    }

    /// A later process of this member's name is at its address.
    pub(super) fn prove_dead(&mut self, member: MemberId) {
        self.dead.insert(member);
    }

    /// A newcomer at another address takes the name of this silent member.
    pub(super) fn succeed(&mut self, member: MemberId) {
        self.succeeded.insert(member);
    }

    /// A newcomer has the name of this member. Returns since when the coordinator has been checking
    /// whether the member answers.
    pub(super) fn doubt(&mut self, now: Time, member: MemberId) -> Time {
        *self.doubted.entry(member).or_insert(now)
    }

    /// The member answers.
    pub(super) fn believe(&mut self, member: MemberId) {
        self.doubted.remove(&member);
    }

    pub(super) fn is_proved_dead(&self, member: MemberId) -> bool {
        self.dead.contains(&member) || self.proven.contains(&member)
    }

    /// A member of the table is silent.
    pub(super) fn is_silent(&mut self, now: Time, member: MemberId) {
        self.silent_since.entry(member).or_insert(now);
    }

    /// Forgets members that this table does not list as silent, or not at all.
    pub(super) fn keep_those_of(&mut self, table: &Table) {
        self.proven.retain(|m| table.member(*m).is_some());
        self.silent_since.retain(|m, _| is_silent(table, *m));
    }

    /// Members whose names newcomers may have in this table.
    pub(super) fn nameless(&mut self, table: &Table) -> BTreeSet<MemberId> {
        let dead = std::mem::take(&mut self.dead);
        self.proven.extend(&dead);
        let mut nameless = std::mem::take(&mut self.succeeded);
        // If the member was heard meanwhile, its name is taken, and `admit` leaves out the
        // newcomer.
        nameless.retain(|m| is_silent(table, *m));
        nameless.extend(dead);
        nameless
    }

    /// A lost partition begins empty once its last holder has been silent for as long as the
    /// keyspace says. Until then, any of its holders may come back with all its data.
    pub(super) fn give_up_lost(&mut self, now: Time, table: &mut Cow<'_, Table>) {
        let silent_since = &self.silent_since;
        let due = |k: &Keyspace, p: &Partition| {
            let OnLoss::Reset { after_ms } = k.on_loss else {
                return None;
            };
            // The next table lists a member that has only just become silent.
            let last = p
                .in_sync()
                .map(|m| silent_since.get(&m).copied().unwrap_or(now))
                .max();
            last.map(|last| last + Duration::from_millis(after_ms))
        };
        let times: Vec<Time> = planner::lost(table)
            .filter_map(|(k, p)| due(k, p))
            .collect();
        self.reset_at = times.iter().filter(|at| **at > now).min().copied();
        if times.iter().all(|at| *at > now) {
            return;
        }
        let next = planner::begin_anew(table, |k, p| due(k, p).is_some_and(|at| at <= now));
        if next != **table {
            *table = Cow::Owned(next);
        }
    }
}

fn is_silent(table: &Table, member: MemberId) -> bool {
    let member = table.member(member);
    member.is_some_and(|m| m.state == MemberState::Silent)
}

/// Whether this coordinator won with a table of a coordinator that had not heard it.
pub(super) fn calls_me_silent(cx: &Context, table: &Table) -> bool {
    is_silent(table, cx.process()) && !broken(&mutant::STAYS_SILENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sole voter that had slept for an hour gave up the data of a silent member, a moment before
    /// that member answered.
    #[test]
    fn time_that_the_coordinator_slept_is_no_silence_of_others() {
        let (before, after) = (Time(1_000_000_000), Time(3_600_000_000_000));
        let mut absent = AbsentMembers::default();
        absent.is_silent(before, MemberId(16));
        absent.woke(after);
        assert_eq!(absent.silent_since[&MemberId(16)], after);
    }
}
