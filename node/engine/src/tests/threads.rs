//! Members with several data threads: each partition has its thread, and the threads of a node are
//! peers like any others.

use super::*;
use crate::role::threads::thread_of;

/// Two members with a copy of everything. Each leads every other partition. The first has two data
/// threads, the second three.
fn world(seed: u64) -> World {
    let threads = |n| if n == 1 { 2 } else { 3 };
    let mut w = World::of_threads(seed, 2, threads, |p| {
        if p < 2 { vec![1, 2] } else { vec![2, 1] }
    });
    w.settle(Duration::from_millis(50));
    w
}

/// A key of this partition.
fn key(partition: u32) -> String {
    let table = table(1, |_| vec![1]);
    let of = |key: &String| table.keyspaces[0].partition_of(MapId(0), key.as_bytes());
    (0..)
        .map(|i| format!("key {i}"))
        .find(|key| of(key) == Some(PartitionId(partition)))
        .unwrap()
}

#[test]
fn each_thread_holds_its_part_and_answers_for_all() {
    let mut w = world(1);
    let threads = [1, 1001, 2, 1002, 2002];
    for (place, n) in threads.into_iter().enumerate() {
        for partition in 0..4 {
            assert_eq!(
                w.set(n, &format!("{place} {}", key(partition)), "1"),
                Outcome::Ok
            );
        }
    }
    w.settle(Duration::from_millis(200));
    w.check_copies();
    for (n, count) in [(1, 2), (1001, 2), (2, 3), (1002, 3), (2002, 3)] {
        let (thread, shard) = ((n / 1000) as u8, &w.nodes[&n].shard);
        let mine = |p: &u32| thread_of(PartitionId(*p), count) == thread;
        let held: Vec<u32> = shard
            .inspector()
            .partitions()
            .map(|held| held.at.partition.0)
            .collect();
        assert_eq!(
            held,
            (0..4).filter(mine).collect::<Vec<_>>(),
            "thread {n} holds another's partition, or lacks its own"
        );
        for partition in 0..4 {
            assert_eq!(w.get(n, &format!("3 {}", key(partition))), text("1"));
        }
    }
}

#[test]
fn a_client_goes_straight_to_the_thread() {
    let mut w = world(2);
    let client = w.add_client(1);
    w.settle(Duration::from_millis(50));
    (0..4).for_each(|partition| assert_eq!(w.set(client, &key(partition), "1"), Outcome::Ok));
    for (n, threads, led) in [
        (1, 2, 0..2),
        (1001, 2, 0..2),
        (2, 3, 2..4),
        (1002, 3, 2..4),
        (2002, 3, 2..4),
    ] {
        let executed = led
            .filter(|p| u64::from(thread_of(PartitionId(*p), threads)) == n / 1000)
            .count() as u64;
        let stats = w.nodes[&n].shard.stats();
        assert_eq!(
            (stats.executed, stats.forwarded),
            (executed, 0),
            "thread {n}"
        );
    }
}

/// A thread of the same node is asked like any other peer: an operation that may have been applied
/// is sent again, and its outcome is found.
#[test]
fn a_call_between_threads_is_applied_once() {
    let mut w = world(3);
    let token = w.submit(1, &key(1), Action::IncrBy(1));
    w.deliver((1, 1001, Lane::Calls), true);
    w.disconnect(1, 1001);
    w.connect(1, 1001);
    w.settle(Duration::from_millis(100));
    assert_eq!(w.outcomes.get(&token), Some(&Outcome::Int(1)));
    assert_eq!(w.get(2, &key(1)), text("1"));
}

#[test]
fn outcomes_of_a_thread_are_kept_as_long_as_its_member() {
    let mut w = world(4);
    assert_eq!(w.ask(1001, &key(0), Action::IncrBy(1)), Outcome::Int(1));
    let at = PartitionRef::new(KeyspaceId(0), PartitionId(0));
    let knows = |w: &World, n| {
        let held = w.nodes[&n]
            .shard
            .slots
            .get(at)
            .and_then(|s| s.held.as_ref())
            .expect("a copy");
        held.dedup.all().any(|(origin, ..)| origin == id(1001))
    };
    w.propose(|t| promote(t, PartitionId(0), 2));
    w.settle(Duration::from_millis(700));
    assert!(
        knows(&w, 1) && knows(&w, 2),
        "another table is no reason to forget"
    );
}

#[test]
fn requests_to_the_coordinator_name_members() {
    let mut w = World::of_threads(5, 2, |n| if n == 1 { 3 } else { 2 }, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w.set(1, &key(1), "1");
    w.kill(2);
    w.kill(1002);
    assert_eq!(
        w.set(1, &key(1), "2"),
        Outcome::Ok,
        "the copy that says nothing was removed"
    );
    assert!(
        w.tables[w.committed].keyspaces[0].partitions[1]
            .in_sync()
            .eq([id(1)])
    );
}
