//! Buffers of bytes for peers, one for each lane, and the state of each peer.
//!
//! A peer that takes its bytes slower than they come is *crowded*. Then data that can wait stays
//! where that costs nothing: log entries in the log, calls parked, and large answers shared with
//! the store. Acks, refusals and small answers are always sent, because they are small and others
//! wait for them. A node never stops reading a peer, so two crowded nodes cannot wait for each
//! other.

use super::answers::{HeldAnswers, SMALL_ANSWER_BYTES, answer_weight};
use super::api::Lane;
use super::frame::{self, Ack, Frame, FrameHead, Headroom, Out, OutMark, ReplyTo};
use super::messages::Messages;
use super::silence::{AckWait, AppendSent, GivenBytes, Silent, note_given};
use super::traffic::{BULK, CALLS, Lanes, PeerTraffic, UNTOLD_PART, index};
use crate::command::publication::Publication;
use crate::log::partition_log::Logged;
use crate::mutant::{self, broken};
use crate::value::outcome::Outcome;
use crate::wire::lateness::{Lateness, Reported};
use crate::wire::pressure::{Pressure, Supply};
use crate::wire::visit::Visit;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{Epoch, MemberId, PartitionRef};
use litemap::LiteMap;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Bytes of calls for one peer in one pass. Above it, the peer is crowded until they were taken.
pub(crate) const CROWDED_BYTES: usize = 8 << 20;
/// If more bytes than this are on their way to one peer, no further parts of snapshots are sent to
/// it. Parts are as large as values, and many partitions are copied at a time.
pub(crate) const COPY_AHEAD_MAX: u64 = 32 << 20;
/// Further entries are added to a frame of log entries only up to this length.
const APPEND_BYTES_MAX: usize = 32 << 10;
/// One client may be owed this part of what a peer may be owed in large answers. All clients
/// together may be owed as much as one peer.
const OWED_CLIENT_PART: usize = 4;

/// The longest datagram, which fits into any packet.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 1_000;
/// Clocks of one datagram: each takes 30 bytes at most.
const CLOCKS_MAX: usize = 32;

/// One peer on the data network.
#[derive(Debug, Default)]
pub(crate) struct PeerState {
    /// Whether it is connected.
    pub(crate) up: bool,
    /// The wire version of the connection.
    pub(crate) version: u16,
    /// Refused attempts, for each partition. The later calls of such an attempt are refused
    /// silently.
    pub(crate) refused: BTreeMap<PartitionRef, u32>,
    /// Acks to send at the end of the batch.
    pub(crate) acks: Vec<Ack>,
    /// Bytes to it and from it.
    pub(crate) traffic: PeerTraffic,
    /// Its memory, and the copies that it takes.
    supply: Supply,
    /// Frames of each lane that were taken and not handled yet.
    batches: [VecDeque<Frame>; 2],
    out: [Out; 2],
    /// The frame of log entries at the end of the buffer of calls, which may get more entries.
    last_append: Option<LastAppend>,
    queued: [bool; 2],
    /// Only between a member and a client.
    pub(crate) visit: Visit,
    /// The shell says that too many bytes wait for it.
    congested: bool,
    /// Something was held back until it is not crowded any more.
    held_back: bool,
    /// Whether the logs of learners had the first turn when it last had room again.
    learners_turn: bool,
    /// Answers to its operations.
    answers: HeldAnswers,
    /// Clocks of partitions that it gets in the next datagrams.
    clocks: Vec<(PartitionRef, Epoch, u64)>,
    /// The last stamp of its callers that wait here.
    pub(crate) stamp: u64,
    /// How late its thread is, as it reports that.
    late: Reported,
    /// Messages of publishers, if it has subscribers.
    messages: Messages,
}

/// A frame of log entries: where it begins, and what the next entry must be to be added.
#[derive(Debug)]
struct LastAppend {
    start: OutMark,
    at: PartitionRef,
    epoch: Epoch,
    session: u32,
    next: u64,
}

impl PeerState {
    /// Frames of a lane that were taken and not handled yet.
    pub(crate) fn batch(&mut self, lane: Lane) -> &mut VecDeque<Frame> {
        &mut self.batches[index(lane)]
    }

    /// Bytes of a lane that were given to it.
    fn given(&self, lane: usize) -> u64 {
        self.traffic.sent[lane] + self.out[lane].len() as u64
    }

    /// Bytes of a lane that were given to it and that it has not reported as received.
    fn ahead(&self, lane: usize) -> u64 {
        self.given(lane).saturating_sub(self.traffic.said[lane])
    }

    /// The same for both lanes together.
    fn under_way(&self) -> u64 {
        self.ahead(CALLS) + self.ahead(BULK)
    }

    fn crowded(&self) -> bool {
        self.congested || self.out[CALLS].len() >= CROWDED_BYTES || self.is_behind()
    }

    /// Whether more is on its way to it than clients should wait for.
    fn is_behind(&self) -> bool {
        self.traffic
            .ahead_most()
            .is_some_and(|most| self.ahead(CALLS) >= most)
            && !broken(&mutant::SENDS_ALL_AT_ONCE)
    }

    /// `own`: how late this thread has been, in total.
    fn given_now(&self, own: Duration) -> GivenBytes {
        GivenBytes {
            bytes: self.given(CALLS),
            ahead: self.ahead(CALLS),
            back: self.traffic.arrived()[CALLS],
            arrived: None,
            late: own + self.late.total(),
        }
    }
}

/// All peers, and which of their buffers have data.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: LiteMap<MemberId, PeerState>,
    ready: VecDeque<(MemberId, Lane)>,
    /// The peer whose turn it is, in pieces.
    pieces: VecDeque<(MemberId, Lane, Bytes)>,
    /// Most bytes of larger answers that one peer has asked for and that are not on their way.
    /// Beyond it, a call is refused before it is executed, unless it is the only one.
    owed_max: usize,
    /// Bytes that all clients are owed.
    owed_clients: usize,
    /// Peers that did not acknowledge in time, and have acknowledged nothing since: other
    /// partitions need not wait for them as long again.
    pub(crate) silent: Silent,
    /// Peers for which data was held back, and which have taken bytes since.
    relieved: Vec<MemberId>,
    /// Peers that get clocks.
    clocked: Vec<MemberId>,
    /// Peers that get reports of how late this thread is.
    told_lateness: Vec<MemberId>,
    /// How late this thread is.
    late: Lateness,
    /// Whether missing copies are made from here or here.
    repairing: bool,
}

/// A frame that travels by itself.
fn datagram(frame: &Frame) -> Bytes {
    let mut out = Out::default();
    frame.put(&mut out);
    out.take().flatten().collect()
}

impl Peers {
    /// No peers yet. Each of them may be owed `owed_max` bytes of large answers.
    pub(crate) fn new(owed_max: usize) -> Self {
        Self {
            owed_max,
            ..Self::default()
        }
    }

    /// A partition does not exist any more: its refused attempts are forgotten.
    pub(crate) fn forget_refused(&mut self, at: PartitionRef) {
        self.all
            .iter_mut()
            .for_each(|(_, peer)| _ = peer.refused.remove(&at));
    }

    /// A connection of this version begins: nothing is in flight. If the peer reports arrived
    /// bytes, it is crowded when `ahead_max` bytes of calls are on their way.
    pub(crate) fn connect(
        &mut self,
        (id, version): (MemberId, u16),
        ahead_max: Option<u64>,
        now: Time,
    ) {
        self.disconnect(id);
        self.all.insert(
            id,
            PeerState {
                up: true,
                version,
                traffic: PeerTraffic::new(ahead_max, self.repairing, now),
                late: Reported::new(now, &self.late),
                ..PeerState::default()
            },
        );
    }

    /// A connection is gone, with everything on it.
    pub(crate) fn disconnect(&mut self, id: MemberId) {
        if let Some(gone) = self.all.remove(&id).filter(|_| id.is_client()) {
            self.owed_clients = self.owed_clients.saturating_sub(gone.answers.owed);
        }
        self.ready.retain(|(peer, _)| *peer != id);
        self.pieces.retain(|(peer, ..)| *peer != id);
    }

    /// Whether a peer is connected.
    pub(crate) fn up(&self, id: MemberId) -> bool {
        self.all.get(&id).is_some_and(|p| p.up)
    }

    /// When one of these peers last sent anything. `None`: none of them is even connected.
    pub(crate) fn heard_last(&self, members: impl Fn(MemberId) -> bool) -> Option<Time> {
        self.all
            .iter()
            .filter(|(id, peer)| peer.up && members(id.member()))
            .map(|(_, peer)| peer.traffic.heard)
            .max()
    }

    /// For how long a copy at this peer could have acknowledged something. Time in which this
    /// thread or the peer's got no core does not count, up to a limit: otherwise a peer that is
    /// always late, or refuses all that arrives, would hold up writes for ever.
    pub(crate) fn silence(&self, id: MemberId, wait: &mut AckWait, now: Time) -> Duration {
        let peer = self.all.get(&id).filter(|p| p.up);
        let late = self.late.total() + peer.map_or(Duration::ZERO, |peer| peer.late.total());
        wait.silence(now, peer.map(|peer| &peer.traffic), late)
    }

    /// Timers are looked at. `due`: when the first of them was due. If this thread was late, its
    /// peers get a report.
    pub(crate) fn look_at_lateness(&mut self, me: MemberId, due: Option<Time>, now: Time) {
        // A client has no copies, and members take no such frame from it.
        if self.late.looked(due, now) && !me.is_client() {
            let told = self.all.keys();
            let told = told.filter(|id| !id.is_client() && id.member() != me.member());
            self.told_lateness = told.copied().collect();
        }
    }

    /// A peer says how late its thread has been since they connected.
    pub(crate) fn note_lateness(&mut self, id: MemberId, ms: u32, now: Time) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.late.says(Duration::from_millis(ms.into()), now);
        }
    }

    /// A copy at this peer was given something: its ack is awaited, if it is not already.
    pub(crate) fn note_given(&self, id: MemberId, wait: &mut Option<AckWait>, now: Time) {
        match self.all.get(&id) {
            Some(peer) => note_given(wait, peer.given_now(self.late.total()), now),
            None => _ = wait.get_or_insert(AckWait::for_room(now)),
        }
    }

    /// Whether a peer takes its bytes slower than they come, so that data that can wait must wait.
    /// Once it has room, `relieved` names it.
    pub(crate) fn hold_back(&mut self, id: MemberId) -> bool {
        let Some(peer) = self.all.get_mut(&id) else {
            return false;
        };
        let crowded = peer.crowded();
        peer.held_back |= crowded;
        crowded
    }

    /// A connected peer.
    pub(crate) fn get(&mut self, id: MemberId) -> Option<&mut PeerState> {
        self.all.get_mut(&id)
    }

    /// Whether any of them is a client.
    pub(crate) fn has_clients(&self) -> bool {
        self.all.keys().any(|id| id.is_client())
    }

    /// The connected peers.
    pub(crate) fn ids(&self) -> Vec<MemberId> {
        self.all.keys().copied().collect()
    }

    /// The buffer of a lane. `None` if the peer is not connected; then nothing is sent.
    pub(crate) fn out(&mut self, id: MemberId, lane: Lane) -> Option<&mut Out> {
        let peer = self.all.get_mut(&id)?;
        if !std::mem::replace(&mut peer.queued[index(lane)], true) {
            self.ready.push_back((id, lane));
        }
        if lane == Lane::Calls {
            peer.last_append = None;
        }
        Some(&mut peer.out[index(lane)])
    }

    /// The buffer for data that could wait elsewhere. `None` if the peer is not connected or is
    /// crowded. Once it has room, `relieved` names it.
    pub(crate) fn room(&mut self, id: MemberId) -> Option<&mut Out> {
        let peer = self.all.get_mut(&id)?;
        if peer.crowded() {
            peer.held_back = true;
            return None;
        }
        if !std::mem::replace(&mut peer.queued[index(Lane::Calls)], true) {
            self.ready.push_back((id, Lane::Calls));
        }
        peer.last_append = None;
        Some(&mut peer.out[index(Lane::Calls)])
    }

    /// Sends one log entry: in the frame of the entry before it if that is the last one in the
    /// buffer, otherwise in a frame of its own with this head. `None` if there is no `room`.
    pub(crate) fn append(
        &mut self,
        id: MemberId,
        head: &FrameHead,
        entry: &Logged,
    ) -> Option<AppendSent> {
        if let Some(peer) = self.all.get_mut(&id)
            && let Some(last) = &mut peer.last_append
            && (last.at, last.epoch, last.session, last.next)
                == (head.at, head.epoch, head.session, head.first)
        {
            let out = &mut peer.out[index(Lane::Calls)];
            if out.len_from(last.start) + entry.effect.bytes() <= APPEND_BYTES_MAX {
                frame::append_more(out, last.start, entry);
                last.next += 1;
                return Some(AppendSent {
                    head: false,
                    given: peer.given_now(self.late.total()),
                });
            }
        }
        let out = self.room(id)?;
        let start = out.mark();
        frame::append(out, head, std::iter::once(entry));
        let FrameHead {
            at,
            epoch,
            session,
            first,
            ..
        } = *head;
        let peer = self.all.get_mut(&id)?;
        peer.last_append = Some(LastAppend {
            start,
            at,
            epoch,
            session,
            next: first + 1,
        });
        Some(AppendSent {
            head: true,
            given: peer.given_now(self.late.total()),
        })
    }

    /// Whether a peer takes its bytes slower than they come.
    pub(crate) fn crowded(&self, id: MemberId) -> bool {
        self.all.get(&id).is_some_and(PeerState::crowded)
    }

    /// The shell says whether too many bytes wait for a peer.
    pub(crate) fn set_congested(&mut self, id: MemberId, congested: bool) {
        let Some(peer) = self.all.get_mut(&id) else {
            return;
        };
        peer.congested = congested;
        if !congested && std::mem::take(&mut peer.held_back) {
            self.relieved.push(id);
        }
    }

    /// The next peer for which data was held back and that has room again.
    pub(crate) fn relieved(&mut self) -> Option<MemberId> {
        loop {
            let id = self.relieved.pop()?;
            let Some(peer) = self.all.get_mut(&id) else {
                continue;
            };
            if !peer.crowded() {
                return Some(id);
            }
            peer.held_back = true;
        }
    }

    /// A peer has room again: whether it is the turn of the logs of learners, every other time.
    pub(crate) fn is_learners_turn(&mut self, id: MemberId) -> bool {
        self.all.get_mut(&id).is_some_and(|peer| {
            peer.learners_turn = !peer.learners_turn;
            peer.learners_turn
        })
    }

    /// A peer whose callers wait here sends a stamp. Answers to operations that are executed from
    /// now on name it, so the peer knows that they were not executed before it sent that.
    pub(crate) fn stamp(&mut self, id: MemberId, stamp: u64) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.stamp = peer.stamp.max(stamp);
        }
    }

    /// Whether a peer may ask for an answer of this size now.
    pub(crate) fn may_owe(&self, id: MemberId, bytes: usize) -> bool {
        let fits = |owed: usize| {
            if id.is_client() {
                owed + bytes <= self.owed_max / OWED_CLIENT_PART
                    && self.owed_clients + bytes <= self.owed_max
            } else {
                owed + bytes <= self.owed_max
            }
        };
        bytes <= SMALL_ANSWER_BYTES
            || self
                .all
                .get(&id)
                .is_none_or(|p| p.answers.owed == 0 || fits(p.answers.owed))
    }

    /// A peer's operation was executed. This is what it will be answered.
    pub(crate) fn owe(&mut self, id: MemberId, outcome: &Outcome) {
        let weight = answer_weight(outcome);
        if weight > 0
            && let Some(peer) = self.all.get_mut(&id)
        {
            peer.answers.owed += weight;
            self.owed_clients += if id.is_client() { weight } else { 0 };
        }
    }

    /// The answer will not be sent after all.
    pub(crate) fn disown(&mut self, id: MemberId, outcome: &Outcome) {
        self.pay(id, answer_weight(outcome));
    }

    /// A peer is owed `weight` less.
    fn pay(&mut self, id: MemberId, weight: usize) {
        let Some(peer) = self.all.get_mut(&id).filter(|_| weight > 0) else {
            return;
        };
        peer.answers.owed = peer.answers.owed.saturating_sub(weight);
        if id.is_client() {
            self.owed_clients = self.owed_clients.saturating_sub(weight);
        }
    }

    /// Answers a peer's operation for which it is owed this: now, or once it has room.
    pub(crate) fn answer(&mut self, id: MemberId, at: PartitionRef, to: ReplyTo, outcome: Outcome) {
        let weight = answer_weight(&outcome);
        let Some(peer) = self.all.get_mut(&id) else {
            return;
        };
        if weight > 0 && (peer.crowded() || !peer.answers.is_empty()) {
            peer.held_back = true;
            return peer.answers.keep(at, to, outcome);
        }
        self.pay(id, weight);
        if let Some(out) = self.out(id, Lane::Calls) {
            frame::reply(out, at, to, &outcome);
        }
    }

    /// Sends at most `most` answers that were held back, while there is room.
    pub(crate) fn answer_more(&mut self, id: MemberId, most: usize) {
        for _ in 0..most {
            let Some(peer) = self.all.get_mut(&id) else {
                return;
            };
            if peer.answers.is_empty() {
                return;
            }
            if peer.crowded() {
                peer.held_back = true;
                return;
            }
            let Some((at, to, outcome)) = peer.answers.next() else {
                return;
            };
            self.pay(id, answer_weight(&outcome));
            if let Some(out) = self.out(id, Lane::Calls) {
                frame::reply(out, at, to, &outcome);
            }
        }
    }

    /// The peer has subscribers, or has none any more.
    pub(crate) fn set_wants(&mut self, id: MemberId, wants: bool) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.messages.want(wants);
        }
    }

    /// The peers that have subscribers.
    pub(crate) fn wanting(&self) -> impl Iterator<Item = MemberId> + '_ {
        let wanting = self.all.iter().filter(|(_, peer)| peer.messages.wants);
        wanting.map(|(id, _)| *id)
    }

    /// Sends a message to all peers with subscribers, or keeps it until there is room. Returns to
    /// how many it goes, and how many lack it because too much waits for them.
    pub(crate) fn publish(&mut self, publication: &Publication) -> (usize, u64) {
        let (mut told, mut dropped) = (0, 0);
        for (id, peer) in self.all.iter_mut().filter(|(_, peer)| peer.messages.wants) {
            if !peer.messages.is_empty() || peer.crowded() {
                peer.held_back = true;
                if !peer.messages.keep(publication) {
                    dropped += 1;
                    continue;
                }
            } else {
                peer.last_append = None;
                frame::publish(&mut peer.out[CALLS], publication);
                if !std::mem::replace(&mut peer.queued[CALLS], true) {
                    self.ready.push_back((*id, Lane::Calls));
                }
            }
            told += 1;
        }
        (told, dropped)
    }

    /// Sends messages that were kept, while there is room.
    pub(crate) fn publish_more(&mut self, id: MemberId) {
        while let Some(peer) = self.all.get_mut(&id).filter(|p| !p.messages.is_empty()) {
            if peer.crowded() {
                peer.held_back = true;
                return;
            }
            let Some(next) = peer.messages.next() else {
                return;
            };
            if let Some(out) = self.out(id, Lane::Calls) {
                frame::publish(out, &next);
            }
        }
    }

    /// Tells a peer the clock of a partition, apart from all other data. False: it must be told in
    /// another way.
    pub(crate) fn tell_clock(&mut self, id: MemberId, clock: (PartitionRef, Epoch, u64)) -> bool {
        let Some(peer) = self.all.get_mut(&id) else {
            return false;
        };
        let tells = !broken(&mutant::CLOCKS_BEHIND_DATA);
        if tells {
            if peer.clocks.is_empty() {
                self.clocked.push(id);
            }
            peer.clocks.push(clock);
        }
        tells
    }

    /// The next datagram: lateness, then clocks.
    pub(crate) fn next_datagram(&mut self) -> Option<(MemberId, Bytes)> {
        while let Some(id) = self.told_lateness.pop() {
            if let Some(peer) = self.all.get(&id) {
                let ms = peer.late.to_tell(&self.late);
                return Some((id, datagram(&Frame::Late { ms })));
            }
        }
        loop {
            let id = *self.clocked.last()?;
            let clocks = self.all.get_mut(&id).map(|peer| &mut peer.clocks);
            let Some(clocks) = clocks.filter(|clocks| !clocks.is_empty()) else {
                self.clocked.pop();
                continue;
            };
            let first = clocks.len().saturating_sub(CLOCKS_MAX);
            let clocks = clocks.split_off(first);
            return Some((id, datagram(&Frame::Clocks { clocks })));
        }
    }

    /// Sends a frame in order with calls, if the peer is connected.
    pub(crate) fn tell(&mut self, id: MemberId, frame: &Frame) {
        self.send(id, Lane::Calls, frame);
    }

    /// Sends a frame, if the peer is connected.
    pub(crate) fn send(&mut self, id: MemberId, lane: Lane, frame: &Frame) {
        if let Some(out) = self.out(id, lane) {
            frame.put(out);
        }
    }

    /// The next bytes to send.
    pub(crate) fn next(&mut self) -> Option<(MemberId, Lane, Bytes)> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(piece);
            }
            let (id, lane) = self.ready.pop_front()?;
            let Some(peer) = self.all.get_mut(&id) else {
                continue;
            };
            peer.queued[index(lane)] = false;
            if lane == Lane::Calls {
                peer.last_append = None;
            }
            let out = &mut peer.out[index(lane)];
            if out.len() > 0 {
                if lane == Lane::Calls && std::mem::take(&mut peer.held_back) {
                    self.relieved.push(id);
                }
                peer.traffic.sent[index(lane)] += out.len() as u64;
                self.pieces
                    .extend(out.take().map(|piece| (id, lane, piece)));
            }
        }
    }

    /// Whether missing copies are made from here or here.
    pub(crate) fn set_repairing(&mut self, repairing: bool) {
        if std::mem::replace(&mut self.repairing, repairing) != repairing {
            self.all
                .iter_mut()
                .for_each(|(_, peer)| peer.traffic.repairing = repairing);
        }
    }

    /// Bytes of calls that a peer was given since it connected.
    pub(crate) fn given_calls(&self, id: MemberId) -> u64 {
        self.all.get(&id).map_or(0, |peer| peer.given(CALLS))
    }

    /// Whether `given` bytes of calls have arrived at a peer, as far as it reports them.
    pub(crate) fn has_taken(&self, id: MemberId, given: u64) -> bool {
        self.all.get(&id).is_none_or(|peer| {
            let untold = peer.traffic.ahead_max.unwrap_or(u64::MAX) / UNTOLD_PART;
            peer.traffic.said[CALLS].saturating_add(untold) >= given
        })
    }

    /// How many bytes of calls a peer takes in this time. 0 if that is unknown.
    pub(crate) fn takes_within(&self, id: MemberId, time: Duration) -> u64 {
        let rate = self.all.get(&id).and_then(|peer| peer.traffic.rate());
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        rate.unwrap_or_default().saturating_mul(millis) / 1000
    }

    /// Whether snapshots must wait because of the bytes that are on their way to a peer. Peers
    /// report arrived bytes with their memory (`Context::tell_headroom`).
    pub(crate) fn copies_wait(&self, id: MemberId) -> bool {
        self.all
            .get(&id)
            .is_some_and(|p| p.under_way() >= COPY_AHEAD_MAX)
    }

    /// The peer accepts no copies before this time.
    pub(crate) fn put_copies_off(&mut self, id: MemberId, until: Time) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.supply.copies_at = until;
        }
    }

    /// Whether the peer accepts copies now, as far as it said.
    pub(crate) fn takes_copies(&self, id: MemberId, now: Time) -> bool {
        self.all.get(&id).is_none_or(|p| p.supply.copies_at <= now)
    }

    /// A part of a snapshot has arrived at the peer.
    pub(crate) fn note_copied(&mut self, id: MemberId, now: Time) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.supply.copied = now;
        }
    }

    /// When a part of any snapshot last arrived at the peer.
    pub(crate) fn copied_at(&self, id: MemberId) -> Time {
        self.all.get(&id).map_or(Time::ZERO, |p| p.supply.copied)
    }

    /// A peer's report of its memory and of arrived bytes. A report may be late, so one of fewer
    /// bytes than before is ignored.
    pub(crate) fn set_headroom(
        &mut self,
        id: MemberId,
        headroom: Headroom,
        arrived: Lanes,
        now: Time,
    ) {
        let Some(peer) = self.all.get_mut(&id) else {
            return;
        };
        peer.supply.says(headroom);
        let waiting = peer.out[CALLS].len() as u64;
        peer.traffic.says(arrived, waiting, now);
        if peer.held_back && !peer.crowded() {
            peer.held_back = false;
            self.relieved.push(id);
        }
    }

    /// How much memory a peer will have left when everything in flight has arrived. `None` before
    /// its first report.
    pub(crate) fn headroom(&self, id: MemberId) -> Option<Headroom> {
        let peer = self.all.get(&id)?;
        let said = peer.supply.headroom?;
        Some(Headroom {
            left: said.left.saturating_sub(peer.under_way()),
            ..said
        })
    }

    /// A peer's last report of its memory, and how many bytes are on their way to it. A peer
    /// without a report counts as having plenty.
    pub(crate) fn said(&self, id: MemberId) -> (Headroom, u64) {
        self.all
            .get(&id)
            .and_then(|p| Some((p.supply.headroom?, p.under_way())))
            .unwrap_or((Headroom::PLENTY, 0))
    }

    /// Checks which peers are full, by their reports since the last check, and where writes wait
    /// for room. `shares` threads share the work there.
    pub(crate) fn look_at_memory(&mut self, shares: u64, pressed: bool) {
        for (_, peer) in self.all.iter_mut() {
            peer.supply.look(shares, pressed);
        }
    }

    /// Writes wait for `bytes` at a peer.
    pub(crate) fn lack(&mut self, id: MemberId, bytes: u64) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.supply.pressure.lack(bytes);
        }
    }

    /// This node leads keys that could be evicted for a peer.
    pub(crate) fn bears(&mut self, id: MemberId) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.supply.pressure.bears();
        }
    }

    /// This node has looked at all keys that it leads.
    pub(crate) fn end_survey(&mut self, now: Time) {
        for (_, peer) in self.all.iter_mut() {
            peer.supply.pressure.end_survey(now);
        }
    }

    /// It is not known any more whether this node leads such keys.
    pub(crate) fn forget_survey(&mut self) {
        for (_, peer) in self.all.iter_mut() {
            peer.supply.pressure.forget_survey();
        }
    }

    /// How full a peer was at the last check.
    pub(crate) fn pressure(&self, id: MemberId) -> Pressure {
        self.all
            .get(&id)
            .map_or(Pressure::NONE, |p| p.supply.pressure)
    }

    /// Bytes that must be evicted for a peer.
    pub(crate) fn excess(&self, id: MemberId) -> u64 {
        self.all.get(&id).map_or(0, |p| p.supply.pressure.excess())
    }

    /// Whether anything must be evicted for any peer.
    pub(crate) fn has_excess(&self) -> bool {
        self.all.values().any(|p| p.supply.pressure.excess() > 0)
    }

    /// `bytes` were evicted.
    pub(crate) fn relieve(&mut self, id: MemberId, bytes: usize) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.supply.pressure.relieve(bytes);
        }
    }
}
