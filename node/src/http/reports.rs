//! Reports by HTTP. Each route asks [`Admin`](crate::admin::Admin) and encodes its answer.

use super::State;
use super::failure::{Answer, Failure};
use super::routes::PathName;
use crate::report::loads::{LoadsReport, Placement};
use crate::report::moves::{BalanceReport, MovesReport};
use crate::report::rebalance::RebalancePlan;
use crate::report::status::{ClusterReport, KeyspaceReport};
use crate::report::table::{TableReport, TableVersion};
use crate::report::trust::TrustReport;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use serde::Deserialize;
use std::sync::Arc;

/// Parameters of `GET /table`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableQuery {
    /// Only what has changed since this table.
    since: Option<String>,
}

pub(super) async fn status(Shared(state): Shared<Arc<State>>) -> Answer<Json<ClusterReport>> {
    Ok(Json(state.admin.status().await?))
}

pub(super) async fn table(
    Shared(state): Shared<Arc<State>>,
    query: Result<Query<TableQuery>, QueryRejection>,
) -> Answer<Json<TableReport>> {
    let Query(query) = query
        .map_err(|_| Failure::bad_request("there is /table, and /table?since=TERM.VERSION"))?;
    let Some(since) = query.since else {
        return Ok(Json(state.admin.table().await?));
    };
    let since: TableVersion = since
        .parse()
        .map_err(|why: String| Failure::bad_request(why))?;
    Ok(Json(state.admin.table_since(since).await?))
}

/// The fingerprints would help to guess a phrase.
pub(super) async fn trust(Shared(state): Shared<Arc<State>>) -> Answer<Json<TrustReport>> {
    let identity = state.identity.clone();
    identity.clone().keep().await;
    let certificate = identity.certificate();
    let own = certificate.ends.iter().find(|(port, _)| *port == "listen");
    Ok(Json(TrustReport {
        name: identity.name().to_owned(),
        secrets: if identity.is_loopback_only() {
            Vec::new()
        } else {
            identity.fingerprints()
        },
        certificate_ends: own.map(|(_, ends)| *ends),
        reloads: certificate.reloads,
        reloads_failed: certificate.reloads_failed,
        ports_behind: identity.ports_behind(),
    }))
}

pub(super) async fn loads(Shared(state): Shared<Arc<State>>) -> Answer<Json<LoadsReport>> {
    Ok(Json(state.admin.loads().await?))
}

pub(super) async fn placement(Shared(state): Shared<Arc<State>>) -> Answer<Json<Placement>> {
    Ok(Json(state.admin.placement().await?))
}

pub(super) async fn moves(Shared(state): Shared<Arc<State>>) -> Answer<Json<MovesReport>> {
    Ok(Json(state.admin.moves().await?))
}

pub(super) async fn balance(Shared(state): Shared<Arc<State>>) -> Answer<Json<BalanceReport>> {
    Ok(Json(state.admin.balance().await?))
}

pub(super) async fn rebalance_plan(
    Shared(state): Shared<Arc<State>>,
) -> Answer<Json<RebalancePlan>> {
    Ok(Json(state.admin.rebalance_plan().await?))
}

pub(super) async fn keyspaces(
    Shared(state): Shared<Arc<State>>,
) -> Answer<Json<Vec<KeyspaceReport>>> {
    Ok(Json(state.admin.keyspaces().await?))
}

pub(super) async fn keyspace(
    Shared(state): Shared<Arc<State>>,
    PathName(name): PathName,
) -> Answer<Json<KeyspaceReport>> {
    Ok(Json(state.admin.keyspace(&name).await?))
}
