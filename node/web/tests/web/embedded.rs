//! Nodes in the process of a test.

use doyen::Node;
use std::time::Duration;

/// Starts a cluster of two nodes, and waits until both hold everything.
pub(crate) async fn two_nodes() -> [Node; 2] {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    safe(&one, 2).await;
    [one, two]
}

pub(crate) async fn node(name: &str, seeds: &[&Node]) -> Node {
    let seeds = seeds.iter().map(|n| n.addresses().control.to_string());
    let builder = Node::builder()
        .name(name)
        .listen("127.0.0.1:0")
        .seeds(seeds)
        .partitions(64)
        .memory_max(256 << 20);
    builder.start().await.expect("the node starts")
}

/// Waits until the cluster has this many members and all is safe.
pub(crate) async fn safe(node: &Node, members: usize) {
    let looking = async {
        loop {
            if node
                .status()
                .await
                .is_ok_and(|s| s.safe && s.members.len() == members)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(30), looking)
        .await
        .is_err()
    {
        panic!("not safe with {members} members: {:?}", node.status().await);
    }
}
