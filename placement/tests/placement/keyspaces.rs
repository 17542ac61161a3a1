//! Keyspaces are made, changed and dropped while members come and go.

use crate::common::*;
use doyen_placement::planner::{
    self, DEFAULT_KEYSPACE, KeyspaceChange, NewKeyspace, Refused, admit, alter_keyspace,
    check_directories, create_keyspace, drop_keyspace, note_limits, want_map,
};
use doyen_placement::table::validate::{KEYSPACES_MAX, PARTITIONS_ALL_MAX};
use doyen_placement::{
    Division, Durability, Eviction, Invalid, KeyspaceId, Loads, MapId, MapLimits, MapWish, Mode,
    OnLoss, PartitionId, Role, Table, TableDelta, WantedMap,
};
use std::collections::BTreeSet;
use std::sync::Arc;

fn wanted(name: &str, partitions: u16, backups: u8) -> NewKeyspace {
    let mode = Mode::Fixed { partitions };
    let (division, on_loss) = (Division::Slots, OnLoss::Wait);
    NewKeyspace {
        name: name.into(),
        mode,
        division,
        backups,
        min_in_sync: 1,
        on_loss,
        default_ttl_ms: None,
        eviction: Eviction::None,
        ordered: false,
        rules: Vec::new(),
        durability: None,
    }
}

fn created(table: &Table, name: &str, partitions: u16, backups: u8) -> Table {
    let next = create_keyspace(table, wanted(name, partitions, backups))
        .expect("it may be")
        .expect("it is new");
    check_step(table, &next);
    next
}

fn with_backups(table: &Table, name: &str, backups: u8) -> Table {
    let change = KeyspaceChange {
        backups: Some(backups),
        ..KeyspaceChange::default()
    };
    let next = alter_keyspace(table, name, change)
        .expect("it may be")
        .expect("it is a change");
    check_step(table, &next);
    next
}

fn copies(table: &Table, name: &str) -> Vec<usize> {
    table
        .keyspace_named(name)
        .expect("it is there")
        .partitions
        .iter()
        .map(|p| p.in_sync().count())
        .collect()
}

#[test]
fn a_new_keyspace_is_assigned_at_once_and_evenly() {
    let table = created(&cluster(16, 1, &[PLAIN, PLAIN, PLAIN]), "orders", 64, 2);
    assert_eq!(copies(&table, "orders"), [3; 64]);
    let leads = |m| {
        table
            .keyspace_named("orders")
            .expect("it is there")
            .partitions
            .iter()
            .filter(|p| p.primary() == m)
            .count()
    };
    let leads: Vec<usize> = table.members.iter().map(|m| leads(m.id)).collect();
    assert!(leads.iter().all(|n| (21..=22).contains(n)), "{leads:?}");
    assert!(
        planner::plan(&table, &Loads::default()).is_empty(),
        "nothing is left to move"
    );
}

/// The keyspace with ten partitions or tokens a member, divided so.
fn made(table: &Table, name: &str, kind: u32) -> Table {
    let (mode, division) = divided(kind, 10);
    let wanted = NewKeyspace {
        mode,
        division,
        ..wanted(name, 1, 1)
    };
    let next = create_keyspace(table, wanted.clone())
        .expect("it may be")
        .expect("it is new");
    check_step(table, &next);
    assert_eq!(
        create_keyspace(&next, wanted),
        Ok(None),
        "a repeated request is answered"
    );
    next
}

#[test]
fn every_key_of_every_mode_has_a_partition_and_every_partition_has_keys() {
    let mut table = cluster(16, 1, &[PLAIN, PLAIN, PLAIN]);
    for kind in 0..4 {
        table = made(&table, &format!("k{kind}"), kind);
    }
    assert_eq!(
        table
            .keyspaces
            .iter()
            .map(|k| k.partitions.len())
            .collect::<Vec<_>>(),
        [16, 16, 10, 30, 30]
    );
    let travelled = TableDelta::between(&cluster(16, 1, &[PLAIN, PLAIN, PLAIN]), &table);
    for keyspace in &table.keyspaces {
        for map in [MapId(0), MapId(7)] {
            let key = |n: u32| format!("key{:04}.{n}", n % 13);
            let of = |n: u32| {
                keyspace
                    .partition_of(map, key(n).as_bytes())
                    .expect("it is assigned")
            };
            let used: BTreeSet<PartitionId> = (0..20_000).map(of).collect();
            // Every other map of a keyspace of ranges is behind its last split.
            let all = if keyspace.mode == Mode::Range && map != MapId(0) {
                1
            } else {
                keyspace.partitions.len()
            };
            assert_eq!(used.len(), all, "{} {map:?}", keyspace.name);
            assert!(
                used.iter()
                    .all(|p| (p.0 as usize) < keyspace.partitions.len())
            );
        }
    }
    assert_eq!(
        travelled
            .apply(&cluster(16, 1, &[PLAIN, PLAIN, PLAIN]))
            .map(|t| t.name()),
        Ok(table.name())
    );
    let table = settle(admit(&table, vec![member(4, &PLAIN)]));
    for keyspace in &table.keyspaces {
        let leads = |m| {
            keyspace
                .partitions
                .iter()
                .filter(|p| p.primary() == m)
                .count()
        };
        let leads: Vec<usize> = table.members.iter().map(|m| leads(m.id)).collect();
        assert!(
            leads
                .iter()
                .max()
                .zip(leads.iter().min())
                .is_some_and(|(max, min)| max - min <= 1),
            "{}: {leads:?}",
            keyspace.name
        );
    }
}

#[test]
fn a_ring_takes_the_room_that_is_left() {
    let mut table = cluster(1 << 14, 1, &[PLAIN, PLAIN, PLAIN]);
    for name in ["a", "b", "c"] {
        table = created(&table, name, 1 << 13, 1);
    }
    table = created(&table, "d", 1 << 14, 1);
    table = created(&table, "e", 1 << 12, 1);
    table = created(&table, "f", 1 << 11, 1);
    let wanted = |name, tokens| NewKeyspace {
        mode: Mode::Ring {
            tokens,
            random: false,
        },
        division: Division::no_arcs(),
        ..wanted(name, 1, 1)
    };
    let tokens = |table: &Table, name| {
        table
            .keyspace_named(name)
            .expect("it is there")
            .partitions
            .len()
    };
    table = create_keyspace(&table, wanted("g", 256))
        .expect("it may be")
        .expect("it is new");
    assert_eq!(tokens(&table, "g"), 768);
    let left = PARTITIONS_ALL_MAX
        - table
            .keyspaces
            .iter()
            .map(|k| k.partitions.len())
            .sum::<usize>();
    table = created(&table, "h", 1 << (left - 50).ilog2(), 1);
    let left = PARTITIONS_ALL_MAX
        - table
            .keyspaces
            .iter()
            .map(|k| k.partitions.len())
            .sum::<usize>();
    table = create_keyspace(&table, wanted("i", 256))
        .expect("it may be")
        .expect("it is new");
    assert!(
        (1..=left).contains(&tokens(&table, "i")),
        "{left} are left, {} are used",
        tokens(&table, "i")
    );
}

#[test]
fn a_keyspace_is_made_once() {
    let table = created(&cluster(16, 1, &[PLAIN]), "orders", 64, 2);
    assert_eq!(
        create_keyspace(&table, wanted("orders", 64, 2)),
        Ok(None),
        "a repeated request is answered"
    );
    assert_eq!(
        create_keyspace(&table, wanted("orders", 64, 1)),
        Err(Refused::OtherSettings("orders".into()))
    );
}

fn of_map(name: &str, keyspace: &str, wish: MapWish) -> WantedMap {
    WantedMap {
        keyspace: keyspace.into(),
        name: name.into(),
        wish,
    }
}

#[test]
fn limits_of_a_map_are_raised_and_replaced_on_purpose_until_it_is_dropped() {
    let table = created(&cluster(16, 1, &[PLAIN, PLAIN]), "orders", 4, 1);
    let limits = |entries, idle_ms| MapLimits {
        entries,
        idle_ms,
        eviction: Eviction::Lfu,
        ..MapLimits::NONE
    };
    let want = |table: &Table, wish| want_map(table, &of_map("open", "orders", wish));
    let few = limits(Some(10), None);
    let (next, made) = want(&table, MapWish::Limited(few)).expect("it may be");
    let first = next.expect("it is new");
    check_step(&table, &first);
    assert_eq!(made.limits, few);
    assert_eq!(want(&first, MapWish::Exists), Ok((None, made.clone())));
    assert_eq!(
        want(&first, MapWish::Limited(few)),
        Ok((None, made.clone()))
    );
    let more = limits(Some(20), None);
    let (next, changed) = want(&first, MapWish::Limited(more)).expect("it may be");
    let second = next.expect("it is changed");
    check_step(&first, &second);
    assert_eq!((changed.id, changed.limits), (made.id, more));
    // Opening it with lower limits, or with another eviction, changes nothing.
    let lru = MapLimits {
        eviction: Eviction::Lru,
        ..few
    };
    let bytes = MapLimits {
        bytes: Some(1),
        ..MapLimits::NONE
    };
    for lower in [few, lru, bytes, limits(Some(20), None)] {
        let wish = MapWish::Limited(lower);
        assert_eq!(
            want(&second, wish),
            Ok((None, changed.clone())),
            "{lower:?}"
        );
        assert!(wish.met(&second, &changed), "{lower:?}");
    }
    // On purpose they are replaced, also by none.
    for limits in [few, lru, bytes, MapLimits::NONE] {
        let wish = MapWish::Replaced(limits);
        assert!(!wish.met(&second, &changed));
        let (next, replaced) = want(&second, wish).expect("it may be");
        let mut next = next.expect("it is changed");
        assert!(wish.met(&next, &replaced));
        assert_eq!(replaced.limits, limits);
        note_limits(&second, &mut next, replaced.id, "n2");
        assert_eq!(
            next.annex.limited.get(&replaced.id).map(String::as_str),
            Some("n2")
        );
        check_step(&second, &next);
    }
    let idle = MapWish::Limited(limits(Some(20), Some(5)));
    // An idle time may be added and made longer, not taken away.
    let (idler, with_idle) = want(&second, idle).expect("it may be");
    assert_eq!(with_idle.limits.idle_ms, Some(5));
    let idler = idler.expect("it is changed");
    let (_, longer) = want(&idler, MapWish::Limited(limits(None, Some(9)))).expect("it may be");
    assert_eq!(
        (longer.limits.entries, longer.limits.idle_ms),
        (Some(20), Some(9))
    );
    assert_eq!(
        want(&idler, MapWish::Replaced(few)),
        Err(Refused::Idle("open".into()))
    );
    // What is no limit.
    assert_eq!(
        want(&second, MapWish::Replaced(limits(Some(0), None))),
        Err(Refused::Invalid(Invalid::MapLimit(made.id)))
    );
    let delta = TableDelta::between(&first, &second);
    assert_eq!(delta.apply(&first), Ok(second.clone()));
    assert_ne!(first.name().hash, {
        let mut other = first.clone();
        other.maps[0].limits = more;
        other.name().hash
    });
    let (next, gone) = want(&second, MapWish::Dropped).expect("it may be");
    let third = next.expect("it is gone");
    check_step(&second, &third);
    assert_eq!((gone.id, third.maps.len()), (made.id, 0));
    assert_eq!(
        want(&third, MapWish::Dropped),
        Err(Refused::NoMap("open".into()))
    );
    let (_, again) = want(&third, MapWish::Exists).expect("it may be");
    assert!(again.id > made.id, "its number is not given again");
}

#[test]
fn a_map_of_a_keyspace_of_ranges_has_no_bounds() {
    let ranges = NewKeyspace {
        mode: Mode::Range,
        division: Division::split_at(["m"]).expect("a key"),
        ..wanted("ranges", 4, 1)
    };
    let table = create_keyspace(&cluster(16, 1, &[PLAIN, PLAIN]), ranges)
        .expect("it may be")
        .expect("it is new");
    let bounded = MapWish::Limited(MapLimits {
        entries: Some(5),
        ..MapLimits::NONE
    });
    assert_eq!(
        want_map(&table, &of_map("m", "ranges", bounded)),
        Err(Refused::Bounded("m".into()))
    );
    let idle = MapWish::Limited(MapLimits {
        idle_ms: Some(5),
        ..MapLimits::NONE
    });
    assert!(want_map(&table, &of_map("m", "ranges", idle)).is_ok());
}

#[test]
fn numbers_are_never_given_again() {
    let first = created(&cluster(16, 1, &[PLAIN, PLAIN]), "orders", 4, 1);
    let (with_map, map) =
        want_map(&first, &of_map("open", "orders", MapWish::Exists)).expect("it may be");
    let with_map = with_map.expect("it is new");
    check_step(&first, &with_map);
    let dropped = drop_keyspace(&with_map, "orders").expect("it may be");
    check_step(&with_map, &dropped);
    assert!(dropped.keyspace_named("orders").is_none() && dropped.maps.is_empty());
    let again = created(&dropped, "orders", 4, 1);
    assert_eq!(
        again.keyspace_named("orders").map(|k| k.id),
        Some(KeyspaceId(2))
    );
    let (_, map_again) =
        want_map(&again, &of_map("open", "orders", MapWish::Exists)).expect("it may be");
    assert_eq!((map.id, map_again.id), (MapId(1), MapId(2)));
}

/// The name of a map was one within the cluster, so two services could not both have `sessions`.
#[test]
fn the_name_of_a_map_is_one_within_its_keyspace() {
    let table = created(&cluster(16, 1, &[PLAIN, PLAIN]), "orders", 4, 1);
    let (next, first) =
        want_map(&table, &of_map("open", "orders", MapWish::Exists)).expect("it may be");
    let table = next.expect("it is new");
    let (next, second) =
        want_map(&table, &of_map("open", DEFAULT_KEYSPACE, MapWish::Exists)).expect("it may be");
    let table = next.expect("it is new");
    assert_ne!(first.id, second.id);
    assert_eq!(table.map_in("orders", "open"), Some(&first));
    assert_eq!(table.map_in(DEFAULT_KEYSPACE, "open"), Some(&second));
    assert_eq!(
        want_map(&table, &of_map("open", "orders", MapWish::Exists)),
        Ok((None, first.clone()))
    );
}

#[test]
fn with_other_backups_copies_are_made_and_dropped_and_nothing_else_moves() {
    let base = created(
        &cluster(16, 1, &[PLAIN, PLAIN, PLAIN, PLAIN]),
        "orders",
        32,
        1,
    );
    let more = settle_with(with_backups(&base, "orders", 2), check_step);
    assert_eq!(
        (copies(&more, "orders"), copies(&more, "default")),
        (vec![3; 32], vec![2; 16])
    );
    let less = settle_with(with_backups(&more, "orders", 0), check_step);
    assert_eq!(copies(&less, "orders"), [1; 32]);
    let held = |table: &Table| table.keyspace(KeyspaceId(0)).map(|k| k.partitions.clone());
    assert_eq!(held(&base), held(&less), "the other keyspace is as it was");
    let kept = |(a, b): (
        &std::sync::Arc<doyen_placement::Partition>,
        &std::sync::Arc<doyen_placement::Partition>,
    )| { b.in_sync().all(|m| a.in_sync().any(|other| other == m)) };
    let (more, less) = (
        more.keyspace_named("orders").expect("there"),
        less.keyspace_named("orders").expect("there"),
    );
    assert!(
        more.partitions.iter().zip(&less.partitions).all(kept),
        "what is left was there before"
    );
}

#[test]
fn a_policy_of_eviction_is_changed_and_nothing_moves() {
    let table = created(&cluster(16, 1, &[PLAIN, PLAIN]), "orders", 8, 1);
    let evicting = |policy| KeyspaceChange {
        eviction: Some(policy),
        ..KeyspaceChange::default()
    };
    let policy = |table: &Table| table.keyspace_named("orders").map(|k| k.eviction);
    assert_eq!(
        policy(&table),
        Some(Eviction::None),
        "nothing is evicted by default"
    );
    let next = alter_keyspace(&table, "orders", evicting(Eviction::Lru))
        .expect("it may be")
        .expect("it is a change");
    check_step(&table, &next);
    assert_eq!(policy(&next), Some(Eviction::Lru));
    assert_eq!(
        TableDelta::between(&table, &next).apply(&table),
        Ok(next.clone()),
        "a difference says so, too"
    );
    let partitions = |table: &Table| {
        table
            .keyspaces
            .iter()
            .map(|k| k.partitions.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(partitions(&next), partitions(&table));
    assert_eq!(
        alter_keyspace(&next, "orders", evicting(Eviction::Lru)),
        Ok(None)
    );
    assert_eq!(
        create_keyspace(&next, wanted("orders", 8, 1)),
        Err(Refused::OtherSettings("orders".into()))
    );
    let again = NewKeyspace {
        eviction: Eviction::Lru,
        ..wanted("orders", 8, 1)
    };
    assert_eq!(create_keyspace(&next, again), Ok(None));
}

#[test]
fn a_newcomer_takes_its_share_of_every_keyspace() {
    let table = created(&cluster(32, 1, &[PLAIN, PLAIN]), "orders", 32, 1);
    let settled = settle_with(admit(&table, vec![member(9, &PLAIN)]), check_step);
    for keyspace in &settled.keyspaces {
        let held = keyspace
            .partitions
            .iter()
            .filter(|p| p.in_sync().any(|m| m == id(9)))
            .count();
        assert!(
            (21..=22).contains(&held),
            "of 64 copies of {}: {held}",
            keyspace.name
        );
    }
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    let table = cluster(16, 1, &[PLAIN]);
    assert_eq!(
        drop_keyspace(&table, DEFAULT_KEYSPACE),
        Err(Refused::Default)
    );
    assert!(matches!(
        drop_keyspace(&table, "orders"),
        Err(Refused::NoKeyspace { .. })
    ));
    assert!(matches!(
        alter_keyspace(&table, "orders", KeyspaceChange::default()),
        Err(Refused::NoKeyspace { .. })
    ));
    assert_eq!(
        alter_keyspace(&table, DEFAULT_KEYSPACE, KeyspaceChange::default()),
        Ok(None)
    );
    let fewer_than_needed = KeyspaceChange {
        min_in_sync: Some(3),
        ..KeyspaceChange::default()
    };
    assert!(matches!(
        alter_keyspace(&table, DEFAULT_KEYSPACE, fewer_than_needed),
        Err(Refused::Invalid(why)) if why.to_string() == "keyspace \"default\": min in sync must \
            be 1 to 2 with 1 backups, but is 3: change either"
    ));
    for name in ["", "a b", "a/b", "\u{1b}[2J", &"a".repeat(65)] {
        assert!(
            matches!(
                create_keyspace(&table, wanted(name, 4, 1)),
                Err(Refused::Invalid(Invalid::Keyspace { .. }))
            ),
            "{name:?}"
        );
    }
    assert!(matches!(
        create_keyspace(&table, wanted("orders", 3, 1)),
        Err(Refused::Invalid(Invalid::Keyspace { .. }))
    ));
}

#[test]
fn there_is_an_end_to_keyspaces_and_to_partitions() {
    let mut table = cluster(1, 0, &[PLAIN]);
    for n in 1..KEYSPACES_MAX {
        table = created(&table, &format!("k{n}"), 1, 0);
    }
    assert!(matches!(
        create_keyspace(&table, wanted("one.more", 1, 0)),
        Err(Refused::Invalid(Invalid::TooMany { .. }))
    ));
    let mut table = cluster(16384, 0, &[PLAIN]);
    for n in 1..PARTITIONS_ALL_MAX / 16384 {
        table = created(&table, &format!("k{n}"), 16384, 0);
    }
    assert!(matches!(
        create_keyspace(&table, wanted("one.more", 1, 0)),
        Err(Refused::Invalid(Invalid::TooMany { .. }))
    ));
}

#[test]
fn the_durability_of_a_keyspace_of_slots_is_changed_at_any_time() {
    let plain = cluster(16, 1, &[PLAIN, PLAIN]);
    let mut table = plain.clone();
    for member in &mut table.members {
        Arc::make_mut(member).start = Some(1);
    }
    let set = |durability| KeyspaceChange {
        durability: Some(durability),
        ..KeyspaceChange::default()
    };
    let changed = |table: &Table, name: &str, durability| {
        let next = alter_keyspace(table, name, set(durability));
        next.map(|next| next.expect("it is another one"))
    };
    let durable = changed(&table, "default", Durability::Log).expect("it has slots");
    check_step(&table, &durable);
    assert_eq!(durable.keyspaces[0].durability, Durability::Log);
    let again = alter_keyspace(&durable, "default", set(Durability::Log));
    assert_eq!(again, Ok(None));
    assert_eq!(check_directories(&plain), Ok(()));
    let mut lacking = table.clone();
    Arc::make_mut(&mut lacking.members[1]).start = None;
    let why = alter_keyspace(&lacking, "default", set(Durability::Log)).expect_err("one has none");
    assert!(
        why.to_string().ends_with("and n2 has no directory"),
        "{why}"
    );
    let mut lacking = durable.clone();
    Arc::make_mut(&mut lacking.members[1]).start = None;
    assert!(check_directories(&lacking).is_err());
    Arc::make_mut(&mut lacking.members[1]).role = Role::Witness;
    assert_eq!(check_directories(&lacking), Ok(()));
    assert_eq!(
        changed(&durable, "default", Durability::None),
        Ok(table.clone())
    );

    let log = NewKeyspace {
        durability: Some(Durability::Log),
        ..wanted("orders", 8, 1)
    };
    let made = create_keyspace(&table, log.clone()).expect("it has slots");
    let made = made.expect("it is new");
    assert_eq!(made.keyspaces[1].durability, Durability::Log);
    assert_eq!(create_keyspace(&made, log.clone()), Ok(None));
    let ranges = NewKeyspace {
        mode: Mode::Range,
        division: Division::split_at(["m"].iter()).expect("one key is in order"),
        ..log
    };
    let ranges = NewKeyspace {
        name: "names".into(),
        ..ranges
    };
    let why = create_keyspace(&made, ranges).expect_err("ranges are not on disk yet");
    assert!(
        why.to_string().contains("needs slots (mode fixed) for now"),
        "{why}"
    );
}
