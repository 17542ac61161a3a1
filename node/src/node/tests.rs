//! A node in this program. One of its data threads ends by itself.

use super::*;
use crate::http::client::Client;

/// How long anything may take: a guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u32 = 64;

async fn serving(threads: u8) -> Node {
    let builder = Node::builder()
        .name("one")
        .listen("127.0.0.1:0")
        .http("127.0.0.1:0")
        .partitions(16)
        .memory_max(256 << 20);
    let node = builder
        .threads(threads)
        .start()
        .await
        .expect("the node starts");
    node.wait_ready(Duration::from_secs(60))
        .await
        .expect("a cluster of one");
    for key in 0..KEYS {
        node.database()
            .set(key.to_string(), "value")
            .await
            .expect("written");
    }
    node
}

/// The answer of `/readyz` or `/healthz` against this node; empty if it is 200.
async fn refuses(node: &Node, path: &str) -> String {
    let http = node.addresses().http.expect("it has one").to_string();
    Client::of_open(http)
        .request::<serde_json::Value>("GET", path, "")
        .await
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default()
}

/// Probes were told that all was well, so a balancer kept the node, and calls to the other data
/// threads waited in vain.
#[tokio::test]
async fn a_node_whose_data_thread_ends_says_so_to_every_caller() {
    for threads in [1, 2] {
        let node = serving(threads).await;
        let database = node.database();
        assert_eq!(
            [
                refuses(&node, "/readyz").await,
                refuses(&node, "/healthz").await
            ],
            ["", ""]
        );
        // The last thread: the others may still run.
        node.0.data.panic(usize::from(threads) - 1);
        let end = tokio::time::timeout(PATIENCE, node.closed()).await;
        let Err(Error::Fatal(why)) = end.expect("it is told") else {
            panic!("it ended with a reason");
        };
        assert!(
            why.contains("a data thread has ended") && why.contains("panicked"),
            "{why}"
        );

        assert!(!node.is_ready());
        let waited = tokio::time::timeout(PATIENCE, node.wait_ready(Duration::from_secs(60)))
            .await
            .expect("it does not wait");
        assert!(
            matches!(&waited, Err(Error::Fatal(told)) if *told == why),
            "{waited:?}"
        );
        let map = node.map::<u32, u32>("users").await.err();
        assert!(
            matches!(&map, Some(Error::Fatal(told)) if *told == why),
            "{map:?}"
        );
        for path in ["/readyz", "/healthz"] {
            let told = refuses(&node, path).await;
            assert!(told.contains("data thread"), "{path}: {told}");
        }
        let calls = async {
            for key in 0..KEYS {
                // Another thread may finish its pass before it ends.
                let failed = loop {
                    match database.get(key.to_string()).await {
                        Ok(_) => tokio::task::yield_now().await,
                        Err(why) => break why,
                    }
                };
                assert!(
                    matches!(failed, Error::Closed),
                    "{threads} threads, {key}: {failed:?}"
                );
                let written = database.set(key.to_string(), "another").await;
                assert!(
                    matches!(written, Err(Error::Closed)),
                    "{threads} threads, {key}: {written:?}"
                );
            }
        };
        tokio::time::timeout(PATIENCE, calls)
            .await
            .expect("calls do not wait");
        let left = tokio::time::timeout(PATIENCE, node.shutdown())
            .await
            .expect("it does not wait for what cannot come");
        assert_eq!(
            left,
            Departure::TimedOut { partitions: 16 },
            "all that it held is gone"
        );
        assert!(left.loses());
    }
}
