//! What a shard counts of its keys, by keyspace and map.

use super::*;
use crate::command::sizes::MapSize;

/// Each of two members leads two of the four partitions, and has copies of the others.
fn world(seed: u64) -> World {
    let mut w = World::new(seed, 2, |p| match p % 2 {
        0 => vec![1, 2],
        _ => vec![2, 1],
    });
    w.settle(Duration::from_millis(50));
    for n in 0..40 {
        assert_eq!(w.set(1, &format!("k{n}"), "v"), Outcome::Ok);
    }
    w
}

/// The pages of what a member leads, each read until there were more figures than `steps`.
fn pages(w: &World, n: u64, steps: usize) -> Vec<Vec<(KeyspaceId, MapSize)>> {
    let partitions = w.nodes[&n].shard.partitions();
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = partitions.sizes_led(after, steps);
        pages.push(page.sizes);
        match page.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

#[test]
fn sizes_are_of_what_a_member_leads_and_come_in_pages_that_add_up() {
    let w = world(71);
    let sum = |pages: &[Vec<(KeyspaceId, MapSize)>]| {
        let all = pages.iter().flatten();
        all.fold((0, 0), |(keys, bytes), (keyspace, size)| {
            assert_eq!((*keyspace, size.map), (KeyspaceId(0), MapId(0)));
            (keys + size.keys, bytes + size.bytes)
        })
    };
    let whole = [1, 2].map(|n| pages(&w, n, 1000));
    let each = [1, 2].map(|n| pages(&w, n, 0));
    for (whole, each) in whole.iter().zip(&each) {
        assert_eq!(
            (whole.len(), each.len()),
            (1, 2),
            "a page for each partition"
        );
        assert_eq!(sum(whole), sum(each));
    }
    let keys: u64 = whole.iter().map(|pages| sum(pages).0).sum();
    assert_eq!(keys, 40, "copies do not count");
}

#[test]
fn lookups_are_counted_at_the_primary_by_keyspace() {
    let mut w = world(72);
    for (key, found) in [("k0", true), ("k1", true), ("k2", true), ("none", false)] {
        assert_eq!(w.get(1, key) != Outcome::Nil, found, "{key}");
    }
    let lookups = [1, 2].map(|n| w.nodes[&n].shard.stats().lookups);
    let [one, two] = lookups.each_ref().map(|lookups| lookups.of(KeyspaceId(0)));
    assert_eq!((one.0 + two.0, one.1 + two.1), (3, 1));
    for lookups in lookups {
        assert_eq!(lookups.all(), lookups.of(KeyspaceId(0)));
        assert_eq!(lookups.of(KeyspaceId(1)), (0, 0));
    }
}
