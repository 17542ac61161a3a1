//! The demo's nodes: child processes of this very binary, which end when the demo does, however
//! that ends.

use crate::Failed;
use doyen::testkit::{Household, node_name};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a process may take to open its ports.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// Starts nodes that share a secret of their own.
#[derive(Debug)]
pub(super) struct Nursery {
    household: Household,
    born: usize,
    members_min: u8,
}

/// A node's process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) control: SocketAddr,
    pub(super) resp: SocketAddr,
    pub(super) http: SocketAddr,
    process: doyen::testkit::Process,
}

impl Nursery {
    pub(super) fn new(members_min: u8) -> Result<Self, Failed> {
        Ok(Self {
            household: Household::new()?,
            born: 0,
            members_min,
        })
    }

    /// Starts a node that finds the others through these, and waits until its ports are open.
    pub(super) async fn start(&mut self, seeds: &[SocketAddr]) -> Result<Process, Failed> {
        let name = node_name(self.born);
        self.born += 1;
        let binary = std::env::current_exe()
            .map_err(|e| Failed::new(format!("cannot start node {name}: {e}")))?;
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
            (Some(control), Some(resp), Some(http)) => Ok(Process {
                name,
                control,
                resp,
                http,
                process,
            }),
            _ => Err(Failed::new(format!("node {name} did not say its ports"))),
        }
    }
}

impl Process {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Whether it ended although nobody killed it.
    pub(super) fn check(&mut self) -> Result<(), Failed> {
        match self.process.status() {
            None => Ok(()),
            // With the last thing that the node itself said.
            Some(_) => Err(Failed::new(format!(
                "node {} ended unexpectedly: {}",
                self.name,
                self.process.last_words()
            ))),
        }
    }
}
