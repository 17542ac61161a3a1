//! Large work is done a little at a time: one tick is bounded, and says when the next one is due.

use super::*;

/// Ticks one node until nothing is due for a while. Returns the most that `done` grew in one tick.
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

pub(super) fn fill(w: &mut World, count: usize, action: &Action) {
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
    assert_eq!(
        (
            w.nodes[&1].shard.stats().expired,
            w.nodes[&1].shard.stats().keys
        ),
        (1_000, 0)
    );
    assert!(most <= 200, "{most} keys in one tick");
}

fn clear(w: &mut World, n: u64) {
    for p in 0..u32::from(PARTITIONS) {
        let operation = PartitionOperation {
            keyspace: KeyspaceId(0),
            partition: PartitionId(p),
            map: MapId(0),
            action: crate::command::operation::PartitionAction::Clear,
        };
        let token = w.next_token;
        w.next_token += 1;
        w.nodes.get_mut(&n).unwrap().shard.submit(
            w.now,
            1_700_000_000_000,
            token,
            operation,
            Patience::Whole,
        );
    }
    w.drain(n);
}

fn garbage(shard: &Shard) -> usize {
    let logs = shard
        .cx
        .host
        .memory
        .garbage
        .logs
        .iter()
        .map(|log| (log.last() - log.base()) as usize);
    shard
        .cx
        .host
        .memory
        .garbage
        .maps
        .iter()
        .map(super::super::store::StoredMap::len)
        .chain(logs)
        .sum()
}

/// Regression: while ten million keys were freed, clients were not served.
#[test]
fn dropped_contents_are_freed_in_steps_even_under_load() {
    let mut w = World::new(42, 1, |_| vec![1]);
    fill(&mut w, 3_000, &set("x"));
    clear(&mut w, 1);
    let dropped = garbage(&w.nodes[&1].shard);
    assert_eq!((dropped, w.nodes[&1].shard.stats().keys), (3_000, 0));
    let mut left = dropped;
    for n in 0..100 {
        w.now = w.now + Duration::from_millis(1);
        // Each input carries the time, too: it must not postpone work that is due.
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
fn a_process_that_begins_anew_frees_its_contents_in_steps() {
    let mut w = World::new(43, 1, |_| vec![1]);
    fill(&mut w, 2_000, &set("x"));
    let now = w.now;
    let mut heir = Shard::new(id(9), Limits::of_test(), 9, now);
    let former = w.nodes.remove(&1).unwrap().shard;
    assert_eq!(former.into_calls(&mut heir).count(), 0);
    let inherited = garbage(&heir);
    assert!(inherited >= 2_000, "{inherited}");
    heir.tick(now);
    assert!(inherited - garbage(&heir) <= 500);
    for n in 1..100 {
        heir.tick(now + Duration::from_millis(5 * n));
    }
    assert_eq!(
        (garbage(&heir), heir.cx.host.memory.garbage.logs.len()),
        (0, 0)
    );
}

impl World {
    /// Two members with the limits of a real node. The first one holds everything.
    pub(super) fn with_one_holder(seed: u64) -> Self {
        let mut w = Self::new(seed, 2, |_| vec![1]);
        for node in w.nodes.values_mut() {
            let limits = &mut node.shard.cx.host.limits;
            (
                limits.chunk_bytes,
                limits.chunks_in_flight,
                limits.copies_max,
            ) = (64 << 10, 4, 32);
            (limits.value_bytes_max, limits.memory_bytes_max) = (16 << 20, 1 << 30);
        }
        w
    }

    pub(super) fn in_sync(&self) -> usize {
        self.tables[self.committed].keyspaces[0]
            .partitions
            .iter()
            .filter(|p| p.in_sync().count() == 2)
            .count()
    }
}

pub(super) fn second_learns(t: &mut Table) {
    for p in 0..u32::from(PARTITIONS) {
        partition_mut(t, PartitionId(p)).replicas.push(Replica {
            member: id(2),
            state: ReplicaState::Learner,
        });
    }
}

/// Regression: every part that a learner had taken was answered with the next one in the same pass,
/// for all partitions at once.
#[test]
fn a_snapshot_goes_out_in_steps() {
    let mut w = World::with_one_holder(44);
    let value = "v".repeat(1_000);
    fill(&mut w, 4_000, &set(&value));
    w.propose(second_learns);
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
            let before = shard.stats().copies.snapshot_bytes;
            shard.tick(w.now);
            most = most.max(shard.stats().copies.snapshot_bytes - before);
            w.drain(n);
        }
    }
    let sent = w.nodes[&1].shard.stats().copies.snapshot_bytes;
    assert!(sent > 4_000_000, "{sent}");
    assert!(most > 0 && most <= 1 << 20, "{most} bytes in one tick");
    assert_eq!(w.in_sync(), usize::from(PARTITIONS));
}

#[test]
fn copying_pauses_for_clients_and_continues_at_once_without_them() {
    let mut w = World::with_one_holder(46);
    fill(&mut w, 8_000, &set(&"v".repeat(100)));
    assert!(
        !w.nodes[&1].shard.pauses(),
        "nothing waits for a pause to end"
    );
    w.propose(second_learns);
    while !w.nodes[&1].shard.pauses() {
        w.agree(true);
        let wires: Vec<_> = w.wires.keys().copied().collect();
        wires.into_iter().for_each(|wire| w.deliver(wire, true));
    }
    let (now, shard) = (w.now, &mut w.nodes.get_mut(&1).unwrap().shard);
    shard.tick(now);
    let sent = shard.stats().copies.snapshot_bytes;
    assert!(
        sent > 0 && shard.poll_timeout().unwrap() > now,
        "the next step is after a pause"
    );
    shard.tick(now);
    assert_eq!(shard.stats().copies.snapshot_bytes, sent);
    shard.go_on();
    assert!(shard.poll_timeout().unwrap() <= now);
    shard.tick(now);
    assert!(shard.stats().copies.snapshot_bytes > sent);
}

/// Regression: many partitions at once, each with four parts under way as large as values, were
/// more than may wait for a peer. Its connection was closed for that, again and again.
#[test]
fn snapshots_of_large_values_wait_until_earlier_parts_have_arrived() {
    let mut w = World::with_one_holder(47);
    w.settle(Duration::from_millis(100));
    fill(&mut w, 32, &set(&"v".repeat(4 << 20)));
    w.propose(second_learns);
    let mut most = 0;
    for _ in 0..100 {
        w.agree(true);
        // Data on the other lane arrives.
        let wires: Vec<_> = w
            .wires
            .keys()
            .copied()
            .filter(|(.., lane)| *lane == Lane::Calls)
            .collect();
        wires.into_iter().for_each(|wire| w.deliver(wire, true));
        w.pass(Duration::from_millis(10));
        most = most.max(w.wires.get(&(1, 2, Lane::Bulk)).map_or(0, BytesMut::len));
    }
    let limit = crate::wire::peers::COPY_AHEAD_MAX as usize;
    assert!(
        (limit..limit + (5 << 20)).contains(&most),
        "{most} bytes wait for a peer that takes nothing"
    );
    assert!(
        !w.nodes[&1].shard.pauses(),
        "nothing goes on before it has taken some"
    );
    w.settle(Duration::from_secs(2));
    assert_eq!(w.in_sync(), usize::from(PARTITIONS));
    w.check_copies();
}

#[test]
fn a_learner_that_hears_of_a_clear_amid_its_snapshot_comes_in_sync() {
    let mut w = World::with_one_holder(48);
    w.nodes
        .values_mut()
        .for_each(|n| n.shard.cx.host.limits.chunk_bytes = 4 << 10);
    fill(&mut w, 8_000, &set(&"v".repeat(100)));
    w.propose(second_learns);
    while w.nodes[&2].shard.stats().keys < 4_000 {
        w.agree(true);
        let wires: Vec<_> = w.wires.keys().copied().collect();
        wires.into_iter().for_each(|wire| w.deliver(wire, true));
        w.pass(Duration::from_millis(1));
    }
    clear(&mut w, 1);
    for n in 0..100 {
        w.submit(1, &format!("k{n}"), set("later"));
    }
    w.deliver((1, 2, Lane::Calls), true);
    let learner = &mut w.nodes.get_mut(&2).unwrap().shard;
    let left = |shard: &Shard| {
        shard
            .slots
            .iter()
            .filter(|s| s.held.as_ref().is_some_and(|h| !h.store.is_sifted()))
            .count()
    };
    assert_eq!(
        left(learner),
        usize::from(PARTITIONS),
        "no client was kept waiting for it"
    );
    assert!(learner.stats().keys <= 100);
    learner.tick(w.now);
    assert!(left(learner) > 0, "nor is it done in one tick");
    w.settle(Duration::from_secs(1));
    assert_eq!(
        (w.in_sync(), left(&w.nodes[&2].shard)),
        (usize::from(PARTITIONS), 0)
    );
    assert_eq!(w.nodes[&2].shard.stats().keys, 100);
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.check_copies();
}

#[test]
fn upkeep_looks_at_some_partitions_at_a_time() {
    let mut w = World::new(45, 1, |_| vec![1]);
    w.settle(Duration::from_millis(100));
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    let more = (100..1_100).map(|p| PartitionRef::new(KeyspaceId(0), PartitionId(p)));
    for at in more {
        let slot = shard.slots.get_or_insert(at);
        shard.cx.host.notice(slot);
    }
    let noticed = shard.cx.host.upkeep.noticed.len();
    let now = w.now + Duration::from_millis(60);
    shard.tick(now);
    assert_eq!(shard.cx.host.upkeep.looking_at.len(), noticed - 256);
    assert!(shard.poll_timeout().unwrap() <= now, "it goes on at once");
    for _ in 0..4 {
        shard.tick(now);
    }
    assert_eq!(
        (
            shard.cx.host.upkeep.looking_at.len(),
            shard.cx.host.upkeep.noticed.len()
        ),
        (0, 0)
    );
}
