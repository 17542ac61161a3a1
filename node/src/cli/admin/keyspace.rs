//! `doyen keyspace`: create, list, show, alter, drop.

use super::{Credentials, Target, failed, json, print, write};
use crate::cli::Failed;
use crate::http::client;
use crate::keyspace::{self, KeyspaceOptions};
use crate::status::{ClusterReport, KeyspaceReport, PartitionsReport, TableReport};
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long `create` and `drop` look whether it is so, and how often.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Make, look at, change and drop keyspaces: names for keys that are kept alike.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct KeyspaceCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a keyspace; one that is there already with the same settings is left as it is
    Create(Create),
    /// List the keyspaces
    List(List),
    /// Show one keyspace, and what each member holds of it
    Show(Show),
    /// Change a keyspace while it is used: copies are made or dropped as needed
    Alter(Alter),
    /// Drop a keyspace with its maps and all that is in them
    Drop(Drop),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: 1 to 64 letters, digits, dots, hyphens and underscores
    name: String,
    #[command(flatten)]
    options: KeyspaceOptions,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: Credentials,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Its name
    name: String,
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Alter {
    /// Its name
    name: String,
    /// Copies beside the primary, 0 to 6
    #[arg(long, value_name = "N")]
    backups: Option<u8>,
    /// With how many copies, the primary among them, writes are still acknowledged
    #[arg(long, value_name = "N")]
    min_in_sync: Option<u8>,
    /// What happens when every copy of a partition is lost: wait, or reset:60s
    #[arg(long, value_name = "POLICY")]
    on_loss: Option<crate::config::value::LossPolicy>,
    /// Expiry for keys that are written without one, or none
    #[arg(long, value_name = "TIME")]
    default_ttl: Option<crate::config::value::Lifetime>,
    /// Rules instead of all that there are: 'primary in zone=a', 'copies not in rack=r1', 'copies 1 per zone'
    #[arg(long = "rule", value_name = "RULE", conflicts_with = "no_rules")]
    rules: Option<Vec<crate::config::value::RuleText>>,
    /// No rules any more
    #[arg(long)]
    no_rules: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: Credentials,
}

#[derive(Debug, clap::Args)]
struct Drop {
    /// Its name
    name: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: Credentials,
}

impl KeyspaceCommand {
    pub(in crate::cli) async fn main(self) -> Result<ExitCode, Failed> {
        match self.action {
            Action::Create(create) => create.main().await,
            Action::List(list) => list.main().await,
            Action::Show(show) => show.main().await,
            Action::Alter(alter) => alter.main().await,
            Action::Drop(drop) => drop.main().await,
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Create {
    async fn main(self) -> Result<(), Failed> {
        // What cannot hold is told in the words of the flags, and before anybody is asked.
        self.options.create(&self.name)?;
        let address = self.target.address();
        let mut body = serde_json::to_value(&self.options).map_err(|e| Failed::new(e.to_string()))?;
        body["name"] = Value::from(self.name.as_str());
        let token = self.credentials.token()?;
        let _: Value = client::change(&address, "POST", "/keyspaces", &token, &body.to_string()).await.map_err(failed)?;
        let made = seen(&address, |keyspaces| keyspaces.iter().find(|k| k.name == self.name && k.unavailable == 0).cloned()).await;
        match made {
            Some(k) => {
                let copies = usize::from(k.backups) + 1;
                write(&format!("keyspace {} is there: {} partitions, {copies} copies of each\n", k.name, k.partitions))
            }
            None => write(&format!("keyspace {} is made, and not served yet: `doyen status` shows why\n", self.name)),
        }?;
        Ok(())
    }
}

impl List {
    async fn main(self) -> Result<(), Failed> {
        let keyspaces = keyspaces(&self.target.address()).await?;
        write(&if self.json { json(&keyspaces, true)? } else { print::keyspaces(&keyspaces) })?;
        Ok(())
    }
}

impl Show {
    async fn main(self) -> Result<(), Failed> {
        let address = self.target.address();
        let keyspace = the(&keyspaces(&address).await?, &self.name)?;
        let table: TableReport = client::get(&address, "/table").await.map_err(failed)?;
        let nobody = || PartitionsReport { name: self.name.clone(), partitions: Vec::new() };
        let partitions = table.keyspaces.into_iter().find(|k| k.name == self.name).unwrap_or_else(nobody);
        let maps: Vec<String> = table.maps.into_iter().filter(|m| m.keyspace == self.name).map(|m| m.name).collect();
        let text = if self.json {
            json(&json!({ "keyspace": keyspace, "maps": maps, "partitions": partitions.partitions }), true)?
        } else {
            print::keyspace(&keyspace, &partitions, &maps)
        };
        write(&text)?;
        Ok(())
    }
}

impl Alter {
    async fn main(self) -> Result<(), Failed> {
        let Self { name, backups, min_in_sync, on_loss, default_ttl, rules, no_rules, .. } = &self;
        let options = KeyspaceOptions {
            backups: *backups,
            min_in_sync: *min_in_sync,
            on_loss: *on_loss,
            default_ttl: *default_ttl,
            rules: if *no_rules { Some(Vec::new()) } else { rules.clone() },
            ..KeyspaceOptions::new()
        };
        options.alter(name)?;
        let address = self.target.address();
        the(&keyspaces(&address).await?, name)?;
        let body = serde_json::to_string(&options).map_err(|e| Failed::new(e.to_string()))?;
        let token = self.credentials.token()?;
        let _: Value = client::change(&address, "PATCH", &format!("/keyspaces/{name}"), &token, &body).await.map_err(failed)?;
        write(&format!("keyspace {name} is altered; `doyen status` shows what moves for that\n"))?;
        Ok(())
    }
}

impl Drop {
    async fn main(self) -> Result<(), Failed> {
        let address = self.target.address();
        let name = &self.name;
        the(&keyspaces(&address).await?, name)?;
        if !self.yes {
            confirm(name)?;
        }
        let token = self.credentials.token()?;
        let _: Value = client::change(&address, "DELETE", &format!("/keyspaces/{name}"), &token, "").await.map_err(failed)?;
        let gone = seen(&address, |keyspaces| keyspaces.iter().all(|k| k.name != *name).then_some(())).await;
        write(&match gone {
            Some(()) => format!("keyspace {name} is dropped\n"),
            None => format!("keyspace {name} is dropped, and this node has not heard of it yet\n"),
        })?;
        Ok(())
    }
}

/// The name once more: who drops a keyspace by mistake drops all that is in it.
fn confirm(name: &str) -> Result<(), Failed> {
    if !std::io::stdin().is_terminal() {
        return Err(Failed::usage(format!("dropping {name} loses all that is in it: say --yes where nobody can be asked")));
    }
    write(&format!("this drops keyspace {name} with its maps and all that is in them. Type its name to go on: "))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Failed::new(format!("cannot read from stdin: {e}")))?;
    if line.trim() == name { Ok(()) } else { Err(Failed::new("that is not its name: nothing was dropped")) }
}

async fn keyspaces(address: &str) -> Result<Vec<KeyspaceReport>, Failed> {
    client::get::<ClusterReport>(address, "/status").await.map(|report| report.keyspaces).map_err(failed)
}

fn the(keyspaces: &[KeyspaceReport], name: &str) -> Result<KeyspaceReport, Failed> {
    let known = || keyspaces.iter().map(|k| k.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = keyspaces.iter().find(|k| k.name == name).cloned();
    found.ok_or_else(|| Failed::new(keyspace::unknown(name, &known())))
}

/// Looks until the node shows it, for a while.
async fn seen<T>(address: &str, look: impl Fn(&[KeyspaceReport]) -> Option<T>) -> Option<T> {
    let until = Instant::now() + SEEN_WITHIN;
    loop {
        // That it does not answer for a moment changes nothing of what was done.
        if let Some(found) = keyspaces(address).await.ok().and_then(|keyspaces| look(&keyspaces)) {
            return Some(found);
        }
        if Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}
