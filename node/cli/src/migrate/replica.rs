//! Reads a running Redis or Valkey as a replica does: a file with all keys, and then each write.
//!
//! ```text
//!   AUTH, PING, REPLCONF, PSYNC ? -1 ─> +FULLRESYNC id offset
//!     $length, or $EOF:mark           ─> the file (and the mark)
//!     commands                        ─> executed in their order
//!   meanwhile, once a second: a line end, and then REPLCONF ACK offset
//! ```
//! Writes that the source propagates go over one connection, each once. Commands of a batch have no
//! word in common, so one that a node does not take yet is tried again before any later one of its
//! key.

use super::link::{LinkBroken, NodeLink, Server, SourceLink, Words, no_database, words};
use super::progress::{EXECUTED, MigrationProgress};
use super::writers::{MigrationTally, RETRY_EVERY, RETRY_MAX, Writers};
use crate::stay::Interrupts;
use crate::{CommandFailed, complain, runtime};
use doyen::resp::client::{Reply, nothing_happened};
use doyen_rdb::RdbReader;
use socket2::Socket;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source that is silent for so long is gone: it says something every ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const ACK_EVERY: Duration = Duration::from_secs(1);
/// No acknowledgement is sent before the file is read.
const NO_OFFSET: u64 = u64::MAX;
/// The longest line, and the limits of a command.
const LINE_BYTES_MAX: u64 = 64 << 10;
const WORDS_MAX: u64 = 1 << 20;
const WORD_BYTES_MAX: u64 = 512 << 20;
/// Commands that are executed at once.
const BATCH: usize = 256;
/// What is said of a write whose node ended before it answered.
const UNKNOWN: &str = "a node ended before it answered: whether this was done is not known; compare \
                       with --verify, and import again what differs";
/// Commands after which the state is the same if they are executed twice.
const REPEATABLE: [&str; 26] = [
    "DEL",
    "EXPIREAT",
    "HDEL",
    "HMSET",
    "HPERSIST",
    "HPEXPIREAT",
    "HSET",
    "HSETNX",
    "LSET",
    "MSET",
    "MSETNX",
    "PERSIST",
    "PEXPIREAT",
    "PFADD",
    "PSETEX",
    "SADD",
    "SET",
    "SETBIT",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "SREM",
    "UNLINK",
    "XDEL",
    "ZADD",
    "ZREM",
];

/// A source that takes us for a replica.
pub(super) struct Replica {
    stream: Socket,
    reader: BufReader<Socket>,
    offset: u64,
}

/// Asks the source for its keys and writes. `None`: it refuses.
pub(super) fn begin(source: &Server) -> Result<Option<Replica>, CommandFailed> {
    let stream = source.dial()?;
    let failed = |e: std::io::Error| source.failed(e);
    stream.set_read_timeout(Some(SILENCE_MAX)).map_err(failed)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(failed)?);
    let mut ask = |command: &[&str]| {
        (&stream).write_all(&encoded(command)).map_err(failed)?;
        line(&mut reader).map_err(failed)
    };
    for command in source.login().into_iter().chain([vec!["PING"]]) {
        let said = ask(&command)?;
        if let Some(why) = said.strip_prefix('-') {
            return Err(source.failed(why));
        }
    }
    // Sources that do not know them say so, and go on.
    ask(&["REPLCONF", "listening-port", "0"])?;
    ask(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
    let said = ask(&["PSYNC", "?", "-1"])?;
    let mut parts = said.split(' ');
    if parts.next() != Some("+FULLRESYNC") {
        let why = said.trim_start_matches('-');
        complain(format_args!(
            "the source refuses to be read as by a replica ({why}): its keys are read with SCAN, \
             and what is written meanwhile may be missing"
        ));
        return Ok(None);
    }
    let offset = parts.nth(1).and_then(|offset| offset.parse().ok());
    let offset = offset.ok_or_else(|| source.failed(format!("`{said}` has no offset")))?;
    Ok(Some(Replica {
        stream,
        reader,
        offset,
    }))
}

fn encoded(command: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", command.len());
    for word in command {
        out += &format!("${}\r\n{word}\r\n", word.len());
    }
    out.into_bytes()
}

/// The next line that is not empty.
fn line(reader: &mut impl BufRead) -> std::io::Result<String> {
    loop {
        let mut line = Vec::new();
        reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !line.is_empty() {
            return Ok(line);
        }
    }
}

/// How the source says where the file ends.
enum FileEnd {
    Length(u64),
    Mark(String),
}

/// Writes all keys of the source, and then each write of it, until an interrupt or until it has
/// caught up.
pub(super) fn follow(
    mut replica: Replica,
    source: &Server,
    targets: &[Server],
    (until_caught_up, connections): (bool, u16),
) -> Result<(MigrationTally, Result<(), CommandFailed>), CommandFailed> {
    if until_caught_up {
        // Whether the source says it is known before all keys are read.
        offset_of(source)?;
    }
    let failed = |e: std::io::Error| source.failed(e);
    let acks = Acks::start(replica.stream.try_clone().map_err(failed)?);
    let writers = Writers::start(targets, connections)?;
    let read = keys(&mut replica.reader, source, &writers);
    let (mut tally, written) = writers.finish(0);
    if let Err(e) = read.and(written) {
        return Ok((tally, Err(e)));
    }
    acks.offset.store(replica.offset, Ordering::Relaxed);
    let target = if until_caught_up {
        Some(offset_of(source)?)
    } else {
        complain(format_args!(
            "all keys are written; each write of the source follows, until Ctrl-C"
        ));
        None
    };
    let interrupted = on_interrupt(replica.stream.try_clone().map_err(failed)?)?;
    let mut stream = CommandStream::new(replica.reader, replica.offset);
    let mut node = NodeLink::connect(targets)?;
    let mut progress = MigrationProgress::new(EXECUTED, None);
    loop {
        if target.is_some_and(|target| stream.offset >= target) {
            progress.end();
            return Ok((tally, Ok(())));
        }
        let batch = stream.batch();
        let (database, batch) = match batch {
            Ok(batch) => batch,
            Err(_) if interrupted.load(Ordering::Relaxed) => {
                progress.end();
                return Ok((tally, Ok(())));
            }
            Err(e) => return Ok((tally, Err(source.failed(format!("its writes ended: {e}"))))),
        };
        let is_wanted = source.database.is_none_or(|only| only == database);
        if is_wanted && let Err(e) = execute(&mut node, database, batch, &mut tally) {
            return Ok((tally, Err(e)));
        }
        acks.offset.store(stream.offset, Ordering::Relaxed);
        progress.show(tally.commands, 0);
    }
}

/// Reads the file, and hands its keys to the writers.
fn keys(
    reader: &mut BufReader<Socket>,
    source: &Server,
    writers: &Writers,
) -> Result<(), CommandFailed> {
    let failed = |e: std::io::Error| source.failed(e);
    let head = line(reader).map_err(failed)?;
    let end = match head.strip_prefix('$') {
        Some(head) => match head.strip_prefix("EOF:") {
            Some(mark) => Some(FileEnd::Mark(mark.to_owned())),
            None => head.parse().ok().map(FileEnd::Length),
        },
        None => None,
    };
    let end = end.ok_or_else(|| source.failed(format!("a file was expected, and not `{head}`")))?;
    let size = match &end {
        FileEnd::Length(length) => Some(*length),
        FileEnd::Mark(_) => None,
    };
    let mut file = RdbReader::new(&mut *reader).map_err(|e| source.failed(e))?;
    writers.put_file(&mut file, (size, source.database), |e| source.failed(e))?;
    match end {
        FileEnd::Length(length) if length != file.offset() => {
            let read = file.offset();
            Err(source.failed(format!(
                "its file has {length} bytes, and ends after {read}"
            )))
        }
        FileEnd::Length(_) => Ok(()),
        FileEnd::Mark(mark) => {
            let mut found = vec![0; mark.len()];
            file.into_inner().read_exact(&mut found).map_err(failed)?;
            if found == mark.as_bytes() {
                Ok(())
            } else {
                Err(source.failed("its file does not end with its mark"))
            }
        }
    }
}

/// Says to the source once a second that we are there. It ends with the connection.
struct Acks {
    offset: Arc<AtomicU64>,
}

impl Acks {
    fn start(mut stream: Socket) -> Self {
        let offset = Arc::new(AtomicU64::new(NO_OFFSET));
        let told = Arc::clone(&offset);
        std::thread::spawn(move || {
            loop {
                let said = match told.load(Ordering::Relaxed) {
                    NO_OFFSET => b"\n".to_vec(),
                    offset => encoded(&["REPLCONF", "ACK", &offset.to_string()]),
                };
                if stream.write_all(&said).is_err() {
                    break;
                }
                std::thread::sleep(ACK_EVERY);
            }
        });
        Self { offset }
    }
}

/// Ends the connection at an interrupt, so that what reads it goes on.
fn on_interrupt(stream: Socket) -> Result<Arc<AtomicBool>, CommandFailed> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&interrupted);
    let runtime = runtime()?;
    let mut interrupts = runtime.block_on(async { Interrupts::new() })?;
    std::thread::spawn(move || {
        runtime.block_on(interrupts.next());
        seen.store(true, Ordering::Relaxed);
        // If the connection has ended already, its reader knows.
        let _ = stream.shutdown(Shutdown::Both);
    });
    Ok(interrupted)
}

/// How many bytes of writes the source has sent or will send.
fn offset_of(source: &Server) -> Result<u64, CommandFailed> {
    let text = match SourceLink::connect(source)?.ask(words([b"INFO", b"replication"]))? {
        Reply::Bulk(text) => text,
        Reply::Error(why) => {
            return Err(source.failed(format!(
                "{why}: --until-caught-up asks INFO how much was written: give its user that \
                 right (+info), or leave the flag out and end the import with Ctrl-C"
            )));
        }
        _ => return Err(source.failed("INFO replication has no text")),
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut numbers = text
        .lines()
        .filter_map(|line| line.strip_prefix("master_repl_offset:"));
    let offset = numbers.next().and_then(|number| number.trim().parse().ok());
    offset.ok_or_else(|| source.failed("INFO replication has no master_repl_offset"))
}

/// The writes of a source.
pub(super) struct CommandStream<R> {
    reader: R,
    /// How many bytes were read, counted as the source does.
    read: u64,
    /// The same up to the end of the last batch.
    offset: u64,
    /// A command that was read and belongs to the next batch.
    held: Option<Words>,
    /// Why there is no command behind the last batch.
    failed: Option<std::io::Error>,
    database: u64,
}

impl<R> CommandStream<R> {
    /// The writes behind this place.
    pub(super) const fn new(reader: R, offset: u64) -> Self {
        Self {
            reader,
            read: offset,
            offset,
            held: None,
            failed: None,
            database: 0,
        }
    }

    /// How many bytes the batches so far had, and all before.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }
}

impl<R: Read> CommandStream<BufReader<R>> {
    /// Whether nothing follows.
    pub(super) fn has_ended(&mut self) -> std::io::Result<bool> {
        let waits = self.held.is_some() || self.failed.is_some();
        Ok(!waits && self.reader.fill_buf()?.is_empty())
    }

    /// The next commands, all of them on one database, and the database. They have no word in
    /// common but their names.
    pub(super) fn batch(&mut self) -> std::io::Result<(u64, Vec<Words>)> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let (mut batch, mut seen) = (Vec::new(), HashSet::<Vec<u8>>::new());
        let database = self.database;
        loop {
            let before = self.read;
            let command = match self.held.take() {
                Some(held) => held,
                None => match self.command() {
                    Ok(command) => command,
                    Err(e) if batch.is_empty() => return Err(e),
                    // What came whole is executed.
                    Err(e) => {
                        self.offset = before;
                        self.failed = Some(e);
                        return Ok((database, batch));
                    }
                },
            };
            let name = command[0].to_ascii_uppercase();
            match &name[..] {
                b"SELECT" => {
                    let number = command
                        .get(1)
                        .and_then(|number| str::from_utf8(number).ok());
                    let number = number.and_then(|number| number.parse().ok());
                    self.database = number.ok_or(std::io::ErrorKind::InvalidData)?;
                    self.offset = self.read;
                    return Ok((database, batch));
                }
                // Each command of a transaction is executed for itself. Messages are no data.
                b"PING" | b"REPLCONF" | b"MULTI" | b"EXEC" | b"PUBLISH" | b"SPUBLISH" => {}
                _ if command[1..].iter().any(|word| seen.contains(word)) => {
                    // It is not executed yet, so the source must not take it for done.
                    self.offset = before;
                    self.held = Some(command);
                    return Ok((database, batch));
                }
                _ => {
                    seen.extend(command[1..].iter().cloned());
                    batch.push(command);
                }
            }
            if self.reader.buffer().is_empty() || batch.len() >= BATCH {
                self.offset = self.read;
                return Ok((database, batch));
            }
        }
    }
}

impl<R: BufRead> CommandStream<R> {
    /// The next command: its words, at least one.
    fn command(&mut self) -> std::io::Result<Words> {
        let count = loop {
            let head = self.line()?;
            // A line without words keeps the connection alive. In files, there are times.
            if !head.is_empty() && head[0] != b'#' {
                break number(&head, b'*', WORDS_MAX)?;
            }
        };
        let mut words = Vec::new();
        for _ in 0..count {
            let length = number(&self.line()?, b'$', WORD_BYTES_MAX)?;
            let mut word = Vec::new();
            (&mut self.reader).take(length + 2).read_to_end(&mut word)?;
            self.read += word.len() as u64;
            if word.len() as u64 != length + 2 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            word.truncate(word.len() - 2);
            words.push(word);
        }
        if words.is_empty() {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Ok(words)
    }

    fn line(&mut self) -> std::io::Result<Vec<u8>> {
        let mut line = Vec::new();
        (&mut self.reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        self.read += line.len() as u64;
        if line.pop() != Some(b'\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(line)
    }
}

/// The number behind this mark.
fn number(line: &[u8], mark: u8, most: u64) -> std::io::Result<u64> {
    let digits = line
        .strip_prefix(&[mark])
        .and_then(|digits| str::from_utf8(digits).ok());
    let number = digits
        .and_then(|digits| digits.parse().ok())
        .filter(|number| *number <= most);
    number.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// Executes commands in their order. What nodes do not take at the moment is tried again, and so
/// is what a node did not answer that ended, if that does no harm.
pub(super) fn execute(
    node: &mut NodeLink,
    database: u64,
    batch: Vec<Words>,
    tally: &mut MigrationTally,
) -> Result<(), CommandFailed> {
    let began = Instant::now();
    let mut left = batch;
    left.retain(|command| !is_left_out(command, tally));
    while !left.is_empty() {
        let mut replies = Vec::new();
        let broken = match node.link() {
            Ok(link) => send(link, database, &left, &mut replies),
            // Nothing was sent.
            Err(why) => {
                replies.resize(
                    left.len(),
                    Reply::Error(format!("CLUSTERDOWN {}", why.message)),
                );
                None
            }
        };
        if let Some(broken) = broken {
            if broken.is_silent {
                // It may execute these later, and undo what comes after them.
                return Err(CommandFailed::new(format!(
                    "{}: whether its last writes were done is not known: begin the import again",
                    broken.why.message
                )));
            }
            node.leave();
        }
        let (mut replies, mut again, mut why) = (replies.into_iter(), Vec::new(), UNKNOWN.into());
        for command in left {
            let error = match replies.next() {
                Some(Reply::Error(error)) => error,
                Some(_) => {
                    tally.commands += 1;
                    continue;
                }
                None => format!("UNKNOWN {UNKNOWN}"),
            };
            let is_open = error.starts_with("UNKNOWN") && is_repeatable(&command);
            if is_open || nothing_happened(&error) {
                again.push(command);
                why = error;
            } else {
                let key = command.get(1).map_or(&[][..], |key| &key[..]);
                tally.refuse(&name_of(&command), &error, key);
            }
        }
        left = again;
        if !left.is_empty() {
            if began.elapsed() >= RETRY_MAX {
                return Err(CommandFailed::new(format!(
                    "the nodes take no writes: {why}"
                )));
            }
            std::thread::sleep(RETRY_EVERY);
        }
    }
    Ok(())
}

/// Sends commands once. Returns why not all of them were answered.
fn send(
    link: &mut SourceLink,
    database: u64,
    commands: &[Words],
    replies: &mut Vec<Reply>,
) -> Option<LinkBroken> {
    let why = match link.try_select(database) {
        Ok(None) => return link.pipeline_into(commands, replies).err(),
        Ok(Some(why)) if nothing_happened(&why) => why,
        Ok(Some(why)) => no_database(database, &why),
        // No command was sent.
        Err(failed) => {
            replies.resize(
                commands.len(),
                Reply::Error(format!("CLUSTERDOWN {}", failed.message)),
            );
            return Some(LinkBroken {
                why: failed,
                is_silent: false,
            });
        }
    };
    replies.resize(commands.len(), Reply::Error(why));
    None
}

/// Whether a command of the source is not executed here.
fn is_left_out(command: &Words, tally: &mut MigrationTally) -> bool {
    let name = name_of(command);
    match &*name {
        "FLUSHALL" | "FLUSHDB" => {
            // The nodes may have other keys.
            let why = "it is not executed here: do it by hand if you want it";
            tally.refuse(&name, why, b"");
        }
        "FUNCTION" => {
            let brings = |what: &Vec<u8>| {
                what.eq_ignore_ascii_case(b"LOAD") || what.eq_ignore_ascii_case(b"RESTORE")
            };
            tally.functions += u64::from(command.get(1).is_some_and(brings));
        }
        _ => return false,
    }
    true
}

/// Whether a command does no harm if it was executed already.
fn is_repeatable(command: &Words) -> bool {
    let adds = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"INCR");
    match &*name_of(command) {
        "ZADD" if command.iter().any(adds) => false,
        name => REPEATABLE.contains(&name),
    }
}

fn name_of(command: &Words) -> String {
    String::from_utf8_lossy(&command[0]).to_ascii_uppercase()
}

#[cfg(test)]
mod tests;
