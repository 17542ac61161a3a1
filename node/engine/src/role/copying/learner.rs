//! The learner's side of copying a partition: receives the snapshot, and compares checksums.

use super::super::partition::Slot;
use super::summed;
use crate::fault::{self, Point};
use crate::log::dedup::{Dedup, Remembered};
use crate::log::partition_log::Log;
use crate::mutant::{self, broken};
use crate::role::holding::{Bond, Follow, Following};
use crate::role::host::Host;
use crate::store::digest_bytes;
use crate::value::entry::ENTRY_WORK;
use crate::wire::api::Malformed;
use crate::wire::frame::{self, Frame};
use bytes::Bytes;
use doyen_placement::{Epoch, Lineage, MemberId, PartitionRef};
use std::time::Duration;

/// Entries of a cleared map that are checked and freed in one slice.
const SIFTED: usize = 500;

/// A chunk that has arrived, and is not acknowledged yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LateAck {
    pub(super) from: MemberId,
    pub(super) at: PartitionRef,
    pub(super) session: u32,
    pub(super) index: u32,
    /// Bytes that the pace has not counted yet.
    pub(super) bytes: usize,
}

/// A snapshot that is being received, at the learner.
#[derive(Debug)]
pub(crate) struct Sink {
    session: u32,
    /// The name of its checksum, which stays when the session gets another name.
    sum: u32,
    from: MemberId,
    chunks: u32,
    finish: Option<(u32, u64)>,
    phase: SinkPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkPhase {
    Arriving,
    /// The log after the kept entries is on its way.
    Resuming,
    Summing,
    Ready,
}

/// The primary's announcement of a snapshot (`Frame::Begin`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct LearnerOpening {
    pub(crate) epoch: Epoch,
    pub(crate) lineage: Lineage,
    pub(crate) session: u32,
    pub(crate) kept: u64,
    pub(crate) seq: u64,
    pub(crate) bytes: u64,
}

impl Sink {
    /// Whether the contents are those of one place of the log: no part of a snapshot is missing.
    pub(crate) fn complete(&self) -> bool {
        self.phase != SinkPhase::Arriving
    }

    /// Whether it waits for the alignment of this session.
    pub(crate) fn resumes(&self, session: u32, from: MemberId) -> bool {
        self.phase == SinkPhase::Resuming && self.session == session && self.from == from
    }
}

/// The learner's side.
impl Host {
    /// How much of a snapshot of `bytes` is in its first chunk.
    fn first_chunk(&self, bytes: u64) -> usize {
        usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(self.chunk_bytes())
    }

    /// Releases the room that was kept for snapshots that do not come any more.
    pub(crate) fn expect_only(&mut self, arrives: impl Fn(PartitionRef) -> bool) {
        self.copying.expected.retain(|at, _| arrives(*at));
    }
}

impl Slot {
    /// A snapshot begins. What the partition held is void, unless it is a copy that was in sync and
    /// that the log can complete.
    pub(crate) fn begin_sink(&mut self, host: &mut Host, from: MemberId, opening: LearnerOpening) {
        let LearnerOpening { epoch, seq, .. } = opening;
        let learner = self
            .installed
            .as_ref()
            .is_some_and(|a| host.tables.learners(&a.partition).any(|m| m == host.me));
        let following = self.following();
        let since = following.and_then(|following| following.follows(from, epoch));
        let Some(since) = since.filter(|_| learner && seq < frame::SEQ_MAX) else {
            // Its primary may have heard of a table earlier than this node.
            if !learner && self.installed.as_ref().is_none_or(|a| a.epoch <= epoch) {
                host.copying.early.insert(self.at, (from, opening));
            }
            return;
        };
        if let Some(mut following) = self.following().filter(|f| f.lineage == opening.lineage) {
            following.begin(host, from, since, opening);
        }
    }

    /// Drops the cleared entries of a map, some at a time, while a snapshot arrives.
    pub(crate) fn sift(&mut self, host: &mut Host) {
        let at = self.at;
        let Some(held) = self.held.as_mut().filter(|h| !h.store.is_sifted()) else {
            return;
        };
        let before = held.bytes();
        host.worked += SIFTED * ENTRY_WORK;
        let sifted = host
            .memory
            .garbage
            .collect(&mut host.timers, |maps| held.store.sift(SIFTED, maps));
        if !sifted {
            host.timers.wake(at, host.now + Duration::from_millis(1));
        }
        host.memory.recount(before, held.bytes());
    }
}

impl Following<'_> {
    /// The primary tells its learner something.
    pub(crate) fn told(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        frame: Frame,
    ) -> Result<(), Malformed> {
        match frame {
            Frame::Chunk {
                session,
                index,
                digest,
                body,
                ..
            } => self.chunk(cx, from, (session, index, digest), body)?,
            Frame::Outcomes { session, dedup, .. } => self.outcomes(from, session, dedup),
            Frame::Continue {
                epoch,
                session,
                next,
                ..
            } => self.continue_sink(cx, from, epoch, (session, next)),
            Frame::Finish {
                session,
                chunks,
                seq,
                ..
            } => self.finish(cx, from, (session, chunks, seq)),
            Frame::Compare {
                session,
                seq,
                sum,
                clock,
                ..
            } => self.compare(cx, from, (session, seq, sum), clock),
            _ => {}
        }
        Ok(())
    }

    /// A snapshot begins. What the partition held is void, unless it is a copy that was in sync and
    /// that the log can complete.
    fn begin(&mut self, cx: &mut Host, from: MemberId, since: Epoch, opening: LearnerOpening) {
        let LearnerOpening {
            epoch,
            session,
            kept,
            seq,
            bytes,
            ..
        } = opening;
        let fits = self.fits(cx, bytes);
        let committed = self.log.committed();
        let complete = *self.was_in_sync && self.follower.sink().is_none_or(Sink::complete);
        // An empty copy is better sent a snapshot than the whole log.
        if complete && committed >= kept && committed <= seq && self.log.last() > 0 {
            self.store.sums.clear();
            *self.fence = epoch;
            self.learn(Follow { since, session }, from, SinkPhase::Resuming);
            let holds = Frame::Holds {
                at: self.at,
                session,
                committed,
            };
            cx.peers.tell(from, &holds);
            return;
        }
        if !fits {
            let no_room = Frame::NoRoom {
                at: self.at,
                session,
            };
            return cx.peers.tell(from, &no_room);
        }
        if let Err(next) = cx.copying.rate.may_take(cx.now) {
            let ms = u32::try_from(next.since(cx.now).as_millis())
                .unwrap_or(u32::MAX)
                .saturating_add(1);
            let later = Frame::Later {
                at: self.at,
                session,
                ms,
            };
            return cx.peers.tell(from, &later);
        }
        // Its first chunk comes even if other snapshots begin in between.
        cx.copying.rate.taken(cx.first_chunk(bytes));
        cx.copying.expected.insert(self.at, bytes);
        cx.memory.bytes = cx.memory.bytes.saturating_sub(self.bytes());
        cx.memory
            .garbage
            .collect(&mut cx.timers, |maps| maps.append(&mut self.store.take()));
        // What the disk has is void as well.
        cx.disk.drop_log((self.at, self.lineage), self.log);
        *self.was_in_sync = false;
        *self.store = self.store.emptied();
        self.store
            .keep_tombstones(!broken(&mutant::RAISES_THE_DEAD));
        let log = std::mem::replace(self.log, Log::after(seq));
        cx.memory.garbage.add(log, &mut cx.timers);
        if !broken(&mutant::KEEPS_OUTCOMES) {
            *self.dedup = Dedup::default();
        }
        *self.fence = epoch;
        self.learn(Follow { since, session }, from, SinkPhase::Arriving);
        self.store.sums.begin(session);
        cx.memory.bytes += self.bytes();
        self.acknowledge(cx, from, epoch);
        fault::pass(Point::TargetBegins);
    }

    /// Whether `bytes` fit here, besides the memory that is kept for writes and the other snapshots
    /// under way.
    fn fits(&self, cx: &Host, bytes: u64) -> bool {
        let room = cx.headroom();
        // What the partition holds now is dropped first.
        let left = room.left.saturating_add(self.bytes() as u64);
        let others = cx
            .copying
            .expected
            .iter()
            .filter(|(p, _)| **p != self.at)
            .fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        left >= bytes
            .saturating_add(cx.kept_from(self.at, room))
            .saturating_add(others)
            || broken(&mutant::FILLS_THE_FULL)
    }

    /// The partition begins to learn: everything before is void.
    fn learn(&mut self, follow: Follow, from: MemberId, phase: SinkPhase) {
        let session = follow.session;
        let sink = Sink {
            session,
            sum: session,
            from,
            chunks: 0,
            finish: None,
            phase,
        };
        self.follower.bind(Bond::Learning(follow, sink));
    }

    /// Receives a part of the snapshot.
    pub(crate) fn chunk(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        (session, index, digest): (u32, u32, u64),
        body: Bytes,
    ) -> Result<(), Malformed> {
        let expected = self
            .follower
            .sink()
            .filter(|s| s.session == session && s.from == from && !s.complete())
            .map(|s| s.chunks + 1);
        let Some(expected) = expected else {
            return Ok(());
        };
        if index != expected || digest != digest_bytes([&*body]) {
            self.say_verdict(cx, from, session, false);
            return Ok(());
        }
        let body_bytes = body.len();
        let entries = frame::entries(body)?;
        cx.worked += entries.len() * ENTRY_WORK;
        let before = self.bytes();
        let mut adopted = 0;
        for (map, of, entry) in entries
            .into_iter()
            .skip(usize::from(broken(&mutant::LEARNS_UNPROVEN)))
        {
            adopted += usize::from(match of {
                None => self.store.adopt(map, entry),
                Some(key) => self.store.adopt_row(map, &key, entry),
            });
        }
        if let Some(sink) = self.follower.sink_mut() {
            sink.chunks = expected;
            let sum = sink.sum;
            // Summed as it is stored, while it is in the processor's caches. Entries that come by
            // the log are summed when the checksum gets to them.
            cx.worked += self.store.advance_sum(sum, adopted).1;
        }
        if !self.store.is_sifted() {
            cx.timers.wake(self.at, cx.now);
        }
        let grown = self.bytes().saturating_sub(before) as u64;
        cx.memory.recount(before, self.bytes());
        cx.copying
            .expected
            .entry(self.at)
            .and_modify(|bytes| *bytes = bytes.saturating_sub(grown));
        // The first chunk was counted when the snapshot began.
        let counted = if index == 1 {
            cx.first_chunk(body_bytes as u64)
        } else {
            0
        };
        cx.copying.late_acks.push_back(LateAck {
            from,
            at: self.at,
            session,
            index,
            bytes: body_bytes - counted,
        });
        cx.ack_chunks(cx.now);
        fault::pass(Point::TargetReceives);
        Ok(())
    }

    /// The connection was lost, or another epoch of the same tenure began. Answers how much of a
    /// snapshot has arrived.
    pub(crate) fn continue_sink(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        epoch: Epoch,
        (session, next): (u32, u32),
    ) {
        let Some(since) = self.follows(from, epoch) else {
            return;
        };
        // The primary may have asked before, and the answer was lost.
        let known = |s: u32| s == session || s == next;
        let goes_on = |f: &Follow, s: &Sink| {
            f.since == since
                && known(f.session)
                && known(s.session)
                && s.from == from
                && s.phase != SinkPhase::Resuming
        };
        let Some((follow, sink)) = self.follower.learning_mut().filter(|(f, s)| goes_on(f, s))
        else {
            let nothing = Frame::Arrived {
                at: self.at,
                session: next,
                chunks: 0,
                seq: 0,
                holds: false,
                finished: false,
            };
            return cx.peers.tell(from, &nothing);
        };
        (sink.session, follow.session) = (next, next);
        let (chunks, summed) = (sink.chunks, sink.phase != SinkPhase::Arriving);
        // A copy that got only the log has no chunks, and no end of them.
        let finished = summed || sink.finish.is_some();
        self.follower.wanted = None;
        *self.fence = epoch;
        let seq = self.log.last();
        let arrived = Frame::Arrived {
            at: self.at,
            session: next,
            chunks,
            seq,
            holds: true,
            finished,
        };
        cx.peers.tell(from, &arrived);
        if summed {
            // The message that the checksum is ready may be lost, and the checksum was dropped once
            // it was compared.
            self.store.sums.clear();
            self.sum_sink(cx);
        }
    }

    /// Receives the outcomes of some operations.
    pub(crate) fn outcomes(&mut self, from: MemberId, session: u32, dedup: Vec<Remembered>) {
        if self
            .follower
            .sink()
            .is_some_and(|s| s.session == session && s.from == from && s.finish.is_none())
        {
            for (origin, finished, applied) in dedup {
                self.dedup.adopt(origin, finished, applied);
            }
        }
    }

    /// The snapshot is complete.
    pub(crate) fn finish(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        (session, chunks, seq): (u32, u32, u64),
    ) {
        let sink = self.follower.sink_mut();
        if let Some(sink) =
            sink.filter(|s| s.session == session && s.from == from && s.finish.is_none())
        {
            sink.finish = Some((chunks, seq));
            self.prepare_sink(cx);
        }
    }

    /// If all chunks and the log have arrived, the learner is complete and builds its checksum.
    pub(crate) fn prepare_sink(&mut self, cx: &mut Host) {
        let Some(sink) = self.follower.sink() else {
            return;
        };
        let Some((chunks, seq)) = sink.finish else {
            return;
        };
        // Until all is sifted, its timer comes back here.
        if sink.phase != SinkPhase::Arriving || self.log.last() < seq || !self.store.is_sifted() {
            return;
        }
        if sink.chunks != chunks {
            // The bulk lane is in order, so a missing chunk will not come.
            let (session, from) = (sink.session, sink.from);
            self.say_verdict(cx, from, session, false);
            return;
        }
        self.store.keep_tombstones(false);
        cx.copying.expected.remove(&self.at);
        self.sum_sink(cx);
    }

    /// The learner has everything. It begins to build its checksum.
    pub(crate) fn sum_sink(&mut self, cx: &mut Host) {
        let Some(sink) = self.follower.sink_mut() else {
            return;
        };
        sink.phase = SinkPhase::Summing;
        let sum = sink.sum;
        self.log.keep_on_disk(cx, (self.at, self.lineage));
        if !self.store.sums.has(sum) {
            self.store.sums.begin(sum);
        }
        cx.timers.wake(self.at, cx.now);
    }

    /// The learner has everything, and can compare it.
    fn say_finished(&self, cx: &mut Host, to: MemberId, session: u32) {
        let finished = Frame::Finished {
            at: self.at,
            session,
        };
        cx.peers.tell(to, &finished);
    }

    /// Whether the learner has the same as its primary.
    fn say_verdict(&self, cx: &mut Host, to: MemberId, session: u32, equal: bool) {
        let verdict = Frame::Verdict {
            at: self.at,
            session,
            equal,
        };
        cx.peers.tell(to, &verdict);
    }

    /// Builds a slice of the learner's checksum.
    pub(crate) fn continue_sums(&mut self, cx: &mut Host) {
        let Some(sink) = self
            .follower
            .sink_mut()
            .filter(|s| s.phase == SinkPhase::Summing)
        else {
            return;
        };
        if summed(self.store, sink.sum, &mut cx.worked)
            && self.store.is_whole()
            && self.log.is_on_disk(cx, self.at)
        {
            sink.phase = SinkPhase::Ready;
            let (session, from) = (sink.session, sink.from);
            self.say_finished(cx, from, session);
            fault::pass(Point::TargetFinishes);
        } else {
            cx.timers.wake(self.at, cx.now + Duration::from_millis(1));
        }
    }

    /// Compares with the primary's checksum at the same sequence. If it differs, the snapshot is
    /// void.
    pub(crate) fn compare(
        &mut self,
        cx: &mut Host,
        from: MemberId,
        (session, seq, sum): (u32, u64, u64),
        clock: u64,
    ) {
        let ready = self
            .follower
            .sink()
            .filter(|s| s.session == session && s.from == from && s.phase == SinkPhase::Ready);
        let Some(name) = ready.map(|sink| sink.sum) else {
            return;
        };
        if self.log.last() != seq {
            self.say_finished(cx, from, session);
            return;
        }
        let Some(mine) = self.store.sums.of(name) else {
            // It compared before, and was asked twice how much had arrived.
            return self.sum_sink(cx);
        };
        // If nothing was written since, this is the first time that the learner hears the clock.
        let since = self
            .follower
            .follow()
            .map_or(Epoch(0), |follow| follow.since);
        self.clock.hear(clock, since, cx.now);
        let equal = mine == sum
            || [
                &mutant::LEARNS_UNPROVEN,
                &mutant::RAISES_THE_DEAD,
                &mutant::RAISES_FIELDS,
            ]
            .into_iter()
            .any(broken);
        self.store.sums.end(name);
        self.say_verdict(cx, from, session, equal);
        fault::pass(Point::TargetCompares);
    }
}
