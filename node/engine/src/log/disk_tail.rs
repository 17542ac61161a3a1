//! How far the log of a partition is on the disk of this node.
//!
//! ```text
//!   a snapshot:  Idle ──> Waiting ──> Walking ──> Walked ──────> Ended ──> Idle
//!                         its turn    chunks      its commit     its sync
//!   the log:     beside it; from the end of the first snapshot on, entries count once they are synced
//! ```
//! Before the end of the first snapshot is given, the disk holds nobody up. Each entry that counted
//! by then stands before that end on the disk. So a disk with a whole snapshot has all that counted.

use crate::mutant::{self, broken};

/// How far a snapshot for the disk is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum DiskWalk {
    /// There is none.
    #[default]
    Idle,
    /// It waits for its turn.
    Waiting,
    /// Contents are being given.
    Walking,
    /// All contents were given, at this sequence. Once that is committed, none of it can be undone,
    /// and the snapshot ends.
    Walked(u64),
    /// The end was given, and is not synced.
    Ended(u64),
}

/// The part of a log that is on its way to the disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskTail {
    /// The name of this log on the disk. 0: it is not kept there.
    pub(crate) number: u32,
    /// For which setting of its keyspace it is kept.
    pub(crate) since: u64,
    pub(crate) walk: DiskWalk,
    /// The last sequence that was given.
    pub(crate) given: u64,
    /// How often entries were undone that had been given.
    pub(crate) undos: u32,
    /// Entries were undone, and the disk does not know that yet.
    pub(crate) undone: bool,
    /// Whether it is in the list of partitions with something to give.
    pub(crate) noted: bool,
    /// The last synced sequence, once entries wait for that.
    synced: Option<u64>,
    /// Whether the end of a snapshot is synced.
    whole: bool,
}

impl DiskTail {
    /// A log with this name begins on the disk after `given`. `whole`: the disk has all up to there.
    pub(crate) fn begin(&mut self, (number, since): (u32, u64), given: u64, whole: bool) {
        *self = Self {
            number,
            since,
            given,
            synced: whole.then_some(given),
            whole,
            noted: self.noted,
            ..Self::default()
        };
    }

    /// Whether it is on the disk.
    pub(crate) const fn is_kept(&self) -> bool {
        self.number != 0
    }

    /// Whether the disk has all up to what is synced.
    pub(crate) const fn is_whole(&self) -> bool {
        self.whole
    }

    /// The end of a snapshot was given, up to here.
    pub(crate) fn end_walk(&mut self, end: u64) {
        self.walk = DiskWalk::Ended(end);
        self.synced = self.synced.or(Some(0));
    }

    /// The last sequence that counts here, of a log that ends with `last`.
    #[inline]
    pub(crate) fn counts(&self, last: u64) -> u64 {
        match self.synced {
            Some(synced) if !broken(&mutant::ACKS_UNSYNCED) => synced.min(last),
            _ => last,
        }
    }

    /// The entry at a sequence was undone.
    #[inline]
    pub(crate) fn undo(&mut self, seq: u64) {
        if self.number != 0 && seq <= self.given {
            self.given = seq - 1;
            self.synced = self.synced.map(|synced| synced.min(seq - 1));
            self.undone = true;
            self.undos += 1;
        }
    }

    /// What was given is synced up to here. Returns whether that changes anything.
    pub(crate) fn sync(&mut self, part: &GivenPart) -> bool {
        if part.number != self.number {
            return false;
        }
        let before = (self.synced, self.whole);
        if let DiskWalk::Ended(end) = self.walk
            && part.ends
        {
            (self.walk, self.whole) = (DiskWalk::Idle, true);
            self.synced = self.synced.max(Some(end));
        }
        // What was given later says how far it goes without what was undone.
        if part.undos == self.undos
            && let Some(synced) = &mut self.synced
        {
            *synced = part.seq.max(*synced);
        }
        before != (self.synced, self.whole)
    }
}

/// How far a partition had been given when a batch ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenPart {
    pub(crate) number: u32,
    pub(crate) undos: u32,
    pub(crate) seq: u64,
    /// The end of a snapshot is among it.
    pub(crate) ends: bool,
}
