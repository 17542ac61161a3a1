//! Two web services that share a cache, without a cache server: each embeds a Doyen node.
//!
//! ```text
//!   curl :8081 ──> service "north" ── node north ─┐
//!                                                 ├── one map, "users", two copies of every entry
//!   curl :8082 ──> service "south" ── node south ─┘
//! ```
//!
//! Start both: `cargo run -p doyen-examples --bin two-services`. Then, in another terminal:
//!
//! ```text
//! curl localhost:8081/users/7                  # slow: from the "database"
//! curl localhost:8082/users/7                  # fast: the other service's node knows it
//! curl -X PUT localhost:8082/users/7 -H 'content-type: application/json' \
//!     -d '{"name":"Grace","city":"Arlington"}'
//! curl localhost:8081/users/7            # Grace, at once: a read sees every acknowledged write
//! curl -X DELETE localhost:8081/users/7
//! ```
//!
//! Here both run in one process, so that one command starts them. In production, each is a process
//! of its own on a machine of its own, with `seeds` that name the others, and a `secret`. Nothing
//! else changes.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use doyen::{Error, Map, Node};
use doyen_examples::serve_until;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an entry is kept.
const CACHED: Duration = Duration::from_secs(60);

/// What is cached. Any serde type will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CachedUser {
    name: String,
    city: String,
}

/// What the handlers share. A map is cheap to clone.
#[derive(Clone)]
struct Service {
    name: &'static str,
    users: Map<u64, CachedUser>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();

    // The first node has no seeds, so it forms a cluster by itself. The second one finds it by its
    // address.
    let north = Node::builder()
        .name("north")
        .listen("127.0.0.1:0")
        .start()
        .await?;
    let south = Node::builder()
        .name("south")
        .listen("127.0.0.1:0")
        .seeds([north.addresses().control.to_string()])
        .start()
        .await?;

    // Both end with Ctrl-C, once the requests in flight are answered, because those need the nodes.
    tokio::try_join!(serve("north", &north, 8081), serve("south", &south, 8082))?;

    // One after the other: each hands over what it holds to the members that stay.
    south.shutdown().await;
    north.shutdown().await;
    Ok(())
}

async fn serve(name: &'static str, node: &Node, port: u16) -> anyhow::Result<()> {
    let users = node.map("users").await?;
    let app = Router::new()
        .route("/users/{id}", get(look_up).put(store).delete(forget))
        .with_state(Service { name, users });
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(|e| anyhow::anyhow!("cannot listen on {address}: {e}"))?;
    println!("service {name} listens: curl http://{address}/users/7");
    let told_to_stop = async {
        // If this process cannot listen for Ctrl-C, the system ends it at once, like any other
        // program.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    serve_until(listener, app, told_to_stop).await?;
    Ok(())
}

/// Answers from the cache. If the entry is missing, it comes from the database and is cached.
async fn look_up(
    State(service): State<Service>,
    Path(id): Path<u64>,
) -> Result<Response, ServiceFailure> {
    let began = Instant::now();
    let (user, from) = match service.users.get(&id).await? {
        Some(user) => (user, "cache"),
        None => {
            let user = load_from_database(id).await;
            // Another request may have stored a newer entry meanwhile. Then that one stays.
            let put = service.users.put(&id, &user).ttl(CACHED).if_absent();
            match put.await? {
                None => (user, "database"),
                Some(there) => (there, "cache"),
            }
        }
    };
    Ok(Json(serde_json::json!({
        "user": user,
        "from": from,
        "served_by": service.name,
        "microseconds": u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
    }))
    .into_response())
}

async fn store(
    State(service): State<Service>,
    Path(id): Path<u64>,
    Json(user): Json<CachedUser>,
) -> Result<StatusCode, ServiceFailure> {
    service.users.put(&id, &user).ttl(CACHED).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn forget(
    State(service): State<Service>,
    Path(id): Path<u64>,
) -> Result<StatusCode, ServiceFailure> {
    let was_there = service.users.remove(&id).await?;
    Ok(if was_there {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::NOT_FOUND
    })
}

/// Stands for a real database: right, and slow.
async fn load_from_database(id: u64) -> CachedUser {
    tokio::time::sleep(Duration::from_millis(300)).await;
    CachedUser {
        name: format!("User {id}"),
        city: "London".into(),
    }
}

/// What a service tells its client when the cache cannot answer.
struct ServiceFailure(Error);

impl From<Error> for ServiceFailure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for ServiceFailure {
    fn into_response(self) -> Response {
        // The text says whether anything happened, and what to do.
        (StatusCode::SERVICE_UNAVAILABLE, self.0.to_string()).into_response()
    }
}
