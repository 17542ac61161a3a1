//! Voters that a draft removes too early (rule 4).

use super::newcomers::former_name;
use doyen_placement::table::validate::MEMBERS_MAX;
use doyen_placement::{MemberState, Table};
use std::sync::Arc;

/// Failover never waits for a change of voters (rule 4). A voter that may not be removed yet stays
/// a member and holds nothing.
///
/// Everything else that the draft decided about such a voter holds. A newcomer may have its name by
/// now.
pub(super) fn keep_voters(base: &Table, table: &mut Table) {
    table.voters.clone_from(&base.voters);
    for voter in &base.voters {
        let Some(member) = base.member(*voter) else {
            continue;
        };
        if let Some(kept) = table.members.iter_mut().find(|m| m.id == *voter) {
            if kept.state == MemberState::Silent {
                Arc::make_mut(kept).state = member.state;
            }
            continue;
        }
        let mut kept = Arc::clone(member);
        if table.members.iter().any(|m| m.name == kept.name) {
            Arc::make_mut(&mut kept).name = former_name(&member.name, member.age);
        }
        table.members.push(kept);
        let drained = &mut table.settings.balancing.drained;
        if base.settings.balancing.drains(*voter)
            && let Err(place) = drained.binary_search(voter)
        {
            // Without this, a member that is only being emptied would count as leaving.
            drained.insert(place, *voter);
        }
    }
    table.members.sort_by_key(|m| m.age);
}

/// The number of newcomers that this draft may admit. Each voter that it removes may come back
/// (`keep_voters`), and takes a place then.
pub(super) fn room_for_newcomers(base: &Table, table: &Table) -> usize {
    let removed = base
        .voters
        .iter()
        .filter(|v| table.member(**v).is_none())
        .count();
    MEMBERS_MAX.saturating_sub(table.members.len() + removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::context::{Context, NamedTable};
    use crate::agreement::fixtures::{member, members};
    use crate::agreement::member_core::MemberCore;
    use crate::agreement::net::Net;
    use crate::agreement::tasks::{ClusterKnowledge, CoordinatorTasks};
    use crate::time::Time;
    use crate::wire::LeaveStep;
    use doyen_placement::planner::{self, Absence, HandOverUrgency};
    use doyen_placement::{Member, MemberId, OnLoss};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The state of a member when the coordinator makes the next table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Stands {
        Answers,
        Silent,
        /// Silent, and a newcomer at its address has its name.
        Dead,
        /// Silent, and a newcomer at another address has its name.
        Succeeded,
        Leaves,
    }

    fn stands() -> impl Strategy<Value = Stands> {
        prop_oneof![
            2 => Just(Stands::Answers),
            2 => Just(Stands::Silent),
            3 => Just(Stands::Dead),
            3 => Just(Stands::Succeeded),
            1 => Just(Stands::Leaves),
        ]
    }

    /// Members by their places in the table. The first one coordinates, and `stand` has the states
    /// of the others. Newcomers have the names of members, or new ones.
    #[derive(Debug, Clone)]
    struct Case {
        stand: Vec<Stands>,
        drained: BTreeSet<usize>,
        silent_before: BTreeSet<usize>,
        joined: BTreeSet<usize>,
        newcomers: Vec<usize>,
        waits: bool,
    }

    fn cases() -> impl Strategy<Value = Case> {
        (2..8_usize).prop_flat_map(|count| {
            let some = move || proptest::collection::btree_set(1..=count, 0..=count);
            let names = proptest::collection::vec(0..count + 2, 0..6);
            (
                proptest::collection::vec(stands(), count),
                [some(), some(), some()],
                names,
                any::<bool>(),
            )
                .prop_map(
                    |(stand, [drained, silent_before, joined], newcomers, waits)| Case {
                        stand,
                        drained,
                        silent_before,
                        joined,
                        newcomers,
                        waits,
                    },
                )
        })
    }

    fn before(case: &Case) -> Table {
        let mut table = members(case.stand.len() as u64 + 1);
        if case.waits {
            table.keyspaces[0].on_loss = OnLoss::Wait;
        }
        for (place, stands) in case.stand.iter().enumerate() {
            if case.drained.contains(&(place + 1)) {
                table = planner::drain(&table, &table.members[place + 1].name).unwrap_or(table);
            }
            if *stands == Stands::Leaves {
                table = planner::hand_over(
                    &table,
                    table.members[place + 1].id,
                    HandOverUrgency::Repair,
                );
            }
        }
        let gone: BTreeMap<MemberId, Absence> = case
            .silent_before
            .iter()
            .map(|place| (table.members[*place].id, Absence::Silent))
            .collect();
        planner::remove(&table, &gone)
    }

    /// The next table of a coordinator to which all this happens at once.
    fn after(case: &Case, base: &Table) -> Table {
        let id = |place: usize| MemberId((place as u64 + 1) << 4);
        let mut cx = Context::new(
            Net::new(1, vec![vec![0]]).config(0, id(0)),
            Time(1_000_000_000_000),
        );
        let mut core =
            MemberCore::new(&mut cx, NamedTable::new(Arc::new(base.clone())), None, true);
        let mut tasks = CoordinatorTasks::new(cx.now);
        for (place, stands) in (1..).zip(&case.stand) {
            let silent = matches!(stands, Stands::Silent | Stands::Dead | Stands::Succeeded);
            (0..if silent { 64 } else { 0 })
                .for_each(|_| _ = core.pings.detector.sent(id(place), cx.now));
            match stands {
                Stands::Dead => tasks.absent.prove_dead(id(place)),
                Stands::Succeeded => tasks.absent.succeed(id(place)),
                Stands::Leaves => tasks.leave(id(place), LeaveStep::Gone),
                Stands::Answers | Stands::Silent => {}
            }
        }
        for (number, name) in (100..).zip(&case.newcomers) {
            let name = base
                .members
                .get(*name)
                .map_or_else(|| format!("new{name}"), |m| m.name.clone());
            tasks.newcomers.join(Member {
                name,
                ..member(number)
            });
        }
        cx.now = Time(cx.now.0 + 60_000_000_000);
        let joined = case
            .joined
            .iter()
            .map(|place| id(*place))
            .chain([id(0)])
            .collect();
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// A voter that was kept got its name back, which the same draft had given to a newcomer.
        /// So the table was invalid.
        #[test]
        fn drafts_are_valid_though_newcomers_have_the_names_of_voters_that_must_be_kept(
            case in cases(),
        ) {
            let base = before(&case);
            prop_assert_eq!(base.validate(), Ok(()));
            let next = after(&case, &base);
            prop_assert_eq!(next.validate(), Ok(()));
            for voter in base.voters.iter().filter(|v| next.voters.contains(v)) {
                prop_assert_eq!(
                    base.settings.balancing.drains(*voter),
                    next.settings.balancing.drains(*voter)
                );
            }
        }
    }

    #[test]
    fn newcomers_leave_room_for_voters_that_may_have_to_come_back() {
        let base = members(5);
        assert_eq!(room_for_newcomers(&base, &base), MEMBERS_MAX - 5);
        let gone = BTreeMap::from([
            (base.members[1].id, Absence::Dead),
            (base.members[2].id, Absence::Dead),
        ]);
        let mut next = planner::remove(&base, &gone);
        assert_eq!(
            (next.members.len(), room_for_newcomers(&base, &next)),
            (3, MEMBERS_MAX - 5)
        );
        next = planner::admit(
            &next,
            (0..room_for_newcomers(&base, &next) as u64)
                .map(|number| member(100 + number))
                .collect(),
        );
        keep_voters(&base, &mut next);
        assert_eq!((next.members.len(), next.validate()), (MEMBERS_MAX, Ok(())));
    }
}
