//! Hints: what gossip and sockets suggest about members. Never truth; nothing is decided on them alone.

use doyen_placement::MemberId;
use std::net::SocketAddr;

/// Something that may be true of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Nobody listens on its port any more (ECONNREFUSED on a connected UDP socket): start suspecting now.
    Refused(MemberId),
    /// Gossip holds it for dead.
    Suspected(MemberId),
    /// Gossip holds it for alive.
    Alive(MemberId),
    /// Gossip names an address at which some member of our cluster may be reached.
    Address(SocketAddr),
}
