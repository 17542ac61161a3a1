//! Ranges of rows that are removed by one record, and freed in steps.

use super::hashes::{form, of};
use super::*;
use std::collections::BTreeMap as Model;

const KEY: &str = "z";

/// Node 1 leads, node 2 has the copies.
fn world(seed: u64) -> World {
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    for node in w.nodes.values_mut() {
        node.shard.cx.host.limits.chunk_bytes = 4 << 10;
    }
    w.settle(Duration::from_millis(50));
    w
}

impl World {
    fn does(&mut self, line: &str) -> Outcome {
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        self.ask(1, &key, of(line))
    }

    fn adds(&mut self, numbers: impl Iterator<Item = usize>) {
        let numbers: Vec<usize> = numbers.collect();
        for some in numbers.chunks(200) {
            let members = some.iter().map(|n| format!(" {n} member-{n}"));
            let line = format!("ZADD {KEY}{}", members.collect::<String>());
            assert!(matches!(self.does(&line), Outcome::Int(_)));
        }
    }

    /// The members of the sorted set at a node, in order.
    fn members_at(&mut self, n: u64) -> Vec<String> {
        match self.ask(n, KEY, of(&format!("ZRANGE {KEY} 0 -1"))) {
            Outcome::Bulk(members) => crate::value::items::Items(&members)
                .map(|member| String::from_utf8(member.to_vec()).expect("text"))
                .collect(),
            Outcome::Nil => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Rows of the sorted set that a node has, hidden or not, and entries of its log.
    fn rows_and_log(&self, n: u64) -> (usize, u64) {
        let held = self.nodes[&n].shard.slots.iter();
        let mut held = held.filter_map(|slot| slot.held.as_deref());
        let has = |held: &&crate::role::partition::Held| {
            let store = &held.store;
            let pieces = store.following(&None);
            pieces.filter(|piece| piece.of.is_some()).count() > 0
        };
        held.find(has).map_or((0, 0), |held| {
            let pieces = held.store.following(&None);
            let rows = pieces.filter(|piece| piece.of.is_some()).count();
            (rows, held.log.last())
        })
    }
}

fn names(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|n| format!("member-{n}")).collect()
}

#[test]
fn a_long_range_is_removed_by_one_record_and_freed_in_steps() {
    let mut w = world(1);
    w.adds(0..6_000);
    w.settle(Duration::from_millis(200));
    let (rows, log) = w.rows_and_log(1);
    assert_eq!(rows, 6_000);
    let token = w.submit(1, KEY, of(&format!("ZREMRANGEBYSCORE {KEY} 1000 4999")));
    assert_eq!(w.rows_and_log(1), (6_000, log + 1), "nothing is freed yet");
    assert_eq!(w.outcome(token), Outcome::Int(4_000));
    assert_eq!(form(&w, 1, KEY), Some((true, 2_000)));
    assert_eq!(w.does(&format!("ZCARD {KEY}")), Outcome::Int(2_000));
    assert_eq!(
        w.does(&format!("ZRANK {KEY} member-5000")),
        Outcome::Int(1_000)
    );
    assert_eq!(w.does(&format!("ZSCORE {KEY} member-1000")), Outcome::Nil);
    let left = names((0..1_000).chain(5_000..6_000));
    assert_eq!(w.members_at(3), left);
    let bytes = w.nodes[&2].shard.stats().memory_bytes;
    let mut most = 0;
    for _ in 0..200 {
        let before = w.rows_and_log(1).0;
        w.now = w.now + Duration::from_millis(5);
        let now = w.now;
        w.nodes.get_mut(&1).unwrap().shard.tick(now);
        most = most.max(before - w.rows_and_log(1).0);
        w.settle(Duration::from_millis(5));
    }
    assert!(most > 0 && most <= 1_000, "{most} rows in one tick");
    for n in [1, 2] {
        assert_eq!(w.rows_and_log(n).0, 2_000, "at {n}");
    }
    assert!(w.nodes[&2].shard.stats().memory_bytes < bytes);
    assert_eq!(w.members_at(2), left);
    w.check_copies();
}

#[test]
fn what_is_written_into_a_range_after_its_removal_stays() {
    let mut w = world(2);
    w.adds(0..1_000);
    let line = format!("ZREMRANGEBYRANK {KEY} 100 899");
    assert_eq!(w.does(&line), Outcome::Int(800));
    // Members that are hidden, and another one between them.
    assert_eq!(
        w.does(&format!("ZADD {KEY} 300 member-300 5 member-400 350.5 new")),
        Outcome::Int(3)
    );
    let mut left = names((0..100).chain(900..1_000));
    left.insert(100, "member-300".into());
    left.insert(101, "new".into());
    left.insert(5, "member-400".into());
    for _ in 0..3 {
        assert_eq!(w.members_at(1), left);
        w.settle(Duration::from_millis(100));
    }
    assert_eq!(w.rows_and_log(2).0, left.len());
    w.check_copies();
    let line = format!("ZREMRANGEBYLEX {KEY} - +");
    assert!(matches!(w.does(&line), Outcome::Int(_)));
}

#[test]
fn a_removal_of_all_but_a_few_members_drops_the_rows_at_once() {
    let mut w = world(3);
    w.adds(0..2_000);
    let line = format!("ZREMRANGEBYRANK {KEY} 2 -2");
    assert_eq!(w.does(&line), Outcome::Int(1_997));
    assert_eq!(form(&w, 1, KEY), Some((false, 0)));
    assert_eq!(w.members_at(1), names([0, 1, 1_999].into_iter()));
    w.settle(Duration::from_millis(200));
    w.check_copies();
}

#[test]
fn a_removal_that_no_majority_knew_is_undone() {
    let mut w = World::new(4, 3, |_| vec![1, 2, 3]);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    let members: String = (0..1_000).map(|n| format!(" {n} m{n}")).collect();
    w.ask(1, &key, of(&format!("ZADD {key}{members}")));
    w.settle(Duration::from_millis(200));
    let before = w.contents(2, 0);
    w.submit(1, &key, of(&format!("ZREMRANGEBYRANK {key} 10 989")));
    w.submit(1, &key, of(&format!("ZADD {key} 500 m500 501 other")));
    w.submit(1, &key, of(&format!("ZREMRANGEBYRANK {key} 5 15")));
    w.deliver((1, 3, Lane::Calls), true);
    assert_ne!(w.contents(3, 0), before);
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(800));
    let card = w.ask(3, &key, of(&format!("ZCARD {key}")));
    assert_eq!(card, Outcome::Int(1_000));
    let rank = w.ask(2, &key, of(&format!("ZRANK {key} m500")));
    assert_eq!(rank, Outcome::Int(500));
    assert_eq!(w.contents(3, 0), before);
    w.check_copies();
}

#[test]
fn a_newcomer_that_comes_amid_removals_gets_the_same_rows() {
    for seed in 0..6 {
        let mut w = World::new(20 + seed, 3, |_| vec![1, 2]);
        for node in w.nodes.values_mut() {
            node.shard.cx.host.limits.chunk_bytes = 2 << 10;
        }
        w.settle(Duration::from_millis(50));
        let key = key_of(0);
        let add = |w: &mut World, from: usize| {
            let members = (from..from + 500).map(|n| format!(" {} m{n}", n * 37 % 4_000));
            let line = format!("ZADD {key}{}", members.collect::<String>());
            w.submit(1, &key, of(&line));
        };
        (0..8).for_each(|n| add(&mut w, n * 500));
        w.settle(Duration::from_millis(50));
        w.submit(1, &key, of(&format!("ZREMRANGEBYSCORE {key} 100 700")));
        w.propose(|t| {
            partition_mut(t, PartitionId(0)).replicas.push(Replica {
                member: id(3),
                state: ReplicaState::Learner,
            });
        });
        for n in 0..60 {
            w.agree(true);
            let (first, length) = (w.rng.below(3_000), w.rng.below(900));
            let range = format!("ZREMRANGEBYSCORE {key} {first} {}", first + length);
            match n % 4 {
                0 => _ = w.submit(1, &key, of(&range)),
                1 => add(&mut w, first as usize),
                _ => {}
            }
            let wires: Vec<_> = w.wires.keys().copied().collect();
            for wire in wires {
                if !w.rng.one_in(3) {
                    w.deliver(wire, true);
                }
            }
            w.pass(Duration::from_millis(1));
        }
        w.settle(Duration::from_secs(2));
        let in_sync = w.tables[w.committed].keyspaces[0].partitions[0].in_sync();
        assert_eq!(in_sync.count(), 3, "seed {seed}");
        assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
        w.check_copies();
    }
}

#[test]
fn a_transaction_removes_ranges_among_its_other_changes() {
    let mut w = world(5);
    w.adds(0..1_000);
    let step = |line: &str| (KEY, of(&line.replace("KEY", KEY)));
    let outcome = w.transact(
        1,
        &[],
        [
            step("ZADD KEY 300 member-300 301.5 mine 20 member-21"),
            step("ZREMRANGEBYSCORE KEY 100 899"),
            step("ZADD KEY 400 member-400 500 again"),
            step("ZCARD KEY"),
            step("PEXPIRE KEY 100000"),
            step("ZREMRANGEBYSCORE KEY 450 950"),
            step("ZCARD KEY"),
            step("ZADD KEY 500 again"),
        ],
    );
    let counts = [1, 801, 2, 202, 1, 52, 150, 1];
    assert_eq!(outcome, Outcome::Many(counts.map(Outcome::Int).to_vec()));
    let mut left = names((0..100).chain(951..1_000));
    left.swap(20, 21);
    left.sort_by_key(|name| name["member-".len()..].parse::<usize>().ok());
    left.insert(100, "member-400".into());
    left.insert(101, "again".into());
    assert_eq!(w.members_at(2), left);
    w.settle(Duration::from_millis(500));
    assert_eq!(w.members_at(1), left);
    assert_eq!(w.rows_and_log(2).0, left.len());
    w.check_copies();
    // All of it is taken back if the last step fails for its size.
    let before = w.contents(1, 0);
    let dropped = w.transact(1, &[], [step("ZREMRANGEBYSCORE KEY 0 90"), step("DEL KEY")]);
    assert!(matches!(dropped, Outcome::Many(_)), "{dropped:?}");
    assert_ne!((w.members_at(1), before.len()), (left, 0));
}

/// Freeing rows is no change of the key: a client that watches it is not disturbed.
#[test]
fn freeing_rows_leaves_the_version_of_their_key() {
    let mut w = world(6);
    w.adds(0..3_000);
    w.does(&format!("ZREMRANGEBYRANK {KEY} 0 1999"));
    let version = w.version(1, KEY);
    w.settle(Duration::from_millis(300));
    assert_eq!(w.rows_and_log(1).0, 1_000);
    assert_eq!(w.version(1, KEY), version);
}

#[test]
fn lists_and_streams_are_trimmed_by_ranges_too() {
    let mut w = world(7);
    let element = |n: usize| format!("{n}-{}", "x".repeat(300));
    for first in (0..2_000).step_by(100) {
        let all = (first..first + 100).map(|n| format!(" {}", element(n)));
        w.does(&format!("RPUSH list{}", all.collect::<String>()));
    }
    let (_, before) = w.rows_and_log(1);
    w.submit(1, "list", of("LTRIM list 700 1199"));
    assert_eq!(w.rows_and_log(1).1, before + 1, "one record");
    for (line, answer) in [
        ("LLEN list", 500),
        ("LPUSH list first", 501),
        ("RPUSH list last", 502),
    ] {
        assert_eq!(w.does(line), Outcome::Int(answer), "{line}");
    }
    for (at, expected) in [
        (0, "first".to_owned()),
        (1, element(700)),
        (500, element(1_199)),
    ] {
        assert_eq!(w.does(&format!("LINDEX list {at}")), text(&expected));
    }
    for n in 1..=1_500 {
        w.submit(
            1,
            "stream",
            of(&format!("XADD stream {n}-1 field value-{n}")),
        );
    }
    w.submit(1, "stream", of("XGROUP CREATE stream group 0"));
    w.submit(
        1,
        "stream",
        of("XREADGROUP GROUP group me COUNT 1200 STREAMS stream >"),
    );
    assert_eq!(w.does("XTRIM stream MAXLEN 400"), Outcome::Int(1_100));
    assert_eq!(w.does("XLEN stream"), Outcome::Int(400));
    let destroyed = w.ask(1, "stream", of("XGROUP DESTROY stream group"));
    assert_eq!(destroyed, Outcome::Int(1));
    w.settle(Duration::from_millis(500));
    w.check_copies();
    assert_eq!(
        form(&w, 2, "stream"),
        Some((true, 401)),
        "the entries, and what is known of the stream"
    );
    assert_eq!(w.does("LLEN list"), Outcome::Int(502));
}

/// What a model knows of a sorted set, at each step, while rows are freed.
#[test]
fn a_sorted_set_is_what_a_map_says_while_its_rows_are_freed() {
    for seed in 0..4 {
        let mut w = world(40 + seed);
        let mut model: Model<(usize, String), ()> = Model::new();
        for _ in 0..60 {
            let (first, length) = (w.rng.below(900) as usize, w.rng.below(300) as usize);
            if w.rng.one_in(2) {
                let members: Vec<usize> = (first..first + length).collect();
                w.adds(members.iter().copied());
                model.extend(members.iter().map(|n| ((*n, format!("member-{n}")), ())));
            } else {
                let last = first + length;
                let line = format!("ZREMRANGEBYSCORE {KEY} {first} {last}");
                let before = model.len();
                model.retain(|(score, _), ()| !(first..=last).contains(score));
                let gone = Outcome::Int((before - model.len()) as i64);
                assert_eq!(w.does(&line), gone);
            }
            let names: Vec<_> = model.keys().map(|(_, name)| name.clone()).collect();
            assert_eq!(w.members_at(1), names);
            if w.rng.one_in(3) {
                w.settle(Duration::from_millis(20));
            }
        }
        w.settle(Duration::from_secs(1));
        assert_eq!(w.rows_and_log(2).0 % 1_000, w.rows_and_log(1).0 % 1_000);
        w.check_copies();
    }
}
