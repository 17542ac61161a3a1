//! Lookups of names that this node does not know yet. If another member has just made a keyspace or
//! a map, its table is committed, and is on the way here. So this node asks the coordinator which
//! table is committed, and waits for that one.
//!
//! One question serves all lookups that were waiting when it was asked. The rate of questions is
//! limited, so that lookups of names that do not exist cannot overload the coordinator.
use super::ClusterStatus;
use super::driver::ControlDriver;
use crate::clock;
use doyen_gossip::{Input, Time};
use doyen_placement::TableName;
use std::time::Duration;
use tokio::sync::oneshot;

/// The average distance between two questions, at least.
const INTERVAL: Duration = Duration::from_millis(200);
/// After a pause, questions may follow each other at once until they are this far ahead of the
/// average.
const AHEAD_MAX: Duration = Duration::from_secs(4);
/// How long a lookup waits for the coordinator and for its table, at most.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lookups that wait at the same time, at most. Further ones are answered from what this node
/// knows.
const WAITING_MAX: usize = 4096;
/// The number of new lookups after which those that gave up are removed. Removing looks at all of
/// them, so it does not happen each time.
const SWEPT_EVERY: usize = WAITING_MAX / 8;

/// Lookups that wait for the newest table.
#[derive(Debug, Default)]
pub(super) struct CatchingUp {
    /// Lookups for the next question.
    waiting: WaitingLookups,
    round: Option<QuestionRound>,
    pace: QuestionRate,
}

/// Lookups that the next question serves.
#[derive(Debug, Default)]
struct WaitingLookups {
    lookups: Vec<oneshot::Sender<()>>,
    /// How many came since the last removal.
    unswept: usize,
}

impl WaitingLookups {
    /// Adds a lookup. If too many wait, it is dropped, and thereby answered.
    fn push(&mut self, lookup: oneshot::Sender<()>) {
        self.unswept += 1;
        if self.unswept >= SWEPT_EVERY {
            self.unswept = 0;
            self.lookups.retain(|waiting| !waiting.is_closed());
        }
        if self.lookups.len() < WAITING_MAX {
            self.lookups.push(lookup);
        }
    }
}

/// A question under way, and the lookups that it serves.
#[derive(Debug)]
struct QuestionRound {
    waiting: Vec<oneshot::Sender<()>>,
    until: Time,
    step: RoundStep,
}

#[derive(Debug)]
enum RoundStep {
    /// The coordinator was asked.
    Asked(oneshot::Receiver<ClusterStatus>),
    /// This table is committed.
    Committed(TableName),
}

/// When the next question may be asked.
#[derive(Debug, Default)]
struct QuestionRate {
    next: Time,
}

impl QuestionRate {
    fn may_ask(&mut self, now: Time) -> bool {
        let may = self.next <= now + AHEAD_MAX;
        if may {
            self.next = self.next.max(now) + INTERVAL;
        }
        may
    }
}

impl CatchingUp {
    /// `answer` is sent once this node has installed every table that was committed before now, or
    /// cannot find out.
    pub(super) fn wait(&mut self, answer: oneshot::Sender<()>) {
        self.waiting.push(answer);
    }
}

impl ControlDriver {
    /// Continues with the question under way, or asks the next one.
    pub(super) fn go_on_catching_up(&mut self, now: Time) {
        if let Some(mut round) = self.catching_up.round.take() {
            if let RoundStep::Asked(answered) = &mut round.step {
                match answered.try_recv() {
                    Ok(ClusterStatus {
                        status,
                        from_coordinator: true,
                        ..
                    }) if status.installed.is_some() => {
                        // Usually the table arrives by itself a moment later.
                        if let Some(name) = status.installed {
                            self.handle(Input::Pull(name));
                            self.carry_out();
                            round.step = RoundStep::Committed(name);
                        }
                    }
                    Err(oneshot::error::TryRecvError::Empty) => {}
                    // There is no coordinator: rely on what this node knows.
                    Ok(_) | Err(oneshot::error::TryRecvError::Closed) => round.until = now,
                }
            }
            let reached =
                matches!(&round.step, RoundStep::Committed(name) if self.has_installed(*name));
            if !reached && now < round.until {
                self.catching_up.round = Some(round);
                return;
            }
            for answer in round.waiting {
                let _ = answer.send(());
            }
        }
        if !self.catching_up.waiting.lookups.is_empty() && self.catching_up.pace.may_ask(now) {
            let (answer, answered) = oneshot::channel();
            let waiting = std::mem::take(&mut self.catching_up.waiting.lookups);
            self.catching_up.round = Some(QuestionRound {
                waiting,
                until: now + PATIENCE,
                step: RoundStep::Asked(answered),
            });
            self.on_status(answer);
            // If this node is the coordinator, the answer has already come.
            self.go_on_catching_up(clock::now());
        }
    }

    /// Whether data threads see this table or a later one. A table of another cluster is not
    /// awaited.
    fn has_installed(&self, name: TableName) -> bool {
        let Some(table) = self.installed() else {
            return false;
        };
        table.cluster != name.cluster || (table.term, table.version) >= name.order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each lookup used to look at all waiting ones, so the cost of many at once was quadratic.
    #[test]
    fn lookups_that_gave_up_make_room_but_are_not_searched_each_time() {
        let mut waiting = WaitingLookups::default();
        let gave_up = || oneshot::channel().0;
        (1..SWEPT_EVERY).for_each(|_| waiting.push(gave_up()));
        assert_eq!(
            waiting.lookups.len(),
            SWEPT_EVERY - 1,
            "no lookup was removed yet"
        );
        waiting.push(gave_up());
        assert_eq!(waiting.lookups.len(), 1);
        let (mut others, mut receivers) = (WaitingLookups::default(), Vec::new());
        for _ in 0..2 * WAITING_MAX {
            let (lookup, receiver) = oneshot::channel();
            others.push(lookup);
            receivers.push(receiver);
        }
        assert_eq!(others.lookups.len(), WAITING_MAX);
        receivers.clear();
        (0..SWEPT_EVERY).for_each(|_| others.push(gave_up()));
        assert!(
            others.lookups.len() < SWEPT_EVERY,
            "a full list has room once its lookups gave up"
        );
    }

    #[test]
    fn questions_follow_at_once_after_a_pause_but_their_average_rate_is_limited() {
        let (mut pace, begin) = (
            QuestionRate::default(),
            Time::ZERO + Duration::from_secs(100),
        );
        let burst = (0..1000).filter(|_| pace.may_ask(begin)).count();
        assert_eq!(burst, 21);
        let minute = (0..60_000)
            .filter(|ms| pace.may_ask(begin + Duration::from_millis(*ms)))
            .count();
        assert!((295..=301).contains(&minute), "{minute}");
        let rested = (0..1000)
            .filter(|_| pace.may_ask(begin + Duration::from_secs(120)))
            .count();
        assert_eq!(rested, 21);
    }
}
