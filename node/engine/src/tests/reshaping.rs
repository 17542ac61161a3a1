//! The contents of split or merged partitions go to their successors.

use super::*;
use doyen_placement::Reshape;
use doyen_placement::division::Cut;
use doyen_placement::planner::reshape::{self, WritesStopped};

/// The next table, as if all primaries had reported that their partitions are still.
pub(super) fn reshaped(table: &Table, reshape: Reshape) -> Table {
    let begun = reshape::begin(table, KeyspaceId(0), reshape).unwrap();
    let still = |at: PartitionRef| {
        begun.keyspaces[0]
            .partition(at.partition)
            .map(|p| WritesStopped {
                epoch: p.epoch,
                ahead_ms: 0,
            })
    };
    reshape::finish(&begun, still).unwrap()
}

#[test]
fn one_of_two_parts_may_begin_empty_while_the_other_has_the_former_contents() {
    for empty in [0, 1] {
        let mut w = World::new(50 + empty as u64, 2, |_| vec![1, 2]);
        let keys: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
        for key in &keys {
            assert_eq!(w.set(1, key, "x"), Outcome::Ok);
        }
        let mut lost = PartitionId(0);
        w.propose(|t| {
            *t = reshaped(
                t,
                Reshape::Split {
                    partition: PartitionId(0),
                    cut: Cut::Half,
                },
            );
            // This table alone does not show any table in which both were there.
            let parts: Vec<usize> = (0..t.keyspaces[0].partitions.len())
                .filter(|p| !t.keyspaces[0].partitions[*p].from.is_empty())
                .collect();
            let part = Arc::make_mut(&mut t.keyspaces[0].partitions[parts[empty]]);
            (part.epoch, part.lineage, lost) =
                (part.epoch.next(), Lineage(part.lineage.0 + 1), part.id);
        });
        let keyspace = w.tables.last().unwrap().keyspaces[0].clone();
        let mut gone = 0;
        for key in &keys {
            let expected = if keyspace.partition_of(MapId(0), key.as_bytes()) == Some(lost) {
                Outcome::Nil
            } else {
                text("x")
            };
            gone += usize::from(expected == Outcome::Nil);
            assert_eq!(w.get(2, key), expected, "{key}");
        }
        assert!(gone > 10, "{gone}: the check checks nothing");
        assert_eq!(w.set(2, "more", "y"), Outcome::Ok);
    }
}

#[test]
fn parts_that_are_merged_again_have_every_write() {
    let mut w = World::new(52, 2, |_| vec![1, 2]);
    w.propose(|t| {
        t.keyspaces[0].mode = Mode::Range;
        t.keyspaces[0].division = Division::split_at(["k2", "k4", "k6"]).unwrap();
    });
    w.settle(Duration::from_millis(100));
    let keys: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
    let write_all = |w: &mut World, value: &str| {
        keys.iter()
            .for_each(|key| assert_eq!(w.set(1, key, value), Outcome::Ok))
    };
    write_all(&mut w, "1");
    let cut = Cut::Key {
        map: MapId(0),
        key: b"k15".as_slice().into(),
    };
    w.propose(|t| {
        *t = reshaped(
            t,
            Reshape::Split {
                partition: PartitionId(0),
                cut,
            },
        )
    });
    w.settle(Duration::from_millis(100));
    write_all(&mut w, "2");
    w.propose(|t| {
        let parts: Vec<PartitionId> = t.keyspaces[0]
            .partitions
            .iter()
            .filter(|p| !p.from.is_empty())
            .map(|p| p.id)
            .collect();
        *t = reshaped(
            t,
            Reshape::Merge {
                partitions: [parts[0], parts[1]],
            },
        );
    });
    for key in &keys {
        assert_eq!(w.get(2, key), text("2"));
    }
    w.settle(Duration::from_millis(300));
    let [one, other] = [1, 2].map(|n| w.nodes[&n].shard.stats());
    assert_eq!(one.memory_bytes, other.memory_bytes);
}

/// Seed 132247 of the simulation: a copy had accepted the table that counts it, and installed none
/// before the one in which the partition was split. Its parts began empty there, and it led them
/// after a failover.
#[test]
fn a_copy_that_never_installed_the_table_that_counts_it_is_drawn_from() {
    let mut w = World::with_one_holder(60);
    slices::fill(&mut w, 400, &set("x"));
    w.propose(|t| {
        partition_mut(t, PartitionId(0)).replicas.push(Replica {
            member: id(2),
            state: ReplicaState::Learner,
        })
    });
    w.agree(true);
    w.late = Some(2);
    w.settle(Duration::from_secs(1));
    assert_eq!(w.in_sync(), 1);
    w.propose(|t| {
        *t = reshape::begin(
            t,
            KeyspaceId(0),
            Reshape::Split {
                partition: PartitionId(0),
                cut: Cut::Half,
            },
        )
        .unwrap()
    });
    w.settle(Duration::from_millis(300));
    w.propose(|t| {
        let still = |at: PartitionRef| {
            t.keyspaces[0]
                .partition(at.partition)
                .map(|p| WritesStopped {
                    epoch: p.epoch,
                    ahead_ms: 0,
                })
        };
        *t = reshape::finish(t, still).unwrap();
    });
    w.late = None;
    w.settle(Duration::from_secs(1));
    w.check_copies();
    let parts = w.tables.last().unwrap().keyspaces[0]
        .partitions
        .iter()
        .filter(|p| !p.from.is_empty());
    let held: Vec<usize> = parts.map(|p| w.contents(2, p.id.0).len()).collect();
    assert!(
        held.len() == 2 && held.iter().all(|keys| *keys > 20),
        "{held:?}"
    );
}

impl World {
    /// Submits an operation on a whole partition to a member.
    fn submit_whole(
        &mut self,
        n: u64,
        p: PartitionId,
        action: crate::command::operation::PartitionAction,
    ) -> CallToken {
        let token = self.next_token;
        self.next_token += 1;
        let operation = PartitionOperation {
            keyspace: KeyspaceId(0),
            partition: p,
            map: MapId(0),
            action,
        };
        self.nodes.get_mut(&n).unwrap().shard.submit(
            self.now,
            1_700_000_000_000,
            token,
            operation,
            Patience::Whole,
        );
        self.drain(n);
        token
    }

    /// The two parts of partition 0, just after it was split at members 1 and 2, and the keys of
    /// each, which had the value `1`.
    fn split_in_two(&mut self, keys: usize) -> [(PartitionId, Vec<String>); 2] {
        self.nodes
            .values_mut()
            .for_each(|n| n.shard.cx.host.limits.drawn_max = 1);
        for n in 0..keys {
            assert_eq!(self.set(1, &format!("k{n}"), "1"), Outcome::Ok);
        }
        self.propose(|t| {
            *t = reshaped(
                t,
                Reshape::Split {
                    partition: PartitionId(0),
                    cut: Cut::Half,
                },
            )
        });
        self.agree(true);
        let keyspace = self.tables.last().unwrap().keyspaces[0].clone();
        let parts: Vec<PartitionId> = keyspace
            .partitions
            .iter()
            .filter(|p| !p.from.is_empty())
            .map(|p| p.id)
            .collect();
        let of = |part| {
            (0..keys)
                .map(|n| format!("k{n}"))
                .filter(|k| keyspace.partition_of(MapId(0), k.as_bytes()) == Some(part))
                .collect()
        };
        [(parts[0], of(parts[0])), (parts[1], of(parts[1]))]
    }

    fn is_migrating(&self, n: u64, p: PartitionId) -> bool {
        let at = PartitionRef::new(KeyspaceId(0), p);
        !self.nodes[&n]
            .shard
            .slots
            .get(at)
            .unwrap()
            .held
            .as_ref()
            .unwrap()
            .store
            .is_whole()
    }
}

/// Regression: the parts were served only when everything was divided: after seconds, for millions
/// of keys.
#[test]
fn parts_are_served_while_they_are_still_divided() {
    let mut w = World::new(53, 2, |_| vec![1, 2]);
    let [(one, mine), (other, theirs)] = w.split_in_two(1_500);
    assert!(
        mine.len() > 60 && theirs.len() > 60,
        "{} and {}",
        mine.len(),
        theirs.len()
    );
    let counted = w.submit_whole(1, one, crate::command::operation::PartitionAction::Count);
    // From the end, which is migrated last.
    for key in mine.iter().rev().take(5).chain(theirs.iter().rev().take(5)) {
        assert_eq!(w.get(2, key), text("1"));
        assert_eq!(w.set(1, key, "2"), Outcome::Ok);
        assert_eq!(w.get(2, key), text("2"));
    }
    assert_eq!(w.ask(2, &theirs[20], Action::Delete), Outcome::Int(1));
    assert_eq!(w.get(1, &theirs[20]), Outcome::Nil);
    assert!(
        w.is_migrating(1, one) && w.is_migrating(2, one),
        "the check checks nothing"
    );
    assert!(
        !w.outcomes.contains_key(&counted),
        "a count waits, and nothing waits for it"
    );
    // Another member leads, and has not migrated everything either.
    w.propose(|t| [one, other].into_iter().for_each(|p| promote(t, p, 2)));
    w.agree(true);
    assert!(w.is_migrating(2, one), "the check checks nothing");
    assert_eq!(w.set(1, &mine[20], "3"), Outcome::Ok);
    w.settle(Duration::from_secs(5));
    assert!(!w.is_migrating(1, one) && !w.is_migrating(2, one) && !w.is_migrating(2, other));
    w.check_copies();
    let expected = |key: &String| match key {
        key if *key == theirs[20] => Outcome::Nil,
        key if *key == mine[20] => text("3"),
        key if mine
            .iter()
            .rev()
            .take(5)
            .chain(theirs.iter().rev().take(5))
            .any(|k| k == key) =>
        {
            text("2")
        }
        _ => text("1"),
    };
    for key in mine.iter().chain(&theirs) {
        assert_eq!(w.get(1, key), expected(key), "{key}");
    }
    assert_eq!(w.outcomes[&counted], Outcome::Int(mine.len() as i64));
    w.settle(Duration::from_secs(1));
    let [one, other] = [1, 2].map(|n| w.nodes[&n].shard.stats());
    assert_eq!(
        (one.memory_bytes, one.keys),
        (other.memory_bytes, other.keys)
    );
    assert_eq!(one.keys, 1_499);
}

#[test]
fn a_clear_of_a_drawing_partition_takes_all_of_it() {
    let mut w = World::new(54, 2, |_| vec![1, 2]);
    let [(one, mine), (_, theirs)] = w.split_in_two(1_500);
    assert!(
        w.is_migrating(1, one) && w.is_migrating(2, one),
        "the check checks nothing"
    );
    let cleared = w.submit_whole(1, one, crate::command::operation::PartitionAction::Clear);
    assert_eq!(w.set(1, &mine[0], "2"), Outcome::Ok);
    assert_eq!(w.outcomes[&cleared], Outcome::Ok);
    assert!(
        !w.is_migrating(1, one) && !w.is_migrating(2, one),
        "a key that is gone is not migrated"
    );
    for (n, key) in mine.iter().enumerate() {
        assert_eq!(w.get(2, key), if n == 0 { text("2") } else { Outcome::Nil });
    }
    w.settle(Duration::from_secs(5));
    theirs
        .iter()
        .for_each(|key| assert_eq!(w.get(2, key), text("1")));
    w.check_copies();
}

/// Regression: a member that had not migrated everything took the rest in one go: most of a second
/// for a million keys.
#[test]
fn a_drawing_partition_may_be_split_again() {
    let mut w = World::new(55, 2, |_| vec![1, 2]);
    let [(one, mine), (_, theirs)] = w.split_in_two(1_500);
    assert_eq!(w.set(1, &mine[3], "2"), Outcome::Ok);
    assert_eq!(w.ask(1, &mine[4], Action::Delete), Outcome::Int(1));
    assert!(
        w.is_migrating(1, one) && w.is_migrating(2, one),
        "the check checks nothing"
    );
    w.propose(|t| {
        *t = reshaped(
            t,
            Reshape::Split {
                partition: one,
                cut: Cut::Half,
            },
        )
    });
    w.agree(true);
    let from = |p: &&Arc<Partition>| p.from.iter().any(|from| from.partition == one);
    let parts: Vec<PartitionId> = w.tables.last().unwrap().keyspaces[0]
        .partitions
        .iter()
        .filter(from)
        .map(|p| p.id)
        .collect();
    assert!(
        parts.len() == 2
            && parts
                .iter()
                .all(|part| w.is_migrating(1, *part) && w.is_migrating(2, *part)),
        "in slices, as before"
    );
    for (n, key) in mine.iter().enumerate() {
        let expected = match n {
            3 => text("2"),
            4 => Outcome::Nil,
            _ => text("1"),
        };
        assert_eq!(w.get(2, key), expected, "{key}");
    }
    w.settle(Duration::from_secs(5));
    theirs
        .iter()
        .for_each(|key| assert_eq!(w.get(2, key), text("1")));
    w.check_copies();
}

/// Regression: the clear was `Unknown`, though its caller clears the parts anyway.
#[test]
fn a_clear_that_meets_a_split_is_repeated_at_the_parts() {
    let mut w = World::new(56, 2, |_| vec![1, 2]);
    assert_eq!(w.set(2, "k", "v"), Outcome::Ok);
    let asked = w.submit_whole(
        2,
        PartitionId(0),
        crate::command::operation::PartitionAction::Clear,
    );
    let known = w.outcomes.contains_key(&asked);
    w.propose(|t| {
        *t = reshaped(
            t,
            Reshape::Split {
                partition: PartitionId(0),
                cut: Cut::Half,
            },
        )
    });
    w.agree(true);
    assert!(!known, "it was on its way");
    assert_eq!(w.outcomes[&asked], Outcome::Failed(Failure::Stale));
}

/// Regression: the read deleted the key. One copy was divided with it and the other one without it,
/// and the parts were never served, or differed.
#[test]
fn a_read_of_an_overdue_key_does_not_change_a_partition_about_to_be_split() {
    let mut w = World::new(57, 2, |_| vec![1, 2]);
    assert_eq!(
        w.ask(
            1,
            &key_of(0),
            Action::Set {
                value: Bytes::from_static(b"v"),
                condition: Condition::Always,
                expiry: Expiry::In(50),
                get: false
            }
        ),
        Outcome::Ok
    );
    w.settle(Duration::from_millis(20));
    w.propose(|t| {
        *t = reshape::begin(
            t,
            KeyspaceId(0),
            Reshape::Split {
                partition: PartitionId(0),
                cut: Cut::Half,
            },
        )
        .unwrap()
    });
    w.settle(Duration::from_millis(100));
    let last = |w: &World, n: u64| {
        w.nodes[&n]
            .shard
            .inspector()
            .partitions()
            .find(|i| i.at.partition == PartitionId(0))
            .unwrap()
            .last
    };
    let before = last(&w, 1);
    let asked = w.submit(1, &key_of(0), Action::Get);
    w.settle(Duration::from_millis(100));
    assert_eq!((last(&w, 1), last(&w, 2)), (before, before));
    assert!(!w.outcomes.contains_key(&asked), "it waits for the parts");
    w.propose(|t| {
        let still = |at: PartitionRef| {
            t.keyspaces[0]
                .partition(at.partition)
                .map(|p| WritesStopped {
                    epoch: p.epoch,
                    ahead_ms: 0,
                })
        };
        *t = reshape::finish(t, still).unwrap();
    });
    w.settle(Duration::from_secs(1));
    assert_eq!(w.outcomes[&asked], Outcome::Nil);
    w.check_copies();
}
