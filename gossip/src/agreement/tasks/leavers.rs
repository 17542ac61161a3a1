//! What the coordinator does while every member that holds data leaves (rule 10).
//!
//! While one member stays, each leaver hands over to those that stay, and goes when they hold what
//! it held. If all members leave, none can take anything. This is either a rolling restart that
//! waits for nothing, or a full stop. At first no member can tell which. In a rolling restart each
//! node is started again, but only after its process has ended. So one leaver has to go before any
//! newcomer can come.
//!
//! The coordinator decides alone. If each leaver decided by a clock of its own, half of the voters
//! would go before the newcomers came, and the other half could admit none of them.
//!
//! ```text
//! every member leaves ──> let one go ──> it restarts, and is admitted ──> the others hand over
//!                              │                                                  to it, and go
//!                              └──> no newcomer for LAST_LISTENS ──> planner::stop
//! ```
//!
//! 1. *One is let go.* It drops its copies of what other leavers hold in sync as well. If it alone
//!    holds anything, it is not chosen. It leaves as any leaver does: by a table without its vote
//!    and one without it, so the voters that are left can go on. Only one is let go until a
//!    newcomer is admitted, because each costs copies.
//! 2. *The coordinator listens* for a process that asks to be let in, forms, or dials. It counts
//!    from when the last of the present members began to leave. If one of them goes, it counts from
//!    then. While such a process waits to be admitted, it decides nothing.
//! 3. *A full stop* is a table ([`planner::stop`]) that orders all leavers to end with what they
//!    hold. Each ends when every voter has that table, the coordinator when every member has it. No
//!    newcomer is admitted then, until those that end are silent.
//!
//! If no coordinator is elected for `LEADERLESS_LISTENS`, a leaver decides for itself (`requests`).

use super::super::context::Context;
use super::super::requests::LAST_LISTENS;
use super::newcomers::outlived;
use super::{ClusterKnowledge, CoordinatorTasks};
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::LeaveStep;
use doyen_placement::planner::{self, HandOverUrgency};
use doyen_placement::{Member, MemberId, MemberState, Role, Table};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Members that leave.
#[derive(Debug, Default)]
pub(super) struct Leavers {
    leaving: BTreeMap<MemberId, HandOverUrgency>,
    /// Members that go as soon as they hold nothing.
    departing: BTreeSet<MemberId>,
    ending: Option<Ending>,
}

impl Leavers {
    /// When the coordinator has listened for long enough while every member leaves.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        self.ending.as_ref().and_then(|ending| ending.due(now))
    }

    pub(super) fn leave(&mut self, member: MemberId, step: LeaveStep) {
        match step {
            LeaveStep::HandOver(pace) => {
                let known = self.leaving.entry(member).or_insert(pace);
                *known = pace.max(*known);
            }
            LeaveStep::Gone => {
                self.departing.insert(member);
            }
        }
    }

    /// Members that have handed over everything, and go.
    pub(super) fn gone(&self, table: &Table) -> impl Iterator<Item = MemberId> {
        let leaves = |m: &MemberId| {
            let member = table.member(*m);
            member.is_some_and(|m| m.state == MemberState::Leaving)
        };
        let gone = self.departing.iter().copied();
        gone.filter(move |m| leaves(m) && !planner::holds_anything(table, *m))
    }

    /// Members that leave hand over what they hold.
    pub(super) fn draft(&mut self, accepted: &Table, table: &mut Cow<'_, Table>) {
        // Two members of one name are not both live. The former one hands over what it holds, and
        // ends.
        for former in outlived(table) {
            self.leaving
                .entry(former)
                .or_insert(HandOverUrgency::Repair);
            self.departing.insert(former);
        }
        // A silent member may be dead. If it is not, it asks again.
        let goes_on = |state| {
            !matches!(state, MemberState::Leaving | MemberState::Silent)
                || broken(&mutant::HANDS_OVER_THE_DEAD)
        };
        // If a member answers again after a full stop was decided, it may take the data of the
        // others.
        let called_off = !planner::stops(table);
        let holds = |m: &Member| {
            called_off && m.state == MemberState::Leaving && planner::holds_anything(table, m.id)
        };
        let leaves = |m: &MemberId| {
            table
                .member(*m)
                .is_some_and(|m| goes_on(m.state) || holds(m))
        };
        self.leaving.retain(|m, _| leaves(m));
        self.departing.retain(|m| accepted.member(*m).is_some());
        for (&member, &pace) in &self.leaving {
            if table.members.len() > 1 && table.member(member).is_some() {
                let next = planner::hand_over(table, member, pace);
                if next != **table {
                    *table = Cow::Owned(next);
                }
            }
        }
    }
}

/// Every member leaves, and no newcomer has been admitted since.
#[derive(Debug)]
struct Ending {
    /// The members that leave.
    members: Vec<MemberId>,
    /// Since when exactly these members have been leaving.
    since: Time,
    /// Whether one of them was let go, or is about to go.
    let_go: bool,
}

impl Ending {
    /// When the coordinator has listened for long enough.
    fn due(&self, now: Time) -> Option<Time> {
        Some(self.since + LAST_LISTENS).filter(|at| *at > now)
    }
}

impl CoordinatorTasks {
    /// If every member leaves: lets one go, or ends the cluster.
    pub(super) fn draft_end(
        &mut self,
        cx: &Context,
        known: &ClusterKnowledge<'_>,
        table: &mut Cow<'_, Table>,
    ) {
        let leavers = &mut self.leavers;
        let asked = |m| leavers.leaving.contains_key(&m);
        if !known.requests.all_leave(table, asked) || planner::stops(table) {
            leavers.ending = None;
            return;
        }
        let members: Vec<MemberId> = table
            .members
            .iter()
            .filter(|m| m.role == Role::Data)
            .map(|m| m.id)
            .collect();
        let ending = leavers.ending.get_or_insert_with(|| Ending {
            members: members.clone(),
            since: cx.now,
            let_go: false,
        });
        if ending.members != members {
            (ending.members, ending.since) = (members, cx.now);
        }
        let data = |state| {
            table
                .members
                .iter()
                .filter(move |m| m.role == Role::Data && m.state == state)
        };
        // A leaver that holds nothing goes anyway.
        ending.let_go |= data(MemberState::Leaving).next().is_some();
        let listens = cx.now.since(ending.since) < LAST_LISTENS && !table.always_alone();
        let at_the_door = self.newcomers.wait() || known.requests.waits_outside(cx, table);
        // Once the time to leave is over for all of them, there is no time left to wait for others.
        let hastes = |m: MemberId| leavers.leaving.get(&m) == Some(&HandOverUrgency::AtOnce);
        let haste = [MemberState::Live, MemberState::Draining]
            .into_iter()
            .flat_map(data)
            .all(|m| hastes(m.id));
        let waits = (listens || at_the_door) && !haste && !broken(&mutant::LEAVES_THE_NEWCOMER);
        if !ending.let_go
            && let Some(next) = let_one_go(cx, known, table)
        {
            ending.let_go = true;
            *table = Cow::Owned(next);
        } else if !waits && matches!(table, Cow::Borrowed(_)) {
            // The stop comes first, before the other changes of this table.
            *table = Cow::Owned(planner::stop(table));
        }
    }
}

/// The table in which one of those that leave holds nothing, because others that answer hold
/// all of it.
///
/// The coordinator is the last choice: if it went, the others would have to elect another one.
fn let_one_go(cx: &Context, known: &ClusterKnowledge<'_>, table: &Table) -> Option<Table> {
    let me = cx.me();
    let answers = |m: MemberId| m == me || !known.pings.silent(cx, m);
    let data = || {
        table
            .members
            .iter()
            .filter(|m| m.role == Role::Data && m.state != MemberState::Silent)
    };
    if !data().all(|m| answers(m.id)) {
        // The next table says which members hold what without the silent ones.
        return None;
    }
    let others = data().map(|m| m.id).filter(|m| *m != me);
    let choices = others.chain(data().map(|m| m.id).filter(|m| *m == me));
    // No member has left so far, so the member that may go is the one that holds nothing in the
    // next table.
    let goes = |next: &Table| {
        next.members
            .iter()
            .any(|m| m.role == Role::Data && m.state == MemberState::Leaving)
    };
    choices
        .map(|leaver| planner::hand_over(table, leaver, HandOverUrgency::AtOnce))
        .find(goes)
}

/// Whether a full stop is under way. A newcomer would be a member of a cluster that ends.
pub(super) fn is_ending(cx: &Context, known: &ClusterKnowledge<'_>, table: &Table) -> bool {
    let ends = |id: MemberId, state| {
        state == MemberState::Leaving && (id == cx.me() || !known.pings.silent(cx, id))
    };
    planner::stops(table) && table.members.iter().any(|m| ends(m.id, m.state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::context::NamedTable;
    use crate::agreement::fixtures::members;
    use crate::agreement::member_core::MemberCore;
    use crate::agreement::net::Net;
    use std::sync::Arc;

    /// The next table of a coordinator that every one of these members has asked to leave.
    fn next(base: &Table, leavers: &[MemberId]) -> Table {
        let mut cx = Context::new(
            Net::new(1, vec![vec![0]]).config(0, base.members[0].id),
            Time(1_000_000_000_000),
        );
        let core = MemberCore::new(&mut cx, NamedTable::new(Arc::new(base.clone())), None, true);
        let mut tasks = CoordinatorTasks::new(cx.now);
        leavers
            .iter()
            .for_each(|leaver| tasks.leave(*leaver, LeaveStep::HandOver(HandOverUrgency::Repair)));
        let joined = base.members.iter().map(|m| m.id).collect();
        let known = ClusterKnowledge {
            tables: &core.tables,
            pings: &core.pings,
            requests: &core.requests,
        };
        tasks
            .draft(&mut cx, &known, &joined)
            .and_then(|draft| draft.table)
            .unwrap_or_else(|| base.clone())
    }

    fn states(table: &Table) -> Vec<MemberState> {
        table.members.iter().map(|m| m.state).collect()
    }

    #[test]
    fn while_all_leave_the_coordinator_stays_and_one_other_is_let_go() {
        use MemberState::{Draining, Leaving};
        let base = members(3);
        let ids: Vec<MemberId> = base.members.iter().map(|m| m.id).collect();
        let let_go = next(&base, &ids);
        assert_eq!(states(&let_go), [Draining, Leaving, Draining]);
        assert!(!planner::holds_anything(&let_go, ids[1]) && !let_go.voters.contains(&ids[1]));
        assert_eq!(
            states(&next(&let_go, &ids)),
            [Draining, Leaving, Draining],
            "no second one"
        );
    }

    #[test]
    fn a_full_stop_is_called_off_for_a_member_that_answers_again() {
        use MemberState::{Draining, Leaving, Live};
        let ended = planner::stop(&members(3));
        let ids: Vec<MemberId> = ended.members.iter().map(|m| m.id).collect();
        assert_eq!(states(&next(&ended, &ids)), [Leaving, Leaving, Leaving]);
        let mut back = ended;
        Arc::make_mut(&mut back.members[2]).state = Live;
        let next = next(&back, &ids[..2]);
        assert_eq!(
            states(&next),
            [Draining, Draining, Live],
            "it can be given what they hold"
        );
    }
}
