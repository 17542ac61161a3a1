//! Hashes on their way through copies, snapshots and failovers.

use super::*;
use crate::command::{Arguments, COMMANDS, Fields, Part, Request};
use crate::op::Kind;
use doyen_placement::level::TRANSACTIONS;

/// What a Redis client asks for with this line.
fn of(line: &str) -> Action {
    let words: Vec<Bytes> = line
        .split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect();
    let args: &dyn Arguments = &words.as_slice();
    let request = COMMANDS.find(args).and_then(|spec| spec.request(args, 0));
    match request {
        Ok(Request::One { action, .. }) => action,
        other => panic!("{line}: {other:?}"),
    }
}

impl World {
    fn hash(&mut self, n: u64, line: &str) -> Outcome {
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        self.ask(n, &key, of(line))
    }

    /// The fields and values of a hash.
    fn all(&mut self, n: u64, key: &str) -> Vec<String> {
        let value = match self.hash(n, &format!("HGETALL {key}")) {
            Outcome::Bulk(value) => Some(value),
            Outcome::Nil => None,
            other => panic!("{other:?}"),
        };
        let fields = Fields::new(value, Part::Whole);
        let text = |item: &[u8]| String::from_utf8(item.to_vec()).expect("text");
        fields.iter().map(text).collect()
    }
}

#[test]
fn a_hash_is_the_same_wherever_it_is_asked_and_after_a_failover() {
    let mut w = World::new(1, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.hash(3, "HSET a one 1 two 2"), Outcome::Int(2));
    assert_eq!(w.hash(1, "HINCRBY a one 41"), Outcome::Int(42));
    assert_eq!(w.hash(2, "HDEL a two none"), Outcome::Int(1));
    for n in 1..=3 {
        assert_eq!(w.all(n, "a"), ["one", "42"]);
    }
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.all(3, "a"), ["one", "42"]);
    assert_eq!(w.hash(3, "HSETNX a one 1"), Outcome::Int(0));
    assert_eq!(w.hash(3, "HDEL a one"), Outcome::Int(1));
    assert_eq!(w.ask(3, "a", Action::Exists), Outcome::Int(0));
}

#[test]
fn a_hash_and_a_string_are_not_taken_for_each_other() {
    let mut w = World::new(2, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let wrong = Outcome::Failed(Failure::WrongType);
    w.set(1, "s", "text");
    assert_eq!(w.hash(2, "HGET s f"), wrong);
    assert_eq!(w.hash(2, "HSET s f 1"), wrong);
    assert_eq!(w.get(2, "s"), text("text"));
    w.hash(2, "HSET h f 1");
    // Node 1 has the key and answers reads at once, if it can.
    for n in 1..=2 {
        assert_eq!(w.get(n, "h"), wrong);
        assert_eq!(w.ask(n, "h", Action::IncrBy(1)), wrong);
        assert_eq!(w.ask(n, "h", Action::GetDel), wrong);
        assert_eq!(w.ask(n, "h", Action::Strlen), wrong);
    }
    assert_eq!(w.all(2, "h"), ["f", "1"]);
    // A plain write replaces it.
    assert_eq!(w.set(2, "h", "now text"), Outcome::Ok);
    assert_eq!(w.get(2, "h"), text("now text"));
}

#[test]
fn a_scan_finds_keys_of_a_kind() {
    let mut w = World::new(3, 1, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.set(1, "s", "1");
    w.hash(1, "HSET h f 1");
    let mut of_kind = |kind| {
        let mut found = Vec::new();
        for partition in 0..4 {
            let action = op::PartitionAction::Scan {
                cursor: 0,
                count: 100,
                kind,
            };
            let operation = op::PartitionOperation {
                keyspace: KeyspaceId(0),
                partition: PartitionId(partition),
                map: MapId(0),
                action,
            };
            let token = w.submit_work(1, op::Work::Partition(operation));
            match w.outcome(token) {
                Outcome::Keys { next: 0, keys } => found.extend(keys),
                other => panic!("{other:?}"),
            }
        }
        found.sort();
        found
    };
    assert_eq!(of_kind(None), ["h", "s"]);
    assert_eq!(of_kind(Some(Kind::String)), ["s"]);
    assert_eq!(of_kind(Some(Kind::Hash)), ["h"]);
}

#[test]
fn a_cluster_of_a_lower_level_has_no_hashes() {
    let mut w = World::new(4, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let mut lower = (*w.tables[w.committed]).clone();
    lower.level = TRANSACTIONS - 1;
    w.tables[w.committed] = Arc::new(lower);
    w.members().into_iter().for_each(|n| w.show(n, false));
    for line in ["HSET h f 1", "HGETALL h", "HLEN h"] {
        let refused = Outcome::Failed(Failure::OldMembers);
        assert_eq!(w.hash(2, line), refused, "{line}");
    }
}

#[test]
fn a_new_copy_gets_hashes_as_hashes() {
    let mut w = World::new(5, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for n in 0..200 {
        w.set(1, &format!("s{n}"), "text");
        w.hash(1, &format!("HSET h{n} field {n} other x"));
    }
    w.propose(|t| {
        for p in 0..4 {
            partition_mut(t, PartitionId(p)).replicas.push(Replica {
                member: id(2),
                state: ReplicaState::Learner,
            });
        }
    });
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().checksum_mismatches, 0);
    w.check_copies();
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    for n in 0..200 {
        assert_eq!(w.get(3, &format!("s{n}")), text("text"));
        let expected = ["field", &n.to_string(), "other", "x"];
        assert_eq!(w.all(3, &format!("h{n}")), expected);
    }
}

#[test]
fn a_hash_that_would_be_too_large_stays_as_it_was() {
    let mut w = World::new(6, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.hash(2, "HSET h f 1");
    let large = "x".repeat(limits().value_bytes_max - 4);
    let outcome = w.hash(2, &format!("HSET h g {large}"));
    assert_eq!(outcome, Outcome::Failed(Failure::TooLarge));
    assert_eq!(w.all(2, "h"), ["f", "1"]);
}
