//! A measured load moves something once it has been uneven for long, and noise moves nothing.

use crate::common::{
    LIMITS, PLAIN, Sketch, check_spread, check_step, cluster, learned, loads as counts, member,
    partitions, plan as plan_by_count, settle_by, sketch,
};
use doyen_placement::loads::{LoadWindow, MemberLoad, PartitionLoad, Report, Uneven};
use doyen_placement::planner::{self, Plan};
use doyen_placement::{Loads, MemberId, PartitionRef, Paused, Scheduler, Schedulers, Table};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time between two looks of a coordinator.
const LOOK: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn reads(reads: u64) -> PartitionLoad {
    PartitionLoad {
        reads,
        ..PartitionLoad::default()
    }
}

/// The loads of this table, if each partition has this load, wherever it is.
fn measured(table: &Table, load: impl Fn(PartitionRef) -> PartitionLoad) -> Loads {
    partitions(table)
        .map(|(at, p)| (at, p.primary(), load(at)))
        .collect()
}

/// The loads, with this unevenness.
fn uneven(mut loads: Loads, uneven: Uneven) -> Loads {
    loads.set_uneven(uneven);
    loads
}

const WORK: Uneven = Uneven {
    work: true,
    bytes: false,
    memory: false,
};
const BYTES: Uneven = Uneven {
    work: false,
    bytes: true,
    memory: false,
};

#[test]
fn how_far_the_furthest_is_above_its_share_is_told_in_percent() {
    let weights = [100, 100, 200].map(|weight| Sketch { weight, ..PLAIN });
    let table = cluster(4, 0, &weights);
    assert_eq!(
        Loads::default().furthest(&table),
        (100, 100),
        "no member has anything"
    );
    // All requests go to the first member, whose share is a quarter. Each partition has the same
    // bytes.
    let first = table.members[0].id;
    let all: Loads = partitions(&table)
        .map(|(at, p)| {
            let reads = if p.primary() == first { 1000 } else { 0 };
            (
                at,
                p.primary(),
                PartitionLoad {
                    reads,
                    bytes: 1 << 20,
                    ..PartitionLoad::default()
                },
            )
        })
        .collect();
    assert_eq!(all.furthest(&table), (400, 100));
    let hostile = measured(&table, |_| PartitionLoad {
        reads: u64::MAX,
        bytes: u64::MAX,
        ..PartitionLoad::default()
    });
    assert_eq!(
        hostile.furthest(&table),
        (100, 100),
        "and nothing overflows"
    );
}

/// The work of each member.
fn work(table: &Table, loads: &Loads) -> BTreeMap<MemberId, u64> {
    let mut work: BTreeMap<MemberId, u64> = table.members.iter().map(|m| (m.id, 0)).collect();
    for (at, partition) in partitions(table) {
        let Some(load) = loads.partition(at) else {
            continue;
        };
        for replica in &partition.replicas {
            let added = if replica.member == partition.primary() {
                load.work()
            } else {
                load.work_of_writes()
            };
            *work.entry(replica.member).or_default() += added;
        }
    }
    work
}

/// The table after all goals are reached. Then no scheduler has anything to do.
fn carried_out(table: Table) -> Table {
    // As a coordinator does: it plans again once nothing moves.
    let plan = |table: &Table| {
        if partitions(table).any(|(_, p)| p.goal.is_some()) {
            vec![]
        } else {
            plan_by_count(table)
        }
    };
    settle_by(table, plan, check_step)
}

/// A coordinator's day: it looks, and plans when the load has been uneven for long. Returns the
/// moves of each plan, and the last table.
fn day(mut table: Table, load: impl Fn(u64, PartitionRef) -> PartitionLoad) -> (Vec<Plan>, Table) {
    let mut window = LoadWindow::default();
    let mut plans = Vec::new();
    for look in 0..(DAY.as_secs() / LOOK.as_secs()) {
        let mut loads = measured(&table, |at| load(look, at));
        let due = loads.judge(&table).work;
        if window.look(LOOK * look as u32, due) {
            loads.set_uneven(WORK);
            let goals = planner::plan(&table, &loads);
            if !goals.is_empty() {
                table = planner::adopt(&table, &goals);
                table = carried_out(table);
                plans.push(goals);
            }
        }
    }
    (plans, table)
}

/// A number that looks random, of these two.
fn noise(a: u64, b: u64) -> u64 {
    let mixed = (a << 32 | b)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

#[test]
fn a_day_of_noise_moves_nothing() {
    let table = cluster(64, 1, &[PLAIN; 3]);
    // Each partition has between nothing and twice its usual load, and now and then ten partitions
    // of one member have ten times as much for half a minute.
    let load = |look: u64, at: PartitionRef| {
        let burst = look % 40 < 6 && noise(look / 40, 7) % 6 == u64::from(at.partition.0) % 6;
        reads((noise(look, at.partition.0.into()) % 2000) * if burst { 10 } else { 1 })
    };
    let uneven = (0..1000)
        .filter(|look| measured(&table, |at| load(*look, at)).judge(&table).work)
        .count();
    assert!(uneven > 10, "it is uneven at times: {uneven}");
    assert_eq!(day(table.clone(), load), (vec![], table));
}

#[test]
fn hot_partitions_move_once_and_then_all_rests() {
    let table = cluster(64, 1, &[PLAIN; 3]);
    let busiest = table.members[0].id;
    let hot: Vec<PartitionRef> = partitions(&table)
        .filter(|(_, p)| p.primary() == busiest)
        .map(|(at, _)| at)
        .take(6)
        .collect();
    let load = |look: u64, at: PartitionRef| {
        reads(
            if hot.contains(&at) { 20_000 } else { 100 } + noise(look, at.partition.0.into()) % 50,
        )
    };
    let (plans, settled) = day(table.clone(), load);
    assert_eq!(plans.len(), 1);
    let loads = measured(&settled, |at| load(0, at));
    assert!(!loads.judge(&settled).work, "{:?}", work(&settled, &loads));
    let copies = |table: &Table| {
        counts(table)
            .into_values()
            .map(|(copies, _)| copies)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        copies(&settled),
        copies(&table),
        "every member has as many copies as before"
    );
    let copied = plans[0].iter().filter(|(at, goal)| {
        goal.iter().any(|m| {
            table
                .partition(*at)
                .is_some_and(|p| p.in_sync().all(|held| held != *m))
        })
    });
    assert!(
        copied.count() <= hot.len(),
        "for the most part leads went elsewhere, which copies nothing"
    );
}

#[test]
fn a_proposal_names_the_moves_for_measured_loads() {
    let table = cluster(64, 1, &[PLAIN; 3]);
    let busiest = table.members[0].id;
    let load = |table: &Table| {
        let led = |at| table.partition(at).is_some_and(|p| p.primary() == busiest);
        uneven(
            measured(table, |at| {
                reads(if led(at) { 10_000 } else { 10 } + u64::from(at.partition.0) * 100)
            }),
            WORK,
        )
    };
    let proposal = planner::propose(&table, &load(&table));
    assert!(!proposal.hot.is_empty());
    assert_eq!(
        proposal.hot.iter().collect::<Vec<_>>(),
        proposal.goals.iter().map(|(at, _)| at).collect::<Vec<_>>()
    );
    let joined = planner::admit(&table, vec![member(9, &PLAIN)]);
    let proposal = planner::propose(&joined, &load(&joined));
    assert!(
        !proposal.hot.is_empty() && proposal.hot.len() < proposal.goals.len(),
        "some go to the newcomer in any case"
    );
    assert!(planner::propose(&joined, &Loads::default()).hot.is_empty());
}

#[test]
fn a_partition_too_large_for_every_member_stays_and_its_neighbours_move() {
    let table = cluster(64, 1, &[PLAIN; 3]);
    let (giant, led) = partitions(&table)
        .map(|(at, p)| (at, p.primary()))
        .next()
        .expect("there is one");
    let load = |_, at| reads(if at == giant { 1_000_000 } else { 1000 });
    let (plans, settled) = day(table, load);
    assert_eq!(settled.partition(giant).map(|p| p.primary()), Some(led));
    assert!(plans.len() <= 1, "{}", plans.len());
}

#[test]
fn a_scheduler_that_is_off_moves_nothing() {
    let mut table = cluster(64, 1, &[PLAIN; 3]);
    let busiest = table.members[0].id;
    let load = |table: &Table| {
        let led = |at| table.partition(at).is_some_and(|p| p.primary() == busiest);
        uneven(
            measured(table, |at| {
                reads(if led(at) { 10_000 } else { 10 } + u64::from(at.partition.0) * 100)
            }),
            WORK,
        )
    };
    assert!(!planner::plan(&table, &load(&table)).is_empty());
    table.settings.schedulers = Scheduler::ALL
        .into_iter()
        .filter(|s| *s != Scheduler::Hot)
        .collect::<Schedulers>();
    assert_eq!(planner::plan(&table, &load(&table)), vec![]);
}

#[test]
fn members_come_to_hold_their_share_of_bytes() {
    let table = cluster(
        64,
        1,
        &[
            PLAIN,
            PLAIN,
            PLAIN,
            Sketch {
                weight: 200,
                ..PLAIN
            },
        ],
    );
    let full = table.members[1].id;
    let large: Vec<PartitionRef> = partitions(&table)
        .filter(|(_, p)| p.in_sync().any(|m| m == full))
        .map(|(at, _)| at)
        .take(8)
        .collect();
    let load = |at| PartitionLoad {
        bytes: if large.contains(&at) {
            512 << 20
        } else {
            1 << 20
        },
        ..PartitionLoad::default()
    };
    assert!(measured(&table, load).judge(&table).bytes);
    let goals = planner::plan(&table, &uneven(measured(&table, load), BYTES));
    let settled = carried_out(planner::adopt(&table, &goals));
    assert!(!measured(&settled, load).judge(&settled).bytes);
    assert_eq!(counts(&settled), counts(&table));
}

#[test]
fn only_primaries_are_believed_about_existing_partitions() {
    let table = cluster(16, 1, &[PLAIN; 3]);
    let (at, partition) = partitions(&table).next().expect("there is one");
    let other = table
        .members
        .iter()
        .map(|m| m.id)
        .find(|m| *m != partition.primary())
        .expect("there are three");
    let mut loads = Loads::default();
    let nowhere = PartitionRef {
        partition: doyen_placement::PartitionId(999),
        ..at
    };
    let report = || Report {
        member: MemberLoad::default(),
        partitions: vec![(at, reads(u64::MAX)), (nowhere, reads(1))],
        moves: Vec::new(),
        unheard: Vec::new(),
    };
    loads.tell(&table, other, report());
    loads.tell(&table, MemberId(990), report());
    assert_eq!(
        (loads.partitions().count(), loads.members().count()),
        (0, 1)
    );
    loads.tell(&table, partition.primary(), report());
    assert_eq!(
        loads.partitions().map(|(at, _)| at).collect::<Vec<_>>(),
        [at]
    );
    let _ = uneven(loads.clone(), WORK).judge(&table);
    loads.retain(&Table {
        members: Vec::new(),
        keyspaces: Vec::new(),
        ..table
    });
    assert_eq!(loads, Loads::default());
}

/// Loads in which these members report that they have nothing to spare.
fn busy(table: &Table, which: &[usize]) -> Loads {
    let mut loads = Loads::default();
    for (place, member) in table.members.iter().enumerate() {
        let load = MemberLoad {
            busy: which.contains(&place),
            ..MemberLoad::default()
        };
        loads.tell(
            table,
            member.id,
            Report {
                member: load,
                partitions: Vec::new(),
                moves: Vec::new(),
                unheard: Vec::new(),
            },
        );
    }
    loads
}

/// Copies of each member, in order of age.
fn copies(table: &Table) -> Vec<u64> {
    let counts = counts(table);
    table
        .members
        .iter()
        .map(|m| counts.get(&m.id).map_or(0, |c| c.0))
        .collect()
}

#[test]
fn a_busy_member_gets_its_share_once_it_is_not_busy() {
    let three = cluster(64, 1, &[PLAIN; 3]);
    let four = planner::admit(&three, vec![member(100, &PLAIN)]);
    let plan = |table: &Table, which: &[usize]| planner::plan(table, &busy(table, which));
    let gone = |table: &Table| {
        planner::remove(
            table,
            &BTreeMap::from([(table.members[0].id, planner::Absence::Dead)]),
        )
    };
    assert_eq!(plan(&four, &[3]), vec![], "nothing need go there");
    assert_eq!(
        plan(&four, &[0, 1, 2, 3]),
        plan(&four, &[]),
        "if all are busy, no member is spared"
    );
    assert_eq!(
        plan(&four, &[0]).len(),
        plan(&four, &[]).len(),
        "a giver may be busy"
    );
    // One of the three dies. The others take its partitions, and the busy one takes nothing.
    let left = settle_by(gone(&four), |table| plan(table, &[2]), check_step);
    assert_eq!(copies(&left), [64, 64, 0]);
    // A member must hold the second copy.
    let two = settle_by(gone(&left), |table| plan(table, &[1]), check_step);
    assert_eq!(copies(&two), [64, 64]);
    let even = settle_by(left, |table| plan(table, &[]), check_step);
    assert!(
        copies(&even)
            .iter()
            .all(|copies| (42..=43).contains(copies))
    );
}

/// Writes that do not fit below the last watermark are refused, so no member passes it.
#[test]
fn a_member_that_is_almost_full_counts_as_full() {
    let told = |memory| {
        MemberLoad {
            memory,
            memory_max: 1_000,
            ..MemberLoad::default()
        }
        .told()
    };
    assert_eq!(
        [0, 700, 889, 890, 899, 900, 950].map(told),
        [0, 70, 88, 90, 90, 90, 95]
    );
}

/// A goal that had not begun stayed while balance rested, and with it a target that was full by
/// now.
#[test]
fn missing_copies_are_planned_anew_while_balancing_rests() {
    let paused = planner::balance(
        &cluster(64, 1, &[PLAIN; 4]),
        &planner::BalanceChange::Pause(Paused::Operator),
    );
    let dead = planner::remove(
        &paused,
        &BTreeMap::from([(paused.members[0].id, planner::Absence::Dead)]),
    );
    let adopted = planner::adopt(&dead, &planner::plan(&dead, &busy(&dead, &[])));
    let meant = |table: &Table| {
        partitions(table)
            .filter(|(_, p)| {
                p.goal
                    .iter()
                    .flatten()
                    .any(|m| !p.holds(*m) && *m == dead.members[1].id)
            })
            .count()
    };
    assert!(meant(&adopted) > 0, "each takes some of it");
    let again = planner::adopt(&adopted, &planner::plan(&adopted, &busy(&adopted, &[1])));
    assert_eq!(
        meant(&again),
        0,
        "a full member gets no copy that another one can take"
    );
    assert_eq!(
        partitions(&again).filter(|(_, p)| p.goal.is_some()).count(),
        32,
        "and all is to be mended"
    );
    assert_eq!(planner::plan(&again, &busy(&again, &[1])), vec![], "once");
}

/// Loads in which others cannot copy to these members.
fn cut_off(table: &Table, which: &[usize]) -> Loads {
    let mut loads = Loads::default();
    loads.set_unreached(which.iter().map(|place| table.members[*place].id).collect());
    loads
}

#[test]
fn an_unreached_member_is_planned_with_as_if_it_were_emptied() {
    let four = cluster(64, 1, &[PLAIN; 4]);
    let plan = |table: &Table| planner::plan(table, &cut_off(table, &[3]));
    let away = settle_by(four.clone(), plan, check_step);
    assert_eq!(copies(&away)[3], 0);
    assert!(partitions(&away).all(|(_, p)| p.in_sync().count() == 2));
    assert_eq!(
        away.members[3].state, four.members[3].state,
        "for people it is what it was"
    );
    let back = settle_by(away, plan_by_count, check_step);
    assert_eq!(copies(&back), [32; 4]);
    // If its copies have no other place, they stay, and other members lead.
    let wide = cluster(64, 3, &[PLAIN; 4]);
    let led = settle_by(wide, plan, check_step);
    assert_eq!(copies(&led), [64; 4]);
    assert!(partitions(&led).all(|(_, p)| p.primary() != led.members[3].id));
    assert_eq!(plan(&led), vec![], "and that is all");
}

/// The member cannot feed any other member, so a present copy leads first. Copies to a member that
/// was to lead were begun again and again.
#[test]
fn partitions_of_an_unreached_primary_go_to_a_present_copy_before_new_copies_are_made() {
    for (partitions_of, backups, members) in
        [(64, 1, 4), (64, 1, 5), (16, 1, 5), (64, 2, 6), (8, 2, 5)]
    {
        for gone in 0..members {
            // One has died, so leads are no longer even when the other is cut off.
            let full = cluster(partitions_of, backups, &vec![PLAIN; members + 1]);
            let table = planner::remove(
                &full,
                &BTreeMap::from([(full.members[gone].id, planner::Absence::Dead)]),
            );
            let table = if gone % 2 == 0 {
                table
            } else {
                planner::balance(&table, &planner::BalanceChange::Pause(Paused::Operator))
            };
            for shut in 0..members {
                let id = table.members[shut].id;
                let mut away = table.clone();
                // As a coordinator does: it plans again with every table.
                loop {
                    let planned =
                        planner::adopt(&away, &planner::plan(&away, &cut_off(&away, &[shut])));
                    let begun = planner::advance(&planned, &LIMITS, &planner::MoveFacts::default())
                        .unwrap_or(planned);
                    check_step(&away, &begun);
                    for (at, p) in partitions(&begun)
                        .filter(|(_, p)| p.primary() == id && p.in_sync().any(|m| m != id))
                    {
                        let known = |m| {
                            away.partition(at)
                                .is_some_and(|before| before.learners().any(|learner| learner == m))
                        };
                        assert_eq!(
                            p.learners().find(|m| !known(*m)),
                            None,
                            "{partitions_of} {backups} {members}, {gone} {shut}: {at:?} {p:?}"
                        );
                    }
                    let next = learned(&begun);
                    if next == away {
                        break;
                    }
                    away = next;
                }
                assert!(partitions(&away).all(|(_, p)| !p.holds(id)));
            }
        }
    }
}

proptest! {
    #[test]
    fn sparing_the_busy_leaves_no_copy_out_and_comes_to_an_end(
        members in prop::collection::vec(sketch(), 2..8),
        newcomers in prop::collection::vec(sketch(), 1..3),
        which in prop::collection::vec(any::<bool>(), 9),
        backups in 0_u8..3,
        dies in any::<bool>(),
    ) {
        let settled = cluster(32, backups, &members);
        let mut table = planner::admit(
            &settled,
            newcomers
                .iter()
                .zip(100..)
                .map(|(s, number)| member(number, s))
                .collect(),
        );
        if dies {
            let dead = table.members[0].id;
            table = planner::remove(&table, &BTreeMap::from([(dead, planner::Absence::Dead)]));
        }
        let which: Vec<usize> = (0..which.len()).filter(|place| which[*place]).collect();
        let spared = settle_by(
            table.clone(),
            |table| planner::plan(table, &busy(table, &which)),
            check_step,
        );
        check_spread(&spared);
        let wanted = |table: &Table| {
            partitions(table)
                .map(|(_, p)| p.in_sync().count())
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(
            wanted(&spared),
            wanted(&settle_by(table, plan_by_count, check_step))
        );
        // Once no member is busy, everything is where it would have been.
        let even = settle_by(spared, plan_by_count, check_step);
        check_spread(&even);
        // The same for members that others cannot copy to: no partition has fewer copies for that.
        let reached = settle_by(
            even.clone(),
            |table| {
                planner::plan(
                    table,
                    &cut_off(
                        table,
                        &which
                            .iter()
                            .copied()
                            .filter(|w| *w < table.members.len())
                            .collect::<Vec<_>>(),
                    ),
                )
            },
            check_step,
        );
        prop_assert_eq!(wanted(&reached), wanted(&even));
    }

    #[test]
    fn balance_by_load_makes_no_member_heavier_and_ends(
        members in prop::collection::vec(sketch(), 1..7),
        loads in prop::collection::vec((0_u64..50_000, 0_u64..10_000, 0_u64..200_000_000), 64),
        backups in 0_u8..3,
        work_too in any::<bool>(),
    ) {
        let table = cluster(64, backups, &members);
        let load = |at: PartitionRef| {
            let (reads, writes, bytes) = loads[at.partition.0 as usize];
            PartitionLoad {
                reads,
                writes,
                bytes,
                ..PartitionLoad::default()
            }
        };
        let uneven_now = Uneven {
            work: work_too,
            bytes: !work_too,
            memory: false,
        };
        let plan = |table: &Table| planner::plan(table, &uneven(measured(table, load), uneven_now));
        prop_assert_eq!(
            plan(&table),
            plan(&table),
            "the same input gives the same plan"
        );
        let settled = settle_by(table.clone(), plan, check_step);
        prop_assert_eq!(
            counts(&settled).values().map(|c| c.0).collect::<Vec<_>>(),
            counts(&table).values().map(|c| c.0).collect::<Vec<_>>()
        );
        prop_assert_eq!(
            plan_by_count(&settled),
            vec![],
            "and balance by numbers has nothing to take back"
        );
        let heaviest = |table: &Table| {
            let work = work(table, &measured(table, load));
            table
                .members
                .iter()
                .map(|m| work[&m.id] * 1000 / u64::from(m.weight))
                .max()
        };
        if work_too {
            prop_assert!(heaviest(&settled) <= heaviest(&table));
        }
    }
}
