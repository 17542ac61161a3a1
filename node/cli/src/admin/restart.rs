//! `doyen restart-plan`: every node once, one after the other, and the coordinator last.

use super::{Target, failed, json, write};
use crate::Failed;
use doyen::http::client;
use doyen::report::status::{ClusterReport, MemberReport};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// For so long after the last line it says nothing new of what it waits for.
const TELL: Duration = Duration::from_secs(3);

/// Restart every node, one after the other, without anything being lost: waits until the cluster is
/// safe before each, and hands the coordinator over last, once.
///
/// Without --exec it says which node is to be restarted, waits until you have done that and it is
/// back, and goes on with the next; --print only shows the order. Restart nodes by SIGTERM, so that
/// they leave in order.
#[derive(Debug, clap::Args)]
pub(crate) struct RestartPlan {
    #[command(flatten)]
    target: Target,
    /// Only print the order
    #[arg(long, conflicts_with = "exec")]
    print: bool,
    /// With --print: as JSON
    #[arg(long, requires = "print")]
    json: bool,
    /// A shell command that restarts a node: DOYEN_NODE is its name, DOYEN_ADDRESS its control
    /// address
    #[arg(long, value_name = "COMMAND", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    exec: Option<String>,
    /// How long a node may take to be back, and the cluster to be safe
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// A node to be restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Turn {
    name: String,
    address: String,
    coordinator: bool,
}

impl RestartPlan {
    pub(crate) async fn main(self) -> Result<ExitCode, Failed> {
        let first = self.target.address();
        let report: ClusterReport = client::get(&first, "/status").await.map_err(failed)?;
        if report.cluster_id.is_none() {
            return Err(Failed::new("the node is a member of no cluster yet"));
        }
        let turns = order(&report);
        if self.print {
            let lines = turns.iter().map(|t| {
                format!(
                    "{} {}{}\n",
                    t.name,
                    t.address,
                    if t.coordinator { " (coordinator)" } else { "" }
                )
            });
            write(&if self.json {
                json(&turns, true)?
            } else {
                lines.collect()
            })?;
            if let Some(why) = report.unsafe_for.filter(|_| !report.safe) {
                eprintln!(
                    "beware: the cluster is not safe now, {why} (`doyen status`); restart nothing before it is"
                );
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut asked = Asked {
            addresses: vec![first],
            timeout: Duration::from_secs(self.timeout),
        };
        let mut coordinators = vec![report.coordinator.clone()];
        for (number, turn) in turns.iter().enumerate() {
            let before = asked.until_safe(None).await?;
            let Some(former) = before.members.iter().find(|m| m.name == turn.name) else {
                return Err(Failed::new(format!(
                    "{} is no member any more: nothing further was restarted",
                    turn.name
                )));
            };
            let restarts = format!("{}/{}: {}", number + 1, turns.len(), turn.name);
            match &self.exec {
                Some(command) => {
                    write(&format!("{restarts}: restarting\n"))?;
                    run(command, turn).await?;
                }
                None => {
                    let seconds = self.timeout;
                    write(&format!(
                        "{restarts}: restart it now (SIGTERM, then start it again); waits {seconds} s for it (--timeout)\n"
                    ))?;
                }
            }
            let after = asked.until_safe(Some((&turn.name, &former.id))).await?;
            coordinators.push(after.coordinator.clone());
            write(&format!("{restarts}: back, and the cluster is safe\n"))?;
        }
        coordinators.dedup();
        write(&format!(
            "every node was restarted; coordinators: {}\n",
            coordinators
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", then ")
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The youngest first: whoever is restarted is the youngest then, so that the oldest of those who
/// were not stays where it is, and the next coordinator is one that has been restarted.
fn order(report: &ClusterReport) -> Vec<Turn> {
    let leads = |m: &MemberReport| report.coordinator.as_ref() == Some(&m.name);
    let mut members: Vec<&MemberReport> = report.members.iter().collect();
    members.sort_by_key(|m| (leads(m), std::cmp::Reverse(m.age)));
    members
        .into_iter()
        .map(|m| Turn {
            name: m.name.clone(),
            address: m.address.to_string(),
            coordinator: leads(m),
        })
        .collect()
}

/// The nodes that may be asked: the one that was named is restarted, too.
struct Asked {
    addresses: Vec<String>,
    timeout: Duration,
}

impl Asked {
    /// Until a node says that the cluster is safe, and that this member is another process than it
    /// was.
    async fn until_safe(&mut self, renewed: Option<(&str, &str)>) -> Result<ClusterReport, Failed> {
        let until = Instant::now() + self.timeout;
        let mut why = "no node answers: where HTTP is off, or elsewhere than members say, nobody can be asked".to_owned();
        let mut told = (Instant::now(), String::new());
        while Instant::now() < until {
            for address in self.addresses.clone() {
                let Ok(report) = client::get::<ClusterReport>(&address, "/status").await else {
                    continue;
                };
                for address in report
                    .members
                    .iter()
                    .filter_map(|m| m.http)
                    .map(|a| a.to_string())
                {
                    if !self.addresses.contains(&address) {
                        self.addresses.push(address);
                    }
                }
                let member = |name: &str| {
                    report
                        .members
                        .iter()
                        .find(|m| m.name == name && m.state == "live")
                };
                why = match renewed {
                    Some((name, _)) if member(name).is_none() => format!("{name} is not back yet"),
                    Some((name, id)) if member(name).is_some_and(|m| m.id == id) => {
                        format!("{name} was not restarted yet")
                    }
                    _ if report.safe => return Ok(report),
                    _ => format!(
                        "not safe: {}",
                        report
                            .unsafe_for
                            .as_deref()
                            .unwrap_or("it is not known why")
                    ),
                };
            }
            // Whoever watches wants to know what it waits for, but not each time that a number
            // changes.
            if told.0.elapsed() > TELL && told.1 != why {
                eprintln!("waiting: {why}");
                told = (Instant::now(), why.clone());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Failed::new(format!(
            "after {} s: {why}; nothing further was restarted",
            self.timeout.as_secs()
        )))
    }
}

async fn run(command: &str, turn: &Turn) -> Result<(), Failed> {
    let mut shell = std::process::Command::new("sh");
    // Whom to ask is said to this command; a node that is started takes it for where it shall
    // listen.
    shell
        .args(["-c", command])
        .env("DOYEN_NODE", &turn.name)
        .env("DOYEN_ADDRESS", &turn.address)
        .env_remove("DOYEN_HTTP");
    let ended = tokio::task::spawn_blocking(move || shell.status()).await;
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Failed::new(format!(
            "restarting {} failed ({status}): nothing further was restarted",
            turn.name
        ))),
        Ok(Err(e)) => Err(Failed::new(format!("the command cannot be run: {e}"))),
        Err(e) => Err(Failed::new(format!(
            "the command cannot be waited for: {e}"
        ))),
    }
}
