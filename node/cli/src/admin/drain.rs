//! `doyen drain` empties a member and waits until it is empty. `doyen remove` continues without a
//! member that will not return.

use super::{AdminEndpoint, tell, tell_what_became, write};
use crate::{CommandFailed, PARTITIONS, bytes, counted};
use doyen::http::api;
use doyen::report::status::{ClusterReport, KeyspaceReport};
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two requests.
const LOOK: Duration = Duration::from_millis(500);
/// Time between two lines of progress.
const SAY: Duration = Duration::from_secs(5);
/// The exit status of a command that Ctrl-C ended, as shells know it.
const INTERRUPTED: u8 = 130;

/// Empties a member, so that it can be stopped without data loss. Other members take over its
/// primaries at once, and its copies as they are made elsewhere. The command ends when the member
/// holds nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainCommand {
    /// The member's name
    name: String,
    /// Stop emptying the member: it may hold data again
    #[arg(long)]
    cancel: bool,
    /// Return at once; `doyen moves` shows the progress
    #[arg(long, conflicts_with = "cancel")]
    no_wait: bool,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

/// Removes a member whose machine will not return. The cluster waits for such a member as long as
/// it alone holds some data. That data is lost.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveMember {
    /// The member's name
    name: String,
    /// Confirm: the member is lost, and so is the data that only it holds
    #[arg(long)]
    lost: bool,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

/// Forgets a member that is gone and will not come back. `doyen status` and the alert
/// DoyenMemberGone miss it until then, or until a node of its name joins.
#[derive(Debug, clap::Args)]
pub(crate) struct ForgetMember {
    /// The name of the member that is gone
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// Forget every member that is gone
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

impl ForgetMember {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let Some(name) = &self.name else {
            let done = self.endpoint.make(&api::FORGET_ALL, [], &()).await?;
            let names = done["forgotten"].as_array().into_iter().flatten();
            let names: Vec<&str> = names.filter_map(Value::as_str).collect();
            return match &*names {
                [] => tell(format_args!("no member is gone\n")),
                [name] => tell(format_args!("{name} is forgotten\n")),
                names => tell(format_args!("{} are forgotten\n", names.join(", "))),
            };
        };
        self.endpoint.make(&api::FORGET, [name], &()).await?;
        tell(format_args!("{name} is forgotten\n"))
    }
}

impl DrainCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let (node, name) = (self.endpoint.client()?, &self.name);
        if self.cancel {
            node.make(&api::FILL, [name], &()).await?;
            let balance = node.ask(&api::MOVES).await?.balance;
            return match balance.on {
                true => tell(format_args!(
                    "{name} may hold data again: `doyen moves` shows what moves to it\n"
                )),
                false => tell(format_args!(
                    "{name} may hold data again. While balancing is {}, it is given none for \
                     balance\n",
                    balance.state
                )),
            };
        }
        let status = node.ask(&api::STATUS).await?;
        node.make(&api::DRAIN, [name], &()).await?;
        // The argument may also be the member's id.
        let named = status.members.iter().find(|m| m.id == *name);
        let name = named.map_or(name, |m| &m.name);
        write(&few(&status, name))?;
        if self.no_wait {
            let status = node.ask(&api::STATUS).await?;
            return match status.members.iter().find(|m| m.name == *name) {
                Some(m) if m.state == "drained" => tell(format_args!(
                    "{name} is drained: it holds nothing, and may be stopped\n"
                )),
                _ => tell(format_args!(
                    "{name} is being drained: `doyen moves` shows the progress\n"
                )),
            };
        }
        let mut said: Option<Instant> = None;
        loop {
            let moves = node.ask(&api::MOVES).await?;
            let status = node.ask(&api::STATUS).await?;
            if !status.members.iter().any(|m| m.name == *name) {
                return Err(CommandFailed::new(format!(
                    "{name} is no longer a member: it left, or does not answer"
                )));
            }
            let Some(drain) = moves.draining.iter().find(|d| d.member == *name) else {
                return Err(CommandFailed::new(format!(
                    "{name} is no longer being drained: another command cancelled it"
                )));
            };
            if drain.holds == 0 {
                write(&format!(
                    "{name} holds nothing: it may be stopped without data loss\n"
                ))?;
                // The command does not wait until every partition has all its copies: the missing
                // copy may need a member that never returns.
                for k in status.keyspaces.iter().filter(|k| k.under_replicated > 0) {
                    let lack = counted(k.under_replicated, PARTITIONS);
                    write(&format!(
                        "beware: {lack} of keyspace {} have fewer copies than they should \
                         (`doyen status`)\n",
                        k.name
                    ))?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(why) = &drain.waits_for {
                let held = format!(
                    "{name} cannot be emptied further, and still holds {}: {why}",
                    counted(drain.holds, PARTITIONS)
                );
                return Err(CommandFailed::new(format!(
                    "{held}; it gets no new data until `doyen drain {name} --cancel`"
                )));
            }
            if said.is_none_or(|at| at.elapsed() >= SAY) {
                let (left, rate) = (moves.bytes_left(), moves.rate());
                let text = match drain.holds {
                    // The bytes to move are unknown until the first copies begin.
                    holds if left == 0 => format!("{name} leads {}, holds {holds}\n", drain.leads),
                    holds => format!(
                        "{name} leads {}, holds {holds}; {} left at {} a second\n",
                        drain.leads,
                        bytes(left),
                        bytes(rate)
                    ),
                };
                said = Some(Instant::now());
                if !write(&text)? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = tokio::signal::ctrl_c() => {
                    write(&format!(
                        "the drain of {name} goes on: `doyen moves` shows the progress, \
                         `doyen drain {name} --cancel` stops it\n"
                    ))?;
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            }
        }
    }
}

/// One line for each keyspace that will have fewer copies than its `backups` ask for, once this
/// member is empty. The cluster counts as safe all the same.
fn few(status: &ClusterReport, drained: &str) -> String {
    let left = status
        .members
        .iter()
        .filter(|m| m.may_hold() && m.name != drained)
        .count();
    let lacking = status
        .keyspaces
        .iter()
        .filter(|k| (1..=usize::from(k.backups)).contains(&left));
    let line = |k: &KeyspaceReport| {
        format!(
            "beware: only {left} of {} copies of keyspace {} will be left: \
             no other member may hold data\n",
            usize::from(k.backups) + 1,
            k.name
        )
    };
    lacking.map(line).collect()
}

impl RemoveMember {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let (node, name) = (self.endpoint.client()?, &self.name);
        if !self.lost {
            return Err(CommandFailed::usage(format!(
                "if {name} will not return, add --lost to confirm that data which only it holds \
                 is lost; to empty a member that answers, run: doyen drain {name}"
            )));
        }
        let status = node.ask(&api::STATUS).await?;
        if status.members.is_empty() {
            return Err(CommandFailed::new(format!(
                "the node at {} is no member of a cluster yet: ask another one, or wait",
                node.address()
            )));
        }
        let names: Vec<&str> = status.members.iter().map(|m| m.name.as_str()).collect();
        if !names.contains(&name.as_str()) {
            return Err(CommandFailed::new(format!(
                "there is no member {name}: the members are {}",
                names.join(", ")
            )));
        }
        let before = node.ask(&api::TABLE).await?;
        node.make(&api::REMOVE_LOST, [name], &()).await?;
        write(&format!("continuing without {name}\n"))?;
        tell_what_became(&node, &before, std::slice::from_ref(name)).await
    }
}
