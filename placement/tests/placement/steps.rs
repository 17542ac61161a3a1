//! Random lives of a table. After any events in any order, every table is valid, epochs only rise,
//! no member becomes in sync without learning, and the last in-sync copy stays unless the partition
//! begins empty.

use crate::common::*;
use doyen_placement::division::Cut;
use doyen_placement::planner::{
    self, Absence, DEFAULT_KEYSPACE, HandOverUrgency, InSyncChange, InSyncRequest, KeyspaceChange,
    NewKeyspace, WritesStopped, adopt, advance, change_in_sync, reshape,
};
use doyen_placement::{
    Assignment, Division, Keyspace, KeyspaceId, MapId, MemberId, MemberState, OnLoss, PartitionId,
    PartitionRef, Reshape, Scheduler, Schedulers, Table, Token,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The next event. Numbers choose among the present members, keyspaces and partitions.
#[derive(Debug, Clone)]
enum Act {
    Admit(Sketch),
    Remove(Vec<(usize, u8)>),
    Revive(usize),
    HandOver(usize, bool),
    Reset(usize),
    GiveUp(u32),
    Elect,
    Plan,
    Advance,
    Pause(usize),
    Learn,
    Ask(usize, usize, u8, bool),
    Create(u8, u32, u8),
    Alter(u8, u8),
    Rule(u8, Option<usize>),
    Schedule(Vec<usize>),
    Drop(u8),
    Split(usize, u64),
    Merge(usize),
    Double(u8),
    Finish(Option<usize>),
    Cancel,
    Hold(usize),
}

/// Rules that are set one after the other, or one of them alone. They cannot all be met at once.
const RULES: [&str; 5] = [
    "primary in zone=z1",
    "copies not in zone=z2",
    "copies 1 per zone",
    "copies 1 per host",
    "primary not in name=n2",
];

fn act() -> impl Strategy<Value = Act> {
    let number = || 0_usize..1000;
    prop_oneof![
        2 => sketch().prop_map(Act::Admit),
        2 => prop::collection::vec((number(), 0_u8..3), 1..4).prop_map(Act::Remove),
        1 => number().prop_map(Act::Revive),
        1 => (number(), any::<bool>()).prop_map(|(m, hasty)| Act::HandOver(m, hasty)),
        1 => number().prop_map(Act::Reset),
        1 => (0_u32..3).prop_map(Act::GiveUp),
        1 => Just(Act::Elect),
        3 => Just(Act::Plan),
        4 => Just(Act::Advance),
        1 => number().prop_map(Act::Pause),
        3 => Just(Act::Learn),
        1 => (0_u8..3, 0_u32..4, 0_u8..3)
            .prop_map(|(name, power, backups)| Act::Create(name, power, backups)),
        1 => (0_u8..4, 0_u8..4).prop_map(|(name, backups)| Act::Alter(name, backups)),
        1 => (0_u8..4, prop::option::of(0..RULES.len()))
            .prop_map(|(name, rule)| Act::Rule(name, rule)),
        1 => prop::collection::vec(0_usize..4, 0..5).prop_map(Act::Schedule),
        1 => (0_u8..4).prop_map(Act::Drop),
        2 => (number(), any::<u64>()).prop_map(|(p, place)| Act::Split(p, place)),
        1 => number().prop_map(Act::Merge),
        1 => (0_u8..4).prop_map(Act::Double),
        3 => prop::option::of(number()).prop_map(Act::Finish),
        1 => Just(Act::Cancel),
        2 => number().prop_map(Act::Hold),
        4 => (number(), number(), 0_u8..5, any::<bool>())
            .prop_map(|(p, m, what, stale)| Act::Ask(p, m, what, stale)),
    ]
}

/// The report of a primary whose copies are all equal.
fn still(table: &Table, at: PartitionRef) -> Option<WritesStopped> {
    Some(WritesStopped {
        epoch: table.partition(at)?.epoch,
        ahead_ms: i64::from(at.partition.0) * 100,
    })
}

fn pick(table: &Table, number: usize) -> MemberId {
    table.members[number % table.members.len()].id
}

/// Keyspaces that come and go, and the default one.
fn named(number: u8) -> String {
    if number == 3 {
        DEFAULT_KEYSPACE.into()
    } else {
        format!("k{number}")
    }
}

fn perform(table: &Table, act: &Act, next_id: &mut u64) -> Table {
    let all: Vec<_> = partitions(table).map(|(at, p)| (at, p.clone())).collect();
    match act {
        Act::Admit(sketch) => {
            *next_id += 1;
            planner::admit(table, vec![member(*next_id, sketch)])
        }
        Act::Remove(gone) => {
            let how = |how: u8| [Absence::Silent, Absence::Dead, Absence::Left][usize::from(how)];
            planner::remove(
                table,
                &gone
                    .iter()
                    .map(|(m, h)| (pick(table, *m), how(*h)))
                    .collect(),
            )
        }
        Act::Revive(m) => planner::revive(table, &BTreeSet::from([pick(table, *m)])),
        Act::HandOver(m, hasty) => planner::hand_over(
            table,
            pick(table, *m),
            if *hasty {
                HandOverUrgency::AtOnce
            } else {
                HandOverUrgency::Repair
            },
        ),
        Act::Reset(m) => planner::reset(table, pick(table, *m)),
        Act::GiveUp(n) => planner::begin_anew(table, |_, p| p.id.0 % 3 == n % 3),
        Act::Elect => Table {
            voters: planner::choose_voters(table),
            ..table.clone()
        },
        Act::Plan => adopt(table, &plan(table)),
        Act::Advance => {
            advance(table, &LIMITS, &planner::MoveFacts::default()).unwrap_or_else(|| table.clone())
        }
        Act::Pause(n) => {
            let paused: BTreeSet<_> = all.iter().map(|(at, _)| (*at, pick(table, *n))).collect();
            advance(
                table,
                &LIMITS,
                &planner::MoveFacts {
                    paused,
                    ..planner::MoveFacts::default()
                },
            )
            .unwrap_or_else(|| table.clone())
        }
        Act::Learn => learned(table),
        Act::Create(name, power, backups) => {
            let Keyspace {
                min_in_sync,
                on_loss,
                default_ttl_ms,
                eviction,
                ordered,
                rules,
                ..
            } = keyspace(1, *backups, OnLoss::Wait);
            let (mode, division) = divided(*power, 1 << power);
            let wanted = NewKeyspace {
                name: named(*name),
                mode,
                division,
                backups: *backups,
                min_in_sync,
                on_loss,
                default_ttl_ms,
                eviction,
                ordered,
                rules,
                durability: None,
            };
            planner::create_keyspace(table, wanted)
                .ok()
                .flatten()
                .unwrap_or_else(|| table.clone())
        }
        Act::Alter(name, backups) => {
            let change = KeyspaceChange {
                backups: Some(*backups),
                ..KeyspaceChange::default()
            };
            planner::alter_keyspace(table, &named(*name), change)
                .ok()
                .flatten()
                .unwrap_or_else(|| table.clone())
        }
        Act::Rule(name, rule) => {
            let rules = rule.map(|rule| {
                RULES[..=rule]
                    .iter()
                    .map(|text| text.parse().expect("it is a rule"))
                    .collect()
            });
            let change = KeyspaceChange {
                rules: Some(rules.unwrap_or_default()),
                ..KeyspaceChange::default()
            };
            planner::alter_keyspace(table, &named(*name), change)
                .ok()
                .flatten()
                .unwrap_or_else(|| table.clone())
        }
        Act::Schedule(on) => {
            let mut next = table.clone();
            next.settings.schedulers = on.iter().map(|place| Scheduler::ALL[*place]).collect();
            next
        }
        Act::Drop(name) => {
            planner::drop_keyspace(table, &named(*name)).unwrap_or_else(|_| table.clone())
        }
        Act::Split(p, place) => {
            let Some((at, partition)) = all.get(p % all.len().max(1)) else {
                return table.clone();
            };
            let Some(keyspace) = table.keyspace(at.keyspace) else {
                return table.clone();
            };
            let cut = match keyspace.division {
                Division::Slots | Division::Runs(_) => Cut::Half,
                Division::Arcs(_) => Cut::Token {
                    token: Token::at(*place),
                    by: partition.primary(),
                },
                Division::Ranges(_) => Cut::Key {
                    map: MapId(0),
                    key: format!("key{:04}", place % 100).as_bytes().into(),
                },
            };
            // The place decides which partition it is.
            let partition = match &cut {
                Cut::Half => at.partition,
                Cut::Token { token, .. } => match &keyspace.division {
                    Division::Arcs(arcs) => arcs
                        .partitions()
                        .nth(arcs.ring().arc_of(*token).unwrap_or(0))
                        .unwrap_or(at.partition),
                    _ => at.partition,
                },
                Cut::Key { map, key } => keyspace.partition_of(*map, key).unwrap_or(at.partition),
            };
            reshape::begin(table, at.keyspace, Reshape::Split { partition, cut })
                .unwrap_or_else(|_| table.clone())
        }
        Act::Merge(p) => {
            let Some((at, _)) = all.get(p % all.len().max(1)) else {
                return table.clone();
            };
            let stand = table
                .keyspace(at.keyspace)
                .map(|k| k.division.partitions())
                .unwrap_or_default();
            let place = stand.iter().position(|id| *id == at.partition).unwrap_or(0);
            let Some(next) = stand.get((place + 1) % stand.len().max(1)) else {
                return table.clone();
            };
            let merge = Reshape::Merge {
                partitions: [at.partition, *next],
            };
            reshape::begin(table, at.keyspace, merge).unwrap_or_else(|_| table.clone())
        }
        Act::Double(name) => {
            let Some(keyspace) = table.keyspace_named(&named(*name)) else {
                return table.clone();
            };
            let partitions = u16::try_from(2 * keyspace.count().next_power_of_two())
                .unwrap_or(64)
                .min(64);
            let change = KeyspaceChange {
                partitions: Some(partitions),
                ..KeyspaceChange::default()
            };
            let mut next = planner::alter_keyspace(table, &named(*name), change)
                .ok()
                .flatten()
                .unwrap_or_else(|| table.clone());
            for halved in next
                .keyspaces
                .iter()
                .flat_map(|k| reshape::doublings(k, 4).into_iter().map(|r| (k.id, r)))
                .collect::<Vec<_>>()
            {
                next = reshape::begin(&next, halved.0, halved.1).unwrap_or(next);
            }
            next
        }
        Act::Finish(but) => {
            let but = but
                .and_then(|p| all.get(p % all.len().max(1)))
                .map(|(at, _)| *at);
            reshape::finish(table, |at| still(table, at).filter(|_| but != Some(at)))
                .unwrap_or_else(|| table.clone())
        }
        Act::Cancel => reshape::cancel(table, |_, _| true),
        Act::Hold(p) => planner::cancel(table, all.get(p % all.len().max(1)).map(|(at, _)| *at))
            .unwrap_or_else(|_| table.clone()),
        Act::Ask(p, m, what, stale) => {
            let Some((at, partition)) = all.get(p % all.len().max(1)) else {
                return table.clone();
            };
            let member = pick(table, *m);
            let change = match what {
                0 => InSyncChange::Remove(member),
                1 => InSyncChange::Admit(member),
                2 => InSyncChange::Abandon(member),
                3 => InSyncChange::NoRoom(member),
                _ => InSyncChange::Withdraw(member),
            };
            let epoch = if *stale {
                partition.epoch.next()
            } else {
                partition.epoch
            };
            let (next, done) = change_in_sync(
                table,
                &[InSyncRequest {
                    partition: *at,
                    epoch,
                    change,
                }],
            );
            assert!(done[0] || next == *table);
            assert!(!(done[0] && *stale), "a request of another epoch is void");
            next
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn tables_stay_sound_after_any_events(
        founders in prop::collection::vec(sketch(), 1..7),
        power in 0_u32..6,
        backups in 0_u8..3,
        reset in any::<bool>(),
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let on_loss = if reset {
            OnLoss::Reset { after_ms: 60_000 }
        } else {
            OnLoss::Wait
        };
        let mut table = cluster_of(
            keyspace(1 << power, backups, on_loss),
            Assignment::Rendezvous,
            &founders,
        );
        prop_assert!(table.validate().is_ok());
        let mut next_id = 100;
        for act in acts {
            let next = perform(&table, &act, &mut next_id);
            check_step(&table, &next);
            let before: BTreeMap<_, _> =
                partitions(&table).map(|(at, p)| (at, p.lineage)).collect();
            let began_anew = partitions(&next)
                .any(|(at, p)| before.get(&at).is_some_and(|lineage| *lineage != p.lineage));
            let may = match &act {
                Act::Remove(gone) => reset && gone.iter().any(|(_, how)| *how == 1),
                Act::Reset(_) | Act::GiveUp(_) => true,
                _ => false,
            };
            prop_assert!(
                may || !began_anew,
                "only the dead, given up or reset, lose partitions"
            );
            table = next;
        }
        // After any past, planning ends in a table that is safe as far as members answer.
        table.settings.schedulers = Schedulers::ALL;
        let table = reshape::cancel(&planner::assign(&table), |_, _| true);
        let settled = settle_with(table, check_step);
        prop_assert_eq!(plan(&settled), vec![]);
        check_members_of_answering_partitions(&settled);
    }
}

fn check_members_of_answering_partitions(table: &Table) {
    let state = |m: MemberId| table.member(m).map(|m| m.state);
    let receivers = table
        .members
        .iter()
        .filter(|m| m.state == MemberState::Live && m.role == doyen_placement::Role::Data)
        .count();
    for keyspace in &table.keyspaces {
        let wanted = receivers.min(1 + usize::from(keyspace.backups));
        for partition in keyspace
            .partitions
            .iter()
            .filter(|p| state(p.primary()) != Some(MemberState::Silent))
        {
            if wanted > 0 {
                assert_eq!(partition.in_sync().count(), wanted, "{partition:?}");
                assert!(
                    partition
                        .in_sync()
                        .all(|m| state(m) == Some(MemberState::Live))
                );
            }
        }
    }
}

fn primaries(table: &Table) -> BTreeMap<PartitionRef, MemberId> {
    partitions(table).map(|(at, p)| (at, p.primary())).collect()
}

#[test]
fn a_dead_primary_is_followed_by_its_copy_in_another_epoch() {
    let table = cluster(64, 1, &[PLAIN, PLAIN, PLAIN]);
    let dead = id(1);
    let next = planner::remove(&table, &BTreeMap::from([(dead, Absence::Silent)]));
    check_step(&table, &next);
    assert!(next.member(dead).is_none());
    assert_eq!(next.voters, [id(2), id(3)]);
    for ((_, before), (_, after)) in partitions(&table).zip(partitions(&next)) {
        let held = before.replicas.iter().any(|r| r.member == dead);
        assert_eq!(
            after.epoch,
            if held {
                before.epoch.next()
            } else {
                before.epoch
            }
        );
        assert_eq!(
            after.since,
            if before.primary() == dead {
                after.epoch
            } else {
                before.since
            }
        );
        if before.primary() == dead {
            assert_eq!(Some(after.primary()), before.in_sync().nth(1));
        }
    }
}

#[test]
fn the_last_holder_stays_when_it_falls_silent_and_leads_again_when_it_returns() {
    let table = cluster(64, 0, &[PLAIN, PLAIN]);
    let silent = id(1);
    let without = planner::remove(&table, &BTreeMap::from([(silent, Absence::Silent)]));
    check_step(&table, &without);
    assert_eq!(
        without.member(silent).map(|m| m.state),
        Some(MemberState::Silent)
    );
    assert_eq!(without.voters, [id(2)]);
    assert_eq!(primaries(&without), primaries(&table));
    assert_eq!(
        planner::health(&without)
            .unavailable
            .values()
            .sum::<usize>(),
        32
    );
    assert_eq!(
        plan(&without).len(),
        0,
        "no member can copy the data of a silent member"
    );
    let back = planner::revive(&without, &BTreeSet::from([silent]));
    check_step(&without, &back);
    assert_eq!(
        back.member(silent).map(|m| m.state),
        Some(MemberState::Live)
    );
    assert_eq!(planner::health(&back), planner::Health::default());
}

#[test]
fn of_two_silent_holders_the_first_to_return_leads() {
    let table = cluster(64, 1, &[PLAIN, PLAIN]);
    let witness = planner::admit(
        &table,
        vec![member(
            3,
            &Sketch {
                witness: true,
                ..PLAIN
            },
        )],
    );
    let both = BTreeMap::from([(id(1), Absence::Silent), (id(2), Absence::Silent)]);
    let without = planner::remove(&witness, &both);
    check_step(&witness, &without);
    assert_eq!(without.voters, [id(3)]);
    let back = planner::revive(&without, &BTreeSet::from([id(2)]));
    check_step(&without, &back);
    assert!(primaries(&back).values().all(|primary| *primary == id(2)));
    assert!(back.member(id(1)).is_none(), "what it holds is elsewhere");
}

#[test]
fn partitions_that_only_dead_members_held_begin_anew_if_the_keyspace_says_so() {
    for (on_loss, kept) in [(OnLoss::Wait, true), (OnLoss::Reset { after_ms: 0 }, false)] {
        let table = cluster_of(
            keyspace(64, 0, on_loss),
            Assignment::RoundRobin,
            &[PLAIN, PLAIN],
        );
        let next = planner::remove(&table, &BTreeMap::from([(id(1), Absence::Dead)]));
        check_step(&table, &next);
        assert_eq!(next.member(id(1)).is_some(), kept);
        let begun = partitions(&next).filter(|(_, p)| p.lineage.0 == 2).count();
        assert_eq!(begun, if kept { 0 } else { 32 });
        let given_up = planner::reset(&next, id(1));
        check_step(&next, &given_up);
        assert!(given_up.member(id(1)).is_none());
    }
}

#[test]
fn partitions_of_silent_members_begin_anew_only_if_given_up() {
    let wait = OnLoss::Wait;
    let table = cluster_of(
        keyspace(64, 0, wait),
        Assignment::RoundRobin,
        &[PLAIN, PLAIN],
    );
    assert_eq!(
        planner::begin_anew(&table, |_, _| true),
        table,
        "all answer"
    );
    let silent = planner::remove(&table, &BTreeMap::from([(id(1), Absence::Silent)]));
    assert_eq!(planner::begin_anew(&silent, |_, _| false), silent);
    let mut silent = silent;
    // With two members nothing moves, but the setting is kept.
    silent.settings.balancing.held = vec![PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(40),
    }];
    let half = planner::begin_anew(&silent, |_, p| p.id.0 < 32);
    check_step(&silent, &half);
    let begun = |table: &Table| partitions(table).filter(|(_, p)| p.lineage.0 == 2).count();
    assert_eq!((begun(&half), planner::lost(&half).count()), (16, 16));
    assert!(half.member(id(1)).is_some(), "it still holds the others");
    assert_eq!(
        half.settings.balancing.held.len(),
        1,
        "members are as they were"
    );
    let back = planner::revive(&half, &BTreeSet::from([id(1)]));
    check_step(&half, &back);
    let all = planner::begin_anew(&half, |_, _| true);
    check_step(&half, &all);
    assert_eq!((begun(&all), all.member(id(1)).is_none()), (32, true));
}

#[test]
fn a_removal_that_leaves_no_voter_is_not_made() {
    let table = cluster(64, 1, &[PLAIN]);
    assert_eq!(
        planner::remove(&table, &BTreeMap::from([(id(1), Absence::Dead)])),
        table
    );
}

#[test]
fn a_leaver_hands_over_leads_and_keeps_copies_until_others_exist() {
    let table = cluster(64, 1, &[PLAIN, PLAIN, PLAIN]);
    let next = planner::hand_over(&table, id(2), HandOverUrgency::Repair);
    check_step(&table, &next);
    assert!(
        partitions(&next).all(|(_, p)| p.primary() != id(2) && p.in_sync().count() == 2),
        "one table leads everything elsewhere"
    );
    assert_eq!(
        next.member(id(2)).map(|m| m.state),
        Some(MemberState::Draining)
    );
    assert_eq!(
        planner::hand_over(&next, id(2), HandOverUrgency::Repair),
        next,
        "asking again changes nothing"
    );
    let settled = settle_with(next, check_step);
    assert!(!planner::holds_anything(&settled, id(2)));
    let left = planner::hand_over(&settled, id(2), HandOverUrgency::Repair);
    assert_eq!(
        left.member(id(2)).map(|m| m.state),
        Some(MemberState::Leaving)
    );
}

#[test]
fn a_pair_has_nothing_to_repair_when_one_leaves() {
    let table = cluster(64, 1, &[PLAIN, PLAIN]);
    let next = planner::hand_over(&table, id(1), HandOverUrgency::Repair);
    check_step(&table, &next);
    assert!(!planner::holds_anything(&next, id(1)));
    assert_eq!(
        next.member(id(1)).map(|m| m.state),
        Some(MemberState::Leaving)
    );
}

#[test]
fn while_every_member_leaves_none_drops_shared_copies() {
    let mut table = cluster(64, 1, &[PLAIN, PLAIN, PLAIN]);
    for leaver in [1, 2, 3] {
        let next = planner::hand_over(&table, id(leaver), HandOverUrgency::Repair);
        check_step(&table, &next);
        table = next;
    }
    assert!(partitions(&table).all(|(_, p)| p.in_sync().count() >= 1));
}

#[test]
fn leaving_at_once_hands_everything_over_in_one_table() {
    let table = cluster(64, 1, &[PLAIN, PLAIN, PLAIN]);
    let next = planner::hand_over(&table, id(2), HandOverUrgency::AtOnce);
    check_step(&table, &next);
    assert!(!planner::holds_anything(&next, id(2)));
    assert_eq!(
        next.member(id(2)).map(|m| m.state),
        Some(MemberState::Leaving)
    );
    assert_eq!(
        next.voters, table.voters,
        "it keeps its vote until it is removed"
    );
    assert_eq!(planner::choose_voters(&next), [id(1), id(3)]);
}

#[test]
fn withdrawing_an_admission_is_an_epoch_even_where_the_learner_is_gone() {
    let table = cluster(1, 0, &[PLAIN, PLAIN]);
    let at = partitions(&table)
        .map(|(at, _)| at)
        .next()
        .expect("one partition");
    let partition = table.partition(at).expect("one partition");
    let other = if partition.primary() == id(1) {
        id(2)
    } else {
        id(1)
    };
    let ask = |change| {
        change_in_sync(
            &table,
            &[InSyncRequest {
                partition: at,
                epoch: partition.epoch,
                change,
            }],
        )
    };
    let (next, done) = ask(InSyncChange::Withdraw(other));
    assert!(done[0]);
    let after = next.partition(at).expect("one partition");
    assert_eq!(
        (after.epoch, after.since),
        (partition.epoch.next(), partition.since)
    );
    assert_eq!(
        ask(InSyncChange::Admit(other)),
        (table.clone(), vec![false])
    );
    assert_eq!(
        ask(InSyncChange::Remove(partition.primary())),
        (table.clone(), vec![false])
    );
}

#[test]
fn learners_stay_within_their_limits_and_repair_goes_first() {
    let full = cluster(64, 1, &[PLAIN, PLAIN, PLAIN]);
    let short = planner::remove(&full, &BTreeMap::from([(id(3), Absence::Dead)]));
    let joined = planner::admit(&short, vec![member(4, &PLAIN)]);
    let planned = adopt(&joined, &plan(&joined));
    let limits = planner::MoveLimits {
        learners_per_source: 3,
        learners_per_target: 4,
        learners: 5,
    };
    let next = advance(&planned, &limits, &planner::MoveFacts::default()).expect("moves begin");
    let learners: Vec<_> = partitions(&next)
        .flat_map(|(at, p)| {
            p.learners()
                .map(move |m| (at, p.primary(), m))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(!learners.is_empty() && learners.len() <= 5);
    for who in next.members.iter().map(|m| m.id) {
        assert!(
            learners
                .iter()
                .filter(|(_, source, _)| *source == who)
                .count()
                <= 3
        );
        assert!(
            learners
                .iter()
                .filter(|(_, _, target)| *target == who)
                .count()
                <= 4
        );
    }
    let short_of_copies = |at: &PartitionRef| {
        planned
            .partition(*at)
            .is_some_and(|p| p.in_sync().count() < 2)
    };
    assert!(learners.iter().all(|(at, ..)| short_of_copies(at)));
    let paused: BTreeSet<_> = learners.iter().map(|(at, _, m)| (*at, *m)).collect();
    let other = advance(
        &planned,
        &limits,
        &planner::MoveFacts {
            paused: paused.clone(),
            ..planner::MoveFacts::default()
        },
    )
    .expect("others begin");
    assert!(partitions(&other).all(|(at, p)| p.learners().all(|m| !paused.contains(&(at, m)))));
}

#[test]
fn copies_of_a_leaver_move_before_copies_for_balance() {
    let four = cluster(64, 1, &[PLAIN; 4]);
    let mut table = planner::admit(
        &planner::hand_over(&four, id(1), HandOverUrgency::Repair),
        vec![member(9, &PLAIN)],
    );
    // The others hold more than their share, too, so some of their copies go to the newcomer.
    table = adopt(&table, &plan(&table));
    let held = |table: &Table, at| {
        table
            .partition(at)
            .is_some_and(|p| p.replicas.iter().any(|r| r.member == id(1)))
    };
    let moves: Vec<PartitionRef> = partitions(&table)
        .filter(|(_, p)| p.goal.is_some())
        .map(|(at, _)| at)
        .collect();
    let (leavers, others): (Vec<PartitionRef>, Vec<PartitionRef>) =
        moves.into_iter().partition(|at| held(&table, *at));
    assert!(
        leavers.len() >= 32,
        "{} and {}",
        leavers.len(),
        others.len()
    );
    let limits = planner::MoveLimits {
        learners_per_source: 64,
        learners_per_target: 64,
        learners: 20,
    };
    let next = advance(&table, &limits, &planner::MoveFacts::default()).expect("moves begin");
    let begun: Vec<PartitionRef> = partitions(&next)
        .filter(|(_, p)| p.learners().next().is_some())
        .map(|(at, _)| at)
        .collect();
    assert!(
        begun.len() == 20 && begun.iter().all(|at| held(&table, *at)),
        "{begun:?}"
    );
}

#[test]
fn moves_away_from_a_busy_member_go_before_other_moves_for_balance() {
    let joined = planner::admit(&cluster(64, 1, &[PLAIN; 3]), vec![member(9, &PLAIN)]);
    let table = adopt(&joined, &plan(&joined));
    let needs_copy = |p: &doyen_placement::Partition| {
        p.goal.as_ref().is_some_and(|goal| {
            goal.iter()
                .any(|m| p.replicas.iter().all(|r| r.member != *m))
        })
    };
    let moves: Vec<PartitionRef> = partitions(&table)
        .filter(|(_, p)| needs_copy(p))
        .map(|(at, _)| at)
        .collect();
    assert!(moves.len() > 20);
    let hot: BTreeSet<PartitionRef> = moves.iter().rev().take(10).copied().collect();
    let limits = planner::MoveLimits {
        learners_per_source: 64,
        learners_per_target: 64,
        learners: 10,
    };
    let next = advance(
        &table,
        &limits,
        &planner::MoveFacts {
            hot: hot.clone(),
            ..planner::MoveFacts::default()
        },
    )
    .expect("moves begin");
    let begun: BTreeSet<PartitionRef> = partitions(&next)
        .filter(|(_, p)| p.learners().next().is_some())
        .map(|(at, _)| at)
        .collect();
    assert_eq!(begun, hot);
}

#[test]
fn elders_are_the_oldest_spread_over_zones() {
    let zones = [1, 1, 1, 1, 2, 2, 3, 1];
    let mut table = cluster(8, 1, &zones.map(|zone| Sketch { zone, ..PLAIN }));
    table.settings.voters_max = 3;
    assert_eq!(planner::choose_voters(&table), [id(1), id(5), id(7)]);
    table.settings.voters_max = 5;
    assert_eq!(
        planner::choose_voters(&table),
        [id(1), id(2), id(5), id(6), id(7)]
    );
}
