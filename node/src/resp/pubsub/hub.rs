//! The subscribers of one data thread, and the messages that are being handed out to them.
//!
//! Messages are handed out one after the other, so each subscriber gets them in the order in which
//! they came. One message for many subscribers takes several passes.

use super::{Board, ChannelKind, ChannelNames, Push, encode, following};
use crate::log_limit::{A_MINUTE, LogLimit, Losses};
use crate::resp::RespContext;
use crate::resp::encode::Protocol;
use crate::resp::notices::{database_of, is_about_keys, may_be_about_keys};
use crate::resp::scripts::{COMPILE_AT_ONCE, ScriptDigest, ScriptSearch};
use crate::resp::session::{Connection, Took};
use crate::resp::settings::OutputLimit;
use crate::resp::tracking::Tracking;
use bytes::Bytes;
use doyen_engine::glob::Matching;
use doyen_engine::{AskedSubscribers, CountQuestion, CountedReceivers, Publication};
use doyen_gossip::Time;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often it is looked whether messages were dropped.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The part of a thread's memory that messages for all subscribers take at most. Each is counted
/// once, however many subscribers wait for it.
const HELD_PART: usize = 8;
/// The part of a thread's memory that subscriptions take at most, and what they may always take.
const NAMES_PART: usize = 8;
const NAMES_BYTES_LEAST: usize = 96 << 20;
/// About what a subscription costs besides its name: its places here, on the board, and with its
/// client.
const SUBSCRIPTION_OVERHEAD: usize = 512;
/// Why a subscriber is disconnected.
pub(in crate::resp) const OVER_LIMIT: &str = "which is more than client-output-buffer-limit allows \
    (pubsub)";
/// How much is handed out in one round of a pass: subscribers that get a message.
const WORK: usize = 4096;
/// What the comparison of a name with a pattern costs, in such units, is a part of this.
const COMPARE_PART: usize = 64;
/// Questions of other members that are answered in one round of a pass, and the work of one answer.
const QUESTIONS: usize = 512;
const COUNT_WORK: usize = 1 << 16;
/// What it costs to look at a name, in the units of comparisons.
pub(in crate::resp) const NAME_WORK: usize = 16;
/// How long a thread without subscribers still takes messages: clients that subscribe for a moment,
/// one after the other, cost the peers nothing.
const WANTED_FOR: Duration = Duration::from_secs(10);

/// Who subscribes at this thread.
#[derive(Debug, Default)]
pub(in crate::resp) struct Registry {
    names: [BTreeMap<Bytes, Subscribers>; 3],
    bytes: usize,
    /// Names that are those of messages about keys.
    about_keys_alone: usize,
    /// Names to which messages about keys may come.
    about_keys: usize,
}

/// By number of the connection.
type Subscribers = BTreeMap<u64, ChannelSubscriber>;

#[derive(Debug)]
struct ChannelSubscriber {
    connection: Rc<Connection>,
    /// It gets the messages from this one on.
    from: u64,
}

impl Registry {
    pub(super) fn subscribers(&self, kind: ChannelKind, name: &[u8]) -> usize {
        self.names[kind.at()].get(name).map_or(0, BTreeMap::len)
    }

    pub(super) fn len(&self, kind: ChannelKind) -> usize {
        self.names[kind.at()].len()
    }

    /// Whether a client subscribes to messages about keys by their names.
    pub(in crate::resp) const fn is_about_keys_alone(&self) -> bool {
        self.about_keys_alone > 0
    }

    pub(super) fn walk(
        &self,
        kind: ChannelKind,
        after: Option<&Bytes>,
        mut see: impl FnMut(&Bytes, usize) -> bool,
    ) -> bool {
        following(&self.names[kind.at()], after).all(|(name, all)| see(name, all.len()))
    }

    /// Adds a subscriber. Returns the name as it is kept.
    fn add(
        &mut self,
        kind: ChannelKind,
        name: &[u8],
        id: u64,
        subscriber: ChannelSubscriber,
    ) -> Bytes {
        let names = &mut self.names[kind.at()];
        let known = names.get_key_value(name).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| Bytes::copy_from_slice(name));
        let all = names.entry(name.clone()).or_default();
        let tells = kind != ChannelKind::Shard && may_be_about_keys(&name);
        self.about_keys += usize::from(all.is_empty() && tells);
        let alone = tells && is_about_keys(&name);
        self.about_keys_alone += usize::from(all.is_empty() && alone);
        if all.insert(id, subscriber).is_none() {
            self.bytes += name.len() + SUBSCRIPTION_OVERHEAD;
        }
        name
    }

    /// Removes a subscriber. Returns whether it was one.
    fn remove(&mut self, kind: ChannelKind, name: &Bytes, id: u64) -> bool {
        let names = &mut self.names[kind.at()];
        let Some(all) = names.get_mut(name) else {
            return false;
        };
        let was = all.remove(&id).is_some();
        if all.is_empty() {
            names.remove(name);
            let tells = kind != ChannelKind::Shard && may_be_about_keys(name);
            self.about_keys = self.about_keys.saturating_sub(usize::from(tells));
            let alone = tells && is_about_keys(name);
            self.about_keys_alone = self.about_keys_alone.saturating_sub(usize::from(alone));
        }
        if was {
            self.bytes = self
                .bytes
                .saturating_sub(name.len() + SUBSCRIPTION_OVERHEAD);
        }
        was
    }
}

/// What a thread knows of its subscribers.
#[derive(Debug)]
pub(in crate::resp) struct Hub {
    registry: Registry,
    /// Every connection with subscriptions.
    clients: BTreeMap<u64, Rc<Connection>>,
    /// When one was last expected, or the last one left.
    empty_since: Time,
    /// Subscriptions of connections that are gone, or were reset.
    leaving: VecDeque<(u64, [BTreeSet<Bytes>; 3])>,
    /// How many messages were taken from the shard.
    taken: u64,
    delivery: Option<Delivery>,
    /// Bytes of the messages that wait in queues of sessions, and their limit.
    held: Rc<Cell<usize>>,
    held_max: usize,
    names_max: usize,
    /// Connections that wait until all peers know that this thread takes messages.
    unheard: Vec<Rc<Connection>>,
    unheard_until: Time,
    /// Who waits for the answer to a question to all members, by its number, in this life of the
    /// thread.
    asking: BTreeMap<u64, Asking>,
    life: u64,
    /// A question of another member that is being answered, and how far that is.
    answering: Option<(CountQuestion, Vec<u64>, Option<CountedUpTo>)>,
    /// Publishers that wait until fewer messages wait.
    crowd: Vec<Rc<Connection>>,
    /// The clients that keep values, and hear what changes.
    pub(in crate::resp) tracking: Tracking,
    look_at: Time,
    /// Subscribers that were disconnected because they missed messages, or were too slow.
    pub(in crate::resp) expelled: u64,
    /// Those of them for which too much waited.
    pub(in crate::resp) limited: u64,
    /// Lines of the log.
    expelled_line: LogLimit,
    /// Messages that the shard had dropped at the last look.
    dropped: u64,
    losses: Losses,
}

/// What the answer of all members is for.
#[derive(Debug)]
enum Asking {
    /// A reply of this connection; `None`: its present command.
    Of(Rc<Connection>, Option<u64>),
    /// The replies that need the script of this digest.
    Script(ScriptDigest, Vec<(Rc<Connection>, u64)>),
}

/// A message that is being handed out.
#[derive(Debug)]
struct Delivery {
    /// How many messages came before it.
    number: u64,
    publication: Publication,
    /// The database of the keys that it is about.
    database: Option<i64>,
    place: HubPlace,
}

/// How far it has come.
#[derive(Debug)]
enum HubPlace {
    /// At the subscribers of this pattern (`None`: of its channel). They got it up to the one with
    /// this number.
    At(Option<Bytes>, Option<u64>),
    /// All subscribers of patterns up to this one have it.
    After(Option<Bytes>),
}

impl Hub {
    pub(in crate::resp) fn new(memory_bytes_max: usize) -> Self {
        Self {
            registry: Registry::default(),
            clients: BTreeMap::new(),
            empty_since: Time::ZERO,
            leaving: VecDeque::new(),
            taken: 0,
            delivery: None,
            held: Rc::default(),
            held_max: memory_bytes_max / HELD_PART,
            names_max: (memory_bytes_max / NAMES_PART)
                .max(NAMES_BYTES_LEAST.min(memory_bytes_max / 2)),
            unheard: Vec::new(),
            unheard_until: Time::ZERO,
            asking: BTreeMap::new(),
            life: 0,
            answering: None,
            crowd: Vec::new(),
            tracking: Tracking::default(),
            look_at: Time::ZERO,
            expelled: 0,
            limited: 0,
            expelled_line: LogLimit::new(A_MINUTE),
            dropped: 0,
            losses: Losses::new(A_MINUTE),
        }
    }

    pub(in crate::resp) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Where bytes that wait are counted.
    pub(in crate::resp) fn held(&self) -> &Rc<Cell<usize>> {
        &self.held
    }

    /// Memory that messages, subscriptions and tracked keys take.
    pub(in crate::resp) fn bytes(&self) -> usize {
        self.held.get() + self.registry.bytes + self.tracking.bytes()
    }

    /// Connections with subscriptions.
    pub(in crate::resp) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is room for a subscription with a name of `bytes`.
    pub(in crate::resp) fn has_room(&self, bytes: usize) -> bool {
        self.registry.bytes + bytes + SUBSCRIPTION_OVERHEAD <= self.names_max
    }

    /// A client subscribes. It gets the messages from this one on. Returns the name as it is kept.
    pub(in crate::resp) fn subscribe(
        &mut self,
        board: &Board,
        (kind, name): (ChannelKind, &[u8]),
        (id, connection): (u64, &Rc<Connection>),
        from: u64,
    ) -> Bytes {
        let connection = connection.clone();
        self.clients.entry(id).or_insert_with(|| connection.clone());
        let name = self
            .registry
            .add(kind, name, id, ChannelSubscriber { connection, from });
        board.count(kind, &name, true);
        name
    }

    /// A client ends a subscription.
    pub(in crate::resp) fn unsubscribe(
        &mut self,
        board: &Board,
        (kind, name): (ChannelKind, &Bytes),
        id: u64,
    ) {
        if self.registry.remove(kind, name, id) {
            board.count(kind, name, false);
        }
    }

    /// A client has no subscriptions any more.
    pub(in crate::resp) fn left(&mut self, now: Time, id: u64) {
        self.clients.remove(&id);
        if self.clients.is_empty() {
            self.empty_since = now;
        }
    }

    /// A client ends all subscriptions at once. They end in slices.
    pub(in crate::resp) fn leave(
        &mut self,
        board: &Board,
        now: Time,
        id: u64,
        names: [BTreeSet<Bytes>; 3],
    ) {
        self.left(now, id);
        self.leaving.push_back((id, names));
        self.finish_leaving(board, &mut WORK.clone());
    }

    /// Ends subscriptions of connections that left. Returns whether all have ended.
    pub(in crate::resp) fn finish_leaving(&mut self, board: &Board, work: &mut usize) -> bool {
        while let Some((id, names)) = self.leaving.front_mut() {
            let id = *id;
            let kinds = ChannelKind::ALL.into_iter().zip(names.iter_mut());
            let next = kinds
                .filter_map(|(kind, names)| Some((kind, names.pop_first()?)))
                .next();
            let Some((kind, name)) = next else {
                self.leaving.pop_front();
                continue;
            };
            self.unsubscribe(board, (kind, &name), id);
            *work = work.saturating_sub(1);
            if *work == 0 {
                return self.leaving.is_empty();
            }
        }
        true
    }

    /// Whether there is something to hand out or to end at once.
    fn is_busy(&self) -> bool {
        self.delivery.is_some() || !self.leaving.is_empty()
    }

    /// When there is something to do, if nothing else happens before.
    pub(in crate::resp) fn due(&self) -> Option<Time> {
        if self.is_busy() {
            // At once.
            return Some(Time::ZERO);
        }
        let unheard = (!self.unheard.is_empty()).then_some(self.unheard_until);
        [unheard, self.tracking.due()].into_iter().flatten().min()
    }

    /// Hands a message out. True if all have it; false if the work did not suffice.
    fn go_on(
        &mut self,
        delivery: &mut Delivery,
        limit: OutputLimit,
        work: &mut usize,
        ended: &mut Vec<Rc<Connection>>,
    ) -> bool {
        let publication = &delivery.publication;
        loop {
            match &mut delivery.place {
                HubPlace::At(pattern, after) => {
                    let (kind, name) = match pattern.as_ref() {
                        Some(pattern) => (ChannelKind::Pattern, pattern),
                        None if publication.sharded => (ChannelKind::Shard, &publication.channel),
                        None => (ChannelKind::Channel, &publication.channel),
                    };
                    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                    let all = self.registry.names[kind.at()].get(name);
                    let mut pushes = [None, None];
                    let subscribers = all
                        .into_iter()
                        .flat_map(|all| all.range((from, Bound::Unbounded)));
                    for (id, subscriber) in subscribers {
                        if *work == 0 {
                            return false;
                        }
                        *work -= 1;
                        *after = Some(*id);
                        if subscriber.from > delivery.number {
                            continue;
                        }
                        let connection = &subscriber.connection;
                        if let Some(database) = delivery.database
                            && !connection.may_hear_of(name, kind == ChannelKind::Pattern, database)
                        {
                            continue;
                        }
                        let took = connection.take_push(limit, |protocol| {
                            let at = usize::from(protocol == Protocol::Resp3);
                            let encoded = || {
                                let bytes = encode(publication, pattern.as_deref(), protocol);
                                Push::new(bytes, &self.held)
                            };
                            pushes[at].get_or_insert_with(encoded).clone()
                        });
                        match took {
                            Took::Well => {}
                            Took::TooMuch => ended.push(connection.clone()),
                        }
                    }
                    if publication.sharded {
                        return true;
                    }
                    delivery.place = HubPlace::After(pattern.take());
                }
                HubPlace::After(pattern) => {
                    let next = following(
                        &self.registry.names[ChannelKind::Pattern.at()],
                        pattern.as_ref(),
                    )
                    .next()
                    .map(|(pattern, _)| pattern.clone());
                    let Some(next) = next else {
                        return true;
                    };
                    if *work == 0 {
                        return false;
                    }
                    let (matches, cost) = compare(&next, &publication.channel);
                    *work = work.saturating_sub(1 + cost / COMPARE_PART);
                    delivery.place = if matches {
                        HubPlace::At(Some(next), None)
                    } else {
                        HubPlace::After(Some(next))
                    };
                }
            }
        }
    }

    /// The client for which most waits.
    fn slowest(&self) -> Option<Rc<Connection>> {
        let waits = |c: &Rc<Connection>| c.pushes_bytes();
        let all = self.clients.values().chain(self.tracking.connections());
        let all = all.map(|c| (waits(c), c));
        let (bytes, connection) = all.max_by_key(|(bytes, _)| *bytes)?;
        (bytes > 0).then(|| connection.clone())
    }

    /// Disconnects all subscribers, because this process was no member for a while: messages are
    /// missing, and they notice it if they must connect again.
    fn expel_all(&mut self) {
        for connection in self.clients.values() {
            connection.drop_pushes();
            connection.end();
        }
        let count = self.clients.len();
        self.expelled += count as u64;
        if count > 0 {
            tracing::warn!(
                "{count} subscribers were disconnected: messages for them are missing, because \
                 this node was no member of the cluster for a while"
            );
        }
    }

    /// Disconnects a subscriber that is too slow.
    pub(in crate::resp) fn expel(&mut self, connection: &Connection, why: &str) {
        let bytes = connection.drop_pushes();
        connection.end();
        self.expelled += 1;
        self.limited += 1;
        if let Some(others) = self.expelled_line.happened(Instant::now()) {
            let peer = connection.session.borrow().client.peer;
            tracing::warn!(
                "the subscriber {peer} was disconnected: {bytes} bytes of messages waited for it, \
                 {why}; let it read faster, or subscribe to less{others}"
            );
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The last ones may have been dropped while no line was due.
        if let Some(count) = self.losses.rest() {
            warn_of_dropped(count);
        }
    }
}

fn warn_of_dropped(count: u64) {
    tracing::warn!(
        "messages of publishers were dropped ({count} since the last such line): a member, or a \
         data thread, takes them slower than they are published; publish less, or let fewer clients \
         subscribe to all of it"
    );
}

/// Whether the name matches the pattern, and how much work it was to find out.
pub(in crate::resp) fn compare(pattern: &[u8], name: &[u8]) -> (bool, usize) {
    let mut left = usize::MAX;
    let matches = Matching::default().run(pattern, name, &mut left);
    (matches.unwrap_or_default(), usize::MAX - left)
}

/// How far the patterns are compared with a channel, and how many subscribers were found.
pub(in crate::resp) type CountedUpTo = (Option<Bytes>, usize);

/// How many subscribers get a message of a channel, or of a shard channel. The error is how far
/// that has come if the work did not suffice.
pub(in crate::resp) fn count_receivers(
    names: &ChannelNames<'_>,
    (channel, sharded): (&[u8], bool),
    progress: Option<CountedUpTo>,
    work: &mut usize,
) -> Result<usize, CountedUpTo> {
    if sharded {
        return Ok(names.subscribers(ChannelKind::Shard, channel));
    }
    let (before, mut count) =
        progress.unwrap_or_else(|| (None, names.subscribers(ChannelKind::Channel, channel)));
    let mut after = None;
    let whole = names.walk(
        ChannelKind::Pattern,
        before.as_ref(),
        |pattern, subscribers| {
            let (matches, cost) = compare(pattern, channel);
            if matches {
                count += subscribers;
            }
            *work = work.saturating_sub(NAME_WORK + cost);
            if *work == 0 {
                after = Some(pattern.clone());
            }
            *work > 0
        },
    );
    if whole {
        Ok(count)
    } else {
        Err((after, count))
    }
}

/// Names that have subscribers, and after which one to go on.
fn page(
    names: &ChannelNames<'_>,
    kind: ChannelKind,
    pattern: Option<&[u8]>,
    after: Option<Bytes>,
) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
    let (mut found, mut work, mut last) = (Vec::new(), COUNT_WORK, None);
    let whole = names.walk(kind, after.as_ref(), |name, _| {
        let (matches, cost) = match pattern {
            Some(pattern) => compare(pattern, name),
            None => (true, 0),
        };
        if matches {
            found.push(name.to_vec());
        }
        last = Some(name.to_vec());
        work = work.saturating_sub(NAME_WORK + name.len() + cost);
        work > 0
    });
    (found, if whole { None } else { last })
}

impl RespContext {
    /// The number of the next message that comes to this thread.
    pub(in crate::resp) fn next_published(&self) -> u64 {
        self.front.hub.taken + self.shard().published().waiting().0 as u64
    }

    /// Whether all peers know that this thread has subscribers. If not, the connection is woken
    /// when they do. The same for messages about keys, if the client wants some: it waits until
    /// then.
    pub(in crate::resp) fn hears(
        &mut self,
        connection: &Rc<Connection>,
        keys: Option<Time>,
    ) -> bool {
        if !self.shard().published().wants() {
            self.want_published(true);
        }
        self.front.hub.empty_since = self.now();
        let tells = keys.is_none_or(|until| self.tells_keys(connection, until));
        let heard = self.is_heard();
        if !heard {
            self.front.hub.unheard.push(connection.clone());
            self.front.hub.unheard_until = self.shard().published().heard_until();
        }
        heard && tells
    }

    /// Asks all other members about subscribers. False: no other member has any. The connection is
    /// woken with the answer. `reply`: the reply that it is for; `None`: its present command.
    pub(in crate::resp) fn ask_members(
        &mut self,
        connection: &Rc<Connection>,
        reply: Option<u64>,
        asked: AskedSubscribers,
    ) -> bool {
        let Some(ticket) = self.ask_subscribers(asked) else {
            return false;
        };
        let asking = &mut self.front.hub.asking;
        asking.insert(ticket, Asking::Of(connection.clone(), reply));
        true
    }

    /// Asks all other members for the text of a script, for this reply. False: nothing comes.
    pub(in crate::resp) fn ask_for_script(
        &mut self,
        connection: &Rc<Connection>,
        reply: u64,
        digest: &ScriptDigest,
    ) -> bool {
        let now = self.now();
        let ticket = match self.front.scripts.search(digest, now) {
            ScriptSearch::UnderWay(ticket) => ticket,
            ScriptSearch::Over => return false,
            ScriptSearch::Ask => {
                let asked = AskedSubscribers::Script(digest.as_bytes().to_vec());
                let Some(ticket) = self.ask_subscribers(asked) else {
                    return false;
                };
                self.front.scripts.asked(digest.clone(), ticket);
                let asking = Asking::Script(digest.clone(), Vec::new());
                self.front.hub.asking.insert(ticket, asking);
                ticket
            }
        };
        let Some(Asking::Script(_, replies)) = self.front.hub.asking.get_mut(&ticket) else {
            return false;
        };
        replies.push((connection.clone(), reply));
        true
    }

    /// Hands out what the other members answered to a question.
    fn members_answered(&mut self, ticket: u64, asking: Asking, counted: CountedReceivers) {
        match asking {
            Asking::Of(connection, reply) => connection.counted(reply, counted),
            Asking::Script(digest, replies) => {
                let now = self.now();
                let text = counted.names.into_iter().next().map(Bytes::from);
                self.front.scripts.answered(digest, (ticket, now), text);
                for (connection, reply) in replies {
                    let goes_on = connection.looked_for_script(reply);
                    self.front.goes_on(goes_on.then_some((connection, reply)));
                }
            }
        }
    }

    /// Answers questions of other members, and hands out answers to those that asked. True if there
    /// are more questions.
    fn count_for_members(&mut self) -> bool {
        let work_most = self.front.scripts.work() + COMPILE_AT_ONCE;
        while let Some((ticket, counted)) = self.poll_counted() {
            if let Some(asking) = self.front.hub.asking.remove(&ticket) {
                self.members_answered(ticket, asking, counted);
            }
            if self.front.scripts.work() > work_most {
                // Texts of scripts have come, and were slow to compile. Others have their turn.
                return true;
            }
        }
        let common = self.front.common.clone();
        for _ in 0..QUESTIONS {
            let begun = self.front.hub.answering.take();
            let next = begun.or_else(|| Some((self.poll_question()?, Vec::new(), None)));
            let Some((question, mut counts, progress)) = next else {
                return false;
            };
            match &question.asked {
                AskedSubscribers::Subscribers { sharded, names } => {
                    let board = common.board().look();
                    let kind = if *sharded {
                        ChannelKind::Shard
                    } else {
                        ChannelKind::Channel
                    };
                    let names = names.iter();
                    counts = names
                        .map(|name| board.subscribers(kind, name) as u64)
                        .collect();
                }
                AskedSubscribers::Receivers(names) => {
                    let board = common.board().look();
                    let (mut progress, mut work) = (progress, COUNT_WORK);
                    for (sharded, name) in names.iter().skip(counts.len()) {
                        let channel = (&name[..], *sharded);
                        match count_receivers(&board, channel, progress.take(), &mut work) {
                            Ok(count) => counts.push(count as u64),
                            Err(upto) => {
                                progress = Some(upto);
                                break;
                            }
                        }
                    }
                    if counts.len() < names.len() {
                        drop(board);
                        self.front.hub.answering = Some((question, counts, progress));
                        return true;
                    }
                }
                AskedSubscribers::Names {
                    kind,
                    pattern,
                    after,
                } => {
                    let (names, next) = match ChannelKind::ALL.get(usize::from(*kind)) {
                        Some(kind) => {
                            let after = after.as_deref().map(Bytes::copy_from_slice);
                            page(&common.board().look(), *kind, pattern.as_deref(), after)
                        }
                        None => (Vec::new(), None),
                    };
                    self.answer_names(&question, names, next);
                    continue;
                }
                AskedSubscribers::Script(digest) => {
                    let now = self.now();
                    let digest = std::str::from_utf8(digest).unwrap_or_default();
                    let text = self.front.scripts.get(digest, now);
                    let texts = text.iter().map(|text| text.to_vec()).collect();
                    self.answer_names(&question, texts, None);
                    continue;
                }
                AskedSubscribers::ForgetScripts => {
                    self.front.scripts.clear();
                    self.answer_names(&question, Vec::new(), None);
                    continue;
                }
            }
            self.answer_question(&question, counts);
        }
        true
    }

    /// Whether a publisher may go on. If not, the connection is woken when it may.
    pub(in crate::resp) fn may_publish(&mut self, connection: &Rc<Connection>) -> bool {
        let may = !self.shard().published().has_much();
        if !may {
            self.front.hub.crowd.push(connection.clone());
        }
        may
    }

    /// Hands out messages. True if there are more.
    pub(in crate::resp) fn hand_out(&mut self) -> bool {
        let unanswered = self.count_for_members();
        let untold = self.tell_of_keys() | unanswered;
        let hub = &self.front.hub;
        if !hub.is_busy() && hub.crowd.is_empty() && self.shard().published().waiting().0 == 0 {
            return untold;
        }
        let (mut work, mut ended) = (WORK, Vec::new());
        let common = self.front.common.clone();
        let limit = common.settings.output_pubsub();
        let left = self.front.hub.finish_leaving(common.board(), &mut work);
        let more = loop {
            let delivery = self.front.hub.delivery.take();
            let next = delivery.or_else(|| {
                let publication = self.poll_published()?;
                let number = self.front.hub.taken;
                self.front.hub.taken += 1;
                let about = !publication.sharded;
                let database = database_of(&publication.channel).filter(|_| about);
                Some(Delivery {
                    number,
                    database,
                    publication,
                    place: HubPlace::At(None, None),
                })
            });
            let Some(mut next) = next else {
                break false;
            };
            let hub = &mut self.front.hub;
            if !hub.go_on(&mut next, limit, &mut work, &mut ended) {
                hub.delivery = Some(next);
                break true;
            }
            // A message without subscribers is work, too.
            work = work.saturating_sub(1);
        };
        let hub = &mut self.front.hub;
        for connection in ended {
            hub.expel(&connection, OVER_LIMIT);
        }
        self.bound_messages();
        if !self.shard().published().has_much() {
            for connection in self.front.hub.crowd.drain(..) {
                connection.goes_on();
            }
        }
        more || !left || untold
    }

    /// Disconnects the slowest clients while too much waits for all of them.
    pub(in crate::resp) fn bound_messages(&mut self) {
        let hub = &mut self.front.hub;
        while hub.held.get() > hub.held_max
            && let Some(slowest) = hub.slowest()
        {
            hub.expel(
                &slowest,
                "and all subscribers together may let no more wait",
            );
        }
    }

    /// Handles timers of subscribers.
    pub(in crate::resp) fn look_at_subscribers(&mut self) {
        let now = self.now();
        let life = self.incarnation();
        if std::mem::replace(&mut self.front.hub.life, life) != life {
            // This process became another member: what it asked before is not answered.
            let asking = std::mem::take(&mut self.front.hub.asking);
            self.front.hub.answering = None;
            for (ticket, asking) in asking {
                self.members_answered(ticket, asking, CountedReceivers::default());
            }
            self.front.hub.expel_all();
        }
        let wants_keys = self.front.hub.registry.about_keys > 0;
        self.look_at_notices(wants_keys);
        let heard = self.is_heard();
        if !self.front.hub.unheard.is_empty() && heard {
            for connection in self.front.hub.unheard.drain(..) {
                connection.goes_on();
            }
        }
        let wants = self.shard().published().wants();
        let hub = &self.front.hub;
        let needed = !hub.clients.is_empty() || !hub.unheard.is_empty();
        if needed && !wants {
            // This process became another member, whose peers know nothing yet.
            self.want_published(true);
            self.front.hub.unheard_until = self.shard().published().heard_until();
        } else if wants && !needed {
            let since = hub.empty_since;
            if now >= since + WANTED_FOR {
                self.want_published(false);
            }
        }
        if now < self.front.hub.look_at {
            return;
        }
        let dropped = self.shard().stats().published_dropped;
        let hub = &mut self.front.hub;
        hub.look_at = now + LOOK_INTERVAL;
        let before = std::mem::replace(&mut hub.dropped, dropped);
        hub.losses.add(dropped.saturating_sub(before));
        if let Some(count) = hub.losses.told(Instant::now()) {
            warn_of_dropped(count);
        }
    }
}
