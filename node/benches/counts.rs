//! How often a shard allocates for an operation once it is warm: `just bench-parts` prints the
//! table. It fails if reading a local key allocates at all, in the shard alone or in a whole node
//! that a client asks by RESP.
//!
//! In the whole node, all threads count. Their idle work is measured first, without requests, and
//! subtracted.
//!
//! Tokens, keys and values exist before the measurement, because a connection's read buffer holds
//! them. What a shell does for a buffer of its own (once a batch, not once an operation) is not
//! counted separately: batches of 1 and of 64 show it.
#![allow(dead_code, reason = "parts.rs uses the rest of the pair")]

mod pair;
mod whole;

use bytes::Bytes;
use doyen_engine::op::Action;
use pair::{Pair, action_of, set};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::time::{Duration, Instant};
use whole::Whole;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Keys. Each is visited once before counting begins.
const KEYS: usize = 20_000;
const ROUNDS: usize = 3;
/// Operations through a whole node, and how long its idle work is measured.
const ASKED: usize = 100_000;
const QUIET: Duration = Duration::from_secs(3);

/// What one side did for each operation.
#[derive(Default)]
struct Count {
    asked: usize,
    grown: usize,
    bytes: usize,
}

impl Count {
    fn of<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let region = Region::new(COUNTED);
        let result = work();
        let change = region.change();
        self.asked += change.allocations;
        self.grown += change.reallocations;
        self.bytes += change.bytes_allocated;
        result
    }

    fn print(&self, name: &str, operations: usize) {
        let each = |n: usize| n as f64 / operations as f64;
        println!(
            "{name:<44} {:>8.3} {:>8.3} {:>8.0}",
            each(self.asked),
            each(self.grown),
            each(self.bytes)
        );
    }
}

fn main() {
    let value = Bytes::from(vec![b'x'; 100]);
    let mut pair = Pair::new(256);
    let keys = pair.fill(KEYS, &value);
    println!(
        "{:<44} {:>8} {:>8} {:>8}",
        "an operation, 16-byte key, 100-byte value", "asked", "grown", "bytes"
    );
    let writes = [
        ("SET", set(&value), None),
        ("INCR", Action::IncrBy(1), Some("0")),
        (
            "HSET",
            action_of(&["HSET", "key", "field", "value"]),
            Some(""),
        ),
    ];
    for size in [1, 64] {
        let mut get = Count::default();
        for round in 0..=ROUNDS {
            if round == 1 {
                get = Count::default();
            }
            for batch in keys.chunks(size) {
                get.of(|| {
                    batch.iter().for_each(|key| pair.submit(key, Action::Get));
                    assert_eq!(pair.release(), batch.len());
                });
            }
            pair.tick();
        }
        let operations = KEYS * ROUNDS;
        get.print(&format!("GET, {size} a batch"), operations);
        // A value is copied out of its entry. Queues may grow once more.
        let most = operations + 10;
        assert!(
            get.asked + get.grown < most,
            "a read allocates more than its value"
        );
    }
    for (name, action, before) in writes {
        if let Some(value) = before {
            prepare(&mut pair, &keys, value);
        }
        for size in [1, 64] {
            let mut sides: [Count; 3] = Default::default();
            for round in 0..=ROUNDS {
                if round == 1 {
                    sides = Default::default();
                }
                for batch in keys.chunks(size) {
                    let sent = sides[0].of(|| {
                        let each = |key| pair.submit(key, action.clone());
                        batch.iter().for_each(each);
                        pair.sent()
                    });
                    let acks = sides[1].of(|| sent.and_then(|sent| pair.copied(sent)));
                    sides[2].of(|| {
                        acks.into_iter().for_each(|acks| pair.acked(acks));
                        assert_eq!(pair.release(), batch.len());
                    });
                }
                pair.tick();
            }
            for (side, count) in ["at the primary", "at the backup", "its acks at the primary"]
                .iter()
                .zip(&sides)
            {
                count.print(&format!("{name}, {size} a batch: {side}"), KEYS * ROUNDS);
            }
        }
    }
    by_resp();
}

/// Gives all keys this string, or none.
fn prepare(pair: &mut Pair, keys: &[Bytes], value: &'static str) {
    for batch in keys.chunks(64) {
        for key in batch {
            let action = match value {
                "" => Action::Delete,
                value => set(&Bytes::from_static(value.as_bytes())),
            };
            pair.submit(key, action);
        }
        assert_eq!(pair.exchange(), batch.len());
    }
}

/// The requests of a single client to a node, pipelined or not.
fn by_resp() {
    let mut node = Whole::start();
    let set = format!(
        "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$100\r\n{}\r\n",
        "x".repeat(100)
    );
    let count = "*3\r\n$3\r\nSET\r\n$5\r\ncount\r\n$10\r\n1000000000\r\n";
    let incr = "*2\r\n$4\r\nINCR\r\n$5\r\ncount\r\n";
    let hset = "*4\r\n$4\r\nHSET\r\n$4\r\nhash\r\n$5\r\nfield\r\n$5\r\nvalue\r\n";
    for written in [set.as_str(), count] {
        node.ask(written.as_bytes(), b"+OK\r\n".len());
    }
    node.ask(hset.as_bytes(), b":1\r\n".len());
    std::thread::sleep(Duration::from_secs(1));
    let mut quiet = Count::default();
    quiet.of(|| std::thread::sleep(QUIET));
    let get = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n";
    for (name, command, reply) in [
        ("GET", get, b"$100\r\n".len() + 102),
        ("SET", set.as_str(), b"+OK\r\n".len()),
        ("INCR", incr, b":1000000000\r\n".len()),
        ("HSET", hset, b":0\r\n".len()),
    ] {
        for size in [1, 16] {
            let batch = command.repeat(size);
            node.ask(batch.as_bytes(), reply * size);
            let (mut count, began) = (Count::default(), Instant::now());
            count.of(|| (0..ASKED / size).for_each(|_| node.ask(batch.as_bytes(), reply * size)));
            let meanwhile = began.elapsed().as_secs_f64() / QUIET.as_secs_f64();
            let less = |all: usize, anyway: usize| {
                all.saturating_sub((anyway as f64 * meanwhile) as usize)
            };
            count.asked = less(count.asked, quiet.asked);
            count.grown = less(count.grown, quiet.grown);
            count.bytes = less(count.bytes, quiet.bytes);
            count.print(
                &format!("{name}, a whole node by RESP, pipeline {size}"),
                ASKED,
            );
            // The room for what is read (one allocation for many operations), and work by the
            // clock.
            let most = ASKED / 20;
            assert!(
                name != "GET" || count.asked + count.grown < most,
                "reading a local key by RESP allocates"
            );
        }
    }
}
