//! `doyen bench`: puts load on servers, and measures latency and throughput. In the closed loop, a
//! fixed number of operations is unanswered at a time. In the open loop, a fixed number of
//! operations starts each second, and latency counts from the intended start.
//!
//! ```text
//!   load ── plan: what (keys) ──┐
//!        └─ schedule: when ─────┴──> target (resp, native) ──> recorder ──> report
//! ```
//! Each target has its own loop and connections. Everything else is the same for all targets.

mod keys;
mod load;
mod native;
mod plan;
mod rate;
mod recorder;
mod report;
mod resp;
mod schedule;

use super::CommandFailed;
use load::BenchLoad;
use report::BenchReport;
use std::process::ExitCode;

/// Puts load on servers, and measures latency and throughput.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Errors are counted by the first word of the reply, from the first write of --fill on. An \
operation without a reply 6 s after the end counts as `unanswered`.
In the open loop, an operation that is due waits while its connection has --in-flight \
operations unanswered; the wait counts as latency. Operations that are due but never sent are \
counted as `behind`.

Status: 0 success; 1 a server refused, went away, or answered only with errors; 2 a flag is \
wrong.")]
pub(super) struct Bench {
    /// Print one JSON object; times are in microseconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: resp::RespTarget,
    #[command(flatten)]
    native: native::NativeTarget,
    #[command(flatten)]
    load: BenchLoad,
}

impl Bench {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        self.load.check()?;
        let native = self.native.native;
        let (recorder, behind) = if native {
            self.native.run(&self.load)?
        } else {
            self.target.run(&self.load)?
        };
        let words = self.load.words(native)
            + &if native {
                self.native.words()
            } else {
                self.target.words()
            };
        let report = BenchReport::new(
            self.load.operation(),
            words,
            self.load.seconds(),
            behind,
            &recorder,
        );
        if self.json {
            super::say(format_args!(
                "{}\n",
                serde_json::to_string(&report).map_err(|e| CommandFailed::new(e.to_string()))?
            ));
        } else {
            super::say(format_args!("{report}"));
        }
        match (recorder.operations(), recorder.first_error()) {
            (0, Some(error)) => Err(CommandFailed::new(format!(
                "no operation succeeded; the first reply was: {error}"
            ))),
            (0, None) => Err(CommandFailed::new(
                "no operation was answered during the measurement: try more --seconds",
            )),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}
