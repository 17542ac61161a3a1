//! Compiled look-ups: from a key to its partition in some tens of nanoseconds, without allocating.
//!
//! A table is made once and asked by every operation, so that making it may cost what it likes.
//! [`Division`](crate::Division) holds it. The fixed mode needs none of this: its partitions are a
//! division of the slot ([`Keyspace::partition_of`](crate::Keyspace::partition_of)).

mod range;
mod ring;

pub use range::{RangeLookup, SplitError};
pub use ring::RingLookup;
