//! Newcomers whose weight is far above the others'.

use crate::common::*;
use doyen_placement::access::{AccessChange, WeightChange};
use doyen_placement::planner::{TooHeavy, WEIGHT_FACTOR, allow_present, change_access, too_heavy};
use doyen_placement::{Member, MemberState, Table};
use proptest::prelude::*;
use std::sync::Arc;

fn of_weight(weight: u32) -> Sketch {
    Sketch { weight, ..PLAIN }
}

fn witness(weight: u32) -> Sketch {
    Sketch {
        witness: true,
        ..of_weight(weight)
    }
}

fn weighing(weights: &[u32]) -> Table {
    let members: Vec<Sketch> = weights.iter().map(|weight| of_weight(*weight)).collect();
    cluster(4, 0, &members)
}

fn newcomer(weight: u32) -> Member {
    member(50, &of_weight(weight))
}

fn is_too_heavy(table: &Table, weight: u32) -> bool {
    too_heavy(table, &newcomer(weight)).is_some()
}

fn allowed(table: &Table, name: &str, weight: u32) -> Table {
    let change = AccessChange {
        weights: vec![WeightChange {
            name: name.into(),
            before: table.access.weight(name),
            after: Some(weight),
        }],
        ..AccessChange::default()
    };
    let next = change_access(table, &change).expect("it is taken");
    next.expect("it is new")
}

fn set_state(table: &mut Table, place: usize, state: MemberState) {
    Arc::make_mut(&mut table.members[place]).state = state;
}

#[test]
fn a_newcomer_above_eight_times_the_median_waits_until_its_weight_is_allowed() {
    let table = weighing(&[100, 100, 100]);
    assert_eq!(too_heavy(&table, &newcomer(800)), None);
    let heavy = too_heavy(&table, &newcomer(801)).expect("it waits");
    assert_eq!(
        heavy,
        TooHeavy {
            name: "n50".into(),
            weight: 801,
            median: 100,
            allowed: None,
        }
    );
    assert_eq!(
        heavy.to_string(),
        "n50 has weight 801, more than 8 times the median weight of the data members, 100"
    );
    assert!(
        is_too_heavy(&allowed(&table, "n51", 801), 801),
        "of another"
    );
    let less = too_heavy(&allowed(&table, "n50", 800), &newcomer(801)).expect("it waits");
    assert!(
        less.to_string()
            .ends_with(", 100, and only 800 is allowed for it"),
        "{less}"
    );
    let enough = allowed(&table, "n50", 900);
    assert!(!is_too_heavy(&enough, 801) && !is_too_heavy(&enough, 900));
    assert!(is_too_heavy(&enough, 901));
}

#[test]
fn witnesses_neither_count_nor_wait_and_silent_members_count_only_if_no_other_is_live() {
    let mut table = cluster(
        4,
        0,
        &[
            of_weight(100),
            witness(100_000),
            witness(1),
            of_weight(300),
            witness(1),
        ],
    );
    let median = |table: &Table| too_heavy(table, &newcomer(100_000)).map(|heavy| heavy.median);
    assert_eq!(
        median(&table),
        Some(100),
        "the lower of the two in the middle"
    );
    assert_eq!(too_heavy(&table, &member(50, &witness(100_000))), None);
    set_state(&mut table, 0, MemberState::Silent);
    assert_eq!(median(&table), Some(300));
    // Of a table whose data members are all silent, a newcomer cannot take everything either.
    set_state(&mut table, 3, MemberState::Draining);
    assert_eq!(median(&table), Some(100));
    let none = cluster(4, 0, &[witness(1), witness(1)]);
    assert_eq!(median(&none), None, "there is no data member");
}

/// Without that, the restart of such a founder would wait for an operator.
#[test]
fn founders_far_above_the_others_may_come_back() {
    let table = weighing(&[100, 900, 100, 800]);
    let names: Vec<_> = table
        .access
        .weights
        .iter()
        .map(|w| (&*w.name, w.weight))
        .collect();
    assert_eq!(names, [("n2", 900)]);
    assert_eq!(table.validate(), Ok(()));
    let again = |weight| Member {
        name: "n2".into(),
        ..newcomer(weight)
    };
    assert_eq!(too_heavy(&table, &again(900)), None);
    assert!(too_heavy(&table, &again(901)).is_some());
    assert!(weighing(&[100, 100, 800]).access.weights.is_empty());
    assert!(weighing(&[100_000]).access.weights.is_empty());

    // What is allowed already stays, unless it is less than a member has.
    let mut more = allowed(&allowed(&table, "n2", 899), "n1", 7);
    allow_present(&mut more);
    let weight = |name| more.access.weight(name);
    assert_eq!((weight("n1"), weight("n2")), (Some(7), Some(900)));
    assert_eq!(more.validate(), Ok(()));
}

proptest! {
    /// At least half of the members weigh as much as the median or more, and at least half as much
    /// or less. A newcomer waits exactly if it is above the multiple of it.
    #[test]
    fn the_limit_follows_the_median_of_the_members(
        weights in prop::collection::vec(1_u32..=100_000, 1..12),
        newcomer_weighs in 1_u32..=100_000,
    ) {
        let table = weighing(&weights);
        prop_assert_eq!(table.validate(), Ok(()));
        let heavy = too_heavy(&table, &newcomer(newcomer_weighs));
        let limit = |weight: u32| u64::from(weight) * u64::from(WEIGHT_FACTOR);
        let below = weights.iter().filter(|w| u64::from(newcomer_weighs) > limit(**w)).count();
        prop_assert_eq!(heavy.is_some(), below * 2 >= weights.len());
        if let Some(heavy) = heavy {
            let up_to = weights.iter().filter(|w| **w <= heavy.median).count();
            let from = weights.iter().filter(|w| **w >= heavy.median).count();
            prop_assert!(up_to * 2 >= weights.len() && from * 2 >= weights.len());
            prop_assert!(!is_too_heavy(&allowed(&table, "n50", newcomer_weighs), newcomer_weighs));
        }
        // Every member may come back as it is.
        for member in &table.members {
            prop_assert_eq!(too_heavy(&table, member), None);
        }
    }

    /// Fewer newcomers than members, however heavy, cannot raise the limit above what the heaviest
    /// member sets.
    #[test]
    fn fewer_liars_than_members_do_not_raise_the_limit(
        weights in prop::collection::vec(1_u32..=1000, 1..8),
        liars in prop::collection::vec(1_u32..=100_000, 0..8),
    ) {
        let most = weights.iter().max().copied().unwrap_or(1);
        let liars = liars.into_iter().take(weights.len() - 1);
        let all: Vec<u32> = weights.iter().copied().chain(liars).collect();
        prop_assert!(is_too_heavy(&weighing(&all), most * WEIGHT_FACTOR + 1));
    }
}
