//! `doyen events`: what has happened, as far as a node has learned.

use super::{Target, failed, write};
use crate::Failed;
use doyen::http::client;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// How long a node waits for the next event before it says that there was none, in milliseconds.
const WAIT_MS: u64 = 2000;
/// Before a node that did not answer is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Show what has happened in the cluster, as far as this node has learned: the last thousand
/// events.
#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    #[command(flatten)]
    target: Target,
    /// Go on with what comes, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Only events after the one of this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    since: u64,
    /// Print JSON, a line for each
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
        let address = self.target.address();
        let mut since = self.since;
        let mut wait = 0;
        loop {
            let answer: Answer =
                match client::get(&address, &format!("/events?since={since}&wait={wait}")).await {
                    Ok(answer) => answer,
                    Err(e) if self.follow && wait > 0 => {
                        // It may come back, with events that are numbered anew.
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
            // Another process of that address counts from 1 on.
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
    // What `--since` takes.
    let number = event
        .get("number")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    format!("{number:>6}  {}  {mark}{}", field("at"), field("text"))
}
