//! Tests of whole clusters.
//!
//! [`sim`] runs the production machines, `Agreement` and `Shard`, under one seeded scheduler with virtual clocks and a
//! hostile network. [`linear`] judges what clients saw.

pub mod linear;
pub mod sim;
