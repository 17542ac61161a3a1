//! Splits and merges as tables: their partitions stay where they are, the results are held alike,
//! and no number is given twice.

use crate::common::*;
use doyen_placement::division::Cut;
use doyen_placement::loads::{MemberLoad, PartitionLoad, Report};
use doyen_placement::planner::{
    self, Absence, KeyspaceChange, NotReshaped, WritesStopped, alter_keyspace, merge_at, reshape,
    split_at,
};
use doyen_placement::{
    Assignment, Division, Keyspace, KeyspaceId, Loads, MapId, MemberId, Mode, OnLoss, Origin,
    PartitionId, PartitionRef, Reshape, Table, ThreadPorts,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const K: KeyspaceId = KeyspaceId(0);

fn ranges(members: &[Sketch]) -> Table {
    let (mode, division) = divided(1, 2);
    cluster_of(
        Keyspace {
            mode,
            division,
            ..keyspace(1, 1, OnLoss::Wait)
        },
        Assignment::RoundRobin,
        members,
    )
}

fn still(table: &Table, at: PartitionRef) -> Option<WritesStopped> {
    Some(WritesStopped {
        epoch: table.partition(at)?.epoch,
        ahead_ms: -i64::from(at.partition.0),
    })
}

fn finish(table: &Table) -> Table {
    let next = reshape::finish(table, |at| still(table, at)).expect("something is under way");
    check_step(table, &next);
    next
}

fn holder(table: &Table, key: &str) -> PartitionId {
    table.keyspaces[0]
        .partition_of(MapId(0), key.as_bytes())
        .expect("assigned")
}

#[test]
fn a_range_is_split_and_merged_again() {
    let before = ranges(&[PLAIN, PLAIN, PLAIN]);
    let name = before.keyspaces[0].name.clone();
    let begun = split_at(&before, &name, MapId(0), b"key0000b")
        .expect("it can be")
        .expect("it was not");
    check_step(&before, &begun);
    let whole = holder(&before, "key0000a");
    let epoch = |table: &Table, id| table.keyspaces[0].partition(id).expect("it is there").epoch;
    assert_eq!(
        epoch(&begun, whole),
        epoch(&before, whole).next(),
        "what was confirmed before counts no more"
    );
    assert!(begun.keyspaces[0].is_reshaped(whole));
    assert_eq!(planner::health(&begun).moves, 1);
    assert_eq!(
        split_at(&begun, &name, MapId(0), b"key0000b"),
        Ok(None),
        "asked again"
    );
    assert_eq!(reshape::finish(&begun, |_| None), None);
    let stale = |at| still(&before, at);
    assert_eq!(
        reshape::finish(&begun, stale),
        None,
        "said in another epoch"
    );

    let split = finish(&begun);
    let (one, two) = (holder(&split, "key0000a"), holder(&split, "key0000b"));
    assert!(one != two && one > whole && two > whole);
    let origin = [Origin {
        partition: whole,
        behind_ms: 0,
    }];
    assert!(
        [one, two]
            .iter()
            .all(|id| split.keyspaces[0].partition(*id).expect("it is there").from == origin)
    );
    assert_eq!(
        split_at(&split, &name, MapId(0), b"key0000b"),
        Ok(None),
        "it begins there"
    );

    let merging = merge_at(&split, &name, MapId(0), b"key0000b")
        .expect("it can be")
        .expect("it was not");
    check_step(&split, &merging);
    let merged = finish(&merging);
    let both = holder(&merged, "key0000a");
    assert_eq!(both, holder(&merged, "key0000b"));
    assert!(both > two, "numbers are not given again");
    // The clock that is ahead is taken; the other's deadlines are moved by the difference.
    let from = merged.keyspaces[0]
        .partition(both)
        .expect("it is there")
        .from
        .clone();
    assert_eq!(
        from,
        [
            Origin {
                partition: one,
                behind_ms: 0
            },
            Origin {
                partition: two,
                behind_ms: u64::from(two.0 - one.0)
            }
        ]
    );
    assert!(merge_at(&merged, &name, MapId(0), b"key0000b").is_err());
}

#[test]
fn impossible_splits_and_merges_are_refused_with_a_reason() {
    let table = ranges(&[PLAIN, PLAIN, PLAIN]);
    let name = table.keyspaces[0].name.clone();
    let why = |found: Result<Option<Table>, planner::Refused>| {
        found.expect_err("it cannot be").to_string()
    };
    assert!(why(split_at(&table, "nowhere", MapId(0), b"k")).contains("nowhere"));
    assert!(why(merge_at(&table, &name, MapId(0), b"k")).contains("no range"));
    assert!(why(merge_at(&table, &name, MapId(0), b"key0001")).contains("not held alike"));
    assert!(why(split_at(&table, &name, MapId(0), &[7; 2000])).contains("1024 bytes"));
    let half = Reshape::Split {
        partition: PartitionId(0),
        cut: Cut::Half,
    };
    assert!(matches!(
        reshape::begin(&table, K, half),
        Err(NotReshaped::Division(_))
    ));
    let begun = split_at(&table, &name, MapId(0), b"a")
        .expect("it can be")
        .expect("it was not");
    assert!(why(split_at(&begun, &name, MapId(0), b"b")).contains("try again later"));
}

#[test]
fn a_partition_whose_split_is_given_up_takes_writes_again_in_another_epoch() {
    let table = ranges(&[PLAIN, PLAIN]);
    let begun = split_at(&table, &table.keyspaces[0].name, MapId(0), b"a")
        .expect("it can be")
        .expect("it was not");
    let cancelled = reshape::cancel(&begun, |_, _| true);
    check_step(&begun, &cancelled);
    assert!(cancelled.keyspaces[0].reshaping.under_way.is_empty());
    assert_eq!(reshape::finish(&cancelled, |at| still(&begun, at)), None);
    assert_eq!(reshape::cancel(&begun, |_, _| false), begun);
}

#[test]
fn a_fixed_keyspace_is_doubled_by_and_by() {
    let table = cluster(4, 1, &[PLAIN, PLAIN, PLAIN]);
    let name = table.keyspaces[0].name.clone();
    let change = KeyspaceChange {
        partitions: Some(16),
        ..KeyspaceChange::default()
    };
    let mut now = alter_keyspace(&table, &name, change)
        .expect("it can be")
        .expect("it is another");
    check_step(&table, &now);
    let mut rounds = 0;
    loop {
        let halves = reshape::doublings(&now.keyspaces[0], 3);
        if halves.is_empty() {
            break;
        }
        let mut next = now.clone();
        for half in halves {
            next = reshape::begin(&next, K, half).expect("nothing stands in its way");
        }
        check_step(&now, &next);
        now = finish(&next);
        rounds += 1;
    }
    assert!(rounds >= 4, "three at a time");
    let keyspace = &now.keyspaces[0];
    assert_eq!(
        (keyspace.partitions.len(), keyspace.mode),
        (16, Mode::Fixed { partitions: 16 })
    );
    let slots: BTreeSet<usize> = keyspace
        .partitions
        .iter()
        .map(|p| keyspace.slots_of(p.id).count())
        .collect();
    assert_eq!(slots, BTreeSet::from([1024]));
    let fewer = KeyspaceChange {
        partitions: Some(8),
        ..KeyspaceChange::default()
    };
    assert!(
        alter_keyspace(&now, &name, fewer)
            .expect_err("they are not put together")
            .to_string()
            .contains("16 to 16384")
    );
    let settled = settle(now);
    let counts: Vec<u64> = loads(&settled)
        .values()
        .map(|(copies, _)| *copies)
        .collect();
    assert!(
        counts.iter().all(|count| (10..=11).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn parts_belong_to_the_same_data_thread_at_every_member() {
    let mut table = ranges(&[PLAIN, PLAIN, PLAIN]);
    for (member, threads) in table.members.iter_mut().zip([2_u16, 3, 16]) {
        let ports = |n| ThreadPorts {
            data: 5000 + n,
            resp_cluster: None,
        };
        Arc::make_mut(member).addresses.further = (1..threads).map(ports).collect();
    }
    for n in 0..20 {
        let key = format!("key0001{n:03}");
        let whole = holder(&table, &key);
        let begun = split_at(&table, &table.keyspaces[0].name, MapId(0), key.as_bytes())
            .expect("it can be")
            .expect("it was not");
        table = reshape::finish(&begun, |at| still(&begun, at)).expect("it is under way");
        for part in [holder(&table, &key), holder(&table, "key0001")] {
            assert!(
                [2, 3, 16]
                    .iter()
                    .all(|threads| n > 0 || part.thread(*threads) == whole.thread(*threads))
            );
        }
        let part = holder(&table, &key);
        assert!(
            [2, 3, 16]
                .iter()
                .all(|threads| part.thread(*threads) == whole.thread(*threads))
        );
    }
}

fn ring(members: usize, tokens: u16) -> Table {
    let (mode, division) = (
        Mode::Ring {
            tokens,
            random: false,
        },
        Division::no_arcs(),
    );
    cluster_of(
        Keyspace {
            mode,
            division,
            ..keyspace(1, 1, OnLoss::Wait)
        },
        Assignment::RoundRobin,
        &vec![PLAIN; members],
    )
}

/// How much more than its fair share the member that leads most leads, on a ring without tokens of
/// other members.
fn uneven(table: &Table) -> f64 {
    let Division::Arcs(arcs) = &table.keyspaces[0].division else {
        panic!("a ring")
    };
    assert!(
        arcs.brought().all(|b| table.member(b.by).is_some()),
        "tokens of those who are gone are gone"
    );
    let owned = doyen_placement::ring::ownership(arcs.ring(), &table.members, 2);
    owned
        .values()
        .map(|o| o.led / o.led_fair)
        .fold(0.0, f64::max)
}

/// The members that lead and hold every key of a sample.
fn holders(table: &Table) -> Vec<BTreeSet<doyen_placement::MemberId>> {
    let keyspace = &table.keyspaces[0];
    let of = |n: u32| {
        keyspace
            .partition_of(MapId(0), format!("key{n}").as_bytes())
            .and_then(|id| keyspace.partition(id))
    };
    (0..2_000)
        .map(|n| of(n).expect("it is assigned").in_sync().collect())
        .collect()
}

#[test]
fn a_join_splits_arcs_and_a_leave_merges_them_and_nothing_else_moves() {
    let three = ring(3, 16);
    assert_eq!(three.keyspaces[0].partitions.len(), 48);
    let four = settle_with(planner::admit(&three, vec![member(4, &PLAIN)]), check_step);
    assert_eq!(four.keyspaces[0].partitions.len(), 64);
    assert!(uneven(&four) <= 1.10, "{}", uneven(&four));
    let moved: usize = holders(&three)
        .iter()
        .zip(holders(&four))
        .map(|(before, after)| after.difference(before).count())
        .sum();
    // A fair share is 2 x 2000 / 4. A member that held a copy behind the newcomer gives it up, or
    // passes it on.
    assert!((800..=1_400).contains(&moved), "{moved}");
    let newcomer = id(4);
    let elsewhere = holders(&three)
        .iter()
        .zip(holders(&four))
        .filter(|(b, a)| a.difference(b).any(|m| *m != newcomer))
        .count();
    assert!(elsewhere <= 200, "{elsewhere}");

    let gone = std::collections::BTreeMap::from([(id(2), planner::Absence::Dead)]);
    let left = settle_with(planner::remove(&four, &gone), check_step);
    assert_eq!(left.keyspaces[0].partitions.len(), 48);
    assert!(uneven(&left) <= 1.5, "{}", uneven(&left));
    let kept = holders(&four)
        .iter()
        .zip(holders(&left))
        .filter(|(before, after)| !before.contains(&id(2)) && before != &after)
        .count();
    assert_eq!(kept, 0, "what it had no copy of stays where it is");
}

#[test]
fn rings_grow_and_shrink_without_end() {
    let mut table = ring(3, 8);
    for number in 4..12 {
        let joined = planner::admit(&table, vec![member(number, &PLAIN)]);
        let oldest = joined.members[0].id;
        let settled = settle_with(joined, check_step);
        assert!(uneven(&settled) <= 1.6, "{}", uneven(&settled));
        table = settle_with(
            planner::hand_over(&settled, oldest, planner::HandOverUrgency::AtOnce),
            check_step,
        );
        table = settle_with(
            planner::remove(
                &table,
                &std::collections::BTreeMap::from([(oldest, planner::Absence::Left)]),
            ),
            check_step,
        );
        assert_eq!(table.keyspaces[0].partitions.len(), 24);
    }
}

#[test]
fn a_ring_of_one_becomes_a_ring_of_two() {
    for tokens in [1, 2, 4] {
        let one = ring(1, tokens);
        let joined = settle(planner::admit(&one, vec![member(2, &PLAIN)]));
        assert_eq!(
            joined.keyspaces[0].partitions.len(),
            2 * usize::from(tokens)
        );
    }
}

#[test]
fn ranges_missing_in_reports_of_their_primaries_are_empty() {
    let before = ranges(&[PLAIN]);
    let name = before.keyspaces[0].name.clone();
    let split = finish(
        &split_at(&before, &name, MapId(0), b"key0000b")
            .expect("it can be")
            .expect("it was not"),
    );
    let cold = |loads: &Loads| planner::lasting(&split, loads, 1 << 20).merges;
    let parts = ["key0000a", "key0000b"].map(|key| holder(&split, key));
    let mut loads = Loads::default();
    assert_eq!(cold(&loads), [], "nothing was heard of who leads them");
    let report = |partitions| Report {
        member: MemberLoad::default(),
        partitions,
        moves: Vec::new(),
        unheard: Vec::new(),
    };
    loads.tell(&split, id(1), report(Vec::new()));
    assert_eq!(cold(&loads), [(K, parts)]);
    let large = PartitionLoad {
        bytes: 1 << 20,
        ..PartitionLoad::default()
    };
    loads.tell(
        &split,
        id(1),
        report(vec![(
            PartitionRef {
                keyspace: K,
                partition: parts[1],
            },
            large,
        )]),
    );
    assert_eq!(cold(&loads), [], "together they are not small");
}

/// Seed 1442 of the simulation: a partition that was to be merged with one that had just lost a
/// copy was to give up its own copy.
#[test]
fn nothing_comes_to_a_partition_that_lacks_copies() {
    let table = ranges(&[PLAIN, PLAIN, PLAIN]);
    let pair =
        |table: &Table| -> [PartitionId; 2] { [0, 1].map(|n| table.keyspaces[0].partitions[n].id) };
    let together =
        |table: &Table| planner::ranges::together(table, K, pair(table), &Loads::default());
    assert!(
        matches!(together(&table), Some(Err(_))),
        "held by others each, and whole"
    );
    let lacking = table.keyspaces[0].partitions[0]
        .in_sync()
        .nth(1)
        .expect("two hold it");
    let left = planner::remove(&table, &BTreeMap::from([(lacking, Absence::Dead)]));
    assert_eq!(together(&left), None);
}

/// A range was planned again each minute for members that had no room for it.
#[test]
fn neighbours_come_together_where_there_is_room_or_not_at_all() {
    let table = ranges(&[PLAIN, PLAIN, PLAIN]);
    let pair: [PartitionId; 2] = [0, 1].map(|n| table.keyspaces[0].partitions[n].id);
    let holders = |n: usize| {
        table.keyspaces[0].partitions[n]
            .in_sync()
            .collect::<Vec<_>>()
    };
    let full = |members: Vec<MemberId>| {
        let mut loads = Loads::default();
        loads.set_full(members.into_iter().map(|member| (member, 0)).collect());
        planner::ranges::together(&table, K, pair, &loads)
    };
    let at = |n: usize| PartitionRef {
        keyspace: K,
        partition: pair[n],
    };
    assert_eq!(full(Vec::new()), Some(Err(vec![(at(1), holders(0))])));
    let only = |n: usize, other: usize| {
        holders(n)
            .into_iter()
            .filter(|m| !holders(other).contains(m))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        full(only(0, 1)),
        Some(Err(vec![(at(0), holders(1))])),
        "the other way"
    );
    assert_eq!(full([only(0, 1), only(1, 0)].concat()), None);
}
