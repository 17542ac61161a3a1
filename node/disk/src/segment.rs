//! A file of a log: its name, and what it begins with.
//!
//! ```text
//!   "DOYENLOG"  version u16  thread u8  0 [5]  directory [16]  begins u64  checksum u64
//!   records                                                       (little endian)
//! ```

use crate::error::DiskError;
use doyen_placement::PartitionRef;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MAGIC: &[u8; 8] = b"DOYENLOG";
/// The version of the files that this program writes, and the highest that it reads.
const VERSION: u16 = 1;
/// What is before the records of a file.
pub(crate) const OPENING_BYTES: usize = 48;
/// No log reaches this place.
const PLACE_MAX: u64 = u64::MAX / 2;
const CHECKED: usize = OPENING_BYTES - size_of::<u64>();

/// Which log it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogName {
    /// What tells the files of this directory from those of others. Its bytes are random.
    pub directory: [u8; 16],
    /// The data thread that writes it.
    pub thread: u8,
}

impl LogName {
    /// What checksums of its records begin with.
    pub(crate) fn seed(self) -> u64 {
        xxh3_64_with_seed(&self.directory, u64::from(self.thread))
    }

    /// The name of the file that begins at this place of the log.
    pub(crate) fn file(self, begins: u64) -> String {
        format!("{:02}-{begins:016x}.log", self.thread)
    }

    /// Where a file of this log begins; `None`: it is another file.
    pub(crate) fn begins(self, file: &str) -> Option<u64> {
        let place = file.strip_prefix(&format!("{:02}-", self.thread))?;
        let begins = u64::from_str_radix(place.strip_suffix(".log")?, 16).ok()?;
        (begins <= PLACE_MAX && self.file(begins) == file).then_some(begins)
    }

    /// What a file begins with.
    pub(crate) fn opening(self, begins: u64) -> [u8; OPENING_BYTES] {
        let mut opening = [0; OPENING_BYTES];
        opening[..8].copy_from_slice(MAGIC);
        opening[8..10].copy_from_slice(&VERSION.to_le_bytes());
        opening[10] = self.thread;
        opening[16..32].copy_from_slice(&self.directory);
        opening[32..CHECKED].copy_from_slice(&begins.to_le_bytes());
        let sum = xxh3_64(&opening[..CHECKED]).to_le_bytes();
        opening[CHECKED..].copy_from_slice(&sum);
        opening
    }

    /// Whether a file begins as one of this log does. A file of a later program or of another
    /// directory is an error. Other bytes are damaged: that is `false`.
    pub(crate) fn opens(self, file: &str, begins: u64, bytes: &[u8]) -> Result<bool, DiskError> {
        let Some(found) = bytes.first_chunk::<OPENING_BYTES>() else {
            return Ok(false);
        };
        let (checked, sum) = found.split_at(CHECKED);
        if &found[..8] != MAGIC || sum != xxh3_64(checked).to_le_bytes() {
            return Ok(false);
        }
        let version = u16::from_le_bytes([found[8], found[9]]);
        if version > VERSION {
            return Err(DiskError::Newer {
                file: file.to_owned(),
                version,
                highest: VERSION,
            });
        }
        if found[16..32] != self.directory {
            return Err(DiskError::Foreign {
                file: file.to_owned(),
            });
        }
        Ok(*found == self.opening(begins))
    }
}

/// A file with records, and the last of each partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogSegment {
    /// Where it begins in the log.
    pub(crate) begins: u64,
    /// Where its last whole record ends.
    pub(crate) ends: u64,
    /// Where the latest record of each partition in it begins.
    pub(crate) latest: BTreeMap<PartitionRef, u64>,
}

impl LogSegment {
    /// A file without records.
    pub(crate) fn empty(begins: u64) -> Self {
        Self {
            begins,
            ends: begins,
            latest: BTreeMap::new(),
        }
    }

    /// A record was put into it, or found there, behind the others.
    pub(crate) fn note(&mut self, at: PartitionRef, place: u64) {
        self.latest.insert(at, place);
    }
}
