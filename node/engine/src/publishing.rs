//! Messages of publishers on their way to the subscribers of other data threads and members.
//!
//! A thread that has subscribers *wants* messages, and tells so to all its peers. A published
//! message goes once to each peer that wants messages, which looks for its subscribers itself. So
//! no peer knows which channels another one has, and a peer without subscribers gets nothing.
//!
//! ```text
//!   want_published ── Interest ──> peers ── Interested ──> is_heard     before it subscribes
//!   publish ──> own queue ────────────────────────┐
//!      └─ Publish ──> peers that want ──> queue ──┴──> poll_published
//! ```
//!
//! Nothing is repeated: a message arrives at most once, and those of one publisher arrive in order,
//! because a lane is a stream. What is on a connection when it ends is lost. A peer that takes its
//! bytes slower than they come has messages waiting for it, up to a limit. Later ones are dropped
//! for this peer alone, and counted.
//!
//! These frames are sent only over connections of [`PUBLISHING`] and later.

use super::api::Lane;
use super::context::Context;
use super::frame::Frame;
use super::shard::Shard;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::MemberId;
use doyen_placement::level::PUBLISHING;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes of messages that wait until the shell takes them. Later ones are dropped.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// From this many on, publishers of this thread should wait.
const QUEUED_BYTES_MUCH: usize = 1 << 20;
/// Bytes of messages that wait for one peer. Later ones are dropped.
pub(super) const HELD_BYTES_MAX: usize = 8 << 20;
/// The longest name of a channel: each message is compared with all patterns.
pub const CHANNEL_BYTES_MAX: usize = 1 << 10;
/// What a message takes besides its bytes.
const OVERHEAD: usize = 128;
/// How long a thread waits until all peers know that it wants messages.
const HEARD_MAX: Duration = Duration::from_secs(1);

/// One message of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The name of the channel.
    pub channel: Bytes,
    /// The message.
    pub message: Bytes,
    /// Whether it is for subscribers of the shard channel of that name.
    pub sharded: bool,
}

impl Publication {
    /// How much memory it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.channel.len() + self.message.len() + OVERHEAD
    }
}

/// Messages that have arrived, and who knows that they are wanted.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    wanted: bool,
    /// Counts how often `wanted` has changed.
    round: u64,
    /// Peers that have not confirmed that they know it.
    unheard: BTreeSet<MemberId>,
    until: Time,
    queue: VecDeque<Publication>,
    bytes: usize,
}

impl Publishing {
    /// The peer is gone, so it is not waited for.
    pub(super) fn disconnected(&mut self, peer: MemberId) {
        self.unheard.remove(&peer);
    }

    /// The peer knows it.
    fn heard(&mut self, peer: MemberId, round: u64) {
        if round == self.round {
            self.unheard.remove(&peer);
        }
    }

    /// Queues a message. False: there is no room for it.
    fn push(&mut self, publication: Publication) -> bool {
        let bytes = publication.bytes();
        if self.bytes + bytes > QUEUED_BYTES_MAX && !self.queue.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.queue.push_back(publication);
        true
    }
}

impl Context {
    /// A connection with a peer is up: it is told that messages are wanted.
    pub(super) fn tell_interest(&mut self, peer: MemberId) {
        let understands = |version| version >= PUBLISHING && !peer.is_client();
        if self.publishing.wanted && self.peers.get(peer).is_some_and(|p| understands(p.version)) {
            let round = self.publishing.round;
            let wanted = true;
            self.peers
                .send(peer, Lane::Calls, &Frame::Interest { round, wanted });
        }
    }

    /// A frame of this module has come from a peer.
    pub(super) fn told_of_publishing(&mut self, peer: MemberId, frame: Frame) {
        match frame {
            Frame::Publish(publication) if self.publishing.wanted => self.arrive(publication),
            Frame::Interest { round, wanted } => {
                self.peers.set_wants(peer, wanted);
                self.peers
                    .send(peer, Lane::Calls, &Frame::Interested { round });
            }
            Frame::Interested { round } => self.publishing.heard(peer, round),
            _ => {}
        }
    }

    /// Sends a message to all threads that have subscribers.
    pub(super) fn publish(&mut self, publication: Publication) {
        let (told, dropped) = self.peers.publish(&publication);
        self.worked += publication.bytes() * (told + 1);
        self.stats.published_dropped += dropped;
        if self.publishing.wanted {
            self.arrive(publication);
        }
    }

    /// How many threads have subscribers.
    pub(super) fn hearers(&self) -> usize {
        self.peers.wanting() + usize::from(self.publishing.wanted)
    }

    fn arrive(&mut self, publication: Publication) {
        if self.publishing.push(publication) {
            self.stats.published += 1;
        } else {
            self.stats.published_dropped += 1;
        }
    }
}

impl Shard {
    /// From now on, messages are wanted, or no longer. They may come from all peers once
    /// [`Shard::is_heard`].
    pub fn want_published(&mut self, now: Time, wanted: bool) {
        let cx = &mut self.cx;
        if cx.publishing.wanted == wanted {
            return;
        }
        let publishing = &mut cx.publishing;
        (publishing.wanted, publishing.until) = (wanted, now + HEARD_MAX);
        publishing.round += 1;
        publishing.unheard.clear();
        let round = publishing.round;
        for peer in cx.peers.ids() {
            let version = cx.peers.get(peer).map_or(0, |p| p.version);
            if peer.is_client() || version < PUBLISHING {
                continue;
            }
            cx.peers
                .send(peer, Lane::Calls, &Frame::Interest { round, wanted });
            if wanted {
                cx.publishing.unheard.insert(peer);
            }
        }
    }

    /// Whether messages are wanted.
    #[must_use]
    pub fn wants_published(&self) -> bool {
        self.cx.publishing.wanted
    }

    /// Whether every connected peer knows that messages are wanted, or had time enough.
    #[must_use]
    pub fn is_heard(&self, now: Time) -> bool {
        let publishing = &self.cx.publishing;
        publishing.wanted && (publishing.unheard.is_empty() || now >= publishing.until)
    }

    /// Until when to wait for [`Shard::is_heard`] at most.
    #[must_use]
    pub fn heard_until(&self) -> Time {
        self.cx.publishing.until
    }

    /// Publishes a message of a client of this thread.
    pub fn publish(&mut self, now: Time, publication: Publication) {
        self.cx.now = self.cx.now.max(now);
        self.cx.publish(publication);
    }

    /// Gives the subscribers of this thread a message, and no others.
    pub fn notify(&mut self, publication: Publication) {
        self.cx.worked += publication.bytes();
        self.cx.arrive(publication);
    }

    /// The next message for the subscribers of this thread.
    pub fn poll_published(&mut self) -> Option<Publication> {
        let publishing = &mut self.cx.publishing;
        let next = publishing.queue.pop_front()?;
        publishing.bytes -= next.bytes();
        Some(next)
    }

    /// How many messages `poll_published` would return now, and about how many bytes they take.
    #[must_use]
    pub fn published_waiting(&self) -> (usize, usize) {
        let publishing = &self.cx.publishing;
        (publishing.queue.len(), publishing.bytes)
    }

    /// Whether so many messages wait for the subscribers of this thread that its publishers should
    /// wait.
    #[must_use]
    pub fn has_much_published(&self) -> bool {
        self.cx.publishing.bytes >= QUEUED_BYTES_MUCH
    }
}
