//! `doyen events`: the latest events of the cluster, as one node has seen them.

use super::{Endpoint, failed, write};
use crate::Failed;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// How long a node waits for the next event before it answers that there was none, in milliseconds.
const WAIT_MS: u64 = 2000;
/// Pause before a node that did not answer is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Shows the latest thousand events of the cluster, as far as this node has learned of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    #[command(flatten)]
    endpoint: Endpoint,
    /// Go on with new events, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Show only events with a higher number than this one
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    since: u64,
    /// Print JSON, one line for each event
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Answer {
    last: u64,
    events: Vec<Value>,
}

impl Events {
    pub(crate) async fn main(self) -> Result<ExitCode, Failed> {
        let node = self.endpoint.client()?;
        let mut since = self.since;
        let mut wait = 0;
        loop {
            let answer: Answer = match node
                .get(&format!("/events?since={since}&wait={wait}"))
                .await
            {
                Ok(answer) => answer,
                Err(e) if self.follow && wait > 0 => {
                    // The node may come back. Its events are then numbered from 1 again.
                    tracing::debug!("{e}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(e) => return Err(failed(e)),
            };
            let mut text = String::new();
            answer.events.iter().for_each(|event| {
                let _ = if self.json {
                    writeln!(text, "{event}")
                } else {
                    writeln!(text, "{}", line(event))
                };
            });
            if !write(&text)? || !self.follow {
                return Ok(ExitCode::SUCCESS);
            }
            // A lower number: another process now has that address, and counts from 1.
            since = if answer.last < since { 0 } else { answer.last };
            wait = WAIT_MS;
        }
    }
}

fn line(event: &Value) -> String {
    let field = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let mark = match field("severity") {
        "warning" => "warning  ",
        "error" => "ERROR    ",
        _ => "         ",
    };
    // The number that `--since` takes.
    let number = event
        .get("number")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    format!("{number:>6}  {}  {mark}{}", field("at"), field("text"))
}
