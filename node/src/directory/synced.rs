//! Syncs of files and of their names. To the tests of a process that loses power, they also say what
//! was synced.
//!
//! If there is a directory `DIR.synced` beside `DIR`, and only in builds with the feature
//! `fault-points`, it gets the content of each file when that is synced (`content/INODE`), the
//! length of a file that only grows (`length/INODE`), and which files there were when the names were (`names`). A test that has killed the process puts back what
//! is there: to kill a process alone loses nothing, because the system has all that was written. If
//! `DIR.synced/lies` exists, nothing is synced, and each sync says that it has worked.

use std::fs::File;
use std::io;
use std::path::Path;

/// Returns once the disk has all of a file of this path.
pub(super) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(feature = "fault-points")]
    if let Some(journal) = journal::Journal::of(path.parent()) {
        return journal.file(file, path);
    }
    let _ = path;
    file.sync_all()
}

/// Returns once the disk knows which files a directory has.
pub(super) fn sync_names(dir: &Path) -> io::Result<()> {
    #[cfg(feature = "fault-points")]
    if let Some(journal) = journal::Journal::of(Some(dir)) {
        return journal.names(dir);
    }
    File::open(dir)?.sync_all()
}

/// Carries out a sync of a file to whose end bytes are written, and to no other place.
pub(super) fn sync_tail(path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    #[cfg(feature = "fault-points")]
    if let Some(journal) = journal::Journal::of(path.parent()) {
        return journal.tail(path, sync);
    }
    let _ = path;
    sync()
}

#[cfg(feature = "fault-points")]
mod journal {
    use std::fmt::Write as _;
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    pub(super) struct Journal(PathBuf);

    impl Journal {
        /// The journal of a directory, if a test wants one.
        pub(super) fn of(dir: Option<&Path>) -> Option<Self> {
            let mut beside = dir?.as_os_str().to_owned();
            beside.push(".synced");
            let beside = PathBuf::from(beside);
            beside.is_dir().then_some(Self(beside))
        }

        fn lies(&self) -> bool {
            self.0.join("lies").exists()
        }

        pub(super) fn file(&self, file: &File, path: &Path) -> io::Result<()> {
            if self.lies() {
                return Ok(());
            }
            file.sync_all()?;
            let contents = self.0.join("content");
            fs::create_dir_all(&contents)?;
            let content = contents.join(file.metadata()?.ino().to_string());
            fs::copy(path, self.0.join("next"))?;
            fs::rename(self.0.join("next"), content)
        }

        pub(super) fn tail(
            &self,
            path: &Path,
            sync: impl FnOnce() -> io::Result<()>,
        ) -> io::Result<()> {
            if self.lies() {
                return Ok(());
            }
            // What is written while this syncs may or may not be on the disk.
            let written = fs::metadata(path)?;
            sync()?;
            let lengths = self.0.join("length");
            fs::create_dir_all(&lengths)?;
            let next = lengths.join(format!("{}.next", written.ino()));
            fs::write(&next, written.len().to_string())?;
            fs::rename(next, lengths.join(written.ino().to_string()))
        }

        pub(super) fn names(&self, dir: &Path) -> io::Result<()> {
            if self.lies() {
                return Ok(());
            }
            File::open(dir)?.sync_all()?;
            let mut names = String::new();
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                let (inode, name) = (entry.metadata()?.ino(), entry.file_name());
                let written = writeln!(names, "{inode} {}", name.to_string_lossy());
                written.map_err(io::Error::other)?;
            }
            fs::write(self.0.join("next"), names)?;
            fs::rename(self.0.join("next"), self.0.join("names"))
        }
    }
}
