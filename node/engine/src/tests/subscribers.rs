//! Subscribers get every committed change of a key in order, or hear that they did not.

use super::*;
use crate::{Bookmark, Cause, Change, Filter, Former, KeyFilter, Maps, SubscriptionId, Told, What};
use doyen_placement::Reshape;
use doyen_placement::division::Cut;

pub(super) fn all() -> Filter {
    Filter {
        keyspace: KeyspaceId(0),
        maps: Maps::One(MapId(0)),
        keys: KeyFilter::All,
        values: true,
        fields: true,
        old: true,
    }
}

impl World {
    fn subscribe(&mut self, n: u64, filter: Filter) -> SubscriptionId {
        let now = self.now;
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        let id = shard.subscriber().subscribe(now, filter, None).unwrap();
        self.drain(n);
        id
    }

    /// The same, once it is ready.
    pub(super) fn follow(&mut self, n: u64, filter: Filter) -> SubscriptionId {
        let id = self.subscribe(n, filter);
        self.settle(Duration::from_millis(30));
        assert_eq!(self.told(n, id), [Told::Ready]);
        id
    }

    /// What a subscription was told.
    pub(super) fn told(&mut self, n: u64, id: SubscriptionId) -> Vec<Told> {
        let now = self.now;
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        let told = std::iter::from_fn(|| shard.subscriber().take_told(now, id)).collect();
        self.drain(n);
        told
    }

    /// The changes that a subscription got. None may be missing.
    fn changes(&mut self, n: u64, id: SubscriptionId) -> Vec<Change> {
        let told = self.told(n, id).into_iter();
        told.map(|told| match told {
            Told::Change(change) => change,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// The values of a key that a subscription was told.
    fn values(&mut self, n: u64, id: SubscriptionId) -> BTreeMap<String, Vec<String>> {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for change in self.changes(n, id) {
            let key = String::from_utf8(change.key.to_vec()).unwrap();
            if let What::Put(_, Some(value)) = change.what {
                let value = String::from_utf8(value.to_vec()).unwrap();
                values.entry(key).or_default().push(value);
            }
        }
        values
    }
}

fn whats(changes: Vec<Change>) -> Vec<What> {
    changes.into_iter().map(|change| change.what).collect()
}

fn put(value: &'static str) -> What {
    What::Put(
        crate::value::kind::Kind::String,
        Some(Bytes::from_static(value.as_bytes())),
    )
}

#[test]
fn primary_copy_stranger_thread_and_client_are_told_every_change_in_order() {
    let mut w = World::of_threads(60, 3, |n| if n == 1 { 2 } else { 1 }, |_| vec![1, 2]);
    let client = w.add_client(9);
    w.settle(Duration::from_millis(50));
    let nodes = [1, 1001, 2, 3, client];
    let ids = nodes.map(|n| w.follow(n, all()));
    let key = key_of(0);
    for value in ["a", "b"] {
        assert_eq!(w.set(3, &key, value), Outcome::Ok);
    }
    w.ask(3, &key, Action::Append { value: "c".into() });
    w.ask(
        3,
        &key,
        Action::Expire {
            expiry: Expiry::In(40),
            condition: super::op::ExpireCondition::Always,
        },
    );
    w.settle(Duration::from_millis(1_200));
    assert_eq!(w.set(3, &key, "d"), Outcome::Ok);
    w.ask(2, &key, Action::Delete);
    w.settle(Duration::from_millis(30));
    let expected = [
        put("a"),
        put("b"),
        put("bc"),
        What::Deadline,
        What::Removed(Cause::Expired),
        put("d"),
        What::Removed(Cause::Command),
    ];
    for (n, id) in nodes.into_iter().zip(ids) {
        let changes = w.changes(n, id);
        let events: Vec<_> = changes
            .iter()
            .map(|c| c.by.and_then(crate::By::event))
            .collect();
        let named = [Some("set"), Some("set"), Some("append"), Some("expire")];
        assert_eq!(events[..4], named, "{n}");
        assert_eq!(events[4..], [None, Some("set"), None], "{n}");
        assert_eq!(whats(changes), expected, "{n}");
    }
    // A subscriber that has left gets nothing, and nothing is left of it.
    w.nodes
        .get_mut(&3)
        .unwrap()
        .shard
        .subscriber()
        .unsubscribe(w.now, ids[3]);
    w.drain(3);
    w.set(1, &key, "e");
    w.settle(Duration::from_millis(30));
    assert!(w.told(3, ids[3]).is_empty());
    assert_eq!(
        w.nodes
            .get_mut(&3)
            .unwrap()
            .shard
            .subscriber()
            .subscriptions(),
        0
    );
    assert_eq!(whats(w.changes(2, ids[2])), [put("e")]);
}

#[test]
fn a_subscriber_learns_which_of_its_own_operations_made_a_change() {
    let mut w = World::of_threads(61, 3, |_| 1, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let nodes = [1, 2, 3];
    let ids = nodes.map(|n| w.follow(n, all()));
    let (key, mut made) = (key_of(0), Vec::new());
    for n in [1, 2, 3, 2, 3] {
        made.push((n, w.nodes[&n].shard.next_number()));
        assert_eq!(w.set(n, &key, "x"), Outcome::Ok);
    }
    w.settle(Duration::from_millis(30));
    for (n, id) in nodes.into_iter().zip(ids) {
        let changes = w.changes(n, id);
        let own: Vec<_> = changes.iter().map(Change::own_operation).collect();
        let wanted = made
            .iter()
            .map(|(by, number)| (*by == n).then_some(*number));
        assert_eq!(own, wanted.collect::<Vec<_>>(), "{n}");
    }
}

fn was(old: &'static str) -> Former {
    Former::Value(Some(Bytes::from_static(old.as_bytes())))
}

/// What happened, and what was there before.
fn pairs(changes: Vec<Change>) -> Vec<(What, Former)> {
    let pair = |change: Change| (change.what, change.before);
    changes.into_iter().map(pair).collect()
}

#[test]
fn a_subscriber_is_told_what_a_key_had_before() {
    let mut w = World::new(69, 3, |_| vec![1, 2]);
    let id = w.follow(3, all());
    let without = w.follow(
        3,
        Filter {
            old: false,
            ..all()
        },
    );
    let (key, other) = (key_of(0), twin_of(&key_of(0)));
    let append = |value: &'static str| Action::Append {
        value: value.into(),
    };
    w.set(3, &key, "a");
    w.set(3, &key, "b");
    w.ask(3, &key, append("c"));
    w.ask(3, &key, Action::Delete);
    // One record: what was before it, and what is after it.
    w.transact(
        3,
        &[],
        [(&*key, set("d")), (&*key, append("e")), (&*other, set("f"))],
    );
    w.transact(3, &[], [(&*key, Action::Delete), (&*key, set("g"))]);
    // No reader could see that it was there.
    w.ask(3, &other, Action::Delete);
    w.transact(3, &[], [(&*other, set("h")), (&*other, Action::Delete)]);
    w.ask(3, &key, super::hashes::of(&format!("RENAME {key} {other}")));
    w.ask(
        3,
        &key,
        super::hashes::of(&format!("HSET {key} field value")),
    );
    w.set(3, &key, "i");
    w.settle(Duration::from_millis(30));
    let expected = [
        (put("a"), Former::Nothing),
        (put("b"), was("a")),
        (put("bc"), was("b")),
        (What::Removed(Cause::Command), was("bc")),
        (put("de"), Former::Nothing),
        (put("f"), Former::Nothing),
        (put("g"), was("de")),
        (What::Removed(Cause::Command), was("f")),
        (put("g"), Former::Nothing),
        (What::Removed(Cause::Command), was("g")),
        (
            What::Put(crate::value::kind::Kind::Hash, None),
            Former::Nothing,
        ),
        (put("i"), Former::Value(None)),
    ];
    let changes = w.changes(3, id);
    assert_eq!(pairs(changes), expected);
    let unasked = expected.map(|(what, before)| match before {
        Former::Value(_) => (what, Former::Value(None)),
        Former::Nothing => (what, before),
    });
    assert_eq!(pairs(w.changes(3, without)), unasked);
}

#[test]
fn a_value_that_had_expired_is_told_as_expired_before_it_is_replaced() {
    let mut w = World::new(70, 3, |_| vec![1, 2]);
    let id = w.follow(3, all());
    let key = key_of(0);
    let brief = || Action::Set {
        value: "a".into(),
        condition: super::op::Condition::Always,
        expiry: Expiry::In(40),
        get: false,
    };
    let expired = (What::Removed(Cause::Expired), was("a"));
    // The primary replaces it before it has looked for what is overdue.
    w.ask(1, &key, brief());
    w.now = w.now + Duration::from_millis(60);
    w.submit(1, &key, set("b"));
    w.ask(1, &key, Action::Delete);
    w.ask(1, &key, brief());
    w.now = w.now + Duration::from_millis(60);
    w.transact(1, &[], [(&*key, Action::Get), (&*key, set("c"))]);
    w.ask(1, &key, Action::Delete);
    w.ask(1, &key, brief());
    w.now = w.now + Duration::from_millis(60);
    w.transact(1, &[], [(&*key, set("d")), (&*key, Action::Delete)]);
    w.settle(Duration::from_millis(30));
    let expected = [
        (put("a"), Former::Nothing),
        expired.clone(),
        (put("b"), Former::Nothing),
        (What::Removed(Cause::Command), was("b")),
        (put("a"), Former::Nothing),
        expired.clone(),
        (put("c"), Former::Nothing),
        (What::Removed(Cause::Command), was("c")),
        (put("a"), Former::Nothing),
        expired,
    ];
    let changes = w.changes(3, id);
    assert_eq!(pairs(changes), expected);
}

#[test]
fn the_next_primary_knows_what_was_replaced_and_nothing_is_kept_unasked() {
    let mut w = World::new(71, 4, |_| vec![1, 2, 3]);
    let (key, long) = (key_of(0), "x".repeat(10_000));
    let at = PartitionRef::new(KeyspaceId(0), PartitionId(0));
    let logged = |w: &World, n: u64| {
        let slot = w.nodes[&n].shard.slots.get(at).unwrap();
        slot.held.as_ref().unwrap().log.bytes()
    };
    let without = w.follow(
        4,
        Filter {
            old: false,
            ..all()
        },
    );
    w.set(4, &key, &long);
    w.settle(Duration::from_millis(30));
    let before = [1, 2].map(|n| logged(&w, n));
    w.set(4, &key, "short");
    w.settle(Duration::from_millis(30));
    for (n, before) in [1, 2].into_iter().zip(before) {
        assert!(logged(&w, n) < before + 1_000, "{n}");
    }
    let id = w.follow(4, all());
    w.set(4, &key, &long);
    w.settle(Duration::from_millis(30));
    let before = [1, 2].map(|n| logged(&w, n));
    w.set(4, &key, "a");
    w.settle(Duration::from_millis(30));
    for (n, before) in [1, 2].into_iter().zip(before) {
        assert!(logged(&w, n) > before + 10_000, "{n}");
    }
    let whats = w.changes(4, id).into_iter().map(|change| change.before);
    let old = Former::Value(Some(long.into()));
    assert_eq!(whats.collect::<Vec<_>>(), [was("short"), old]);
    // Its messages are still on their way when it dies.
    for value in ["b", "c", "d"] {
        w.submit(4, &key, set(value));
        w.settle(Duration::from_millis(1));
    }
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(1_500));
    let expected = [
        (put("b"), was("a")),
        (put("c"), was("b")),
        (put("d"), was("c")),
    ];
    assert_eq!(pairs(w.changes(4, id)), expected);
    assert_eq!(w.changes(4, without).len(), 7);
}

#[test]
fn a_filter_lets_its_map_prefix_or_key_through_with_or_without_values() {
    let mut w = World::new(61, 2, |_| vec![1, 2]);
    let of = |keys, values| Filter {
        keys,
        values,
        ..all()
    };
    let prefix = w.follow(2, of(KeyFilter::Prefix("k1".into()), true));
    let one = w.follow(2, of(KeyFilter::One("k12".into()), false));
    let other = w.follow(
        2,
        Filter {
            maps: Maps::One(MapId(1)),
            ..all()
        },
    );
    for key in ["k1", "k12", "k2"] {
        assert_eq!(w.set(1, key, "x"), Outcome::Ok);
    }
    w.settle(Duration::from_millis(30));
    let mut keys: Vec<Bytes> = w.changes(2, prefix).into_iter().map(|c| c.key).collect();
    keys.sort();
    assert_eq!(keys, ["k1", "k12"]);
    assert_eq!(
        whats(w.changes(2, one)),
        [What::Put(crate::value::kind::Kind::String, None)]
    );
    assert!(w.told(2, other).is_empty());
    let gone = Filter {
        keyspace: KeyspaceId(9),
        ..all()
    };
    let now = w.now;
    let shard = &mut w.nodes.get_mut(&2).unwrap().shard;
    assert_eq!(
        shard.subscriber().subscribe(now, gone, None),
        Err(Failure::NoPartition)
    );
    let long = of(KeyFilter::One(Bytes::from(vec![0; 70 << 10])), true);
    assert_eq!(
        shard.subscriber().subscribe(now, long, None),
        Err(Failure::TooLarge)
    );
}

#[test]
fn a_subscriber_goes_on_at_the_next_primary_where_it_was() {
    let mut w = World::new(62, 4, |_| vec![1, 2, 3]);
    let client = w.add_client(3);
    w.settle(Duration::from_millis(50));
    let ids = [3, 4, client].map(|n| (n, w.follow(n, all())));
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for round in 0..2 {
        for n in 0..60 {
            let (key, value) = (format!("k{}", n % 20), format!("{round}.{n}"));
            // Its messages are still on their way when it dies.
            w.submit(4, &key, set(&value));
            expected.entry(key).or_default().push(value);
            if n % 7 == 0 {
                w.pass(Duration::from_millis(1));
            }
        }
        w.settle(Duration::from_millis(2));
        w.kill(round + 1);
        w.propose(|t| remove(t, round + 1));
        w.settle(Duration::from_millis(1_500));
        if round == 0 {
            // A clean change of the primary loses nothing either.
            w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 3)));
            w.settle(Duration::from_millis(800));
            w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
            w.settle(Duration::from_millis(800));
        }
    }
    for (n, id) in ids {
        assert_eq!(w.values(n, id), expected, "{n}");
    }
}

#[test]
fn a_subscriber_follows_a_move_a_split_and_a_merge() {
    let mut w = World::new(63, 3, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_millis(100));
    let ids = [1, 2, 3].map(|n| (n, w.follow(n, all())));
    // One of these keys is in either part.
    let ones = ["k1", "k18"].map(|key| {
        let keys = KeyFilter::One(key.into());
        (key, w.follow(2, Filter { keys, ..all() }))
    });
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let write = |w: &mut World, value: &str, expected: &mut BTreeMap<String, Vec<String>>| {
        for n in 0..80 {
            let key = format!("k{n}");
            assert_eq!(w.set(1 + n % 3, &key, value), Outcome::Ok);
            expected.entry(key).or_default().push(value.into());
        }
    };
    write(&mut w, "1", &mut expected);
    let cut = Cut::Key {
        map: MapId(0),
        key: b"k15".as_slice().into(),
    };
    let split = Reshape::Split {
        partition: PartitionId(0),
        cut,
    };
    w.propose(|t| *t = super::reshaping::reshaped(t, split.clone()));
    w.settle(Duration::from_millis(100));
    write(&mut w, "2", &mut expected);
    let parts: Vec<PartitionId> = w.tables[w.committed].keyspaces[0]
        .partitions
        .iter()
        .filter(|p| !p.from.is_empty())
        .map(|p| p.id)
        .collect();
    // The copies move to another member, which then leads.
    w.propose(|t| {
        for p in &parts {
            partition_mut(t, *p).replicas.push(Replica {
                member: id(3),
                state: ReplicaState::Learner,
            });
        }
    });
    w.settle(Duration::from_millis(1_500));
    write(&mut w, "3", &mut expected);
    w.propose(|t| parts.iter().for_each(|p| promote(t, *p, 3)));
    w.settle(Duration::from_millis(800));
    write(&mut w, "4", &mut expected);
    let merge = Reshape::Merge {
        partitions: [parts[0], parts[1]],
    };
    w.propose(|t| *t = super::reshaping::reshaped(t, merge.clone()));
    w.settle(Duration::from_millis(100));
    write(&mut w, "5", &mut expected);
    w.settle(Duration::from_millis(100));
    for (n, id) in ids {
        assert_eq!(w.values(n, id), expected, "{n}");
    }
    for (key, id) in ones {
        assert_eq!(w.values(2, id)[key], expected[key], "{key}");
    }
}

#[test]
fn a_slow_subscriber_is_told_that_changes_are_missing_and_the_later_ones() {
    let mut w = World::new(64, 2, |_| vec![1, 2]);
    let id = w.follow(2, all());
    let value = "v".repeat(4 << 10);
    for _ in 0..100 {
        assert_eq!(w.set(1, &key_of(0), &value), Outcome::Ok);
    }
    let held = w.nodes[&2].shard.cx.host.subscriptions.bytes();
    assert!(held > 60 << 10 && held < 140 << 10, "{held}");
    let mut told = Vec::new();
    for _ in 0..40 {
        told.extend(w.told(2, id));
        w.settle(Duration::from_millis(5));
    }
    let missed: u64 = told
        .iter()
        .map(|told| match told {
            Told::Lagged(gap) => gap.entries.expect("the primary knows how many"),
            _ => 0,
        })
        .sum();
    let came = told.iter().filter(|t| matches!(t, Told::Change(_))).count() as u64;
    assert!(missed > 20, "{missed}");
    assert_eq!(came + missed, 100);
    assert_eq!(w.set(1, &key_of(0), "last"), Outcome::Ok);
    w.settle(Duration::from_millis(30));
    assert_eq!(whats(w.changes(2, id)), [put("last")]);
    assert_eq!(w.nodes[&2].shard.cx.host.subscriptions.bytes(), 0);
}

/// Of each partition, a window may wait: with many partitions, more than a small member has.
#[test]
fn a_subscriber_that_takes_nothing_takes_a_small_part_of_memory_and_another_one_misses_nothing() {
    const SMALL: usize = 1 << 20;
    const WRITES: u64 = 60;
    let mut w = World::new(66, 2, |_| vec![1]);
    w.nodes
        .get_mut(&2)
        .unwrap()
        .shard
        .cx
        .host
        .limits
        .memory_bytes_max = SMALL;
    let (slow, fast) = (w.follow(2, all()), w.follow(2, all()));
    let (value, mut told) = ("v".repeat(4 << 10), 0);
    for _ in 0..WRITES {
        for p in 0..u32::from(PARTITIONS) {
            assert_eq!(w.set(2, &key_of(p), &value), Outcome::Ok);
            told += w.changes(2, fast).len() as u64;
        }
    }
    w.settle(Duration::from_millis(30));
    told += w.changes(2, fast).len() as u64;
    assert_eq!(told, WRITES * u64::from(PARTITIONS));
    let held = w.nodes[&2].shard.cx.host.subscriptions.bytes();
    assert!(held > SMALL / 20 && held < SMALL / 14, "{held}");
    let (mut came, mut missed) = (0, 0);
    for _ in 0..40 {
        for told in w.told(2, slow) {
            match told {
                Told::Change(_) => came += 1,
                Told::Lagged(gap) => missed += gap.entries.expect("it is known how many"),
                other => panic!("{other:?}"),
            }
        }
        w.settle(Duration::from_millis(5));
    }
    assert_eq!(came + missed, WRITES * u64::from(PARTITIONS));
    assert!(came > 10 && missed > 10, "{came} {missed}");
    for p in 0..u32::from(PARTITIONS) {
        assert_eq!(w.set(1, &key_of(p), "last"), Outcome::Ok);
    }
    w.settle(Duration::from_millis(30));
    assert_eq!(w.changes(2, slow).len(), usize::from(PARTITIONS));
    w.told(2, fast);
    assert_eq!(w.nodes[&2].shard.cx.host.subscriptions.bytes(), 0);
}

#[test]
fn a_subscriber_of_a_partition_that_began_empty_is_told_that_changes_may_be_missing() {
    let mut w = World::new(65, 3, |_| vec![1]);
    let id = w.follow(3, all());
    assert_eq!(w.set(3, &key_of(0), "a"), Outcome::Ok);
    w.settle(Duration::from_millis(30));
    assert_eq!(whats(w.changes(3, id)), [put("a")]);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| lose(t, PartitionId(p), 2)));
    w.settle(Duration::from_millis(2_000));
    let told = w.told(3, id);
    let [Told::Lagged(gap)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((gap.entries, gap.had.len()), (None, 4));
    assert_eq!(w.set(3, &key_of(0), "b"), Outcome::Ok);
    w.settle(Duration::from_millis(30));
    assert_eq!(whats(w.changes(3, id)), [put("b")]);
}

impl World {
    fn bookmark(&mut self, n: u64, id: SubscriptionId, untaken: &[Told]) -> Bookmark {
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        shard
            .subscriber()
            .bookmark(id, untaken.iter())
            .expect("it is there")
    }

    /// Goes on after a bookmark, by way of its text.
    fn resume(&mut self, n: u64, filter: Filter, mark: &Bookmark) -> SubscriptionId {
        let mark = mark.to_string().parse().expect("it is one");
        let now = self.now;
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        let id = shard
            .subscriber()
            .subscribe(now, filter, Some(&mark))
            .unwrap();
        self.drain(n);
        id
    }
}

#[test]
fn a_subscriber_goes_on_after_a_bookmark_elsewhere_though_the_primary_is_dead() {
    let mut w = World::new(72, 4, |_| vec![1, 2, 3]);
    let (key, other) = (key_of(0), key_of(1));
    let twin = twin_of(&key);
    let id = w.follow(4, all());
    for (key, value) in [(&key, "a"), (&other, "b"), (&key, "c"), (&key, "d")] {
        w.set(4, key, value);
        w.settle(Duration::from_millis(10));
    }
    w.transact(4, &[], [(&*key, set("e")), (&*twin, set("f"))]);
    w.settle(Duration::from_millis(10));
    // It has handled the first three, or all but the second half of the transaction.
    let told = w.told(4, id);
    let early = w.bookmark(4, id, &told[3..]);
    let halved = w.bookmark(4, id, &told[5..]);
    let all_of_it = w.bookmark(4, id, &[]);
    let now = w.now;
    w.nodes
        .get_mut(&4)
        .unwrap()
        .shard
        .subscriber()
        .unsubscribe(now, id);
    w.drain(4);
    w.submit(4, &key, set("g"));
    w.settle(Duration::from_millis(2));
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_millis(1_500));
    w.set(3, &key, "h");
    for (mark, first) in [(early, "d"), (halved, "e"), (all_of_it, "g")] {
        let id = w.resume(3, all(), &mark);
        let one = KeyFilter::One(Bytes::from(key.clone()));
        let of_key = w.resume(2, Filter { keys: one, ..all() }, &mark);
        w.settle(Duration::from_millis(30));
        for (n, id, key_alone) in [(3, id, false), (2, of_key, true)] {
            let mut told = w.told(n, id);
            told.retain(|told| *told != Told::Ready);
            let told: Vec<What> = told
                .into_iter()
                .map(|told| match told {
                    Told::Change(change) => change.what,
                    other => panic!("{other:?}"),
                })
                .collect();
            let expected = ["d", "e", "f", "g", "h"].into_iter();
            let expected = expected.skip_while(|value| *value != first);
            let expected = expected.filter(|value| !key_alone || *value != "f");
            assert_eq!(
                told,
                expected.map(put).collect::<Vec<_>>(),
                "{first} at {n}"
            );
        }
    }
}

#[test]
fn a_bookmark_that_the_logs_do_not_reach_or_of_elsewhere_is_said_to_lag() {
    let mut w = World::new(73, 3, |_| vec![1, 2]);
    let key = key_of(0);
    let id = w.follow(3, all());
    w.set(1, &key, "a");
    w.settle(Duration::from_millis(30));
    assert_eq!(w.changes(3, id).len(), 1);
    let mark = w.bookmark(3, id, &[]);
    let long = "x".repeat(4 << 10);
    for _ in 0..100 {
        w.set(1, &key, &long);
    }
    // What waits here counts as not handled, and so does the gap behind it.
    let slow = w.bookmark(3, id, &[]);
    assert_eq!(slow, mark);
    let resumed = w.resume(3, all(), &mark);
    w.settle(Duration::from_millis(30));
    let told = w.told(3, resumed);
    let lagged = told.iter().find_map(|told| match told {
        Told::Lagged(gap) => Some(gap.entries.expect("it is known")),
        _ => None,
    });
    let came = told.iter().filter(|t| matches!(t, Told::Change(_))).count() as u64;
    assert!(
        lagged.is_some_and(|n| n > 20 && n + came <= 100),
        "{lagged:?}"
    );
    // The gap is behind a bookmark that does not count it as handled.
    let at = told.iter().position(|t| matches!(t, Told::Lagged(_)));
    let before = w.bookmark(3, resumed, &told[at.unwrap()..]);
    let again = w.resume(3, all(), &before);
    w.settle(Duration::from_millis(30));
    assert!(
        w.told(3, again)
            .iter()
            .any(|t| matches!(t, Told::Lagged(_)))
    );
    // A bookmark of another cluster, and one that says nothing.
    let other = Bookmark {
        cluster: None,
        ..mark.clone()
    };
    for mark in [other, Bookmark::default()] {
        let id = w.resume(3, all(), &mark);
        w.settle(Duration::from_millis(30));
        let [Told::Lagged(gap), Told::Ready] = &w.told(3, id)[..] else {
            panic!("all is missing, once");
        };
        assert_eq!(gap.entries, None);
    }
    let texts = ["", "1-", "1-0", "1-zz", "2-00", "1-ffffffffff", &long];
    assert!(texts.iter().all(|text| text.parse::<Bookmark>().is_err()));
}

#[test]
fn a_bookmark_from_before_a_split_goes_on_in_the_heirs() {
    let mut w = World::new(74, 3, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_millis(100));
    let id = w.follow(3, all());
    for key in ["k11", "k18"] {
        w.set(1, key, "a");
    }
    w.settle(Duration::from_millis(30));
    let told = w.told(3, id);
    let (mark, early) = (w.bookmark(3, id, &[]), w.bookmark(3, id, &told[1..]));
    let cut = Cut::Key {
        map: MapId(0),
        key: b"k15".as_slice().into(),
    };
    let split = Reshape::Split {
        partition: PartitionId(0),
        cut,
    };
    w.propose(|t| *t = super::reshaping::reshaped(t, split.clone()));
    w.settle(Duration::from_millis(100));
    for key in ["k11", "k18"] {
        w.set(1, key, "b");
    }
    w.settle(Duration::from_millis(30));
    // Its changes from before the split are not taken yet, though its heirs' have come.
    let behind = w.bookmark(3, id, &told[1..]);
    let resumed = w.resume(3, all(), &mark);
    w.settle(Duration::from_millis(30));
    let told = w.told(3, resumed);
    let of_heirs = told.iter().filter(|told| **told != Told::Ready);
    assert_eq!(of_heirs.clone().count(), 2, "{told:?}");
    assert!(of_heirs.clone().all(|told| matches!(told, Told::Change(_))));
    for mark in [early, behind] {
        let id = w.resume(3, all(), &mark);
        w.settle(Duration::from_millis(30));
        let told = w.told(3, id);
        assert!(
            told.iter().any(|told| matches!(told, Told::Lagged(_))),
            "{told:?}"
        );
    }
}

#[test]
fn a_lost_connection_loses_no_change() {
    let mut w = World::new(66, 3, |_| vec![1, 2]);
    let id = w.follow(3, all());
    for n in 0..10 {
        w.set(1, &key_of(0), &format!("{n}"));
        w.disconnect(1, 3);
        w.set(2, &key_of(0), &format!("{n}b"));
        w.connect(1, 3);
    }
    w.settle(Duration::from_millis(600));
    let expected: Vec<String> = (0..10)
        .flat_map(|n| [format!("{n}"), format!("{n}b")])
        .collect();
    assert_eq!(w.values(3, id)[&key_of(0)], expected);
}

#[test]
fn a_hash_tells_its_fields_one_by_one_or_once_for_each_command() {
    let mut w = World::new(67, 2, |_| vec![1, 2]);
    let key = key_of(0);
    let fields: Vec<(String, String)> = (0..60)
        .map(|n| (format!("field{n}"), "v".repeat(50)))
        .collect();
    let hset = |some: &[(String, String)]| {
        let words: Vec<String> = some.iter().map(|(f, v)| format!("{f} {v}")).collect();
        super::hashes::of(&format!("HSET {key} {}", words.join(" ")))
    };
    w.ask(1, &key, hset(&fields));
    let each = w.follow(2, all());
    let once = w.follow(
        2,
        Filter {
            fields: false,
            values: false,
            ..all()
        },
    );
    w.ask(1, &key, hset(&fields[..3]));
    w.settle(Duration::from_millis(30));
    let changes = w.changes(2, each);
    assert_eq!(changes.len(), 3);
    for (change, (field, value)) in changes.iter().zip(&fields) {
        let (field, value) = (Bytes::from(field.clone()), Bytes::from(value.clone()));
        assert_eq!(
            change.what,
            What::Field(crate::value::kind::Kind::Hash, field, Some(value))
        );
        assert_eq!(change.by.and_then(crate::By::event), Some("hset"));
    }
    assert_eq!(w.changes(2, once).len(), 1);
}

#[test]
fn a_stranger_cannot_fill_a_primary_with_readers_or_read_another_keyspace() {
    let mut w = World::new(68, 2, |_| vec![1, 2]);
    let at = PartitionRef::new(KeyspaceId(0), PartitionId(0));
    let wrong = Filter {
        keyspace: KeyspaceId(1),
        ..all()
    };
    let long = Filter {
        keys: KeyFilter::Prefix(Bytes::from(vec![0; 70 << 10])),
        ..all()
    };
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    for (ticket, filter) in [(1, wrong), (2, long), (3, all()), (3, all())] {
        let frame = Frame::Subscribe {
            at,
            ticket,
            filter,
            had: Vec::new(),
        };
        shard
            .slots
            .asked_by_subscriber(&mut shard.cx.host, id(2), frame);
    }
    let readers = |w: &World| {
        let slot = w.nodes[&1].shard.slots.get(at).unwrap();
        slot.held.as_ref().unwrap().lead().unwrap().readers.len()
    };
    assert_eq!(readers(&w), 1);
    // Answers to nothing, and more taken than was sent, change nothing.
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    shard.slots.asked_by_subscriber(
        &mut shard.cx.host,
        id(2),
        Frame::Taken {
            at,
            ticket: 3,
            bytes: u64::MAX,
        },
    );
    shard.slots.asked_by_subscriber(
        &mut shard.cx.host,
        id(2),
        Frame::Reads {
            keyspaces: (0..u16::MAX).map(|n| (KeyspaceId(n), n % 2 == 0)).collect(),
        },
    );
    assert_eq!(shard.cx.host.read.len(), 1_024);
    w.disconnect(1, 2);
    assert_eq!(readers(&w), 0);
}

/// A near cache serves a copy as long as it is confirmed often enough.
#[test]
fn a_subscriber_is_told_that_it_knows_all() {
    let mut w = World::of_threads(61, 3, |_| 1, |_| vec![1, 2]);
    let id = w.follow(3, all());
    let every = Duration::from_millis(50);
    let now = w.now;
    w.nodes
        .get_mut(&3)
        .unwrap()
        .shard
        .subscriber()
        .confirm(now, id, every);
    w.drain(3);
    let key = key_of(0);
    assert_eq!(w.set(2, &key, "a"), Outcome::Ok);
    let written = w.now;
    w.settle(Duration::from_millis(200));
    let told = w.told(3, id);
    let partition = told.iter().find_map(|told| match told {
        Told::Change(change) => Some(change.position.partition),
        _ => None,
    });
    let partition = partition.expect("it is told");
    let change = told.iter().position(|t| matches!(t, Told::Change(_)));
    let confirmed: Vec<(usize, Time)> = told
        .iter()
        .enumerate()
        .filter_map(|(n, told)| match told {
            Told::Confirmed { at, partitions } if partitions.contains(&partition) => Some((n, *at)),
            _ => None,
        })
        .collect();
    let later = confirmed.iter().filter(|(_, at)| *at >= written);
    let later: Vec<usize> = later.map(|(n, _)| *n).collect();
    assert!(later.len() >= 2, "{told:?}");
    assert!(later.iter().all(|n| Some(*n) > change), "{told:?}");
    // Who takes nothing is not told that it knows all.
    for n in 0..200 {
        assert_eq!(w.set(2, &key, &"x".repeat(1_000 + n)), Outcome::Ok);
    }
    let filled = w.now;
    w.settle(Duration::from_millis(200));
    let told = w.told(3, id);
    let too_early = told.iter().any(|told| match told {
        Told::Confirmed { at, partitions } => *at > filled && partitions.contains(&partition),
        _ => false,
    });
    assert!(!too_early, "it does not know all");
}

/// Seed 1495 of the simulation: a primary had accepted the table that removes it, and had a lease
/// again. Its successor acknowledged writes, and it still confirmed that a subscriber knew all.
#[test]
fn a_primary_that_knows_its_successor_confirms_nothing() {
    let mut w = World::of_threads(62, 3, |_| 1, |_| vec![1, 2]);
    let id = w.follow(3, all());
    let now = w.now;
    let every = Duration::from_millis(50);
    w.nodes
        .get_mut(&3)
        .unwrap()
        .shard
        .subscriber()
        .confirm(now, id, every);
    w.drain(3);
    let confirmations_of = |w: &mut World, led: PartitionId| {
        let until = w.now + Duration::from_millis(300);
        while w.now < until {
            let wires: Vec<_> = w.wires.keys().copied().collect();
            wires.into_iter().for_each(|wire| w.deliver(wire, true));
            w.pass(Duration::from_millis(5));
        }
        let told = w.told(3, id);
        let confirmed = told.iter().filter(
            |told| matches!(told, Told::Confirmed { partitions, .. } if partitions.contains(&led)),
        );
        confirmed.count()
    };
    let led = PartitionId(0);
    assert!(confirmations_of(&mut w, led) > 0, "it leads");
    w.propose(|t| promote(t, led, 2));
    let accepted = w.tables.len() - 1;
    w.nodes.get_mut(&1).unwrap().accepted = accepted;
    w.show(1, false);
    assert!(w.nodes[&1].lease > w.now, "it has a lease");
    w.told(3, id);
    assert_eq!(confirmations_of(&mut w, led), 0);
    assert!(w.nodes[&1].lease > w.now, "it kept its lease");
    assert!(
        confirmations_of(&mut w, PartitionId(1)) > 0,
        "of the others, which it leads, it goes on to confirm"
    );
}
