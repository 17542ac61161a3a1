//! Copies under way: interrupted ones continue, and they keep the pace that an operator has set.

use super::slices::{fill, second_learns};
use super::*;
use crate::role::holding::Bond;
use doyen_placement::MoveRate;

/// One holder whose copies go to the second member a few chunks at a time. It has `keys` of 1,000
/// bytes.
fn world(seed: u64, keys: usize, rate: MoveRate) -> World {
    let mut w = World::with_one_holder(seed);
    w.nodes
        .values_mut()
        .for_each(|n| n.shard.cx.host.limits.chunk_bytes = 8 << 10);
    fill(&mut w, keys, &set(&"v".repeat(1_000)));
    w.propose(|t| {
        t.settings.balancing.rate = rate;
        second_learns(t);
    });
    w
}

/// The world goes on until the learner has this number of `keys`.
fn until_learned(w: &mut World, keys: u64) {
    for _ in 0..10_000 {
        if w.nodes[&2].shard.stats().keys >= keys {
            return;
        }
        w.agree(true);
        let wires: Vec<_> = w.wires.keys().copied().collect();
        wires.into_iter().for_each(|wire| w.deliver(wire, true));
        w.pass(Duration::from_millis(1));
    }
    panic!("the learner does not get {keys} keys");
}

/// The ratio of the bytes that were sent to the bytes that exist.
fn sent_twice(w: &World, keys: usize) -> f64 {
    w.nodes[&1].shard.stats().copies.snapshot_bytes as f64 / (keys * 1_000) as f64
}

#[test]
fn a_snapshot_goes_on_after_the_last_part_that_arrived() {
    let keys = 4_000;
    let mut w = world(71, keys, MoveRate::Adaptive);
    for (part, broken) in [(1_000, 1), (2_000, 2), (3_000, 3)] {
        until_learned(&mut w, part);
        // Writes during the copy are in the log, and some of them are lost with the connection.
        (0..50).for_each(|n| _ = w.submit(1, &format!("k{}", n * broken), set("later")));
        w.disconnect(1, 2);
        w.pass(Duration::from_millis(20));
        (50..100).for_each(|n| _ = w.submit(1, &format!("k{}", n * broken), set("later still")));
        w.connect(1, 2);
    }
    w.settle(Duration::from_secs(2));
    let stats = w.nodes[&1].shard.stats();
    assert_eq!(w.in_sync(), usize::from(PARTITIONS));
    assert!(stats.copies.continued >= 3, "{}", stats.copies.continued);
    assert_eq!(stats.copies.checksum_mismatches, 0);
    assert!(
        sent_twice(&w, keys) < 1.3,
        "{} of it was sent",
        sent_twice(&w, keys)
    );
    w.check_copies();
}

#[test]
fn a_snapshot_goes_on_in_another_epoch_of_its_tenure() {
    let keys = 4_000;
    let mut w = world(72, keys, MoveRate::Adaptive);
    until_learned(&mut w, 2_000);
    // As if another copy of the same partitions were dropped.
    w.propose(|t| {
        for p in 0..u32::from(PARTITIONS) {
            let partition = partition_mut(t, PartitionId(p));
            partition.epoch = partition.epoch.next();
        }
    });
    w.settle(Duration::from_secs(2));
    let stats = w.nodes[&1].shard.stats();
    assert_eq!(w.in_sync(), usize::from(PARTITIONS));
    assert!(
        stats.copies.continued >= u64::from(PARTITIONS),
        "{}",
        stats.copies.continued
    );
    assert_eq!(stats.copies.checksum_mismatches, 0);
    assert!(
        sent_twice(&w, keys) < 1.3,
        "{} of it was sent",
        sent_twice(&w, keys)
    );
    w.check_copies();
}

/// A learner that lost what it had (as after a table that dropped and added it again) is sent
/// everything.
#[test]
fn a_learner_that_knows_nothing_of_its_session_begins_anew() {
    let mut w = world(73, 1_000, MoveRate::Adaptive);
    until_learned(&mut w, 500);
    w.disconnect(1, 2);
    for slot in w.nodes.get_mut(&2).unwrap().shard.slots.iter_mut() {
        let followers = slot.held.iter_mut().filter_map(|held| held.follower_mut());
        for follower in followers {
            if let Some(follow) = follower.follow() {
                follower.bind(Bond::Aligned(follow));
            }
        }
    }
    w.connect(1, 2);
    w.settle(Duration::from_secs(2));
    assert_eq!(
        (w.in_sync(), w.nodes[&1].shard.stats().copies.continued),
        (usize::from(PARTITIONS), 0)
    );
    w.check_copies();
}

#[test]
fn copies_keep_the_pace_that_an_operator_sets() {
    let mut w = world(74, 2_000, MoveRate::Bytes(500_000));
    let began = w.now;
    w.settle(Duration::from_secs(2));
    let sent = w.nodes[&1].shard.stats().copies.snapshot_bytes;
    let allowed = w.now.since(began).as_secs_f64() * 500_000.0;
    assert!(
        sent as f64 <= allowed * 1.1 + 200_000.0,
        "{sent} bytes where {allowed} were allowed"
    );
    assert!(w.in_sync() < usize::from(PARTITIONS));
    w.settle(Duration::from_secs(4));
    assert_eq!(
        (
            w.in_sync(),
            w.nodes[&1].shard.stats().copies.checksum_mismatches
        ),
        (usize::from(PARTITIONS), 0)
    );
    w.check_copies();
}

/// Regression: all waiting acks were sent at once as soon as any might be, and their next chunks
/// came all at once.
#[test]
fn a_learner_that_is_slower_than_its_sources_lets_them_go_on_one_part_at_a_time() {
    let mut w = world(77, 2_000, MoveRate::Bytes(500_000));
    let (mut most, mut waited) = (0, 0);
    while w.in_sync() < usize::from(PARTITIONS) {
        assert!(w.now < Time::ZERO + Duration::from_secs(60), "it goes on");
        w.agree(true);
        let wires: Vec<_> = w.wires.keys().copied().collect();
        wires.into_iter().for_each(|wire| w.deliver(wire, true));
        w.nodes
            .get_mut(&1)
            .unwrap()
            .shard
            .cx
            .host
            .copying
            .rate
            .set(MoveRate::Adaptive, 1);
        let waiting = |w: &World| w.nodes[&2].shard.cx.host.copying.late_acks.len();
        let before = waiting(&w);
        w.pass(Duration::from_millis(1));
        (most, waited) = (
            most.max(before.saturating_sub(waiting(&w))),
            waited.max(before),
        );
    }
    assert!(waited > 2, "{waited} parts waited");
    // One chunk, and a first one that was counted when the copy began. A part of 8 KB is what it
    // takes in 16 ms.
    assert!(most <= 2, "{most} parts at once");
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.check_copies();
}

#[test]
fn a_source_tells_how_far_its_copies_are() {
    let mut w = world(75, 4_000, MoveRate::Bytes(500_000));
    until_learned(&mut w, 500);
    let now = w.now;
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    shard.cx.host.upkeep.measured = (Time::ZERO, 1);
    shard.slots.measure(&mut shard.cx.host, now);
    let told = std::iter::from_fn(|| shard.poll_request()).find_map(|request| match request {
        ShardRequest::Loads(report) => Some(report.moves),
        _ => None,
    });
    let told = told.expect("it measures");
    assert!(
        !told.is_empty()
            && told
                .iter()
                .all(|p| p.learner == id(2) && p.keys >= p.keys_sent)
    );
    let sent: u64 = told.iter().map(|p| p.keys_sent).sum();
    assert!((500..4_000).contains(&sent), "{sent}");
    assert!(told.iter().any(|p| p.bytes_left() > 0 && p.bytes_sent > 0));
}

/// A copy that is no longer assigned stays for a minute, but shorter if memory is short, and longer
/// if other members lack copies.
#[test]
fn a_dropped_copy_is_kept_for_a_while() {
    let holds = |w: &World| {
        w.nodes[&2]
            .shard
            .slots
            .iter()
            .filter(|s| s.held.is_some())
            .count()
    };
    let dropped = |short: bool| {
        let mut w = World::new(76, 3, |p| if p % 2 == 0 { vec![1, 2] } else { vec![2, 3] });
        w.settle(Duration::from_millis(100));
        (0..200).for_each(|n| _ = w.submit(1, &format!("k{n}"), set("v")));
        w.settle(Duration::from_millis(100));
        // The third member takes the second's place.
        w.propose(|t| {
            for p in (0..u32::from(PARTITIONS)).step_by(2) {
                let partition = partition_mut(t, PartitionId(p));
                partition.replicas.truncate(1);
                partition.epoch = partition.epoch.next();
            }
            t.keyspaces[0].backups = 0;
        });
        if short {
            let shard = &mut w.nodes.get_mut(&2).unwrap().shard;
            shard.cx.host.limits.memory_bytes_max = shard.cx.host.memory.bytes;
        }
        w.settle(Duration::from_secs(10));
        w
    };
    let mut kept = dropped(false);
    assert_eq!(holds(&kept), usize::from(PARTITIONS));
    kept.settle(crate::role::tenure::DROP_DELAY);
    assert_eq!(holds(&kept), usize::from(PARTITIONS) / 2);
    assert_eq!(
        holds(&dropped(true)),
        usize::from(PARTITIONS) / 2,
        "memory is short"
    );
}

/// Regression: copies that only balance load took the pace of missing ones, and a leaver waited for
/// both.
#[test]
fn missing_copies_are_made_before_balancing_ones() {
    let goes_to_the_third = |t: &mut Table, p| {
        let partition = partition_mut(t, PartitionId(p));
        partition.replicas.push(Replica {
            member: id(3),
            state: ReplicaState::Learner,
        });
        partition.goal = Some(vec![id(1), id(3)]);
    };
    for leaves in [false, true] {
        let holders = |p| match p {
            0 => vec![1, 4],
            _ if leaves => vec![1, 2],
            _ => vec![1],
        };
        let mut w = World::new(77, 4, holders);
        w.nodes
            .values_mut()
            .for_each(|n| n.shard.cx.host.limits.chunk_bytes = 8 << 10);
        fill(&mut w, 2_000, &set(&"v".repeat(1_000)));
        w.propose(|t| {
            (0..u32::from(PARTITIONS)).for_each(|p| goes_to_the_third(t, p));
            if leaves {
                let second = t.members.iter_mut().find(|m| m.id == id(2)).unwrap();
                Arc::make_mut(second).state = MemberState::Draining;
            }
        });
        let has = |w: &World, p: u32| {
            let partition = w.tables[w.committed].keyspaces[0]
                .partition(PartitionId(p))
                .unwrap();
            partition.in_sync().any(|m| m == id(3))
        };
        let arrived = |w: &World| {
            let first = w.nodes[&3]
                .shard
                .slots
                .iter()
                .find(|s| s.at.partition == PartitionId(0));
            first
                .and_then(|s| s.held.as_ref())
                .map_or(0, |held| held.store.bytes())
        };
        let mut steps = 0;
        while !(1..u32::from(PARTITIONS)).all(|p| has(&w, p)) {
            assert_eq!(arrived(&w), 0, "it can wait");
            w.settle(Duration::from_millis(10));
            steps += 1;
            assert!(steps < 1_000, "the missing copies are not made");
        }
        w.settle(Duration::from_secs(5));
        assert!(has(&w, 0), "then it goes as well");
        w.check_copies();
    }
}

/// Dropped copies come back, several of each partition, so each begins another epoch while others
/// are under way. Regression: a copy that had come with the log alone was then sent chunks. It did
/// not expect them, and timed out.
#[test]
fn copies_that_come_back_together_are_not_given_up() {
    for seed in 0..20 {
        let mut w = World::new(9_000 + seed, 4, |p| {
            (0..4).map(|m| 1 + (u64::from(p) + m) % 4).collect()
        });
        (0..100).for_each(|n| _ = w.set(1, &format!("k{n}"), "v"));
        w.settle(Duration::from_millis(300));
        let partitions = || (0..u32::from(PARTITIONS)).map(PartitionId);
        w.propose(|t| {
            for p in partitions() {
                let partition = partition_mut(t, p);
                partition.replicas.truncate(1);
                partition.epoch = partition.epoch.next();
            }
        });
        w.settle(Duration::from_millis(300));
        w.propose(|t| {
            for p in partitions() {
                let partition = partition_mut(t, p);
                let lead = number(partition.primary());
                let others = (1..=4).filter(|m| *m != lead);
                partition.replicas.extend(others.map(|m| Replica {
                    member: id(m),
                    state: ReplicaState::Learner,
                }));
            }
        });
        let whole = |w: &World| {
            w.tables[w.committed].keyspaces[0]
                .partitions
                .iter()
                .all(|p| p.in_sync().count() == 4)
        };
        let began = w.now;
        while !whole(&w) {
            assert!(
                w.now.since(began) < w.nodes[&1].shard.cx.host.limits.copy_silent_max * 2,
                "seed {seed}"
            );
            if w.rng.one_in(4) {
                w.agree(false);
            }
            let wires: Vec<_> = w.wires.keys().copied().collect();
            for wire in wires {
                if w.rng.one_in(2) {
                    w.deliver(wire, true);
                }
            }
            w.pass(Duration::from_millis(1));
        }
        let sent: u64 = w
            .nodes
            .values()
            .map(|n| n.shard.stats().copies.snapshot_bytes)
            .sum();
        assert_eq!(sent, 0, "seed {seed}: the log is enough");
        w.settle(Duration::from_millis(300));
        w.check_copies();
    }
}

/// Slow copies that only balance load hold all places. A missing copy begins at once all the same.
#[test]
fn missing_copies_do_not_wait_for_a_place() {
    let mut w = World::new(78, 3, |p| if p == 0 { vec![1, 2] } else { vec![1] });
    w.nodes.values_mut().for_each(|n| {
        (
            n.shard.cx.host.limits.chunk_bytes,
            n.shard.cx.host.limits.copies_max,
        ) = (8 << 10, 1)
    });
    fill(&mut w, 2_000, &set(&"v".repeat(1_000)));
    let third = Replica {
        member: id(3),
        state: ReplicaState::Learner,
    };
    w.propose(|t| {
        t.settings.balancing.rate = MoveRate::Bytes(64 << 10);
        let partition = partition_mut(t, PartitionId(0));
        partition.replicas.push(third);
        partition.goal = Some(vec![id(1), id(3)]);
    });
    let bytes = |w: &World, p| {
        let slot = w.nodes[&3]
            .shard
            .slots
            .get(PartitionRef::new(KeyspaceId(0), PartitionId(p)));
        slot.and_then(|s| s.held.as_ref())
            .map_or(0, |held| held.store.bytes())
    };
    for _ in 0..1_000 {
        if bytes(&w, 0) > 0 {
            break;
        }
        w.settle(Duration::from_millis(10));
    }
    assert!(bytes(&w, 0) > 0, "the copy does not begin");
    w.propose(|t| {
        let partition = partition_mut(t, PartitionId(1));
        partition.replicas.push(third);
        partition.goal = Some(vec![id(1), id(3)]);
        t.settings.balancing.rate = MoveRate::Adaptive;
    });
    let has = |w: &World, p: u32| {
        let partition = w.tables[w.committed].keyspaces[0]
            .partition(PartitionId(p))
            .unwrap();
        partition.in_sync().any(|m| m == id(3))
    };
    // One chunk of it, not all. Data on its way still arrives.
    for _ in 0..1_000 {
        if bytes(&w, 1) > 0 {
            break;
        }
        assert!(!has(&w, 0), "it waited for a place");
        w.settle(Duration::from_millis(5));
    }
    w.settle(Duration::from_secs(5));
    assert!(has(&w, 0) && has(&w, 1));
    w.check_copies();
}

/// One place, and copies that take a few milliseconds: none waits for the next look at all
/// partitions.
#[test]
fn a_copy_begins_in_the_place_of_one_that_has_ended() {
    let mut w = World::with_one_holder(79);
    w.nodes
        .values_mut()
        .for_each(|n| n.shard.cx.host.limits.copies_max = 1);
    fill(&mut w, 100, &set("value"));
    w.settle(Duration::from_millis(200));
    let began = w.now;
    w.propose(second_learns);
    while w.in_sync() < usize::from(PARTITIONS) {
        w.settle(Duration::from_millis(1));
        assert!(
            w.now.since(began) < crate::role::upkeep_queue::UPKEEP * u32::from(PARTITIONS) / 2,
            "{} of {PARTITIONS} are copied",
            w.in_sync()
        );
    }
    w.check_copies();
}

/// A partition that a table does not change has no work, however the table changes others. A write
/// that waits there is checked again.
#[test]
fn a_table_turns_only_what_it_changes() {
    let mut w = World::with_one_holder(80);
    w.settle(Duration::from_secs(2));
    let noticed = |w: &World| {
        w.nodes[&1]
            .shard
            .slots
            .iter()
            .filter(|slot| slot.noticed)
            .count()
    };
    assert_eq!(noticed(&w), 0, "all is quiet");
    w.propose(|t| {
        partition_mut(t, PartitionId(1)).replicas.push(Replica {
            member: id(2),
            state: ReplicaState::Learner,
        })
    });
    w.agree(true);
    assert_eq!(noticed(&w), 1);
    w.settle(Duration::from_secs(2));
    assert_eq!(w.in_sync(), 1);
    // The members differ, so every partition is looked at.
    w.propose(|t| std::sync::Arc::make_mut(&mut t.members[1]).weight = 50);
    w.agree(true);
    assert_eq!(noticed(&w), usize::from(PARTITIONS));
}

/// Its primary heard of the table first. Its Begin must not be lost.
#[test]
fn a_learner_that_hears_late_of_its_table_need_not_be_asked_twice() {
    let mut w = World::with_one_holder(77);
    fill(&mut w, 100, &set("v"));
    w.settle(Duration::from_millis(500));
    w.late = Some(2);
    w.propose(second_learns);
    w.settle(Duration::from_millis(20));
    assert_eq!(
        w.nodes[&2].shard.cx.host.copying.early.len(),
        usize::from(PARTITIONS)
    );
    w.late = None;
    w.settle(Duration::from_millis(50));
    assert_eq!(
        (w.in_sync(), w.nodes[&2].shard.cx.host.copying.early.len()),
        (usize::from(PARTITIONS), 0)
    );
    w.check_copies();
}

/// A member that sends copies knows from the connection on that there is room.
#[test]
fn copies_begin_as_soon_as_a_table_says_so() {
    let mut w = World::with_one_holder(78);
    fill(&mut w, 100, &set("v"));
    w.settle(Duration::from_millis(500));
    w.disconnect(1, 2);
    w.pass(Duration::from_millis(5));
    w.connect(1, 2);
    w.propose(second_learns);
    // Less than the time between two looks at memory.
    w.settle(Duration::from_millis(30));
    assert_eq!(w.in_sync(), usize::from(PARTITIONS));
}
