//! `doyen split`: what a half of a split has that the other one lacks, and which half stays.

use super::{Endpoint, answered, failed, json, print, private_file, write};
use crate::Failed;
use doyen::http::client::Client;
use doyen::report::split::{HalfKey, HalfKeys, HalfPartition, HalfReport};
use doyen::report::status::ClusterReport;
use serde::Serialize;
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
        endpoint: Endpoint,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write the keys that this half wrote since it was recovered to a new file, with their values:
    /// one JSON object a line. Deletions are not in it. All nodes of the half are asked
    Export {
        #[command(flatten)]
        endpoint: Endpoint,
        /// The file, which must not exist yet. Only its owner may read it
        file: PathBuf,
    },
    /// Let the half of the node that is asked serve again. Then start the nodes of the other half
    /// again: they join this one, and what they acknowledged since the recovery is lost
    Keep {
        #[command(flatten)]
        endpoint: Endpoint,
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
    #[serde(skip)]
    from: u64,
    /// The nodes that hold it, its primary first.
    #[serde(skip)]
    holders: Vec<Client>,
}

/// A line of the file.
#[derive(Debug, Serialize)]
struct Line<'a> {
    keyspace: &'a str,
    partition: u32,
    #[serde(flatten)]
    key: &'a HalfKey,
}

/// What a half has, and the nodes that did not say what they have.
struct Half {
    kept: Vec<Kept>,
    silent: Vec<String>,
}

impl SplitCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, Failed> {
        match self.action {
            SplitAction::Show { endpoint, json } => show(&endpoint.client()?, json).await,
            SplitAction::Export { endpoint, file } => export(&endpoint.client()?, &file).await,
            SplitAction::Keep { endpoint } => {
                let node = endpoint.client()?;
                let _: serde_json::Value = node
                    .change("POST", "/split/keep", "")
                    .await
                    .map_err(failed)?;
                write(
                    "this half serves again: stop the nodes of the other half, and start them \
                     again with --seed and an address of this one\n",
                )?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

async fn show(node: &Client, as_json: bool) -> Result<ExitCode, Failed> {
    let half = Half::ask(node).await?;
    write(&if as_json {
        json(&half.kept, true)?
    } else {
        half.for_people()
    })?;
    half.complete()?;
    Ok(answered(true))
}

async fn export(node: &Client, path: &Path) -> Result<ExitCode, Failed> {
    let half = Half::ask(node).await?;
    let named = |e: std::io::Error| {
        let path = path.display();
        Failed::new(format!(
            "{path} is incomplete: {e}. Remove it, and export to another disk"
        ))
    };
    let mut out = BufWriter::new(private_file("FILE", path)?);
    let (mut keys, mut large) = (0_u64, 0_u64);
    for kept in &half.kept {
        kept.export(&mut out, &mut keys, &mut large)
            .await
            .map_err(|e| Failed::new(format!("{} is incomplete: {}", path.display(), e.message)))?;
    }
    let file = out.into_inner().map_err(|e| named(e.into_error()))?;
    file.sync_all().map_err(named)?;
    write(&format!(
        "{keys} keys and fields of {} partitions are in {}; deletions are not in it\n",
        half.kept.len(),
        path.display()
    ))?;
    if large > 0 {
        return Err(Failed::new(format!(
            "{large} of them are there without their value, because it is larger than 32 MiB"
        )));
    }
    half.complete()?;
    Ok(ExitCode::SUCCESS)
}

impl Half {
    /// Asks every member of this half.
    async fn ask(node: &Client) -> Result<Self, Failed> {
        let asked: HalfReport = node.get("/split").await.map_err(failed)?;
        if !asked.recovered {
            return Err(Failed::new(
                "this half was not recovered with `doyen recover`, so it serves on and gives \
                 nothing up: ask a node of the other half, if there is one (`doyen status`)",
            ));
        }
        let status: ClusterReport = node.get("/status").await.map_err(failed)?;
        let mut silent = Vec::new();
        let mut all: BTreeMap<(String, u32), Vec<(HalfPartition, Client)>> = BTreeMap::new();
        for member in &status.members {
            let Some(http) = member.http else {
                silent.push(format!("{} has no HTTP", member.name));
                continue;
            };
            let at = node.at(http.to_string());
            match at.get::<HalfReport>("/split").await {
                Ok(report) => {
                    for one in report.partitions {
                        let key = (one.keyspace.clone(), one.partition);
                        all.entry(key).or_default().push((one, at.clone()));
                    }
                }
                Err(why) => silent.push(format!("{}: {}", member.name, failed(why).message)),
            }
        }
        let kept = all.into_iter().map(|(at, nodes)| Kept::new(at, nodes));
        Ok(Self {
            kept: kept.filter(|kept| kept.changes > 0 || kept.alone).collect(),
            silent,
        })
    }

    /// Fails if a node did not answer.
    fn complete(&self) -> Result<(), Failed> {
        if self.silent.is_empty() {
            return Ok(());
        }
        let silent = self.silent.join("; ");
        Err(Failed::new(format!(
            "this may not be all, because not every node of this half answered ({silent})"
        )))
    }

    fn for_people(&self) -> String {
        if self.kept.is_empty() {
            return "since it was recovered, this half acknowledged nothing\n".into();
        }
        let changes: u64 = self.kept.iter().map(|kept| kept.changes).sum();
        let title = ["PARTITION", "CHANGES", "FIRST", "LAST", ""].map(Into::into);
        let mut rows: Vec<Vec<String>> = vec![title.to_vec()];
        rows.extend(self.kept.iter().map(|kept| {
            let ago = |seconds: Option<u64>| {
                seconds.map_or_else(|| "-".to_owned(), |s| format!("{s} s ago"))
            };
            let note = if kept.alone {
                "and all keys: the other half has no copy"
            } else {
                ""
            };
            vec![
                format!("{}/{}", kept.keyspace, kept.partition),
                kept.changes.to_string(),
                ago(kept.first_seconds_ago),
                ago(kept.last_seconds_ago),
                note.to_owned(),
            ]
        }));
        format!(
            "since it was recovered, this half acknowledged {changes} changes that the other one \
             lacks\n{}",
            print::columns(&rows)
        )
    }
}

impl Kept {
    fn new((keyspace, partition): (String, u32), nodes: Vec<(HalfPartition, Client)>) -> Self {
        // A node that came later has no mark of its own, and counts from the beginning.
        let marked: Vec<&HalfPartition> = nodes.iter().map(|(one, _)| one).collect();
        let from = marked.iter().filter_map(|one| one.from).min();
        let counts = |one: &&&HalfPartition| one.from.is_some() || from.is_none();
        let changes = marked.iter().filter(counts).map(|one| one.changes).max();
        let (alone, changes) = (marked.iter().any(|one| one.alone), changes.unwrap_or(0));
        let first_seconds_ago = marked.iter().filter_map(|one| one.first_seconds_ago).max();
        let last_seconds_ago = marked.iter().filter_map(|one| one.last_seconds_ago).min();
        let (leads, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(one, _)| one.leads);
        let holders = leads.into_iter().chain(others).map(|(_, at)| at);
        Self {
            keyspace,
            partition,
            alone,
            changes,
            first_seconds_ago,
            last_seconds_ago,
            from: from.unwrap_or(0),
            holders: holders.collect(),
        }
    }

    /// Writes its keys, as the first of its holders that answers has them.
    async fn export(
        &self,
        out: &mut impl Write,
        keys: &mut u64,
        large: &mut u64,
    ) -> Result<(), Failed> {
        let (keyspace, partition, from) = (&self.keyspace, self.partition, self.from);
        let path = format!("/split/keys?keyspace={keyspace}&partition={partition}&from={from}");
        let mut found = None;
        let mut why = Failed::new(format!("no node holds {keyspace}/{partition}"));
        for holder in &self.holders {
            match holder.get::<HalfKeys>(&path).await {
                Ok(page) => {
                    found = Some((holder, page));
                    break;
                }
                Err(e) => why = failed(e),
            }
        }
        let Some((holder, mut page)) = found else {
            return Err(why);
        };
        loop {
            for key in &page.keys {
                let line = Line {
                    keyspace,
                    partition,
                    key,
                };
                out.write_all(json(&line, false)?.as_bytes())
                    .map_err(|e| Failed::new(e.to_string()))?;
                *keys += 1;
                *large += u64::from(key.value.is_none());
            }
            let Some(next) = &page.next else {
                return Ok(());
            };
            page = holder
                .get(&format!("{path}&after={next}"))
                .await
                .map_err(failed)?;
        }
    }
}
