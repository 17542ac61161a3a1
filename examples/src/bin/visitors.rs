//! A program that is no node, and counts visitors together with other processes of its kind. Nodes
//! may come and go meanwhile.
//!
//! ```text
//!   visitors ──┐              ┌─ node
//!   visitors ──┼── client ────┼─ node   one map, "visitors", two copies of every entry
//!   visitors ──┘              └─ node
//! ```
//!
//! Start nodes as README.md says ("Run three nodes by hand"). Then type this in as many terminals
//! as you like:
//!
//! ```text
//! cargo run -p doyen-examples --bin visitors -- 127.0.0.1:7401 127.0.0.1:7411 127.0.0.1:7421
//! ```
//!
//! Kill a node: the count goes on, and misses no visitor. The addresses are data ports (`--data`;
//! by default the port after `--listen`). If the nodes have a secret, give it here too:
//! `DOYEN_SECRET_FILE=secret`.

use doyen::{Error, Map, Node};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();

    let seeds: Vec<String> = std::env::args().skip(1).collect();
    let mut builder = Node::builder()
        .client()
        .name("visitors")
        .seeds(if seeds.is_empty() {
            vec!["127.0.0.1:7401".to_owned()]
        } else {
            seeds
        });
    if let Some(file) = std::env::var_os("DOYEN_SECRET_FILE") {
        builder = builder.secret_file(file);
    }
    let client = builder.start().await?;
    // One map for all programs. Keys and values may have any serde type.
    let visitors: Map<String, u64> = client.map("visitors").await?;

    let counting = async {
        loop {
            println!("visitor {} of this page", visit(&visitors, "/").await?);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let ended: anyhow::Result<()> = tokio::select! {
        ended = counting => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into),
    };
    client.shutdown().await;
    ended
}

/// Counts one visitor of a page while others count too. Returns the visitor's number.
async fn visit(visitors: &Map<String, u64>, page: &str) -> anyhow::Result<u64> {
    loop {
        let before = visitors.get_versioned(page).await?;
        let now = before.value().unwrap_or(&0) + 1;
        match visitors.compare_and_swap(&before, &now).await {
            Ok(true) => return Ok(now),
            // Another program counted a visitor meanwhile, or an error says that nothing happened.
            Ok(false) | Err(Error::Unavailable | Error::Overloaded) => {}
            // The visitor may have been counted or not. Only the program knows whether that
            // matters.
            Err(error) => return Err(error.into()),
        }
    }
}
