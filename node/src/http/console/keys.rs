//! Keys and their values, for people who look for one. A caller that may do that may read all data,
//! so each row needs the operators' token, as `GET /split/keys` does.
//!
//! A page of keys goes through the partitions one after the other; a page of a value is what the
//! procedures of its type answer ([`browse`]).

use super::super::HttpState;
use super::super::failure::{HttpAnswer, HttpFailure};
use super::super::reports::table_of;
use super::locate::{key_of, key_of_query, place_of};
use crate::error::Error;
use crate::report::split::AnyBytes;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use bytes::Bytes;
use doyen_engine::browse::{self, ValuePage};
use doyen_engine::op::{Action, Kind, Operation, Outcome, PartitionAction, PartitionOperation};
use doyen_placement::{KeyspaceId, MapId, PartitionId};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// About how many keys a page has.
const KEYS: u32 = 100;
/// How long a page may look for keys: most partitions may have none.
const LOOKED_MAX: Duration = Duration::from_secs(2);
/// Bytes of a string that a page has, and about how many fields of another value.
const VALUE_BYTES: u32 = 64 << 10;
const VALUE_FIELDS: u32 = 100;

/// Parameters of `GET /console/keys`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct KeysListQuery {
    keyspace: Option<String>,
    map: Option<String>,
    database: Option<u32>,
    /// Only keys that begin with these bytes.
    #[serde(rename = "prefix-base64")]
    prefix: Option<String>,
    /// What the page before had as `next`.
    after: Option<String>,
}

/// Parameters of `GET /console/value`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ValueQuery {
    keyspace: Option<String>,
    map: Option<String>,
    database: Option<u32>,
    key: Option<String>,
    #[serde(rename = "key-base64")]
    key_base64: Option<String>,
    /// What the page before had as `next`.
    after: Option<u64>,
}

/// A key, and the state that can reach it.
pub(super) struct BrowsedKey<'a> {
    pub(super) state: &'a HttpState,
    pub(super) keyspace: KeyspaceId,
    pub(super) map: MapId,
    pub(super) key: Bytes,
}

impl BrowsedKey<'_> {
    /// Asks for this, which changes nothing.
    pub(super) async fn ask(&self, action: Action) -> HttpAnswer<Outcome> {
        match self.execute(action).await {
            Outcome::Failed(why) => Err(Error::of_read(why).into()),
            outcome => Ok(outcome),
        }
    }

    /// Changes something.
    pub(super) async fn change(&self, action: Action) -> HttpAnswer<Outcome> {
        match self.execute(action).await {
            Outcome::Failed(why) => Err(Error::of_write(why).into()),
            outcome => Ok(outcome),
        }
    }

    async fn execute(&self, action: Action) -> Outcome {
        let operation = Operation {
            keyspace: self.keyspace,
            map: self.map,
            key: self.key.clone(),
            action,
        };
        self.state.data.execute(operation).await
    }

    /// What the key holds, its time to live in milliseconds (`None`: it does not expire), and the
    /// bytes that it takes in memory. `None`: it is absent.
    async fn described(&self) -> HttpAnswer<Option<(Kind, Option<i64>, i64)>> {
        let (kind, ttl, bytes) = tokio::try_join!(
            self.ask(Action::Encoding),
            self.ask(Action::PTtl),
            self.ask(Action::Footprint),
        )?;
        let number = |outcome| match outcome {
            Outcome::Int(number) => number,
            _ => 0,
        };
        let described = |kind| (kind, Some(number(ttl)).filter(|ms| *ms >= 0), number(bytes));
        Ok(browse::kind_of(&kind).map(described))
    }
}

pub(super) fn absent() -> HttpFailure {
    let why = "there is no such key: it has expired, or was deleted or evicted";
    HttpFailure(StatusCode::NOT_FOUND, why.into())
}

/// Where a page of keys ends: a partition, and the cursor in it.
fn place(text: &str) -> HttpAnswer<(PartitionId, u64)> {
    let place = text.split_once('.').and_then(|(partition, cursor)| {
        Some((PartitionId(partition.parse().ok()?), cursor.parse().ok()?))
    });
    place.ok_or_else(|| {
        HttpFailure::bad_request("`after` is what the page before this one had as `next`")
    })
}

/// A page of the keys of a map or a database, in no order.
pub(in super::super) async fn keys(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<KeysListQuery>, QueryRejection>,
) -> HttpAnswer<Json<Value>> {
    let Query(query) = query.map_err(|why| {
        let there_is = "there is /console/keys?keyspace=NAME, with &map=NAME or &database=NUMBER, \
                        &prefix-base64=BYTES and &after=NEXT";
        HttpFailure::bad_request(format!("{there_is}: {}", why.body_text()))
    })?;
    let prefix = match &query.prefix {
        Some(prefix) => key_of(None, Some(prefix))?,
        None => Vec::new(),
    };
    let (from, mut cursor) = query
        .after
        .as_deref()
        .map_or(Ok((PartitionId(0), 0)), place)?;
    let table = table_of(&state)?;
    let within = (query.map.as_deref(), query.database);
    let (keyspace, map) = place_of(&table, query.keyspace.as_deref(), within)?;
    let mut partitions: Vec<_> = keyspace.partitions.iter().map(|p| p.id).collect();
    partitions.sort_unstable();
    let mut left = partitions.into_iter().filter(|id| *id >= from).peekable();
    if left.peek() != Some(&from) {
        // It was split or merged: those that have its keys now are read whole.
        cursor = 0;
    }
    let until = Instant::now() + LOOKED_MAX;
    let mut found = Vec::new();
    while let Some(partition) = left.peek().copied() {
        if found.len() >= KEYS as usize || Instant::now() >= until {
            break;
        }
        let operation = PartitionOperation {
            keyspace: keyspace.id,
            partition,
            map,
            action: PartitionAction::Scan {
                cursor,
                count: KEYS,
                kind: None,
            },
        };
        match state.data.execute_partition(operation).await {
            Outcome::Keys { next, keys } => {
                found.extend(keys.into_iter().filter(|key| key.starts_with(&prefix)));
                cursor = next;
            }
            Outcome::Failed(why) => return Err(Error::of_read(why).into()),
            other => return Err(Error::unexpected(other).into()),
        }
        if cursor == 0 {
            left.next();
        }
    }
    let next = left
        .next()
        .map(|partition| format!("{}.{cursor}", partition.0));
    let described = join_all(found.into_iter().map(|key| {
        let (state, keyspace) = (&*state, keyspace.id);
        listed(BrowsedKey {
            state,
            keyspace,
            map,
            key,
        })
    }));
    let keys: HttpAnswer<Vec<Option<Value>>> = described.await.into_iter().collect();
    let keys: Vec<Value> = keys?.into_iter().flatten().collect();
    Ok(Json(json!({ "keys": keys, "next": next })))
}

/// A key of a page. `None`: it is gone meanwhile.
async fn listed(at: BrowsedKey<'_>) -> HttpAnswer<Option<Value>> {
    let described = at.described().await?;
    Ok(described.map(|(kind, ttl_ms, bytes)| {
        let key = AnyBytes::from(at.key);
        json!({ "key": key, "type": kind.name(), "ttl_ms": ttl_ms, "bytes": bytes })
    }))
}

/// A page of what a key holds.
pub(in super::super) async fn value(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<ValueQuery>, QueryRejection>,
) -> HttpAnswer<Json<Value>> {
    let Query(query) = query.map_err(|why| {
        let there_is = "there is /console/value?key=KEY, or ?key-base64=KEY, with &keyspace=NAME, \
                        &map=NAME or &database=NUMBER, and &after=NEXT";
        HttpFailure::bad_request(format!("{there_is}: {}", why.body_text()))
    })?;
    let key = key_of_query(query.key, query.key_base64.as_deref())?.into();
    let table = table_of(&state)?;
    let within = (query.map.as_deref(), query.database);
    let (keyspace, map) = place_of(&table, query.keyspace.as_deref(), within)?;
    let at = BrowsedKey {
        state: &state,
        keyspace: keyspace.id,
        map,
        key,
    };
    let (kind, ttl_ms, bytes) = at.described().await?.ok_or_else(absent)?;
    let Outcome::Int(length) = at.ask(browse::length(kind)).await? else {
        return Err(absent());
    };
    let from = query.after.unwrap_or(0);
    let fields = kind != Kind::String;
    let count = if fields { VALUE_FIELDS } else { VALUE_BYTES };
    let page = browse::page(kind, from, count).ok_or_else(|| {
        HttpFailure::bad_request("`after` is what the page before this one had as `next`")
    })?;
    let mut shown = json!({
        "key": AnyBytes::from(at.key.clone()),
        "type": kind.name(),
        "ttl_ms": ttl_ms,
        "bytes": bytes,
        "length": length,
        "writable": map.is_database(),
    });
    let more = match page {
        ValuePage::Bytes(action) => {
            let Outcome::Bulk(part) = at.ask(action).await? else {
                return Err(absent());
            };
            shown["value"] = json!(AnyBytes::from(Bytes::copy_from_slice(&part)));
            let end = from.saturating_add(part.len() as u64);
            (i64::try_from(end).unwrap_or(i64::MAX) < length && !part.is_empty()).then_some(end)
        }
        ValuePage::Fields { action, valued } => {
            let Outcome::Keys { next, keys } = at.ask(action).await? else {
                return Err(absent());
            };
            shown["items"] = items(keys, valued).into();
            Some(next).filter(|next| *next != 0)
        }
    };
    // As text: cursors may be above what numbers of JavaScript hold.
    shown["next"] = json!(more.map(|next| next.to_string()));
    Ok(Json(shown))
}

/// Fields, each with its value if they have any.
fn items(found: Vec<Bytes>, valued: bool) -> Vec<Value> {
    let mut found = found.into_iter().map(AnyBytes::from);
    let mut items = Vec::new();
    while let Some(field) = found.next() {
        items.push(match (valued, valued.then(|| found.next()).flatten()) {
            (true, value) => json!({ "field": field, "value": value }),
            (false, _) => json!({ "field": field }),
        });
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_keys_ends_at_a_place_in_a_partition() {
        assert!(matches!(place("7.12"), Ok((PartitionId(7), 12))));
        for wrong in ["", "7", ".", "7.", ".12", "-1.0", "7.x", "7.1.2"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fields_are_listed_with_their_values_if_they_have_any() {
        let found = || {
            vec![
                "a".into(),
                "1".into(),
                "b".into(),
                Bytes::from_static(b"\xFF"),
            ]
        };
        let valued = json!([
            { "field": "a", "value": "1" },
            { "field": "b", "value": { "base64": "/w==" } },
        ]);
        assert_eq!(Value::from(items(found(), true)), valued);
        assert_eq!(items(found(), false).len(), 4);
    }
}
