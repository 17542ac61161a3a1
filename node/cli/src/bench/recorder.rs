//! Records the results: latencies, errors, hits, and the longest time without a reply. Times are in
//! nanoseconds.

use super::plan::OperationKind;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// The histogram holds latencies up to an hour, with three significant digits.
const LATENCY_MAX: u64 = 3_600_000_000_000;
/// Kinds of errors that are counted separately. All further kinds are counted together.
const ERROR_KINDS_MAX: usize = 32;
/// The kind of operations that had no reply when the run ended.
const UNANSWERED: &str = "unanswered";
/// The kind that collects errors of further kinds.
const OTHERS: &str = "others";

/// The counts of one thread. Errors count from the beginning. Latencies and stalls count from
/// `measure_from` on, even if the operation began earlier.
#[derive(Debug)]
pub(super) struct Recorder {
    measured_from: u64,
    latencies: Histogram<u64>,
    gets: u64,
    hits: u64,
    errors: BTreeMap<String, u64>,
    first_error: Option<String>,
    outstanding: u64,
    /// The time of the last reply, or of the first operation that was sent while none was
    /// unanswered.
    quiet_since: u64,
    longest_stall: u64,
    last_reply: u64,
}

impl Recorder {
    /// A recorder that does not measure yet.
    pub(super) fn new() -> Self {
        Self {
            measured_from: u64::MAX,
            // The lower bound is at least 1, and the upper one is more than twice the lower.
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

    /// Bytes arrived. Called before the operations that they complete.
    pub(super) fn heard(&mut self, now: u64) {
        let stall = now.saturating_sub(self.quiet_since.max(self.measured_from));
        self.longest_stall = self.longest_stall.max(stall);
        self.quiet_since = now;
        self.last_reply = now;
    }

    /// An operation succeeded; `found`: there was a value.
    pub(super) fn answered(&mut self, kind: OperationKind, found: bool, intended: u64, now: u64) {
        self.outstanding -= 1;
        if now >= self.measured_from {
            self.latencies
                .saturating_record(now.saturating_sub(intended).max(1));
            self.gets += u64::from(kind == OperationKind::Get);
            self.hits += u64::from(kind == OperationKind::Get && found);
        }
    }

    /// An operation was answered with an error. The first word of the error is its kind.
    pub(super) fn failed(&mut self, error: &str) {
        self.outstanding -= 1;
        self.count(error.split_whitespace().next().unwrap_or(OTHERS), 1);
        self.first_error.get_or_insert_with(|| error.to_owned());
    }

    /// The run is over: unanswered operations are counted as errors.
    pub(super) fn finish(&mut self, now: u64) {
        if self.outstanding > 0 {
            self.heard(now);
            self.count(UNANSWERED, self.outstanding);
            self.outstanding = 0;
        }
    }

    /// Whether operations were unanswered when the run ended: their replies may come later.
    pub(super) fn lacks_replies(&self) -> bool {
        self.errors.contains_key(UNANSWERED)
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

    /// Adds the counts of another thread. A stall belongs to one thread: it may get no reply while
    /// other threads do.
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

    /// Operations that are unanswered.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// The time since which nothing has arrived.
    pub(super) fn quiet_since(&self) -> u64 {
        self.quiet_since
    }

    /// Operations that succeeded during the measurement.
    pub(super) fn operations(&self) -> u64 {
        self.latencies.len()
    }

    /// Their latencies, from the intended start.
    pub(super) fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// The reads among them, and the reads that found a value.
    pub(super) fn gets_and_hits(&self) -> (u64, u64) {
        (self.gets, self.hits)
    }

    /// Counts of errors by their first word.
    pub(super) fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    /// The full text of the first error.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// The longest time without any reply while operations were unanswered.
    pub(super) fn longest_stall(&self) -> u64 {
        self.longest_stall
    }

    /// The time from the beginning of the measurement to its last reply.
    pub(super) fn span(&self) -> u64 {
        self.last_reply.saturating_sub(self.measured_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_before_the_measurement_are_not_counted() {
        let mut recorder = Recorder::new();
        recorder.measure_from(100);
        for (sent, replied) in [(10, 99), (20, 100), (150, 170)] {
            recorder.sent(sent);
            recorder.heard(replied);
            recorder.answered(OperationKind::Get, replied != 100, sent, replied);
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
    fn a_time_without_operations_is_no_stall() {
        let mut recorder = Recorder::new();
        recorder.measure_from(0);
        recorder.sent(10);
        recorder.heard(15);
        recorder.answered(OperationKind::Set, true, 10, 15);
        recorder.sent(1000);
        recorder.sent(1001);
        recorder.heard(1007);
        recorder.answered(OperationKind::Set, true, 1000, 1007);
        assert_eq!(recorder.longest_stall(), 7);
        // The other operation is never answered.
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
