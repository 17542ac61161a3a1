//! The operators' commands for moves: pause, window, cancel, drain.

use crate::common::*;
use doyen_placement::loads::{
    CopyPhase, EVACUATED, MemberLoad, PartitionLoad, Progress, Report, Uneven,
};
use doyen_placement::planner::{
    self, BalanceChange, HandOverUrgency, MoveFacts, MoveLimits, NotCancelled, NotDrained, adopt,
    advance,
};
use doyen_placement::{
    Assignment, Division, Invalid, Keyspace, KeyspaceId, Loads, MemberState, MoveRate, OnLoss,
    Partition, PartitionId, PartitionRef, Paused, Scheduler, Schedulers, Table,
};
use proptest::prelude::*;
use std::sync::Arc;

fn joined(table: &Table) -> Table {
    planner::admit(table, vec![member(100, &PLAIN)])
}

fn none() -> Schedulers {
    [].into_iter().collect()
}

fn held(table: &Table, by: u64) -> u64 {
    loads(table).get(&id(by)).map_or(0, |(copies, _)| *copies)
}

fn one_of(table: &Table, at: PartitionRef) -> Table {
    planner::cancel(table, Some(at)).expect("it moves")
}

/// The first step of its plan, with some learners.
fn begun(table: &Table, learners: usize) -> Table {
    let planned = adopt(table, &plan(table));
    let limits = MoveLimits {
        learners_per_source: learners,
        learners_per_target: learners,
        learners,
    };
    advance(&planned, &limits, &MoveFacts::default()).expect("something is to be done")
}

#[test]
fn while_balancing_is_paused_only_lost_copies_are_repaired() {
    let paused = planner::balance(
        &joined(&cluster(64, 1, &[PLAIN; 3])),
        &BalanceChange::Pause(Paused::Operator),
    );
    assert_eq!(plan(&paused), vec![], "a newcomer gets nothing");
    let dead = planner::remove(&paused, &[(id(1), planner::Absence::Dead)].into());
    let mended = settle_with(dead, check_step);
    assert!(partitions(&mended).all(|(_, p)| p.in_sync().count() == 2));
    let resumed = planner::balance(&mended, &BalanceChange::Resume);
    assert!(
        resumed.settings.active() == Schedulers::ALL && resumed.settings.balancing.paused.is_none()
    );
    settle_with(resumed, check_step);
}

#[test]
fn a_pause_cancels_unbegun_moves_and_finishes_begun_ones() {
    let table = begun(&joined(&cluster(64, 1, &[PLAIN; 3])), 5);
    let goals = |table: &Table| partitions(table).filter(|(_, p)| p.goal.is_some()).count();
    assert!(goals(&table) > 5);
    let paused = planner::balance(&table, &BalanceChange::Pause(Paused::Failures));
    assert_eq!(goals(&paused), 5);
    let settled = settle_with(paused.clone(), check_step);
    assert_eq!(held(&settled, 100), 5);
    // The first pause counts.
    let again = planner::balance(&paused, &BalanceChange::Pause(Paused::Operator));
    assert_eq!(
        again.settings.balancing.paused,
        Some(Paused::Operator),
        "a person's word outlasts a machine's"
    );
    assert_eq!(
        planner::balance(&again, &BalanceChange::Pause(Paused::Failures))
            .settings
            .balancing
            .paused,
        Some(Paused::Operator)
    );
}

/// A learner waits for its turn among those of its source: nothing of it was copied yet.
#[test]
fn moves_that_wait_are_called_off_and_begun_copies_are_finished() {
    let table = begun(&joined(&cluster(64, 1, &[PLAIN; 3])), 5);
    let learning: Vec<_> = partitions(&table)
        .filter(|(_, p)| p.learners().next().is_some())
        .map(|(at, p)| (at, p.primary()))
        .collect();
    assert!(learning.len() > 3);
    let mut loads = Loads::default();
    assert_eq!(
        planner::call_off(&table, &loads),
        table,
        "a new coordinator was told nothing yet"
    );
    let ((copied, source), learner) = (learning[0], id(100));
    let progress = Progress {
        partition: copied,
        learner,
        phase: CopyPhase::Copying,
        keys: 9,
        keys_sent: 1,
        bytes_sent: 10,
        rate: 1,
    };
    let own: Vec<_> = learning
        .iter()
        .filter(|(_, by)| *by == source)
        .map(|(at, _)| *at)
        .collect();
    loads.tell(
        &table,
        source,
        Report {
            moves: vec![progress],
            ..Report::default()
        },
    );
    let rest = planner::call_off(&table, &loads);
    check_step(&table, &rest);
    let learns = |at| {
        rest.partition(at)
            .is_some_and(|p| p.learners().next().is_some() && p.goal.is_some())
    };
    for (at, by) in &learning {
        assert_eq!(learns(*at), *at == copied || *by != source, "{at} of {by}");
    }
    assert!(own.len() > 1, "the check checks nothing");
    // A move that repairs goes on in any case.
    let dead = begun(
        &planner::remove(
            &cluster(64, 1, &[PLAIN; 3]),
            &[(id(1), planner::Absence::Dead)].into(),
        ),
        5,
    );
    let mut loads = Loads::default();
    dead.members
        .iter()
        .for_each(|m| loads.tell(&dead, m.id, Report::default()));
    assert_eq!(planner::call_off(&dead, &loads), dead);
}

/// One of two new copies was made already. If the other were given up, that copy would be one too
/// many.
#[test]
fn a_member_with_one_copy_too_many_goes_on() {
    let table = planner::admit(
        &cluster(64, 1, &[PLAIN; 2]),
        vec![member(100, &PLAIN), member(101, &PLAIN)],
    );
    let (at, _) = partitions(&table).next().expect("there are some");
    let table = adopt(&table, &vec![(at, vec![id(100), id(101)])]);
    let limits = MoveLimits {
        learners_per_source: 9,
        learners_per_target: 9,
        learners: 9,
    };
    let table = advance(&table, &limits, &MoveFacts::default()).expect("both learn");
    let mut loads = Loads::default();
    table
        .members
        .iter()
        .for_each(|m| loads.tell(&table, m.id, Report::default()));
    assert_ne!(
        planner::call_off(&table, &loads),
        table,
        "nothing was copied yet"
    );
    let partition = table.partition(at).expect("it is there");
    let admit = planner::InSyncRequest {
        partition: at,
        epoch: partition.epoch,
        change: planner::InSyncChange::Admit(id(100)),
    };
    let (half, done) = planner::change_in_sync(&table, &[admit]);
    assert_eq!((done, planner::call_off(&half, &loads)), (vec![true], half));
}

#[test]
fn only_stricter_settings_cancel_unbegun_moves() {
    let table = joined(&cluster(64, 1, &[PLAIN; 3]));
    let goals = |table: &Table| partitions(table).filter(|(_, p)| p.goal.is_some()).count();
    let manual = planner::schedule(&table, none());
    let all = plan(&table);
    let applied = |table: &Table| adopt(table, &all);
    let (table, manual) = (applied(&table), applied(&manual));
    assert!(goals(&table) > 5 && goals(&manual) == goals(&table));
    // A pause counts also if nothing moves by itself.
    let pause = BalanceChange::Pause(Paused::Operator);
    assert_eq!(
        (
            goals(&planner::balance(&table, &pause)),
            goals(&planner::balance(&manual, &pause))
        ),
        (0, 0)
    );
    let paused = applied(&planner::balance(&manual, &pause));
    assert_eq!(
        goals(&planner::balance(&paused, &pause)),
        goals(&table),
        "it was paused before"
    );
    assert_eq!(
        goals(&planner::balance(&paused, &BalanceChange::Resume)),
        goals(&table)
    );
    assert_eq!(
        goals(&planner::schedule(&manual, Schedulers::ALL)),
        goals(&table)
    );
    assert_eq!(goals(&planner::schedule(&table, none())), 0);
}

#[test]
fn outside_its_window_nothing_is_balanced() {
    let table = joined(&cluster(64, 1, &[PLAIN; 3]));
    let window = "22:00-06:00".parse().expect("it is one");
    let table = planner::balance(&table, &BalanceChange::Window(Some(window)));
    let day = planner::at_minute(&table, 12 * 60).expect("it is another time");
    assert!(
        planner::at_minute(&day, 13 * 60).is_none()
            && plan(&day).is_empty()
            && day.validate().is_ok()
    );
    let night = planner::at_minute(&day, 23 * 60).expect("it is that time");
    assert!(!plan(&night).is_empty());
    let always = planner::balance(&day, &BalanceChange::Window(None));
    assert!(!plan(&always).is_empty() && planner::at_minute(&always, 12 * 60).is_none());
}

#[test]
fn a_cancelled_move_stays_until_balancing_resumes_or_members_change() {
    let table = begun(&joined(&cluster(64, 1, &[PLAIN; 3])), 5);
    let (at, _) = partitions(&table)
        .find(|(_, p)| p.learners().next().is_some())
        .expect("some learn");
    let one = one_of(&table, at);
    let cancelled = one.partition(at).expect("it is there");
    assert!(cancelled.goal.is_none() && cancelled.learners().next().is_none());
    assert!(
        cancelled.epoch > table.partition(at).expect("it is there").epoch,
        "what its learner was sent is void"
    );
    assert_eq!(
        planner::cancel(&one, Some(at)),
        Err(NotCancelled::NoMove(one.name_of(at)))
    );
    let settled = settle_with(one, check_step);
    assert!(
        !settled
            .partition(at)
            .expect("it is there")
            .in_sync()
            .any(|m| m == id(100))
    );
    let all = planner::cancel(&table, None).expect("it may be");
    assert!(plan(&all).is_empty() && held(&all, 100) == 0 && all.validate().is_ok());
    assert!(!plan(&planner::balance(&all, &BalanceChange::Resume)).is_empty());
    let more = planner::balance(
        &planner::admit(&all, vec![member(101, &PLAIN)]),
        &BalanceChange::Resume,
    );
    assert!(!plan(&more).is_empty() && more.settings.balancing.held.is_empty());
    assert!(
        planner::admit(&one_of(&table, at), vec![member(101, &PLAIN)])
            .settings
            .balancing
            .held
            .is_empty(),
        "members came"
    );
    let nowhere = PartitionRef {
        keyspace: KeyspaceId(9),
        partition: PartitionId(0),
    };
    assert_eq!(
        planner::cancel(&table, Some(nowhere)),
        Err(NotCancelled::NoPartition(nowhere.to_string()))
    );
}

#[test]
fn a_move_that_repairs_is_not_cancelled() {
    let dead = planner::remove(
        &cluster(64, 1, &[PLAIN; 3]),
        &[(id(1), planner::Absence::Dead)].into(),
    );
    let table = begun(&dead, 5);
    let (at, _) = partitions(&table)
        .find(|(_, p)| p.learners().next().is_some())
        .expect("some learn");
    assert_eq!(
        planner::cancel(&table, Some(at)),
        Err(NotCancelled::Mends(table.name_of(at)))
    );
    let rest = planner::cancel(&table, None).expect("all may be");
    let learns = |table: &Table| {
        partitions(table)
            .filter(|(_, p)| p.learners().next().is_some())
            .count()
    };
    assert_eq!(learns(&rest), learns(&table));
}

#[test]
fn a_member_that_is_drained_stays_and_holds_nothing() {
    let table = cluster(64, 1, &[PLAIN; 4]);
    let draining = planner::drain(&table, "n2").expect("it may be");
    assert_eq!(loads(&draining)[&id(2)].1, 0, "what it led goes at once");
    assert!(held(&draining, 2) > 0, "its copies once they are elsewhere");
    let drained = settle_with(draining, check_step);
    let state = |table: &Table| table.member(id(2)).map(|m| m.state);
    assert_eq!(
        (held(&drained, 2), state(&drained)),
        (0, Some(MemberState::Draining))
    );
    assert!(drained.voters.contains(&id(2)) && plan(&drained).is_empty());
    let filled = settle_with(
        planner::fill(&drained, "n2").expect("it was drained"),
        check_step,
    );
    assert!(held(&filled, 2) == 32 && state(&filled) == Some(MemberState::Live));
    // A member that leaves while it is drained leaves.
    let leaving = planner::hand_over(&drained, id(2), HandOverUrgency::Repair);
    assert_eq!(state(&leaving), Some(MemberState::Leaving));
    assert_eq!(
        planner::fill(&leaving, "n2"),
        Err(NotDrained::Leaves("n2".into()))
    );
    assert_eq!(
        planner::drain(&leaving, "n2"),
        Err(NotDrained::Leaves("n2".into()))
    );
    assert!(matches!(
        planner::drain(&table, "n9"),
        Err(NotDrained::NoMember(..))
    ));
    assert_eq!(
        planner::fill(&table, "n1"),
        Err(NotDrained::Holds("n1".into()))
    );
    let alone = cluster(
        16,
        1,
        &[
            PLAIN,
            Sketch {
                witness: true,
                ..PLAIN
            },
        ],
    );
    assert_eq!(
        planner::drain(&alone, "n1"),
        Err(NotDrained::NoReceiver("n1".into()))
    );
    assert_eq!(
        planner::drain(&alone, "n2"),
        Err(NotDrained::Witness("n2".into()))
    );
}

#[test]
fn a_full_stop_is_told_from_members_that_leave_while_others_stay() {
    let table = cluster(
        16,
        1,
        &[
            PLAIN,
            PLAIN,
            PLAIN,
            Sketch {
                witness: true,
                ..PLAIN
            },
        ],
    );
    let leaving = |table: &Table, numbers: &[u64]| {
        numbers.iter().fold(table.clone(), |t, n| {
            planner::hand_over(&t, id(*n), HandOverUrgency::AtOnce)
        })
    };
    assert!(!planner::stops(&table));
    assert!(!planner::stops(&leaving(&table, &[1, 2])), "n3 stays");
    let all = leaving(&table, &[1, 2, 3]);
    assert!(
        !planner::stops(&all),
        "they hold what no other holds, and may still hand it over"
    );
    let ended = planner::stop(&all);
    assert!(planner::stops(&ended) && ended.validate() == Ok(()));
    assert_eq!(
        (&ended.keyspaces, &ended.voters),
        (&all.keyspaces, &all.voters)
    );
    assert_eq!(
        ended.member(id(4)).map(|m| m.state),
        Some(MemberState::Live),
        "a witness holds nothing"
    );
    assert!(!planner::stops(&joined(&ended)), "a newcomer may take over");
    // If a member does not answer, nothing can be asked of it, and it alone does not end a cluster.
    let silent = planner::remove(
        &all,
        &[1, 2, 3].map(|n| (id(n), planner::Absence::Silent)).into(),
    );
    assert!(!planner::stops(&planner::stop(&silent)));
}

/// The plan to empty it went on for another reason, and as much again was copied back to it.
#[test]
fn a_drain_that_is_cancelled_leaves_everything_that_is_there_where_it_is() {
    let table = cluster(64, 1, &[PLAIN; 4]);
    let draining = begun(&planner::drain(&table, "n2").expect("it may be"), 8);
    let lacks = |p: &Partition| {
        p.goal
            .iter()
            .flatten()
            .any(|m| !p.in_sync().any(|held| held == *m))
    };
    let moves = |table: &Table| {
        partitions(table)
            .filter(|(_, p)| lacks(p) || p.learners().next().is_some())
            .count()
    };
    assert!(moves(&draining) > 0, "copies are on their way");
    let again = planner::fill(&draining, "n2").expect("it is being drained");
    assert!(again.validate().is_ok());
    assert_eq!(held(&again, 2), held(&table, 2));
    assert_eq!(moves(&again), 0, "nothing is copied any more");
    let copied = |table: &Table| {
        plan(table).iter().any(|(at, goal)| {
            goal.iter()
                .any(|m| !table.partition(*at).expect("there").holds(*m))
        })
    };
    assert!(!copied(&again), "to lead its part needs no copies");
    let settled = settle_with(again, check_step);
    assert_eq!(loads(&settled), loads(&table));
}

/// Members whose memory is so full, in percent.
fn filled(table: &Table, percent: &[u64]) -> Loads {
    let mut loads = Loads::default();
    for (member, percent) in table.members.iter().zip(percent) {
        let load = MemberLoad {
            memory: *percent,
            memory_max: 100,
            busy: *percent >= 70,
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

#[test]
fn copies_move_away_from_a_nearly_full_member() {
    let table = cluster(64, 1, &[PLAIN; 4]);
    let mut loads = filled(&table, &[85, 40, 40, 40]);
    assert!(
        loads.judge(&table).memory && planner::plan(&table, &loads).is_empty(),
        "not before it has lasted"
    );
    loads.set_uneven(Uneven {
        memory: true,
        ..Uneven::default()
    });
    let goals = planner::plan(&table, &loads);
    let kept = 32 * (u64::from(EVACUATED - 8) * 100 / 85) / 100;
    let moved = goals.iter().filter(|(at, goal)| {
        table
            .partition(*at)
            .is_some_and(|p| p.in_sync().any(|m| m == id(1)))
            && !goal.contains(&id(1))
    });
    assert_eq!(moved.count() as u64, 32 - kept, "{goals:?}");
    assert!(
        goals
            .iter()
            .all(|(_, goal)| goal.iter().all(|m| *m != id(1)) || goal.len() == 2)
    );
    let full = filled(&table, &[85, 75, 75, 75]);
    assert!(
        planner::plan(&table, &full).is_empty(),
        "no member has room"
    );
}

/// All members said that they should take nothing more, so all were treated alike. Missing copies
/// were planned for a member without room for ever.
#[test]
fn if_all_members_are_nearly_full_the_fullest_receive_nothing() {
    let table = planner::remove(
        &cluster(64, 1, &[PLAIN; 5]),
        &[(id(5), planner::Absence::Dead)].into(),
    );
    let given_by = |percent: &[u64], refused: &[u64]| {
        let mut loads = filled(&table, percent);
        loads.set_full(refused.iter().map(|member| (id(*member), 0)).collect());
        let goals = planner::plan(&table, &loads);
        let new = |to: u64| {
            goals
                .iter()
                .filter(|(at, goal)| {
                    goal.contains(&id(to)) && !table.partition(*at).expect("there").holds(id(to))
                })
                .count()
        };
        (1..=4).map(new).collect::<Vec<_>>()
    };
    let given = |percent: &[u64]| given_by(percent, &[]);
    let even = given(&[75; 4]);
    assert!(even.iter().all(|new| *new > 0), "{even:?}");
    for percent in [
        [89, 74, 74, 74],
        [86, 81, 82, 83],
        [89, 86, 87, 86],
        [90, 89, 89, 88],
    ] {
        // Some or all had no room for a copy for balance alone. That gives none of them less room
        // for missing copies.
        for refused in [&[][..], &[1, 2, 3, 4], &[2, 3, 4]] {
            let given = given_by(&percent, refused);
            assert!(
                given[0] == 0 && given.iter().sum::<usize>() == even.iter().sum::<usize>(),
                "{percent:?}, {refused:?}: {given:?}"
            );
        }
    }
    // If only one member is not nearly full, it gets the copy, even if it lacked room before.
    assert_eq!(given_by(&[40, 75, 75, 75], &[1]), given(&[40, 75, 75, 75]));
    assert!(given(&[40, 75, 75, 75])[0] > even[0]);
    assert_eq!(given(&[76, 74, 74, 75]), even, "about as full");
}

/// Loads in which these members had no room. Each copy is as large as its number says: all of 100
/// bytes, or of 50 and 150 in turn.
fn refusing(table: &Table, full: &[(u64, u64)], sizes: [u64; 2]) -> Loads {
    let mut loads = Loads::default();
    for (at, partition) in partitions(table) {
        let load = PartitionLoad {
            bytes: sizes[at.partition.0 as usize % 2],
            ..PartitionLoad::default()
        };
        loads.tell(
            table,
            partition.primary(),
            Report {
                partitions: vec![(at, load)],
                ..Report::default()
            },
        );
    }
    loads.set_full(
        full.iter()
            .map(|(member, bytes)| (id(*member), *bytes))
            .collect(),
    );
    loads
}

/// A move for balance to a member without room was tried again for ever, and the cluster never came
/// to rest.
#[test]
fn a_member_without_room_gets_missing_copies_and_none_for_balance() {
    for kind in 0..4 {
        let (mode, division) = divided(kind, 16);
        let keyspace = Keyspace {
            mode,
            division,
            ..keyspace(1, 1, OnLoss::Wait)
        };
        let table = cluster_of(keyspace, Assignment::RoundRobin, &[PLAIN; 3]);
        let come = joined(&table);
        let newcomer = 100;
        let rests = settle_by(
            come.clone(),
            |t| planner::plan(t, &refusing(t, &[(newcomer, 100)], [100; 2])),
            check_step,
        );
        assert_eq!(held(&rests, newcomer), 0, "mode {kind}");
        // If it was planned before it was refused, it is withdrawn, and the present copies go on.
        let planned = adopt(&rests, &plan(&rests));
        assert!(
            partitions(&planned).any(|(_, p)| p.goal.iter().flatten().any(|m| *m == id(newcomer))),
            "mode {kind}"
        );
        let withdrawn = settle_by(
            planned,
            |t| planner::plan(t, &refusing(t, &[(newcomer, 100)], [100; 2])),
            check_step,
        );
        assert_eq!(held(&withdrawn, newcomer), 0, "mode {kind}");
        // A missing copy may fill more of it, and has no better place.
        let all = [2, 3, newcomer].map(|member| (member, 100));
        let dead = planner::remove(&rests, &[(id(1), planner::Absence::Dead)].into());
        let mended = settle_by(
            dead,
            |t| planner::plan(t, &refusing(t, &all, [100; 2])),
            check_step,
        );
        assert!(
            partitions(&mended).all(|(_, p)| p.in_sync().count() == 2),
            "mode {kind}"
        );
        assert!(held(&mended, newcomer) > 0, "mode {kind}");
        // There is room again.
        assert!(
            held(&settle_with(rests, check_step), newcomer) > 0,
            "mode {kind}"
        );
    }
}

/// A newcomer takes its arcs, also those that had been planned for a full member.
#[test]
fn on_a_ring_a_full_member_is_passed_by() {
    let (mode, division) = divided(3, 16);
    let keyspace = Keyspace {
        mode,
        division,
        ..keyspace(1, 1, OnLoss::Wait)
    };
    let full = |t: &Table| planner::plan(t, &refusing(t, &[(100, 100)], [100; 2]));
    let come = settle_by(
        joined(&cluster_of(keyspace, Assignment::RoundRobin, &[PLAIN; 3])),
        full,
        check_step,
    );
    let more = settle_by(
        planner::admit(&come, vec![member(101, &PLAIN)]),
        full,
        check_step,
    );
    let Division::Arcs(arcs) = &more.keyspaces[0].division else {
        panic!("a ring")
    };
    let receivers: Vec<_> = more
        .members
        .iter()
        .filter(|m| m.role == doyen_placement::Role::Data)
        .cloned()
        .collect();
    let walk = doyen_placement::ring::RingWalk::new(arcs.ring(), &receivers, 2);
    let mut passed = 0;
    for (arc, partition) in arcs.partitions().enumerate() {
        let (meant, partition) = (
            walk.replicas(arc),
            more.keyspaces[0].partition(partition).expect("it is there"),
        );
        let others: Vec<_> = meant.iter().filter(|m| **m != id(100)).copied().collect();
        passed += usize::from(others.len() < meant.len());
        assert!(
            partition
                .replicas
                .iter()
                .map(|r| r.member)
                .collect::<Vec<_>>()
                .starts_with(&others),
            "{meant:?}: {partition:?}"
        );
    }
    assert!(passed > 0 && held(&more, 100) == 0);
}

#[test]
fn a_member_without_room_for_a_large_copy_takes_small_ones() {
    let come = joined(&cluster(64, 1, &[PLAIN; 3]));
    let newcomer = 100;
    let large = |at: PartitionRef| at.partition.0 % 2 == 1;
    let goals = planner::plan(&come, &refusing(&come, &[(newcomer, 150)], [50, 150]));
    let given: Vec<_> = goals
        .iter()
        .filter(|(_, goal)| goal.contains(&id(newcomer)))
        .collect();
    assert!(
        given.len() == 32 && given.iter().all(|(at, _)| !large(*at)),
        "{given:?}"
    );
    // Others have the arcs that it would refuse, and are not above their share for that.
    let small = refusing(&come, &[(newcomer, 100)], [10, 3_000]);
    let goals = planner::plan(&come, &small);
    assert_eq!(
        goals
            .iter()
            .filter(|(_, goal)| goal.contains(&id(newcomer)))
            .count(),
        32
    );
    let rests = settle_by(
        come,
        |t| planner::plan(t, &refusing(t, &[(newcomer, 100)], [10, 3_000])),
        check_step,
    );
    let surplus = planner::surplus(&rests, &refusing(&rests, &[(newcomer, 100)], [10, 3_000]));
    assert!(
        surplus.values().all(|surplus| surplus.copies <= 1),
        "{surplus:?}"
    );
}

/// Each data thread has memory of its own.
#[test]
fn a_data_thread_that_had_no_room_does_not_hold_back_another() {
    let mut newcomer = member(100, &PLAIN);
    newcomer.addresses.further = vec![doyen_placement::ThreadPorts {
        data: 7402,
        resp_cluster: None,
    }];
    let come = planner::admit(&cluster(64, 1, &[PLAIN; 3]), vec![newcomer]);
    let mut full = refusing(&come, &[], [100; 2]);
    full.set_full([(id(100).thread(1), 100)].into());
    let goals = planner::plan(&come, &full);
    let given: Vec<_> = goals
        .iter()
        .filter(|(_, goal)| goal.contains(&id(100)))
        .map(|(at, _)| at.partition.thread(2))
        .collect();
    assert!(
        given.len() >= 16 && given.iter().all(|thread| *thread == 0),
        "{given:?}"
    );
}

/// It had been planned while there was room, and was tried for ever.
#[test]
fn refused_moves_are_planned_anew_if_not_all_schedulers_are_on() {
    let come = joined(&cluster(64, 1, &[PLAIN; 3]));
    let full = |t: &Table| refusing(t, &[(100, 100)], [100; 2]);
    let goes_there = |t: &Table| {
        partitions(t)
            .filter(|(_, p)| p.goal.iter().flatten().any(|m| *m == id(100)))
            .count()
    };
    for on in [vec![Scheduler::Copies], vec![Scheduler::Place]] {
        let table = adopt(&come, &plan(&come));
        assert!(goes_there(&table) > 0);
        let some = planner::schedule(&table, on.into_iter().collect());
        let rests = settle_by(some, |t| planner::plan(t, &full(t)), check_step);
        assert_eq!((goes_there(&rests), held(&rests, 100)), (0, 0));
    }
}

#[test]
fn a_member_without_room_leads_its_share_of_its_copies() {
    let mut table = cluster(64, 1, &[PLAIN; 3]);
    for keyspace in &mut table.keyspaces {
        for partition in keyspace
            .partitions
            .iter_mut()
            .filter(|p| p.primary() == id(3))
        {
            Arc::make_mut(partition).replicas.reverse();
        }
    }
    assert_eq!(loads(&table)[&id(3)].1, 0);
    let full = |t: &Table| refusing(t, &[(1, 100), (2, 100), (3, 100)], [100; 2]);
    let settled = settle_by(table.clone(), |t| planner::plan(t, &full(t)), check_step);
    assert!(loads(&settled)[&id(3)].1 >= 21, "{:?}", loads(&settled));
    assert!(
        table
            .members
            .iter()
            .all(|m| loads(&settled)[&m.id].0 == loads(&table)[&m.id].0)
    );
}

#[test]
fn a_setting_that_makes_no_sense_is_refused() {
    let spoilt = |spoil: &dyn Fn(&mut Table)| {
        let mut table = cluster(16, 1, &[PLAIN; 2]);
        spoil(&mut table);
        table.validate()
    };
    assert_eq!(
        spoilt(&|t| t.settings.balancing.closed = true),
        Err(Invalid::Balancing)
    );
    assert_eq!(
        spoilt(&|t| t.settings.balancing.rate = MoveRate::Bytes(1)),
        Err(Invalid::Balancing)
    );
    let at = |partition| PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    };
    assert_eq!(
        spoilt(&|t| t.settings.balancing.held = vec![at(1), at(0)]),
        Err(Invalid::Balancing)
    );
    assert_eq!(
        spoilt(&|t| t.settings.balancing.held = vec![at(1), at(1)]),
        Err(Invalid::Balancing)
    );
    assert_eq!(
        spoilt(&|t| t.settings.balancing.held = vec![at(0), at(99)]),
        Ok(()),
        "one that was split since"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Operators give any commands. Every table is valid, copies are never too few, and in the end
    /// nothing moves any more.
    #[test]
    fn any_commands_leave_a_cluster_whole(
        kind in 0_u32..4,
        commands in prop::collection::vec((0_u8..9, 1_u64..6), 1..12),
    ) {
        let (mode, division) = divided(kind, 4);
        let keyspace = doyen_placement::Keyspace {
            mode,
            division,
            ..keyspace(4, 1, doyen_placement::OnLoss::Wait)
        };
        let mut table = cluster_of(
            keyspace,
            doyen_placement::Assignment::RoundRobin,
            &[PLAIN, PLAIN, PLAIN, PLAIN, PLAIN],
        );
        for (command, number) in commands {
            let name = format!("n{number}");
            let next = match command {
                0 => planner::balance(&table, &BalanceChange::Pause(Paused::Operator)),
                1 => planner::balance(&table, &BalanceChange::Resume),
                2 => planner::cancel(&table, None).expect("all may always be cancelled"),
                3 => planner::drain(&table, &name).unwrap_or(table.clone()),
                4 => planner::fill(&table, &name).unwrap_or(table.clone()),
                5 => planner::schedule(
                    &table,
                    [
                        Schedulers::ALL,
                        Schedulers::MANUAL,
                        Scheduler::ALL.into_iter().skip(2).collect(),
                    ][number as usize % 3],
                ),
                _ => {
                    let planned = adopt(&table, &plan(&table));
                    advance(&planned, &LIMITS, &MoveFacts::default()).unwrap_or(planned)
                }
            };
            check_step(&table, &next);
            table = if number % 2 == 0 {
                learned(&next)
            } else {
                next
            };
        }
        let table = planner::schedule(
            &planner::balance(&table, &BalanceChange::Resume),
            Schedulers::ALL,
        );
        let settled = settle_with(table, check_step);
        for member in settled
            .members
            .iter()
            .filter(|m| m.state == MemberState::Draining)
        {
            let others = settled.members.iter().any(|m| m.state == MemberState::Live);
            prop_assert!(!others || !planner::holds_anything(&settled, member.id));
        }
    }
}
