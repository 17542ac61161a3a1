//! Which members are alive, which one leads, and which table is in force.
//!
//! [`agreement::Agreement`] is a sans-IO machine: `handle(now, input)`, then poll its outputs. The
//! `node` crate drives it with sockets and clocks, the simulation with virtual ones.

pub mod agreement;
mod detector;
pub mod hints;
#[doc(hidden)]
pub mod mutant;
mod signing;
pub mod time;
pub mod wire;

pub use agreement::{Agreement, AgreementConfig, Input, Output};
pub use signing::{Presence, Signature, SigningKey, SigningSeed, Vote};
pub use time::Time;
