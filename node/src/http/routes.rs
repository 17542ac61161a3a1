//! What HTTP answers.

use super::State;
use super::guard::{self, MaySee, authorize};
use crate::admin::keyspace::{KeyspaceOptions, SplitRequest};
use crate::config::ConfigError;
use crate::http::metrics::{Clocks, Seen};
use crate::report::events::LoggedEvent;
use crate::report::loads::{LoadsReport, Placement};
use crate::report::moves::{BalanceOptions, BalanceReport, CancelRequest, MovesReport};
use crate::report::rebalance::{self, PLAN_BYTES_MAX, RebalancePlan};
use crate::report::status::{ClusterReport, KeyspaceReport, TableReport, TableVersion};
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, body::Body, body::Bytes};
use doyen_gossip::agreement::{AdminReply, AdminRequest};
use doyen_placement::planner::Refused;
use doyen_placement::{MapId, Table};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A request's body at most.
const BODY_BYTES_MAX: usize = 16 << 10;
/// A keyspace's body at most: 4 MiB of splits, of which each byte may be written as five.
const KEYSPACE_BYTES_MAX: usize = 24 << 20;
/// How long an answer may take: longer than a change waits for a coordinator.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// How long `GET /events` may wait for one.
const EVENTS_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the node's threads may take to answer `/healthz`.
const HEALTH_MAX: Duration = Duration::from_secs(1);

/// What `POST /recover` takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoverRequest {
    /// Names of members that the operator says are dead, and will not come back.
    pub(crate) assert_dead: Vec<String>,
}

/// What `PATCH /rebalance` takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Automatic {
    /// For which reasons copies and primaries move by themselves.
    pub(crate) automatic: Vec<String>,
}

/// An error, as JSON: `{"error": "what is wrong and what to do"}`.
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

type Answer<T> = Result<T, Failure>;

/// The name in a path.
struct Named(String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name)).map_err(|why| {
            Failure(
                StatusCode::BAD_REQUEST,
                format!("the path has no name: {why}"),
            )
        })
    }
}

pub(super) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/table", get(table))
        .route("/loads", get(loads))
        .route("/placement", get(placement))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/recover", post(recover))
        .route("/moves", get(moves))
        .route("/moves/cancel", post(cancel_moves))
        .route("/balance", get(balance).patch(set_balance))
        .route("/events", get(events))
        .route("/members/{name}", delete(remove_lost))
        .route("/members/{name}/drain", post(drain).delete(fill))
        .route("/rebalance", get(planned).post(apply_plan).patch(schedule))
        .route("/keyspaces", get(keyspaces).post(create_keyspace))
        .route(
            "/keyspaces/{name}",
            get(keyspace).patch(alter_keyspace).delete(drop_keyspace),
        )
        .route("/keyspaces/{name}/split", post(split_range))
        .route("/keyspaces/{name}/merge", post(merge_ranges))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), in_time))
        .layer(middleware::from_fn(not_too_long))
        .layer(middleware::from_fn(nothing_passed_over))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            guard::addressed,
        ))
        .with_state(state)
}

/// Whoever says beforehand that a body is too long need not send it first.
async fn not_too_long(request: Request, next: Next) -> Response {
    let length = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let most = PLAN_BYTES_MAX.max(KEYSPACE_BYTES_MAX);
    if length.is_some_and(|length| length > most as u64) {
        return Failure(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("no body that is taken has more than {most} bytes"),
        )
        .into_response();
    }
    next.run(request).await
}

/// What changes something has its options in the body: what is said elsewhere would be passed over
/// in silence.
async fn nothing_passed_over(request: Request, next: Next) -> Response {
    let asks = [Method::GET, Method::HEAD].contains(request.method());
    if let Some(query) = request
        .uri()
        .query()
        .filter(|query| !asks && !query.is_empty())
    {
        let why = format!(
            "`?{query}` is not taken: what changes something has its options in the body, as JSON"
        );
        return Failure(StatusCode::BAD_REQUEST, why).into_response();
    }
    next.run(request).await
}

async fn in_time(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    if let Ok(response) = tokio::time::timeout(ANSWER_MAX, next.run(request)).await {
        return response;
    }
    // What changes the cluster waits for its coordinator.
    let status = tokio::time::timeout(HEALTH_MAX, state.control.status()).await;
    let why = match status {
        Ok(Ok(cluster)) => cluster.halted(),
        _ => None,
    };
    match why {
        Some(why) => Failure(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not done within {ANSWER_MAX:?}: {why}"),
        ),
        None => Failure(
            StatusCode::GATEWAY_TIMEOUT,
            format!("no answer within {ANSWER_MAX:?}: try again"),
        ),
    }
    .into_response()
}

/// What changes something.
const CHANGES: &str = "POST for /recover, /keyspaces, /keyspaces/NAME/split, /keyspaces/NAME/merge, /rebalance, /moves/cancel and /members/NAME/drain, PATCH and DELETE for /keyspaces/NAME, PATCH for /rebalance and /balance, DELETE for /members/NAME and /members/NAME/drain";

async fn unknown() -> Failure {
    let looking = "/status, /table, /loads, /placement, /keyspaces, /moves, /balance, /rebalance, /events, /healthz, /readyz and /metrics";
    Failure(
        StatusCode::NOT_FOUND,
        format!("there are, to GET, {looking}; {CHANGES}"),
    )
}

async fn not_allowed() -> Failure {
    Failure(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("GET is for looking, {CHANGES}"),
    )
}

fn stopped() -> Failure {
    Failure(
        StatusCode::SERVICE_UNAVAILABLE,
        "this node is stopping: ask another".into(),
    )
}

fn ended() -> Failure {
    Failure(
        StatusCode::SERVICE_UNAVAILABLE,
        "a data thread of this node has ended, and what it held is gone: start this node again"
            .into(),
    )
}

async fn status(Shared(state): Shared<Arc<State>>) -> Answer<Json<ClusterReport>> {
    let cluster = state.control.status().await.map_err(|_| stopped())?;
    Ok(Json(ClusterReport::new(&cluster)))
}

/// What `GET /table` is asked with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableQuery {
    /// Only what is new since this one.
    since: Option<String>,
}

async fn table(
    _: MaySee,
    Shared(state): Shared<Arc<State>>,
    query: Result<Query<TableQuery>, QueryRejection>,
) -> Answer<Json<TableReport>> {
    let refused = |why: String| Failure(StatusCode::BAD_REQUEST, why);
    let Query(query) =
        query.map_err(|_| refused("there is /table, and /table?since=TERM.VERSION".into()))?;
    let since = query
        .since
        .map(|since| since.parse::<TableVersion>().map_err(refused))
        .transpose()?;
    let cluster = state.control.status().await.map_err(|_| stopped())?;
    Ok(Json(since.map_or_else(
        || TableReport::new(&cluster),
        |since| TableReport::since(&cluster, since),
    )))
}

async fn loads(_: MaySee, Shared(state): Shared<Arc<State>>) -> Answer<Json<LoadsReport>> {
    let table = in_force(&state).await?;
    let loads = state.control.loads().await.map_err(|_| stopped())?;
    Ok(Json(LoadsReport::new(&table, &loads)))
}

async fn moves(_: MaySee, Shared(state): Shared<Arc<State>>) -> Answer<Json<MovesReport>> {
    let table = in_force(&state).await?;
    let loads = state.control.loads().await.map_err(|_| stopped())?;
    // Goes through the whole table.
    let halted = state
        .control
        .status()
        .await
        .map_err(|_| stopped())?
        .halted();
    let report = tokio::task::spawn_blocking(move || MovesReport::new(&table, &loads, halted))
        .await
        .map_err(|_| stopped())?;
    Ok(Json(report))
}

async fn balance(Shared(state): Shared<Arc<State>>) -> Answer<Json<BalanceReport>> {
    Ok(Json(BalanceReport::new(&*in_force(&state).await?)))
}

async fn set_balance(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let options: BalanceOptions = ordered(
        &state,
        &headers,
        body,
        r#"{"paused": false, "rate": "adaptive", "window": "always"}"#,
    )?;
    let requests = options
        .requests()
        .map_err(|why| Failure(StatusCode::BAD_REQUEST, why))?;
    for request in requests {
        administer(&state, request).await?;
    }
    Ok(Json(serde_json::json!({ "changed": options })))
}

async fn cancel_moves(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let cancel: CancelRequest = ordered(
        &state,
        &headers,
        body,
        r#"{"id": "KEYSPACE/PARTITION"} or {"all": true}"#,
    )?;
    let request = cancel
        .request(&*in_force(&state).await?)
        .map_err(|why| Failure(StatusCode::BAD_REQUEST, why))?;
    administer(&state, request).await?;
    Ok(Json(
        serde_json::json!({ "cancelled": cancel.id.unwrap_or_else(|| "all".into()) }),
    ))
}

async fn drain(
    Shared(state): Shared<Arc<State>>,
    Named(name): Named,
    headers: HeaderMap,
) -> Answer<Json<serde_json::Value>> {
    authorize(&state, &headers)?;
    administer(&state, AdminRequest::Drain { name: name.clone() }).await?;
    Ok(Json(serde_json::json!({ "draining": name })))
}

async fn fill(
    Shared(state): Shared<Arc<State>>,
    Named(name): Named,
    headers: HeaderMap,
) -> Answer<Json<serde_json::Value>> {
    authorize(&state, &headers)?;
    administer(&state, AdminRequest::Fill { name: name.clone() }).await?;
    Ok(Json(serde_json::json!({ "filling": name })))
}

async fn remove_lost(
    Shared(state): Shared<Arc<State>>,
    Named(name): Named,
    headers: HeaderMap,
) -> Answer<Json<serde_json::Value>> {
    authorize(&state, &headers)?;
    administer(&state, AdminRequest::GiveUp { name: name.clone() }).await?;
    Ok(Json(serde_json::json!({ "removed": name })))
}

/// What `GET /events` is asked with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// Only those after the one of this number.
    #[serde(default)]
    since: u64,
    /// If there are none, waits for one: for so many milliseconds, 5000 at most.
    #[serde(default)]
    wait: u64,
    /// Goes on with what comes, as server-sent events.
    #[serde(default)]
    follow: bool,
}

async fn events(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Answer<Response> {
    let refused =
        "there is /events, with since=NUMBER, wait=MILLISECONDS, or follow=true, joined by &";
    let Query(query) = query.map_err(|_| Failure(StatusCode::BAD_REQUEST, refused.into()))?;
    let mut last = state.control.watch_events();
    if query.follow {
        let stopped = state.stopped.clone();
        // What a browser says when it connects again.
        let seen = headers
            .get("last-event-id")
            .and_then(|id| id.to_str().ok()?.parse().ok());
        let begin = (
            state.control.clone(),
            last,
            stopped,
            seen.unwrap_or(query.since),
        );
        let lines = futures_util::stream::unfold(
            begin,
            |(control, mut last, mut stopped, since)| async move {
                let woken = tokio::select! {
                    // The sender is gone with the node.
                    waited = last.wait_for(|number| *number > since) => waited.is_ok().then_some(true),
                    () = super::wait(&mut stopped) => None,
                    // Somebody who listens wants to know that nothing happens, and a connection on
                    // which nothing moves is closed.
                    () = tokio::time::sleep(EVENTS_WAIT_MAX) => Some(false),
                };
                if !woken? {
                    return Some((
                        Ok(": nothing\n\n".to_owned()),
                        (control, last, stopped, since),
                    ));
                }
                let events = control.logged_events(since);
                let since = events.last().map_or(since, |event| event.number);
                let line = |event: &LoggedEvent| {
                    let json = serde_json::to_string(event).unwrap_or_default();
                    format!(
                        "id: {}\nevent: {}\ndata: {json}\n\n",
                        event.number,
                        event.event.kind()
                    )
                };
                let text: String = events.iter().map(line).collect();
                Some((
                    Ok::<_, std::convert::Infallible>(text),
                    (control, last, stopped, since),
                ))
            },
        );
        let head = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        return Ok((head, Body::from_stream(lines)).into_response());
    }
    let wait = Duration::from_millis(query.wait).min(EVENTS_WAIT_MAX);
    if !wait.is_zero() {
        // Nothing came: that is an answer, too.
        let _ = tokio::time::timeout(wait, last.wait_for(|number| *number != query.since)).await;
    }
    let (last, events) = (*last.borrow(), state.control.logged_events(query.since));
    Ok(Json(serde_json::json!({ "last": last, "events": events })).into_response())
}

async fn placement(_: MaySee, Shared(state): Shared<Arc<State>>) -> Answer<Json<Placement>> {
    let table = in_force(&state).await?;
    let loads = state.control.loads().await.map_err(|_| stopped())?;
    Ok(Json(Placement::new(&table, &loads)))
}

async fn healthz(Shared(state): Shared<Arc<State>>) -> Answer<Json<serde_json::Value>> {
    let both = async { tokio::join!(state.control.status(), state.data.stats()) };
    match tokio::time::timeout(HEALTH_MAX, both).await {
        // A thread that has ended makes no caller wait.
        Ok(_) if state.data.has_ended() => Err(ended()),
        Ok((Ok(_), _)) => Ok(Json(serde_json::json!({ "healthy": true }))),
        Ok((Err(_), _)) => Err(stopped()),
        Err(_) => Err(Failure(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("a thread of this node has not answered within {HEALTH_MAX:?}"),
        )),
    }
}

async fn readyz(Shared(state): Shared<Arc<State>>) -> Answer<Json<serde_json::Value>> {
    let not_ready = |why: &str| Err(Failure(StatusCode::SERVICE_UNAVAILABLE, why.into()));
    if state.leaving.load(Ordering::Relaxed) {
        return not_ready("this node is leaving: ask another");
    }
    if state.data.has_ended() {
        return Err(ended());
    }
    let cluster = state.control.status().await.map_err(|_| stopped())?;
    let report = ClusterReport::brief(&cluster);
    let me = cluster.status.me.to_string();
    if !report.members.iter().any(|m| m.id == me) {
        return not_ready(
            report
                .waiting
                .as_deref()
                .unwrap_or("this node is no member yet"),
        );
    }
    if cluster
        .installed
        .as_deref()
        .is_none_or(|t| t.keyspaces.iter().any(|k| k.partitions.is_empty()))
    {
        return not_ready(
            "partitions are not assigned yet: the cluster waits for more members (--members-min)",
        );
    }
    if report.coordinator.is_none() {
        return not_ready(
            report
                .waiting
                .as_deref()
                .unwrap_or("nobody coordinates at the moment"),
        );
    }
    if let Some(other) = report.others.first() {
        return not_ready(&other.to_string());
    }
    if cluster.is_cut_off() {
        return not_ready(
            "this node reaches no other member's data port: is UDP let through to its own (--data), and from it?",
        );
    }
    Ok(Json(serde_json::json!({ "ready": true })))
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    // First of all: whoever compares clocks takes them for those of the moment at which this was
    // asked for.
    let clocks = Clocks::now();
    let (data, longest_pass, cluster, coordinated) = tokio::join!(
        state.data.stats(),
        state.data.longest_pass(),
        state.control.status(),
        state.control.coordinated()
    );
    let (cluster, coordinated) = (cluster.ok(), coordinated.ok().flatten());
    let seen = Seen {
        clocks,
        data: &data,
        longest_pass,
        control: state.control.counted(),
        cluster: cluster.as_ref(),
        coordinated: coordinated.as_deref(),
        certificate: state.identity.certificate(),
    };
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        state.metrics.render(&seen),
    )
}

async fn recover(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let request: RecoverRequest =
        ordered(&state, &headers, body, r#"{"assert_dead": ["NAME", ...]}"#)?;
    if request.assert_dead.is_empty() {
        return Err(Failure(
            StatusCode::BAD_REQUEST,
            "name at least one member that is dead and will not come back".into(),
        ));
    }
    match state.control.recover(request.assert_dead.clone()).await {
        Ok(AdminReply::Done(_)) => Ok(Json(serde_json::json!({ "recovered": true }))),
        Ok(AdminReply::Refused(why)) => {
            let report = state.control.status().await.map_err(|_| stopped())?;
            let hint = strangers(&ClusterReport::brief(&report), &request.assert_dead, &why);
            Err(Failure(StatusCode::CONFLICT, why + &hint))
        }
        Err(_) => Err(stopped()),
    }
}

/// What somebody who may change things sends. That is looked at first: who may not learns nothing
/// else.
fn ordered<T: DeserializeOwned>(
    state: &State,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    expected: &str,
) -> Answer<T> {
    authorize(state, headers)?;
    let body = body.map_err(|e| {
        Failure(
            e.status(),
            format!(
                "the body cannot be read ({}): send {expected}",
                e.body_text()
            ),
        )
    })?;
    // An array would do, too, for its fields in the order in which they are declared here: nobody
    // means that.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(misread(expected, &"it is no JSON object"));
    }
    serde_json::from_slice(&body).map_err(|e| misread(expected, &e))
}

fn misread(expected: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure(StatusCode::BAD_REQUEST, format!("send {expected}: {why}"))
}

async fn keyspaces(Shared(state): Shared<Arc<State>>) -> Answer<Json<Vec<KeyspaceReport>>> {
    let cluster = state.control.status().await.map_err(|_| stopped())?;
    Ok(Json(ClusterReport::new(&cluster).keyspaces))
}

async fn keyspace(
    Shared(state): Shared<Arc<State>>,
    Named(name): Named,
) -> Answer<Json<KeyspaceReport>> {
    let known = async || {
        Ok(ClusterReport::new(&state.control.status().await.map_err(|_| stopped())?).keyspaces)
    };
    let mut keyspaces = known().await?;
    if !keyspaces.iter().any(|k| k.name == name) {
        // Another member may have made it a moment ago.
        state.control.catch_up().await;
        keyspaces = known().await?;
    }
    let unknown = Refused::no_keyspace(&name, keyspaces.iter().map(|k| &k.name)).to_string();
    keyspaces
        .into_iter()
        .find(|k| k.name == name)
        .map(Json)
        .ok_or(Failure(StatusCode::NOT_FOUND, unknown))
}

async fn create_keyspace(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<serde_json::Value>> {
    let expected = r#"{"name": "NAME", "partitions": 1024, "backups": 1}"#;
    let bytes = large(&state, &headers, body, KEYSPACE_BYTES_MAX).await?;
    let mut said: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&bytes).map_err(|e| misread(expected, &e))?;
    // A name beside the options, which know what else there may be.
    let Some(serde_json::Value::String(name)) = said.remove("name") else {
        return Err(misread(expected, &"the name is missing"));
    };
    let options: KeyspaceOptions =
        serde_json::from_value(said.into()).map_err(|e| misread(expected, &e))?;
    let wanted = options.create(&name).map_err(unfit)?;
    administer(&state, AdminRequest::CreateKeyspace(wanted)).await?;
    Ok(Json(serde_json::json!({ "created": name })))
}

async fn alter_keyspace(
    Shared(state): Shared<Arc<State>>,
    Named(name): Named,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let options: KeyspaceOptions = ordered(&state, &headers, body, r#"{"backups": 2}"#)?;
    administer(&state, options.alter(&name).map_err(unfit)?).await?;
    Ok(Json(serde_json::json!({ "altered": name })))
}

async fn split_range(
    Shared(state): Shared<Arc<State>>,
    Named(keyspace): Named,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let SplitRequest { at } = ordered(&state, &headers, body, SPLIT_EXPECTED)?;
    let request = AdminRequest::SplitAt {
        keyspace: keyspace.clone(),
        map: MapId(0),
        key: at.0.into(),
    };
    administer(&state, request).await?;
    Ok(Json(serde_json::json!({ "splitting": keyspace })))
}

async fn merge_ranges(
    Shared(state): Shared<Arc<State>>,
    Named(keyspace): Named,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let SplitRequest { at } = ordered(&state, &headers, body, SPLIT_EXPECTED)?;
    let request = AdminRequest::MergeAt {
        keyspace: keyspace.clone(),
        map: MapId(0),
        key: at.0.into(),
    };
    administer(&state, request).await?;
    Ok(Json(serde_json::json!({ "merging": keyspace })))
}

const SPLIT_EXPECTED: &str = r#"{"at": "KEY"}"#;

async fn drop_keyspace(
    Shared(state): Shared<Arc<State>>,
    Named(name): Named,
    headers: HeaderMap,
) -> Answer<Json<serde_json::Value>> {
    authorize(&state, &headers)?;
    administer(&state, AdminRequest::DropKeyspace { name: name.clone() }).await?;
    Ok(Json(serde_json::json!({ "dropped": name })))
}

async fn planned(_: MaySee, Shared(state): Shared<Arc<State>>) -> Answer<Json<RebalancePlan>> {
    let table = in_force(&state).await?;
    let loads = state.control.loads().await.map_err(|_| stopped())?;
    if let Some(why) = state
        .control
        .status()
        .await
        .map_err(|_| stopped())?
        .halted()
    {
        return Err(Failure(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("nothing is planned: {why}"),
        ));
    }
    let plan = tokio::task::spawn_blocking(move || RebalancePlan::new(&table, &loads))
        .await
        .map_err(|_| stopped())?;
    Ok(Json(plan))
}

/// A body that may be large: whoever may not send it is not listened to.
async fn large(state: &State, headers: &HeaderMap, body: Body, most: usize) -> Answer<Bytes> {
    authorize(state, headers)?;
    let bytes = axum::body::to_bytes(body, most).await;
    bytes.map_err(|e| {
        Failure(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body cannot be read, of which {most} bytes are: {e}"),
        )
    })
}

async fn apply_plan(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<serde_json::Value>> {
    let bytes = large(&state, &headers, body, PLAN_BYTES_MAX).await?;
    let plan: RebalancePlan =
        serde_json::from_slice(&bytes).map_err(|e| misread("what GET /rebalance answers", &e))?;
    let request = plan
        .request(&*in_force(&state).await?)
        .map_err(|why| Failure(StatusCode::CONFLICT, why.to_string()))?;
    administer(&state, request).await?;
    Ok(Json(serde_json::json!({ "applied": plan.goals.len() })))
}

async fn schedule(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<serde_json::Value>> {
    let wanted: Automatic = ordered(
        &state,
        &headers,
        body,
        r#"{"automatic": ["repair", "drain", "place", "copies", "primaries", "hot", "splits", "merges"]}"#,
    )?;
    let schedulers = rebalance::schedulers(&wanted.automatic)
        .map_err(|why| Failure(StatusCode::BAD_REQUEST, why.to_string()))?;
    administer(&state, AdminRequest::Schedule(schedulers)).await?;
    Ok(Json(serde_json::json!({ "automatic": wanted.automatic })))
}

/// The table that this node acts on.
async fn in_force(state: &State) -> Answer<Arc<Table>> {
    let cluster = state.control.status().await.map_err(|_| stopped())?;
    let none = || {
        Failure(
            StatusCode::SERVICE_UNAVAILABLE,
            "this node is no member of a cluster yet".into(),
        )
    };
    cluster.installed.ok_or_else(none)
}

fn unfit(why: ConfigError) -> Failure {
    Failure(StatusCode::BAD_REQUEST, why.0)
}

async fn administer(state: &State, request: AdminRequest) -> Answer<()> {
    match state.control.admin(request).await {
        Ok(AdminReply::Done(_)) => Ok(()),
        Ok(AdminReply::Refused(why)) => Err(Failure(StatusCode::CONFLICT, why)),
        Err(_) => Err(stopped()),
    }
}

/// Names that no member bears: whoever misspelt one is told, whatever else is wrong, and who there
/// is.
fn strangers(report: &ClusterReport, names: &[String], said: &str) -> String {
    let unknown = |n: &&String| !report.members.iter().any(|m| m.name == **n || m.id == **n);
    let unknown: Vec<&str> = names.iter().filter(unknown).map(String::as_str).collect();
    if unknown.is_empty() || report.members.is_empty() {
        return String::new();
    }
    let members: Vec<&str> = report.members.iter().map(|m| m.name.as_str()).collect();
    let members = members.join(", ");
    if unknown.iter().all(|name| said.contains(name)) {
        format!("; there are {members}")
    } else {
        format!(
            "; no member is called {}: there are {members}",
            unknown.join(" or ")
        )
    }
}

/// Compares in a time that says nothing of where two texts differ.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_same_or_not() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }
}
