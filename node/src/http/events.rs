//! Events by HTTP: the events that are kept, the next one, or a stream of them.

use super::HttpState;
use super::credentials::HttpCaller;
use super::failure::{HttpAnswer, HttpFailure};
use super::server_sent::{self, SseSource};
use crate::events::{ClusterEvent, Events, LoggedEvent};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State as Shared};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long `GET /events` may wait for an event.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Parameters of `GET /events`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only events after the one with this number.
    #[serde(default)]
    since: u64,
    /// If there are none, waits this many milliseconds for one, 5000 at most.
    #[serde(default)]
    wait: u64,
    /// Stays open and sends each further event, as server-sent events.
    #[serde(default)]
    follow: bool,
}

/// The answer of `GET /events`.
#[derive(Debug, Serialize, Deserialize)]
pub struct EventsAnswer<E> {
    /// The number of the last event.
    pub last: u64,
    /// The events.
    pub events: Vec<E>,
}

pub(super) async fn events(
    Shared(state): Shared<Arc<HttpState>>,
    Extension(holder): Extension<HttpCaller>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> HttpAnswer<Response> {
    let usage =
        "there is /events, with since=NUMBER, wait=MILLISECONDS, or follow=true, joined by &";
    let Query(query) = query.map_err(|_| HttpFailure::bad_request(usage))?;
    if query.follow {
        // A browser that reconnects sends the number of the last event that it has seen.
        let seen = headers
            .get("last-event-id")
            .and_then(|id| id.to_str().ok()?.parse().ok());
        server_sent::from_own_page(&headers)?;
        let events = state.admin.events().after(seen.unwrap_or(query.since));
        return Ok(server_sent::follow(state, holder, EventSource(events)));
    }
    let mut last = state.admin.last_event();
    let wait = Duration::from_millis(query.wait).min(WAIT_MAX);
    if !wait.is_zero() {
        // If no event comes in time, the answer is an empty list.
        let _ = tokio::time::timeout(wait, last.wait_for(|number| *number != query.since)).await;
    }
    let (last, events) = (*last.borrow(), state.admin.logged_events(query.since));
    Ok(Json(EventsAnswer { last, events }).into_response())
}

/// The events of this node, one after the other.
struct EventSource(Events);

impl SseSource for EventSource {
    async fn next(&mut self) -> Option<String> {
        Some(match self.0.next().await? {
            ClusterEvent::Event(event) => sent(&event),
            ClusterEvent::Lagged(count) => missing(count),
        })
    }
}

/// A comment that says how many events a reader was too slow for.
pub(super) fn missing(count: u64) -> String {
    format!(": {count} events are missing\n\n")
}

/// An event in the format of server-sent events, with its number.
fn sent(event: &LoggedEvent) -> String {
    let json = serde_json::to_string(event).unwrap_or_default();
    let (id, kind) = (event.number, event.event.kind());
    format!("id: {id}\n{}", server_sent::sent(kind, &json))
}
