//! The queue of all future events, in virtual time. Events of one time come in the order in which
//! they were put in.

use super::client::ClientId;
use super::fault::Undo;
use super::halves::Step;
use super::network::ConnectionId;
use super::process::{ControlInput, DataInput, ProcessId, ThreadId};
use doyen_engine::Lane;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// True virtual time in nanoseconds. Nodes see it through clocks that drift.
pub(crate) type Nanos = u64;

/// A millisecond.
pub(crate) const MS: Nanos = 1_000_000;
/// A second.
pub(crate) const SECOND: Nanos = 1_000 * MS;

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// The control thread of a process takes an input.
    Control(ProcessId, ControlInput),
    /// The agreement machine's timer.
    ControlTick(ProcessId),
    /// Something reaches a data thread's inbox.
    Data(ThreadId, DataInput),
    /// A data thread begins a pass over its inbox.
    DataPass(ThreadId),
    /// A data thread ends its pass: it reads clock and lease and releases.
    DataRelease(ThreadId),
    /// A data thread sends the results of its pass to its peers.
    DataTransmit(ThreadId),
    /// The shard's timer.
    DataTick(ThreadId),
    /// A data thread reports progress.
    DataAlive(ThreadId),
    /// A sync of a process's directory is over, or it is time to try again.
    Disk(ProcessId, u64),
    /// A process loses its power.
    PowerFails(ProcessId),
    /// A process dials the data ports of peers with which it has no connection.
    Dial(ProcessId),
    /// An end of a data connection learns that it is up.
    ConnectionUp(ConnectionId, usize),
    /// An end of a data connection learns that it is gone.
    ConnectionDown(ConnectionId, usize),
    /// The next bytes of a lane arrive at this end.
    Arrive(ConnectionId, usize, Lane),
    /// A client does its next operation.
    ClientNext(ClientId),
    /// A client gives up its operation.
    ClientTimeout(ClientId, u64),
    /// The next fault.
    Fault,
    /// A step of an operator's mistake.
    Halves(Step),
    /// A fault ends.
    Undo(Undo),
    /// A slot starts a process.
    Start(usize),
    /// The program of a slot is replaced by the present one, and its process is stopped.
    Upgrade(usize),
    /// A leaver that has handed over everything checks whether its clients are done.
    Drain(ProcessId),
    /// Faults end; from here the cluster must heal.
    Calm,
    /// Checks whether all is well again.
    Healed,
}

/// The queue: a heap of times and places. Events are large, so they stay where they are.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    now: Nanos,
    next: u64,
    queue: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
}

impl Schedule {
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    pub(crate) fn at(&mut self, at: Nanos, event: Event) {
        let place = self.free.pop().unwrap_or(self.events.len());
        if place == self.events.len() {
            self.events.push(None);
        }
        self.events[place] = Some(event);
        self.queue
            .push(Reverse((at.max(self.now), self.next, place)));
        self.next += 1;
    }

    pub(crate) fn after(&mut self, delay: Nanos, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let Reverse((at, _, place)) = self.queue.pop()?;
        self.now = at;
        self.free.push(place);
        self.events[place].take()
    }
}
