//! The cost of each part of the data path by itself: `just bench-parts`, or `just bench-parts
//! store` for some of them.
//!
//! One thread, no network, and the thread's own CPU time, so that the work of other programs does
//! not count. Keys are visited in random order, so that cache misses count.
#![allow(missing_docs, reason = "macros of criterion")]
#![allow(dead_code, reason = "counts.rs uses the rest of the pair")]

mod pair;

use bytes::Bytes;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use doyen::resp::frame::Parser;
use doyen_engine::bench::{Batch, BenchKeys, Forward, Outgoing, decode, encode_acks};
use doyen_engine::op::{Action, Operation};
use doyen_placement::{
    Epoch, KeyspaceId, MapId, MemberId, Replica, ReplicaState, TableDelta, Version,
};
use pair::{Pair, action_of, set, table};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// Commands, log entries or operations in one batch: what a busy connection sends at once.
const BATCH: usize = 64;

/// The processor time of this thread.
struct CpuTime;

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, began: Duration) -> Duration {
        cpu_time() - began
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn value() -> Bytes {
    Bytes::from(vec![b'x'; 100])
}

/// This many keys of 16 bytes, in random order.
fn keys(count: u64) -> Vec<[u8; 16]> {
    let mut keys: Vec<[u8; 16]> = (0..count)
        .map(|n| format!("key:{n:012}").into_bytes().try_into().unwrap())
        .collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..keys.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        keys.swap(at, (random % (at as u64 + 1)) as usize);
    }
    keys
}

fn resp(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("resp");
    let set = "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$100\r\n".to_owned()
        + &"x".repeat(100)
        + "\r\n";
    let get = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n";
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, command) in [("get", get), ("set", &set)] {
        let pipeline = Bytes::from(command.repeat(BATCH));
        let mut parser = Parser::new(16 << 20);
        group.bench_function(BenchmarkId::new("parse", name), |b| {
            b.iter(|| {
                let (length, result) = parser.parse(&pipeline, true, usize::MAX);
                let whole = pipeline.slice(..length);
                let sum: usize = parser
                    .commands(&whole)
                    .map(|args| args.bytes(1).len())
                    .sum();
                parser.clear();
                assert!(result.is_ok());
                black_box(sum)
            });
        });
    }
}

fn placement(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("placement");
    let table = table(10, 1024, |p| vec![p % 10 + 1, (p + 1) % 10 + 1]);
    let keys = keys(1_000);
    let mut at = 0;
    group.bench_function("lookup", |b| {
        b.iter(|| {
            at = (at + 1) % keys.len();
            let keyspace = table.keyspace(KeyspaceId(0)).unwrap();
            keyspace.partition_of(MapId(0), black_box(&keys[at]))
        });
    });
    let mut next = table.clone();
    next.version = Version(2);
    for p in (0..1024).step_by(10) {
        let partition = Arc::make_mut(&mut next.keyspaces[0].partitions[p]);
        partition.epoch = Epoch(2);
        partition.replicas = vec![Replica {
            member: MemberId(3 << 4),
            state: ReplicaState::InSync,
        }];
    }
    group.bench_function("delta/make", |b| {
        b.iter(|| TableDelta::between(black_box(&table), &next))
    });
    let delta = TableDelta::between(&table, &next);
    group.bench_function("delta/apply", |b| {
        b.iter(|| delta.apply(black_box(&table)).unwrap())
    });
}

fn store(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("store");
    let value = value();
    for count in [10_000, 1_000_000] {
        let there = keys(count);
        let more: Vec<[u8; 16]> = keys(1_000)
            .iter()
            .map(|k| [b"new:", &k[4..]].concat().try_into().unwrap())
            .collect();
        let mut store = BenchKeys::default();
        let longest = there
            .iter()
            .map(|key| timed(|| store.put(key, &value)))
            .max()
            .unwrap_or_default();
        eprintln!("store of {count} keys: the longest insert took {longest:?}");
        let mut at = 0;
        group.bench_function(BenchmarkId::new("get", count), |b| {
            b.iter(|| {
                at = (at + 1) % there.len();
                store.get(&there[at])
            });
        });
        group.bench_function(BenchmarkId::new("replace", count), |b| {
            b.iter(|| {
                at = (at + 1) % there.len();
                store.put(&there[at], &value)
            });
        });
        group.bench_function(BenchmarkId::new("insert", count), |b| {
            b.iter_custom(|times| {
                let mut time = Duration::ZERO;
                let mut left = times;
                while left > 0 {
                    let some = &more[..more.len().min(left as usize)];
                    time += timed(|| some.iter().filter(|key| store.put(*key, &value)).count());
                    some.iter().for_each(|key| store.delete(key));
                    left -= some.len() as u64;
                }
                time
            });
        });
    }
    let mut store = BenchKeys::default();
    for key in keys(10_000) {
        store.put(&key, &value);
    }
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("checksum/10000", |b| b.iter(|| store.checksum()));
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let began = cpu_time();
    black_box(work());
    cpu_time() - began
}

fn frames(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("frame");
    let mut out = Outgoing::default();
    let mut both = |name: &str, encode: &dyn Fn(&mut Outgoing)| {
        group.bench_function(BenchmarkId::new("encode", name), |b| {
            b.iter(|| {
                encode(&mut out);
                out.clear();
            });
        });
        encode(&mut out);
        let frame = out.take();
        group.bench_function(BenchmarkId::new("decode", name), |b| {
            b.iter_batched(
                || frame.clone(),
                |mut bytes| decode(&mut bytes).unwrap(),
                BatchSize::SmallInput,
            );
        });
    };
    let batch = Batch::new(BATCH as u64, &value());
    both("append of 64", &|out| batch.encode(out));
    let operation = Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: Bytes::from_static(b"key:000000000042"),
        action: set(&value()),
    };
    let forward = Forward::new(operation);
    both("forward of a set", &|out| forward.encode(out));
    both("acks of 64", &|out| encode_acks(64, out));
}

fn shard(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("shard");
    let value = value();
    group.throughput(Throughput::Elements(BATCH as u64));
    // With few partitions, this is the cost of an operation. With many, it includes the cache
    // misses of a partition that was not used for long.
    for partitions in [4, 64, 1024] {
        let mut pair = Pair::new(partitions);
        pair.fill(100_000, &value);
        let keys: Vec<Bytes> = keys(100_000)
            .iter()
            .map(|key| Bytes::copy_from_slice(key))
            .collect();
        let mut batches = keys.chunks_exact(BATCH).cycle();
        group.bench_function(BenchmarkId::new("get", partitions), |b| {
            b.iter(|| {
                let batch = batches.next().unwrap();
                pair.warm(batch);
                batch.iter().for_each(|key| pair.submit(key, Action::Get));
                pair.release()
            });
        });
        group.bench_function(BenchmarkId::new("set, replicated", partitions), |b| {
            b.iter(|| {
                let batch = batches.next().unwrap();
                pair.warm(batch);
                batch.iter().for_each(|key| pair.set(key, &value));
                pair.exchange()
            });
        });
        // Of keys that hold nothing else.
        let other = |prefix: &str| -> Vec<Bytes> {
            let all = keys.iter().map(|key| [prefix.as_bytes(), key].concat());
            all.map(Bytes::from).collect()
        };
        for (name, action) in [
            ("incr", Action::IncrBy(1)),
            ("hset", action_of(&["HSET", "key", "field", "value"])),
        ] {
            let keys = other(name);
            let mut batches = keys.chunks_exact(BATCH).cycle();
            let name = format!("{name}, replicated");
            group.bench_function(BenchmarkId::new(name, partitions), |b| {
                b.iter(|| {
                    let batch = batches.next().unwrap();
                    pair.warm(batch);
                    let each = |key| pair.submit(key, action.clone());
                    batch.iter().for_each(each);
                    pair.exchange()
                });
            });
        }
    }
}

criterion_group! {
    name = parts;
    config = Criterion::default().with_measurement(CpuTime);
    targets = resp, placement, store, frames, shard
}
criterion_main!(parts);
