//! An opening connection: hello, answer, three lanes.
//!
//! ```text
//!   dialler   hello ─────────────>  accepted
//!             <───────────── hello
//!            lanes of calls, of bulk, of carried datagrams ──>  both up
//! ```

use super::super::accept_limit::SourcePlace;
use super::super::endpoint::{Close, DialFailure};
use super::super::hello::{HELLO_BYTES_MAX, Hello, Side, binding, judge};
use super::super::identity::{Evidence, Identity};
use doyen_placement::MemberId;
use quinn_proto::{Connection, Dir, ReadError, StreamId, WriteError};
use std::net::SocketAddr;

const TAG_CALLS: u8 = 1;
const TAG_BULK: u8 = 2;
const TAG_CARRIED: u8 = 3;
/// The lane of calls has 0, as every stream at first, or shares this one.
pub(super) const PRIORITY_BULK: i32 = -1;

#[derive(Debug)]
pub(super) enum Opening {
    /// We dialled this peer (`None`: any member). Our hello is sent once the handshake is done.
    Dialled {
        peer: Option<MemberId>,
        address: SocketAddr,
        hello: Option<StreamId>,
        bytes: Vec<u8>,
    },
    /// The other end dialled us. It has a place until its lanes are there.
    Accepted {
        address: SocketAddr,
        place: Option<SourcePlace>,
        hello: Option<StreamId>,
        bytes: Vec<u8>,
    },
    /// The peer is known, and opens its lanes.
    Lanes {
        address: SocketAddr,
        _place: Option<SourcePlace>,
        peer: MemberId,
        evidence: Evidence,
        version: u16,
        lanes: Vec<(StreamId, Option<u8>)>,
    },
}

/// An open connection.
#[derive(Debug)]
pub(super) struct OpenedLane {
    /// The peer.
    pub(super) peer: MemberId,
    /// Why it is trusted.
    pub(super) evidence: Evidence,
    /// The version of the connection.
    pub(super) version: u16,
    /// Its lanes: for calls, for bulk, for datagrams that are carried for others.
    pub(super) lanes: [StreamId; 3],
}

impl Opening {
    pub(super) const fn dialled(peer: Option<MemberId>, address: SocketAddr) -> Self {
        Self::Dialled {
            peer,
            address,
            hello: None,
            bytes: Vec::new(),
        }
    }

    pub(super) const fn accepted(address: SocketAddr, place: SourcePlace) -> Self {
        Self::Accepted {
            address,
            place: Some(place),
            hello: None,
            bytes: Vec::new(),
        }
    }

    pub(super) const fn is_dialled(&self) -> bool {
        matches!(self, Self::Dialled { .. })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        match self {
            Self::Dialled { address, .. }
            | Self::Accepted { address, .. }
            | Self::Lanes { address, .. } => *address,
        }
    }

    /// The peer that was dialled.
    pub(super) const fn peer(&self) -> Option<MemberId> {
        match self {
            Self::Dialled { peer, .. } => *peer,
            Self::Accepted { .. } | Self::Lanes { .. } => None,
        }
    }

    /// Continues as far as the arrived bytes allow. `admit` judges a dialler. `expect` judges
    /// whether the answering peer is the one that was dialled.
    ///
    /// # Errors
    /// The reason for the end, and the code with which the connection is closed.
    pub(super) fn advance(
        &mut self,
        connection: &mut Connection,
        identity: &Identity,
        ours: &Hello,
        admit: impl FnOnce(&Hello) -> Result<(), DialFailure>,
        expect: impl FnOnce(Option<MemberId>, &Hello) -> Result<(), DialFailure>,
    ) -> Result<Option<OpenedLane>, (DialFailure, Close)> {
        match self {
            Self::Dialled {
                peer, hello, bytes, ..
            } => {
                if connection.is_handshaking() {
                    return Ok(None);
                }
                let Some(stream) = *hello else {
                    let number = number_of(connection, Side::Dialler)?;
                    let shown = ours.clone().shown_by(identity, number);
                    *hello = Some(open(connection, &shown.encode(), true)?);
                    return Ok(None);
                };
                if !read(connection, stream, bytes)? {
                    return Ok(None);
                }
                let number = number_of(connection, Side::Answerer)?;
                let shown = (connection.crypto_session().peer_identity(), number);
                let (theirs, evidence) =
                    judge(shown, identity, ours, bytes, true).map_err(refusal)?;
                if peer.is_some_and(|peer| theirs.id != peer) {
                    let why = format!(
                        "another process answers there ({}, {})",
                        theirs.name, theirs.id
                    );
                    return Err((DialFailure::Unreachable(why), Close::Stranger));
                }
                expect(*peer, &theirs).map_err(refusal)?;
                let calls = open(connection, &[TAG_CALLS], false)?;
                let bulk = open(connection, &[TAG_BULK], false)?;
                let carried = open(connection, &[TAG_CARRIED], false)?;
                let _ = connection.send_stream(bulk).set_priority(PRIORITY_BULK);
                Ok(Some(OpenedLane {
                    peer: theirs.id,
                    evidence,
                    version: ours.version(&theirs),
                    lanes: [calls, bulk, carried],
                }))
            }
            Self::Accepted {
                address,
                place,
                hello,
                bytes,
            } => {
                if hello.is_none() {
                    *hello = connection.streams().accept(Dir::Bi);
                }
                let Some(stream) = *hello else {
                    return Ok(None);
                };
                if !read(connection, stream, bytes)? {
                    return Ok(None);
                }
                let number = number_of(connection, Side::Dialler)?;
                let shown = (connection.crypto_session().peer_identity(), number);
                let (theirs, evidence) =
                    judge(shown, identity, ours, bytes, false).map_err(refusal)?;
                admit(&theirs).map_err(refusal)?;
                let number = number_of(connection, Side::Answerer)?;
                let ours = ours.answering(identity.card()).shown_by(identity, number);
                say(connection, stream, &ours.encode(), true)?;
                *self = Self::Lanes {
                    address: *address,
                    _place: place.take(),
                    peer: theirs.id,
                    evidence,
                    version: ours.version(&theirs),
                    lanes: Vec::new(),
                };
                Ok(None)
            }
            Self::Lanes {
                peer,
                evidence,
                version,
                lanes,
                ..
            } => {
                let Some([calls, bulk, carried]) = read_lanes(connection, lanes)? else {
                    return Ok(None);
                };
                let _ = connection.send_stream(bulk).set_priority(PRIORITY_BULK);
                Ok(Some(OpenedLane {
                    peer: *peer,
                    evidence: evidence.clone(),
                    version: *version,
                    lanes: [calls, bulk, carried],
                }))
            }
        }
    }
}

/// The lanes that the dialler opens, once all of them have their tags.
fn read_lanes(
    connection: &mut Connection,
    lanes: &mut Vec<(StreamId, Option<u8>)>,
) -> Result<Option<[StreamId; 3]>, (DialFailure, Close)> {
    while lanes.len() < 3
        && let Some(stream) = connection.streams().accept(Dir::Bi)
    {
        lanes.push((stream, None));
    }
    for (stream, tag) in lanes.iter_mut().filter(|(_, tag)| tag.is_none()) {
        *tag = read_tag(connection, *stream)?;
    }
    let [
        (calls, Some(first)),
        (bulk, Some(second)),
        (carried, Some(third)),
    ] = lanes[..]
    else {
        return Ok(None);
    };
    if [first, second, third] != [TAG_CALLS, TAG_BULK, TAG_CARRIED] {
        return Err((
            DialFailure::Hello(format!(
                "it opened unknown lanes {:?}",
                [first, second, third]
            )),
            Close::Malformed,
        ));
    }
    Ok(Some([calls, bulk, carried]))
}

fn refusal(failure: DialFailure) -> (DialFailure, Close) {
    let close = if failure == DialFailure::Stranger {
        Close::Stranger
    } else {
        Close::Hello
    };
    (failure, close)
}

/// The number of one end of this connection.
fn number_of(connection: &Connection, side: Side) -> Result<[u8; 32], (DialFailure, Close)> {
    let session = connection.crypto_session();
    let export = |number: &mut [u8], label: &[u8], context: &[u8]| {
        let exported = session.export_keying_material(number, label, context);
        exported.is_ok()
    };
    binding(side, export).map_err(refusal)
}

const ENDED: &str = "the stream has ended";

fn broken(why: &str) -> (DialFailure, Close) {
    (
        DialFailure::Hello(format!("its hello broke off: {why}")),
        Close::Hello,
    )
}

fn open(
    connection: &mut Connection,
    bytes: &[u8],
    whole: bool,
) -> Result<StreamId, (DialFailure, Close)> {
    let stream = connection
        .streams()
        .open(Dir::Bi)
        .ok_or_else(|| broken("it grants no stream"))?;
    say(connection, stream, bytes, whole)?;
    Ok(stream)
}

/// Sends a few bytes, which fit into any window. `whole`: nothing follows.
fn say(
    connection: &mut Connection,
    stream: StreamId,
    bytes: &[u8],
    whole: bool,
) -> Result<(), (DialFailure, Close)> {
    let mut send = connection.send_stream(stream);
    match send.write(bytes) {
        Ok(written) if written == bytes.len() => {}
        Ok(_) | Err(WriteError::Blocked) => return Err(broken("it takes nothing")),
        Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
            return Err(broken(ENDED));
        }
    }
    if whole {
        let _ = send.finish();
    }
    Ok(())
}

/// Reads to the end of a stream. True: the end was reached.
fn read(
    connection: &mut Connection,
    stream: StreamId,
    bytes: &mut Vec<u8>,
) -> Result<bool, (DialFailure, Close)> {
    let mut recv = connection.recv_stream(stream);
    let mut chunks = recv.read(true).map_err(|_| broken(ENDED))?;
    let ended = loop {
        match chunks.next(HELLO_BYTES_MAX) {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
            Ok(None) => break true,
            Err(ReadError::Blocked) => break false,
            Err(ReadError::Reset(_)) => return Err(broken(ENDED)),
        }
        if bytes.len() > HELLO_BYTES_MAX {
            return Err(broken("it is too long"));
        }
    };
    let _ = chunks.finalize();
    Ok(ended)
}

/// The first byte of a lane, if it has arrived.
fn read_tag(
    connection: &mut Connection,
    stream: StreamId,
) -> Result<Option<u8>, (DialFailure, Close)> {
    let mut recv = connection.recv_stream(stream);
    let mut chunks = recv.read(true).map_err(|_| broken(ENDED))?;
    let tag = match chunks.next(1) {
        Ok(Some(chunk)) => chunk.bytes.first().copied(),
        Err(ReadError::Blocked) => None,
        Ok(None) | Err(ReadError::Reset(_)) => return Err(broken("it ended a lane")),
    };
    let _ = chunks.finalize();
    Ok(tag)
}
