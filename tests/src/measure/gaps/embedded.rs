//! Programs with Doyen's own library: one that embeds a member, and one that is a native client.

use super::writer::TASKS;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use doyen::config::Options;
use doyen::testkit::{Cluster, Ready};
use doyen::{Map, Node};
use std::fmt::Display;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The map that both write, and the start of the keys of each.
const MAP: &str = "gaps";
const MEMBER_PREFIX: &str = "doyen-map-good";
/// Time between two writes of a task.
const APART: Duration = Duration::from_millis(10);

/// A program that embeds a member, and writes if it is the chosen one.
#[derive(Debug, Args)]
pub struct EmbeddedMember {
    /// Where it says what became of each write
    #[arg(long, value_name = "ADDR")]
    report: String,
    /// The name of the node whose program writes
    #[arg(long, value_name = "NAME")]
    writer: String,
    #[command(flatten)]
    doyen: Box<Options>,
}

/// A program that is a native client, and writes.
#[derive(Debug, Args)]
pub struct EmbeddedClient {
    /// The start of its keys
    #[arg(long, value_name = "TEXT")]
    prefix: String,
    /// Data ports of nodes
    #[arg(long, value_name = "ADDRS", value_delimiter = ',')]
    seeds: Vec<String>,
    /// The file with the secret of the cluster
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
}

/// The place where a program says what became of each write.
type Report = Arc<Mutex<dyn Write + Send>>;

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

impl EmbeddedMember {
    /// Runs until SIGTERM.
    ///
    /// # Errors
    /// The node does not start, or nothing listens for the report.
    pub fn run(self) -> Result<()> {
        runtime()?.block_on(async {
            let mut told = signal(SignalKind::terminate())?;
            let node = Node::builder().options(*self.doyen).start().await?;
            println!("{}", Ready::of(&node));
            if node.name() == self.writer {
                let report: Report = Arc::new(Mutex::new(TcpStream::connect(self.report)?));
                let map = node.map(MAP).await?;
                write(&map, MEMBER_PREFIX, &report);
            }
            told.recv().await;
            node.shutdown().await;
            Ok(())
        })
    }
}

impl EmbeddedClient {
    /// Runs until it is killed.
    ///
    /// # Errors
    /// No node answers.
    pub fn run(self) -> Result<()> {
        runtime()?.block_on(async {
            let client = Node::builder()
                .client()
                .name("gaps")
                .secret_file(self.secret_file)
                .seeds(self.seeds)
                .start()
                .await?;
            let report: Report = Arc::new(Mutex::new(std::io::stdout()));
            write(&client.map(MAP).await?, &self.prefix, &report);
            std::future::pending().await
        })
    }
}

/// Starts the tasks that write.
fn write(map: &Map<String, u64>, prefix: &str, report: &Report) {
    for task in 0..TASKS {
        let (map, prefix, report) = (map.clone(), prefix.to_owned(), report.clone());
        tokio::spawn(async move {
            for number in 0.. {
                let key = format!("{prefix}:{task}:{number}");
                let line = line(task, number, map.insert(&key, &number).await);
                // The measure has ended if it does not read.
                if say(&report, &line).is_err() {
                    return;
                }
                tokio::time::sleep(APART).await;
            }
        });
    }
}

fn say(report: &Report, line: &str) -> std::io::Result<()> {
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(report, "{line}")?;
    report.flush()
}

fn line(task: usize, number: u64, outcome: Result<(), impl Display>) -> String {
    match outcome {
        Ok(()) => format!("+ {task} {number}"),
        Err(why) => format!("- {task} {number} {why}"),
    }
}

/// Reads every acknowledged write of both programs through a node that was not hurt.
pub(super) async fn check(cluster: &Cluster, node: usize, keys: &[(String, u64)]) -> Result<()> {
    let seed = cluster.data(node).context("it has no data port")?;
    let client = Node::builder()
        .client()
        .name("gaps-check")
        .secret_file(cluster.secret_file())
        .seeds([seed.to_string()])
        .start()
        .await?;
    let map: Map<String, u64> = client.map(MAP).await?;
    for (key, number) in keys {
        let found = map.get(key).await?;
        ensure!(
            found == Some(*number),
            "LOST: {key} was acknowledged: {found:?}"
        );
    }
    client.shutdown().await;
    Ok(())
}
