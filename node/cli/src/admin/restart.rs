//! `doyen restart-plan`: restarts every node once, one at a time, the coordinator last.

use super::{AdminEndpoint, show, tell, write};
use crate::CommandFailed;
use doyen::http::api;
use doyen::http::client::Client;
use doyen::report::status::{ClusterReport, MemberReport};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two requests.
const LOOK: Duration = Duration::from_millis(200);
/// Time between two lines that say what the command waits for.
const TELL: Duration = Duration::from_secs(3);

/// Restarts every node, one at a time, without data loss: it waits until the cluster is safe before
/// each restart. The coordinator comes last, so it changes only once.
///
/// Without --exec, the command names the node to restart, waits until you have restarted it, and
/// goes on with the next. --print only shows the order. Restart nodes by SIGTERM, so that they
/// leave in order.
#[derive(Debug, clap::Args)]
pub(crate) struct RestartPlan {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Only print the order
    #[arg(long, conflicts_with = "exec")]
    print: bool,
    /// With --print: print JSON
    #[arg(long, requires = "print")]
    json: bool,
    /// A shell command that restarts a node: DOYEN_NODE is its name, DOYEN_ADDRESS its control
    /// address
    #[arg(
        long,
        value_name = "COMMAND",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    exec: Option<String>,
    /// How long to wait until a node is back and the cluster is safe
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    timeout: u64,
}

/// A node to be restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct RestartTurn {
    name: String,
    address: String,
    coordinator: bool,
}

impl RestartPlan {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let report = node.ask(&api::STATUS).await?;
        if report.cluster_id.is_none() {
            return Err(CommandFailed::new(
                "the node is not a member of a cluster yet: wait until `doyen status` shows its \
                 members",
            ));
        }
        let turns = order(&report);
        if self.print {
            let line = |turn: &RestartTurn| {
                let coordinator = if turn.coordinator {
                    " (coordinator)"
                } else {
                    ""
                };
                format!("{} {}{coordinator}\n", turn.name, turn.address)
            };
            show(&turns, self.json, |turns| turns.iter().map(line).collect())?;
            if let Some(why) = report.unsafe_for.filter(|_| !report.safe) {
                let _ = writeln!(
                    std::io::stderr(),
                    "beware: the cluster is not safe now, {why} (`doyen status`); \
                     restart no node before it is safe"
                );
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut asked = RestartAsked {
            addresses: vec![node.address().to_owned()],
            node,
            timeout: Duration::from_secs(self.timeout),
        };
        let mut coordinators = vec![report.coordinator.clone()];
        for (number, turn) in turns.iter().enumerate() {
            let before = asked.until_safe(None).await?;
            let Some(former) = before.members.iter().find(|m| m.name == turn.name) else {
                return Err(CommandFailed::new(format!(
                    "{} is no longer a member: no further node was restarted",
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
                        "{restarts}: restart it now (SIGTERM, then start it again); \
                         waiting up to {seconds} s (--timeout)\n"
                    ))?;
                }
            }
            let after = asked.until_safe(Some((&turn.name, &former.id))).await?;
            coordinators.push(after.coordinator.clone());
            write(&format!("{restarts}: back, and the cluster is safe\n"))?;
        }
        coordinators.dedup();
        let coordinators: Vec<String> = coordinators.into_iter().flatten().collect();
        tell(format_args!(
            "every node was restarted; coordinators: {}\n",
            coordinators.join(", then ")
        ))
    }
}

/// The youngest first. A restarted node becomes the youngest member, so the oldest member stays the
/// oldest until its own turn. The next coordinator is then a node that was already restarted.
fn order(report: &ClusterReport) -> Vec<RestartTurn> {
    let leads = |m: &MemberReport| report.coordinator.as_ref() == Some(&m.name);
    let mut members: Vec<&MemberReport> = report.members.iter().collect();
    members.sort_by_key(|m| (leads(m), std::cmp::Reverse(m.age)));
    members
        .into_iter()
        .map(|m| RestartTurn {
            name: m.name.clone(),
            address: m.address.to_string(),
            coordinator: leads(m),
        })
        .collect()
}

/// The nodes that can be asked. The node that the operator named is restarted as well, so others
/// must answer meanwhile.
struct RestartAsked {
    addresses: Vec<String>,
    /// The first one, with the caller's credential.
    node: Client,
    timeout: Duration,
}

impl RestartAsked {
    /// Waits until a node says that the cluster is safe, and that this member is another process
    /// than before.
    async fn until_safe(
        &mut self,
        renewed: Option<(&str, &str)>,
    ) -> Result<ClusterReport, CommandFailed> {
        let until = Instant::now() + self.timeout;
        let mut why =
            "no node answers by HTTP: check the addresses that `doyen status` shows".to_owned();
        let mut told = (Instant::now(), String::new());
        while Instant::now() < until {
            for address in self.addresses.clone() {
                let Ok(report) = self.node.at(&address).ask(&api::STATUS).await else {
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
                        format!("{name} has not been restarted yet")
                    }
                    _ if report.safe => return Ok(report),
                    _ => format!(
                        "not safe: {}",
                        report
                            .unsafe_for
                            .as_deref()
                            .unwrap_or("the reason is not known")
                    ),
                };
            }
            // The operator wants to know what the command waits for, but not every change of a
            // number.
            if told.0.elapsed() > TELL && told.1 != why {
                let _ = writeln!(std::io::stderr(), "waiting: {why}");
                told = (Instant::now(), why.clone());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(CommandFailed::new(format!(
            "after {} s: {why}; no further node was restarted",
            self.timeout.as_secs()
        )))
    }
}

async fn run(command: &str, turn: &RestartTurn) -> Result<(), CommandFailed> {
    let mut shell = std::process::Command::new("sh");
    // For this command DOYEN_HTTP is the node to ask. A node that the shell starts would take it
    // for the address to listen on.
    shell
        .args(["-c", command])
        .env("DOYEN_NODE", &turn.name)
        .env("DOYEN_ADDRESS", &turn.address)
        .env_remove("DOYEN_HTTP");
    let ended = tokio::task::spawn_blocking(move || shell.status()).await;
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(CommandFailed::new(format!(
            "restarting {} failed ({status}): no further node was restarted",
            turn.name
        ))),
        Ok(Err(e)) => Err(CommandFailed::new(format!("cannot run the command: {e}"))),
        Err(e) => Err(CommandFailed::new(format!(
            "cannot wait for the command: {e}"
        ))),
    }
}
