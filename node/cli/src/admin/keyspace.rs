//! `doyen keyspace`: create, list, show, alter, split, merge, drop.

use super::{AdminEndpoint, List, confirm_drop, print, show, tell};
use crate::{COPIES, CommandFailed, KEYS, PARTITIONS, bytes, counted};
use doyen::admin::keyspace::{KeyspaceOptions, SplitKey, SplitRequest};
use doyen::http::api::{self, NewKeyspaceBody};
use doyen::http::client::Client;
use doyen::report::loads::LoadsReport;
use doyen::report::status::{ClusterReport, KeyspaceReport};
use doyen::report::table::{KeysReport, PartitionsReport, StartReport};
use doyen_placement::division::splits_of_sample;
use doyen_placement::loads::FULL;
use doyen_placement::planner::Refused;
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long `create`, `split`, `merge` and `drop` wait until the node shows the change, and how
/// often they ask.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// The size of a file of sample keys, at most.
const SAMPLE_BYTES_MAX: u64 = 256 << 20;

/// Creates, lists, shows, alters, splits, merges and drops keyspaces.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyspaceCommand {
    #[command(subcommand)]
    action: KeyspaceAction,
}

#[derive(Debug, clap::Subcommand)]
enum KeyspaceAction {
    /// Create a keyspace; if it exists with the same settings, it is left as it is
    Create(Create),
    /// List the keyspaces
    List(List),
    /// Show one keyspace, and what each member holds of it
    Show(ShowKeyspaces),
    /// Change a keyspace while it is in use: copies are made or dropped as needed
    Alter(Alter),
    /// Split a range in two: the second one begins with the given key
    Split(RangePlace),
    /// Merge the range that begins with the given key into the one before it
    Merge(RangePlace),
    /// Drop a keyspace with its maps and all its data
    Drop(DropKeyspace),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: 1 to 64 letters, digits, dots, hyphens and underscores
    name: String,
    #[command(flatten)]
    options: KeyspaceOptions,
    /// Only --mode range: choose the borders so that the keys of this file, one on each line, fall
    /// evenly into --ranges ranges
    #[arg(
        long,
        value_name = "FILE",
        requires = "ranges",
        conflicts_with = "split_at"
    )]
    sample: Option<PathBuf>,
    /// Only with --sample: how many ranges to begin with, 2 to 16384
    #[arg(
        long,
        value_name = "N",
        requires = "sample",
        value_parser = clap::value_parser!(u16).range(2..=16384)
    )]
    ranges: Option<u16>,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
struct ShowKeyspaces {
    /// Its name
    name: String,
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(mut_args(alterable))]
#[command(
    after_help = "The mode, tokens, splits and order of a keyspace are fixed when it is created. \
        The number of its partitions can be doubled."
)]
struct Alter {
    /// Its name
    name: String,
    #[command(flatten)]
    options: KeyspaceOptions,
    /// Remove all rules
    #[arg(long, conflicts_with = "rules")]
    no_rules: bool,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
struct RangePlace {
    /// Its name
    name: String,
    /// The key; write bytes that are not printable as \xNN
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    at: SplitKey,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
struct DropKeyspace {
    /// Its name
    name: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

/// The flags of `create`, as `alter` shows them. Settings that are not given stay as they are.
/// Flags of fixed settings are hidden: they exist only to be refused with a reason.
fn alterable(arg: clap::Arg) -> clap::Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let stays =
        ["mode", "tokens", "random_tokens", "split_at", "ordered"].contains(&arg.get_id().as_str());
    let arg = arg.hide(stays);
    match help.split_once(" [default: ") {
        Some((what, _)) => arg.help(what.to_owned()),
        None => arg,
    }
}

impl KeyspaceCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            KeyspaceAction::Create(create) => create.main().await,
            KeyspaceAction::List(list) => list.main(&api::KEYSPACES, print::keyspaces).await,
            KeyspaceAction::Show(show) => show.main().await,
            KeyspaceAction::Alter(alter) => alter.main().await,
            KeyspaceAction::Split(place) => place.main(true).await,
            KeyspaceAction::Merge(place) => place.main(false).await,
            KeyspaceAction::Drop(drop) => drop.main().await,
        }
    }
}

impl Create {
    async fn main(mut self) -> Result<ExitCode, CommandFailed> {
        if let (Some(file), Some(ranges)) = (&self.sample, self.ranges) {
            self.options.split_at = sampled(file, ranges)?.into_iter().map(SplitKey).collect();
        }
        // Settings that contradict each other are refused in the words of the flags, before a
        // request.
        self.options.create(&self.name)?;
        let node = self.endpoint.client()?;
        let Self { name, options, .. } = self;
        let new = NewKeyspaceBody { name, options };
        node.make(&api::CREATE_KEYSPACE, [], &new).await?;
        let name = &new.name;
        let serves = |k: &&KeyspaceReport| k.name == *name && k.unavailable == 0;
        let made = seen(&node, |keyspaces| keyspaces.iter().find(serves).cloned()).await;
        let Some(k) = made else {
            return tell(format_args!(
                "keyspace {name} is created, but not served yet: `doyen status` shows why\n"
            ));
        };
        let status = node.ask(&api::STATUS).await?;
        let members = status.members.iter().filter(|m| m.may_hold()).count();
        tell(format_args!(
            "keyspace {name} is ready: {}, {} of each\n{}",
            counted(k.partitions, PARTITIONS),
            counted((usize::from(k.backups) + 1).min(members), COPIES),
            unmade(k.backups, members)
        ))
    }
}

/// The borders of ranges, chosen from a file of keys.
fn sampled(file: &Path, ranges: u16) -> Result<Vec<Vec<u8>>, CommandFailed> {
    let cannot = |why: String| CommandFailed::usage(format!("--sample {}: {why}", file.display()));
    let mut text = Vec::new();
    let opened = File::open(file).map_err(|e| cannot(e.to_string()))?;
    let length = opened
        .take(SAMPLE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|e| cannot(e.to_string()))?;
    if length as u64 > SAMPLE_BYTES_MAX {
        return Err(cannot(format!(
            "it has more than {} MiB: give some of its lines, which are sample enough",
            SAMPLE_BYTES_MAX >> 20
        )));
    }
    let lines = text
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let keys: Vec<Vec<u8>> = lines
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let (count, splits) = (keys.len(), splits_of_sample(keys, ranges.into()));
    if splits.len() + 1 < usize::from(ranges) {
        return Err(cannot(format!(
            "its {} are not enough for {ranges} ranges, but for {} at most",
            counted(count, KEYS),
            splits.len() + 1
        )));
    }
    Ok(splits)
}

impl ShowKeyspaces {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let keyspace = the(&node.ask(&api::KEYSPACES).await?, &self.name)?;
        let table = node.ask(&api::TABLE).await?;
        let none = || PartitionsReport {
            name: self.name.clone(),
            partitions: Vec::new(),
            gone: Vec::new(),
        };
        let partitions = table
            .keyspaces
            .into_iter()
            .find(|k| k.name == self.name)
            .unwrap_or_else(none);
        let maps: Vec<String> = table
            .maps
            .into_iter()
            .filter(|m| m.keyspace == self.name)
            .map(|m| m.name)
            .collect();
        let mut loads = node.ask(&api::LOADS).await?.partitions;
        loads.retain(|load| load.keyspace == self.name);
        let all = json!({ "keyspace": keyspace, "maps": maps, "partitions": partitions.partitions,
                          "loads": loads });
        show(&all, self.json, |_| {
            print::keyspace(&keyspace, &partitions, &loads, &maps)
        })
    }
}

impl Alter {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let Self {
            name, mut options, ..
        } = self;
        if self.no_rules {
            options.rules = Some(Vec::new());
        }
        options.alter(&name)?;
        let node = self.endpoint.client()?;
        let former = the(&node.ask(&api::KEYSPACES).await?, &name)?;
        let beware = match options.backups {
            Some(backups) if backups > former.backups => {
                let status = node.ask(&api::STATUS).await?;
                let loads = node.ask(&api::LOADS).await?;
                lacking(&former, backups, &status, &loads)
            }
            _ => String::new(),
        };
        node.make(&api::ALTER_KEYSPACE, [&name], &options).await?;
        tell(format_args!(
            "keyspace {name} is altered; `doyen status` shows what moves because of it\n{beware}"
        ))
    }
}

/// A warning if more copies are wanted than there are members for.
fn unmade(backups: u8, members: usize) -> String {
    let wanted = usize::from(backups) + 1;
    if wanted <= members {
        return String::new();
    }
    format!(
        "beware: only {members} of {wanted} copies can be made: no other member may hold data\n"
    )
}

/// Warnings if more copies are wanted than there are members or memory for.
fn lacking(
    former: &KeyspaceReport,
    backups: u8,
    status: &ClusterReport,
    loads: &LoadsReport,
) -> String {
    let may_hold: Vec<&str> = status
        .members
        .iter()
        .filter(|m| m.may_hold())
        .map(|m| m.name.as_str())
        .collect();
    let members = may_hold.len();
    let copies = |backups: u8| (usize::from(backups) + 1).min(members);
    let mut lines = unmade(backups, members);
    let held: u64 = loads
        .partitions
        .iter()
        .filter(|p| p.keyspace == former.name)
        .map(|p| p.bytes)
        .sum();
    let more = held.saturating_mul((copies(backups) - copies(former.backups)) as u64);
    let takers = loads
        .members
        .iter()
        .filter(|m| may_hold.contains(&m.name.as_str()));
    let room: u64 = takers
        .map(|m| (m.memory_max / 100 * u64::from(FULL)).saturating_sub(m.memory))
        .sum();
    if more > room {
        let (more, room) = (bytes(more), bytes(room));
        lines += &format!(
            "beware: {more} are to be copied, but the members have room for {room} in all: \
             some copies wait for another member, or for memory (--memory-max)\n"
        );
    }
    lines
}

impl RangePlace {
    async fn main(self, splits: bool) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let name = &self.name;
        the(&node.ask(&api::KEYSPACES).await?, name)?;
        if splits && !self.at.0.is_empty() && begins(&node, name, &self.at).await == Some(true) {
            return tell(format_args!(
                "keyspace {name} already has a range that begins there\n"
            ));
        }
        let at = self.at.clone();
        let (verb, done) = if splits {
            (&api::SPLIT_RANGE, "is split")
        } else {
            (&api::MERGE_RANGES, "is merged")
        };
        node.make(verb, [name], &SplitRequest { at }).await?;
        let is_so = async || (begins(&node, name, &self.at).await == Some(splits)).then_some(());
        if eventually(is_so).await.is_none() {
            return tell(format_args!(
                "keyspace {name} is not done yet: `doyen keyspace show {name}` shows the progress\n"
            ));
        }
        let keyspace = the(&node.ask(&api::KEYSPACES).await?, name)?;
        let partitions = counted(keyspace.partitions, PARTITIONS);
        tell(format_args!("keyspace {name} {done}: {partitions}\n"))
    }
}

impl DropKeyspace {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let node = self.endpoint.client()?;
        let name = &self.name;
        the(&node.ask(&api::KEYSPACES).await?, name)?;
        if !self.yes {
            confirm_drop(
                name,
                &format!("this drops keyspace {name} with its maps and all its data"),
            )?;
        }
        node.make(&api::DROP_KEYSPACE, [name], &()).await?;
        let gone = |all: &[KeyspaceReport]| all.iter().all(|k| k.name != *name).then_some(());
        match seen(&node, gone).await {
            Some(()) => tell(format_args!("keyspace {name} is dropped\n")),
            None => tell(format_args!(
                "keyspace {name} is dropped, but this node does not show it yet\n"
            )),
        }
    }
}

fn the(keyspaces: &[KeyspaceReport], name: &str) -> Result<KeyspaceReport, CommandFailed> {
    let found = keyspaces.iter().find(|k| k.name == name).cloned();
    found.ok_or_else(|| {
        CommandFailed::new(
            Refused::no_keyspace(name, keyspaces.iter().map(|k| &k.name)).to_string(),
        )
    })
}

/// Whether a range of this keyspace begins with this key; `None` if the node does not answer.
async fn begins(node: &Client, name: &str, at: &SplitKey) -> Option<bool> {
    let table = node.ask(&api::TABLE).await.ok()?;
    let at = StartReport {
        map: 0,
        key: at.to_string(),
    };
    let partitions = table
        .keyspaces
        .iter()
        .find(|k| k.name == name)?
        .partitions
        .iter();
    Some(
        partitions
            .filter_map(|p| {
                if let KeysReport::Range([from, _]) = &p.keys {
                    from.as_ref()
                } else {
                    None
                }
            })
            .any(|from| *from == at),
    )
}

/// Asks until the node shows it, or time is over.
async fn seen<T>(node: &Client, look: impl Fn(&[KeyspaceReport]) -> Option<T>) -> Option<T> {
    eventually(async || look(&node.ask(&api::KEYSPACES).await.ok()?)).await
}

async fn eventually<T>(look: impl AsyncFn() -> Option<T>) -> Option<T> {
    let until = Instant::now() + SEEN_WITHIN;
    loop {
        // If the node does not answer for a moment, the change still holds.
        if let Some(found) = look().await {
            return Some(found);
        }
        if Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alter_warns_if_more_copies_lack_members_or_memory() {
        let status = ClusterReport::sample(&["ada", "boris", "clara"], true);
        let loads = |memory: u64, held: u64| {
            let member = |name: &str| {
                json!({ "name": name, "memory": memory, "memory_max": 100_000_000, "cpu": 0,
                        "busy": false })
            };
            let partition = |keyspace: &str| {
                json!({ "keyspace": keyspace, "partition": 0, "primary": "ada", "bytes": held,
                        "keys": 1, "reads": 0, "writes": 0, "read_bytes": 0, "written_bytes": 0,
                        "share": 0 })
            };
            // Dora may not hold data, as if she were being emptied or silent: her room does not
            // count.
            let dora = json!({ "name": "dora", "memory": 0, "memory_max": 900_000_000, "cpu": 0,
                               "busy": false });
            let all = json!({ "members": [member("ada"), member("boris"), member("clara"), dora],
                              "partitions": [partition("default"), partition("other")] });
            serde_json::from_value::<LoadsReport>(all).expect("loads")
        };
        let told =
            |backups, loads: &LoadsReport| lacking(&status.keyspaces[0], backups, &status, loads);
        assert_eq!(
            told(2, &loads(60_000_000, 90_000_000)),
            "",
            "30 MB are left in each of three"
        );
        let no_room =
            "beware: 90.0 MB are to be copied, but the members have room for 60.0 MB in all: ";
        assert!(told(2, &loads(70_000_000, 90_000_000)).starts_with(no_room));
        let few = told(3, &loads(0, 1));
        assert_eq!(
            few,
            "beware: only 3 of 4 copies can be made: no other member may hold data\n"
        );
        assert_eq!(told(3, &loads(70_000_000, 90_000_000)).lines().count(), 2);
    }
}
