//! Sessions that one node made and another one reads.

use crate::http::{Answer, send};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use doyen::Node;
use doyen::testkit::Local;
use doyen_web::{Sessions, StoredSession};
use std::collections::HashMap;
use std::time::Duration;
use time::OffsetDateTime;
use tower::ServiceExt;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::Error;
use tower_sessions::{Expiry, Session, SessionManagerLayer, SessionStore};

/// A service that counts the visits of a session.
async fn app(node: &Node, expiry: Expiry) -> Router {
    let sessions = Sessions::new(node.map("sessions").await.expect("a map"));
    let count = async |session: Session| {
        let visits = session.get::<u32>("visits").await.expect("read");
        let visits = visits.unwrap_or(0) + 1;
        session.insert("visits", visits).await.expect("kept");
        visits.to_string()
    };
    let leave = async |session: Session| session.flush().await.expect("deleted");
    Router::new()
        .route("/", get(count))
        .route("/leave", get(leave))
        .layer(SessionManagerLayer::new(sessions).with_expiry(expiry))
}

async fn visit(app: &Router, path: &str, cookie: &str) -> Answer {
    send(
        app,
        Request::get(path).header("cookie", cookie),
        Body::empty(),
    )
    .await
}

fn cookie(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").split(';').next();
    cookie.unwrap_or_default().to_owned()
}

fn record(seconds: i64) -> Record {
    Record {
        id: Id::default(),
        data: HashMap::from([("big".to_owned(), serde_json::json!([u64::MAX, 0.5, null]))]),
        expiry_date: OffsetDateTime::now_utc() + time::Duration::seconds(seconds),
    }
}

#[doyen::test(nodes = 2)]
async fn a_session_of_one_node_goes_on_at_another_and_ends_everywhere(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let expiry = Expiry::OnInactivity(time::Duration::hours(1));
    let (here, there) = (app(&one, expiry).await, app(&two, expiry).await);
    let first = visit(&here, "/", "").await;
    assert_eq!((first.status, first.body.as_str()), (200, "1"));
    let id = cookie(&first);
    assert_eq!(visit(&there, "/", &id).await.body, "2");
    assert_eq!(visit(&here, "/", &id).await.body, "3");
    assert_eq!(visit(&here, "/", "").await.body, "1", "another session");

    assert_eq!(visit(&there, "/leave", &id).await.status, 200);
    assert_eq!(visit(&here, "/", &id).await.body, "1", "it begins again");
    for forged in ["id=x", "id=AAAAAAAAAAAAAAAAAAAAAA", "id=", "other=1"] {
        let answer = visit(&here, "/", forged).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "1"));
    }
}

#[doyen::test(nodes = 2)]
async fn a_session_expires_on_every_node(cluster: Local) {
    let [one, two] = [0, 1].map(|number| cluster.node(number));
    let expiry = Expiry::OnInactivity(time::Duration::hours(1));
    let (here, there) = (app(&one, expiry).await, app(&two, expiry).await);
    let id = cookie(&visit(&here, "/", "").await);
    assert_eq!(visit(&there, "/", &id).await.body, "2");
    cluster.advance(Duration::from_secs(3_000)).await;
    assert_eq!(visit(&there, "/", &id).await.body, "3", "it was used");
    cluster.advance(Duration::from_secs(3_000)).await;
    assert_eq!(
        visit(&here, "/", &id).await.body,
        "4",
        "since the last visit"
    );
    cluster.advance(Duration::from_secs(3_601)).await;
    let map = two.map::<Id, StoredSession>("sessions").await;
    assert_eq!(map.expect("a map").len().await, Ok(0), "nothing is left");
    assert_eq!(visit(&there, "/", &id).await.body, "1", "it begins again");
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_store_keeps_what_it_is_given_and_takes_no_id_twice(cluster: Local) {
    let node = cluster.node(0);
    let store = Sessions::new(node.map("sessions").await.expect("a map"));
    let mut first = record(60);
    store.create(&mut first).await.expect("created");
    assert_eq!(
        store.load(&first.id).await.expect("read"),
        Some(first.clone())
    );

    let mut second = record(60);
    second.id = first.id;
    second.data.clear();
    store.create(&mut second).await.expect("created");
    assert_ne!(second.id, first.id, "its id was taken");
    assert_eq!(
        store.load(&first.id).await.expect("read"),
        Some(first.clone())
    );
    assert_eq!(store.load(&second.id).await.expect("read"), Some(second));

    first.data.insert("more".into(), "text".into());
    store.save(&first).await.expect("saved");
    assert_eq!(
        store.load(&first.id).await.expect("read"),
        Some(first.clone())
    );
    store.delete(&first.id).await.expect("deleted");
    store.delete(&first.id).await.expect("deleted already");
    store.save(&first).await.expect("a late request saves");
    assert_eq!(
        store.load(&first.id).await.expect("read"),
        None,
        "a session that was deleted stays so"
    );

    let mut old = record(-1);
    store.create(&mut old).await.expect("created");
    assert_eq!(store.load(&old.id).await.expect("read"), None);
}

/// A client that goes away while its session is made leaves nothing that stands in the way.
#[doyen::test(nodes = 1, backups = 0)]
async fn a_request_that_is_cancelled_leaves_a_session_that_works(cluster: Local) {
    let node = cluster.node(0);
    let expiry = Expiry::OnInactivity(time::Duration::hours(1));
    let app = app(&node, expiry).await;
    let id = cookie(&visit(&app, "/", "").await);
    {
        let request = Request::get("/").header("cookie", &id);
        let request = request.body(Body::empty()).expect("a request");
        let mut call = std::pin::pin!(app.clone().oneshot(request));
        assert!(futures_util::poll!(call.as_mut()).is_pending());
    }
    assert_eq!(visit(&app, "/", &id).await.body, "2");
}

#[doyen::test(nodes = 1, backups = 0)]
async fn a_store_without_its_node_and_strange_data_are_errors(cluster: Local) {
    let node = cluster.node(0);
    let strange = node.map::<Id, u64>("sessions").await.expect("a map");
    let store = Sessions::new(node.map("sessions").await.expect("a map"));
    let mut taken = record(60);
    strange.insert(&taken.id, &7).await.expect("written");
    let read = store.load(&taken.id).await;
    assert!(matches!(read, Err(Error::Decode(_))), "{read:?}");
    cluster.kill(0).await;
    let read = store.load(&taken.id).await;
    assert!(matches!(read, Err(Error::Backend(_))), "{read:?}");
    let made = store.create(&mut taken).await;
    assert!(matches!(made, Err(Error::Backend(_))), "{made:?}");
}
