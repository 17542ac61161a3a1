//! The learner's side of copying a partition: receives the snapshot, and compares checksums.

use super::super::dedup::{Dedup, Remembered};
use super::super::following::Follow;
use super::super::frame::{self, Frame};
use super::super::log::Log;
use super::super::role::{Bond, Role};
use super::super::store::digest_bytes;
use super::super::{Core, ENTRY_WORK, Held, Lane, Malformed, PartitionRef, Slot};
use super::summed;
use crate::fault::{self, Point};
use crate::mutant::{self, broken};
use bytes::Bytes;
use doyen_placement::{Epoch, Lineage, MemberId};
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
pub(crate) struct Opening {
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

impl Held {
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
        if let Some(follower) = self.follower_mut() {
            follower.bind(Bond::Learning(follow, sink));
        }
    }
}

/// The learner's side.
impl Core {
    /// A snapshot begins. What the partition held is void, unless it is a copy that was in sync and
    /// that the log can complete.
    pub(crate) fn begin_sink(&mut self, slot: &mut Slot, from: MemberId, opening: Opening) {
        let at = slot.at;
        let Opening {
            epoch,
            lineage,
            session,
            kept,
            seq,
            bytes,
        } = opening;
        let learner = slot
            .installed
            .as_ref()
            .is_some_and(|a| self.learners(&a.partition).any(|m| m == self.me));
        let Some(since) = self
            .follows(slot, from, epoch)
            .filter(|_| learner && seq < frame::SEQ_MAX)
        else {
            // Its primary may have heard of a table earlier than this node.
            if !learner && slot.installed.as_ref().is_none_or(|a| a.epoch <= epoch) {
                self.early.insert(at, (from, opening));
            }
            return;
        };
        let fits = self.fits(slot, bytes);
        let Some(held) = slot
            .held
            .as_mut()
            .filter(|h| h.lineage == lineage && h.lead().is_none())
        else {
            return;
        };
        let committed = held.log.committed();
        let complete = held.was_in_sync && held.sink().is_none_or(Sink::complete);
        // An empty copy is better sent a snapshot than the whole log.
        if complete && committed >= kept && committed <= seq && held.log.last() > 0 {
            held.store.end_sums();
            held.fence = epoch;
            held.learn(Follow { since, session }, from, SinkPhase::Resuming);
            self.peers.send(
                from,
                Lane::Calls,
                &Frame::Holds {
                    at,
                    session,
                    committed,
                },
            );
            return;
        }
        if !fits {
            return self
                .peers
                .send(from, Lane::Calls, &Frame::NoRoom { at, session });
        }
        if let Err(next) = self.pace.may_take(self.now) {
            let ms = u32::try_from(next.since(self.now).as_millis())
                .unwrap_or(u32::MAX)
                .saturating_add(1);
            return self
                .peers
                .send(from, Lane::Calls, &Frame::Later { at, session, ms });
        }
        // Its first chunk comes even if other snapshots begin in between.
        self.pace.taken(self.first_chunk(bytes));
        self.expected.insert(at, bytes);
        self.memory = self.memory.saturating_sub(held.bytes());
        self.garbage
            .collect(&mut self.timers, |maps| maps.append(&mut held.store.take()));
        held.was_in_sync = false;
        held.store = held.store.emptied();
        held.store
            .keep_tombstones(!broken(&mutant::RAISES_THE_DEAD));
        let log = std::mem::replace(&mut held.log, Log::after(seq));
        self.garbage.add(log, &mut self.timers);
        if !broken(&mutant::KEEPS_OUTCOMES) {
            held.dedup = Dedup::default();
        }
        held.fence = epoch;
        held.learn(Follow { since, session }, from, SinkPhase::Arriving);
        held.store.begin_sum(session);
        self.memory += held.bytes();
        self.acknowledge(held, from, epoch);
        fault::pass(Point::TargetBegins);
    }

    /// How much of so many bytes is in the first chunk.
    fn first_chunk(&self, bytes: u64) -> usize {
        usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(self.chunk_bytes())
    }

    /// Whether so much fits here, besides the memory that is kept for writes and the other
    /// snapshots under way.
    fn fits(&self, slot: &Slot, bytes: u64) -> bool {
        let at = slot.at;
        let room = self.headroom();
        // What the partition holds now is dropped first.
        let left = room
            .left
            .saturating_add(slot.held.as_ref().map_or(0, |held| held.bytes() as u64));
        let others = self
            .expected
            .iter()
            .filter(|(p, _)| **p != at)
            .fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        left >= bytes
            .saturating_add(self.kept_from(at, room))
            .saturating_add(others)
            || broken(&mutant::FILLS_THE_FULL)
    }

    /// Receives a part of the snapshot.
    pub(crate) fn chunk(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        (session, index, digest): (u32, u32, u64),
        body: Bytes,
    ) -> Result<(), Malformed> {
        let at = slot.at;
        let Some(held) = &mut slot.held else {
            return Ok(());
        };
        let expected = held
            .sink()
            .filter(|s| s.session == session && s.from == from && !s.complete())
            .map(|s| s.chunks + 1);
        let Some(expected) = expected else {
            return Ok(());
        };
        if index != expected || digest != digest_bytes([&*body]) {
            self.peers.send(
                from,
                Lane::Calls,
                &Frame::Verdict {
                    at,
                    session,
                    equal: false,
                },
            );
            return Ok(());
        }
        let body_bytes = body.len();
        let entries = frame::entries(body)?;
        self.worked += entries.len() * ENTRY_WORK;
        let before = held.bytes();
        let mut adopted = 0;
        for (map, entry) in entries
            .into_iter()
            .skip(usize::from(broken(&mutant::LEARNS_UNPROVEN)))
        {
            adopted += usize::from(held.store.adopt(map, entry));
        }
        if let Some(sink) = held.sink_mut() {
            sink.chunks = expected;
            let sum = sink.sum;
            // Summed as it is stored, while it is in the processor's caches. Entries that come by
            // the log are summed when the checksum gets to them.
            self.worked += held.store.advance_sum(sum, adopted).1;
        }
        let grown = held.bytes().saturating_sub(before) as u64;
        self.memory = (self.memory + held.bytes()).saturating_sub(before);
        self.expected
            .entry(at)
            .and_modify(|bytes| *bytes = bytes.saturating_sub(grown));
        // The first chunk was counted when the snapshot began.
        let counted = if index == 1 {
            self.first_chunk(body_bytes as u64)
        } else {
            0
        };
        self.late_acks.push_back(LateAck {
            from,
            at,
            session,
            index,
            bytes: body_bytes - counted,
        });
        self.ack_chunks(self.now);
        fault::pass(Point::TargetReceives);
        Ok(())
    }

    /// The connection was lost, or another epoch of the same tenure began. Answers how much of a
    /// snapshot has arrived.
    pub(crate) fn continue_sink(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        epoch: Epoch,
        (session, next): (u32, u32),
    ) {
        let at = slot.at;
        let Some(since) = self.follows(slot, from, epoch) else {
            return;
        };
        let Some(held) = slot.held.as_deref_mut() else {
            return;
        };
        let Some(follower) = held.follower_mut() else {
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
        let Some((follow, sink)) = follower.learning_mut().filter(|(f, s)| goes_on(f, s)) else {
            let nothing = Frame::Arrived {
                at,
                session: next,
                chunks: 0,
                seq: 0,
                holds: false,
                finished: false,
            };
            return self.peers.send(from, Lane::Calls, &nothing);
        };
        (sink.session, follow.session) = (next, next);
        let (chunks, summed) = (sink.chunks, sink.phase != SinkPhase::Arriving);
        // A copy that got only the log has no chunks, and no end of them.
        let finished = summed || sink.finish.is_some();
        follower.wanted = None;
        held.fence = epoch;
        let seq = held.log.last();
        self.peers.send(
            from,
            Lane::Calls,
            &Frame::Arrived {
                at,
                session: next,
                chunks,
                seq,
                holds: true,
                finished,
            },
        );
        if summed {
            // The message that the checksum is ready may be lost, and the checksum was dropped once
            // it was compared.
            held.store.end_sums();
            self.sum_sink(held);
        }
    }

    /// Receives the outcomes of some operations.
    pub(crate) fn outcomes(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        session: u32,
        dedup: Vec<Remembered>,
    ) {
        let Some(held) = &mut slot.held else { return };
        if held
            .sink()
            .is_some_and(|s| s.session == session && s.from == from && s.finish.is_none())
        {
            for (origin, finished, applied) in dedup {
                held.dedup.adopt(origin, finished, applied);
            }
        }
    }

    /// The snapshot is complete.
    pub(crate) fn finish(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        (session, chunks, seq): (u32, u32, u64),
    ) {
        let sink = slot.held.as_mut().and_then(|h| h.sink_mut());
        if let Some(sink) =
            sink.filter(|s| s.session == session && s.from == from && s.finish.is_none())
        {
            sink.finish = Some((chunks, seq));
            self.prepare_sink(slot);
        }
    }

    /// Drops the cleared entries of a map, some at a time, while a snapshot arrives.
    pub(crate) fn sift(&mut self, slot: &mut Slot) {
        let at = slot.at;
        let Some(held) = slot.held.as_mut().filter(|h| !h.store.is_sifted()) else {
            return;
        };
        let before = held.bytes();
        self.worked += SIFTED * ENTRY_WORK;
        let sifted = self
            .garbage
            .collect(&mut self.timers, |maps| held.store.sift(SIFTED, maps));
        if !sifted {
            self.timers.wake(at, self.now + Duration::from_millis(1));
        }
        self.memory = (self.memory + held.bytes()).saturating_sub(before);
    }

    /// If all chunks and the log have arrived, the learner is complete and builds its checksum.
    pub(crate) fn prepare_sink(&mut self, slot: &mut Slot) {
        let at = slot.at;
        let Some(held) = &mut slot.held else { return };
        let Some(sink) = held.sink() else { return };
        let Some((chunks, seq)) = sink.finish else {
            return;
        };
        // Until all is sifted, its timer comes back here.
        if sink.phase != SinkPhase::Arriving || held.log.last() < seq || !held.store.is_sifted() {
            return;
        }
        if sink.chunks != chunks {
            // The bulk lane is in order, so a missing chunk will not come.
            let (session, from) = (sink.session, sink.from);
            self.peers.send(
                from,
                Lane::Calls,
                &Frame::Verdict {
                    at,
                    session,
                    equal: false,
                },
            );
            return;
        }
        held.store.keep_tombstones(false);
        self.expected.remove(&at);
        self.sum_sink(held);
    }

    /// Releases the room that was kept for snapshots that do not come any more.
    pub(crate) fn expect_only(&mut self, arrives: impl Fn(PartitionRef) -> bool) {
        self.expected.retain(|at, _| arrives(*at));
    }

    /// The learner has everything. It begins to build its checksum.
    pub(crate) fn sum_sink(&mut self, held: &mut Held) {
        let at = held.at;
        let Some(sink) = held.sink_mut() else { return };
        sink.phase = SinkPhase::Summing;
        let sum = sink.sum;
        if !held.store.sums(sum) {
            held.store.begin_sum(sum);
        }
        self.timers.wake(at, self.now);
    }

    /// Builds a slice of the learner's checksum.
    pub(crate) fn continue_sums(&mut self, slot: &mut Slot) {
        let at = slot.at;
        let Some(held) = &mut slot.held else { return };
        let Held {
            role: Role::Follower(follower),
            store,
            ..
        } = &mut **held
        else {
            return;
        };
        let Some(sink) = follower
            .sink_mut()
            .filter(|s| s.phase == SinkPhase::Summing)
        else {
            return;
        };
        if summed(store, sink.sum, &mut self.worked) && store.is_whole() {
            sink.phase = SinkPhase::Ready;
            let (session, from) = (sink.session, sink.from);
            self.peers
                .send(from, Lane::Calls, &Frame::Finished { at, session });
            fault::pass(Point::TargetFinishes);
        } else {
            self.timers.wake(at, self.now + Duration::from_millis(1));
        }
    }

    /// Compares with the primary's checksum at the same sequence. If it differs, the snapshot is
    /// void.
    pub(crate) fn compare(
        &mut self,
        slot: &mut Slot,
        from: MemberId,
        (session, seq, sum): (u32, u64, u64),
        clock: u64,
    ) {
        let at = slot.at;
        let Some(held) = &mut slot.held else { return };
        let ready = held
            .sink()
            .filter(|s| s.session == session && s.from == from && s.phase == SinkPhase::Ready);
        let Some(name) = ready.map(|sink| sink.sum) else {
            return;
        };
        if held.log.last() != seq {
            self.peers
                .send(from, Lane::Calls, &Frame::Finished { at, session });
            return;
        }
        let Some(mine) = held.store.sum(name) else {
            // It compared before, and was asked twice how much had arrived.
            return self.sum_sink(held);
        };
        // If nothing was written since, this is the first time that the learner hears the clock.
        held.clock.hear(clock, self.now);
        let equal =
            mine == sum || broken(&mutant::LEARNS_UNPROVEN) || broken(&mutant::RAISES_THE_DEAD);
        held.store.end_sum(name);
        self.peers
            .send(from, Lane::Calls, &Frame::Verdict { at, session, equal });
        fault::pass(Point::TargetCompares);
    }
}
