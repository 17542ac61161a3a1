//! Maps by HTTP.

use super::State;
use super::changes::{Body, Done, Sent, done};
use super::failure::{Answer, Failure};
use crate::admin::maps::MapLimitOptions;
use crate::report::maps::MapSizeReport;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Shared};
use std::sync::Arc;

/// The names of a keyspace and a map in a path.
type Names = Result<Path<(String, String)>, PathRejection>;

impl Body for MapLimitOptions {
    const EXAMPLE: &'static str = r#"{"max_entries": 10000, "max_bytes": "200mb"}"#;
}

pub(super) async fn list(Shared(state): Shared<Arc<State>>) -> Answer<Json<Vec<MapSizeReport>>> {
    Ok(Json(state.admin.maps().await?))
}

pub(super) async fn limit(
    Shared(state): Shared<Arc<State>>,
    names: Names,
    Sent(options): Sent<MapLimitOptions>,
) -> Done {
    let (keyspace, map) = named(names)?;
    state.admin.limit_map(&keyspace, &map, &options).await?;
    done("limited", map)
}

pub(super) async fn drop(Shared(state): Shared<Arc<State>>, names: Names) -> Done {
    let (keyspace, map) = named(names)?;
    state.admin.drop_map(&keyspace, &map).await?;
    done("dropped", map)
}

fn named(names: Names) -> Answer<(String, String)> {
    let named = names.map(|Path(names)| names);
    named.map_err(|why| Failure::bad_request(format!("the path has no such names: {why}")))
}
