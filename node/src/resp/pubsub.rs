//! Publish and subscribe: which clients want which messages, and how the messages reach them.
//!
//! ```text
//!   PUBLISH ──> Channels::publish ──> queue of this thread ───────────┐
//!                    └─ Publish ─> queues of the other data threads   │  doyen_engine, publishing
//!                                  and members that have subscribers  │
//!                                                                     v
//!   client <── output <── queue of the session <── Hub, one message after the other, in slices
//!                 ^
//!   replies ──────┘  a reply does not pass a push that came before its command
//! ```
//!
//! - `SUBSCRIBE` waits until the earlier commands of its connection are answered, and until the
//!   peers know that this thread has subscribers. So nothing that is published after its reply is
//!   missed, unless a connection between members breaks or is too slow.
//! - `PUBLISH` waits for the earlier commands of its connection, too: a message that tells of a
//!   write must not overtake it.
//! - A message is encoded once a thread for each protocol ([`Push`]). What a subscriber has not
//!   taken waits in the queue of its session, and the queues share the messages. A subscriber whose
//!   queue is too long is disconnected ([`hub`]).
//! - How many subscribers a name has is kept once a node ([`Board`]), so that `PUBLISH` and
//!   `PUBSUB`
//!   answer without asking the other threads. At a cluster-aware port, each thread is a node and
//!   counts its own.

pub(super) mod hub;

use super::encode::{Encoder, Protocol};
use super::output::{APART_BYTES_MIN, ClientOutput};
use bytes::{Bytes, BytesMut};
use doyen_engine::Publication;
use doyen_engine::op::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Longest name of a channel, and longest pattern: each message is compared with all patterns.
pub(super) const NAME_BYTES_MAX: usize = doyen_engine::CHANNEL_BYTES_MAX;
/// What a message in a queue costs besides its bytes.
const PUSH_OVERHEAD: usize = 64;

/// What a client subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// One channel.
    Channel,
    /// The channels whose names match a pattern.
    Pattern,
    /// One shard channel. It has nothing to do with the channel of the same name.
    Shard,
}

impl ChannelKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// Its place among all kinds.
    pub(super) const fn at(self) -> usize {
        match self {
            Self::Channel => 0,
            Self::Pattern => 1,
            Self::Shard => 2,
        }
    }

    /// The first word of a message.
    const fn message(self) -> &'static [u8] {
        match self {
            Self::Channel => b"message",
            Self::Pattern => b"pmessage",
            Self::Shard => b"smessage",
        }
    }

    /// The first word of the reply to a subscription, or to the end of one.
    const fn confirmation(self, subscribes: bool) -> &'static [u8] {
        match (self, subscribes) {
            (Self::Channel, true) => b"subscribe",
            (Self::Pattern, true) => b"psubscribe",
            (Self::Shard, true) => b"ssubscribe",
            (Self::Channel, false) => b"unsubscribe",
            (Self::Pattern, false) => b"punsubscribe",
            (Self::Shard, false) => b"sunsubscribe",
        }
    }
}

/// Appends the reply to a subscription, or to the end of one. `name`: `None` if there was nothing
/// to end. `left`: how many subscriptions the client has.
pub(super) fn confirm(
    encoder: &mut Encoder<'_>,
    (kind, subscribes): (ChannelKind, bool),
    name: Option<&[u8]>,
    left: usize,
) {
    encoder.push(3);
    encoder.bulk(kind.confirmation(subscribes));
    match name {
        Some(name) => encoder.bulk(name),
        None => encoder.nil(),
    }
    encoder.integer(i64::try_from(left).unwrap_or(i64::MAX));
}

/// A message as its subscribers get it. `pattern`: the pattern that its channel matches, for those
/// that subscribe to it.
fn encode(publication: &Publication, pattern: Option<&[u8]>, protocol: Protocol) -> BytesMut {
    let kind = match pattern {
        Some(_) => ChannelKind::Pattern,
        None if publication.sharded => ChannelKind::Shard,
        None => ChannelKind::Channel,
    };
    let (channel, message) = (&publication.channel, &publication.message);
    let names = channel.len() + pattern.map_or(0, <[u8]>::len);
    let mut bytes = BytesMut::with_capacity(message.len() + names + PUSH_OVERHEAD);
    let mut encoder = Encoder::new(&mut bytes, protocol);
    encoder.push(3 + usize::from(pattern.is_some()));
    encoder.bulk(kind.message());
    if let Some(pattern) = pattern {
        encoder.bulk(pattern);
    }
    encoder.bulk(channel);
    encoder.bulk(message);
    bytes
}

/// Encoded bytes for one or many subscribers of a thread.
#[derive(Debug)]
pub(super) struct Push {
    body: PushBody,
    /// Where the thread counts the bytes of all of these.
    held: Rc<Cell<usize>>,
}

#[derive(Debug)]
enum PushBody {
    /// Copied into each output.
    Copied(Bytes),
    /// Too large to be copied.
    Apart(Value),
}

impl Push {
    pub(super) fn new(bytes: BytesMut, held: &Rc<Cell<usize>>) -> Rc<Self> {
        let body = if bytes.len() >= APART_BYTES_MIN {
            PushBody::Apart(Value::from(&bytes[..]))
        } else {
            PushBody::Copied(bytes.freeze())
        };
        let push = Self {
            body,
            held: held.clone(),
        };
        held.set(held.get() + push.bytes());
        Rc::new(push)
    }

    /// How much memory it takes, about, and how much it counts in a queue.
    pub(super) fn bytes(&self) -> usize {
        let body = match &self.body {
            PushBody::Copied(bytes) => bytes.len(),
            PushBody::Apart(value) => value.len(),
        };
        body + PUSH_OVERHEAD
    }

    pub(super) fn append_to(&self, output: &mut ClientOutput) {
        match &self.body {
            PushBody::Copied(bytes) => output.bytes.extend_from_slice(bytes),
            PushBody::Apart(value) => output.push(value.clone()),
        }
    }
}

/// What the place of a push in the queue of a subscriber costs: queues grow by doubling.
const PLACE_BYTES: usize = 16;

/// A push in the queue of one subscriber. Its place there is counted, too: with short messages, the
/// places of many subscribers take more than the messages.
#[derive(Debug)]
pub(super) struct Queued(Rc<Push>);

impl Queued {
    pub(super) fn new(push: Rc<Push>) -> Self {
        push.held.set(push.held.get() + PLACE_BYTES);
        Self(push)
    }
}

impl std::ops::Deref for Queued {
    type Target = Push;

    fn deref(&self) -> &Push {
        &self.0
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let held = &self.0.held;
        held.set(held.get().saturating_sub(PLACE_BYTES));
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.held.set(self.held.get().saturating_sub(self.bytes()));
    }
}

/// How many subscribers each name has at all threads of the node.
#[derive(Debug, Default)]
pub(super) struct Board(RwLock<[BTreeMap<Bytes, usize>; 3]>);

impl Board {
    /// The name has one subscriber more, or one less.
    pub(super) fn count(&self, kind: ChannelKind, name: &Bytes, more: bool) {
        // A panic cannot leave the counts half changed.
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let names = &mut all[kind.at()];
        if more {
            *names.entry(name.clone()).or_default() += 1;
        } else if let Some(count) = names.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                names.remove(name);
            }
        }
    }

    pub(super) fn look(&self) -> ChannelNames<'_> {
        ChannelNames::Node(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The names that have subscribers, and how many: at a node, or at one thread.
pub(super) enum ChannelNames<'a> {
    Node(RwLockReadGuard<'a, [BTreeMap<Bytes, usize>; 3]>),
    Thread(&'a hub::Registry),
}

impl ChannelNames<'_> {
    /// How many subscribers this name has.
    pub(super) fn subscribers(&self, kind: ChannelKind, name: &[u8]) -> usize {
        match self {
            Self::Node(all) => all[kind.at()].get(name).copied().unwrap_or_default(),
            Self::Thread(registry) => registry.subscribers(kind, name),
        }
    }

    /// How many names have subscribers.
    pub(super) fn len(&self, kind: ChannelKind) -> usize {
        match self {
            Self::Node(all) => all[kind.at()].len(),
            Self::Thread(registry) => registry.len(kind),
        }
    }

    /// Shows the names after this one, in order, each with the number of its subscribers, until
    /// `see` returns false. Returns whether all were seen.
    pub(super) fn walk(
        &self,
        kind: ChannelKind,
        after: Option<&Bytes>,
        mut see: impl FnMut(&Bytes, usize) -> bool,
    ) -> bool {
        match self {
            Self::Node(all) => following(&all[kind.at()], after).all(|(name, n)| see(name, *n)),
            Self::Thread(registry) => registry.walk(kind, after, see),
        }
    }
}

/// The entries after this name, in order.
fn following<'a, T>(
    names: &'a BTreeMap<Bytes, T>,
    after: Option<&Bytes>,
) -> impl Iterator<Item = (&'a Bytes, &'a T)> + use<'a, T> {
    let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
    names.range((from, Bound::Unbounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_encoded_for_each_protocol_and_kind() {
        let mut publication = Publication {
            channel: Bytes::from_static(b"news"),
            message: Bytes::from_static(b"hi"),
            sharded: false,
        };
        let text = |publication: &Publication, pattern: Option<&[u8]>, protocol| {
            let bytes = encode(publication, pattern, protocol).freeze();
            String::from_utf8(bytes.to_vec())
                .unwrap()
                .replace("\r\n", " ")
        };
        let (two, three) = (Protocol::Resp2, Protocol::Resp3);
        assert_eq!(
            text(&publication, None, two),
            "*3 $7 message $4 news $2 hi "
        );
        assert_eq!(
            text(&publication, Some(b"n*"), three),
            ">4 $8 pmessage $2 n* $4 news $2 hi "
        );
        publication.sharded = true;
        assert_eq!(
            text(&publication, None, three),
            ">3 $8 smessage $4 news $2 hi "
        );
    }

    #[test]
    fn what_waits_is_counted_once_however_many_wait_for_it() {
        let held = Rc::new(Cell::new(0));
        for bytes in [10, APART_BYTES_MIN] {
            let push = Push::new(BytesMut::zeroed(bytes), &held);
            let other = push.clone();
            assert_eq!(held.get(), bytes + PUSH_OVERHEAD);
            let places = [&push, &other].map(|push| Queued::new(push.clone()));
            assert_eq!(held.get(), bytes + PUSH_OVERHEAD + 2 * PLACE_BYTES);
            drop(places);
            assert_eq!(held.get(), bytes + PUSH_OVERHEAD);
            let mut output = ClientOutput::default();
            push.append_to(&mut output);
            assert_eq!(output.len(), bytes);
            drop(push);
            assert_eq!(held.get(), bytes + PUSH_OVERHEAD);
            drop(other);
            assert_eq!(held.get(), 0);
        }
    }

    #[test]
    fn the_board_knows_each_name_once_and_how_many_subscribe_to_it() {
        let board = Board::default();
        let name = |name: &'static str| Bytes::from_static(name.as_bytes());
        for (text, more) in [
            ("b", true),
            ("a", true),
            ("b", true),
            ("c", true),
            ("a", false),
        ] {
            board.count(ChannelKind::Channel, &name(text), more);
        }
        let names = board.look();
        assert_eq!(names.subscribers(ChannelKind::Channel, b"b"), 2);
        assert_eq!(names.subscribers(ChannelKind::Channel, b"a"), 0);
        assert_eq!(names.subscribers(ChannelKind::Shard, b"b"), 0);
        assert_eq!(
            (
                names.len(ChannelKind::Channel),
                names.len(ChannelKind::Pattern)
            ),
            (2, 0)
        );
        let seen = |after: Option<&Bytes>, most: usize| {
            let mut seen = Vec::new();
            let all = names.walk(ChannelKind::Channel, after, |name, count| {
                seen.push((name.clone(), count));
                seen.len() < most
            });
            (seen, all)
        };
        assert_eq!(seen(None, 9), (vec![(name("b"), 2), (name("c"), 1)], true));
        assert_eq!(seen(None, 1), (vec![(name("b"), 2)], false));
        assert_eq!(seen(Some(&name("b")), 9), (vec![(name("c"), 1)], true));
    }
}
