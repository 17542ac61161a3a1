//! Decides whether a key's history is linearizable: the search of Wing and Gong with the memory of
//! Lowe (*Testing for linearizability*).
//!
//! A history is the calls on one key, with the moments of each call and answer. An operation
//! without an answer, or with the answer "unknown", may have happened at any moment after its call,
//! or never.
//!
//! Deadlines are operations as well. A call that sets a deadline marks it with a tag. `Expired`
//! with this tag deletes the value that still has it. It happens between the earliest and the
//! latest moment of the deadline, so neither a value that is served too long nor one that is
//! missing too early has an explanation.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// An operation on one key.
///
/// Example: [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Read.
    Get,
    /// Write.
    Set(Vec<u8>),
    /// Write, and return the former value.
    GetSet(Vec<u8>),
    /// Delete; answers how many keys were deleted.
    Delete,
    /// Read and delete.
    GetDel,
    /// Write if the present value is this one.
    CompareAndSwap {
        /// The expected value; `None`: the key is absent.
        expected: Option<Vec<u8>>,
        /// What to write.
        value: Vec<u8>,
    },
    /// Add to a number.
    Incr(i64),
    /// Append; answers the new length.
    Append(Vec<u8>),
    /// Write, with a deadline in this many milliseconds.
    SetFor {
        /// What to write.
        value: Vec<u8>,
        /// How long it lives.
        ms: u64,
        /// Names the deadline.
        tag: u64,
    },
    /// Give the present value this deadline; answers whether there is a value.
    Expire {
        /// How long it lives from now on.
        ms: u64,
        /// Names the deadline.
        tag: u64,
    },
    /// Take the deadline away; answers whether there was one.
    Persist,
    /// The deadline of this name passes.
    Expired {
        /// The name of the deadline.
        tag: u64,
    },
    /// The partition began empty: every copy was lost.
    Lost,
    /// Another operation.
    Other(OtherCall),
}

/// What an [`OtherCall`] does with its words to a value (`None`: the key is absent): the value
/// after it, and its answer.
pub type OtherStep = fn(&[Vec<u8>], Option<&[u8]>) -> (Option<Vec<u8>>, Answer);

/// An operation that [`Call`] does not name, such as a command on a list.
///
/// ```
/// use doyen::testkit::linear::{Answer, Call, HistoryEntry, OtherCall, Verdict, check};
///
/// /// Makes a value longer, and answers how long it is.
/// fn grow(words: &[Vec<u8>], value: Option<&[u8]>) -> (Option<Vec<u8>>, Answer) {
///     let value = [value.unwrap_or_default(), &words[0]].concat();
///     let length = value.len() as i64;
///     (Some(value), Answer::Int(length))
/// }
/// let call = Call::Other(OtherCall {
///     words: vec![b"ab".to_vec()],
///     run: grow,
/// });
/// let entry = |called, length| HistoryEntry {
///     client: 1,
///     call: call.clone(),
///     called,
///     answered: Some((called + 1, Answer::Int(length))),
///     waited: called + 1,
/// };
/// assert_eq!(check(&[entry(1, 2), entry(3, 4)]), Verdict::Linearizable);
/// assert_eq!(check(&[entry(1, 2), entry(3, 2)]), Verdict::Violated(1));
/// ```
#[derive(Clone)]
pub struct OtherCall {
    /// What names it.
    pub words: Vec<Vec<u8>>,
    /// What it does.
    pub run: OtherStep,
}

impl PartialEq for OtherCall {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for OtherCall {}

impl fmt::Debug for OtherCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.iter().map(|word| String::from_utf8_lossy(word));
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

/// An answer.
///
/// Example: [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Ok,
    /// There is no value.
    Nil,
    /// A number.
    Int(i64),
    /// A value.
    Bulk(Vec<u8>),
}

/// One operation of a history.
///
/// Example: [`check`].
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    /// The client. Its concurrent operations on one key happen in the order of their calls.
    pub client: u32,
    /// The operation.
    pub call: Call,
    /// The moment of the call. Moments are unique and ordered.
    pub called: u64,
    /// The moment and the answer; `None`: unknown.
    pub answered: Option<(u64, Answer)>,
    /// The moment at which the client stopped waiting for an answer that did not come. Its later
    /// calls on the key happen after this one, if this one happens. It has no meaning for an
    /// answered operation.
    pub waited: u64,
}

impl HistoryEntry {
    /// The moment until which the client waited for this.
    fn ended(&self) -> u64 {
        self.answered
            .as_ref()
            .map_or(self.waited, |(answered, _)| *answered)
    }

    /// Whether a client called this. Expired deadlines and losses have no client, and no order.
    fn asked(&self) -> bool {
        !matches!(self.call, Call::Expired { .. } | Call::Lost)
    }

    /// Whether one client sent both, and sent the second while it waited for the first.
    fn leads(&self, second: &Self) -> bool {
        let both = self.asked() && second.asked() && self.client == second.client;
        both && self.called < second.called && second.called < self.ended()
    }
}

/// The result of the search.
///
/// Example: [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Linearizable,
    /// There is none. The longest explained prefix ends before this entry (index into the history
    /// by call).
    Violated(usize),
    /// The search gave up at its limit.
    Undecided,
}

/// Limit of positions that the search visits.
const VISITS_MAX: usize = 3_000_000;

type StateSet = u32;

/// The value, and the tag of its deadline (0: none).
type Content = (Option<Vec<u8>>, u64);

struct Values {
    ids: HashMap<Content, StateSet>,
    list: Vec<Content>,
}

impl Values {
    fn new() -> Self {
        Self {
            ids: HashMap::from([((None, 0), 0)]),
            list: vec![(None, 0)],
        }
    }

    fn tag(&self, state: StateSet) -> u64 {
        self.list[state as usize].1
    }

    fn id(&mut self, value: Content) -> StateSet {
        if let Some(&id) = self.ids.get(&value) {
            return id;
        }
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(value.clone());
        self.ids.insert(value, id);
        id
    }

    /// The state after `call` and its answer; `None` if the call has no answer in this state.
    fn apply(&mut self, state: StateSet, call: &Call) -> Option<(StateSet, Answer)> {
        let (present, tag) = &self.list[state as usize];
        // A write that does not mention deadlines keeps the present one.
        let kept = *tag;
        let read = || present.clone().map_or(Answer::Nil, Answer::Bulk);
        Some(match call {
            Call::Get => (state, read()),
            Call::Set(value) => (self.id((Some(value.clone()), 0)), Answer::Ok),
            Call::GetSet(value) => {
                let answer = read();
                (self.id((Some(value.clone()), 0)), answer)
            }
            Call::Delete => (0, Answer::Int(i64::from(present.is_some()))),
            Call::GetDel => (0, read()),
            Call::Lost => (0, Answer::Ok),
            Call::Other(other) => {
                let (value, answer) = (other.run)(&other.words, present.as_deref());
                let kept = if value.is_some() { kept } else { 0 };
                (self.id((value, kept)), answer)
            }
            Call::SetFor { value, tag, .. } => (self.id((Some(value.clone()), *tag)), Answer::Ok),
            Call::Expire { tag, .. } => match present.clone() {
                Some(value) => (self.id((Some(value), *tag)), Answer::Int(1)),
                None => (state, Answer::Int(0)),
            },
            Call::Persist => match present.clone() {
                Some(value) if kept != 0 => (self.id((Some(value), 0)), Answer::Int(1)),
                _ => (state, Answer::Int(0)),
            },
            Call::Expired { tag } => (if *tag == kept { 0 } else { state }, Answer::Ok),
            Call::CompareAndSwap { expected, value } => {
                if present == expected {
                    (self.id((Some(value.clone()), kept)), Answer::Int(1))
                } else {
                    (state, Answer::Int(0))
                }
            }
            Call::Incr(by) => {
                let number = match present {
                    None => 0,
                    Some(bytes) => std::str::from_utf8(bytes).ok()?.parse::<i64>().ok()?,
                };
                let sum = number.checked_add(*by)?;
                (
                    self.id((Some(sum.to_string().into_bytes()), kept)),
                    Answer::Int(sum),
                )
            }
            Call::Append(tail) => {
                let mut whole = present.clone().unwrap_or_default();
                whole.extend_from_slice(tail);
                let length = i64::try_from(whole.len()).ok()?;
                (self.id((Some(whole), kept)), Answer::Int(length))
            }
        })
    }
}

/// A random-looking mark of one operation. The XOR of the marks of a set names the set.
fn mark(index: usize) -> u128 {
    let mut x = (index as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = x;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (u128::from(next()) << 64) | u128::from(next())
}

/// One step of the search: the placed operation, and its alternatives.
struct HistoryStep {
    placed: usize,
    before: StateSet,
    others: Vec<usize>,
}

/// Judges the history of one key, which starts absent.
///
/// ```
/// use doyen::testkit::linear::{Answer, Call, HistoryEntry, Verdict, check};
///
/// let entry = |client, call, called, answer: Option<(u64, Answer)>| HistoryEntry {
///     client,
///     call,
///     called,
///     waited: answer.as_ref().map_or(u64::MAX, |(at, _)| *at),
///     answered: answer,
/// };
/// let mut history = vec![
///     // It was answered at 4, and the read below ended at 3: it may have been the first.
///     entry(1, Call::Set(b"new".to_vec()), 1, Some((4, Answer::Ok))),
///     entry(2, Call::Get, 2, Some((3, Answer::Nil))),
/// ];
/// assert_eq!(check(&history), Verdict::Linearizable);
/// history.push(entry(2, Call::Get, 5, Some((6, Answer::Nil))));
/// assert_eq!(check(&history), Verdict::Violated(2), "at 4 the value was there");
/// ```
#[must_use]
pub fn check(history: &[HistoryEntry]) -> Verdict {
    let mut ops: Vec<&HistoryEntry> = history.iter().collect();
    ops.sort_by_key(|e| e.called);
    let mut done = vec![false; ops.len()];
    let mut open = ops.iter().filter(|e| e.answered.is_some()).count();
    let (mut first, mut farthest, mut visits) = (0usize, 0usize, 0usize);
    let mut values = Values::new();
    let mut seen: HashSet<(u128, StateSet)> = HashSet::new();
    let (mut set, mut state) = (0u128, 0 as StateSet);
    let mut steps: Vec<HistoryStep> = Vec::new();
    let setters: HashMap<u64, usize> = ops
        .iter()
        .enumerate()
        .filter_map(|(i, op)| Some((tag_given(&op.call)?, i)))
        .collect();
    let mut pending = candidates(&ops, &done, first, (0, &setters));
    loop {
        if open == 0 {
            return Verdict::Linearizable;
        }
        let mut moved = false;
        while let Some(index) = pending.pop() {
            let Some((next, answer)) = values.apply(state, &ops[index].call) else {
                continue;
            };
            if let Some((_, expected)) = &ops[index].answered
                && *expected != answer
            {
                continue;
            }
            // An operation of unknown outcome that changes nothing need not be placed.
            if ops[index].answered.is_none() && next == state {
                continue;
            }
            if !seen.insert((set ^ mark(index), next)) {
                continue;
            }
            visits += 1;
            if visits > VISITS_MAX {
                return Verdict::Undecided;
            }
            steps.push(HistoryStep {
                placed: index,
                before: state,
                others: std::mem::take(&mut pending),
            });
            set ^= mark(index);
            state = next;
            done[index] = true;
            open -= usize::from(ops[index].answered.is_some());
            while first < ops.len() && done[first] {
                first += 1;
            }
            // An operation without an answer explains nothing: it may be left out.
            let explained = |i: usize| done[i] || ops[i].answered.is_none();
            farthest = farthest.max(
                (first..ops.len())
                    .find(|i| !explained(*i))
                    .unwrap_or(ops.len()),
            );
            pending = candidates(&ops, &done, first, (values.tag(state), &setters));
            moved = true;
            break;
        }
        if moved {
            continue;
        }
        let Some(step) = steps.pop() else {
            return Verdict::Violated(farthest);
        };
        set ^= mark(step.placed);
        state = step.before;
        done[step.placed] = false;
        open += usize::from(ops[step.placed].answered.is_some());
        first = first.min(step.placed);
        pending = step.others;
    }
}

fn tag_given(call: &Call) -> Option<u64> {
    match call {
        Call::SetFor { tag, .. } | Call::Expire { tag, .. } => Some(*tag),
        _ => None,
    }
}

/// The operations that may come next, to be popped from the end: known outcomes first, by the
/// moment of the answer, then unknown ones.
fn candidates(
    ops: &[&HistoryEntry],
    done: &[bool],
    first: usize,
    (live, setters): (u64, &HashMap<u64, usize>),
) -> Vec<usize> {
    let mut bound = u64::MAX;
    let mut found: Vec<usize> = Vec::new();
    let mut later: Vec<u32> = Vec::new();
    for (i, op) in ops.iter().enumerate().skip(first) {
        if op.called > bound {
            break;
        }
        if done[i] {
            continue;
        }
        if let Some((answered, _)) = op.answered {
            bound = bound.min(answered);
        }
        if op.asked() && later.contains(&op.client) {
            continue;
        }
        if op.asked() && op.answered.is_some() {
            later.push(op.client);
        }
        // An operation without an answer never happens if a later call of its client overtook it.
        let meanwhile = ops
            .iter()
            .zip(done)
            .skip(i + 1)
            .take_while(|(other, _)| other.called < op.ended());
        if op.answered.is_none()
            && meanwhile
                .clone()
                .any(|(other, done)| *done && op.leads(other))
        {
            continue;
        }
        found.push(i);
    }
    found.retain(|&i| ops[i].called < bound);
    // A deadline passes after it was set. After another value has replaced its own, the moment
    // makes no difference.
    let passes = |i: usize| {
        if let Call::Expired { tag } = ops[i].call {
            Some(tag)
        } else {
            None
        }
    };
    found.retain(|&i| match passes(i) {
        Some(tag) => {
            setters.get(&tag).is_none_or(|s| done[*s]) && (tag == live || ops[i].answered.is_some())
        }
        None => true,
    });
    if let Some(void) = found
        .iter()
        .copied()
        .find(|&i| passes(i).is_some_and(|tag| tag != live))
    {
        return vec![void];
    }
    found.sort_by_key(|&i| {
        std::cmp::Reverse(
            ops[i]
                .answered
                .as_ref()
                .map_or((1, u64::MAX - ops[i].called), |a| (0, a.0)),
        )
    });
    found
}

#[cfg(test)]
mod trials;

#[cfg(test)]
mod tests {
    use super::*;

    fn op(called: u64, answered: u64, call: Call, answer: Answer) -> HistoryEntry {
        HistoryEntry {
            client: u32::try_from(called).unwrap(),
            call,
            called,
            answered: Some((answered, answer)),
            waited: answered,
        }
    }

    fn unknown(called: u64, call: Call) -> HistoryEntry {
        HistoryEntry {
            client: u32::try_from(called).unwrap(),
            call,
            called,
            answered: None,
            waited: called,
        }
    }

    fn set(value: &str) -> Call {
        Call::Set(value.as_bytes().to_vec())
    }

    fn bulk(value: &str) -> Answer {
        Answer::Bulk(value.as_bytes().to_vec())
    }

    #[test]
    fn a_read_after_a_write_sees_it() {
        let good = [
            op(1, 2, set("a"), Answer::Ok),
            op(3, 4, Call::Get, bulk("a")),
        ];
        assert_eq!(check(&good), Verdict::Linearizable);
        let lost = [
            op(1, 2, set("a"), Answer::Ok),
            op(3, 4, Call::Get, Answer::Nil),
        ];
        assert_eq!(check(&lost), Verdict::Violated(1));
    }

    #[test]
    fn concurrent_operations_may_come_in_either_order() {
        for seen in ["a", "b"] {
            let history = [
                op(1, 10, set("a"), Answer::Ok),
                op(2, 9, set("b"), Answer::Ok),
                op(11, 12, Call::Get, bulk(seen)),
            ];
            assert_eq!(check(&history), Verdict::Linearizable);
        }
    }

    #[test]
    fn concurrent_calls_of_one_client_happen_in_order() {
        let delete = |client, n| HistoryEntry {
            client,
            ..op(1, 10, Call::Delete, Answer::Int(n))
        };
        let write = |client| HistoryEntry {
            client,
            ..op(2, 9, set("a"), Answer::Ok)
        };
        let read = |answer| op(11, 12, Call::Get, answer);
        assert_eq!(
            check(&[delete(1, 0), write(1), read(bulk("a"))]),
            Verdict::Linearizable
        );
        assert_eq!(
            check(&[delete(1, 1), write(2), read(Answer::Nil)]),
            Verdict::Linearizable,
            "of two clients, either order"
        );
        assert!(matches!(
            check(&[delete(1, 1), write(1), read(Answer::Nil)]),
            Verdict::Violated(_)
        ));
        let never = HistoryEntry {
            client: 1,
            ..unknown(1, Call::Delete)
        };
        assert_eq!(
            check(&[never, write(1), read(bulk("a"))]),
            Verdict::Linearizable
        );
        // The outcome is unknown, but the operation did not happen after the one that the client
        // sent behind it.
        let waited = |waited| HistoryEntry {
            client: 1,
            waited,
            ..unknown(1, set("b"))
        };
        let (seen, after) = (read(bulk("a")), op(13, 14, Call::Get, bulk("b")));
        assert!(matches!(
            check(&[waited(9), write(1), seen.clone(), after.clone()]),
            Verdict::Violated(_)
        ));
        assert_eq!(
            check(&[waited(9), write(2), seen.clone(), after.clone()]),
            Verdict::Linearizable,
            "of two clients, either order"
        );
        let late = HistoryEntry {
            client: 1,
            ..op(3, 9, set("a"), Answer::Ok)
        };
        assert_eq!(
            check(&[waited(2), late, seen, after]),
            Verdict::Linearizable,
            "it had given up on the first"
        );
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [
            op(1, 2, set("a"), Answer::Ok),
            op(3, 4, set("b"), Answer::Ok),
            op(5, 6, Call::Get, bulk("a")),
        ];
        assert!(matches!(check(&history), Verdict::Violated(_)));
    }

    #[test]
    fn an_unknown_write_may_happen_late_or_never_but_not_twice() {
        let late = [
            unknown(1, set("a")),
            op(2, 3, Call::Get, Answer::Nil),
            op(4, 5, Call::Get, bulk("a")),
        ];
        assert_eq!(check(&late), Verdict::Linearizable);
        let never = [unknown(1, set("a")), op(2, 3, Call::Get, Answer::Nil)];
        assert_eq!(check(&never), Verdict::Linearizable);
        let twice = [
            unknown(1, set("a")),
            op(2, 3, Call::Get, bulk("a")),
            op(4, 5, Call::Delete, Answer::Int(1)),
            op(6, 7, Call::Get, bulk("a")),
        ];
        assert!(matches!(check(&twice), Verdict::Violated(_)));
    }

    #[test]
    fn a_duplicated_increment_is_found() {
        let history = [
            op(1, 2, Call::Incr(1), Answer::Int(1)),
            op(3, 4, Call::Incr(1), Answer::Int(3)),
        ];
        assert!(matches!(check(&history), Verdict::Violated(1)));
    }

    #[test]
    fn compare_and_swap_has_one_winner() {
        let cas = |value: &str| Call::CompareAndSwap {
            expected: None,
            value: value.as_bytes().to_vec(),
        };
        let one = [
            op(1, 10, cas("a"), Answer::Int(1)),
            op(2, 9, cas("b"), Answer::Int(0)),
            op(11, 12, Call::Get, bulk("a")),
        ];
        assert_eq!(check(&one), Verdict::Linearizable);
        let two = [
            op(1, 10, cas("a"), Answer::Int(1)),
            op(2, 9, cas("b"), Answer::Int(1)),
        ];
        assert!(matches!(check(&two), Verdict::Violated(_)));
    }

    #[test]
    fn a_deadline_ends_a_value_between_its_bounds() {
        let set = |called, answered| {
            op(
                called,
                answered,
                Call::SetFor {
                    value: b"a".to_vec(),
                    ms: 1,
                    tag: 7,
                },
                Answer::Ok,
            )
        };
        let passes = op(100, 200, Call::Expired { tag: 7 }, Answer::Ok);
        let read = |at, answer| op(at, at + 1, Call::Get, answer);
        let judge =
            |more: Vec<HistoryEntry>| check(&[vec![set(1, 2), passes.clone()], more].concat());
        assert_eq!(
            judge(vec![
                read(50, bulk("a")),
                read(150, bulk("a")),
                read(152, Answer::Nil),
                read(300, Answer::Nil)
            ]),
            Verdict::Linearizable
        );
        assert!(
            matches!(judge(vec![read(50, Answer::Nil)]), Verdict::Violated(_)),
            "missing too early"
        );
        assert!(
            matches!(judge(vec![read(300, bulk("a"))]), Verdict::Violated(_)),
            "served too late"
        );
        let persist = op(60, 61, Call::Persist, Answer::Int(1));
        assert_eq!(
            judge(vec![persist, read(300, bulk("a"))]),
            Verdict::Linearizable
        );
        let longer = op(60, 61, Call::Expire { ms: 9, tag: 8 }, Answer::Int(1));
        assert_eq!(
            judge(vec![longer, read(300, bulk("a"))]),
            Verdict::Linearizable
        );
    }

    #[test]
    fn many_unknown_writes_do_not_drown_the_search() {
        let mut history = Vec::new();
        let mut at = 1;
        for i in 0..400 {
            history.push(unknown(at, set(&format!("lost {i}"))));
            history.push(op(at + 1, at + 2, set(&format!("kept {i}")), Answer::Ok));
            history.push(op(at + 3, at + 4, Call::Get, bulk(&format!("kept {i}"))));
            at += 5;
        }
        assert_eq!(check(&history), Verdict::Linearizable);
    }
}
