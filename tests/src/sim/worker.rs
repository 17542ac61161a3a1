//! Clients that work on streams with groups of consumers, and on queues of jobs.
//!
//! Each works on one key at a time: it adds, waits for something in line or takes at once, and then
//! says that it is done, gives back, or forgets. `streams` and `jobs` say what is asked, and judge
//! the answers. If a partition lost its data, or an operator's word has replaced votes, what was
//! known of a key is forgotten.
//!
//! At the end, when all is well, everything that is left is read, and must be there.

use super::client::ClientId;
use super::jobs::{JobAsks, JobKey};
use super::mix::Mix;
use super::process::{DataInput, Leaving, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::streams::{StreamAsks, StreamKey};
use super::world::World;
use doyen_engine::op::{Action, Failure, Operation, Outcome, Work};
use doyen_placement::{Keyspace, KeyspaceId, MapId, PartitionId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Their numbers as clients begin here.
const FIRST: ClientId = 1 << 33;
/// How often something is read at the end.
const LAST_READS_MAX: u32 = 200;
/// How far the wall clocks of two nodes may differ, if none is set meanwhile, and the time until an
/// answer arrives is not counted: twice the skew, and more.
pub(crate) const CLOCKS_DIFFER: Nanos = 11 * SECOND;

/// All workers, and what they saw.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<Worker>,
    keys: Vec<WorkedKey>,
    rng: ChaCha8Rng,
    serial: u64,
    /// Keys that are still to be read at the end.
    last: Vec<usize>,
    last_reads: u32,
    /// Entries and jobs: how many were added, given to a worker, done, and found at the end.
    pub(crate) counts: [u64; 4],
}

/// A key.
#[derive(Debug)]
struct WorkedKey {
    name: String,
    /// How often it was forgotten.
    era: u64,
    holds: Worked,
}

#[derive(Debug)]
enum Worked {
    Stream(StreamKey),
    Jobs(JobKey),
}

#[derive(Debug, Default)]
struct Worker {
    /// The process that has its call.
    at: Option<(ProcessId, usize)>,
    call: Option<WorkerCall>,
    next_at: Option<Nanos>,
}

/// What is asked of a key.
#[derive(Debug, Clone)]
pub(crate) enum WorkerAsks {
    Stream(StreamAsks),
    Jobs(JobAsks),
}

/// A call that is under way.
#[derive(Debug, Clone)]
struct WorkerCall {
    serial: u64,
    key: usize,
    era: u64,
    asks: WorkerAsks,
    /// It waits in line, and takes then.
    waits: bool,
    when: Moment,
}

/// When something was called or answered: the time, and a number that orders such moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) at: Nanos,
    pub(crate) order: u64,
}

/// Whether an operation may fail so while there are faults.
pub(super) const fn is_of_faults(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Unknown
            | Failure::Unavailable
            | Failure::Overloaded
            | Failure::TooFewCopies
            | Failure::NoPartition
            | Failure::OutOfMemory
            | Failure::Stale
    )
}

/// Who asks, and what it is judged with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The worker.
    pub(crate) id: usize,
    pub(crate) called: Moment,
    pub(crate) answered: Moment,
    /// No fault sets clocks, so that they differ by little.
    pub(crate) steady: bool,
    /// All is well, and no other worker does anything.
    pub(crate) last: bool,
}

#[cfg(test)]
impl Asked {
    /// By the first worker, with clocks that differ by little.
    pub(crate) fn of_test(called: u64, answered: u64) -> Self {
        let moment = |order| Moment {
            at: order * 1_000 * MS,
            order,
        };
        Self {
            id: 0,
            called: moment(called),
            answered: moment(answered),
            steady: true,
            last: false,
        }
    }
}

/// What a worker asks: the operation on its key, and the one with which it waits before, for as
/// many milliseconds.
#[derive(Debug)]
pub(crate) struct WorkerAction {
    pub(crate) action: Action,
    pub(crate) waits: Option<(Action, u64)>,
}

impl Workers {
    pub(crate) fn new(mix: &Mix, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(30);
        let key = |name: String, holds| WorkedKey {
            name,
            era: 0,
            holds,
        };
        let streams = (0..mix.streams).map(|n| {
            let name = format!("stream-{n}");
            let holds = Worked::Stream(StreamKey::new(&name));
            key(name, holds)
        });
        let jobs =
            (0..mix.job_queues).map(|n| key(format!("jobs-{n}"), Worked::Jobs(JobKey::default())));
        let keys: Vec<WorkedKey> = streams.chain(jobs).collect();
        let count = if keys.is_empty() { 0 } else { mix.workers };
        Self {
            all: (0..count).map(|_| Worker::default()).collect(),
            keys,
            rng,
            serial: 0,
            last: Vec::new(),
            last_reads: 0,
            counts: [0; 4],
        }
    }

    /// All that is known of the keys is lost or forgotten.
    pub(crate) fn forget(&mut self) {
        (0..self.keys.len()).for_each(|key| self.forget_key(key));
    }

    fn forget_key(&mut self, key: usize) {
        let serial = self.serial;
        let key = &mut self.keys[key];
        key.era += 1;
        match &mut key.holds {
            Worked::Stream(stream) => stream.forget(serial),
            Worked::Jobs(jobs) => jobs.forget(serial),
        }
    }

    /// This partition began empty.
    pub(crate) fn note_loss(&mut self, at: PartitionId, keyspace: &Keyspace) {
        for key in 0..self.keys.len() {
            let name = self.keys[key].name.as_bytes();
            if keyspace.partition_of(MapId(0), name) == Some(at) {
                self.forget_key(key);
            }
        }
    }

    /// Whether one waits for an answer.
    pub(crate) fn calls(&self) -> bool {
        self.all.iter().any(|worker| worker.call.is_some())
    }
}

impl World {
    /// Whether a client is one of these.
    pub(crate) const fn is_worker(id: ClientId) -> bool {
        id >= FIRST
    }

    pub(crate) fn begin_workers(&mut self) {
        for id in 0..self.workers.all.len() {
            let delay = self.workers.rng.random_range(0..4 * SECOND);
            self.worker_in(delay, id);
        }
    }

    fn worker_in(&mut self, delay: Nanos, id: usize) {
        let at = self.schedule.now() + delay;
        self.workers.all[id].next_at = Some(at);
        self.schedule.at(at, Event::ClientNext(FIRST + id));
    }

    fn worker_moment(&mut self) -> Moment {
        let at = self.schedule.now();
        let order = self.histories.moment(at);
        Moment { at, order }
    }

    fn clocks_are_set(&self) -> bool {
        self.faults.contains_key("wall clock jump")
    }

    /// A worker does the next thing.
    pub(crate) fn worker_next(&mut self, id: ClientId) {
        let id = id - FIRST;
        let (now, worker) = (self.schedule.now(), &mut self.workers.all[id]);
        if worker.next_at != Some(now) || worker.call.is_some() {
            return;
        }
        worker.next_at = None;
        if self.stop_clients && !(self.last_calls_begun && id == 0) {
            return self.clients_idle();
        }
        let rng = &mut self.workers.rng;
        let key = match self.workers.last.last() {
            Some(key) => *key,
            None if self.last_calls_begun => return self.rest_at_the_end(),
            None => rng.random_range(0..self.workers.keys.len()),
        };
        self.workers.serial += 1;
        let serial = self.workers.serial;
        let last = self.last_calls_begun;
        let (asks, action) = match &mut self.workers.keys[key].holds {
            Worked::Stream(stream) => {
                let asks = match last {
                    true => stream.last(),
                    false => stream.next(id, rng),
                };
                let action = stream.action((id, serial), &asks, rng);
                (WorkerAsks::Stream(asks), action)
            }
            Worked::Jobs(jobs) => {
                let asks = match last {
                    true => JobAsks::All,
                    false => jobs.next(id, rng),
                };
                let action = jobs.action(serial, &asks, rng);
                (WorkerAsks::Jobs(asks), action)
            }
        };
        self.worker_calls(id, (key, asks), action);
    }

    fn worker_calls(&mut self, id: usize, (key, asks): (usize, WorkerAsks), asked: WorkerAction) {
        let open = self.slots.iter().filter_map(|s| s.process);
        let open = open.filter(|p| self.processes[*p].leaving < Leaving::HandedOver);
        let open: Vec<ProcessId> = open.collect();
        if open.is_empty() {
            return self.worker_in(50 * MS, id);
        }
        let (now, when) = (self.schedule.now(), self.worker_moment());
        let workers = &mut self.workers;
        let p = open[workers.rng.random_range(0..open.len())];
        let t = workers.rng.random_range(0..self.processes[p].threads.len());
        let serial = workers.serial;
        let (name, era) = (workers.keys[key].name.clone(), workers.keys[key].era);
        self.trace.line(now, || {
            let waits = if asked.waits.is_some() { " waits" } else { "" };
            format!("worker {id} -> p{p} #{serial}{waits} {name} {asks:?}")
        });
        let waits = asked.waits.is_some();
        workers.all[id].at = Some((p, t));
        workers.all[id].call = Some(WorkerCall {
            serial,
            key,
            era,
            asks,
            waits,
            when,
        });
        let operation = |action| Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: name.into_bytes().into(),
            action,
        };
        let input = match asked.waits {
            Some((wait, limit)) => DataInput::Wait(FIRST + id, serial, operation(wait), limit),
            None => {
                let work = Work::Key(operation(asked.action));
                DataInput::Submit(FIRST + id, serial, work)
            }
        };
        let patience = match self.last_calls_begun {
            true => 10 * SECOND,
            false => [SECOND, 4 * SECOND][workers.rng.random_range(0..2)],
        };
        self.data((p, t), input);
        self.schedule
            .after(patience, Event::ClientTimeout(FIRST + id, serial));
    }

    pub(crate) fn worker_timeout(&mut self, id: ClientId, serial: u64) {
        let worker = &self.workers.all[id - FIRST];
        if worker.call.as_ref().is_some_and(|c| c.serial == serial) {
            if let Some(at) = worker.at {
                self.data(at, DataInput::Forget(id, serial));
            }
            self.worker_answer(id, serial, &Outcome::Failed(Failure::Unknown));
        }
    }

    /// The process died, so the outcomes of its workers' calls are unknown.
    pub(crate) fn workers_cut_off(&mut self, process: ProcessId) {
        for id in 0..self.workers.all.len() {
            let worker = &self.workers.all[id];
            if let (Some((at, _)), Some(call)) = (worker.at, &worker.call)
                && at == process
            {
                let serial = call.serial;
                self.worker_answer(FIRST + id, serial, &Outcome::Failed(Failure::Unknown));
            }
        }
    }

    pub(crate) fn worker_answer(&mut self, id: ClientId, serial: u64, outcome: &Outcome) {
        let (id, now) = (id - FIRST, self.schedule.now());
        let worker = &mut self.workers.all[id];
        let Some(call) = worker.call.take_if(|call| call.serial == serial) else {
            return;
        };
        self.trace
            .line(now, || format!("worker {id} <- #{serial} {outcome:?}"));
        let answered = self.worker_moment();
        let think = self.workers.rng.random_range(0..self.mix.think * 2);
        if self.workers.keys[call.key].era != call.era {
            // What it was about is forgotten.
            return self.worker_in(think, id);
        }
        if call.waits {
            return match outcome {
                // It takes.
                Outcome::Many(_) if !self.stop_clients => {
                    self.workers.serial += 1;
                    let serial = self.workers.serial;
                    let rng = &mut self.workers.rng;
                    let action = match (&mut self.workers.keys[call.key].holds, &call.asks) {
                        (Worked::Stream(stream), WorkerAsks::Stream(asks)) => {
                            stream.action((id, serial), asks, rng)
                        }
                        (Worked::Jobs(jobs), WorkerAsks::Jobs(asks)) => {
                            jobs.action(serial, asks, rng)
                        }
                        _ => return,
                    };
                    let action = WorkerAction {
                        waits: None,
                        ..action
                    };
                    self.worker_calls(id, (call.key, call.asks), action);
                }
                _ => self.worker_in(think, id),
            };
        }
        let asked = Asked {
            id,
            called: call.when,
            answered,
            steady: !self.clocks_are_set(),
            last: self.last_calls_begun,
        };
        let Workers { keys, counts, .. } = &mut self.workers;
        let key = &mut keys[call.key];
        let judged = match (&mut key.holds, &call.asks) {
            (Worked::Stream(stream), WorkerAsks::Stream(asks)) => {
                stream.judge(asked, (asks, serial), outcome, counts)
            }
            (Worked::Jobs(jobs), WorkerAsks::Jobs(asks)) => {
                jobs.judge(asked, (asks, serial), outcome, counts)
            }
            _ => Ok(false),
        };
        let name = &key.name;
        match judged {
            Err(what) => {
                let what = format!("work: {name}: {what} (#{serial} of worker {id})");
                return self.broken(what);
            }
            Ok(over) if asked.last => {
                self.last_read_is(over, matches!(outcome, Outcome::Failed(_)))
            }
            Ok(_) => {}
        }
        self.worker_in(if asked.last { MS } else { think }, id);
    }

    /// Everything is read at the end. `over`: all of this key was.
    fn last_read_is(&mut self, over: bool, failed: bool) {
        let workers = &mut self.workers;
        workers.last_reads += u32::from(failed);
        if over {
            workers.last.pop();
        }
        if workers.last_reads > LAST_READS_MAX {
            self.broken("I16: after healing, streams and jobs cannot be read".to_owned());
        }
    }

    /// All is well, and no other worker does anything: one worker reads what is left.
    pub(crate) fn begin_last_work(&mut self) {
        if !self.workers.all.is_empty() {
            self.workers.last = (0..self.workers.keys.len()).collect();
            self.worker_in(MS, 0);
        }
    }

    /// Whether one is still to be read.
    pub(crate) fn work_is_left(&self) -> bool {
        !self.workers.last.is_empty() || self.workers.calls()
    }
}
