//! What Linux knows about a process (processor time by thread, memory) and about loopback traffic.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
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
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return threads;
    };
    for task in tasks.flatten() {
        let name = read_to_string(task.path().join("comm"))
            .unwrap_or_default()
            .trim()
            .to_owned();
        let spent = schedstat(&task.path());
        let of_name = threads.entry(name).or_default();
        of_name.ran += spent.ran;
        of_name.waited += spent.waited;
    }
    threads
}

fn schedstat(task: &Path) -> Spent {
    let text = read_to_string(task.join("schedstat")).unwrap_or_default();
    let mut fields = text
        .split_whitespace()
        .map(|f| Duration::from_nanos(f.parse().unwrap_or(0)));
    Spent {
        ran: fields.next().unwrap_or_default(),
        waited: fields.next().unwrap_or_default(),
    }
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
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            << 10
    };
    (field("VmRSS:"), field("RssAnon:"))
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
