//! Commands that ask a node by HTTP: `doyen status`, `doctor`, `table`, `keyspace`, `map`, `moves`,
//! `rebalance`, `drain`, `remove`, `token`, `acl`, `weight`, `restart-plan`, `events`, `recover`,
//! `split`, `wait`.

mod acl;
mod doctor;
mod drain;
mod events;
mod keyspace;
mod map;
mod moves;
mod print;
mod rebalance;
mod restart;
mod split;
mod token;
mod top;
mod wait;
mod weight;

use acl::AclCommand;
use doctor::DoctorCommand;
use drain::{DrainCommand, ForgetMember, RemoveMember};
use events::EventsCommand;
use keyspace::KeyspaceCommand;
use map::MapCommand;
use moves::Moves;
use rebalance::Rebalance;
use restart::RestartPlan;
use split::SplitCommand;
use token::TokenCommand;
use top::TopCommand;
use wait::WaitOptions;
use weight::WeightCommand;

use super::CommandFailed;
use doyen::VotersGone;
use doyen::config::value::Address;
use doyen::config::{self, HTTP_PORT};
use doyen::http::api::{self, RecoveryBody};
use doyen::http::client::{Client, HttpError, Trusted};
use doyen::http::{ChangeBody, HttpReport, Verb};
use doyen::net::identity::secret::{SecretRole, Secrets};
use doyen::net::identity::{LOCAL_TOKEN, other_role};
use doyen::report::status::{ClusterReport, KeyspaceReport, MemberReport};
use doyen::report::table::{PartitionReport, TableReport};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two requests of `--watch`.
const WATCH: Duration = Duration::from_millis(500);
/// How long `recover` watches the partitions, and how often it asks.
const RECOVERS_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The `on_loss` of a keyspace whose partitions wait for a copy to come back.
const WAIT: &str = "wait";

/// For scripts that wait until a node is a member.
const NO_CLUSTER_HELP: &str = "Status: 0 the node is a member of a cluster, safe or not; \
    1 it is not a member yet, or does not answer.";

const STATUS_HELP: &str = "Status: 0 the node is a member of a cluster, safe or not; with --check \
    only if it is safe; 1 it is not, is not a member yet, or does not answer. `doyen wait safe` \
    waits until it is safe.";

// No doc comment: it would be the help of the whole program.
#[derive(Debug, clap::Subcommand)]
pub(super) enum AdminCommand {
    /// Show members, keyspaces, and whether all data is safe
    Status(StatusCommand),
    /// Show the cluster in this terminal, live
    Top(TopCommand),
    /// Find out what is wrong with a cluster, a node or a machine, and what to do about it
    Doctor(Box<DoctorCommand>),
    /// Wait until all data is safe
    Wait(WaitOptions),
    /// Show which member holds which partition
    Table(TableCommand),
    /// Create, list, show, alter, split, merge and drop keyspaces
    Keyspace(KeyspaceCommand),
    /// List maps with what they hold, set their limits, and drop them
    Map(MapCommand),
    /// Show which partitions move, how far they are, and why they move
    Moves(Moves),
    /// Show what would move, apply a plan, or control when and how fast partitions move
    /// automatically
    Rebalance(Rebalance),
    /// Empty a member, so that it can be stopped without data loss
    Drain(DrainCommand),
    /// Remove a member whose machine will not return; data that only it had is lost
    Remove(RemoveMember),
    /// Forget a member that is gone: no status and no alert misses it any more
    Forget(ForgetMember),
    /// Make the secret of a cluster, show what a file may do, or replace the secret
    Secret(super::secret::SecretCommand),
    /// Make, list and revoke tokens with which programs ask nodes by HTTP
    Token(TokenCommand),
    /// Allow newcomers a weight far above that of the members, or forget that
    Weight(WeightCommand),
    /// List, change and remove the users of Redis clients
    Acl(AclCommand),
    /// Go through a restart of every node, one at a time, without data loss (`--exec` does it)
    RestartPlan(RestartPlan),
    /// Show the latest events of the cluster
    Events(EventsCommand),
    /// Continue without members that are gone for good, when no majority of the voters is left
    Recover(Recover),
    /// Choose between the halves of a cluster that was recovered on both sides of a cut
    Split(SplitCommand),
}

impl AdminCommand {
    pub(super) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self {
            Self::Status(command) => command.main().await,
            Self::Top(command) => command.main().await,
            Self::Doctor(command) => command.main().await,
            Self::Wait(command) => command.main().await,
            Self::Table(command) => command.main().await,
            Self::Keyspace(command) => command.main().await,
            Self::Map(command) => command.main().await,
            Self::Moves(command) => command.main().await,
            Self::Rebalance(command) => command.main().await,
            Self::Drain(command) => command.main().await,
            Self::Remove(command) => command.main().await,
            Self::Forget(command) => command.main().await,
            Self::Secret(command) => command.main().await,
            Self::Token(command) => command.main().await,
            Self::Weight(command) => command.main().await,
            Self::Acl(command) => command.main().await,
            Self::RestartPlan(command) => command.main().await,
            Self::Events(command) => command.main().await,
            Self::Recover(command) => command.main().await,
            Self::Split(command) => command.main().await,
        }
    }
}

/// The node to ask.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The node's --http address
    #[arg(
        long,
        env = "DOYEN_HTTP",
        value_name = "ADDR",
        value_parser = http_address,
        default_value_t = format!("127.0.0.1:{HTTP_PORT}")
    )]
    http: String,
}

/// The node to ask, and the proof that the caller may.
#[derive(Debug, clap::Args)]
pub(super) struct AdminEndpoint {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    credentials: AdminCredentials,
}

/// Show the cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_HELP)]
pub(super) struct StatusCommand {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// End with status 1 if the cluster is not safe
    #[arg(long, conflicts_with = "watch")]
    check: bool,
    /// Repeat until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show which member holds which partition.
#[derive(Debug, clap::Args)]
#[command(after_help = NO_CLUSTER_HELP)]
pub(super) struct TableCommand {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Continue without members that are dead.
#[derive(Debug, clap::Args)]
pub(super) struct Recover {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Names of members that are dead and will not come back. If one of them is still alive, there
    /// may be two clusters
    #[arg(long, value_name = "NAME", required = true, num_args = 1.., value_delimiter = ',')]
    assert_dead: Vec<String>,
    /// How many of how many voters these are. Count them: most often it is the node that sees no
    /// majority that is cut off, and the others go on without it. --yes does not replace this
    #[arg(long, value_name = "N/VOTERS")]
    gone: VotersGone,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// The proof that a caller may ask.
#[derive(Debug, clap::Args)]
pub(super) struct AdminCredentials {
    /// File with the operator's or the members' secret (or DOYEN_SECRET_FILE, or DOYEN_SECRET)
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// File with an HTTP token in its first line (or DOYEN_HTTP_TOKEN_FILE). It wins over a secret
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
    /// PEM file: the authority of the nodes' HTTP certificates (or DOYEN_HTTP_CA). Without it, they
    /// must be of the authority of the cluster's secret
    #[arg(long, value_name = "FILE")]
    http_ca: Option<PathBuf>,
}

/// What became of the partitions after `recover`.
#[derive(Debug, PartialEq, Eq)]
struct Recovered {
    partitions: usize,
    /// Partitions that began empty.
    lost: usize,
    /// Partitions that a member without its data still leads.
    waiting: usize,
}

impl Recovered {
    fn new(before: &TableReport, after: &TableReport, gone: &[String]) -> Self {
        let lineages: BTreeMap<_, _> = partitions(before)
            .map(|(keyspace, p)| ((keyspace, p.id), p.lineage))
            .collect();
        let (lost, others): (Vec<_>, Vec<_>) = partitions(after).partition(|(keyspace, p)| {
            lineages
                .get(&(*keyspace, p.id))
                .is_some_and(|before| p.lineage > *before)
        });
        // A member whose name another process took is called NAME~AGE.
        let is_of = |primary: &str, name: &str| {
            let rest = primary.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('~'))
        };
        let is_gone = |primary: &str| gone.iter().any(|name| is_of(primary, name));
        let waiting = others.iter().filter(|(_, p)| is_gone(&p.primary));
        Self {
            partitions: partitions(after).count(),
            lost: lost.len(),
            waiting: waiting.count(),
        }
    }
}

/// What it costs to continue without some members, as far as the asked node knows.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    partitions: usize,
    /// Partitions that begin empty: every copy is at a member that is asserted dead, or whose
    /// process is gone.
    lost: usize,
    /// As `lost`, but in keyspaces that wait for a copy to come back (`--on-loss wait`).
    waiting: usize,
}

impl Cost {
    fn new(table: &TableReport, keyspaces: &[KeyspaceReport], gone: &[String]) -> Self {
        let waits = |name: &str| {
            keyspaces
                .iter()
                .any(|k| k.name == name && k.on_loss == WAIT)
        };
        let lives = |name: &String| !gone.contains(name);
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
                "{lost} of {partitions} partitions begin empty and lose their data: \
                 this node knows of no other copy"
            )?,
        }
        match waiting {
            0 => Ok(()),
            _ => write!(
                f,
                "; {waiting} of {partitions} stay unavailable (--on-loss wait): \
                 this node knows of no other copy"
            ),
        }
    }
}

/// Asks the person at the terminal. Without a terminal, only `--yes` is an answer.
fn confirm(dead: &str, cost: &Cost) -> Result<(), CommandFailed> {
    let what = format!(
        "continuing without {dead}: {cost}. If one of them still runs, the cluster splits in two, \
         and what one half acknowledges is lost"
    );
    let refusal = || {
        format!(
            "nothing was changed: there is no terminal to ask at, so add --yes to confirm this: \
             {what}"
        )
    };
    confirm_yes(&what, refusal)
}

/// Asks whether what a command is about to do is meant.
fn confirm_yes(what: &str, refusal: impl FnOnce() -> String) -> Result<(), CommandFailed> {
    let answer = ask(&format!("{what}. Type yes to continue: "), refusal)?;
    if answer.eq_ignore_ascii_case("yes") {
        Ok(())
    } else {
        Err(CommandFailed::new(
            "the answer was not yes: nothing was changed",
        ))
    }
}

/// The answer of the person at the terminal, without the spaces around it. Without a terminal, the
/// command fails with `refusal`.
fn ask(question: &str, refusal: impl FnOnce() -> String) -> Result<String, CommandFailed> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandFailed::usage(refusal()));
    }
    write(question)?;
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| CommandFailed::new(format!("cannot read from stdin: {e}")))?;
    Ok(line.trim().to_owned())
}

/// Asks for the name once more: what is dropped by mistake loses all its data. `loss` says what is
/// about to be dropped.
fn confirm_drop(name: &str, loss: &str) -> Result<(), CommandFailed> {
    let refusal = || {
        format!("dropping {name} loses all its data: add --yes, as there is no terminal to ask at")
    };
    if ask(&format!("{loss}. Type its name to continue: "), refusal)? == name {
        Ok(())
    } else {
        Err(CommandFailed::new(
            "the answer was not its name: nothing was dropped",
        ))
    }
}

/// Makes a file that its owner alone may read. One that exists is not overwritten. `given` says how
/// the person gave its name.
fn private_file(given: &str, path: &Path) -> Result<File, CommandFailed> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => CommandFailed::usage(format!(
            "{given}: {} exists, and is not overwritten: give another name, or remove it",
            path.display()
        )),
        _ => CommandFailed::usage(format!("{given}: cannot write {}: {e}", path.display())),
    })
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
                "{lost} of {partitions} partitions began empty: only dead members had copies, \
                 and the data in them is lost"
            )?,
        }
        match waiting {
            0 => Ok(()),
            _ => write!(
                f,
                "; {waiting} still wait for dead members, which had the only copies"
            ),
        }
    }
}

impl AdminEndpoint {
    /// What asks the node.
    fn client(&self) -> Result<Client, CommandFailed> {
        self.credentials.client(self.target.address())
    }

    /// Makes a change: a row of [`api`], with the names in its path.
    async fn make<const N: usize, B: ChangeBody>(
        &self,
        verb: &Verb<N, B>,
        names: [&str; N],
        body: &B,
    ) -> Result<Value, CommandFailed> {
        Ok(self.client()?.make(verb, names, body).await?)
    }
}

impl Target {
    pub(super) fn address(&self) -> String {
        self.http.clone()
    }
}

/// The address of a node's HTTP port, in the forms that people write: like every other address, or
/// as the URL of a browser.
pub(super) fn http_address(text: &str) -> Result<String, String> {
    let (scheme, text) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), text)) => (format!("{scheme}://"), text),
        Some(_) => return Err("the scheme must be http:// or https://".into()),
        None => (String::new(), text),
    };
    let text = text.trim_end_matches('/');
    let text = if text.starts_with(':') && !text.starts_with("::") {
        &format!("127.0.0.1{text}")
    } else {
        text
    };
    let address = text.parse::<Address>()?.with_port(HTTP_PORT)?;
    Ok(scheme + &address)
}

impl StatusCommand {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let shown = show_or_watch(&node, &api::STATUS, (self.watch, self.json), print::cluster);
        let well = shown
            .await?
            .is_some_and(|report| report.cluster_id.is_some() && (report.safe || !self.check));
        Ok(answered(well))
    }
}

impl TableCommand {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let report = node.ask(&api::TABLE).await?;
        show(&report, self.json, print::table)?;
        Ok(answered(report.cluster_id.is_some()))
    }
}

impl Recover {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let counted = self.gone.to_string();
        let node = self.endpoint.client()?;
        let before = node.ask(&api::TABLE).await?;
        let ClusterReport {
            members, keyspaces, ..
        } = node.ask(&api::STATUS).await?;
        // Each member once, in the order in which they were typed.
        let mut dead: Vec<String> = Vec::new();
        for typed in &self.assert_dead {
            let of = |m: &&MemberReport| m.name == *typed || m.id == *typed;
            let names = members.iter().filter(of).map(|m| &m.name);
            let new: Vec<_> = names.filter(|name| !dead.contains(name)).cloned().collect();
            dead.extend(new);
        }
        let gone = without_data(&members, &dead);
        let mut recovery = RecoveryBody {
            assert_dead: self.assert_dead,
            gone: counted,
            check: true,
        };
        if !self.yes {
            // A person is asked only what the node would do: it checks the names and the count.
            node.make(&api::RECOVER, [], &recovery).await?;
            let whom = format!("{} ({} of the voters)", dead.join(", "), recovery.gone);
            confirm(&whom, &Cost::new(&before, &keyspaces, &gone))?;
        }
        recovery.check = false;
        node.make(&api::RECOVER, [], &recovery).await?;
        write(&format!("continuing without {}\n", dead.join(", ")))?;
        tell_what_became(&node, &before, &gone).await
    }
}

/// The members of whose copies nothing is left: those that are dead, and those whose directories
/// other processes have.
fn without_data(members: &[MemberReport], dead: &[String]) -> Vec<String> {
    let gone = members.iter().filter(|m| m.heir || dead.contains(&m.name));
    gone.map(|m| m.name.clone()).collect()
}

/// Waits until no partition waits for members that are gone, and tells how many began empty.
async fn tell_what_became(
    node: &Client,
    before: &TableReport,
    gone: &[String],
) -> Result<ExitCode, CommandFailed> {
    let until = Instant::now() + RECOVERS_WITHIN;
    loop {
        // If the node does not answer for a moment, the change still holds.
        let after = node.ask(&api::TABLE).await.ok();
        let counts = after.map(|after| Recovered::new(before, &after, gone));
        match counts {
            Some(counts) if counts.waiting == 0 || Instant::now() >= until => {
                write(&format!("{counts}; `doyen status` shows the cluster\n"))?;
                return Ok(ExitCode::SUCCESS);
            }
            None if Instant::now() >= until => {
                write(
                    "the node no longer answers: `doyen status` and its log tell \
                     what became of the partitions\n",
                )?;
                return Ok(ExitCode::SUCCESS);
            }
            _ => tokio::time::sleep(LOOKS_EVERY).await,
        }
    }
}

impl AdminCredentials {
    /// Asks the node at this address. The token goes only to a node whose certificate is trusted,
    /// or to this machine.
    pub(super) fn client(&self, address: impl Into<String>) -> Result<Client, CommandFailed> {
        let said = std::env::var_os("DOYEN_HTTP_CA").filter(|value| !value.is_empty());
        let authority = self.http_ca.clone().or(said.map(PathBuf::from));
        let token_file = self.from(&self.http_token_file, "DOYEN_HTTP_TOKEN_FILE");
        // Read once: a phrase takes some tenths of a second.
        let secrets = match (&authority, &token_file) {
            (Some(_), Some(_)) => None,
            _ => self.secrets()?,
        };
        let trusted = match (&authority, &secrets) {
            (Some(path), _) => Trusted::by_file("--http-ca", path).map(Some),
            (None, Some(secrets)) => Trusted::by_secrets(secrets),
            (None, None) => Ok(None),
        };
        let trusted = trusted.map_err(|e| CommandFailed::usage(e.to_string()))?;
        let token = match token_file {
            Some(path) => token_of(&path)?,
            None => operator_token(secrets.as_ref())?,
        };
        Ok(Client::new(address, token).trusting(trusted))
    }

    /// What was typed, or else what the environment says. Flags win over the environment. Clap's
    /// `env` would hide which of them a value came from.
    fn from(&self, flag: &Option<PathBuf>, name: &str) -> Option<PathBuf> {
        let typed = self.http_token_file.is_some() || self.secret_file.is_some();
        let said = std::env::var_os(name).filter(|value| !typed && !value.is_empty());
        flag.clone().or(said.map(PathBuf::from))
    }

    /// The secrets, if they are given.
    fn secrets(&self) -> Result<Option<Secrets>, CommandFailed> {
        if let Some(path) = self.from(&self.secret_file, "DOYEN_SECRET_FILE") {
            return Ok(Some(config::secrets_of(&path, "--secret-file")?));
        }
        let said = std::env::var_os("DOYEN_SECRET").filter(|value| !value.is_empty());
        said.map(|secret| Secrets::of_bytes(secret.as_bytes()))
            .transpose()
            .map_err(|e| CommandFailed::usage(format!("DOYEN_SECRET: {e}")))
    }
}

/// The first token of a file.
fn token_of(path: &Path) -> Result<String, CommandFailed> {
    let tokens = config::http_tokens(path, "--http-token-file")?;
    // There is at least one.
    let first = tokens.first().map(|token| token.to_string());
    Ok(first.unwrap_or_default())
}

/// The token that these secrets yield.
fn operator_token(secrets: Option<&Secrets>) -> Result<String, CommandFailed> {
    let Some(secrets) = secrets else {
        return Ok(LOCAL_TOKEN.into());
    };
    let token = secrets.first().operator_token();
    token.map(|token| token.to_string()).ok_or_else(|| {
        CommandFailed::usage(format!(
            "--secret-file: {}",
            other_role(secrets.role(), SecretRole::Operator)
        ))
    })
}

/// The exit status of a node that answered: whether it is a member of a cluster.
fn answered(well: bool) -> ExitCode {
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl From<HttpError> for CommandFailed {
    fn from(e: HttpError) -> Self {
        match e {
            HttpError::NoToken => Self::new(
                "the node requires a token: give the cluster's --secret-file (or DOYEN_SECRET), or \
                 a file with a token, --http-token-file",
            ),
            HttpError::Refused { status: 401, .. } => Self::new(
                "the node refuses the token: give the cluster's own --secret-file (or \
                 DOYEN_SECRET), or --http-token-file",
            ),
            HttpError::Connection { .. } => {
                Self::new(format!("{e}; `doyen doctor` looks for what is wrong"))
            }
            e => Self::new(e.to_string()),
        }
    }
}

// No doc comment: it would be the help of every command that lists something.
#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl List {
    /// Asks for a report, and prints it as JSON, or for people.
    async fn main<T>(
        self,
        report: &HttpReport<Vec<T>>,
        for_people: fn(&[T]) -> String,
    ) -> Result<ExitCode, CommandFailed>
    where
        T: Serialize + DeserializeOwned,
    {
        let all = self.endpoint.client()?.ask(report).await?;
        show(&all, self.json, |all| for_people(all))
    }
}

/// Shows a report once, or again and again until Ctrl-C. Returns the last one, or `None` if the
/// node did not answer.
async fn show_or_watch<T: Serialize + DeserializeOwned>(
    node: &Client,
    report: &HttpReport<T>,
    (watch, as_json): (bool, bool),
    mut for_people: impl FnMut(&T) -> String,
) -> Result<Option<T>, CommandFailed> {
    let redraw = watch && !as_json && std::io::stdout().is_terminal();
    loop {
        let (text, looked) = match node.ask(report).await {
            Ok(looked) if as_json => (json(&looked, !watch)?, Some(looked)),
            Ok(looked) => (for_people(&looked), Some(looked)),
            // A node that is watched may answer again later.
            Err(e) if watch => (format!("{}\n", CommandFailed::from(e).message), None),
            Err(e) => return Err(e.into()),
        };
        // If the terminal does not tell its size, it gets the whole text.
        let text = match redraw.then(crossterm::terminal::size) {
            Some(Ok((columns, rows))) => print::screen(&text, columns.into(), rows.into()),
            Some(Err(_)) => format!("\x1b[2J\x1b[H{text}"),
            None => text,
        };
        if !write(&text)? || !watch {
            return Ok(looked);
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// Shows a report as JSON, or for people.
fn show<T: Serialize>(
    report: &T,
    as_json: bool,
    for_people: impl FnOnce(&T) -> String,
) -> Result<ExitCode, CommandFailed> {
    write(&if as_json {
        json(report, true)?
    } else {
        for_people(report)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Says what was done.
fn tell(text: fmt::Arguments<'_>) -> Result<ExitCode, CommandFailed> {
    write(&text.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn json<T: Serialize>(report: &T, pretty: bool) -> Result<String, CommandFailed> {
    let text = if pretty {
        serde_json::to_string_pretty(report)
    } else {
        serde_json::to_string(report)
    };
    text.map(|t| t + "\n")
        .map_err(|e| CommandFailed::new(e.to_string()))
}

/// Writes to stdout. `false`: the reader has closed the pipe (`doyen table | head`).
fn write(text: &str) -> Result<bool, CommandFailed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(CommandFailed::new(format!("cannot write to stdout: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen::report::table::{KeysReport, PartitionState, PartitionsReport};

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
    fn recover_tells_beforehand_which_partitions_are_lost() {
        let mut table = table(&[("ada", 1), ("boris", 1), ("boris", 1), ("clara", 1)]);
        table.keyspaces[0].partitions[1]
            .backups
            .push("clara".into());
        table.keyspaces[0].partitions[2].backups.push("ada".into());
        // A learner does not have everything yet.
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

    /// Regression: a node that began again with its directory counted its former process as one
    /// that had copies.
    #[test]
    fn a_member_whose_process_is_gone_has_no_copies() {
        let mut members = ClusterReport::sample(&["ada", "boris", "clara"], true).members;
        members[2].heir = true;
        let gone = without_data(&members, &["ada".to_owned()]);
        assert_eq!(gone, ["ada", "clara"]);
    }

    #[test]
    fn recover_counts_partitions_that_began_empty_and_that_wait() {
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
        // What a member had that was replaced.
        assert_eq!(
            after(&[("b", 2), ("a", 1), ("b~7", 3), ("bc", 1)]).waiting,
            1
        );
        let said = "1 of 4 partitions began empty: only dead members had copies, and the data in \
                    them is lost; 1 still wait for dead members, which had the only copies";
        assert_eq!(one.to_string(), said);
        assert_eq!(
            after(&[("a", 1), ("a", 1), ("a", 3), ("a", 1)]).to_string(),
            "no partition began empty"
        );
    }
}
