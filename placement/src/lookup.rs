//! Compiled look-ups: from a key to its partition in some tens of nanoseconds, without allocating.
//!
//! A table is made once and asked by every operation, so making its look-up may be slow.
//! [`Division`](crate::Division) holds it. The fixed mode needs no look-up: its partitions divide
//! the slots evenly ([`Keyspace::partition_of`](crate::Keyspace::partition_of)).

mod range;
mod ring;

pub use range::{RangeLookup, SplitError};
pub use ring::RingLookup;
