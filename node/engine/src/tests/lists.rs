//! Lists on their way through copies, snapshots, failovers and members of an older level.

use super::hashes::{begin_copies, form, of};
use super::*;
use crate::command::{CommandReply, Shape};
use std::collections::VecDeque;

impl World {
    fn list_of(&mut self, n: u64, line: &str) -> Outcome {
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        self.ask(n, &key, of(line))
    }

    /// All elements.
    fn elements(&mut self, n: u64, key: &str) -> Vec<String> {
        listed(self.list_of(n, &format!("LRANGE {key} 0 -1")))
    }

    /// Gives a list elements at its end.
    fn grow(&mut self, n: u64, key: &str, count: usize) {
        for first in (0..count).step_by(50) {
            let all = (first..count.min(first + 50)).map(|n| format!(" element-number-{n}"));
            let line = format!("RPUSH {key}{}", all.collect::<String>());
            assert!(matches!(self.list_of(n, &line), Outcome::Int(_)));
        }
    }
}

/// The elements of a range.
fn listed(outcome: Outcome) -> Vec<String> {
    let text = |item: &[u8]| String::from_utf8(item.to_vec()).expect("text");
    match outcome {
        Outcome::Nil => Vec::new(),
        Outcome::Bulk(all) => crate::value::items::Items(&all).map(text).collect(),
        other => panic!("{other:?}"),
    }
}

/// An answer as text.
fn shown(outcome: Outcome) -> String {
    match outcome {
        Outcome::Ok => "ok".into(),
        Outcome::Nil => "nil".into(),
        Outcome::Int(number) => number.to_string(),
        Outcome::Bulk(value) => String::from_utf8(value.to_vec()).expect("text"),
        Outcome::Many(all) => {
            let all: Vec<String> = all.into_iter().map(shown).collect();
            format!("[{}]", all.join(" "))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_on_lists_answer_what_redis_answers() {
    let mut w = World::new(61, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    for (line, answer, held) in [
        ("RPUSH {t}l a b c", "3", "a b c"),
        ("LPUSH {t}l y x", "5", "x y a b c"),
        ("LPUSHX {t}none a", "0", "x y a b c"),
        ("RPUSHX {t}l d", "6", "x y a b c d"),
        ("LLEN {t}l", "6", "x y a b c d"),
        ("LINDEX {t}l -1", "d", "x y a b c d"),
        ("LINDEX {t}l 6", "nil", "x y a b c d"),
        ("LSET {t}l 1 a", "ok", "x a a b c d"),
        ("LSET {t}l -7 a", "0", "x a a b c d"),
        ("LSET {t}none 0 a", "nil", "x a a b c d"),
        ("LINSERT {t}l BEFORE b a", "7", "x a a a b c d"),
        ("LINSERT {t}l after d e", "8", "x a a a b c d e"),
        ("LINSERT {t}l BEFORE zz a", "-1", "x a a a b c d e"),
        ("LINSERT {t}none BEFORE zz a", "0", "x a a a b c d e"),
        ("LPOS {t}l a", "1", "x a a a b c d e"),
        ("LPOS {t}l a RANK 2", "2", "x a a a b c d e"),
        ("LPOS {t}l a RANK -1 COUNT 2", "[3 2]", "x a a a b c d e"),
        ("LPOS {t}l a COUNT 0 MAXLEN 3", "[1 2]", "x a a a b c d e"),
        ("LPOS {t}l zz", "nil", "x a a a b c d e"),
        ("LPOS {t}l zz COUNT 1", "[]", "x a a a b c d e"),
        ("LREM {t}l -2 a", "2", "x a b c d e"),
        ("LREM {t}l 0 zz", "0", "x a b c d e"),
        ("LPOP {t}l", "x", "a b c d e"),
        ("RPOP {t}l 2", "[e d]", "a b c"),
        ("LPOP {t}l 0", "[]", "a b c"),
        ("LMOVE {t}l {t}l LEFT RIGHT", "a", "b c a"),
        ("RPOPLPUSH {t}l {t}other", "a", "b c"),
        ("LMOVE {t}other {t}l LEFT LEFT", "a", "a b c"),
        ("LMOVE {t}other {t}l LEFT LEFT", "nil", "a b c"),
        ("LMPOP 2 {t}none {t}l RIGHT COUNT 2", "[{t}l [c b]]", "a"),
        ("RPUSH {t}l b c d e", "5", "a b c d e"),
        ("LTRIM {t}l 1 -2", "ok", "b c d"),
        ("LRANGE {t}l 2 1", "nil", "b c d"),
        ("LTRIM {t}l 5 9", "ok", ""),
        ("LPOP {t}l", "nil", ""),
        ("LPOP {t}l 2", "nil", ""),
    ] {
        let answer_of = w.ask(2, "{t}l", Action::Get);
        assert!(!matches!(answer_of, Outcome::Bulk(_)));
        let key = line
            .split(' ')
            .find(|word| word.starts_with("{t}"))
            .unwrap();
        let got = w.ask(3, key, of(line));
        assert_eq!(shown(got), answer, "{line}");
        assert_eq!(w.elements(1, "{t}l").join(" "), held, "{line}");
    }
    assert_eq!(w.ask(1, "{t}l", Action::Exists), Outcome::Int(0));
    assert_eq!(w.ask(1, "{t}other", Action::Exists), Outcome::Int(0));
    w.settle(Duration::from_secs(1));
    w.check_copies();
    for (outcome, text) in [
        (Outcome::Nil, "ERR no such key"),
        (Outcome::Int(0), "ERR index out of range"),
    ] {
        let reply = Shape::Indexed.reply(outcome);
        assert_eq!(reply, CommandReply::Error(text.into()));
    }
}

#[test]
fn lists_and_other_kinds_are_not_taken_for_each_other() {
    let mut w = World::new(62, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let wrong = Outcome::Failed(Failure::WrongType);
    w.set(1, "{t}s", "text");
    w.list_of(2, "RPUSH {t}l a");
    w.list_of(2, "SADD {t}m a");
    for line in [
        "RPUSH {t}s a",
        "LLEN {t}m",
        "SADD {t}l a",
        "HGET {t}l a",
        "ZADD {t}l 1 a",
        "APPEND {t}l a",
        "LMOVE {t}l {t}s LEFT LEFT",
        "LMOVE {t}s {t}l LEFT LEFT",
        "SUNIONSTORE {t}new {t}l",
    ] {
        assert_eq!(w.list_of(2, line), wrong, "{line}");
    }
    assert_eq!(w.elements(1, "{t}l"), ["a"]);
}

/// The only element of a list that is turned goes nowhere, and its key keeps its deadline.
#[test]
fn a_list_that_is_turned_keeps_its_deadline() {
    let mut w = World::new(63, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.list_of(1, "RPUSH l a");
    w.list_of(1, "EXPIRE l 1000");
    assert_eq!(shown(w.list_of(1, "RPOPLPUSH l l")), "a");
    assert_eq!(w.elements(1, "l"), ["a"]);
    w.list_of(1, "RPUSH l b");
    w.list_of(1, "RPOPLPUSH l l");
    w.grow(1, "l", 400);
    w.list_of(1, "LTRIM l 0 1");
    assert_eq!(w.elements(1, "l"), ["b", "a"]);
    let Outcome::Int(left) = w.ask(1, "l", Action::PTtl) else {
        panic!("no deadline")
    };
    assert!((900_000..=1_000_000).contains(&left), "{left}");
}

#[test]
fn random_edits_are_those_of_a_vector_on_every_copy_and_after_a_failover() {
    let mut w = World::new(64, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let mut random = 64_u64;
    let mut below = |end: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % end
    };
    let mut model = VecDeque::new();
    w.grow(1, "l", 200);
    model.extend((0..200).map(|n| format!("element-number-{n}")));
    for n in 0..1_200 {
        let (length, element) = (model.len(), format!("value-{}", below(30)));
        let at = below(length + 1);
        match below(9) {
            0 | 1 => {
                w.list_of(1, &format!("RPUSH l {element} more-{n}"));
                model.extend([element, format!("more-{n}")]);
            }
            2 => {
                w.list_of(1, &format!("LPUSH l {element}"));
                model.push_front(element);
            }
            3 => assert_eq!(
                shown(w.list_of(1, "LPOP l")),
                model.pop_front().unwrap_or("nil".into())
            ),
            4 => assert_eq!(
                shown(w.list_of(1, "RPOP l")),
                model.pop_back().unwrap_or("nil".into())
            ),
            5 if at < length => {
                w.list_of(1, &format!("LSET l {at} {element}"));
                model[at] = element;
            }
            6 => {
                let found = model.iter().position(|held| *held == element);
                let put = w.list_of(1, &format!("LINSERT l BEFORE {element} inserted-{n}"));
                match found {
                    Some(at) => model.insert(at, format!("inserted-{n}")),
                    None => assert!(matches!(put, Outcome::Int(-1 | 0))),
                }
            }
            7 if n % 5 == 0 => {
                let before = model.len();
                model.retain(|held| *held != element);
                let gone = w.list_of(1, &format!("LREM l 0 {element}"));
                assert_eq!(gone, Outcome::Int((before - model.len()) as i64));
            }
            8 if n % 97 == 0 => {
                w.list_of(1, "LTRIM l 20 -20");
                let kept = 20..length.saturating_sub(19).max(20);
                model = model
                    .drain(kept.start.min(length)..kept.end.min(length))
                    .collect();
            }
            _ => {}
        }
        if n % 100 == 0 {
            assert_eq!(w.elements(2, "l"), Vec::from(model.clone()), "after {n}");
        }
    }
    assert_eq!(form(&w, 1, "l").map(|(table, _)| table), Some(true));
    w.settle(Duration::from_secs(1));
    w.check_copies();
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.elements(3, "l"), Vec::from(model));
}

#[test]
fn a_new_copy_gets_large_lists_while_they_change_and_leads_them() {
    let mut w = World::new(65, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for n in 0..8 {
        w.grow(1, &format!("l{n}"), 400);
        w.grow(1, &format!("s{n}"), 5);
    }
    begin_copies(&mut w);
    for n in 0..300 {
        let key = format!("l{}", n % 8);
        w.list_of(1, &format!("RPUSH {key} pushed-{n}"));
        w.list_of(1, &format!("LPOP {key} 2"));
        w.list_of(1, &format!("LREM {key} 1 element-number-{}", n + 20));
        w.list_of(1, &format!("LPUSH s{} new-{n}", n % 8));
        if n % 50 == 7 {
            w.list_of(1, &format!("LTRIM {key} 0 1"));
            w.grow(1, &key, 160);
        }
    }
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.settle(Duration::from_secs(1));
    w.check_copies();
    let keys: Vec<String> = (0..8)
        .flat_map(|n| ["l", "s"].map(|k| format!("{k}{n}")))
        .collect();
    let all = |w: &mut World, n| {
        keys.iter()
            .map(|key| w.elements(n, key))
            .collect::<Vec<_>>()
    };
    let before = all(&mut w, 1);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(before, all(&mut w, 3));
}

/// A transaction reads what it wrote, also where a list becomes large and small again.
#[test]
fn a_transaction_edits_a_list_again_and_again() {
    let mut w = World::new(66, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let many: String = (0..60).map(|n| format!(" element-number-{n}")).collect();
    let lines = [
        format!("RPUSH l{many}"),
        "LPUSH l first".to_owned(),
        "LTRIM l 0 2".to_owned(),
        format!("RPUSH l{many}"),
        "LLEN l".to_owned(),
        "RPOP l".to_owned(),
        "DEL l".to_owned(),
        format!("RPUSH l{many}"),
        "LSET l 59 last".to_owned(),
        "LINDEX l -1".to_owned(),
    ];
    let steps: Vec<_> = lines.iter().map(|line| ("l", of(line))).collect();
    let answers = w.transact(1, &[], steps);
    assert_eq!(
        shown(answers),
        "[60 61 ok 63 63 element-number-59 1 60 ok last]"
    );
    let all = w.elements(2, "l");
    assert_eq!((all.len(), &*all[59]), (60, "last"));
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

/// Regression: the outcome had a list too many within each other, and ended the connection.
#[test]
fn a_transaction_of_another_node_pops_from_the_first_list_that_has_elements() {
    let mut w = World::new(68, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.list_of(1, "RPUSH l a b");
    let answers = w.transact(2, &[], [("l", of("LMPOP 1 l LEFT COUNT 5"))]);
    assert_eq!(shown(answers), "[[l [a b]]]");
}

/// A copy may run a version that has no lists: nothing of them may reach it.
#[test]
fn while_a_member_speaks_an_older_level_there_are_no_lists() {
    let mut w = World::new(67, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.propose(|t| t.level = doyen_placement::level::SORTED - 1);
    w.settle(Duration::from_millis(50));
    let old = Outcome::Failed(Failure::OldMembers);
    for n in 1..=2 {
        for line in ["RPUSH l a", "LLEN l", "LMOVE l l LEFT LEFT", "LPOP l"] {
            assert_eq!(w.list_of(n, line), old, "{line}");
        }
        assert_eq!(w.transact(n, &[], [("l", of("LPUSH l a"))]), old);
    }
    assert_eq!(w.ask(2, "l", Action::Exists), Outcome::Int(0));
}
