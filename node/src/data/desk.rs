//! Where other threads leave operations for the data thread, and take their outcomes.
//!
//! ```text
//!   callers ── leave ──> calls ──┐ take: all that is there, once a pass
//!      ^                         v
//!      └─ wake <── answers <── data thread: answer, all of a pass at once
//! ```
//! One lock, held for moments: a caller takes it once to leave and once to look, the data thread
//! twice a pass. Channels and an allocation for each operation cost several times as much.

use super::Message;
use super::bell::Bell;
use crate::control::Upcall;
use crate::data::waking;
use doyen_engine::op::{Failure, Outcome, Work};
use slab::Slab;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;

/// Names who waits, from `leave` to the outcome.
pub(crate) type Slot = usize;

/// The desk of one data thread.
#[derive(Debug)]
pub(crate) struct Desk {
    /// A lock, because callers are on any thread; never held while anybody is woken.
    state: Mutex<State>,
    bell: Bell,
    /// Operations that may be without an outcome.
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct State {
    calls: VecDeque<(Work, Slot)>,
    messages: Vec<Message>,
    slots: Slab<Waiting>,
    /// Nobody will leave anything any more.
    closed: bool,
    /// The data thread has ended.
    ended: bool,
}

#[derive(Debug)]
enum Waiting {
    /// Not done. `read`: nothing is lost with the outcome.
    Open {
        waker: Waker,
        read: bool,
    },
    Done(Outcome),
    /// Nobody waits any more.
    Abandoned,
}

impl Desk {
    pub(super) fn new(bell: Bell, waiting_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            bell,
            waiting_max,
        }
    }

    pub(super) const fn bell(&self) -> &Bell {
        &self.bell
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked while holding it left nothing half done: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an operation for the data thread.
    ///
    /// # Errors
    /// The outcome, where it is known at once: too many wait, or nobody takes it any more.
    fn leave(&self, work: Work, waker: &Waker) -> Result<Slot, Failure> {
        let mut state = self.state();
        if state.ended {
            return Err(Failure::Stopped);
        }
        if state.slots.len() >= self.waiting_max {
            return Err(Failure::Overloaded);
        }
        let slot = state.slots.insert(Waiting::Open {
            waker: waker.clone(),
            read: !work.is_write(),
        });
        state.calls.push_back((work, slot));
        drop(state);
        self.bell.ring();
        Ok(slot)
    }

    /// Leaves something else. It is dropped where nobody takes it any more.
    pub(super) fn tell(&self, message: Message) {
        let mut state = self.state();
        if !state.ended {
            state.messages.push(message);
            drop(state);
            self.bell.ring();
        }
    }

    /// Nobody will leave anything any more.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.bell.ring();
    }

    /// Whether nothing was left, and nothing will be.
    pub(super) fn is_closed(&self) -> bool {
        let state = self.state();
        state.closed && state.is_empty()
    }

    /// Whether something was left and not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.state().is_empty()
    }

    /// Takes all that was left; `calls` is empty, and its room serves the next ones.
    pub(super) fn take(&self, calls: &mut VecDeque<(Work, Slot)>) -> Vec<Message> {
        let mut state = self.state();
        std::mem::swap(&mut state.calls, calls);
        std::mem::take(&mut state.messages)
    }

    /// Gives outcomes, and wakes who waits for them: after all are there, so that whoever wakes
    /// first finds them all.
    pub(super) fn answer(&self, outcomes: &mut Vec<(Slot, Outcome)>, wakers: &mut Vec<Waker>) {
        if outcomes.is_empty() {
            return;
        }
        let mut state = self.state();
        for (slot, outcome) in outcomes.drain(..) {
            match state.slots.get_mut(slot) {
                Some(waiting @ Waiting::Open { .. }) => {
                    let Waiting::Open { waker, .. } =
                        std::mem::replace(waiting, Waiting::Done(outcome))
                    else {
                        continue;
                    };
                    // Many operations of one task are one wake-up.
                    if !wakers.last().is_some_and(|last| last.will_wake(&waker)) {
                        wakers.push(waker);
                    }
                }
                Some(Waiting::Abandoned) => drop(state.slots.remove(slot)),
                Some(Waiting::Done(_)) | None => {}
            }
        }
        drop(state);
        wakers.drain(..).for_each(waking::wake);
    }

    /// The data thread ends: nobody waits in vain.
    pub(super) fn end(&self) {
        let mut wakers = Vec::new();
        let mut state = self.state();
        state.ended = true;
        state.calls.clear();
        let messages = std::mem::take(&mut state.messages);
        for (_, waiting) in &mut state.slots {
            if let Waiting::Open { waker, read } = waiting {
                wakers.push(waker.clone());
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

impl State {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.messages.is_empty()
    }
}

/// Says that the data thread has ended, however it does. If nothing told it to, the other threads
/// of the node end with it.
#[derive(Debug)]
pub(super) struct Attended {
    desk: Arc<Desk>,
    others: Vec<Arc<Desk>>,
    upcalls: mpsc::Sender<Upcall>,
    /// Why it ends, unless it was told to.
    why: Option<String>,
}

impl Attended {
    /// By a thread that panics unless it says that something else ended it.
    pub(super) fn new(
        desk: Arc<Desk>,
        others: Vec<Arc<Desk>>,
        upcalls: mpsc::Sender<Upcall>,
    ) -> Self {
        Self {
            desk,
            others,
            upcalls,
            why: Some("it panicked, which is a defect".to_owned()),
        }
    }

    /// It ends because of this, or because it was told to.
    pub(super) fn ends(mut self, why: Option<String>) {
        self.why = why;
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.desk.end();
        if let Some(why) = self.why.take() {
            tracing::error!("a data thread has ended: {why}");
            // Without this thread the node is soon deposed for good (rule 12). Callers of the
            // others would wait for it in vain.
            self.others.iter().for_each(|other| other.bell().stop());
            // A control thread that has ended needs no word. A client has none.
            let _ = self.upcalls.blocking_send(Upcall::Ended(why));
        }
    }
}

/// An operation of a caller, until it is answered. Nothing happens before it is first polled;
/// dropping it undoes nothing.
#[derive(Debug)]
pub(super) struct Asked {
    desk: Arc<Desk>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    New(Work),
    Left(Slot),
    Over,
}

impl Asked {
    pub(super) fn new(desk: Arc<Desk>, work: Work) -> Self {
        Self {
            desk,
            step: Step::New(work),
        }
    }
}

impl Future for Asked {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let slot = match std::mem::replace(&mut self.step, Step::Over) {
            Step::New(work) => {
                return match self.desk.leave(work, cx.waker()) {
                    Ok(slot) => {
                        self.step = Step::Left(slot);
                        Poll::Pending
                    }
                    Err(failure) => Poll::Ready(Outcome::Failed(failure)),
                };
            }
            Step::Left(slot) => slot,
            // Polled after its end, which no executor does.
            Step::Over => return Poll::Pending,
        };
        let mut state = self.desk.state();
        match state.slots.get_mut(slot) {
            Some(Waiting::Open { waker, .. }) => {
                waker.clone_from(cx.waker());
                drop(state);
                self.step = Step::Left(slot);
                Poll::Pending
            }
            Some(Waiting::Done(_)) => match state.slots.remove(slot) {
                Waiting::Done(outcome) => Poll::Ready(outcome),
                Waiting::Open { .. } | Waiting::Abandoned => {
                    Poll::Ready(Outcome::Failed(Failure::Unknown))
                }
            },
            // Only `drop` abandons.
            Some(Waiting::Abandoned) | None => Poll::Ready(Outcome::Failed(Failure::Unknown)),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Step::Left(slot) = self.step else { return };
        let mut state = self.desk.state();
        match state.slots.get_mut(slot) {
            Some(waiting @ Waiting::Open { .. }) => *waiting = Waiting::Abandoned,
            Some(Waiting::Done(_)) => drop(state.slots.remove(slot)),
            Some(Waiting::Abandoned) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_engine::op::{Action, Operation};
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

    fn desk(waiting_max: usize) -> Arc<Desk> {
        let poll = mio::Poll::new().expect("a poll");
        Arc::new(Desk::new(
            Bell::new(mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker")),
            waiting_max,
        ))
    }

    fn work(action: Action) -> Work {
        Work::Key(Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: "k".into(),
            action,
        })
    }

    fn taken(desk: &Desk) -> Vec<Slot> {
        let mut calls = VecDeque::new();
        desk.take(&mut calls);
        calls.into_iter().map(|(_, slot)| slot).collect()
    }

    #[test]
    fn operations_of_one_task_are_answered_with_one_wake_up() {
        let (desk, count) = (desk(10), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut asked: Vec<_> = (0..3)
            .map(|_| Box::pin(Asked::new(desk.clone(), work(Action::Get))))
            .collect();
        assert!(desk.is_empty(), "nothing happens before it is polled");
        assert!(
            asked
                .iter_mut()
                .all(|a| a.as_mut().poll(&mut cx).is_pending())
        );
        let slots = taken(&desk);
        desk.answer(
            &mut slots
                .iter()
                .map(|slot| (*slot, Outcome::Int(*slot as i64)))
                .collect(),
            &mut Vec::new(),
        );
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        for (asked, slot) in asked.iter_mut().zip(slots) {
            assert_eq!(
                asked.as_mut().poll(&mut cx),
                Poll::Ready(Outcome::Int(slot as i64))
            );
        }
        assert!(desk.state().slots.is_empty());
    }

    #[test]
    fn whoever_gives_up_leaves_nothing_behind() {
        let desk = desk(10);
        let mut cx = Context::from_waker(Waker::noop());
        for answered in [false, true] {
            let mut asked = Box::pin(Asked::new(desk.clone(), work(Action::Delete)));
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            let slots = taken(&desk);
            let mut answers = vec![(slots[0], Outcome::Ok)];
            if answered {
                desk.answer(&mut answers, &mut Vec::new());
            }
            drop(asked);
            desk.answer(&mut answers, &mut Vec::new());
            assert!(desk.state().slots.is_empty());
        }
    }

    #[test]
    fn more_than_may_wait_are_refused_before_anything_happens() {
        let desk = desk(1);
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(Asked::new(desk.clone(), work(Action::Get)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let mut second = Box::pin(Asked::new(desk.clone(), work(Action::Get)));
        assert_eq!(
            second.as_mut().poll(&mut cx),
            Poll::Ready(Outcome::Failed(Failure::Overloaded))
        );
        drop(first);
        assert_eq!(taken(&desk).len(), 1);
    }

    #[test]
    fn when_the_thread_ends_nobody_waits_and_writes_are_unknown() {
        let (desk, count) = (desk(10), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut read = Box::pin(Asked::new(desk.clone(), work(Action::Get)));
        let mut write = Box::pin(Asked::new(desk.clone(), work(Action::Delete)));
        assert!(
            read.as_mut().poll(&mut cx).is_pending() && write.as_mut().poll(&mut cx).is_pending()
        );
        let (upcalls, mut told) = mpsc::channel(1);
        Attended::new(desk.clone(), Vec::new(), upcalls).ends(None);
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
        let mut late = Box::pin(Asked::new(desk, work(Action::Delete)));
        assert_eq!(
            late.as_mut().poll(&mut cx),
            Poll::Ready(Outcome::Failed(Failure::Stopped))
        );
    }
}
