//! Messages between the control threads of two nodes.

use doyen_gossip::agreement::Status;
use doyen_gossip::wire::Message;
use doyen_placement::Loads;
use serde::{Deserialize, Serialize};

/// One message between control threads. An unknown kind is an error, never a guess.
#[derive(Debug, Serialize, Deserialize)]
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
}

impl Envelope {
    /// Whether it travels as a datagram, if it fits into one.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        match self {
            Self::Agreement(message) => message.is_datagram(),
            Self::Gossip(_) => true,
            Self::StatusRequest { .. }
            | Self::StatusReply { .. }
            | Self::LoadsRequest { .. }
            | Self::LoadsReply { .. } => false,
        }
    }
}
