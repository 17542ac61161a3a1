//! The console: one page that shows the cluster, and the stream that keeps it up to date.
//!
//! ```text
//!   GET /                  the page; its files are in `console/page`, compressed at build
//!   GET /console/stream    everything that the page shows, as server-sent events
//!   GET /console/history   the last hour of one member
//!   GET /console/locate    where a key is
//!   GET /console/clients   the Redis clients of one member, and its slow commands
//!   GET /console/keys, GET /console/value, PUT, PATCH, DELETE /console/key    keys and values
//! ```
//!
//! The page asks for changes by the rows of `api.rs`, like every other program. It has no content
//! of its own, so anyone may load it; what it shows needs a token. [`ConsoleFeed`] looks at the
//! cluster once for all pages that are open, and not at all if none is.

mod clients;
mod edits;
mod feed;
mod hour;
mod keys;
mod locate;
mod looks;
mod page;
mod sampler;

pub(super) use clients::{answer_members, clients};
pub(super) use edits::{DeletedKey, KeyLifetime, WrittenKey, delete, expire, write};
pub(super) use feed::{ConsoleFeed, stream};
pub(super) use keys::{keys, value};
pub(super) use locate::locate;
pub(super) use page::{file, index};
pub(super) use sampler::sample;

use super::HttpState;
use super::failure::{HttpAnswer, HttpFailure};
use super::reports::table_of;
use crate::history::{INTERVAL, Samples};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Parameters of `GET /console/history`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    member: String,
}

/// The last hour of a member.
pub(super) async fn history(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> HttpAnswer<Json<Value>> {
    let Query(query) =
        query.map_err(|_| HttpFailure::bad_request("there is /console/history?member=NAME"))?;
    let table = table_of(&state)?;
    let member = table.members.iter().find(|m| m.name == query.member);
    let member = member.ok_or_else(|| {
        let why = format!("there is no member `{}`: ask GET /status", query.member);
        HttpFailure(StatusCode::NOT_FOUND, why)
    })?;
    let samples = state.control.history(member.id, 0).await;
    let samples = samples.map_err(|_| HttpFailure::stopped())?;
    Ok(Json(columns(&samples)))
}

/// Samples as columns: a list for each figure, oldest first.
fn columns(samples: &Samples) -> Value {
    let all = &samples.samples;
    let column =
        |of: fn(&crate::history::Sample) -> Option<u64>| all.iter().map(of).collect::<Vec<_>>();
    json!({
        "seconds": INTERVAL.as_secs(),
        "commands": column(|s| Some(s.commands)),
        "operations": column(|s| Some(s.operations)),
        "errors": column(|s| Some(s.errors)),
        "p50_us": column(|s| s.p50_us),
        "p99_us": column(|s| s.p99_us),
        "hits": column(|s| Some(s.hits)),
        "misses": column(|s| Some(s.misses)),
        "client_bytes": column(|s| Some(s.client_bytes)),
        "peer_bytes": column(|s| Some(s.peer_bytes)),
        "memory": column(|s| Some(s.memory)),
        "memory_max": column(|s| Some(s.memory_max)),
        "clients": column(|s| Some(s.clients)),
    })
}
