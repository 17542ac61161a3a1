//! What the files of a directory begin and end with, and how one is replaced.
//!
//! ```text
//!   "DOYENDIR"  kind u8  version u16  id of the directory, 16 bytes  length u64     (little endian)
//!   content
//!   checksum u64: XXH3 of all before
//! ```

use super::DirectoryError;
use super::synced::{sync_file, sync_names};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"DOYENDIR";
/// The version of the files that this program writes, and the highest that it reads.
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 35;
const CHECKSUM_BYTES: usize = 8;
/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 80 << 20;

/// Tells the files of one directory from those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectoryId(pub(super) [u8; 16]);

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Count = 1,
    Key = 2,
    Agreement = 3,
}

impl FileKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Key => "key",
            Self::Agreement => "agreement",
        }
    }

    /// The file cannot be used, for this reason.
    pub(super) fn refused(self, dir: &Path, why: &str) -> DirectoryError {
        DirectoryError::File {
            path: dir.join(self.name()),
            why: format!(
                "{why}. If most other nodes of the cluster live, or come back with their \
                 directories, move this directory away and start the node with an empty one: it \
                 joins them as a new member"
            ),
        }
    }
}

/// What a file says, and whose it is. `None`: there is no such file.
pub(super) type FileContent = Option<(DirectoryId, Vec<u8>)>;

/// Reads a file of a directory, which must be of this directory, if that is known.
pub(super) fn read(
    dir: &Path,
    kind: FileKind,
    id: Option<DirectoryId>,
) -> Result<FileContent, DirectoryError> {
    let path = dir.join(kind.name());
    let mut bytes = Vec::new();
    let cannot = DirectoryError::system(&path, "it cannot be read");
    let file = match open_regular(OpenOptions::new().read(true), &path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(e)),
        Ok(file) => file.ok_or_else(|| kind.refused(dir, "it is no regular file"))?,
    };
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(cannot)?;
    let (of, content) = decode(kind, &bytes).map_err(|unfit| match unfit {
        Unfit::Newer(version) => DirectoryError::File {
            path: path.clone(),
            why: format!(
                "it is of version {version}, and this program reads versions up to {VERSION}: start \
                 the newer program"
            ),
        },
        Unfit::Damaged(why) => kind.refused(dir, why),
    })?;
    if id.is_some_and(|id| id != of) {
        return Err(kind.refused(dir, "it is of another directory than the file `count`"));
    }
    Ok(Some((of, content.to_vec())))
}

/// Opens a file. `None`: it is no regular one, such as a pipe, which could be waited for for ever.
pub(super) fn open_regular(open: &mut OpenOptions, path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = open.custom_flags(flags).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Why bytes are no file of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is of a later version.
    Newer(u16),
    Damaged(&'static str),
}

pub(super) fn decode(kind: FileKind, bytes: &[u8]) -> Result<(DirectoryId, &[u8]), Unfit> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Err(Unfit::Damaged("it is cut off"));
    };
    let (magic, head) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Unfit::Damaged("it is no file of a directory of Doyen"));
    }
    let (&[own, low, high], head) = head
        .split_first_chunk()
        .ok_or(Unfit::Damaged("it is cut off"))?;
    let version = u16::from_le_bytes([low, high]);
    if version > VERSION {
        return Err(Unfit::Newer(version));
    }
    if own != kind as u8 {
        return Err(Unfit::Damaged("it is another file of a directory"));
    }
    let (id, length) = head
        .split_first_chunk::<16>()
        .ok_or(Unfit::Damaged("it is cut off"))?;
    let length = length
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (content, checksum) = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .filter(|(_, checksum)| checksum.len() == CHECKSUM_BYTES)
        .ok_or(Unfit::Damaged("it has another length than it says"))?;
    let all = bytes.len() - CHECKSUM_BYTES;
    if checksum != xxh3_64(&bytes[..all]).to_le_bytes() {
        return Err(Unfit::Damaged("it is damaged: its checksum differs"));
    }
    Ok((DirectoryId(*id), content))
}

pub(super) fn encode((kind, id): (FileKind, DirectoryId), content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.push(kind as u8);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&id.0);
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// Replaces a file, and returns once that is synced. After an error, the file is what it was, or
/// what it should be.
pub(super) fn replace(
    dir: &Path,
    (kind, id): (FileKind, DirectoryId),
    content: &[u8],
) -> Result<(), DirectoryError> {
    let path = dir.join(kind.name());
    let beside = dir.join(format!("{}.new", kind.name()));
    let write = || {
        // One that was not renamed, or anything else of that name.
        removed(&beside)?;
        let mut open = OpenOptions::new();
        open.write(true).create_new(true).mode(0o600);
        let mut file = open.open(&beside)?;
        file.write_all(&encode((kind, id), content))?;
        sync_file(&file, &beside)?;
        std::fs::rename(&beside, &path)?;
        sync_names(dir)
    };
    write().map_err(DirectoryError::system(&path, "it cannot be written"))
}

/// Removes a file, and returns once that is synced.
pub(super) fn remove(dir: &Path, kind: FileKind) -> Result<(), DirectoryError> {
    let path = dir.join(kind.name());
    removed(&path)
        .and_then(|()| sync_names(dir))
        .map_err(DirectoryError::system(&path, "it cannot be removed"))
}

fn removed(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: DirectoryId = DirectoryId([7; 16]);

    #[test]
    fn a_file_comes_back_and_a_changed_one_is_refused() {
        let bytes = encode((FileKind::Key, ID), b"content");
        assert_eq!(decode(FileKind::Key, &bytes), Ok((ID, &b"content"[..])));
        assert!(decode(FileKind::Count, &bytes).is_err());
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(decode(FileKind::Key, &other).is_err(), "byte {at}");
            assert!(decode(FileKind::Key, &bytes[..at]).is_err(), "cut at {at}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(decode(FileKind::Key, &longer).is_err());
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = encode((FileKind::Key, ID), b"");
        bytes[9] = 2;
        assert_eq!(decode(FileKind::Key, &bytes), Err(Unfit::Newer(2)));
    }
}
