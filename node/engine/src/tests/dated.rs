//! Hashes whose fields expire, small and large, beside a map with a clock.

use super::hashes::of;
use super::*;
use crate::command::action;
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::store::{FoundKey, Store};
use crate::value::kind::Kind;
use doyen_placement::OrderKey;
use doyen_placement::level::DATED_FIELDS;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEY: &[u8] = b"h";
const MAP: MapId = MapId(0);
/// Some fields are one value, and more of them a table.
const PACKED_BYTES_MAX: usize = 120;

/// A hash at a primary and at a copy, and what it must be: values, and when they expire.
struct DatedHash {
    primary: Store,
    copy: Store,
    model: BTreeMap<String, (String, u64)>,
    seq: u64,
    clock: u64,
    level: u16,
    /// The largest value of small fields.
    small_bytes_max: usize,
    /// Whether the log has whole values, because a copy may lack them.
    teaches: bool,
}

impl DatedHash {
    fn new(level: u16, teaches: bool) -> Self {
        let store = || Store::new(OrderKey(5));
        Self {
            primary: store(),
            copy: store(),
            model: BTreeMap::new(),
            seq: 0,
            clock: 1,
            level,
            small_bytes_max: PACKED_BYTES_MAX,
            teaches,
        }
    }

    fn cx(&self) -> RunContext<'static> {
        RunContext {
            packed_bytes_max: PACKED_BYTES_MAX,
            packed_small_bytes_max: self.small_bytes_max,
            level: self.level,
            ..RunContext::at(self.clock, 1_700_000_000_000 + self.clock)
        }
    }

    fn found(&self) -> FoundKey<'_> {
        self.primary.found(MAP, self.primary.order(KEY), KEY)
    }

    /// What a command answers.
    fn run(&mut self, line: &str) -> Outcome {
        self.purge();
        let (outcome, change) = action::apply(&of(line), self.found(), &self.cx());
        self.log(change);
        outcome
    }

    /// As a primary commits a change. Taken back, it leaves what there was.
    fn log(&mut self, change: KeyChange) {
        let whole = change.whole_of_fields(MAP, KEY, self.teaches);
        self.seq += 1;
        let of = (None, None, self.seq, self.teaches);
        // A copy has entries of its own.
        let at_copy = change.clone().into_effect(MAP, KEY, of.clone());
        let Some((effect, at_copy)) = change.into_effect(MAP, KEY, of).zip(at_copy) else {
            return;
        };
        let own = whole.as_ref().unwrap_or(&effect);
        let before = contents(&self.primary);
        let undo = self.primary.apply(self.seq, own);
        self.primary.undo(own, undo);
        assert_eq!(contents(&self.primary), before);
        self.primary.apply(self.seq, own);
        self.copy.apply(self.seq, &at_copy);
        assert_eq!(contents(&self.primary), contents(&self.copy));
        assert_eq!(self.primary.bytes(), self.copy.bytes());
        let dates = |form: store::FoundKey<'_>| form.entry.is_some_and(|it| it.fields_due() != 0);
        assert!(self.level >= DATED_FIELDS || !dates(self.found()));
    }

    fn purge(&mut self) {
        let (before, clock) = (self.model.len() as u64, self.clock);
        self.model.retain(|_, (_, at)| *at == 0 || *at > clock);
        let overdue = before - self.model.len() as u64;
        assert_eq!(self.primary.is_overdue(clock), overdue > 0);
        assert_eq!(self.primary.overdue(clock, 99).is_empty(), overdue == 0);
        assert_eq!(self.found().is_overdue(clock), overdue > 0);
        let purged = self.primary.purged(self.found(), clock);
        assert_eq!(purged.as_ref().map_or(0, |(_, count)| *count), overdue);
        if let Some((change, _)) = purged {
            self.log(change);
        }
        assert!(!self.primary.is_overdue(clock));
    }

    /// The hash as clients read it is what it must be.
    fn check(&mut self) {
        self.purge();
        assert_eq!(self.found().entry.is_some(), !self.model.is_empty());
        assert_eq!(self.run("HLEN h"), Outcome::Int(self.model.len() as i64));
        let all = match self.run("HGETALL h") {
            Outcome::Bulk(value) => Kind::Hash
                .pairs(&value)
                .map(|(field, value)| (text_of(field), text_of(value)))
                .collect(),
            _ => BTreeMap::new(),
        };
        let values = self.model.iter();
        let values = values.map(|(field, (value, _))| (field.clone(), value.clone()));
        assert_eq!(all, values.collect::<BTreeMap<_, _>>());
        for (field, (value, at)) in self.model.clone() {
            let left = if at == 0 {
                -1
            } else {
                (at - self.clock) as i64
            };
            assert_eq!(self.one(&format!("HPTTL h FIELDS 1 {field}")), left);
            let wall = if at == 0 {
                -1
            } else {
                1_700_000_000_000 + at as i64
            };
            assert_eq!(self.one(&format!("HPEXPIRETIME h FIELDS 1 {field}")), wall);
            assert_eq!(self.run(&format!("HGET h {field}")), text(&value));
        }
    }

    /// The number that a command answers about one field.
    fn one(&mut self, line: &str) -> i64 {
        match self.run(line) {
            Outcome::Many(one) => match one[..] {
                [Outcome::Int(one)] => one,
                ref other => panic!("{line}: {other:?}"),
            },
            other => panic!("{line}: {other:?}"),
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// All entries and rows: keys, values, deadlines and versions.
fn contents(store: &Store) -> Vec<(Vec<u8>, Vec<u8>, u64, u64)> {
    let pieces = store.following(&None);
    pieces
        .map(|piece| {
            let entry = piece.entry;
            let (key, value) = (entry.key().to_vec(), entry.value().to_vec());
            (key, value, entry.deadline(), entry.stamp())
        })
        .collect()
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8, usize),
    SetTwo(u8, u8),
    Count(u8),
    Delete(u8, u8),
    Expire(u8, u8, u64),
    Persist(u8),
    SetWith(u8, u64),
    SetKeeping(u8),
    GetWith(u8, u64),
    Wait(u64),
    /// The key has one, too, which changes nothing of its fields.
    Date,
}

fn steps() -> impl Strategy<Value = Step> {
    let field = || 0_u8..9;
    let time = || 1_u64..60;
    prop_oneof![
        4 => (field(), any::<u8>(), prop_oneof![9 => 0_usize..9, 1 => 70_usize..99])
            .prop_map(|(field, value, more)| Step::Set(field, value, more)),
        2 => (field(), field()).prop_map(|(one, other)| Step::SetTwo(one, other)),
        1 => field().prop_map(Step::Count),
        3 => (field(), field()).prop_map(|(one, other)| Step::Delete(one, other)),
        4 => (field(), field(), time()).prop_map(|(one, other, ms)| Step::Expire(one, other, ms)),
        2 => field().prop_map(Step::Persist),
        2 => (field(), time()).prop_map(|(field, ms)| Step::SetWith(field, ms)),
        2 => field().prop_map(Step::SetKeeping),
        1 => (field(), time()).prop_map(|(field, ms)| Step::GetWith(field, ms)),
        3 => (1_u64..40).prop_map(Step::Wait),
        1 => Just(Step::Date),
    ]
}

impl DatedHash {
    fn step(&mut self, step: &Step) {
        self.purge();
        let name = |field: &u8| format!("f{field}");
        let clock = self.clock;
        match step {
            Step::Set(field, value, more) => {
                let (field, value) = (name(field), format!("{value}{}", "x".repeat(*more)));
                self.run(&format!("HSET h {field} {value}"));
                self.model.insert(field, (value, 0));
            }
            Step::SetTwo(one, other) => {
                let (one, other) = (name(one), name(other));
                self.run(&format!("HSET h {one} 1 {other} 2"));
                self.model.insert(one, ("1".into(), 0));
                self.model.insert(other, ("2".into(), 0));
            }
            Step::Count(field) => {
                let field = name(field);
                let outcome = self.run(&format!("HINCRBY h {field} 5"));
                let held = self.model.entry(field).or_insert(("0".into(), 0));
                match held.0.parse::<i64>() {
                    Ok(old) => {
                        held.0 = (old + 5).to_string();
                        assert_eq!(outcome, Outcome::Int(old + 5));
                    }
                    Err(_) => assert!(matches!(outcome, Outcome::Failed(_))),
                }
            }
            Step::Delete(one, other) => {
                let (one, other) = (name(one), name(other));
                let before = self.model.len();
                let outcome = self.run(&format!("HDEL h {one} {other}"));
                self.model
                    .retain(|field, _| *field != one && *field != other);
                assert_eq!(outcome, Outcome::Int((before - self.model.len()) as i64));
            }
            Step::Expire(one, other, ms) => {
                for field in [name(one), name(other)] {
                    self.run(&format!("HPEXPIRE h {ms} FIELDS 1 {field}"));
                    let held = self.model.get_mut(&field);
                    held.into_iter().for_each(|held| held.1 = clock + ms);
                }
            }
            Step::Persist(field) => {
                let field = name(field);
                let answer = self.one(&format!("HPERSIST h FIELDS 1 {field}"));
                let held = self
                    .model
                    .get_mut(&field)
                    .map(|held| std::mem::take(&mut held.1));
                assert_eq!(answer, held.map_or(-2, |at| if at == 0 { -1 } else { 1 }));
            }
            Step::SetWith(field, ms) => {
                let field = name(field);
                self.run(&format!("HSETEX h PX {ms} FIELDS 2 {field} a other b"));
                self.model.insert(field, ("a".into(), clock + ms));
                self.model.insert("other".into(), ("b".into(), clock + ms));
            }
            Step::SetKeeping(field) => {
                let field = name(field);
                self.run(&format!("HSETEX h KEEPTTL FIELDS 1 {field} kept"));
                self.model.entry(field).or_default().0 = "kept".into();
            }
            Step::GetWith(field, ms) => {
                let field = name(field);
                self.run(&format!("HGETEX h PX {ms} FIELDS 1 {field}"));
                let held = self.model.get_mut(&field);
                held.into_iter().for_each(|held| held.1 = clock + ms);
            }
            Step::Wait(ms) => self.clock += ms,
            Step::Date => _ = self.run("PEXPIRE h 1000000"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_hash_with_deadlines_is_a_map_with_a_clock(
        all in prop::collection::vec(steps(), 0..60),
        old in any::<bool>(),
        teaches in any::<bool>(),
        small in any::<bool>(),
    ) {
        let level = if old { DATED_FIELDS - 1 } else { DATED_FIELDS };
        let mut hash = DatedHash::new(level, teaches);
        hash.small_bytes_max = [PACKED_BYTES_MAX, 2 * PACKED_BYTES_MAX][usize::from(small)];
        for (n, step) in all.iter().enumerate() {
            // The cluster speaks the new version from here on.
            if n > 30 {
                hash.level = DATED_FIELDS;
            }
            hash.step(step);
            hash.check();
        }
    }
}

/// What `MEMORY USAGE` answers.
fn footprint(hash: &mut DatedHash) -> i64 {
    let (outcome, _) = action::apply(&Action::Footprint, hash.found(), &hash.cx());
    match outcome {
        Outcome::Int(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_small_hash_with_deadlines_stays_small() {
    let mut hash = DatedHash::new(DATED_FIELDS, false);
    hash.run("HSET h a 1 b 2 c 3");
    let without = footprint(&mut hash);
    hash.run("HEXPIRE h 1000 FIELDS 1 a");
    let one = footprint(&mut hash);
    assert!(hash.found().table.is_none());
    // The head, the deadline, two that are empty, and the place in the index of deadlines.
    assert!(one - without <= 10 + 8 + 2 + 32, "{without} {one}");
    hash.run("HPERSIST h FIELDS 1 a");
    assert_eq!(footprint(&mut hash), without);
}

#[test]
fn many_small_fields_are_one_value() {
    let mut hash = DatedHash::new(DATED_FIELDS, false);
    hash.small_bytes_max = 4_000;
    let set = |hash: &mut DatedHash, count: usize, bytes: usize| {
        hash.run("HDEL h big");
        for n in 0..count {
            hash.run(&format!(
                "HSETEX h PX 900 FIELDS 1 f{n} {}",
                "v".repeat(bytes)
            ));
        }
        hash.found().table.is_some()
    };
    assert!(!set(&mut hash, 100, 20));
    // One that is large makes it rows, which its other fields alone would not be.
    hash.run(&format!("HSET h big {}", "v".repeat(5_000)));
    assert!(hash.found().table.is_some());
    assert!(set(&mut hash, 200, 20));
}

#[test]
fn a_small_hash_that_grows_is_a_table_and_small_again_without_most_fields() {
    let mut hash = DatedHash::new(DATED_FIELDS, false);
    for n in 0..20 {
        hash.run(&format!("HSETEX h PX 900 FIELDS 1 f{n} value"));
    }
    assert_eq!(hash.found().table.map(store::RowTable::len), Some(20));
    let gone: Vec<String> = (1..20).map(|n| format!("f{n}")).collect();
    hash.run(&format!("HDEL h {}", gone.join(" ")));
    assert!(hash.found().table.is_none());
    assert_eq!(hash.one("HPTTL h FIELDS 1 f0"), 900);
    let held = ("value".to_owned(), hash.clock + 900);
    hash.model.insert("f0".to_owned(), held);
    hash.check();
    hash.clock += 900;
    hash.purge();
    assert!(hash.found().entry.is_none());
}
