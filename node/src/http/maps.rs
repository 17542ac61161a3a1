//! Maps by HTTP.

use super::HttpState;
use super::changes::{ChangeBody, Done, SentChange, done};
use super::failure::{HttpAnswer, HttpFailure};
use crate::admin::maps::MapLimitOptions;
use crate::report::maps::MapSizeReport;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Shared};
use std::sync::Arc;

/// The names of a keyspace and a map in a path.
type MapNames = Result<Path<(String, String)>, PathRejection>;

impl ChangeBody for MapLimitOptions {
    const EXAMPLE: &'static str = r#"{"max_entries": 10000, "max_bytes": "200mb"}"#;
}

pub(super) async fn list(
    Shared(state): Shared<Arc<HttpState>>,
) -> HttpAnswer<Json<Vec<MapSizeReport>>> {
    Ok(Json(state.admin.maps().await?))
}

pub(super) async fn limit(
    Shared(state): Shared<Arc<HttpState>>,
    names: MapNames,
    SentChange(options): SentChange<MapLimitOptions>,
) -> Done {
    let (keyspace, map) = named(names)?;
    state.admin.limit_map(&keyspace, &map, &options).await?;
    done("limited", map)
}

pub(super) async fn drop(Shared(state): Shared<Arc<HttpState>>, names: MapNames) -> Done {
    let (keyspace, map) = named(names)?;
    state.admin.drop_map(&keyspace, &map).await?;
    done("dropped", map)
}

fn named(names: MapNames) -> HttpAnswer<(String, String)> {
    let named = names.map(|Path(names)| names);
    named.map_err(|why| HttpFailure::bad_request(format!("the path has no such names: {why}")))
}
