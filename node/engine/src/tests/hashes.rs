//! Hashes on their way through copies, snapshots and failovers.

use super::*;
use crate::command::{Arguments, COMMANDS, Fields, Parsed, ParsedRequest, Part};
use crate::value::kind::Kind;

fn many(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    Outcome::Many(outcomes.into_iter().collect())
}

fn expire() -> Action {
    Action::Expire {
        expiry: Expiry::In(3_000_000),
        condition: crate::command::operation::ExpireCondition::Always,
    }
}

/// The words of a line, and what a Redis client asks for with them.
pub(super) fn parsed(line: &str) -> (Vec<Bytes>, Parsed) {
    let words: Vec<Bytes> = line
        .split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect();
    let args: &dyn Arguments = &words.as_slice();
    let request = COMMANDS.find(args).and_then(|spec| spec.request(args, 0));
    (words, request)
}

/// The same, if it is one operation.
pub(super) fn of(line: &str) -> Action {
    match parsed(line).1 {
        Ok(ParsedRequest::One { action, .. }) => action,
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
            let action = crate::command::operation::PartitionAction::Scan {
                cursor: 0,
                count: 100,
                kind,
            };
            let operation = crate::command::operation::PartitionOperation {
                keyspace: KeyspaceId(0),
                partition: PartitionId(partition),
                map: MapId(0),
                action,
            };
            let token = w.submit_work(1, crate::command::operation::Work::Partition(operation));
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
fn a_new_copy_gets_hashes_as_hashes() {
    let mut w = World::new(5, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for n in 0..200 {
        w.set(1, &format!("s{n}"), "text");
        w.hash(1, &format!("HSET h{n} field {n} other x"));
    }
    begin_copies(&mut w);
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
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
    let large = "x".repeat(Limits::of_test().value_bytes_max - 4);
    let outcome = w.hash(2, &format!("HSET h g {large}"));
    assert_eq!(outcome, Outcome::Failed(Failure::TooLarge));
    assert_eq!(w.all(2, "h"), ["f", "1"]);
}

/// Node 2 begins to copy all partitions.
pub(super) fn begin_copies(w: &mut World) {
    w.propose(|t| {
        for p in 0..4 {
            partition_mut(t, PartitionId(p)).replicas.push(Replica {
                member: id(2),
                state: ReplicaState::Learner,
            });
        }
    });
}

/// The entry of a key at a member, and how many rows its table has.
pub(super) fn form(w: &World, n: u64, key: &str) -> Option<(bool, usize)> {
    let held = w.nodes[&n].shard.slots.iter();
    let mut held = held.filter_map(|slot| slot.held.as_deref());
    held.find_map(|held| {
        let order = held.store.order(key.as_bytes());
        let found = held.store.found(MapId(0), order, key.as_bytes());
        let rows = found.table.map_or(0, store::RowTable::len);
        Some((found.entry?.is_table(), rows))
    })
}

/// Sets this number of `fields` of a hash, a few at a time.
fn fill(w: &mut World, n: u64, key: &str, fields: usize) {
    let names: Vec<String> = (0..fields)
        .map(|i| format!("field-{i} value-{i}"))
        .collect();
    for some in names.chunks(50) {
        let outcome = w.hash(n, &format!("HSET {key} {}", some.join(" ")));
        assert_eq!(outcome, Outcome::Int(some.len() as i64));
    }
}

fn sorted(w: &mut World, n: u64, key: &str) -> Vec<(String, String)> {
    let all = w.all(n, key);
    let pairs = all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    pairs
        .collect::<std::collections::BTreeMap<_, _>>()
        .into_iter()
        .collect()
}

#[test]
fn a_large_hash_is_a_table_at_every_copy_and_answers_as_a_small_one() {
    let mut w = World::new(7, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w.hash(3, "HSET h field-0 value-0");
    assert_eq!(form(&w, 1, "h"), Some((false, 0)));
    assert_eq!(w.hash(3, "HDEL h field-0"), Outcome::Int(1));
    fill(&mut w, 3, "h", 500);
    for n in 1..=2 {
        assert_eq!(form(&w, n, "h"), Some((true, 500)));
    }
    assert_eq!(w.hash(2, "HLEN h"), Outcome::Int(500));
    assert_eq!(w.hash(2, "HGET h field-77"), text("value-77"));
    assert_eq!(w.hash(2, "HGET h none"), Outcome::Nil);
    assert_eq!(
        w.hash(3, "HSET h field-77 other none new none newer"),
        Outcome::Int(1)
    );
    assert_eq!(
        w.hash(1, "HMGET h field-77 none"),
        many([text("other"), text("newer")])
    );
    assert_eq!(w.hash(1, "HSETNX h none 1"), Outcome::Int(0));
    assert_eq!(w.hash(1, "HINCRBY h n 41"), Outcome::Int(41));
    assert_eq!(w.hash(3, "HINCRBYFLOAT h n 0.5"), text("41.5"));
    assert_eq!(w.hash(3, "HDEL h none n none n"), Outcome::Int(2));
    // What Redis would say.
    let encoding = |outcome: Outcome| match outcome {
        Outcome::Int(number) => Kind::of_encoding(number).map(|(_, encoding)| encoding.name),
        _ => None,
    };
    assert_eq!(encoding(w.ask(1, "h", Action::Encoding)), Some("listpack"));
    w.hash(1, &format!("HSET h wide {}", "x".repeat(65)));
    assert_eq!(encoding(w.ask(1, "h", Action::Encoding)), Some("hashtable"));
    assert_eq!(w.hash(3, "HDEL h wide"), Outcome::Int(1));
    assert_eq!(
        w.hash(2, "HGETDEL h FIELDS 2 field-3 field-3"),
        many([text("value-3"), Outcome::Nil])
    );
    assert_eq!(w.all(3, "h").len(), 2 * 499);
    assert_eq!(w.set(3, "h", "text"), Outcome::Ok);
    w.settle(Duration::from_secs(1));
    assert_eq!(form(&w, 2, "h"), Some((false, 0)));
    w.settle(Duration::from_millis(50));
    w.check_copies();
}

#[test]
fn a_hash_without_its_last_field_is_gone() {
    let mut w = World::new(8, 2, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "h", 200);
    let fields: Vec<String> = (0..200).map(|i| format!("field-{i}")).collect();
    assert_eq!(
        w.hash(1, &format!("HDEL h {}", fields[..199].join(" "))),
        Outcome::Int(199)
    );
    assert_eq!(form(&w, 2, "h"), Some((false, 0)));
    assert_eq!(w.hash(1, "HDEL h field-199"), Outcome::Int(1));
    assert_eq!(form(&w, 2, "h"), None);
    fill(&mut w, 1, "h", 200);
    assert_eq!(form(&w, 2, "h"), Some((true, 200)));
    let all = format!("HDEL h {}", fields.join(" "));
    assert_eq!(w.hash(1, &all), Outcome::Int(200));
    assert_eq!(form(&w, 2, "h"), None);
    assert_eq!(w.ask(2, "h", Action::Exists), Outcome::Int(0));
}

#[test]
fn a_change_of_a_field_costs_its_own_bytes() {
    let mut w = World::new(9, 2, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "h", 5_000);
    // A hash that is one value.
    fill(&mut w, 1, "s", 50);
    assert_eq!(form(&w, 2, "s"), Some((false, 0)));
    let logged = |w: &World, key: &str| {
        let held = w.nodes[&2].shard.slots.iter();
        let mut held = held.filter_map(|slot| slot.held.as_deref());
        let holds = |held: &&crate::role::partition::Held| {
            let order = held.store.order(key.as_bytes());
            held.store.entry(MapId(0), order, key.as_bytes()).is_some()
        };
        let held = held.find(holds).expect("the copy");
        let last = held.log.entry(held.log.last()).expect("it was written");
        last.effect.bytes()
    };
    for line in [
        "HSET h field-9 1",
        "HDEL h field-10",
        "HINCRBY h counter 1",
        "HSET s field-9 1",
        "HINCRBY s counter 1",
    ] {
        w.hash(1, line);
        w.settle(Duration::from_millis(50));
        let bytes = logged(&w, &line.split(' ').nth(1).unwrap()[..1]);
        assert!(bytes < 20, "{line} logged {bytes} bytes");
    }
    w.hash(1, "HSET s field-9 2 new-1 3 field-10 4");
    w.settle(Duration::from_millis(300));
    w.check_copies();
    let all = sorted(&mut w, 1, "s");
    assert!(all.len() == 52 && all.contains(&("new-1".into(), "3".into())));
}

#[test]
fn a_new_copy_gets_large_hashes_while_they_change() {
    let mut w = World::new(10, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for n in 0..8 {
        fill(&mut w, 1, &format!("h{n}"), 300);
        fill(&mut w, 1, &format!("s{n}"), 40);
    }
    w.ask(1, "h3", expire());
    begin_copies(&mut w);
    for n in 0..300 {
        let key = format!("h{}", n % 8);
        w.hash(1, &format!("HSET {key} field-{n} changed new-{n} {n}"));
        w.hash(1, &format!("HDEL {key} field-{}", n + 1));
        w.hash(1, &format!("HSET s{} field-{} {n}", n % 8, n % 45));
        if n % 50 == 7 {
            w.ask(1, &key, Action::Delete);
            fill(&mut w, 1, &key, 60);
        }
        if n % 50 == 9 {
            w.ask(1, &key, expire());
        }
    }
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.settle(Duration::from_millis(50));
    w.check_copies();
    let before: Vec<_> = (0..8)
        .map(|n| sorted(&mut w, 1, &format!("h{n}")))
        .collect();
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    let after: Vec<_> = (0..8)
        .map(|n| sorted(&mut w, 3, &format!("h{n}")))
        .collect();
    assert_eq!(before, after);
}

#[test]
fn a_transaction_changes_large_hashes_whole_or_not_at_all() {
    let mut w = World::new(11, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 3, "h", 300);
    let step = |line: &str| ("h", of(line));
    let outcome = w.transact(
        3,
        &[],
        [
            step("HSET h field-1 one"),
            ("h", expire()),
            step("HSET h field-1 two field-2 two"),
            step("HDEL h field-3"),
            step("HLEN h"),
            ("h", Action::Persist),
            step("HGET h field-1"),
        ],
    );
    let expected = [0, 1, 0, 1, 299, 1].map(Outcome::Int);
    assert_eq!(outcome, many(expected.into_iter().chain([text("two")])));
    // The hash is deleted, and made again, within one operation.
    let wide = "x".repeat(3_000);
    let outcome = w.transact(
        2,
        &[],
        [
            step("HSET h field-1 three"),
            ("h", Action::Delete),
            step("HLEN h"),
            step("HSET h a 1"),
            step(&format!("HSET h b {wide}")),
            step("HSET h a 2 c 3"),
            ("h", expire()),
            step("HDEL h c"),
            step("HLEN h"),
        ],
    );
    let expected = [0, 1, 0, 1, 1, 1, 1, 1, 2].map(Outcome::Int);
    assert_eq!(outcome, many(expected));
    assert_eq!(form(&w, 2, "h"), Some((true, 2)));
    w.settle(Duration::from_millis(50));
    w.check_copies();
    // Too much for one operation: nothing of it stays.
    let version = w.version(1, "h");
    let large = "x".repeat(Limits::of_test().value_bytes_max / 2);
    let outcome = w.transact(
        1,
        &[],
        [
            step("HDEL h a"),
            step(&format!("HSET h d {large}")),
            step(&format!("HSET h e {large}")),
            step(&format!("HSET h f {large}")),
        ],
    );
    assert_eq!(outcome, Outcome::Failed(Failure::TooLarge));
    assert_eq!(w.version(3, "h"), version);
    assert_eq!(sorted(&mut w, 1, "h")[0], ("a".to_owned(), "2".to_owned()));
    w.settle(Duration::from_millis(50));
    w.check_copies();
}

/// Regression: the lists of such steps, within the list of the transaction, were refused by every
/// other member, copies among them.
#[test]
fn steps_of_a_transaction_may_answer_lists() {
    let mut w = World::new(19, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w.hash(3, "HSET h a 1 b 2");
    let steps = |lines: [&str; 3]| lines.map(|line| ("h", of(line)));
    let outcome = w.transact(
        3,
        &[],
        steps([
            "HMGET h a none",
            "HEXPIRE h 100 FIELDS 1 a",
            "HGETDEL h FIELDS 1 b",
        ]),
    );
    let values = many([text("1"), Outcome::Nil]);
    assert_eq!(outcome, many([values, ints(&[1]), many([text("2")])]));
    w.settle(Duration::from_secs(1));
    w.check_copies();
    assert_eq!(w.all(2, "h"), ["a", "1"]);
}

#[test]
fn a_watched_hash_has_another_version_after_each_change_of_a_field() {
    let mut w = World::new(12, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 3, "h", 300);
    let mut versions = vec![w.version(3, "h")];
    for line in [
        "HSET h field-1 1",
        "HDEL h field-1",
        "HSET h new 1",
        "HINCRBY h new 1",
    ] {
        w.hash(2, line);
        versions.push(w.version(1, "h"));
    }
    let distinct: std::collections::BTreeSet<_> = versions.iter().collect();
    assert_eq!(distinct.len(), versions.len());
    let watched = [("h", versions[3])];
    assert_eq!(
        w.transact(3, &watched, [("h", Action::Delete)]),
        Outcome::Nil
    );
    let watched = [("h", versions[4])];
    let done = many([Outcome::Int(1)]);
    assert_eq!(w.transact(3, &watched, [("h", Action::Delete)]), done);
}

#[test]
fn a_scan_of_a_large_hash_comes_in_pages_and_misses_nothing_that_stays() {
    let mut w = World::new(13, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "h", 1_000);
    let (mut cursor, mut found, mut pages) = (0, std::collections::BTreeSet::new(), 0);
    loop {
        let Outcome::Keys { next, keys } = w.hash(2, &format!("HSCAN h {cursor} COUNT 50")) else {
            panic!("no page");
        };
        assert!(keys.len() <= 2 * 50);
        found.extend(keys.chunks(2).map(|pair| pair[0].clone()));
        w.hash(1, &format!("HSET h more-{pages} x"));
        w.hash(1, &format!("HDEL h more-{}", pages / 2));
        (cursor, pages) = (next, pages + 1);
        if cursor == 0 {
            break;
        }
    }
    assert!(pages >= 20);
    assert!((0..1_000).all(|n| found.contains(format!("field-{n}").as_bytes())));
    // Random fields exist, and are drawn once each.
    for wanted in [10, 600, 5_000] {
        let Outcome::Many(drawn) = w.hash(2, &format!("HRANDFIELD h {wanted}")) else {
            panic!("no fields");
        };
        let names: std::collections::BTreeSet<_> = drawn.iter().map(|d| format!("{d:?}")).collect();
        assert!(names.len() == drawn.len() && drawn.len() >= wanted.min(1_000));
    }
}

fn ints(numbers: &[i64]) -> Outcome {
    many(numbers.iter().copied().map(Outcome::Int))
}

#[test]
fn fields_expire_on_every_copy_and_the_key_with_the_last() {
    let mut w = World::new(14, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w.hash(3, "HSET h a 1 b 2 c 3");
    assert_eq!(
        w.hash(3, "HPEXPIRE h 5000 FIELDS 3 a b none"),
        ints(&[1, 1, -2])
    );
    assert_eq!(w.hash(2, "HTTL h FIELDS 3 a c none"), ints(&[5, -1, -2]));
    assert_eq!(w.hash(1, "HLEN h"), Outcome::Int(3));
    w.settle(Duration::from_secs(6));
    // The deletions are logged, so copies follow.
    for n in 1..=2 {
        assert_eq!(form(&w, n, "h"), Some((false, 0)));
    }
    assert_eq!(
        w.hash(3, "HMGET h a b c"),
        many([Outcome::Nil, Outcome::Nil, text("3")])
    );
    w.hash(3, "HEXPIRE h 1 FIELDS 1 c");
    w.settle(Duration::from_secs(3));
    assert_eq!(form(&w, 2, "h"), None);
    assert_eq!(w.ask(3, "h", Action::Exists), Outcome::Int(0));
    w.check_copies();
}

#[test]
fn a_deadline_of_a_field_holds_after_a_failover_and_on_a_new_copy() {
    let mut w = World::new(15, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w.hash(1, "HSET h a 1 b 2");
    w.hash(1, "HPEXPIRE h 60000 FIELDS 1 a");
    begin_copies(&mut w);
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    let Outcome::Many(left) = w.hash(3, "HPTTL h FIELDS 1 a") else {
        panic!("no times");
    };
    assert!(
        matches!(left[..], [Outcome::Int(50_000..=60_000)]),
        "{left:?}"
    );
    w.settle(Duration::from_secs(61));
    assert_eq!(w.all(3, "h"), ["b", "2"]);
}

#[test]
fn deadlines_of_fields_are_set_under_conditions_as_in_redis() {
    let mut w = World::new(16, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    assert_eq!(w.hash(2, "HEXPIRE none 10 FIELDS 1 a"), ints(&[-2]));
    w.hash(2, "HSET h a 1 b 2 c 3 d 4");
    for (line, expected) in [
        ("HEXPIRE h 100 XX FIELDS 1 a", 0),
        ("HEXPIRE h 100 GT FIELDS 1 a", 0),
        ("HEXPIRE h 100 LT FIELDS 1 a", 1),
        ("HEXPIRE h 200 NX FIELDS 1 a", 0),
        ("HEXPIRE h 50 GT FIELDS 1 a", 0),
        ("HEXPIRE h 200 GT FIELDS 1 a", 1),
        ("HEXPIRE h 300 LT FIELDS 1 a", 0),
        ("HEXPIRE h 50 LT FIELDS 1 a", 1),
        ("HEXPIRE h 300 XX FIELDS 1 a", 1),
        ("HTTL h FIELDS 1 a", 300),
        // What is set again keeps no deadline; what is counted up does.
        ("HSET h a 5", 0),
        ("HTTL h FIELDS 1 a", -1),
        ("HEXPIRE h 300 FIELDS 1 a", 1),
        ("HINCRBY h a 1", 6),
        ("HTTL h FIELDS 1 a", 300),
        ("HPERSIST h FIELDS 1 a", 1),
        ("HPERSIST h FIELDS 1 a", -1),
        ("HPERSIST h FIELDS 1 none", -2),
        // A time that is past deletes.
        ("HEXPIRE h 0 FIELDS 1 b", 2),
        ("HEXISTS h b", 0),
        ("HPEXPIREAT h 1 NX FIELDS 1 c", 2),
        ("HSETEX h FNX EX 10 FIELDS 2 a 1 x 1", 0),
        ("HSETEX h FXX EX 10 FIELDS 2 a 1 x 1", 0),
        ("HSETEX h FNX EX 10 FIELDS 2 x 1 y 1", 1),
        ("HTTL h FIELDS 1 x", 10),
        ("HSETEX h FXX KEEPTTL FIELDS 1 x 2", 1),
        ("HTTL h FIELDS 1 x", 10),
        ("HSETEX h FIELDS 1 x 3", 1),
        ("HTTL h FIELDS 1 x", -1),
        ("HSETEX h PXAT 1 FIELDS 1 x 3", 1),
        ("HLEN h", 3),
    ] {
        let outcome = match w.hash(2, line) {
            Outcome::Many(one) => one[0].clone(),
            one => one,
        };
        assert_eq!(outcome, Outcome::Int(expected), "{line}");
    }
    assert_eq!(
        w.hash(2, "HGETEX h EX 20 FIELDS 2 a none"),
        many([text("6"), Outcome::Nil])
    );
    assert_eq!(w.hash(2, "HTTL h FIELDS 2 a d"), ints(&[20, -1]));
    assert_eq!(w.hash(2, "HGETEX h FIELDS 1 a"), many([text("6")]));
    assert_eq!(w.hash(2, "HTTL h FIELDS 1 a"), ints(&[20]));
    assert_eq!(w.hash(2, "HGETEX h PERSIST FIELDS 1 a"), many([text("6")]));
    assert_eq!(w.hash(2, "HTTL h FIELDS 1 a"), ints(&[-1]));
    assert_eq!(w.hash(2, "HGETEX h PX 0 FIELDS 1 a"), many([text("6")]));
    assert_eq!(w.hash(2, "HEXISTS h a"), Outcome::Int(0));
    // A small hash without deadlines stays one value.
    w.hash(2, "HSET small a 1");
    w.hash(2, "HPERSIST small FIELDS 1 a");
    w.hash(2, "HGETEX small FIELDS 1 a");
    assert_eq!(form(&w, 1, "small"), Some((false, 0)));
}

#[test]
fn a_transaction_sees_no_overdue_field() {
    let mut w = World::new(17, 2, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "h", 100);
    w.hash(1, "HPEXPIRE h 10 FIELDS 2 field-1 field-2");
    w.settle(Duration::from_millis(11));
    let steps = [
        ("h", of("HLEN h")),
        ("h", of("HGET h field-1")),
        ("h", of("HSET h field-2 x")),
    ];
    let outcome = w.transact(1, &[], steps);
    assert_eq!(
        outcome,
        many([Outcome::Int(98), Outcome::Nil, Outcome::Int(1)])
    );
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn a_large_hash_is_renamed_and_copied_with_its_deadlines() {
    let mut w = World::new(18, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let twin = twin_of("h");
    fill(&mut w, 3, "h", 300);
    fill(&mut w, 3, &twin, 200);
    w.hash(3, "HEXPIRE h 100 FIELDS 1 field-1");
    w.ask(3, "h", expire());
    let before = sorted(&mut w, 1, "h");
    // The other key has a table, too.
    assert_eq!(w.hash(3, &format!("RENAME h {twin}")), Outcome::Ok);
    assert_eq!(sorted(&mut w, 1, &twin), before);
    assert_eq!(form(&w, 2, "h"), None);
    assert_eq!(
        w.hash(3, &format!("HTTL {twin} FIELDS 1 field-1")),
        ints(&[100])
    );
    assert!(matches!(w.ask(3, &twin, Action::PTtl), Outcome::Int(1..)));
    assert_eq!(w.hash(2, &format!("COPY {twin} h")), Outcome::Int(1));
    w.hash(1, "HSET h field-2 other");
    assert_eq!(w.hash(1, &format!("HGET {twin} field-2")), text("value-2"));
    assert_eq!(w.hash(1, "HLEN h"), Outcome::Int(300));
    // In one operation: both become tables there, and one replaces the other.
    let wide = "x".repeat(3_000);
    let steps = [
        ("h", Action::Delete),
        (&*twin, Action::Delete),
        ("h", of(&format!("HSET h a {wide}"))),
        (&*twin, of(&format!("HSET {twin} b {wide}"))),
        ("h", of(&format!("RENAME h {twin}"))),
        (&*twin, of(&format!("HLEN {twin}"))),
    ];
    let Outcome::Many(outcomes) = w.transact(3, &[], steps) else {
        panic!("it was refused");
    };
    assert_eq!(outcomes[4..], [Outcome::Ok, Outcome::Int(1)]);
    assert_eq!(w.hash(2, &format!("HEXISTS {twin} a")), Outcome::Int(1));
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

impl World {
    /// Reads the first page of a hash, and returns its fields and the number of the walk.
    fn begin_cursor(&mut self, n: u64, key: &str) -> (usize, u64) {
        let action = of(&format!("HGETALL {key}")).in_pages();
        match self.ask(n, key, action) {
            Outcome::Keys { next, keys } => (Part::Fields.items(&keys[0]).count(), next),
            other => panic!("{other:?}"),
        }
    }

    fn next_page(&mut self, n: u64, key: &str, walk: u64, page: u32) -> Outcome {
        let token = self.submit_work(
            n,
            crate::command::operation::PartitionOperation {
                keyspace: KeyspaceId(0),
                partition: self.partition_of(key),
                map: MapId(0),
                action: crate::command::operation::PartitionAction::Fields { walk, page },
            },
        );
        self.outcome(token)
    }

    fn partition_of(&self, key: &str) -> PartitionId {
        let keyspace = &self.tables[self.committed].keyspaces[0];
        let found = keyspace.partition_of(MapId(0), key.as_bytes());
        found.expect("every key has a partition")
    }
}

#[test]
fn a_large_hash_is_read_in_pages_while_it_changes() {
    let mut w = World::new(21, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "h", 9_000);
    // Node 2 forwards.
    let (mut fields, mut walk) = w.begin_cursor(2, "h");
    assert_eq!(fields, 2_000);
    let mut page = 1;
    while walk != 0 {
        w.hash(1, &format!("HSET h field-{page} changed new-{page} 1"));
        match w.next_page(2, "h", walk, page) {
            Outcome::Keys { next, keys } => {
                assert!(
                    Part::Values
                        .items(&keys[0])
                        .all(|v| v.starts_with(b"value"))
                );
                fields += Part::Fields.items(&keys[0]).count();
                walk = next;
            }
            other => panic!("{other:?}"),
        }
        page += 1;
    }
    assert_eq!(fields, 9_000);
    assert_eq!(
        w.hash(2, "HLEN h"),
        Outcome::Int(9_000 + i64::from(page) - 1)
    );
}

#[test]
fn a_walk_that_nothing_goes_on_with_ends_also_if_its_hash_is_gone() {
    let mut w = World::new(22, 1, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    for deletes in [false, true] {
        fill(&mut w, 1, "h", 9_000);
        let (_, walk) = w.begin_cursor(1, "h");
        if deletes {
            w.hash(1, "DEL h");
            // It goes on all the same.
            let page = w.next_page(1, "h", walk, 1);
            assert!(matches!(page, Outcome::Keys { next, .. } if next == walk));
        }
        w.settle(Duration::from_secs(2));
        assert_eq!(w.nodes[&1].shard.cx.cursors.len(), 1);
        w.settle(Duration::from_secs(2));
        assert!(w.nodes[&1].shard.cx.cursors.is_empty());
        assert_eq!(w.next_page(1, "h", walk, 1), Outcome::Nil);
        w.hash(1, "DEL h");
        w.settle(Duration::from_secs(2));
        assert_eq!(
            w.nodes[&1].shard.cx.host.memory.garbage.bytes(),
            0,
            "it is freed"
        );
    }
}

#[test]
fn a_walk_is_lost_with_its_primary() {
    let mut w = World::new(23, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 3, "h", 9_000);
    let (_, walk) = w.begin_cursor(3, "h");
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.next_page(3, "h", walk, 1), Outcome::Nil);
    let (fields, again) = w.begin_cursor(3, "h");
    assert!(fields == 2_000 && again != walk);
}

/// Regression: the deletion of the field was logged after that of its key. A copy that a snapshot
/// was on its way to took it for a change of a table that was still to come.
#[test]
fn a_field_that_is_overdue_goes_with_its_key_and_not_once_more() {
    let mut w = World::new(41, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    fill(&mut w, 1, "h", 300);
    w.hash(1, "HPEXPIRE h 40 FIELDS 2 field-1 field-2");
    w.hash(1, "PEXPIRE h 40");
    let log = |w: &World| {
        let slots = w.nodes[&1].shard.slots.iter();
        let held = slots.filter_map(|slot| slot.held.as_deref());
        held.map(|held| held.log.last()).sum::<u64>()
    };
    let before = log(&w);
    w.settle(Duration::from_millis(300));
    assert_eq!(form(&w, 1, "h"), None);
    assert_eq!(w.nodes[&1].shard.stats().expired, 1);
    assert_eq!(log(&w), before + 1);
}
