//! The formats of files, behind one reader and one writer.

use super::Found;
use crate::CommandFailed;
use doyen_rdb::{NdjsonReader, NdjsonWriter, RdbError, RdbReader, RdbWriter};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

/// What a file of keys consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FileFormat {
    /// The format of Redis and Valkey
    Rdb,
    /// Newline-delimited JSON: a line for each key
    Ndjson,
}

impl FileFormat {
    /// The format that was given, or else that of the name.
    pub(super) fn of(given: Option<Self>, path: &Path) -> Self {
        let is_json = |end: &str| {
            path.extension()
                .is_some_and(|it| it.eq_ignore_ascii_case(end))
        };
        given.unwrap_or(if is_json("ndjson") || is_json("jsonl") {
            Self::Ndjson
        } else {
            Self::Rdb
        })
    }
}

/// Reads the keys of a file. It ends after the first error.
pub(super) enum KeyReader {
    Rdb(RdbReader<BufReader<File>>),
    Ndjson(NdjsonReader<BufReader<File>>),
}

impl KeyReader {
    /// Opens a file, and says how many bytes it has.
    pub(super) fn open(path: &Path, format: FileFormat) -> Result<(Self, u64), CommandFailed> {
        let file = open(path)?;
        let about = file.get_ref().metadata();
        let size = about.map_err(|e| unread(path, &e))?.len();
        let reader = match format {
            FileFormat::Rdb => Self::Rdb(RdbReader::new(file).map_err(|e| damaged(path, &e))?),
            FileFormat::Ndjson => Self::Ndjson(NdjsonReader::new(file)),
        };
        Ok((reader, size))
    }

    /// How many bytes were read.
    pub(super) const fn offset(&self) -> u64 {
        match self {
            Self::Rdb(reader) => reader.offset(),
            Self::Ndjson(reader) => reader.offset(),
        }
    }

    /// How many libraries of functions were passed over.
    pub(super) const fn functions(&self) -> u64 {
        match self {
            Self::Rdb(reader) => reader.functions(),
            Self::Ndjson(_) => 0,
        }
    }
}

impl Iterator for KeyReader {
    type Item = Result<Found, RdbError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Rdb(reader) => reader.next(),
            Self::Ndjson(reader) => reader.next(),
        }
    }
}

/// Opens a file that is read from its beginning to its end.
pub(super) fn open(path: &Path) -> Result<BufReader<File>, CommandFailed> {
    let file = File::open(path).map_err(|e| unread(path, &e))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

pub(super) fn unread(path: &Path, e: &std::io::Error) -> CommandFailed {
    CommandFailed::usage(format!("cannot read {}: {e}", path.display()))
}

pub(super) fn damaged(path: &Path, e: &RdbError) -> CommandFailed {
    CommandFailed::new(format!("{}: {e}", path.display()))
}

/// Writes keys to a file.
pub(super) enum KeyWriter {
    Rdb(RdbWriter<BufWriter<File>>),
    Ndjson(NdjsonWriter<BufWriter<File>>),
}

impl KeyWriter {
    pub(super) fn key(&mut self, found: &Found) -> Result<(), RdbError> {
        let (database, key, deadline) = (found.database, &found.key, found.deadline);
        match self {
            Self::Rdb(writer) => writer.key(database, key, deadline, &found.value),
            Self::Ndjson(writer) => writer.key(database, key, deadline, &found.value),
        }
    }

    pub(super) fn finish(self) -> Result<BufWriter<File>, RdbError> {
        match self {
            Self::Rdb(writer) => writer.finish(),
            Self::Ndjson(writer) => writer.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_the_format_unless_one_is_given() {
        let of = |given, name| FileFormat::of(given, Path::new(name));
        for name in ["all.ndjson", "/a/b.JSONL", "a.rdb.ndjson"] {
            assert_eq!(of(None, name), FileFormat::Ndjson, "{name}");
            assert_eq!(of(Some(FileFormat::Rdb), name), FileFormat::Rdb, "{name}");
        }
        for name in ["dump.rdb", "all.json", "ndjson", "a.ndjson/dump"] {
            assert_eq!(of(None, name), FileFormat::Rdb, "{name}");
            assert_eq!(of(Some(FileFormat::Ndjson), name), FileFormat::Ndjson);
        }
    }
}
