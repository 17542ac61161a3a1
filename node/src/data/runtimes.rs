//! Wakes many callers of one tokio runtime with one wake-up.
//!
//! A task that is woken from a thread outside of its runtime costs a lock of the runtime, and a
//! system call if the runtime runs on one thread. From a task of the same runtime it costs neither.
//! So if several callers of a runtime are answered at once, one task there is woken, and wakes
//! them.
//!
//! ```text
//!   answers of a pass ──> wakers of one runtime ── give ──> a task on it ──> callers
//!                                  └── not taken for 5 ms: the data thread wakes them itself
//! ```
//! The task begins when a runtime first has several operations under way. It ends with the runtime
//! or with the data thread. A caller without a runtime, and one that is answered alone, is woken by
//! the data thread.

use crate::waking;
use doyen_gossip::Time;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Handle, Id};

/// Fewer callers are woken one by one, which is sooner.
pub(super) const TOGETHER_MIN: usize = 4;
/// Runtimes with such a task, at most.
const RUNTIMES_MAX: usize = 16;
/// The runtime may be blocked, or may not be driven at all, while its callers are polled elsewhere.
const LATE: Duration = Duration::from_millis(5);

/// Callers of one runtime that have answers, and the task that wakes them.
#[derive(Debug, Default)]
struct Answered(Mutex<WakeBatch>);

#[derive(Debug, Default)]
struct WakeBatch {
    wakers: Vec<Waker>,
    /// That of the task, while it sleeps.
    task: Option<Waker>,
    /// The task did not come in time, and has not come since.
    late: bool,
    ended: bool,
}

impl Answered {
    /// Begins the task.
    fn start(runtime: &Handle) -> Arc<Self> {
        let answered = Arc::<Self>::default();
        let ends = Ends(answered.clone());
        runtime.spawn(async move {
            let mut wakers = Vec::new();
            poll_fn(|cx| ends.0.poll(cx, &mut wakers)).await;
        });
        answered
    }

    fn given(&self) -> MutexGuard<'_, WakeBatch> {
        // Each change of it is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's turn. `wakers` is empty, and its capacity is reused.
    fn poll(&self, cx: &Context<'_>, wakers: &mut Vec<Waker>) -> Poll<()> {
        let mut given = self.given();
        if given.ended {
            return Poll::Ready(());
        }
        std::mem::swap(&mut given.wakers, wakers);
        (given.task, given.late) = (Some(cx.waker().clone()), false);
        drop(given);
        wakers.drain(..).for_each(waking::wake);
        Poll::Pending
    }

    /// The task ends. What it was given, and has not woken, and its own waker.
    fn end(&self) -> (Vec<Waker>, Option<Waker>) {
        let mut given = self.given();
        given.ended = true;
        (std::mem::take(&mut given.wakers), given.task.take())
    }
}

/// Notices the end of a task, for any reason.
struct Ends(Arc<Answered>);

impl Drop for Ends {
    fn drop(&mut self) {
        let (wakers, _) = self.0.end();
        wakers.into_iter().for_each(waking::wake);
    }
}

/// The place of a caller's runtime in `Runtimes`; `None`: the data thread wakes the caller.
pub(super) type RuntimeSlot = Option<u8>;

/// The runtimes of an inbox's callers.
#[derive(Debug, Default)]
pub(super) struct Runtimes(Vec<Runtime>);

#[derive(Debug)]
struct Runtime {
    id: Id,
    answered: Arc<Answered>,
    /// Callers with answers of this pass.
    wakers: Vec<Waker>,
}

impl Runtimes {
    /// Whether there is none yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The place of the runtime that polls the caller. If it has none yet, the runtime, which
    /// `begin` is for.
    pub(super) fn current(&self) -> Result<RuntimeSlot, Handle> {
        let Ok(runtime) = Handle::try_current() else {
            return Ok(None);
        };
        let id = runtime.id();
        match self.0.iter().position(|known| known.id == id) {
            Some(at) => Ok(u8::try_from(at).ok()),
            None if self.place().is_some() => Err(runtime),
            None => Ok(None),
        }
    }

    /// A place for another runtime: a new one, or of a runtime whose task has ended.
    fn place(&self) -> Option<usize> {
        let after = Some(self.0.len()).filter(|len| *len < RUNTIMES_MAX);
        let ended = |known: &Runtime| Arc::strong_count(&known.answered) == 1;
        after.or_else(|| self.0.iter().position(ended))
    }

    /// Begins the task of a runtime.
    pub(super) fn begin(&mut self, runtime: &Handle) {
        let Some(at) = self.place() else {
            return;
        };
        let (id, wakers) = (runtime.id(), Vec::new());
        let answered = Answered::start(runtime);
        let new = Runtime {
            id,
            answered,
            wakers,
        };
        match self.0.get_mut(at) {
            // Callers of the former runtime that still wait are woken by this one.
            Some(ended) => *ended = new,
            None => self.0.push(new),
        }
    }

    /// Wakers of callers with answers: at this place, or of callers without one.
    pub(super) fn wakers<'a>(
        &'a mut self,
        place: RuntimeSlot,
        woken: &'a mut Woken,
    ) -> &'a mut Vec<Waker> {
        match place.and_then(|at| self.0.get_mut(usize::from(at))) {
            Some(runtime) => &mut runtime.wakers,
            None => &mut woken.here,
        }
    }

    /// All answers of a pass are stored: gives the callers of each runtime to its task, unless they
    /// are few.
    pub(super) fn give(&mut self, woken: &mut Woken, now: Time) {
        for runtime in &mut self.0 {
            let mut given = runtime.answered.given();
            if runtime.wakers.len() < TOGETHER_MIN || given.late || given.ended {
                woken.here.append(&mut runtime.wakers);
                continue;
            }
            given.wakers.append(&mut runtime.wakers);
            let asleep = given.task.take();
            drop(given);
            let is =
                |(known, _): &&mut (Arc<Answered>, Time)| Arc::ptr_eq(known, &runtime.answered);
            match woken.given.iter_mut().find(is) {
                // It has taken what it was given before.
                Some((_, since)) if asleep.is_some() => *since = now,
                Some(_) => {}
                None => woken.given.push((runtime.answered.clone(), now)),
            }
            woken.here.extend(asleep);
        }
    }

    /// The data thread ends: so do the tasks. Returns the wakers of callers that they have not
    /// woken, and their own.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        let ends = self.0.drain(..).flat_map(|runtime| {
            let (wakers, task) = runtime.answered.end();
            wakers.into_iter().chain(task)
        });
        ends.collect()
    }
}

/// What a data thread wakes, and what it has given to the tasks of runtimes.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// To be woken from here.
    pub(super) here: Vec<Waker>,
    /// What was given to these tasks since then may not be woken yet.
    given: Vec<(Arc<Answered>, Time)>,
}

impl Woken {
    /// Wakes all that is to be woken from here, and callers that no task has woken in time. Returns
    /// how many.
    pub(super) fn wake(&mut self, now: Time) -> usize {
        let here = &mut self.here;
        self.given.retain(|(answered, since)| {
            let mut given = answered.given();
            if now >= *since + LATE && !given.wakers.is_empty() {
                here.append(&mut given.wakers);
                given.late = true;
            }
            !given.wakers.is_empty()
        });
        let count = here.len();
        here.drain(..).for_each(waking::wake);
        count
    }

    /// When `wake` is due if nothing is answered.
    pub(super) fn due(&self) -> Option<Time> {
        self.given.iter().map(|(_, since)| *since + LATE).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::inbox::tests::{inbox, taken, work};
    use super::super::inbox::{Asked, Inbox, InboxSlot};
    use super::*;
    use doyen_engine::op::{Action, Outcome};
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use tokio::runtime::Runtime;

    const CALLERS: usize = 20;

    #[derive(Default)]
    struct Woke(AtomicUsize);

    impl Wake for Woke {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn runtime() -> Runtime {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime")
    }

    fn answers(slots: Vec<InboxSlot>) -> Vec<(InboxSlot, Outcome)> {
        assert_eq!(slots.len(), CALLERS);
        slots.into_iter().map(|slot| (slot, Outcome::Ok)).collect()
    }

    /// Callers that are polled within this runtime, which need not be driven. How many of them were
    /// woken.
    fn leave(inbox: &Arc<Inbox>, runtime: &Runtime) -> (Vec<Pin<Box<Asked>>>, Arc<Woke>) {
        let (_within, woke) = (runtime.enter(), Arc::new(Woke::default()));
        let callers = (0..CALLERS).map(|_| {
            // Each is a task of its own.
            let one = Arc::new(Of(woke.clone()));
            let mut asked = Box::pin(Asked::new(inbox.clone(), work(Action::Get)));
            let waker = Waker::from(one);
            let polled = asked.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            asked
        });
        (callers.collect(), woke)
    }

    struct Of(Arc<Woke>);

    impl Wake for Of {
        fn wake(self: Arc<Self>) {
            self.0.clone().wake();
        }
    }

    #[test]
    fn tasks_of_one_runtime_are_woken_with_one_wake_up() {
        let (inbox, runtime, mut woken) = (inbox(100), runtime(), Woken::default());
        for round in 0..3 {
            let asked = |_| runtime.spawn(Asked::new(inbox.clone(), work(Action::Get)));
            let tasks: Vec<_> = (0..CALLERS).map(asked).collect();
            runtime.block_on(tokio::task::yield_now());
            let mut answers = answers(taken(&inbox));
            let wakes = inbox.answer(&mut answers, &mut woken, Time(1));
            assert_eq!(wakes, if round == 0 { TOGETHER_MIN + 2 } else { 1 });
            for task in tasks {
                let outcome = runtime.block_on(task);
                assert_eq!(outcome.expect("no panic"), Outcome::Ok);
            }
            inbox.answer(&mut Vec::new(), &mut woken, Time(1));
            assert_eq!(woken.due(), None, "all were woken");
        }
    }

    #[test]
    fn callers_of_a_runtime_that_is_not_driven_are_woken_all_the_same() {
        let (inbox, runtime, mut woken) = (inbox(100), runtime(), Woken::default());
        drop(leave(&inbox, &runtime));
        inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
        runtime.block_on(tokio::task::yield_now());
        let (_callers, woke) = leave(&inbox, &runtime);
        let wakes = inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
        assert_eq!((wakes, woke.0.load(Ordering::SeqCst)), (1, 0));
        let due = woken.due().expect("a task was given them");
        assert_eq!(inbox.answer(&mut Vec::new(), &mut woken, due), CALLERS);
        assert_eq!(woke.0.load(Ordering::SeqCst), CALLERS);
        let (_callers, woke) = leave(&inbox, &runtime);
        inbox.answer(&mut answers(taken(&inbox)), &mut woken, due);
        assert_eq!(woke.0.load(Ordering::SeqCst), CALLERS, "at once this time");
        runtime.block_on(tokio::task::yield_now());
        let (_callers, _) = leave(&inbox, &runtime);
        let wakes = inbox.answer(&mut answers(taken(&inbox)), &mut woken, due);
        assert_eq!(wakes, 1, "it is driven again");
    }

    #[test]
    fn callers_of_a_runtime_that_has_ended_are_woken_all_the_same() {
        let (inbox, runtime, mut woken) = (inbox(100), runtime(), Woken::default());
        drop(leave(&inbox, &runtime));
        inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
        let (_callers, woke) = leave(&inbox, &runtime);
        inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
        let (_others, others) = leave(&inbox, &runtime);
        drop(runtime);
        assert_eq!(woke.0.load(Ordering::SeqCst), CALLERS);
        inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
        assert_eq!(others.0.load(Ordering::SeqCst), CALLERS);
    }

    #[test]
    fn the_task_ends_with_the_data_thread() {
        let (inbox, runtime) = (inbox(100), runtime());
        let (_callers, woke) = leave(&inbox, &runtime);
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        inbox.end();
        assert_eq!(woke.0.load(Ordering::SeqCst), CALLERS);
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }

    #[test]
    fn runtimes_that_have_ended_leave_their_places_to_others() {
        let (inbox, mut woken) = (inbox(1_000), Woken::default());
        for _ in 0..3 * RUNTIMES_MAX {
            let runtime = runtime();
            drop(leave(&inbox, &runtime));
            runtime.block_on(tokio::task::yield_now());
            inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
            let (_callers, woke) = leave(&inbox, &runtime);
            let wakes = inbox.answer(&mut answers(taken(&inbox)), &mut woken, Time(1));
            assert_eq!((wakes, woke.0.load(Ordering::SeqCst)), (1, 0));
        }
    }
}
