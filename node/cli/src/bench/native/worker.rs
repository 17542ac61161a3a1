//! One thread with its callers. It polls a caller when the caller is woken or due.
//!
//! It is a minimal executor, so that the client is what the figures measure. A wake-up notes the
//! number of the caller, and unparks the thread if it is the first one.

use super::super::CommandFailed;
use super::super::keys;
use super::super::plan::{BenchPlan, LoadOperation, OperationKind};
use super::super::rate;
use super::super::recorder::Recorder;
use super::super::schedule::{Clock, Schedule};
use doyen::{Error, Map};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Keys and values are text.
pub(super) type KeyMap = Map<String, String>;

/// State that the callers of a thread share.
#[derive(Debug)]
pub(super) struct NativeShared {
    clock: Clock,
    plan: BenchPlan,
    schedule: Schedule,
    recorder: Recorder,
    lanes: Vec<NativeLane>,
    in_flight: usize,
    batch: bool,
    /// When the current round of polling began.
    now: u64,
    /// Whether a reply came in this round.
    heard: bool,
    /// The map was dropped, so no operation can succeed any more.
    dropped: bool,
}

/// The counterpart of a connection: a number of callers that share its starts.
#[derive(Debug, Default, Clone)]
struct NativeLane {
    /// Callers without an operation.
    idle: Vec<usize>,
    outstanding: usize,
    /// How many callers may still begin in this batch.
    left: usize,
}

impl NativeShared {
    /// `(lanes, in_flight)`: the number of lanes, and of callers in each.
    pub(super) fn new(
        clock: Clock,
        plan: BenchPlan,
        schedule: Schedule,
        (lanes, in_flight): (usize, usize),
        batch: bool,
    ) -> Self {
        let lane = NativeLane {
            left: in_flight,
            ..NativeLane::default()
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
            dropped: false,
        }
    }

    /// The caller's next operation, and its intended start.
    fn next(&mut self, caller: usize) -> Option<(LoadOperation, u64)> {
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

    /// Records a result: whether a value was found, or an error.
    fn done(
        &mut self,
        caller: usize,
        operation: LoadOperation,
        intended: u64,
        done: Result<bool, Error>,
    ) {
        if !std::mem::replace(&mut self.heard, true) {
            self.recorder.heard(self.now);
        }
        match done {
            Ok(found) => self
                .recorder
                .answered(operation.kind, found, intended, self.now),
            Err(error) => {
                self.dropped |= error == Error::Dropped;
                self.recorder.failed(&told(&error));
            }
        }
        let lane = &mut self.lanes[caller / self.in_flight];
        lane.outstanding -= 1;
        if lane.outstanding == 0 {
            lane.left = self.in_flight;
        }
    }

    /// Appends the idle callers of lanes that may begin a batch.
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

/// The text of an error, with its kind as the first word.
fn told(error: &Error) -> String {
    let kind = format!("{error:?}");
    format!("{} {error}", kind.split('(').next().unwrap_or_default())
}

/// Runs one operation at a time, for ever.
async fn call(caller: usize, map: KeyMap, value: Rc<String>, shared: Rc<RefCell<NativeShared>>) {
    loop {
        let (operation, intended) = poll_fn(|_| {
            shared
                .borrow_mut()
                .next(caller)
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        let name = keys::name(operation.key);
        // Values consist of letters and digits.
        let key = std::str::from_utf8(&name).unwrap_or_default();
        let done = match operation.kind {
            OperationKind::Get => map.get(key).await.map(|found| found.is_some()),
            OperationKind::Set => map.insert(key, &value).await.map(|()| false),
            OperationKind::Delete => map.remove(key).await.map(|_| false),
        };
        shared.borrow_mut().done(caller, operation, intended, done);
    }
}

/// Callers that were woken, and the thread to unpark for them.
#[derive(Debug)]
struct WorkerWakeup {
    callers: Mutex<Vec<usize>>,
    thread: Thread,
}

impl WorkerWakeup {
    fn callers(&self) -> MutexGuard<'_, Vec<usize>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WakeCaller {
    caller: usize,
    woken: Arc<WorkerWakeup>,
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

/// A caller; it never ends.
type NativeCaller = Pin<Box<dyn Future<Output = ()>>>;

/// The callers of a thread.
#[derive(Debug)]
pub(super) struct NativeWorker {
    map: KeyMap,
    value: String,
    shared: Option<NativeShared>,
}

impl NativeWorker {
    pub(super) fn new(map: KeyMap, value: Vec<u8>, shared: NativeShared) -> Self {
        // Values consist of letters and digits.
        Self {
            map,
            value: String::from_utf8(value).unwrap_or_default(),
            shared: Some(shared),
        }
    }

    /// Begins another phase of the run. Replies count from `measured_from` on.
    pub(super) fn go_on(&mut self, mut shared: NativeShared, measured_from: u64) {
        if let Some(before) = self.shared.take() {
            // Errors of the former phase count as well.
            shared.recorder.merge(before.recorder);
        }
        shared.recorder.measure_from(measured_from);
        self.shared = Some(shared);
    }

    /// The record, and how many starts were due but never sent.
    pub(super) fn end(&mut self) -> (Recorder, u64) {
        self.shared.take().map_or_else(
            || (Recorder::new(), 0),
            |shared| (shared.recorder, shared.schedule.behind()),
        )
    }

    /// Runs until the plan or the schedule ends and every operation is answered. Ends early if
    /// another thread has failed.
    pub(super) fn run(&mut self, failed: &AtomicBool) -> Result<(), CommandFailed> {
        let Some(shared) = self.shared.take() else {
            return Ok(());
        };
        let callers = shared.lanes.len() * shared.in_flight;
        let shared = Rc::new(RefCell::new(shared));
        let result = self.drive(callers, &shared, failed);
        // The callers are dropped, so this is the last reference.
        self.shared = Rc::into_inner(shared).map(RefCell::into_inner);
        result
    }

    fn drive(
        &self,
        callers: usize,
        shared: &Rc<RefCell<NativeShared>>,
        failed: &AtomicBool,
    ) -> Result<(), CommandFailed> {
        let value = Rc::new(self.value.clone());
        let woken = Arc::new(WorkerWakeup {
            callers: Mutex::default(),
            thread: thread::current(),
        });
        let mut all: Vec<(NativeCaller, Waker)> = (0..callers)
            .map(|caller| {
                let future: NativeCaller = Box::pin(call(
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
            if now.dropped {
                return Err(CommandFailed::new(
                    "the map was dropped while the load ran: run it again, on a new map",
                ));
            }
            if rate::is_over(now.clock, &now.plan, &now.schedule, &now.recorder)?
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
            let sleep = rate::sleep(now.clock, &now.schedule);
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
