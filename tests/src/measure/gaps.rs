//! What applications notice of a fault, by the client library that they use.
//!
//! ```text
//!   programs of tests/gaps ── four tasks each, a write every 10 ms ──> three nodes
//!         │ one line for each write: acknowledged, or the error        (relays between them)
//!         └──────────────> here: longest gap, errors ── is every acknowledged write there?
//! ```
//! The fault hits the coordinator. It is also the node that clients of the plain port are connected
//! with, and the primary of a third of the keys. Errors that a library hides by another attempt
//! are no errors, but their time is part of a gap.

mod embedded;
mod table;
mod writer;

pub use embedded::{EmbeddedClient, EmbeddedMember};

use crate::resp::{Client, Reply};
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use doyen::testkit::{Cluster, ClusterBuilder, PATIENCE, node_name};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use writer::Writer;

/// How long programs write before the fault, and after it.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(10);
/// The programs, as `tests/gaps/build.sh` made them.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gaps/run.sh");
/// Keys of one `MGET`.
const KEYS_MAX: usize = 500;
/// The node whose program writes, in a cluster of programs that embed a node. The first node is
/// the oldest, so it is the coordinator.
const EMBEDDED_WRITER: usize = 2;

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NodeFault {
    /// SIGKILL
    Kill,
    /// SIGSTOP that lasts, as if its machine hung
    Stop,
    /// SIGTERM: it leaves in order
    Terminate,
    /// It does not reach the other nodes, but clients reach it
    Cut,
}

/// Which settings of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LibrarySettings {
    /// Those that docs/clients.md shows
    Good,
    /// Those that the library has by itself
    Default,
}

/// A library and the way in which it finds the nodes.
#[derive(Debug, Clone, Copy)]
struct ClientLibrary {
    name: &'static str,
    /// `cluster` and `plain` are ports. `map` and `client` are Doyen's own library.
    way: &'static str,
}

const LIBRARIES: [ClientLibrary; 15] = [
    ClientLibrary::new("go-redis", "cluster"),
    ClientLibrary::new("go-redis", "plain"),
    ClientLibrary::new("redis-py", "cluster"),
    ClientLibrary::new("redis-py", "plain"),
    ClientLibrary::new("ioredis", "cluster"),
    ClientLibrary::new("ioredis", "plain"),
    ClientLibrary::new("node-redis", "cluster"),
    ClientLibrary::new("Jedis", "cluster"),
    ClientLibrary::new("Jedis", "plain"),
    ClientLibrary::new("Lettuce", "cluster"),
    ClientLibrary::new("Lettuce", "plain"),
    ClientLibrary::new("redis-rs", "cluster"),
    ClientLibrary::new("fred", "cluster"),
    ClientLibrary::new("doyen", "map"),
    ClientLibrary::new("doyen", "client"),
];

impl ClientLibrary {
    const fn new(name: &'static str, way: &'static str) -> Self {
        Self { name, way }
    }

    fn is_ours(self) -> bool {
        self.name == "doyen"
    }
}

/// A program that writes while a node fails.
#[derive(Debug, Clone, Copy)]
struct GapCase {
    library: ClientLibrary,
    settings: LibrarySettings,
}

impl GapCase {
    /// The start of its keys.
    fn prefix(self) -> String {
        let settings = table::word(self.settings);
        format!("{}-{}-{settings}", self.library.name, self.library.way)
    }
}

/// What one program saw of one fault: a line of the file of results.
#[derive(Debug, Serialize, Deserialize)]
struct GapResult {
    library: String,
    way: String,
    settings: LibrarySettings,
    fault: NodeFault,
    /// The longest time between two acknowledged writes of a task, in milliseconds.
    gap_ms: f64,
    /// Whether the program wrote again after it.
    ended: bool,
    errors: usize,
    /// One of them.
    error: Option<String>,
    acknowledged: usize,
}

/// What to measure.
#[derive(Debug, Clone, Args)]
pub struct GapPlan {
    /// Only these faults
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', value_enum)]
    faults: Vec<NodeFault>,
    /// Only libraries whose name and way contain one of these, for example redis-py or plain
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these settings
    #[arg(long, value_name = "SETTINGS", value_enum)]
    settings: Option<LibrarySettings>,
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of programs that use one cluster at the same time
    #[arg(long, value_name = "N", default_value_t = 6)]
    together: usize,
    /// The file of results: each run adds lines to it, and all of it is printed
    #[arg(long, value_name = "FILE", default_value = "target/gaps/results.jsonl")]
    results: PathBuf,
    /// Measures nothing, and prints what the file has
    #[arg(long)]
    print: bool,
}

impl GapPlan {
    /// The programs that share a cluster. Neighbours of the list are in different groups, because
    /// they cost the most at the same moments.
    fn groups(&self) -> Vec<Vec<GapCase>> {
        let all_settings = [LibrarySettings::Good, LibrarySettings::Default];
        let cases = LIBRARIES.iter().flat_map(|library| {
            all_settings.map(|settings| GapCase {
                library: *library,
                settings,
            })
        });
        let chosen = cases.filter(|case| {
            let name = format!("{} {}", case.library.name, case.library.way);
            let is_named = self.only.iter().any(|word| name.contains(word));
            let is_meant = self.settings.is_none_or(|only| only == case.settings);
            // Our own library needs no settings.
            let exists = !case.library.is_ours() || case.settings == LibrarySettings::Good;
            (self.only.is_empty() || is_named) && is_meant && exists
        });
        let (ours, theirs): (Vec<_>, Vec<_>) = chosen.partition(|case| case.library.is_ours());
        let count = theirs.len().div_ceil(self.together.max(1));
        let mut groups: Vec<Vec<GapCase>> = (0..count)
            .map(|first| theirs.iter().skip(first).step_by(count).copied().collect())
            .collect();
        groups.push(ours);
        groups.retain(|group| !group.is_empty());
        groups
    }
}

/// Measures, adds the results to the file, and prints all that the file has.
///
/// # Errors
/// A program does not run, or does not write before the fault. An acknowledged write is lost.
pub fn run(binary: &str, plan: &GapPlan) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let faults = if plan.faults.is_empty() {
        NodeFault::value_variants()
    } else {
        &plan.faults
    };
    if !plan.print {
        for fault in faults {
            for _ in 0..plan.runs {
                for group in plan.groups() {
                    let results = runtime.block_on(measure(binary, *fault, &group))?;
                    record(&plan.results, &results)?;
                }
            }
        }
    }
    table::print(&plan.results)
}

fn record(path: &Path, results: &[GapResult]) -> Result<()> {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path);
    let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
    for result in results {
        let line = serde_json::to_string(result)?;
        eprintln!("{line}");
        writeln!(file, "{line}")?;
    }
    Ok(())
}

/// One fault, and what each program saw of it.
async fn measure(binary: &str, fault: NodeFault, cases: &[GapCase]) -> Result<Vec<GapResult>> {
    let embeds = cases.iter().any(|case| case.library.is_ours());
    // The program in a node of the cluster connects here.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let nodes = if embeds {
        embedded_nodes(&listener)?
    } else {
        Cluster::builder().binary(binary)
    };
    let mut cluster = nodes.option("partitions", 64).start(3).await?;
    let victim = cluster.coordinator().await.context("no coordinator")?;
    ensure!(
        !embeds || victim != EMBEDDED_WRITER,
        "the program that writes has the coordinator: run it again"
    );
    let mut writers = Vec::new();
    for case in cases {
        writers.push(match case.library.way {
            "map" => Writer::connected(listener.accept()?.0)?,
            "client" => Writer::of(native(&cluster, victim, *case)?, &case.prefix())?,
            _ => Writer::of(program(&cluster, victim, *case)?, &case.prefix())?,
        });
    }
    for (writer, case) in writers.iter_mut().zip(cases) {
        let writes = writer.await_first_writes(PATIENCE).await;
        writes.with_context(|| format!("{} does not write", case.prefix()))?;
    }
    tokio::time::sleep(BEFORE).await;
    let struck = Instant::now();
    match fault {
        NodeFault::Kill => cluster.kill(victim),
        NodeFault::Stop => cluster.pause(victim),
        NodeFault::Cut => cluster.isolate(&[victim].into()),
        NodeFault::Terminate => {
            cluster.stop(victim).await?;
        }
    }
    tokio::time::sleep_until((struck + AFTER).into()).await;
    let ended = Instant::now();
    let logs: Vec<_> = writers.into_iter().map(Writer::end).collect();
    let survivor = cluster.running().find(|node| *node != victim);
    let survivor = survivor.context("no node is left")?;
    let mut results = Vec::new();
    for (seen, case) in logs.iter().zip(cases) {
        ensure!(
            seen.errors_before(struck) == 0,
            "{}: errors before the fault",
            case.prefix()
        );
        let keys = seen.acknowledged(&case.prefix());
        if case.library.is_ours() {
            embedded::check(&cluster, survivor, &keys).await?;
        } else {
            check(&cluster, survivor, &keys)?;
        }
        let (gap, is_over) = seen.longest_gap(struck, ended);
        let (errors, error) = seen.errors();
        results.push(GapResult {
            library: case.library.name.into(),
            way: case.library.way.into(),
            settings: case.settings,
            fault,
            gap_ms: gap.as_secs_f64() * 1_000.0,
            ended: is_over,
            errors,
            error,
            acknowledged: keys.len(),
        });
    }
    Ok(results)
}

/// Nodes that are this program: it embeds them, and writes in one of them.
fn embedded_nodes(listener: &TcpListener) -> Result<ClusterBuilder> {
    let report = listener.local_addr()?.to_string();
    let writer = node_name(EMBEDDED_WRITER);
    Ok(Cluster::builder()
        .binary(std::env::current_exe()?)
        .arguments(["gaps-member", "--report", &report, "--writer", &writer]))
}

/// The nodes of a cluster, the one that will fail first.
fn victim_first(cluster: &Cluster, victim: usize) -> impl Iterator<Item = usize> {
    std::iter::once(victim).chain(cluster.running().filter(move |node| *node != victim))
}

/// The program of a library, in front of this cluster.
fn program(cluster: &Cluster, victim: usize, case: GapCase) -> Result<Command> {
    let port = if case.library.way == "cluster" {
        "resp-cluster"
    } else {
        "resp"
    };
    let mut addresses = Vec::new();
    for node in victim_first(cluster, victim) {
        let address = cluster.ready(node).and_then(|ready| ready.address(port));
        addresses.push(address.context("a node has no port")?.to_string());
    }
    let mut command = Command::new(PROGRAMS);
    command
        .args([case.library.name, case.library.way])
        .args([table::word(case.settings), case.prefix()])
        .arg(addresses.join(","));
    Ok(command)
}

/// This program as a native client of this cluster.
fn native(cluster: &Cluster, victim: usize, case: GapCase) -> Result<Command> {
    let seeds = victim_first(cluster, victim).filter_map(|node| cluster.data(node));
    let seeds: Vec<String> = seeds.map(|address| address.to_string()).collect();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["gaps-client", "--prefix", &case.prefix()])
        .arg("--secret-file")
        .arg(cluster.secret_file())
        .args(["--seeds", &seeds.join(",")]);
    Ok(command)
}

/// Reads every acknowledged write at a node that was not hurt.
fn check(cluster: &Cluster, node: usize, keys: &[(String, u64)]) -> Result<()> {
    let address: SocketAddr = cluster.resp(node).context("it has no port")?;
    let mut client = Client::connect(address, PATIENCE)?;
    for some in keys.chunks(KEYS_MAX) {
        let names = some.iter().map(|(key, _)| key.as_bytes());
        let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(names).collect();
        let Reply::Array(values) = client.command(&words)? else {
            bail!("MGET is refused");
        };
        ensure!(values.len() == some.len(), "MGET answers too few values");
        for ((key, number), value) in some.iter().zip(values) {
            let expected = Reply::Bulk(number.to_string().into_bytes());
            ensure!(value == expected, "LOST: {key} was acknowledged: {value:?}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The settings of a program with its first words, as docs/clients.md shows them.
    fn settings(program: &str) -> Vec<(&str, String)> {
        let mut found: Vec<(&str, String)> = Vec::new();
        let mut indent = None;
        for line in program.lines() {
            if let Some((_, library)) = line.split_once(" settings: ") {
                found.push((library, String::new()));
                indent = Some(line.len() - line.trim_start().len());
            } else if line.trim_start().ends_with("/ end") || line.trim_start() == "# end" {
                indent = None;
            } else if let (Some(indent), Some((_, code))) = (indent, found.last_mut()) {
                code.push_str(line.get(indent..).unwrap_or_default());
                code.push('\n');
            }
        }
        found
    }

    #[test]
    fn the_page_shows_the_settings_that_are_measured() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(tests.join("../docs/clients.md")).expect("the page");
        let programs = [
            "python/gaps.py",
            "node/ioredis.js",
            "node/node-redis.js",
            "go/main.go",
            "java/src/main/java/JedisGaps.java",
            "java/src/main/java/LettuceGaps.java",
            "rust/src/main.rs",
        ];
        let mut shown = BTreeSet::new();
        for program in programs {
            let text = std::fs::read_to_string(tests.join("gaps").join(program));
            for (library, code) in settings(&text.expect("a program")) {
                assert!(
                    page.contains(&format!("\n{code}```")),
                    "docs/clients.md has no block with the settings of {library}:\n{code}"
                );
                shown.insert(library.to_owned());
            }
        }
        let theirs = LIBRARIES.iter().filter(|library| !library.is_ours());
        let all = theirs.map(|library| format!("{} {}", library.name, library.way));
        assert_eq!(shown, all.collect());
    }
}
