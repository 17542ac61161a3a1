//! `doyen status`, `table`, `keyspace`, `moves`, `rebalance`, `drain`, `remove`, `restart-plan`,
//! `events`, `recover`: they ask a node by HTTP.

mod drain;
mod events;
mod keyspace;
mod moves;
mod print;
mod rebalance;
mod restart;

pub(super) use drain::{Drain, Remove};
pub(super) use events::Events;
pub(super) use keyspace::KeyspaceCommand;
pub(super) use moves::Moves;
pub(super) use rebalance::Rebalance;
pub(super) use restart::RestartPlan;

use super::Failed;
use doyen::config::value::Address;
use doyen::config::{self, HTTP_PORT};
use doyen::http::client::{self, HttpError};
use doyen::net::identity::{Identity, LOCAL_TOKEN};
use doyen::report::status::{ClusterReport, KeyspaceReport, PartitionReport, TableReport};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks of `status --watch`.
const WATCH: Duration = Duration::from_millis(500);
/// How long `recover` looks what becomes of the partitions, and how often.
const RECOVERS_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The `on_loss` of a keyspace whose partitions wait for a copy to come back.
const WAIT: &str = "wait";

/// What scripts wait for.
const NO_CLUSTER_HELP: &str = "Status: 0 the node is a member of a cluster, safe or not; 1 it is a member of none yet, or does not answer.";

/// Which node to ask.
#[derive(Debug, clap::Args)]
struct Target {
    /// The node's --http address
    #[arg(long, env = "DOYEN_HTTP", value_name = "ADDR", value_parser = http_address, default_value_t = format!("127.0.0.1:{HTTP_PORT}"))]
    http: String,
}

/// Show the cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = NO_CLUSTER_HELP)]
pub(super) struct Status {
    #[command(flatten)]
    target: Target,
    /// Look again and again, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show who holds what.
#[derive(Debug, clap::Args)]
#[command(after_help = NO_CLUSTER_HELP)]
pub(super) struct Table {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    credentials: Credentials,
}

/// Go on without the dead.
#[derive(Debug, clap::Args)]
pub(super) struct Recover {
    #[command(flatten)]
    target: Target,
    /// Names of members that are dead and will not come back. If one of them lives all the same,
    /// two clusters may go on.
    #[arg(long, value_name = "NAME", required = true, num_args = 1.., value_delimiter = ',')]
    assert_dead: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    credentials: Credentials,
}

/// What shows that one may change something, and see keys.
#[derive(Debug, clap::Args)]
pub(super) struct Credentials {
    /// File with the cluster's secret (or DOYEN_SECRET_FILE, or DOYEN_SECRET)
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// File with the token for HTTP (or DOYEN_HTTP_TOKEN_FILE), where nodes have one: they take no
    /// other, so this goes before a secret
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
}

/// What became of the partitions when the dead were left behind.
#[derive(Debug, PartialEq, Eq)]
struct Recovered {
    partitions: usize,
    /// Those that began empty.
    lost: usize,
    /// Those that a dead member still leads.
    waiting: usize,
}

impl Recovered {
    fn new(before: &TableReport, after: &TableReport, dead: &[String]) -> Self {
        let lineages: BTreeMap<_, _> = partitions(before)
            .map(|(keyspace, p)| ((keyspace, p.id), p.lineage))
            .collect();
        let lost = partitions(after).filter(|(keyspace, p)| {
            lineages
                .get(&(*keyspace, p.id))
                .is_some_and(|before| p.lineage > *before)
        });
        let waiting = partitions(after).filter(|(_, p)| dead.contains(&p.primary));
        Self {
            partitions: partitions(after).count(),
            lost: lost.count(),
            waiting: waiting.count(),
        }
    }
}

/// What going on without some members costs, as far as the node that is asked can know.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    partitions: usize,
    /// Those that begin empty: every copy is at a member that is asserted dead.
    lost: usize,
    /// The same, in keyspaces that wait for a copy to come back (`--on-loss wait`).
    waiting: usize,
}

impl Cost {
    fn new(table: &TableReport, keyspaces: &[KeyspaceReport], dead: &[String]) -> Self {
        let waits = |name: &str| {
            keyspaces
                .iter()
                .any(|k| k.name == name && k.on_loss == WAIT)
        };
        let lives = |name: &String| !dead.contains(name);
        let gone = partitions(table)
            .filter(|(_, p)| !std::iter::once(&p.primary).chain(&p.backups).any(lives));
        let (waiting, lost): (Vec<_>, Vec<_>) = gone.partition(|(keyspace, _)| waits(keyspace));
        Self {
            partitions: partitions(table).count(),
            lost: lost.len(),
            waiting: waiting.len(),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partitions,
            lost,
            waiting,
        } = *self;
        match lost {
            0 => f.write_str("as far as this node knows, no partition begins empty")?,
            _ => write!(
                f,
                "{lost} of {partitions} partitions begin empty and lose their data: this node knows of no other copy"
            )?,
        }
        match waiting {
            0 => Ok(()),
            _ => write!(
                f,
                "; {waiting} of {partitions} stay unavailable (--on-loss wait): this node knows of no other copy"
            ),
        }
    }
}

/// Asks the person at the terminal. Without a terminal, only `--yes` is an answer.
fn confirm(dead: &str, cost: &Cost) -> Result<(), Failed> {
    let what = format!(
        "going on without {dead}: {cost}. If one of them still runs, two clusters may go on"
    );
    let refusal =
        || format!("{what}. There is no terminal to ask at: add --yes if that is what you want");
    let answer = ask(&format!("{what}. Type yes to go on: "), refusal)?;
    if answer.eq_ignore_ascii_case("yes") {
        Ok(())
    } else {
        Err(Failed::new("that was not yes: nothing was done"))
    }
}

/// What the person at the terminal answers, without the spaces around it. Without a terminal the
/// command fails with `refusal`.
fn ask(question: &str, refusal: impl FnOnce() -> String) -> Result<String, Failed> {
    if !std::io::stdin().is_terminal() {
        return Err(Failed::usage(refusal()));
    }
    write(question)?;
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| Failed::new(format!("cannot read from stdin: {e}")))?;
    Ok(line.trim().to_owned())
}

fn partitions(report: &TableReport) -> impl Iterator<Item = (&str, &PartitionReport)> {
    report
        .keyspaces
        .iter()
        .flat_map(|k| k.partitions.iter().map(|p| (k.name.as_str(), p)))
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partitions,
            lost,
            waiting,
        } = *self;
        match lost {
            0 => f.write_str("no partition began empty")?,
            _ => write!(
                f,
                "{lost} of {partitions} partitions began empty: the dead had their only copies, and what was in them is lost"
            )?,
        }
        match waiting {
            0 => Ok(()),
            _ => write!(
                f,
                "; {waiting} still wait for the dead, who had their only copies"
            ),
        }
    }
}

impl Target {
    fn address(&self) -> String {
        self.http.clone()
    }
}

/// `HOST:PORT` of a node's HTTP, as a person writes it: like every other address, or as the URL of
/// a browser.
pub(super) fn http_address(text: &str) -> Result<String, String> {
    let text = text
        .strip_prefix("http://")
        .unwrap_or(text)
        .trim_end_matches('/');
    let text = if text.starts_with(':') && !text.starts_with("::") {
        &format!("127.0.0.1{text}")
    } else {
        text
    };
    text.parse::<Address>()?.with_port(HTTP_PORT)
}

impl Status {
    pub(super) async fn main(self) -> Result<ExitCode, Failed> {
        let address = self.target.address();
        let redraw = self.watch && !self.json && std::io::stdout().is_terminal();
        loop {
            let looked = client::get::<ClusterReport>(&address, "/status").await;
            let member = looked
                .as_ref()
                .is_ok_and(|report| report.cluster_id.is_some());
            let text = match (looked, self.watch) {
                (Ok(report), _) if self.json => json(&report, !self.watch)?,
                (Ok(report), _) => print::cluster(&report),
                // A node that is watched may come back.
                (Err(e), true) => format!("{}\n", failed(e).message),
                (Err(e), false) => return Err(failed(e)),
            };
            // A terminal that does not tell its size gets it all.
            let text = match redraw.then(crossterm::terminal::size) {
                Some(Ok((columns, rows))) => print::screen(&text, columns.into(), rows.into()),
                Some(Err(_)) => format!("\x1b[2J\x1b[H{text}"),
                None => text,
            };
            if !write(&text)? || !self.watch {
                return Ok(answered(member));
            }
            tokio::time::sleep(WATCH).await;
        }
    }
}

impl Table {
    pub(super) async fn main(self) -> Result<ExitCode, Failed> {
        let token = self.credentials.token()?;
        let report: TableReport = client::get_with(&self.target.address(), "/table", &token)
            .await
            .map_err(failed)?;
        let text = if self.json {
            json(&report, true)?
        } else {
            print::table(&report)
        };
        write(&text)?;
        Ok(answered(report.cluster_id.is_some()))
    }
}

impl Recover {
    pub(super) async fn main(self) -> Result<ExitCode, Failed> {
        let token = self.credentials.token()?;
        let body = serde_json::json!({ "assert_dead": self.assert_dead }).to_string();
        let address = self.target.address();
        let before: TableReport = client::get_with(&address, "/table", &token)
            .await
            .map_err(failed)?;
        let ClusterReport {
            members, keyspaces, ..
        } = client::get(&address, "/status").await.map_err(failed)?;
        let dead = members
            .into_iter()
            .filter(|m| self.assert_dead.contains(&m.name) || self.assert_dead.contains(&m.id));
        let dead: Vec<String> = dead.map(|m| m.name).collect();
        // If no member is called that, the node refuses, and says which members there are.
        if !self.yes && !dead.is_empty() {
            confirm(&dead.join(", "), &Cost::new(&before, &keyspaces, &dead))?;
        }
        let _: serde_json::Value = client::change(&address, "POST", "/recover", &token, &body)
            .await
            .map_err(failed)?;
        write(&format!(
            "going on without {}\n",
            self.assert_dead.join(", ")
        ))?;
        tell_what_became((&address, &token), &before, &dead).await
    }
}

/// Waits until no partition waits for the dead any more, and tells how many began empty.
async fn tell_what_became(
    (address, token): (&str, &str),
    before: &TableReport,
    dead: &[String],
) -> Result<ExitCode, Failed> {
    let until = Instant::now() + RECOVERS_WITHIN;
    loop {
        // That it does not answer for a moment changes nothing of what was done.
        let after = client::get_with::<TableReport>(address, "/table", token)
            .await
            .ok();
        let counts = after.map(|after| Recovered::new(before, &after, dead));
        match counts {
            Some(counts) if counts.waiting == 0 || Instant::now() >= until => {
                write(&format!("{counts}; `doyen status` shows the cluster\n"))?;
                return Ok(ExitCode::SUCCESS);
            }
            None if Instant::now() >= until => {
                write(
                    "the node does not answer any more: `doyen status` and its log say what became of its partitions\n",
                )?;
                return Ok(ExitCode::SUCCESS);
            }
            _ => tokio::time::sleep(LOOKS_EVERY).await,
        }
    }
}

impl Credentials {
    pub(super) fn token(&self) -> Result<String, Failed> {
        // What was typed goes before what the environment says, and clap would not tell the one
        // from the other.
        let said = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let typed = self.http_token_file.is_some() || self.secret_file.is_some();
        let from = |flag: &Option<PathBuf>, name: &str| {
            flag.clone()
                .or_else(|| said(name).filter(|_| !typed).map(PathBuf::from))
        };
        if let Some(path) = from(&self.http_token_file, "DOYEN_HTTP_TOKEN_FILE") {
            return Ok(config::read_line(&path, "--http-token-file")?);
        }
        let secret = match from(&self.secret_file, "DOYEN_SECRET_FILE") {
            Some(path) => Some(config::read_line(&path, "--secret-file")?),
            None => said("DOYEN_SECRET").map(|secret| secret.to_string_lossy().into_owned()),
        };
        let Some(secret) = secret else {
            return Ok(LOCAL_TOKEN.into());
        };
        Ok(Identity::from_secret(secret.as_bytes(), "operator")
            .map_err(|e| Failed::usage(e.to_string()))?
            .http_token())
    }
}

/// A node answered that is a member of a cluster, or of none yet.
fn answered(member: bool) -> ExitCode {
    if member {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn failed(e: HttpError) -> Failed {
    match e {
        HttpError::NoToken => Failed::new(
            "the node wants a token, and none was sent: give the cluster's --secret-file (or DOYEN_SECRET), or --http-token-file if nodes have one",
        ),
        HttpError::Refused { status: 401, .. } => Failed::new(
            "the node refuses the token: give the cluster's own --secret-file (or DOYEN_SECRET), or --http-token-file",
        ),
        e => Failed::new(e.to_string()),
    }
}

fn json<T: Serialize>(report: &T, pretty: bool) -> Result<String, Failed> {
    let text = if pretty {
        serde_json::to_string_pretty(report)
    } else {
        serde_json::to_string(report)
    };
    text.map(|t| t + "\n")
        .map_err(|e| Failed::new(e.to_string()))
}

/// Writes to stdout; says whether anybody still reads (`doyen table | head`).
fn write(text: &str) -> Result<bool, Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failed::new(format!("cannot write to stdout: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen::report::status::{KeysReport, PartitionState, PartitionsReport};

    fn table(of: &[(&str, u64)]) -> TableReport {
        let partition = |(id, &(primary, lineage)): (usize, &(&str, u64))| PartitionReport {
            id: id as u32,
            keys: KeysReport::Slots([0, 0]),
            state: PartitionState::Unknown,
            primary: primary.into(),
            backups: Vec::new(),
            learners: Vec::new(),
            epoch: 1,
            lineage,
        };
        let partitions = of.iter().enumerate().map(partition).collect();
        let keyspaces = vec![PartitionsReport {
            name: "default".into(),
            partitions,
            gone: Vec::new(),
        }];
        TableReport {
            cluster_id: None,
            term: 1,
            version: 1,
            maps: Vec::new(),
            keyspaces,
            since: None,
            dropped: Vec::new(),
        }
    }

    #[test]
    fn recover_says_beforehand_what_is_lost() {
        let mut table = table(&[("ada", 1), ("boris", 1), ("boris", 1), ("clara", 1)]);
        table.keyspaces[0].partitions[1]
            .backups
            .push("clara".into());
        table.keyspaces[0].partitions[2].backups.push("ada".into());
        // One that learns has not everything yet.
        table.keyspaces[0].partitions[3].learners.push("ada".into());
        let mut keyspaces = ClusterReport::sample(&["ada", "boris", "clara"], true).keyspaces;
        keyspaces[0].on_loss = "reset:10m".into();
        let cost = |keyspaces: &[KeyspaceReport], dead: &[&str]| {
            Cost::new(
                &table,
                keyspaces,
                &dead.iter().map(ToString::to_string).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            cost(&keyspaces, &["boris"]),
            Cost {
                partitions: 4,
                lost: 0,
                waiting: 0
            }
        );
        let two = cost(&keyspaces, &["boris", "clara"]);
        assert_eq!(
            two,
            Cost {
                partitions: 4,
                lost: 2,
                waiting: 0
            }
        );
        assert!(
            two.to_string()
                .starts_with("2 of 4 partitions begin empty and lose their data"),
            "{two}"
        );
        keyspaces[0].on_loss = WAIT.into();
        let two = cost(&keyspaces, &["boris", "clara"]);
        assert_eq!(
            two,
            Cost {
                partitions: 4,
                lost: 0,
                waiting: 2
            }
        );
        assert!(two.to_string().contains("2 of 4 stay unavailable"), "{two}");
    }

    #[test]
    fn recover_counts_what_began_empty_and_what_waits() {
        let before = table(&[("a", 1), ("b", 1), ("b", 3), ("b", 1)]);
        let after = |of| Recovered::new(&before, &table(of), &["b".to_owned()]);
        let one = after(&[("a", 1), ("a", 2), ("a", 3), ("b", 1)]);
        assert_eq!(
            one,
            Recovered {
                partitions: 4,
                lost: 1,
                waiting: 1
            }
        );
        let said = "1 of 4 partitions began empty: the dead had their only copies, and what was in them is lost; \
                    1 still wait for the dead, who had their only copies";
        assert_eq!(one.to_string(), said);
        assert_eq!(
            after(&[("a", 1), ("a", 1), ("a", 3), ("a", 1)]).to_string(),
            "no partition began empty"
        );
    }
}
