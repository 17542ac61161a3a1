//! A front end: the part of a data thread that clients of one protocol talk to.
//!
//! The data thread drives a shard. A front end brings operations to the shard, and outcomes to its
//! clients. RESP is a front end (`crate::resp`). A data thread without one has [`NoFrontEnd`]: then
//! only the library and other members ask it.
//!
//! A front end has two halves, because a pass of the loop works with both at the same time:
//!
//! ```text
//!   loop ── event, read, run, write ──> Sockets     listeners and connections; the loop owns them
//!                                          │
//!                                       Context     the shard, the view, the clock, and what waits
//!                                          │
//!   core ── deliver, settle, step ──────> Front end      what clients are and wait for
//! ```
//!
//! The compiler knows the front end of each thread, so that no operation pays for this boundary.
//! Threads of one process have the same kind of front end, and tell each other what they like
//! ([`DataContext::tell`]).

use super::DataStats;
use super::context::DataContext;
#[cfg(feature = "console")]
use crate::client_list::ClientList;
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

/// A message between the front ends of two threads. Only the front end knows its content.
pub(crate) type FrontEndMessage = Box<dyn Any + Send>;

/// The half of a front end that stands beside the shard.
pub(crate) trait FrontEnd: Sized {
    /// What the front end keeps for an operation that is under way.
    type Waiter: Waiter;

    /// An outcome has come for this waiter, which had this token.
    fn deliver(context: &mut DataContext<Self>, token: u64, waiter: Self::Waiter, outcome: Outcome);

    /// The pass was judged. `well`: results of `read` may leave. Otherwise they are taken back.
    fn settle(_context: &mut DataContext<Self>, _well: bool) {}

    /// Whether the front end holds replies that `settle` has not judged yet.
    fn is_provisional(&self) -> bool {
        false
    }

    /// Continues operations of several steps. Each that can continue takes one step, as long as
    /// there is `work` left, in comparisons of characters. Returns how many there were.
    fn step(_context: &mut DataContext<Self>, _work: &mut usize) -> usize {
        0
    }

    /// The thread acts on another view now. `None`: this process is a new member and has no view.
    fn view_changed(&mut self, _view: Option<&View>) {}

    /// The newest table is here, or is out of reach. These clients asked for it
    /// ([`DataContext::look_for_table`]).
    fn looked(&mut self, _asked: Vec<u64>) {}

    /// The errand of this client is done ([`DataContext::run_errand`]).
    fn ran(&mut self, _asked: u64, _reply: AdminReply) {}

    /// Handles due timers. Called once in each pass.
    fn tick(_context: &mut DataContext<Self>) {}

    /// When `tick` or `step` has something to do, if nothing else happens before.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Memory that the front end holds for its clients.
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

    /// Adds what the front end counts.
    fn add_stats(&self, _stats: &mut DataStats) {}

    /// Its clients, within the limits of such a list.
    #[cfg(feature = "console")]
    fn clients(_context: &DataContext<Self>) -> ClientList {
        ClientList::default()
    }
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

/// The half of a front end that the loop drives: its sockets.
pub(crate) trait FrontEndSockets: Sized {
    /// The other half.
    type FrontEnd: FrontEnd;

    /// The system reports an event of a socket that this front end registered.
    fn event(&mut self, event: &Event);

    /// Whether a pass would find work at once.
    fn is_busy(&self) -> bool;

    /// When the next timer is due.
    fn timeout(&self) -> Option<Instant>;

    /// Accepts clients, and reads from the ready ones.
    fn read(&mut self, context: &mut DataContext<Self::FrontEnd>, now: Instant);

    /// Runs commands that were read. The view is at least as new as everything that was read.
    fn run(&mut self, context: &mut DataContext<Self::FrontEnd>, now: Instant);

    /// Writes answers to clients.
    fn write(&mut self, context: &mut DataContext<Self::FrontEnd>, now: Instant);

    /// A message from this front end at another thread.
    fn receive(&mut self, context: &mut DataContext<Self::FrontEnd>, message: FrontEndMessage);

    /// Accepts no more clients, answers received commands, and closes each connection in order.
    fn drain(&mut self, context: &mut DataContext<Self::FrontEnd>);
}

/// Opens a front end at a data thread.
pub(crate) trait Opener: Send + 'static {
    /// The sockets of the front end.
    type Sockets: FrontEndSockets;

    /// Opens the front end, on the thread that it is for.
    ///
    /// # Errors
    /// A socket cannot be used.
    fn open(self, place: FrontEndSlot<'_>) -> io::Result<FrontEndHalves<Self::Sockets>>;
}

/// Both halves of a front end.
pub(crate) type FrontEndHalves<S> = (S, <S as FrontEndSockets>::FrontEnd);

/// Where a front end is opened.
#[cfg_attr(
    not(feature = "resp"),
    allow(dead_code, reason = "this build has no front end that asks")
)]
#[derive(Debug)]
pub(crate) struct FrontEndSlot<'a> {
    /// Where the front end registers its sockets.
    pub(crate) registry: Registry,
    /// The first token of the front end. All following tokens are its own, too.
    pub(crate) token_first: usize,
    /// How many data threads the node has.
    pub(crate) threads: u8,
    /// The limits of this thread.
    pub(crate) limits: &'a Limits,
}

/// Memory that a front end holds for its clients, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    /// Bytes that `FrontEnd::set_room` bounds.
    pub(crate) bounded: usize,
    /// All other bytes.
    pub(crate) other: usize,
}

/// A thread without a front end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoFrontEnd;

impl FrontEnd for NoFrontEnd {
    type Waiter = Infallible;

    fn deliver(_: &mut DataContext<Self>, _: u64, waiter: Infallible, _: Outcome) {
        match waiter {}
    }

    fn step(context: &mut DataContext<Self>, _work: &mut usize) -> usize {
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

impl FrontEndSockets for NoFrontEnd {
    type FrontEnd = Self;

    fn event(&mut self, _: &Event) {}

    fn is_busy(&self) -> bool {
        false
    }

    fn timeout(&self) -> Option<Instant> {
        None
    }

    fn read(&mut self, _: &mut DataContext<Self>, _: Instant) {}

    fn run(&mut self, _: &mut DataContext<Self>, _: Instant) {}

    fn write(&mut self, _: &mut DataContext<Self>, _: Instant) {}

    fn receive(&mut self, _: &mut DataContext<Self>, _: FrontEndMessage) {}

    fn drain(&mut self, _: &mut DataContext<Self>) {}
}

impl Opener for NoFrontEnd {
    type Sockets = Self;

    fn open(self, _: FrontEndSlot<'_>) -> io::Result<(Self, Self)> {
        Ok((self, Self))
    }
}
