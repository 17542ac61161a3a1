//! Disks lose power at any moment while collections of all kinds change, copies come and go, and
//! primaries die: what was acknowledged is read back, and what is read back is a state that was.

use super::learners::{Load, commands, partition_of};
use super::*;
use crate::role::disk::DiskRecord;
use doyen_placement::Durability;
use std::collections::VecDeque;

const WALL: u64 = 1_700_000_000_000;

/// The disk of a node.
#[derive(Default)]
struct TestDisk {
    records: Vec<DiskRecord>,
    /// How many of them are synced.
    synced: usize,
    /// Batches that are not synced: their numbers, and how many records there are with them.
    waiting: VecDeque<(u64, usize)>,
    /// The last sequence of the partition and a checksum of its contents, at each batch.
    states: BTreeSet<(u64, u64)>,
}

/// What a node read back.
struct ReadBack {
    last: u64,
    content: u64,
}

fn at(w: &World) -> PartitionRef {
    let keyspace = &w.tables[w.committed].keyspaces[0];
    let at = keyspace.partition_of(MapId(0), b"{a}");
    PartitionRef::new(KeyspaceId(0), at.expect("all keys are in partitions"))
}

fn held(w: &World, n: u64) -> Option<&crate::role::partition::Held> {
    w.nodes[&n].shard.slots.get(at(w))?.held.as_deref()
}

fn port(w: &mut World, n: u64) -> DiskPort<'_> {
    DiskPort::of(&mut w.nodes.get_mut(&n).unwrap().shard, w.now)
}

/// Takes what nodes give their disks, and syncs some of it.
fn write(w: &mut World, disks: &mut BTreeMap<u64, TestDisk>, syncs: u64) {
    for (&n, disk) in disks.iter_mut() {
        if !w.nodes[&n].alive {
            continue;
        }
        while let Some(batch) = port(w, n).poll(WALL) {
            disk.records.extend(batch.records);
            disk.waiting.push_back((batch.number, disk.records.len()));
        }
        if let Some(held) = held(w, n) {
            disk.states.insert((held.log.last(), held.store.content()));
        }
        while w.rng.below(10) < syncs
            && let Some((number, end)) = disk.waiting.pop_front()
        {
            disk.synced = end;
            port(w, n).synced(number);
        }
        w.drain(n);
    }
}

/// What a process reads from these records. `None`: the disk has no whole copy.
fn read_back(w: &World, records: &[DiskRecord]) -> Option<ReadBack> {
    let mut plan = DiskPlan::default();
    for (place, record) in (0..).zip(records) {
        plan.note(&record.head, place);
    }
    let table = w.tables[w.committed].clone();
    let mut restoring = DiskReading::new(table, Limits::of_test(), plan, w.now);
    for (place, record) in (0..).zip(records) {
        restoring.record(&record.head, place, &record.body);
    }
    let mut shard = Shard::new(id(9), Limits::of_test(), 1, w.now);
    let mut port = DiskPort::of(&mut shard, w.now);
    port.begin();
    let (found, refused) = port.take(WALL, restoring);
    assert_eq!(refused, [], "the records are whole");
    let found = found.iter().find(|found| found.at == at(w))?;
    let held = shard.slots.get(at(w))?.held.as_deref()?;
    assert_eq!(
        shard.cx.host.memory.bytes,
        shard
            .slots
            .iter()
            .filter_map(|s| Some(s.held.as_ref()?.bytes()))
            .sum::<usize>()
    );
    Some(ReadBack {
        last: found.last,
        content: held.store.content(),
    })
}

/// Whatever was not synced is lost, or a part of it is.
fn cut_power(w: &mut World, disks: &BTreeMap<u64, TestDisk>) {
    let of = at(w);
    let partition = partition_of(w, of.partition).clone();
    let primary = number(partition.primary());
    let committed = held(w, primary).map_or(0, |held| held.log.committed());
    for (&n, disk) in disks {
        let lost = disk.records.len() - disk.synced;
        let kept = w.rng.below(lost as u64 + 1) as usize;
        for end in [disk.synced, disk.synced + kept] {
            let found = read_back(w, &disk.records[..end]);
            if let Some(found) = &found {
                let state = (found.last, found.content);
                assert!(
                    disk.states.contains(&state),
                    "node {n} was never in {state:?}"
                );
            }
            let counts = partition.in_sync().any(|member| member == id(n));
            let whole = held(w, n).is_some_and(|held| held.log.disk.is_whole());
            if counts && whole && w.nodes[&n].alive {
                let last = found.map_or(0, |found| found.last);
                assert!(last >= committed, "node {n} has {last} of {committed}");
            }
        }
    }
}

fn loses_power_under_load(seed: u64) {
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    let load = Load::of(&mut w.rng);
    let chunk = [60, 200, 600][w.rng.below(3) as usize];
    let packed = [40, 150, 600][w.rng.below(3) as usize];
    for node in w.nodes.values_mut() {
        DiskPort::of(&mut node.shard, w.now).begin();
        let limits = &mut node.shard.cx.host.limits;
        limits.chunk_bytes = chunk;
        (limits.packed_bytes_max, limits.packed_small_bytes_max) = (packed, packed);
    }
    let mut disks: BTreeMap<u64, TestDisk> = (1..=3).map(|n| (n, TestDisk::default())).collect();
    let settle = |w: &mut World, disks: &mut BTreeMap<u64, TestDisk>, ms: u64| {
        for _ in 0..ms / 5 {
            w.settle(Duration::from_millis(5));
            write(w, disks, 10);
        }
    };
    let durable = |w: &mut World| {
        w.propose(|t| {
            t.keyspaces[0].durability = Durability::Log;
            t.keyspaces[0].durable_since = t.version;
        });
    };
    let early = w.rng.one_in(2);
    if early {
        durable(&mut w);
    }
    settle(&mut w, &mut disks, 50);
    for _ in 0..30 {
        commands(&mut w, &load);
    }
    if !early {
        durable(&mut w);
    }
    let learns = w.rng.below(200);
    let dies = w.rng.below(400);
    let mut syncs = 5;
    for step in 0..300 {
        if step % 16 == 0 {
            syncs = [0, 2, 5, 9, 10][w.rng.below(5) as usize];
        }
        commands(&mut w, &load);
        for wire in w.wires.keys().copied().collect::<Vec<_>>() {
            if w.rng.one_in(3) {
                let whole = w.rng.one_in(4);
                w.deliver(wire, whole);
            }
        }
        let idle = w.tables.len() == w.committed + 1;
        let of = at(&w).partition;
        if idle && step >= learns && partition_of(&w, of).replicas.len() == 2 && step < dies {
            w.propose(|t| {
                partition_mut(t, of).replicas.push(Replica {
                    member: id(3),
                    state: ReplicaState::Learner,
                });
            });
        }
        if idle && step >= dies && w.nodes[&1].alive {
            w.kill(1);
            w.propose(|t| remove(t, 1));
        }
        write(&mut w, &mut disks, syncs);
        w.agree(false);
        let ms = w.rng.below(3);
        w.pass(Duration::from_millis(ms));
        // Another snapshot, as when the log has grown long.
        if w.rng.one_in(40) {
            let n = 1 + w.rng.below(3);
            let of = at(&w);
            port(&mut w, n).free(u64::MAX, of);
        }
        if step % 7 == 0 {
            cut_power(&mut w, &disks);
        }
    }
    settle(&mut w, &mut disks, 3_000);
    cut_power(&mut w, &disks);
    w.check_copies();
    for member in partition_of(&w, at(&w).partition).in_sync() {
        let held = held(&w, number(member)).expect("it is in sync");
        assert!(held.log.disk.is_whole(), "{member} is not on its disk");
    }
}

/// Regression: copies without calls did not hear that their keyspace was durable now, and never
/// wrote it.
#[test]
fn copies_that_rest_follow_each_change_of_durability() {
    let mut w = World::new(7, 2, |_| vec![1, 2]);
    let mut disks: BTreeMap<u64, TestDisk> = (1..=2).map(|n| (n, TestDisk::default())).collect();
    for n in 1..=2 {
        port(&mut w, n).begin();
    }
    w.settle(Duration::from_millis(50));
    w.set(1, "{a}", "1");
    for (durability, since) in [
        (Durability::Log, 1),
        (Durability::None, 0),
        (Durability::Log, 2),
    ] {
        w.propose(|t| {
            t.keyspaces[0].durability = durability;
            t.keyspaces[0].durable_since = Version(since);
        });
        for _ in 0..20 {
            w.settle(Duration::from_millis(50));
            write(&mut w, &mut disks, 10);
        }
        for n in 1..=2 {
            let found = read_back(&w, &disks[&n].records);
            let kept = durability == Durability::Log;
            assert_eq!(found.is_some(), kept, "node {n} with {durability}");
            let since = held(&w, n).map(|held| held.log.disk.since);
            assert_eq!(
                since,
                Some(w.tables[w.committed].keyspaces[0].durable_since.0)
            );
        }
    }
}

/// `DOYEN_STORM=first..last` selects other seeds.
#[test]
fn what_was_acknowledged_is_read_back_whenever_the_power_is_cut() {
    let text = std::env::var("DOYEN_STORM").unwrap_or_default();
    let seeds = text
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    for seed in seeds.unwrap_or(0..20) {
        let result = std::panic::catch_unwind(|| loses_power_under_load(seed));
        if let Err(panic) = result {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
