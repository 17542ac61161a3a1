//! Where other threads leave operations for the data thread, and take their outcomes.
//!
//! ```text
//!   callers ── leave ──> calls ──┐ take: all that is there, once a pass
//!      ^                         v
//!      └─ wake <── answers <── data thread: answer, all of a pass at once (`runtimes`)
//! ```
//! One lock, held for moments: a caller takes it once to leave an operation and once to take the
//! outcome, the data thread twice in a pass. Channels, with an allocation for each operation, cost
//! several times as much.

use super::DataMessage;
use super::runtimes::{RuntimeSlot, Runtimes, TOGETHER_MIN, Woken};
use super::thread_waker::ThreadWaker;
use super::watching::Signals;
use crate::control::Upcall;
use crate::traces;
use crate::waking;
use doyen_engine::TraceContext;
use doyen_engine::op::{Failure, Operation, Outcome, Work};
use doyen_gossip::Time;
use slab::Slab;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;

/// Names a waiting caller, from `leave` to the outcome.
pub(crate) type InboxSlot = usize;

/// The inbox of one data thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// A lock, because callers are on any thread. It is not held while a caller is woken.
    state: Mutex<InboxState>,
    thread_waker: ThreadWaker,
    signals: Signals,
    /// Limit of operations without an outcome, and of callers in line.
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct InboxState {
    calls: VecDeque<Left>,
    messages: Vec<DataMessage>,
    slots: Slab<Waiting>,
    /// How many of them wait in line. They take no places from operations, with which the others
    /// end their waiting.
    in_line: usize,
    runtimes: Runtimes,
    /// All handles are dropped: nothing more will be left.
    closed: bool,
    /// The data thread has ended.
    ended: bool,
}

/// What a caller asks of the data thread.
#[derive(Debug)]
pub(super) enum Ask {
    /// To execute this.
    Execute(Work),
    /// To execute this once it is not blocked.
    Wait(Box<Wait>),
    /// The caller does not wait any more.
    Leave,
}

/// What a caller waits with.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) operation: Operation,
    /// Since when it has waited.
    pub(super) since: Time,
    /// Until when it waits at most.
    pub(super) until: Option<Time>,
}

impl From<Work> for Ask {
    fn from(work: Work) -> Self {
        Self::Execute(work)
    }
}

/// What a caller has left.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) ask: Ask,
    pub(super) slot: InboxSlot,
    /// The context of the caller's span, if its trace is sampled.
    pub(super) trace: Option<Box<TraceContext>>,
}

#[derive(Debug)]
enum Waiting {
    /// No outcome yet. `read`: nothing is lost with the outcome. Without a waker, the caller looks
    /// by itself.
    Open {
        waker: Option<Waker>,
        place: RuntimeSlot,
        read: bool,
    },
    Done(Outcome),
    /// The caller does not wait any more. It waited in line, or not.
    Abandoned {
        in_line: bool,
    },
}

impl Inbox {
    pub(super) fn new(thread_waker: ThreadWaker, waiting_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            thread_waker,
            signals: Signals::default(),
            waiting_max,
        }
    }

    pub(super) const fn signals(&self) -> &Signals {
        &self.signals
    }

    pub(super) const fn thread_waker(&self) -> &ThreadWaker {
        &self.thread_waker
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        // A panic while the lock was held left a whole state: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an operation for the data thread. If its caller should watch for the answer, without
    /// its waker, and with the number of answers before.
    ///
    /// # Errors
    /// The outcome, if it is known at once: too many operations wait, or the thread has ended.
    fn leave(&self, ask: Ask, waker: &Waker) -> Result<(InboxSlot, Option<u32>), Failure> {
        // Before the lock: this may ask the program's own subscriber.
        let trace = traces::current();
        let mut state = self.state();
        if state.ended {
            return Err(Failure::Stopped);
        }
        let work = match &ask {
            Ask::Execute(work) => Some(work),
            Ask::Wait(_) | Ask::Leave => None,
        };
        let executed = state.slots.len() - state.in_line;
        let has_place = match work {
            Some(work) => work.finds_place(executed, self.waiting_max),
            None => state.in_line < self.waiting_max,
        };
        if !has_place {
            return Err(Failure::Overloaded);
        }
        state.in_line += usize::from(matches!(ask, Ask::Wait(_)));
        let alone = work.is_some() && state.slots.is_empty();
        let watches = alone.then(|| self.signals.caller_watches()).flatten();
        let runtime = if state.slots.len() < TOGETHER_MIN && state.runtimes.is_empty() {
            Ok(None)
        } else {
            state.runtimes.current()
        };
        let slot = state.slots.insert(Waiting::Open {
            waker: watches.is_none().then(|| waker.clone()),
            place: runtime.as_ref().map_or(None, |place| *place),
            read: work.is_some_and(|work| !work.is_write()),
        });
        state.calls.push_back(Left { ask, slot, trace });
        if let Err(runtime) = runtime {
            state.runtimes.begin(&runtime);
        }
        drop(state);
        self.signals.leave();
        self.thread_waker.wake();
        Ok((slot, watches))
    }

    /// Leaves another message. If the thread has ended, the message is dropped.
    pub(super) fn tell(&self, message: DataMessage) {
        let mut state = self.state();
        if !state.ended {
            state.messages.push(message);
            drop(state);
            self.signals.leave();
            self.thread_waker.wake();
        }
    }

    /// All handles are dropped: nothing more will be left.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.thread_waker.wake();
    }

    /// Whether the inbox is empty and will stay so.
    pub(super) fn is_closed(&self) -> bool {
        let state = self.state();
        state.closed && state.is_empty()
    }

    /// Whether something was left and not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.state().is_empty()
    }

    /// Takes everything. `calls` is empty, and its capacity is reused.
    pub(super) fn take(&self, calls: &mut VecDeque<Left>) -> Vec<DataMessage> {
        // Before the lock: what is left meanwhile is looked for again.
        self.signals.take();
        let mut state = self.state();
        std::mem::swap(&mut state.calls, calls);
        std::mem::take(&mut state.messages)
    }

    /// Delivers outcomes, and wakes the callers after all outcomes are stored: so the first one
    /// that wakes finds all of its outcomes. Returns how many wake-ups that took.
    pub(super) fn answer(
        &self,
        outcomes: &mut Vec<(InboxSlot, Outcome)>,
        woken: &mut Woken,
        now: Time,
    ) -> usize {
        if !outcomes.is_empty() {
            self.store(outcomes, woken, now);
            self.signals.answer();
        }
        woken.wake(now)
    }

    fn store(&self, outcomes: &mut Vec<(InboxSlot, Outcome)>, woken: &mut Woken, now: Time) {
        let state = &mut *self.state();
        for (slot, outcome) in outcomes.drain(..) {
            match state.slots.get_mut(slot) {
                Some(waiting @ Waiting::Open { .. }) => {
                    let Waiting::Open { waker, place, .. } =
                        std::mem::replace(waiting, Waiting::Done(outcome))
                    else {
                        continue;
                    };
                    // One task may wait for many operations. It is woken once.
                    let wakers = state.runtimes.wakers(place, woken);
                    wakers.extend(
                        waker.filter(|waker| {
                            !wakers.last().is_some_and(|last| last.will_wake(waker))
                        }),
                    );
                }
                Some(Waiting::Abandoned { in_line }) => {
                    let in_line = *in_line;
                    drop(state.remove(slot, in_line));
                }
                Some(Waiting::Done(_)) | None => {}
            }
        }
        state.runtimes.give(woken, now);
    }

    /// The data thread ends: every caller gets an outcome.
    pub(super) fn end(&self) {
        let mut state = self.state();
        let mut wakers = state.runtimes.end();
        state.ended = true;
        state.calls.clear();
        let messages = std::mem::take(&mut state.messages);
        for (_, waiting) in &mut state.slots {
            if let Waiting::Open { waker, read, .. } = waiting {
                wakers.extend(waker.take());
                let lost = if *read {
                    Failure::Stopped
                } else {
                    Failure::Unknown
                };
                *waiting = Waiting::Done(Outcome::Failed(lost));
            }
        }
        drop(state);
        messages.into_iter().for_each(waking::give_up);
        wakers.into_iter().for_each(waking::wake);
    }

    /// Whether the data thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }
}

impl InboxState {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.messages.is_empty()
    }

    fn remove(&mut self, slot: InboxSlot, in_line: bool) -> Waiting {
        self.in_line -= usize::from(in_line);
        self.slots.remove(slot)
    }
}

/// Reports the end of the data thread, for any reason. If the thread was not told to end, the other
/// threads of the node end with it.
#[derive(Debug)]
pub(super) struct Attended {
    inbox: Arc<Inbox>,
    others: Vec<Arc<Inbox>>,
    upcalls: mpsc::Sender<Upcall>,
    /// Why it ends; `None` if it was told to.
    why: Option<String>,
}

impl Attended {
    /// Made by the thread. Unless the thread gives another reason, it panicked.
    pub(super) fn new(
        inbox: Arc<Inbox>,
        others: Vec<Arc<Inbox>>,
        upcalls: mpsc::Sender<Upcall>,
    ) -> Self {
        Self {
            inbox,
            others,
            upcalls,
            why: Some("it panicked, which is a defect".to_owned()),
        }
    }

    /// The thread ends for this reason, or because it was told to.
    pub(super) fn ends(mut self, why: Option<String>) {
        self.why = why;
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.inbox.end();
        if let Some(why) = self.why.take() {
            tracing::error!("a data thread has ended: {why}");
            // Without this thread the node is soon deposed for good (rule 12). Callers of the other
            // threads would wait in vain.
            self.others
                .iter()
                .for_each(|other| other.thread_waker().stop());
            // A control thread that has ended needs no message. A client has none.
            let _ = self.upcalls.blocking_send(Upcall::Ended(why));
        }
    }
}

/// An operation of a caller, until it is answered. Nothing happens before the first poll. Dropping
/// it undoes nothing.
#[derive(Debug)]
pub(super) struct Asked {
    inbox: Arc<Inbox>,
    step: AskStep,
    /// Whether it waits until it is not blocked, so that the data thread hears when it is dropped.
    waits: bool,
    /// What near caches of this process forget before the caller is answered.
    #[cfg(feature = "near")]
    written: Option<super::nears::NearWrites>,
}

#[derive(Debug)]
enum AskStep {
    New(Ask),
    Left(InboxSlot),
    Over,
}

impl Asked {
    pub(super) fn new(inbox: Arc<Inbox>, ask: impl Into<Ask>) -> Self {
        let ask = ask.into();
        Self {
            inbox,
            waits: matches!(ask, Ask::Wait(_)),
            step: AskStep::New(ask),
            #[cfg(feature = "near")]
            written: None,
        }
    }

    /// The same of an operation on keys that near caches have copies of.
    #[cfg(feature = "near")]
    pub(super) fn forgotten_by(mut self, nears: &super::nears::Nears) -> Self {
        self.written = match &self.step {
            AskStep::New(Ask::Execute(work)) => nears.written(work),
            AskStep::New(Ask::Wait(wait)) => nears.written(&Work::Key(wait.operation.clone())),
            _ => None,
        };
        self
    }
}

impl Future for Asked {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let slot = match std::mem::replace(&mut self.step, AskStep::Over) {
            AskStep::New(ask) => match self.inbox.leave(ask, cx.waker()) {
                Ok((slot, None)) => {
                    self.step = AskStep::Left(slot);
                    return Poll::Pending;
                }
                // Whether the answer came or not, it is looked for below.
                Ok((slot, Some(before))) => {
                    self.inbox.signals.await_answer(before);
                    slot
                }
                Err(failure) => return Poll::Ready(Outcome::Failed(failure)),
            },
            AskStep::Left(slot) => slot,
            // Polled after its end, which no executor does.
            AskStep::Over => return Poll::Pending,
        };
        let mut state = self.inbox.state();
        match state.slots.get_mut(slot) {
            Some(Waiting::Open { waker, .. }) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                drop(state);
                self.step = AskStep::Left(slot);
                Poll::Pending
            }
            Some(Waiting::Done(_)) => {
                let done = state.remove(slot, self.waits);
                drop(state);
                #[cfg(feature = "near")]
                if let Some(written) = self.written.take() {
                    written.forget();
                }
                Poll::Ready(match done {
                    Waiting::Done(outcome) => outcome,
                    Waiting::Open { .. } | Waiting::Abandoned { .. } => {
                        Outcome::Failed(Failure::Unknown)
                    }
                })
            }
            // Only `drop` abandons.
            Some(Waiting::Abandoned { .. }) | None => {
                Poll::Ready(Outcome::Failed(Failure::Unknown))
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let AskStep::Left(slot) = self.step else {
            return;
        };
        let mut state = self.inbox.state();
        match state.slots.get_mut(slot) {
            Some(waiting @ Waiting::Open { .. }) => {
                let in_line = self.waits;
                *waiting = Waiting::Abandoned { in_line };
            }
            Some(Waiting::Done(_)) => return drop(state.remove(slot, self.waits)),
            Some(Waiting::Abandoned { .. }) | None => return,
        }
        if self.waits && !state.ended {
            // In order with what the caller leaves after this.
            state.calls.push_back(Left {
                ask: Ask::Leave,
                slot,
                trace: None,
            });
            drop(state);
            self.inbox.signals.leave();
            self.inbox.thread_waker.wake();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use doyen_engine::op::Action;
    use doyen_engine::sync;
    use doyen_placement::{KeyspaceId, MapId};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(in crate::data) fn inbox(waiting_max: usize) -> Arc<Inbox> {
        let poll = mio::Poll::new().expect("a poll");
        Arc::new(Inbox::new(
            ThreadWaker::new(mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker")),
            waiting_max,
        ))
    }

    pub(in crate::data) fn work(action: Action) -> Work {
        Work::Key(Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: "k".into(),
            action,
        })
    }

    pub(in crate::data) fn taken(inbox: &Inbox) -> Vec<InboxSlot> {
        let mut calls = VecDeque::new();
        inbox.take(&mut calls);
        calls.into_iter().map(|left| left.slot).collect()
    }

    #[test]
    fn operations_of_one_task_are_answered_with_one_wake_up() {
        let (inbox, count) = (inbox(10), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut asked: Vec<_> = (0..3)
            .map(|_| Box::pin(Asked::new(inbox.clone(), work(Action::Get))))
            .collect();
        assert!(inbox.is_empty(), "nothing happens before it is polled");
        assert!(
            asked
                .iter_mut()
                .all(|a| a.as_mut().poll(&mut cx).is_pending())
        );
        let slots = taken(&inbox);
        inbox.answer(
            &mut slots
                .iter()
                .map(|slot| (*slot, Outcome::Int(*slot as i64)))
                .collect(),
            &mut Woken::default(),
            Time(1),
        );
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        for (asked, slot) in asked.iter_mut().zip(slots) {
            assert_eq!(
                asked.as_mut().poll(&mut cx),
                Poll::Ready(Outcome::Int(slot as i64))
            );
        }
        assert!(inbox.state().slots.is_empty());
    }

    #[test]
    fn a_caller_that_gives_up_leaves_nothing_behind() {
        let inbox = inbox(10);
        let mut cx = Context::from_waker(Waker::noop());
        for answered in [false, true] {
            let mut asked = Box::pin(Asked::new(inbox.clone(), work(Action::Delete)));
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            let slots = taken(&inbox);
            let mut answers = vec![(slots[0], Outcome::Ok)];
            if answered {
                inbox.answer(&mut answers, &mut Woken::default(), Time(1));
            }
            drop(asked);
            inbox.answer(&mut answers, &mut Woken::default(), Time(1));
            assert!(inbox.state().slots.is_empty());
        }
    }

    #[test]
    fn a_caller_that_waits_leaves_word_when_it_goes_and_before_what_it_asks_next() {
        let inbox = inbox(10);
        let mut cx = Context::from_waker(Waker::noop());
        let Work::Key(operation) = work(Action::Get) else {
            panic!("it is about a key");
        };
        let wait = Wait {
            operation,
            since: Time(1),
            until: None,
        };
        let mut waits = Box::pin(Asked::new(inbox.clone(), Ask::Wait(Box::new(wait))));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        drop(waits);
        let mut next = Box::pin(Asked::new(inbox.clone(), work(Action::Delete)));
        assert!(next.as_mut().poll(&mut cx).is_pending());
        let mut calls = VecDeque::new();
        inbox.take(&mut calls);
        let asks: Vec<(&str, InboxSlot)> = calls
            .iter()
            .map(|left| match left.ask {
                Ask::Execute(_) => ("execute", left.slot),
                Ask::Wait(_) => ("wait", left.slot),
                Ask::Leave => ("leave", left.slot),
            })
            .collect();
        assert_eq!(asks, [("wait", 0), ("leave", 0), ("execute", 1)]);
    }

    /// Callers of a lock that have filled all places would keep its holder from giving it back.
    #[test]
    fn those_that_wait_leave_room_for_releases_and_operations_leave_room_for_them_too() {
        let inbox = inbox(3);
        let mut cx = Context::from_waker(Waker::noop());
        let owner = sync::Owner([7; 16]);
        let wait = || {
            let Work::Key(operation) = work(sync::try_acquire(owner, sync::Permits::ONE, 1_000))
            else {
                panic!("it is about a key");
            };
            let (since, until) = (Time(1), None);
            let wait = Wait {
                operation,
                since,
                until,
            };
            Box::pin(Asked::new(inbox.clone(), Ask::Wait(Box::new(wait))))
        };
        let asks = |action| Box::pin(Asked::new(inbox.clone(), work(action)));
        let full = Poll::Ready(Outcome::Failed(Failure::Overloaded));
        let mut waiting: Vec<_> = (0..3).map(|_| wait()).collect();
        assert!(
            waiting
                .iter_mut()
                .all(|w| w.as_mut().poll(&mut cx).is_pending())
        );
        assert_eq!(wait().as_mut().poll(&mut cx), full);
        let mut operations: Vec<_> = (0..3).map(|_| asks(Action::Delete)).collect();
        assert!(
            operations
                .iter_mut()
                .all(|o| o.as_mut().poll(&mut cx).is_pending())
        );
        assert_eq!(asks(Action::Delete).as_mut().poll(&mut cx), full);
        // What others wait for finds a place, up to a limit as well.
        let mut released = asks(sync::release(owner, 1));
        assert!(released.as_mut().poll(&mut cx).is_pending());
        assert_eq!(
            asks(sync::renew(owner, 1, 1_000)).as_mut().poll(&mut cx),
            full
        );
        // A caller that has left or has its answer takes no place any more.
        let slots = taken(&inbox);
        drop(waiting.pop());
        let mut answers = slots[1..3]
            .iter()
            .map(|slot| (*slot, Outcome::Nil))
            .collect();
        inbox.answer(&mut answers, &mut Woken::default(), Time(1));
        drop((waiting, operations, released));
        let mut answers = slots.iter().map(|slot| (*slot, Outcome::Nil)).collect();
        inbox.answer(&mut answers, &mut Woken::default(), Time(1));
        let state = inbox.state();
        assert_eq!((state.slots.len(), state.in_line), (0, 0));
    }

    #[test]
    fn more_than_may_wait_are_refused_before_anything_happens() {
        let inbox = inbox(1);
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(Asked::new(inbox.clone(), work(Action::Get)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let mut second = Box::pin(Asked::new(inbox.clone(), work(Action::Get)));
        assert_eq!(
            second.as_mut().poll(&mut cx),
            Poll::Ready(Outcome::Failed(Failure::Overloaded))
        );
        drop(first);
        assert_eq!(taken(&inbox).len(), 1);
    }

    #[test]
    fn when_the_thread_ends_reads_fail_and_writes_are_unknown() {
        let (inbox, count) = (inbox(10), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut read = Box::pin(Asked::new(inbox.clone(), work(Action::Get)));
        let mut write = Box::pin(Asked::new(inbox.clone(), work(Action::Delete)));
        assert!(
            read.as_mut().poll(&mut cx).is_pending() && write.as_mut().poll(&mut cx).is_pending()
        );
        let (upcalls, mut told) = mpsc::channel(1);
        Attended::new(inbox.clone(), Vec::new(), upcalls).ends(None);
        assert!(told.try_recv().is_err(), "it was told to end");
        assert!(count.0.load(Ordering::SeqCst) > 0);
        assert_eq!(
            read.as_mut().poll(&mut cx),
            Poll::Ready(Outcome::Failed(Failure::Stopped))
        );
        assert_eq!(
            write.as_mut().poll(&mut cx),
            Poll::Ready(Outcome::Failed(Failure::Unknown))
        );
        let mut late = Box::pin(Asked::new(inbox, work(Action::Delete)));
        assert_eq!(
            late.as_mut().poll(&mut cx),
            Poll::Ready(Outcome::Failed(Failure::Stopped))
        );
    }
}
