//! Clients that wait for elements while a primary of their keys is killed and pushes go on: each
//! element that was pushed is popped once.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys, which are in several partitions.
const KEYS: usize = 8;
/// Clients that wait at each node, and elements that are pushed in all.
const WAITING: usize = 12;
const PUSHED: usize = 1_500;

/// What clients saw.
#[derive(Default)]
struct Seen {
    /// How often each element was popped.
    popped: Mutex<BTreeMap<String, usize>>,
    /// Elements whose push was acknowledged, and those that were perhaps pushed.
    pushed: Mutex<BTreeSet<String>>,
    perhaps: Mutex<BTreeSet<String>>,
    /// Pops that were answered `UNKNOWN`.
    unknown: AtomicUsize,
    is_over: AtomicBool,
}

impl Seen {
    fn pushed(&self) -> usize {
        self.pushed.lock().expect("no panic").len()
    }

    /// Elements that are missing.
    fn missing(&self) -> usize {
        let popped = self.popped.lock().expect("no panic");
        let pushed = self.pushed.lock().expect("no panic");
        pushed
            .iter()
            .filter(|element| !popped.contains_key(*element))
            .count()
    }
}

fn command(client: &mut Client, words: &[&str]) -> Reply {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.command(&words).expect("a reply")
}

/// Half of the keys are lists, the others sorted sets.
const fn is_list(key: usize) -> bool {
    key.is_multiple_of(2)
}

/// A client pops, again and again, from two of the keys.
fn pops(at: SocketAddr, from: usize, seen: &Seen) {
    let mut client = Client::connect(at, PATIENCE).expect("the node takes clients");
    let keys = [from % KEYS, (from + 2) % KEYS].map(|key| format!("queue:{key}"));
    let pop = if is_list(from) { "BLPOP" } else { "BZPOPMIN" };
    while !seen.is_over.load(Ordering::Relaxed) {
        match command(&mut client, &[pop, &keys[0], &keys[1], "0.5"]) {
            Reply::Array(parts) if parts.len() > 1 => {
                let Reply::Bulk(element) = &parts[1] else {
                    panic!("{parts:?}")
                };
                let element = String::from_utf8(element.clone()).expect("text");
                *seen
                    .popped
                    .lock()
                    .expect("no panic")
                    .entry(element)
                    .or_default() += 1;
            }
            Reply::Error(text) if text.starts_with("UNKNOWN") => {
                seen.unknown.fetch_add(1, Ordering::Relaxed);
            }
            // Nothing happened.
            Reply::Nil | Reply::Error(_) => {}
            Reply::Array(parts) if parts.is_empty() => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A client pushes every second element.
fn pushes(at: SocketAddr, first: usize, seen: &Seen) {
    let mut client = Client::connect(at, PATIENCE).expect("the node takes clients");
    for n in (first..PUSHED).step_by(2) {
        let (key, element) = (format!("queue:{}", n % KEYS), format!("element:{n}"));
        loop {
            let push: &[&str] = if is_list(n) {
                &["RPUSH", &key, &element]
            } else {
                &["ZADD", &key, "1", &element]
            };
            match command(&mut client, push) {
                Reply::Int(_) => {
                    seen.pushed.lock().expect("no panic").insert(element);
                    break;
                }
                Reply::Error(text) if text.starts_with("UNKNOWN") => {
                    seen.perhaps.lock().expect("no panic").insert(element);
                    break;
                }
                Reply::Error(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn each_element_is_popped_once_though_a_primary_dies_while_clients_wait() {
    let mut cluster = Cluster::of(BINARY, 3);
    let victim = cluster.coordinator();
    let others = cluster.resp_addresses_without(&victim);
    let seen = Seen::default();
    std::thread::scope(|threads| {
        for (at, node) in others.iter().enumerate() {
            for client in 0..WAITING {
                let seen = &seen;
                threads.spawn(move || pops(*node, at + client, seen));
            }
            let seen = &seen;
            threads.spawn(move || pushes(*node, at, seen));
        }
        cluster.eventually("pushes begin", |_| seen.pushed() > PUSHED / 4);
        cluster.kill(&victim);
        let all = |_: &Cluster| {
            let perhaps = seen.perhaps.lock().expect("no panic").len();
            seen.pushed() + perhaps == PUSHED
                && seen.missing() <= seen.unknown.load(Ordering::Relaxed)
        };
        cluster.eventually("all is pushed and popped", all);
        seen.is_over.store(true, Ordering::Relaxed);
    });
    let popped = seen.popped.into_inner().expect("no panic");
    let twice: Vec<_> = popped.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "popped more than once: {twice:?}");
    let known = seen.pushed.into_inner().expect("no panic");
    let perhaps = seen.perhaps.into_inner().expect("no panic");
    let strange = |element: &&String| !known.contains(*element) && !perhaps.contains(*element);
    assert_eq!(popped.keys().find(strange), None, "it was never pushed");
}
