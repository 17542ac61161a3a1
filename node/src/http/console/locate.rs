//! Where a key is: its partition, and the members that hold it.

use super::super::HttpState;
use super::super::failure::{HttpAnswer, HttpFailure};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use doyen_placement::{MapId, MemberId, ReplicaState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Parameters of `GET /console/locate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct LocateQuery {
    key: String,
    /// A keyspace, and a map of it; without them, the database 0 of Redis clients.
    keyspace: Option<String>,
    map: Option<String>,
}

/// Where a key is, or would be.
pub(in super::super) async fn locate(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<LocateQuery>, QueryRejection>,
) -> HttpAnswer<Json<Value>> {
    let Query(query) = query.map_err(|_| {
        let there_is = "there is /console/locate?key=KEY, with &keyspace=NAME and &map=NAME";
        HttpFailure::bad_request(there_is)
    })?;
    let absent = |what: String| HttpFailure(StatusCode::NOT_FOUND, what);
    let table = state
        .data
        .table()
        .ok_or_else(|| HttpFailure::unavailable("this node is not a member of a cluster yet"))?;
    let keyspace = match &query.keyspace {
        Some(name) => table.keyspace_named(name),
        None => table.keyspaces.first(),
    };
    let keyspace = keyspace.ok_or_else(|| {
        let name = query.keyspace.as_deref().unwrap_or("default");
        absent(format!("there is no keyspace `{name}`: ask GET /keyspaces"))
    })?;
    let map = match &query.map {
        None => MapId(0),
        Some(name) => {
            let mut maps = table.maps.iter();
            let map = maps.find(|m| m.keyspace == keyspace.id && m.name == *name);
            let of = &keyspace.name;
            map.ok_or_else(|| absent(format!("{of} has no map `{name}`: ask GET /maps")))?
                .id
        }
    };
    let partition = keyspace.partition_of(map, query.key.as_bytes());
    let partition = partition.and_then(|id| keyspace.partition(id));
    let partition = partition.ok_or_else(|| {
        HttpFailure::unavailable("partitions are not assigned yet: wait for more members")
    })?;
    let name = |id: MemberId| {
        table
            .member(id)
            .map_or_else(|| id.to_string(), |m| m.name.clone())
    };
    let of = |state| {
        let replicas = partition.replicas.iter();
        replicas
            .filter(move |replica| replica.state == state)
            .map(|replica| name(replica.member))
            .collect::<Vec<_>>()
    };
    Ok(Json(json!({
        "keyspace": keyspace.name,
        "partition": partition.id.0,
        "in_sync": of(ReplicaState::InSync),
        "learners": of(ReplicaState::Learner),
    })))
}
