//! Sorted sets on their way through copies, snapshots, splits, failovers and members of an older
//! level.

use super::hashes::{begin_copies, form, of};
use super::*;
use crate::command::{CommandReply, Shape};

/// Members with their scores, in order.
type Model = Vec<(f64, String)>;

impl World {
    fn zset_of(&mut self, n: u64, line: &str) -> Outcome {
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        self.ask(n, &key, of(line))
    }

    /// The texts of an answer.
    fn texts_of(&mut self, n: u64, line: &str) -> Vec<String> {
        match self.zset_of(n, line) {
            Outcome::Bulk(members) if line.contains("RANGE") => {
                let all = crate::value::items::Items(&members).map(<[u8]>::to_vec);
                all.map(|member| String::from_utf8(member).expect("text"))
                    .collect()
            }
            Outcome::Nil if line.contains("RANGE") => Vec::new(),
            other => texts(other),
        }
    }

    /// All members, which `ZRANGE` answers in order.
    fn scored(&mut self, n: u64, key: &str) -> Model {
        let all = self.texts_of(n, &format!("ZRANGE {key} 0 -1 WITHSCORES"));
        let pair = |pair: &[String]| (pair[1].parse().expect("a score"), pair[0].clone());
        all.chunks(2).map(pair).collect()
    }
}

fn texts(outcome: Outcome) -> Vec<String> {
    match outcome {
        Outcome::Many(all) => all.into_iter().flat_map(texts).collect(),
        Outcome::Bulk(value) => vec![String::from_utf8(value.to_vec()).expect("text")],
        Outcome::Int(number) => vec![number.to_string()],
        Outcome::Nil => vec!["nil".into()],
        other => panic!("{other:?}"),
    }
}

/// Adds `count` members, a few at a time.
fn fill(w: &mut World, n: u64, key: &str, count: usize) {
    for first in (0..count).step_by(20) {
        let members = (first..count.min(first + 20)).map(|n| format!(" {} member-{n}", n % 17));
        let line = format!("ZADD {key}{}", members.collect::<String>());
        assert!(matches!(w.zset_of(n, &line), Outcome::Int(_)));
    }
}

#[test]
fn a_sorted_set_is_the_same_wherever_it_is_asked_and_after_a_failover() {
    let mut w = World::new(41, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.zset_of(3, "ZADD z 3 c 1 a 2 b 1 a"), Outcome::Int(3));
    assert_eq!(w.zset_of(1, "ZADD z 2.5 a"), Outcome::Int(0));
    assert_eq!(w.texts_of(2, "ZRANGE z 0 -1"), ["b", "a", "c"]);
    assert_eq!(w.texts_of(2, "ZINCRBY z 0.25 c"), ["3.25"]);
    assert_eq!(w.texts_of(1, "ZMSCORE z a none c"), ["2.5", "nil", "3.25"]);
    w.settle(Duration::from_secs(1));
    w.check_copies();
    let all = w.scored(1, "z");
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.scored(3, "z"), all);
    assert_eq!(w.texts_of(3, "ZRANK z c WITHSCORE"), ["2", "3.25"]);
    assert_eq!(w.zset_of(3, "ZREVRANK z c"), Outcome::Int(0));
    let absent = w.zset_of(3, "ZRANK z none WITHSCORE");
    assert_eq!(Shape::LastScore.reply(absent), CommandReply::NilArray);
    assert_eq!(w.zset_of(3, "ZREM z a b c d"), Outcome::Int(3));
    assert_eq!(w.ask(3, "z", Action::Exists), Outcome::Int(0));
}

#[test]
fn conditions_of_zadd_are_those_of_redis() {
    let mut w = World::new(42, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for (line, answer, scores) in [
        ("ZADD z 1 a 2 b", "2", "a1 b2"),
        ("ZADD z NX 9 a 3 c", "1", "a1 b2 c3"),
        ("ZADD z XX CH 5 a 9 d", "1", "b2 c3 a5"),
        ("ZADD z GT CH 4 a 4 b 1 c", "1", "c3 b4 a5"),
        ("ZADD z LT CH 4 a 9 b 1 c", "2", "c1 a4 b4"),
        ("ZADD z GT 7 new", "1", "c1 a4 b4 new7"),
        ("ZADD z INCR 2 a", "6", "c1 b4 a6 new7"),
        ("ZADD z NX INCR 2 a", "nil", "c1 b4 a6 new7"),
        ("ZADD z XX INCR 2 none", "nil", "c1 b4 a6 new7"),
        ("ZADD z GT INCR -2 a", "nil", "c1 b4 a6 new7"),
        ("ZADD z CH 1 c 1 c 2 c", "1", "c2 b4 a6 new7"),
        ("ZINCRBY z inf c", "inf", "b4 a6 new7 cinf"),
    ] {
        assert_eq!(w.texts_of(1, line), [answer], "{line}");
        let held = w.texts_of(1, "ZRANGE z 0 -1 WITHSCORES");
        let held: Vec<String> = held.chunks(2).map(|pair| pair.concat()).collect();
        assert_eq!(held.join(" "), scores, "{line}");
    }
    let nan = w.zset_of(1, "ZINCRBY z -inf c");
    assert_eq!(
        Shape::Score.reply(nan),
        CommandReply::Error("ERR resulting score is not a number (NaN)".into())
    );
}

#[test]
fn sorted_sets_and_other_kinds_are_not_taken_for_each_other() {
    let mut w = World::new(43, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let wrong = Outcome::Failed(Failure::WrongType);
    w.set(1, "{t}s", "text");
    w.zset_of(2, "SADD {t}m a");
    w.zset_of(2, "ZADD {t}z 1 a");
    for line in [
        "ZADD {t}s 1 a",
        "ZCARD {t}m",
        "SADD {t}z a",
        "HGET {t}z a",
        "ZRANGESTORE {t}new {t}m 0 -1",
        "SUNIONSTORE {t}new {t}z",
    ] {
        assert_eq!(w.zset_of(2, line), wrong, "{line}");
    }
    let union = w.ask(2, "{t}z", of("ZUNION 2 {t}z {t}s"));
    assert_eq!(union, wrong);
    // Members of a set have the score 1.
    let union = w.ask(2, "{t}z", of("ZUNION 2 {t}z {t}m WITHSCORES"));
    assert_eq!(texts(union), ["a", "2"]);
}

#[test]
fn ranges_and_ranks_are_those_of_a_sorted_list() {
    let mut w = World::new(44, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for count in [40, 700] {
        fill(&mut w, 1, "z", count);
        assert_eq!(form(&w, 1, "z").map(|(table, _)| table), Some(count > 100));
        let mut model: Model = (0..count)
            .map(|n| ((n % 17) as f64, format!("member-{n}")))
            .collect();
        model.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        assert_eq!(w.scored(2, "z"), model);
        let names =
            |part: &[(f64, String)]| part.iter().map(|(_, m)| m.clone()).collect::<Vec<_>>();
        for (rank, (_, member)) in model.iter().enumerate().step_by(37) {
            let found = w.zset_of(2, &format!("ZRANK z {member}"));
            assert_eq!(found, Outcome::Int(rank as i64));
        }
        let between = |least: f64, most: f64| -> Model {
            let all = model.iter();
            let part = all.filter(|(score, _)| *score >= least && *score <= most);
            part.cloned().collect()
        };
        assert_eq!(w.texts_of(2, "ZRANGE z 3 9"), names(&model[3..10]));
        assert_eq!(
            w.texts_of(2, "ZRANGE z -5 -2"),
            names(&model[count - 5..count - 1])
        );
        assert!(w.texts_of(2, "ZRANGE z 5 2").is_empty());
        let mut back = names(&model);
        back.reverse();
        assert_eq!(w.texts_of(2, "ZREVRANGE z 2 6"), back[2..7]);
        assert_eq!(w.texts_of(2, "ZRANGE z 2 6 REV"), back[2..7]);
        assert_eq!(w.texts_of(2, "ZREVRANGE z 800 900"), [""; 0]);
        assert_eq!(w.texts_of(2, "ZREVRANGE none 5 7"), [""; 0]);
        assert_eq!(
            w.texts_of(2, "ZRANGEBYSCORE z 3 5"),
            names(&between(3.0, 5.0))
        );
        assert_eq!(
            w.texts_of(2, "ZRANGEBYSCORE z (3 (5"),
            names(&between(4.0, 4.0))
        );
        assert_eq!(
            w.texts_of(2, "ZRANGE z +inf (14 BYSCORE REV LIMIT 1 3"),
            back[1..4]
        );
        let counted = between(2.0, 11.0).len() as i64;
        assert_eq!(w.zset_of(2, "ZCOUNT z (1 11"), Outcome::Int(counted));
        assert_eq!(
            w.zset_of(2, "ZREMRANGEBYSCORE z 2 11"),
            Outcome::Int(counted)
        );
        model.retain(|(score, _)| *score < 2.0 || *score > 11.0);
        assert_eq!(w.zset_of(2, "ZREMRANGEBYRANK z 1 3"), Outcome::Int(3));
        model.drain(1..4);
        assert_eq!(w.scored(1, "z"), model);
        let popped = w.texts_of(2, "ZPOPMAX z 2");
        let (score, member) = model.pop().expect("one is left");
        assert_eq!(popped[..2], [member, score.to_string()]);
        model.pop();
        let popped = w.texts_of(2, "ZPOPMIN z");
        assert_eq!(popped[0], model.remove(0).1);
        assert_eq!(w.scored(1, "z"), model);
        w.settle(Duration::from_secs(1));
        w.check_copies();
        w.ask(1, "z", Action::Delete);
    }
    w.zset_of(1, "ZADD l 0 a 0 b 0 c 0 d");
    assert_eq!(w.texts_of(2, "ZRANGEBYLEX l [b (d"), ["b", "c"]);
    assert_eq!(w.texts_of(2, "ZREVRANGEBYLEX l + (b LIMIT 0 1"), ["d"]);
    assert_eq!(w.zset_of(2, "ZLEXCOUNT l - [c"), Outcome::Int(3));
    assert_eq!(w.zset_of(2, "ZREMRANGEBYLEX l (a +"), Outcome::Int(3));
}

#[test]
fn sorted_sets_together_are_what_they_are_for_redis() {
    let mut w = World::new(45, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.zset_of(1, "ZADD {t}a 1 x 2 y 3 z");
    w.zset_of(1, "ZADD {t}b 10 y 20 z 30 w");
    for (line, expected) in [
        ("ZUNION 2 {t}a {t}b WITHSCORES", "x 1 y 12 z 23 w 30"),
        (
            "ZINTER 2 {t}a {t}b WEIGHTS 2 1 AGGREGATE MAX WITHSCORES",
            "y 10 z 20",
        ),
        ("ZINTER 2 {t}a {t}b AGGREGATE MIN WITHSCORES", "y 2 z 3"),
        ("ZDIFF 2 {t}a {t}b", "x"),
        ("ZDIFF 2 {t}a {t}none WITHSCORES", "x 1 y 2 z 3"),
        ("ZINTERCARD 2 {t}a {t}b LIMIT 1", "1"),
        ("ZMPOP 2 {t}none {t}a MAX COUNT 2", "{t}a z 3 y 2"),
    ] {
        let answer = w.ask(2, "{t}a", of(line));
        assert_eq!(texts(answer).join(" "), expected, "{line}");
    }
    for (line, stored, members) in [
        ("ZUNIONSTORE {t}to 2 {t}a {t}b", 4, "x 1 y 10 z 20 w 30"),
        ("ZINTERSTORE {t}to 2 {t}to {t}b", 3, "y 20 z 40 w 60"),
        ("ZRANGESTORE {t}to {t}to 1 -1", 2, "z 40 w 60"),
        ("ZDIFFSTORE {t}to 2 {t}to {t}b", 0, ""),
    ] {
        assert_eq!(w.zset_of(2, line), Outcome::Int(stored), "{line}");
        let held = w.texts_of(1, "ZRANGE {t}to 0 -1 WITHSCORES");
        assert_eq!(held.join(" "), members, "{line}");
    }
    assert_eq!(w.ask(1, "{t}to", Action::Exists), Outcome::Int(0));
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

/// The order is derived from the rows. A copy that got them by a snapshot and a log must have it.
#[test]
fn a_new_copy_gets_large_sorted_sets_while_they_change_and_leads_them() {
    let mut w = World::new(46, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for n in 0..8 {
        fill(&mut w, 1, &format!("l{n}"), 300);
        fill(&mut w, 1, &format!("s{n}"), 20);
    }
    begin_copies(&mut w);
    for n in 0..300 {
        let key = format!("l{}", n % 8);
        w.zset_of(1, &format!("ZADD {key} {n} member-{n} 7 new-{n}"));
        w.zset_of(1, &format!("ZINCRBY {key} -3.5 member-{}", n / 2));
        w.zset_of(1, &format!("ZREM {key} member-{}", n + 1));
        w.zset_of(1, &format!("ZADD s{} {n} new-{n}", n % 8));
        if n % 50 == 7 {
            w.ask(1, &key, Action::Delete);
            fill(&mut w, 1, &key, 160);
        }
    }
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.settle(Duration::from_secs(1));
    w.check_copies();
    let keys: Vec<String> = (0..8)
        .flat_map(|n| ["l", "s"].map(|k| format!("{k}{n}")))
        .collect();
    let all = |w: &mut World, n| keys.iter().map(|key| w.scored(n, key)).collect::<Vec<_>>();
    let before = all(&mut w, 1);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    let after = all(&mut w, 3);
    assert_eq!(before, after);
    for (key, members) in keys.iter().zip(&after) {
        assert!(members.is_sorted_by(|a, b| a <= b), "{key}");
        let (_, member) = &members[members.len() / 2];
        let rank = w.zset_of(3, &format!("ZRANK {key} {member}"));
        assert_eq!(rank, Outcome::Int((members.len() / 2) as i64));
    }
}

#[test]
fn random_changes_of_scores_keep_the_order() {
    let mut w = World::new(47, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let mut random = 47_u64;
    let mut below = |end: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % end
    };
    let mut model = std::collections::BTreeMap::new();
    for _ in 0..1_500 {
        let member = format!("member-number-{}", below(300));
        if below(5) == 0 {
            let gone = i64::from(model.remove(&member).is_some());
            assert_eq!(
                w.zset_of(1, &format!("ZREM z {member}")),
                Outcome::Int(gone)
            );
        } else {
            let score = below(80) as f64 / 4.0 - 10.0;
            w.zset_of(1, &format!("ZADD z {score} {member}"));
            model.insert(member, score);
        }
    }
    let mut expected: Model = model.into_iter().map(|(m, s)| (s, m)).collect();
    expected.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    assert_eq!(w.scored(1, "z"), expected);
}

/// What was a table is one value again, at each copy, with its deadline.
#[test]
fn collections_that_are_small_again_are_one_value() {
    let mut w = World::new(49, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    for (add, value, remove, count) in [
        ("HSET k", " v", "HDEL k", "HLEN k"),
        ("SADD k", "", "SREM k", "SCARD k"),
        ("ZADD k", "", "ZREM k", "ZCARD k"),
    ] {
        let member = |n: usize| format!("member-number-{n}");
        let scored = add.starts_with('Z');
        let given = |n: usize| {
            let score = if scored { " 1" } else { "" };
            format!("{score} {}{value}", member(n))
        };
        w.zset_of(
            1,
            &format!("{add}{}", (0..200).map(given).collect::<String>()),
        );
        w.zset_of(1, "EXPIRE k 1000");
        assert_eq!(form(&w, 1, "k").map(|(table, _)| table), Some(true));
        for n in 0..195 {
            w.zset_of(2, &format!("{remove} {}", member(n)));
        }
        assert_eq!(form(&w, 1, "k").map(|(table, _)| table), Some(false));
        assert_eq!(w.zset_of(3, count), Outcome::Int(5));
        assert!(matches!(w.zset_of(3, "TTL k"), Outcome::Int(1..)));
        w.zset_of(1, &format!("{add}{}", given(0)));
        assert_eq!(w.zset_of(3, count), Outcome::Int(6));
        w.settle(Duration::from_secs(1));
        w.check_copies();
        w.ask(1, "k", Action::Delete);
    }
}

/// A copy may run a version that has no sorted sets: nothing of them may reach it.
#[test]
fn while_a_member_speaks_an_older_level_there_are_no_sorted_sets() {
    let mut w = World::new(48, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.propose(|t| t.level = doyen_placement::level::SORTED - 1);
    w.settle(Duration::from_millis(50));
    let old = Outcome::Failed(Failure::OldMembers);
    for n in 1..=2 {
        for line in [
            "ZADD s 1 a",
            "ZCARD s",
            "ZUNIONSTORE s 1 s",
            "ZRANGESTORE s s 0 1",
        ] {
            assert_eq!(w.zset_of(n, line), old, "{line}");
        }
        assert_eq!(w.transact(n, &[], [("s", of("ZADD s 1 a"))]), old);
    }
    assert_eq!(w.zset_of(2, "SADD h f"), Outcome::Int(1));
    assert_eq!(w.ask(2, "s", Action::Exists), Outcome::Int(0));
}
