//! What happened, and when: operations of each second, waits of clients, and faults.

use crate::say;
use doyen::testkit::Cluster;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Shorter waits do not count as unavailability, and are not kept.
const WAIT_LEAST: Duration = Duration::from_millis(10);
/// Waits that are kept, at most; further ones are dropped.
const WAITS_MAX: usize = 1 << 20;

/// What has happened so far. All times count from the beginning of the run.
#[derive(Debug)]
pub(super) struct Book {
    began: Instant,
    aloud: bool,
    /// Whether the figures of every second are printed as well.
    seconds_aloud: bool,
    /// The RESP address of each node, as far as clients know. Clients are not told of deaths.
    pub(super) endpoints: BTreeMap<usize, SocketAddr>,
    /// Nodes that the present fault took away. A wait for such a node does not count against the
    /// cluster.
    pub(super) excused: BTreeSet<usize>,
    pub(super) second: Second,
    pub(super) seconds: Vec<Second>,
    pub(super) waits: Vec<BookedWait>,
    pub(super) faults: Vec<Fault>,
}

/// The answers of one second.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Second {
    /// Operations with an answer.
    pub(super) answered: u64,
    /// Writes whose outcome is unknown.
    pub(super) unknown: u64,
    /// Operations that were refused: they certainly did not happen.
    pub(super) refused: u64,
}

/// The time from a client's first attempt to its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct BookedWait {
    began: Duration,
    ended: Duration,
}

/// A fault, from its beginning until all data was safe again.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) healed: Duration,
    /// Whether all data became safe again.
    pub(super) safe: bool,
    /// The run ended before the fault did.
    pub(super) cut_short: bool,
}

impl Fault {
    pub(super) fn begin(book: &Book, kind: impl Into<String>, text: String) -> Self {
        let now = book.elapsed();
        Self {
            kind: kind.into(),
            text,
            began: now,
            ended: now,
            healed: now,
            safe: false,
            cut_short: false,
        }
    }

    pub(super) fn end(&mut self, book: &Book) {
        self.ended = book.elapsed();
    }

    pub(super) fn heal(&mut self, book: &Book, safe: bool) {
        (self.healed, self.safe) = (book.elapsed(), safe);
    }

    pub(super) fn lasted(&self) -> Duration {
        self.ended - self.began
    }

    pub(super) fn healing(&self) -> Duration {
        self.healed - self.ended
    }
}

impl Book {
    /// `aloud`: print what happens.
    pub(super) fn new(aloud: bool) -> Self {
        Self {
            began: Instant::now(),
            aloud,
            seconds_aloud: true,
            endpoints: BTreeMap::new(),
            excused: BTreeSet::new(),
            second: Second::default(),
            seconds: Vec::new(),
            waits: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// For runs of hours: print faults, but not every second.
    pub(super) fn without_seconds(self) -> Self {
        Self {
            seconds_aloud: false,
            ..self
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn say(&self, text: fmt::Arguments<'_>) {
        if self.aloud {
            say(format_args!(
                "{:7.2} s  {text}\n",
                self.elapsed().as_secs_f64()
            ));
        }
    }

    /// Tells clients the addresses of the nodes that run now.
    pub(super) fn see(&mut self, cluster: &Cluster) {
        self.endpoints = cluster
            .running()
            .filter_map(|node| Some((node, cluster.resp(node)?)))
            .collect();
    }

    /// Notes that a client which began to ask at `began` has an answer.
    pub(super) fn waited(&mut self, began: Instant) {
        let wait = BookedWait {
            began: began - self.began,
            ended: self.elapsed(),
        };
        if wait.ended - wait.began >= WAIT_LEAST && self.waits.len() < WAITS_MAX {
            self.waits.push(wait);
        }
    }

    /// The longest wait of a client between the beginning of this fault and the time when all data
    /// was safe again.
    pub(super) fn unavailable(&self, fault: &Fault) -> Duration {
        let during = self
            .waits
            .iter()
            .filter(|w| w.began < fault.healed && w.ended > fault.began);
        during.map(|w| w.ended - w.began).max().unwrap_or_default()
    }

    /// Ends the current second.
    pub(super) fn tick(&mut self) {
        let Second {
            answered,
            unknown,
            refused,
        } = std::mem::take(&mut self.second);
        self.seconds.push(Second {
            answered,
            unknown,
            refused,
        });
        if !self.seconds_aloud {
            return;
        }
        self.say(format_args!(
            "  {answered:>6} operations/s  {unknown} unknown  {refused} refused"
        ));
    }

    pub(super) fn total(&self, of: fn(&Second) -> u64) -> u64 {
        self.seconds.iter().chain([&self.second]).map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_charged_with_the_waits_that_it_overlaps() {
        let mut book = Book::new(false);
        let [s1, s2, s5, s9] = [1, 2, 5, 9].map(Duration::from_secs);
        book.waits = vec![
            BookedWait {
                began: Duration::ZERO,
                ended: s1,
            },
            BookedWait {
                began: s1,
                ended: s5,
            },
            BookedWait {
                began: s5,
                ended: s9,
            },
        ];
        let fault = Fault {
            kind: "kill".into(),
            text: String::new(),
            began: s2,
            ended: s2,
            healed: s5,
            safe: true,
            cut_short: false,
        };
        assert_eq!(book.unavailable(&fault), Duration::from_secs(4));
    }
}
