//! What is large is done a little at a time: one tick has a bound, and says when it goes on.

use super::*;

/// Ticks one node until nothing is due for a while; the most that `done` grew in one tick.
fn most_in_a_tick(w: &mut World, n: u64, done: impl Fn(&Shard) -> usize) -> usize {
    let mut most = 0;
    for _ in 0..2_000 {
        w.now = w.now + Duration::from_millis(1);
        let shard = &mut w.nodes.get_mut(&n).unwrap().shard;
        let before = done(shard);
        if shard.poll_timeout().is_some_and(|due| due <= w.now) {
            shard.tick(w.now);
        }
        most = most.max(done(shard) - before);
    }
    most
}

fn fill(w: &mut World, count: usize, action: &Action) {
    for n in 0..count {
        w.submit(1, &format!("k{n}"), action.clone());
    }
    w.settle(Duration::from_millis(50));
}

#[test]
fn keys_that_expire_at_once_do_so_in_steps() {
    let mut w = World::new(41, 1, |_| vec![1]);
    fill(&mut w, 1_000, &set_for(1_000));
    assert_eq!(w.nodes[&1].shard.stats().keys, 1_000);
    w.now = w.now + Duration::from_secs(1);
    let most = most_in_a_tick(&mut w, 1, |shard| shard.stats().expired as usize);
    assert_eq!((w.nodes[&1].shard.stats().expired, w.nodes[&1].shard.stats().keys), (1_000, 0));
    assert!(most <= 200, "{most} keys in one tick");
}

fn clear(w: &mut World, n: u64) {
    for p in 0..u32::from(PARTITIONS) {
        let operation =
            PartitionOperation { keyspace: KeyspaceId(0), partition: PartitionId(p), map: MapId(0), action: op::PartitionAction::Clear };
        let token = w.next_token;
        w.next_token += 1;
        w.nodes.get_mut(&n).unwrap().shard.submit_partition(w.now, token, operation);
    }
    w.drain(n);
}

fn garbage(shard: &Shard) -> usize {
    let logs = shard.core.old_logs.iter().map(|log| (log.last() - log.base()) as usize);
    shard.core.garbage.iter().map(Map::len).chain(logs).sum()
}

/// Ten million keys took as long to free as nobody else was served.
#[test]
fn what_is_dropped_is_freed_in_steps_also_while_others_are_busy() {
    let mut w = World::new(42, 1, |_| vec![1]);
    fill(&mut w, 3_000, &set("x"));
    clear(&mut w, 1);
    let dropped = garbage(&w.nodes[&1].shard);
    assert_eq!((dropped, w.nodes[&1].shard.stats().keys), (3_000, 0));
    let mut left = dropped;
    for n in 0..100 {
        w.now = w.now + Duration::from_millis(1);
        // Each input tells the time, too: what is due must not move with it.
        w.submit(1, &format!("other{n}"), Action::Get);
        let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
        if shard.poll_timeout().is_some_and(|due| due <= w.now) {
            shard.tick(w.now);
        }
        let now = garbage(shard);
        assert!(left - now <= 500, "{} in one tick", left - now);
        left = now;
    }
    assert_eq!(left, 0);
}

#[test]
fn a_process_that_begins_anew_frees_what_it_held_in_steps() {
    let mut w = World::new(43, 1, |_| vec![1]);
    fill(&mut w, 2_000, &set("x"));
    let now = w.now;
    let mut heir = Shard::new(id(9), limits(), 9, now);
    let former = w.nodes.remove(&1).unwrap().shard;
    assert_eq!(former.into_calls(&mut heir).count(), 0);
    let inherited = garbage(&heir);
    assert!(inherited >= 2_000, "{inherited}");
    heir.tick(now);
    assert!(inherited - garbage(&heir) <= 500);
    for n in 1..100 {
        heir.tick(now + Duration::from_millis(5 * n));
    }
    assert_eq!((garbage(&heir), heir.core.old_logs.len()), (0, 0));
}

/// Every part that a learner had taken was answered with the next one in the same pass, of all partitions at once.
#[test]
fn a_snapshot_goes_out_in_steps() {
    let mut w = World::new(44, 2, |_| vec![1]);
    w.nodes.values_mut().for_each(|n| n.shard.core.limits.chunk_bytes = 64 << 10);
    w.nodes.values_mut().for_each(|n| n.shard.core.limits.copies_max = 32);
    let value = "v".repeat(1_000);
    fill(&mut w, 4_000, &set(&value));
    w.propose(|t| {
        for p in 0..u32::from(PARTITIONS) {
            partition_mut(t, PartitionId(p)).replicas.push(Replica { member: id(2), state: ReplicaState::Learner });
        }
    });
    let mut most = 0;
    for _ in 0..400 {
        w.agree(true);
        for _ in 0..20 {
            let wires: Vec<_> = w.wires.keys().copied().collect();
            wires.into_iter().for_each(|wire| w.deliver(wire, true));
        }
        w.now = w.now + Duration::from_millis(3);
        for n in [1, 2] {
            let shard = &mut w.nodes.get_mut(&n).unwrap().shard;
            let before = shard.stats().snapshot_bytes;
            shard.tick(w.now);
            most = most.max(shard.stats().snapshot_bytes - before);
            w.drain(n);
        }
    }
    let sent = w.nodes[&1].shard.stats().snapshot_bytes;
    assert!(sent > 4_000_000, "{sent}");
    assert!(most > 0 && most <= 1 << 20, "{most} bytes in one tick");
    assert!(w.tables[w.committed].keyspaces[0].partitions.iter().all(|p| p.in_sync().count() == 2));
}

#[test]
fn upkeep_looks_at_some_partitions_at_a_time() {
    let mut w = World::new(45, 1, |_| vec![1]);
    w.settle(Duration::from_millis(100));
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    let more = (100..1_100).map(|p| PartitionRef { keyspace: KeyspaceId(0), partition: PartitionId(p) });
    for at in more {
        let slot = shard.slots.get_or_insert(at);
        shard.core.notice(at, slot);
    }
    let noticed = shard.core.noticed.len();
    let now = w.now + Duration::from_millis(60);
    shard.tick(now);
    assert_eq!(shard.core.looking_at.len(), noticed - 256);
    assert!(shard.poll_timeout().unwrap() <= now, "it goes on at once");
    for _ in 0..4 {
        shard.tick(now);
    }
    assert_eq!((shard.core.looking_at.len(), shard.core.noticed.len()), (0, 0));
}
