//! Rules of placement are met wherever that is possible. If it is not, the planner says why, and no
//! copy is missing.

use crate::common::*;
use doyen_placement::planner::{self, Absence, KeyspaceChange, Why, alter_keyspace, rules_unmet};
use doyen_placement::{
    Assignment, ClusterId, Keyspace, Label, Location, Member, MemberState, OnLoss, Role, Rule,
    Settings, Table, rule,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts
        .iter()
        .map(|text| text.parse().expect("it is a rule"))
        .collect()
}

fn ruled(partitions: u16, backups: u8, rules: &[Rule]) -> Keyspace {
    Keyspace {
        rules: rules.to_vec(),
        ..keyspace(partitions, backups, OnLoss::Wait)
    }
}

fn located(number: u64, location: Location, weight: u32) -> Member {
    Member {
        location,
        ..member(number, &Sketch { weight, ..PLAIN })
    }
}

fn founded(keyspace: Keyspace, assignment: Assignment, members: Vec<Member>) -> Table {
    planner::first(
        ClusterId(7),
        Settings {
            assignment,
            ..Settings::default()
        },
        keyspace,
        members,
    )
}

fn with_rules(table: &Table, rules: Vec<Rule>) -> Table {
    let change = KeyspaceChange {
        rules: Some(rules),
        ..KeyspaceChange::default()
    };
    alter_keyspace(table, "default", change)
        .expect("they may be")
        .unwrap_or_else(|| table.clone())
}

/// Whether some choice of members obeys all rules, by trying all of them.
fn can_be_obeyed(keyspace: &Keyspace, receivers: &[&Member]) -> bool {
    let copies = receivers.len().min(1 + usize::from(keyspace.backups));
    (0_u32..1 << receivers.len())
        .filter(|set| set.count_ones() as usize == copies)
        .any(|set| {
            let chosen: Vec<&Member> = receivers
                .iter()
                .enumerate()
                .filter(|(m, _)| set >> m & 1 == 1)
                .map(|(_, m)| *m)
                .collect();
            (0..chosen.len()).any(|primary| {
                let mut order = chosen.clone();
                order.swap(0, primary);
                keyspace.rules.iter().all(|rule| !rule.is_broken_by(&order))
            })
        })
}

/// Nothing is left to plan. Then rules are broken only where they must be, and never at the cost of
/// copies.
fn check_obeyed(table: &Table) {
    let receivers: Vec<&Member> = table
        .members
        .iter()
        .map(AsRef::as_ref)
        .filter(|m| m.role == Role::Data && m.state == MemberState::Live)
        .collect();
    let unmet = rules_unmet(table);
    for keyspace in &table.keyspaces {
        let copies = receivers.len().min(1 + usize::from(keyspace.backups));
        assert!(
            keyspace
                .partitions
                .iter()
                .all(|p| p.in_sync().count() == copies),
            "no rule makes copies fewer"
        );
        if can_be_obeyed(keyspace, &receivers) {
            assert_eq!(unmet, vec![], "they can be obeyed");
        } else {
            assert!(unmet.iter().any(|u| u.why != Why::NotYet), "{unmet:?}");
        }
    }
}

fn location() -> impl Strategy<Value = Location> {
    let name = |kind: &'static str| {
        (0_u8..4).prop_map(move |n| {
            if n == 0 {
                String::new()
            } else {
                format!("{kind}{n}")
            }
        })
    };
    (name("z"), name("r"), name("h")).prop_map(|(zone, rack, host)| Location { zone, rack, host })
}

fn some_rule() -> impl Strategy<Value = Rule> {
    let place = prop_oneof![
        (1_u8..5).prop_map(|n| format!("zone=z{n}")),
        (1_u8..4).prop_map(|n| format!("rack=r{n}")),
        (1_u8..4).prop_map(|n| format!("host=h{n}")),
        (1_u8..9).prop_map(|n| format!("name=n{n}")),
    ];
    let label = prop_oneof![
        Just(Label::Zone),
        Just(Label::Rack),
        Just(Label::Host),
        Just(Label::Name)
    ];
    prop_oneof![
        (any::<bool>(), prop::bool::weighted(0.7), place).prop_map(|(primary, not, place)| {
            let text = format!(
                "{} {}in {place}",
                if primary { "primary" } else { "copies" },
                if not { "not " } else { "" }
            );
            text.parse().expect("it is a rule")
        }),
        (1_u8..3, label).prop_map(|(most, label)| Rule::Per { most, label }),
    ]
}

/// Rules that can stand together: a rule that contradicts an earlier one is left out.
fn some_rules() -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(some_rule(), 0..5).prop_map(|wanted| {
        let mut rules = Vec::new();
        for rule in wanted {
            rules.push(rule);
            if rule::check(&rules).is_err() {
                rules.pop();
            }
        }
        rules
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn rules_are_obeyed_wherever_they_can_be_and_plans_come_to_an_end(
        members in prop::collection::vec(
            (location(), prop_oneof![3 => Just(100), 1 => 20_u32..300]),
            1..7,
        ),
        newcomers in prop::collection::vec(location(), 0..3),
        gone in prop::collection::btree_set(1_u64..7, 0..3),
        rules in some_rules(),
        others in some_rules(),
        power in 0_u32..6,
        backups in 0_u8..4,
        assignment in prop_oneof![Just(Assignment::RoundRobin), Just(Assignment::Rendezvous)],
    ) {
        let founders = members
            .into_iter()
            .zip(1..)
            .map(|((location, weight), number)| located(number, location, weight))
            .collect();
        let table = founded(ruled(1 << power, backups, &rules), assignment, founders);
        prop_assert_eq!(table.validate(), Ok(()));
        prop_assert_eq!(
            plan(&table),
            vec![],
            "what is assigned is planned no further"
        );
        check_obeyed(&table);
        let joined = planner::admit(
            &table,
            newcomers
                .into_iter()
                .zip(100..)
                .map(|(l, number)| located(number, l, 100))
                .collect(),
        );
        let settled = settle_with(joined, check_step);
        check_obeyed(&settled);
        let altered = with_rules(&settled, others);
        check_step(&settled, &altered);
        let settled = settle_with(altered, check_step);
        check_obeyed(&settled);
        let gone: BTreeMap<_, _> = gone.into_iter().map(|m| (id(m), Absence::Dead)).collect();
        let settled = settle_with(planner::remove(&settled, &gone), check_step);
        if settled.members.iter().all(|m| m.state == MemberState::Live) {
            check_obeyed(&settled);
        }
    }

    /// Where weights differ, or zones, the remainders of shares may fall to others.
    #[test]
    fn a_rule_that_says_nothing_new_moves_nothing(
        members in 1_usize..9,
        power in 0_u32..8,
        backups in 0_u8..4,
    ) {
        let table = cluster(1 << power, backups, &vec![PLAIN; members]);
        let ruled = with_rules(
            &table,
            rules(&["copies 7 per zone", "primary not in name=absent"]),
        );
        let moves: usize = plan(&ruled)
            .iter()
            .map(|(at, goal)| {
                let partition = ruled.partition(*at).expect("it is there");
                goal.iter()
                    .filter(|m| partition.replicas.iter().all(|r| r.member != **m))
                    .count()
            })
            .sum();
        prop_assert!(moves == 0, "{} copies move", moves);
    }
}

fn zones(zones: &[&str]) -> Vec<Member> {
    let location = |zone: &&str| Location {
        zone: (*zone).to_owned(),
        ..Location::default()
    };
    zones
        .iter()
        .zip(1..)
        .map(|(zone, number)| located(number, location(zone), 100))
        .collect()
}

#[test]
fn copies_are_shared_evenly_as_far_as_rules_allow() {
    let allowed = rules(&["primary in zone=a", "copies not in zone=c"]);
    let table = founded(
        ruled(256, 1, &allowed),
        Assignment::RoundRobin,
        zones(&["a", "a", "b", "b", "b", "c"]),
    );
    let held: Vec<(u64, u64)> = loads(&table).into_values().collect();
    assert_eq!(held[..2], [(128, 128); 2], "zone a leads everything");
    assert!(
        held[2..5]
            .iter()
            .all(|(copies, leads)| (85..=86).contains(copies) && *leads == 0),
        "{held:?}"
    );
    assert_eq!(held[5], (0, 0));
    let joined = planner::admit(
        &table,
        vec![located(
            7,
            Location {
                zone: "a".into(),
                ..Location::default()
            },
            100,
        )],
    );
    let goals: BTreeMap<_, _> = plan(&joined).into_iter().collect();
    let arrives = |at, goal: &Vec<_>| {
        goal.iter()
            .filter(|m| {
                !joined
                    .partition(at)
                    .expect("there")
                    .in_sync()
                    .any(|h| h == **m)
            })
            .count()
    };
    assert_eq!(
        goals
            .iter()
            .map(|(at, goal)| arrives(*at, goal))
            .sum::<usize>(),
        85,
        "its share of the zone's copies, and nothing else"
    );
    let held: Vec<(u64, u64)> = loads(&settle_with(joined, check_step))
        .into_values()
        .collect();
    assert!(
        [0, 1, 6].iter().all(|m| (85..=86).contains(&held[*m].1)),
        "{held:?}"
    );
}

#[test]
fn a_rule_outweighs_keeping_copies_apart() {
    let table = founded(
        ruled(64, 1, &rules(&["copies in zone=a"])),
        Assignment::RoundRobin,
        zones(&["a", "a", "b"]),
    );
    assert_eq!(loads(&table)[&id(3)], (0, 0));
    let without = settle_with(with_rules(&table, Vec::new()), check_step);
    check_spread(&without);
    assert_eq!(
        loads(&without)[&id(3)].0,
        64,
        "without it each zone has a copy again"
    );
}

#[test]
fn a_rule_that_cannot_be_met_is_told_with_its_reason() {
    let why = |texts: &[&str], backups| {
        let table = founded(
            ruled(16, backups, &rules(texts)),
            Assignment::RoundRobin,
            zones(&["a", "b", "b"]),
        );
        assert!(
            table.keyspaces[0]
                .partitions
                .iter()
                .all(|p| p.in_sync().count() == usize::from(backups) + 1)
        );
        rules_unmet(&table)
            .into_iter()
            .map(|u| format!("{}: {} ({})", u.rule, u.why, u.partitions))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        why(&["primary in zone=c"], 1),
        ["primary in zone=c: no member that may hold data is in zone=c (16)"]
    );
    assert_eq!(
        why(&["copies in zone=a"], 1),
        [
            "copies in zone=a: of the members that may hold data, 1 are in zone=a, and 2 copies \
             are wanted (16)"
        ]
    );
    assert_eq!(
        why(&["copies 1 per zone"], 2),
        ["copies 1 per zone: there is room for 2 of 3 copies (16)"]
    );
    let together = why(&["copies in zone=b", "copies 1 per zone"], 1);
    assert_eq!(
        together,
        ["copies in zone=b: the other rules leave no room for it (16)"]
    );
    let both = why(&["primary in zone=c", "copies 1 per zone"], 1);
    assert_eq!(
        both,
        ["primary in zone=c: no member that may hold data is in zone=c (16)"],
        "and the others are met all the same"
    );
    assert_eq!(
        why(&["copies not in zone=a", "primary in name=n2"], 1),
        Vec::<String>::new()
    );
}

#[test]
fn a_rule_is_not_met_yet_while_copies_are_still_to_move() {
    let table = founded(
        ruled(16, 1, &[]),
        Assignment::RoundRobin,
        zones(&["a", "b", "b"]),
    );
    let altered = with_rules(&table, rules(&["primary in zone=a"]));
    let unmet = rules_unmet(&altered);
    assert_eq!(
        unmet.iter().map(|u| u.why.clone()).collect::<Vec<_>>(),
        [Why::NotYet]
    );
    assert!((1..16).contains(&unmet[0].partitions));
    assert_eq!(rules_unmet(&settle_with(altered, check_step)), vec![]);
}

#[test]
fn a_partition_that_begins_anew_begins_where_rules_want_it() {
    let keyspace = Keyspace {
        on_loss: OnLoss::Reset { after_ms: 0 },
        ..ruled(64, 0, &rules(&["copies not in zone=b"]))
    };
    let table = founded(keyspace, Assignment::RoundRobin, zones(&["a", "a", "b"]));
    let next = planner::remove(&table, &BTreeMap::from([(id(1), Absence::Dead)]));
    check_step(&table, &next);
    let primaries: BTreeSet<_> = partitions(&next).map(|(_, p)| p.primary()).collect();
    assert_eq!(primaries, BTreeSet::from([id(2)]));
}

#[test]
fn a_table_with_rules_that_contradict_each_other_is_not_valid() {
    let with = |rules: Vec<Rule>| {
        let mut table = cluster(4, 1, &[PLAIN, PLAIN]);
        table.keyspaces[0].rules = rules;
        table.validate().map_err(|e| e.to_string())
    };
    assert_eq!(
        with(rules(&["primary in zone=a", "copies 1 per zone"])),
        Ok(())
    );
    let said =
        with(rules(&["primary in zone=a", "copies not in zone=a"])).expect_err("they contradict");
    assert_eq!(
        said,
        "keyspace \"default\": `primary in zone=a` and `copies not in zone=a` contradict each other"
    );
    assert!(
        with(vec![Rule::Per {
            most: 0,
            label: Label::Zone
        }])
        .is_err(),
        "a peer may say anything"
    );
    assert!(with(vec![rules(&["copies in host=h"]).remove(0); 17]).is_err());
}
