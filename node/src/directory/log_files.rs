//! The files of the logs of data threads, in the directory of a node.

use super::synced::{sync_names, sync_tail};
use doyen_disk::{DiskFile, DiskFiles, Files, LogFile};
use doyen_placement::Table;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the data threads of a node keep what must outlive them.
#[derive(Debug, Clone)]
pub(crate) struct DataDirectory {
    pub(crate) path: PathBuf,
    /// What tells its files from those of others.
    pub(crate) id: [u8; 16],
    /// The latest table that the process before knew, if it was a member.
    pub(crate) table: Option<Arc<Table>>,
}

/// The logs in a directory.
#[derive(Debug, Clone)]
pub(crate) struct LogFiles {
    path: PathBuf,
    files: DiskFiles,
}

/// A file of a log.
#[derive(Debug)]
pub(crate) struct NodeLogFile {
    path: PathBuf,
    file: DiskFile,
}

impl LogFiles {
    /// Those in the directory of a node.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            files: DiskFiles::new(path),
        }
    }

    /// Refuses a directory with logs of more threads than there are.
    pub(crate) fn refuse_threads_from(&self, threads: u8) -> io::Result<()> {
        for name in self.files.names()? {
            let log = name
                .strip_suffix(".log")
                .and_then(|name| name.split_once('-'));
            let thread = log.and_then(|(thread, _)| thread.parse::<u8>().ok());
            if thread.is_some_and(|thread| thread >= threads) {
                return Err(io::Error::other(format!(
                    "--dir {}: it has logs of more than {threads} data threads: start the node \
                     with --threads as before",
                    self.path.display()
                )));
            }
        }
        Ok(())
    }
}

impl Files for LogFiles {
    type File = NodeLogFile;

    fn names(&self) -> io::Result<Vec<String>> {
        self.files.names()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        Ok(NodeLogFile {
            path: self.path.join(name),
            file: self.files.create(name)?,
        })
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.files.truncate(name, bytes)?;
        sync_tail(&self.path.join(name), || Ok(()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_names(&self.path)
    }
}

impl LogFile for NodeLogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        sync_tail(&self.path, || self.file.sync())
    }
}
