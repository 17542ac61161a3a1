//! The paths of HTTP, and what holds for all of them: limits, deadlines, and no query options that
//! would be ignored.

use super::HttpState;
use super::failure::HttpFailure;
use super::guard::RouteNeeds;
#[cfg(feature = "resp")]
use super::users;
use super::{changes, events, guard, maps, probes, reports, tokens, weights};
use crate::report::rebalance::PLAN_BYTES_MAX;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Request, State as Shared};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use std::sync::Arc;
use std::time::Duration;

/// Largest body of a request.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;
/// Largest body for a keyspace: 4 MiB of splits, and each byte of them may be written as five.
pub(super) const KEYSPACE_BYTES_MAX: usize = 24 << 20;
/// How long an answer may take: longer than any change.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// How long it may take to find out why there is no answer.
const REASON_MAX: Duration = Duration::from_secs(1);

/// The name in a path.
pub(super) struct PathName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = HttpFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpFailure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name))
            .map_err(|why| HttpFailure::bad_request(format!("the path has no name: {why}")))
    }
}

pub(super) fn router(state: Arc<HttpState>) -> Router {
    let guarded = |router: Router<Arc<HttpState>>, needs: RouteNeeds| {
        let state = (state.clone(), needs);
        router.route_layer(middleware::from_fn_with_state(state, guard::admit))
    };
    let probes = Router::new()
        .route("/healthz", get(probes::healthz))
        .route("/readyz", get(probes::readyz));
    #[cfg(feature = "resp")]
    let probes = probes.merge(guarded(changes_of_users(), RouteNeeds::Users));
    let probes = probes.merge(guarded(values(), RouteNeeds::Users));
    probes
        .merge(guarded(state_of_the_cluster(), RouteNeeds::Read))
        .merge(guarded(keys_and_places(), RouteNeeds::Data))
        .merge(guarded(changes_and_credentials(), RouteNeeds::Operate))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), in_time))
        .layer(middleware::from_fn(not_too_long))
        .layer(middleware::from_fn(no_query_of_a_change))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            guard::addressed,
        ))
        .with_state(state)
}

/// Without keys.
fn state_of_the_cluster() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/status", get(reports::status))
        .route("/metrics", get(probes::metrics))
        .route("/balance", get(reports::balance))
        .route("/moves", get(reports::moves))
        .route("/events", get(events::events))
        .route("/keyspaces", get(reports::keyspaces))
        .route("/keyspaces/{name}", get(reports::keyspace))
        .route("/maps", get(maps::list))
}

/// Where ranges begin, hot keys, and where data lies.
fn keys_and_places() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/table", get(reports::table))
        .route("/loads", get(reports::loads))
        .route("/placement", get(reports::placement))
        .route("/rebalance", get(reports::rebalance_plan))
        .route("/split", get(reports::split))
}

fn changes_and_credentials() -> Router<Arc<HttpState>> {
    let create_keyspace =
        post(changes::create_keyspace).layer(DefaultBodyLimit::max(KEYSPACE_BYTES_MAX));
    let apply_plan = post(changes::apply_plan).layer(DefaultBodyLimit::max(PLAN_BYTES_MAX));
    let router = Router::new();
    #[cfg(feature = "resp")]
    let router = router.route("/users", get(users::list));
    router
        .route("/trust", get(reports::trust))
        .route("/tokens", get(tokens::list))
        .route("/tokens/{name}", put(tokens::create).delete(tokens::revoke))
        .route("/weights", get(weights::list))
        .route(
            "/weights/{name}",
            put(weights::allow).delete(weights::forget),
        )
        .route("/recover", post(changes::recover))
        .route("/split/keep", post(changes::keep_half))
        .route("/moves/cancel", post(changes::cancel_moves))
        .route("/balance", patch(changes::set_balance))
        .route("/members/{name}", delete(changes::remove_lost))
        .route("/gone/{name}", delete(changes::forget))
        .route(
            "/members/{name}/drain",
            post(changes::drain).delete(changes::fill),
        )
        .route("/rebalance", patch(changes::schedule).merge(apply_plan))
        .route("/keyspaces", create_keyspace)
        .route(
            "/keyspaces/{name}",
            patch(changes::alter_keyspace).delete(changes::drop_keyspace),
        )
        .route(
            "/keyspaces/{name}/maps/{map}",
            patch(maps::limit).delete(maps::drop),
        )
        .route("/keyspaces/{name}/split", post(changes::split_range))
        .route("/keyspaces/{name}/merge", post(changes::merge_ranges))
}

/// The users of Redis clients.
#[cfg(feature = "resp")]
fn changes_of_users() -> Router<Arc<HttpState>> {
    let set = put(users::set).layer(DefaultBodyLimit::max(users::USER_BYTES_MAX));
    Router::new().route("/users/{name}", set.delete(users::remove))
}

/// Keys with their values.
fn values() -> Router<Arc<HttpState>> {
    Router::new().route("/split/keys", get(reports::split_keys))
}

/// Refuses a body whose declared length is above the limit, before it is sent.
async fn not_too_long(request: Request, next: Next) -> Response {
    let length = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let most = PLAN_BYTES_MAX.max(KEYSPACE_BYTES_MAX);
    if length.is_some_and(|length| length > most as u64) {
        return HttpFailure(StatusCode::PAYLOAD_TOO_LARGE, too_large(most)).into_response();
    }
    next.run(request).await
}

/// The answer to a caller whose body exceeds this limit.
pub(super) fn too_large(most: usize) -> String {
    format!("the body is too large: send at most {most} bytes")
}

/// Refuses a change with a query string: its options belong in the body, and options in a query
/// would be ignored silently.
async fn no_query_of_a_change(request: Request, next: Next) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    if let Some(query) = request
        .uri()
        .query()
        .filter(|query| !reads && !query.is_empty())
    {
        let why =
            format!("`?{query}` is not taken: give the options of a change in the body, as JSON");
        return HttpFailure::bad_request(why).into_response();
    }
    next.run(request).await
}

/// Ends a request that takes too long. Changes have shorter limits of their own.
async fn in_time(Shared(state): Shared<Arc<HttpState>>, request: Request, next: Next) -> Response {
    if let Ok(response) = tokio::time::timeout(ANSWER_MAX, next.run(request)).await {
        return response;
    }
    let status = tokio::time::timeout(REASON_MAX, state.control.status()).await;
    let why = match status {
        Ok(Ok(cluster)) => cluster.halted(),
        _ => None,
    };
    match why {
        Some(why) => HttpFailure::unavailable(format!("no answer within {ANSWER_MAX:?}: {why}")),
        None => HttpFailure(
            StatusCode::GATEWAY_TIMEOUT,
            format!("no answer within {ANSWER_MAX:?}: try again"),
        ),
    }
    .into_response()
}

/// The methods and paths of changes.
const CHANGES: &str = "POST for /recover, /split/keep, /keyspaces, /keyspaces/NAME/split, \
    /keyspaces/NAME/merge, /rebalance, /moves/cancel and /members/NAME/drain, PATCH and DELETE \
    for /keyspaces/NAME and /keyspaces/NAME/maps/MAP, PATCH for /rebalance and /balance, \
    PUT and DELETE for /tokens/NAME, /users/NAME and /weights/NAME, DELETE for /members/NAME, /members/NAME/drain and /gone/NAME";

async fn unknown() -> HttpFailure {
    let reports = "/status, /table, /loads, /placement, /keyspaces, /maps, /moves, /balance, \
        /rebalance, /split, /split/keys, /events, /tokens, /users, /weights, /trust, /healthz, \
        /readyz and /metrics";
    HttpFailure(
        StatusCode::NOT_FOUND,
        format!("there is no such path: with GET there are {reports}; {CHANGES}"),
    )
}

async fn not_allowed() -> HttpFailure {
    HttpFailure(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("this path does not take this method: use GET to read, {CHANGES}"),
    )
}
