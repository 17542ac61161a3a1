//! Requests of orchestrators and Prometheus: whether the node lives, whether it serves, and its
//! metrics.

use super::HttpState;
use super::failure::{HttpAnswer, HttpFailure};
use crate::report::status::ClusterReport;
use axum::Json;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use doyen_gossip::agreement::Half;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the node's threads may take to answer `/healthz`.
const HEALTH_MAX: Duration = Duration::from_secs(1);

pub(super) async fn healthz(Shared(state): Shared<Arc<HttpState>>) -> HttpAnswer<Json<Value>> {
    let both = async { tokio::join!(state.control.status(), state.data.stats()) };
    match tokio::time::timeout(HEALTH_MAX, both).await {
        // If a thread has ended, the caller need not wait.
        Ok(_) if state.data.has_ended() => Err(ended()),
        Ok((Ok(_), _)) => Ok(Json(json!({ "healthy": true }))),
        Ok((Err(_), _)) => Err(HttpFailure::stopped()),
        Err(_) => Err(HttpFailure::unavailable(format!(
            "a thread of this node has not answered within {HEALTH_MAX:?}: \
             if this goes on, start the node again"
        ))),
    }
}

pub(super) async fn readyz(Shared(state): Shared<Arc<HttpState>>) -> HttpAnswer<Json<Value>> {
    if state.leaving.load(Ordering::Relaxed) {
        return Err(HttpFailure::unavailable(
            "this node is leaving: ask another",
        ));
    }
    if state.data.has_ended() {
        return Err(ended());
    }
    let cluster = state.control.status().await;
    let cluster = cluster.map_err(|_| HttpFailure::stopped())?;
    let report = ClusterReport::brief(&cluster);
    // Without what to type: programs read this, and at a node that is cut off, what a person would
    // type here does harm.
    let waits_for = |otherwise: &str| {
        let why = cluster.status.why.as_deref().unwrap_or(otherwise);
        Err(HttpFailure::unavailable(why))
    };
    let me = cluster.status.me.to_string();
    if !report.members.iter().any(|m| m.id == me) {
        return waits_for("this node is no member yet");
    }
    let unassigned =
        |t: &doyen_placement::Table| t.keyspaces.iter().any(|k| k.partitions.is_empty());
    if cluster.installed.as_deref().is_none_or(unassigned) {
        return Err(HttpFailure::unavailable(
            "partitions are not assigned yet: the cluster waits for more members (--members-min)",
        ));
    }
    if report.coordinator.is_none() {
        return waits_for("no member coordinates the cluster at the moment");
    }
    if let Some(other) = report.others.first() {
        return Err(HttpFailure::unavailable(other.to_string()));
    }
    if let Some(split) = cluster.status.split.as_ref()
        && split.half != Half::Serves
    {
        return Err(HttpFailure::unavailable(split.to_string()));
    }
    if cluster.is_cut_off() {
        return Err(HttpFailure::unavailable(
            "this node reaches no other member's data port: is UDP let through to its own \
             (--data), and from it?",
        ));
    }
    Ok(Json(json!({ "ready": true })))
}

fn ended() -> HttpFailure {
    HttpFailure::unavailable(
        "a data thread of this node has ended, and what it held is gone: start this node again",
    )
}

pub(super) async fn metrics(Shared(state): Shared<Arc<HttpState>>) -> impl IntoResponse {
    let head = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (head, state.metrics.text().await)
}
