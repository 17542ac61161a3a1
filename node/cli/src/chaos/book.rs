//! What happened, and when: operations by the second, waits, faults.

use crate::say;
use doyen::testkit::Cluster;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Shorter waits are no unavailability, and are not kept.
const WAIT_LEAST: Duration = Duration::from_millis(10);
/// Waits kept at most: what comes beyond that is no longer kept.
const WAITS_MAX: usize = 1 << 20;

/// What happened so far. All times are since it began.
#[derive(Debug)]
pub(super) struct Book {
    began: Instant,
    aloud: bool,
    /// Whether every second's figures are printed, too.
    seconds_aloud: bool,
    /// Where Redis clients reach each node, as clients know it: nobody tells them that one is dead.
    pub(super) endpoints: BTreeMap<usize, SocketAddr>,
    /// Nodes that were taken away by the present fault: who waits for them waits for what was done,
    /// not for the cluster.
    pub(super) excused: BTreeSet<usize>,
    pub(super) second: Second,
    pub(super) seconds: Vec<Second>,
    pub(super) waits: Vec<Wait>,
    pub(super) faults: Vec<Fault>,
}

/// What was answered in a second.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Second {
    /// Operations with an answer.
    pub(super) answered: u64,
    /// Writes of which nobody knows.
    pub(super) unknown: u64,
    /// What certainly did not happen.
    pub(super) refused: u64,
}

/// A client's way from its first question to an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    began: Duration,
    ended: Duration,
}

/// A fault, from its beginning until all was safe again.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) healed: Duration,
    /// Whether it was.
    pub(super) safe: bool,
    /// The end of the run came before its own.
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
    /// `aloud`: what happens is printed.
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

    /// Of a run of hours: faults are told, and not every second.
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

    /// Clients learn where the nodes are that run now.
    pub(super) fn see(&mut self, cluster: &Cluster) {
        self.endpoints = cluster
            .running()
            .filter_map(|node| Some((node, cluster.resp(node)?)))
            .collect();
    }

    /// A client that had asked since `began` has an answer.
    pub(super) fn waited(&mut self, began: Instant) {
        let wait = Wait {
            began: began - self.began,
            ended: self.elapsed(),
        };
        if wait.ended - wait.began >= WAIT_LEAST && self.waits.len() < WAITS_MAX {
            self.waits.push(wait);
        }
    }

    /// The longest that a client waited for an answer while this lasted, until all was safe.
    pub(super) fn unavailable(&self, fault: &Fault) -> Duration {
        let during = self
            .waits
            .iter()
            .filter(|w| w.began < fault.healed && w.ended > fault.began);
        during.map(|w| w.ended - w.began).max().unwrap_or_default()
    }

    /// A second is over.
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
            Wait {
                began: Duration::ZERO,
                ended: s1,
            },
            Wait {
                began: s1,
                ended: s5,
            },
            Wait {
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
