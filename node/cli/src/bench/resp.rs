//! Load on servers that speak RESP: Doyen, Redis, and others whose commands the flags give.
//!
//! ```text
//!   main ─ connects, fills, starts ─> worker (a thread) ─ready─> connection ──> server
//!                                        │ due lanes ───────────────^  │  command: bytes, a key
//!                                        └ shared: plan, schedule, <───┘  scan: bytes to replies
//!                                                  recorder, route
//! ```

mod command;
mod connection;
mod dial;
mod route;
mod scan;
mod worker;

use super::CommandFailed;
use super::load::BenchLoad;
use super::plan::OperationKind;
use super::rate::on_threads;
use super::recorder::Recorder;
use super::schedule::{Clock, Schedule};
use command::RespCommand;
use connection::RespShared;
use dial::Dial;
use doyen::config::{self, RESP_CLUSTER_PORT, RESP_PORT};
use std::net::SocketAddr;
use std::path::PathBuf;
use worker::RespWorker;

/// Unanswered writes of a connection during `--fill`, at most.
const FILL_IN_FLIGHT_MAX: usize = 16;
/// Bytes of unanswered writes during `--fill`, about. So few that no server needs to refuse any.
const FILL_BYTES: usize = 32 << 20;

/// The variable with the password, if no file has it.
const PASSWORD_VARIABLE: &str = "DOYEN_BENCH_PASSWORD";

/// The servers, and how to talk to them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub(super) struct RespTarget {
    /// RESP ports; the connections are divided among them [default: 127.0.0.1:7379, with --cluster
    /// 127.0.0.1:7380]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    resp: Vec<String>,
    /// Send each operation to the master of its key, as CLUSTER SLOTS tells it. Every connection
    /// belongs to one master
    #[arg(long)]
    cluster: bool,
    /// File with the password of the servers (or DOYEN_BENCH_PASSWORD; there is no flag for the
    /// password, because other users can see flags)
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Send WAIT N 0 after every write; the write counts once both are answered and N copies have
    /// it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    wait: Option<u16>,
    /// The command of a read
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "GET {key}",
        conflicts_with = "cluster"
    )]
    command_get: String,
    /// The command of a write
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "SET {key} {value}",
        conflicts_with = "cluster"
    )]
    command_set: String,
    /// The command that deletes a key in the end
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "DEL {key}",
        conflicts_with = "cluster"
    )]
    command_delete: String,
}

impl RespTarget {
    /// Puts the load on the servers. Returns the record, and how many starts were due but never
    /// sent.
    pub(super) fn run(&self, load: &BenchLoad) -> Result<(Recorder, u64), CommandFailed> {
        if self.wait.is_some() && !load.writes() {
            return Err(CommandFailed::usage(
                "--wait does not apply to --operation get: it follows writes",
            ));
        }
        let clock = Clock::start();
        let mut workers = self.connect(load, clock)?;
        if load.fill() {
            on_threads(&mut workers, RespWorker::run)?;
        }
        let starts_at = clock.now();
        for (thread, worker) in workers.iter_mut().enumerate() {
            let shared = &mut worker.shared;
            shared.plan = load.plan(thread)?;
            shared.schedule = load.schedule(thread, starts_at);
            shared
                .recorder
                .measure_from(starts_at + load.warmup().as_nanos() as u64);
            if let Some(copies) = self.wait {
                shared.set.then_wait(copies);
            }
            (shared.in_flight, shared.batch) = (load.in_flight(), load.batch());
        }
        on_threads(&mut workers, RespWorker::run)?;
        let mut sum = Recorder::new();
        let mut behind = 0;
        for (thread, worker) in workers.iter_mut().enumerate() {
            let shared = &mut worker.shared;
            behind += shared.schedule.behind();
            sum.merge(std::mem::replace(&mut shared.recorder, Recorder::new()));
            shared.plan = load.every(thread, OperationKind::Delete);
            shared.schedule = Schedule::closed(u64::MAX);
            (shared.in_flight, shared.batch) = (FILL_IN_FLIGHT_MAX, false);
        }
        if load.empties() && !sum.lacks_replies() {
            on_threads(&mut workers, RespWorker::run)?;
        }
        Ok((sum, behind))
    }

    fn password(&self) -> Result<Option<String>, CommandFailed> {
        match &self.password_file {
            Some(path) => Ok(Some(config::read_line(path, "--password-file")?)),
            None => Ok(std::env::var(PASSWORD_VARIABLE)
                .ok()
                .filter(|password| !password.is_empty())),
        }
    }

    /// Opens all connections of all threads, ready for `--fill`.
    fn connect(&self, load: &BenchLoad, clock: Clock) -> Result<Vec<RespWorker>, CommandFailed> {
        let addresses = self.addresses()?;
        let value = load.value();
        let get = RespCommand::parse(&self.command_get, &value)
            .map_err(|e| CommandFailed::usage(format!("--command-get {e}")))?;
        let set = RespCommand::parse(&self.command_set, &value)
            .map_err(|e| CommandFailed::usage(format!("--command-set {e}")))?;
        let delete = RespCommand::parse(&self.command_delete, &value)
            .map_err(|e| CommandFailed::usage(format!("--command-delete {e}")))?;
        let dial = Dial {
            password: self.password()?,
        };
        let router = if self.cluster {
            Some(dial.router(&addresses, load.keys())?)
        } else {
            None
        };
        if let Some(masters) = router
            .as_ref()
            .map(route::Router::masters)
            .filter(|masters| *masters > load.lanes(load.threads() - 1))
        {
            return Err(CommandFailed::usage(format!(
                "too few --connections: each thread needs one for each of the {masters} masters"
            )));
        }
        let fill_in_flight = (FILL_BYTES / load.value_bytes().max(1) / load.connections())
            .clamp(1, FILL_IN_FLIGHT_MAX);
        (0..load.threads())
            .map(|thread| {
                let shared = RespShared {
                    clock,
                    plan: load.every(thread, OperationKind::Set),
                    schedule: Schedule::closed(u64::MAX),
                    recorder: Recorder::new(),
                    router: router.clone(),
                    get: get.clone(),
                    set: set.clone(),
                    delete: delete.clone(),
                    in_flight: fill_in_flight,
                    batch: false,
                };
                // Each thread begins with another server, so that every server gets its share of
                // the connections.
                let before: usize = (0..thread).map(|t| load.lanes(t)).sum();
                let mut addresses = addresses.clone();
                let first = before % addresses.len();
                addresses.rotate_left(first);
                RespWorker::connect(dial.clone(), &addresses, load.lanes(thread), shared)
            })
            .collect()
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, CommandFailed> {
        let default = SocketAddr::from((
            [127, 0, 0, 1],
            if self.cluster {
                RESP_CLUSTER_PORT
            } else {
                RESP_PORT
            },
        ));
        if self.resp.is_empty() {
            return Ok(vec![default]);
        }
        self.resp
            .iter()
            .map(|text| Ok(config::address("--resp", Some(text), default)?))
            .collect()
    }

    /// The target, in words.
    pub(super) fn words(&self) -> String {
        let mut words = match (&self.resp[..], self.cluster) {
            ([], _) => String::new(),
            (servers, _) => format!(", at {}", servers.join(" ")),
        };
        if self.cluster {
            words += ", to the master of each key";
        }
        if let Some(copies) = self.wait {
            words += &format!(", WAIT {copies} after each write");
        }
        words
    }
}
