//! The machine, the date and the commit of a measurement.

use crate::procfs::{field, kilobytes};
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

/// The machine, the date and the commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many processors this process may use.
    pub processors: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Gigabytes of memory.
    pub memory_gb: f64,
    /// The date, UTC.
    pub date: String,
    /// Doyen's commit, with `+` if there are uncommitted changes.
    pub commit: String,
    /// The load average of the last minute, before anything was started.
    pub load_before: f64,
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program)
                .args(arguments)
                .output()
                .ok()
                .filter(|o| o.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let changed = said("git", &["status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|s| !s.is_empty());
        let commit =
            said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name")
                .unwrap_or("unknown")
                .to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_gb: kilobytes(&read("/proc/meminfo"), "MemTotal").unwrap_or(0) as f64 / 1e9,
            date: said("date", &["-u", "+%F %H:%M UTC"]).unwrap_or_default(),
            commit: commit + if changed { "+" } else { "" },
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|l| l.parse().ok())
                .unwrap_or(f64::NAN),
        }
    }

    /// The machine in a sentence.
    #[must_use]
    pub fn described(&self) -> String {
        format!(
            "{}, {} processors, {:.0} GB, Linux {}",
            self.processor, self.processors, self.memory_gb, self.kernel
        )
    }
}
