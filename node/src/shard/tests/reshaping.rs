//! What was in partitions that are split or merged goes to those that follow them.

use super::*;
use doyen_placement::Reshape;
use doyen_placement::division::Cut;
use doyen_placement::planner::reshape::{self, Stillness};

/// The table after this, as if all primaries had said that nothing changes any more.
fn reshaped(table: &Table, reshape: Reshape) -> Table {
    let begun = reshape::begin(table, KeyspaceId(0), reshape).unwrap();
    let still = |at: PartitionRef| begun.keyspaces[0].partition(at.partition).map(|p| Stillness { epoch: p.epoch, ahead_ms: 0 });
    reshape::finish(&begun, still).unwrap()
}

#[test]
fn of_two_parts_one_may_begin_empty_and_the_other_has_what_was_there() {
    for empty in [0, 1] {
        let mut w = World::new(50 + empty as u64, 2, |_| vec![1, 2]);
        let keys: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
        for key in &keys {
            assert_eq!(w.set(1, key, "x"), Outcome::Ok);
        }
        let mut lost = PartitionId(0);
        w.propose(|t| {
            *t = reshaped(t, Reshape::Split { partition: PartitionId(0), cut: Cut::Half });
            // Somebody who sees this table alone knows of no table in which both were there.
            let parts: Vec<usize> =
                (0..t.keyspaces[0].partitions.len()).filter(|p| !t.keyspaces[0].partitions[*p].from.is_empty()).collect();
            let part = Arc::make_mut(&mut t.keyspaces[0].partitions[parts[empty]]);
            (part.epoch, part.lineage, lost) = (part.epoch.next(), Lineage(part.lineage.0 + 1), part.id);
        });
        let keyspace = w.tables.last().unwrap().keyspaces[0].clone();
        let mut gone = 0;
        for key in &keys {
            let expected = if keyspace.partition_of(MapId(0), key.as_bytes()) == Some(lost) { Outcome::Nil } else { text("x") };
            gone += usize::from(expected == Outcome::Nil);
            assert_eq!(w.get(2, key), expected, "{key}");
        }
        assert!(gone > 10, "{gone}: the check checks nothing");
        assert_eq!(w.set(2, "more", "y"), Outcome::Ok);
    }
}

#[test]
fn parts_that_are_merged_again_have_all_that_was_written() {
    let mut w = World::new(52, 2, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_millis(100));
    let keys: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
    let write_all = |w: &mut World, value: &str| keys.iter().for_each(|key| assert_eq!(w.set(1, key, value), Outcome::Ok));
    write_all(&mut w, "1");
    let cut = Cut::Key { map: MapId(0), key: b"k15".as_slice().into() };
    w.propose(|t| *t = reshaped(t, Reshape::Split { partition: PartitionId(0), cut }));
    w.settle(Duration::from_millis(100));
    write_all(&mut w, "2");
    w.propose(|t| {
        let parts: Vec<PartitionId> = t.keyspaces[0].partitions.iter().filter(|p| !p.from.is_empty()).map(|p| p.id).collect();
        *t = reshaped(t, Reshape::Merge { partitions: [parts[0], parts[1]] });
    });
    for key in &keys {
        assert_eq!(w.get(2, key), text("2"));
    }
    w.settle(Duration::from_millis(300));
    let [one, other] = [1, 2].map(|n| w.nodes[&n].shard.stats());
    assert_eq!(one.memory_bytes, other.memory_bytes);
}
