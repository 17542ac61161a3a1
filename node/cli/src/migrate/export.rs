//! `doyen export`: all keys as an RDB file, which Redis and Valkey load at their start, or as lines
//! of JSON.

use super::formats::{FileFormat, KeyWriter};
use super::link::Server;
use super::progress::MigrationProgress;
use super::{password, scan, trust};
use crate::{CommandFailed, say};
use doyen_placement::words::counted;
use doyen_rdb::{NdjsonWriter, RdbError, RdbWriter};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The version of RDB that Redis 7.0 and newer and Valkey read.
const RDB_VERSION: u16 = 10;

/// What is done with keys.
const WRITTEN: (&str, &str) = ("key was written", "keys were written");

/// Writes all keys to an RDB file of Redis, or to one with lines of JSON (NDJSON).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys that are written meanwhile are in the file as they were before or after that: stop the \
writers for a picture of one moment. The file gets its name once it is whole.

Status: 0 success; 1 failure; 2 a flag is wrong.")]
pub(crate) struct Export {
    /// The file, which must not exist yet: of lines of JSON if its name ends in .ndjson or .jsonl,
    /// else RDB
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the file; without it, ndjson if its name ends in .ndjson or .jsonl, else rdb
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Address of the RESP port of a node; port 7379 may be left out
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// File with the password, if there is one
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// User; without it, the password is that of `default`
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// Speak TLS: PEM file with the authority of the node's certificate, such as the cluster's
    /// ca.pem
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Version of an RDB file: 10 (the default) for Redis 7.0 and newer and for Valkey; 9 for Redis
    /// 5 and 6, without streams; 12 for Redis 7.4 and newer, which hashes with fields that expire
    /// need
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(9..=12))]
    rdb_version: Option<u16>,
}

impl Export {
    pub(crate) fn main(self) -> Result<ExitCode, CommandFailed> {
        let password = self.password_file.as_deref().map(password).transpose()?;
        let server = Server::of(&self.from)?.with_login(self.user.clone(), password);
        let server = server.with_tls(trust("--tls-ca", self.tls_ca.as_deref())?);
        let format = FileFormat::of(self.format, &self.file);
        if format == FileFormat::Ndjson && self.rdb_version.is_some() {
            return Err(CommandFailed::usage(
                "--rdb-version is for RDB files: leave it out, or give --format rdb",
            ));
        }
        if self.file.exists() {
            let file = self.file.display();
            return Err(CommandFailed::usage(format!(
                "{file} exists: give another name, or remove it"
            )));
        }
        let mut name = self.file.clone().into_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        let done = self.write(&server, &part, format);
        if done.is_err() {
            // It is of no use. If it cannot be removed, its name says what it is.
            let _ = std::fs::remove_file(&part);
        }
        let keys = done?;
        std::fs::rename(&part, &self.file).map_err(|e| unwritten(&self.file, &e))?;
        let (keys, file) = (counted(keys, ("key is", "keys are")), self.file.display());
        say(format_args!("{keys} in {file}\n"));
        Ok(ExitCode::SUCCESS)
    }

    fn write(
        &self,
        server: &Server,
        part: &Path,
        format: FileFormat,
    ) -> Result<u64, CommandFailed> {
        let file = File::create(part).map_err(|e| unwritten(part, &e))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        let failed = |e: RdbError| match e {
            RdbError::Io(e) => unwritten(part, &e),
            RdbError::OfKey { source, .. } => match *source {
                RdbError::Version { needed, .. } => {
                    let (what, server) = match needed {
                        10 => ("a stream", "Redis 7.0"),
                        _ => ("a hash with fields that expire", "Redis 7.4"),
                    };
                    CommandFailed::new(format!(
                        "there is {what}: give --rdb-version {needed} ({server} and newer): \
                         {source}"
                    ))
                }
                other => CommandFailed::new(other.to_string()),
            },
            other => CommandFailed::new(other.to_string()),
        };
        let mut writer = match format {
            FileFormat::Rdb => {
                let version = self.rdb_version.unwrap_or(RDB_VERSION);
                KeyWriter::Rdb(RdbWriter::new(file, version).map_err(failed)?)
            }
            FileFormat::Ndjson => KeyWriter::Ndjson(NdjsonWriter::new(file)),
        };
        let (mut progress, mut keys) = (MigrationProgress::new(WRITTEN, None), 0);
        scan::each(server, |found, number| {
            keys = number;
            progress.show(number, 0);
            writer.key(&found).map_err(failed)
        })?;
        progress.end();
        let file = writer.finish().map_err(failed)?;
        let file = file.into_inner().map_err(|e| unwritten(part, e.error()))?;
        file.sync_all().map_err(|e| unwritten(part, &e))?;
        Ok(keys)
    }
}

fn unwritten(path: &Path, e: &std::io::Error) -> CommandFailed {
    CommandFailed::new(format!("cannot write {}: {e}", path.display()))
}
