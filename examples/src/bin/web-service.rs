//! A web service on two nodes, behind any load balancer: sessions, idempotency keys and a rate
//! limit are the same on both.
//!
//! ```text
//!   requests ──> "north" ── axum: rate limit, sessions, idempotency keys ── node ─┐
//!   requests ──> "south" ── axum: rate limit, sessions, idempotency keys ── node ─┘
//! ```
//!
//! Start it: `cargo run -p doyen-examples --bin web-service`. It sends itself some requests, now
//! through one node and now through the other, prints what happened, and ends. With the argument
//! `serve` it listens on the ports 8081 and 8082 until Ctrl-C.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{Method, StatusCode};
use axum::routing::{get, post};
use doyen::{Counters, Node};
use doyen_examples::{serve_until, two_nodes};
use doyen_web::{Failed, IdempotencyLayer, RateLimitLayer, Sessions};
use std::net::SocketAddr;
use std::time::Duration;
use tower::ServiceExt;
use tower_sessions::{Session, SessionManagerLayer};

const MINUTE: Duration = Duration::from_secs(60);
/// Requests of one user in a minute.
const LIMIT: u64 = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let [north, south] = two_nodes().await?;
    let apps = [app(&north).await?, app(&south).await?];
    if std::env::args().nth(1).as_deref() == Some("serve") {
        let [one, two] = apps;
        tokio::try_join!(serve(one, 8081), serve(two, 8082))?;
    } else {
        show(&apps).await?;
    }
    south.shutdown().await;
    north.shutdown().await;
    Ok(())
}

/// The service of one node. A process in production has just this.
async fn app(node: &Node) -> anyhow::Result<Router> {
    let orders = node.counters::<String>("orders").await?;
    // It may not ask for TLS, because this speaks HTTP without it.
    let sessions = Sessions::new(node.map("sessions").await?);
    let sessions = SessionManagerLayer::new(sessions).with_secure(false);
    let once = IdempotencyLayer::new(node.map("requests").await?, user).required();
    let limiter = node.rate_limiter::<String>("api");
    let limiter = limiter.sliding_window(LIMIT, MINUTE).await?;
    let limit = RateLimitLayer::new(limiter, |request: &Request| Some(user(request)));

    // The last layer is the first that a request comes to.
    Ok(Router::new()
        .route("/orders", post(order))
        .layer(once)
        .route("/visits", get(visit))
        .layer(sessions)
        .layer(limit.policy("api", LIMIT, MINUTE))
        .with_state(orders))
}

/// Counts the visits of a session.
async fn visit(session: Session) -> Result<String, StatusCode> {
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    let visits = session.get::<u64>("visits").await.map_err(failed)?;
    let visits = visits.unwrap_or(0) + 1;
    session.insert("visits", visits).await.map_err(failed)?;
    Ok(format!("visit {visits}"))
}

/// Orders something, which must not happen twice.
async fn order(State(orders): State<Counters<String>>) -> Result<String, Failed> {
    let number = orders.add("all", 1).await?;
    Ok(format!("order {number}"))
}

/// Who sends a request. A real service takes it from what has authenticated the request.
fn user(request: &Request) -> String {
    let user = request.headers().get("x-user");
    let user = user.and_then(|user| user.to_str().ok());
    user.unwrap_or("anybody").to_owned()
}

async fn serve(app: Router, port: u16) -> anyhow::Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(|e| anyhow::anyhow!("cannot listen on {address}: {e}"))?;
    println!("curl -i -X POST -H 'idempotency-key: 1' http://{address}/orders");
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

/// Sends some requests, and prints what happened.
async fn show([north, south]: &[Router; 2]) -> anyhow::Result<()> {
    let visits = || Request::get("/visits").header("x-user", "ada");
    let first = send(north, visits().body(Body::empty())?).await?;
    println!("north: {}", first.told);
    let again = visits().header(COOKIE, first.cookie).body(Body::empty())?;
    println!(
        "south, with the cookie of north: {}",
        send(south, again).await?.told
    );

    for (name, app) in [("north", north), ("south", south)] {
        let order = Request::post("/orders")
            .header("x-user", "ada")
            .header("idempotency-key", "\"8e03978e\"")
            .body(Body::from("tea"))?;
        println!("{name}, the same order: {}", send(app, order).await?.told);
    }
    let other = Request::post("/orders")
        .header("x-user", "ada")
        .header("idempotency-key", "\"8e03978e\"")
        .body(Body::from("coffee"))?;
    println!(
        "south, another order with its key: {}",
        send(south, other).await?.told
    );
    let no_key = Request::post("/orders")
        .header("x-user", "ada")
        .body(Body::empty())?;
    println!(
        "north, an order without a key: {}",
        send(north, no_key).await?.told
    );

    let mut refused = 0;
    for app in [north, south, north, south, north] {
        let answer = send(app, visits().body(Body::empty())?).await?;
        refused += u32::from(answer.told.starts_with("429"));
    }
    println!("of 5 more requests, {refused} were above the limit of {LIMIT}");
    let grace = Request::builder().method(Method::GET).uri("/visits");
    let grace = grace.header("x-user", "grace").body(Body::empty())?;
    println!("another user: {}", send(south, grace).await?.told);
    Ok(())
}

struct ShownAnswer {
    /// Its status and its body.
    told: String,
    /// The cookie that it sets.
    cookie: String,
}

async fn send(app: &Router, request: Request) -> anyhow::Result<ShownAnswer> {
    let answer = app.clone().oneshot(request).await?;
    let status = answer.status().as_u16();
    let cookie = match answer.headers().get(SET_COOKIE) {
        Some(cookie) => cookie
            .to_str()?
            .split(';')
            .next()
            .unwrap_or_default()
            .to_owned(),
        None => String::new(),
    };
    let body = to_bytes(answer.into_body(), 1 << 20).await?;
    let told = match serde_json::from_slice::<serde_json::Value>(&body) {
        Ok(problem) => format!(
            "{status} {}",
            problem["detail"].as_str().unwrap_or_default()
        ),
        Err(_) => format!("{status} {}", String::from_utf8_lossy(&body)),
    };
    Ok(ShownAnswer { told, cookie })
}
