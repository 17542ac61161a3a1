//! What finding the partition of a key costs in each mode: `just placement-bench`.
//!
//! Keys are looked up in random order, so that cache misses count. Hashing the key is part of the
//! cost. The benchmark measures the thread's own CPU time, so other programs do not disturb it. The
//! table at the end has the median and the least of the samples, the number of calls of the
//! allocator, and the memory of the look-up.
#![allow(missing_docs, reason = "macros of criterion")]

#[path = "../tests/placement/common.rs"]
mod common;

use criterion::Criterion;
use doyen_placement::lookup::{RangeLookup, RingLookup};
use doyen_placement::ring::random;
use doyen_placement::{MapId, ring::Ring};
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Keys that are asked, one after the other and again. A power of two.
const ASKED: usize = 1 << 13;
const RANGES: u64 = 100_000;

/// Keys in one block: an operation has just read its key, so that finding the key is no part of the
/// cost.
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn new(key: impl Fn(u64) -> String) -> Self {
        let mut keys = Self {
            bytes: Vec::new(),
            ends: vec![0],
        };
        for n in 0..ASKED as u64 {
            keys.bytes.extend_from_slice(key(n).as_bytes());
            keys.ends.push(keys.bytes.len());
        }
        keys
    }

    fn one(&self, number: usize) -> &[u8] {
        let number = number & (ASKED - 1);
        &self.bytes[self.ends[number]..self.ends[number + 1]]
    }
}

/// What one look-up cost.
struct Row {
    name: &'static str,
    median: f64,
    least: f64,
    goal: f64,
    allocations: usize,
    bytes: usize,
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A number that looks random.
fn drawn(n: u64) -> u64 {
    let mixed = (n ^ (n >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 8
}

fn measure(
    c: &mut Criterion,
    name: &'static str,
    goal: f64,
    bytes: usize,
    keys: &Keys,
    look_up: impl Fn(&[u8]) -> usize,
) -> Option<Row> {
    let mut samples: Vec<f64> = Vec::new();
    let mut allocations = 0;
    c.bench_function(name, |b| {
        b.iter_custom(|times| {
            let region = Region::new(ALLOCATOR);
            let began = cpu_time();
            for time in 0..times as usize {
                black_box(look_up(black_box(keys.one(time))));
            }
            let took = cpu_time() - began;
            allocations += region.change().allocations;
            samples.push(took.as_secs_f64() * 1e9 / times as f64);
            took
        });
    });
    samples.sort_by(f64::total_cmp);
    // There are none if the command line selects others.
    Some(Row {
        name,
        median: *samples.get(samples.len() / 2)?,
        least: samples[0],
        goal,
        allocations,
        bytes,
    })
}

/// A hundred thousand splits and keys to ask for, both made of numbers below as many tenants, users
/// and so on.
fn ranges(c: &mut Criterion, name: &'static str, key: impl Fn(u64) -> String) -> Option<Row> {
    let mut splits: Vec<Vec<u8>> = (0..)
        .map(|n| key(drawn(n)).into_bytes())
        .take(RANGES as usize + RANGES as usize / 10)
        .collect();
    splits.sort_unstable();
    splits.dedup();
    splits.truncate(RANGES as usize - 1);
    assert_eq!(splits.len(), RANGES as usize - 1);
    let lookup = RangeLookup::new(&splits).expect("in order");
    let keys = Keys::new(|n| key(drawn(n + (1 << 40))));
    measure(c, name, 100.0, lookup.bytes(), &keys, |key| {
        lookup.range_of(key)
    })
}

fn main() {
    let mut c = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let keys = Keys::new(|n| format!("user:{:012}", drawn(n) % 1_000_000_000));

    let table = common::cluster(1024, 1, &[common::PLAIN, common::PLAIN, common::PLAIN]);
    let keyspace = &table.keyspaces[0];
    let partition_of = |key: &[u8]| {
        keyspace
            .partition_of(MapId(0), key)
            .map_or(0, |p| p.0 as usize)
    };
    let mut rows = vec![measure(
        &mut c,
        "fixed, 1024 partitions",
        20.0,
        0,
        &keys,
        partition_of,
    )];

    let nodes = (1..=1000).flat_map(|n| {
        random(&Ring::default(), common::id(n), 16, 7)
            .into_iter()
            .map(move |token| (token, common::id(n)))
    });
    let ring = RingLookup::from(&Ring::new(nodes).expect("no token is drawn twice"));
    rows.push(measure(
        &mut c,
        "ring, 1000 nodes x 16 tokens",
        60.0,
        ring.bytes(),
        &keys,
        |key| ring.arc_of_key(key).unwrap_or(0),
    ));

    rows.push(ranges(&mut c, "100,000 ranges: user:000000012345", |n| {
        format!("user:{:012}", n % 1_000_000_000)
    }));
    rows.push(ranges(
        &mut c,
        "100,000 ranges: {tenant12}:order:00012345",
        |n| format!("{{tenant{}}}:order:{:08}", n % 100, (n >> 20) % 100_000_000),
    ));
    rows.push(ranges(&mut c, "100,000 ranges: 16 random letters", |n| {
        format!("{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }));

    println!(
        "\n{:<44}{:>8}{:>8}{:>8}{:>13}{:>12}",
        "", "ns", "least", "goal", "allocations", "bytes"
    );
    for Row {
        name,
        median,
        least,
        goal,
        allocations,
        bytes,
    } in rows.into_iter().flatten()
    {
        println!("{name:<44}{median:>8.1}{least:>8.1}{goal:>8.0}{allocations:>13}{bytes:>12}");
    }
}
