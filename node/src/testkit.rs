//! Kill tests: what hurts the network between real processes, and what judges whether their clients were told the truth.
//!
//! [`Relay`] stands before every node's ports and [`Faults`] says what a link does to the datagrams on it; a [`History`] records what
//! clients asked and were answered, and judges whether any order of the operations explains it, key by key ([`linear`]).

mod history;
pub mod linear;
mod link;
mod relay;

pub use history::{History, Pending, Violation, Wrong};
pub use link::{Counts, Faults};
pub use relay::{Plane, Relay};
