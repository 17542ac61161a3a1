//! How it travels: frames between data threads, and what a thread knows of its peers.

mod answers;
pub(crate) mod api;
pub(crate) mod frame;
pub(crate) mod lateness;
mod messages;
pub(crate) mod peers;
pub(crate) mod pressure;
pub(crate) mod published;
pub(crate) mod questions;
pub(crate) mod silence;
pub(crate) mod trace;
pub(crate) mod traffic;
pub(crate) mod visit;
