//! `doyen split`: what a half of a split has that the other one lacks, and which half stays.

use super::print::{Column, grid};
use super::{AdminEndpoint, json, private_file, show, tell};
use crate::{CommandFailed, PARTITIONS, counted};
use doyen::http::api;
use doyen::http::client::Client;
use doyen::report::split::{HalfKey, HalfMark, HalfPartition, HalfPosition};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Save what a half of a split acknowledged, and choose between two halves.
#[derive(Debug, clap::Args)]
pub(crate) struct SplitCommand {
    #[command(subcommand)]
    action: SplitAction,
}

#[derive(Debug, clap::Subcommand)]
enum SplitAction {
    /// List what the half of the node that is asked acknowledged since it was recovered, by
    /// partition. The other half has none of it. All nodes of the half are asked
    Show {
        #[command(flatten)]
        endpoint: AdminEndpoint,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write the keys that this half wrote since it was recovered to a new file, with their values:
    /// one JSON object a line. Deletions are not in it. All nodes of the half are asked
    Export {
        #[command(flatten)]
        endpoint: AdminEndpoint,
        /// The file, which must not exist yet. Only its owner may read it
        file: PathBuf,
    },
    /// Let the half of the node that is asked serve again. Then start the nodes of the other half
    /// again: they join this one, and what they acknowledged since the recovery is lost
    Keep {
        #[command(flatten)]
        endpoint: AdminEndpoint,
    },
}

/// A partition of the half, as its nodes say together.
#[derive(Debug, Serialize)]
struct Kept {
    keyspace: String,
    partition: u32,
    /// Every copy was in this half: all of its keys count.
    alone: bool,
    changes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seconds_ago: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seconds_ago: Option<u64>,
    /// What was committed when the half was recovered. `None`: no node knows it, so all counts.
    #[serde(skip)]
    since: Option<HalfPosition>,
    /// The nodes that hold it: its primary, and then those with the latest copies.
    #[serde(skip)]
    holders: Vec<Client>,
}

/// A line of the file.
#[derive(Debug, Serialize)]
struct SplitLine<'a> {
    keyspace: &'a str,
    partition: u32,
    #[serde(flatten)]
    key: &'a HalfKey,
}

/// What a half has, and the nodes that did not say what they have.
struct HalfSurvey {
    /// The first recovery that the other half lacks, and how many there were.
    since: (u32, u32),
    kept: Vec<Kept>,
    silent: Vec<String>,
}

impl SplitCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            SplitAction::Show { endpoint, json } => {
                let half = HalfSurvey::ask(&endpoint.client()?).await?;
                show(&half.kept, json, |_| half.for_people())?;
                half.complete()
            }
            SplitAction::Export { endpoint, file } => export(&endpoint.client()?, &file).await,
            SplitAction::Keep { endpoint } => {
                endpoint.make(&api::KEEP_HALF, [], &()).await?;
                tell(format_args!(
                    "this half serves again: stop the nodes of the other half, and start them \
                     again with --seed and an address of this one\n"
                ))
            }
        }
    }
}

async fn export(node: &Client, path: &Path) -> Result<ExitCode, CommandFailed> {
    let half = HalfSurvey::ask(node).await?;
    let named = |e: std::io::Error| {
        let path = path.display();
        CommandFailed::new(format!(
            "{path} is incomplete: {e}. Remove it, and export to another disk"
        ))
    };
    let mut out = BufWriter::new(private_file("FILE", path)?);
    let (mut keys, mut large) = (0_u64, 0_u64);
    for kept in &half.kept {
        kept.export(&mut out, &mut keys, &mut large)
            .await
            .map_err(|e| {
                CommandFailed::new(format!("{} is incomplete: {}", path.display(), e.message))
            })?;
    }
    let file = out.into_inner().map_err(|e| named(e.into_error()))?;
    file.sync_all().map_err(named)?;
    tell(format_args!(
        "{} of {} in {}; deletions are not in it\n",
        counted(keys, ("key or field", "keys and fields")),
        counted(half.kept.len(), PARTITIONS),
        path.display()
    ))?;
    if large > 0 {
        return Err(CommandFailed::new(format!(
            "{large} of them are there without their value, because it is larger than 32 MiB"
        )));
    }
    half.complete()
}

impl HalfSurvey {
    /// Asks every member of this half.
    async fn ask(node: &Client) -> Result<Self, CommandFailed> {
        let asked = node.ask(&api::SPLIT).await?;
        if asked.recoveries == 0 {
            return Err(CommandFailed::new(
                "this half was not recovered with `doyen recover`, so it serves on and gives \
                 nothing up: ask a node of the other half, if there is one (`doyen status`)",
            ));
        }
        let status = node.ask(&api::STATUS).await?;
        let (mut silent, mut lacks) = (Vec::new(), asked.lacks);
        let mut all: BTreeMap<(String, u32), Vec<(HalfPartition, Client)>> = BTreeMap::new();
        for member in &status.members {
            let Some(http) = member.http else {
                silent.push(format!("{} has no HTTP", member.name));
                continue;
            };
            let at = node.at(http.to_string());
            match at.ask(&api::SPLIT).await {
                Ok(report) => {
                    lacks = lacks.into_iter().chain(report.lacks).min();
                    for one in report.partitions {
                        let key = (one.keyspace.clone(), one.partition);
                        all.entry(key).or_default().push((one, at.clone()));
                    }
                }
                Err(why) => silent.push(format!(
                    "{}: {}",
                    member.name,
                    CommandFailed::from(why).message
                )),
            }
        }
        // If no node has met the other half, it may lack all recoveries.
        let recovery = lacks.unwrap_or(1);
        let kept = all.into_iter();
        let kept = kept.map(|(at, nodes)| Kept::new(recovery, at, nodes));
        Ok(Self {
            since: (recovery, asked.recoveries),
            kept: kept.filter(|kept| kept.changes > 0 || kept.alone).collect(),
            silent,
        })
    }

    /// Fails if a node did not answer.
    fn complete(&self) -> Result<ExitCode, CommandFailed> {
        if self.silent.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let silent = self.silent.join("; ");
        Err(CommandFailed::new(format!(
            "this may not be all, because not every node of this half answered ({silent})"
        )))
    }

    fn for_people(&self) -> String {
        let since = match self.since {
            (_, 1) => "since it was recovered".to_owned(),
            (recovery, all) => format!("since recovery {recovery} of {all}"),
        };
        if self.kept.is_empty() {
            return format!("{since}, this half acknowledged nothing\n");
        }
        let changes: u64 = self.kept.iter().map(|kept| kept.changes).sum();
        let ago =
            |seconds: Option<u64>| seconds.map_or_else(|| "-".to_owned(), |s| format!("{s} s ago"));
        let note = |kept: &Kept| match kept.alone {
            true => "and all keys: the other half has no copy".to_owned(),
            false => String::new(),
        };
        let shown: [Column<'_, Kept>; 5] = [
            ("PARTITION", &|kept| {
                format!("{}/{}", kept.keyspace, kept.partition)
            }),
            ("CHANGES", &|kept| kept.changes.to_string()),
            ("FIRST", &|kept| ago(kept.first_seconds_ago)),
            ("LAST", &|kept| ago(kept.last_seconds_ago)),
            ("", &note),
        ];
        format!(
            "{since}, this half acknowledged {} that the other one lacks\n{}",
            counted(changes, ("change", "changes")),
            grid(&self.kept, &shown)
        )
    }
}

impl Kept {
    /// Puts together what nodes know of a partition since a recovery.
    fn new(
        recovery: u32,
        (keyspace, partition): (String, u32),
        nodes: Vec<(HalfPartition, Client)>,
    ) -> Self {
        let marks = || nodes.iter().flat_map(|(one, _)| &one.marks);
        // Copies hear a moment later what is committed, so the least counts. A mark of an earlier
        // recovery counts too much, and misses nothing.
        let marked = marks().filter(|mark| mark.recovery <= recovery && mark.committed.is_some());
        let since = marked.min_by_key(|mark| (Reverse(mark.recovery), mark.committed));
        let since = since.and_then(|mark| mark.committed);
        let committed = nodes.iter().filter_map(|(one, _)| one.committed).max();
        // A node that got its copy later knows the time since then.
        let dated = |mark: &&HalfMark| mark.recovery >= recovery && mark.last_seconds_ago.is_some();
        let dated = || (nodes.iter()).filter_map(|(one, _)| one.marks.iter().find(dated));
        let first_seconds_ago = dated().filter_map(|mark| mark.first_seconds_ago).max();
        let last_seconds_ago = dated().filter_map(|mark| mark.last_seconds_ago).min();
        let alone = marks().any(|mark| mark.recovery == recovery && mark.alone);
        let mut nodes = nodes;
        // A copy that is behind is asked only if no other one answers.
        nodes.sort_by_key(|(one, _)| Reverse((one.leads, one.committed)));
        let holders = nodes.into_iter().filter(|(one, _)| one.committed.is_some());
        let holders = holders.map(|(_, at)| at);
        Self {
            keyspace,
            partition,
            alone,
            changes: committed.map_or(0, |committed| committed.changes_since(since)),
            first_seconds_ago,
            last_seconds_ago,
            since,
            holders: holders.collect(),
        }
    }

    /// Writes its keys, as the first of its holders that answers has them.
    async fn export(
        &self,
        out: &mut impl Write,
        keys: &mut u64,
        large: &mut u64,
    ) -> Result<(), CommandFailed> {
        let (keyspace, partition) = (&self.keyspace, self.partition);
        let mut query = format!("keyspace={keyspace}&partition={partition}");
        // If all copies were in this half, all keys count.
        if let Some(HalfPosition { lineage, seq }) = self.since.filter(|_| !self.alone) {
            query.push_str(&format!("&lineage={lineage}&seq={seq}"));
        }
        let mut found = None;
        let mut why = CommandFailed::new(format!("no node holds {keyspace}/{partition}"));
        for holder in &self.holders {
            match holder.ask_with(&api::SPLIT_KEYS, &query).await {
                Ok(page) => {
                    found = Some((holder, page));
                    break;
                }
                Err(e) => why = e.into(),
            }
        }
        let Some((holder, mut page)) = found else {
            return Err(why);
        };
        loop {
            for key in &page.keys {
                let line = SplitLine {
                    keyspace,
                    partition,
                    key,
                };
                out.write_all(json(&line, false)?.as_bytes())
                    .map_err(|e| CommandFailed::new(e.to_string()))?;
                *keys += 1;
                *large += u64::from(key.value.is_none());
            }
            let Some(next) = &page.next else {
                return Ok(());
            };
            let next = format!("{query}&after={next}");
            page = holder.ask_with(&api::SPLIT_KEYS, &next).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(lineage: u32, seq: u64) -> Option<HalfPosition> {
        Some(HalfPosition { lineage, seq })
    }

    /// `ago`: when the first and the last change was.
    fn mark(recovery: u32, committed: Option<HalfPosition>, ago: Option<(u64, u64)>) -> HalfMark {
        HalfMark {
            recovery,
            committed,
            alone: false,
            first_seconds_ago: ago.map(|(first, _)| first),
            last_seconds_ago: ago.map(|(_, last)| last),
        }
    }

    fn kept(recovery: u32, nodes: Vec<(Option<HalfPosition>, Vec<HalfMark>)>) -> Kept {
        let nodes = nodes.into_iter().map(|(committed, marks)| {
            let one = HalfPartition {
                keyspace: "default".into(),
                partition: 3,
                leads: false,
                committed,
                marks,
            };
            (one, Client::of_open("127.0.0.1:1"))
        });
        Kept::new(recovery, ("default".into(), 3), nodes.collect())
    }

    /// The survivor of a half that was recovered twice counted from the second recovery.
    #[test]
    fn changes_count_from_the_first_recovery_that_the_other_half_lacks() {
        let twice = || {
            vec![
                mark(1, at(1, 10), Some((90, 5))),
                mark(2, at(1, 30), Some((20, 5))),
            ]
        };
        let both = kept(1, vec![(at(1, 60), twice())]);
        let dates = (both.first_seconds_ago, both.last_seconds_ago);
        assert_eq!(
            (both.since, both.changes, dates),
            (at(1, 10), 50, (Some(90), Some(5)))
        );
        let second = kept(2, vec![(at(1, 60), twice())]);
        let dates = (second.first_seconds_ago, second.last_seconds_ago);
        assert_eq!(
            (second.since, second.changes, dates),
            (at(1, 30), 30, (Some(20), Some(5)))
        );
        // A node that came after the first recovery does not hide what was written before.
        let late = || mark(2, at(1, 30), None);
        let later = kept(1, vec![(at(1, 60), vec![late()])]);
        assert_eq!((later.since, later.changes), (None, 60));
        let later = kept(1, vec![(at(1, 60), vec![late()]), (None, twice())]);
        assert_eq!((later.since, later.changes), (at(1, 10), 50));
        // It began empty after the second recovery.
        let empty = kept(
            1,
            vec![
                (at(2, 4), vec![mark(2, None, Some((3, 1)))]),
                (None, twice()),
            ],
        );
        assert_eq!((empty.since, empty.changes), (at(1, 10), 4));
    }

    /// A partition that had moved was not listed, and not exported.
    #[test]
    fn a_partition_that_moved_is_counted_where_it_is_and_dated_by_all() {
        let moved = kept(
            1,
            vec![
                (None, vec![mark(1, at(1, 10), Some((90, 40)))]),
                (at(1, 25), vec![mark(1, None, Some((30, 7)))]),
            ],
        );
        let dates = (moved.first_seconds_ago, moved.last_seconds_ago);
        assert_eq!(
            (moved.since, moved.changes, dates),
            (at(1, 10), 15, (Some(90), Some(7)))
        );
    }
}
