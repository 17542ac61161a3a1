//! Operations on several keys of one partition.

use super::hashes::of;
use super::*;
use crate::command::operation::{OperationBatch, OperationStep};

impl World {
    /// What a Redis client is answered at this node.
    fn said(&mut self, n: u64, line: &str) -> Outcome {
        let words: Vec<&str> = line.split(' ').collect();
        let key = words[if words[0] == "MSETEX" { 2 } else { 1 }].to_owned();
        self.ask(n, &key, of(line))
    }
}

fn world(seed: u64) -> World {
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w
}

const DONE: Outcome = Outcome::Int(1);
const NOT_DONE: Outcome = Outcome::Int(0);

#[test]
fn a_renamed_key_keeps_its_kind_value_and_deadline_after_a_failover() {
    let mut w = world(1);
    w.set(1, "{a}s", "text");
    w.said(2, "HSET {a}h f 1");
    w.said(3, "PEXPIREAT {a}h 99999999999999");
    assert_eq!(w.said(3, "RENAME {a}s {a}s2"), Outcome::Ok);
    assert_eq!(w.said(2, "RENAME {a}h {a}h2"), Outcome::Ok);
    assert_eq!(w.said(1, "RENAME {a}h {a}h2"), Outcome::Nil);
    for n in [1, 2, 3] {
        assert_eq!(w.get(n, "{a}s"), Outcome::Nil);
        assert_eq!(w.get(n, "{a}s2"), text("text"));
        assert_eq!(w.said(n, "HGET {a}h2 f"), text("1"));
    }
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.get(3, "{a}s2"), text("text"));
    assert_eq!(w.said(3, "HGET {a}h2 f"), text("1"));
    let deadline = Outcome::Int(99_999_999_999_999);
    assert_eq!(w.said(3, "PEXPIRETIME {a}h2"), deadline);
    assert_eq!(w.said(3, "EXISTS {a}h"), NOT_DONE);
}

#[test]
fn a_name_that_is_taken_is_replaced_only_by_those_that_may() {
    let mut w = world(2);
    for (key, value) in [("{a}1", "one"), ("{a}2", "two"), ("{a}3", "three")] {
        w.set(1, key, value);
    }
    assert_eq!(w.said(2, "RENAMENX {a}1 {a}2"), NOT_DONE);
    assert_eq!(w.said(2, "RENAMENX {a}1 {a}1"), NOT_DONE);
    assert_eq!(w.said(2, "RENAME {a}1 {a}1"), Outcome::Ok);
    assert_eq!(w.said(2, "COPY {a}1 {a}2"), NOT_DONE);
    assert_eq!(w.said(2, "COPY {a}none {a}2 REPLACE"), NOT_DONE);
    assert_eq!(w.get(3, "{a}2"), text("two"));
    assert_eq!(w.said(2, "COPY {a}1 {a}2 REPLACE"), DONE);
    assert_eq!(w.get(3, "{a}2"), text("one"));
    assert_eq!(w.said(2, "RENAME {a}3 {a}2"), Outcome::Ok);
    assert_eq!(w.get(3, "{a}2"), text("three"));
    assert_eq!(w.said(2, "RENAMENX {a}2 {a}4"), DONE);
    assert_eq!(w.get(3, "{a}4"), text("three"));
    assert_eq!(w.said(2, "RENAMENX {a}2 {a}5"), Outcome::Nil);
    assert_eq!(w.said(2, "COPY {a}1 {a}1 DB 0"), Outcome::Nil);
}

#[test]
fn an_overdue_key_is_neither_renamed_nor_in_the_way() {
    let mut w = world(3);
    w.set(1, "{a}1", "one");
    w.set(1, "{a}2", "two");
    w.said(1, "PEXPIRE {a}1 40");
    w.said(1, "PEXPIRE {a}2 40");
    w.settle(Duration::from_millis(60));
    assert_eq!(w.said(2, "RENAME {a}1 {a}3"), Outcome::Nil);
    w.set(1, "{a}1", "one");
    assert_eq!(w.said(2, "RENAMENX {a}1 {a}2"), DONE);
    assert_eq!(w.said(2, "PTTL {a}2"), Outcome::Int(-1));
}

#[test]
fn several_keys_are_set_together_or_not_at_all() {
    let mut w = world(5);
    assert_eq!(w.said(2, "MSETNX {a}1 one {a}2 two {a}1 last"), DONE);
    assert_eq!(w.get(3, "{a}1"), text("last"));
    assert_eq!(w.said(2, "MSETNX {a}3 three {a}2 other"), NOT_DONE);
    assert_eq!(w.get(3, "{a}3"), Outcome::Nil);
    assert_eq!(w.get(3, "{a}2"), text("two"));
    assert_eq!(w.said(1, "MSETEX 2 {a}1 x {a}3 y XX"), NOT_DONE);
    assert_eq!(w.said(1, "MSETEX 2 {a}1 x {a}2 y XX EX 100"), DONE);
    assert_eq!(w.get(3, "{a}2"), text("y"));
    let ttl = |w: &mut World| match w.said(3, "PTTL {a}2") {
        Outcome::Int(ms) => ms,
        other => panic!("{other:?}"),
    };
    assert!((90_000..=100_000).contains(&ttl(&mut w)));
    assert_eq!(w.said(1, "MSETEX 1 {a}2 z KEEPTTL"), DONE);
    assert!((90_000..=100_000).contains(&ttl(&mut w)));
    assert_eq!(w.said(1, "MSETEX 2 {a}1 z {a}2 z"), DONE);
    assert_eq!(ttl(&mut w), -1);
    assert_eq!(w.said(1, "MSETEX 1 {a}2 z NX"), NOT_DONE);
    assert_eq!(w.said(1, "MSETEX 2 {a}4 z {a}5 z NX"), DONE);
    // The runs of bytes of a call are few or many: 253 of 127 keys, 255 of 128 keys.
    for count in [127, 128, 1_000] {
        let keys: Vec<String> = (0..count)
            .map(|n| format!(" {{a}}{count}:{n} {n}"))
            .collect();
        assert_eq!(w.said(2, &format!("MSETNX{}", keys.concat())), DONE);
        let last = count - 1;
        assert_eq!(
            w.get(1, &format!("{{a}}{count}:{last}")),
            text(&last.to_string())
        );
    }
}

#[test]
fn keys_in_several_partitions_are_refused_and_nothing_happens() {
    let mut w = world(6);
    let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    w.set(1, "k0", "zero");
    let crossed = Outcome::Failed(Failure::CrossPartition);
    let refused = keys[1..]
        .iter()
        .filter(|key| w.said(1, &format!("COPY k0 {key}")) == crossed)
        .count();
    assert!((1..49).contains(&refused), "{refused}");
    for key in &keys[1..] {
        let copied = w.get(2, key) == text("zero");
        assert_eq!(
            w.said(2, &format!("MSETNX k0 1 {key} 1")) == crossed,
            !copied
        );
    }
}

#[test]
fn what_is_too_large_together_is_refused() {
    let mut w = world(7);
    let half = "x".repeat(Limits::of_test().value_bytes_max / 2);
    let too_large = Outcome::Failed(Failure::TooLarge);
    assert_eq!(
        w.said(2, &format!("MSETNX {{a}}1 {half} {{a}}2 {half}")),
        too_large
    );
    assert_eq!(w.get(1, "{a}1"), Outcome::Nil);
    // The largest value can be renamed and copied.
    let most = "x".repeat(Limits::of_test().value_bytes_max);
    w.set(1, "{a}1", &most);
    assert_eq!(w.said(2, "RENAME {a}1 {a}2"), Outcome::Ok);
    assert_eq!(w.said(3, "COPY {a}2 {a}3"), DONE);
    assert_eq!(w.get(3, "{a}3"), text(&most));
}

#[test]
fn a_transaction_renames_what_it_wrote() {
    let mut w = world(8);
    let step = |line: &str| {
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        (key, of(line))
    };
    let steps: Vec<_> = [
        "SET {a}1 v",
        "RENAME {a}1 {a}2",
        "GET {a}2",
        "GET {a}1",
        "COPY {a}2 {a}1",
        "HSET {a}h f 1",
        "HMGET {a}h f none",
        "BITFIELD {a}2 GET u8 0",
    ]
    .map(step)
    .into_iter()
    .map(|(key, action)| OperationStep::Key {
        map: MapId(0),
        key: key.into(),
        action,
    })
    .collect();
    let transaction = OperationBatch {
        keyspace: KeyspaceId(0),
        watched: Vec::new(),
        steps,
    };
    let token = w.submit_work(2, transaction);

    let outcomes = vec![
        Outcome::Ok,
        Outcome::Ok,
        text("v"),
        Outcome::Nil,
        DONE,
        DONE,
        Outcome::Many(vec![text("1"), Outcome::Nil]),
        Outcome::Many(vec![Outcome::Int(118)]),
    ];
    assert_eq!(w.outcome(token), Outcome::Many(outcomes));
    assert_eq!(w.get(3, "{a}1"), text("v"));
    assert_eq!(w.get(3, "{a}2"), text("v"));
}
