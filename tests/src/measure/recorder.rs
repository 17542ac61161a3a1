//! What operations took, and how they failed.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest latency that is kept apart: an hour, in microseconds.
const LATENCY_MAX: u64 = 3_600_000_000;

/// Latencies, to within one percent, and failures by their reasons.
#[derive(Debug)]
pub(crate) struct Recorder {
    microseconds: Histogram<u64>,
    failures: BTreeMap<String, u64>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        // The bounds are right: 1 is at least 1, and the other one is more than twice that.
        let microseconds =
            Histogram::new_with_bounds(1, LATENCY_MAX, 2).expect("bounds of a histogram");
        Self {
            microseconds,
            failures: BTreeMap::new(),
        }
    }

    /// An operation has taken this time.
    pub(crate) fn took(&mut self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.saturating_record(microseconds.max(1));
    }

    /// An operation has failed.
    pub(crate) fn failed(&mut self, why: impl Into<String>) {
        *self.failures.entry(why.into()).or_default() += 1;
    }

    /// Adds what another one has recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        self.microseconds += &other.microseconds;
        for (why, count) in &other.failures {
            *self.failures.entry(why.clone()).or_default() += count;
        }
    }

    /// The number of operations that took some time.
    pub(crate) fn count(&self) -> u64 {
        self.microseconds.len()
    }

    /// The latency, in milliseconds, that this part of all operations did not exceed.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        self.microseconds.value_at_quantile(part) as f64 / 1e3
    }

    /// The longest latency, in milliseconds.
    pub(crate) fn longest(&self) -> f64 {
        self.microseconds.max() as f64 / 1e3
    }

    /// The number of failures, and one of their reasons.
    pub(crate) fn failures(&self) -> (u64, Option<&str>) {
        let reason = self.failures.keys().next().map(String::as_str);
        (self.failures.values().sum(), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_recorded_adds_up() {
        let mut all = Recorder::new();
        for milliseconds in 1..=100 {
            let mut one = Recorder::new();
            one.took(Duration::from_millis(milliseconds));
            one.failed("closed");
            all.add(&one);
        }
        assert_eq!((all.count(), all.failures()), (100, (100, Some("closed"))));
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(near(all.quantile(0.5), 50.0) && near(all.longest(), 100.0));
    }
}
