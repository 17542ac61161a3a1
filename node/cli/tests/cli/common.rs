//! A node of the real binary.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A node on ports that the system chose. It ends with the test.
pub(crate) struct Node {
    process: Child,
    ready: String,
}

impl Node {
    /// Starts the command, and waits until the node is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut ready = String::new();
        BufReader::new(process.stdout.take().expect("piped"))
            .read_line(&mut ready)
            .expect("a line");
        Self { process, ready }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let kill = Command::new("kill").arg(self.id().to_string()).status();
        assert!(kill.expect("kill is there").success());
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        self.terminate();
        assert!(self.process.wait().expect("it ends").success());
    }

    /// An address of its first line of output.
    pub(crate) fn address(&self, of: &str) -> &str {
        self.ready
            .split_whitespace()
            .find_map(|w| w.strip_prefix(of)?.strip_prefix('='))
            .expect("it is in the line")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a node on ports of loopback that the system chooses.
pub(crate) fn node(more: &[&str]) -> Node {
    let mut command = doyen(&["run", "--log", "error", "--exit-with-stdin"]);
    for port in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
        command.args([port, "127.0.0.1:0"]);
    }
    Node::start(command.args(more))
}

/// Starts a node, and waits until its keys have owners. Its ports are open before that.
pub(crate) fn serving(more: &[&str]) -> Node {
    let node = node(more);
    let mut client = TcpStream::connect(node.address("resp")).expect("its port is open");
    let mut replies = BufReader::new(client.try_clone().expect("a socket"));
    loop {
        client.write_all(b"GET probe\r\n").expect("it listens");
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("it answers");
        if !reply.starts_with("-CLUSTERDOWN") {
            assert_eq!(reply, "$-1\r\n");
            return node;
        }
    }
}

/// The command, without what variables of this process say.
pub(crate) fn doyen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    for (variable, _) in
        std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_"))
    {
        command.env_remove(variable);
    }
    command.args(args).stdin(Stdio::null());
    command
}
