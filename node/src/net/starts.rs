//! How many processes began with a directory: a directory has one process at a time, and others
//! refuse a former one, or one of a copy.

use doyen_placement::{MemberId, VoteKey};
use std::collections::BTreeMap;

/// The numbers of the machines of one start, at most.
const MACHINES_MAX: u64 = 1 << 20;
/// Directories that are remembered, at most.
const STARTS_MAX: usize = 4096;

/// A process that has a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryStart {
    /// The process. Its hello may have the id of the member for which it speaks.
    pub process: MemberId,
    /// It rises with each process that begins with the directory.
    pub count: u64,
}

impl DirectoryStart {
    /// A process that is this start of its directory. If the cluster went on without it, its next
    /// machine counts as another start: a hello that was under way may have named the former
    /// process beside the next key.
    #[must_use]
    pub const fn of(process: MemberId, starts: u64, machine: u64) -> Self {
        Self {
            process,
            count: starts.saturating_mul(MACHINES_MAX).saturating_add(machine),
        }
    }
}

/// The last process of each directory that was met, by the key of its votes.
#[derive(Debug, Default)]
pub struct DirectoryStarts(BTreeMap<VoteKey, DirectoryStart>);

impl DirectoryStarts {
    /// Whether this process may be met: no other one began with its directory later, or with a copy
    /// of it.
    pub fn meet(&mut self, key: VoteKey, start: DirectoryStart) -> bool {
        if let Some(last) = self.0.get(&key)
            && last.process != start.process
            && last.count >= start.count
        {
            return false;
        }
        if self.0.len() >= STARTS_MAX && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        self.0.insert(key, start);
        true
    }
}
