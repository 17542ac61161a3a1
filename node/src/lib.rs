//! Doyen: a peer-to-peer in-memory data grid.

pub mod shard;
pub mod shared;
