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
//!  view / lease / tick ────┘                       └─> poll_request() -> ShardRequest
//! ```

pub mod command;
#[cfg_attr(not(feature = "fault-points"), allow(dead_code))]
pub mod fault;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod mutant;

mod log;
mod role;
mod shard;
mod store;
#[cfg(test)]
mod tests;
mod value;
mod wire;

pub use command::{
    browse, cached, elements, fenced, glob, grants, idle, operation as op, pattern, queue, sizes,
    sync,
};
pub use value::tags;

pub use command::publication::{CHANNEL_BYTES_MAX, Publication};
pub use log::bookmark::{Bookmark, NoBookmark};
pub use log::changes::{
    By, Cause, Change, Filter, Former, Gap, KeyFilter, Maps, Position, Told, What,
};
pub use role::copy_stats::CopyStats;
pub use role::disk::{DiskBatch, DiskRecord, DiskRecordKind};
pub use role::marks::Committed;
pub use role::partitions::{Partitions, SizesPage};
pub use role::recovery::{KeptKey, KeysPage, KeysWanted, RecoveryMark, SinceRecovery};
pub use role::restoring::{DiskPlan, DiskReading, RestoredPartition};
pub use role::spans::{Serve, Span};
pub use role::stats::{Lookups, Stats};
pub use role::subscriber::Subscriber;
pub use role::subscriptions::SubscriptionId;
#[doc(hidden)]
pub use role::threads::{MemberThreads, thread_of};
pub use shard::disk_port::DiskPort;
#[doc(hidden)]
pub use shard::inspect::{InspectedCalls, Inspection, Inspector};
pub use shard::machine::Shard;
pub use shard::publishing::{Channels, CountQuestion, CountedReceivers, Publishing};
pub use store::census::Outside;
pub use store::victims::SCRIPTS;
pub use value::extended::Extended;
pub use value::integer::integer;
pub use wire::api::{CallToken, Lane, Limits, Malformed, OpenCaller, Patience, ShardRequest};
pub use wire::questions::AskedSubscribers;
pub use wire::trace::TraceContext;
pub use wire::visit::PARK;
