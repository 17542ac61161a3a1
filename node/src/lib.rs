//! Doyen: a peer-to-peer in-memory data grid.

pub mod clock;
pub mod codec;
pub mod control;
pub mod data;
pub mod net;
pub mod resp;
pub mod shard;
pub mod shared;
