//! Users of Redis clients: how they change, travel, and what bounds them.

use crate::common::*;
use doyen_placement::access::{ACCESS_BYTES_MAX, USER_RULES_BYTES_MAX, UserChange};
use doyen_placement::planner::{NotGranted, change_users};
use doyen_placement::{Invalid, Table, TableDelta};

fn table() -> Table {
    cluster(4, 0, &[PLAIN])
}

fn change(name: &str, before: Option<&str>, after: Option<&str>) -> UserChange {
    let rules = |text: &str| text.as_bytes().into();
    UserChange {
        name: name.as_bytes().into(),
        before: before.map(rules),
        after: after.map(rules),
    }
}

fn changed(table: &Table, changes: &[UserChange]) -> Table {
    change_users(table, changes)
        .expect("it is taken")
        .expect("it is new")
}

#[test]
fn a_change_of_users_is_made_whole_if_they_are_as_it_says() {
    let table = table();
    let both = [
        change("bob", None, Some("off")),
        change("alice", None, Some("on")),
    ];
    let next = changed(&table, &both);
    assert_eq!(next.access.rules(b"alice"), Some(&b"on"[..]));
    assert!(next.may_follow(&table) && next.name() != table.name());
    assert_eq!(change_users(&next, &both), Ok(None), "it was repeated");

    let late = [
        change("bob", Some("off"), None),
        change("alice", Some("off"), Some("on x")),
    ];
    let why = change_users(&next, &late).expect_err("alice is on");
    assert_eq!(why, NotGranted::Changed("alice".into()));
    assert!(NotGranted::is_changed(&why.to_string()));
    let gone = changed(&next, &[change("bob", Some("off"), None)]);
    assert_eq!(
        (gone.access.users.len(), gone.access.rules(b"bob")),
        (1, None)
    );

    let lower = next.at_level(14);
    assert!(lower.access.users.is_empty());
    assert_eq!(change_users(&lower, &both), Err(NotGranted::Level(14)));
}

#[test]
fn tables_and_deltas_carry_users() {
    let table = table();
    let some = changed(
        &table,
        &[
            change("bob", None, Some("off")),
            change("al", None, Some("on")),
        ],
    );
    let other = changed(
        &some,
        &[
            change("bob", Some("off"), None),
            change("al", Some("on"), Some("on nopass")),
        ],
    );
    for (old, new) in [
        (&table, &some),
        (&some, &other),
        (&other, &table),
        (&some, &some),
    ] {
        let delta = TableDelta::between(old, new);
        let bytes = bincode::serde::encode_to_vec(&delta, bincode::config::standard());
        let (read, _): (TableDelta, _) = bincode::serde::decode_from_slice(
            &bytes.expect("it is encoded"),
            bincode::config::standard(),
        )
        .expect("it is decoded");
        assert_eq!(read, delta);
        assert_eq!(read.apply(old), Ok(new.clone()));
        let bytes = bincode::serde::encode_to_vec(new, bincode::config::standard());
        let (read, _): (Table, _) = bincode::serde::decode_from_slice(
            &bytes.expect("it is encoded"),
            bincode::config::standard(),
        )
        .expect("it is decoded");
        assert_eq!(read, *new);
    }
}

#[test]
fn users_are_bounded_and_stand_in_lines_of_words() {
    let table = table();
    let refused =
        |name: &str, rules: &str| match change_users(&table, &[change(name, None, Some(rules))]) {
            Err(NotGranted::Invalid(why)) => why,
            other => panic!("{other:?}"),
        };
    let long = "x".repeat(257);
    for name in ["", "a b", "a\0", "a\n", &long] {
        assert_eq!(refused(name, "on"), Invalid::UserName, "{name:?}");
    }
    let rules = Invalid::UserRules("al".into());
    assert_eq!(refused("al", "on\noff"), rules);
    assert_eq!(refused("al", &"x".repeat(USER_RULES_BYTES_MAX + 1)), rules);
    let much = "x".repeat(USER_RULES_BYTES_MAX);
    let all: Vec<_> = (0..=ACCESS_BYTES_MAX / USER_RULES_BYTES_MAX)
        .map(|n| change(&format!("user{n}"), None, Some(&much)))
        .collect();
    let why = change_users(&table, &all).expect_err("they are too many bytes");
    assert!(why.to_string().contains("at most 2097152"), "{why}");
    let many: Vec<_> = (0..10_001)
        .map(|n| change(&n.to_string(), None, Some("on")))
        .collect();
    let why = change_users(&table, &many).expect_err("they are too many");
    assert!(why.to_string().contains("at most 10000"), "{why}");

    let mut disordered = changed(
        &table,
        &[change("a", None, Some("on")), change("b", None, Some("on"))],
    );
    let access = std::sync::Arc::make_mut(&mut disordered.access);
    access.users.reverse();
    assert_eq!(disordered.validate(), Err(Invalid::UserOrder));
}
