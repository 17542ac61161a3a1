//! `doyen dev`: a cluster on this machine that stays until Ctrl-C, with ports that are always the
//! same, to write programs against and to look at.

use crate::stay::{Interrupts, cannot_start, stay};
use crate::{CommandFailed, runtime, say};
use doyen::testkit::{NotStarted, Process};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How long a process may take to open its ports.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// How long a node on this machine may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Nodes that have ports.
const NODES_MAX: i64 = 8;

/// Starts a cluster on this machine that stays until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The nodes are n1, n2 and so on. They take no secret, so they answer this machine \
                  alone. Their data is gone when they end. The first one has the ports of `doyen \
                  run`; each further one has 10 more for other nodes, and 1000 more for clients. \
                  `kill -9` a node to see what happens; `doyen dev --join 2` starts n2 again."
)]
pub(super) struct Dev {
    /// Nodes, 1 to 8
    #[arg(
        long,
        default_value_t = 3,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=NODES_MAX)
    )]
    nodes: u8,
    /// Start node nN alone: a further one, or one that has ended. The others run already, by this
    /// command in another terminal
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=NODES_MAX)
    )]
    join: Option<u8>,
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
    /// Of the node with this number, from 1 on.
    fn of(number: u8, offset: u16) -> Self {
        let further = u16::from(number.saturating_sub(1));
        let (nodes, clients) = (offset + 10 * further, offset + 1000 * further);
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
        let interrupts = Interrupts::new()?;
        let logs = tempfile::tempdir().map_err(cannot_start)?;
        let numbers = self.join.map_or(1..=self.nodes, |n| n..=n);
        if let Some(number) = self.join
            && self.running(Some(number)).is_empty()
        {
            let cluster = self.cluster();
            return Err(CommandFailed::new(format!(
                "no other node runs that n{number} could join: start the cluster first, with \
                 `{cluster}` in another terminal"
            )));
        }
        let mut nodes = Vec::new();
        for number in numbers {
            nodes.push(self.start(number, logs.path()).await?);
        }
        let table = table(&nodes, self.offset);
        say(format_args!("{table}\n{}", self.next_steps()));
        let again = |name: &str| {
            let number = name.trim_start_matches('n');
            format!("To start it again: {}\n", self.joining(number))
        };
        stay(nodes, interrupts, again).await?;
        // Its own nodes have ended.
        let left = self.running(None);
        if self.join.is_none() && !left.is_empty() {
            say(format_args!(
                "{} joined by `doyen dev --join`, and did not end: press Ctrl-C there\n",
                left.join(", ")
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The nodes at the ports of this cluster that run, without this one.
    fn running(&self, but: Option<u8>) -> Vec<String> {
        let is_open = |number: &u8| {
            let address = local(DevPorts::of(*number, self.offset).resp);
            TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok()
        };
        let all = (1..=8).filter(|number| but != Some(*number));
        all.filter(is_open)
            .map(|number| format!("n{number}"))
            .collect()
    }

    /// The command that starts the whole cluster.
    fn cluster(&self) -> String {
        self.with_flags("doyen dev".to_owned())
    }

    async fn start(&self, number: u8, logs: &Path) -> Result<(String, Process), CommandFailed> {
        let (name, ports) = (format!("n{number}"), DevPorts::of(number, self.offset));
        let log = logs.join(format!("{name}.log"));
        let command = self.command(number, &name)?;
        let started = Process::start(&name, command, &log, OPEN_MAX).await;
        let process = started.map_err(|e| CommandFailed::new(not_started(&e, ports)))?;
        Ok((name, process))
    }

    /// The command that starts this node of the cluster alone.
    fn joining(&self, number: impl std::fmt::Display) -> String {
        self.with_flags(format!("doyen dev --join {number}"))
    }

    fn with_flags(&self, mut text: String) -> String {
        // Writing to a string cannot fail.
        if self.nodes != 3 {
            let _ = write!(text, " --nodes {}", self.nodes);
        }
        if self.offset != 0 {
            let _ = write!(text, " --offset {}", self.offset);
        }
        text
    }

    /// What a person can do with the cluster.
    fn next_steps(&self) -> String {
        if self.join.is_some() {
            return "Ctrl-C stops it: it hands its data over first.\n".into();
        }
        let first = DevPorts::of(1, self.offset);
        let http = if self.offset == 0 {
            String::new()
        } else {
            format!(" --http {}", local(first.http))
        };
        let mut text = format!(
            "redis-cli -p {} set greeting hello\ndoyen status{http}\ndoyen top{http}\n",
            first.resp
        );
        if i64::from(self.nodes) < NODES_MAX {
            let joining = self.joining(self.nodes + 1);
            let _ = writeln!(text, "{joining:<33} # in another terminal: one node more");
        }
        text + "\nCtrl-C stops the cluster, without nodes that joined it. Its data is gone then.\n"
    }

    fn command(&self, number: u8, name: &str) -> Result<Command, CommandFailed> {
        let binary = std::env::current_exe()
            .map_err(|e| CommandFailed::new(format!("cannot start node {name}: {e}")))?;
        let mut command = Command::new(binary);
        // Ctrl-C in a terminal reaches a whole group. A second signal would end a node that leaves.
        command.process_group(0);
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
        for (flag, port) in DevPorts::of(number, self.offset).all() {
            command.args([flag, &format!("127.0.0.1:{port}")]);
        }
        for seed in 1..=self.nodes {
            let listen = DevPorts::of(seed, self.offset).listen;
            command.args(["--seed", &format!("127.0.0.1:{listen}")]);
        }
        Ok(command)
    }
}

/// Why a node did not start. If it may be for its ports, the text names them.
fn not_started(e: &NotStarted, ports: DevPorts) -> String {
    if !e.log.contains("in use") {
        return e.to_string();
    }
    let ports = ports.all().map(|(_, port)| port.to_string()).join(", ");
    format!(
        "{e}. It needs the ports {ports}: stop what has one of them, or give --offset N, which is \
         added to every port"
    )
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The nodes with their addresses.
fn table(nodes: &[(String, Process)], offset: u16) -> String {
    let rows = nodes
        .iter()
        .map(|(name, process)| row(name, process.pid(), offset));
    let head = format!(
        "{:<5} {:<8} {:<16} {}\n",
        "node", "pid", "Redis clients", "console and HTTP"
    );
    head + &rows.collect::<String>()
}

fn row(name: &str, pid: u32, offset: u16) -> String {
    let number = name.trim_start_matches('n').parse().unwrap_or(1);
    let ports = DevPorts::of(number, offset);
    let (resp, http) = (local(ports.resp).to_string(), local(ports.http));
    format!("{name:<5} {pid:<8} {resp:<16} http://{http}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_ports_are_the_same_and_the_first_node_has_the_usual_ones() {
        let ports = (1..=8).flat_map(|number| DevPorts::of(number, 0).all());
        let ports: BTreeSet<u16> = ports.map(|(_, port)| port).collect();
        assert_eq!(ports.len(), 40);
        assert_eq!(DevPorts::of(1, 0).http, 7480);
    }

    fn dev(args: &[&str]) -> Dev {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            dev: Dev,
        }
        <Line as clap::Parser>::parse_from([&["dev"], args].concat()).dev
    }

    #[test]
    fn each_node_has_a_row_and_the_next_steps_name_the_first_one() {
        assert_eq!(
            row("n2", 77, 0),
            "n2    77       127.0.0.1:8379   http://127.0.0.1:8480\n"
        );
        let text = dev(&[]).next_steps();
        assert!(text.contains("\ndoyen status\n"), "{text}");
        assert!(text.contains("\ndoyen dev --join 4 "), "{text}");
        let text = dev(&["--offset", "30000", "--nodes", "8"]).next_steps();
        assert!(
            text.contains("doyen status --http 127.0.0.1:37480\n") && !text.contains("--join"),
            "{text}"
        );
        let again = dev(&["--nodes", "2", "--offset", "5"]).joining(1);
        assert_eq!(again, "doyen dev --join 1 --nodes 2 --offset 5");
    }
}
