//! The data path as one machine without I/O: storage, forwarding, replication and copying of
//! partitions.
//!
//! One `Shard` owns the partitions of one data thread. The number of threads decides which
//! partitions of a node a thread has (`threads`). The threads of a node are peers of each other,
//! like threads of other nodes. A shell feeds a shard with operations, bytes from peers, views and
//! time, and carries away bytes for peers, outcomes and requests to the control thread. The
//! simulation is another such shell.
//!
//! ```text
//!  submit(now, token, op) ─┐                       ┌─> poll_outcome() -> (token, Outcome)
//!  receive(now, peer, ..) ─┼──> partitions, log ───┼─> poll_transmit() -> (peer, Lane, bytes)
//!  view / lease / tick ────┘                       └─> poll_request() -> Request
//! ```

pub mod cached;
pub mod codec;
pub mod command;
#[cfg_attr(not(feature = "fault-points"), allow(dead_code))]
pub mod fault;
pub mod fenced;
pub mod idle;
pub mod op;
pub mod sizes;
pub mod sync;
pub mod tags;

mod action;
mod ahead;
mod api;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench;
mod bookmark;
mod bounds;
mod callers;
mod changes;
mod clients;
mod clock;
mod compacting;
mod context;
mod copying;
mod deadline;
mod dedup;
mod dispatch;
mod entry;
mod eviction;
mod execute;
mod extended;
mod following;
mod forwarding;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod garbage;
pub mod glob;
pub mod grants;
mod halving;
mod hash;
mod index;
mod inspect;
mod install;
mod integer;
mod late;
mod log;
mod measuring;
mod memory;
#[doc(hidden)]
pub mod mutant;
mod outbox;
mod pace;
mod partition;
pub mod pattern;
mod peers;
mod procedure;
mod published;
mod publishing;
mod readers;
mod ready;
mod receive;
mod recovered;
mod replication;
mod reshaping;
mod role;
mod rounds;
mod rows;
mod scan;
mod scripting;
mod shaking;
mod shard;
mod slots;
mod store;
mod subscriptions;
mod tables;
mod tenure;
#[cfg(test)]
mod tests;
mod threads;
mod timers;
mod traces;
mod upkeep;
mod walking;

pub use api::{Lane, Limits, Malformed, Patience, Request, Stats, Token};
pub use bookmark::{Bookmark, NoBookmark};
pub use changes::{By, Cause, Change, Filter, Former, Gap, Keys, Maps, Position, Told, What};
pub use clients::PARK;
pub use compacting::Outside;
pub use extended::Extended;
#[doc(hidden)]
pub use inspect::{Asked, Inspection};
pub use integer::integer;
pub use publishing::{AskedSubscribers, CHANNEL_BYTES_MAX, CountQuestion, Counted, Publication};
pub use recovered::{KeptKey, KeysPage, KeysWanted, SinceRecovery};
pub use scripting::SCRIPTS;
#[doc(hidden)]
pub use threads::Threads;
#[doc(hidden)]
pub use threads::thread_of;

pub use shard::Shard;
pub use subscriptions::SubscriptionId;
pub use traces::{Serve, Span, TraceContext};
