//! Load through the native client, as a program causes it that uses `doyen::Node`.
//!
//! ```text
//!   worker (a thread) ── polls ──> caller (a future) ── map.get, map.insert ──> Client (thread)
//!     │ due lanes ───────────────────^  │
//!     └ shared: plan, schedule, <───────┘
//!               recorder
//! ```
//! Each thread has a client, and one caller for each operation in flight. A caller runs one
//! operation at a time.

mod worker;

use super::CommandFailed;
use super::load::BenchLoad;
use super::plan::OperationKind;
use super::rate::on_threads;
use super::recorder::Recorder;
use super::schedule::{Clock, Schedule};
use crate::runtime;
use doyen::Error;
use doyen::Node;
use doyen::config::DATA_PORT;
use std::path::PathBuf;
use worker::{NativeShared, NativeWorker};

/// The nodes to connect to.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Native client")]
#[group(skip)]
pub(super) struct NativeTarget {
    /// Use the native client: `get` and `insert` of a map. Every caller has one operation in flight
    #[arg(long, conflicts_with_all = ["resp", "cluster", "password_file", "wait"])]
    pub(super) native: bool,
    /// Data ports of one or more nodes [default: 127.0.0.1:7401]
    #[arg(long, value_name = "ADDR", value_delimiter = ',', requires = "native")]
    data: Vec<String>,
    /// File with the cluster's secret (or DOYEN_SECRET)
    #[arg(long, env = "DOYEN_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Name of the map
    #[arg(
        long,
        value_name = "NAME",
        default_value = "bench",
        requires = "native"
    )]
    map: String,
}

impl NativeTarget {
    /// Puts the load on the cluster. Returns the record, and how many starts were due but never
    /// sent.
    pub(super) fn run(&self, load: &BenchLoad) -> Result<(Recorder, u64), CommandFailed> {
        let clock = Clock::start();
        let runtime = runtime()?;
        let mut workers = Vec::new();
        for thread in 0..load.threads() {
            let (client, map) = runtime.block_on(self.connect())?;
            let shared = NativeShared::new(
                clock,
                load.every(thread, OperationKind::Set),
                Schedule::closed(u64::MAX),
                (load.lanes(thread), 1),
                false,
            );
            workers.push((NativeWorker::new(map, load.value(), shared), client));
        }
        if load.fill() {
            on_threads(&mut workers, |(worker, _), failed| worker.run(failed))?;
        }
        let starts_at = clock.now();
        for (thread, (worker, _)) in workers.iter_mut().enumerate() {
            let lanes = (load.lanes(thread), load.in_flight());
            let shared = NativeShared::new(
                clock,
                load.plan(thread)?,
                load.schedule(thread, starts_at),
                lanes,
                load.batch(),
            );
            worker.go_on(shared, starts_at + load.warmup().as_nanos() as u64);
        }
        on_threads(&mut workers, |(worker, _), failed| worker.run(failed))?;
        let (mut sum, mut behind) = (Recorder::new(), 0);
        for (thread, (worker, _)) in workers.iter_mut().enumerate() {
            let (recorder, late) = worker.end();
            behind += late;
            sum.merge(recorder);
            let plan = load.every(thread, OperationKind::Delete);
            let lanes = (load.lanes(thread), load.in_flight());
            let schedule = Schedule::closed(u64::MAX);
            worker.go_on(NativeShared::new(clock, plan, schedule, lanes, false), 0);
        }
        if load.empties() {
            on_threads(&mut workers, |(worker, _), failed| worker.run(failed))?;
        }
        for (_, client) in workers {
            runtime.block_on(client.shutdown());
        }
        Ok((sum, behind))
    }

    async fn connect(&self) -> Result<(Node, worker::KeyMap), CommandFailed> {
        let mut builder = Node::builder().client().name("doyen-bench");
        builder = match &self.data[..] {
            [] => builder.seed(format!("127.0.0.1:{DATA_PORT}")),
            nodes => builder.seeds(nodes),
        };
        let secret = std::env::var("DOYEN_SECRET").ok().filter(|s| !s.is_empty());
        builder = match (&self.secret_file, secret) {
            (Some(file), _) => builder.secret_file(file),
            (None, Some(secret)) => builder.secret(secret),
            (None, None) => builder,
        };
        let client = builder.start().await.map_err(|e| match e {
            Error::Config(_) | Error::Identity(_) => {
                CommandFailed::usage(format!("--data, --secret-file: {e}"))
            }
            e => CommandFailed::new(format!("{e} (--data, --secret-file)")),
        })?;
        let map = client
            .map(&self.map)
            .await
            .map_err(|e| CommandFailed::new(format!("--map {}: {e}", self.map)))?;
        Ok((client, map))
    }

    /// The target, in words.
    pub(super) fn words(&self) -> String {
        let nodes = if self.data.is_empty() {
            String::new()
        } else {
            format!(", by {}", self.data.join(" "))
        };
        format!(", through the native client{nodes}")
    }
}
