//! What Linux knows about a process (processor time by thread, memory) and about loopback traffic.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::time::Duration;

/// Processor time of one thread name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// On a core.
    pub ran: Duration,
    /// Ready to run, and waiting for a core.
    pub waited: Duration,
}

/// Processor time of a process by the names of its threads.
#[must_use]
pub fn threads(pid: u32) -> BTreeMap<String, Spent> {
    let mut threads: BTreeMap<String, Spent> = BTreeMap::new();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let name = read_to_string(task.path().join("comm"))
            .unwrap_or_default()
            .trim()
            .to_owned();
        let text = read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let spent = schedstat(&text).unwrap_or_default();
        let of_name = threads.entry(name).or_default();
        of_name.ran += spent.ran;
        of_name.waited += spent.waited;
    }
    threads
}

/// Processor time of all threads of a process that are alive.
#[must_use]
pub fn processor(pid: u32) -> Duration {
    threads(pid).values().map(|spent| spent.ran).sum()
}

/// Resident memory in bytes: all of it, and the part that no file backs.
#[must_use]
pub fn memory(pid: u32) -> (u64, u64) {
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bytes = |name| kilobytes(&status, name).unwrap_or(0);
    (bytes("VmRSS"), bytes("RssAnon"))
}

/// Bytes and packets that went over loopback since the machine started.
#[must_use]
pub fn loopback() -> (u64, u64) {
    let text = read_to_string("/proc/net/dev").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|l| l.trim_start().strip_prefix("lo:"))
        .unwrap_or_default();
    let mut fields = line.split_whitespace().map(|f| f.parse().unwrap_or(0));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

/// Processor ticks of the machine since it started: busy ones, and all.
#[must_use]
pub fn machine() -> (u64, u64) {
    let text = read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest is part of user.
    let all: u64 = fields.iter().take(8).sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// Time on a processor, by thread. The kernel counts these exactly, while `stat` has
/// hundredths of a second.
#[derive(Debug, Clone, Default)]
pub struct Cpu(BTreeMap<(u32, u32), Duration>);

impl Cpu {
    /// The time of all threads of these processes, user and system.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let mut threads = BTreeMap::new();
        for pid in pids {
            for task in std::fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                // A thread may end meanwhile.
                let text = read_to_string(task.path().join("schedstat")).unwrap_or_default();
                if let Some(spent) = schedstat(&text) {
                    threads.insert((*pid, tid), spent.ran);
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
        let used = self.0.iter().map(|(thread, now)| {
            now.saturating_sub(earlier.0.get(thread).copied().unwrap_or_default())
        });
        used.sum::<Duration>().as_secs_f64() * 1e6
    }
}

/// Resident bytes of these processes. Shared memory (the program itself) is divided among them.
#[must_use]
pub fn resident(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let rollup = read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let status = || read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        kilobytes(&rollup, "Pss")
            .or_else(|| kilobytes(&status(), "VmRSS"))
            .unwrap_or(0)
    };
    pids.iter().map(of).sum()
}

/// A list of processors as the kernel writes it: `0-2,5`.
#[must_use]
pub fn cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<usize>(), to.parse::<usize>()) {
            cpus.extend(from..=to);
        }
    }
    cpus
}

/// What `/proc/PID/task/TID/schedstat` says.
fn schedstat(text: &str) -> Option<Spent> {
    let mut nanoseconds = text.split_whitespace().map(|field| field.parse().ok());
    Some(Spent {
        ran: Duration::from_nanos(nanoseconds.next()??),
        waited: Duration::from_nanos(nanoseconds.next()??),
    })
}

/// The value of a line `Name:   123 kB`, in bytes, from `smaps_rollup`, `status` or `meminfo`.
#[must_use]
pub fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The value of a line `name : value`, from `/proc/cpuinfo` or `/proc/self/status`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(n, _)| n.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_parsed() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpu_list("7"), [7]);
        assert!(cpu_list("").is_empty());
    }

    #[test]
    fn files_of_the_kernel_are_parsed() {
        let spent = Spent {
            ran: Duration::from_nanos(1_119_206),
            waited: Duration::from_nanos(587_509),
        };
        assert_eq!(schedstat("1119206 587509 6\n"), Some(spent));
        assert_eq!(schedstat(""), None);
        let rollup = "55d-7ff ---p 00000000 00:00 0 [rollup]\nRss:                1536 kB\n\
             Pss:                 200 kB\nPss_Dirty:  100 kB\n";
        assert_eq!(kilobytes(rollup, "Pss"), Some(204_800));
        assert_eq!(kilobytes(rollup, "Swap"), None);
        assert_eq!(
            field(
                "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n",
                "model name"
            ),
            Some("A CPU @ 2 GHz")
        );
    }

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
        let us = Duration::from_micros;
        let earlier = Cpu(BTreeMap::from([((1, 1), us(5)), ((1, 2), us(9))]));
        let later = Cpu(BTreeMap::from([((1, 1), us(8)), ((1, 3), us(2))]));
        assert!((later.microseconds_since(&earlier) - 5.0).abs() < 1e-9);
    }
}
