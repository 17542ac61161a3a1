//! Counters of the control thread for metrics: traffic, the time that tables take, lapses of the
//! lease, and events. Also what it answers to other members without knowing it by itself.

use crate::history::NodeHistory;
use crate::net::traffic::Traffic;
use doyen_gossip::Time;
use doyen_gossip::agreement::{Event, Stage};
use doyen_placement::MemberId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Times of commits that are kept until they are asked for. Of more, the oldest are kept.
const SAMPLES_MAX: usize = 4096;

/// A member asks for the clients of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientsAsked {
    /// The member.
    pub from: MemberId,
    /// The id of its request.
    pub ticket: u64,
}

/// What events told, in numbers.
#[derive(Debug, Clone, Default)]
pub struct HappenedCounts {
    /// How many events of each kind there were.
    pub events: BTreeMap<&'static str, u64>,
    /// Partitions that began empty because every copy was lost.
    pub lost: u64,
    /// Partitions that reached each stage of a move, in the order of [`Stage::ALL`].
    pub stages: [u64; Stage::ALL.len()],
}

/// Written by the control thread, read for metrics by others.
#[derive(Debug, Default)]
pub struct Counted {
    /// What the control network carries.
    pub traffic: Arc<Traffic>,
    /// The last hour of this node.
    pub history: NodeHistory,
    /// Takes questions of other members about the clients of this node. Only data threads know
    /// them, and the control thread waits for no data thread; so the console asks them and answers.
    /// Empty: this node serves no console.
    pub clients_asked: OnceLock<mpsc::Sender<ClientsAsked>>,
    lapses: AtomicU64,
    lapsed_us: AtomicU64,
    /// Seconds from proposal to commit. Two threads use the lock, and hold it only for a push or a
    /// swap.
    commits: Mutex<Vec<f64>>,
    /// The same.
    happened: Mutex<HappenedCounts>,
}

impl Counted {
    /// Notes that a lease which ended at `until` was extended at `now`.
    pub fn renewed(&self, until: Time, now: Time) {
        if until > Time::ZERO && until < now {
            self.lapses.fetch_add(1, Ordering::Relaxed);
            self.lapsed_us.fetch_add(
                u64::try_from(now.since(until).as_micros()).unwrap_or(u64::MAX),
                Ordering::Relaxed,
            );
        }
    }

    /// How often a lease lapsed and came back, and the total time during which nothing could be
    /// served.
    #[must_use]
    pub fn lapses(&self) -> (u64, Duration) {
        (
            self.lapses.load(Ordering::Relaxed),
            Duration::from_micros(self.lapsed_us.load(Ordering::Relaxed)),
        )
    }

    /// Notes that a table of this node was committed.
    pub fn committed(&self, took: Duration) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if commits.len() < SAMPLES_MAX {
            commits.push(took.as_secs_f64());
        }
    }

    /// How long commits took, in seconds, since the last call.
    #[must_use]
    pub fn take_commits(&self) -> Vec<f64> {
        std::mem::take(&mut *self.commits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts an event.
    pub fn event(&self, event: &Event) {
        let mut happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        *happened.events.entry(event.kind()).or_default() += 1;
        match event {
            Event::Lost { partitions, .. } => happened.lost += *partitions as u64,
            Event::Moved { stage, count, .. } => {
                let places = Stage::ALL.iter().zip(&mut happened.stages);
                places
                    .filter(|(s, _)| *s == stage)
                    .for_each(|(_, reached)| *reached += *count as u64);
            }
            _ => {}
        }
    }

    /// What events told so far.
    #[must_use]
    pub fn happened(&self) -> HappenedCounts {
        self.happened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_renewed_in_time_does_not_lapse() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let counted = Counted::default();
        counted.renewed(Time::ZERO, at(100));
        counted.renewed(at(600), at(200));
        assert_eq!(counted.lapses(), (0, Duration::ZERO));
        counted.renewed(at(600), at(650));
        assert_eq!(counted.lapses(), (1, Duration::from_millis(50)));
    }
}
