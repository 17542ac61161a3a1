//! Messages between the control threads of two nodes.

use crate::history::Samples;
use doyen_gossip::agreement::Status;
use doyen_gossip::wire::Message;
use doyen_placement::Loads;

/// One message between control threads. An unknown kind is an error, never a guess: of a newer
/// program it is dropped and counted, of any other it ends the connection.
#[derive(Debug)]
pub enum Envelope {
    /// A message for the agreement machine.
    Agreement(Message),
    /// Asks the coordinator for the status of the cluster.
    StatusRequest {
        /// The id of the request.
        ticket: u64,
    },
    /// The answer.
    StatusReply {
        /// The id of the request.
        ticket: u64,
        /// The answerer's own status.
        status: Box<Status>,
    },
    /// Asks the coordinator for the loads of partitions and members.
    LoadsRequest {
        /// The id of the request.
        ticket: u64,
    },
    /// The answer.
    LoadsReply {
        /// The id of the request.
        ticket: u64,
        /// The loads that were reported; empty if the answerer is not the coordinator.
        loads: Loads,
    },
    /// A message of chitchat, in its own encoding. It is only a hint.
    Gossip(Vec<u8>),
    /// Asks a member for the samples of its last hour, from level 16 on.
    HistoryRequest {
        /// The id of the request.
        ticket: u64,
        /// The number of the first sample that is wanted.
        since: u64,
    },
    /// The answer.
    HistoryReply {
        /// The id of the request.
        ticket: u64,
        /// The samples. There are none if nobody can look at them at that member.
        samples: Samples,
    },
}

doyen_placement::tagged!(Envelope {
    0 => Agreement(message),
    1 => StatusRequest { ticket },
    2 => StatusReply { ticket, status },
    3 => LoadsRequest { ticket },
    4 => LoadsReply { ticket, loads },
    5 => Gossip(bytes),
    6 => HistoryRequest { ticket, since },
    7 => HistoryReply { ticket, samples },
});

impl Envelope {
    /// Whether this program knows the kinds with which these bytes begin.
    #[must_use]
    pub fn knows(bytes: &[u8]) -> bool {
        let known = |tags: &[(u32, &str)], place: usize| {
            let tag = bytes.get(place).copied().map(u32::from);
            tags.iter().any(|(known, _)| Some(*known) == tag)
        };
        // Agreement has the first tag.
        known(Self::TAGS, 0) && (bytes[0] != 0 || known(Message::TAGS, 1))
    }

    /// Whether it travels as a datagram, if it fits into one.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        match self {
            Self::Agreement(message) => message.is_datagram(),
            Self::Gossip(_) => true,
            Self::StatusRequest { .. }
            | Self::StatusReply { .. }
            | Self::LoadsRequest { .. }
            | Self::LoadsReply { .. }
            | Self::HistoryRequest { .. }
            | Self::HistoryReply { .. } => false,
        }
    }
}
