//! The directory of a node, as the control thread uses it.

use super::DirectoryState;
use crate::clock;
use crate::directory::work::DiskEvent;
use crate::directory::{Directory, DirectoryWriter};
use crate::net::peers::OwnName;
use crate::net::starts::DirectoryStart;
use doyen_gossip::Time;
use doyen_gossip::agreement::Durable;
use doyen_placement::MemberId;
use std::io;
use tokio::sync::mpsc::UnboundedSender;

/// The directory, if the node has one.
pub(super) struct DirectoryDisk {
    writer: Option<DirectoryWriter>,
    /// The number of the machine, whose writes count from 1.
    machine: u64,
    /// How many processes began with the directory.
    starts: Option<u64>,
    state: Option<DirectoryState>,
    /// The number of the latest write, and since when one is under way.
    written: u64,
    writes_since: Option<Time>,
}

impl DirectoryDisk {
    /// Starts its thread. What that says goes to `events`.
    pub(super) fn start(
        directory: Option<Directory>,
        events: UnboundedSender<DiskEvent>,
    ) -> io::Result<Self> {
        let starts = directory.as_ref().map(Directory::starts);
        let state = directory.as_ref().map(|directory| DirectoryState {
            path: directory.path().to_owned(),
            ..DirectoryState::default()
        });
        let writer = directory.map(|dir| DirectoryWriter::start(dir, events));
        Ok(Self {
            writer: writer.transpose()?,
            machine: 0,
            starts,
            state,
            written: 0,
            writes_since: None,
        })
    }

    /// How writes go; `None`: there is no directory.
    pub(super) fn state(&self) -> Option<DirectoryState> {
        let mut state = self.state.clone()?;
        if let Some(since) = self.writes_since {
            state.write = state.write.max(clock::now().since(since));
        }
        Some(state)
    }

    /// A write is done. Returns whether it is one of the present machine: those of a former one say
    /// nothing of it.
    pub(super) fn synced(&mut self, machine: u64, write: u64) -> bool {
        if let Some(state) = &mut self.state {
            state.failure = None;
            if let Some(since) = self.writes_since {
                state.write = clock::now().since(since);
            }
        }
        let is_of_present = self.machine == machine;
        if is_of_present && write == self.written {
            self.writes_since = None;
        } else {
            // Another one has been waiting for it.
            self.writes_since = self.writes_since.map(|_| clock::now());
        }
        is_of_present
    }

    /// A write failed.
    pub(super) fn failed(&mut self, why: String) {
        if let Some(state) = &mut self.state {
            state.failure = Some(why);
        }
    }

    /// Who a process is for others that speaks in the name of `id`.
    pub(super) fn name(&self, id: MemberId, process: MemberId) -> OwnName {
        let start = |starts| DirectoryStart::of(process, starts, self.machine);
        OwnName {
            id,
            start: self.starts.map(start),
        }
    }

    /// How often processes began with the directory, if there is one.
    pub(super) fn count(&self, process: MemberId) -> Option<u64> {
        self.name(process, process).start.map(|start| start.count)
    }

    pub(super) fn store(&mut self, write: u64, durable: Box<Durable>) {
        if let Some(writer) = &self.writer {
            self.written = write;
            self.writes_since.get_or_insert_with(clock::now);
            writer.store(write, durable);
        }
    }

    /// The cluster went on without this process. The next machine's key is of this seed.
    pub(super) fn begin_again(&mut self, seed: [u8; 32]) {
        if let Some(writer) = &self.writer {
            self.machine = writer.begin_again(seed);
            (self.written, self.writes_since) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Regression: a node that the others had gone on without was refused for good as a copy of its
    /// own directory, if a connection was under way when it began again.
    #[test]
    fn a_process_that_begins_again_counts_as_a_later_start() {
        let count = |starts, machine| {
            let disk = DirectoryDisk {
                writer: None,
                machine,
                starts: Some(starts),
                state: None,
                written: 0,
                writes_since: None,
            };
            let name = disk.name(MemberId(1 << 20), MemberId(2 << 20));
            name.start.map(|start| start.count)
        };
        assert!(count(3, 0) < count(3, 1) && count(3, 1) < count(4, 0));
        assert!(count(u64::MAX, 1).is_some());
    }

    #[test]
    fn a_failure_is_shown_until_a_write_succeeds() {
        let state = DirectoryState {
            path: "/d".into(),
            ..DirectoryState::default()
        };
        let mut disk = DirectoryDisk {
            writer: None,
            machine: 1,
            starts: Some(1),
            state: Some(state.clone()),
            written: 7,
            writes_since: Some(Time::ZERO),
        };
        disk.failed("it is full".to_owned());
        let shown = disk.state().expect("there is a directory");
        assert_eq!(shown.failure.as_deref(), Some("it is full"));
        // It has been under way since the clock began.
        assert!(shown.write > Duration::ZERO);
        assert!(!disk.synced(0, 7), "it is of a former machine");
        assert!(disk.synced(1, 6) && disk.writes_since.is_some());
        assert!(disk.synced(1, 7) && disk.writes_since.is_none());
        assert_eq!(disk.state().expect("a directory").failure, None);
    }
}
