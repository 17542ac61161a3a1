//! A node of the real binary.

use std::io::{BufRead, BufReader};
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
