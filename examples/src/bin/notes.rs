//! A web service with a clustered cache of notes. `tests/notes.rs` kills it.
//!
//! It takes its own flags and Doyen's, so it is configured as `doyen run` is: by flags, or by
//! variables as in a container.
//!
//! ```text
//! cargo run -p doyen-examples --bin notes -- \
//!     --web 127.0.0.1:8081 --name north --listen 127.0.0.1:7400
//! cargo run -p doyen-examples --bin notes -- \
//!     --web 127.0.0.1:8082 --name south --listen 127.0.0.1:7410 --seed 127.0.0.1:7400
//! curl -X PUT localhost:8081/notes/7 -d 'buy milk'; curl localhost:8082/notes/7
//! ```

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use clap::Parser;
use doyen::config::Options;
use doyen::testkit::Ready;
use doyen::{Map, Node};
use doyen_examples::serve_until;
use std::net::SocketAddr;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct ServiceFlags {
    /// Where the service listens
    #[arg(long, default_value = "127.0.0.1:8080")]
    web: SocketAddr,
    #[command(flatten)]
    doyen: Options,
}

type Notes = Map<String, String>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let flags = ServiceFlags::parse();
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let mut told_to_stop = Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    let listener = tokio::net::TcpListener::bind(flags.web).await?;
    let node = Node::builder().options(flags.doyen).start().await?;
    // A line for the test that started this: the addresses of the node and of the service.
    println!("{}", Ready::of(&node).and("web", listener.local_addr()?));
    tokio::select! {
        notes = node.map("notes") => {
            let notes: Notes = notes?;
            let app = Router::new().route("/notes/{id}", get(read).put(write)).with_state(notes);
            serve_until(listener, app, told_to_stop).await?;
        }
        () = &mut told_to_stop => {}
    }
    // The node ends last, because the requests in flight needed it.
    node.shutdown().await;
    Ok(())
}

async fn read(
    State(notes): State<Notes>,
    Path(id): Path<String>,
) -> Result<String, (StatusCode, String)> {
    let note = notes
        .get(&id)
        .await
        .map_err(|e| (StatusCode::SERVICE_UNAVAILABLE, e.to_string()))?;
    note.ok_or_else(|| (StatusCode::NOT_FOUND, "no such note".into()))
}

async fn write(
    State(notes): State<Notes>,
    Path(id): Path<String>,
    text: String,
) -> Result<StatusCode, (StatusCode, String)> {
    notes
        .insert(&id, &text)
        .await
        .map_err(|e| (StatusCode::SERVICE_UNAVAILABLE, e.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}
