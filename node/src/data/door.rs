//! A front door: the part of a data thread that clients of one protocol talk to.
//!
//! The data thread drives a shard. A front door brings operations to the shard, and outcomes to its
//! clients. RESP is a front door (`crate::resp`). A data thread without one has [`NoDoor`]: then
//! only the library and other members ask it.
//!
//! A door has two halves, because a pass of the loop works with both at the same time:
//!
//! ```text
//!   loop ── event, read, run, write ──> Sockets     listeners and connections; the loop owns them
//!                                          │
//!                                       Context     the shard, the view, the clock, and what waits
//!                                          │
//!   core ── deliver, settle, step ──────> Door      what clients are and wait for
//! ```
//!
//! The compiler knows the door of each thread, so that no operation pays for this boundary. Threads
//! of one process have the same kind of door, and tell each other what they like
//! ([`Context::tell`]).

use super::DataStats;
use super::context::Context;
use doyen_engine::Limits;
use doyen_engine::op::Outcome;
use doyen_gossip::Time;
use doyen_gossip::agreement::{AdminReply, View};
use mio::Registry;
use mio::event::Event;
use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::time::Instant;

/// A message between the doors of two threads. Only the door knows its content.
pub(crate) type DoorMessage = Box<dyn Any + Send>;

/// The half of a door that stands beside the shard.
pub(crate) trait Door: Sized {
    /// What the door keeps for an operation that is under way.
    type Waiter: Waiter;

    /// An outcome has come for this waiter, which had this token.
    fn deliver(context: &mut Context<Self>, token: u64, waiter: Self::Waiter, outcome: Outcome);

    /// The pass was judged. `well`: results of `read` may leave. Otherwise they are taken back.
    fn settle(_context: &mut Context<Self>, _well: bool) {}

    /// Whether the door holds replies that `settle` has not judged yet.
    fn is_provisional(&self) -> bool {
        false
    }

    /// Continues operations of several steps. Each that can continue takes one step, as long as
    /// there is `work` left, in comparisons of characters. Returns how many there were.
    fn step(_context: &mut Context<Self>, _work: &mut usize) -> usize {
        0
    }

    /// The thread acts on another view now. `None`: this process is a new member and has no view.
    fn view_changed(&mut self, _view: Option<&View>) {}

    /// The newest table is here, or is out of reach. These clients asked for it
    /// ([`Context::look_for_table`]).
    fn looked(&mut self, _asked: Vec<u64>) {}

    /// The errand of this client is done ([`Context::run_errand`]).
    fn ran(&mut self, _asked: u64, _reply: AdminReply) {}

    /// Handles due timers. Called once in each pass.
    fn tick(_context: &mut Context<Self>) {}

    /// When `tick` or `step` has something to do, if nothing else happens before.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Memory that the door holds for its clients.
    fn held(&self) -> HeldBytes {
        HeldBytes::default()
    }

    /// Whether clients have given back this many bytes since the last call that returned true.
    fn has_given_back(&self, _bytes: usize) -> bool {
        false
    }

    /// There is room for this many bytes of `HeldBytes::bounded`. `over`: the process holds more
    /// memory than it may.
    fn set_room(&self, _now: Time, _bytes: usize, _over: bool) {}

    /// Whether there are no clients.
    fn is_empty(&self) -> bool {
        true
    }

    /// Adds what the door counts.
    fn add_stats(&self, _stats: &mut DataStats) {}
}

/// What waits for the outcome of one operation.
pub(crate) trait Waiter {
    /// Whether the operation is a read: nothing is lost with its outcome.
    fn is_read(&self) -> bool;

    /// Whether no client could tell if the operation, which changed nothing, was executed later
    /// than it was.
    fn may_be_asked_again(&self) -> bool;

    /// The operation was submitted again, and waits until this time at most.
    fn is_asked_again(&self, until: Time);
}

/// The half of a door that the loop drives: its sockets.
pub(crate) trait DoorSockets: Sized {
    /// The other half.
    type Door: Door;

    /// The system reports an event of a socket that this door registered.
    fn event(&mut self, event: &Event);

    /// Whether a pass would find work at once.
    fn is_busy(&self) -> bool;

    /// When the next timer is due.
    fn timeout(&self) -> Option<Instant>;

    /// Accepts clients, and reads from the ready ones.
    fn read(&mut self, context: &mut Context<Self::Door>, now: Instant);

    /// Runs commands that were read. The view is at least as new as everything that was read.
    fn run(&mut self, context: &mut Context<Self::Door>, now: Instant);

    /// Writes answers to clients.
    fn write(&mut self, context: &mut Context<Self::Door>, now: Instant);

    /// A message from this door at another thread.
    fn receive(&mut self, context: &mut Context<Self::Door>, message: DoorMessage);

    /// Accepts no more clients, answers received commands, and closes each connection in order.
    fn drain(&mut self, context: &mut Context<Self::Door>);
}

/// Opens a door at a data thread.
pub(crate) trait Opener: Send + 'static {
    /// The sockets of the door.
    type Sockets: DoorSockets;

    /// Opens the door, on the thread that it is for.
    ///
    /// # Errors
    /// A socket cannot be used.
    fn open(self, place: DoorPlace<'_>) -> io::Result<Halves<Self::Sockets>>;
}

/// Both halves of a door.
pub(crate) type Halves<S> = (S, <S as DoorSockets>::Door);

/// Where a door is opened.
#[cfg_attr(
    not(feature = "resp"),
    allow(dead_code, reason = "this build has no front door that asks")
)]
#[derive(Debug)]
pub(crate) struct DoorPlace<'a> {
    /// Where the door registers its sockets.
    pub(crate) registry: Registry,
    /// The first token of the door. All following tokens are its own, too.
    pub(crate) token_first: usize,
    /// How many data threads the node has.
    pub(crate) threads: u8,
    /// The limits of this thread.
    pub(crate) limits: &'a Limits,
}

/// Memory that a door holds for its clients, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    /// Bytes that `Door::set_room` bounds.
    pub(crate) bounded: usize,
    /// All other bytes.
    pub(crate) other: usize,
}

/// A thread without a front door.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoDoor;

impl Door for NoDoor {
    type Waiter = Infallible;

    fn deliver(_: &mut Context<Self>, _: u64, waiter: Infallible, _: Outcome) {
        match waiter {}
    }

    fn step(context: &mut Context<Self>, _work: &mut usize) -> usize {
        // This process has no subscribers and no scripts. Members that ask need not wait.
        while let Some(question) = context.poll_question() {
            context.answer_names(&question, Vec::new(), None);
        }
        0
    }
}

impl Waiter for Infallible {
    fn is_read(&self) -> bool {
        match *self {}
    }

    fn may_be_asked_again(&self) -> bool {
        match *self {}
    }

    fn is_asked_again(&self, _: Time) {
        match *self {}
    }
}

impl DoorSockets for NoDoor {
    type Door = Self;

    fn event(&mut self, _: &Event) {}

    fn is_busy(&self) -> bool {
        false
    }

    fn timeout(&self) -> Option<Instant> {
        None
    }

    fn read(&mut self, _: &mut Context<Self>, _: Instant) {}

    fn run(&mut self, _: &mut Context<Self>, _: Instant) {}

    fn write(&mut self, _: &mut Context<Self>, _: Instant) {}

    fn receive(&mut self, _: &mut Context<Self>, _: DoorMessage) {}

    fn drain(&mut self, _: &mut Context<Self>) {}
}

impl Opener for NoDoor {
    type Sockets = Self;

    fn open(self, _: DoorPlace<'_>) -> io::Result<(Self, Self)> {
        Ok((self, Self))
    }
}
