//! Tests of whole clusters.
//!
//! [`sim`] runs the production machines, `Agreement` and `Shard`, under one seeded scheduler with virtual clocks and a
//! hostile network; [`linear`] judges what clients saw. [`process`], [`cluster`] and [`load`] start, drive and hurt real
//! processes over real sockets. [`bench`] measures them beside others.

pub mod bench;
pub mod cluster;
pub mod linear;
pub mod load;
pub mod process;
pub mod resp;
pub mod sim;
