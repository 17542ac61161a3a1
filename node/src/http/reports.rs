//! Reports by HTTP that take options, or that are more than a question to
//! [`Admin`](crate::admin::Admin).

use super::HttpState;
use super::failure::{HttpAnswer, HttpFailure};
use super::row::PathNames;
use crate::report::split::{HalfKeys, HalfReport, cursor_of};
use crate::report::status::KeyspaceReport;
use crate::report::table::{TableReport, TableVersion};
use crate::report::trust::TrustReport;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use doyen_engine::{Committed, KeysWanted};
use doyen_placement::{Lineage, PartitionId, PartitionRef, Table};
use serde::Deserialize;
use std::sync::Arc;

/// Parameters of `GET /table`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableQuery {
    /// Only what has changed since this table.
    since: Option<String>,
}

pub(super) async fn table(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<TableQuery>, QueryRejection>,
) -> HttpAnswer<Json<TableReport>> {
    let Query(query) = query
        .map_err(|_| HttpFailure::bad_request("there is /table, and /table?since=TERM.VERSION"))?;
    let Some(since) = query.since else {
        return Ok(Json(state.admin.table().await?));
    };
    let since: TableVersion = since
        .parse()
        .map_err(|why: String| HttpFailure::bad_request(why))?;
    Ok(Json(state.admin.table_since(since).await?))
}

pub(super) async fn trust(state: Arc<HttpState>) -> HttpAnswer<TrustReport> {
    let identity = state.identity.clone();
    identity.clone().keep().await;
    let certificate = identity.certificate();
    let own = certificate.ends.iter().find(|(port, _)| *port == "listen");
    Ok(TrustReport {
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
        rotation: identity.rotation(),
    })
}

pub(super) async fn keyspace(
    Shared(state): Shared<Arc<HttpState>>,
    PathNames([name]): PathNames<1>,
) -> HttpAnswer<Json<KeyspaceReport>> {
    Ok(Json(state.admin.keyspace(&name).await?))
}

/// What this node holds of the time since recoveries.
pub(super) async fn split(state: Arc<HttpState>) -> HttpAnswer<HalfReport> {
    let table = table_of(&state)?;
    let stopped = |_| HttpFailure::unavailable("this node has stopped");
    let cluster = state.control.status().await.map_err(stopped)?;
    let lacks = cluster.status.split.and_then(|split| split.lacks);
    let since = state.data.since_recovery().await;
    Ok(HalfReport::new(&table, lacks, &since))
}

/// Parameters of `GET /split/keys`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysQuery {
    keyspace: String,
    partition: u32,
    lineage: Option<u32>,
    seq: Option<u64>,
    after: Option<String>,
}

/// A page of the keys that were written since then.
pub(super) async fn split_keys(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<KeysQuery>, QueryRejection>,
) -> HttpAnswer<Json<HalfKeys>> {
    let Query(query) = query.map_err(|why| {
        let there_is = "there is /split/keys?keyspace=NAME&partition=N, with &lineage=N&seq=N of a \
                        mark, and &after=NEXT";
        HttpFailure::bad_request(format!("{there_is}: {}", why.body_text()))
    })?;
    let table = table_of(&state)?;
    let Some(keyspace) = table.keyspace_named(&query.keyspace) else {
        let why = format!("there is no keyspace `{}`: ask GET /split", query.keyspace);
        return Err(HttpFailure(StatusCode::NOT_FOUND, why));
    };
    let after = match query.after {
        Some(text) => Some(cursor_of(&text).ok_or_else(|| {
            HttpFailure::bad_request("`after` is what the page before this one had as `next`")
        })?),
        None => None,
    };
    let since = match (query.lineage, query.seq) {
        (Some(lineage), Some(seq)) => Some(Committed {
            lineage: Lineage(lineage),
            seq,
        }),
        (None, None) => None,
        _ => {
            return Err(HttpFailure::bad_request(
                "give both `lineage` and `seq`, or neither",
            ));
        }
    };
    let wanted = KeysWanted {
        at: PartitionRef {
            keyspace: keyspace.id,
            partition: PartitionId(query.partition),
        },
        since,
        after,
    };
    let page = state.data.keys_since(wanted).await;
    let page = page.ok_or_else(|| {
        let why = "this node does not hold all of that partition: ask another member, or wait until \
                   copies, splits and merges have ended";
        HttpFailure(StatusCode::NOT_FOUND, why.into())
    })?;
    Ok(Json(HalfKeys::new(&table, page)))
}

/// The table that this node acts on.
pub(super) fn table_of(state: &HttpState) -> HttpAnswer<Arc<Table>> {
    let table = state.data.table();
    table.ok_or_else(|| HttpFailure::unavailable("this node is not a member of a cluster yet"))
}
