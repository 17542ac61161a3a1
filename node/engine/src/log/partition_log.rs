//! The log of one partition: entries with their origins, and until they are committed, what they
//! replaced.
//!
//! Entries are effects (`Put`, `Delete`, `Deadline`, `Clear`), or lists of them, never commands.
//! Each names the operation that caused it, with its outcome, so that a retry finds it. The primary
//! and its copies apply an entry at once. A copy that meets a new primary undoes the entries that
//! the new primary lacks. A committed entry is never undone (I9).

use super::dedup::OpId;
use super::disk_tail::DiskTail;
use crate::mutant::{self, broken};
use crate::store::{Effect, StoredMap, Undo};
use crate::value::cause::By;
use crate::value::entry::Entry;
use crate::value::outcome::Outcome;
use doyen_placement::Epoch;
use std::collections::VecDeque;

/// What a record costs besides its key and value, including the spare room in the queue of records.
pub(crate) const RECORD_OVERHEAD: usize = 176;
/// A log may exceed its share by this part of it.
const TRIM_SLACK: usize = 8;
/// Entries that one call drops at most. If a learner needed them until now, there can be as many as
/// are stored.
const TRIM_SLICE: usize = 16_000;
/// About how many bytes one frame of several entries has.
const FRAME_BYTES: u64 = 256 << 10;
/// How many entries ahead of the trimmed ones are loaded.
const TRIM_AHEAD: usize = 3;
/// A queue with this many times the room that it needs gives the rest back.
const SPARE_FACTOR: usize = 4;

/// Lets an empty queue start at the beginning of its memory instead of going round in it: the next
/// record reuses memory that is still in a cache.
pub(crate) fn begin_anew<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() {
        queue.clear();
    }
}

/// One entry of the log. Its sequence is its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Logged {
    /// The epoch in which it was first appended. With the sequence it identifies the entry (I8).
    pub(crate) epoch: Epoch,
    /// Its effect.
    pub(crate) effect: Effect,
    /// The operation behind it. `None` for expiry.
    pub(crate) op: Option<OpId>,
    /// The outcome of the operation.
    pub(crate) outcome: Outcome,
}

#[derive(Debug)]
struct Record {
    logged: Logged,
    /// What it replaced, until it is committed. After that, only strings, if they are kept.
    undo: Undo,
    /// What made it. Only its primary knows.
    by: By,
    /// Whether the strings that it replaced are kept for subscribers.
    keeps: bool,
    /// Bytes of all records up to this one since the log began. A difference of two tells how much
    /// lies between two sequences.
    end: u64,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The sequence of the entry before the first record.
    base: u64,
    records: VecDeque<Record>,
    committed: u64,
    /// The highest sequence of a deletion: a missing key may be missing because of it.
    deleted: u64,
    end: u64,
    start: u64,
    /// How far it is on the disk.
    pub(crate) disk: DiskTail,
}

impl Log {
    /// An empty log that continues after `base`.
    pub(crate) fn after(base: u64) -> Self {
        Self {
            base,
            committed: base,
            ..Self::default()
        }
    }

    /// Sequence of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// The last sequence that counts here: of the last entry, or of the last one on the disk.
    #[inline]
    pub(crate) fn counted(&self) -> u64 {
        self.disk.counts(self.last())
    }

    /// How many entries from `first` on make one frame: at least one, if there is one.
    pub(crate) fn frame_from(&self, first: u64) -> u64 {
        let mut count = 0;
        while first + count <= self.last()
            && (count == 0 || self.bytes_between(first - 1, first + count) <= FRAME_BYTES)
        {
            count += 1;
        }
        count
    }

    /// Everything up to here is trimmed.
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// Everything up to here is known to be committed.
    pub(crate) const fn committed(&self) -> u64 {
        self.committed
    }

    /// The sequence that must be committed before this may be read: the write that made the entry,
    /// or any that may have removed it.
    pub(crate) fn read_at(&self, found: Option<&Entry>) -> u64 {
        match found {
            Some(_) if broken(&mutant::READS_UNCOMMITTED) => 0,
            Some(entry) => entry.version(),
            None if broken(&mutant::READS_DELETIONS) => 0,
            None => self.deleted(),
        }
    }

    /// The sequence that a read of a missing key waits for.
    pub(crate) fn deleted(&self) -> u64 {
        self.deleted.min(self.last())
    }

    /// Bytes held.
    pub(crate) const fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Bytes of the entries after `from` up to `to`.
    pub(crate) fn bytes_between(&self, from: u64, to: u64) -> u64 {
        self.end_of(to).saturating_sub(self.end_of(from))
    }

    fn end_of(&self, seq: u64) -> u64 {
        self.record(seq).map_or(
            if seq <= self.base {
                self.start
            } else {
                self.end
            },
            |r| r.end,
        )
    }

    fn record(&self, seq: u64) -> Option<&Record> {
        let at = seq.checked_sub(self.base + 1)?;
        self.records.get(usize::try_from(at).ok()?)
    }

    /// The entry at a sequence, if it is kept.
    pub(crate) fn entry(&self, seq: u64) -> Option<&Logged> {
        self.record(seq).map(|r| &r.logged)
    }

    /// The same for readers: its effect, what that replaced as far as it is kept, and what made it.
    pub(crate) fn told(&self, seq: u64) -> Option<(&Effect, &Undo, By)> {
        let record = self.record(seq)?;
        let undo = if record.keeps {
            &record.undo
        } else {
            &Undo::Nothing
        };
        Some((&record.logged.effect, undo, record.by))
    }

    /// Keeps the strings that are replaced by entries which are not committed yet.
    pub(crate) fn keep_replaced(&mut self) {
        let first = self.committed.saturating_sub(self.base) as usize;
        for record in self.records.iter_mut().skip(first) {
            record.keeps = true;
        }
    }

    /// Appends an entry that was applied. Returns its sequence. `keeps`: the strings that it
    /// replaced are kept for subscribers, and count as bytes of the log.
    pub(crate) fn push(&mut self, logged: Logged, undo: Undo, (by, keeps): (By, bool)) -> u64 {
        let seq = self.last() + 1;
        if logged.effect.deletes() {
            self.deleted = seq;
        }
        let replaced = if keeps { undo.string_bytes() } else { 0 };
        self.end += (logged.effect.bytes() + replaced + RECORD_OVERHEAD) as u64;
        let end = self.end;
        self.records.push_back(Record {
            logged,
            undo,
            by,
            keeps,
            end,
        });
        seq
    }

    /// Removes the last entry, to undo it. It must not be committed (I9).
    pub(crate) fn pop(&mut self) -> Option<(u64, Logged, Undo)> {
        let seq = self.last();
        if seq <= self.committed {
            return None;
        }
        let Record { logged, undo, .. } = self.records.pop_back()?;
        self.disk.undo(seq);
        self.end = self.records.back().map_or(self.start, |r| r.end);
        Some((seq, logged, undo))
    }

    /// Everything up to `to` is committed, so what it replaced can be dropped. Whole maps are freed
    /// in slices by the caller.
    pub(crate) fn commit(&mut self, to: u64, garbage: &mut Vec<StoredMap>) {
        let to = to.min(self.last());
        // An entry that is not committed is never trimmed.
        let first = self.committed.saturating_sub(self.base) as usize;
        for record in self
            .records
            .iter_mut()
            .skip(first)
            .take(to.saturating_sub(self.committed) as usize)
        {
            let undo = std::mem::take(&mut record.undo);
            if record.keeps {
                record.undo = undo.into_strings(garbage);
            } else {
                undo.recycle(garbage);
            }
        }
        self.committed = self.committed.max(to);
    }

    /// A table that undoing would bring back, if this walk is in it.
    pub(crate) fn walked(&mut self, number: u64) -> Option<&mut StoredMap> {
        let first = self.committed.saturating_sub(self.base) as usize;
        let mut undos = self
            .records
            .iter_mut()
            .skip(first)
            .map(|record| &mut record.undo);
        undos.find_map(|undo| undo.walked(number))
    }

    /// Drops up to `count` entries of a log that is not needed any more. Returns whether any are
    /// left. Maps and tables that undoing would bring back go to the garbage.
    pub(crate) fn shed(&mut self, count: usize, garbage: &mut Vec<StoredMap>) -> bool {
        for record in self.records.drain(..count.min(self.records.len())) {
            record.undo.recycle(garbage);
        }
        !self.records.is_empty()
    }

    /// Drops committed entries up to `to` so that about `bytes` are held. It waits until there are
    /// an eighth more, instead of dropping one by one: these entries are in no cache, and many
    /// together are loaded faster.
    pub(crate) fn trim(&mut self, bytes: usize, to: u64) {
        let to = to.min(self.committed);
        let enough = self.bytes() > bytes + bytes / TRIM_SLACK;
        let to = to.min(self.base + TRIM_SLICE as u64);
        while enough && self.bytes() > bytes && self.base < to {
            let Some(record) = self.records.pop_front() else {
                return;
            };
            self.base += 1;
            self.start = record.end;
            record.logged.effect.recycle();
            // It is committed, so only strings are left.
            record.undo.recycle(&mut Vec::new());
            // The next entries are in no cache: they are loaded while others are still dropped.
            std::hint::black_box(self.records.get(2 * TRIM_AHEAD).map(|r| r.end));
            if let Some(Record {
                logged:
                    Logged {
                        effect: Effect::Put { entry, .. },
                        ..
                    },
                ..
            }) = self.records.get(TRIM_AHEAD)
            {
                std::hint::black_box(entry.version());
            }
        }
        let spare = SPARE_FACTOR * self.records.len().max(16);
        if self.records.capacity() > spare {
            self.records.shrink_to(spare / 2);
        }
        begin_anew(&mut self.records);
    }
}
