//! `doyen bench`: puts load on servers and tells how fast they answer. The loop is closed (so many
//! operations unanswered at a time) or open (so many operations a second, latency counted from when
//! each should have started).
//!
//! ```text
//!   load ── plan: what (keys) ──┐
//!        └─ schedule: when ─────┴──> target (resp, native) ──> recorder ──> report
//! ```
//! A target has its own loop and connections; all else is the same whichever way the load goes.

mod keys;
mod load;
mod native;
mod pace;
mod plan;
mod recorder;
mod report;
mod resp;
mod schedule;

use super::Failed;
use load::Load;
use report::Report;
use std::process::ExitCode;

/// Put load on servers and tell how fast they answer.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Errors that servers answer are counted by their first word, from the first write of --fill on; an operation that has no \
    reply 6 s after the end counts as `unanswered`.\nIn the open loop, what is due and finds --in-flight unanswered on its connection waits; \
    the longer it waits, the later it is. What is never sent is told as `behind`.\n\n\
    Status: 0 done; 1 a server refused, went away, or answered nothing but errors; 2 a flag says something wrong."
)]
pub(super) struct Bench {
    /// Print one JSON object: times in microseconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: resp::Target,
    #[command(flatten)]
    native: native::Target,
    #[command(flatten)]
    load: Load,
}

impl Bench {
    pub(super) fn main(self) -> Result<ExitCode, Failed> {
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
        let report = Report::new(
            self.load.operation(),
            words,
            self.load.seconds(),
            behind,
            &recorder,
        );
        if self.json {
            super::say(format_args!(
                "{}\n",
                serde_json::to_string(&report).map_err(|e| Failed::new(e.to_string()))?
            ));
        } else {
            super::say(format_args!("{report}"));
        }
        match (recorder.operations(), recorder.first_error()) {
            (0, Some(error)) => Err(Failed::new(format!(
                "no operation went well, the first was answered with: {error}"
            ))),
            (0, None) => Err(Failed::new(
                "no operation was answered while it was measured",
            )),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}
