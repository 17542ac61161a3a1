//! `doyen events`: the latest events of the cluster, as one node has seen them.

use super::{AdminEndpoint, write};
use crate::{CommandFailed, PARTITIONS, counted};
use doyen::http::api;
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
pub(crate) struct EventsCommand {
    #[command(flatten)]
    endpoint: AdminEndpoint,
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

impl EventsCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let mut since = self.since;
        let mut wait = 0;
        loop {
            let query = format!("since={since}&wait={wait}");
            let answer = match node.ask_with(&api::EVENTS, &query).await {
                Ok(answer) => answer,
                Err(e) if self.follow && wait > 0 => {
                    // The node may come back. Its events are then numbered from 1 again.
                    tracing::debug!("{e}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let text = if self.json {
                let lines = answer.events.iter().map(|event| format!("{event}\n"));
                lines.collect()
            } else {
                lines(&answer.events)
            };
            if !write(&text)? || !self.follow {
                return Ok(ExitCode::SUCCESS);
            }
            // A lower number: another process now has that address, and counts from 1.
            since = if answer.last < since { 0 } else { answer.last };
            wait = WAIT_MS;
        }
    }
}

/// Events as lines for people. Moves that come one after the other share a line, so that what an
/// incident was about is not lost among its moves. `--json` has all of them.
fn lines(events: &[Value]) -> String {
    let moves =
        |event: &Value| field(event, "kind") == "moved" && field(event, "severity") == "info";
    let mut text = String::new();
    for run in events.chunk_by(|one, next| moves(one) && moves(next)) {
        let _ = match run {
            [event] => writeln!(text, "{}", line(event, field(event, "text"))),
            [.., last] => writeln!(text, "{}", line(last, &folded(run))),
            [] => Ok(()),
        };
    }
    text
}

/// What several events of moves say together, by stages of moves.
fn folded(moves: &[Value]) -> String {
    let mut stages: Vec<(&str, u64, Vec<&str>)> = Vec::new();
    for event in moves {
        let text = field(event, "text");
        let stage = text.split_once(": ").map_or(text, |(stage, _)| stage);
        let at = stages.iter().position(|(known, ..)| *known == stage);
        let at = at.unwrap_or_else(|| {
            stages.push((stage, 0, Vec::new()));
            stages.len() - 1
        });
        let (_, count, members) = &mut stages[at];
        *count += event["count"].as_u64().unwrap_or_default();
        let named = event["members"].as_array().into_iter().flatten();
        for name in named.filter_map(Value::as_str) {
            if !members.contains(&name) {
                members.push(name);
            }
        }
    }
    let stages = stages.iter().map(|(stage, count, members)| {
        let count = counted(*count, PARTITIONS);
        format!("{stage}: {count} ({})", members.join(", "))
    });
    let stages: Vec<String> = stages.collect();
    format!("{} events of moves: {}", moves.len(), stages.join("; "))
}

fn field<'a>(event: &'a Value, name: &str) -> &'a str {
    event.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The line of an event that says this.
fn line(event: &Value, text: &str) -> String {
    let mark = match field(event, "severity") {
        "warning" => "warning  ",
        "error" => "ERROR    ",
        _ => "         ",
    };
    // The number that `--since` takes.
    let number = event
        .get("number")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    format!("{number:>6}  {}  {mark}{text}", field(event, "at"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn moved(number: u64, stage: &str, count: u64, members: &[&str]) -> Value {
        json!({
            "number": number, "at": format!("2026-11-29T09:00:{number:02}.000Z"),
            "severity": "info", "kind": "moved", "count": count, "members": members,
            "text": format!("{stage}: {count} partitions (default/2, ..) to {}", members.join(", ")),
        })
    }

    /// After `kill -9` of one of three nodes, eight lines of twelve were about moves.
    #[test]
    fn moves_that_follow_each_other_share_a_line() {
        let other = |number: u64, severity: &str, kind: &str, text: &str| {
            json!({
                "number": number, "at": "2026-11-29T09:00:00.000Z", "severity": severity,
                "kind": kind, "text": text,
            })
        };
        let events = [
            other(
                1,
                "warning",
                "expelled",
                "n3 was removed: it did not answer",
            ),
            moved(2, "primary moved", 19, &["n1"]),
            moved(3, "primary moved", 1, &["n1", "n2"]),
            moved(4, "in sync", 20, &["n2"]),
            other(
                5,
                "warning",
                "moved",
                "copying was given up: 1 partition (default/3) at n2",
            ),
            moved(6, "in sync", 2, &["n1"]),
            other(
                7,
                "info",
                "repaired",
                "all partitions have their copies again",
            ),
        ];
        assert_eq!(
            lines(&events),
            "     1  2026-11-29T09:00:00.000Z  warning  n3 was removed: it did not answer\n     \
             4  2026-11-29T09:00:04.000Z           3 events of moves: primary moved: 20 partitions \
             (n1, n2); in sync: 20 partitions (n2)\n     \
             5  2026-11-29T09:00:00.000Z  warning  copying was given up: 1 partition (default/3) at \
             n2\n     \
             6  2026-11-29T09:00:06.000Z           in sync: 2 partitions (default/2, ..) to n1\n     \
             7  2026-11-29T09:00:00.000Z           all partitions have their copies again\n"
        );
        assert_eq!(lines(&[]), "");
    }
}
