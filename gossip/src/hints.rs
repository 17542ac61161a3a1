//! Hints: what gossip and sockets suggest about members. Never truth; nothing is decided on them
//! alone.

use doyen_placement::MemberId;
use std::net::SocketAddr;

/// Something that may be true of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The member's host answered one probe of its port with "port unreachable": start suspecting
    /// now. Said once a probe.
    Refused(MemberId),
    /// Gossip holds it for dead.
    Suspected(MemberId),
    /// Gossip holds it for alive.
    Alive(MemberId),
    /// Gossip names an address at which some member of our cluster may be reached.
    Address(SocketAddr),
}
