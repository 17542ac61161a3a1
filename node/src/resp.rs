//! What Redis clients speak: RESP2 and RESP3.
//!
//! ```text
//!   bytes ──frame──> arguments ──command──> Request ──session──> operations of the shard, or an answer at once
//!   bytes <──encode── replies, in order <──session── outcomes, in any order
//! ```

pub(crate) mod budget;
pub mod client;
pub mod cluster;
pub mod command;
pub mod counts;
pub mod databases;
pub mod describe;
pub mod encode;
pub mod frame;
mod gather;
pub mod glob;
pub(crate) mod guard;
pub mod info;
mod output;
pub(crate) mod ready;
pub mod reply;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod slowlog;
pub(crate) mod spill;
mod usage;
