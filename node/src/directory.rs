//! The directory of a node (`--dir`): what must not be forgotten when its process ends (rule 14 of
//! docs/agreement.md).
//!
//! | file | what it has | written |
//! |---|---|---|
//! | `lock` | nothing: the process that has the directory holds its lock | once |
//! | `count` | how many processes began with the directory | at each start |
//! | `key` | the seed of the key of votes, and whether `agreement` counts | rarely: see below |
//! | `agreement` | votes, promises and tables | by a thread of its own (`writer`), before they count |
//!
//! Each file is replaced as a whole: the new one is written beside it, synced and renamed, and the
//! directory is synced. So a file is never torn. [`file`] has what all of them begin and end with.
//!
//! The key is written at the start, and once the first agreement with it is synced. If the cluster
//! went on without this process, another key is written, with which nothing was agreed yet: by that
//! one write, the directory forgets everything.

mod file;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub(crate) mod log_files;
mod synced;
pub mod work;
mod writer;

pub(crate) use writer::DirectoryWriter;

use crate::directory::log_files::DataDirectory;
use doyen_gossip::SigningSeed;
use doyen_gossip::agreement::Durable;
use doyen_placement::codec;
use file::{DirectoryId, FileKind, open_regular, read, replace};
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
    key: DirectoryKey,
}

/// What the file `key` has.
#[derive(Debug, Clone)]
struct DirectoryKey {
    seed: Zeroizing<[u8; 32]>,
    /// Whether the file `agreement` counts. If not, it may be there all the same: nothing that a
    /// process of this key promised is in it.
    has_agreed: bool,
}

impl Directory {
    /// Takes a directory, and counts this start. If there is none, it is made. `level_max`: the
    /// highest level that this node speaks.
    ///
    /// # Errors
    /// The directory cannot be used. The text says what to do.
    pub(crate) fn open(path: &Path, level_max: u16) -> Result<Self, DirectoryError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(DirectoryError::system(path, "it cannot be made"))?;
        let lock = locked(path)?;
        let (id, starts) = counted(path)?;
        let key = DirectoryKey::read(path, id)?;
        let durable = agreed(path, id, key.as_ref(), level_max)?;
        let files = DirectoryFiles {
            path: path.to_owned(),
            lock,
            id,
            starts,
            key: key.unwrap_or_else(|| DirectoryKey::new(Zeroizing::new(rand::random()))),
        };
        // The count comes first: without it, the other files are refused.
        files.replace(FileKind::Count, &files.starts.to_le_bytes())?;
        files.write_key()?;
        Ok(Self {
            signing_seed: SigningSeed::new(*files.key.seed),
            files,
            durable,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.files.path
    }

    /// Where the data threads keep what must outlive them.
    pub(crate) fn data(&self) -> DataDirectory {
        DataDirectory {
            path: self.files.path.clone(),
            id: self.files.id.0,
            table: (self.durable.as_ref()).map(|durable| durable.accepted.clone()),
        }
    }

    /// How many processes began with it, with this one.
    pub(crate) const fn starts(&self) -> u64 {
        self.files.starts
    }
}

/// Why a file is refused beside which another one is missing.
fn lost(missing: FileKind) -> String {
    format!(
        "the file `{}` is missing beside it, so a part of the directory was lost",
        missing.name()
    )
}

/// Whose the files of a directory are, and the number of this start, by the file `count`.
fn counted(path: &Path) -> Result<(DirectoryId, u64), DirectoryError> {
    let Some((id, content)) = read(path, FileKind::Count, None)? else {
        for kind in [FileKind::Key, FileKind::Agreement] {
            if read(path, kind, None)?.is_some() {
                return Err(kind.refused(path, &lost(FileKind::Count)));
            }
        }
        return Ok((DirectoryId(rand::random()), 1));
    };
    let before = content[..].try_into().map(u64::from_le_bytes).ok();
    let next = before
        .filter(|before| *before < u64::MAX)
        .map(work::next_start);
    let bad = || FileKind::Count.refused(path, "it has no number");
    Ok((id, next.ok_or_else(bad)?))
}

impl DirectoryKey {
    /// A key with which nothing was promised yet.
    const fn new(seed: Zeroizing<[u8; 32]>) -> Self {
        Self {
            seed,
            has_agreed: false,
        }
    }

    /// The key of a directory. `None`: this is its first start.
    fn read(path: &Path, id: DirectoryId) -> Result<Option<Self>, DirectoryError> {
        let Some((_, content)) = read(path, FileKind::Key, Some(id))? else {
            return Ok(None);
        };
        let (&[has_agreed @ (0 | 1)], seed) = content
            .split_first_chunk()
            .ok_or_else(|| FileKind::Key.refused(path, "it is empty"))?
        else {
            return Err(FileKind::Key.refused(path, "it is no key"));
        };
        let seed: Option<[u8; 32]> = seed.try_into().ok();
        let seed = seed.ok_or_else(|| FileKind::Key.refused(path, "it is no key"))?;
        Ok(Some(Self {
            seed: Zeroizing::new(seed),
            has_agreed: has_agreed == 1,
        }))
    }
}

/// What an earlier process promised and agreed to, of the file `agreement`.
fn agreed(
    path: &Path,
    id: DirectoryId,
    key: Option<&DirectoryKey>,
    level_max: u16,
) -> Result<Option<Box<Durable>>, DirectoryError> {
    let kind = FileKind::Agreement;
    let content = match (read(path, kind, Some(id))?, key) {
        (Some(_), None) => return Err(kind.refused(path, &lost(FileKind::Key))),
        (None, Some(key)) if key.has_agreed => {
            return Err(FileKind::Key.refused(path, &lost(kind)));
        }
        (Some((_, content)), Some(key)) if key.has_agreed => content,
        (Some(_) | None, _) => return Ok(None),
    };
    let durable = decoded(&content).map_err(|why| kind.refused(path, &why))?;
    let level = durable.committed.level.max(durable.accepted.level);
    if level > level_max {
        return Err(DirectoryError::File {
            path: path.join(kind.name()),
            why: format!(
                "it is of a cluster at level {level}, and --level-max keeps this node at level \
                 {level_max}: start it without --level-max"
            ),
        });
    }
    Ok(Some(Box::new(durable)))
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
    let lock = open_regular(&mut open, &name)
        .map_err(DirectoryError::system(&name, "it cannot be opened"))?;
    let lock = lock.ok_or_else(|| DirectoryError::File {
        path: name.clone(),
        why: "it is no regular file: remove it".into(),
    })?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(e) if e == rustix::io::Errno::WOULDBLOCK => Err(DirectoryError::InUse(path.to_owned())),
        Err(e) => Err(DirectoryError::system(&name, "it cannot be locked")(
            e.into(),
        )),
    }
}

impl DirectoryFiles {
    fn write_key(&self) -> Result<(), DirectoryError> {
        let DirectoryKey { seed, has_agreed } = &self.key;
        let content = Zeroizing::new([&[u8::from(*has_agreed)], &seed[..]].concat());
        self.replace(FileKind::Key, &content)
    }

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
