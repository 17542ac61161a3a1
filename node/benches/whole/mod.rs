//! A whole node in this process, and a client of it that does not allocate.

use doyen::Node;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A node of one member, and a connection to its RESP port.
pub(crate) struct Whole {
    node: Option<Node>,
    runtime: tokio::runtime::Runtime,
    stream: TcpStream,
    /// The buffer for replies.
    input: Vec<u8>,
}

impl Whole {
    /// A node that is ready.
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let node = runtime.block_on(async {
            let builder = Node::builder()
                .name("counted")
                .listen("127.0.0.1:0")
                .resp("127.0.0.1:0");
            let node = builder.start().await.expect("a node starts");
            node.wait_ready(Duration::from_secs(60))
                .await
                .expect("a cluster of itself");
            node
        });
        let stream = TcpStream::connect(node.addresses().resp.expect("it was asked for"))
            .expect("it takes clients");
        stream.set_nodelay(true).expect("a TCP socket");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a time");
        Self {
            node: Some(node),
            runtime,
            stream,
            input: vec![0; 1 << 20],
        }
    }

    /// Sends this, and reads this many bytes of replies.
    pub(crate) fn ask(&mut self, commands: &[u8], replies: usize) {
        self.stream.write_all(commands).expect("it takes commands");
        self.stream
            .read_exact(&mut self.input[..replies])
            .expect("it answers");
        assert_ne!(
            self.input[0],
            b'-',
            "{}",
            String::from_utf8_lossy(&self.input[..replies])
        );
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            self.runtime.block_on(node.shutdown());
        }
    }
}
