//! Keyspaces are made, changed and dropped while members come and go.

mod common;

use common::*;
use doyen_placement::planner::{
    self, DEFAULT_KEYSPACE, KeyspaceChange, NewKeyspace, Refused, admit, alter_keyspace, create_keyspace, create_map, drop_keyspace,
};
use doyen_placement::table::validate::{KEYSPACES_MAX, PARTITIONS_ALL_MAX};
use doyen_placement::{Invalid, KeyspaceId, MapId, Mode, OnLoss, Table};

fn wanted(name: &str, partitions: u16, backups: u8) -> NewKeyspace {
    let mode = Mode::Fixed { partitions };
    NewKeyspace { name: name.into(), mode, backups, min_in_sync: 1, on_loss: OnLoss::Wait, default_ttl_ms: None, rules: Vec::new() }
}

fn created(table: &Table, name: &str, partitions: u16, backups: u8) -> Table {
    let next = create_keyspace(table, wanted(name, partitions, backups)).expect("it may be").expect("it is new");
    check_step(table, &next);
    next
}

fn with_backups(table: &Table, name: &str, backups: u8) -> Table {
    let change = KeyspaceChange { backups: Some(backups), ..KeyspaceChange::default() };
    let next = alter_keyspace(table, name, change).expect("it may be").expect("it is a change");
    check_step(table, &next);
    next
}

fn copies(table: &Table, name: &str) -> Vec<usize> {
    table.keyspace_named(name).expect("it is there").partitions.iter().map(|p| p.in_sync().count()).collect()
}

#[test]
fn a_new_keyspace_is_assigned_at_once_and_evenly() {
    let table = created(&cluster(16, 1, &[PLAIN, PLAIN, PLAIN]), "orders", 64, 2);
    assert_eq!(copies(&table, "orders"), [3; 64]);
    let leads = |m| table.keyspace_named("orders").expect("it is there").partitions.iter().filter(|p| p.primary() == m).count();
    let leads: Vec<usize> = table.members.iter().map(|m| leads(m.id)).collect();
    assert!(leads.iter().all(|n| (21..=22).contains(n)), "{leads:?}");
    assert!(planner::plan(&table).is_empty(), "nothing is left to move");
}

#[test]
fn a_keyspace_is_made_once() {
    let table = created(&cluster(16, 1, &[PLAIN]), "orders", 64, 2);
    assert_eq!(create_keyspace(&table, wanted("orders", 64, 2)), Ok(None), "whoever asks again is answered");
    assert_eq!(create_keyspace(&table, wanted("orders", 64, 1)), Err(Refused::OtherSettings("orders".into())));
}

#[test]
fn numbers_are_never_given_again() {
    let first = created(&cluster(16, 1, &[PLAIN, PLAIN]), "orders", 4, 1);
    let (with_map, map) = create_map(&first, "open", "orders").expect("it may be");
    let with_map = with_map.expect("it is new");
    check_step(&first, &with_map);
    let dropped = drop_keyspace(&with_map, "orders").expect("it may be");
    check_step(&with_map, &dropped);
    assert!(dropped.keyspace_named("orders").is_none() && dropped.maps.is_empty());
    let again = created(&dropped, "orders", 4, 1);
    assert_eq!(again.keyspace_named("orders").map(|k| k.id), Some(KeyspaceId(2)));
    let (_, map_again) = create_map(&again, "open", "orders").expect("it may be");
    assert_eq!((map.id, map_again.id), (MapId(1), MapId(2)));
}

#[test]
fn with_other_backups_copies_are_made_and_dropped_and_nothing_else_moves() {
    let base = created(&cluster(16, 1, &[PLAIN, PLAIN, PLAIN, PLAIN]), "orders", 32, 1);
    let more = settle_with(with_backups(&base, "orders", 2), check_step);
    assert_eq!((copies(&more, "orders"), copies(&more, "default")), (vec![3; 32], vec![2; 16]));
    let less = settle_with(with_backups(&more, "orders", 0), check_step);
    assert_eq!(copies(&less, "orders"), [1; 32]);
    let held = |table: &Table| table.keyspace(KeyspaceId(0)).map(|k| k.partitions.clone());
    assert_eq!(held(&base), held(&less), "the other keyspace is as it was");
    let kept = |(a, b): (&std::sync::Arc<doyen_placement::Partition>, &std::sync::Arc<doyen_placement::Partition>)| {
        b.in_sync().all(|m| a.in_sync().any(|other| other == m))
    };
    let (more, less) = (more.keyspace_named("orders").expect("there"), less.keyspace_named("orders").expect("there"));
    assert!(more.partitions.iter().zip(&less.partitions).all(kept), "what is left was there before");
}

#[test]
fn a_newcomer_takes_its_share_of_every_keyspace() {
    let table = created(&cluster(32, 1, &[PLAIN, PLAIN]), "orders", 32, 1);
    let settled = settle_with(admit(&table, vec![member(9, &PLAIN)]), check_step);
    for keyspace in &settled.keyspaces {
        let held = keyspace.partitions.iter().filter(|p| p.in_sync().any(|m| m == id(9))).count();
        assert!((21..=22).contains(&held), "of 64 copies of {}: {held}", keyspace.name);
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let table = cluster(16, 1, &[PLAIN]);
    assert_eq!(drop_keyspace(&table, DEFAULT_KEYSPACE), Err(Refused::Default));
    assert!(matches!(drop_keyspace(&table, "orders"), Err(Refused::NoKeyspace { .. })));
    assert!(matches!(alter_keyspace(&table, "orders", KeyspaceChange::default()), Err(Refused::NoKeyspace { .. })));
    assert_eq!(alter_keyspace(&table, DEFAULT_KEYSPACE, KeyspaceChange::default()), Ok(None));
    let fewer_than_needed = KeyspaceChange { min_in_sync: Some(3), ..KeyspaceChange::default() };
    assert!(matches!(alter_keyspace(&table, DEFAULT_KEYSPACE, fewer_than_needed), Err(Refused::Invalid(Invalid::Keyspace { .. }))));
    for name in ["", "a b", "a/b", "\u{1b}[2J", &"a".repeat(65)] {
        assert!(matches!(create_keyspace(&table, wanted(name, 4, 1)), Err(Refused::Invalid(Invalid::Keyspace { .. }))), "{name:?}");
    }
    assert!(matches!(create_keyspace(&table, wanted("orders", 3, 1)), Err(Refused::Invalid(Invalid::Keyspace { .. }))));
}

#[test]
fn there_is_an_end_to_keyspaces_and_to_partitions() {
    let mut table = cluster(1, 0, &[PLAIN]);
    for n in 1..KEYSPACES_MAX {
        table = created(&table, &format!("k{n}"), 1, 0);
    }
    assert!(matches!(create_keyspace(&table, wanted("one.more", 1, 0)), Err(Refused::Invalid(Invalid::TooMany { .. }))));
    let mut table = cluster(16384, 0, &[PLAIN]);
    for n in 1..PARTITIONS_ALL_MAX / 16384 {
        table = created(&table, &format!("k{n}"), 16384, 0);
    }
    assert!(matches!(create_keyspace(&table, wanted("one.more", 1, 0)), Err(Refused::Invalid(Invalid::TooMany { .. }))));
}
