//! Buffers of bytes for peers, one a lane, and what is known of each peer.

use super::frame::{Ack, Frame};
use super::{Lane, MemberId};
use bytes::BytesMut;
use doyen_placement::PartitionRef;
use std::collections::{BTreeMap, VecDeque};

/// One peer on the data network.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Whether it is connected.
    pub(super) up: bool,
    /// Attempts that were refused, for each partition: what follows in them is refused silently.
    pub(super) refused: BTreeMap<PartitionRef, u32>,
    /// Acks to send at the end of the batch.
    pub(super) acks: BTreeMap<PartitionRef, Ack>,
    /// Bytes received since it connected.
    pub(super) received: u64,
    /// What it was told last of this node's memory: bytes left, having received so many.
    pub(super) told: (u64, u64),
    /// Bytes given to it since it connected.
    sent: u64,
    /// What it said last: bytes of memory left, having received so many bytes.
    headroom: Option<(u64, u64)>,
    out: [BytesMut; 2],
    queued: [bool; 2],
}

/// All peers, and which buffers have something in them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: BTreeMap<MemberId, Peer>,
    ready: VecDeque<(MemberId, Lane)>,
}

const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Calls => 0,
        Lane::Bulk => 1,
    }
}

impl Peers {
    /// A connection begins: nothing is in flight.
    pub(super) fn connect(&mut self, id: MemberId) {
        self.disconnect(id);
        self.all.insert(id, Peer { up: true, ..Peer::default() });
    }

    /// A connection is gone, with everything on it.
    pub(super) fn disconnect(&mut self, id: MemberId) {
        self.all.remove(&id);
        self.ready.retain(|(peer, _)| *peer != id);
    }

    /// Whether a peer is connected.
    pub(super) fn up(&self, id: MemberId) -> bool {
        self.all.get(&id).is_some_and(|p| p.up)
    }

    /// A connected peer.
    pub(super) fn get(&mut self, id: MemberId) -> Option<&mut Peer> {
        self.all.get_mut(&id)
    }

    /// Who is connected.
    pub(super) fn ids(&self) -> Vec<MemberId> {
        self.all.keys().copied().collect()
    }

    /// The buffer of a lane; `None` where nobody is connected, and then nothing is sent.
    pub(super) fn out(&mut self, id: MemberId, lane: Lane) -> Option<&mut BytesMut> {
        let peer = self.all.get_mut(&id)?;
        if !std::mem::replace(&mut peer.queued[index(lane)], true) {
            self.ready.push_back((id, lane));
        }
        Some(&mut peer.out[index(lane)])
    }

    /// Sends a frame, if the peer is connected.
    pub(super) fn send(&mut self, id: MemberId, lane: Lane, frame: &Frame) {
        if let Some(out) = self.out(id, lane) {
            frame.put(out);
        }
    }

    /// The next buffer to send.
    pub(super) fn next(&mut self) -> Option<(MemberId, Lane, BytesMut)> {
        loop {
            let (id, lane) = self.ready.pop_front()?;
            let Some(peer) = self.all.get_mut(&id) else { continue };
            peer.queued[index(lane)] = false;
            let bytes = peer.out[index(lane)].split();
            if !bytes.is_empty() {
                peer.sent += bytes.len() as u64;
                return Some((id, lane, bytes));
            }
        }
    }

    /// What a peer said of its memory.
    pub(super) fn set_headroom(&mut self, id: MemberId, headroom: u64, received: u64) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.headroom = Some((headroom, received));
        }
    }

    /// How much memory a peer has left once everything in flight has arrived; unknown counts as plenty.
    pub(super) fn headroom(&self, id: MemberId) -> u64 {
        self.all
            .get(&id)
            .and_then(|p| {
                let (left, received) = p.headroom?;
                let given = p.sent + p.out.iter().map(|b| b.len() as u64).sum::<u64>();
                Some(left.saturating_sub(given.saturating_sub(received)))
            })
            .unwrap_or(u64::MAX)
    }
}
