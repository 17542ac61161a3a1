//! Messages between the control threads of two nodes.

use crate::client_list::ClientList;
use crate::history::Samples;
use doyen_gossip::agreement::Status;
use doyen_gossip::wire::Message;
use doyen_placement::Loads;
use doyen_placement::codec::{self, CodecError};
use doyen_placement::level::NUMBERED;
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
    /// Asks a member for the samples of its last hour, from level 16 on.
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
    /// Asks a member for its Redis clients, from level 16 on.
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

doyen_placement::tagged!(Envelope {
    0 => Agreement(message),
    1 => StatusRequest { ticket },
    2 => StatusReply { ticket, status },
    3 => LoadsRequest { ticket },
    4 => LoadsReply { ticket, loads },
    5 => Gossip(bytes),
    6 => HistoryRequest { ticket, since },
    7 => HistoryReply { ticket, samples },
    8 => ClientsRequest { ticket },
    9 => ClientsReply { ticket, clients },
});

impl Envelope {
    /// The content of a frame on a connection of this version.
    ///
    /// # Errors
    /// The message is too large.
    pub fn encode(&self, version: u16) -> Result<Vec<u8>, CodecError> {
        match version >= NUMBERED {
            true => codec::encode_numbered(self, FRAME_BYTES_MAX),
            false => codec::encode(self, FRAME_BYTES_MAX),
        }
    }

    /// The message in a frame on a connection of this version.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn decode(bytes: &[u8], version: u16) -> Result<Self, CodecError> {
        match version >= NUMBERED {
            true => codec::decode_numbered(bytes, FRAME_BYTES_MAX),
            false => codec::decode(bytes, FRAME_BYTES_MAX),
        }
    }

    /// The content of a datagram, which every version lays out alike: it is small and frequent, and
    /// gets no fields.
    ///
    /// # Errors
    /// The message is too large.
    pub fn encode_datagram(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self, FRAME_BYTES_MAX)
    }

    /// The message in a datagram.
    ///
    /// # Errors
    /// The bytes are no message that travels as a datagram.
    pub fn decode_datagram(bytes: &[u8]) -> Result<Self, CodecError> {
        let envelope: Self = codec::decode(bytes, FRAME_BYTES_MAX)?;
        if !envelope.is_datagram() {
            return Err(CodecError::Invalid(
                "it does not travel as a datagram".into(),
            ));
        }
        Ok(envelope)
    }

    /// Whether this program knows the kinds with which the bytes of a datagram begin.
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
            | Self::HistoryReply { .. }
            | Self::ClientsRequest { .. }
            | Self::ClientsReply { .. } => false,
        }
    }
}
