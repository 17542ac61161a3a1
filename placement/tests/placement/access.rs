//! Users of Redis clients, tokens of HTTP and allowed weights: how they change, travel, and what
//! bounds them.

use crate::common::*;
use doyen_placement::access::{
    ACCESS_BYTES_MAX, AccessChange, TOKENS_MAX, TokenChange, TokenGrant, TokenRole,
    USER_RULES_BYTES_MAX, UserChange, WEIGHTS_MAX, WeightChange,
};
use doyen_placement::planner::{NotGranted, change_access};
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

fn change_users(table: &Table, changes: &[UserChange]) -> Result<Option<Table>, NotGranted> {
    let change = AccessChange {
        users: changes.to_vec(),
        ..AccessChange::default()
    };
    change_access(table, &change)
}

fn token(name: &str, before: Option<TokenGrant>, after: Option<TokenGrant>) -> TokenChange {
    TokenChange {
        name: name.into(),
        before,
        after,
    }
}

/// A grant whose hash has this byte.
fn grant(role: TokenRole, hash: u16) -> TokenGrant {
    let mut sha256 = [0; 32];
    sha256[..2].copy_from_slice(&hash.to_le_bytes());
    TokenGrant {
        role,
        sha256,
        made: 1_700_000_000,
    }
}

fn change_tokens(table: &Table, changes: &[TokenChange]) -> Result<Option<Table>, NotGranted> {
    let change = AccessChange {
        tokens: changes.to_vec(),
        ..AccessChange::default()
    };
    change_access(table, &change)
}

fn weight(name: &str, before: Option<u32>, after: Option<u32>) -> WeightChange {
    WeightChange {
        name: name.into(),
        before,
        after,
    }
}

fn change_weights(table: &Table, changes: &[WeightChange]) -> Result<Option<Table>, NotGranted> {
    let change = AccessChange {
        weights: changes.to_vec(),
        ..AccessChange::default()
    };
    change_access(table, &change)
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
    let (what, name) = ("user", "alice".into());
    assert_eq!(why, NotGranted::Changed { what, name });
    let gone = changed(&next, &[change("bob", Some("off"), None)]);
    assert_eq!(
        (gone.access.users.len(), gone.access.rules(b"bob")),
        (1, None)
    );
}

#[test]
fn tables_and_deltas_carry_users_tokens_and_weights() {
    let table = table();
    let some = changed(
        &table,
        &[
            change("bob", None, Some("off")),
            change("al", None, Some("on")),
        ],
    );
    let made = |changes: &[TokenChange]| {
        let next = change_tokens(&some, changes).expect("it is taken");
        next.expect("it is new")
    };
    let (read, operate) = (grant(TokenRole::Read, 1), grant(TokenRole::Operate, 2));
    let two = made(&[
        token("b", None, Some(read)),
        token("a", None, Some(operate)),
    ]);
    let one = made(&[token("b", None, Some(operate))]);
    let weights = |table: &Table, changes: &[WeightChange]| {
        let next = change_weights(table, changes).expect("it is taken");
        next.expect("it is new")
    };
    let heavy = weights(
        &two,
        &[weight("b", None, Some(9)), weight("a", None, Some(8))],
    );
    let heavier = weights(
        &heavy,
        &[
            weight("b", Some(9), Some(100_000)),
            weight("a", Some(8), None),
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
        (&some, &two),
        (&two, &one),
        (&one, &two),
        (&two, &other),
        (&two, &heavy),
        (&heavy, &heavier),
        (&heavier, &some),
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

#[test]
fn a_token_changes_only_if_it_is_as_it_is_said_to_be() {
    let (table, read) = (table(), grant(TokenRole::Read, 1));
    let new = [token("prometheus", None, Some(read))];
    let next = change_tokens(&table, &new)
        .expect("it is taken")
        .expect("it is new");
    assert_eq!(next.access.grant("prometheus"), Some(read));
    assert!(next.may_follow(&table) && next.name() != table.name());
    assert_eq!(change_tokens(&next, &new), Ok(None), "it was repeated");
    let operate = grant(TokenRole::Operate, 2);
    let why = change_tokens(&next, &[token("prometheus", None, Some(operate))]);
    let (what, name) = ("token", "prometheus".into());
    assert_eq!(why, Err(NotGranted::Changed { what, name }));

    // A conflict of a token leaves users as they are.
    let both = AccessChange {
        users: vec![change("al", None, Some("on"))],
        tokens: vec![token("prometheus", Some(operate), None)],
        ..AccessChange::default()
    };
    assert!(change_access(&next, &both).is_err());
    let revoke = [token("prometheus", Some(read), None)];
    let gone = change_tokens(&next, &revoke)
        .expect("it is taken")
        .expect("it is new");
    assert!(gone.access.tokens.is_empty());
}

/// Two operators who revoked the last two tokens with the role operate at two nodes were both told
/// that another one is left.
#[test]
fn the_last_token_with_the_role_operate_is_kept_if_the_request_says_so() {
    let judge = |table: &Table, changes: &[TokenChange], keep_operate| {
        let change = AccessChange {
            tokens: changes.to_vec(),
            keep_operate,
            ..AccessChange::default()
        };
        change_access(table, &change)
    };
    let (read, operate) = (grant(TokenRole::Read, 1), grant(TokenRole::Operate, 2));
    let other = grant(TokenRole::Operate, 3);
    let first = [token("ci", None, Some(read))];
    assert_eq!(judge(&table(), &first, true), Err(NotGranted::NoOperator));
    assert!(judge(&table(), &first, false).is_ok());
    let all = [
        token("ci", None, Some(read)),
        token("ada", None, Some(operate)),
        token("bob", None, Some(other)),
    ];
    let made = judge(&table(), &all, true).expect("one operates");
    let revoke = |name: &str, grant| [token(name, Some(grant), None)];
    let made = made.expect("it is new");
    let one = judge(&made, &revoke("ada", operate), true).expect("bob is left");
    let one = one.expect("it is new");
    let last = revoke("bob", other);
    assert_eq!(judge(&one, &last, true), Err(NotGranted::NoOperator));
    assert!(judge(&one, &last, false).is_ok());
    let both = [
        token("bob", Some(other), None),
        token("ci", Some(read), None),
    ];
    assert!(judge(&one, &both, true).is_ok(), "none is left to need one");
}

#[test]
fn tokens_are_bounded_named_and_different() {
    let table = table();
    let refused = |changes: &[TokenChange]| match change_tokens(&table, changes) {
        Err(NotGranted::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    let read = |hash| Some(grant(TokenRole::Read, hash));
    let long = "x".repeat(65);
    for name in ["", "a b", "a/b", "\u{e9}", "a\n", &long] {
        assert_eq!(
            refused(&[token(name, None, read(1))]),
            Invalid::TokenName,
            "{name:?}"
        );
    }
    let same = [token("a", None, read(1)), token("b", None, read(1))];
    assert_eq!(refused(&same), Invalid::SameToken(["a".into(), "b".into()]));
    let many = |count: u16| -> Vec<TokenChange> {
        let all = (0..count).map(|n| token(&format!("t{n}"), None, read(n)));
        all.collect()
    };
    let most = u16::try_from(TOKENS_MAX).expect("it is small");
    let full = change_tokens(&table, &many(most)).expect("they are taken");
    let mut full = full.expect("they are new");
    let why = refused(&many(most + 1));
    assert!(why.to_string().contains("at most 256"), "{why}");
    let access = std::sync::Arc::make_mut(&mut full.access);
    access.tokens.reverse();
    assert_eq!(full.validate(), Err(Invalid::TokenOrder));
}

#[test]
fn an_allowed_weight_changes_only_if_it_is_as_it_is_said_to_be() {
    let table = table();
    let new = [weight("n9", None, Some(900))];
    let next = change_weights(&table, &new)
        .expect("it is taken")
        .expect("it is new");
    assert_eq!(next.access.weight("n9"), Some(900));
    assert_eq!(next.access.weight("n8"), None);
    assert!(next.may_follow(&table) && next.name() != table.name());
    assert_eq!(change_weights(&next, &new), Ok(None), "it was repeated");
    let why = change_weights(&next, &[weight("n9", Some(800), None)]);
    let why = why.expect_err("it is 900").to_string();
    assert_eq!(
        why,
        "the weight that is allowed for n9 was changed meanwhile: try again"
    );
    let more = change_weights(&next, &[weight("n9", Some(900), Some(1000))])
        .expect("it is taken")
        .expect("it is new");
    assert_eq!(more.access.weight("n9"), Some(1000));
    let gone = change_weights(&more, &[weight("n9", Some(1000), None)])
        .expect("it is taken")
        .expect("it is new");
    assert_eq!(gone.access, table.access);
}

#[test]
fn allowed_weights_are_bounded_named_and_in_order() {
    let table = table();
    let refused = |changes: &[WeightChange]| match change_weights(&table, changes) {
        Err(NotGranted::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    for name in ["", &"x".repeat(65)] {
        let why = refused(&[weight(name, None, Some(1))]);
        assert_eq!(why, Invalid::Name { what: "member" }, "{name:?}");
    }
    for out in [0, 100_001, u32::MAX] {
        let why = refused(&[weight("n9", None, Some(out))]);
        assert_eq!(why, Invalid::AllowedWeight("n9".into()), "{out}");
    }
    let many = |count: usize| -> Vec<WeightChange> {
        let all = (0..count).map(|n| weight(&format!("n{n}"), None, Some(1)));
        all.collect()
    };
    let full = change_weights(&table, &many(WEIGHTS_MAX)).expect("they are taken");
    let full = full.expect("they are new");
    let why = refused(&many(WEIGHTS_MAX + 1));
    assert!(why.to_string().contains("at most 1024"), "{why}");
    for disorder in [
        |table: &mut Table| {
            std::sync::Arc::make_mut(&mut table.access)
                .weights
                .reverse()
        },
        |table: &mut Table| {
            let weights = &mut std::sync::Arc::make_mut(&mut table.access).weights;
            weights[1] = weights[0].clone();
        },
    ] {
        let mut full = full.clone();
        disorder(&mut full);
        assert_eq!(full.validate(), Err(Invalid::WeightOrder));
    }
}
