//! `doyen map`: what maps hold, their limits, and dropping them.

use super::print::{Column, grid};
use super::{AdminEndpoint, List, confirm_drop, confirm_yes, show, tell};
use crate::{CommandFailed, ENTRIES, PARTITIONS, bytes, counted};
use doyen::admin::maps::MapLimitOptions;
use doyen::config::value::Most;
use doyen::http::api;
use doyen::http::client::Client;
use doyen::report::maps::{MapKind, MapLimitsReport, MapPartReport, MapSizeReport};
use doyen_placement::planner::DEFAULT_KEYSPACE;
use std::process::ExitCode;

/// Lists, shows, limits and drops maps.
#[derive(Debug, clap::Args)]
pub(crate) struct MapCommand {
    #[command(subcommand)]
    action: MapAction,
}

#[derive(Debug, clap::Subcommand)]
enum MapAction {
    /// List the maps and databases of all keyspaces with what they hold, the largest first
    List(List),
    /// Show what each member holds of one map
    Show(ShowMaps),
    /// Set limits of a map, also lower ones: entries that are too many are evicted. Limits that are
    /// not given stay
    Limits(MapLimitFlags),
    /// Drop a map with all its entries. Programs that have it open get the error Dropped, until
    /// they open it again, empty
    Drop(DropMap),
}

#[derive(Debug, clap::Args)]
struct NamedMap {
    /// Its name
    name: String,
    /// Its keyspace
    #[arg(long, value_name = "NAME", default_value = DEFAULT_KEYSPACE)]
    keyspace: String,
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
struct ShowMaps {
    #[command(flatten)]
    which: NamedMap,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct MapLimitFlags {
    #[command(flatten)]
    which: NamedMap,
    #[command(flatten)]
    options: MapLimitOptions,
    /// Do not ask for confirmation if entries are evicted at once
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct DropMap {
    #[command(flatten)]
    which: NamedMap,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl MapCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            MapAction::List(list) => list.main(&api::MAPS, listed).await,
            MapAction::Show(show) => show.main().await,
            MapAction::Limits(limits) => limits.main().await,
            MapAction::Drop(drop) => drop.main().await,
        }
    }
}

impl NamedMap {
    fn names(&self) -> [&str; 2] {
        [&self.keyspace, &self.name]
    }

    /// The map, or a database of this number.
    async fn report(&self, node: &Client) -> Result<MapSizeReport, CommandFailed> {
        let all = node.ask(&api::MAPS).await?;
        let mut named: Vec<_> = (all.into_iter())
            .filter(|map| map.name == self.name && map.keyspace == self.keyspace)
            .collect();
        named.sort_by_key(|map| map.kind != MapKind::Map);
        named.into_iter().next().ok_or_else(|| {
            let Self { name, keyspace, .. } = self;
            CommandFailed::new(format!(
                "there is no map {name:?} in the keyspace {keyspace}: `doyen map list` names them"
            ))
        })
    }
}

impl ShowMaps {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let report = self.which.report(&self.which.endpoint.client()?).await?;
        show(&report, self.json, |report| {
            let shown: [Column<'_, MapPartReport>; 3] = [
                ("", &|_| String::new()),
                ("member", &|part| part.member.clone()),
                ("bytes", &|part| bytes(part.bytes)),
            ];
            let parts = grid(&report.members, &shown);
            listed(std::slice::from_ref(report)) + "\nwith copies:\n" + &parts
        })
    }
}

impl MapLimitFlags {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let Self {
            which,
            options,
            yes,
        } = self;
        if options == MapLimitOptions::default() {
            return Err(CommandFailed::usage(
                "say what to limit: --max-entries, --max-bytes, --eviction or --max-idle",
            ));
        }
        let node = which.endpoint.client()?;
        if !yes && let Some(loss) = evicted(&which.report(&node).await?, &options) {
            confirm_yes(&loss, || {
                format!("{loss}: add --yes, as there is no terminal to ask at")
            })?;
        }
        node.make(&api::LIMIT_MAP, which.names(), &options).await?;
        tell(format_args!(
            "the limits of map {:?} are set: a program that opens it with higher ones raises them\n",
            which.name
        ))
    }
}

/// What a map loses at once by these limits, if anything.
fn evicted(report: &MapSizeReport, options: &MapLimitOptions) -> Option<String> {
    let had = report.limits.as_ref();
    let evicts = match &options.eviction {
        Some(eviction) => eviction.to_string() != "none",
        None => had.is_none_or(|limits| limits.eviction != "none"),
    };
    let over = |held: u64, most: &Option<Most>| {
        let most = most.as_ref()?.0?;
        (held > most).then_some(most)
    };
    let (name, held) = (&report.name, counted(report.entries, ENTRIES));
    let size = bytes(report.bytes);
    let limit = over(report.entries, &options.max_entries)
        .map(|most| counted(most, ENTRIES))
        .or_else(|| over(report.bytes, &options.max_bytes).map(bytes));
    limit.filter(|_| evicts).map(|limit| {
        format!(
            "map {name:?} holds {held} of {size}, and what is beyond {limit} is evicted at \
             once"
        )
    })
}

impl DropMap {
    async fn main(self) -> Result<ExitCode, CommandFailed> {
        let (which, name) = (&self.which, &self.which.name);
        let node = which.endpoint.client()?;
        if !self.yes {
            let entries = counted(which.report(&node).await?.entries, ENTRIES);
            let keyspace = &which.keyspace;
            confirm_drop(
                name,
                &format!("this drops map {name:?} of keyspace {keyspace} with {entries}"),
            )?;
        }
        node.make(&api::DROP_MAP, which.names(), &()).await?;
        tell(format_args!("map {name:?} is dropped\n"))
    }
}

fn listed(maps: &[MapSizeReport]) -> String {
    let named = |map: &MapSizeReport| match map.kind {
        MapKind::Database => format!("(database {})", map.name),
        MapKind::Scripts => "(loaded scripts)".into(),
        MapKind::Dropped => format!("(dropped map {}, being cleared)", map.name),
        // A map of programs, or a kind of a later node.
        _ => map.name.escape_debug().to_string(),
    };
    let shown: [Column<'_, MapSizeReport>; 7] = [
        ("", &|_| String::new()),
        ("keyspace", &|map| map.keyspace.clone()),
        ("map", &named),
        ("entries", &|map| map.entries.to_string()),
        ("bytes", &|map| bytes(map.bytes)),
        ("with copies", &|map| bytes(map.with_copies())),
        ("limits", &|map| {
            map.limits.as_ref().map(limited).unwrap_or_default()
        }),
    ];
    let mut text = grid(maps, &shown);
    let mut lacking: Vec<_> = maps.iter().filter(|map| map.uncounted > 0).collect();
    lacking.dedup_by_key(|map| &map.keyspace);
    for map in lacking {
        text += &format!(
            "beware: {} of keyspace {} did not answer, and are not counted: `doyen status` shows \
             why\n",
            counted(map.uncounted, PARTITIONS),
            map.keyspace
        );
    }
    text
}

fn limited(limits: &MapLimitsReport) -> String {
    let MapLimitsReport {
        max_entries,
        max_bytes,
        eviction,
        max_idle,
    } = limits;
    let entries = max_entries.map(|most| counted(most, ENTRIES));
    let size = max_bytes.map(bytes);
    let bounds = entries.is_some() || size.is_some();
    let eviction = bounds.then(|| format!("eviction {eviction}"));
    let idle = max_idle.as_ref().map(|idle| format!("idle {idle}"));
    let all = [entries, size, eviction, idle].into_iter().flatten();
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn maps_are_listed_with_what_they_hold_and_what_was_not_counted() {
        let report = |value: Value| serde_json::from_value::<MapSizeReport>(value).expect("a map");
        let maps = [
            serde_json::json!({
                "keyspace": "default", "name": "pages\n", "kind": "map", "entries": 12,
                "bytes": 1200, "members": [{ "member": "n1", "bytes": 1200 },
                { "member": "n2", "bytes": 1200 }], "uncounted": 2,
                "limits": { "max_entries": 100, "eviction": "lfu", "max_idle": "30m" }
            }),
            serde_json::json!({
                "keyspace": "default", "name": "5", "kind": "database", "entries": 1, "bytes": 90,
                "members": [], "uncounted": 2
            }),
        ];
        let text = listed(&maps.map(report));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let words = |line: &str| line.split("  ").map(str::trim).map(str::to_owned).collect();
        let first: Vec<String> = words(lines[1]);
        let first: Vec<&String> = first.iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(
            first,
            [
                "default",
                "pages\\n",
                "12",
                "1200 B",
                "2400 B",
                "100 entries, eviction lfu, idle 30m"
            ]
        );
        assert!(lines[2].contains("(database 5)"), "{text}");
        assert!(
            lines[3].starts_with("beware: 2 partitions of keyspace default"),
            "{text}"
        );
        assert_eq!(lines.len(), 4, "{text}");
    }
}
