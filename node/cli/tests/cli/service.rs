//! What a node sends to systemd, if its unit has `Type=notify`.

use crate::common::Node;
use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

/// Long enough for a busy machine. No test waits for it that passes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What systemd would be: a socket, and what came through it.
struct ServiceManager {
    socket: UnixDatagram,
    _directory: tempfile::TempDir,
    path: String,
}

impl ServiceManager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout that is not 0");
        let path = path.display().to_string();
        Self {
            socket,
            _directory: directory,
            path,
        }
    }

    /// The assignments of the next message.
    fn hears(&self) -> BTreeSet<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a message in time");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// The first message with an assignment that begins like this, and those before it.
    fn hears_of(&self, what: &str) -> (BTreeSet<String>, Vec<BTreeSet<String>>) {
        let until = Instant::now() + PATIENCE;
        let mut before = Vec::new();
        while Instant::now() < until {
            let message = self.hears();
            if message.iter().any(|line| line.starts_with(what)) {
                return (message, before);
            }
            before.push(message);
        }
        panic!("no {what}: {before:?}");
    }
}

fn run(systemd: &ServiceManager, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    command.args(["run", "--log", "error", "--name", name]);
    for port in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
        command.args([port, "127.0.0.1:0"]);
    }
    command.args(more).env("NOTIFY_SOCKET", &systemd.path);
    command
}

#[test]
fn systemd_hears_that_a_node_serves_its_role_and_that_it_leaves() {
    let systemd = ServiceManager::new();
    let node = Node::start(&mut run(&systemd, "n1", &["--leave-timeout", "90s"]));
    let (ready, before) = systemd.hears_of("READY=1");
    assert!(
        ready.contains("STATUS=n1 is the coordinator; 1 member"),
        "{ready:?}"
    );
    let early = before.iter().flatten().any(|line| line == "STOPPING=1");
    assert!(!early, "{before:?}");

    // A second member: the role that systemd shows follows.
    let other = ServiceManager::new();
    let seed = node.address("listen").to_owned();
    let second = Node::start(&mut run(&other, "n2", &["--seed", &seed]));
    let (ready, _) = other.hears_of("READY=1");
    assert!(
        ready.contains("STATUS=n2 is a data member beside n1; 2 members"),
        "{ready:?}"
    );
    systemd.hears_of("STATUS=n1 is the coordinator; 2 members");

    second.stop();
    other.hears_of("STOPPING=1");
    systemd.hears_of("STATUS=n1 is the coordinator; 1 member");

    node.terminate();
    let (leaves, _) = systemd.hears_of("STOPPING=1");
    // Longer than the unit's TimeoutStopSec: --leave-timeout and what a departure takes beside it.
    assert!(
        leaves.contains("EXTEND_TIMEOUT_USEC=100000000"),
        "{leaves:?}"
    );
}

/// `systemctl start` waits for as long, and `systemctl status` says why.
#[test]
fn systemd_hears_what_a_node_waits_for() {
    let systemd = ServiceManager::new();
    // Nothing answers there: the socket is ours, and silent.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let seed = silent.local_addr().expect("an address").to_string();
    let _node = Node::start(&mut run(&systemd, "n1", &["--seed", &seed]));
    let first = systemd.hears();
    let status = first.iter().find(|line| line.starts_with("STATUS=waits: "));
    assert!(status.is_some() && !first.contains("READY=1"), "{first:?}");
}
