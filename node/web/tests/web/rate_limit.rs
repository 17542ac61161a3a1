//! Limits that two nodes count together.

use crate::http::send;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request;
use axum::routing::get;
use doyen::testkit::Local;
use doyen::{Node, RateLimiter};
use doyen_web::RateLimitLayer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tower::ServiceExt;

const HOUR: Duration = Duration::from_secs(3600);

async fn limiter(node: &Node) -> RateLimiter<String> {
    let limiter = node.rate_limiter("api").sliding_window(3, HOUR);
    limiter.await.expect("a limiter")
}

fn user(request: &Request) -> Option<String> {
    let user = request.headers().get("user")?;
    Some(user.to_str().ok()?.to_owned())
}

type Layer = RateLimitLayer<String, fn(&Request) -> Option<String>>;

async fn layer(node: &Node) -> Layer {
    RateLimitLayer::new(limiter(node).await, user as fn(&Request) -> _)
}

fn app(served: &Arc<AtomicU32>, layer: Layer) -> Router {
    let served = served.clone();
    let serve = async move || (served.fetch_add(1, Ordering::SeqCst) + 1).to_string();
    Router::new().route("/", get(serve)).layer(layer)
}

fn of(user: &str) -> request::Builder {
    Request::get("/").header("user", user)
}

#[doyen::test(nodes = 2)]
async fn a_limit_holds_for_all_nodes_together(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let served = Arc::new(AtomicU32::new(0));
    let here = app(&served, layer(&one).await.policy("api", 3, HOUR));
    let there = app(&served, layer(&two).await);
    let first = send(&here, of("ada"), Body::empty()).await;
    assert_eq!((first.status, first.body.as_str()), (200, "1"));
    assert!(first.header("ratelimit").starts_with("\"api\";r=2;t="));
    assert_eq!(first.header("ratelimit-policy"), "\"api\";q=3;w=3600");
    let second = send(&there, of("ada"), Body::empty()).await;
    assert!(second.header("ratelimit").starts_with("\"default\";r=1;t="));
    assert_eq!(second.header("ratelimit-policy"), "");
    assert_eq!(send(&here, of("ada"), Body::empty()).await.status, 200);

    for app in [&here, &there] {
        let answer = send(app, of("ada"), Body::empty()).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert!(answer.header("ratelimit").contains(";r=0;t="), "{answer:?}");
        let seconds: u64 = answer.header("retry-after").parse().expect("seconds");
        assert!((1..=7200).contains(&seconds), "{seconds}");
    }
    assert_eq!(send(&there, of("eve"), Body::empty()).await.status, 200);
    cluster.advance(HOUR * 2).await;
    let later = send(&there, of("ada"), Body::empty()).await;
    assert!(later.header("ratelimit").contains(";r=2;t="), "{later:?}");
    let unlimited = send(&there, Request::get("/"), Body::empty()).await;
    assert_eq!((unlimited.status, unlimited.header("ratelimit")), (200, ""));
    assert_eq!(served.load(Ordering::SeqCst), 6, "no refused one");
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_long_key_is_limited_as_others_are(cluster: Local) {
    let node = cluster.node(0);
    let served = Arc::new(AtomicU32::new(0));
    let app = app(&served, layer(&node).await);
    let long = "u".repeat(10_000);
    for status in [200, 200, 200, 429] {
        assert_eq!(send(&app, of(&long), Body::empty()).await.status, status);
    }
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_key_that_cannot_be_stored_is_refused_and_passes_no_limit(cluster: Local) {
    let node = cluster.node(0);
    let limiter = node
        .rate_limiter::<Vec<Option<std::collections::BTreeMap<u8, u8>>>>("odd")
        .sliding_window(3, HOUR)
        .await
        .expect("a limiter");
    let odd = |_: &Request| Some(vec![Some(std::collections::BTreeMap::from([(1, 1)]))]);
    let serve = async || "served";
    let app = Router::new()
        .route("/", get(serve))
        .layer(RateLimitLayer::new(limiter, odd));
    assert_eq!(send(&app, of("ada"), Body::empty()).await.status, 400);
}

#[doyen::test(nodes = 1, backups = 0)]
async fn requests_pass_without_the_grid_or_are_refused(cluster: Local) {
    let node = cluster.node(0);
    let served = Arc::new(AtomicU32::new(0));
    let open = app(&served, layer(&node).await);
    let closed = app(&served, layer(&node).await.fail_closed());
    cluster.kill(0).await;
    for _ in 0..5 {
        let answer = send(&open, of("ada"), Body::empty()).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, ""));
    }
    let answer = send(&closed, of("ada"), Body::empty()).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    assert_eq!(served.load(Ordering::SeqCst), 5);
}

/// Two versions of a service, one behind the other: each counts by its own rule.
#[doyen::test(nodes = 2)]
async fn a_rule_that_changes_does_not_let_all_pass(cluster: Local) {
    let served = Arc::new(AtomicU32::new(0));
    let former = app(&served, layer(&cluster.node(0)).await);
    let rules = [
        cluster.node(1).rate_limiter("api").token_bucket(2, 1, HOUR),
        cluster.node(1).rate_limiter("api").sliding_window(2, HOUR),
        cluster
            .node(1)
            .rate_limiter("api")
            .sliding_window(2, HOUR * 2),
    ];
    for rule in rules {
        let limiter = rule.await.expect("a limiter");
        let layer = RateLimitLayer::new(limiter, user as fn(&Request) -> _);
        let next = app(&served, layer);
        for (status, of_former) in [(200, 200), (200, 200), (429, 200), (429, 429)] {
            assert_eq!(send(&next, of("ada"), Body::empty()).await.status, status);
            let answer = send(&former, of("ada"), Body::empty()).await;
            assert!([of_former, 429].contains(&answer.status), "{answer:?}");
        }
    }
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_limiter_that_cannot_count_refuses(cluster: Local) {
    let node = cluster.node(0);
    let served = Arc::new(AtomicU32::new(0));
    let app = app(&served, layer(&node).await);
    assert_eq!(send(&app, of("ada"), Body::empty()).await.status, 200);
    node.drop_map("default", "doyen.limits")
        .await
        .expect("dropped");
    let refused = async {
        while send(&app, of("ada"), Body::empty()).await.status != 503 {
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await;
    refused.expect("it does not pass for ever");
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_request_that_is_cancelled_is_not_served(cluster: Local) {
    let node = cluster.node(0);
    let served = Arc::new(AtomicU32::new(0));
    let app = app(&served, layer(&node).await);
    for _ in 0..3 {
        let request = of("ada").body(Body::empty()).expect("a request");
        let mut call = std::pin::pin!(app.clone().oneshot(request));
        // It has asked the limiter, and its client goes away before the answer.
        assert!(futures_util::poll!(call.as_mut()).is_pending());
    }
    assert_eq!(served.load(Ordering::SeqCst), 0);
    // Each may have been counted, so between none and all of the three are left.
    let answer = send(&app, of("ada"), Body::empty()).await;
    assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    let passed = u32::from(answer.status == 200);
    assert_eq!(served.load(Ordering::SeqCst), passed, "this one alone");
}
