//! The real memory of the process, by the system's measure, beside what the data threads count.
//!
//! `--memory-max` bounds the whole process: entries, buffers, what the allocator keeps, and what is
//! dropped and not freed yet. Only the system knows the sum. Each data thread counts its own part,
//! and learns its share of the rest several times a second.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of a process without data: relocated code, stacks, tables, sockets. It comes on top
/// of `--memory-max`.
pub(crate) const ITSELF_BYTES: u64 = 32 << 20;

/// The memory of this process.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    /// `None`: the system does not report it.
    statm: Option<File>,
    /// Whether the process belongs to Doyen alone. Otherwise memory of the embedding program would
    /// count.
    whole: bool,
    page_bytes: u64,
    /// The bytes that each data thread counts.
    counted: Vec<AtomicU64>,
}

impl ProcessMemory {
    /// For this many data threads. `whole`: the process belongs to Doyen alone.
    pub(super) fn new(threads: usize, whole: bool) -> Self {
        let statm = File::open("/proc/self/statm").ok();
        let counted = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self {
            statm,
            whole,
            page_bytes: rustix::param::page_size() as u64,
            counted,
        }
    }

    /// Notes the bytes that a thread counts. Returns its share of those that no thread counts.
    pub(super) fn look(&self, thread: u8, counted: u64) -> u64 {
        let Some(anonymous) = self.read() else {
            return 0;
        };
        if let Some(ours) = self.counted.get(usize::from(thread)) {
            ours.store(counted, Ordering::Relaxed);
        }
        let loose = anonymous
            .saturating_sub(ITSELF_BYTES)
            .saturating_sub(self.counted());
        if self.whole {
            loose / self.counted.len().max(1) as u64
        } else {
            0
        }
    }

    /// The sum of what all threads counted last.
    pub(super) fn counted(&self) -> u64 {
        self.counted.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in memory that do not belong to a file.
    fn read(&self) -> Option<u64> {
        let mut text = [0; 128];
        // Read from the beginning each time: the system writes the text for each read from there.
        let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        pages(text.get(..length)?)?.checked_mul(self.page_bytes)
    }
}

/// Pages in memory that do not belong to a file (the system can take back the others): `size
/// resident shared text lib data dt`
fn pages(statm: &[u8]) -> Option<u64> {
    let mut fields = std::str::from_utf8(statm)
        .ok()?
        .split_ascii_whitespace()
        .skip(1)
        .map(|n| n.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_do_not_count() {
        assert_eq!(pages(b"58341 4522 2200 3000 0 9000 0\n"), Some(2322));
        assert_eq!(pages(b"58341 4522 5000 3000 0 9000 0\n"), Some(0));
        assert_eq!(pages(b"58341"), None);
        assert_eq!(pages(b"a b c"), None);
    }

    #[test]
    fn threads_share_uncounted_bytes() {
        let process = ProcessMemory::new(2, true);
        // More memory than an empty process needs.
        let held = vec![1_u8; 96 << 20];
        let half = process.look(0, 0);
        assert!(half >= (held.len() as u64 - ITSELF_BYTES) / 2, "{half}");
        assert!(
            half <= process.read().expect("the system tells") / 2,
            "{half}"
        );
        assert!(
            process.look(1, half) < half,
            "bytes that a thread counts are not part of the rest"
        );
        assert_eq!(process.look(1, u64::MAX / 2), 0);
        drop(held);
    }

    #[test]
    fn foreign_memory_does_not_count_in_a_shared_process() {
        let process = ProcessMemory::new(1, false);
        assert_eq!((process.look(0, 5), process.counted()), (0, 5));
    }
}
