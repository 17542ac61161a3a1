//! The front end for Redis clients: RESP2 and RESP3.
//!
//! ```text
//!   bytes ──frame──> arguments ──command──> Request ──session──> operations of the shard,
//!                                                                or an answer at once
//!   bytes <──encode── replies, in order <──session── outcomes, in any order
//! ```
//!
//! Each data thread has such a front end (`data::front`): its sockets are in `server`, and what its
//! clients share is in `front`. What the front ends of all threads of a node share is in `common`.

pub mod acl;
pub(crate) mod budget;
pub mod client;
pub mod cluster;
pub mod command;
mod common;
pub mod counts;
pub mod databases;
pub mod describe;
pub mod encode;
pub mod followed;
pub mod frame;
pub(crate) mod front_end;
pub mod info;
#[cfg(feature = "console")]
mod listed;
mod monitor;
mod notices;
mod output;
mod own_operations;
mod pubsub;
pub(crate) mod ready;
mod reply_steps;
mod scripts;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod slowlog;
pub(crate) mod spill;
mod spilled;
mod stream;
mod thread;
pub(crate) mod timing;
pub mod totals;
mod tracking;
mod usage;

/// A data thread whose front end is RESP.
pub(crate) type RespContext = crate::data::context::DataContext<front_end::Resp>;

#[cfg(test)]
mod tests;
