//! `doyen drain` empties a member, and waits until it is empty; `doyen remove` goes on without one
//! that will not return.

use super::{Credentials, Target, failed, tell_what_became, write};
use crate::{Failed, PARTITIONS, bytes, counted};
use doyen::http::client;
use doyen::report::moves::MovesReport;
use doyen::report::status::{ClusterReport, KeyspaceReport, TableReport};
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Between two lines of progress, where it goes on.
const SAY: Duration = Duration::from_secs(5);
/// The status of who was ended by Ctrl-C, as shells know it.
const INTERRUPTED: u8 = 130;

/// Empty a member, so that it can be stopped without anything being lost: what it leads goes to
/// others at once, its copies as they are made elsewhere. Ends once it holds nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    /// The member's name
    name: String,
    /// Let it hold data again instead
    #[arg(long)]
    cancel: bool,
    /// Return at once: `doyen moves` shows how far it is
    #[arg(long, conflicts_with = "cancel")]
    no_wait: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: Credentials,
}

/// Go on without a member whose machine will not return, and that is waited for because it alone
/// held data. What it alone held is lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// The member's name
    name: String,
    /// It is lost, and so is what it alone held
    #[arg(long, required = true)]
    lost: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: Credentials,
}

impl Drain {
    pub(crate) async fn main(self) -> Result<ExitCode, Failed> {
        let (address, name) = (self.target.address(), &self.name);
        let token = self.credentials.token()?;
        let path = format!("/members/{}/drain", escaped(name));
        if self.cancel {
            let _: Value = client::change(&address, "DELETE", &path, &token, "")
                .await
                .map_err(failed)?;
            let moves: MovesReport = client::get_with(&address, "/moves", &token)
                .await
                .map_err(failed)?;
            write(&match moves.balance.on {
                true => {
                    format!("{name} may hold data again: `doyen moves` shows what it is given\n")
                }
                false => format!(
                    "{name} may hold data again, and is given none for balance while balancing is {}\n",
                    moves.balance.state
                ),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let status: ClusterReport = client::get(&address, "/status").await.map_err(failed)?;
        // Members may be named by their ids, too.
        let name = status
            .members
            .iter()
            .find(|m| m.id == *name)
            .map_or_else(|| name.clone(), |m| m.name.clone());
        let name = &name;
        // Before anything is dropped, and not when it is too late.
        write(&few(&status, name))?;
        let _: Value = client::change(&address, "POST", &path, &token, "")
            .await
            .map_err(failed)?;
        let status: ClusterReport = client::get(&address, "/status").await.map_err(failed)?;
        if self.no_wait {
            write(&match status.members.iter().find(|m| m.name == *name) {
                Some(m) if m.state == "drained" => {
                    format!("{name} is drained: it holds nothing, and may be stopped\n")
                }
                _ => format!("{name} is being drained: `doyen moves` shows how far it is\n"),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut said: Option<Instant> = None;
        loop {
            let moves: MovesReport = client::get_with(&address, "/moves", &token)
                .await
                .map_err(failed)?;
            let status: ClusterReport = client::get(&address, "/status").await.map_err(failed)?;
            if !status.members.iter().any(|m| m.name == *name) {
                return Err(Failed::new(format!(
                    "{name} is no member any more: it left, or does not answer"
                )));
            }
            let Some(drain) = moves.draining.iter().find(|d| d.member == *name) else {
                return Err(Failed::new(format!(
                    "{name} is not being drained any more: somebody has cancelled that"
                )));
            };
            if drain.holds == 0 {
                write(&format!(
                    "{name} holds nothing any more: it may be stopped without anything being lost\n"
                ))?;
                // What others lack is not waited for: a member that does not return may be the only
                // one who has it.
                for k in status.keyspaces.iter().filter(|k| k.under_replicated > 0) {
                    let lack = counted(k.under_replicated, PARTITIONS);
                    write(&format!(
                        "beware: {lack} of keyspace {} have fewer copies than they should (`doyen status`)\n",
                        k.name
                    ))?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(why) = &drain.waits_for {
                let held = format!(
                    "{name} cannot be emptied further, and holds {} partitions: {why}",
                    drain.holds
                );
                return Err(Failed::new(format!(
                    "{held}; it is given nothing until `doyen drain {name} --cancel`"
                )));
            }
            if said.is_none_or(|at| at.elapsed() >= SAY) {
                let left: u64 = moves
                    .moves
                    .iter()
                    .map(|m| m.bytes_left)
                    .fold(0, u64::saturating_add);
                let rate: u64 = moves
                    .moves
                    .iter()
                    .map(|m| m.rate)
                    .fold(0, u64::saturating_add);
                let text = match drain.holds {
                    // Nothing is known of what is to go before the first copies begin.
                    holds if left == 0 => format!("{name} leads {}, holds {holds}\n", drain.leads),
                    holds => format!(
                        "{name} leads {}, holds {holds}; {} to go at {} a second\n",
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
                    write(&format!("{name} is emptied all the same: `doyen moves` shows how far it is, `doyen drain {name} --cancel` ends it\n"))?;
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            }
        }
    }
}

/// A line for each keyspace of which fewer copies are left without this member than somebody
/// wanted, however safe all then is.
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
            "beware: {left} of {} copies of keyspace {} will be left: no other member may hold data\n",
            usize::from(k.backups) + 1,
            k.name
        )
    };
    lacking.map(line).collect()
}

impl Remove {
    pub(crate) async fn main(self) -> Result<ExitCode, Failed> {
        let (address, name) = (self.target.address(), &self.name);
        let token = self.credentials.token()?;
        let status: ClusterReport = client::get(&address, "/status").await.map_err(failed)?;
        let names: Vec<&str> = status.members.iter().map(|m| m.name.as_str()).collect();
        if !names.contains(&name.as_str()) {
            return Err(Failed::new(format!(
                "there is no member {name}, so nothing waits for it: there are {}",
                names.join(", ")
            )));
        }
        let before: TableReport = client::get_with(&address, "/table", &token)
            .await
            .map_err(failed)?;
        let _: Value = client::change(
            &address,
            "DELETE",
            &format!("/members/{}", escaped(name)),
            &token,
            "",
        )
        .await
        .map_err(failed)?;
        write(&format!("going on without {name}\n"))?;
        tell_what_became((&address, &token), &before, std::slice::from_ref(name)).await
    }
}

/// A name as part of a path.
fn escaped(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    name.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_part_of_a_path() {
        assert_eq!(escaped("10.0.0.1:7400"), "10.0.0.1%3A7400");
        assert_eq!(escaped("a/../b"), "a%2F..%2Fb");
    }
}
