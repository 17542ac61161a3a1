//! A node of the real binary.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// On ports of the system's choosing, ended with the test.
pub(crate) struct Node {
    process: Child,
    ready: String,
}

impl Node {
    /// Starts what the command says, and waits until it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut ready = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
        Self { process, ready }
    }

    /// Waits until its keys have owners: ports are open before.
    #[allow(dead_code, reason = "not every test asks for keys")]
    pub(crate) fn serving(self) -> Self {
        let mut client = TcpStream::connect(self.address("resp")).expect("its port is open");
        let mut replies = BufReader::new(client.try_clone().expect("a socket"));
        loop {
            client.write_all(b"GET probe\r\n").expect("it listens");
            let mut reply = String::new();
            replies.read_line(&mut reply).expect("it answers");
            if !reply.starts_with("-CLUSTERDOWN") {
                assert_eq!(reply, "$-1\r\n");
                return self;
            }
        }
    }

    /// An address of its first line.
    pub(crate) fn address(&self, of: &str) -> &str {
        self.ready.split_whitespace().find_map(|w| w.strip_prefix(of)?.strip_prefix('=')).expect("it is in the line")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
