//! Append-only files: all keys at some moment, if there is a file of them, and each write since.
//!
//! ```text
//!   appendonlydir/ ── *.manifest ──> base file (RDB, or commands) ──> files of commands, in order
//!   one file ──────────────────────> RDB, or nothing ───────────────> commands behind it
//! ```

use super::formats::{damaged, open, unread};
use super::link::{NodeLink, Server};
use super::progress::{EXECUTED, MigrationProgress};
use super::replica::{CommandStream, execute};
use super::writers::{MigrationTally, Writers};
use crate::CommandFailed;
use doyen_rdb::RdbReader;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// How an RDB file begins.
const RDB: &[u8] = b"REDIS";
/// The longest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Whether this is the directory of such files, or one of them.
pub(super) fn is_append_only(path: &Path) -> bool {
    let begins = || {
        let mut first = [0];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
        // A command, or a time that stands before one.
        read.is_ok() && matches!(first[0], b'*' | b'#')
    };
    let is_named = path.extension().is_some_and(|end| end == "aof");
    path.is_dir() || is_named || begins()
}

/// Writes the keys of these files, and executes their commands, in their order.
pub(super) fn read(
    path: &Path,
    targets: &[Server],
    connections: u16,
) -> Result<(MigrationTally, Result<(), CommandFailed>), CommandFailed> {
    let mut tally = MigrationTally::new();
    let mut node = NodeLink::connect(targets)?;
    for (place, path) in files(path)?.into_iter().enumerate() {
        let mut file = open(&path)?;
        let unread = |e| unread(&path, &e);
        let mut offset = 0;
        if file.fill_buf().map_err(unread)?.starts_with(RDB) {
            if place > 0 {
                return Err(CommandFailed::usage(format!(
                    "{}: a file of keys is expected as the first one alone",
                    path.display()
                )));
            }
            let writers = Writers::start(targets, connections)?;
            let read = keys(&path, &mut file, &writers);
            let (found, written) = writers.finish(0);
            tally = found;
            match read.and_then(|read| written.map(|()| read)) {
                Ok(read) => offset = read,
                Err(e) => return Ok((tally, Err(e))),
            }
        }
        let done = commands((&path, offset), file, &mut node, &mut tally);
        if done.is_err() {
            return Ok((tally, done));
        }
    }
    Ok((tally, Ok(())))
}

/// Writes the keys of a file. Returns where they end.
fn keys(path: &Path, file: &mut BufReader<File>, writers: &Writers) -> Result<u64, CommandFailed> {
    let mut keys = RdbReader::new(file).map_err(|e| damaged(path, &e))?;
    writers.put_file(&mut keys, (None, None), |e| damaged(path, &e))?;
    Ok(keys.offset())
}

/// Executes the commands of a file, from this byte on.
fn commands(
    (path, offset): (&Path, u64),
    file: BufReader<File>,
    node: &mut NodeLink,
    tally: &mut MigrationTally,
) -> Result<(), CommandFailed> {
    let mut stream = CommandStream::new(file, offset);
    let mut progress = MigrationProgress::new(EXECUTED, None);
    while !stream.has_ended().map_err(|e| unread(path, &e))? {
        let (database, batch) = stream.batch().map_err(|e| {
            CommandFailed::new(format!(
                "{}: at its byte {}: {e}: the commands before it were executed; cut the file there \
                 if its last command is not whole",
                path.display(),
                stream.offset()
            ))
        })?;
        execute(node, database, batch, tally)?;
        progress.show(tally.commands, 0);
    }
    progress.end();
    Ok(())
}

/// The files of a directory, by its manifest and in their order, or this file alone.
fn files(path: &Path) -> Result<Vec<PathBuf>, CommandFailed> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unread = |e| unread(path, &e);
    let all = fs::read_dir(path).map_err(unread)?.flatten();
    let is_manifest = |path: &PathBuf| path.extension().is_some_and(|end| end == "manifest");
    let mut manifests = all.map(|entry| entry.path()).filter(is_manifest);
    let (Some(manifest), None) = (manifests.next(), manifests.next()) else {
        return Err(CommandFailed::usage(format!(
            "{}: a directory with one manifest of append-only files is expected \
             (`appendonlydir`), or name a file",
            path.display()
        )));
    };
    let mut text = String::new();
    let file = File::open(&manifest).map_err(unread)?;
    let read = file.take(MANIFEST_BYTES_MAX).read_to_string(&mut text);
    read.map_err(unread)?;
    let named = listed(&text).ok_or_else(|| {
        CommandFailed::usage(format!("{}: this is no manifest", manifest.display()))
    })?;
    Ok(named.into_iter().map(|name| path.join(name)).collect())
}

/// The files that a manifest lists: the one with keys, and those with commands by their numbers.
fn listed(manifest: &str) -> Option<Vec<&str>> {
    let lines = manifest.lines().filter(|line| !line.starts_with('#'));
    let mut listed = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["file", name, "seq", number, "type", kind] = words[..] else {
            return None;
        };
        // The files of a directory are in it.
        if Path::new(name).file_name() != Some(name.as_ref()) {
            return None;
        }
        let number: u64 = number.parse().ok()?;
        match kind {
            "b" => listed.push((0, number, name)),
            "i" => listed.push((1, number, name)),
            // They wait to be deleted.
            "h" => {}
            _ => return None,
        }
    }
    listed.sort_unstable();
    Some(listed.into_iter().map(|(_, _, name)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_the_order_of_their_manifest() {
        let manifest = "\
            file a.aof.2.base.rdb seq 2 type b\n\
            file a.aof.11.incr.aof seq 11 type i\n\
            # a remark\n\
            file a.aof.1.incr.aof seq 1 type h\n\n\
            file a.aof.10.incr.aof seq 10 type i\n";
        let expected = ["a.aof.2.base.rdb", "a.aof.10.incr.aof", "a.aof.11.incr.aof"];
        assert_eq!(listed(manifest), Some(expected.to_vec()));
        for wrong in [
            "file a seq 1",
            "file ../a seq 1 type i",
            "file a seq x type i",
            "file a seq 1 type z",
            "anything",
        ] {
            assert_eq!(listed(wrong), None, "{wrong}");
        }
    }
}
