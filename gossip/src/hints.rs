//! Hints: what gossip and sockets suggest about members. A hint may be wrong, so no decision rests
//! on hints alone.

use doyen_placement::MemberId;
use std::net::SocketAddr;

/// Something that may be true of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The member's host answered one probe of its port with "port unreachable". The suspicion
    /// begins at once. One probe gives one hint.
    Refused(MemberId),
    /// Gossip says that the member is dead.
    Suspected(MemberId),
    /// Gossip says that the member is alive.
    Alive(MemberId),
    /// Gossip names an address at which some member of our cluster may be reached.
    Address(SocketAddr),
}
