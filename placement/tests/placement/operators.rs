//! The steps of a plan lead to its goals, for the reasons that the table shows.

use crate::common::*;
use doyen_placement::loads::{PartitionLoad, Skew};
use doyen_placement::planner::{
    self, Absence, HandOverUrgency, KeyspaceChange, NotApplied, Operator, OperatorAction, Reason,
    adopt, alter_keyspace, plan_for, reshape,
};
use doyen_placement::{
    Assignment, Division, Keyspace, KeyspaceId, Loads, MapId, MemberId, Mode, OnLoss, PartitionId,
    PartitionRef, ReplicaState, Reshape, Scheduler, Schedulers, Settings, Table,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn operators(table: &Table) -> Vec<Operator> {
    planner::operators(table, &plan(table), &Loads::default())
}

fn reasons(table: &Table) -> BTreeSet<Reason> {
    operators(table).into_iter().map(|o| o.reason).collect()
}

/// The members of each partition that has steps, after all of them: the primary first, and the
/// others by id.
fn taken(table: &Table, operators: &[Operator]) -> BTreeMap<PartitionRef, Vec<MemberId>> {
    let mut held: BTreeMap<PartitionRef, Vec<MemberId>> = BTreeMap::new();
    for operator in operators {
        let partition = table.partition(operator.partition).expect("it is there");
        let members = held
            .entry(operator.partition)
            .or_insert_with(|| partition.in_sync().collect());
        match operator.action {
            OperatorAction::Split(_) | OperatorAction::Merge(_) => panic!("nothing is split"),
            OperatorAction::AddLearner(m) => assert!(!members.contains(&m)),
            OperatorAction::Promote(m) => members.push(m),
            OperatorAction::TransferPrimary { from, to } => {
                assert_eq!(members[0], from);
                let heir = members
                    .iter()
                    .position(|m| *m == to)
                    .expect("it holds a copy that counts");
                members.swap(0, heir);
            }
            OperatorAction::RemoveCopy(m) => {
                assert!(members.first() != Some(&m), "no primary is dropped");
                members.retain(|held| *held != m);
            }
        }
        let counted = operator
            .after
            .iter()
            .filter(|r| r.state == ReplicaState::InSync)
            .map(|r| r.member);
        assert_eq!(
            counted.collect::<Vec<_>>(),
            *members,
            "what follows is told"
        );
    }
    held.into_iter()
        .map(|(at, members)| (at, sorted(&members)))
        .collect()
}

fn sorted(members: &[MemberId]) -> Vec<MemberId> {
    let mut members = members.to_vec();
    members[1..].sort_unstable();
    members
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_steps_lead_where_the_plan_leads(
        members in prop::collection::vec(sketch(), 2..9),
        newcomers in prop::collection::vec(sketch(), 0..3),
        gone in prop::collection::btree_set(1_u64..9, 0..3),
        leaver in 1_u64..9,
        power in 0_u32..7,
        backups in 0_u8..4,
        begun in any::<bool>(),
    ) {
        let table = cluster(1 << power, backups, &members);
        let table = planner::admit(
            &table,
            newcomers
                .iter()
                .zip(100..)
                .map(|(s, number)| member(number, s))
                .collect(),
        );
        let gone = gone.into_iter().map(|m| (id(m), Absence::Silent)).collect();
        let mut table =
            planner::hand_over(&planner::remove(&table, &gone), id(leaver), HandOverUrgency::Repair);
        if begun {
            table = adopt(&table, &plan(&table));
            table = planner::advance(&table, &LIMITS, &planner::MoveFacts::default()).unwrap_or(table);
        }
        let goals = plan(&table);
        let operators = planner::operators(&table, &goals, &Loads::default());
        prop_assert_eq!(
            &operators,
            &planner::operators(&table.clone(), &goals, &Loads::default())
        );
        let under_way = partitions(&table).filter_map(|(at, p)| Some((at, p.goal.clone()?)));
        let all: BTreeMap<_, _> = under_way.chain(goals).collect();
        let led: BTreeMap<_, _> = all
            .into_iter()
            .map(|(at, goal)| (at, sorted(&goal)))
            .collect();
        let taken = taken(&table, &operators);
        for (at, goal) in &led {
            let stays = || {
                sorted(
                    &table
                        .partition(*at)
                        .expect("it is there")
                        .in_sync()
                        .collect::<Vec<_>>(),
                )
            };
            prop_assert_eq!(
                taken.get(at).cloned().unwrap_or_else(stays),
                goal.clone(),
                "{}",
                at
            );
        }
        prop_assert!(taken.keys().all(|at| led.contains_key(at)));
        let urgency: Vec<Reason> = operators
            .chunk_by(|a, b| a.partition == b.partition)
            .map(|steps| steps.iter().map(|o| o.reason).min().expect("steps"))
            .collect();
        prop_assert!(urgency.is_sorted(), "{:?}", urgency);
    }

    #[test]
    fn a_scheduler_that_is_off_moves_nothing(
        members in prop::collection::vec(sketch(), 1..9),
        newcomers in prop::collection::vec(sketch(), 0..4),
        gone in prop::collection::btree_set(1_u64..9, 0..2),
        on in prop::collection::btree_set(0_usize..6, 0..6),
        power in 0_u32..7,
        backups in 0_u8..3,
    ) {
        let mut table = cluster(1 << power, backups, &members);
        let on: Schedulers = on.into_iter().map(|place| Scheduler::ALL[place]).collect();
        table.settings.schedulers = on;
        let table = planner::admit(
            &table,
            newcomers
                .iter()
                .zip(100..)
                .map(|(s, number)| member(number, s))
                .collect(),
        );
        let gone = gone.into_iter().map(|m| (id(m), Absence::Silent)).collect();
        let table = planner::remove(&table, &gone);
        let reasons = reasons(&table);
        let belong = |reason: &Reason| match reason {
            Reason::Repair => on.has(Scheduler::Repair),
            // If a partition lacks copies, too, it is repaired as a whole.
            Reason::Drain => on.has(Scheduler::Drain) || on.has(Scheduler::Repair),
            // A partition that moves for balance may come to stand better.
            Reason::Rule | Reason::Apart => on.has(Scheduler::Place) || on.has(Scheduler::Copies),
            Reason::Copies => on.has(Scheduler::Copies),
            Reason::Primaries => on.has(Scheduler::Primaries),
            Reason::Hot
            | Reason::Large
            | Reason::Number
            | Reason::Tokens
            | Reason::Small
            | Reason::Surplus => false,
        };
        prop_assert!(reasons.iter().all(belong), "{:?} with {:?}", reasons, on);
        let settled = settle_with(table, check_step);
        prop_assert_eq!(plan(&settled), vec![]);
    }
}

#[test]
fn each_step_tells_its_reason() {
    let table = cluster(64, 1, &[PLAIN; 4]);
    assert_eq!(reasons(&table), BTreeSet::new());
    let dead = planner::remove(&table, &BTreeMap::from([(id(1), Absence::Dead)]));
    assert!(
        operators(&dead)
            .iter()
            .filter(|o| matches!(o.action, OperatorAction::AddLearner(_)))
            .all(|o| o.reason == Reason::Repair)
    );
    let leaving = planner::hand_over(&table, id(1), HandOverUrgency::Repair);
    assert!(
        reasons(&leaving).contains(&Reason::Drain) && !reasons(&leaving).contains(&Reason::Repair)
    );
    let joined = planner::admit(&table, vec![member(9, &PLAIN)]);
    assert_eq!(
        reasons(&joined),
        BTreeSet::from([Reason::Copies, Reason::Primaries])
    );
    let change = |text: &str| KeyspaceChange {
        rules: Some(vec![text.parse().expect("it is a rule")]),
        ..KeyspaceChange::default()
    };
    let altered = alter_keyspace(&table, "default", change("primary not in name=n1"))
        .expect("it may be")
        .expect("it is new");
    assert!(reasons(&altered).contains(&Reason::Rule));
    let fewer = alter_keyspace(
        &table,
        "default",
        KeyspaceChange {
            backups: Some(0),
            ..KeyspaceChange::default()
        },
    );
    assert!(reasons(&fewer.expect("it may be").expect("it is new")).contains(&Reason::Repair));
    // A newcomer's copy counts, and the old one is still there: nothing lacks anything.
    let begun = planner::advance(
        &adopt(&joined, &plan(&joined)),
        &LIMITS,
        &planner::MoveFacts::default(),
    )
    .expect("it learns");
    let (at, partition) = partitions(&begun)
        .find(|(_, p)| p.learners().next().is_some())
        .expect("there is one");
    let admit = planner::InSyncRequest {
        partition: at,
        epoch: partition.epoch,
        change: planner::InSyncChange::Admit(id(9)),
    };
    let (counted, _) = planner::change_in_sync(&begun, &[admit]);
    let steps = planner::operators(&counted, &Vec::new(), &Loads::default())
        .into_iter()
        .filter(|o| o.partition == at);
    let steps: Vec<(bool, Reason)> = steps
        .map(|o| (matches!(o.action, OperatorAction::RemoveCopy(_)), o.reason))
        .collect();
    assert_eq!(steps, [(false, Reason::Primaries), (true, Reason::Surplus)]);
    let zones = cluster(64, 1, &[1, 1].map(|zone| Sketch { zone, ..PLAIN }));
    let third = planner::admit(&zones, vec![member(9, &Sketch { zone: 2, ..PLAIN })]);
    assert!(reasons(&third).contains(&Reason::Apart));
}

#[test]
fn draining_and_repair_are_on_or_off_by_themselves() {
    let table = planner::hand_over(&cluster(64, 2, &[PLAIN; 6]), id(1), HandOverUrgency::Repair);
    let table = planner::remove(&table, &BTreeMap::from([(id(2), Absence::Dead)]));
    let with = |on: &[Scheduler]| {
        let mut table = table.clone();
        table.settings.schedulers = on.iter().copied().collect();
        settle_with(table, check_step)
    };
    let held = |table: &Table, by: u64| loads(table).get(&id(by)).map_or(0, |(copies, _)| *copies);
    let lacking = |table: &Table| {
        partitions(table)
            .filter(|(_, p)| p.in_sync().count() < 3)
            .count()
    };
    assert!(held(&table, 1) > 0 && lacking(&table) > 0);
    let drained = with(&[Scheduler::Drain]);
    assert!(
        held(&drained, 1) == 0 && lacking(&drained) == lacking(&table),
        "nothing else is mended"
    );
    let repaired = with(&[Scheduler::Repair]);
    assert!(
        held(&repaired, 1) > 0 && lacking(&repaired) == 0,
        "who goes keeps what need not be copied"
    );
    let both = with(&[Scheduler::Repair, Scheduler::Drain]);
    assert!(held(&both, 1) == 0 && lacking(&both) == 0);
}

#[test]
fn a_leaver_is_handed_over_faster_than_a_drained_member() {
    let whole = cluster(64, 1, &[PLAIN; 4]);
    let (first, second) = (whole.members[0].clone(), whole.members[1].clone());
    let drained = planner::drain(&whole, &first.name).expect("others have room");
    let leaves = planner::hand_over(&drained, second.id, HandOverUrgency::Repair);
    let dead = planner::remove(&whole, &BTreeMap::from([(second.id, Absence::Dead)]));
    let hurried = |table: &Table| planner::ranges::pressing(table).count();
    assert_eq!(
        (hurried(&whole), planner::leaving(&whole)),
        (0, BTreeSet::new())
    );
    assert_eq!(
        (hurried(&drained), planner::leaving(&drained)),
        (0, BTreeSet::new())
    );
    assert!(
        partitions(&drained).any(|(at, _)| !planner::ranges::may_stay(&drained, at)),
        "the member still goes"
    );
    assert_eq!(planner::leaving(&leaves), BTreeSet::from([second.id]));
    assert!((1..64).contains(&hurried(&leaves)) && (1..64).contains(&hurried(&dead)));
}

#[test]
fn splits_and_merges_are_told_with_their_reasons() {
    let told = |table: &Table, loads: &Loads| -> Vec<String> {
        let all = planner::operators(table, &vec![], loads);
        assert!(all.iter().all(|o| o.after
            == table.partition(o.partition).expect("it is there").replicas
            && o.bytes == Some(0)));
        all.iter()
            .map(|o| format!("{} ({})", o.action, o.reason))
            .collect()
    };
    let nothing = Loads::default();
    let fixed = cluster(2, 1, &[PLAIN; 2]);
    let doubled = KeyspaceChange {
        partitions: Some(4),
        ..KeyspaceChange::default()
    };
    let doubled = alter_keyspace(&fixed, "default", doubled)
        .expect("it may be")
        .expect("it is new");
    assert_eq!(
        told(&doubled, &nothing),
        ["split (number of partitions)"; 2]
    );
    let begun = reshape::begin(
        &doubled,
        KeyspaceId(0),
        reshape::doublings(&doubled.keyspaces[0], 1).remove(0),
    )
    .expect("it may begin");
    assert_eq!(
        told(&begun, &nothing),
        ["split (number of partitions)"; 2],
        "each once, under way or not"
    );

    let (mode, division) = divided(3, 4);
    let ring = cluster_of(
        Keyspace {
            mode,
            division,
            ..keyspace(1, 1, OnLoss::Wait)
        },
        Assignment::RoundRobin,
        &[PLAIN; 3],
    );
    assert_eq!(told(&ring, &nothing), [""; 0]);
    let joined = planner::admit(&ring, vec![member(9, &PLAIN)]);
    let splits = told(&joined, &nothing);
    assert!(
        !splits.is_empty()
            && splits
                .iter()
                .all(|split| split == "split (tokens of members)"),
        "{splits:?}"
    );

    let ranges = Keyspace {
        mode: Mode::Range,
        division: Division::split_at(["m"]).expect("a key"),
        ..keyspace(1, 1, OnLoss::Wait)
    };
    let ranges = cluster_of(ranges, Assignment::RoundRobin, &[PLAIN; 1]);
    let busy = PartitionLoad {
        reads: 20_000,
        skew: Skew::Halves(MapId(0), b"x".to_vec()),
        ..PartitionLoad::default()
    };
    let asked: Loads = partitions(&ranges)
        .skip(1)
        .map(|(at, p)| (at, p.primary(), busy.clone()))
        .collect();
    assert_eq!(told(&ranges, &asked), ["split (balance of load)"]);
    let manual = Table {
        settings: Settings {
            schedulers: Schedulers::MANUAL,
            ..ranges.settings.clone()
        },
        ..ranges.clone()
    };
    assert_eq!(told(&manual, &asked), [""; 0], "no scheduler splits it");
    let merge = Reshape::Merge {
        partitions: [PartitionId(0), PartitionId(1)],
    };
    let merging = reshape::begin(&ranges, KeyspaceId(0), merge).expect("it may begin");
    assert_eq!(
        told(&merging, &nothing),
        ["merge with 1 (small ranges at rest)"]
    );
}

#[test]
fn only_new_copies_cost_bytes() {
    let joined = planner::admit(&cluster(4, 1, &[PLAIN; 2]), vec![member(9, &PLAIN)]);
    let size = |_| PartitionLoad {
        bytes: 1000,
        ..PartitionLoad::default()
    };
    let sizes: Loads = partitions(&joined)
        .map(|(at, p)| (at, p.primary(), size(at)))
        .collect();
    let told = planner::operators(&joined, &plan(&joined), &sizes);
    for operator in &told {
        let copies = matches!(operator.action, OperatorAction::AddLearner(_));
        assert_eq!(operator.bytes, Some(if copies { 1000 } else { 0 }));
        assert!(!operator.to_string().contains('\n'));
    }
    let first = told
        .iter()
        .find(|o| matches!(o.action, OperatorAction::AddLearner(_)))
        .expect("something is copied");
    assert_eq!(
        first.to_string(),
        format!(
            "{}: add learner {} (balance of copies), 1000 bytes",
            first.partition,
            id(9)
        )
    );
    assert!(
        operators(&joined)
            .iter()
            .all(|o| o.bytes.is_none() == matches!(o.action, OperatorAction::AddLearner(_)))
    );
}

#[test]
fn a_move_that_an_operator_wants_stays_wanted_while_balancing_is_paused() {
    let mut table = planner::admit(&cluster(64, 1, &[PLAIN; 2]), vec![member(9, &PLAIN)]);
    table.settings.schedulers = Schedulers::MANUAL;
    assert_eq!(plan(&table), vec![], "nothing moves for balance by itself");
    let wanted = plan_for(&table, Schedulers::ALL, &Loads::default());
    assert!(!wanted.is_empty());
    let applied = adopt(&table, &wanted);
    assert_eq!(plan(&applied), vec![]);
    let settled = settle_with(applied, check_step);
    assert!(loads(&settled)[&id(9)].0 >= 42, "it has its share");
    let dead = planner::remove(&settled, &BTreeMap::from([(id(1), Absence::Dead)]));
    assert_eq!(
        planner::health(&settle_with(dead, check_step)),
        planner::Health::default(),
        "repair goes on"
    );
}

#[test]
fn a_plan_is_applied_to_the_table_that_it_was_made_for_alone() {
    let joined = planner::admit(&cluster(8, 1, &[PLAIN; 2]), vec![member(9, &PLAIN)]);
    let (name, goals) = (joined.name(), plan(&joined));
    let applied = planner::apply(&joined, name, &goals).expect("it was made for it");
    assert_eq!(applied, adopt(&joined, &goals));
    let other = planner::admit(&joined, vec![member(10, &PLAIN)]);
    let refused = planner::apply(&other, name, &goals).expect_err("it was made for another");
    assert_eq!(
        refused,
        NotApplied::OtherTable {
            made_for: name,
            in_force: other.name()
        }
    );
    let at = goals[0].0;
    let wrong = |goals: Vec<(PartitionRef, Vec<MemberId>)>, expected: &str| {
        let why = planner::apply(&joined, name, &goals)
            .expect_err("it cannot be")
            .to_string();
        assert!(why.contains(expected) && !why.contains('\n'), "{why}");
    };
    wrong(
        vec![(
            PartitionRef {
                partition: PartitionId(8),
                ..at
            },
            vec![id(1), id(2)],
        )],
        "is not there",
    );
    wrong(
        vec![(at, vec![id(1), id(2)]), (at, vec![id(1), id(9)])],
        "named twice",
    );
    wrong(
        vec![(at, vec![id(1), id(77)])],
        "no member that may hold data",
    );
    wrong(vec![(at, vec![id(1), id(1)])], "two copies on one member");
    wrong(vec![(at, vec![id(1)])], "another number of copies");
    wrong(
        vec![(at, vec![id(1), id(2), id(9)])],
        "another number of copies",
    );
}
