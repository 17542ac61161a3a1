//! Several real processes with one secret: starts them, waits until all is safe, and hurts them.

use crate::process::{PATIENCE, Process, Refused};
use crate::resp::{Client, Reply};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How many clusters run at the same time: the machine has few cores, and starved processes look
/// dead to each other.
const CLUSTERS_MAX: usize = 2;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The right to run a cluster.
#[derive(Debug)]
struct Permit;

impl Permit {
    fn take() -> Self {
        let mut running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= CLUSTERS_MAX {
            running = RUNNING
                .1
                .wait(running)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        Self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RUNNING.1.notify_one();
    }
}

/// A cluster of real processes. All of them are killed when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    binary: PathBuf,
    /// The nodes by name. They stand before `_permit`, so processes end before another cluster may
    /// start.
    pub nodes: BTreeMap<String, Process>,
    dir: TempDir,
    starts: u32,
    /// Flags of every node.
    pub options: Vec<String>,
    /// Nodes have directories, by their names: what is started again has what the one before had.
    pub directories: bool,
    /// Nodes that are started from now on end at this point of a move (`doyen_engine::fault`).
    pub dies_at: Option<String>,
    _permit: Permit,
}

/// Writes a file that only its owner may read, because nodes warn of other files.
pub fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file in our own directory");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
}

impl Cluster {
    /// A cluster without nodes. `binary` is `env!("CARGO_BIN_EXE_doyen-under-test")`.
    #[must_use]
    pub fn new(binary: &str) -> Self {
        let permit = Permit::take();
        let dir = TempDir::new().expect("a directory for logs");
        // Without a prefix, so that programs of version 14 can read it as well.
        let secret: [u8; 32] = rand::random();
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        write_secret(&dir.path().join("secret"), &format!("{hex}\n"));
        write_secret(&dir.path().join("http-token"), &format!("token-{hex}\n"));
        let options = ["--partitions", "64"].map(str::to_owned).to_vec();
        Self {
            binary: binary.into(),
            nodes: BTreeMap::new(),
            dir,
            starts: 0,
            options,
            directories: false,
            dies_at: None,
            _permit: permit,
        }
    }

    /// A safe cluster of `n0`, `n1`, ...: the first forms it, the others join.
    #[must_use]
    pub fn of(binary: &str, members: usize) -> Self {
        let mut cluster = Self::new(binary);
        for i in 0..members {
            cluster.join(&format!("n{i}"));
        }
        cluster.await_safe(members);
        cluster
    }

    /// Nodes that are started from now on run this program.
    pub fn runs(&mut self, binary: PathBuf) {
        self.binary = binary;
    }

    /// The file with the secret.
    #[must_use]
    pub fn secret_file(&self) -> PathBuf {
        self.dir.path().join("secret")
    }

    /// A file in the cluster's directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a node with these seeds. The system chooses its ports.
    ///
    /// # Errors
    /// It ended before it was ready.
    pub fn try_start(
        &mut self,
        name: &str,
        seeds: &[SocketAddr],
        more: &[&str],
    ) -> Result<(), Refused> {
        let arguments = self.arguments(name, seeds, more);
        self.start(name, &arguments)
    }

    fn start(&mut self, name: &str, arguments: &[String]) -> Result<(), Refused> {
        self.starts += 1;
        let log = self.dir.path().join(format!("{name}-{}.log", self.starts));
        let process = Process::start(&self.binary, arguments, self.dies_at.as_deref(), log)?;
        self.nodes.insert(name.to_owned(), process);
        Ok(())
    }

    fn arguments(&self, name: &str, seeds: &[SocketAddr], more: &[&str]) -> Vec<String> {
        let has = |flag: &str| more.contains(&flag) || self.options.iter().any(|o| o == flag);
        let mut arguments: Vec<String> = ["run", "--name", name, "--exit-with-stdin"]
            .map(str::to_owned)
            .to_vec();
        for flag in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
            if !has(flag) {
                arguments.extend([flag.to_owned(), "127.0.0.1:0".to_owned()]);
            }
        }
        if !has("--secret-file") && !has("--tls-ca") {
            arguments.extend([
                "--secret-file".to_owned(),
                self.secret_file().display().to_string(),
            ]);
        } else if !["--secret-file", "--http-token-file", "--http-tls"]
            .iter()
            .any(|f| has(f))
        {
            // Certificates yield no token. (A node whose HTTP speaks TLS is not asked from here.)
            arguments.extend([
                "--http-token-file".to_owned(),
                self.file("http-token").display().to_string(),
            ]);
        }
        for seed in seeds {
            arguments.extend(["--seed".to_owned(), seed.to_string()]);
        }
        if self.directories && !has("--dir") {
            arguments.extend([
                "--dir".to_owned(),
                self.directory(name).display().to_string(),
            ]);
        }
        // A preset says how many partitions there are.
        if !has("--preset") {
            arguments.extend(self.options.iter().cloned());
        }
        arguments.extend(more.iter().map(ToString::to_string));
        arguments
    }

    /// The directory of a node, if nodes have directories.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.dir"))
    }

    /// Starts a node. All living nodes are its seeds.
    pub fn join(&mut self, name: &str) {
        self.join_with(name, &[]);
    }

    /// Starts a node with flags of its own. All living nodes are its seeds.
    pub fn join_with(&mut self, name: &str, more: &[&str]) {
        if let Err(refused) = self.try_join(name, more) {
            panic!("{name} does not start: {refused:?}");
        }
    }

    /// Starts a node with flags of its own. All living nodes are its seeds.
    ///
    /// # Errors
    /// It ended before it was ready.
    pub fn try_join(&mut self, name: &str, more: &[&str]) -> Result<(), Refused> {
        let seeds: Vec<SocketAddr> = self.nodes.values().map(|p| p.ready.listen).collect();
        self.try_start(name, &seeds, more)
    }

    /// Starts a node whose options stand in a file, except for its ports.
    pub fn join_by_file(&mut self, name: &str, file: &Path) {
        let mut arguments = ["run", "--exit-with-stdin", "--config"]
            .map(str::to_owned)
            .to_vec();
        arguments.push(file.display().to_string());
        for flag in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
            arguments.extend([flag.to_owned(), "127.0.0.1:0".to_owned()]);
        }
        if let Err(refused) = self.start(name, &arguments) {
            panic!("{name} does not start: {refused:?}");
        }
        let secret = self.secret_file();
        if let Some(process) = self.nodes.get_mut(name) {
            process.ask_with_secret(secret);
        }
    }

    /// Starts nodes at the same time. Each has all others as seeds. Their control ports were free a
    /// moment ago.
    pub fn start_together(&mut self, names: &[&str]) {
        self.start_with_seeds(names, names.len());
    }

    /// As `start_together`, but the first few nodes alone are the seeds of all.
    pub fn start_with_seeds(&mut self, names: &[&str], seeds: usize) {
        'again: for _ in 0..5 {
            let ports = free_ports(names.len());
            let seeds = &ports[..seeds.min(ports.len())];
            let mut handles = Vec::new();
            for (name, address) in names.iter().zip(&ports) {
                self.starts += 1;
                let log = self.dir.path().join(format!("{name}-{}.log", self.starts));
                let arguments = self.arguments(name, seeds, &["--listen", &address.to_string()]);
                let (binary, dies_at) = (self.binary.clone(), self.dies_at.clone());
                let start = move || Process::start(&binary, &arguments, dies_at.as_deref(), log);
                handles.push(((*name).to_owned(), std::thread::spawn(start)));
            }
            for (name, handle) in handles {
                match handle.join().expect("starting a process does not panic") {
                    Ok(process) => {
                        self.nodes.insert(name, process);
                    }
                    // Another process took a port meanwhile: start all nodes again.
                    Err(refused) if refused.stderr.contains("in use") => {
                        self.nodes.retain(|n, _| !names.contains(&n.as_str()));
                        continue 'again;
                    }
                    Err(refused) => panic!("{name} does not start: {refused:?}"),
                }
            }
            return;
        }
        panic!("no free ports");
    }

    /// Runs the program with other arguments, to its end.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> std::process::Output {
        std::process::Command::new(&self.binary)
            .args(arguments)
            .output()
            .expect("the program starts")
    }

    /// Runs the program against a node's HTTP address, to its end, with the cluster's secret.
    /// Returns whether it succeeded, and what it printed.
    #[must_use]
    pub fn asks(&self, node: &str, words: &[&str]) -> (bool, String) {
        let http = self.node(node).ready.http.to_string();
        let secret = self.secret_file().display().to_string();
        let output = self.command(&[words, &["--http", &http, "--secret-file", &secret]].concat());
        // What is wrong can be a report: `status` of a node without a cluster.
        let said = if output.status.success() {
            output.stdout
        } else {
            [output.stdout, output.stderr].concat()
        };
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// As `asks`, for a command that changes something and must succeed. Returns what it printed.
    ///
    /// # Panics
    /// The command failed.
    pub fn change(&self, node: &str, words: &[&str]) -> String {
        let (done, said) = self.asks(node, words);
        assert!(done, "{words:?}: {said}");
        said
    }

    /// Runs `doyen keyspace ...` in the same way.
    #[must_use]
    pub fn keyspace(&self, node: &str, words: &[&str]) -> (bool, String) {
        self.asks(node, &[&["keyspace"], words].concat())
    }

    /// A node.
    #[must_use]
    pub fn node(&self, name: &str) -> &Process {
        &self.nodes[name]
    }

    /// What a node answers over HTTP; `Null` if it does not answer.
    #[must_use]
    pub fn report(&self, node: &str, path: &str) -> Value {
        self.nodes
            .get(node)
            .and_then(|n| serde_json::from_str(&n.http(path).ok()?).ok())
            .unwrap_or_default()
    }

    /// Copies that a member holds, in all keyspaces, as this node knows it.
    #[must_use]
    pub fn held(&self, node: &str, name: &str) -> usize {
        let table = self.report(node, "/table");
        let keyspaces = table["keyspaces"].as_array().into_iter().flatten();
        let partitions = keyspaces
            .filter_map(|k| k["partitions"].as_array())
            .flatten();
        let holds = |p: &&Value| {
            p["primary"] == name
                || p["backups"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|b| b == name))
        };
        partitions.filter(holds).count()
    }

    /// The status of the cluster, as a node reports it.
    #[must_use]
    pub fn status(&self, name: &str) -> Option<Value> {
        serde_json::from_str(&self.nodes.get(name)?.http("/status").ok()?).ok()
    }

    /// Waits until something is true. The patience is long, so this does not measure speed.
    pub fn eventually(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            if Instant::now() > deadline {
                let logs: Vec<String> = self
                    .nodes
                    .iter()
                    .map(|(n, p)| format!("== {n}\n{}", last_lines(&p.log(), 30)))
                    .collect();
                let statuses: Vec<String> = self
                    .nodes
                    .keys()
                    .map(|n| format!("{n}: {:?}", self.status(n)))
                    .collect();
                panic!(
                    "never happened: {what}\n{}\n{}",
                    statuses.join("\n"),
                    logs.join("\n")
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until every node says that the cluster has this many live members and is safe.
    pub fn await_safe(&self, members: usize) {
        self.eventually(&format!("{members} members and safe"), |c| {
            c.nodes.keys().all(|name| {
                c.status(name).is_some_and(|s| {
                    let live = s["members"]
                        .as_array()
                        .map_or(0, |m| m.iter().filter(|m| m["state"] == "live").count());
                    let all = s["members"].as_array().map_or(0, Vec::len);
                    s["safe"] == true && live == members && all == members
                })
            })
        });
    }

    /// The coordinator's name, once all nodes agree on a living one.
    #[must_use]
    pub fn coordinator(&self) -> String {
        let mut found = String::new();
        self.eventually("a coordinator", |c| {
            let names: Vec<Option<String>> = c
                .nodes
                .keys()
                .map(|n| {
                    c.status(n)
                        .and_then(|s| s["coordinator"].as_str().map(str::to_owned))
                })
                .collect();
            let first = names.first().cloned().flatten();
            let agreed = first.as_ref().is_some_and(|f| c.nodes.contains_key(f))
                && names.iter().all(|n| *n == first);
            if agreed {
                found = first.unwrap_or_default();
            }
            agreed
        });
        found
    }

    /// Names from oldest to youngest.
    #[must_use]
    pub fn by_age(&self) -> Vec<String> {
        let any = self
            .nodes
            .keys()
            .find_map(|n| self.status(n))
            .expect("a node answers");
        let members = any["members"].as_array().cloned().unwrap_or_default();
        members
            .iter()
            .filter_map(|m| m["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// SIGKILL.
    pub fn kill(&mut self, name: &str) {
        self.nodes.remove(name).expect("a node of this name").kill();
    }

    /// SIGTERM, and waits for the end.
    pub fn leave(&mut self, name: &str) -> std::process::ExitStatus {
        let mut process = self.nodes.remove(name).expect("a node of this name");
        process.terminate();
        process.wait()
    }

    /// A client of a node.
    #[must_use]
    pub fn client(&self, name: &str) -> Client {
        Client::connect(self.nodes[name].ready.resp, PATIENCE).expect("a node takes clients")
    }

    /// One command through a node.
    #[must_use]
    pub fn command_at(&self, name: &str, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
        self.client(name).command(&words).expect("a reply")
    }

    /// Where clients reach each node.
    #[must_use]
    pub fn resp_addresses(&self) -> Vec<SocketAddr> {
        self.nodes.values().map(|p| p.ready.resp).collect()
    }

    /// Where clients reach each node but this one.
    #[must_use]
    pub fn resp_addresses_without(&self, name: &str) -> Vec<SocketAddr> {
        let others = self.nodes.iter().filter(|(node, _)| **node != name);
        others.map(|(_, node)| node.ready.resp).collect()
    }

    /// The ports for clients that find the node of a key by themselves.
    #[must_use]
    pub fn resp_cluster_addresses(&self) -> Vec<SocketAddr> {
        self.nodes.values().map(|p| p.ready.resp_cluster).collect()
    }
}

/// Control ports that were free a moment ago.
#[must_use]
pub fn free_ports(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<UdpSocket> = (0..count)
        .filter_map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok())
        .collect();
    sockets.iter().filter_map(|s| s.local_addr().ok()).collect()
}

/// The last lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
