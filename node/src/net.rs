//! The two networks of a node, both QUIC with mutual TLS 1.3.
//!
//! ```text
//!   control thread ── peers: agreement, joins, gossip   (--listen)
//!                       └─ hints: chitchat over peers; probe: ECONNREFUSED
//!   data thread ── links: operations, copies            (--data)
//!                    └─ driver: QUIC without tasks
//!                    └─ relay: datagrams carried by a third member
//!      both: path, what connections have measured (round trips, losses, sizes)
//!      both: identity (who may talk), endpoint (how), places (how many may begin at once),
//!            hello (who a peer is, and its version)
//! ```
//!
//! A connection may not be used until its hello is done. From then on, everything that arrives on
//! it comes from that peer.

pub mod accept_limit;
pub mod endpoint;
pub mod envelope;
pub mod hello;
pub mod hints;
pub mod identity;
pub mod links;
pub mod path;
pub mod peers;
pub mod probe;
pub mod starts;
pub mod traffic;

mod backoff;
mod driver;
pub(crate) mod grow;
pub(crate) mod keepalive;
pub(crate) mod notice;
pub mod relay;
pub mod sending;
mod socket;
