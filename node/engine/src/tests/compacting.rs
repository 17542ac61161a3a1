//! Free memory between entries is given back. Writes wait for it or are refused.

use super::*;
use crate::role::timers::Duty;
use crate::store::census::Outside;
use std::collections::BTreeSet;

const KEYS: usize = 40_000;
const MIB: u64 = 1 << 20;

fn key(n: usize) -> String {
    format!("key-{n:06}")
}

/// The value of a key: some are inside their entries, some apart.
fn value(n: usize) -> String {
    format!("{n}").repeat(if n.is_multiple_of(16) { 200 } else { 8 })
}

/// The address of an entry, and of its value if that is stored apart.
type Lies = (u64, Option<u64>);

/// Key and value, version, and mark.
type Content = (Vec<u8>, u64, bool);

/// All entries of a shard, and their addresses.
fn entries(w: &World, n: u64) -> Vec<(Lies, Content)> {
    let slots = w.nodes[&n].shard.slots.iter();
    let held = slots.filter_map(|slot| slot.held.as_deref());
    let all = held.flat_map(|held| {
        held.store
            .following(&None)
            .map(|piece| piece.entry.clone())
            .collect::<Vec<_>>()
    });
    let look = |e: crate::value::entry::Entry| {
        let lies = (e.address(), e.value_allocation().map(|(at, _)| at));
        (
            lies,
            ([e.key(), e.value()].concat(), e.version(), e.is_marked()),
        )
    };
    all.map(look).collect()
}

fn blocks(w: &World, n: u64) -> usize {
    let places = entries(w, n)
        .into_iter()
        .flat_map(|((entry, value), _)| [Some(entry), value])
        .flatten();
    places.map(|at| at >> 16).collect::<BTreeSet<_>>().len()
}

fn expire() -> Action {
    Action::Expire {
        expiry: Expiry::In(3_000_000),
        condition: crate::command::operation::ExpireCondition::Always,
    }
}

fn tell(w: &mut World, n: u64, outside: Outside) {
    w.nodes.get_mut(&n).unwrap().shard.set_outside(outside);
}

fn compactions(w: &World, n: u64) -> u64 {
    w.nodes[&n].shard.stats().compactions
}

/// A world whose first member has dropped most of its keys, which lay anywhere.
fn scattered(seed: u64, ordered: bool) -> World {
    let mut w = World::new(seed, 1, |_| vec![1]);
    if ordered {
        w.propose(|t| t.keyspaces[0].ordered = true);
        w.settle(Duration::from_millis(50));
    }
    let limits = &mut w.nodes.get_mut(&1).unwrap().shard.cx.host.limits;
    limits.tail_bytes_max = 4 << 10;
    limits.tail_bytes_least = 0;
    let mut tokens = Vec::new();
    for n in 0..KEYS {
        tokens.push(w.submit(1, &key(n), set(&value(n))));
        if n.is_multiple_of(2_000) {
            w.settle(Duration::from_millis(5));
        }
    }
    w.settle(Duration::from_millis(200));
    for n in (0..KEYS).filter(|n| !n.is_multiple_of(7)) {
        tokens.push(w.submit(1, &key(n), Action::Delete));
        if n.is_multiple_of(1_000) {
            w.settle(Duration::from_millis(5));
        }
    }
    w.settle(Duration::from_secs(2));
    assert!(
        tokens
            .iter()
            .all(|token| matches!(w.outcomes.get(token), Some(Outcome::Ok | Outcome::Int(1))))
    );
    w
}

#[test]
fn entries_move_out_of_blocks_that_are_mostly_empty_and_stay_what_they_were() {
    for ordered in [false, true] {
        let mut w = scattered(301, ordered);
        // Some of them expire, so they are in the set of deadlines, too.
        for n in (0..KEYS).step_by(21) {
            assert_eq!(w.ask(1, &key(n), expire()), Outcome::Int(1));
        }
        let contents = |w: &World| {
            entries(w, 1)
                .into_iter()
                .map(|(_, holds)| holds)
                .collect::<Vec<_>>()
        };
        let (before, taken, memory) = (
            contents(&w),
            blocks(&w, 1),
            w.nodes[&1].shard.stats().memory_bytes,
        );
        tell(
            &mut w,
            1,
            Outside {
                buffers: 0,
                loose: 20 * MIB,
            },
        );
        w.settle(Duration::from_secs(3));
        assert_eq!(compactions(&w, 1), 1);
        assert!(
            contents(&w) == before,
            "they are in the same order, with the same versions and marks"
        );
        assert!(
            blocks(&w, 1) * 2 < taken,
            "{ordered}: {} of {taken} blocks are left",
            blocks(&w, 1)
        );
        assert_eq!(w.nodes[&1].shard.stats().memory_bytes, memory);
        // The sets of deadlines and of sorted keys hold the entries that lookups find.
        for n in (0..KEYS).step_by(7) {
            assert_eq!(w.ask(1, &key(n), Action::Delete), Outcome::Int(1));
        }
        w.settle(Duration::from_secs(1));
        assert!(entries(&w, 1).is_empty());
    }
}

#[test]
fn little_loose_memory_moves_nothing_and_nothing_moves_twice_for_the_same() {
    let mut w = scattered(302, false);
    tell(
        &mut w,
        1,
        Outside {
            buffers: 0,
            loose: 7 * MIB,
        },
    );
    w.settle(Duration::from_secs(90));
    assert_eq!(compactions(&w, 1), 0);
    tell(
        &mut w,
        1,
        Outside {
            buffers: 0,
            loose: 20 * MIB,
        },
    );
    w.settle(Duration::from_secs(30));
    assert_eq!(
        compactions(&w, 1),
        1,
        "memory that it could not give back is looked at again, but not at once"
    );
    tell(
        &mut w,
        1,
        Outside {
            buffers: 0,
            loose: 30 * MIB,
        },
    );
    w.settle(Duration::from_secs(10));
    assert_eq!(compactions(&w, 1), 2, "there is much more");
}

/// Until the next check started a run, and for what was freed while it went on, keys were evicted
/// for memory that was about to come back.
#[test]
fn loose_memory_counts_as_coming_back_before_a_run_and_not_after_one_that_gained_nothing() {
    let mut w = scattered(306, false);
    let loosening = |w: &World| w.nodes[&1].shard.cx.host.loosening();
    assert_eq!(loosening(&w), 0);
    let outside = |loose| Outside { buffers: 0, loose };
    tell(&mut w, 1, outside(7 * MIB));
    assert_eq!(loosening(&w), 0, "no run begins for so little");
    tell(&mut w, 1, outside(20 * MIB));
    assert_eq!(loosening(&w), 20 * MIB);
    w.settle(Duration::from_millis(300));
    tell(&mut w, 1, outside(24 * MIB));
    assert!(loosening(&w) > 20 * MIB, "{}", loosening(&w));
    w.settle(Duration::from_secs(4));
    assert_eq!(compactions(&w, 1), 1);
    assert_eq!(loosening(&w), 0);
}

/// Regression: the process was killed. It held twice what its entries were counted for, and
/// accepted writes until these alone reached the limit.
#[test]
fn memory_outside_of_entries_leaves_writes_less_room() {
    let mut w = World::new(303, 2, |_| vec![1, 2]);
    assert_eq!(w.set(1, "a", "1"), Outcome::Ok);
    // Memory at a copy counts as much as at the primary, and buffers as much as the rest.
    for (full, outside) in [
        (
            1,
            Outside {
                buffers: 60 * MIB,
                loose: 0,
            },
        ),
        (
            2,
            Outside {
                buffers: 0,
                loose: 60 * MIB,
            },
        ),
    ] {
        tell(&mut w, full, outside);
        w.settle(Duration::from_secs(8));
        assert_eq!(
            w.set(1, "b", "1"),
            Outcome::Failed(crate::value::outcome::Failure::OutOfMemory),
            "{full}"
        );
        tell(&mut w, full, Outside::default());
        w.settle(Duration::from_secs(2));
        assert_eq!(w.set(1, "b", "1"), Outcome::Ok);
        assert_eq!(w.ask(1, "b", Action::Delete), Outcome::Int(1));
    }
}

/// Regression: after `FLUSHALL`, all memory counted as free at once, but was freed some seconds
/// later.
#[test]
fn writes_wait_for_what_is_being_freed_and_nothing_is_evicted_for_it() {
    for (seed, policy) in [(304, Eviction::None), (305, Eviction::Lru)] {
        let mut w = World::new(seed, 2, |_| vec![1, 2]);
        w.propose(|t| t.keyspaces[0].eviction = policy);
        w.settle(Duration::from_millis(50));
        for n in 0..3_000 {
            w.submit(1, &key(n), set("x"));
        }
        w.settle(Duration::from_millis(500));
        w.nodes
            .get_mut(&1)
            .unwrap()
            .shard
            .cx
            .host
            .timers
            .rest(Duty::Free, Time(u64::MAX));
        for partition in 0..u32::from(PARTITIONS) {
            let action = crate::command::operation::PartitionAction::Clear;
            let operation = PartitionOperation {
                keyspace: KeyspaceId(0),
                partition: PartitionId(partition),
                map: MapId(0),
                action,
            };
            let token = w.next_token;
            w.next_token += 1;
            w.nodes.get_mut(&1).unwrap().shard.submit(
                w.now,
                1_700_000_000_000,
                token,
                operation,
                Patience::Whole,
            );
            w.drain(1);
        }
        w.settle(Duration::from_millis(20));
        assert!(
            !w.nodes[&1].shard.cx.host.memory.garbage.is_empty(),
            "the check checks nothing"
        );
        for n in 0..100 {
            assert_eq!(w.set(1, &key(n), "y"), Outcome::Ok);
        }
        tell(
            &mut w,
            1,
            Outside {
                buffers: 0,
                loose: 64 * MIB,
            },
        );
        let token = w.submit(1, "waits", set("z"));
        w.settle(Duration::from_millis(500));
        assert_eq!(
            (w.outcomes.get(&token), w.nodes[&1].shard.stats().evicted),
            (None, 0),
            "{policy:?}"
        );
        tell(
            &mut w,
            1,
            Outside {
                buffers: 0,
                loose: 0,
            },
        );
        w.settle(Duration::from_millis(100));
        assert_eq!(
            (w.outcomes.get(&token), w.nodes[&1].shard.stats().evicted),
            (Some(&Outcome::Ok), 0),
            "{policy:?}"
        );
    }
}
