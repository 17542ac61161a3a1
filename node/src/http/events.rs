//! Events by HTTP: the events that are kept, the next one, or a stream of them.

use super::HttpState;
use super::credentials::HttpCaller;
use super::failure::{HttpAnswer, HttpFailure};
use crate::events::{ClusterEvent, Events, LoggedEvent};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State as Shared};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long `GET /events` may wait for an event. A stream sends a sign of life this often.
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
        return Ok(stream(state, holder, seen.unwrap_or(query.since)));
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

/// How far a stream of events has got.
struct EventStream {
    events: Events,
    stopped: watch::Receiver<bool>,
    state: Arc<HttpState>,
    holder: HttpCaller,
}

impl EventStream {
    /// The next event as text, or a comment if there was none for a while. `None`: the node stops,
    /// or takes the reader's token no more.
    async fn next(&mut self) -> Option<String> {
        let text = self.wait().await?;
        self.state
            .credentials
            .still_takes(&self.holder)
            .then_some(text)
    }

    async fn wait(&mut self) -> Option<String> {
        tokio::select! {
            event = self.events.next() => Some(match event? {
                ClusterEvent::Event(event) => sent(&event),
                ClusterEvent::Lagged(count) => format!(": {count} events are missing\n\n"),
            }),
            () = super::wait(&mut self.stopped) => None,
            // An idle connection would be closed, and the reader could not tell it from a cut one.
            () = tokio::time::sleep(WAIT_MAX) => Some(": nothing\n\n".into()),
        }
    }
}

/// Server-sent events after the one with this number.
fn stream(state: Arc<HttpState>, holder: HttpCaller, since: u64) -> Response {
    let follower = EventStream {
        events: state.admin.events().after(since),
        stopped: state.stopped.clone(),
        state,
        holder,
    };
    let texts = futures_util::stream::unfold(follower, |mut follower| async move {
        let text = follower.next().await?;
        Some((Ok::<_, Infallible>(text), follower))
    });
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (head, Body::from_stream(texts)).into_response()
}

/// An event in the format of server-sent events.
fn sent(event: &LoggedEvent) -> String {
    let json = serde_json::to_string(event).unwrap_or_default();
    let (id, kind) = (event.number, event.event.kind());
    format!("id: {id}\nevent: {kind}\ndata: {json}\n\n")
}
