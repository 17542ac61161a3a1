//! Writes a log.

use crate::error::DiskError;
use crate::files::{Files, LogFile};
use crate::read::LogEnd;
use crate::record::{self, BODY_BYTES_MAX, RecordHead};
use crate::segment::{LogName, LogSegment, OPENING_BYTES};
use doyen_placement::PartitionRef;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// The log of a data thread. One thread writes it, which may wait for the disk.
#[derive(Debug)]
pub struct LogWriter<F: Files> {
    files: F,
    name: LogName,
    seed: u64,
    /// A file takes no further records from here on.
    segment_bytes: u64,
    /// The last file, if it takes further records.
    open: Option<F::File>,
    segments: VecDeque<LogSegment>,
    /// Up to which place of the log each partition needs nothing.
    covered: BTreeMap<PartitionRef, u64>,
    /// Records since the last sync.
    unsynced: Vec<u8>,
    ends: u64,
    synced: u64,
    failed: bool,
}

impl<F: Files> LogWriter<F> {
    /// Goes on with a log that was read: cuts off what was never synced, and begins another file
    /// with the next record.
    ///
    /// # Errors
    /// The system refuses to cut a file off or to remove it.
    pub fn resume(
        files: F,
        name: LogName,
        segment_bytes: u64,
        end: LogEnd,
    ) -> Result<Self, DiskError> {
        let place = end.place();
        let mut segments = end.segments;
        if let Some(last) = segments.pop_back() {
            let file = name.file(last.begins);
            if last.ends == last.begins {
                let removed = files.remove(&file);
                removed.map_err(DiskError::system(&file, "it cannot be removed"))?;
            } else {
                // Its last records may be whole because the system had them in memory. From now on
                // they count, so they are synced first.
                let bytes = OPENING_BYTES as u64 + (last.ends - last.begins);
                let cut = files.truncate(&file, bytes);
                cut.map_err(DiskError::system(&file, "it cannot be cut off"))?;
                segments.push_back(last);
            }
        }
        // Files that a former process removed do not come back.
        let synced = files.sync_names();
        synced.map_err(DiskError::system("the directory", "it cannot be synced"))?;
        Ok(Self {
            files,
            name,
            seed: name.seed(),
            segment_bytes,
            open: None,
            segments,
            covered: BTreeMap::new(),
            unsynced: Vec::new(),
            ends: place,
            synced: place,
            failed: false,
        })
    }

    /// Puts a record behind the others, at [`place`](Self::place). Returns the place in the log that
    /// must be synced for it.
    ///
    /// # Errors
    /// The record is too long, or an earlier sync failed.
    pub fn append(&mut self, head: &RecordHead, body: &[u8]) -> Result<u64, DiskError> {
        if self.failed {
            return Err(DiskError::Failed);
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(DiskError::Long {
                bytes: body.len(),
                max: BODY_BYTES_MAX,
            });
        }
        if self.open.is_none() && self.unsynced.is_empty() {
            self.segments.push_back(LogSegment::empty(self.ends));
        }
        let places = (self.ends, self.synced);
        record::put(self.seed, places, head, body, &mut self.unsynced);
        self.ends += record::record_bytes(body.len()) as u64;
        if let Some(segment) = self.segments.back_mut() {
            segment.ends = self.ends;
            segment.note(head.at, places.0);
        }
        Ok(self.ends)
    }

    /// Writes the records since the last sync, and returns once the disk has them. Returns up to
    /// where the log is synced.
    ///
    /// # Errors
    /// The system refuses it. From then on, everything is refused.
    pub fn sync(&mut self) -> Result<u64, DiskError> {
        if self.failed {
            return Err(DiskError::Failed);
        }
        if self.unsynced.is_empty() {
            return Ok(self.synced);
        }
        let written = self.write();
        self.failed = written.is_err();
        written?;
        self.unsynced.clear();
        self.synced = self.ends;
        let begins = self.segments.back().map_or(0, |segment| segment.begins);
        if self.ends - begins >= self.segment_bytes {
            self.open = None;
        }
        Ok(self.synced)
    }

    fn write(&mut self) -> Result<(), DiskError> {
        let begins = self.segments.back().map_or(0, |segment| segment.begins);
        let name = self.name.file(begins);
        let begun = self.open.is_none();
        let mut file = match self.open.take() {
            Some(file) => file,
            None => {
                let made = self.files.create(&name);
                let mut file = made.map_err(DiskError::system(&name, "it cannot be made"))?;
                let opened = file.write(&self.name.opening(begins));
                opened.map_err(DiskError::system(&name, "it cannot be written"))?;
                file
            }
        };
        let written = file.write(&self.unsynced);
        written.map_err(DiskError::system(&name, "it cannot be written"))?;
        file.sync()
            .map_err(DiskError::system(&name, "it cannot be synced"))?;
        if begun {
            let synced = self.files.sync_names();
            synced.map_err(DiskError::system(&name, "its name cannot be synced"))?;
        }
        self.open = Some(file);
        Ok(())
    }

    /// A partition needs none of its records before this place, because a whole snapshot begins
    /// there, and is synced, or because the node has nothing of the partition any more. Removes the
    /// oldest files, as far as no partition needs them, and returns how many.
    ///
    /// # Errors
    /// The system refuses to remove a file. It is tried again with the next call.
    pub fn cover(&mut self, at: PartitionRef, place: u64) -> Result<u32, DiskError> {
        let covered = self.covered.entry(at).or_insert(place);
        *covered = place.max(*covered);
        let mut removed = 0;
        while self.uncovered().is_none()
            && let Some(oldest) = self.closed()
        {
            let file = self.name.file(oldest.begins);
            // One after the other: a power cut leaves the end of the log, and no gap in it.
            let gone = match self.files.remove(&file) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
                _ => self.files.sync_names(),
            };
            gone.map_err(DiskError::system(&file, "it cannot be removed"))?;
            self.segments.pop_front();
            removed += 1;
        }
        Ok(removed)
    }

    /// The partition whose snapshot the oldest file waits for. `None`: there is only one file, or
    /// the next `cover` removes the oldest.
    #[must_use]
    pub fn uncovered(&self) -> Option<PartitionRef> {
        let oldest = self.closed()?;
        let waits = oldest.latest.iter().find(|(at, latest)| {
            let covered = self.covered.get(at);
            covered.is_none_or(|covered| covered <= latest)
        });
        waits.map(|(at, _)| *at)
    }

    /// The oldest file, if there are synced records behind it. The last file stays, so that no
    /// place of the log is ever that of two records.
    fn closed(&self) -> Option<&LogSegment> {
        let next = self.segments.get(1)?;
        self.segments.front().filter(|_| next.begins < self.synced)
    }

    /// Where the next record begins.
    #[must_use]
    pub const fn place(&self) -> u64 {
        self.ends
    }

    /// The bytes of the log, from its oldest file on.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let begins = self.segments.front().map(|oldest| oldest.begins);
        self.ends - begins.unwrap_or(self.ends)
    }
}
