//! What a directory is to do, without its files and its thread: the simulation has the same work
//! and another disk.

use crate::mutant::STARTS_UNCOUNTED;
use doyen_gossip::agreement::Durable;
use doyen_placement::mutant::broken;
use std::time::Duration;
use zeroize::Zeroizing;

/// A write that failed is tried again after this, as a whole and in a new file.
pub const AGAIN: Duration = Duration::from_secs(1);

/// How many processes have begun with a directory once another one does.
#[must_use]
pub fn next_start(before: u64) -> u64 {
    if broken(&STARTS_UNCOUNTED) {
        return before;
    }
    before.saturating_add(1)
}

/// What the disk says.
#[derive(Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// All up to this write of this machine is synced.
    Synced {
        /// The number of the machine.
        machine: u64,
        /// The number of the write.
        write: u64,
    },
    /// A write failed, and is tried again.
    Failed(String),
    /// The directory is another process's, so this one must end.
    Lost(String),
}

/// What waits to be carried out. What is stored replaces all before it, so only the latest waits.
#[derive(Debug, Default)]
pub struct DirectoryWork {
    machine: u64,
    store: Option<(u64, Box<Durable>)>,
    forget: Option<Zeroizing<[u8; 32]>>,
}

/// What is carried out at one time: first it forgets, then it stores.
#[derive(Debug)]
pub struct DirectoryJob {
    /// The number of the machine whose writes count: each one begins with an empty directory.
    pub machine: u64,
    /// The directory forgets what it has, and gets this key.
    pub forget: Option<Zeroizing<[u8; 32]>>,
    /// What the machine writes, and the number of the write.
    pub store: Option<(u64, Box<Durable>)>,
}

impl DirectoryWork {
    /// Stores this, instead of all before it.
    pub fn store(&mut self, write: u64, durable: Box<Durable>) {
        self.store = Some((write, durable));
    }

    /// The cluster went on without this process: the directory forgets everything, and has this key
    /// from now on. Returns the number of the next machine.
    pub fn begin_again(&mut self, seed: [u8; 32]) -> u64 {
        self.forget = Some(Zeroizing::new(seed));
        self.store = None;
        self.machine += 1;
        self.machine
    }

    /// Takes what is to be done, if there is anything.
    pub fn take(&mut self) -> Option<DirectoryJob> {
        if self.store.is_none() && self.forget.is_none() {
            return None;
        }
        Some(DirectoryJob {
            machine: self.machine,
            forget: self.forget.take(),
            store: self.store.take(),
        })
    }

    /// It failed, and is done again with what came meanwhile, which replaces it. To forget twice is
    /// to forget.
    pub fn again(&mut self, job: DirectoryJob) {
        if self.machine == job.machine {
            self.store = self.store.take().or(job.store);
            self.forget = job.forget;
        }
    }
}

impl DirectoryJob {
    /// All of it is synced.
    #[must_use]
    pub fn synced(&self) -> Option<DiskEvent> {
        let (write, _) = self.store.as_ref()?;
        Some(DiskEvent::Synced {
            machine: self.machine,
            write: *write,
        })
    }
}
