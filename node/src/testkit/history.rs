//! Records the operations of clients and their answers, and checks whether any order explains them.
//!
//! A moment is a number that every call and every answer draws from one counter: an answer with a
//! lower number than a call came before it. Operations that certainly did not happen leave no
//! trace. Operations with an unknown outcome may have happened at any moment after their call.

use super::linear::{Answer, Call, HistoryEntry, Verdict, check};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that a violation shows before and after the one that has no explanation.
const SHOWN: (usize, usize) = (12, 3);

/// Records operations, from any thread. Clones record into the same history.
///
/// ```
/// use doyen::testkit::History;
/// use doyen::testkit::linear::{Answer, Call};
///
/// let history = History::new();
/// let write = history.call("key", 1, Call::Set(b"new".to_vec()));
/// write.answered(Answer::Ok);
/// let read = history.call("key", 2, Call::Get);
/// read.answered(Answer::Nil);
/// assert_eq!(history.judge().len(), 1, "an acknowledged write is not there");
/// ```
#[derive(Debug, Clone, Default)]
pub struct History {
    record: Arc<HistoryRecord>,
}

#[derive(Debug, Default)]
struct HistoryRecord {
    moments: AtomicU64,
    /// Held to add one entry, or to judge at the end.
    keys: Mutex<BTreeMap<String, Vec<HistoryEntry>>>,
}

/// An operation under way. If it is dropped, its outcome counts as unknown, which is always true of
/// an interrupted client.
///
/// ```
/// use doyen::testkit::History;
/// use doyen::testkit::linear::{Answer, Call};
///
/// let history = History::new();
/// history.call("key", 1, Call::Set(b"one".to_vec())).refused();
/// history.call("key", 1, Call::Set(b"two".to_vec())).unknown();
/// // Nothing, or "two": both can be explained. "one" could not.
/// history.call("key", 2, Call::Get).answered(Answer::Bulk(b"two".to_vec()));
/// assert!(history.judge().is_empty());
/// ```
#[derive(Debug)]
#[must_use = "report its outcome"]
pub struct PendingCall {
    record: Arc<HistoryRecord>,
    key: String,
    client: u32,
    /// `None`: the outcome was reported.
    call: Option<Call>,
    called: u64,
}

/// A key whose history has no explanation.
///
/// ```
/// use doyen::testkit::linear::{Answer, Call};
/// use doyen::testkit::{History, Wrong};
///
/// let history = History::new();
/// history.call("key", 1, Call::Set(b"one".to_vec())).answered(Answer::Ok);
/// history.call("key", 1, Call::Set(b"two".to_vec())).answered(Answer::Ok);
/// history.call("key", 2, Call::Get).answered(Answer::Bulk(b"one".to_vec()));
/// let violations = history.judge();
/// println!("{}", violations[0]); // the operations around it, for people
/// assert_eq!(violations[0].wrong, Wrong::Stale);
/// ```
#[derive(Debug, Clone)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// What is wrong.
    pub wrong: Wrong,
    /// The operation at which every explanation ends.
    pub entry: Option<HistoryEntry>,
    /// The operations around it, in the order of their calls.
    pub around: Vec<HistoryEntry>,
}

/// What is wrong with a history.
///
/// Example: [`Violation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A read gave nothing where an acknowledged write should be.
    Missing,
    /// A read returned a value that was overwritten, or not written yet.
    Stale,
    /// Another answer has no explanation: a write was applied twice or to a wrong value, or a read
    /// returned a value that no operation wrote.
    Answer,
    /// The search was given up at its limit, which proves nothing.
    Undecided,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "an acknowledged write is missing",
            Self::Stale => "a read is stale",
            Self::Answer => "an answer has no explanation",
            Self::Undecided => "no explanation was found within the limits of the search",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.wrong)?;
        self.around
            .iter()
            .try_for_each(|entry| write!(f, "\n  {}", ToldValue(entry)))
    }
}

/// One operation in a line.
struct ToldValue<'a>(&'a HistoryEntry);

impl fmt::Display for ToldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let HistoryEntry {
            client,
            call,
            called,
            answered,
            ..
        } = self.0;
        write!(f, "client {client}, {called}: ")?;
        match call {
            Call::Set(value) => write!(f, "SET {}", text(value))?,
            Call::GetSet(value) => write!(f, "GETSET {}", text(value))?,
            Call::Append(value) => write!(f, "APPEND {}", text(value))?,
            Call::Incr(by) => write!(f, "INCRBY {by}")?,
            other => write!(f, "{other:?}")?,
        }
        match answered {
            None => f.write_str(" -> unknown"),
            Some((at, Answer::Bulk(value))) => write!(f, " -> {} at {at}", text(value)),
            Some((at, answer)) => write!(f, " -> {answer:?} at {at}"),
        }
    }
}

impl HistoryRecord {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<String, Vec<HistoryEntry>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    /// Nothing yet. Every key starts absent.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A client begins an operation on a key, now. The number names the client. Concurrent
    /// operations of one client on one key happen in the order of their calls.
    pub fn call(&self, key: impl Into<String>, client: u32, call: Call) -> PendingCall {
        let called = self.record.moment();
        PendingCall {
            record: self.record.clone(),
            key: key.into(),
            client,
            call: Some(call),
            called,
        }
    }

    /// The keys of all operations.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.record.keys().keys().cloned().collect()
    }

    /// Judges every key. Empty: each of them is linearizable. Takes some milliseconds for a key
    /// with hundreds of operations.
    #[must_use]
    pub fn judge(&self) -> Vec<Violation> {
        let keys = self.record.keys();
        keys.iter()
            .filter_map(|(key, entries)| judge(key, entries))
            .collect()
    }
}

fn judge(key: &str, entries: &[HistoryEntry]) -> Option<Violation> {
    let mut ordered = entries.to_vec();
    ordered.sort_by_key(|entry| entry.called);
    let (wrong, at) = match check(&ordered) {
        Verdict::Linearizable => return None,
        Verdict::Undecided => (Wrong::Undecided, ordered.len()),
        Verdict::Violated(at) => (
            ordered
                .get(at)
                .map_or(Wrong::Answer, |entry| wrong(&ordered, entry)),
            at,
        ),
    };
    let around = ordered[at.saturating_sub(SHOWN.0)..(at + SHOWN.1).min(ordered.len())].to_vec();
    Some(Violation {
        key: key.to_owned(),
        wrong,
        entry: ordered.get(at).cloned(),
        around,
    })
}

/// What is wrong with an entry that has no explanation.
fn wrong(history: &[HistoryEntry], entry: &HistoryEntry) -> Wrong {
    match (&entry.call, &entry.answered) {
        (Call::Get, Some((_, Answer::Nil))) => Wrong::Missing,
        (Call::Get, Some((_, Answer::Bulk(read)))) if written(history, read) => Wrong::Stale,
        _ => Wrong::Answer,
    }
}

/// Whether an operation may have written this value. Sums and appended values cannot be checked,
/// and count as written.
fn written(history: &[HistoryEntry], read: &[u8]) -> bool {
    history.iter().any(|entry| match &entry.call {
        Call::Set(value)
        | Call::GetSet(value)
        | Call::CompareAndSwap { value, .. }
        | Call::SetFor { value, .. } => value == read,
        Call::Incr(_) | Call::Append(_) => true,
        _ => false,
    })
}

impl PendingCall {
    /// The operation was answered, now.
    pub fn answered(mut self, answer: Answer) {
        let at = self.record.moment();
        self.end(Some((at, answer)));
    }

    /// The outcome is unknown: the operation may have happened, or may still happen.
    pub fn unknown(self) {
        drop(self);
    }

    /// The operation certainly did not happen.
    pub fn refused(mut self) {
        self.call = None;
    }

    fn end(&mut self, answered: Option<(u64, Answer)>) {
        let Some(call) = self.call.take() else { return };
        // A read without an answer says nothing.
        if answered.is_none() && call == Call::Get {
            return;
        }
        let waited = answered
            .as_ref()
            .map_or_else(|| self.record.moment(), |(at, _)| *at);
        let entry = HistoryEntry {
            client: self.client,
            call,
            called: self.called,
            answered,
            waited,
        };
        let mut keys = self.record.keys();
        match keys.get_mut(&self.key) {
            Some(entries) => entries.push(entry),
            None => drop(keys.insert(std::mem::take(&mut self.key), vec![entry])),
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.end(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(history: &History, value: &str) {
        history
            .call("k", 1, Call::Set(value.into()))
            .answered(Answer::Ok);
    }

    fn read(history: &History, answer: Answer) {
        history.call("k", 2, Call::Get).answered(answer);
    }

    fn wrongs(history: &History) -> Vec<Wrong> {
        history.judge().iter().map(|v| v.wrong).collect()
    }

    #[test]
    fn a_violation_names_its_kind() {
        let history = History::new();
        set(&history, "a");
        read(&history, Answer::Bulk(b"a".to_vec()));
        assert_eq!(wrongs(&history), []);
        read(&history, Answer::Nil);
        assert_eq!(wrongs(&history), [Wrong::Missing]);

        let history = History::new();
        set(&history, "a");
        set(&history, "b");
        read(&history, Answer::Bulk(b"a".to_vec()));
        assert_eq!(wrongs(&history), [Wrong::Stale]);
        assert!(
            history.judge()[0]
                .to_string()
                .contains("client 1, 0: SET a -> Ok at 1"),
            "{}",
            history.judge()[0]
        );

        let history = History::new();
        history.call("n", 1, Call::Incr(1)).answered(Answer::Int(1));
        history.call("n", 1, Call::Incr(1)).answered(Answer::Int(3));
        assert_eq!(wrongs(&history), [Wrong::Answer]);
    }

    #[test]
    fn an_operation_that_is_cut_short_is_unknown_and_a_refused_one_is_none() {
        let history = History::new();
        set(&history, "a");
        drop(history.call("k", 1, Call::Set(b"b".to_vec())));
        history.call("k", 1, Call::Set(b"c".to_vec())).refused();
        read(&history, Answer::Bulk(b"a".to_vec()));
        read(&history, Answer::Bulk(b"b".to_vec()));
        assert_eq!(wrongs(&history), []);
        read(&history, Answer::Bulk(b"c".to_vec()));
        assert_eq!(wrongs(&history), [Wrong::Answer], "it was never written");
    }
}
