//! The cost of parts of the data path by themselves: `just bench-parts`, or `just bench-parts
//! shard` for some of them.
//!
//! One thread, no network, and the thread's own CPU time, so that the work of other programs does
//! not count. Keys are visited in random order, so that cache misses count.
#![allow(missing_docs, reason = "macros of criterion")]
#![allow(dead_code, reason = "counts.rs uses the rest of the pair")]

mod pair;

use bytes::Bytes;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use doyen::resp::frame::Parser;
use doyen_engine::op::Action;
use pair::{Pair, action_of};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Commands or operations in one batch: what a busy connection sends at once.
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
    targets = resp, shard
}
criterion_main!(parts);
