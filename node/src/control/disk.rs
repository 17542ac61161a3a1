//! The directory of a node, as the control thread uses it.

use crate::directory::{Directory, DirectoryWriter, DiskEvent};
use crate::net::hello::DirectoryStart;
use crate::net::peers::OwnName;
use doyen_gossip::agreement::Durable;
use doyen_placement::MemberId;
use std::io;
use tokio::sync::mpsc::UnboundedSender;

/// The numbers of the machines of one start, at most.
const MACHINES_MAX: u64 = 1 << 20;

/// The directory, if the node has one.
pub(super) struct DirectoryDisk {
    writer: Option<DirectoryWriter>,
    /// The number of the machine, whose writes count from 1.
    machine: u64,
    /// How many processes began with the directory.
    starts: Option<u64>,
}

impl DirectoryDisk {
    /// Starts its thread. What that says goes to `events`.
    pub(super) fn start(
        directory: Option<Directory>,
        events: UnboundedSender<DiskEvent>,
    ) -> io::Result<Self> {
        let starts = directory.as_ref().map(Directory::starts);
        let writer = directory.map(|dir| DirectoryWriter::start(dir, events));
        Ok(Self {
            writer: writer.transpose()?,
            machine: 0,
            starts,
        })
    }

    /// Who a process is for others that speaks in the name of `id`. If the cluster went on without
    /// it, it counts as another start: a hello that was under way may have named the former process
    /// beside the next key.
    pub(super) fn name(&self, id: MemberId, process: MemberId) -> OwnName {
        let start = |starts: u64| DirectoryStart {
            process,
            count: starts
                .saturating_mul(MACHINES_MAX)
                .saturating_add(self.machine),
        };
        OwnName {
            id,
            start: self.starts.map(start),
        }
    }

    pub(super) fn store(&self, write: u64, durable: Box<Durable>) {
        if let Some(writer) = &self.writer {
            writer.store(write, durable);
        }
    }

    /// The cluster went on without this process. The next machine's key is of this seed.
    pub(super) fn begin_again(&mut self, seed: [u8; 32]) {
        if let Some(writer) = &self.writer {
            self.machine = writer.begin_again(seed);
        }
    }

    /// Whether a write is one of the present machine: those of a former one say nothing of it.
    pub(super) const fn is_of_present(&self, machine: u64) -> bool {
        self.machine == machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a node that the others had gone on without was refused for good as a copy of its
    /// own directory, if a connection was under way when it began again.
    #[test]
    fn a_process_that_begins_again_counts_as_a_later_start() {
        let count = |starts, machine| {
            let disk = DirectoryDisk {
                writer: None,
                machine,
                starts: Some(starts),
            };
            let name = disk.name(MemberId(1 << 20), MemberId(2 << 20));
            name.start.map(|start| start.count)
        };
        assert!(count(3, 0) < count(3, 1) && count(3, 1) < count(4, 0));
        assert!(count(u64::MAX, 1).is_some());
    }
}
