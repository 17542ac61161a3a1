//! Events that this node has learned of. The last ones are kept, and each reader goes through them
//! at its own pace: one that is too slow hears how many it has missed.

use crate::audit::{Audit, Refusals};
use crate::remedy;
use crate::waking;
use doyen_gossip::agreement::{Event, Severity};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use tokio::sync::watch;

/// Events that are kept, without steps of moves.
const EVENTS_MAX: usize = 1024;
/// Steps of moves that are kept. There may be as many in a second, and they must not push out other
/// events.
const STEPS_MAX: usize = 512;

/// Refused attempts that are kept. Strangers cause them, so they must not push out other events.
const REFUSALS_MAX: usize = 128;

/// An event with its number and the time at which this node learned of it.
///
/// As JSON: `{"number": 7, "at": "2026-11-23T10:00:00.000Z", "severity": "warning", "kind":
/// "expelled", .., "text": ".."}`, with further fields that depend on the kind.
///
/// ```no_run
/// # fn example(node: &doyen::Node) {
/// use doyen::Severity;
///
/// // What a person should have looked at.
/// for event in node.logged_events(0) {
///     if event.severity >= Severity::Warning {
///         println!("{} {}: {}", event.number, event.event.kind(), event.text);
///     }
/// }
/// # }
/// ```
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
    kept: Mutex<KeptEvent>,
    refusals: Mutex<Refusals>,
    last: watch::Sender<u64>,
    /// No event follows.
    ended: watch::Sender<bool>,
}

/// In order of their numbers.
#[derive(Debug, Default)]
struct KeptEvent {
    events: VecDeque<LoggedEvent>,
    steps: VecDeque<LoggedEvent>,
    refused: VecDeque<LoggedEvent>,
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self {
            kept: Mutex::default(),
            refusals: Mutex::default(),
            last: watch::Sender::new(0),
            ended: watch::Sender::new(false),
        }
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: Event) {
        let text = remedy::event_text(&event);
        let mut kept = self.kept();
        let (list, most) = match &event {
            Event::Moved { .. } if event.severity() == Severity::Info => {
                (&mut kept.steps, STEPS_MAX)
            }
            Event::Audit { refused: true, .. } => (&mut kept.refused, REFUSALS_MAX),
            _ => (&mut kept.events, EVENTS_MAX),
        };
        // Several threads add events: numbers are given while the lists are locked.
        let number = *self.last.borrow() + 1;
        let logged = LoggedEvent {
            number,
            at: SystemTime::now(),
            severity: event.severity(),
            event,
            text,
        };
        if list.len() >= most {
            list.pop_front();
        }
        list.push_back(logged);
        // It wakes readers, whose wakers are foreign code: none of them may run under the lock.
        self.last.send_if_modified(|last| {
            *last = number;
            false
        });
        drop(kept);
        self.last.send_modify(|_| {});
    }

    /// Adds a change by a person or a program, or a refused attempt, which may be merged with a
    /// later one.
    #[cfg_attr(
        not(any(feature = "http", feature = "resp")),
        allow(dead_code, reason = "this build has no interface that is audited")
    )]
    pub(crate) fn audit(&self, audit: &Audit) {
        let event = {
            // A poisoned lock means that a thread panicked. The map is whole at any time.
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            refusals.event(Instant::now(), audit)
        };
        let Some(event) = event else { return };
        tracing::info!(target: "doyen::audit", "{event}");
        waking::guarded(|| self.push(event));
    }

    /// The events after the one with this number, as far as they are kept.
    pub(crate) fn since(&self, number: u64) -> Vec<LoggedEvent> {
        let kept = self.kept();
        let mut all: Vec<_> = kept
            .events
            .iter()
            .chain(&kept.steps)
            .chain(&kept.refused)
            .filter(|logged| logged.number > number)
            .cloned()
            .collect();
        all.sort_by_key(|logged| logged.number);
        all
    }

    /// No event follows: the node ends.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// The number of the last event. It changes with every event.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn kept(&self) -> MutexGuard<'_, KeptEvent> {
        // No holder of the lock panics, and the lists are whole at any time.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reader of [`Events`] gets.
///
/// Example: [`Events`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// An event.
    Event(LoggedEvent),
    /// This many events are not kept any more: this reader was too slow, or they were before it.
    Lagged(u64),
}

/// The events of a cluster as its node learns of them, in order: from
/// [`Node::events`](crate::Node::events).
///
/// A node keeps its last 1,024 events, and its last 512 steps of moves. A reader holds none of them
/// back, so it costs no memory: if it is slower, it hears how many it has missed. It is a `futures`
/// stream, too.
///
/// ```no_run
/// # async fn example(node: doyen::Node) {
/// use doyen::ClusterEvent;
///
/// let mut events = node.events();
/// while let Some(event) = events.next().await {
///     match event {
///         ClusterEvent::Event(event) => println!("{} {}", event.number, event.text),
///         ClusterEvent::Lagged(count) => println!("{count} events were missed"),
///         _ => {}
///     }
/// }
/// # }
/// ```
pub struct Events {
    log: Arc<EventLog>,
    /// It has read all up to this number.
    since: u64,
    read: VecDeque<ClusterEvent>,
    /// Resolves when there may be more.
    more: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl Events {
    /// Events from now on.
    pub(crate) fn new(log: Arc<EventLog>) -> Self {
        let since = *log.last.borrow();
        Self {
            log,
            since,
            read: VecDeque::new(),
            more: None,
        }
    }

    /// Goes on after the event with this number, which this node has told: 0 for all that are kept.
    /// Another node, and another process, counts its events differently.
    #[must_use]
    pub fn after(self, number: u64) -> Self {
        Self {
            since: number,
            ..Self::new(self.log)
        }
    }

    /// The next event. `None`: the node was shut down, or it is a client, which gets none.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event, so this may stand in a `select!`.
    pub async fn next(&mut self) -> Option<ClusterEvent> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ClusterEvent>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Poll::Ready(Some(event));
            }
            // In this order: what is pushed in between is found the next time.
            let (ended, last) = (*self.log.ended.borrow(), *self.log.last.borrow());
            for logged in self.log.since(self.since) {
                self.skip(logged.number - 1);
                self.since = logged.number;
                self.read.push_back(ClusterEvent::Event(logged));
            }
            self.skip(last);
            if !self.read.is_empty() {
                continue;
            }
            if ended {
                return Poll::Ready(None);
            }
            let since = self.since;
            let more = self.more.get_or_insert_with(|| {
                let (mut last, mut ended) = (self.log.watch(), self.log.ended.subscribe());
                Box::pin(async move {
                    tokio::select! {
                        _ = last.wait_for(|last| *last > since) => {}
                        _ = ended.wait_for(|ended| *ended) => {}
                    }
                })
            });
            if more.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.more = None;
        }
    }

    /// Events up to this number are not kept any more.
    fn skip(&mut self, to: u64) {
        if let Some(count) = to.checked_sub(self.since).filter(|count| *count > 0) {
            self.since = to;
            self.read.push_back(ClusterEvent::Lagged(count));
        }
    }
}

impl futures_util::Stream for Events {
    type Item = ClusterEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClusterEvent>> {
        self.poll(cx)
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
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    // A time beyond the calendar is shown as the beginning.
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let ((year, month, day), (hour, minute, second)) = (at.to_calendar_date(), at.to_hms());
    let (month, ms) = (u8::from(month), since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
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
    fn times_are_written_in_utc_to_the_millisecond() {
        let after = |ms| utc(UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(after(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(after(1_709_251_199_070), "2024-02-29T23:59:59.070Z");
        assert_eq!(
            after(u64::MAX / 1_000_000 * 1_000_000),
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_how_many_events_it_has_missed() {
        let log = Arc::new(EventLog::new());
        log.push(Event::note("before"));
        let mut events = Events::new(log.clone());
        let mut all = Events::new(log.clone()).after(0);
        let writer = tokio::spawn({
            let log = log.clone();
            async move { log.push(Event::note("first")) }
        });
        let number = |event| match event {
            Some(ClusterEvent::Event(event)) => event.number,
            other => panic!("{other:?}"),
        };
        assert_eq!(number(events.next().await), 2);
        writer.await.expect("it ends");
        for _ in 0..EVENTS_MAX + 5 {
            log.push(Event::note("line"));
        }
        log.end();
        for (events, missed) in [(&mut events, 5), (&mut all, 7)] {
            assert_eq!(events.next().await, Some(ClusterEvent::Lagged(missed)));
            for n in 0..EVENTS_MAX as u64 {
                assert_eq!(number(events.next().await), n + 8);
            }
            assert_eq!(events.next().await, None);
        }
        let mut resumed = Events::new(log).after(EVENTS_MAX as u64 + 6);
        assert_eq!(number(resumed.next().await), EVENTS_MAX as u64 + 7);
        assert_eq!(resumed.next().await, None);
    }

    /// Strangers can cause as many refused attempts as they like, from many networks.
    #[test]
    fn refused_attempts_push_no_other_event_out() {
        use crate::audit::AuditOutcome;
        let log = EventLog::new();
        let audit = |from: u32, outcome| Audit {
            who: "a caller without a token".into(),
            interface: "http",
            from: std::net::Ipv4Addr::from(from).into(),
            what: "POST /recover".into(),
            outcome,
        };
        log.push(Event::note("before"));
        log.audit(&audit(0, AuditOutcome::Done));
        for from in 0..10_000 {
            log.audit(&audit(from, AuditOutcome::Refused("no token".into())));
            log.audit(&audit(from, AuditOutcome::Refused("no token".into())));
        }
        let kept = log.since(0);
        assert_eq!(kept.len(), 2 + REFUSALS_MAX);
        assert_eq!(kept[0].text, "before");
        assert_eq!(
            kept[1].text,
            "a caller without a token at 0.0.0.0 (http): POST /recover: done"
        );
        assert_eq!(kept[2].severity, Severity::Warning);
        assert_eq!(*log.watch().borrow(), 10_002);
    }

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
        // Steps of moves take the places of steps alone, and what readers get stays in order.
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
