//! Messages between the control threads of two nodes.

use crate::client_list::ClientList;
use crate::history::Samples;
use doyen_gossip::agreement::Status;
use doyen_gossip::wire::{Heartbeat, Message};
use doyen_placement::Loads;
use doyen_placement::codec::{self, CodecError};
use minicbor::{Decode, Encode};

/// The largest frame, without its length.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// One message between control threads. `placement/src/level.rs` says how to add one, or a field.
///
/// An unknown kind is an error, never a guess: of a newer program it is dropped and counted, of any
/// other it ends the connection.
#[derive(Debug, Encode, Decode)]
#[cbor(flat)]
pub enum Envelope {
    /// A message for the agreement machine.
    #[n(0)]
    Agreement(#[n(0)] Message),
    /// Asks the coordinator for the status of the cluster.
    #[n(1)]
    StatusRequest {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
    },
    /// The answer.
    #[n(2)]
    StatusReply {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
        /// The answerer's own status.
        #[n(1)]
        status: Box<Status>,
    },
    /// Asks the coordinator for the loads of partitions and members.
    #[n(3)]
    LoadsRequest {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
    },
    /// The answer.
    #[n(4)]
    LoadsReply {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
        /// The loads that were reported; empty if the answerer is not the coordinator.
        #[n(1)]
        loads: Loads,
    },
    /// A message of chitchat, in its own encoding. It is only a hint.
    #[n(5)]
    Gossip(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
    /// Asks a member for the samples of its last hour.
    #[n(6)]
    HistoryRequest {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
        /// The number of the first sample that is wanted.
        #[n(1)]
        since: u64,
    },
    /// The answer.
    #[n(7)]
    HistoryReply {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
        /// The samples. There are none if that member serves no console.
        #[n(1)]
        samples: Samples,
    },
    /// Asks a member for its Redis clients.
    #[n(8)]
    ClientsRequest {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
    },
    /// The answer. A member that serves no console gives none.
    #[n(9)]
    ClientsReply {
        /// The id of the request.
        #[n(0)]
        ticket: u64,
        /// The clients, and the slow commands.
        #[n(1)]
        clients: ClientList,
    },
}

// The kinds of datagrams: of an envelope, and of a message for agreement. They are known to every
// version.
const AGREEMENT: u8 = 0;
const GOSSIP: u8 = 5;
const PING: u8 = 0;
const PONG: u8 = 1;

impl Envelope {
    /// The content of a frame.
    ///
    /// # Errors
    /// The message is too large.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode_numbered(self, FRAME_BYTES_MAX)
    }

    /// The message in a frame.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode_numbered(bytes, FRAME_BYTES_MAX)
    }

    /// The content of a datagram, which every version lays out alike: it is small and frequent, and
    /// gets no fields. `None`: it does not travel as a datagram, or is too large for one.
    #[must_use]
    pub fn encode_datagram(&self) -> Option<Vec<u8>> {
        let bytes = match self {
            Self::Agreement(Message::Ping(said)) => {
                codec::encode(&(AGREEMENT, PING, said), FRAME_BYTES_MAX)
            }
            Self::Agreement(Message::Pong(said)) => {
                codec::encode(&(AGREEMENT, PONG, said), FRAME_BYTES_MAX)
            }
            Self::Gossip(said) => codec::encode(&(GOSSIP, said), FRAME_BYTES_MAX),
            _ => return None,
        };
        bytes.ok()
    }

    /// The message in a datagram.
    ///
    /// # Errors
    /// The bytes are no message that travels as a datagram.
    pub fn decode_datagram(bytes: &[u8]) -> Result<Self, CodecError> {
        let (heartbeat, said): (fn(Heartbeat) -> Message, _) = match bytes {
            [AGREEMENT, PING, said @ ..] => (Message::Ping, said),
            [AGREEMENT, PONG, said @ ..] => (Message::Pong, said),
            [GOSSIP, said @ ..] => return codec::decode(said, FRAME_BYTES_MAX).map(Self::Gossip),
            _ => {
                return Err(CodecError::UnknownKind(
                    "a datagram of an unknown kind".into(),
                ));
            }
        };
        codec::decode(said, FRAME_BYTES_MAX).map(|said| Self::Agreement(heartbeat(said)))
    }

    /// Whether it travels as a datagram, if it fits into one.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        match self {
            Self::Agreement(message) => message.is_datagram(),
            other => matches!(other, Self::Gossip(_)),
        }
    }
}
