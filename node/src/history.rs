//! What a node did in its last hour, for people: one sample in five seconds, in a ring of fixed
//! size. The console writes the samples, and every member answers for its own.

use minicbor::{Decode, Encode};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time between two samples.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// An hour of samples.
pub const SAMPLES: usize = 720;

/// What a node did in [`INTERVAL`], and what it holds. Rates are per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct Sample {
    /// Commands of Redis clients.
    #[n(0)]
    pub commands: u64,
    /// Operations that it executed as a primary: for its own clients, other members, and the
    /// library.
    #[n(1)]
    pub operations: u64,
    /// Commands of Redis clients that were answered with an error.
    #[n(2)]
    pub errors: u64,
    /// Half of the commands took no longer than this, in microseconds. `None`: there were none.
    #[n(3)]
    pub p50_us: Option<u64>,
    /// 99 of 100 commands took no longer than this.
    #[n(4)]
    pub p99_us: Option<u64>,
    /// Reads that found their key.
    #[n(5)]
    pub hits: u64,
    /// Reads that did not.
    #[n(6)]
    pub misses: u64,
    /// Bytes from and to clients.
    #[n(7)]
    pub client_bytes: u64,
    /// Bytes sent to other nodes, with those that were sent again.
    #[n(8)]
    pub peer_bytes: u64,
    /// Bytes of data, tails and snapshots that it holds.
    #[n(9)]
    pub memory: u64,
    /// The limit of `memory`.
    #[n(10)]
    pub memory_max: u64,
    /// Connected clients of both kinds.
    #[n(11)]
    pub clients: u64,
}

/// Samples that follow each other, the newest one last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Samples {
    /// The number of the sample after the last one: how many samples the process has taken.
    #[n(0)]
    pub next: u64,
    /// The samples, oldest first.
    #[n(1)]
    pub samples: Vec<Sample>,
}

/// The last hour of a node.
#[derive(Debug, Default)]
pub struct NodeHistory(Mutex<HistoryRing>);

#[derive(Debug, Default)]
struct HistoryRing {
    next: u64,
    kept: VecDeque<Sample>,
}

impl NodeHistory {
    /// Keeps a sample, and forgets the one of an hour ago.
    pub fn push(&self, sample: Sample) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.kept.len() == SAMPLES {
            ring.kept.pop_front();
        }
        ring.kept.push_back(sample);
        ring.next += 1;
    }

    /// The samples from this number on, as far as they are kept.
    #[must_use]
    pub fn since(&self, number: u64) -> Samples {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = usize::try_from(ring.next.saturating_sub(number)).unwrap_or(SAMPLES);
        let skipped = ring.kept.len().saturating_sub(wanted);
        Samples {
            next: ring.next,
            samples: ring.kept.iter().skip(skipped).copied().collect(),
        }
    }
}

impl Samples {
    /// As far as another member's word counts: an hour at most.
    #[must_use]
    pub fn checked(mut self) -> Self {
        let above = self.samples.len().saturating_sub(SAMPLES);
        self.samples.drain(..above);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(commands: u64) -> Sample {
        Sample {
            commands,
            ..Sample::default()
        }
    }

    #[test]
    fn an_hour_is_kept_and_asked_for_from_any_number() {
        let history = NodeHistory::default();
        assert_eq!(history.since(0), Samples::default());
        let all = SAMPLES as u64 + 10;
        for n in 0..all {
            history.push(sample(n));
        }
        let numbers = |since| {
            let Samples { next, samples } = history.since(since);
            assert_eq!(next, all);
            samples.iter().map(|s| s.commands).collect::<Vec<_>>()
        };
        assert_eq!(numbers(0), (10..all).collect::<Vec<_>>());
        assert_eq!(numbers(all - 2), [all - 2, all - 1]);
        assert_eq!(numbers(all), [0; 0]);
        assert_eq!(numbers(u64::MAX), [0; 0]);
    }

    #[test]
    fn of_another_member_an_hour_is_taken_at_most() {
        let samples = (0..1000).map(sample).collect();
        let taken = Samples { next: 5, samples }.checked();
        assert_eq!(taken.samples.len(), SAMPLES);
        assert_eq!(taken.samples[0], sample(280));
    }
}
