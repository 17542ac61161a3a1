//! The files of a log: those of a directory, or what a test puts in their place.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A directory of files.
pub trait Files {
    /// A file that is written.
    type File: LogFile;

    /// The names of its files.
    ///
    /// # Errors
    /// The system's.
    fn names(&self) -> io::Result<Vec<String>>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// A new file, which must not exist.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Cuts a file off after this many bytes, and returns once that is synced.
    ///
    /// # Errors
    /// The system's.
    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once files that were made or removed are so on the disk.
    ///
    /// # Errors
    /// The system's.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file that is written from its beginning to its end.
pub trait LogFile {
    /// Writes bytes behind the others.
    ///
    /// # Errors
    /// The system's. Then some of the bytes may be there.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns once all bytes are on the disk.
    ///
    /// # Errors
    /// The system's. Then any of the bytes since the last sync may be lost.
    fn sync(&mut self) -> io::Result<()>;
}

/// The files of a directory on a disk.
#[derive(Debug, Clone)]
pub struct DiskFiles(PathBuf);

impl DiskFiles {
    /// The files of this directory, which exists.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }
}

impl Files for DiskFiles {
    type File = DiskFile;

    fn names(&self) -> io::Result<Vec<String>> {
        std::fs::read_dir(&self.0)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(name))
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        let mut open = OpenOptions::new();
        open.append(true).create_new(true).mode(0o600);
        Ok(DiskFile(open.open(self.0.join(name))?))
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.0.join(name))?;
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

/// A file on a disk.
#[derive(Debug)]
pub struct DiskFile(File);

impl LogFile for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
