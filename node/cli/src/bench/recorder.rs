//! What came of the operations: latencies, errors, hits, and how long nobody answered. Times are
//! nanoseconds.

use super::plan::Kind;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Latencies are told apart to three digits, up to an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;
/// Kinds of errors that are told apart; the others are one more.
const ERROR_KINDS_MAX: usize = 32;
/// What is counted for operations that had no reply when the run was over.
const UNANSWERED: &str = "unanswered";
/// What is counted for errors of too many kinds.
const OTHERS: &str = "others";

/// Counts for one thread. Errors count from the beginning; latencies and stalls from `measure_from`
/// on, whenever the operation began.
#[derive(Debug)]
pub(super) struct Recorder {
    measured_from: u64,
    latencies: Histogram<u64>,
    gets: u64,
    hits: u64,
    errors: BTreeMap<String, u64>,
    first_error: Option<String>,
    outstanding: u64,
    /// The last reply, or when the first operation after quiet times was sent.
    quiet_since: u64,
    longest_stall: u64,
    last_reply: u64,
}

impl Recorder {
    /// Measures nothing yet.
    pub(super) fn new() -> Self {
        Self {
            measured_from: u64::MAX,
            // The bounds are right: 1 is at least 1, and the other one is more than twice that.
            latencies: Histogram::new_with_bounds(1, LATENCY_MAX, 3)
                .expect("bounds of a histogram"),
            gets: 0,
            hits: 0,
            errors: BTreeMap::new(),
            first_error: None,
            outstanding: 0,
            quiet_since: 0,
            longest_stall: 0,
            last_reply: 0,
        }
    }

    /// Replies count from this time on.
    pub(super) fn measure_from(&mut self, at: u64) {
        self.measured_from = at;
    }

    /// An operation was sent.
    pub(super) fn sent(&mut self, now: u64) {
        if self.outstanding == 0 {
            self.quiet_since = now;
        }
        self.outstanding += 1;
    }

    /// Something came. Before the operations that it completes are told.
    pub(super) fn heard(&mut self, now: u64) {
        let stall = now.saturating_sub(self.quiet_since.max(self.measured_from));
        self.longest_stall = self.longest_stall.max(stall);
        self.quiet_since = now;
        self.last_reply = now;
    }

    /// An operation is done; `found` says whether there was a value.
    pub(super) fn answered(&mut self, kind: Kind, found: bool, intended: u64, now: u64) {
        self.outstanding -= 1;
        if now >= self.measured_from {
            self.latencies
                .saturating_record(now.saturating_sub(intended).max(1));
            self.gets += u64::from(kind == Kind::Get);
            self.hits += u64::from(kind == Kind::Get && found);
        }
    }

    /// An operation was answered with an error, which begins with a word that says of which kind it
    /// is.
    pub(super) fn failed(&mut self, error: &str) {
        self.outstanding -= 1;
        self.count(error.split_whitespace().next().unwrap_or(OTHERS), 1);
        self.first_error.get_or_insert_with(|| error.to_owned());
    }

    /// The run is over: nobody waits any longer.
    pub(super) fn finish(&mut self, now: u64) {
        if self.outstanding > 0 {
            self.heard(now);
            self.count(UNANSWERED, self.outstanding);
            self.outstanding = 0;
        }
    }

    fn count(&mut self, kind: &str, n: u64) {
        let kind = if self.errors.len() < ERROR_KINDS_MAX || self.errors.contains_key(kind) {
            kind
        } else {
            OTHERS
        };
        match self.errors.get_mut(kind) {
            Some(count) => *count += n,
            None => drop(self.errors.insert(kind.to_owned(), n)),
        }
    }

    /// What another thread counted beside this one. Stalls are those of one thread: while others
    /// hear, it may hear nothing.
    pub(super) fn merge(&mut self, other: Self) {
        self.latencies += other.latencies;
        self.measured_from = self.measured_from.min(other.measured_from);
        self.gets += other.gets;
        self.hits += other.hits;
        other
            .errors
            .iter()
            .for_each(|(kind, n)| self.count(kind, *n));
        self.first_error = self.first_error.take().or(other.first_error);
        self.outstanding += other.outstanding;
        self.longest_stall = self.longest_stall.max(other.longest_stall);
        self.last_reply = self.last_reply.max(other.last_reply);
    }

    /// Operations that are not answered.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Since when nothing came.
    pub(super) fn quiet_since(&self) -> u64 {
        self.quiet_since
    }

    /// Operations that were done, without errors, while it was measured.
    pub(super) fn operations(&self) -> u64 {
        self.latencies.len()
    }

    /// How long they took from their intended start.
    pub(super) fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// Of the operations: reads, and those that found something.
    pub(super) fn gets_and_hits(&self) -> (u64, u64) {
        (self.gets, self.hits)
    }

    /// Errors by their first word.
    pub(super) fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    /// The first error, in full.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// The longest time without any reply while some were awaited.
    pub(super) fn longest_stall(&self) -> u64 {
        self.longest_stall
    }

    /// From the beginning of the measurement to its last reply.
    pub(super) fn span(&self) -> u64 {
        self.last_reply.saturating_sub(self.measured_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_before_the_measurement_is_not_counted() {
        let mut recorder = Recorder::new();
        recorder.measure_from(100);
        for (sent, replied) in [(10, 99), (20, 100), (150, 170)] {
            recorder.sent(sent);
            recorder.heard(replied);
            recorder.answered(Kind::Get, replied != 100, sent, replied);
        }
        assert_eq!(
            (
                recorder.operations(),
                recorder.gets_and_hits(),
                recorder.span()
            ),
            (2, (2, 1), 70)
        );
        assert_eq!(
            (recorder.latencies().min(), recorder.latencies().max()),
            (20, 80)
        );
    }

    #[test]
    fn quiet_times_without_operations_are_no_stall() {
        let mut recorder = Recorder::new();
        recorder.measure_from(0);
        recorder.sent(10);
        recorder.heard(15);
        recorder.answered(Kind::Set, true, 10, 15);
        recorder.sent(1000);
        recorder.sent(1001);
        recorder.heard(1007);
        recorder.answered(Kind::Set, true, 1000, 1007);
        assert_eq!(recorder.longest_stall(), 7);
        // The other one is never answered.
        recorder.finish(1050);
        assert_eq!(
            (
                recorder.longest_stall(),
                recorder.errors()["unanswered"],
                recorder.outstanding()
            ),
            (43, 1, 0)
        );
    }

    #[test]
    fn a_stall_counts_from_the_beginning_of_the_measurement() {
        let mut recorder = Recorder::new();
        recorder.measure_from(100);
        recorder.sent(10);
        recorder.heard(130);
        assert_eq!(recorder.longest_stall(), 30);
    }

    #[test]
    fn errors_count_by_their_first_word() {
        let (mut one, mut two) = (Recorder::new(), Recorder::new());
        (0..3).for_each(|_| one.sent(0));
        one.failed("BUSY too much");
        one.failed("ERR unknown command");
        one.failed("BUSY again");
        two.sent(0);
        two.failed("BUSY elsewhere");
        one.merge(two);
        assert_eq!(
            one.errors()
                .iter()
                .map(|(k, n)| (k.as_str(), *n))
                .collect::<Vec<_>>(),
            [("BUSY", 3), ("ERR", 1)]
        );
        assert_eq!(one.first_error(), Some("BUSY too much"));
    }

    #[test]
    fn errors_of_many_kinds_do_not_grow_without_limit() {
        let mut recorder = Recorder::new();
        for n in 0..1000 {
            recorder.sent(0);
            recorder.failed(&format!("E{n} what"));
        }
        assert_eq!(recorder.errors().len(), ERROR_KINDS_MAX + 1);
        assert_eq!(recorder.errors().values().sum::<u64>(), 1000);
    }
}
