//! Sets on their way through copies, snapshots, splits and failovers.

use super::hashes::{begin_copies, form, of};
use super::*;
use crate::command::{Fields, Part};
use crate::value::kind::Kind;
use std::collections::BTreeSet;

impl World {
    fn set_of(&mut self, n: u64, line: &str) -> Outcome {
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        self.ask(n, &key, of(line))
    }

    fn members_of(&mut self, n: u64, line: &str) -> BTreeSet<String> {
        let value = match self.set_of(n, line) {
            Outcome::Bulk(value) => Some(value),
            Outcome::Nil => None,
            other => panic!("{line}: {other:?}"),
        };
        let fields = Fields::new(value, Part::Members);
        let text = |item: &[u8]| String::from_utf8(item.to_vec()).expect("text");
        let all: Vec<_> = fields.iter().map(text).collect();
        let set: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(all.len(), set.len(), "no member comes twice");
        set
    }

    fn encoding_of(&mut self, n: u64, key: &str) -> Option<&'static str> {
        match self.ask(n, key, Action::Encoding) {
            Outcome::Int(number) => {
                let (kind, encoding) = Kind::of_encoding(number)?;
                assert_eq!(kind, Kind::Set);
                Some(encoding.name)
            }
            _ => None,
        }
    }
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn many(outcomes: &[i64]) -> Outcome {
    Outcome::Many(outcomes.iter().copied().map(Outcome::Int).collect())
}

/// Adds `count` members, a few at a time.
fn fill(w: &mut World, n: u64, key: &str, count: usize) {
    for first in (0..count).step_by(20) {
        let members = (first..count.min(first + 20)).map(|n| format!("member-{n}"));
        let line = format!("SADD {key} {}", members.collect::<Vec<_>>().join(" "));
        assert!(matches!(w.set_of(n, &line), Outcome::Int(_)));
    }
}

#[test]
fn a_set_is_the_same_wherever_it_is_asked_and_after_a_failover() {
    let mut w = World::new(31, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.set_of(3, "SADD s 3 1 2 1"), Outcome::Int(3));
    assert_eq!(w.encoding_of(1, "s"), Some("intset"));
    assert_eq!(w.set_of(1, "SADD s 70000 1"), Outcome::Int(1));
    assert_eq!(w.set_of(2, "SREM s 2 none"), Outcome::Int(1));
    assert_eq!(w.set_of(3, "SADD s word"), Outcome::Int(1));
    assert_eq!(w.encoding_of(3, "s"), Some("listpack"));
    let all = names(["1", "3", "70000", "word"]);
    for n in 1..=3 {
        assert_eq!(w.members_of(n, "SMEMBERS s"), all);
    }
    w.settle(Duration::from_secs(1));
    w.check_copies();
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.members_of(3, "SMEMBERS s"), all);
    assert_eq!(w.set_of(3, "SISMEMBER s word"), Outcome::Int(1));
    assert_eq!(w.set_of(3, "SMISMEMBER s 1 2 word x"), many(&[1, 0, 1, 0]));
    assert_eq!(w.set_of(3, "SCARD s"), Outcome::Int(4));
    assert_eq!(w.set_of(3, "SREM s 1 3 70000 word"), Outcome::Int(4));
    assert_eq!(w.ask(3, "s", Action::Exists), Outcome::Int(0));
}

#[test]
fn sets_strings_and_hashes_are_not_taken_for_each_other() {
    let mut w = World::new(32, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let wrong = Outcome::Failed(Failure::WrongType);
    w.set(1, "{t}s", "text");
    w.set_of(2, "HSET {t}h f 1");
    w.set_of(2, "SADD {t}m a");
    for line in [
        "SADD {t}s a",
        "SCARD {t}h",
        "SMEMBERS {t}h",
        "SPOP {t}h",
        "HGET {t}m a",
        "HSET {t}m a 1",
        "SUNION {t}m {t}h",
        "SINTER {t}none {t}s",
        "SDIFFSTORE {t}new {t}m {t}s",
        "SMOVE {t}m {t}h a",
        "SMOVE {t}s {t}m a",
    ] {
        assert_eq!(w.set_of(2, line), wrong, "{line}");
    }
    assert_eq!(w.get(1, "{t}m"), wrong);
    assert_eq!(w.set_of(1, "SMOVE {t}none {t}s a"), Outcome::Int(0));
    assert_eq!(w.members_of(1, "SMEMBERS {t}m"), names(["a"]));
    assert_eq!(w.ask(1, "{t}new", Action::Exists), Outcome::Int(0));
    // A result takes the place of any value.
    assert_eq!(
        w.set_of(1, "SUNIONSTORE {t}s {t}m {t}none"),
        Outcome::Int(1)
    );
    assert_eq!(w.members_of(2, "SMEMBERS {t}s"), names(["a"]));
    assert_eq!(
        w.set_of(1, "SINTERSTORE {t}h {t}m {t}none"),
        Outcome::Int(0)
    );
    assert_eq!(w.ask(1, "{t}h", Action::Exists), Outcome::Int(0));
}

#[test]
fn sets_together_are_what_they_are_for_a_model() {
    let mut w = World::new(33, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    // One of integers, one small, one of rows.
    w.set_of(1, "SADD {t}n 1 2 3 4 5");
    w.set_of(1, "SADD {t}w 2 3 a b member-7");
    fill(&mut w, 1, "{t}l", 300);
    w.set_of(2, "SADD {t}l 3 a");
    assert_eq!(form(&w, 1, "{t}l"), Some((true, 302)));
    let sets =
        ["n", "w", "l", "none"].map(|name| w.members_of(2, &format!("SMEMBERS {{t}}{name}")));
    for (a, b, c) in [(0, 1, 2), (2, 1, 0), (1, 0, 3), (2, 2, 1), (3, 0, 1)] {
        let keys = [a, b, c]
            .map(|n| format!("{{t}}{}", ["n", "w", "l", "none"][n]))
            .join(" ");
        let (one, two, three) = (&sets[a], &sets[b], &sets[c]);
        let union: BTreeSet<_> = one.union(two).cloned().collect();
        let union: BTreeSet<_> = union.union(three).cloned().collect();
        let common: BTreeSet<_> = one.intersection(two).cloned().collect();
        let common: BTreeSet<_> = common.intersection(three).cloned().collect();
        let left: BTreeSet<_> = one.difference(two).cloned().collect();
        let left: BTreeSet<_> = left.difference(three).cloned().collect();
        for (name, expected) in [("UNION", union), ("INTER", common.clone()), ("DIFF", left)] {
            assert_eq!(
                w.members_of(2, &format!("S{name} {keys}")),
                expected,
                "{name} {keys}"
            );
            let count = i64::try_from(expected.len()).expect("few");
            let stored = w.ask(2, "{t}to", of(&format!("S{name}STORE {{t}}to {keys}")));
            assert_eq!(stored, Outcome::Int(count), "{name} {keys}");
            assert_eq!(w.members_of(1, "SMEMBERS {t}to"), expected, "{name} {keys}");
        }
        let first = keys.split(' ').next().expect("a key").to_owned();
        for limit in [0, 1, 100] {
            let line = format!("SINTERCARD 3 {keys} LIMIT {limit}");
            let all = common.len() as i64;
            let most = if limit == 0 { all } else { all.min(limit) };
            assert_eq!(w.ask(2, &first, of(&line)), Outcome::Int(most), "{line}");
        }
    }
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn a_member_moves_from_set_to_set() {
    let mut w = World::new(34, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.set_of(1, "SADD {t}a 1 x");
    w.set_of(1, "SADD {t}b 1");
    for (line, moved) in [
        ("SMOVE {t}a {t}b none", 0),
        ("SMOVE {t}a {t}b x", 1),
        ("SMOVE {t}b {t}b x", 1),
        ("SMOVE {t}b {t}b none", 0),
        ("SMOVE {t}a {t}b 1", 1),
    ] {
        assert_eq!(w.set_of(2, line), Outcome::Int(moved), "{line}");
    }
    assert_eq!(w.ask(2, "{t}a", Action::Exists), Outcome::Int(0));
    assert_eq!(w.members_of(2, "SMEMBERS {t}b"), names(["1", "x"]));
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn what_is_popped_is_gone_and_was_there() {
    let mut w = World::new(35, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for count in [5, 400] {
        fill(&mut w, 1, "s", count);
        let mut left = w.members_of(1, "SMEMBERS s");
        assert_eq!(form(&w, 1, "s").map(|(table, _)| table), Some(count > 100));
        let Outcome::Bulk(one) = w.set_of(2, "SPOP s") else {
            panic!("nothing was there");
        };
        assert!(left.remove(std::str::from_utf8(&one).expect("text")));
        for wanted in [0, 2, count / 2, count] {
            let popped = w.members_of(2, &format!("SPOP s {wanted}"));
            assert_eq!(popped.len(), wanted.min(left.len()));
            assert!(popped.iter().all(|member| left.remove(member)));
            let rest = w.members_of(1, "SMEMBERS s");
            assert_eq!(rest, left);
        }
        assert_eq!(w.ask(1, "s", Action::Exists), Outcome::Int(0));
        assert_eq!(w.set_of(2, "SPOP s"), Outcome::Nil);
        assert_eq!(w.members_of(2, "SPOP s 3"), BTreeSet::new());
    }
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn a_new_copy_gets_large_sets_while_they_change() {
    let mut w = World::new(36, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for n in 0..8 {
        fill(&mut w, 1, &format!("l{n}"), 300);
        fill(&mut w, 1, &format!("s{n}"), 20);
        w.set_of(1, &format!("SADD i{n} 1 2 3"));
    }
    begin_copies(&mut w);
    for n in 0..300 {
        let key = format!("l{}", n % 8);
        w.set_of(1, &format!("SADD {key} member-{n} new-{n}"));
        w.set_of(1, &format!("SREM {key} member-{}", n + 1));
        w.set_of(1, &format!("SADD i{} {}", n % 8, n * 1_000));
        w.set_of(1, &format!("SADD s{} new-{n}", n % 8));
        if n % 50 == 7 {
            w.ask(1, &key, Action::Delete);
            fill(&mut w, 1, &key, 60);
        }
    }
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.settle(Duration::from_secs(1));
    w.check_copies();
    let keys: Vec<String> = (0..8)
        .flat_map(|n| ["l", "s", "i"].map(|k| format!("{k}{n}")))
        .collect();
    let all = |w: &mut World, n| {
        let lines = keys.iter().map(|key| format!("SMEMBERS {key}"));
        lines.map(|line| w.members_of(n, &line)).collect::<Vec<_>>()
    };
    let before = all(&mut w, 1);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(before, all(&mut w, 3));
}

#[test]
fn a_scan_of_a_large_set_comes_in_pages_and_misses_nothing_that_stays() {
    let mut w = World::new(37, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "s", 1_000);
    let (mut cursor, mut found, mut pages) = (0, BTreeSet::new(), 0);
    loop {
        let Outcome::Keys { next, keys } = w.set_of(2, &format!("SSCAN s {cursor} COUNT 50"))
        else {
            panic!("no page");
        };
        assert!(keys.len() <= 50);
        found.extend(keys);
        w.set_of(1, &format!("SADD s more-{pages}"));
        w.set_of(1, &format!("SREM s more-{}", pages / 2));
        (cursor, pages) = (next, pages + 1);
        if cursor == 0 {
            break;
        }
    }
    assert!(pages >= 20);
    assert!((0..1_000).all(|n| found.contains(format!("member-{n}").as_bytes())));
    let Outcome::Many(drawn) = w.set_of(2, "SRANDMEMBER s -5000") else {
        panic!("no members");
    };
    assert_eq!(drawn.len(), 5_000);
}
