//! What a half of a split has that the other half lacks: marks of each recovery.

use super::*;
use crate::role::marks::Committed;
use crate::role::recovery::{KeysWanted, RecoveryMark, SinceRecovery};
use doyen_placement::{Branch, BranchId};

fn at(p: u32) -> PartitionRef {
    PartitionRef::new(KeyspaceId(0), PartitionId(p))
}

/// A further recovery. The members that it is without are no part of this world.
fn recover(w: &mut World) {
    w.settle(Duration::from_millis(100));
    w.propose(|t| {
        let base = t.name();
        let annex = Arc::make_mut(&mut t.annex);
        let id = BranchId(annex.branches.len() as u128 + 1);
        annex.branches.push(Branch {
            id,
            base,
            named: Vec::new(),
            kept: 0,
        });
    });
    w.settle(Duration::from_millis(100));
}

fn since(w: &mut World, n: u64, p: u32) -> SinceRecovery {
    let now = w.now;
    let all = w.nodes.get_mut(&n).unwrap().shard.since_recovery(now);
    all.into_iter().find(|one| one.at == at(p)).unwrap()
}

fn keys_since(w: &World, n: u64, p: u32, since: Option<Committed>) -> Vec<String> {
    let wanted = KeysWanted {
        at: at(p),
        since,
        after: None,
    };
    let page = w.nodes[&n]
        .shard
        .partitions()
        .keys_since(w.now, &wanted)
        .unwrap();
    assert_eq!(page.1, None, "one page");
    let keys = page.0.into_iter();
    let mut keys: Vec<String> = keys
        .map(|kept| String::from_utf8(kept.key.to_vec()).unwrap())
        .collect();
    keys.sort_unstable();
    keys
}

/// Keys of partition 0.
fn keys() -> Vec<String> {
    let t = table(1, |_| vec![1]);
    let all = (0..).map(|n| format!("k{n}"));
    let of = |k: &String| t.keyspaces[0].partition_of(MapId(0), k.as_bytes());
    let own = all.filter(|key| of(key) == Some(PartitionId(0)));
    let mut keys: Vec<String> = own.take(6).collect();
    keys.sort_unstable();
    keys
}

/// The second recovery replaced the mark of the first one: what was acknowledged between them was
/// in no export.
#[test]
fn a_half_that_is_recovered_twice_has_a_mark_of_each_recovery() {
    let mut w = World::new(81, 2, |_| vec![1, 2]);
    let keys = keys();
    let write = |w: &mut World, keys: &[String]| {
        for key in keys {
            assert_eq!(w.set(1, key, "x"), Outcome::Ok);
        }
    };
    write(&mut w, &keys[..2]);
    recover(&mut w);
    let first = w.now;
    write(&mut w, &keys[2..5]);
    w.settle(Duration::from_secs(2));
    recover(&mut w);
    write(&mut w, &keys[5..]);
    w.settle(Duration::from_secs(2));

    // The copy knows it, too: the primary may be the one that dies.
    for n in [1, 2] {
        let seen = since(&mut w, n, 0);
        let committed = |mark: &RecoveryMark| mark.committed.unwrap();
        let [one, two] = &seen.marks[..] else {
            panic!("{n}: {seen:?}");
        };
        assert_eq!((one.recovery, two.recovery), (1, 2), "{n}");
        let end = seen.committed.unwrap().seq;
        assert_eq!(end - committed(one).seq, 4, "{n}: {seen:?}");
        assert_eq!(end - committed(two).seq, 1, "{n}: {seen:?}");
        let ago = |mark: &RecoveryMark| mark.age.unwrap();
        assert_eq!(ago(one).1, ago(two).1, "{n}: the last change is one");
        assert!(
            ago(one).0 > ago(two).0 + Duration::from_secs(1),
            "{n}: {seen:?}"
        );
        assert!(ago(one).0 <= w.now.since(first), "{n}: {seen:?}");
        assert_eq!(keys_since(&w, n, 0, one.committed), keys[2..], "{n}");
        assert_eq!(keys_since(&w, n, 0, two.committed), keys[5..], "{n}");
        assert_eq!(keys_since(&w, n, 0, None), keys, "{n}");
    }
}

/// Neither the count nor the times were known of a partition that had moved.
#[test]
fn a_copy_that_is_made_after_a_recovery_notes_times_from_then_on() {
    let mut w = World::new(83, 2, |_| vec![1]);

    let keys = keys();
    assert_eq!(w.set(1, &keys[0], "x"), Outcome::Ok);
    recover(&mut w);
    assert_eq!(w.set(1, &keys[1], "x"), Outcome::Ok);
    w.settle(Duration::from_secs(2));
    w.propose(|t| {
        partition_mut(t, PartitionId(0)).replicas.push(Replica {
            member: id(2),
            state: ReplicaState::Learner,
        });
    });
    w.settle(Duration::from_secs(3));
    let in_sync = |w: &World| {
        w.tables[w.committed].keyspaces[0].partitions[0]
            .in_sync()
            .count()
    };
    assert_eq!(in_sync(&w), 2, "the copy is made");
    let copy = since(&mut w, 2, 0);
    assert_eq!(copy.committed, since(&mut w, 1, 0).committed);
    let marks = |seen: &SinceRecovery| -> Vec<_> {
        let marks = seen.marks.iter();
        marks
            .map(|m| (m.recovery, m.committed.is_some(), m.age))
            .collect()
    };
    assert_eq!(marks(&copy), [(1, false, None)], "it saw no change");
    let before = w.now;
    assert_eq!(w.set(1, &keys[2], "x"), Outcome::Ok);
    w.settle(Duration::from_secs(2));
    let copy = since(&mut w, 2, 0);
    let (first, last) = copy.marks[0].age.unwrap();
    assert!(first == last && first <= w.now.since(before), "{copy:?}");
    assert_eq!(copy.marks[0].committed, None, "{copy:?}");
    let primary = since(&mut w, 1, 0);
    assert!(primary.marks[0].age.unwrap().0 > first, "{primary:?}");
}
