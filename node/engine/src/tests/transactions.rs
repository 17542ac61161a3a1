//! Several operations on keys of one partition: all of them, or none.

use super::*;
use crate::command::operation::ExpireCondition;
use crate::role::tables::ShardTables;

/// Node 1 leads, node 2 has the copies; node 3 only asks.
fn world(seed: u64) -> World {
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w
}

fn append(value: &str) -> Action {
    Action::Append {
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

fn expire(ms: i64) -> Action {
    Action::Expire {
        expiry: Expiry::In(ms),
        condition: ExpireCondition::Always,
    }
}

impl World {
    pub(super) fn transact<'a>(
        &mut self,
        n: u64,
        watched: &[(&str, Option<i64>)],
        steps: impl IntoIterator<Item = (&'a str, Action)>,
    ) -> Outcome {
        let token = self.submit_work(n, transaction(watched, steps));
        self.outcome(token)
    }

    pub(super) fn version(&mut self, n: u64, key: &str) -> Option<i64> {
        match self.ask(n, key, Action::Version) {
            Outcome::Int(version) => Some(version),
            Outcome::Nil => None,
            other => panic!("{other:?}"),
        }
    }
}

fn many(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    Outcome::Many(outcomes.into_iter().collect())
}

#[test]
fn steps_see_what_earlier_ones_did_wherever_they_are_asked() {
    let mut w = world(1);
    let (a, b) = ("a", twin_of("a"));
    for n in 1..=3 {
        let outcome = w.transact(
            n,
            &[],
            [
                (a, set("1")),
                (a, Action::IncrBy(41)),
                (&*b, append("x")),
                (a, Action::Get),
                (a, expire(50_000)),
                (a, append("!")),
                (&*b, Action::Delete),
                (&*b, Action::Exists),
                (&*b, set("kept")),
                (a, Action::Strlen),
            ],
        );
        let expected = [
            Outcome::Ok,
            Outcome::Int(42),
            Outcome::Int(if n == 1 { 1 } else { 5 }),
            text("42"),
            Outcome::Int(1),
            Outcome::Int(3),
            Outcome::Int(1),
            Outcome::Int(0),
            Outcome::Ok,
            Outcome::Int(3),
        ];
        assert_eq!(outcome, many(expected), "at {n}");
        assert_eq!(w.get(n, a), text("42!"));
        assert_eq!(w.get(n, &b), text("kept"));
        assert_eq!(
            w.version(n, a),
            w.version(n, &b),
            "one record has both changes"
        );
    }
    w.settle(Duration::from_millis(200));
    w.check_copies();
}

#[test]
fn a_step_that_fails_for_what_its_key_holds_does_not_stop_the_others() {
    let mut w = world(2);
    let (a, b) = ("a", twin_of("a"));
    w.set(1, a, "text");
    let outcome = w.transact(3, &[], [(a, Action::IncrBy(1)), (&*b, Action::IncrBy(1))]);
    assert_eq!(
        outcome,
        many([Outcome::Failed(Failure::NotAnInteger), Outcome::Int(1)])
    );
    assert_eq!(w.get(2, a), text("text"));
}

#[test]
fn nothing_is_executed_if_a_watched_key_has_changed() {
    let mut w = world(3);
    let (a, b) = ("a", twin_of("a"));
    let one = |key| [(key, Action::IncrBy(1))];
    let mut written = 0;
    for change in [set("1"), expire(90_000), Action::Persist, Action::Delete] {
        w.set(1, a, "0");
        if change == Action::Persist {
            w.ask(1, a, expire(90_000));
        }
        let seen = w.version(3, a);
        assert!(seen.is_some());
        written += 1;
        assert_eq!(
            w.transact(3, &[(a, seen)], one(&*b)),
            many([Outcome::Int(written)])
        );
        w.ask(2, a, change.clone());
        assert_eq!(
            w.transact(3, &[(a, seen)], one(&*b)),
            Outcome::Nil,
            "{change:?}"
        );
        assert_eq!(w.get(1, &b), text(&written.to_string()));
    }
    // An absent key is watched, too.
    assert_eq!(w.version(3, a), None);
    assert_eq!(
        w.transact(2, &[(a, None)], [(a, set("new"))]),
        many([Outcome::Ok])
    );
    assert_eq!(
        w.transact(2, &[(a, None)], [(a, set("again"))]),
        Outcome::Nil
    );
    assert_eq!(w.get(1, a), text("new"));
}

#[test]
fn a_watched_key_of_a_lost_lineage_has_changed() {
    let mut w = World::new(4, 2, |_| vec![1]);
    let key = key_of(0);
    w.set(2, &key, "1");
    let seen = w.version(2, &key);
    w.propose(|t| lose(t, PartitionId(0), 2));
    w.settle(Duration::from_millis(800));
    w.set(2, &key, "1");
    let again = w.version(2, &key);
    assert_ne!(seen, again);
    let outcome = w.transact(1, &[(&key, seen)], [(&*key, set("2"))]);
    assert_eq!(outcome, Outcome::Nil);
    let outcome = w.transact(1, &[(&key, again)], [(&*key, set("2"))]);
    assert_eq!(outcome, many([Outcome::Ok]));
}

/// Regression: every process was killed, the cluster was founded again and wrote as many times as
/// the former one had. So a version that was seen in the former one was the version of another
/// value.
#[test]
fn a_watched_key_of_a_former_cluster_has_changed() {
    let w = world(4);
    let from = |cluster| {
        let tables = ShardTables {
            name: Some(TableName {
                cluster: ClusterId(cluster),
                ..w.tables[0].name()
            }),
            ..ShardTables::default()
        };
        tables.versions_from(Lineage(1))
    };
    // What two random ids differ by is more than a lineage has writes.
    assert!(from(1 << 60).abs_diff(from(1 << 61)) > 1 << 44);
    // A partition counts from there.
    let held = |n: &u64| w.nodes[n].shard.slots.iter().find_map(|s| s.held.as_ref());
    let held = w.nodes.keys().find_map(held).expect("a node holds data");
    assert_eq!(held.versions_from, from(w.tables[0].cluster.0));
}

#[test]
fn keys_of_several_partitions_are_refused() {
    let mut w = world(5);
    let (a, b) = (key_of(0), key_of(1));
    let crossed = Outcome::Failed(Failure::CrossPartition);
    assert_eq!(
        w.transact(1, &[], [(&*a, set("1")), (&*b, set("1"))]),
        crossed
    );
    assert_eq!(w.transact(3, &[(&b, None)], [(&*a, set("1"))]), crossed);
    assert_eq!((w.get(1, &a), w.get(1, &b)), (Outcome::Nil, Outcome::Nil));
}

#[test]
fn too_much_for_one_record_changes_nothing() {
    let mut w = world(7);
    let (a, b) = ("a", twin_of("a"));
    let half = "x".repeat(Limits::of_test().value_bytes_max / 2);
    assert_eq!(w.set(1, a, &half), Outcome::Ok);
    let memory = w.nodes[&1].shard.cx.host.memory.bytes;
    let large = Outcome::Failed(Failure::TooLarge);
    // What is given, what is written, what is answered, how many there are.
    let given = [(a, set(&half)), (&*b, set(&half))];
    let answered = [
        (&*b, set("1")),
        (a, Action::Get),
        (a, Action::Get),
        (a, Action::Get),
    ];
    let written = [(&*b, set(&half)), (a, append("x"))];
    let steps =
        (0..=crate::command::operation::TRANSACTION_STEPS_MAX).map(|_| (&*b, Action::IncrBy(1)));
    for n in [1, 3] {
        assert_eq!(w.transact(n, &[], given.clone()), large);
        assert_eq!(w.transact(n, &[], answered.clone()), large);
        assert_eq!(w.transact(n, &[], written.clone()), large);
        assert_eq!(w.transact(n, &[], steps.clone()), large);
        assert_eq!(w.transact(n, &[], []), Outcome::Failed(Failure::TooLarge));
    }
    assert_eq!(w.get(1, &b), Outcome::Nil);
    w.settle(Duration::from_millis(200));
    assert_eq!(w.nodes[&1].shard.cx.host.memory.bytes, memory);
    w.check_copies();
}

/// Regression: the node that was asked allowed the value and the primary did not. The step with the
/// value failed, and the other steps were executed.
#[test]
fn a_value_that_only_its_primary_refuses_fails_the_transaction_whole() {
    let mut w = world(11);
    let (a, b) = ("a", twin_of("a"));
    let limits = &mut w.nodes.get_mut(&1).unwrap().shard.cx.host.limits;
    limits.value_bytes_max = 1_000;
    let steps = [(a, set("1")), (&*b, set(&"x".repeat(1_001)))];
    assert_eq!(
        w.transact(3, &[], steps),
        Outcome::Failed(Failure::TooLarge)
    );
    assert_eq!((w.get(1, a), w.get(1, &b)), (Outcome::Nil, Outcome::Nil));
}

#[test]
fn a_full_member_refuses_a_transaction_whole() {
    let mut w = world(8);
    let (a, b) = ("a", twin_of("a"));
    w.set(1, a, "before");
    for n in 1..=3 {
        let limits = &mut w.nodes.get_mut(&n).unwrap().shard.cx.host.limits;
        (limits.memory_bytes_max, limits.tail_bytes_max) = (60_000, 1_000);
    }
    w.settle(Duration::from_millis(500));
    let value = set(&"x".repeat(60_000));
    let steps = [(a, set("after")), (&*b, value.clone()), (a, append("!"))];
    assert_eq!(
        w.transact(3, &[], steps),
        Outcome::Failed(Failure::OutOfMemory)
    );
    assert_eq!((w.get(1, a), w.get(1, &b)), (text("before"), Outcome::Nil));
    let held: usize = w.nodes[&1]
        .shard
        .slots
        .iter()
        .filter_map(|s| s.held.as_ref())
        .map(|h| h.bytes())
        .sum();
    assert_eq!(w.nodes[&1].shard.cx.host.memory.bytes, held);
    w.check_copies();
}

#[test]
fn an_overdue_key_is_absent_and_its_deletion_is_logged() {
    let mut w = world(9);
    let (a, b) = ("a", twin_of("a"));
    for steps in [
        vec![(a, Action::Get), (&*b, Action::Get)],
        vec![(a, Action::IncrBy(1)), (a, Action::PTtl)],
    ] {
        w.ask(
            1,
            a,
            Action::Set {
                value: Bytes::from_static(b"7"),
                condition: Condition::Always,
                expiry: Expiry::In(3),
                get: false,
            },
        );
        // Nothing expires it before the transaction does: no time passes at the shard.
        w.now = w.now + Duration::from_millis(20);
        let token = w.submit_work(1, transaction(&[], steps.clone()));
        let outcome = w.outcome(token);
        let expected = if steps[0].1 == Action::Get {
            [Outcome::Nil, Outcome::Nil]
        } else {
            [Outcome::Int(1), Outcome::Int(-1)]
        };
        assert_eq!(outcome, many(expected));
        w.settle(Duration::from_millis(300));
        w.check_copies();
    }
    assert_eq!(w.nodes[&1].shard.stats().expired, 2);
}

#[test]
fn a_new_primary_has_all_of_a_transaction_or_nothing() {
    for reached in [false, true] {
        let mut w = world(10);
        let (a, b) = (key_of(0), twin_of(&key_of(0)));
        w.set(1, &a, "10");
        w.released = false;
        let steps = [
            (&*a, Action::IncrBy(1)),
            (&*b, set("1")),
            (&*b, expire(80_000)),
            (&*a, Action::IncrBy(1)),
        ];
        let token = w.submit_work(1, transaction(&[], steps));
        if reached {
            w.deliver((1, 2, Lane::Calls), true);
        }
        w.nodes.get_mut(&1).unwrap().cut = true;
        w.disconnect(1, 2);
        w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
        w.settle(Duration::from_millis(700));
        w.released = true;
        let expected = if reached {
            (text("12"), text("1"))
        } else {
            (text("10"), Outcome::Nil)
        };
        assert_eq!((w.get(2, &a), w.get(2, &b)), expected);
        // The former primary asks the new one, which executes it once.
        w.nodes.get_mut(&1).unwrap().cut = false;
        w.connect(1, 2);
        let outcome = w.outcome(token);
        let done = [
            Outcome::Int(11),
            Outcome::Ok,
            Outcome::Int(1),
            Outcome::Int(12),
        ];
        assert_eq!(outcome, many(done));
        assert_eq!((w.get(2, &a), w.get(2, &b)), (text("12"), text("1")));
        w.settle(Duration::from_millis(300));
        w.check_copies();
    }
}

/// A worker took a job, did it and deleted its mark, while another one stood between `WATCH` and
/// `EXEC`: it must not do the job again.
#[test]
fn a_key_that_came_and_went_while_it_was_watched_has_changed() {
    let mut w = world(23);
    let watch = |w: &mut World, key: &str| {
        let level = doyen_placement::level::LEVELS.1;
        match w.ask(3, key, Action::watch(level)) {
            Outcome::Int(version) => Some(version),
            other => panic!("{other:?}"),
        }
    };
    let exec = |w: &mut World, seen| w.transact(3, &[("k", seen)], [("k", set("x"))]);
    let done = many([Outcome::Ok]);
    // Nothing happens to it.
    let absent = watch(&mut w, "k");
    assert_eq!(watch(&mut w, "k"), absent);
    w.ask(1, "k", Action::Delete);
    assert_eq!(exec(&mut w, absent), done);
    // It exists, and changes or goes.
    let there = watch(&mut w, "k");
    assert_ne!(there, absent);
    assert_eq!(w.version(3, "k"), there);
    assert_eq!(exec(&mut w, absent), Outcome::Nil);
    w.ask(1, "k", Action::Delete);
    assert_eq!(exec(&mut w, there), Outcome::Nil);
    // It comes and goes: by a command, by a transaction, by its deadline, with all keys.
    type Change = fn(&mut World);
    let changes: [Change; 4] = [
        |w| {
            w.set(1, "k", "1");
            w.ask(2, "k", Action::Delete);
        },
        |w| {
            w.set(1, "k", "1");
            w.transact(2, &[], [("k", Action::Delete)]);
        },
        |w| {
            w.set(1, "k", "1");
            w.ask(1, "k", expire(5));
            w.settle(Duration::from_millis(200));
        },
        |w| {
            w.set(1, "k", "1");
            w.kill(1);
            w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
            w.settle(Duration::from_secs(1));
            w.ask(2, "k", Action::Delete);
        },
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let absent = watch(&mut w, "k");
        change(&mut w);
        assert_eq!(w.get(3, "k"), Outcome::Nil);
        assert_eq!(exec(&mut w, absent), Outcome::Nil, "change {n}");
        let absent = watch(&mut w, "k");
        assert_eq!(exec(&mut w, absent), done);
        w.ask(2, "k", Action::Delete);
    }
}
