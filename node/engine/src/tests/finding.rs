//! Queries for strings: by prefix, with values, and by the tags of values.

use super::reshaping::reshaped;
use super::*;
use crate::command::operation::{FindQuery, PartitionAction, RangeQuery};
use doyen_placement::division::Cut;
use doyen_placement::{MapEntry, MapLimits, Reshape};

const NAMED: MapId = MapId(3);

/// Every string whose key begins so, with its value: the first page.
fn query(prefix: &str, count: u32) -> FindQuery {
    FindQuery {
        cursor: 0,
        count,
        prefix: Bytes::copy_from_slice(prefix.as_bytes()),
        values: true,
        holding: None,
    }
}

fn pairs(keys: &[Bytes]) -> Vec<(String, Vec<u8>)> {
    let text = |key: &Bytes| String::from_utf8(key.to_vec()).expect("text");
    assert!(keys.len().is_multiple_of(2));
    keys.chunks(2)
        .map(|pair| (text(&pair[0]), pair[1].to_vec()))
        .collect()
}

impl World {
    fn whole(&mut self, n: u64, map: MapId, p: PartitionId, action: PartitionAction) -> Outcome {
        let operation = PartitionOperation {
            keyspace: KeyspaceId(0),
            partition: p,
            map,
            action,
        };
        let token = self.submit_work(n, operation);
        self.outcome(token)
    }

    fn page(&mut self, n: u64, map: MapId, p: PartitionId, query: &FindQuery) -> (u64, Vec<Bytes>) {
        match self.whole(n, map, p, PartitionAction::Find(query.clone())) {
            Outcome::Keys { next, keys } => (next, keys),
            other => panic!("{other:?}"),
        }
    }

    /// All pages of a query in a partition.
    fn find(&mut self, n: u64, map: MapId, p: PartitionId, query: &FindQuery) -> Vec<Vec<Bytes>> {
        let (mut query, mut pages) = (query.clone(), Vec::new());
        loop {
            let (next, keys) = self.page(n, map, p, &query);
            pages.push(keys);
            query.cursor = next;
            if next == 0 {
                return pages;
            }
        }
    }

    /// Each string of all partitions with its value, in order.
    fn find_all(&mut self, n: u64, map: MapId, query: &FindQuery) -> Vec<(String, Vec<u8>)> {
        let keyspace = &self.tables[self.committed].keyspaces[0];
        let partitions: Vec<PartitionId> = keyspace.partitions.iter().map(|p| p.id).collect();
        let mut found: Vec<_> = partitions
            .into_iter()
            .flat_map(|p| pairs(&self.find(n, map, p, query).concat()))
            .collect();
        found.sort();
        found
    }

    /// Gives these maps a name, besides those that have one.
    fn name_maps(&mut self, maps: &[MapId]) {
        self.propose(|t| {
            t.maps.extend(maps.iter().map(|id| MapEntry {
                id: *id,
                name: format!("m{id}"),
                keyspace: KeyspaceId(0),
                limits: MapLimits::NONE,
            }));
            t.next_map = MapId(20);
        });
        self.settle(Duration::from_millis(50));
    }

    fn set_in(&mut self, map: MapId, key: &str, action: Action) {
        let token = self.submit_work(
            1,
            Operation {
                keyspace: KeyspaceId(0),
                map,
                key: Bytes::copy_from_slice(key.as_bytes()),
                action,
            },
        );
        assert!(!matches!(self.outcome(token), Outcome::Failed(_)), "{key}");
    }

    /// An empty keyspace with ranges: partition 0 has the keys of map 0 before `x`, and partition 3
    /// those from `z` on, and all other maps.
    fn in_order(seed: u64) -> Self {
        let mut w = Self::new(seed, 2, |_| vec![1, 2]);
        w.propose(|t| {
            t.keyspaces[0].mode = Mode::Range;
            t.keyspaces[0].division = Division::split_at(["x", "y", "z"]).unwrap();
            t.maps.push(MapEntry {
                id: NAMED,
                name: "named".to_owned(),
                keyspace: KeyspaceId(0),
                limits: MapLimits::NONE,
            });
            t.next_map = MapId(4);
        });
        w.settle(Duration::from_millis(100));
        for node in w.nodes.values_mut() {
            let slots = node.shard.slots.iter_mut();
            slots
                .filter_map(|slot| slot.held.as_mut())
                .for_each(|held| held.store = held.store.emptied().sorted(true));
        }
        w
    }
}

#[test]
fn strings_are_found_by_the_beginning_of_their_keys_with_their_values() {
    let mut w = World::new(70, 2, |_| vec![1, 2]);
    w.name_maps(&[NAMED, MapId(9)]);
    for n in 0..60 {
        w.set(1, &format!("a{n}"), &format!("value {n}"));
        w.set(1, &format!("b{n}"), "other");
        w.set_in(NAMED, &format!("a{n}"), set("elsewhere"));
    }
    w.set_in(MapId(0), "ahash", hashes::of("HSET ahash f 1"));
    let mut expected: Vec<(String, Vec<u8>)> = (0..60)
        .map(|n| (format!("a{n}"), format!("value {n}").into_bytes()))
        .collect();
    expected.sort();
    // Node 1 has the keys, and node 2 asks it.
    for n in 1..=2 {
        for count in [1, 7, u32::MAX] {
            assert_eq!(w.find_all(n, MapId(0), &query("a", count)), expected);
        }
        assert_eq!(w.find_all(n, MapId(0), &query("", 7)).len(), 120);
        assert_eq!(w.find_all(n, MapId(0), &query("a12", 7)).len(), 1);
        assert_eq!(w.find_all(n, MapId(9), &query("", 7)).len(), 0);
        let keys_alone = FindQuery {
            values: false,
            ..query("a", 7)
        };
        let found: Vec<Bytes> = (0..4)
            .flat_map(|p| w.find(n, MapId(0), PartitionId(p), &keys_alone).concat())
            .collect();
        assert_eq!(found.len(), 60);
        assert!(found.iter().all(|key| key.starts_with(b"a")));
    }
}

#[test]
fn a_page_ends_after_so_many_keys_though_none_matches() {
    let mut w = World::new(71, 1, |_| vec![1]);
    for n in 0..400 {
        w.submit(1, &format!("k{n}"), set("x"));
    }
    w.settle(Duration::from_millis(100));
    for p in 0..4 {
        let keys = w.contents(1, p).len();
        for none in [
            query("none", 10),
            FindQuery {
                holding: Some(Bytes::from_static(b"tag")),
                ..query("", 10)
            },
        ] {
            let pages = w.find(1, MapId(0), PartitionId(p), &none);
            assert!(pages.iter().all(Vec::is_empty));
            assert_eq!(pages.len(), keys.div_ceil(10));
        }
    }
}

#[test]
fn a_page_ends_at_half_a_megabyte_of_values() {
    let mut w = World::new(72, 2, |_| vec![1, 2]);
    let large = "x".repeat(100 << 10);
    for n in 0..60 {
        w.set(1, &format!("k{n}"), &large);
    }
    let mut found = 0;
    for p in 0..4 {
        let pages = w.find(2, MapId(0), PartitionId(p), &query("k", 10_000));
        for (at, page) in pages.iter().enumerate() {
            let bytes: usize = page.iter().map(Bytes::len).sum();
            assert!(bytes < 612 << 10, "{bytes}");
            assert!(at + 1 == pages.len() || bytes >= 512 << 10, "{bytes}");
        }
        found += pairs(&pages.concat()).len();
    }
    assert_eq!(found, 60);
}

#[test]
fn values_are_found_by_their_tags() {
    let mut w = World::new(73, 2, |_| vec![1, 2]);
    let tagged = |names: &[&str]| {
        let mut value = Vec::new();
        crate::value::tags::put_head(&mut value, names).unwrap();
        value.extend_from_slice(b"users");
        Action::set(value.into())
    };
    for (key, action) in [
        ("one", tagged(&["users"])),
        ("two", tagged(&["orders", "users"])),
        ("other", tagged(&["orders"])),
        ("longer", tagged(&["users-2"])),
        (
            "loading",
            Action::set(Bytes::from_static(&[crate::value::tags::LOADING])),
        ),
        ("plain", set("users")),
    ] {
        w.set_in(MapId(0), key, action);
    }
    let mut of = |prefix, tag: &'static str| -> Vec<String> {
        let holding = FindQuery {
            holding: Some(Bytes::from_static(tag.as_bytes())),
            ..query(prefix, 2)
        };
        let found = w.find_all(2, MapId(0), &holding);
        found.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(of("", "users"), ["loading", "one", "two"]);
    assert_eq!(of("", "orders"), ["loading", "other", "two"]);
    assert_eq!(of("", "user"), ["loading"]);
    assert_eq!(of("o", "users"), ["one"]);
}

#[test]
fn what_stays_is_found_at_the_next_primary_while_the_map_grows_and_shrinks() {
    let mut w = World::new(74, 3, |_| vec![1, 2]);
    for n in 0..400 {
        w.submit(3, &format!("k{n}"), set("x"));
    }
    w.settle(Duration::from_millis(100));
    let (mut found, mut more) = (BTreeSet::new(), 0);
    for p in 0..u32::from(PARTITIONS) {
        let mut query = query("k", 10);
        loop {
            let (next, keys) = w.page(3, MapId(0), PartitionId(p), &query);
            found.extend(pairs(&keys));
            query.cursor = next;
            if next == 0 {
                break;
            }
            for n in more..more + 40 {
                w.submit(3, &format!("more{n}"), set("x"));
                if n >= 800 {
                    w.submit(3, &format!("more{}", n - 800), Action::Delete);
                }
            }
            more += 40;
            w.settle(Duration::from_millis(50));
            if p == 1 && w.nodes[&1].alive {
                w.kill(1);
                w.propose(|t| remove(t, 1));
                w.settle(Duration::from_secs(1));
            }
        }
    }
    assert!(!w.nodes[&1].alive && more > 800);
    assert_eq!(found.len(), 400);
    assert!(found.iter().all(|(_, value)| value == b"x"));
}

/// A split while a query is under way: its cursor has no meaning in the parts.
#[test]
fn a_query_begins_again_at_the_parts_of_a_split_partition_and_finds_all() {
    let mut w = World::new(75, 2, |_| vec![1, 2]);
    for node in w.nodes.values_mut() {
        node.shard.cx.host.limits.drawn_max = 1;
    }
    let mut expected = Vec::new();
    for n in 0..400 {
        w.set(1, &format!("k{n}"), "1");
    }
    let (next, _) = w.page(1, MapId(0), PartitionId(0), &query("k", 10));
    assert_ne!(next, 0);
    let split = Reshape::Split {
        partition: PartitionId(0),
        cut: Cut::Half,
    };
    w.propose(|t| *t = reshaped(t, split.clone()));
    w.agree(true);
    let goes_on = FindQuery {
        cursor: next,
        ..query("k", 10)
    };
    for n in 1..=2 {
        let outcome = w.whole(
            n,
            MapId(0),
            PartitionId(0),
            PartitionAction::Find(goes_on.clone()),
        );
        assert_eq!(outcome, Outcome::Failed(Failure::Stale));
    }
    // Some keys change while the parts still draw from the former partition.
    for n in 0..400 {
        let key = format!("k{n}");
        match n % 8 {
            0 => assert_eq!(w.set(2, &key, "2"), Outcome::Ok),
            1 => assert_eq!(w.ask(2, &key, Action::Delete), Outcome::Int(1)),
            _ => {}
        }
        let value = if n % 8 == 0 { "2" } else { "1" };
        expected.extend((n % 8 != 1).then(|| (key, value.as_bytes().to_vec())));
    }
    expected.sort();
    assert_eq!(w.find_all(2, MapId(0), &query("k", 10)), expected);
}

#[test]
fn queries_that_are_too_large_are_refused() {
    let mut w = World::new(76, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let long = w.nodes[&1].shard.cx.host.limits.key_bytes_max + 1;
    let long_tag = FindQuery {
        holding: Some(vec![0; 256].into()),
        ..query("", 1)
    };
    for too_large in [query(&"x".repeat(long), 1), long_tag] {
        let find = PartitionAction::Find(too_large);
        let outcome = w.whole(2, MapId(0), PartitionId(0), find);
        assert_eq!(outcome, Outcome::Failed(Failure::TooLarge));
    }
}

#[test]
fn pages_for_a_peer_that_takes_no_answers_are_refused() {
    let mut w = World::new(77, 2, |_| vec![1, 2]);
    let large = "x".repeat(100 << 10);
    for n in 0..60 {
        w.set(1, &format!("k{n}"), &large);
    }
    let now = w.now;
    w.nodes
        .get_mut(&1)
        .unwrap()
        .shard
        .congested(now, id(2), true);
    let find = PartitionOperation {
        keyspace: KeyspaceId(0),
        partition: PartitionId(0),
        map: MapId(0),
        action: PartitionAction::Find(query("k", 100)),
    };
    let asked: Vec<CallToken> = (0..600).map(|_| w.submit_work(2, find.clone())).collect();
    w.deliver((2, 1, Lane::Calls), true);
    w.deliver((1, 2, Lane::Calls), true);
    let refused = Outcome::Failed(Failure::Overloaded);
    let refused = |w: &World| {
        let outcomes = asked.iter().filter_map(|token| w.outcomes.get(token));
        outcomes.filter(|outcome| **outcome == refused).count()
    };
    // The first page has half a megabyte.
    let most = Limits::of_test().owed_bytes_max() / (512 << 10);
    assert!(refused(&w) >= 600 - most, "{}", refused(&w));
    let now = w.now;
    w.nodes
        .get_mut(&1)
        .unwrap()
        .shard
        .congested(now, id(2), false);
    w.settle(Duration::from_millis(500));
    let answered = asked
        .iter()
        .filter(|token| matches!(w.outcomes[token], Outcome::Keys { .. }));
    assert_eq!(answered.count() + refused(&w), 600);
    let (next, keys) = w.page(2, MapId(0), PartitionId(0), &query("k", 100));
    assert!(next != 0 && !keys.is_empty());
}

#[test]
fn in_an_ordered_keyspace_a_rare_prefix_costs_only_its_keys() {
    let mut w = World::in_order(78);
    for n in 0..300 {
        w.set(1, &format!("k{n:03}"), "x");
    }
    w.set_in(MapId(0), "k00hash", hashes::of("HSET k00hash f 1"));
    let p = PartitionId(0);
    // Eleven keys begin so, one of them a hash: one page, though the map has 301 keys.
    let (next, keys) = w.page(2, MapId(0), p, &query("k00", 11));
    let found: Vec<String> = pairs(&keys).into_iter().map(|(key, _)| key).collect();
    let expected: Vec<String> = (0..10).map(|n| format!("k00{n}")).collect();
    assert_eq!((next, found), (0, expected.clone()));
    // More than a page: it goes through the map, and finds the same.
    let pages = w.find(2, MapId(0), p, &query("k00", 10));
    assert_eq!(pages.len(), 31);
    let mut found: Vec<String> = pairs(&pages.concat()).into_iter().map(|p| p.0).collect();
    found.sort();
    assert_eq!(found, expected);
    // The last keys there are have no end behind them.
    for key in [&b"\xFF"[..], b"\xFF\xFF", b"\xFF\xFFa", b"\xFFb"] {
        let action = set("last");
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: Bytes::copy_from_slice(key),
            action,
        };
        let token = w.submit_work(1, operation);
        assert_eq!(w.outcome(token), Outcome::Ok);
    }
    let last = FindQuery {
        prefix: Bytes::from_static(b"\xFF\xFF"),
        values: false,
        ..query("", 10)
    };
    assert_eq!(
        w.page(1, MapId(0), PartitionId(3), &last),
        (
            0,
            vec![
                Bytes::from_static(b"\xFF\xFF"),
                Bytes::from_static(b"\xFF\xFFa"),
            ]
        )
    );
}

/// All pages of a range of a map, from one partition after the other.
fn range(w: &mut World, map: MapId, (from, to): (&str, &str), reverse: bool) -> Vec<Bytes> {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let keyspace = w.tables[w.committed].keyspaces[0].clone();
    let within = keyspace.partitions_within(map, from.as_bytes(), to.as_bytes());
    let mut partitions = within.expect("its keys have an order");
    if reverse {
        partitions.reverse();
    }
    let mut found = Vec::new();
    for p in partitions {
        let mut query = RangeQuery {
            from: bytes(from),
            to: bytes(to),
            count: 3,
            reverse,
            values: true,
        };
        loop {
            let page = match w.whole(2, map, p, PartitionAction::Range(query.clone())) {
                Outcome::Keys { next, keys } => (next, keys),
                other => panic!("{other:?}"),
            };
            if let Some(last) = page.1.chunks(2).last() {
                if reverse {
                    query.to = last[0].clone();
                } else {
                    query.from = [&*last[0], &[0]].concat().into();
                }
            }
            found.extend(page.1);
            if page.0 == 0 {
                break;
            }
        }
    }
    found
}

#[test]
fn a_range_of_any_map_of_an_ordered_keyspace_has_its_strings_in_order() {
    let mut w = World::in_order(79);
    w.name_maps(&[MapId(5)]);
    for node in w.nodes.values_mut() {
        node.shard.cx.host.limits.drawn_max = 1;
    }
    for n in 0..200 {
        let key = format!("k{n:03}");
        w.set(1, &key, "of map 0");
        w.set_in(NAMED, &key, set(&format!("{n}")));
        w.set_in(MapId(5), &key, set("of map 5"));
    }
    w.set_in(NAMED, "k050hash", hashes::of("HSET k050hash f 1"));
    let check = |w: &mut World| {
        for (from, to, numbers) in [("k010", "k123", 10..123), ("k190", "", 190..200)] {
            let mut expected: Vec<(String, Vec<u8>)> = numbers
                .map(|n| (format!("k{n:03}"), format!("{n}").into_bytes()))
                .collect();
            assert_eq!(pairs(&range(w, NAMED, (from, to), false)), expected);
            expected.reverse();
            assert_eq!(pairs(&range(w, NAMED, (from, to), true)), expected);
        }
    };
    check(&mut w);
    // Within the named map: the second part has its later keys and all of map 5.
    let split = Reshape::Split {
        partition: PartitionId(3),
        cut: Cut::Key {
            map: NAMED,
            key: b"k100".as_slice().into(),
        },
    };
    w.propose(|t| *t = reshaped(t, split.clone()));
    w.agree(true);
    check(&mut w);
    w.settle(Duration::from_millis(500));
    check(&mut w);
    assert_eq!(w.find_all(2, NAMED, &query("k", 7)).len(), 200);
    assert_eq!(range(&mut w, MapId(5), ("", ""), false).len(), 400);
}
