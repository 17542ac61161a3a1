//! A share of a processor for each node, as if each had a machine of its own. So a newcomer brings
//! the processor time that it needs, and does not take it from the others.
//!
//! This uses the control groups of Linux, in both versions, and needs root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

/// A node may use its share of each processor in each such period.
const PERIOD_US: u64 = 5_000;
/// The least share, in thousandths of a processor: the kernel takes no quota below a millisecond.
const LEAST: u64 = 200;

/// Control groups that are removed at the end.
#[derive(Debug)]
pub(super) struct Confined {
    root: PathBuf,
    unified: bool,
    quota_us: u64,
    groups: Vec<PathBuf>,
}

impl Confined {
    /// This many thousandths of a processor for each node.
    pub(super) fn new(thousandths: u64) -> io::Result<Self> {
        if thousandths < LEAST {
            return Err(io::Error::other(format!(
                "a node needs at least {} of a processor",
                LEAST as f64 / 1e3
            )));
        }
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let root = PathBuf::from(if unified {
            "/sys/fs/cgroup"
        } else {
            "/sys/fs/cgroup/cpu"
        });
        if unified {
            fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(Self {
            root,
            unified,
            quota_us: PERIOD_US * thousandths / 1_000,
            groups: Vec::new(),
        })
    }

    /// Confines this process to its share from now on.
    pub(super) fn confine(&mut self, pid: u32) -> io::Result<()> {
        let group = self.root.join(format!(
            "doyen-figures-{}-{}",
            process::id(),
            self.groups.len()
        ));
        fs::create_dir(&group)?;
        self.groups.push(group.clone());
        if self.unified {
            fs::write(
                group.join("cpu.max"),
                format!("{} {PERIOD_US}", self.quota_us),
            )?;
        } else {
            fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(group.join("cpu.cfs_quota_us"), self.quota_us.to_string())?;
        }
        // Time that was not used lately may be used at once, because a busy moment is no busy node.
        let burst = if self.unified {
            "cpu.max.burst"
        } else {
            "cpu.cfs_burst_us"
        };
        fs::write(group.join(burst), self.quota_us.to_string())?;
        fs::write(group.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        for group in &self.groups {
            // If its process has not ended yet, the empty group is left behind.
            let _ = fs::remove_dir(group);
        }
    }
}
