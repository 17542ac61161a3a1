//! Serves the rows of the [table](super::api), and holds what is true for all of them: limits,
//! deadlines, and no query options that would be ignored.

use super::api::{ALL, KEYSPACE_BYTES_MAX};
use super::failure::HttpFailure;
use super::row::too_large;
use super::{HttpState, guard};
use crate::report::rebalance::PLAN_BYTES_MAX;
use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take: longer than any change.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// How long it may take to find out why there is no answer.
const REASON_MAX: Duration = Duration::from_secs(1);

pub(super) fn router(state: Arc<HttpState>) -> Router {
    let mut router = Router::new();
    for row in ALL {
        let mut served = row.serve();
        if let Some(needs) = row.route().needs {
            let judged = (state.clone(), needs);
            served = served.route_layer(middleware::from_fn_with_state(judged, guard::admit));
        }
        router = router.route(row.route().path, served);
    }
    router
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(state.clone(), in_time))
        .layer(middleware::from_fn(not_too_long))
        .layer(middleware::from_fn(no_query_of_a_change))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            guard::addressed,
        ))
        .with_state(state)
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

/// A path as people read it: `/tokens/NAME`.
pub(super) fn shown(path: &str) -> String {
    let steps = path.split('/').map(|step| match step.strip_prefix('{') {
        Some(name) => name.trim_end_matches('}').to_uppercase(),
        None => step.to_owned(),
    });
    steps.collect::<Vec<_>>().join("/")
}

/// `a, b and c`.
fn listed(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

/// The methods and paths of changes: `PUT and DELETE for /tokens/NAME`.
fn changes() -> String {
    let routes = ALL.iter().map(|row| row.route());
    let changes: Vec<_> = routes.filter(|route| route.method != Method::GET).collect();
    let mut paths: Vec<(&str, Vec<String>)> = Vec::new();
    for route in &changes {
        let of = paths.iter_mut().find(|(path, _)| *path == route.path);
        match of {
            Some((_, methods)) => methods.push(route.method.to_string()),
            None => paths.push((route.path, vec![route.method.to_string()])),
        }
    }
    let mut groups: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for (path, methods) in paths {
        match groups.iter_mut().find(|(same, _)| *same == methods) {
            Some((_, paths)) => paths.push(shown(path)),
            None => groups.push((methods, vec![shown(path)])),
        }
    }
    let groups = groups.iter();
    let groups =
        groups.map(|(methods, paths)| format!("{} for {}", listed(methods), listed(paths)));
    groups.collect::<Vec<_>>().join(", ")
}

async fn unknown() -> HttpFailure {
    let routes = ALL.iter().map(|row| row.route());
    let reports = routes.filter(|route| route.method == Method::GET);
    let reports: Vec<String> = reports.map(|route| shown(route.path)).collect();
    let (reports, changes) = (listed(&reports), changes());
    HttpFailure(
        StatusCode::NOT_FOUND,
        format!("there is no such path: with GET there are {reports}; {changes}"),
    )
}

async fn not_allowed() -> HttpFailure {
    HttpFailure(
        StatusCode::METHOD_NOT_ALLOWED,
        format!(
            "this path does not take this method: use GET to read, {}",
            changes()
        ),
    )
}
