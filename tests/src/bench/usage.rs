//! Processor time and memory of processes.

use super::parse;
use std::collections::BTreeMap;
use std::fs;

/// Nanoseconds on a processor, by thread. The kernel counts these exactly, while `stat` has
/// hundredths of a second.
#[derive(Debug, Clone, Default)]
pub struct Cpu(BTreeMap<(u32, u32), u64>);

impl Cpu {
    /// The time of all threads of these processes, user and system.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let mut threads = BTreeMap::new();
        for pid in pids {
            for task in fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                // A thread may end meanwhile.
                let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
                if let Some(nanoseconds) = parse::schedstat(&text) {
                    threads.insert((*pid, tid), nanoseconds);
                }
            }
        }
        Self(threads)
    }

    /// The time since an earlier look, in microseconds. If a thread has ended since, its time is
    /// lost: members of all systems keep their busy threads, and the few threads that a JVM or Go
    /// ends are idle ones.
    #[must_use]
    pub fn microseconds_since(&self, earlier: &Self) -> f64 {
        let used: u64 = self
            .0
            .iter()
            .map(|(thread, now)| now.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0)))
            .sum();
        used as f64 / 1000.0
    }
}

/// Resident bytes of these processes. Shared memory (the program itself) is divided among them.
#[must_use]
pub fn resident(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        parse::kilobytes(&rollup, "Pss")
            .or_else(|| parse::kilobytes(&status(), "VmRSS"))
            .unwrap_or(0)
    };
    pids.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_processor_and_memory() {
        let pid = [std::process::id()];
        let before = Cpu::of(&pid);
        let mut sum = 0u64;
        while Cpu::of(&pid).microseconds_since(&before) < 1000.0 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(resident(&pid) > 100_000);
    }

    #[test]
    fn a_new_thread_counts_from_its_beginning() {
        let earlier = Cpu(BTreeMap::from([((1, 1), 5_000), ((1, 2), 9_000)]));
        let later = Cpu(BTreeMap::from([((1, 1), 8_000), ((1, 3), 2_000)]));
        assert!((later.microseconds_since(&earlier) - 5.0).abs() < 1e-9);
    }
}
