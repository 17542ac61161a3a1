//! What the process really holds, by the system's word, beside what the data threads count.
//!
//! `--memory-max` bounds the process: its entries and buffers, what the allocator keeps, what is
//! dropped and not freed yet. Only the system knows the sum. Each data thread counts what is its
//! own, and is told its part of the rest several times a second.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a process takes that holds nothing: code that was relocated, stacks, tables, sockets. It
/// comes on top of `--memory-max`.
pub(crate) const ITSELF_BYTES: u64 = 32 << 20;

/// The memory of this process.
#[derive(Debug)]
pub(super) struct Process {
    /// `None`: the system does not tell.
    statm: Option<File>,
    /// Whether the process is Doyen's alone: else what others hold there would be counted.
    whole: bool,
    page_bytes: u64,
    /// What each data thread counts.
    counted: Vec<AtomicU64>,
}

impl Process {
    /// Of so many data threads. `whole`: the process is Doyen's alone.
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

    /// A thread counts so many bytes. Its part of those that no thread counts.
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

    /// What all threads counted at their last looks.
    pub(super) fn counted(&self) -> u64 {
        self.counted.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in memory that are no file's.
    fn read(&self) -> Option<u64> {
        let mut text = [0; 128];
        // From its beginning each time: the system writes it anew.
        let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        pages(text.get(..length)?)?.checked_mul(self.page_bytes)
    }
}

/// Pages in memory that are no file's, for the system can take the others back:
/// `size resident shared text lib data dt`
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
    fn threads_share_what_no_thread_counts() {
        let process = Process::new(2, true);
        // So that there is more than a process takes itself.
        let held = vec![1_u8; 96 << 20];
        let half = process.look(0, 0);
        assert!(half >= (held.len() as u64 - ITSELF_BYTES) / 2, "{half}");
        assert!(
            half <= process.read().expect("the system tells") / 2,
            "{half}"
        );
        assert!(
            process.look(1, half) < half,
            "what one of them counts is nobody's part of the rest"
        );
        assert_eq!(process.look(1, u64::MAX / 2), 0);
        drop(held);
    }

    #[test]
    fn what_others_hold_in_a_process_that_is_not_doyens_alone_does_not_count() {
        let process = Process::new(1, false);
        assert_eq!((process.look(0, 5), process.counted()), (0, 5));
    }
}
