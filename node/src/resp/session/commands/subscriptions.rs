//! What a client subscribes to, and the commands about that and about messages.

use crate::resp::RespContext;
use crate::resp::command::PubSubCommand;
use crate::resp::encode::Encoder;
use crate::resp::frame::Args;
use crate::resp::notices::{database_of, is_about_keys, may_be_about_keys};
use crate::resp::pubsub::hub::{NAME_WORK, compare, count_receivers};
use crate::resp::pubsub::{ChannelKind, NAME_BYTES_MAX, Push, confirm};
use crate::resp::session::client::SessionClient;
use crate::resp::session::held::{HeldCause, SliceProgress};
use crate::resp::session::pending::receivers::ReceiversReply;
use crate::resp::session::replies::Replies;
use crate::resp::session::subscriptions::ClientSubscriptions;
use crate::resp::session::{COMPARE_AT_ONCE, Connection, Session};
use bytes::{Bytes, BytesMut};
use doyen_engine::command::ErrorText;
use doyen_engine::{AskedSubscribers, Publication};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Channels whose subscribers one command counts at most.
const COUNTED_NAMES_MAX: usize = 4_096;
/// Names of one command that are handled in one slice.
const SLICE_NAMES: usize = 512;

const NOT_TOLD: &str = "TRYAGAIN this node is not told of the changes of all keys at the moment, so \
    messages about keys would be missing: subscribe again";

/// A command about subscriptions, with the parts of the session that it needs.
struct SubscriptionCommand<'a> {
    connection: &'a Rc<Connection>,
    context: &'a mut RespContext,
    args: Args<'a>,
    client: &'a SessionClient,
    replies: &'a mut Replies,
    subscriptions: &'a mut ClientSubscriptions,
}

impl SubscriptionCommand<'_> {
    /// The command is run again for this cause.
    fn hold(&mut self, cause: HeldCause) {
        self.subscriptions.hold(cause);
    }

    /// Replies that come between messages. A client that wants no replies gets them all the same.
    fn queue_confirmations(&mut self, bytes: BytesMut) {
        let push = Push::new(bytes, self.context.front.hub.held());
        // The next message, or the next look at all clients, finds out if too much waits.
        self.subscriptions.state();
        self.replies.queue_push(push);
        self.replies.encode_ready();
    }

    /// Asks the other members for names that have subscribers. True: the command waits for them.
    fn asks_names(&mut self, kind: ChannelKind, pattern: Option<&Bytes>) -> bool {
        let asked = AskedSubscribers::Names {
            kind: kind.at() as u8,
            pattern: pattern.map(|pattern| pattern.to_vec()),
            after: None,
        };
        let plain = !self.client.cluster_port;
        let asks = plain && self.context.ask_members(self.connection, None, asked);
        if asks {
            self.hold(HeldCause::Woken);
        }
        asks
    }

    /// The names that other members answered. The error: they are too many.
    fn names_elsewhere(&mut self) -> Result<BTreeSet<Bytes>, ()> {
        let counted = self.subscriptions.take_counted();
        let names = counted.names.into_iter().map(Bytes::from).collect();
        if counted.too_many { Err(()) } else { Ok(names) }
    }

    /// `SUBSCRIBE`, `PSUBSCRIBE` or `SSUBSCRIBE`.
    fn subscribe(&mut self, (kind, hold): (ChannelKind, HeldCause)) {
        let at = match hold {
            HeldCause::Slice(SliceProgress::Names(at)) => at,
            _ => 1,
        };
        if at == 1 {
            if self.subscriptions.waits_for_answers(self.replies) {
                return;
            }
            if let Err(why) = may_subscribe(self.args, kind) {
                return self.replies.answer(|e| e.error(&why.0));
            }
            let keys = kind != ChannelKind::Shard && self.args.iter_from(1).any(may_be_about_keys);
            if kind != ChannelKind::Shard && self.args.iter_from(1).any(is_about_keys) {
                self.context.note_silence();
            }
            let now = self.context.now();
            let held = self.subscriptions.take_until();
            let until = keys.then(|| held.unwrap_or(now + self.context.limits().park));
            let hears = self.context.hears(self.connection, until);
            if !hears && until.is_some_and(|until| now >= until) {
                return self.replies.answer(|e| e.error(NOT_TOLD));
            }
            if !hears {
                self.hold(HeldCause::Woken);
                self.subscriptions.state().held.until = until;
                return;
            }
        }
        let common = self.context.front.common.clone();
        // This connection may have been reset while it had many subscriptions.
        let mut work = SLICE_NAMES;
        if !self
            .context
            .front
            .hub
            .finish_leaving(common.board(), &mut work)
        {
            return self.hold(HeldCause::Slice(SliceProgress::Names(at)));
        }
        let from = self.context.next_published();
        let mut end = self.args.len().min(at + SLICE_NAMES);
        let mut is_full = false;
        let (id, protocol) = (self.client.id, self.replies.protocol);
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(&mut bytes, protocol);
        let subscribing = self.subscriptions.state();
        for name in (at..end).map(|at| self.args.get(at)) {
            if !subscribing.names[kind.at()].contains(name) {
                if !self.context.front.hub.has_room(name.len()) {
                    is_full = true;
                    break;
                }
                let client = (id, self.connection);
                let hub = &mut self.context.front.hub;
                let name = hub.subscribe(common.board(), (kind, name), client, from);
                subscribing.names[kind.at()].insert(name);
            }
            confirm(
                &mut encoder,
                (kind, true),
                Some(name),
                subscribing.count(kind),
            );
        }
        if is_full {
            // Those before it are confirmed, so the client knows which ones it has.
            encoder.error(FULL);
            end = self.args.len();
        }
        self.queue_confirmations(bytes);
        if end < self.args.len() {
            self.hold(HeldCause::Slice(SliceProgress::Names(end)));
        }
    }

    /// `UNSUBSCRIBE`, `PUNSUBSCRIBE` or `SUNSUBSCRIBE`.
    fn unsubscribe(&mut self, (kind, hold): (ChannelKind, HeldCause)) {
        let progress = match hold {
            HeldCause::Slice(SliceProgress::Names(at)) => Some(at),
            _ => None,
        };
        if progress.is_none() && !self.replies.is_settled() {
            return self.hold(HeldCause::Answers);
        }
        let common = self.context.front.common.clone();
        let (id, protocol) = (self.client.id, self.replies.protocol);
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(&mut bytes, protocol);
        let subscribing = self.subscriptions.state();
        let before = subscribing.is_subscriber();
        let at = progress.unwrap_or(1);
        let end = self.args.len().min(at + SLICE_NAMES);
        let hub = &mut self.context.front.hub;
        let next = if self.args.len() > 1 {
            for name in (at..end).map(|at| self.args.get(at)) {
                if let Some(name) = subscribing.names[kind.at()].take(name) {
                    hub.unsubscribe(common.board(), (kind, &name), id);
                }
                let left = subscribing.count(kind);
                confirm(&mut encoder, (kind, false), Some(name), left);
            }
            (end < self.args.len()).then_some(end)
        } else {
            if progress.is_none() && subscribing.names[kind.at()].is_empty() {
                confirm(&mut encoder, (kind, false), None, subscribing.count(kind));
            }
            for _ in 0..SLICE_NAMES {
                let Some(name) = subscribing.names[kind.at()].pop_first() else {
                    break;
                };
                hub.unsubscribe(common.board(), (kind, &name), id);
                let left = subscribing.count(kind);
                confirm(&mut encoder, (kind, false), Some(&name), left);
            }
            (!subscribing.names[kind.at()].is_empty()).then_some(at)
        };
        if before && !subscribing.is_subscriber() {
            self.context.front.hub.left(self.context.now(), id);
        }
        self.queue_confirmations(bytes);
        if let Some(at) = next {
            self.hold(HeldCause::Slice(SliceProgress::Names(at)));
        }
    }

    /// `PUBLISH` or `SPUBLISH`.
    fn publish(&mut self, (sharded, hold): (bool, HeldCause)) {
        let (channel, message) = (self.args.get(1), self.args.get(2));
        let progress = match hold {
            HeldCause::Slice(SliceProgress::Counting(upto)) => Some(upto),
            _ => None,
        };
        if progress.is_none() {
            if let Err(why) = checked(channel) {
                return self.replies.answer(|e| e.error(&why.0));
            }
            // A message about a write comes after the write. Earlier messages have left.
            if self.replies.precede_messages() {
                return self.hold(HeldCause::Answers);
            }
            if !self.context.may_publish(self.connection) {
                return self.hold(HeldCause::Woken);
            }
        }
        let counted = {
            let names = self
                .client
                .names(self.context, self.context.front.common.board());
            let mut work = COMPARE_AT_ONCE;
            count_receivers(&names, (channel, sharded), progress, &mut work)
        };
        let count = match counted {
            Ok(count) => count as u64,
            Err(upto) => return self.hold(HeldCause::Slice(SliceProgress::Counting(upto))),
        };
        self.context.publish(of(channel, message, sharded));
        let reply = Some(self.replies.next());
        let asks = || AskedSubscribers::Receivers(vec![(sharded, channel.to_vec())]);
        let asked =
            !self.client.cluster_port && self.context.ask_members(self.connection, reply, asks());
        self.replies.without_order(|replies| {
            if asked {
                replies.collect(ReceiversReply::new(count), 0, 0);
            } else {
                replies.answer(|e| e.integer(i64::try_from(count).unwrap_or(i64::MAX)));
            }
        });
    }

    /// `PUBSUB NUMSUB` or `PUBSUB SHARDNUMSUB`. The plain port answers for all members.
    fn count_subscribers(&mut self, (kind, names): (ChannelKind, &[Bytes]), hold: HeldCause) {
        let asks = matches!(hold, HeldCause::No) && !self.client.cluster_port && !names.is_empty();
        if asks {
            if names.len() > COUNTED_NAMES_MAX {
                let why = format!("ERR too many channels: ask for {COUNTED_NAMES_MAX} at most");
                return self.replies.answer(|e| e.error(&why));
            }
            let asked: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
            let asked = AskedSubscribers::Subscribers {
                sharded: kind == ChannelKind::Shard,
                names: asked,
            };
            if self.context.ask_members(self.connection, None, asked) {
                return self.hold(HeldCause::Woken);
            }
        }
        let others = self.subscriptions.take_counted();
        let others = others.counts;
        let common = self.context.front.common.clone();
        let own = self.client.names(self.context, common.board());
        let count = |at: usize, name: &[u8]| {
            let others = others.get(at).copied().unwrap_or_default();
            (own.subscribers(kind, name) as u64).saturating_add(others)
        };
        let counts: Vec<u64> = names
            .iter()
            .enumerate()
            .map(|(at, name)| count(at, name))
            .collect();
        drop(own);
        self.replies.answer(|e| {
            e.array(names.len() * 2);
            for (name, count) in names.iter().zip(counts) {
                e.bulk(name);
                e.integer(i64::try_from(count).unwrap_or(i64::MAX));
            }
        });
    }

    /// `PUBSUB NUMPAT`: how many patterns have subscribers.
    fn count_patterns(&mut self, hold: HeldCause) {
        let first = matches!(hold, HeldCause::No);
        if first && self.asks_names(ChannelKind::Pattern, None) {
            return;
        }
        let Ok(others) = self.names_elsewhere() else {
            return self.replies.answer(|e| e.error(TOO_MANY_NAMES));
        };
        let common = self.context.front.common.clone();
        let own = self.client.names(self.context, common.board());
        let here = |name: &&Bytes| own.subscribers(ChannelKind::Pattern, name) > 0;
        let both = others.iter().filter(here).count();
        let count = own.len(ChannelKind::Pattern) + others.len() - both;
        drop(own);
        self.replies
            .answer(|e| e.integer(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    /// `PUBSUB CHANNELS` or `PUBSUB SHARDCHANNELS`.
    fn list_channels(&mut self, (kind, pattern): (ChannelKind, &Option<Bytes>), hold: HeldCause) {
        let (mut after, mut found) = match hold {
            HeldCause::Slice(SliceProgress::Listing(after, found)) => (after, found),
            HeldCause::No if self.asks_names(kind, pattern.as_ref()) => return,
            _ => match self.names_elsewhere() {
                Ok(mut found) => {
                    let database =
                        |name: &Bytes| database_of(name).filter(|_| kind != ChannelKind::Shard);
                    found
                        .retain(|name| database(name).is_none_or(|of| self.client.may_look_at(of)));
                    (None, found)
                }
                Err(()) => return self.replies.answer(|e| e.error(TOO_MANY_NAMES)),
            },
        };
        let mut work = COMPARE_AT_ONCE;
        let before = after.take();
        let whole = {
            let names = self
                .client
                .names(self.context, self.context.front.common.board());
            names.walk(kind, before.as_ref(), |name, _| {
                let (matches, cost) = match pattern {
                    Some(pattern) => compare(pattern, name),
                    None => (true, 0),
                };
                // The names of such channels have names of keys.
                let database = database_of(name).filter(|_| kind != ChannelKind::Shard);
                let shown = database.is_none_or(|database| self.client.may_look_at(database));
                if matches && shown {
                    found.insert(name.clone());
                }
                after = Some(name.clone());
                work = work.saturating_sub(NAME_WORK + cost);
                work > 0
            })
        };
        if !whole {
            return self.hold(HeldCause::Slice(SliceProgress::Listing(after, found)));
        }
        self.replies.answer(|e| {
            e.array(found.len());
            found.iter().for_each(|name| e.bulk(name));
        });
    }
}

impl Session {
    /// `MONITOR`: the client sees the commands of all clients from now on.
    pub(crate) fn monitor(&mut self, connection: &Rc<Connection>, context: &mut RespContext) {
        let client = &self.client;
        context.monitor(client.id, connection, client.cluster_port);
        self.subscriptions.state().monitors = true;
        self.replies.answer(|e| e.simple("OK"));
    }

    pub(crate) fn about_subscriptions(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
        asked: PubSubCommand,
    ) {
        let cause = self.subscriptions.take_cause();
        if matches!(cause, HeldCause::No) {
            self.subscriptions.take_counted();
        }
        let mut subscriber = SubscriptionCommand {
            connection,
            context,
            args,
            client: &self.client,
            replies: &mut self.replies,
            subscriptions: &mut self.subscriptions,
        };
        match asked {
            PubSubCommand::Subscribe(kind) => subscriber.subscribe((kind, cause)),
            PubSubCommand::Unsubscribe(kind) => subscriber.unsubscribe((kind, cause)),
            PubSubCommand::Publish { sharded } => subscriber.publish((sharded, cause)),
            PubSubCommand::Channels(kind, pattern) => {
                subscriber.list_channels((kind, &pattern), cause);
            }
            PubSubCommand::Subscribers(kind, names) => {
                subscriber.count_subscribers((kind, &names), cause);
            }
            PubSubCommand::Patterns => subscriber.count_patterns(cause),
        }
        self.subscriptions.forget_idle(&mut self.replies);
    }
}

/// The question how many subscribers get the messages of a transaction, at other members.
pub(crate) fn asked_receivers<'m>(
    messages: impl Iterator<Item = &'m Publication>,
) -> Option<AskedSubscribers> {
    let channels: Vec<_> = messages
        .take(COUNTED_NAMES_MAX)
        .map(|message| (message.sharded, message.channel.to_vec()))
        .collect();
    (!channels.is_empty()).then_some(AskedSubscribers::Receivers(channels))
}

/// How many subscribers of this node get a message of a transaction. Of very many patterns, only
/// the first are compared: a transaction is not interrupted for that.
pub(crate) fn receivers_here(
    client: &SessionClient,
    context: &RespContext,
    message: &Publication,
) -> u64 {
    let names = client.names(context, context.front.common.board());
    let channel = (&*message.channel, message.sharded);
    let counted = count_receivers(&names, channel, None, &mut COMPARE_AT_ONCE.clone());
    counted.unwrap_or_else(|(_, count)| count) as u64
}

/// Whether the names may be subscribed to.
fn may_subscribe(args: Args<'_>, kind: ChannelKind) -> Result<(), ErrorText> {
    if args.iter_from(1).any(|name| name.len() > NAME_BYTES_MAX) {
        let what = if kind == ChannelKind::Pattern {
            "pattern"
        } else {
            "channel's name"
        };
        return Err(format!("ERR the {what} is too long: at most {NAME_BYTES_MAX} bytes").into());
    }
    Ok(())
}

fn checked(channel: &[u8]) -> Result<(), ErrorText> {
    if channel.len() > NAME_BYTES_MAX {
        return Err(
            format!("ERR the channel's name is too long: at most {NAME_BYTES_MAX} bytes").into(),
        );
    }
    Ok(())
}

/// The message of a `PUBLISH` or `SPUBLISH`.
pub(crate) fn publication(args: Args<'_>, sharded: bool) -> Result<Publication, ErrorText> {
    checked(args.get(1))?;
    Ok(of(args.get(1), args.get(2), sharded))
}

// Copies: a slice would keep the whole read buffer.
fn of(channel: &[u8], message: &[u8], sharded: bool) -> Publication {
    Publication {
        channel: Bytes::copy_from_slice(channel),
        message: Bytes::copy_from_slice(message),
        sharded,
    }
}

const FULL: &str = "ERR the subscriptions of all clients of this node take too much memory: this \
    channel and those after it were not subscribed to; subscribe to patterns, or raise --memory-max";
const TOO_MANY_NAMES: &str = "ERR too many names have subscribers: ask with a pattern that fewer \
    names match";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_counted_in_slices() {
        let board = crate::resp::pubsub::Board::default();
        let patterns = [&b"n*"[..], b"ne?s", b"x*", b"news"];
        for pattern in patterns {
            board.count(ChannelKind::Pattern, &Bytes::from_static(pattern), true);
        }
        board.count(ChannelKind::Channel, &Bytes::from_static(b"news"), true);
        let names = board.look();
        for work in [1, 20, 1000] {
            let (mut progress, mut slices) = (None, 0);
            let count = loop {
                slices += 1;
                match count_receivers(&names, (b"news", false), progress, &mut work.clone()) {
                    Ok(count) => break count,
                    Err(upto) => progress = Some(upto),
                }
            };
            assert_eq!(count, 4);
            assert!((slices == 1) == (work == 1000), "{slices}");
        }
        assert_eq!(
            count_receivers(&names, (b"news", true), None, &mut 1).ok(),
            Some(0)
        );
    }
}
