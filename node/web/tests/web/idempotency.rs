//! Requests with a key run once, whichever node gets them.

use crate::http::{Answer, post, send};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, request};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post as on_post};
use doyen::Node;
use doyen::testkit::Local;
use doyen_web::IdempotencyLayer;
use doyen_web::idempotency::{RequestKey, StoredRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tower::ServiceExt;

/// What the handlers of a test share.
#[derive(Default)]
struct Shop {
    /// Payments that were made.
    paid: AtomicU32,
    /// Payments that have begun to wait.
    waiting: Notify,
    /// Lets payments that wait go on.
    go_on: Notify,
    /// Waiting payments that were dropped half way.
    dropped: Notify,
    /// Payments that wait, here and in shops that share this.
    running: Arc<Running>,
}

/// How many payments run, and how many ran at a time at most.
#[derive(Default)]
struct Running {
    now: AtomicU32,
    most: AtomicU32,
}

impl Shop {
    fn paid(&self) -> u32 {
        self.paid.load(Ordering::SeqCst)
    }
}

async fn layer(node: &Node) -> IdempotencyLayer {
    let map = node.map("requests").await.expect("a map");
    IdempotencyLayer::new(map, |request: &Request| {
        let user = request.headers().get("user");
        user.map_or_else(String::new, |user| {
            user.to_str().unwrap_or_default().to_owned()
        })
    })
}

fn app(shop: &Arc<Shop>, layer: IdempotencyLayer) -> Router {
    let pay = async |State(shop): State<Arc<Shop>>, body: Bytes| {
        let number = shop.paid.fetch_add(1, Ordering::SeqCst) + 1;
        let text = format!("payment {number} of {} bytes", body.len());
        (StatusCode::CREATED, [("payment", number.to_string())], text)
    };
    let pay_slowly = async |State(shop): State<Arc<Shop>>| {
        let mut half_way = HalfWay::new(shop.clone());
        shop.waiting.notify_one();
        shop.go_on.notified().await;
        half_way.is_done = true;
        shop.paid.fetch_add(1, Ordering::SeqCst);
        "paid slowly"
    };
    let fail = async |State(shop): State<Arc<Shop>>| -> Response {
        match shop.paid.fetch_add(1, Ordering::SeqCst) {
            0 => StatusCode::BAD_GATEWAY.into_response(),
            1 => StatusCode::TOO_MANY_REQUESTS.into_response(),
            2 => panic!("a bug of the handler"),
            n => format!("try {n}").into_response(),
        }
    };
    let refuse = async |State(shop): State<Arc<Shop>>| {
        shop.paid.fetch_add(1, Ordering::SeqCst);
        StatusCode::PAYMENT_REQUIRED
    };
    Router::new()
        .route("/pay", on_post(pay).get(pay).put(pay))
        .route("/slow", on_post(pay_slowly))
        .route("/fail", on_post(fail))
        .route("/refuse", on_post(refuse))
        .route(
            "/paid",
            get(async |State(shop): State<Arc<Shop>>| shop.paid().to_string()),
        )
        .layer(layer)
        .with_state(shop.clone())
}

/// A payment that runs. It tells its shop if it is dropped before it is done.
struct HalfWay {
    shop: Arc<Shop>,
    is_done: bool,
}

impl HalfWay {
    fn new(shop: Arc<Shop>) -> Self {
        let Running { now, most } = &*shop.running;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self {
            shop,
            is_done: false,
        }
    }
}

impl Drop for HalfWay {
    fn drop(&mut self) {
        self.shop.running.now.fetch_sub(1, Ordering::SeqCst);
        if !self.is_done {
            self.shop.dropped.notify_one();
        }
    }
}

fn keyed(path: &str, key: &str) -> request::Builder {
    post(path).header("idempotency-key", key)
}

fn is_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let told: serde_json::Value = serde_json::from_str(&answer.body).expect("it is JSON");
    assert_eq!(told["status"], status);
    assert!(
        told["detail"]
            .as_str()
            .is_some_and(|text| text.ends_with('.'))
    );
}

#[doyen::test(nodes = 2)]
async fn a_repeat_gets_the_first_answer_from_any_node(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let shop = Arc::new(Shop::default());
    let here = app(&shop, layer(&one).await);
    let there = app(&shop, layer(&two).await);
    let first = send(&here, keyed("/pay", "\"k-1\""), "10").await;
    assert_eq!((first.status, first.header("payment")), (201, "1"));
    assert_eq!(first.header("idempotent-replayed"), "");
    for app in [&here, &there] {
        let again = send(app, keyed("/pay", "k-1"), "10").await;
        assert_eq!((again.status, again.header("payment")), (201, "1"));
        assert_eq!(again.body, "payment 1 of 2 bytes");
        assert_eq!(again.header("content-type"), first.header("content-type"));
        assert_eq!(again.header("idempotent-replayed"), "true");
    }
    assert_eq!(shop.paid(), 1);

    // Another body, path, method or content type is another request.
    is_problem(&send(&there, keyed("/pay", "k-1"), "11").await, 422);
    is_problem(&send(&there, keyed("/pay?a=1", "k-1"), "10").await, 422);
    is_problem(
        &send(&there, keyed("/pay", "k-1").method("PUT"), "10").await,
        422,
    );
    let json = keyed("/pay", "k-1").header("content-type", "application/json");
    is_problem(&send(&there, json, "10").await, 422);
    assert_eq!(shop.paid(), 1);

    // Other keys and other callers have payments of their own.
    assert_eq!(
        send(&there, keyed("/pay", "k-2"), "10")
            .await
            .header("payment"),
        "2"
    );
    let ada = || keyed("/pay", "k-1").header("user", "ada");
    assert_eq!(send(&here, ada(), "10").await.header("payment"), "3");
    assert_eq!(send(&there, ada(), "10").await.header("payment"), "3");

    // An answer that says no is an answer, too.
    assert_eq!(send(&here, keyed("/refuse", "no"), "").await.status, 402);
    let again = send(&there, keyed("/refuse", "no"), "").await;
    assert_eq!(
        (again.status, again.header("idempotent-replayed")),
        (402, "true")
    );
    assert_eq!(shop.paid(), 4);

    // The answer outlives the node that gave it.
    cluster.shutdown(0).await;
    assert_eq!(
        send(&there, keyed("/pay", "k-1"), "10")
            .await
            .header("payment"),
        "1"
    );
}

#[doyen::test(nodes = 2)]
async fn many_repeats_at_a_time_run_once(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let shop = Arc::new(Shop::default());
    let apps = [&one, &two].map(|node| (node.clone(), shop.clone()));
    let begin = Arc::new(Semaphore::new(0));
    let mut callers = Vec::new();
    for (node, shop) in apps {
        let app = app(&shop, layer(&node).await);
        for _ in 0..20 {
            let (app, begin) = (app.clone(), begin.clone());
            callers.push(tokio::spawn(async move {
                let _begun = begin.acquire().await.expect("it is open");
                loop {
                    let answer = send(&app, keyed("/pay", "k"), "10").await;
                    match answer.status {
                        409 => tokio::task::yield_now().await,
                        _ => return answer,
                    }
                }
            }));
        }
    }
    begin.add_permits(callers.len());
    for caller in callers {
        let answer = caller.await.expect("no panic");
        assert_eq!((answer.status, answer.header("payment")), (201, "1"));
    }
    assert_eq!(shop.paid(), 1);
}

#[doyen::test(nodes = 2)]
async fn a_repeat_while_the_first_runs_is_told_to_come_later(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let shop = Arc::new(Shop::default());
    let here = app(&shop, layer(&one).await);
    let there = app(&shop, layer(&two).await);
    let first = tokio::spawn(async move { send(&here, keyed("/slow", "k"), "10").await });
    shop.waiting.notified().await;
    let repeat = send(&there, keyed("/slow", "k"), "10").await;
    is_problem(&repeat, 409);
    assert_eq!(repeat.header("retry-after"), "1");
    is_problem(&send(&there, keyed("/slow", "k"), "11").await, 422);
    shop.go_on.notify_one();
    assert_eq!(first.await.expect("no panic").body, "paid slowly");
    let repeat = send(&there, keyed("/slow", "k"), "10").await;
    assert_eq!((repeat.status, repeat.body.as_str()), (200, "paid slowly"));
    assert_eq!(shop.paid(), 1);
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_client_that_goes_away_gets_its_answer_with_a_repeat(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let app = app(&shop, layer(&node).await);
    let request = keyed("/slow", "k")
        .body(Body::from("10"))
        .expect("a request");
    {
        let call = app.clone().oneshot(request);
        tokio::pin!(call);
        tokio::select! {
            answer = &mut call => panic!("it waits: {answer:?}"),
            () = shop.waiting.notified() => {}
        }
        // The client closes its connection, so hyper drops the call.
    }
    is_problem(&send(&app, keyed("/slow", "k"), "10").await, 409);
    shop.go_on.notify_one();
    let answer = loop {
        let answer = send(&app, keyed("/slow", "k"), "10").await;
        if answer.status != 409 {
            break answer;
        }
    };
    assert_eq!(answer.body, "paid slowly");
    assert_eq!(answer.header("idempotent-replayed"), "true");
    assert_eq!(shop.paid(), 1);
}

#[doyen::test(nodes = 1, backups = 0)]
async fn answers_that_ask_to_try_again_and_panics_are_not_stored(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let app = app(&shop, layer(&node).await);
    assert_eq!(send(&app, keyed("/fail", "k"), "").await.status, 502);
    assert_eq!(send(&app, keyed("/fail", "k"), "").await.status, 429);
    let (panicking, request) = (app.clone(), keyed("/fail", "k"));
    let panicked = tokio::spawn(async move { send(&panicking, request, "").await }).await;
    assert!(
        panicked.is_err_and(|why| why.is_panic()),
        "layers around see it"
    );
    for _ in 0..2 {
        assert_eq!(send(&app, keyed("/fail", "k"), "").await.body, "try 3");
    }
    assert_eq!(shop.paid(), 4);
}

#[doyen::test(nodes = 1, backups = 0)]
async fn requests_without_a_key_run_each_time_unless_it_is_required(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let open = app(&shop, layer(&node).await);
    for number in ["1", "2"] {
        assert_eq!(
            send(&open, post("/pay"), "10").await.header("payment"),
            number
        );
    }
    let strict = app(&shop, layer(&node).await.required());
    is_problem(&send(&strict, post("/pay"), "10").await, 400);
    is_problem(
        &send(&strict, post("/pay").method("PATCH"), "10").await,
        400,
    );
    // A PUT is the same when it is repeated, and reads change nothing, with a key or without.
    assert_eq!(
        send(&strict, post("/pay").method("PUT"), "10")
            .await
            .header("payment"),
        "3"
    );
    for number in ["4", "5"] {
        let read = keyed("/pay", "k").method("GET");
        assert_eq!(send(&strict, read, "").await.header("payment"), number);
    }
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_malformed_key_runs_nothing(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let app = app(&shop, layer(&node).await);
    let too_long = "k".repeat(256);
    for key in ["", "\"\"", "\"open", too_long.as_str()] {
        is_problem(&send(&app, keyed("/pay", key), "10").await, 400);
    }
    let twice = keyed("/pay", "a").header("idempotency-key", "b");
    is_problem(&send(&app, twice, "10").await, 400);
    assert_eq!(shop.paid(), 0);
    let longest = "k".repeat(255);
    assert_eq!(send(&app, keyed("/pay", &longest), "10").await.status, 201);
    assert_eq!(send(&app, keyed("/pay", &longest), "10").await.status, 201);
    assert_eq!(shop.paid(), 1);
}

#[doyen::test(nodes = 1, backups = 0)]
async fn bodies_above_the_limits_are_refused_or_not_kept(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let small = app(&shop, layer(&node).await.request_max(4));
    is_problem(&send(&small, keyed("/pay", "a"), "12345").await, 413);
    let parts = ["123", "45"].map(Ok::<_, std::io::Error>);
    let streamed = Body::from_stream(futures_util::stream::iter(parts));
    is_problem(&send(&small, keyed("/pay", "b"), streamed).await, 413);
    let broken = [Ok("1"), Err(std::io::Error::other("the client is gone"))];
    let broken = Body::from_stream(futures_util::stream::iter(broken));
    is_problem(&send(&small, keyed("/pay", "c"), broken).await, 400);
    assert_eq!(shop.paid(), 0);
    assert_eq!(send(&small, keyed("/pay", "a"), "1234").await.status, 201);
    assert_eq!(
        send(&small, post("/pay"), "12345").await.status,
        201,
        "no key"
    );

    let terse = app(&shop, layer(&node).await.response_max(20));
    let answer = send(&terse, keyed("/pay", "d"), "10").await;
    assert_eq!(answer.body, "payment 3 of 2 bytes", "the client has it");
    is_problem(&send(&terse, keyed("/pay", "d"), "10").await, 409);
    assert_eq!(shop.paid(), 3, "it is not executed again");
}

#[doyen::test(nodes = 1, backups = 0)]
async fn an_answer_is_forgotten_when_its_time_is_over(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let day = app(&shop, layer(&node).await);
    let minute = app(&shop, layer(&node).await.keep_for(Duration::from_secs(60)));
    for (app, key) in [(&day, "a"), (&minute, "b")] {
        assert_eq!(send(app, keyed("/pay", key), "10").await.status, 201);
    }
    assert_eq!(shop.paid(), 2);
    cluster.advance(Duration::from_secs(61)).await;
    let again = send(&minute, keyed("/pay", "b"), "10").await;
    assert_eq!(again.header("payment"), "3");
    cluster.advance(Duration::from_secs(23 * 3_600)).await;
    let again = send(&day, keyed("/pay", "a"), "10").await;
    assert_eq!(again.header("payment"), "1");
    cluster.advance(Duration::from_secs(3_600)).await;
    let again = send(&day, keyed("/pay", "a"), "10").await;
    assert_eq!(again.header("payment"), "4");
}

/// A handler outlives its lease, because its node renews it.
#[doyen::test(nodes = 2)]
async fn a_long_request_keeps_its_claim(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let shop = Arc::new(Shop::default());
    let lease = Duration::from_secs(5);
    let here = app(&shop, layer(&one).await.lease(lease));
    let there = app(&shop, layer(&two).await.lease(lease));
    let map = two.map::<RequestKey, StoredRequest>("requests").await;
    let mut changes = map.expect("a map").subscribe().await.expect("followed");
    let first = tokio::spawn(async move { send(&here, keyed("/slow", "k"), "10").await });
    shop.waiting.notified().await;
    // The claim, and renewals for longer than its lease.
    for _ in 0..5 {
        changes.next().await.expect("it goes on").expect("a change");
    }
    is_problem(&send(&there, keyed("/slow", "k"), "10").await, 409);
    shop.go_on.notify_one();
    assert_eq!(first.await.expect("no panic").body, "paid slowly");
    assert_eq!(shop.paid(), 1);
}

/// How the node of a running request is lost.
async fn a_repeat_runs_after_the_lease(cluster: Local, lose: impl AsyncFnOnce(&Local)) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let ours = Arc::new(Shop::default());
    let theirs = Arc::new(Shop {
        running: ours.running.clone(),
        ..Shop::default()
    });
    let lease = Duration::from_secs(5);
    let here = app(&ours, layer(&one).await.lease(lease));
    let there = app(&theirs, layer(&two).await.lease(lease));
    let first = tokio::spawn(async move { send(&here, keyed("/slow", "k"), "10").await });
    ours.waiting.notified().await;
    lose(&cluster).await;

    // It repeats without a pause, so it runs as soon as anything lets it.
    theirs.go_on.notify_one();
    let repeats = tokio::spawn(async move {
        loop {
            let answer = send(&there, keyed("/slow", "k"), "10").await;
            match answer.status {
                // The lease still runs, or the cluster finds a new primary.
                409 | 503 => tokio::task::yield_now().await,
                _ => return answer,
            }
        }
    });
    // The first one cannot renew its claim, so its handler, which would wait for ever, is stopped.
    is_problem(&first.await.expect("no panic"), 503);
    ours.dropped.notified().await;
    let answer = repeats.await.expect("no panic");
    assert_eq!((answer.status, answer.body.as_str()), (200, "paid slowly"));
    assert_eq!(answer.header("idempotent-replayed"), "");
    assert_eq!((ours.paid(), theirs.paid()), (0, 1));
    assert_eq!(ours.running.most.load(Ordering::SeqCst), 1, "one at a time");
}

/// The node dies while its process lives on.
#[doyen::test(nodes = 3)]
async fn a_repeat_runs_after_the_lease_of_a_dead_node(cluster: Local) {
    a_repeat_runs_after_the_lease(cluster, async |cluster| cluster.kill(0).await).await;
}

#[doyen::test(nodes = 3)]
async fn a_repeat_runs_after_the_lease_of_a_node_that_is_cut_off(cluster: Local) {
    a_repeat_runs_after_the_lease(cluster, async |cluster| cluster.isolate(0)).await;
}

#[doyen::test(nodes = 1, backups = 0)]
async fn nothing_runs_without_the_grid(cluster: Local) {
    let node = cluster.node(0);
    let shop = Arc::new(Shop::default());
    let app = app(&shop, layer(&node).await);
    cluster.kill(0).await;
    let answer = send(&app, keyed("/pay", "k"), "10").await;
    is_problem(&answer, 503);
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(shop.paid(), 0);
    assert_eq!(send(&app, post("/pay"), "10").await.status, 201, "no key");
}
