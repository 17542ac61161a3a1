//! The disk of a data thread: each partition that is kept there has a snapshot in the log of the
//! disk, and its own log behind it.
//!
//! ```text
//!   logged or undone ──> noted ──> give ─────────┐
//!   begins to be kept ─> queue ──> walk, a chunk ├──> DiskBatch, one a pass ──> the disk thread
//!   dropped ─────────────────────────────────────┘                                   │
//!   commits, acknowledges <── the part of each partition <──────── synced(batch) ────┘
//! ```
//! The records of a partition are in the order in which things happened: a chunk has its keys as
//! they were when it was given, and what changed since comes behind it. A snapshot ends once what
//! it has is committed, so none of it is ever undone. Until then, the one before counts.

use crate::log::disk_tail::{DiskWalk, GivenPart};
use crate::log::partition_log::Log;
use crate::role::copying::Sink;
use crate::role::host::Host;
use crate::role::partition::{Held, Slot};
use crate::role::timers::Duty;
use crate::store::SumCursor;
use crate::value::entry::ENTRY_WORK;
use crate::wire::frame::{self, Frame, FrameHead, Out};
use bytes::Bytes;
use doyen_disk::RecordHead;
use doyen_placement::{Epoch, Lineage, PartitionRef};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a batch, after which the rest waits for the next one.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes that may be on their way to the disk. What comes then waits in the logs.
const UNDER_WAY_BYTES: usize = 32 << 20;
/// Bytes of snapshots in one batch, and those that may be on their way.
const WALK_BYTES: usize = 256 << 10;
const WALK_UNDER_WAY_BYTES: usize = 4 << 20;
/// Entries of one chunk at most.
const CHUNK_ENTRIES: usize = 1_000;

/// What a record of the disk has. The numbers are on disks: none is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DiskRecordKind {
    /// Entries of the log, from `first` to `last`.
    Entries = 1,
    /// A snapshot begins after `last`. Whatever the disk had of the partition is void.
    Begins = 2,
    /// A part of the snapshot, the one with the number `first`.
    Chunk = 3,
    /// Outcomes of operations, a part of the snapshot.
    Outcomes = 4,
    /// The snapshot has `first` chunks, and the log up to `last` is before it.
    Ends = 5,
    /// The entries from `first` on were undone.
    Undone = 6,
    /// The node has nothing of the partition any more.
    Dropped = 7,
}

impl DiskRecordKind {
    /// The kind with this number.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Entries,
            2 => Self::Begins,
            3 => Self::Chunk,
            4 => Self::Outcomes,
            5 => Self::Ends,
            6 => Self::Undone,
            7 => Self::Dropped,
            _ => return None,
        })
    }
}

/// A record for the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRecord {
    /// What it is of.
    pub head: RecordHead,
    /// Its bytes.
    pub body: Bytes,
}

/// The records of one pass. They are synced together.
#[derive(Debug, Default)]
pub struct DiskBatch {
    /// Its number. Numbers rise.
    pub number: u64,
    /// In the order in which they are written.
    pub records: Vec<DiskRecord>,
}

/// What is on its way.
#[derive(Debug)]
pub(crate) struct BatchUnderWay {
    pub(crate) number: u64,
    pub(crate) bytes: usize,
    pub(crate) walked: usize,
    pub(crate) parts: Vec<(PartitionRef, GivenPart)>,
}

/// The snapshot that is being given.
#[derive(Debug)]
pub(crate) struct PartitionWalk {
    pub(crate) at: PartitionRef,
    pub(crate) number: u32,
    cursor: SumCursor,
    chunks: u64,
}

/// The disk, as its data thread sees it.
#[derive(Debug, Default)]
pub(crate) struct ShardDisk {
    /// Whether there is one.
    pub(crate) on: bool,
    pub(crate) numbers: u32,
    pub(crate) batches: u64,
    /// Partitions with something to give.
    pub(crate) noted: VecDeque<PartitionRef>,
    /// Partitions whose snapshot waits.
    pub(crate) queue: VecDeque<PartitionRef>,
    pub(crate) walk: Option<PartitionWalk>,
    /// The next batch: its records, their bytes, and those of them that are of snapshots.
    pub(crate) records: Vec<DiskRecord>,
    pub(crate) bytes: usize,
    pub(crate) walked: usize,
    /// The partitions in it, and those whose snapshot ends with it.
    pub(crate) touched: BTreeMap<PartitionRef, bool>,
    pub(crate) under_way: VecDeque<BatchUnderWay>,
}

impl ShardDisk {
    /// The name of another log.
    const fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// A partition may have something to give.
    #[inline]
    pub(crate) fn note(&mut self, at: PartitionRef, log: &mut Log) {
        if log.disk.is_kept() && !std::mem::replace(&mut log.disk.noted, true) {
            self.noted.push_back(at);
        }
    }

    /// What the next batch has of a partition.
    pub(crate) fn put(
        &mut self,
        kind: DiskRecordKind,
        (at, lineage): (PartitionRef, Lineage),
        (first, last): (u64, u64),
        body: impl IntoIterator<Item = Bytes>,
    ) {
        let body: Vec<u8> = body.into_iter().flatten().collect();
        self.bytes += body.len();
        *self.touched.entry(at).or_default() |= kind == DiskRecordKind::Ends;
        let head = RecordHead {
            kind: kind as u8,
            at,
            lineage,
            first,
            last,
        };
        let body = body.into();
        self.records.push(DiskRecord { head, body });
    }

    /// The node has nothing of a partition any more, or does not keep it on the disk.
    pub(crate) fn drop_log(&mut self, of: (PartitionRef, Lineage), log: &mut Log) {
        if log.disk.is_kept() {
            log.disk.begin((0, 0), 0, false);
            self.put(DiskRecordKind::Dropped, of, (0, 0), None);
        }
    }

    /// The disk has all of a log that was read from it.
    pub(crate) fn restored(&mut self, log: &mut Log, since: u64) {
        let last = log.last();
        log.disk.begin((self.number(), since), last, true);
    }

    pub(crate) fn has_room(&self) -> bool {
        let under_way: usize = self.under_way.iter().map(|batch| batch.bytes).sum();
        under_way + self.bytes < UNDER_WAY_BYTES && self.bytes < BATCH_BYTES
    }

    pub(crate) fn may_walk(&self) -> bool {
        let walked: usize = self.under_way.iter().map(|batch| batch.walked).sum();
        walked < WALK_UNDER_WAY_BYTES && self.walked < WALK_BYTES && self.has_room()
    }
}

/// Frames behind the wall time, as they stand in a record.
fn dated(unix_ms: u64, put: impl FnOnce(&mut Out)) -> impl Iterator<Item = Bytes> {
    let mut out = Out::default();
    put(&mut out);
    let time = Bytes::copy_from_slice(&unix_ms.to_le_bytes());
    std::iter::once(time).chain(out.take())
}

impl Log {
    /// Keeps the log of a partition on the disk, or ends that, as its keyspace says.
    pub(crate) fn keep_on_disk(&mut self, host: &mut Host, of: (PartitionRef, Lineage)) {
        if !host.disk.on {
            return;
        }
        let (at, _) = of;
        let kept = self.disk.is_kept();
        // The table of a process that is no member yet may be older than what its disk has.
        if kept && !host.tables.name_member(host.me.member()) {
            return;
        }
        match host.tables.durable_since(at.keyspace) {
            Some(since) if !kept || since != self.disk.since => {
                // From its first entry on, a partition that begins empty waits for the disk.
                let empty = self.last() == 0;
                self.disk
                    .begin((host.disk.number(), since), self.last(), false);
                if empty {
                    begins(host.unix_ms(), since, (of, 0), &mut host.disk);
                    self.end_walk(host, of, (Epoch(0), 0, 0));
                } else {
                    // The log of a former copy must not seem to go on with this one.
                    host.disk.put(DiskRecordKind::Dropped, of, (0, 0), None);
                    self.want_walk(host, at);
                }
            }
            Some(_) => {}
            None => host.disk.drop_log(of, self),
        }
    }

    /// Whether the disk has all of a partition, if it must have that.
    pub(crate) fn is_on_disk(&self, host: &Host, at: PartitionRef) -> bool {
        !host.disk.on || self.disk.is_whole() || host.tables.durable_since(at.keyspace).is_none()
    }

    /// A snapshot gets in line.
    pub(crate) fn want_walk(&mut self, host: &mut Host, at: PartitionRef) {
        self.disk.walk = DiskWalk::Waiting;
        host.disk.queue.push_back(at);
        host.timers.set(Duty::Disk, host.now);
    }

    /// Gives the end of a snapshot.
    fn end_walk(
        &mut self,
        host: &mut Host,
        of: (PartitionRef, Lineage),
        (epoch, clock, chunks): (Epoch, u64, u64),
    ) {
        let end = match self.disk.walk {
            DiskWalk::Walked(end) => end,
            _ => self.disk.given,
        };
        self.disk.end_walk(end);
        let head = FrameHead {
            at: of.0,
            epoch,
            session: 0,
            committed: self.committed(),
            clock,
            first: end + 1,
        };
        let body = dated(host.unix_ms(), |out| {
            frame::append(out, &head, [].into_iter());
        });
        host.disk.put(DiskRecordKind::Ends, of, (chunks, end), body);
    }
}

/// Gives the beginning of a snapshot.
fn begins(
    unix_ms: u64,
    since: u64,
    (of, seq): ((PartitionRef, Lineage), u64),
    disk: &mut ShardDisk,
) {
    let body = dated(unix_ms, |out| frame::put_number(out, since));
    disk.put(DiskRecordKind::Begins, of, (seq, seq), body);
}

impl Held {
    /// Gives the disk what was logged or undone since.
    pub(crate) fn give(&mut self, host: &mut Host) {
        let of = (self.at, self.lineage);
        self.log.disk.noted = false;
        if !self.log.disk.is_kept() {
            return;
        }
        if std::mem::take(&mut self.log.disk.undone) {
            let from = self.log.disk.given + 1;
            host.disk
                .put(DiskRecordKind::Undone, of, (from, from), None);
            // What was undone may be in its chunks.
            if let DiskWalk::Walking | DiskWalk::Walked(_) = self.log.disk.walk {
                self.walk_again(host);
            }
        }
        if self.log.disk.given < self.log.base() {
            // What the disk lacks is in no log any more: it begins again.
            host.disk.walk.take_if(|walk| walk.at == self.at);
            host.disk.drop_log(of, &mut self.log);
            return self.log.keep_on_disk(host, of);
        }
        let clock = self.clock.advance(host.now);
        while self.log.disk.given < self.log.last() {
            if !host.disk.has_room() {
                return host.disk.note(self.at, &mut self.log);
            }
            let first = self.log.disk.given + 1;
            let last = first + self.log.frame_from(first) - 1;
            let head = FrameHead {
                at: self.at,
                epoch: self.epoch.max(self.fence),
                session: 0,
                committed: self.log.committed(),
                clock,
                first,
            };
            let entries = (first..=last).filter_map(|seq| self.log.entry(seq));
            let body = dated(host.unix_ms(), |out| frame::append(out, &head, entries));
            host.disk
                .put(DiskRecordKind::Entries, of, (first, last), body);
            self.log.disk.given = last;
        }
    }

    /// Whether the end of a snapshot may be given: none of it can be undone, and what has counted
    /// without the disk stands before it.
    pub(crate) fn may_end_walk(&self, end: u64) -> bool {
        self.log.committed() >= end && self.log.disk.given == self.log.last()
    }

    fn walk_again(&mut self, host: &mut Host) {
        host.disk.walk.take_if(|walk| walk.at == self.at);
        self.log.want_walk(host, self.at);
    }

    /// Begins a snapshot. False: a copy is still arriving here, or keys are still to be drawn.
    pub(crate) fn walk_from_here(&mut self, host: &mut Host) -> bool {
        let arrives = !self.sink().is_none_or(Sink::complete);
        if arrives || !self.store.is_whole() || !self.store.is_sifted() {
            return false;
        }
        self.give(host);
        if self.log.disk.given < self.log.last() {
            return false;
        }
        let seq = self.log.last();
        let of = ((self.at, self.lineage), seq);
        begins(host.unix_ms(), self.log.disk.since, of, &mut host.disk);
        self.log.disk.walk = DiskWalk::Walking;
        host.disk.walk = Some(PartitionWalk {
            at: self.at,
            number: self.log.disk.number,
            cursor: None,
            chunks: 0,
        });
        true
    }

    /// Gives the next part of a snapshot: a chunk, behind them the outcomes, and the end once all
    /// that is committed. False: that was all.
    pub(crate) fn walk(&mut self, host: &mut Host, walk: &mut PartitionWalk) -> bool {
        let of = (self.at, self.lineage);
        if let DiskWalk::Walked(end) = self.log.disk.walk {
            if !self.may_end_walk(end) {
                return true;
            }
            let clock = self.clock.advance(host.now);
            let epoch = self.epoch.max(self.fence);
            self.log.end_walk(host, of, (epoch, clock, walk.chunks));
            return false;
        }
        let most = host.limits.chunk_bytes;
        let following = self.store.following(&walk.cursor);
        let mut following = following.take(CHUNK_ENTRIES).peekable();
        if following.peek().is_none() {
            for (origin, finished, applied) in self.dedup.all() {
                // One record at a time: an outcome may be as large as a value.
                let records = applied.iter().map(|record| vec![record.clone()]);
                for dedup in records.chain([Vec::new()]) {
                    let outcomes = Frame::Outcomes {
                        at: self.at,
                        session: 0,
                        dedup: vec![(origin, finished, dedup)],
                    };
                    let body = dated(host.unix_ms(), |out| outcomes.put(out));
                    host.disk.put(DiskRecordKind::Outcomes, of, (0, 0), body);
                }
            }
            self.log.disk.walk = DiskWalk::Walked(self.log.disk.given);
            return true;
        }
        walk.chunks += 1;
        let (mut taken, mut bytes, mut last) = (0, 0, None);
        let number = u32::try_from(walk.chunks).unwrap_or(u32::MAX);
        let about = most.min(self.store.bytes());
        let body: Vec<Bytes> = dated(host.unix_ms(), |out| {
            frame::chunk(out, self.at, (0, number), about, |out| {
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
            });
        })
        .collect();
        walk.cursor = last.map(|piece| piece.position(&self.store));
        let numbers = (walk.chunks, self.log.disk.given);
        host.disk.put(DiskRecordKind::Chunk, of, numbers, body);
        host.disk.walked += bytes;
        host.worked += bytes + taken * ENTRY_WORK;
        true
    }
}

impl Slot {
    /// Keeps the partition on the disk, or ends that, as its keyspace says. A learner begins with
    /// that once it has everything.
    pub(crate) fn keep_on_disk(&mut self, host: &mut Host) {
        if let Some(held) = self.held.as_deref_mut()
            && (held.was_in_sync || held.log.disk.is_kept())
            && held.sink().is_none_or(Sink::complete)
        {
            held.log.keep_on_disk(host, (held.at, held.lineage));
        }
    }
}
