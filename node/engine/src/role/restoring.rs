//! Reads partitions back from the log of a disk.
//!
//! ```text
//!   first:  each head ──> DiskPlan: which snapshot of each partition is the last whole one
//!   then:   each record from there on ──> its chunks, and the log beside and behind them
//!           ──> a copy that follows no primary yet, and has all that the disk had
//! ```
//! What misses anything is refused: a chunk, an entry, or what may have stood where the log is
//! damaged.

use crate::log::partition_log::{Log, Logged};
use crate::role::disk::DiskRecordKind;
use crate::role::host::Host;
use crate::role::partition::Held;
use crate::role::slots::Slots;
use crate::role::tables::ShardTables;
use crate::store::{Undo, digest_bytes};
use crate::value::cause::By;
use crate::wire::api::{Limits, Malformed};
use crate::wire::frame::{self, Frame};
use bytes::{Buf, BytesMut};
use doyen_disk::RecordHead;
use doyen_gossip::Time;
use doyen_placement::{Lineage, PartitionRef, Table, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries of a cleared map that are looked at together.
const SIFTED: usize = 4_096;

/// A snapshot whose end is in the log.
#[derive(Debug, Clone, Copy)]
struct WholeSnapshot {
    /// The places of its first and its last record.
    places: (u64, u64),
    chunks: u64,
    /// It has the log up to here.
    end: u64,
}

/// Which records of a log count. It is made from all their heads.
#[derive(Debug, Default)]
pub struct DiskPlan {
    begun: BTreeMap<PartitionRef, u64>,
    whole: BTreeMap<PartitionRef, WholeSnapshot>,
}

impl DiskPlan {
    /// Notes a record that begins at this place. Call it for all of a log, in their order.
    pub fn note(&mut self, head: &RecordHead, place: u64) {
        match DiskRecordKind::of(head.kind) {
            Some(DiskRecordKind::Begins) => {
                self.begun.insert(head.at, place);
            }
            Some(DiskRecordKind::Ends) => {
                if let Some(begins) = self.begun.remove(&head.at) {
                    let whole = WholeSnapshot {
                        places: (begins, place),
                        chunks: head.first,
                        end: head.last,
                    };
                    self.whole.insert(head.at, whole);
                }
            }
            Some(DiskRecordKind::Dropped) => {
                self.begun.remove(&head.at);
                self.whole.remove(&head.at);
            }
            _ => {}
        }
    }

    /// The partitions whose snapshot is whole, and where its first record is. They need nothing
    /// before that.
    pub fn covers(&self) -> impl Iterator<Item = (PartitionRef, u64)> + '_ {
        self.whole.iter().map(|(at, whole)| (*at, whole.places.0))
    }
}

/// A partition that a disk had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredPartition {
    /// The partition.
    pub at: PartitionRef,
    /// Its lineage.
    pub lineage: Lineage,
    /// The setting of its keyspace for which the disk had it
    /// (`Keyspace::durable_since`).
    pub since: Version,
    /// The last entry that the disk had.
    pub last: u64,
}

/// A partition that is read back.
#[derive(Debug)]
struct PartitionReading {
    held: Box<Held>,
    whole: WholeSnapshot,
    since: u64,
    chunks: u64,
    /// Whether all of the snapshot is there.
    filled: bool,
    /// What its clock showed with the latest record, and wall time then.
    clock: (u64, u64),
    /// Records of it may be missing since it was last known to be sound.
    doubted: bool,
}

/// Partitions that are read back from the log of a disk.
#[derive(Debug)]
pub struct DiskReading {
    tables: ShardTables,
    limits: Limits,
    now: Time,
    plan: DiskPlan,
    partitions: BTreeMap<PartitionRef, PartitionReading>,
    refused: BTreeMap<PartitionRef, &'static str>,
}

impl DiskReading {
    /// Begins with the latest table that the process before knew.
    #[must_use]
    pub fn new(table: Arc<Table>, limits: Limits, plan: DiskPlan, now: Time) -> Self {
        Self {
            tables: ShardTables::of(table),
            limits,
            now,
            plan,
            partitions: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Takes a record of the log. Call it for all of them, in their order.
    pub fn record(&mut self, head: &RecordHead, place: u64, body: &[u8]) {
        let at = head.at;
        let Some(whole) = self.plan.whole.get(&at).copied() else {
            return;
        };
        if place < whole.places.0 || self.refused.contains_key(&at) {
            return;
        }
        let read = match DiskRecordKind::of(head.kind) {
            Some(DiskRecordKind::Begins) if place == whole.places.0 => {
                self.begin(head, whole, body)
            }
            Some(kind) => match self.partitions.get_mut(&at) {
                Some(reading) => reading.take((kind, head), place, body, &self.limits),
                None => Err(Malformed("its snapshot does not begin")),
            },
            None => Err(Malformed("a later program has written it")),
        };
        if let Err(Malformed(why)) = read {
            self.refuse(at, why);
        }
    }

    /// A part of the log is damaged. What was in it is not known.
    pub fn damage(&mut self) {
        for reading in self.partitions.values_mut() {
            reading.doubted = true;
        }
    }

    fn refuse(&mut self, at: PartitionRef, why: &'static str) {
        self.partitions.remove(&at);
        self.refused.insert(at, why);
    }

    fn begin(
        &mut self,
        head: &RecordHead,
        whole: WholeSnapshot,
        body: &[u8],
    ) -> Result<(), Malformed> {
        let (_, mut rest) = dated(body)?;
        let since = rest
            .try_get_u64_le()
            .map_err(|_| Malformed("a short record"))?;
        let mut held = Held::empty(head.at, head.lineage, &self.tables, self.now);
        held.log = Log::after(head.last);
        held.store.keep_tombstones(true);
        let reading = PartitionReading {
            held: Box::new(held),
            whole,
            since,
            chunks: 0,
            filled: false,
            clock: (0, 0),
            doubted: false,
        };
        self.partitions.insert(head.at, reading);
        Ok(())
    }
}

/// The wall time of a record, and what is behind it.
fn dated(body: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (time, rest) = body
        .split_first_chunk()
        .ok_or(Malformed("a short record"))?;
    Ok((u64::from_le_bytes(*time), rest))
}

/// The frame of a record.
fn frame_of(body: &[u8]) -> Result<Frame, Malformed> {
    let mut bytes = BytesMut::from(body);
    match frame::take(&mut bytes, body.len())? {
        Some((frame, _)) if bytes.is_empty() => Ok(frame),
        _ => Err(Malformed("a record with half a frame")),
    }
}

impl PartitionReading {
    fn take(
        &mut self,
        (kind, head): (DiskRecordKind, &RecordHead),
        place: u64,
        body: &[u8],
        limits: &Limits,
    ) -> Result<(), Malformed> {
        let of_snapshot = place <= self.whole.places.1;
        match kind {
            DiskRecordKind::Entries => self.entries(head, body, limits),
            DiskRecordKind::Undone => self.undone(head.first),
            DiskRecordKind::Ends if of_snapshot => {
                self.fill()?;
                self.follow(body).map(|_| ())
            }
            DiskRecordKind::Chunk if of_snapshot => self.chunk(body),
            DiskRecordKind::Outcomes if of_snapshot => {
                let Frame::Outcomes { dedup, .. } = frame_of(dated(body)?.1)? else {
                    return Err(Malformed("a record without outcomes"));
                };
                for (origin, finished, applied) in dedup {
                    self.held.dedup.adopt(origin, finished, applied);
                }
                Ok(())
            }
            // Another snapshot was not finished. What it was to replace is here.
            _ => Ok(()),
        }
    }

    fn chunk(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let Frame::Chunk {
            index,
            digest,
            body,
            ..
        } = frame_of(dated(body)?.1)?
        else {
            return Err(Malformed("a record without a chunk"));
        };
        self.chunks += 1;
        if u64::from(index) != self.chunks || digest != digest_bytes([&*body]) {
            return Err(Malformed("a part of the snapshot is missing"));
        }
        let store = &mut self.held.store;
        for (map, of, entry) in frame::entries(body)? {
            match of {
                None => store.adopt(map, entry),
                Some(key) => store.adopt_row(map, &key, entry),
            };
        }
        Ok(())
    }

    /// All of the snapshot is there.
    fn fill(&mut self) -> Result<(), Malformed> {
        if self.filled {
            return Ok(());
        }
        let held = &mut self.held;
        if self.chunks != self.whole.chunks || held.log.last() != self.whole.end {
            return Err(Malformed("a part of the snapshot is missing"));
        }
        let mut maps = Vec::new();
        while !held.store.sift(SIFTED, &mut maps) {
            maps.clear();
        }
        held.store.keep_tombstones(false);
        held.log.commit(self.whole.end, &mut maps);
        self.filled = true;
        Ok(())
    }

    /// Takes over what a frame of the log says of its partition.
    fn follow(&mut self, body: &[u8]) -> Result<Vec<Logged>, Malformed> {
        let (unix_ms, body) = dated(body)?;
        let Frame::Append { head, entries } = frame_of(body)? else {
            return Err(Malformed("a record without entries"));
        };
        let held = &mut self.held;
        held.fence = held.fence.max(head.epoch);
        held.epoch = held.fence;
        self.clock = (head.clock, unix_ms);
        held.log.commit(head.committed, &mut Vec::new());
        Ok(entries)
    }

    fn entries(
        &mut self,
        head: &RecordHead,
        body: &[u8],
        limits: &Limits,
    ) -> Result<(), Malformed> {
        let last = self.held.log.last();
        if head.first > last + 1 {
            return Err(Malformed("entries are missing"));
        }
        if head.first <= last {
            self.undone(head.first)?;
        }
        let entries = self.follow(body)?;
        if head.first + entries.len() as u64 != head.last + 1 {
            return Err(Malformed("a record with other entries than it says"));
        }
        self.doubted = false;
        for logged in entries {
            if !self.filled
                && self.held.log.last() == self.whole.end
                && self.chunks == self.whole.chunks
            {
                self.fill()?;
            }
            let held = &mut self.held;
            let seq = held.log.last() + 1;
            if let Some(op) = logged.op {
                held.dedup.remember(op, seq, logged.outcome.clone());
            }
            let undo = if self.filled {
                held.store.apply(seq, &logged.effect)
            } else {
                held.store.apply_fuzzy(seq, &logged.effect);
                Undo::Nothing
            };
            held.log.push(logged, undo, (By::UNKNOWN, false));
        }
        self.held.log.trim(limits.tail_bytes_least, u64::MAX);
        Ok(())
    }

    /// Entries from this one on were undone.
    fn undone(&mut self, from: u64) -> Result<(), Malformed> {
        let held = &mut self.held;
        while held.log.last() >= from {
            let Some((seq, logged, undo)) = held.log.pop() else {
                return Err(Malformed("a committed entry was undone"));
            };
            held.store.undo(&logged.effect, undo);
            if let Some(op) = logged.op {
                held.dedup.forget(op, seq);
            }
        }
        self.doubted = false;
        Ok(())
    }
}

impl DiskReading {
    /// Takes the partitions that were read back, as copies that follow no primary yet. Returns them,
    /// and why others are refused. `unix_ms`: wall time now, by which their clocks go on.
    pub(crate) fn finish(
        self,
        slots: &mut Slots,
        host: &mut Host,
        unix_ms: u64,
    ) -> (Vec<RestoredPartition>, Vec<(PartitionRef, &'static str)>) {
        let mut restored = Vec::new();
        let mut refused: Vec<_> = self.refused.into_iter().collect();
        for (at, reading) in self.partitions {
            if !reading.filled || reading.doubted {
                refused.push((at, "records of it may be missing"));
                continue;
            }
            let mut held = reading.held;
            held.was_in_sync = true;
            let (clock, then) = reading.clock;
            let passed = unix_ms.saturating_sub(then);
            held.clock.raise(clock.saturating_add(passed), host.now);
            restored.push(RestoredPartition {
                at,
                lineage: held.lineage,
                since: Version(reading.since),
                last: held.log.last(),
            });
            host.disk.restored(&mut held.log, reading.since);
            host.memory.bytes += held.bytes();
            let slot = slots.get_or_insert(at);
            slot.lineage = Some(held.lineage);
            slot.held = Some(held);
        }
        (restored, refused)
    }
}
