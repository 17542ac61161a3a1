//! Copying a partition to a learner: a snapshot in the order of the index beside the running log,
//! then equal checksums at one sequence.
//!
//! ```text
//!   primary                                   learner
//!   Begin{session, seq} ───────────────────>  empties itself
//!   <────────────────────────────────── ack   log follows from seq + 1, on the lane of calls
//!   Chunk, Chunk, ... (bulk lane) ─────────>  takes what is newer than what it has, remembers deletions; sums what it stored
//!   Outcomes, Finish{chunks, seq} ─────────>  complete once the log has reached seq; sums the rest
//!   <───────────────────────────── Finished
//!   Compare{seq, sum} (in order with the log) ──>  at exactly seq
//!   <────────────────────────────── Verdict
//!   its acks become required; then its admission is asked for
//! ```
//! A learner that has not heard of its table yet keeps what it was told in Begin until then. Where
//! the connection is lost meanwhile, or another epoch of the same tenure begins, it goes on after
//! the last chunk that arrived:
//! ```text
//!   Continue{session, next} ───────────────>  has it begun this session? It is called `next` from then on
//!   <────────── Arrived{chunks, seq}          log follows from seq + 1, chunks after those
//! ```
//! A copy that was in sync, was dropped and comes back in the same lineage needs no snapshot while
//! the log reaches back to what it knows to be committed:
//! ```text
//!   Begin{session, kept, seq} ─────────────>  committed at or after `kept`: it keeps what it has
//!   <─────────── Holds{session, committed}
//!   Align{entries after that} ─────────────>  undoes what differs, takes the rest; sums its own contents
//!   <──────────────────── ack, then Finished  and so on, as above
//! ```

mod sink;

use super::ahead::Ahead;
use super::frame::{self, Frame, Headroom};
use super::replication::WINDOW;
use super::store::{Cursor, Store};
use super::{Core, ENTRY_WORK, Held, Lane, PartitionRef, Request, SLICE, Shard, Slot};
use crate::fault::{self, Point};
use crate::mutant::{self, broken};
use doyen_gossip::Time;
use doyen_gossip::agreement::InSyncChange;
use doyen_placement::loads::{CopyPhase, Progress};
use doyen_placement::planner;
use doyen_placement::{Epoch, MemberId};
pub(super) use sink::{LateAck, Opening, Sink};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Snapshots of one learner that may come out wrong before it is given up.
const FAILURES_MAX: u32 = 3;
/// A learner without progress for so many times `copy_silent_max` is given up.
const SILENT_FACTOR: u32 = 8;
/// One that is not connected, or has no room, for so many times that: others wait for its place, or
/// somebody else has room.
const UNREADY_FACTOR: u32 = 2;
/// A beginning that is not confirmed is sent again, after twice this, four times this, and so on;
const BEGIN_AGAIN: Duration = Duration::from_millis(200);
/// and so often in all.
const BEGINS_MAX: u32 = 5;
/// A learner that has no room is asked again after this,
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
/// and so often in all: then others may have room.
const REFUSALS_MAX: u32 = 4;
/// A learner that says that it takes no more for a while is believed for so long at most.
const PUT_OFF_MAX: Duration = Duration::from_secs(1);
/// Copies that are looked at in one go, to begin in the places of others.
const BEGUN_MAX: usize = 256;
/// Entries looked at for one chunk at most.
const CHUNK_ENTRIES: usize = 1_000;
/// Bytes of the log that a learner may lack when writes begin to wait for it.
const ADMITTED_LAG: u64 = 256 << 10;

/// Where a snapshot stands, at the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not begun.
    Queued,
    /// Begin was sent.
    Begun,
    /// It was in sync before: the log after what it knows to be committed was sent.
    Resuming,
    /// Chunks are on their way.
    Chunks,
    /// The learner was asked how much of it has arrived.
    Continuing,
    /// All was sent; the learner sums.
    Finishing,
    /// The learner is ready to compare.
    Comparable,
    /// The checksum was sent.
    Comparing,
    /// Equal at this sequence.
    Verified(u64),
    /// Its acks are required and its admission is asked for.
    Admitting(u64),
}

/// Of a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sent {
    keys: u64,
    bytes: u64,
}

/// A snapshot on its way to a learner, at the primary.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) session: u32,
    /// What the session is called once the learner has said how far it has come.
    next: Option<u32>,
    /// Names the sum.
    sum: u32,
    phase: Phase,
    cursor: Cursor,
    sent: u32,
    /// Chunks that are not acknowledged: where each began, and how many keys and bytes were sent by
    /// then.
    unacked: VecDeque<(Cursor, Sent)>,
    total: Sent,
    /// At the last look, and what came of it: bytes a second.
    looked: (Time, u64),
    rate: u64,
    /// It is among those that are sent a part next.
    queued: bool,
    /// At which sequence, in this session.
    compared: Option<u64>,
    /// It got the log only.
    resumed: bool,
    /// Only a snapshot will do.
    whole: bool,
    failures: u32,
    /// How often a beginning was sent.
    begins: u32,
    /// How often the learner had no room, and when it is asked again.
    refusals: u32,
    again_at: Time,
    progress: Time,
    asks: u32,
    ask_at: Time,
}

impl Source {
    /// A learner was added.
    pub(super) fn new(now: Time) -> Self {
        Self {
            session: 0,
            next: None,
            sum: 0,
            phase: Phase::Queued,
            cursor: None,
            sent: 0,
            unacked: VecDeque::new(),
            total: Sent::default(),
            looked: (now, 0),
            rate: 0,
            queued: false,
            compared: None,
            resumed: false,
            whole: false,
            failures: 0,
            begins: 0,
            refusals: 0,
            again_at: Time::ZERO,
            progress: now,
            asks: 0,
            ask_at: Time::ZERO,
        }
    }

    /// What its sum is called in the store.
    pub(super) fn sum(&self) -> u32 {
        self.sum
    }

    /// Whether the learner has confirmed the beginning, so that the log may follow.
    pub(super) fn begun(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Queued | Phase::Begun | Phase::Resuming | Phase::Continuing
        )
    }

    /// Whether the log from what it has acknowledged on is a part of what it is sent.
    pub(super) fn started(&self) -> bool {
        self.phase != Phase::Queued
    }

    /// Whether it is to continue the log that it had.
    pub(super) fn resumes(&self) -> bool {
        self.phase == Phase::Resuming
    }

    /// Whether what the learner has of it is worth going on with.
    fn may_continue(&self) -> bool {
        matches!(
            self.phase,
            Phase::Chunks
                | Phase::Continuing
                | Phase::Finishing
                | Phase::Comparable
                | Phase::Comparing
        )
    }

    /// How far it has come, for people; `None`: it has not begun.
    pub(super) fn progress(
        &mut self,
        partition: PartitionRef,
        learner: MemberId,
        keys: u64,
        now: Time,
    ) -> Option<Progress> {
        let phase = match self.phase {
            Phase::Queued => return None,
            Phase::Begun | Phase::Resuming | Phase::Continuing | Phase::Chunks => {
                CopyPhase::Copying
            }
            Phase::Finishing => CopyPhase::CatchingUp,
            Phase::Comparable | Phase::Comparing => CopyPhase::Comparing,
            Phase::Verified(_) | Phase::Admitting(_) => CopyPhase::Equal,
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
        let Sent {
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

    /// Whether its checksum was equal.
    pub(super) fn verified(&self) -> bool {
        matches!(self.phase, Phase::Verified(_) | Phase::Admitting(_))
    }

    /// The learner acknowledged something; true if that begins the snapshot.
    pub(super) fn acked(&mut self, now: Time) -> bool {
        self.progress = now;
        let next = match self.phase {
            Phase::Begun => Some(Phase::Chunks),
            // It has the log; it sums what that made of its contents.
            Phase::Resuming => Some(Phase::Finishing),
            _ => None,
        };
        self.phase = next.unwrap_or(self.phase);
        next.is_some()
    }

    /// Another epoch is in force, and it did not admit the learner: its ack is not required any
    /// more.
    pub(super) fn withdrawn(&mut self) {
        if let Phase::Admitting(seq) = self.phase {
            self.phase = Phase::Verified(seq);
            (self.asks, self.ask_at) = (0, Time::ZERO);
        }
    }
}

/// Snapshots that leave this node.
#[derive(Debug, Default)]
pub(super) struct Copying {
    pub(super) all: usize,
    /// Those of them that are lacking until they count.
    lacking: usize,
    /// Those that are to begin, as far as they were looked at since all were counted last.
    waiting: VecDeque<(PartitionRef, MemberId)>,
    /// One has ended since: another has its place.
    ended: bool,
}

impl Copying {
    /// Counts those of the slots that are about to be looked at, as they are now.
    pub(super) fn count<'a>(
        &mut self,
        slots: impl Iterator<Item = &'a Slot>,
        leaving: &BTreeSet<MemberId>,
    ) {
        (self.all, self.lacking, self.ended) = (0, 0, false);
        // What waits says so again.
        self.waiting.clear();
        for slot in slots {
            match under_way(slot) {
                0 => {}
                under_way => self.add(slot.is_repaired(leaving), under_way),
            }
        }
    }

    /// Whether one has ended in whose place another may begin.
    pub(super) fn is_due(&self) -> bool {
        self.ended && !self.waiting.is_empty()
    }

    /// What is lacking does not wait for what only makes loads even and has all places: it has as
    /// many of its own.
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
        self.ended = true;
    }
}

impl Shard {
    /// Begins what waits, where something has ended: with the next look at all partitions a good
    /// part of the time would have gone by.
    pub(super) fn begin_copies(&mut self) {
        if !std::mem::take(&mut self.core.copying.ended) {
            return;
        }
        let most = self.core.limits.copies_max;
        for _ in 0..self.core.copying.waiting.len().min(BEGUN_MAX) {
            if !self.core.copying.may_begin(true, most) {
                break;
            }
            let Some((at, id)) = self.core.copying.waiting.pop_front() else {
                break;
            };
            if let Some(slot) = self.slots.get_mut(at).filter(|slot| waits(slot, id)) {
                self.core.start_teaching(at, slot, id);
            }
        }
    }
}

/// How many snapshots leave this node from this partition.
fn under_way(slot: &Slot) -> usize {
    let lead = slot.held.as_ref().and_then(|h| h.lead.as_ref());
    lead.map_or(0, |l| {
        l.links
            .values()
            .filter_map(|l| l.teaching.as_ref())
            .filter(|t| t.phase != Phase::Queued && !t.verified())
            .count()
    })
}

/// The primary's side.
impl Core {
    /// Begins a snapshot, or queues it.
    pub(super) fn start_teaching(&mut self, at: PartitionRef, slot: &mut Slot, id: MemberId) {
        let lacks = slot.is_repaired(&self.leaving);
        // Many wait for their turn, and looking for room is work for every member.
        let its_turn = self.copying.may_begin(lacks, self.limits.copies_max)
            && (lacks || !self.pace.repairing());
        if waits(slot, id) && !its_turn {
            return self.copying.waiting.push_back((at, id));
        }
        let has_room = self.has_room(at, slot, id);
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            log,
            store,
            epoch,
            lineage,
            ..
        } = &mut **held
        else {
            return;
        };
        let ready = lead.open
            && lead.serving
            && store.is_whole()
            && self.peers.up(id)
            && has_room
            && self.peers.takes_copies(id, self.now);
        let now = self.now;
        let Some(link) = lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        store.end_sum(teaching.sum);
        link.aligned = false;
        let running = !matches!(teaching.phase, Phase::Queued);
        teaching.phase = Phase::Queued;
        if !ready || now < teaching.again_at {
            return;
        }
        if !running {
            self.copying.add(lacks, 1);
        }
        let session = self.next_session;
        self.next_session = self.next_session.wrapping_add(1).max(1);
        let seq = log.last();
        let whole = teaching.whole;
        let (failures, refusals, begins) =
            (teaching.failures, teaching.refusals, teaching.begins + 1);
        *teaching = Source {
            session,
            sum: session,
            phase: Phase::Begun,
            failures,
            refusals,
            begins,
            whole,
            ..Source::new(self.now)
        };
        link.session = session;
        link.aligned = true;
        link.acked = seq;
        link.next = seq + 1;
        link.stalled = None;
        store.begin_sum(session);
        let kept = if whole { u64::MAX } else { log.base() };
        let bytes = store.bytes() as u64;
        self.peers.send(
            id,
            Lane::Calls,
            &Frame::Begin {
                at,
                epoch: *epoch,
                lineage: *lineage,
                session,
                kept,
                seq,
                bytes,
            },
        );
        fault::pass(Point::SourceBegins);
    }

    /// The learner has no room, as it knows better: others fill it as well.
    pub(super) fn refused_there(&mut self, slot: &mut Slot, from: MemberId, session: u32) {
        let again_at = self.now + REFUSED_PAUSE;
        let Some(teaching) =
            teaching(slot, from).filter(|t| t.phase == Phase::Begun && t.session == session)
        else {
            return;
        };
        (teaching.phase, teaching.begins) = (Phase::Queued, 0);
        (teaching.refusals, teaching.again_at) = (teaching.refusals + 1, again_at);
        unbegin(slot, from);
    }

    /// The learner takes no more at the moment: nothing begins there before it does.
    pub(super) fn put_off_there(&mut self, slot: &mut Slot, from: MemberId, session: u32, ms: u32) {
        let until = self.now + Duration::from_millis(ms.into()).min(PUT_OFF_MAX);
        let Some(teaching) =
            teaching(slot, from).filter(|t| t.phase == Phase::Begun && t.session == session)
        else {
            return;
        };
        (teaching.phase, teaching.begins) = (Phase::Queued, 0);
        unbegin(slot, from);
        self.peers.put_copies_off(from, until);
    }

    /// Whether a copy fits there, beside what is kept for those who write: a copy more is worth
    /// less than that all of them can be written.
    fn has_room(&self, at: PartitionRef, slot: &Slot, id: MemberId) -> bool {
        let Some(room) = self.peers.headroom(id) else {
            return false;
        };
        let kept = if broken(&mutant::FILLS_THE_FULL) {
            0
        } else {
            self.kept_from(at, room)
        };
        slot.held
            .as_ref()
            .is_some_and(|held| room.left.saturating_sub(kept) > held.store.bytes() as u64)
    }

    /// How much of that room a copy of a partition leaves. One that only balances leaves twice as
    /// much: with 80 % filled, copies move away again.
    fn kept_from(&self, at: PartitionRef, room: Headroom) -> u64 {
        let balances = self
            .view
            .as_ref()
            .is_some_and(|view| planner::ranges::may_stay(&view.installed, at));
        if balances {
            room.kept.saturating_mul(2)
        } else {
            room.kept
        }
    }

    /// The learner was in sync not long ago: it gets the log after what it has instead of a
    /// snapshot.
    pub(super) fn resume(
        &mut self,
        at: PartitionRef,
        slot: &mut Slot,
        id: MemberId,
        session: u32,
        has: u64,
    ) {
        let now = self.now;
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            log,
            ..
        } = &mut **held
        else {
            return;
        };
        let Some(link) = lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = link
            .teaching
            .as_mut()
            .filter(|t| t.phase == Phase::Begun && t.session == session)
        else {
            return;
        };
        // What it calls committed is in the log of whoever is open in its lineage.
        if has < log.base() || has > log.committed() || log.bytes_between(has, log.last()) > WINDOW
        {
            teaching.whole = true;
            return self.start_teaching(at, slot, id);
        }
        teaching.phase = Phase::Resuming;
        teaching.resumed = true;
        teaching.progress = now;
        link.acked = has;
        self.send_alignment(at, held, id);
    }

    /// Goes on with every learner of a partition.
    pub(super) fn teach_all(&mut self, at: PartitionRef, slot: &mut Slot) {
        let Some(lead) = slot.held.as_ref().and_then(|h| h.lead.as_ref()) else {
            return;
        };
        let ids: Vec<MemberId> = lead
            .links
            .iter()
            .filter(|(_, l)| l.teaching.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.teach(at, slot, id);
            self.admit(at, slot, id);
        }
    }

    /// Goes on with one learner.
    pub(super) fn teach(&mut self, at: PartitionRef, slot: &mut Slot, id: MemberId) {
        let now = self.now;
        let silent = self.limits.copy_silent_max * SILENT_FACTOR;
        let unready = self.limits.copy_silent_max * UNREADY_FACTOR;
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            log,
            store,
            epoch,
            clock,
            ..
        } = &mut **held
        else {
            return;
        };
        let epoch = *epoch;
        let Some(link) = lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        match teaching.phase {
            Phase::Queued => {
                let late = now.since(teaching.progress) > unready;
                if teaching.failures >= FAILURES_MAX || late && !self.peers.up(id) {
                    self.abandon(at, slot, id);
                } else if teaching.refusals >= REFUSALS_MAX || late && !self.has_room(at, slot, id)
                {
                    self.give_up_learner(at, slot, id, epoch, InSyncChange::NoRoom);
                } else {
                    self.start_teaching(at, slot, id);
                }
                return;
            }
            Phase::Chunks => {
                if teaching.unacked.len() < self.limits.chunks_in_flight
                    && !std::mem::replace(&mut teaching.queued, true)
                {
                    self.to_copy.push_back((at, id));
                }
                if teaching.queued {
                    // It waits for us, and not we for it.
                    teaching.progress = now;
                }
            }
            // It may not have heard of this epoch yet.
            Phase::Continuing
                if teaching.begins < BEGINS_MAX
                    && now.since(teaching.progress) > BEGIN_AGAIN * (1 << teaching.begins) =>
            {
                return self.continue_teaching(at, slot, id);
            }
            Phase::Continuing if teaching.begins >= BEGINS_MAX && self.peers.up(id) => {
                return self.start_teaching(at, slot, id);
            }
            // In order with the log: the learner compares at exactly this sequence.
            Phase::Comparable if !summed(store, teaching.sum, &mut self.worked) => {
                self.timers.insert((now + Duration::from_millis(1), at));
            }
            Phase::Comparable if link.next == log.last() + 1 => {
                if let Some(sum) = store.sum(teaching.sum) {
                    teaching.compared = Some(log.last());
                    let (session, seq) = (teaching.session, log.last());
                    let clock = clock.advance(now);
                    self.peers.send(
                        id,
                        Lane::Calls,
                        &Frame::Compare {
                            at,
                            session,
                            seq,
                            sum,
                            clock,
                        },
                    );
                    teaching.phase = Phase::Comparing;
                    fault::pass(Point::SourceCompares);
                }
            }
            // Somebody else may have begun something there meanwhile, which came before.
            Phase::Begun
                if teaching.begins < BEGINS_MAX
                    && now.since(teaching.progress) > BEGIN_AGAIN * (1 << teaching.begins) =>
            {
                return self.start_teaching(at, slot, id);
            }
            Phase::Begun
            | Phase::Resuming
            | Phase::Continuing
            | Phase::Finishing
            | Phase::Comparable
            | Phase::Comparing
            | Phase::Verified(_)
            | Phase::Admitting(_) => {}
        }
        // Where the way to it is narrow, what others are sent comes between.
        let progress = teaching.progress.max(self.peers.copied_at(id));
        if !teaching.verified() && now.since(progress) > silent {
            self.give_up_learner(at, slot, id, epoch, InSyncChange::Abandon);
        }
    }

    /// How large a part of a snapshot is, at this pace.
    fn chunk_bytes(&self) -> usize {
        self.limits.chunk_bytes.min(self.pace.part())
    }

    /// Sends the next part of a snapshot, and what comes after the last one; then others have their
    /// turn.
    pub(super) fn send_chunk(&mut self, at: PartitionRef, slot: &mut Slot, id: MemberId) {
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            log,
            store,
            dedup,
            ..
        } = &mut **held
        else {
            return;
        };
        let Some(teaching) = lead.links.get_mut(&id).and_then(|l| l.teaching.as_mut()) else {
            return;
        };
        if !std::mem::take(&mut teaching.queued) || teaching.phase != Phase::Chunks {
            return;
        }
        let (session, sum) = (teaching.session, teaching.sum);
        let mut following =
            Ahead::of(store.following(&teaching.cursor).take(CHUNK_ENTRIES)).peekable();
        if following.peek().is_none() {
            for (origin, finished, applied) in
                dedup.all().filter(|_| !broken(&mutant::SNAPSHOT_FORGETS))
            {
                // A record at a time: an outcome may be as large as a value.
                for record in applied {
                    let dedup = vec![(origin, finished, vec![record.clone()])];
                    self.peers
                        .send(id, Lane::Bulk, &Frame::Outcomes { at, session, dedup });
                }
                let dedup = vec![(origin, finished, Vec::new())];
                self.peers
                    .send(id, Lane::Bulk, &Frame::Outcomes { at, session, dedup });
            }
            let finish = Frame::Finish {
                at,
                session,
                chunks: teaching.sent,
                seq: log.last(),
            };
            self.peers.send(id, Lane::Bulk, &finish);
            teaching.phase = Phase::Finishing;
            fault::pass(Point::SourceFinishes);
            return;
        }
        let most = self.chunk_bytes();
        let Some(out) = self.peers.out(id, Lane::Bulk) else {
            return;
        };
        teaching.sent += 1;
        teaching
            .unacked
            .push_back((teaching.cursor.clone(), teaching.total));
        let (mut taken, mut bytes, mut last) = (0, 0, None);
        frame::chunk(
            out,
            at,
            (session, teaching.sent),
            most.min(store.bytes()),
            |out| {
                let begin = out.mark();
                for (map, entry) in following {
                    frame::put_entry(out, map, entry);
                    last = Some((map, entry));
                    taken += 1;
                    bytes = out.len_from(begin);
                    if bytes >= most {
                        break;
                    }
                }
            },
        );
        teaching.cursor = last.map(|(map, entry)| (map, entry.key().into()));
        teaching.total.keys += taken as u64;
        teaching.total.bytes += bytes as u64;
        self.pace.sent(bytes);
        fault::pass(Point::SourceSends);
        let _ = store.advance_sum(sum, taken);
        // Written, and looked at once more for the sum.
        self.worked += 2 * (bytes + taken * ENTRY_WORK);
        self.stats.snapshot_bytes += bytes as u64;
        if teaching.unacked.len() < self.limits.chunks_in_flight {
            teaching.queued = true;
            self.to_copy.push_back((at, id));
        }
    }

    fn abandon(&mut self, at: PartitionRef, slot: &mut Slot, id: MemberId) {
        if let Some(epoch) = slot.held.as_ref().map(|h| h.epoch) {
            self.give_up_learner(at, slot, id, epoch, InSyncChange::Abandon);
        }
    }

    fn give_up_learner(
        &mut self,
        at: PartitionRef,
        slot: &mut Slot,
        id: MemberId,
        epoch: Epoch,
        why: impl FnOnce(MemberId) -> InSyncChange,
    ) {
        let Some(teaching) = teaching(slot, id) else {
            return;
        };
        if self.now < teaching.ask_at {
            return;
        }
        teaching.asks += 1;
        let asks = teaching.asks;
        let pause = self.backoff(Duration::from_millis(200), Duration::from_secs(2), asks);
        if let Some(teaching) = self::teaching(slot, id) {
            teaching.ask_at = self.now + pause;
        }
        self.ask(at, epoch, why(id.member()));
    }

    /// A chunk arrived there.
    pub(super) fn chunk_acked(
        &mut self,
        at: PartitionRef,
        slot: &mut Slot,
        from: MemberId,
        (session, index): (u32, u32),
    ) {
        let now = self.now;
        let Some(teaching) = teaching(slot, from).filter(|t| t.session == session) else {
            return;
        };
        // Those before it have arrived as well: they come in order.
        let first = teaching.sent
            - u32::try_from(teaching.unacked.len())
                .unwrap_or(teaching.sent)
                .min(teaching.sent);
        let done = usize::try_from(index.saturating_sub(first))
            .unwrap_or(0)
            .min(teaching.unacked.len());
        teaching.unacked.drain(..done);
        teaching.progress = now;
        self.peers.note_copied(from, now);
        self.teach(at, slot, from);
    }

    /// The connection was lost, or another epoch began: asks the learner how far it has come.
    pub(super) fn continue_teaching(&mut self, at: PartitionRef, slot: &mut Slot, id: MemberId) {
        let now = self.now;
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            epoch,
            ..
        } = &mut **held
        else {
            return;
        };
        let serves = lead.open && lead.serving;
        let Some(link) = lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        if !serves || !teaching.may_continue() {
            return self.start_teaching(at, slot, id);
        }
        if teaching.phase != Phase::Continuing {
            teaching.begins = 0;
        }
        teaching.phase = Phase::Continuing;
        teaching.begins += 1;
        teaching.progress = now;
        link.aligned = false;
        let free = self.next_session;
        if teaching.next.is_none() {
            self.next_session = free.wrapping_add(1).max(1);
        }
        let next = *teaching.next.get_or_insert(free);
        self.peers.send(
            id,
            Lane::Calls,
            &Frame::Continue {
                at,
                epoch: *epoch,
                session: teaching.session,
                next,
            },
        );
    }

    /// So much of a snapshot has arrived at a learner (chunks, the log up to a sequence, and
    /// whether that is all); `None`: it does not know of it.
    pub(super) fn arrived_there(
        &mut self,
        at: PartitionRef,
        slot: &mut Slot,
        from: MemberId,
        session: u32,
        has: Option<(u32, u64, bool)>,
    ) {
        let now = self.now;
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            log,
            ..
        } = &mut **held
        else {
            return;
        };
        let Some(link) = lead.links.get_mut(&from) else {
            return;
        };
        let Some(teaching) = link
            .teaching
            .as_mut()
            .filter(|t| t.phase == Phase::Continuing && t.next == Some(session))
        else {
            return;
        };
        let unacked = u32::try_from(teaching.unacked.len()).unwrap_or(u32::MAX);
        let known = has.filter(|(chunks, seq, _)| {
            (teaching.sent.saturating_sub(unacked)..=teaching.sent).contains(chunks)
                && *seq >= log.base()
                && *seq <= log.last()
        });
        let Some((chunks, seq, finished)) = known else {
            return self.start_teaching(at, slot, from);
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
            Phase::Finishing
        } else {
            Phase::Chunks
        };
        link.session = session;
        link.aligned = true;
        link.acked = seq;
        link.next = seq + 1;
        link.stalled = None;
        self.stats.continued += 1;
        self.teach(at, slot, from);
        self.stream(at, slot, from);
    }

    /// Acknowledges chunks that have arrived, as fast as the pace allows. They count as taken by
    /// that, since each lets another one come: those that wait, let go together, would all have
    /// their next ones come together.
    pub(super) fn ack_chunks(&mut self, now: Time) {
        while let Some(&LateAck {
            from,
            at,
            session,
            index,
            bytes,
        }) = self.late_acks.front()
        {
            if let Err(next) = self.pace.may_take(now) {
                self.ack_at = next;
                return;
            }
            self.late_acks.pop_front();
            self.pace.taken(bytes);
            self.peers
                .send(from, Lane::Calls, &Frame::ChunkAck { at, session, index });
        }
    }

    /// The learner has everything.
    pub(super) fn finished(
        &mut self,
        at: PartitionRef,
        slot: &mut Slot,
        from: MemberId,
        session: u32,
    ) {
        let now = self.now;
        let Some(teaching) = teaching(slot, from).filter(|t| t.session == session) else {
            return;
        };
        match teaching.phase {
            Phase::Finishing => {
                teaching.phase = Phase::Comparable;
                teaching.progress = now;
                self.teach(at, slot, from);
            }
            // It was not at the sequence of the checksum, because it refused entries of an epoch
            // that only one of us knew: it is asked again with the next upkeep.
            Phase::Comparing => teaching.phase = Phase::Comparable,
            _ => {}
        }
    }

    /// The learner compared.
    pub(super) fn verdict(
        &mut self,
        at: PartitionRef,
        slot: &mut Slot,
        from: MemberId,
        session: u32,
        equal: bool,
    ) {
        let now = self.now;
        let lacks = slot.is_repaired(&self.leaving);
        let Some(teaching) = teaching(slot, from).filter(|t| t.session == session && !t.verified())
        else {
            return;
        };
        if teaching.phase == Phase::Queued {
            // It begins anew in any case.
            return;
        }
        teaching.progress = now;
        // It may have said twice that it is ready, where it was asked twice how far it has come.
        let compared = teaching
            .compared
            .filter(|_| matches!(teaching.phase, Phase::Comparing | Phase::Comparable));
        if equal && teaching.phase == Phase::Continuing {
            // It was asked how far it has come meanwhile, and sums once more.
            return;
        }
        if let Some(seq) = compared.filter(|_| equal) {
            teaching.phase = Phase::Verified(seq);
            let sum = teaching.sum;
            self.stats.caught_up += u64::from(teaching.resumed);
            self.copying.end(lacks);
            if let Some(held) = &mut slot.held {
                held.store.end_sum(sum);
            }
            self.admit(at, slot, from);
        } else {
            teaching.failures += 1;
            teaching.whole = true;
            self.stats.checksum_mismatches += 1;
            self.requests
                .push_back(Request::Differed(at, from.member()));
            if teaching.failures >= FAILURES_MAX {
                teaching.phase = Phase::Queued;
                self.abandon(at, slot, from);
            } else {
                self.start_teaching(at, slot, from);
            }
        }
    }

    /// Asks for the admission of a verified learner, once it has all that is committed and all that
    /// was compared is. From then on its ack is required, until another epoch is in force (rule 7).
    pub(super) fn admit(&mut self, at: PartitionRef, slot: &mut Slot, id: MemberId) {
        let now = self.now;
        let Some(held) = &mut slot.held else { return };
        let Held {
            lead: Some(lead),
            log,
            epoch,
            ..
        } = &mut **held
        else {
            return;
        };
        if !lead.open || !lead.serving {
            return;
        }
        let epoch = *epoch;
        let Some(link) = lead.links.get_mut(&id) else {
            return;
        };
        let Some(teaching) = &mut link.teaching else {
            return;
        };
        match teaching.phase {
            // From here on nothing is committed without it: where writes never end, it would never
            // have all of them otherwise.
            Phase::Verified(seq)
                if link.acked.min(log.committed()) >= seq
                    && log.bytes_between(link.acked, log.committed()) <= ADMITTED_LAG
                    && self.peers.up(id) =>
            {
                link.required = !broken(&mutant::ADMITS_UNREQUIRED);
                link.stalled = None;
                teaching.phase = Phase::Admitting(seq);
                (teaching.asks, teaching.ask_at) = (0, now);
            }
            Phase::Admitting(_) => {}
            _ => return,
        }
        // It counts as soon as it is admitted, so it must have what is committed. While it is
        // stalled it may have to be withdrawn instead.
        let silent = link
            .stalled
            .as_mut()
            .is_some_and(|wait| self.peers.silence(id, wait, now) > self.limits.copy_silent_max);
        if link.acked < log.committed() || now < teaching.ask_at || silent {
            return;
        }
        teaching.asks += 1;
        let asks = teaching.asks;
        let pause = self.backoff(Duration::from_millis(200), Duration::from_secs(2), asks);
        if let Some(teaching) = self::teaching(slot, id) {
            teaching.ask_at = now + pause;
        }
        self.ask(at, epoch, InSyncChange::Admit(id.member()));
        fault::pass(Point::SourceAdmits);
    }
}

/// Whether a snapshot is not begun.
fn waits(slot: &Slot, id: MemberId) -> bool {
    let link = slot
        .held
        .as_ref()
        .and_then(|h| h.lead.as_ref())
        .and_then(|l| l.links.get(&id));
    link.and_then(|l| l.teaching.as_ref())
        .is_some_and(|t| t.phase == Phase::Queued)
}

/// Until its turn comes again, nothing is summed for it, however long that takes.
fn unbegin(slot: &mut Slot, id: MemberId) {
    let Some(held) = &mut slot.held else { return };
    let Held {
        lead: Some(lead),
        store,
        ..
    } = &mut **held
    else {
        return;
    };
    let Some(link) = lead.links.get_mut(&id) else {
        return;
    };
    link.aligned = false;
    if let Some(teaching) = &link.teaching {
        store.end_sum(teaching.sum);
    }
}

fn teaching(slot: &mut Slot, id: MemberId) -> Option<&mut Source> {
    slot.held
        .as_mut()?
        .lead
        .as_mut()?
        .links
        .get_mut(&id)?
        .teaching
        .as_mut()
}

/// Sums a slice of a store; true once it is summed. The last slice is work, too: many partitions
/// have only one.
fn summed(store: &mut Store, session: u32, work: &mut usize) -> bool {
    let (done, bytes) = store.advance_sum(session, SLICE);
    *work += bytes + ENTRY_WORK;
    done
}
