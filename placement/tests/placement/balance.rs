//! The promises of a plan: the fewest moves, to a table that is balanced and spread, and then no
//! more moves.

use crate::common::*;
use doyen_placement::planner::{self, HandOverUrgency, adopt, health};
use doyen_placement::{
    Assignment, Division, Keyspace, Loads, MemberId, MemberState, Mode, OnLoss, Partition,
    PartitionRef, Table,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn copies_that_move(table: &Table) -> u64 {
    let goals: BTreeMap<_, _> = plan(table).into_iter().collect();
    let arrivals = |p: &Partition, goal: &[MemberId]| {
        goal.iter()
            .filter(|m| p.replicas.iter().all(|r| r.member != **m))
            .count()
    };
    partitions(table)
        .filter_map(|(at, p)| Some(arrivals(p, goals.get(&at)?) as u64))
        .sum()
}

/// What balance requires: every member short of its share gets what it lacks. With equal weights a
/// share is rounded down for as many members as possible, beginning with those that have least.
fn copies_that_must_move(table: &Table, copies: u64) -> u64 {
    let total = partitions(table).count() as u64 * copies;
    let present: Vec<u64> = loads(table).values().map(|(copies, _)| *copies).collect();
    let members = present.len() as u64;
    let (floor, spare) = (total / members, total % members);
    let mut present = present;
    present.sort_unstable_by(|a, b| b.cmp(a));
    (0..)
        .zip(present)
        .map(|(rank, have)| (floor + u64::from(rank < spare)).saturating_sub(have))
        .sum()
}

/// The share of a total of each of these weights, if no share may be more than `most`. The others
/// share the rest.
fn shares(weights: &[u32], total: f64, most: f64) -> Vec<f64> {
    let mut full = vec![false; weights.len()];
    loop {
        let left = total - most * full.iter().filter(|f| **f).count() as f64;
        let open: f64 = weights
            .iter()
            .zip(&full)
            .filter(|(_, full)| !**full)
            .map(|(w, _)| f64::from(*w))
            .sum();
        let share = |(w, full): (&u32, &bool)| {
            if *full {
                most
            } else {
                left * f64::from(*w) / open
            }
        };
        let shares: Vec<f64> = weights.iter().zip(&full).map(share).collect();
        let Some(over) = (0..shares.len()).find(|i| !full[*i] && shares[*i] > most) else {
            return shares;
        };
        full[over] = true;
    }
}

fn assert_balanced(table: &Table, weights: &[u32], copies: u64) {
    let count = partitions(table).count() as f64;
    // A member has one copy of a partition at most.
    let (held_shares, led_shares) = (
        shares(weights, count * copies as f64, count),
        shares(weights, count, count),
    );
    for ((member, (held, led)), (held_share, led_share)) in loads(table)
        .into_iter()
        .zip(held_shares.into_iter().zip(led_shares))
    {
        assert!(
            (held as f64 - held_share).abs() < 1.0,
            "{member} holds {held} of {held_share}"
        );
        assert!(
            (led as f64 - led_share).abs() < 1.0,
            "{member} leads {led} of {led_share}"
        );
    }
}

#[test]
fn a_member_too_heavy_for_its_share_leaves_the_rest_to_the_others() {
    for assignment in [Assignment::RoundRobin, Assignment::Rendezvous] {
        let weights = [50, 165, 50, 50];
        let members = weights.map(|weight| Sketch { weight, ..PLAIN });
        assert_balanced(
            &cluster_of(keyspace(256, 1, OnLoss::Wait), assignment, &members),
            &weights,
            2,
        );
    }
}

#[test]
fn the_surplus_of_each_member_is_told_and_is_nothing_after_the_plan() {
    let of = |table: &Table| {
        planner::surplus(table, &Loads::default())
            .into_values()
            .next()
    };
    let none = Some(planner::Surplus::default());
    let table = cluster(64, 1, &vec![PLAIN; 3]);
    assert_eq!(of(&table), none);
    let joined = planner::admit(&table, vec![member(100, &PLAIN)]);
    // There are 128 copies for three members, and 32 for each of four. A member that holds nothing
    // could lead nothing yet.
    assert_eq!(
        of(&joined),
        Some(planner::Surplus {
            copies: 11,
            leads: 0
        })
    );
    assert_eq!(of(&settle_with(joined, check_step)), none);
    let mut led_by_one = cluster(64, 1, &vec![PLAIN; 2]);
    for partition in led_by_one
        .keyspaces
        .iter_mut()
        .flat_map(|k| &mut k.partitions)
        .filter(|p| p.primary() != id(1))
    {
        std::sync::Arc::make_mut(partition).replicas.swap(0, 1);
    }
    assert_eq!(
        of(&led_by_one),
        Some(planner::Surplus {
            copies: 0,
            leads: 32
        })
    );
    // The one in the other zone has a copy of everything, as it should.
    let zones = [1, 1, 2].map(|zone| Sketch { zone, ..PLAIN });
    assert_eq!(of(&cluster(64, 1, &zones)), none);
    // By weight.
    assert_eq!(
        of(&cluster(
            64,
            1,
            &[50, 150, 100].map(|weight| Sketch { weight, ..PLAIN })
        )),
        none
    );
}

#[test]
fn without_shares_no_member_has_too_much() {
    let ring = Keyspace {
        mode: Mode::Ring {
            tokens: 4,
            random: false,
        },
        division: Division::no_arcs(),
        ..keyspace(8, 1, OnLoss::Wait)
    };
    let rule = "primary in zone=z1".parse().expect("a rule");
    let ruled = Keyspace {
        rules: vec![rule],
        ..keyspace(8, 1, OnLoss::Wait)
    };
    for keyspace in [ring, ruled] {
        let table = cluster_of(
            keyspace,
            Assignment::RoundRobin,
            &[1, 2].map(|zone| Sketch { zone, ..PLAIN }),
        );
        assert!(planner::surplus(&table, &Loads::default()).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_join_moves_what_balance_requires_and_no_more(
        members in 1_usize..12,
        power in 0_u32..9,
        backups in 0_u8..3,
    ) {
        let table = cluster(1 << power, backups, &vec![PLAIN; members]);
        prop_assert_eq!(plan(&table), vec![]);
        let joined = planner::admit(&table, vec![member(100, &PLAIN)]);
        let copies = (members as u64 + 1).min(u64::from(backups) + 1);
        prop_assert_eq!(
            copies_that_move(&joined),
            copies_that_must_move(&joined, copies)
        );
        let settled = settle_with(joined, check_step);
        assert_balanced(&settled, &vec![100; members + 1], copies);
        prop_assert!(health(&settled) == planner::Health::default());
    }

    #[test]
    fn a_death_is_repaired_with_as_many_copies_as_it_took(
        members in 3_usize..12,
        power in 4_u32..9,
        victim in 0_u64..12,
    ) {
        let victim = id(victim % members as u64 + 1);
        let table = cluster(1 << power, 1, &vec![PLAIN; members]);
        let took = loads(&table)[&victim].0;
        let left = planner::remove(&table, &BTreeMap::from([(victim, planner::Absence::Dead)]));
        prop_assert_eq!(copies_that_move(&left), took);
        let settled = settle_with(left, check_step);
        assert_balanced(&settled, &vec![100; members - 1], 2);
    }

    #[test]
    fn weights_are_followed(
        weights in prop::collection::vec(50_u32..200, 4..9),
        assignment in prop_oneof![Just(Assignment::RoundRobin), Just(Assignment::Rendezvous)],
    ) {
        let members: Vec<Sketch> = weights
            .iter()
            .map(|&weight| Sketch { weight, ..PLAIN })
            .collect();
        let table = cluster_of(keyspace(256, 1, OnLoss::Wait), assignment, &members);
        prop_assert_eq!(plan(&table), vec![]);
        assert_balanced(&table, &weights, 2);
    }

    #[test]
    fn copies_stand_apart_and_plans_come_to_an_end(
        members in prop::collection::vec(sketch(), 1..9),
        newcomers in prop::collection::vec(sketch(), 0..5),
        gone in prop::collection::btree_set(1_u64..9, 0..3),
        power in 0_u32..8,
        backups in 0_u8..4,
        assignment in prop_oneof![Just(Assignment::RoundRobin), Just(Assignment::Rendezvous)],
    ) {
        let table = cluster_of(
            keyspace(1 << power, backups, OnLoss::Wait),
            assignment,
            &members,
        );
        prop_assert!(table.validate().is_ok());
        prop_assert_eq!(plan(&table), vec![]);
        check_spread(&table);
        let joined = planner::admit(
            &table,
            newcomers
                .iter()
                .zip(100..)
                .map(|(s, number)| member(number, s))
                .collect(),
        );
        let settled = settle_with(joined, check_step);
        check_spread(&settled);
        let gone = gone
            .into_iter()
            .map(|m| (id(m), planner::Absence::Silent))
            .collect();
        let settled = settle_with(planner::remove(&settled, &gone), check_step);
        let silent: BTreeSet<MemberId> = settled
            .members
            .iter()
            .filter(|m| m.state == MemberState::Silent)
            .map(|m| m.id)
            .collect();
        if silent.is_empty() {
            check_spread(&settled);
            prop_assert!(
                partitions(&settled).next().is_none()
                    || health(&settled) == planner::Health::default()
            );
        }
    }

    #[test]
    fn the_same_table_has_the_same_plan(
        members in prop::collection::vec(sketch(), 2..9),
        power in 0_u32..8,
    ) {
        let table = planner::admit(
            &cluster(1 << power, 2, &members),
            vec![member(100, &PLAIN), member(101, &PLAIN)],
        );
        let copy: Table = table.clone();
        prop_assert_eq!(plan(&table), plan(&copy));
    }
}

#[test]
fn each_zone_has_one_copy_of_everything_where_there_are_two_zones() {
    let zones = [1, 1, 1, 2];
    let table = cluster(128, 1, &zones.map(|zone| Sketch { zone, ..PLAIN }));
    check_spread(&table);
    let held: Vec<u64> = loads(&table).values().map(|(copies, _)| *copies).collect();
    assert_eq!(held[3], 128);
    assert!(
        held[..3].iter().all(|held| (42..=43).contains(held)),
        "{held:?}"
    );
}

#[test]
fn witnesses_and_leavers_receive_nothing() {
    let table = cluster(
        64,
        1,
        &[
            PLAIN,
            Sketch {
                witness: true,
                ..PLAIN
            },
            PLAIN,
            PLAIN,
        ],
    );
    assert_eq!(loads(&table)[&id(2)], (0, 0));
    let settled = settle_with(
        planner::hand_over(&table, id(1), HandOverUrgency::Repair),
        check_step,
    );
    assert_eq!(loads(&settled)[&id(1)], (0, 0));
    let settled = planner::hand_over(&settled, id(1), HandOverUrgency::Repair);
    assert_eq!(
        settled.member(id(1)).map(|m| m.state),
        Some(MemberState::Leaving)
    );
    assert_eq!(health(&settled), planner::Health::default());
}

#[test]
fn the_last_holder_drains_before_it_leaves() {
    let table = planner::admit(&cluster(64, 1, &[PLAIN]), vec![member(2, &PLAIN)]);
    let asked = planner::hand_over(&table, id(1), HandOverUrgency::Repair);
    check_step(&table, &asked);
    assert_eq!(
        asked.member(id(1)).map(|m| m.state),
        Some(MemberState::Draining)
    );
    let drained = settle_with(asked, check_step);
    assert!(!planner::holds_anything(&drained, id(1)));
    let left = planner::hand_over(&drained, id(1), HandOverUrgency::Repair);
    assert_eq!(
        left.member(id(1)).map(|m| m.state),
        Some(MemberState::Leaving)
    );
    let gone = planner::remove(&left, &BTreeMap::from([(id(1), planner::Absence::Left)]));
    check_step(&left, &gone);
    assert_eq!(gone.voters, [id(2)]);
}

#[test]
fn the_partitions_of_a_removed_primary_fall_to_many_members() {
    let table = cluster(1024, 1, &[const { PLAIN }; 8]);
    let heirs: BTreeSet<MemberId> = partitions(&table)
        .filter(|(_, p)| p.primary() == id(1))
        .filter_map(|(_, p)| p.in_sync().nth(1))
        .collect();
    assert_eq!(heirs.len(), 7);
}

#[test]
fn partitions_wait_for_enough_members() {
    let mut table = cluster(64, 1, &[PLAIN]);
    table.settings.members_min = 3;
    table.keyspaces[0].partitions.clear();
    assert_eq!(planner::assign(&table), table);
    let joined = planner::admit(&table, vec![member(2, &PLAIN), member(3, &PLAIN)]);
    let assigned = planner::assign(&joined);
    assert_eq!(assigned.keyspaces[0].partitions.len(), 64);
    assert_balanced(&assigned, &[100; 3], 2);
}

#[test]
fn goals_under_way_are_respected_and_others_thought_over() {
    let joined = planner::admit(&cluster(64, 1, &[PLAIN, PLAIN]), vec![member(3, &PLAIN)]);
    let planned = adopt(&joined, &plan(&joined));
    assert_eq!(plan(&planned), vec![], "nothing has changed");
    let few = planner::MoveLimits {
        learners_per_source: 4,
        learners_per_target: 8,
        learners: 8,
    };
    let moving =
        planner::advance(&planned, &few, &planner::MoveFacts::default()).expect("moves begin");
    let begun: BTreeSet<_> = partitions(&moving)
        .filter(|(_, p)| p.learners().next().is_some())
        .map(|(at, _)| at)
        .collect();
    assert!(!begun.is_empty());
    let again = planner::admit(&moving, vec![member(4, &PLAIN)]);
    let changed = plan(&again);
    assert!(changed.iter().all(|(at, _)| !begun.contains(at)));
    // The fourth member gets what was planned for the third, rather than what the third has
    // received.
    let had_goal = |at: &PartitionRef| again.partition(*at).is_some_and(|p| p.goal.is_some());
    assert!(
        changed
            .iter()
            .any(|(at, goal)| had_goal(at) && goal.contains(&id(4)))
    );
    assert_balanced(&settle(again), &[100; 4], 2);
}

/// In a cluster that grew one by one, every member that dies leaves copies to make to all others.
#[test]
fn in_a_cluster_that_grew_each_member_shares_partitions_with_every_other() {
    let mut table = cluster(256, 1, &[PLAIN]);
    for number in 2..=5 {
        table = settle_with(
            planner::admit(&table, vec![member(number, &PLAIN)]),
            check_step,
        );
    }
    let mut pairs: BTreeMap<Vec<MemberId>, usize> = BTreeMap::new();
    for (_, partition) in partitions(&table) {
        let mut held: Vec<MemberId> = partition.in_sync().collect();
        held.sort_unstable();
        *pairs.entry(held).or_default() += 1;
    }
    // 256 partitions, and ten pairs of five.
    assert!(
        pairs.len() == 10 && pairs.values().all(|count| (22..=29).contains(count)),
        "{pairs:?}"
    );
}
