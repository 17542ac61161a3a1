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
//! To know how many subscribers get a message, or which channels have some, a thread asks one
//! thread of each member with subscribers. The shell of that thread answers for its whole process.
//! A member that does not answer in time counts as none.
//!
//! ```text
//!   ask_subscribers ── Count, Ask ──> poll_question ── answer_.. ── Counted, Named ──> poll_counted
//! ```
//! Questions about the texts of scripts go the same way, to one thread of every other member. A
//! question follows the messages that were published before it on the same lane, so it is answered
//! after them.

use crate::command::publication::{MESSAGE_OVERHEAD, Publication};
use crate::role::host::Host;
use crate::role::timers::Duty;
use crate::wire::frame::Frame;
use crate::wire::peers::Peers;
use crate::wire::questions::AskedSubscribers;
use doyen_gossip::Time;
use doyen_placement::MemberId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes of messages that wait until the shell takes them. Later ones are dropped.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// From this many on, publishers of this thread should wait.
const QUEUED_BYTES_MUCH: usize = 1 << 20;
/// How long an answer about subscribers may take.
const COUNTED_MAX: Duration = Duration::from_secs(1);
/// Bytes of questions of peers that wait for the shell. Later ones are not answered.
const QUESTIONS_BYTES_MAX: usize = 8 << 20;
/// Bytes of names that members answer to one question. Further ones are left out, and it is said.
const NAMES_BYTES_MAX: usize = 32 << 20;
/// How long a thread waits until all peers know that it wants messages.
const HEARD_MAX: Duration = Duration::from_secs(1);

/// A question of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountQuestion {
    peer: MemberId,
    ticket: u64,
    /// What it asks.
    pub asked: AskedSubscribers,
}

/// What other members answered to a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountedReceivers {
    /// A number for each name that was asked about: of all of them together.
    pub counts: Vec<u64>,
    /// The names that were asked for.
    pub names: BTreeSet<Vec<u8>>,
    /// Whether there are more names than fit.
    pub too_many: bool,
    bytes: usize,
}

/// A question to peers.
#[derive(Debug)]
struct Counting {
    asked: AskedSubscribers,
    /// The peers that have not answered.
    unheard: BTreeSet<MemberId>,
    counted: CountedReceivers,
    until: Time,
}

/// Messages that have arrived, and who knows that they are wanted.
#[derive(Debug, Default)]
pub struct Publishing {
    wanted: bool,
    /// Counts how often `wanted` has changed.
    round: u64,
    /// Peers that have not confirmed that they know it.
    unheard: BTreeSet<MemberId>,
    until: Time,
    queue: VecDeque<Publication>,
    bytes: usize,
    /// Questions to peers, by number, and the last number.
    counting: BTreeMap<u64, Counting>,
    counting_last: u64,
    /// Questions that were answered.
    counted: VecDeque<(u64, CountedReceivers)>,
    /// Questions of peers, and their bytes.
    questions: VecDeque<CountQuestion>,
    questions_bytes: usize,
}

impl Publishing {
    /// Whether messages are wanted.
    #[must_use]
    pub fn wants(&self) -> bool {
        self.wanted
    }

    /// Whether every connected peer knows that messages are wanted, or had time enough.
    #[must_use]
    pub fn is_heard(&self, now: Time) -> bool {
        self.wanted && (self.unheard.is_empty() || now >= self.until)
    }

    /// Until when to wait for [`Self::is_heard`] at most.
    #[must_use]
    pub fn heard_until(&self) -> Time {
        self.until
    }

    /// How many messages `poll_published` would return now, and about how many bytes they take.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.queue.len(), self.bytes)
    }

    /// Whether publishers of this thread should wait: too many bytes of messages wait for its
    /// subscribers.
    #[must_use]
    pub fn has_much(&self) -> bool {
        self.bytes >= QUEUED_BYTES_MUCH
    }

    /// How many threads have subscribers.
    pub(crate) fn hearers(&self, peers: &Peers) -> usize {
        peers.wanting().count() + usize::from(self.wanted)
    }

    /// The peer is gone, so it is not waited for.
    pub(crate) fn disconnected(&mut self, peer: MemberId) {
        self.unheard.remove(&peer);
        self.questions.retain(|question| question.peer != peer);
        self.questions_bytes = self.questions.iter().map(|q| q.asked.bytes()).sum();
        let all = self.counting.values_mut();
        all.for_each(|counting| _ = counting.unheard.remove(&peer));
        self.finish_counting(Time::ZERO);
    }

    /// Ends questions that all have answered, or for which no more time is left.
    fn finish_counting(&mut self, now: Time) {
        let over = |counting: &Counting| counting.unheard.is_empty() || counting.until <= now;
        let counted = &mut self.counted;
        self.counting.retain(|ticket, counting| {
            let ends = over(counting);
            if ends {
                counted.push_back((*ticket, std::mem::take(&mut counting.counted)));
            }
            !ends
        });
    }

    /// A peer has answered a question with numbers.
    fn counted(&mut self, peer: MemberId, ticket: u64, counts: &[u64]) {
        if let Some(counting) = self.counting.get_mut(&ticket)
            && counting.unheard.remove(&peer)
        {
            for (sum, count) in counting.counted.counts.iter_mut().zip(counts) {
                *sum = sum.saturating_add(*count);
            }
        }
        self.finish_one(ticket);
    }

    /// A peer has answered a question with names. Returns what to ask it next, if more follow.
    fn named(
        &mut self,
        peer: MemberId,
        ticket: u64,
        (names, next): (Vec<Vec<u8>>, Option<Vec<u8>>),
        now: Time,
    ) -> Option<Frame> {
        let counting = self.counting.get_mut(&ticket)?;
        if !counting.unheard.contains(&peer) {
            return None;
        }
        let counted = &mut counting.counted;
        for name in names {
            counted.bytes += name.len() + MESSAGE_OVERHEAD;
            if counted.bytes > NAMES_BYTES_MAX {
                counted.too_many = true;
            } else {
                counted.names.insert(name);
            }
        }
        if let Some(next) = next
            && !counted.too_many
            && let AskedSubscribers::Names { kind, pattern, .. } = &counting.asked
        {
            counting.until = now + COUNTED_MAX;
            let asked = AskedSubscribers::Names {
                kind: *kind,
                pattern: pattern.clone(),
                after: Some(next),
            };
            return Some(asked.frame(ticket));
        }
        counting.unheard.remove(&peer);
        if matches!(counting.asked, AskedSubscribers::Script(_))
            && !counting.counted.names.is_empty()
        {
            // A silent member must not delay what another one has answered.
            counting.unheard.clear();
        }
        self.finish_one(ticket);
        None
    }

    /// Ends a question if all have answered.
    fn finish_one(&mut self, ticket: u64) {
        let over = |counting: &Counting| counting.unheard.is_empty();
        if self.counting.get(&ticket).is_some_and(over)
            && let Some(counting) = self.counting.remove(&ticket)
        {
            self.counted.push_back((ticket, counting.counted));
        }
    }

    /// A peer asks.
    fn asked(&mut self, peer: MemberId, ticket: u64, asked: AskedSubscribers) {
        let bytes = asked.bytes();
        if self.questions_bytes + bytes <= QUESTIONS_BYTES_MAX || self.questions.is_empty() {
            self.questions_bytes += bytes;
            self.questions.push_back(CountQuestion {
                peer,
                ticket,
                asked,
            });
        }
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

/// The channels of a thread: messages and questions, to peers and from them.
#[derive(Debug)]
pub struct Channels<'a> {
    pub(crate) publishing: &'a mut Publishing,
    pub(crate) host: &'a mut Host,
}

impl Channels<'_> {
    /// From now on, messages are wanted, or no longer. They may come from all peers once
    /// [`Publishing::is_heard`].
    pub fn want_published(&mut self, now: Time, wanted: bool) {
        let cx = &mut *self;
        if cx.publishing.wanted == wanted {
            return;
        }
        let publishing = &mut cx.publishing;
        (publishing.wanted, publishing.until) = (wanted, now + HEARD_MAX);
        publishing.round += 1;
        publishing.unheard.clear();
        let round = publishing.round;
        for peer in cx.host.peers.ids() {
            if peer.is_client() {
                continue;
            }
            let interest = Frame::Interest { round, wanted };
            cx.host.peers.tell(peer, &interest);
            if wanted {
                cx.publishing.unheard.insert(peer);
            }
        }
    }

    /// Publishes a message of a client of this thread.
    pub fn publish(&mut self, now: Time, publication: Publication) {
        self.host.now = self.host.now.max(now);
        self.send(publication);
    }

    /// Sends a message to all threads that have subscribers.
    pub(crate) fn send(&mut self, publication: Publication) {
        let (told, dropped) = self.host.peers.publish(&publication);
        self.host.worked += publication.bytes() * (told + 1);
        self.host.stats.published_dropped += dropped;
        if self.publishing.wanted {
            self.arrive(publication);
        }
    }

    /// Asks the other members about subscribers. [`Self::poll_counted`] has the answer by this
    /// number. `None`: no other member has subscribers, or, for questions about scripts, there is
    /// no other member.
    pub fn ask_subscribers(&mut self, now: Time, asked: AskedSubscribers) -> Option<u64> {
        let cx = &mut *self;
        cx.host.now = cx.host.now.max(now);
        let mut peers: BTreeMap<MemberId, MemberId> = BTreeMap::new();
        let asked_peers: Vec<MemberId> = if asked.is_for_all() {
            cx.host.peers.ids()
        } else {
            cx.host.peers.wanting().collect()
        };
        for peer in asked_peers {
            if peer.member() != cx.host.me.member() && !peer.is_client() && cx.host.peers.up(peer) {
                peers.entry(peer.member()).or_insert(peer);
            }
        }
        if peers.is_empty() {
            return None;
        }
        let publishing = &mut cx.publishing;
        publishing.counting_last += 1;
        let ticket = publishing.counting_last;
        let frame = asked.frame(ticket);
        let counting = Counting {
            unheard: peers.values().copied().collect(),
            counted: CountedReceivers {
                counts: vec![0; asked.numbers()],
                ..CountedReceivers::default()
            },
            until: cx.host.now + COUNTED_MAX,
            asked,
        };
        publishing.counting.insert(ticket, counting);
        if publishing.counting.len() == 1 {
            cx.host.timers.set(Duty::Count, cx.host.now + COUNTED_MAX);
        }
        for peer in peers.into_values() {
            cx.host.peers.tell(peer, &frame);
        }
        Some(ticket)
    }

    /// The next question that was answered, and what other members answered.
    pub fn poll_counted(&mut self) -> Option<(u64, CountedReceivers)> {
        self.publishing.counted.pop_front()
    }

    /// The next question of another member, about the subscribers of this process.
    pub fn poll_question(&mut self) -> Option<CountQuestion> {
        let question = self.publishing.questions.pop_front()?;
        self.publishing.questions_bytes -= question.asked.bytes();
        Some(question)
    }

    /// Answers a question with names. `next`: more follow after this one.
    pub fn answer_names(
        &mut self,
        question: &CountQuestion,
        names: Vec<Vec<u8>>,
        next: Option<Vec<u8>>,
    ) {
        let ticket = question.ticket;
        let named = Frame::Named {
            ticket,
            names,
            next,
        };
        self.host.peers.tell(question.peer, &named);
    }

    /// Answers a question with a number for each of its channels.
    pub fn answer_question(&mut self, question: &CountQuestion, counts: Vec<u64>) {
        let ticket = question.ticket;
        let counted = Frame::Counted { ticket, counts };
        self.host.peers.tell(question.peer, &counted);
    }

    /// Questions for which no more time is left are over.
    pub(crate) fn count_due(&mut self, now: Time) {
        if self.host.timers.take(Duty::Count, now) {
            self.publishing.finish_counting(now);
            if let Some(next) = self.publishing.counting.values().map(|c| c.until).min() {
                self.host.timers.set(Duty::Count, next);
            }
        }
    }

    /// Gives the subscribers of this thread a message, and no others.
    pub fn notify(&mut self, publication: Publication) {
        self.host.worked += publication.bytes();
        self.arrive(publication);
    }

    /// The next message for the subscribers of this thread.
    pub fn poll_published(&mut self) -> Option<Publication> {
        let publishing = &mut self.publishing;
        let next = publishing.queue.pop_front()?;
        publishing.bytes -= next.bytes();
        Some(next)
    }

    /// A connection with a peer is up: it hears that messages are wanted, if they are.
    pub(crate) fn tell_interest(&mut self, peer: MemberId) {
        if self.publishing.wanted && !peer.is_client() && self.host.peers.up(peer) {
            let round = self.publishing.round;
            let wanted = true;
            let interest = Frame::Interest { round, wanted };
            self.host.peers.tell(peer, &interest);
        }
    }

    /// A frame of this module has come from a peer.
    pub(crate) fn told_of_publishing(&mut self, peer: MemberId, frame: Frame) {
        match frame {
            Frame::Publish(publication) if self.publishing.wanted => self.arrive(publication),
            Frame::Interest { round, wanted } => {
                self.host.peers.set_wants(peer, wanted);
                let interested = Frame::Interested { round };
                self.host.peers.tell(peer, &interested);
            }
            Frame::Interested { round } => self.publishing.heard(peer, round),
            Frame::Count {
                ticket,
                sharded,
                names,
            } => {
                let asked = AskedSubscribers::Subscribers { sharded, names };
                self.publishing.asked(peer, ticket, asked);
            }
            Frame::Ask { ticket, asked } => self.publishing.asked(peer, ticket, asked),
            Frame::Named {
                ticket,
                names,
                next,
            } => {
                let now = self.host.now;
                if let Some(more) = self.publishing.named(peer, ticket, (names, next), now) {
                    self.host.peers.tell(peer, &more);
                }
            }
            Frame::Counted { ticket, counts } => self.publishing.counted(peer, ticket, &counts),
            _ => {}
        }
    }

    fn arrive(&mut self, publication: Publication) {
        if self.publishing.push(publication) {
            self.host.stats.published += 1;
        } else {
            self.host.stats.published_dropped += 1;
        }
    }
}
