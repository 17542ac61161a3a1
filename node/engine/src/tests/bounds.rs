//! Maps hold no more than their limits: by the policy of each, at all copies alike. Dropped maps
//! leave nothing.

use super::*;
use doyen_placement::{Eviction, MapEntry, MapLimits};

const MAP: MapId = MapId(1);
const OTHER: MapId = MapId(2);

/// Each member has copies of everything. Two maps. The first has these limits.
fn world(seed: u64, members: u64, limits: MapLimits) -> World {
    let mut w = World::new(seed, members, |p| {
        (0..members)
            .map(|m| 1 + (u64::from(p) + m) % members)
            .collect()
    });
    w.propose(|t| {
        for (id, limits) in [(MAP, limits), (OTHER, MapLimits::NONE)] {
            t.maps.push(MapEntry {
                id,
                name: format!("m{id}"),
                keyspace: KeyspaceId(0),
                limits,
            });
        }
        t.next_map = MapId(3);
    });
    w.settle(Duration::from_millis(50));
    w
}

fn entries(entries: u64, eviction: Eviction) -> MapLimits {
    MapLimits {
        entries: Some(entries),
        eviction,
        ..MapLimits::NONE
    }
}

impl World {
    /// Executes an operation on a map at a node that leads its key, or forwards it.
    fn on(&mut self, n: u64, map: MapId, key: &str, action: Action) -> Outcome {
        let token = self.submit_work(
            n,
            Work::Key(Operation {
                keyspace: KeyspaceId(0),
                map,
                key: Bytes::copy_from_slice(key.as_bytes()),
                action,
            }),
        );
        for _ in 0..2_000 {
            if let Some(outcome) = self.outcomes.remove(&token) {
                return outcome;
            }
            self.settle(Duration::from_millis(5));
        }
        panic!("{key} has no outcome")
    }

    /// Keys of a map at its primaries, and at one member with all copies.
    fn count(&self, n: u64, map: MapId) -> usize {
        let shard = &self.nodes[&n].shard;
        let held = shard.slots.iter().filter_map(|slot| slot.held.as_deref());
        held.map(|held| held.store.count(map)).sum()
    }
}

#[test]
fn a_map_holds_no_more_than_its_limit_and_copies_stay_equal() {
    for (seed, policy) in [
        (300, Eviction::Lfu),
        (301, Eviction::Lru),
        (302, Eviction::Random),
        (303, Eviction::Ttl),
    ] {
        let mut w = world(seed, 3, entries(90, policy));
        for n in 0..900 {
            let member = 1 + n % 3;
            assert_eq!(w.on(member, MAP, &format!("k{n}"), set("v")), Outcome::Ok);
            assert_eq!(w.on(member, OTHER, &format!("k{n}"), set("v")), Outcome::Ok);
        }
        w.settle(Duration::from_secs(1));
        for n in [1, 2, 3] {
            let (bound, free) = (w.count(n, MAP), w.count(n, OTHER));
            // Shares of members are rounded down, and one counts what is about to be evicted.
            assert!((80..=90).contains(&bound), "{policy:?}: {bound}");
            assert_eq!(free, 900, "another map is not touched");
        }
        w.check_copies();
        // Another primary goes on.
        w.kill(3);
        w.propose(|t| remove(t, 3));
        w.settle(Duration::from_secs(3));
        for n in 0..300 {
            assert_eq!(w.on(1, MAP, &format!("more{n}"), set("v")), Outcome::Ok);
        }
        w.settle(Duration::from_secs(1));
        assert!((80..=90).contains(&w.count(1, MAP)), "{policy:?}");
        w.check_copies();
    }
}

#[test]
fn a_limit_of_bytes_counts_what_entries_cost() {
    let limits = MapLimits {
        bytes: Some(100_000),
        eviction: Eviction::Lfu,
        ..MapLimits::NONE
    };
    let mut w = world(310, 1, limits);
    let value = "x".repeat(1_000);
    for n in 0..400 {
        assert_eq!(w.on(1, MAP, &format!("k{n}"), set(&value)), Outcome::Ok);
    }
    w.settle(Duration::from_millis(200));
    let large = w.count(1, MAP);
    assert!((80..=92).contains(&large), "{large}");
    for n in 0..4_000 {
        assert_eq!(w.on(1, MAP, &format!("s{n}"), set("v")), Outcome::Ok);
    }
    w.settle(Duration::from_millis(200));
    assert!(w.count(1, MAP) > large, "small entries take less");
}

#[test]
fn a_full_map_that_evicts_nothing_refuses_new_keys() {
    let mut w = world(320, 1, entries(40, Eviction::None));
    let outcomes: Vec<Outcome> = (0..100)
        .map(|n| w.on(1, MAP, &format!("k{n}"), set("v")))
        .collect();
    let full = Outcome::Failed(Failure::MapFull);
    let written = outcomes.iter().filter(|it| **it == Outcome::Ok).count();
    assert_eq!(written, 40);
    assert_eq!(outcomes.iter().filter(|it| **it == full).count(), 60);
    assert_eq!(w.on(1, MAP, "k0", set("new")), Outcome::Ok, "it is there");
    let both = OperationBatch {
        keyspace: KeyspaceId(0),
        watched: Vec::new(),
        steps: vec![OperationStep::Key {
            map: MAP,
            key: "new".into(),
            action: set("v"),
        }],
    };
    let token = w.submit_work(1, both);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.outcomes.remove(&token), Some(full), "a transaction, too");
    // What was removed makes room at once.
    for n in 0..40 {
        let gone = w.on(1, MAP, &format!("k{n}"), Action::Delete);
        assert_eq!(gone, Outcome::Int(1));
        let next = w.on(1, MAP, &format!("k{}", 100 + n), set("v"));
        assert_eq!(next, Outcome::Ok, "{n}");
    }
    // Bytes are counted as they are written.
    w.propose(|t| {
        t.maps[0].limits.entries = None;
        t.maps[0].limits.bytes = Some(20_000);
    });
    w.settle(Duration::from_millis(50));
    let large = "x".repeat(2_000);
    let written = (0..100).filter(|n| {
        let outcome = w.on(1, MAP, &format!("large{n}"), set(&large));
        outcome == Outcome::Ok
    });
    let written = written.count();
    assert!((4..=9).contains(&written), "{written}");
}

#[test]
fn limits_that_change_are_kept_and_a_dropped_map_leaves_nothing() {
    let mut w = world(330, 3, MapLimits::NONE);
    for n in 0..200 {
        assert_eq!(w.on(1, MAP, &format!("k{n}"), set("v")), Outcome::Ok);
    }
    w.propose(|t| t.maps[0].limits = entries(60, Eviction::Lfu));
    w.settle(Duration::from_secs(1));
    assert!(w.count(1, MAP) <= 60);
    w.propose(|t| t.maps.retain(|map| map.id != MAP));
    w.settle(Duration::from_secs(1));
    for n in [1, 2, 3] {
        assert_eq!(w.count(n, MAP), 0, "at {n}");
    }
    let dropped = Outcome::Failed(Failure::Dropped);
    assert_eq!(w.on(1, MAP, "k1", set("v")), dropped);
    assert_eq!(w.on(2, MAP, "k1", Action::Get), dropped);
    assert_eq!(w.on(2, OTHER, "k1", set("v")), Outcome::Ok);
    w.settle(Duration::from_secs(3));
    w.check_copies();
}

#[test]
fn entries_that_nobody_uses_expire_at_all_copies() {
    let limits = MapLimits {
        idle_ms: Some(800),
        ..MapLimits::NONE
    };
    let mut w = world(340, 3, limits);
    let value = crate::command::idle::headed(None, b"v");
    for key in ["used", "unused"] {
        let action = Action::set(value.clone());
        assert_eq!(w.on(1, MAP, key, action), Outcome::Ok);
    }
    for _ in 0..8 {
        w.settle(Duration::from_millis(300));
        let found = w.on(2, MAP, "used", Action::Get);
        assert_eq!(found, Outcome::Bulk(Value::from(&b"v"[..])));
    }
    assert_eq!(w.on(3, MAP, "unused", Action::Get), Outcome::Nil);
    w.settle(Duration::from_millis(1_500));
    assert_eq!(w.on(3, MAP, "used", Action::Get), Outcome::Nil);
    w.settle(Duration::from_secs(3));
    assert_eq!(w.count(1, MAP), 0);
    w.check_copies();
}

/// A primary that does not know a map yet does not serve it without its limits.
#[test]
fn operations_on_a_map_wait_for_the_table_that_names_it() {
    let mut w = world(360, 1, MapLimits::NONE);
    let next = MapId(3);
    let token = w.submit_work(
        1,
        Operation {
            keyspace: KeyspaceId(0),
            map: next,
            key: "k".into(),
            action: Action::set(crate::command::idle::headed(None, b"v")),
        },
    );
    w.settle(Duration::from_millis(100));
    assert!(!w.outcomes.contains_key(&token));
    w.propose(|t| {
        t.maps.push(MapEntry {
            id: next,
            name: "next".into(),
            keyspace: KeyspaceId(0),
            limits: MapLimits {
                idle_ms: Some(500),
                ..MapLimits::NONE
            },
        });
        t.next_map = MapId(4);
    });
    w.settle(Duration::from_millis(100));
    assert_eq!(w.outcomes.get(&token), Some(&Outcome::Ok));
    w.settle(Duration::from_secs(3));
    assert_eq!(w.count(1, next), 0, "it expires unused");
}

#[test]
fn a_scan_drives_out_nothing_that_is_used_often_if_only_bytes_are_limited() {
    let limits = MapLimits {
        bytes: Some(100_000),
        eviction: Eviction::Lfu,
        ..MapLimits::NONE
    };
    let mut w = world(370, 1, limits);
    for round in 0..4 {
        for n in 0..600 {
            let key = format!("hot{n}");
            if round == 0 {
                assert_eq!(w.on(1, MAP, &key, set("v")), Outcome::Ok);
            }
            w.on(1, MAP, &key, Action::Get);
        }
        w.pass(Duration::from_millis(5));
    }
    for n in 0..5_000 {
        assert_eq!(w.on(1, MAP, &format!("once{n}"), set("v")), Outcome::Ok);
        if n % 16 == 0 {
            w.pass(Duration::from_millis(1));
        }
    }
    let keys = (0..600).map(|n| format!("hot{n}"));
    let left = keys.filter(|key| w.on(1, MAP, key, Action::Exists) == Outcome::Int(1));
    let left = left.count();
    assert!(left > 560, "{left} of 600");
}

/// A limit that is never reached takes no memory.
#[test]
fn a_sketch_grows_with_the_keys() {
    let mut w = world(380, 1, entries(u64::MAX, Eviction::Lfu));
    let sketches = |w: &World| w.nodes[&1].shard.cx.host.bounds.bytes();
    for n in 0..3_000 {
        assert_eq!(w.on(1, MAP, &format!("k{n}"), set("v")), Outcome::Ok);
        if n % 100 == 0 {
            w.pass(Duration::from_millis(2));
        }
    }
    w.pass(Duration::from_millis(200));
    assert!(
        (16_000..=200_000).contains(&sketches(&w)),
        "{}",
        sketches(&w)
    );
}

/// Keys in the order in which a program asks for them.
mod trace {
    use super::Rng;

    /// Zipf's law with this exponent: key n in proportion to 1 / n^s.
    pub(super) fn zipf(rng: &mut Rng, keys: u64, exponent: f64, length: usize) -> Vec<u64> {
        let weights: Vec<f64> = (1..=keys).map(|n| (n as f64).powf(-exponent)).collect();
        let mut sum = 0.0;
        let sums: Vec<f64> = weights
            .iter()
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        (0..length)
            .map(|_| {
                let at = rng.below(1 << 52) as f64 / (1_u64 << 52) as f64 * sum;
                sums.partition_point(|upto| *upto <= at) as u64
            })
            .collect()
    }

    /// The same, with whole scans of other keys in between.
    pub(super) fn scans(rng: &mut Rng, keys: u64, length: usize) -> Vec<u64> {
        let mut trace = Vec::new();
        let mut next = keys;
        while trace.len() < length {
            trace.extend(zipf(rng, keys, 0.99, 5_000));
            trace.extend(next..next + 5_000);
            next += 5_000;
        }
        trace
    }

    /// The same, but other keys are frequent after a while.
    pub(super) fn shifts(rng: &mut Rng, keys: u64, length: usize) -> Vec<u64> {
        let mut trace = zipf(rng, keys, 0.99, length);
        for (n, key) in trace.iter_mut().enumerate() {
            *key = (*key + n as u64 / 20_000 * 500) % keys;
        }
        trace
    }

    /// The same keys round and round.
    pub(super) fn rounds(keys: u64, length: usize) -> Vec<u64> {
        (0..length as u64).map(|n| n % keys).collect()
    }
}

/// How many of a hundred thousand reads find their key, if each that does not writes it.
fn hits_of_moka(trace: &[u64], capacity: u64) -> u64 {
    let cache = moka::sync::Cache::builder().max_capacity(capacity).build();
    let mut hits = 0;
    for (n, key) in trace.iter().enumerate() {
        if cache.get(key).is_some() {
            hits += 1;
        } else {
            cache.insert(*key, ());
        }
        if n % 16 == 0 {
            cache.run_pending_tasks();
        }
    }
    hits * 100_000 / trace.len() as u64
}

fn hits_of_map(trace: &[u64], capacity: u64, policy: Eviction) -> u64 {
    let mut w = world(350, 1, entries(capacity, policy));
    let mut hits = 0;
    for (n, key) in trace.iter().enumerate() {
        let key = key.to_string();
        if w.on(1, MAP, &key, Action::Get) == Outcome::Nil {
            assert_eq!(w.on(1, MAP, &key, set("")), Outcome::Ok);
        } else {
            hits += 1;
        }
        if n % 16 == 0 {
            w.pass(Duration::from_millis(1));
        }
    }
    assert!(w.count(1, MAP) as u64 <= capacity + capacity / 10 + 20);
    hits * 100_000 / trace.len() as u64
}

#[test]
fn the_hit_ratio_is_that_of_moka_or_better() {
    const CAPACITY: u64 = 1_000;
    let mut rng = Rng(0x9E37_79B9);
    let traces = [
        ("zipf", trace::zipf(&mut rng, 20_000, 0.99, 120_000)),
        ("scans", trace::scans(&mut rng, 20_000, 120_000)),
        ("shifts", trace::shifts(&mut rng, 20_000, 120_000)),
        ("rounds", trace::rounds(2_000, 60_000)),
    ];
    for (name, trace) in traces {
        let moka = hits_of_moka(&trace, CAPACITY);
        let lfu = hits_of_map(&trace, CAPACITY, Eviction::Lfu);
        let lru = hits_of_map(&trace, CAPACITY, Eviction::Lru);
        println!("{name}: moka {moka}, lfu {lfu}, lru {lru} of 100,000");
        assert!(lfu + 1_000 >= moka, "{name}: {lfu} of 100,000, moka {moka}");
    }
}
