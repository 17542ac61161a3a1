//! The nodes of the demo: child processes of this same binary. They end with the demo, however it
//! ends.

use crate::stay::{Interrupts, stay};
use crate::{CommandFailed, say};
use doyen::http::client::Client;
use doyen::testkit::{Household, node_name};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a process may take to open its ports.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// Starts nodes with a common secret.
#[derive(Debug)]
pub(super) struct Nursery {
    household: Household,
    born: usize,
    members_min: u8,
}

/// The process of a node. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct DemoProcess {
    pub(super) name: String,
    pub(super) control: SocketAddr,
    pub(super) resp: SocketAddr,
    /// Asks its HTTP.
    pub(super) http: Client,
    process: doyen::testkit::Process,
}

/// The nodes that live at the end, with their secret.
#[derive(Debug)]
pub(super) struct DemoNodes {
    household: Household,
    processes: Vec<DemoProcess>,
}

impl DemoNodes {
    pub(super) fn new(nursery: Nursery, processes: Vec<DemoProcess>) -> Self {
        let household = nursery.household;
        Self {
            household,
            processes,
        }
    }

    /// Keeps them until Ctrl-C, and says where they are.
    pub(super) async fn keep(self) -> Result<(), CommandFailed> {
        let interrupts = Interrupts::new()?;
        let token = self.household.operator_token()?;
        let secret = self.household.secret_file().display().to_string();
        say(format_args!(
            "{}",
            addresses(&self.processes, &token, &secret)
        ));
        let nodes = self.processes.into_iter();
        let nodes = nodes.map(|node| (node.name, node.process)).collect();
        // The directory with the secret goes last.
        let kept = stay(nodes, interrupts, |_| String::new()).await;
        drop(self.household);
        kept
    }
}

/// Where a person finds the cluster.
fn addresses(nodes: &[DemoProcess], token: &str, secret: &str) -> String {
    let mut text = String::from("\nThe cluster stays until Ctrl-C.\n\n");
    // Writing to a string cannot fail.
    for node in nodes {
        let (name, http) = (&node.name, node.http.address());
        let port = node.resp.port();
        let _ = writeln!(
            text,
            "{name:<8} redis-cli -p {port:<6} console http://{http}"
        );
    }
    if let Some(first) = nodes.first() {
        let http = first.http.address();
        let _ = write!(
            text,
            "\nThe console takes this token of an operator: {token}\n\
             doyen top --http {http} --secret-file {secret}\n"
        );
    }
    text
}

impl Nursery {
    pub(super) fn new(members_min: u8) -> Result<Self, CommandFailed> {
        Ok(Self {
            household: Household::new()?,
            born: 0,
            members_min,
        })
    }

    /// Starts a node with these seeds, and waits until its ports are open.
    pub(super) async fn start(
        &mut self,
        seeds: &[SocketAddr],
    ) -> Result<DemoProcess, CommandFailed> {
        let name = node_name(self.born);
        self.born += 1;
        let binary = std::env::current_exe()
            .map_err(|e| CommandFailed::new(format!("cannot start node {name}: {e}")))?;
        let mut command = self.household.node(&binary, &name);
        command.args(["--log", "info"]);
        for port in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
            command.args([port, "127.0.0.1:0"]);
        }
        command.args(["--members-min", &self.members_min.to_string()]);
        for seed in seeds {
            command.args(["--seed", &seed.to_string()]);
        }
        let log = self.household.file(&format!("{name}.log"));
        let process = doyen::testkit::Process::start(&name, command, &log, OPEN_MAX).await?;
        let ready = process.ready();
        let (control, resp, http) = (
            ready.address("listen"),
            ready.address("resp"),
            ready.address("http"),
        );
        match (control, resp, http) {
            (Some(control), Some(resp), Some(http)) => Ok(DemoProcess {
                name,
                control,
                resp,
                http: Client::new(http.to_string(), self.household.operator_token()?),
                process,
            }),
            _ => Err(CommandFailed::new(format!(
                "node {name} did not print its ports"
            ))),
        }
    }
}

impl DemoProcess {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Fails if the process has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), CommandFailed> {
        match self.process.status() {
            None => Ok(()),
            // The last line of the node's log tells why.
            Some(_) => Err(CommandFailed::new(format!(
                "node {} ended unexpectedly: {}",
                self.name,
                self.process.last_words()
            ))),
        }
    }
}
