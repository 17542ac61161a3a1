//! How much memory this machine, or the container that the process runs in, may use.

use std::fs;

/// Bytes that may be used: the smaller of the machine's memory and the limit of the control group, if there is one.
pub(super) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .find_map(|text| text.trim().parse::<u64>().ok());
    // Where neither is known (not Linux), a careful guess.
    machine.into_iter().chain(group).min().unwrap_or(4 << 30)
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_understood() {
        assert_eq!(meminfo("MemTotal:       16318412 kB\nMemFree: 1 kB\n"), Some(16_318_412 * 1024));
        assert_eq!(meminfo("nothing"), None);
    }
}
