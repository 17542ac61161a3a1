//! Elements that move between lists of several partitions, at the plain port.

use super::several::apart;
use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// The elements of a list.
async fn elements(client: &mut Client, key: &str) -> Vec<Reply> {
    match ask(client, &format!("LRANGE {key} 0 -1")).await {
        Reply::Array(elements) => elements,
        reply => panic!("{key}: {reply:?}"),
    }
}

/// Pushes elements whose numbers are in this range.
async fn push(client: &mut Client, key: &str, count: usize) {
    let numbers: Vec<String> = (0..count).map(|n| format!("e{n}")).collect();
    ask(client, &format!("RPUSH {key} {}", numbers.join(" "))).await;
}

#[tokio::test]
async fn an_element_that_moves_is_always_in_one_of_the_lists_and_moves_once() {
    const ELEMENTS: usize = 120;
    let node = Node::of_threads(2, None, 20, limits());
    let mut client = node.client().await;
    let [a, b, _] = apart(&mut client).await;
    push(&mut client, &a, ELEMENTS).await;
    let over = Arc::new(AtomicBool::new(false));
    let (mut watcher, is_over) = (node.client().await, over.clone());
    let (from, to) = (a.clone(), b.clone());
    let watching = tokio::spawn(async move {
        for n in (0..ELEMENTS).cycle() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let first = ask(&mut watcher, &format!("LPOS {from} e{n}")).await;
            let second = ask(&mut watcher, &format!("LPOS {to} e{n}")).await;
            assert!(first != Reply::Nil || second != Reply::Nil, "{n}");
        }
    });
    let mut movers = Vec::new();
    for _ in 0..4 {
        let (mut client, from, to) = (node.client().await, a.clone(), b.clone());
        movers.push(tokio::spawn(async move {
            let mut moved = Vec::new();
            loop {
                match ask(&mut client, &format!("LMOVE {from} {to} LEFT RIGHT")).await {
                    Reply::Bulk(element) => moved.push(element),
                    Reply::Nil => return moved,
                    reply => panic!("{reply:?}"),
                }
            }
        }));
    }
    let mut moved = Vec::new();
    for mover in movers {
        moved.extend(mover.await.unwrap());
    }
    over.store(true, Ordering::Relaxed);
    watching.await.unwrap();
    moved.sort();
    let count = moved.len();
    moved.dedup();
    assert_eq!((moved.len(), count), (ELEMENTS, ELEMENTS));
    assert!(elements(&mut client, &a).await.is_empty());
    let wanted: Vec<_> = (0..ELEMENTS).map(|n| bulk(&format!("e{n}"))).collect();
    assert_eq!(elements(&mut client, &b).await, wanted, "in their order");
    node.stop().await;
}

/// An element is twice only if a client was told so.
#[tokio::test]
async fn elements_that_move_in_all_directions_are_never_lost() {
    const ELEMENTS: usize = 12;
    let node = Node::of_threads(2, None, 20, limits());
    let mut client = node.client().await;
    let keys = apart(&mut client).await;
    for (key, other) in [(0, 1), (1, 2), (2, 0)] {
        push(&mut client, &keys[key], ELEMENTS).await;
        // Equal ones, too.
        push(&mut client, &keys[other], ELEMENTS / 2).await;
    }
    let mut all: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for key in &keys {
        for element in elements(&mut client, key).await {
            if let Reply::Bulk(element) = element {
                *all.entry(element).or_default() += 1;
            }
        }
    }
    let mut movers = Vec::new();
    for n in 0..8 {
        let (mut client, keys) = (node.client().await, keys.clone());
        movers.push(tokio::spawn(async move {
            let (mut moved, mut twice) = (0, 0);
            for round in 0..200 {
                let (from, to) = (n % 3, (n % 3 + 1 + n % 2) % 3);
                let side = |at: usize| ["LEFT", "RIGHT"][((n + round) >> at) & 1];
                let (from, to) = (&keys[from], &keys[to]);
                let line = format!("LMOVE {from} {to} {} {}", side(0), side(1));
                match ask(&mut client, &line).await {
                    Reply::Bulk(_) => moved += 1,
                    Reply::Nil => {}
                    Reply::Error(why) if why.contains("two have it") => twice += 1,
                    Reply::Error(why) if why.starts_with("TRYAGAIN") => {}
                    reply => panic!("{line}: {reply:?}"),
                }
            }
            (moved, twice)
        }));
    }
    let (mut moved, mut twice) = (0, 0);
    for mover in movers {
        let (of_one, twice_of_one) = mover.await.unwrap();
        moved += of_one;
        twice += twice_of_one;
    }
    assert!(moved > 0);
    let before: usize = all.values().sum();
    let mut after = 0;
    for key in &keys {
        for element in elements(&mut client, key).await {
            after += 1;
            if let Reply::Bulk(element) = element {
                let count = all.entry(element).or_default();
                *count = count.saturating_sub(1);
            }
        }
    }
    assert!(all.values().all(|count| *count == 0), "lost: {all:?}");
    assert_eq!(after, before + twice, "{moved} moved");
    node.stop().await;
}

#[tokio::test]
async fn clients_wait_for_elements_that_move_to_another_partition() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut client = node.client().await;
    let [a, b, _] = apart(&mut client).await;
    let mut waiting = Vec::new();
    for n in 0..3 {
        let mut waiter = node.client().await;
        let line = match n {
            0 => format!("BRPOPLPUSH {a} {b} 0"),
            _ => format!("BLMOVE {a} {b} LEFT RIGHT 0"),
        };
        waiting.push(tokio::spawn(async move { ask(&mut waiter, &line).await }));
    }
    node.blocked(3).await;
    // A client of the target waits, too.
    let (mut last, line) = (node.client().await, format!("BLPOP {b} 0"));
    let last = tokio::spawn(async move { ask(&mut last, &line).await });
    node.blocked(4).await;
    ask(&mut client, &format!("RPUSH {a} x")).await;
    assert_eq!(last.await.unwrap(), Reply::Array(vec![bulk(&b), bulk("x")]));
    node.blocked(2).await;
    ask(&mut client, &format!("RPUSH {a} y z")).await;
    let mut moved = Vec::new();
    for waiter in waiting {
        moved.push(format!("{:?}", waiter.await.unwrap()));
    }
    moved.sort();
    let wanted = ["x", "y", "z"].map(|text| format!("{:?}", bulk(text)));
    assert_eq!(moved, wanted);
    let mut rest: Vec<_> = elements(&mut client, &b).await;
    rest.sort_by_key(|element| format!("{element:?}"));
    assert_eq!(rest, [bulk("y"), bulk("z")]);
    node.stop().await;
}
