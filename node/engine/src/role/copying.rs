//! Copies a partition to a learner: first a snapshot in the order of the index, with the log beside
//! it, then equal checksums at one sequence.
//!
//! ```text
//!   primary                                   learner
//!   Begin{session, seq} ───────────────────>  empties itself
//!   <────────────────────────────────── ack   log follows from seq + 1, on the lane of calls
//!   Chunk, Chunk, ... (bulk lane) ─────────>  takes what is newer than its own, remembers
//!                                             deletions, sums what it stored
//!   Outcomes, Finish{chunks, seq} ─────────>  complete once the log has reached seq; sums the rest
//!   <───────────────────────────── Finished
//!   Compare{seq, sum} (in order with the log) ──>  at exactly seq
//!   <────────────────────────────── Verdict
//!   its acks become required; then its admission is asked for
//! ```
//! If a learner has not heard of its table yet, it remembers Begin until then. If the connection is
//! lost during a snapshot, or another epoch of the same tenure begins, the snapshot goes on after
//! the last chunk that arrived:
//! ```text
//!   Continue{session, next} ───────────────>  has it begun this session? From then on the
//!                                             session is called `next`
//!   <────────── Arrived{chunks, seq}          log follows from seq + 1, chunks after those
//! ```
//! A copy that was in sync, was dropped and comes back in the same lineage needs no snapshot if the
//! log reaches back to what the copy knows to be committed:
//! ```text
//!   Begin{session, kept, seq} ─────────────>  committed at or after `kept`: it keeps what it has
//!   <─────────── Holds{session, committed}
//!   Align{entries after that} ─────────────>  undoes what differs, takes the rest, sums
//!                                             its own contents
//!   <──────────────────── ack, then Finished  and so on, as above
//! ```

mod brake;
mod learner;

use super::partition::Slot;
use super::replication::WINDOW;
use super::timers::Duty;
use crate::fault::{self, Point};
use crate::mutant::{self, broken};
use crate::role::copy_rate::CopyRate;
use crate::role::holding::Leading;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::store::prefetch::Ahead;
use crate::store::{Store, SumCursor};
use crate::value::entry::ENTRY_WORK;
use crate::wire::api::{Lane, ShardRequest};
use crate::wire::frame::{self, Frame, Headroom};
use doyen_gossip::Time;
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::loads::{CopyPhase, Progress};
use doyen_placement::planner;
use doyen_placement::{MemberId, PartitionRef};
pub(crate) use learner::{LateAck, LearnerOpening, Sink};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// This many snapshots of one learner may fail before it is given up.
const FAILURES_MAX: u32 = 3;
/// A learner without progress for this many times `copy_silent_max` is given up.
const SILENT_FACTOR: u32 = 8;
/// A learner that is not connected or has no room is given up after this many times that: others
/// wait for its place, or another member has room.
const UNREADY_FACTOR: u32 = 2;
/// If Begin is not confirmed, it is sent again after twice this, four times this, and so on.
const BEGIN_AGAIN: Duration = Duration::from_millis(200);
/// How often Begin is sent at most.
const BEGINS_MAX: u32 = 5;
/// A learner without room is asked again after this.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
/// How often it is asked. After that, other members may have room.
const REFUSALS_MAX: u32 = 4;
/// The longest that a learner may put off a copy because of its pace.
const PUT_OFF_MAX: Duration = Duration::from_secs(1);
/// Copies that are looked at in one go to begin in place of ended ones.
const BEGUN_MAX: usize = 256;
/// Keys summed in one slice.
pub(crate) const SLICE: usize = 4_000;
/// Entries of one chunk at most.
const CHUNK_ENTRIES: usize = 1_000;
/// The phase of a snapshot, at the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SnapshotPhase {
    /// It has not begun.
    Queued,
    /// Begin was sent.
    Begun,
    /// The copy was in sync before. The log after what it knows to be committed was sent.
    Resuming,
    /// Chunks are being sent.
    Chunks,
    /// The learner was asked how much of it has arrived.
    Continuing,
    /// All was sent. The learner builds its checksum.
    Finishing,
    /// The learner is ready to compare.
    Comparable,
    /// The checksum was sent.
    Comparing,
    /// The checksums were equal at this sequence.
    Verified(u64),
    /// The learner's acks are required, and its admission was asked for.
    Admitting(u64),
}

/// How much of a snapshot was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SentTotal {
    keys: u64,
    bytes: u64,
}

/// A snapshot on its way to a learner, at the primary.
#[derive(Debug)]
pub(crate) struct Teaching {
    pub(crate) session: u32,
    /// The next name of the session, once the learner has said how much has arrived.
    next: Option<u32>,
    /// The name of the checksum in the store.
    sum: u32,
    phase: SnapshotPhase,
    cursor: SumCursor,
    sent: u32,
    /// Chunks that are not acknowledged: where each began, and how much had been sent by then.
    unacked: VecDeque<(SumCursor, SentTotal)>,
    total: SentTotal,
    /// The last time of measuring and the bytes sent by then, and the rate in bytes a second.
    looked: (Time, u64),
    rate: u64,
    /// It is in the queue for its next part.
    queued: bool,
    /// The sequence of the comparison in this session.
    compared: Option<u64>,
    /// The learner got only the log.
    resumed: bool,
    /// Only a snapshot is possible.
    whole: bool,
    failures: u32,
    /// How often Begin was sent, and the bytes that the learner was given up to it.
    begins: u32,
    given: u64,
    /// How often the learner had no room, and when it is asked again.
    refusals: u32,
    again_at: Time,
    progress: Time,
    asks: u32,
    ask_at: Time,
}

impl Teaching {
    /// A learner was added.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            session: 0,
            next: None,
            sum: 0,
            phase: SnapshotPhase::Queued,
            cursor: None,
            sent: 0,
            unacked: VecDeque::new(),
            total: SentTotal::default(),
            looked: (now, 0),
            rate: 0,
            queued: false,
            compared: None,
            resumed: false,
            whole: false,
            failures: 0,
            begins: 0,
            given: 0,
            refusals: 0,
            again_at: Time::ZERO,
            progress: now,
            asks: 0,
            ask_at: Time::ZERO,
        }
    }

    /// The name of its checksum in the store.
    pub(crate) fn sum(&self) -> u32 {
        self.sum
    }

    /// Waits for its turn to send the next part, if that may be on its way besides the others: a
    /// few parts, or less than `window` bytes.
    fn queue(&mut self, cx: &mut Host, at: PartitionRef, id: MemberId, window: u64) {
        let first = self.unacked.front().map_or(self.total, |(_, sent)| *sent);
        let few = self.unacked.len() < cx.limits.chunks_in_flight
            || self.total.bytes - first.bytes < window;
        if few && !std::mem::replace(&mut self.queued, true) {
            cx.copying.to_copy.push_back((at, id));
            cx.timers.want(Duty::Copy);
        }
    }

    /// Whether all of the snapshot was sent, so that the learner lacks only the log.
    pub(crate) fn is_copied(&self) -> bool {
        matches!(
            self.phase,
            SnapshotPhase::Finishing
                | SnapshotPhase::Comparable
                | SnapshotPhase::Comparing
                | SnapshotPhase::Verified(_)
                | SnapshotPhase::Admitting(_)
        )
    }

    /// Whether the learner has confirmed the beginning, so that the log may follow.
    pub(crate) fn begun(&self) -> bool {
        !matches!(
            self.phase,
            SnapshotPhase::Queued
                | SnapshotPhase::Begun
                | SnapshotPhase::Resuming
                | SnapshotPhase::Continuing
        )
    }

    /// Whether the log is being sent from what the learner has acknowledged on.
    pub(crate) fn started(&self) -> bool {
        self.phase != SnapshotPhase::Queued
    }

    /// Whether the learner continues the log that it had.
    pub(crate) fn resumes(&self) -> bool {
        self.phase == SnapshotPhase::Resuming
    }

    /// Whether what has arrived at the learner is worth continuing.
    fn may_continue(&self) -> bool {
        matches!(
            self.phase,
            SnapshotPhase::Chunks
                | SnapshotPhase::Continuing
                | SnapshotPhase::Finishing
                | SnapshotPhase::Comparable
                | SnapshotPhase::Comparing
        )
    }

    /// Its progress, for people. `None`: it has not begun.
    pub(crate) fn progress(
        &mut self,
        partition: PartitionRef,
        learner: MemberId,
        keys: u64,
        now: Time,
    ) -> Option<Progress> {
        let phase = match self.phase {
            SnapshotPhase::Queued => return None,
            SnapshotPhase::Begun
            | SnapshotPhase::Resuming
            | SnapshotPhase::Continuing
            | SnapshotPhase::Chunks => CopyPhase::Copying,
            SnapshotPhase::Finishing => CopyPhase::CatchingUp,
            SnapshotPhase::Comparable | SnapshotPhase::Comparing => CopyPhase::Comparing,
            SnapshotPhase::Verified(_) | SnapshotPhase::Admitting(_) => CopyPhase::Equal,
        };
        let (then, before) = self.looked;
        let passed = u64::try_from(now.since(then).as_micros()).unwrap_or(u64::MAX);
        let since = self
            .total
            .bytes
            .saturating_sub(before)
            .saturating_mul(1_000_000);
        if let Some(rate) = since.checked_div(passed) {
            (self.rate, self.looked) = (rate, (now, self.total.bytes));
        }
        let SentTotal {
            keys: keys_sent,
            bytes: bytes_sent,
        } = self.total;
        Some(Progress {
            partition,
            learner,
            phase,
            keys: keys.max(keys_sent),
            keys_sent,
            bytes_sent,
            rate: self.rate,
        })
    }

    /// Whether the checksums were equal.
    pub(crate) fn verified(&self) -> bool {
        matches!(
            self.phase,
            SnapshotPhase::Verified(_) | SnapshotPhase::Admitting(_)
        )
    }

    /// The learner acknowledged something. True if that begins the snapshot.
    pub(crate) fn acked(&mut self, now: Time) -> bool {
        self.progress = now;
        let next = match self.phase {
            SnapshotPhase::Begun => Some(SnapshotPhase::Chunks),
            // It has the log. It now builds the checksum of its contents.
            SnapshotPhase::Resuming => Some(SnapshotPhase::Finishing),
            _ => None,
        };
        self.phase = next.unwrap_or(self.phase);
        next.is_some()
    }

    /// Another epoch is installed that did not admit the learner: its ack is not required any more.
    pub(crate) fn withdrawn(&mut self) {
        if let SnapshotPhase::Admitting(seq) = self.phase {
            self.phase = SnapshotPhase::Verified(seq);
            (self.asks, self.ask_at) = (0, Time::ZERO);
        }
    }
}

/// Snapshots under way: those that this node sends, and those that it receives.
#[derive(Debug)]
pub(crate) struct Copying {
    pub(crate) rate: CopyRate,
    /// At the last check, the pace allowed nothing more.
    pub(crate) rate_limited: bool,
    next_session: u32,
    /// Snapshots that this node sends.
    pub(crate) all: usize,
    /// Those among them that replace missing copies.
    lacking: usize,
    /// Snapshots that wait to begin, as far as known since all were last counted.
    waiting: VecDeque<(PartitionRef, MemberId)>,
    /// Learners that may be sent a part of their snapshot.
    pub(crate) to_copy: VecDeque<(PartitionRef, MemberId)>,
    /// At the last check, no learner could take more.
    pub(crate) stuck: bool,
    /// For each copy that is made here: the bytes that are still to arrive.
    expected: BTreeMap<PartitionRef, u64>,
    /// Chunks that arrived and are acknowledged as the pace allows.
    pub(crate) late_acks: VecDeque<LateAck>,
    /// Snapshots whose table is not installed here yet, with their senders.
    pub(crate) early: BTreeMap<PartitionRef, (MemberId, LearnerOpening)>,
}

impl Copying {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            rate: CopyRate::new(now),
            rate_limited: false,
            next_session: 1,
            all: 0,
            lacking: 0,
            waiting: VecDeque::new(),
            to_copy: VecDeque::new(),
            stuck: false,
            expected: BTreeMap::new(),
            late_acks: VecDeque::new(),
            early: BTreeMap::new(),
        }
    }

    /// The name of a new session.
    fn session(&mut self) -> u32 {
        let session = self.next_session;
        self.next_session = session.wrapping_add(1).max(1);
        session
    }

    /// Counts the snapshots of the slots that are about to be looked at.
    pub(crate) fn count<'a>(
        &mut self,
        slots: impl Iterator<Item = &'a Slot>,
        leaving: &BTreeSet<MemberId>,
    ) {
        (self.all, self.lacking) = (0, 0);
        // Waiting snapshots enlist again.
        self.waiting.clear();
        for slot in slots {
            match under_way(slot) {
                0 => {}
                under_way => self.add(slot.is_repaired(leaving), under_way),
            }
        }
    }

    /// Missing copies do not wait for copies that only balance load and hold all places: they have
    /// as many places of their own.
    fn may_begin(&self, lacks: bool, most: usize) -> bool {
        most > if lacks { self.lacking } else { self.all }
    }

    fn add(&mut self, lacks: bool, copies: usize) {
        self.all += copies;
        self.lacking += if lacks { copies } else { 0 };
    }

    fn end(&mut self, lacks: bool) {
        self.all = self.all.saturating_sub(1);
        self.lacking = self.lacking.saturating_sub(usize::from(lacks));
    }
}

impl Slots {
    /// Begins waiting snapshots in place of ended ones. Waiting for the next look at all partitions
    /// would waste a good part of the time.
    pub(crate) fn begin_copies(&mut self, host: &mut Host, now: Time) {
        if !host.timers.take(Duty::Begin, now) {
            return;
        }
        let most = host.limits.copies_max;
        for _ in 0..host.copying.waiting.len().min(BEGUN_MAX) {
            if !host.copying.may_begin(true, most) {
                break;
            }
            let Some((at, id)) = host.copying.waiting.pop_front() else {
                break;
            };
            if let Some(mut leading) = self.get_mut(at).and_then(Slot::leading)
                && leading.waits(id)
            {
                leading.start_teaching(host, id);
            }
        }
    }
}

/// How many snapshots of this partition this node sends.
fn under_way(slot: &Slot) -> usize {
    let lead = slot.held.as_ref().and_then(|h| h.lead());
    lead.map_or(0, |l| {
        l.links
            .values()
            .filter_map(|l| l.teaching.as_ref())
            .filter(|t| t.phase != SnapshotPhase::Queued && !t.verified())
            .count()
    })
}

/// The primary's side.
impl Host {
    /// How much of that room a copy of a partition leaves. A copy that only balances load leaves
    /// twice as much: at 80 %, copies move away again.
    fn kept_from(&self, at: PartitionRef, room: Headroom) -> u64 {
        let balances = self
            .tables
            .view
            .as_ref()
            .is_some_and(|view| planner::ranges::may_stay(&view.installed, at));
        if balances {
            room.kept.saturating_mul(2)
        } else {
            room.kept
        }
    }

    /// The size of a snapshot's parts at this pace.
    fn chunk_bytes(&self) -> usize {
        self.limits.chunk_bytes.min(self.copying.rate.part())
    }

    /// Acknowledges chunks that have arrived, as fast as the pace allows. They count as taken by
    /// that, because each ack lets another chunk come: if all waiting acks were sent together, all
    /// the next chunks would come together.
    pub(crate) fn ack_chunks(&mut self, now: Time) {
        while let Some(&LateAck {
            from,
            at,
            session,
            index,
            bytes,
        }) = self.copying.late_acks.front()
        {
            if let Err(next) = self.copying.rate.may_take(now) {
                return self.timers.set(Duty::Ack, next);
            }
            self.copying.late_acks.pop_front();
            self.copying.rate.taken(bytes);
            let chunk_ack = Frame::ChunkAck { at, session, index };
            self.peers.tell(from, &chunk_ack);
        }
        self.timers.cancel(Duty::Ack);
    }
}

impl Leading<'_> {
    /// A copy or a learner tells its primary something.
    pub(crate) fn told(&mut self, cx: &mut Host, from: MemberId, frame: Frame) {
        match frame {
            Frame::Want {
                epoch,
                session,
                next,
                ..
            } => self.wanted(cx, from, (epoch, session, next)),
            Frame::NoRoom { session, .. } => self.refused_there(cx, from, session),
            Frame::Later { session, ms, .. } => self.put_off_there(cx, from, session, ms),
            Frame::Holds {
                session, committed, ..
            } => self.resume(cx, from, session, committed),
            Frame::ChunkAck { session, index, .. } => self.chunk_acked(cx, from, (session, index)),
            Frame::Arrived {
                session,
                chunks,
                seq,
                holds,
                finished,
                ..
            } => {
                self.arrived_there(cx, from, session, holds.then_some((chunks, seq, finished)));
            }
            Frame::Finished { session, .. } => self.finished(cx, from, session),
            Frame::Verdict { session, equal, .. } => self.verdict(cx, from, session, equal),
            _ => {}
        }
    }

    /// Begins a snapshot, or queues it.
    pub(crate) fn start_teaching(&mut self, cx: &mut Host, id: MemberId) {
        let lacks = self.is_repaired(&cx.tables.leaving);
        // Many wait for their turn, and looking for room is work for every member.
        let its_turn = cx.copying.may_begin(lacks, cx.limits.copies_max)
            && (lacks || !cx.copying.rate.repairing());
        if self.waits(id) && !its_turn {
            return cx.copying.waiting.push_back((self.at, id));
        }
        let has_room = self.has_room(cx, id);
        let ready = self.lead.open
            && self.lead.serving
            && self.store.is_whole()
            && cx.peers.up(id)
            && has_room
            && cx.peers.takes_copies(id, cx.now);
        let now = cx.now;
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        self.store.sums.end(teaching.sum);
        link.aligned = false;
        let running = !matches!(teaching.phase, SnapshotPhase::Queued);
        teaching.phase = SnapshotPhase::Queued;
        if !ready || now < teaching.again_at {
            return;
        }
        if !running {
            cx.copying.add(lacks, 1);
        }
        let session = cx.copying.session();
        let seq = self.log.last();
        let whole = teaching.whole;
        let (failures, refusals, begins) =
            (teaching.failures, teaching.refusals, teaching.begins + 1);
        *teaching = Teaching {
            session,
            sum: session,
            phase: SnapshotPhase::Begun,
            failures,
            refusals,
            begins,
            whole,
            ..Teaching::new(cx.now)
        };
        link.session = session;
        link.aligned = true;
        link.acked = seq;
        link.next = seq + 1;
        link.stalled = None;
        self.store.sums.begin(session);
        let kept = if whole { u64::MAX } else { self.log.base() };
        let bytes = self.store.bytes() as u64;
        let begin = Frame::Begin {
            at: self.at,
            epoch: self.epoch,
            lineage: self.lineage,
            session,
            kept,
            seq,
            bytes,
        };
        cx.peers.tell(id, &begin);
        let given = cx.peers.given_calls(id);
        if let Some(teaching) = self.teaching(id) {
            teaching.given = given;
        }
        fault::pass(Point::SourceBegins);
    }

    /// The learner has no room. It knows better than this node, because others fill it as well.
    pub(crate) fn refused_there(&mut self, cx: &mut Host, from: MemberId, session: u32) {
        let again_at = cx.now + REFUSED_PAUSE;
        let Some(teaching) = self
            .teaching(from)
            .filter(|t| t.phase == SnapshotPhase::Begun && t.session == session)
        else {
            return;
        };
        (teaching.phase, teaching.begins) = (SnapshotPhase::Queued, 0);
        (teaching.refusals, teaching.again_at) = (teaching.refusals + 1, again_at);
        self.unbegin(from);
    }

    /// The learner accepts no more at the moment. No snapshot begins there before it does.
    pub(crate) fn put_off_there(&mut self, cx: &mut Host, from: MemberId, session: u32, ms: u32) {
        let until = cx.now + Duration::from_millis(ms.into()).min(PUT_OFF_MAX);
        let Some(teaching) = self
            .teaching(from)
            .filter(|t| t.phase == SnapshotPhase::Begun && t.session == session)
        else {
            return;
        };
        (teaching.phase, teaching.begins) = (SnapshotPhase::Queued, 0);
        self.unbegin(from);
        cx.peers.put_copies_off(from, until);
    }

    /// Whether a copy fits there besides the memory that is kept for writes. Another copy is worth
    /// less than writes to all of them.
    fn has_room(&self, cx: &Host, id: MemberId) -> bool {
        let Some(room) = cx.peers.headroom(id) else {
            return false;
        };
        let kept = if broken(&mutant::FILLS_THE_FULL) {
            0
        } else {
            cx.kept_from(self.at, room)
        };
        room.left.saturating_sub(kept) > self.store.bytes() as u64
    }

    /// The learner was in sync a short while ago. It gets the log after what it has instead of a
    /// snapshot.
    pub(crate) fn resume(&mut self, cx: &mut Host, id: MemberId, session: u32, has: u64) {
        let now = cx.now;
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = link
            .teaching
            .as_mut()
            .filter(|t| t.phase == SnapshotPhase::Begun && t.session == session)
        else {
            return;
        };
        // What the copy calls committed is in the log of every open primary of its lineage.
        if has < self.log.base()
            || has > self.log.committed()
            || self.log.bytes_between(has, self.log.last()) > WINDOW
        {
            teaching.whole = true;
            return self.start_teaching(cx, id);
        }
        teaching.phase = SnapshotPhase::Resuming;
        teaching.resumed = true;
        teaching.progress = now;
        link.acked = has;
        self.send_alignment(cx, id);
    }

    /// Takes the next steps for every learner of a partition.
    pub(crate) fn teach_all(&mut self, cx: &mut Host) {
        let ids: Vec<MemberId> = self
            .lead
            .links
            .iter()
            .filter(|(_, l)| l.teaching.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.teach(cx, id);
            self.admit(cx, id);
        }
    }

    /// Takes the next step for one learner.
    pub(crate) fn teach(&mut self, cx: &mut Host, id: MemberId) {
        let now = cx.now;
        let silent = cx.limits.copy_silent_max * SILENT_FACTOR;
        let unready = cx.limits.copy_silent_max * UNREADY_FACTOR;
        let window = self.window(cx, id);
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        match teaching.phase {
            SnapshotPhase::Queued => {
                let late = now.since(teaching.progress) > unready;
                if teaching.failures >= FAILURES_MAX || late && !cx.peers.up(id) {
                    self.abandon(cx, id);
                } else if teaching.refusals >= REFUSALS_MAX || late && !self.has_room(cx, id) {
                    self.give_up_learner(cx, id, InSyncChange::NoRoom);
                } else {
                    self.start_teaching(cx, id);
                }
                return;
            }
            SnapshotPhase::Chunks => {
                teaching.queue(cx, self.at, id, window);
                if teaching.queued {
                    // The learner waits for this node, not this node for it.
                    teaching.progress = now;
                }
            }
            // The learner may not have heard of this epoch yet.
            SnapshotPhase::Continuing
                if teaching.begins < BEGINS_MAX
                    && now.since(teaching.progress) > BEGIN_AGAIN * (1 << teaching.begins) =>
            {
                return self.continue_teaching(cx, id);
            }
            SnapshotPhase::Continuing if teaching.begins >= BEGINS_MAX && cx.peers.up(id) => {
                return self.start_teaching(cx, id);
            }
            // In order with the log, so the learner compares at exactly this sequence.
            SnapshotPhase::Comparable if !summed(self.store, teaching.sum, &mut cx.worked) => {
                cx.timers.wake(self.at, now + Duration::from_millis(1));
            }
            SnapshotPhase::Comparable if link.next == self.log.last() + 1 => {
                if let Some(sum) = self.store.sums.of(teaching.sum) {
                    teaching.compared = Some(self.log.last());
                    let (session, seq) = (teaching.session, self.log.last());
                    let clock = self.clock.advance(now);
                    let compare = Frame::Compare {
                        at: self.at,
                        session,
                        seq,
                        sum,
                        clock,
                    };
                    cx.peers.tell(id, &compare);
                    teaching.phase = SnapshotPhase::Comparing;
                    fault::pass(Point::SourceCompares);
                }
            }
            // Begin is behind what was sent before it.
            SnapshotPhase::Begun if cx.peers.up(id) && !cx.peers.has_taken(id, teaching.given) => {
                teaching.progress = now;
            }
            // Another primary's Begin may have arrived there in between.
            SnapshotPhase::Begun
                if teaching.begins < BEGINS_MAX
                    && now.since(teaching.progress) > BEGIN_AGAIN * (1 << teaching.begins) =>
            {
                return self.start_teaching(cx, id);
            }
            SnapshotPhase::Begun
            | SnapshotPhase::Resuming
            | SnapshotPhase::Continuing
            | SnapshotPhase::Finishing
            | SnapshotPhase::Comparable
            | SnapshotPhase::Comparing
            | SnapshotPhase::Verified(_)
            | SnapshotPhase::Admitting(_) => {}
        }
        // If the link is slow, snapshots of other partitions come in between.
        let progress = teaching.progress.max(cx.peers.copied_at(id));
        if !teaching.verified() && now.since(progress) > silent {
            self.give_up_learner(cx, id, InSyncChange::Abandon);
        }
    }

    /// Sends the next part of a snapshot, and after the last one its end. Then other snapshots have
    /// their turn.
    pub(crate) fn send_chunk(&mut self, cx: &mut Host, id: MemberId) {
        let window = self.window(cx, id);
        let Some(teaching) = self
            .lead
            .links
            .get_mut(&id)
            .and_then(|l| l.teaching.as_mut())
        else {
            return;
        };
        if !std::mem::take(&mut teaching.queued) || teaching.phase != SnapshotPhase::Chunks {
            return;
        }
        let (session, sum) = (teaching.session, teaching.sum);
        let mut following =
            Ahead::of(self.store.following(&teaching.cursor).take(CHUNK_ENTRIES)).peekable();
        if following.peek().is_none() {
            for (origin, finished, applied) in self
                .dedup
                .all()
                .filter(|_| !broken(&mutant::SNAPSHOT_FORGETS))
            {
                // One record at a time: an outcome may be as large as a value.
                for record in applied {
                    let dedup = vec![(origin, finished, vec![record.clone()])];
                    cx.peers.send(
                        id,
                        Lane::Bulk,
                        &Frame::Outcomes {
                            at: self.at,
                            session,
                            dedup,
                        },
                    );
                }
                let dedup = vec![(origin, finished, Vec::new())];
                cx.peers.send(
                    id,
                    Lane::Bulk,
                    &Frame::Outcomes {
                        at: self.at,
                        session,
                        dedup,
                    },
                );
            }
            let finish = Frame::Finish {
                at: self.at,
                session,
                chunks: teaching.sent,
                seq: self.log.last(),
            };
            cx.peers.send(id, Lane::Bulk, &finish);
            teaching.phase = SnapshotPhase::Finishing;
            fault::pass(Point::SourceFinishes);
            return;
        }
        let most = cx.chunk_bytes();
        let Some(out) = cx.peers.out(id, Lane::Bulk) else {
            return;
        };
        teaching.sent += 1;
        teaching
            .unacked
            .push_back((teaching.cursor.clone(), teaching.total));
        let (mut taken, mut bytes, mut last) = (0, 0, None);
        frame::chunk(
            out,
            self.at,
            (session, teaching.sent),
            most.min(self.store.bytes()),
            |out| {
                let begin = out.mark();
                for piece in following {
                    frame::put_piece(out, piece, last);
                    last = Some(piece);
                    taken += 1;
                    bytes = out.len_from(begin);
                    if bytes >= most {
                        break;
                    }
                }
            },
        );
        teaching.cursor = last.map(|piece| piece.position(self.store));
        teaching.total.keys += taken as u64;
        teaching.total.bytes += bytes as u64;
        cx.copying.rate.sent(bytes);
        fault::pass(Point::SourceSends);
        let _ = self.store.advance_sum(sum, taken);
        // The bytes are written, and read once more for the checksum.
        cx.worked += 2 * (bytes + taken * ENTRY_WORK);
        cx.stats.copies.snapshot_bytes += bytes as u64;
        teaching.queue(cx, self.at, id, window);
    }

    /// Bytes of a snapshot that may be on their way, if these are more than a few parts: acks come
    /// late while calls crowd the link, and a missing copy shall get its half of that.
    fn window(&self, cx: &Host, id: MemberId) -> u64 {
        if cx.peers.crowded(id) && self.is_repaired(&cx.tables.leaving) {
            WINDOW / cx.copying.lacking.max(1) as u64
        } else {
            0
        }
    }

    /// The log was sent as far as there was room. If that was all, the checksums may be compared:
    /// while calls crowd the link, the next look would find more again.
    pub(crate) fn compare_next(&mut self, cx: &mut Host, id: MemberId) {
        if self
            .teaching(id)
            .is_some_and(|teaching| teaching.phase == SnapshotPhase::Comparable)
        {
            self.teach(cx, id);
        }
    }

    fn abandon(&mut self, cx: &mut Host, id: MemberId) {
        self.give_up_learner(cx, id, InSyncChange::Abandon);
    }

    fn give_up_learner(
        &mut self,
        cx: &mut Host,
        id: MemberId,
        why: impl FnOnce(MemberId) -> InSyncChange,
    ) {
        let Some(teaching) = self.teaching(id) else {
            return;
        };
        if cx.now < teaching.ask_at {
            return;
        }
        teaching.asks += 1;
        let asks = teaching.asks;
        let pause = cx.backoff(Duration::from_millis(200), Duration::from_secs(2), asks);
        if let Some(teaching) = self.teaching(id) {
            teaching.ask_at = cx.now + pause;
        }
        cx.outbox.ask(self.at, self.epoch, why(id.member()));
    }

    /// The learner has received a chunk.
    pub(crate) fn chunk_acked(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        (session, index): (u32, u32),
    ) {
        let now = cx.now;
        let Some(teaching) = self.teaching(from).filter(|t| t.session == session) else {
            return;
        };
        // Earlier chunks have arrived as well: they come in order.
        let first = teaching.sent
            - u32::try_from(teaching.unacked.len())
                .unwrap_or(teaching.sent)
                .min(teaching.sent);
        let done = usize::try_from(index.saturating_sub(first))
            .unwrap_or(0)
            .min(teaching.unacked.len());
        teaching.unacked.drain(..done);
        teaching.progress = now;
        cx.peers.note_copied(from, now);
        self.teach(cx, from);
    }

    /// The connection was lost, or another epoch began. Asks the learner how much has arrived.
    pub(crate) fn continue_teaching(&mut self, cx: &mut Host, id: MemberId) {
        let now = cx.now;
        let serves = self.lead.open && self.lead.serving;
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        if !serves || !teaching.may_continue() {
            return self.start_teaching(cx, id);
        }
        if teaching.phase != SnapshotPhase::Continuing {
            teaching.begins = 0;
        }
        teaching.phase = SnapshotPhase::Continuing;
        teaching.begins += 1;
        teaching.progress = now;
        link.aligned = false;
        let next = *teaching.next.get_or_insert_with(|| cx.copying.session());
        let ask = Frame::Continue {
            at: self.at,
            epoch: self.epoch,
            session: teaching.session,
            next,
        };
        cx.peers.tell(id, &ask);
    }

    /// The learner says how much has arrived (the chunks, the log up to a sequence, and whether
    /// that is all). `None`: it does not know the snapshot.
    pub(crate) fn arrived_there(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        session: u32,
        has: Option<(u32, u64, bool)>,
    ) {
        let now = cx.now;
        let Some(link) = self.lead.links.get_mut(&from) else {
            return;
        };
        let Some(teaching) = link
            .teaching
            .as_mut()
            .filter(|t| t.phase == SnapshotPhase::Continuing && t.next == Some(session))
        else {
            return;
        };
        let unacked = u32::try_from(teaching.unacked.len()).unwrap_or(u32::MAX);
        let known = has.filter(|(chunks, seq, _)| {
            (teaching.sent.saturating_sub(unacked)..=teaching.sent).contains(chunks)
                && *seq >= self.log.base()
                && *seq <= self.log.last()
        });
        let Some((chunks, seq, finished)) = known else {
            return self.start_teaching(cx, from);
        };
        let arrived = teaching.unacked.len() - (teaching.sent - chunks) as usize;
        if let Some((cursor, total)) = teaching
            .unacked
            .get(arrived + usize::from(broken(&mutant::CONTINUES_TOO_FAR)))
            .cloned()
        {
            (teaching.cursor, teaching.total) = (cursor, total);
        }
        teaching.unacked.clear();
        (teaching.session, teaching.next) = (session, None);
        teaching.compared = None;
        teaching.sent = chunks;
        teaching.begins = 0;
        teaching.progress = now;
        teaching.phase = if finished {
            SnapshotPhase::Finishing
        } else {
            SnapshotPhase::Chunks
        };
        link.session = session;
        link.aligned = true;
        link.acked = seq;
        link.next = seq + 1;
        link.stalled = None;
        cx.stats.copies.continued += 1;
        self.teach(cx, from);
        self.stream(cx, from);
    }

    /// The learner has received everything.
    pub(crate) fn finished(&mut self, cx: &mut Host, from: MemberId, session: u32) {
        let now = cx.now;
        let Some(teaching) = self.teaching(from).filter(|t| t.session == session) else {
            return;
        };
        match teaching.phase {
            SnapshotPhase::Finishing => {
                teaching.phase = SnapshotPhase::Comparable;
                teaching.progress = now;
                self.teach(cx, from);
            }
            // The learner was not at the sequence of the checksum, because it refused entries of an
            // epoch that only one of the two knew. It is asked again at the next upkeep.
            SnapshotPhase::Comparing => teaching.phase = SnapshotPhase::Comparable,
            _ => {}
        }
    }

    /// The learner has compared the checksums.
    pub(crate) fn verdict(&mut self, cx: &mut Host, from: MemberId, session: u32, equal: bool) {
        let (now, at) = (cx.now, self.at);
        let lacks = self.is_repaired(&cx.tables.leaving);
        let Some(teaching) = self
            .teaching(from)
            .filter(|t| t.session == session && !t.verified())
        else {
            return;
        };
        if teaching.phase == SnapshotPhase::Queued {
            // The snapshot begins again in any case.
            return;
        }
        teaching.progress = now;
        // The learner may have said twice that it is ready, because it was asked twice how much has
        // arrived.
        let compared = teaching.compared.filter(|_| {
            matches!(
                teaching.phase,
                SnapshotPhase::Comparing | SnapshotPhase::Comparable
            )
        });
        if equal && teaching.phase == SnapshotPhase::Continuing {
            // It was asked how much has arrived in between, and builds its checksum once more.
            return;
        }
        if let Some(seq) = compared.filter(|_| equal) {
            teaching.phase = SnapshotPhase::Verified(seq);
            let sum = teaching.sum;
            cx.stats.copies.caught_up += u64::from(teaching.resumed);
            cx.copying.end(lacks);
            cx.timers.set(Duty::Begin, now);
            self.store.sums.end(sum);
            self.admit(cx, from);
        } else {
            teaching.failures += 1;
            teaching.whole = true;
            cx.stats.copies.checksum_mismatches += 1;
            cx.outbox.push(ShardRequest::Differed(at, from.member()));
            if teaching.failures >= FAILURES_MAX {
                teaching.phase = SnapshotPhase::Queued;
                self.abandon(cx, from);
            } else {
                self.start_teaching(cx, from);
            }
        }
    }

    /// Asks for the admission of a verified learner, once it has everything that is committed and
    /// the compared sequence is committed. From then on its ack is required, until another epoch is
    /// installed (rule 7).
    pub(crate) fn admit(&mut self, cx: &mut Host, id: MemberId) {
        let now = cx.now;
        if !self.lead.open || !self.lead.serving {
            return;
        }
        let admitted_lag = cx.admitted_lag(id);
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        match teaching.phase {
            // From here on, no entry is committed without the learner: otherwise it would never
            // have all of them while writes go on.
            SnapshotPhase::Verified(seq)
                if link.acked.min(self.log.committed()) >= seq
                    && self.log.bytes_between(link.acked, self.log.committed()) <= admitted_lag
                    && cx.peers.up(id) =>
            {
                link.required = !broken(&mutant::ADMITS_UNREQUIRED);
                link.stalled = None;
                teaching.phase = SnapshotPhase::Admitting(seq);
                (teaching.asks, teaching.ask_at) = (0, now);
            }
            SnapshotPhase::Admitting(_) => {}
            _ => return,
        }
        // The learner counts as soon as it is admitted, so it must have what is committed. If it is
        // stalled, it may have to be withdrawn instead.
        let silent = link
            .stalled
            .as_mut()
            .is_some_and(|wait| cx.peers.silence(id, wait, now) > cx.limits.copy_silent_max);
        if link.acked < self.log.committed() || now < teaching.ask_at || silent {
            return;
        }
        teaching.asks += 1;
        let asks = teaching.asks;
        let pause = cx.backoff(Duration::from_millis(200), Duration::from_secs(2), asks);
        if let Some(teaching) = self.teaching(id) {
            teaching.ask_at = now + pause;
        }
        cx.outbox
            .ask(self.at, self.epoch, InSyncChange::Admit(id.member()));
        fault::pass(Point::SourceAdmits);
    }

    /// Whether a snapshot has not begun.
    fn waits(&self, id: MemberId) -> bool {
        let link = self.lead.links.get(&id);
        link.and_then(|l| l.teaching.as_ref())
            .is_some_and(|t| t.phase == SnapshotPhase::Queued)
    }

    /// Until its turn comes again, no checksum is built for it, however long that takes.
    fn unbegin(&mut self, id: MemberId) {
        let Some(link) = self.lead.links.get_mut(&id) else {
            return;
        };
        link.aligned = false;
        if let Some(teaching) = &link.teaching {
            self.store.sums.end(teaching.sum);
        }
    }

    fn teaching(&mut self, id: MemberId) -> Option<&mut Teaching> {
        self.lead.links.get_mut(&id)?.teaching.as_mut()
    }
}

/// Builds a slice of a store's checksum. True once it is complete. The last slice counts as work,
/// too: many partitions have only one.
fn summed(store: &mut Store, session: u32, work: &mut usize) -> bool {
    let (done, bytes) = store.advance_sum(session, SLICE);
    *work += bytes + ENTRY_WORK;
    done
}
