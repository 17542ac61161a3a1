//! Members that move from set to set, and elements that move from list to list, over several
//! partitions, while a primary is killed: none is lost, and a command that reads all sets never
//! misses one.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const PATIENCE: Duration = Duration::from_secs(60);
/// Sets, which are in several partitions. Members move from the first one to the last one.
const SETS: usize = 8;
const MEMBERS: usize = 100;

fn command(client: &mut Client, words: &[String]) -> Reply {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.command(&words).expect("a reply")
}

fn ask(client: &mut Client, line: &str) -> Reply {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    command(client, &words)
}

/// A client moves its part of the members, each from set to set.
fn moves(at: SocketAddr, first: usize, step: usize, moved: &AtomicUsize) {
    let mut client = Client::connect(at, PATIENCE).expect("the node takes clients");
    for member in (first..MEMBERS).step_by(step) {
        for set in 1..SETS {
            let (line, mut failed) = (format!("SMOVE set:{} set:{set} m{member}", set - 1), false);
            loop {
                match ask(&mut client, &line) {
                    Reply::Int(1) => break,
                    // What failed before may have happened.
                    Reply::Int(0) if failed => break,
                    Reply::Error(why) => {
                        failed = true;
                        let known = why.starts_with("TRYAGAIN") || why.starts_with("UNKNOWN");
                        assert!(known || why.starts_with("NOREPLICAS"), "{why}");
                    }
                    other => panic!("{line}: {other:?}"),
                }
            }
            moved.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A client reads all sets in the order in which members move, so it finds each member.
fn reads(at: SocketAddr, is_over: &AtomicBool) {
    let mut client = Client::connect(at, PATIENCE).expect("the node takes clients");
    let sets: Vec<String> = (0..SETS).map(|set| format!("set:{set}")).collect();
    let (union, store) = (
        format!("SUNION {}", sets.join(" ")),
        format!("SUNIONSTORE all {}", sets.join(" ")),
    );
    while !is_over.load(Ordering::Relaxed) {
        match ask(&mut client, &union) {
            Reply::Array(members) => assert_eq!(members.len(), MEMBERS),
            Reply::Error(_) => {}
            other => panic!("{other:?}"),
        }
        match ask(&mut client, &store) {
            Reply::Int(count) => assert_eq!(count, MEMBERS as i64),
            Reply::Error(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn no_member_is_lost_though_a_primary_dies_while_members_move() {
    let mut cluster = Cluster::of(BINARY, 3);
    let victim = cluster.coordinator();
    let others = cluster.resp_addresses_without(&victim);
    let mut client = Client::connect(others[0], PATIENCE).expect("the node takes clients");
    let members = (0..MEMBERS).map(|member| format!("m{member}"));
    let add: Vec<String> = ["SADD", "set:0"]
        .map(str::to_owned)
        .into_iter()
        .chain(members)
        .collect();
    assert_eq!(command(&mut client, &add), Reply::Int(MEMBERS as i64));
    let (moved, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = MEMBERS * (SETS - 1);
    std::thread::scope(|threads| {
        for (n, at) in others.iter().cycle().take(4).enumerate() {
            let moved = &moved;
            threads.spawn(move || moves(*at, n, 4, moved));
        }
        for at in &others {
            let is_over = &is_over;
            threads.spawn(move || reads(*at, is_over));
        }
        cluster.eventually("members move", |_| moved.load(Ordering::Relaxed) > all / 4);
        cluster.kill(&victim);
        cluster.eventually("all have moved", |_| moved.load(Ordering::Relaxed) == all);
        is_over.store(true, Ordering::Relaxed);
    });
    let last = format!("SCARD set:{}", SETS - 1);
    assert_eq!(ask(&mut client, &last), Reply::Int(MEMBERS as i64));
    for set in 0..SETS - 1 {
        assert_eq!(ask(&mut client, &format!("SCARD set:{set}")), Reply::Int(0));
    }
}

/// A client moves elements from list to list, until it is over. Returns how many errors said that
/// an element may be in two lists.
fn moves_elements(at: SocketAddr, moved: &AtomicUsize, is_over: &AtomicBool) -> usize {
    let mut client = Client::connect(at, PATIENCE).expect("the node takes clients");
    let mut unknown = 0;
    while !is_over.load(Ordering::Relaxed) {
        for list in 1..SETS {
            let line = format!("LMOVE list:{} list:{list} LEFT RIGHT", list - 1);
            match ask(&mut client, &line) {
                Reply::Bulk(_) => _ = moved.fetch_add(1, Ordering::Relaxed),
                Reply::Nil => {}
                Reply::Error(why) if why.starts_with("UNKNOWN") => unknown += 1,
                Reply::Error(why) => {
                    let known = why.starts_with("TRYAGAIN") || why.starts_with("NOREPLICAS");
                    assert!(known, "{why}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }
    unknown
}

#[test]
fn no_element_is_lost_though_a_primary_dies_while_elements_move() {
    let mut cluster = Cluster::of(BINARY, 3);
    let victim = cluster.coordinator();
    let others = cluster.resp_addresses_without(&victim);
    let mut client = Client::connect(others[0], PATIENCE).expect("the node takes clients");
    let elements = (0..MEMBERS).map(|element| format!("e{element}"));
    let push = ["RPUSH", "list:0"].map(str::to_owned);
    let push: Vec<String> = push.into_iter().chain(elements).collect();
    assert_eq!(command(&mut client, &push), Reply::Int(MEMBERS as i64));
    let (moved, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = MEMBERS * (SETS - 1);
    let unknown: usize = std::thread::scope(|threads| {
        let movers = others.iter().cycle().take(4).map(|at| {
            let (moved, is_over) = (&moved, &is_over);
            threads.spawn(move || moves_elements(*at, moved, is_over))
        });
        let movers: Vec<_> = movers.collect();
        cluster.eventually("elements move", |_| moved.load(Ordering::Relaxed) > all / 4);
        cluster.kill(&victim);
        cluster.eventually("all have moved", |_| {
            (1..SETS).all(|list| {
                let line = format!("LLEN list:{}", list - 1);
                ask(&mut client, &line) == Reply::Int(0)
            })
        });
        is_over.store(true, Ordering::Relaxed);
        movers
            .into_iter()
            .map(|mover| mover.join().expect("it ends"))
            .sum()
    });
    let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for list in 0..SETS {
        let Reply::Array(elements) = ask(&mut client, &format!("LRANGE list:{list} 0 -1")) else {
            panic!("no elements")
        };
        for element in elements {
            if let Reply::Bulk(element) = element {
                *found.entry(element).or_default() += 1;
            }
        }
    }
    assert_eq!(found.len(), MEMBERS, "some are lost");
    // An element is twice only if a client was told that it may be.
    let twice: usize = found.values().map(|count| count - 1).sum();
    assert!(
        twice <= unknown,
        "{twice} are twice, and {unknown} errors said so"
    );
}
