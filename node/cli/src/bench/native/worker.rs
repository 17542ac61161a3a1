//! One thread: callers, polled when they are woken or due.
//!
//! It is an executor of the smallest kind, so that what is measured is the client: a wake-up notes
//! the number of a caller, and unparks the thread if it was the first.

use super::super::Failed;
use super::super::keys;
use super::super::pace;
use super::super::plan::{Kind, Operation, Plan};
use super::super::recorder::Recorder;
use super::super::schedule::{Clock, Schedule};
use doyen::Map;
use std::cell::RefCell;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Keys are text, so are values.
pub(super) type Keys = Map<String, String>;

/// What the callers of a thread share.
#[derive(Debug)]
pub(super) struct Shared {
    clock: Clock,
    plan: Plan,
    schedule: Schedule,
    recorder: Recorder,
    lanes: Vec<Lane>,
    in_flight: usize,
    batch: bool,
    /// When callers began to be polled.
    now: u64,
    /// Whether an answer came since.
    heard: bool,
}

/// What a connection is elsewhere: so many callers, who share its starts.
#[derive(Debug, Default, Clone)]
struct Lane {
    /// Callers without an operation.
    idle: Vec<usize>,
    outstanding: usize,
    /// How many may still begin, in batches.
    left: usize,
}

impl Shared {
    /// `(lanes, in_flight)`: callers of each lane.
    pub(super) fn new(
        clock: Clock,
        plan: Plan,
        schedule: Schedule,
        (lanes, in_flight): (usize, usize),
        batch: bool,
    ) -> Self {
        let lane = Lane {
            left: in_flight,
            ..Lane::default()
        };
        Self {
            clock,
            plan,
            schedule,
            recorder: Recorder::new(),
            lanes: vec![lane; lanes],
            in_flight,
            batch,
            now: 0,
            heard: false,
        }
    }

    /// What a caller does next, and when it should have begun.
    fn next(&mut self, caller: usize) -> Option<(Operation, u64)> {
        let (at, now) = (caller / self.in_flight, self.now);
        let lane = &mut self.lanes[at];
        let next = if self.batch && lane.left == 0 {
            None
        } else {
            self.schedule.take(at, now)
        };
        let Some(intended) = next else {
            lane.idle.push(caller);
            return None;
        };
        let Some(operation) = self.plan.next() else {
            self.schedule.give_back(at);
            lane.idle.push(caller);
            return None;
        };
        lane.outstanding += 1;
        lane.left = lane.left.saturating_sub(1);
        self.recorder.sent(now);
        Some((operation, intended))
    }

    /// What came of it: whether a value was found, or an error.
    fn done(
        &mut self,
        caller: usize,
        operation: Operation,
        intended: u64,
        done: Result<bool, String>,
    ) {
        if !std::mem::replace(&mut self.heard, true) {
            self.recorder.heard(self.now);
        }
        match done {
            Ok(found) => self
                .recorder
                .answered(operation.kind, found, intended, self.now),
            Err(error) => self.recorder.failed(&error),
        }
        let lane = &mut self.lanes[caller / self.in_flight];
        lane.outstanding -= 1;
        if lane.outstanding == 0 {
            lane.left = self.in_flight;
        }
    }

    /// Idle callers of lanes that may begin a batch.
    fn begin_batches(&mut self, into: &mut Vec<usize>) {
        if self.batch && self.now < self.schedule.ends_at() {
            let ready = self
                .lanes
                .iter_mut()
                .filter(|lane| lane.outstanding == 0 && lane.left == self.in_flight);
            ready.for_each(|lane| into.append(&mut lane.idle));
        }
    }
}

/// The first word of an error says of which kind it is.
fn told(error: &(impl Debug + std::fmt::Display)) -> String {
    let kind = format!("{error:?}");
    format!("{} {error}", kind.split('(').next().unwrap_or_default())
}

/// Does one operation after the other.
async fn call(caller: usize, map: Keys, value: Rc<String>, shared: Rc<RefCell<Shared>>) {
    loop {
        let (operation, intended) = poll_fn(|_| {
            shared
                .borrow_mut()
                .next(caller)
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        let name = keys::name(operation.key);
        // Letters and digits.
        let key = std::str::from_utf8(&name).unwrap_or_default();
        let done = match operation.kind {
            Kind::Get => map
                .get(key)
                .await
                .map(|found| found.is_some())
                .map_err(|e| told(&e)),
            Kind::Set => map
                .insert(key, &value)
                .await
                .map(|()| false)
                .map_err(|e| told(&e)),
        };
        shared.borrow_mut().done(caller, operation, intended, done);
    }
}

/// Callers that were woken, and whom to wake for them.
#[derive(Debug)]
struct Woken {
    callers: Mutex<Vec<usize>>,
    thread: Thread,
}

impl Woken {
    fn callers(&self) -> MutexGuard<'_, Vec<usize>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WakeCaller {
    caller: usize,
    woken: Arc<Woken>,
}

impl Wake for WakeCaller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut callers = self.woken.callers();
        callers.push(self.caller);
        let first = callers.len() == 1;
        drop(callers);
        if first {
            self.woken.thread.unpark();
        }
    }
}

/// A caller: it never ends.
type Caller = Pin<Box<dyn Future<Output = ()>>>;

/// A thread's callers, and what they do.
#[derive(Debug)]
pub(super) struct Worker {
    map: Keys,
    value: String,
    shared: Option<Shared>,
}

impl Worker {
    pub(super) fn new(map: Keys, value: Vec<u8>, shared: Shared) -> Self {
        // Letters and digits.
        Self {
            map,
            value: String::from_utf8(value).unwrap_or_default(),
            shared: Some(shared),
        }
    }

    /// From now on it does this; answers count from a time on.
    pub(super) fn go_on(&mut self, mut shared: Shared, measured_from: u64) {
        if let Some(before) = self.shared.take() {
            // Its errors count.
            shared.recorder.merge(before.recorder);
        }
        shared.recorder.measure_from(measured_from);
        self.shared = Some(shared);
    }

    /// What was recorded, and by how many starts it was behind.
    pub(super) fn end(self) -> (Recorder, u64) {
        self.shared.map_or_else(
            || (Recorder::new(), 0),
            |shared| (shared.recorder, shared.schedule.behind()),
        )
    }

    /// Until the plan or the schedule ends, and what was sent is answered. Ends early when another
    /// thread has failed.
    pub(super) fn run(&mut self, failed: &AtomicBool) -> Result<(), Failed> {
        let Some(shared) = self.shared.take() else {
            return Ok(());
        };
        let callers = shared.lanes.len() * shared.in_flight;
        let shared = Rc::new(RefCell::new(shared));
        let result = self.drive(callers, &shared, failed);
        // The callers are gone, and nobody else has it.
        self.shared = Rc::into_inner(shared).map(RefCell::into_inner);
        result
    }

    fn drive(
        &self,
        callers: usize,
        shared: &Rc<RefCell<Shared>>,
        failed: &AtomicBool,
    ) -> Result<(), Failed> {
        let value = Rc::new(self.value.clone());
        let woken = Arc::new(Woken {
            callers: Mutex::default(),
            thread: thread::current(),
        });
        let mut all: Vec<(Caller, Waker)> = (0..callers)
            .map(|caller| {
                let future: Caller = Box::pin(call(
                    caller,
                    self.map.clone(),
                    value.clone(),
                    shared.clone(),
                ));
                (
                    future,
                    Waker::from(Arc::new(WakeCaller {
                        caller,
                        woken: woken.clone(),
                    })),
                )
            })
            .collect();
        let mut ready: Vec<usize> = (0..callers).collect();
        loop {
            {
                let mut shared = shared.borrow_mut();
                (shared.now, shared.heard) = (shared.clock.now(), false);
            }
            let idle = ready.is_empty();
            for caller in ready.drain(..) {
                let (future, waker) = &mut all[caller];
                // Callers never end.
                let _ = future.as_mut().poll(&mut Context::from_waker(waker));
            }
            let mut now = shared.borrow_mut();
            if pace::is_over(now.clock, &now.plan, &now.schedule, &now.recorder)?
                || failed.load(Ordering::Relaxed)
            {
                let end = now.clock.now();
                now.recorder.finish(end);
                return Ok(());
            }
            now.begin_batches(&mut ready);
            let at = now.clock.now();
            while let Some(lane) = now.schedule.due_lane(at) {
                ready.extend(now.lanes[lane].idle.pop());
            }
            let sleep = pace::sleep(now.clock, &now.schedule);
            drop(now);
            ready.append(&mut woken.callers());
            if ready.is_empty() {
                match sleep.is_zero() {
                    true if idle => thread::yield_now(),
                    true => {}
                    false => thread::park_timeout(sleep),
                }
                ready.append(&mut woken.callers());
            }
        }
    }
}
