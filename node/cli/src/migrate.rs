//! `doyen import` and `doyen export`: data comes from Redis and goes back, in Redis's own formats or
//! as lines of JSON.
//!
//! ```text
//!   file (KeyReader) ───────┐
//!   append-only files ──────┤
//!   replica: PSYNC, a file ─┼─> each key as commands (restoring) ─> writers ─> nodes, by RESP
//!     and then commands ────│──────────────────────────────────────────────> one connection
//!   scan: SCAN and DUMP ────┘
//! ```
//! To write a key again does no harm, so what may not have happened is done again.

mod append_only;
mod export;
mod formats;
mod link;
mod progress;
mod replica;
mod restoring;
mod scan;
mod streams;
mod tls;
mod verify;
mod writers;

pub(super) use export::Export;

use super::{CommandFailed, say};
use doyen::config;
use doyen::resp::client::Reply;
use doyen_placement::words::counted;
use doyen_rdb::{RdbKey, shown_key};
use formats::{FileFormat, KeyReader, damaged};
use link::{Server, SourceLink, words};
use progress::{MigrationProgress, READ};
use restoring::Restoring;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tls::ServerTrust;
use verify::Verifier;
use writers::{MigrationTally, Writers};

/// Brings data from an RDB, AOF or NDJSON file, or from a running Redis or Valkey.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys that exist are replaced; all others stay. What has expired is left out, and deadlines are kept.
A source is an RDB file, an append-only file or the directory of such files, a file with a line of \
JSON for each key (NDJSON), or redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], with TLS rediss://. \
A running source is read as by a replica (PSYNC): first all keys, then each write until Ctrl-C, or until \
--until-caught-up. If the source refuses that, its keys are read with SCAN and DUMP.
Values of types that are not here are left out and counted, and so are functions. If a node of --to \
ends, the next one is asked.

Status: 0 success; 1 something was not written, or --verify found a difference; 2 a flag is \
wrong.")]
pub(super) struct Import {
    /// An RDB, AOF or NDJSON file, appendonlydir, or redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]
    #[arg(value_name = "FILE|URL")]
    source: String,
    /// Format of the file; without it, ndjson if its name ends in .ndjson or .jsonl, else rdb
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Addresses of RESP ports of one or more nodes; port 7379 may be left out
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        required = true
    )]
    to: Vec<String>,
    /// File with the password for --to, if there is one
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// User for --to; without it, the password is that of `default`
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// Speak TLS to --to: PEM file with the authority of the nodes' certificates, such as the
    /// cluster's ca.pem
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// File with the password of the source; one in a URL is seen by others on this machine
    #[arg(long, value_name = "FILE")]
    source_password_file: Option<PathBuf>,
    /// PEM file with the authority of the source's certificate, for rediss://
    #[arg(long, value_name = "FILE")]
    source_tls_ca: Option<PathBuf>,
    /// Connections that write
    #[arg(long, value_name = "COUNT", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Pass over this many keys of a file: an import that failed says where to continue
    #[arg(long, value_name = "KEYS", default_value_t = 0)]
    from_key: u64,
    /// Read a running source with SCAN and DUMP, as if it refused PSYNC
    #[arg(long)]
    scan: bool,
    /// End once all writes that the source had at some moment after its keys are here
    #[arg(long, conflicts_with = "scan")]
    until_caught_up: bool,
    /// Then read each key of the source again, and compare it
    #[arg(long)]
    verify: bool,
}

impl Import {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        let password = self.password_file.as_deref().map(password).transpose()?;
        let tls = trust("--tls-ca", self.tls_ca.as_deref())?;
        let targets = self.to.iter().map(|to| {
            let server = Server::of(to)?.with_tls(tls.clone());
            Ok(server.with_login(self.user.clone(), password.clone()))
        });
        let targets = targets.collect::<Result<Vec<_>, CommandFailed>>()?;
        match self.source.split_once("://") {
            Some(("redis" | "rediss", _)) => self.read_server(&targets),
            Some(_) => Err(CommandFailed::usage(format!(
                "{}: only redis:// and rediss:// are known",
                self.source
            ))),
            None if self.format.is_none() && append_only::is_append_only(self.source.as_ref()) => {
                self.read_append_only(&targets)
            }
            None => self.read_file(&targets),
        }
    }

    fn read_append_only(&self, targets: &[Server]) -> Result<ExitCode, CommandFailed> {
        for (is_given, flag) in [(self.from_key > 0, "--from-key"), (self.verify, "--verify")] {
            if is_given {
                return Err(CommandFailed::usage(format!(
                    "{flag} is not for append-only files, whose keys are known at their end alone"
                )));
            }
        }
        let path = Path::new(&self.source);
        let (tally, read) = append_only::read(path, targets, self.connections)?;
        tally.print();
        read?;
        Ok(status(tally.is_whole()))
    }

    fn read_file(&self, targets: &[Server]) -> Result<ExitCode, CommandFailed> {
        let path = Path::new(&self.source);
        let format = FileFormat::of(self.format, path);
        let (mut file, size) = KeyReader::open(path, format)?;
        let writers = Writers::start(targets, self.connections)?;
        let mut progress = MigrationProgress::new(READ, Some(size));
        let read = self.keys_of(path, &mut file, |restoring, offset, number| {
            progress.show(number, offset);
            writers.put(restoring)
        });
        progress.end();
        let (mut tally, written) = writers.finish(self.from_key);
        if let Ok(keys) = read
            && keys < self.from_key
        {
            let keys = counted(keys, ("key", "keys"));
            return Err(CommandFailed::usage(format!(
                "--from-key {} is beyond the end of the file, which has {keys}: nothing was \
                 written or compared",
                self.from_key
            )));
        }
        let next = tally.next();
        if let Err(failed) = read.and(written) {
            tally.print();
            let done = counted(next, ("key before it is done", "keys before it are done"));
            return Err(CommandFailed::new(format!(
                "{}; {done}: continue with --from-key {next}",
                failed.message
            )));
        }
        tally.functions += file.functions();
        tally.print();
        let mut verified = true;
        if self.verify {
            let (mut file, _) = KeyReader::open(path, format)?;
            let mut verifier = Verifier::new(targets)?;
            self.keys_of(path, &mut file, |restoring, _, _| {
                verifier.check(restoring.of)
            })?;
            verified = verifier.finish()?;
        }
        Ok(status(tally.is_whole() && verified))
    }

    /// Hands each key of the file out that is to be written, with the bytes and keys before its
    /// end. Returns how many keys the file has.
    fn keys_of(
        &self,
        path: &Path,
        file: &mut KeyReader,
        mut take: impl FnMut(Restoring, u64, u64) -> Result<(), CommandFailed>,
    ) -> Result<u64, CommandFailed> {
        let mut number = 0;
        while let Some(found) = file.next() {
            let found = found.map_err(|e| damaged(path, &e))?;
            number += 1;
            if number > self.from_key {
                take(Restoring::new(found), file.offset(), number)?;
            }
        }
        Ok(number)
    }

    fn read_server(&self, targets: &[Server]) -> Result<ExitCode, CommandFailed> {
        for (is_given, flag) in [
            (self.from_key > 0, "--from-key"),
            (self.format.is_some(), "--format"),
        ] {
            if is_given {
                return Err(CommandFailed::usage(format!("{flag} is for files")));
            }
        }
        let tls = trust("--source-tls-ca", self.source_tls_ca.as_deref())?;
        if self.source.starts_with("rediss://") != tls.is_some() {
            return Err(CommandFailed::usage(
                "TLS with a source takes both rediss:// and --source-tls-ca FILE, with the authority \
                 of its certificate (such as /etc/ssl/certs/ca-certificates.crt, if it is a public \
                 one); without TLS, write redis://",
            ));
        }
        let mut source = Server::of_url(&self.source)?.with_tls(tls);
        if let Some(file) = &self.source_password_file {
            source = source.with_password(password(file)?);
        }
        refuse_itself(&source, targets)?;
        let replica = if self.scan {
            None
        } else {
            replica::begin(&source)?
        };
        let (tally, written) = match replica {
            Some(replica) => {
                let until = (self.until_caught_up, self.connections);
                replica::follow(replica, &source, targets, until)?
            }
            None => {
                let writers = Writers::start(targets, self.connections)?;
                let mut progress = MigrationProgress::new(READ, None);
                let read = scan::each(&source, |found, number| {
                    progress.show(number, 0);
                    writers.put(Restoring::new(found))
                });
                progress.end();
                let (mut tally, written) = writers.finish(0);
                tally.functions += functions(&source)?;
                (tally, read.and(written))
            }
        };
        tally.print();
        written?;
        let mut verified = true;
        if self.verify {
            let mut verifier = Verifier::new(targets)?;
            scan::each(&source, |found, _| verifier.check(found))?;
            verified = verifier.finish()?;
        }
        Ok(status(tally.is_whole() && verified))
    }
}

/// Refuses a source that has the keys of the targets.
fn refuse_itself(source: &Server, targets: &[Server]) -> Result<(), CommandFailed> {
    let link = SourceLink::connect(source)?;
    // A node that does not answer is left for another one later.
    for node in targets.iter().filter_map(|to| SourceLink::connect(to).ok()) {
        if link.is_same(&node) {
            return Err(CommandFailed::usage(
                node.failed(
                    "this is the source itself, or a node of the same cluster: give the nodes that \
                 shall get the keys",
                )
                .message,
            ));
        }
    }
    Ok(())
}

/// How many libraries of functions a source has, which is asked for its keys alone. A server that
/// knows no functions has none.
fn functions(source: &Server) -> Result<u64, CommandFailed> {
    let reply = SourceLink::connect(source)?.ask(words([b"FUNCTION", b"LIST"]))?;
    Ok(match reply {
        Reply::Array(all) => all.len() as u64,
        _ => 0,
    })
}

/// The authorities of a file, if there is one.
fn trust(flag: &'static str, file: Option<&Path>) -> Result<Option<ServerTrust>, CommandFailed> {
    file.map(|file| ServerTrust::by_file(flag, file))
        .transpose()
}

fn status(is_whole: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_whole))
}

/// The password in a file.
fn password(path: &Path) -> Result<String, CommandFailed> {
    Ok(config::read_line(path, "--password-file")?)
}

impl MigrationTally {
    /// What was done, in a few lines.
    fn print(&self) {
        let written = counted(self.keys, ("key was written", "keys were written"));
        say(format_args!("{written} in {:.1?}\n", self.took()));
        if self.expired > 0 {
            let one = "key had expired and was left out";
            let expired = counted(self.expired, (one, "keys had expired and were left out"));
            say(format_args!("{expired}\n"));
        }
        if self.commands > 0 {
            let one = "command of the source was executed";
            let commands = counted(self.commands, (one, "commands of the source were executed"));
            say(format_args!("{commands} after its keys\n"));
        }
        if self.functions > 0 {
            let one = "library of functions was left out";
            let several = "libraries of functions were left out";
            let left_out = counted(self.functions, (one, several));
            say(format_args!("{left_out}: there are no functions here\n"));
        }
        for ((what, why), refused) in &self.refused {
            let count = refused.count;
            let first = shown_key(&refused.first);
            say(format_args!(
                "NOT WRITTEN: {count} of {what}, the first of them \"{first}\": {why}\n"
            ));
        }
    }
}

/// A key with its value, as found somewhere.
type Found = RdbKey;
