//! The resources that this process uses, as the system counts them.

use std::fs;
use std::sync::OnceLock;

/// Processor time in seconds and memory in bytes. Zeros if the system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Time in the kernel.
    pub(crate) cpu_system: f64,
    pub(crate) cpu_user: f64,
    /// Time of children that have ended.
    pub(crate) children_system: f64,
    pub(crate) children_user: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) machine_bytes: u64,
}

impl Usage {
    /// The resident memory at the first call: before there was data.
    pub(crate) fn resident_bytes_at_start() -> u64 {
        static AT_START: OnceLock<u64> = OnceLock::new();
        *AT_START.get_or_init(|| Self::now().resident_bytes)
    }

    /// The present usage: a few reads of `/proc`.
    pub(crate) fn now() -> Self {
        let machine = rustix::system::sysinfo();
        let usage = Self {
            machine_bytes: machine.totalram.saturating_mul(machine.mem_unit.into()),
            ..Self::default()
        };
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        usage.with(
            &stat,
            rustix::param::clock_ticks_per_second(),
            &pages,
            rustix::param::page_size(),
        )
    }

    fn with(self, stat: &str, ticks_per_second: u64, statm: &str, page_bytes: usize) -> Self {
        // The second field is the process's name in parentheses, which may hold anything.
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .collect();
        let seconds = |field: usize| {
            let ticks: u64 = fields
                .get(field - 3)
                .and_then(|f| f.parse().ok())
                .unwrap_or(0);
            ticks as f64 / ticks_per_second.max(1) as f64
        };
        let pages: u64 = statm
            .split_ascii_whitespace()
            .nth(1)
            .and_then(|f| f.parse().ok())
            .unwrap_or(0);
        Self {
            // Numbered as in proc(5), from 1.
            cpu_user: seconds(14),
            cpu_system: seconds(15),
            children_user: seconds(16),
            children_system: seconds(17),
            resident_bytes: pages.saturating_mul(page_bytes as u64),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_files_are_read_for_any_process_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 3 4 20 0 1 0 5 1 1";
        let usage = Usage::default().with(stat, 100, "900 20 5 1 0 30 0", 4096);
        assert_eq!((usage.cpu_user, usage.cpu_system), (2.5, 0.5));
        assert_eq!((usage.children_user, usage.children_system), (0.03, 0.04));
        assert_eq!(usage.resident_bytes, 20 * 4096);
        assert_eq!(Usage::default().with("", 100, "", 4096), Usage::default());
        let now = Usage::now();
        assert!(
            now.resident_bytes > 1 << 20 && now.machine_bytes > now.resident_bytes,
            "{now:?}"
        );
    }
}
