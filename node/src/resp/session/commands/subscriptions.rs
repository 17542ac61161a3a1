//! What a client subscribes to, the messages that wait for it, and the commands about both.
//!
//! A command of this file that cannot be executed at once stays where it was parsed, and its
//! connection takes nothing more until it is run again ([`Hold`]).

use super::*;
use crate::resp::command::PubSubCommand;
use crate::resp::notices::{database_of, is_about_keys, may_be_about_keys};
use crate::resp::pubsub::hub::{CountedUpTo, NAME_WORK, compare, count_receivers};
use crate::resp::pubsub::{Kind, NAME_BYTES_MAX, Names, Push, Queued, confirm};
use crate::resp::settings::OutputLimit;
use doyen_engine::{AskedSubscribers, Counted, Publication};
use std::collections::BTreeSet;

/// Channels whose subscribers one command counts at most.
const COUNTED_NAMES_MAX: usize = 4_096;
/// Names of one command that are handled in one slice.
const SLICE_NAMES: usize = 512;
/// Messages are moved to the output up to this size. The rest waits where the messages of all
/// subscribers are shared.
const PUSH_OUTPUT: usize = 128 << 10;

const NOT_TOLD: &str = "TRYAGAIN this node is not told of the changes of all keys at the moment, so \
    messages about keys would be missing: subscribe again";

/// The state of a client that has subscriptions, or for which pushes wait, or whose command waits.
#[derive(Debug, Default)]
pub(in crate::resp) struct Subscribing {
    names: [BTreeSet<Bytes>; 3],
    /// It sees the commands of all clients.
    monitors: bool,
    hold: Hold,
    /// How long its command waits until this thread is told of all changes of keys.
    until: Option<Time>,
    /// Pushes that are not in the output yet.
    queue: VecDeque<Queued>,
    /// How much they count.
    bytes: usize,
    /// How many pushes were ever queued.
    queued: u64,
    /// Messages of a transaction that was executed, to be published next.
    executed: Vec<Publication>,
    /// It asked all members about subscribers, and these are at others.
    counted: Option<Counted>,
}

/// What the present command waits for. It is run again then.
#[derive(Debug, Default)]
enum Hold {
    /// No command waits.
    #[default]
    No,
    /// The answers to earlier commands.
    Answers,
    /// Until all peers know that this thread has subscribers, or until fewer messages wait at this
    /// thread.
    Woken,
    /// It has waited, and is run again.
    Ready,
    /// Its next slice.
    Slice(Progress),
}

/// How far a command has come that is executed in slices.
#[derive(Debug)]
enum Progress {
    /// The next of its names.
    Names(usize),
    /// The patterns are compared with a message's channel so far.
    Counting(CountedUpTo),
    /// The channels up to this one are compared; these match.
    Listing(Option<Bytes>, BTreeSet<Bytes>),
}

/// What came of a message for a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resp) enum Took {
    /// It has the message, or wants no more messages.
    Well,
    /// Too much waits for it.
    TooMuch,
}

impl Subscribing {
    /// How many subscriptions of these kinds count together.
    fn count(&self, kind: Kind) -> usize {
        let len = |kind: Kind| self.names[kind.at()].len();
        match kind {
            Kind::Shard => len(Kind::Shard),
            Kind::Channel | Kind::Pattern => len(Kind::Channel) + len(Kind::Pattern),
        }
    }

    fn is_subscriber(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// How many pushes left the queue.
    fn moved(&self) -> u64 {
        self.queued - self.queue.len() as u64
    }

    fn queue(&mut self, push: Rc<Push>) {
        self.bytes += push.bytes();
        self.queue.push_back(Queued::new(push));
        self.queued += 1;
    }

    /// Moves pushes to the output while it is shorter than this: all, or those below this number.
    fn move_to(&mut self, out: &mut Output, bytes: usize, below: u64) {
        while self.moved() < below
            && out.len() < bytes
            && let Some(push) = self.queue.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(push.bytes());
            push.append_to(out);
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(SLOTS_KEPT_MAX);
        }
    }
}

impl Connection {
    /// A message for this client, which is encoded for the protocol that it speaks.
    pub(in crate::resp) fn take_push(
        &self,
        limit: OutputLimit,
        encoded: impl FnOnce(Protocol) -> Rc<Push>,
    ) -> Took {
        let mut session = self.session.borrow_mut();
        if session.closing || self.expelled.get() {
            return Took::Well;
        }
        let protocol = session.protocol;
        let Some(subscribing) = &mut session.subscribing else {
            return Took::Well;
        };
        subscribing.queue(encoded(protocol));
        let too_much = limit.is_reached(subscribing.bytes);
        if too_much {
            // It gets no more.
            self.expelled.set(true);
        }
        self.wake();
        if too_much { Took::TooMuch } else { Took::Well }
    }

    /// Whether it is told what happens to keys of this database, as a subscriber to this name.
    pub(in crate::resp) fn may_hear_of(&self, name: &[u8], pattern: bool, database: i64) -> bool {
        let session = self.session.borrow();
        session.free || session.user.may_hear_of(name, pattern, database)
    }

    /// Bytes of messages that wait for this client.
    pub(in crate::resp) fn pushes_bytes(&self) -> usize {
        let session = self.session.borrow();
        session.subscribing.as_ref().map_or(0, |s| s.bytes)
    }

    /// Drops the messages that wait for this client. Returns how many bytes they had.
    pub(in crate::resp) fn drop_pushes(&self) -> usize {
        let mut session = self.session.borrow_mut();
        let Some(subscribing) = &mut session.subscribing else {
            return 0;
        };
        subscribing.queue = VecDeque::new();
        std::mem::take(&mut subscribing.bytes)
    }

    /// What other members answered to its question about subscribers: for this reply, or for its
    /// present command.
    pub(in crate::resp) fn counted(&self, reply: Option<u64>, counted: Counted) {
        let mut session = self.session.borrow_mut();
        let Some(reply) = reply else {
            if let Some(subscribing) = &mut session.subscribing {
                subscribing.counted = Some(counted);
            }
            drop(session);
            return self.goes_on();
        };
        let at = reply
            .checked_sub(session.first)
            .and_then(|at| usize::try_from(at).ok());
        let Some(slot) = at.and_then(|at| session.slots.get_mut(at)) else {
            return;
        };
        let State::Publishing(own) = slot.state else {
            return;
        };
        let others = counted.counts.first().copied().unwrap_or_default();
        let mut bytes = BytesMut::new();
        let count = i64::try_from(own.saturating_add(others)).unwrap_or(i64::MAX);
        Encoder::new(&mut bytes, slot.protocol).integer(count);
        slot.state = State::Encoded(bytes.freeze());
        if at == Some(0) && session.encode_ready() {
            self.wake();
        }
    }

    /// The other members have answered for a script of this reply. Returns whether it goes on.
    pub(in crate::resp) fn looked_for_script(&self, reply: u64) -> bool {
        let mut session = self.session.borrow_mut();
        let at = reply.checked_sub(session.first);
        let at = at.and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| session.slots.get_mut(at)) {
            Some(slot) => match &mut slot.state {
                State::Running(running) => running.asked_for_script(),
                _ => false,
            },
            None => false,
        }
    }

    /// What its command waited for is over.
    pub(in crate::resp) fn goes_on(&self) {
        let mut session = self.session.borrow_mut();
        if let Some(subscribing) = &mut session.subscribing
            && matches!(subscribing.hold, Hold::Woken)
        {
            subscribing.hold = Hold::Ready;
            self.wake();
        }
    }
}

impl Session {
    /// Whether the present command is to be run again.
    pub(in crate::resp::session) fn is_held(&self) -> bool {
        let held = |s: &Subscribing| !matches!(s.hold, Hold::No);
        self.subscribing.as_deref().is_some_and(held)
    }

    /// Whether the present command waits for something.
    pub(in crate::resp::session) fn is_held_back(&self) -> bool {
        self.subscribing.as_ref().is_some_and(|s| match s.hold {
            Hold::Answers => !self.is_settled(),
            Hold::Woken => true,
            Hold::No | Hold::Ready | Hold::Slice(_) => false,
        })
    }

    /// Whether the replies to all earlier commands are in the output to stay.
    fn is_settled(&self) -> bool {
        self.slots.is_empty() && self.provisional.is_empty()
    }

    /// Lets the present command wait until the replies to all earlier commands are in the output.
    /// False: they are.
    pub(in crate::resp::session) fn waits_for_answers(&mut self) -> bool {
        if let Some(subscribing) = &mut self.subscribing {
            subscribing.hold = Hold::No;
        }
        let waits = !self.is_settled();
        if waits {
            self.hold(Hold::Answers);
        }
        waits
    }

    /// The present command is not run again.
    pub(in crate::resp::session) fn waits_no_more(&mut self) {
        if let Some(subscribing) = &mut self.subscribing {
            (subscribing.hold, subscribing.counted) = (Hold::No, None);
            subscribing.until = None;
        }
        self.forget_subscribing();
    }

    fn hold(&mut self, hold: Hold) {
        self.subscribing.get_or_insert_default().hold = hold;
    }

    fn is_subscriber(&self) -> bool {
        self.subscribing.as_ref().is_some_and(|s| s.is_subscriber())
    }

    /// How many bytes of output wait for the client, and whether it has subscriptions.
    pub(crate) fn output_waiting(&self) -> (usize, bool) {
        let done = |slot: &&Slot| matches!(slot.state, State::Done { .. } | State::Encoded(_));
        // Answers that follow others wait for these, and are no output of their own yet.
        let answered = self.slots.iter().take_while(done).map(|slot| slot.weight);
        let answered = self.unsent + answered.sum::<usize>();
        match &self.subscribing {
            Some(subscribing) if subscribing.is_subscriber() || subscribing.monitors => {
                (answered + subscribing.bytes, true)
            }
            _ => (answered, false),
        }
    }

    /// Whether the client has subscriptions, and how many of each kind.
    pub(in crate::resp::session) fn subscriptions(&self) -> Option<[usize; 3]> {
        let subscribing = self.subscribing.as_ref().filter(|s| s.is_subscriber())?;
        Some(Kind::ALL.map(|kind| subscribing.names[kind.at()].len()))
    }

    /// What the client subscribes to, of this kind.
    pub(in crate::resp::session) fn names_of(&self, kind: Kind) -> impl Iterator<Item = &Bytes> {
        let names = self.subscribing.as_ref().map(|s| &s.names[kind.at()]);
        names.into_iter().flatten()
    }

    /// A subscriber cannot tell messages and replies of RESP2 apart, so it may run few commands.
    pub(in crate::resp::session) fn refuses_for_subscriber(
        &self,
        spec: &table::Spec,
    ) -> Option<ErrorText> {
        if self.protocol == Protocol::Resp3 || !self.is_subscriber() {
            return None;
        }
        let allowed = matches!(
            spec.name,
            "subscribe"
                | "unsubscribe"
                | "psubscribe"
                | "punsubscribe"
                | "ssubscribe"
                | "sunsubscribe"
                | "ping"
                | "quit"
                | "reset"
        );
        (!allowed).then(|| {
            format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                spec.name
            )
            .into()
        })
    }

    /// `PING` of a subscriber that speaks RESP2 is answered as a message.
    pub(in crate::resp::session) fn pings_as_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.is_subscriber()
    }

    /// Whether no push waits.
    pub(in crate::resp::session) fn has_no_pushes(&self) -> bool {
        self.subscribing.as_ref().is_none_or(|s| s.queue.is_empty())
    }

    /// How many pushes came before the present command.
    pub(in crate::resp::session) fn pushes_before(&self) -> u64 {
        self.subscribing.as_ref().map_or(0, |s| s.queued)
    }

    /// Moves the pushes to the output that came before the command of the next reply. True if that
    /// reply may follow.
    pub(in crate::resp::session) fn move_pushes_before(&mut self, reply: u64) -> bool {
        let Some(subscribing) = &mut self.subscribing else {
            return true;
        };
        if !self.within_reply {
            subscribing.move_to(&mut self.out, OUTPUT_BYTES_SOFT, reply);
        }
        subscribing.queue.is_empty() || subscribing.moved() >= reply
    }

    /// Moves pushes to the output while there is room.
    pub(in crate::resp::session) fn move_pushes(&mut self) {
        if let Some(subscribing) = &mut self.subscribing
            && !self.within_reply
        {
            subscribing.move_to(&mut self.out, PUSH_OUTPUT, u64::MAX);
        }
    }

    /// How much of so much unwritten output is charged to the budget. Others hold most of what a
    /// subscriber has not taken, too.
    pub(in crate::resp::session) fn charged_of(&self, unwritten: usize) -> usize {
        if self.is_subscriber() {
            unwritten.min(PUSH_OUTPUT)
        } else {
            unwritten
        }
    }

    /// `MONITOR`: the client sees the commands of all clients from now on.
    pub(in crate::resp::session) fn monitor(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
    ) {
        context.monitor(self.id, connection, self.cluster_port);
        self.subscribing.get_or_insert_default().monitors = true;
        self.answer(|e| e.simple("OK"));
    }

    /// Whether the client sees the commands of all clients.
    pub(in crate::resp::session) fn is_monitor(&self) -> bool {
        self.subscribing.as_ref().is_some_and(|s| s.monitors)
    }

    /// Shows the present command to clients that monitor. Those of strangers are not executed.
    #[cold]
    pub(in crate::resp::session) fn show_to_monitors(&self, context: &mut Context, args: Args<'_>) {
        if self.authenticated || brings_password(args) {
            let database = databases::index(self.present_map());
            context.show_command((database, self.peer), args);
        }
    }

    /// All subscriptions end.
    pub(in crate::resp::session) fn leave_channels(&mut self, context: &mut Context) {
        if let Some(subscribing) = &mut self.subscribing
            && std::mem::take(&mut subscribing.monitors)
        {
            context.end_monitor(self.id);
        }
        let Some(subscribing) = self.subscribing.as_mut().filter(|s| s.is_subscriber()) else {
            return;
        };
        let names = std::mem::take(&mut subscribing.names);
        let (common, now) = (context.door.common.clone(), context.now());
        context.door.hub.leave(common.board(), now, self.id, names);
    }

    pub(in crate::resp::session) fn about_subscriptions(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        asked: PubSubCommand,
    ) {
        let hold = match &mut self.subscribing {
            Some(subscribing) => std::mem::take(&mut subscribing.hold),
            None => Hold::No,
        };
        if matches!(hold, Hold::No) {
            self.forget_counted();
        }
        match asked {
            PubSubCommand::Subscribe(kind) => {
                self.subscribe(connection, context, args, (kind, hold))
            }
            PubSubCommand::Unsubscribe(kind) => self.unsubscribe(context, args, (kind, hold)),
            PubSubCommand::Publish { sharded } => {
                self.publish(connection, context, args, (sharded, hold))
            }
            PubSubCommand::Channels(kind, pattern) => {
                self.list_channels(connection, context, (kind, &pattern), hold)
            }
            PubSubCommand::Subscribers(kind, names) => {
                self.count_subscribers(connection, context, (kind, &names), hold);
            }
            PubSubCommand::Patterns => self.count_patterns(connection, context, hold),
        }
        self.forget_subscribing();
    }

    /// Frees the state of a client that does not need it any more.
    pub(in crate::resp::session) fn forget_subscribing(&mut self) {
        self.subscribing.take_if(|s| {
            !s.is_subscriber()
                && !s.monitors
                && s.queue.is_empty()
                && s.executed.is_empty()
                && s.counted.is_none()
                && matches!(s.hold, Hold::No)
        });
    }

    /// A transaction was executed, and publishes these messages.
    pub(in crate::resp::session) fn publish_next(&mut self, messages: Vec<Publication>) {
        self.subscribing.get_or_insert_default().executed = messages;
    }

    /// Publishes the messages of a transaction that was executed.
    pub(in crate::resp::session) fn publish_executed(&mut self, context: &mut Context) {
        if let Some(subscribing) = &mut self.subscribing {
            let messages = std::mem::take(&mut subscribing.executed);
            messages.into_iter().for_each(|m| context.publish(m));
            self.forget_subscribing();
        }
    }

    /// Asks the other members how many subscribers get the messages of a transaction that is about to
    /// be executed. True: `EXEC` is run again with the answer.
    pub(in crate::resp::session) fn asks_receivers<'m>(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        messages: impl Iterator<Item = &'m Publication>,
    ) -> bool {
        let plain = !self.cluster_port;
        self.asks_first(connection, context, || {
            let channels: Vec<_> = messages
                .take(COUNTED_NAMES_MAX)
                .map(|message| (message.sharded, message.channel.to_vec()))
                .collect();
            let asks = plain && !channels.is_empty();
            asks.then_some(AskedSubscribers::Receivers(channels))
        })
    }

    /// Asks the other members before the present command is executed. True: it is run again with
    /// the answer.
    pub(in crate::resp::session) fn asks_first(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        asked: impl FnOnce() -> Option<AskedSubscribers>,
    ) -> bool {
        if let Some(subscribing) = &mut self.subscribing
            && let Hold::Ready = std::mem::take(&mut subscribing.hold)
        {
            return false;
        }
        self.forget_counted();
        let asks = asked().is_some_and(|asked| context.ask_members(connection, None, asked));
        if asks {
            self.hold(Hold::Woken);
        }
        asks
    }

    /// No command waits for what other members answered.
    fn forget_counted(&mut self) {
        if let Some(subscribing) = &mut self.subscribing {
            subscribing.counted = None;
        }
    }

    /// How many subscribers at other members get each message of the transaction that is executed.
    pub(in crate::resp::session) fn receivers_elsewhere(&mut self) -> Vec<u64> {
        let counted = self.subscribing.as_mut().and_then(|s| s.counted.take());
        self.forget_subscribing();
        counted.unwrap_or_default().counts
    }

    /// How many subscribers of this node get a message of a transaction. Of very many patterns, only
    /// the first are compared: a transaction is not interrupted for that.
    pub(in crate::resp::session) fn receivers_here(
        &self,
        context: &Context,
        message: &Publication,
    ) -> u64 {
        let names = self.names(context, context.door.common.board());
        let channel = (&*message.channel, message.sharded);
        let counted = count_receivers(&names, channel, None, &mut COMPARE_AT_ONCE.clone());
        counted.unwrap_or_else(|(_, count)| count) as u64
    }

    /// The names with subscribers that this client is told of.
    pub(in crate::resp::session) fn names<'a>(
        &self,
        context: &'a Context,
        board: &'a crate::resp::pubsub::Board,
    ) -> Names<'a> {
        if self.cluster_port {
            Names::Thread(context.door.hub.registry())
        } else {
            board.look()
        }
    }

    /// `SUBSCRIBE`, `PSUBSCRIBE` or `SSUBSCRIBE`.
    fn subscribe(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        (kind, hold): (Kind, Hold),
    ) {
        let at = match hold {
            Hold::Slice(Progress::Names(at)) => at,
            _ => 1,
        };
        if at == 1 {
            if self.waits_for_answers() {
                return;
            }
            if let Err(why) = Self::may_subscribe(args, kind) {
                return self.answer(|e| e.error(&why.0));
            }
            let keys = kind != Kind::Shard && args.iter_from(1).any(may_be_about_keys);
            if kind != Kind::Shard && args.iter_from(1).any(is_about_keys) {
                context.note_silence();
            }
            let now = context.now();
            let until = match (keys, self.subscribing.as_ref().and_then(|s| s.until)) {
                (false, _) => None,
                (true, until) => until.or(Some(now + context.limits().park)),
            };
            let hears = context.hears(connection, until);
            let over = until.is_some_and(|until| now >= until);
            if let Some(subscribing) = &mut self.subscribing {
                subscribing.until = None;
            }
            if !hears && over {
                return self.answer(|e| e.error(NOT_TOLD));
            }
            if !hears {
                self.hold(Hold::Woken);
                self.subscribing.get_or_insert_default().until = until;
                return;
            }
        }
        let common = context.door.common.clone();
        // This connection may have been reset while it had many subscriptions.
        let mut work = SLICE_NAMES;
        if !context.door.hub.finish_leaving(common.board(), &mut work) {
            return self.hold(Hold::Slice(Progress::Names(at)));
        }
        let from = context.next_published();
        let mut end = args.len().min(at + SLICE_NAMES);
        let mut is_full = false;
        let (id, protocol) = (self.id, self.protocol);
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(&mut bytes, protocol);
        let subscribing = self.subscribing.get_or_insert_default();
        for name in (at..end).map(|at| args.get(at)) {
            if !subscribing.names[kind.at()].contains(name) {
                if !context.door.hub.has_room(name.len()) {
                    is_full = true;
                    break;
                }
                let client = (id, connection);
                let hub = &mut context.door.hub;
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
            end = args.len();
        }
        self.queue_confirmations(context, bytes);
        if end < args.len() {
            self.hold(Hold::Slice(Progress::Names(end)));
        }
    }

    /// Whether the names may be subscribed to.
    fn may_subscribe(args: Args<'_>, kind: Kind) -> Result<(), ErrorText> {
        if args.iter_from(1).any(|name| name.len() > NAME_BYTES_MAX) {
            let what = if kind == Kind::Pattern {
                "pattern"
            } else {
                "channel's name"
            };
            return Err(
                format!("ERR the {what} is too long: at most {NAME_BYTES_MAX} bytes").into(),
            );
        }
        Ok(())
    }

    /// `PUBSUB NUMSUB` or `PUBSUB SHARDNUMSUB`. The plain port answers for all members.
    fn count_subscribers(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (kind, names): (Kind, &[Bytes]),
        hold: Hold,
    ) {
        let asks = matches!(hold, Hold::No) && !self.cluster_port && !names.is_empty();
        if asks {
            if names.len() > COUNTED_NAMES_MAX {
                let why = format!("ERR too many channels: ask for {COUNTED_NAMES_MAX} at most");
                return self.answer(|e| e.error(&why));
            }
            let asked: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
            let asked = AskedSubscribers::Subscribers {
                sharded: kind == Kind::Shard,
                names: asked,
            };
            if context.ask_members(connection, None, asked) {
                return self.hold(Hold::Woken);
            }
        }
        let others = self.subscribing.as_mut().and_then(|s| s.counted.take());
        let others = others.unwrap_or_default().counts;
        let common = context.door.common.clone();
        let own = self.names(context, common.board());
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
        self.answer(|e| {
            e.array(names.len() * 2);
            for (name, count) in names.iter().zip(counts) {
                e.bulk(name);
                e.integer(i64::try_from(count).unwrap_or(i64::MAX));
            }
        });
    }

    /// `UNSUBSCRIBE`, `PUNSUBSCRIBE` or `SUNSUBSCRIBE`.
    fn unsubscribe(&mut self, context: &mut Context, args: Args<'_>, (kind, hold): (Kind, Hold)) {
        let progress = match hold {
            Hold::Slice(Progress::Names(at)) => Some(at),
            _ => None,
        };
        if progress.is_none() && !self.is_settled() {
            return self.hold(Hold::Answers);
        }
        let common = context.door.common.clone();
        let (id, protocol) = (self.id, self.protocol);
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(&mut bytes, protocol);
        let subscribing = self.subscribing.get_or_insert_default();
        let before = subscribing.is_subscriber();
        let at = progress.unwrap_or(1);
        let end = args.len().min(at + SLICE_NAMES);
        let hub = &mut context.door.hub;
        let next = if args.len() > 1 {
            for name in (at..end).map(|at| args.get(at)) {
                if let Some(name) = subscribing.names[kind.at()].take(name) {
                    hub.unsubscribe(common.board(), (kind, &name), id);
                }
                let left = subscribing.count(kind);
                confirm(&mut encoder, (kind, false), Some(name), left);
            }
            (end < args.len()).then_some(end)
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
            context.door.hub.left(context.now(), id);
        }
        self.queue_confirmations(context, bytes);
        if let Some(at) = next {
            self.hold(Hold::Slice(Progress::Names(at)));
        }
    }

    /// Replies that come between messages. A client that wants no replies gets them all the same.
    fn queue_confirmations(&mut self, context: &Context, bytes: BytesMut) {
        let push = Push::new(bytes, context.door.hub.held());
        // The next message, or the next look at all clients, finds out if too much waits.
        self.subscribing.get_or_insert_default().queue(push);
        self.encode_ready();
    }

    /// `PUBLISH` or `SPUBLISH`.
    fn publish(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        (sharded, hold): (bool, Hold),
    ) {
        let (channel, message) = (args.get(1), args.get(2));
        let progress = match hold {
            Hold::Slice(Progress::Counting(upto)) => Some(upto),
            _ => None,
        };
        if progress.is_none() {
            if let Err(why) = checked(channel) {
                return self.answer(|e| e.error(&why.0));
            }
            // A message about a write comes after the write. Earlier messages have left.
            if self.unpublished_until > self.first {
                return self.hold(Hold::Answers);
            }
            if !context.may_publish(connection) {
                return self.hold(Hold::Woken);
            }
        }
        let counted = {
            let names = self.names(context, context.door.common.board());
            let mut work = COMPARE_AT_ONCE;
            count_receivers(&names, (channel, sharded), progress, &mut work)
        };
        let count = match counted {
            Ok(count) => count as u64,
            Err(upto) => return self.hold(Hold::Slice(Progress::Counting(upto))),
        };
        context.publish(of(channel, message, sharded));
        let waits_for = self.unpublished_until;
        let reply = Some(self.next());
        let asks = || AskedSubscribers::Receivers(vec![(sharded, channel.to_vec())]);
        if !self.cluster_port && context.ask_members(connection, reply, asks()) {
            self.push(State::Publishing(count), 0);
        } else {
            self.answer(|e| e.integer(i64::try_from(count).unwrap_or(i64::MAX)));
        }
        self.unpublished_until = waits_for;
    }

    /// Asks the other members for names that have subscribers. True: the command waits for them.
    fn asks_names(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (kind, pattern): (Kind, Option<&Bytes>),
    ) -> bool {
        let asked = AskedSubscribers::Names {
            kind: kind.at() as u8,
            pattern: pattern.map(|pattern| pattern.to_vec()),
            after: None,
        };
        let asks = !self.cluster_port && context.ask_members(connection, None, asked);
        if asks {
            self.hold(Hold::Woken);
        }
        asks
    }

    /// The names that other members answered. The error: they are too many.
    fn names_elsewhere(&mut self) -> Result<BTreeSet<Bytes>, ()> {
        let counted = self.subscribing.as_mut().and_then(|s| s.counted.take());
        let counted = counted.unwrap_or_default();
        let names = counted.names.into_iter().map(Bytes::from).collect();
        if counted.too_many { Err(()) } else { Ok(names) }
    }

    /// `PUBSUB NUMPAT`: how many patterns have subscribers.
    fn count_patterns(&mut self, connection: &Rc<Connection>, context: &mut Context, hold: Hold) {
        let first = matches!(hold, Hold::No);
        if first && self.asks_names(connection, context, (Kind::Pattern, None)) {
            return;
        }
        let Ok(others) = self.names_elsewhere() else {
            return self.answer(|e| e.error(TOO_MANY_NAMES));
        };
        let common = context.door.common.clone();
        let own = self.names(context, common.board());
        let here = |name: &&Bytes| own.subscribers(Kind::Pattern, name) > 0;
        let both = others.iter().filter(here).count();
        let count = own.len(Kind::Pattern) + others.len() - both;
        drop(own);
        self.answer(|e| e.integer(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    /// `PUBSUB CHANNELS` or `PUBSUB SHARDCHANNELS`.
    fn list_channels(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (kind, pattern): (Kind, &Option<Bytes>),
        hold: Hold,
    ) {
        let (mut after, mut found) = match hold {
            Hold::Slice(Progress::Listing(after, found)) => (after, found),
            Hold::No if self.asks_names(connection, context, (kind, pattern.as_ref())) => return,
            _ => match self.names_elsewhere() {
                Ok(mut found) => {
                    let database = |name: &Bytes| database_of(name).filter(|_| kind != Kind::Shard);
                    found.retain(|name| database(name).is_none_or(|of| self.may_look_at(of)));
                    (None, found)
                }
                Err(()) => return self.answer(|e| e.error(TOO_MANY_NAMES)),
            },
        };
        let mut work = COMPARE_AT_ONCE;
        let before = after.take();
        let whole = {
            let names = self.names(context, context.door.common.board());
            names.walk(kind, before.as_ref(), |name, _| {
                let (matches, cost) = match pattern {
                    Some(pattern) => compare(pattern, name),
                    None => (true, 0),
                };
                // The names of such channels have names of keys.
                let database = database_of(name).filter(|_| kind != Kind::Shard);
                let shown = database.is_none_or(|database| self.may_look_at(database));
                if matches && shown {
                    found.insert(name.clone());
                }
                after = Some(name.clone());
                work = work.saturating_sub(NAME_WORK + cost);
                work > 0
            })
        };
        if !whole {
            return self.hold(Hold::Slice(Progress::Listing(after, found)));
        }
        self.answer(|e| {
            e.array(found.len());
            found.iter().for_each(|name| e.bulk(name));
        });
    }
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
pub(in crate::resp::session) fn publication(
    args: Args<'_>,
    sharded: bool,
) -> Result<Publication, ErrorText> {
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
    use std::cell::Cell;

    fn push(bytes: usize) -> Rc<Push> {
        let held: Rc<Cell<usize>> = Rc::default();
        Push::new(BytesMut::zeroed(bytes), &held)
    }

    #[test]
    fn a_queue_moves_to_the_output_up_to_its_limit_and_up_to_a_reply() {
        let mut subscribing = Subscribing::default();
        (0..32).for_each(|_| subscribing.queue(push(1 << 20)));
        assert_eq!(subscribing.bytes, 32 * push(1 << 20).bytes());
        let mut out = Output::default();
        subscribing.move_to(&mut out, 20 << 20, u64::MAX);
        assert!(subscribing.moved() == 20 && out.len() == 20 << 20);
        subscribing.move_to(&mut out, usize::MAX, 25);
        assert_eq!(subscribing.moved(), 25);
        assert_eq!(subscribing.bytes, 7 * push(1 << 20).bytes());
    }

    #[test]
    fn patterns_are_counted_in_slices() {
        let board = crate::resp::pubsub::Board::default();
        let patterns = [&b"n*"[..], b"ne?s", b"x*", b"news"];
        for pattern in patterns {
            board.count(Kind::Pattern, &Bytes::from_static(pattern), true);
        }
        board.count(Kind::Channel, &Bytes::from_static(b"news"), true);
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
