//! What a key holds: its kind, its entry in memory, what it weighs, when it ends.
//!
//! This is the lowest room: it imports no other one. A type's packed form is in [`types`].

pub(crate) mod cause;
pub(crate) mod dated;
pub(crate) mod deadline;
pub(crate) mod entry;
pub(crate) mod extended;
pub(crate) mod hyperloglog;
pub(crate) mod integer;
pub(crate) mod items;
pub(crate) mod kind;
pub(crate) mod outcome;
pub mod tags;
pub(crate) mod types;
