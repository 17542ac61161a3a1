//! Types docs/operations.md: a shell runs its commands against a cluster of real processes.
//!
//! ```text
//!   sh ── doyen ...          the program under test, over HTTP
//!    └─── ssh, scp, curl ──> one pipe: the command ──> the test does it to the cluster
//!         its output <────── another pipe ─────────────────┘
//! ```
//! What is not Doyen's (to stop a service, to set a clock) is done by the test itself, so that no
//! command needs a machine of its own.

use crate::cluster::Cluster;
use crate::process::{PATIENCE, http};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
/// The configuration of each machine, which docs/production.md shows.
const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/doyen.toml");
/// The script that replaces each program that is not Doyen's.
const OUTSIDE: &str = r#"#!/bin/sh
echo "${0##*/} $*" > "$OUTSIDE/asked"
read -r status < "$OUTSIDE/done"
cat "$OUTSIDE/said"
exit "$status"
"#;
/// What the pipe says when the shell has ended.
const ENDED: &str = "ended";

/// The page, by its headings.
#[derive(Debug)]
pub struct Page {
    /// In their order, each with the blocks of code below it: language and text.
    sections: Vec<(String, Vec<(String, String)>)>,
}

impl Page {
    /// Reads docs/operations.md.
    #[must_use]
    pub fn read() -> Self {
        let text = std::fs::read_to_string(PAGE).expect("the page");
        let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
        let mut within = false;
        for line in text.lines() {
            let fence = line.strip_prefix("```");
            let heading = Some(line.trim_start_matches('#'))
                .filter(|rest| !within && rest.len() < line.len());
            let blocks = sections.last_mut().map(|(_, blocks)| blocks);
            match (fence, heading, blocks) {
                (_, Some(heading), _) => sections.push((heading.trim().to_owned(), Vec::new())),
                (Some(language), _, Some(blocks)) => {
                    within = !within;
                    if within {
                        blocks.push((language.to_owned(), String::new()));
                    }
                }
                (None, _, Some(blocks)) if within => {
                    let (_, code) = blocks.last_mut().expect("a block has begun");
                    code.push_str(line);
                    code.push('\n');
                }
                _ => {}
            }
        }
        assert!(!within, "a block of code is not closed");
        Self { sections }
    }

    /// All headings, in order.
    pub fn headings(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().map(|(heading, _)| heading.as_str())
    }

    /// The blocks of this language below a heading, in order.
    #[must_use]
    pub fn blocks(&self, heading: &str, language: &str) -> Vec<&str> {
        let (_, blocks) = self
            .sections
            .iter()
            .find(|(h, _)| h == heading)
            .unwrap_or_else(|| panic!("there is no section {heading:?}"));
        blocks
            .iter()
            .filter(|(l, _)| l == language)
            .map(|(_, code)| code.as_str())
            .collect()
    }
}

/// An operator who has the page, and types what it says.
#[derive(Debug)]
pub struct Operator {
    page: Page,
    /// The directory of programs, pipes and files.
    dir: TempDir,
    /// Flags that members were started with, besides the usual ones.
    flags: BTreeMap<String, Vec<String>>,
    /// How many blocks were typed or skipped, by heading.
    ran: BTreeMap<String, usize>,
}

impl Operator {
    /// An operator whose `doyen` is this binary.
    #[must_use]
    pub fn new(binary: &str) -> Self {
        let dir = TempDir::new().expect("a directory for programs");
        let path = |name: &str| dir.path().join(name);
        symlink(binary, path("doyen")).expect("a link in our own directory");
        for name in ["ssh", "scp", "curl"] {
            std::fs::write(path(name), OUTSIDE).expect("a file in our own directory");
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755))
                .expect("it is ours");
        }
        let made = Command::new("mkfifo")
            .args([path("asked"), path("done")])
            .status()
            .expect("the system has mkfifo");
        assert!(made.success(), "pipes");
        Self {
            page: Page::read(),
            dir,
            flags: BTreeMap::new(),
            ran: BTreeMap::new(),
        }
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// A file in the directory in which commands run.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a member with these flags. It has them again when it is started again.
    pub fn joins(&mut self, cluster: &mut Cluster, name: &str, flags: &[&str]) {
        self.flags.insert(
            name.to_owned(),
            flags.iter().map(ToString::to_string).collect(),
        );
        cluster.join_with(name, flags);
    }

    /// Types the next block of a section, with the address of this member, and returns what it
    /// printed. The blocks of a section are typed in order.
    pub fn types(&mut self, cluster: &mut Cluster, asks: &str, heading: &str) -> String {
        let number = self.ran.entry(heading.to_owned()).or_default();
        let block = *self
            .page
            .blocks(heading, "sh")
            .get(*number)
            .unwrap_or_else(|| panic!("{heading} has no block {number}"));
        *number += 1;
        let first = self.page.blocks("Operations", "sh")[0];
        let script = self.fill_in(cluster, asks, &format!("{first}{block}"));
        self.run(cluster, heading, &script)
    }

    /// Skips the next block of a section: it is for another situation.
    pub fn skips(&mut self, heading: &str) {
        *self.ran.entry(heading.to_owned()).or_default() += 1;
    }

    /// Asserts that every block of these sections was typed or skipped.
    pub fn finish(&self) {
        for (heading, ran) in &self.ran {
            assert_eq!(
                *ran,
                self.page.blocks(heading, "sh").len(),
                "blocks of {heading} that were looked at"
            );
        }
    }

    /// Replaces the addresses and files of the page by those of this cluster.
    fn fill_in(&self, cluster: &Cluster, asks: &str, text: &str) -> String {
        let mut text = text.replace("10.0.0.1:7480", &cluster.node(asks).ready.http.to_string());
        // There is no terminal here, so the question is answered beforehand.
        text = text.replace("doyen recover ", "doyen recover --yes ");
        for (name, process) in &cluster.nodes {
            let number = name.trim_start_matches('n');
            text = text.replace(
                &format!("10.0.0.{number}:7400"),
                &process.ready.listen.to_string(),
            );
        }
        // The member's file is as good as the operator's here.
        let secret = cluster.secret_file().display().to_string();
        // A token as `doyen token new` writes it. That of operators is as good here.
        let token = self.file("prometheus");
        if !text.contains("doyen token new") {
            let asked = cluster.node(asks).token().unwrap_or_default();
            std::fs::write(&token, asked).expect("a file in our own directory");
        }
        text.replace("/etc/doyen/prometheus", &token.display().to_string())
            .replace("/etc/doyen/member", &secret)
            .replace("/etc/doyen/operator", &secret)
    }

    fn run(&self, cluster: &mut Cluster, heading: &str, script: &str) -> String {
        // Each pipe is open for reading and writing: neither side waits for the other, or sees its
        // end too early.
        let pipe = |name: &str| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(self.file(name))
                .expect("a pipe of ours")
        };
        let (asked, mut done, mut ended) = (pipe("asked"), pipe("done"), pipe("asked"));
        let path = format!(
            "{}:{}",
            self.dir.path().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let shell = Command::new("timeout")
            .args([&PATIENCE.as_secs().to_string(), "sh", "-euc", script])
            .current_dir(self.dir.path())
            .env("PATH", path)
            .env("OUTSIDE", self.dir.path())
            .env_remove("DOYEN_SECRET")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let ending = std::thread::spawn(move || {
            let output = shell.wait_with_output();
            writeln!(ended, "{ENDED}").expect("the pipe is open");
            output
        });
        for line in BufReader::new(asked).lines() {
            let line = line.expect("text");
            if line == ENDED {
                break;
            }
            let (status, said) = self.outside(cluster, &line);
            std::fs::write(self.file("said"), said).expect("a file in our own directory");
            writeln!(done, "{status}").expect("the pipe is open");
        }
        let output = ending
            .join()
            .expect("waiting does not panic")
            .expect("a child of ours can be waited for");
        let [said, complained] = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert!(
            output.status.success(),
            "{heading}: {}\n{script}\n{said}\n{complained}",
            output.status
        );
        said
    }

    /// Does what a command asks for that is not Doyen's. Returns its status and its output.
    fn outside(&self, cluster: &mut Cluster, line: &str) -> (i32, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["ssh", name, "systemctl", "stop", "doyen"] => {
                let left = cluster.leave(name);
                (left.code().unwrap_or(1), String::new())
            }
            ["ssh", name, "systemctl", "start", "doyen"] => {
                // The common file, without the ports of a machine of its own.
                let common = std::fs::read_to_string(CONFIGURATION).expect("the example");
                let common = common.lines();
                let common =
                    common.filter(|l| l.starts_with("secret-file") || l.starts_with("seed"));
                let own = self.page.blocks("Scale out", "toml");
                let own = own.iter().flat_map(|block| block.lines());
                let config: Vec<&str> = own.chain(common).collect();
                let file = self.file(&format!("{name}.toml"));
                let any = cluster
                    .nodes
                    .keys()
                    .next()
                    .cloned()
                    .expect("a member lives");
                std::fs::write(&file, self.fill_in(cluster, &any, &config.join("\n")))
                    .expect("a file in our own directory");
                cluster.join_by_file(name, &file);
                (0, String::new())
            }
            ["ssh", name, "systemctl", "restart", "doyen"] => {
                let left = cluster.leave(name);
                let flags: Vec<&str> = self
                    .flags
                    .get(name)
                    .into_iter()
                    .flatten()
                    .map(String::as_str)
                    .collect();
                cluster.join_with(name, &flags);
                (left.code().unwrap_or(1), String::new())
            }
            ["ssh", name, "chronyc", "makestep"] => {
                cluster
                    .nodes
                    .get_mut(name)
                    .expect("a member of this name")
                    .set_clock_back();
                (0, "200 OK\n".into())
            }
            ["scp", ref files @ .., to] => {
                assert!(to.ends_with(":/etc/doyen/"), "{line}");
                for file in files {
                    let copied = copy(&self.file(file), &cluster.file(file));
                    copied.unwrap_or_else(|e| panic!("{file} cannot be copied: {e}"));
                }
                (0, String::new())
            }
            // The nodes of the tests are on loopback, so they talk in the clear.
            ["curl", "-s", "--cacert", _, "--oauth2-bearer", token, url] => {
                let (address, path) = url
                    .trim_start_matches("https://")
                    .split_once('/')
                    .expect("an address and a path");
                let address = address.parse().expect("an address");
                match http(address, &format!("/{path}"), Some(token)) {
                    Ok(text) => (0, text),
                    Err(e) => (22, format!("{e}\n")),
                }
            }
            _ => (127, format!("the tests know no `{line}`\n")),
        }
    }
}

/// Copies a file. Its time of change is now, as after any copy.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let bytes = std::fs::read(from)?;
    File::create(to)?.write_all(&bytes)
}

/// The metrics of a member, by name and labels.
///
/// # Panics
/// The member does not answer.
#[must_use]
pub fn metrics(cluster: &Cluster, node: &str) -> BTreeMap<String, f64> {
    let text = cluster
        .node(node)
        .http("/metrics")
        .expect("a member answers");
    let value = |line: &str| {
        line.rsplit_once(' ')
            .and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(value)
        .collect()
}
