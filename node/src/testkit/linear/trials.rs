//! Tests of the judge: histories with known verdicts, and an independent second judge.
//!
//! The second judge is the bare definition: it leaves out any of the operations with an unknown
//! outcome, and tries every order of the others that time and clients allow. So it takes only small
//! histories, and gets thousands of random ones.

use super::*;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;

/// Histories on which both must agree, by their seeds.
const SEEDS: std::ops::Range<u64> = 0..10_000;
/// Each verdict must occur this often. Otherwise the agreement proves little.
const EACH_LEAST: usize = 1_000;

// ---- the second judge

/// A key as a plain store.
#[derive(Clone, Default)]
struct Key {
    value: Option<Vec<u8>>,
    deadline: Option<u64>,
}

impl Key {
    fn put(&mut self, value: &[u8], deadline: Option<u64>) {
        *self = Self {
            value: Some(value.to_vec()),
            deadline,
        };
    }

    fn read(&self) -> Answer {
        match &self.value {
            Some(value) => Answer::Bulk(value.clone()),
            None => Answer::Nil,
        }
    }

    /// Executes an operation as a store does. `None`: the operation is impossible.
    fn execute(&mut self, call: &Call) -> Option<Answer> {
        let before = self.clone();
        let there = i64::from(before.value.is_some());
        let answer = match call {
            Call::Get => self.read(),
            Call::Set(value) => {
                self.put(value, None);
                Answer::Ok
            }
            Call::GetSet(value) => {
                self.put(value, None);
                before.read()
            }
            Call::Delete => {
                *self = Self::default();
                Answer::Int(there)
            }
            Call::GetDel => {
                *self = Self::default();
                before.read()
            }
            Call::CompareAndSwap { expected, value } if before.value == *expected => {
                self.put(value, before.deadline);
                Answer::Int(1)
            }
            Call::CompareAndSwap { .. } => Answer::Int(0),
            Call::Incr(by) => {
                let text = before.value.unwrap_or_else(|| b"0".to_vec());
                let sum = String::from_utf8(text)
                    .ok()?
                    .parse::<i64>()
                    .ok()?
                    .checked_add(*by)?;
                self.put(sum.to_string().as_bytes(), before.deadline);
                Answer::Int(sum)
            }
            Call::Append(tail) => {
                let whole = [before.value.unwrap_or_default(), tail.clone()].concat();
                self.put(&whole, before.deadline);
                Answer::Int(whole.len() as i64)
            }
            Call::SetFor { value, tag, .. } => {
                self.put(value, Some(*tag));
                Answer::Ok
            }
            Call::Expire { tag, .. } => {
                if before.value.is_some() {
                    self.deadline = Some(*tag);
                }
                Answer::Int(there)
            }
            Call::Persist => Answer::Int(i64::from(self.deadline.take().is_some())),
            Call::Expired { tag } => {
                if before.deadline == Some(*tag) {
                    *self = Self::default();
                }
                Answer::Ok
            }
            Call::Other(_) => return None,
            Call::Lost => {
                *self = Self::default();
                Answer::Ok
            }
        };
        Some(answer)
    }
}

/// Whether one operation must come before another, if both happen.
fn precedes(a: &HistoryEntry, b: &HistoryEntry) -> bool {
    let clock = |e: &HistoryEntry| matches!(e.call, Call::Expired { .. } | Call::Lost);
    let under_way = b.called
        < a.answered
            .as_ref()
            .map_or(a.waited, |(answered, _)| *answered);
    let by_time = a
        .answered
        .as_ref()
        .is_some_and(|(answered, _)| *answered < b.called);
    let by_client =
        a.client == b.client && a.called < b.called && under_way && !clock(a) && !clock(b);
    let by_cause = match (&a.call, &b.call) {
        (Call::SetFor { tag, .. } | Call::Expire { tag, .. }, Call::Expired { tag: passes }) => {
            tag == passes
        }
        _ => false,
    };
    by_time || by_client || by_cause
}

/// Whether any order of exactly these operations, after the earlier ones, explains their answers.
fn some_order(left: &[&HistoryEntry], key: &Key) -> bool {
    left.is_empty()
        || (0..left.len()).any(|at| {
            let (next, mut others, mut key) = (left[at], left.to_vec(), key.clone());
            others.remove(at);
            if others.iter().any(|other| precedes(other, next)) {
                return false;
            }
            let got = key.execute(&next.call);
            next.answered
                .as_ref()
                .is_none_or(|(_, said)| got.as_ref() == Some(said))
                && some_order(&others, &key)
        })
}

fn holds_by_definition(history: &[HistoryEntry]) -> bool {
    let (known, unknown): (Vec<&HistoryEntry>, Vec<&HistoryEntry>) =
        history.iter().partition(|e| e.answered.is_some());
    (0..1_u32 << unknown.len()).any(|happened| {
        let some = unknown
            .iter()
            .enumerate()
            .filter(|(at, _)| happened >> at & 1 == 1)
            .map(|(_, e)| *e);
        some_order(
            &known.iter().copied().chain(some).collect::<Vec<_>>(),
            &Key::default(),
        )
    })
}

// ---- histories at random

/// A history of a handful of operations that really happened. About two in three are then spoilt,
/// which does not always show.
fn drawn(seed: u64) -> Vec<HistoryEntry> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = rng.random_range(2..=6);
    let mut moments: Vec<u64> = (1..=3 * count).collect();
    moments.shuffle(&mut rng);
    let family = rng.random_range(0..4);
    let mut happened: Vec<(u64, HistoryEntry, bool)> = Vec::new();
    for (number, three) in (0_u32..).zip(moments.chunks(3)) {
        let mut three = [three[0], three[1], three[2]];
        three.sort_unstable();
        let call = any_call(&mut rng, family, number.into());
        let answered = rng.random_bool(0.75).then_some((three[2], Answer::Ok));
        // An operation with an unknown outcome may have happened long after, or never.
        let at = if answered.is_some() {
            three[1]
        } else {
            rng.random_range(three[0]..=3 * count)
        };
        let never = answered.is_none() && rng.random_bool(0.4);
        happened.push((
            at,
            HistoryEntry {
                client: rng.random_range(0..3),
                call,
                called: three[0],
                answered,
                waited: three[2],
            },
            never,
        ));
    }
    let deadlines: Vec<_> = happened
        .iter()
        .filter_map(|(at, e, never)| Some((*at, tag_given(&e.call)?, e.answered.is_some(), *never)))
        .collect();
    for (at, tag, known, never) in deadlines {
        let setter_called = happened
            .iter()
            .find(|(_, e, _)| tag_given(&e.call) == Some(tag))
            .map_or(at, |(_, e, _)| e.called);
        let (called, passes) = (
            rng.random_range(setter_called..=at),
            rng.random_range(at..=3 * count + 1),
        );
        let answered = known.then_some((passes + rng.random_range(0..3), Answer::Ok));
        happened.push((
            passes,
            HistoryEntry {
                client: 99,
                call: Call::Expired { tag },
                called,
                answered,
                waited: passes,
            },
            never,
        ));
    }
    // A call and a moment of a clock may be drawn alike. Moments must be unique, with the operation
    // in between.
    happened.sort_by_key(|(at, e, _)| (*at, matches!(e.call, Call::Expired { .. })));
    let mut key = Key::default();
    for (_, entry, never) in &mut happened {
        if *never {
            continue;
        }
        let answer = key.execute(&entry.call);
        match (&mut entry.answered, answer) {
            (Some((_, said)), Some(answer)) => *said = answer,
            // The operation is impossible, so no client was told that it succeeded.
            (answered, None) => *answered = None,
            (None, _) => {}
        }
    }
    let mut history: Vec<HistoryEntry> = happened.into_iter().map(|(_, e, _)| e).collect();
    if rng.random_bool(0.65) {
        spoil(&mut history, &mut rng);
    }
    unique(history)
}

/// Doubles the moments, so that no two are alike. Calls come before answers of the same moment,
/// which overlap.
fn unique(mut history: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (at, entry) in history.iter().enumerate() {
        moments.push((entry.called, false, at));
        moments.push((
            entry
                .answered
                .as_ref()
                .map_or(entry.waited, |(answered, _)| *answered),
            true,
            at,
        ));
    }
    moments.sort_unstable();
    for (moment, (_, answer, at)) in (0..).zip(moments) {
        match &mut history[at] {
            entry if !answer => entry.called = moment,
            HistoryEntry {
                answered: Some((answered, _)),
                ..
            } => *answered = moment,
            entry => entry.waited = moment,
        }
    }
    history
}

fn any_call(rng: &mut ChaCha8Rng, family: u32, tag: u64) -> Call {
    let value = |rng: &mut ChaCha8Rng| {
        if family == 1 {
            vec![b"123"[rng.random_range(0..3)]]
        } else {
            vec![b"abc"[rng.random_range(0..3)]]
        }
    };
    let tag = tag + 1;
    let kinds = if family == 2 { 12 } else { 8 };
    match rng.random_range(0..kinds) {
        0 | 1 => Call::Get,
        2 => Call::Set(value(rng)),
        3 => Call::GetSet(value(rng)),
        4 => Call::Delete,
        5 => Call::GetDel,
        6 if family == 1 => Call::Incr(rng.random_range(1..3)),
        6 => Call::Append(value(rng)),
        7 => Call::CompareAndSwap {
            expected: rng.random_bool(0.6).then(|| value(rng)),
            value: value(rng),
        },
        8 | 9 => Call::SetFor {
            value: value(rng),
            ms: 1,
            tag,
        },
        10 => Call::Expire { ms: 1, tag },
        _ => Call::Persist,
    }
}

/// Changes a history as a faulty store does: it loses, repeats, confuses or delays.
fn spoil(history: &mut [HistoryEntry], rng: &mut ChaCha8Rng) {
    let clients: Vec<usize> = (0..history.len())
        .filter(|i| history[*i].client != 99)
        .collect();
    let (one, other) = (
        clients[rng.random_range(0..clients.len())],
        clients[rng.random_range(0..clients.len())],
    );
    match rng.random_range(0..4) {
        // Change an answer.
        0 => {
            let answers = [
                Answer::Nil,
                Answer::Int(0),
                Answer::Int(1),
                Answer::Int(2),
                Answer::Bulk(b"a".to_vec()),
                Answer::Bulk(b"1".to_vec()),
            ];
            if let Some((_, said)) = &mut history[one].answered {
                *said = answers[rng.random_range(0..answers.len())].clone();
            }
        }
        // Give the answer to another client.
        1 => {
            let said = |e: &HistoryEntry| e.answered.as_ref().map(|(_, said)| said.clone());
            if let (Some(first), Some(second)) = (said(&history[one]), said(&history[other])) {
                for (at, said) in [(one, second), (other, first)] {
                    history[at].answered = history[at]
                        .answered
                        .take()
                        .map(|(moment, _)| (moment, said));
                }
            }
        }
        // Shorten the time that it took.
        2 => {
            if let Some((answered, _)) = &mut history[one].answered {
                *answered = history[one].called;
            }
        }
        // Change the operation.
        _ => {
            let other = history[other].call.clone();
            if tag_given(&history[one].call).is_none() && tag_given(&other).is_none() {
                history[one].call = other;
            }
        }
    }
}

#[test]
fn two_judges_agree_on_ten_thousand_histories() {
    eprintln!("seeds {SEEDS:?}");
    let (mut good, mut bad) = (0, 0);
    let (mut unknown, mut deadlines, mut swaps) = (0, 0, 0);
    for seed in SEEDS {
        let history = drawn(seed);
        let holds = holds_by_definition(&history);
        let verdict = check(&history);
        let agree = match verdict {
            Verdict::Linearizable => holds,
            Verdict::Violated(_) => !holds,
            Verdict::Undecided => false,
        };
        assert!(
            agree,
            "seed {seed}: {verdict:?}, but by definition it {}: {history:#?}",
            if holds { "holds" } else { "does not hold" }
        );
        if holds {
            good += 1;
        } else {
            bad += 1;
        }
        unknown += usize::from(history.iter().any(|e| e.answered.is_none()));
        deadlines += usize::from(history.iter().any(|e| tag_given(&e.call).is_some()));
        swaps += usize::from(
            history
                .iter()
                .any(|e| matches!(e.call, Call::CompareAndSwap { .. })),
        );
    }
    eprintln!(
        "{good} hold, {bad} do not; {unknown} with unknown outcomes, {deadlines} with deadlines, \
         {swaps} with swaps"
    );
    assert!(
        good >= EACH_LEAST && bad >= EACH_LEAST,
        "{good} hold, {bad} do not"
    );
    assert!(unknown >= EACH_LEAST && deadlines >= EACH_LEAST && swaps >= EACH_LEAST);
}

/// Writes histories for a third, foreign judge: `just porcupine`.
#[test]
#[ignore = "writes a file for tests/scripts/porcupine"]
fn histories_are_written_for_porcupine() {
    let path = std::env::var("DOYEN_HISTORIES").expect("DOYEN_HISTORIES says where to write");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let call = |call: &Call| match call {
        Call::Get => json!({"op": "get"}),
        Call::Set(value) => json!({"op": "set", "value": text(value)}),
        Call::GetSet(value) => json!({"op": "getset", "value": text(value)}),
        Call::Delete => json!({"op": "delete"}),
        Call::GetDel => json!({"op": "getdel"}),
        Call::CompareAndSwap { expected, value } => {
            json!({"op": "cas", "expected": expected.as_deref().map(text), "value": text(value)})
        }
        Call::Incr(by) => json!({"op": "incr", "by": by}),
        Call::Append(tail) => json!({"op": "append", "value": text(tail)}),
        Call::SetFor { value, tag, .. } => {
            json!({"op": "setfor", "value": text(value), "tag": tag})
        }
        Call::Expire { tag, .. } => json!({"op": "expire", "tag": tag}),
        Call::Persist => json!({"op": "persist"}),
        Call::Expired { tag } => json!({"op": "expired", "tag": tag}),
        Call::Lost | Call::Other(_) => unreachable!("none is drawn"),
    };
    let answer = |(at, said): &(u64, Answer)| match said {
        Answer::Ok => json!({"at": at, "kind": "ok"}),
        Answer::Nil => json!({"at": at, "kind": "nil"}),
        Answer::Int(n) => json!({"at": at, "kind": "int", "int": n}),
        Answer::Bulk(value) => json!({"at": at, "kind": "bulk", "value": text(value)}),
    };
    let entry = |e: &HistoryEntry| {
        json!({
            "client": e.client,
            "call": call(&e.call),
            "called": e.called,
            "answered": e.answered.as_ref().map(answer),
            "waited": e.waited
        })
    };
    let history = |seed| {
        let history = drawn(seed);
        let entries: Vec<_> = history.iter().map(entry).collect();
        json!({"seed": seed, "holds": check(&history) == Verdict::Linearizable, "entries": entries})
    };
    let all: Vec<_> = SEEDS.map(history).collect();
    std::fs::write(path, json!(all).to_string()).expect("the file is written");
}

// ---- histories with a known verdict

fn by(client: u32, called: u64, answered: u64, call: Call, answer: Answer) -> HistoryEntry {
    HistoryEntry {
        client,
        call,
        called,
        answered: Some((answered, answer)),
        waited: answered,
    }
}

/// An operation whose client did not wait for it.
fn unknown(client: u32, called: u64, call: Call) -> HistoryEntry {
    waiting(client, called, called, call)
}

fn waiting(client: u32, called: u64, waited: u64, call: Call) -> HistoryEntry {
    HistoryEntry {
        client,
        call,
        called,
        answered: None,
        waited,
    }
}

fn set(value: &str) -> Call {
    Call::Set(value.into())
}

fn for_a_while(value: &str, tag: u64) -> Call {
    Call::SetFor {
        value: value.into(),
        ms: 1,
        tag,
    }
}

fn swap(expected: &str, value: &str) -> Call {
    Call::CompareAndSwap {
        expected: Some(expected.into()),
        value: value.into(),
    }
}

fn bulk(value: &str) -> Answer {
    Answer::Bulk(value.into())
}

use Answer::{Int, Nil, Ok as Done};
use Call::{Append, Delete, Expire, Expired, Get, GetDel, GetSet, Incr, Lost, Persist};

/// Checks that both judges give this verdict.
fn judged(what: &str, history: &[HistoryEntry], holds: bool) {
    let verdict = check(history);
    assert_eq!(
        verdict == Verdict::Linearizable,
        holds,
        "{what}: {verdict:?}"
    );
    assert_ne!(verdict, Verdict::Undecided, "{what}");
    assert_eq!(holds_by_definition(history), holds, "{what}, by definition");
}

#[test]
fn impossible_histories_are_refused() {
    let bad: &[(&str, &[HistoryEntry])] = &[
        (
            "an acknowledged write is lost",
            &[by(1, 1, 2, set("a"), Done), by(1, 3, 4, Get, Nil)],
        ),
        (
            "a read is stale",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 4, set("b"), Done),
                by(2, 5, 6, Get, bulk("a")),
            ],
        ),
        (
            "a read sees what is written later",
            &[by(1, 1, 2, Get, bulk("a")), by(2, 3, 4, set("a"), Done)],
        ),
        (
            "a read sees a value that no operation wrote",
            &[by(1, 1, 2, set("a"), Done), by(2, 3, 4, Get, bulk("b"))],
        ),
        (
            "reads go back, while a write is under way",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 20, set("b"), Done),
                by(2, 4, 5, Get, bulk("b")),
                by(3, 6, 7, Get, bulk("a")),
            ],
        ),
        (
            "two readers see two writes in two orders",
            &[
                by(1, 1, 30, set("a"), Done),
                by(2, 2, 31, set("b"), Done),
                by(3, 3, 4, Get, bulk("a")),
                by(4, 5, 6, Get, bulk("b")),
                by(3, 7, 8, Get, bulk("a")),
            ],
        ),
        (
            "what was deleted comes back",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 4, Delete, Int(1)),
                by(2, 5, 6, Get, bulk("a")),
            ],
        ),
        (
            "one key is deleted twice",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 20, Delete, Int(1)),
                by(2, 4, 19, Delete, Int(1)),
            ],
        ),
        (
            "one value is taken twice",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 20, GetDel, bulk("a")),
                by(2, 4, 19, GetDel, bulk("a")),
            ],
        ),
        (
            "a sum is added twice",
            &[by(1, 1, 2, Incr(1), Int(1)), by(1, 3, 4, Incr(1), Int(3))],
        ),
        (
            "a sum is lost",
            &[by(1, 1, 20, Incr(1), Int(1)), by(2, 2, 19, Incr(1), Int(1))],
        ),
        (
            "an append is lost",
            &[
                by(1, 1, 20, Append(b"x".to_vec()), Int(1)),
                by(2, 2, 19, Append(b"y".to_vec()), Int(1)),
            ],
        ),
        (
            "two swaps win",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 20, swap("a", "b"), Int(1)),
                by(2, 4, 19, swap("a", "c"), Int(1)),
            ],
        ),
        (
            "a swap wins against another value",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 4, swap("b", "c"), Int(1)),
            ],
        ),
        (
            "a swap fails for no reason",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 4, swap("a", "b"), Int(0)),
            ],
        ),
        (
            "a swap that failed took effect",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 4, swap("b", "c"), Int(0)),
                by(1, 5, 6, Get, bulk("c")),
            ],
        ),
        (
            "an exchange gives what was overwritten",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 4, set("b"), Done),
                by(1, 5, 6, GetSet(b"c".to_vec()), bulk("a")),
            ],
        ),
        (
            "an unknown write happens twice",
            &[
                unknown(1, 1, set("a")),
                by(2, 2, 3, Get, bulk("a")),
                by(2, 4, 5, Delete, Int(1)),
                by(2, 6, 7, Get, bulk("a")),
            ],
        ),
        (
            "an unknown sum is added twice",
            &[unknown(1, 1, Incr(1)), by(2, 2, 3, Get, bulk("2"))],
        ),
        (
            "an unknown write happens before it is asked",
            &[by(2, 1, 2, Get, bulk("a")), unknown(1, 3, set("a"))],
        ),
        (
            "an unknown write is seen, and is gone",
            &[
                unknown(1, 1, set("a")),
                by(2, 2, 3, Get, bulk("a")),
                by(2, 4, 5, Get, Nil),
            ],
        ),
        (
            "an unknown swap wins against another value",
            &[
                by(1, 1, 2, set("a"), Done),
                unknown(1, 3, swap("b", "c")),
                by(2, 4, 5, Get, bulk("c")),
            ],
        ),
        (
            "a pipeline happens backwards",
            &[
                by(1, 1, 10, set("a"), Done),
                by(1, 2, 9, set("b"), Done),
                by(2, 11, 12, Get, bulk("a")),
            ],
        ),
        (
            "a command without an answer overtakes the next one of its pipeline",
            &[
                waiting(1, 1, 9, set("a")),
                by(1, 2, 8, set("b"), Done),
                by(2, 10, 11, Get, bulk("b")),
                by(2, 12, 13, Get, bulk("a")),
            ],
        ),
        (
            "a value ends too early",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 3, 4, Get, Nil),
            ],
        ),
        (
            "a value is served too long",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 300, 301, Get, bulk("a")),
            ],
        ),
        (
            "what has ended comes back",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 101, 102, Get, Nil),
                by(2, 103, 104, Get, bulk("a")),
            ],
        ),
        (
            "a deadline ends what was written after it",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(1, 3, 4, set("b"), Done),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 300, 301, Get, Nil),
            ],
        ),
        (
            "a swap takes the deadline away",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(1, 3, 4, swap("a", "b"), Int(1)),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 300, 301, Get, bulk("b")),
            ],
        ),
        (
            "a deadline is taken away that no operation set",
            &[by(1, 1, 2, set("a"), Done), by(1, 3, 4, Persist, Int(1))],
        ),
        (
            "a key that is not there is given a deadline",
            &[by(1, 1, 2, Expire { ms: 1, tag: 7 }, Int(1))],
        ),
        (
            "what was lost with every copy is there",
            &[
                by(1, 1, 2, set("a"), Done),
                by(9, 3, 4, Lost, Done),
                by(1, 5, 6, Get, bulk("a")),
            ],
        ),
    ];
    for (what, history) in bad {
        judged(what, history, false);
    }
}

#[test]
fn possible_histories_are_accepted() {
    let good: &[(&str, &[HistoryEntry])] = &[
        ("nothing", &[]),
        (
            "a key that no operation wrote",
            &[
                by(1, 1, 2, Get, Nil),
                by(1, 3, 4, Delete, Int(0)),
                by(1, 5, 6, GetDel, Nil),
            ],
        ),
        (
            "a read beside a write sees it or does not, and then does",
            &[
                by(1, 1, 20, set("a"), Done),
                by(2, 2, 3, Get, Nil),
                by(2, 4, 5, Get, bulk("a")),
                by(3, 6, 7, Get, bulk("a")),
            ],
        ),
        (
            "two writers at once, and all readers agree",
            &[
                by(1, 1, 30, set("a"), Done),
                by(2, 2, 31, set("b"), Done),
                by(3, 3, 4, Get, bulk("a")),
                by(4, 5, 6, Get, bulk("b")),
                by(3, 32, 33, Get, bulk("b")),
            ],
        ),
        (
            "one of two takes it",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 20, GetDel, bulk("a")),
                by(2, 4, 19, GetDel, Nil),
            ],
        ),
        (
            "sums at once",
            &[
                by(1, 1, 20, Incr(1), Int(3)),
                by(2, 2, 19, Incr(2), Int(2)),
                by(1, 21, 22, Get, bulk("3")),
            ],
        ),
        (
            "one of two swaps wins",
            &[
                by(1, 1, 2, set("a"), Done),
                by(1, 3, 20, swap("a", "b"), Int(1)),
                by(2, 4, 19, swap("a", "c"), Int(0)),
            ],
        ),
        (
            "swaps in a chain",
            &[
                by(1, 1, 2, set("a"), Done),
                by(2, 3, 20, swap("b", "c"), Int(1)),
                by(1, 4, 19, swap("a", "b"), Int(1)),
            ],
        ),
        (
            "an unknown write never happens",
            &[
                unknown(1, 1, set("a")),
                by(2, 2, 3, Get, Nil),
                by(2, 100, 101, Get, Nil),
            ],
        ),
        (
            "an unknown write happens long after, and undoes what came meanwhile",
            &[
                unknown(1, 1, set("a")),
                by(1, 2, 3, set("b"), Done),
                by(2, 4, 5, Get, bulk("b")),
                by(2, 6, 7, Get, bulk("a")),
            ],
        ),
        (
            "an unknown sum was added",
            &[unknown(1, 1, Incr(1)), by(2, 2, 3, Incr(1), Int(2))],
        ),
        (
            "an unknown swap happens late",
            &[
                unknown(1, 1, swap("a", "b")),
                by(2, 2, 3, set("a"), Done),
                by(2, 4, 5, Get, bulk("b")),
            ],
        ),
        (
            "unknown writes one upon the other",
            &[
                unknown(1, 1, set("a")),
                unknown(1, 2, Append(b"x".to_vec())),
                by(2, 3, 4, Get, bulk("ax")),
                by(2, 5, 6, Get, bulk("ax")),
            ],
        ),
        (
            "a pipeline that happens without an answer",
            &[
                waiting(1, 1, 9, set("a")),
                waiting(1, 2, 9, Append(b"x".to_vec())),
                by(2, 3, 4, Get, bulk("ax")),
            ],
        ),
        (
            "a pipeline, and only its end happens",
            &[
                waiting(1, 1, 9, set("a")),
                by(1, 2, 8, Append(b"x".to_vec()), Int(1)),
            ],
        ),
        (
            "a pipeline in its order",
            &[
                by(1, 1, 10, set("a"), Done),
                by(1, 2, 9, set("b"), Done),
                by(2, 11, 12, Get, bulk("b")),
            ],
        ),
        (
            "a value ends between the bounds of its deadline",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 99, 110, Get, bulk("a")),
                by(1, 111, 112, Get, Nil),
            ],
        ),
        (
            "a value that was kept in time",
            &[
                by(1, 1, 2, for_a_while("a", 7), Done),
                by(1, 3, 150, Persist, Int(1)),
                by(9, 100, 200, Expired { tag: 7 }, Done),
                by(1, 300, 301, Get, bulk("a")),
            ],
        ),
        (
            "a deadline that may or may not have been set",
            &[
                by(1, 1, 2, set("a"), Done),
                unknown(1, 3, Expire { ms: 1, tag: 7 }),
                unknown(9, 4, Expired { tag: 7 }),
                by(2, 5, 6, Get, bulk("a")),
                by(2, 7, 8, Get, Nil),
            ],
        ),
        (
            "every copy was lost",
            &[
                by(1, 1, 2, set("a"), Done),
                by(9, 3, 6, Lost, Done),
                by(1, 4, 5, Get, bulk("a")),
                by(1, 7, 8, Get, Nil),
            ],
        ),
    ];
    for (what, history) in good {
        judged(what, history, true);
    }
}
