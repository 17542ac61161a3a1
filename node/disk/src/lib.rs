//! The log of a data thread on a disk.
//!
//! ```text
//!   LogWriter                                      files of one log
//!   append(record) ──┐                             00-0000000000000000.log   a whole segment
//!   append(record) ──┴─> sync: one write, ───────> 00-0000000004000a10.log   the last segment
//!                        one fdatasync             (thread, and where it begins)
//!   cover(partition, place) ──> removes the oldest segments, once no partition needs them
//!
//!   read ──> each record, and each place where one is damaged ──> LogEnd ──> LogWriter::resume
//! ```
//!
//! All partitions of a data thread share one log, because each file needs a sync of its own. Each
//! record says which partition it is of, its lineage, and which entries it has. A snapshot of a partition
//! is a row of such records: what is before the last whole one is not needed any more.
//!
//! # What a crash can leave
//! A power cut leaves any part of what was not synced. Each record says up to where the log was
//! synced when it was written. So a wrong record is the end of the log if no whole record says that
//! it was synced: no caller has heard that it is there, and the log is cut before it. Else it is
//! damage.
//! The records behind it are still read, and the caller refuses the partitions that miss entries.
//!
//! A write or a sync that failed is not tried again, because what the disk has then is not known.
//! The writer refuses everything from then on.
//!
//! # Bad bytes
//! Nothing panics. Checksums are seeded with the identity of the directory and with the place of a
//! record. So bytes that a client has written into a value are never taken for a record.
//!
//! ```
//! use doyen_disk::{DiskFiles, FoundInLog, LogName, LogWriter, RecordHead, read};
//! use doyen_placement::{KeyspaceId, Lineage, PartitionId, PartitionRef};
//!
//! let dir = tempfile::tempdir()?;
//! let files = DiskFiles::new(dir.path());
//! let name = LogName { directory: [7; 16], thread: 0 };
//! let end = read(&files, name, &mut |_| {})?;
//! let mut log = LogWriter::resume(files.clone(), name, 64 << 20, end)?;
//! let head = RecordHead {
//!     kind: 1,
//!     at: PartitionRef::new(KeyspaceId(0), PartitionId(7)),
//!     lineage: Lineage(1),
//!     first: 1,
//!     last: 1,
//! };
//! log.append(&head, b"an entry")?;
//! log.sync()?;
//!
//! let mut found = Vec::new();
//! read(&files, name, &mut |what| {
//!     if let FoundInLog::Record { head, body, .. } = what {
//!         found.push((head, body.to_vec()));
//!     }
//! })?;
//! assert_eq!(found, [(head, b"an entry".to_vec())]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod files;
#[cfg(feature = "memory")]
mod memory;
mod read;
mod record;
mod segment;
mod write;

pub use error::DiskError;
pub use files::{DiskFile, DiskFiles, Files, LogFile};
#[cfg(feature = "memory")]
pub use memory::{MemoryFile, MemoryFiles};
pub use read::{Damage, FoundInLog, LogEnd, read};
pub use record::{BODY_BYTES_MAX, RecordHead};
pub use segment::LogName;
pub use write::LogWriter;
