//! The two networks of a node, both QUIC with mutual TLS 1.3.
//!
//! ```text
//!   control thread ── peers: agreement, joins, gossip   (--listen)  ── hints: chitchat over peers; probe: ECONNREFUSED
//!   data thread    ── links: operations, copies         (--data)
//!                     └─ driver: QUIC without tasks; detour: by way of a third member, where two do not reach each other
//!                        both: identity (who may talk), endpoint (how), hello (who is it, which versions), address (one form each)
//! ```
//!
//! A connection is worth nothing until its hello is done; from then on it binds the sender of
//! everything that arrives.

pub mod address;
pub mod endpoint;
pub mod envelope;
pub mod hello;
pub mod hints;
pub mod identity;
pub mod links;
pub mod peers;
pub mod probe;

mod backoff;
pub(crate) mod detour;
mod driver;
pub(crate) mod grow;
pub(crate) mod notice;
mod socket;
