//! Where a key is: its partition, and the members that hold it.

use super::super::HttpState;
use super::super::failure::{HttpAnswer, HttpFailure};
use super::super::reports::table_of;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doyen_placement::{Keyspace, MapId, MemberId, ReplicaState, Table};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Parameters of `GET /console/locate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct LocateQuery {
    /// A key that is text.
    key: Option<String>,
    /// Any key.
    #[serde(rename = "key-base64")]
    key_base64: Option<String>,
    /// Where it lies; without a map and a database: database 0.
    keyspace: Option<String>,
    map: Option<String>,
    database: Option<u32>,
}

/// Where a key is, or would be.
pub(in super::super) async fn locate(
    Shared(state): Shared<Arc<HttpState>>,
    query: Result<Query<LocateQuery>, QueryRejection>,
) -> HttpAnswer<Json<Value>> {
    let Query(query) = query.map_err(|why| {
        let there_is = "there is /console/locate?key=KEY, or ?key-base64=KEY if the key is no \
                        text, with &keyspace=NAME, and with &map=NAME or &database=NUMBER";
        HttpFailure::bad_request(format!("{there_is}: {}", why.body_text()))
    })?;
    let key = key_of_query(query.key, query.key_base64.as_deref())?;
    let table = table_of(&state)?;
    let within = (query.map.as_deref(), query.database);
    let (keyspace, map) = place_of(&table, query.keyspace.as_deref(), within)?;
    let partition = keyspace.partition_of(map, &key);
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

/// The key that a query gives as text, or in base64. A query that is no UTF-8 was read with other
/// characters in place of its bytes.
pub(super) fn key_of_query(text: Option<String>, base64: Option<&str>) -> HttpAnswer<Vec<u8>> {
    if text
        .as_ref()
        .is_some_and(|text| text.contains(char::REPLACEMENT_CHARACTER))
    {
        let why = "the key is no text: give its bytes in base64, as `key-base64`";
        return Err(HttpFailure::bad_request(why));
    }
    key_of(text, base64)
}

/// A key that is given as text, or in base64.
pub(super) fn key_of(text: Option<String>, base64: Option<&str>) -> HttpAnswer<Vec<u8>> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|why| {
            let why = format!("the key is no base64 ({why}): encode its bytes, with padding");
            HttpFailure::bad_request(why)
        }),
        _ => Err(HttpFailure::bad_request(
            "give the key once: `key` if it is text, else `key-base64`",
        )),
    }
}

/// A keyspace (without a name: the first one), and a map or a database of it (without both:
/// database 0).
pub(super) fn place_of<'a>(
    table: &'a Table,
    keyspace: Option<&str>,
    (map, database): (Option<&str>, Option<u32>),
) -> HttpAnswer<(&'a Keyspace, MapId)> {
    let absent = |what: String| HttpFailure(StatusCode::NOT_FOUND, what);
    let found = match keyspace {
        Some(name) => table.keyspace_named(name),
        None => table.keyspaces.first(),
    };
    let keyspace = found.ok_or_else(|| {
        let name = keyspace.unwrap_or("default");
        absent(format!("there is no keyspace `{name}`: ask GET /keyspaces"))
    })?;
    let map = match (map, database) {
        (None, database) => MapId::database(database.unwrap_or(0)).ok_or_else(|| {
            let last = MapId::DATABASES - 1;
            HttpFailure::bad_request(format!("there are the databases 0 to {last}"))
        })?,
        (Some(name), None) => {
            let of = &keyspace.name;
            let map = table.map_in(of, name);
            map.ok_or_else(|| absent(format!("{of} has no map `{name}`: ask GET /maps")))?
                .id
        }
        (Some(_), Some(_)) => {
            let why = "a key is in a map or in a database: give one of both";
            return Err(HttpFailure::bad_request(why));
        }
    };
    Ok((keyspace, map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::cluster;

    #[test]
    fn a_key_is_text_or_any_bytes_in_base64() {
        let read = |text: Option<&str>, base64| {
            let key = key_of(text.map(str::to_owned), base64);
            key.map_err(|HttpFailure(_, why)| why)
        };
        assert_eq!(read(Some("user:42"), None), Ok(b"user:42".to_vec()));
        assert_eq!(read(None, Some("/wA=")), Ok(vec![0xFF, 0]));
        for (text, base64) in [(None, None), (Some("a"), Some("YQ==")), (None, Some("/w"))] {
            assert!(read(text, base64).is_err(), "{text:?} {base64:?}");
        }
    }

    #[test]
    fn a_database_has_a_number_and_a_map_a_name() {
        let table = cluster(1);
        let place = |keyspace, within| {
            let place = place_of(&table, keyspace, within);
            place.map(|(_, map)| map).map_err(|HttpFailure(_, why)| why)
        };
        assert_eq!(place(None, (None, None)), Ok(MapId(0)));
        let last = MapId::database(15).expect("it exists");
        assert_eq!(place(Some("default"), (None, Some(15))), Ok(last));
        for (keyspace, within, says) in [
            (None, (None, Some(16)), "databases 0 to 15"),
            (None, (Some("x"), None), "no map `x`"),
            (None, (Some("x"), Some(0)), "one of both"),
            (Some("none"), (None, None), "no keyspace `none`"),
        ] {
            let why = place(keyspace, within).expect_err("it is none");
            assert!(why.contains(says), "{why}");
        }
    }
}
