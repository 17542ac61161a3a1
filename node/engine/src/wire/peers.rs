//! Buffers of bytes for peers, one for each lane, and the state of each peer.
//!
//! A peer that takes its bytes slower than they come is *crowded*. Then data that can wait stays
//! where that costs nothing: log entries in the log, calls parked, and large answers shared with
//! the store. Acks, refusals and small answers are always sent, because they are small and others
//! wait for them. A node never stops reading a peer, so two crowded nodes cannot wait for each
//! other.

use super::api::Lane;
use super::frame::{self, Ack, Frame, Head, Headroom, Mark, Out};
use crate::command::publication::Publication;
use crate::log::partition_log::Logged;
use crate::mutant::{self, broken};
use crate::value::outcome::Outcome;
use crate::wire::lateness::{Lateness, Reported};
use crate::wire::pressure::Pressure;
use crate::wire::visit::Visit;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::level::{CLOCKS, LATENESS};
use doyen_placement::{Epoch, MemberId, PartitionRef};
use litemap::LiteMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes of messages that wait for one peer. Later ones are dropped.
pub(crate) const HELD_BYTES_MAX: usize = 8 << 20;
/// Bytes of calls for one peer in one pass. Above it, the peer is crowded until they were taken.
pub(crate) const CROWDED_BYTES: usize = 8 << 20;
/// A link that carries less than this, in bytes a second, is too slow for a copy: writes would wait
/// for it until their callers give up.
const RATE_LEAST: u64 = 512 << 10;
/// An ack may be behind so many parts of the bytes that may be on their way to a peer, because the
/// peer sends much, too.
const BACK_PARTS: u64 = 4;
/// If more bytes than this are on their way to one peer, no further parts of snapshots are sent to
/// it. Parts are as large as values, and many partitions are copied at a time.
pub(crate) const COPY_AHEAD_MAX: u64 = 32 << 20;
/// Further entries are added to a frame of log entries only up to this length.
const APPEND_BYTES_MAX: usize = 32 << 10;
/// Answers up to this size never wait: there are at most `waiting_max` of them.
pub(crate) const SMALL_ANSWER_BYTES: usize = 1 << 10;
/// One client may be owed this part of what a peer may be owed in large answers. All clients
/// together may be owed as much as one peer.
const OWED_CLIENT_PART: usize = 4;

/// What an answer to a peer weighs: 0 if it never waits.
pub(crate) fn answer_weight(outcome: &Outcome) -> usize {
    let bytes = outcome.bytes();
    if bytes > SMALL_ANSWER_BYTES { bytes } else { 0 }
}

/// A peer reports arrived bytes each time that this part of the allowed bytes under way has arrived
/// (256 KiB).
const TOLD_PART: u64 = 32;
/// At each check, a peer reports arrived bytes if they exceed this part (64 KiB). Less may never be
/// reported.
const UNTOLD_PART: u64 = 128;

/// The longest datagram, which fits into any packet.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 1_000;
/// Clocks of one datagram: each takes 30 bytes at most.
const CLOCKS_MAX: usize = 32;
/// A copy that has acknowledged nothing of what has arrived there for this long is silent, however
/// late threads are.
const LATE_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Bytes of each lane.
pub(crate) type Lanes = [u64; 2];

/// What a copy has not acknowledged: since when, and since when it could have.
///
/// A copy is silent only if it could acknowledge and does not. Its entries may be behind megabytes
/// that its peer was sent earlier, also for other partitions, and its ack behind megabytes that the
/// peer sends. While bytes flow, the copy is slow and not silent. Once nothing arrives in either
/// direction, or less than `RATE_LEAST`, it is silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// When the wait began, or when the copy last acknowledged something.
    since: Time,
    /// What it was given. `None`: the missing entries are still in the log, or are about to be sent
    /// again.
    given: Option<Given>,
    /// The missing entries were sent before.
    again: bool,
    /// When all that it had been given had first arrived.
    arrived: Option<Time>,
    /// How late this thread and the copy's had been when the wait began, in total. `None`: that is
    /// taken at the first look.
    late: Option<Duration>,
}

/// The bytes of calls that a peer had been given when the last unacknowledged entry was sent.
#[derive(Debug, Clone, Copy)]
struct Given {
    bytes: u64,
    /// How many of these were on their way then.
    ahead: u64,
    /// Bytes that had come from the peer by then, or by the time when all of those had arrived
    /// there.
    back: u64,
    /// When all of them had arrived.
    arrived: Option<Time>,
    /// How late both threads had been by then, in total.
    late: Duration,
}

impl Wait {
    /// A wait for entries that it was not given yet.
    pub(crate) const fn for_room(since: Time) -> Self {
        Self {
            since,
            given: None,
            again: false,
            arrived: None,
            late: None,
        }
    }

    /// The missing entries are sent once more, on this connection or another one. That does not
    /// change when the copy counts as silent.
    pub(crate) fn again(self) -> Self {
        let arrived = self.given.and_then(|given| given.arrived);
        Self {
            since: arrived.map_or(self.since, |arrived| arrived.max(self.since)),
            given: None,
            again: true,
            ..self
        }
    }

    /// For how long it could have acknowledged something. `peer` is `None` if it is not connected.
    fn silence(&mut self, now: Time, peer: Option<&Peer>) -> Duration {
        let Some(peer) = peer.filter(|_| !broken(&mutant::SLOW_IS_SILENT)) else {
            return now.since(self.since);
        };
        let flowed = peer.progressed.max(peer.heard);
        let Some(given) = &mut self.given else {
            return now.since(self.since.max(flowed));
        };
        let most = peer.ahead_max.unwrap_or_default();
        let came = peer.arrived()[CALLS];
        if given.arrived.is_none()
            && peer.said[CALLS].saturating_add(most / UNTOLD_PART) >= given.bytes
        {
            given.arrived = Some(now);
            given.back = came;
            self.arrived.get_or_insert(now);
        }
        let (since, ahead) = match given.arrived {
            Some(arrived) => (arrived.max(self.since), 0),
            None => (self.since, given.ahead),
        };
        let back = came
            .saturating_sub(given.back)
            .min(most.saturating_mul(BACK_PARTS));
        let takes = Duration::from_millis((ahead + back).saturating_mul(1000) / RATE_LEAST);
        now.since(since.max(flowed))
            .max(now.since(since).saturating_sub(takes))
    }

    /// For how long everything that it was given has been there, as of the last check. A peer
    /// reports arrived bytes in the frame of their acks. So entries that are not acknowledged then
    /// were refused, however much other data flows.
    pub(crate) fn arrived_for(&self, now: Time) -> Duration {
        let arrived = self.given.and_then(|given| given.arrived);
        arrived.map_or(Duration::ZERO, |arrived| now.since(arrived.max(self.since)))
    }
}

/// How fast a peer takes bytes while some are always on their way.
#[derive(Debug, Default, Clone, Copy)]
struct Flow {
    /// The arrived bytes and the time when the present sample began.
    from: Option<(u64, Time)>,
    /// Bytes a second, in the last sample.
    rate: Option<u64>,
}

/// The shortest sample.
const FLOW_SAMPLE: Duration = Duration::from_millis(100);
/// Even to a slow peer, this part of the allowed bytes may be on their way (256 KiB).
const AHEAD_PART: u64 = 32;
/// While a missing copy is made, only this part of what may otherwise be on its way is: each of the
/// few questions and answers between a source and its learner is behind that.
const REPAIR_AHEAD_PART: u64 = 8;

impl Flow {
    /// So many bytes have arrived by now.
    fn note(&mut self, arrived: u64, idle: bool, now: Time) {
        match self.from {
            Some((before, since)) if now.since(since) >= FLOW_SAMPLE => {
                let micros = u64::try_from(now.since(since).as_micros())
                    .unwrap_or(u64::MAX)
                    .max(1);
                self.rate = Some(arrived.saturating_sub(before).saturating_mul(1_000_000) / micros);
                self.from = (!idle).then_some((arrived, now));
            }
            // The peer could have taken more.
            _ if idle => self.from = None,
            Some(_) => {}
            None => self.from = Some((arrived, now)),
        }
    }

    /// How much may be on its way, so that the last byte arrives within a second, and sooner while
    /// a missing copy is made.
    fn ahead(&self, most: u64, repairing: bool) -> u64 {
        let part = if repairing { REPAIR_AHEAD_PART } else { 1 };
        let ahead = self.rate.map_or(most, |rate| rate.min(most)) / part;
        ahead.max(most / AHEAD_PART)
    }
}

/// The result of sending a log entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Whether the head was sent with it.
    pub(crate) head: bool,
    given: Given,
}

impl Sent {
    /// From now on, the ack of the copy is awaited, if it is not already.
    pub(crate) fn note(self, wait: &mut Option<Wait>, now: Time) {
        note_given(wait, self.given, now);
    }
}

/// A copy was given something: its ack is awaited from now on. An earlier wait is not changed.
fn note_given(wait: &mut Option<Wait>, given: Given, now: Time) {
    match wait {
        Some(Wait { given: Some(_), .. }) => {}
        Some(wait @ Wait { again: true, .. }) => {
            wait.given = Some(given);
            wait.again = false;
            wait.late.get_or_insert(given.late);
        }
        _ => {
            *wait = Some(Wait {
                given: Some(given),
                late: Some(given.late),
                ..Wait::for_room(now)
            })
        }
    }
}

/// One peer on the data network.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// Whether it is connected.
    pub(crate) up: bool,
    /// The wire version of the connection.
    pub(crate) version: u16,
    /// Refused attempts, for each partition. The later calls of such an attempt are refused
    /// silently.
    pub(crate) refused: BTreeMap<PartitionRef, u32>,
    /// Acks to send at the end of the batch.
    pub(crate) acks: Vec<Ack>,
    /// Bytes of whole frames received since it connected, and when the last ones came.
    pub(crate) received: Lanes,
    /// Bytes of frames that have arrived in part.
    pub(crate) partial: Lanes,
    pub(crate) heard: Time,
    /// The last report to it: this node's memory, and the received bytes.
    pub(crate) told: (Headroom, Lanes),
    /// Most bytes of calls on their way to it; from then on it is crowded. `None`: it does not
    /// report what has arrived.
    ahead_max: Option<u64>,
    /// How fast it takes bytes.
    flow: Flow,
    /// Whether missing copies are made from here or here.
    repairing: bool,
    /// Bytes given to it since it connected.
    sent: Lanes,
    /// How many of those it has reported as received.
    said: Lanes,
    /// When it last reported more than before.
    progressed: Time,
    /// The last report of its memory.
    headroom: Option<Headroom>,
    /// Whether that report has not been checked for eviction yet.
    says_anew: bool,
    /// How full it is, and how much must be evicted for it.
    pressure: Pressure,
    /// When a part of a snapshot last arrived there.
    copied: Time,
    /// When it accepts copies again, if it has put them off.
    copies_at: Time,
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
    /// Bytes of large answers to its executed operations, whether committed or not.
    owed: usize,
    /// Answers that may be sent once there is room.
    answers: VecDeque<(PartitionRef, (u64, u32), Outcome)>,
    /// Clocks of partitions that it is told in the next datagrams.
    clocks: Vec<(PartitionRef, Epoch, u64)>,
    /// How late its thread is, as it reports that.
    late: Reported,
    /// It has subscribers.
    wants: bool,
    /// Messages of publishers that are sent once there is room, and their bytes.
    published: VecDeque<Publication>,
    published_bytes: usize,
}

/// A frame of log entries: where it begins, and what the next entry must be to be added.
#[derive(Debug)]
struct LastAppend {
    start: Mark,
    at: PartitionRef,
    epoch: Epoch,
    session: u32,
    next: u64,
}

impl Peer {
    /// Frames of a lane that were taken and not handled yet.
    pub(crate) fn batch(&mut self, lane: Lane) -> &mut VecDeque<Frame> {
        &mut self.batches[index(lane)]
    }

    /// Bytes of a lane that were given to it.
    fn given(&self, lane: usize) -> u64 {
        self.sent[lane] + self.out[lane].len() as u64
    }

    /// Bytes of a lane that were given to it and that it has not reported as received.
    fn ahead(&self, lane: usize) -> u64 {
        self.given(lane).saturating_sub(self.said[lane])
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
        self.ahead_max
            .is_some_and(|most| self.ahead(CALLS) >= self.flow.ahead(most, self.repairing))
            && !broken(&mutant::SENDS_ALL_AT_ONCE)
    }

    /// Bytes of a lane that have arrived from it, in whole frames or not.
    pub(crate) fn arrived(&self) -> Lanes {
        [
            self.received[CALLS] + self.partial[CALLS],
            self.received[BULK] + self.partial[BULK],
        ]
    }

    /// Arrived bytes that were not reported to it.
    fn untold(&self) -> u64 {
        let (arrived, told) = (self.arrived(), self.told.1);
        arrived[CALLS].saturating_sub(told[CALLS]) + arrived[BULK].saturating_sub(told[BULK])
    }

    /// Whether these are so many that they are reported at once.
    pub(crate) fn is_told_at_once(&self) -> bool {
        self.ahead_max
            .is_some_and(|most| self.untold() > most / TOLD_PART)
    }

    /// Whether these are so many that they are reported at a check: more than `step`, or less if
    /// less may be on its way.
    pub(crate) fn is_told_at_look(&self, step: u64) -> bool {
        self.untold()
            > self
                .ahead_max
                .map_or(step, |most| step.min(most / UNTOLD_PART))
    }

    /// The report to it with these acks. Frames that have arrived in part will take memory, too.
    pub(crate) fn tell(&mut self, headroom: Headroom, acks: Vec<Ack>) -> Frame {
        let arrived = self.arrived();
        self.told = (headroom, arrived);
        let left = headroom.left.saturating_sub(self.partial.iter().sum());
        Frame::Acks {
            headroom: Headroom { left, ..headroom },
            arrived,
            acks,
        }
    }

    /// `own`: how late this thread has been, in total.
    fn given_now(&self, own: Duration) -> Given {
        Given {
            bytes: self.given(CALLS),
            ahead: self.ahead(CALLS),
            back: self.arrived()[CALLS],
            arrived: None,
            late: own + self.late.total(),
        }
    }
}

/// All peers, and which of their buffers have data.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: LiteMap<MemberId, Peer>,
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
    silent: BTreeSet<MemberId>,
    /// Peers for which data was held back, and which have taken bytes since.
    relieved: Vec<MemberId>,
    /// Peers that are told clocks.
    clocked: Vec<MemberId>,
    /// Peers that are told how late this thread is.
    told_lateness: Vec<MemberId>,
    /// How late this thread is.
    late: Lateness,
    /// Whether missing copies are made from here or here.
    repairing: bool,
}

const CALLS: usize = index(Lane::Calls);
const BULK: usize = index(Lane::Bulk);

/// The place of a lane in `Lanes`.
pub(crate) const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Calls => 0,
        Lane::Bulk => 1,
    }
}

/// A frame that travels by itself.
fn datagram(frame: &Frame) -> Bytes {
    let mut out = Out::default();
    frame.put(&mut out);
    out.take().flatten().collect()
}

impl Peers {
    /// No peers yet. Each of them may be owed so many bytes of large answers.
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
    /// bytes, it is crowded when so many bytes of calls are on their way.
    pub(crate) fn connect(
        &mut self,
        (id, version): (MemberId, u16),
        ahead_max: Option<u64>,
        now: Time,
    ) {
        self.disconnect(id);
        self.all.insert(
            id,
            Peer {
                up: true,
                version,
                ahead_max,
                repairing: self.repairing,
                progressed: now,
                late: Reported::new(now, &self.late),
                ..Peer::default()
            },
        );
    }

    /// A connection is gone, with everything on it.
    pub(crate) fn disconnect(&mut self, id: MemberId) {
        if let Some(gone) = self.all.remove(&id).filter(|_| id.is_client()) {
            self.owed_clients = self.owed_clients.saturating_sub(gone.owed);
        }
        self.ready.retain(|(peer, _)| *peer != id);
        self.pieces.retain(|(peer, ..)| *peer != id);
    }

    /// Whether a peer is connected.
    pub(crate) fn up(&self, id: MemberId) -> bool {
        self.all.get(&id).is_some_and(|p| p.up)
    }

    /// The wire version of the connection with a peer. 0: it is not connected.
    pub(crate) fn version(&self, id: MemberId) -> u16 {
        self.all.get(&id).map_or(0, |peer| peer.version)
    }

    /// When one of these peers last sent anything. `None`: none of them is even connected.
    pub(crate) fn heard_last(&self, members: impl Fn(MemberId) -> bool) -> Option<Time> {
        self.all
            .iter()
            .filter(|(id, peer)| peer.up && members(id.member()))
            .map(|(_, peer)| peer.heard)
            .max()
    }

    /// A copy at this peer did not acknowledge in time.
    pub(crate) fn note_silent(&mut self, id: MemberId) {
        self.silent.insert(id);
    }

    /// A copy at this peer acknowledges.
    pub(crate) fn note_heard(&mut self, id: MemberId) {
        if !self.silent.is_empty() {
            self.silent.remove(&id);
        }
    }

    /// Whether a copy at this peer did not acknowledge in time, and has acknowledged nothing since.
    pub(crate) fn is_silent(&self, id: MemberId) -> bool {
        self.silent.contains(&id)
    }

    /// For how long a copy at this peer could have acknowledged something. Time in which this
    /// thread or the peer's got no core does not count, up to a limit: otherwise a peer that is
    /// always late, or refuses all that arrives, would hold up writes for ever.
    pub(crate) fn silence(&self, id: MemberId, wait: &mut Wait, now: Time) -> Duration {
        let peer = self.all.get(&id).filter(|p| p.up);
        let silence = wait.silence(now, peer);
        let late = self.late.total() + peer.map_or(Duration::ZERO, |peer| peer.late.total());
        let before = *wait.late.get_or_insert(late);
        // What was refused is sent again and arrives again, so the first arrival counts.
        let unacknowledged = wait.arrived.map_or(Duration::ZERO, |at| now.since(at));
        let most = silence.max(unacknowledged);
        if most >= LATE_SILENCE_MAX && !broken(&mutant::BELIEVES_LATE_FOR_EVER) {
            return most;
        }
        silence.saturating_sub(late.saturating_sub(before))
    }

    /// Timers are looked at. `due`: when the first of them was due. If this thread was late, its
    /// peers are told.
    pub(crate) fn look_at_lateness(&mut self, me: MemberId, due: Option<Time>, now: Time) {
        // A client has no copies, and members take no such frame from it.
        if self.late.looked(due, now) && !me.is_client() {
            let told = self.all.iter().filter(|(id, peer)| {
                peer.version >= LATENESS && !id.is_client() && id.member() != me.member()
            });
            self.told_lateness = told.map(|(id, _)| *id).collect();
        }
    }

    /// A peer says how late its thread has been since they connected.
    pub(crate) fn note_lateness(&mut self, id: MemberId, ms: u32, now: Time) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.late.says(Duration::from_millis(ms.into()), now);
        }
    }

    /// A copy at this peer was given something: its ack is awaited, if it is not already.
    pub(crate) fn note_given(&self, id: MemberId, wait: &mut Option<Wait>, now: Time) {
        match self.all.get(&id) {
            Some(peer) => note_given(wait, peer.given_now(self.late.total()), now),
            None => _ = wait.get_or_insert(Wait::for_room(now)),
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

    /// Forgets silent peers that are no members.
    pub(crate) fn retain_silent(&mut self, member: impl Fn(MemberId) -> bool) {
        self.silent.retain(|id| member(*id));
    }

    /// A connected peer.
    pub(crate) fn get(&mut self, id: MemberId) -> Option<&mut Peer> {
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
    pub(crate) fn append(&mut self, id: MemberId, head: &Head, entry: &Logged) -> Option<Sent> {
        if let Some(peer) = self.all.get_mut(&id)
            && let Some(last) = &mut peer.last_append
            && (last.at, last.epoch, last.session, last.next)
                == (head.at, head.epoch, head.session, head.first)
        {
            let out = &mut peer.out[index(Lane::Calls)];
            if out.len_from(last.start) + entry.effect.bytes() <= APPEND_BYTES_MAX {
                frame::append_more(out, last.start, entry);
                last.next += 1;
                return Some(Sent {
                    head: false,
                    given: peer.given_now(self.late.total()),
                });
            }
        }
        let out = self.room(id)?;
        let start = out.mark();
        frame::append(out, head, std::iter::once(entry));
        let Head {
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
        Some(Sent {
            head: true,
            given: peer.given_now(self.late.total()),
        })
    }

    /// Whether a peer takes its bytes slower than they come.
    pub(crate) fn crowded(&self, id: MemberId) -> bool {
        self.all.get(&id).is_some_and(Peer::crowded)
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
                .is_none_or(|p| p.owed == 0 || fits(p.owed))
    }

    /// A peer's operation was executed. This is what it will be answered.
    pub(crate) fn owe(&mut self, id: MemberId, outcome: &Outcome) {
        let weight = answer_weight(outcome);
        if weight > 0
            && let Some(peer) = self.all.get_mut(&id)
        {
            peer.owed += weight;
            self.owed_clients += if id.is_client() { weight } else { 0 };
        }
    }

    /// The answer will not be sent after all.
    pub(crate) fn disown(&mut self, id: MemberId, outcome: &Outcome) {
        self.pay(id, answer_weight(outcome));
    }

    /// A peer is owed so much less.
    fn pay(&mut self, id: MemberId, weight: usize) {
        let Some(peer) = self.all.get_mut(&id).filter(|_| weight > 0) else {
            return;
        };
        peer.owed = peer.owed.saturating_sub(weight);
        if id.is_client() {
            self.owed_clients = self.owed_clients.saturating_sub(weight);
        }
    }

    /// Answers a peer's operation for which it is owed this: now, or once it has room.
    pub(crate) fn answer(
        &mut self,
        id: MemberId,
        at: PartitionRef,
        to: (u64, u32),
        outcome: Outcome,
    ) {
        let weight = answer_weight(&outcome);
        let Some(peer) = self.all.get_mut(&id) else {
            return;
        };
        if weight > 0 && (peer.crowded() || !peer.answers.is_empty()) {
            peer.held_back = true;
            return peer.answers.push_back((at, to, outcome));
        }
        self.pay(id, weight);
        if let Some(out) = self.out(id, Lane::Calls) {
            frame::reply(out, at, to, &outcome);
        }
    }

    /// Sends up to so many answers that were held back, while there is room.
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
            let Some((at, to, outcome)) = peer.answers.pop_front() else {
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
            peer.wants = wants;
            if !wants {
                peer.published.clear();
                peer.published_bytes = 0;
            }
        }
    }

    /// The peers that have subscribers.
    pub(crate) fn wanting(&self) -> impl Iterator<Item = MemberId> + '_ {
        let wanting = self.all.iter().filter(|(_, peer)| peer.wants);
        wanting.map(|(id, _)| *id)
    }

    /// Sends a message to all peers with subscribers, or keeps it until there is room. Returns to
    /// how many it goes, and how many lack it because too much waits for them.
    pub(crate) fn publish(&mut self, publication: &Publication) -> (usize, u64) {
        let (mut told, mut dropped) = (0, 0);
        for (id, peer) in self.all.iter_mut().filter(|(_, peer)| peer.wants) {
            let bytes = publication.bytes();
            if !peer.published.is_empty() || peer.crowded() {
                peer.held_back = true;
                if peer.published_bytes + bytes > HELD_BYTES_MAX && !peer.published.is_empty() {
                    dropped += 1;
                    continue;
                }
                peer.published_bytes += bytes;
                peer.published.push_back(publication.clone());
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
        while let Some(peer) = self.all.get_mut(&id).filter(|p| !p.published.is_empty()) {
            if peer.crowded() {
                peer.held_back = true;
                return;
            }
            let Some(next) = peer.published.pop_front() else {
                return;
            };
            peer.published_bytes -= next.bytes();
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
        let tells = peer.version >= CLOCKS && !broken(&mutant::CLOCKS_BEHIND_DATA);
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
                peer.sent[index(lane)] += out.len() as u64;
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
                .for_each(|(_, peer)| peer.repairing = repairing);
        }
    }

    /// Bytes of calls that a peer was given since it connected.
    pub(crate) fn given_calls(&self, id: MemberId) -> u64 {
        self.all.get(&id).map_or(0, |peer| peer.given(CALLS))
    }

    /// Whether so many bytes of calls have arrived at a peer, as far as it reports them.
    pub(crate) fn has_taken(&self, id: MemberId, given: u64) -> bool {
        self.all.get(&id).is_none_or(|peer| {
            let untold = peer.ahead_max.unwrap_or(u64::MAX) / UNTOLD_PART;
            peer.said[CALLS].saturating_add(untold) >= given
        })
    }

    /// How many bytes of calls a peer takes in this time. 0 if that is unknown.
    pub(crate) fn takes_within(&self, id: MemberId, time: Duration) -> u64 {
        let rate = self.all.get(&id).and_then(|peer| peer.flow.rate);
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        rate.unwrap_or_default().saturating_mul(millis) / 1000
    }

    /// Whether so much is on its way to a peer that snapshots must wait. Peers report arrived bytes
    /// with their memory (`Context::tell_headroom`).
    pub(crate) fn copies_wait(&self, id: MemberId) -> bool {
        self.all
            .get(&id)
            .is_some_and(|p| p.under_way() >= COPY_AHEAD_MAX)
    }

    /// The peer accepts no copies before this time.
    pub(crate) fn put_copies_off(&mut self, id: MemberId, until: Time) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.copies_at = until;
        }
    }

    /// Whether the peer accepts copies now, as far as it said.
    pub(crate) fn takes_copies(&self, id: MemberId, now: Time) -> bool {
        self.all.get(&id).is_none_or(|p| p.copies_at <= now)
    }

    /// A part of a snapshot has arrived at the peer.
    pub(crate) fn note_copied(&mut self, id: MemberId, now: Time) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.copied = now;
        }
    }

    /// When a part of any snapshot last arrived at the peer.
    pub(crate) fn copied_at(&self, id: MemberId) -> Time {
        self.all.get(&id).map_or(Time::ZERO, |p| p.copied)
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
        (peer.headroom, peer.says_anew) = (Some(headroom), true);
        // Bytes that were not sent cannot have arrived.
        let more = |lane: usize| arrived[lane].min(peer.sent[lane]).max(peer.said[lane]);
        let said = [more(CALLS), more(BULK)];
        if said[CALLS] > peer.said[CALLS] {
            peer.progressed = now;
        }
        peer.said = said;
        let idle = peer.ahead(CALLS) == 0;
        peer.flow.note(said[CALLS], idle, now);
        if peer.held_back && !peer.crowded() {
            peer.held_back = false;
            self.relieved.push(id);
        }
    }

    /// How much memory a peer will have left when everything in flight has arrived. `None` before
    /// its first report.
    pub(crate) fn headroom(&self, id: MemberId) -> Option<Headroom> {
        let peer = self.all.get(&id)?;
        let said = peer.headroom?;
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
            .and_then(|p| Some((p.headroom?, p.under_way())))
            .unwrap_or((Headroom::PLENTY, 0))
    }

    /// Checks which peers are full, by their reports since the last check, and where writes wait
    /// for room. So many threads share the work there.
    pub(crate) fn look_at_memory(&mut self, shares: u64, pressed: bool) {
        for (_, peer) in self.all.iter_mut() {
            if std::mem::take(&mut peer.says_anew) || peer.pressure.is_lacking() {
                let room = peer.headroom.unwrap_or(Headroom::PLENTY);
                peer.pressure.look(room, shares, pressed);
            }
        }
    }

    /// Writes wait for so many bytes at a peer.
    pub(crate) fn lack(&mut self, id: MemberId, bytes: u64) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.pressure.lack(bytes);
        }
    }

    /// This node leads keys that could be evicted for a peer.
    pub(crate) fn bears(&mut self, id: MemberId) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.pressure.bears();
        }
    }

    /// This node has looked at all keys that it leads.
    pub(crate) fn end_survey(&mut self, now: Time) {
        for (_, peer) in self.all.iter_mut() {
            peer.pressure.end_survey(now);
        }
    }

    /// It is not known any more whether this node leads such keys.
    pub(crate) fn forget_survey(&mut self) {
        for (_, peer) in self.all.iter_mut() {
            peer.pressure.forget_survey();
        }
    }

    /// How full a peer was at the last check.
    pub(crate) fn pressure(&self, id: MemberId) -> Pressure {
        self.all.get(&id).map_or(Pressure::NONE, |p| p.pressure)
    }

    /// Bytes that must be evicted for a peer.
    pub(crate) fn excess(&self, id: MemberId) -> u64 {
        self.all.get(&id).map_or(0, |p| p.pressure.excess())
    }

    /// Whether anything must be evicted for any peer.
    pub(crate) fn has_excess(&self) -> bool {
        self.all.values().any(|p| p.pressure.excess() > 0)
    }

    /// So many bytes were evicted.
    pub(crate) fn relieve(&mut self, id: MemberId, bytes: usize) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.pressure.relieve(bytes);
        }
    }
}
