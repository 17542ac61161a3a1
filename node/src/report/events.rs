//! Events that this node has learned of. The last ones are kept, and readers can wait for the next
//! one.

use crate::advice;
use doyen_gossip::agreement::{Event, Severity};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Events that are kept, without steps of moves.
const EVENTS_MAX: usize = 1024;
/// Steps of moves that are kept. There may be as many in a second, and they must not push out other
/// events.
const STEPS_MAX: usize = 512;

/// An event with its number and the time at which this node learned of it.
///
/// As JSON: `{"number": 7, "at": "2026-11-23T10:00:00.000Z", "severity": "warning", "kind":
/// "expelled", .., "text": ".."}`, with further fields that depend on the kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedEvent {
    /// Counts this node's events, from 1 on.
    pub number: u64,
    /// By this node's clock, in UTC.
    #[serde(serialize_with = "rfc3339")]
    pub at: SystemTime,
    /// `info`, `warning` or `error`.
    #[serde(serialize_with = "severity")]
    pub severity: Severity,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// The same as a line for people.
    pub text: String,
}

/// The last events of a node. Writers and readers share it. The lock is held for a moment, and
/// never across an await.
#[derive(Debug)]
pub(crate) struct EventLog {
    kept: Mutex<Kept>,
    last: watch::Sender<u64>,
}

/// In order of their numbers.
#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<LoggedEvent>,
    steps: VecDeque<LoggedEvent>,
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self {
            kept: Mutex::default(),
            last: watch::Sender::new(0),
        }
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: Event) {
        let number = *self.last.borrow() + 1;
        let text = advice::event_text(&event);
        let step = matches!(event, Event::Moved { .. }) && event.severity() == Severity::Info;
        let logged = LoggedEvent {
            number,
            at: SystemTime::now(),
            severity: event.severity(),
            event,
            text,
        };
        let mut kept = self.kept();
        let (list, most) = if step {
            (&mut kept.steps, STEPS_MAX)
        } else {
            (&mut kept.events, EVENTS_MAX)
        };
        if list.len() >= most {
            list.pop_front();
        }
        list.push_back(logged);
        drop(kept);
        self.last.send_replace(number);
    }

    /// The events after the one with this number, as far as they are kept.
    pub(crate) fn since(&self, number: u64) -> Vec<LoggedEvent> {
        let kept = self.kept();
        let mut all: Vec<_> = kept
            .events
            .iter()
            .chain(&kept.steps)
            .filter(|logged| logged.number > number)
            .cloned()
            .collect();
        all.sort_by_key(|logged| logged.number);
        all
    }

    /// The number of the last event. It changes with every event.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No holder of the lock panics, and the lists are whole at any time.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rfc3339<S: serde::Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&utc(*at))
}

fn severity<S: serde::Serializer>(severity: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    })
}

/// `2026-11-23T10:00:00.000Z`.
pub(crate) fn utc(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// The minute of the day, in UTC.
pub(crate) fn minute_of_day() -> u16 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u16::try_from(since.as_secs() / 60 % (24 * 60)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_gossip::agreement::Stage;

    #[test]
    fn the_last_events_are_kept_and_told_from_any_number_on() {
        let log = EventLog::new();
        let watch = log.watch();
        (0..EVENTS_MAX + 3).for_each(|n| log.push(Event::note(format!("line {n}"))));
        assert_eq!(*watch.borrow(), EVENTS_MAX as u64 + 3);
        let all = log.since(0);
        assert_eq!((all.len(), all[0].number), (EVENTS_MAX, 4));
        let last = log.since(EVENTS_MAX as u64 + 2);
        let json = serde_json::to_value(&last).expect("it can be written");
        assert_eq!(json[0]["text"], "line 1026");
        assert_eq!(
            (&json[0]["kind"], &json[0]["severity"]),
            (&"note".into(), &"warning".into())
        );
        // Steps of moves take the places of steps alone, and what is told stays in order.
        let step = || Event::Moved {
            stage: Stage::Copying,
            count: 1,
            partitions: Vec::new(),
            members: Vec::new(),
        };
        (0..STEPS_MAX * 3).for_each(|_| log.push(step()));
        log.push(Event::note("after them"));
        let all = log.since(0);
        assert_eq!(all.len(), EVENTS_MAX + STEPS_MAX);
        assert!(all.is_sorted_by_key(|logged| logged.number));
        assert_eq!(
            (&*all[0].text, &*all[all.len() - 1].text),
            ("line 4", "after them")
        );
        assert!(
            json[0]["at"]
                .as_str()
                .is_some_and(|at| at.ends_with('Z') && at.len() == 24),
            "{json}"
        );
    }
}
