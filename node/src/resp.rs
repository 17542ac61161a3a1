//! What Redis clients speak: RESP2 and RESP3.
//!
//! ```text
//!   bytes ──frame──> arguments ──command──> Request ──session──> operations of the shard, or an answer at once
//!   bytes <──encode── replies, in order <──session── outcomes, in any order
//! ```

pub mod command;
pub mod encode;
pub mod frame;
pub mod glob;
