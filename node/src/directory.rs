//! The directory of a node (`--dir`): what must not be forgotten when its process ends (rule 14 of
//! docs/agreement.md).
//!
//! | file | what it has | written |
//! |---|---|---|
//! | `lock` | nothing: the process that has the directory holds its lock | once |
//! | `count` | how many processes began with the directory | at each start |
//! | `key` | the seed of the key of votes | once, and if the cluster went on without it |
//! | `agreement` | votes, promises and tables | by a [`writer`] thread, before they count |
//!
//! Each file is replaced as a whole: the new one is written beside it, synced and renamed, and the
//! directory is synced. So a file is never torn. [`file`] has what all of them begin and end with.

mod file;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod synced;
mod writer;

pub(crate) use writer::{DirectoryWriter, DiskEvent};

use doyen_gossip::SigningSeed;
use doyen_gossip::agreement::Durable;
use doyen_placement::codec;
use file::{DirectoryId, FileKind, read, replace};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The name of the file whose lock the process holds.
const LOCK: &str = "lock";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// The system refused.
    #[error(
        "--dir {}: {what}: {error}. Give a directory that this user may write, on a disk that works \
         and has space",
        path.display()
    )]
    System {
        /// The directory, or a file in it.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// Another process has it.
    #[error(
        "--dir {} is in use by another process: end that one, or give this node a directory of its \
         own",
        .0.display()
    )]
    InUse(PathBuf),
    /// A file cannot be read.
    #[error("--dir {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
}

impl DirectoryError {
    fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::System { path, what, error }
    }
}

/// A directory that this process has.
#[derive(Debug)]
pub(crate) struct Directory {
    files: DirectoryFiles,
    /// What an earlier process promised and agreed to.
    pub(crate) durable: Option<Box<Durable>>,
    pub(crate) signing_seed: SigningSeed,
}

/// The files of a directory, while this process holds its lock.
#[derive(Debug)]
struct DirectoryFiles {
    path: PathBuf,
    lock: File,
    id: DirectoryId,
    /// How many processes began with it, with this one.
    starts: u64,
}

impl Directory {
    /// Takes a directory, and counts this start. If there is none, it is made.
    ///
    /// # Errors
    /// The directory cannot be used. The text says what to do.
    pub(crate) fn open(path: &Path) -> Result<Self, DirectoryError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(DirectoryError::system(path, "it cannot be made"))?;
        let lock = locked(path)?;
        let count = read(path, FileKind::Count, None)?;
        if count.is_none() {
            for kind in [FileKind::Key, FileKind::Agreement] {
                if read(path, kind, None)?.is_some() {
                    return Err(kind.refused(
                        path,
                        "the file `count` is missing beside it, so a part of the directory was \
                         lost",
                    ));
                }
            }
        }
        let (id, before) = match count {
            None => (DirectoryId(rand::random()), 0),
            Some((id, content)) => {
                let number = content
                    .first_chunk()
                    .map(|bytes| u64::from_le_bytes(*bytes));
                let number = number.filter(|_| content.len() == size_of::<u64>());
                let bad = || FileKind::Count.refused(path, "it has no number");
                (id, number.ok_or_else(bad)?)
            }
        };
        let files = DirectoryFiles {
            path: path.to_owned(),
            lock,
            id,
            starts: before + 1,
        };
        let agreement = read(path, FileKind::Agreement, Some(id))?;
        let key = read(path, FileKind::Key, Some(id))?;
        let durable = agreement.map(|(_, content)| {
            let durable = decoded(&content);
            durable.map_err(|why| FileKind::Agreement.refused(path, &why))
        });
        let durable = durable.transpose()?.map(Box::new);
        let seed = match key {
            Some((_, content)) => {
                let seed: Option<[u8; 32]> = content[..].try_into().ok();
                seed.ok_or_else(|| FileKind::Key.refused(path, "it is no key"))?
            }
            None if durable.is_some() => {
                let why =
                    "the file `key` is missing beside it, so a part of the directory was lost";
                return Err(FileKind::Agreement.refused(path, why));
            }
            None => rand::random(),
        };
        let seed = Zeroizing::new(seed);
        // The count comes first: without it, the other files are refused.
        files.replace(FileKind::Count, &files.starts.to_le_bytes())?;
        files.replace(FileKind::Key, &seed[..])?;
        Ok(Self {
            files,
            durable,
            signing_seed: SigningSeed::new(*seed),
        })
    }

    /// How many processes began with it, with this one.
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.files.path
    }

    pub(crate) const fn starts(&self) -> u64 {
        self.files.starts
    }
}

/// What a process promised and agreed to, of the file `agreement`.
fn decoded(content: &[u8]) -> Result<Durable, String> {
    let durable = codec::decode_numbered::<Durable>(content, codec::BYTES_MAX);
    let durable = durable.map_err(|e| e.to_string())?;
    for table in [&durable.committed, &durable.accepted] {
        let valid = table.validate();
        valid.map_err(|e| format!("it has a table that is not valid: {e}"))?;
    }
    Ok(durable)
}

/// Takes the lock, which lasts as long as the file is open.
fn locked(path: &Path) -> Result<File, DirectoryError> {
    let name = path.join(LOCK);
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).mode(0o600);
    let lock = open
        .open(&name)
        .map_err(DirectoryError::system(&name, "it cannot be opened"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(e) if e == rustix::io::Errno::WOULDBLOCK => Err(DirectoryError::InUse(path.to_owned())),
        Err(e) => Err(DirectoryError::system(&name, "it cannot be locked")(
            e.into(),
        )),
    }
}

impl DirectoryFiles {
    fn replace(&self, kind: FileKind, content: &[u8]) -> Result<(), DirectoryError> {
        replace(&self.path, (kind, self.id), content)
    }

    /// Whether the directory is still this process's: its lock is, and no other process has begun
    /// with it.
    fn is_own(&self) -> Result<(), String> {
        let gone = || {
            format!(
                "--dir {} is not this process's any more: another process has begun with it, or it \
                 was replaced. This process ends, so that there are not two",
                self.path.display()
            )
        };
        let of = |m: std::fs::Metadata| (m.dev(), m.ino());
        let own = self.lock.metadata().map(of).ok();
        let named = std::fs::metadata(self.path.join(LOCK)).map(of).ok();
        if own.is_none() || own != named {
            return Err(gone());
        }
        match read(&self.path, FileKind::Count, Some(self.id)) {
            Ok(Some((_, content))) if content == self.starts.to_le_bytes() => Ok(()),
            Ok(_) => Err(gone()),
            Err(e) => Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
