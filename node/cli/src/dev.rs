//! `doyen dev`: a cluster on this machine that stays until Ctrl-C, with ports that are always the
//! same, to write programs against and to look at.

use crate::{CommandFailed, runtime, say};
use doyen::testkit::Process;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long a process may take to open its ports.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// How long the nodes may take to hand over and to end.
const END_MAX: Duration = Duration::from_secs(20);
/// The interval at which the nodes are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Starts a cluster on this machine that stays until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The nodes are n1, n2 and so on. They take no secret, so they answer this machine \
                  alone. Their data is gone when they end. The first one has the ports of `doyen \
                  run`; each further one has 10 more for other nodes, and 1000 more for clients."
)]
pub(super) struct Dev {
    /// Nodes, 1 to 8
    #[arg(
        long,
        default_value_t = 3,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=8)
    )]
    nodes: u8,
    /// Memory for the data of each node
    #[arg(long, default_value = "256mb", value_name = "SIZE")]
    memory_max: String,
    /// Added to every port, so that a second cluster has its own
    #[arg(
        long,
        default_value_t = 0,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(0..=40000)
    )]
    offset: u16,
}

/// The ports of a node, in the order of its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DevPorts {
    listen: u16,
    data: u16,
    resp: u16,
    resp_cluster: u16,
    http: u16,
}

impl DevPorts {
    /// Of the node that is started as this one, from 0 on.
    const fn of(node: u16, offset: u16) -> Self {
        let (nodes, clients) = (offset + 10 * node, offset + 1000 * node);
        Self {
            listen: 7400 + nodes,
            data: 7401 + nodes,
            resp: 7379 + clients,
            resp_cluster: 7380 + clients,
            http: 7480 + clients,
        }
    }

    const fn all(self) -> [(&'static str, u16); 5] {
        [
            ("--listen", self.listen),
            ("--data", self.data),
            ("--resp", self.resp),
            ("--resp-cluster", self.resp_cluster),
            ("--http", self.http),
        ]
    }
}

impl Dev {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        runtime()?.block_on(self.run())
    }

    async fn run(self) -> Result<ExitCode, CommandFailed> {
        let cannot = |e: std::io::Error| CommandFailed::new(format!("cannot start: {e}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let logs = tempfile::tempdir().map_err(cannot)?;
        let mut nodes = Vec::new();
        for node in 0..u16::from(self.nodes) {
            let name = format!("n{}", node + 1);
            let log = logs.path().join(format!("{name}.log"));
            let command = self.command(node, &name)?;
            let started = Process::start(&name, command, &log, OPEN_MAX).await;
            let process = started.map_err(|e| {
                let ports = DevPorts::of(node, self.offset)
                    .all()
                    .map(|(_, port)| port.to_string());
                let ports = ports.join(", ");
                CommandFailed::new(format!(
                    "{e}. It needs the ports {ports}: stop what has one of them"
                ))
            })?;
            nodes.push((name, process));
        }
        say(format_args!("{}", greeting(self.nodes, self.offset)));
        loop {
            tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                () = tokio::time::sleep(LOOK) => tell_ended(&mut nodes),
            }
            if nodes.is_empty() {
                return Err(CommandFailed::new("every node has ended"));
            }
        }
        say(format_args!("stopping\n"));
        for (_, process) in &mut nodes {
            process.terminate();
        }
        let all = async {
            for (_, process) in &mut nodes {
                // One that does not end is killed with this command.
                let _ = process.ended().await;
            }
        };
        let _ = tokio::time::timeout(END_MAX, all).await;
        Ok(ExitCode::SUCCESS)
    }

    fn command(&self, node: u16, name: &str) -> Result<Command, CommandFailed> {
        let binary = std::env::current_exe()
            .map_err(|e| CommandFailed::new(format!("cannot start node {name}: {e}")))?;
        let mut command = Command::new(binary);
        // Variables of the operator's own nodes are not meant for these.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DOYEN_") {
                command.env_remove(name);
            }
        }
        // The node ends with this command, however that ends.
        command.args(["run", "--exit-with-stdin", "--name", name]);
        // Nothing outlives the cluster, so no node waits for long to hand over.
        command.args(["--memory-max", &self.memory_max, "--leave-timeout", "2s"]);
        for (flag, port) in DevPorts::of(node, self.offset).all() {
            command.args([flag, &format!("127.0.0.1:{port}")]);
        }
        for seed in 0..u16::from(self.nodes) {
            let listen = DevPorts::of(seed, self.offset).listen;
            command.args(["--seed", &format!("127.0.0.1:{listen}")]);
        }
        Ok(command)
    }
}

/// Says which nodes have ended by themselves, and why, and forgets them.
fn tell_ended(nodes: &mut Vec<(String, Process)>) {
    nodes.retain_mut(|(name, process)| {
        let Some(status) = process.status() else {
            return true;
        };
        // Of a node that ended by itself, the last line of its log says why.
        match status.code() {
            Some(_) => say(format_args!("{name} has ended: {}\n", process.last_words())),
            None => say(format_args!("{name} has ended: {status}\n")),
        }
        false
    });
}

/// What a person sees once the cluster is there.
fn greeting(nodes: u8, offset: u16) -> String {
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let mut text = String::from("node  Redis clients    console and HTTP\n");
    for node in 0..u16::from(nodes) {
        let ports = DevPorts::of(node, offset);
        let name = format!("n{}", node + 1);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:<5} {:<16} http://{}",
            at(ports.resp).to_string(),
            at(ports.http)
        );
    }
    let first = DevPorts::of(0, offset);
    let _ = write!(
        text,
        "\nredis-cli -p {} set greeting hello\ndoyen status{}\n\n\
         Ctrl-C stops the cluster. Its data is gone then.\n",
        first.resp,
        if offset == 0 {
            String::new()
        } else {
            format!(" --http {}", at(first.http))
        },
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_ports_are_the_same_and_the_first_node_has_the_usual_ones() {
        let ports = (0..8).flat_map(|node| DevPorts::of(node, 0).all());
        let ports: BTreeSet<u16> = ports.map(|(_, port)| port).collect();
        assert_eq!(ports.len(), 40);
        assert_eq!(DevPorts::of(0, 0).http, 7480);
    }

    #[test]
    fn the_greeting_names_every_node_and_its_console() {
        let text = greeting(2, 0);
        assert!(
            text.contains("n1    127.0.0.1:7379   http://127.0.0.1:7480\n"),
            "{text}"
        );
        assert!(text.contains("\ndoyen status\n"), "{text}");
        let other = greeting(1, 30_000);
        assert!(
            other.contains("doyen status --http 127.0.0.1:37480\n"),
            "{other}"
        );
        assert!(
            text.contains("n2    127.0.0.1:8379   http://127.0.0.1:8480\n"),
            "{text}"
        );
    }
}
